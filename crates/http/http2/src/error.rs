//! What can go wrong: one list of reasons, each with its error code, section and text.
//!
//! A [`Reason`] is always the peer's fault. Where it occurs decides what ends: [`ConnectionError`]
//! ends the connection, and [`Event::StreamError`](crate::Event::StreamError) ends one stream.
//! [`Misuse`] is the fault of the caller and changes nothing.

use std::fmt;

/// An error code of RFC 9113 section 7. Unknown codes are legal and are kept as they are.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

macro_rules! codes {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl ErrorCode {
            $(#[doc = concat!("`", $text, "`")] pub const $name: ErrorCode = ErrorCode($number);)*

            /// The name in RFC 9113, or `UNKNOWN`.
            pub const fn name(self) -> &'static str {
                match self.0 { $($number => $text,)* _ => "UNKNOWN" }
            }
        }
    };
}

codes! {
    NO_ERROR = 0x0, "NO_ERROR";
    PROTOCOL_ERROR = 0x1, "PROTOCOL_ERROR";
    INTERNAL_ERROR = 0x2, "INTERNAL_ERROR";
    FLOW_CONTROL_ERROR = 0x3, "FLOW_CONTROL_ERROR";
    SETTINGS_TIMEOUT = 0x4, "SETTINGS_TIMEOUT";
    STREAM_CLOSED = 0x5, "STREAM_CLOSED";
    FRAME_SIZE_ERROR = 0x6, "FRAME_SIZE_ERROR";
    REFUSED_STREAM = 0x7, "REFUSED_STREAM";
    CANCEL = 0x8, "CANCEL";
    COMPRESSION_ERROR = 0x9, "COMPRESSION_ERROR";
    CONNECT_ERROR = 0xa, "CONNECT_ERROR";
    ENHANCE_YOUR_CALM = 0xb, "ENHANCE_YOUR_CALM";
    INADEQUATE_SECURITY = 0xc, "INADEQUATE_SECURITY";
    HTTP_1_1_REQUIRED = 0xd, "HTTP_1_1_REQUIRED";
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:#x})", self.name(), self.0)
    }
}

macro_rules! reasons {
    ($($variant:ident = $code:ident, $class:literal, $section:literal, $text:literal;)*) => {
        /// The rule that the peer broke, or the limit that it exceeded.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason {
            $(
                #[doc = concat!($text, " (", $section, ")")]
                $variant,
            )*
        }

        impl Reason {
            /// All reasons, for counters and documentation.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant,)*];

            /// The code that the peer is sent.
            pub const fn code(self) -> ErrorCode {
                match self { $(Reason::$variant => ErrorCode::$code,)* }
            }

            /// A short name, for labels and logs.
            pub const fn class(self) -> &'static str {
                match self { $(Reason::$variant => $class,)* }
            }

            /// The name of the rule if an upstream breaks it.
            pub const fn of_response(self) -> &'static str {
                match self { $(Reason::$variant => concat!("upstream-http2-", $class),)* }
            }

            /// The section of the specification that has the rule.
            pub const fn section(self) -> &'static str {
                match self { $(Reason::$variant => $section,)* }
            }

            /// What was wrong, as text.
            pub const fn text(self) -> &'static str {
                match self { $(Reason::$variant => $text,)* }
            }
        }
    };
}

