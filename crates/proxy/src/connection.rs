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
//! A silent connection is this small future, its slot in the table and its socket: no buffer. A
//! *turn* reads into the core's own buffer, answers every request in it that the store can answer
//! at once, and sends what it gathered with one call; it never waits. What must wait (a miss, a
//! body, a client that does not take our bytes) goes on in a future of its own on the heap, which
//! is gone when the exchange is over.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use http1::{Method, OwnedRequest, RequestHead};
use runtime::time::{self, Instant, Sleep};
use store::Key;

use crate::arrival::Arrived;
use crate::client::{Client, append_error, end, linger};
use crate::exchange;
use crate::limits::COALESCE_BYTES_MAX;
use crate::request::{Class, connection_of, destination, hints, wants_more};
use crate::site::Door;
use crate::told::refused_line;
use crate::worker::Worker;
use access_log::Record;
use cache::Look;
use cache::Lookup;
use cache::stored::{Connection, Stored, Use, Wire};
use config::Role;
use core_io::Buffers;
use outcome::Outcome;
use outcome::Refusal;
use transport::Transport;

/// The `Cache-Status` of a hit (RFC 9211).
const HIT: &[u8] = b"plimsoll; hit";

/// Serves one connection to its end.
///
/// No `async fn`, which would hold its arguments twice, at every silent connection's cost.
pub fn serve(
    worker: Rc<Worker>,
    door: Rc<Door>,
    stream: Transport,
    peer: SocketAddr,
) -> impl Future<Output = ()> {
    let mut arrived = Arrived { stream, peer, told_to: None };
    async move {
        let waker = std::future::poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let Some(slot) = worker.enter(waker) else {
            worker.counters.connections_refused.add(1);
            worker.make_room();
            return;
        };
        let slot = Slot { worker, slot };
        if let Some(gate) = &door.gate {
            match Box::pin(gate.pass(&slot.worker, &door, arrived)).await {
                Some(passed) => arrived = passed,
                None => return,
            }
        }
        converse(&slot.worker, &door, &arrived).await;
        if let Transport::Tls(_) = &arrived.stream {
            Box::pin(end(&slot.worker, &arrived.stream)).await;
        }
    }
}

/// Requests and their answers, until one side ends. No `async fn`, as with [`serve`].
fn converse(worker: &Rc<Worker>, door: &Rc<Door>, arrived: &Arrived) -> impl Future<Output = ()> {
    let mut kept = Kept::default();
    let mut idle = Idle::new(worker);
    async move {
        loop {
            // Bytes of a further request may be here already, behind one that had to wait.
            let more = std::mem::take(&mut kept.unparsed);
            if !more && !kept.is_empty() {
                worker.counters.states.reading.add(1);
            }
            let readable = more || idle.readable(worker, &arrived.stream, &kept).await;
            if !more && !kept.is_empty() {
                worker.counters.states.reading.sub(1);
            }
            if !readable {
                if worker.closes_silent() && kept.is_empty() {
                    // A request may be on its way: its sender is to see an end and not a reset.
                    Box::pin(linger(worker, &arrived.stream)).await;
                }
                return;
            }
            match turn(worker, door, &arrived.stream, arrived.peer, &mut kept, !more) {
                Next::Wait => {}
                Next::Close => return,
                Next::Finish(finish) => {
                    if !Box::pin(finish.run(worker, door, &arrived.stream, arrived.peer)).await {
                        return;
                    }
                }
                Next::Exchange(request) => {
                    let request = *request;
                    let serving = exchange::run::serve(worker, door, arrived, request);
                    match Box::pin(serving).await {
                        None => return,
                        Some(rest) => kept.put(rest),
                    }
                }
            }
            if !kept.same_head {
                idle.touch();
            }
        }
    }
}

/// Leaves the table when the connection's future goes, however it goes.
struct Slot {
    worker: Rc<Worker>,
    slot: readiness::Token,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.worker.leave(self.slot);
    }
}

