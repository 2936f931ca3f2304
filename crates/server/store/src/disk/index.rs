//! The index: the place of each object, in memory.
//!
//! What: a table from the fingerprint of a key (its low 64 bits) to place, length, touch count and
//! flags, 20 bytes, in shards with a short mutex each. The whole key is compared in the record.
//! Besides the table there are the records not written yet, and the ghosts of eviction. Who owns:
//! the index is authoritative while the process lives. Each change is appended to the journal under
//! the shard's lock, so the journal has the changes of a key in their order. A put is appended only
//! when its record was written, so a killed process leaves no entry without a record. What never
//! happens: an entry is found whose segment has no life, or is added to a life that has ended; a
//! peek or a look-up reads the disk.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;
use runtime::sync::{Guard, Lock, LockKind};

use super::bytes::Put;
use super::ghosts::Ghosts;
use super::journal::SavedEntry;
use super::limits::{ALIGNMENT, SHARDS_MAX};
use super::record::Unwritten;

/// Maximum of the touch count.
pub(super) const TOUCHES_MAX: u16 = 3;

const TOUCHES: u16 = 0b0011;
/// Not written yet: the record is in `buffered`.
const BUFFERED: u16 = 0b0100;
/// A chunk of an object rather than an object.
pub(super) const CHUNK: u16 = 0b1000;

const _: () = assert!(TOUCHES_MAX == TOUCHES && TOUCHES & (BUFFERED | CHUNK) == 0);
const _: () = assert!(BUFFERED & CHUNK == 0);

/// Where a record begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) segment: u16,
    pub(super) offset: u32,
}

/// In 4-byte words, so that an entry takes 20 bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    print: [u32; 2],
    offset: u32,
    len: u32,
    segment: u16,
    flags: u16,
}

/// Bytes of an entry, including its control byte in the table.
pub const ENTRY_BYTES: usize = size_of::<Entry>() + 1;
const _: () = assert!(ENTRY_BYTES == 21);

impl Entry {
    fn print(&self) -> u64 {
        u64::from(self.print[0]) | u64::from(self.print[1]) << 32
    }

    fn place(&self) -> Place {
        Place { segment: self.segment, offset: self.offset }
    }
}

/// The result of a look-up.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) print: u64,
    pub(super) place: Place,
    pub(super) len: u32,
    /// The life of its segment at the time of the look-up.
    pub(super) life: u64,
    /// The record itself, if it is not written yet.
    pub(super) unwritten: Option<Arc<Unwritten>>,
}

/// A record to be added.
#[derive(Clone, Debug)]
pub(super) struct New {
    pub(super) print: u64,
    pub(super) place: Place,
    pub(super) life: u64,
    pub(super) touches: u16,
    pub(super) chunk: bool,
    pub(super) record: Arc<Unwritten>,
}

/// An entry of a segment that is being reclaimed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) print: u64,
    pub(super) offset: u32,
    pub(super) len: u32,
    pub(super) touches: u16,
    pub(super) chunk: bool,
}

/// A record that is not written yet.
struct Buffered {
    place: Place,
    record: Arc<Unwritten>,
    /// What a crash leaves until the record is written: the entry that it replaces.
    before: Option<SavedEntry>,
}

#[derive(Default)]
struct Shard {
    table: HashTable<Entry>,
    buffered: HashMap<u64, Buffered>,
    ghosts: Ghosts,
    chunks: usize,
}

/// Two cache lines apart, to avoid false sharing.
#[repr(align(128))]
struct Padded(Lock<Shard>);

static SHARD: LockKind = LockKind::new("disk: index shard");

pub(super) struct Index {
    shards: Box<[Padded]>,
    /// Indexed by segment; 0: nothing in it can be found.
    lives: Arc<[AtomicU64]>,
}

fn hash(entry: &Entry) -> u64 {
    entry.print()
}

impl Shard {
    /// Adds a fingerprint to the ghosts, of which there may be as many as objects.
    fn remember(&mut self, print: u64) {
        let objects = self.table.len();
        self.ghosts.remember(print, objects);
    }

    fn find(&self, print: u64) -> Option<&Entry> {
        self.table.find(print, |entry| entry.print() == print)
    }

