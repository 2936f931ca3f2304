//! What another cache size would give: the hit ratio of the same policy at half, one, two and four
//! times the memory, computed while serving.
//!
//! Each size is a miniature cache that runs the store's own policy ([`crate::s3fifo`]) on a sample
//! of the *keys*. The hash decides whether all accesses to a key are sampled or none, so the sample
//! has the reuse pattern of the whole (Waldspurger, Park, Garthwaite, Ahmad, "Efficient MRC
//! construction with SHARDS", FAST 2015; "Cache modeling and optimization using miniature
//! simulations", ATC 2017). With one key in `n` sampled, a miniature has an `n`th of the bytes.
//!
//! The sample has a fixed size: when the largest miniature has more than [`SAMPLE_OBJECTS_MAX`]
//! objects, the rate is halved and the keys outside it are forgotten. The difference between
//! expected and sampled accesses is added to the hits (SHARDS-adj): it comes mostly from the
//! hottest keys, which are hits at any size.
//!
//! Old accesses count less: half after [`HALF_LIFE_MS`]. A response that is stale by its own
//! lifetime misses in a miniature as it does in the store. Not simulated: purges and invalidations,
//! and the storing of a body larger than a miniature's share (it always misses there).
//!
//! What never happens: memory exceeds [`SAMPLE_BYTES_MAX`]; a clock is read.

use hashbrown::HashTable;

use crate::ENTRY_OVERHEAD_BYTES;
use crate::key::Key;
use crate::s3fifo::{Policy, Slot};

/// The sizes, in halves of the store's size.
pub const SIZES_IN_HALVES: [u64; 4] = [1, 2, 4, 8];
/// Objects in the largest miniature before the rate is halved.
pub const SAMPLE_OBJECTS_MAX: usize = 8 * 1024;
/// With fewer objects in the largest miniature there is no forecast: a few keys are not
/// representative.
pub const SAMPLE_OBJECTS_MIN: usize = 64;
/// Accesses applied at once; the sample may exceed its bound by this many objects.
pub const BATCH_MAX: usize = 1024;
/// Memory of all miniatures together. None has more objects than the largest may.
pub const SAMPLE_BYTES_MAX: usize =
    SIZES_IN_HALVES.len() * (SAMPLE_OBJECTS_MAX + BATCH_MAX) * ENTRY_OVERHEAD_BYTES as usize;
/// At most one key in this many is sampled, whatever the size. It bounds the cost for hits.
pub const KEYS_PER_SAMPLED_MIN: u32 = 16;
/// An access counts half after this time.
pub const HALF_LIFE_MS: u64 = 3_600_000;
/// How often the weights are updated.
const AGING_STEP_MS: u64 = 60_000;

/// Which keys are sampled: those whose hash is below this, out of 2³².
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold(pub u32);

impl Threshold {
    /// The initial rate.
    pub const FIRST: Threshold = Threshold(u32::MAX / KEYS_PER_SAMPLED_MIN + 1);

    /// Whether a key is sampled: one comparison.
    #[inline]
    #[must_use]
    pub fn takes(self, key: Key) -> bool {
        // Neither the bits that select the shard, nor those that hash the index.
        ((key.to_u128() >> 64) as u32) < self.0
    }

    fn rate(self) -> f64 {
        f64::from(self.0) / (f64::from(u32::MAX) + 1.0)
    }
}

/// Consecutive accesses to one sampled key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The key.
    pub key: Key,
    /// Bytes of the object in the store, including overhead.
    pub stored_bytes: u64,
    /// Bytes sent to the client.
    pub body_bytes: u64,
    /// Its freshness lifetime when it is fetched.
    pub fresh_ms: u64,
    /// How many accesses.
    pub times: u32,
}

/// Counts of all accesses, sampled or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Accesses.
    pub accesses: u64,
    /// Those answered from the store.
    pub hits: u64,
    /// Bytes sent to clients.
    pub bytes: u64,
    /// Those from the store.
    pub hit_bytes: u64,
}

/// Two decaying sums: of accesses, and of their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    bytes: f64,
}

impl Sums {
    fn add(&mut self, count: f64, bytes: f64) {
        self.count += count;
        self.bytes += bytes;
    }

    fn scale(&mut self, by: f64) {
        self.count *= by;
        self.bytes *= by;
    }
}

/// What is kept of an object.
#[derive(Clone, Copy, Debug)]
struct Kept {
    fresh_until_ms: u64,
}

struct Miniature {
    halves: u64,
    bytes_max: u64,
    policy: Policy<Kept>,
    index: HashTable<Slot>,
    hits: Sums,
}

