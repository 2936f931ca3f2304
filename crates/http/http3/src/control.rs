//! Unidirectional streams (RFC 9114 section 6.2, RFC 9204 section 4.2): the control stream, the two
//! of QPACK, and those of unknown types, which are not read.

use http2::{Bucket, Priority};

use crate::error::{Error, Reason};
use crate::frame::{self, Partial};
use crate::limits::{CONTROL_PER_REQUEST, Limits};
use crate::varint;
use crate::write::{
    CONTROL_STREAM, SETTING_BLOCKED_STREAMS, SETTING_EXTENDED_CONNECT, SETTING_FIELDS_BYTES,
    SETTING_TABLE_BYTES,
};

const PUSH_STREAM: u64 = 0x1;
const ENCODER_STREAM: u64 = 0x2;
const DECODER_STREAM: u64 = 0x3;

/// RFC 9220 and RFC 9297: 0 or 1.
const FLAGS: [u64; 2] = [SETTING_EXTENDED_CONNECT, 0x33];

/// What a unidirectional stream said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The peer's settings have arrived.
    Settings,
    /// The peer sends GOAWAY with this identifier: at a client, requests from it on were not
    /// processed.
    GoAway(u64),
    /// The peer wants this priority for the request of this stream, which may not have arrived. The
    /// caller must check that the stream is within its limit: if it is not, the connection ends
    /// with [`Reason::Id`].
    Priority {
        /// The stream of a request.
        stream: u64,
        /// In place of what its field says.
        priority: Priority,
    },
    /// The stream has an unknown type: ask the peer to stop sending, with
    /// H3_STREAM_CREATION_ERROR.
    Unknown,
}

/// What the unidirectional streams of the peer have said.
#[derive(Debug)]
pub struct Connection {
    is_client: bool,
    limits: Limits,
    /// Which critical streams exist, by [`Critical`].
    critical: [bool; 3],
    has_settings: bool,
    go_away: Option<u64>,
    max_push_id: Option<u64>,
    work: Bucket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Critical {
    Control,
    Encoder,
    Decoder,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Its type has not arrived.
    New,
    Critical(Critical),
    Unknown,
}

#[derive(Clone, Copy, Debug)]
enum Frame {
    Header,
    /// A frame whose payload is collected.
    Payload(u64, usize),
    Skip(u64),
}

/// One unidirectional stream of the peer.
#[derive(Debug)]
pub struct UniStream {
    kind: Kind,
    partial: Partial,
    frame: Frame,
    payload: Vec<u8>,
    /// Bytes of a stream cancellation that came, while more follow.
    cancelling: u8,
}

impl Default for UniStream {
    fn default() -> UniStream {
        UniStream {
            kind: Kind::New,
            partial: Partial::default(),
            frame: Frame::Header,
            payload: Vec::new(),
            cancelling: 0,
        }
    }
}

impl UniStream {
    /// The peer has reset the stream.
    ///
    /// # Errors
    /// The connection needs it.
    pub fn reset(&self) -> Result<(), Error> {
        match self.kind {
            Kind::Critical(_) => Err(Reason::CriticalClosed.into()),
            _ => Ok(()),
        }
    }
}

impl Connection {
    /// At the server.
    pub fn server(limits: &Limits) -> Connection {
        Connection::new(limits, false)
    }

    /// At the client.
    pub fn client(limits: &Limits) -> Connection {
        Connection::new(limits, true)
    }

    fn new(limits: &Limits, is_client: bool) -> Connection {
        Connection {
            is_client,
            limits: *limits,
            critical: [false; 3],
            has_settings: false,
            go_away: None,
            max_push_id: None,
            work: Bucket::default(),
        }
    }