reasons! {
    // frames and the connection
    Preface = PROTOCOL_ERROR, "preface", "RFC 9113 3.4", "not the connection preface";
    FrameTooLarge = FRAME_SIZE_ERROR, "frame-too-large", "RFC 9113 4.2",
        "a frame larger than SETTINGS_MAX_FRAME_SIZE";
    FrameLength = FRAME_SIZE_ERROR, "frame-length", "RFC 9113 4.2",
        "a length that the type of the frame does not allow";
    Padding = PROTOCOL_ERROR, "padding", "RFC 9113 6.1", "more padding than payload";
    StreamZero = PROTOCOL_ERROR, "stream-zero", "RFC 9113 6",
        "a frame of a stream on stream 0, or the reverse";
    Interleaved = PROTOCOL_ERROR, "interleaved", "RFC 9113 4.3",
        "another frame inside a field block, or CONTINUATION outside of one";
    Push = PROTOCOL_ERROR, "push", "RFC 9113 8.4", "PUSH_PROMISE, which is disabled";
    Setting = PROTOCOL_ERROR, "setting", "RFC 9113 6.5.2", "a setting with an invalid value";
    WindowSetting = FLOW_CONTROL_ERROR, "window-setting", "RFC 9113 6.5.2",
        "an initial window above 2^31-1";
    SelfDependency = PROTOCOL_ERROR, "self-dependency", "RFC 7540 5.3.1",
        "a stream that depends on itself";
    PriorityUpdate = PROTOCOL_ERROR, "priority-update", "RFC 9218 7.1",
        "PRIORITY_UPDATE for no request stream";

    // streams
    StreamId = PROTOCOL_ERROR, "stream-id", "RFC 9113 5.1.1",
        "a stream identifier that the peer may not open";
    Idle = PROTOCOL_ERROR, "idle", "RFC 9113 5.1", "a frame on an idle stream";
    Closed = STREAM_CLOSED, "closed", "RFC 9113 5.1", "a frame on a stream that the peer closed";
    TooManyStreams = REFUSED_STREAM, "too-many-streams", "RFC 9113 5.1.2",
        "more concurrent streams than allowed";
    WindowExceeded = FLOW_CONTROL_ERROR, "window-exceeded", "RFC 9113 6.9.1",
        "more content than the window allows";
    WindowOverflow = FLOW_CONTROL_ERROR, "window-overflow", "RFC 9113 6.9.1",
        "a window above 2^31-1";
    WindowIncrement = PROTOCOL_ERROR, "window-increment", "RFC 9113 6.9",
        "WINDOW_UPDATE with increment 0";

    // field blocks
    HpackIndex = COMPRESSION_ERROR, "hpack-index", "RFC 7541 2.3.3", "an index beyond the table";
    HpackInteger = COMPRESSION_ERROR, "hpack-integer", "RFC 7541 5.1", "an integer too large";
    HpackHuffman = COMPRESSION_ERROR, "hpack-huffman", "RFC 7541 5.2", "an invalid Huffman string";
    HpackSizeUpdate = COMPRESSION_ERROR, "hpack-size-update", "RFC 7541 4.2",
        "a table size above the limit, or an update that is missing or misplaced";
    HpackTruncated = COMPRESSION_ERROR, "hpack-truncated", "RFC 7541 3.1",
        "a field block that ends inside a field";
    BlockTooLarge = ENHANCE_YOUR_CALM, "block-too-large", "RFC 9113 10.5.1",
        "a field block with too many frames or bytes";
    FieldsTooLarge = ENHANCE_YOUR_CALM, "fields-too-large", "RFC 9113 6.5.2",
        "a field list above SETTINGS_MAX_HEADER_LIST_SIZE";

    // malformed messages
    FieldName = PROTOCOL_ERROR, "field-name", "RFC 9113 8.2.1", "an invalid field name";
    FieldValue = PROTOCOL_ERROR, "field-value", "RFC 9113 8.2.1", "an invalid field value";
    ConnectionField = PROTOCOL_ERROR, "connection-field", "RFC 9113 8.2.2",
        "a field that is specific to HTTP/1 connections";
    PseudoUnknown = PROTOCOL_ERROR, "pseudo-unknown", "RFC 9113 8.3",
        "an unknown pseudo-field, or one that this message may not have";
    PseudoOrder = PROTOCOL_ERROR, "pseudo-order", "RFC 9113 8.3", "a pseudo-field after a field";
    PseudoRepeated = PROTOCOL_ERROR, "pseudo-repeated", "RFC 9113 8.3", "a repeated pseudo-field";
    PseudoMissing = PROTOCOL_ERROR, "pseudo-missing", "RFC 9113 8.3.1",
        "a pseudo-field is missing";
    Method = PROTOCOL_ERROR, "method", "RFC 9110 9.1", "the method is not a token";
    Scheme = PROTOCOL_ERROR, "scheme", "RFC 9113 8.3.1", "an invalid scheme";
    Path = PROTOCOL_ERROR, "path", "RFC 9113 8.3.1", "an empty or invalid path";
    Authority = PROTOCOL_ERROR, "authority", "RFC 9113 8.3.1",
        "a missing or invalid authority, or one that differs from Host";
    Connect = PROTOCOL_ERROR, "connect", "RFC 9113 8.5",
        "CONNECT with a scheme or path, or with a protocol that is not enabled";
    Status = PROTOCOL_ERROR, "status", "RFC 9113 8.3.2", "an invalid status";
    ContentLength = PROTOCOL_ERROR, "content-length", "RFC 9113 8.1.1",
        "Content-Length is invalid or differs from the content";
    InterimEnds = PROTOCOL_ERROR, "interim-ends", "RFC 9113 8.1",
        "an interim response that ends the stream";
    TrailersDoNotEnd = PROTOCOL_ERROR, "trailers-do-not-end", "RFC 9113 8.1",
        "trailers that do not end the stream";
    DataBeforeHead = PROTOCOL_ERROR, "data-before-head", "RFC 9113 8.1",
        "content before the head of the response";

    // rates
    Resets = ENHANCE_YOUR_CALM, "resets", "CVE-2023-44487", "too many RST_STREAM";
    ProvokedResets = ENHANCE_YOUR_CALM, "provoked-resets", "CVE-2025-8671",
        "too many errors that we answer with RST_STREAM";
    SettingsFlood = ENHANCE_YOUR_CALM, "settings-flood", "RFC 9113 10.5", "too many SETTINGS";
    PingFlood = ENHANCE_YOUR_CALM, "ping-flood", "RFC 9113 10.5", "too many PING";
    EmptyFlood = ENHANCE_YOUR_CALM, "empty-flood", "RFC 9113 10.5", "too many empty frames";
    PriorityFlood = ENHANCE_YOUR_CALM, "priority-flood", "RFC 9113 10.5",
        "too many PRIORITY or PRIORITY_UPDATE";
    WindowFlood = ENHANCE_YOUR_CALM, "window-flood", "RFC 9113 10.5", "too many WINDOW_UPDATE";
    UnknownFlood = ENHANCE_YOUR_CALM, "unknown-flood", "RFC 9113 10.5",
        "too many frames of unknown types";
    ControlQueue = ENHANCE_YOUR_CALM, "control-queue", "RFC 9113 10.5",
        "the peer causes answers and does not read them";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text(), self.section())
    }
}

/// The connection is over. Send the output, which ends with GOAWAY, then close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionError(pub Reason);

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection error {}: {}", self.0.code().name(), self.0)
    }
}

impl std::error::Error for ConnectionError {}

/// A call that the state of the connection or stream does not allow. It had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// The stream does not exist, or it is closed: perhaps the peer has just reset it.
    NoStream,
    /// A second head, content before the head, or anything after the end.
    Order,
    /// The other role sends this.
    Role,
    /// The peer's SETTINGS_MAX_CONCURRENT_STREAMS is reached. Try again after a stream has ended.
    TooManyStreams,
    /// The peer has sent GOAWAY, or the connection is dead, or all stream identifiers are
    /// exhausted. Open another connection.
    Closing,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Misuse::NoStream => "no such stream",
            Misuse::Order => "not in this state of the stream",
            Misuse::Role => "not in this role",
            Misuse::TooManyStreams => "the peer allows no more concurrent streams",
            Misuse::Closing => "the connection opens no more streams",
        })
    }
}

impl std::error::Error for Misuse {}
