//! The samples: two proxies take turns under the day's rates, and both are recorded throughout. The
//! recorder's intervals that lie within a sample are gathered into it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use load::Schedule;
use serde::Serialize;
use trial::{Interval, Trial, Writer};

use super::Plan;
use super::shape::{SAMPLES_AN_HOUR, Shape};
use crate::found::Steps;
use harness::{Caching, Error, Server};

/// Intervals of the recorder in a sample, unless they would be too short.
const INTERVALS: u32 = 6;

/// A day to be replayed.
pub(super) struct Day<'p> {
    pub(super) plan: &'p Plan,
    pub(super) shape: Shape,
    pub(super) rate_top: f64,
    pub(super) cold_top: u32,
    pub(super) home: &'p Path,
}

/// A sample: a quarter of an hour of the day.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sample {
    /// Its middle, in hours of the day.
    pub(super) hour: f64,
    /// The rate that was offered.
    pub(super) offered: f64,
    /// Cold connections during it.
    pub(super) cold: u32,
    /// Requests a second, by the access log.
    pub(super) rate: f64,
    /// Percent of the time that the proxy's thread was idle.
    pub(super) idle: f64,
    /// Percent of the time in kernel mode.
    pub(super) kernel: f64,
    /// Percent of the time in user mode.
    pub(super) user: f64,
}

/// The load of a sample, and when it ran.
pub(super) struct Loaded {
    pub(super) sample: u32,
    pub(super) offered: f64,
    pub(super) cold: u32,
    start_ns: i64,
    end_ns: i64,
}

/// The results of the load on one proxy, and its recording.
#[derive(Default)]
pub(super) struct Raw {
    pub(super) backend: String,
    pub(super) loaded: Vec<Loaded>,
    pub(super) requests: u64,
    pub(super) errors: u64,
    pub(super) hits: u64,
    pub(super) trial: PathBuf,
}

impl Day<'_> {
    /// Length of a sample in this run.
    pub(super) fn sample(&self) -> Duration {
        self.plan.compressed / SAMPLES_AN_HOUR
    }

    /// Length of an interval of the recorder.
    pub(super) fn interval(&self) -> Duration {
        (self.sample() / INTERVALS).max(record::INTERVAL_MIN)
    }

    /// Replays both days, turn by turn.
    pub(super) fn replay(
        &self,
        servers: &[Server; 2],
        steps: &mut Steps<'_>,
    ) -> Result<[Raw; 2], Error> {
        let interval = self.interval();
        let note = "recorded by plimsoll study live, in turns with another";
        let path = |name: &str| self.home.join(format!("{name}-intervals.trial"));
        let paths = [path("old"), path("new")];
        let recordings = [
            servers[0].record(&paths[0], interval, None, note)?,
            servers[1].record(&paths[1], interval, None, note)?,
        ];
        let mut raw = [0, 1].map(|at: usize| Raw {
            backend: servers[at].kind.to_string(),
            trial: paths[at].clone(),
            ..Raw::default()
        });
        let samples = self.plan.hours * SAMPLES_AN_HOUR;
        for sample in 0..samples {
            // A B, B A, A B: a drift affects both alike.
            let order = if sample % 2 == 0 { [0, 1] } else { [1, 0] };
            for at in order {
                let hour = self.shape.hour_of(sample);
                steps.say(&format!(
                    "sample {} of {samples}, {:02.0}:{:02.0}, {}",
                    sample + 1,
                    hour.floor(),
                    60.0 * hour.fract(),
                    servers[at].kind
                ));
                self.load(&servers[at], sample, &mut raw[at], steps)?;
            }
        }
        for recording in recordings {
            recording.finish()?;
        }
        Ok(raw)
    }

    fn load(
        &self,
        server: &Server,
        sample: u32,
        raw: &mut Raw,
        steps: &Steps<'_>,
    ) -> Result<(), Error> {
        let part = self.shape.at(self.shape.hour_of(sample));
        let offered = (part * self.rate_top).max(1.0 / self.sample().as_secs_f64());
        let mut load = server.plan(Caching::Off, Schedule::Constant(offered), self.sample());
        // A slow client stays open and silent: their number follows the rate.
        load.cold = (part * f64::from(self.cold_top)).round() as u32;
        load.seed = self.plan.given.seed + u64::from(sample);
        let cold = load.cold;
        let outcome = match server.drive(&load, &[], steps.stop) {
            // In the quietest hour a short sample may have no request; it counts all the same.
            Err(Error::Silent(_)) => return Ok(()),
            driven => driven?.1,
        };
        raw.requests += outcome.counts.completed;
        raw.errors += outcome.counts.errors.total();
        raw.hits += outcome.counts.hits;
        let end_ns = outcome.start_ns + outcome.length_ns as i64;
        raw.loaded.push(Loaded { sample, offered, cold, start_ns: outcome.start_ns, end_ns });
        Ok(())
    }
}