    /// Consumes input up to the next event. Returns how much it consumed, and the event; without
    /// one, all input was consumed. `is_end` says that the stream ends after this input.
    ///
    /// # Errors
    /// The peer broke a rule: the connection is over.
    pub fn next_event(
        &mut self,
        stream: &mut UniStream,
        input: &[u8],
        is_end: bool,
        now_ms: u64,
    ) -> Result<(usize, Option<Control>), Error> {
        let mut at = 0;
        while at < input.len() || has_all(stream) {
            let rest = &input[at..];
            let (used, event) = match stream.kind {
                Kind::New => self.kind(stream, rest, now_ms)?,
                Kind::Critical(Critical::Control) => self.control(stream, rest, now_ms)?,
                Kind::Critical(Critical::Encoder) => {
                    // Capacity 0, which is what it has.
                    if rest.iter().any(|byte| *byte != 0x20) {
                        return Err(Reason::QpackEncoder.into());
                    }
                    (rest.len(), None)
                }
                Kind::Critical(Critical::Decoder) => {
                    self.decoder(stream, rest, now_ms)?;
                    (rest.len(), None)
                }
                Kind::Unknown => (rest.len(), None),
            };
            at += used;
            if event.is_some() {
                return Ok((at, event));
            }
        }
        if is_end {
            stream.reset()?;
        }
        Ok((at, None))
    }

    /// The peer has opened a request, which entitles it to as many frames, streams and
    /// cancellations beyond [`Limits::control`].
    #[inline]
    pub fn saw_request(&mut self) {
        self.work.earn(CONTROL_PER_REQUEST);
    }

    fn count(&mut self, now_ms: u64) -> Result<(), Reason> {
        match self.work.take(self.limits.control, now_ms) {
            true => Ok(()),
            false => Err(Reason::ControlFlood),
        }
    }

    /// The type of a stream.
    fn kind(
        &mut self,
        stream: &mut UniStream,
        input: &[u8],
        now_ms: u64,
    ) -> Result<(usize, Option<Control>), Reason> {
        let (used, found) = stream.partial.take(input, varint::read);
        let Some((kind, _)) = found else { return Ok((used, None)) };
        self.count(now_ms)?;
        let critical = match kind {
            CONTROL_STREAM => Critical::Control,
            ENCODER_STREAM => Critical::Encoder,
            DECODER_STREAM => Critical::Decoder,
            PUSH_STREAM if self.is_client => return Err(Reason::PushPromise),
            PUSH_STREAM => return Err(Reason::StreamCreation),
            _ => {
                stream.kind = Kind::Unknown;
                return Ok((used, Some(Control::Unknown)));
            }
        };
        if std::mem::replace(&mut self.critical[critical as usize], true) {
            return Err(Reason::StreamCreation);
        }
        stream.kind = Kind::Critical(critical);
        Ok((used, None))
    }

    /// One step on the control stream.
    fn control(
        &mut self,
        stream: &mut UniStream,
        input: &[u8],
        now_ms: u64,
    ) -> Result<(usize, Option<Control>), Reason> {
        match stream.frame {
            Frame::Header => {
                let (used, header) = stream.partial.take(input, frame::header);
                if let Some((kind, length)) = header {
                    self.count(now_ms)?;
                    stream.frame = self.begin(kind, length)?;
                }
                Ok((used, None))
            }
            Frame::Skip(left) => {
                let used = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                let left = left - used as u64;
                stream.frame = if left == 0 { Frame::Header } else { Frame::Skip(left) };
                Ok((used, None))
            }
            Frame::Payload(kind, length) => {
                let used = (length - stream.payload.len()).min(input.len());
                stream.payload.extend_from_slice(&input[..used]);
                if stream.payload.len() < length {
                    return Ok((used, None));
                }
                stream.frame = Frame::Header;
                let payload = std::mem::take(&mut stream.payload);
                Ok((used, self.frame(kind, &payload)?))
            }
        }
    }

    fn begin(&mut self, kind: u64, length: u64) -> Result<Frame, Reason> {
        if !self.has_settings && kind != frame::SETTINGS {
            return Err(Reason::SettingsMissing);
        }
        let is_allowed = match kind {
            frame::SETTINGS => !self.has_settings,
            frame::GOAWAY | frame::CANCEL_PUSH => true,
            frame::MAX_PUSH_ID | frame::PRIORITY_UPDATE_REQUEST | frame::PRIORITY_UPDATE_PUSH => {
                !self.is_client
            }
            frame::DATA | frame::HEADERS | frame::PUSH_PROMISE => false,
            _ if frame::is_reserved(kind) => return Err(Reason::FrameReserved),
            _ => return Ok(Frame::Skip(length)),
        };
        if !is_allowed {
            return Err(Reason::FrameUnexpected);
        }
        if length > u64::from(self.limits.control_frame_bytes_max) {
            return Err(Reason::ControlFrameTooLarge);
        }
        self.has_settings = true;
        Ok(Frame::Payload(kind, length as usize))
    }

