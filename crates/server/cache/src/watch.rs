//! Fetches in flight by URI, so that a change overtakes fetches that began before the change.
//!
//! An unsafe method invalidates the stored responses of its URI (RFC 9111, 4.4). But a fetch that
//! was sent earlier may still bring the old state, after the invalidation. So each fetch that may
//! store something holds a [`Watch`] of its URI, taken before it is sent. A POST, and a request
//! that is passed on, takes a [`Stamp`] of its URI instead, and a watch only if its response may be
//! stored. Other URIs may have the same stamp, so their changes may keep it from being stored. A
//! change overtakes all watches of the URI, *then* removes the stored responses. Code that stores
//! checks its watch under the lock of the store's shard. So either the code sees that its watch was
//! overtaken, or the change finds the new response and removes it.
//!
//! Fetches of one URI also overlap with each other. So each response that is stored while another
//! fetch of the URI is in flight is noted here, and [`Watch::store`] shows the notes to the code
//! that stores ([`caching::may_replace`]). All insertions of a URI's responses happen under one
//! lock, that of the URI's watches.
//!
//! If no fetch is in flight for the URI, a change records nothing. Hits never look here.
//!
//! What never happens: a response requested before an acknowledged change serves a request that
//! came after the acknowledgement.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use caching::Edition;
use hashbrown::HashMap;
use runtime::sync::primitives::AtomicU64;
use runtime::sync::{Guard, Lock, LockKind};
use store::{Generation, Key};

use crate::limits::NOTES_MAX;
use crate::partial::Partial;
use crate::stored::Head;

/// A power of two. The shards reduce lock contention between cores.
const SHARDS: usize = if cfg!(loom) { 1 } else { 16 };

/// A power of two. A request without a watch takes a stamp, which is a copy of one of these counts.
const STAMPS: usize = if cfg!(loom) { 2 } else { 256 };

/// All watches, by URI.
#[derive(Debug)]
pub struct Watches {
    shards: [Lock<HashMap<u128, Watched>>; SHARDS],
    /// Changes of the URIs that share a place.
    changed: [AtomicU64; STAMPS],
    /// Responses that were stored for the URIs that share a place.
    stored: [AtomicU64; STAMPS],
}

/// The state of a URI at an instant, for a request that watches the URI only if its response may be
/// stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    changed: u64,
    stored: u64,
}

static SHARD: LockKind = LockKind::new("watches: shard");

