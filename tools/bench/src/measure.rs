//! One cell of the table: a server under a scenario for a few seconds.
//!
//! A cell is the sum of several short visits, and the servers are visited in turns. On a virtual
//! machine the speed of a CPU changes by a third from one second to the next, when the host runs
//! something else on the same core. With one long visit per cell, the ratio of two cells would
//! compare two states of the host rather than two servers.
//!
//! A closed loop of 64 connections keeps the server busy. The server's CPU time, as counted by the
//! kernel from the end of the warm-up to the end of the run, is divided by the requests completed
//! in that time. Servers are compared at saturation because the cost of a request falls with the
//! load. In the scenarios of what is passed on, the generator shares its CPU with the origin, so
//! that a cheap server may have to wait for them. Its CPU is kept awake there, and where each
//! request has a new connection in the clear, so that it does not pay for sleeping, and a row whose
//! server used less than 90 % of its CPU says so. A cell is marked as faulty if requests failed, or
//! did not do what the scenario says: the origin counts what reaches it, and a scenario may have a
//! check of its log or its bodies (`added`).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use load::{OriginCounters, Outcome, Phase, Plan, Protocol, Schedule, Tick, family, sys};
use serde::Serialize;

use crate::added::{self, Check};
use crate::client::{self, HOST};
use crate::process::{self, Awake};
use crate::scenarios::{AtOrigin, Scenario, Tls, Upstream};
use crate::servers::{Ground, Running};

/// How long a visit runs before it is measured.
pub(crate) const WARM: Duration = Duration::from_millis(200);
/// A server that used less than this part of its CPU was not at saturation.
pub(crate) const BUSY_PART_MIN: f64 = 0.9;
/// If other processes take a larger share of the server's CPU, the cell says so.
const OTHERS_PART_MAX: f64 = 0.1;
/// The share of requests that may deviate from the scenario.
const STRAY_PART_MAX: f64 = 0.01;
/// URLs of a visit that are checked to be stored.
const STORED_CHECKED: u64 = 20;
/// Our server's counter of disk hits.
const DISK_HITS: &str = "plimsoll_disk_hits_total";
/// Lines of an access log that may wait in a server's buffer of 64 KB.
const LINES_WAITING_MAX: u64 = 700;
/// The share of disk hits that may have been memory hits.
const MEMORY_PART_MAX: f64 = 0.1;

/// What all measurements share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'c> {
    pub(crate) ground: &'c Ground<'c>,
    pub(crate) pace: Pace,
    pub(crate) origin: &'c OriginCounters,
    /// nginx as an origin, if a scenario needs it.
    pub(crate) nginx: Option<&'c Result<Running, String>>,
    pub(crate) stop: &'c AtomicBool,
    pub(crate) rounds: u32,
}

impl Context<'_> {
    /// An error once the user has stopped the bench.
    pub(crate) fn check_stop(&self) -> Result<(), String> {
        if self.stop.load(Ordering::Relaxed) { Err("stopped".to_owned()) } else { Ok(()) }
    }

    /// The address of an origin.
    ///
    /// # Errors
    /// nginx, which is this origin, does not run; one line.
    pub(crate) fn origin_of(&self, upstream: Upstream) -> Result<SocketAddr, String> {
        let nginx = || {
            let nginx = self.nginx.expect("it is started if a scenario needs it").as_ref();
            nginx.map_err(|why| format!("nginx as the origin: {why}"))
        };
        Ok(match upstream {
            Upstream::Own => self.ground.origin,
            Upstream::Http1 => nginx()?.addr,
            Upstream::Tls => nginx()?.tls,
            Upstream::Http2 => nginx()?.http2,
        })
    }

    /// What a scenario's origin has counted: requests, answers with 304, and connections.
    fn at_origin(&self, scenario: &Scenario) -> [u64; 3] {
        if scenario.upstream == Upstream::Own {
            let OriginCounters { requests, not_modified, connections, .. } = self.origin;
            return [requests, not_modified, connections].map(|of| of.load(Ordering::Relaxed));
        }
        let nginx = self.nginx.and_then(|nginx| nginx.as_ref().ok());
        let counts = nginx.and_then(|nginx| client::nginx_counts(nginx.addr));
        counts.map_or([0; 3], |(requests, connections)| [requests, 0, connections])
    }
}

/// How to run a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Time measured for each cell.
    pub(crate) measured: Duration,
    /// The CPU of the server.
    pub(crate) server_cpu: usize,
    /// The CPU of the generator and the origin.
    pub(crate) cpu: usize,
}

