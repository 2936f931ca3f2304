//! A static tree of files under a closed loop, as in WebBench: our server and its peers.
//!
//! The study of 2002 measured its scheduler under WebBench: 256 processes of a web server, files of
//! many sizes, clients that send the next request as soon as the last is answered, 1 to 8
//! processors. It published what another kernel gains. This study puts the same kind of load on
//! today's servers: how many requests they answer, what a request costs, and how both change with
//! the number of workers.
//!
//! ```text
//!  tree of files ------> nginx, lighttpd -------.
//!    same bytes                                  >--- closed loop of 1 to 256 connections
//!  origin --filled once--> ours, HAProxy, Varnish'
//! ```
//!
//! | module | what it owns |
//! | --- | --- |
//! | `tree` | the files, which are also the origin's objects |
//! | `servers` | our server and the peers as processes |
//! | `show` | what the page shows in addition to the outcome |
//!
//! What never happens: a response of another length counts; a server is compared with ours by
//! measurements of different rounds; two servers are loaded at once.

mod servers;
mod show;
mod tree;

use std::time::Duration;

use clap::Args;
use command::flags::duration_within;
use harness::rounds::Figure;
use harness::{Cpus, Error, Source};
use load::{Phase, Schedule, family};
use serde::Serialize;

pub use servers::{From, Missing};
pub(crate) use show::for_page;
pub use tree::Tree;

use crate::conditions::{Conditions, working_directory};
use crate::flags::{Given, Repeat, VISIT, ascending};
use crate::found::Steps;
use crate::servers::Running;
use crate::visits::{Visits, cells};
use servers::{Id, OURS, Setup};

/// The first part of a visit does not count, because connections are still being accepted.
const SETTLE_S: f64 = 0.1;

/// What to do.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Numbers of workers [default: 1, 2, 4 and so on, up to all CPUs]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Vec<u16>,
    /// Numbers of clients in a closed loop [default: 1,4,16,64,256]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    clients: Vec<u32>,
    /// Files of the tree
    #[arg(long, value_name = "N", default_value_t = 1000,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    files: u32,
    #[command(flatten)]
    repeat: Repeat,
    /// Length of a visit: one server with one number of clients
    #[arg(long, value_name = "TIME", default_value = "500ms",
        value_parser = duration_within(VISIT))]
    visit: Duration,
    /// Seconds: two rounds, short visits, 1 and 32 clients unless others are named
    #[arg(long, conflicts_with_all = ["rounds", "duration", "visit"])]
    quick: bool,
    #[command(flatten)]
    pub(crate) given: Given,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Where it was measured.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// The files.
    pub tree: Tree,
    /// The peers that are installed, with their versions.
    pub versions: Vec<String>,
    /// Servers that were not measured, and why.
    pub missing: Vec<Missing>,
    /// Rounds that were made.
    pub rounds: usize,
    /// Seconds of a visit.
    pub visit_s: f64,
    /// By workers, server and clients.
    pub rows: Vec<Row>,
}

/// One server with a number of workers and a number of clients.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The server.
    pub server: &'static str,
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

/// Measures.
///
/// # Errors
/// Our own server does not start or does not answer; the directory cannot be used; interrupted.
pub fn run(plan: &Plan, steps: &mut Steps<'_>) -> Result<Outcome, Error> {
    let Given { out, seed, .. } = &plan.given;
    let home = working_directory(out.as_ref(), "webbench")?;
    let conditions = Conditions::at_start(home.path(), *seed);
    let clients =
        ascending(&plan.clients, if plan.quick { &[1, 32] } else { &[1, 4, 16, 64, 256] });
    let time = if plan.quick { *VISIT.start() } else { plan.visit };
    load::sys::raise_descriptor_limit()
        .map_err(|error| Error::System("the limit of descriptors cannot be read", error))?;
    steps.say("writing the tree");
    let (tree, files) = (Tree::of(plan.files, *seed), home.path().join("tree"));
    tree.write(&files).map_err(|error| Error::Directory(files.clone(), error))?;
    let cpus = conditions.ground.processors;
    let others = (cpus > 1).then(|| cpus - 1);
    let source = Source::start(steps.plimsoll, Cpus { server: None, others })?;
    let setup = Setup {
        program: steps.plimsoll,
        home: home.path(),
        files: &files,
        tree: &tree,
        origin: source.address(),
        cpus,
    };
    let (mut running, mut missing) = (Vec::new(), Vec::new());
    // All of them start before the first load, which pins this thread, and its children, to a CPU.
    for workers in ascending(&plan.workers, &up_to(cpus)) {
        steps.say(&format!("starting servers with {workers} workers"));
        running.extend(servers::start(&setup, workers, &mut missing)?);
    }
    missing.dedup_by(|one, other| (&one.server, &one.why) == (&other.server, &other.why));
    let rounds = plan.repeat.rounds(plan.quick.then_some(2), *seed);
    let visits = rounds.make(cells(running.len(), &clients), |round, (at, clients), _| {
        let (Id { name, workers, .. }, server) = &running[at];
        steps.say(&format!("round {}: {name}, {workers} workers, {clients} clients", round + 1));
        let mut load = server.load(tree::PATH, Schedule::ClosedLoop, time);
        load.connections = clients;
        load.population = tree::population(plan.files);
        // The sizes are drawn from the seed too, so that it has to be the tree's.
        load.seed = *seed;
        load.pin_cpu = others;
        visit(server, &load, steps)
    })?;
    let (ids, visits) = (running.iter().map(|(id, _)| *id).collect::<Vec<_>>(), Visits(visits));
    Ok(Outcome {
        rows: rows(&ids, &clients, &visits),
        conditions: conditions.at_end(),
        tree,
        versions: servers::versions(),
        missing,
        rounds: visits.rounds(),
        visit_s: time.as_secs_f64(),
    })
}

/// 1, 2, 4 and so on below the number of CPUs, and that number.
fn up_to(cpus: usize) -> Vec<u16> {
    let all = u16::try_from(cpus).unwrap_or(u16::MAX);
    let powers = (0..).map_while(|bit| 1u16.checked_shl(bit));
    powers.take_while(|number| *number < all).chain([all]).collect()
}

/// The state at a tick of the load.
#[derive(Clone, Copy)]
struct Look {
    at_s: f64,
    cpu_ns: u64,
    requests: u64,
    bytes: u64,
}

fn visit(server: &Running, load: &load::Plan, steps: &Steps<'_>) -> Result<Visit, Error> {
    let processes = server.family();
    let mut looks: Option<(Look, Look)> = None;
    let outcome = load::run(load, steps.stop, &mut |tick| {
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
    steps.interrupted()?;
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
                server: name,
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
