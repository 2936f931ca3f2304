//! Sends blocks zero-copy, from the pages of the page cache.
//!
//! With [`Verify::Once`], the second reader of a record watches its pages ([`StablePages`]) before
//! the blocks are verified and sent. From then on its pages are sent zero-copy, until one of them
//! leaves the page cache.
//!
//! ```text
//! ──read──▶ read once ──read──▶ watched ──all blocks verified──▶ verified: zero-copy ──┐
//!    ▲                                                                                 │
//!    └──────────── a page has left, or the record makes room for others ◀──────────────┘
//! ```
//!
//! The header and metadata of such a record are kept in memory. Its first block, which a look-up
//! had read before, is sent zero-copy once it was verified again; then a hit reads nothing.
//!
//! Who owns: the store owns the verified records, at most [`SHARED_RECORDS_MAX`]; until then the
//! reader that verifies a record owns its watch.
//! What never happens:
//! - A byte is sent that was not verified since it was read from disk.
//! - A page in flight is overwritten: a segment with shared pages is detached before the first
//!   write of its next life ([`super::segments::Segments::mark_shared`]).
//! - Zero-copy goes on after another program opened the file: it could write there undetected
//!   ([`OpenWatch`]).

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use runtime::fs::{
    self, File, NotShared, OpenOptions, OpenWatch, PARTS_MAX, SharedPages, StablePages,
};
use runtime::sync::{Guard, Lock, LockKind};

use super::counters::add;
use super::index::Found;
use super::limits::{
    KNOWN_META_BYTES_MAX, LEAVING_AT_ONCE, SHARED_BYTES_MIN, SHARED_RECORDS_MAX, WATCHES_MAX,
};
use super::record::{Blocks, HEADER_BYTES, Header, SUM_BYTES};
use super::segments::FILE_NAME;
use super::{Inner, Options, Verify};

/// A record: segment, offset, and the life of the segment.
type Name = (u16, u32, u64);

fn name(found: &Found) -> Name {
    (found.place.segment, found.place.offset, found.life)
}

/// A record that was read at least once.
#[derive(Clone, Debug)]
enum State {
    ReadOnce,
    Verified(Arc<Verified>),
}

/// Pages of a record whose blocks were verified, from block `from` on.
#[derive(Debug)]
pub(super) struct Verified {
    pages: StablePages,
    from: AtomicU32,
    beginning: Vec<u8>,
}

impl Verified {
    /// Notes that the first block was verified too, while its page was watched.
    pub(super) fn note_first_verified(&self) {
        self.from.store(0, Ordering::Release);
    }

    /// The payload of a whole object up to the body. Empty for chunks and long metadata.
    pub(super) fn beginning(&self) -> &[u8] {
        &self.beginning
    }
}

/// Permission for one of at most [`WATCHES_MAX`] concurrent watches.
#[derive(Debug)]
struct Permit(Arc<AtomicU32>);

impl Permit {
    fn take(count: &Arc<AtomicU32>) -> Option<Permit> {
        let permit = Permit(Arc::clone(count));
        // One above the maximum is given back when it is dropped.
        (count.fetch_add(1, Ordering::Relaxed) < WATCHES_MAX).then_some(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "each permit was counted");
    }
}

/// A record whose blocks are being verified while its pages are watched.
#[derive(Debug)]
pub(super) struct Watch {
    name: Name,
    pages: StablePages,
    from: u32,
    next: u32,
    blocks: u32,
    beginning: Vec<u8>,
    _permit: Permit,
}

/// Records by when they were last read: `young` in this generation, `old` in the one before.
/// `leaving` have not been read since; a few are dropped at a time.
#[derive(Default)]
struct Records {
    young: HashMap<Name, State>,
    old: HashMap<Name, State>,
    leaving: Vec<State>,
}

/// States to drop after the lock is released, because this unmaps pages.
type Dropped = Vec<State>;

static RECORDS: LockKind = LockKind::new("disk: shared records");

pub(super) struct ZeroCopy {
    records: Lock<Records>,
    watches: Arc<AtomicU32>,
    /// Reports whether another program opens the segments; or why zero-copy is unavailable.
    available: Result<OpenWatch, String>,
}

impl ZeroCopy {
    /// Zero-copy as the options say, if the system supports it. The segments file must be open
    /// already.
    pub(super) async fn new(options: &Options) -> ZeroCopy {
        ZeroCopy {
            records: Lock::new(&RECORDS, Records::default()),
            watches: Arc::default(),
            available: begin(options).await,
        }
    }

    pub(super) fn refused(&self) -> Option<&str> {
        match &self.available {
            Ok(watch) if watch.was_opened() => Some(OPENED),
            Ok(_) => None,
            Err(why) => Some(why),
        }
    }

    /// Whether zero-copy has ended. If so, drops all records.
    pub(super) async fn has_ended(&self) -> bool {
        if self.refused().is_none() {
            return false;
        }
        let records = std::mem::take(&mut *self.lock());
        fs::unblock(move || drop(records)).await;
        true
    }

