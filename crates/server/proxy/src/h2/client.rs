//! The client of an exchange over HTTP/2 or HTTP/3: one stream.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use cache::stored::{Connection, has_length};
use core_io::CoreIo;
use http1::{FieldList, ResponseHead, Sink};
use runtime::fs::SharedPages;

use super::body::RequestBody;
use super::streams::{Stop, Streams};
use crate::h1::{response_framing, write_interim, write_response};
use core_io::pace::Pace;
use exchange::client::{ByteStream, Client, Gone, Response, Sent};

/// Sends the response of one stream. What the windows and the connection do not take at once is
/// buffered: at most what one read of the upstream gave, because no caller offers more before the
/// flush.
pub(crate) struct StreamClient<S: Streams> {
    link: Rc<S>,
    stream: S::Id,
    /// The request was a HEAD, so no content follows.
    is_head: bool,
    /// The final head.
    head: FieldList,
    head_is_sent: bool,
    /// Content that follows, if the head announces its length.
    left: Option<u64>,
    /// The last of the content does not end the stream, because trailers may follow.
    ends_later: bool,
    /// Field lines of this response alone.
    more_lines: Vec<u8>,
    /// Field lines after the content.
    trailers: Vec<u8>,
    /// The stream has its end.
    is_ended: bool,
    pending: Vec<u8>,
    bytes: u64,
    head_end: u64,
    failed: bool,
    /// The client was cut because it takes too little.
    is_slow: bool,
    pace: Pace,
    /// Bytes that a tunnel reads and has not passed on.
    carried: Cell<usize>,
}

impl<S: Streams> StreamClient<S> {
    pub(crate) fn new(link: Rc<S>, stream: S::Id, is_head: bool) -> StreamClient<S> {
        StreamClient {
            link,
            stream,
            is_head,
            head: FieldList::default(),
            head_is_sent: false,
            left: None,
            ends_later: false,
            more_lines: Vec::new(),
            trailers: Vec::new(),
            is_ended: false,
            pending: Vec::new(),
            bytes: 0,
            head_end: 0,
            failed: false,
            is_slow: false,
            pace: Pace::default(),
            carried: Cell::new(0),
        }
    }

    /// Ends the stream after a complete response.
    pub(crate) async fn end(&mut self) {
        if self.head.code() != 0 && self.finish().await.is_err() {
            self.break_off();
        }
    }

    /// Ends the stream so that the client does not take the response for whole.
    pub(crate) fn break_off(&mut self) {
        self.link.stop(self.stream, Stop::BrokenOff);
    }

    /// Ends a stream whose tunnel is over, if both directions have not ended.
    pub(crate) fn end_tunnel(&self) {
        self.link.stop(self.stream, Stop::TunnelOver);
    }

    /// Sends the head, if it was not sent yet.
    fn send_head(&mut self, ends: bool) {
        // With 101, the stream becomes a tunnel, as after 200 to CONNECT (RFC 8441 section 5).
        let status = match self.head.code() {
            101 => 200,
            status => status,
        };
        if self.head_is_sent || status == 0 {
            return;
        }
        let ends = ends || self.is_head || !has_length(status);
        let ends = ends || (self.left == Some(0) && !self.ends_later);
        self.head_is_sent = true;
        self.is_ended = ends;
        // An extended CONNECT has no key (RFC 8441 section 5).
        let is_sent = |name: &[u8]| !name.eq_ignore_ascii_case(b"sec-websocket-accept");
        let fields = self.head.fields().filter(|(name, _)| is_sent(name));
        self.failed |= !self.link.send_head(self.stream, status, fields, ends);
    }

