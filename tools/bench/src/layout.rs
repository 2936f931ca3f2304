//! The cache misses of a hit, in simulated processor caches, with thousands of connections.
//!
//! Our server runs under valgrind's cachegrind with a filled cache. Thousands of keep-alive
//! connections send one request each per round, in a fixed random order, so that the data of a
//! connection has left the processor caches long before its next request. One run has one round and
//! another has five; the difference is four rounds of hits, without start and end. The caches are
//! simulated because hardware counters are not available everywhere, and because a simulation
//! counts the same each time. There is one request at a time because the server is fifty times
//! slower under valgrind and would take a queue for overload. The kernel and prefetching are not
//! simulated. Any response other than a hit is an error.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf, absolute};

use clap::Args;
use harness::origin::OriginThread;
use harness::peer::Peer;
use harness::rounds::shuffle;
use load::sys;
use regress::Rng;

use crate::client::{self, Client};
use crate::servers::free_address;
use crate::table;
use crate::valgrind::{self, ANSWER_MAX, END_MAX};

/// Rounds of the two runs. The difference also contains the timers of the server, which weigh less
/// the more rounds there are.
const ROUNDS: (u32, u32) = (1, 5);
/// Number of procedures that are shown.
const PROCEDURES_SHOWN: usize = 16;
/// Seed of the order of connections and of the objects.
const SEED: u64 = 2002;

/// Count the cache misses of a hit in simulated caches, with many connections.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The programs to compare: before, after.
    #[arg(long, default_value = "target/release/plimsoll")]
    plimsoll: Vec<PathBuf>,
    /// Number of connections; each sends one request per round.
    #[arg(long, default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=25_000))]
    connections: u32,
    /// Number of stored objects.
    #[arg(long, default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    objects: u32,
    /// Object size in bytes.
    #[arg(long, default_value_t = 1024)]
    size: u32,
    /// Simulate only one of the two geometries: 2002 or here.
    #[arg(long)]
    caches: Option<String>,
    /// Keep the output of cachegrind in this directory, for cg_annotate.
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// The simulated caches, in cachegrind's notation: bytes, ways, bytes per line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Caches {
    name: &'static str,
    i1: String,
    d1: String,
    ll: String,
}

impl Caches {
    /// The Pentium III Xeon of the scheduler's paper.
    fn of_2002() -> Caches {
        let (l1, ll) = ("16384,4,32".to_owned(), "1048576,4,32".to_owned());
        Caches { name: "2002", i1: l1.clone(), d1: l1, ll }
    }

    /// The caches of this machine. The second level is the last that a core does not share.
    fn here() -> Result<Caches, String> {
        let cache = |level: &str, kind: &str| {
            let missing = || format!("the kernel reports no {kind} cache of level {level}");
            cache_geometry(level, kind).ok_or_else(missing)
        };
        let (i1, d1) = (cache("1", "Instruction")?, cache("1", "Data")?);
        Ok(Caches { name: "here", i1, d1, ll: cache("2", "Unified")? })
    }
}

/// A cache of the first CPU, as reported by the kernel.
fn cache_geometry(level: &str, kind: &str) -> Option<String> {
    for entry in fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?.flatten() {
        let read = |name: &str| {
            fs::read_to_string(entry.path().join(name)).map(|text| text.trim().to_owned()).ok()
        };
        if read("level").as_deref() == Some(level) && read("type").as_deref() == Some(kind) {
            let kib: u64 = read("size")?.strip_suffix('K')?.parse().ok()?;
            let (ways, line) = (read("ways_of_associativity")?, read("coherency_line_size")?);
            return Some(format!("{},{ways},{line}", kib * 1024));
        }
    }
    None
}

/// Counts of cachegrind for the whole program or a procedure, or a difference of counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    instructions: i64,
    accesses: i64,
    d1: i64,
    ll: i64,
}

impl Counted {
    /// From a line of `Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw`. Missing numbers at the end are 0.
    fn of(text: &str) -> Option<Counted> {
        let numbers: Option<Vec<i64>> =
            text.split_whitespace().map(|number| number.parse().ok()).collect();
        let numbers = numbers?;
        let at = |place: usize| numbers.get(place).copied().unwrap_or(0);
        Some(Counted {
            instructions: at(0),
            accesses: at(3) + at(6),
            d1: at(4) + at(7),
            ll: at(5) + at(8),
        })
    }

    fn add(&mut self, other: Counted, times: i64) {
        self.instructions += times * other.instructions;
        self.accesses += times * other.accesses;
        self.d1 += times * other.d1;
        self.ll += times * other.ll;
    }
}

/// The counts of one run of the server.
#[derive(Debug, Default, PartialEq, Eq)]
struct Profile {
    whole: Counted,
    procedures: BTreeMap<String, Counted>,
}

