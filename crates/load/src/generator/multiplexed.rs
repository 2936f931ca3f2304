//! HTTP/2: several requests at a time on each connection.
//!
//! What: a *lane* carries one request at a time, as a connection does with HTTP/1, and a *link* is
//! a connection with its lanes. Lane *n* is on link *n* modulo their number, so that idle lanes are
//! used evenly. The requests of one turn of the loop are sent together, one `send` for each link. A
//! cold connection is a link without lanes: both sides send their SETTINGS, and nothing follows.
//!
//! ```text
//! lane:  free --start--> waiting --a stream--> sent --the end of the stream--> free
//!                           ^                   |
//!                           +--- not processed -+  (GOAWAY)
//! ```
//! A request waits if its link is not connected, if the server allows no more streams, or if it
//! closes the connection; then the request is sent on the next one. That wait is part of its
//! latency.
//!
//! What never happens: a request that may have been processed is sent twice.

use std::io::ErrorKind::{BrokenPipe, ConnectionReset};

use http2::{ErrorCode, Event, Limits, Misuse, RequestFields, Scratch, StreamId};
use readiness::{Event as Readiness, Ready};

use super::{Generator, REST_NS, kind_of, kind_of_connect, would_block};
use crate::connections::{Assigned, Connections, Step};
use crate::outcome::ErrorKind;
use crate::plan::Plan;
use crate::request::Template;
use crate::response::{Complete, Received, source_of};
use crate::sys;

/// Content that a server may send before any of it is released: more than one read brings.
const WINDOW_BYTES: u32 = 1 << 20;

/// All links and lanes of a run.
pub(super) struct Multiplexed {
    /// Those of cold connections come last.
    links: Vec<Link>,
    /// Links with lanes.
    hot: u32,
    lanes: Vec<Lane>,
    limits: Limits,
    scratch: Scratch,
    path: Template,
    authority: Vec<u8>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    count_hits: bool,
    /// Links with bytes to send.
    to_flush: Vec<u32>,
    /// Lanes whose request has ended, while the events of a read are handled.
    ended: Vec<(u32, Result<Complete, ErrorKind>)>,
}

/// A connection.
#[derive(Default)]
struct Link {
    /// `None` while there is no connection.
    http2: Option<http2::Connection>,
    /// The server's SETTINGS have come, so that it is known how many streams it allows.
    is_ready: bool,
    /// The beginning of a frame.
    partial: Vec<u8>,
    /// The streams of requests that were sent, with their lanes.
    sent: Vec<(StreamId, u32)>,
    /// Requests that wait for a stream.
    waiting: u32,
    /// It has answered a request, so that another connection will answer too.
    has_answered: bool,
    is_in_to_flush: bool,
}

/// A place for one request.
#[derive(Clone, Copy)]
struct Lane {
    request: Option<Assigned>,
    /// Whether the request waits for a stream.
    is_waiting: bool,
    size: u64,
    received: Received,
    wrong_bytes: bool,
}

const FREE: Lane = Lane {
    request: None,
    is_waiting: false,
    size: 0,
    received: Received::NOTHING,
    wrong_bytes: false,
};

impl Lane {
    fn take(&mut self, bytes: &[u8]) {
        if let Some(assigned) = &self.request {
            self.wrong_bytes |= self.received.take(bytes, assigned.requested).is_err();
        }
    }

    fn judge(&self, assigned: &Assigned) -> Result<Complete, ErrorKind> {
        match self.wrong_bytes {
            true => Err(ErrorKind::WrongBytes),
            false => self.received.judge(assigned.requested),
        }
    }
}

