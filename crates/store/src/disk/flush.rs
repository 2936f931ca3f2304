//! The writing half of the flusher: records into segments, syncs, and room for more.
//!
//! One task, so that nothing here needs a lock against itself. Records that lie behind one another
//! are written by one call. A segment of which a write or a sync failed is given up with all that
//! it holds: after a failed sync nobody knows what the disk has.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use runtime::fs::PageBuffer;
use runtime::time::{self, Instant};

use super::Inner;
use super::counters::add;
use super::index::Place;
use super::limits::{
    ALIGNMENT, GIVE_WAY_BYTES, GIVE_WAY_SHARE, WRITE_BATCH_BYTES, WRITE_RUN_BYTES_MAX,
};
use super::reclaim;
use super::segments::Write;

/// What the writing half remembers between its rounds.
struct Flusher {
    synced_at: Instant,
    filled_at: Instant,
    unsynced_bytes: u64,
    /// What is written at once is put together here.
    buffer: PageBuffer,
    /// Bad segments are left alone until then.
    forgive_at: Option<Instant>,
}

pub(super) async fn run(inner: &Arc<Inner>) {
    let now = time::now();
    let mut state = Flusher {
        synced_at: now,
        filled_at: now,
        unsynced_bytes: 0,
        buffer: PageBuffer::default(),
        forgive_at: None,
    };
    loop {
        let closing = inner.closing.load(Ordering::Acquire);
        let asked = inner.rounds.is_asked();
        inner.rounds.begin();
        state.forgive(inner);
        state.allow(inner);
        state.write_waiting(inner).await;
        // On a disk that fails, what there is stays.
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
    /// Lets a core that waits for this thread's processor have it. The kernel, which would not
    /// preempt the thread for some milliseconds, charges it for that: not while much is to be
    /// written.
    fn give_way(&self) {
        let geometry = &self.options.geometry;
        let free = geometry.segments_free() * geometry.segment_bytes as usize;
        if self.buffered.load(Ordering::Relaxed) < free / GIVE_WAY_SHARE {
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
    /// Writes everything that waits, neighbours together.
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
        let lives = &inner.segments.lives[usize::from(place.segment)];
        if lives.load(Ordering::Acquire) != life {
            return; // given up meanwhile
        }
        if inner.segments.take_detached(place.segment)
            && let Err(error) = detach(inner, place.segment).await
        {
            // It still is to be done by whoever opens it next.
            inner.segments.mark_shared(place.segment, life);
            add(&inner.counters.write_errors, 1);
            self.failed(inner, "detaching a segment", &error);
            inner.condemn(place.segment);
            return;
        }
        add(&inner.counters.writes, 1);
        let position = inner.segments.position(place);
        let (writer, writes) = (Arc::clone(inner), run.to_vec());
        let mut buffer = std::mem::take(&mut self.buffer);
        let make = move || {
            let last = &writes[writes.len() - 1];
            let span = last.place.offset + last.record.len() - place.offset;
            let bytes = buffer.begin(position, span as usize);
            let (mut end, mut since) = (0, 0);
            let mut made = |bytes| {
                since += bytes;
                if since >= GIVE_WAY_BYTES {
                    since = 0;
                    writer.give_way();
                }
            };
            for write in &writes {
                let start = (write.place.offset - place.offset) as usize;
                // The gap before it.
                bytes[end..start].fill(0);
                end = start + write.bytes();
                let place = &mut bytes[start..end];
                write.record.write(writer.blocks, &writer.sums, place, &mut made);
            }
            buffer
        };
        let (written, buffer) = inner.files.segments.write_made_at(make, position).await;
        let len = buffer.as_ref().len() as u64;
        self.buffer = buffer;
        match written {
            Ok(()) => {
                inner.failures.data.store(0, Ordering::Relaxed);
                self.unsynced_bytes += len;
                for write in run {
                    let Write { print, place, .. } = *write;
                    let len = write.record.len();
                    let told = |chunk| inner.tell_put(print, place, len, chunk);
                    inner.index.written(print, place, told);
                    inner.segments.settled(write.place.segment, life, true);
                }
            }
            Err(error) => {
                add(&inner.counters.write_errors, 1);
                self.failed(inner, "writing to a segment", &error);
                inner.condemn(place.segment);
            }
        }
    }

    /// Makes durable what was written.
    async fn sync(&mut self, inner: &Arc<Inner>) {
        self.synced_at = time::now();
        if !inner.segments.is_dirty() {
            return;
        }
        let dirty = inner.segments.take_dirty();
        add(&inner.counters.syncs, 1);
        match inner.files.segments.sync_data().await {
            Ok(()) => self.unsynced_bytes = 0,
            Err(error) => {
                add(&inner.counters.sync_errors, 1);
                self.failed(inner, "syncing the segments", &error);
                dirty.into_iter().for_each(|segment| inner.condemn(segment));
            }
        }
    }

    fn failed(&mut self, inner: &Inner, what: &str, error: &io::Error) {
        let pause = inner.failures.note(&inner.failures.data, what, error);
        self.forgive_at = Some(time::now() + pause);
    }

    /// Bad segments are tried again after a while.
    fn forgive(&mut self, inner: &Inner) {
        if self.forgive_at.is_some_and(|at| at <= time::now()) {
            self.forgive_at = None;
            inner.segments.forgive();
            // One more failure, and it is off again for longer.
            let failures = &inner.failures.data;
            let trial = super::limits::FAILURES_MAX - 1;
            let _ = failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count > trial).then_some(trial)
            });
        }
    }

    /// Fills up what new objects may write.
    fn allow(&mut self, inner: &Inner) {
        let now = time::now();
        let passed: Duration = now.since(self.filled_at);
        self.filled_at = now;
        let rate = inner.options.write_bytes_per_s as f64;
        let more = (rate * passed.as_secs_f64()) as i64;
        let most = inner.options.write_bytes_per_s as i64;
        let _ = inner.allowance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_add(more).min(most))
        });
    }
}

/// Pages of an older life of a segment are on their way to clients, and stay what they are.
async fn detach(inner: &Inner, segment: u16) -> io::Result<()> {
    let position = inner.segments.position(Place { segment, offset: 0 });
    let len = u64::from(inner.options.geometry.segment_bytes);
    match inner.files.segments.detach(position, len).await {
        // Then no pages of it were shared.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        result => result,
    }
}

/// How many of the first ones lie behind one another; `None`: there are none.
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
    Some(count)
}
