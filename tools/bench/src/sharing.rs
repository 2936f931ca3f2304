//! The cache lines that the workers of our server take from each other, by type of request.
//!
//! Our server runs under valgrind's lackey, which prints all accesses of all threads. Each worker
//! has a client. In each round, all clients send a request, one shortly after the other. So between
//! two requests of one worker there is a request of each other worker, and while a request waits
//! for the origin, the other workers go on. Caches without a bound are simulated ([`mesi`]), with
//! the threads as processors. The accesses of the task that each core runs every 100 ms are left
//! out: at full speed there is one run for tens of thousands of requests, but under valgrind there
//! would be one for every few. The kernel is not simulated.
//!
//! Valgrind runs one thread at a time, from one system call to the next or longer. On real cores, a
//! line that a request uses several times in between can move several times.

mod mesi;
mod places;
mod trace;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf, absolute};
use std::thread;
use std::time::Duration;

use clap::Args;
use harness::origin::OriginThread;

use crate::client::{Client, HOST};
use crate::servers::free_address;
use crate::table;
use crate::valgrind::{self, ANSWER_MAX, END_MAX, START_MAX};
use mesi::{Key, LINE_BYTES};
use places::Places;
use trace::{Counts, Label, Order, Trace};

/// Rounds before the counted rounds.
const FIRST: u32 = 5;
/// The pause after responses, in which the workers end their turns.
const PAUSE: Duration = Duration::from_millis(20);
/// How long to look for the task that is left out, and to wait for the end of other work.
const SILENCE: Duration = Duration::from_millis(1500);
/// How many times to look for the task.
const TASK_TRIES: u32 = 10;
/// The task that is left out, by words in the name of its procedure.
const LEFT_OUT: [&str; 2] = ["core_task", "tick"];
/// The time from the request of one worker to that of the next worker, so that they take turns.
const STAGGER: Duration = Duration::from_millis(2);
/// How many connections are opened until each worker has one.
const CONNECTIONS_MAX: usize = 1000;
/// Memory of the store for each worker, for the four shards that each worker has if there is room.
const MEMORY_MIB: usize = 256;
/// The least transfers per request of a row.
const SHOWN_MIN: f64 = 0.05;

/// Count the cache lines that workers take from each other, by type of request.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The program.
    #[arg(long, default_value = "target/release/plimsoll")]
    plimsoll: PathBuf,
    /// The number of workers.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(2..=64))]
    workers: u8,
    /// Counted requests of each type and worker.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    requests: u32,
    /// Count only types whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
    /// Show each cache line apart.
    #[arg(long)]
    lines: bool,
}

/// The method and the path of a request.
type Request = (&'static str, String);

/// A type of request.
struct Type {
    name: &'static str,
    /// What the head of the response contains.
    answer: &'static str,
    /// The request of a worker in a round.
    request: fn(usize, u32) -> Request,
}

const fn of(name: &'static str, answer: &'static str, request: fn(usize, u32) -> Request) -> Type {
    Type { name, answer, request }
}

fn get(path: String) -> Request {
    ("GET", path)
}

const TYPES: &[Type] = &[
    of("hit, one object for all", "; hit", |_, _| get("/obj/1".into())),
    of("hit, an object for each worker", "; hit", |worker, _| get(format!("/obj/{}", 10 + worker))),
    of("miss passed on", "; fwd=", |worker, _| get(format!("/obj/{}?cc=no-store", 10 + worker))),
    of("miss stored", "; stored", |worker, round| get(format!("/obj/{worker}000{round}"))),
    of("revalidation", "fwd-status=304", |worker, _| {
        get(format!("/obj/{}?cc=no-cache", 10 + worker))
    }),
    of("purge of a URL", "", |worker, _| ("PURGE", format!("/obj/{worker}/purged"))),
];

/// Counts, and prints the results.
pub(crate) fn run(flags: &Flags) -> Result<(), String> {
    let program = absolute(&flags.plimsoll).map_err(|e| e.to_string())?;
    let types: Vec<&Type> = TYPES.iter().filter(|of| of.name.contains(&flags.only)).collect();
    if types.is_empty() {
        let names: Vec<&str> = TYPES.iter().map(|of| of.name).collect();
        return Err(format!("--only {:?}: the types are {}", flags.only, names.join("; ")));
    }
    let workers = usize::from(flags.workers);
    let run = Run { program: &program, workers, requests: flags.requests };
    let (counts, places) = run.counts(&types)?;
    print(flags, &types, &counts, &places);
    Ok(())
}

/// One run of the server.
struct Run<'r> {
    program: &'r Path,
    workers: usize,
    requests: u32,
}

