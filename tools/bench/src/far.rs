//! Clients that are far away: each is a delay of 50 ms and losses of 1 % away from the server.
//!
//! A thread relays the packets between the servers and the generator (`far::link`). Servers, their
//! origin and the generator are in other network namespaces than the bench, and the report says so
//! where that is not possible. A closed loop of a few connections requests one stored object again
//! and again, on connections that are kept or on a new one each time, over TLS (QUIC for HTTP/3).
//! The result is the time from the start of a request to the last byte of its response; on new
//! connections, handshakes are a part of it. Requests in flight at the end of a visit are waited
//! for, so that long ones count as often as short ones.
//!
//! The CPU is nearly idle here: what is compared is how servers give their bytes to the network.
//! What never happens: a device, a route or a setting outside of the namespaces is touched.

mod link;

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use harness::origin::OriginThread;
use hdrhistogram::Histogram;
use load::{Latency, Outcome, Plan, Protocol, Schedule};
use serde::Serialize;

use crate::measure::{self, Context};
use crate::process;
use crate::servers::{Build, FAR, Ground, PLIMSOLL_BBR, Running, Server};
use crate::table::{Spread, spread_text};
use link::{Carried, End, Path};

/// The name of the scenario.
pub(crate) const NAME: &str = "far";
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 213, 0, 1));
const SERVER_END: (&str, &str) = ("plimsollfar0", "10.213.0.1/30");
const CLIENT_END: (&str, &str) = ("plimsollfar1", "10.213.0.2/30");
/// 50 ms there and back, 100 Mbit/s, and a queue of 384,000 bytes.
const PATH: Path = Path {
    delay: Duration::from_millis(25),
    loss: 0.01,
    bytes_per_s: 12_500_000,
    queue_bytes: 384_000,
    seed: 1,
};
const PROTOCOLS: [(&str, Protocol); 3] = [
    ("HTTP/1.1", Protocol::Http1),
    ("HTTP/2", Protocol::Http2 { streams: 1 }),
    ("HTTP/3", Protocol::Http3 { streams: 1 }),
];
/// The bytes of an object, how it is called, the connections that request it, and how much longer
/// a visit is than `--seconds`.
const OBJECTS: [(u64, &str, u32, u32); 3] =
    [(1 << 10, "1 KB", 32, 1), (1 << 16, "64 KB", 16, 2), (1 << 20, "1 MB", 8, 5)];
/// The congestion control of TCP that most systems have, whatever this one has.
const USUAL: &str = "cubic";
/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long an object is requested, so that it is stored.
const STORING: Duration = Duration::from_millis(100);
/// The share of requests that may reach the origin.
const STRAY_PART_MAX: f64 = 0.01;
/// A relay or a generator that was later than this was a part of the time.
const LATE_MAX: Duration = Duration::from_millis(5);

/// What one server has done in one round.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Round {
    pub(crate) requests: u64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Megabytes per second of a connection: the bytes of an object by the mean time.
    pub(crate) mb_per_s: f64,
    /// What the relay has done meanwhile.
    pub(crate) carried: Carried,
}

