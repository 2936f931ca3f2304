//! Reads objects: the metadata with the first block, the body block by block.
//!
//! A look-up reads the first block of a record, which has the metadata and usually the beginning of
//! the body. If they are in memory already ([`super::zero_copy`]), it reads nothing. [`Body`] reads
//! the remaining blocks on demand; for a range only the blocks that it touches. Every block is
//! verified before any byte of it is returned. What never happens: a read past the end of a record;
//! a byte of another object, of an older object of the same key after the first block of a newer
//! one, or of a corrupt block.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use runtime::fs::SharedPages;

use super::checksum::Spot;
use super::counters::add;
use super::index::{Found, Place};
use super::record::{HEADER_BYTES, Header, Kind, SUM_BYTES};
use super::zero_copy::{Verified, Watch};
use super::{DiskStore, Inner, print_of};
use crate::key::Key;
use crate::purges::Generation;

/// How often a look-up is repeated for a record that was moved while it was read.
pub(super) const TRIES_MAX: usize = 3;

/// Verified bytes.
#[derive(Clone, Debug)]
pub struct Piece {
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

impl Piece {
    pub(super) fn part(&self, part: Range<usize>) -> Piece {
        debug_assert!(part.start <= part.end && part.end <= self.range.len(), "a part of it");
        let start = self.range.start + part.start;
        Piece { bytes: Arc::clone(&self.bytes), range: start..start + part.len() }
    }

    /// The same bytes, in memory that has hardly more than them.
    #[must_use]
    pub fn alone(self) -> Piece {
        if self.bytes.len() / 2 <= self.range.len() { self } else { self.copied() }
    }

    /// The same bytes, in memory for them alone.
    fn copied(&self) -> Piece {
        let bytes = Arc::new(self.to_vec());
        Piece { range: 0..bytes.len(), bytes }
    }
}

/// A body cannot be read to its end: a block is corrupt or was evicted meanwhile. The object is
/// removed from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a stored body cannot be read to its end")
    }
}

impl std::error::Error for Broken {}

/// Why a block cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Its segment was reclaimed meanwhile.
    Overtaken,
    Bad,
}

/// A record whose first block is good and whose key matches.
#[derive(Debug)]
pub(super) struct Opened {
    store: DiskStore,
    pub(super) found: Found,
    pub(super) header: Header,
    first: First,
}

/// The first block of a record.
#[derive(Clone, Debug)]
enum First {
    /// Its payload.
    Read(Piece),
    /// An earlier reader left the header and metadata. The page has been watched since.
    Known(Arc<Verified>),
    /// It is not needed any more, and its memory is free.
    Past,
}

impl First {
    /// The part of the payload that is in memory: the whole first block if it was read, or
    /// everything before the body, or nothing.
    fn bytes(&self) -> &[u8] {
        match self {
            First::Read(piece) => piece,
            First::Known(verified) => verified.beginning(),
            First::Past => &[],
        }
    }
}

/// The result of a look-up.
#[derive(Debug)]
pub struct Hit {
    /// The metadata, as given with the object.
    pub meta: Vec<u8>,
    /// The purge generation at which its fetch began.
    pub generation: Generation,
    /// When it was stored, in unix milliseconds.
    pub time_ms: u64,
    /// The object's number.
    pub object: u64,
    /// Bytes of the body.
    pub body_len: u64,
    record: Opened,
}

/// Where a record was when it was looked up. A later put under the same key is at another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    place: Place,
    life: u64,
}

impl Version {
    pub(super) fn of(found: &Found) -> Version {
        Version { place: found.place, life: found.life }
    }
}

impl Hit {
    /// For [`DiskStore::is_current`].
    #[must_use]
    pub fn version(&self) -> Version {
        Version::of(&self.record.found)
    }

    /// The whole body.
    #[must_use]
    pub fn body(self) -> Body {
        let end = self.body_len;
        self.range(0..end)
    }

    /// A part of the body, cut to its length.
    #[must_use]
    pub fn range(self, range: Range<u64>) -> Body {
        let end = range.end.min(self.body_len);
        let at = range.start.min(end);
        assert!(at <= end && end <= self.body_len, "a part of the body");
        let held = Held::new(&self.record, at..end);
        Body {
            record: self.record,
            at,
            end,
            chunk: None,
            zero_copy: false,
            watch: None,
            _held: held,
        }
    }
}

