//! Stores objects: in memory at once, on disk by the flusher.
//!
//! What: a put reserves room in the open segment of a log, adds its record to the index and queues
//! it; the writing thread copies it and computes its sums. A put never waits. A caller that has a
//! body in pieces may wait for room between them ([`Writer::room`]). A body longer than a chunk is
//! stored chunk by chunk as it arrives, and its chunks can be read from then on ([`Chunks`]). Its
//! head is put last, so a body without an end is never found. What never happens: more bytes wait
//! than [`super::Options::buffer_bytes_max`]; an older object of a key is found after a newer one,
//! which the caller had whole, was refused.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use runtime::time;

use super::checksum::Spot;
use super::counters::add;
use super::index::{New, Place};
use super::journal::{Change, Log};
use super::limits::{ROOM_LOOK, WRITE_BATCH_BYTES};
use super::record::{HEADER_BYTES, Header, Kind, Part, Unwritten};
use super::segments::Write;
use super::unfinished::Chunks;
use super::{DiskStore, Inner, print_of};
use crate::key::Key;
use crate::purges::Generation;

/// What the store keeps with an object besides its metadata and body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The purge generation at which its fetch began.
    pub generation: Generation,
    /// When it was stored, in unix milliseconds.
    pub time_ms: u64,
}

/// Why an object was not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The metadata or the body is too long.
    TooLarge,
    /// Too many bytes wait to be written.
    Busy,
    /// No segment is free for now.
    NoRoom,
    /// Writing is off after failures of the disk.
    Off,
    /// The object to be updated is not there any more.
    Changed,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refused::TooLarge => "it is larger than an object on the disk may be",
            Refused::Busy => "too many bytes wait to be written to the disk",
            Refused::NoRoom => "no segment of the disk store is free for now",
            Refused::Off => "the disk store does not write for now, because the disk failed",
            Refused::Changed => "the object to be updated is not there any more",
        })
    }
}

impl std::error::Error for Refused {}

/// A record to be stored.
pub(super) struct Record {
    pub(super) header: Header,
    /// Its metadata, then its body, in pieces.
    pub(super) parts: Vec<Part>,
    pub(super) log: Log,
    /// Only if the current record is at this place.
    pub(super) instead_of: Option<Place>,
}

impl Inner {
    /// Stores a record: it is found at once, and written later.
    pub(super) fn store(&self, record: Record) -> Result<(), Refused> {
        let Record { header, parts, log, instead_of } = record;
        let stored_len = self.blocks.stored_len(header.payload_len());
        let len = u32::try_from(stored_len).map_err(|_| Refused::TooLarge)?;
        if len > self.options.geometry.segment_bytes / 2 {
            return Err(Refused::TooLarge);
        }
        if self.failures.is_off() {
            return Err(Refused::Off);
        }
        assert!(len as usize > HEADER_BYTES, "a record has a header and a sum");
        self.charge(len as usize)?;
        let Some(reserved) = self.segments.reserve(log, len, false, &self.journal) else {
            self.release(len as usize);
            self.wake.raise();
            return Err(Refused::NoRoom);
        };
        let print = print_of(header.key);
        let (place, life) = (reserved.place, reserved.life);
        let spot = Spot { segment: place.segment, offset: place.offset, life, print };
        let chunk = header.kind == Kind::Chunk;
        let record = Arc::new(Unwritten::new(spot, len, header, parts));
        let new = New { print, place, life, touches: 0, chunk, record: Arc::clone(&record) };
        if !self.index.put(new, instead_of, || self.journal_delete(print)) {
            self.segments.release(reserved);
            self.release(len as usize);
            return Err(if instead_of.is_some() { Refused::Changed } else { Refused::Off });
        }
        if self.segments.enqueue(Write { place, life, print, record }) >= WRITE_BATCH_BYTES {
            self.wake.raise();
        }
        add(&self.counters.written_bytes, u64::from(len));
        Ok(())
    }

    pub(super) fn journal_delete(&self, print: u64) {
        self.journal.append(&Change::Delete { print });
    }

