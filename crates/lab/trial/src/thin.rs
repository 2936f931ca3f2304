//! Trials made coarser, cut and joined, for recordings of days and weeks; and trials with the
//! requests of another source, or without what follows holds.
//!
//! Thinning merges neighbouring intervals: lengths, CPU times, requests, classes and devices are
//! added up, histograms of latencies are merged, and of a gauge (processes, memory, descriptors)
//! the last value counts. So every total of the trial stays exact, and only the resolution in time
//! is lost.
//!
//! These intervals are never merged: such with a gap between them, such of different phases, and
//! one with a valid rate with one without.
//!
//! Only what a continuous recording has takes part: intervals with their CPUs and threads,
//! latencies, classes, devices, pinned threads and losses. A profile, counters, waits, files and
//! stretches are left out of the result. [`Trial::has_samples`] says whether there are any.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hdrhistogram::Histogram;

use crate::classes::ClassRow;
use crate::error::Error;
use crate::model::{
    CpuModes, Interval, LatencyRow, LatencySource, Loss, Modes, NOTE_ACCEPT_QUEUE, ProcessTimes,
    ThreadTimes, accept_queue_full,
};
use crate::reader::Trial;
use crate::resources::DeviceUse;
use crate::writer::Writer;

/// Intervals that are this far apart have a gap between them. Two samples are never exactly one
/// length apart, and a clock that is adjusted moves by less.
const GAP_NS: i64 = 500_000_000;

impl Trial {
    /// Whether it has rows that [`thinned`](Trial::thinned) leaves out.
    pub fn has_samples(&self) -> bool {
        !(self.profile.samples.is_empty()
            && self.waits.is_empty()
            && self.files.is_empty()
            && self.counters.is_empty()
            && self.counted.is_empty()
            && self.turns.is_empty()
            && self.stretches.is_empty()
            && self.answers.is_empty()
            && self.upstreams.is_empty()
            && self.predictions.is_empty())
    }

    /// The same trial with intervals of at most `length_ns`, which begin at multiples of it since
    /// the Unix epoch. Longer intervals stay as they are.
    #[must_use]
    pub fn thinned(self, length_ns: i64) -> Trial {
        assert!(length_ns > 0, "an interval has a length");
        let mut merged: Vec<Interval> = Vec::new();
        let mut numbers = BTreeMap::new();
        let mut last: Option<Interval> = None;
        for interval in &self.intervals {
            let joins = last.as_ref().is_some_and(|last| {
                let bin = |one: &Interval| one.start_ns.div_euclid(length_ns);
                let end_ns = last.start_ns + last.length_ns;
                let into_ns = merged.last().map_or(0, |into| into.length_ns);
                bin(last) == bin(interval)
                    && into_ns + interval.length_ns <= length_ns + GAP_NS
                    && (interval.start_ns - end_ns).abs() < GAP_NS
                    && last.index + 1 == interval.index
                    && last.rate_valid == interval.rate_valid
                    && last.phase == interval.phase
                    && last.server.is_some() == interval.server.is_some()
            });
            match merged.last_mut() {
                Some(into) if joins => into.add(interval),
                before => {
                    // A gap in the numbers stays a gap.
                    let gap = last.as_ref().is_some_and(|last| last.index + 1 < interval.index);
                    let index = before.map_or(0, |before| before.index + 1 + u64::from(gap));
                    merged.push(Interval { index, ..interval.clone() });
                }
            }
            let into = merged.last().expect("one was pushed").index;
            numbers.insert(interval.index, into);
            last = Some(interval.clone());
        }
        let length_ns_of = |all: &[Interval]| all.iter().map(|one| one.length_ns).sum::<i64>();
        debug_assert_eq!(length_ns_of(&merged), length_ns_of(&self.intervals), "a total is exact");
        debug_assert!(merged.windows(2).all(|pair| pair[0].index < pair[1].index));
        let number = |old: u64| {
            let before = numbers.range(..=old).next_back().or_else(|| numbers.iter().next());
            before.map_or(0, |(_, new)| *new)
        };
        let mut manifest = self.manifest;
        manifest.interval_ns = manifest.interval_ns.max(length_ns);
        Trial {
            path: self.path,
            complete: self.complete,
            manifest,
            latencies: latencies(self.latencies, number),
            classes: classes(self.classes, number),
            device_uses: device_uses(self.device_uses, number),
            bound_threads: self.bound_threads,
            losses: self.losses,
            intervals: merged,
            ..Trial::default()
        }
    }

