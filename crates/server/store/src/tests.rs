//! The store against a plain map: bounds, generations, replacement, sharing.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

fn store(bytes_max: u64, shards: usize) -> Store<Arc<u64>> {
    let hasher = KeyHasher::seeded(7, 8);
    Store::new(Options { bytes_max, shards, object_bytes_max: None, hasher })
}

fn key(store: &Store<Arc<u64>>, n: u64) -> Key {
    store.hasher().key(&[&n.to_le_bytes()])
}

#[test]
fn stored_values_are_found_and_counted() {
    let store = store(1 << 20, 1);
    let a = key(&store, 1);
    assert_eq!(store.get(&a), None);
    assert_eq!(store.insert(a, Arc::new(1), 100), Ok(Inserted { left: 0 }));
    assert_eq!(store.get(&a), Some(Arc::new(1)));
    assert_eq!(store.insert(a, Arc::new(2), 200), Ok(Inserted { left: 1 }));
    assert_eq!(store.peek(&a), Some(Arc::new(2)));
    assert_eq!((store.len(), store.bytes()), (1, 200 + ENTRY_OVERHEAD_BYTES));
    assert_eq!(store.remove(&a), Some(Arc::new(2)));
    assert_eq!(store.remove(&a), None);
    let counters = store.counters();
    assert_eq!((counters.hits, counters.misses), (1, 1));
    assert_eq!((counters.inserts, counters.replaces, counters.removes), (1, 1, 1));
    assert_eq!((counters.objects, counters.bytes, counters.bytes_max), (0, 0, 1 << 20));
}

/// The line is what a hit takes from another core.
#[test]
fn a_shard_counts_hits_in_the_cache_line_of_its_lock() {
    let store = store(1 << 20, 2);
    for shard in &store.shards {
        let start = std::ptr::from_ref(shard).addr();
        let guard = lock(shard);
        // The lock comes before what it guards.
        assert!(std::ptr::from_ref(&*guard).addr() - start < 64);
        let counters = &guard.counters;
        for counter in [&counters.hits, &counters.misses] {
            let offset = std::ptr::from_ref(counter).addr() - start;
            assert!(offset + size_of::<u64>() <= 64, "{offset}");
        }
    }
}

#[test]
fn an_object_over_the_bound_is_refused_with_its_numbers() {
    let store = store(4096, 1);
    let a = key(&store, 1);
    assert_eq!(store.object_bytes_max(), 4096 - ENTRY_OVERHEAD_BYTES);
    let refused = Refused::TooLarge { bytes: 4097, bytes_max: 4096 };
    assert_eq!(store.insert(a, Arc::new(1), 4097 - ENTRY_OVERHEAD_BYTES), Err(refused));
    assert_eq!(store.insert(a, Arc::new(1), u64::MAX).map(|_| ()).unwrap_err().to_string(), {
        format!("the object takes {} bytes, at most 4096 fit", u64::MAX)
    });
    assert!(store.insert(a, Arc::new(1), store.object_bytes_max()).is_ok());
    assert_eq!(store.bytes(), 4096);
    assert_eq!(store.counters().refused, 2);
}

#[test]
fn a_value_is_not_stored_if_the_test_fails() {
    let store = store(1 << 20, 1);
    let a = key(&store, 1);
    assert_eq!(store.insert_if(a, |_| false, Arc::new(1), 10), Ok(false));
    assert!(store.is_empty());
    assert_eq!(store.insert_if(a, |_| true, Arc::new(2), 10), Ok(true));
    assert_eq!(store.insert_if(a, |_| false, Arc::new(3), 10), Ok(false));
    assert_eq!(store.peek(&a), Some(Arc::new(2)), "what is there stays");
    assert!(store.insert_if(a, |_| true, Arc::new(4), 1 << 20).is_err());
    assert_eq!(store.insert_if(a, |_| true, Arc::new(5), 10), Ok(true));
    assert_eq!(store.peek(&a), Some(Arc::new(5)));
}

