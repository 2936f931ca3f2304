//! Throughput and CPU time a request, by backend and number of cold connections.
//!
//! Each visit opens the cold connections. First it sends requests at a light rate, where each wait
//! reports one ready connection; then more than the proxy can answer, where one wait reports many.
//! A round visits every backend with every number in a random order. Ratios are taken within a
//! round.

use std::time::Duration;

use harness::rounds::{Figure, Figures, To};
use harness::{Caching, Error, Server};
use load::Schedule;
use readiness::Kind;
use serde_json::{Value, json};

use super::Setup;
use crate::experiment::{ServerVisits, Servers, Visit, cells, total};
use crate::found::Steps;

/// The first part of a load does not count, because connections are still being accepted.
const SETTLE_S: f64 = 0.1;
/// The offered rate of the full load, relative to what `epoll` can answer.
const TOO_MUCH: f64 = 2.0;

/// All measurements. The points are by backend, then by number of cold connections.
pub(super) struct Sweep {
    light_rate: f64,
    visit_s: f64,
    pub(super) kinds: Vec<Kind>,
    pub(super) cold: Vec<u32>,
    visits: ServerVisits,
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
    let started = kinds
        .iter()
        .map(|kind| Server::start(steps.plimsoll, *kind, &setup.source, None, setup.cpus))
        .collect::<Result<Vec<_>, _>>()?;
    let limit = warm_up(&started, steps)?;
    let load = |at: usize, cold: u32, round: usize| {
        let rates = vec![plan.light, TOO_MUCH * limit];
        let mut load = started[at].plan(Caching::On, Schedule::Steps(rates), 2 * visit);
        (load.cold, load.seed) = (cold, plan.given.seed + round as u64);
        load
    };
    let visit_s = visit.as_secs_f64();
    let servers = Servers {
        all: started.iter().map(|server| (server.kind.to_string(), server.pid())).collect(),
        numbers: (&cold, "cold connections"),
        load: &load,
        spans: &[(SETTLE_S, visit_s), (visit_s + SETTLE_S, 2.0 * visit_s)],
    };
    let rounds = plan.repeat.rounds(plan.quick.then_some(2), plan.given.seed);
    let visits = servers.visit(&rounds, steps)?;
    Ok(Sweep { light_rate: plan.light, visit_s, kinds: kinds.to_vec(), cold, visits })
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

/// CPU time a request at the light rate, microseconds.
fn light(visit: &Visit) -> f64 {
    visit.spans[0].us
}

/// Requests a second when more are sent than can be answered.
fn full_rate(visit: &Visit) -> f64 {
    visit.spans[1].rate
}

/// CPU time a request then, microseconds.
fn full(visit: &Visit) -> f64 {
    visit.spans[1].us
}

impl Sweep {
    /// Everything as JSON.
    pub(super) fn outcome(&self) -> Value {
        json!({
            "light_rate": self.light_rate,
            "rounds": self.visits.rounds(),
            "visit_s": self.visit_s,
            "points": cells(self.kinds.len(), &self.cold)
                .into_iter()
                .map(|cell| self.point(cell))
                .collect::<Vec<_>>(),
            "errors": total(&self.visits, |visit| visit.errors),
            "requests": total(&self.visits, |visit| visit.requests),
        })
    }

    fn point(&self, cell @ (at, cold): (usize, u32)) -> Value {
        let (own, reference) = (To::Cell(Some(self.without(at))), self.reference());
        let figures: Figures<'_, _, Visit> = &[
            ("light_us", To::Itself, &light),
            ("light_ratio", To::Cell(Some(reference)), &light),
            ("full_rate", To::Itself, &full_rate),
            ("full_us", To::Itself, &full),
            ("full_ratio", To::Cell(Some(reference)), &full),
            ("kept", own, &full_rate),
        ];
        let backend = self.kinds[at].to_string();
        let mut row = json!({"backend": backend, "cold": cold});
        row["kept_by_cpu"] = json!(self.kept_by_cpu(cell));
        self.visits.row(cell, row, figures)
    }

    /// A backend without cold connections.
    fn without(&self, at: usize) -> (usize, u32) {
        (at, self.cold.first().copied().unwrap_or(0))
    }

    /// The cell that others are compared with: `epoll` without cold connections.
    fn reference(&self) -> (usize, u32) {
        self.without(self.kinds.iter().position(|kind| *kind == Kind::Epoll).unwrap_or(0))
    }

    /// The cost of the light load, relative to `epoll` without cold connections in the same round.
    pub(super) fn light_ratio(&self, cell: (usize, u32)) -> Figure {
        self.visits.ratio(cell, self.reference(), light)
    }

    /// Throughput relative to the same backend without cold connections in the same round.
    pub(super) fn kept(&self, cell: (usize, u32)) -> Figure {
        self.visits.ratio(cell, self.without(cell.0), full_rate)
    }

    /// The same by CPU time alone: the cost of a request without cold connections, divided by its
    /// cost with them.
    pub(super) fn kept_by_cpu(&self, cell: (usize, u32)) -> Figure {
        self.visits.ratio(self.without(cell.0), cell, full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{assert_constant, visit_of};
    use harness::rounds::Visits;

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The second round is slower throughout: the ratios are the same.
        let round = |slow: f64| {
            let costs = [((0, 0), 20.0), ((0, 500), 80.0), ((1, 0), 10.0), ((1, 500), 10.0)];
            costs.map(|(cell, us): (_, f64)| (cell, visit_of(&[us * slow; 2]))).to_vec()
        };
        let sweep = Sweep {
            light_rate: 1000.0,
            visit_s: 0.5,
            kinds: vec![Kind::Poll, Kind::Epoll],
            cold: vec![0, 500],
            visits: Visits(vec![round(1.0), round(3.0)]),
        };
        let all = sweep.outcome();
        let of = |backend: &str, cold: u32| {
            let mut points = all["points"].as_array().unwrap().iter();
            points.find(|point| point["backend"] == backend && point["cold"] == cold).unwrap()
        };
        assert_constant(&of("poll", 500)["light_ratio"], 8.0);
        assert_constant(&of("poll", 0)["light_ratio"], 2.0);
        assert_constant(&of("epoll", 500)["full_ratio"], 1.0);
        assert_constant(&of("poll", 500)["kept"], 0.25);
        assert_constant(&of("poll", 500)["kept_by_cpu"], 0.25);
        let [low, high] = [0, 1].map(|end| of("poll", 500)["light_us"]["interval"][end].as_f64());
        assert!(low < Some(80.0) && high > Some(240.0), "the times themselves differ");
    }
}
