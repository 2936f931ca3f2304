//! One client connection.
//!
//! ```text
//!                +--------------------------- answered ---------------------------+
//!                v                                                                |
//!   accepted -> Silent --readable--> Turn --head incomplete--> Silent (bytes kept) |
//!                |                    |                                           |
//!        idle time-out,               +-- hit: head, body, one send --------------+
//!        drain, close                 +-- anything that must wait --> Exchange ---+--> Closed
//!                                     +-- refused: answer, linger ----------------^
//! ```
//!
//! A silent connection is its small [`Connection`], its slot in the table and its socket, without a
//! buffer. A *turn* reads into the core's buffer, answers every request in the buffer that the
//! store can answer at once, and sends the answers with one call; a turn never waits. Work that
//! must wait (a miss, a body, a client that does not read) continues in a separate future on the
//! heap, which is freed when the exchange is over.
//!
//! The turn of a hit is the one place that looks through the seam of `exchange::client`: it writes
//! the stored response to the socket itself, without an exchange ([`Turn::answer_at_once`]).

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use cache::Look;
use cache::stored::{Stored, Use};
use core_io::spares::SharedHead;
use core_io::{Buffers, CoreIo, panics};
use http1::{Method, OwnedRequest, RequestHead, write};
use outcome::{BrokenBy, Refusal};
use runtime::Boxed;
use runtime::time::{self, Instant, Sleep};
use transport::Transport;
use transport::shares::Share;

use super::body::RequestBody;
use super::client::{ClientStream, linger};
use super::response::{append_refusal, connection_of, wants_more};
use super::setup::Accepted;
use exchange::client::{Client, RequestBody as _, Sent};
use exchange::client_rule;
use exchange::hit::{FastPath, HIT, fresh_hit};
use exchange::limits::COALESCE_BYTES_MAX;
use exchange::listener::ListenerContext;
use exchange::logged::{LoggedHit, Origin, count_hit};
use exchange::quota::admits_hit;
use exchange::request::{Request, RequestedKey};
use exchange::routing::ClientConnection;
use exchange::step::Ending;
use exchange::{Exchange, Slot, Worker};

/// A client connection that speaks HTTP/1, or has not shown what it speaks. This is what a silent
/// connection consists of.
pub(crate) struct Connection {
    pub(crate) slot: Slot,
    pub(crate) listener: Rc<ListenerContext>,
    pub(crate) accepted: Accepted,
    kept: Kept,
    idle: Idle,
}

const _: () = assert!(size_of::<Connection>() <= 128, "each silent connection pays for it");

/// What follows a turn.
pub(crate) enum Next<F, E> {
    /// The connection waits for the client.
    Wait,
    Close,
    /// The connection speaks HTTP/2. It keeps the bytes that were read.
    Http2,
    /// Bytes are still to be sent, or the close must linger.
    Finish(F),
    /// A request that the store cannot answer at once is served.
    Exchange(E),
}

/// How a turn has ended, with all that followed it.
pub(crate) enum Ended {
    /// The connection continues, with the bytes that were read after a request.
    Keep(Option<Vec<u8>>),
    /// The connection is over.
    Close,
    /// The connection speaks HTTP/2.
    Http2,
}

impl Connection {
    /// A connection that was accepted.
    pub(crate) fn new(
        worker: Rc<Worker>,
        listener: Rc<ListenerContext>,
        accepted: Accepted,
    ) -> Connection {
        let idle = Idle::new(&worker.io);
        let slot = Slot::without_place(worker);
        Connection { slot, listener, accepted, kept: Kept::default(), idle }
    }

    /// Begins to serve a connection that has been set up. True if it speaks HTTP/2.
    pub(crate) fn begin(&mut self) -> bool {
        self.listener = Rc::clone(&self.listener).of_peer(self.accepted.peer.ip());
        self.idle = Idle::new(self.io());
        self.accepted.stream.speaks_http2()
    }

    pub(crate) fn io(&self) -> &CoreIo {
        &self.slot.worker.io
    }

    /// Whether the next turn has to wait for bytes. It has not if bytes of a further request were
    /// read before.
    pub(crate) fn is_silent(&self) -> bool {
        !self.kept.unparsed
    }

