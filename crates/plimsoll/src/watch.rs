//! When the trial is read, and how much CPU time that may take.
//!
//! A look at the trial reads only the last intervals, so that a look costs the same after an hour
//! as after a minute. A look happens when the file has changed, but not before twenty times the CPU
//! time of the last look has passed. The cost of fitting the line grows with the number of
//! intervals. The line is fitted again after fifty times the CPU time of the last fit, so that
//! fitting takes at most a fiftieth of a CPU.

pub(crate) mod model;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use ::report::{Options, Recent};
use load::sys::thread_cpu_ns;
use trial::{Error, Trial};

use self::model::{Fit, Model};

/// The pause after a look, as a multiple of its CPU time.
const LOOK_REST: u32 = 20;

/// The pause after a fit, as a multiple of its CPU time.
const FIT_REST: u32 = 50;

/// A trial that is being finished at the moment of a look may be unreadable once, but not twice.
const FAILURES_MAX: u32 = 1;

/// Watches one trial.
pub(crate) struct Watcher {
    path: PathBuf,
    /// Intervals of a look.
    last: usize,
    options: Options,
    /// The earliest start of a trial that is still to be created, ns since the Unix epoch.
    awaited_ns: Option<i64>,
    failures: u32,
    /// The state of the file at the last look.
    stamp: Option<Stamp>,
    /// The last interval seen, and whether the trial was finished.
    seen: Option<(u64, bool)>,
    fit: Fit,
    next_look: Instant,
    next_fit: Instant,
    begun: Instant,
    /// CPU time of all looks and fits, ns.
    spent_ns: u64,
}

impl Watcher {
    /// `awaited_ns`: wait for a trial that starts then or later. An older one is ignored.
    pub(crate) fn new(
        path: PathBuf,
        last: usize,
        options: Options,
        awaited_ns: Option<i64>,
    ) -> Watcher {
        let now = Instant::now();
        Watcher {
            path,
            last,
            options,
            awaited_ns,
            failures: 0,
            stamp: None,
            seen: None,
            fit: Fit::default(),
            next_look: now,
            next_fit: now,
            begun: now,
            spent_ns: 0,
        }
    }

    /// A new model, if there is more than at the last look. A trial that has just finished is
    /// verified completely.
    pub(crate) fn look(&mut self) -> Result<Option<Model>, Error> {
        let stamp = Stamp::of(&self.path);
        if Instant::now() < self.next_look || self.stamp == Some(stamp) {
            return Ok(None);
        }
        let timer = Timer::start();
        let read = self.read();
        self.next_look = timer.stop(&mut self.spent_ns, LOOK_REST);
        let recent = match read {
            Ok(recent) => recent,
            Err(Error::Missing { .. } | Error::NotATrial { .. }) if self.awaited_ns.is_some() => {
                None
            }
            Err(_) if self.failures < FAILURES_MAX => {
                self.failures += 1;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        (self.stamp, self.failures) = (Some(stamp), 0);
        let Some(recent) = recent else { return Ok(None) };
        self.awaited_ns = None;
        let seen = Some((recent.interval, recent.complete));
        let more = seen != self.seen;
        self.seen = seen;
        Ok(more.then(|| Model { recent, fit: self.fit.clone(), watch_percent: 0.0 }))
    }

    /// Whether all that the file has was seen.
    pub(crate) fn is_current(&self) -> bool {
        self.stamp == Some(Stamp::of(&self.path))
    }

    /// Whether the line may be fitted again, and would change.
    pub(crate) fn fit_is_due(&self) -> bool {
        let Some((newest, finished)) = self.seen else { return false };
        self.fit.interval != Some(newest) && (finished || Instant::now() >= self.next_fit)
    }

    /// Fits the line to all intervals.
    pub(crate) fn fit(&mut self, model: &mut Model) -> Result<(), Error> {
        let timer = Timer::start();
        let trial = Trial::recent(&self.path, usize::MAX)?;
        let interval = trial.intervals().last().map_or(0, |last| last.index);
        self.fit = Fit::new(interval, ::report::analyse(&trial, &self.options));
        self.next_fit = timer.stop(&mut self.spent_ns, FIT_REST);
        model.fit = self.fit.clone();
        Ok(())
    }

    /// CPU time of watching so far, percent of one CPU.
    pub(crate) fn cost_percent(&self) -> f64 {
        let passed_ns = self.begun.elapsed().as_nanos().max(1) as f64;
        100.0 * self.spent_ns as f64 / passed_ns
    }

    fn read(&self) -> Result<Option<Recent>, Error> {
        let trial = Trial::recent(&self.path, self.last)?;
        if self.awaited_ns.is_some_and(|begun_ns| trial.manifest().created_ns < begun_ns) {
            return Ok(None);
        }
        if trial.complete() && !self.seen.is_some_and(|(_, finished)| finished) {
            Trial::open(&self.path)?;
        }
        Ok(::report::recent(&trial, &self.options.groups))
    }
}

/// Sizes and times of the trial and of its journal.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp([Option<(u64, Option<SystemTime>)>; 2]);

impl Stamp {
    fn of(path: &Path) -> Stamp {
        let mut journal = path.as_os_str().to_owned();
        journal.push("-wal");
        let of = |path: &Path| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.len(), found.modified().ok()))
        };
        Stamp([of(path), of(Path::new(&journal))])
    }
}

/// Measures the CPU time of a piece of work.
struct Timer {
    cpu_ns: u64,
}

impl Timer {
    fn start() -> Timer {
        Timer { cpu_ns: thread_cpu_ns() }
    }

    /// Adds the CPU time, and returns when the next piece of work may begin.
    fn stop(self, spent_ns: &mut u64, rest: u32) -> Instant {
        let took_ns = thread_cpu_ns() - self.cpu_ns;
        *spent_ns += took_ns;
        Instant::now() + rest * Duration::from_nanos(took_ns)
    }
}