/// Bytes read and not used: none, in a connection that is silent between requests.
#[derive(Default)]
struct Kept {
    /// Boxed, so that a silent connection pays one word for it.
    #[allow(clippy::box_collection)]
    bytes: Option<Box<Vec<u8>>>,
    /// They may hold a whole request.
    unparsed: bool,
    /// They begin with the head that was waited for already: its time runs on.
    same_head: bool,
}

impl Kept {
    fn put(&mut self, bytes: Vec<u8>) {
        self.same_head = false;
        self.unparsed = !bytes.is_empty();
        self.bytes = (!bytes.is_empty()).then(|| Box::new(bytes));
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_none()
    }
}

/// The waiting of a connection between requests, and its time-out. The timer is not moved at each
/// request: when it fires too early, it is set again.
struct Idle {
    since: Instant,
    timer: Sleep,
}

impl Idle {
    fn new(worker: &Worker) -> Idle {
        let since = time::now();
        Idle { since, timer: time::sleep_until(since + worker.limits().limits.idle_keep_alive) }
    }

    fn touch(&mut self) {
        self.since = time::now();
    }

    /// False when the connection is to be closed.
    ///
    /// No `async fn`: it would hold its arguments a second time, and all of it is read at each
    /// request of a connection that was silent.
    fn readable(
        &mut self,
        worker: &Worker,
        stream: &Transport,
        kept: &Kept,
    ) -> impl Future<Output = bool> {
        let limit = if kept.is_empty() {
            worker.limits().limits.idle_keep_alive
        } else {
            worker.limits().limits.head_timeout
        };
        let deadline = self.since + limit;
        if deadline < self.timer.deadline() {
            self.timer.reset(deadline);
        }
        std::future::poll_fn(move |cx| self.poll_readable(cx, worker, stream, kept, deadline))
    }

    fn poll_readable(
        &mut self,
        cx: &mut Context<'_>,
        worker: &Worker,
        stream: &Transport,
        kept: &Kept,
        deadline: Instant,
    ) -> Poll<bool> {
        if let Poll::Ready(result) = stream.poll_readable(cx) {
            return Poll::Ready(result.is_ok());
        }
        if worker.closes_silent() && kept.is_empty() {
            // A request that has come is answered, also when nobody has told us of it yet.
            let has_come = stream.try_peek(&mut [0]).is_ok_and(|bytes| bytes > 0);
            return Poll::Ready(has_come);
        }
        if kept.is_empty() && worker.takes_room_of(self.since) {
            return Poll::Ready(false);
        }
        // A connection stays with its task, so a timer that stands would wake the right one.
        while !self.timer.is_armed() && Pin::new(&mut self.timer).poll(cx).is_ready() {
            if time::now() >= deadline {
                if !kept.is_empty() {
                    worker.counters.timeouts.add(1);
                }
                return Poll::Ready(false);
            }
            self.timer.reset(deadline);
        }
        Poll::Pending
    }
}

/// What follows a turn.
enum Next {
    /// Wait for the client.
    Wait,
    /// The connection is done for.
    Close,
    /// The client does not take our bytes as fast as we have them, or it is to be closed with care.
    Finish(Box<Finish>),
    /// A request that the store cannot answer at once.
    Exchange(Box<exchange::run::Incoming>),
}

/// Bytes that are still to be sent.
struct Finish {
    unsent: Vec<u8>,
    body: Option<(Large, u64)>,
    close: Close,
}

/// A hit whose body is sent from where it lies. It may take its time, so its line in the log, if
/// there is a log, waits for its end.
struct Large {
    stored: Arc<Stored>,
    since: Instant,
    logged: Option<Box<Logged>>,
}

/// What the line of a large hit needs, and its turn no longer has.
struct Logged {
    request: OwnedRequest,
    response_head: Vec<u8>,
    keep: bool,
}

