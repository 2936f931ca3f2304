//! Load balancing: four methods, which all work over any number of cores.
//!
//! The caller names the candidates, which are the servers that are usable now. A server that is
//! down, full or tried already is no candidate. So each method distributes the requests of a
//! missing server among all others, and none needs to know about health.

use std::hash::Hasher;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use runtime::sync::{Lock, LockKind};
use siphasher::sip::SipHasher13;

use config::Balance;
use peering::carp::Carp;

/// Requests in flight that are never too many for one server, whatever its share: with few
/// requests, a bound by shares would scatter requests that belong together.
const LOAD_FLOOR: u64 = 8;

/// A server that may be chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Its index in the group.
    pub(super) at: usize,
    /// Its share; never 0.
    pub(super) weight: u64,
    pub(super) outstanding: u64,
    /// A hash of its name.
    pub(super) identity: u64,
}

static RICHES: LockKind = LockKind::new("upstream: round robin");

/// The state of one group's balance.
#[derive(Debug)]
pub(super) enum Balancer {
    /// Smooth weighted round robin: in each turn every candidate gains its weight, and the one with
    /// the most is chosen and pays the sum. The lock is held for a few additions.
    RoundRobin(Lock<Vec<i64>>),
    /// The index to begin at, so that equals take turns.
    LeastOutstanding(AtomicUsize),
    /// Weighted rendezvous hashing: the highest score of (URL, server) wins.
    Hash { load_percent_max: u64 },
    /// The order of members for a URL; the first candidate in it is chosen.
    Carp(Carp),
}

impl Balancer {
    /// For servers with these names and weights.
    pub(super) fn new(balance: Balance, servers: &[(&str, u32)]) -> Balancer {
        match balance {
            Balance::RoundRobin => Balancer::RoundRobin(Lock::new(&RICHES, vec![0; servers.len()])),
            Balance::LeastOutstanding => Balancer::LeastOutstanding(AtomicUsize::new(0)),
            Balance::Hash { load_percent_max } => {
                Balancer::Hash { load_percent_max: load_percent_max.into() }
            }
            Balance::Carp => Balancer::Carp(Carp::new(servers.iter().copied())),
        }
    }

    /// The index of the chosen server. `key` says which requests belong together. Without
    /// `takes_turn`, this predicts the choice and changes nothing.
    pub(super) fn pick(
        &self,
        candidates: impl Iterator<Item = Candidate> + Clone,
        key: u64,
        takes_turn: bool,
    ) -> Option<usize> {
        match self {
            Balancer::RoundRobin(riches) => {
                let mut riches = riches.lock().unwrap_or_else(PoisonError::into_inner);
                match takes_turn {
                    true => in_turn(&mut riches, candidates),
                    false => in_turn(&mut riches.clone(), candidates),
                }
            }
            Balancer::LeastOutstanding(next) => {
                let from = match takes_turn {
                    true => next.fetch_add(1, Ordering::Relaxed),
                    false => next.load(Ordering::Relaxed),
                };
                least_outstanding(candidates, from)
            }
            Balancer::Hash { load_percent_max } => by_hash(candidates, key, *load_percent_max),
            Balancer::Carp(carp) => {
                let is_candidate = |at: &usize| candidates.clone().any(|one| one.at == *at);
                carp.rank(key as u32).find(is_candidate)
            }
        }
    }
}

fn in_turn(riches: &mut [i64], candidates: impl Iterator<Item = Candidate>) -> Option<usize> {
    let mut all = 0;
    let mut best: Option<usize> = None;
    for Candidate { at, weight, .. } in candidates {
        let weight = weight as i64;
        all += weight;
        riches[at] += weight;
        if best.is_none_or(|best| riches[at] > riches[best]) {
            best = Some(at);
        }
    }
    let best = best?;
    riches[best] -= all;
    Some(best)
}

