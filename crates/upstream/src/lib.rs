//! Upstream connections: a pool for each address on each core, and one exchange on one of them.
//!
//! A request goes to a [`Group`] of servers, which decides which server gets it and when
//! ([`group`], [`balance`], [`queue`], [`health`]), or to the addresses that a client named. A
//! request that got no answer goes to another server if it may be repeated, within the group's
//! [`budget`].
//!
//! A pooled connection is used again unless something unexpected has arrived on it, which the core
//! knows without a system call. The origin may still close it at the same moment; then a request
//! that may be repeated is repeated once, on a new connection.
//!
//! This is also the seam between an exchange and its upstream: the exchange gives a [`Request`] and
//! perhaps a body ([`BodyWriter`]), and takes an [`Answer`], whose body is pulled piece by piece.
//! It does not know which protocol the upstream speaks; `h1` is the first one.

#![forbid(unsafe_code)]

mod balance;
mod budget;
pub mod dial;
pub mod figures;
pub mod group;
mod h1;
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

use http1::ResponseHead;
use runtime::net::TcpStream;
use runtime::time::{self, Instant};

use self::dial::dial;
use self::group::{Group, Ticket};
pub use self::h1::{
    Answer, BodyLength, BodyWriter, NextHead, Reading, Request, UpstreamBody, answer, final_head,
    next_head,
};
use self::pool::Pool;
pub use self::preface::Preface;
use self::server::Tried;
use config::Timeouts;
use config::limits::Limits;
use core_io::CoreIo;
use core_io::limits::ROOM_PAUSE;
use outcome::Fault;
use transport::Transport;
use transport::tls::{self, TlsPeer};

use crate::limits::ROOM_TRIES;

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

    /// Closes connections that have been idle for too long.
    pub fn sweep(&self) {
        self.pool.sweep(self);
    }

    /// Closes idle connections to upstreams and clients, because no descriptor is free.
    pub fn make_room(&self) {
        self.pool.close_idle(self);
        self.io.make_room();
    }
}

/// A connection in use.
#[derive(Debug)]
pub struct Upstream {
    /// Shared with the body, which may still be arriving.
    pub stream: Rc<Transport>,
    /// The server's address.
    pub address: SocketAddr,
    tls: Option<Arc<TlsPeer>>,
    /// How long it may take.
    pub times: Times,
    reused: bool,
    /// It began with a header about one client, and serves that client only.
    is_private: bool,
    /// For a server of a group.
    ticket: Option<Ticket>,
}

/// Where a request goes.
#[derive(Clone, Debug)]
pub enum To {
    /// A server of a group. Requests with the same number belong together. The preface, with which
    /// the connection begins, is for this request only.
    Group(Arc<Group>, u64, Option<Preface>),
    /// A server at one of these addresses.
    Addresses(Arc<[SocketAddr]>, Option<Arc<TlsPeer>>),
}

/// How long an upstream may take.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    connect: Duration,
    first_byte: Duration,
    idle: Duration,
    /// Everything must be over by then.
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

    /// From the last byte of the request to the head of the answer.
    pub fn first_byte(&self) -> Duration {
        self.within(self.first_byte)
    }

    /// Between two pieces of a body.
    pub fn idle(&self) -> Duration {
        self.within(self.idle)
    }
}

impl Upstream {
    /// Reports that the request has failed.
    pub fn failed(&self, fault: Fault) {
        if let Some(ticket) = &self.ticket
            && fault.is_of_the_server()
        {
            ticket.failed();
        }
    }

    /// Sends the head of a request whose body follows, or none.
    pub async fn send_head(&self, core: &Upstreams, request: &Request) -> Result<(), Fault> {
        send(core, &self.stream, &self.times, request.bytes()).await
    }

    /// For the body of a request whose head was sent.
    pub fn body_writer(&self, length: BodyLength) -> BodyWriter {
        BodyWriter::new(Rc::clone(&self.stream), self.times, length)
    }
}

/// Sends a complete request and reads the final head of the answer. Interim responses go to
/// `interim`.
pub async fn exchange(
    core: &Upstreams,
    to: &To,
    request: &Request,
    interim: &mut dyn FnMut(&ResponseHead<'_>),
) -> Result<Answer, Fault> {
    let mut attempts = Attempts::new(core, to);
    // A request that must not be repeated is not sent where the upstream may be closing already.
    let mut fresh_only = !request.is_repeatable();
    loop {
        let upstream = attempts.connect(core, fresh_only).await?;
        let Unanswered { fault, silent, stale, at } =
            match exchange_on(core, upstream, request, interim).await {
                Ok(answer) => return Ok(answer),
                Err(unanswered) => unanswered,
            };
        // An answer that takes too long may still come: asking twice would double the work of a
        // server that has too much already.
        let may_repeat = request.is_repeatable() && silent && fault == Fault::Broken;
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
    /// On a connection that had been used before, which says nothing about the server.
    stale: bool,
    /// The server's index in its group.
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
    request: &Request,
    interim: &mut dyn FnMut(&ResponseHead<'_>),
) -> Result<Answer, Unanswered> {
    let request_ms = time::wall_ms();
    if let Err(fault) = upstream.send_head(core, request).await {
        return Err(Unanswered::by(&upstream, fault, true));
    }
    let mut reading = Reading::default();
    let head = final_head(core, &upstream, &mut reading, interim);
    let result = match time::timeout(upstream.times.first_byte(), head).await {
        Ok(result) => result,
        Err(_) => Err(Fault::Timeout),
    };
    match result {
        Ok(head) => Ok(answer(core, upstream, head, reading, request.method(), request_ms)),
        Err(fault) => Err(Unanswered::by(&upstream, fault, !reading.is_any())),
    }
}

/// A new connection for a request that is not complete yet.
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

    /// The bytes that its connection begins with.
    fn preface(&self) -> Option<&Preface> {
        match self.to {
            To::Group(_, _, preface) => preface.as_ref(),
            To::Addresses(..) => None,
        }
    }

    /// Whether another server may be asked after this one has failed.
    fn may_go_on(&mut self, failed: Option<usize>) -> bool {
        match (self.to, failed) {
            (To::Group(group, ..), Some(at)) => {
                self.tried.add(at);
                group.may_retry(self.tried.count())
            }
            _ => false,
        }
    }

    /// A pooled or a new connection. A server that cannot be connected to has seen nothing, so the
    /// next one is tried whatever the request is.
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
                // The first failure says more than that no server is left.
                Err(Fault::NoServer) => return Err(before.unwrap_or(Fault::NoServer)),
                Err(fault) => return Err(fault),
            };
            let at = ticket.at();
            let addresses = ticket.addresses();
            let tls = ticket.tls();
            match self.reach(core, &addresses, tls, fresh_only, Some(ticket)).await {
                Ok(upstream) => return Ok(upstream),
                // It would be the same with another server.
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
                    let reused = true;
                    let upstream =
                        Upstream { stream, address, tls, times, reused, is_private, ticket };
                    return Ok(upstream);
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

/// A TCP connection. If no descriptor is free, idle connections are closed, as they are for a
/// client.
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
