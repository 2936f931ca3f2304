//! The change of 1998, predicted. A proxy on `poll` is recorded with its profile over many rates.
//! From that recording the study predicts the capacity with the waits of `epoll` and writes the
//! prediction into the trial's ledger. Then it records the same proxy on `epoll` and grades the
//! prediction.
//!
//! The cost of `epoll` does not come from the run that grades the prediction. It is the CPU time of
//! one wait, measured on descriptors alone, times one wait for each request. This is an upper
//! bound, because under load one wait reports several requests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use load::Schedule;
use readiness::{Kind, wait_cost};
use record::ProfileSpec;
use report::{CompareOptions, Comparison, Grade, Instead, Options, ResourceKind, WhatIf};
use serde::Serialize;
use trial::{Trial, Writer};

use super::Setup;
use crate::conditions::keep;
use crate::found::Steps;
use crate::published::{Facts, SQUID};
use harness::{Caching, Error, Server, annotate};

/// The group of procedures to replace, as `what-if --group` takes it.
const GROUP: &str = "select";
/// Use of the proxy's CPU at the end of the rising load.
const USE_MAX: f64 = 0.8;
/// How often the load rises. Several rises keep a drift over time apart from an effect of the rate.
const RISES: usize = 4;
/// Levels of each rise.
const LEVELS: usize = 10;
/// Part of a recording in which the proxy is saturated.
const SATURATED: f64 = 0.2;
/// Samples a second of each CPU.
const PROFILE_HZ: u32 = 499;
/// Intervals of a rising load.
const INTERVALS: u32 = 40;
/// Intervals this close to a change of phase belong to neither phase.
const SETTLE: Duration = Duration::from_millis(600);
/// Rounds in which a wait is measured, and the length of a visit.
const WAIT_ROUNDS: usize = 25;
const WAIT_VISIT: Duration = Duration::from_millis(3);

/// The result of the prediction.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Prediction {
    /// There is a prediction, and it was graded.
    Graded(Box<Graded>),
    /// There is none, and why.
    Inconclusive(String),
}

/// A prediction and the result.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Graded {
    /// Cold connections throughout.
    pub(super) cold: u32,
    /// CPU time of one wait of `poll` alone with that many descriptors, microseconds.
    pub(super) poll_wait_us: f64,
    /// The same of `epoll`: it replaces the group.
    pub(super) epoll_wait_us: f64,
    /// The prediction, as `plimsoll what-if` makes it.
    pub(super) predicted: WhatIf,
    /// The actual capacity, requests/s.
    pub(super) came: Option<f64>,
    /// Whether it was measured. Otherwise it follows from the second trial's own line.
    pub(super) measured: bool,
    /// Whether the prediction held.
    pub(super) grade: Grade,
    /// CPU time of one more request in the group, microseconds: on `poll` and on `epoll`.
    pub(super) group_us: (f64, f64),
    /// CPU time of one more request in all, microseconds: on `poll` and on `epoll`.
    pub(super) us: (f64, f64),
    /// The comparison of the two trials by `plimsoll compare`.
    pub(super) comparison: Comparison,
}

/// Records, predicts, records and grades.
pub(super) fn predict(
    setup: &Setup<'_>,
    cold_max: u32,
    steps: &mut Steps<'_>,
) -> Result<Prediction, Error> {
    let time = Duration::from_secs(if setup.plan.quick { 8 } else { 30 });
    let of_1998 = Facts::read().day(SQUID, "old").and_then(|day| day.descriptors_max);
    let cold = (of_1998.unwrap_or(1000.0) as u32).min(cold_max);
    steps.say("measuring the cost of one wait alone");
    let waits = wait_cost::measure(&wait_cost::Plan {
        kinds: vec![Kind::Poll, Kind::Epoll],
        cold: vec![cold as usize],
        rounds: WAIT_ROUNDS,
        visit: WAIT_VISIT,
    });
    let (waits, missing) = match waits {
        Ok(waits) => waits,
        Err(why) => return Ok(Prediction::Inconclusive(why.to_string())),
    };
    if let Some(why) = missing.first() {
        return Ok(Prediction::Inconclusive(why.to_string()));
    }
    let wait_us = |kind: Kind| {
        waits.iter().find(|row| row.kind == kind).map_or(f64::NAN, |row| row.standing_ns / 1e3)
    };
    let (poll_wait_us, epoll_wait_us) = (wait_us(Kind::Poll), wait_us(Kind::Epoll));
    let before = recorded(setup, Kind::Poll, cold, time, steps)?;
    let predicted = match prediction(&before, epoll_wait_us) {
        Ok(predicted) => predicted,
        Err(Error::Report(why)) => return Ok(Prediction::Inconclusive(why.to_string())),
        Err(error) => return Err(error),
    };
    let after = recorded(setup, Kind::Epoll, cold, time, steps)?;
    let (old, new) = (Trial::open(&before)?, Trial::open(&after)?);
    let terms = CompareOptions { analysis: options(), ..CompareOptions::default() };
    let comparison = match report::compare(&old, &new, &terms) {
        Ok(comparison) => comparison,
        Err(why) => return Ok(Prediction::Inconclusive(why.to_string())),
    };
    for path in [&before, &after] {
        keep(path, setup.plan.given.out.as_ref())?;
    }
    let Some(graded) = comparison.graded.iter().find(|kept| kept.prediction.name == predicted.name)
    else {
        return Ok(Prediction::Inconclusive("the prediction is not in the trial's ledger".into()));
    };
    let group = comparison.groups.iter().find(|part| part.name == predicted.title);
    Ok(Prediction::Graded(Box::new(Graded {
        cold,
        poll_wait_us,
        epoll_wait_us,
        came: graded.came,
        measured: graded.measured,
        grade: graded.grade,
        group_us: group.map_or((f64::NAN, f64::NAN), |part| (part.us_before, part.us_after)),
        us: (comparison.before.us_per_request, comparison.after.us_per_request),
        predicted,
        comparison,
    })))
}

