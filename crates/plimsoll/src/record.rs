//! `plimsoll record`: observes a live server and writes a trial.

use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ::record::{Ended, ProfileSpec, Spec, Summary};
use ::report::{Analysis, CapacityFigure, Options};
use command::failure::{Failure, misuse};
use command::output;
use command::stop_on_signal;
use indicatif::ProgressBar;
use regress::variation::{FOLDS_MIN, folds};
use serde::Serialize;
use trial::{Interval, Trial};

#[cfg(not(feature = "lab"))]
use crate::absent::ship::{Ended as Shipped, Shipping};
#[cfg(feature = "lab")]
use crate::ship::{Ended as Shipped, Shipping};
use crate::{cli, progress};

/// The recording that the flags describe, into this trial.
pub(crate) fn spec(flags: &cli::Recording, trial: &Path) -> Result<Spec, Failure> {
    let target = flags.observed.target();
    let target =
        target.ok_or_else(|| misuse("no server given: use --pid N, --name NAME or --unit NAME"))?;
    let mut spec = flags.observed.spec(target, trial.to_owned());
    spec.redact = flags.redact;
    spec.labels = flags.labels.iter().cloned().collect();
    if let Some(interval) = flags.interval {
        spec.interval = interval;
    }
    spec.duration = flags.duration;
    spec.profile = (!flags.no_profile).then_some(ProfileSpec { hz: flags.profile });
    spec.turns_every = NonZeroU32::new(flags.turns_every);
    (spec.counters, spec.locks, spec.files) = (flags.counters, flags.locks, flags.files);
    Ok(spec)
}

/// Records, with a progress line on a terminal, and ends with what the trial shows so far.
pub(crate) fn record(flags: &cli::Record) -> Result<(), Failure> {
    let trial = match &flags.output {
        Some(path) => path.clone(),
        None => free_name(&flags.recording.observed),
    };
    let mut spec = spec(&flags.recording, &trial)?;
    spec.overwrite = flags.force;
    let note = PathBuf::from(format!("{}.unshipped", trial.display()));
    if flags.force && trial.exists() && note.exists() {
        let (trial, note) = (trial.display(), note.display());
        return Err(misuse(format!(
            "{trial} has intervals that were not shipped: run `plimsoll ship {trial} --to URL` \
             first, or delete {note}"
        )));
    }
    if let Some(several) = ::record::several_servers(&spec.target).map_err(failure)? {
        eprintln!("plimsoll: {several}");
    }
    spec.hold = flags.holds.spec(spec.duration).map_err(misuse)?;
    if let Some(hold) = &spec.hold {
        let said = ::record::how_to_hold(&spec.target, hold).map_err(failure)?;
        eprintln!("plimsoll: {said}");
    }
    let stop = stop_on_signal()?;
    let bar = progress::bar(ProgressBar::new_spinner(), "{elapsed} {msg}", flags.json);
    let known = Known::new(flags.wait_until_known);
    let mut shipping = Shipping::new(&flags.shipping, &trial, bar.is_hidden())?;
    let mut rates = Rates::default();
    let ended = thread::scope(|scope| {
        if flags.wait_until_known.is_some() {
            scope.spawn(|| known.watch(&trial, &stop));
        }
        let ended = ::record::record(&spec, &stop, &mut |interval| {
            if let Some(shipping) = &mut shipping {
                shipping.begin();
            }
            rates.add(interval);
            let seconds = interval.length_ns as f64 / 1e9;
            let busy = interval.server.as_ref().map_or(0.0, |s| s.total_ns as f64 / 1e9 / seconds);
            bar.set_message(format!(
                "interval {}: {:.0} requests/s, {busy:.3} CPUs; {rates}{}{}",
                interval.index,
                interval.requests / seconds,
                known.shown(),
                shipping.as_ref().map_or_else(String::new, Shipping::shown),
            ));
            bar.tick();
        });
        known.end();
        ended
    });
    bar.finish_and_clear();
    // A signal has perhaps ended the recording. The next one ends shipping.
    stop.store(false, Ordering::Relaxed);
    let summary = ended.map_err(failure)?;
    if summary.intervals == 0 {
        show(flags.json, &Recorded::of(&summary))?;
        return Err(misuse(match summary.ended {
            Ended::ServerGone => NO_INTERVAL,
            _ => "no interval was recorded: the recording was stopped too early; record for longer",
        }));
    }
    // The trial is large, and shipping opens it again.
    let analysis = {
        let trial = Trial::open(&trial).map_err(misuse)?;
        ::report::analyse(&trial, &Options::default()).map_err(misuse)?
    };
    // The summary does not wait for the database, unless it contains the end of shipping.
    let finish = |shipping: Shipping| shipping.finish(&stop);
    let mut recorded = Recorded::of(&summary);
    recorded.analysis = Some(&analysis);
    recorded.capacity = Some(&analysis.capacity);
    if flags.json {
        recorded.shipped = shipping.map(finish);
        show(true, &recorded)?;
    } else {
        show(false, &recorded)?;
        shipping.map(finish);
    }
    match (flags.wait_until_known, half_width(&analysis.capacity)) {
        (Some(wanted), found) if found.is_none_or(|found| found > wanted) => {
            let found =
                found.map_or("not known".to_owned(), |found| format!("known to {found:.0} %"));
            let advice = match analysis.capacity.model {
                report::MODEL_BUSY => {
                    "hold the server (--hold), or record at a higher load or for longer"
                }
                _ => "record for longer, or while the rate rises and falls more",
            };
            Err(misuse(format!(
                "inconclusive: the capacity is {found}, not to {wanted:.0} %; {advice}"
            )))
        }
        _ => Ok(()),
    }
}