impl Large {
    /// Counts and logs it, once, whether or not all of it was taken.
    fn ended(&self, worker: &Worker, from: (&Door, &Transport), peer: SocketAddr) {
        let counters = &worker.counters;
        counters.requests.add(1);
        counters.hits.add(1);
        let elapsed_us = self.since.elapsed().as_micros() as u64;
        counters.latency.count(Outcome::Hit, self.stored.status(), elapsed_us);
        let Some(logged) = &self.logged else { return };
        let hit = Hit {
            status: self.stored.status(),
            response_head: &logged.response_head,
            content_type: self.stored.head.content_type(),
            body_bytes: self.stored.body_bytes,
            elapsed_us,
            keep: logged.keep,
        };
        hit.log(worker, from, peer, &logged.request.head(), time::wall_ms());
    }
}

/// What the log says of a hit.
struct Hit<'s> {
    status: u16,
    response_head: &'s [u8],
    content_type: &'s [u8],
    body_bytes: u64,
    elapsed_us: u64,
    keep: bool,
}

impl Hit<'_> {
    fn log(
        &self,
        worker: &Worker,
        (door, stream): (&Door, &Transport),
        peer: SocketAddr,
        head: &RequestHead<'_>,
        now_ms: u64,
    ) {
        worker.counters.log_lines.add(1);
        worker.log.record(&Record {
            end_wall_ms: now_ms,
            elapsed_us: self.elapsed_us,
            client: peer,
            listener: door.address,
            scheme: door.scheme,
            request: Some(*head),
            request_bytes: head.head_bytes as u64,
            outcome: Outcome::Hit,
            status: self.status,
            response_head: self.response_head,
            content_type: self.content_type,
            bytes: self.response_head.len() as u64 + self.body_bytes,
            body_bytes: self.body_bytes,
            upstream: None,
            user: b"",
            keep: self.keep,
            rule: "",
            tls: stream.tls(),
        });
    }
}

/// What becomes of the connection then.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Close {
    No,
    Now,
    /// So that the client reads our refusal before it learns of the close (RFC 9112, 9.6).
    Linger,
}

impl Finish {
    /// True when the connection goes on.
    async fn run(self, worker: &Worker, door: &Door, stream: &Transport, peer: SocketAddr) -> bool {
        let _finishing = worker.counters.states.finishing.while_here();
        let mut client = Client::new(worker, stream);
        let mut sent = client.send(&self.unsent).await;
        if let Some((large, from)) = &self.body {
            if sent.is_ok() {
                sent = client.send_pieces(&large.stored.pieces, *from).await;
            }
            large.ended(worker, (door, stream), peer);
        }
        if sent.is_err() {
            return false;
        }
        if self.close == Close::Linger {
            linger(worker, stream).await;
        }
        self.close == Close::No
    }
}

/// One turn: see the module's text.
fn turn(
    worker: &Worker,
    door: &Door,
    stream: &Transport,
    peer: SocketAddr,
    kept: &mut Kept,
    read: bool,
) -> Next {
    worker.with_buffers(|buffers| {
        let Buffers { input, output } = buffers;
        let mut filled = 0;
        kept.same_head = kept.bytes.is_some();
        if let Some(bytes) = kept.bytes.take() {
            filled = bytes.len();
            input[..filled].copy_from_slice(&bytes);
        }
        // With bytes of a whole request at hand the client's end may have been closed already:
        // what it asked before is answered all the same.
        if read && filled < input.len() {
            match stream.try_read(&mut input[filled..]) {
                Ok(0) => return Next::Close,
                Ok(n) => {
                    worker.counters.bytes_received.add(n as u64);
                    filled += n;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Next::Close,
            }
        }
        output.clear();
        let turn = Turn { worker, door, stream, peer, now_ms: time::wall_ms() };
        turn.run(&input[..filled], output, kept)
    })
}

/// What one turn needs at hand.
struct Turn<'w> {
    worker: &'w Worker,
    door: &'w Door,
    stream: &'w Transport,
    peer: SocketAddr,
    now_ms: u64,
}

/// What became of one request within a turn.
enum Did {
    /// Its answer is in the output. The connection goes on, or not.
    Answered { keep: bool },
    /// The same, and this body follows the output.
    Body { large: Large, keep: bool },
    /// It must wait.
    Slow(OwnedRequest),
}

