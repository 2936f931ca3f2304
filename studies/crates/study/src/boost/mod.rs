//! The study `boost`: programs that wait by poll() or select(), plain and with the preloaded
//! library, and the same programs on epoll.
//!
//! ```text
//!  HAProxy -de, lighttpd, ours ----- plain ---------.
//!        the same under plimsoll boost -------------+-- load + cold connections (this process)
//!        the same on epoll -------------------------'
//! ```
//!
//! What: CPU time a request with 0, 1,000 and 8,000 silent connections, in one interleaved run, and
//! whether every response is the same. Debian's lighttpd has no select(), so select() is measured
//! on our own server, below and above FD_SETSIZE. Why: the algorithm that was put into the kernel
//! in 1998 must also pay off in user space, and must not change any result. Ownership: the servers
//! are child processes, each ended by its pid. What never happens: a ratio across rounds; a
//! response that differs and is not reported.

mod answers;
mod servers;
mod show;

use std::time::Duration;

use clap::Args;
use command::flags::duration_within;
use harness::rounds::Figure;
use harness::{Cpus, Error, Source, Span, cold_max, drive};
use load::Schedule;
use serde::Serialize;

pub use self::answers::Difference;
pub use self::servers::LibraryStats;
use self::servers::{NATIVE, Started, Variant, variants};
pub(crate) use self::show::for_page;
use crate::conditions::{Conditions, working_directory};
use crate::flags::{Given, Repeat, VISIT, ascending};
use crate::found::Steps;
use crate::servers::Place;
use crate::visits::{Visits, cells};

/// Connections that send requests, each the next as soon as the last is answered.
const CONNECTIONS: u32 = 32;
/// The first part of a visit does not count, because connections are still being accepted.
const SETTLE_S: f64 = 0.15;

/// What to do.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("duration", |arg| arg.default_value("5m")))]
pub struct Plan {
    /// Numbers of cold connections [default: 0,1000,8000]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(..=100_000))]
    cold: Vec<u32>,
    #[command(flatten)]
    repeat: Repeat,
    /// Length of a visit: one server with one number of cold connections
    #[arg(long, value_name = "TIME", default_value = "700ms",
        value_parser = duration_within(VISIT))]
    visit: Duration,
    /// Under a minute: one round, short visits, 0 and 1000 cold connections unless others are named
    #[arg(long, conflicts_with_all = ["rounds", "duration", "visit"])]
    quick: bool,
    #[command(flatten)]
    pub(crate) given: Given,
}

/// Something that could not be measured, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    /// The server or the number of connections.
    pub what: String,
    /// The reason.
    pub why: String,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Where it was measured.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// Rounds that were made.
    pub rounds: usize,
    /// Seconds of a visit.
    pub visit_s: f64,
    /// By server, call and number of cold connections.
    pub rows: Vec<Row>,
    /// Responses of boosted servers that were compared with those of plain ones.
    pub compared: u64,
    /// The responses that differ.
    pub differences: Vec<Difference>,
    /// The library's own statistics, by server and call.
    pub library: Vec<LibraryStats>,
    /// Servers and numbers that are not in the rows.
    pub missing: Vec<Missing>,
}

/// One server that waits by one call, with one number of cold connections.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The server.
    pub server: &'static str,
    /// The call by which it waits.
    pub wait: &'static str,
    /// Whether the library is preloaded.
    pub boosted: bool,
    /// Cold connections that were open.
    pub cold: u32,
    /// CPU time a request, microseconds.
    pub us: Figure,
    /// The same relative to this server on epoll with as many cold connections in the same round.
    pub to_native: Figure,
    /// For a boosted server, relative to this server on the same call without the library.
    pub to_plain: Option<Figure>,
    /// Requests a second.
    pub rate: Figure,
    /// Requests in all rounds.
    pub requests: u64,
    /// The requests that failed.
    pub errors: u64,
}