    /// Waits for bytes, or for a reason to end the connection.
    ///
    /// Not an `async fn`, and its future is one reference: each silent connection holds it.
    pub(crate) fn readable(&mut self) -> impl Future<Output = Waited> {
        if !self.kept.is_empty() {
            self.io().counters.states.reading.add(1);
        }
        std::future::poll_fn(move |cx| self.poll_readable(cx))
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<Waited> {
        let Connection { slot, accepted, kept, idle, .. } = self;
        let io = &*slot.worker.io;
        let waited = idle.poll_readable(cx, io, accepted, kept);
        if waited.is_ready() && !kept.is_empty() {
            io.counters.states.reading.sub(1);
        }
        waited
    }

    /// Ends a connection after a wait. The bytes that were read are given up at once: the client
    /// may take long to read the end, and others need their share of the memory.
    pub(crate) async fn leave(&mut self, waited: Waited) {
        let received = self.give_up();
        let Connection { listener, accepted, .. } = &*self;
        match waited {
            Waited::Readable => unreachable!("only a wait that is over ends a connection"),
            Waited::Over => {
                if self.io().closes_silent() && received == 0 {
                    // A request may be on its way: its sender should see an end and not a reset.
                    linger(self.io(), &accepted.stream).await;
                }
            }
            Waited::Late => refuse_late_head(self.io(), listener, accepted, received).await,
        }
    }

    /// Gives up the bytes that were read, and returns how many these were.
    pub(crate) fn give_up(&mut self) -> u64 {
        self.kept.bytes.take().map_or(0, |kept| kept.bytes.len() as u64)
    }

    /// One turn, and what follows it.
    pub(crate) fn take_turn(
        &mut self,
    ) -> Next<Boxed<impl Future<Output = Ended>>, Boxed<impl Future<Output = Ended>>> {
        let Connection { slot, listener, accepted, kept, .. } = self;
        let (worker, listener, accepted) = (&slot.worker, &*listener, &*accepted);
        let read = !std::mem::take(&mut kept.unparsed);
        match turn(worker, listener, &accepted.stream, accepted.peer, kept, read) {
            AfterTurn::Wait => Next::Wait,
            AfterTurn::Close => Next::Close,
            AfterTurn::Http2(read) => {
                kept.put(*read);
                Next::Http2
            }
            AfterTurn::Finish(finish) => {
                Next::Finish(runtime::boxed(finish.run(worker, listener, accepted)))
            }
            AfterTurn::Exchange(request) => {
                Next::Exchange(runtime::boxed(exchange(worker, listener, accepted, request)))
            }
        }
    }

    /// After [`Ended::Keep`], before the next wait.
    pub(crate) fn go_on(&mut self, rest: Option<Vec<u8>>) {
        if let Some(rest) = rest {
            self.kept.put(rest);
        }
        if !self.kept.same_head {
            self.idle.touch();
        }
    }

    /// What a connection over HTTP/2 keeps, and the bytes that were read.
    pub(crate) fn into_http2(self) -> (Slot, Rc<ListenerContext>, Accepted, Vec<u8>) {
        let Connection { slot, listener, accepted, kept, .. } = self;
        (slot, listener, accepted, kept.bytes.map_or_else(Vec::new, |kept| kept.bytes))
    }
}

/// Answers a head that took too long.
async fn refuse_late_head(
    io: &CoreIo,
    listener: &ListenerContext,
    accepted: &Accepted,
    received: u64,
) {
    let Accepted { stream, peer, .. } = accepted;
    let mut out = Vec::new();
    append_refusal(&mut out, Refusal::HeadTimeout);
    let from = Origin { listener, tls: stream.tls(), peer: *peer };
    from.refused(io, Refusal::HeadTimeout, received, &out, time::wall_ms());
    if ClientStream::new(io, stream).send_bytes(&out).await.is_ok() {
        linger(io, stream).await;
    }
}

/// A request that the turn could not answer.
#[derive(Debug)]
struct Incoming {
    head: SharedHead,
    key: RequestedKey,
    /// The bytes that were read after the head.
    rest: Vec<u8>,
    /// Answers to earlier requests that the client has not read yet.
    unsent: Vec<u8>,
}

/// Serves one request.
async fn exchange(
    worker: &Rc<Worker>,
    listener: &Rc<ListenerContext>,
    accepted: &Accepted,
    incoming: Incoming,
) -> Ended {
    let Incoming { head: shared, key, rest, unsent } = incoming;
    let (io, stream) = (&worker.io, &accepted.stream);
    let head = shared.head();
    let _busy = io.counters.connections_busy.while_here();
    let mut client = ClientStream::new(io, stream);
    // TLS may have accepted bytes that are not on the wire.
    let is_sent = unsent.is_empty() && stream.is_flushed();
    if !is_sent && client.send_bytes(&unsent).await.is_err() {
        return Ended::Close;
    }
    client.begin(head.version, listener.own_lines(), wants_more(listener.role, &head));
    let rest_bytes = rest.len() as u64;
    let mut body = RequestBody::new(io, stream, &head, rest);
    client.note_next(body.length().bytes().is_some_and(|length| rest_bytes > length));
    let connection = ClientConnection {
        original_destination: accepted.original_destination.as_deref().copied(),
        stream: Some(stream),
        tls: stream.tls(),
        is_early: false,
    };
    let named = panics::Serving::head(&head);
    let client_address = listener.client(accepted.peer, &head);
    let ending = {
        let request = Request::new(worker, listener, client_address, Rc::clone(&shared));
        let mut exchange = Exchange::new(request, connection, &mut client, &body);
        exchange.note_key(key);
        exchange.serve_request(&mut body).await
    };
    named.done();
    match ending {
        Ending::Complete(_) => {}
        Ending::BrokenOff(_) => {
            // Only a reset shows that a body which ends with the connection is truncated. With
            // other framings a reset does no harm.
            let _ = stream.set_linger0();
            return Ended::Close;
        }
        // A reset could overtake the answers to earlier requests.
        Ending::Left(_) | Ending::Tunnel(_) => return Ended::Close,
        Ending::TunnelRefused(_) => {
            linger(io, stream).await;
            return Ended::Close;
        }
    }
    match body.into_rest() {
        Some(rest) if client.keeps() => Ended::Keep(Some(rest)),
        rest => {
            // Unread bytes would turn the close into a reset, which overtakes the answer.
            if rest.is_none_or(|rest| !rest.is_empty()) || stream.has_unread_event() {
                linger(io, stream).await;
            }
            Ended::Close
        }
    }
}

/// Bytes read and not parsed: none while a connection is silent between requests.
#[derive(Default)]
struct Kept {
    /// Boxed, so that a silent connection pays one word for it.
    bytes: Option<Box<Unparsed>>,
    /// Whether the bytes may contain a whole request.
    unparsed: bool,
    /// Whether the bytes begin with a head that was already waited for: its time-out continues.
    same_head: bool,
    /// Whether a request has come, so that the protocol is decided.
    is_decided: bool,
}

/// Bytes read and not parsed.
struct Unparsed {
    bytes: Vec<u8>,
    /// The bytes' share of a limit, if they are the beginning of a head.
    share: Option<Share>,
}

impl Kept {
    /// Keeps the beginning of a head.
    #[cold]
    fn hold(&mut self, bytes: Vec<u8>, share: Share) {
        share.set(bytes.len() as u64);
        self.bytes = Some(Box::new(Unparsed { bytes, share: Some(share) }));
    }

