//! The table, against a plain model and against strangers.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use store::KeyHasher;

use super::*;
use crate::limits::SWEEPS_PER_PASS;

const SECOND_NS: u64 = 1_000_000_000;

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn table(bytes: u64, of: &str, burst: u64) -> Table {
    Table::new(bytes, Scale::new(&rate(of), burst))
}

fn takes(table: &Table, key: u64, now_ns: u64) -> bool {
    table.take(key, 1, now_ns, Duration::ZERO).is_ok()
}

/// The hash of the nth client.
fn key_of(hasher: &KeyHasher, n: u64) -> u64 {
    hasher.key(&[&n.to_le_bytes()]).to_u128() as u64
}

#[test]
fn a_burst_and_then_the_rate() {
    for (of, period_ns) in [("10/s", SECOND_NS), ("600/m", 60 * SECOND_NS)] {
        let table = table(1 << 16, of, 10);
        let start = 7 * period_ns + 1;
        assert_eq!((0..20).filter(|_| takes(&table, 5, start)).count(), 10);
        let refused = table.take(5, 1, start, Duration::ZERO).unwrap_err();
        assert!(refused > Duration::from_millis(99) && refused < Duration::from_millis(101));
        assert!(!takes(&table, 5, start + SECOND_NS / 10 - SECOND_NS / 1000));
        assert!(takes(&table, 5, start + SECOND_NS / 10 + SECOND_NS / 1000));
        assert!(takes(&table, 6, start), "another client has a bucket for itself");
        let after = table.level(5, start + 60 * SECOND_NS);
        assert_eq!(after, Level { remaining: 10, full_in: Duration::ZERO });
    }
}

#[test]
fn what_is_charged_above_the_burst_is_waited_for() {
    let table = table(1 << 16, "1000/s", 500);
    assert_eq!(table.charge(1, 500, SECOND_NS), Duration::ZERO);
    let wait = table.charge(1, 2000, SECOND_NS);
    assert!(wait >= Duration::from_secs(2) && wait < Duration::from_millis(2002), "{wait:?}");
    assert!(table.wait_for(1, 0, SECOND_NS) >= Duration::from_secs(2));
    assert_eq!(table.level(1, SECOND_NS).remaining, 0);
    let admitted = table.take(1, 100, SECOND_NS, Duration::from_secs(3)).unwrap();
    assert!(admitted > Duration::from_millis(2099));
    assert!(table.take(1, 100, SECOND_NS, Duration::from_secs(1)).is_err());
}

#[test]
fn what_is_charged_and_not_sent_is_given_back() {
    let table = table(1 << 16, "1000/s", 500);
    let (max, now) = (Duration::from_secs(2), SECOND_NS);
    // More than is owed at most may be charged in one piece, once.
    assert_eq!(table.charge_within(1, 500, now, max), Ok(Duration::ZERO));
    let wait = table.charge_within(1, 5000, now, max).unwrap();
    assert!(wait >= Duration::from_secs(5), "{wait:?}");
    let again = table.charge_within(1, 100, now, max).unwrap_err();
    assert!(again >= Duration::from_millis(3100) && again < Duration::from_millis(3110));
    assert!(table.wait_for(1, 0, now) < Duration::from_millis(5010), "nothing was taken");
    assert!(table.charge_within(1, 100, now + again.as_nanos() as u64, max).is_ok());
    table.refund(1, 100, now);
    table.refund(1, 5000, now);
    assert_eq!(table.level(1, now).remaining, 0);
    table.refund(1, 500, now);
    table.refund(1, 500, now);
    assert_eq!(table.level(1, now), Level { remaining: 500, full_in: Duration::ZERO });
    table.refund(2, 500, now);
    assert_eq!(table.charge_within(2, 500, now, max), Ok(Duration::ZERO), "a stranger has no word");
}

/// Rates from one for each day to 16 GiB for each second, with the longest windows.
#[test]
fn every_rate_has_ticks_that_fit() {
    for (of, burst) in [
        ("1/d", 1),
        ("1/d", 31),
        ("1/s", 2_600_000),
        ("1000000/s", 1_000_000_000),
        ("16GiB/s", 1 << 34),
        ("16GiB/s", 1 << 40),
        ("1KiB/d", 1 << 14),
    ] {
        let scale = Scale::new(&rate(of), burst);
        let window = rate(of).seconds_of(burst);
        assert!(scale.burst < LEVEL_MAX, "{of} {burst}: {scale:?}");
        let filled = scale.time_of(scale.burst).as_secs();
        assert!(filled.abs_diff(window) <= window / 1000 + 2, "{of} {burst}: {filled} {window}");
        assert!(scale.units(scale.burst) >= burst, "{of} {burst}: {scale:?}");
    }
}

