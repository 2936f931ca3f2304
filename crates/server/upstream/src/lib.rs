//! Upstream connections: a pool for each address on each core, and an exchange on a connection.
//!
//! A request goes to a [`Group`] of servers, or to the addresses that a client named. The group
//! decides which server gets the request and when ([`group`], [`balance`], [`queue`], [`health`]).
//! A request without an answer goes to another server if it may be repeated, within the group's
//! [`budget`].
//!
//! A pooled connection is used again unless something unexpected has arrived on the connection. The
//! core knows about such an arrival without a system call. The origin may still close the
//! connection at the same moment. In this case a request that may be repeated is repeated once, on
//! a new connection.
//!
//! This crate is also the seam between an exchange and its upstream. The exchange gives a
//! [`Request`] and perhaps a body ([`BodyWriter`]). It takes an [`Answer`], and pulls the body of
//! the answer piece by piece. The exchange does not know whether the upstream speaks HTTP/1 (`h1`)
//! or HTTP/2 (`h2`). Heads have the form of HTTP/1 in either case.

#![forbid(unsafe_code)]

mod balance;
mod budget;
pub mod control;
pub mod dial;
pub mod figures;
mod given;
pub mod group;
mod h1;
mod h2;
pub mod health;
mod limits;
mod look_up;
pub mod members;
mod orders;
pub mod peers;
mod pool;
mod preface;
pub mod queries;
mod queue;
pub mod registry;
mod server;
mod slots;
mod sticky;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http1::ResponseHead;
use runtime::net::TcpStream;
use runtime::time::{self, Instant};

use self::dial::dial;
use self::group::{Group, Ticket};
use self::h1::Sink;
pub use self::h1::{
    Answer, BodyLength, BodyWriter, HeadRead, NextHead, Reading, ReceivedHead, Request,
    UpstreamBody, answer, final_head, next_head,
};
use self::h2::{Link, Links, Place, Slot, Unprocessed};
pub use self::pool::Reuse;
use self::pool::{Line, Pool};
pub use self::preface::Preface;
use self::queries::Asker;
use self::server::Tried;
pub use self::sticky::Choice;
use config::limits::Limits;
use config::{Timeouts, UpstreamProtocol, UpstreamReuse};
use core_io::CoreIo;
use core_io::limits::ROOM_PAUSE;
use outcome::Fault;
use transport::Transport;
use transport::tls::{self, TlsPeer};

pub use crate::limits::INTERIM_READ_MAX;
use crate::limits::{RESENDS_MAX, ROOM_TRIES};

/// What one core needs to work with upstream servers.
#[derive(Debug)]
pub struct Upstreams {
    io: Rc<CoreIo>,
    pool: Pool,
    links: Links,
    scratch: Rc<RefCell<http2::Scratch>>,
    /// Queries to peers.
    pub asker: Asker,
}

impl Upstreams {
    /// Without connections yet.
    pub fn new(io: &Rc<CoreIo>) -> Rc<Upstreams> {
        Rc::new(Upstreams {
            io: Rc::clone(io),
            pool: Pool::default(),
            links: Links::default(),
            scratch: Rc::new(RefCell::new(http2::Scratch::new())),
            asker: Asker::default(),
        })
    }

    /// Closes connections that have been idle for too long.
    pub fn sweep(&self) {
        self.pool.sweep(self);
        self.links.sweep(&self.io);
    }

    /// Closes idle connections to upstreams and clients, because no descriptor is free.
    pub fn make_room(&self) {
        self.pool.close_idle(self);
        self.links.close_idle();
        self.io.make_room();
    }
}

/// A connection in use.
#[derive(Debug)]
pub struct Upstream {
    /// Shared with the body, which may still be arriving, and over HTTP/2 with other requests.
    pub stream: Rc<Transport>,
    /// The place on the connection, over HTTP/2.
    slot: Option<Rc<Slot>>,
    /// The server's address.
    pub address: SocketAddr,
    tls: Option<Arc<TlsPeer>>,
    /// How long the upstream may take.
    pub times: Times,
    reused: bool,
    /// Whether the connection has stayed open after an answer.
    is_proven: bool,
    /// Whether the connection began with a header about one client, and serves only that client.
    is_private: bool,
    /// The place at a server, if the server is in a group.
    ticket: Option<Ticket>,
}

