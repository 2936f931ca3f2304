//! What the caller does: heads, content, trailers, resets, releases and the shutdown.

use super::{Connection, DRAIN_PING, Going};
use crate::error::{ErrorCode, Misuse};
use crate::event::StreamId;
use crate::frame::{self, flag, kind};
use crate::limits::{FRAME_BYTES, FRAME_HEADER_BYTES, WINDOW_BYTES_CEILING};
use crate::message::may_be_sent;
use crate::priority::Priority;
use crate::stream::{Direction, Step, Stream};

/// The pseudo-fields of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestFields<'a> {
    /// A token.
    pub method: &'a [u8],
    /// `None` for CONNECT without a protocol.
    pub scheme: Option<&'a [u8]>,
    /// The host, with a port if it is not the scheme's.
    pub authority: &'a [u8],
    /// `None` for CONNECT without a protocol.
    pub path: Option<&'a [u8]>,
    /// For extended CONNECT (RFC 8441).
    pub protocol: Option<&'a [u8]>,
}

impl Connection {
    /// Opens a stream and sends a request (client).
    ///
    /// Names are sent in lower case. Fields that are specific to HTTP/1 connections and fields with
    /// invalid bytes are left out.
    ///
    /// # Errors
    /// [`Misuse`]; nothing was sent.
    pub fn send_request<'f>(
        &mut self,
        request: &RequestFields<'_>,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        end_stream: bool,
        out: &mut Vec<u8>,
    ) -> Result<StreamId, Misuse> {
        if self.is_server {
            return Err(Misuse::Role);
        }
        let id = self.next_stream()?;
        let start = self.begin_block(out);
        let pseudo = [
            (&b":method"[..], Some(request.method)),
            (b":scheme", request.scheme),
            (b":authority", Some(request.authority)),
            (b":path", request.path),
            (b":protocol", request.protocol),
        ];
        for (name, value) in pseudo {
            if let Some(value) = value {
                self.encoder.field(name, value, out);
            }
        }
        self.end_block(fields, start, id, end_stream, out);
        let mut stream = Stream::new(id, self.stream_window_bytes(), self.peer.window_bytes);
        stream.sending = if end_stream { Step::Ended } else { Step::Body };
        stream.is_head = request.method == b"HEAD";
        self.streams.insert(stream);
        self.last_stream = id;
        self.rates.saw_traffic();
        // A server may reset each once, for example after a response that needs no more content.
        self.rates.completed_response();
        Ok(id)
    }

    fn next_stream(&self) -> Result<StreamId, Misuse> {
        let id = if self.last_stream == 0 { 1 } else { self.last_stream + 2 };
        let is_closing = self.is_dead() || self.going != Going::No;
        if is_closing || self.peer_last_stream != WINDOW_BYTES_CEILING || id > WINDOW_BYTES_CEILING
        {
            return Err(Misuse::Closing);
        }
        if self.streams.open() >= self.peer.streams_max {
            return Err(Misuse::TooManyStreams);
        }
        Ok(id)
    }

    /// Sends the head of a response (server). Below status 200 it is an interim response, and
    /// another head must follow. Fields are treated as by [`Connection::send_request`].
    ///
    /// If this ends the stream before the request is complete, also reset it with
    /// [`ErrorCode::NO_ERROR`] (RFC 9113 section 8.1).
    ///
    /// # Errors
    /// [`Misuse`]; nothing was sent.
    pub fn send_response<'f>(
        &mut self,
        stream: StreamId,
        status: u16,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        end_stream: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        self.check_response(stream)?;
        let start = self.begin_block(out);
        let digits = [status / 100 % 10, status / 10 % 10, status % 10];
        self.encoder.field(b":status", &digits.map(|digit| b'0' + digit as u8), out);
        self.end_block(fields, start, stream, end_stream, out);
        if status >= 200 {
            self.sent_head(stream, end_stream);
        }
        Ok(())
    }

    /// Sends the head of a final response whose block was made before by
    /// [`encode_without_table`](crate::hpack::encode_without_table), with `:status` first.
    ///
    /// # Errors
    /// [`Misuse`]; nothing was sent.
    pub fn send_encoded_response(
        &mut self,
        stream: StreamId,
        block: &[u8],
        end_stream: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        self.check_response(stream)?;
        let start = self.begin_block(out);
        out.extend_from_slice(block);
        frame::close_block(out, start, stream, end_stream, FRAME_BYTES);
        self.sent_head(stream, end_stream);
        Ok(())
    }

    fn check_response(&self, stream: StreamId) -> Result<(), Misuse> {
        if !self.is_server {
            return Err(Misuse::Role);
        }
        self.check_step(stream, Step::Head)
    }

    fn sent_head(&mut self, stream: StreamId, end_stream: bool) {
        match end_stream {
            true => self.end_sending(stream),
            false => self.streams.advance(stream, Direction::Sending, Step::Body),
        }
    }

    fn end_sending(&mut self, stream: StreamId) {
        self.streams.advance(stream, Direction::Sending, Step::Ended);
        self.rates.completed_response();
    }

    /// The bytes of content that the windows allow now; before the head is sent, those that they
    /// will allow.
    pub fn send_data_capacity(&self, stream: StreamId) -> usize {
        self.stream_window(stream).min(self.connection_window())
    }

    /// The window of a stream alone.
    pub fn stream_window(&self, stream: StreamId) -> usize {
        let stream = self.streams.get(stream).filter(|stream| stream.sending != Step::Ended);
        stream.map_or(0, |stream| stream.send_window.available())
    }

    /// The window of the connection alone.
    pub fn connection_window(&self) -> usize {
        self.send_window.available()
    }

    /// Sends content, as far as the windows allow, and returns how many bytes that is. With
    /// `end_stream` the stream ends after all of the bytes, if all are accepted.
    ///
    /// If not all are accepted, the stream is listed for [`Connection::next_to_send`].
    ///
    /// # Errors
    /// [`Misuse`]; nothing was sent.
    pub fn send_data(
        &mut self,
        stream: StreamId,
        bytes: &[u8],
        end_stream: bool,
        out: &mut Vec<u8>,
    ) -> Result<usize, Misuse> {
        let mut sent = 0;
        loop {
            let frame = self.send_frame(stream, &bytes[sent..], end_stream, out)?;
            sent += frame.unwrap_or(0);
            if frame.is_none() || sent == bytes.len() {
                return Ok(sent);
            }
        }
    }

    /// Sends one DATA frame, and returns the bytes of its content; `None` if a window is closed.
    fn send_frame(
        &mut self,
        stream: StreamId,
        content: &[u8],
        end_stream: bool,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, Misuse> {
        self.check_step(stream, Step::Body)?;
        let open = self.send_window.available();
        let found = self.streams.get_mut(stream).ok_or(Misuse::NoStream)?;
        let bytes = content.len().min(FRAME_BYTES).min(open).min(found.send_window.available());
        let is_all = bytes == content.len();
        found.wants = !is_all;
        if bytes == 0 && !(is_all && end_stream) {
            return Ok(None);
        }
        if !planted::is(planted::Bug::Http2WindowNotTaken) {
            found.send_window.take(bytes);
        }
        self.send_window.take(bytes);
        if bytes > 0 {
            self.rates.sent_content();
        }
        let ends = is_all && end_stream;
        frame::header(out, bytes, kind::DATA, if ends { flag::END_STREAM } else { 0 }, stream);
        out.extend_from_slice(&content[..bytes]);
        if ends {
            self.end_sending(stream);
        }
        Ok(Some(bytes))
    }

    /// The caller has content for this stream: lists it for [`Connection::next_to_send`].
    pub fn want_to_send(&mut self, stream: StreamId) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.wants = true;
        }
    }

    /// The listed stream to send content of next, by priority (RFC 9218), among those whose windows
    /// are open. The caller sends a part of its content and asks again. The cost is linear in the
    /// number of streams.
    pub fn next_to_send(&mut self) -> Option<StreamId> {
        if self.send_window.available() == 0 {
            return None;
        }
        let can_send = |stream: &&mut Stream| {
            stream.wants && stream.sending == Step::Body && stream.send_window.available() > 0
        };
        let streams = self.streams.iter_mut().filter(can_send);
        let next = streams.min_by_key(|stream| {
            stream.priority.key(u64::from(stream.id), u64::from(stream.turn))
        })?;
        self.turn = self.turn.wrapping_add(1);
        next.turn = self.turn;
        Some(next.id)
    }

    /// The priority of a stream, by its request or a later update.
    pub fn priority(&self, stream: StreamId) -> Option<Priority> {
        self.streams.get(stream).map(|stream| stream.priority)
    }

    /// Sends trailers, which end the stream. Fields are treated as by
    /// [`Connection::send_request`]. Send all content before.
    ///
    /// # Errors
    /// [`Misuse`]; nothing was sent.
    pub fn send_trailers<'f>(
        &mut self,
        stream: StreamId,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        out: &mut Vec<u8>,
    ) -> Result<(), Misuse> {
        self.check_step(stream, Step::Body)?;
        let start = self.begin_block(out);
        self.end_block(fields, start, stream, true, out);
        self.end_sending(stream);
        Ok(())
    }

    /// Resets a stream. It is gone, and its content need not be released. Nothing happens if it
    /// does not exist.
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode, out: &mut Vec<u8>) {
        if self.streams.get(stream).is_some() {
            frame::rst_stream(out, stream, code);
            self.forget(stream, out);
            self.remember_reset(stream);
        }
    }

    /// The caller has consumed content of [`Event::Data`](crate::Event::Data), so that the peer may
    /// send more. Nothing happens if the stream does not exist any more.
    pub fn release(&mut self, stream: StreamId, bytes: usize, out: &mut Vec<u8>) {
        let Some(found) = self.streams.get_mut(stream) else { return };
        let bytes = (bytes.min(u32::MAX as usize) as u32).min(found.receive_window.held());
        found.receive_window.release(bytes);
        self.receive_window.release(bytes);
        self.report_stream_window(stream, out);
        self.report_window(out);
        self.streams.settle(stream);
    }

    /// Reports released content of a stream, if enough has been released and more may come.
    pub(super) fn report_stream_window(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        let window_bytes = self.stream_window_bytes();
        let Some(found) = self.streams.get_mut(stream) else { return };
        if found.receiving == Step::Ended {
            return;
        }
        if let Some(bytes) = found.receive_window.increment(window_bytes) {
            frame::window_update(out, stream, bytes);
        }
    }

    /// Sends a ping. The answer is [`Event::PingAcknowledged`](crate::Event::PingAcknowledged).
    pub fn ping(&mut self, payload: [u8; 8], out: &mut Vec<u8>) {
        if !self.is_dead() {
            frame::ping(out, 0, payload);
        }
    }

    /// Begins a graceful shutdown (RFC 9113 section 6.8): announces it, and after the answer to a
    /// ping refuses later streams. Then wait for [`Connection::is_drained`]. A second call does not
    /// wait for the answer. A client only stops opening streams.
    pub fn go_away(&mut self, out: &mut Vec<u8>) {
        match self.going {
            _ if self.is_dead() => {}
            Going::No if self.is_server => {
                frame::go_away(out, WINDOW_BYTES_CEILING, ErrorCode::NO_ERROR);
                frame::ping(out, 0, DRAIN_PING);
                self.going = Going::Announced;
            }
            Going::No | Going::Announced => self.go_away_now(out),
            Going::Final(_) => {}
        }
    }

    /// The second step of a shutdown: streams after the last one are not processed.
    pub(super) fn go_away_now(&mut self, out: &mut Vec<u8>) {
        let last = if self.is_server { self.last_stream } else { 0 };
        frame::go_away(out, last, ErrorCode::NO_ERROR);
        self.going = Going::Final(last);
    }

    /// Ends the connection at once with this code: all streams are gone. Send the output, then
    /// close.
    pub fn abort(&mut self, code: ErrorCode, out: &mut Vec<u8>) {
        if !self.is_dead() {
            self.end(code, out);
        }
    }

    fn check_step(&self, stream: StreamId, step: Step) -> Result<(), Misuse> {
        match self.streams.get(stream) {
            None => Err(Misuse::NoStream),
            Some(stream) if stream.sending != step => Err(Misuse::Order),
            Some(_) => Ok(()),
        }
    }

    /// Leaves room for the header of a frame; returns where it is.
    fn begin_block(&mut self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        out.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
        self.encoder.begin(out);
        start
    }

    fn end_block<'f>(
        &mut self,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        start: usize,
        stream: StreamId,
        end_stream: bool,
        out: &mut Vec<u8>,
    ) {
        for (name, value) in fields {
            if may_be_sent(name, value) {
                self.encoder.field(name, value, out);
            }
        }
        frame::close_block(out, start, stream, end_stream, FRAME_BYTES);
    }
}
