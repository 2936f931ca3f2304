//! The limits of the log.

/// Bytes of finished log lines of all cores that may wait for the log's thread.
pub(crate) const QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A core hands over its log lines when it has this many bytes of them, or at a tick.
pub(crate) const BATCH_BYTES: usize = 32 * 1024;

const _: () = assert!(BATCH_BYTES < QUEUE_BYTES_MAX);