/// Where a request goes.
#[derive(Clone, Debug)]
pub enum To {
    /// A server of a group. The preface, with which the connection begins, is for this request
    /// only. The time-outs, if there are any, take the place of those of the group.
    Group(Arc<Group>, Choice, Option<Preface>, Option<Arc<Timeouts>>),
    /// A server at one of these addresses.
    Addresses(Arc<[SocketAddr]>, Option<Arc<TlsPeer>>),
}

/// How long an upstream may take.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    connect: Duration,
    first_byte: Duration,
    idle: Duration,
    /// The instant by which everything must be over.
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

    /// The time limit for making a connection.
    fn connect(&self) -> Duration {
        self.within(self.connect)
    }

    /// The time limit from the last byte of the request to the head of the answer.
    pub fn first_byte(&self) -> Duration {
        self.within(self.first_byte)
    }

    /// The time limit between two pieces of a body.
    pub fn idle(&self) -> Duration {
        self.within(self.idle)
    }
}

impl Upstream {
    /// Reports that the request has failed.
    pub fn failed(&self, fault: Fault) {
        self.failed_after(fault, false);
    }

    /// `silent`: not one byte of an answer had come.
    fn failed_after(&self, fault: Fault, silent: bool) {
        let is_unreached = silent && fault == Fault::Broken;
        if let Some(ticket) = &self.ticket
            && fault.is_of_the_server()
            && (is_unreached || !ticket.is_proxy())
        {
            ticket.failed();
        }
        if let (Some(slot), Fault::Timeout) = (&self.slot, fault) {
            slot.timed_out(self.times.first_byte.min(self.times.idle));
        }
    }

    /// Whether a request failed because its connection, which had been used before, was closing.
    /// Such a failure says nothing about the server. `silent`: not one byte of an answer had come.
    pub fn is_stale(&self, fault: Fault, silent: bool) -> bool {
        // A stream that was reset is the server's answer.
        let is_lost = self.slot.as_ref().is_none_or(|slot| slot.is_lost());
        self.reused && is_lost && silent && fault == Fault::Broken
    }

    /// Whether the connection is for this request alone, so that it can become a tunnel.
    pub fn may_switch(&self) -> bool {
        self.slot.is_none()
    }

    /// Whether a request that has failed on this connection may be sent again because it was not
    /// processed. `resends` counts the times that it was sent again.
    pub fn may_resend(&self, resends: &mut u32) -> bool {
        let Some(why) = self.slot.as_ref().and_then(|slot| slot.unprocessed()) else {
            return false;
        };
        *resends += 1;
        let may =
            why == Unprocessed::Turnover || self.ticket.as_ref().is_some_and(Ticket::may_resend);
        may && *resends <= RESENDS_MAX
    }

    /// Sends the head of a request, with or without a body that follows.
    pub async fn send_head(&self, core: &Upstreams, request: &Request) -> Result<(), Fault> {
        request.note_sent();
        match &self.slot {
            Some(slot) => request.send_on(slot, &self.times).await,
            None => match self.ticket.as_ref().and_then(Ticket::login) {
                None => send(core, &self.stream, &self.times, request.bytes()).await,
                Some(login) => {
                    let request = request.with_lines(core.io.buffer(), None, login);
                    send(core, &self.stream, &self.times, request.bytes()).await
                }
            },
        }
    }

