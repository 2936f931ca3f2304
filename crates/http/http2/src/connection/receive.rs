//! Frames of each type (RFC 9113 section 6), except what fields mean.

use super::{Connection, DRAIN_PING, Going, PREFACE, Payload, Phase};
use crate::error::{ErrorCode, Reason};
use crate::event::{Found, StreamId};
use crate::frame::{self, FrameHeader, PRIORITY_BYTES, flag, kind, u32_31};
use crate::limits::{FRAME_BYTES, FRAME_HEADER_BYTES};
use crate::priority::Priority;
use crate::rate::Work;
use crate::scratch::Scratch;
use crate::settings;
use crate::stream::{Direction, Step};

/// Bytes consumed and what they mean; `None` if more bytes are needed.
type Outcome = Result<Option<(usize, Found)>, Reason>;

impl Connection {
    /// Reads one frame, or a piece of the payload that the connection is in.
    pub(super) fn receive(
        &mut self,
        input: &[u8],
        scratch: &mut Scratch,
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Outcome {
        match (self.phase, self.payload) {
            (Phase::Dead, _) if input.is_empty() => return Ok(None),
            (Phase::Dead, _) => return Ok(Some((input.len(), Found::Nothing))),
            (Phase::Preface(seen), _) => return self.preface(input, seen as usize),
            (_, Payload::Content { .. }) => return Ok(self.content(input)),
            (_, Payload::Skip { left }) => return Ok(self.skip(input, left)),
            _ => {}
        }
        let Some(header) = FrameHeader::read(input) else { return Ok(None) };
        if header.length > FRAME_BYTES {
            return Err(Reason::FrameTooLarge);
        }
        self.check_place(&header)?;
        let rest = &input[FRAME_HEADER_BYTES..];
        if header.kind == kind::DATA {
            return self.data(&header, rest, now_ms, out);
        }
        if header.kind > kind::CONTINUATION && header.kind != kind::PRIORITY_UPDATE {
            self.count(Work::UnknownFlood, now_ms)?;
            self.payload = skip_or_none(header.length);
            return Ok(Some((FRAME_HEADER_BYTES, Found::Nothing)));
        }
        let Some(payload) = rest.get(..header.length) else { return Ok(None) };
        let found = match header.kind {
            kind::HEADERS => self.headers(&header, payload, scratch, now_ms, out)?,
            kind::CONTINUATION => self.continuation(&header, payload, scratch, now_ms, out)?,
            kind::PRIORITY => self.dependency(&header, payload, now_ms)?,
            kind::RST_STREAM => self.rst_stream(&header, payload, now_ms, out)?,
            kind::SETTINGS => self.settings(&header, payload, now_ms, out)?,
            kind::PING => self.pinged(&header, payload, now_ms, out)?,
            kind::GOAWAY => self.went_away(payload, out)?,
            kind::WINDOW_UPDATE => self.window_update(&header, payload, now_ms, out)?,
            kind::PRIORITY_UPDATE => self.priority_update(payload, now_ms)?,
            // PUSH_PROMISE is the only other one. We disable it, and a client must not send it.
            _ => return Err(Reason::Push),
        };
        Ok(Some((FRAME_HEADER_BYTES + header.length, found)))
    }

    fn preface(&mut self, input: &[u8], seen: usize) -> Outcome {
        let expected = &PREFACE[seen..];
        let len = input.len().min(expected.len());
        if input[..len] != expected[..len] {
            return Err(Reason::Preface);
        }
        let is_complete = len == expected.len();
        self.phase = if is_complete { Phase::Settings } else { Phase::Preface((seen + len) as u8) };
        Ok((len > 0).then_some((len, Found::Nothing)))
    }

    /// Whether a frame of this type may come now, and on this stream.
    fn check_place(&mut self, header: &FrameHeader) -> Result<(), Reason> {
        if self.phase == Phase::Settings {
            if header.kind != kind::SETTINGS || header.has(flag::ACK) {
                return Err(Reason::Preface);
            }
            self.phase = Phase::Open;
        }
        let in_block = self.block.as_ref().map(|block| block.stream());
        let continued = (header.kind == kind::CONTINUATION).then_some(header.stream);
        if in_block != continued {
            return Err(Reason::Interleaved);
        }
        let needs_stream = match header.kind {
            kind::DATA | kind::HEADERS | kind::PRIORITY | kind::RST_STREAM | kind::CONTINUATION => {
                true
            }
            kind::SETTINGS | kind::PING | kind::GOAWAY | kind::PRIORITY_UPDATE => false,
            _ => return Ok(()),
        };
        if needs_stream == (header.stream != 0) { Ok(()) } else { Err(Reason::StreamZero) }
    }

    /// A stream that was never opened (RFC 9113 section 5.1).
    fn check_not_idle(&self, stream: StreamId) -> Result<(), Reason> {
        let is_idle = stream.is_multiple_of(2) || stream > self.last_stream;
        if is_idle && !self.is_ignored(stream) { Err(Reason::Idle) } else { Ok(()) }
    }

    /// The header of a DATA frame, and the length of its padding. The content follows.
    fn data(
        &mut self,
        header: &FrameHeader,
        rest: &[u8],
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let mut consumed = FRAME_HEADER_BYTES;
        let mut content = header.length;
        let mut padding = 0;
        if header.has(flag::PADDED) && header.length > 0 {
            let Some(&length) = rest.first() else { return Ok(None) };
            consumed += 1;
            padding = length;
            content = (content - 1).checked_sub(length as usize).ok_or(Reason::Padding)?;
        } else if header.has(flag::PADDED) {
            return Err(Reason::FrameLength);
        }
        let id = header.stream;
        self.check_not_idle(id)?;
        let end_stream = header.has(flag::END_STREAM);
        if content == 0 && !end_stream {
            self.count(Work::EmptyFlood, now_ms)?;
        }
        self.receive_window.take(header.length)?;
        self.payload = skip_or_none(header.length - (consumed - FRAME_HEADER_BYTES));
        let found = match self.accept_content(id, header.length, content, end_stream) {
            Ok(()) => {
                self.report_stream_window(id, out);
                if content > 0 {
                    self.rates.saw_traffic();
                }
                if content > 0 || end_stream {
                    let left = content as u32;
                    self.payload = Payload::Content { stream: id, left, padding, end_stream };
                }
                Found::Nothing
            }
            // It counts against the window of the connection, whatever becomes of it.
            Err(reason) => {
                self.receive_window.release(header.length as u32);
                match reason {
                    Some(reason) => self.stream_error(id, reason, now_ms, out)?,
                    None => Found::Nothing,
                }
            }
        };
        self.report_window(out);
        Ok(Some((consumed, found)))
    }

    /// Counts a DATA frame against its stream. Padding is released at once. `Err(None)`: ignore it.
    fn accept_content(
        &mut self,
        id: StreamId,
        length: usize,
        content: usize,
        end_stream: bool,
    ) -> Result<(), Option<Reason>> {
        let is_ignored = self.is_ignored(id);
        let Some(stream) = self.streams.get_mut(id) else {
            return Err(if is_ignored { None } else { Some(Reason::Closed) });
        };
        match stream.receiving {
            Step::Head => return Err(Some(Reason::DataBeforeHead)),
            Step::Body => {}
            Step::Ended => return Err(Some(Reason::Closed)),
        }
        count_content(&mut stream.content_left, content, end_stream)?;
        stream.receive_window.take(length)?;
        let padding = (length - content) as u32;
        stream.receive_window.release(padding);
        self.receive_window.release(padding);
        Ok(())
    }

    /// A piece of content.
    fn content(&mut self, input: &[u8]) -> Option<(usize, Found)> {
        let Payload::Content { stream, left, padding, end_stream } = self.payload else {
            return None;
        };
        let len = input.len().min(left as usize);
        if len == 0 && left > 0 {
            return None;
        }
        let left = left - len as u32;
        let is_known = self.streams.get(stream).is_some();
        self.payload = if left > 0 {
            Payload::Content { stream, left, padding, end_stream }
        } else {
            skip_or_none(padding as usize)
        };
        let end_stream = end_stream && left == 0;
        if end_stream {
            self.streams.advance(stream, Direction::Receiving, Step::Ended);
        }
        let found = if is_known { Found::Data(stream, len, end_stream) } else { Found::Nothing };
        Some((len, found))
    }

    fn skip(&mut self, input: &[u8], left: u32) -> Option<(usize, Found)> {
        let len = input.len().min(left as usize);
        self.payload = skip_or_none(left as usize - len);
        (len > 0).then_some((len, Found::Nothing))
    }

    fn dependency(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        now_ms: u64,
    ) -> Result<Found, Reason> {
        self.count(Work::PriorityFlood, now_ms)?;
        let payload = payload.try_into().map_err(|_| Reason::FrameLength)?;
        check_dependency(header.stream, payload)?;
        Ok(Found::Nothing)
    }

    fn rst_stream(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Result<Found, Reason> {
        let code = payload.try_into().map_err(|_| Reason::FrameLength)?;
        self.check_not_idle(header.stream)?;
        self.count(Work::Resets, now_ms)?;
        if self.streams.get(header.stream).is_none() {
            return Ok(Found::Nothing);
        }
        if !planted::is(planted::Bug::Http2ResetForgotten) {
            self.forget(header.stream, out);
        }
        Ok(Found::Reset(header.stream, ErrorCode(u32::from_be_bytes(code))))
    }

    fn settings(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Result<Found, Reason> {
        self.count(Work::SettingsFlood, now_ms)?;
        if header.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(Reason::FrameLength);
            }
            self.acknowledged();
            return Ok(Found::Nothing);
        }
        if !settings::is_length(payload.len()) {
            return Err(Reason::FrameLength);
        }
        let before = self.peer.window_bytes;
        self.peer.apply(payload, !self.is_server)?;
        let change = i64::from(self.peer.window_bytes) - i64::from(before);
        if change != 0 {
            self.streams.iter_mut().try_for_each(|stream| stream.send_window.add(change))?;
        }
        self.encoder.allow(self.peer.table_bytes as usize);
        self.answer(out, |out| frame::header(out, 0, kind::SETTINGS, flag::ACK, 0))?;
        Ok(Found::SettingsChanged)
    }

    /// Our SETTINGS are in force now.
    fn acknowledged(&mut self) {
        if self.is_acknowledged {
            return;
        }
        let before = self.stream_window_bytes();
        self.is_acknowledged = true;
        for stream in self.streams.iter_mut() {
            stream.receive_window.resize(before, self.limits.stream_window_bytes);
        }
        self.decoder.allow(self.limits.decoder_table_bytes as usize);
    }

    fn pinged(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Result<Found, Reason> {
        let payload = payload.try_into().map_err(|_| Reason::FrameLength)?;
        self.count(Work::PingFlood, now_ms)?;
        if !header.has(flag::ACK) {
            self.answer(out, |out| frame::ping(out, flag::ACK, payload))?;
            return Ok(Found::Nothing);
        }
        if payload == DRAIN_PING && self.going == Going::Announced {
            self.go_away_now(out);
            return Ok(Found::Nothing);
        }
        Ok(Found::PingAcknowledged(payload))
    }

    fn went_away(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<Found, Reason> {
        const LEAST_BYTES: usize = 8;
        let [a, b, c, d, e, f, g, h] =
            *payload.first_chunk::<LEAST_BYTES>().ok_or(Reason::FrameLength)?;
        let code = ErrorCode(u32::from_be_bytes([e, f, g, h]));
        if self.is_server {
            return Ok(Found::GoAway(0, code));
        }
        self.peer_last_stream = self.peer_last_stream.min(u32_31([a, b, c, d]));
        let last = self.peer_last_stream;
        let refused: Vec<StreamId> =
            self.streams.iter().map(|stream| stream.id).filter(|&id| id > last).collect();
        for id in refused {
            self.forget(id, out);
            self.remember_reset(id);
        }
        Ok(Found::GoAway(last, code))
    }

    fn window_update(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Result<Found, Reason> {
        let increment = u32_31(payload.try_into().map_err(|_| Reason::FrameLength)?);
        self.count(Work::WindowFlood, now_ms)?;
        let id = header.stream;
        if id == 0 {
            if increment == 0 {
                return Err(Reason::WindowIncrement);
            }
            let was_closed = self.send_window.available() == 0;
            self.send_window.add(i64::from(increment))?;
            return Ok(if was_closed { Found::WindowOpened(None) } else { Found::Nothing });
        }
        self.check_not_idle(id)?;
        let Some(stream) = self.streams.get_mut(id) else { return Ok(Found::Nothing) };
        if increment == 0 {
            return self.stream_error(id, Reason::WindowIncrement, now_ms, out);
        }
        let was_closed = stream.send_window.available() == 0;
        if let Err(reason) = stream.send_window.add(i64::from(increment)) {
            return self.stream_error(id, reason, now_ms, out);
        }
        let is_opened = was_closed && stream.wants && stream.send_window.available() > 0;
        Ok(if is_opened { Found::WindowOpened(Some(id)) } else { Found::Nothing })
    }

    fn priority_update(&mut self, payload: &[u8], now_ms: u64) -> Result<Found, Reason> {
        self.count(Work::PriorityFlood, now_ms)?;
        let Some((&id, value)) = payload.split_first_chunk() else {
            return Err(Reason::FrameLength);
        };
        let id = u32_31(id);
        if !self.is_server || id.is_multiple_of(2) {
            return Err(Reason::PriorityUpdate);
        }
        // An update of a stream that is still idle is not kept: the request has its own field.
        if let Some(stream) = self.streams.get_mut(id) {
            stream.priority = Priority::from_field(value);
        }
        Ok(Found::Nothing)
    }
}

/// RFC 7540 section 5.3.1. The priority itself is ignored (RFC 9113 section 5.3.2).
pub(super) fn check_dependency(
    stream: StreamId,
    priority: &[u8; PRIORITY_BYTES],
) -> Result<(), Reason> {
    let [a, b, c, d, _weight] = *priority;
    if u32_31([a, b, c, d]) == stream { Err(Reason::SelfDependency) } else { Ok(()) }
}

fn skip_or_none(left: usize) -> Payload {
    if left > 0 { Payload::Skip { left: left as u32 } } else { Payload::None }
}

/// RFC 9113 section 8.1.1: the sum of the content is what Content-Length says.
pub(super) fn count_content(
    content_left: &mut Option<u64>,
    content: usize,
    end_stream: bool,
) -> Result<(), Reason> {
    let Some(left) = content_left else { return Ok(()) };
    if planted::is(planted::Bug::Http2LengthUnchecked) {
        return Ok(());
    }
    *left = left.checked_sub(content as u64).ok_or(Reason::ContentLength)?;
    if end_stream && *left > 0 { Err(Reason::ContentLength) } else { Ok(()) }
}
