//! Gathers the input of the simulation of other sizes ([`store::what_if`]) without slowing down
//! hits. A core counts each access and compares the key's hash; a sampled access goes into the
//! core's own batch, which is applied at the tick.
//!
//! An access is a look-up whose response was in the store and could be used, or a look-up whose
//! response was then stored. Requests that wait for another fetch, and those that are passed
//! through, do not count: no size would make them hits.
//!
//! What never happens: a core waits for another core's batch. If the lock is taken, a batch waits
//! in its core. A batch that exceeds its bound is dropped with its counts, so a gap in time is lost
//! but the ratios stay right.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use serde::{Deserialize, Serialize};
use store::what_if::{Access, BATCH_MAX, Counted, Forecast, SIZES_IN_HALVES, Threshold, WhatIf};
use store::{ENTRY_OVERHEAD_BYTES, Key};

use crate::stored::Stored;

/// What all cores share.
#[derive(Debug)]
pub struct Sizing {
    what_if: Mutex<WhatIf>,
    threshold: AtomicU32,
    /// Accesses that stored a response. They have paid for a fetch already, so a lock is cheap
    /// here.
    stored_accesses: Mutex<Vec<Access>>,
    stored_count: AtomicU64,
    stored_body_bytes: AtomicU64,
}

impl Sizing {
    /// For a store of this size.
    pub fn new(store_bytes_max: u64) -> Sizing {
        Sizing {
            what_if: Mutex::new(WhatIf::new(store_bytes_max)),
            threshold: AtomicU32::new(Threshold::FIRST.0),
            stored_accesses: Mutex::default(),
            stored_count: AtomicU64::new(0),
            stored_body_bytes: AtomicU64::new(0),
        }
    }

    /// Counts a response that was stored.
    pub fn note_stored(&self, key: Key, stored: &Stored) {
        self.stored_count.fetch_add(1, Ordering::Relaxed);
        self.stored_body_bytes.fetch_add(stored.body_bytes, Ordering::Relaxed);
        if Threshold(self.threshold.load(Ordering::Relaxed)).takes(key) {
            let mut stored_accesses = lock(&self.stored_accesses);
            if stored_accesses.len() < BATCH_MAX {
                stored_accesses.push(access(key, stored));
            } else {
                stored_accesses.clear();
                self.stored_count.store(0, Ordering::Relaxed);
                self.stored_body_bytes.store(0, Ordering::Relaxed);
            }
        }
    }

    /// The forecasts for other sizes.
    pub fn forecasts(&self) -> WhatIfReport {
        let forecasts = lock(&self.what_if).forecasts();
        WhatIfReport {
            sizes: forecasts.sizes.iter().map(Size::of).collect(),
            real: Size::of(&forecasts.real),
            keys_per_sampled: 1.0 / forecasts.rate,
            sampled_objects: forecasts.objects,
            accesses: forecasts.accesses,
        }
    }
}

fn access(key: Key, stored: &Stored) -> Access {
    let meta = &stored.head.meta;
    Access {
        key,
        stored_bytes: stored.accounted_bytes() + ENTRY_OVERHEAD_BYTES,
        body_bytes: stored.body_bytes,
        fresh_ms: meta.fresh_until_ms().saturating_sub(meta.freshness.response_ms),
        times: 1,
    }
}

/// After a panic the figures may be off, which does no other harm.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a core has gathered since its last tick.
#[derive(Debug)]
pub struct CoreSample {
    threshold: Cell<u32>,
    hits: Cell<u64>,
    bytes: Cell<u64>,
    batch: RefCell<Vec<Access>>,
}

impl Default for CoreSample {
    fn default() -> CoreSample {
        CoreSample {
            threshold: Cell::new(Threshold::FIRST.0),
            hits: Cell::new(0),
            bytes: Cell::new(0),
            batch: RefCell::new(Vec::with_capacity(BATCH_MAX)),
        }
    }
}

impl CoreSample {
    /// Counts a response served from the store.
    #[inline]
    pub fn hit(&self, key: Key, stored: &Stored) {
        self.hits.set(self.hits.get() + 1);
        self.bytes.set(self.bytes.get() + stored.body_bytes);
        if Threshold(self.threshold.get()).takes(key) {
            self.sample(key, stored);
        }
    }

    #[cold]
    fn sample(&self, key: Key, stored: &Stored) {
        let mut batch = self.batch.borrow_mut();
        if let Some(last) = batch.last_mut()
            && last.key == key
        {
            last.times = last.times.saturating_add(1);
        } else if batch.len() < BATCH_MAX {
            batch.push(access(key, stored));
        } else {
            batch.clear();
            self.hits.set(0);
            self.bytes.set(0);
        }
    }

    /// Applies what was gathered, unless another core does so.
    pub fn flush(&self, sizing: &Sizing, now_ms: u64) {
        let mut what_if = match sizing.what_if.try_lock() {
            Ok(what_if) => what_if,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let stored_accesses = std::mem::take(&mut *lock(&sizing.stored_accesses));
        let (hits, bytes) = (self.hits.take(), self.bytes.take());
        let count = sizing.stored_count.swap(0, Ordering::Relaxed);
        let stored_body_bytes = sizing.stored_body_bytes.swap(0, Ordering::Relaxed);
        if count + hits == 0 {
            return;
        }
        let counted = Counted { accesses: count, hits: 0, bytes: stored_body_bytes, hit_bytes: 0 };
        what_if.apply(&stored_accesses, counted, now_ms);
        let counted = Counted { accesses: hits, hits, bytes, hit_bytes: bytes };
        let mut batch = self.batch.borrow_mut();
        let threshold = what_if.apply(&batch, counted, now_ms);
        batch.clear();
        self.threshold.set(threshold.0);
        sizing.threshold.store(threshold.0, Ordering::Relaxed);
    }
}

/// The forecasts for other sizes, in JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WhatIfReport {
    /// By size, the smallest first.
    pub sizes: Vec<Size>,
    /// The actual figures for the same accesses.
    pub real: Size,
    /// One key in this many is simulated.
    pub keys_per_sampled: f64,
    /// Objects in the largest miniature.
    pub sampled_objects: usize,
    /// Accesses behind the figures; old ones count less.
    pub accesses: f64,
}

/// One size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Size {
    /// Multiple of the current memory.
    pub memory: f64,
    /// In bytes.
    pub memory_bytes: u64,
    /// Hits divided by accesses.
    pub hit_ratio: Option<f64>,
    /// Bytes of hits divided by all bytes.
    pub byte_hit_ratio: Option<f64>,
}

impl Size {
    fn of(forecast: &Forecast) -> Size {
        Size {
            memory: forecast.halves as f64 / 2.0,
            memory_bytes: forecast.bytes_max,
            hit_ratio: forecast.hit_ratio,
            byte_hit_ratio: forecast.byte_hit_ratio,
        }
    }
}

/// The sizes as metric labels.
pub const LABELS: [&str; SIZES_IN_HALVES.len()] = ["0.5", "1", "2", "4"];