    /// A writer for the body of a request whose head was sent.
    pub fn body_writer(&self, length: BodyLength) -> BodyWriter {
        let sink = match (&self.slot, length) {
            (Some(slot), _) => Sink::Stream(Rc::clone(slot)),
            (None, BodyLength::Unknown) => Sink::Chunks(Rc::clone(&self.stream)),
            (None, _) => Sink::Connection(Rc::clone(&self.stream)),
        };
        BodyWriter::new(sink, self.times)
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
    let mut reuse = if request.is_repeatable() { Reuse::Any } else { Reuse::Proven };
    let mut resends = 0;
    // An answer whose status sends the request to another server. The client gets the answer if no
    // other server gives one.
    let mut unwanted = None;
    loop {
        // An answer holds the place of its server, so nothing is waited for while there is one.
        let upstream = match attempts.connect(core, reuse, unwanted.is_none()).await {
            Ok(upstream) => upstream,
            Err(fault) => return unwanted.ok_or(fault),
        };
        let at = upstream.ticket.as_ref().map(Ticket::at);
        let request_ms = time::wall_ms();
        let (fault, silent) = match exchange_on(core, &upstream, request, interim).await {
            Ok(read) => {
                let status = read.head.status();
                let is_unwanted = attempts.is_unwanted(request, status) && attempts.may_go_on(at);
                // An answer is large: it is made where it goes.
                let answer = || answer(core, upstream, read, request.method(), request_ms);
                if !is_unwanted {
                    return Ok(answer());
                }
                core.io.counters.upstream_retries.add(1);
                (unwanted, reuse) = (Some(answer()), Reuse::Any);
                continue;
            }
            Err(unanswered) => unanswered,
        };
        // A connection that had been used before says nothing about the server by its failure.
        let stale = upstream.is_stale(fault, silent);
        let again = upstream.may_resend(&mut resends);
        if !stale && !again {
            upstream.failed_after(fault, silent);
        }
        // An answer that takes too long may still come: asking twice would double the work of a
        // server that has too much already.
        let may_repeat = request.is_repeatable() && silent && fault == Fault::Broken;
        // The upstream had closed the connection before it saw the request. Over HTTP/2 the next
        // one may be in use, too.
        let goes_on =
            again || may_repeat && ((stale && reuse != Reuse::None) || attempts.may_go_on(at));
        if !goes_on {
            return unwanted.ok_or(fault);
        }
        core.io.counters.upstream_retries.add(1);
        reuse = Reuse::None;
    }
}

/// Sends a complete request and reads the final head of its answer. If there is none: why, and
/// whether not one byte of an answer has come.
async fn exchange_on(
    core: &Upstreams,
    upstream: &Upstream,
    request: &Request,
    interim: &mut dyn FnMut(&ResponseHead<'_>),
) -> Result<HeadRead, (Fault, bool)> {
    upstream.send_head(core, request).await.map_err(|fault| (fault, true))?;
    let mut reading = Reading::new(&core.io);
    let head = {
        let head = pin!(final_head(core, upstream, &mut reading, interim));
        time::timeout(upstream.times.first_byte(), head).await
    };
    match head.unwrap_or(Err(Fault::Timeout)) {
        Ok(head) => Ok(HeadRead { head, reading }),
        Err(fault) => Err((fault, !reading.is_any())),
    }
}

/// A connection for a request that is not complete yet, or a place on an HTTP/2 connection.
pub async fn connect(core: &Upstreams, to: &To, reuse: Reuse) -> Result<Box<Upstream>, Fault> {
    Attempts::new(core, to).connect(core, reuse, true).await
}

/// A connection for a request that was not processed on another connection.
pub async fn connect_again(
    core: &Upstreams,
    to: &To,
    other: Box<Upstream>,
) -> Result<Box<Upstream>, Fault> {
    core.io.counters.upstream_retries.add(1);
    let times = other.times;
    // It gives back its place at the server before it waits for another.
    drop(other);
    Attempts { to, times, tried: Tried::default() }.connect(core, Reuse::None, true).await
}

/// The attempts of one request.
#[derive(Debug)]
struct Attempts<'t> {
    to: &'t To,
    times: Times,
    /// The servers that have failed the request.
    tried: Tried,
}

impl Attempts<'_> {
    fn new<'t>(core: &Upstreams, to: &'t To) -> Attempts<'t> {
        let limits = core.io.limits();
        let times = |timeouts: &Timeouts| Times::of(timeouts, &limits.limits);
        let times = match to {
            To::Group(group, _, _, own) => {
                group.began();
                let of_group = &group.config.timeouts;
                own.as_ref().map_or_else(|| times(of_group), |own| times(&own.or(*of_group)))
            }
            To::Addresses(..) => times(&Timeouts::default()),
        };
        Attempts { to, times, tried: Tried::default() }
    }

    /// The bytes that the request's connection begins with.
    fn preface(&self) -> Option<&Preface> {
        match self.to {
            To::Group(_, _, preface, _) => preface.as_ref(),
            To::Addresses(..) => None,
        }
    }

    /// Whether another server is to be asked because of the status of an answer.
    fn is_unwanted(&self, request: &Request, status: u16) -> bool {
        let To::Group(group, ..) = self.to else { return false };
        group.config.retries.statuses.has(status) && request.is_repeatable()
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
    /// next server is tried whatever the request is. With `waits`, the request waits in the queue
    /// if no server has room.
    async fn connect(
        &mut self,
        core: &Upstreams,
        reuse: Reuse,
        waits: bool,
    ) -> Result<Box<Upstream>, Fault> {
        let takes_all =
            || matches!(self.to, To::Group(group, ..) if group.config.reuse == UpstreamReuse::All);
        let reuse = if reuse == Reuse::Proven && !takes_all() { Reuse::None } else { reuse };
        let (group, choice) = match self.to {
            To::Group(group, choice, ..) => (group, *choice),
            To::Addresses(addresses, tls) => {
                return self.reach(core, addresses, tls.clone(), reuse, None).await;
            }
        };
        let mut before = None;
        loop {
            let admitted = match waits {
                true => group.admit(choice, self.tried).await,
                false => group.try_admit(choice, self.tried).map_err(|_| Fault::QueueFull),
            };
            let ticket = match admitted {
                Ok(ticket) => ticket,
                // The first failure says more than that no server is left.
                Err(Fault::NoServer) => return Err(before.unwrap_or(Fault::NoServer)),
                Err(fault) => return Err(fault),
            };
            let at = ticket.at();
            let addresses = ticket.addresses();
            let tls = ticket.tls();
            match self.reach(core, &addresses, tls, reuse, Some(ticket)).await {
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

    /// A connection to one of these addresses: an idle connection, or else a place on an HTTP/2
    /// connection or a new connection.
    async fn reach(
        &self,
        core: &Upstreams,
        addresses: &[SocketAddr],
        tls: Option<Arc<TlsPeer>>,
        mut reuse: Reuse,
        mut ticket: Option<Ticket>,
    ) -> Result<Box<Upstream>, Fault> {
        let protocol = ticket.as_ref().map_or(UpstreamProtocol::Http1, Ticket::protocol);
        if self.preface().is_some() {
            reuse = Reuse::None;
        }
        if protocol == UpstreamProtocol::Http1
            && let Some(upstream) = self.idle(core, addresses, &tls, reuse, &mut ticket)
        {
            return Ok(upstream);
        }
        runtime::boxed(self.open(core, addresses, (tls, protocol), reuse, ticket)).await
    }

    /// An idle HTTP/1 connection. It takes the ticket.
    fn idle(
        &self,
        core: &Upstreams,
        addresses: &[SocketAddr],
        tls: &Option<Arc<TlsPeer>>,
        reuse: Reuse,
        ticket: &mut Option<Ticket>,
    ) -> Option<Box<Upstream>> {
        if reuse == Reuse::None {
            return None;
        }
        let take = |address: &SocketAddr| core.pool.take(core, &(*address, tls.clone()), reuse);
        let mut upstream = addresses.iter().find_map(take)?;
        ticket.iter().for_each(Ticket::reused);
        (upstream.times, upstream.ticket, upstream.reused) = (self.times, ticket.take(), true);
        Some(upstream)
    }

    /// A connection on which no request has been answered, or a place on an HTTP/2 connection.
    fn upstream(
        &self,
        (stream, slot): (Rc<Transport>, Option<Rc<Slot>>),
        (address, tls): Line,
        reused: bool,
        ticket: Option<Ticket>,
    ) -> Box<Upstream> {
        let (times, is_private) = (self.times, self.preface().is_some());
        let is_proven = false;
        Box::new(Upstream {
            stream,
            slot,
            address,
            tls,
            times,
            reused,
            is_proven,
            is_private,
            ticket,
        })
    }

    /// A place on an HTTP/2 connection, an idle HTTP/1 connection if either protocol will do, or a
    /// new connection.
    async fn open(
        &self,
        core: &Upstreams,
        addresses: &[SocketAddr],
        (tls, protocol): (Option<Arc<TlsPeer>>, UpstreamProtocol),
        reuse: Reuse,
        mut ticket: Option<Ticket>,
    ) -> Result<Box<Upstream>, Fault> {
        let times = self.times;
        let preface = self.preface();
        let is_private = preface.is_some();
        let may_be_http2 = match protocol {
            UpstreamProtocol::Http1 => false,
            UpstreamProtocol::H2 | UpstreamProtocol::H2c => true,
            UpstreamProtocol::Auto => tls.is_some(),
        };
        let mut opening = None;
        if may_be_http2 && !is_private {
            // For TCP, for TLS, and for the SETTINGS.
            let place = time::timeout(3 * times.connect(), core.links.place(addresses, &tls));
            let place = place.await.unwrap_or(Err(Fault::Timeout)).inspect_err(|fault| {
                if fault.is_of_the_server() {
                    ticket.iter().for_each(Ticket::failed);
                }
            });
            match place? {
                Place::On(slot, address) => {
                    core.io.counters.upstream_reuses.add(1);
                    ticket.iter().for_each(Ticket::reused);
                    let on = (Rc::clone(slot.transport()), Some(Rc::new(slot)));
                    return Ok(self.upstream(on, (address, tls), true, ticket));
                }
                Place::New(attempt) => opening = attempt,
            }
        }
        // If only HTTP/1 will do, the caller has looked.
        if protocol == UpstreamProtocol::Auto
            && let Some(upstream) = self.idle(core, addresses, &tls, reuse, &mut ticket)
        {
            return Ok(upstream);
        }
        let opened = open(core, addresses, preface, tls.as_deref(), times.connect()).await;
        let opened = opened.and_then(|(stream, address)| {
            is_http2(protocol, &stream).map(|is_http2| (stream, address, is_http2))
        });
        match opened {
            Ok((stream, address, is_http2)) => {
                core.io.counters.upstream_connects.add(1);
                ticket.iter().for_each(Ticket::connected);
                let on = if is_http2 {
                    let slot =
                        Link::start(&core.io, &core.scratch, stream, opening, times.connect());
                    if !is_private {
                        core.links.put(address, tls.clone(), &slot);
                    }
                    (Rc::clone(slot.transport()), Some(Rc::new(slot)))
                } else {
                    if may_be_http2 {
                        core.links.speaks_http1(addresses, &tls);
                    }
                    (Rc::new(stream), None)
                };
                Ok(self.upstream(on, (address, tls), false, ticket))
            }
            Err(fault) => {
                if let Some(opening) = opening {
                    opening.end(Err(fault));
                }
                if fault.is_of_the_server() {
                    ticket.iter().for_each(Ticket::failed);
                }
                Err(fault)
            }
        }
    }
}

/// Whether HTTP/2 is spoken on a new connection.
fn is_http2(protocol: UpstreamProtocol, stream: &Transport) -> Result<bool, Fault> {
    match protocol {
        UpstreamProtocol::Http1 => Ok(false),
        UpstreamProtocol::H2c => Ok(true),
        UpstreamProtocol::H2 if stream.speaks_http2() => Ok(true),
        // The upstream ignores ALPN.
        UpstreamProtocol::H2 => Err(Fault::Handshake),
        UpstreamProtocol::Auto => Ok(stream.speaks_http2()),
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

/// A TCP connection. If no descriptor is free, idle connections are closed, as for a new client
/// connection.
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
        writable(stream, times).await?;
    }
}

/// Waits for room, no longer than the upstream's time-out.
async fn writable(stream: &Transport, times: &Times) -> Result<(), Fault> {
    match time::timeout(times.idle(), stream.writable()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Fault::Broken),
        Err(_) => Err(Fault::Timeout),
    }
}
