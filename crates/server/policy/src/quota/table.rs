//! Token buckets for any number of clients, in a table of fixed size.
//!
//! A bucket is the generic cell rate algorithm (GCRA, ITU-T I.371): one number, the instant at
//! which the bucket will be full again. How far that is in the future is the bucket's *level*, what
//! has been spent and is not refilled. A client has one word of a table: 24 bits of the hash of its
//! key, and that instant in 40 bits. The words of a cache line make a set, and the hash of a key
//! selects its set. A word changes by one compare-and-swap, so no core waits for another.
//!
//! ```text
//!   key --hash--> set of 8 words:  [tag|full at] [tag|full at] [  empty  ] ...
//!                  '-- its tag is there: that word
//!                  '-- else: the word with the lowest level is replaced, and its level is kept
//! ```
//!
//! What never happens: a client gets more than its burst and its rate, whatever others ask; except
//! that cores that see a new client at the same instant may each give it a word, and forget the
//! charge in all but one of them, and that what is charged above [`LEVEL_MAX`] is forgotten. A word
//! without a level (most of them) is replaced without an error. A word with a level is replaced
//! only if all eight have one, and then the new client *inherits* the lowest of these levels, as in
//! the algorithm Space-Saving (Metwally and others, 2005). The instants of a set only move
//! forward, except that a refund takes back a charge.
//! So a client whose word was replaced finds a level that is at least its own when it returns: no
//! number of strangers resets a spent bucket. The error is on the strict side and needs more
//! strangers within the time of a refill than the table has words.
//!
//! Two clients with the same tag in the same set share a bucket: with 2 million clients in 16 MiB,
//! about one client in two million.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use config::Rate;
use runtime::sync::primitives::AtomicU64;

use crate::limits::{SWEEPS_PER_PASS, TICK_SHIFT_MAX, TICK_SHIFT_MIN, WORD_IDLE};

/// Bits of an instant. The rest of a word is the tag.
const TIME_BITS: u32 = 40;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// A level is below half of the range of instants, so that past and future can be distinguished.
const LEVEL_END: u64 = 1 << (TIME_BITS - 1);
/// No level becomes higher than this, however much is charged.
const LEVEL_MAX: u64 = LEVEL_END / 2;
/// Words of a set: a cache line.
const WORDS: usize = 8;

/// The words of a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([AtomicU64; WORDS]);

const _: () = assert!(size_of::<Set>() == 64 || cfg!(loom));

/// How requests or bytes, and time, are counted in ticks. A bucket is refilled by one tick in one
/// tick of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// One unit is so many ticks, as a power of two.
    shift: i32,
    /// Ticks for each nanosecond, in units of 2^-64.
    ticks_per_ns: u64,
    /// The level of an empty bucket.
    burst: u64,
}

impl Scale {
    /// For this rate, and so many units at once. The ticks are as short as the range of instants
    /// allows if a word that is idle is removed within [`WORD_IDLE`].
    pub fn new(rate: &Rate, burst: u64) -> Scale {
        let period_s = u128::from(rate.period.as_secs().max(1));
        let amount = u128::from(rate.amount.max(1));
        let window_s = u128::from(rate.seconds_of(burst)) + 1;
        let range_s = u128::from(WORD_IDLE.as_secs()) + 4 * window_s;
        let fits = |shift: i32| {
            let units = amount * range_s / period_s + 1;
            match shift {
                0.. => units << shift <= u128::from(LEVEL_MAX),
                _ => units >> -shift <= u128::from(LEVEL_MAX),
            }
        };
        let shift = (TICK_SHIFT_MIN..=TICK_SHIFT_MAX).rev().find(|shift| fits(*shift));
        let shift = shift.unwrap_or(TICK_SHIFT_MIN);
        let per_period = match shift {
            0.. => amount << shift << 64,
            _ => amount << (64 + shift),
        };
        let ticks_per_ns = per_period / (period_s * 1_000_000_000);
        let ticks_per_ns = u64::try_from(ticks_per_ns).unwrap_or(u64::MAX).max(1);
        let mut scale = Scale { shift, ticks_per_ns, burst: 0 };
        scale.burst = scale.cost(burst);
        scale
    }

    /// The ticks of so many units.
    fn cost(&self, units: u64) -> u64 {
        let ticks = match self.shift {
            0.. => u128::from(units) << self.shift,
            shift => u128::from(units).div_ceil(1 << -shift),
        };
        u64::try_from(ticks).map_or(LEVEL_MAX, |ticks| ticks.min(LEVEL_MAX))
    }

