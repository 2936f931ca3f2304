//! The CPU cost of a request: the floors, the peers, and our server.
//!
//! Every server of the list runs every scenario, in interleaved rounds (A B C … A B C …). The
//! server is on CPU 0 with one worker and no access log (except for one row), the generator and the
//! origin are on CPU 1. The result is the server's CPU time per request, and its ratio to the
//! floor's in the same round: to the null server's for hits, to the null relay's for what is passed
//! on. Run this first after a change to the data plane. No row is left out
//! silently, and no server is left running.

mod added;
mod beside_writes;
mod client;
mod cores;
mod counts;
mod far;
mod generators;
mod large;
mod layout;
mod measure;
mod object_bytes;
mod process;
mod scenarios;
mod servers;
mod sharing;
mod soak;
mod table;
mod tails;
mod tls;
mod valgrind;
mod warm_start;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf, absolute};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use clap::{Parser, Subcommand};
use harness::Environment;
use harness::origin::OriginThread;
use load::{NullRelay, NullServer};
use serde::Serialize;

use added::{Added, Check};
use measure::{Cell, Context, Pace};
use scenarios::{HOT, SCENARIOS, Scenario, Tier, Upstream};
use servers::{Build, FAR, Ground, HERE, ORIGIN, Running, SERVERS, Server};
use table::{Results, Summary};

/// The CPU of the measured server.
const SERVER_CPU: usize = 0;
/// The CPU of the generator and the origin.
const OTHER_CPU: usize = 1;

/// Measure the CPU cost of a request: the floor, the peers, and our server.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Flags {
    #[command(subcommand)]
    part: Option<Part>,
    /// Number of rounds; every server runs once in each.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds to measure in each cell, as several short visits that take turns.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Run only servers whose names start with these prefixes. The floors always run.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Run only scenarios whose names start with these prefixes: hit, cold, http2, http3, miss,
    /// stored, revalidated, post, tunnel, passed, large, tls, object_bytes, file, cores, tails,
    /// generator. These run only if they are named: with (what users add to a hit or a miss, and
    /// plain for what that is compared with); far (clients behind a link with delays and losses);
    /// and, because they need minutes and gigabytes, disk_hit_1k, disk_hit_16k, disk_hit_1m,
    /// warm_start, beside_writes.
    #[arg(long, value_delimiter = ',')]
    scenario: Vec<String>,
    /// Number of objects in warm_start.
    #[arg(long, default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    objects: u32,
    /// Misses in beside_writes, in megabytes per second.
    #[arg(long, default_value_t = 150.0, value_parser = positive)]
    misses: f64,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Run this build of a peer in place of the installed one, such as haproxy=/opt/haproxy; may be
    /// repeated. Pingora runs only with this flag. The conditions name its version.
    #[arg(long, value_name = "NAME=PATH")]
    peer: Vec<Build>,
    /// The path of our program.
    #[arg(long, default_value = "target/release/plimsoll")]
    plimsoll: PathBuf,
}

/// Parts of the bench that run as separate commands.
#[derive(Debug, Subcommand)]
enum Part {
    /// Run the floor: one epoll, one recv and one send per request.
    #[command(hide = true)]
    NullServer { listen: SocketAddr, body_bytes: usize },
    /// Run the floor of what is passed on; as tunnels, unless answers have bodies of this length.
    #[command(hide = true)]
    NullRelay { listen: SocketAddr, origin: SocketAddr, body_bytes: Option<u64> },
    /// Write each datagram of a log to a file.
    #[command(hide = true)]
    Syslog { listen: SocketAddr, log: PathBuf },
    /// Count the cache misses of a hit in simulated caches, with thousands of connections.
    Layout(layout::Flags),
    /// Count the instructions of a request, by type of request.
    Counts(counts::Flags),
    /// Count the cache lines that workers take from each other, by type of request.
    Sharing(sharing::Flags),
    /// Run our server for hours under mixed load and troubles, and watch what must hold.
    Soak(soak::Flags),
    /// Fetch one body of a gigabyte for many clients, fast and slow, with little memory.
    Large(large::Flags),
}

