//! The synthetic experiment of 1998 on this machine: what open and silent connections cost.
//!
//! Banga and Mogul opened up to 2,000 *cold* connections to a proxy and measured the remaining
//! throughput: with the old `select()` 44 % were lost. Here our own proxy gets up to 10,000 of
//! them, on each of its backends. The authors replaced `select()` by another event notification;
//! the study predicts the effect of such a change from a recording on `poll`, before it is made.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `sweep` | throughput and CPU time a request, by backend and number of cold connections |
//! | `predict` | record on `poll`, predict `epoll`, record that, grade |
//! | `show` | all of it in sentences, tables and a figure |
//!
//! What never happens: a backend that does not work here is left out silently; two backends are
//! compared by measurements of different rounds.

mod predict;
mod show;
mod sweep;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use harness::{Cpus, Error, Source, cold_max};
use readiness::{Choice, Kind, Poller};
use serde::Serialize;

pub use predict::{Graded, Prediction};
pub use show::{figure, shown};
pub use sweep::{Point, Sweep};

use crate::conditions::{Conditions, working_directory};

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program `plimsoll`, whose verbs `serve` and `origin` are run.
    pub program: PathBuf,
    /// Where the two trials are kept. Without it they are removed with everything else.
    pub out: Option<PathBuf>,
    /// Numbers of cold connections, ascending; ratios are relative to the first.
    pub cold: Vec<u32>,
    /// Rounds, each over all backends and numbers.
    pub rounds: usize,
    /// No round begins later than this.
    pub time: Duration,
    /// Length of each of the two loads of a visit.
    pub visit: Duration,
    /// Requests a second of the light load.
    pub light_rate: f64,
    /// Length of each of the two recordings for the prediction. Without it nothing is predicted.
    pub recording: Option<Duration>,
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

/// The limit of the number of cold connections here.
#[derive(Clone, Debug, Serialize)]
pub struct Bound {
    /// Descriptors that a process may have.
    pub descriptors: u64,
    /// Cold connections that this allows.
    pub cold: u32,
    /// Requested numbers beyond it.
    pub left_out: Vec<u32>,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Where it was measured.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// The limit of the number of connections.
    pub bound: Bound,
    /// Backends that do not work here.
    pub missing: Vec<Missing>,
    /// The synthetic experiment.
    pub sweep: Sweep,
    /// The prediction from one backend to another.
    pub prediction: Option<Prediction>,
}

/// Measures. `say` is called with each step.
///
/// # Errors
/// A server does not start or does not answer; the directory cannot be used; interrupted.
pub fn run(plan: &Plan, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<Outcome, Error> {
    let home = working_directory(plan.out.as_ref(), "select")?;
    let conditions = Conditions::at_start(home.path(), plan.seed);
    let (cold, descriptors) = cold_max()?;
    let (within, left_out) = plan.cold.iter().copied().partition(|number| *number <= cold);
    let bound = Bound { descriptors, cold, left_out };
    let (kinds, missing) = backends();
    let (cpus, _pinned) = Cpus::take()?;
    let source = Source::start(&plan.program, cpus)?;
    let setup = Setup { plan, home: home.path(), source, cpus };
    let sweep = sweep::sweep(&setup, &kinds, within, stop, say)?;
    let prediction = match plan.recording {
        Some(time) => Some(predict::predict(&setup, time, cold, stop, say)?),
        None => None,
    };
    Ok(Outcome { conditions: conditions.at_end(), bound, missing, sweep, prediction })
}

/// What both parts of the study use.
struct Setup<'p> {
    plan: &'p Plan,
    home: &'p Path,
    source: Source,
    cpus: Cpus,
}

/// The backends that work here, and the reasons why others do not.
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
