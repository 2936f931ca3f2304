//! The body of an HTTP/1 request.
//!
//! It is read into the core's buffer and decoded. The next piece is read when the exchange asks for
//! it, so nothing piles up here.

use std::io;

use core_io::CoreIo;
use core_io::limits::COPIED_BYTES;
use core_io::piped;
use http1::write::request_trailers;
use http1::{BodyDecoder, Expectation, RejectReason, RequestHead, trailer_fields};
use outcome::Fault;
use runtime::fs::SharedPages;
use transport::Transport;
use upstream::BodyLength;

use core_io::pace::Pace;
use exchange::client;
use exchange::request::body_length;

/// What follows the head of a request.
#[derive(Debug)]
pub struct RequestBody<'c> {
    io: &'c CoreIo,
    stream: &'c Transport,
    length: BodyLength,
    decoder: BodyDecoder,
    is_awaited: bool,
    /// Bytes read and not decoded: those after the body belong to the next request.
    rest: Vec<u8>,
    /// Bytes of the connection that the body took, framing included.
    used: u64,
    /// Up to here bytes are copied, because there was no pipe, or it took nothing.
    copied: u64,
    /// Bytes of content that may still come. A length that was announced was judged before.
    left: u64,
    pace: Pace,
}

impl client::RequestBody for RequestBody<'_> {
    fn length(&self) -> BodyLength {
        self.length
    }

    fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    fn limit(&mut self, bytes: u64) {
        self.left = bytes;
    }

    fn has_come(&self) -> bool {
        self.length.bytes().is_some_and(|length| length <= self.rest.len() as u64)
    }

    async fn pull(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<bool, Fault> {
        if self.rest.is_empty() && !self.decoder.is_done() {
            self.read().await?;
        }
        let mut at = 0;
        while at < self.rest.len() && !self.decoder.is_done() {
            let input = &self.rest[at..];
            let step = self.decoder.decode(input).map_err(|reject| match reject.reason {
                RejectReason::ContentTooLarge => Fault::ClientBodyTooLarge,
                _ => Fault::ClientBody,
            })?;
            if !step.data.is_empty() {
                let left = self.left.checked_sub(step.data.len() as u64);
                self.left = left.ok_or(Fault::ClientBodyTooLarge)?;
                sink(&input[step.data.clone()]);
            }
            at += step.consumed;
        }
        self.rest.drain(..at);
        self.used += at as u64;
        self.pace.moved(at);
        Ok(self.decoder.is_done())
    }

    async fn pull_shared(&mut self) -> Result<Option<(SharedPages, bool)>, Fault> {
        let may = self.stream.can_send_shared() && !self.io.is_pressed();
        if !may
            || self.used < self.copied
            || !self.rest.is_empty()
            || !piped::is_long(&self.decoder)
        {
            return Ok(None);
        }
        let (io, stream, decoder) = (self.io, self.stream, &mut self.decoder);
        let mut pulled = None;
        let pulling = async {
            pulled = piped::pull(io, stream, decoder).await.map_err(|_| Fault::ClientBody)?;
            Ok(())
        };
        self.pace.wait(io, |limits| limits.body_timeout, pulling, Fault::ClientSlow).await?;
        let Some(pages) = pulled else {
            self.copied = self.used.saturating_add(COPIED_BYTES);
            return Ok(None);
        };
        let bytes = pages.left();
        if bytes == 0 {
            return Err(Fault::ClientBody);
        }
        io.counters.bytes_received.add(bytes as u64);
        self.used += bytes as u64;
        self.pace.moved(bytes);
        Ok(Some((pages, self.decoder.is_done())))
    }

    fn trailers(&mut self) -> Vec<u8> {
        let trailers = self.decoder.trailers();
        trailers.map_or_else(Vec::new, |lines| request_trailers(trailer_fields(lines)))
    }

    fn bytes_used(&self) -> u64 {
        self.used
    }

    fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest)
    }
}

impl<'c> RequestBody<'c> {
    /// The body of a request, of which `rest` was read together with the head.
    pub(super) fn new(
        io: &'c CoreIo,
        stream: &'c Transport,
        head: &RequestHead<'_>,
        rest: Vec<u8>,
    ) -> RequestBody<'c> {
        let mut decoder = BodyDecoder::new(head.body(), &io.limits().requests);
        decoder.keep_trailers();
        RequestBody {
            io,
            stream,
            length: body_length(head),
            decoder,
            is_awaited: head.expectation() != Expectation::None,
            rest,
            used: 0,
            copied: 0,
            left: u64::MAX,
            pace: Pace::default(),
        }
    }

    /// The bytes of the next request, if the whole body was read.
    pub(super) fn into_rest(self) -> Option<Vec<u8>> {
        self.decoder.is_done().then_some(self.rest)
    }

    async fn read(&mut self) -> Result<(), Fault> {
        let (io, stream) = (self.io, self.stream);
        let readable = async { stream.readable().await.map_err(|_| Fault::ClientBody) };
        self.pace.wait(io, |limits| limits.body_timeout, readable, Fault::ClientSlow).await?;
        io.with_input(|input| match stream.try_read(input) {
            Ok(0) => Err(Fault::ClientBody),
            Ok(n) => {
                io.counters.bytes_received.add(n as u64);
                self.rest.extend_from_slice(&input[..n]);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(_) => Err(Fault::ClientBody),
        })
    }
}