/// The result of a cell.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    /// The server's CPU time per completed request, microseconds.
    pub(crate) cpu_us: f64,
    /// Completed requests per second.
    pub(crate) rate: f64,
    /// The share of one CPU that the server used.
    pub(crate) utilisation: f64,
    /// The share of the server's CPU that other processes used.
    pub(crate) others: f64,
    /// Memory per cold connection; `None` without cold connections.
    pub(crate) bytes_per_cold: Option<f64>,
    /// The share of requests that our server answered from its disk; `None` for other servers.
    pub(crate) from_disk: Option<f64>,
    /// Bytes of the body of a response.
    pub(crate) body_bytes: f64,
    /// Why the cell is faulty, if it is.
    pub(crate) fault: Option<String>,
    #[serde(skip)]
    pub(crate) seen: Reading,
}

/// The counters at a tick, or their growth.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    elapsed_ns: u64,
    cpu_ns: u64,
    completed: u64,
    /// Requests that the origin answered, and those that it answered with 304.
    fetched: u64,
    confirmed: u64,
    /// Connections that it accepted.
    opened: u64,
    /// Bytes of the bodies of completed requests.
    body_bytes: u64,
    /// Requests completed, also in the warm-up, and the lines of the access log.
    all: u64,
    logged: u64,
    /// Time that the server's CPU was busy, ns, in steps of 10 ms. Keeping it awake does not count.
    busy_ns: u64,
}

impl Cell {
    /// Joins the visits of a cell, which are equally long.
    ///
    /// # Errors
    /// The first visit that failed.
    pub(crate) fn of(
        visits: Vec<Result<Cell, String>>,
        scenario: &Scenario,
        is_floor: bool,
    ) -> Result<Cell, String> {
        let visits = visits.into_iter().collect::<Result<Vec<Cell>, String>>()?;
        let mean = |of: fn(&Cell) -> f64| visits.iter().map(of).sum::<f64>() / visits.len() as f64;
        let (rate, utilisation) = (mean(|visit| visit.rate), mean(|visit| visit.utilisation));
        let seen =
            visits.iter().fold(Reading::default(), |sum, visit| sum.with(visit.seen, |a, b| a + b));
        let from_disk: Vec<f64> = visits.iter().filter_map(|visit| visit.from_disk).collect();
        Ok(Cell {
            cpu_us: 1e6 * utilisation / rate,
            rate,
            utilisation,
            others: mean(|visit| visit.others),
            // Later visits find memory that was allocated before.
            bytes_per_cold: visits.first().and_then(|visit| visit.bytes_per_cold),
            from_disk: from_disk.iter().copied().min_by(f64::total_cmp),
            body_bytes: seen.body_bytes as f64 / seen.completed.max(1) as f64,
            // In one visit, what is in flight at its ends may be many of the requests.
            fault: stray(scenario, is_floor, &seen)
                .or_else(|| visits.iter().find_map(|visit| visit.fault.clone())),
            seen,
        })
    }
}

impl Reading {
    /// Each counter joined with the same counter of another reading.
    fn with(self, other: Reading, join: fn(u64, u64) -> u64) -> Reading {
        Reading {
            elapsed_ns: join(self.elapsed_ns, other.elapsed_ns),
            cpu_ns: join(self.cpu_ns, other.cpu_ns),
            completed: join(self.completed, other.completed),
            fetched: join(self.fetched, other.fetched),
            confirmed: join(self.confirmed, other.confirmed),
            opened: join(self.opened, other.opened),
            body_bytes: join(self.body_bytes, other.body_bytes),
            all: join(self.all, other.all),
            logged: join(self.logged, other.logged),
            busy_ns: join(self.busy_ns, other.busy_ns),
        }
    }
}

