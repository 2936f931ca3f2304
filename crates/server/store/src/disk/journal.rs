//! The journal: every change of the index, in order.
//!
//! ```text
//! batch:    magic 4 | length 4 | nonce 8 | number 4 | 0 4 | sum 8 | changes
//! journal:  batch 0 (begins with Begin) | batch 1 | ... | batch n (Close, when another follows)
//! ```
//!
//! The sum of a batch is seeded with the sum of the batch before it, so a batch is valid only after
//! the batches it was written after. The remains of a torn write, or of an older use of the file,
//! are never taken for the next batch. A journal has two copies, in two areas of its file; a batch
//! that is good in either is good.
//!
//! [`Journal`] is the queue of changes to be written. The *position* of a change is the count of
//! bytes appended up to it. To wait until a change is durable, wait for its position
//! ([`Journal::durable`]): one sync answers all waiters. What never happens: a position is reported
//! durable before a sync that began after its write has succeeded.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use runtime::sync::{Guard, Lock, LockKind};

use super::bytes::{Put, Take};
use super::checksum::Sums;
use super::signal::Signal;
use crate::purges::{Mark, Recorded};

const MAGIC: u32 = 0x504c_4a31;
pub(super) const BATCH_HEADER_BYTES: usize = 32;

/// The log that a segment belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Log {
    /// New objects.
    Small = 0,
    /// Objects that were requested again.
    Main = 1,
}

impl Log {
    pub(super) fn decode(number: u8) -> Option<Log> {
        [Log::Small, Log::Main].get(usize::from(number)).copied()
    }
}

/// One change of the index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change<'b> {
    /// A record was written.
    Put { print: u64, segment: u16, flags: u16, offset: u32, len: u32 },
    /// The object of a key is gone.
    Delete { print: u64 },
    /// A segment starts a life, empty.
    Open { segment: u16, life: u64, log: Log },
    /// A segment's life has ended: nothing in it can be found.
    Free { segment: u16 },
    /// A purge.
    Purge { what: Recorded<'b>, soft: bool, mark: Mark },
    /// The first change of a journal: its generation, and the last sum of the journal before it.
    Begin { generation: u64, previous: u64 },
    /// The last change of a journal; another journal follows.
    Close,
    /// How often the store was opened.
    Epoch { epoch: u32 },
}

impl Change<'_> {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Change::Put { print, segment, flags, offset, len } => {
                out.put_u8(1);
                out.put_u64(print);
                out.put_u16(segment);
                out.put_u16(flags);
                out.put_u32(offset);
                out.put_u32(len);
            }
            Change::Delete { print } => {
                out.put_u8(2);
                out.put_u64(print);
            }
            Change::Open { segment, life, log } => {
                out.put_u8(3);
                out.put_u16(segment);
                out.put_u64(life);
                out.put_u8(log as u8);
            }
            Change::Free { segment } => {
                out.put_u8(4);
                out.put_u16(segment);
            }
            Change::Purge { what, soft, mark } => {
                out.put_u8(5);
                out.put_u8(u8::from(soft));
                out.put_u64(mark.generation);
                out.put_u64(mark.at_ms);
                what.encode(out);
            }
            Change::Begin { generation, previous } => {
                out.put_u8(6);
                out.put_u64(generation);
                out.put_u64(previous);
            }
            Change::Close => out.put_u8(7),
            Change::Epoch { epoch } => {
                out.put_u8(8);
                out.put_u32(epoch);
            }
        }
    }

    pub(super) fn decode<'b>(take: &mut Take<'b>) -> Option<Change<'b>> {
        Some(match take.u8()? {
            1 => Change::Put {
                print: take.u64()?,
                segment: take.u16()?,
                flags: take.u16()?,
                offset: take.u32()?,
                len: take.u32()?,
            },
            2 => Change::Delete { print: take.u64()? },
            3 => Change::Open {
                segment: take.u16()?,
                life: take.u64()?,
                log: Log::decode(take.u8()?)?,
            },
            4 => Change::Free { segment: take.u16()? },
            5 => {
                let soft = take.u8()? != 0;
                let mark = Mark { generation: take.u64()?, at_ms: take.u64()? };
                Change::Purge { what: Recorded::decode(take)?, soft, mark }
            }
            6 => Change::Begin { generation: take.u64()?, previous: take.u64()? },
            7 => Change::Close,
            8 => Change::Epoch { epoch: take.u32()? },
            _ => return None,
        })
    }
}

/// An entry of the index, as it is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SavedEntry {
    pub(super) print: u64,
    pub(super) segment: u16,
    pub(super) flags: u16,
    pub(super) offset: u32,
    pub(super) len: u32,
    /// The life of its segment when it was saved: the entry is valid only in that life.
    pub(super) life: u64,
}

impl SavedEntry {
    pub(super) const BYTES: usize = 28;