/// All results.
#[derive(Debug, Serialize)]
struct Report {
    conditions: Vec<String>,
    versions: BTreeMap<String, String>,
    generators: Vec<table::Rounds<generators::Cost>>,
    rows: Vec<Summary>,
    warm_starts: Vec<table::Rounds<warm_start::Start>>,
    beside_writes: Vec<table::Rounds<beside_writes::Round>>,
    tls_silent: Vec<table::Rounds<f64>>,
    object_bytes: Vec<table::Rounds<f64>>,
    cores: Vec<cores::Cores>,
    tails: Vec<tails::Tail>,
    far: Vec<far::Far>,
    /// Scenarios without rows, and why.
    failed: Vec<String>,
    cells: Vec<table::Row>,
}

/// A number above zero.
fn positive(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number")?;
    if value > 0.0 && value <= 1e6 { Ok(value) } else { Err("not in 0..=1000000".to_owned()) }
}

impl Flags {
    /// Whether the flags name a scenario.
    fn names(&self, scenario: &str) -> bool {
        self.scenario.iter().any(|name| scenario.starts_with(name.as_str()))
    }

    /// Whether they ask for a scenario that also runs if none is named.
    fn wants(&self, scenario: &str) -> bool {
        self.scenario.is_empty() || self.names(scenario)
    }
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let done = match &flags.part {
        Some(Part::NullServer { listen, body_bytes }) => null_server(*listen, *body_bytes),
        Some(Part::NullRelay { listen, origin, body_bytes }) => {
            null_relay(*listen, *origin, *body_bytes)
        }
        Some(Part::Syslog { listen, log }) => added::syslog(*listen, log),
        Some(Part::Layout(flags)) => layout::run(flags),
        Some(Part::Counts(flags)) => counts::run(flags),
        Some(Part::Sharing(flags)) => sharing::run(flags),
        Some(Part::Soak(flags)) => soak::run(flags),
        Some(Part::Large(flags)) => large::run(flags),
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
    Err(format!("ended unexpectedly after {answered} requests"))
}

fn null_relay(
    listen: SocketAddr,
    origin: SocketAddr,
    body_bytes: Option<u64>,
) -> Result<(), String> {
    let relay = NullRelay::bind(listen, origin, body_bytes);
    let relay = relay.map_err(|e| format!("{listen}: {e}"))?;
    // It runs until it is killed.
    let relayed = relay.run(&AtomicBool::new(false)).map_err(|e| e.to_string())?;
    Err(format!("ended unexpectedly after {relayed} answers"))
}

fn bench(flags: &Flags) -> Result<(), String> {
    let (servers, scenarios) = chosen(flags)?;
    let measured = Duration::try_from_secs_f64(flags.seconds)
        .ok()
        .filter(|length| !length.is_zero() && *length <= Duration::from_secs(600))
        .ok_or("--seconds: not above 0 and at most 600")?;
    let stop = stopped_by_signals()?;
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    // With only one CPU everything shares it, which the utilisation shows.
    let other_cpu = if cpus > OTHER_CPU { OTHER_CPU } else { SERVER_CPU };
    let pace = Pace { measured, server_cpu: SERVER_CPU, cpu: other_cpu };
    let origin = OriginThread::start(Some(other_cpu))?;
    let plimsoll = absolute(&flags.plimsoll).map_err(|e| format!("--plimsoll: {e}"))?;
    let dir = tempfile::Builder::new().prefix("plimsoll-bench-").tempdir();
    let dir = dir.map_err(|e| format!("temporary directory: {e}"))?;
    let ground = Ground {
        dir: dir.path(),
        origin: origin.address(),
        plimsoll: &plimsoll,
        cpu: SERVER_CPU,
        at: HERE,
        added: Added::NOTHING,
    };
    ground.make_certificate()?;
    let needs_nginx = scenarios.iter().any(|scenario| scenario.upstream != Upstream::Own);
    let nginx = needs_nginx.then(|| ORIGIN.start(&Ground { cpu: other_cpu, ..ground }, 0));
    let context = Context {
        ground: &ground,
        pace,
        origin: origin.counters(),
        nginx: nginx.as_ref(),
        stop: &stop,
        rounds: flags.rounds,
    };
    let servers: Vec<&Server> = servers.iter().collect();
    let report = run(flags, &servers, &scenarios, &context)?;
    origin.stop()?;
    print(&report, &scenarios, flags.json)
}

/// What SIGINT and SIGTERM set.
fn stopped_by_signals() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|e| e.to_string())?;
    }
    Ok(stop)
}