    fn find_mut(&mut self, print: u64) -> Option<&mut Entry> {
        self.table.find_mut(print, |entry| entry.print() == print)
    }

    fn take(&mut self, print: u64) -> Option<(Entry, Option<Buffered>)> {
        let (entry, _) =
            self.table.find_entry(print, |entry| entry.print() == print).ok()?.remove();
        assert!(self.chunks <= self.table.len() + 1, "chunks are entries");
        let is_chunk = usize::from(entry.flags & CHUNK != 0);
        assert!(self.chunks >= is_chunk, "each chunk was counted");
        self.chunks -= is_chunk;
        let buffered = self.buffered.remove(&print);
        assert!(
            buffered.is_some() == (entry.flags & BUFFERED != 0),
            "an entry that is not written has its record in memory"
        );
        Some((entry, buffered))
    }

    fn insert(&mut self, entry: Entry) {
        debug_assert!(self.find(entry.print()).is_none(), "a fingerprint has one entry");
        assert!(entry.len > 0 && entry.flags & !(TOUCHES | BUFFERED | CHUNK) == 0);
        debug_assert!(entry.offset.is_multiple_of(ALIGNMENT), "a record begins at a multiple");
        self.chunks += usize::from(entry.flags & CHUNK != 0);
        self.table.insert_unique(entry.print(), entry, hash);
        assert!(self.chunks <= self.table.len(), "chunks are entries");
        assert!(self.buffered.len() <= self.table.len(), "a record in memory has its entry");
    }
}

impl Index {
    pub(super) fn new(shards: usize, lives: Arc<[AtomicU64]>) -> Index {
        let shards = shards.clamp(1, SHARDS_MAX).next_power_of_two();
        assert!(shards.is_power_of_two(), "a shard is chosen by bits of the fingerprint");
        Index {
            shards: (0..shards).map(|_| Padded(Lock::new(&SHARD, Shard::default()))).collect(),
            lives,
        }
    }

    /// Looks a key up. Counts as a touch if `touch` is set.
    pub(super) fn look_up(&self, print: u64, touch: bool) -> Option<Found> {
        let mut shard = self.lock(print);
        let entry = shard.find_mut(print)?;
        let life = self.lives[usize::from(entry.segment)].load(Ordering::Acquire);
        if life == 0 {
            return None;
        }
        let flags = entry.flags;
        if touch && flags & TOUCHES < TOUCHES_MAX {
            entry.flags += 1;
        }
        debug_assert!(entry.flags & !TOUCHES == flags & !TOUCHES, "a touch changes its count only");
        let entry = *entry;
        let is_buffered = entry.flags & BUFFERED != 0;
        debug_assert!(is_buffered == shard.buffered.contains_key(&print), "it has its record");
        debug_assert!(shard.buffered.get(&print).is_none_or(|of| of.place == entry.place()));
        let unwritten = is_buffered.then(|| Arc::clone(&shard.buffered[&print].record));
        Some(Found { print, place: entry.place(), len: entry.len, life, unwritten })
    }

    /// Adds a record, replacing any other with its key. With `instead_of`, only if the current one
    /// is at that place; a crash then leaves the old one until the new one is written. Otherwise
    /// calls `gone` under the lock if there was another. False: its segment's life has ended, or
    /// there was no record at `instead_of`.
    pub(super) fn put(&self, new: New, instead_of: Option<Place>, gone: impl FnOnce()) -> bool {
        assert!(new.life != 0 && new.touches <= TOUCHES_MAX);
        assert!(instead_of != Some(new.place), "a place is written once in a life");
        let mut shard = self.lock(new.print);
        if self.lives[usize::from(new.place.segment)].load(Ordering::Acquire) != new.life {
            return false;
        }
        if let Some(place) = instead_of {
            let there = shard.find(new.print).is_some_and(|entry| entry.place() == place);
            if !there {
                return false;
            }
        }
        let replaced = shard.take(new.print);
        shard.insert(Entry {
            print: [new.print as u32, (new.print >> 32) as u32],
            offset: new.place.offset,
            len: new.record.len(),
            segment: new.place.segment,
            flags: new.touches | BUFFERED | if new.chunk { CHUNK } else { 0 },
        });
        let before = match replaced {
            Some((_, Some(buffered))) if instead_of.is_some() => buffered.before,
            Some((entry, None)) if instead_of.is_some() => Some(self.saved(&entry)),
            Some(_) => {
                gone();
                None
            }
            None => None,
        };
        let buffered = Buffered { place: new.place, record: new.record, before };
        let other = shard.buffered.insert(new.print, buffered);
        assert!(other.is_none(), "the record of the replaced entry was taken with it");
        true
    }

