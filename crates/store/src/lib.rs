//! Stored responses: index, memory, eviction.
//!
//! A [`Store`] is a map from [`Key`] to whatever the server keeps of a response (something cheap to
//! clone, such as an `Arc`), bounded in bytes. It is cut into shards by key, each behind a mutex
//! held for O(1) work, so that the cores of a server share it without waiting for each other long.
//! Which object goes when room is needed is decided by [`s3fifo`]; what a purge has taken, by
//! [`Purges`]. What is to outlive the process is kept by a [`disk::DiskStore`].
//!
//! What never happens: the sum of accounted bytes of a shard exceeds its bound, not even for a
//! moment; a value is dropped while a lock is held; a get allocates.

#![forbid(unsafe_code)]

pub mod disk;
pub mod fuzzing;
mod key;
mod purges;
pub mod s3fifo;
mod shard;
pub mod what_if;

pub use key::{Key, KeyBuilder, KeyHasher};
pub use purges::{
    Concerns, Generation, Hit, Known, Mark, PURGE_PREFIX_BYTES_MAX, PURGE_PREFIXES_MAX,
    PURGE_RECORDS_MAX, Purges, Sweep, Verdict,
};
use runtime::sync::{Guard, Lock, LockKind};
use shard::{Leaving, Shard, ShardCounters};

/// What an object costs beyond the caller's bytes: its places in slab, index and ghost,
/// each with the slack of a container that doubles.
pub const ENTRY_OVERHEAD_BYTES: u64 = 256;

/// Four bytes of slot and one of control at a load of 7/16.
const INDEX_BYTES: usize = 12;

/// Room is kept for one object per so many bytes from the start, so that a store of usual objects
/// does not stop to grow its index.
const OBJECT_BYTES_EXPECTED: u64 = 16 * 1024;
/// But for no more than this many in a shard.
const OBJECTS_EXPECTED_MAX: u64 = 1 << 18;

/// A store with several workers has so many shards each, to make meeting on a lock rare.
pub const SHARDS_PER_WORKER: usize = 4;
/// No shard is made smaller than this, because no object can be larger than its shard.
pub const SHARD_BYTES_MIN: u64 = 64 * 1024 * 1024;
/// More never help.
pub const SHARDS_MAX: usize = 256;

/// Shrinking lets others in after so many evictions.
const EVICTIONS_PER_LOCK: usize = 64;

const _: () = assert!(SHARDS_MAX.is_power_of_two());

/// How a store is built.
#[derive(Clone, Debug)]
pub struct Options {
    /// The bound of the whole store, overhead included.
    pub bytes_max: u64,
    /// A power of two; see [`Options::for_workers`].
    pub shards: usize,
    /// No object larger than this, overhead included; `None`: as large as a shard.
    pub object_bytes_max: Option<u64>,
    /// The seed of the keys.
    pub hasher: KeyHasher,
}

impl Options {
    /// The usual store: one shard for one worker, else [`SHARDS_PER_WORKER`] each as long as they
    /// are not smaller than [`SHARD_BYTES_MIN`]; a random seed.
    #[must_use]
    pub fn for_workers(workers: usize, bytes_max: u64) -> Options {
        let wanted = if workers <= 1 { 1 } else { workers.saturating_mul(SHARDS_PER_WORKER) };
        let fitting = usize::try_from(bytes_max / SHARD_BYTES_MIN).unwrap_or(SHARDS_MAX).max(1);
        let shards = wanted.min(fitting).min(SHARDS_MAX);
        let shards = power_of_two_below(shards);
        Options { bytes_max, shards, object_bytes_max: None, hasher: KeyHasher::random() }
    }
}

/// The largest power of two not above `count`, which is not zero.
fn power_of_two_below(count: usize) -> usize {
    1 << (usize::BITS - 1 - count.leading_zeros())
}

/// Why an object was not stored. The value is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// Larger than any object may be.
    TooLarge {
        /// Its bytes with overhead.
        bytes: u64,
        /// The most there may be.
        bytes_max: u64,
    },
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::TooLarge { bytes, bytes_max } => {
                write!(f, "the object takes {bytes} bytes, at most {bytes_max} fit")
            }
        }
    }
}

impl std::error::Error for Refused {}

/// What storing an object did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// Objects that left to make room, or that it replaced.
    pub left: usize,
}

/// What has happened in a store, and what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Gets that found something.
    pub hits: u64,
    /// Gets that found nothing.
    pub misses: u64,
    /// Objects stored under a key that held none.
    pub inserts: u64,
    /// Objects stored in place of another.
    pub replaces: u64,
    /// Objects taken out on request.
    pub removes: u64,
    /// Objects that left because room was needed.
    pub evictions: u64,
    /// And their bytes.
    pub evicted_bytes: u64,
    /// Objects refused.
    pub refused: u64,
    /// Objects held.
    pub objects: u64,
    /// Bytes held, overhead included; after a clear also of what is not yet swept.
    pub bytes: u64,
    /// The bound.
    pub bytes_max: u64,
}