/// The servers and scenarios that the flags select.
fn chosen(flags: &Flags) -> Result<(Vec<Server>, Vec<&'static Scenario>), String> {
    let wanted = |server: &&Server| {
        let named = |only: &String| server.name.starts_with(only.as_str());
        server.tier == Tier::Floor || flags.only.is_empty() || flags.only.iter().any(named)
    };
    for only in &flags.only {
        let all = || SERVERS.iter().chain(FAR).map(|server| server.name);
        if !all().any(|name| name.starts_with(only.as_str())) {
            let names: Vec<&str> = all().collect();
            return Err(format!("--only {only}: the servers are {}", names.join(", ")));
        }
    }
    let apart = [
        generators::NAME,
        tls::NAME,
        object_bytes::NAME,
        cores::NAME,
        tails::NAME,
        warm_start::NAME,
        beside_writes::NAME,
        far::NAME,
    ];
    let all = || SCENARIOS.iter().map(|scenario| scenario.name).chain(apart);
    for asked in &flags.scenario {
        if !all().any(|name| name.starts_with(asked.as_str())) {
            let names: Vec<&str> = all().collect();
            return Err(format!("--scenario {asked}: the scenarios are {}", names.join(", ")));
        }
    }
    let asked = |scenario: &&Scenario| {
        let only_named = scenario.is_of_disk() || scenario.is_of_added();
        let by_default = flags.scenario.is_empty() && !only_named;
        by_default || flags.names(scenario.name)
    };
    let plain: Vec<&str> = SCENARIOS.iter().filter(asked).filter_map(|of| of.plain).collect();
    let asked = |scenario: &&Scenario| asked(scenario) || plain.contains(&scenario.name);
    let servers = SERVERS.iter().filter(wanted).map(|server| server.with_builds(&flags.peer));
    let (servers, absent): (Vec<_>, Vec<_>) = servers.partition(Server::has_program);
    if let Some(Server { name, .. }) = absent.first().filter(|_| !flags.only.is_empty()) {
        return Err(format!(
            "--only {name}: build it, and name its program with --peer {name}=PATH"
        ));
    }
    Ok((servers, SCENARIOS.iter().filter(asked).collect()))
}

/// A running server: its name, its body size (except in memory), its feature, and its origin.
type Key = (&'static str, u64, &'static str, Upstream);

fn key_of(server: &Server, scenario: &Scenario) -> Key {
    let feature = if server.tier == Tier::Floor { "" } else { scenario.added };
    (server.name, size_of(server, scenario), feature, upstream_of(server, scenario))
}

/// The floors have no features, so the relay gets the same from the same origin in the clear.
fn upstream_of(server: &Server, scenario: &Scenario) -> Upstream {
    match scenario.upstream {
        Upstream::Tls | Upstream::Http2 if server.tier == Tier::Floor => Upstream::Http1,
        upstream => upstream,
    }
}

type Fleet = BTreeMap<Key, Result<Running, String>>;

