//! One stream with a request.

use std::sync::Arc;
use std::{mem, slice};

use bytes::Bytes;
use core_io::held::HeldBytes;
use http3::{MessageStream, Priority, write};
use quinn_proto::{Connection, ReadError, StreamId, WriteError};
use runtime::time::{self, Instant};

use super::limits::PART_BYTES;
use crate::h2::Shared;

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
    pub(super) shared: Shared,
    /// Heads, headers of frames and content, after `part`.
    pub(super) unsent: Vec<u8>,
    /// What QUIC has not taken of the bytes that it was given last, and what these count as.
    part: Bytes,
    part_bytes: u64,
    /// Content of the DATA frame whose header was sent.
    data_left: u64,
    /// The turn in which it last sent.
    pub(super) served: u64,
    pub(super) priority: Priority,
    /// A window of the client is closed, until QUIC says that it is not.
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
            shared: Shared::default(),
            unsent: Vec::new(),
            part: Bytes::new(),
            part_bytes: 0,
            data_left: 0,
            served: 0,
            priority: Priority::DEFAULT,
            is_blocked: false,
            ends: Ends::No,
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
        self.shared.is_complete && self.ends == Ends::Sent
    }

    /// Whether there are bytes that QUIC has not taken.
    pub(super) fn has_unsent(&self) -> bool {
        !self.part.is_empty() || !self.unsent.is_empty()
    }

    /// Held bytes that wait for a window of the client.
    pub(super) fn parked(&self) -> u64 {
        if self.part.is_empty() { 0 } else { self.part_bytes }
    }

    /// Drops what QUIC has not taken.
    pub(super) fn drop_part(&mut self) {
        self.part = Bytes::new();
    }

    /// Sends what is unsent, and the end.
    pub(super) fn flush(
        &mut self,
        quinn: &mut Connection,
        id: StreamId,
        held: &Arc<HeldBytes>,
    ) -> Result<(), Gone> {
        while self.has_unsent() {
            if self.part.is_empty() {
                let part = mem::take(&mut self.unsent);
                self.part_bytes = part.capacity() as u64;
                self.part = Bytes::from_owner(held.part(part));
            }
            match quinn.send_stream(id).write_chunks(slice::from_mut(&mut self.part)) {
                Ok(_) => {}
                Err(WriteError::Blocked) => {
                    self.is_blocked = true;
                    return Ok(());
                }
                Err(_) => {
                    self.drop_part();
                    self.unsent = Vec::new();
                    return Err(Gone);
                }
            }
        }
        if self.ends == Ends::Next {
            self.ends = Ends::Sent;
            return quinn.send_stream(id).finish().map_err(|_| Gone);
        }
        Ok(())
    }

    /// Sends content until QUIC takes no more of it, or as much as may be held; returns how much.
    pub(super) fn send(
        &mut self,
        quinn: &mut Connection,
        id: StreamId,
        (held, held_max): (&Arc<HeldBytes>, u64),
        content: &[u8],
    ) -> Result<usize, Gone> {
        self.flush(quinn, id, held)?;
        let mut sent = 0;
        while sent < content.len() && !self.has_unsent() && held.bytes() < held_max {
            let rest = &content[sent..];
            if self.data_left == 0 {
                write::data(rest.len() as u64, &mut self.unsent);
                self.data_left = rest.len() as u64;
            }
            let left = usize::try_from(self.data_left).unwrap_or(usize::MAX);
            let part = &rest[..rest.len().min(left).min(PART_BYTES)];
            self.unsent.reserve_exact(part.len());
            self.unsent.extend_from_slice(part);
            self.data_left -= part.len() as u64;
            sent += part.len();
            self.flush(quinn, id, held)?;
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
