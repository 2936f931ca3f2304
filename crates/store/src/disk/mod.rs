//! The store on disk: what is stored outlives the process, and a wrong byte is never served.
//!
//! What: [`DiskStore`] maps a [`Key`] to metadata (opaque here) and a body that is streamed in and
//! out. Records are appended to segments of one preallocated file ([`segments`]), cut into blocks
//! that are checked one by one ([`record`]). The index is in memory ([`index`]), and every change
//! of it in a journal ([`journal`]) that is folded into a saved index from time to time
//! ([`saved_index`]): a start reads these and no object ([`recover`]). Evicted is by S3-FIFO on
//! whole segments ([`reclaim`]).
//! Why: an append-only log writes large batches whatever comes; what is read back is verified by
//! itself, so that data need not be durable before the index that names it, and no request ever
//! waits for a sync. Only what must not come back (deletes, purges) has to be durable, and is
//! acknowledged when it is.
//! Who owns: one task runs [`DiskStore::run`], which alone writes; all cores put, get and delete.
//! What never happens: a byte is returned whose block was not verified; what an acknowledged delete
//! or purge took comes back; a failure of the disk fails a request: it is a miss, or not stored.
//!
//! `docs/disk.md` has the format, the policy of syncs and the bounds.

pub(crate) mod bytes;
mod checksum;
mod commit;
mod counters;
mod flush;
pub(crate) mod fuzzing;
mod geometry;
mod get;
mod ghosts;
mod index;
mod journal;
mod limits;
mod put;
mod reclaim;
mod record;
mod recover;
mod saved_index;
mod segments;
mod signal;
mod superblock;
mod zero_copy;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
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
pub use put::{About, Refused, Writer};
pub use recover::{OpenError, Start};

/// When a block is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Each time before it is sent.
    Always,
    /// When it comes from the disk into the system's page cache, and not again while it stays
    /// there: then long bodies are sent without being copied, where the system can do that. Once
    /// another program has opened the files, it is as [`Verify::Always`].
    #[default]
    Once,
}

/// How a store on disk is built.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory; made if it does not exist.
    pub path: PathBuf,
    /// How it is cut. A store of another shape is begun anew.
    pub geometry: Geometry,
    /// Bytes that may wait in memory to be written, bodies that are being received included.
    pub buffer_bytes_max: usize,
    /// What was put is written after this at the latest.
    pub flush_interval: Duration,
    /// And synced after this.
    pub sync_interval: Duration,
    /// Or after so many bytes.
    pub sync_bytes: u64,
    /// New objects are stored only if they were asked for before, once so many bytes a second are
    /// written. 0: no such limit.
    pub write_bytes_per_s: u64,
    /// When blocks are verified.
    pub verify: Verify,
    /// Seeds of the keys of a new store; `None`: random ones.
    pub seeds: Option<[u64; 3]>,
}

impl Options {
    /// The usual: at most 64 MiB in memory, written within a quarter of a second, synced every 5
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
            write_bytes_per_s: 0,
            verify: Verify::default(),
            seeds: None,
        }
    }
}

/// A store on disk, shared by all cores. Clones are the same store.
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
    /// By the lowest bit of their generation.
    journals: [File; 2],
    indexes: [File; 2],
}

struct Inner {
    options: Options,
    /// As it was written when this process opened it.
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
    /// Bytes in memory that are not written.
    buffered: AtomicUsize,
    /// Numbers of objects and journals.
    numbers: AtomicU64,
    /// Bytes that new objects may still write for now.
    allowance: AtomicI64,
    failures: Failures,
    closing: AtomicBool,
    /// The writing half has ended.
    drained: AtomicBool,
    /// What the journal's half begins with.
    committer: Mutex<Option<Committer>>,
}

/// Failures in a row, of each half of the flusher.
#[derive(Default)]
struct Failures {
    data: AtomicU32,
    journal: AtomicU32,
    /// The journal has little room left.
    crowded: AtomicBool,
    last: Mutex<Option<String>>,
}

impl Failures {
    fn is_off(&self) -> bool {
        self.data.load(Ordering::Relaxed) >= limits::FAILURES_MAX
            || self.journal.load(Ordering::Relaxed) >= limits::FAILURES_MAX
            || self.crowded.load(Ordering::Relaxed)
    }

    /// Notes a failure. Returns for how long to leave the disk alone.
    fn note(&self, half: &AtomicU32, what: &str, error: &std::io::Error) -> Duration {
        let before = half.fetch_add(1, Ordering::Relaxed).min(16);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(format!("{what}: {error}"));
        (limits::OFF_MIN * (1 << before)).min(limits::OFF_MAX)
    }
}

impl Inner {
    /// A number that no other process of this store has used or will use.
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// What a segment holds is lost: a write or a sync of it failed.
    fn condemn(&self, segment: u16) {
        if self.segments.condemn(segment) {
            self.journal.append(&Change::Free { segment });
            // What one that was not written has replaced does not come back in its stead.
            let lost = self.index.forget_segment(segment, |print| self.tell_delete(print));
            add(&self.counters.segments_bad, 1);
            add(&self.counters.dropped_failed, lost as u64);
        }
    }
}

/// The part of a key that the index knows.
fn print_of(key: u128) -> u64 {
    key as u64
}

/// What has been changed, and may be waited for.
#[derive(Debug)]
#[must_use = "it is durable only after Pending::durable"]
pub struct Pending {
    store: DiskStore,
    position: u64,
}

