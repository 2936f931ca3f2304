//! Our store: objects are put into it and read back.
//!
//! The first delay of a swap-in is that of finding the object and verifying its first block, which
//! holds the head and the beginning of the body. The total ends when the last byte is verified. The
//! first delay of a swap-out ends when every look-up finds the object in memory, which is what a
//! request waits for. The total ends when the object is in the page cache. It includes no sync,
//! because nothing waits for one.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use runtime::JoinHandle;
use store::Key;
use store::disk::{About, BLOCK_BYTES, DiskStore, Geometry, Options};

use super::sample::{Sample, Took};

/// A typical length of a response head.
const META_BYTES: usize = 300;
/// Overhead of a record and of a block: see docs/disk.md.
const HEADER_BYTES: u64 = 64;
const SUM_BYTES: u64 = 8;
/// The size of the store relative to the bodies: rewriting all objects evicts none.
const ROOM: u64 = 8;
const ROOM_BYTES_MIN: u64 = 64 << 20;

pub(super) struct Ours {
    store: DiskStore,
    flusher: JoinHandle<()>,
    segments: PathBuf,
}

impl Ours {
    /// Opens a store for `body_bytes` of bodies. Must be called on a runtime.
    pub(super) async fn open(directory: &Path, body_bytes: u64) -> io::Result<Ours> {
        let room = (ROOM * body_bytes).max(ROOM_BYTES_MIN);
        let geometry = Geometry::for_bytes(room).ok_or_else(|| failed("no room"))?;
        let mut options = Options::new(directory, geometry);
        options.seeds = Some([1, 9, 97]);
        let opened = DiskStore::open(options).await;
        let (store, _) = opened.map_err(failed)?;
        let running = store.clone();
        let flusher = runtime::spawn(async move { running.run().await });
        Ok(Ours { store, flusher, segments: directory.join("segments") })
    }

    /// The file of the records.
    pub(super) fn segments(&self) -> &Path {
        &self.segments
    }

    /// Puts an object and waits until it is written.
    pub(super) async fn write(&self, object: usize, body: &[u8]) -> io::Result<Sample> {
        let begun = Instant::now();
        let put = self.store.put(&key(object), About::default(), &[b'h'; META_BYTES], body);
        let first = begun.elapsed();
        put.map_err(failed)?;
        self.store.hasten();
        while self.store.buffered_bytes() > 0 {
            if let Some(trouble) = self.store.trouble() {
                return Err(failed(trouble));
            }
            runtime::yield_now().await;
        }
        Ok(Sample::new(first, begun.elapsed(), Took::default()))
    }

    /// Syncs everything to the disk.
    pub(super) async fn sync(&self) -> io::Result<()> {
        self.store.flush().await.map_err(failed)
    }

    /// Reads an object of `len` bytes.
    pub(super) async fn read(&self, object: usize, len: u64) -> io::Result<Sample> {
        let before = self.store.counters();
        let gone = || failed(format!("object {object} is missing"));
        let begun = Instant::now();
        let hit = self.store.get(&key(object)).await.ok_or_else(gone)?;
        let mut body = hit.body();
        let mut read = 0;
        let mut first = None;
        while let Some(piece) = body.next().await.map_err(|_| gone())? {
            first.get_or_insert_with(|| begun.elapsed());
            read += piece.len() as u64;
        }
        let total = begun.elapsed();
        let counters = self.store.counters();
        if read != len {
            return Err(failed(format!("object {object} has {read} bytes and not {len}")));
        }
        let took = Took {
            reads: u32::try_from(counters.reads - before.reads).unwrap_or(u32::MAX),
            zero: u32::try_from(counters.reads_zero - before.reads_zero).unwrap_or(u32::MAX),
            short: u32::try_from(counters.reads_short - before.reads_short).unwrap_or(u32::MAX),
            would_block: 0,
        };
        Ok(Sample::new(first.unwrap_or(total), total, took))
    }

    /// Closes the store.
    pub(super) async fn close(self) {
        self.store.close();
        self.flusher.await;
    }
}

fn failed(why: impl Display) -> io::Error {
    io::Error::other(format!("the store: {why}"))
}

/// Blocks of an object of `len` bytes.
pub(super) fn blocks(len: u64) -> u32 {
    let payload = HEADER_BYTES + META_BYTES as u64 + len;
    u32::try_from(payload.div_ceil(u64::from(BLOCK_BYTES) - SUM_BYTES)).unwrap_or(u32::MAX)
}

fn key(object: usize) -> Key {
    let mixed = |salt: u64| (object as u64 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Key::from_u128(u128::from(mixed(1)) << 64 | u128::from(mixed(7).rotate_left(32)))
}
