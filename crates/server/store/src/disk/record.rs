//! Records: the contents of segments.
//!
//! ```text
//! payload:  header (64) | metadata | body
//! on disk:  [payload, at most block - 8 | sum 8] [ ... | sum 8] [ rest | sum 8]
//! ```
//!
//! A record is a whole object; or the head of a large object, without its body; or one chunk of a
//! large body. The index has the exact length on disk, so a record of one block is one read, any
//! other `ceil(length / block)`, and nothing past the end is read. Each block has its own checksum
//! ([`super::checksum`]); the key in the header is compared as a whole. The writing thread makes a
//! record, which means copying it and computing its sums. Until then it is [`Unwritten`]: its
//! header, and the pieces as they were given. What never happens: a byte of a block is used before
//! its sum was compared.

use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

use super::bytes::{Put, Take};
use super::checksum::{Spot, Sums};
use super::limits::STORE_BYTES_MAX;

pub(super) const HEADER_BYTES: usize = 64;
pub(super) const SUM_BYTES: usize = 8;
const MAGIC: u32 = 0x504c_5231;

/// What a writer of records asserts.
const EXACT: &str = "the parts are as long as the header says";

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An object with its body.
    Whole = 1,
    /// An object whose body is in chunks.
    Head = 2,
    /// One chunk of a body.
    Chunk = 3,
}

/// The first bytes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) key: u128,
    /// The object's number. No two bodies share one.
    pub(super) object: u64,
    /// The purge generation at which its fetch began.
    pub(super) generation: u64,
    /// When it was stored, in unix milliseconds.
    pub(super) time_ms: u64,
    /// Of the whole body; in a chunk, of the chunk.
    pub(super) body_len: u64,
    pub(super) meta_len: u32,
    /// Length of the chunks of a head, except the last.
    pub(super) chunk_bytes: u32,
}

impl Header {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        debug_assert!(self.is_sound(), "a start refuses others: {self:?}");
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.put_u32(MAGIC);
        bytes.put_u32(self.kind as u32);
        bytes.put_u128(self.key);
        bytes.put_u64(self.object);
        bytes.put_u64(self.generation);
        bytes.put_u64(self.time_ms);
        bytes.put_u64(self.body_len);
        bytes.put_u32(self.meta_len);
        bytes.put_u32(self.chunk_bytes);
        bytes.try_into().expect("the fields are 64 bytes")
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Header> {
        let mut take = Take(bytes);
        let magic = take.u32()?;
        let kind = match take.u32()? {
            1 => Kind::Whole,
            2 => Kind::Head,
            3 => Kind::Chunk,
            _ => return None,
        };
        (magic == MAGIC).then_some(())?;
        let header = Header {
            kind,
            key: take.u128()?,
            object: take.u64()?,
            generation: take.u64()?,
            time_ms: take.u64()?,
            body_len: take.u64()?,
            meta_len: take.u32()?,
            chunk_bytes: take.u32()?,
        };
        header.is_sound().then_some(header)
    }

    /// Whether the lengths can be added up, and divided by.
    fn is_sound(&self) -> bool {
        let chunked = self.kind != Kind::Head || self.chunk_bytes > 0;
        self.body_len <= STORE_BYTES_MAX && chunked
    }

    /// Bytes of the body in this record.
    pub(super) fn body_here(&self) -> u64 {
        if self.kind == Kind::Head { 0 } else { self.body_len }
    }

    pub(super) fn payload_len(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.meta_len) + self.body_here()
    }

    /// Offset of the body in the payload.
    pub(super) fn body_at(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.meta_len)
    }

    pub(super) fn chunks(&self) -> u32 {
        if self.kind != Kind::Head || self.chunk_bytes == 0 {
            return 0;
        }
        u32::try_from(self.body_len.div_ceil(u64::from(self.chunk_bytes))).unwrap_or(u32::MAX)
    }
}

/// Bytes of a record that is not written yet.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// Owned by the record.
    Own(Vec<u8>),
    /// Shared with the caller.
    Shared(Arc<[u8]>),
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Part::Own(bytes) => bytes,
            Part::Shared(bytes) => bytes,
        }
    }
}

/// A record that has a place and is not written yet.
#[derive(Debug)]
pub(super) struct Unwritten {
    spot: Spot,
    len: u32,
    /// Its header, and its metadata and body; `None` if the record was made before.
    from: Option<(Header, Vec<Part>)>,
    /// The bytes for the disk, once a reader needed them.
    made: OnceLock<Arc<Vec<u8>>>,
}

impl Unwritten {
    /// `parts` are the metadata and the body.
    pub(super) fn new(spot: Spot, len: u32, header: Header, parts: Vec<Part>) -> Unwritten {
        let parts_len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        assert!(header.payload_len() == HEADER_BYTES as u64 + parts_len, "{EXACT}");
        Unwritten { spot, len, from: Some((header, parts)), made: OnceLock::new() }
    }