/// The first of `NAME-1.trial`, `NAME-2.trial`, ... that does not exist.
fn free_name(observed: &cli::Observed) -> PathBuf {
    let server = match (observed.pid, observed.name.as_ref().or(observed.unit.as_ref())) {
        (Some(pid), _) => pid.to_string(),
        (None, Some(name)) => name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"),
        (None, None) => "server".to_owned(),
    };
    let names = (1u32..).map(|number| PathBuf::from(format!("{server}-{number}.trial")));
    names.into_iter().find(|name| !name.exists()).unwrap_or_default()
}

/// The result of a recording: its summary, and the capacity so far.
#[derive(Serialize)]
struct Recorded<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    capacity: Option<&'a CapacityFigure>,
    #[serde(skip)]
    analysis: Option<&'a Analysis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shipped: Option<Shipped>,
}

impl Recorded<'_> {
    fn of(summary: &Summary) -> Recorded<'_> {
        Recorded { summary, capacity: None, analysis: None, shipped: None }
    }
}

fn show(json: bool, recorded: &Recorded<'_>) -> Result<(), Failure> {
    output::show(json, recorded, |recorded| {
        let facts = recorded.analysis.map(|analysis| ::report::brief(analysis, output::width()));
        // A log without requests explains why there is no capacity.
        let causes: String =
            recorded.summary.causes.iter().map(|cause| format!("problem: {cause}\n")).collect();
        format!("{causes}{}{}\n", facts.unwrap_or_default(), recorded.summary)
    })
}

/// How much the rate has varied: without variation no line can be fitted.
#[derive(Default)]
struct Rates(Vec<f64>);

/// Rates of fewer intervals say nothing.
const INTERVALS_MIN: usize = 10;

impl Rates {
    fn add(&mut self, interval: &Interval) {
        if interval.rate_valid {
            let rate = interval.rate();
            let at = self.0.partition_point(|&other| other < rate);
            self.0.insert(at, rate);
        }
    }

    /// By how much they vary. `None` for too few rates.
    fn folds(&self) -> Option<f64> {
        let Rates(rates) = self;
        (rates.len() >= INTERVALS_MIN).then(|| folds(rates).min(1_000.0))
    }
}

/// The variation is that by which a report judges.
impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(folds) = self.folds() else { return f.write_str("too early for a line") };
        if folds < FOLDS_MIN {
            let needed = FOLDS_MIN;
            write!(f, "the rate has varied {folds:.1}-fold; {needed:.0}-fold is needed")
        } else {
            write!(f, "the rate has varied {folds:.1}-fold")
        }
    }
}

/// How exactly the capacity is known while the recording goes on.
struct Known {
    /// Percent at which the recording ends.
    wanted: f64,
    found: Mutex<Option<f64>>,
    ended: AtomicBool,
}

/// The least pause between two looks at the trial, and the least as a multiple of the CPU time of
/// the last look.
const LOOK_PAUSE: Duration = Duration::from_secs(5);
const LOOK_REST: u32 = 20;
const POLL: Duration = Duration::from_millis(100);

