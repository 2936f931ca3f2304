//! Every limit, by name. Calls beyond a limit are left to the original.

/// Descriptors from this number on are never watched.
pub(crate) const FDS_MAX: usize = 65_536;
/// The longest array that poll is boosted for.
pub(crate) const POSITIONS_MAX: usize = 65_536;
/// Calls with fewer descriptors go directly to the kernel, which is faster. With one of them ready,
/// both cost the same at about fifty.
pub(crate) const LEAST_DEFAULT: usize = 48;
/// No wait sleeps longer than this without a plain poll of everything.
pub(crate) const AUDIT_EVERY_NS: u64 = 100_000_000;
/// A busy thread has an audit this often; short waits do not hang, so it may be rarer.
pub(crate) const AUDIT_AWAKE_NS: u64 = 1_000_000_000;
/// How often a suspected difference must be confirmed.
pub(crate) const AUDIT_TRIES: u32 = 3;
/// Descriptors that epoll refuses (regular files, closed ones) in one call.
pub(crate) const UNHELD_MAX: usize = 256;
/// How often the kernel may not confirm what epoll named before the original makes the call.
pub(crate) const DENIED_MAX: u32 = 4;
/// Positions of an array that may have the same descriptor.
pub(crate) const SAME_MAX: usize = 1024;
/// Threads that may have a set at the same time.
pub(crate) const SETS_MAX: usize = 256;
/// Our own descriptors start at this number, if the limit of descriptors allows it, so that the
/// program's lowest free number does not change.
pub(crate) const OWN_FD_LEAST: u64 = 8192;
/// Changes of descriptors that are logged individually; a reader that is further behind checks all.
pub(crate) const CHANGES_KEPT: usize = 1024;
/// A call that changes more than this, and more than a quarter of its descriptors, is churn.
pub(crate) const CHURN_LEAST: usize = 32;
/// After this many calls of churn in a row the next ones are plain.
pub(crate) const CHURN_CALLS: u32 = 8;
/// How many plain calls follow at first and at most; the number doubles in between.
pub(crate) const REST_CALLS: u32 = 64;
pub(crate) const REST_CALLS_MAX: u32 = 65_536;

/// Words of a bitmap.
pub(crate) const WORDS: usize = FDS_MAX / 64;

const _: () = assert!(FDS_MAX.is_multiple_of(64) && (OWN_FD_LEAST as usize) < FDS_MAX);
const _: () = assert!(AUDIT_EVERY_NS <= AUDIT_AWAKE_NS);
const _: () = assert!(CHANGES_KEPT.is_power_of_two());
const _: () = assert!(REST_CALLS < REST_CALLS_MAX);
