//! One connection: its state, what it receives, and when it ends.
//!
//! ```text
//!              24 bytes             SETTINGS           a connection error
//!   Preface ------------> Settings ----------> Open ----------------------> Dead
//!   (server)              (client begins here)
//! ```
//!
//! | file | subject |
//! | --- | --- |
//! | `receive.rs` | frames of each type |
//! | `block.rs` | field blocks, and what a list of fields means for its stream |
//! | `send.rs` | what the caller does |
//!
//! Who owns: the caller owns the input, the [`Scratch`] and the output. The output holds what has
//! not been sent yet; the caller removes from its front what was sent.
//!
//! What never happens: a frame is interpreted in part, except that content is passed on as it
//! comes; a stream is reported after it is gone; the result depends on how the input is split.

mod block;
mod receive;
mod send;

use block::PartialBlock;
pub use send::RequestFields;

use crate::error::{ConnectionError, ErrorCode, Reason};
use crate::event::{Found, Received, StreamId};
use crate::flow::{ReceiveWindow, SendWindow};
use crate::frame::{self, kind};
use crate::hpack::{Decoder, Encoder};
use crate::limits::{
    Limits, RESETS_REMEMBERED, TABLE_BYTES_INITIAL, WINDOW_BYTES_CEILING, WINDOW_BYTES_INITIAL,
};
use crate::rate::{Rates, Work};
use crate::scratch::Scratch;
use crate::settings::{self, PeerSettings};
use crate::stream::Streams;

/// What a client sends first (RFC 9113 section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The ping whose answer ends the first step of a graceful shutdown.
const DRAIN_PING: [u8; 8] = *b"draining";

/// A connection of either role. See the crate's documentation for how to drive it.
#[derive(Debug)]
pub struct Connection {
    is_server: bool,
    limits: Limits,
    phase: Phase,
    payload: Payload,
    block: Option<Box<PartialBlock>>,
    decoder: Decoder,
    encoder: Encoder,
    streams: Streams,
    peer: PeerSettings,
    send_window: SendWindow,
    receive_window: ReceiveWindow,
    /// Our SETTINGS are acknowledged, and so in force.
    is_acknowledged: bool,
    /// The highest stream of the client that was opened.
    last_stream: StreamId,
    going: Going,
    /// The peer's GOAWAY: our streams above it are not processed.
    peer_last_stream: StreamId,
    /// Answers to control frames in the output, at most.
    control_bytes: u32,
    rates: Rates,
    /// Streams that we reset last, as a ring.
    resets: [StreamId; RESETS_REMEMBERED],
    resets_next: u8,
    /// Counts what `next_to_send` gives out.
    turn: u32,
}

/// Drawn in the header of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// So many bytes of the preface were received.
    Preface(u8),
    Settings,
    Open,
    Dead,
}

/// The payload that is passed on or skipped as it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payload {
    /// The next byte begins a frame.
    None,
    Content {
        stream: StreamId,
        left: u32,
        padding: u8,
        end_stream: bool,
    },
    Skip {
        left: u32,
    },
}

/// How far our own shutdown is (RFC 9113 section 6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Going {
    No,
    /// GOAWAY was sent with the highest stream possible, and a ping.
    Announced,
    /// GOAWAY was sent with this last stream. Later ones are ignored.
    Final(StreamId),
}

impl Connection {
    /// The server's side. Its SETTINGS are appended to `out`.
    pub fn server(limits: &Limits, out: &mut Vec<u8>) -> Connection {
        Connection::new(true, limits, out)
    }

    /// The client's side. The preface and its SETTINGS are appended to `out`.
    pub fn client(limits: &Limits, out: &mut Vec<u8>) -> Connection {
        out.extend_from_slice(PREFACE);
        Connection::new(false, limits, out)
    }

    fn new(is_server: bool, limits: &Limits, out: &mut Vec<u8>) -> Connection {
        let limits = limits.bounded();
        settings::write(&limits, is_server, out);
        let more = limits.connection_window_bytes - WINDOW_BYTES_INITIAL;
        if more > 0 {
            frame::window_update(out, 0, more);
        }
        Connection {
            is_server,
            limits,
            phase: if is_server { Phase::Preface(0) } else { Phase::Settings },
            payload: Payload::None,
            block: None,
            decoder: Decoder::new(TABLE_BYTES_INITIAL),
            encoder: Encoder::new(limits.encoder_table_bytes as usize),
            streams: Streams::default(),
            peer: PeerSettings::INITIAL,
            send_window: SendWindow::new(WINDOW_BYTES_INITIAL),
            receive_window: ReceiveWindow::new(limits.connection_window_bytes),
            is_acknowledged: false,
            last_stream: 0,
            going: Going::No,
            peer_last_stream: WINDOW_BYTES_CEILING,
            control_bytes: 0,
            rates: Rates::default(),
            resets: [0; RESETS_REMEMBERED],
            resets_next: 0,
            turn: 0,
        }
    }