/// A body that is read on demand.
#[derive(Debug)]
pub struct Body {
    record: Opened,
    at: u64,
    end: u64,
    /// The chunk being read.
    chunk: Option<(u32, Found)>,
    /// The reader can send shared pages.
    zero_copy: bool,
    /// The record being read, if its pages are to be sent zero-copy later.
    watch: Option<Box<Watch>>,
    _held: Held,
}

/// The chunk that has the next byte of a body.
#[derive(Clone, Copy, Debug)]
struct ChunkPart {
    number: u32,
    /// Bytes of its record on disk.
    stored_len: u64,
    /// The part of its payload to read: from the next byte to the end of the chunk or range.
    at: u64,
    end: u64,
}

/// Keeps a body from being evicted while it is read, because clients may be slow.
#[derive(Debug)]
struct Held {
    store: DiskStore,
    segments: Vec<u16>,
}

impl Held {
    fn new(record: &Opened, body: Range<u64>) -> Held {
        let Opened { store, found, header, .. } = record;
        let inner = &store.0;
        let mut segments = vec![found.place.segment];
        if header.chunks() > 0 && !body.is_empty() {
            let chunk_bytes = u64::from(header.chunk_bytes);
            // A sound header has at most `u32::MAX` chunks.
            let numbers = (body.start / chunk_bytes) as u32..=((body.end - 1) / chunk_bytes) as u32;
            let found = |number| inner.find_chunk(header, number, false);
            segments.extend(numbers.filter_map(found).map(|found| found.place.segment));
            segments.dedup();
        }
        segments.iter().for_each(|segment| inner.segments.hold(*segment));
        Held { store: store.clone(), segments }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.segments.iter().for_each(|segment| self.store.0.segments.let_go(*segment));
    }
}

impl Inner {
    /// Reads and verifies a block of a record, with one read; from memory if it is not written yet.
    pub(super) async fn block(&self, found: &Found, number: u32) -> Result<Piece, Fault> {
        let range = self.blocks.range(number, found.len);
        let len = (range.end - range.start) as usize;
        let place = found.place;
        let spot = Spot {
            segment: place.segment,
            offset: place.offset,
            life: found.life,
            print: found.print,
        };
        let (bytes, range) = match &found.unwritten {
            Some(record) => {
                add(&self.counters.blocks_buffered, 1);
                let bytes = record.bytes(self.blocks, &self.sums);
                (bytes, range.start as usize..range.end as usize)
            }
            None => {
                let position = self.segments.position(place) + u64::from(range.start);
                (Arc::new(self.read(len, position).await?), 0..len)
            }
        };
        match self.blocks.check(&self.sums, &spot, number, &bytes[range.clone()]) {
            Some(payload) => {
                debug_assert!(payload <= range.len() - SUM_BYTES, "the sum is not a part of it");
                add(&self.counters.blocks, 1);
                Ok(Piece { bytes, range: range.start..range.start + payload })
            }
            None if self.is_overtaken(found) => Err(Fault::Overtaken),
            None => {
                add(&self.counters.bad_blocks, 1);
                Err(Fault::Bad)
            }
        }
    }

    async fn read(&self, len: usize, position: u64) -> Result<Vec<u8>, Fault> {
        let counters = &self.counters;
        let mut bytes = Vec::new();
        match self.files.segments.append_exact_at(&mut bytes, len, position).await {
            Ok(reads) => {
                assert!(bytes.len() == len, "a block is read to its end");
                add(&counters.reads, u64::from(reads.calls));
                add(&counters.read_bytes, len as u64);
                add(&counters.reads_would_block, u64::from(reads.would_block));
                add(&counters.reads_short, u64::from(reads.short));
                Ok(bytes)
            }
            Err(error) => {
                let ended = error.kind() == std::io::ErrorKind::UnexpectedEof;
                add(if ended { &counters.reads_zero } else { &counters.read_errors }, 1);
                Err(Fault::Bad)
            }
        }
    }

    fn is_overtaken(&self, found: &Found) -> bool {
        let life = &self.segments.lives[usize::from(found.place.segment)];
        life.load(Ordering::Acquire) != found.life
    }