    /// A whole frame.
    fn frame(&mut self, kind: u64, payload: &[u8]) -> Result<Option<Control>, Reason> {
        if kind == frame::SETTINGS {
            return settings(payload).map(|()| Some(Control::Settings));
        }
        let (id, length) = varint::read(payload).ok_or(Reason::FrameLength)?;
        if kind == frame::PRIORITY_UPDATE_REQUEST {
            let priority = Priority::from_field(&payload[length..]);
            let is_request = id.is_multiple_of(4);
            return if is_request {
                Ok(Some(Control::Priority { stream: id, priority }))
            } else {
                Err(Reason::Id)
            };
        }
        if length != payload.len() && kind != frame::PRIORITY_UPDATE_PUSH {
            return Err(Reason::FrameLength);
        }
        match kind {
            frame::GOAWAY => {
                // A server names a request, which are the streams 0, 4, 8, …; a client a push.
                let is_valid = !self.is_client || id.is_multiple_of(4);
                if !is_valid || self.go_away.is_some_and(|before| id > before) {
                    return Err(Reason::Id);
                }
                self.go_away = Some(id);
                Ok(Some(Control::GoAway(id)))
            }
            frame::MAX_PUSH_ID => {
                if self.max_push_id.is_some_and(|before| id < before) {
                    return Err(Reason::Id);
                }
                self.max_push_id = Some(id);
                Ok(None)
            }
            // CANCEL_PUSH and the priority of a push: there was never one.
            _ => Err(Reason::Id),
        }
    }

    /// Instructions of the peer's decoder (RFC 9204 section 4.4). Only cancellations of a stream
    /// need no dynamic table.
    fn decoder(&mut self, stream: &mut UniStream, input: &[u8], now_ms: u64) -> Result<(), Reason> {
        /// The bytes of an identifier below 2^62.
        const BYTES_MAX: u8 = 10;
        for byte in input {
            let has_more = if stream.cancelling == 0 {
                if byte & 0xc0 != 0x40 {
                    return Err(Reason::QpackDecoder);
                }
                self.count(now_ms)?;
                byte & 0x3f == 0x3f
            } else {
                byte & 0x80 != 0
            };
            stream.cancelling = if has_more { stream.cancelling + 1 } else { 0 };
            if stream.cancelling == BYTES_MAX {
                return Err(Reason::QpackDecoder);
            }
        }
        Ok(())
    }
}

/// Whether there is something to do without further input: a frame without payload.
fn has_all(stream: &UniStream) -> bool {
    matches!(stream.frame, Frame::Payload(_, 0) | Frame::Skip(0))
}

/// Checks SETTINGS (RFC 9114 section 7.2.4). Nothing that a peer may set changes what we send: the
/// limit on field sections is only advice, and our heads are small.
fn settings(payload: &[u8]) -> Result<(), Reason> {
    let mut seen = Vec::new();
    let mut rest = payload;
    while !rest.is_empty() {
        let (setting, used) = varint::read(rest).ok_or(Reason::FrameLength)?;
        let (value, used_too) = varint::read(&rest[used..]).ok_or(Reason::FrameLength)?;
        rest = &rest[used + used_too..];
        let is_valid = match setting {
            0x0 | 0x2..=0x5 => false,
            SETTING_TABLE_BYTES | SETTING_FIELDS_BYTES | SETTING_BLOCKED_STREAMS => true,
            _ => !FLAGS.contains(&setting) || value <= 1,
        };
        if !is_valid || seen.contains(&setting) {
            return Err(Reason::Setting);
        }
        seen.push(setting);
    }
    Ok(())
}