/// A million addresses ask once while a hundred known clients ask for ten times what they may have.
/// The table's bytes do not change, and each known client gets exactly what it may have.
#[test]
fn a_million_strangers_stay_within_the_table_and_reset_no_bucket() {
    const BYTES: u64 = 16 << 20;
    let table = table(BYTES, "10/s", 10);
    let hasher = KeyHasher::seeded(1, 2);
    assert_eq!(table.bytes(), BYTES);
    let mut admitted = [0u64; 100];
    let (mut strangers_refused, mut now_ns) = (0, SECOND_NS);
    for stranger in 0..1_000_000u64 {
        // All of them within five seconds.
        now_ns += 5_000;
        strangers_refused += u64::from(!takes(&table, key_of(&hasher, 1000 + stranger), now_ns));
        // Each known client asks every 10 ms: 100/s, ten times its rate.
        if stranger % 20 == 0 {
            let client = stranger / 20 % 100;
            admitted[client as usize] += u64::from(takes(&table, key_of(&hasher, client), now_ns));
        }
    }
    assert_eq!(table.bytes(), BYTES);
    assert_eq!(strangers_refused, 0);
    // The burst, and five seconds of the rate.
    assert!(admitted.iter().all(|of| (59..=60).contains(of)), "{admitted:?}");
}

/// A table that is far too small is strict, and never generous.
#[test]
fn strangers_who_fill_a_small_table_gain_nothing() {
    let table = table(64 * 16, "1/m", 3);
    let hasher = KeyHasher::seeded(3, 4);
    let now_ns = 100 * SECOND_NS;
    let victim = key_of(&hasher, 0);
    assert_eq!((0..9).filter(|_| takes(&table, victim, now_ns)).count(), 3);
    let admitted = (1..100_000).filter(|n| takes(&table, key_of(&hasher, *n), now_ns)).count();
    assert!(admitted as u64 <= 16 * 8 * 3, "{admitted}");
    assert!(!takes(&table, victim, now_ns));
    assert!(table.evicted() > 0);
}

#[test]
fn a_sweep_counts_levels_and_empties_the_rest() {
    let table = table(1 << 16, "1/s", 10);
    let hasher = KeyHasher::seeded(5, 6);
    (0..200).for_each(|n| assert!(takes(&table, key_of(&hasher, n), SECOND_NS)));
    let pass = |now_ns| (0..SWEEPS_PER_PASS).for_each(|_| table.sweep(now_ns));
    pass(SECOND_NS);
    assert_eq!(table.occupied(), 200);
    (0..2).for_each(|_| pass(3 * SECOND_NS)); // a pass may have begun before
    assert_eq!(table.occupied(), 0);
    let words = table.sets.iter().flat_map(|set| &set.0);
    assert_eq!(words.filter(|word| word.load(Relaxed) != 0).count(), 0);
}

#[test]
fn another_rate_keeps_what_was_spent() {
    let old = table(1 << 16, "10/s", 10);
    let (spent, fresh) = (u64::MAX / 3, u64::MAX / 5);
    (0..10).for_each(|_| assert!(takes(&old, spent, SECOND_NS)));
    let new = table(1 << 16, "100/m", 20);
    // A part of a request has been refilled meanwhile: the remainder counts.
    let later = SECOND_NS + 1_000_000;
    new.adopt(&old, later);
    assert_eq!(new.level(spent, later).remaining, 10);
    assert_eq!(new.level(fresh, later).remaining, 20);
}

/// A bucket as in the textbook, in exact numbers.
struct Model {
    /// Parts of units, of which a unit has as many as its period has nanoseconds.
    spent: u128,
    at_ns: u64,
}

proptest! {
    /// Against the model: a client never gets more, whatever other clients do, and nothing less
    /// while its set has room. A full set can refuse a new client and replace no word for it.
    #[test]
    fn buckets_are_those_of_the_model(
        amount in 1u64..5000,
        seconds in prop::sample::select(vec![1u64, 60, 3600]),
        burst in 1u64..50,
        sets in 1u64..40,
        steps in prop::collection::vec((0u64..200_000_000, 0u64..60, 1u64..4), 1..400),
    ) {
        let rate = Rate { amount, period: Duration::from_secs(seconds) };
        let table = Table::new(64 * sets, Scale::new(&rate, burst));
        let (hasher, unit) = (KeyHasher::seeded(7, sets), u128::from(seconds * SECOND_NS));
        let mut models: HashMap<u64, Model> = HashMap::new();
        let set = |key: u64| (u128::from(key) * u128::from(sets)) >> 64;
        let mut clients_of: HashMap<u128, HashSet<u64>> = HashMap::new();
        let mut now_ns = 12_345;
        for (later, client, units) in steps {
            now_ns += later;
            let key = key_of(&hasher, client);
            let clients = clients_of.entry(set(key)).or_default();
            clients.insert(client);
            let model = models.entry(client).or_insert(Model { spent: 0, at_ns: now_ns });
            let refilled = u128::from(now_ns - model.at_ns) * u128::from(amount);
            model.spent = model.spent.saturating_sub(refilled);
            model.at_ns = now_ns;
            let after = model.spent + u128::from(units) * unit;
            // Within a thousandth of a unit, time is rounded down to a tick.
            let (limit, slack) = (u128::from(burst) * unit, unit / 1000);
            let is_taken = table.take(key, units, now_ns, Duration::ZERO).is_ok();
            if is_taken {
                prop_assert!(after <= limit + slack, "{client} got {units} more than the model");
                model.spent = after;
            } else if clients.len() <= WORDS {
                prop_assert!(after + slack > limit, "{client} was refused {units}");
            }
        }
    }
}

/// Cores that take at the same time take no more than there is.
#[test]
fn many_threads_share_a_bucket() {
    let table = table(1 << 12, "1/d", 10_000);
    let taken: usize = std::thread::scope(|scope| {
        let count = || (0..10_000).filter(|_| takes(&table, 42, SECOND_NS)).count();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(taken, 10_000);
}