    fn lock(&self) -> Guard<'_, Records> {
        self.records.lock().expect("no panic while the shared records are locked")
    }
}

/// Holds until the store is opened again.
const OPENED: &str = "another program has opened its file `segments` and could write there; leave \
                      it out of backups and scans, and restart";

async fn begin(options: &Options) -> Result<OpenWatch, String> {
    if options.verify == Verify::Always {
        return Err("each block is verified each time it is sent".to_owned());
    }
    if !options.geometry.can_detach() {
        return Err("the store is too small: its segments are shorter than 2 MiB".to_owned());
    }
    fs::check_page_sharing(&options.path).await?;
    mark(&options.path).await?;
    let watch = OpenWatch::new(options.path.join(FILE_NAME)).await;
    watch.map_err(|error| format!("opens by other programs cannot be watched (inotify): {error}"))
}

/// Name of the file that marks a store whose pages were sent zero-copy. It need not be durable:
/// after a power cut no pages are in flight.
const MARK: &str = "lent";

async fn mark(directory: &Path) -> Result<(), String> {
    let marked = File::open_with(directory.join(MARK), OpenOptions::CREATE).await;
    marked.map(drop).map_err(|error| format!("{MARK} cannot be made there: {error}"))
}

/// Whether pages sent by an earlier process may still be in flight.
pub(super) async fn was_used(options: &Options) -> bool {
    options.geometry.can_detach() && File::open(options.path.join(MARK)).await.is_ok()
}

impl Records {
    fn get(&mut self, name: Name) -> (Option<State>, Dropped) {
        if let Some(state) = self.young.get(&name) {
            return (Some(state.clone()), Dropped::new());
        }
        debug_assert!(self.young.len() <= SHARED_RECORDS_MAX / 3, "a generation is bounded");
        let Some(state) = self.old.remove(&name) else { return (None, Dropped::new()) };
        let dropped = self.insert(name, state.clone());
        (Some(state), dropped)
    }

    fn insert(&mut self, name: Name, state: State) -> Dropped {
        if self.young.len() >= SHARED_RECORDS_MAX / 3 {
            let old = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            self.leaving.extend(old.into_values());
        }
        let mut dropped =
            self.leaving.split_off(self.leaving.len().saturating_sub(LEAVING_AT_ONCE));
        dropped.extend(self.young.insert(name, state));
        assert!(dropped.len() <= LEAVING_AT_ONCE + 1, "a few are dropped at a time");
        let records = self.young.len() + self.old.len() + self.leaving.len();
        assert!(records <= SHARED_RECORDS_MAX, "the records with mappings are bounded");
        dropped
    }

    fn remove(&mut self, name: Name) -> Dropped {
        self.young.remove(&name).into_iter().chain(self.old.remove(&name)).collect()
    }
}

impl Inner {
    /// Watches a record that is about to be read from block `from` to its end, if it is long enough
    /// and was read before. Keeps `beginning` for look-ups, unless it is long.
    pub(super) async fn watch(&self, found: &Found, from: u32, beginning: &[u8]) -> Option<Watch> {
        if found.unwritten.is_some() || found.len < SHARED_BYTES_MIN {
            return None;
        }
        let name = name(found);
        let (state, dropped) = {
            let mut records = self.zero_copy.lock();
            match records.get(name) {
                (None, _) => (None, records.insert(name, State::ReadOnce)),
                found => found,
            }
        };
        drop(dropped);
        // A verified record gets here only if no pipe was free.
        let Some(State::ReadOnce) = state else { return None };
        let permit = Permit::take(&self.zero_copy.watches)?;
        let position = self.segments.position(found.place);
        let pages = self.files.segments.stable_pages(position, found.len as usize).await.ok()?;
        let blocks = found.len.div_ceil(self.blocks.block_bytes);
        assert!(from < blocks, "a watch begins within its record");
        let is_short = beginning.len() <= HEADER_BYTES + KNOWN_META_BYTES_MAX;
        let beginning = if is_short { beginning.to_vec() } else { Vec::new() };
        Some(Watch { name, pages, from, next: from, blocks, beginning, _permit: permit })
    }

    /// The verified pages of a record, if it has any.
    fn shared(&self, found: &Found) -> Option<Arc<Verified>> {
        if found.unwritten.is_some() || found.len < SHARED_BYTES_MIN {
            return None;
        }
        let (state, dropped) = self.zero_copy.lock().get(name(found));
        drop(dropped);
        let Some(State::Verified(verified)) = state else { return None };
        Some(verified)
    }

    /// The header and metadata of a verified record, if its key is `key`: a look-up need not read
    /// them.
    pub(super) fn verified_header(
        &self,
        found: &Found,
        key: u128,
    ) -> Option<(Header, Arc<Verified>)> {
        let verified = self.shared(found)?;
        let header = Header::decode(&verified.beginning)?;
        (header.key == key).then_some((header, verified))
    }