fn least_outstanding(
    candidates: impl Iterator<Item = Candidate> + Clone,
    from: usize,
) -> Option<usize> {
    let count = candidates.clone().count();
    let from = from % count.max(1);
    let turned = candidates.clone().skip(from).chain(candidates.take(from));
    // (a + 1) / weight of a < (b + 1) / weight of b, without dividing.
    turned
        .reduce(|best, one| {
            let of_best = u128::from(best.outstanding + 1) * u128::from(one.weight);
            let of_one = u128::from(one.outstanding + 1) * u128::from(best.weight);
            if of_one < of_best { one } else { best }
        })
        .map(|best| best.at)
}

fn by_hash(
    candidates: impl Iterator<Item = Candidate> + Clone,
    key: u64,
    load_percent_max: u64,
) -> Option<usize> {
    let best = |candidates: &mut dyn Iterator<Item = Candidate>| {
        candidates
            .map(|one| (score(key, &one), one.at))
            .max_by(|(a, _), (b, _)| a.total_cmp(b))
            .map(|(_, at)| at)
    };
    if load_percent_max == 0 {
        return best(&mut candidates.clone());
    }
    let (mut outstanding, mut weights) = (1, 0);
    for one in candidates.clone() {
        outstanding += one.outstanding;
        weights += one.weight;
    }
    let has_room = |one: &Candidate| {
        let share = outstanding * load_percent_max * one.weight;
        one.outstanding < share.div_ceil(100 * weights).max(LOAD_FLOOR)
    };
    // If the shares exceed the whole, some server has room; if not, the bound means nothing.
    best(&mut candidates.clone().filter(has_room)).or_else(|| best(&mut candidates.clone()))
}

