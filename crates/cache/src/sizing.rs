//! Gathers what the simulation of other sizes needs ([`store::what_if`]) without slowing a hit: a
//! core counts each access and compares the key's hash; a sampled one goes into the core's own
//! batch, which is applied at the tick.
//!
//! An access is a look-up whose response was in the store and could be used, or one that brought a
//! response into it. Requests that wait for another's fetch, and those that are passed through,
//! are none: no size would make them hits.
//!
//! What never happens: a core waits for another's batch to be applied. A batch that finds the lock
//! taken waits in its core; one that grows beyond its bound is let go of, with what was counted
//! meanwhile, so that a gap in time and not a wrong share is what is lost.

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
    /// Accesses that brought something into the store; who did that has paid for a fetch already.
    brought: Mutex<Vec<Access>>,
    brought_count: AtomicU64,
    brought_bytes: AtomicU64,
}

impl Sizing {
    /// For a store of this size.
    pub fn new(store_bytes_max: u64) -> Sizing {
        Sizing {
            what_if: Mutex::new(WhatIf::new(store_bytes_max)),
            threshold: AtomicU32::new(Threshold::FIRST.0),
            brought: Mutex::default(),
            brought_count: AtomicU64::new(0),
            brought_bytes: AtomicU64::new(0),
        }
    }

    /// A response has been stored.
    pub fn brought(&self, key: Key, stored: &Stored) {
        self.brought_count.fetch_add(1, Ordering::Relaxed);
        self.brought_bytes.fetch_add(stored.body_bytes, Ordering::Relaxed);
        if Threshold(self.threshold.load(Ordering::Relaxed)).takes(key) {
            let mut brought = lock(&self.brought);
            if brought.len() < BATCH_MAX {
                brought.push(access(key, stored));
            } else {
                brought.clear();
                self.brought_count.store(0, Ordering::Relaxed);
                self.brought_bytes.store(0, Ordering::Relaxed);
            }
        }
    }

    /// What other sizes would give.
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

/// A panic while a lock is held leaves figures that may be off, and nothing else.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What one core has gathered since its last tick.
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
    /// A response is served from the store.
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

    /// Applies what was gathered, unless another core is at it.
    pub fn flush(&self, sizing: &Sizing, now_ms: u64) {
        let mut what_if = match sizing.what_if.try_lock() {
            Ok(what_if) => what_if,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let brought = std::mem::take(&mut *lock(&sizing.brought));
        let (hits, bytes) = (self.hits.take(), self.bytes.take());
        let count = sizing.brought_count.swap(0, Ordering::Relaxed);
        let brought_bytes = sizing.brought_bytes.swap(0, Ordering::Relaxed);
        if count + hits == 0 {
            return;
        }
        let counted = Counted { accesses: count, hits: 0, bytes: brought_bytes, hit_bytes: 0 };
        what_if.apply(&brought, counted, now_ms);
        let counted = Counted { accesses: hits, hits, bytes, hit_bytes: bytes };
        let mut batch = self.batch.borrow_mut();
        let threshold = what_if.apply(&batch, counted, now_ms);
        batch.clear();
        self.threshold.set(threshold.0);
        sizing.threshold.store(threshold.0, Ordering::Relaxed);
    }
}

/// What other sizes would give, in JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WhatIfReport {
    /// By size, the smallest first.
    pub sizes: Vec<Size>,
    /// What there really was, over the same accesses.
    pub real: Size,
    /// One key in so many is simulated.
    pub keys_per_sampled: f64,
    /// Objects in the largest miniature.
    pub sampled_objects: usize,
    /// Accesses behind the figures; old ones count for less.
    pub accesses: f64,
}

/// One size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Size {
    /// Times the memory there is.
    pub memory: f64,
    /// In bytes.
    pub memory_bytes: u64,
    /// Hits of all accesses.
    pub hit_ratio: Option<f64>,
    /// Bytes of hits of all bytes.
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

/// The sizes as labels of metrics.
pub const LABELS: [&str; SIZES_IN_HALVES.len()] = ["0.5", "1", "2", "4"];
