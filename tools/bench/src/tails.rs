//! Latencies at a part of a server's capacity, from the intended start of each request.
//!
//! The capacity is what a closed loop reaches, as in the other scenarios, before the first round.
//! Each server gets 50 and 80 % of what it can do itself: the same relative load. It also gets 50
//! and 80 % of the best peer's capacity: the same requests for all. A server with less capacity is
//! overloaded there, and the table says so. Where that is more than the generator can send on time
//! from its one CPU, which the origin of misses shares, the rate is the most that it can, and the
//! table says so too. The generator has the shortest slice that the kernel allows, so that it
//! starts a request when its time has come, and leaves the CPU to the origin between requests (with
//! real-time priority it would be before the origin each time). Both CPUs are kept awake.
//!
//! Latencies that include a wait for the generator are not counted, because the wait does not
//! depend on the server. If they are more than 1 % in one second (`load::Row::behind`), the round
//! is not counted. Neither is one in which the requests were too many for the generator and the
//! origin, but not for the server.

use std::time::Duration;

use load::{Outcome, Plan, Schedule, family};
use serde::Serialize;

use crate::generators;
use crate::measure::{self, BUSY_PART_MIN, Cell, Context};
use crate::process::{self, Awake};
use crate::scenarios::{HOT, SCENARIOS, Scenario};
use crate::servers::{Kind, Running, Server};
use crate::table::{Spread, spread_text};

/// The name of the scenario.
pub(crate) const NAME: &str = "tails";
/// The scenarios of the capacity, whose requests are used.
const PATHS: [&str; 3] = ["hit", "large", "miss"];
/// The body size in the name of a server's directory, which keeps its files apart from those of
/// other scenarios.
const OWN_FILES: u64 = 2;
const PEERS: [&str; 2] = ["haproxy", "nginx"];
const PARTS: [f64; 2] = [0.5, 0.8];
/// A round of one row is this much shorter than those of other scenarios: there are many rows.
const SHORTER: u32 = 2;
/// Visits of a closed loop for the capacity.
const LOOKS: u32 = 5;
/// If the generator is not on time at a rate, the next is this part of it.
const LOWER: f64 = 0.85;
/// Rates that are tried for the most that the generator sends on time.
const LOWER_MAX: u32 = 16;
/// How late the generator may be for a latency to count.
const LAG_MAX: Duration = Duration::from_micros(200);
/// A server that completes less than this part of the requests in time is overloaded. If it was not
/// at saturation then, the generator and the origin were the limit.
const COMPLETED_PART_MIN: f64 = 0.99;

/// The latencies of one round, microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Round {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    /// The share of latencies that include a wait for the generator and are not counted.
    pub(crate) late: f64,
    /// The generator's longest delay through its own fault.
    pub(crate) lag_max_us: f64,
    /// The share of its CPU that the server used.
    pub(crate) utilisation: f64,
    pub(crate) overloaded: bool,
    /// Whether the round counts.
    pub(crate) valid: bool,
}

/// All rounds of one server at one rate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tail {
    pub(crate) requests: &'static str,
    pub(crate) server: &'static str,
    /// The capacity is that of this server; otherwise it is the best peer's.
    pub(crate) of_own: bool,
    pub(crate) part: f64,
    /// The rate, per second.
    pub(crate) rate: f64,
    pub(crate) rounds: Vec<Option<Round>>,
    pub(crate) notes: Vec<String>,
}

pub(crate) fn run(context: &Context<'_>, servers: &[&Server]) -> Result<Vec<Tail>, String> {
    let is_measured =
        |server: &&&Server| server.kind == Kind::Plimsoll("epoll") || PEERS.contains(&server.name);
    let (mut fleet, mut missing) = (Vec::new(), Vec::new());
    for server in servers.iter().filter(is_measured) {
        match server.start(context.ground, OWN_FILES) {
            Ok(running) => fleet.push((server.name, running)),
            Err(why) => {
                missing.push(Tail::planned("none", server.name, (true, 0.0), 0.0, Some(why)))
            }
        }
    }
    let _awake = Awake::keep(&[context.ground.cpu, context.pace.cpu]);
    let paths = PATHS.map(|name| SCENARIOS.iter().find(|scenario| scenario.name == name));
    let mut tails = Vec::new();
    for scenario in paths.into_iter().flatten() {
        let planned = planned(context, scenario, &fleet, &mut missing)?;
        tails.extend(planned.into_iter().map(|tail| (scenario, tail)));
    }
    for round in 1..=context.rounds {
        for (scenario, tail) in &mut tails {
            context.check_stop()?;
            let running = fleet.iter().find(|(name, _)| *name == tail.server);
            let (_, running) = running.expect("tails are planned for the fleet");
            let measured = measured(context, scenario, running, tail.rate, round);
            let (of, name, rate) = (context.rounds, tail.server, tail.rate);
            eprintln!(
                "round {round}/{of} {NAME} {} {name} {rate:.0}/s {measured:?}",
                tail.requests
            );
            if let Err(why) = &measured {
                tail.notes.push(why.clone());
            }
            tail.rounds.push(measured.ok());
        }
    }
    Ok(tails.into_iter().map(|(_, tail)| tail).chain(missing).collect())
}

