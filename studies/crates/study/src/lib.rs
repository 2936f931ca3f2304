//! The experiments of the papers, repeated on this machine.
//!
//! Each study is a module that measures, compares its results with the published patterns, and
//! says of each pattern whether it holds, does not hold, or is inconclusive. [`STUDIES`] lists
//! them. Their results on one machine, with the figures, are in `studies/` of the project. So are
//! their pages: a study measures and judges, and `page` shows its outcome by a table of templates.
//! Why: a claim of 1997 has to be checked on today's machines.
//! Ownership: a study owns its working directory and the servers it starts. It removes the
//! directory and ends the servers.
//! What never happens: a historic mistake that a study reproduces on purpose is never part of the
//! code that serves. An inconclusive pattern is never reported as holding or not holding.
#![forbid(unsafe_code)]

/// The text of a study's page.
macro_rules! page {
    ($study:ident) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../",
            stringify!($study),
            "/page.toml"
        ))
    };
}

pub mod boost;
mod conditions;
pub mod dispatch;
mod flags;
mod found;
pub mod herd;
pub mod live;
mod page;
pub mod predict;
mod published;
pub mod runqueue;
pub mod select;
mod servers;
mod show;
pub mod swapin;
pub mod truth;
mod visits;
pub mod webbench;

use clap::Subcommand;
use harness::Error;

pub use conditions::Conditions;
pub use flags::Given;
pub use found::{Found, Steps};

/// The studies, each with its flags.
#[derive(Debug, Subcommand)]
pub enum Study {
    /// Programs on poll() and select(), plain and boosted, and the same programs on epoll
    Boost(boost::Plan),
    /// The table walk of comm_select (1998): its CPU time, and the cache misses it causes elsewhere
    Dispatch(dispatch::Plan),
    /// Workers that share descriptors: which ones wake, how often in vain, and what a call costs
    Herd(herd::Plan),
    /// The live days of 1998 in minutes: the load lines of an old and a new event notification
    Live(live::Plan),
    /// Capacity predicted from low load on real servers, compared with their saturation
    Predict(predict::Plan),
    /// Colours in the run queue (2002): misses in the scheduler's walk, its lock, throughput
    Runqueue(runqueue::Plan),
    /// Cold connections (1998): what up to 10,000 cost on each backend, and a prediction
    Select(select::Plan),
    /// The swap-in bug of 1997: delays and reads by object size, of our store and of a real Squid
    Swapin(swapin::Plan),
    /// Records a server of known costs: how often the truth lies within the intervals
    Truth(truth::Plan),
    /// A static tree of files under a closed loop: our server and its peers, by clients and workers
    Webbench(webbench::Plan),
}

impl Study {
    /// Its name and its common flags.
    #[must_use]
    pub fn given(&self) -> (&'static str, &Given) {
        match self {
            Study::Boost(plan) => ("boost", &plan.given),
            Study::Dispatch(plan) => ("dispatch", &plan.given),
            Study::Herd(plan) => ("herd", &plan.given),
            Study::Live(plan) => ("live", &plan.given),
            Study::Predict(plan) => ("predict", &plan.given),
            Study::Runqueue(plan) => ("runqueue", &plan.given),
            Study::Select(plan) => ("select", &plan.given),
            Study::Swapin(plan) => ("swapin", &plan.given),
            Study::Truth(plan) => ("truth", &plan.given),
            Study::Webbench(plan) => ("webbench", &plan.given),
        }
    }

    /// Whether it runs [`Steps::plimsoll`].
    #[must_use]
    pub fn runs_the_server(&self) -> bool {
        use Study::{Boost, Live, Predict, Select, Webbench};
        matches!(self, Boost(_) | Live(_) | Predict(_) | Select(_) | Webbench(_))
    }

    /// Measures, judges and shows.
    ///
    /// # Errors
    /// See the `run` of each study.
    pub fn run(&self, steps: &mut Steps<'_>) -> Result<Found, Error> {
        /// The outcome of a study on its page.
        macro_rules! found {
            ($study:ident, $plan:expr) => {{
                let outcome = $study::run($plan, steps)?;
                let name = stringify!($study);
                let more = $study::for_page(&outcome);
                (Found::of(name, page!($study), &outcome, more), outcome)
            }};
        }
        Ok(match self {
            Study::Boost(plan) => {
                let (found, outcome) = found!(boost, plan);
                let differ = !outcome.differences.is_empty();
                found.failed(differ, "a boosted server sent another response")
            }
            Study::Dispatch(plan) => found!(dispatch, plan).0,
            Study::Herd(plan) => found!(herd, plan).0,
            Study::Live(plan) => {
                let (found, outcome) = found!(live, plan);
                found.with("live.svg", Some(live::figure(&outcome)))
            }
            Study::Predict(plan) => {
                let (found, outcome) = found!(predict, plan);
                let found = found.with("predict.svg", Some(predict::figure(&outcome)));
                Found { page: true, ..found }
            }
            Study::Runqueue(plan) => found!(runqueue, plan).0,
            Study::Select(plan) => found!(select, plan).0,
            Study::Swapin(plan) => {
                let (found, outcome) = found!(swapin, plan);
                let found = found.with("swapin.svg", swapin::figure(&outcome, "warm"));
                found.with("swapin-cold.svg", swapin::figure(&outcome, "cold"))
            }
            Study::Truth(plan) => {
                let (found, outcome) = found!(truth, plan);
                let missed = "the truth was outside of the intervals more often than allowed";
                found.failed(!outcome.held, missed)
            }
            Study::Webbench(plan) => found!(webbench, plan).0,
        })
    }
}

/// All studies: the name, and the question it answers.
pub const STUDIES: &[(&str, &str)] = &[
    (
        "boost",
        "what poll() and select() cost in unmodified programs once an epoll set answers them",
    ),
    (
        "dispatch",
        "what the table walk of comm_select (1998) costs, and which misses it causes elsewhere",
    ),
    (
        "herd",
        "which workers wake when they share descriptors (NetCache, 1998), and what that costs",
    ),
    (
        "live",
        "the live days of 1998 in minutes: the load lines of an old and a new event notification",
    ),
    (
        "predict",
        "how good predictions of capacity from low load are: nginx, Squid, HAProxy and others",
    ),
    (
        "runqueue",
        "what colours did for the walk of the run queue (2002): misses, the lock, throughput",
    ),
    (
        "select",
        "what 10,000 silent connections cost on each backend (1998), and a prediction of it",
    ),
    (
        "swapin",
        "what the extra read of Squid's swap-in bug (1997) costs today, and if our store has it",
    ),
    ("truth", "whether the laboratory finds known costs, and how often its intervals contain them"),
    (
        "webbench",
        "a static tree under a closed loop: our server and its peers, by clients and by workers",
    ),
];