#[test]
fn replace_changes_only_present_keys() {
    let store = store(1 << 20, 1);
    let a = key(&store, 1);
    assert_eq!(store.replace(a, Arc::new(1), 10), Ok(false), "nothing to replace");
    assert!(store.is_empty());
    let first = Arc::new(1);
    store.insert(a, first.clone(), 10).unwrap();
    let is_first = |current: &Arc<u64>| Arc::ptr_eq(current, &first);
    assert_eq!(store.replace_if(a, is_first, Arc::new(2), 20), Ok(true));
    assert_eq!(store.replace_if(a, is_first, Arc::new(3), 30), Ok(false), "another came between");
    assert_eq!(store.peek(&a), Some(Arc::new(2)));
    assert_eq!(store.remove_if(&a, is_first), None);
    assert_eq!(store.remove_if(&a, |current| **current == 2), Some(Arc::new(2)));
}

#[test]
fn clear_hides_at_once_and_frees_in_steps() {
    let store = store(1 << 20, 4);
    for n in 0..100 {
        store.insert(key(&store, n), Arc::new(n), 100).unwrap();
    }
    let before = store.bytes();
    store.clear();
    assert_eq!((store.len(), store.bytes()), (0, before));
    assert!((0..100).all(|n| store.get(&key(&store, n)).is_none()));
    assert_eq!(store.remove(&key(&store, 5)), None, "a cleared object is not handed out");
    store.insert(key(&store, 6), Arc::new(60), 100).unwrap();
    assert_eq!(store.get(&key(&store, 6)), Some(Arc::new(60)));
    while !store.sweep(8) {}
    assert_eq!((store.len(), store.bytes()), (1, 100 + ENTRY_OVERHEAD_BYTES));
}

#[test]
fn insertions_alone_free_cleared_objects() {
    let store = store(1 << 20, 1);
    for n in 0..100 {
        store.insert(key(&store, n), Arc::new(n), 100).unwrap();
    }
    store.clear();
    for n in 200..220 {
        store.insert(key(&store, n), Arc::new(n), 100).unwrap();
    }
    assert_eq!(store.len(), 20);
    assert_eq!(store.bytes(), 20 * (100 + ENTRY_OVERHEAD_BYTES));
}

#[test]
fn a_walk_shows_each_object_once_and_no_cleared_ones() {
    let store = store(1 << 20, 4);
    let walk = |store: &Store<Arc<u64>>| {
        let (mut seen, mut at) = (Vec::new(), Some(Cursor::default()));
        while let Some(from) = at {
            at = store.visit(from, 7, |k, value| {
                assert_eq!(k, key(store, **value));
                seen.push(**value);
            });
        }
        seen.sort_unstable();
        seen
    };
    assert!(walk(&store).is_empty());
    for n in 0..100 {
        store.insert(key(&store, n), Arc::new(n), 100).unwrap();
    }
    (0..50).for_each(|n| drop(store.remove(&key(&store, n))));
    assert_eq!(walk(&store), (50..100).collect::<Vec<_>>());
    store.clear();
    assert!(walk(&store).is_empty());
}

#[test]
fn shrinking_evicts_and_a_smaller_bound_stays() {
    let store = store(1 << 20, 2);
    for n in 0..1000 {
        store.insert(key(&store, n), Arc::new(n), 500).unwrap();
    }
    store.shrink_to(100_000);
    assert!(store.bytes() <= 100_000 && store.bytes() > 90_000, "{}", store.bytes());
    assert_eq!(store.counters().bytes_max, 1 << 20);
    store.set_bytes_max(50_000);
    assert!(store.bytes() <= 50_000);
    for n in 0..1000 {
        store.insert(key(&store, n), Arc::new(n), 500).unwrap();
    }
    assert!(store.bytes() <= 50_000);
    store.set_bytes_max(0);
    assert!(store.is_empty());
    assert!(store.insert(key(&store, 1), Arc::new(1), 0).is_err());
}

#[test]
fn shards_follow_workers_and_bytes() {
    let shards = |workers, bytes| Options::for_workers(workers, bytes).shards;
    assert_eq!(shards(1, u64::MAX), 1);
    assert_eq!(shards(0, 0), 1);
    assert_eq!(shards(2, 64 << 20), 1);
    assert_eq!(shards(2, 1 << 30), 8);
    assert_eq!(shards(3, 1 << 40), 8, "rounded down to a power of two");
    assert_eq!(shards(1000, 1 << 40), SHARDS_MAX);
}