    pub(super) fn journal_put(&self, print: u64, place: Place, len: u32, chunk: bool) {
        let Place { segment, offset } = place;
        debug_assert!(offset + len <= self.options.geometry.segment_bytes);
        let flags = if chunk { super::index::CHUNK } else { 0 };
        self.journal.append(&Change::Put { print, segment, flags, offset, len });
    }

    /// Reserves bytes of the write buffer.
    fn charge(&self, bytes: usize) -> Result<(), Refused> {
        let before = self.buffered.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > self.options.buffer_bytes_max {
            self.release(bytes);
            self.wake.raise();
            return Err(Refused::Busy);
        }
        Ok(())
    }

    pub(super) fn release(&self, bytes: usize) {
        let before = self.buffered.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "only bytes that were charged are released");
    }

    /// Removes the current object, because a newer one was not stored.
    pub(super) fn supersede(&self, print: u64) {
        self.index.remove(print, None, |_| self.journal_delete(print));
    }

    fn count_refused(&self, refused: Refused) {
        let counters = &self.counters;
        let cell = match refused {
            Refused::TooLarge => &counters.refused_large,
            Refused::Busy => &counters.refused_busy,
            Refused::NoRoom => &counters.refused_room,
            Refused::Off | Refused::Changed => &counters.refused_off,
        };
        add(cell, 1);
    }

    /// The log for a new object.
    fn log_for(&self, print: u64) -> Log {
        if self.index.ghost(print, false) { Log::Main } else { Log::Small }
    }
}

impl DiskStore {
    /// Stores an object, replacing the current one. Returns the object's number.
    ///
    /// # Errors
    /// It is not stored, and the key has no object.
    pub fn put(&self, key: &Key, about: About, meta: &[u8], body: &[u8]) -> Result<u64, Refused> {
        self.writer(key, about, meta).finish_with(&[Arc::from(body)])
    }

    /// Starts an object whose body arrives in pieces.
    pub fn writer(&self, key: &Key, about: About, meta: &[u8]) -> Writer {
        let key = key.to_u128();
        let object = self.0.number();
        let mut writer = Writer {
            store: self.clone(),
            key,
            about,
            meta: meta.to_vec(),
            object,
            log: Log::Small,
            buffer: Vec::new(),
            chunks: Chunks::new(self, key, object),
            body_len: 0,
            ended: None,
        };
        let too_large = meta.len() > self.0.options.geometry.meta_bytes_max() as usize;
        if too_large {
            writer.ended = writer.refuse(Refused::TooLarge).err().map(Err);
        } else {
            writer.log = self.0.log_for(print_of(key));
        }
        writer
    }

    /// Rewrites an object's head, with new metadata and the same body.
    ///
    /// # Errors
    /// The current object is another one; or it cannot be stored, and the key has no object then.
    pub async fn update(
        &self,
        key: &Key,
        object: u64,
        about: About,
        meta: &[u8],
    ) -> Result<(), Refused> {
        let result = self.try_update(key.to_u128(), object, about, meta).await;
        match result {
            Ok(()) => add(&self.0.counters.updates, 1),
            Err(Refused::Changed) => {}
            Err(refused) => {
                self.0.count_refused(refused);
                self.0.supersede(print_of(key.to_u128()));
            }
        }
        result
    }

    async fn try_update(
        &self,
        key: u128,
        object: u64,
        about: About,
        meta: &[u8],
    ) -> Result<(), Refused> {
        if meta.len() > self.0.options.geometry.meta_bytes_max() as usize {
            return Err(Refused::TooLarge);
        }
        let record = self.open_record(key, false).await.ok_or(Refused::Changed)?;
        if record.header.object != object && !planted::is(planted::Bug::DiskUpdateOther) {
            return Err(Refused::Changed);
        }
        let body = record.body_here().await.map_err(|_| Refused::Changed)?;
        let header = Header {
            generation: about.generation,
            time_ms: about.time_ms,
            meta_len: meta.len() as u32,
            ..record.header
        };
        // It was requested again, or it would not have been validated.
        let log = Log::Main;
        let instead_of = Some(record.found.place);
        let parts = vec![Part::Own(meta.to_vec()), Part::Own(body)];
        self.0.store(Record { header, parts, log, instead_of })
    }
}