fn run(
    flags: &Flags,
    servers: &[&Server],
    scenarios: &[&Scenario],
    context: &Context<'_>,
) -> Result<Report, String> {
    let rows_of_each = scenarios.iter().map(|scenario| {
        let rows = servers.iter().filter(|server| server.is_for(scenario)).count() as u32;
        rows * (context.pace.measured + measure::WARM * scenario.passes())
    });
    let length = rows_of_each.sum::<Duration>() * flags.rounds;
    if !length.is_zero() {
        let minutes = length.as_secs_f64() / 60.0;
        eprintln!("the scenarios of all servers take {minutes:.1} minutes or more; others follow");
    }
    let mut fleet = Fleet::new();
    for scenario in scenarios {
        for server in servers.iter().filter(|server| server.is_for(scenario)) {
            // A server that cannot run a scenario is not started for it.
            let start = || match server.cannot(scenario) {
                Some(why) => Err(why.to_owned()),
                None => started(server, scenario, context),
            };
            fleet.entry(key_of(server, scenario)).or_insert_with(start);
        }
    }
    let mut results = Results::default();
    for round in 1..=flags.rounds {
        for scenario in scenarios {
            let servers: Vec<_> = servers.iter().filter(|server| server.is_for(scenario)).collect();
            let mut visits: Vec<Vec<_>> = vec![Vec::new(); servers.len()];
            for pass in 0..scenario.passes() {
                for (server, visits) in servers.iter().zip(&mut visits) {
                    context.check_stop()?;
                    let running = &fleet[&key_of(server, scenario)];
                    let is_first = pass == 0;
                    visits.push(visit(server, running.as_ref(), scenario, is_first, context));
                }
            }
            for (server, visits) in servers.iter().zip(visits) {
                let cell = Cell::of(visits, scenario, server.tier == Tier::Floor);
                progress(round, flags.rounds, scenario.name, server.name, &cell);
                results.add(server.name, scenario.name, cell);
            }
        }
    }
    let generators =
        if flags.wants(generators::NAME) { generators::run(context, servers)? } else { Vec::new() };
    let version = |((name, ..), running): (&Key, &Result<Running, String>)| {
        let version = running.as_ref().ok().map(|running| running.version.clone());
        version.filter(|text| !text.is_empty()).map(|text| ((*name).to_owned(), text))
    };
    let versions = fleet.iter().filter_map(version).collect();
    drop(fleet);
    let mut failed = Vec::new();
    let silent = flags.wants(tls::NAME).then(|| tls::run(context, servers));
    let tls_silent = rows_of(tls::NAME, silent, &mut failed);
    let objects = flags.wants(object_bytes::NAME).then(|| object_bytes::run(context, servers));
    let object_bytes = rows_of(object_bytes::NAME, objects, &mut failed);
    let cores = flags.wants(cores::NAME).then(|| cores::run(context));
    let cores = rows_of(cores::NAME, cores, &mut failed);
    let tails = flags.wants(tails::NAME).then(|| tails::run(context, servers));
    let tails = rows_of(tails::NAME, tails, &mut failed);
    let far = flags.names(far::NAME).then(|| far::run(context, &flags.only, &flags.peer));
    let far = rows_of(far::NAME, far, &mut failed);
    context.check_stop()?;
    let warm_starts = if flags.names(warm_start::NAME) {
        warm_start::Bench { context, objects: flags.objects }.run(servers)?
    } else {
        Vec::new()
    };
    let beside_writes = if flags.names(beside_writes::NAME) {
        beside_writes::Bench { context, mb_per_s: flags.misses }.run()?
    } else {
        Vec::new()
    };
    Ok(Report {
        conditions: conditions(context),
        versions,
        generators,
        warm_starts,
        beside_writes,
        tls_silent,
        object_bytes,
        cores,
        tails,
        far,
        failed,
        rows: results.summaries(),
        cells: results.rows,
    })
}

/// The rows of a scenario, if it was run. One that failed does not discard the others.
fn rows_of<T>(
    name: &str,
    measured: Option<Result<Vec<T>, String>>,
    failed: &mut Vec<String>,
) -> Vec<T> {
    measured.unwrap_or_else(|| Ok(Vec::new())).unwrap_or_else(|why| {
        failed.push(format!("{name} failed: {why}"));
        Vec::new()
    })
}

/// The body size that distinguishes running servers of one row; 0 if one serves all sizes.
fn size_of(server: &Server, scenario: &Scenario) -> u64 {
    let is_one = server.tier == Tier::Memory || scenario.is_tunnel() || scenario.is_websocket();
    if is_one { 0 } else { scenario.body_bytes }
}

