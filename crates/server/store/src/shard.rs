//! One shard: an index and a policy with the values, used by one thread at a time.
//!
//! The lock is held for O(1) amortised work. Removed values are returned, and the caller drops them
//! after it released the lock, because freeing a large object takes time.

use hashbrown::HashTable;

use crate::Counters;
use crate::key::Key;
use crate::s3fifo::{Gone, Policy, Slot};

/// Slots checked per insertion while objects of an older generation remain.
const SWEEP_SLOTS_PER_INSERT: usize = 8;

/// A hit of one core takes from another core the cache line of the lock: the counters of hits and
/// misses, which come first, are in that line. The first hits of an entry also write to its count
/// of touches.
#[repr(C)]
pub(crate) struct Shard<V> {
    /// Without the current contents, which [`crate::Store::counters`] adds.
    pub(crate) counters: Counters,
    index: HashTable<Slot>,
    policy: Policy<Stored<V>>,
    bytes_max: u64,
    /// Objects of older generations that still take memory.
    outdated: usize,
    sweep_at: usize,
    /// Objects of other generations count as removed.
    generation: u32,
}

pub(crate) struct Stored<V> {
    value: V,
    generation: u32,
}

/// Values to drop outside the lock.
pub(crate) type Leaving<V> = Vec<V>;

