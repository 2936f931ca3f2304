//! The journal's half of the flusher. It writes changes to the journal, with one sync for all
//! waiters, and a saved index when the journal is half full.
//!
//! ```text
//! saved index g complete ─▶ journal g ──half full──▶ Close ─▶ journal g+1 (goes on at once)
//!                                                        └──▶ saved index g+1 is written beside
//! a write or a sync of the journal failed ─▶ nothing is acknowledged ─▶ saved index g+1 written
//!                                            from memory ─▶ an empty journal follows it
//! ```
//!
//! Until the saved index `g+1` is complete, a start reads `g` with both journals. The new index is
//! written while changes go on: a change is in the index, in its journal, or in both, and applying
//! it twice is harmless. What never happens: a journal is overwritten that the last complete saved
//! index needs; a change is acknowledged that is in a journal not chained to that index.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use runtime::fs::File;
use runtime::time::{self, Instant};

use super::bytes::Put;
use super::counters::add;
use super::journal::{BATCH_HEADER_BYTES, Change, SavedEntry, Tail};
use super::limits::ENTRIES_PER_SLICE;
use super::saved_index::{
    COPY_BYTES, HEAD_AT, PREAMBLE_BYTES, Preamble, SLICE_HEADER_BYTES, encode_head, slice_header,
};
use super::{Files, Inner};

/// Room kept in a journal for its last batch.
const CLOSE_BYTES: u32 = BATCH_HEADER_BYTES as u32 + 16;
/// Room for the batch that a start writes.
const START_BYTES: u32 = BATCH_HEADER_BYTES as u32 + 16 + CLOSE_BYTES;

/// State of the journal's half.
#[derive(Debug)]
pub(super) struct Committer {
    /// Of the current journal.
    pub(super) generation: u64,
    pub(super) tail: Tail,
    /// Generation of the last complete saved index: the journal's own, or the one before.
    pub(super) complete: u64,
    /// The saved index in progress.
    dump: Option<Dump>,
    /// The journal is unreliable; a new one must be started.
    broken: bool,
    /// The position up to which changes are written, and whether the file needs a sync.
    written: u64,
    unsynced: bool,
    synced_at: Instant,
    /// Do not touch the disk before `retry_at`; do not save an index before `save_at`.
    retry_at: Option<Instant>,
    save_at: Option<Instant>,
}

/// A saved index in progress.
#[derive(Debug)]
struct Dump {
    preamble: Preamble,
    /// The next shard.
    shard: usize,
    offset: u64,
    /// Entries not written yet.
    entries: Vec<u8>,
}

pub(super) async fn run(inner: &Arc<Inner>, mut committer: Committer) {
    loop {
        let ending = inner.closing.load(Ordering::Acquire) && inner.drained.load(Ordering::Acquire);
        committer.turn(inner, ending).await;
        if ending {
            // Fails everyone who waits now or later.
            inner.journal.note_failed(true);
            return;
        }
        if committer.dump.is_some() || committer.is_urgent() {
            runtime::yield_now().await;
            continue;
        }
        let rest = time::sleep(inner.options.flush_interval);
        runtime::race(inner.journal.signal.wait(), rest).await;
    }
}

/// Writes both copies of a part of a journal.
async fn write_copies(
    files: &Files,
    generation: u64,
    area_bytes: u32,
    offset: u32,
    bytes: Vec<u8>,
) -> io::Result<()> {
    let file = &files.journals[(generation & 1) as usize];
    let (first, bytes) = file.write_all_at(bytes, u64::from(offset)).await;
    first?;
    file.write_all_at(bytes, u64::from(area_bytes) + u64::from(offset)).await.0
}

impl Committer {
    /// Continues after what a start has read.
    pub(super) fn new(generation: u64, tail: Tail, complete: u64) -> Committer {
        Committer {
            generation,
            tail,
            complete,
            dump: None,
            broken: false,
            written: 0,
            unsynced: true,
            synced_at: time::now(),
            retry_at: None,
            save_at: None,
        }
    }

