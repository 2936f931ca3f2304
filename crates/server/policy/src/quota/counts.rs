//! Exact counts: of open connections, of requests in progress, and of those that are delayed.
//!
//! A key has an entry while its count is above zero. So there are never more entries than there are
//! connections or requests in progress, which have their own limits.
//!
//! A key belongs to one of [`COUNT_SHARDS`] locks, which all cores take to count or to refuse: a
//! client that is refused by the thousand is counted by one core at a time.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use hashbrown::HashMap;
use runtime::sync::{Lock, LockKind};

use crate::limits::COUNT_SHARDS;

static COUNTS: LockKind = LockKind::new("quota counts");

/// The counts of one limit of a quota.
#[derive(Debug)]
pub(super) struct Counts {
    shards: Box<[Lock<HashMap<u64, u32>>]>,
    /// The sum of all counts.
    all: AtomicU64,
}

/// Counted until it is dropped.
#[derive(Debug)]
pub struct Counted {
    counts: Arc<Counts>,
    key: u64,
}

impl Counts {
    pub(super) fn new() -> Arc<Counts> {
        let shards = (0..COUNT_SHARDS).map(|_| Lock::new(&COUNTS, HashMap::new())).collect();
        Arc::new(Counts { shards, all: AtomicU64::new(0) })
    }

    fn shard(&self, key: u64) -> &Lock<HashMap<u64, u32>> {
        &self.shards[(key % COUNT_SHARDS as u64) as usize]
    }

    /// Counts one more, if there are fewer than `max`.
    pub(super) fn enter(self: &Arc<Counts>, key: u64, max: u32) -> Option<Counted> {
        let mut shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        match shard.get_mut(&key) {
            Some(count) if *count >= max => return None,
            Some(count) => *count += 1,
            None => drop(shard.insert(key, 1)),
        }
        self.all.fetch_add(1, Relaxed);
        Some(Counted { counts: Arc::clone(self), key })
    }

    /// The count of a key.
    pub(super) fn of(&self, key: u64) -> u32 {
        let shard = self.shard(key).lock().unwrap_or_else(PoisonError::into_inner);
        shard.get(&key).copied().unwrap_or(0)
    }

    /// The count of all keys.
    pub(super) fn all(&self) -> u64 {
        self.all.load(Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counts.all.fetch_sub(1, Relaxed);
        let shard = self.counts.shard(self.key);
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = shard.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                shard.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_and_leave_nothing_behind() {
        let counts = Counts::new();
        let mut held: Vec<Counted> = (0..3).filter_map(|_| counts.enter(1, 3)).collect();
        assert_eq!((held.len(), counts.of(1)), (3, 3));
        assert!(counts.enter(1, 3).is_none());
        held.extend(counts.enter(17, 3)); // the same shard
        assert_eq!((counts.of(17), counts.all()), (1, 4));
        drop(held.remove(0));
        held.extend(counts.enter(1, 3));
        assert_eq!(counts.of(1), 3);
        held.clear();
        assert_eq!(counts.all(), 0);
        assert!(counts.shards.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }
}
