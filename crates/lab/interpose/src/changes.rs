//! Which descriptors may have a new file: a generation for each number, and a log of the last
//! changes, so that a wait checks only what has changed.
//!
//! The thread that opens or closes writes without a lock: first the generation, then the log. A
//! reader that finds a log entry not yet written, or already overwritten, checks all generations.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::limits::{CHANGES_KEPT, FDS_MAX};

static GENERATIONS: [AtomicU32; FDS_MAX] = [const { AtomicU32::new(0) }; FDS_MAX];
static LOG: [AtomicU64; CHANGES_KEPT] = [const { AtomicU64::new(0) }; CHANGES_KEPT];
static LOGGED: AtomicU64 = AtomicU64::new(0);

/// Notes that the number may now have another file (or none). Called after the system call, so that
/// a thread that sees the new generation sees the new file too.
pub(crate) fn note(fd: libc::c_int) {
    let Some(generation) = usize::try_from(fd).ok().and_then(|at| GENERATIONS.get(at)) else {
        return;
    };
    generation.fetch_add(1, Ordering::Release);
    let at = LOGGED.fetch_add(1, Ordering::AcqRel);
    LOG[place(at)].store(entry(at, fd as u32), Ordering::Release);
}

/// Notes that all numbers from `first` on may have another file.
pub(crate) fn note_all_from(first: usize) {
    for generation in GENERATIONS.iter().skip(first) {
        generation.fetch_add(1, Ordering::Release);
    }
    // Makes every reader check all generations.
    LOGGED.fetch_add(CHANGES_KEPT as u64 + 1, Ordering::AcqRel);
}

/// The generation of a number; read it before adding the file to epoll.
pub(crate) fn generation(fd: usize) -> u32 {
    GENERATIONS.get(fd).map_or(0, |generation| generation.load(Ordering::Acquire))
}

/// The changes since `cursor`: the new cursor, and how to find them.
pub(crate) fn since(cursor: u64) -> (u64, Since) {
    let head = LOGGED.load(Ordering::Acquire);
    (head, if head - cursor > CHANGES_KEPT as u64 { Since::Anything } else { Since::Logged })
}

/// How to find the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// One by one, by [`logged`].
    Logged,
    /// Only by checking every generation.
    Anything,
}

/// The descriptor of one change; `None` if its place has another change.
pub(crate) fn logged(at: u64) -> Option<usize> {
    fd_of(LOG[place(at)].load(Ordering::Acquire), at)
}

fn place(at: u64) -> usize {
    at as usize % CHANGES_KEPT
}

/// An entry has the low half of its change's number plus one, which is never 0 here.
fn entry(at: u64, fd: u32) -> u64 {
    (at.wrapping_add(1) << 32) | u64::from(fd)
}

fn fd_of(entry: u64, at: u64) -> Option<usize> {
    ((entry >> 32) as u32 == at.wrapping_add(1) as u32).then_some(entry as u32 as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_valid_for_its_own_change_only() {
        assert_eq!(fd_of(entry(7, 12), 7), Some(12));
        assert_eq!(fd_of(entry(7, 12), 7 + CHANGES_KEPT as u64), None);
        assert_eq!(fd_of(0, 0), None, "nothing was written yet");
        assert_eq!(fd_of(entry(u64::from(u32::MAX), 3), u64::from(u32::MAX)), Some(3));
    }

    #[test]
    fn a_change_is_seen_and_a_late_reader_is_warned() {
        // Other tests of this process may note changes too.
        let (cursor, _) = since(0);
        let before = generation(60_000);
        note(60_000);
        note(-1);
        note(FDS_MAX as libc::c_int);
        let (head, how) = since(cursor);
        assert_eq!((generation(60_000) != before, how), (true, Since::Logged));
        assert!((cursor..head).any(|at| logged(at) == Some(60_000)));
        note_all_from(60_001);
        assert_eq!(since(cursor).1, Since::Anything);
    }
}