    /// What holds between two steps.
    fn check(&self, inner: &Inner) {
        let Committer { generation, complete, tail, .. } = *self;
        assert!(complete == generation || complete + 1 == generation, "two journals at most");
        assert!(tail.offset <= inner.options.geometry.journal_bytes, "a journal has its area");
        assert!(self.written <= inner.journal.position(), "what is written was appended");
        if let Some(dump) = &self.dump {
            dump.check(inner);
            assert!(dump.preamble.generation == complete + 1, "the last index is not overwritten");
        }
    }

    /// Writes the changes of a start. A journal without room for them (it was full when the process
    /// ended) is treated like a failed one: the index is saved again.
    pub(super) async fn write_start(&mut self, inner: &Inner) -> io::Result<()> {
        let room = inner.options.geometry.journal_bytes - self.tail.offset;
        if room < START_BYTES {
            self.broken = true;
            return Ok(());
        }
        self.commit(inner, true).await
    }

    /// The first failure of a journal is repaired at once.
    fn is_urgent(&self) -> bool {
        self.broken && self.retry_at.is_none()
    }

    async fn turn(&mut self, inner: &Arc<Inner>, ending: bool) {
        self.check(inner);
        let waits = self.retry_at.is_some_and(|at| at > time::now());
        if waits && !ending {
            return;
        }
        if self.broken {
            self.rebuild(inner).await;
            return;
        }
        let due = time::now().since(self.synced_at) >= inner.options.sync_interval;
        // Shards are saved while changes go on, so a saved index is ahead of its journal. It may
        // name a record in a segment whose life only the journal has. So it is completed only after
        // that journal is durable; otherwise a power cut could leave neither the record's new place
        // nor its old one.
        let saved = self.dump.as_ref().is_some_and(|dump| dump.shard == inner.index.shards());
        let sync = inner.journal.is_asked() || due || ending || saved;
        if let Err(error) = self.commit(inner, sync).await {
            self.fail(inner, "writing the journal", &error);
            return;
        }
        if ending {
            return;
        }
        if self.tail.offset > inner.options.geometry.journal_bytes / 2
            && self.complete == self.generation
            && let Err(error) = self.roll(inner).await
        {
            self.fail(inner, "beginning a journal", &error);
            return;
        }
        if self.save_at.is_none_or(|at| at <= time::now())
            && let Err(error) = self.save_some(inner).await
        {
            // The journals have everything, so it is retried later.
            self.dump = None;
            let pause = inner.failures.note(&inner.failures.journal, "saving the index", &error);
            self.save_at = Some(time::now() + pause);
        }
        let room = inner.options.geometry.journal_bytes - self.tail.offset;
        let crowded = room < inner.options.geometry.journal_bytes / 4;
        inner.failures.crowded.store(crowded, Ordering::Relaxed);
    }

    /// Continues or starts a saved index that is due.
    async fn save_some(&mut self, inner: &Inner) -> io::Result<()> {
        if self.dump.is_some() {
            return self.save_more(inner).await;
        }
        if self.complete < self.generation {
            return self.begin_save(inner, self.generation, self.tail.nonce).await;
        }
        Ok(())
    }

    /// Writes the pending changes; with `sync` they are durable afterwards.
    pub(super) async fn commit(&mut self, inner: &Inner, sync: bool) -> io::Result<()> {
        let (changes, position) = inner.journal.take();
        assert!(self.written <= position, "positions only rise");
        if !changes.is_empty() {
            self.write(inner, &changes).await?;
            self.written = position;
        }
        if !sync {
            return Ok(());
        }
        self.synced_at = time::now();
        if planted::is(planted::Bug::DiskAckBeforeSync) {
            inner.journal.note_durable(self.written);
            return Ok(());
        }
        if self.unsynced {
            self.sync(inner).await?;
        }
        assert!(!self.unsynced, "a position is durable after a sync that began after its write");
        inner.journal.note_durable(self.written);
        inner.failures.journal.store(0, Ordering::Relaxed);
        Ok(())
    }