/// The serving thread is the resource that saturates, because its CPU may have other work.
fn options() -> Options {
    Options { resource: Some(ResourceKind::HottestThread), ..Options::default() }
}

/// Makes the prediction and writes it into the ledger of the trial.
fn prediction(path: &Path, epoll_wait_us: f64) -> Result<WhatIf, Error> {
    let trial = Trial::open(path)?;
    let instead = Instead::Cost(epoll_wait_us / 1e6);
    let predicted = report::what_if(&trial, &options(), GROUP, instead)?;
    drop(trial);
    let mut writer = Writer::reopen(path)?;
    writer.prediction(&predicted.prediction(load::sys::wall_ns()))?;
    writer.finish()?;
    Ok(predicted)
}

/// Records a proxy on this backend: a load that rises several times, then saturation.
fn recorded(
    setup: &Setup<'_>,
    kind: Kind,
    cold: u32,
    time: Duration,
    steps: &mut Steps<'_>,
) -> Result<PathBuf, Error> {
    steps.say(&format!("recording {kind} with {cold} cold connections"));
    let server = Server::start(steps.plimsoll, kind, &setup.source, Some(setup.home), setup.cpus)?;
    let warm = server.plan(Caching::On, Schedule::ClosedLoop, Duration::from_millis(800));
    server.drive(&warm, &[], steps.stop)?;
    let top = server.rate_at(USE_MAX, Caching::On, cold, steps.stop)?;
    let path = setup.home.join(format!("{kind}.trial"));
    let rising_for = time.mul_f64(1.0 - SATURATED);
    let interval = (rising_for / INTERVALS).max(record::INTERVAL_MIN);
    let note = "recorded by plimsoll study select: the load rises several times, then saturates";
    let profile = ProfileSpec { hz: PROFILE_HZ };
    let recording = server.record(&path, interval, Some(profile), note)?;
    let mut load = server.plan(Caching::On, Schedule::Steps(rises(top)), rising_for);
    load.cold = cold;
    let (_, rising) = server.drive(&load, &[], steps.stop)?;
    let mut load = server.plan(Caching::On, Schedule::ClosedLoop, time.mul_f64(SATURATED));
    load.cold = cold;
    let (_, saturated) = server.drive(&load, &[], steps.stop)?;
    recording.finish()?;
    annotate(&path, &rising, &saturated, SETTLE)?.0.finish()?;
    Ok(path)
}

/// The levels of all rises. Each rise covers the whole range, with levels between those of the
/// others.
fn rises(top: f64) -> Vec<f64> {
    let bottom = top / 20.0;
    let last = LEVELS as f64 - 1.0 / RISES as f64;
    (0..RISES)
        .flat_map(|rise| (0..LEVELS).map(move |k| k as f64 + rise as f64 / RISES as f64))
        .map(|k| bottom + (top - bottom) * k / last)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_cover_the_range_and_no_level_occurs_twice() {
        let mut levels = rises(1000.0);
        assert_eq!(levels.len(), RISES * LEVELS);
        assert_eq!(levels[0], 50.0);
        levels.sort_by(f64::total_cmp);
        assert!(levels.windows(2).all(|pair| pair[1] - pair[0] > 1.0), "{levels:?}");
        assert!((levels[levels.len() - 1] - 1000.0).abs() < 1e-9, "{levels:?}");
    }
}
