//! What a hit misses: the simulated caches of one request, with thousands of connections.
//!
//! What: our own server under valgrind's cachegrind, in front of objects that it has stored; each
//! of so many keep-alive connections asks in turn, in one order drawn beforehand, so that what
//! belongs to a connection has long left the caches when it is asked again. One run of one round,
//! one of five: the difference is four rounds of hits, and neither the start nor the end.
//! Why simulated: the counters of the processor are not to be had everywhere, and a simulation
//! counts the same each time. Why one request at a time: under valgrind the server is fifty times
//! as slow, and a queue would be taken for overload.
//! What is left out: the kernel, which is not simulated, and prefetching.
//! What never happens: a request that was no hit is counted.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use load::{Origin, sys};

use crate::asking;
use crate::process::{self, Process};
use crate::servers::free_address;
use crate::table;
use crate::warm_start::draw;

/// The server under valgrind runs on this one.
const SERVER_CPU: usize = 0;
/// How long the server may take to start, and to end, and to answer: it is slow.
const START_MAX: Duration = Duration::from_secs(60);
const END_MAX: Duration = Duration::from_secs(300);
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Rounds of the two runs. What the server does by the clock is in the difference too, and weighs
/// the less the more rounds there are.
const ROUNDS: (u32, u32) = (1, 5);
/// Procedures that are shown.
const PROCEDURES_SHOWN: usize = 16;
/// What shuffles the connections and draws the objects.
const SEED: u64 = 2002;

/// Misses of a hit in simulated caches, with many connections that ask in turn.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// The programs that are compared: before, after.
    #[arg(long, default_value = "target/release/plimsoll")]
    plimsoll: Vec<PathBuf>,
    /// Connections; each asks once in a round.
    #[arg(long, default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=25_000))]
    connections: u32,
    /// Objects that are stored.
    #[arg(long, default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    objects: u32,
    /// Bytes of an object.
    #[arg(long, default_value_t = 1024)]
    size: u32,
    /// Only this of the two geometries: 2002 or here.
    #[arg(long)]
    caches: Option<String>,
    /// Keep what cachegrind writes in this directory, for cg_annotate.
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// The caches that are simulated, in cachegrind's words: bytes, ways, bytes of a line.
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

    /// Those of this machine: its second level is the last that a core has for itself.
    fn here() -> Result<Caches, String> {
        let told = |level: &str, kind: &str| {
            told(level, kind).ok_or_else(|| format!("the kernel tells no {kind} cache {level}"))
        };
        let (i1, d1) = (told("1", "Instruction")?, told("1", "Data")?);
        Ok(Caches { name: "here", i1, d1, ll: told("2", "Unified")? })
    }
}

/// A cache of the first CPU, as the kernel tells it.
fn told(level: &str, kind: &str) -> Option<String> {
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

/// What cachegrind counted: of the whole program, or of one procedure. May be a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    instructions: i64,
    accesses: i64,
    d1: i64,
    ll: i64,
}

impl Counted {
    /// From a line of `Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw`; what is missing at its end is 0.
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

/// What one run of the server counted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Profile {
    whole: Counted,
    procedures: BTreeMap<String, Counted>,
}

impl Profile {
    /// Reads what cachegrind wrote.
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
                let counted = Counted::of(counts).ok_or_else(|| format!("what is {line}?"))?;
                profile.procedures.entry(procedure.clone()).or_default().add(counted, 1);
            }
        }
        profile.whole = whole.ok_or("cachegrind's file has no end: the server was killed")?;
        Ok(profile)
    }

    /// What this run counted and the other one did not.
    fn less(mut self, other: &Profile) -> Profile {
        self.whole.add(other.whole, -1);
        for (name, counted) in &other.procedures {
            self.procedures.entry(name.clone()).or_default().add(*counted, -1);
        }
        self
    }
}

