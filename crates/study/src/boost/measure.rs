//! Visits of a closed loop beside cold connections, in rounds, and the figures over them.
//!
//! A round visits every server with every number of cold connections, in an order drawn anew;
//! ratios are taken within a round.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use load::{Schedule, Target};
use serde::Serialize;

use super::Plan;
use super::servers::{NATIVE, Running, Way};
use harness::rounds::{Figure, Round, Rounds, in_round};
use harness::{Error, Span, drive};

/// Connections that ask, each again as soon as it is answered.
const CONNECTIONS: u32 = 32;
/// At the beginning of a visit so much is not counted: connections are still accepted.
const SETTLE_S: f64 = 0.15;

/// One server that waits in one way, with one number of cold connections.
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
    /// That, to the same server on epoll with as many cold connections in the same round.
    pub to_native: Figure,
    /// That, to the same server on the same call without the library; none of it is.
    pub to_plain: Option<Figure>,
    /// Requests a second.
    pub rate: Figure,
    /// Requests in all rounds.
    pub requests: u64,
    /// Of them those that failed.
    pub errors: u64,
}

/// One visit.
#[derive(Clone, Copy, Debug)]
struct Visit {
    span: Span,
    requests: u64,
    errors: u64,
}

/// Measures all; the rows, and how many rounds there were.
pub(super) fn measure(
    plan: &Plan,
    running: &[Running],
    cold: &[u32],
    pin_cpu: Option<usize>,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<(Vec<Row>, usize), Error> {
    let cells: Vec<(usize, u32)> =
        (0..running.len()).flat_map(|at| cold.iter().map(move |&cold| (at, cold))).collect();
    let begun = Instant::now();
    let rounds = Rounds { most: plan.rounds, begun, time: plan.time, seed: plan.seed };
    let rounds = rounds.make(cells, |round, (at, cold), _| {
        let server = &running[at];
        say(&format!("round {}: {}, {cold} cold", round + 1, server.way.name()));
        visit(server, cold, plan, pin_cpu, stop)
    })?;
    let ways: Vec<Way> = running.iter().map(|one| one.way).collect();
    Ok((rows(&ways, cold, &rounds), rounds.len()))
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
        path: server.way.server.path().to_owned(),
        absolute: false,
    };
    let mut load = load::Plan::new(target, Schedule::ClosedLoop, plan.visit);
    load.connections = CONNECTIONS;
    load.cold = cold;
    load.pin_cpu = pin_cpu;
    load.seed = plan.seed;
    let whole = [(SETTLE_S, plan.visit.as_secs_f64())];
    let (spans, outcome) = drive(server.pid(), &server.way.name(), &load, &whole, stop)?;
    let counts = &outcome.counts;
    Ok(Visit { span: spans[0], requests: counts.completed, errors: counts.errors.total() })
}

fn rows(ways: &[Way], cold: &[u32], rounds: &[Round<(usize, u32), Visit>]) -> Vec<Row> {
    let place =
        |server, wait, boosted| ways.iter().position(|way| *way == Way { server, wait, boosted });
    let mut rows = Vec::new();
    for (at, way) in ways.iter().enumerate() {
        let native = place(way.server, NATIVE, false);
        let plain = place(way.server, way.wait, false).filter(|_| way.boosted);
        for &cold in cold {
            let each = || rounds.iter().filter_map(|round| in_round(round, (at, cold)));
            let ratio = |other: usize| {
                let within = |round: &Round<(usize, u32), Visit>| {
                    let us = |at| Some(in_round(round, (at, cold))?.span.us);
                    Some(us(at)? / us(other)?)
                };
                Figure::of(rounds.iter().filter_map(within))
            };
            rows.push(Row {
                server: way.server.name().to_owned(),
                wait: way.wait.to_owned(),
                boosted: way.boosted,
                cold,
                us: Figure::of(each().map(|visit| visit.span.us)),
                to_native: native.map_or_else(|| Figure::of([]), ratio),
                to_plain: plain.map(ratio),
                rate: Figure::of(each().map(|visit| visit.span.rate)),
                requests: each().map(|visit| visit.requests).sum(),
                errors: each().map(|visit| visit.errors).sum(),
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::servers::Server;
    use super::*;

    #[test]
    fn ratios_are_of_the_same_server_cold_connections_and_round() {
        let way = |wait, boosted| Way { server: Server::Haproxy, wait, boosted };
        let other = Way { server: Server::Lighttpd, ..way("poll", true) };
        let ways = [way(NATIVE, false), way("poll", false), way("poll", true), other];
        let visit = |us| Visit { span: Span { rate: 1e6 / us, us }, requests: 10, errors: 1 };
        // The second round is twice as slow for everybody.
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
        let rows = rows(&ways, &[0, 8000], &[round(1.0), round(2.0)]);
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
