//! Limits on the work with upstream servers.

use std::time::Duration;

/// How long an address may neither accept nor refuse before the next one is tried in parallel
/// (RFC 8305, 8).
pub(crate) const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// How often a request that waits for a server looks by itself, besides being called.
pub(crate) const QUEUE_LOOK: Duration = Duration::from_millis(250);
/// How often named servers are checked for expired addresses.
pub(crate) const ATTEND: Duration = Duration::from_secs(1);
/// The largest head that answers a health check; a longer one is a failure.
pub(crate) const CHECK_HEAD_BYTES_MAX: usize = 16 * 1024;
/// How often a connection to an upstream is retried while no descriptor is free.
pub(crate) const ROOM_TRIES: u32 = 4;
