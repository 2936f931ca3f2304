//! Eviction: S3-FIFO on whole segments.
//!
//! ```text
//! new ──▶ [ small log, 10 % ] ──requested again──▶ [ main log ] ──requested since──▶ its head
//!               │ else: the ghosts remember it         │ else
//!               ▼                                      ▼ evicted
//! an object that a ghost knows goes to the main log at once
//! ```
//!
//! The oldest segment of a log is reclaimed as a whole. Of the records requested meanwhile, the
//! most requested are moved, with their count lowered, up to half of the bytes in the segment. That
//! bounds write amplification: let `w` be all bytes ever written to segments, and `m` the moved
//! ones among them. Each byte written is reclaimed at most once, and at most half of the reclaimed
//! bytes are moved, so `m <= w / 2`: at most two bytes are written for each byte stored. What never
//! happens: a record is moved without verifying its blocks; a moved record replaces a newer one of
//! its key.

use std::sync::Arc;

use super::Inner;
use super::checksum::Spot;
use super::counters::add;
use super::index::{Candidate, New, Place};
use super::journal::Log;
use super::limits::MOVED_SHARE;
use super::record::Unwritten;
use super::segments::{Victim, Write};

/// Writes pending records.
pub(super) trait Drain {
    /// If there is enough for a batch.
    async fn drain(&mut self, inner: &Arc<Inner>);
    /// All of it.
    async fn finish(&mut self, inner: &Arc<Inner>);
}

/// Reclaims a segment.
pub(super) async fn reclaim(inner: &Arc<Inner>, victim: Victim, drain: &mut impl Drain) {
    let entries = inner.index.in_segment(victim.segment);
    debug_assert!(entries.iter().all(|entry| entry.offset < inner.options.geometry.segment_bytes));
    let moving = chosen(&entries, u64::from(victim.used) / MOVED_SHARE);
    for candidate in &moving {
        move_record(inner, victim, candidate).await;
        drain.drain(inner).await;
    }
    if inner.segments.is_kept(victim.segment) {
        // A reader of this segment appeared meanwhile.
        let moved = moving.iter().map(|candidate| u64::from(candidate.len)).sum();
        inner.segments.spare(victim, moved);
        return;
    }
    // Moved records are found elsewhere by now, so this does not evict them.
    for entry in &entries {
        let place = Place { segment: victim.segment, offset: entry.offset };
        // Also records that were requested but did not fit into the half that is moved.
        let remember = (victim.log == Log::Small || entry.touches > 0) && !entry.chunk;
        assert!(entry.len > 0, "no record is empty");
        if inner.index.evict(entry.print, place, remember) {
            add(&inner.counters.evicted, 1);
            add(&inner.counters.evicted_bytes, u64::from(entry.len));
        }
    }
    add(&inner.counters.segments_reclaimed, 1);
    // The journal must have the records' new places before it has the free segment.
    drain.finish(inner).await;
    inner.segments.reclaimed(victim, &inner.journal);
}

/// The most touched records that fit, in the order of the segment.
fn chosen(entries: &[Candidate], bytes_max: u64) -> Vec<Candidate> {
    let mut touched: Vec<Candidate> =
        entries.iter().filter(|entry| entry.touches > 0).copied().collect();
    touched.sort_unstable_by_key(|entry| (std::cmp::Reverse(entry.touches), entry.offset));
    let mut left = bytes_max;
    touched.retain(|entry| {
        let fits = u64::from(entry.len) <= left;
        left -= if fits { u64::from(entry.len) } else { 0 };
        fits
    });
    debug_assert!(touched.iter().map(|entry| u64::from(entry.len)).sum::<u64>() <= bytes_max);
    touched.sort_unstable_by_key(|entry| entry.offset);
    debug_assert!(
        touched.iter().all(|entry| entry.touches > 0),
        "only what was requested is moved"
    );
    touched
}

/// Copies a verified record to the main log. On failure it is evicted later.
async fn move_record(inner: &Arc<Inner>, victim: Victim, candidate: &Candidate) {
    let Candidate { print, offset, len, .. } = *candidate;
    assert!(candidate.touches > 0, "only what was requested is moved");
    let place = Place { segment: victim.segment, offset };
    // It may have been replaced meanwhile.
    let Some(found) = inner.index.look_up(print, false).filter(|found| found.place == place) else {
        return;
    };
    let mut bytes = vec![0; len as usize];
    let position = inner.segments.position(place);
    if inner.files.segments.read_exact_at(&mut bytes, position).await.is_err() {
        add(&inner.counters.read_errors, 1);
        return;
    }
    let from = Spot { segment: place.segment, offset, life: found.life, print };
    let Some(reserved) = inner.segments.reserve(Log::Main, len, true, &inner.journal) else {
        return;
    };
    let (to, life) = (reserved.place, reserved.life);
    assert!(to.segment != victim.segment && life != found.life, "the victim is not open");
    let spot = Spot { segment: to.segment, offset: to.offset, life, print };
    if !inner.blocks.make_for(&inner.sums, &from, &spot, &mut bytes) {
        add(&inner.counters.bad_blocks, 1);
        inner.segments.release(reserved);
        return;
    }
    let record = Arc::new(Unwritten::made(spot, bytes));
    // Records from the small log start with no touches.
    let touches = if victim.log == Log::Small { 0 } else { candidate.touches - 1 };
    let chunk = candidate.chunk;
    let new = New { print, place: to, life, touches, chunk, record: Arc::clone(&record) };
    let old = if planted::is(planted::Bug::DiskMoveOverNewer) { None } else { Some(place) };
    if !inner.index.put(new, old, || inner.journal_delete(print)) {
        inner.segments.release(reserved);
        return;
    }
    inner.buffered.fetch_add(len as usize, std::sync::atomic::Ordering::Relaxed);
    inner.segments.enqueue(Write { place: to, life, print, record });
    add(&inner.counters.moved, 1);
    add(&inner.counters.moved_bytes, u64::from(len));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_touched_half_is_moved() {
        let candidate = |offset, len, touches| Candidate {
            print: u64::from(offset),
            offset,
            len,
            touches,
            chunk: false,
        };
        let entries = [
            candidate(0, 100, 1),
            candidate(100, 300, 0),
            candidate(400, 200, 3),
            candidate(600, 250, 2),
            candidate(850, 40, 1),
        ];
        let offsets = |bytes_max| -> Vec<u32> {
            chosen(&entries, bytes_max).iter().map(|entry| entry.offset).collect()
        };
        assert_eq!(offsets(10_000), [0, 400, 600, 850], "records without a request are not moved");
        assert_eq!(offsets(445), [0, 400, 850]);
        assert_eq!(offsets(500), [400, 600, 850]);
        assert_eq!(offsets(0), [0_u32; 0]);
    }
}
