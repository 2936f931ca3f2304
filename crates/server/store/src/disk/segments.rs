//! The segments: which are free, being written, or full, and in which order.
//!
//! ```text
//! free ──▶ open (one for each log) ──▶ full, in the queue of its log ──▶ reclaimed ──▶ free
//!                    └────────── a write or a sync failed ──────▶ bad ──(after a while)──┘
//! ```
//!
//! Space is reserved under a short lock, and the record is queued to be made and written. Each
//! opening of a segment starts a *life* with a number that is never reused, not by a later process
//! either: the remains of an older life are never taken for a record. A full segment with a body
//! that is being read goes to the end of the main queue instead of being reclaimed. What never
//! happens: a segment is reclaimed while a record of it is not written yet.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use runtime::sync::{Guard, Lock, LockKind};

use super::geometry::Geometry;
use super::index::Place;
use super::journal::{Change, Journal, Log};
use super::limits::{
    ALIGNMENT, HELD_SHARE, MOVED_SHARE, SEGMENTS_FOR_MOVES, SEGMENTS_MAX, SMALL_SHARE,
};
use super::record::Unwritten;

/// The file with the segments.
pub(super) const FILE_NAME: &str = "segments";

/// A record that waits to be written.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) place: Place,
    pub(super) life: u64,
    pub(super) print: u64,
    pub(super) record: Arc<Unwritten>,
}

impl Write {
    pub(super) fn bytes(&self) -> usize {
        self.record.len() as usize
    }
}

/// Room for one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a reservation must be queued or released"]
pub(super) struct Reserved {
    pub(super) place: Place,
    pub(super) life: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    segment: u16,
    used: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    /// Bytes up to the end of its last record.
    used: u32,
    /// Records that are reserved and not written.
    outstanding: u32,
}

struct Logs {
    free: VecDeque<u16>,
    bad: Vec<u16>,
    full: [VecDeque<u16>; 2],
    /// Removed from its queue, with its records still there.
    reclaiming: Option<(u16, Log)>,
    open: [Option<Open>; 2],
    segments: Vec<Segment>,
    writes: Vec<Write>,
    write_bytes: usize,
    /// Written since the last sync.
    dirty: BTreeSet<u16>,
    /// To be detached before the first write of their life.
    detached: BTreeSet<u16>,
    next_life: u64,
}

static LOGS: LockKind = LockKind::new("disk: logs");

pub(super) struct Segments {
    geometry: Geometry,
    /// Indexed by segment; 0: nothing in it can be found.
    pub(super) lives: Arc<[AtomicU64]>,
    logs: Lock<Logs>,
    /// By segment: bodies being read that have a part there.
    readers: Box<[AtomicU32]>,
    /// Number of segments with readers.
    held: AtomicU32,
    /// By segment: pages of it may be shared and in flight to clients, also of an older life.
    shared: Box<[AtomicBool]>,
}

/// A segment with a life: its number, life and log.
pub(super) type Alive = (u16, u64, Log);

/// A segment to be reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Victim {
    pub(super) segment: u16,
    pub(super) log: Log,
    pub(super) used: u32,
}

impl Logs {
    /// Every segment is in one place, and has a life unless it is free or bad.
    fn check(&self, lives: &[AtomicU64]) {
        let is_alive = |segment: u16| lives[usize::from(segment)].load(Ordering::Acquire) != 0;
        // A victim may have gone bad.
        let reclaiming = self.reclaiming.is_some_and(|(segment, _)| is_alive(segment));
        let alive = self.full.iter().map(VecDeque::len).sum::<usize>()
            + self.open.iter().flatten().count()
            + usize::from(reclaiming);
        assert!(alive + self.free.len() + self.bad.len() == lives.len(), "no segment is lost");
        let [small, main] = self.open;
        let same = small.zip(main).is_some_and(|(small, main)| small.segment == main.segment);
        assert!(!same, "each log has an open segment for itself");
        debug_assert!(self.detached.len() <= lives.len() && self.dirty.len() <= lives.len());
        debug_assert!(self.full.iter().flatten().all(|segment| is_alive(*segment)));
        debug_assert!(self.open.iter().flatten().all(|open| is_alive(open.segment)));
        debug_assert!(!self.free.iter().chain(&self.bad).any(|segment| is_alive(*segment)));
    }
}