/// All rounds of one server with one kind of request.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Far {
    pub(crate) protocol: &'static str,
    pub(crate) object: &'static str,
    /// Whether each request has its own connection.
    pub(crate) is_new: bool,
    pub(crate) server: &'static str,
    pub(crate) rounds: Vec<Option<Round>>,
    /// Of the requests of all rounds together.
    pub(crate) p99_ms: Option<f64>,
    pub(crate) notes: Vec<String>,
    #[serde(skip)]
    all: Option<Histogram<u64>>,
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    protocol: (&'static str, Protocol),
    object: (u64, &'static str, u32, u32),
    is_new: bool,
}

fn cells() -> impl Iterator<Item = Cell> {
    let kinds = PROTOCOLS.into_iter().flat_map(|of| [false, true].map(|is_new| (of, is_new)));
    kinds.flat_map(|(protocol, is_new)| OBJECTS.map(|object| Cell { protocol, object, is_new }))
}

/// Measures all rows, in threads that enter other namespaces and end there.
pub(crate) fn run(
    context: &Context<'_>,
    only: &[String],
    builds: &[Build],
) -> Result<Vec<Far>, String> {
    let wanted = |server: &&Server| {
        only.is_empty() || only.iter().any(|only| server.name.starts_with(only.as_str()))
    };
    let servers: Vec<Server> =
        FAR.iter().filter(wanted).map(|server| server.with_builds(builds)).collect();
    in_thread(|| beside_servers(context, &servers))
}

fn in_thread<T: Send>(run: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    thread::scope(|scope| scope.spawn(run).join())
        .unwrap_or_else(|_| Err("a thread panicked".to_owned()))
}

/// Starts the servers in a namespace, and measures them from another.
fn beside_servers(context: &Context<'_>, servers: &[Server]) -> Result<Vec<Far>, String> {
    link::enter_namespace()?;
    let end = End::open(SERVER_END.0, SERVER_END.1)?;
    let origin = OriginThread::start(Some(context.pace.cpu))?;
    let ground = Ground { origin: origin.address(), at: SERVER, ..*context.ground };
    make_files(&ground).map_err(|error| format!("files for Caddy: {error}"))?;
    // The thread that has started them must live as long as they do.
    let start = |server: &Server| {
        let running = server.start(&ground, 0)?;
        if server.name != PLIMSOLL_BBR {
            link::set_congestion_control(&running.process.family(), USUAL)?;
        }
        Ok(running)
    };
    let fleet: Vec<_> = servers.iter().map(|server| (server.name, start(server))).collect();
    for (_, running) in &fleet {
        for cell in cells().filter(|cell| !cell.is_new) {
            if let Ok(running) = running {
                // What cannot be requested shows in its rows.
                let cell = Cell { object: (cell.object.0, "", 1, 0), ..cell };
                let _ = visited(context, running, cell, context.stop);
            }
        }
    }
    // A device and its figures are gone with its `End`.
    let measured = in_thread(|| from_afar(context, &fleet, &end, &origin));
    let dropped = link::dropped_at(SERVER_END.0);
    let measured = measured.map(|rows| with_dropped(rows, dropped));
    drop(fleet);
    origin.stop()?;
    measured
}

/// The objects as files, for a server without a cache.
fn make_files(ground: &Ground<'_>) -> std::io::Result<()> {
    let dir = ground.dir.join("far/obj");
    fs::create_dir_all(&dir)?;
    for (bytes, ..) in OBJECTS {
        fs::write(dir.join(bytes.to_string()), vec![b'x'; bytes as usize])?;
    }
    Ok(())
}

type Fleet = [(&'static str, Result<Running, String>)];

/// Measures from a namespace at the other end of the link.
fn from_afar(
    context: &Context<'_>,
    fleet: &Fleet,
    server_end: &End,
    origin: &OriginThread,
) -> Result<Vec<Far>, String> {
    link::enter_namespace()?;
    let client_end = End::open(CLIENT_END.0, CLIENT_END.1)?;
    let ends = [server_end, &client_end];
    let (done, carried) = (AtomicBool::new(false), Mutex::default());
    thread::scope(|scope| {
        let relay = scope.spawn(|| {
            let _other = Ends(&done);
            // It shares its CPU with the generator and the origin, and needs little of it.
            process::real_time().and_then(|()| load::sys::pin_to_cpu(context.pace.cpu))?;
            let is_done = || done.load(Ordering::Relaxed) || context.stop.load(Ordering::Relaxed);
            link::relay(ends, PATH, &is_done, &carried)
        });
        let measured = {
            let _other = Ends(&done);
            let measured = rounds(context, fleet, origin, &done, &carried);
            let dropped = link::dropped_at(CLIENT_END.0);
            measured.map(|rows| with_dropped(rows, dropped))
        };
        let relayed = relay.join().map_err(|_| "the relay panicked".to_owned())?;
        relayed.map_err(|error| format!("the relay: {error}"))?;
        measured
    })
}

/// Ends the rounds when the relay ends, and the relay when the rounds end, also by a panic.
struct Ends<'d>(&'d AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Notes that a device dropped packets, which the relay has not counted.
fn with_dropped(mut rows: Vec<Far>, dropped: Option<u64>) -> Vec<Far> {
    let note = match dropped {
        Some(0) => return rows,
        Some(count) => format!("in all rows, a device dropped {count} packets"),
        None => "what the devices dropped is unknown".to_owned(),
    };
    rows.iter_mut().take(1).for_each(|first| first.note(note.clone()));
    rows
}

fn rounds(
    context: &Context<'_>,
    fleet: &Fleet,
    origin: &OriginThread,
    done: &AtomicBool,
    carried: &Mutex<Carried>,
) -> Result<Vec<Far>, String> {
    let mut rows = Vec::new();
    for cell in cells() {
        rows.extend(
            fleet.iter().map(|(server, running)| (cell, Far::planned(cell, server), running)),
        );
    }
    for round in 1..=context.rounds {
        for (cell, row, running) in &mut rows {
            context.check_stop()?;
            if done.load(Ordering::Relaxed) {
                return Err("the relay has ended".to_owned());
            }
            let take =
                || std::mem::take(&mut *carried.lock().unwrap_or_else(PoisonError::into_inner));
            take();
            let before = origin.counters().requests.load(Ordering::Relaxed);
            let visited = match (*running, cell.protocol.1) {
                (Err(why), _) => Err(why.clone()),
                (Ok(running), Protocol::Http3 { .. }) if !running.has_http3 => {
                    Err("not measured over HTTP/3".to_owned())
                }
                (Ok(running), _) => visited(context, running, *cell, done),
            };
            let fetched = origin.counters().requests.load(Ordering::Relaxed) - before;
            let of = context.rounds;
            let (protocol, object, server) = (row.protocol, row.object, row.server);
            let new = if cell.is_new { "new" } else { "kept" };
            let carried = take();
            let visited = visited.and_then(|outcome| {
                let lags_ns = outcome.rows.iter().map(|row| row.lag_max_ns);
                row.note_late("relay", carried.late_max_ns);
                row.note_late("generator", lags_ns.max().unwrap_or(0));
                if outcome.latency_invalid.count > 0 {
                    row.note("some times are left out: the generator was late".to_owned());
                }
                row.add(cell.object.0, &outcome.latency, fetched, carried)
            });
            eprintln!("round {round}/{of} {NAME} {protocol} {object} {new} {server} {visited:?}");
            if let Err(why) = visited {
                row.rounds.push(None);
                row.note(why);
            }
        }
    }
    Ok(rows.into_iter().map(|(_, row, _)| row).collect())
}

/// Visits a server from the namespace of this thread, until `stop` at most.
fn visited(
    context: &Context<'_>,
    running: &Running,
    cell: Cell,
    stop: &AtomicBool,
) -> Result<Outcome, String> {
    let (bytes, _, connections, times) = cell.object;
    let addr = match cell.protocol.1 {
        Protocol::Http3 { .. } => running.http3,
        Protocol::Http1 | Protocol::Http2 { .. } => running.tls,
    };
    let target = format!("https://{addr}/obj/{bytes}?size={bytes}");
    let target = target.parse().map_err(|error| format!("{error}"))?;
    let length = (context.pace.measured * times).max(STORING);
    let mut plan = Plan::new(target, Schedule::ClosedLoop, length);
    (plan.connections, plan.protocol) = (connections, cell.protocol.1);
    plan.population.objects = 1;
    plan.population.size = load::Size::Fixed { bytes };
    (plan.keep_alive, plan.count_hits) = (!cell.is_new, false);
    (plan.timeout, plan.drain_max) = (TIMEOUT, TIMEOUT);
    plan.pin_cpu = Some(context.pace.cpu);
    let outcome = load::run(&plan, stop, &mut |_| ()).map_err(|e| e.to_string())?;
    let counts = &outcome.counts;
    let failed = counts.errors.total() + outcome.in_flight;
    if failed > 0 {
        let (errors, late) = (measure::errors(&outcome), outcome.in_flight);
        return Err(format!(
            "{failed} of {} requests failed: {errors}, never answered {late}",
            counts.started
        ));
    }
    if counts.body_bytes != counts.completed * bytes {
        let got = counts.body_bytes / counts.completed.max(1);
        return Err(format!("responses have {got} bytes"));
    }
    Ok(outcome)
}

impl Far {
    fn planned(cell: Cell, server: &'static str) -> Far {
        Far {
            protocol: cell.protocol.0,
            object: cell.object.1,
            is_new: cell.is_new,
            server,
            rounds: Vec::new(),
            p99_ms: None,
            notes: Vec::new(),
            all: None,
        }
    }

    fn note(&mut self, why: String) {
        if !self.notes.contains(&why) {
            self.notes.push(why);
        }
    }

    fn note_late(&mut self, who: &str, late_ns: u64) {
        let late = Duration::from_nanos(late_ns);
        if late > LATE_MAX {
            self.note(format!("the {who} was late by {} ms", late.as_millis()));
        }
    }

    /// Adds a round in which so many requests reached the origin.
    fn add(
        &mut self,
        bytes: u64,
        latency: &Latency,
        fetched: u64,
        carried: Carried,
    ) -> Result<Round, String> {
        if latency.count == 0 {
            return Err("no request was completed".to_owned());
        }
        if fetched as f64 > STRAY_PART_MAX * latency.count as f64 {
            return Err(format!("{fetched} of {} were not hits", latency.count));
        }
        let round = Round {
            requests: latency.count,
            p50_ms: latency.p50_ns as f64 / 1e6,
            p99_ms: latency.p99_ns as f64 / 1e6,
            mb_per_s: bytes as f64 / latency.mean_ns * 1e3,
            carried,
        };
        let histogram = latency.histogram().map_err(|error| error.to_string())?;
        match &mut self.all {
            Some(all) => all.add(&histogram).map_err(|error| error.to_string())?,
            none => *none = Some(histogram),
        }
        self.p99_ms = self.all.as_ref().map(|all| all.value_at_quantile(0.99) as f64 / 1e6);
        self.rounds.push(Some(round));
        Ok(round)
    }

    fn valid(&self) -> impl Iterator<Item = &Round> {
        self.rounds.iter().flatten()
    }

    fn median_ms(&self) -> Option<f64> {
        Spread::of(self.valid().map(|round| round.p50_ms)).map(|spread| spread.median)
    }

    /// The peer with the lower median for the same requests.
    fn better_peer<'f>(&self, all: &'f [Far]) -> Option<&'f Far> {
        let key = |far: &Far| (far.protocol, far.object, far.is_new);
        let beside = |far: &&Far| !far.server.starts_with("plimsoll") && key(far) == key(self);
        let known = all.iter().filter(beside).filter_map(|far| Some((far.median_ms()?, far)));
        known.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, far)| far)
    }
}