    fn put(&mut self, bytes: Vec<u8>) {
        self.same_head = false;
        self.unparsed = !bytes.is_empty();
        self.bytes = (!bytes.is_empty()).then(|| Box::new(Unparsed { bytes, share: None }));
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_none()
    }
}

/// What ended a wait between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// There are bytes to read, or the client has closed.
    Readable,
    /// The connection is to be closed.
    Over,
    /// A head is not complete at its time-out.
    Late,
}

impl Waited {
    /// Whether the connection is to end.
    pub(crate) fn is_over(self) -> bool {
        self != Waited::Readable
    }
}

/// Waiting between requests, with a time-out. The timer is not moved at each request: when it fires
/// too early, it is set again.
struct Idle {
    since: Instant,
    timer: Sleep,
}

impl Idle {
    fn new(io: &CoreIo) -> Idle {
        let since = time::now();
        Idle { since, timer: time::sleep_until(since + io.limits().limits.idle_keep_alive) }
    }

    fn touch(&mut self) {
        self.since = time::now();
    }

    /// Waits for bytes, or for a reason to end the connection.
    fn poll_readable(
        &mut self,
        cx: &mut Context<'_>,
        io: &CoreIo,
        Accepted { stream, peer, .. }: &Accepted,
        kept: &Kept,
    ) -> Poll<Waited> {
        if let Poll::Ready(result) = stream.poll_readable(cx) {
            return Poll::Ready(if result.is_ok() { Waited::Readable } else { Waited::Over });
        }
        if io.closes_silent() && kept.is_empty() {
            // A request that has arrived is answered, even if its event has not been delivered yet.
            let has_arrived = stream.try_peek(&mut [0]).is_ok_and(|bytes| bytes > 0);
            return Poll::Ready(if has_arrived { Waited::Readable } else { Waited::Over });
        }
        let mut takes_memory = || match &kept.bytes {
            None => false,
            Some(kept) => {
                kept.share.as_ref().is_some_and(|share| share.poll_evicted(cx).is_ready())
            }
        };
        if io.takes_room_of(self.since, peer.ip()) || takes_memory() {
            return Poll::Ready(Waited::Over);
        }
        let limit = if kept.is_empty() {
            io.limits().limits.idle_keep_alive
        } else {
            io.limits().limits.head_timeout
        };
        let deadline = self.since + limit;
        if deadline < self.timer.deadline() {
            self.timer.reset(deadline);
        }
        // A connection stays with its task, so a timer that is set wakes the right one.
        while !self.timer.is_armed() && Pin::new(&mut self.timer).poll(cx).is_ready() {
            if time::now() >= deadline {
                if kept.is_empty() {
                    return Poll::Ready(Waited::Over);
                }
                io.counters.timeouts.add(1);
                return Poll::Ready(Waited::Late);
            }
            self.timer.reset(deadline);
        }
        Poll::Pending
    }
}

