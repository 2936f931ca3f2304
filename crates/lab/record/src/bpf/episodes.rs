//! Turns and episodes: the sums of the BPF program, read every interval.
//!
//! The program sums on each CPU and never resets its sums. A row of the trial is the current sum
//! over all CPUs minus the sum at the last boundary.
//!
//! The tracepoint that shows turns makes every system call on the machine slower. So the programs
//! are attached only in one interval of several. They are attached at the boundary, after
//! everything else was sampled. The recorder's thread takes less than a millisecond to attach and
//! detach the programs.

use std::num::NonZeroU32;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use trial::episodes::{CLASS_MAX, EpisodeRow, TurnRow};
use trial::{Loss, Writer};

use super::program::{Aligned, Fields, Program};
use crate::clock;
use crate::error::{Error, Unsupported};

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/episodes.bpf.o")));

/// Numbers of one class, and of all sums, as in `episodes.bpf.c`.
const NUMBERS_OF_CLASS: usize = 10;
const TOTALS: usize = 3;
const NUMBERS: usize = TOTALS + NUMBERS_OF_CLASS * (CLASS_MAX as usize + 1);

/// Threads that are forgotten per call.
const BATCH: u32 = 256;

/// The square of the unit in which the program squares CPU time, ns².
const SQUARED_UNIT_NS2: f64 = 64.0 * 64.0;

/// The only kind of event that is not seen.
const NO_ROOM_THREADS: usize = 0;

/// The sampler of turns and episodes.
pub(crate) struct Episodes {
    program: Program,
    sums: MapHandle,
    threads: MapHandle,
    /// The first of this many intervals is sampled.
    every: u64,
    /// Since when the sums grow, on the monotonic clock; `None` if the programs are not attached.
    since_ns: Option<i64>,
    /// All sums at the last boundary.
    before: Vec<u64>,
}

impl Episodes {
    pub(crate) fn start(pids: &[u32], every: NonZeroU32) -> Result<Episodes, Unsupported> {
        let mut program = Program::start(OBJECT, pids)?;
        program.detach();
        let (sums, threads) = (program.map("sums")?, program.map("threads")?);
        let (every, before) = (u64::from(every.get()), vec![0; NUMBERS]);
        Ok(Episodes { program, sums, threads, every, since_ns: None, before })
    }

    pub(crate) fn baseline(&mut self, pids: &[u32]) {
        self.program.observe(pids);
        self.take();
        self.program.take_unseen();
        self.begin(0);
    }

    pub(crate) fn interval(
        &mut self,
        index: u64,
        pids: &[u32],
        writer: &mut Writer,
    ) -> Result<Option<Loss>, Error> {
        if let Some(since_ns) = self.since_ns {
            let now_ns = clock::monotonic_ns();
            let (turns, rows) = rows(index, now_ns - since_ns, &self.take());
            self.since_ns = Some(now_ns);
            writer.episodes(turns, &rows)?;
        }
        self.program.observe(pids);
        let count = self.program.take_unseen()[NO_ROOM_THREADS];
        Ok((count > 0).then(|| Loss {
            kind: "episodes: no room for a thread".to_owned(),
            count,
            note: "more threads than the map can hold".to_owned(),
        }))
    }

    /// Attaches or detaches the programs for the interval that begins.
    pub(crate) fn begin(&mut self, index: u64) {
        let samples = index.is_multiple_of(self.every);
        if !samples {
            self.program.detach();
            self.since_ns = None;
        } else if self.since_ns.is_none() {
            // Threads that were followed have moved on.
            let threads = self.threads.lookup_and_delete_batch(BATCH, MapFlags::ANY, MapFlags::ANY);
            threads.map(|threads| threads.for_each(drop)).ok();
            self.take();
            // They could be attached at the start; if that fails now, the interval is not sampled.
            self.since_ns = self.program.attach().is_ok().then(clock::monotonic_ns);
        }
    }

    /// By how much the sums grew since the last call.
    fn take(&mut self) -> Vec<u64> {
        let found = self.sums.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        // The map has one entry, which cannot be missing.
        let per_cpu = found.ok().flatten().unwrap_or_default();
        let now = total(&per_cpu);
        let grown = now.iter().zip(&self.before).map(|(now, before)| now.wrapping_sub(*before));
        let grown = grown.collect();
        self.before = now;
        grown
    }
}

/// The sums of all CPUs together.
fn total(per_cpu: &[Vec<u8>]) -> Vec<u64> {
    let mut total = vec![0u64; NUMBERS];
    for of_cpu in per_cpu {
        let mut fields = Fields(of_cpu);
        for sum in &mut total {
            *sum = sum.wrapping_add(fields.u64());
        }
    }
    total
}

/// The rows of an interval. A class without episodes has none.
fn rows(interval: u64, sampled_ns: i64, sums: &[u64]) -> (TurnRow, Vec<EpisodeRow>) {
    let ns = |sum: u64| i64::try_from(sum).unwrap_or(i64::MAX);
    let (totals, classes) = sums.split_at(TOTALS);
    let turns = TurnRow {
        interval,
        sampled_ns,
        turns: totals[0],
        events: totals[1],
        cpu_ns: ns(totals[2]),
    };
    let rows = (0..).zip(classes.chunks_exact(NUMBERS_OF_CLASS)).filter(|(_, sums)| sums[0] > 0);
    let rows = rows.map(|(class, sums)| EpisodeRow {
        interval,
        class,
        episodes: sums[0],
        turns: sums[1],
        events: sums[2],
        cpu_ns: ns(sums[3]),
        turns_turns: sums[4] as f64,
        turns_events: sums[5] as f64,
        events_events: sums[6] as f64,
        turns_cpu_ns: sums[7] as f64,
        events_cpu_ns: sums[8] as f64,
        cpu_cpu_ns2: sums[9] as f64 * SQUARED_UNIT_NS2,
    });
    (turns, rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_all_cpus_become_the_rows_of_their_classes() {
        let mut of_cpu: Vec<u64> = vec![0; NUMBERS];
        of_cpu[..TOTALS].copy_from_slice(&[50, 60, 70]);
        let at = TOTALS + NUMBERS_OF_CLASS * 2;
        of_cpu[at..at + NUMBERS_OF_CLASS].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let bytes: Vec<u8> = of_cpu.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let (turns, rows) = rows(7, 1_000, &total(&[bytes.clone(), bytes]));
        assert_eq!(
            turns,
            TurnRow { interval: 7, sampled_ns: 1_000, turns: 100, events: 120, cpu_ns: 140 }
        );
        let expected = EpisodeRow {
            interval: 7,
            class: 2,
            episodes: 2,
            turns: 4,
            events: 6,
            cpu_ns: 8,
            turns_turns: 10.0,
            turns_events: 12.0,
            events_events: 14.0,
            turns_cpu_ns: 16.0,
            events_cpu_ns: 18.0,
            cpu_cpu_ns2: 20.0 * 4096.0,
        };
        assert_eq!(rows, [expected]);
    }
}
