//! The messages of one bidirectional stream (RFC 9114 section 4.1).
//!
//! ```text
//!   Head --HEADERS--> Content --HEADERS: trailers--> Trailers --end of the stream--> Ended
//!    ^ |               ^ |  |                                                          ^
//!    +-+ interim       +-+  +------------------- end of the stream --------------------+
//!      response         DATA
//! ```

use http2::message;

use crate::error::{Error, Reason};
use crate::frame::{self, Partial};
use crate::limits::Limits;
use crate::qpack;
use http2::{Fields, RequestHead, ResponseHead, Scratch};

/// What [`MessageStream::next_event`] consumed and found.
#[derive(Debug)]
pub struct Received<'a> {
    /// Bytes of the input that must not be passed again.
    pub consumed: usize,
    /// What was found. `None`: all input was consumed; call again when there is more.
    pub event: Option<Event<'a>>,
}

/// What the peer has sent.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The head of the request (server).
    Request(RequestHead<'a>),
    /// The head of a response, or of an interim response (client).
    Response(ResponseHead<'a>),
    /// Content, never empty. A frame may come in several pieces.
    Data(&'a [u8]),
    /// Trailers.
    Trailers(Fields<'a>),
    /// The message is complete.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Head,
    Content,
    Trailers,
    Ended,
}

#[derive(Clone, Copy, Debug)]
enum Frame {
    Header,
    Data(u64),
    Section(usize),
    Skip(u64),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Request,
    Response { is_head: bool },
}

/// The state of one direction of a stream.
#[derive(Debug)]
pub struct MessageStream {
    kind: Kind,
    step: Step,
    frame: Frame,
    partial: Partial,
    /// The start of a field section.
    section: Vec<u8>,
    /// Content that must follow, if Content-Length says so.
    content_left: Option<u64>,
    /// Frames without content in a row.
    idle_frames: u16,
}

impl MessageStream {
    /// For a request, at the server.
    pub fn request() -> MessageStream {
        MessageStream::new(Kind::Request)
    }

    /// For a response, at the client; `is_head`: the request was a HEAD.
    pub fn response(is_head: bool) -> MessageStream {
        MessageStream::new(Kind::Response { is_head })
    }

    fn new(kind: Kind) -> MessageStream {
        MessageStream {
            kind,
            step: Step::Head,
            frame: Frame::Header,
            partial: Partial::default(),
            section: Vec::new(),
            content_left: None,
            idle_frames: 0,
        }
    }

    /// Consumes input up to the next event. `is_end` says that the stream ends after this input.
    ///
    /// # Errors
    /// The peer broke a rule. The stream must not be read further.
    pub fn next_event<'a>(
        &mut self,
        input: &'a [u8],
        is_end: bool,
        scratch: &'a mut Scratch,
        limits: &Limits,
    ) -> Result<Received<'a>, Error> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match self.frame {
                Frame::Header if rest.is_empty() => {
                    let event = if is_end { self.end()? } else { None };
                    return Ok(Received { consumed: at, event });
                }
                Frame::Header => {
                    let (used, header) = self.partial.take(rest, frame::header);
                    at += used;
                    if let Some((kind, length)) = header {
                        self.begin(kind, length, limits)?;
                    }
                }
                Frame::Data(0) | Frame::Skip(0) => self.frame = Frame::Header,
                _ if rest.is_empty() && self.frame_is_incomplete() => {
                    return match is_end {
                        true => Err(Reason::FrameCut.into()),
                        false => Ok(Received { consumed: at, event: None }),
                    };
                }
                Frame::Data(left) => {
                    let (used, left) = part(left, rest);
                    self.frame = Frame::Data(left);
                    self.count_content(used as u64)?;
                    let event = Some(Event::Data(&rest[..used]));
                    return Ok(Received { consumed: at + used, event });
                }
                Frame::Skip(left) => {
                    let (used, left) = part(left, rest);
                    self.frame = Frame::Skip(left);
                    at += used;
                }
                Frame::Section(length) => {
                    let used = (length - self.section.len()).min(rest.len());
                    at += used;
                    if !self.section.is_empty() || used < length {
                        self.section.extend_from_slice(&rest[..used]);
                        if self.section.len() < length {
                            continue;
                        }
                    }
                    self.frame = Frame::Header;
                    let kept = std::mem::take(&mut self.section);
                    let section = if kept.is_empty() { &rest[..used] } else { &kept };
                    let event = self.section(section, scratch, limits)?;
                    return Ok(Received { consumed: at, event: Some(event.view(scratch)) });
                }
            }
        }
    }

    fn frame_is_incomplete(&self) -> bool {
        !matches!(self.frame, Frame::Section(length) if length == self.section.len())
    }

    /// A frame begins.
    fn begin(&mut self, kind: u64, length: u64, limits: &Limits) -> Result<(), Reason> {
        match (kind, self.step) {
            (frame::DATA, Step::Content) => {
                self.frame = Frame::Data(length);
                match length {
                    0 => self.count_idle(limits),
                    _ => {
                        self.idle_frames = 0;
                        Ok(())
                    }
                }
            }
            (frame::HEADERS, Step::Head | Step::Content) => {
                if length > u64::from(limits.block_bytes_max) {
                    return Err(Reason::FieldsTooLarge);
                }
                self.frame = Frame::Section(length as usize);
                self.count_idle(limits)
            }
            (frame::PUSH_PROMISE, _) if matches!(self.kind, Kind::Response { .. }) => {
                Err(Reason::PushPromise)
            }
            (
                frame::DATA
                | frame::HEADERS
                | frame::CANCEL_PUSH
                | frame::SETTINGS
                | frame::PUSH_PROMISE
                | frame::GOAWAY
                | frame::MAX_PUSH_ID
                | frame::PRIORITY_UPDATE_REQUEST
                | frame::PRIORITY_UPDATE_PUSH,
                _,
            ) => Err(Reason::FrameUnexpected),
            _ if frame::is_reserved(kind) => Err(Reason::FrameReserved),
            _ => {
                self.frame = Frame::Skip(length);
                self.count_idle(limits)
            }
        }
    }

    fn count_idle(&mut self, limits: &Limits) -> Result<(), Reason> {
        self.idle_frames += 1;
        if self.idle_frames > limits.idle_frames_max { Err(Reason::IdleFrames) } else { Ok(()) }
    }

    fn count_content(&mut self, bytes: u64) -> Result<(), Reason> {
        if let Some(left) = self.content_left {
            let left = left.checked_sub(bytes).ok_or(WRONG_LENGTH)?;
            self.content_left = Some(left);
        }
        Ok(())
    }

    /// A whole field section.
    fn section(
        &mut self,
        section: &[u8],
        scratch: &mut Scratch,
        limits: &Limits,
    ) -> Result<Found, Reason> {
        qpack::decode(section, scratch, limits)?;
        if scratch.is_overfull() {
            return Err(Reason::FieldsTooLarge);
        }
        match (self.step, self.kind) {
            (Step::Content, _) => {
                message::trailers(scratch).map_err(Reason::Message)?;
                self.step = Step::Trailers;
                Ok(Found::Trailers)
            }
            (_, Kind::Request) => {
                let checked =
                    message::request(scratch, limits.extended_connect).map_err(Reason::Message)?;
                self.content_left = checked.content_length;
                self.step = Step::Content;
                Ok(Found::Request(checked))
            }
            (_, Kind::Response { is_head }) => {
                let checked = message::response(scratch).map_err(Reason::Message)?;
                if checked.status >= 200 {
                    let has_none = is_head || matches!(checked.status, 204 | 304);
                    self.content_left = if has_none { Some(0) } else { checked.content_length };
                    self.step = Step::Content;
                }
                Ok(Found::Response(checked))
            }
        }
    }

    /// The stream ends.
    fn end(&mut self) -> Result<Option<Event<'static>>, Reason> {
        if !self.partial.is_empty() {
            return Err(Reason::FrameCut);
        }
        match self.step {
            Step::Ended => Ok(None),
            Step::Head => Err(Reason::RequestIncomplete),
            Step::Content | Step::Trailers if self.content_left.is_some_and(|left| left > 0) => {
                Err(WRONG_LENGTH)
            }
            Step::Content | Step::Trailers => {
                self.step = Step::Ended;
                Ok(Some(Event::End))
            }
        }
    }
}

const WRONG_LENGTH: Reason = Reason::Message(http2::Reason::ContentLength);

/// How much of this input belongs to the frame, and what of the frame follows.
fn part(left: u64, input: &[u8]) -> (usize, u64) {
    let used = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
    (used, left - used as u64)
}

/// An event as positions in the scratch.
enum Found {
    Request(message::Checked),
    Response(message::Checked),
    Trailers,
}

impl Found {
    fn view<'a>(self, scratch: &'a Scratch) -> Event<'a> {
        match self {
            Found::Request(checked) => Event::Request(checked.request_head(scratch)),
            Found::Response(checked) => Event::Response(checked.response_head(scratch)),
            Found::Trailers => Event::Trailers(scratch.fields_of_block()),
        }
    }
}
