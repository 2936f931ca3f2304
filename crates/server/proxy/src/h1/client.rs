//! The client of an HTTP/1 exchange: sending with a time-out.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::task::Poll;

use cache::stored::Framing;
use core_io::CoreIo;
use core_io::spares::Reused;
use http1::{ResponseHead, Version, write};
use runtime::fs::SharedPages;
use runtime::time;
use transport::Transport;

use super::body::RequestBody;
use super::response::{self, connection_of, write_interim};
use core_io::pace::Pace;
use exchange::client::{Client, Gone, Response, Sent};
use exchange::limits::COALESCE_BYTES_MAX;

/// Sends to one client. What the socket does not take at once is buffered and sent by `flush`: at
/// most what one read of the upstream gave, because no caller offers more before the flush.
#[derive(Debug)]
pub struct ClientStream<'c> {
    io: &'c CoreIo,
    stream: &'c Transport,
    /// Field lines of the listener.
    own_lines: &'c [u8],
    /// Field lines of this response alone.
    more_lines: Vec<u8>,
    /// Bytes that the socket has not taken yet.
    pending: Reused<Vec<u8>>,
    /// Bytes handed to this client, sent or pending.
    bytes: u64,
    /// Those of them that the socket has taken.
    taken: u64,
    /// `bytes` at the end of the final head.
    head_end: u64,
    /// Length of the final head.
    head_bytes: usize,
    /// The final head as it was sent, if there is a log.
    sent_head: Vec<u8>,
    version: Version,
    framing: Framing,
    /// Field lines after a chunked body.
    trailers: Vec<u8>,
    /// The connection may carry another request.
    keeps: bool,
    /// A further request has come together with this one.
    has_next: bool,
    failed: bool,
    /// The client was cut because it takes too little.
    is_slow: bool,
    pace: Pace,
}

/// Room for a usual head with a small body after it.
const HEAD_BYTES_USUAL: usize = 2048;

/// I/O vectors of one call.
const SLICES_MAX: usize = 16;

impl<'c> Client for ClientStream<'c> {
    type Body = RequestBody<'c>;
    type Stream = Transport;

    fn respond(&mut self, response: &Response<'_>) {
        let is_tunnel = matches!(response, Response::Switching { .. } | Response::TunnelOpen);
        self.framing = response::framing(response, self.version);
        // The head says so, and it stays so if a drain begins later.
        self.keeps &= self.framing != Framing::UntilClose && !is_tunnel && !self.io.is_draining();
        let connection = connection_of(self.version, self.keeps);
        let before = self.pending.len();
        if before == 0 {
            self.pending.reserve(HEAD_BYTES_USUAL);
        }
        response::write(&mut *self.pending, response, self.framing, connection);
        self.pending.extend_from_slice(self.own_lines);
        self.pending.extend_from_slice(&self.more_lines);
        write::end(&mut self.pending);
        let appended = &self.pending[before..];
        self.head_bytes = appended.len();
        self.bytes += appended.len() as u64;
        self.head_end = self.bytes;
        if !is_tunnel && self.io.log.is_on() {
            self.sent_head.clear();
            self.sent_head.extend_from_slice(appended);
        }
    }

    fn withdraw(&mut self) -> bool {
        let unsent = self.pending.len().checked_sub(self.head_bytes);
        let Some(before) = unsent.filter(|_| self.bytes == self.head_end) else { return false };
        self.pending.truncate(before);
        self.bytes -= self.head_bytes as u64;
        (self.head_end, self.head_bytes) = (self.bytes, 0);
        self.sent_head.clear();
        true
    }

    fn set_lines(&mut self, lines: Vec<u8>) {
        self.more_lines = lines;
    }

    fn interim(&mut self, head: &ResponseHead<'_>) {
        // A client of HTTP/1.0 does not know interim responses (RFC 9110, 15.2).
        if self.version != Version::Http10 {
            let mut bytes = Vec::with_capacity(head.head_bytes);
            write_interim(&mut bytes, head.status, head);
            write::end(&mut bytes);
            self.offer_parts(&[&bytes]);
        }
    }

    fn offer(&mut self, content: &[u8]) {
        if content.is_empty() {
            return;
        }
        match self.framing {
            Framing::Chunked => {
                let prefix = write::chunk_prefix(content.len());
                self.offer_parts(&[prefix.as_bytes(), content, b"\r\n"]);
            }
            _ => self.offer_parts(&[content]),
        }
    }

    async fn flush(&mut self) -> Result<(), Gone> {
        if self.failed {
            return Err(Gone);
        }
        if self.pending.is_empty() {
            return self.flushed().await;
        }
        let pending = std::mem::replace(&mut self.pending, self.io.buffer());
        self.send_rest(&pending).await
    }

