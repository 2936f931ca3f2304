//! What a request costs: the floor, the peers, our own.
//!
//! What: every server of the list under every scenario, in interleaved rounds (A B C … A B C …),
//! each on CPU 0 with one worker and no access log (but for one row), the generator and the origin
//! on CPU 1; the server's own CPU time per request, and its ratio to the null server's in the same
//! round. Why: this is the first thing to look at after a change to the data plane. What never
//! happens: a row left out in silence; a server left running.

mod asking;
mod beside_writes;
mod generators;
mod layout;
mod measure;
mod process;
mod servers;
mod table;
mod warm_start;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::{Parser, Subcommand};
use load::{NullServer, Origin, OriginCounters, sys};
use serde::Serialize;

use measure::{Pace, SCENARIOS, Scenario};
use servers::{Ground, Kind, Running, SERVERS, Server, Tier};
use table::{Results, Spread, Summary};

/// The CPU of the server under measurement.
const SERVER_CPU: usize = 0;
/// The CPU of the generator and the origin.
const OTHER_CPU: usize = 1;
/// The scenario that measures generators, not servers.
const GENERATOR: &str = "generator";

/// What a request costs: the floor, the peers, our own.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Flags {
    #[command(subcommand)]
    part: Option<Part>,
    /// Rounds; every server runs once in each.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds measured in each cell, after half a second of warm-up.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Only these servers (the floor always runs), by the beginning of their names.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these scenarios, by the beginning of their names: hit, cold, miss, large, generator;
    /// and such as run only when they are named, for they take minutes and gigabytes:
    /// disk_hit_1k, disk_hit_16k, disk_hit_1m, warm_start, beside_writes.
    #[arg(long, value_delimiter = ',')]
    scenario: Vec<String>,
    /// Objects of warm_start.
    #[arg(long, default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    objects: u32,
    /// Megabytes a second of misses in beside_writes.
    #[arg(long, default_value_t = 150.0, value_parser = positive)]
    misses: f64,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Our own server's program.
    #[arg(long, default_value = "target/release/plimsoll")]
    plimsoll: PathBuf,
}

/// Parts of the bench that run as processes of their own.
#[derive(Debug, Subcommand)]
enum Part {
    /// The floor: one epoll, one recv, one send a request.
    #[command(hide = true)]
    NullServer { listen: SocketAddr, body_bytes: usize },
    /// What a hit misses in simulated caches, with thousands of connections.
    Layout(layout::Flags),
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
struct Report {
    conditions: Vec<String>,
    versions: BTreeMap<String, String>,
    generators: Vec<GeneratorRow>,
    rows: Vec<Summary>,
    warm_starts: Vec<warm_start::Starts>,
    beside_writes: Vec<beside_writes::Rounds>,
    cells: Vec<table::Row>,
}

#[derive(Debug, Serialize)]
struct GeneratorRow {
    generator: &'static str,
    cpu_us: Option<Spread>,
    rate: Option<Spread>,
    note: Option<String>,
}

/// A number above zero.
fn positive(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number")?;
    if value > 0.0 && value <= 1e6 { Ok(value) } else { Err("not in 0..=1000000".to_owned()) }
}

impl Flags {
    /// Whether a scenario is asked for by its name.
    fn names(&self, scenario: &str) -> bool {
        self.scenario.iter().any(|name| scenario.starts_with(name.as_str()))
    }
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let done = match &flags.part {
        Some(Part::NullServer { listen, body_bytes }) => null_server(*listen, *body_bytes),
        Some(Part::Layout(flags)) => layout::run(flags),
        None => bench(&flags),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bench: {why}");
            ExitCode::from(2)
        }
    }
}

fn null_server(listen: SocketAddr, body_bytes: usize) -> Result<(), String> {
    let server = NullServer::bind(listen, body_bytes).map_err(|e| format!("{listen}: {e}"))?;
    // It runs until it is killed.
    let answered = server.run(&AtomicBool::new(false)).map_err(|e| e.to_string())?;
    Err(format!("ended after {answered} requests without being told"))
}

fn bench(flags: &Flags) -> Result<(), String> {
    let (servers, scenarios) = chosen(flags)?;
    let measured = Duration::try_from_secs_f64(flags.seconds)
        .ok()
        .filter(|length| !length.is_zero() && *length <= Duration::from_secs(600))
        .ok_or("--seconds: not above 0 and at most 600")?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|e| e.to_string())?;
    }
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    // With one CPU everything shares it, and the utilisation shows that.
    let other_cpu = if cpus > OTHER_CPU { OTHER_CPU } else { SERVER_CPU };
    let warm = Duration::from_millis(500);
    let pace = Pace { warm, measured, server_cpu: SERVER_CPU, cpu: other_cpu };
    let origin = Origin::bind("127.0.0.1:0".parse().expect("this is an address"))
        .map_err(|e| format!("origin: {e}"))?;
    let (origin_addr, counters) = (origin.local_addr(), origin.counters());
    let origin_stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&origin_stop);
    let origin_thread = thread::spawn(move || {
        sys::pin_to_cpu(other_cpu)?;
        origin.run(&flag)
    });
    let dir = tempfile::Builder::new().prefix("plimsoll-bench-").tempdir();
    let dir = dir.map_err(|e| format!("temporary directory: {e}"))?;
    let ground =
        Ground { dir: dir.path(), origin: origin_addr, plimsoll: &flags.plimsoll, cpu: SERVER_CPU };
    let report = run(flags, &servers, &scenarios, &ground, &pace, &counters, &stop);
    origin_stop.store(true, Ordering::Relaxed);
    let origin_ended = origin_thread.join();
    let report = report?;
    match origin_ended {
        Ok(Ok(())) => print(&report, &scenarios, flags.json),
        Ok(Err(e)) => Err(format!("origin: {e}")),
        Err(_) => Err("origin: it panicked".to_owned()),
    }
}