/// What follows a turn.
enum AfterTurn {
    /// Wait for the client.
    Wait,
    Close,
    /// The connection begins with the preface of HTTP/2.
    #[allow(clippy::box_collection)]
    Http2(Box<Vec<u8>>),
    /// The client does not read as fast as the turn sends, or the close must linger.
    Finish(Box<Finish>),
    /// A request that the store cannot answer at once.
    Exchange(Incoming),
}

/// Bytes that are still to be sent.
struct Finish {
    unsent: Vec<u8>,
    body: Option<(LargeHit, u64)>,
    close: Close,
}

/// A hit whose body is sent from the store's memory. Sending may take time, so the line in the log,
/// if there is a log, waits for the end.
struct LargeHit {
    stored: Arc<Stored>,
    since: Instant,
    logged: Option<Box<Logged>>,
}

/// The data that the log line of a large hit needs after its turn.
struct Logged {
    request: OwnedRequest,
    response_head: Vec<u8>,
    keep: bool,
}

impl LargeHit {
    /// Counts and logs the hit once. The client has read `taken` bytes of the body; if that is not
    /// all of it, `rule` gives the reason.
    fn end(&self, worker: &Worker, from: Origin<'_>, taken: u64, rule: Option<&'static str>) {
        let elapsed_us = self.since.elapsed().as_micros() as u64;
        count_hit(&worker.io, self.stored.status(), elapsed_us);
        let Some(logged) = &self.logged else { return };
        let hit = LoggedHit {
            status: self.stored.status(),
            response_head: &logged.response_head,
            content_type: self.stored.head.content_type(),
            body_bytes: taken.min(self.stored.body_bytes),
            elapsed_us,
            keep: logged.keep && rule.is_none(),
            broken: rule.map(|rule| (BrokenBy::Client, rule)),
        };
        hit.log(worker, from, &logged.request.head(), time::wall_ms());
    }
}