    async fn send(&mut self, content: &[&[u8]], more: bool) -> Result<(), Gone> {
        self.bytes += content.iter().map(|part| part.len() as u64).sum::<u64>();
        let pending = std::mem::replace(&mut self.pending, self.io.buffer());
        // What is unsent: this of what was pending, and the content without its first bytes.
        let (mut before, mut content, mut skipped) = (&pending[..], content, 0);
        loop {
            while let [first, rest @ ..] = content
                && skipped >= first.len()
            {
                (content, skipped) = (rest, skipped - first.len());
            }
            if before.is_empty() && content.is_empty() {
                return self.flushed().await;
            }
            let sent = {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let (mut used, mut from) = (0, skipped);
                if !before.is_empty() {
                    (slices[0], used) = (IoSlice::new(before), 1);
                }
                for part in content.iter().take(SLICES_MAX - used) {
                    (slices[used], from) = (IoSlice::new(&part[from..]), 0);
                    used += 1;
                }
                match more {
                    true => self.stream.try_write_more(&slices[..used]),
                    false => self.stream.try_write_vectored(&slices[..used]),
                }
            };
            match self.moved(sent)? {
                Some(sent) => {
                    let of_before = sent.min(before.len());
                    before = &before[of_before..];
                    skipped += sent - of_before;
                }
                None => self.room().await?,
            }
        }
    }

    fn can_send_shared(&self) -> bool {
        self.stream.can_send_shared()
    }

    async fn send_shared(&mut self, mut pages: SharedPages, more: bool) -> Result<(), Gone> {
        if !self.pending.is_empty() {
            self.send(&[], true).await?;
        }
        let all = pages.left();
        self.bytes += all as u64;
        let mut held = None;
        while pages.left() > 0 {
            let sent = self.stream.try_write_pages(&mut pages, more);
            if let Err(error) = &sent
                && error.kind() == io::ErrorKind::UnexpectedEof
            {
                tracing::warn!("a file broke off: it has become shorter while it was sent");
            }
            if self.moved(sent)?.is_none() {
                if pages.is_received() {
                    held.get_or_insert_with(|| self.io.held(all));
                }
                self.room().await?;
            }
        }
        Ok(())
    }

    /// A client that closes its direction counts as gone, unless it has sent more before.
    fn gone(&self) -> impl Future<Output = ()> + use<'c> {
        let (stream, has_next, mut more) = (self.stream, self.has_next, false);
        poll_fn(move |cx| {
            loop {
                match stream.poll_readable(cx) {
                    Poll::Pending => more = false,
                    // What it has sent waits for its reader, which is this task.
                    Poll::Ready(Ok(())) if more => {}
                    Poll::Ready(Ok(())) => match stream.try_peek(&mut [0]) {
                        Ok(1..) => more = true,
                        Ok(0) if has_next => more = true,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                        Ok(0) | Err(_) => return Poll::Ready(()),
                    },
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                }
                return Poll::Pending;
            }
        })
    }

    fn trailers(&mut self, lines: &[u8]) {
        self.trailers = lines.to_vec();
    }

    async fn finish(&mut self) -> Result<(), Gone> {
        if self.framing == Framing::Chunked {
            let before = self.pending.len();
            self.pending.extend_from_slice(write::LAST_CHUNK_BEFORE_TRAILERS);
            self.pending.append(&mut self.trailers);
            write::end(&mut self.pending);
            self.bytes += (self.pending.len() - before) as u64;
        }
        self.flush().await
    }

    fn close_after(&mut self) {
        self.keeps = false;
    }

    fn stream(&self) -> &Transport {
        self.stream
    }

    fn add_tunnelled(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.taken += bytes;
    }

    fn sent(&self) -> Sent<'_> {
        debug_assert!(self.taken <= self.bytes);
        Sent {
            bytes: self.taken,
            body_bytes: self.taken.saturating_sub(self.head_end),
            head: &self.sent_head,
            keeps: self.keeps,
            is_slow: self.is_slow,
        }
    }
}

