//! The coherence of caches, simulated: which accesses find a line that another thread has.
//!
//! Each thread has a cache without a bound, with the states of MESI. So a line leaves a cache only
//! because another thread writes to the line. A transfer is one of these accesses:
//!
//! - a read of a line that another thread has written, and that this thread has no copy of;
//! - a write to a line of which another thread has a copy, and this thread has none;
//! - an upgrade: a write to a line of which this thread and another thread have copies.

use std::collections::HashMap;
use std::hash::Hash;

/// Bytes of a line, on the processors of x86-64 and most of ARM.
pub(super) const LINE_BYTES: u64 = 64;
/// The numbers of threads are lower. Each thread has a bit.
pub(super) const THREADS_MAX: usize = 128;

/// What an access does to its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Read,
    /// Also a read and a write by one instruction, such as an atomic addition.
    Write,
}

/// One access of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) thread: usize,
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) does: Does,
}

/// Which access a transfer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Transfer {
    Read,
    Write,
    Upgrade,
}

/// Where a transfer is counted: at a line, under the label of its access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key<L> {
    pub(super) label: L,
    /// The number of the line: its address divided by its bytes.
    pub(super) line: u64,
    pub(super) transfer: Transfer,
}

/// The caches of all threads. `L` is what transfers are counted by; accesses without a label change
/// the caches and are not counted.
#[derive(Debug)]
pub(super) struct Caches<L> {
    lines: HashMap<u64, Line>,
    counts: HashMap<Key<L>, u64>,
}

#[derive(Debug, Default)]
struct Line {
    /// The threads with a copy, one bit each. A single copy is modified or exclusive, and several
    /// are shared. A transfer needs no other state.
    copies: u128,
    /// A line that no thread has written comes from memory, also if other threads have read it.
    is_written: bool,
}

impl<L: Copy + Eq + Hash> Caches<L> {
    pub(super) fn new() -> Caches<L> {
        Caches { lines: HashMap::new(), counts: HashMap::new() }
    }

    /// An access, which may be to several lines.
    pub(super) fn access(&mut self, access: Access, label: Option<L>) {
        let Access { thread, address, bytes, does } = access;
        assert!(thread < THREADS_MAX, "each thread has a bit");
        assert!(bytes > 0, "an access is to at least one byte");
        let own = 1 << thread;
        for number in address / LINE_BYTES..=(address.saturating_add(bytes - 1)) / LINE_BYTES {
            let line = self.lines.entry(number).or_default();
            let (is_here, is_elsewhere) = (line.copies & own != 0, line.copies & !own != 0);
            assert!(!line.is_written || line.copies != 0, "a written line is in a cache");
            let transfer = match does {
                Does::Read => (!is_here && line.is_written).then_some(Transfer::Read),
                Does::Write if !is_elsewhere => None,
                Does::Write if is_here => Some(Transfer::Upgrade),
                Does::Write => Some(Transfer::Write),
            };
            match does {
                Does::Read => line.copies |= own,
                Does::Write => *line = Line { copies: own, is_written: true },
            }
            if let (Some(transfer), Some(label)) = (transfer, label) {
                *self.counts.entry(Key { label, line: number, transfer }).or_default() += 1;
            }
        }
    }

    /// The number of transfers of each key.
    pub(super) fn into_counts(self) -> HashMap<Key<L>, u64> {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reads, writes and upgrades that are transfers, of accesses by (thread, address, what it
    /// does).
    fn transfers(accesses: &[(usize, u64, Does)]) -> [u64; 3] {
        let mut caches = Caches::new();
        for (thread, address, does) in accesses {
            let access = Access { thread: *thread, address: *address, bytes: 8, does: *does };
            caches.access(access, Some(()));
        }
        let counts = caches.into_counts();
        let of = |wanted| {
            let of = counts.iter().filter(|(key, _)| key.transfer == wanted);
            of.map(|(_, count)| count).sum()
        };
        [Transfer::Read, Transfer::Write, Transfer::Upgrade].map(of)
    }

    use Does::{Read, Write};

    #[test]
    fn what_no_other_thread_writes_is_not_transferred() {
        assert_eq!(transfers(&[]), [0, 0, 0]);
        assert_eq!(transfers(&[(0, 0, Write), (0, 0, Read), (0, 8, Write)]), [0, 0, 0]);
        assert_eq!(transfers(&[(0, 0, Read), (1, 0, Read), (0, 8, Read)]), [0, 0, 0]);
        assert_eq!(transfers(&[(0, 0, Write), (1, 64, Write), (0, 0, Write)]), [0, 0, 0]);
    }

    #[test]
    fn each_thread_reads_a_written_line_once() {
        assert_eq!(transfers(&[(0, 0, Write), (1, 8, Read), (1, 0, Read)]), [1, 0, 0]);
        assert_eq!(
            transfers(&[(0, 0, Write), (1, 0, Read), (2, 0, Read), (0, 0, Read)]),
            [2, 0, 0]
        );
    }

    #[test]
    fn a_write_takes_the_copies_of_other_threads() {
        assert_eq!(transfers(&[(0, 0, Read), (1, 0, Write)]), [0, 1, 0]);
        assert_eq!(transfers(&[(0, 0, Read), (1, 0, Read), (0, 0, Write)]), [0, 0, 1]);
        assert_eq!(transfers(&[(0, 0, Read), (1, 8, Write), (0, 0, Read)]), [1, 1, 0]);
        let counter: Vec<_> = (0..10).map(|number| (number % 2, 0, Write)).collect();
        assert_eq!(transfers(&counter), [0, 9, 0], "the first write finds the line nowhere");
    }

    #[test]
    fn an_access_across_a_boundary_is_to_two_lines() {
        assert_eq!(transfers(&[(0, 60, Write), (1, 60, Read)]), [2, 0, 0]);
        assert_eq!(transfers(&[(0, 56, Write), (1, 56, Read)]), [1, 0, 0]);
        let mut caches = Caches::new();
        let long = Access { thread: 0, address: 32, bytes: 3 * LINE_BYTES, does: Write };
        caches.access(long, Some(()));
        caches.access(Access { thread: 1, ..long }, Some(()));
        assert_eq!(caches.into_counts().len(), 4);
    }

    #[test]
    fn accesses_without_a_label_are_simulated_and_not_counted() {
        let mut caches = Caches::new();
        let first = Access { thread: 0, address: 0, bytes: 8, does: Write };
        caches.access(first, None);
        caches.access(Access { thread: 1, ..first }, None);
        caches.access(first, Some("counted"));
        let key = Key { label: "counted", line: 0, transfer: Transfer::Write };
        assert_eq!(caches.into_counts(), [(key, 1)].into());
    }
}