    /// The units of so many ticks, rounded down.
    fn units(&self, ticks: u64) -> u64 {
        match self.shift {
            0.. => ticks >> self.shift,
            shift => ticks << -shift,
        }
    }

    /// The ticks that are as many units as these of another scale, rounded up.
    fn of_other(&self, other: &Scale, ticks: u64) -> u64 {
        let ticks = match self.shift - other.shift {
            more @ 0.. => u128::from(ticks) << more,
            less => u128::from(ticks).div_ceil(1 << -less),
        };
        u64::try_from(ticks).map_or(LEVEL_MAX, |ticks| ticks.min(LEVEL_MAX))
    }

    fn now(&self, now_ns: u64) -> u64 {
        ((u128::from(now_ns) * u128::from(self.ticks_per_ns)) >> 64) as u64 & TIME_MASK
    }

    /// How long it takes until so many ticks have passed. A time-stamp is rounded down to a tick,
    /// so one more is waited for.
    fn time_of(&self, ticks: u64) -> Duration {
        let ns = (u128::from(ticks + 1) << 64).div_ceil(u128::from(self.ticks_per_ns));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

/// What a word says now.
fn level_of(word: u64, now: u64) -> u64 {
    let ahead = (word & TIME_MASK).wrapping_sub(now) & TIME_MASK;
    if word == 0 || ahead >= LEVEL_END { 0 } else { ahead }
}

/// The state of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Units that may be taken now.
    pub remaining: u64,
    /// Until it is full.
    pub full_in: Duration,
}

/// The buckets of one limit of a quota.
#[derive(Debug)]
pub struct Table {
    sets: Box<[Set]>,
    scale: Scale,
    /// Words with a level that were replaced.
    evicted: AtomicU64,
    /// Words with a level, at the end of the last pass ...
    occupied: AtomicU64,
    /// ... and those found in the one that goes on.
    found: AtomicU64,
    /// The next set to sweep.
    next: AtomicU64,
}

impl Table {
    /// A table of at most this many bytes, which are allocated here and nowhere else.
    pub fn new(bytes: u64, scale: Scale) -> Table {
        let sets = (bytes / size_of::<Set>() as u64).max(1);
        let zero = || AtomicU64::new(0);
        Table {
            sets: (0..sets).map(|_| Set::default()).collect(),
            scale,
            evicted: zero(),
            occupied: zero(),
            found: zero(),
            next: zero(),
        }
    }

    /// The same size, with the levels of another table in the units of this one.
    pub fn adopt(&self, other: &Table, now_ns: u64) {
        let (now, then) = (self.scale.now(now_ns), other.scale.now(now_ns));
        for (set, old) in self.sets.iter().zip(&other.sets) {
            for (word, old) in set.0.iter().zip(&old.0) {
                let old = old.load(Relaxed);
                let spent = self.scale.of_other(&other.scale, level_of(old, then));
                if spent > 0 {
                    word.store(self.word(old >> TIME_BITS, now, spent), Relaxed);
                }
            }
        }
    }

    fn word(&self, tag: u64, now: u64, level: u64) -> u64 {
        (tag << TIME_BITS) | ((now + level) & TIME_MASK)
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.sets) as u64
    }

    /// The number of sets, by which the place of a key is found.
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// Its units.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Words with a level, counted within the last minute.
    pub fn occupied(&self) -> u64 {
        self.occupied.load(Relaxed)
    }

    /// How often a word with a level was replaced.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// Takes units if they are there, or will be within `wait_max`. Returns how long to wait.
    ///
    /// # Errors
    /// How long it would take; nothing was taken.
    pub fn take(
        &self,
        key: u64,
        units: u64,
        now_ns: u64,
        wait_max: Duration,
    ) -> Result<Duration, Duration> {
        self.change(key, units, now_ns, |excess| self.scale.time_of(excess) <= wait_max)
    }

    /// Takes units in any case. Returns how long to wait before they are used.
    pub fn charge(&self, key: u64, units: u64, now_ns: u64) -> Duration {
        self.change(key, units, now_ns, |_| true).unwrap_or_default()
    }

    /// Takes units unless more are owed already than are refilled within `owed_max`. Returns how
    /// long to wait before they are used.
    ///
    /// # Errors
    /// How long to wait before another try; nothing was taken.
    pub fn charge_within(
        &self,
        key: u64,
        units: u64,
        now_ns: u64,
        owed_max: Duration,
    ) -> Result<Duration, Duration> {
        let cost = self.scale.cost(units);
        let admits = |excess: u64| excess <= cost || self.scale.time_of(excess - cost) <= owed_max;
        self.change(key, units, now_ns, admits).map_err(|wait| wait.saturating_sub(owed_max))
    }