/// The score of a server for a key: exponentially distributed with the weight as its rate, so that
/// each server wins in proportion to its weight (Schindelhauer and Schomaker, 2005).
fn score(key: u64, one: &Candidate) -> f64 {
    let mut hasher = SipHasher13::new_with_keys(key, one.identity);
    hasher.write_u64(key ^ one.identity);
    // In (0, 1).
    let uniform = ((hasher.finish() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -(one.weight as f64) / uniform.ln()
}

/// A hash that is the same in every process, so that several proxies send a URL to the same server.
pub(super) fn stable_hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher13::new();
    for part in parts {
        hasher.write(part);
        hasher.write_u8(0xff);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidates(weights: &[u64]) -> Vec<Candidate> {
        let one = |(at, &weight): (usize, &u64)| {
            let identity = stable_hash(&[format!("server-{at}").as_bytes()]);
            Candidate { at, weight, outstanding: 0, identity }
        };
        weights.iter().enumerate().map(one).collect()
    }

    fn picks(balancer: &Balancer, all: &[Candidate], keys: std::ops::Range<u64>) -> Vec<usize> {
        let key = |at: u64| stable_hash(&[&at.to_le_bytes()]);
        keys.map(|at| balancer.pick(all.iter().copied(), key(at), true).unwrap()).collect()
    }

    fn of_equals(balance: Balance, servers: usize) -> Balancer {
        Balancer::new(balance, &vec![("server", 1); servers])
    }

    fn counts(picks: &[usize], servers: usize) -> Vec<usize> {
        (0..servers).map(|at| picks.iter().filter(|pick| **pick == at).count()).collect()
    }

    proptest! {
        #[test]
        fn in_turn_each_gets_its_weight_and_never_far_from_its_time(
            weights in prop::collection::vec(1u64..12, 1..8),
        ) {
            let all = candidates(&weights);
            let balancer = of_equals(Balance::RoundRobin, all.len());
            let round: u64 = weights.iter().sum();
            let picks = picks(&balancer, &all, 0..round * 3);
            for (at, weight) in weights.iter().enumerate() {
                let mut seen = 0;
                for (turn, pick) in picks.iter().enumerate() {
                    seen += u64::from(*pick == at);
                    let due = (turn as u64 + 1) * weight;
                    prop_assert!((seen * round).abs_diff(due) <= round * weights.len() as u64);
                }
                prop_assert_eq!(seen, weight * 3);
            }
        }

        #[test]
        fn the_least_outstanding_for_its_weight_is_chosen(
            servers in prop::collection::vec((1u64..9, 0u64..50), 1..8),
            from: usize,
        ) {
            let weights: Vec<u64> = servers.iter().map(|(weight, _)| *weight).collect();
            let mut all = candidates(&weights);
            for (one, (_, outstanding)) in all.iter_mut().zip(&servers) {
                one.outstanding = *outstanding;
            }
            let chosen = least_outstanding(all.iter().copied(), from).unwrap();
            let load = |one: &Candidate| (one.outstanding + 1) as f64 / one.weight as f64;
            for one in &all {
                prop_assert!(load(&all[chosen]) <= load(one) + 1e-9);
            }
        }
    }

    #[test]
    fn equals_take_turns() {
        let all = candidates(&[1, 1, 1]);
        let balancer = of_equals(Balance::LeastOutstanding, 3);
        assert_eq!(counts(&picks(&balancer, &all, 0..30), 3), [10, 10, 10]);
    }

    #[test]
    fn the_requests_of_a_missing_server_go_to_all_others() {
        let all = candidates(&[1, 1, 1, 1]);
        let balancer = of_equals(Balance::RoundRobin, 4);
        let without: Vec<_> = all.iter().copied().filter(|one| one.at != 1).collect();
        assert_eq!(counts(&picks(&balancer, &without, 0..300), 4), [100, 0, 100, 100]);
    }

    #[test]
    fn by_hash_each_gets_about_its_weight_and_a_change_moves_only_its_own() {
        let all = candidates(&[1, 2, 3, 4]);
        let balancer = of_equals(Balance::HASH, 4);
        let before = picks(&balancer, &all, 0..20_000);
        for (at, count) in counts(&before, 4).into_iter().enumerate() {
            let due = 2_000 * (at + 1);
            assert!(count.abs_diff(due) < due / 10, "{at}: {count}, not about {due}");
        }
        let without: Vec<_> = all.iter().copied().filter(|one| one.at != 2).collect();
        let after = picks(&balancer, &without, 0..20_000);
        for (before, after) in before.iter().zip(&after) {
            assert!(before == after || *before == 2);
        }
        let mut heavier = all.clone();
        heavier[0].weight = 2;
        for (before, after) in before.iter().zip(picks(&balancer, &heavier, 0..20_000)) {
            assert!(*before == after || after == 0, "more weight only takes");
        }
    }

    #[test]
    fn an_overfull_server_passes_on_new_requests_only() {
        let mut all = candidates(&[1, 1, 1, 1]);
        let balancer = of_equals(Balance::HASH, 4);
        let unloaded = picks(&balancer, &all, 0..2_000);
        for one in &mut all {
            one.outstanding = 10;
        }
        assert_eq!(picks(&balancer, &all, 0..2_000), unloaded);
        all[3].outstanding = 100;
        for (before, now) in unloaded.iter().zip(picks(&balancer, &all, 0..2_000)) {
            assert!(now != 3 && (*before == now || *before == 3));
        }
        let unbounded = of_equals(Balance::Hash { load_percent_max: 0 }, 4);
        assert_eq!(picks(&unbounded, &all, 0..2_000), unloaded);
    }

    #[test]
    fn by_carp_only_the_urls_of_a_missing_server_move() {
        let names = ["a:3128", "b:3128", "c:3128"].map(|name| (name, 1));
        let all = candidates(&[1, 1, 1]);
        let balancer = Balancer::new(Balance::Carp, &names);
        let before = picks(&balancer, &all, 0..3000);
        assert!(counts(&before, 3).iter().all(|count| (900..1100).contains(count)));
        let without: Vec<_> = all.iter().copied().filter(|one| one.at != 2).collect();
        let after = picks(&balancer, &without, 0..3000);
        for (before, after) in before.iter().zip(&after) {
            assert!(before == after || *before == 2);
        }
    }

    #[test]
    fn the_hash_is_the_same_in_every_process() {
        assert_eq!(stable_hash(&[b"example.org", b"/a"]), 8_754_190_229_588_132_110);
        assert_ne!(stable_hash(&[b"ab", b"c"]), stable_hash(&[b"a", b"bc"]));
    }
}