    /// The intervals that begin in a span, with their rows. Losses belong to the whole trial and
    /// stay.
    #[must_use]
    pub fn between(mut self, from_ns: i64, to_ns: i64) -> Trial {
        self.intervals.retain(|one| (from_ns..to_ns).contains(&one.start_ns));
        let ends = self.intervals.first().zip(self.intervals.last());
        let span = ends.map(|(first, last)| first.index..=last.index);
        let within = |interval: u64| span.as_ref().is_some_and(|span| span.contains(&interval));
        self.latencies.retain(|row| within(row.interval));
        self.classes.retain(|row| within(row.interval));
        self.device_uses.retain(|row| within(row.interval));
        self.profile.samples.retain(|row| within(row.interval));
        self.waits.retain(|row| within(row.interval));
        self.counters.retain(|row| within(row.interval));
        self.counted.retain(|row| within(row.interval));
        self.turns.retain(|row| within(row.interval));
        self.stretches.retain(|row| within(row.interval));
        self.answers.retain(|row| within(row.interval));
        self.upstreams.retain(|row| within(row.interval));
        self
    }

    /// The requests of each interval are those that another source counted, such as the generator
    /// of the load.
    #[must_use]
    pub fn with_requests(mut self, of: impl Fn(&Interval) -> f64) -> Trial {
        for interval in &mut self.intervals {
            (interval.requests, interval.rate_valid) = (of(interval), true);
        }
        self
    }

    /// Without what was seen after holds, as if only turns and busy periods had been counted.
    #[must_use]
    pub fn without_holds(mut self) -> Trial {
        self.stretches.retain(|row| !row.held);
        self
    }

    /// Trials of one server as one trial with this name, in the order of their times, with a gap
    /// between them. The description is that of the last. `None` without a trial.
    #[must_use]
    pub fn joined(mut trials: Vec<Trial>, name: &str) -> Option<Trial> {
        trials.sort_by_key(|trial| trial.manifest.created_ns);
        let mut joined = Trial { complete: true, ..Trial::default() };
        let mut next = 0;
        let mut created_ns = None;
        let mut losses: BTreeMap<String, Loss> = BTreeMap::new();
        let mut full = 0;
        for trial in trials {
            created_ns.get_or_insert(trial.manifest.created_ns);
            let move_by = |index: &mut u64| *index += next;
            let end = trial.intervals.last().map_or(next, |last| next + last.index + 2);
            let Trial { mut intervals, mut latencies, mut classes, mut device_uses, .. } = trial;
            intervals.iter_mut().for_each(|one| move_by(&mut one.index));
            latencies.iter_mut().for_each(|row| move_by(&mut row.interval));
            classes.iter_mut().for_each(|row| move_by(&mut row.interval));
            device_uses.iter_mut().for_each(|row| move_by(&mut row.interval));
            joined.intervals.append(&mut intervals);
            joined.latencies.append(&mut latencies);
            joined.classes.append(&mut classes);
            joined.device_uses.append(&mut device_uses);
            joined.bound_threads.extend(trial.bound_threads);
            for loss in trial.losses {
                let sum = losses.entry(loss.kind.clone()).or_default();
                *sum = Loss { count: sum.count + loss.count, ..loss };
            }
            full += accept_queue_full(&trial.manifest).unwrap_or(0);
            joined.manifest = trial.manifest;
            next = end;
        }
        // The notes of the last trial are kept, but this one is a sum.
        joined.manifest.notes.retain(|note| !note.starts_with(NOTE_ACCEPT_QUEUE));
        if full > 0 {
            joined.manifest.notes.push(format!("{NOTE_ACCEPT_QUEUE}{full}"));
        }
        joined.manifest.created_ns = created_ns?;
        joined.losses = losses.into_values().collect();
        joined.path = PathBuf::from(name);
        Some(joined)
    }

    /// Writes what [`thinned`](Trial::thinned) keeps into a new file, as a complete trial, and
    /// syncs it to the disk.
    pub fn write_thinned(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let mut manifest = self.manifest.clone();
        if !self.complete {
            manifest.notes.push("the recorder was killed: the last interval is missing".to_owned());
        }
        let mut writer = Writer::create(path, &manifest)?;
        writer.classes(&self.classes)?;
        writer.device_uses(&self.device_uses);
        writer.bound_threads(&self.bound_threads);
        writer.append_many(&self.intervals)?;
        writer.amend(&[], &self.latencies)?;
        self.losses.iter().try_for_each(|loss| writer.loss(loss))?;
        writer.finish().map(drop)
    }
}

impl Interval {
    /// Adds a later interval to this one, which becomes longer.
    pub fn add(&mut self, later: &Interval) {
        self.length_ns += later.length_ns;
        add_modes(&mut self.machine, &later.machine);
        if let Some((own, later)) = self.server.as_mut().zip(later.server.as_ref()) {
            add_times(own, later);
        }
        let same_cpu = |a: &CpuModes, b: &CpuModes| a.cpu == b.cpu;
        sum_up(&mut self.cpus, &later.cpus, same_cpu, |own, later| {
            add_modes(&mut own.modes, &later.modes);
        });
        let same_thread =
            |a: &ThreadTimes, b: &ThreadTimes| (a.pid, a.tid) == (b.pid, b.tid) && a.name == b.name;
        sum_up(&mut self.threads, &later.threads, same_thread, |own, later| {
            own.total_ns += later.total_ns;
            own.user_ns += later.user_ns;
            own.kernel_ns += later.kernel_ns;
            own.wakes += later.wakes;
        });
        self.requests += later.requests;
        self.requests_ended += later.requests_ended;
        self.recorder_ns += later.recorder_ns;
    }
}

