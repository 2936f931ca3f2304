//! The limits of what connections share.

use std::time::Duration;

use config::limits::{PRESSED_BYTES, READ_BUFFER_BYTES};

/// Bytes of answers gathered before they are sent, when a client pipelines.
pub const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// Idle client connections that are asked to close when a descriptor is wanted ...
pub const ROOM_AT_ONCE: u32 = 64;
/// ... of so many that are looked at ...
pub const ROOM_LOOKS: usize = 1024;
/// ... which have been silent for so long: one that has just come may be about to ask.
pub const ROOM_IDLE: Duration = Duration::from_secs(1);
/// ... and they are given so long, before what there was no descriptor for is tried again.
pub const ROOM_PAUSE: Duration = Duration::from_millis(50);

const _: () = assert!(PRESSED_BYTES < OUTPUT_BYTES_MAX && PRESSED_BYTES < READ_BUFFER_BYTES);
const _: () = assert!(ROOM_AT_ONCE as usize <= ROOM_LOOKS);
const _: () = assert!(READ_BUFFER_BYTES >= 2 * 32 * 1024, "a head and the start of a body fit");