/// Visits a server: runs one of the visits of a cell.
///
/// # Errors
/// The generator failed; one line.
pub(crate) fn visit(
    context: &Context<'_>,
    server: &Running,
    scenario: &Scenario,
) -> Result<Cell, String> {
    let Context { pace, stop, .. } = context;
    let protocol = if server.is_floor { Protocol::Http1 } else { scenario.protocol };
    let (scheme, addr) = match protocol {
        Protocol::Http1 if scenario.tls != Tls::No => ("https", server.tls),
        Protocol::Http1 => ("http", server.addr),
        Protocol::Http2 { .. } => ("http", server.http2),
        Protocol::Http3 { .. } => ("https", server.http3),
    };
    let path = scenario.path.replace("{visit}", &sys::mono_ns().to_string());
    let mut target: load::Target =
        format!("{scheme}://{addr}{path}").parse().map_err(|e| format!("{e}"))?;
    if scenario.is_tunnel() {
        (target.addr, target.tunnel) = (server.tunnel, server.takes_connect);
        target.authority = context.ground.origin.to_string();
    } else if scenario.is_filled() || scenario.origin == AtOrigin::EachOnce {
        // The host under which the cache is filled and checked.
        HOST.clone_into(&mut target.authority);
    }
    let mut plan =
        Plan::new(target, Schedule::ClosedLoop, WARM + pace.measured / scenario.passes());
    plan.connections = scenario.hot;
    plan.protocol = protocol;
    plan.body_bytes = scenario.post_bytes;
    plan.opening = scenario.opening;
    plan.grpc = scenario.is_grpc && !server.is_floor;
    let field = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    plan.fields = scenario.fields.iter().map(field).collect();
    plan.population.objects = scenario.objects;
    plan.population.size = load::Size::Fixed { bytes: scenario.body_bytes };
    plan.cold = scenario.cold;
    plan.sources = if scenario.cold > 0 || scenario.is_new { 2 } else { 0 };
    plan.keep_alive = !scenario.is_new;
    if let Tls::New { resumed } = scenario.tls {
        (plan.keep_alive, plan.resume) = (false, resumed);
    }
    plan.count_hits = false;
    plan.pin_cpu = Some(pace.cpu);
    // Waking a sleeping generator would cost the server CPU time. On a miss, however, the generator
    // must leave CPU time to the origin, which shares its CPU.
    plan.busy_poll = scenario.is_hit();
    let (family, kept) = (server.family(), [pace.server_cpu]);
    let disk_hits = || server.admin.and_then(|admin| client::metric(admin, DISK_HITS));
    let hits_before = disk_hits();
    let mut memory_before = None;
    let mut memory_after = None;
    let (mut from, mut to) = (None, Reading::default());
    // A new connection costs the generator as much as the server.
    let is_kept_awake = scenario.is_passed_on() || scenario.is_new;
    let awake = Awake::keep(if is_kept_awake { &kept } else { &[] });
    let mut look = |tick: &Tick<'_>| {
        if scenario.cold > 0 && memory_before.is_none() {
            memory_before = Some(process::memory_bytes(&family));
        }
        if tick.phase != Phase::Running {
            return;
        }
        if scenario.cold > 0 && memory_after.is_none() {
            memory_after = Some(process::memory_bytes(&family));
        }
        to = Reading {
            elapsed_ns: tick.elapsed.as_nanos() as u64,
            cpu_ns: family::cpu_ns(&family),
            completed: tick.counts.completed,
            body_bytes: tick.counts.body_bytes,
            busy_ns: process::cpu_busy_ns(pace.server_cpu).saturating_sub(awake.cpu_ns()),
            ..Reading::default()
        };
        // Last, because nginx as an origin answers after what it already has to do.
        [to.fetched, to.confirmed, to.opened] = context.at_origin(scenario);
        if from.is_none() && tick.elapsed >= WARM {
            from = Some(to);
        }
    };
    let outcome = load::run(&plan, stop, &mut look).map_err(|e| e.to_string())?;
    // What keeps the CPU awake is counted a little late, so that it may seem to shrink.
    let mut seen = to.with(from.ok_or("stopped")?, u64::saturating_sub);
    seen.all = outcome.counts.completed;
    if scenario.check == Check::Logged && !server.is_floor {
        seen.logged = added::take_lines(&server.log)?;
    }
    let completed = seen.completed;
    if completed == 0 {
        return Err(format!("no request was completed: {}", errors(&outcome)));
    }
    let from_disk = hits_before.zip(disk_hits()).map(|(before, after)| {
        (after - before) / outcome.counts.completed.max(1) as f64 // includes the warm-up
    });
    let length_s = seen.elapsed_ns as f64 / 1e9;
    let cpu_ns = seen.cpu_ns as f64;
    let others = (seen.busy_ns as f64 - cpu_ns).max(0.0) / 1e9 / length_s;
    let added = memory_before.zip(memory_after).map(|(before, after)| after as f64 - before as f64);
    Ok(Cell {
        cpu_us: cpu_ns / 1e3 / completed as f64,
        rate: completed as f64 / length_s,
        utilisation: cpu_ns / 1e9 / length_s,
        others,
        bytes_per_cold: added.map(|bytes| bytes / f64::from(scenario.cold)),
        from_disk,
        body_bytes: seen.body_bytes as f64 / completed as f64,
        fault: fault(&outcome, scenario)
            .or_else(|| {
                let checked = scenario.origin == AtOrigin::EachOnce && !server.is_floor;
                checked.then(|| not_stored(context, addr, &path, &outcome))?
            })
            .or_else(|| {
                let part = from_disk.filter(|part| *part < 1.0 - MEMORY_PART_MAX)?;
                Some(format!("only {:.0} % came from the disk", 100.0 * part))
            })
            .or_else(|| {
                let part = 100.0 * others;
                (others > OTHERS_PART_MAX)
                    .then(|| format!("other processes took {part:.0} % of its CPU"))
            }),
        seen,
    })
}