/// Compares the programs, and prints.
pub(crate) fn run(flags: &Flags) -> Result<(), String> {
    let valgrind = process::find("valgrind")
        .ok_or("not supported here: valgrind is not installed (apt-get install valgrind)")?;
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
    let mut rows = Vec::new();
    for caches in chosen {
        for program in &flags.plimsoll {
            let place = flags.keep.as_deref().unwrap_or(dir.path());
            let stage = Stage { flags, valgrind: &valgrind, program, caches, dir: place };
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

/// What a run needs at hand.
struct Stage<'f> {
    flags: &'f Flags,
    valgrind: &'f Path,
    program: &'f Path,
    caches: &'f Caches,
    dir: &'f Path,
}

impl Stage<'_> {
    /// Runs the server for so many rounds.
    fn rounds(&self, rounds: u32) -> Result<Profile, String> {
        let origin = Origin::bind("127.0.0.1:0".parse().expect("this is an address"))
            .map_err(|e| format!("origin: {e}"))?;
        let (origin_addr, stop) = (origin.local_addr(), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&stop);
        let serving = thread::spawn(move || origin.run(&told));
        let counted = self.counted(origin_addr, rounds);
        stop.store(true, Ordering::Relaxed);
        match serving.join() {
            Ok(Ok(())) => counted,
            Ok(Err(e)) => Err(format!("origin: {e}")),
            Err(_) => Err("origin: it panicked".to_owned()),
        }
    }

    fn counted(&self, origin: SocketAddr, rounds: u32) -> Result<Profile, String> {
        let addr = free_address().map_err(|e| format!("no free port: {e}"))?;
        let stem = self.program.file_name().unwrap_or_default().to_string_lossy();
        let out = self.dir.join(format!("{stem}.{}.{rounds}", self.caches.name));
        let server = self.start(addr, origin, &out)?;
        let asked = self.ask(addr, rounds);
        let asked = asked.map_err(|why| format!("{why}; the server: {}", server.last_words()));
        asked.and_then(|()| server.end(END_MAX).map_err(|why| format!("the server {why}")))?;
        let text = fs::read_to_string(&out).map_err(|e| format!("{}: {e}", out.display()))?;
        Profile::parse(&text)
    }

    fn start(&self, addr: SocketAddr, origin: SocketAddr, out: &Path) -> Result<Process, String> {
        let (config, errors) = (self.dir.join("plimsoll.toml"), self.dir.join("stderr"));
        // Shedding is off, for the server is slow by the simulation; nobody is cut for silence.
        let text = format!(
            "[server]\nworkers = 1\nbackend = \"epoll\"\n\n[[listen]]\naddress = \"{addr}\"\n\n\
             [[upstream]]\nname = \"origin\"\n\n[[upstream.server]]\nurl = \"http://{origin}\"\n\n\
             [limits]\noverload_shed = false\nidle_keep_alive = \"1h\"\nhead_timeout = \"1h\"\n"
        );
        fs::create_dir_all(self.dir)
            .and_then(|()| fs::write(&config, text))
            .map_err(|e| format!("{}: {e}", config.display()))?;
        let Caches { i1, d1, ll, .. } = self.caches;
        let mut command = Command::new(self.valgrind);
        command.args(["--tool=cachegrind", "--cache-sim=yes"]);
        command.args([format!("--I1={i1}"), format!("--D1={d1}"), format!("--LL={ll}")]);
        command.arg(format!("--cachegrind-out-file={}", out.display()));
        command.arg(self.program).args(["serve", "-c"]).arg(&config);
        let server = Process::start(command, SERVER_CPU, errors);
        let mut server = server.map_err(|e| format!("{}: {e}", self.valgrind.display()))?;
        server.wait_for(addr, START_MAX).map_err(|why| format!("the server {why}"))?;
        Ok(server)
    }

    /// Fills the store, opens the connections, and has each ask once in each round.
    fn ask(&self, addr: SocketAddr, rounds: u32) -> Result<(), String> {
        let Flags { connections, objects, size, .. } = *self.flags;
        let path = format!("/obj/{{n}}?size={size}&cc=max-age%3D86400");
        let mut asker = asking::Asker::new(addr);
        for object in 0..objects {
            asker.ask(&asking::of(&path, object)).map_err(|e| format!("object {object}: {e}"))?;
        }
        let mut clients = Vec::new();
        for number in 0..connections {
            let client = asking::connect(addr, ANSWER_MAX)
                .map_err(|e| format!("connection {number}: {e}"))?;
            clients.push(client);
        }
        let mut below = draws(SEED);
        let mut order: Vec<u32> = (0..connections).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, below(at as u32 + 1) as usize);
        }
        let drawn: Vec<u32> = order.iter().map(|_| below(objects)).collect();
        for _ in 0..rounds {
            for (number, object) in order.iter().zip(&drawn) {
                let asked = hit(&mut clients[*number as usize], &asking::of(&path, *object), size);
                asked.map_err(|e| format!("connection {number}: {e}"))?;
            }
        }
        Ok(())
    }
}

