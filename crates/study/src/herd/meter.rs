//! System calls: every one is counted, one in [`SAMPLE_EVERY`] is timed by the thread's CPU clock.
//!
//! Why the CPU clock: a wait sleeps, and what it sleeps is no cost. Why not every call: to read
//! that clock is a system call itself, twice for each call that is timed.

use load::sys::thread_cpu_ns;
use regress::Rng;
use serde::Serialize;

/// One call in so many is timed, drawn by chance so that no rhythm of the server is followed.
pub const SAMPLE_EVERY: u64 = 8;
/// Looks at the clock that tell what a look costs.
const CLOCK_LOOKS: usize = 501;

/// The calls that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
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
    pub(crate) const ALL: [Call; 5] =
        [Call::Wait, Call::Control, Call::Accept, Call::Read, Call::Write];
}

/// What is known of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// How often it was made.
    pub(super) calls: u64,
    /// How often it was timed.
    pub(super) timed: u64,
    /// Nanoseconds of those, the clock's own in them.
    pub(super) timed_ns: u64,
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

/// What the clock shows of nothing: the median of so many looks, nanoseconds. A timed call costs
/// about twice that more than one that is not.
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
        // One in eight; the seed is fixed, so that this is the same every time.
        assert!((800..1200).contains(&read.timed), "{read:?}");
        assert!(read.timed_ns > 0);
    }
}