/// What becomes of the connection after its answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Close {
    No,
    Now,
    /// The close waits, so that the client reads our refusal before it notices the close (RFC 9112,
    /// 9.6).
    Linger,
}

impl Finish {
    async fn run(self, worker: &Worker, listener: &ListenerContext, accepted: &Accepted) -> Ended {
        let io = &worker.io;
        let _finishing = io.counters.states.finishing.while_here();
        let Accepted { stream, peer, .. } = accepted;
        let mut client = ClientStream::new(io, stream);
        let mut sent = client.send_bytes(&self.unsent).await;
        if let Some((large, from)) = &self.body {
            if sent.is_ok() {
                sent = client.send(&after(&large.stored, *from), false).await;
            }
            let Sent { bytes, is_slow, .. } = client.sent();
            let taken = (from + bytes).saturating_sub(self.unsent.len() as u64);
            let rule = sent.is_err().then(|| client_rule(is_slow));
            let origin = Origin { listener, tls: stream.tls(), peer: *peer };
            large.end(worker, origin, taken, rule);
        }
        if sent.is_err() {
            return Ended::Close;
        }
        if self.close == Close::Linger {
            linger(io, stream).await;
        }
        if self.close == Close::No { Ended::Keep(None) } else { Ended::Close }
    }
}

/// The body of a stored response from this offset on.
fn after(stored: &Stored, from: u64) -> Vec<&[u8]> {
    let mut skip = usize::try_from(from).expect("a stored body fits in memory");
    let mut parts = Vec::with_capacity(stored.pieces.len());
    for piece in stored.pieces.iter() {
        let skipped = skip.min(piece.len());
        parts.push(&piece[skipped..]);
        skip -= skipped;
    }
    parts
}

/// One turn: reads, answers the requests whose responses are stored and fresh, and writes once (see
/// the module's text).
fn turn(
    worker: &Worker,
    listener: &ListenerContext,
    stream: &Transport,
    peer: SocketAddr,
    kept: &mut Kept,
    read: bool,
) -> AfterTurn {
    worker.io.with_buffers(|buffers| {
        let Buffers { input, output } = buffers;
        let mut filled = 0;
        kept.same_head = kept.bytes.is_some();
        let mut share = None;
        if let Some(held) = kept.bytes.take() {
            filled = held.bytes.len();
            input[..filled].copy_from_slice(&held.bytes);
            share = held.share;
        }
        // If the bytes of a whole request are here, the client may have closed its end already: its
        // request is answered all the same.
        if read && filled < input.len() {
            match stream.try_read(&mut input[filled..]) {
                Ok(0) => return AfterTurn::Close,
                Ok(n) => {
                    worker.io.counters.bytes_received.add(n as u64);
                    filled += n;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return AfterTurn::Close,
            }
        }
        output.clear();
        let from = Origin { listener, tls: stream.tls(), peer };
        let turn = Turn { worker, stream, from, now_ms: time::wall_ms() };
        turn.run(&input[..filled], output, kept, share)
    })
}

/// One turn.
struct Turn<'w> {
    worker: &'w Worker,
    stream: &'w Transport,
    from: Origin<'w>,
    now_ms: u64,
}

/// What became of one request within a turn.
enum Answered {
    /// The answer is in the output. `keep`: the connection continues.
    Whole { keep: bool },
    /// The head of the answer is in the output, and this body follows.
    Head { large: LargeHit, keep: bool },
    /// The request must wait.
    Later(SharedHead, RequestedKey),
}