/// Measures the capacities, and makes the rows from them.
fn planned(
    context: &Context<'_>,
    scenario: &Scenario,
    fleet: &[(&'static str, Running)],
    missing: &mut Vec<Tail>,
) -> Result<Vec<Tail>, String> {
    let mut looks = vec![Vec::new(); fleet.len()];
    for _ in 0..LOOKS {
        for ((_, running), looks) in fleet.iter().zip(&mut looks) {
            context.check_stop()?;
            looks.push(measure::visit(context, running, scenario));
        }
    }
    let mut capacities = Vec::new();
    for ((server, _), looks) in fleet.iter().zip(looks) {
        match looks.into_iter().collect::<Result<Vec<Cell>, String>>() {
            Ok(looks) => capacities.push((*server, Capacity::of(&looks))),
            Err(why) => {
                missing.push(Tail::planned(scenario.name, server, (true, 0.0), 0.0, Some(why)))
            }
        }
    }
    let mut tails = rows(scenario.name, &capacities);
    let wanted = tails.iter().map(|tail| tail.rate).fold(0.0, f64::max);
    let own = fleet.iter().find(|(name, _)| !PEERS.contains(name)).or(fleet.first());
    let Some((_, running)) = own else { return Ok(tails) };
    let most = on_time(context, scenario, running, wanted)?;
    eprintln!("{NAME} {}: capacities {capacities:.2?}, at most {most:.0}/s", scenario.name);
    at_most(most, &mut tails);
    Ok(tails)
}

/// The highest rate that the generator sends on time, and `wanted` at most.
fn on_time(
    context: &Context<'_>,
    scenario: &Scenario,
    running: &Running,
    wanted: f64,
) -> Result<f64, String> {
    let mut rate = wanted;
    for _ in 0..LOWER_MAX {
        context.check_stop()?;
        if measured(context, scenario, running, rate, 0)?.valid {
            return Ok(rate);
        }
        rate *= LOWER;
    }
    Err(format!("the generator is late even at {rate:.0} requests/s"))
}

/// Lowers the rates that the generator cannot send. Of rows that become the same the last remains:
/// it is at a part of the best peer's capacity, where all servers have a row to be compared with.
fn at_most(most: f64, tails: &mut Vec<Tail>) {
    let mut at_the_most: Vec<&str> = Vec::new();
    tails.reverse();
    tails.retain_mut(|tail| {
        if tail.rate <= most {
            return true;
        }
        tail.notes.push(format!("the generator sends no more, instead of {:.0}/s", tail.rate));
        tail.rate = most;
        let is_new = !at_the_most.contains(&tail.server);
        at_the_most.push(tail.server);
        is_new
    });
    tails.reverse();
}

/// What a closed loop reached.
#[derive(Clone, Copy, Debug)]
struct Capacity {
    rate: f64,
    /// The share of its CPU that the server used.
    utilisation: f64,
}

impl Capacity {
    fn of(looks: &[Cell]) -> Capacity {
        let median = |of: fn(&Cell) -> f64| Spread::of(looks.iter().map(of)).map(|s| s.median);
        Capacity {
            rate: median(|look| look.rate).unwrap_or(1.0),
            utilisation: median(|look| look.utilisation).unwrap_or_default(),
        }
    }

    fn note(&self) -> Option<String> {
        let part = 100.0 * self.utilisation;
        (self.utilisation < BUSY_PART_MIN).then(|| {
            format!(
                "the capacity is that of generator and origin ({part:.0} % of the server's CPU)"
            )
        })
    }
}

/// The rows of servers with these capacities.
fn rows(requests: &'static str, capacities: &[(&'static str, Capacity)]) -> Vec<Tail> {
    let peers = capacities.iter().filter(|(name, _)| PEERS.contains(name));
    let best = peers.map(|(_, of)| *of).max_by(|a, b| a.rate.total_cmp(&b.rate));
    let mut tails = Vec::new();
    for (of_own, part) in [true, false].into_iter().flat_map(|own| PARTS.map(|part| (own, part))) {
        for (server, own) in capacities {
            let Some(capacity) = (if of_own { Some(*own) } else { best }) else { continue };
            let (rate, note) = (part * capacity.rate, capacity.note());
            tails.push(Tail::planned(requests, server, (of_own, part), rate, note));
        }
    }
    tails
}

