//! Every limit of this crate by name, and how they relate.
//!
//! What: the limits that a caller may set ([`Limits`]), fixed ceilings, and what happens if a peer
//! exceeds one.
//! Why here: each is a promise about memory or work, and they depend on each other.

/// The bytes before a frame's payload.
pub const FRAME_HEADER_BYTES: usize = 9;

/// The largest payload that a peer may send without our permission (RFC 9113 section 4.2). It is
/// also the largest that we allow and the largest that we send.
pub const FRAME_BYTES: usize = 16_384;

/// The bytes that a receive buffer must be able to hold, so that each frame fits.
pub const RECEIVE_BYTES_MIN: usize = FRAME_HEADER_BYTES + FRAME_BYTES;

/// The largest dynamic table of HPACK, whatever [`Limits`] and the peer say: a position in it fits
/// 16 bits.
pub const TABLE_BYTES_CEILING: usize = 32 * 1024;

/// The size of a dynamic table before it is set (RFC 9113 section 6.5.2).
pub const TABLE_BYTES_INITIAL: usize = 4096;

/// The initial windows of a connection and of its streams (RFC 9113 section 6.9.2).
pub const WINDOW_BYTES_INITIAL: u32 = 65_535;

/// The largest window (RFC 9113 section 6.9.1).
pub const WINDOW_BYTES_CEILING: u32 = (1 << 31) - 1;

/// Streams that we reset, and on which frames may still arrive without being an error. After this
/// many later resets, such a frame is answered with another RST_STREAM.
pub const RESETS_REMEMBERED: usize = 64;

/// The bytes that a field adds to the size of a list (RFC 9113 section 6.5.2) and of a table
/// (RFC 7541 section 4.1), beside its name and value.
pub const FIELD_OVERHEAD_BYTES: usize = 32;

/// The most fields in a list, whatever [`Limits`] says.
pub const FIELDS_CEILING: usize = 1024;

/// A field list this many times above its limit ends the connection. A short block can refer to a
/// long field of the table often, and the work for it is bounded by this.
pub const LIST_EXCESS_MAX: usize = 4;

/// The control frames that traffic entitles a peer to. Peers send them in proportion to their
/// traffic: grpc-go sends a PING for each round trip in which content arrives, some clients update
/// the window of each stream that they open, and browsers set priorities for each request.
///
/// A unit of traffic is a DATA frame with content, in either direction, or a request. It costs both
/// sides as much as a control frame does, so that no peer gains work from us by it.
pub const PINGS_PER_TRAFFIC: u32 = 1;
/// See [`PINGS_PER_TRAFFIC`].
pub const SETTINGS_PER_TRAFFIC: u32 = 1;
/// See [`PINGS_PER_TRAFFIC`].
pub const EMPTY_FRAMES_PER_TRAFFIC: u32 = 1;
/// See [`PINGS_PER_TRAFFIC`].
pub const UNKNOWN_FRAMES_PER_TRAFFIC: u32 = 1;
/// See [`PINGS_PER_TRAFFIC`]. A request may depend on several streams that are only groups.
pub const PRIORITIES_PER_TRAFFIC: u32 = 4;
/// See [`PINGS_PER_TRAFFIC`]. Peers update the windows of the stream and of the connection, in
/// small steps.
pub const WINDOW_UPDATES_PER_TRAFFIC: u32 = 8;
/// The RST_STREAM frames that a response entitles a peer to: each DATA frame with content that we
/// send, and each response that we complete. Requests alone do not count: a client that cancels
/// them before they are answered costs us more than itself (CVE-2023-44487).
pub const RESETS_PER_RESPONSE: u32 = 1;

/// A token bucket: `per_s` frames a second, and `burst` at once, beyond those that the peer's
/// traffic entitles it to. A peer that exceeds it is disconnected with ENHANCE_YOUR_CALM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Frames per second in the long run.
    pub per_s: u16,
    /// Frames at once.
    pub burst: u16,
}

