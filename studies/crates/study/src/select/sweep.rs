//! Throughput and CPU time a request, by backend and number of cold connections.
//!
//! Each visit opens the cold connections. First it sends requests at a light rate, where each wait
//! reports one ready connection; then more than the proxy can answer, where one wait reports many.
//! A round visits every backend with every number in a random order. Ratios are taken within a
//! round.

use std::time::Duration;

use load::Schedule;
use readiness::Kind;
use serde::Serialize;

use super::Setup;
use crate::found::Steps;
use crate::visits::{Visits, cells};
use harness::rounds::Figure;
use harness::{Caching, Error, Server, Span};

/// The first part of a load does not count, because connections are still being accepted.
const SETTLE_S: f64 = 0.1;
/// The offered rate of the full load, relative to what `epoll` can answer.
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
    /// The same relative to `epoll` without cold connections in the same round.
    pub light_ratio: Figure,
    /// Requests a second when more are sent than can be answered.
    pub full_rate: Figure,
    /// CPU time a request then, microseconds.
    pub full_us: Figure,
    /// The same relative to `epoll` without cold connections in the same round.
    pub full_ratio: Figure,
    /// Throughput relative to the same backend without cold connections in the same round.
    pub kept: Figure,
    /// The same by CPU time alone: the cost of a request without cold connections, divided by its
    /// cost with them, on the same backend in the same round.
    pub kept_by_cpu: Figure,
}

/// All measurements.
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
    /// Requests that failed.
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
    setup: &Setup<'_>,
    kinds: &[Kind],
    cold: Vec<u32>,
    steps: &mut Steps<'_>,
) -> Result<Sweep, Error> {
    let plan = setup.plan;
    let visit = Duration::from_millis(if plan.quick { 400 } else { 500 });
    let rounds = plan.repeat.rounds(plan.quick.then_some(2), plan.given.seed);
    let servers = kinds
        .iter()
        .map(|kind| Server::start(steps.plimsoll, *kind, &setup.source, None, setup.cpus))
        .collect::<Result<Vec<_>, _>>()?;
    let limit = warm_up(&servers, steps)?;
    let (mut errors, mut requests) = (0, 0);
    let visits = rounds.make(cells(servers.len(), &cold), |round, (at, cold), _| {
        let server = &servers[at];
        steps.say(&format!("round {}: {} with {cold} cold connections", round + 1, server.kind));
        let mut load = server.plan(
            Caching::On,
            Schedule::Steps(vec![plan.light, TOO_MUCH * limit]),
            2 * visit,
        );
        load.cold = cold;
        load.seed = plan.given.seed + round as u64;
        let one = visit.as_secs_f64();
        let spans = [(SETTLE_S, one), (one + SETTLE_S, 2.0 * one)];
        let (spans, outcome) = server.drive(&load, &spans, steps.stop)?;
        errors += outcome.counts.errors.total();
        requests += outcome.counts.completed;
        Ok::<_, Error>(Visit { light: spans[0], full: spans[1] })
    })?;
    let visits = Visits(visits);
    Ok(Sweep {
        light_rate: plan.light,
        rounds: visits.rounds(),
        visit_s: visit.as_secs_f64(),
        points: points(kinds, &cold, &visits),
        errors,
        requests,
    })
}

/// Lets every proxy fetch every object once. Gives the highest rate that one of them answered.
fn warm_up(servers: &[Server], steps: &mut Steps<'_>) -> Result<f64, Error> {
    let mut most: f64 = 0.0;
    for server in servers {
        steps.say(&format!("warming up: {}", server.kind));
        let plan = server.plan(Caching::On, Schedule::ClosedLoop, Duration::from_millis(800));
        let (spans, _) = server.drive(&plan, &[(0.4, 0.8)], steps.stop)?;
        most = most.max(spans[0].rate);
    }
    Ok(most.max(1.0))
}

fn points(kinds: &[Kind], cold: &[u32], visits: &Visits<(usize, u32), Visit>) -> Vec<Point> {
    let first = cold.first().copied().unwrap_or(0);
    let epoll = kinds.iter().position(|kind| *kind == Kind::Epoll).unwrap_or(0);
    let reference = (epoll, first);
    cells(kinds.len(), cold)
        .into_iter()
        .map(|cell @ (at, number)| Point {
            backend: kinds[at].to_string(),
            cold: number,
            light_us: visits.figure(cell, |visit| visit.light.us),
            light_ratio: visits.ratio(cell, reference, |visit| visit.light.us),
            full_rate: visits.figure(cell, |visit| visit.full.rate),
            full_us: visits.figure(cell, |visit| visit.full.us),
            full_ratio: visits.ratio(cell, reference, |visit| visit.full.us),
            kept: visits.ratio(cell, (at, first), |visit| visit.full.rate),
            kept_by_cpu: visits.ratio((at, first), cell, |visit| visit.full.us),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visits::assert_constant;

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
        let found =
            points(&[Kind::Poll, Kind::Epoll], &[0, 500], &Visits(vec![round(1.0), round(3.0)]));
        let of = |backend: &str, cold: u32| {
            found.iter().find(|point| point.backend == backend && point.cold == cold).unwrap()
        };
        assert_constant(&of("poll", 500).light_ratio, 8.0);
        assert_constant(&of("poll", 0).light_ratio, 2.0);
        assert_constant(&of("epoll", 500).full_ratio, 1.0);
        assert_constant(&of("poll", 500).kept, 0.25);
        assert_constant(&of("poll", 500).kept_by_cpu, 0.25);
        let (low, high) = of("poll", 500).light_us.interval.unwrap();
        assert!(low < 80.0 && high > 240.0, "the times themselves differ");
    }
}
