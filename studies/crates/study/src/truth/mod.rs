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

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use load::{Plan as Load, Population, Schedule, Target};
use record::{ProfileSpec, Spec};
use report::sheet::Sheet;
use report::{Groups, Options};
use serde::{Deserialize, Serialize};

use crate::show::{fact, table};

pub use judge::{Judged, Side, Tally};
pub use server::{Control, Spent, Truth};

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
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program whose hidden verb `truth-server` is [`Truth::serve`].
    pub program: PathBuf,
    /// Runs, each with its own costs.
    pub runs: usize,
    /// Length of a recording.
    pub duration: Duration,
    /// Length of its intervals.
    pub interval: Duration,
    /// Seed of the first run; the next runs have the next seeds.
    pub seed: u64,
    /// Where trials and logs are written. They are removed again unless `keep`.
    pub home: PathBuf,
    /// Whether the trials are kept.
    pub keep: bool,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Level of the intervals.
    pub level: f64,
    /// Length of each recording, seconds.
    pub recorded_s: f64,
    /// Intervals of each.
    pub intervals: usize,
    /// Each quantity over the runs.
    pub tallies: Vec<Tally>,
    /// Predictions: how many held, missed, or were inconclusive, by `compare`.
    pub graded: [usize; 3],
    /// The runs.
    pub runs: Vec<Run>,
    /// Whether each quantity held in nine of ten runs.
    pub held: bool,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Its seed.
    pub seed: u64,
    /// The CPU time really spent, with the group and without.
    pub spent: [Spent; 2],
    /// The estimates and the truth.
    pub judged: Vec<Judged>,
    /// The grade that `compare` gave the prediction.
    pub grade: report::Grade,
}

