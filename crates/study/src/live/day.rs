//! The samples: two proxies take turns under the day's rates, both are recorded throughout, and of
//! the recorder's intervals those that lie within a sample are gathered into it.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use load::Schedule;
use serde::Serialize;
use trial::{Interval, Modes, ProcessTimes, ThreadTimes, Trial, Writer};

use super::shape::SAMPLES_AN_HOUR;
use super::{Plan, Shape};
use harness::{Caching, Error, Server};

/// Intervals of the recorder in a sample, where they are not too short for it.
const INTERVALS: u32 = 6;

/// A day that is to be replayed.
pub(super) struct Day<'p> {
    pub(super) plan: &'p Plan,
    pub(super) shape: Shape,
    pub(super) rate_top: f64,
    pub(super) cold_top: u32,
    pub(super) home: &'p Path,
}

/// A quarter of an hour.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// Its middle, in hours of the day.
    pub hour: f64,
    /// The rate that was offered.
    pub offered: f64,
    /// Cold connections meanwhile.
    pub cold: u32,
    /// Requests a second, by the access log.
    pub rate: f64,
    /// Percent of the proxy's thread that were idle, in kernel mode and in user mode.
    pub idle: f64,
    /// Kernel mode.
    pub kernel: f64,
    /// User mode.
    pub user: f64,
}

/// When a sample was loaded.
pub(super) struct Loaded {
    pub(super) sample: u32,
    pub(super) offered: f64,
    pub(super) cold: u32,
    start_ns: i64,
    end_ns: i64,
}

/// What the load of one proxy came to, and the recording of it.
pub(super) struct Raw {
    pub(super) backend: String,
    pub(super) loaded: Vec<Loaded>,
    pub(super) requests: u64,
    pub(super) errors: u64,
    pub(super) hits: u64,
    pub(super) trial: PathBuf,
}

impl Day<'_> {
    /// How long a sample is here.
    pub(super) fn sample(&self) -> Duration {
        self.plan.compressed / SAMPLES_AN_HOUR
    }

    /// How long an interval of the recorder is.
    pub(super) fn interval(&self) -> Duration {
        (self.sample() / INTERVALS).max(record::INTERVAL_MIN)
    }

    /// Both days, turn by turn.
    pub(super) fn replay(
        &self,
        servers: &[Server; 2],
        stop: &AtomicBool,
        say: &mut dyn FnMut(&str),
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
            loaded: Vec::new(),
            requests: 0,
            errors: 0,
            hits: 0,
            trial: paths[at].clone(),
        });
        let samples = self.plan.hours * SAMPLES_AN_HOUR;
        for sample in 0..samples {
            // A B, B A, A B: what drifts touches both alike.
            let order = if sample % 2 == 0 { [0, 1] } else { [1, 0] };
            for at in order {
                let hour = self.shape.hour_of(sample);
                say(&format!(
                    "sample {} of {samples}, {:02.0}:{:02.0}, {}",
                    sample + 1,
                    hour.floor(),
                    60.0 * hour.fract(),
                    servers[at].kind
                ));
                self.load(&servers[at], sample, &mut raw[at], stop)?;
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
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        let part = self.shape.at(self.shape.hour_of(sample));
        let offered = (part * self.rate_top).max(1.0 / self.sample().as_secs_f64());
        let mut load = server.plan(Caching::Off, Schedule::Constant(offered), self.sample());
        // A client that is slow stays open, and silent: as many as requests come.
        load.cold = (part * f64::from(self.cold_top)).round() as u32;
        load.seed = self.plan.seed + u64::from(sample);
        let cold = load.cold;
        let outcome = match server.drive(&load, &[], stop) {
            // At the quietest no request may fall into a short sample: it counts all the same.
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

/// Gathers a recording's intervals into samples, and writes these as a trial of their own: an
/// interval a sample, as they were logged in 1998.
pub(super) fn gather(raw: &Raw, out: &Path) -> Result<Vec<(usize, Interval)>, Error> {
    let trial = Trial::open(&raw.trial)?;
    let mut manifest = trial.manifest().clone();
    manifest.notes.push("gathered from shorter intervals: one a sample of the day".into());
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
                Some(sum) => add(sum, interval),
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

/// Adds what a later interval of the same sample has.
fn add(sum: &mut Interval, more: &Interval) {
    sum.length_ns += more.length_ns;
    sum.requests += more.requests;
    sum.requests_ended += more.requests_ended;
    sum.recorder_ns += more.recorder_ns;
    add_modes(&mut sum.machine, &more.machine);
    if let (Some(sum), Some(more)) = (&mut sum.server, &more.server) {
        add_times(sum, more);
    }
    for thread in &more.threads {
        let same = |other: &&mut ThreadTimes| (other.pid, other.tid) == (thread.pid, thread.tid);
        match sum.threads.iter_mut().find(same) {
            Some(sum) => {
                sum.total_ns += thread.total_ns;
                sum.user_ns += thread.user_ns;
                sum.kernel_ns += thread.kernel_ns;
                sum.wakes += thread.wakes;
            }
            None => sum.threads.push(thread.clone()),
        }
    }
}

fn add_modes(sum: &mut Modes, more: &Modes) {
    sum.user_ns += more.user_ns;
    sum.nice_ns += more.nice_ns;
    sum.system_ns += more.system_ns;
    sum.irq_ns += more.irq_ns;
    sum.softirq_ns += more.softirq_ns;
    sum.idle_ns += more.idle_ns;
    sum.iowait_ns += more.iowait_ns;
    sum.steal_ns += more.steal_ns;
    sum.guest_ns += more.guest_ns;
}

fn add_times(sum: &mut ProcessTimes, more: &ProcessTimes) {
    sum.user_ns += more.user_ns;
    sum.kernel_ns += more.kernel_ns;
    sum.total_ns += more.total_ns;
    sum.voluntary_switches += more.voluntary_switches;
    sum.involuntary_switches += more.involuntary_switches;
    sum.rss_bytes = sum.rss_bytes.max(more.rss_bytes);
    sum.descriptors = sum.descriptors.max(more.descriptors);
}

#[cfg(test)]
mod tests {
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
            // The fifth is not to be trusted.
            let valid = index != 5;
            writer.append(&interval(index, 100 * index as i64, 7.0, valid)).unwrap();
        }
        writer.finish().unwrap();
        let loaded =
            |sample, start_ns, end_ns| Loaded { sample, offered: 1.0, cold: 0, start_ns, end_ns };
        let raw = Raw {
            backend: "poll".into(),
            // The first from within interval 1 to within 6; the second has no whole one.
            loaded: vec![loaded(0, 150, 650), loaded(1, 710, 850), loaded(2, 800, 1000)],
            requests: 0,
            errors: 0,
            hits: 0,
            trial: path,
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
