//! Visits of a closed loop with cold connections open, in rounds, and the figures over them.
//!
//! A round visits every server with every number of cold connections in a random order. Ratios are
//! taken within a round.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use harness::rounds::{Figure, Rounds};
use harness::{Error, Span, drive};
use load::{Schedule, Target};
use serde::Serialize;

use super::Plan;
use super::servers::{NATIVE, Running, Variant};
use crate::visits::{Visits, cells};

/// Connections that send requests, each the next as soon as the last is answered.
const CONNECTIONS: u32 = 32;
/// The first part of a visit does not count, because connections are still being accepted.
const SETTLE_S: f64 = 0.15;

/// One server that waits by one call, with one number of cold connections.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The server.
    pub server: String,
    /// The call by which it waits.
    pub wait: String,
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

/// One visit.
#[derive(Clone, Copy, Debug)]
struct Visit {
    span: Span,
    requests: u64,
    errors: u64,
}

/// Measures all servers; gives the rows and the number of rounds.
pub(super) fn measure(
    plan: &Plan,
    running: &[Running],
    cold: &[u32],
    pin_cpu: Option<usize>,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<(Vec<Row>, usize), Error> {
    let begun = Instant::now();
    let rounds = Rounds { most: plan.rounds, begun, time: plan.time, seed: plan.seed };
    let visits = rounds.make(cells(running.len(), cold), |round, (at, cold), _| {
        let server = &running[at];
        say(&format!("round {}: {}, {cold} cold", round + 1, server.variant.name()));
        visit(server, cold, plan, pin_cpu, stop)
    })?;
    let variants: Vec<Variant> = running.iter().map(|one| one.variant).collect();
    let visits = Visits(visits);
    Ok((rows(&variants, cold, &visits), visits.rounds()))
}

fn visit(
    server: &Running,
    cold: u32,
    plan: &Plan,
    pin_cpu: Option<usize>,
    stop: &AtomicBool,
) -> Result<Visit, Error> {
    let target = Target {
        addr: server.address,
        authority: server.address.to_string(),
        path: server.variant.server.path().to_owned(),
        absolute: false,
        tls: false,
        tunnel: false,
    };
    let mut load = load::Plan::new(target, Schedule::ClosedLoop, plan.visit);
    load.connections = CONNECTIONS;
    load.cold = cold;
    load.pin_cpu = pin_cpu;
    load.seed = plan.seed;
    let whole = [(SETTLE_S, plan.visit.as_secs_f64())];
    let (spans, outcome) = drive(server.pid(), &server.variant.name(), &load, &whole, stop)?;
    let counts = &outcome.counts;
    Ok(Visit { span: spans[0], requests: counts.completed, errors: counts.errors.total() })
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
                server: variant.server.name().to_owned(),
                wait: variant.wait.to_owned(),
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
    use super::super::servers::Server;
    use super::*;

    #[test]
    fn a_ratio_is_within_a_server_a_number_of_cold_connections_and_a_round() {
        let variant = |wait, boosted| Variant { server: Server::Haproxy, wait, boosted };
        let other = Variant { server: Server::Lighttpd, ..variant("poll", true) };
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
        assert_eq!((poll.wait.as_str(), poll.cold, poll.boosted), ("poll", 8000, false));
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
