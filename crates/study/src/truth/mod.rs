//! The study `truth`: whether the laboratory finds costs that are known.
//!
//! ```text
//!  server whose costs are drawn (child) <--load that rises-- generator (here)
//!        |   \--access log--> recorder, profile (here) --> trial --> report --> estimates
//!        '--- when it is stopped: what was truly spent ---> held against the estimates
//! ```
//!
//! What: each run draws costs, records the server under a load that rises several times, fits,
//! foretells the capacity without one procedure group, records the server without it, and grades
//! the prediction. Why: an interval of 95 % that holds the truth in less than 95 % of runs is no
//! interval. Who owns: the server is a process of its own, which draws its costs and tells them
//! only at its end. What never happens: an estimate that was made after the truth was told.

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
use report::sheet::{Rows, Sheet};
use report::{Groups, Options};
use serde::{Deserialize, Serialize};

pub use judge::{Judged, Side, Tally};
pub use server::{Control, Spent, Truth};

/// Of so many runs, at most one in ten may miss: 18 of 20.
const MISSED_SHARE_MAX: f64 = 0.1;
/// The rising load ends at this part of what the server can.
const TOP: f64 = 0.75;
/// Times that the load rises during a recording.
const RISES: usize = 3;
/// How long the look for what the server can takes.
const LOOK: Duration = Duration::from_millis(1_500);
/// Before the recording and behind it, the load runs alone.
const MARGIN: Duration = Duration::from_millis(600);
const CONNECTIONS: u32 = 32;
/// Samples a second of the profile: more than by default, for the recordings are short.
const PROFILE_HZ: u32 = 499;
/// The group whose cost the change removes.
const REMOVED: &str = "table";

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program whose hidden verb `truth-server` is [`Truth::serve`].
    pub program: PathBuf,
    /// Runs, each with costs of its own.
    pub runs: usize,
    /// Length of a recording.
    pub duration: Duration,
    /// Length of its intervals.
    pub interval: Duration,
    /// Seed of the first run; the others follow.
    pub seed: u64,
    /// Where trials and logs go; they are removed again unless `keep`.
    pub home: PathBuf,
    /// Whether the trials stay.
    pub keep: bool,
}

/// What came of it.
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
    /// Predictions: how many held, missed, or could not be told, by `compare`.
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
    /// What was truly spent, with the group and without.
    pub spent: [Spent; 2],
    /// The estimates beside the truth.
    pub judged: Vec<Judged>,
    /// What `compare` said of the prediction.
    pub grade: report::Grade,
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user stopped it.
    #[error("interrupted")]
    Interrupted,
    /// Of the system.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The child did not do what was asked.
    #[error("the server of known costs {0}")]
    Server(&'static str),
    /// The generator's.
    #[error("the load: {0}")]
    Load(#[from] load::Error),
    /// The recorder's.
    #[error("the recording: {0}")]
    Record(#[from] record::Error),
    /// The trial's.
    #[error("{0}")]
    Trial(#[from] trial::Error),
    /// The report's.
    #[error("{0}")]
    Report(#[from] report::Error),
    /// The profile is what is judged; without one there is nothing to judge.
    #[error("there is no profile: {0}")]
    NoProfile(String),
}

/// Runs it; `say` is told each step.
///
/// # Errors
/// As [`Error`] says; the first ends the study.
pub fn run(plan: &Plan, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<Outcome, Error> {
    let options = Options {
        groups: Groups::read(server::RULES, "the rules of this study")?,
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
        // Only now is the truth read.
        let spent = [spent_before.told()?, spent_after.told()?];
        Ok(Run { seed: self.seed, judged: estimated.judge(&spent), spent, grade })
    }

    fn interrupted(&self) -> Result<(), Error> {
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// The line that the server says first.
#[derive(Debug, Serialize, Deserialize)]
pub struct Listening {
    /// Where.
    pub listen: SocketAddr,
}

/// The server of one recording, ended when this is dropped.
struct Running {
    child: Child,
    said: BufReader<ChildStdout>,
    address: SocketAddr,
    log: PathBuf,
    /// The CPU for the generator and the recorder, if there are two.
    other_cpu: Option<usize>,
}

/// What the server said at its end, not yet read.
struct Untold(String);

impl Untold {
    fn told(&self) -> Result<Spent, Error> {
        serde_json::from_str(&self.0).map_err(|_| Error::Server("did not tell what it had spent"))
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
        let said = child.stdout.take().ok_or(Error::Server("has no output"))?;
        let mut said = BufReader::new(said);
        let mut line = String::new();
        said.read_line(&mut line)?;
        let Ok(listening) = serde_json::from_str::<Listening>(&line) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::Server("did not start"));
        };
        Ok(Running { child, said, address: listening.listen, log, other_cpu })
    }

    fn load(&self, schedule: Schedule, duration: Duration, seed: u64) -> Load {
        let target = Target {
            addr: self.address,
            authority: self.address.to_string(),
            path: "/{n}".into(),
            absolute: false,
        };
        let mut load = Load::new(target, schedule, duration);
        load.connections = CONNECTIONS;
        load.population = Population { objects: 1_000, ..Population::default() };
        load.pin_cpu = self.other_cpu;
        load.seed = seed;
        load
    }

    /// Finds what the server can, records it under a load that rises to a part of that, and ends
    /// it.
    fn record(mut self, once: &Once<'_>, trial: &Path) -> Result<Untold, Error> {
        let look = self.load(Schedule::ClosedLoop, LOOK, once.seed);
        let looked = load::run(&look, once.stop, &mut |_| {})?;
        once.interrupted()?;
        let length = once.plan.duration + 2 * MARGIN;
        let rises = Schedule::rises(TOP * looked.rate(), length, RISES);
        let rising = self.load(rises, length, once.seed);
        if let Some(asked) = &mut self.child.stdin {
            asked.write_all(b"count anew\n")?;
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
        let mut told = String::new();
        self.said.read_to_string(&mut told)?;
        Ok(Untold(told))
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

/// What is said of it: sentences and a table.
#[must_use]
pub fn shown(outcome: &Outcome) -> Sheet {
    let fact = |label: &str, text: String| (label.to_owned(), text);
    let facts = vec![
        fact(
            "Measured",
            format!(
                "{} runs, each with costs of its own: {:.0} s recorded at {} intervals, with the \
                 group and without",
                outcome.runs.len(),
                outcome.recorded_s,
                outcome.intervals
            ),
        ),
        fact(
            "Foretold",
            format!(
                "capacity without the group, graded by compare: {} held, {} missed, {} not told",
                outcome.graded[0], outcome.graded[1], outcome.graded[2]
            ),
        ),
        fact(
            "Verdict",
            if outcome.held {
                "each figure held in nine runs of ten or more".into()
            } else {
                "NOT each figure held in nine runs of ten".into()
            },
        ),
    ];
    let row = |tally: &Tally| {
        vec![
            tally.what.to_owned(),
            format!("{} of {}", tally.held, tally.runs),
            format!("{:+.1}", tally.error_percent),
            format!("{:.1}", tally.width_percent),
        ]
    };
    let table = Rows {
        title: "Figures and their truth".into(),
        columns: ["<figure", "held", "error %", "half width %"].map(String::from).to_vec(),
        rows: outcome.tallies.iter().map(row).collect(),
        note: format!(
            "Held: the truth lay within the interval of {:.0} %. Error: mean over the runs, of the \
             truth. Half width of the interval: median over the runs, of the truth.",
            100.0 * outcome.level
        ),
    };
    let title = "Costs that are known, and what the laboratory made of them".to_owned();
    Sheet { title, facts, tables: vec![table] }
}
