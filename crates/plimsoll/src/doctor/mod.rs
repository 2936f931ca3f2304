//! `plimsoll doctor`: what this machine supports, and whether the samplers are accurate here.
//!
//! A test process does known work (it spends CPU time in a known procedure, in a loop of known
//! instructions, waits for a lock, makes needless reads of a file, writes requests to a log) and is
//! recorded like any server. Afterwards it reports how much it did. A sampler that does not work
//! here is reported as not supported, never as accurate.

mod machine;
mod truth;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use ::record::{Spec, Target};
use command::failure::{Failure, misuse};
use command::output;
use command::scratch::Scratch;
use serde::Serialize;
use trial::Trial;
use trial::counters::Whose;
use trial::files::Direction;
use trial::profile::Owner;
use trial::waits::{LockKind, WaitRow};

pub(crate) use self::truth::do_known_work;
use self::truth::{BURNER, LOG, Work};
use crate::cli;

/// A longer recording has failed.
const RECORDING_MAX: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_millis(500);

/// A feature that this machine has or lacks.
#[derive(Clone, Debug, Serialize)]
struct Ability {
    what: String,
    supported: bool,
    /// What it means for the server, or why it is missing.
    detail: String,
}

impl Ability {
    fn new(what: impl Into<String>, supported: bool, detail: impl Into<String>) -> Ability {
        Ability { what: what.into(), supported, detail: detail.into() }
    }
}

/// The result of a sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// Its figure is right, within its stated error.
    Held,
    /// Its figure is wrong.
    Missed,
    /// It does not work here.
    NotSupported,
}

/// A known amount of work, and a sampler's figure for it.
#[derive(Clone, Debug, Serialize)]
struct Truth {
    what: &'static str,
    unit: &'static str,
    truth: f64,
    found: Option<f64>,
    /// The sampler's stated error, in the same unit.
    error: f64,
    verdict: Verdict,
    /// Why there is no figure.
    reason: Option<String>,
}

/// The whole result.
#[derive(Debug, Serialize)]
struct Examination {
    abilities: Vec<Ability>,
    truths: Vec<Truth>,
}

/// Runs the examination. It fails if a sampler's figure is wrong.
pub(crate) fn doctor(flags: &cli::Doctor) -> Result<(), Failure> {
    let mut abilities = machine::backends();
    abilities.push(machine::descriptors());
    abilities.extend(machine::disk(&flags.disk.clone().unwrap_or_else(std::env::temp_dir)));
    let home = Scratch::new("doctor")?;
    let (trial, work) = recorded(home.path())?;
    let laboratory =
        trial.manifest().capabilities.iter().map(|capability| {
            Ability::new(&capability.name, capability.supported, &capability.reason)
        });
    abilities.extend(laboratory);
    let examination = Examination { abilities, truths: truths(&trial, &work) };
    output::show(flags.json, &examination, |examination| {
        examination.to_text(output::columns().unwrap_or(100))
    })?;
    let missed: Vec<&str> = examination
        .truths
        .iter()
        .filter(|truth| truth.verdict == Verdict::Missed)
        .map(|truth| truth.what)
        .collect();
    if missed.is_empty() {
        return Ok(());
    }
    let missed = missed.join(", ");
    Err(Failure::CheckFailed(format!(
        "the recording differs from the work that was done: {missed}; run plimsoll doctor again \
         when nothing else runs, and do not use a sampler that is WRONG twice"
    )))
}

/// The test process. It exits at the end of its stdin, and at the latest when this is dropped.
struct TestProcess(Child);

