//! The limits of what is asked and read.
//!
//! Let's Encrypt takes 5 failed checks of a name within an hour, 5 certificates for the same name
//! within a week, and 300 orders of an account within three hours.

use std::time::Duration;

/// Time until the first attempt after a failure. Each further failure doubles it.
pub const BACK_OFF_MIN: Duration = Duration::from_secs(5 * 60);
/// The longest time between two attempts, without the jitter.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(12 * 3600);
/// The longest time that an authority may ask for by `Retry-After`.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);
/// The longest time for an order, from its begin to its certificate.
pub const ORDER_TIME_MAX: Duration = Duration::from_secs(180);
/// Time between two looks at an order that is in progress.
pub const POLL: Duration = Duration::from_millis(1500);
/// Time in which the other members of a cluster read an answer.
pub const SPREAD: Duration = Duration::from_secs(3);
/// How often a process that is not the owner looks for changes, and tries to become the owner.
pub const FOLLOW: Duration = Duration::from_secs(1);
/// How often the owner looks at the clock, which may have been changed.
pub const LOOK: Duration = Duration::from_secs(30);
/// Attempts with another nonce, beyond those of the library, before a request counts as failed.
pub const NONCE_TRIES_MAX: usize = 8;
/// Time for one request to the authority.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of an answer of the authority.
pub const ANSWER_BYTES_MAX: u64 = 256 << 10;
/// Bytes of one of our files.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a token, which becomes a part of a path.
pub const TOKEN_BYTES_MAX: usize = 512;

const _: () = assert!(BACK_OFF_MIN.as_secs() < BACK_OFF_MAX.as_secs());
// Attempts after 0, 5, 15, 35 and 75 minutes: four of them in the first hour.
const _: () = assert!(BACK_OFF_MIN.as_secs() * 15 > 3600);
const _: () = assert!(FOLLOW.as_millis() * 2 < SPREAD.as_millis());