impl Segments {
    /// All free. Lives are numbered from `next_life`.
    pub(super) fn new(geometry: Geometry, next_life: u64) -> Segments {
        let count = geometry.segments as usize;
        assert!(0 < count && count <= SEGMENTS_MAX as usize, "a segment has 16 bits");
        let logs = Logs {
            free: (0..count).map(|segment| segment as u16).collect(),
            bad: Vec::new(),
            full: Default::default(),
            reclaiming: None,
            open: [None; 2],
            segments: vec![Segment::default(); count],
            writes: Vec::new(),
            write_bytes: 0,
            dirty: BTreeSet::new(),
            detached: BTreeSet::new(),
            next_life,
        };
        let lives = (0..count).map(|_| AtomicU64::new(0)).collect();
        let readers = (0..count).map(|_| AtomicU32::new(0)).collect();
        let shared = (0..count).map(|_| AtomicBool::new(false)).collect();
        Segments { geometry, lives, logs: Lock::new(&LOGS, logs), readers, held: 0.into(), shared }
    }

    /// Takes over segments with lives that were found on disk; none of them is open any more.
    /// `shared`: pages that an older process sent zero-copy may still be in flight.
    pub(super) fn restore(&self, mut found: Vec<Alive>, shared: bool) {
        self.shared.iter().for_each(|of| of.store(shared, Ordering::SeqCst));
        found.sort_unstable_by_key(|&(_, life, _)| life);
        let mut logs = self.lock();
        for (segment, life, log) in found {
            assert!(0 < life && life < logs.next_life, "a life's number is never used again");
            let before = self.lives[usize::from(segment)].swap(life, Ordering::AcqRel);
            assert!(before == 0, "a segment is found once");
            logs.free.retain(|free| *free != segment);
            logs.full[log as usize].push_back(segment);
        }
        assert!(logs.open == [None; 2], "a start opens no segment");
        logs.check(&self.lives);
    }

    /// Notes that a record of a restored segment ends here.
    pub(super) fn restore_used(&self, segment: u16, end: u32) {
        assert!(end <= self.geometry.segment_bytes, "a record does not cross its segment's end");
        let mut logs = self.lock();
        let state = &mut logs.segments[usize::from(segment)];
        assert!(state.outstanding == 0, "the records of a restored segment are written");
        state.used = state.used.max(end);
    }

    /// Reserves room for a record of `len` bytes, at most half a segment. `None`: no segment is
    /// free, because the flusher is late or the disk fails.
    pub(super) fn reserve(
        &self,
        log: Log,
        len: u32,
        moved: bool,
        journal: &Journal,
    ) -> Option<Reserved> {
        assert!(0 < len && len <= self.geometry.segment_bytes / 2, "longer ones are refused");
        let mut logs = self.lock();
        let fits = logs.open[log as usize]
            .is_some_and(|open| self.geometry.segment_bytes - open.used >= len);
        if !fits {
            let kept = if moved { 0 } else { SEGMENTS_FOR_MOVES };
            if logs.free.len() <= kept {
                return None;
            }
            self.open_next(&mut logs, log, journal)?;
        }
        let open = logs.open[log as usize].as_mut()?;
        let place = Place { segment: open.segment, offset: open.used };
        let end = open.used + len;
        assert!(end <= self.geometry.segment_bytes, "a record does not cross its segment's end");
        assert!(place.offset.is_multiple_of(ALIGNMENT));
        open.used = end.next_multiple_of(ALIGNMENT).min(self.geometry.segment_bytes);
        assert!(open.used >= end, "records do not overlap");
        let segment = &mut logs.segments[usize::from(place.segment)];
        assert!(segment.used <= place.offset, "records do not overlap");
        segment.used = end;
        segment.outstanding += 1;
        let life = self.lives[usize::from(place.segment)].load(Ordering::Acquire);
        assert!(life != 0, "an open segment has a life");
        Some(Reserved { place, life })
    }

    /// Whether [`Segments::reserve`] would find room for a new record.
    pub(super) fn has_room(&self, log: Log, len: u32) -> bool {
        let logs = self.lock();
        let fits = |open: Open| self.geometry.segment_bytes - open.used >= len;
        logs.open[log as usize].is_some_and(fits) || logs.free.len() > SEGMENTS_FOR_MOVES
    }

