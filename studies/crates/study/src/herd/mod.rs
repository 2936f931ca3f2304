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
//! | `judge` | figures over rounds |
//! | `show` | all of it as text and as a figure |
//!
//! What never happens: a number of waits, wakes or calls is estimated: all are counted (times of
//! calls are sampled, and the result says so); two ways of sharing are compared by measurements of
//! different rounds; the number of a socket is reused while a worker may hold a stale event for it.

mod judge;
mod meter;
mod show;
mod visit;
mod worker;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::Error;
use harness::rounds::Rounds;
use serde::Serialize;

pub use judge::{CallCost, CalledMore, Part, Row};
pub use meter::SAMPLE_EVERY;
pub use show::{figure, shown};

use crate::conditions::Conditions;
use crate::visits::Visits;

/// How workers share the listener and its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
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
    pub const ALL: [Sharing; 7] = [
        Sharing::Poll,
        Sharing::OneSet,
        Sharing::Edge,
        Sharing::OneShot,
        Sharing::OwnSets,
        Sharing::Exclusive,
        Sharing::ReusePort,
    ];
    /// The way of our server, if the kernel supports it: see `server::sockets`.
    pub const OURS: Sharing = Sharing::ReusePort;

    /// As it is printed.
    #[must_use]
    pub fn label(self) -> &'static str {
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
pub enum Load {
    /// Each keeps its connection: the events are requests.
    Kept,
    /// A connection for each request: of three events, one is an accept and one an end.
    Fresh,
}

impl Load {
    /// Both.
    pub const ALL: [Load; 2] = [Load::Kept, Load::Fresh];

    /// As it is printed.
    #[must_use]
    pub fn label(self) -> &'static str {
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
#[derive(Clone, Debug)]
pub struct Plan {
    /// Numbers of workers.
    pub workers: Vec<u32>,
    /// Clients, each with one request in flight.
    pub clients: u32,
    /// Connections that stay silent; they make a poll() slow.
    pub cold: u32,
    /// Requests of each client in a visit, on a kept connection.
    pub requests: u32,
    /// Rounds, each over all ways, loads and numbers.
    pub rounds: usize,
    /// No round begins later than this.
    pub time: Duration,
    /// Seed of the order of visits, and of which calls are timed.
    pub seed: u64,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Where it was measured.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// Clients.
    pub clients: u32,
    /// Silent connections.
    pub cold: u32,
    /// Rounds that were made.
    pub rounds: usize,
    /// Nanoseconds that the clock shows for an empty call; they are subtracted.
    pub clock_ns: u64,
    /// One call in this many is timed.
    pub sample_every: u64,
    /// By load, workers and way of sharing.
    pub rows: Vec<Row>,
    /// How much more often the fast wait is called than the slow one.
    pub called_more: Vec<CalledMore>,
}

/// One combination that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    load: Load,
    workers: u32,
    sharing: Sharing,
}

/// Measures. `say` is called with each step.
///
/// # Errors
/// The system provides no sockets or threads; a client gets no response; interrupted.
pub fn run(plan: &Plan, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<Outcome, Error> {
    let begun = Instant::now();
    let conditions = Conditions::at_start(&std::env::temp_dir(), plan.seed);
    load::sys::raise_descriptor_limit()
        .map_err(|error| Error::System("the limit of descriptors cannot be read", error))?;
    let clock_ns = meter::clock_ns();
    let rounds = Rounds { most: plan.rounds, begun, time: plan.time, seed: plan.seed };
    let visits = rounds.make(cells(plan), |round, cell, rng| {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let (name, workers) = (cell.sharing.label(), cell.workers);
        say(&format!("round {}: {name}, {workers} workers", round + 1));
        let what = "workers and clients of the study on loopback";
        visit::visit(cell, plan, rng.next_u64()).map_err(|error| Error::System(what, error))
    })?;
    let visits = Visits(visits);
    let rows = judge::rows(&cells(plan), &visits, clock_ns);
    Ok(Outcome {
        conditions: conditions.at_end(),
        clients: plan.clients,
        cold: plan.cold,
        rounds: visits.rounds(),
        clock_ns,
        sample_every: SAMPLE_EVERY,
        rows,
        called_more: judge::called_more(plan, &visits, clock_ns),
    })
}

/// In the order in which they are shown.
fn cells(plan: &Plan) -> Vec<Cell> {
    let mut cells = Vec::new();
    for load in Load::ALL {
        for &workers in &plan.workers {
            cells.extend(Sharing::ALL.map(|sharing| Cell { load, workers, sharing }));
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_sharing_is_measured_with_every_load_and_number() {
        let plan = Plan {
            workers: vec![1, 3],
            clients: 3,
            cold: 5,
            requests: 20,
            rounds: 2,
            time: Duration::from_secs(60),
            seed: 1,
        };
        let outcome = run(&plan, &AtomicBool::new(false), &mut |_| {}).unwrap();
        assert_eq!(outcome.rounds, 2);
        assert_eq!(outcome.rows.len(), 2 * 2 * Sharing::ALL.len());
        assert_eq!(outcome.called_more.len(), 2 * 2);
        for row in &outcome.rows {
            assert!(row.cpu_us.value > 0.0 && row.waits.value > 0.0, "{row:?}");
            assert!(row.sharing != Sharing::OURS || row.to_ours.value == 1.0, "{row:?}");
        }
        let stopped = run(&plan, &AtomicBool::new(true), &mut |_| {});
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }
}