/// A client, and the thread of its worker.
struct Connected {
    client: Client,
    thread: usize,
}

impl Run<'_> {
    fn counts(&self, types: &[&Type]) -> Result<(Counts, Places), String> {
        let dir = tempfile::Builder::new().prefix("plimsoll-sharing-").tempdir();
        let dir = dir.map_err(|e| format!("temporary directory: {e}"))?;
        let origin = OriginThread::start(None)?;
        let addr = free_address()?;
        let mut trace = Trace::new().map_err(|e| format!("pipe: {e}"))?;
        let more = format!("\n[store]\nmemory = \"{}MiB\"\n", MEMORY_MIB * self.workers);
        let started = valgrind::Settings { workers: self.workers, more: &more };
        let tool = trace.tool();
        let addresses = (addr, origin.address());
        eprintln!("the server starts, which takes {START_MAX:?} at most");
        let server = valgrind::start(&tool, self.program, addresses, &started, dir.path())?;
        let places = Places::of(server.pid(), self.program)?;
        let sent = (|| -> Result<(), String> {
            let left_out = task(&places, &mut trace)?;
            trace.mark(Order::LeaveOut(left_out))?;
            let mut clients = self.clients(addr, &mut trace)?;
            for (number, of) in types.iter().enumerate() {
                eprintln!("{}", of.name);
                self.send(number, of, &mut clients, &mut trace)
                    .map_err(|why| format!("{}: {why}", of.name))?;
            }
            Ok(())
        })();
        if let Err(why) = sent {
            let words = server.last_words();
            drop(server);
            let of_trace = trace.end().err().unwrap_or_default();
            return Err(format!("{why}; the server: {words} {of_trace}"));
        }
        server.end(END_MAX).map_err(|why| format!("the server: {why}"))?;
        origin.stop()?;
        Ok((trace.end()?, places))
    }

    /// A client of each worker. The kernel chooses the worker of a connection.
    fn clients(&self, addr: SocketAddr, trace: &mut Trace) -> Result<Vec<Connected>, String> {
        let mut clients: Vec<Connected> = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            let failed = |e| format!("a new connection: {e}");
            let mut client = Client::connected(addr, ANSWER_MAX).map_err(failed)?;
            client.get("/obj/1").map_err(failed)?;
            let mut busiest = || {
                trace.mark(Order::Pass)?;
                client.get("/obj/1").map_err(failed)?;
                let accesses = trace.mark(Order::Pass)?.accesses;
                let busiest = accesses.iter().enumerate().max_by_key(|(_, count)| **count);
                Ok::<_, String>(busiest.expect("the server has threads").0)
            };
            // Another thread may happen to do more than the worker.
            let thread = busiest()?;
            if busiest()? == thread && clients.iter().all(|of| of.thread != thread) {
                clients.push(Connected { client, thread });
            }
            if clients.len() == self.workers {
                // The server closes the other connections.
                thread::sleep(SILENCE);
                return Ok(clients);
            }
        }
        Err(format!("only {} of {} workers have a connection", clients.len(), self.workers))
    }

    /// Sends all requests of a type.
    fn send(
        &self,
        number: usize,
        of: &Type,
        clients: &mut [Connected],
        trace: &mut Trace,
    ) -> Result<(), String> {
        for round in 0..FIRST + self.requests {
            let counted = (round >= FIRST).then_some(number);
            // The first requests store what later ones find.
            let answer = counted.map_or("", |_| of.answer);
            trace.mark(Order::Count(counted))?;
            thread::scope(|scope| {
                let mut sent = Vec::new();
                for (worker, one) in clients.iter_mut().enumerate() {
                    let request = (of.request)(worker, round);
                    sent.push(scope.spawn(move || send(&mut one.client, &request, answer)));
                    thread::sleep(STAGGER);
                }
                let panicked = |_| Err("a client panicked".to_owned());
                sent.into_iter().try_for_each(|one| one.join().unwrap_or_else(panicked))
            })?;
            thread::sleep(PAUSE);
            let accesses = trace.mark(Order::Pass)?.accesses;
            if let Some(idle) = clients.iter().find(|one| accesses[one.thread] == 0) {
                return Err(format!("thread {} has answered nothing", idle.thread));
            }
        }
        trace.mark(Order::Count(None)).map(drop)
    }
}

