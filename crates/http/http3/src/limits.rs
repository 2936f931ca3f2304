//! Every limit of this crate by name, and how they relate.

use http2::limits::Rate;

/// The most bytes in the header of a frame: two integers.
pub(crate) const FRAME_HEADER_BYTES_MAX: usize = 16;

/// What [`Limits::control`] counts, for each request: priorities, a stream or frame of an unknown
/// type, and a cancellation.
pub const CONTROL_PER_REQUEST: u32 = 4;

/// The limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The size of a field section (SETTINGS_MAX_FIELD_SECTION_SIZE): names, values, and 32 for
    /// each field. A request above it is to be answered with 431.
    pub fields_bytes_max: u32,
    /// Fields in a section, including pseudo-fields; the reaction is the same.
    pub fields_max: u32,
    /// A field section as sent, that is, compressed; the reaction is the same.
    pub block_bytes_max: u32,
    /// The payload of SETTINGS and of other frames of a control stream that have a meaning. Above
    /// it the connection ends.
    pub control_frame_bytes_max: u32,
    /// Frames without content in a row, in one message: empty DATA, and unknown types. Above it
    /// the connection ends.
    pub idle_frames_max: u16,
    /// Whether `:protocol` is allowed (RFC 9220). The server announces it.
    pub extended_connect: bool,
    /// Frames of the control stream, unknown streams, and cancellations of field sections, beyond
    /// [`CONTROL_PER_REQUEST`].
    pub control: Rate,
}

impl Limits {
    /// The default limits.
    pub const DEFAULT: Limits = Limits {
        fields_bytes_max: 32 * 1024,
        fields_max: 128,
        block_bytes_max: 32 * 1024,
        control_frame_bytes_max: 1024,
        idle_frames_max: 64,
        extended_connect: false,
        control: Rate { per_s: 200, burst: 1000 },
    };
}

const _: () = {
    let d = Limits::DEFAULT;
    assert!(d.fields_max as usize <= http2::limits::FIELDS_CEILING);
    assert!(d.block_bytes_max <= d.fields_bytes_max, "it is not reached by a valid section");
};
