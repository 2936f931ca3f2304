//! Throughput and CPU time a request, by backend and number of cold connections.
//!
//! Each visit opens the cold connections, asks at a light rate, where each wait tells of one ready
//! connection, and then for more than the proxy can answer, where one wait tells of many. A round
//! visits every backend with every number, in an order drawn anew; ratios are taken within a round.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use load::Schedule;
use readiness::Kind;
use serde::Serialize;

use super::Stand;
use harness::rounds::{Figure, Round, Rounds, in_round};
use harness::{Caching, Error, Server, Span};

/// At the beginning of a load so much is not counted: what was just opened is still accepted.
const SETTLE_S: f64 = 0.1;
/// More than the proxy can answer, in times of what `epoll` answers.
const TOO_MUCH: f64 = 2.0;

/// One backend with one number of cold connections.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The backend.
    pub backend: String,
    /// Cold connections that were open.
    pub cold: u32,
    /// CPU time a request at the light rate, microseconds.
    pub light_us: Figure,
    /// That, to `epoll` without cold connections in the same round.
    pub light_ratio: Figure,
    /// Requests a second when more are asked for than can be answered.
    pub full_rate: Figure,
    /// CPU time a request then, microseconds.
    pub full_us: Figure,
    /// That, to `epoll` without cold connections in the same round.
    pub full_ratio: Figure,
    /// Throughput, to the same backend without cold connections in the same round.
    pub kept: Figure,
    /// What CPU time alone would leave of the throughput: how little a request costs without cold
    /// connections, over what it costs with them, by the same backend in the same round.
    pub kept_by_cpu: Figure,
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub struct Sweep {
    /// Requests a second of the light load.
    pub light_rate: f64,
    /// Rounds that were made.
    pub rounds: usize,
    /// Seconds of each of the two loads of a visit.
    pub visit_s: f64,
    /// By backend, then by number of cold connections.
    pub points: Vec<Point>,
    /// Requests that failed, of all.
    pub errors: u64,
    /// All requests.
    pub requests: u64,
}

impl Sweep {
    /// The points of one backend, by number of cold connections.
    pub fn of<'s>(&'s self, backend: &'s str) -> impl Iterator<Item = &'s Point> {
        self.points.iter().filter(move |point| point.backend == backend)
    }
}

/// One visit.
#[derive(Clone, Copy)]
struct Visit {
    light: Span,
    full: Span,
}

