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
//! Who owns: the store has what is verified, at most [`RECORDS_MAX`]; the reader that verifies it
//! has it until then.
//! What never happens: a byte is lent that was not verified since it came from the disk; one that
//! is lent is written over: a segment of which pages were lent is detached before anything of its
//! next life is written ([`super::segments::Segments::lends`]).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use runtime::fs::{self, LentPages, NotLent, PARTS_MAX, StablePages};
use runtime::sync::{Guard, Lock, LockKind};

use super::counters::add;
use super::index::Found;
use super::limits::{LENT_BYTES_MIN, LENT_RECORDS_MAX};
use super::record::Blocks;
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
struct Verified {
    pages: StablePages,
    from: u32,
}

/// A record whose blocks are being verified while its pages are watched.
#[derive(Debug)]
pub(super) struct Watch {
    name: Name,
    pages: StablePages,
    from: u32,
    next: u32,
    blocks: u32,
}

/// Those that were asked for since the last change of generations, and those before.
#[derive(Default)]
struct Records {
    young: HashMap<Name, State>,
    old: HashMap<Name, State>,
}

static RECORDS: LockKind = LockKind::new("disk: lent records");

pub(super) struct Lending {
    records: Lock<Records>,
    /// Why nothing is lent.
    refused: Option<String>,
}

impl Lending {
    /// As the options say, where the system can do it.
    pub(super) async fn new(options: &Options) -> Lending {
        let possible = match options.verify {
            Verify::Always => Err("each block is verified each time that it is sent".to_owned()),
            Verify::Once if !options.geometry.can_detach() => {
                Err("the store is too small: its segments are shorter than 2 MiB".to_owned())
            }
            Verify::Once => fs::try_lending(&options.path).await,
        };
        Lending { records: Lock::new(&RECORDS, Records::default()), refused: possible.err() }
    }

    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    fn lock(&self) -> Guard<'_, Records> {
        self.records.lock().expect("nobody panics while holding the lent records")
    }
}

impl Records {
    fn get(&mut self, name: Name) -> Option<State> {
        if let Some(state) = self.young.get(&name) {
            return Some(state.clone());
        }
        let state = self.old.remove(&name)?;
        self.insert(name, state.clone());
        Some(state)
    }

    fn insert(&mut self, name: Name, state: State) {
        if self.young.len() >= LENT_RECORDS_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, state);
    }

    fn remove(&mut self, name: Name) {
        self.young.remove(&name);
        self.old.remove(&name);
    }
}

impl Inner {
    /// Of a record that is about to be read from block `from` to its end: watches it, if it is
    /// worth that.
    pub(super) async fn watch(&self, found: &Found, from: u32) -> Option<Watch> {
        if self.lending.refused.is_some() || found.unwritten.is_some() || found.len < LENT_BYTES_MIN
        {
            return None;
        }
        let name = name(found);
        {
            let mut records = self.lending.lock();
            match records.get(name) {
                Some(State::ReadOnce) => {}
                Some(State::Verified(_)) => return None, // there was no pipe
                None => {
                    records.insert(name, State::ReadOnce);
                    return None;
                }
            }
        }
        let position = self.segments.position(found.place);
        let pages = self.files.segments.stable_pages(position, found.len as usize).await.ok()?;
        let blocks = found.len.div_ceil(self.blocks.block_bytes);
        Some(Watch { name, pages, from, next: from, blocks })
    }

    /// The next blocks of a record, from `payload.start` up to `payload.end` at most, by reference.
    pub(super) async fn lend(&self, found: &Found, payload: Range<u64>) -> Option<LentPages> {
        if self.lending.refused.is_some() || found.unwritten.is_some() {
            return None;
        }
        let name = name(found);
        let state = self.lending.lock().get(name)?;
        let State::Verified(verified) = state else { return None };
        let (parts, count) = parts(self.blocks, verified.from, payload)?;
        match verified.pages.lend(&parts[..count]).await {
            Ok(lent) => {
                let mut bytes = 0;
                let whole = parts[..count].iter().take_while(|part| {
                    bytes += part.len();
                    bytes <= lent.left()
                });
                add(&self.counters.blocks_lent, whole.count() as u64);
                Some(lent)
            }
            Err(NotLent::NoPipe) => None,
            Err(NotLent::Gone) => {
                self.lending.lock().remove(name);
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
        let Watch { name, pages, from, .. } = watch;
        // First: who opens the segment anew sees it, or we see that it was opened.
        if self.segments.lends(name.0, name.2) {
            let state = State::Verified(Arc::new(Verified { pages, from }));
            self.lending.lock().insert(name, state);
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
        assert_eq!(parts(0, 64..500), Some(vec![64..500]));
        assert_eq!(parts(0, 64..992), Some(vec![64..992]));
        assert_eq!(parts(0, 991..1985), Some(vec![991..992, 1000..1992, 2000..2001]));
        assert_eq!(parts(1, 992..993), Some(vec![1000..1001]));
        assert_eq!(parts(1, 991..2000), None, "the first block was not verified here");
        assert_eq!(parts(0, 5..5), None);
        let many = parts(0, 0..1_000_000).unwrap();
        assert_eq!((many.len(), many[PARTS_MAX - 1].end), (PARTS_MAX, PARTS_MAX * 1000 - 8));
    }

    #[test]
    fn of_many_records_those_that_are_asked_for_stay() {
        let mut records = Records::default();
        let hot = (1, 2, 3);
        records.insert(hot, State::ReadOnce);
        for offset in 0..3 * LENT_RECORDS_MAX as u32 {
            records.insert((7, offset, 7), State::ReadOnce);
            assert!(offset % 1000 > 0 || records.get(hot).is_some());
            assert!(records.young.len() + records.old.len() <= LENT_RECORDS_MAX);
        }
        assert!(records.get((7, 0, 7)).is_none(), "nobody asked for it again");
        assert!(records.get(hot).is_some());
        records.remove(hot);
        assert!(records.get(hot).is_none());
    }
}
