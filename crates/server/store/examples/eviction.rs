//! The hit ratio of the store's policies on a trace of keys, next to LRU and FIFO.
//!
//! `eviction` reads keys from its input, four big-endian bytes each. It prints the ratio by
//! requests (all objects of one size) and by bytes (a size per key, drawn by a seeded hash, from
//! 200 bytes to 12 KB, most of them small), for caches of 1 % and 10 % of the bytes of all keys.
//! The store on disk runs unchanged, on the simulated disk.

#![allow(clippy::unwrap_used, reason = "a program that cannot go on says so by panicking")]

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::time::Duration;

use runtime::sim::{self, Disk};
use runtime::{Runtime, spawn};
use store::Key;
use store::disk::{About, DiskStore, Geometry, Options};
use store::s3fifo::Policy;

/// Bytes of a record besides the body.
const HEAD_BYTES: u64 = 64 + 8 + 8;

#[derive(Clone, Copy)]
enum Sizes {
    Equal,
    Drawn,
}

fn size(key: u32, sizes: Sizes) -> u64 {
    let mut mixed = u64::from(key).wrapping_add(77).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
    let share = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
    match sizes {
        Sizes::Equal => 4000,
        Sizes::Drawn => (200.0 * 60_f64.powf(share)) as u64,
    }
}

/// Requests and bytes, and how many of them were hits.
#[derive(Clone, Copy, Default)]
struct Ratio {
    requests: u64,
    hits: u64,
    bytes: u64,
    hit_bytes: u64,
}

impl Ratio {
    fn note(&mut self, bytes: u64, hit: bool) {
        self.requests += 1;
        self.bytes += bytes;
        if hit {
            self.hits += 1;
            self.hit_bytes += bytes;
        }
    }

    fn percent(&self, sizes: Sizes) -> f64 {
        100.0
            * match sizes {
                Sizes::Equal => self.hits as f64 / self.requests as f64,
                Sizes::Drawn => self.hit_bytes as f64 / self.bytes as f64,
            }
    }
}

/// Evicts the oldest: by last request, or by arrival.
fn queue(trace: &[u32], sizes: Sizes, bytes_max: u64, moves: bool) -> Ratio {
    let (mut order, mut at, mut held, mut ratio) =
        (BTreeMap::new(), HashMap::new(), 0, Ratio::default());
    for (now, &key) in trace.iter().enumerate() {
        let bytes = size(key, sizes);
        let hit = at.contains_key(&key);
        ratio.note(bytes, hit);
        if hit && moves {
            order.remove(&at.insert(key, now).unwrap());
            order.insert(now, key);
        } else if !hit {
            held += bytes;
            at.insert(key, now);
            order.insert(now, key);
            while held > bytes_max {
                let (_, gone) = order.pop_first().unwrap();
                at.remove(&gone);
                held -= size(gone, sizes);
            }
        }
    }
    ratio
}

/// The policy of the memory tier, by object.
fn by_objects(trace: &[u32], sizes: Sizes, bytes_max: u64) -> Ratio {
    let mut policy: Policy<()> = Policy::new(bytes_max);
    let (mut slots, mut ratio) = (HashMap::new(), Ratio::default());
    // A key as in the store: random bits.
    let wide = |key: u32| u128::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    for &key in trace {
        let bytes = size(key, sizes);
        let slot = slots.get(&wide(key)).copied();
        ratio.note(bytes, slot.is_some());
        match slot {
            Some(slot) => policy.touch(slot),
            None => {
                while policy.bytes() + bytes > bytes_max {
                    let gone = policy.evict().unwrap();
                    slots.remove(&gone.key);
                }
                slots.insert(wide(key), policy.insert(wide(key), bytes, ()));
            }
        }
    }
    ratio
}

/// The store on disk, unchanged; its segments together are as large as the other caches.
async fn by_segments(trace: &[u32], sizes: Sizes, bytes_max: u64) -> (Ratio, f64) {
    let mut geometry = Geometry::tiny(16);
    geometry.segment_bytes = 1 << (bytes_max / 64).max(1).ilog2().clamp(15, 20);
    geometry.segments = (bytes_max / u64::from(geometry.segment_bytes)).max(16) as u32;
    geometry.chunk_bytes = geometry.segment_bytes / 4;
    geometry.journal_bytes = 1 << 20;
    let mut options = Options::new("/store", geometry);
    options.seeds = Some([1, 2, 3]);
    let (store, _) = DiskStore::open(options).await.unwrap();
    let running = store.clone();
    let flusher = spawn(async move { running.run().await });
    let body = vec![7; 16 * 1024];
    let mut ratio = Ratio::default();
    let wide = |key: u32| {
        let key = u128::from(key) + 1;
        Key::from_u128(key.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).rotate_left(61))
    };
    for (count, &number) in trace.iter().enumerate() {
        let (key, bytes) = (wide(number), size(number, sizes));
        let hit = store.get(&key).await.is_some();
        ratio.note(bytes, hit);
        if !hit {
            let len = (bytes - HEAD_BYTES.min(bytes)) as usize;
            while store.put(&key, About::default(), b"metadata", &body[..len]).is_err() {
                store.flush().await.unwrap();
            }
        }
        if count.is_multiple_of(16) {
            store.flush().await.unwrap();
        }
    }
    let counters = store.counters();
    let amplification = 1.0 + counters.moved_bytes as f64 / counters.written_bytes as f64;
    flusher.abort();
    (ratio, amplification)
}

fn main() {
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input).unwrap();
    let trace: Vec<u32> =
        input.chunks_exact(4).map(|key| u32::from_be_bytes(key.try_into().unwrap())).collect();
    let mut keys = trace.clone();
    keys.sort_unstable();
    keys.dedup();
    println!("{} requests, {} keys", trace.len(), keys.len());
    println!("| size | hits by | S3-FIFO, segments | S3-FIFO, objects | LRU | FIFO | written |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for percent in [1, 10] {
        for (sizes, by) in [(Sizes::Equal, "requests"), (Sizes::Drawn, "bytes")] {
            let all: u64 = keys.iter().map(|key| size(*key, sizes)).sum();
            let bytes_max = all * percent / 100;
            let disk = Disk::new(1);
            let options = sim::Options::new(1).with_disk(disk, Duration::ZERO..Duration::ZERO);
            let (segments, amplification) =
                Runtime::simulated(options).block_on(by_segments(&trace, sizes, bytes_max));
            let ratios = [
                segments,
                by_objects(&trace, sizes, bytes_max),
                queue(&trace, sizes, bytes_max, true),
                queue(&trace, sizes, bytes_max, false),
            ];
            let columns = ratios.map(|ratio| format!("{:.1} %", ratio.percent(sizes)));
            println!("| {percent} % | {by} | {} | {amplification:.2} |", columns.join(" | "));
        }
    }
}
