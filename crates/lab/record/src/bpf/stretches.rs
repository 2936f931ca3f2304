//! Turns and busy periods: the sums of the BPF program, read every interval.
//!
//! The program sums on each CPU and never resets its sums. A row of the trial is the current sum
//! over all CPUs minus the sum at the last boundary.
//!
//! The tracepoint that shows turns makes every system call on the machine slower. So the programs
//! are attached only in one interval of several. They are attached at the boundary, after
//! everything else was sampled. The recorder's thread takes less than a millisecond to attach and
//! detach the programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use trial::stretches::{SIZES, StretchKind, StretchRow, TurnRow};
use trial::{Loss, Writer};

use super::TurnsIn;
use super::ports::Ports;
use super::program::{Aligned, Fields, Program, forget, of_each_cpu};
use crate::clock;
use crate::error::Unsupported;

static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/stretches.bpf.o")));

/// Numbers of one class, and of all sums, as in `stretches.bpf.c`.
const NUMBERS_OF_CLASS: usize = 5;
const TOTALS: usize = 3;
const CLASSES: usize = StretchKind::ALL.len() * 2 * 2 * SIZES.len();
const NUMBERS: usize = TOTALS + NUMBERS_OF_CLASS * CLASSES;

/// The only kind of event that is not seen.
const NO_ROOM_THREADS: usize = 0;

impl TurnsIn {
    fn has(self, interval: u64) -> bool {
        match self {
            TurnsIn::FirstOf(n) => interval.is_multiple_of(u64::from(n.get())),
            TurnsIn::AllButLastOf(n) => !(interval + 1).is_multiple_of(u64::from(n.get())),
        }
    }
}

/// The sampler of turns and busy periods.
pub(crate) struct Stretches {
    program: Program,
    sums: MapHandle,
    threads: MapHandle,
    ports: Ports,
    /// The intervals in which turns are counted.
    counted: TurnsIn,
    /// Whether the programs are attached, for the thread that holds the server.
    attached: Arc<AtomicBool>,
    /// Since when the sums grow, on the monotonic clock; `None` if the programs are not attached.
    since_ns: Option<i64>,
    /// All sums at the last boundary.
    before: Vec<u64>,
}

impl Stretches {
    pub(crate) fn start(pids: &[u32], counted: TurnsIn) -> Result<Stretches, Unsupported> {
        let mut program = Program::start(OBJECT, pids)?;
        program.detach();
        let map = |name| program.map(name);
        let (sums, threads, ports) = (map("sums")?, map("threads")?, Ports::of(&program)?);
        Ok(Stretches {
            program,
            sums,
            threads,
            ports,
            counted,
            attached: Arc::default(),
            since_ns: None,
            before: vec![0; NUMBERS],
        })
    }

    /// For the thread that holds the server.
    pub(crate) fn marks(&self) -> Result<Marks, Unsupported> {
        let (controls, catching_ups) =
            (self.program.map("controls")?, self.program.map("catching_ups")?);
        Ok(Marks { controls, catching_ups, attached: Arc::clone(&self.attached), hold: 0 })
    }

    pub(crate) fn baseline(&mut self, pids: &[u32]) {
        self.program.observe(pids);
        self.take();
        self.program.take_unseen();
        self.begin(0, pids);
    }

    pub(crate) fn interval(
        &mut self,
        index: u64,
        pids: &[u32],
        writer: &mut Writer,
    ) -> Option<Loss> {
        if let Some(since_ns) = self.since_ns {
            let now_ns = clock::monotonic_ns();
            let (turns, rows) = rows(index, now_ns - since_ns, &self.take());
            self.since_ns = Some(now_ns);
            writer.stretches(turns, &rows);
        }
        self.program.observe(pids);
        let count = self.program.take_unseen()[NO_ROOM_THREADS];
        (count > 0).then(|| Loss {
            kind: "turns: no room for a thread".to_owned(),
            count,
            note: "more threads than the map can hold".to_owned(),
        })
    }

    /// Attaches or detaches the programs for the interval that begins.
    pub(crate) fn begin(&mut self, index: u64, pids: &[u32]) {
        if !self.counted.has(index) {
            self.attached.store(false, Ordering::Relaxed);
            self.program.detach();
            self.since_ns = None;
            return;
        }
        self.ports.follow(pids, false);
        if self.since_ns.is_none() {
            // Threads that were followed have moved on.
            forget(&self.threads);
            self.take();
            // They could be attached at the start; if that fails now, the interval is not sampled.
            self.since_ns = self.program.attach().is_ok().then(clock::monotonic_ns);
            self.attached.store(self.since_ns.is_some(), Ordering::Relaxed);
        }
    }