    /// Closes the open segment of a log and opens the next free one.
    fn open_next(&self, logs: &mut Logs, log: Log, journal: &Journal) -> Option<()> {
        let segment = logs.free.pop_front()?;
        if let Some(open) = logs.open[log as usize].take() {
            logs.full[log as usize].push_back(open.segment);
        }
        let life = logs.next_life;
        assert!(life != 0 && life < u64::MAX, "a life's number is never used again");
        logs.next_life += 1;
        logs.segments[usize::from(segment)] = Segment::default();
        logs.open[log as usize] = Some(Open { segment, used: 0 });
        let before = self.lives[usize::from(segment)].swap(life, Ordering::SeqCst);
        assert!(before == 0, "the life before of a free segment has ended");
        if self.shared[usize::from(segment)].swap(false, Ordering::SeqCst) {
            logs.detached.insert(segment);
        }
        // Under the lock, so that this precedes any record in the segment.
        journal.append(&Change::Open { segment, life, log });
        logs.check(&self.lives);
        Some(())
    }

    /// Queues a record to be written. Returns the bytes that wait.
    pub(super) fn enqueue(&self, write: Write) -> usize {
        let mut logs = self.lock();
        debug_assert!(write.bytes() > 0 && write.record.len() <= self.geometry.segment_bytes / 2);
        logs.write_bytes += write.bytes();
        logs.writes.push(write);
        assert!(logs.write_bytes >= logs.writes.len(), "no record is empty");
        logs.write_bytes
    }

    /// Releases a reservation.
    pub(super) fn release(&self, reserved: Reserved) {
        self.settled(reserved.place.segment, reserved.life, false);
    }

    /// Notes that a record was written, or will not be.
    pub(super) fn settled(&self, segment: u16, life: u64, written: bool) {
        let mut logs = self.lock();
        // A segment that went bad no longer counts its records.
        if self.lives[usize::from(segment)].load(Ordering::Acquire) == life {
            let outstanding = &mut logs.segments[usize::from(segment)].outstanding;
            assert!(*outstanding > 0, "a reservation is settled once");
            *outstanding -= 1;
            debug_assert!(self.lives[usize::from(segment)].load(Ordering::Relaxed) != 0);
            if written {
                logs.dirty.insert(segment);
            }
        }
    }

    /// Takes everything that waits to be written.
    pub(super) fn take_writes(&self) -> Vec<Write> {
        let mut logs = self.lock();
        debug_assert_eq!(logs.writes.iter().map(Write::bytes).sum::<usize>(), logs.write_bytes);
        logs.write_bytes = 0;
        std::mem::take(&mut logs.writes)
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.lock().write_bytes
    }

    /// Takes the set of segments written since the last call.
    pub(super) fn take_dirty(&self) -> BTreeSet<u16> {
        std::mem::take(&mut self.lock().dirty)
    }

    pub(super) fn is_dirty(&self) -> bool {
        !self.lock().dirty.is_empty()
    }

    /// Takes the segment to be reclaimed next, if too few are free.
    pub(super) fn victim(&self) -> Option<Victim> {
        let mut logs = self.lock();
        let logs = &mut *logs;
        assert!(logs.reclaiming.is_none(), "one segment is reclaimed at a time");
        if logs.free.len() >= self.geometry.segments_free() {
            return None;
        }
        // A segment with readers is in demand: it goes to the end of the main log.
        for log in [Log::Main, Log::Small] {
            for _ in 0..logs.full[log as usize].len() {
                let Some(&segment) = logs.full[log as usize].front() else { break };
                if !self.is_kept(segment) {
                    break;
                }
                logs.full[log as usize].pop_front();
                logs.full[Log::Main as usize].push_back(segment);
            }
        }
        let small_max = (self.geometry.segments / SMALL_SHARE).max(1) as usize;
        let small_first = logs.full[0].len() >= small_max || logs.full[1].is_empty();
        let order = if small_first { [Log::Small, Log::Main] } else { [Log::Main, Log::Small] };
        for log in order {
            let first = logs.full[log as usize].front().copied();
            // Where other segments went bad, all remaining ones may have readers.
            let Some(segment) = first.filter(|segment| !self.is_kept(*segment)) else { continue };
            let state = logs.segments[usize::from(segment)];
            if state.outstanding == 0 {
                assert!(state.used <= self.geometry.segment_bytes);
                logs.full[log as usize].pop_front();
                logs.reclaiming = Some((segment, log));
                logs.check(&self.lives);
                return Some(Victim { segment, log, used: state.used });
            }
        }
        None
    }

    /// Records that pages of this segment are shared. False: that life of it has ended.
    pub(super) fn mark_shared(&self, segment: u16, life: u64) -> bool {
        self.shared[usize::from(segment)].store(true, Ordering::SeqCst);
        self.lives[usize::from(segment)].load(Ordering::SeqCst) == life
    }