/// The rows as a table.
pub(crate) fn table(rows: &[Far]) -> comfy_table::Table {
    let mut table = crate::table::plain(&[
        "requests",
        "server",
        "p50, ms",
        "p99 of all rounds, ms",
        "MB/s of a connection",
        "p50 x better peer",
        "p99 x",
        "requests counted",
        "note",
    ]);
    for row in rows {
        let better = row.better_peer(rows);
        let pairs = better.map(|better| row.rounds.iter().zip(&better.rounds));
        let ratios = pairs
            .into_iter()
            .flatten()
            .filter_map(|(own, other)| Some(own.as_ref()?.p50_ms / other.as_ref()?.p50_ms));
        let p99_ratio = better.and_then(|better| Some(row.p99_ms? / better.p99_ms?));
        let text = |value: Option<f64>, decimals: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
        };
        let connection = if row.is_new { "new connections" } else { "kept connections" };
        table.add_row(vec![
            format!("{}, {}, {connection}", row.protocol, row.object),
            row.server.to_owned(),
            spread_text(row.valid().map(|round| round.p50_ms), 1),
            text(row.p99_ms, 1),
            spread_text(row.valid().map(|round| round.mb_per_s), 2),
            spread_text(ratios, 2),
            text(p99_ratio, 2),
            row.valid().map(|round| round.requests).sum::<u64>().to_string(),
            row.notes.join("; "),
        ]);
    }
    table
}

