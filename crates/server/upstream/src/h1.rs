//! HTTP/1 on the upstream's side of the seam: request heads and bodies, answers and their bodies.
//!
//! An answer is read up to the end of its head. What was read after that is kept with it, and the
//! body is pulled piece by piece. Framing stays in this file.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use core_io::limits::COPIED_BYTES;
use core_io::spares::Reused;
use core_io::{CoreIo, piped};
use http1::{BodyDecoder, BodyKind, Method, OwnedResponse, ResponseHead, Scheme, Target, write};
use http2::RequestFields;
use outcome::Fault;
use runtime::fs::SharedPages;
use runtime::time;
use transport::Transport;

use super::{Times, To, Upstream, Upstreams, send, writable};
use crate::given::Given;
use crate::group::{Group, Ticket};
use crate::h2::Slot;
use crate::limits::{HEAD_READ_BYTES, INTERIM_READ_MAX};

/// The length of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// There is no body.
    None,
    /// So many bytes.
    Known(u64),
    /// Known at the end of the body only.
    Unknown,
}

impl BodyLength {
    /// Of a body that there is; `None` if its length is unknown.
    pub fn of(bytes: Option<u64>) -> BodyLength {
        bytes.map_or(BodyLength::Unknown, BodyLength::Known)
    }

    /// The number of bytes, if it is known.
    pub fn bytes(self) -> Option<u64> {
        match self {
            BodyLength::None => Some(0),
            BodyLength::Known(bytes) => Some(bytes),
            BodyLength::Unknown => None,
        }
    }

    /// Whether no content follows.
    pub fn is_empty(self) -> bool {
        self.bytes() == Some(0)
    }
}

/// A request for an upstream: its head, and its content if that is sent together with the head.
#[derive(Debug)]
pub struct Request {
    bytes: Reused<Vec<u8>>,
    places: Places,
    method: Method,
    length: BodyLength,
    /// Where its head ends.
    head_bytes: usize,
    accepts_trailers: bool,
    /// Field lines after the content, if that is sent together with the head.
    trailers: Vec<u8>,
    /// An upstream may have seen it.
    sent: Cell<bool>,
}

/// Where the parts of a head are.
#[derive(Clone, Copy, Debug)]
struct Places {
    method_end: usize,
    target_end: usize,
    /// Where the lines after `Host` begin.
    lines: usize,
}

/// What is between the target of a request and its first field, which is `Host`.
const AFTER_TARGET: &[u8] = b" HTTP/1.1\r\n";
const HOST: &[u8] = b"Host: ";

impl Request {
    /// Begins a request in an empty buffer. Field lines follow, then one of the two ends.
    pub fn new(
        mut bytes: Reused<Vec<u8>>,
        (method, name): (Method, &[u8]),
        target: &Target<'_>,
        host: &[u8],
    ) -> Request {
        bytes.extend_from_slice(name);
        bytes.push(b' ');
        match target {
            Target::Asterisk => bytes.push(b'*'),
            _ => write::origin_form(&mut bytes, method, target),
        }
        let (method_end, target_end) = (name.len(), bytes.len());
        for part in [AFTER_TARGET, HOST, host, write::CRLF] {
            bytes.extend_from_slice(part);
        }
        let places = Places { method_end, target_end, lines: bytes.len() };
        Request {
            bytes,
            places,
            method,
            length: BodyLength::None,
            head_bytes: 0,
            accepts_trailers: false,
            trailers: Vec::new(),
            sent: Cell::new(false),
        }
    }

    /// The client understands trailers, and says so. An upstream over HTTP/1 is not sent its `TE`.
    pub fn accept_trailers(&mut self) {
        self.accepts_trailers = true;
    }

