//! Every limit of this crate by name, and how they relate.

/// The longest ICP message (RFC 2186: "The ICP message length MUST not exceed 16,384 octets").
pub const ICP_BYTES_MAX: usize = 16_384;

/// The longest HTCP message: Squid reads no more of a datagram.
pub const HTCP_BYTES_MAX: usize = 8191;

/// The largest cache digest, with its header: more than 26 million URLs at five bits each.
pub const DIGEST_BYTES_MAX: usize = 16 << 20;

/// The bytes of a digest before its mask.
pub const HEADER_BYTES: usize = 128;

/// The bits per entry that Squid uses unless configured, and that we use.
pub const BITS_PER_ENTRY: u8 = 5;

/// The most keys for which a digest is made: as many as fit.
pub const DIGEST_CAPACITY_MAX: usize =
    (DIGEST_BYTES_MAX - HEADER_BYTES) * 8 / BITS_PER_ENTRY as usize;

/// The most percent of its bits that a useful digest has set, as in Squid. At 65 %, 18 % of absent
/// URLs are false hits.
pub const PERCENT_SET_MAX: u32 = 65;

const _: () = {
    // The length of a message has two bytes.
    assert!(ICP_BYTES_MAX <= u16::MAX as usize);
    assert!(HTCP_BYTES_MAX <= u16::MAX as usize);
    // A buffer for the one holds the other.
    assert!(HTCP_BYTES_MAX <= ICP_BYTES_MAX);
    assert!(PERCENT_SET_MAX < 100);
    // Bits are counted in 32 bits.
    assert!(DIGEST_BYTES_MAX * 8 <= u32::MAX as usize);
};