/// What the link is, for the title of the table.
pub(crate) fn title() -> String {
    format!(
        "clients behind a link of {} ms there and back that loses {} % of the packets in each \
         direction; each connection has {} Mbit/s and a queue of {} KB: time to the last byte, \
         over TLS 1.3",
        2 * PATH.delay.as_millis(),
        100.0 * PATH.loss,
        8 * PATH.bytes_per_s / 1_000_000,
        PATH.queue_bytes / 1000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(server: &'static str, times_ms: &[u64]) -> Far {
        let mut far = Far::planned(cells().next().unwrap(), server);
        for time_ms in times_ms {
            let ns = time_ms * 1_000_000;
            let mut all = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
            all.record_n(ns, 100).unwrap();
            let mut hdr_v2 = Vec::new();
            let mut to = hdrhistogram::serialization::V2Serializer::new();
            hdrhistogram::serialization::Serializer::serialize(&mut to, &all, &mut hdr_v2).unwrap();
            let latency = Latency {
                count: 100,
                mean_ns: ns as f64,
                p50_ns: ns,
                p90_ns: ns,
                p99_ns: ns,
                p999_ns: ns,
                max_ns: ns,
                hdr_v2,
            };
            let carried = Carried::default();
            far.add(1 << 20, &latency, 0, carried).unwrap();
            assert!(far.add(1 << 20, &latency, 2, carried).unwrap_err().contains("2 of 100"));
        }
        far
    }

    #[test]
    fn rows_are_compared_with_the_better_peer() {
        let rows =
            [row("plimsoll", &[100, 200]), row("haproxy", &[400, 400]), row("nginx", &[100, 100])];
        assert_eq!(rows[0].better_peer(&rows).unwrap().server, "nginx");
        assert!((rows[0].valid().next().unwrap().mb_per_s - 10.48576).abs() < 1e-9);
        let text = table(&rows).to_string();
        assert!(text.contains("1.50 (1.00..2.00)") && text.contains("2.00"), "{text}");
    }

    #[test]
    fn what_disturbed_a_visit_is_noted() {
        let mut rows = with_dropped(vec![row("nginx", &[1]), row("haproxy", &[1])], Some(0));
        assert!(rows.iter().all(|row| row.notes.is_empty()));
        rows[1].note_late("relay", LATE_MAX.as_nanos() as u64);
        assert!(rows[1].notes.is_empty());
        rows[1].note_late("relay", 7_000_000);
        assert_eq!(rows[1].notes, ["the relay was late by 7 ms"]);
        let rows = with_dropped(with_dropped(rows, Some(3)), None);
        let notes = ["in all rows, a device dropped 3 packets"];
        assert_eq!(rows[0].notes[..1], notes);
        assert!(rows[0].notes[1].contains("unknown"));
    }

    #[test]
    fn the_rounds_and_the_relay_end_each_other_also_by_a_panic() {
        let done = AtomicBool::new(false);
        let panicked = in_thread(|| -> Result<(), String> {
            let _other = Ends(&done);
            panic!("planned");
        });
        assert!(panicked.is_err() && done.into_inner());
    }

    #[test]
    fn a_server_that_did_not_run_is_in_the_table() {
        let mut gone = row("nginx", &[]);
        gone.note("not installed: apt-get install nginx".to_owned());
        assert!(gone.better_peer(std::slice::from_ref(&gone)).is_none());
        assert!(table(&[gone]).to_string().contains("not installed"));
    }
}