    /// Where field lines are appended.
    pub fn lines(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends the head of a request with a body of this length.
    pub fn end(&mut self, length: BodyLength) {
        match length {
            BodyLength::None => {}
            BodyLength::Known(length) => write::content_length(&mut self.bytes, length),
            BodyLength::Unknown => {
                self.bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            }
        }
        write::end(&mut self.bytes);
        (self.length, self.head_bytes) = (length, self.bytes.len());
    }

    /// Ends the head of a request that asks for one of these protocols.
    pub fn end_with_upgrade(&mut self, protocols: &[u8]) {
        self.bytes.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: ");
        self.bytes.extend_from_slice(protocols);
        self.bytes.extend_from_slice(b"\r\n");
        write::end(&mut self.bytes);
        self.head_bytes = self.bytes.len();
    }

    /// The same with more field lines, in an empty buffer. A proxy is sent an absolute target (RFC
    /// 9112, 3.2.2).
    pub fn with_lines(
        &self,
        mut bytes: Reused<Vec<u8>>,
        target: Option<&[u8]>,
        lines: &[u8],
    ) -> Request {
        let (head, content) = self.bytes.split_at(self.head_bytes);
        let Places { method_end, target_end, lines: lines_at } = self.places;
        bytes.extend_from_slice(&head[..=method_end]);
        bytes.extend_from_slice(target.unwrap_or(&head[method_end + 1..target_end]));
        let lines_at = bytes.len() + lines_at - target_end;
        let places = Places { target_end: bytes.len(), lines: lines_at, ..self.places };
        bytes.extend_from_slice(&head[target_end..head.len() - write::CRLF.len()]);
        bytes.extend_from_slice(lines);
        write::end(&mut bytes);
        let head_bytes = bytes.len();
        bytes.extend_from_slice(content);
        let (trailers, sent) = (self.trailers.clone(), Cell::new(false));
        Request { bytes, places, head_bytes, trailers, sent, ..*self }
    }

    /// Adds content to a request with a body of known length, after its head.
    pub fn push_content(&mut self, content: &[u8]) {
        self.bytes.extend_from_slice(content);
    }

    /// Adds trailers after that content, as field lines. HTTP/1 has none after content of known
    /// length.
    pub fn push_trailers(&mut self, lines: &[u8]) {
        self.trailers.extend_from_slice(lines);
    }

    /// The lines of its fields, each with its end.
    pub fn field_lines(&self) -> &[u8] {
        let start = self.places.target_end + AFTER_TARGET.len();
        &self.bytes[start..self.head_bytes - write::CRLF.len()]
    }

    /// The parts of the head that HTTP/2 sends as pseudo-fields.
    pub(super) fn pseudo(&self, scheme: Scheme) -> RequestFields<'_> {
        let Places { method_end, target_end, lines } = self.places;
        let host = target_end + AFTER_TARGET.len() + HOST.len();
        RequestFields {
            method: &self.bytes[..method_end],
            scheme: Some(scheme.name().as_bytes()),
            authority: &self.bytes[host..lines - write::CRLF.len()],
            path: Some(&self.bytes[method_end + 1..target_end]),
            protocol: None,
        }
    }

    /// The other fields. HTTP/2 leaves out the fields of the connection.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let lines = &self.bytes[self.places.lines..self.head_bytes - write::CRLF.len()];
        let trailers = self.accepts_trailers.then_some((&b"te"[..], &b"trailers"[..]));
        http1::trailer_fields(lines).chain(trailers)
    }

    /// The bytes as HTTP/1 sends them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Sends it over HTTP/2.
    pub(super) async fn send_on(&self, slot: &Slot, times: &Times) -> Result<(), Fault> {
        let content = &self.bytes[self.head_bytes..];
        let scheme = match slot.transport().tls() {
            Some(_) => Scheme::Https,
            None => Scheme::Http,
        };
        slot.send_head(&self.pseudo(scheme), self.fields(), self.length.is_empty())?;
        if content.is_empty() {
            return Ok(());
        }
        slot.send_content(content, self.trailers.is_empty(), times).await?;
        if self.trailers.is_empty() { Ok(()) } else { slot.send_trailers(&self.trailers) }
    }

    pub(super) fn method(&self) -> Method {
        self.method
    }

    /// It is sent now.
    pub(super) fn note_sent(&self) {
        self.sent.set(true);
    }

    /// Whether an upstream may have seen some of it.
    pub fn was_sent(&self) -> bool {
        self.sent.get()
    }

    /// Whether it may be sent a second time (RFC 9110, 9.2.2).
    pub fn is_repeatable(&self) -> bool {
        self.method.is_idempotent() || planted::is(planted::Bug::UnsafeRepeated)
    }
}

