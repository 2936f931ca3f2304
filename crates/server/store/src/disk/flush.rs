//! The writing half of the flusher: writes records to segments, syncs, and reclaims segments.
//!
//! It is one task, so nothing here needs a lock against itself. Adjacent records are written by one
//! call. A segment is dropped with all its records if a write or a sync of it fails: after a failed
//! sync the contents on disk are unknown.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use runtime::fs::PageBuffer;
use runtime::time::{self, Instant};

use super::Inner;
use super::counters::add;
use super::index::Place;
use super::limits::{ALIGNMENT, WRITE_BATCH_BYTES, WRITE_RUN_BYTES_MAX, YIELD_BYTES, YIELD_SHARE};
use super::reclaim;
use super::segments::Write;

/// State of the writing half between rounds.
struct Flusher {
    synced_at: Instant,
    unsynced_bytes: u64,
    /// One write is assembled here.
    buffer: PageBuffer,
    /// Bad segments are not retried before this time.
    retry_at: Option<Instant>,
}

pub(super) async fn run(inner: &Arc<Inner>) {
    let now = time::now();
    let mut state = Flusher {
        synced_at: now,
        unsynced_bytes: 0,
        buffer: PageBuffer::default(),
        retry_at: None,
    };
    loop {
        let closing = inner.closing.load(Ordering::Acquire);
        let asked = inner.rounds.is_asked();
        inner.rounds.begin();
        state.retry_bad(inner);
        state.write_waiting(inner).await;
        // While the disk fails, nothing is reclaimed.
        while !inner.failures.is_off()
            && let Some(victim) = inner.segments.victim()
        {
            reclaim::reclaim(inner, victim, &mut state).await;
        }
        let due = time::now().since(state.synced_at) >= inner.options.sync_interval
            || state.unsynced_bytes >= inner.options.sync_bytes;
        if due || asked || closing {
            state.sync(inner).await;
        }
        inner.rounds.end();
        if closing {
            break;
        }
        let rest = time::sleep(inner.options.flush_interval);
        runtime::race(inner.wake.wait(), rest).await;
    }
    inner.rounds.finish();
    inner.drained.store(true, Ordering::Release);
    inner.journal.signal.raise();
}

impl Inner {
    /// Yields the processor to a core that waits for it. The kernel would not preempt this thread
    /// for some milliseconds, and charges the thread for the yield; so this is skipped while much
    /// waits to be written.
    fn yield_to_cores(&self) {
        let geometry = &self.options.geometry;
        let free = geometry.segments_free() * geometry.segment_bytes as usize;
        if self.buffered.load(Ordering::Relaxed) < free / YIELD_SHARE {
            std::thread::yield_now();
        }
    }
}

impl reclaim::Drain for Flusher {
    async fn drain(&mut self, inner: &Arc<Inner>) {
        if inner.segments.waiting_bytes() >= WRITE_BATCH_BYTES {
            self.write_waiting(inner).await;
        }
    }

    async fn finish(&mut self, inner: &Arc<Inner>) {
        self.write_waiting(inner).await;
    }
}

impl Flusher {
    /// Writes everything that waits, adjacent records together.
    async fn write_waiting(&mut self, inner: &Arc<Inner>) {
        let mut writes = inner.segments.take_writes();
        writes.sort_unstable_by_key(|write| write.place);
        let mut rest = &writes[..];
        while let Some(count) = neighbours(rest) {
            let (run, later) = rest.split_at(count);
            rest = later;
            self.write_run(inner, run).await;
            inner.release(run.iter().map(Write::bytes).sum());
        }
    }