#[test]
fn many_threads_share_a_store_within_its_bound() {
    let store = Arc::new(store(64 * 1024, 4));
    let threads: Vec<_> = (0..4u64)
        .map(|t| {
            let store = store.clone();
            std::thread::spawn(move || {
                for i in 0..5000u64 {
                    let n = (i * (t + 3)) % 257;
                    match store.get(&key(&store, n)) {
                        Some(value) => assert_eq!(*value, n),
                        None => drop(store.insert(key(&store, n), Arc::new(n), n % 600)),
                    }
                    assert!(store.bytes() <= 64 * 1024);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let counters = store.counters();
    assert_eq!(counters.hits + counters.misses, 4 * 5000);
}

#[derive(Clone, Debug)]
enum Step {
    Get(u64),
    Insert(u64, u64),
    Replace(u64, u64),
    Remove(u64),
    Clear,
    Sweep(usize),
    Shrink(u64),
    SetMax(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0u64..40;
    prop_oneof![
        6 => name.clone().prop_map(Step::Get),
        8 => (name.clone(), 0u64..3000).prop_map(|(n, bytes)| Step::Insert(n, bytes)),
        2 => (name.clone(), 0u64..3000).prop_map(|(n, bytes)| Step::Replace(n, bytes)),
        2 => name.prop_map(Step::Remove),
        1 => Just(Step::Clear),
        1 => (0usize..20).prop_map(Step::Sweep),
        1 => (0u64..10_000).prop_map(Step::Shrink),
        1 => (1000u64..12_000).prop_map(Step::SetMax),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A found value is the last one stored under its key; the bound always holds; objects leave
    /// only by eviction, removal, refusal or a clear.
    #[test]
    fn never_over_the_bound_and_never_another_value(
        steps in proptest::collection::vec(step(), 1..200),
        shards in prop_oneof![Just(1usize), Just(2), Just(4)],
    ) {
        let mut bytes_max = 10_000;
        let store = store(bytes_max, shards);
        let mut model: HashMap<u64, u64> = HashMap::new();
        for (at, step) in steps.into_iter().enumerate() {
            let version = at as u64;
            match step {
                Step::Get(n) => {
                    if let Some(value) = store.get(&key(&store, n)) {
                        prop_assert_eq!(Some(&*value), model.get(&n));
                    } else {
                        model.remove(&n);
                    }
                }
                Step::Insert(n, bytes) => {
                    if store.insert(key(&store, n), Arc::new(version), bytes).is_ok() {
                        model.insert(n, version);
                        prop_assert_eq!(store.peek(&key(&store, n)), Some(Arc::new(version)));
                    }
                }
                Step::Replace(n, bytes) => {
                    if store.replace(key(&store, n), Arc::new(version), bytes) == Ok(true) {
                        prop_assert!(model.insert(n, version).is_some());
                    }
                }
                Step::Remove(n) => {
                    let removed = store.remove(&key(&store, n));
                    let known = model.remove(&n);
                    prop_assert!(removed.is_none() || removed.map(|v| *v) == known);
                    prop_assert_eq!(store.peek(&key(&store, n)), None);
                }
                Step::Clear => {
                    store.clear();
                    model.clear();
                    prop_assert!(store.is_empty());
                }
                Step::Sweep(slots) => drop(store.sweep(slots)),
                Step::Shrink(bytes) => {
                    store.shrink_to(bytes);
                    prop_assert!(store.bytes() <= bytes);
                }
                Step::SetMax(bytes) => {
                    store.set_bytes_max(bytes);
                    bytes_max = bytes;
                }
            }
            prop_assert!(store.bytes() <= bytes_max);
            prop_assert!(store.len() <= model.len());
        }
        // Without evictions nothing may be missing.
        if store.counters().evictions == 0 {
            for (n, version) in &model {
                prop_assert_eq!(store.peek(&key(&store, *n)), Some(Arc::new(*version)));
            }
        }
    }
}
