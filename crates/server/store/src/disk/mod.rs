//! The store on disk: objects outlive the process, and no wrong byte is ever served.
//!
//! What: [`DiskStore`] maps a [`Key`] to metadata (opaque here) and a body that is streamed in and
//! out. Records are appended to segments of one preallocated file ([`segments`]), cut into blocks
//! with a checksum each ([`record`]). The index is in memory ([`index`]). Every change of the index
//! goes to a journal ([`journal`]), which is folded into a saved index from time to time
//! ([`saved_index`]). A start reads the saved index and the journals, but no object ([`recover`]).
//! Eviction is S3-FIFO on whole segments ([`reclaim`]). Why: an append-only log writes large
//! batches whatever the load. Blocks are verified when they are read, so data need not be durable
//! before the index that names it, and no request waits for a sync. Only deletes and purges must be
//! durable, and they are acknowledged as soon as they are durable. Who owns: one task runs
//! [`DiskStore::run`], and only this task writes. All cores put, get and delete. What never
//! happens: a byte of an unverified block is returned; an object comes back after an acknowledged
//! delete or purge; a disk failure fails a request (it is a miss, or not stored).
//!
//! `docs/disk.md` has the format, the policy of syncs and the bounds.

pub(crate) mod bytes;
mod checksum;
mod commit;
mod counters;
mod flush;
#[cfg(any(test, fuzzing))]
#[path = "../../../../../tools/fuzz/checks/disk_store/mod.rs"]
pub mod fuzzing;
mod geometry;
mod get;
mod ghosts;
mod index;
mod journal;
mod limits;
mod list;
#[cfg(all(test, loom))]
mod models;
mod put;
mod reclaim;
mod record;
mod recover;
mod saved_index;
mod segments;
mod signal;
mod superblock;
mod unfinished;
mod zero_copy;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use runtime::fs::File;

use crate::key::{Key, KeyHasher};
use crate::purges::{Concerns, Mark, Purges};

use checksum::Sums;
use commit::Committer;
use counters::{Cells, add};
use index::Index;
use journal::{Change, Journal};
use record::Blocks;
use segments::Segments;
use signal::{Rounds, Signal};
use superblock::Superblock;
use zero_copy::ZeroCopy;

pub use counters::DiskCounters;
pub use geometry::Geometry;
pub use get::{Body, Broken, Hit, Piece, Version};
pub use index::ENTRY_BYTES;
pub use journal::NotDurable;
pub use limits::{BLOCK_BYTES, CHUNK_BYTES_MAX, META_BYTES_MAX, SEGMENTS_MAX, SEGMENTS_MIN};
pub use list::{Fingerprint, Listed};
pub use put::{About, Refused, Writer};
pub use recover::{OpenError, Start};
pub use unfinished::Chunks;

/// When a block is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Each time before it is sent.
    Always,
    /// When it is read from disk into the system's page cache, and not again while it stays there.
    /// Long bodies are then sent zero-copy, if the system supports it. Once another program opens
    /// the files, this is the same as [`Verify::Always`].
    #[default]
    Once,
}

/// Options of a store on disk.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory. Created if it does not exist.
    pub path: PathBuf,
    /// The shape. A store with another shape is replaced by an empty one.
    pub geometry: Geometry,
    /// Limit on bytes in memory that wait to be written, including bodies still being received.
    pub buffer_bytes_max: usize,
    /// A put is written after this time at the latest.
    pub flush_interval: Duration,
    /// And synced after this time.
    pub sync_interval: Duration,
    /// Or after this many bytes.
    pub sync_bytes: u64,
    /// When blocks are verified.
    pub verify: Verify,
    /// Seeds for the keys of a new store; `None`: random.
    pub seeds: Option<[u64; 3]>,
}

impl Options {
    /// Defaults: at most 64 MiB in memory, written within a quarter of a second, synced every 5
    /// seconds or 64 MiB.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, geometry: Geometry) -> Options {
        Options {
            path: path.into(),
            geometry,
            buffer_bytes_max: 64 * 1024 * 1024,
            flush_interval: Duration::from_millis(250),
            sync_interval: Duration::from_secs(5),
            sync_bytes: 64 * 1024 * 1024,
            verify: Verify::default(),
            seeds: None,
        }
    }
}

/// A store on disk, shared by all cores. Clones share one store.
#[derive(Clone)]
pub struct DiskStore(Arc<Inner>);

impl std::fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskStore").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

