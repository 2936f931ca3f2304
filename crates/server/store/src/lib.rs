//! Stored responses: index, memory, eviction.
//!
//! A [`Store`] is a bounded map from [`Key`] to the server's value for a response (something cheap
//! to clone, such as an `Arc`). It is divided into shards by key, each behind a mutex held for O(1)
//! work, so the cores of a server share it with little contention. [`s3fifo`] decides which object
//! to evict; [`Purges`] decides what is purged. [`disk::DiskStore`] keeps objects that outlive the
//! process.
//!
//! What never happens: the accounted bytes of a shard exceed the bound of the shard, even for a
//! moment; a value is dropped while a lock is held; a get allocates.
//!
//! # What it promises
//!
//! The store never exceeds its bound in bytes. It evicts by S3-FIFO over sized objects. Keys that
//! clients choose are hashed with a random seed. The store on disk (docs/disk.md) uses the
//! runtime's files, so that the simulation runs the same code as the server.
//!
//! - Every block is verified before a byte of the block is given out.
//! - An object that an acknowledged delete or purge removed never comes back, whatever crashes.
//! - A failure of the disk costs hits, and nothing else.
//! - Blocks of a long body that were verified in the page cache are sent from the page cache
//!   without being copied. This is done only while a mapping shows that the blocks have not left
//!   the page cache (`runtime::fs::StablePages`), and no other program has opened the file
//!   (`runtime::fs::OpenWatch`).
//!
//! `cargo xtask simulate` compares the store with a plain model. Each `make test` runs one minute
//! of this simulation with fresh seeds. The decoders are also fuzzed with inputs whose checksums
//! are valid.

#![forbid(unsafe_code)]

pub mod disk;
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
use shard::{Leaving, Shard};

/// The cost of an object beyond the caller's bytes: its entries in slab, index and ghost, each with
/// the slack of a container that doubles.
pub const ENTRY_OVERHEAD_BYTES: u64 = 256;

/// Four bytes of slot and one of control at a load factor of 7/16.
const INDEX_BYTES: usize = 12;

/// Room for one object per this many bytes is reserved at the start, so that a store of typical
/// objects does not pause to grow its index.
const OBJECT_BYTES_EXPECTED: u64 = 16 * 1024;
/// Room is reserved for at most this many objects per shard.
const OBJECTS_EXPECTED_MAX: u64 = 1 << 18;

/// Shards per worker of a store with several workers, to make lock contention rare.
pub const SHARDS_PER_WORKER: usize = 4;
/// Minimum size of a shard, because an object cannot be larger than its shard.
pub const SHARD_BYTES_MIN: u64 = 64 * 1024 * 1024;
/// More shards never help.
pub const SHARDS_MAX: usize = 256;

/// Evictions per lock while shrinking, so that other cores get the lock in between.
const EVICTIONS_PER_LOCK: usize = 64;

const _: () = assert!(SHARDS_MAX.is_power_of_two() && SHARDS_PER_WORKER.is_power_of_two());
const _: () = assert!(SHARD_BYTES_MIN > OBJECT_BYTES_EXPECTED);
const _: () = assert!(OBJECT_BYTES_EXPECTED > ENTRY_OVERHEAD_BYTES);
// A slot has 32 bits, and the last number means none.
const _: () = assert!(OBJECTS_EXPECTED_MAX < u32::MAX as u64);
const _: () = assert!(EVICTIONS_PER_LOCK > 0);

/// Options of a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// The bound of the whole store, including overhead.
    pub bytes_max: u64,
    /// A power of two; see [`Options::for_workers`].
    pub shards: usize,
    /// Maximum size of an object, including overhead; `None`: the size of a shard.
    pub object_bytes_max: Option<u64>,
    /// The seed of the keys.
    pub hasher: KeyHasher,
}

impl Options {
    /// The default store: one shard for one worker, otherwise [`SHARDS_PER_WORKER`] per worker, but
    /// no shard smaller than [`SHARD_BYTES_MIN`]; a random seed.
    #[must_use]
    pub fn for_workers(workers: usize, bytes_max: u64) -> Options {
        let wanted = if workers <= 1 { 1 } else { workers.saturating_mul(SHARDS_PER_WORKER) };
        let fitting = usize::try_from(bytes_max / SHARD_BYTES_MIN).unwrap_or(SHARDS_MAX).max(1);
        let shards = wanted.min(fitting).min(SHARDS_MAX);
        let shards = power_of_two_below(shards);
        assert!(shards == 1 || bytes_max / shards as u64 >= SHARD_BYTES_MIN);
        Options { bytes_max, shards, object_bytes_max: None, hasher: KeyHasher::random() }
    }
}

