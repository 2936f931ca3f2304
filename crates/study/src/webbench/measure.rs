//! Visits of a closed loop, in rounds, and the figures over them.
//!
//! A visit opens so many connections to one server, each asking again as soon as it is answered. A
//! round visits every server with every number of clients, in an order drawn anew; ratios are taken
//! within a round.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use load::{Phase, Schedule, Target, family};
use serde::Serialize;

use super::servers::{From, OURS, Running};
use super::{Plan, tree};
use harness::Error;
use harness::rounds::{Figure, Round, Rounds, in_round};

/// At the beginning of a visit so much is not counted: connections are still accepted.
const SETTLE_S: f64 = 0.1;

/// One server with so many workers and clients.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which.
    pub server: String,
    /// Where it has the bodies.
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
    /// That, to ours with as many workers and clients in the same round.
    pub us_to_ours: Figure,
    /// Requests a second, to the same with the fewest workers in the same round.
    pub scaling: Figure,
    /// CPU time a request, to the same with the fewest workers in the same round.
    pub us_scaling: Figure,
    /// Processors that it used.
    pub busy: Figure,
    /// Requests in all rounds.
    pub requests: u64,
    /// Of them those that failed.
    pub errors: u64,
    /// Answers that said they came from a cache.
    pub hits: u64,
}

/// What is visited: a place in the list of servers, and clients.
type Cell = (usize, u32);

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

/// A server, as the figures know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Who {
    name: &'static str,
    from: From,
    workers: u16,
}

/// Measures all; gives the rows and how many rounds there were.
pub(super) fn measure(
    plan: &Plan,
    running: &[Running],
    pin_cpu: Option<usize>,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<(Vec<Row>, usize), Error> {
    let cells: Vec<Cell> = (0..running.len())
        .flat_map(|at| plan.clients.iter().map(move |clients| (at, *clients)))
        .collect();
    let begun = Instant::now();
    let rounds = Rounds { most: plan.rounds, begun, time: plan.time, seed: plan.seed };
    let rounds = rounds.make(cells, |round, (at, clients), _| {
        let (name, workers) = (running[at].name, running[at].workers);
        say(&format!("round {}: {name}, {workers} workers, {clients} clients", round + 1));
        visit(&running[at], clients, plan, pin_cpu, stop)
    })?;
    let who: Vec<Who> = running
        .iter()
        .map(|one| Who { name: one.name, from: one.from, workers: one.workers })
        .collect();
    Ok((rows(&who, &plan.clients, &rounds), rounds.len()))
}

/// What was seen at a tick of the load.
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
    };
    let mut load = load::Plan::new(target, Schedule::ClosedLoop, plan.visit);
    load.connections = clients;
    load.population = tree::population(plan.files);
    // The sizes are drawn from it too: it is the tree's.
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
    /// Not a number where nothing was answered between two looks.
    fn between(looks: Option<(Look, Look)>) -> Visit {
        let nothing = f64::NAN;
        let none = Visit {
            rate: nothing,
            megabytes: nothing,
            us: nothing,
            requests: 0,
            errors: 0,
            hits: 0,
        };
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

fn rows(who: &[Who], clients: &[u32], rounds: &[Round<Cell, Visit>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, one) in who.iter().enumerate() {
        let place = |name: &str, workers: u16| {
            who.iter().position(|other| (other.name, other.workers) == (name, workers))
        };
        let fewest = who.iter().filter(|other| other.name == one.name).map(|other| other.workers);
        let fewest = fewest.min().and_then(|workers| place(one.name, workers)).unwrap_or(at);
        let ours = place(OURS, one.workers);
        for &clients in clients {
            let all = || rounds.iter().filter_map(|round| in_round(round, (at, clients)));
            let figure = |value: fn(&Visit) -> f64| Figure::of(all().map(value));
            let over = |value: fn(&Visit) -> f64, base: Option<usize>| {
                Figure::of(rounds.iter().filter_map(|round| {
                    let base = in_round(round, (base?, clients))?;
                    Some(value(in_round(round, (at, clients))?) / value(base))
                }))
            };
            rows.push(Row {
                server: one.name.to_owned(),
                from: one.from,
                workers: one.workers,
                clients,
                rate: figure(|visit| visit.rate),
                megabytes: figure(|visit| visit.megabytes),
                us: figure(|visit| visit.us),
                us_to_ours: over(|visit| visit.us, ours),
                scaling: over(|visit| visit.rate, Some(fewest)),
                us_scaling: over(|visit| visit.us, Some(fewest)),
                busy: figure(|visit| visit.us * visit.rate / 1e6),
                requests: all().map(|visit| visit.requests).sum(),
                errors: all().map(|visit| visit.errors).sum(),
                hits: all().map(|visit| visit.hits).sum(),
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_ours_and_to_the_fewest_workers_in_the_same_round() {
        let who = |name, workers| Who { name, from: From::Files, workers };
        let all = [who(OURS, 1), who("nginx", 1), who(OURS, 2), who("nginx", 2)];
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
        let rows = rows(&all, &[16], &[round(1.0), round(2.0)]);
        let close = |figure: &Figure, wanted: f64| {
            assert!((figure.value - wanted).abs() < 1e-9, "{figure:?} {wanted}");
            let (low, high) = figure.interval.unwrap();
            assert!(high - low < 1e-9, "{figure:?}");
        };
        close(&rows[1].us_to_ours, 0.5);
        close(&rows[3].us_to_ours, 2.0);
        close(&rows[2].scaling, 1.8);
        close(&rows[3].scaling, 1.5);
        close(&rows[3].us_scaling, 4.4);
        close(&rows[0].scaling, 1.0);
        close(&rows[1].busy, 0.01);
        assert_eq!((rows[1].requests, rows[1].errors, rows[1].hits), (20, 2, 10));
    }

    #[test]
    fn a_visit_without_answers_is_no_measurement() {
        let look = |at_s, requests| Look { at_s, cpu_ns: 1000 * requests, requests, bytes: 0 };
        assert!(Visit::between(None).rate.is_nan());
        assert!(Visit::between(Some((look(0.1, 5), look(0.1, 5)))).us.is_nan());
        let seen = Visit::between(Some((look(0.1, 5), look(0.6, 505))));
        assert!((seen.rate - 1000.0).abs() < 1e-9 && (seen.us - 1.0).abs() < 1e-9, "{seen:?}");
    }
}
