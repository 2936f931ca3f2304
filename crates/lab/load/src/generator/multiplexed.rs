//! HTTP/2 and HTTP/3: several requests at a time on each connection.
//!
//! What: a *lane* carries one request at a time, as a connection does with HTTP/1, and a *link* is
//! a connection with its lanes. Lane *n* is on link *n* modulo their number, so that idle lanes are
//! used evenly. The requests of one turn of the loop are sent together, one `send` for each link. A
//! cold connection is a link without lanes: both sides send their SETTINGS, and nothing follows.
//! HTTP/3 differs below the lanes (`generator/http3.rs`).
//!
//! ```text
//! lane:  free --start--> waiting --a stream--> sent --the end of the stream--> free
//!                           ^                   |
//!                           +--- not processed -+  (GOAWAY)
//! ```
//! A request waits if its link is not connected, if the server allows no more streams, or if the
//! server closes the connection; in the last case the request is sent on the next connection. The
//! wait is part of the request's latency. Waiting requests are sent in their order.
//!
//! If each request has its own connection, a link has one lane, and ends with its request. If the
//! server closes such a connection before it answers, the request has failed, also by GOAWAY.
//!
//! What never happens: a request that may have been processed is sent twice.

use std::collections::VecDeque;
use std::io;
use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
use std::os::fd::OwnedFd;

use http2::{ErrorCode, Event, Limits, Misuse, RequestFields, Scratch};
use readiness::Ready;

use super::http3::{Http3, Quic};
use super::lanes::{Cause, FREE, Lane, Lanes, Requests, WINDOW_BYTES};
use super::{Generator, REST_NS, kind_of, kind_of_connect};
use crate::connections::{Assigned, Connection, Step};
use crate::outcome::ErrorKind;
use crate::plan::{GRPC_PREFIX_BYTES, Plan};
use crate::request::Template;
use crate::sys::{self, would_block};
use crate::tls::Tls;

/// All links and lanes of a run.
pub(super) struct Multiplexed {
    /// Those of cold connections come last.
    links: Vec<Link>,
    lanes: Lanes,
    /// HTTP/3.
    quic: Option<Box<Quic>>,
    limits: Limits,
    scratch: Scratch,
    path: Template,
    scheme: &'static [u8],
    authority: Vec<u8>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    /// The content of requests, which are calls of gRPC; empty: they are GET.
    message: Vec<u8>,
    /// Each request has its own connection. It need not wait for the server's SETTINGS: a server
    /// that allows no stream at all at first is none that we measure.
    is_one_each: bool,
    /// Links with bytes to send, and some that were flushed since.
    to_flush: VecDeque<u32>,
}

/// A connection.
#[derive(Default)]
struct Link {
    /// `None` while there is no connection.
    protocol: Option<Speaks>,
    /// It is known how many streams the server allows (HTTP/2: its SETTINGS have come).
    is_ready: bool,
    /// The beginning of a frame of HTTP/2.
    partial: Vec<u8>,
    requests: Requests,
    needs_flush: bool,
}

/// What a connection speaks.
enum Speaks {
    Http2(Box<http2::Connection>),
    Http3(Box<Http3>),
}

impl Multiplexed {
    /// `tls` is that of HTTP/3.
    pub(super) fn new(plan: &Plan, tls: Option<&Tls>) -> Result<Multiplexed, String> {
        let mut links = Vec::new();
        links.resize_with((plan.connections + plan.cold) as usize, Link::default);
        let mut limits = Limits::default();
        limits.stream_window_bytes = WINDOW_BYTES;
        limits.connection_window_bytes = WINDOW_BYTES * (plan.slots() / plan.connections).min(16);
        let lower = |name: &str| name.to_ascii_lowercase().into_bytes();
        let grpc = [("te", "trailers"), ("content-type", "application/grpc")];
        let fields = grpc.into_iter().take(if plan.grpc { grpc.len() } else { 0 });
        let fields = fields.chain(plan.other_fields());
        let fields = fields.map(|(name, value)| (lower(name), value.into())).collect();
        Ok(Multiplexed {
            links,
            lanes: Lanes {
                all: vec![FREE; plan.slots() as usize],
                hot: plan.connections,
                count_hits: plan.count_hits,
                ended: Vec::new(),
            },
            quic: tls.map(|tls| Quic::new(plan, tls)).transpose()?.map(Box::new),
            limits,
            scratch: Scratch::new(),
            path: Template::of_path(plan),
            scheme: plan.target.scheme().as_bytes(),
            authority: plan.host().as_bytes().to_vec(),
            fields,
            message: if plan.grpc { grpc_message(plan.body_bytes) } else { Vec::new() },
            is_one_each: !plan.keep_alive,
            to_flush: VecDeque::new(),
        })
    }

