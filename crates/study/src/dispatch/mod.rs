//! The table walk of `comm_select()`, and what it did to everybody else.
//!
//! In 1998 a third of the CPU time of Squid 1.1.20 was in the procedure around `select()`: before
//! each call it walked through an array of large structures, one a descriptor, to see who wants to
//! read or write. That costs by itself, and throws out of the data cache what other procedures have
//! there. Rewritten, the procedure took 0.54 %, and the others fewer misses.
//!
//! What: the same turn of a server three ways ([`Way`]): the walk; the cure, by bitmaps that are
//! kept up to date; and ours, by a token with each event. A simulated cache ([`crate::cache`])
//! counts the misses of the dispatch and of everything else; a real program takes the same turns on
//! sockets and is timed.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `layout` | what a server has in memory, and what a turn touches of it |
//! | `simulate` | misses, by way and by who has them |
//! | `real` | the same turns on real descriptors, timed |
//! | `show` | all of it in sentences, tables and a figure |
//!
//! What never happens: the walk is in anything that serves.

mod layout;
mod real;
mod show;
mod simulate;

use std::sync::atomic::AtomicBool;

use serde::Serialize;

pub use harness::Environment;
pub use harness::Error;
pub use harness::rounds::Figure;
pub use layout::ENTRY_BYTES;
pub use real::Timed;
pub use show::{figure, shown};
pub use simulate::Simulated;

use harness::environment::load_average;
use runqueue::cache::Machine;

/// How a server finds out who is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// As in 1998: the whole table before each wait, and all bits after it.
    Walk,
    /// The cure: bitmaps kept up to date, copied before and read by words after the wait.
    Bitmaps,
    /// Ours: nothing before the wait, and a token with each event after it.
    Tokens,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 3] = [Way::Walk, Way::Bitmaps, Way::Tokens];

    /// As it is printed.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Way::Walk => "table walk (1998)",
            Way::Bitmaps => "bitmaps (the cure)",
            Way::Tokens => "tokens (ours)",
        }
    }
}

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Numbers of open descriptors.
    pub descriptors: Vec<u32>,
    /// Numbers of connections that are ready at a wait.
    pub ready: Vec<u32>,
    /// Rounds of the timed program.
    pub rounds: usize,
    /// Turns of each visit in a round, and of a simulation.
    pub turns: usize,
    /// Seed of who is ready when.
    pub seed: u64,
}

/// All that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Where.
    pub ground: Environment,
    /// Processes that wanted to run, at the beginning and in the end.
    pub load_average: (Option<f64>, Option<f64>),
    /// Bytes of an entry of the table.
    pub entry_bytes: u64,
    /// The simulated caches.
    pub machines: Vec<Machine>,
    /// Misses.
    pub simulated: Vec<Simulated>,
    /// Times.
    pub timed: Vec<Timed>,
    /// Backends that could not be timed here, and why.
    pub missing: Vec<String>,
    /// Seed of who is ready when.
    pub seed: u64,
}

/// Simulates and measures. `say` is told what is being done.
///
/// # Errors
/// The system gives no sockets; too few descriptors; interrupted.
pub fn run(plan: &Plan, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<Outcome, Error> {
    let loaded = load_average();
    let machines = vec![Machine::of_1998(), Machine::of_today()];
    let mut simulated = Vec::new();
    for machine in &machines {
        for &descriptors in &plan.descriptors {
            for &ready in &plan.ready {
                say(&format!("simulating {descriptors} descriptors on {}", machine.name));
                for way in Way::ALL {
                    simulated.push(simulate::simulate(machine, way, (descriptors, ready), plan));
                }
            }
        }
    }
    let (timed, missing) = real::measure(plan, stop, say)?;
    Ok(Outcome {
        ground: Environment::of(&std::env::temp_dir()),
        load_average: (loaded, load_average()),
        entry_bytes: ENTRY_BYTES,
        machines,
        simulated,
        timed,
        missing,
        seed: plan.seed,
    })
}
