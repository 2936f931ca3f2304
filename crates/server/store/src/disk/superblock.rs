//! The superblock: the identity of a store, in two copies, each in a separate sector.
//!
//! It has the shape, the seeds of keys and checksums, and how often the store was opened. That
//! count (the *epoch*) makes the numbers of lives, objects and purges of one process differ from
//! those of all others, even if the last ones of a crashed process are unknown.

use super::bytes::{Put, Take};
use super::checksum::Sums;
use super::geometry::Geometry;
use super::limits::FORMAT_VERSION;

const MAGIC: u64 = 0x504c_494d_534f_4c4c;
/// Offset of the second copy.
pub(super) const COPY_BYTES: u64 = 4096;
/// Bytes of a copy.
pub(super) const BYTES: usize = 96;
const _: () = assert!(BYTES as u64 <= COPY_BYTES, "the copies do not overlap");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) geometry: Geometry,
    /// Of the keys.
    pub(super) seeds: [u64; 2],
    /// Of the checksums.
    pub(super) secret: u64,
    pub(super) epoch: u32,
}

/// The result of reading a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    Good(Superblock),
    /// A copy of another format version.
    Other(u32),
    Nothing,
}

impl Superblock {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BYTES);
        out.put_u64(MAGIC);
        out.put_u32(FORMAT_VERSION);
        out.put_u32(self.epoch);
        let Geometry { segment_bytes, segments, block_bytes, chunk_bytes, journal_bytes } =
            self.geometry;
        for number in [segment_bytes, segments, block_bytes, chunk_bytes, journal_bytes, 0] {
            out.put_u32(number);
        }
        self.seeds.iter().for_each(|seed| out.put_u64(*seed));
        out.put_u64(self.secret);
        assert!(out.len() <= BYTES - 8, "the fields leave room for the sum");
        out.resize(BYTES - 8, 0);
        out.put_u64(sum(&out));
        debug_assert!(matches!(Superblock::decode(&out), Read::Good(block) if block == *self));
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Read {
        Superblock::take(bytes).unwrap_or(Read::Nothing)
    }

    fn take(bytes: &[u8]) -> Option<Read> {
        let (fields, found) = bytes.get(..BYTES)?.split_at(BYTES - 8);
        let mut take = Take(fields);
        let (magic, version) = (take.u64()?, take.u32()?);
        if magic != MAGIC || sum(fields).to_le_bytes() != found {
            return None;
        }
        if version != FORMAT_VERSION {
            return Some(Read::Other(version));
        }
        let epoch = take.u32()?;
        let geometry = Geometry {
            segment_bytes: take.u32()?,
            segments: take.u32()?,
            block_bytes: take.u32()?,
            chunk_bytes: take.u32()?,
            journal_bytes: take.u32()?,
        };
        take.u32()?;
        let seeds = [take.u64()?, take.u64()?];
        let secret = take.u64()?;
        geometry.is_sound().then_some(Read::Good(Superblock { geometry, seeds, secret, epoch }))
    }
}

/// The checksum of the preceding fields of a copy.
pub(super) fn sum(fields: &[u8]) -> u64 {
    Sums::new(MAGIC).chained(0, fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_copy_is_rejected() {
        let geometry = Geometry::for_bytes(1 << 30).unwrap();
        let block = Superblock { geometry, seeds: [1, 2], secret: 3, epoch: 4 };
        let bytes = block.encode();
        assert_eq!(bytes.len(), BYTES);
        assert_eq!(Superblock::decode(&bytes), Read::Good(block));
        for at in 0..BYTES {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            assert_eq!(Superblock::decode(&torn), Read::Nothing);
        }
        assert_eq!(Superblock::decode(&[]), Read::Nothing);
    }
}
