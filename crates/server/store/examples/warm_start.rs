//! Measures a start with many objects on a real disk, and counts what it finds.
//!
//! `warm_start DIRECTORY OBJECTS` stores objects of 1 KB, syncs them, drops the store as a kill
//! would, opens it again and looks all of them up. Run it with `--release`.

#![allow(clippy::unwrap_used, reason = "a program that cannot go on says so by panicking")]

use std::path::{Path, PathBuf};
use std::time::Instant;

use runtime::{Runtime, spawn};
use store::Key;
use store::disk::{About, DiskStore, Geometry, Options};

const BODY_BYTES: usize = 1024;

fn key(number: u64) -> Key {
    let mixed = |salt: u64| (number + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let wide = u128::from(mixed(1).wrapping_mul(mixed(7) | 1)) << 64;
    Key::from_u128(wide | u128::from(mixed(3).wrapping_mul(0xbf58_476d_1ce4_e5b9)))
}

fn options(path: &Path, objects: u64) -> Options {
    let bytes = (objects * 1200 * 5 / 4).max(64 << 20);
    Options::new(path, Geometry::for_bytes(bytes).unwrap())
}

async fn fill(path: PathBuf, objects: u64) {
    let begun = Instant::now();
    let (store, _) = DiskStore::open(options(&path, objects)).await.unwrap();
    let running = store.clone();
    let flusher = spawn(async move { running.run().await });
    let mut refused = 0;
    for number in 0..objects {
        let body = [number as u8; BODY_BYTES];
        while store.put(&key(number), About::default(), b"metadata of this object", &body).is_err()
        {
            refused += 1;
            runtime::yield_now().await;
        }
        if number.is_multiple_of(64) {
            runtime::yield_now().await;
        }
    }
    store.flush().await.unwrap();
    println!("{objects} objects stored in {:.2?}, {refused} waits", begun.elapsed());
    let counters = store.counters();
    println!(
        "written {} MB, moved {} MB, journals {} MB, indexes {} MB in {} saves",
        counters.written_bytes >> 20,
        counters.moved_bytes >> 20,
        counters.journal_bytes >> 20,
        counters.index_bytes >> 20,
        counters.index_saves
    );
    flusher.abort(); // like a kill: nothing is closed
}

async fn start(path: PathBuf, objects: u64) {
    let (begun, cpu) = (Instant::now(), runtime::time::thread_cpu());
    let (store, start) = DiskStore::open(options(&path, objects)).await.unwrap();
    let (took, computed) = (begun.elapsed(), runtime::time::thread_cpu() - cpu);
    println!("started in {took:.2?}, {computed:.2?} of it on the processor: {start:?}");
    println!(
        "index: {} bytes, {:.1} an object",
        store.index_bytes(),
        store.index_bytes() as f64 / store.len() as f64
    );
    let first = Instant::now();
    assert!(store.get(&key(objects - 1)).await.is_some());
    println!("first hit {:.2?} later, {:.2?} after the start", first.elapsed(), begun.elapsed());
    let begun = Instant::now();
    let mut found = 0;
    for number in 0..objects {
        if let Some(hit) = store.get(&key(number)).await {
            let piece = hit.body().next().await.unwrap().unwrap();
            assert!(piece.len() == BODY_BYTES && piece[0] == number as u8);
            found += 1;
        }
    }
    let each = begun.elapsed() / objects as u32;
    println!("{found} of {objects} found and verified, {each:?} each");
    let counters = store.counters();
    println!(
        "{} reads, {} blocks, {} would have blocked, {} gave nothing",
        counters.reads, counters.blocks, counters.reads_would_block, counters.reads_zero
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(objects)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: warm_start DIRECTORY OBJECTS");
        std::process::exit(2);
    };
    let objects = objects.parse().unwrap();
    let path = PathBuf::from(path);
    for filling in [true, false] {
        let mut runtime = Runtime::new(runtime::Options::default()).unwrap();
        runtime.block_on(async {
            if filling {
                fill(path.clone(), objects).await;
            } else {
                start(path.clone(), objects).await;
            }
        });
    }
}