/// Visits a server. What it must have stored in memory, it gets before the first visit of each
/// round, because other scenarios may have displaced it since the last one.
fn visit(
    server: &Server,
    running: Result<&Running, &String>,
    scenario: &Scenario,
    is_first: bool,
    context: &Context<'_>,
) -> Result<Cell, String> {
    if let Some(why) = server.cannot(scenario) {
        return Err(why.to_owned());
    }
    let running = running.map_err(Clone::clone)?;
    if is_first && scenario.is_filled() && server.tier == Tier::Memory {
        fill(running, scenario, context)?;
    }
    measure::visit(context, running, scenario)
}

fn fill(running: &Running, scenario: &Scenario, context: &Context<'_>) -> Result<(), String> {
    let place = (context.pace.cpu, context.stop);
    client::fill(running.addr, scenario.path, scenario.objects, place)
}

/// Starts a server and, if it is on disk, fills it with the objects.
fn started(server: &Server, scenario: &Scenario, context: &Context<'_>) -> Result<Running, String> {
    let size = size_of(server, scenario);
    let origin = context.origin_of(upstream_of(server, scenario))?;
    let mut ground = Ground { origin, ..*context.ground };
    if server.tier != Tier::Floor {
        ground.added = Added::feature(scenario.added);
        if scenario.check == Check::Limited {
            let limited = Ground { added: ground.added.limited(), ..ground };
            added::is_limited(server.start(&limited, size)?.addr)?;
        }
    }
    let running = server.start(&ground, size)?;
    if server.tier != Tier::Floor {
        scenario.check.started(running.addr)?;
    }
    if server.tier == Tier::Disk {
        fill(&running, scenario, context)?;
    }
    Ok(running)
}

fn progress(round: u32, of: u32, scenario: &str, server: &str, cell: &Result<Cell, String>) {
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
    eprintln!("round {round}/{of} {scenario:>11} {server:<24} {text}");
}

fn conditions(context: &Context<'_>) -> Vec<String> {
    let pace = context.pace;
    vec![
        Environment::of(Path::new(".")).machine(),
        format!(
            "{} rounds of {:.1} s per server, in short visits that take turns; median (min..max)",
            context.rounds,
            pace.measured.as_secs_f64(),
        ),
        format!(
            "server on CPU {SERVER_CPU}, one worker, no access log unless stated; generator and \
             origin on CPU {}",
            pace.cpu
        ),
        format!(
            "closed loop of {} connections unless stated, as fast as the server answers; if the \
             server used less than 100 % of its CPU, the generator was the limit and the cost \
             includes sleeping (except of what is passed on, and of new connections in the clear: \
             there its CPU was kept awake)",
            HOT
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
    let tables = [
        (
            !report.warm_starts.is_empty(),
            "starts after kill -9, objects of 1 KB; median (min..max), minimum of hits",
            warm_start::table(&report.warm_starts).to_string(),
        ),
        (
            !report.beside_writes.is_empty(),
            "hits of 1 KB in memory, alone and during misses of 1 MB that are stored",
            beside_writes::table(&report.beside_writes).to_string(),
        ),
        (
            !report.tls_silent.is_empty(),
            "memory of a silent connection over TLS 1.3",
            table::of_rounds(&report.tls_silent, tls::COLUMNS, &[]).to_string(),
        ),
        (
            !report.object_bytes.is_empty(),
            "memory of a stored response of 1 KB",
            table::of_rounds(&report.object_bytes, object_bytes::COLUMNS, &[]).to_string(),
        ),
        (
            !report.cores.is_empty(),
            "one worker and two, at the same rate for each worker",
            cores::tables(&report.cores),
        ),
        (
            !report.tails.is_empty(),
            "latencies from the intended start",
            tails::table(&report.tails).to_string(),
        ),
        (!report.far.is_empty(), &far::title(), far::table(&report.far).to_string()),
        (
            !report.generators.is_empty(),
            "the generators against the null server",
            table::of_rounds(&report.generators, generators::COLUMNS, &[]).to_string(),
        ),
    ];
    for (_, title, table) in tables.into_iter().filter(|(has_rows, ..)| *has_rows) {
        println!("\n{title}\n{table}");
    }
    for line in &report.failed {
        println!("\n{line}");
    }
    Ok(())
}