impl Known {
    fn new(wanted: Option<f64>) -> Known {
        let wanted = wanted.unwrap_or_default();
        Known { wanted, found: Mutex::new(None), ended: AtomicBool::new(false) }
    }

    /// Analyses the trial again and again while it is written, and stops the recording when the
    /// capacity is known.
    fn watch(&self, trial: &Path, stop: &AtomicBool) {
        let mut next = Instant::now() + LOOK_PAUSE;
        while !self.ended.load(Ordering::Relaxed) {
            thread::sleep(POLL);
            if Instant::now() < next {
                continue;
            }
            let begun_ns = load::sys::thread_cpu_ns();
            self.look(trial, stop);
            let took = Duration::from_nanos(load::sys::thread_cpu_ns() - begun_ns);
            next = Instant::now() + LOOK_PAUSE.max(LOOK_REST * took);
        }
    }

    /// Analyses the trial once. One that is just being created cannot be read yet.
    fn look(&self, trial: &Path, stop: &AtomicBool) {
        let analysis = Trial::recent(trial, usize::MAX).ok();
        let analysis =
            analysis.and_then(|trial| ::report::analyse(&trial, &Options::default()).ok());
        let found = analysis.and_then(|analysis| half_width(&analysis.capacity));
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
        if found.is_some_and(|found| found <= self.wanted) {
            stop.store(true, Ordering::Relaxed);
        }
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn shown(&self) -> String {
        let found = *self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.map_or_else(String::new, |found| format!("; capacity known to {found:.0} %"))
    }
}

/// Half the width of a capacity's interval, percent of the capacity. `None` without an interval.
fn half_width(capacity: &CapacityFigure) -> Option<f64> {
    let (low, high) = capacity.low.zip(capacity.high)?;
    Some(50.0 * (high - low) / capacity.value?)
}

/// The server ended too early.
pub(crate) const NO_INTERVAL: &str =
    "no interval was recorded: the server ended before the first one was complete";

/// Names the flag that fixes an error, if there is one.
pub(crate) fn failure(error: ::record::Error) -> Failure {
    match error {
        ::record::Error::Trial(trial::Error::Exists { path }) => misuse(format!(
            "{} exists already: choose another name, or give --force to overwrite it",
            path.display()
        )),
        error => misuse(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trial::{Manifest, ProcessTimes, Writer};

    #[test]
    fn the_progress_line_says_how_much_the_rate_must_vary() {
        let of = |rates: &[f64]| Rates(rates.to_vec()).to_string();
        assert_eq!(of(&[10.0, 11.0]), "too early for a line");
        assert_eq!(of(&[100.0; 20]), "the rate has varied 1.0-fold; 2-fold is needed");
        // One outlier at each end is not a variation.
        let mut rates = vec![1.0];
        rates.extend((0..18).map(|i| 100.0 + 20.0 * f64::from(i)));
        rates.push(9_000.0);
        assert_eq!(of(&rates), "the rate has varied 3.5-fold");
    }

    /// A ramp to 80 % of a CPU, at 50 us a request.
    fn a_trial(path: &Path) {
        let mut writer = Writer::create(path, &Manifest::default()).unwrap();
        for index in 0..60u64 {
            let rate = 300.0 + 260.0 * index as f64;
            let total_ns = (50e3 * rate) as i64 + [0, 2_000_000][index as usize % 2];
            let times = ProcessTimes { user_ns: total_ns, total_ns, ..ProcessTimes::default() };
            let interval = Interval {
                index,
                start_ns: index as i64 * 1_000_000_000,
                length_ns: 1_000_000_000,
                server: Some(times),
                requests: rate,
                rate_valid: true,
                ..Interval::default()
            };
            writer.append(&interval).unwrap();
        }
    }

    #[test]
    fn a_recording_is_stopped_when_its_capacity_is_known() {
        let home = tempfile::tempdir().unwrap();
        let trial = home.path().join("a.trial");
        a_trial(&trial);
        let looked = |wanted: f64| {
            let (known, stop) = (Known::new(Some(wanted)), AtomicBool::new(false));
            known.look(&trial, &stop);
            (stop.into_inner(), known.shown())
        };
        let (stopped, shown) = looked(20.0);
        assert!(stopped, "{shown}");
        let (stopped, shown) = looked(0.01);
        assert!(!stopped && shown.starts_with("; capacity known to "), "{shown}");
    }
}
