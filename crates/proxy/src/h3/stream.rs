//! One stream with a request.

use std::task::Waker;

use bytes::Bytes;
use http3::{MessageStream, write};
use quinn_proto::{Connection, ReadError, StreamId, WriteError};
use runtime::time::{self, Instant};
use runtime::wake;

/// A request, from the first byte of its stream to the last of its response.
pub(super) struct Stream {
    pub(super) message: MessageStream,
    /// What was read and not parsed.
    pub(super) rest: Bytes,
    /// Nothing follows it.
    pub(super) is_end: bool,
    pub(super) opened: Instant,
    /// The head was parsed.
    pub(super) has_head: bool,
    /// The request is complete.
    pub(super) is_complete: bool,
    /// The head of the response was sent.
    pub(super) is_answered: bool,
    /// The trailers of the request, as field lines.
    pub(super) trailers: Vec<u8>,
    pub(super) body_waker: Option<Waker>,
    pub(super) room_waker: Option<Waker>,
    pub(super) gone_waker: Option<Waker>,
    /// Heads and headers of frames that the connection has not taken.
    pub(super) unsent: Vec<u8>,
    /// Content of the DATA frame whose header was sent.
    data_left: u64,
    /// The turn in which it last sent.
    pub(super) served: u64,
    /// The connection takes no more until it says so.
    pub(super) is_blocked: bool,
    ends: Ends,
}

/// Our end of the stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    No,
    /// After what is unsent.
    Next,
    Sent,
}

/// What reading a stream gave.
pub(super) enum Read {
    Bytes(Bytes),
    End,
    /// Nothing now.
    Nothing,
    /// The client has reset it.
    Reset,
}

/// The stream is gone.
pub(super) struct Gone;

impl Stream {
    pub(super) fn new() -> Stream {
        Stream {
            message: MessageStream::request(),
            rest: Bytes::new(),
            is_end: false,
            opened: time::now(),
            has_head: false,
            is_complete: false,
            is_answered: false,
            trailers: Vec::new(),
            body_waker: None,
            room_waker: None,
            gone_waker: None,
            unsent: Vec::new(),
            data_left: 0,
            served: 0,
            is_blocked: false,
            ends: Ends::No,
        }
    }

    pub(super) fn wake(&mut self) {
        for waker in [&mut self.body_waker, &mut self.room_waker, &mut self.gone_waker] {
            wake(waker);
        }
    }

    /// Reads on, if all was parsed. False if nothing has come.
    pub(super) fn read(&mut self, quinn: &mut Connection, id: StreamId) -> Result<bool, Gone> {
        if !self.rest.is_empty() || self.is_end {
            return Ok(true);
        }
        match read(quinn, id) {
            Read::Bytes(bytes) => self.rest = bytes,
            Read::End => self.is_end = true,
            Read::Nothing => return Ok(false),
            Read::Reset => return Err(Gone),
        }
        Ok(true)
    }

    /// Ends the stream after what is unsent.
    pub(super) fn end(&mut self) {
        if self.ends == Ends::No {
            self.ends = Ends::Next;
        }
    }

    /// Both directions have ended, ours with all that was to be sent.
    pub(super) fn has_ended(&self) -> bool {
        self.is_complete && self.ends == Ends::Sent
    }

    /// Sends what is unsent, and the end.
    pub(super) fn flush(&mut self, quinn: &mut Connection, id: StreamId) -> Result<(), Gone> {
        let sent = self.write(quinn, id, None).inspect_err(|_| self.unsent.clear())?;
        self.unsent.drain(..sent);
        if self.unsent.is_empty() && self.ends == Ends::Next {
            self.ends = Ends::Sent;
            return quinn.send_stream(id).finish().map_err(|_| Gone);
        }
        Ok(())
    }

    /// Sends content as far as the connection takes it; returns how much.
    pub(super) fn send(
        &mut self,
        quinn: &mut Connection,
        id: StreamId,
        content: &[u8],
    ) -> Result<usize, Gone> {
        if self.data_left == 0 && !content.is_empty() {
            write::data(content.len() as u64, &mut self.unsent);
            self.data_left = content.len() as u64;
        }
        self.flush(quinn, id)?;
        if !self.unsent.is_empty() {
            return Ok(0);
        }
        let left = usize::try_from(self.data_left).unwrap_or(usize::MAX);
        let sent = self.write(quinn, id, Some(&content[..content.len().min(left)]))?;
        self.data_left -= sent as u64;
        Ok(sent)
    }

    /// Writes content, or what is unsent, until the connection takes no more.
    fn write(
        &mut self,
        quinn: &mut Connection,
        id: StreamId,
        content: Option<&[u8]>,
    ) -> Result<usize, Gone> {
        let bytes = content.unwrap_or(&self.unsent);
        let mut sent = 0;
        while sent < bytes.len() {
            match quinn.send_stream(id).write(&bytes[sent..]) {
                Ok(more) => sent += more,
                Err(WriteError::Blocked) => {
                    self.is_blocked = true;
                    break;
                }
                Err(_) => return Err(Gone),
            }
        }
        Ok(sent)
    }
}

/// Reads the next bytes of a stream.
pub(super) fn read(quinn: &mut Connection, id: StreamId) -> Read {
    let mut stream = quinn.recv_stream(id);
    // A stream that we have stopped.
    let Ok(mut chunks) = stream.read(true) else { return Read::Reset };
    let read = match chunks.next(usize::MAX) {
        Ok(Some(chunk)) => Read::Bytes(chunk.bytes),
        Ok(None) => Read::End,
        Err(ReadError::Blocked) => Read::Nothing,
        Err(ReadError::Reset(_)) => Read::Reset,
    };
    // The connection sends what is due after each turn.
    let _ = chunks.finalize();
    read
}

pub(super) fn find(streams: &mut [(StreamId, Stream)], id: StreamId) -> Option<&mut Stream> {
    streams.iter_mut().find(|(other, _)| *other == id).map(|(_, stream)| stream)
}
