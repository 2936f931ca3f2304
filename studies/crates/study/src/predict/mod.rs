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
//! | `neighbour` | what runs beside the server, if it has a neighbour |
//! | `kept` | the file of cases |
//! | `judge` | predictions, the simple ones too, and their errors |
//! | `to_come` | latencies at about twice the recorded rate, predicted and measured |
//! | `verdicts` | what `compare` says of pairs of trials |
//! | `show` | what the page shows in addition to the outcome, and the figure |

mod collect;
mod judge;
mod kept;
mod neighbour;
mod servers;
mod show;
mod to_come;
mod verdicts;

use std::path::Path;
use std::time::Duration;

use clap::Args;
use harness::{Cpus, Error, Source};
use record::HoldSpec;
use serde_json::{Value, json};

use crate::conditions::{Conditions, working_directory};
use crate::flags::{Given, ascending, count};
use crate::found::{Found, Steps};
use collect::{Case, Collector};
use harness::recipe::Place;
use kept::Kept;
use servers::SERVERS;

/// Real servers as Debian ships them, each on CPU 0: recorded while the load rises to a part of the
/// saturation that wrk measures, and the capacity that the report predicts from that.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("out", |arg| arg.default_value("target/studies/predict")))]
pub struct Plan {
    /// Only these servers; one that is not installed is skipped and named
    #[arg(long, value_name = "NAME,NAME,...", value_delimiter = ',',
        value_parser = clap::builder::PossibleValuesParser::new(SERVERS))]
    servers: Vec<String>,
    /// Sizes of the response's body in bytes [default: 1024,20480]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    bodies: Vec<u64>,
    /// Numbers of connections [default: 16,64,256]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = count(1..=512))]
    connections: Vec<u32>,
    /// How far the recorded load rises, percent of the measured saturation [default: 20,30,45,60]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = count(5..=90))]
    reaches: Vec<u32>,
    /// Seconds of a recorded load, which rises and falls; all cases take 4 hours with the default
    #[arg(long, value_name = "N", default_value_t = 36,
        value_parser = clap::value_parser!(u64).range(4..=3600))]
    seconds: u64,
    /// Record loads at a constant rate instead; the generator then never sleeps, because a server
    /// that wakes its clients costs more
    #[arg(long)]
    constant: bool,
    /// Hold the servers while they are recorded, as `plimsoll record --hold` does
    #[arg(long)]
    hold: bool,
    /// Also record loads that rise so far beside a neighbour, which takes a fifth of the server's
    /// CPU in bursts
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = count(5..=90))]
    neighbour: Vec<u32>,
    /// How often each load is recorded, for pairs of equal loads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count(1..=20))]
    runs: u32,
    /// Keep the cases that are in the directory and measure the others; without it, the earlier
    /// ones are removed
    #[arg(long)]
    resume: bool,
    /// Measure nothing: judge the trials in the directory again, and write the page again
    #[arg(long, conflicts_with_all = ["resume", "quick"])]
    judge_only: bool,
    /// Seconds: our server with 16 connections and one reach, unless others are named
    #[arg(long, conflicts_with_all = ["seconds"])]
    quick: bool,
    #[command(flatten)]
    pub(crate) given: Given,
}

/// A recorded load has at least about so many holds.
const HOLDS: u32 = 5;

/// What is measured.
#[derive(Default)]
struct Extent {
    reaches: Vec<u32>,
    /// Those of the loads beside a neighbour.
    beside: Vec<u32>,
    /// How often each load is recorded.
    runs: u32,
    /// Length of a recorded load.
    ramp: Duration,
    /// Whether its rate is constant.
    constant: bool,
    /// How the server is held meanwhile.
    hold: Option<HoldSpec>,
    /// Length of a measurement of saturation, seconds.
    saturation_s: u64,
}

/// A load that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    /// How far it rises, percent of saturation.
    reach: u32,
    /// Whether there is a neighbour.
    neighbour: bool,
    /// Its number among those that are equal, from 1.
    run: u32,
}

impl Extent {
    /// A case without measurements.
    fn case(&self, server: &str, body_bytes: u64, connections: u32) -> Case {
        let (constant, hold) = (self.constant, self.hold.is_some());
        Case { constant, hold, ..Case::new(server, body_bytes, connections) }
    }