/// The servers and scenarios that the flags ask for.
fn chosen(flags: &Flags) -> Result<(Vec<&'static Server>, Vec<&'static Scenario>), String> {
    let wanted = |server: &&Server| {
        let named = |only: &String| server.name.starts_with(only.as_str());
        server.kind == Kind::Null || flags.only.is_empty() || flags.only.iter().any(named)
    };
    for only in &flags.only {
        if !SERVERS.iter().any(|server| server.name.starts_with(only.as_str())) {
            let names: Vec<&str> = SERVERS.iter().map(|server| server.name).collect();
            return Err(format!("--only {only}: the servers are {}", names.join(", ")));
        }
    }
    let apart = [GENERATOR, warm_start::NAME, beside_writes::NAME];
    let all = || SCENARIOS.iter().map(|scenario| scenario.name).chain(apart);
    for asked in &flags.scenario {
        if !all().any(|name| name.starts_with(asked.as_str())) {
            let names: Vec<&str> = all().collect();
            return Err(format!("--scenario {asked}: the scenarios are {}", names.join(", ")));
        }
    }
    let asked = |scenario: &&Scenario| {
        let by_default = flags.scenario.is_empty() && !scenario.is_of_disk();
        by_default || flags.names(scenario.name)
    };
    Ok((SERVERS.iter().filter(wanted).collect(), SCENARIOS.iter().filter(asked).collect()))
}

