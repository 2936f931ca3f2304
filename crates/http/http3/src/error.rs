//! What can go wrong: one list of reasons, each with its error code, section and text.
//!
//! A [`Reason`] is always the peer's fault. Its [`Scope`] says what ends.

use std::fmt;

/// An error code of RFC 9114 section 8.1 or RFC 9204 section 6.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u64);

macro_rules! codes {
    ($($name:ident = $number:literal;)*) => {
        impl ErrorCode {
            $(#[doc = concat!("`", stringify!($name), "`")]
            pub const $name: ErrorCode = ErrorCode($number);)*

            /// The name in the specification, or `UNKNOWN`.
            pub const fn name(self) -> &'static str {
                match self.0 { $($number => stringify!($name),)* _ => "UNKNOWN" }
            }
        }
    };
}

codes! {
    H3_NO_ERROR = 0x100;
    H3_GENERAL_PROTOCOL_ERROR = 0x101;
    H3_INTERNAL_ERROR = 0x102;
    H3_STREAM_CREATION_ERROR = 0x103;
    H3_CLOSED_CRITICAL_STREAM = 0x104;
    H3_FRAME_UNEXPECTED = 0x105;
    H3_FRAME_ERROR = 0x106;
    H3_EXCESSIVE_LOAD = 0x107;
    H3_ID_ERROR = 0x108;
    H3_SETTINGS_ERROR = 0x109;
    H3_MISSING_SETTINGS = 0x10a;
    H3_REQUEST_REJECTED = 0x10b;
    H3_REQUEST_CANCELLED = 0x10c;
    H3_REQUEST_INCOMPLETE = 0x10d;
    H3_MESSAGE_ERROR = 0x10e;
    H3_CONNECT_ERROR = 0x10f;
    H3_VERSION_FALLBACK = 0x110;
    QPACK_DECOMPRESSION_FAILED = 0x200;
    QPACK_ENCODER_STREAM_ERROR = 0x201;
    QPACK_DECODER_STREAM_ERROR = 0x202;
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:#x})", self.name(), self.0)
    }
}

/// What an error ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Both directions of the stream: reset it, and ask the peer to stop sending.
    Stream,
    /// The connection.
    Connection,
}

macro_rules! reasons {
    ($($variant:ident = $code:ident, $scope:ident, $section:literal, $text:literal;)*) => {
        /// The rule that the peer broke, or the limit that it exceeded.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Reason {
            $(
                #[doc = concat!($text, " (", $section, ")")]
                $variant,
            )*
            /// A malformed message: the rule is the same in HTTP/2.
            Message(http2::Reason),
        }

        impl Reason {
            /// The code that the peer is sent.
            pub const fn code(self) -> ErrorCode {
                match self {
                    $(Reason::$variant => ErrorCode::$code,)*
                    Reason::Message(_) => ErrorCode::H3_MESSAGE_ERROR,
                }
            }

            /// What ends.
            pub const fn scope(self) -> Scope {
                match self {
                    $(Reason::$variant => Scope::$scope,)*
                    Reason::Message(_) => Scope::Stream,
                }
            }

            /// The section of the specification that has the rule.
            pub const fn section(self) -> &'static str {
                match self {
                    $(Reason::$variant => $section,)*
                    Reason::Message(reason) => reason.section(),
                }
            }

            /// What was wrong, as text.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Reason::$variant => $text,)*
                    Reason::Message(reason) => reason.text(),
                }
            }
        }
    };
}

reasons! {
    // frames
    FrameCut = H3_FRAME_ERROR, Connection, "RFC 9114 7.1", "a stream that ends inside a frame";
    FrameLength = H3_FRAME_ERROR, Connection, "RFC 9114 7.1",
        "a length that the content of the frame does not have";
    FrameUnexpected = H3_FRAME_UNEXPECTED, Connection, "RFC 9114 7.2",
        "a frame that this stream may not have, here or at all";
    FrameReserved = H3_FRAME_UNEXPECTED, Connection, "RFC 9114 7.2.8", "a frame of HTTP/2";
    PushPromise = H3_ID_ERROR, Connection, "RFC 9114 7.2.5", "a push, which was not allowed";

    // streams
    StreamCreation = H3_STREAM_CREATION_ERROR, Connection, "RFC 9114 6.2",
        "a stream that the peer may not open, or opens twice";
    CriticalClosed = H3_CLOSED_CRITICAL_STREAM, Connection, "RFC 9114 6.2.1",
        "the end of a stream that lasts as long as the connection";
    RequestIncomplete = H3_REQUEST_INCOMPLETE, Stream, "RFC 9114 4.1",
        "a stream that ends before the head of its message";

    // the control stream
    SettingsMissing = H3_MISSING_SETTINGS, Connection, "RFC 9114 6.2.1",
        "a control stream that does not begin with SETTINGS";
    Setting = H3_SETTINGS_ERROR, Connection, "RFC 9114 7.2.4.1",
        "a setting that is repeated, reserved, or has an invalid value";
    Id = H3_ID_ERROR, Connection, "RFC 9114 7.2", "an identifier that is not valid here";

    // QPACK
    Qpack = QPACK_DECOMPRESSION_FAILED, Connection, "RFC 9204 2.2", "an invalid field section";
    QpackDynamic = QPACK_DECOMPRESSION_FAILED, Connection, "RFC 9204 2.2.1",
        "a field section that needs a dynamic table, which has no room";
    QpackEncoder = QPACK_ENCODER_STREAM_ERROR, Connection, "RFC 9204 4.3",
        "an instruction that needs a dynamic table, which has no room";
    QpackDecoder = QPACK_DECODER_STREAM_ERROR, Connection, "RFC 9204 4.4",
        "an acknowledgement of what was never sent";

    // limits
    FieldsTooLarge = H3_EXCESSIVE_LOAD, Stream, "RFC 9114 4.2.2",
        "a field section above SETTINGS_MAX_FIELD_SECTION_SIZE";
    IdleFrames = H3_EXCESSIVE_LOAD, Connection, "RFC 9114 10.5",
        "too many frames without content";
    ControlFlood = H3_EXCESSIVE_LOAD, Connection, "RFC 9114 10.5",
        "too many frames on the control stream, or too many unknown streams";
    ControlFrameTooLarge = H3_EXCESSIVE_LOAD, Connection, "RFC 9114 10.5",
        "a frame of the control stream that is too large";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text(), self.section())
    }
}

/// A broken rule. [`Reason::scope`] says what is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(pub Reason);

impl From<Reason> for Error {
    fn from(reason: Reason) -> Error {
        Error(reason)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code().name(), self.0)
    }
}

impl std::error::Error for Error {}