/// An object whose body is being received. If it is dropped before [`Writer::finish`], nothing is
/// stored.
#[derive(Debug)]
#[must_use = "an object that is not finished is not stored"]
pub struct Writer {
    store: DiskStore,
    key: u128,
    about: About,
    meta: Vec<u8>,
    object: u64,
    log: Log,
    /// At most a chunk; its bytes are charged.
    buffer: Vec<u8>,
    chunks: Chunks,
    body_len: u64,
    ended: Option<Result<(), Refused>>,
}

impl Writer {
    /// The object's number.
    #[must_use]
    pub fn object(&self) -> u64 {
        self.object
    }

    /// The chunks put so far, for readers of the body. They can be read for as long as the result
    /// is kept, whatever becomes of the object.
    #[must_use]
    pub fn chunks(&self) -> Chunks {
        self.chunks.clone()
    }

    /// Waits until the store has room for another chunk, at most for `patience`.
    pub async fn room(&self, patience: Duration) {
        let inner = &self.store.0;
        let chunk_bytes = inner.options.geometry.chunk_bytes as usize;
        let deadline = time::now() + patience;
        // The bytes of two chunks: the one that is put takes as many more while it is copied.
        let has_room = || {
            let buffered = inner.buffered.load(Ordering::Relaxed) + 2 * chunk_bytes;
            let len = inner.blocks.stored_len((HEADER_BYTES + chunk_bytes) as u64) as u32;
            buffered <= inner.options.buffer_bytes_max && inner.segments.has_room(self.log, len)
        };
        while self.ended.is_none() && !inner.failures.is_off() && !has_room() {
            if time::now() >= deadline {
                return;
            }
            inner.wake.raise();
            time::sleep(ROOM_LOOK).await;
        }
    }