impl Miniature {
    fn new(halves: u64) -> Miniature {
        Miniature {
            halves,
            bytes_max: 0,
            policy: Policy::new(0),
            index: HashTable::new(),
            hits: Sums::default(),
        }
    }

    fn resize(&mut self, store_bytes_max: u64, rate: f64) {
        self.bytes_max = (store_bytes_max as f64 * self.halves as f64 / 2.0 * rate) as u64;
        self.policy.resize(self.bytes_max);
        self.make_room(0);
    }

    fn access(&mut self, access: &Access, now_ms: u64) {
        let key = access.key.to_u128();
        let fresh_until_ms = now_ms.saturating_add(access.fresh_ms);
        let mut hits = u64::from(access.times);
        let found = self.index.find(key as u64, |&slot| self.policy.key(slot) == Some(key));
        match found.copied() {
            Some(slot) => {
                (0..access.times.min(4)).for_each(|_| self.policy.touch(slot));
                let kept = self.policy.held(slot).expect("the index names taken slots");
                if now_ms >= kept.fresh_until_ms {
                    self.replace(slot, access.stored_bytes, fresh_until_ms);
                    hits = if access.fresh_ms > 0 { hits - 1 } else { 0 };
                }
            }
            None => {
                let stored = self.insert(key, access.stored_bytes, fresh_until_ms);
                hits = if stored && access.fresh_ms > 0 { hits - 1 } else { 0 };
            }
        }
        self.hits.add(hits as f64, hits as f64 * access.body_bytes as f64);
    }

    fn insert(&mut self, key: u128, bytes: u64, fresh_until_ms: u64) -> bool {
        if bytes > self.bytes_max {
            return false;
        }
        self.make_room(bytes);
        let slot = self.policy.insert(key, bytes, Kept { fresh_until_ms });
        let Miniature { index, policy, .. } = self;
        let rehash = |&at: &Slot| policy.key(at).expect("the index names taken slots") as u64;
        index.insert_unique(key as u64, slot, rehash);
        self.check();
        true
    }

    fn replace(&mut self, slot: Slot, bytes: u64, fresh_until_ms: u64) {
        self.policy.replace_held(slot, Kept { fresh_until_ms });
        if bytes <= self.policy.bytes_of(slot) {
            self.policy.shrink_object(slot, bytes);
        } else if bytes <= self.bytes_max {
            let detached = self.policy.detach(slot);
            self.make_room(bytes);
            self.policy.attach(detached, bytes);
        } else {
            self.remove(slot);
        }
        self.check();
    }

    fn check(&self) {
        assert!(self.policy.bytes() <= self.bytes_max, "a miniature keeps its bound");
        assert!(self.index.len() == self.policy.len(), "every object is in the index, once");
    }

    fn make_room(&mut self, bytes: u64) {
        while self.policy.bytes() + bytes > self.bytes_max {
            let Some(gone) = self.policy.evict() else { return };
            self.forget(gone.key, gone.slot);
        }
    }

    fn remove(&mut self, slot: Slot) {
        let gone = self.policy.remove(slot);
        self.forget(gone.key, gone.slot);
    }

    fn forget(&mut self, key: u128, slot: Slot) {
        if let Ok(entry) = self.index.find_entry(key as u64, |&at| at == slot) {
            entry.remove();
        }
    }

    /// Forgets the keys that are no longer sampled.
    fn keep(&mut self, threshold: Threshold) {
        for at in 0..self.policy.slots() {
            let slot = Slot::try_from(at).expect("a slot has 32 bits");
            if self.policy.key(slot).is_some_and(|key| !threshold.takes(Key::from_u128(key))) {
                self.remove(slot);
            }
        }
    }
}

/// The miniatures and the counts.
pub struct WhatIf {
    store_bytes_max: u64,
    threshold: Threshold,
    miniatures: [Miniature; SIZES_IN_HALVES.len()],
    /// Sampled accesses.
    sampled: Sums,
    /// Expected accesses: all, times the rate.
    expected: Sums,
    /// Actual hits, times the rate.
    real: Sums,
    aged_ms: u64,
}

impl std::fmt::Debug for WhatIf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WhatIf").field("threshold", &self.threshold).finish_non_exhaustive()
    }
}

/// The forecast for one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Its size in halves of the store's.
    pub halves: u64,
    /// Its bytes.
    pub bytes_max: u64,
    /// The share of accesses that are hits; `None` if too little is known.
    pub hit_ratio: Option<f64>,
    /// The share of bytes that are hits.
    pub byte_hit_ratio: Option<f64>,
}