    /// Sends content as far as the windows and the connection take it; returns how much.
    fn send_content(&mut self, content: &[u8]) -> usize {
        self.send_head(false);
        if self.failed || self.is_ended || content.is_empty() {
            return if self.is_ended { content.len() } else { 0 };
        }
        let is_last = self.left == Some(content.len() as u64) && !self.ends_later;
        match self.link.send_content(self.stream, content, is_last) {
            Some(sent) => {
                self.pace.moved(sent);
                self.bytes += sent as u64;
                self.left = self.left.map(|left| left.saturating_sub(sent as u64));
                self.is_ended = is_last && sent == content.len();
                sent
            }
            None => {
                self.failed = true;
                0
            }
        }
    }

    /// Waits until the stream takes more; once if others wait and this one has just sent.
    ///
    /// Only a wait for its window counts: for the connection, its streams wait together (it watches
    /// that itself), and perhaps for each other.
    async fn room(&mut self, mut others_first: bool) -> Result<(), Gone> {
        let link = Rc::clone(&self.link);
        let (io, stream) = (link.io(), self.stream);
        let _sending = io.counters.states.sending.while_here();
        let mut result = Ok(());
        if link.waits_for_window(stream) {
            let window = poll_fn(|cx| link.poll_window(stream, cx));
            let window = async { window.await.map_err(|Gone| false) };
            let waited = self.pace.wait(io, |limits| limits.send_timeout, window, true).await;
            result = waited.map_err(|is_slow| {
                self.is_slow |= is_slow;
                Gone
            });
        }
        if result.is_ok() {
            result = poll_fn(|cx| link.poll_room(stream, &mut others_first, cx)).await;
        }
        self.failed |= result.is_err();
        result
    }

    /// Waits until all that was taken has gone to the connection.
    pub(crate) async fn sent_all(&mut self) -> Result<(), Gone> {
        while self.link.has_unsent(self.stream) {
            self.room(false).await?;
        }
        Ok(())
    }

    async fn send_all(&mut self, mut content: &[u8]) -> Result<(), Gone> {
        while !content.is_empty() {
            let sent = self.send_content(content);
            if self.failed {
                return Err(Gone);
            }
            content = &content[sent..];
            if !content.is_empty() {
                self.room(sent > 0).await?;
            }
        }
        Ok(())
    }
}

impl<S: Streams> Client for StreamClient<S> {
    type Body = RequestBody<S>;
    type Stream = StreamClient<S>;

    fn respond(&mut self, response: &Response<'_>) {
        let framing = response_framing(response, S::VERSION);
        write_response(&mut self.head, response, framing, Connection::Keep);
        self.head.lines(self.link.own_lines());
        self.head.lines(&self.more_lines);
        self.head.end();
        if let Response::Relayed(relayed) = response {
            self.ends_later = relayed.may_have_trailers;
        }
        self.left = self.head.length();
        self.bytes += self.head.text().len() as u64;
        self.head_end = self.bytes;
    }

    fn withdraw(&mut self) -> bool {
        if self.head_is_sent || self.bytes != self.head_end || !self.pending.is_empty() {
            return false;
        }
        self.bytes -= self.head.text().len() as u64;
        self.head_end = self.bytes;
        self.head.clear();
        (self.left, self.ends_later) = (None, false);
        true
    }

    fn set_lines(&mut self, lines: Vec<u8>) {
        self.more_lines = lines;
    }

    fn interim(&mut self, head: &ResponseHead<'_>) {
        let mut interim = FieldList::default();
        write_interim(&mut interim, head.status, head);
        interim.end();
        self.bytes += interim.text().len() as u64;
        self.link.send_head(self.stream, head.status, interim.fields(), false);
    }

    fn offer(&mut self, content: &[u8]) {
        if content.is_empty() {
            return;
        }
        let sent = if self.pending.is_empty() { self.send_content(content) } else { 0 };
        if !self.failed {
            self.pending.extend_from_slice(&content[sent..]);
        }
    }