    /// Reads the input up to the next event.
    ///
    /// Remove [`Received::consumed`] bytes from the input, and call again until there is no event.
    /// The input must be able to grow to [`RECEIVE_BYTES_MIN`](crate::limits::RECEIVE_BYTES_MIN)
    /// bytes. `now_ms` counts from any instant and must not go back. Answers to the peer are
    /// appended to `out`, which must hold only what has not been sent.
    ///
    /// # Errors
    /// The peer broke a rule. `out` ends with GOAWAY; send it and close the connection. All streams
    /// are gone.
    pub fn next_event<'a>(
        &mut self,
        input: &'a [u8],
        scratch: &'a mut Scratch,
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Result<Received<'a>, ConnectionError> {
        self.control_bytes = self.control_bytes.min(out.len().try_into().unwrap_or(u32::MAX));
        let mut consumed = 0;
        loop {
            match self.receive(&input[consumed..], scratch, now_ms, out) {
                Ok(None) => return Ok(Received { consumed, event: None }),
                Ok(Some((bytes, Found::Nothing))) => consumed += bytes,
                Ok(Some((bytes, found))) => {
                    let event = found.view(&input[consumed..], scratch);
                    return Ok(Received { consumed: consumed + bytes, event });
                }
                Err(reason) => {
                    self.end(reason.code(), out);
                    return Err(ConnectionError(reason));
                }
            }
        }
    }

    /// The caller has removed these bytes from the front of the output. Without it, answers to
    /// control frames count as waiting until the output has been empty.
    pub fn note_sent(&mut self, bytes: usize) {
        let bytes = bytes.try_into().unwrap_or(u32::MAX);
        self.control_bytes = self.control_bytes.saturating_sub(bytes);
    }

    /// Ends the connection: all streams are gone, and nothing is sent after GOAWAY.
    fn end(&mut self, code: ErrorCode, out: &mut Vec<u8>) {
        let last = if self.is_server { self.last_stream } else { 0 };
        frame::go_away(out, last, code);
        self.phase = Phase::Dead;
        self.streams = Streams::default();
        self.block = None;
    }

    /// Whether nothing more is sent or received.
    pub fn is_dead(&self) -> bool {
        self.phase == Phase::Dead
    }

    /// Whether a shutdown of either side is complete: no stream is open, and no more can be opened.
    /// Close the connection once the output is sent.
    pub fn is_drained(&self) -> bool {
        let closing = if self.is_server {
            matches!(self.going, Going::Final(_))
        } else {
            self.going != Going::No || self.peer_last_stream != WINDOW_BYTES_CEILING
        };
        self.is_dead() || (closing && self.streams.open() == 0)
    }

    /// What the peer has set.
    pub fn peer_settings(&self) -> &PeerSettings {
        &self.peer
    }

    /// Whether the peer has acknowledged our SETTINGS.
    pub fn is_acknowledged(&self) -> bool {
        self.is_acknowledged
    }

    /// Streams that are not closed.
    pub fn open_streams(&self) -> usize {
        self.streams.open() as usize
    }

    /// Gives back memory that is not needed now. Call it when the connection becomes idle.
    pub fn shrink(&mut self) {
        self.streams.shrink();
        self.decoder.shrink();
        self.encoder.shrink();
    }

    /// The memory of this connection in bytes, with itself.
    pub fn memory_bytes(&self) -> usize {
        let block = self.block.as_ref().map_or(0, |block| block.heap_bytes());
        size_of::<Connection>()
            + block
            + self.streams.heap_bytes()
            + self.decoder.heap_bytes()
            + self.encoder.heap_bytes()
    }

    /// The bytes that are held of a head or of trailers, if these have not come whole. `rest` is
    /// the beginning of the next frame.
    pub fn head_bytes(&self, rest: &[u8]) -> Option<usize> {
        let block = self.block.as_ref().map(|block| block.heap_bytes());
        let begins = matches!(rest.get(3), Some(&(kind::HEADERS | kind::CONTINUATION)));
        match block {
            None if !begins => None,
            block => Some(block.unwrap_or(0) + rest.len()),
        }
    }

    /// Counts work that the peer has caused.
    fn count(&mut self, work: Work, now_ms: u64) -> Result<(), Reason> {
        self.rates.count(work, &self.limits, now_ms)
    }

    /// Writes an answer to a control frame, within the limit on answers that wait.
    fn answer(
        &mut self,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Reason> {
        let before = out.len();
        write(out);
        self.control_bytes += (out.len() - before) as u32;
        if self.control_bytes > self.limits.control_queue_bytes_max {
            return Err(Reason::ControlQueue);
        }
        Ok(())
    }

    /// The peer broke a rule on a stream: resets it.
    fn stream_error(
        &mut self,
        stream: StreamId,
        reason: Reason,
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Result<Found, Reason> {
        self.count(Work::ProvokedResets, now_ms)?;
        self.answer(out, |out| frame::rst_stream(out, stream, reason.code()))?;
        self.forget(stream, out);
        self.remember_reset(stream);
        Ok(Found::StreamError(stream, reason))
    }

    /// Removes a stream, and releases its content for the connection's window.
    fn forget(&mut self, stream: StreamId, out: &mut Vec<u8>) {
        if let Some(stream) = self.streams.remove(stream) {
            self.receive_window.release(stream.receive_window.held());
            self.report_window(out);
        }
    }

    fn remember_reset(&mut self, stream: StreamId) {
        self.resets[self.resets_next as usize] = stream;
        self.resets_next = (self.resets_next + 1) % RESETS_REMEMBERED as u8;
    }

    /// Whether frames on a stream that is gone are to be expected: we reset it not long ago, or do
    /// not accept it because of our GOAWAY.
    fn is_ignored(&self, stream: StreamId) -> bool {
        let is_late = matches!(self.going, Going::Final(last) if self.is_server && stream > last);
        // A client that cancels many responses gets the frames that were on their way.
        let is_past = !self.is_server && stream <= self.last_stream;
        is_late || is_past || self.resets.contains(&stream)
    }

    /// Reports released content of the connection, if enough has been released.
    fn report_window(&mut self, out: &mut Vec<u8>) {
        if let Some(bytes) = self.receive_window.increment(self.limits.connection_window_bytes) {
            frame::window_update(out, 0, bytes);
        }
    }

    /// The window of streams that the peer counts with.
    fn stream_window_bytes(&self) -> u32 {
        if self.is_acknowledged { self.limits.stream_window_bytes } else { WINDOW_BYTES_INITIAL }
    }
}
