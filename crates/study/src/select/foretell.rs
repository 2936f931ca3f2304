//! The change of 1998, foretold: a proxy on `poll` is recorded with its profile over many rates;
//! what its capacity would be with the waits of `epoll` is read off that recording and written into
//! its ledger; then the same proxy on `epoll` is recorded, and the prediction graded.
//!
//! What `epoll` costs is not taken from the run that grades it. It is the CPU time of one wait,
//! measured on descriptors alone, and one wait a request: under load one wait tells of several
//! requests, so that this is the most it can be.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use load::Schedule;
use readiness::{Kind, wait_cost};
use record::ProfileSpec;
use report::{CompareOptions, Comparison, Grade, Instead, Options, ResourceKind, WhatIf};
use serde::Serialize;
use trial::{Trial, Writer};

use super::Stand;
use crate::published::{Facts, SQUID};
use harness::{Caching, Error, Server, annotate};

/// The group of procedures that is replaced, as `what-if --group` takes it.
const GROUP: &str = "select";
/// Use of the proxy's CPU that the rising load ends at.
const USE_MAX: f64 = 0.8;
/// How often the load rises, so that what drifts with time does not look like what changes with the
/// rate.
const RISES: usize = 4;
/// Levels of each rise.
const LEVELS: usize = 10;
/// Part of a recording in which the proxy is saturated.
const SATURATED: f64 = 0.2;
/// Samples a second of each CPU.
const PROFILE_HZ: u32 = 499;
/// Intervals of a rising load.
const INTERVALS: u32 = 40;
/// Around a change of phase, intervals belong to neither.
const SETTLE: Duration = Duration::from_millis(600);
/// Rounds in which a wait is measured, and how long each visit is.
const WAIT_ROUNDS: usize = 25;
const WAIT_VISIT: Duration = Duration::from_millis(3);

/// What came of it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Foretelling {
    /// It was foretold and graded.
    Graded(Box<Graded>),
    /// It could not be, and why.
    NotTold(String),
}

/// A prediction with what came.
#[derive(Clone, Debug, Serialize)]
pub struct Graded {
    /// Cold connections throughout.
    pub cold: u32,
    /// CPU time of one wait of `poll` among so many descriptors, microseconds, by itself.
    pub poll_wait_us: f64,
    /// The same of `epoll`: what is put in the place of the group.
    pub epoll_wait_us: f64,
    /// The prediction, as `plimsoll what-if` tells it.
    pub told: WhatIf,
    /// Capacity that came, requests/s.
    pub came: Option<f64>,
    /// Whether it was measured; otherwise it is read off the second trial's own line.
    pub measured: bool,
    /// Whether the prediction held.
    pub grade: Grade,
    /// CPU time of one more request in the group, microseconds: on `poll`, and as it came.
    pub group_us: (f64, f64),
    /// CPU time of one more request in all, microseconds: on `poll`, and as it came.
    pub us: (f64, f64),
    /// Everything that `plimsoll compare` says of the two trials.
    pub comparison: Comparison,
}

