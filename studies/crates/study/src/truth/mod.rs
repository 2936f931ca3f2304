//! The study `truth`: whether the laboratory finds known costs.
//!
//! ```text
//!  server with random costs (child) <--rising load-- generator (this process)
//!        |   \--access log--> recorder, profile (this process) --> trial --> report --> estimates
//!        '--- when it stops: the CPU time really spent ---> compared with the estimates
//! ```
//!
//! What: each run draws random costs, records the server under a load that rises several times,
//! fits the model, predicts the capacity without one procedure group, records the server without
//! it, and grades the prediction. Why: an interval of 95 % that contains the truth in less than
//! 95 % of runs is no interval. Ownership: the server is a child process that draws its costs and
//! prints them only when it ends. What never happens: an estimate is made after the truth is known.

mod judge;
mod server;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use command::flags::parse_duration;
use harness::Error;
use load::{Plan as Load, Population, Schedule};
use record::{ProfileSpec, Spec};
use report::{Groups, Options};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::conditions::working_directory;
use crate::flags::{Given, count};
use crate::found::{Found, Steps};
use crate::servers::load_on;

pub use server::{Control, Spent, Truth};

use judge::Judged;

/// The part of the runs that may miss: 2 of 20.
const MISSED_SHARE_MAX: f64 = 0.1;
/// The rising load ends at this part of the server's capacity.
const TOP: f64 = 0.75;
/// How often the load rises during a recording.
const RISES: usize = 3;
/// Length of the load that finds the server's capacity.
const LOOK: Duration = Duration::from_millis(1_500);
/// The load runs this long before and after the recording.
const MARGIN: Duration = Duration::from_millis(600);
const CONNECTIONS: u32 = 32;
/// Samples a second of the profile: more than the default, because the recordings are short.
const PROFILE_HZ: u32 = 499;
/// The group that the change removes.
const REMOVED: &str = "table";

/// What to do.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Runs, each with its own costs; one takes slightly longer than two recordings
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = count(1..=1000))]
    runs: u32,
    /// Length of a recording; a run has two
    #[arg(long = "for", value_name = "TIME", default_value = "18s", value_parser = parse_duration)]
    duration: Duration,
    /// Length of an interval
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration)]
    interval: Duration,
    #[command(flatten)]
    pub(crate) given: Given,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
struct Run {
    seed: u64,
    /// The CPU time really spent, with the group and without.
    spent: [Spent; 2],
    /// The estimates and the truth.
    judged: Vec<Judged>,
    /// The grade that `compare` gave the prediction.
    grade: report::Grade,
}

/// Runs the study.
///
/// # Errors
/// The server misbehaves; the load, the recorder or the analysis fails; there is no profile;
/// interrupted. The first error ends the study.
pub(crate) fn run(plan: &Plan, steps: &mut Steps<'_>) -> Result<Found, Error> {
    let options = Options {
        groups: Groups::read(server::RULES, "the rules of this study")
            .expect("the rules of this study are valid"),
        ..Options::default()
    };
    let scratch = working_directory(None, "truth")?;
    let home = plan.given.out.as_deref().unwrap_or(scratch.path());
    let mut runs = Vec::new();
    for number in 0..plan.runs {
        let seed = plan.given.seed + u64::from(number);
        let mut once = Once { plan, options: &options, home, seed, steps };
        let step = |step: &str| format!("run {} of {}: {step}", number + 1, plan.runs);
        runs.push(once.run(step)?);
    }
    let tallies = judge::tallies(&runs);
    let count = |grade| runs.iter().filter(|run| run.grade == grade).count();
    let graded =
        [report::Grade::Held, report::Grade::Missed, report::Grade::Inconclusive].map(count);
    let allowed = (MISSED_SHARE_MAX * f64::from(plan.runs)).floor() as usize;
    let held = tallies.iter().all(|tally| tally.runs - tally.held <= allowed);
    let held = held && graded[1] <= allowed;
    let outcome = json!({
        "level": options.level,
        "recorded_s": plan.duration.as_secs_f64(),
        "intervals": (plan.duration.as_secs_f64() / plan.interval.as_secs_f64()).round(),
        "tallies": tallies,
        // Predictions: how many held, missed, or were inconclusive, by `compare`.
        "graded": graded,
        "runs": runs,
        "held": held,
    });
    let more = json!({
        "count": runs.len(),
        "percent": 100.0 * options.level,
        "verdict": match held {
            true => "each figure held in at least nine runs of ten",
            false => "NOT every figure held in nine runs of ten",
        },
    });
    let found = Found::of("truth", page!(truth), &outcome, more);
    Ok(found.failed(!held, "the truth was outside of the intervals more often than allowed"))
}

/// One run of the study.
struct Once<'a, 's> {
    plan: &'a Plan,
    options: &'a Options,
    home: &'a Path,
    seed: u64,
    steps: &'a mut Steps<'s>,
}