/// Why the study failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user interrupted it.
    #[error("interrupted")]
    Interrupted,
    /// A system call failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The child misbehaved.
    #[error("the server of known costs {0}")]
    Server(&'static str),
    /// The load generator failed.
    #[error("the load: {0}")]
    Load(#[from] load::Error),
    /// The recorder failed.
    #[error("the recording: {0}")]
    Record(#[from] record::Error),
    /// The trial cannot be read or written.
    #[error("{0}")]
    Trial(#[from] trial::Error),
    /// The analysis failed.
    #[error("{0}")]
    Report(#[from] report::Error),
    /// There is no profile, which is what the study judges.
    #[error("there is no profile: {0}")]
    NoProfile(String),
}

/// Runs the study. `say` is called with each step.
///
/// # Errors
/// See [`Error`]; the first error ends the study.
pub fn run(plan: &Plan, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<Outcome, Error> {
    let options = Options {
        groups: Groups::read(server::RULES, "the rules of this study")
            .expect("the rules of this study are valid"),
        ..Options::default()
    };
    let mut runs = Vec::with_capacity(plan.runs);
    for number in 0..plan.runs {
        let seed = plan.seed + number as u64;
        let mut say = |step: &str| say(&format!("run {} of {}: {step}", number + 1, plan.runs));
        let sides = [true, false].map(|walks| plan.home.join(name_of(seed, walks)));
        let run = Once { plan, options: &options, stop, seed, sides: &sides };
        let done = run.run(&mut say);
        if !plan.keep {
            for trial in &sides {
                let _ = std::fs::remove_file(trial);
                let _ = std::fs::remove_file(trial.with_extension("log"));
            }
        }
        runs.push(done?);
    }
    let tallies = judge::tallies(&runs);
    let count = |grade| runs.iter().filter(|run| run.grade == grade).count();
    let graded =
        [report::Grade::Held, report::Grade::Missed, report::Grade::Inconclusive].map(count);
    let allowed = (MISSED_SHARE_MAX * plan.runs as f64).floor() as usize;
    Ok(Outcome {
        level: options.level,
        recorded_s: plan.duration.as_secs_f64(),
        intervals: (plan.duration.as_secs_f64() / plan.interval.as_secs_f64()).round() as usize,
        held: tallies.iter().all(|tally| tally.runs - tally.held <= allowed)
            && graded[1] <= allowed,
        tallies,
        graded,
        runs,
    })
}

fn name_of(seed: u64, walks: bool) -> String {
    format!("truth-{seed}-{}.trial", if walks { "before" } else { "after" })
}

/// One run of the study.
struct Once<'a> {
    plan: &'a Plan,
    options: &'a Options,
    stop: &'a AtomicBool,
    seed: u64,
    sides: &'a [PathBuf; 2],
}

impl Once<'_> {
    fn run(&self, say: &mut dyn FnMut(&str)) -> Result<Run, Error> {
        say("recording");
        let [before, after] = self.sides;
        let running = Running::start(self, true)?;
        let spent_before = running.record(self, before)?;
        let estimated = judge::estimate(before, self.options)?;
        say("recording without the group that the change removes");
        let running = Running::start(self, false)?;
        let spent_after = running.record(self, after)?;
        let grade = judge::grade(before, after, self.options)?;
        // The truth is read only now.
        let spent = [spent_before.read()?, spent_after.read()?];
        Ok(Run { seed: self.seed, judged: estimated.judge(&spent), spent, grade })
    }

    fn interrupted(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
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
            .map_err(|_| Error::Server("did not print the CPU time it had spent"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(once: &Once<'_>, walks: bool) -> Result<Running, Error> {
        let log = once.plan.home.join(name_of(once.seed, walks)).with_extension("log");
        let _ = std::fs::remove_file(&log);
        let mut command = Command::new(&once.plan.program);
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
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or(Error::Server("has no output"))?;
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let Ok(listening) = serde_json::from_str::<Listening>(&line) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::Server("did not start"));
        };
        Ok(Running { child, output, address: listening.listen, log, other_cpu })
    }

    fn load(&self, schedule: Schedule, duration: Duration, seed: u64) -> Load {
        let target = Target {
            addr: self.address,
            authority: self.address.to_string(),
            path: "/{n}".into(),
            absolute: false,
            tls: false,
            tunnel: false,
        };
        let mut load = Load::new(target, schedule, duration);
        load.connections = CONNECTIONS;
        load.population = Population { objects: 1_000, ..Population::default() };
        load.pin_cpu = self.other_cpu;
        load.seed = seed;
        load
    }

    /// Finds the capacity of the server, records it under a load that rises to a part of that, and
    /// ends it.
    fn record(mut self, once: &Once<'_>, trial: &Path) -> Result<Unread, Error> {
        let look = self.load(Schedule::ClosedLoop, LOOK, once.seed);
        let looked = load::run(&look, once.stop, &mut |_| {})?;
        once.interrupted()?;
        let length = once.plan.duration + 2 * MARGIN;
        let rises = Schedule::rises(TOP * looked.rate(), length, RISES);
        let rising = self.load(rises, length, once.seed);
        if let Some(input) = &mut self.child.stdin {
            input.write_all(b"restart the counts\n")?;
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let recorder = scope.spawn(|| {
                std::thread::sleep(MARGIN);
                self.recording(once, trial, &done)
            });
            let loaded = load::run(&rising, once.stop, &mut |_| {});
            done.store(true, Ordering::Relaxed);
            let recorded = recorder.join().map_err(|_| Error::Server("was not recorded"))?;
            loaded?;
            recorded
        })?;
        once.interrupted()?;
        drop(self.child.stdin.take());
        let mut last = String::new();
        self.output.read_to_string(&mut last)?;
        Ok(Unread(last))
    }

    fn recording(&self, once: &Once<'_>, trial: &Path, done: &AtomicBool) -> Result<(), Error> {
        let target = record::Target::Pid(self.child.id());
        let mut spec = Spec::new(target, Some(self.log.clone()), trial);
        spec.interval = once.plan.interval;
        spec.duration = Some(once.plan.duration);
        spec.overwrite = true;
        spec.profile = Some(ProfileSpec { hz: PROFILE_HZ });
        record::record(&spec, done, &mut |_| {})?;
        Ok(())
    }
}

/// The results: sentences and a table.
#[must_use]
pub fn shown(outcome: &Outcome) -> Sheet {
    let [held, missed, inconclusive] = outcome.graded;
    let facts = vec![
        fact(
            "Measured",
            format!(
                "{} runs, each with its own costs: {:.0} s recorded at {} intervals, with the \
                 group and without",
                outcome.runs.len(),
                outcome.recorded_s,
                outcome.intervals
            ),
        ),
        fact(
            "Predicted",
            format!(
                "capacity without the group, graded by compare: {held} held, {missed} missed, \
                 {inconclusive} inconclusive"
            ),
        ),
        fact(
            "Verdict",
            match outcome.held {
                true => "each figure held in at least nine runs of ten",
                false => "NOT every figure held in nine runs of ten",
            },
        ),
    ];
    let rows = outcome.tallies.iter().map(|tally| {
        [
            tally.what.to_owned(),
            format!("{} of {}", tally.held, tally.runs),
            format!("{:+.1}", tally.error_percent),
            format!("{:.1}", tally.width_percent),
        ]
    });
    let table = table(
        "Figures and their truth",
        &["<figure", "held", "error %", "half width %"],
        rows,
        format!(
            "Held: the truth was within the interval of {:.0} %. Error: mean over the runs, of the \
             truth. Half width of the interval: median over the runs, of the truth.",
            100.0 * outcome.level
        ),
    );
    let title = "Known costs, and what the laboratory found".to_owned();
    Sheet { title, facts, tables: vec![table] }
}
