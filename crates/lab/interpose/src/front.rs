//! The callers' data: poll's array and select's bitmaps, their differences from the last call, and
//! the conversion of results of poll to results of select. Pure.

use libc::{c_short, pollfd};

use crate::limits::WORDS;

/// An entry of poll's array as two words: the descriptor; events, and revents above them.
pub(crate) type Position = [u32; 2];

const EVENTS: u32 = 0xffff;

/// The descriptor of an entry; `None` for a negative one, which poll ignores.
pub(crate) fn fd_of(position: Position) -> Option<usize> {
    i32::try_from(position[0]).ok().map(|fd| fd as usize)
}

pub(crate) fn events_of(position: Position) -> u16 {
    position[1] as u16
}

pub(crate) fn without_answer(position: Position) -> Position {
    [position[0], position[1] & EVENTS]
}

/// The bits that poll reports even if they were not requested.
const ALWAYS: u16 = (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) as u16;

/// The part of the kernel's result for a descriptor that concerns an entry with these events.
pub(crate) fn answer_for(events: u16, revents: u16) -> u16 {
    let hup = libc::POLLHUP as u16;
    let always = if planted::is(planted::Bug::BoostHupMasked) { ALWAYS & !hup } else { ALWAYS };
    revents & (events | always)
}

/// How many entries are compared at once, vectorised and without branches.
pub(crate) const BLOCK: usize = 32;

/// Clears the results in a block, and returns whether it differs from the last call.
#[inline]
pub(crate) fn clear_and_compare(requested: &mut [Position], last: &[Position]) -> bool {
    let (mut differs, mut answered) = (0, 0);
    for (requested, last) in requested.iter().zip(last) {
        differs |= (requested[0] ^ last[0]) | ((requested[1] ^ last[1]) & EVENTS);
        answered |= requested[1] & !EVENTS;
    }
    if answered != 0 {
        for requested in requested.iter_mut() {
            requested[1] &= EVENTS;
        }
    }
    differs != 0
}

/// The three bitmaps of a select, up to its count.
pub(crate) type Bitmaps = [[u64; WORDS]; 3];

/// The poll events that the kernel uses for the members of select's sets.
const READ: u16 = (libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLIN) as u16;
const WRITE: u16 = (libc::POLLWRBAND | libc::POLLWRNORM | libc::POLLOUT) as u16;
const EXCEPT: u16 = libc::POLLPRI as u16;
const ERROR: u16 = libc::POLLERR as u16;
const HANG_UP: u16 = libc::POLLHUP as u16;

/// The events of a member of the read, write and except set; `None` for a member of no set.
pub(crate) fn events_of_sets(read: bool, write: bool, except: bool) -> Option<u16> {
    let of = |member, events| if member { events } else { 0 };
    let events = of(read, READ) | of(write, WRITE) | of(except, EXCEPT);
    (events != 0).then_some(events)
}

/// Which of the sets (read, write, except) a descriptor with these events is in after a select.
pub(crate) fn sets_of_answer(events: u16, revents: u16) -> [bool; 3] {
    [
        events & READ != 0 && revents & (READ | HANG_UP | ERROR) != 0,
        events & WRITE != 0 && revents & (WRITE | ERROR) != 0,
        events & EXCEPT != 0 && revents & EXCEPT != 0,
    ]
}

/// Word and bit of a descriptor.
pub(crate) fn word_and_bit(fd: usize) -> (usize, u64) {
    (fd / 64, 1 << (fd % 64))
}

/// How many words a select with this count reads and writes.
pub(crate) fn words_of_count(count: usize) -> usize {
    count.div_ceil(64)
}

/// The bits of a word that are below the count.
pub(crate) fn bits_below(count: usize, word: usize) -> u64 {
    match count.saturating_sub(word * 64) {
        0 => 0,
        left if left >= 64 => u64::MAX,
        left => (1 << left) - 1,
    }
}

/// The members of a word, lowest first.
pub(crate) fn members(word: usize, mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (bit < 64).then_some(word * 64 + bit)
    })
}

/// An entry to pass to the kernel's poll.
pub(crate) fn probe(fd: usize, events: u16) -> pollfd {
    pollfd { fd: fd as i32, events: events as c_short, revents: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_entry_is_two_words() {
        let entry = pollfd { fd: 7, events: libc::POLLIN, revents: libc::POLLHUP };
        // SAFETY: both are eight bytes without padding.
        let position: Position = unsafe { std::mem::transmute(entry) };
        assert_eq!((fd_of(position), events_of(position)), (Some(7), libc::POLLIN as u16));
        assert_eq!(without_answer(position), [7, libc::POLLIN as u32]);
        assert_eq!(fd_of([-5_i32 as u32, 0]), None);
    }

    #[test]
    fn a_block_differs_by_descriptors_and_events_not_by_results() {
        let last = [[3, 1], [4, 1], [5, 4]];
        let mut requested = [[3, 1], [4, 1 | 0x10_0000], [5, 4 | 0x8000_0000]];
        assert!(!clear_and_compare(&mut requested, &last));
        assert_eq!(requested, last);
        assert!(clear_and_compare(&mut [[3, 1], [4, 5], [5, 4]], &last));
        assert!(clear_and_compare(&mut [[3, 1], [6, 1], [5, 4]], &last));
        let mut answered = [[3, 2 | 0x1_0000], [4, 1], [5, 4]];
        assert!(clear_and_compare(&mut answered, &last));
        assert_eq!(answered[0], [3, 2]);
    }

    #[test]
    fn poll_always_reports_hang_up_error_and_closed_numbers() {
        let (input, hup) = (libc::POLLIN as u16, libc::POLLHUP as u16);
        let error = libc::POLLERR as u16;
        assert_eq!(answer_for(input, input | hup | libc::POLLOUT as u16), input | hup);
        assert_eq!(answer_for(0, input | error), error);
        assert_eq!(answer_for(0, libc::POLLNVAL as u16), libc::POLLNVAL as u16);
    }

    #[test]
    fn select_interprets_poll_results_as_the_kernel_does() {
        let all = events_of_sets(true, true, true).unwrap();
        let hup = libc::POLLHUP as u16;
        assert_eq!(sets_of_answer(all, hup), [true, false, false]);
        assert_eq!(sets_of_answer(all, libc::POLLERR as u16), [true, true, false]);
        assert_eq!(sets_of_answer(all, libc::POLLPRI as u16), [false, false, true]);
        assert_eq!(sets_of_answer(all, libc::POLLRDBAND as u16), [true, false, false]);
        assert_eq!(sets_of_answer(all, libc::POLLWRBAND as u16), [false, true, false]);
        let write = events_of_sets(false, true, false).unwrap();
        assert_eq!(sets_of_answer(write, hup | libc::POLLIN as u16), [false; 3]);
        assert_eq!(events_of_sets(false, false, false), None);
    }

    #[test]
    fn bits_of_a_count() {
        assert_eq!((bits_below(65, 0), bits_below(65, 1), bits_below(65, 2)), (u64::MAX, 1, 0));
        assert_eq!((words_of_count(0), words_of_count(64), words_of_count(65)), (0, 1, 2));
        assert_eq!(members(2, 0x8000_0000_0000_0001).collect::<Vec<_>>(), [128, 191]);
        assert_eq!(members(0, 0).count(), 0);
        assert_eq!(word_and_bit(130), (2, 4));
    }
}
