//! Limits on the work with upstream servers.

use std::time::Duration;

/// How long an address may neither accept nor refuse before the next one is tried in parallel
/// (RFC 8305, 8).
pub(crate) const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// How often a request that waits for a server looks by itself, besides being called.
pub(crate) const QUEUE_LOOK: Duration = Duration::from_millis(250);
/// How often named servers are checked for expired addresses.
pub(crate) const ATTEND: Duration = Duration::from_secs(1);
/// How long the hosts of a service are waited for. A host that takes longer counts as one without
/// an answer until the next look-up.
pub(crate) const HOST_AWAITED: Duration = ATTEND;
/// How long an address that has left its name is remembered. If it comes back within this time, it
/// is the same server, with the orders for it.
pub(crate) const ADDRESS_REMEMBERED: Duration = Duration::from_secs(2 * 3600);
// An address may be missing in one answer of a name server.
const _: () = assert!(ADDRESS_REMEMBERED.as_nanos() > dns::limits::TTL_MAX.as_nanos());
/// The largest head that answers a health check; a longer one is a failure.
pub(crate) const CHECK_HEAD_BYTES_MAX: usize = 16 * 1024;
/// An idle connection has stayed open after an answer if it is open for so long ...
pub(crate) const PROVEN_AFTER: Duration = Duration::from_millis(100);
/// ... and is not used by a request that must not be repeated if it has been idle for so long:
/// upstreams close connections that have been idle for seconds.
pub(crate) const PROVEN_IDLE_MAX: Duration = Duration::from_secs(1);
/// How often a connection to an upstream is retried while no descriptor is free.
pub(crate) const ROOM_TRIES: u32 = 4;
/// Bytes that are read at once before a head is complete. What comes of the body with them is
/// copied more often than the rest.
pub(crate) const HEAD_READ_BYTES: usize = 16 * 1024;
/// Interim responses that are read before one final response. Those beyond `interim_max` are
/// dropped.
pub const INTERIM_READ_MAX: usize = 10_000;
/// Requests at a time on an HTTP/2 connection, if the upstream allows as many.
pub(crate) const STREAMS_MAX: usize = 100;
/// Content of a response over HTTP/2 that waits for its client.
const STREAM_WINDOW_BYTES: u32 = 128 * 1024;
/// Bytes of frames that wait for the socket of an HTTP/2 connection before requests wait, too.
pub(crate) const OUTPUT_BYTES_MAX: usize = 64 * 1024;
/// A connection on which nothing has come for so long is asked for a sign of life before it takes
/// another request, and takes none if that does not come within the same time.
pub(crate) const SILENT_MAX: Duration = Duration::from_secs(5);
/// Bytes of frames that wait for the socket before nothing more is read.
pub(crate) const UNREAD_BYTES_MAX: usize = 4 * OUTPUT_BYTES_MAX;
/// Bytes of heads of one response over HTTP/2 that the exchange has not read yet.
pub(crate) const INTERIM_HEADS_BYTES_MAX: usize = 64 * 1024;
/// How often a request that an upstream has not processed is sent again. Each time the upstream has
/// processed another one, or the budget of retries has allowed it.
pub(crate) const RESENDS_MAX: u32 = 100;

/// Outstanding queries to peers of one core. Beyond it a request asks no peer.
pub(crate) const QUERIES_MAX: usize = 4096;
/// How often a peer that does not answer is asked again.
pub(crate) const PROBE_EVERY: Duration = Duration::from_secs(1);
/// A peer that is asked is left alone after so many false hits in a row ...
pub(crate) const FALSE_HITS_IN_ROW: u32 = 10;
/// ... for so long the first time, doubled each time ...
pub(crate) const REST_MIN: Duration = Duration::from_secs(10);
/// ... and at most for so long.
pub(crate) const REST_MAX: Duration = Duration::from_secs(600);
/// A digest is judged when so many URLs were looked up in it that the peer has not got. A correct
/// one is then so far from the limit that chance does not lead there.
pub(crate) const DIGEST_JUDGED_AFTER: u64 = 200;
/// A digest may have so many times the false hits that its bits explain ...
pub(crate) const DIGEST_ODDS_FACTOR: u64 = 2;
/// ... and so many percent of what the peer has not got, because the peer drops responses, too.
pub(crate) const DIGEST_DROPPED_PERCENT: u64 = 5;
/// How long the digest of a peer is used after its time, while it is fetched again.
pub(crate) const DIGEST_GRACE: Duration = Duration::from_secs(60);
/// How long a failed fetch of a digest waits the first time, doubled each time ...
pub(crate) const DIGEST_RETRY_MIN: Duration = Duration::from_secs(10);
/// ... and at most.
pub(crate) const DIGEST_RETRY_MAX: Duration = Duration::from_secs(600);

/// The limits of an HTTP/2 connection. The upstream is configured, so that its rates are limited
/// less than those of a client.
pub(crate) const HTTP2: http2::Limits = {
    let mut limits = http2::Limits::DEFAULT;
    limits.encoder_table_bytes = 4096;
    limits.stream_window_bytes = STREAM_WINDOW_BYTES;
    // The content that waits for slow clients leaves room for that of others.
    limits.connection_window_bytes = STREAMS_MAX as u32 * STREAM_WINDOW_BYTES / 4 * 5;
    let often = http2::limits::Rate { per_s: 10_000, burst: 10_000 };
    limits.resets = often;
    limits.pings = http2::limits::Rate { per_s: 1_000, ..limits.pings };
    limits.empty_frames = often;
    limits.window_updates = often;
    limits
};