fn add_modes(into: &mut Modes, one: &Modes) {
    let Modes {
        user_ns,
        nice_ns,
        system_ns,
        irq_ns,
        softirq_ns,
        idle_ns,
        iowait_ns,
        steal_ns,
        guest_ns,
    } = one;
    into.user_ns += user_ns;
    into.nice_ns += nice_ns;
    into.system_ns += system_ns;
    into.irq_ns += irq_ns;
    into.softirq_ns += softirq_ns;
    into.idle_ns += idle_ns;
    into.iowait_ns += iowait_ns;
    into.steal_ns += steal_ns;
    into.guest_ns += guest_ns;
}

/// Times and counts add up; of the gauges, the later value counts.
fn add_times(into: &mut ProcessTimes, one: &ProcessTimes) {
    *into = ProcessTimes {
        user_ns: into.user_ns + one.user_ns,
        kernel_ns: into.kernel_ns + one.kernel_ns,
        total_ns: into.total_ns + one.total_ns,
        voluntary_switches: into.voluntary_switches + one.voluntary_switches,
        involuntary_switches: into.involuntary_switches + one.involuntary_switches,
        processes: one.processes,
        threads: one.threads,
        rss_bytes: one.rss_bytes,
        descriptors: one.descriptors.or(into.descriptors),
    };
}

/// Adds each item to the same one that is there already, and the others at the end.
fn sum_up<T: Clone>(
    into: &mut Vec<T>,
    items: &[T],
    same: impl Fn(&T, &T) -> bool,
    add: impl Fn(&mut T, &T),
) {
    for (at, item) in items.iter().enumerate() {
        // In most intervals the threads are those of the interval before, in the same order.
        let there = match into.get(at) {
            Some(there) if same(there, item) => Some(at),
            _ => into.iter().position(|there| same(there, item)),
        };
        match there {
            Some(there) => add(&mut into[there], item),
            None => into.push(item.clone()),
        }
    }
}

/// Rows of an interval with the same source are merged. A row whose histogram cannot be decoded is
/// kept as it is.
fn latencies(rows: Vec<LatencyRow>, number: impl Fn(u64) -> u64) -> Vec<LatencyRow> {
    let mut merged: BTreeMap<(u64, LatencySource, bool), Histogram<u64>> = BTreeMap::new();
    let mut others = Vec::new();
    for mut row in rows {
        row.interval = number(row.interval);
        let Some(histogram) = row.histogram_us() else {
            others.push(row);
            continue;
        };
        match merged.entry((row.interval, row.source, row.invalid)) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(histogram).auto(true);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                entry.get_mut().add(&histogram).expect("a histogram that grows takes every value");
            }
        }
    }
    let row = |((interval, source, invalid), histogram)| {
        LatencyRow::new(interval, source, invalid, &histogram)
    };
    others.extend(merged.into_iter().map(row));
    others.sort_by_key(|row| (row.interval, row.source, row.invalid));
    others
}

fn classes(rows: Vec<ClassRow>, number: impl Fn(u64) -> u64) -> Vec<ClassRow> {
    let mut merged: BTreeMap<(u64, String), ClassRow> = BTreeMap::new();
    for mut row in rows {
        row.interval = number(row.interval);
        match merged.get_mut(&(row.interval, row.class.clone())) {
            Some(into) => {
                into.requests += row.requests;
                into.ended += row.ended;
                into.bytes += row.bytes;
            }
            None => {
                merged.insert((row.interval, row.class.clone()), row);
            }
        }
    }
    merged.into_values().collect()
}

fn device_uses(rows: Vec<DeviceUse>, number: impl Fn(u64) -> u64) -> Vec<DeviceUse> {
    let mut merged: BTreeMap<_, DeviceUse> = BTreeMap::new();
    for mut row in rows {
        row.interval = number(row.interval);
        match merged.get_mut(&(row.interval, row.device.kind, row.device.name.clone())) {
            Some(into) => {
                into.busy_ns = into.busy_ns.zip(row.busy_ns).map(|(one, other)| one + other);
                into.in_bytes += row.in_bytes;
                into.out_bytes += row.out_bytes;
                into.in_count += row.in_count;
                into.out_count += row.out_count;
            }
            None => {
                merged.insert((row.interval, row.device.kind, row.device.name.clone()), row);
            }
        }
    }
    merged.into_values().collect()
}