    /// Removes an unreadable record, if it is still there.
    pub(super) fn drop_bad(&self, found: &Found) {
        let print = found.print;
        let gone = self.index.remove(print, Some(found.place), |there| {
            if there {
                self.journal_delete(print);
            }
        });
        add(&self.counters.dropped_bad, u64::from(gone));
    }

    /// Whether all chunks of a large object are there. Counts as a touch of each.
    fn has_chunks(&self, header: &Header) -> bool {
        (0..header.chunks()).all(|number| self.find_chunk(header, number, true).is_some())
    }

    pub(super) fn find_chunk(&self, header: &Header, number: u32, touch: bool) -> Option<Found> {
        let key = self.sums.chunk_key(header.key, header.object, number);
        self.index.look_up(print_of(key), touch)
    }
}

impl DiskStore {
    /// Looks an object up. Reads one block; more only for long metadata.
    pub async fn get(&self, key: &Key) -> Option<Hit> {
        let hit = self.find(key.to_u128()).await;
        let counters = &self.0.counters;
        add(if hit.is_some() { &counters.hits } else { &counters.misses }, 1);
        hit
    }

    async fn find(&self, key: u128) -> Option<Hit> {
        let record = self.open_record(key, true).await?;
        let header = record.header;
        if header.kind == Kind::Head && !self.0.has_chunks(&header) {
            add(&self.0.counters.dropped_torn, 1);
            self.0.drop_bad(&record.found);
            return None;
        }
        let meta = record.payload(HEADER_BYTES as u64..header.body_at()).await.ok()?;
        Some(Hit {
            meta,
            generation: header.generation,
            time_ms: header.time_ms,
            object: header.object,
            body_len: header.body_len,
            record,
        })
    }

    /// Opens the record of an object: reads its first block.
    pub(super) async fn open_record(&self, key: u128, touch: bool) -> Option<Opened> {
        let inner = &self.0;
        for _ in 0..TRIES_MAX {
            let found = inner.index.look_up(print_of(key), touch)?;
            if let Some((header, verified)) = inner.verified_header(&found, key) {
                let first = First::Known(verified);
                return Some(Opened { store: self.clone(), found, header, first });
            }
            let first = match inner.block(&found, 0).await {
                Ok(first) => first,
                Err(Fault::Overtaken) => {
                    add(&inner.counters.overtaken, 1);
                    continue;
                }
                Err(Fault::Bad) => {
                    inner.drop_bad(&found);
                    return None;
                }
            };
            let Some(header) = Header::decode(&first) else {
                inner.drop_bad(&found);
                return None;
            };
            if header.key != key && !planted::is(planted::Bug::DiskKeyUnchecked) {
                add(&inner.counters.other_keys, 1);
                return None;
            }
            let fits = inner.blocks.stored_len(header.payload_len()) == u64::from(found.len);
            if header.kind == Kind::Chunk || !fits {
                inner.drop_bad(&found);
                return None;
            }
            let first = First::Read(first);
            return Some(Opened { store: self.clone(), found, header, first });
        }
        None
    }
}

impl Opened {
    /// The part of the payload from `at` to the end of its block, at most up to `end`. Looks the
    /// record up again if it was moved meanwhile.
    async fn piece(&mut self, at: u64, end: u64) -> Result<Piece, Broken> {
        let inner = Arc::clone(&self.store.0);
        let payload_bytes = inner.blocks.payload_bytes();
        let number = u32::try_from(at / payload_bytes).map_err(|_| Broken)?;
        let within = (at % payload_bytes) as usize;
        for _ in 0..TRIES_MAX {
            let block = match &self.first {
                First::Read(first) if number == 0 => Ok(first.clone()),
                _ => inner.block(&self.found, number).await,
            };
            match block {
                Ok(block) => {
                    if number == 0
                        && let First::Known(verified) = &self.first
                    {
                        verified.note_first_verified();
                        self.first = First::Read(block.clone());
                    }
                    let until = block.len().min(within + (end - at) as usize);
                    return Ok(block.part(within..until));
                }
                Err(Fault::Bad) => break,
                Err(Fault::Overtaken) => {
                    add(&inner.counters.overtaken, 1);
                    let again = self.store.open_record(self.header.key, false).await;
                    let again = again.ok_or(Broken)?;
                    if again.header != self.header {
                        return Err(Broken); // another object by now
                    }
                    *self = again;
                }
            }
        }
        inner.drop_bad(&self.found);
        Err(Broken)
    }

