//! Which URLs are requested so often that each member of a cluster keeps their responses.
//!
//! The store knows how often each stored response is used, but nothing about other responses. So
//! this module counts the requests that go to other members, in a count-min sketch of two rows in
//! one table. Each key has two counters. A request raises only the lower counter, or both if they
//! are equal, so that keys that share a counter have little effect on each other. After each window
//! of requests, all counters are halved.
//!
//! **How many URLs are hot at most.** A key is hot from [`HOT_COUNT`] requests on. The sum of all
//! counts is below two windows, so at most `2 * window / HOT_COUNT` keys are hot at a time. The
//! window is half of the number of stored responses, so at most one in [`HOT_COUNT`] of the stored
//! responses is a copy of another member's response. Therefore N members keep at least 15/16 of the
//! responses that one cache with all their memory keeps, and the copies are the responses that
//! answer the most requests.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

use store::Key;

/// Requests, counted and halved, from which on a URL is hot.
pub const HOT_COUNT: u8 = 16;
/// The shortest window: below it, chance would decide what is hot.
const WINDOW_MIN: u64 = 512;
/// Counters; a power of two. Halving all of them takes a fraction of a millisecond.
const COUNTERS: usize = 1 << 18;
/// The longest window, in which a counter is raised once on average.
const WINDOW_MAX: u64 = COUNTERS as u64 / 2;

const _: () = assert!(COUNTERS.is_power_of_two() && WINDOW_MIN < WINDOW_MAX);

/// The counts, which all cores share. They take no memory until the first one.
#[derive(Debug, Default)]
pub struct Hot {
    counters: OnceLock<Box<[AtomicU8]>>,
    /// Requests of this window.
    counted: AtomicU64,
    /// Its length; 0: not known yet.
    window: AtomicU64,
}

impl Hot {
    /// Counts a request for a key, and returns whether the key is hot. `stored` is the number of
    /// stored responses; it is asked for once in a window.
    pub fn note(&self, key: Key, stored: impl FnOnce() -> usize) -> bool {
        let none = || (0..COUNTERS).map(|_| AtomicU8::new(0)).collect();
        let counters = self.counters.get_or_init(none);
        let key = key.to_u128();
        let of = |part: u128| &counters[part as usize % COUNTERS];
        let two = [of(key), of(key >> 64)];
        let [a, b] = two.map(|counter| counter.load(Relaxed));
        let count = a.min(b).saturating_add(1);
        // Two cores may count as one: a hot key is hot a request later.
        for (counter, before) in two.into_iter().zip([a, b]) {
            if before < count {
                counter.store(count, Relaxed);
            }
        }
        let counted = self.counted.fetch_add(1, Relaxed) + 1;
        if counted >= self.window.load(Relaxed) && self.ends(counted) {
            let window = (stored() as u64 / 2).clamp(WINDOW_MIN, WINDOW_MAX);
            if self.window.swap(window, Relaxed) != 0 {
                counters.iter().for_each(|counter| {
                    counter.store(counter.load(Relaxed) / 2, Relaxed);
                });
            }
        }
        count >= HOT_COUNT
    }

    /// Begins a new window, on one core.
    fn ends(&self, counted: u64) -> bool {
        self.counted.compare_exchange(counted, 0, Relaxed, Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use store::KeyHasher;

    use super::*;

    fn key(name: u64) -> Key {
        KeyHasher::seeded(1, 2).key(&[&name.to_le_bytes()])
    }

    #[test]
    fn a_key_is_hot_after_some_requests_and_cold_again_after_some_windows() {
        let hot = Hot::default();
        let times = (1..).find(|_| hot.note(key(1), || 0)).unwrap();
        assert!((HOT_COUNT as usize..=HOT_COUNT as usize + 1).contains(&times), "{times}");
        for other in 0..4 * WINDOW_MIN {
            assert!(!hot.note(key(100 + other), || 0), "requested once");
        }
        assert!(!hot.note(key(1), || 0));
    }

    /// Also with the most even use that makes keys hot at all.
    #[test]
    fn at_most_a_sixteenth_of_the_stored_responses_is_hot() {
        let stored = 8192;
        for keys in [64, 256, 512, 1024, 4096] {
            let hot = Hot::default();
            let mut is_hot = vec![false; keys];
            for at in 0..20 * stored {
                is_hot[at % keys] = hot.note(key((at % keys) as u64), || stored);
            }
            let count = is_hot.iter().filter(|hot| **hot).count();
            assert!(count <= stored / HOT_COUNT as usize, "{count} of {keys}");
        }
    }
}
