//! Every limit and time-out of the server, by name, with its default and the reason for it.
//!
//! Nothing in this crate grows, waits or counts beyond one of these; how they must relate is
//! asserted at compile time where both sides are constants.

pub use config::limits::*;

/// A body at most this long is copied behind its head and leaves in one `send`; a longer one is
/// handed to the kernel where it lies. Copying 4 KiB costs less than a second I/O vector.
pub const COALESCE_BYTES_MAX: usize = 4 * 1024;

/// Blocks of such a body that wait for one another, verified, to be sent by one call.
pub const BLOCKS_SENT_MAX: usize = 4;
/// How often a request begins anew because a body on the disk turned out not to be there.
pub const BODIES_LOST_MAX: usize = 2;
/// Bytes that one read of a tunnel takes, and so what a direction may hold that its far side does
/// not take. A silent tunnel holds none.
pub const TUNNEL_BYTES_MAX: usize = 32 * 1024;

/// Bytes of a body that is held so that its request may be repeated, if its method allows that. It
/// is less than a head may take.
pub const BODY_HELD_BYTES_MAX: u64 = 16 * 1024;
/// A client is not cut for its rate before we have waited for it so often: one long pause is no
/// trickle, and has a time-out of its own.
pub const RATE_WAITS_MIN: u32 = 16;

const _: () = assert!(COALESCE_BYTES_MAX < core_io::limits::OUTPUT_BYTES_MAX);
const _: () = assert!(BODY_HELD_BYTES_MAX <= READ_BUFFER_BYTES as u64 / 2);
const _: () = assert!(TUNNEL_BYTES_MAX <= READ_BUFFER_BYTES);
