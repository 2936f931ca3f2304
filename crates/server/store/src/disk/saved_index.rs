//! The saved index: all entries at once. A start reads them instead of the objects, and older
//! journals can be discarded.
//!
//! ```text
//! 0      preamble, copy 1         8192   head, copy 1 | head, copy 2 | slice | slice | ...
//! 4096   preamble, copy 2         slice: count 4 | 0 4 | sum 8 | entries of 28 bytes
//! ```
//!
//! The head has the segments' lives and the purges. The preamble has the generation and the nonce
//! of the journal that follows. It is written when everything else is durable, so a good preamble
//! means that the index is complete. A corrupt slice loses its entries; a head with two corrupt
//! copies loses the store, because its purges are unknown.

use super::bytes::{Put, Take};
use super::checksum::Sums;
use super::journal::{Log, SavedEntry};
use super::segments::Alive;

const MAGIC: u64 = 0x504c_494d_5349_4458;
/// Offset of the second copy of the preamble.
pub(super) const COPY_BYTES: u64 = 4096;
/// Offset of the head.
pub(super) const HEAD_AT: u64 = 2 * COPY_BYTES;
/// Bytes of a preamble.
pub(super) const PREAMBLE_BYTES: usize = 64;
pub(super) const SLICE_HEADER_BYTES: usize = 16;
const _: () = assert!(PREAMBLE_BYTES as u64 <= COPY_BYTES && HEAD_AT >= 2 * COPY_BYTES);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Preamble {
    pub(super) generation: u64,
    /// Nonce of the journal that follows; seeds the sums here.
    pub(super) nonce: u64,
    pub(super) head_len: u64,
    pub(super) slices: u64,
    pub(super) entries: u64,
}

impl Preamble {
    pub(super) fn encode(&self, sums: &Sums) -> Vec<u8> {
        let mut out = Vec::with_capacity(PREAMBLE_BYTES);
        out.put_u64(MAGIC);
        let Preamble { generation, nonce, head_len, slices, entries } = *self;
        for number in [generation, nonce, head_len, slices, entries] {
            out.put_u64(number);
        }
        assert!(out.len() <= PREAMBLE_BYTES - 8, "the fields leave room for the sum");
        out.resize(PREAMBLE_BYTES - 8, 0);
        out.put_u64(Preamble::sum(sums, &out));
        debug_assert_eq!(Preamble::decode(sums, &out), Some(*self));
        out
    }

    pub(super) fn decode(sums: &Sums, bytes: &[u8]) -> Option<Preamble> {
        let (fields, sum) = bytes.get(..PREAMBLE_BYTES)?.split_at(PREAMBLE_BYTES - 8);
        let mut take = Take(fields);
        let good = Preamble::sum(sums, fields).to_le_bytes() == sum && take.u64()? == MAGIC;
        good.then_some(())?;
        Some(Preamble {
            generation: take.u64()?,
            nonce: take.u64()?,
            head_len: take.u64()?,
            slices: take.u64()?,
            entries: take.u64()?,
        })
    }

    /// The checksum of the preceding fields of a copy.
    pub(super) fn sum(sums: &Sums, fields: &[u8]) -> u64 {
        sums.chained(MAGIC, fields)
    }

    /// Offset of the slices. It is beyond every file if the length of the head is absurd.
    pub(super) fn slices_at(&self) -> u64 {
        self.head_len.saturating_mul(2).saturating_add(HEAD_AT)
    }
}

/// A copy of the head.
pub(super) fn encode_head(sums: &Sums, nonce: u64, alive: &[Alive], purges: &[u8]) -> Vec<u8> {
    debug_assert!(
        alive.iter().all(|(_, life, _)| *life != 0),
        "a segment that is saved has a life"
    );
    let mut out = Vec::with_capacity(16 + alive.len() * 11 + purges.len());
    out.put_u32(alive.len() as u32);
    for (segment, life, log) in alive {
        out.put_u16(*segment);
        out.put_u64(*life);
        out.put_u8(*log as u8);
    }
    out.put_u32(u32::try_from(purges.len()).expect("purges are bounded"));
    out.put(purges);
    out.put_u64(sums.chained(nonce, &out));
    assert!(out.len() == 16 + alive.len() * 11 + purges.len(), "the preamble has its length");
    out
}

/// The segments and purges of a head.
pub(super) fn decode_head<'b>(
    sums: &Sums,
    nonce: u64,
    bytes: &'b [u8],
) -> Option<(Vec<Alive>, &'b [u8])> {
    let (fields, sum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
    (sums.chained(nonce, fields).to_le_bytes() == sum).then_some(())?;
    let mut take = Take(fields);
    let mut alive = Vec::new();
    for _ in 0..take.u32()? {
        alive.push((take.u16()?, take.u64()?, Log::decode(take.u8()?)?));
    }
    let len = take.u32()?;
    Some((alive, take.bytes(usize::try_from(len).ok()?)?))
}

/// The header of a slice.
pub(super) fn slice_header(sums: &Sums, nonce: u64, entries: &[u8]) -> Vec<u8> {
    assert!(entries.len().is_multiple_of(SavedEntry::BYTES), "a slice has whole entries");
    let mut out = Vec::with_capacity(SLICE_HEADER_BYTES);
    out.put_u32((entries.len() / SavedEntry::BYTES) as u32);
    out.put_u32(0);
    out.put_u64(sums.chained(nonce, entries));
    assert!(out.len() == SLICE_HEADER_BYTES);
    out
}

/// The number of entries of a slice, from its header.
pub(super) fn decode_slice_header(header: &[u8]) -> Option<usize> {
    usize::try_from(Take(header).u32()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_preamble_or_head_is_rejected() {
        let sums = Sums::new(5);
        let preamble = Preamble { generation: 1, nonce: 2, head_len: 3, slices: 4, entries: 5 };
        let bytes = preamble.encode(&sums);
        assert_eq!(Preamble::decode(&sums, &bytes), Some(preamble));
        assert_eq!(Preamble::decode(&Sums::new(6), &bytes), None);
        let alive = vec![(1, 2, Log::Small), (3, 4, Log::Main)];
        let head = encode_head(&sums, 2, &alive, b"purges");
        assert_eq!(decode_head(&sums, 2, &head), Some((alive, &b"purges"[..])));
        assert_eq!(decode_head(&sums, 3, &head), None);
        for at in 0..head.len() {
            let mut torn = head.clone();
            torn[at] ^= 1;
            assert_eq!(decode_head(&sums, 2, &torn), None);
        }
        assert_eq!(decode_head(&sums, 2, b"short"), None);
    }
}