    /// A record whose bytes were made for the spot already.
    pub(super) fn made(spot: Spot, bytes: Vec<u8>) -> Unwritten {
        assert!(bytes.len() > SUM_BYTES, "a record has a payload and a sum");
        let len = bytes.len() as u32;
        Unwritten { spot, len, from: None, made: OnceLock::from(Arc::new(bytes)) }
    }

    /// Bytes on disk.
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Bytes in memory: what it is made from, and what was made of that.
    pub(super) fn holds(&self) -> usize {
        let copies = usize::from(self.from.is_some()) + usize::from(self.made.get().is_some());
        assert!(copies > 0, "a record is in memory until it is written");
        self.len as usize * copies
    }

    /// The bytes for the disk, for a reader that comes before they are written.
    pub(super) fn bytes(&self, blocks: Blocks, sums: &Sums) -> Arc<Vec<u8>> {
        let make = || {
            let mut out = vec![0; self.len as usize];
            self.make(blocks, sums, &mut out, &mut |_| ());
            Arc::new(out)
        };
        Arc::clone(self.made.get_or_init(make))
    }

    /// Writes the same bytes to `out`. Calls `made` with the number of bytes after each part.
    pub(super) fn write(
        &self,
        blocks: Blocks,
        sums: &Sums,
        out: &mut [u8],
        made: &mut impl FnMut(usize),
    ) {
        match self.made.get() {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                made(bytes.len());
            }
            None => self.make(blocks, sums, out, made),
        }
    }

    fn make(&self, blocks: Blocks, sums: &Sums, out: &mut [u8], made: &mut impl FnMut(usize)) {
        let (header, parts) = self.from.as_ref().expect("a record without parts was made before");
        blocks.encode(sums, &self.spot, header, parts, out, made);
    }
}

/// How a payload is cut into blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    pub(super) block_bytes: u32,
}

impl Blocks {
    /// Bytes of payload in a full block.
    pub(super) fn payload_bytes(self) -> u64 {
        debug_assert!(self.block_bytes as usize > SUM_BYTES);
        u64::from(self.block_bytes) - SUM_BYTES as u64
    }

    /// Bytes of a payload on disk.
    pub(super) fn stored_len(self, payload_len: u64) -> u64 {
        payload_len + SUM_BYTES as u64 * payload_len.div_ceil(self.payload_bytes())
    }

    /// The range of a block in a record of this length.
    pub(super) fn range(self, number: u32, stored_len: u32) -> Range<u32> {
        let start = number * self.block_bytes;
        assert!(start < stored_len, "the block is one of the record's");
        start..stored_len.min(start.saturating_add(self.block_bytes))
    }

    /// The length of a block's payload, if its checksum is right.
    pub(super) fn check(
        self,
        sums: &Sums,
        spot: &Spot,
        number: u32,
        block: &[u8],
    ) -> Option<usize> {
        let payload_len = block.len().checked_sub(SUM_BYTES)?;
        let (payload, sum) = block.split_at(payload_len);
        if planted::is(planted::Bug::DiskSumUnchecked) {
            return Some(payload_len);
        }
        (sums.block(spot, number, payload).to_le_bytes() == sum).then_some(payload_len)
    }

    /// Makes a record for `spot`, which fills `out` exactly. `parts` are the metadata and the body.
    /// Calls `made` after each block.
    fn encode(
        self,
        sums: &Sums,
        spot: &Spot,
        header: &Header,
        parts: &[Part],
        out: &mut [u8],
        made: &mut impl FnMut(usize),
    ) {
        assert_eq!(out.len() as u64, self.stored_len(header.payload_len()), "{EXACT}");
        let head = header.encode();
        let mut parts = std::iter::once(&head[..]).chain(parts.iter().map(|part| &**part));
        let mut part: &[u8] = &[];
        for (block, number) in out.chunks_mut(self.block_bytes as usize).zip(0..) {
            let (payload, sum) = block.split_at_mut(block.len() - SUM_BYTES);
            let mut filled = 0;
            while filled < payload.len() {
                if part.is_empty() {
                    part = parts.next().expect(EXACT);
                }
                let (now, later) = part.split_at(part.len().min(payload.len() - filled));
                payload[filled..filled + now.len()].copy_from_slice(now);
                (filled, part) = (filled + now.len(), later);
            }
            debug_assert!(filled == payload.len() && filled > 0, "no block is empty");
            sum.copy_from_slice(&sums.block(spot, number, payload).to_le_bytes());
            made(filled + SUM_BYTES);
        }
        assert!(part.is_empty() && parts.all(<[u8]>::is_empty), "{EXACT}");
    }