/// Asks for an object; anything but a whole hit is an error.
fn hit(stream: &mut TcpStream, path: &str, size: u32) -> io::Result<()> {
    let bad = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let host = asking::HOST;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())?;
    let mut answer = Vec::with_capacity(1024 + size as usize);
    let mut buffer = [0; 16 * 1024];
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Err(bad("closed before its answer was whole"));
        }
        answer.extend_from_slice(&buffer[..read]);
        let Some(end) = answer.windows(4).position(|part| part == b"\r\n\r\n") else { continue };
        if answer.len() < end + 4 + size as usize {
            continue;
        }
        let head = String::from_utf8_lossy(&answer[..end]);
        let is_hit = head.starts_with("HTTP/1.1 200 ") && head.contains("plimsoll; hit");
        return if is_hit { Ok(()) } else { Err(bad("an answer that is no hit")) };
    }
}

/// Draws below a bound, the same in each run.
fn draws(seed: u64) -> impl FnMut(u32) -> u32 {
    let mut seeds = seed..;
    move |bound| draw(seeds.next().unwrap_or(seed), bound)
}

fn print(flags: &Flags, rows: &[(String, Caches, Profile)]) {
    let Flags { connections, objects, size, .. } = *flags;
    println!(
        "Per hit: {connections} connections ask in turn, one after the other, {objects} objects of \
         {size} bytes"
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
        println!("\n{program}, caches {name} (D1 {d1}, LL {ll}): where");
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

/// The end of a long name is what tells it from others.
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
    fn what_cachegrind_writes_is_summed_by_procedure() {
        let profile = Profile::parse(ONE).unwrap();
        let whole = Counted { instructions: 106, accesses: 31, d1: 6, ll: 4 };
        assert_eq!(profile.whole, whole);
        let a = Counted { instructions: 105, accesses: 30, d1: 5, ll: 3 };
        assert_eq!(profile.procedures["a"], a, "lines of other files are of the same procedure");
        let mut sum = Counted::default();
        profile.procedures.values().for_each(|counted| sum.add(*counted, 1));
        assert_eq!(sum, whole);
        let cut = ONE.split("summary").next().unwrap();
        assert!(Profile::parse(cut).unwrap_err().contains("no end"));
        assert!(Profile::parse("events: Ir\nsummary: 1\n").unwrap_err().contains("other events"));
    }

    #[test]
    fn what_both_runs_did_drops_out() {
        let two = ONE.replace("10 100 1 1 20 3 2", "10 150 1 1 30 7 4");
        let two = two.replace("106 1 1 21 4 3", "156 1 1 31 8 5");
        let difference = Profile::parse(&two).unwrap().less(&Profile::parse(ONE).unwrap());
        let round = Counted { instructions: 50, accesses: 10, d1: 4, ll: 2 };
        assert_eq!(difference.whole, round);
        assert_eq!(difference.procedures["a"], round);
        assert_eq!(difference.procedures["b"], Counted::default());
    }

    #[test]
    fn an_order_has_each_connection_once_and_is_the_same_each_time() {
        let drawn = |seed| {
            let mut below = draws(seed);
            (0..1000).map(|_| below(10)).collect::<Vec<u32>>()
        };
        assert_eq!(drawn(SEED), drawn(SEED));
        assert!((0..10).all(|number| drawn(SEED).contains(&number)));
        assert!(drawn(SEED).iter().all(|number| *number < 10));
    }
}
