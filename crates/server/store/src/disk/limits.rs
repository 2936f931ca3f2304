//! The limits of the disk store, and how they relate.

use std::time::Duration;

/// The version of the format on disk. A store of another version is not opened.
pub(super) const FORMAT_VERSION: u32 = 1;

/// Minimum size of a segment, except in simulations.
pub(super) const SEGMENT_BYTES_MIN: u64 = 1024 * 1024;
/// Maximum size of a segment.
pub(super) const SEGMENT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// With fewer segments eviction has no choice.
pub const SEGMENTS_MIN: u32 = 16;
/// Segment numbers have 16 bits.
pub const SEGMENTS_MAX: u32 = 1 << 16;
/// Maximum size of all segments together, and so of any body.
pub(super) const STORE_BYTES_MAX: u64 = SEGMENTS_MAX as u64 * SEGMENT_BYTES_MAX;
/// Target number of segments, as long as the segments may be smaller.
pub(super) const SEGMENTS_WANTED: u64 = 128;

/// The unit that is read, verified and sent.
pub const BLOCK_BYTES: u32 = 32 * 1024;
/// Longer bodies are cut into chunks, each a separate record.
pub const CHUNK_BYTES_MAX: u32 = 1024 * 1024;
/// A chunk is at most a segment divided by this, so that little of a segment is wasted at its end.
pub(super) const CHUNKS_PER_SEGMENT_MIN: u32 = 4;
/// Maximum length of the caller's metadata for an object.
pub const META_BYTES_MAX: u32 = 64 * 1024;
/// And at most a segment divided by this.
pub(super) const METAS_PER_SEGMENT_MIN: u32 = 8;

/// One copy of a journal takes the store's bytes divided by this.
pub(super) const JOURNAL_SHARE: u64 = 128;
/// But at least this much.
pub(super) const JOURNAL_BYTES_MIN: u64 = 256 * 1024;
/// And at most this much.
pub(super) const JOURNAL_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Two generations, two copies each.
pub(super) const JOURNAL_AREAS: u64 = 4;

/// Records begin at multiples of this.
pub(super) const ALIGNMENT: u32 = 8;

/// At most the bytes of a reclaimed segment divided by this are moved. So the store never moves
/// more bytes than it stores. See `reclaim`.
pub(super) const MOVED_SHARE: u64 = 2;
/// The log of new objects is reclaimed first while it has more than the segments divided by this.
pub(super) const SMALL_SHARE: u32 = 10;
/// Segments that are being read are not reclaimed, up to the number of segments divided by this.
pub(super) const HELD_SHARE: u32 = 4;
/// Minimum number of segments kept free, so that a put finds one.
pub(super) const SEGMENTS_FREE_MIN: u32 = 3;
/// Short segments: as many as this many bytes take, but at most the segments divided by
/// `FREE_SHARE`.
pub(super) const FREE_BYTES: u32 = 8 * 1024 * 1024;
pub(super) const FREE_SHARE: u32 = 10;
/// Of these, reserved for moved records.
pub(super) const SEGMENTS_FOR_MOVES: usize = 1;

/// The flusher writes when this many bytes wait.
pub(super) const WRITE_BATCH_BYTES: usize = 1024 * 1024;
/// How often a writer that waits for room looks whether there is some.
pub(super) const ROOM_LOOK: Duration = Duration::from_millis(2);
/// Maximum of one write, made in a buffer that is kept: two large pages, including the gaps between
/// records. A busy core gets its turn between two writes; with smaller ones the disk cannot keep up
/// with a burst.
pub(super) const WRITE_RUN_BYTES_MAX: usize = 4 * 1024 * 1024 - 64 * 1024;
/// The writer yields to the cores after making this many bytes of records, about 20 us.
pub(super) const YIELD_BYTES: usize = 64 * 1024;
/// But only while less waits than the free segments' bytes divided by this: on a saturated
/// processor its next turn is some milliseconds away.
pub(super) const YIELD_SHARE: usize = 16;
/// Maximum shards of the index. There is one per two segments, so that saving one under its lock is
/// short.
pub(super) const SHARDS_MAX: usize = 256;
/// Entries in a slice of the saved index.
pub(super) const ENTRIES_PER_SLICE: usize = 8 * 1024;

/// Consecutive failures that turn writing off.
pub(super) const FAILURES_MAX: u32 = 3;
/// How long it stays off the first time; doubled each time.
pub(super) const OFF_MIN: Duration = Duration::from_secs(1);
/// And the maximum.
pub(super) const OFF_MAX: Duration = Duration::from_secs(60);

/// The upper bits of a number are the epoch of its process, so numbers rise across processes.
pub(super) const EPOCH_SHIFT: u32 = 40;
/// A store opened this often is replaced by an empty one.
pub(super) const EPOCH_MAX: u32 = u32::MAX >> (EPOCH_SHIFT - 32);
/// Maximum generation of a saved index.
pub(super) const GENERATION_MAX: u64 = u64::MAX >> 1;