    /// Before the first write of a life: may pages of an older life be in flight? Answers true
    /// once.
    pub(super) fn take_detached(&self, segment: u16) -> bool {
        self.lock().detached.remove(&segment)
    }

    /// Notes that a body with a part in this segment is being read, until [`Segments::let_go`].
    pub(super) fn hold(&self, segment: u16) {
        if self.readers[usize::from(segment)].fetch_add(1, Ordering::Relaxed) == 0 {
            self.held.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn let_go(&self, segment: u16) {
        let before = self.readers[usize::from(segment)].fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a reader lets go what it holds");
        if before == 1 {
            let held = self.held.fetch_sub(1, Ordering::Relaxed);
            assert!(held > 0, "a segment with readers is counted");
        }
    }

    /// Whether eviction skips it because it has readers. Readers may be slow, so only a share of
    /// the store is kept for them.
    pub(super) fn is_kept(&self, segment: u16) -> bool {
        self.readers[usize::from(segment)].load(Ordering::Relaxed) > 0
            && self.held.load(Ordering::Relaxed) <= self.geometry.segments / HELD_SHARE
    }

    /// Keeps a victim, in the main log. The records moved out of it are not moved again: they count
    /// towards the next time's limit.
    pub(super) fn spare(&self, victim: Victim, moved_bytes: u64) {
        assert!(moved_bytes <= u64::from(victim.used) / MOVED_SHARE, "at most a share is moved");
        let mut logs = self.lock();
        let reclaiming = logs.reclaiming.take();
        assert!(reclaiming == Some((victim.segment, victim.log)), "it is the victim");
        if self.lives[usize::from(victim.segment)].load(Ordering::Acquire) != 0 {
            logs.full[Log::Main as usize].push_back(victim.segment);
            let counted = u32::try_from(moved_bytes * MOVED_SHARE).unwrap_or(u32::MAX);
            let used = &mut logs.segments[usize::from(victim.segment)].used;
            *used = used.saturating_sub(counted);
        }
        logs.check(&self.lives);
    }

    /// Ends the life of a victim without records; the segment can be opened again.
    pub(super) fn reclaimed(&self, victim: Victim, journal: &Journal) {
        let mut logs = self.lock();
        let reclaiming = logs.reclaiming.take();
        assert!(reclaiming == Some((victim.segment, victim.log)), "it is the victim");
        if self.lives[usize::from(victim.segment)].swap(0, Ordering::AcqRel) != 0 {
            let outstanding = logs.segments[usize::from(victim.segment)].outstanding;
            assert!(outstanding == 0, "a segment with records to be written is not reclaimed");
            logs.dirty.remove(&victim.segment);
            logs.free.push_back(victim.segment);
            journal.append(&Change::Free { segment: victim.segment });
        }
        logs.check(&self.lives);
    }

    /// Takes a segment out of use until [`Segments::retry_bad`] and ends its life. False: it has
    /// none.
    pub(super) fn drop_segment(&self, segment: u16) -> bool {
        let mut logs = self.lock();
        if self.lives[usize::from(segment)].swap(0, Ordering::AcqRel) == 0 {
            return false;
        }
        for log in [0, 1] {
            logs.full[log].retain(|full| *full != segment);
            if logs.open[log].is_some_and(|open| open.segment == segment) {
                logs.open[log] = None;
            }
        }
        logs.dirty.remove(&segment);
        logs.segments[usize::from(segment)] = Segment::default();
        logs.bad.push(segment);
        logs.check(&self.lives);
        true
    }

    /// Makes bad segments available again.
    pub(super) fn retry_bad(&self) {
        let mut logs = self.lock();
        let bad = std::mem::take(&mut logs.bad);
        logs.free.extend(bad);
        logs.check(&self.lives);
    }

    #[cfg(test)]
    fn bad(&self) -> usize {
        self.lock().bad.len()
    }

    #[cfg(test)]
    fn free(&self) -> usize {
        self.lock().free.len()
    }

    /// All segments that have a life.
    pub(super) fn alive(&self) -> Vec<Alive> {
        let logs = self.lock();
        let mut found = Vec::new();
        for log in [Log::Small, Log::Main] {
            let open = logs.open[log as usize].map(|open| open.segment);
            let leaving = logs.reclaiming.filter(|(_, of)| *of == log).map(|(segment, _)| segment);
            for segment in leaving.into_iter().chain(logs.full[log as usize].clone()).chain(open) {
                let life = self.lives[usize::from(segment)].load(Ordering::Acquire);
                if life != 0 {
                    found.push((segment, life, log));
                }
            }
        }
        assert!(found.len() + logs.free.len() + logs.bad.len() <= self.lives.len());
        found
    }

    /// The position of a place in the file of segments.
    pub(super) fn position(&self, place: Place) -> u64 {
        debug_assert!(usize::from(place.segment) < self.lives.len());
        debug_assert!(place.offset < self.geometry.segment_bytes);
        debug_assert!(place.offset.is_multiple_of(ALIGNMENT));
        u64::from(place.segment) * u64::from(self.geometry.segment_bytes) + u64::from(place.offset)
    }

    fn lock(&self) -> Guard<'_, Logs> {
        self.logs.lock().expect("no panic while the logs are locked")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_reused() {
        let journal = Journal::default();
        let segments = Segments::new(Geometry::tiny(16), 100);
        let len = 20_000;
        let mut reserved = Vec::new();
        while let Some(room) = segments.reserve(Log::Small, len, false, &journal) {
            assert_eq!(room.place.offset % ALIGNMENT, 0);
            reserved.push(room);
        }
        assert_eq!(reserved.len(), 15 * 3, "the last is for moved records");
        assert!(segments.reserve(Log::Main, len, true, &journal).is_some());
        assert_eq!(segments.victim(), None, "its records are not written yet");
        reserved.iter().take(3).for_each(|room| segments.release(*room));
        let victim = segments.victim().unwrap();
        assert_eq!((victim.segment, victim.log), (0, Log::Small));
        assert!(victim.used == 3 * len);
        segments.reclaimed(victim, &journal);
        let more = || segments.reserve(Log::Main, 32_000, true, &journal).unwrap();
        assert_eq!(more().place.segment, 15);
        let again = more();
        assert!(again.place == Place { segment: 0, offset: 0 } && again.life > reserved[44].life);
        assert!(segments.drop_segment(0) && !segments.drop_segment(0));
        segments.settled(0, again.life, true); // has no effect any more
        assert!(segments.bad() == 1 && segments.free() == 0 && !segments.is_dirty());
        segments.retry_bad();
        assert_eq!(segments.free(), 1);
    }

    #[test]
    fn segments_with_readers_are_skipped_up_to_a_share() {
        let journal = Journal::default();
        let segments = Segments::new(Geometry::tiny(16), 1);
        while let Some(reserved) = segments.reserve(Log::Small, 30_000, true, &journal) {
            segments.release(reserved);
        }
        // Each goes bad while it is reclaimed, so that none is free again.
        let next = || {
            let victim = segments.victim()?;
            segments.drop_segment(victim.segment);
            segments.reclaimed(victim, &journal);
            Some((victim.segment, victim.log))
        };
        for segment in [0, 0, 1, 3] {
            segments.hold(segment);
        }
        assert_eq!(next(), Some((2, Log::Small)));
        assert_eq!(next(), Some((4, Log::Small)));
        segments.let_go(0);
        assert!(segments.is_kept(0), "it still has a reader");
        for segment in [5, 6, 7] {
            segments.hold(segment); // more than a quarter of them
        }
        assert!(!segments.is_kept(1));
        assert_eq!(next(), Some((5, Log::Small)));
        // A spared segment may have half of its records moved in total.
        let spared = segments.victim().unwrap();
        segments.spare(spared, 20_000);
        assert_eq!((spared.segment, spared.used), (6, 60_000));
        assert_eq!(segments.lock().segments[6].used, 20_000);
        segments.let_go(0);
        segments.let_go(5);
        assert!(!segments.is_kept(0) && segments.is_kept(1));
        // The segments that were skipped are in the main log, in order.
        while segments.lock().full[0].len() > 1 {
            assert!(next().is_some_and(|(_, log)| log == Log::Small));
        }
        let main = segments.alive();
        let main = main.iter().filter(|(_, _, log)| *log == Log::Main);
        assert_eq!(main.map(|(segment, ..)| *segment).collect::<Vec<_>>(), [0, 1, 3, 6, 7]);
        for bad in (0..16).filter(|segment| ![1, 3].contains(segment)) {
            segments.drop_segment(bad);
        }
        assert_eq!(next(), None, "all remaining segments have readers");
    }
}
