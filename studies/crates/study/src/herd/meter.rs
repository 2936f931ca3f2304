//! System calls: every one is counted, one in [`SAMPLE_EVERY`] is timed by the thread's CPU clock.
//!
//! Why the CPU clock: a wait sleeps, and sleeping costs nothing. Why not every call: reading that
//! clock is a system call itself, and a timed call needs two of them.

use std::ops::AddAssign;

use load::sys::thread_cpu_ns;
use regress::Rng;
use serde::Serialize;

/// One call in so many is timed. The choice is random, so that it follows no rhythm of the server.
pub(super) const SAMPLE_EVERY: u64 = 8;
/// Readings of the clock from which the cost of a reading is taken.
const CLOCK_LOOKS: usize = 501;

/// The calls that are measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Call {
    /// `epoll_wait`, or `poll`.
    Wait,
    /// `epoll_ctl`.
    Control,
    /// `accept` and the change to non-blocking.
    Accept,
    /// `read`.
    Read,
    /// `write`.
    Write,
}

impl Call {
    /// All of them.
    pub(super) const ALL: [Call; 5] =
        [Call::Wait, Call::Control, Call::Accept, Call::Read, Call::Write];
}

/// The measurements of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// How often it was called.
    pub(super) calls: u64,
    /// How often it was timed.
    pub(super) timed: u64,
    /// Nanoseconds of the timed calls, including those of the clock.
    pub(super) timed_ns: u64,
}

impl Counted {
    /// CPU time of one call, nanoseconds, minus what the clock shows for an empty call. NaN if none
    /// was timed.
    pub(super) fn each_ns(&self, clock_ns: u64) -> f64 {
        match self.timed {
            0 => f64::NAN,
            timed => (self.timed_ns as f64 / timed as f64 - clock_ns as f64).max(0.0),
        }
    }
}

impl AddAssign for Counted {
    fn add_assign(&mut self, more: Counted) {
        self.calls += more.calls;
        self.timed += more.timed;
        self.timed_ns += more.timed_ns;
    }
}

/// The calls of one worker.
pub(super) struct Meter {
    counted: [Counted; Call::ALL.len()],
    rng: Rng,
}

impl Meter {
    pub(super) fn new(seed: u64) -> Meter {
        Meter { counted: [Counted::default(); Call::ALL.len()], rng: Rng::new(seed) }
    }

    /// Makes a call.
    pub(super) fn call<T>(&mut self, which: Call, call: impl FnOnce() -> T) -> T {
        let timed = self.rng.next_u64().is_multiple_of(SAMPLE_EVERY);
        let counted = &mut self.counted[which as usize];
        counted.calls += 1;
        if !timed {
            return call();
        }
        let before = thread_cpu_ns();
        let returned = call();
        counted.timed_ns += thread_cpu_ns() - before;
        counted.timed += 1;
        returned
    }

    pub(super) fn counted(&self) -> [Counted; Call::ALL.len()] {
        self.counted
    }
}

/// What the clock shows for an empty call: the median of many readings, nanoseconds. A timed call
/// costs about twice that more than an untimed one.
pub(super) fn clock_ns() -> u64 {
    let mut seen: Vec<u64> = (0..CLOCK_LOOKS)
        .map(|_| {
            let before = thread_cpu_ns();
            thread_cpu_ns() - before
        })
        .collect();
    seen.sort_unstable();
    seen[CLOCK_LOOKS / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_calls_are_counted_and_a_part_is_timed() {
        let mut meter = Meter::new(1);
        for _ in 0..8_000 {
            assert_eq!(meter.call(Call::Read, || 7), 7);
        }
        meter.call(Call::Write, || ());
        let [wait, _, _, read, write] = meter.counted();
        assert_eq!((wait.calls, read.calls, write.calls), (0, 8_000, 1));
        // One in eight. The seed is fixed, so the number is always the same.
        assert!((800..1200).contains(&read.timed), "{read:?}");
        assert!(read.timed_ns > 0);
    }
}