/// Records, foretells, records and grades.
pub(super) fn foretell(
    stand: &Stand<'_>,
    time: Duration,
    cold_max: u32,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<Foretelling, Error> {
    let of_1998 = Facts::read().day(SQUID, "old").and_then(|day| day.descriptors_max);
    let cold = (of_1998.unwrap_or(1000.0) as u32).min(cold_max);
    say("what one wait costs by itself");
    let waits = wait_cost::measure(&wait_cost::Plan {
        kinds: vec![Kind::Poll, Kind::Epoll],
        cold: vec![cold as usize],
        rounds: WAIT_ROUNDS,
        visit: WAIT_VISIT,
    });
    let (waits, missing) = match waits {
        Ok(waits) => waits,
        Err(why) => return Ok(Foretelling::NotTold(why.to_string())),
    };
    if let Some(why) = missing.first() {
        return Ok(Foretelling::NotTold(why.to_string()));
    }
    let wait_us = |kind: Kind| {
        waits.iter().find(|row| row.kind == kind).map_or(f64::NAN, |row| row.standing_ns / 1e3)
    };
    let (poll_wait_us, epoll_wait_us) = (wait_us(Kind::Poll), wait_us(Kind::Epoll));
    let before = recorded(stand, Kind::Poll, cold, time, stop, say)?;
    let told = match told(&before, epoll_wait_us) {
        Ok(told) => told,
        Err(Error::Report(why)) => return Ok(Foretelling::NotTold(why.to_string())),
        Err(error) => return Err(error),
    };
    let after = recorded(stand, Kind::Epoll, cold, time, stop, say)?;
    let (old, new) = (Trial::open(&before)?, Trial::open(&after)?);
    let terms = CompareOptions { analysis: options(), ..CompareOptions::default() };
    let comparison = match report::compare(&old, &new, &terms) {
        Ok(comparison) => comparison,
        Err(why) => return Ok(Foretelling::NotTold(why.to_string())),
    };
    if let Some(out) = &stand.plan.out {
        for path in [&before, &after] {
            keep(path, out)?;
        }
    }
    let Some(graded) = comparison.graded.iter().find(|kept| kept.prediction.name == told.name)
    else {
        return Ok(Foretelling::NotTold("the prediction is not in the trial's ledger".into()));
    };
    let group = comparison.groups.iter().find(|part| part.name == told.title);
    Ok(Foretelling::Graded(Box::new(Graded {
        cold,
        poll_wait_us,
        epoll_wait_us,
        came: graded.came,
        measured: graded.measured,
        grade: graded.grade,
        group_us: group.map_or((f64::NAN, f64::NAN), |part| (part.us_before, part.us_after)),
        us: (comparison.before.us_per_request, comparison.after.us_per_request),
        told,
        comparison,
    })))
}

/// The thread that serves is what is used up: its CPU may have other work.
fn options() -> Options {
    Options { resource: Some(ResourceKind::HottestThread), ..Options::default() }
}

/// The prediction, written into the ledger of the trial.
fn told(path: &Path, epoll_wait_us: f64) -> Result<WhatIf, Error> {
    let trial = Trial::open(path)?;
    let instead = Instead::Cost(epoll_wait_us / 1e6);
    let told = report::what_if(&trial, &options(), GROUP, instead)?;
    drop(trial);
    let mut writer = Writer::reopen(path)?;
    writer.prediction(&told.prediction(load::sys::wall_ns()))?;
    writer.finish()?;
    Ok(told)
}

/// A trial of a proxy on this backend: a load that rises several times, then saturation.
fn recorded(
    stand: &Stand<'_>,
    kind: Kind,
    cold: u32,
    time: Duration,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<PathBuf, Error> {
    say(&format!("recording {kind} with {cold} cold connections"));
    let program = &stand.plan.program;
    let server = Server::start(program, kind, &stand.source, Some(stand.home), stand.cpus)?;
    let warm = server.plan(Caching::On, Schedule::ClosedLoop, Duration::from_millis(800));
    server.drive(&warm, &[], stop)?;
    let top = server.rate_at(USE_MAX, Caching::On, cold, stop)?;
    let path = stand.home.join(format!("{kind}.trial"));
    let rising_for = time.mul_f64(1.0 - SATURATED);
    let interval = (rising_for / INTERVALS).max(record::INTERVAL_MIN);
    let note = "recorded by plimsoll study select: the load rises several times, then saturates";
    let profile = ProfileSpec { hz: PROFILE_HZ };
    let recording = server.record(&path, interval, Some(profile), note)?;
    let mut load = server.plan(Caching::On, Schedule::Steps(rises(top)), rising_for);
    load.cold = cold;
    let (_, rising) = server.drive(&load, &[], stop)?;
    let mut load = server.plan(Caching::On, Schedule::ClosedLoop, time.mul_f64(SATURATED));
    load.cold = cold;
    let (_, saturated) = server.drive(&load, &[], stop)?;
    recording.finish()?;
    annotate(&path, &rising, &saturated, SETTLE)?.0.finish()?;
    Ok(path)
}

/// Each rise over all of the range, each in the gaps of the others.
fn rises(top: f64) -> Vec<f64> {
    let bottom = top / 20.0;
    let last = LEVELS as f64 - 1.0 / RISES as f64;
    (0..RISES)
        .flat_map(|rise| (0..LEVELS).map(move |k| k as f64 + rise as f64 / RISES as f64))
        .map(|k| bottom + (top - bottom) * k / last)
        .collect()
}

fn keep(path: &Path, out: &Path) -> Result<(), Error> {
    let name = path.file_name().unwrap_or(path.as_os_str());
    let copied = std::fs::copy(path, out.join(name));
    copied.map(drop).map_err(|error| Error::Directory(out.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_cover_the_range_and_no_level_comes_twice() {
        let mut levels = rises(1000.0);
        assert_eq!(levels.len(), RISES * LEVELS);
        assert_eq!(levels[0], 50.0);
        levels.sort_by(f64::total_cmp);
        assert!(levels.windows(2).all(|pair| pair[1] - pair[0] > 1.0), "{levels:?}");
        assert!((levels[levels.len() - 1] - 1000.0).abs() < 1e-9, "{levels:?}");
    }
}
