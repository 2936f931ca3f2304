//! The processor's own counters per interval: cycles, instructions, and references to and misses of
//! the last-level cache, for the server's threads and for every CPU.
//!
//! One event per kind is opened on every CPU, and on every thread that the server has when the
//! recording begins. The latter are inherited: what a thread or a process starts later is counted
//! with its starter, until it ends. A process of the server's name that was not started by the
//! server is followed from the sample that found it.
//!
//! A kind is only used if a probe confirms that it counts, with a loop of a known number of
//! instructions and a walk through uncached memory. If there are more events than hardware
//! counters, the kernel multiplexes them; counts are scaled by the time they ran, and the trial
//! contains the smallest fraction.
//!
//! Counts come from a [`Source`], so that the path from there into the trial can be tested on
//! machines without counters.

mod perf;
mod probe;

use std::collections::BTreeSet;
use std::io;

use trial::Writer;
pub(crate) use trial::counters::Kind;
use trial::counters::{CounterRow, Counts, Whose};

pub(crate) use self::perf::Perf;
pub use self::probe::known_loop;
use crate::error::{Error, Unsupported};
use crate::profile::event::EventId;

/// Most server threads followed from the beginning: each needs one descriptor per kind.
const THREADS_MAX: usize = 512;

/// Where an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// On a CPU, for all processes.
    Cpu(i32),
    /// In a thread and everything it starts, on any CPU.
    Thread(u32),
    /// In this thread, in user mode only: for the probe.
    Here,
}

/// The count of an event since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) count: u64,
    /// How long it was enabled, ns.
    pub(crate) enabled_ns: u64,
    /// How long it was counting, ns.
    pub(crate) running_ns: u64,
}

/// An open event.
pub(crate) trait Event {
    fn read(&mut self) -> io::Result<Reading>;
}

/// The source of counts.
pub(crate) trait Source {
    type Event: Event;

    fn open(&mut self, kind: Kind, at: At) -> io::Result<Self::Event>;

    /// The CPUs that are online.
    fn cpus(&self) -> Vec<i32>;

    /// The threads of a process.
    fn threads(&self, pid: u32) -> Vec<u32>;

    /// The parent of a process.
    fn parent(&mut self, pid: u32) -> Option<u32>;
}

/// The open counters.
pub(crate) struct Counters<S: Source = Perf> {
    source: S,
    kinds: Vec<Kind>,
    /// Why the other kinds are not counted.
    missing: Vec<String>,
    /// Events by owner and by kind, in the order of `Whose::ALL` and `kinds`.
    events: [Vec<Vec<Followed<S::Event>>>; 2],
    /// Processes that are counted, by their own event or by their parent's.
    processes: BTreeSet<u32>,
    threads: usize,
}

struct Followed<E> {
    event: E,
    last: Reading,
}

impl Counters<Perf> {
    /// Starts counting what the machine and these processes do.
    pub(crate) fn start(pids: &[u32]) -> Result<Counters, Unsupported> {
        Counters::of(Perf::hardware(), pids, &probe::probe)
    }

    /// The kinds that count, and the event of each.
    pub(crate) fn kinds(&self) -> Vec<(Kind, EventId)> {
        self.kinds.iter().map(|&kind| (kind, self.source.what(kind))).collect()
    }
}

impl<S: Source> Counters<S> {
    /// Uses the kinds that the probe accepts.
    fn of(
        mut source: S,
        pids: &[u32],
        probe: &dyn Fn(&mut S, Kind) -> Result<(), String>,
    ) -> Result<Counters<S>, Unsupported> {
        let (mut kinds, mut missing) = (Vec::new(), Vec::new());
        for kind in Kind::ALL {
            match probe(&mut source, kind) {
                Ok(()) => kinds.push(kind),
                Err(why) => missing.push((kind, why)),
            }
        }
        let missing = by_reason(&missing);
        if kinds.is_empty() {
            return Err(Unsupported(missing.join("; ")));
        }
        let mut counters = Counters {
            events: [(); 2].map(|()| kinds.iter().map(|_| Vec::new()).collect()),
            source,
            kinds,
            missing,
            processes: BTreeSet::new(),
            threads: 0,
        };
        for cpu in counters.source.cpus() {
            counters
                .open(Whose::Machine, At::Cpu(cpu))
                .map_err(|error| Unsupported(perf::why(&error)))?;
        }
        for &pid in pids {
            counters.follow_process(pid);
        }
        Ok(counters)
    }

