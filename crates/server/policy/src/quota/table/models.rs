//! The table under several cores: loom runs each model in every order.

use std::sync::Arc;

use runtime::sync::primitives::loom::{self, thread};

use super::*;

const NOW_NS: u64 = 1_000_000_000;

/// One set, and so many units at once for each key.
fn table(burst: u64) -> Arc<Table> {
    let rate = "1/h".parse().expect("a rate");
    Arc::new(Table::new(0, Scale::new(&rate, burst)))
}

fn takes(table: &Table, key: u64) -> bool {
    table.take(key, 1, NOW_NS, Duration::ZERO).is_ok()
}

fn remaining(table: &Table, key: u64) -> u64 {
    table.level(key, NOW_NS).remaining
}

#[test]
fn cores_never_give_a_known_client_more_than_its_burst() {
    loom::model(|| {
        let table = table(3);
        assert!(takes(&table, 5));
        let other = Arc::clone(&table);
        let taking =
            thread::spawn(move || u64::from(takes(&other, 5)) + u64::from(takes(&other, 5)));
        let taken = u64::from(takes(&table, 5)) + u64::from(takes(&table, 5));
        assert_eq!(taken + taking.join().unwrap(), 2);
        assert_eq!(remaining(&table, 5), 0);
    });
}

#[test]
fn a_refund_takes_back_its_charge_and_no_other() {
    loom::model(|| {
        let table = table(10);
        table.charge(5, 4, NOW_NS);
        let other = Arc::clone(&table);
        let charging = thread::spawn(move || other.charge(5, 3, NOW_NS));
        table.refund(5, 4, NOW_NS);
        charging.join().unwrap();
        assert_eq!(remaining(&table, 5), 7);
    });
}

#[test]
fn a_sweep_empties_no_word_that_was_charged_meanwhile() {
    loom::model(|| {
        let table = table(3);
        // A word without a level: what was taken has been given back.
        table.charge(5, 1, NOW_NS);
        table.refund(5, 1, NOW_NS);
        let other = Arc::clone(&table);
        let sweeping = thread::spawn(move || other.sweep(NOW_NS));
        assert!(takes(&table, 5));
        sweeping.join().unwrap();
        assert_eq!(remaining(&table, 5), 2);
    });
}

/// Both replace a word of the full set, and both levels are kept.
#[test]
fn two_strangers_do_not_reset_a_spent_bucket() {
    loom::model(|| {
        let table = table(3);
        for key in 1..=WORDS as u64 {
            table.charge(key, 3, NOW_NS);
        }
        let other = Arc::clone(&table);
        let stranger = thread::spawn(move || takes(&other, 101));
        assert!(!takes(&table, 102), "it inherits the lowest level");
        assert!(!stranger.join().unwrap());
        assert!((1..=WORDS as u64).all(|key| remaining(&table, key) == 0));
    });
}
