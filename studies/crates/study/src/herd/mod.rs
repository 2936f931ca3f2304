//! Many workers that wait for the same descriptors: which of them wake, and how often in vain.
//!
//! In 1998 a NetCache on a kernel with a faster `select()` called it about seven times as often.
//! Its threads waited for the same descriptors. A call that returned at once reported one event,
//! and before that event was handled, other threads had called `select()` and received it too. A
//! slow call had collected several events, and fewer threads called it at the same time.
//!
//! What: the same small server with 1 to N workers, for each way ([`Sharing`]) in which workers can
//! share a listener and its connections today. Measured are waits, wakes and CPU time for each
//! event of work, the part of the waits that gave no work, and the cost of each system call.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `visit` | the sockets and the clients of one measurement |
//! | `worker` | a worker's loop, in every way of sharing |
//! | `meter` | calls: all are counted, some are timed |
//! | `judge` | figures over rounds, and the published ones next to them |
//!
//! What never happens: a number of waits, wakes or calls is estimated: all are counted (times of
//! calls are sampled, and the result says so); two ways of sharing are compared by measurements of
//! different rounds; the number of a socket is reused while a worker may hold a stale event for it.

mod judge;
mod meter;
mod visit;
mod worker;

use clap::Args;
use harness::Error;
use harness::rounds::Visits;
use serde::Serialize;
use serde_json::json;

use crate::conditions::Conditions;
use crate::flags::{Given, Repeat, ascending, count};
use crate::found::{Found, Steps};

/// How workers share the listener and its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Sharing {
    /// Every worker calls poll() on all descriptors: a slow wait, like the old select().
    Poll,
    /// One epoll set for all, level-triggered: a fast wait, as NetCache had it.
    OneSet,
    /// One set for all, edge-triggered: an event is reported once, to one worker.
    Edge,
    /// One set for all, each event reported to one worker until that worker rearms it
    /// (EPOLLONESHOT).
    OneShot,
    /// A set for each worker with its own connections; all sets have the one listener.
    OwnSets,
    /// The same with EPOLLEXCLUSIVE: the kernel wakes one of the workers that wait for the
    /// listener.
    Exclusive,
    /// A set and a listener for each worker (SO_REUSEPORT): nothing is shared. Our server does
    /// this.
    ReusePort,
}

impl Sharing {
    /// All of them.
    const ALL: [Sharing; 7] = [
        Sharing::Poll,
        Sharing::OneSet,
        Sharing::Edge,
        Sharing::OneShot,
        Sharing::OwnSets,
        Sharing::Exclusive,
        Sharing::ReusePort,
    ];
    /// The way of our server, if the kernel supports it: see `server::sockets`.
    const OURS: Sharing = Sharing::ReusePort;

    /// As it is printed.
    fn label(self) -> &'static str {
        match self {
            Sharing::Poll => "poll() by all",
            Sharing::OneSet => "one set",
            Sharing::Edge => "one set, edge",
            Sharing::OneShot => "one set, oneshot",
            Sharing::OwnSets => "own sets",
            Sharing::Exclusive => "own, exclusive",
            Sharing::ReusePort => "own, reuse port",
        }
    }

    /// Whether each worker has its own set.
    fn own_sets(self) -> bool {
        matches!(self, Sharing::OwnSets | Sharing::Exclusive | Sharing::ReusePort)
    }
}

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Load {
    /// Each keeps its connection: the events are requests.
    Kept,
    /// A connection for each request: of three events, one is an accept and one an end.
    Fresh,
}

impl Load {
    /// Both.
    const ALL: [Load; 2] = [Load::Kept, Load::Fresh];

    /// As it is printed.
    fn label(self) -> &'static str {
        match self {
            Load::Kept => "requests on kept connections",
            Load::Fresh => "a connection for each request",
        }
    }

    /// The same in a word.
    fn short(self) -> &'static str {
        match self {
            Load::Kept => "kept",
            Load::Fresh => "fresh",
        }
    }

    /// Requests of a client in a visit that has `kept` requests on a kept connection. With a
    /// connection each there are fewer, because a connection costs several times a request.
    fn requests(self, kept: u32) -> u32 {
        match self {
            Load::Kept => kept,
            Load::Fresh => (kept / FRESH_DIVISOR).max(1),
        }
    }
}

