//! The experiments of the papers, repeated on this machine.
//!
//! Each study is a module that measures, compares its results with the published patterns, and
//! says of each pattern whether it holds, does not hold, or is inconclusive. [`STUDIES`] lists
//! them. Their results on one machine, with the figures, are in `studies/` of the project. So are
//! their pages: a study measures and judges, and `page` shows its outcome by a table of templates.
//! Most studies are a table for one `experiment`: servers, loads, rounds and figures.
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

mod boost;
mod conditions;
mod dispatch;
mod experiment;
mod flags;
mod found;
mod herd;
mod live;
mod page;
mod predict;
mod published;
mod runqueue;
mod select;
mod servers;
mod show;
mod swapin;
pub mod truth;
mod webbench;

use clap::Subcommand;
use harness::Error;

pub use flags::Given;
pub use found::{Found, Steps};

/// A study, for a list of all of them.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// The question it answers.
    pub asks: &'static str,
    /// Its flags when all studies are run: all of them then take less than half an hour.
    pub full: &'static str,
    /// Its flags in the short form.
    pub quick: &'static str,
}

/// Declares each study once: its variant, its module, whether it runs [`Steps::plimsoll`], its help
/// and its [`About`].
macro_rules! studies {
    ($($variant:ident $module:ident $runs_the_server:literal
        $help:tt $asks:literal $full:literal $quick:literal;)+) => {
        /// The studies, each with its flags.
        #[derive(Debug, Subcommand)]
        pub enum Study {
            $(#[doc = $help] $variant($module::Plan),)+
        }

        /// All studies.
        pub const STUDIES: &[About] = &[$(
            About { name: stringify!($module), asks: $asks, full: $full, quick: $quick },
        )+];

        impl Study {
            /// Its name and its common flags.
            #[must_use]
            pub fn given(&self) -> (&'static str, &Given) {
                match self { $(Study::$variant(plan) => (stringify!($module), &plan.given),)+ }
            }

            /// Whether it runs [`Steps::plimsoll`].
            #[must_use]
            pub fn runs_the_server(&self) -> bool {
                match self { $(Study::$variant(_) => $runs_the_server,)+ }
            }

            /// Measures, judges and shows.
            ///
            /// # Errors
            /// See the `run` of each study.
            pub fn run(&self, steps: &mut Steps<'_>) -> Result<Found, Error> {
                match self { $(Study::$variant(plan) => $module::run(plan, steps),)+ }
            }
        }

        /// The texts of all pages.
        #[cfg(test)]
        const PAGES: &[&str] = &[$(page!($module)),+];
    };
}

studies! {
    Boost boost true
        "Programs on poll() and select(), plain and boosted, and the same programs on epoll"
        "what poll() and select() cost in unmodified programs once an epoll set answers them"
        "--for 3m" "--quick";
    Dispatch dispatch false
        "The table walk of comm_select (1998): its CPU time, and the cache misses it causes \
         elsewhere"
        "what the table walk of comm_select (1998) costs, and which misses it causes elsewhere"
        "" "--descriptors 512 --ready 4 --rounds 2 --turns 20";
    Herd herd false
        "Workers that share descriptors: which ones wake, how often in vain, and what a call costs"
        "which workers wake when they share descriptors (NetCache, 1998), and what that costs"
        "--for 2m" "--quick";
    Live live true
        "The live days of 1998 in minutes: the load lines of an old and a new event notification"
        "the live days of 1998 in minutes: the load lines of an old and a new event notification"
        "--compressed 3s" "--hours 2 --compressed 2s";
    Predict predict true
        "Capacity predicted from low load on real servers, compared with their saturation"
        "how good predictions of capacity from low load are: nginx, Squid, HAProxy and others"
        "--servers nginx --bodies 1024 --connections 64 --reaches 30,60" "--quick";
    Runqueue runqueue false
        "Colours in the run queue (2002): misses in the scheduler's walk, its lock, throughput"
        "what colours did for the walk of the run queue (2002): misses, the lock, throughput"
        "" "--quick";
    Select select true
        "Cold connections (1998): what up to 10,000 cost on each backend, and a prediction"
        "what 10,000 silent connections cost on each backend (1998), and a prediction of it"
        "--for 2m" "--quick --no-what-if";
    Swapin swapin false
        "The swap-in bug of 1997: delays and reads by object size, of our store and of files"
        "what the extra read of Squid's swap-in bug (1997) costs today, and if our store has it"
        "--for 45s" "--objects 60 --rounds 2";
    Truth truth false
        "Records a server of known costs: how often the truth lies within the intervals"
        "whether the laboratory finds known costs, and how often its intervals contain them"
        "--runs 4" "--runs 1 --for 6s --interval 200ms";
    Webbench webbench true
        "A static tree of files under a closed loop: our server and its peers, by clients and \
         workers"
        "a static tree under a closed loop: our server and its peers, by clients and by workers"
        "--for 3m" "--quick";
}
