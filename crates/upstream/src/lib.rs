//! Upstream connections: a pool for each address on each core, and one exchange on one of them.
//!
//! A request goes to a [`Group`] of servers, which says who gets it and when ([`group`],
//! [`balance`], [`queue`], [`health`]), or to the addresses that a client named. One that got no
//! answer goes to another server if it may be repeated, within the group's [`budget`].
//!
//! A pooled connection is used again unless something unexpected has arrived on it, which the core
//! knows without asking. The origin may still close it in the same moment; then a request that may
//! be repeated is, once, on a connection of its own. An answer is read up to the end of its head;
//! what lies behind that is kept with it, and the body is pulled piece by piece.

#![forbid(unsafe_code)]

mod balance;
mod budget;
pub mod dial;
pub mod figures;
pub mod group;
pub mod health;
mod limits;
mod pool;
mod preface;
mod queue;
mod server;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http1::{BodyDecoder, BodyKind, Method, Name, OwnedResponse, ResponseHead, write};
use runtime::net::TcpStream;
use runtime::time::{self, Instant};

use self::dial::dial;
use self::group::{Group, Ticket};
use self::pool::Pool;
pub use self::preface::Preface;
use self::server::Tried;
use config::limits::Limits;
use core_io::CoreIo;
use core_io::limits::ROOM_PAUSE;

use crate::limits::ROOM_TRIES;
use config::Timeouts;
use outcome::Fault;
use transport::Transport;
use transport::tls::{self, TlsPeer};

/// What one core needs to work with upstream servers.
#[derive(Debug)]
pub struct Upstreams {
    io: Rc<CoreIo>,
    pool: Pool,
}

impl Upstreams {
    /// Without connections yet.
    pub fn new(io: &Rc<CoreIo>) -> Rc<Upstreams> {
        Rc::new(Upstreams { io: Rc::clone(io), pool: Pool::default() })
    }

    /// Closes what has been idle for too long.
    pub fn sweep(&self) {
        self.pool.sweep(self);
    }

    /// Closes idle connections, upstreams' and clients', for there is no descriptor left.
    pub fn make_room(&self) {
        self.pool.close_idle(self);
        self.io.make_room();
    }
}

/// A connection in use.
#[derive(Debug)]
pub struct Upstream {
    /// Shared with the body that may still be on its way.
    pub stream: Rc<Transport>,
    /// Of the server.
    pub address: SocketAddr,
    tls: Option<Arc<TlsPeer>>,
    /// How long it may take.
    pub times: Times,
    reused: bool,
    /// It began with a header that tells of one client, and is that client's.
    is_private: bool,
    /// For a server of a group.
    ticket: Option<Ticket>,
}

/// Whom a request goes to.
#[derive(Clone, Debug)]
pub enum To {
    /// A server of a group; the number says which requests belong together. What the connection
    /// begins with is for this request alone.
    Group(Arc<Group>, u64, Option<Preface>),
    /// One who is at these addresses.
    Addresses(Arc<[SocketAddr]>, Option<Arc<TlsPeer>>),
}

/// How long an upstream may take.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    connect: Duration,
    first_byte: Duration,
    idle: Duration,
    /// All must be over then.
    deadline: Option<Instant>,
}

impl Times {
    fn of(timeouts: &Timeouts, limits: &Limits) -> Times {
        Times {
            connect: timeouts.connect.unwrap_or(limits.connect_timeout),
            first_byte: timeouts.first_byte.unwrap_or(limits.upstream_timeout),
            idle: timeouts.idle.unwrap_or(limits.upstream_timeout),
            deadline: timeouts.total.map(|total| time::now() + total),
        }
    }

    fn within(&self, limit: Duration) -> Duration {
        match self.deadline {
            None => limit,
            Some(deadline) => limit.min(deadline.since(time::now())),
        }
    }

    /// To make a connection.
    fn connect(&self) -> Duration {
        self.within(self.connect)
    }

    /// From the request's last byte to the head of the answer.
    pub fn first_byte(&self) -> Duration {
        self.within(self.first_byte)
    }

    /// Between two pieces.
    pub fn idle(&self) -> Duration {
        self.within(self.idle)
    }
}

impl Upstream {
    /// The request has failed, and it was not the client's doing.
    pub fn failed(&self, fault: Fault) {
        if let Some(ticket) = &self.ticket
            && fault.is_of_the_server()
        {
            ticket.failed();
        }
    }
}