/// The files of a store.
struct Files {
    /// Holds the lock.
    superblock: File,
    segments: File,
    /// Indexed by the lowest bit of the generation.
    journals: [File; 2],
    indexes: [File; 2],
}

struct Inner {
    options: Options,
    /// As this process wrote it when it opened the store.
    superblock: Superblock,
    files: Files,
    sums: Sums,
    blocks: Blocks,
    hasher: KeyHasher,
    purges: Arc<Purges>,
    index: Index,
    segments: Segments,
    zero_copy: ZeroCopy,
    journal: Journal,
    /// Wakes the writing half of the flusher.
    wake: Signal,
    rounds: Rounds,
    counters: Cells,
    /// Bytes in memory that are not written yet.
    buffered: AtomicUsize,
    /// The next number for objects and journals.
    numbers: AtomicU64,
    failures: Failures,
    closing: AtomicBool,
    /// The writing half has ended.
    drained: AtomicBool,
    /// The initial state of the journal's half.
    committer: Mutex<Option<Committer>>,
}

/// Consecutive failures of each half of the flusher.
#[derive(Default)]
struct Failures {
    data: AtomicU32,
    journal: AtomicU32,
    /// The journal is nearly full.
    crowded: AtomicBool,
    last: Mutex<Option<String>>,
}

impl Failures {
    fn is_off(&self) -> bool {
        self.data.load(Ordering::Relaxed) >= limits::FAILURES_MAX
            || self.journal.load(Ordering::Relaxed) >= limits::FAILURES_MAX
            || self.crowded.load(Ordering::Relaxed)
    }

    /// Counts a failure. Returns how long to leave the disk alone.
    fn note(&self, half: &AtomicU32, what: &str, error: &std::io::Error) -> Duration {
        let before = half.fetch_add(1, Ordering::Relaxed).min(16);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(format!("{what}: {error}"));
        (limits::OFF_MIN * (1 << before)).min(limits::OFF_MAX)
    }
}

impl Inner {
    /// A number that no process of this store has used or will use.
    fn number(&self) -> u64 {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        debug_assert!(number >> limits::EPOCH_SHIFT == u64::from(self.superblock.epoch));
        number
    }

    /// Drops the contents of a segment after a failed write or sync.
    fn drop_segment(&self, segment: u16) {
        if self.segments.drop_segment(segment) {
            self.journal.append(&Change::Free { segment });
            // A record replaced by an unwritten one must not come back after a crash.
            let lost = self.index.forget_segment(segment, |print| self.journal_delete(print));
            debug_assert!(self.index.in_segment(segment).is_empty(), "nothing in it can be found");
            add(&self.counters.segments_bad, 1);
            add(&self.counters.dropped_failed, lost as u64);
        }
    }
}

/// The part of a key that the index stores.
fn print_of(key: u128) -> u64 {
    key as u64
}

/// A change that can be awaited.
#[derive(Debug)]
#[must_use = "it is durable only after Pending::durable"]
pub struct Pending {
    store: DiskStore,
    position: u64,
}

impl Pending {
    /// Waits until the change would survive a power cut. All waiters share one sync.
    ///
    /// # Errors
    /// The disk fails. The change is visible, but may not survive a crash.
    pub async fn durable(self) -> Result<(), NotDurable> {
        self.store.0.journal.durable(self.position).await
    }
}

impl DiskStore {
    /// Opens the store in a directory, or creates one there; [`Start`] says which. The caller must
    /// run [`DiskStore::run`] in a task.
    ///
    /// # Errors
    /// Another process uses it; another version created it; or the system refuses.
    pub async fn open(options: Options) -> Result<(DiskStore, Start), OpenError> {
        recover::open(options, None).await
    }

    /// Opens a store again after it was closed here, in case another process used it meanwhile. The
    /// result is a new store with the keys and [`DiskStore::purges`] of this one.
    ///
    /// # Errors
    /// As [`DiskStore::open`].
    pub async fn open_again(&self) -> Result<(DiskStore, Start), OpenError> {
        recover::open(self.0.options.clone(), Some(&self.0)).await
    }

    /// Writes, syncs, reclaims and saves, until [`DiskStore::close`]. Exactly one task must run it.
    ///
    /// # Panics
    /// If it is run twice.
    pub async fn run(&self) {
        let committer = self.0.committer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let committer = committer.expect("a store has one flusher");
        runtime::join(flush::run(&self.0), commit::run(&self.0, committer)).await;
        // Releases the directory before the last clone is dropped.
        if let Err(error) = self.0.files.superblock.unlock() {
            self.0.failures.note(&self.0.failures.data, "unlocking the superblock", &error);
        }
    }

