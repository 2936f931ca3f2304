//! How good predictions of capacity from low load are, on real servers.
//!
//! ```text
//!            CPU 0                          CPU 1
//!  server as Debian ships it <--- wrk: saturation, before and after
//!        |          \------- <--- load: rises to a part of saturation, and falls again
//!        '-- access log ---> recorder --> trial --> report --> predicted capacity
//! ```
//!
//! What: a case is a server, the size of its responses, and a number of connections. Its saturation
//! is measured with wrk. Then it is recorded under a random load that rises to a part of that rate
//! (the *reach*) and falls again, once for each reach, and its saturation is measured again. The
//! report's capacity from each trial is compared with the measured one, and so are three simple
//! predictions from the same intervals. Why: a capacity is only worth its interval if the interval
//! contains the rate at which the server really saturates. Ownership: the study starts and ends all
//! servers; the cases and their trials are kept. What never happens: the judgement reads anything
//! but the kept cases, so that a change of the model can be judged by the same trials.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `servers` | the servers as Debian configures them |
//! | `collect` | the measurements of a case |
//! | `kept` | the file of cases |
//! | `judge` | predictions, the simple ones too, and their errors |
//! | `verdicts` | what `compare` says of pairs of trials |
//! | `show` | all of it as text and as a figure |

mod collect;
mod judge;
mod kept;
mod servers;
mod show;
mod verdicts;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use harness::{Cpus, Error, Source};
use serde::Serialize;

pub use collect::{Case, Ramp, Saturation};
pub use judge::{Band, Errors, Judged};
pub use servers::SERVERS;
pub use show::{figure, shown};
pub use verdicts::Pairs;

use crate::conditions::{Conditions, working_directory};
use kept::Kept;

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program `plimsoll`, whose verbs `serve` and `origin` are run.
    pub program: PathBuf,
    /// Where cases and trials are kept.
    pub out: PathBuf,
    /// Names of servers, of [`SERVERS`].
    pub servers: Vec<String>,
    /// Sizes of the response's body, bytes.
    pub bodies: Vec<u64>,
    /// Numbers of connections.
    pub connections: Vec<u32>,
    /// How far the load rises, percent of the measured saturation.
    pub reaches: Vec<u32>,
    /// Length of a recorded load.
    pub ramp: Duration,
    /// Length of a measurement of saturation, seconds.
    pub saturation_s: u64,
    /// Keep the cases that are there already, and measure only others.
    pub resume: bool,
    /// Measure nothing: judge the cases that are there.
    pub judge_only: bool,
    /// Seed of the loads.
    pub seed: u64,
}

/// A case that could not be measured, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    /// The server, or the case.
    pub case: String,
    /// The reason.
    pub why: String,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Where it was judged, and measured unless cases were there already.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// Cases that this run could not measure.
    pub missing: Vec<Missing>,
    /// All cases that are kept, by server.
    pub cases: Vec<Case>,
    /// The predictions, in the order of the cases.
    pub judged: Vec<Judged>,
    /// Their errors by reach, and over all reaches.
    pub bands: Vec<Band>,
    /// What `compare` says of pairs of their trials.
    pub pairs: Vec<Pairs>,
}

/// Measures what is not there yet, and judges all cases. `say` is called with each step.
///
/// # Errors
/// The directory cannot be used; the origin does not start; interrupted. A case that fails is in
/// the results instead.
pub fn run(plan: &Plan, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<Outcome, Error> {
    let conditions = Conditions::at_start(&plan.out, plan.seed);
    let mut kept = Kept::open(&plan.out, plan.resume || plan.judge_only)?;
    let missing = match plan.judge_only {
        true => Vec::new(),
        false => measure(plan, &mut kept, stop, say)?,
    };
    let cases = kept.sorted();
    say("judging");
    let judged = judge::judge(&plan.out, &cases);
    Ok(Outcome {
        conditions: conditions.at_end(),
        missing,
        bands: judge::bands(&judged),
        pairs: verdicts::pairs(&plan.out, &cases),
        cases,
        judged,
    })
}

fn measure(
    plan: &Plan,
    kept: &mut Kept,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Missing>, Error> {
    let home = working_directory(None, "predict")?;
    load::sys::raise_descriptor_limit()
        .map_err(|error| Error::System("the limit of descriptors cannot be read", error))?;
    let (cpus, _pinned) = Cpus::take()?;
    let source = Source::start(&plan.program, cpus)?;
    let origin = source.address();
    let setup = servers::Setup { program: &plan.program, home: home.path(), origin, cpus };
    let mut missing: Vec<Missing> = Vec::new();
    for server in &plan.servers {
        for &body_bytes in &plan.bodies {
            for &connections in &plan.connections {
                if kept.has(server, body_bytes, connections, &plan.reaches) {
                    continue;
                }
                let collector = collect::Collector { plan, setup: &setup, stop };
                let name = format!("{server}, {body_bytes} bytes, {connections} connections");
                let mut say = |step: &str| say(&format!("{name}: {step}"));
                match collector.case(server, body_bytes, connections, &mut say) {
                    Ok(case) => kept.add(case)?,
                    Err(Error::Interrupted) => return Err(Error::Interrupted),
                    Err(error) => missing.push(Missing { case: name, why: error.to_string() }),
                }
            }
        }
    }
    Ok(missing)
}