/// Sends the body of a request as it comes.
#[derive(Debug)]
pub struct BodyWriter {
    sink: Sink,
    times: Times,
    framed: Vec<u8>,
    trailers: Vec<u8>,
}

/// Where the body of a request goes.
#[derive(Debug)]
pub(super) enum Sink {
    Connection(Rc<Transport>),
    /// The same, in chunks.
    Chunks(Rc<Transport>),
    Stream(Rc<Slot>),
}

impl BodyWriter {
    pub(super) fn new(sink: Sink, times: Times) -> BodyWriter {
        BodyWriter { sink, times, framed: Vec::new(), trailers: Vec::new() }
    }

    /// Adds content to what is sent next.
    pub fn push(&mut self, content: &[u8]) {
        if matches!(self.sink, Sink::Chunks(_)) {
            self.framed.extend_from_slice(write::chunk_prefix(content.len()).as_bytes());
            self.framed.extend_from_slice(content);
            self.framed.extend_from_slice(b"\r\n");
        } else {
            self.framed.extend_from_slice(content);
        }
    }

    /// Adds trailers to what is sent at the end, as field lines. They are lost over HTTP/1 if the
    /// length of the body was announced.
    pub fn push_trailers(&mut self, lines: &[u8]) {
        self.trailers.extend_from_slice(lines);
    }

    /// Sends what was added, and the end of the body if it is the last.
    pub async fn send(&mut self, core: &Upstreams, is_last: bool) -> Result<(), Fault> {
        match &self.sink {
            Sink::Connection(stream) => send(core, stream, &self.times, &self.framed).await?,
            Sink::Chunks(stream) => {
                if is_last {
                    self.framed.extend_from_slice(write::LAST_CHUNK_BEFORE_TRAILERS);
                    self.framed.extend_from_slice(&self.trailers);
                    write::end(&mut self.framed);
                }
                send(core, stream, &self.times, &self.framed).await?;
            }
            Sink::Stream(slot) => {
                let ends = is_last && self.trailers.is_empty();
                slot.send_content(&self.framed, ends, &self.times).await?;
                if is_last && !ends {
                    slot.send_trailers(&self.trailers)?;
                }
            }
        }
        self.framed.clear();
        Ok(())
    }

    /// Whether [`Self::send_shared`] works.
    pub fn can_send_shared(&self) -> bool {
        matches!(&self.sink, Sink::Connection(stream) if stream.can_send_shared())
    }

    /// Sends content that is not copied. Nothing that was added waits to be sent.
    pub async fn send_shared(
        &mut self,
        core: &Upstreams,
        mut pages: SharedPages,
    ) -> Result<(), Fault> {
        let Sink::Connection(stream) = &self.sink else { unreachable!("it can send pages") };
        core.io.counters.upstream_bytes_sent.add(pages.left() as u64);
        while pages.left() > 0 {
            match stream.try_write_pages(&mut pages, false) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    writable(stream, &self.times).await?;
                }
                Err(_) => return Err(Fault::Broken),
            }
        }
        Ok(())
    }
}

/// The head of a response.
pub type ReceivedHead = Reused<Box<OwnedResponse>>;

/// The final head of a response, and its body.
#[derive(Debug)]
pub struct Answer {
    /// The final head.
    pub head: ReceivedHead,
    /// What follows it.
    pub body: UpstreamBody,
    /// Unix milliseconds when the request was sent.
    pub request_ms: u64,
    /// Unix milliseconds when the head was complete.
    pub response_ms: u64,
}

/// The final head of an answer, and what was read after it.
#[derive(Debug)]
pub struct HeadRead {
    /// The final head.
    pub head: ReceivedHead,
    /// What was read after it.
    pub reading: Reading,
}