impl Profile {
    /// Parses the output of cachegrind.
    fn parse(text: &str) -> Result<Profile, String> {
        let mut profile = Profile::default();
        let mut procedure = String::new();
        let mut whole = None;
        for line in text.lines() {
            if let Some(events) = line.strip_prefix("events: ") {
                if events.trim() != "Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw" {
                    return Err(format!("cachegrind counts other events: {events}"));
                }
            } else if let Some(name) = line.strip_prefix("fn=") {
                procedure = name.to_owned();
            } else if let Some(sum) = line.strip_prefix("summary:") {
                whole = Counted::of(sum);
            } else if line.starts_with(|c: char| c.is_ascii_digit())
                && let Some((_line_number, counts)) = line.split_once(' ')
            {
                let counted =
                    Counted::of(counts).ok_or_else(|| format!("unexpected line: {line}"))?;
                profile.procedures.entry(procedure.clone()).or_default().add(counted, 1);
            }
        }
        profile.whole = whole.ok_or("cachegrind's file has no end: the server was killed")?;
        Ok(profile)
    }

    /// This run minus another one.
    fn less(mut self, other: &Profile) -> Profile {
        self.whole.add(other.whole, -1);
        for (name, counted) in &other.procedures {
            self.procedures.entry(name.clone()).or_default().add(*counted, -1);
        }
        self
    }
}

/// Compares the programs and prints the result.
pub(crate) fn run(flags: &Flags) -> Result<(), String> {
    let descriptors = sys::raise_descriptor_limit().map_err(|e| format!("descriptors: {e}"))?;
    if descriptors < u64::from(flags.connections) + 100 {
        return Err(format!("not supported here: {descriptors} descriptors are too few"));
    }
    let all = [Caches::of_2002(), Caches::here()?];
    let named = |caches: &&Caches| flags.caches.as_deref().is_none_or(|name| caches.name == name);
    let chosen: Vec<&Caches> = all.iter().filter(named).collect();
    if chosen.is_empty() {
        return Err("--caches: 2002 or here".to_owned());
    }
    let dir = tempfile::Builder::new().prefix("plimsoll-layout-").tempdir();
    let dir = dir.map_err(|e| format!("temporary directory: {e}"))?;
    let place = absolute(flags.keep.as_deref().unwrap_or(dir.path())).map_err(|e| e.to_string())?;
    let mut rows = Vec::new();
    for caches in chosen {
        for program in &flags.plimsoll {
            let program = &absolute(program).map_err(|e| e.to_string())?;
            let stage = Stage { flags, program, caches, dir: &place };
            eprintln!("{}, caches {}: {} round", program.display(), caches.name, ROUNDS.0);
            let few = stage.rounds(ROUNDS.0)?;
            eprintln!("{}, caches {}: {} rounds", program.display(), caches.name, ROUNDS.1);
            let difference = stage.rounds(ROUNDS.1)?.less(&few);
            rows.push((program.display().to_string(), caches.clone(), difference));
        }
    }
    print(flags, &rows);
    Ok(())
}

/// Everything that a run needs.
struct Stage<'f> {
    flags: &'f Flags,
    program: &'f Path,
    caches: &'f Caches,
    dir: &'f Path,
}

impl Stage<'_> {
    /// Runs the server for this many rounds.
    fn rounds(&self, rounds: u32) -> Result<Profile, String> {
        let origin = OriginThread::start(None)?;
        let addr = free_address()?;
        let stem = self.program.file_name().unwrap_or_default().to_string_lossy();
        let out = self.dir.join(format!("{stem}.{}.{rounds}", self.caches.name));
        let server = self.start(addr, origin.address(), &out)?;
        let asked = self.send_requests(addr, rounds);
        let asked = asked.map_err(|why| format!("{why}; the server: {}", server.last_words()));
        asked.and_then(|()| server.end(END_MAX).map_err(|why| format!("the server: {why}")))?;
        origin.stop()?;
        let text = fs::read_to_string(&out).map_err(|e| format!("{}: {e}", out.display()))?;
        Profile::parse(&text)
    }

    fn start(&self, addr: SocketAddr, origin: SocketAddr, out: &Path) -> Result<Peer, String> {
        let Caches { i1, d1, ll, .. } = self.caches;
        let mut tool = ["--tool=cachegrind", "--cache-sim=yes"].map(str::to_owned).to_vec();
        tool.extend([format!("--I1={i1}"), format!("--D1={d1}"), format!("--LL={ll}")]);
        tool.push(format!("--cachegrind-out-file={}", out.display()));
        let settings = valgrind::Settings { workers: 1, more: "" };
        valgrind::start(&tool, self.program, (addr, origin), &settings, self.dir)
    }

    /// Fills the cache, opens the connections, and sends one request on each per round.
    fn send_requests(&self, addr: SocketAddr, rounds: u32) -> Result<(), String> {
        let Flags { connections, objects, size, .. } = *self.flags;
        let path = format!("/obj/{{n}}?size={size}&cc=max-age%3D86400");
        let mut client = Client::new(addr);
        for object in 0..objects {
            client
                .get(&client::object_path(&path, object))
                .map_err(|e| format!("object {object}: {e}"))?;
        }
        let mut clients = Vec::new();
        for number in 0..connections {
            let client = Client::connected(addr, ANSWER_MAX);
            clients.push(client.map_err(|e| format!("connection {number}: {e}"))?);
        }
        let mut random = Rng::new(SEED);
        let mut order: Vec<u32> = (0..connections).collect();
        shuffle(&mut order, &mut random);
        let drawn: Vec<u32> = order.iter().map(|_| random.below(objects as usize) as u32).collect();
        for _ in 0..rounds {
            for (number, object) in order.iter().zip(&drawn) {
                let head = clients[*number as usize].get(&client::object_path(&path, *object));
                let head = head.map_err(|e| format!("connection {number}: {e}"))?;
                if !head.contains("plimsoll; hit") {
                    return Err(format!("connection {number}: the response is not a hit"));
                }
            }
        }
        Ok(())
    }
}