    pub(super) fn encode(&self) -> [u8; SavedEntry::BYTES] {
        let mut out = [0; SavedEntry::BYTES];
        out[..8].copy_from_slice(&self.print.to_le_bytes());
        out[8..10].copy_from_slice(&self.segment.to_le_bytes());
        out[10..12].copy_from_slice(&self.flags.to_le_bytes());
        out[12..16].copy_from_slice(&self.offset.to_le_bytes());
        out[16..20].copy_from_slice(&self.len.to_le_bytes());
        out[20..].copy_from_slice(&self.life.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<SavedEntry> {
        let mut take = Take(bytes);
        Some(SavedEntry {
            print: take.u64()?,
            segment: take.u16()?,
            flags: take.u16()?,
            offset: take.u32()?,
            len: take.u32()?,
            life: take.u64()?,
        })
    }
}

/// The end of a journal, where the next batch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// Identifies this journal.
    pub(super) nonce: u64,
    /// Of the next batch.
    pub(super) number: u32,
    /// Of the last batch; the nonce before the first.
    pub(super) sum: u64,
    /// Offset of the next batch in its area.
    pub(super) offset: u32,
}

impl Tail {
    pub(super) fn new(nonce: u64) -> Tail {
        Tail { nonce, number: 0, sum: nonce, offset: 0 }
    }

    /// The next batch, and the end after it.
    pub(super) fn batch(self, sums: &Sums, changes: &[u8]) -> (Vec<u8>, Tail) {
        let mut out = Vec::with_capacity(BATCH_HEADER_BYTES + changes.len());
        out.put_u32(MAGIC);
        out.put_u32(u32::try_from(changes.len()).expect("a journal is smaller than that"));
        out.put_u64(self.nonce);
        out.put_u32(self.number);
        out.put_u32(0);
        let sum = sums.chained(sums.chained(self.sum, &out), changes);
        out.put_u64(sum);
        out.put(changes);
        assert!(out.len() == BATCH_HEADER_BYTES + changes.len(), "a start reads it by its length");
        let offset = self.offset + out.len() as u32;
        assert!(offset > self.offset, "a journal is smaller than that");
        (out, Tail { number: self.number + 1, sum, offset, ..self })
    }

    /// The changes of the next batch, if `bytes` begins with it.
    pub(super) fn read<'b>(self, sums: &Sums, bytes: &'b [u8]) -> Option<(&'b [u8], Tail)> {
        let mut take = Take(bytes);
        let header = take.bytes(BATCH_HEADER_BYTES)?;
        let mut fields = Take(header);
        let (magic, len) = (fields.u32()?, fields.u32()?);
        let (nonce, number, _) = (fields.u64()?, fields.u32()?, fields.u32()?);
        let sum = fields.u64()?;
        let changes = take.bytes(usize::try_from(len).ok()?)?;
        let checked = sums.chained(sums.chained(self.sum, &header[..24]), changes);
        let matches = magic == MAGIC && nonce == self.nonce && number == self.number;
        if !matches || (sum != checked && !planted::is(planted::Bug::DiskTornJournal)) {
            return None;
        }
        let offset = self.offset + (BATCH_HEADER_BYTES as u32 + len);
        Some((changes, Tail { number: number + 1, sum, offset, ..self }))
    }

    /// The nonce of the journal, if `bytes` seems to begin with its first batch.
    pub(super) fn nonce_in(bytes: &[u8]) -> Option<u64> {
        let mut take = Take(bytes);
        let magic = take.u32()?;
        take.u32()?;
        let nonce = take.u64()?;
        (magic == MAGIC && take.u32()? == 0).then_some(nonce)
    }
}

/// A change could not be made durable because the disk fails. The index in memory still has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotDurable;

impl std::fmt::Display for NotDurable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the disk store cannot write its journal: the change may not survive a crash")
    }
}

impl std::error::Error for NotDurable {}

#[derive(Default)]
struct State {
    changes: Vec<u8>,
    /// Bytes appended so far, and how many of them are durable.
    appended: u64,
    durable: u64,
    /// Waiters give up when this rises.
    failures: u64,
    /// Nothing can be made durable for now.
    off: bool,
    /// The highest position that a caller waits for.
    asked: u64,
    waiters: Vec<Waker>,
}

impl State {
    /// What holds whenever the lock is free.
    fn check(&self) {
        assert!(self.durable <= self.appended, "only what was appended is durable");
        assert!(self.asked <= self.appended, "no change is awaited before it is appended");
        assert!(self.changes.len() as u64 <= self.appended, "what is pending was appended");
    }
}

static STATE: LockKind = LockKind::new("disk: journal");

/// The pending changes, and the tasks that wait for them.
pub(super) struct Journal {
    state: Lock<State>,
    /// Raised when a task waits.
    pub(super) signal: Signal,
}