/// The procedures of the task that is left out. On a busy machine, they may run late.
fn task(places: &Places, trace: &mut Trace) -> Result<HashSet<u64>, String> {
    for _ in 0..TASK_TRIES {
        trace.mark(Order::Note(places.memory()))?;
        thread::sleep(SILENCE);
        let found = places.procedures(trace.mark(Order::Pass)?.instructions, &LEFT_OUT);
        if !found.is_empty() {
            return Ok(found.into_iter().collect());
        }
    }
    Err("the task of a core was not found: a program without line tables?".to_owned())
}

/// Sends a request, and waits for its response.
fn send(client: &mut Client, (method, path): &Request, answer: &str) -> Result<(), String> {
    let text = format!("{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    let head = client.converse(text.as_bytes(), |_| ()).map_err(|e| e.to_string())?;
    match head.contains(answer) {
        true => Ok(()),
        false => Err(format!("the response is not of this type: {head}")),
    }
}

/// Numbers of transfers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sum {
    /// Reads, writes and upgrades.
    transfers: [u64; 3],
    lines: BTreeSet<u64>,
}

impl Sum {
    fn all(&self) -> u64 {
        self.transfers.iter().sum()
    }
}

/// The transfers of each group of keys.
fn sums<G: Ord>(counts: &Counts, group: impl Fn(&Key<Label>) -> Option<G>) -> BTreeMap<G, Sum> {
    let mut sums: BTreeMap<G, Sum> = BTreeMap::new();
    for (key, count) in counts {
        let Some(group) = group(key) else { continue };
        let sum = sums.entry(group).or_default();
        sum.transfers[key.transfer as usize] += count;
        sum.lines.insert(key.line);
    }
    sums
}

fn print(flags: &Flags, types: &[&Type], counts: &Counts, places: &Places) {
    let requests = f64::from(flags.requests) * f64::from(flags.workers);
    let figures = |sum: &Sum| {
        let each = |count: u64| format!("{:.2}", count as f64 / requests);
        let [reads, writes, upgrades] = sum.transfers;
        [sum.all(), reads, writes, upgrades].map(each)
    };
    let columns = ["all", "reads", "writes", "upgrades"];
    println!("\nTransfers of cache lines per request, {} workers", flags.workers);
    let mut table = table::plain(&["request", columns[0], columns[1], columns[2], columns[3], ""]);
    let by_type = sums(counts, |key| Some(key.label.0));
    for (number, of) in types.iter().enumerate() {
        let sum = by_type.get(&number).cloned().unwrap_or_default();
        let cells = [of.name.to_owned()].into_iter().chain(figures(&sum));
        table.add_row(cells.chain([String::new()]));
    }
    println!("{table}");
    let all = counts.keys().map(|key| key.label.1);
    let names: BTreeMap<u64, String> = all.map(|place| (place, places.name(place))).collect();
    for (number, of) in types.iter().enumerate() {
        println!("\n{}", of.name);
        let address = |key: &Key<Label>| if flags.lines { key.line * LINE_BYTES } else { 0 };
        let groups = sums(counts, |key| {
            (key.label.0 == number).then(|| (address(key), &names[&key.label.1]))
        });
        let is_shown = |(_, sum): &(_, Sum)| sum.all() as f64 >= SHOWN_MIN * requests;
        let mut rows: Vec<_> = groups.into_iter().filter(is_shown).collect();
        rows.sort_by_key(|((address, _), sum)| (*address, Reverse(sum.all())));
        let header = if flags.lines { "address" } else { "lines" };
        let mut table =
            table::plain(&[header, columns[0], columns[1], columns[2], columns[3], "where"]);
        for ((address, name), sum) in rows {
            let first =
                if flags.lines { format!("{address:x}") } else { sum.lines.len().to_string() };
            let cells = [first].into_iter().chain(figures(&sum));
            table.add_row(cells.chain([name.clone()]));
        }
        println!("{table}");
    }
}

#[cfg(test)]
mod tests {
    use super::mesi::Transfer;
    use super::*;

    #[test]
    fn transfers_are_summed_by_group() {
        let key = |number, line, transfer| Key { label: (number, 0x10), line, transfer };
        let counts: Counts = [
            (key(0, 1, Transfer::Read), 3),
            (key(0, 1, Transfer::Upgrade), 2),
            (key(0, 2, Transfer::Write), 4),
            (key(1, 3, Transfer::Read), 5),
        ]
        .into();
        let found = sums(&counts, |key| (key.label.0 == 0).then_some(key.label.1));
        let expected = Sum { transfers: [3, 4, 2], lines: [1, 2].into() };
        assert_eq!(expected.all(), 9);
        assert_eq!(found, [(0x10, expected)].into());
    }
}