impl Multiplexed {
    pub(super) fn new(plan: &Plan) -> Multiplexed {
        let mut links = Vec::new();
        links.resize_with((plan.connections + plan.cold) as usize, Link::default);
        let mut limits = Limits::default();
        limits.stream_window_bytes = WINDOW_BYTES;
        limits.connection_window_bytes = WINDOW_BYTES * (plan.slots() / plan.connections).min(16);
        let lower = |name: &String| name.to_ascii_lowercase().into_bytes();
        let mut fields = vec![(b"user-agent".to_vec(), b"plimsoll".to_vec())];
        fields.extend(plan.fields.iter().map(|(name, value)| (lower(name), value.clone().into())));
        Multiplexed {
            links,
            hot: plan.connections,
            lanes: vec![FREE; plan.slots() as usize],
            limits,
            scratch: Scratch::new(),
            path: Template::of_path(plan),
            authority: plan.target.authority.clone().into_bytes(),
            fields,
            count_hits: plan.count_hits,
            to_flush: Vec::new(),
            ended: Vec::new(),
        }
    }

    fn lanes(&self) -> u32 {
        self.lanes.len() as u32
    }

    fn link_of(&self, lane: u32) -> u32 {
        lane % self.hot
    }

    /// The lanes of a link.
    fn lanes_of(&self, link: u32) -> impl Iterator<Item = u32> + use<> {
        let end = if link < self.hot { self.lanes() } else { 0 };
        (link..end).step_by(self.hot as usize)
    }

    /// The connection is established: sends the preface. Requests follow after the server's
    /// SETTINGS.
    fn established(&mut self, link: u32, out: &mut Vec<u8>) {
        let state = &mut self.links[link as usize];
        state.http2 = Some(http2::Connection::client(&self.limits, out));
        (state.is_ready, state.has_answered) = (false, false);
        self.flush_later(link);
    }

    fn flush_later(&mut self, link: u32) {
        let state = &mut self.links[link as usize];
        if !state.is_in_to_flush {
            state.is_in_to_flush = true;
            self.to_flush.push(link);
        }
    }

    /// Sends the request of a lane, or lets it wait.
    #[inline]
    fn send(&mut self, lane: u32, out: &mut Vec<u8>) {
        let link = self.link_of(lane);
        let state = &mut self.links[link as usize];
        let (place, request) = match (&mut self.lanes[lane as usize], &mut state.http2) {
            (place @ Lane { request: Some(_), .. }, Some(http2)) if state.is_ready => {
                (place, http2)
            }
            (place, _) => return wait(place, state),
        };
        let object = place.request.as_ref().map_or(0, |assigned| assigned.requested.object);
        let head = RequestFields {
            method: b"GET",
            scheme: Some(b"http"),
            authority: &self.authority,
            path: Some(self.path.fill(object, place.size)),
            protocol: None,
        };
        let fields = self.fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
        match request.send_request(&head, fields, true, out) {
            Ok(stream) => {
                if place.is_waiting {
                    place.is_waiting = false;
                    state.waiting -= 1;
                }
                state.sent.push((stream, lane));
                self.flush_later(link);
            }
            Err(Misuse::TooManyStreams | Misuse::Closing) => wait(place, state),
            Err(misuse) => unreachable!("a request without a body: {misuse}"),
        }
    }

    fn send_waiting(&mut self, link: u32, out: &mut Vec<u8>) {
        for lane in self.lanes_of(link) {
            if self.links[link as usize].waiting == 0 {
                return;
            }
            if self.lanes[lane as usize].is_waiting {
                self.send(lane, out);
            }
        }
    }

