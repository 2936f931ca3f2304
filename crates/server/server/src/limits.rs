//! The limits of the process.

use std::time::Duration;

/// Descriptors reserved for logs, pollers, listeners and the admin address; at most half of all.
pub(crate) const DESCRIPTORS_RESERVED: usize = 64;
/// The percentage of the others that clients may take. The remainder is for connections to
/// upstreams, so that any number of clients does not turn every miss into a 502.
pub(crate) const DESCRIPTORS_OF_CLIENTS_PERCENT: usize = 75;
/// How often the file that switches maintenance on is looked at.
pub(crate) const MAINTENANCE_LOOK: Duration = Duration::from_secs(1);
/// Connections that a core accepts before it serves those it has.
pub(crate) const ACCEPTS_PER_TURN_MAX: usize = 64;
/// Queries of other caches that wait for the disk at a time. Beyond it, the network that sent the
/// most of them loses its oldest, as if it was lost on the way.
pub(crate) const QUERIES_READING_MAX: u64 = 64;
/// Queries of other caches that are answered before other work of the core has its turn.
pub(crate) const QUERIES_PER_TURN_MAX: usize = 32;
/// Answers per second to queries from addresses that may not ask. The others get none.
pub(crate) const DENIALS_PER_SECOND_MAX: u32 = 10;
/// Purges per second that one other cache may send. The others are ignored, as if lost on the way.
pub(crate) const CLEARS_PER_SECOND_MAX: u32 = 100;
/// Such purges per second from all other caches together.
pub(crate) const ALL_CLEARS_PER_SECOND_MAX: u32 = 1_000;
/// Caches whose purges are counted at a time. A new one takes the place of the one whose second
/// began first.
pub(crate) const CLEARING_MAX: usize = 64;
/// How often it is logged at most that such purges were ignored.
pub(crate) const IGNORED_LOGGED_EVERY: Duration = Duration::from_secs(60);

/// Slots of the store in memory that one slice of making a digest visits ...
pub(crate) const DIGEST_SLOTS_PER_SLICE: usize = 256;
/// ... or records that it reads from the disk, each at most one block: at least so many ...
pub(crate) const DIGEST_READS_PER_SLICE: usize = 2;
/// ... and so many if there are more than can be read in time.
pub(crate) const DIGEST_READS_PER_SLICE_MAX: usize = 10;
/// Responses in memory that are remembered while the disk is read, with up to 18 bytes each. The
/// others are read from the disk, too.
pub(crate) const DIGEST_PRINTS_MAX: usize = 1_500_000;
/// The pause between two slices.
pub(crate) const DIGEST_SLICE_EVERY: Duration = Duration::from_millis(10);
/// URLs for which a digest has room besides those that were stored when it was begun, and an eighth
/// of these.
pub(crate) const DIGEST_SPARE_URLS: usize = 64;
/// When the second digest is made at the latest. The time doubles until it is that of the
/// configuration.
pub(crate) const DIGEST_FIRST_AFTER: Duration = Duration::from_secs(60);
/// The digest of a peer is fetched at most so often ...
pub(crate) const DIGEST_EVERY_MIN: Duration = Duration::from_secs(60);
/// ... and at least so often, whatever the peer says.
pub(crate) const DIGEST_EVERY_MAX: Duration = Duration::from_secs(3600);
/// How long the fetch of a digest may take.
pub(crate) const DIGEST_FETCH_MAX: Duration = Duration::from_secs(60);
/// Connections to the admin address that have not sent a whole call. Beyond it, the network that
/// has the most of them loses its oldest.
pub(crate) const ADMIN_SILENT_MAX: u64 = 256;
/// Calls to the admin address that are answered at a time. One more is answered 503.
pub(crate) const ADMIN_ANSWERS_MAX: usize = 64;
/// The largest body of a call to the admin address, in bytes.
pub(crate) const ADMIN_BODY_BYTES_MAX: usize = 64 * 1024;
/// Pages of the dashboard that may be open at once.
pub(crate) const PAGES_MAX: usize = 16;
/// The longest measurement of the locks for one call, in seconds.
pub(crate) const LOCKS_SECONDS_MAX: u64 = 60;
const _: () = assert!(DIGEST_EVERY_MIN.as_secs() < DIGEST_EVERY_MAX.as_secs());
const _: () = assert!(CLEARS_PER_SECOND_MAX < ALL_CLEARS_PER_SECOND_MAX);
const _: () = assert!(DIGEST_READS_PER_SLICE <= DIGEST_READS_PER_SLICE_MAX);
const _: () = assert!(DIGEST_FETCH_MAX.as_secs() <= DIGEST_EVERY_MIN.as_secs());

/// How long a change waits for the successor's reply. The successor waits as long for its disk.
pub(crate) const TAKEN_IN_WAIT_MAX: Duration = Duration::from_secs(20);
/// How often the successor gets purges that members of the cluster have not acknowledged here.
pub(crate) const BACKLOG_SENT_EVERY: Duration = Duration::from_secs(1);
