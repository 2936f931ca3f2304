//! Blocks that are sent as they stand in the page cache, without being copied.
//!
//! What: with [`Verify::Once`] a record that is read a second time is watched
//! ([`StablePages`]) before its blocks are verified, as they are sent. From then on its pages are
//! lent to whoever asks, until one of them leaves the page cache.
//!
//! ```text
//! ──read──▶ read once ──read──▶ watched ──all blocks verified──▶ verified: lent ──┐
//!    ▲                                                                            │
//!    └────────────────── a page has left, or others are asked for more ───────────┘
//! ```
//!
//! What a look-up finds of such a record is kept too, and its first block, which a look-up has read
//! before, is lent when it was verified once more: then nothing of it is read any more.
//!
//! Who owns: the store has what is verified, at most [`RECORDS_MAX`]; the reader that verifies it
//! has it until then.
//! What never happens: a byte is lent that was not verified since it came from the disk; one that
//! is lent is written over: a segment of which pages were lent is detached before anything of its
//! next life is written ([`super::segments::Segments::lends`]). Nothing is lent once another
//! program has opened the file: it could write there, and nobody would know ([`OpenWatch`]).

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
    KNOWN_META_BYTES_MAX, LEAVING_AT_ONCE, LENT_BYTES_MIN, LENT_RECORDS_MAX, WATCHES_MAX,
};
use super::record::{Blocks, HEADER_BYTES, Header};
use super::recover::SEGMENTS;
use super::{Inner, Options, Verify};

/// A record: where it stands, in which life of its segment.
type Name = (u16, u32, u64);

fn name(found: &Found) -> Name {
    (found.place.segment, found.place.offset, found.life)
}

/// What is known of a record that was read.
#[derive(Clone, Debug)]
enum State {
    ReadOnce,
    Verified(Arc<Verified>),
}

/// Pages of a record of which the blocks were verified, from one on.
#[derive(Debug)]
pub(super) struct Verified {
    pages: StablePages,
    from: AtomicU32,
    beginning: Vec<u8>,
}

impl Verified {
    /// The first block was verified as well, while its page was watched.
    pub(super) fn first_too(&self) {
        self.from.store(0, Ordering::Release);
    }

    /// Of the payload of a whole object, up to the body; else nothing.
    pub(super) fn beginning(&self) -> &[u8] {
        &self.beginning
    }
}

/// One of those that may be watched at the same time.
#[derive(Debug)]
struct Turn(Arc<AtomicU32>);

