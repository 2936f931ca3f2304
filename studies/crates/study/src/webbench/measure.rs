//! Visits of a closed loop, in rounds, and the figures over them.
//!
//! A visit opens the connections of all clients to one server; each sends the next request as soon
//! as the last is answered. A round visits every server with every number of clients in a random
//! order. Ratios are taken within a round.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use harness::Error;
use harness::rounds::{Figure, Rounds};
use load::{Phase, Schedule, Target, family};
use serde::Serialize;

use super::servers::{From, OURS, Running};
use super::{Plan, tree};
use crate::visits::{Visits, cells};

/// The first part of a visit does not count, because connections are still being accepted.
const SETTLE_S: f64 = 0.1;

/// One server with a number of workers and a number of clients.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The server.
    pub server: String,
    /// Where it takes the bodies from.
    pub from: From,
    /// Its workers: threads, or processes.
    pub workers: u16,
    /// Clients in a closed loop.
    pub clients: u32,
    /// Requests a second.
    pub rate: Figure,
    /// Megabytes (10^6 bytes) of bodies a second.
    pub megabytes: Figure,
    /// CPU time of all its processes a request, microseconds.
    pub us: Figure,
    /// The same relative to our server with as many workers and clients in the same round.
    pub us_to_ours: Figure,
    /// Requests a second relative to the fewest workers of this server in the same round.
    pub scaling: Figure,
    /// CPU time a request relative to the fewest workers of this server in the same round.
    pub us_scaling: Figure,
    /// Processors that it used.
    pub busy: Figure,
    /// Requests in all rounds.
    pub requests: u64,
    /// The requests that failed.
    pub errors: u64,
    /// Responses that the server marked as cache hits.
    pub hits: u64,
}

/// One visit.
#[derive(Clone, Copy, Debug)]
struct Visit {
    rate: f64,
    megabytes: f64,
    us: f64,
    requests: u64,
    errors: u64,
    hits: u64,
}

/// The identity of a server in the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id {
    name: &'static str,
    from: From,
    workers: u16,
}