/// The final head of a response, and the way to its body.
#[derive(Debug)]
pub struct Answer {
    /// The final head.
    pub head: OwnedResponse,
    /// What follows it.
    pub body: UpstreamBody,
    /// Unix milliseconds when the request was sent.
    pub request_ms: u64,
    /// Unix milliseconds when the head was complete.
    pub response_ms: u64,
}

/// A request that is to be sent as it is.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'r> {
    /// Its head, and its body if it has one.
    pub bytes: &'r [u8],
    /// Its method, which says how the answer is framed.
    pub method: Method,
    /// It may be sent a second time (RFC 9110, 9.2.2).
    pub repeatable: bool,
}

/// Sends a request that is whole and reads the final head. Interim responses go to `interim`.
pub async fn exchange(
    core: &Upstreams,
    to: &To,
    outgoing: Outgoing<'_>,
    interim: &mut dyn FnMut(&[u8]),
) -> Result<Answer, Fault> {
    let mut attempts = Attempts::new(core, to);
    // What may not be repeated is not sent where the upstream may be closing already.
    let mut fresh_only = !outgoing.repeatable;
    loop {
        let upstream = attempts.connect(core, fresh_only).await?;
        let Unanswered { fault, silent, stale, at } =
            match exchange_on(core, upstream, outgoing, interim).await {
                Ok(answer) => return Ok(answer),
                Err(unanswered) => unanswered,
            };
        // An answer that takes too long may still be on its way: asking twice would be twice the
        // work for a server that has too much already.
        let may_repeat = outgoing.repeatable && silent && fault == Fault::Broken;
        // The upstream had closed the connection before it saw the request.
        let goes_on = may_repeat && (stale || attempts.may_go_on(at));
        if !goes_on {
            return Err(fault);
        }
        core.io.counters.upstream_retries.add(1);
        fresh_only = true;
    }
}

/// Why an exchange has no answer.
#[derive(Debug)]
struct Unanswered {
    fault: Fault,
    /// Not one byte of an answer had come.
    silent: bool,
    /// On a connection that had been used before, which tells nothing of the server.
    stale: bool,
    /// The server's place in its group.
    at: Option<usize>,
}

impl Unanswered {
    fn by(upstream: &Upstream, fault: Fault, silent: bool) -> Unanswered {
        let stale = upstream.reused && silent && fault == Fault::Broken;
        if !stale {
            upstream.failed(fault);
        }
        Unanswered { fault, silent, stale, at: upstream.ticket.as_ref().map(Ticket::at) }
    }
}

async fn exchange_on(
    core: &Upstreams,
    upstream: Upstream,
    outgoing: Outgoing<'_>,
    interim: &mut dyn FnMut(&[u8]),
) -> Result<Answer, Unanswered> {
    let request_ms = time::wall_ms();
    if let Err(fault) = send(core, &upstream.stream, &upstream.times, outgoing.bytes).await {
        return Err(Unanswered::by(&upstream, fault, true));
    }
    let mut reading = Reading::default();
    let head = final_head(core, &upstream, &mut reading, interim);
    let result = match time::timeout(upstream.times.first_byte(), head).await {
        Ok(result) => result,
        Err(_) => Err(Fault::Timeout),
    };
    match result {
        Ok(head) => Ok(answer(core, upstream, head, reading, outgoing.method, request_ms)),
        Err(fault) => Err(Unanswered::by(&upstream, fault, !reading.any)),
    }
}

/// Builds the answer once its head has been read.
pub fn answer(
    core: &Upstreams,
    upstream: Upstream,
    head: OwnedResponse,
    reading: Reading,
    method: Method,
    request_ms: u64,
) -> Answer {
    let view = head.head();
    if let Some(ticket) = &upstream.ticket {
        ticket.answered(view.status);
    }
    let kind = match view.body(method) {
        Ok(kind) => kind,
        Err(_) => BodyKind::UntilClose,
    };
    let reusable = view.keep_alive() && kind != BodyKind::UntilClose && !upstream.is_private;
    let decoder = BodyDecoder::for_response(kind, &core.io.limits().http);
    let rest = reading.bytes;
    let body = UpstreamBody { upstream: Some(upstream), kind, decoder, rest, reusable };
    Answer { head, body, request_ms, response_ms: time::wall_ms() }
}

/// A connection for a request that cannot be sent whole. What it is for has seen nothing of it yet.
pub async fn connect(core: &Upstreams, to: &To) -> Result<Upstream, Fault> {
    Attempts::new(core, to).connect(core, true).await
}

/// The attempts of one request.
#[derive(Debug)]
struct Attempts<'t> {
    to: &'t To,
    times: Times,
    /// The servers that have failed it.
    tried: Tried,
}