    /// Describes what it counts, for the manifest.
    pub(crate) fn describe(&self) -> String {
        let kinds: Vec<&str> = self.kinds.iter().map(|kind| kind.name()).collect();
        let mut text = format!("{}, of the server's threads and of every CPU", kinds.join(", "));
        for missing in &self.missing {
            text.push_str("; not supported here: ");
            text.push_str(missing);
        }
        text
    }

    /// Discards what came before the first interval.
    pub(crate) fn baseline(&mut self, pids: &[u32]) {
        self.follow(pids);
        let all = self.events.iter_mut().flatten().flatten();
        all.for_each(|followed| followed.last = followed.event.read().unwrap_or(followed.last));
    }

    /// Writes the counts since the last call to the trial. Returns how many threads have started
    /// since then that are not followed.
    pub(crate) fn interval(
        &mut self,
        index: u64,
        pids: &[u32],
        writer: &mut Writer,
    ) -> Result<u64, Error> {
        let rows = Whose::ALL.map(|whose| self.row(index, whose));
        writer.counters(&rows)?;
        Ok(self.follow(pids))
    }

    fn row(&mut self, interval: u64, whose: Whose) -> CounterRow {
        let mut counts = Counts::default();
        let mut counted = 1.0_f64;
        for (kind, events) in self.kinds.iter().zip(&mut self.events[whose as usize]) {
            let mut sum = Some(0.0);
            for followed in events {
                let (count, share) = followed.advance();
                sum = sum.zip(count).map(|(sum, count)| sum + count);
                counted = counted.min(share);
            }
            let found = sum.map(|sum: f64| sum.round() as u64);
            match kind {
                Kind::Cycles => counts.cycles = found,
                Kind::Instructions => counts.instructions = found,
                Kind::CacheReferences => counts.cache_references = found,
                Kind::CacheMisses => counts.cache_misses = found,
            }
        }
        CounterRow { interval, whose, counts, counted }
    }

    /// Follows the new processes and returns how many of their threads are not followed.
    fn follow(&mut self, pids: &[u32]) -> u64 {
        let new: Vec<u32> =
            pids.iter().copied().filter(|pid| !self.processes.contains(pid)).collect();
        // The number of an ended process may be reused.
        self.processes.retain(|pid| pids.contains(pid));
        let mut lost = 0;
        for pid in new {
            let inherited =
                self.source.parent(pid).is_some_and(|parent| self.processes.contains(&parent));
            if inherited {
                self.processes.insert(pid);
            } else {
                lost += self.follow_process(pid);
            }
        }
        lost
    }

    /// Opens events for all threads of a process and returns how many could not be followed.
    fn follow_process(&mut self, pid: u32) -> u64 {
        self.processes.insert(pid);
        let mut lost = 0;
        for tid in self.source.threads(pid) {
            let room = self.threads < THREADS_MAX;
            if room && self.open(Whose::Server, At::Thread(tid)).is_ok() {
                self.threads += 1;
            } else {
                lost += 1;
            }
        }
        lost
    }

    /// Opens all kinds at a place, or none.
    fn open(&mut self, whose: Whose, at: At) -> io::Result<()> {
        let mut opened = Vec::with_capacity(self.kinds.len());
        for &kind in &self.kinds {
            let event = self.source.open(kind, at)?;
            opened.push(Followed { event, last: Reading::default() });
        }
        for (events, event) in self.events[whose as usize].iter_mut().zip(opened) {
            events.push(event);
        }
        Ok(())
    }
}

impl<E: Event> Followed<E> {
    /// The count since the last call, scaled to the time in which it should have counted, and the
    /// fraction of that time in which it did. `None` if it never counted, or no longer does.
    fn advance(&mut self) -> (Option<f64>, f64) {
        let Ok(now) = self.event.read() else { return (None, 0.0) };
        let last = std::mem::replace(&mut self.last, now);
        let count = now.count.saturating_sub(last.count) as f64;
        let enabled_ns = now.enabled_ns.saturating_sub(last.enabled_ns) as f64;
        let running_ns = now.running_ns.saturating_sub(last.running_ns) as f64;
        match (enabled_ns > 0.0, running_ns > 0.0) {
            // A thread that did not run.
            (false, _) => (Some(count), 1.0),
            (true, false) => (None, 0.0),
            (true, true) => {
                let share = (running_ns / enabled_ns).min(1.0);
                (Some(count / share), share)
            }
        }
    }
}

/// One sentence for all kinds that are missing for the same reason.
fn by_reason(missing: &[(Kind, String)]) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (kind, why) in missing {
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, kinds)) => kinds.push(kind.name()),
            None => reasons.push((why, vec![kind.name()])),
        }
    }
    reasons.into_iter().map(|(why, kinds)| format!("{}: {why}", kinds.join(", "))).collect()
}

#[cfg(test)]
mod tests;
