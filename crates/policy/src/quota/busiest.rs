//! The clients that exceed a quota most, by name: a short list, which only requests that are
//! delayed or refused change.

use std::sync::PoisonError;

use runtime::sync::{Lock, LockKind};

use crate::limits::{BUSIEST_MAX, BUSIEST_NAME_BYTES_MAX};

static BUSIEST: LockKind = LockKind::new("quota names");

/// The names. The number of a new one begins with that of the one that it replaces (the algorithm
/// Space-Saving), so that a list of this length has every client with more than its share.
#[derive(Debug)]
pub(super) struct Busiest(Lock<Vec<Named>>);

/// A client that has exceeded the quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) key: u64,
    pub(super) name: String,
    /// How often, at most. What is long past counts for less.
    pub(super) over: u64,
}

impl Default for Busiest {
    fn default() -> Busiest {
        Busiest(Lock::new(&BUSIEST, Vec::new()))
    }
}

impl Busiest {
    #[cold]
    pub(super) fn note(&self, key: u64, mut name: String) {
        name.truncate(BUSIEST_NAME_BYTES_MAX); // ASCII
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(named) = all.iter_mut().find(|named| named.key == key) {
            named.over += 1;
            return;
        }
        if all.len() < BUSIEST_MAX {
            all.push(Named { key, name, over: 1 });
        } else if let Some(least) = all.iter_mut().min_by_key(|named| named.over) {
            *least = Named { key, name, over: least.over + 1 };
        }
    }

    /// Halves all numbers, and forgets those that become zero.
    pub(super) fn halve(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter_mut().for_each(|named| named.over /= 2);
        all.retain(|named| named.over > 0);
    }

    /// All names, the busiest first.
    pub(super) fn all(&self) -> Vec<Named> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.sort_by_key(|named| std::cmp::Reverse(named.over));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_are_kept() {
        let busiest = Busiest::default();
        for round in 0..1000u64 {
            busiest.note(7, "seven".to_owned());
            busiest.note(1000 + round, "x".repeat(1000));
        }
        let all = busiest.all();
        assert_eq!(all.len(), BUSIEST_MAX);
        assert_eq!((all[0].name.as_str(), all[0].over), ("seven", 1000));
        assert!(all.iter().all(|named| named.name.len() <= BUSIEST_NAME_BYTES_MAX));
    }

    #[test]
    fn those_that_exceed_it_no_more_are_forgotten() {
        let busiest = Busiest::default();
        (0..9).for_each(|_| busiest.note(7, "seven".to_owned()));
        (0..3).for_each(|_| busiest.halve());
        assert_eq!(busiest.all()[0].over, 1);
        busiest.halve();
        assert!(busiest.all().is_empty());
    }
}
