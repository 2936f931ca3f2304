//! The limits of what is stored and remembered.

use std::time::Duration;

/// Keys of variants that a URI remembers, so that they can be listed.
pub const VARIANTS_LISTED_MAX: usize = 32;
/// A body on the disk that is longer is not brought into memory: it is sent from where it is.
pub const SWAP_IN_BYTES_MAX: u64 = 256 * 1024;
/// What an unsafe method or a purge has changed is answered after this even if the disk has not
/// taken it.
pub const DURABLE_WAIT_MAX: Duration = Duration::from_secs(10);
/// How often it is looked whether a disk that another process has comes back.
pub const DISK_HANDOVER_POLL: Duration = Duration::from_millis(20);
/// How often it is looked whether the disk fails, to tell the log.
pub const DISK_LOOK: Duration = Duration::from_secs(1);
/// After so many looks without a failure it is told that the disk is well again: a disk that fails
/// is tried anew every minute at least.
pub const DISK_LOOKS_WELL: u32 = 120;
/// A response that the origin has confirmed for less than this is not written to the disk again.
pub const CONFIRMED_WRITTEN_MIN: Duration = Duration::from_secs(60);
/// Sets of names in `Vary` that are kept for one URI, and so look-ups for a request to it.
pub const VARY_SETS_MAX: usize = 8;
/// Variants that a request which selects none of them is asked for with, by their tags,
pub const VARIANTS_OFFERED_MAX: usize = 8;
/// and bytes of these tags: servers refuse long fields.
pub const OFFERED_BYTES_MAX: usize = 1024;
/// Tags of one response that are kept; one with more is taken by any purge by tag.
pub const TAGS_MAX: usize = 1024;
/// Slots of the store that one tick looks at to let go of what purges have taken.
pub const PURGE_SWEEP_SLOTS_PER_TICK: usize = 2048;
/// And so many of them under a shard's lock.
pub const PURGE_SWEEP_SLOTS_PER_LOCK: usize = 64;

const _: () = assert!(PURGE_SWEEP_SLOTS_PER_LOCK <= PURGE_SWEEP_SLOTS_PER_TICK);