/// Where a walk through a store goes on; see [`Store::visit`]. The default is its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    shard: usize,
    slot: usize,
}

/// Stored responses, shared by all cores.
pub struct Store<V> {
    shards: Box<[Padded<V>]>,
    object_bytes_max: Option<u64>,
    hasher: KeyHasher,
}

impl<V> std::fmt::Debug for Store<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

/// Two cache lines apart, so that neighbours do not slow each other down.
#[repr(align(128))]
struct Padded<V>(Lock<Shard<V>>);

static SHARD: LockKind = LockKind::new("store: shard");

impl<V> Store<V> {
    /// An empty store. The number of shards is rounded down to a power of two, at least one.
    #[must_use]
    pub fn new(options: Options) -> Store<V> {
        const {
            let node = s3fifo::node_bytes::<shard::Stored<V>>();
            let entry = 2 * node + INDEX_BYTES + s3fifo::GHOST_BYTES;
            assert!(entry <= ENTRY_OVERHEAD_BYTES as usize, "V is to be small, such as an Arc");
        }
        let shards = options.shards.clamp(1, SHARDS_MAX);
        let shards = power_of_two_below(shards);
        let shard_bytes_max = options.bytes_max / shards as u64;
        let expected = (shard_bytes_max / OBJECT_BYTES_EXPECTED).min(OBJECTS_EXPECTED_MAX);
        let shard = |_| Padded(Lock::new(&SHARD, Shard::new(shard_bytes_max, expected as usize)));
        Store {
            shards: (0..shards).map(shard).collect(),
            object_bytes_max: options.object_bytes_max,
            hasher: options.hasher,
        }
    }

    /// Makes the keys of this store.
    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// The number of shards.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The value of a key. Counts as an access.
    #[inline]
    pub fn get(&self, key: &Key) -> Option<V>
    where
        V: Clone,
    {
        self.lock(key).get(*key)
    }

    /// The value of a key; no access, not counted.
    pub fn peek(&self, key: &Key) -> Option<V>
    where
        V: Clone,
    {
        self.lock(key).peek(*key).cloned()
    }

    /// Stores a value, in place of another one with its key. `bytes` is what the value holds on to,
    /// as the caller accounts it; [`ENTRY_OVERHEAD_BYTES`] are added.
    pub fn insert(&self, key: Key, value: V, bytes: u64) -> Result<Inserted, Refused> {
        let mut leaving = Leaving::new();
        let bytes = self.admit(key, bytes, |shard, bytes| {
            shard.insert(key, value, bytes, &mut leaving);
        });
        bytes.map(|()| Inserted { left: leaving.len() })
    }

    /// Stores a value if the test holds, which is given what is there and runs under the shard's
    /// lock: it must be short. What makes the test fail and then takes the key out finds either
    /// nothing or this value.
    pub fn insert_if(
        &self,
        key: Key,
        test: impl FnOnce(Option<&V>) -> bool,
        value: V,
        bytes: u64,
    ) -> Result<bool, Refused> {
        let mut leaving = Leaving::new();
        let mut stored = false;
        self.admit(key, bytes, |shard, bytes| {
            stored = test(shard.peek(key));
            match stored {
                true => shard.insert(key, value, bytes, &mut leaving),
                false => leaving.push(value),
            }
        })?;
        drop(leaving);
        Ok(stored)
    }

    /// Stores a value if the key still holds one that passes the test, such as "the one I updated".
    /// The test runs under the shard's lock: it must be short. Says whether it was stored.
    pub fn replace_if(
        &self,
        key: Key,
        test: impl FnOnce(&V) -> bool,
        value: V,
        bytes: u64,
    ) -> Result<bool, Refused> {
        let mut leaving = Leaving::new();
        let mut replaced = false;
        self.admit(key, bytes, |shard, bytes| {
            replaced = shard.replace_if(key, test, value, bytes, &mut leaving);
        })?;
        drop(leaving);
        Ok(replaced)
    }

    /// Stores a value if the key still holds one.
    pub fn replace(&self, key: Key, value: V, bytes: u64) -> Result<bool, Refused> {
        self.replace_if(key, |_| true, value, bytes)
    }

    /// Takes out a value.
    pub fn remove(&self, key: &Key) -> Option<V> {
        self.lock(key).remove_if(*key, |_| true)
    }

    /// Takes out a value if it passes the test, which runs under the shard's lock.
    pub fn remove_if(&self, key: &Key, test: impl FnOnce(&V) -> bool) -> Option<V> {
        self.lock(key).remove_if(*key, test)
    }

