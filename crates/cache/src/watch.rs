//! Fetches under way by URI, so that a change reaches those that began before it.
//!
//! An unsafe method invalidates what is stored for its URI (RFC 9111, 4.4), but a fetch that was
//! sent before it was answered may bring the state from before it, and bring it afterwards. So each
//! fetch that may store something holds a [`Watch`] of its URI from before it is sent. A change
//! overtakes all watches of the URI, *then* takes what is stored out; whoever stores asks its watch
//! under the lock of the store's shard. Either it sees that it was overtaken, or what it stored is
//! there to be taken out.
//!
//! A change that no fetch is under way for leaves no trace here, and a hit never asks.
//!
//! What never happens: what was asked for before a change was answered serves a request that came
//! after that answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use hashbrown::HashMap;
use runtime::sync::{Guard, Lock, LockKind};
use store::Key;

/// A power of two; the shards keep cores out of each other's way.
const SHARDS: usize = 16;

/// All watches, by URI.
#[derive(Debug)]
pub struct UnderWay {
    shards: [Lock<HashMap<u128, Watched>>; SHARDS],
}

static SHARD: LockKind = LockKind::new("changes under way: shard");

impl Default for UnderWay {
    fn default() -> UnderWay {
        UnderWay { shards: std::array::from_fn(|_| Lock::new(&SHARD, HashMap::new())) }
    }
}

/// A URI that somebody watches.
#[derive(Debug, Default)]
struct Watched {
    /// Changes since the first of them began.
    changes: Arc<AtomicU64>,
    /// At least one.
    watches: usize,
}

impl UnderWay {
    /// Begins to watch a URI. A request that is sent afterwards sees what was changed before.
    pub fn watch(self: &Arc<UnderWay>, uri: Key) -> Watch {
        let mut shard = self.shard(&uri);
        let watched = shard.entry(uri.to_u128()).or_default();
        watched.watches += 1;
        let changes = Arc::clone(&watched.changes);
        let seen = changes.load(Ordering::Acquire);
        Watch { table: Arc::clone(self), uri, changes, seen }
    }

    /// The URI has changed: its watches are overtaken. The caller takes out of the store what is
    /// there *after* this.
    pub fn change(&self, uri: &Key) {
        if let Some(watched) = self.shard(uri).get(&uri.to_u128()) {
            watched.changes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Whatever is watched has changed. The caller takes out what is stored *after* this.
    pub fn change_all(&self) {
        for shard in &self.shards {
            for watched in lock(shard).values() {
                watched.changes.fetch_add(1, Ordering::AcqRel);
            }
        }
    }

    /// URIs that are watched now.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    fn shard(&self, uri: &Key) -> Guard<'_, HashMap<u128, Watched>> {
        lock(&self.shards[uri.to_u128() as usize % SHARDS])
    }
}

/// Nothing in this file panics half-way through a change of a table.
fn lock<T>(mutex: &Lock<T>) -> Guard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One fetch's watch of its URI, until it is dropped.
#[derive(Debug)]
pub struct Watch {
    table: Arc<UnderWay>,
    uri: Key,
    changes: Arc<AtomicU64>,
    seen: u64,
}

impl Watch {
    /// Whether the URI has changed since: what was asked for is neither to be stored nor to be
    /// shared with who comes now.
    pub fn is_overtaken(&self) -> bool {
        self.changes.load(Ordering::Acquire) != self.seen
            && !planted::is(planted::Bug::ChangeOvertaken)
    }

    /// Does something that no change of the URI comes in between, unless one has come already. It
    /// must be short.
    pub fn unless_overtaken(&self, work: impl FnOnce()) {
        let _shard = self.table.shard(&self.uri);
        if !self.is_overtaken() {
            work();
        }
    }

    /// The URI has changed by the very request that this watch is of: all others are overtaken,
    /// and this one only if it was before.
    pub fn change(&mut self) {
        // Under the lock that `unless_overtaken` works under.
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
    fn a_change_overtakes_those_that_began_before_it_and_no_others() {
        let table = Arc::new(UnderWay::default());
        let (a, b) = (uri(b"a"), uri(b"b"));
        table.change(&a);
        let (early, other) = (table.watch(a), table.watch(b));
        assert!(!early.is_overtaken(), "what changed before is seen");
        table.change(&a);
        let late = table.watch(a);
        assert!(early.is_overtaken() && !late.is_overtaken() && !other.is_overtaken());
        table.change(&a);
        assert!(late.is_overtaken());
        table.change_all();
        assert!(other.is_overtaken() && !table.watch(b).is_overtaken());
    }

    #[test]
    fn a_change_of_its_own_overtakes_all_but_itself() {
        let table = Arc::new(UnderWay::default());
        let (mut one, mut two) = (table.watch(uri(b"a")), table.watch(uri(b"a")));
        one.change();
        assert!(!one.is_overtaken() && two.is_overtaken());
        two.change();
        assert!(one.is_overtaken() && two.is_overtaken(), "it was overtaken before its own change");
    }

    #[test]
    fn nothing_is_left_when_nothing_is_under_way() {
        let table = Arc::new(UnderWay::default());
        for round in 0..100u8 {
            table.change(&uri(&[round]));
            let watches = [table.watch(uri(&[round])), table.watch(uri(&[round]))];
            table.change(&uri(&[round]));
            assert_eq!(table.len(), 1);
            drop(watches);
            assert_eq!(table.len(), 0);
        }
    }

    /// Threads that store and one that changes: what is stored at the end of a change is of it.
    #[test]
    fn no_interleaving_stores_what_was_before_a_change() {
        let table = Arc::new(UnderWay::default());
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
