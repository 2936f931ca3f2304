//! The slot bitmap and the slot table against models: an ordered set of free numbers, and a map.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::Config;
use readiness::Token;
use readiness::slots::{SlotBitmap, SlotTable};

/// Takes and frees slots by the bits of `steps`, in a bitmap of `limit` slots, `start` of which are
/// taken at first.
fn bitmap_history(limit: u32, start: u32, steps: &[(bool, u32)]) {
    let mut slots = SlotBitmap::with_limit(limit);
    let mut free: BTreeSet<u32> = (0..limit).collect();
    for _ in 0..start.min(limit) {
        assert_eq!(slots.take_lowest(), free.pop_first());
    }
    for &(take, which) in steps {
        if take {
            assert_eq!(slots.take_lowest(), free.pop_first());
        } else {
            let slot = which % (limit + 2);
            let was_taken = slot < limit && free.insert(slot);
            assert_eq!(slots.free(slot), was_taken, "slot {slot}");
        }
        assert_eq!(slots.len(), limit as usize - free.len());
        assert_eq!(slots.is_empty(), free.len() == limit as usize);
    }
    let taken: Vec<u32> = (0..limit).filter(|slot| !free.contains(slot)).collect();
    assert!(slots.iter().eq(taken.iter().copied()));
    assert!(
        (0..limit + 200)
            .all(|slot| slots.is_taken(slot) == (slot < limit && !free.contains(&slot)))
    );
}

proptest! {
    #![proptest_config(Config { cases: 64, failure_persistence: None, ..Config::default() })]

    #[test]
    fn bitmap_gives_the_lowest_free(
        // Around the borders of a word, and of a word of the summary.
        limit in prop_oneof![0..200u32, 4_090..4_200u32, 8_190..8_300u32],
        start in 0..9_000u32,
        steps in prop::collection::vec((any::<bool>(), any::<u32>()), 0..300),
    ) {
        bitmap_history(limit, start, &steps);
    }

    #[test]
    fn table_finds_what_is_there_and_nothing_else(
        steps in prop::collection::vec((0..3u8, any::<prop::sample::Index>()), 1..400),
    ) {
        let mut table = SlotTable::with_limit(40);
        let mut model: BTreeMap<Token, usize> = BTreeMap::new();
        let mut tokens_ever: Vec<Token> = Vec::new();
        for (number, (step, which)) in steps.into_iter().enumerate() {
            if step < 2 && let Ok(token) = table.try_insert(number) {
                let lowest = (0..).find(|slot| model.keys().all(|token| token.slot() != *slot));
                assert_eq!(Some(token.slot()), lowest);
                assert!(!tokens_ever.contains(&token), "a token is given out once");
                model.insert(token, number);
                tokens_ever.push(token);
            } else if !tokens_ever.is_empty() {
                let token = *which.get(&tokens_ever);
                assert_eq!(table.remove(token), model.remove(&token));
            }
            assert_eq!(table.is_full(), model.len() == 40);
            assert_eq!(table.len(), model.len());
            assert!(table.iter().map(|(token, value)| (token, *value)).eq(model.clone()));
            for token in &tokens_ever {
                assert_eq!(table.get(*token), model.get(token));
                assert_eq!(table.get_mut(*token).copied(), model.get(token).copied());
            }
        }
    }
}

#[test]
fn a_full_table_gives_the_value_back() {
    let mut table = SlotTable::with_limit(1);
    let token = table.insert_with(|token| token);
    assert_eq!(table.get(token), Some(&token));
    assert_eq!(table.try_insert(Token::new(9, 9)), Err(Token::new(9, 9)));
    assert_eq!(table.remove(token), Some(token));
    assert_eq!(table.insert(token).generation(), token.generation() + 1);
}

#[test]
#[should_panic(expected = "within its limit")]
fn insert_beyond_the_limit_panics() {
    SlotTable::with_limit(0).insert(());
}
