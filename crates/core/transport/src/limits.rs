//! The limits of a connection's bytes.

/// Bytes of a record with its header: 16 KiB, and what encryption may add (RFC 5246, 6.2.3), less
/// one: rustls does not accept the last one.
pub const TLS_RECORD_BYTES_MAX: usize = 5 + 16 * 1024 + 2047;
/// Data that we put into one record.
pub const TLS_RECORD_DATA_BYTES: usize = 16 * 1024;
/// Bytes from a socket that a core decrypts at once: a little more than two records of the largest
/// size.
pub const TLS_INPUT_BYTES: usize = 40 * 1024;
/// Bytes read from a socket when the caller has no buffer for the plaintext.
pub const TLS_TAKE_BYTES: usize = 4 * 1024;
/// Bytes of a message during a handshake, and of what is buffered until it is complete.
pub const TLS_HANDSHAKE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a session ticket of an upstream, which may contain our certificates. It is the only
/// message that is buffered after the handshake, apart from the 5 bytes of new keys.
pub const TLS_TICKET_BYTES_MAX: usize = 16 * 1024;
/// How often a read of a connection reads the socket, if it finds less data than there is room for.
pub const TLS_READS_MAX: usize = 8;
/// What a peer may send in vain, as in rustls and BoringSSL: empty records, new keys and session
/// tickets, each without data in between; requests of a renegotiation (which are refused);
/// warnings.
pub const TLS_EMPTY_RECORDS_MAX: u8 = 32;
/// See [`TLS_EMPTY_RECORDS_MAX`].
pub const TLS_KEY_UPDATES_MAX: u8 = 32;
/// See [`TLS_EMPTY_RECORDS_MAX`].
pub const TLS_TICKETS_MAX: u8 = 32;
/// See [`TLS_EMPTY_RECORDS_MAX`].
pub const TLS_RENEGOTIATIONS_MAX: u8 = 1;
/// See [`TLS_EMPTY_RECORDS_MAX`].
pub const TLS_WARNINGS_MAX: u8 = 4;
/// Bytes of a connection that are encrypted ahead of what its socket accepts: two records. A slow
/// TLS client holds this much memory.
pub const TLS_OUTPUT_BYTES_MAX: usize = 32 * 1024;
/// Bytes that a connection may encrypt between two waits: some milliseconds.
pub const TLS_BURST_BYTES_MAX: usize = 1024 * 1024;
/// What a core's clients may hold before their handshakes are complete: the bytes that they have
/// sent, and [`TLS_HANDSHAKE_STATE_BYTES`] each once a ClientHello is complete. Beyond it, the
/// client network that holds the most loses its oldest connection of this kind.
pub const TLS_HANDSHAKES_BYTES_MAX: usize = 32 * 1024 * 1024;
/// What a handshake counts for beside the bytes that the client has sent.
pub const TLS_HANDSHAKE_STATE_BYTES: usize = 16 * 1024;
/// How long a secret is used for new session tickets. It opens them for as long again.
pub const TICKET_PERIOD_SECS: u64 = 60 * 60;
/// Bytes of a PROXY protocol header, version 2 with its TLVs.
pub const PROXY_HEADER_BYTES_MAX: usize = 4 * 1024;

const _: () = assert!(TLS_RECORD_BYTES_MAX + TLS_TAKE_BYTES <= TLS_INPUT_BYTES);
const _: () = assert!(
    TLS_HANDSHAKES_BYTES_MAX >= 256 * (TLS_HANDSHAKE_STATE_BYTES + TLS_HANDSHAKE_BYTES_MAX)
);
const _: () = assert!(TLS_OUTPUT_BYTES_MAX == 2 * TLS_RECORD_DATA_BYTES);
const _: () = assert!(TLS_RECORD_DATA_BYTES < TLS_RECORD_BYTES_MAX);
const _: () = assert!(2 * TLS_RECORD_BYTES_MAX <= TLS_INPUT_BYTES);
const _: () = assert!(TLS_TICKET_BYTES_MAX <= TLS_HANDSHAKE_BYTES_MAX);
const _: () = assert!(TLS_OUTPUT_BYTES_MAX <= TLS_BURST_BYTES_MAX && TLS_READS_MAX > 0);
