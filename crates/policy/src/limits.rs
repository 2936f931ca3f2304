//! Limits on what rules read and remember.

use std::time::Duration;

/// Bytes of a TLS ClientHello that are read to find its server name. The largest in use, with
/// post-quantum keys, have 2 KiB.
pub const CLIENT_HELLO_BYTES_MAX: usize = 16 * 1024;
/// Requests of one core that wait for their passwords to be verified; one more is answered 503.
pub const PASSWORDS_WAITING_MAX: usize = 64;
/// Verified passwords that all cores together remember; beyond that, all are forgotten.
pub const PASSWORDS_KNOWN_MAX: usize = 10_000;
/// How long a verified password is remembered. One that a reload removes is verified again at once.
pub const PASSWORD_KNOWN_FOR: Duration = Duration::from_secs(300);