/// The limits of a connection. The same for all connections of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Streams that the peer may have open (SETTINGS_MAX_CONCURRENT_STREAMS). One more is refused
    /// with REFUSED_STREAM.
    pub streams_max: u32,
    /// The size of a field list (SETTINGS_MAX_HEADER_LIST_SIZE): names, values, and 32 for each
    /// field. A request above it is answered with 431, a response with RST_STREAM. Above
    /// [`LIST_EXCESS_MAX`] times it, the connection ends.
    pub fields_bytes_max: u32,
    /// Fields in a list, including pseudo-fields; the reaction is the same. At most
    /// [`FIELDS_CEILING`].
    pub fields_max: u32,
    /// A field block as sent, that is, compressed. Above it the connection ends.
    pub block_bytes_max: u32,
    /// CONTINUATION frames of a field block. Above it the connection ends.
    pub continuations_max: u32,
    /// The table that the peer may use to compress (SETTINGS_HEADER_TABLE_SIZE). At most
    /// [`TABLE_BYTES_CEILING`]. Some clients ignore this setting, so that a value below
    /// [`TABLE_BYTES_INITIAL`] ends their connections with COMPRESSION_ERROR.
    pub decoder_table_bytes: u32,
    /// The table that we use to compress, if the peer allows as much. At most
    /// [`TABLE_BYTES_CEILING`].
    pub encoder_table_bytes: u32,
    /// The content that a peer may send on a stream before the caller releases any
    /// (SETTINGS_INITIAL_WINDOW_SIZE).
    pub stream_window_bytes: u32,
    /// The same for all streams together; at least [`WINDOW_BYTES_INITIAL`].
    pub connection_window_bytes: u32,
    /// Answers to control frames (SETTINGS, PING, resets) that wait to be sent. Above it the
    /// connection ends.
    pub control_queue_bytes_max: u32,
    /// Whether `:protocol` is allowed (RFC 8441). The server announces it.
    pub extended_connect: bool,
    /// RST_STREAM from the peer, beyond [`RESETS_PER_RESPONSE`].
    pub resets: Rate,
    /// Errors of the peer that we answer with RST_STREAM. No traffic entitles to them.
    pub provoked_resets: Rate,
    /// SETTINGS, including acknowledgements, beyond [`SETTINGS_PER_TRAFFIC`].
    pub settings: Rate,
    /// PING, including acknowledgements, beyond [`PINGS_PER_TRAFFIC`].
    pub pings: Rate,
    /// DATA without content, and HEADERS without fields, beyond [`EMPTY_FRAMES_PER_TRAFFIC`].
    pub empty_frames: Rate,
    /// PRIORITY and PRIORITY_UPDATE, beyond [`PRIORITIES_PER_TRAFFIC`].
    pub priorities: Rate,
    /// WINDOW_UPDATE, beyond [`WINDOW_UPDATES_PER_TRAFFIC`].
    pub window_updates: Rate,
    /// Frames of unknown types, beyond [`UNKNOWN_FRAMES_PER_TRAFFIC`].
    pub unknown_frames: Rate,
}

impl Limits {
    /// The default limits.
    pub const DEFAULT: Limits = Limits {
        streams_max: 128,
        fields_bytes_max: 32 * 1024,
        fields_max: 128,
        block_bytes_max: 32 * 1024,
        continuations_max: 8,
        decoder_table_bytes: TABLE_BYTES_INITIAL as u32,
        encoder_table_bytes: 512,
        stream_window_bytes: 128 * 1024,
        connection_window_bytes: 1024 * 1024,
        control_queue_bytes_max: 16 * 1024,
        extended_connect: false,
        resets: Rate { per_s: 100, burst: 300 },
        provoked_resets: Rate { per_s: 20, burst: 100 },
        settings: Rate { per_s: 10, burst: 50 },
        pings: Rate { per_s: 50, burst: 200 },
        empty_frames: Rate { per_s: 50, burst: 200 },
        priorities: Rate { per_s: 200, burst: 500 },
        window_updates: Rate { per_s: 500, burst: 2000 },
        unknown_frames: Rate { per_s: 50, burst: 200 },
    };

    /// The same limits, each within its ceiling.
    pub(crate) fn bounded(self) -> Limits {
        Limits {
            fields_max: self.fields_max.min(FIELDS_CEILING as u32),
            decoder_table_bytes: self.decoder_table_bytes.min(TABLE_BYTES_CEILING as u32),
            encoder_table_bytes: self.encoder_table_bytes.min(TABLE_BYTES_CEILING as u32),
            stream_window_bytes: self.stream_window_bytes.clamp(1, WINDOW_BYTES_CEILING),
            connection_window_bytes: self
                .connection_window_bytes
                .clamp(WINDOW_BYTES_INITIAL, WINDOW_BYTES_CEILING),
            ..self
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}

const _: () = {
    let d = Limits::DEFAULT;
    assert!(d.fields_max as usize <= FIELDS_CEILING);
    assert!(d.decoder_table_bytes as usize <= TABLE_BYTES_CEILING);
    assert!(d.encoder_table_bytes as usize <= TABLE_BYTES_CEILING);
    assert!(TABLE_BYTES_CEILING <= u16::MAX as usize);
    // A field block of one frame is never too large, and the CONTINUATION frames reach the limit.
    assert!(d.block_bytes_max as usize >= FRAME_BYTES);
    assert!(d.continuations_max as usize * FRAME_BYTES >= d.block_bytes_max as usize);
    assert!(d.stream_window_bytes <= d.connection_window_bytes);
    assert!(d.connection_window_bytes >= WINDOW_BYTES_INITIAL);
    // A client that cancels all of its streams at once is not an attack.
    assert!(d.resets.burst as u32 >= 2 * d.streams_max);
    // Our acknowledgements of a burst of pings fit the queue.
    assert!(
        d.pings.burst as usize * (FRAME_HEADER_BYTES + 8) <= d.control_queue_bytes_max as usize
    );
};
