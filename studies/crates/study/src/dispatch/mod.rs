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
//!
//! What never happens: the walk is part of the code that serves.

mod layout;
mod real;
mod simulate;

use clap::Args;
use harness::Error;
use report::format::thousands;
use runqueue::cache::Machine;
use serde::Serialize;
use serde_json::{Value, json};

use crate::conditions::Conditions;
use crate::flags::{Given, count};
use crate::found::{Found, Steps, with};
use crate::published::{Facts, SQUID};
use simulate::Simulated;

/// The procedure in the papers.
const PROCEDURE: &str = "comm_select";
/// The server before the fix.
const UNFIXED: &str = "Squid 1.1.20";

/// How a server finds the ready connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Strategy {
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
    const ALL: [Strategy; 3] = [Strategy::Walk, Strategy::Bitmaps, Strategy::Tokens];

    /// As it is printed.
    fn label(self) -> &'static str {
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
        value_parser = count(64..=100_000))]
    descriptors: Vec<u32>,
    /// Numbers of connections that are ready at a wait
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "1,4,16",
        value_parser = count(1..=64))]
    ready: Vec<u32>,
    /// Rounds of the timed program
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = count(1..=1000))]
    rounds: u32,
    /// Turns of a visit in a round
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = count(1..=100_000))]
    turns: u32,
    #[command(flatten)]
    pub(crate) given: Given,
}

/// Simulates and measures.
///
/// # Errors
/// The system provides no sockets; too few descriptors; interrupted.
pub(crate) fn run(plan: &Plan, steps: &mut Steps<'_>) -> Result<Found, Error> {
    let conditions = Conditions::at_start(&std::env::temp_dir(), plan.given.seed);
    let machines = [Machine::of_1998(), Machine::of_today()];
    let mut simulated: Vec<Simulated> = Vec::new();
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
    let outcome = conditions.outcome(json!({
        "entry_bytes": layout::ENTRY_BYTES,
        "machines": machines,
        "simulated": simulated,
        "timed": timed,
        "missing": missing,
    }));
    let caches: Vec<String> = machines.iter().map(Machine::text).collect();
    let more = json!({
        "caches": caches,
        "simulated": simulated.iter().map(|row| row.named(&simulated)).collect::<Vec<_>>(),
        "shares": shares(&timed),
    });
    Ok(Found::of("dispatch", page!(dispatch), &outcome, more))
}

/// The procedure's part of the CPU time: published, and here.
fn shares(timed: &[Value]) -> Vec<Value> {
    let facts = Facts::read();
    let published = [
        ("Squid 1.1.20, new kernel", UNFIXED, "new", Strategy::Walk),
        ("1.1.20Mod, new kernel", SQUID, "new", Strategy::Bitmaps),
        ("1.1.20Mod, old kernel", SQUID, "old", Strategy::Bitmaps),
    ];
    let published = published.into_iter().filter_map(|(place, server, kernel, strategy)| {
        let profile = facts.profile(server, kernel)?;
        let (rate, part) = (profile.rate_mean, profile.percent_busy(PROCEDURE)?);
        let share = format!("{part:.2} % at {rate:.0} requests/s");
        let name = strategy.label();
        Some(json!({"name": name, "where": place, "ready": null, "share": share}))
    });
    let here = timed.iter().map(|row| {
        let open = row["descriptors"].as_f64().map_or_else(String::new, thousands);
        let backend = row["backend"].as_str().unwrap_or_default();
        with(row, json!({"where": format!("here, {backend}, {open} open")}))
    });
    published.chain(here).collect()
}