/// Measures.
///
/// # Errors
/// Our own server does not start or nothing answers; the directory cannot be used; interrupted. A
/// peer that is not installed is listed as missing.
pub fn run(plan: &Plan, steps: &mut Steps<'_>) -> Result<Outcome, Error> {
    let Given { out, seed, .. } = &plan.given;
    let home = working_directory(out.as_ref(), "boost")?;
    let conditions = Conditions::at_start(home.path(), *seed);
    let visit = if plan.quick { Duration::from_secs(1) } else { plan.visit };
    let (most, descriptors) = cold_max()?;
    let cold = ascending(&plan.cold, if plan.quick { &[0, 1000] } else { &[0, 1000, 8000] });
    let (cold, beyond): (Vec<u32>, Vec<u32>) = cold.iter().partition(|cold| **cold <= most);
    let beyond = beyond.into_iter().map(|cold| Missing {
        what: format!("{cold} cold connections"),
        why: format!("a process may have {descriptors} descriptors; raise ulimit -n"),
    });
    let mut missing: Vec<Missing> = beyond.collect();
    let (cpus, _pinned) = Cpus::take()?;
    let source = Source::start(steps.plimsoll, cpus)?;
    let place = Place { home: home.path(), cpu: cpus.server, origin: source.address() };
    steps.say("starting the servers");
    let mut running: Vec<Started> = Vec::new();
    for variant in variants() {
        match servers::start(steps.plimsoll, place, most, variant)? {
            Ok(started) => running.push(started),
            Err(why) => missing.push(Missing { what: variant.name(), why }),
        }
    }
    let (compared, differences) = answers::compare(&running)?;
    let rounds = plan.repeat.rounds(plan.quick.then_some(1), *seed);
    let visits = rounds.make(cells(running.len(), &cold), |round, (at, cold), _| {
        let name = running[at].variant.name();
        steps.say(&format!("round {}: {name}, {cold} cold", round + 1));
        let path = running[at].variant.path();
        let mut load = running[at].server.load(path, Schedule::ClosedLoop, visit);
        (load.connections, load.cold) = (CONNECTIONS, cold);
        (load.pin_cpu, load.seed) = (cpus.others, *seed);
        let whole = [(SETTLE_S, visit.as_secs_f64())];
        let (spans, outcome) = drive(running[at].server.pid(), &name, &load, &whole, steps.stop)?;
        let counts = &outcome.counts;
        let (requests, errors) = (counts.completed, counts.errors.total());
        Ok::<_, Error>(Visit { span: spans[0], requests, errors })
    })?;
    let variants: Vec<Variant> = running.iter().map(|one| one.variant).collect();
    let visits = Visits(visits);
    Ok(Outcome {
        rounds: visits.rounds(),
        visit_s: visit.as_secs_f64(),
        rows: rows(&variants, &cold, &visits),
        compared,
        differences,
        library: running.into_iter().filter_map(Started::end).collect(),
        missing,
        conditions: conditions.at_end(),
    })
}

/// One visit.
#[derive(Clone, Copy, Debug)]
struct Visit {
    span: Span,
    requests: u64,
    errors: u64,
}

fn rows(variants: &[Variant], cold: &[u32], visits: &Visits<(usize, u32), Visit>) -> Vec<Row> {
    let index = |wanted: Variant| variants.iter().position(|variant| *variant == wanted);
    cells(variants.len(), cold)
        .into_iter()
        .map(|cell @ (at, cold)| {
            let variant = variants[at];
            let native = index(Variant { wait: NATIVE, boosted: false, ..variant });
            let plain = index(Variant { boosted: false, ..variant }).filter(|_| variant.boosted);
            let ratio = |other| visits.ratio(cell, (other, cold), |visit| visit.span.us);
            Row {
                server: variant.server_name(),
                wait: variant.wait,
                boosted: variant.boosted,
                cold,
                us: visits.figure(cell, |visit| visit.span.us),
                to_native: native.map_or_else(|| Figure::of([]), ratio),
                to_plain: plain.map(ratio),
                rate: visits.figure(cell, |visit| visit.span.rate),
                requests: visits.sum(cell, |visit| visit.requests),
                errors: visits.sum(cell, |visit| visit.errors),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_within_a_server_a_number_of_cold_connections_and_a_round() {
        let variant = |wait, boosted| Variant { server: 0, wait, boosted };
        let other = Variant { server: 1, ..variant("poll", true) };
        let variants =
            [variant(NATIVE, false), variant("poll", false), variant("poll", true), other];
        let visit = |us| Visit { span: Span { rate: 1e6 / us, us }, requests: 10, errors: 1 };
        // The second round is twice as slow throughout.
        let round = |slow: f64| {
            let of = |at: usize, cold: u32, us: f64| ((at, cold), visit(us * slow));
            vec![
                of(0, 0, 10.0),
                of(1, 0, 20.0),
                of(2, 0, 21.0),
                of(3, 0, 5.0),
                of(2, 8000, 22.0),
                of(1, 8000, 88.0),
                of(0, 8000, 11.0),
                of(3, 8000, 5.0),
            ]
        };
        let rows = rows(&variants, &[0, 8000], &Visits(vec![round(1.0), round(2.0)]));
        assert_eq!(rows.len(), 8);
        let near = |figure: &Figure, value: f64| (figure.value / value - 1.0).abs() < 1e-9;
        let poll = &rows[3];
        assert_eq!((poll.wait, poll.cold, poll.boosted), ("poll", 8000, false));
        assert!(near(&poll.to_native, 8.0) && poll.to_plain.is_none());
        let boosted = &rows[5];
        assert!(near(&boosted.to_native, 2.0), "{boosted:?}");
        assert!(near(boosted.to_plain.as_ref().unwrap(), 0.25), "{boosted:?}");
        assert_eq!((boosted.requests, boosted.errors), (20, 2));
        let alone = &rows[7];
        assert!(!alone.to_native.value.is_finite(), "nothing to compare with: {alone:?}");
        assert!(alone.to_plain.is_none());
    }
}