    /// References to the pages of the next blocks of a record, from `payload.start` up to at most
    /// `payload.end`.
    pub(super) async fn share(&self, found: &Found, payload: Range<u64>) -> Option<SharedPages> {
        let verified = self.shared(found)?;
        let (parts, count) = parts(self.blocks, verified.from.load(Ordering::Acquire), payload)?;
        match verified.pages.share(&parts[..count]).await {
            Ok(pages) => {
                let mut bytes = 0;
                let whole = parts[..count].iter().take_while(|part| {
                    bytes += part.len();
                    bytes <= pages.left()
                });
                add(&self.counters.zero_copy_blocks, whole.count() as u64);
                Some(pages)
            }
            Err(NotShared::NoPipe) => None,
            Err(NotShared::Gone) => {
                let dropped = self.zero_copy.lock().remove(name(found));
                drop(dropped);
                add(&self.counters.zero_copy_evicted, 1);
                None
            }
        }
    }

    /// Notes that a block of a watched record was verified. Returns the watch unless it was the
    /// last block.
    pub(super) fn note_verified(&self, watch: Watch, found: &Found, block: u32) -> Option<Watch> {
        if watch.name != name(found) || watch.next != block {
            return None;
        }
        assert!(watch.from <= block && block < watch.blocks, "blocks are verified in order");
        let watch = Watch { next: block + 1, ..watch };
        if watch.next < watch.blocks {
            return Some(watch);
        }
        let Watch { name, pages, from, beginning, .. } = watch;
        debug_assert!(found.unwritten.is_none(), "pages are of a written record");
        // This comes first: either the next life of the segment sees the mark, or we see that life.
        if self.segments.mark_shared(name.0, name.2) {
            let verified = Verified { pages, from: AtomicU32::new(from), beginning };
            let state = State::Verified(Arc::new(verified));
            let dropped = self.zero_copy.lock().insert(name, state);
            drop(dropped);
            add(&self.counters.zero_copy_records, 1);
        }
        None
    }
}

/// The byte ranges in a record that hold this part of its payload, one per block: the first
/// [`PARTS_MAX`] of them, and how many there are.
fn parts(
    blocks: Blocks,
    from: u32,
    payload: Range<u64>,
) -> Option<([Range<usize>; PARTS_MAX], usize)> {
    let payload_bytes = blocks.payload_bytes();
    let (mut parts, mut count) = ([const { 0..0 }; PARTS_MAX], 0);
    let mut at = payload.start;
    while at < payload.end && count < PARTS_MAX {
        let (block, within) = (at / payload_bytes, at % payload_bytes);
        if block < u64::from(from) {
            return None;
        }
        let len = (payload_bytes - within).min(payload.end - at);
        assert!(len > 0, "each part makes progress");
        let start = usize::try_from(block * u64::from(blocks.block_bytes) + within).ok()?;
        parts[count] = start..start + len as usize;
        debug_assert!(count == 0 || parts[count - 1].end + SUM_BYTES == start, "a sum is skipped");
        count += 1;
        at += len;
    }
    (count > 0).then_some((parts, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_payload_exclude_the_checksums() {
        let blocks = Blocks { block_bytes: 1000 }; // 992 of the payload, 8 of the sum
        let parts = |from, payload| {
            parts(blocks, from, payload).map(|(parts, count)| parts[..count].to_vec())
        };
        let one = |part| Some(Vec::from([part; 1]));
        assert_eq!(parts(0, 64..500), one(64..500));
        assert_eq!(parts(0, 64..992), one(64..992));
        assert_eq!(parts(0, 991..1985), Some(vec![991..992, 1000..1992, 2000..2001]));
        assert_eq!(parts(1, 992..993), one(1000..1001));
        assert_eq!(parts(1, 991..2000), None, "the first block was not verified");
        assert_eq!(parts(0, 5..5), None);
        let many = parts(0, 0..1_000_000).unwrap();
        assert_eq!((many.len(), many[PARTS_MAX - 1].end), (PARTS_MAX, PARTS_MAX * 1000 - 8));
    }

    #[test]
    fn records_that_are_read_again_stay() {
        let mut records = Records::default();
        let hot = (1, 2, 3);
        let mut dropped = records.insert(hot, State::ReadOnce).len();
        for offset in 0..3 * SHARED_RECORDS_MAX as u32 {
            dropped += records.insert((7, offset, 7), State::ReadOnce).len();
            assert!(offset % 1000 > 0 || records.get(hot).0.is_some());
            let here = records.young.len() + records.old.len() + records.leaving.len();
            assert!(here <= SHARED_RECORDS_MAX);
        }
        assert!(dropped > SHARED_RECORDS_MAX, "they are dropped gradually: {dropped}");
        assert!(records.get((7, 0, 7)).0.is_none(), "it was not read again");
        assert!(records.get(hot).0.is_some());
        assert_eq!(records.remove(hot).len(), 1);
        assert!(records.get(hot).0.is_none());
    }
}