    /// Gives back units that were taken and not used. If the word was replaced meanwhile, they are
    /// forgotten, which is on the strict side.
    pub fn refund(&self, key: u64, units: u64, now_ns: u64) {
        let (now, cost) = (self.scale.now(now_ns), self.scale.cost(units));
        loop {
            let (word, seen, level) = self.find(key, now);
            if level == 0 || seen >> TIME_BITS != tag_of(key) {
                return;
            }
            let new = self.word(tag_of(key), now, level.saturating_sub(cost));
            if word.compare_exchange_weak(seen, new, Relaxed, Relaxed).is_ok() {
                return;
            }
        }
    }

    /// How long it would take to get these units.
    pub fn wait_for(&self, key: u64, units: u64, now_ns: u64) -> Duration {
        let now = self.scale.now(now_ns);
        let (_, _, level) = self.find(key, now);
        match (level + self.scale.cost(units)).checked_sub(self.scale.burst) {
            None | Some(0) => Duration::ZERO,
            Some(excess) => self.scale.time_of(excess),
        }
    }

    /// The state of a bucket.
    pub fn level(&self, key: u64, now_ns: u64) -> Level {
        let (_, _, level) = self.find(key, self.scale.now(now_ns));
        let full_in = if level == 0 { Duration::ZERO } else { self.scale.time_of(level) };
        Level { remaining: self.scale.units(self.scale.burst.saturating_sub(level)), full_in }
    }

    fn change(
        &self,
        key: u64,
        units: u64,
        now_ns: u64,
        admits: impl Fn(u64) -> bool,
    ) -> Result<Duration, Duration> {
        let (now, cost) = (self.scale.now(now_ns), self.scale.cost(units));
        loop {
            let (word, seen, level) = self.find(key, now);
            let after = (level + cost).min(LEVEL_MAX);
            let excess = after.saturating_sub(self.scale.burst);
            let wait = if excess == 0 { Duration::ZERO } else { self.scale.time_of(excess) };
            if excess > 0 && !admits(excess) {
                return Err(wait);
            }
            let new = self.word(tag_of(key), now, after);
            if word.compare_exchange_weak(seen, new, Relaxed, Relaxed).is_ok() {
                if level > 0 && seen >> TIME_BITS != tag_of(key) {
                    self.evicted.fetch_add(1, Relaxed);
                }
                return Ok(wait);
            }
        }
    }

    /// The word of a key, or the one to replace: the word, what it was, and its level.
    #[inline]
    fn find(&self, key: u64, now: u64) -> (&AtomicU64, u64, u64) {
        let at = (u128::from(key) * self.sets.len() as u128) >> 64;
        let Set(words) = &self.sets[at as usize];
        let tag = tag_of(key);
        let (mut best, mut best_seen, mut best_level) = (&words[0], 0, u64::MAX);
        for word in words {
            let seen = word.load(Relaxed);
            let level = level_of(seen, now);
            if seen != 0 && seen >> TIME_BITS == tag {
                return (word, seen, level);
            }
            if level < best_level {
                (best, best_seen, best_level) = (word, seen, level);
            }
        }
        if planted::is(planted::Bug::QuotaForgotten) {
            best_level = 0;
        }
        (best, best_seen, best_level)
    }

    /// Empties words without a level, before the range of instants has passed and they would look
    /// like spent ones; and counts the others. One call does a part of the table.
    pub fn sweep(&self, now_ns: u64) {
        let (now, sets) = (self.scale.now(now_ns), self.sets.len() as u64);
        let part = sets.div_ceil(SWEEPS_PER_PASS);
        let first = self.next.load(Relaxed);
        let last = (first + part).min(sets);
        let mut found = 0;
        for word in self.sets[first as usize..last as usize].iter().flat_map(|set| &set.0) {
            let seen = word.load(Relaxed);
            if level_of(seen, now) > 0 {
                found += 1;
            } else if seen != 0 {
                // If it has changed meanwhile, it has a level again.
                let _ = word.compare_exchange(seen, 0, Relaxed, Relaxed);
            }
        }
        found += self.found.load(Relaxed);
        if last == sets {
            self.occupied.store(found, Relaxed);
            found = 0;
        }
        self.found.store(found, Relaxed);
        self.next.store(if last == sets { 0 } else { last }, Relaxed);
    }
}

/// The part of a key that its word has. The place of the set is in other bits.
fn tag_of(key: u64) -> u64 {
    key & ((1 << (64 - TIME_BITS)) - 1)
}

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