/// Why what reached the origin in a cell deviates from the scenario.
fn stray(scenario: &Scenario, is_floor: bool, seen: &Reading) -> Option<String> {
    let Reading { completed, fetched, confirmed, opened, body_bytes, all, logged, .. } = *seen;
    let part = |count: u64| 100.0 * count as f64 / completed as f64;
    // As many may be between the server and the origin at the beginning or the end.
    let slack = STRAY_PART_MAX * completed as f64 + f64::from(scenario.hot);
    let is_each = |count: u64| count.abs_diff(completed) as f64 <= slack;
    let is_logged =
        logged.abs_diff(all) as f64 <= STRAY_PART_MAX * all as f64 + LINES_WAITING_MAX as f64;
    match scenario.origin {
        AtOrigin::Nothing if fetched as f64 > STRAY_PART_MAX * completed as f64 => {
            Some(format!("{:.0} % were not hits", part(fetched)))
        }
        AtOrigin::EachUnchanged if !is_floor && !is_each(confirmed) => {
            Some(format!("{:.0} % were confirmed with 304", part(confirmed)))
        }
        AtOrigin::Each | AtOrigin::EachOnce | AtOrigin::EachUnchanged if !is_each(fetched) => {
            Some(format!("{:.0} % reached the origin", part(fetched)))
        }
        _ if opened as f64 > slack => {
            Some(format!("{:.0} % opened a connection to the origin", part(opened)))
        }
        _ if is_floor => None,
        _ if scenario.check == Check::Coded && body_bytes > completed * scenario.body_bytes / 2 => {
            Some(format!("bodies have {} bytes, as if not compressed", body_bytes / completed))
        }
        _ if scenario.check == Check::Logged && !is_logged => {
            Some(format!("{logged} lines in the log for {all} requests"))
        }
        _ => None,
    }
}

/// Whether some of the last URLs of a visit are not stored: requesting them again reaches the
/// origin.
fn not_stored(
    context: &Context<'_>,
    addr: SocketAddr,
    path: &str,
    outcome: &Outcome,
) -> Option<String> {
    let mut client = client::Client::new(addr);
    let fetched = || context.origin.requests.load(Ordering::Relaxed);
    let before = fetched();
    let last = outcome.counts.started;
    for new in last.saturating_sub(STORED_CHECKED)..last {
        if let Err(error) = client.get(&path.replace("{new}", &new.to_string())) {
            return Some(format!("a stored URL: {error}"));
        }
    }
    // What was in flight at the end of the visit was given up.
    let again = (fetched() - before).saturating_sub(outcome.in_flight);
    (again > 0).then(|| format!("of {STORED_CHECKED} URLs, {again} were not stored"))
}

/// Why the requests deviated from the scenario.
fn fault(outcome: &Outcome, scenario: &Scenario) -> Option<String> {
    let counts = &outcome.counts;
    if counts.errors.total() as f64 > STRAY_PART_MAX * counts.started as f64 {
        return Some(format!("failed requests: {}", errors(outcome)));
    }
    if counts.cold_closed > 0 || outcome.cold_open < u64::from(scenario.cold) {
        let open = outcome.cold_open;
        return Some(format!(
            "{open} cold connections, {} closed by the server",
            counts.cold_closed
        ));
    }
    // The first handshake of each of the connections is full, in the warm-up.
    let full = (counts.connects - counts.resumed).saturating_sub(scenario.hot.into());
    if scenario.tls == (Tls::New { resumed: true })
        && full as f64 > STRAY_PART_MAX * counts.connects as f64
    {
        return Some(format!("{full} sessions of {} were not resumed", counts.connects));
    }
    None
}

