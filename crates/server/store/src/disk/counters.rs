//! Counters of the disk store.
//!
//! The list is in one place, the macro call below. The fields, their names and their help for a
//! metrics page are made from it.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident,)+) => {
        /// A copy of a disk store's counters.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct DiskCounters {
            $($(#[doc = $help])+ pub $name: u64,)+
        }

        impl DiskCounters {
            /// Every counter as (name with `disk_` before it, help, value), in the order of the
            /// list.
            pub fn list(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((
                    concat!("disk_", stringify!($name)),
                    concat!($($help),+).trim_ascii(),
                    self.$name,
                ),)+]
            }
        }

        /// Where all cores count.
        #[derive(Debug, Default)]
        pub(super) struct Cells {
            $(pub(super) $name: AtomicU64,)+
        }

        impl Cells {
            pub(super) fn copy(&self) -> DiskCounters {
                DiskCounters { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

counters! {
    /// Look-ups that found an object whose first block was good.
    hits,
    /// Look-ups that found nothing.
    misses,
    /// Objects stored.
    puts,
    /// Chunks of large objects stored.
    chunk_puts,
    /// Heads rewritten with the old body.
    updates,
    /// Objects taken out on request.
    deletes,
    /// Purges noted.
    purges,
    /// Reads of blocks that were sent to clients.
    reads,
    /// Bytes of these.
    read_bytes,
    /// Blocks read and found good.
    blocks,
    /// Blocks sent zero-copy from the page cache, where they were verified before.
    zero_copy_blocks,
    /// Records whose blocks were verified in the page cache, to be sent zero-copy.
    zero_copy_records,
    /// Records of these that have left the page cache.
    zero_copy_evicted,
    /// Blocks taken from memory, because they were not written yet.
    blocks_buffered,
    /// Reads that would have blocked and went to the pool.
    reads_would_block,
    /// Reads that gave less than was asked for, and were followed by another.
    reads_short,
    /// Reads that gave nothing: the file ends before the record does.
    reads_zero,
    /// Blocks whose checksum was wrong.
    bad_blocks,
    /// Reads that failed.
    read_errors,
    /// Reads of what was moved or evicted meanwhile.
    overtaken,
    /// Records whose key was another one with the same fingerprint.
    other_keys,
    /// Objects dropped because a block of theirs was bad or could not be read.
    dropped_bad,
    /// Objects dropped because a chunk of theirs is gone.
    dropped_torn,
    /// Records evicted because room was needed.
    evicted,
    /// Bytes of these.
    evicted_bytes,
    /// Records lost with a segment that could not be written or synced.
    dropped_failed,
    /// Segments reclaimed.
    segments_reclaimed,
    /// Segments that went bad.
    segments_bad,
    /// Bytes of records written for clients.
    written_bytes,
    /// Bytes of records written because they were moved.
    moved_bytes,
    /// Records moved.
    moved,
    /// Bytes written to journals, both copies.
    journal_bytes,
    /// Bytes written to saved indexes.
    index_bytes,
    /// Saved indexes completed.
    index_saves,
    /// Calls that wrote.
    writes,
    /// Syncs.
    syncs,
    /// Writes that failed.
    write_errors,
    /// Syncs that failed.
    sync_errors,
    /// Objects refused: too large.
    refused_large,
    /// Objects refused: too many bytes wait to be written.
    refused_busy,
    /// Objects refused: no segment is free.
    refused_room,
    /// Objects refused: writing is off after failures.
    refused_off,
}

/// Adds to a counter.
pub(super) fn add(cell: &AtomicU64, count: u64) {
    cell.fetch_add(count, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_each_counter_with_its_help() {
        let cells = Cells::default();
        add(&cells.moved, 2);
        let list = cells.copy().list();
        assert!(list.contains(&("disk_moved", "Records moved.", 2)));
        assert!(list.iter().all(|(_, help, _)| !help.is_empty()));
    }
}
