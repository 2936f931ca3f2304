//! The limits of work with upstream servers.

use std::time::Duration;

/// An address that neither accepts nor refuses has so long before the next is tried beside it
/// (RFC 8305, 8).
pub(crate) const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// A request that waits for a server looks by itself so often, beside being called.
pub(crate) const QUEUE_LOOK: Duration = Duration::from_millis(250);
/// How often servers with names are looked at: whether the time of their addresses is over.
pub(crate) const ATTEND: Duration = Duration::from_secs(1);
/// Bytes of the head that answers a health check; what is longer is no good answer.
pub(crate) const CHECK_HEAD_BYTES_MAX: usize = 16 * 1024;
/// A connection to an upstream is tried so often again while there is no descriptor for it.
pub(crate) const ROOM_TRIES: u32 = 4;