impl Turn<'_> {
    fn run(&self, mut input: &[u8], output: &mut Vec<u8>, kept: &mut Kept) -> Next {
        loop {
            if input.is_empty() {
                return self.flush(output, None, Close::No);
            }
            let parsed = self.worker.with_scratch(|scratch| {
                match http1::parse_request(input, scratch, &self.worker.limits().http) {
                    Ok(None) => Ok(None),
                    Ok(Some(head)) => Ok(Some((self.answer(&head, output), head.head_bytes))),
                    Err(reject) => Err(reject),
                }
            });
            match parsed {
                Ok(None) => {
                    kept.bytes = Some(Box::new(input.to_vec()));
                    return self.flush(output, None, Close::No);
                }
                Err(reject) => {
                    self.refuse(&reject, input.len() as u64, output);
                    return self.flush(output, None, Close::Linger);
                }
                Ok(Some((did, used))) => {
                    kept.same_head = false;
                    input = &input[used..];
                    match did {
                        Did::Answered { keep: true }
                            if output.len() < self.worker.output_bytes_max() => {}
                        Did::Answered { keep } => {
                            kept.put(input.to_vec());
                            return self.flush(output, None, self.close_unless(keep, input));
                        }
                        Did::Body { large, keep } => {
                            kept.put(input.to_vec());
                            return self.flush(output, Some(large), self.close_unless(keep, input));
                        }
                        Did::Slow(head) => return self.hand_over(head, input, output),
                    }
                }
            }
        }
    }

    /// How to close after an answer that said so: bytes that nobody reads would turn the close into
    /// a reset, which overtakes the answer.
    fn close_unless(&self, keep: bool, rest: &[u8]) -> Close {
        match keep {
            true => Close::No,
            false if rest.is_empty() && !self.stream.has_unread_event() => Close::Now,
            false => Close::Linger,
        }
    }

    /// Sends what the turn has gathered. Whatever the client does not take is left to [`Finish`].
    fn flush(&self, output: &[u8], body: Option<Large>, close: Close) -> Next {
        let sent = match &body {
            None if output.is_empty() => Ok(0),
            None => self.stream.try_write(output),
            Some(Large { stored, .. }) => {
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
                // The client has gone; it had asked all the same.
                if let Some(large) = body {
                    large.ended(self.worker, (self.door, self.stream), self.peer);
                }
                return Next::Close;
            }
        };
        self.worker.counters.bytes_sent.add(sent);
        let head_bytes = output.len() as u64;
        let body_bytes = body.as_ref().map_or(0, |large| large.stored.body_bytes);
        if sent == head_bytes + body_bytes && self.stream.is_flushed() {
            if let Some(large) = body {
                large.ended(self.worker, (self.door, self.stream), self.peer);
            }
            return match close {
                Close::No => Next::Wait,
                Close::Now => Next::Close,
                Close::Linger => {
                    Next::Finish(Box::new(Finish { unsent: Vec::new(), body: None, close }))
                }
            };
        }
        let unsent = output.get(sent as usize..).unwrap_or_default().to_vec();
        let body = body.map(|large| (large, sent.saturating_sub(head_bytes)));
        Next::Finish(Box::new(Finish { unsent, body, close }))
    }

    /// A request that must wait: what was answered before it is sent first.
    fn hand_over(&self, head: OwnedRequest, rest: &[u8], output: &[u8]) -> Next {
        let unsent = match self.flush(output, None, Close::No) {
            Next::Finish(finish) => finish.unsent,
            Next::Close => return Next::Close,
            Next::Wait | Next::Exchange(_) => Vec::new(),
        };
        Next::Exchange(Box::new(exchange::run::Incoming { head, rest: rest.to_vec(), unsent }))
    }

    /// Answers a request at once, or says that it must wait.
    #[inline]
    fn answer(&self, head: &RequestHead<'_>, output: &mut Vec<u8>) -> Did {
        let found = at_once(self.worker, self.door, self.peer.ip(), head, Look::Use, self.now_ms);
        let Some((stored, key)) = found else { return Did::Slow(head.detach()) };
        self.worker.sizing.hit(key, &stored);
        self.hit(head, stored, output)
    }

    #[inline]
    fn hit(&self, head: &RequestHead<'_>, stored: Arc<Stored>, output: &mut Vec<u8>) -> Did {
        let keep = wants_more(self.door.role, head) && !self.worker.is_draining();
        let connection = connection_of(head.version, keep);
        let before = output.len();
        let now_ms = Some(self.now_ms);
        let use_ = Use { cache_status: HIT, now_ms, connection, own_lines: b"" };
        stored.append_head(output, &use_);
        let with_body = head.method == Method::Get && stored.body_bytes > 0;
        let body_bytes = if with_body { stored.body_bytes } else { 0 };
        let head_end = output.len();
        let separate = with_body && stored.body_bytes > COALESCE_BYTES_MAX as u64;
        if with_body && !separate {
            for piece in stored.pieces.iter() {
                output.extend_from_slice(piece);
            }
        }
        let log = self.worker.log.is_on();
        if separate {
            let logged = log.then(|| {
                let response_head = output[before..].to_vec();
                Box::new(Logged { request: head.detach(), response_head, keep })
            });
            return Did::Body { large: Large { stored, since: time::now(), logged }, keep };
        }
        let counters = &self.worker.counters;
        counters.requests.add(1);
        counters.hits.add(1);
        counters.latency.count(Outcome::Hit, stored.status(), 0);
        if log {
            let hit = Hit {
                status: stored.status(),
                response_head: &output[before..head_end],
                content_type: stored.head.content_type(),
                body_bytes,
                elapsed_us: 0,
                keep,
            };
            hit.log(self.worker, (self.door, self.stream), self.peer, head, self.now_ms);
        }
        Did::Answered { keep }
    }

    #[cold]
    fn refuse(&self, reject: &http1::Reject, received: u64, output: &mut Vec<u8>) {
        let before = output.len();
        let refusal = Refusal::Malformed(*reject);
        let lines = refused_line(refusal);
        let (status, text) = (refusal.status(), refusal.text());
        append_error(output, status, text, &lines, Connection::Close, true);
        self.worker.count_refusal(refusal);
        let counters = &self.worker.counters;
        counters.requests.add(1);
        counters.client_errors.add(1);
        counters.latency.count(Outcome::Refused, refusal.status(), 0);
        if self.worker.log.is_on() {
            counters.log_lines.add(1);
            let response = &output[before..];
            let (peer, listener) = (self.peer, self.door.logged());
            let record = Record::of_none(peer, listener, refusal, received, response, self.now_ms);
            self.worker.log.record(&Record { tls: self.stream.tls(), ..record });
        }
    }
}

