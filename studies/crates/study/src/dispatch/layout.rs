//! The memory of a server, and the part of it that a turn touches.
//!
//! The papers say only "an array of large data structures, indexed by file descriptor". The sizes
//! here are assumptions, all in this file: an entry of 256 bytes holds what Squid kept for a
//! descriptor (handlers and their arguments, timeouts, the peer's address, a note). The rest is a
//! small server that reads a request, looks up an object of 1 KiB and copies it out.

/// Bytes of an entry of the table.
pub(super) const ENTRY_BYTES: u64 = 256;
/// Bytes of an entry that the walk reads: the two handlers, and until when it is stalled.
pub(super) const WALKED_BYTES: u64 = 24;
/// Connections that become ready; all others are silent.
pub(super) const HOT: u32 = 64;
/// Bytes of the state of a connection's request, on the heap.
pub(super) const STATE_BYTES: u64 = 768;
/// Bytes of a request.
pub(super) const REQUEST_BYTES: u64 = 256;
/// Objects, and the bytes of one.
pub(super) const OBJECTS: u64 = 2_000;
pub(super) const OBJECT_BYTES: u64 = 1024;
/// Bytes of the index of objects, and how many places of it a look-up reads.
pub(super) const INDEX_BYTES: u64 = 1 << 20;
pub(super) const INDEX_LOOKS: usize = 4;
/// Bytes that every request touches: lists of free memory, counters, the stack.
pub(super) const COMMON_BYTES: u64 = 3 << 10;
/// Bytes of a line of the log, and of its buffer.
pub(super) const LOG_LINE_BYTES: u64 = 128;
pub(super) const LOG_BYTES: u64 = 64 << 10;
/// Bytes of an event, and of the slot that a token leads to (our server).
pub(super) const EVENT_BYTES: u64 = 16;
pub(super) const SLOT_BYTES: u64 = 64;

/// The distance between the parts: large, and no multiple of a cache's size.
const APART: u64 = (1 << 30) + 1344;

/// A part of the memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Table,
    Bitmaps,
    Events,
    Slots,
    States,
    Buffers,
    Objects,
    Index,
    Common,
    Log,
}

impl Part {
    /// The address of a byte of it.
    pub(super) fn at(self, offset: u64) -> u64 {
        (self as u64 + 1) * APART + offset
    }
}

/// The descriptor of a hot connection: hot ones are spread evenly over all.
pub(super) fn descriptor_of(hot: u32, descriptors: u32) -> u32 {
    let hot = hot % HOT;
    u32::try_from(u64::from(hot) * u64::from(descriptors) / u64::from(HOT)).unwrap_or(hot)
}

/// Bytes of a bitmap with a bit for each descriptor.
pub(super) fn bitmap_bytes(descriptors: u32) -> u64 {
    u64::from(descriptors).div_ceil(64) * 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_descriptors_are_spread_evenly() {
        let mut all: Vec<u32> = (0..HOT).map(|hot| descriptor_of(hot, 1581)).collect();
        assert_eq!((all[0], all[63]), (0, 1556));
        all.dedup();
        assert_eq!(all.len(), 64);
    }

    #[test]
    fn parts_do_not_overlap() {
        assert!(Part::Table.at(ENTRY_BYTES * 1_000_000) < Part::Bitmaps.at(0));
        assert_eq!(bitmap_bytes(65), 16);
    }
}