/// Measures all servers; gives the rows and the number of rounds.
pub(super) fn measure(
    plan: &Plan,
    running: &[Running],
    pin_cpu: Option<usize>,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<(Vec<Row>, usize), Error> {
    let begun = Instant::now();
    let rounds = Rounds { most: plan.rounds, begun, time: plan.time, seed: plan.seed };
    let visits = rounds.make(cells(running.len(), &plan.clients), |round, (at, clients), _| {
        let (name, workers) = (running[at].name, running[at].workers);
        say(&format!("round {}: {name}, {workers} workers, {clients} clients", round + 1));
        visit(&running[at], clients, plan, pin_cpu, stop)
    })?;
    let id = |one: &Running| Id { name: one.name, from: one.from, workers: one.workers };
    let ids: Vec<Id> = running.iter().map(id).collect();
    let visits = Visits(visits);
    Ok((rows(&ids, &plan.clients, &visits), visits.rounds()))
}

/// The state at a tick of the load.
#[derive(Clone, Copy)]
struct Look {
    at_s: f64,
    cpu_ns: u64,
    requests: u64,
    bytes: u64,
}

fn visit(
    server: &Running,
    clients: u32,
    plan: &Plan,
    pin_cpu: Option<usize>,
    stop: &AtomicBool,
) -> Result<Visit, Error> {
    let target = Target {
        addr: server.address,
        authority: server.address.to_string(),
        path: tree::PATH.into(),
        absolute: false,
        tls: false,
        tunnel: false,
    };
    let mut load = load::Plan::new(target, Schedule::ClosedLoop, plan.visit);
    load.connections = clients;
    load.population = tree::population(plan.files);
    // The sizes are drawn from the seed too, so that it has to be the tree's.
    load.seed = plan.seed;
    load.pin_cpu = pin_cpu;
    let processes = server.family();
    let mut looks: Option<(Look, Look)> = None;
    let outcome = load::run(&load, stop, &mut |tick| {
        let at_s = tick.elapsed.as_secs_f64();
        if tick.phase != Phase::Running || at_s < SETTLE_S {
            return;
        }
        let now = Look {
            at_s,
            cpu_ns: family::cpu_ns(&processes),
            requests: tick.counts.completed,
            bytes: tick.counts.body_bytes,
        };
        looks = Some((looks.map_or(now, |(first, _)| first), now));
    })?;
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let (requests, hits) = (outcome.counts.completed, outcome.counts.hits);
    Ok(Visit { requests, hits, errors: outcome.counts.errors.total(), ..Visit::between(looks) })
}

impl Visit {
    /// NaN if no response arrived between the two looks.
    fn between(looks: Option<(Look, Look)>) -> Visit {
        let (rate, megabytes, us) = (f64::NAN, f64::NAN, f64::NAN);
        let none = Visit { rate, megabytes, us, requests: 0, errors: 0, hits: 0 };
        let Some((first, last)) = looks else { return none };
        let (seconds, requests) = (last.at_s - first.at_s, last.requests - first.requests);
        if seconds <= 0.0 || requests == 0 {
            return none;
        }
        Visit {
            rate: requests as f64 / seconds,
            megabytes: (last.bytes - first.bytes) as f64 / 1e6 / seconds,
            us: (last.cpu_ns - first.cpu_ns) as f64 / 1e3 / requests as f64,
            ..none
        }
    }
}

fn rows(ids: &[Id], clients: &[u32], visits: &Visits<(usize, u32), Visit>) -> Vec<Row> {
    let index = |name: &str, workers: u16| {
        ids.iter().position(|other| (other.name, other.workers) == (name, workers))
    };
    cells(ids.len(), clients)
        .into_iter()
        .map(|cell @ (at, clients)| {
            let Id { name, from, workers } = ids[at];
            let fewest = ids.iter().filter(|other| other.name == name).map(|other| other.workers);
            let fewest = fewest.min().and_then(|workers| index(name, workers)).unwrap_or(at);
            let base = (fewest, clients);
            let ours = index(OURS, workers);
            let to_ours = |ours| visits.ratio(cell, (ours, clients), |visit| visit.us);
            Row {
                server: name.to_owned(),
                from,
                workers,
                clients,
                rate: visits.figure(cell, |visit| visit.rate),
                megabytes: visits.figure(cell, |visit| visit.megabytes),
                us: visits.figure(cell, |visit| visit.us),
                us_to_ours: ours.map_or_else(|| Figure::of([]), to_ours),
                scaling: visits.ratio(cell, base, |visit| visit.rate),
                us_scaling: visits.ratio(cell, base, |visit| visit.us),
                busy: visits.figure(cell, |visit| visit.us * visit.rate / 1e6),
                requests: visits.sum(cell, |visit| visit.requests),
                errors: visits.sum(cell, |visit| visit.errors),
                hits: visits.sum(cell, |visit| visit.hits),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visits::assert_constant;

    #[test]
    fn ratios_are_relative_to_ours_and_to_the_fewest_workers_in_the_same_round() {
        let id = |name, workers| Id { name, from: From::Files, workers };
        let all = [id(OURS, 1), id("nginx", 1), id(OURS, 2), id("nginx", 2)];
        let visit = |rate: f64, us: f64| {
            let megabytes = rate / 100.0;
            Visit { rate, megabytes, us, requests: 10, errors: 1, hits: 5 }
        };
        // The second round is half as fast throughout.
        let round = |slow: f64| {
            vec![
                ((0, 16), visit(1000.0 / slow, 10.0 * slow)),
                ((1, 16), visit(2000.0 / slow, 5.0 * slow)),
                ((2, 16), visit(1800.0 / slow, 11.0 * slow)),
                ((3, 16), visit(3000.0 / slow, 22.0 * slow)),
            ]
        };
        let rows = rows(&all, &[16], &Visits(vec![round(1.0), round(2.0)]));
        assert_constant(&rows[1].us_to_ours, 0.5);
        assert_constant(&rows[3].us_to_ours, 2.0);
        assert_constant(&rows[2].scaling, 1.8);
        assert_constant(&rows[3].scaling, 1.5);
        assert_constant(&rows[3].us_scaling, 4.4);
        assert_constant(&rows[0].scaling, 1.0);
        assert_constant(&rows[1].busy, 0.01);
        assert_eq!((rows[1].requests, rows[1].errors, rows[1].hits), (20, 2, 10));
    }

    #[test]
    fn a_visit_without_responses_is_no_measurement() {
        let look = |at_s, requests| Look { at_s, cpu_ns: 1000 * requests, requests, bytes: 0 };
        assert!(Visit::between(None).rate.is_nan());
        assert!(Visit::between(Some((look(0.1, 5), look(0.1, 5)))).us.is_nan());
        let visit = Visit::between(Some((look(0.1, 5), look(0.6, 505))));
        assert!((visit.rate - 1000.0).abs() < 1e-9 && (visit.us - 1.0).abs() < 1e-9, "{visit:?}");
    }
}