/// The answer of which the final head has been read.
pub fn answer(
    core: &Upstreams,
    upstream: Box<Upstream>,
    HeadRead { head, reading }: HeadRead,
    method: Method,
    request_ms: u64,
) -> Answer {
    let view = head.head();
    if let Some(ticket) = &upstream.ticket {
        ticket.answered(view.status);
    }
    let kind = view.body(method).unwrap_or(BodyKind::UntilClose);
    let reusable = view.keep_alive() && kind != BodyKind::UntilClose && !upstream.is_private;
    let mut decoder = BodyDecoder::for_response(kind, &core.io.limits().http);
    decoder.keep_trailers();
    let rest = (!reading.bytes.is_empty()).then_some(reading.bytes);
    let (copied, trailers, upstream) = (None, Vec::new(), Some(upstream));
    let given = Given::default();
    let body = UpstreamBody { upstream, kind, decoder, rest, reusable, copied, given, trailers };
    Answer { head, body, request_ms, response_ms: time::wall_ms() }
}

/// What has been read of an answer.
#[derive(Debug)]
pub struct Reading {
    /// Bytes after the last head.
    pub bytes: Reused<Vec<u8>>,
    any: bool,
    may_switch: bool,
    over_http2: bool,
}

impl Reading {
    /// Nothing yet.
    pub fn new(io: &CoreIo) -> Reading {
        Reading { bytes: io.buffer(), any: false, may_switch: false, over_http2: false }
    }

    /// For an answer to a request for another protocol.
    pub fn that_may_switch(io: &CoreIo) -> Reading {
        Reading { may_switch: true, ..Reading::new(io) }
    }

    /// Whether a byte of an answer has come.
    pub fn is_any(&self) -> bool {
        self.any
    }
}

