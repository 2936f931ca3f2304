//! Every limit of this crate by name, and how they relate.
//!
//! What: the limits that a caller may set ([`Limits`]) and fixed ceilings.
//! Why here: it is hard to reason about limits that are scattered over a parser.

/// The most fields a head can have, whatever [`Limits`] says: the size of a
/// [`Scratch`](crate::Scratch).
pub const FIELDS_CEILING: usize = 128;

/// The most bytes a head can have, whatever [`Limits`] says.
pub const HEAD_BYTES_CEILING: usize = 1 << 20;

/// The longest method. No longer one is implemented anywhere (RFC 9112 section 3: 501).
pub const METHOD_BYTES_MAX: usize = 32;

/// The most members Connection can have: each is compared with each field.
pub const CONNECTION_OPTIONS_MAX: usize = 64;

/// The longest field name, so that a position fits its record.
pub(crate) const NAME_BYTES_MAX: usize = u16::MAX as usize;

/// The shortest version and line end after a target: ` HTTP/1.1\r\n`.
const VERSION_BYTES: usize = 11;

/// The limits on a message. Bytes are counted as received.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Start line, fields and the empty line (431). At most [`HEAD_BYTES_CEILING`].
    pub head_bytes_max: usize,
    /// Fields in a head, and in trailers (431). At most [`FIELDS_CEILING`].
    pub fields_max: usize,
    /// The request-target (414).
    pub target_bytes_max: usize,
    /// The content of a message, by Content-Length or by the sum of its chunks (413).
    pub content_bytes_max: u64,
    /// One chunk-size line with its extensions and CRLF (400).
    pub chunk_line_bytes_max: usize,
    /// All chunk extensions of one message (400): many small ones can be an attack too.
    pub extension_bytes_max: usize,
    /// The trailer section with its empty line (431).
    pub trailer_bytes_max: usize,
    /// Which fields of a request there are.
    pub names: FieldNames,
}

/// Which fields of a request there are, by their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldNames {
    /// Those whose name has nothing but letters, digits and hyphens. All others are set aside,
    /// because CGI (RFC 3875 section 4.1.18) and what resembles it read `X_A` and `X.A` as `X-A`.
    Plain,
    /// All.
    #[default]
    Any,
}

impl Limits {
    /// The default limits.
    pub const DEFAULT: Limits = Limits {
        head_bytes_max: 32 * 1024,
        fields_max: FIELDS_CEILING,
        target_bytes_max: 8 * 1024,
        content_bytes_max: u64::MAX,
        chunk_line_bytes_max: 1024,
        extension_bytes_max: 16 * 1024,
        trailer_bytes_max: 8 * 1024,
        names: FieldNames::Any,
    };

    /// The effective limit on the bytes of a head.
    pub(crate) fn head_bytes(&self) -> usize {
        self.head_bytes_max.min(HEAD_BYTES_CEILING)
    }

    /// The effective limit on fields.
    pub(crate) fn fields(&self) -> usize {
        self.fields_max.min(FIELDS_CEILING)
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::DEFAULT
    }
}

const _: () = {
    let d = Limits::DEFAULT;
    assert!(d.head_bytes_max <= HEAD_BYTES_CEILING);
    assert!(d.fields_max <= FIELDS_CEILING);
    // A record holds the index of a field in one byte, and a position in four.
    assert!(FIELDS_CEILING <= u8::MAX as usize);
    assert!(HEAD_BYTES_CEILING <= u32::MAX as usize);
    assert!(METHOD_BYTES_MAX + d.target_bytes_max + VERSION_BYTES < d.head_bytes_max);
    assert!(d.chunk_line_bytes_max <= d.extension_bytes_max);
    assert!(d.trailer_bytes_max <= d.head_bytes_max);
};