/// Measures all backends with all numbers of cold connections.
pub(super) fn sweep(
    stand: &Stand<'_>,
    kinds: &[Kind],
    cold: Vec<u32>,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<Sweep, Error> {
    let plan = stand.plan;
    let begun = Instant::now();
    let servers = kinds
        .iter()
        .map(|kind| Server::start(&plan.program, *kind, &stand.source, None, stand.cpus))
        .collect::<Result<Vec<_>, _>>()?;
    let limit = warm_up(&servers, stop, say)?;
    let cells: Vec<(usize, u32)> =
        (0..servers.len()).flat_map(|at| cold.iter().map(move |cold| (at, *cold))).collect();
    let (mut errors, mut requests) = (0, 0);
    let rounds = Rounds { most: plan.rounds, begun, time: plan.time, seed: plan.seed };
    let rounds = rounds.make(cells, |round, (at, cold), _| {
        let server = &servers[at];
        say(&format!("round {}: {} with {cold} cold connections", round + 1, server.kind));
        let mut load = server.plan(
            Caching::On,
            Schedule::Steps(vec![plan.light_rate, TOO_MUCH * limit]),
            2 * plan.visit,
        );
        load.cold = cold;
        load.seed = plan.seed + round as u64;
        let one = plan.visit.as_secs_f64();
        let spans = [(SETTLE_S, one), (one + SETTLE_S, 2.0 * one)];
        let (spans, outcome) = server.drive(&load, &spans, stop)?;
        errors += outcome.counts.errors.total();
        requests += outcome.counts.completed;
        Ok::<_, Error>(Visit { light: spans[0], full: spans[1] })
    })?;
    let points = points(kinds, &cold, &rounds);
    Ok(Sweep {
        light_rate: plan.light_rate,
        rounds: rounds.len(),
        visit_s: plan.visit.as_secs_f64(),
        points,
        errors,
        requests,
    })
}

/// Every proxy fetches every object once; the most that one of them answers a second is told.
fn warm_up(servers: &[Server], stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<f64, Error> {
    let mut most: f64 = 0.0;
    for server in servers {
        say(&format!("warming up: {}", server.kind));
        let plan = server.plan(Caching::On, Schedule::ClosedLoop, Duration::from_millis(800));
        let (spans, _) = server.drive(&plan, &[(0.4, 0.8)], stop)?;
        most = most.max(spans[0].rate);
    }
    Ok(most.max(1.0))
}

fn points(kinds: &[Kind], cold: &[u32], rounds: &[Round<(usize, u32), Visit>]) -> Vec<Point> {
    let of = |round: &Round<(usize, u32), Visit>, at: usize, cold: u32| {
        in_round(round, (at, cold)).copied()
    };
    let first = cold.first().copied().unwrap_or(0);
    let reference = kinds.iter().position(|kind| *kind == Kind::Epoll).unwrap_or(0);
    let mut points = Vec::new();
    for (at, kind) in kinds.iter().enumerate() {
        for &number in cold {
            let over = |value: fn(Visit, Visit) -> f64, base: (usize, u32)| {
                Figure::of(rounds.iter().filter_map(|round| {
                    Some(value(of(round, at, number)?, of(round, base.0, base.1)?))
                }))
            };
            let own = |value: fn(Visit) -> f64| {
                Figure::of(rounds.iter().filter_map(|round| of(round, at, number)).map(value))
            };
            points.push(Point {
                backend: kind.to_string(),
                cold: number,
                light_us: own(|visit| visit.light.us),
                light_ratio: over(|one, base| one.light.us / base.light.us, (reference, first)),
                full_rate: own(|visit| visit.full.rate),
                full_us: own(|visit| visit.full.us),
                full_ratio: over(|one, base| one.full.us / base.full.us, (reference, first)),
                kept: over(|one, base| one.full.rate / base.full.rate, (at, first)),
                kept_by_cpu: over(|one, base| base.full.us / one.full.us, (at, first)),
            });
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let visit =
            |us: f64| Visit { light: Span { rate: 1000.0, us }, full: Span { rate: 1e6 / us, us } };
        // The second round is slower throughout: the ratios are the same.
        let round = |slow: f64| {
            vec![
                ((0, 0), visit(20.0 * slow)),
                ((0, 500), visit(80.0 * slow)),
                ((1, 0), visit(10.0 * slow)),
                ((1, 500), visit(10.0 * slow)),
            ]
        };
        let found = points(&[Kind::Poll, Kind::Epoll], &[0, 500], &[round(1.0), round(3.0)]);
        let of = |backend: &str, cold: u32| {
            found.iter().find(|point| point.backend == backend && point.cold == cold).unwrap()
        };
        let close = |figure: &Figure, wanted: f64| {
            assert!((figure.value - wanted).abs() < 1e-9, "{figure:?}");
            let (low, high) = figure.interval.unwrap();
            assert!(high - low < 1e-9, "{figure:?}");
        };
        close(&of("poll", 500).light_ratio, 8.0);
        close(&of("poll", 0).light_ratio, 2.0);
        close(&of("epoll", 500).full_ratio, 1.0);
        close(&of("poll", 500).kept, 0.25);
        close(&of("poll", 500).kept_by_cpu, 0.25);
        let (low, high) = of("poll", 500).light_us.interval.unwrap();
        assert!(low < 80.0 && high > 240.0, "the times themselves are not");
    }
}