    async fn payload(&self, range: Range<u64>) -> Result<Vec<u8>, Broken> {
        let first = self.first.bytes();
        if let Some(here) = first.get(range.start as usize..range.end as usize) {
            return Ok(here.to_vec());
        }
        let mut again = Opened {
            store: self.store.clone(),
            found: self.found.clone(),
            header: self.header,
            first: self.first.clone(),
        };
        let mut out = Vec::with_capacity((range.end - range.start) as usize);
        while (out.len() as u64) < range.end - range.start {
            let piece = again.piece(range.start + out.len() as u64, range.end).await?;
            out.extend_from_slice(&piece);
        }
        Ok(out)
    }

    /// Everything before the body, if the first block has it.
    fn beginning(&self) -> &[u8] {
        self.first.bytes().get(..self.header.body_at() as usize).unwrap_or_default()
    }

    /// The bytes of the body that this record has.
    pub(super) async fn body_here(&self) -> Result<Vec<u8>, Broken> {
        self.payload(self.header.body_at()..self.header.payload_len()).await
    }
}

impl Body {
    /// Bytes not yet returned.
    #[must_use]
    pub fn left(&self) -> u64 {
        debug_assert!(self.at <= self.end, "no byte after the range is returned");
        self.end - self.at
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// They cannot be read. Ask the origin for the rest, or cut the connection.
    pub async fn next(&mut self) -> Result<Option<Piece>, Broken> {
        if self.at >= self.end {
            return Ok(None);
        }
        let piece = match self.record.header.kind {
            Kind::Head => self.next_of_chunk().await?,
            _ => self.next_of_whole().await?,
        };
        self.at += piece.len() as u64;
        debug_assert!(
            !piece.is_empty() && self.at <= self.end,
            "it makes progress, within the range"
        );
        if !self.zero_copy {
            // The reader has all of it that it wants. A slow client must not hold it.
            self.record.first = First::Past;
        }
        Ok(Some(piece))
    }

    /// Bytes of memory that are kept for this body besides its pieces: records that are not
    /// written yet. One that has been written meanwhile is read from the disk from now on.
    pub fn holds(&mut self) -> usize {
        let index = &self.record.store.0.index;
        let chunk = self.chunk.as_mut().map(|(_, found)| found);
        let mut bytes = 0;
        for found in std::iter::once(&mut self.record.found).chain(chunk) {
            if found.unwritten.is_some() && index.is_written(found.print, found.place) {
                found.unwritten = None;
            }
            bytes += found.unwritten.as_ref().map_or(0, |record| record.holds());
        }
        bytes
    }

    /// Keeps no more than the beginning of the piece that was returned last, in memory for it
    /// alone. The rest is read again.
    #[must_use]
    pub fn keep(&mut self, piece: Piece, bytes_max: usize) -> Piece {
        let Some(over) = piece.len().checked_sub(bytes_max).filter(|over| *over > 0) else {
            return piece;
        };
        assert!(self.at >= over as u64, "what is read again was returned before");
        (self.at, self.watch) = (self.at - over as u64, None);
        piece.part(0..bytes_max).copied()
    }

    /// The same body, for a reader that also calls [`Body::next_shared`].
    #[must_use]
    pub fn allow_zero_copy(self) -> Body {
        let zero_copy = self.record.store.zero_copy_unavailable().is_none();
        Body { zero_copy, ..self }
    }

    /// The next bytes as shared pages, if [`super::Verify::Once`] is set and they were verified in
    /// the page cache and have not left it since. `None`: call [`Body::next`] instead.
    ///
    /// Needs [`Body::allow_zero_copy`].
    pub async fn next_shared(&mut self) -> Option<SharedPages> {
        if self.at >= self.end || !self.zero_copy {
            return None;
        }
        let inner = Arc::clone(&self.record.store.0);
        if inner.zero_copy.has_ended().await {
            (self.zero_copy, self.watch) = (false, None);
            return None;
        }
        let pages = match self.record.header.kind {
            Kind::Head => {
                let part = self.chunk_part().ok()?;
                let found = self.chunk_found(&part)?;
                let pages = inner.share(&found, part.at..part.end).await;
                self.chunk = Some((part.number, found));
                pages
            }
            _ => {
                let body_at = self.record.header.body_at();
                inner.share(&self.record.found, body_at + self.at..body_at + self.end).await
            }
        }?;
        self.watch = None;
        self.at += pages.left() as u64;
        assert!(self.at <= self.end, "no page after the range is shared");
        Some(pages)
    }

    async fn next_of_whole(&mut self) -> Result<Piece, Broken> {
        let inner = Arc::clone(&self.record.store.0);
        let body_at = self.record.header.body_at();
        let (at, end) = (body_at + self.at, body_at + self.end);
        let block = (at / inner.blocks.payload_bytes()) as u32;
        // The look-up read the first block.
        if self.zero_copy && block == 1 && end == self.record.header.payload_len() {
            let (found, beginning) = (&self.record.found, self.record.beginning());
            self.watch = inner.watch(found, block, beginning).await.map(Box::new);
        }
        let piece = self.record.piece(at, end).await?;
        if let Some(watch) = self.watch.take() {
            self.watch = inner.note_verified(*watch, &self.record.found, block).map(Box::new);
        }
        Ok(piece)
    }

    /// The location of the next byte. A sound header has at most `u32::MAX` chunks.
    fn chunk_part(&self) -> Result<ChunkPart, Broken> {
        let header = &self.record.header;
        let chunk_bytes = u64::from(header.chunk_bytes);
        let number = u32::try_from(self.at / chunk_bytes).map_err(|_| Broken)?;
        let start = u64::from(number) * chunk_bytes;
        debug_assert!(start <= self.at && self.at < header.body_len, "the byte is in its chunk");
        let len = chunk_bytes.min(header.body_len - start);
        Ok(ChunkPart {
            number,
            stored_len: self.record.store.0.blocks.stored_len(HEADER_BYTES as u64 + len),
            at: HEADER_BYTES as u64 + (self.at - start),
            end: HEADER_BYTES as u64 + (self.end - start).min(len),
        })
    }

    fn chunk_found(&mut self, part: &ChunkPart) -> Option<Found> {
        if let Some((number, found)) = self.chunk.take()
            && number == part.number
        {
            return Some(found);
        }
        let inner = &self.record.store.0;
        let found = inner.find_chunk(&self.record.header, part.number, false);
        found.filter(|found| u64::from(found.len) == part.stored_len)
    }

    /// Reads the next block of a chunk. The object's number identifies its chunks: no other has
    /// these keys, so a later part does not need the chunk's first block.
    async fn next_of_chunk(&mut self) -> Result<Piece, Broken> {
        let inner = Arc::clone(&self.record.store.0);
        let part = self.chunk_part()?;
        let payload_bytes = inner.blocks.payload_bytes();
        let block = u32::try_from(part.at / payload_bytes).map_err(|_| Broken)?;
        let within = (part.at % payload_bytes) as usize;
        for _ in 0..TRIES_MAX {
            let Some(found) = self.chunk_found(&part) else { break };
            if self.zero_copy && block == 0 && inner.blocks.stored_len(part.end) == part.stored_len
            {
                self.watch = inner.watch(&found, block, &[]).await.map(Box::new);
            }
            match inner.block(&found, block).await {
                Ok(piece) => {
                    if let Some(watch) = self.watch.take() {
                        self.watch = inner.note_verified(*watch, &found, block).map(Box::new);
                    }
                    self.chunk = Some((part.number, found));
                    let until = piece.len().min(within + (part.end - part.at) as usize);
                    return Ok(piece.part(within..until));
                }
                Err(Fault::Overtaken) => add(&inner.counters.overtaken, 1),
                Err(Fault::Bad) => {
                    inner.drop_bad(&found);
                    break;
                }
            }
        }
        // Without one of its chunks the object is useless.
        inner.drop_bad(&self.record.found);
        Err(Broken)
    }
}

// The header is in the first block, however short the blocks are.
const _: () = assert!(SUM_BYTES < 512 && HEADER_BYTES < 512 - SUM_BYTES);
const _: () = assert!(TRIES_MAX > 1, "a record may be moved once while it is read");
