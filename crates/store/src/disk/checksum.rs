//! Checksums that know what they are of.
//!
//! Every sum is XXH3 under a seed made of the store's own secret and of where and in which life the
//! bytes stand. So bytes of another record, of an older life of the same place, of another store,
//! or what a client has sent to look like ours, never pass for what was asked for.

use twox_hash::{XxHash3_64, XxHash3_128};

/// The maker of all checksums of one store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Sums {
    secret: u64,
}

/// Where a record stands, since when, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// The segment.
    pub(super) segment: u16,
    /// Where in the segment the record begins.
    pub(super) offset: u32,
    /// The segment's life: no two are the same, and in each a place is written once.
    pub(super) life: u64,
    /// The fingerprint of the record's key, by which the index knows it.
    pub(super) print: u64,
}

impl Sums {
    pub(super) fn new(secret: u64) -> Sums {
        Sums { secret }
    }

    /// Of a block of a record.
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

    /// Of bytes that follow what has the sum `before`.
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