/// The largest power of two not above `count`, which is not zero.
fn power_of_two_below(count: usize) -> usize {
    assert!(count > 0);
    let power = 1 << (usize::BITS - 1 - count.leading_zeros());
    assert!(power <= count && count - power < power);
    power
}

/// Why an object was not stored. The value is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// Larger than any object may be.
    TooLarge {
        /// Its bytes, including overhead.
        bytes: u64,
        /// The maximum.
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

/// The effect of storing an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// Objects evicted or replaced.
    pub left: usize,
}

/// Counters and current contents of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)] // the first counters are in the cache line of the shard's lock
pub struct Counters {
    /// Gets that found something.
    pub hits: u64,
    /// Gets that found nothing.
    pub misses: u64,
    /// Objects stored under a new key.
    pub inserts: u64,
    /// Objects that replaced another object.
    pub replaces: u64,
    /// Objects removed on request.
    pub removes: u64,
    /// Objects evicted.
    pub evictions: u64,
    /// Bytes of evicted objects.
    pub evicted_bytes: u64,
    /// Objects refused.
    pub refused: u64,
    /// Current objects.
    pub objects: u64,
    /// Current bytes, including overhead; after a clear also the bytes of objects not swept yet.
    pub bytes: u64,
    /// The bound.
    pub bytes_max: u64,
}

/// The position of a walk through a store; see [`Store::visit`]. The default is the beginning.
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

