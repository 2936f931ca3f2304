//! Fetches in flight by URI, so that a change overtakes those that began before it.
//!
//! An unsafe method invalidates the stored responses of its URI (RFC 9111, 4.4). But a fetch that
//! was sent earlier may still bring the old state, after the invalidation. So each fetch that may
//! store something holds a [`Watch`] of its URI, taken before it is sent. A change overtakes all
//! watches of the URI, *then* removes the stored responses. Code that stores checks its watch under
//! the lock of the store's shard: either it sees that it was overtaken, or the change finds what it
//! stored and removes it.
//!
//! If no fetch is in flight for the URI, a change records nothing. Hits never look here.
//!
//! What never happens: a response requested before an acknowledged change serves a request that
//! came after the acknowledgement.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use hashbrown::HashMap;
use runtime::sync::{Guard, Lock, LockKind};
use store::Key;

/// A power of two. The shards reduce lock contention between cores.
const SHARDS: usize = 16;

/// All watches, by URI.
#[derive(Debug)]
pub struct Watches {
    shards: [Lock<HashMap<u128, Watched>>; SHARDS],
}

static SHARD: LockKind = LockKind::new("watches: shard");

impl Default for Watches {
    fn default() -> Watches {
        Watches { shards: std::array::from_fn(|_| Lock::new(&SHARD, HashMap::new())) }
    }
}

/// A watched URI.
#[derive(Debug, Default)]
struct Watched {
    /// Changes since its first watch began.
    changes: Arc<AtomicU64>,
    /// At least one.
    watches: usize,
}

impl Watches {
    /// Starts to watch a URI. A request sent afterwards sees all earlier changes.
    pub fn watch(self: &Arc<Watches>, uri: Key) -> Watch {
        let mut shard = self.shard(&uri);
        let watched = shard.entry(uri.to_u128()).or_default();
        watched.watches += 1;
        let changes = Arc::clone(&watched.changes);
        let seen = changes.load(Ordering::Acquire);
        Watch { table: Arc::clone(self), uri, changes, seen }
    }

    /// Overtakes all watches of a URI that has changed. The caller removes the stored responses
    /// *after* this.
    pub fn change(&self, uri: &Key) {
        if let Some(watched) = self.shard(uri).get(&uri.to_u128()) {
            watched.changes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Overtakes all watches. The caller removes the stored responses *after* this.
    pub fn change_all(&self) {
        for shard in &self.shards {
            for watched in lock(shard).values() {
                watched.changes.fetch_add(1, Ordering::AcqRel);
            }
        }
    }

    /// Number of watched URIs.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    fn shard(&self, uri: &Key) -> Guard<'_, HashMap<u128, Watched>> {
        lock(&self.shards[uri.to_u128() as usize % SHARDS])
    }
}

/// No code in this file panics half-way through a change of a table.
fn lock<T>(mutex: &Lock<T>) -> Guard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A fetch's watch of its URI, until it is dropped.
#[derive(Debug)]
pub struct Watch {
    table: Arc<Watches>,
    uri: Key,
    changes: Arc<AtomicU64>,
    seen: u64,
}

impl Watch {
    /// Whether the URI has changed since. If so, the response must neither be stored nor shared
    /// with newer requests.
    pub fn is_overtaken(&self) -> bool {
        self.changes.load(Ordering::Acquire) != self.seen
            && !planted::is(planted::Bug::ChangeOvertaken)
    }

    /// Runs `work`, which no change of the URI can interrupt, unless one has come already. It must
    /// be short.
    pub fn unless_overtaken(&self, work: impl FnOnce()) {
        let _shard = self.table.shard(&self.uri);
        if !self.is_overtaken() {
            work();
        }
    }

    /// The request of this watch has changed the URI itself. Overtakes all other watches; this one
    /// counts as overtaken only if it was before.
    pub fn change(&mut self) {
        // Under the same lock as `unless_overtaken`.
        let _shard = self.table.shard(&self.uri);
        let before = self.changes.fetch_add(1, Ordering::AcqRel);
        if before == self.seen {
            self.seen += 1;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut shard = self.table.shard(&self.uri);
        if let Some(watched) = shard.get_mut(&self.uri.to_u128()) {
            watched.watches -= 1;
            if watched.watches == 0 {
                shard.remove(&self.uri.to_u128());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use store::KeyHasher;

    use super::*;

    fn uri(name: &[u8]) -> Key {
        KeyHasher::seeded(1, 2).key(&[name])
    }

    #[test]
    fn a_change_overtakes_only_earlier_watches() {
        let table = Arc::new(Watches::default());
        let (a, b) = (uri(b"a"), uri(b"b"));
        table.change(&a);
        let (early, other) = (table.watch(a), table.watch(b));
        assert!(!early.is_overtaken(), "an earlier change does not count");
        table.change(&a);
        let late = table.watch(a);
        assert!(early.is_overtaken() && !late.is_overtaken() && !other.is_overtaken());
        table.change(&a);
        assert!(late.is_overtaken());
        table.change_all();
        assert!(other.is_overtaken() && !table.watch(b).is_overtaken());
    }

    #[test]
    fn a_watch_is_not_overtaken_by_its_own_change() {
        let table = Arc::new(Watches::default());
        let (mut one, mut two) = (table.watch(uri(b"a")), table.watch(uri(b"a")));
        one.change();
        assert!(!one.is_overtaken() && two.is_overtaken());
        two.change();
        assert!(one.is_overtaken() && two.is_overtaken(), "it was overtaken before its own change");
    }

    #[test]
    fn no_watch_leaves_no_entry() {
        let table = Arc::new(Watches::default());
        for round in 0..100u8 {
            table.change(&uri(&[round]));
            let watches = [table.watch(uri(&[round])), table.watch(uri(&[round]))];
            table.change(&uri(&[round]));
            assert_eq!(table.len(), 1);
            drop(watches);
            assert_eq!(table.len(), 0);
        }
    }

    /// Threads that store, and one that changes: after a change only its state is stored.
    #[test]
    fn no_interleaving_stores_an_older_state() {
        let table = Arc::new(Watches::default());
        static STORED: LockKind = LockKind::new("stored, of a test");
        let (state, stored) = (AtomicU64::new(0), Lock::new(&STORED, None));
        let key = uri(b"a");
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let watch = table.watch(key);
                        let brought = state.load(Ordering::SeqCst);
                        std::thread::yield_now();
                        let mut stored = lock(&stored);
                        if !watch.is_overtaken() {
                            *stored = Some(brought);
                        }
                    }
                });
            }
            for _ in 0..2_000 {
                let now = state.fetch_add(1, Ordering::SeqCst) + 1;
                table.change(&key);
                *lock(&stored) = None;
                std::thread::yield_now();
                let found = *lock(&stored);
                assert!(found.is_none_or(|found| found >= now), "{found:?} after {now}");
            }
        });
    }
}