impl Drop for TestProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Records the test process. Returns the recording and the work that was done.
fn recorded(home: &Path) -> Result<(Trial, Work), Failure> {
    let program = std::env::current_exe().map_err(misuse)?;
    let child = Command::new(program)
        .arg("doctor-truth")
        .arg(home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(misuse)?;
    let mut process = TestProcess(child);
    let pipes = process.0.stdin.take().zip(process.0.stdout.take());
    let (mut stdin, stdout) = pipes.ok_or_else(|| misuse("the test process has no pipes"))?;
    let mut lines = BufReader::new(stdout).lines();
    if lines.next().transpose().map_err(misuse)?.as_deref() != Some("ready") {
        return Err(misuse("the test process did not start"));
    }
    let out = home.join("doctor.trial");
    let mut spec = Spec::new(Target::Pid(process.0.id()), Some(home.join(LOG)), &out);
    spec.interval = INTERVAL;
    spec.duration = Some(RECORDING_MAX);
    (spec.counters, spec.locks, spec.files) = (true, true, true);
    let stop = AtomicBool::new(false);
    let (began, begins) = mpsc::channel();
    std::thread::scope(|scope| {
        let stop = &stop;
        let asked = scope.spawn(move || {
            // The trial covers everything from the first whole interval on.
            begins.recv().ok()?;
            writeln!(stdin, "go").ok()?;
            let work = lines.next()?.ok();
            // Wait for the interval that contains the end of the work.
            std::thread::sleep(2 * INTERVAL);
            stop.store(true, Ordering::Relaxed);
            work
        });
        let recorded = ::record::record(&spec, stop, &mut |_| {
            let _ = began.send(());
        });
        // If there was no interval, this ends the wait for the first one.
        drop(began);
        recorded.map_err(misuse)?;
        let work = asked.join().ok().flatten();
        let work = work.ok_or_else(|| misuse("the test process ended early"))?;
        let work: Work = serde_json::from_str(&work).map_err(misuse)?;
        Ok((Trial::open(&out).map_err(misuse)?, work))
    })
}

/// Compares each sampler's figure with the truth.
fn truths(trial: &Trial, work: &Work) -> Vec<Truth> {
    let of_server = |row: &&WaitRow| row.kind == LockKind::Futex && row.owner == Owner::Server;
    let intervals = trial.intervals().iter();
    let process_ns: i64 =
        intervals.filter_map(|interval| interval.server.map(|s| s.total_ns)).sum();
    let requests: u64 = trial.intervals().iter().map(|interval| interval.requests_ended).sum();
    let waits: u64 = trial.waits().iter().filter(of_server).map(|row| row.waits).sum();
    let reads = trial.files().iter().filter(|row| row.direction == Direction::Read);
    let needless: u64 = reads.map(|row| row.needless).sum();
    let burned_s = work.burned_ns as f64 / 1e9;
    let [process_truth_s, process_s, found_burned_s] =
        [work.process_ns as f64, process_ns as f64, burned_ns(trial) as f64].map(|ns| ns / 1e9);
    let [waits_truth, waits, needless_truth, needless, requests_truth, requests] =
        [work.waits, waits, work.needless, needless, work.requests, requests].map(|n| n as f64);
    // The number of samples is Poisson distributed at worst, and is so beside other programs: three
    // standard deviations, which one of a thousand recordings exceeds. The sampler's clock stops
    // while a hypervisor takes the CPU.
    let burned_error_s = 0.05 * burned_s + 3.0 * (burned_s / 99.0).sqrt();
    // Joining a thread waits on a futex too.
    let waits_error = 0.05 * waits_truth + 1.0;
    let figures = [
        // The error is a tick, for what the process spent after its work.
        ("CPU time of a process", "", "s", process_truth_s, process_s, 0.02),
        ("CPU time in a known procedure", "profile", "s", burned_s, found_burned_s, burned_error_s),
        ("waits for a known lock", "locks", "waits", waits_truth, waits, waits_error),
        ("needless reads of a known file", "file anatomy", "reads", needless_truth, needless, 0.0),
        ("requests in a log", "", "requests", requests_truth, requests, 0.0),
    ];
    let compare = |(what, sampler, unit, truth, found, error)| {
        let capabilities = &trial.manifest().capabilities;
        let missing = capabilities.iter().find(|one| one.name == sampler && !one.supported);
        Truth::new(what, unit, truth, found, error, missing.map(|missing| missing.reason.clone()))
    };
    let mut truths: Vec<Truth> = figures.into_iter().map(compare).collect();
    truths.insert(2, known_loop(trial, work));
    truths
}

/// The instructions of the known loop, if the processor counts instructions.
fn known_loop(trial: &Trial, work: &Work) -> Truth {
    let millions = |count: u64| count as f64 / 1e6;
    let server = trial.counters().iter().filter(|row| row.whose == Whose::Server);
    let counted: Vec<u64> = server.filter_map(|row| row.counts.instructions).collect();
    let capability = trial.manifest().capabilities.iter().find(|c| c.name == "hardware counters");
    let reason = capability.map(|capability| capability.reason.clone());
    let truth = millions(work.instructions);
    Truth::new(
        "instructions in a known loop",
        "millions",
        truth,
        millions(counted.iter().sum()),
        // The error covers everything else that the process does.
        0.05 * truth,
        counted.is_empty().then(|| reason.unwrap_or_default()),
    )
}

/// CPU time of the samples in [`BURNER`], ns.
fn burned_ns(trial: &Trial) -> i64 {
    let of_burner = |stack: u32| names(trial, stack).any(|name| name.contains(BURNER));
    let samples = trial.samples().iter().filter(|row| row.owner == Owner::Server);
    samples.filter(|row| of_burner(row.stack)).map(|row| row.ns).sum()
}

/// The names of a stack's procedures, innermost first.
fn names(trial: &Trial, stack: u32) -> impl Iterator<Item = &str> {
    let frames = trial.stacks().get(stack as usize).map(|stack| &stack.frames[..]);
    frames
        .unwrap_or_default()
        .iter()
        .filter_map(|&frame| trial.frames().get(frame as usize)?.symbol.as_deref())
}

impl Truth {
    fn new(
        what: &'static str,
        unit: &'static str,
        truth: f64,
        found: f64,
        error: f64,
        missing: Option<String>,
    ) -> Truth {
        let verdict = match &missing {
            Some(_) => Verdict::NotSupported,
            None if (found - truth).abs() <= error => Verdict::Held,
            None => Verdict::Missed,
        };
        let found = missing.is_none().then_some(found);
        Truth { what, unit, truth, found, error, verdict, reason: missing }
    }
}

impl Examination {
    fn to_text(&self, columns: usize) -> String {
        let mut text = String::from("This machine\n\n");
        let width = self.abilities.iter().map(|a| a.what.chars().count()).max().unwrap_or(0);
        for ability in &self.abilities {
            let has = if ability.supported { "yes" } else { "no " };
            let begin = format!("  {has}  {:<width$}  ", ability.what);
            text.push_str(&hanging(&begin, &ability.detail, columns));
        }
        text.push_str("\nSampler tests: figures from a recording of a process with known work\n\n");
        let width = self.truths.iter().map(|truth| truth.what.len()).max().unwrap_or(0);
        for truth in &self.truths {
            let verdict = match truth.verdict {
                Verdict::Held => "ok",
                Verdict::Missed => "WRONG",
                Verdict::NotSupported => "not supported here",
            };
            let digits = if truth.unit == "s" { 3 } else { 0 };
            let result = match (&truth.found, &truth.reason) {
                (Some(found), _) => format!(
                    "{verdict}: {found:.digits$} of {:.digits$} {} (within {:.digits$})",
                    truth.truth, truth.unit, truth.error
                ),
                (None, reason) => format!("{verdict}: {}", reason.as_deref().unwrap_or_default()),
            };
            let begin = format!("  {:<width$}  ", truth.what);
            text.push_str(&hanging(&begin, &result, columns));
        }
        text
    }
}

/// Text with a label, wrapped with a hanging indent.
fn hanging(begin: &str, text: &str, columns: usize) -> String {
    let indent = begin.chars().count();
    let lines = output::wrapped(text, columns.saturating_sub(indent).max(20));
    let mut out = String::from(begin.trim_end_matches(if lines.is_empty() { ' ' } else { '\0' }));
    out.push_str(&lines.join(&format!("\n{}", " ".repeat(indent))));
    out.push('\n');
    out
}