    fn link_of(&self, lane: u32) -> u32 {
        lane % self.lanes.hot
    }

    /// The next timer of QUIC: when it is due, ns, and its link.
    pub(super) fn next_due(&self) -> Option<(u64, u32)> {
        self.quic.as_ref()?.next_due()
    }

    /// The connection is established: sends the preface. Requests follow after the server's
    /// SETTINGS; at once, if the connection has only one.
    fn established(&mut self, link: u32, out: &mut Vec<u8>) {
        let state = &mut self.links[link as usize];
        let http2 = http2::Connection::client(&self.limits, out);
        state.protocol = Some(Speaks::Http2(Box::new(http2)));
        (state.is_ready, state.requests.has_answered) = (self.is_one_each, false);
        if self.is_one_each {
            self.send_waiting(link, out);
        }
        self.flush_later(link);
    }

    fn flush_later(&mut self, link: u32) {
        let state = &mut self.links[link as usize];
        if !state.needs_flush {
            state.needs_flush = true;
            self.to_flush.push_back(link);
        }
    }

    /// Sends the request of a lane, or lets it wait behind the others.
    #[inline]
    fn send(&mut self, lane: u32, out: &mut Vec<u8>) {
        let link = self.link_of(lane) as usize;
        if !self.links[link].requests.waiting.is_empty() || !self.try_send(lane, out) {
            self.links[link].requests.waiting.push_back(lane);
        }
    }

    /// Sends the request of a lane, if the link takes it.
    #[inline]
    fn try_send(&mut self, lane: u32, out: &mut Vec<u8>) -> bool {
        let link = self.link_of(lane);
        let number = self.lanes.place(lane);
        let Link { protocol, requests, is_ready, .. } = &mut self.links[link as usize];
        let Some(protocol) = protocol.as_mut().filter(|_| *is_ready) else { return false };
        let place = &self.lanes.all[lane as usize];
        let object = place.request.as_ref().map_or(0, |assigned| assigned.requested.object);
        let head = RequestFields {
            method: if self.message.is_empty() { &b"GET"[..] } else { b"POST" },
            scheme: Some(self.scheme),
            authority: &self.authority,
            path: Some(self.path.fill(object, place.size)),
            protocol: None,
        };
        let fields = self.fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
        let is_whole = self.message.is_empty();
        let sent = match protocol {
            // It waits until the window of the connection has room for its message.
            Speaks::Http2(http2) if http2.connection_window() < self.message.len() => None,
            Speaks::Http2(http2) => match http2.send_request(&head, fields, is_whole, out) {
                Ok(stream) => {
                    if !is_whole {
                        // A server with a window below the default gets a part of the message, and
                        // the request times out.
                        let _ = http2.send_data(stream, &self.message, true, out);
                    }
                    Some(u64::from(stream))
                }
                Err(Misuse::TooManyStreams | Misuse::Closing) => None,
                Err(misuse) => unreachable!("a request without a body: {misuse}"),
            },
            Speaks::Http3(http3) => http3.send_request(&head, fields, number, out),
        };
        let Some(stream) = sent else { return false };
        requests.sent.push((stream, lane));
        self.flush_later(link);
        true
    }

    fn send_waiting(&mut self, link: u32, out: &mut Vec<u8>) {
        while let Some(&lane) = self.links[link as usize].requests.waiting.front()
            && self.try_send(lane, out)
        {
            self.links[link as usize].requests.waiting.pop_front();
        }
    }

