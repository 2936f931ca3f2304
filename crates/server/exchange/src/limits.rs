//! Every limit and time-out of the crate, with its default and a reason.
//!
//! Everything in this crate that grows, waits or counts has one of these limits. Assertions check
//! at compile time how two constants must relate.

use std::time::Duration;

pub use config::limits::*;

/// A body of at most this length is copied behind its head and sent in one call; a longer one is
/// sent from where it lies. Copying 4 KiB costs less than a second I/O vector.
pub const COALESCE_BYTES_MAX: usize = 4 * 1024;

/// Verified blocks of such a body that are collected before they are sent in one call.
pub const BLOCKS_SENT_MAX: usize = 4;
/// The same for a paced body: its blocks are held for as long as its client waits.
pub const PACED_BLOCKS_MAX: usize = 1;
/// How often a request starts over because its body was no longer on the disk.
pub const BODIES_LOST_MAX: usize = 2;
/// How long a fetch whose body is neither in memory nor on the disk waits for readers that are too
/// slow for another one: so long for each `limits.stream_window_bytes`. Who is left behind asks the
/// origin for the rest,
pub const READERS_LEFT_WAIT: Duration = Duration::from_millis(100);
/// or, if the response has no strong validator, is broken off.
pub const READERS_CUT_WAIT: Duration = Duration::from_secs(5);
/// How long a body waits for room in the disk's write buffer. Then it is not stored.
pub const DISK_ROOM_WAIT: Duration = Duration::from_secs(10);

/// Bytes of the number that a request came with. A longer one is not taken over.
pub const REQUEST_ID_BYTES_MAX: usize = 128;

/// Bytes of the response of a service that authorises requests that are read. Then its connection
/// is closed.
pub const AUTH_BODY_BYTES_MAX: usize = 64 * 1024;

/// Copies of requests that a core has in progress. Above it, requests are not copied.
pub const MIRRORED_MAX: usize = 256;
/// Bytes of the response to a copy that are read. Then its connection is closed.
pub const MIRRORED_BYTES_MAX: usize = 1 << 20;

/// The largest body that is buffered so that its request can be repeated, if its method allows
/// that. It is smaller than the largest head.
pub const BODY_HELD_BYTES_MAX: u64 = 16 * 1024;

const _: () = assert!(PACED_BLOCKS_MAX <= BLOCKS_SENT_MAX);
const _: () = assert!(COALESCE_BYTES_MAX < core_io::limits::OUTPUT_BYTES_MAX);
const _: () = assert!(BODY_HELD_BYTES_MAX <= READ_BUFFER_BYTES as u64 / 2);

/// How long a client waits for a stored response to be decoded, before its request is passed on.
/// Decoding goes before all encodings that wait, but not before those that have begun.
pub const DECODED_WAIT_MAX: Duration = Duration::from_secs(5);

/// A file, or a part of one, up to this length is sent with its head by one call. For longer ones a
/// copy costs more than the calls that avoid it.
pub const FILE_COPIED_BYTES_MAX: u64 = 32 * 1024;
/// Bytes of a file that are read at once where they must be copied.
pub const FILE_READ_BYTES: u64 = 128 * 1024;

/// Between the first bytes of our digest and the others.
pub const DIGEST_PAUSE: Duration = Duration::from_millis(100);

/// A paced body is sent in so many pieces for each second ...
pub const PACED_PIECES_PER_SECOND: u64 = 8;
/// ... of at least so many bytes ...
pub const PACED_BYTES_MIN: u64 = 512;
/// ... and at most so many.
pub const PACED_BYTES_MAX: u64 = 16 * 1024;

/// Members of a cluster that are asked for a response, one after the other. Then this member asks
/// its origin: a client should not pay for each failure of the others.
pub const MEMBER_TRIES_MAX: usize = 2;
/// Bytes of a member's response that are awaited before its head goes to the client, if the rest of
/// it could not be asked for elsewhere. It is as much as one read takes, and less than goes through
/// a pipe.
pub const MEMBER_AWAITED_BYTES_MAX: u64 = 64 * 1024;
/// Members that may break off one response. After that it breaks off for the client, too.
pub const MEMBER_BODIES_MAX: usize = 2;
/// How often it is checked whether a member is down, while a request waits for it.
pub const MEMBER_LOOK: Duration = Duration::from_secs(1);
/// Bytes of purges in one message to a member, apart from one that is longer by itself.
pub const PURGE_MESSAGE_BYTES: usize = 64 * 1024;
/// Bytes of a message that is read. One purge has at most a URL as it is stored and as it was
/// requested, or the tags of one call.
pub const PURGE_MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// How long a member may take to acknowledge a purge, which it may have to write to its disk.
pub const PURGE_ACKNOWLEDGED_MAX: Duration = Duration::from_secs(12);
/// How long a client's request that has changed a URL waits for the other members.
pub const CHANGE_ACKNOWLEDGED_MAX: Duration = Duration::from_secs(2);
/// How often waiting purges are sent again, and the name of the members is looked up.
pub const MEMBERS_ATTENDED: Duration = Duration::from_secs(1);
/// The longest pause before purges are sent again to a member that answers and does not acknowledge
/// them. It is doubled from [`MEMBERS_ATTENDED`].
pub const CATCH_UP_PAUSE_MAX: Duration = Duration::from_secs(64);

const _: () = assert!(PURGE_ACKNOWLEDGED_MAX.as_secs() > cache::limits::DURABLE_WAIT_MAX.as_secs());
const _: () = assert!(MEMBER_AWAITED_BYTES_MAX <= READ_BUFFER_BYTES as u64);
const _: () = assert!(MEMBER_AWAITED_BYTES_MAX <= core_io::limits::PIPED_BYTES_MIN);
const _: () = assert!(PURGE_MESSAGE_BYTES <= PURGE_MESSAGE_BYTES_MAX);
const _: () = assert!(cache::limits::BACKLOG_BYTES_MAX <= PURGE_MESSAGE_BYTES_MAX);