/// The divisor of the number of requests if each has its own connection.
const FRESH_DIVISOR: u32 = 4;

/// What to do.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("rounds", |arg| arg.default_value("9")))]
pub struct Plan {
    /// Numbers of workers
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "1,2,4,8,16",
        value_parser = count(1..=256))]
    workers: Vec<u32>,
    /// Clients, each with one request in flight
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = count(1..=256))]
    clients: u32,
    /// Connections that stay silent; they make a poll() slow
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = count(..=20_000))]
    cold: u32,
    /// Requests of each client in a visit; a quarter of that if each has its own connection
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = count(4..=10_000))]
    requests: u32,
    #[command(flatten)]
    repeat: Repeat,
    /// Seconds: two rounds with few requests
    #[arg(long, conflicts_with_all = ["rounds", "requests", "duration"])]
    quick: bool,
    #[command(flatten)]
    pub(crate) given: Given,
}

/// One combination that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    load: Load,
    workers: u32,
    sharing: Sharing,
}

/// Measures.
///
/// # Errors
/// The system provides no sockets or threads; a client gets no response; interrupted.
pub(crate) fn run(plan: &Plan, steps: &mut Steps<'_>) -> Result<Found, Error> {
    let rounds = plan.repeat.rounds(plan.quick.then_some(2), plan.given.seed);
    let conditions = Conditions::at_start(&std::env::temp_dir(), plan.given.seed);
    load::sys::raise_descriptor_limit()
        .map_err(|error| Error::System("the limit of descriptors cannot be read", error))?;
    let clock_ns = meter::clock_ns();
    let workers = ascending(&plan.workers, &[]);
    let requests = if plan.quick { 20 } else { plan.requests };
    let cells = cells(&workers);
    let visits = rounds.make(cells.clone(), |round, cell, rng| {
        steps.interrupted()?;
        let (name, workers) = (cell.sharing.label(), cell.workers);
        steps.say(&format!("round {}: {name}, {workers} workers", round + 1));
        let what = "workers and clients of the study on loopback";
        let visited = visit::visit(cell, (plan.clients, requests, plan.cold), rng.next_u64());
        visited.map_err(|error| Error::System(what, error))
    })?;
    let judge = judge::Judge { cells, workers, visits: Visits(visits), clock_ns };
    let outcome = conditions.outcome(json!({
        "clients": plan.clients,
        "cold": plan.cold,
        "rounds": judge.visits.rounds(),
        "clock_ns": clock_ns,
        "sample_every": meter::SAMPLE_EVERY,
        "rows": judge.rows(),
        "called_more": judge.called_more(),
    }));
    Ok(Found::of("herd", page!(herd), &outcome, judge.for_page()))
}

/// In the order in which they are shown.
fn cells(workers: &[u32]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for load in Load::ALL {
        for &workers in workers {
            cells.extend(Sharing::ALL.map(|sharing| Cell { load, workers, sharing }));
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::found::quietly;

    #[test]
    fn every_way_of_sharing_is_measured_with_every_load_and_number() {
        let plan = Plan {
            workers: vec![1, 3],
            clients: 3,
            cold: 5,
            requests: 20,
            repeat: Repeat { rounds: 2, duration: std::time::Duration::from_secs(60) },
            quick: false,
            given: Given { seed: 1, ..Given::default() },
        };
        let found = quietly(false, |steps| run(&plan, steps)).unwrap();
        let outcome: serde_json::Value = serde_json::from_str(&found.json[0]).unwrap();
        assert_eq!(outcome["rounds"], 2);
        let rows = outcome["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2 * 2 * Sharing::ALL.len());
        assert_eq!(outcome["called_more"].as_array().unwrap().len(), 2 * 2);
        for row in rows {
            let of = |figure: &str| row[figure]["value"].as_f64().unwrap();
            assert!(of("cpu_us") > 0.0 && of("waits") > 0.0, "{row:?}");
            assert!(row["sharing"] != json!(Sharing::OURS) || of("to_ours") == 1.0, "{row:?}");
        }
        let stopped = quietly(true, |steps| run(&plan, steps));
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }
}