    async fn write_run(&mut self, inner: &Arc<Inner>, run: &[Write]) {
        let (place, life) = (run[0].place, run[0].life);
        assert!(life != 0, "a record has a place in a life");
        debug_assert!(run.iter().all(|of| of.life == life && of.place.segment == place.segment));
        debug_assert!(run.is_sorted_by_key(|write| write.place), "records are written in order");
        let lives = &inner.segments.lives[usize::from(place.segment)];
        if lives.load(Ordering::Acquire) != life {
            return; // dropped meanwhile
        }
        if inner.segments.take_detached(place.segment)
            && let Err(error) = detach(inner, place.segment).await
        {
            // The next life of the segment must still detach it.
            inner.segments.mark_shared(place.segment, life);
            add(&inner.counters.write_errors, 1);
            self.failed(inner, "detaching a segment", &error);
            inner.drop_segment(place.segment);
            return;
        }
        add(&inner.counters.writes, 1);
        let position = inner.segments.position(place);
        let (writer, writes) = (Arc::clone(inner), run.to_vec());
        let mut buffer = std::mem::take(&mut self.buffer);
        let make = move || {
            let last = &writes[writes.len() - 1];
            let end = last.place.offset + last.record.len();
            assert!(end <= writer.options.geometry.segment_bytes, "a segment is not overrun");
            let span = end - place.offset;
            let bytes = buffer.begin(position, span as usize);
            let (mut end, mut since) = (0, 0);
            let mut made = |bytes| {
                since += bytes;
                if since >= YIELD_BYTES {
                    since = 0;
                    writer.yield_to_cores();
                }
            };
            for write in &writes {
                let start = (write.place.offset - place.offset) as usize;
                assert!(end <= start && start - end < ALIGNMENT as usize, "records are adjacent");
                // Zeros for the gap before the record.
                bytes[end..start].fill(0);
                end = start + write.bytes();
                let place = &mut bytes[start..end];
                write.record.write(writer.blocks, &writer.sums, place, &mut made);
            }
            assert!(end == span as usize, "every byte of the buffer was made");
            buffer
        };
        let (written, buffer) = inner.files.segments.write_made_at(make, position).await;
        let len = buffer.as_ref().len() as u64;
        debug_assert!(len >= run.iter().map(|write| write.bytes() as u64).sum());
        self.buffer = buffer;
        match written {
            Ok(()) => {
                inner.failures.data.store(0, Ordering::Relaxed);
                self.unsynced_bytes += len;
                for write in run {
                    let Write { print, place, .. } = *write;
                    let len = write.record.len();
                    let journal = |chunk| inner.journal_put(print, place, len, chunk);
                    inner.index.written(print, place, journal);
                    inner.segments.settled(write.place.segment, life, true);
                }
            }
            Err(error) => {
                add(&inner.counters.write_errors, 1);
                self.failed(inner, "writing to a segment", &error);
                inner.drop_segment(place.segment);
            }
        }
    }

    /// Syncs what was written.
    async fn sync(&mut self, inner: &Arc<Inner>) {
        self.synced_at = time::now();
        if !inner.segments.is_dirty() {
            return;
        }
        let dirty = inner.segments.take_dirty();
        assert!(!dirty.is_empty() && dirty.len() <= inner.options.geometry.segments as usize);
        add(&inner.counters.syncs, 1);
        match inner.files.segments.sync_data().await {
            Ok(()) => self.unsynced_bytes = 0,
            Err(error) => {
                add(&inner.counters.sync_errors, 1);
                self.failed(inner, "syncing the segments", &error);
                dirty.into_iter().for_each(|segment| inner.drop_segment(segment));
            }
        }
    }

    fn failed(&mut self, inner: &Inner, what: &str, error: &io::Error) {
        let pause = inner.failures.note(&inner.failures.data, what, error);
        self.retry_at = Some(time::now() + pause);
    }

    /// Makes bad segments available again after a while.
    fn retry_bad(&mut self, inner: &Inner) {
        if self.retry_at.is_some_and(|at| at <= time::now()) {
            self.retry_at = None;
            inner.segments.retry_bad();
            // One more failure turns writing off again, for longer.
            let failures = &inner.failures.data;
            let trial = super::limits::FAILURES_MAX - 1;
            let _ = failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count > trial).then_some(trial)
            });
        }
    }
}

/// Replaces the pages of a segment in the file, because pages of an older life may be in flight to
/// clients and must not change.
async fn detach(inner: &Inner, segment: u16) -> io::Result<()> {
    let position = inner.segments.position(Place { segment, offset: 0 });
    let len = u64::from(inner.options.geometry.segment_bytes);
    match inner.files.segments.detach(position, len).await {
        // Then no pages of it were shared.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        result => result,
    }
}

/// How many of the first writes are adjacent; `None` if there are none.
fn neighbours(writes: &[Write]) -> Option<usize> {
    let first = writes.first()?;
    let mut end = first.place.offset + first.record.len();
    let mut total = first.bytes();
    let mut count = 1;
    for write in &writes[1..] {
        total += write.bytes();
        let follows = write.place.segment == first.place.segment
            && write.life == first.life
            && write.place.offset == end.next_multiple_of(ALIGNMENT)
            && total <= WRITE_RUN_BYTES_MAX;
        if !follows {
            break;
        }
        end = write.place.offset + write.record.len();
        count += 1;
    }
    assert!(0 < count && count <= writes.len(), "a run makes progress");
    Some(count)
}