impl Pending {
    /// Waits until the change would survive a power cut. All who wait share one sync.
    ///
    /// # Errors
    /// The disk fails: the change is seen by all, but may not outlive a crash.
    pub async fn durable(self) -> Result<(), NotDurable> {
        self.store.0.journal.durable(self.position).await
    }
}

impl DiskStore {
    /// Opens the store in a directory, or begins one there. Says which. The caller lets a task run
    /// [`DiskStore::run`].
    ///
    /// # Errors
    /// Another process has it; another version made it; the system refuses.
    pub async fn open(options: Options) -> Result<(DiskStore, Start), OpenError> {
        recover::open(options, None).await
    }

    /// Opens a store again that was closed here, after another process may have had it: as another
    /// one, which goes on with the keys of this and with the same [`DiskStore::purges`].
    ///
    /// # Errors
    /// As [`DiskStore::open`].
    pub async fn open_again(&self) -> Result<(DiskStore, Start), OpenError> {
        recover::open(self.0.options.clone(), Some(&self.0)).await
    }

    /// Writes, syncs, reclaims and saves, until [`DiskStore::close`]. To be run by one task.
    ///
    /// # Panics
    /// When it is run twice.
    pub async fn run(&self) {
        let committer = self.0.committer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let committer = committer.expect("a store has one flusher");
        runtime::join(flush::run(&self.0), commit::run(&self.0, committer)).await;
        // Whoever opens the directory next need not wait until the last clone is gone.
        if let Err(error) = self.0.files.superblock.unlock() {
            self.0.failures.note(&self.0.failures.data, "unlocking the superblock", &error);
        }
    }

    /// Asks [`DiskStore::run`] to make everything durable, to let go of the directory and to end.
    /// Nothing is to be put, found or deleted from then on: another process may have the directory.
    pub fn close(&self) {
        self.0.closing.store(true, Ordering::Release);
        self.0.wake.raise();
        self.0.journal.signal.raise();
    }

    /// Writes and syncs everything that was put by now.
    ///
    /// # Errors
    /// The disk fails.
    pub async fn flush(&self) -> Result<(), NotDurable> {
        let round = self.0.rounds.ask();
        self.0.wake.raise();
        self.0.rounds.wait(round).await;
        if self.0.drained.load(Ordering::Acquire) && self.0.segments.waiting_bytes() > 0 {
            return Err(NotDurable); // put after the last round
        }
        self.0.journal.durable(self.0.journal.position()).await
    }

    /// Has what waits written now, instead of after [`Options::flush_interval`]. Does not wait for
    /// it, and asks for no sync: [`DiskStore::buffered_bytes`] falls when it is done.
    pub fn hasten(&self) {
        self.0.wake.raise();
    }

    /// Makes the keys of this store: they are the same after a restart.
    #[must_use]
    pub fn hasher(&self) -> &KeyHasher {
        &self.0.hasher
    }

    /// The purges that still matter, as this store knows them; [`DiskStore::purge`] adds to them.
    #[must_use]
    pub fn purges(&self) -> &Arc<Purges> {
        &self.0.purges
    }

    /// Is there something under this key? Looks at the index only, and counts nothing.
    #[must_use]
    pub fn contains(&self, key: &Key) -> bool {
        self.0.index.look_up(print_of(key.to_u128()), false).is_some()
    }

    /// Is what a look-up found still what stands under its key?
    #[must_use]
    pub fn is_current(&self, key: &Key, version: &Version) -> bool {
        let found = self.0.index.look_up(print_of(key.to_u128()), false);
        found.is_some_and(|found| Version::of(&found) == *version)
    }

    /// A number that was never given out by this store, nor will be, by this process or another.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.number()
    }

    /// Takes out what is under a key: nobody finds it from now on. Wait for [`Pending::durable`]
    /// before that is told to anybody.
    pub fn delete(&self, key: &Key) -> Pending {
        let print = print_of(key.to_u128());
        let mut position = 0;
        self.0.index.remove(print, None, |_| {
            // Also if nothing is there: what was evicted a moment ago is in the journal still.
            position = if planted::is(planted::Bug::DiskDeleteForgotten) {
                self.0.journal.position()
            } else {
                self.0.journal.append(&Change::Delete { print })
            };
        });
        add(&self.0.counters.deletes, 1);
        Pending { store: self.clone(), position }
    }

    /// Notes a purge in [`DiskStore::purges`]: it is seen at once. Wait for [`Pending::durable`]
    /// before that is told to anybody.
    ///
    /// # Panics
    /// When a prefix is longer than [`crate::PURGE_PREFIX_BYTES_MAX`].
    pub fn purge(&self, what: Concerns<'_>, soft: bool, now_ms: u64) -> (Mark, Pending) {
        let mut position = 0;
        let mark = self.0.purges.purge_told(what, soft, now_ms, |what, mark| {
            position = if planted::is(planted::Bug::DiskPurgeForgotten) {
                self.0.journal.position()
            } else {
                self.0.journal.append(&Change::Purge { what: *what, soft, mark })
            };
        });
        add(&self.0.counters.purges, 1);
        (mark, Pending { store: self.clone(), position })
    }

    /// The counters now.
    #[must_use]
    pub fn counters(&self) -> DiskCounters {
        self.0.counters.copy()
    }

    /// Objects that can be found.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.index.len().0
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that the index takes.
    #[must_use]
    pub fn index_bytes(&self) -> usize {
        self.0.index.allocated_bytes()
    }

    /// Bytes that wait in memory to be written.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.0.buffered.load(Ordering::Relaxed)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.0.options.path
    }

    /// How it is cut.
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

    /// What last failed, while writing is off because of it.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        if !self.0.failures.is_off() {
            return None;
        }
        self.0.failures.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