impl Turn {
    fn take(count: &Arc<AtomicU32>) -> Option<Turn> {
        let turn = Turn(Arc::clone(count));
        (count.fetch_add(1, Ordering::Relaxed) < WATCHES_MAX).then_some(turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
    _turn: Turn,
}

/// Those that were asked for since the last change of generations, those before, and those that
/// nobody has asked for: they leave a few at a time.
#[derive(Default)]
struct Records {
    young: HashMap<Name, State>,
    old: HashMap<Name, State>,
    leaving: Vec<State>,
}

/// To be dropped when nothing is locked: mappings end with it.
type Left = Vec<State>;

static RECORDS: LockKind = LockKind::new("disk: lent records");

pub(super) struct Lending {
    records: Lock<Records>,
    watches: Arc<AtomicU32>,
    /// Who else opens the segments, or why nothing is lent.
    possible: Result<OpenWatch, String>,
}

impl Lending {
    /// As the options say, where the system can do it. The segments' file is open by now.
    pub(super) async fn new(options: &Options) -> Lending {
        Lending {
            records: Lock::new(&RECORDS, Records::default()),
            watches: Arc::default(),
            possible: begin(options).await,
        }
    }

    pub(super) fn refused(&self) -> Option<&str> {
        match &self.possible {
            Ok(watch) if watch.was_opened() => Some(OPENED),
            Ok(_) => None,
            Err(why) => Some(why),
        }
    }

    /// Whether nothing is lent any more. What was known is forgotten then.
    pub(super) async fn is_over(&self) -> bool {
        if self.refused().is_none() {
            return false;
        }
        let known = std::mem::take(&mut *self.lock());
        fs::unblock(move || drop(known)).await;
        true
    }

    fn lock(&self) -> Guard<'_, Records> {
        self.records.lock().expect("nobody panics while holding the lent records")
    }
}

/// Until the store is opened anew.
const OPENED: &str = "another program has opened its file `segments` and could write there; leave \
                      it out of backups and scans, and restart";

async fn begin(options: &Options) -> Result<OpenWatch, String> {
    if options.verify == Verify::Always {
        return Err("each block is verified each time that it is sent".to_owned());
    }
    if !options.geometry.can_detach() {
        return Err("the store is too small: its segments are shorter than 2 MiB".to_owned());
    }
    fs::check_page_sharing(&options.path).await?;
    mark(&options.path).await?;
    let watch = OpenWatch::new(options.path.join(SEGMENTS)).await;
    watch.map_err(|error| format!("who else opens it cannot be watched (inotify): {error}"))
}

/// The file that says that pages of a store are lent, or have been. It need not be durable: what a
/// power cut takes has no pages under way.
const MARK: &str = "lent";

async fn mark(directory: &Path) -> Result<(), String> {
    let marked = File::open_with(directory.join(MARK), OpenOptions::CREATE).await;
    marked.map(drop).map_err(|error| format!("{MARK} cannot be made there: {error}"))
}

/// Whether a process before this one may have lent pages that are under way still.
pub(super) async fn was_lending(options: &Options) -> bool {
    options.geometry.can_detach() && File::open(options.path.join(MARK)).await.is_ok()
}

impl Records {
    fn get(&mut self, name: Name) -> (Option<State>, Left) {
        if let Some(state) = self.young.get(&name) {
            return (Some(state.clone()), Left::new());
        }
        let Some(state) = self.old.remove(&name) else { return (None, Left::new()) };
        let left = self.insert(name, state.clone());
        (Some(state), left)
    }

    fn insert(&mut self, name: Name, state: State) -> Left {
        if self.young.len() >= LENT_RECORDS_MAX / 3 {
            let old = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            self.leaving.extend(old.into_values());
        }
        let mut left = self.leaving.split_off(self.leaving.len().saturating_sub(LEAVING_AT_ONCE));
        left.extend(self.young.insert(name, state));
        left
    }

    fn remove(&mut self, name: Name) -> Left {
        self.young.remove(&name).into_iter().chain(self.old.remove(&name)).collect()
    }
}

impl Inner {
    /// Of a record that is about to be read from block `from` to its end: watches it, if it is
    /// worth that. `beginning` is kept for look-ups, unless it is long.
    pub(super) async fn watch(&self, found: &Found, from: u32, beginning: &[u8]) -> Option<Watch> {
        if found.unwritten.is_some() || found.len < LENT_BYTES_MIN {
            return None;
        }
        let name = name(found);
        let (state, left) = {
            let mut records = self.lending.lock();
            match records.get(name) {
                (None, _) => (None, records.insert(name, State::ReadOnce)),
                known => known,
            }
        };
        drop(left);
        // One that is verified came here because there was no pipe.
        let Some(State::ReadOnce) = state else { return None };
        let turn = Turn::take(&self.lending.watches)?;
        let position = self.segments.position(found.place);
        let pages = self.files.segments.stable_pages(position, found.len as usize).await.ok()?;
        let blocks = found.len.div_ceil(self.blocks.block_bytes);
        let is_short = beginning.len() <= HEADER_BYTES + KNOWN_META_BYTES_MAX;
        let beginning = if is_short { beginning.to_vec() } else { Vec::new() };
        Some(Watch { name, pages, from, next: from, blocks, beginning, _turn: turn })
    }

    /// Of a record whose blocks were verified, if it is one.
    fn lendable(&self, found: &Found) -> Option<Arc<Verified>> {
        if found.unwritten.is_some() || found.len < LENT_BYTES_MIN {
            return None;
        }
        let (state, left) = self.lending.lock().get(name(found));
        drop(left);
        let Some(State::Verified(verified)) = state else { return None };
        Some(verified)
    }