    /// By how much the sums grew since the last call.
    fn take(&mut self) -> Vec<u64> {
        let now = total(&of_each_cpu(&self.sums));
        let grown = now.iter().zip(&self.before).map(|(now, before)| now.wrapping_sub(*before));
        let grown = grown.collect();
        self.before = now;
        grown
    }
}

/// How the thread that holds the server marks the end of a hold.
#[derive(Debug)]
pub(crate) struct Marks {
    controls: MapHandle,
    catching_ups: MapHandle,
    attached: Arc<AtomicBool>,
    hold: u64,
}

impl Marks {
    /// Whether somebody counts how the server catches up.
    pub(crate) fn are_seen(&self) -> bool {
        self.attached.load(Ordering::Relaxed)
    }

    /// A hold ends now. What begins after `until_ns` does not belong to it.
    pub(crate) fn hold_ends(&mut self, hold: u64, ended_ns: i64, until_ns: i64) {
        debug_assert!(hold > self.hold && until_ns > ended_ns);
        self.hold = hold;
        let control = [hold, ended_ns.cast_unsigned(), until_ns.cast_unsigned()];
        let bytes: Vec<u8> = control.iter().flat_map(|number| number.to_ne_bytes()).collect();
        // The map has one entry, which can always be written.
        let _ = self.controls.update(&0u32.to_ne_bytes(), &bytes, MapFlags::ANY);
    }

    /// The longest time from the end of the last hold until a thread had caught up; 0 if none did.
    pub(crate) fn caught_up_ns(&self) -> i64 {
        let per_cpu = of_each_cpu(&self.catching_ups);
        let longest = per_cpu.iter().filter_map(|bytes| {
            let mut fields = Fields(bytes);
            let (_done, hold, longest_ns) = (fields.u64(), fields.u64(), fields.ns());
            (hold == self.hold).then_some(longest_ns)
        });
        longest.max().unwrap_or(0)
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

/// The rows of an interval. A class without stretches has none.
fn rows(interval: u64, sampled_ns: i64, sums: &[u64]) -> (TurnRow, Vec<StretchRow>) {
    assert_eq!(sums.len(), NUMBERS);
    let (totals, classes) = sums.split_at(TOTALS);
    let [turns, clients, upstreams] = [totals[0], totals[1], totals[2]];
    let turns = TurnRow { interval, sampled_ns, turns, clients, upstreams };
    let rows = classes.chunks_exact(NUMBERS_OF_CLASS).enumerate();
    let rows = rows.filter(|(_, sums)| sums[0] > 0).map(|(at, sums)| StretchRow {
        interval,
        kind: StretchKind::ALL[at / SIZES.len() / 4],
        held: at / SIZES.len() / 2 % 2 == 1,
        served: at / SIZES.len() % 2 == 1,
        size: SIZES[at % SIZES.len()],
        stretches: sums[0],
        turns: sums[1],
        clients: sums[2],
        upstreams: sums[3],
        cpu_ns: i64::try_from(sums[4]).unwrap_or(i64::MAX),
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
        // The last class of turns after a hold.
        let at = TOTALS + NUMBERS_OF_CLASS * (8 * SIZES.len() - 1);
        of_cpu[at..at + NUMBERS_OF_CLASS].copy_from_slice(&[1, 2, 3, 4, 5]);
        let bytes: Vec<u8> = of_cpu.iter().flat_map(|number| number.to_ne_bytes()).collect();
        let (turns, rows) = rows(7, 1_000, &total(&[bytes.clone(), bytes]));
        let expected =
            TurnRow { interval: 7, sampled_ns: 1_000, turns: 100, clients: 120, upstreams: 140 };
        assert_eq!(turns, expected);
        let expected = StretchRow {
            interval: 7,
            kind: StretchKind::Turn,
            held: true,
            served: true,
            size: 65,
            stretches: 2,
            turns: 4,
            clients: 6,
            upstreams: 8,
            cpu_ns: 10,
        };
        assert_eq!(rows, [expected]);
    }
}