impl Default for Watches {
    fn default() -> Watches {
        Watches {
            shards: std::array::from_fn(|_| Lock::new(&SHARD, HashMap::new())),
            changed: std::array::from_fn(|_| AtomicU64::new(0)),
            stored: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// A watched URI.
#[derive(Debug, Default)]
struct Watched {
    counts: Arc<Counts>,
    /// At least one.
    watches: usize,
    /// Responses that were stored while other fetches were in flight, in the order in which they
    /// were stored. One for each key.
    notes: Vec<Note>,
    /// The number of the last note that was dropped because there was no room.
    dropped: u64,
}

/// What happened to a URI since its first watch began.
#[derive(Debug, Default)]
struct Counts {
    changes: AtomicU64,
    /// The number of the last note.
    notes: AtomicU64,
}

/// A response that was stored.
#[derive(Clone, Debug)]
struct Note {
    number: u64,
    key: Key,
    stored: Noted,
}

/// The facts about a stored response, for a fetch that overlaps with its fetch.
#[derive(Clone, Debug)]
pub struct Noted {
    /// When it was stored.
    pub edition: Edition,
    /// The purge generation at which its fetch began.
    pub began: Generation,
    /// The part, if this is not a whole response.
    pub part: Option<Arc<Partial>>,
}

impl Watches {
    /// Starts to watch a URI. A request sent afterwards sees all earlier changes.
    pub fn watch(self: &Arc<Watches>, uri: Key) -> Watch {
        let mut shard = self.shard(&uri);
        let watched = shard.entry(uri.to_u128()).or_default();
        watched.watches += 1;
        let counts = Arc::clone(&watched.counts);
        let seen = counts.changes.load(Ordering::Acquire);
        let noted = counts.notes.load(Ordering::Acquire);
        Watch { table: Arc::clone(self), uri, counts, seen, noted }
    }

    /// The state of a URI now. A request sent afterwards sees all earlier changes.
    pub fn stamp(&self, uri: &Key) -> Stamp {
        let changed = self.changed[stamp_of(uri)].load(Ordering::Acquire);
        Stamp { changed, stored: self.stored[stamp_of(uri)].load(Ordering::Acquire) }
    }

    /// A watch that began at `stamp`, and whether a response may have been stored since. `None`:
    /// the URI may have changed since.
    pub fn watch_since(self: &Arc<Watches>, uri: Key, stamp: Stamp) -> Option<(Watch, bool)> {
        // A change after this overtakes the watch, and of a response that is stored after this the
        // watch gets a note. Before it, both have changed the stamp.
        let watch = self.watch(uri);
        let now = self.stamp(&uri);
        (now.changed == stamp.changed).then_some((watch, now.stored != stamp.stored))
    }

    fn changed_at(&self, uri: &Key) -> &AtomicU64 {
        &self.changed[stamp_of(uri)]
    }

    /// Overtakes all watches of a URI that has changed. The caller removes the stored responses
    /// *after* this.
    pub fn change(&self, uri: &Key) {
        self.changed_at(uri).fetch_add(1, Ordering::AcqRel);
        if let Some(watched) = self.shard(uri).get(&uri.to_u128()) {
            watched.counts.changes.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Overtakes all watches. The caller removes the stored responses *after* this.
    pub fn change_all(&self) {
        for changed in &self.changed {
            changed.fetch_add(1, Ordering::AcqRel);
        }
        for shard in &self.shards {
            for watched in lock(shard).values() {
                watched.counts.changes.fetch_add(1, Ordering::AcqRel);
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

/// The place of a URI among the stamps.
fn stamp_of(uri: &Key) -> usize {
    (uri.to_u128() >> 8) as usize % STAMPS
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
    counts: Arc<Counts>,
    /// Changes before the watch began.
    seen: u64,
    /// The number of the last note before the watch began.
    noted: u64,
}

impl Watch {
    /// Whether the URI has changed since. If so, the response must neither be stored nor shared
    /// with newer requests.
    pub fn is_overtaken(&self) -> bool {
        self.counts.changes.load(Ordering::Acquire) != self.seen
            && !planted::is(planted::Bug::ChangeOvertaken)
    }

    /// Whether a response was stored under this key since. If so, newer requests must not share the
    /// response of this watch's fetch: they may have been served the stored response before. A part
    /// of the same representation outruns nothing. `head` is that of the fetch, once it is known.
    pub fn is_outrun(&self, key: &Key, head: impl FnOnce() -> Option<Arc<Head>>) -> bool {
        if self.counts.notes.load(Ordering::Acquire) == self.noted {
            return false;
        }
        let head = head();
        let outruns = |noted: Option<&Noted>| {
            let part = noted.and_then(|noted| noted.part.as_deref());
            !part.zip(head.as_deref()).is_some_and(|(part, head)| part.is_of(head))
        };
        self.store(|storing| storing.overlapping(Some(key)).any(outruns)) != Some(false)
    }

    /// Runs `work`, which no change of the URI and no other insertion of its responses can
    /// interrupt. `None`: a change has come already. The work must be short.
    pub fn store<R>(&self, work: impl FnOnce(&mut Storing<'_>) -> R) -> Option<R> {
        let mut shard = self.table.shard(&self.uri);
        if self.is_overtaken() {
            return None;
        }
        let watched = shard.get_mut(&self.uri.to_u128()).expect("a watched URI is in the table");
        let stored = &self.table.stored[stamp_of(&self.uri)];
        Some(work(&mut Storing { watched, noted: self.noted, stored }))
    }

    /// The request of this watch has changed the URI itself. Overtakes all other watches; this
    /// watch counts as overtaken only if it was overtaken before.
    pub fn change(&mut self) {
        self.table.changed_at(&self.uri).fetch_add(1, Ordering::AcqRel);
        // Under the same lock as `store`.
        let _shard = self.table.shard(&self.uri);
        let before = self.counts.changes.fetch_add(1, Ordering::AcqRel);
        if before == self.seen {
            self.seen += 1;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut shard = self.table.shard(&self.uri);
        if let Some(watched) = shard.get_mut(&self.uri.to_u128()) {
            debug_assert!(Arc::ptr_eq(&watched.counts, &self.counts), "a watched URI stays");
            watched.watches -= 1;
            if watched.watches == 0 {
                shard.remove(&self.uri.to_u128());
            }
        }
    }
}

/// The insertion of a response, under the lock of its URI.
pub struct Storing<'w> {
    watched: &'w mut Watched,
    noted: u64,
    /// The count of the URI's place.
    stored: &'w AtomicU64,
}

impl Storing<'_> {
    /// Whether no other fetch of the URI is in flight, and nothing was stored since the fetch of
    /// this insertion began. Then the URI's responses still vary by the same fields.
    pub fn is_alone(&self) -> bool {
        let notes = self.watched.counts.notes.load(Ordering::Acquire);
        self.watched.watches == 1 && notes == self.noted
    }

    /// The responses that were stored since the fetch of this insertion began: under this key, or
    /// under any key of the URI. `None` stands for a response whose note was dropped because there
    /// were too many.
    pub fn overlapping(&self, key: Option<&Key>) -> impl Iterator<Item = Option<&Noted>> {
        let is_dropped = self.watched.dropped > self.noted;
        let notes =
            self.watched.notes.iter().filter(move |note| {
                note.number > self.noted && key.is_none_or(|key| note.key == *key)
            });
        is_dropped.then_some(None).into_iter().chain(notes.map(|note| Some(&note.stored)))
    }

    /// Notes that a response was stored: for the other fetches of the URI in flight, and in the
    /// stamp.
    pub fn note(&mut self, key: Key, stored: Noted) {
        self.stored.fetch_add(1, Ordering::AcqRel);
        let Watched { counts, watches, notes, dropped } = &mut *self.watched;
        debug_assert!(*watches > 0, "the fetch of this insertion watches the URI");
        if *watches == 1 {
            return;
        }
        let number = counts.notes.load(Ordering::Acquire) + 1;
        notes.retain(|note| note.key != key);
        if notes.len() == NOTES_MAX {
            *dropped = notes.remove(0).number;
        }
        debug_assert!(notes.last().is_none_or(|last| last.number < number), "notes are in order");
        notes.push(Note { number, key, stored });
        counts.notes.store(number, Ordering::Release);
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

    fn noted(date_ms: u64) -> Noted {
        let (is_whole, is_usable, is_purged, is_error) = (true, true, false, false);
        let requested_ms = 0;
        let edition = Edition { date_ms, requested_ms, is_whole, is_usable, is_purged, is_error };
        Noted { edition, began: 0, part: None }
    }

    #[test]
    fn a_fetch_sees_what_was_stored_while_it_was_in_flight() {
        let table = Arc::new(Watches::default());
        let (a, b) = (uri(b"a"), uri(b"b"));
        let dates = |watch: &Watch, key: Option<&Key>| {
            let date = |noted: Option<&Noted>| noted.map(|noted| noted.edition.date_ms);
            watch.store(|storing| storing.overlapping(key).map(date).collect::<Vec<_>>()).unwrap()
        };
        let alone = table.watch(a);
        alone.store(|storing| storing.note(a, noted(1)));
        let early = table.watch(a);
        assert_eq!(dates(&early, None), [], "no other fetch was in flight");
        alone.store(|storing| storing.note(a, noted(2)));
        let late = table.watch(a);
        let is_outrun = |watch: &Watch, key| watch.is_outrun(key, || None);
        assert!(is_outrun(&early, &a) && !is_outrun(&early, &b) && !is_outrun(&late, &a));
        assert_eq!((dates(&early, Some(&a)), dates(&late, Some(&a))), (vec![Some(2)], vec![]));
        late.store(|storing| storing.note(b, noted(3)));
        late.store(|storing| storing.note(a, noted(4)));
        assert_eq!(dates(&early, None), [Some(3), Some(4)], "the last of each key");
        assert_eq!(dates(&early, Some(&b)), [Some(3)]);
        for n in 0..NOTES_MAX as u8 {
            late.store(|storing| storing.note(uri(&[b'k', n]), noted(5)));
        }
        assert_eq!(dates(&early, Some(&b)), [None], "its note was dropped");
        assert!(is_outrun(&early, &b));
        assert_eq!(dates(&table.watch(a), None), []);
    }

    #[test]
    fn a_watch_since_a_stamp_misses_no_change() {
        let table = Arc::new(Watches::default());
        let a = uri(b"a");
        let stamp = table.stamp(&a);
        let (mut watch, is_late) = table.watch_since(a, stamp).expect("nothing has changed");
        assert!(!watch.is_overtaken() && !is_late);
        watch.store(|storing| storing.note(a, noted(1)));
        let (late, is_late) = table.watch_since(a, stamp).expect("nothing has changed");
        assert!(is_late, "a response was stored, though no fetch watched");
        drop(late);
        table.change(&a);
        assert!(watch.is_overtaken() && table.watch_since(a, stamp).is_none());
        let stamp = table.stamp(&a);
        table.change_all();
        assert!(table.watch_since(a, stamp).is_none());
        let stamp = table.stamp(&a);
        watch.change();
        assert!(table.watch_since(a, stamp).is_none());
        let stamp = table.stamp(&a);
        assert!(table.watch_since(a, stamp).is_some());
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