/// Two cache lines apart, to avoid false sharing.
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
            assert!(entry <= ENTRY_OVERHEAD_BYTES as usize, "V must be small, such as an Arc");
        }
        let shards = options.shards.clamp(1, SHARDS_MAX);
        let shards = power_of_two_below(shards);
        assert!(shards.is_power_of_two(), "a shard is chosen by bits of the key");
        let shard_bytes_max = options.bytes_max / shards as u64;
        assert!(shard_bytes_max * shards as u64 <= options.bytes_max, "the store keeps its bound");
        let expected = (shard_bytes_max / OBJECT_BYTES_EXPECTED).min(OBJECTS_EXPECTED_MAX);
        let shard = |_| Padded(Lock::new(&SHARD, Shard::new(shard_bytes_max, expected as usize)));
        Store {
            shards: (0..shards).map(shard).collect(),
            object_bytes_max: options.object_bytes_max,
            hasher: options.hasher,
        }
    }

    /// The hasher for keys of this store.
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

    /// The value of a key. Does not count as an access.
    pub fn peek(&self, key: &Key) -> Option<V>
    where
        V: Clone,
    {
        self.lock(key).peek(*key).cloned()
    }

    /// Stores a value, replacing any other value of the key. `bytes` is the value's size, as
    /// accounted by the caller; [`ENTRY_OVERHEAD_BYTES`] is added.
    pub fn insert(&self, key: Key, value: V, bytes: u64) -> Result<Inserted, Refused> {
        let mut leaving = Leaving::new();
        let bytes = self.admit(key, bytes, |shard, bytes| {
            shard.insert(key, value, bytes, &mut leaving);
        });
        bytes.map(|()| Inserted { left: leaving.len() })
    }

    /// Stores a value if the test passes. The test gets the current value and runs under the
    /// shard's lock, so it must be short. Code that first makes the test fail and then removes the
    /// key finds either nothing or this value.
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

    /// Stores a value if the key has a value that passes the test, such as "the value that I
    /// updated". The test runs under the shard's lock, so it must be short. Returns whether the new
    /// value was stored.
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

    /// Stores a value if the key has a value.
    pub fn replace(&self, key: Key, value: V, bytes: u64) -> Result<bool, Refused> {
        self.replace_if(key, |_| true, value, bytes)
    }

    /// Removes a value.
    pub fn remove(&self, key: &Key) -> Option<V> {
        self.lock(key).remove_if(*key, |_| true)
    }

    /// Removes a value if it passes the test, which runs under the shard's lock.
    pub fn remove_if(&self, key: &Key, test: impl FnOnce(&V) -> bool) -> Option<V> {
        self.lock(key).remove_if(*key, test)
    }

    /// Removes everything stored so far, in O(shards). Its memory stays accounted until later
    /// insertions, or [`Store::sweep`], have freed it.
    pub fn clear(&self) {
        for shard in &self.shards {
            lock(shard).clear();
        }
    }

    /// Frees cleared objects, checking this many slots of each shard. True if none remain.
    pub fn sweep(&self, slots_per_shard: usize) -> bool {
        let mut done = true;
        for shard in &self.shards {
            let mut leaving = Leaving::new();
            done &= lock(shard).sweep(slots_per_shard, &mut leaving);
        }
        done
    }

    /// Calls `show` with the contents of at most `slots` slots of one shard, under its lock, so
    /// `show` must be short. Returns the next position, or `None` at the end. An object stored
    /// during the walk may be shown or not; every other object is shown once.
    pub fn visit(
        &self,
        from: Cursor,
        slots: usize,
        mut show: impl FnMut(Key, &V),
    ) -> Option<Cursor> {
        let shard = self.shards.get(from.shard)?;
        match lock(shard).visit(from.slot, slots, &mut show) {
            Some(slot) => {
                assert!(slot > from.slot || slots == 0, "a walk ends");
                Some(Cursor { slot, ..from })
            }
            None => {
                let shard = from.shard + 1;
                (shard < self.shards.len()).then_some(Cursor { shard, slot: 0 })
            }
        }
    }

    /// Evicts until the store has at most this many bytes. Its bound does not change.
    pub fn shrink_to(&self, bytes: u64) {
        let share = bytes / self.shards.len() as u64;
        for shard in &self.shards {
            shrink(shard, share);
        }
    }

    /// Changes the bound, and evicts objects that do not fit.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        let share = bytes_max / self.shards.len() as u64;
        for shard in &self.shards {
            // Shrinks in steps first, so that the last step under the lock is short.
            shrink(shard, share);
            let mut leaving = Leaving::new();
            lock(shard).set_bytes_max(share, &mut leaving);
        }
    }

    /// The number of slots that [`Store::visit`] visits: the largest number of objects that there
    /// ever was.
    pub fn slots(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).slots()).sum()
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Current bytes, including overhead.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).bytes()).sum()
    }

    /// Maximum size of an object (without overhead) that would be stored now.
    pub fn object_bytes_max(&self) -> u64 {
        let shard_bytes_max = lock(&self.shards[0]).bytes_max();
        let bytes_max = self.object_bytes_max.map_or(shard_bytes_max, |m| m.min(shard_bytes_max));
        bytes_max.saturating_sub(ENTRY_OVERHEAD_BYTES)
    }

    /// The sum of the counters of all shards.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for shard in &self.shards {
            let shard = lock(shard);
            let counters = &shard.counters;
            assert!(shard.bytes() <= shard.bytes_max(), "a shard keeps its bound");
            assert!(
                counters.removes + counters.evictions <= counters.inserts,
                "what left was there"
            );
            sum.hits += counters.hits;
            sum.misses += counters.misses;
            sum.inserts += counters.inserts;
            sum.replaces += counters.replaces;
            sum.removes += counters.removes;
            sum.evictions += counters.evictions;
            sum.evicted_bytes += counters.evicted_bytes;
            sum.refused += counters.refused;
            sum.objects += shard.len() as u64;
            sum.bytes += shard.bytes();
            sum.bytes_max += shard.bytes_max();
        }
        sum
    }

    /// Calls `store` with the key's shard and the accounted bytes, unless they exceed the maximum.
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
        assert!(shard.bytes() <= shard.bytes_max(), "a shard keeps its bound");
        Ok(())
    }

    #[inline(always)]
    fn lock(&self, key: &Key) -> Guard<'_, Shard<V>> {
        // Bits that neither place nor tag an entry in a hash table: the index hashes with the low
        // half of the key, the ghost with the high half, and both use only the ends of their half.
        let shard = (key.to_u128() >> 96) as usize & (self.shards.len() - 1);
        debug_assert!(shard < self.shards.len() && self.shards.len().is_power_of_two());
        lock(&self.shards[shard])
    }
}

/// Evicts in steps, so that no core waits long.
fn shrink<V>(shard: &Padded<V>, bytes: u64) {
    loop {
        let mut leaving = Leaving::new();
        if lock(shard).shrink_to(bytes, EVICTIONS_PER_LOCK, &mut leaving) {
            return;
        }
    }
}

fn lock<V>(shard: &Padded<V>) -> Guard<'_, Shard<V>> {
    shard.0.lock().expect("no panic while a shard is locked")
}

#[cfg(test)]
mod tests;