/// A server by its name and, for the null server, the size it answers with.
type Fleet = BTreeMap<(&'static str, u64), Result<Running, String>>;

fn run(
    flags: &Flags,
    servers: &[&Server],
    scenarios: &[&Scenario],
    ground: &Ground<'_>,
    pace: &Pace,
    counters: &OriginCounters,
    stop: &AtomicBool,
) -> Result<Report, String> {
    let mut fleet = Fleet::new();
    for scenario in scenarios {
        for server in servers.iter().filter(|server| scenario.is_for(server)) {
            let size = size_of(server, scenario);
            let start = || started(server, scenario, ground, pace, stop);
            fleet.entry((server.name, size)).or_insert_with(start);
        }
    }
    let mut results = Results::default();
    for round in 1..=flags.rounds {
        for scenario in scenarios {
            for server in servers.iter().filter(|server| scenario.is_for(server)) {
                if stop.load(Ordering::Relaxed) {
                    return Err("stopped".to_owned());
                }
                let cell = match &fleet[&(server.name, size_of(server, scenario))] {
                    Ok(running) => measure::cell(running, scenario, pace, counters, stop),
                    Err(why) => Err(why.clone()),
                };
                progress(round, flags.rounds, scenario.name, server.name, &cell);
                results.add(server.name, scenario.name, cell);
            }
        }
    }
    let with_generators = flags.scenario.is_empty() || flags.names(GENERATOR);
    let generators =
        if with_generators { generators(flags, servers, ground, pace, stop)? } else { Vec::new() };
    let version = |((name, _), running): (&(&str, u64), &Result<Running, String>)| {
        let version = running.as_ref().ok().map(|running| running.version.clone());
        version.filter(|text| !text.is_empty()).map(|text| ((*name).to_owned(), text))
    };
    let versions = fleet.iter().filter_map(version).collect();
    drop(fleet);
    let (rounds, objects) = (flags.rounds, flags.objects);
    let warm_starts = if flags.names(warm_start::NAME) {
        warm_start::Bench { ground, pace, origin: counters, stop, objects, rounds }.run(servers)?
    } else {
        Vec::new()
    };
    let beside_writes = if flags.names(beside_writes::NAME) {
        let mb_per_s = flags.misses;
        beside_writes::Bench { ground, pace, stop, rounds, mb_per_s }.run()?
    } else {
        Vec::new()
    };
    Ok(Report {
        conditions: conditions(flags, pace),
        versions,
        generators,
        warm_starts,
        beside_writes,
        rows: results.summaries(),
        cells: results.rows,
    })
}

/// The size by which a running server is known, if it serves no other.
fn size_of(server: &Server, scenario: &Scenario) -> u64 {
    if server.tier == Tier::Memory { 0 } else { scenario.body_bytes }
}

/// A server that runs, and has what it is to be asked for if that is many objects.
fn started(
    server: &Server,
    scenario: &Scenario,
    ground: &Ground<'_>,
    pace: &Pace,
    stop: &AtomicBool,
) -> Result<Running, String> {
    let running = server.start(ground, size_of(server, scenario))?;
    if server.tier == Tier::Disk {
        asking::fill(running.addr, scenario.path, scenario.objects, pace.cpu, stop)?;
    }
    Ok(running)
}

fn progress(
    round: u32,
    of: u32,
    scenario: &str,
    server: &str,
    cell: &Result<measure::Cell, String>,
) {
    let text = match cell {
        Ok(cell) => format!(
            "{:.2} us, {:.0}/s, {:.0} % of its CPU {}",
            cell.cpu_us,
            cell.rate,
            100.0 * cell.utilisation,
            cell.fault.as_deref().unwrap_or_default()
        ),
        Err(why) => why.clone(),
    };
    eprintln!("round {round}/{of} {scenario:>5} {server:<24} {text}");
}

/// Our generator and wrk in turns against the null server.
fn generators(
    flags: &Flags,
    servers: &[&Server],
    ground: &Ground<'_>,
    pace: &Pace,
    stop: &AtomicBool,
) -> Result<Vec<GeneratorRow>, String> {
    let null = servers.iter().find(|server| server.kind == Kind::Null);
    let null = null.expect("the floor always runs").start(ground, 1024)?;
    let (mut own, mut wrk) = (Vec::new(), Vec::new());
    for round in 1..=flags.rounds {
        if stop.load(Ordering::Relaxed) {
            return Err("stopped".to_owned());
        }
        own.push(generators::own(&null, pace.measured, pace.cpu, stop));
        wrk.push(generators::wrk(&null, pace.measured, pace.cpu));
        let shown = |cost: Option<&Result<generators::Cost, String>>| match cost {
            Some(Ok((cpu_us, rate))) => format!("{cpu_us:.2} us, {rate:.0}/s"),
            Some(Err(why)) => why.clone(),
            None => String::new(),
        };
        let of = flags.rounds;
        eprintln!("round {round}/{of} load {} | wrk {}", shown(own.last()), shown(wrk.last()));
    }
    let row = |generator, costs: &[Result<generators::Cost, String>]| GeneratorRow {
        generator,
        cpu_us: Spread::of(costs.iter().flatten().map(|cost| cost.0)),
        rate: Spread::of(costs.iter().flatten().map(|cost| cost.1)),
        note: costs.iter().find_map(|cost| cost.clone().err()),
    };
    Ok(vec![row("plimsoll load", &own), row("wrk", &wrk)])
}

fn conditions(flags: &Flags, pace: &Pace) -> Vec<String> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown CPU", |(_, model)| model);
    vec![
        format!("Linux {}, {model}", read("/proc/sys/kernel/osrelease").trim()),
        format!(
            "{} interleaved rounds of {:.1} s after {:.1} s of warm-up; median (least..greatest)",
            flags.rounds,
            pace.measured.as_secs_f64(),
            pace.warm.as_secs_f64(),
        ),
        format!(
            "server on CPU {SERVER_CPU}, one worker, no access log but where said; generator and \
             origin on CPU {}",
            pace.cpu
        ),
        format!(
            "closed loop of {} connections, as fast as the server answers: below 100 % of its CPU \
             the generator was the limit, and the server's sleeps are in its cost",
            measure::HOT
        ),
    ]
}

fn print(report: &Report, scenarios: &[&Scenario], json: bool) -> Result<(), String> {
    if json {
        let text = serde_json::to_string_pretty(report).map_err(|e| e.to_string())?;
        println!("{text}");
        return Ok(());
    }
    for line in &report.conditions {
        println!("{line}");
    }
    for (name, version) in &report.versions {
        println!("{name}: {version}");
    }
    for scenario in scenarios {
        println!("\n{}", table::scenario_table(scenario, &report.rows));
    }
    if !report.warm_starts.is_empty() {
        println!("\nstarts after kill -9, objects of 1 KB; median (least..greatest), least hits");
        println!("{}", warm_start::table(&report.warm_starts));
    }
    if !report.beside_writes.is_empty() {
        println!("\nhits of 1 KB in memory, alone and beside misses of 1 MB that are stored");
        println!("{}", beside_writes::table(&report.beside_writes));
    }
    if !report.generators.is_empty() {
        println!("\nthe generators' own CPU time a request, against the null server");
        for row in &report.generators {
            let cost = row.cpu_us.map_or("-".to_owned(), |s| format!("{s} us"));
            let rate = row.rate.map_or(String::new(), |s| format!(", {:.0} requests/s", s.median));
            println!("{:<14} {cost}{rate} {}", row.generator, row.note.as_deref().unwrap_or(""));
        }
    }
    Ok(())
}