    /// Handles what the server has sent. Requests that ended are then in `ended`.
    fn receive(&mut self, link: u32, bytes: &[u8], now_ms: u64, out: &mut Vec<u8>) -> Outcome {
        let state = &mut self.links[link as usize];
        let Some(http2) = &mut state.http2 else { return Outcome::Open };
        let mut at = 0;
        loop {
            let received = match http2.next_event(&bytes[at..], &mut self.scratch, now_ms, out) {
                Ok(received) => received,
                Err(_) => return Outcome::Failed(ErrorKind::BadFraming),
            };
            at += received.consumed;
            let Some(event) = received.event else { break };
            let (stream, ends) = match event {
                Event::Response { stream, head, end_stream } if head.status >= 200 => {
                    state.has_answered = true;
                    if let Some(lane) = lane_of(&state.sent, stream) {
                        let received = &mut self.lanes[lane as usize].received;
                        received.bad_status = head.status >= 400;
                        if self.count_hits {
                            received.source = source_of(|name| field(&head, name));
                        }
                    }
                    (stream, end_stream.then_some(Ok(())))
                }
                Event::Data { stream, bytes, end_stream } => {
                    if let Some(lane) = lane_of(&state.sent, stream) {
                        self.lanes[lane as usize].take(bytes);
                    }
                    http2.release(stream, bytes.len(), out);
                    (stream, end_stream.then_some(Ok(())))
                }
                Event::Trailers { stream, .. } => (stream, Some(Ok(()))),
                Event::Reset { stream, .. } => (stream, Some(Err(ErrorKind::Reset))),
                Event::StreamError { stream, .. } => (stream, Some(Err(ErrorKind::BadFraming))),
                Event::GoAway { last_stream, .. } => {
                    // These were not processed.
                    state.sent.retain(|&(stream, lane)| {
                        let is_processed = stream <= last_stream;
                        if !is_processed {
                            self.lanes[lane as usize].is_waiting = true;
                            state.waiting += 1;
                        }
                        is_processed
                    });
                    continue;
                }
                Event::SettingsChanged => {
                    state.is_ready = true;
                    continue;
                }
                _ => continue,
            };
            if let Some(end) = ends
                && let Some(at) = state.sent.iter().position(|(sent, _)| *sent == stream)
            {
                let (_, lane) = state.sent.swap_remove(at);
                let place = &self.lanes[lane as usize];
                let assigned = place.request.as_ref().expect("a sent request is in its lane");
                self.ended.push((lane, end.and_then(|()| place.judge(assigned))));
            }
        }
        state.partial.extend_from_slice(&bytes[at..]);
        if http2.is_drained() { Outcome::Drained } else { Outcome::Open }
    }

    /// The connection is gone, and what it had received of frames.
    fn forget(&mut self, link: u32) {
        let state = &mut self.links[link as usize];
        state.http2 = None;
        state.partial.clear();
    }
}

fn wait(place: &mut Lane, state: &mut Link) {
    if !place.is_waiting {
        place.is_waiting = true;
        state.waiting += 1;
    }
}