    /// Removes an entry; with `at`, only if it is at that place. Calls `then` under the lock, with
    /// whether there was one.
    pub(super) fn remove(&self, print: u64, at: Option<Place>, then: impl FnOnce(bool)) -> bool {
        let mut shard = self.lock(print);
        let there = shard.find(print).is_some_and(|e| at.is_none_or(|at| e.place() == at));
        if there {
            shard.take(print);
            debug_assert!(shard.find(print).is_none(), "a fingerprint has one entry");
        }
        then(there);
        there
    }

    /// Evicts an entry. The ghosts remember it if `remember` is set.
    pub(super) fn evict(&self, print: u64, at: Place, remember: bool) -> bool {
        let mut shard = self.lock(print);
        let there = shard.find(print).is_some_and(|entry| entry.place() == at);
        if there {
            let (_, buffered) = shard.take(print).expect("found just before");
            assert!(buffered.is_none(), "a segment with a record to be written is not reclaimed");
            if remember {
                shard.remember(print);
            }
        }
        there
    }

    /// Notes that a record was written and is read from disk from now on. If it is still current,
    /// calls `then` under the lock, with whether it is a chunk.
    pub(super) fn written(&self, print: u64, place: Place, then: impl FnOnce(bool)) {
        let mut shard = self.lock(print);
        if shard.buffered.get(&print).is_none_or(|buffered| buffered.place != place) {
            return;
        }
        shard.buffered.remove(&print);
        if let Some(entry) = shard.find_mut(print) {
            assert!(entry.place() == place, "the record in memory is that of the entry");
            assert!(entry.flags & BUFFERED != 0, "a record is written once");
            entry.flags &= !BUFFERED;
            then(entry.flags & CHUNK != 0);
        }
    }

    /// Whether a record is at that place on the disk.
    pub(super) fn is_written(&self, print: u64, place: Place) -> bool {
        let shard = self.lock(print);
        let found = shard.find(print);
        found.is_some_and(|entry| entry.place() == place && entry.flags & BUFFERED == 0)
    }

    /// Whether the ghosts know a fingerprint. Forgets it if `taken`.
    pub(super) fn ghost(&self, print: u64, taken: bool) -> bool {
        let mut shard = self.lock(print);
        if taken { shard.ghosts.forget(print) } else { shard.ghosts.knows(print) }
    }