    /// Asks [`DiskStore::run`] to make everything durable, release the directory and end. Do not
    /// put, get or delete afterwards: another process may use the directory.
    pub fn close(&self) {
        self.0.closing.store(true, Ordering::Release);
        self.0.wake.raise();
        self.0.journal.signal.raise();
    }

    /// Writes and syncs everything put so far.
    ///
    /// # Errors
    /// The disk fails.
    pub async fn flush(&self) -> Result<(), NotDurable> {
        let round = self.0.rounds.ask();
        self.0.wake.raise();
        let took_place = self.0.rounds.wait(round).await;
        if !took_place && self.0.segments.waiting_bytes() > 0 {
            return Err(NotDurable); // put after the last round
        }
        self.0.journal.durable(self.0.journal.position()).await
    }

    /// Starts writing now instead of after [`Options::flush_interval`]. Does not wait and does not
    /// sync; [`DiskStore::buffered_bytes`] falls when it is done.
    pub fn hasten(&self) {
        self.0.wake.raise();
    }

    /// The hasher for keys of this store. It is the same after a restart.
    #[must_use]
    pub fn hasher(&self) -> &KeyHasher {
        &self.0.hasher
    }

    /// The purges that still matter. [`DiskStore::purge`] adds to them.
    #[must_use]
    pub fn purges(&self) -> &Arc<Purges> {
        &self.0.purges
    }

    /// Whether the index has this key. Does not read the disk, and counts nothing.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        self.0.index.look_up(print_of(key.to_u128()), false).is_some()
    }

    /// Whether the object found by a look-up is still current for its key.
    #[must_use]
    pub fn is_current(&self, key: &Key, version: &Version) -> bool {
        let found = self.0.index.look_up(print_of(key.to_u128()), false);
        found.is_some_and(|found| Version::of(&found) == *version)
    }

    /// A number that this store never gives out twice, in this process or another.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.number()
    }

    /// Removes an object: no look-up finds it from now on. Wait for [`Pending::durable`] before
    /// acknowledging it.
    pub fn delete(&self, key: &Key) -> Pending {
        let print = print_of(key.to_u128());
        let mut position = 0;
        self.0.index.remove(print, None, |_| {
            // Also if there is no object: the journal may still have one that was evicted just now.
            position = if planted::is(planted::Bug::DiskDeleteForgotten) {
                self.0.journal.position()
            } else {
                self.0.journal.append(&Change::Delete { print })
            };
        });
        add(&self.0.counters.deletes, 1);
        Pending { store: self.clone(), position }
    }

    /// Adds a purge to [`DiskStore::purges`]; it takes effect at once. Wait for
    /// [`Pending::durable`] before acknowledging it.
    ///
    /// # Panics
    /// If a prefix is longer than [`crate::PURGE_PREFIX_BYTES_MAX`].
    pub fn purge(&self, what: Concerns<'_>, soft: bool, now_ms: u64) -> (Mark, Pending) {
        let mut position = 0;
        let mark = self.0.purges.purge_with(what, soft, now_ms, |what, mark| {
            position = if planted::is(planted::Bug::DiskPurgeForgotten) {
                self.0.journal.position()
            } else {
                self.0.journal.append(&Change::Purge { what: *what, soft, mark })
            };
        });
        add(&self.0.counters.purges, 1);
        (mark, Pending { store: self.clone(), position })
    }

    /// A snapshot of the counters.
    #[must_use]
    pub fn counters(&self) -> DiskCounters {
        self.0.counters.copy()
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.index.len().0
    }

    /// Whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory used by the index.
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        self.0.index.allocated_bytes()
    }

    /// Bytes in memory that wait to be written.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.0.buffered.load(Ordering::Relaxed)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.0.options.path
    }

    /// The shape.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.0.options.geometry
    }

    /// Why bodies are not sent zero-copy; `None` if they are ([`Body::next_shared`]). It may become
    /// unavailable while the store is open, and then stays so.
    #[must_use]
    pub fn zero_copy_unavailable(&self) -> Option<&str> {
        self.0.zero_copy.refused()
    }

    /// The last failure, while writing is off because of it.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        if !self.0.failures.is_off() {
            return None;
        }
        self.0.failures.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
