//! The limits of the process.

use std::time::Duration;

/// Descriptors reserved for logs, pollers, listeners and the admin address.
pub(crate) const DESCRIPTORS_RESERVED: usize = 64;
/// The percentage of the others that clients may take. The remainder is for connections to
/// upstreams, so that any number of clients does not turn every miss into a 502.
pub(crate) const DESCRIPTORS_OF_CLIENTS_PERCENT: usize = 75;
/// Connections that a core accepts before it serves those it has.
pub(crate) const ACCEPTS_PER_TURN_MAX: usize = 64;
/// Queries of other caches that are answered before other work of the core has its turn.
pub(crate) const QUERIES_PER_TURN_MAX: usize = 32;
/// Answers per second to queries from addresses that may not ask. The others get none.
pub(crate) const DENIALS_PER_SECOND_MAX: u32 = 10;
/// Purges per second that other caches may send. The others are ignored, as if lost on the way.
pub(crate) const CLEARS_PER_SECOND_MAX: u32 = 100;
/// The largest body of a call to the admin address, in bytes.
pub(crate) const ADMIN_BODY_BYTES_MAX: usize = 64 * 1024;
/// Pages of the dashboard that may be open at once.
pub(crate) const PAGES_MAX: usize = 16;
/// The longest measurement of the locks for one call, in seconds.
pub(crate) const LOCKS_SECONDS_MAX: u64 = 60;
/// How long a change waits for the successor's reply. The successor waits as long for its disk.
pub(crate) const TAKEN_IN_WAIT_MAX: Duration = Duration::from_secs(20);