impl Turn<'_> {
    /// `share` is the share of a limit of the head with which the input begins, if the head was
    /// waited for.
    fn run(
        &self,
        mut input: &[u8],
        output: &mut Vec<u8>,
        kept: &mut Kept,
        mut share: Option<Share>,
    ) -> AfterTurn {
        loop {
            if input.is_empty() {
                return self.flush(output, None, Close::No);
            }
            let named = panics::Serving::received(input);
            let limits = self.worker.io.limits();
            let limits = limits.http_with(self.from.listener.field_names);
            let parsed = self.worker.io.with_scratch(|scratch| {
                match http1::parse_request(input, scratch, limits) {
                    Ok(None) => Ok(None),
                    Ok(Some(head)) => {
                        Ok(Some((self.answer_at_once(&head, output), head.head_bytes)))
                    }
                    Err(reject) => Err(reject),
                }
            });
            named.done();
            match parsed {
                Ok(None) => {
                    let new = || self.worker.io.heads.share(self.from.peer.ip());
                    kept.hold(input.to_vec(), share.take().unwrap_or_else(new));
                    return self.flush(output, None, Close::No);
                }
                Err(_) if self.may_be_http2(input, kept) => {
                    let read = Box::new(input.to_vec());
                    if input.len() >= http2::PREFACE.len() {
                        return AfterTurn::Http2(read);
                    }
                    kept.bytes = Some(Box::new(Unparsed { bytes: *read, share: None }));
                    return self.flush(output, None, Close::No);
                }
                Err(reject) => {
                    self.refuse(&reject, input.len() as u64, output);
                    return self.flush(output, None, Close::Linger);
                }
                Ok(Some((answered, used))) => {
                    (kept.same_head, kept.is_decided) = (false, true);
                    share = None;
                    input = &input[used..];
                    match answered {
                        Answered::Whole { keep: true }
                            if output.len() < self.worker.io.output_bytes_max() => {}
                        Answered::Whole { keep } => {
                            kept.put(input.to_vec());
                            return self.flush(output, None, self.close_unless(keep, input));
                        }
                        Answered::Head { large, keep } => {
                            kept.put(input.to_vec());
                            return self.flush(output, Some(large), self.close_unless(keep, input));
                        }
                        Answered::Later(head, key) => {
                            return self.hand_over((head, key), input, output);
                        }
                    }
                }
            }
        }
    }

    /// Whether the bytes so far are the beginning of the preface of HTTP/2. HTTP/1 refuses the
    /// preface by its first line (RFC 9113 section 3.4).
    #[cold]
    fn may_be_http2(&self, input: &[u8], kept: &Kept) -> bool {
        let Origin { listener, tls, .. } = self.from;
        let is_allowed = listener.http2 && tls.is_none();
        let both = input.len().min(http2::PREFACE.len());
        is_allowed && !kept.is_decided && input[..both] == http2::PREFACE[..both]
    }

    /// How to close after an answer that announced it: unread bytes would turn the close into a
    /// reset, which overtakes the answer.
    fn close_unless(&self, keep: bool, rest: &[u8]) -> Close {
        match keep {
            true => Close::No,
            false if rest.is_empty() && !self.stream.has_unread_event() => Close::Now,
            false => Close::Linger,
        }
    }

    /// Sends the turn's output. Bytes that the client does not read are left to [`Finish`].
    fn flush(&self, output: &[u8], body: Option<LargeHit>, close: Close) -> AfterTurn {
        let sent = match &body {
            None if output.is_empty() => Ok(0),
            None => self.stream.try_write(output),
            Some(LargeHit { stored, .. }) => {
                let mut slices = [IoSlice::new(&[]); 16];
                slices[0] = IoSlice::new(output);
                let pieces = stored.pieces.iter().take(slices.len() - 1);
                let mut used = 1;
                for (slice, piece) in slices[1..].iter_mut().zip(pieces) {
                    *slice = IoSlice::new(piece);
                    used += 1;
                }
                self.stream.try_write_vectored(&slices[..used])
            }
        };
        let sent = match sent {
            Ok(sent) => sent as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => {
                // The client has gone. Its request counts all the same.
                if let Some(large) = body {
                    large.end(self.worker, self.from, 0, Some(client_rule(false)));
                }
                return AfterTurn::Close;
            }
        };
        self.worker.io.counters.bytes_sent.add(sent);
        let head_bytes = output.len() as u64;
        let body_bytes = body.as_ref().map_or(0, |large| large.stored.body_bytes);
        if sent == head_bytes + body_bytes && self.stream.is_flushed() {
            if let Some(large) = body {
                large.end(self.worker, self.from, body_bytes, None);
            }
            return match close {
                Close::No => AfterTurn::Wait,
                Close::Now => AfterTurn::Close,
                Close::Linger => {
                    AfterTurn::Finish(Box::new(Finish { unsent: Vec::new(), body: None, close }))
                }
            };
        }
        let unsent = output.get(sent as usize..).unwrap_or_default().to_vec();
        let body = body.map(|large| (large, sent.saturating_sub(head_bytes)));
        AfterTurn::Finish(Box::new(Finish { unsent, body, close }))
    }

    /// Hands over a request that must wait. Answers to earlier requests are sent first.
    fn hand_over(
        &self,
        (head, key): (SharedHead, RequestedKey),
        rest: &[u8],
        output: &[u8],
    ) -> AfterTurn {
        let unsent = match self.flush(output, None, Close::No) {
            AfterTurn::Finish(finish) => finish.unsent,
            AfterTurn::Close => return AfterTurn::Close,
            AfterTurn::Wait | AfterTurn::Exchange(_) | AfterTurn::Http2(_) => Vec::new(),
        };
        AfterTurn::Exchange(Incoming { head, key, rest: rest.to_vec(), unsent })
    }

    /// The fast path: answers a request from the store in its turn, or hands it back. This is the
    /// exception to the seam; everything else goes through an exchange.
    #[inline]
    fn answer_at_once(&self, head: &RequestHead<'_>, output: &mut Vec<u8>) -> Answered {
        let Origin { listener, peer, .. } = self.from;
        let (cache, snapshot) = (&self.worker.cache, self.worker.snapshot());
        let peer = listener.client(peer, head).ip();
        let (now_ms, look) = (self.now_ms, Look::Use);
        let path = FastPath { cache, snapshot: &snapshot, listener, peer, look, now_ms };
        let found = match fresh_hit(&path, head) {
            Ok(found) => found,
            Err(key) => return Answered::Later(self.worker.io.incoming(head), key),
        };
        if !admits_hit(&snapshot, listener, peer, head) {
            return Answered::Later(self.worker.io.incoming(head), None);
        }
        self.worker.sizing.hit(found.key, found.entry());
        self.hit(head, found.stored, output)
    }

    #[inline]
    /// Writes the stored response, and logs the request.
    fn hit(&self, head: &RequestHead<'_>, stored: Arc<Stored>, output: &mut Vec<u8>) -> Answered {
        let keep = wants_more(self.from.listener.role, head) && !self.worker.io.is_draining();
        let connection = connection_of(head.version, keep);
        let before = output.len();
        let now_ms = Some(self.now_ms);
        let own_lines = self.from.listener.own_lines();
        let use_ = Use { cache_status: HIT, now_ms, connection, own_lines };
        stored.write_head(output, &use_);
        write::end(output);
        let with_body = head.method == Method::Get && stored.body_bytes > 0;
        let body_bytes = if with_body { stored.body_bytes } else { 0 };
        let head_end = output.len();
        let separate = with_body && stored.body_bytes > COALESCE_BYTES_MAX as u64;
        if with_body && !separate {
            for piece in stored.pieces.iter() {
                output.extend_from_slice(piece);
            }
        }
        let log = self.worker.io.log.takes_hit();
        if separate {
            let logged = log.then(|| {
                let response_head = output[before..].to_vec();
                Box::new(Logged { request: head.detach(), response_head, keep })
            });
            return Answered::Head { large: LargeHit { stored, since: time::now(), logged }, keep };
        }
        count_hit(&self.worker.io, stored.status(), 0);
        if log {
            let hit = LoggedHit {
                status: stored.status(),
                response_head: &output[before..head_end],
                content_type: stored.head.content_type(),
                body_bytes,
                elapsed_us: 0,
                keep,
                broken: None,
            };
            hit.log(self.worker, self.from, head, self.now_ms);
        }
        Answered::Whole { keep }
    }

    #[cold]
    fn refuse(&self, reject: &http1::Reject, received: u64, output: &mut Vec<u8>) {
        let before = output.len();
        let refusal = Refusal::Malformed(*reject);
        append_refusal(output, refusal);
        self.from.refused(&self.worker.io, refusal, received, &output[before..], self.now_ms);
    }
}
