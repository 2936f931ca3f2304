//! Limits on what rules read and remember.

use std::time::Duration;

/// Bytes of a TLS ClientHello that are read to find its server name. The largest in use, with
/// post-quantum keys, have 2 KiB.
pub const CLIENT_HELLO_BYTES_MAX: usize = 16 * 1024;
/// Requests of one core that wait for their passwords to be verified; one more is answered 503.
pub const PASSWORDS_WAITING_MAX: usize = 64;
/// Verified passwords that all cores together remember; beyond that, all are forgotten.
pub const PASSWORDS_KNOWN_MAX: usize = 10_000;
/// How long a verified password is remembered. One that a reload removes is verified again at once.
pub const PASSWORD_KNOWN_FOR: Duration = Duration::from_secs(300);

/// Permissions of services that are remembered; beyond that, all are forgotten.
pub const AUTH_KNOWN_MAX: usize = 10_000;
/// How long a permission is remembered at most.
pub const AUTH_KNOWN_FOR: Duration = Duration::from_secs(3600);
/// Bytes of the fields that such a service may write into a request.
pub const AUTH_COPIED_BYTES_MAX: usize = 8 * 1024;

/// Paths that are considered on the way to the readings of a path (`reading`). A request with more
/// is refused where routes differ: no client but an attacker sends one.
pub const READINGS_MAX: usize = 64;
/// Bytes of all of them.
pub const READINGS_BYTES_MAX: usize = 128 * 1024;
const _: () = assert!(
    READINGS_BYTES_MAX >= 8 * http1::Limits::DEFAULT.target_bytes_max,
    "the readings of a long and ordinary path fit"
);

/// One tick of a bucket's time is at least 2^-20 of a request ...
pub const TICK_SHIFT_MAX: i32 = 20;
/// ... and at most 2^20 bytes.
pub const TICK_SHIFT_MIN: i32 = -20;
/// A word of a quota's table that is idle for longer than this may look like a spent one.
pub const WORD_IDLE: Duration = Duration::from_secs(2 * 3600);
/// How often tables of quotas are swept, and in how many sweeps the whole of a table.
pub const SWEEP_EVERY: Duration = Duration::from_millis(100);
/// See [`SWEEP_EVERY`].
pub const SWEEPS_PER_PASS: u64 = 600;
/// Responses that wait for a pool of bytes owe it at most what is refilled in this time, and one
/// piece. Others wait before they take.
pub const BYTES_OWED_MAX: Duration = Duration::from_secs(10);
/// A new request is refused if a pool is owed more than is refilled in this time.
pub const BYTES_OWED_BEFORE_MAX: Duration = Duration::from_secs(5);
const _: () = assert!(BYTES_OWED_BEFORE_MAX.as_nanos() < BYTES_OWED_MAX.as_nanos());
/// The clients of a quota whose names are remembered: those that exceed it most.
pub const BUSIEST_MAX: usize = 32;
/// Bytes of such a name.
pub const BUSIEST_NAME_BYTES_MAX: usize = 128;
/// How often their numbers are halved, so that what is long past is forgotten.
pub const BUSIEST_HALVED_EVERY: Duration = Duration::from_secs(3600);
/// Shards of the exact counts of connections and of requests in progress.
pub const COUNT_SHARDS: usize = 16;

const _: () = assert!(
    SWEEP_EVERY.as_millis() as u64 * SWEEPS_PER_PASS * 10 < WORD_IDLE.as_secs() * 1000,
    "a word is swept long before it looks spent"
);

/// Rows of the sketch that counts requests of clients while a core sheds ...
pub const SKETCH_ROWS: usize = 4;
/// ... and its columns: with two windows, 64 KiB for each core.
pub const SKETCH_COLUMNS: usize = 4096;
/// Ticks of a window: a second.
pub const FAIR_TICKS: u32 = 10;
/// Bins of the histogram of numbers up to 2^16.
pub const FAIR_BINS: usize = 224;
