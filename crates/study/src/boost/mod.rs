//! The study `boost`: programs that wait by poll() or select(), as they are and with the preloaded
//! library, beside the same programs on epoll.
//!
//! ```text
//!  HAProxy -de, lighttpd, ours ----- plain ---------.
//!        the same under plimsoll boost -------------+-- load + cold connections (here)
//!        the same on epoll -------------------------'
//! ```
//!
//! What: CPU time a request with 0, 1,000 and 8,000 silent connections, in one interleaved run, and
//! whether every answer is the same. Debian's lighttpd has no select(): that is shown on our own
//! server, below and above FD_SETSIZE. Why: what was done in the kernel in 1998 must pay in user
//! space too, and change nothing. Who owns: the servers are processes of this study, each ended by
//! its pid. What never happens: a ratio across rounds; an answer that differs and is not told.

mod answers;
mod measure;
mod servers;
mod show;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;

pub use self::answers::Difference;
pub use self::measure::Row;
pub use self::servers::LibraryStats;
use self::servers::{Running, Stand, WAYS};
pub use self::show::{figure, shown};
use harness::environment::{Environment, Temporary, load_average};
use harness::{Cpus, Error, Source, cold_max};

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program whose verbs `serve`, `origin` and `boost` are run: plimsoll itself.
    pub program: PathBuf,
    /// Where the directory of the servers is made; removed again.
    pub home: PathBuf,
    /// Numbers of cold connections, ascending.
    pub cold: Vec<u32>,
    /// Rounds, each over all servers and numbers.
    pub rounds: usize,
    /// No round begins later than this.
    pub time: Duration,
    /// How long a visit is, without the opening of its connections.
    pub visit: Duration,
    /// Seed of orders and arrivals.
    pub seed: u64,
}

/// What could not be measured, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// All that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Where.
    pub ground: Environment,
    /// Processes that wanted to run, at the beginning and in the end.
    pub load_average: (Option<f64>, Option<f64>),
    /// Rounds that were made.
    pub rounds: usize,
    /// Seconds of a visit.
    pub visit_s: f64,
    /// By server, way of waiting and number of cold connections.
    pub rows: Vec<Row>,
    /// Answers that were compared, boosted with plain.
    pub compared: u64,
    /// Those that differ.
    pub differences: Vec<Difference>,
    /// What the library said of itself, by server and way.
    pub library: Vec<LibraryStats>,
    /// Servers and numbers that are not in the rows.
    pub missing: Vec<Missing>,
    /// Seed of orders and arrivals.
    pub seed: u64,
}

/// Measures. `say` is told what is being done.
///
/// # Errors
/// Our own server does not start or nothing answers; the directory cannot be used; interrupted. A
/// peer that is not installed is missing from the outcome.
pub fn run(plan: &Plan, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<Outcome, Error> {
    let at = |error| Error::Directory(plan.home.clone(), error);
    let home = Temporary::new(&plan.home, "boost").map_err(at)?;
    let ground = Environment::of(home.path());
    let loaded = load_average();
    let (most, descriptors) = cold_max()?;
    let (cold, beyond): (Vec<u32>, Vec<u32>) = plan.cold.iter().partition(|cold| **cold <= most);
    let mut missing: Vec<Missing> = beyond
        .into_iter()
        .map(|cold| Missing {
            what: format!("{cold} cold connections"),
            why: format!("a process may have {descriptors} descriptors; raise ulimit -n"),
        })
        .collect();
    let (cpus, _pinned) = Cpus::take()?;
    let source = Source::start(&plan.program, cpus)?;
    let stand = Stand { program: &plan.program, home: home.path(), source: &source, cpus, most };
    say("starting the servers");
    let mut running: Vec<Running> = Vec::new();
    for way in WAYS {
        match servers::start(&stand, way)? {
            Ok(started) => running.push(started),
            Err(why) => missing.push(Missing { what: way.name(), why }),
        }
    }
    let (compared, differences) = answers::compare(&running)?;
    let (rows, rounds) = measure::measure(plan, &running, &cold, cpus.others, stop, say)?;
    let library = running.into_iter().filter_map(Running::end).collect();
    Ok(Outcome {
        ground,
        load_average: (loaded, load_average()),
        rounds,
        visit_s: plan.visit.as_secs_f64(),
        rows,
        compared,
        differences,
        library,
        missing,
        seed: plan.seed,
    })
}
