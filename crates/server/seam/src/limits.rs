//! The limits of a tunnel.

use config::limits::READ_BUFFER_BYTES;

/// Bytes that one read of a tunnel takes, and so what a direction buffers when its far side does
/// not take them. A silent tunnel buffers none.
pub const TUNNEL_BYTES_MAX: usize = 32 * 1024;

const _: () = assert!(TUNNEL_BYTES_MAX <= READ_BUFFER_BYTES);
