//! Every limit of this crate by name, and how they relate.

/// The longest ICP message (RFC 2186: "The ICP message length MUST not exceed 16,384 octets").
pub const ICP_BYTES_MAX: usize = 16_384;

const _: () = {
    // The length of a message is two bytes.
    assert!(ICP_BYTES_MAX <= u16::MAX as usize);
};