/// The forecasts for all sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecasts {
    /// By size, the smallest first.
    pub sizes: Vec<Forecast>,
    /// The actual figures over the same time.
    pub real: Forecast,
    /// The share of keys that are sampled.
    pub rate: f64,
    /// Objects in the largest miniature.
    pub objects: usize,
    /// Accesses behind the figures, by their current weight.
    pub accesses: f64,
}

impl WhatIf {
    /// For a store of so many bytes.
    #[must_use]
    pub fn new(store_bytes_max: u64) -> WhatIf {
        let mut what_if = WhatIf {
            store_bytes_max,
            threshold: Threshold::FIRST,
            miniatures: SIZES_IN_HALVES.map(Miniature::new),
            sampled: Sums::default(),
            expected: Sums::default(),
            real: Sums::default(),
            aged_ms: 0,
        };
        what_if.resize(store_bytes_max);
        what_if
    }

    /// Changes the size of the store.
    pub fn resize(&mut self, store_bytes_max: u64) {
        self.store_bytes_max = store_bytes_max;
        for miniature in &mut self.miniatures {
            miniature.resize(store_bytes_max, self.threshold.rate());
        }
    }

    /// Applies what one core gathered: at most [`BATCH_MAX`] accesses to sampled keys, and its
    /// counts of all accesses. Returns which keys to sample from now on.
    pub fn apply(&mut self, sampled: &[Access], counted: Counted, now_ms: u64) -> Threshold {
        assert!(sampled.len() <= BATCH_MAX, "what exceeds a batch is applied later");
        self.age(now_ms);
        let rate = self.threshold.rate();
        self.expected.add(counted.accesses as f64 * rate, counted.bytes as f64 * rate);
        self.real.add(counted.hits as f64 * rate, counted.hit_bytes as f64 * rate);
        for access in sampled.iter().filter(|access| self.threshold.takes(access.key)) {
            let times = f64::from(access.times);
            self.sampled.add(times, times * access.body_bytes as f64);
            for miniature in &mut self.miniatures {
                miniature.access(access, now_ms);
            }
        }
        while self.largest() > SAMPLE_OBJECTS_MAX && self.threshold.0 > 1 {
            self.halve();
        }
        assert!(self.largest() <= SAMPLE_OBJECTS_MAX || self.threshold.0 <= 1);
        self.threshold
    }

    /// The forecasts.
    #[must_use]
    pub fn forecasts(&self) -> Forecasts {
        let forecast = |halves, hits: &Sums, missed: Sums| Forecast {
            halves,
            bytes_max: self.store_bytes_max / 2 * halves,
            hit_ratio: ratio(hits.count + missed.count, self.expected.count),
            byte_hit_ratio: ratio(hits.bytes + missed.bytes, self.expected.bytes),
        };
        let enough = self.largest() >= SAMPLE_OBJECTS_MIN;
        let unknown = |forecast| Forecast { hit_ratio: None, byte_hit_ratio: None, ..forecast };
        let missed = Sums {
            count: self.expected.count - self.sampled.count,
            bytes: self.expected.bytes - self.sampled.bytes,
        };
        let of = |miniature: &Miniature| {
            let found = forecast(miniature.halves, &miniature.hits, missed);
            if enough { found } else { unknown(found) }
        };
        Forecasts {
            sizes: self.miniatures.iter().map(of).collect(),
            real: forecast(2, &self.real, Sums::default()),
            rate: self.threshold.rate(),
            objects: self.largest(),
            accesses: self.expected.count / self.threshold.rate(),
        }
    }

    fn largest(&self) -> usize {
        self.miniatures.iter().map(|miniature| miniature.policy.len()).max().unwrap_or(0)
    }

    fn halve(&mut self) {
        self.threshold.0 /= 2;
        // From now on each sampled access counts twice as much.
        self.scale(0.5);
        let rate = self.threshold.rate();
        for miniature in &mut self.miniatures {
            miniature.keep(self.threshold);
            miniature.resize(self.store_bytes_max, rate);
        }
    }

    fn age(&mut self, now_ms: u64) {
        if self.aged_ms == 0 {
            self.aged_ms = now_ms;
        }
        let steps = now_ms.saturating_sub(self.aged_ms) / AGING_STEP_MS;
        if steps > 0 {
            self.aged_ms += steps * AGING_STEP_MS;
            let half_lives = (steps * AGING_STEP_MS) as f64 / HALF_LIFE_MS as f64;
            self.scale((-half_lives).exp2());
        }
    }

    fn scale(&mut self, by: f64) {
        let sums = [&mut self.sampled, &mut self.expected, &mut self.real];
        sums.into_iter().for_each(|sums| sums.scale(by));
        self.miniatures.iter_mut().for_each(|miniature| miniature.hits.scale(by));
    }
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| (part / whole).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