fn measured(
    context: &Context<'_>,
    scenario: &Scenario,
    running: &Running,
    rate: f64,
    seed: u32,
) -> Result<Round, String> {
    let target = format!("http://{}{}", running.addr, scenario.path);
    let target = target.parse().map_err(|e| format!("{e}"))?;
    let mut plan = Plan::new(target, Schedule::Constant(rate), context.pace.measured / SHORTER);
    plan.connections = HOT;
    plan.population.objects = scenario.objects;
    plan.population.size = load::Size::Fixed { bytes: scenario.body_bytes };
    plan.count_hits = false;
    plan.lag_max = LAG_MAX;
    // The same starts for all servers.
    plan.seed = u64::from(seed);
    plan.pin_cpu = Some(context.pace.cpu);
    let family = running.process.family();
    let before_ns = family::cpu_ns(&family);
    let outcome = generators::ahead(&plan, context.stop, process::shortest_slice)?;
    let used_ns = family::cpu_ns(&family) - before_ns;
    if outcome.counts.errors.total() > 0 {
        return Err(format!("{} requests failed", outcome.counts.errors.total()));
    }
    Ok(round(&outcome, used_ns as f64 / outcome.length_ns.max(1) as f64))
}

fn round(outcome: &Outcome, utilisation: f64) -> Round {
    let (counts, latency) = (&outcome.counts, &outcome.latency);
    let late = outcome.latency_invalid.count as f64 / counts.completed.max(1) as f64;
    let in_rows: u64 = outcome.rows.iter().map(|row| row.counts.completed).sum();
    let lag_max_ns = outcome.rows.iter().map(|row| row.lag_max_ns).max();
    let us = |ns: u64| ns as f64 / 1e3;
    let overloaded = (in_rows as f64) < COMPLETED_PART_MIN * counts.intended as f64;
    Round {
        p50_us: us(latency.p50_ns),
        p99_us: us(latency.p99_ns),
        p999_us: us(latency.p999_ns),
        late,
        lag_max_us: us(lag_max_ns.unwrap_or_default()),
        utilisation,
        overloaded,
        valid: outcome.rows_behind == 0 && !(overloaded && utilisation < BUSY_PART_MIN),
    }
}

impl Tail {
    fn planned(
        requests: &'static str,
        server: &'static str,
        (of_own, part): (bool, f64),
        rate: f64,
        note: Option<String>,
    ) -> Tail {
        let notes = note.into_iter().collect();
        Tail { requests, server, of_own, part, rate, rounds: Vec::new(), notes }
    }

    fn valid(&self) -> impl Iterator<Item = &Round> {
        self.rounds.iter().flatten().filter(|round| round.valid)
    }

    fn is_beside(&self, other: &Tail) -> bool {
        (self.requests, self.of_own, self.part) == (other.requests, other.of_own, other.part)
    }

    /// A percentile divided by that of the better peer at the same load, round by round. The better
    /// peer is the one with the lower median: the lower of two in each round would be better than
    /// either.
    fn to_better_peer(&self, all: &[Tail], of: fn(&Round) -> f64) -> String {
        let beside = |tail: &&Tail| PEERS.contains(&tail.server) && tail.is_beside(self);
        let median = |tail: &Tail| Spread::of(tail.valid().map(of)).map(|spread| spread.median);
        let medians = all.iter().filter(beside).filter_map(|tail| Some((median(tail)?, tail)));
        let Some((_, better)) = medians.min_by(|(a, _), (b, _)| a.total_cmp(b)) else {
            return "-".to_owned();
        };
        let counted = |round: &Option<Round>| round.filter(|round| round.valid);
        let pairs = self.rounds.iter().zip(&better.rounds);
        let ratios =
            pairs.filter_map(|(own, other)| Some(of(&counted(own)?) / of(&counted(other)?)));
        spread_text(ratios, 2)
    }
}

