//! The ghost queue: fingerprints of objects that left the small queue. The oldest are forgotten
//! first.
//!
//! A forgotten entry keeps its place in the order until it has aged out. This bounds both parts by
//! the same number and keeps every operation O(1). A fingerprint is half of the key's 128 bits; a
//! collision only sends an object to the wrong queue.

use std::collections::VecDeque;

use hashbrown::HashTable;

#[derive(Clone, Copy, Debug)]
struct Seen {
    fingerprint: u64,
    /// Distinguishes an entry of the order from an older one with the same fingerprint.
    turn: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Ghost {
    order: VecDeque<Seen>,
    index: HashTable<Seen>,
    turn: u32,
}

/// Bytes of both parts per entry, with the slack of their growth.
pub(super) const GHOST_ENTRY_BYTES: usize = 4 * size_of::<Seen>();

impl Ghost {
    /// Remembers a key, and forgets the oldest beyond the bound.
    pub(super) fn remember(&mut self, key: u128, entries_max: usize) {
        let fingerprint = fingerprint(key);
        self.turn = self.turn.wrapping_add(1);
        let seen = Seen { fingerprint, turn: self.turn };
        match self.index.find_mut(fingerprint, |known| known.fingerprint == fingerprint) {
            Some(known) => *known = seen,
            None => {
                self.index.insert_unique(fingerprint, seen, |known| known.fingerprint);
            }
        }
        self.order.push_back(seen);
        while self.order.len() > entries_max {
            self.age();
        }
        assert!(self.order.len() <= entries_max && self.index.len() <= self.order.len());
    }

    /// Whether this key was remembered. Forgets it.
    pub(super) fn forget(&mut self, key: u128) -> bool {
        let fingerprint = fingerprint(key);
        match self.index.find_entry(fingerprint, |known| known.fingerprint == fingerprint) {
            Ok(entry) => {
                entry.remove();
                debug_assert!(self.index.len() < self.order.len(), "its entry has not aged out");
                true
            }
            Err(_) => false,
        }
    }

    fn age(&mut self) {
        let Some(oldest) = self.order.pop_front() else { return };
        let same =
            |known: &Seen| known.fingerprint == oldest.fingerprint && known.turn == oldest.turn;
        if let Ok(entry) = self.index.find_entry(oldest.fingerprint, same) {
            entry.remove();
        }
        assert!(self.index.len() <= self.order.len(), "what is remembered is in the order");
    }

    pub(super) fn len(&self) -> usize {
        assert!(self.index.len() <= self.order.len());
        self.order.len()
    }
}

/// The half of the key that neither selects the shard nor hashes the index.
fn fingerprint(key: u128) -> u64 {
    (key >> 64) as u64
}
