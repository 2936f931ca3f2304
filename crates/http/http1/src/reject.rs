//! Why a message is refused: one list of reasons, each with its rule, section and status.
//!
//! The fault is always the sender's. After a [`Reject`] the connection must be closed, because the
//! start of the next message is unknown.

use std::fmt;

macro_rules! reasons {
    ($($variant:ident = $status:literal, $class:literal, $section:literal, $text:literal;)*) => {
        /// The rule that was broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum RejectReason {
            $(
                #[doc = concat!($text, " (", $section, ")")]
                $variant,
            )*
        }

        impl RejectReason {
            /// All reasons, for counters and documentation.
            pub const ALL: &'static [RejectReason] = &[$(RejectReason::$variant,)*];

            /// The status to answer a request with.
            pub const fn request_status(self) -> u16 {
                match self { $(RejectReason::$variant => $status,)* }
            }

            /// A short name, for labels and logs.
            pub const fn class(self) -> &'static str {
                match self { $(RejectReason::$variant => $class,)* }
            }

            /// The name of the rule if a response breaks it.
            pub const fn of_response(self) -> &'static str {
                match self { $(RejectReason::$variant => concat!("upstream-", $class),)* }
            }

            /// The section of the specification that has the rule.
            pub const fn section(self) -> &'static str {
                match self { $(RejectReason::$variant => $section,)* }
            }

            /// What was wrong, as text.
            pub const fn text(self) -> &'static str {
                match self { $(RejectReason::$variant => $text,)* }
            }
        }
    };
}

reasons! {
    // the start line
    EmptyLines = 400, "empty-lines", "RFC 9112 2.2", "more than one empty line before a request";
    MalformedRequestLine = 400, "request-line", "RFC 9112 3", "not a request line";
    InvalidMethod = 400, "method", "RFC 9110 9.1", "the method is not a token";
    MethodTooLong = 501, "method-too-long", "RFC 9112 3", "a method longer than any known";
    TargetTooLong = 414, "target-too-long", "RFC 9112 3", "the request-target is too long";
    InvalidTarget = 400, "target", "RFC 9112 3.2", "a byte that no request-target may have";
    InvalidPercentEncoding = 400, "percent-encoding", "RFC 3986 2.1",
        "a percent sign without two hexadecimal digits in a path";
    TargetForm = 400, "target-form", "RFC 9112 3.2",
        "a form of request-target that does not go with the method";
    InvalidAuthority = 400, "authority", "RFC 9110 4.2.1", "an invalid host or port in the target";
    UserInfo = 400, "userinfo", "RFC 9110 4.2.4", "user information in the target";
    MalformedVersion = 400, "version", "RFC 9112 2.3", "not an HTTP version";
    UnsupportedVersion = 505, "version-unsupported", "RFC 9110 15.6.6",
        "a major version other than 1";
    MalformedStatusLine = 400, "status-line", "RFC 9112 4", "not a status line";
    InvalidStatus = 400, "status", "RFC 9110 15", "a status outside 100 to 599";
    // lines and fields
    HeadTooLarge = 431, "head-too-large", "RFC 6585 5", "the head is too large";
    TooManyFields = 431, "too-many-fields", "RFC 6585 5", "too many fields";
    BareLf = 400, "bare-lf", "RFC 9112 2.2", "a line feed without a carriage return";
    BareCr = 400, "bare-cr", "RFC 9112 2.2", "a carriage return without a line feed";
    Nul = 400, "nul", "RFC 9110 5.5", "a zero byte";
    ObsFold = 400, "obs-fold", "RFC 9112 5.2", "a folded field line";
    SpaceBeforeFields = 400, "space-before-fields", "RFC 9112 2.2",
        "white space before the first field";
    SpaceBeforeColon = 400, "space-before-colon", "RFC 9112 5.1",
        "white space in a field name or before its colon";
    EmptyFieldName = 400, "empty-name", "RFC 9110 5.1", "an empty field name";
    InvalidFieldName = 400, "field-name", "RFC 9110 5.1", "a field name that is not a token";
    MissingColon = 400, "missing-colon", "RFC 9112 5", "a field line without a colon";
    InvalidFieldValue = 400, "field-value", "RFC 9110 5.5", "a control character in a field value";
    TooManyOptions = 431, "too-many-options", "RFC 6585 5", "Connection has too many members";
    // whom it is for
    MissingHost = 400, "missing-host", "RFC 9112 3.2", "HTTP/1.1 without Host";
    RepeatedHost = 400, "repeated-host", "RFC 9112 3.2", "more than one Host";
    InvalidHost = 400, "host", "RFC 9112 3.2", "an invalid Host";
    // how long it is
    LengthWithEncoding = 400, "length-with-encoding", "RFC 9112 6.1",
        "both Content-Length and Transfer-Encoding";
    RepeatedLength = 400, "repeated-length", "RFC 9112 6.3", "more than one Content-Length";
    InvalidLength = 400, "length", "RFC 9112 6.3", "a Content-Length that is not one number";
    EncodingInHttp10 = 400, "encoding-in-1.0", "RFC 9112 6.1", "Transfer-Encoding in HTTP/1.0";
    MalformedEncoding = 400, "encoding", "RFC 9112 6.1", "a malformed Transfer-Encoding";
    ChunkedNotLast = 400, "chunked-not-last", "RFC 9112 6.3",
        "a Transfer-Encoding whose last coding is not chunked";
    ChunkedRepeated = 400, "chunked-repeated", "RFC 9112 6.1", "chunked more than once";
    UnknownCoding = 501, "unknown-coding", "RFC 9112 6.1", "a transfer coding not known here";
    ContentWithConnect = 400, "content-with-connect", "RFC 9110 9.3.6", "a CONNECT with content";
    ContentTooLarge = 413, "content-too-large", "RFC 9110 15.5.14", "the content is too large";
    // chunks
    InvalidChunkSize = 400, "chunk-size", "RFC 9112 7.1", "a chunk size that is no number";
    ChunkSizeOverflow = 400, "chunk-size-overflow", "RFC 9112 7.1", "a chunk size beyond 64 bits";
    ChunkLineTooLong = 400, "chunk-line", "RFC 9112 7.1.1", "a chunk-size line is too long";
    InvalidChunkExtension = 400, "chunk-extension", "RFC 9112 7.1.1",
        "a control character in a chunk extension";
    ExtensionsTooLarge = 400, "chunk-extensions", "RFC 9112 7.1.1", "too many chunk extensions";
    MissingChunkEnd = 400, "chunk-end", "RFC 9112 7.1", "no CRLF at the end of a chunk";
    TrailersTooLarge = 431, "trailers", "RFC 9112 7.1.2", "the trailers are too large";
}

/// A message that is refused, and the status that says so.
///
/// For a request, `status` is what to answer before the connection is closed; for a response it is
/// 502, which a gateway answers its own client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// 400, 413, 414, 431, 501 or 505; 502 for a response.
    pub status: u16,
    /// The rule.
    pub reason: RejectReason,
}

impl Reject {
    /// A refused request.
    #[cold]
    pub const fn request(reason: RejectReason) -> Reject {
        Reject { status: reason.request_status(), reason }
    }

    /// A refused response.
    #[cold]
    pub const fn response(reason: RejectReason) -> Reject {
        Reject { status: 502, reason }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text(), self.section())
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.reason)
    }
}

impl std::error::Error for Reject {}
