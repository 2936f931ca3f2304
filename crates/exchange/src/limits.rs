//! Every limit and time-out of the crate, with its default and the reason for it.
//!
//! Nothing here grows, waits or counts beyond one of these. How two constants must relate is
//! asserted at compile time.

use std::time::Duration;

pub use config::limits::*;

/// A body of at most this length is copied behind its head and sent in one call; a longer one is
/// sent from where it lies. Copying 4 KiB costs less than a second I/O vector.
pub const COALESCE_BYTES_MAX: usize = 4 * 1024;

/// Verified blocks of such a body that are collected before they are sent in one call.
pub const BLOCKS_SENT_MAX: usize = 4;
/// The same for a paced body: its blocks are held for as long as its client waits.
pub const PACED_BLOCKS_MAX: usize = 1;
/// How often a request starts over because its body was no longer on the disk.
pub const BODIES_LOST_MAX: usize = 2;
/// Bytes that one read of a tunnel takes, and so what a direction buffers when its far side does
/// not take them. A silent tunnel buffers none.
pub const TUNNEL_BYTES_MAX: usize = 32 * 1024;

/// The largest body that is buffered so that its request can be repeated, if its method allows
/// that. It is smaller than the largest head.
pub const BODY_HELD_BYTES_MAX: u64 = 16 * 1024;

const _: () = assert!(PACED_BLOCKS_MAX <= BLOCKS_SENT_MAX);
const _: () = assert!(COALESCE_BYTES_MAX < core_io::limits::OUTPUT_BYTES_MAX);
const _: () = assert!(BODY_HELD_BYTES_MAX <= READ_BUFFER_BYTES as u64 / 2);
const _: () = assert!(TUNNEL_BYTES_MAX <= READ_BUFFER_BYTES);

/// How long a client waits for a stored response to be decoded, before its request is passed on.
/// Decoding goes before all encodings that wait, but not before those that have begun.
pub const DECODED_WAIT_MAX: Duration = Duration::from_secs(5);

/// A paced body is sent in so many pieces for each second ...
pub const PACED_PIECES_PER_SECOND: u64 = 8;
/// ... of at least so many bytes ...
pub const PACED_BYTES_MIN: u64 = 512;
/// ... and at most so many.
pub const PACED_BYTES_MAX: u64 = 16 * 1024;