    /// Everything stored so far is gone for all who ask, in O(shards). Its memory stays accounted
    /// until later insertions, or [`Store::sweep`], have let go of it.
    pub fn clear(&self) {
        for shard in &self.shards {
            lock(shard).clear();
        }
    }

    /// Lets go of cleared objects, looking at so many slots of each shard at once. True when
    /// nothing is left to do.
    pub fn sweep(&self, slots_per_shard: usize) -> bool {
        let mut done = true;
        for shard in &self.shards {
            let mut leaving = Leaving::new();
            done &= lock(shard).sweep(slots_per_shard, &mut leaving);
        }
        done
    }

    /// Shows what some slots hold: at most so many of one shard, under its lock, so `show` must
    /// be short. Returns where to go on, or `None` when all were shown. What is stored meanwhile
    /// may be shown or not; everything else is shown once.
    pub fn visit(
        &self,
        from: Cursor,
        slots: usize,
        mut show: impl FnMut(Key, &V),
    ) -> Option<Cursor> {
        let shard = self.shards.get(from.shard)?;
        match lock(shard).visit(from.slot, slots, &mut show) {
            Some(slot) => Some(Cursor { slot, ..from }),
            None => {
                let shard = from.shard + 1;
                (shard < self.shards.len()).then_some(Cursor { shard, slot: 0 })
            }
        }
    }

    /// Evicts until the store holds no more than this; its bound stays.
    pub fn shrink_to(&self, bytes: u64) {
        let share = bytes / self.shards.len() as u64;
        for shard in &self.shards {
            shrink(shard, share);
        }
    }

    /// Another bound from now on; evicts what does not fit.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        let share = bytes_max / self.shards.len() as u64;
        for shard in &self.shards {
            // First down to the new bound in steps, so that the last step under the lock is short.
            shrink(shard, share);
            let mut leaving = Leaving::new();
            lock(shard).set_bytes_max(share, &mut leaving);
        }
    }

    /// Objects held.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Are none held?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes held, overhead included.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).bytes()).sum()
    }

    /// The largest object (without overhead) that would be stored now.
    pub fn object_bytes_max(&self) -> u64 {
        let shard_bytes_max = lock(&self.shards[0]).bytes_max();
        let bytes_max = self.object_bytes_max.map_or(shard_bytes_max, |m| m.min(shard_bytes_max));
        bytes_max.saturating_sub(ENTRY_OVERHEAD_BYTES)
    }

    /// The counters of all shards, summed now.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for shard in &self.shards {
            let shard = lock(shard);
            let ShardCounters {
                hits,
                misses,
                inserts,
                replaces,
                removes,
                evictions,
                evicted_bytes,
                refused,
            } = shard.counters;
            sum.hits += hits;
            sum.misses += misses;
            sum.inserts += inserts;
            sum.replaces += replaces;
            sum.removes += removes;
            sum.evictions += evictions;
            sum.evicted_bytes += evicted_bytes;
            sum.refused += refused;
            sum.objects += shard.len() as u64;
            sum.bytes += shard.bytes();
            sum.bytes_max += shard.bytes_max();
        }
        sum
    }

    /// Runs `store` on the key's shard with the accounted bytes, unless they are too many.
    fn admit(
        &self,
        key: Key,
        bytes: u64,
        store: impl FnOnce(&mut Shard<V>, u64),
    ) -> Result<(), Refused> {
        let bytes = bytes.saturating_add(ENTRY_OVERHEAD_BYTES);
        let mut shard = self.lock(&key);
        let bytes_max = shard.bytes_max().min(self.object_bytes_max.unwrap_or(u64::MAX));
        if bytes > bytes_max {
            shard.counters.refused += 1;
            return Err(Refused::TooLarge { bytes, bytes_max });
        }
        store(&mut shard, bytes);
        Ok(())
    }

    #[inline]
    fn lock(&self, key: &Key) -> Guard<'_, Shard<V>> {
        // Bits that neither place nor tag an entry in a hash table: the index hashes with the low
        // half of the key, the ghost with the high half, and both use only the ends of it.
        let shard = (key.to_u128() >> 96) as usize & (self.shards.len() - 1);
        lock(&self.shards[shard])
    }
}

/// Evicts in steps, so that no core waits for long.
fn shrink<V>(shard: &Padded<V>, bytes: u64) {
    loop {
        let mut leaving = Leaving::new();
        if lock(shard).shrink_to(bytes, EVICTIONS_PER_LOCK, &mut leaving) {
            return;
        }
    }
}

fn lock<V>(shard: &Padded<V>) -> Guard<'_, Shard<V>> {
    shard.0.lock().expect("nobody panics while holding a shard")
}

#[cfg(test)]
mod tests;
