//! The chunks of a body that is still being received, for readers of it.
//!
//! What: [`Chunks`] reads a chunk as soon as the writer has put it, long before the head that makes
//! the object findable. Why: many clients may read one body at their own pace while it is received,
//! and memory keeps only a little of it. Who owns: the writer and its readers share the chunks; the
//! last of them to go removes the chunks if the object was not finished. Until then the segments of
//! the chunks are held like those of any body that is being read. What never happens: a byte beyond
//! the last chunk is read; chunks are removed while a reader may need them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::counters::add;
use super::get::{Broken, Fault, Piece, TRIES_MAX};
use super::record::{HEADER_BYTES, Header, Kind};
use super::{DiskStore, print_of};

/// The chunks that a [`super::Writer`] has put. Clones share them.
#[derive(Clone, Debug)]
pub struct Chunks(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: DiskStore,
    /// The header of the object, as far as its chunks depend on it.
    header: Header,
    /// Bytes of the body in chunks that were put.
    bytes: AtomicU64,
    /// The object can be found: its chunks stay.
    is_finished: AtomicBool,
    /// The segments that are held.
    held: Mutex<Vec<u16>>,
}

impl Chunks {
    pub(super) fn new(store: &DiskStore, key: u128, object: u64) -> Chunks {
        let header = Header {
            kind: Kind::Head,
            key,
            object,
            generation: 0,
            time_ms: 0,
            body_len: 0,
            meta_len: 0,
            chunk_bytes: store.0.options.geometry.chunk_bytes,
        };
        Chunks(Arc::new(Shared {
            store: store.clone(),
            header,
            bytes: AtomicU64::new(0),
            is_finished: AtomicBool::new(false),
            held: Mutex::default(),
        }))
    }

    /// Number of chunks.
    pub(super) fn count(&self) -> u32 {
        let count = self.bytes().div_ceil(u64::from(self.0.header.chunk_bytes));
        u32::try_from(count).expect("a body has at most u32::MAX chunks")
    }

    /// Notes that the next chunk was put, with this many bytes.
    pub(super) fn note_put(&self, bytes: u64) {
        let Shared { store, header, held, .. } = &*self.0;
        let before = self.bytes();
        assert!(before.is_multiple_of(u64::from(header.chunk_bytes)), "only the last is shorter");
        assert!(0 < bytes && bytes <= u64::from(header.chunk_bytes), "no chunk is empty");
        assert!(!self.0.is_finished.load(Ordering::Acquire), "a finished object is whole");
        if let Some(found) = store.0.find_chunk(header, self.count(), false) {
            let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
            if held.last() != Some(&found.place.segment) {
                store.0.segments.hold(found.place.segment);
                held.push(found.place.segment);
            }
        }
        self.0.bytes.store(before + bytes, Ordering::Release);
    }

    pub(super) fn finish(&self) {
        let before = self.0.is_finished.swap(true, Ordering::AcqRel);
        assert!(!before, "an object ends once");
    }

    /// Bytes of the body that can be read, from its beginning.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Acquire)
    }

    /// Bytes of each chunk but the last.
    #[must_use]
    pub fn chunk_bytes(&self) -> u32 {
        self.0.header.chunk_bytes
    }

    /// The bytes of the body from `at` to the end of their block, in memory that has hardly more
    /// than them.
    ///
    /// # Errors
    /// They cannot be read.
    ///
    /// # Panics
    /// If `at` is not before [`Chunks::bytes`].
    pub async fn read(&self, at: u64) -> Result<Piece, Broken> {
        let Shared { store, header, .. } = &*self.0;
        let (inner, bytes) = (&store.0, self.bytes());
        assert!(at < bytes, "byte {at} of {bytes}");
        let chunk_bytes = u64::from(header.chunk_bytes);
        let (number, within) = (at / chunk_bytes, HEADER_BYTES as u64 + at % chunk_bytes);
        let end = HEADER_BYTES as u64 + chunk_bytes.min(bytes - number * chunk_bytes);
        let stored_len = inner.blocks.stored_len(end);
        assert!(within < end, "the byte is in its chunk");
        let payload_bytes = inner.blocks.payload_bytes();
        let number = u32::try_from(number).map_err(|_| Broken)?;
        let block = u32::try_from(within / payload_bytes).map_err(|_| Broken)?;
        let from = (within % payload_bytes) as usize;
        for _ in 0..TRIES_MAX {
            let found = inner.find_chunk(header, number, false).ok_or(Broken)?;
            if u64::from(found.len) != stored_len {
                return Err(Broken);
            }
            match inner.block(&found, block).await {
                Ok(piece) => {
                    let until = piece.len().min(from + (end - within) as usize);
                    return Ok(piece.part(from..until).alone());
                }
                Err(Fault::Overtaken) => add(&inner.counters.overtaken, 1),
                Err(Fault::Bad) => {
                    inner.drop_bad(&found);
                    return Err(Broken);
                }
            }
        }
        Err(Broken)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let inner = &self.store.0;
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        held.iter().for_each(|segment| inner.segments.let_go(*segment));
        if *self.is_finished.get_mut() {
            return;
        }
        let count = self.bytes.get_mut().div_ceil(u64::from(self.header.chunk_bytes));
        for number in 0..u32::try_from(count).expect("a body has at most u32::MAX chunks") {
            let key = inner.sums.chunk_key(self.header.key, self.header.object, number);
            inner.supersede(print_of(key));
        }
    }
}