impl Attempts<'_> {
    fn new<'t>(core: &Upstreams, to: &'t To) -> Attempts<'t> {
        let timeouts = match to {
            To::Group(group, ..) => {
                group.began();
                group.config.timeouts
            }
            To::Addresses(..) => Timeouts::default(),
        };
        Attempts {
            to,
            times: Times::of(&timeouts, &core.io.limits().limits),
            tried: Tried::default(),
        }
    }

    /// What its connection begins with.
    fn preface(&self) -> Option<&Preface> {
        match self.to {
            To::Group(_, _, preface) => preface.as_ref(),
            To::Addresses(..) => None,
        }
    }

    /// Whether another server may be asked, now that this one has failed.
    fn may_go_on(&mut self, failed: Option<usize>) -> bool {
        match (self.to, failed) {
            (To::Group(group, ..), Some(at)) => {
                self.tried.add(at);
                group.may_retry(self.tried.count())
            }
            _ => false,
        }
    }

    /// A connection, a pooled one or a new one. A server that cannot be connected to has seen
    /// nothing, so the next one is tried whatever the request is.
    async fn connect(&mut self, core: &Upstreams, fresh_only: bool) -> Result<Upstream, Fault> {
        let (group, key) = match self.to {
            To::Group(group, key, _) => (group, *key),
            To::Addresses(addresses, tls) => {
                return self.reach(core, addresses, tls.clone(), fresh_only, None).await;
            }
        };
        let mut before = None;
        loop {
            let ticket = match group.admit(key, self.tried).await {
                Ok(ticket) => ticket,
                // What went wrong first tells more than that there is nobody else.
                Err(Fault::NoServer) => return Err(before.unwrap_or(Fault::NoServer)),
                Err(fault) => return Err(fault),
            };
            let at = ticket.at();
            let addresses = ticket.addresses();
            let tls = ticket.tls();
            match self.reach(core, &addresses, tls, fresh_only, Some(ticket)).await {
                Ok(upstream) => return Ok(upstream),
                // With another server it would be the same.
                Err(Fault::NoDescriptor) => return Err(Fault::NoDescriptor),
                Err(fault) if !self.may_go_on(Some(at)) => return Err(fault),
                Err(fault) => {
                    core.io.counters.upstream_retries.add(1);
                    before = Some(fault);
                }
            }
        }
    }

    async fn reach(
        &self,
        core: &Upstreams,
        addresses: &[SocketAddr],
        tls: Option<Arc<TlsPeer>>,
        fresh_only: bool,
        ticket: Option<Ticket>,
    ) -> Result<Upstream, Fault> {
        let times = self.times;
        let preface = self.preface();
        let is_private = preface.is_some();
        if !fresh_only && !is_private {
            for &address in addresses {
                let line = (address, tls.clone());
                if let Some(stream) = core.pool.take(core, &line) {
                    ticket.iter().for_each(Ticket::reused);
                    let (reused, is_private) = (true, false);
                    return Ok(Upstream {
                        stream,
                        address,
                        tls,
                        times,
                        reused,
                        is_private,
                        ticket,
                    });
                }
            }
        }
        match open(core, addresses, preface, tls.as_deref(), times.connect()).await {
            Ok((stream, address)) => {
                core.io.counters.upstream_connects.add(1);
                ticket.iter().for_each(Ticket::connected);
                let (stream, reused) = (Rc::new(stream), false);
                Ok(Upstream { stream, address, tls, times, reused, is_private, ticket })
            }
            Err(fault) => {
                if fault.is_of_the_server() {
                    ticket.iter().for_each(Ticket::failed);
                }
                Err(fault)
            }
        }
    }
}

/// A new connection to one of these addresses; `limit` is for TCP, and again for TLS.
async fn open(
    core: &Upstreams,
    addresses: &[SocketAddr],
    preface: Option<&Preface>,
    tls: Option<&TlsPeer>,
    limit: Duration,
) -> Result<(Transport, SocketAddr), Fault> {
    let (stream, address) = dial_with_room(core, addresses, limit).await?;
    if let Some(preface) = preface {
        core.io.counters.upstream_bytes_sent.add(preface.bytes().len() as u64);
        let sent = time::timeout(limit, stream.write_all(preface.bytes())).await;
        sent.map_err(|_| Fault::Timeout)?.map_err(|_| Fault::Broken)?;
    }
    let Some(peer) = tls else { return Ok((Transport::Plain(stream), address)) };
    let connected = Box::pin(tls::connect(&core.io.tls, peer, stream, limit)).await;
    let counters = &core.io.counters;
    match &connected {
        Ok(stream) => {
            counters.upstream_tls_handshakes.add(1);
            counters.upstream_tls_resumptions.add(u64::from(stream.is_resumed()));
        }
        Err(_) => counters.upstream_tls_failures.add(1),
    }
    let stream = connected?;
    Ok((Transport::Tls(Box::new(stream)), address))
}

