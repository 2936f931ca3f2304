//! Sets of descriptors as bitmaps, in the layout that select(2) takes.
//!
//! Bit `fd % 64` of word `fd / 64`. As large as the highest member, never bounded by `FD_SETSIZE`.

use std::os::fd::RawFd;

/// The kernel's `unsigned long`.
pub(crate) type Word = libc::c_ulong;

/// Descriptors per word.
pub(crate) const WORD_BITS: usize = Word::BITS as usize;

/// A set of descriptors.
#[derive(Default)]
pub(crate) struct FdSet {
    words: Vec<Word>,
}

impl FdSet {
    /// Puts `fd` in or takes it out.
    pub(crate) fn assign(&mut self, fd: RawFd, member: bool) {
        let (at, bit) = position(fd);
        if member {
            if at >= self.words.len() {
                self.words.resize(at + 1, 0);
            }
            self.words[at] |= bit;
        } else if let Some(word) = self.words.get_mut(at) {
            *word &= !bit;
        }
    }

    /// The `at`-th word; 0 beyond the highest.
    pub(crate) fn word(&self, at: usize) -> Word {
        self.words.get(at).copied().unwrap_or(0)
    }

    /// Copies the first `count` words to `to`, with zeros beyond the highest.
    pub(crate) fn copy_to(&self, to: &mut Vec<Word>, count: usize) {
        to.clear();
        to.extend_from_slice(&self.words[..count.min(self.words.len())]);
        to.resize(count, 0);
    }
}

/// Word and bit of a descriptor.
pub(crate) fn position(fd: RawFd) -> (usize, Word) {
    let fd = fd as usize;
    (fd / WORD_BITS, 1 << (fd % WORD_BITS))
}

/// The members of one word, as descriptors, ascending.
pub(crate) fn members(at: usize, mut word: Word) -> impl Iterator<Item = RawFd> {
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros() as usize;
        word &= word - 1;
        Some((at * WORD_BITS + bit) as RawFd)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_those_assigned() {
        let mut set = FdSet::default();
        for fd in [0, 63, 64, 1000] {
            set.assign(fd, true);
        }
        set.assign(63, false);
        set.assign(5000, false);
        let all: Vec<RawFd> = (0..20).flat_map(|at| members(at, set.word(at))).collect();
        assert_eq!(all, [0, 64, 1000]);
        let mut copy = Vec::new();
        set.copy_to(&mut copy, 2);
        assert_eq!(copy, [1, 1]);
        set.copy_to(&mut copy, 17);
        assert_eq!(copy.len(), 17);
    }
}
