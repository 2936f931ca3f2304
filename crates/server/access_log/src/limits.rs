//! The limits of the log.

/// Bytes of finished log lines of all cores that may wait for the log's thread.
pub(crate) const QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A core hands over its log lines when it has this many bytes of them, or at a tick.
pub(crate) const BATCH_BYTES: usize = 32 * 1024;

/// How long the end of a process that has panicked waits for the lines that were handed over, ms.
pub(crate) const WRITTEN_WAIT_MS_MAX: u32 = 200;
const _: () = assert!(BATCH_BYTES < QUEUE_BYTES_MAX);

/// URLs in the table of the most frequent ones.
pub(crate) const URLS_MAX: usize = 256;
/// Bytes of a URL that are kept.
pub(crate) const URL_BYTES_MAX: usize = 200;
/// Reasons that are kept for each URL. A further reason counts as the last.
pub(crate) const REASONS_MAX: usize = 4;
/// Reasons that are kept for all URLs together.
pub(crate) const REASONS_OF_ALL_MAX: usize = 16;
/// Requests that a core samples between two ticks.
pub(crate) const SAMPLES_OF_TICK: u32 = 60;
/// When the table has this many samples, all counts are halved.
pub(crate) const SAMPLES_REMEMBERED: u64 = 50_000;
const _: () = assert!(0 < REASONS_MAX && REASONS_MAX <= REASONS_OF_ALL_MAX);
const _: () = assert!(URLS_MAX as u64 <= SAMPLES_REMEMBERED);
const _: () = assert!((SAMPLES_OF_TICK as u64) < SAMPLES_REMEMBERED);
