//! The limits of coding.

/// A decoder stops when its output exceeds this multiple of its input. The most that gzip reaches
/// is 1,032; text reaches 20.
pub const DECODED_RATIO_MAX: u64 = 250;
/// Output up to this size is accepted at any ratio: small bodies of one repeated byte are harmless.
pub const DECODED_FREE_BYTES: u64 = 1024 * 1024;
/// log2 of the largest window that a zstd frame may need (RFC 9659).
pub const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// Levels of zstd above this one need larger windows.
pub const ZSTD_LEVEL_MAX: u8 = 19;
/// log2 of the window that brotli encodes with. RFC 7932 allows 24.
pub const BROTLI_WINDOW_LOG: u32 = 22;
/// The unit in which decoders write.
pub const PIECE_BYTES: usize = 16 * 1024;
/// Longer values of `Accept-Encoding` are parsed for each request.
pub const REMEMBERED_BYTES_MAX: usize = 64;

/// log2 of the window of a body that is coded while it arrives: such bodies are many at a time, and
/// text gains little by a larger window.
pub const STREAM_WINDOW_LOG: u32 = 18;
/// The highest levels for such bodies, in the order of [`crate::Coding::ALL`]: they are coded on a
/// core, and an encoder has at most about 3 MB (measured: 0.4 for gzip, 2.9, 1.3).
pub const STREAM_LEVELS_MAX: [u8; 3] = [6, 4, 3];
/// Such a body is coded in pieces of at most this length, which takes about a millisecond. Then
/// the core serves its other connections.
pub const STREAM_PIECE_BYTES: usize = 16 * 1024;

const _: () = assert!(STREAM_WINDOW_LOG <= BROTLI_WINDOW_LOG);
const _: () = assert!(BROTLI_WINDOW_LOG <= 24 && ZSTD_WINDOW_LOG_MAX >= BROTLI_WINDOW_LOG);
const _: () = assert!(PIECE_BYTES as u64 <= DECODED_FREE_BYTES);
const _: () = assert!(DECODED_RATIO_MAX > 20, "text is not refused");
const _: () = assert!(ZSTD_LEVEL_MAX > 0 && ZSTD_LEVEL_MAX <= 22 && REMEMBERED_BYTES_MAX > 0);
