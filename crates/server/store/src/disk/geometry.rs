//! The shape of a store: its segments, blocks, chunks and journals.

use super::limits::{
    BLOCK_BYTES, CHUNK_BYTES_MAX, CHUNKS_PER_SEGMENT_MIN, FREE_BYTES, FREE_SHARE, JOURNAL_AREAS,
    JOURNAL_BYTES_MAX, JOURNAL_BYTES_MIN, JOURNAL_SHARE, META_BYTES_MAX, METAS_PER_SEGMENT_MIN,
    SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENTS_FREE_MIN, SEGMENTS_MAX, SEGMENTS_MIN,
    SEGMENTS_WANTED,
};

/// The shape of a store. It is written to the store and never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a segment, a power of two.
    pub segment_bytes: u32,
    /// Number of segments.
    pub segments: u32,
    /// Bytes of a block, including its checksum.
    pub block_bytes: u32,
    /// Bytes of a chunk of a body.
    pub chunk_bytes: u32,
    /// Bytes of one copy of one journal.
    pub journal_bytes: u32,
}

impl Geometry {
    /// The shape for a store of this many bytes, journals included. `None`: too few for
    /// [`SEGMENTS_MIN`] segments.
    #[must_use]
    pub fn for_bytes(bytes: u64) -> Option<Geometry> {
        let journal = bytes / JOURNAL_SHARE;
        let journal = journal.clamp(JOURNAL_BYTES_MIN, JOURNAL_BYTES_MAX) & !4095;
        let left = bytes.checked_sub(JOURNAL_AREAS * journal)?;
        let wanted = (left / SEGMENTS_WANTED).max(1);
        let segment = 1_u64 << wanted.ilog2();
        let segment = segment.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let segments = (left / segment).min(u64::from(SEGMENTS_MAX));
        let segments = u32::try_from(segments).expect("no more than SEGMENTS_MAX");
        if segments < SEGMENTS_MIN {
            return None;
        }
        let geometry = Geometry {
            segment_bytes: u32::try_from(segment).expect("no more than SEGMENT_BYTES_MAX"),
            segments,
            block_bytes: BLOCK_BYTES,
            chunk_bytes: CHUNK_BYTES_MAX.min(segment as u32 / CHUNKS_PER_SEGMENT_MIN),
            journal_bytes: u32::try_from(journal).expect("no more than JOURNAL_BYTES_MAX"),
        };
        assert!(geometry.is_sound(), "the shape of a new store can be read: {geometry:?}");
        assert!(geometry.data_bytes() + JOURNAL_AREAS * journal <= bytes, "it fits");
        Some(geometry)
    }

    /// A small shape for simulations, in which everything happens soon.
    #[must_use]
    pub const fn tiny(segments: u32) -> Geometry {
        Geometry {
            segment_bytes: 64 * 1024,
            segments,
            block_bytes: 4096,
            chunk_bytes: 16 * 1024,
            journal_bytes: 8 * 1024,
        }
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        u64::from(self.segment_bytes) * u64::from(self.segments)
    }

    /// Number of segments kept free for a burst of puts.
    pub(super) fn segments_free(&self) -> usize {
        let burst = (FREE_BYTES / self.segment_bytes).min(self.segments / FREE_SHARE);
        let free = burst.max(SEGMENTS_FREE_MIN);
        assert!(free < self.segments / 2, "most segments have objects");
        free as usize
    }

    /// Whether a segment can be detached from pages that are being sent.
    pub(super) fn can_detach(&self) -> bool {
        u64::from(self.segment_bytes).is_multiple_of(runtime::fs::DETACHED_BYTES)
    }

    /// Maximum length of metadata.
    #[must_use]
    pub fn meta_bytes_max(&self) -> u32 {
        META_BYTES_MAX.min(self.segment_bytes / METAS_PER_SEGMENT_MIN)
    }

    /// Maximum length of a body. New objects have a tenth of the segments, and a body must not
    /// evict its own beginning.
    #[must_use]
    pub fn body_bytes_max(&self) -> u64 {
        let bytes = u64::from(self.segments / 20).max(1) * u64::from(self.segment_bytes);
        assert!(bytes <= self.data_bytes() / 10, "a body does not evict its own beginning");
        bytes
    }

    /// Whether the parts fit together, as they must in a store that was read.
    pub(super) fn is_sound(&self) -> bool {
        (SEGMENTS_MIN..=SEGMENTS_MAX).contains(&self.segments)
            && self.segment_bytes.is_power_of_two()
            && u64::from(self.segment_bytes) <= SEGMENT_BYTES_MAX
            && (512..=self.segment_bytes).contains(&self.block_bytes)
            && self.chunk_bytes <= self.segment_bytes / CHUNKS_PER_SEGMENT_MIN
            && self.chunk_bytes >= 1024
            && (4096..=JOURNAL_BYTES_MAX as u32).contains(&self.journal_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_has_enough_segments_and_fits_the_bytes() {
        assert_eq!(Geometry::for_bytes(16 << 20), None, "the journals need room too");
        for bytes in [18 << 20, 64 << 20, 1 << 30, 100 << 30, 9 << 40] {
            let geometry = Geometry::for_bytes(bytes).unwrap();
            assert!(geometry.is_sound(), "{geometry:?}");
            let journals = JOURNAL_AREAS * u64::from(geometry.journal_bytes);
            assert!(geometry.data_bytes() + journals <= bytes);
            assert!(geometry.segments as u64 >= 16);
        }
        assert_eq!(Geometry::for_bytes(64 << 20).unwrap().segment_bytes, 1 << 20);
        assert_eq!(Geometry::for_bytes(100 << 30).unwrap().segment_bytes, 64 << 20);
        assert!(Geometry::tiny(16).is_sound());
    }
}