impl<V> Shard<V> {
    pub(crate) fn new(bytes_max: u64, objects_expected: usize) -> Shard<V> {
        let mut policy = Policy::new(bytes_max);
        policy.reserve(objects_expected);
        Shard {
            counters: Counters::default(),
            index: HashTable::with_capacity(objects_expected),
            policy,
            bytes_max,
            outdated: 0,
            sweep_at: 0,
            generation: 0,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.policy.bytes()
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub(crate) fn slots(&self) -> usize {
        self.policy.slots()
    }

    pub(crate) fn len(&self) -> usize {
        debug_assert!(self.outdated <= self.policy.len());
        self.policy.len() - self.outdated
    }

    /// The value of a key. Touches and counts it.
    #[inline]
    pub(crate) fn get(&mut self, key: Key) -> Option<V>
    where
        V: Clone,
    {
        let found = self.find(key).and_then(|slot| {
            let stored = self.policy.held(slot)?;
            let is_current = stored.generation == self.generation;
            debug_assert!(
                is_current || self.outdated > 0,
                "a clear has counted every older object"
            );
            is_current.then(|| (slot, stored.value.clone()))
        });
        match found {
            Some((slot, value)) => {
                self.policy.touch(slot);
                self.counters.hits += 1;
                Some(value)
            }
            None => {
                self.counters.misses += 1;
                None
            }
        }
    }

    /// The value of a key, neither touched nor counted.
    pub(crate) fn peek(&self, key: Key) -> Option<&V> {
        let stored = self.policy.held(self.find(key)?)?;
        (stored.generation == self.generation).then_some(&stored.value)
    }

    /// Stores a value, replacing any other with its key. `bytes` must not exceed the bound.
    pub(crate) fn insert(&mut self, key: Key, value: V, bytes: u64, leaving: &mut Leaving<V>) {
        self.sweep(SWEEP_SLOTS_PER_INSERT, leaving);
        if let Some(slot) = self.find_current(key, leaving) {
            self.replace_at(slot, value, bytes, leaving);
            return;
        }
        self.make_room(bytes, leaving);
        let stored = Stored { value, generation: self.generation };
        let slot = self.policy.insert(key.to_u128(), bytes, stored);
        let Shard { index, policy, .. } = self;
        let rehash = |&at: &Slot| bits(policy.key(at).expect("the index names taken slots"));
        index.insert_unique(bits(key.to_u128()), slot, rehash);
        debug_assert!(self.find(key) == Some(slot), "a key has one slot");
        self.counters.inserts += 1;
        self.check();
    }

    /// Replaces the value of a key if the current one passes the test. Otherwise pushes `value` to
    /// `leaving`.
    pub(crate) fn replace_if(
        &mut self,
        key: Key,
        test: impl FnOnce(&V) -> bool,
        value: V,
        bytes: u64,
        leaving: &mut Leaving<V>,
    ) -> bool {
        let Some(slot) = self.find_current(key, leaving) else {
            leaving.push(value);
            return false;
        };
        let current = self.policy.held(slot).expect("the index names taken slots");
        if !test(&current.value) {
            leaving.push(value);
            return false;
        }
        self.replace_at(slot, value, bytes, leaving);
        true
    }

    pub(crate) fn remove_if(&mut self, key: Key, test: impl FnOnce(&V) -> bool) -> Option<V> {
        let slot = self.find(key)?;
        let stored = self.policy.held(slot)?;
        let current = stored.generation == self.generation;
        if current && !test(&stored.value) {
            return None;
        }
        let value = self.take_out(slot);
        debug_assert!(self.find(key).is_none(), "a key has one slot");
        if current {
            self.counters.removes += 1;
            Some(value)
        } else {
            None
        }
    }

    /// Removes everything stored so far. Its memory is freed by later insertions, evictions and
    /// [`Shard::sweep`].
    pub(crate) fn clear(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.outdated = self.policy.len();
        self.sweep_at = 0;
        assert!(self.len() == 0, "nothing is stored after a clear");
    }

    /// Checks this many slots for objects of older generations. True if none remain.
    pub(crate) fn sweep(&mut self, slots: usize, leaving: &mut Leaving<V>) -> bool {
        for _ in 0..slots {
            if self.outdated == 0 {
                return true;
            }
            assert!(self.policy.slots() >= self.outdated, "each object has a slot");
            let at = self.sweep_at % self.policy.slots();
            self.sweep_at = at + 1;
            let slot = Slot::try_from(at).expect("a slot has 32 bits");
            if self.policy.held(slot).is_some_and(|s| s.generation != self.generation) {
                leaving.push(self.take_out(slot));
            }
        }
        self.outdated == 0
    }

    /// Calls `show` with the objects in this many slots. Returns the next slot, or `None` at the
    /// end.
    pub(crate) fn visit(
        &self,
        from: usize,
        slots: usize,
        show: &mut impl FnMut(Key, &V),
    ) -> Option<usize> {
        let to = from.saturating_add(slots).min(self.policy.slots());
        debug_assert!(from <= self.policy.slots(), "slots are never taken back");
        for at in from..to {
            let slot = Slot::try_from(at).expect("a slot has 32 bits");
            if let (Some(key), Some(stored)) = (self.policy.key(slot), self.policy.held(slot))
                && stored.generation == self.generation
            {
                show(Key::from_u128(key), &stored.value);
            }
        }
        (to < self.policy.slots()).then_some(to)
    }

    /// Evicts until at most `bytes` are held, at most `evictions_max` objects. True if done.
    pub(crate) fn shrink_to(
        &mut self,
        bytes: u64,
        evictions_max: usize,
        leaving: &mut Leaving<V>,
    ) -> bool {
        for _ in 0..evictions_max {
            if self.policy.bytes() <= bytes {
                return true;
            }
            self.evict(leaving);
        }
        self.policy.bytes() <= bytes
    }

    /// Changes the bound.
    pub(crate) fn set_bytes_max(&mut self, bytes_max: u64, leaving: &mut Leaving<V>) {
        self.bytes_max = bytes_max;
        self.policy.resize(bytes_max);
        self.shrink_to(bytes_max, usize::MAX, leaving);
        self.check();
    }

    /// What holds after each change.
    fn check(&self) {
        assert!(self.policy.bytes() <= self.bytes_max, "a shard keeps its bound");
        assert!(self.index.len() == self.policy.len(), "every object is in the index, once");
        assert!(self.outdated <= self.policy.len(), "outdated objects are objects");
        assert!(self.policy.len() <= self.policy.slots(), "each object has a slot");
    }

    fn replace_at(&mut self, slot: Slot, value: V, bytes: u64, leaving: &mut Leaving<V>) {
        let stored = Stored { value, generation: self.generation };
        leaving.push(self.policy.replace_held(slot, stored).value);
        if bytes <= self.policy.bytes_of(slot) {
            self.policy.shrink_object(slot, bytes);
        } else {
            let detached = self.policy.detach(slot);
            self.make_room(bytes, leaving);
            self.policy.attach(detached, bytes);
        }
        self.counters.replaces += 1;
        self.check();
    }

    fn make_room(&mut self, bytes: u64, leaving: &mut Leaving<V>) {
        let rest = self.bytes_max.checked_sub(bytes).expect("objects over the bound were refused");
        let rest = if planted::is(planted::Bug::StoreOverBound) { u64::MAX } else { rest };
        let done = self.shrink_to(rest, usize::MAX, leaving);
        assert!(done, "room is made as long as there are objects");
    }

    fn evict(&mut self, leaving: &mut Leaving<V>) {
        let (len, bytes) = (self.policy.len(), self.policy.bytes());
        let gone = self.policy.evict().expect("bytes are held by objects");
        assert!(self.policy.len() == len - 1 && self.policy.bytes() == bytes - gone.bytes);
        self.counters.evictions += 1;
        self.counters.evicted_bytes += gone.bytes;
        leaving.push(self.forget(gone));
    }

    fn take_out(&mut self, slot: Slot) -> V {
        let gone = self.policy.remove(slot);
        self.forget(gone)
    }

    /// Removes an object that left the policy from the index.
    fn forget(&mut self, gone: Gone<Stored<V>>) -> V {
        self.index
            .find_entry(bits(gone.key), |&slot| slot == gone.slot)
            .expect("every object is in the index")
            .remove();
        if gone.held.generation != self.generation {
            assert!(self.outdated > 0, "a clear has counted every older object");
            self.outdated -= 1;
        }
        // One may be detached to become larger.
        let detached = self.index.len() - self.policy.len();
        assert!(detached <= 1, "every object is in the index, once");
        gone.held.value
    }

    /// The slot of a key. Removes an outdated object with this key.
    fn find_current(&mut self, key: Key, leaving: &mut Leaving<V>) -> Option<Slot> {
        let slot = self.find(key)?;
        let stored = self.policy.held(slot).expect("the index names taken slots");
        if stored.generation == self.generation {
            return Some(slot);
        }
        assert!(self.outdated > 0, "a clear has counted every older object");
        leaving.push(self.take_out(slot));
        None
    }

    #[inline]
    fn find(&self, key: Key) -> Option<Slot> {
        let key = key.to_u128();
        self.index.find(bits(key), |&slot| self.policy.key(slot) == Some(key)).copied()
    }
}

/// The half of the key that hashes the index.
fn bits(key: u128) -> u64 {
    key as u64
}