    /// All entries of a segment. Looks at every entry, and locks one shard at a time.
    pub(super) fn in_segment(&self, segment: u16) -> Vec<Candidate> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let here = shard.table.iter().filter(|entry| entry.segment == segment);
            found.extend(here.map(|entry| Candidate {
                print: entry.print(),
                offset: entry.offset,
                len: entry.len,
                touches: entry.flags & TOUCHES,
                chunk: entry.flags & CHUNK != 0,
            }));
        }
        found
    }

    /// Removes all entries of a segment whose life has ended. Calls `lost` under the lock with the
    /// key of each that was not written yet. Returns their number.
    pub(super) fn forget_segment(&self, segment: u16, lost: impl Fn(u64)) -> usize {
        let life = &self.lives[usize::from(segment)];
        assert!(life.load(Ordering::Acquire) == 0, "its life has ended: no entry is added");
        let mut count = 0;
        for Candidate { print, offset, .. } in self.in_segment(segment) {
            let mut shard = self.lock(print);
            let place = Place { segment, offset };
            if shard.find(print).is_some_and(|entry| entry.place() == place) {
                let taken = shard.take(print);
                count += 1;
                if taken.is_some_and(|(_, buffered)| buffered.is_some()) {
                    lost(print);
                }
            }
        }
        count
    }

    /// Appends the entries of a shard as they are saved: for an unwritten record, the entry it
    /// replaces.
    pub(super) fn save(&self, shard: usize, out: &mut Vec<u8>) -> usize {
        let shard = lock(&self.shards[shard]);
        let (mut count, before) = (0, out.len());
        out.reserve(shard.table.len() * SavedEntry::BYTES);
        for entry in &shard.table {
            let saved = if entry.flags & BUFFERED == 0 {
                Some(self.saved(entry))
            } else {
                shard.buffered[&entry.print()].before
            };
            let Some(saved) = saved else { continue };
            let life = self.lives[usize::from(saved.segment)].load(Ordering::Acquire);
            if life != 0 && life == saved.life {
                out.put(&saved.encode());
                count += 1;
            }
        }
        assert!(count <= shard.table.len() && out.len() - before == count * SavedEntry::BYTES);
        count
    }

    fn saved(&self, entry: &Entry) -> SavedEntry {
        debug_assert!(entry.flags & BUFFERED == 0, "what is saved is on the disk");
        SavedEntry {
            print: entry.print(),
            segment: entry.segment,
            flags: entry.flags & (TOUCHES | CHUNK),
            offset: entry.offset,
            len: entry.len,
            life: self.lives[usize::from(entry.segment)].load(Ordering::Acquire),
        }
    }

    /// Adds a saved entry, unless there is a newer one.
    pub(super) fn load(&self, saved: &SavedEntry) {
        assert!(usize::from(saved.segment) < self.lives.len() && saved.len > 0);
        assert!(saved.life != 0, "the caller drops entries without a life");
        let mut shard = self.lock(saved.print);
        if shard.find(saved.print).is_none() {
            shard.insert(Entry {
                print: [saved.print as u32, (saved.print >> 32) as u32],
                offset: saved.offset,
                len: saved.len,
                segment: saved.segment,
                flags: saved.flags & (TOUCHES | CHUNK),
            });
        }
    }

    /// Reserves room for this many entries.
    pub(super) fn reserve(&self, entries: usize) {
        for shard in &self.shards {
            lock(shard).table.reserve(entries / self.shards.len(), hash);
        }
    }

    /// The fingerprints of the objects in a shard.
    pub(super) fn objects(&self, shard: usize) -> Option<Vec<u64>> {
        let shard = lock(self.shards.get(shard)?);
        let objects = shard.table.iter().filter(|entry| entry.flags & CHUNK == 0);
        let prints: Vec<u64> = objects.map(Entry::print).collect();
        assert!(prints.len() + shard.chunks == shard.table.len(), "an entry is one of two");
        Some(prints)
    }

    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Number of objects, and of chunks.
    pub(super) fn len(&self) -> (usize, usize) {
        self.shards.iter().map(lock).fold((0, 0), |(objects, chunks), shard| {
            (objects + shard.table.len() - shard.chunks, chunks + shard.chunks)
        })
    }

    /// Bytes used by tables and ghosts.
    pub(super) fn allocated_bytes(&self) -> usize {
        let of = |shard: Guard<'_, Shard>| {
            shard.table.allocation_size() + shard.ghosts.allocated_bytes()
        };
        self.shards.iter().map(|shard| of(lock(shard))).sum()
    }

    fn lock(&self, print: u64) -> Guard<'_, Shard> {
        // Bits that neither place nor tag an entry in its table.
        lock(&self.shards[(print >> 48) as usize & (self.shards.len() - 1)])
    }
}

fn lock(shard: &Padded) -> Guard<'_, Shard> {
    shard.0.lock().expect("no panic while a shard is locked")
}

#[cfg(test)]
mod tests {
    use super::super::checksum::Spot;
    use super::*;

    fn index() -> Index {
        Index::new(4, (0..8).map(|_| AtomicU64::new(5)).collect())
    }

    fn new(print: u64, offset: u32) -> New {
        let place = Place { segment: 1, offset };
        let spot = Spot { segment: 1, offset, life: 5, print };
        let record = Arc::new(Unwritten::made(spot, vec![1; 100]));
        New { print, place, life: 5, touches: 0, chunk: false, record }
    }