/// A connection of TCP. Where there is no descriptor for it, idle connections make room, as they do
/// for a client.
async fn dial_with_room(
    core: &Upstreams,
    addresses: &[SocketAddr],
    limit: Duration,
) -> Result<(TcpStream, SocketAddr), Fault> {
    for _ in 0..ROOM_TRIES {
        match dial(addresses, limit).await {
            Err(Fault::NoDescriptor) => {}
            done => return done,
        }
        core.make_room();
        time::sleep(ROOM_PAUSE).await;
    }
    dial(addresses, limit).await
}

/// Sends all of `bytes`, waiting no longer than the upstream's time-out for room.
pub async fn send(
    core: &Upstreams,
    stream: &Transport,
    times: &Times,
    bytes: &[u8],
) -> Result<(), Fault> {
    core.io.counters.upstream_bytes_sent.add(bytes.len() as u64);
    let mut sent = 0;
    loop {
        match stream.try_write(&bytes[sent..]) {
            Ok(n) => {
                sent += n;
                if sent < bytes.len() {
                    continue;
                }
                if stream.is_flushed() {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Fault::Broken),
        }
        match time::timeout(times.idle(), stream.writable()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(Fault::Broken),
            Err(_) => return Err(Fault::Timeout),
        }
    }
}

/// What has been read of an answer and not been used.
#[derive(Debug, Default)]
pub struct Reading {
    /// Bytes behind the last head that was read.
    pub bytes: Vec<u8>,
    any: bool,
    may_switch: bool,
}

impl Reading {
    /// Of an answer to a request for another protocol.
    pub fn that_may_switch() -> Reading {
        Reading { may_switch: true, ..Reading::default() }
    }
}

/// A head as it comes.
enum Step {
    More,
    Interim(Vec<u8>),
    Final(OwnedResponse),
}

/// Reads up to the end of the final head. What follows it is left in `reading`.
pub async fn final_head(
    core: &Upstreams,
    upstream: &Upstream,
    reading: &mut Reading,
    interim: &mut dyn FnMut(&[u8]),
) -> Result<OwnedResponse, Fault> {
    let mut interims = 0;
    loop {
        match next_head(core, upstream, reading).await? {
            NextHead::Final(head) => return Ok(head),
            NextHead::Interim(bytes) => {
                interims += 1;
                if interims > core.io.limits().limits.interim_max {
                    return Err(Fault::Malformed);
                }
                interim(&bytes);
            }
        }
    }
}

/// The next head of an answer.
pub enum NextHead {
    /// 1xx: its bytes, as the client is to see them.
    Interim(Vec<u8>),
    /// The final one.
    Final(OwnedResponse),
}

/// Reads one head, interim or final.
pub async fn next_head(
    core: &Upstreams,
    upstream: &Upstream,
    reading: &mut Reading,
) -> Result<NextHead, Fault> {
    if !reading.bytes.is_empty()
        && let Some(head) = parse(core, reading)?
    {
        return Ok(head);
    }
    loop {
        if upstream.stream.readable().await.is_err() {
            return Err(Fault::Broken);
        }
        let read = core.io.with_paced_input(|input| match upstream.stream.try_read(input) {
            Ok(0) => Err(Fault::Broken),
            Ok(n) => {
                reading.bytes.extend_from_slice(&input[..n]);
                Ok(n)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(tls::fault_of_read(&error)),
        })?;
        if read == 0 {
            continue;
        }
        reading.any = true;
        core.io.counters.upstream_bytes_received.add(read as u64);
        if let Some(head) = parse(core, reading)? {
            return Ok(head);
        }
    }
}

fn parse(core: &Upstreams, reading: &mut Reading) -> Result<Option<NextHead>, Fault> {
    let (step, used) = core.io.with_scratch(|scratch| {
        match http1::parse_response(&reading.bytes, scratch, &core.io.limits().http) {
            Err(reject) => {
                tracing::debug!(%reject, "malformed response");
                Err(Fault::Malformed)
            }
            Ok(None) => Ok((Step::More, 0)),
            Ok(Some(head)) if head.is_interim() => {
                Ok((Step::Interim(interim_bytes(&head)), head.head_bytes))
            }
            // Another protocol comes only to those who have asked for one.
            Ok(Some(head)) if head.status == 101 && !reading.may_switch => Err(Fault::Malformed),
            Ok(Some(head)) => Ok((Step::Final(head.detach()), head.head_bytes)),
        }
    })?;
    let next = match step {
        Step::More => return Ok(None),
        Step::Interim(bytes) => NextHead::Interim(bytes),
        Step::Final(head) => NextHead::Final(head),
    };
    reading.bytes.drain(..used);
    Ok(Some(next))
}

/// An interim response, without what was for this hop alone. It has no content, and a client that
/// believed the length that some origins send with it would take the final response for that
/// (RFC 9110, 8.6).
fn interim_bytes(head: &ResponseHead<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(head.head_bytes);
    write::status_line(&mut out, head.status);
    for field in head.fields.end_to_end() {
        if field.id() != Name::ContentLength {
            write::parsed_field(&mut out, field);
        }
    }
    write::end(&mut out);
    out
}

/// The body of an answer. Dropped before its end, it closes the connection.
#[derive(Debug)]
pub struct UpstreamBody {
    upstream: Option<Upstream>,
    /// How its end is marked.
    pub kind: BodyKind,
    decoder: BodyDecoder,
    /// Read together with the head.
    rest: Vec<u8>,
    reusable: bool,
}

impl UpstreamBody {
    /// The connection is not to be used again, however the body ends.
    pub fn close_after(&mut self) {
        self.reusable = false;
    }

    /// The address it comes from.
    pub fn address(&self) -> Option<SocketAddr> {
        self.upstream.as_ref().map(|upstream| upstream.address)
    }

    /// Gives `sink` the content that is there already, without waiting. True when the body is
    /// complete; then the connection has gone back to the pool.
    pub fn take_ready(
        &mut self,
        core: &Upstreams,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, Fault> {
        let rest = std::mem::take(&mut self.rest);
        self.decode(core, &rest, sink)
    }

    /// Waits for content and gives it to `sink`. True when the body is complete.
    pub async fn pull(
        &mut self,
        core: &Upstreams,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, Fault> {
        let pulled = self.pull_on(core, sink).await;
        if let (Err(fault), Some(upstream)) = (&pulled, &self.upstream) {
            upstream.failed(*fault);
        }
        pulled
    }

    async fn pull_on(
        &mut self,
        core: &Upstreams,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, Fault> {
        let Some(upstream) = &self.upstream else { return Ok(true) };
        match time::timeout(upstream.times.idle(), upstream.stream.readable()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(Fault::Broken),
            Err(_) => return Err(Fault::Timeout),
        }
        core.io.with_paced_input(|input| {
            let Some(upstream) = &self.upstream else { return Ok(true) };
            match upstream.stream.try_read(input) {
                Ok(0) => {
                    self.reusable = false;
                    self.decoder.finish_on_close().map_err(|_| Fault::Broken)?;
                    self.upstream = None;
                    Ok(true)
                }
                Ok(n) => {
                    core.io.counters.upstream_bytes_received.add(n as u64);
                    self.decode(core, &input[..n], sink)
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
                Err(_) => Err(Fault::Broken),
            }
        })
    }

    fn decode(
        &mut self,
        core: &Upstreams,
        input: &[u8],
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, Fault> {
        let mut at = 0;
        while !self.decoder.is_done() && at < input.len() {
            let step = self.decoder.decode(&input[at..]).map_err(|_| Fault::Malformed)?;
            if !step.data.is_empty() {
                sink(&input[at..][step.data.clone()]);
            }
            at += step.consumed;
        }
        if !self.decoder.is_done() {
            return Ok(false);
        }
        // Bytes behind the end belong to nothing that was asked for.
        if let Some(upstream) = self.upstream.take()
            && self.reusable
            && (at == input.len() || planted::is(planted::Bug::BytesLeftOnPooled))
        {
            core.pool.put(core, upstream);
        }
        Ok(true)
    }

    /// The body's length if the head told it.
    pub fn length(&self) -> Option<u64> {
        match self.kind {
            BodyKind::None => Some(0),
            BodyKind::Length(length) => Some(length),
            BodyKind::Chunked | BodyKind::UntilClose => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interim_response_announces_no_content() {
        for framing in ["Content-Length: 45", "Transfer-Encoding: chunked"] {
            let told = format!("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n{framing}\r\n\r\n");
            let mut scratch = http1::Scratch::new();
            let head =
                http1::parse_response(told.as_bytes(), &mut scratch, &http1::Limits::DEFAULT);
            let passed_on = String::from_utf8(interim_bytes(&head.unwrap().unwrap())).unwrap();
            assert_eq!(passed_on, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        }
    }
}