/// Reads up to the end of the final head. What follows it stays in `reading`. Interim responses go
/// to `interim`.
pub async fn final_head(
    core: &Upstreams,
    upstream: &Upstream,
    reading: &mut Reading,
    interim: &mut dyn FnMut(&ResponseHead<'_>),
) -> Result<ReceivedHead, Fault> {
    let mut interims = 0;
    loop {
        match next_head(core, upstream, reading).await? {
            NextHead::Final(head) => return Ok(head),
            NextHead::Interim(head) => {
                interims += 1;
                if interims > INTERIM_READ_MAX {
                    return Err(Fault::Interim);
                }
                if interims <= core.io.limits().limits.interim_max {
                    interim(&head.head());
                }
            }
        }
    }
}

/// The next head of an answer.
pub enum NextHead {
    /// 1xx.
    Interim(ReceivedHead),
    /// The final head.
    Final(ReceivedHead),
}

/// Reads one head, interim or final.
pub async fn next_head(
    core: &Upstreams,
    upstream: &Upstream,
    reading: &mut Reading,
) -> Result<NextHead, Fault> {
    if !reading.bytes.is_empty()
        && let Some(head) = parse_kept(core, reading)?
    {
        return Ok(head);
    }
    if let Some(slot) = &upstream.slot {
        reading.over_http2 = true;
        loop {
            slot.heads(&mut reading.bytes).await?;
            reading.any = true;
            if let Some(head) = parse_kept(core, reading)? {
                return Ok(head);
            }
        }
    }
    loop {
        if upstream.stream.readable().await.is_err() {
            return Err(Fault::Broken);
        }
        let head = core.io.with_paced_input(|input| {
            let wanted = input.len().min(HEAD_READ_BYTES);
            match upstream.stream.try_read(&mut input[..wanted]) {
                Ok(0) => Err(Fault::Broken),
                Ok(read) => {
                    reading.any = true;
                    core.io.counters.upstream_bytes_received.add(read as u64);
                    received(core, reading, &input[..read])
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                Err(error) => Err(Fault::of_read(&error)),
            }
        })?;
        if let Some(head) = head {
            return Ok(head);
        }
    }
}

/// Takes bytes that have come. A head is mostly whole in one read, and is parsed where it lies.
fn received(
    core: &Upstreams,
    reading: &mut Reading,
    input: &[u8],
) -> Result<Option<NextHead>, Fault> {
    if !reading.bytes.is_empty() {
        reading.bytes.extend_from_slice(input);
        return parse_kept(core, reading);
    }
    let parsed = parse(core, reading, input)?;
    let used = parsed.as_ref().map_or(0, |(_, used)| *used);
    reading.bytes.extend_from_slice(&input[used..]);
    Ok(parsed.map(|(head, _)| head))
}

fn parse_kept(core: &Upstreams, reading: &mut Reading) -> Result<Option<NextHead>, Fault> {
    let Some((head, used)) = parse(core, reading, &reading.bytes)? else { return Ok(None) };
    reading.bytes.drain(..used);
    Ok(Some(head))
}

/// The head at the start of these bytes, and its length.
fn parse(
    core: &Upstreams,
    reading: &Reading,
    bytes: &[u8],
) -> Result<Option<(NextHead, usize)>, Fault> {
    core.io.with_scratch(|scratch| {
        let limits = core.io.limits();
        let parsed = http1::accept_response(bytes, scratch, &limits.http);
        let head = match &parsed {
            Err(reject) => {
                tracing::debug!(%reject, "malformed response");
                return Err(Fault::Http1(reject.reason));
            }
            Ok(None) => return Ok(None),
            Ok(Some(head)) => head,
        };
        // Another protocol comes only if it was asked for.
        if head.status == 101 && !reading.may_switch {
            return Err(Fault::Switched);
        }
        let received = match reading.over_http2 {
            true => core.io.received(&head.over_http2()),
            false => core.io.received(head),
        };
        let next = if head.is_interim() { NextHead::Interim } else { NextHead::Final };
        Ok(Some((next(received), head.head_bytes)))
    })
}

/// The body of an answer. If it is dropped before its end, the connection is closed.
#[derive(Debug)]
pub struct UpstreamBody {
    upstream: Option<Box<Upstream>>,
    /// How its end is marked.
    kind: BodyKind,
    decoder: BodyDecoder,
    /// What was read together with the head.
    rest: Option<Reused<Vec<u8>>>,
    reusable: bool,
    /// So many bytes of its content are copied before it is passed on without copies: all of a
    /// short body. `None`: this is not decided yet.
    copied: Option<u64>,
    given: Given,
    /// The trailers of a complete body, as field lines.
    trailers: Vec<u8>,
}

impl UpstreamBody {
    /// Leaves out so many bytes of the content, which begins with them. Before any is taken.
    pub fn skip(&mut self, bytes: u64) {
        self.given.skips = bytes;
    }

    /// How many bytes of content were given away.
    pub fn given(&self) -> u64 {
        self.given.bytes
    }

    /// The group of the server that sends it, while it does.
    pub fn group(&self) -> Option<Arc<Group>> {
        self.upstream.as_ref()?.ticket.as_ref().map(Ticket::group)
    }

    /// The field lines that begin or move the session of the client whose request went there, while
    /// the server sends it.
    pub fn session_lines(&self, to: &To, is_secure: bool) -> Option<Vec<u8>> {
        let To::Group(group, choice, ..) = to else { return None };
        group.config.sticky.as_ref()?;
        let ticket = self.upstream.as_ref()?.ticket.as_ref()?;
        let is_it = Arc::ptr_eq(group, &ticket.group());
        let at = ticket.session_at().filter(|_| is_it)?;
        group.session_lines(*choice, at, is_secure)
    }

    /// Waits until all of the content is here, and keeps it, if its length is known; over HTTP/1
    /// alone. Before any is taken. The caller bounds the length, and accounts for the memory.
    pub async fn arrive(&mut self, core: &Upstreams) -> Result<(), Fault> {
        let BodyKind::Length(length) = self.kind else { return Ok(()) };
        let arrived = self.arrive_up_to(core, length).await;
        self.noted(arrived)
    }

    async fn arrive_up_to(&mut self, core: &Upstreams, length: u64) -> Result<(), Fault> {
        let Some(upstream) = self.upstream.as_ref().filter(|of| of.slot.is_none()) else {
            return Ok(());
        };
        let kept = self.rest.get_or_insert_with(|| core.io.buffer());
        while (kept.len() as u64) < length {
            match time::timeout(upstream.times.idle(), upstream.stream.readable()).await {
                Ok(readable) => readable.map_err(|_| Fault::Broken)?,
                Err(_) => return Err(Fault::Timeout),
            }
            core.io.with_paced_input(|input| match upstream.stream.try_read(input) {
                Ok(0) => Err(Fault::Broken),
                Ok(read) => {
                    core.io.counters.upstream_bytes_received.add(read as u64);
                    kept.extend_from_slice(&input[..read]);
                    Ok(())
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                Err(_) => Err(Fault::Broken),
            })?;
        }
        Ok(())
    }

    /// The connection is not to be used again, however the body ends.
    pub fn close_after(&mut self) {
        self.reusable = false;
    }

    /// The address it comes from.
    pub fn address(&self) -> Option<SocketAddr> {
        self.upstream.as_ref().map(|upstream| upstream.address)
    }

    /// Whether all of a body of known length was read together with the head, over HTTP/1. Then
    /// [`Self::take_ready`] gives its content to the sink in one piece.
    pub fn has_come(&self) -> bool {
        let here = self.rest.as_ref().map_or(0, |rest| rest.len() as u64);
        let is_here = matches!(self.kind, BodyKind::Length(length) if length <= here);
        is_here && self.slot().is_none()
    }

    /// Gives the content that has come already to `sink`, without waiting. True when the body is
    /// complete; then the connection has gone back to the pool.
    pub fn take_ready(
        &mut self,
        core: &Upstreams,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, Fault> {
        let taken = match self.slot() {
            Some(_) => self.take_from_stream(sink),
            None => {
                let rest = self.rest.take();
                self.decode(core, rest.as_deref().map_or(&[], Vec::as_slice), sink)
            }
        };
        self.noted(taken)
    }

    /// The place of an exchange over HTTP/2 that is not complete.
    fn slot(&self) -> Option<&Slot> {
        self.upstream.as_ref()?.slot.as_deref()
    }

    fn take_from_stream(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<bool, Fault> {
        let slot = self.upstream.as_ref().and_then(|upstream| upstream.slot.as_deref());
        let Some(slot) = slot else { return Ok(true) };
        let mut given = self.given;
        let taken = slot.take(&mut |data| match given.piece(data) {
            [] => {}
            data => sink(data),
        });
        self.given = given;
        let is_complete = taken?;
        if is_complete {
            self.given.end()?;
            self.trailers = slot.take_trailers();
            self.upstream = None;
        }
        Ok(is_complete)
    }

    /// Whether trailers may follow the body, even if its length is known.
    pub fn may_have_trailers(&self) -> bool {
        self.slot().is_some_and(Slot::may_have_trailers) || self.kind == BodyKind::Chunked
    }

    /// The trailers of a complete body, as field lines: those that may be passed on.
    pub fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    /// Waits for content and gives it to `sink`. True when the body is complete.
    pub async fn pull(
        &mut self,
        core: &Upstreams,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, Fault> {
        let pulled = self.pull_on(core, sink).await;
        self.noted(pulled)
    }

    /// Reads the body to its end, or as long as it has no more than this many bytes, and throws it
    /// away. A body that is read to its end leaves the connection for the next request.
    pub async fn drain(&mut self, core: &Upstreams, bytes_max: usize) {
        let mut bytes = 0;
        // What came with the head does not come again.
        let mut pulled = self.take_ready(core, &mut |data| bytes += data.len());
        while bytes <= bytes_max && matches!(pulled, Ok(false)) {
            pulled = self.pull(core, &mut |data| bytes += data.len()).await;
        }
    }

    /// As [`Self::pull`], but content of a long body is not copied and does not go to `sink`, if
    /// `shares` allows that.
    pub async fn pull_or_share(
        &mut self,
        core: &Upstreams,
        shares: bool,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<(Option<SharedPages>, bool), Fault> {
        let is_whole = self.slot().is_none() && self.given.skips == 0;
        let is_long = is_whole && piped::is_long(&self.decoder);
        let copied = self.copied.get_or_insert(if is_long { 0 } else { u64::MAX });
        if shares && self.given.bytes >= *copied {
            let pulled = self.pull_shared(core).await;
            match self.noted(pulled)? {
                Some((pages, is_complete)) => return Ok((Some(pages), is_complete)),
                None => self.copied = Some(self.given.bytes.saturating_add(COPIED_BYTES)),
            }
        }
        self.pull(core, sink).await.map(|is_complete| (None, is_complete))
    }

    /// Remembers a failure of the server.
    fn noted<T>(&self, pulled: Result<T, Fault>) -> Result<T, Fault> {
        if let (Err(fault), Some(upstream)) = (&pulled, &self.upstream) {
            upstream.failed(*fault);
        }
        pulled
    }

    async fn pull_shared(
        &mut self,
        core: &Upstreams,
    ) -> Result<Option<(SharedPages, bool)>, Fault> {
        let Some(upstream) = &self.upstream else { return Ok(None) };
        let pulling = piped::pull(&core.io, &upstream.stream, &mut self.decoder);
        let pulled = match time::timeout(upstream.times.idle(), pulling).await {
            Ok(pulled) => pulled.map_err(|_| Fault::Broken)?,
            Err(_) => return Err(Fault::Timeout),
        };
        let Some(pages) = pulled else { return Ok(None) };
        if pages.left() == 0 {
            return self.closed().map(|is_complete| Some((pages, is_complete)));
        }
        core.io.counters.upstream_bytes_received.add(pages.left() as u64);
        self.given.bytes += pages.left() as u64;
        let is_complete = self.decoder.is_done();
        if is_complete {
            self.complete(core, true);
        }
        Ok(Some((pages, is_complete)))
    }

    async fn pull_on(
        &mut self,
        core: &Upstreams,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, Fault> {
        let Some(upstream) = &self.upstream else { return Ok(true) };
        if let Some(slot) = &upstream.slot {
            let idle = upstream.times.idle();
            // While the request goes on, the server may have nothing to say.
            while time::timeout(idle, slot.arrived()).await.is_err() {
                if !slot.has_sent_within(idle) {
                    return Err(Fault::Timeout);
                }
            }
            return self.take_from_stream(sink);
        }
        match time::timeout(upstream.times.idle(), upstream.stream.readable()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(Fault::Broken),
            Err(_) => return Err(Fault::Timeout),
        }
        core.io.with_paced_input(|input| {
            let Some(upstream) = &self.upstream else { return Ok(true) };
            match upstream.stream.try_read(input) {
                Ok(0) => self.closed(),
                Ok(n) => {
                    core.io.counters.upstream_bytes_received.add(n as u64);
                    self.decode(core, &input[..n], sink)
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
                Err(_) => Err(Fault::Broken),
            }
        })
    }

    /// The upstream has closed its direction. True if the body is complete.
    fn closed(&mut self) -> Result<bool, Fault> {
        self.reusable = false;
        self.decoder.finish_on_close().map_err(|_| Fault::Broken)?;
        self.given.end()?;
        self.upstream = None;
        Ok(true)
    }

    fn decode(
        &mut self,
        core: &Upstreams,
        input: &[u8],
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, Fault> {
        let mut at = 0;
        while !self.decoder.is_done() && at < input.len() {
            let step = self.decoder.decode(&input[at..]);
            let step = step.map_err(|reject| Fault::Http1(reject.reason))?;
            let data = self.given.piece(&input[at..][step.data.clone()]);
            if !data.is_empty() {
                sink(data);
            }
            at += step.consumed;
        }
        if !self.decoder.is_done() {
            return Ok(false);
        }
        self.given.end()?;
        if let Some(trailers) = self.decoder.trailers() {
            self.trailers = write::trailer_lines(http1::trailer_fields(trailers));
        }
        self.complete(core, at == input.len());
        Ok(true)
    }

    /// The body is complete. `is_end` says that nothing was read after it: such bytes answer no
    /// request.
    fn complete(&mut self, core: &Upstreams, is_end: bool) {
        if let Some(upstream) = self.upstream.take()
            && self.reusable
            && (is_end || planted::is(planted::Bug::BytesLeftOnPooled))
        {
            core.pool.put(core, upstream);
        }
    }

    /// Its length, if the head announced it.
    pub fn length(&self) -> BodyLength {
        match self.kind {
            BodyKind::None => BodyLength::None,
            BodyKind::Length(length) => BodyLength::Known(length),
            BodyKind::Chunked | BodyKind::UntilClose => BodyLength::Unknown,
        }
    }
}
