//! What a connection reports to its caller.

use crate::error::{ErrorCode, Reason};
use crate::message::{Checked, RequestHead, ResponseHead};
use crate::scratch::{Fields, Scratch};

/// The identifier of a stream. Those of a client are odd and ascend.
pub type StreamId = u32;

/// What [`Connection::next_event`](crate::Connection::next_event) consumed and found.
#[derive(Debug)]
pub struct Received<'a> {
    /// Bytes of the input that must not be passed again.
    pub consumed: usize,
    /// What was found. `None`: call again when there is more input.
    pub event: Option<Event<'a>>,
}

/// What the peer has done. It borrows the input and the scratch, not the connection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A new stream (server).
    Request {
        /// The new stream.
        stream: StreamId,
        /// The checked head.
        head: RequestHead<'a>,
        /// There is no content.
        end_stream: bool,
    },
    /// The head of a response, or of an interim response (client).
    Response {
        /// The stream of the request.
        stream: StreamId,
        /// The checked head.
        head: ResponseHead<'a>,
        /// There is no content.
        end_stream: bool,
    },
    /// Content. Its length counts against the windows until the caller passes it to
    /// [`Connection::release`](crate::Connection::release). A frame may come in several pieces.
    Data {
        /// The stream.
        stream: StreamId,
        /// The content, without padding. Empty only at the end.
        bytes: &'a [u8],
        /// The content is complete.
        end_stream: bool,
    },
    /// Trailers. The content is complete.
    Trailers {
        /// The stream.
        stream: StreamId,
        /// The checked fields.
        fields: Fields<'a>,
    },
    /// The peer has reset the stream. It is gone, and its content need not be released.
    Reset {
        /// The stream.
        stream: StreamId,
        /// Why.
        code: ErrorCode,
    },
    /// The peer broke a rule, and the stream was reset (or a request answered with 431). The
    /// caller may not know the stream yet. It is gone, and its content need not be released.
    StreamError {
        /// The stream.
        stream: StreamId,
        /// The rule.
        reason: Reason,
    },
    /// The peer opens or accepts no more streams. Our streams above `last_stream` are gone and were
    /// not processed, so they may be sent again elsewhere.
    GoAway {
        /// Our last stream that was or may be processed.
        last_stream: StreamId,
        /// Why.
        code: ErrorCode,
    },
    /// The answer to [`Connection::ping`](crate::Connection::ping).
    PingAcknowledged {
        /// What the ping contained.
        payload: [u8; 8],
    },
    /// See [`Connection::peer_settings`](crate::Connection::peer_settings). Blocked streams may be
    /// able to continue.
    SettingsChanged,
    /// Content that was blocked can be sent: of this stream, or of any.
    WindowOpened {
        /// `None` if the window of the connection was opened.
        stream: Option<StreamId>,
    },
}

/// An event as positions, while the connection is borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found {
    Nothing,
    Request(StreamId, Checked, bool),
    Response(StreamId, Checked, bool),
    /// The content is at the start of the bytes that were consumed.
    Data(StreamId, usize, bool),
    Trailers(StreamId),
    Reset(StreamId, ErrorCode),
    StreamError(StreamId, Reason),
    GoAway(StreamId, ErrorCode),
    PingAcknowledged([u8; 8]),
    SettingsChanged,
    WindowOpened(Option<StreamId>),
}

impl Found {
    /// The event, with the bytes that it was found in.
    pub(crate) fn view<'a>(self, input: &'a [u8], scratch: &'a Scratch) -> Option<Event<'a>> {
        Some(match self {
            Found::Nothing => return None,
            Found::Request(stream, checked, end_stream) => {
                Event::Request { stream, head: checked.request_head(scratch), end_stream }
            }
            Found::Response(stream, checked, end_stream) => {
                Event::Response { stream, head: checked.response_head(scratch), end_stream }
            }
            Found::Data(stream, len, end_stream) => {
                Event::Data { stream, bytes: &input[..len], end_stream }
            }
            Found::Trailers(stream) => Event::Trailers { stream, fields: scratch.fields(0) },
            Found::Reset(stream, code) => Event::Reset { stream, code },
            Found::StreamError(stream, reason) => Event::StreamError { stream, reason },
            Found::GoAway(last_stream, code) => Event::GoAway { last_stream, code },
            Found::PingAcknowledged(payload) => Event::PingAcknowledged { payload },
            Found::SettingsChanged => Event::SettingsChanged,
            Found::WindowOpened(stream) => Event::WindowOpened { stream },
        })
    }
}