    /// The recorded loads of a case. The runs of a load are not next to each other, so that they
    /// differ by what drifts.
    fn loads(&self) -> impl Iterator<Item = Load> {
        (1..=self.runs.max(1)).flat_map(move |run| {
            let of = move |neighbour| move |reach: &u32| Load { reach: *reach, neighbour, run };
            self.reaches.iter().map(of(false)).chain(self.beside.iter().map(of(true)))
        })
    }
}

/// Measures what is not there yet, and judges all cases.
///
/// # Errors
/// The directory cannot be used; the origin does not start; interrupted. A case that fails is in
/// the results instead.
pub(crate) fn run(plan: &Plan, steps: &mut Steps<'_>) -> Result<Found, Error> {
    let out = plan.given.out.as_deref().unwrap_or(Path::new(""));
    let conditions = Conditions::at_start(out, plan.given.seed);
    let mut kept = Kept::open(out, plan.resume || plan.judge_only)?;
    let missing = match plan.judge_only {
        true => Vec::new(),
        false => measure(plan, out, &mut kept, steps)?,
    };
    let cases = kept.sorted();
    steps.say("judging");
    let judged = judge::judge(out, &cases);
    let (bands, pairs) = (judge::bands(&judged), verdicts::pairs(out, &cases));
    let to_come = to_come::pairs(&judged);
    let figure = show::figure(&judged, &conditions.ground);
    let outcome = conditions.outcome(json!({
        "missing": missing,
        "cases": cases,
        "judged": judged,
        "bands": bands,
        "pairs": pairs,
        "latency_to_come": to_come,
    }));
    let more = show::for_page(&cases, &judged, &bands, &pairs, &to_come);
    let found = Found::of("predict", page!(predict), &outcome, more);
    Ok(Found { page: true, ..found.with("predict.svg", Some(figure)) })
}

fn measure(
    plan: &Plan,
    out: &Path,
    kept: &mut Kept,
    steps: &mut Steps<'_>,
) -> Result<Vec<Value>, Error> {
    let home = working_directory(None, "predict")?;
    load::sys::raise_descriptor_limit()
        .map_err(|error| Error::System("the limit of descriptors cannot be read", error))?;
    let quick = plan.quick;
    let default = |full: &'static [u32], short: &'static [u32]| if quick { short } else { full };
    let bodies = ascending(&plan.bodies, if quick { &[1024] } else { &[1024, 20_480] });
    let connections = ascending(&plan.connections, default(&[16, 64, 256], &[16]));
    let ramp = Duration::from_secs(if quick { 8 } else { plan.seconds });
    let usual = HoldSpec::default();
    let extent = Extent {
        reaches: ascending(&plan.reaches, default(&[20, 30, 45, 60], &[45])),
        beside: ascending(&plan.neighbour, &[]),
        runs: plan.runs,
        ramp,
        constant: plan.constant,
        hold: plan.hold.then(|| HoldSpec { every: usual.every.min(ramp / HOLDS), ..usual }),
        saturation_s: if quick { 1 } else { 5 },
    };
    let servers = match (plan.servers.as_slice(), quick) {
        ([], true) => vec![servers::OURS],
        ([], false) => SERVERS.to_vec(),
        (named, _) => named.iter().map(String::as_str).collect(),
    };
    let (cpus, _pinned) = Cpus::take()?;
    let source = Source::start(steps.plimsoll, cpus)?;
    let place = Place { home: home.path(), cpu: cpus.server, origin: source.address() };
    let mut missing = Vec::new();
    for server in servers {
        for &body_bytes in &bodies {
            for &connections in &connections {
                let new = extent.case(server, body_bytes, connections);
                if kept.has(&new, &extent) {
                    continue;
                }
                let (others, seed) = (cpus.others, plan.given.seed);
                let full = if plan.constant { kept.of_original(&new) } else { None };
                let mut collector =
                    Collector { extent: &extent, out, place, others, seed, full, steps };
                match collector.case(&new) {
                    Ok(case) => kept.add(case)?,
                    Err(Error::Interrupted) => return Err(Error::Interrupted),
                    Err(error) => {
                        missing.push(json!({"case": new.name(), "why": error.to_string()}));
                    }
                }
            }
        }
    }
    Ok(missing)
}
