//! Every limit, by name. What lies beyond one is left to the original call.

/// Descriptors from this number on are never watched.
pub(crate) const FDS_MAX: usize = 65_536;
/// The longest array that poll is boosted for.
pub(crate) const POSITIONS_MAX: usize = 65_536;
/// Below so many descriptors a call goes straight to the kernel, which is quicker than we can be.
/// With one of them ready, both cost the same at some fifty.
pub(crate) const LEAST_DEFAULT: usize = 48;
/// No wait sleeps longer than this without a plain poll of everything.
pub(crate) const AUDIT_EVERY_NS: u64 = 100_000_000;
/// Nor do so many short waits pass without one; they hang nothing, so that it may be rarer.
pub(crate) const AUDIT_AWAKE_NS: u64 = 1_000_000_000;
/// How often a suspicion must be confirmed to count as a difference.
pub(crate) const AUDIT_TRIES: u32 = 3;
/// Descriptors that epoll refuses (regular files, closed ones) in one call.
pub(crate) const UNHELD_MAX: usize = 256;
/// So often epoll may name what the kernel then denies before the original ends the call.
pub(crate) const DENIED_MAX: u32 = 4;
/// Positions of an array that may hold the same descriptor.
pub(crate) const SAME_MAX: usize = 1024;
/// Threads that have a set of their own at once.
pub(crate) const SETS_MAX: usize = 256;
/// Our own descriptors stand from here on, if the limit of descriptors allows it: out of the way of
/// the program, whose lowest free number stays what it was.
pub(crate) const OWN_FD_LEAST: u64 = 8192;
/// Changes of descriptors that are remembered one by one; who lags behind looks at all.
pub(crate) const CHANGES_KEPT: usize = 1024;
/// A call that changes more than this, and more than a quarter of its descriptors, is churn.
pub(crate) const CHURN_LEAST: usize = 32;
/// So many calls of churn in a row, and the next ones are plain.
pub(crate) const CHURN_CALLS: u32 = 8;
/// How many plain calls follow at first, and at most; it doubles from one to the other.
pub(crate) const REST_CALLS: u32 = 64;
pub(crate) const REST_CALLS_MAX: u32 = 65_536;

/// Words of a bitmap.
pub(crate) const WORDS: usize = FDS_MAX / 64;

const _: () = assert!(FDS_MAX.is_multiple_of(64) && (OWN_FD_LEAST as usize) < FDS_MAX);
const _: () = assert!(AUDIT_EVERY_NS <= AUDIT_AWAKE_NS);
const _: () = assert!(CHANGES_KEPT.is_power_of_two());
const _: () = assert!(REST_CALLS < REST_CALLS_MAX);