fn field<'h>(head: &http2::ResponseHead<'h>, name: http1::Name) -> Option<&'h [u8]> {
    let name = name.as_str().as_bytes();
    head.fields.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn lane_of(sent: &[(StreamId, u32)], stream: StreamId) -> Option<u32> {
    sent.iter().find(|(sent, _)| *sent == stream).map(|(_, lane)| *lane)
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
        many.lanes[lane as usize] = Lane { request: Some(assigned), size, ..FREE };
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
    }

    /// Handles an event of a link's socket.
    pub(super) fn handle_link(&mut self, link: u32, event: Readiness) {
        if self.connections.table[link as usize].step == Step::Connecting {
            let connected = self.connections.connected(link);
            return match connected {
                Ok(()) => {
                    if self.running && !self.connections.is_cold(link) {
                        self.ledger.connected();
                    }
                    self.link_established(link);
                }
                Err(e) => self.fail_link(link, kind_of_connect(&e), sys::mono_ns()),
            };
        }
        if event.ready.has(Ready::READABLE) {
            self.receive_on_link(link);
        } else if event.ready.has(Ready::WRITABLE) {
            self.flush(link);
        }
    }

    fn receive_on_link(&mut self, link: u32) {
        let Connections { table, .. } = &mut self.connections;
        let socket = &mut table[link as usize];
        let got = sys::recv(socket.fd(), &mut self.buffer);
        let now_ns = sys::mono_ns();
        let many = self.multiplexed.as_mut().expect("links are those of HTTP/2");
        let outcome = match got {
            Ok(0) => {
                let state = &many.links[link as usize];
                match state.sent.is_empty() {
                    true => Outcome::Drained,
                    false => Outcome::Failed(ErrorKind::Closed),
                }
            }
            Ok(count) => {
                let mut partial = std::mem::take(&mut many.links[link as usize].partial);
                let now_ms = now_ns / 1_000_000;
                let out = &mut socket.unsent;
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
        let mut ended = std::mem::take(&mut many.ended);
        for (lane, verdict) in ended.drain(..) {
            let many = self.multiplexed.as_mut().expect("lanes are those of HTTP/2");
            let place = std::mem::replace(&mut many.lanes[lane as usize], FREE);
            let assigned = place.request.expect("a lane that ends has a request");
            self.count(&assigned, verdict, now_ns);
            self.reuse(lane, now_ns);
        }
        if let Some(many) = &mut self.multiplexed {
            many.ended = ended;
        }
    }

    /// The server has closed a connection on which nothing is in flight: opens another if requests
    /// wait for it.
    fn replace(&mut self, link: u32, now_ns: u64) {
        self.connections.close(link, false);
        let many = self.multiplexed.as_mut().expect("links are those of HTTP/2");
        many.forget(link);
        if link >= many.hot {
            return self.rest_cold(link, now_ns);
        }
        let state = &many.links[link as usize];
        match (state.waiting, state.has_answered) {
            (0, _) => {}
            (_, true) => self.connect_link(link, now_ns),
            (_, false) => self.fail_link(link, ErrorKind::Closed, now_ns),
        }
    }

    /// Counts all requests of a link as failed, and closes its connection.
    #[cold]
    fn fail_link(&mut self, link: u32, kind: ErrorKind, now_ns: u64) {
        self.connections.close(link, true);
        let many = self.multiplexed.as_mut().expect("links are those of HTTP/2");
        many.forget(link);
        if link >= many.hot {
            return self.rest_cold(link, now_ns);
        }
        let state = &mut many.links[link as usize];
        state.sent.clear();
        state.waiting = 0;
        for lane in many.lanes_of(link) {
            let place = std::mem::replace(&mut many.lanes[lane as usize], FREE);
            if place.request.is_some() {
                self.in_flight -= 1;
                self.ledger.failed(kind);
                // As in `fail`: the loop puts it back to use.
                self.resting.push_back((now_ns + REST_NS, lane));
            }
        }
    }

    /// Sends what a link has to send.
    fn flush(&mut self, link: u32) {
        if self.connections.table[link as usize].step != Step::Idle {
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
        let Some(many) = &mut self.multiplexed else { return };
        let mut to_flush = std::mem::take(&mut many.to_flush);
        for &link in &to_flush {
            if let Some(many) = &mut self.multiplexed {
                many.links[link as usize].is_in_to_flush = false;
            }
            self.flush(link);
        }
        to_flush.clear();
        if let Some(many) = &mut self.multiplexed {
            many.to_flush = to_flush;
        }
    }

    /// Gives up requests that take too long. The connection stays.
    pub(super) fn sweep_lanes(&mut self, now_ns: u64) {
        let timeout_ns = self.plan.timeout.as_nanos() as u64;
        let Some(many) = &mut self.multiplexed else { return };
        for lane in 0..many.lanes() {
            let place = &mut many.lanes[lane as usize];
            let late = |assigned: &Assigned| now_ns.saturating_sub(assigned.assigned_ns);
            if place.request.as_ref().is_none_or(|assigned| late(assigned) <= timeout_ns) {
                continue;
            }
            let place = std::mem::replace(place, FREE);
            let link = many.link_of(lane);
            let state = &mut many.links[link as usize];
            state.waiting -= u32::from(place.is_waiting);
            if let Some(at) = state.sent.iter().position(|(_, sent)| *sent == lane) {
                let (stream, _) = state.sent.swap_remove(at);
                if let Some(http2) = &mut state.http2 {
                    let out = &mut self.connections.table[link as usize].unsent;
                    http2.reset(stream, ErrorCode::CANCEL, out);
                    many.flush_later(link);
                }
            }
            self.in_flight -= 1;
            self.ledger.failed(ErrorKind::Timeout);
            self.resting.push_front((now_ns, lane));
        }
    }
}