impl<'c> ClientStream<'c> {
    /// A client of HTTP/1.1 to which nothing has been sent yet.
    pub fn new(io: &'c CoreIo, stream: &'c Transport) -> ClientStream<'c> {
        ClientStream {
            io,
            stream,
            own_lines: b"",
            more_lines: Vec::new(),
            pending: io.buffer(),
            bytes: 0,
            taken: 0,
            head_end: 0,
            head_bytes: 0,
            sent_head: Vec::new(),
            version: Version::Http11,
            framing: Framing::Implied,
            trailers: Vec::new(),
            keeps: true,
            has_next: false,
            failed: false,
            is_slow: false,
            pace: Pace::default(),
        }
    }

    /// It is the client of a request of this version to a listener with these field lines. The
    /// bytes of answers to earlier requests do not count.
    pub(super) fn begin(&mut self, version: Version, own_lines: &'c [u8], keeps: bool) {
        (self.version, self.own_lines, self.keeps) = (version, own_lines, keeps);
        (self.bytes, self.taken) = (0, 0);
    }

    /// Notes whether a further request has come together with this one.
    pub(super) fn note_next(&mut self, has_next: bool) {
        self.has_next = has_next;
    }

    /// Whether the connection may carry another request.
    pub(super) fn keeps(&self) -> bool {
        self.keeps
    }

    /// Sends these bytes as they are.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        self.bytes += bytes.len() as u64;
        self.send_rest(bytes).await
    }

    /// Sends the parts after what is pending, as far as the socket takes them now; buffers the
    /// rest.
    fn offer_parts(&mut self, parts: &[&[u8]]) {
        let offered: usize = parts.iter().map(|part| part.len()).sum();
        self.bytes += offered as u64;
        if self.failed {
            return;
        }
        if self.pending.len() + offered <= COALESCE_BYTES_MAX {
            parts.iter().for_each(|part| self.pending.extend_from_slice(part));
            let sent = self.stream.try_write(&self.pending);
            let sent = self.taken(sent);
            self.pending.drain(..sent);
            return;
        }
        let mut slices = [IoSlice::new(&[]); 4];
        slices[0] = IoSlice::new(&self.pending);
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        let sent = self.stream.try_write_vectored(&slices[..=parts.len()]);
        let mut sent = self.taken(sent);
        let of_pending = sent.min(self.pending.len());
        self.pending.drain(..of_pending);
        sent -= of_pending;
        for part in parts {
            let of_part = sent.min(part.len());
            self.pending.extend_from_slice(&part[of_part..]);
            sent -= of_part;
        }
    }

    /// What the socket took of an offer.
    fn taken(&mut self, sent: io::Result<usize>) -> usize {
        match sent {
            Ok(sent) => {
                self.io.counters.bytes_sent.add(sent as u64);
                self.taken += sent as u64;
                sent
            }
            Err(error) => {
                self.failed = error.kind() != io::ErrorKind::WouldBlock;
                0
            }
        }
    }

    /// Counts what the socket took; `None` if it takes nothing now.
    fn moved(&mut self, sent: io::Result<usize>) -> Result<Option<usize>, Gone> {
        match sent {
            Ok(sent) => {
                self.io.counters.bytes_sent.add(sent as u64);
                self.taken += sent as u64;
                self.pace.moved(sent);
                Ok(Some(sent))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(_) => Err(Gone),
        }
    }

    async fn send_rest(&mut self, mut bytes: &[u8]) -> Result<(), Gone> {
        let all = bytes.len();
        let mut held = None;
        while !bytes.is_empty() {
            let sent = self.stream.try_write(bytes);
            match self.moved(sent)? {
                Some(sent) => bytes = &bytes[sent..],
                None => {
                    held.get_or_insert_with(|| self.io.held(all));
                    self.room().await?;
                }
            }
        }
        self.flushed().await
    }

    /// Waits until what the connection buffers is on the wire.
    async fn flushed(&mut self) -> Result<(), Gone> {
        while !self.stream.is_flushed() {
            self.room().await?;
            // Writes what the connection buffers; this finds a failure.
            self.stream.try_write(&[]).map_err(|_| Gone)?;
        }
        Ok(())
    }

    /// Waits until the client takes more, unless it takes next to nothing.
    async fn room(&mut self) -> Result<(), Gone> {
        let stream = self.stream;
        let _sending = self.io.counters.states.sending.while_here();
        let writable = async { stream.writable().await.map_err(|_| false) };
        let waited = self.pace.wait(self.io, |limits| limits.send_timeout, writable, true).await;
        waited.map_err(|is_slow| {
            self.is_slow |= is_slow;
            Gone
        })
    }
}

/// Ends a connection whose transport marks its end inside, as TLS does.
pub(crate) async fn end(io: &CoreIo, stream: &Transport) {
    stream.end_inside();
    // A client that does not wait for the end has got its response all the same.
    let _ = ClientStream::new(io, stream).flushed().await;
}

/// Closes our direction and reads on for a while, so that the last response is not lost to a reset
/// (RFC 9112, 9.6).
pub async fn linger(io: &CoreIo, stream: &Transport) {
    if stream.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let in_force = io.limits();
    let limits = &in_force.limits;
    let mut left = limits.linger_bytes_max;
    let reading = async {
        if !stream.is_flushed() && stream.writable().await.is_err() {
            return;
        }
        while left > 0 {
            if stream.readable().await.is_err() {
                return;
            }
            match io.with_input(|input| stream.try_read(input)) {
                Ok(0) => return,
                Ok(n) => left = left.saturating_sub(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    // The time-out is the ordinary end for a client that does not close.
    let _ = time::timeout(limits.linger_timeout, reading).await;
}
