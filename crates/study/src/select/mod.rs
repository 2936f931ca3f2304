//! The synthetic experiment of 1998 on the machine at hand: what open and silent connections cost.
//!
//! Banga and Mogul opened up to 2,000 *cold* connections to a proxy and measured what was left of
//! its throughput: with the old `select()` 44 % were gone. Here our own proxy is given up to 10,000
//! of them, on each of its backends, and the change that they made, another event notification in
//! the place of `select()`, is foretold from a recording on `poll` before it is made.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `sweep` | throughput and CPU time a request, by backend and number of cold connections |
//! | `foretell` | record on `poll`, foretell `epoll`, record that, grade |
//! | `show` | all of it in sentences, tables and a figure |
//!
//! What never happens: a backend that does not work here is left out in silence; two backends are
//! compared by what was not measured in the same rounds.

mod foretell;
mod show;
mod sweep;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use readiness::{Choice, Kind, Poller};
use serde::Serialize;

pub use foretell::{Foretelling, Graded};
pub use harness::Environment;
pub use harness::Error;
pub use harness::rounds::Figure;
pub use show::{figure, shown};
pub use sweep::{Point, Sweep};

use harness::environment::{Temporary, load_average};
use harness::{Cpus, Source, cold_max};

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program whose verbs `serve` and `origin` are run: plimsoll itself.
    pub program: PathBuf,
    /// Where the two trials are left; they are removed with all else without it.
    pub out: Option<PathBuf>,
    /// Numbers of cold connections, ascending; ratios are to the first.
    pub cold: Vec<u32>,
    /// Rounds, each over all backends and numbers.
    pub rounds: usize,
    /// No round begins later than this.
    pub time: Duration,
    /// How long each of the two loads of a visit is.
    pub visit: Duration,
    /// Requests a second of the light load.
    pub light_rate: f64,
    /// How long each of the two recordings of the what-if is; none without it.
    pub foretell: Option<Duration>,
    /// Seed of orders and arrivals.
    pub seed: u64,
}

/// A backend that was left out, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    /// Its name.
    pub backend: String,
    /// Why it is not supported here.
    pub why: String,
}

/// What bounds the number of cold connections here.
#[derive(Clone, Debug, Serialize)]
pub struct Bound {
    /// Descriptors that a process may have.
    pub descriptors: u64,
    /// Cold connections that leaves.
    pub cold: u32,
    /// Numbers that were asked for and are beyond it.
    pub left_out: Vec<u32>,
}

/// All that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Where.
    pub ground: Environment,
    /// Processes that wanted to run, at the beginning and in the end.
    pub load_average: (Option<f64>, Option<f64>),
    /// What bounds the number of connections.
    pub bound: Bound,
    /// Backends that do not work here.
    pub missing: Vec<Missing>,
    /// The synthetic experiment.
    pub sweep: Sweep,
    /// The what-if across backends.
    pub foretelling: Option<Foretelling>,
    /// Seed of orders and arrivals.
    pub seed: u64,
}

/// Measures. `say` is told what is being done.
///
/// # Errors
/// A server does not start or does not answer; the directory cannot be used; interrupted.
pub fn run(plan: &Plan, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<Outcome, Error> {
    let parent = plan.out.clone().unwrap_or_else(std::env::temp_dir);
    let home = Temporary::new(&parent, "select").map_err(|e| Error::Directory(parent, e))?;
    let ground = Environment::of(home.path());
    let loaded = load_average();
    let (cold, descriptors) = cold_max()?;
    let (within, left_out) = plan.cold.iter().copied().partition(|number| *number <= cold);
    let bound = Bound { descriptors, cold, left_out };
    let (kinds, missing) = backends();
    let (cpus, _pinned) = Cpus::take()?;
    let source = Source::start(&plan.program, cpus)?;
    let stand = Stand { plan, home: home.path(), source, cpus };
    let sweep = sweep::sweep(&stand, &kinds, within, stop, say)?;
    let foretelling = match plan.foretell {
        Some(time) => Some(foretell::foretell(&stand, time, cold, stop, say)?),
        None => None,
    };
    Ok(Outcome {
        ground,
        load_average: (loaded, load_average()),
        bound,
        missing,
        sweep,
        foretelling,
        seed: plan.seed,
    })
}

/// What both parts of the study stand on.
struct Stand<'p> {
    plan: &'p Plan,
    home: &'p Path,
    source: Source,
    cpus: Cpus,
}

/// The backends that work here, and why the others do not.
fn backends() -> (Vec<Kind>, Vec<Missing>) {
    let mut missing = Vec::new();
    let mut kinds = Kind::ALL_REAL.to_vec();
    kinds.retain(|kind| match Poller::open(Choice::Named(*kind)) {
        Ok(_) => true,
        Err(why) => {
            missing.push(Missing { backend: kind.to_string(), why: why.to_string() });
            false
        }
    });
    (kinds, missing)
}
