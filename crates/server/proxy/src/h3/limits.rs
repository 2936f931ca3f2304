//! Limits on what a client of HTTP/3 can cause.

use std::time::Duration;

use core_io::limits::OUTPUT_BYTES_MAX;

/// Requests that a client may have open at a time.
pub(super) const STREAMS_MAX: u32 = 128;
/// Unidirectional streams of a client: three that HTTP/3 has, and some of unknown types.
pub(super) const UNI_STREAMS_MAX: u32 = 8;
/// Tasks of a connection. Those of streams that were reset go on until their upstream has answered.
pub(super) const TASKS_MAX: usize = 256;
/// Content of a request that waits for its exchange.
pub(super) const STREAM_WINDOW_BYTES: u32 = 128 * 1024;
/// The same for all streams of a connection.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// Bytes of responses that a client has not acknowledged, for all streams of a connection, before a
/// stream sends no more content ...
pub(super) const SEND_WINDOW_BYTES: u64 = 1024 * 1024;
/// ... and while clients leave too much unread.
pub(super) const SEND_WINDOW_PRESSED_BYTES: u64 = OUTPUT_BYTES_MAX as u64;
/// Content that a stream gives to QUIC before others have their turn, if its priority says so.
pub(super) const SHARE_BYTES: usize = 16 * 1024;
/// Content that QUIC keeps as one piece. It is freed once all of it is acknowledged. Streams that
/// share end their pieces at about the same time: large ones would hide what a slow client takes.
pub(super) const PART_BYTES: usize = 4 * 1024;
/// A client that has less to acknowledge is cut only if it acknowledges nothing at all.
pub(super) const BEHIND_BYTES_MIN: u64 = 64 * 1024;
/// Priorities that a connection keeps for requests that have not arrived. Beyond it, such updates
/// are ignored.
pub(super) const EARLY_PRIORITIES_MAX: usize = 64;
/// The largest datagram that a client may send.
pub(super) const DATAGRAM_BYTES_MAX: u16 = 1472;
/// Datagrams that are sent with one call.
pub(super) const SEGMENTS_MAX: usize = 32;
/// Calls in one turn of a connection, before others have their turn.
pub(super) const SENDS_PER_TURN_MAX: usize = 16;
/// Calls that receive, in one turn of an endpoint.
pub(super) const RECEIVES_PER_TURN_MAX: usize = 32;
/// The room for datagrams that arrive together (GRO).
pub(super) const RECEIVE_BYTES: usize = 64 * 1024;
/// Handshakes in progress with addresses that are not validated. Beyond it, clients must first show
/// that they receive at their address (Retry).
pub(super) const UNVALIDATED_MAX: usize = 64;
/// All handshakes in progress. Beyond it, the client network that has the most loses its oldest.
pub(super) const HANDSHAKES_MAX: usize = 1024;
/// How long the client may take to come back after a Retry.
pub(super) const RETRY_LIFETIME: Duration = Duration::from_secs(10);
/// Bytes of an early datagram's connection before it is accepted; it is accepted in the same turn.
pub(super) const INCOMING_BYTES_MAX: u64 = 16 * 1024;
/// Content that is given to an exchange at once.
pub(super) const PULL_BYTES_MAX: usize = 64 * 1024;

const _: () = {
    assert!(UNVALIDATED_MAX < HANDSHAKES_MAX);
    assert!(STREAM_WINDOW_BYTES <= CONNECTION_WINDOW_BYTES);
    assert!(SEND_WINDOW_PRESSED_BYTES <= SEND_WINDOW_BYTES);
    assert!(PART_BYTES <= SHARE_BYTES && SHARE_BYTES as u64 <= SEND_WINDOW_PRESSED_BYTES);
    assert!(BEHIND_BYTES_MIN <= SEND_WINDOW_PRESSED_BYTES);
    assert!(EARLY_PRIORITIES_MAX <= STREAMS_MAX as usize);
    assert!(STREAMS_MAX as usize <= TASKS_MAX);
};