    /// Appends to the body.
    ///
    /// # Errors
    /// The object is not stored. The previous object of the key stays.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        if let Some(Err(refused)) = self.ended {
            return Err(refused);
        }
        let geometry = self.store.0.options.geometry;
        if self.body_len + bytes.len() as u64 > geometry.body_bytes_max() {
            return self.refuse(Refused::TooLarge);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let chunk_bytes = geometry.chunk_bytes as usize;
            if self.buffer.len() == chunk_bytes
                && let Err(refused) = self.put_chunk()
            {
                return self.refuse(refused);
            }
            if self.chunks.bytes() > 0 && self.buffer.capacity() == 0 {
                self.buffer.reserve_exact(chunk_bytes);
            }
            assert!(self.buffer.len() < chunk_bytes, "a full buffer was put");
            let (now, later) = rest.split_at(rest.len().min(chunk_bytes - self.buffer.len()));
            if let Err(refused) = self.store.0.charge(now.len()) {
                return self.refuse(refused);
            }
            self.buffer.extend_from_slice(now);
            self.body_len += now.len() as u64;
            rest = later;
        }
        self.check();
        Ok(())
    }

    /// Completes the body; the object can be found from now on. Returns its number.
    ///
    /// # Errors
    /// The object is not stored. The previous object of the key stays.
    pub fn finish(mut self) -> Result<u64, Refused> {
        match self.try_finish() {
            Ok(()) => Ok(self.object),
            Err(refused) => Err(refused),
        }
    }

    /// [`Writer::write`] of the rest of the body, then [`Writer::finish`]. A whole body up to a
    /// chunk is not copied: its pieces are kept until they are written.
    ///
    /// # Errors
    /// The object is not stored. If `rest` is the whole body, the caller has a newer response than
    /// the previous object of the key, which is removed. Otherwise that object stays.
    pub fn finish_with(self, rest: &[Arc<[u8]>]) -> Result<u64, Refused> {
        let superseded = (self.body_len == 0).then(|| (self.store.clone(), print_of(self.key)));
        let finished = self.try_finish_with(rest);
        if let (Err(_), Some((store, print))) = (finished, superseded) {
            store.0.supersede(print);
        }
        finished
    }

    fn try_finish_with(mut self, rest: &[Arc<[u8]>]) -> Result<u64, Refused> {
        let rest_len = rest.iter().map(|piece| piece.len()).sum::<usize>();
        let chunk_bytes = self.store.0.options.geometry.chunk_bytes as usize;
        // Longer bodies and refused ones take the usual path.
        if self.body_len == 0 && self.ended.is_none() && rest_len <= chunk_bytes {
            self.body_len = rest_len as u64;
            let body = rest.iter().map(|piece| Part::Shared(Arc::clone(piece))).collect();
            return self.end(body).map(|()| self.object);
        }
        rest.iter().try_for_each(|piece| self.write(piece))?;
        self.finish()
    }

    fn try_finish(&mut self) -> Result<(), Refused> {
        if let Some(ended) = self.ended {
            return ended;
        }
        if self.chunks.bytes() > 0
            && let Err(refused) = self.put_chunk()
        {
            return self.refuse(refused);
        }
        let body = self.take_buffer();
        self.end(vec![body])
    }

    /// The bytes since the last chunk. From here on the record charges them.
    fn take_buffer(&mut self) -> Part {
        self.store.0.release(self.buffer.len());
        Part::Own(std::mem::take(&mut self.buffer))
    }

    /// Stores the record by which the object is found, with the part of the body that belongs to
    /// it.
    fn end(&mut self, body: Vec<Part>) -> Result<(), Refused> {
        assert!(self.ended.is_none() && self.buffer.is_empty(), "an object ends once");
        let kind = if self.chunks.bytes() > 0 { Kind::Head } else { Kind::Whole };
        assert!(kind == Kind::Whole || self.chunks.bytes() == self.body_len, "it is in its chunks");
        debug_assert!(kind == Kind::Head || parts_len(&body) == self.body_len);
        let header = self.header(kind, self.key, self.body_len, self.meta.len());
        let mut parts = vec![Part::Own(std::mem::take(&mut self.meta))];
        parts.extend(body);
        let inner = &self.store.0;
        match inner.store(Record { header, parts, log: self.log, instead_of: None }) {
            Ok(()) => {
                inner.index.ghost(print_of(self.key), true);
                add(&inner.counters.puts, 1);
                self.chunks.finish();
                self.ended = Some(Ok(()));
                Ok(())
            }
            Err(refused) => self.refuse(refused),
        }
    }

    fn header(&self, kind: Kind, key: u128, body_len: u64, meta_len: usize) -> Header {
        Header {
            kind,
            key,
            object: self.object,
            generation: self.about.generation,
            time_ms: self.about.time_ms,
            body_len,
            meta_len: meta_len as u32,
            chunk_bytes: self.store.0.options.geometry.chunk_bytes,
        }
    }

    /// Each byte of the body is in a chunk or in the buffer.
    fn check(&self) {
        let chunk_bytes = self.store.0.options.geometry.chunk_bytes as usize;
        assert!(self.buffer.len() <= chunk_bytes, "at most a chunk is buffered");
        assert!(self.chunks.bytes() + self.buffer.len() as u64 == self.body_len);
    }

    /// Stores the buffered bytes as the next chunk.
    fn put_chunk(&mut self) -> Result<(), Refused> {
        self.check();
        assert!(!self.buffer.is_empty(), "no chunk is empty");
        let inner = &self.store.0;
        let key = inner.sums.chunk_key(self.key, self.object, self.chunks.count());
        let bytes = self.buffer.len() as u64;
        let header = self.header(Kind::Chunk, key, bytes, 0);
        let parts = vec![self.take_buffer()];
        let inner = &self.store.0;
        inner.store(Record { header, parts, log: self.log, instead_of: None })?;
        add(&inner.counters.chunk_puts, 1);
        self.chunks.note_put(bytes);
        Ok(())
    }

    fn refuse(&mut self, refused: Refused) -> Result<(), Refused> {
        assert!(self.ended != Some(Ok(())), "a finished object is not refused");
        self.store.0.count_refused(refused);
        self.ended = Some(Err(refused));
        Err(refused)
    }
}

/// Bytes of the parts of a body.
fn parts_len(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.ended.is_none() && planted::is(planted::Bug::DiskUnfinishedFound) {
            let _ = self.try_finish();
        }
        self.store.0.release(self.buffer.len());
    }
}
