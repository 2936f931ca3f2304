//! Checksums bound to their place.
//!
//! Every sum is XXH3 with a seed made of the store's secret, the place of the bytes and the life of
//! their segment. So bytes of another record, of an older life of the same place, of another store,
//! or bytes a client sent to imitate a record, never pass for the requested ones.

use twox_hash::{XxHash3_64, XxHash3_128};

/// Computes all checksums of one store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Sums {
    secret: u64,
}

/// The place of a record, the life of its segment, and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) segment: u16,
    /// The offset of the record in its segment.
    pub(super) offset: u32,
    /// The segment's life. Lives are unique, and a place is written once in each.
    pub(super) life: u64,
    /// The fingerprint of the record's key, as in the index.
    pub(super) print: u64,
}

impl Sums {
    pub(super) fn new(secret: u64) -> Sums {
        Sums { secret }
    }

    /// The sum of a block of a record.
    pub(super) fn block(&self, spot: &Spot, number: u32, bytes: &[u8]) -> u64 {
        let mut context = [0; 26];
        context[..8].copy_from_slice(&spot.print.to_le_bytes());
        context[8..16].copy_from_slice(&spot.life.to_le_bytes());
        context[16..20].copy_from_slice(&spot.offset.to_le_bytes());
        context[20..22].copy_from_slice(&spot.segment.to_le_bytes());
        context[22..26].copy_from_slice(&number.to_le_bytes());
        if planted::is(planted::Bug::DiskLifeUnchecked) {
            context[8..16].fill(0);
        }
        XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot_with_seed(self.secret, &context), bytes)
    }

    /// The sum of bytes that follow bytes with the sum `before`.
    pub(super) fn chained(&self, before: u64, bytes: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.secret ^ before.rotate_left(17), bytes)
    }

    /// The key of a chunk of an object.
    pub(super) fn chunk_key(&self, key: u128, object: u64, number: u32) -> u128 {
        let mut context = [0; 28];
        context[..16].copy_from_slice(&key.to_le_bytes());
        context[16..24].copy_from_slice(&object.to_le_bytes());
        context[24..].copy_from_slice(&number.to_le_bytes());
        XxHash3_128::oneshot_with_seed(!self.secret, &context)
    }
}