    async fn write(&mut self, inner: &Inner, changes: &[u8]) -> io::Result<()> {
        let area = inner.options.geometry.journal_bytes;
        let fits = |tail: Tail| {
            let room = area - tail.offset - CLOSE_BYTES.min(area - tail.offset);
            BATCH_HEADER_BYTES + changes.len() <= room as usize
        };
        if !fits(self.tail) && self.complete == self.generation && self.dump.is_none() {
            self.roll(inner).await?;
        }
        if !fits(self.tail) {
            return Err(io::Error::other("the journal is full"));
        }
        self.write_batch(inner, changes).await
    }

    async fn write_batch(&mut self, inner: &Inner, changes: &[u8]) -> io::Result<()> {
        let area = inner.options.geometry.journal_bytes;
        let (batch, next) = self.tail.batch(&inner.sums, changes);
        assert!(next.number == self.tail.number + 1 && next.nonce == self.tail.nonce);
        assert!(next.offset <= area, "a batch does not reach into the other copy");
        add(&inner.counters.journal_bytes, 2 * batch.len() as u64);
        add(&inner.counters.writes, 2);
        write_copies(&inner.files, self.generation, area, self.tail.offset, batch).await?;
        self.tail = next;
        self.unsynced = true;
        Ok(())
    }

    async fn sync(&mut self, inner: &Inner) -> io::Result<()> {
        add(&inner.counters.syncs, 1);
        let synced = inner.files.journals[(self.generation & 1) as usize].sync_data().await;
        if let Err(error) = synced {
            add(&inner.counters.sync_errors, 1);
            if !planted::is(planted::Bug::DiskFailedSyncTrusted) {
                return Err(error);
            }
        }
        self.unsynced = false;
        Ok(())
    }

    /// Closes this journal and starts the next.
    async fn roll(&mut self, inner: &Inner) -> io::Result<()> {
        assert!(
            self.complete == self.generation && self.dump.is_none(),
            "the journal before the last complete saved index is not needed any more"
        );
        let mut close = Vec::new();
        Change::Close.encode(&mut close);
        self.write_batch(inner, &close).await?;
        self.sync(inner).await?;
        let previous = self.tail.sum;
        self.generation += 1;
        self.tail = Tail::new(inner.number());
        self.begin(inner, previous).await
    }

    /// Writes the first batch of a journal.
    pub(super) async fn begin(&mut self, inner: &Inner, previous: u64) -> io::Result<()> {
        assert!(self.tail.number == 0 && self.tail.offset == 0, "Begin is the first change");
        let mut begin = Vec::new();
        Change::Begin { generation: self.generation, previous }.encode(&mut begin);
        self.write_batch(inner, &begin).await
    }

    fn fail(&mut self, inner: &Inner, what: &str, error: &io::Error) {
        add(&inner.counters.write_errors, 1);
        let pause = inner.failures.note(&inner.failures.journal, what, error);
        self.broken = true;
        self.dump = None;
        // The first failure is retried at once: the waiters may still succeed.
        if inner.failures.journal.load(Ordering::Relaxed) == 1 {
            self.retry_at = None;
            return;
        }
        self.retry_at = Some(time::now() + pause);
        inner.journal.note_failed(true);
    }

    /// Saves the index from memory and starts an empty journal after it.
    async fn rebuild(&mut self, inner: &Inner) {
        assert!(self.broken && self.dump.is_none(), "a failure ends the saved index in progress");
        // The pending changes are in the index already, so the saved index includes them.
        let (_, position) = inner.journal.take();
        let generation = self.complete + 1;
        let nonce = inner.number();
        let mut saved = self.begin_save(inner, generation, nonce).await;
        while saved.is_ok() && self.dump.is_some() {
            saved = self.save_more(inner).await;
        }
        if saved.is_ok() {
            assert!(self.complete == generation, "a journal follows a complete saved index");
            self.generation = generation;
            self.tail = Tail::new(nonce);
            self.written = position;
            saved = self.begin(inner, 0).await;
        }
        if saved.is_ok() {
            // From here a start reads the right state, even if something fails now.
            self.broken = false;
            self.retry_at = None;
            inner.journal.note_durable(position);
            saved = self.commit(inner, true).await;
        }
        if let Err(error) = saved {
            self.fail(inner, "beginning a journal", &error);
        }
    }

