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
//! | `show` | what the page shows in addition to the points |
//!
//! What never happens: a backend that does not work here is left out silently; two backends are
//! compared by measurements of different rounds.

mod predict;
mod show;
mod sweep;

use std::path::Path;

use clap::Args;
use command::flags::number_within;
use harness::{Cpus, Error, Source, cold_max};
use readiness::{Choice, Kind, Poller};
use serde_json::{Value, json};

use crate::conditions::{Conditions, working_directory};
use crate::flags::{Given, Repeat, ascending, count};
use crate::found::{Found, Steps};

/// The lowest rate of the light load, in requests a second.
const RATE_MIN: f64 = 0.001;
/// The default numbers of cold connections, and those of the short form.
const COLD: [u32; 6] = [0, 500, 1000, 2000, 5000, 10_000];
const COLD_QUICK: [u32; 2] = [0, 1000];

/// What to do.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Numbers of cold connections [default: 0,500,1000,2000,5000,10000]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = count(..=100_000))]
    cold: Vec<u32>,
    #[command(flatten)]
    repeat: Repeat,
    /// Requests a second of the light load
    #[arg(long, value_name = "RATE", default_value_t = 250.0,
        value_parser = number_within(RATE_MIN..=::load::RATE_MAX))]
    light: f64,
    /// Under a minute: two rounds, short loads, 0 and 1000 cold connections unless others are named
    #[arg(long, conflicts_with_all = ["rounds", "duration"])]
    quick: bool,
    /// Leave out the prediction with its recordings on poll and on epoll
    #[arg(long)]
    no_what_if: bool,
    #[command(flatten)]
    pub(crate) given: Given,
}

/// Measures.
///
/// # Errors
/// A server does not start or does not answer; the directory cannot be used; interrupted.
pub(crate) fn run(plan: &Plan, steps: &mut Steps<'_>) -> Result<Found, Error> {
    let home = working_directory(plan.given.out.as_ref(), "select")?;
    let conditions = Conditions::at_start(home.path(), plan.given.seed);
    let (cold, descriptors) = cold_max()?;
    let wanted = ascending(&plan.cold, if plan.quick { &COLD_QUICK } else { &COLD });
    let (within, left_out): (_, Vec<u32>) = wanted.into_iter().partition(|n| *n <= cold);
    let (kinds, missing) = backends();
    let (cpus, _pinned) = Cpus::take()?;
    let source = Source::start(steps.plimsoll, cpus)?;
    let setup = Setup { plan, home: home.path(), source, cpus };
    let sweep = sweep::sweep(&setup, &kinds, within, steps)?;
    let prediction = match plan.no_what_if {
        false => Some(predict::predict(&setup, cold, steps)?),
        true => None,
    };
    let more = show::for_page(&sweep, &left_out, prediction.as_ref());
    let outcome = conditions.outcome(json!({
        "bound": {"descriptors": descriptors, "cold": cold, "left_out": left_out},
        "missing": missing,
        "sweep": sweep.outcome(),
        "prediction": prediction,
    }));
    Ok(Found::of("select", page!(select), &outcome, more))
}

/// What both parts of the study use.
struct Setup<'p> {
    plan: &'p Plan,
    home: &'p Path,
    source: Source,
    cpus: Cpus,
}

/// The backends that work here, and the reasons why others do not.
fn backends() -> (Vec<Kind>, Vec<Value>) {
    let mut missing = Vec::new();
    let mut kinds = Kind::ALL_REAL.to_vec();
    kinds.retain(|kind| match Poller::open(Choice::Named(*kind)) {
        Ok(_) => true,
        Err(why) => {
            missing.push(json!({"backend": kind.to_string(), "why": why.to_string()}));
            false
        }
    });
    (kinds, missing)
}
