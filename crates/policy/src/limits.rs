//! The limits of what rules look at and remember.

use std::time::Duration;

/// Bytes of a TLS ClientHello that is read to find its server name; the largest in use, with keys
/// of post-quantum groups, have 2 KiB.
pub const CLIENT_HELLO_BYTES_MAX: usize = 16 * 1024;
/// Requests of one core whose passwords wait to be verified; one more is answered 503.
pub const PASSWORDS_WAITING_MAX: usize = 64;
/// Passwords that are known to be right, all cores together; beyond it all are forgotten.
pub const PASSWORDS_KNOWN_MAX: usize = 10_000;
/// How long a password counts as known: what a reload takes away is asked for again at once.
pub const PASSWORD_KNOWN_FOR: Duration = Duration::from_secs(300);