/// Gathers a recording's intervals into samples and writes these as another trial, with an interval
/// for each sample, as in the logs of 1998.
pub(super) fn gather(raw: &Raw, out: &Path) -> Result<Vec<(usize, Interval)>, Error> {
    let trial = Trial::open(&raw.trial)?;
    let mut manifest = trial.manifest().clone();
    manifest.notes.push("gathered from shorter intervals: one for each sample of the day".into());
    let mut gathered: Vec<(usize, Interval)> = Vec::new();
    for (at, loaded) in raw.loaded.iter().enumerate() {
        let within = |interval: &&Interval| {
            interval.start_ns >= loaded.start_ns
                && interval.start_ns + interval.length_ns <= loaded.end_ns
                && interval.rate_valid
        };
        let mut sum: Option<Interval> = None;
        for interval in trial.intervals().iter().filter(within) {
            match &mut sum {
                None => sum = Some(interval.clone()),
                Some(sum) => sum.add(interval),
            }
        }
        if let Some(mut sum) = sum {
            sum.index = u64::from(loaded.sample);
            sum.phase = None;
            sum.cpus.clear();
            gathered.push((at, sum));
        }
    }
    let mean_ns = gathered.iter().map(|(_, interval)| interval.length_ns).sum::<i64>() as f64
        / gathered.len().max(1) as f64;
    manifest.interval_ns = mean_ns as i64;
    let mut writer = Writer::replace(out, &manifest)?;
    for (_, interval) in &gathered {
        writer.append(interval)?;
    }
    writer.finish()?;
    Ok(gathered)
}

#[cfg(test)]
mod tests {
    use trial::{ProcessTimes, ThreadTimes};

    use super::*;

    fn interval(index: u64, start_ns: i64, requests: f64, valid: bool) -> Interval {
        let times = ProcessTimes {
            user_ns: 10,
            kernel_ns: 30,
            total_ns: 40,
            descriptors: Some(index),
            ..ProcessTimes::default()
        };
        let thread = ThreadTimes {
            pid: 1,
            tid: 1 + (index % 2) as u32,
            total_ns: 40,
            user_ns: 10,
            kernel_ns: 30,
            wakes: 2,
            ..ThreadTimes::default()
        };
        Interval {
            index,
            start_ns,
            length_ns: 100,
            server: Some(times),
            threads: vec![thread],
            requests,
            rate_valid: valid,
            ..Interval::default()
        }
    }

    #[test]
    fn intervals_within_a_sample_are_gathered_and_no_others() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("raw.trial");
        let mut writer = Writer::create(&path, &trial::Manifest::default()).unwrap();
        for index in 0..10 {
            // The rate of the fifth is invalid.
            let valid = index != 5;
            writer.append(&interval(index, 100 * index as i64, 7.0, valid)).unwrap();
        }
        writer.finish().unwrap();
        let loaded =
            |sample, start_ns, end_ns| Loaded { sample, offered: 1.0, cold: 0, start_ns, end_ns };
        let raw = Raw {
            backend: "poll".into(),
            // The first begins within interval 1 and ends within 6; the second contains no
            // interval.
            loaded: vec![loaded(0, 150, 650), loaded(1, 710, 850), loaded(2, 800, 1000)],
            trial: path,
            ..Raw::default()
        };
        let out = home.path().join("samples.trial");
        let gathered = gather(&raw, &out).unwrap();
        let found: Vec<(usize, u64, i64, f64)> = gathered
            .iter()
            .map(|(at, sum)| (*at, sum.index, sum.length_ns, sum.requests))
            .collect();
        assert_eq!(found, [(0, 0, 300, 21.0), (2, 2, 200, 14.0)]);
        let sum = &gathered[0].1;
        let server = sum.server.unwrap();
        assert_eq!((server.total_ns, server.user_ns, server.descriptors), (120, 30, Some(4)));
        let threads: Vec<(u32, i64, u64)> =
            sum.threads.iter().map(|t| (t.tid, t.total_ns, t.wakes)).collect();
        assert_eq!(threads, [(1, 80, 4), (2, 40, 2)]);
        assert_eq!(Trial::open(&out).unwrap().intervals().len(), 2);
    }
}
