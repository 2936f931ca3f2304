//! The cost of a look-up: `cargo bench -p store`. One thread, without lock contention.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use store::{Key, KeyHasher, Options, Store};

const ROUNDS: u32 = 5;
const OPERATIONS: u32 = 1_000_000;

fn main() {
    for objects in [100u64, 10_000, 1_000_000] {
        let hasher = KeyHasher::seeded(1, 2);
        let options = Options { bytes_max: 8 << 30, shards: 1, object_bytes_max: None, hasher };
        let store: Store<Arc<u64>> = Store::new(options);
        let keys: Vec<Key> =
            (0..objects).map(|n| store.hasher().key(&[&n.to_le_bytes()])).collect();
        for (&key, n) in keys.iter().zip(0..) {
            store.insert(key, Arc::new(n), 1000).expect("fits");
        }
        // Steps that do not divide the number of objects, so that no order helps the caches.
        let mut at = 0;
        let mut next = || {
            at = (at + 7919) % keys.len();
            keys[at]
        };
        print(&format!("get of {objects}"), || drop(black_box(store.get(&next()))));
        let absent = Key::from_u128(1);
        print(&format!("miss of {objects}"), || drop(black_box(store.get(&absent))));
    }
    let hasher = KeyHasher::random();
    let path = b"/images/2026/11/the-plimsoll-line.jpg?width=640";
    print("key of a URI of 64 bytes", || {
        black_box(hasher.key(&[b"http", b"www.example.com", black_box(path)]));
    });
    let options = Options::for_workers(1, 64 << 20);
    let store: Store<Arc<u64>> = Store::new(options);
    let mut n = 0u64;
    print("key, insert and evict, objects of 1 KB", || {
        n += 1;
        let key = store.hasher().key(&[&n.to_le_bytes()]);
        store.insert(key, Arc::new(n), 1000).expect("fits");
    });
}

/// The best round counts; the others were disturbed.
fn print(what: &str, mut operation: impl FnMut()) {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..OPERATIONS {
            operation();
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{what:40} {:7.1} ns", best / f64::from(OPERATIONS) * 1e9);
}
