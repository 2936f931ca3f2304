//! The study `boost`: programs that wait by poll() or select(), plain and with the preloaded
//! library, and the same programs on epoll.
//!
//! ```text
//!  HAProxy -de, lighttpd, ours ----- plain ---------.
//!        the same under plimsoll boost -------------+-- load + cold connections (this process)
//!        the same on epoll -------------------------'
//! ```
//!
//! What: CPU time a request with 0, 1,000 and 8,000 silent connections, in one interleaved run, and
//! whether every response is the same. Debian's lighttpd has no select(), so select() is measured
//! on our own server, below and above FD_SETSIZE. Why: the algorithm that was put into the kernel
//! in 1998 must also pay off in user space, and must not change any result. Ownership: the servers
//! are child processes, each ended by its pid. What never happens: a ratio across rounds; a
//! response that differs and is not reported.

mod answers;
mod measure;
mod servers;
mod show;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use harness::{Cpus, Error, Source, cold_max};
use serde::Serialize;

pub use self::answers::Difference;
pub use self::measure::Row;
pub use self::servers::LibraryStats;
use self::servers::{Running, Setup, VARIANTS};
pub use self::show::{figure, shown};
use crate::conditions::{Conditions, working_directory};

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program `plimsoll`, whose verbs `serve`, `origin` and `boost` are run.
    pub program: PathBuf,
    /// Where the working directory is made; it is removed at the end.
    pub out: Option<PathBuf>,
    /// Numbers of cold connections, ascending.
    pub cold: Vec<u32>,
    /// Rounds, each over all servers and numbers.
    pub rounds: usize,
    /// No round begins later than this.
    pub time: Duration,
    /// Length of a visit, without the opening of its connections.
    pub visit: Duration,
    /// Seed of orders and arrivals.
    pub seed: u64,
}

/// Something that could not be measured, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    /// The server or the number of connections.
    pub what: String,
    /// The reason.
    pub why: String,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Where it was measured.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// Rounds that were made.
    pub rounds: usize,
    /// Seconds of a visit.
    pub visit_s: f64,
    /// By server, call and number of cold connections.
    pub rows: Vec<Row>,
    /// Responses of boosted servers that were compared with those of plain ones.
    pub compared: u64,
    /// The responses that differ.
    pub differences: Vec<Difference>,
    /// The library's own statistics, by server and call.
    pub library: Vec<LibraryStats>,
    /// Servers and numbers that are not in the rows.
    pub missing: Vec<Missing>,
}

/// Measures. `say` is called with each step.
///
/// # Errors
/// Our own server does not start or nothing answers; the directory cannot be used; interrupted. A
/// peer that is not installed is listed as missing.
pub fn run(plan: &Plan, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<Outcome, Error> {
    let home = working_directory(plan.out.as_ref(), "boost")?;
    let conditions = Conditions::at_start(home.path(), plan.seed);
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
    let origin = source.address();
    let setup = Setup { program: &plan.program, home: home.path(), origin, cpus, most };
    say("starting the servers");
    let mut running: Vec<Running> = Vec::new();
    for variant in VARIANTS {
        match servers::start(&setup, variant)? {
            Ok(started) => running.push(started),
            Err(why) => missing.push(Missing { what: variant.name(), why }),
        }
    }
    let (compared, differences) = answers::compare(&running)?;
    let (rows, rounds) = measure::measure(plan, &running, &cold, cpus.others, stop, say)?;
    let library = running.into_iter().filter_map(Running::end).collect();
    Ok(Outcome {
        conditions: conditions.at_end(),
        rounds,
        visit_s: plan.visit.as_secs_f64(),
        rows,
        compared,
        differences,
        library,
        missing,
    })
}
