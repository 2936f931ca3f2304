//! Limits on what the connections of a core share.

use std::time::Duration;

use config::limits::{PRESSED_BYTES, READ_BUFFER_BYTES};

/// Bytes of responses that are collected before they are sent, when a client pipelines.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// A client is not cut off for its rate before we have waited for it this often: one long pause is
/// no trickle, and has its own time-out.
pub const RATE_WAITS_MIN: u32 = 16;
/// If more than this remains of a body of known length, it is passed on through a pipe, without
/// being copied. Below that, copying costs less than the pipe.
pub const PIPED_BYTES_MIN: u64 = 64 * 1024;
/// Bytes of such a body, or of a tunnel, that are taken at once, and wait for the other side.
pub const PIPED_BYTES_MAX: u64 = 256 * 1024;
/// If there is no pipe for a long body, or the pipe takes nothing, so many bytes are copied before
/// a pipe is tried again.
pub const COPIED_BYTES: u64 = PIPED_BYTES_MAX;
/// Silent client connections that must close when no descriptor is free ...
pub const ROOM_AT_ONCE: u32 = 64;
/// ... or, at most, when few places are free in the table of connections ...
pub const ROOM_AT_ONCE_MAX: u32 = 1024;
/// ... which is one in so many, and twice as many must close ...
pub const ROOM_SHARE: u32 = 32;
/// ... out of this many candidates ...
pub const ROOM_LOOKS: usize = 2048;
/// ... that have been silent for this long: a new connection may be about to send a request.
pub const ROOM_IDLE: Duration = Duration::from_secs(1);
/// How long they are given before the operation that lacked a descriptor is tried again.
pub const ROOM_PAUSE: Duration = Duration::from_millis(50);

/// Bytes of heads that have not come whole, for all clients of a core that speak TCP. Beyond it,
/// the client network that holds the most loses its oldest connection of this kind.
pub const HEADS_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Values of one kind that a core keeps to use them again ...
pub const SPARES_MAX: usize = 256;
/// ... and what such a value may own.
pub const SPARE_BYTES_MAX: usize = 16 * 1024;

/// Characters of a panic's message in its report ...
pub const PANIC_MESSAGE_CHARS_MAX: usize = 4096;
/// ... and of the line of the request that was being served.
pub const PANIC_REQUEST_CHARS_MAX: usize = 1024;
/// How long a core that has panicked may unwind before the process ends all the same.
pub const UNWIND_MAX: Duration = Duration::from_secs(1);

const _: () = assert!(PRESSED_BYTES < OUTPUT_BYTES_MAX && PRESSED_BYTES < READ_BUFFER_BYTES);
const _: () = assert!(ROOM_AT_ONCE <= ROOM_AT_ONCE_MAX && ROOM_AT_ONCE_MAX as usize <= ROOM_LOOKS);
const _: () = assert!(READ_BUFFER_BYTES >= 2 * 32 * 1024, "a head and the start of a body fit");