    async fn flush(&mut self) -> Result<(), Gone> {
        self.send_head(false);
        let pending = std::mem::take(&mut self.pending);
        if self.failed {
            return Err(Gone);
        }
        if pending.is_empty() {
            return Ok(());
        }
        let link = Rc::clone(&self.link);
        let _held = link.io().held(pending.len());
        self.send_all(&pending).await
    }

    async fn send(&mut self, content: &[&[u8]], _more: bool) -> Result<(), Gone> {
        self.flush().await?;
        for part in content {
            self.send_all(part).await?;
        }
        Ok(())
    }

    fn can_send_shared(&self) -> bool {
        false
    }

    async fn send_shared(&mut self, _pages: SharedPages, _more: bool) -> Result<(), Gone> {
        unreachable!("can_send_shared says no")
    }

    fn gone(&self) -> impl Future<Output = ()> + use<S> {
        let (link, id) = (Rc::clone(&self.link), self.stream);
        poll_fn(move |cx| link.poll_gone(id, cx))
    }

    fn is_gone(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        self.link.poll_gone(self.stream, &mut cx).is_ready()
    }

    fn trailers(&mut self, lines: &[u8]) {
        self.trailers = lines.to_vec();
    }

    async fn finish(&mut self) -> Result<(), Gone> {
        if self.pending.is_empty() && !self.head_is_sent {
            self.send_head(self.left.is_none() && self.trailers.is_empty());
        }
        self.flush().await?;
        if !self.is_ended && self.left.is_some_and(|left| left > 0) {
            // Less came than the head announced.
            return Err(Gone);
        }
        if !self.is_ended {
            self.is_ended = true;
            self.failed |= match self.trailers.is_empty() {
                true => self.link.send_content(self.stream, &[], true).is_none(),
                false => !self.link.send_trailers(self.stream, &self.trailers),
            };
        }
        if self.failed {
            return Err(Gone);
        }
        self.sent_all().await
    }

    fn close_after(&mut self) {
        // The connection carries other streams.
    }

    fn stream(&self) -> &StreamClient<S> {
        self
    }

    fn add_tunnelled(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    fn sent(&self) -> Sent<'_> {
        Sent {
            bytes: self.bytes,
            body_bytes: self.bytes - self.head_end,
            head: self.head.text(),
            keeps: true,
            is_slow: self.is_slow,
        }
    }
}

/// The stream after its heads, for a tunnel (RFC 9113 section 8.5).
impl<S: Streams> ByteStream for StreamClient<S> {
    const IS_COUNTED: bool = true;

    async fn read<T>(
        &self,
        _io: &CoreIo,
        mut take: impl FnMut(&[u8]) -> T,
    ) -> Result<Option<T>, Gone> {
        // No more than a window of them waits for the upstream.
        self.link.release(self.stream, self.carried.take());
        let mut received = Vec::new();
        let read = poll_fn(|cx| self.link.poll_content(self.stream, &mut received, cx)).await;
        read.map_err(|_| Gone)?;
        self.carried.set(received.len());
        Ok((!received.is_empty()).then(|| take(&received)))
    }

    fn try_send(&self, bytes: &[u8]) -> Result<usize, Gone> {
        self.link.send_content(self.stream, bytes, false).ok_or(Gone)
    }

    async fn room(&self) -> Result<(), Gone> {
        poll_fn(|cx| self.link.poll_room(self.stream, &mut false, cx)).await
    }

    async fn flushed(&self) -> Result<(), Gone> {
        // The connection sends what it has taken, after what other streams have sent before.
        while self.link.has_unsent(self.stream) {
            poll_fn(|cx| self.link.poll_room(self.stream, &mut false, cx)).await?;
        }
        Ok(())
    }

    fn end(&self) -> Result<(), Gone> {
        self.link.send_content(self.stream, &[], true).map(drop).ok_or(Gone)
    }

    fn reset(&self) {
        self.link.stop(self.stream, Stop::TunnelBroken);
    }

    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.link.poll_gone(self.stream, cx)
    }
}