pub(crate) fn errors(outcome: &Outcome) -> String {
    let of = |kind: &load::ErrorKind| (kind.name(), outcome.counts.errors.of(*kind));
    let some = load::ErrorKind::ALL.iter().map(of).filter(|(_, count)| *count > 0);
    let text: Vec<String> = some.map(|(name, count)| format!("{name} {count}")).collect();
    if text.is_empty() { "none failed".to_owned() } else { text.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::HIT;

    #[test]
    fn what_reaches_the_origin_is_what_the_scenario_says() {
        use AtOrigin::{Each, EachOnce, EachUnchanged, Nothing};
        for (expected, is_floor, fetched, confirmed, opened, words) in [
            (Nothing, false, 90, 0, 9, None),
            (Nothing, false, 2_000, 0, 0, Some("20 % were not hits")),
            (Each, false, 10_100, 0, 64, None),
            (Each, false, 10_100, 0, 9_990, Some("100 % opened")),
            (Each, false, 9_000, 0, 0, Some("90 % reached")),
            (EachOnce, false, 11_000, 0, 0, Some("110 % reached")),
            (EachUnchanged, false, 10_000, 9_900, 0, None),
            (EachUnchanged, false, 10_000, 0, 0, Some("0 % were confirmed")),
            (EachUnchanged, true, 10_000, 0, 0, None),
            (EachUnchanged, true, 5_000, 0, 0, Some("50 % reached")),
        ] {
            let seen =
                Reading { completed: 10_000, fetched, confirmed, opened, ..Reading::default() };
            let got = stray(&Scenario { origin: expected, ..HIT }, is_floor, &seen);
            assert_eq!(got.is_some(), words.is_some(), "{got:?}");
            assert!(got.unwrap_or_default().contains(words.unwrap_or_default()), "{words:?}");
        }
    }

    #[test]
    fn bodies_and_lines_of_the_log_are_what_the_scenario_says() {
        for (check, is_floor, body_bytes, logged, words) in [
            (Check::Coded, false, 4_000, 0, None),
            (Check::Coded, false, 10_240_000, 0, Some("1024 bytes")),
            (Check::Coded, true, 10_240_000, 0, None),
            (Check::Logged, false, 0, 11_900, None),
            (Check::Logged, false, 0, 11_000, Some("11000 lines in the log for 12000 requests")),
            (Check::Logged, false, 0, 13_000, Some("13000 lines")),
            (Check::Logged, true, 0, 0, None),
        ] {
            let (completed, all) = (10_000, 12_000);
            let seen = Reading { completed, all, body_bytes, logged, ..Reading::default() };
            let got = stray(&Scenario { check, ..HIT }, is_floor, &seen);
            assert_eq!(got.is_some(), words.is_some(), "{got:?}");
            assert!(got.unwrap_or_default().contains(words.unwrap_or_default()), "{words:?}");
        }
    }

    #[test]
    fn a_cell_is_the_sum_of_its_visits() {
        let visit = |utilisation: f64, rate: f64, bytes_per_cold| {
            let (cpu_us, others) = (1e6 * utilisation / rate, 0.02);
            let (from_disk, fault, body_bytes) = (None, None, 1024.0);
            let seen = Reading { completed: 10_000, fetched: 150, ..Reading::default() };
            Ok(Cell {
                cpu_us,
                rate,
                utilisation,
                others,
                bytes_per_cold,
                from_disk,
                body_bytes,
                fault,
                seen,
            })
        };
        let visits = vec![visit(1.0, 1e5, Some(400.0)), visit(0.5, 0.5e5, None)];
        let cell = Cell::of(visits, &HIT, false).unwrap();
        assert_eq!((cell.rate, cell.utilisation), (0.75e5, 0.75));
        assert!((cell.cpu_us - 10.0).abs() < 1e-9, "requests weigh alike: {cell:?}");
        assert_eq!(cell.bytes_per_cold, Some(400.0));
        assert_eq!((cell.seen.completed, cell.seen.fetched), (20_000, 300));
        assert_eq!(cell.fault.unwrap(), "2 % were not hits");
        let failed = vec![visit(1.0, 1e5, None), Err("port in use".to_owned())];
        assert_eq!(Cell::of(failed, &HIT, false).unwrap_err(), "port in use");
    }
}
