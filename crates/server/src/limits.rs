//! The limits of the process.

use std::time::Duration;

/// Descriptors of the process that clients do not get: logs, pollers, listeners, the admin.
pub(crate) const DESCRIPTORS_RESERVED: usize = 64;
/// Of the others, the share that clients may take, in percent; what is left is for connections to
/// upstreams, so that clients in any number do not turn every miss into a 502.
pub(crate) const DESCRIPTORS_OF_CLIENTS_PERCENT: usize = 75;
/// Accepted connections before a core looks at the ones it has.
pub(crate) const ACCEPTS_PER_TURN_MAX: usize = 64;
/// Bytes of the body of a call to the admin address.
pub(crate) const ADMIN_BODY_BYTES_MAX: usize = 64 * 1024;
/// Longest that the locks are counted for one call, seconds.
pub(crate) const LOCKS_SECONDS_MAX: u64 = 60;
/// And after this even if the process that takes our place has not replied; that waits as long for
/// its own disk.
pub(crate) const TAKEN_IN_WAIT_MAX: Duration = Duration::from_secs(20);
