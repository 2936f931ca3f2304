//! The table walk of `comm_select()`, and its effect on the rest of the program.
//!
//! In 1998 Squid 1.1.20 spent a third of its CPU time in the procedure around `select()`. Before
//! each call it walked an array of large structures, one for each descriptor, to find the
//! descriptors to read or write. The walk itself costs time, and it evicts the data of other
//! procedures from the data cache. After a rewrite the procedure took 0.54 %, and the others had
//! fewer misses.
//!
//! What: the same turn of a server with three strategies ([`Strategy`]): the walk; the fix, bitmaps
//! that are kept up to date; and ours, a token in each event. A simulated cache
//! ([`runqueue::cache`]) counts the misses of the dispatch and of everything else. A real program
//! takes the same turns on sockets and is timed.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `layout` | the memory of a server, and the part of it that a turn touches |
//! | `simulate` | misses of the dispatch and of the rest, by strategy |
//! | `real` | the same turns on real descriptors, timed |
//! | `show` | what the page shows in addition to the outcome |
//!
//! What never happens: the walk is part of the code that serves.

mod layout;
mod real;
mod show;
mod simulate;

use clap::Args;
use harness::Error;
use serde::Serialize;

pub use layout::ENTRY_BYTES;
pub use real::Timed;
pub(crate) use show::for_page;
pub use simulate::Simulated;

use crate::conditions::Conditions;
use crate::flags::Given;
use crate::found::Steps;
use runqueue::cache::Machine;

/// How a server finds the ready connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// As in 1998: walk the whole table before each wait, and all bits after it.
    Walk,
    /// The fix: bitmaps that are kept up to date, copied before the wait and read word by word
    /// after it.
    Bitmaps,
    /// Ours: nothing before the wait, and a token with each event after it.
    Tokens,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Strategy; 3] = [Strategy::Walk, Strategy::Bitmaps, Strategy::Tokens];

    /// As it is printed.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Strategy::Walk => "table walk (1998)",
            Strategy::Bitmaps => "bitmaps (the fix)",
            Strategy::Tokens => "tokens (ours)",
        }
    }
}

/// What to do.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Numbers of open descriptors
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "1581,10000",
        value_parser = clap::value_parser!(u32).range(64..=100_000))]
    descriptors: Vec<u32>,
    /// Numbers of connections that are ready at a wait
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "1,4,16",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    ready: Vec<u32>,
    /// Rounds of the timed program
    #[arg(long, value_name = "N", default_value_t = 9,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Turns of a visit in a round
    #[arg(long, value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    turns: u32,
    #[command(flatten)]
    pub(crate) given: Given,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Where it was measured.
    #[serde(flatten)]
    pub conditions: Conditions,
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
}

/// Simulates and measures.
///
/// # Errors
/// The system provides no sockets; too few descriptors; interrupted.
pub fn run(plan: &Plan, steps: &mut Steps<'_>) -> Result<Outcome, Error> {
    let conditions = Conditions::at_start(&std::env::temp_dir(), plan.given.seed);
    let machines = vec![Machine::of_1998(), Machine::of_today()];
    let mut simulated = Vec::new();
    for machine in &machines {
        for &descriptors in &plan.descriptors {
            for &ready in &plan.ready {
                steps.say(&format!("simulating {descriptors} descriptors on {}", machine.name));
                simulated.extend(Strategy::ALL.map(|strategy| {
                    simulate::simulate(machine, strategy, (descriptors, ready), plan)
                }));
            }
        }
    }
    let (timed, missing) = real::measure(plan, steps)?;
    Ok(Outcome {
        conditions: conditions.at_end(),
        entry_bytes: ENTRY_BYTES,
        machines,
        simulated,
        timed,
        missing,
    })
}