impl Once<'_, '_> {
    fn run(&mut self, step: impl Fn(&str) -> String) -> Result<Run, Error> {
        let [before, after] = [true, false].map(|walks| self.trial(walks));
        self.steps.say(&step("recording"));
        let spent_before = Running::start(self, true)?.record(self, &before)?;
        let estimated = judge::estimate(&before, self.options)?;
        self.steps.say(&step("recording without the group that the change removes"));
        let spent_after = Running::start(self, false)?.record(self, &after)?;
        let grade = judge::grade(&before, &after, self.options)?;
        // The truth is read only now.
        let spent = [spent_before.read()?, spent_after.read()?];
        Ok(Run { seed: self.seed, judged: estimated.judge(&spent), spent, grade })
    }

    fn trial(&self, walks: bool) -> PathBuf {
        let side = if walks { "before" } else { "after" };
        self.home.join(format!("truth-{}-{side}.trial", self.seed))
    }
}

/// The server did something wrong.
fn wrong(what: &'static str) -> Error {
    failed(io::Error::other(what))
}

fn failed(error: io::Error) -> Error {
    Error::System("the server of known costs", error)
}

/// The first line that the server prints.
#[derive(Debug, Serialize, Deserialize)]
pub struct Listening {
    /// Its address.
    pub listen: SocketAddr,
}

/// The server of one recording. It ends when this is dropped.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
    log: PathBuf,
    /// The CPU for the generator and the recorder, if there are two.
    other_cpu: Option<usize>,
}

/// The last line of the server, not yet read.
struct Unread(String);

impl Unread {
    fn read(&self) -> Result<Spent, Error> {
        serde_json::from_str(&self.0)
            .map_err(|_| wrong("it did not print the CPU time it had spent"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(once: &Once<'_, '_>, walks: bool) -> Result<Running, Error> {
        let log = once.trial(walks).with_extension("log");
        let _ = std::fs::remove_file(&log);
        let mut command = Command::new(once.steps.study);
        command.arg("truth-server").arg("--seed").arg(once.seed.to_string());
        command.arg("--log").arg(&log);
        if !walks {
            command.arg("--no-table");
        }
        let two = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 2);
        let other_cpu = two.then_some(1);
        if two {
            command.args(["--cpu", "0"]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let output = child.stdout.take().ok_or_else(|| wrong("it has no output"))?;
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line).map_err(failed)?;
        let Ok(listening) = serde_json::from_str::<Listening>(&line) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(wrong("it did not start"));
        };
        Ok(Running { child, output, address: listening.listen, log, other_cpu })
    }

    fn load(&self, schedule: Schedule, duration: Duration, seed: u64) -> Load {
        let mut load = load_on(self.address, "/{n}", schedule, duration);
        load.connections = CONNECTIONS;
        load.population = Population { objects: 1_000, ..Population::default() };
        load.pin_cpu = self.other_cpu;
        load.seed = seed;
        load
    }

    /// Finds the capacity of the server, records it under a load that rises to a part of that, and
    /// ends it.
    fn record(mut self, once: &Once<'_, '_>, trial: &Path) -> Result<Unread, Error> {
        let look = self.load(Schedule::ClosedLoop, LOOK, once.seed);
        let looked = load::run(&look, once.steps.stop, &mut |_| {})?;
        once.steps.interrupted()?;
        let length = once.plan.duration + 2 * MARGIN;
        let rises = Schedule::rises(TOP * looked.rate(), length, RISES);
        let rising = self.load(rises, length, once.seed);
        if let Some(input) = &mut self.child.stdin {
            input.write_all(b"restart the counts\n").map_err(failed)?;
        }
        let (plan, done) = (once.plan, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let recorder = scope.spawn(|| {
                std::thread::sleep(MARGIN);
                self.recording(plan, trial, &done)
            });
            let loaded = load::run(&rising, once.steps.stop, &mut |_| {});
            done.store(true, Ordering::Relaxed);
            let recorded = recorder.join().map_err(|_| Error::Thread("the recorder"))?;
            loaded?;
            recorded
        })?;
        once.steps.interrupted()?;
        drop(self.child.stdin.take());
        let mut last = String::new();
        self.output.read_to_string(&mut last).map_err(failed)?;
        Ok(Unread(last))
    }

    fn recording(&self, plan: &Plan, trial: &Path, done: &AtomicBool) -> Result<(), Error> {
        let target = record::Target::Pid(self.child.id());
        let mut spec = Spec::new(target, Some(self.log.clone()), trial);
        spec.interval = plan.interval;
        spec.duration = Some(plan.duration);
        spec.overwrite = true;
        spec.profile = Some(ProfileSpec { hz: PROFILE_HZ });
        record::record(&spec, done, &mut |_| {})?;
        Ok(())
    }
}