impl Default for Journal {
    fn default() -> Journal {
        Journal { state: Lock::new(&STATE, State::default()), signal: Signal::default() }
    }
}

impl Journal {
    /// Appends a change. Returns its position.
    pub(super) fn append(&self, change: &Change<'_>) -> u64 {
        let mut state = self.lock();
        let before = state.changes.len();
        change.encode(&mut state.changes);
        assert!(state.changes.len() > before, "each change has a position for itself");
        state.appended += (state.changes.len() - before) as u64;
        state.check();
        state.appended
    }

    /// The position of the last change.
    pub(super) fn position(&self) -> u64 {
        self.lock().appended
    }

    /// Takes all pending changes, with the position of the last.
    pub(super) fn take(&self) -> (Vec<u8>, u64) {
        let mut state = self.lock();
        state.check();
        (std::mem::take(&mut state.changes), state.appended)
    }

    /// Whether a task waits for a position that is not durable.
    pub(super) fn is_asked(&self) -> bool {
        let state = self.lock();
        state.asked > state.durable
    }

    /// Notes that everything up to `position` is durable.
    pub(super) fn note_durable(&self, position: u64) {
        let mut state = self.lock();
        assert!(position <= state.appended, "only what was appended is durable");
        state.durable = state.durable.max(position);
        state.off = false;
        state.check();
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Fails all current waiters; with `off`, later ones too.
    pub(super) fn note_failed(&self, off: bool) {
        let mut state = self.lock();
        state.failures += 1;
        state.off = off;
        state.asked = state.durable;
        state.check();
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Waits until a position is durable.
    pub(super) async fn durable(&self, position: u64) -> Result<(), NotDurable> {
        let failures = self.lock().failures;
        poll_fn(|cx| {
            let mut state = self.lock();
            assert!(position <= state.appended, "no change is awaited before it is appended");
            if state.durable >= position {
                return Poll::Ready(Ok(()));
            }
            if state.failures != failures || state.off {
                return Poll::Ready(Err(NotDurable));
            }
            state.asked = state.asked.max(position);
            state.check();
            state.waiters.push(cx.waker().clone());
            drop(state);
            self.signal.raise();
            Poll::Pending
        })
        .await
    }

    fn lock(&self) -> Guard<'_, State> {
        self.state.lock().expect("no panic while the journal is locked")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Vec<u8> {
        let mark = Mark { generation: 5, at_ms: 6 };
        let mut out = Vec::new();
        for change in [
            Change::Begin { generation: 3, previous: 4 },
            Change::Put { print: 1, segment: 2, flags: 3, offset: 4, len: 5 },
            Change::Delete { print: 9 },
            Change::Open { segment: 1, life: 2, log: Log::Main },
            Change::Free { segment: 7 },
            Change::Purge { what: Recorded::Prefix(b"http://a/"), soft: true, mark },
            Change::Purge { what: Recorded::Exact { key: 5, tag: true }, soft: false, mark },
            Change::Purge { what: Recorded::All, soft: false, mark },
            Change::Epoch { epoch: 8 },
            Change::Close,
        ] {
            let before = out.len();
            change.encode(&mut out);
            assert_eq!(Change::decode(&mut Take(&out[before..])), Some(change));
        }
        out
    }

    #[test]
    fn a_batch_is_valid_only_after_its_predecessor() {
        let sums = Sums::new(3);
        let tail = Tail::new(77);
        let (first, behind) = tail.batch(&sums, &changes());
        let (second, _) = behind.batch(&sums, b"");
        assert_eq!(Tail::nonce_in(&first), Some(77));
        assert_eq!(tail.read(&sums, &first), Some((&changes()[..], behind)));
        assert!(behind.read(&sums, &second).is_some());
        assert_eq!(tail.read(&sums, &second), None);
        let other = tail.batch(&sums, b"\x07").1;
        assert_eq!(other.number, behind.number);
        assert_eq!(other.read(&sums, &second), None, "another predecessor");
        for at in 0..first.len() {
            let mut torn = first.clone();
            torn[at] ^= 0x10;
            assert_eq!(tail.read(&sums, &torn), None, "byte {at}");
            assert_eq!(tail.read(&sums, &first[..at]), None);
        }
    }

    #[test]
    fn garbage_is_not_decoded() {
        assert_eq!(Change::decode(&mut Take(b"")), None);
        assert_eq!(Change::decode(&mut Take(&[99; 40])), None);
        let all = changes();
        let mut take = Take(&all[..all.len() - 3]);
        while Change::decode(&mut take).is_some() {}
        let entry = SavedEntry { print: 1, segment: 2, flags: 3, offset: 4, len: 5, life: 6 };
        assert_eq!(SavedEntry::decode(&entry.encode()), Some(entry));
    }
}