/// Maximum number of records that are watched or were read once. Each has two mappings, of which a
/// process may have 65,530, and about 3 KiB of kernel memory per mebibyte.
pub(super) const SHARED_RECORDS_MAX: usize = 8 * 1024;
/// How many unused records are dropped when another comes.
pub(super) const LEAVING_AT_ONCE: usize = 4;
/// Maximum number of records being verified while watched, however slow their readers.
pub(super) const WATCHES_MAX: u32 = 1024;
/// The metadata of a watched record is kept in memory if it is no longer than this.
pub(super) const KNOWN_META_BYTES_MAX: usize = 4 * 1024;
/// Shorter records are copied.
pub(super) const SHARED_BYTES_MIN: u32 = 128 * 1024;

const _: () = assert!(SEGMENT_BYTES_MIN.is_power_of_two() && SEGMENT_BYTES_MAX.is_power_of_two());
const _: () = assert!(SEGMENT_BYTES_MIN < SEGMENT_BYTES_MAX && SEGMENT_BYTES_MAX < u32::MAX as u64);
const _: () = assert!(SEGMENTS_WANTED >= SEGMENTS_MIN as u64);
const _: () = assert!(SEGMENTS_WANTED <= SEGMENTS_MAX as u64);
const _: () = assert!(SEGMENTS_MAX == u16::MAX as u32 + 1);
// A record of one block, of one chunk and of the longest metadata fits into the shortest segment.
const _: () = assert!(BLOCK_BYTES as u64 <= SEGMENT_BYTES_MIN);
const _: () =
    assert!(BLOCK_BYTES.is_multiple_of(ALIGNMENT) && CHUNK_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(META_BYTES_MAX as u64 <= SEGMENT_BYTES_MIN / METAS_PER_SEGMENT_MIN as u64);
const _: () = assert!(CHUNK_BYTES_MAX as u64 <= SEGMENT_BYTES_MAX / CHUNKS_PER_SEGMENT_MIN as u64);
const _: () = assert!(KNOWN_META_BYTES_MAX <= META_BYTES_MAX as usize);
// Each copy of a journal begins at a page, and its offsets have 32 bits.
const _: () =
    assert!(JOURNAL_BYTES_MIN.is_multiple_of(4096) && JOURNAL_BYTES_MAX.is_multiple_of(4096));
const _: () = assert!(JOURNAL_BYTES_MIN < JOURNAL_BYTES_MAX && JOURNAL_BYTES_MAX < u32::MAX as u64);
const _: () = assert!(JOURNAL_AREAS < JOURNAL_SHARE);
const _: () = assert!(ALIGNMENT.is_power_of_two());
// At most half of what is reclaimed is moved, or moving would not end.
const _: () = assert!(MOVED_SHARE >= 2);
const _: () = assert!(SMALL_SHARE <= SEGMENTS_MIN && HELD_SHARE <= SEGMENTS_MIN);
const _: () = assert!(SEGMENTS_FREE_MIN as usize > SEGMENTS_FOR_MOVES);
const _: () = assert!(SEGMENTS_FREE_MIN < SEGMENTS_MIN / 2);
// A batch is written by one call, and the writer yields within it.
const _: () = assert!(YIELD_BYTES < WRITE_BATCH_BYTES && WRITE_BATCH_BYTES < WRITE_RUN_BYTES_MAX);
// A chunk with its header and its checksums is one write.
const _: () =
    assert!(CHUNK_BYTES_MAX as usize + CHUNK_BYTES_MAX as usize / 64 < WRITE_RUN_BYTES_MAX);
// After a pause one failure is enough to turn writing off again.
const _: () = assert!(FAILURES_MAX > 1 && OFF_MIN.as_nanos() < OFF_MAX.as_nanos());
// The epoch and the numbers of one process fill 64 bits.
const _: () = assert!(EPOCH_SHIFT > 32 && EPOCH_SHIFT < u64::BITS);
const _: () = assert!((EPOCH_MAX as u64) << EPOCH_SHIFT >> EPOCH_SHIFT == EPOCH_MAX as u64);
// A third may be young, another third old, and what leaves is dropped faster than records come.
const _: () = assert!(LEAVING_AT_ONCE > 1 && SHARED_RECORDS_MAX / 3 > LEAVING_AT_ONCE);
// Two mappings each, of all mappings that a process may have.
const _: () = assert!(2 * (SHARED_RECORDS_MAX + WATCHES_MAX as usize) < 65_530 / 2);
// A record that is sent zero-copy has a block that a look-up does not read.
const _: () = assert!(SHARED_BYTES_MIN > BLOCK_BYTES && SHARED_BYTES_MIN < CHUNK_BYTES_MAX);
// The longest record, with its checksums, fits into half a segment.
const _: () =
    assert!(1.0 / CHUNKS_PER_SEGMENT_MIN as f64 + 1.0 / (METAS_PER_SEGMENT_MIN as f64) < 0.45,);
const _: () = assert!(SHARDS_MAX.is_power_of_two() && SHARDS_MAX <= 256);
