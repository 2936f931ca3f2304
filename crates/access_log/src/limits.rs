//! The limits of the log.

/// Bytes of finished log lines that wait for the log's thread, all cores together.
pub(crate) const QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A core hands its log lines over when it holds this many bytes of them, or a tick has passed.
pub(crate) const BATCH_BYTES: usize = 32 * 1024;

const _: () = assert!(BATCH_BYTES < QUEUE_BYTES_MAX);