/// The rows as a table.
pub(crate) fn table(tails: &[Tail]) -> comfy_table::Table {
    let mut table = crate::table::plain(&[
        "requests",
        "load",
        "server",
        "requests/s",
        "p50, us",
        "p99, us",
        "p99.9, us",
        "p50 x better peer",
        "p99 x",
        "p99.9 x",
        "late, %",
        "generator's lag, us",
        "CPU used, %",
        "note",
    ]);
    for tail in tails {
        let text = |of: fn(&Round) -> f64| spread_text(tail.valid().map(of), 0);
        let ratio = |of: fn(&Round) -> f64| tail.to_better_peer(tails, of);
        let all = || tail.rounds.iter().flatten();
        let mut notes = tail.notes.clone();
        notes.dedup();
        let (rounds, valid) = (tail.rounds.len(), tail.valid().count());
        if valid < rounds {
            notes.push(format!("{valid} of {rounds} rounds count"));
        }
        if tail.valid().any(|round| round.overloaded) {
            notes.push("overloaded".to_owned());
        }
        let of = if tail.of_own { "its capacity" } else { "the best peer's" };
        table.add_row(vec![
            tail.requests.to_owned(),
            format!("{:.0} % of {of}", 100.0 * tail.part),
            tail.server.to_owned(),
            format!("{:.0}", tail.rate),
            text(|round| round.p50_us),
            text(|round| round.p99_us),
            text(|round| round.p999_us),
            ratio(|round| round.p50_us),
            ratio(|round| round.p99_us),
            ratio(|round| round.p999_us),
            spread_text(all().map(|round| 100.0 * round.late), 2),
            spread_text(all().map(|round| round.lag_max_us), 0),
            spread_text(all().map(|round| 100.0 * round.utilisation), 0),
            notes.join("; "),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(server: &'static str, p99: &[Option<f64>]) -> Tail {
        let round = |p99_us: f64| Round {
            p50_us: 1.0,
            p99_us,
            p999_us: 9.0,
            late: 0.0,
            lag_max_us: 1.0,
            utilisation: 0.5,
            overloaded: false,
            valid: true,
        };
        let rounds = p99.iter().map(|p99| p99.map(round)).collect();
        Tail { rounds, ..Tail::planned("hit", server, (true, 0.5), 1e4, None) }
    }

    #[test]
    fn a_capacity_that_is_not_the_servers_is_noted_where_it_is_used() {
        let of = |rate, utilisation| Capacity { rate, utilisation };
        let capacities =
            [("plimsoll-epoll", of(2e4, 0.8)), ("haproxy", of(1e4, 0.95)), ("nginx", of(9e3, 1.0))];
        let tails = rows("miss", &capacities);
        let noted = tails.iter().filter(|tail| !tail.notes.is_empty());
        let noted: Vec<_> = noted.map(|tail| (tail.server, tail.of_own, tail.rate)).collect();
        assert_eq!(noted, [("plimsoll-epoll", true, 1e4), ("plimsoll-epoll", true, 1.6e4)]);
        assert!(table(&tails).to_string().contains("(80 % of the server's CPU)"));
    }

    #[test]
    fn at_the_most_that_the_generator_sends_all_servers_are_compared() {
        let of = |rate| Capacity { rate, utilisation: 1.0 };
        let mut tails = rows("hit", &[("plimsoll-epoll", of(4e4)), ("nginx", of(2e4))]);
        at_most(1.2e4, &mut tails);
        let rates = tails.iter().map(|tail| (tail.server, tail.of_own, tail.part, tail.rate));
        let half = [
            ("nginx", true, 0.5, 1e4),
            ("plimsoll-epoll", false, 0.5, 1e4),
            ("nginx", false, 0.5, 1e4),
        ];
        let most = [("plimsoll-epoll", false, 0.8, 1.2e4), ("nginx", false, 0.8, 1.2e4)];
        assert_eq!(rates.collect::<Vec<_>>(), [&half[..], &most[..]].concat());
        assert!(tails[4].notes[0].contains("instead of 16000/s"), "{:?}", tails[4].notes);
    }

    #[test]
    fn valid_rounds_are_compared_with_the_better_peer() {
        let own = tail("plimsoll-epoll", &[Some(2.0), Some(6.0), Some(5.0), Some(4.0)]);
        let haproxy = tail("haproxy", &[Some(4.0), Some(4.0), None, Some(4.0)]);
        let mut nginx = tail("nginx", &[Some(8.0), Some(3.0), Some(1.0), Some(9.0)]);
        // The generator was late there.
        nginx.rounds[2].as_mut().unwrap().valid = false;
        let all = [own.clone(), haproxy, nginx];
        assert_eq!(own.to_better_peer(&all, |round| round.p99_us), "1.00 (0.50..1.50)");
        let text = table(&all).to_string();
        assert!(text.contains("3 of 4 rounds count"), "{text}");
    }
}
