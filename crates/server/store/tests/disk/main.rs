//! The disk store, one promise at a time: on the simulated disk, and on a real one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod durability;
mod objects;
mod real;

use std::time::Duration;

use runtime::sim::{self, Disk};
use runtime::{JoinHandle, Runtime, spawn};
use store::Key;
use store::disk::{About, DiskStore, Geometry, Options, Start};

pub(crate) const SEGMENTS: u32 = 20;

pub(crate) fn options() -> Options {
    let mut options = Options::new("/store", Geometry::tiny(SEGMENTS));
    options.buffer_bytes_max = 512 * 1024;
    options.seeds = Some([1, 2, 3]);
    options
}

/// A store with its flusher.
pub(crate) struct Running {
    pub(crate) store: DiskStore,
    pub(crate) start: Start,
    pub(crate) flusher: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn open(options: Options) -> Running {
        let (store, start) = DiskStore::open(options).await.unwrap();
        let running = store.clone();
        let flusher = spawn(async move { running.run().await });
        Running { store, start, flusher }
    }

    /// Ends like a process that was asked to stop.
    pub(crate) async fn close(self) {
        self.store.close();
        self.flusher.await;
    }

    /// Ends like a process that was killed.
    pub(crate) fn abort(self) {
        self.flusher.abort();
    }
}

/// Runs on a disk that outlives it, whose operations take no time.
pub(crate) fn on<T>(disk: &Disk, work: impl Future<Output = T>) -> T {
    let options = sim::Options::new(7).with_disk(disk.clone(), Duration::ZERO..Duration::ZERO);
    Runtime::simulated(options).block_on(work)
}

pub(crate) fn key(number: u64) -> Key {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Key::from_u128(u128::from(mixed) << 64 | u128::from(mixed.rotate_left(32) ^ 0x55))
}

pub(crate) fn body(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| ((at + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

pub(crate) const ABOUT: About = About { generation: 0, time_ms: 1 };

/// The whole of an object: metadata and body.
pub(crate) async fn whole(store: &DiskStore, key: &Key) -> Option<(Vec<u8>, Vec<u8>)> {
    let hit = store.get(key).await?;
    let (meta, len) = (hit.meta.clone(), hit.body_len);
    let mut body = hit.body();
    let mut all = Vec::new();
    while let Some(piece) = body.next().await.unwrap() {
        assert!(!piece.is_empty());
        all.extend_from_slice(&piece);
    }
    assert_eq!(all.len() as u64, len);
    Some((meta, all))
}
