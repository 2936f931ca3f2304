//! The body of a client's request, on its way to the upstream.
//!
//! It is read into the core's buffer, decoded, framed anew and written on; the next piece is read
//! when the upstream has taken the last, so that nothing piles up here.

use std::io;

use http1::{BodyDecoder, BodyKind, write};
use runtime::time;

use crate::client::Pace;
use crate::limits::BODY_HELD_BYTES_MAX;
use crate::worker::Worker;
use outcome::Fault;
use transport::Transport;
use upstream::{self, Times};

/// What is left of a request behind its head.
#[derive(Debug)]
pub(crate) struct RequestBody {
    kind: BodyKind,
    decoder: BodyDecoder,
    /// Read with the head, or behind the body: then it belongs to the next request.
    rest: Vec<u8>,
    /// Bytes of it that were used up, framing included.
    used: u64,
    pace: Pace,
}

impl RequestBody {
    pub(crate) fn new(worker: &Worker, kind: BodyKind, rest: Vec<u8>) -> RequestBody {
        RequestBody {
            kind,
            decoder: BodyDecoder::new(kind, &worker.limits().http),
            rest,
            used: 0,
            pace: Pace::default(),
        }
    }

    /// Stands for a body that is on its way: there is one, and it is not complete.
    pub(crate) fn elsewhere() -> RequestBody {
        let kind = BodyKind::UntilClose;
        let decoder = BodyDecoder::new(kind, &http1::Limits::DEFAULT);
        RequestBody { kind, decoder, rest: Vec::new(), used: 0, pace: Pace::default() }
    }

    /// Whether there is any.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self.kind, BodyKind::None | BodyKind::Length(0))
    }

    /// Bytes of the body that have come and were used, framing included.
    pub(crate) fn bytes_used(&self) -> u64 {
        self.used
    }

    /// Appends the field that tells the upstream its end.
    pub(crate) fn append_framing(&self, out: &mut Vec<u8>) {
        match self.kind {
            BodyKind::Length(length) => write::content_length(out, length),
            BodyKind::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            BodyKind::None | BodyKind::UntilClose => {}
        }
    }

    /// When the whole body was read: the bytes of the next request.
    pub(crate) fn into_rest(self) -> Option<Vec<u8>> {
        self.decoder.is_done().then_some(self.rest)
    }

    /// Whether it is short enough to be held, so that its request can be repeated.
    pub(crate) fn may_be_held(&self) -> bool {
        matches!(self.kind, BodyKind::Length(length) if length <= BODY_HELD_BYTES_MAX)
    }

    /// Reads all of it, to the end of `into`: one of known length is framed by that alone.
    pub(crate) async fn hold(
        &mut self,
        worker: &Worker,
        client: &Transport,
        into: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        while !self.decoder.is_done() {
            if self.rest.is_empty() {
                self.read(worker, client).await?;
            }
            self.decode(into)?;
        }
        Ok(())
    }

    /// Sends all of it to the upstream.
    pub(crate) async fn pump(
        &mut self,
        worker: &Worker,
        client: &Transport,
        to: &Transport,
        times: &Times,
    ) -> Result<(), Fault> {
        let mut framed = Vec::new();
        while !self.decoder.is_done() {
            if self.rest.is_empty() {
                self.read(worker, client).await?;
            }
            framed.clear();
            self.decode(&mut framed)?;
            upstream::send(&worker.upstreams, to, times, &framed).await?;
        }
        Ok(())
    }

    /// Decodes what was read, and frames it for the upstream.
    fn decode(&mut self, framed: &mut Vec<u8>) -> Result<(), Fault> {
        let chunked = self.kind == BodyKind::Chunked;
        let mut at = 0;
        while at < self.rest.len() && !self.decoder.is_done() {
            let input = &self.rest[at..];
            let step = self.decoder.decode(input).map_err(|_| Fault::ClientBody)?;
            let data = &input[step.data.clone()];
            if chunked && !data.is_empty() {
                framed.extend_from_slice(write::chunk_prefix(data.len()).as_bytes());
                framed.extend_from_slice(data);
                framed.extend_from_slice(b"\r\n");
            } else {
                framed.extend_from_slice(data);
            }
            at += step.consumed;
        }
        self.rest.drain(..at);
        self.used += at as u64;
        self.pace.moved(at);
        if chunked && self.decoder.is_done() {
            framed.extend_from_slice(b"0\r\n\r\n");
        }
        Ok(())
    }

    async fn read(&mut self, worker: &Worker, client: &Transport) -> Result<(), Fault> {
        let in_force = worker.limits();
        let limits = &in_force.limits;
        let since = time::now();
        let waited = time::timeout(limits.body_timeout, client.readable()).await;
        self.pace.waited(since);
        match waited {
            Ok(Ok(())) if !self.pace.is_too_slow(limits) => {}
            Ok(Err(_)) => return Err(Fault::ClientBody),
            Ok(Ok(())) | Err(_) => {
                worker.counters.timeouts.add(1);
                return Err(Fault::ClientSlow);
            }
        }
        worker.with_input(|input| match client.try_read(input) {
            Ok(0) => Err(Fault::ClientBody),
            Ok(n) => {
                worker.counters.bytes_received.add(n as u64);
                self.rest.extend_from_slice(&input[..n]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(_) => Err(Fault::ClientBody),
        })
    }
}