    /// Converts the record for another spot. False: a block's checksum is wrong.
    #[must_use = "a record with a wrong checksum must not be written"]
    pub(super) fn make_for(self, sums: &Sums, from: &Spot, to: &Spot, bytes: &mut [u8]) -> bool {
        bytes.chunks_mut(self.block_bytes as usize).zip(0..).all(|(block, number)| {
            let Some(payload_len) = self.check(sums, from, number, block) else { return false };
            debug_assert!(from.print == to.print, "a moved record keeps its key");
            let (payload, sum) = block.split_at_mut(payload_len);
            sum.copy_from_slice(&sums.block(to, number, payload).to_le_bytes());
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: Blocks = Blocks { block_bytes: 512 };

    fn spot() -> Spot {
        Spot { segment: 3, offset: 4096, life: 9, print: 77 }
    }

    fn record(meta: &[u8], body: &[u8]) -> (Header, Vec<u8>) {
        let header = Header {
            kind: Kind::Whole,
            key: 77,
            object: 5,
            generation: 6,
            time_ms: 7,
            body_len: body.len() as u64,
            meta_len: meta.len() as u32,
            chunk_bytes: 0,
        };
        (header, encoded(&spot(), &header, &[meta, body]))
    }

    fn encoded(spot: &Spot, header: &Header, parts: &[&[u8]]) -> Vec<u8> {
        let parts: Vec<Part> = parts.iter().map(|part| Part::Own(part.to_vec())).collect();
        let mut out = vec![9; BLOCKS.stored_len(header.payload_len()) as usize];
        BLOCKS.encode(&Sums::new(1), spot, header, &parts, &mut out, &mut |_| ());
        out
    }

    #[test]
    fn readers_and_the_writer_make_the_same_record() {
        let (header, bytes) = record(b"meta", &[5; 1200]);
        let sums = Sums::new(1);
        let parts = || vec![Part::Own(b"meta".to_vec()), Part::Shared([5; 1200].into())];
        let unwritten = || Unwritten::new(spot(), bytes.len() as u32, header, parts());
        let (read, written) = (unwritten(), unwritten());
        assert_eq!(*read.bytes(BLOCKS, &sums), bytes);
        for record in [written, read, Unwritten::made(spot(), bytes.clone())] {
            let (mut out, mut total) = (vec![9; bytes.len()], 0);
            record.write(BLOCKS, &sums, &mut out, &mut |made| total += made);
            assert_eq!(out, bytes);
            assert_eq!(total, bytes.len());
        }
    }

    #[test]
    fn every_length_is_stored_exactly_and_read_back() {
        let sums = Sums::new(1);
        for body_len in [0, 1, 430, 432, 433, 439, 440, 441, 504, 505, 1007, 1008, 1009, 5000] {
            let body: Vec<u8> = (0..body_len).map(|i| i as u8).collect();
            let (header, bytes) = record(b"meta", &body);
            let len = bytes.len() as u32;
            assert_eq!(u64::from(len), BLOCKS.stored_len(header.payload_len()));
            let mut payload = Vec::new();
            for number in 0..len.div_ceil(512) {
                let range = BLOCKS.range(number, len);
                let block = &bytes[range.start as usize..range.end as usize];
                let good = BLOCKS.check(&sums, &spot(), number, block).unwrap();
                payload.extend_from_slice(&block[..good]);
            }
            assert_eq!(Header::decode(&payload), Some(header));
            assert_eq!(&payload[64..68], b"meta");
            assert_eq!(payload[68..], body);
        }
    }

    #[test]
    fn a_block_is_valid_only_in_its_place() {
        let sums = Sums::new(1);
        let (_, bytes) = record(b"m", &[1; 900]);
        let block = &bytes[..512];
        assert!(BLOCKS.check(&sums, &spot(), 0, block).is_some());
        let others = [
            Spot { segment: 4, ..spot() },
            Spot { offset: 8, ..spot() },
            Spot { life: 8, ..spot() },
            Spot { print: 78, ..spot() },
        ];
        for other in others {
            assert!(BLOCKS.check(&sums, &other, 0, block).is_none(), "{other:?}");
        }
        assert!(BLOCKS.check(&sums, &spot(), 1, block).is_none());
        assert!(BLOCKS.check(&Sums::new(2), &spot(), 0, block).is_none());
        assert!(BLOCKS.check(&sums, &spot(), 0, &block[..7]).is_none());
        for bit in [0, 8 * 300, 8 * 511] {
            let mut rotten = block.to_vec();
            rotten[bit / 8] ^= 1;
            assert!(BLOCKS.check(&sums, &spot(), 0, &rotten).is_none());
        }
    }

    #[test]
    fn a_moved_record_is_valid_in_its_new_place() {
        let sums = Sums::new(1);
        let (header, mut bytes) = record(b"meta", &[7; 1500]);
        let to = Spot { segment: 9, offset: 64, life: 30, print: 77 };
        let mut moved = bytes.clone();
        assert!(BLOCKS.make_for(&sums, &spot(), &to, &mut moved));
        assert_eq!(moved, encoded(&to, &header, &[b"meta", &[7; 1500]]));
        bytes[1000] ^= 4;
        assert!(!BLOCKS.make_for(&sums, &spot(), &to, &mut bytes), "a corrupt record is not moved");
    }
}
