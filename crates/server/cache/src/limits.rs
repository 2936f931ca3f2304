//! The limits of the cache.

use std::time::Duration;

/// Maximum variant keys that a URI remembers, for listing.
pub const VARIANTS_LISTED_MAX: usize = 32;
/// A longer body on the disk is not read into memory, but sent from the disk.
pub const SWAP_IN_BYTES_MAX: u64 = 256 * 1024;
/// An unsafe method or purge is acknowledged after this time even if the disk has not stored it.
pub const DURABLE_WAIT_MAX: Duration = Duration::from_secs(10);
/// How often to check whether a disk in use by another process is free.
pub const DISK_HANDOVER_POLL: Duration = Duration::from_millis(20);
/// How often to check whether the disk fails, for the log.
pub const DISK_LOOK: Duration = Duration::from_secs(1);
/// Successful checks before the log reports that the disk works again. A failing disk is retried at
/// least every minute.
pub const DISK_LOOKS_WELL: u32 = 120;
/// A response confirmed for less than this is not written to the disk again.
pub const CONFIRMED_WRITTEN_MIN: Duration = Duration::from_secs(60);
/// Maximum `Vary` sets of one URI, and so look-ups per request.
pub const VARY_SETS_MAX: usize = 8;
/// Maximum stored responses of one URI that are noted while other fetches of it are in flight.
/// Beyond it, the fetches that overlap with a dropped note store nothing.
pub const NOTES_MAX: usize = 64;
/// Maximum variants offered to the origin, by their tags, in a request that selects none,
pub const VARIANTS_OFFERED_MAX: usize = 8;
/// and maximum bytes of these tags, because servers refuse long fields.
pub const OFFERED_BYTES_MAX: usize = 1024;
/// Maximum bytes of the cookies and fields in a key; a request with more does not use the store.
pub const KEY_PARTS_BYTES_MAX: usize = 4096;
/// A hit whose stored URI differs from the requested one has at most this long a path and query.
/// Others are answered by an exchange.
pub const STORED_PATH_ON_STACK: usize = 2048;
/// Parameters of a query that a hit sorts, in the same way.
pub const PARAMETERS_ON_STACK: usize = 32;
/// Maximum stored tags of one response. A response with more matches any purge by tag.
pub const TAGS_MAX: usize = 1024;
/// Slots for the doubts of URLs, of 4 bytes each, if peers are configured.
pub const DOUBT_SLOTS: usize = 1 << 20;
/// Doubts of prefixes. Beyond it everything is in doubt.
pub const DOUBT_PREFIXES_MAX: usize = 256;
/// The records of purges stay at least so long, unless there are many. A response whose fetch began
/// before records were dropped counts as purged, because it is not known what they concerned.
pub const PURGE_RECORDS_KEPT: Duration = Duration::from_secs(30);
/// Slots of the store per tick that a sweep checks.
pub const PURGE_SWEEP_SLOTS_PER_TICK: usize = 2048;
/// And slots per lock of a shard.
pub const PURGE_SWEEP_SLOTS_PER_LOCK: usize = 64;
/// With more slots than these in memory, the responses that a purge removes are not counted: a walk
/// takes about a quarter of a microsecond for each.
pub const PURGE_COUNTED_SLOTS_MAX: usize = 4 << 20;
/// Memory that is reserved for a form while it is made, as a multiple of its greatest length: for
/// the buffer, and for the copy that stays. All forms together have as much as one of the length
/// [`Cache::memory_object_bytes_max`](crate::Cache::memory_object_bytes_max).
pub const FORM_COPIES: u64 = 2;
/// How often a new form is added again after its entry was replaced meanwhile.
pub const FORM_ADDED_TRIES_MAX: usize = 8;
/// Maximum requests that wait for one decoded form.
pub const FORM_WAITERS_MAX: usize = 1024;

/// Purges that wait for one member to acknowledge them. Beyond it everything is purged there.
pub const BACKLOG_MAX: usize = 1024;
/// Bytes of them.
pub const BACKLOG_BYTES_MAX: usize = 1024 * 1024;
/// Addresses that are members no longer, for which purges are kept in case that they come back.
pub const MEMBERS_GONE_MAX: usize = 32;

const _: () = assert!(
    config::limits::CODING_JOBS_MAX < runtime::fs::THREADS_MAX as u64,
    "the disk keeps some threads of the pool"
);
const _: () = assert!(NOTES_MAX >= VARIANTS_LISTED_MAX);
const _: () = assert!(PARAMETERS_ON_STACK <= STORED_PATH_ON_STACK);
const _: () = assert!(PURGE_SWEEP_SLOTS_PER_LOCK <= PURGE_SWEEP_SLOTS_PER_TICK);