fn print(flags: &Flags, rows: &[(String, Caches, Profile)]) {
    let Flags { connections, objects, size, .. } = *flags;
    println!(
        "Per hit: {connections} connections, one request at a time, {objects} objects of {size} \
         bytes"
    );
    let hits = f64::from(connections) * f64::from(ROUNDS.1 - ROUNDS.0);
    let each = |count: i64| format!("{:.2}", count as f64 / hits);
    let header = ["caches", "instructions", "data accesses", "D1 misses", "LL misses", "program"];
    let mut table = table::plain(&header);
    for (program, caches, profile) in rows {
        let whole = profile.whole;
        let counts = [whole.instructions, whole.accesses, whole.d1, whole.ll];
        let mut cells = vec![caches.name.to_owned()];
        cells.extend(counts.map(each));
        cells.push(program.clone());
        table.add_row(cells);
    }
    println!("{table}");
    for (program, caches, profile) in rows {
        let Caches { name, d1, ll, .. } = caches;
        println!("\n{program}, caches {name} (D1 {d1}, LL {ll}), by procedure");
        let mut table = table::plain(&["D1 misses", "LL misses", "data accesses", "procedure"]);
        let mut sorted: Vec<_> = profile.procedures.iter().collect();
        sorted.sort_by_key(|(_, counted)| std::cmp::Reverse(counted.d1 + counted.ll));
        for (procedure, counted) in sorted.into_iter().take(PROCEDURES_SHOWN) {
            let counts = [counted.d1, counted.ll, counted.accesses].map(each);
            table.add_row(counts.into_iter().chain([shortened(procedure)]));
        }
        println!("{table}");
    }
}

/// The end of a long name, which distinguishes it from others.
fn shortened(name: &str) -> String {
    const CHARACTERS_MAX: usize = 72;
    let count = name.chars().count();
    match count > CHARACTERS_MAX {
        true => format!("...{}", name.chars().skip(count - CHARACTERS_MAX).collect::<String>()),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "desc: D1 cache: 16384 B, 32 B, 4-way associative\ncmd: plimsoll serve\n\
        events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw \nfl=a.rs\nfn=a\n10 100 1 1 20 3 2 10 2 1\n\
        fl=b.rs\n7 5\nfn=b\n1 1 0 0 1 1 1\nsummary: 106 1 1 21 4 3 10 2 1\n";

    #[test]
    fn counts_are_summed_by_procedure() {
        let profile = Profile::parse(ONE).unwrap();
        let whole = Counted { instructions: 106, accesses: 31, d1: 6, ll: 4 };
        assert_eq!(profile.whole, whole);
        let a = Counted { instructions: 105, accesses: 30, d1: 5, ll: 3 };
        assert_eq!(
            profile.procedures["a"], a,
            "inlined lines of other files belong to the procedure"
        );
        let mut sum = Counted::default();
        profile.procedures.values().for_each(|counted| sum.add(*counted, 1));
        assert_eq!(sum, whole);
        let cut = ONE.split("summary").next().unwrap();
        assert!(Profile::parse(cut).unwrap_err().contains("no end"));
        assert!(Profile::parse("events: Ir\nsummary: 1\n").unwrap_err().contains("other events"));
    }

    #[test]
    fn counts_of_both_runs_cancel_out() {
        let two = ONE.replace("10 100 1 1 20 3 2", "10 150 1 1 30 7 4");
        let two = two.replace("106 1 1 21 4 3", "156 1 1 31 8 5");
        let difference = Profile::parse(&two).unwrap().less(&Profile::parse(ONE).unwrap());
        let round = Counted { instructions: 50, accesses: 10, d1: 4, ll: 2 };
        assert_eq!(difference.whole, round);
        assert_eq!(difference.procedures["a"], round);
        assert_eq!(difference.procedures["b"], Counted::default());
    }
}
