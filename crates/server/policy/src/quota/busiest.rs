//! The clients that exceed a quota most, by name: short lists, which only requests that are delayed
//! or refused change.
//!
//! Each core has a list. If there were one for all, the cores would wait for each other just when
//! requests are refused by the thousand, which is what quotas are for. For the same client they
//! still do where a quota counts exactly, for a few instructions: its connections, its requests in
//! progress, and those that are delayed ([`super::counts`]).

use std::sync::PoisonError;

use hashbrown::HashMap;
use runtime::sync::{Guard, Lock, LockKind};

use super::figures::{PARTS, own_part};
use crate::limits::{BUSIEST_MAX, BUSIEST_NAME_BYTES_MAX};

static BUSIEST: LockKind = LockKind::new("quota names");

/// The names, of each core. The number of a new one begins with that of the one that it replaces
/// (the algorithm Space-Saving), so that a list of this length has every client with more than its
/// share.
#[derive(Debug)]
pub(super) struct Busiest([Lock<Vec<Named>>; PARTS]);

/// A client that has exceeded the quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) key: u64,
    pub(super) name: String,
    /// About how often. What is long past counts for less.
    pub(super) over: u64,
}

impl Default for Busiest {
    fn default() -> Busiest {
        Busiest(std::array::from_fn(|_| Lock::new(&BUSIEST, Vec::new())))
    }
}

impl Busiest {
    /// The list of one core. Others take it only to read or to halve it.
    fn part(&self, at: usize) -> Guard<'_, Vec<Named>> {
        self.0[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    pub(super) fn note(&self, key: u64, name: impl FnOnce() -> String) {
        let mut all = self.part(own_part());
        if let Some(named) = all.iter_mut().find(|named| named.key == key) {
            named.over += 1;
            return;
        }
        let mut name = name();
        name.truncate(BUSIEST_NAME_BYTES_MAX); // ASCII
        if all.len() < BUSIEST_MAX {
            all.push(Named { key, name, over: 1 });
        } else if let Some(least) = all.iter_mut().min_by_key(|named| named.over) {
            *least = Named { key, name, over: least.over + 1 };
        }
    }

    /// Halves all numbers, and forgets those that become zero.
    pub(super) fn halve(&self) {
        for at in 0..PARTS {
            let mut all = self.part(at);
            all.iter_mut().for_each(|named| named.over /= 2);
            all.retain(|named| named.over > 0);
        }
    }

    /// The busiest of all cores, the busiest first.
    pub(super) fn all(&self) -> Vec<Named> {
        let mut sums: HashMap<u64, Named> = HashMap::new();
        for at in 0..PARTS {
            let part = self.part(at).clone();
            for named in part {
                match sums.get_mut(&named.key) {
                    Some(sum) => sum.over += named.over,
                    None => drop(sums.insert(named.key, named)),
                }
            }
        }
        let mut all: Vec<Named> = sums.into_values().collect();
        all.sort_by_key(|named| (std::cmp::Reverse(named.over), named.key));
        all.truncate(BUSIEST_MAX);
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
            busiest.note(7, || "seven".to_owned());
            busiest.note(1000 + round, || "x".repeat(1000));
        }
        let all = busiest.all();
        assert_eq!(all.len(), BUSIEST_MAX);
        assert_eq!((all[0].name.as_str(), all[0].over), ("seven", 1000));
        assert!(all.iter().all(|named| named.name.len() <= BUSIEST_NAME_BYTES_MAX));
    }

    /// The list of another core is held all the while.
    #[test]
    fn a_refusal_waits_for_no_other_core_and_all_count() {
        let busiest = Busiest::default();
        busiest.note(7, || "seven".to_owned());
        let own = own_part();
        let held = busiest.part(own);
        let others = std::thread::scope(|scope| {
            let note = || {
                let is_other = own_part() != own;
                if is_other {
                    busiest.note(7, || "seven".to_owned());
                    busiest.note(8, || "eight".to_owned());
                }
                u64::from(is_other)
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(note)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
        });
        drop(held);
        assert!(others > 0, "threads in a row have other parts");
        let all: Vec<_> = busiest.all().into_iter().map(|named| (named.key, named.over)).collect();
        assert_eq!(all, [(7, 1 + others), (8, others)]);
    }

    #[test]
    fn those_that_exceed_it_no_more_are_forgotten() {
        let busiest = Busiest::default();
        (0..9).for_each(|_| busiest.note(7, || "seven".to_owned()));
        (0..3).for_each(|_| busiest.halve());
        assert_eq!(busiest.all()[0].over, 1);
        busiest.halve();
        assert!(busiest.all().is_empty());
    }
}