    /// What a look-up of this record under this key need not read again.
    pub(super) fn known(&self, found: &Found, key: u128) -> Option<(Header, Arc<Verified>)> {
        let verified = self.lendable(found)?;
        let header = Header::decode(&verified.beginning)?;
        (header.key == key).then_some((header, verified))
    }

    /// The next blocks of a record, from `payload.start` up to `payload.end` at most, by reference.
    pub(super) async fn lend(&self, found: &Found, payload: Range<u64>) -> Option<SharedPages> {
        let verified = self.lendable(found)?;
        let (parts, count) = parts(self.blocks, verified.from.load(Ordering::Acquire), payload)?;
        match verified.pages.share(&parts[..count]).await {
            Ok(lent) => {
                let mut bytes = 0;
                let whole = parts[..count].iter().take_while(|part| {
                    bytes += part.len();
                    bytes <= lent.left()
                });
                add(&self.counters.blocks_lent, whole.count() as u64);
                Some(lent)
            }
            Err(NotShared::NoPipe) => None,
            Err(NotShared::Gone) => {
                let left = self.lending.lock().remove(name(found));
                drop(left);
                add(&self.counters.lent_gone, 1);
                None
            }
        }
    }

    /// A block of a record was verified. Gives the watch back until it was the last one.
    pub(super) fn verified(&self, watch: Watch, found: &Found, block: u32) -> Option<Watch> {
        if watch.name != name(found) || watch.next != block {
            return None;
        }
        let watch = Watch { next: block + 1, ..watch };
        if watch.next < watch.blocks {
            return Some(watch);
        }
        let Watch { name, pages, from, beginning, .. } = watch;
        // First: who opens the segment anew sees it, or we see that it was opened.
        if self.segments.lends(name.0, name.2) {
            let verified = Verified { pages, from: AtomicU32::new(from), beginning };
            let state = State::Verified(Arc::new(verified));
            let left = self.lending.lock().insert(name, state);
            drop(left);
            add(&self.counters.lent_records, 1);
        }
        None
    }
}

/// Where in a record the bytes of its payload stand, block by block; the first of them, and how
/// many.
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
        let start = usize::try_from(block * u64::from(blocks.block_bytes) + within).ok()?;
        parts[count] = start..start + len as usize;
        count += 1;
        at += len;
    }
    (count > 0).then_some((parts, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_payload_leave_the_sums_out() {
        let blocks = Blocks { block_bytes: 1000 }; // 992 of the payload, 8 of the sum
        let parts = |from, payload| {
            parts(blocks, from, payload).map(|(parts, count)| parts[..count].to_vec())
        };
        let one = |part| Some(Vec::from([part; 1]));
        assert_eq!(parts(0, 64..500), one(64..500));
        assert_eq!(parts(0, 64..992), one(64..992));
        assert_eq!(parts(0, 991..1985), Some(vec![991..992, 1000..1992, 2000..2001]));
        assert_eq!(parts(1, 992..993), one(1000..1001));
        assert_eq!(parts(1, 991..2000), None, "the first block was not verified here");
        assert_eq!(parts(0, 5..5), None);
        let many = parts(0, 0..1_000_000).unwrap();
        assert_eq!((many.len(), many[PARTS_MAX - 1].end), (PARTS_MAX, PARTS_MAX * 1000 - 8));
    }

    #[test]
    fn of_many_records_those_that_are_asked_for_stay() {
        let mut records = Records::default();
        let hot = (1, 2, 3);
        let mut left = records.insert(hot, State::ReadOnce).len();
        for offset in 0..3 * LENT_RECORDS_MAX as u32 {
            left += records.insert((7, offset, 7), State::ReadOnce).len();
            assert!(offset % 1000 > 0 || records.get(hot).0.is_some());
            let here = records.young.len() + records.old.len() + records.leaving.len();
            assert!(here <= LENT_RECORDS_MAX);
        }
        assert!(left > LENT_RECORDS_MAX, "they leave by and by: {left}");
        assert!(records.get((7, 0, 7)).0.is_none(), "nobody asked for it again");
        assert!(records.get(hot).0.is_some());
        assert_eq!(records.remove(hot).len(), 1);
        assert!(records.get(hot).0.is_none());
    }
}