    /// Handles what the server has sent. Requests that ended are then in `ended`.
    fn receive(&mut self, link: u32, bytes: &[u8], now_ms: u64, out: &mut Vec<u8>) -> Outcome {
        let Multiplexed { links, lanes, message, .. } = self;
        let is_grpc = !message.is_empty();
        // A response of gRPC ends with trailers.
        let end = if is_grpc { Err(ErrorKind::Truncated) } else { Ok(()) };
        let Link { protocol, requests, is_ready, partial, .. } = &mut links[link as usize];
        let Some(Speaks::Http2(http2)) = protocol else { return Outcome::Open };
        let mut at = 0;
        loop {
            let received = match http2.next_event(&bytes[at..], &mut self.scratch, now_ms, out) {
                Ok(received) => received,
                Err(_) => return Outcome::Failed(ErrorKind::BadFraming),
            };
            at += received.consumed;
            let Some(event) = received.event else { break };
            let (stream, ends) = match event {
                Event::Response { stream, head, end_stream } => {
                    if let Some(lane) = requests.lane_of(stream.into()) {
                        requests.answered(lanes, lane, &head);
                    }
                    (stream, end_stream.then_some(end))
                }
                Event::Data { stream, bytes, end_stream } => {
                    if let Some(lane) = requests.lane_of(stream.into()) {
                        lanes.take(lane, bytes);
                    }
                    http2.release(stream, bytes.len(), out);
                    (stream, end_stream.then_some(end))
                }
                Event::Trailers { stream, fields } => {
                    let mut fields = fields.iter();
                    let is_good = !is_grpc || fields.any(|field| field == GRPC_STATUS);
                    (stream, Some(if is_good { Ok(()) } else { Err(ErrorKind::BadStatus) }))
                }
                Event::Reset { stream, .. } => (stream, Some(Err(ErrorKind::Reset))),
                Event::StreamError { stream, .. } => (stream, Some(Err(ErrorKind::BadFraming))),
                Event::GoAway { last_stream, .. } => {
                    requests.not_processed(u64::from(last_stream) + 1);
                    continue;
                }
                Event::SettingsChanged => {
                    *is_ready = true;
                    continue;
                }
                _ => continue,
            };
            if let Some(end) = ends {
                requests.ended(lanes, stream.into(), end);
            }
        }
        partial.extend_from_slice(&bytes[at..]);
        if http2.is_drained() { Outcome::Drained } else { Outcome::Open }
    }

    /// Goes on with a connection of HTTP/3 whose socket is ready or whose timer is due. Requests
    /// that ended are then in `ended`.
    fn advance(
        &mut self,
        link: u32,
        cause: Cause,
        socket: &OwnedFd,
        now_ns: u64,
    ) -> io::Result<Outcome> {
        let streams = self.lanes.of(link).len();
        let Link { protocol, requests, is_ready, .. } = &mut self.links[link as usize];
        let Some(quic) = &mut self.quic else { return Ok(Outcome::Open) };
        if protocol.is_none() {
            let http3 = quic.connect(socket, streams, now_ns)?;
            *protocol = Some(Speaks::Http3(Box::new(http3)));
            (*is_ready, requests.has_answered) = (false, false);
        }
        let Some(Speaks::Http3(http3)) = protocol else { return Ok(Outcome::Open) };
        http3.turn(cause, quic, socket, requests, &mut self.lanes, now_ns)?;
        *is_ready = http3.is_connected;
        let is_drained = http3.goes_away && requests.sent.is_empty();
        Ok(if is_drained { Outcome::Drained } else { Outcome::Open })
    }

    /// The server has ended a connection.
    fn ended(&self, link: u32, kind: ErrorKind) -> Outcome {
        match self.links[link as usize].requests.sent.is_empty() {
            true => Outcome::Drained,
            false => Outcome::Failed(kind),
        }
    }

    /// The connection is gone, and what it had received of frames. HTTP/3 says so to the server.
    fn forget(&mut self, link: u32, connection: &Connection) {
        let state = &mut self.links[link as usize];
        state.partial.clear();
        if let (Some(Speaks::Http3(http3)), Some(quic)) = (state.protocol.take(), &mut self.quic) {
            http3.close(link, quic, connection.socket(), sys::mono_ns());
        }
    }
}