    #[test]
    fn an_entry_is_found_until_its_segment_ends() {
        let index = index();
        assert!(index.look_up(9, true).is_none());
        assert!(index.put(new(9, 0), None, || ()));
        assert!(index.look_up(9, true).unwrap().unwritten.is_some());
        let mut saved = Vec::new();
        let save =
            |saved: &mut Vec<u8>| (0..4).map(|shard| index.save(shard, saved)).sum::<usize>();
        index.written(9, Place { segment: 1, offset: 8 }, |_| panic!("not called"));
        assert!(index.look_up(9, true).unwrap().unwritten.is_some(), "another record was written");
        assert_eq!(save(&mut saved), 0, "unwritten records are not saved");
        let mut calls = 0;
        for _ in 0..2 {
            index.written(9, Place { segment: 1, offset: 0 }, |chunk| {
                assert!(!chunk);
                calls += 1;
            });
        }
        assert_eq!((calls, save(&mut saved)), (1, 1));
        assert!(index.look_up(9, true).unwrap().unwritten.is_none());
        assert_eq!(index.in_segment(1)[0].touches, 3, "counted up to three");
        index.lives[1].store(0, Ordering::Release);
        assert!(index.look_up(9, true).is_none());
        assert!(!index.put(new(10, 0), None, || panic!("not called")), "its segment has ended");
        assert_eq!(index.forget_segment(1, |_| panic!("it was written")), 1);
        assert_eq!(index.len(), (0, 0));
    }

    #[test]
    fn concurrent_changes_are_kept() {
        let index = index();
        index.put(new(9, 0), None, || panic!("there was none"));
        let mut gone = false;
        index.put(new(9, 104), None, || gone = true);
        assert!(gone, "the old record is gone even if the new one is lost");
        let first = Some(Place { segment: 1, offset: 0 });
        assert!(!index.put(new(9, 208), first, || panic!("not put")));
        let second = Some(Place { segment: 1, offset: 104 });
        index.written(9, Place { segment: 1, offset: 104 }, |_| ());
        let saved = || {
            let mut out = Vec::new();
            (0..4).for_each(|shard| _ = index.save(shard, &mut out));
            SavedEntry::decode(&out).map(|entry| entry.offset)
        };
        // Until it is written, a crash leaves the one before; also if that happens twice.
        assert!(index.put(new(9, 312), second, || panic!("it stays")));
        let third = Some(Place { segment: 1, offset: 312 });
        assert!(index.put(new(9, 416), third, || panic!("it stays")));
        index.written(9, Place { segment: 1, offset: 312 }, |_| panic!("replaced meanwhile"));
        assert_eq!(saved(), Some(104));
        index.lives[1].store(6, Ordering::Release);
        assert_eq!(saved(), None, "its segment has ended");
        index.written(9, Place { segment: 1, offset: 416 }, |_| ());
        assert_eq!(saved(), Some(416));
        index.lives[1].store(5, Ordering::Release);
        assert!(!index.remove(9, first, |there| assert!(!there)));
        assert!(!index.evict(9, Place { segment: 1, offset: 0 }, true));
        assert!(index.evict(9, Place { segment: 1, offset: 416 }, true));
        index.put(new(9, 208), None, || panic!("there was none"));
        let lost = std::cell::Cell::new(0);
        index.lives[1].store(0, Ordering::Release);
        assert_eq!(index.forget_segment(1, |print| lost.set(print)), 1);
        assert_eq!(lost.get(), 9, "the replaced record must not come back");
        assert!(index.ghost(9, false) && index.ghost(9, true) && !index.ghost(9, true));
    }

    /// The bound in the documentation: bytes of memory per object, worst case.
    #[test]
    fn an_object_takes_at_most_64_bytes_at_any_count() {
        let index = Index::new(64, (0..8).map(|_| AtomicU64::new(5)).collect());
        let mut random = 1_u64;
        let mut worst = 0.0_f64;
        for count in 1..=300_000_usize {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let print = (random ^ random >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let saved = SavedEntry { print, segment: 1, flags: 0, offset: 0, len: 9, life: 5 };
            index.load(&saved);
            if count % 1024 == 0 {
                let ghost = print ^ 0xffff_0000;
                index.lock(ghost).remember(ghost);
            }
            if count >= 100_000 && count % 5_000 == 0 {
                // As many ghosts as the shards can have.
                for shard in &index.shards {
                    lock(shard).remember(print);
                }
                worst = worst.max(index.allocated_bytes() as f64 / count as f64);
            }
        }
        assert!(worst > 24.0 && worst <= 64.0, "{worst}");
    }
}
