//! The limits of the disk store, and how they relate.

use std::time::Duration;

/// The layout of everything on the disk: another one is another store.
pub(super) const FORMAT_VERSION: u32 = 1;

/// Segments are at least so large, but in simulations.
pub(super) const SEGMENT_BYTES_MIN: u64 = 1024 * 1024;
/// And at most so large.
pub(super) const SEGMENT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Fewer leave eviction no choice.
pub const SEGMENTS_MIN: u32 = 16;
/// A segment's number has 16 bits.
pub const SEGMENTS_MAX: u32 = 1 << 16;
/// All segments together, and so any body, have at most so many bytes.
pub(super) const STORE_BYTES_MAX: u64 = SEGMENTS_MAX as u64 * SEGMENT_BYTES_MAX;
/// So many are aimed at, as long as the segments may be smaller.
pub(super) const SEGMENTS_WANTED: u64 = 128;

/// What is read, checked and sent at once.
pub const BLOCK_BYTES: u32 = 32 * 1024;
/// Bodies longer than this are cut into chunks, each a record of its own.
pub const CHUNK_BYTES_MAX: u32 = 1024 * 1024;
/// A chunk is at most this part of a segment, so that a segment's unused end is small.
pub(super) const CHUNKS_PER_SEGMENT_MIN: u32 = 4;
/// The caller's own bytes of an object.
pub const META_BYTES_MAX: u32 = 64 * 1024;
/// And at most this part of a segment.
pub(super) const METAS_PER_SEGMENT_MIN: u32 = 8;

/// One copy of a journal takes this part of the segments' bytes.
pub(super) const JOURNAL_SHARE: u64 = 128;
/// But at least so many bytes.
pub(super) const JOURNAL_BYTES_MIN: u64 = 256 * 1024;
/// And at most so many.
pub(super) const JOURNAL_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Two generations, two copies each.
pub(super) const JOURNAL_AREAS: u64 = 4;

/// Records begin at multiples of this.
pub(super) const ALIGNMENT: u32 = 8;

/// A reclaimed segment passes on at most this part of the bytes it holds: with it, what is moved is
/// never more than what was stored. See `reclaim`.
pub(super) const MOVED_SHARE: u64 = 2;
/// The log of new objects gives up its oldest segment first while it has more than this share.
pub(super) const SMALL_SHARE: u32 = 10;
/// Segments of which bodies are being read are not reclaimed, while they are at most this part.
pub(super) const HELD_SHARE: u32 = 4;
/// Segments kept free, so that a put finds one: at least so many.
pub(super) const SEGMENTS_FREE_MIN: u32 = 3;
/// Short ones are more, for a burst of so many bytes; but at most this part of the segments.
pub(super) const FREE_BYTES: u32 = 8 * 1024 * 1024;
pub(super) const FREE_SHARE: u32 = 10;
/// Of these, what only moved records may take.
pub(super) const SEGMENTS_FOR_MOVES: usize = 1;

/// The flusher writes when so many bytes wait.
pub(super) const WRITE_BATCH_BYTES: usize = 1024 * 1024;
/// And makes and writes so many at once, in a buffer that it keeps: two large pages with the gaps
/// between records. A core that is busy has its turn between two of these: with less, what is
/// written in a second is less than what may come.
pub(super) const WRITE_RUN_BYTES_MAX: usize = 4 * 1024 * 1024 - 64 * 1024;
/// Whoever makes records lets others go first after so many bytes, some 20 us.
pub(super) const GIVE_WAY_BYTES: usize = 64 * 1024;
/// But only while less waits than this part of what is kept free for a burst: on a processor that
/// is full its next turn is some milliseconds away.
pub(super) const GIVE_WAY_SHARE: usize = 16;
/// Shards of the index: one for each two segments, so that saving one under its lock is short.
pub(super) const SHARDS_MAX: usize = 256;
/// Entries in a chunk of the saved index.
pub(super) const ENTRIES_PER_SLICE: usize = 8 * 1024;

/// Failures in a row that turn writing off for a while.
pub(super) const FAILURES_MAX: u32 = 3;
/// For so long at first, and twice as long each time.
pub(super) const OFF_MIN: Duration = Duration::from_secs(1);
/// But no longer than this.
pub(super) const OFF_MAX: Duration = Duration::from_secs(60);

/// Numbers of one process begin behind those of all before it: its epoch stands in the upper bits.
pub(super) const EPOCH_SHIFT: u32 = 40;
/// A store that was opened so often is begun anew.
pub(super) const EPOCH_MAX: u32 = u32::MAX >> (EPOCH_SHIFT - 32);
/// Saved indexes are not counted further than this.
pub(super) const GENERATION_MAX: u64 = u64::MAX >> 1;

/// Records whose pages are watched, or that were read once: each has two mappings, of which a
/// process may have 65,530, and some 3 KiB of the kernel's memory a mebibyte.
pub(super) const SHARED_RECORDS_MAX: usize = 8 * 1024;
/// Of those that nobody asks for any more, so many leave when another comes.
pub(super) const LEAVING_AT_ONCE: usize = 4;
/// Records that are being verified while their pages are watched, however slowly they are read.
pub(super) const WATCHES_MAX: u32 = 1024;
/// Of each, what a look-up finds is kept if its metadata is no longer than this.
pub(super) const KNOWN_META_BYTES_MAX: usize = 4 * 1024;
/// Shorter records are copied.
pub(super) const SHARED_BYTES_MIN: u32 = 128 * 1024;

const _: () = assert!(SEGMENT_BYTES_MIN.is_power_of_two() && SEGMENT_BYTES_MAX.is_power_of_two());
const _: () = assert!(SEGMENTS_WANTED >= SEGMENTS_MIN as u64);
const _: () = assert!(SEGMENTS_FREE_MIN as usize > SEGMENTS_FOR_MOVES);
const _: () = assert!(SEGMENTS_FREE_MIN < SEGMENTS_MIN / 2);
// The longest record, with its checksums, fits into half a segment.
const _: () =
    assert!(1.0 / CHUNKS_PER_SEGMENT_MIN as f64 + 1.0 / (METAS_PER_SEGMENT_MIN as f64) < 0.45,);
const _: () = assert!(SHARDS_MAX.is_power_of_two() && SHARDS_MAX <= 256);