/// The trailer of a response of gRPC.
const GRPC_STATUS: (&[u8], &[u8]) = (b"grpc-status", b"0");

/// A message of gRPC with its prefix, both together of this length.
fn grpc_message(bytes: u32) -> Vec<u8> {
    let payload_bytes = bytes.checked_sub(GRPC_PREFIX_BYTES).expect("a plan is checked");
    let mut message = vec![0];
    message.extend_from_slice(&payload_bytes.to_be_bytes());
    message.resize(bytes as usize, b'x');
    message
}

/// The state of a connection after a read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Open,
    /// The server has ended it, and all requests that it accepted are complete.
    Drained,
    Failed(ErrorKind),
}

impl Generator<'_> {
    /// Starts a request in a lane.
    #[inline]
    pub(super) fn start_in_lane(&mut self, lane: u32, assigned: Assigned, size: u64) {
        let many = self.multiplexed.as_mut().expect("lanes are those of HTTP/2");
        many.lanes.all[lane as usize] = Lane { request: Some(assigned), size, ..FREE };
        let link = many.link_of(lane);
        many.send(lane, &mut self.connections.table[link as usize].unsent);
        if self.connections.table[link as usize].step == Step::Closed {
            self.connect_link(link, assigned.assigned_ns);
        }
    }

    fn connect_link(&mut self, link: u32, now_ns: u64) {
        if let Err(e) = self.connections.connect(link) {
            self.fail_link(link, kind_of_connect(&e), now_ns);
        }
    }

    /// The connection of a link is established.
    pub(super) fn link_established(&mut self, link: u32) {
        let many = self.multiplexed.as_mut().expect("links are those of HTTP/2");
        many.established(link, &mut self.connections.table[link as usize].unsent);
        self.flush(link);
        if self.plan.target.tls && self.connections.table[link as usize].step == Step::Idle {
            // It may have come with the end of the handshake.
            self.advance_link(link, Cause::Socket);
        }
    }

    /// Goes on with a connect. True when the connection is established.
    pub(super) fn establish_link(&mut self, link: u32, cause: Cause) -> io::Result<bool> {
        let many = self.multiplexed.as_mut().expect("links are those of HTTP/2");
        if many.quic.is_none() {
            let is_established = self.connections.connected(link)?;
            if is_established {
                self.count_connect(link);
                self.link_established(link);
            }
            return Ok(is_established);
        }
        self.connections.set_wants_write(link, false)?;
        let connection = &mut self.connections.table[link as usize];
        many.advance(link, cause, connection.socket(), sys::mono_ns())?;
        let is_ready = many.links[link as usize].is_ready;
        if is_ready {
            connection.step = Step::Idle;
            many.send_waiting(link, &mut connection.unsent);
            self.count_connect(link);
        }
        self.flush(link);
        Ok(is_ready)
    }

    /// Counts a new connection during the run, before an answer may close it.
    fn count_connect(&mut self, link: u32) {
        if self.running && !self.connections.is_cold(link) {
            self.ledger.connected(self.connections.table[link as usize].has_resumed());
        }
    }

    /// Handles an event of a link's socket.
    pub(super) fn handle_link(&mut self, link: u32, ready: Ready) {
        let is_connecting = self.connections.table[link as usize].step == Step::Connecting;
        if is_connecting || ready.has(Ready::READABLE) {
            self.advance_link(link, Cause::Socket);
        } else if ready.has(Ready::WRITABLE) {
            self.flush(link);
        }
    }

    /// Runs the timers of QUIC.
    pub(super) fn run_timers(&mut self) {
        if self.multiplexed.as_ref().is_none_or(|many| many.quic.is_none()) {
            return;
        }
        let now_ns = sys::mono_ns();
        while let Some(many) = &self.multiplexed
            && let Some((due_ns, link)) = many.next_due()
            && due_ns <= now_ns
        {
            self.advance_link(link, Cause::Timer);
        }
    }

    /// Goes on with a link that is not closed.
    fn advance_link(&mut self, link: u32, cause: Cause) {
        if self.connections.table[link as usize].step == Step::Connecting {
            if let Err(e) = self.establish_link(link, cause) {
                self.fail_link(link, kind_of_connect(&e), sys::mono_ns());
            }
            return;
        }
        let many = self.multiplexed.as_mut().expect("links are those of HTTP/2");
        if many.quic.is_some() {
            let socket = self.connections.table[link as usize].socket();
            let advanced = many.advance(link, cause, socket, sys::mono_ns());
            let outcome = advanced.unwrap_or_else(|e| many.ended(link, kind_of(&e)));
            // As with the others, receiving is a part of a latency.
            return self.go_on(link, outcome, sys::mono_ns());
        }
        let got = self.connections.recv(link, &mut self.buffer);
        let now_ns = sys::mono_ns();
        let outcome = match got {
            Ok(0) => many.ended(link, ErrorKind::Closed),
            Ok(count) => {
                let mut partial = std::mem::take(&mut many.links[link as usize].partial);
                let now_ms = now_ns / 1_000_000;
                let out = &mut self.connections.table[link as usize].unsent;
                if partial.is_empty() {
                    many.receive(link, &self.buffer[..count], now_ms, out)
                } else {
                    partial.extend_from_slice(&self.buffer[..count]);
                    many.receive(link, &partial, now_ms, out)
                }
            }
            Err(e) if would_block(&e) => return,
            Err(e) => Outcome::Failed(kind_of(&e)),
        };
        self.go_on(link, outcome, now_ns);
    }

    /// Goes on after a read.
    fn go_on(&mut self, link: u32, outcome: Outcome, now_ns: u64) {
        let many = self.multiplexed.as_mut().expect("links are those of HTTP/2");
        if many.is_one_each && !many.lanes.ended.is_empty() {
            // By a reset, as at the end of a run: no port waits for the end of TIME_WAIT.
            self.close_link(link, true);
            return self.end_lanes(now_ns);
        }
        self.end_lanes(now_ns);
        match outcome {
            Outcome::Open => {
                let many = self.multiplexed.as_mut().expect("links are those of HTTP/2");
                many.send_waiting(link, &mut self.connections.table[link as usize].unsent);
                self.flush(link);
            }
            Outcome::Drained => self.replace(link, now_ns),
            Outcome::Failed(kind) => self.fail_link(link, kind, now_ns),
        }
    }

    /// Counts the requests that have ended, and puts their lanes to the next use.
    fn end_lanes(&mut self, now_ns: u64) {
        let many = self.multiplexed.as_mut().expect("lanes are those of HTTP/2");
        let mut ended = std::mem::take(&mut many.lanes.ended);
        for (lane, verdict) in ended.drain(..) {
            let many = self.multiplexed.as_mut().expect("lanes are those of HTTP/2");
            let place = std::mem::replace(&mut many.lanes.all[lane as usize], FREE);
            let assigned = place.request.expect("a lane that ends has a request");
            self.count(&assigned, verdict, now_ns);
            self.reuse(lane, now_ns);
        }
        if let Some(many) = &mut self.multiplexed {
            many.lanes.ended = ended;
        }
    }

    /// The server has closed a connection on which nothing is in flight: opens another if requests
    /// wait for it.
    fn replace(&mut self, link: u32, now_ns: u64) {
        self.close_link(link, false);
        let many = self.multiplexed.as_mut().expect("links are those of HTTP/2");
        if link >= many.lanes.hot {
            return self.rest_cold(link, now_ns);
        }
        let requests = &many.links[link as usize].requests;
        match (requests.waiting.is_empty(), requests.has_answered) {
            (true, _) => {}
            (false, true) => self.connect_link(link, now_ns),
            (false, false) => self.fail_link(link, ErrorKind::Closed, now_ns),
        }
    }

    /// Counts all requests of a link as failed, and closes its connection.
    #[cold]
    fn fail_link(&mut self, link: u32, kind: ErrorKind, now_ns: u64) {
        self.close_link(link, true);
        let many = self.multiplexed.as_mut().expect("links are those of HTTP/2");
        if link >= many.lanes.hot {
            return self.rest_cold(link, now_ns);
        }
        let requests = &mut many.links[link as usize].requests;
        requests.sent.clear();
        requests.waiting.clear();
        for lane in many.lanes.of(link) {
            let place = std::mem::replace(&mut many.lanes.all[lane as usize], FREE);
            if place.request.is_some() {
                self.in_flight -= 1;
                self.ledger.failed(kind);
                // As in `fail`: the loop puts it back to use.
                self.resting.push_back((now_ns + REST_NS, lane));
            }
        }
    }

    pub(super) fn close_link(&mut self, link: u32, by_reset: bool) {
        let connection = &self.connections.table[link as usize];
        if let Some(many) = &mut self.multiplexed
            && connection.step != Step::Closed
        {
            many.forget(link, connection);
        }
        self.connections.close(link, by_reset);
    }

    /// Sends what a link has to send.
    fn flush(&mut self, link: u32) {
        let connection = &self.connections.table[link as usize];
        let Some(Multiplexed { quic, links, .. }) = self.multiplexed.as_deref_mut() else { return };
        let state = &mut links[link as usize];
        state.needs_flush = false;
        if let Some(quic) = quic {
            if let Some(Speaks::Http3(http3)) = &mut state.protocol {
                http3.transmit(link, quic, connection.socket(), sys::mono_ns());
            }
            return;
        }
        if connection.step != Step::Idle {
            return;
        }
        match self.connections.send_unsent(link) {
            Ok(_) => {}
            // The server has closed. What it did not process it may have said before: the reads
            // see that, and then the end.
            Err(e) if matches!(e.kind(), ConnectionReset | BrokenPipe) => {}
            Err(e) => self.fail_link(link, kind_of(&e), sys::mono_ns()),
        }
    }

    /// Sends what the requests of this turn have written.
    pub(super) fn flush_all(&mut self) {
        while let Some(many) = &mut self.multiplexed
            && let Some(link) = many.to_flush.pop_front()
        {
            if many.links[link as usize].needs_flush {
                // A request that was given up may have left its stream to one that waits.
                many.send_waiting(link, &mut self.connections.table[link as usize].unsent);
                self.flush(link);
            }
        }
    }

    /// Gives up handshakes and requests that take too long. The connection of a request stays,
    /// unless it is for this request only.
    pub(super) fn sweep_lanes(&mut self, now_ns: u64) {
        let timeout_ns = self.plan.timeout.as_nanos() as u64;
        for link in 0..self.plan.connections {
            let connection = &self.connections.table[link as usize];
            let age_ns = now_ns.saturating_sub(connection.connect_ns);
            if connection.step == Step::Connecting && age_ns > timeout_ns {
                self.fail_link(link, ErrorKind::Timeout, now_ns);
            }
        }
        let lanes = self.multiplexed.as_ref().map_or(0, |many| many.lanes.all.len() as u32);
        for lane in 0..lanes {
            let Some(many) = &mut self.multiplexed else { return };
            let link = many.link_of(lane);
            let place = &mut many.lanes.all[lane as usize];
            let late = |assigned: &Assigned| now_ns.saturating_sub(assigned.assigned_ns);
            if place.request.as_ref().is_none_or(|assigned| late(assigned) <= timeout_ns) {
                continue;
            }
            if many.is_one_each {
                self.fail_link(link, ErrorKind::Timeout, now_ns);
                continue;
            }
            *place = FREE;
            let state = &mut many.links[link as usize];
            let sent = &mut state.requests.sent;
            if let Some(at) = sent.iter().position(|(_, sent)| *sent == lane) {
                let (stream, _) = sent.swap_remove(at);
                match &mut state.protocol {
                    Some(Speaks::Http2(http2)) => {
                        let out = &mut self.connections.table[link as usize].unsent;
                        http2.reset(stream as u32, ErrorCode::CANCEL, out);
                    }
                    Some(Speaks::Http3(http3)) => http3.cancel(stream),
                    None => {}
                }
                many.flush_later(link);
            } else {
                state.requests.waiting.retain(|waiting| *waiting != lane);
            }
            self.in_flight -= 1;
            self.ledger.failed(ErrorKind::Timeout);
            self.resting.push_front((now_ns, lane));
        }
    }
}
