//! The limits of a connection's bytes.

/// Bytes off a socket that a core decrypts at once: two records of the largest kind and some.
pub const TLS_INPUT_BYTES: usize = 40 * 1024;
/// Bytes off a socket that are taken when nobody has given room for what is inside: what rustls
/// reads in one piece, so that its plaintext never exceeds a record.
pub const TLS_TAKE_BYTES: usize = 4 * 1024;
/// Bytes of a connection that are encrypted ahead of what its socket takes: two records. It is what
/// a slow TLS client pins.
pub const TLS_OUTPUT_BYTES_MAX: usize = 32 * 1024;
/// Bytes that a connection may encrypt between two waits: some milliseconds.
pub const TLS_BURST_BYTES_MAX: usize = 1024 * 1024;
/// Handshakes that one core has begun and not finished: a client may make us buffer up to 64 KiB
/// in one. Further clients wait, without a buffer, until the handshake's time-out.
pub const TLS_HANDSHAKES_MAX: usize = 512;
/// Bytes of a PROXY protocol header, version 2 with its TLVs.
pub const PROXY_HEADER_BYTES_MAX: usize = 4 * 1024;

const _: () = assert!(TLS_TAKE_BYTES <= TLS_INPUT_BYTES);