/// The stored response that answers a request as it stands: plain, fresh and for anybody who may
/// ask here. For all others there is the long way.
#[inline]
pub(crate) fn at_once(
    worker: &Worker,
    door: &Door,
    peer: IpAddr,
    head: &RequestHead<'_>,
    look: Look,
    now_ms: u64,
) -> Option<(Arc<Stored>, Key)> {
    let site = worker.site();
    if Class::of(head, door.role, &site.via, &site.config.upgrades) != Class::Cacheable {
        return None;
    }
    let asked = destination(door, head)?;
    let barred = match door.role {
        Role::Reverse => site.routes.bars(asked.authority, asked.path),
        Role::Forward => !site.forward.admits_hit(peer, asked.authority),
    };
    if barred {
        return None;
    }
    let wire = Wire(head.fields);
    let uri = worker.shared.uri_key(asked.realm, asked.authority, asked.path);
    let Lookup::Found(stored, key) = worker.shared.look(look, uri, &wire, now_ms) else {
        return None;
    };
    let is_here = stored.away.is_none();
    (is_here && hints(head).is_plain() && stored.is_fresh(now_ms)).then_some((stored, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn future_bytes<A, B, C, D, F>(_: fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    /// A silent connection is this future: whatever is added to it, ten thousand of them pay.
    #[test]
    fn a_silent_connection_is_small() {
        let bytes = future_bytes(serve);
        assert!(bytes <= 248, "{bytes}");
    }
}
