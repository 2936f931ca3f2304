//! The limits of a connection's bytes.

/// Bytes from a socket that a core decrypts at once: a little more than two records of the largest
/// size.
pub const TLS_INPUT_BYTES: usize = 40 * 1024;
/// Bytes read from a socket when the caller has no buffer for the plaintext: what rustls reads in
/// one piece. It keeps the plaintext of one large record and of the small ones that follow in these
/// bytes.
pub const TLS_TAKE_BYTES: usize = 4 * 1024;
/// Bytes of a connection that are encrypted ahead of what its socket accepts: two records. A slow
/// TLS client holds this much memory.
pub const TLS_OUTPUT_BYTES_MAX: usize = 32 * 1024;
/// Bytes that a connection may encrypt between two waits: some milliseconds.
pub const TLS_BURST_BYTES_MAX: usize = 1024 * 1024;
/// Handshakes in progress on one core: a client may make us buffer up to 64 KiB in each. Further
/// clients wait, without a buffer, until the handshake's time-out.
pub const TLS_HANDSHAKES_MAX: usize = 512;
/// Bytes of a PROXY protocol header, version 2 with its TLVs.
pub const PROXY_HEADER_BYTES_MAX: usize = 4 * 1024;

const _: () = assert!(TLS_TAKE_BYTES <= TLS_INPUT_BYTES);
