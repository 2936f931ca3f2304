//! Field blocks: HEADERS with CONTINUATION, and what their fields mean for the stream.

use super::Connection;
use super::receive::{check_dependency, count_content};
use crate::error::Reason;
use crate::event::{Found, StreamId};
use crate::frame::{self, FrameHeader, PRIORITY_BYTES, flag};
use crate::limits::FRAME_HEADER_BYTES;
use crate::message::{self, Checked};
use crate::rate::Work;
use crate::scratch::Scratch;
use crate::stream::{Direction, Step, Stream};

/// A block whose last frame has not arrived.
#[derive(Debug)]
pub(super) struct PartialBlock {
    stream: StreamId,
    end_stream: bool,
    continuations: u32,
    bytes: Vec<u8>,
}

impl PartialBlock {
    pub(super) fn stream(&self) -> StreamId {
        self.stream
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of::<PartialBlock>() + self.bytes.capacity()
    }
}

/// What a block is, by the state of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    NewRequest,
    Response,
    Trailers,
    /// It is decoded, because the table changes, and nothing more.
    Ignored,
    /// It is decoded, and then the stream is reset.
    Refused(Reason),
}

impl Connection {
    pub(super) fn headers(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        scratch: &mut Scratch,
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Result<Found, Reason> {
        let mut block = payload;
        if header.has(flag::PADDED) {
            let (&padding, rest) = block.split_first().ok_or(Reason::FrameLength)?;
            let length = rest.len().checked_sub(padding as usize).ok_or(Reason::Padding)?;
            block = &rest[..length];
        }
        if header.has(flag::PRIORITY) {
            let (priority, rest) =
                block.split_first_chunk::<PRIORITY_BYTES>().ok_or(Reason::FrameLength)?;
            check_dependency(header.stream, priority)?;
            block = rest;
        }
        let end_stream = header.has(flag::END_STREAM);
        if header.has(flag::END_HEADERS) {
            return self.block(header.stream, end_stream, block, scratch, now_ms, out);
        }
        let bytes = block.to_vec();
        let stream = header.stream;
        let partial = PartialBlock { stream, end_stream, continuations: 0, bytes };
        self.block = Some(Box::new(partial));
        Ok(Found::Nothing)
    }

    pub(super) fn continuation(
        &mut self,
        header: &FrameHeader,
        payload: &[u8],
        scratch: &mut Scratch,
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Result<Found, Reason> {
        let mut block = self.block.take().ok_or(Reason::Interleaved)?;
        block.continuations += 1;
        if (block.continuations > self.limits.continuations_max
            && !planted::is(planted::Bug::Http2ContinuationsUnlimited))
            || block.bytes.len() + payload.len() > self.limits.block_bytes_max as usize
        {
            return Err(Reason::BlockTooLarge);
        }
        block.bytes.extend_from_slice(payload);
        if header.has(flag::END_HEADERS) {
            return self.block(block.stream, block.end_stream, &block.bytes, scratch, now_ms, out);
        }
        self.block = Some(block);
        Ok(Found::Nothing)
    }

    /// A whole block.
    fn block(
        &mut self,
        id: StreamId,
        end_stream: bool,
        block: &[u8],
        scratch: &mut Scratch,
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Result<Found, Reason> {
        if block.len() > self.limits.block_bytes_max as usize {
            return Err(Reason::BlockTooLarge);
        }
        let meaning = self.meaning(id)?;
        let (fields_max, bytes_max) = (self.limits.fields_max, self.limits.fields_bytes_max);
        self.decoder.decode(block, scratch, fields_max as usize, bytes_max as usize)?;
        if scratch.spans.is_empty() {
            self.count(Work::EmptyFlood, now_ms)?;
        }
        let result = match meaning {
            Meaning::Ignored => return Ok(Found::Nothing),
            Meaning::Refused(reason) => Err(reason),
            _ if scratch.overflow => Err(Reason::FieldsTooLarge),
            Meaning::NewRequest => self.request(id, end_stream, scratch),
            Meaning::Response => self.response(id, end_stream, scratch),
            Meaning::Trailers => self.trailers(id, end_stream, scratch),
        };
        match result {
            Err(Reason::FieldsTooLarge) if meaning == Meaning::NewRequest => {
                self.answer(out, |out| write_431(out, id))?;
                let error = self.stream_error(id, Reason::FieldsTooLarge, now_ms, out)?;
                Ok(error)
            }
            Err(reason) => self.stream_error(id, reason, now_ms, out),
            Ok(found) => Ok(found),
        }
    }

    fn meaning(&mut self, id: StreamId) -> Result<Meaning, Reason> {
        if let Some(stream) = self.streams.get(id) {
            return Ok(match stream.receiving {
                Step::Head => Meaning::Response,
                Step::Body => Meaning::Trailers,
                Step::Ended => Meaning::Refused(Reason::Closed),
            });
        }
        if id.is_multiple_of(2) {
            return Err(Reason::StreamId);
        }
        if self.is_ignored(id) {
            return Ok(Meaning::Ignored);
        }
        if !self.is_server {
            return if id > self.last_stream { Err(Reason::Idle) } else { Ok(Meaning::Ignored) };
        }
        if id <= self.last_stream {
            return Err(Reason::Closed);
        }
        self.last_stream = id;
        // Closed streams whose content is not released take memory too.
        let is_full = self.streams.open() >= self.limits.streams_max
            || self.streams.len() >= 2 * self.limits.streams_max as usize;
        Ok(if is_full { Meaning::Refused(Reason::TooManyStreams) } else { Meaning::NewRequest })
    }

    fn request(
        &mut self,
        id: StreamId,
        end_stream: bool,
        scratch: &mut Scratch,
    ) -> Result<Found, Reason> {
        let checked = message::request(scratch, self.limits.extended_connect)?;
        let mut content_left = checked.content_length;
        count_content(&mut content_left, 0, end_stream)?;
        let mut stream = Stream::new(id, self.stream_window_bytes(), self.peer.window_bytes);
        stream.receiving = if end_stream { Step::Ended } else { Step::Body };
        stream.content_left = content_left;
        stream.priority = checked.priority();
        self.streams.insert(stream);
        self.rates.saw_traffic();
        Ok(Found::Request(id, checked, end_stream))
    }

    fn response(
        &mut self,
        id: StreamId,
        end_stream: bool,
        scratch: &mut Scratch,
    ) -> Result<Found, Reason> {
        let checked = message::response(scratch)?;
        let is_interim = checked.status < 200;
        if is_interim && end_stream {
            return Err(Reason::InterimEnds);
        }
        if !is_interim {
            let Some(stream) = self.streams.get_mut(id) else { return Ok(Found::Nothing) };
            stream.content_left = content_of(&checked, stream.is_head);
            count_content(&mut stream.content_left, 0, end_stream)?;
            let step = if end_stream { Step::Ended } else { Step::Body };
            self.streams.advance(id, Direction::Receiving, step);
        }
        Ok(Found::Response(id, checked, end_stream))
    }

    fn trailers(
        &mut self,
        id: StreamId,
        end_stream: bool,
        scratch: &mut Scratch,
    ) -> Result<Found, Reason> {
        if !end_stream {
            return Err(Reason::TrailersDoNotEnd);
        }
        message::trailers(scratch)?;
        if let Some(stream) = self.streams.get_mut(id) {
            count_content(&mut stream.content_left, 0, true)?;
        }
        self.streams.advance(id, Direction::Receiving, Step::Ended);
        Ok(Found::Trailers(id))
    }
}

/// The content that a response must have (RFC 9110 section 6.4.1).
fn content_of(checked: &Checked, is_head: bool) -> Option<u64> {
    let has_none = is_head || matches!(checked.status, 204 | 304);
    if has_none { Some(0) } else { checked.content_length }
}

/// The answer to a request whose fields are too large (RFC 6585 section 5), without a table.
fn write_431(out: &mut Vec<u8>, stream: StreamId) {
    let start = out.len();
    out.resize(start + FRAME_HEADER_BYTES, 0);
    crate::hpack::encode_without_table(b":status", b"431", out);
    frame::close_block(out, start, stream, true, crate::limits::FRAME_BYTES);
}