    /// Starts a saved index: writes the head.
    async fn begin_save(&mut self, inner: &Inner, generation: u64, nonce: u64) -> io::Result<()> {
        assert!(generation == self.complete + 1, "the last complete index is not overwritten");
        // An older index, or a failed attempt, must not be taken for this one.
        for copy in [0, COPY_BYTES] {
            write_index(inner, generation, vec![0; PREAMBLE_BYTES], copy).await?;
        }
        inner.files.indexes[(generation & 1) as usize].sync_data().await?;
        let alive = inner.segments.alive();
        let purges = inner.purges.save();
        let mut head = encode_head(&inner.sums, nonce, &alive, &purges);
        let head_len = head.len() as u64;
        head.extend_from_within(..);
        let preamble = Preamble { generation, nonce, head_len, slices: 0, entries: 0 };
        let offset = preamble.slices_at();
        self.dump = Some(Dump { preamble, shard: 0, offset, entries: Vec::new() });
        write_index(inner, generation, head, HEAD_AT).await
    }

    /// Saves one shard, or completes the saved index.
    async fn save_more(&mut self, inner: &Inner) -> io::Result<()> {
        let Some(dump) = &mut self.dump else { return Ok(()) };
        if dump.shard < inner.index.shards() {
            let count = inner.index.save(dump.shard, &mut dump.entries);
            assert!(dump.entries.len() >= count * SavedEntry::BYTES);
            dump.preamble.entries += count as u64;
            dump.shard += 1;
            let full = ENTRIES_PER_SLICE * SavedEntry::BYTES;
            while dump.entries.len() >= full {
                let rest = dump.entries.split_off(full);
                dump.write_slice(inner).await?;
                dump.entries = rest;
            }
            return Ok(());
        }
        if !dump.entries.is_empty() {
            dump.write_slice(inner).await?;
        }
        let preamble = dump.preamble;
        dump.check(inner);
        assert!(dump.entries.is_empty(), "a good preamble means that the index is complete");
        let file = &inner.files.indexes[(preamble.generation & 1) as usize];
        add(&inner.counters.syncs, 2);
        file.sync_data().await?;
        for copy in [0, COPY_BYTES] {
            write_index(inner, preamble.generation, preamble.encode(&inner.sums), copy).await?;
        }
        file.sync_data().await?;
        self.dump = None;
        assert!(preamble.generation == self.complete + 1, "one index after the other");
        self.complete = preamble.generation;
        add(&inner.counters.index_saves, 1);
        Ok(())
    }
}

impl Dump {
    fn check(&self, inner: &Inner) {
        let Dump { preamble, shard, offset, entries } = self;
        assert!(*shard <= inner.index.shards() && *offset >= preamble.slices_at());
        let waiting = (entries.len() / SavedEntry::BYTES) as u64;
        assert!(entries.len().is_multiple_of(SavedEntry::BYTES), "entries are whole");
        assert!(waiting <= preamble.entries, "what waits was counted");
        let written = (preamble.entries - waiting) * SavedEntry::BYTES as u64;
        let headers = preamble.slices * SLICE_HEADER_BYTES as u64;
        assert!(*offset == preamble.slices_at() + headers + written, "slices are adjacent");
    }

    async fn write_slice(&mut self, inner: &Inner) -> io::Result<()> {
        let count = self.entries.len() / SavedEntry::BYTES;
        assert!(0 < count && count <= ENTRIES_PER_SLICE, "a start reads no other slice");
        let mut slice = slice_header(&inner.sums, self.preamble.nonce, &self.entries);
        slice.put(&self.entries);
        self.entries.clear();
        let offset = self.offset;
        self.offset += slice.len() as u64;
        self.preamble.slices += 1;
        write_index(inner, self.preamble.generation, slice, offset).await
    }
}

async fn write_index(
    inner: &Inner,
    generation: u64,
    bytes: Vec<u8>,
    offset: u64,
) -> io::Result<()> {
    let file: &File = &inner.files.indexes[(generation & 1) as usize];
    add(&inner.counters.index_bytes, bytes.len() as u64);
    add(&inner.counters.writes, 1);
    file.write_all_at(bytes, offset).await.0
}
