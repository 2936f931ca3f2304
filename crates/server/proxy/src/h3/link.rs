//! One HTTP/3 connection.
//!
//! ```text
//!   accepted -> Handshake -> Turn: timers, events of QUIC ------------> Send -> Wait
//!                             |-- a request with a fresh hit: answer
//!                             |-- any other request: a task with an exchange
//!                             |-- content, resets, windows: wakes the task
//!                             '-- idle time-out, drain, a broken rule --> Closed -> Drained
//! ```
//!
//! [`mux::drive`] is the task of a connection. A turn runs QUIC's timers, handles its events, and
//! sends its datagrams. The endpoint gives the connection the datagrams that arrive; the tasks of
//! its streams write to them and wake it. After the close, the connection answers late datagrams
//! for a while (RFC 9000 section 10.2); it counts as open no longer.

mod end;
mod order;
mod streams;

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use cache::stored::{Stored, Use};
use core_io::held::HeldBytes;
use core_io::mux::{self, Protocol, find};
use core_io::spares::SharedHead;
use http1::write::request_trailers;
use http1::{FieldList, Scheme};
use http2::Bucket;
use http3::{Control, Error, ErrorCode, Event, Limits, Priority, Reason, Scope, UniStream, write};
use outcome::Refusal;
use quinn_proto::crypto::rustls::HandshakeData;
use quinn_proto::{
    Connection, ConnectionError, ConnectionEvent, ConnectionHandle, Dir, EndpointEvent,
    Event as QuicEvent, StreamEvent, StreamId, Transmit, VarInt,
};
use runtime::time::{self, Instant};
use runtime::wake;
use transport::canonical;
use transport::tls::{QuicFacts, TlsFacts};

use self::end::Going;
use self::order::take_early;
use super::endpoint::{Endpoint, Handshake};
use super::limits::{PULL_BYTES_MAX, SEGMENTS_MAX, SENDS_PER_TURN_MAX, TASKS_MAX};
use super::stream::{Read, Stream, read};
use crate::coding::Coding;
use crate::h2::{self, Server, StreamClient, exchange, write_request};
use core_io::pace::Taking;
use exchange::Worker;
use exchange::limits::COALESCE_BYTES_MAX;
use exchange::listener::ListenerContext;
use exchange::logged::Origin;
use exchange::quota::Counted;
use exchange::request::Request;
use exchange::routing::ClientConnection;
use exchange::upgrade;

/// A connection, shared with the tasks of its streams.
pub(super) struct Link {
    pub(super) worker: Rc<Worker>,
    coding: Rc<Coding>,
    endpoint: Rc<Endpoint>,
    listener: Rc<ListenerContext>,
    handle: ConnectionHandle,
    /// The address that the handshake has validated. The rules and the log go by it: one that the
    /// client moves to later is not validated when its first packet is handled.
    peer: SocketAddr,
    /// Known from the end of the handshake.
    tls: OnceCell<QuicFacts>,
    began: Instant,
    limits: Limits,
    /// The quotas that count the connection.
    _counted: Vec<Counted>,
    /// The connection is closed, and answers late datagrams.
    is_late: Cell<bool>,
    state: RefCell<State>,
}

struct State {
    quinn: Connection,
    http3: http3::Connection,
    /// Our control stream, and what it has not taken.
    control: Option<StreamId>,
    control_unsent: Bytes,
    control_held: Arc<HeldBytes>,
    /// Streams of the client with one direction.
    uni: Vec<(StreamId, UniStream)>,
    streams: Vec<(StreamId, Stream)>,
    /// The connection's task.
    waker: Option<Waker>,
    /// Datagrams that the socket has not taken.
    unsent: Option<(Transmit, Vec<u8>)>,
    /// Tasks of streams, those of streams that are gone included.
    tasks: usize,
    /// The first request that was not opened; after the last GOAWAY, that was not accepted.
    next_stream: u64,
    /// Priorities of requests whose heads have not come.
    early: Vec<(StreamId, Priority)>,
    /// What is held of the streams of requests.
    held: Arc<HeldBytes>,
    /// What was freed, when that was looked at last.
    freed: u64,
    taking: Taking,
    going: Going,
    /// Neither side sends requests or responses any more.
    is_closed: bool,
    /// Until the handshake is complete.
    handshake: Option<Handshake>,
    resets: Bucket,
    /// Counts the turns in which streams have sent.
    served: u64,
    /// When a stream was last opened or closed.
    since: Instant,
    /// When the last datagram came.
    heard: Instant,
}

/// What a head says before it is parsed as one of HTTP/1.
struct Head {
    /// No content follows.
    end_stream: bool,
    /// We serve its scheme.
    is_served: bool,
}

impl Link {
    pub(super) fn new(
        endpoint: &Rc<Endpoint>,
        listener: Rc<ListenerContext>,
        handle: ConnectionHandle,
        quinn: Connection,
        handshake: Handshake,
        counted: Vec<Counted>,
    ) -> Rc<Link> {
        let peer = canonical(quinn.remote_address());
        let worker = Rc::clone(&endpoint.worker);
        let mut limits = Limits::DEFAULT;
        limits.extended_connect = upgrade::allows_websocket(&worker.snapshot().config.upgrades);
        let state = State {
            quinn,
            http3: http3::Connection::server(&limits),
            control: None,
            control_unsent: Bytes::new(),
            control_held: HeldBytes::new(&worker.io.counters),
            uni: Vec::new(),
            streams: Vec::new(),
            waker: None,
            unsent: None,
            tasks: 0,
            next_stream: 0,
            early: Vec::new(),
            held: HeldBytes::new(&worker.io.counters),
            freed: 0,
            taking: Taking::default(),
            going: Going::No,
            is_closed: false,
            handshake: Some(handshake),
            resets: Bucket::default(),
            served: 0,
            since: time::now(),
            heard: time::now(),
        };
        Rc::new(Link {
            worker,
            coding: Coding::of_core(),
            endpoint: Rc::clone(endpoint),
            listener: listener.of_peer(peer.ip()),
            handle,
            peer,
            tls: OnceCell::new(),
            began: time::now(),
            limits,
            _counted: counted,
            is_late: Cell::new(false),
            state: RefCell::new(state),
        })
    }

    /// Serves the connection to its end.
    pub(super) async fn serve(self: Rc<Link>) {
        let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        // The endpoint has looked that there is room.
        if let Some(slot) = self.worker.io.enter(&waker, self.peer.ip()) {
            mux::drive(&self).await;
            self.worker.io.leave(slot);
        } else {
            self.worker.io.counters.connections_refused.add(1);
            self.close(ErrorCode::H3_EXCESSIVE_LOAD, "");
        }
        let handshake = self.state.borrow_mut().handshake.take();
        if handshake.is_some_and(|handshake| handshake.was_evicted()) {
            // Its memory is needed now, so it does not wait for what the client still sends.
            self.forget_at_once();
        } else {
            self.is_late.set(true);
            mux::drive(&self).await;
        }
        self.endpoint.forget(self.handle);
        let worker = Rc::clone(&self.worker);
        drop(self);
        // With it went what it held for its client.
        worker.io.look_at_held_bytes();
    }

    /// A datagram has arrived.
    pub(super) fn arrived(&self, event: ConnectionEvent) {
        self.write(|state| {
            state.heard = time::now();
            state.quinn.handle_event(event);
        });
    }

    pub(super) fn wake(&self) {
        wake(&mut self.state.borrow_mut().waker);
    }

    /// Closes the connection.
    pub(super) fn close(&self, code: ErrorCode, why: &str) {
        let now = self.endpoint.clock.now();
        self.write(|state| {
            if !state.is_closed {
                let why = Bytes::copy_from_slice(why.as_bytes());
                state.quinn.close(now, number(code), why);
                state.is_closed = true;
                state.streams.drain(..).for_each(|(_, mut stream)| stream.shared.wake());
            }
        });
    }

    /// QUIC's timers.
    fn run_timers(&self) {
        let now = self.endpoint.clock.now();
        let state = &mut *self.state.borrow_mut();
        while state.quinn.poll_timeout().is_some_and(|due| due <= now) {
            state.quinn.handle_timeout(now);
        }
    }

    fn next_event(&self) -> Option<QuicEvent> {
        self.state.borrow_mut().quinn.poll()
    }

    /// Ends a handshake whose place is needed.
    fn look_evicted(&self, cx: &mut Context<'_>) {
        let is_evicted = {
            let State { handshake, is_closed, .. } = &*self.state.borrow();
            !is_closed && handshake.as_ref().is_some_and(|handshake| handshake.is_evicted(cx))
        };
        if is_evicted {
            self.worker.io.counters.tls_failures_evicted.add(1);
            self.close(ErrorCode::H3_NO_ERROR, "");
        }
    }

    /// Ends the connection for QUIC without waiting for datagrams that are on their way.
    fn forget_at_once(&self) {
        if !self.state.borrow().quinn.is_drained() {
            let mut quinn = self.endpoint.quinn.borrow_mut();
            quinn.handle_event(self.handle, EndpointEvent::drained());
        }
    }

    /// What the endpoint and the connection have for each other.
    fn exchange_events(&self) {
        let state = &mut *self.state.borrow_mut();
        while let Some(event) = state.quinn.poll_endpoint_events() {
            let answer = self.endpoint.quinn.borrow_mut().handle_event(self.handle, event);
            if let Some(answer) = answer {
                state.quinn.handle_event(answer);
            }
        }
    }

    /// Sends datagrams. False if more wait.
    fn send_datagrams(&self, cx: &Context<'_>) -> bool {
        let now = self.endpoint.clock.now();
        let segments = self.endpoint.socket.segments_max().min(SEGMENTS_MAX);
        let state = &mut *self.state.borrow_mut();
        let mut output = self.endpoint.output.borrow_mut();
        for _ in 0..SENDS_PER_TURN_MAX {
            if let Some((transmit, bytes)) = &state.unsent {
                if self.endpoint.send(transmit, bytes).is_err() {
                    self.endpoint.wait_for_room(cx.waker());
                    return false;
                }
                state.unsent = None;
                continue;
            }
            output.clear();
            let Some(transmit) = state.quinn.poll_transmit(now, segments, &mut output) else {
                return true;
            };
            if self.endpoint.send(&transmit, &output).is_err() {
                let bytes = output[..transmit.size].to_vec();
                state.unsent = Some((transmit, bytes));
                self.endpoint.wait_for_room(cx.waker());
                return false;
            }
        }
        cx.waker().wake_by_ref();
        false
    }

    fn event(self: &Rc<Link>, event: QuicEvent) {
        match event {
            QuicEvent::Connected => self.connected(),
            QuicEvent::ConnectionLost { reason } => self.lost(&reason),
            QuicEvent::Stream(StreamEvent::Opened { dir }) => self.opened(dir),
            QuicEvent::Stream(StreamEvent::Readable { id }) => match id.dir() {
                Dir::Uni => self.read_uni(id),
                Dir::Bi => self.read_request(id),
            },
            QuicEvent::Stream(StreamEvent::Stopped { id, .. }) => self.cancelled(id),
            _ => {}
        }
    }

    /// The windows of these streams have opened. The first one may take all of the room.
    fn writable(&self, ids: &mut [StreamId]) {
        if ids.is_empty() {
            return;
        }
        let state = &mut *self.state.borrow_mut();
        if state.control.is_some_and(|control| ids.contains(&control)) {
            state.flush_control();
        }
        let State { quinn, streams, held, .. } = state;
        ids.sort_by_key(|id| find(streams, *id).map(|stream| stream.key(*id)));
        for &id in ids.iter() {
            if let Some(stream) = find(streams, id) {
                stream.is_blocked = false;
                // A stream that is gone is noticed by its task.
                let _ = stream.flush(quinn, id, held);
                if !stream.is_blocked {
                    wake(&mut stream.shared.room_waker);
                }
            }
        }
    }

    fn connected(&self) {
        let counters = &self.worker.io.counters;
        counters.tls_handshakes.add(1);
        let state = &mut *self.state.borrow_mut();
        let session = state.quinn.crypto_session();
        let data = session.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
        let name = data.and_then(|data| data.server_name);
        let _ = self.tls.set(QuicFacts::new(name, session.peer_identity()));
        state.handshake = None;
        state.since = time::now();
        state.control = state.quinn.streams().open(Dir::Uni);
        let mut settings = Vec::new();
        write::control(&self.limits, &mut settings);
        state.send_control(settings);
    }

    fn lost(&self, reason: &ConnectionError) {
        let io = &self.worker.io;
        if self.tls.get().is_none() && !self.state.borrow().is_closed {
            tracing::debug!(%reason, "no QUIC with a client");
            let counter = match reason {
                ConnectionError::TransportError(_) => &io.counters.tls_failures_protocol,
                ConnectionError::TimedOut => &io.counters.tls_failures_slow,
                _ => &io.counters.tls_failures_closed,
            };
            counter.add(1);
        }
        let mut state = self.state.borrow_mut();
        state.is_closed = true;
        state.streams.drain(..).for_each(|(_, mut stream)| stream.shared.wake());
    }

    /// The client has broken a rule.
    fn fail(&self, error: Error) {
        tracing::debug!(peer = %self.peer, %error, "an HTTP/3 client");
        self.worker.io.counters.client_errors.add(1);
        self.close(error.0.code(), error.0.text());
    }

    /// The client has opened streams.
    fn opened(self: &Rc<Link>, dir: Dir) {
        loop {
            let id = {
                let state = &mut *self.state.borrow_mut();
                if state.is_closed {
                    return;
                }
                let Some(id) = state.quinn.streams().accept(dir) else { return };
                match dir {
                    Dir::Uni => state.uni.push((id, UniStream::default())),
                    Dir::Bi => {
                        let is_final = state.going == Going::Final;
                        if !is_final {
                            state.next_stream = u64::from(id) + 4;
                        }
                        if is_final || state.tasks >= TASKS_MAX {
                            take_early(&mut state.early, id);
                            state.stop(id, ErrorCode::H3_REQUEST_REJECTED);
                            continue;
                        }
                        state.since = time::now();
                        state.streams.push((id, Stream::new()));
                        state.http3.saw_request();
                    }
                }
                id
            };
            match dir {
                Dir::Uni => self.read_uni(id),
                Dir::Bi => self.read_request(id),
            }
        }
    }

    /// Reads a stream with one direction.
    fn read_uni(&self, id: StreamId) {
        let now_ms = self.began.elapsed().as_millis() as u64;
        let result = self.state.borrow_mut().read_uni(id, now_ms);
        if let Err(error) = result {
            self.fail(error);
        }
    }

    /// Reads a request's head, or wakes its task.
    fn read_request(self: &Rc<Link>, id: StreamId) {
        let mut text = Vec::new();
        match self.read_head(id, &mut text) {
            Ok(None) => {}
            Ok(Some(Head { is_served: false, .. })) => {
                h2::refuse(self, id, Refusal::Scheme, text.len() as u64);
            }
            Ok(Some(Head { end_stream, .. })) => {
                let may_be_at_once = end_stream && !self.is_early();
                h2::serve_request(self, id, &text, end_stream, may_be_at_once);
            }
            Err(error) => self.broken(id, error),
        }
    }

    /// Writes a request's head into `text`, once it has come.
    fn read_head(&self, id: StreamId, text: &mut Vec<u8>) -> Result<Option<Head>, Error> {
        loop {
            let mut state = self.state.borrow_mut();
            let State { quinn, streams, early, .. } = &mut *state;
            let Some(stream) = find(streams, id) else { return Ok(None) };
            if stream.has_head {
                wake(&mut stream.shared.body_waker);
                return Ok(None);
            }
            match stream.read(quinn, id) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(_) => {
                    drop(state);
                    self.cancelled(id);
                    return Ok(None);
                }
            }
            let mut scratch = self.coding.scratch.borrow_mut();
            let (input, limits) = (stream.rest.clone(), &self.limits);
            let received =
                stream.message.next_event(&input, stream.is_end, &mut scratch, limits)?;
            stream.rest = input.slice(received.consumed..);
            let Some(Event::Request(head)) = received.event else { continue };
            stream.has_head = true;
            let priority = take_early(early, id).unwrap_or(head.priority);
            stream.set_priority(quinn, id, priority);
            // So that a request without content is known as one.
            if stream.read(quinn, id).is_err() {
                drop((state, scratch));
                self.cancelled(id);
                return Ok(None);
            }
            let end_stream = stream.rest.is_empty() && stream.is_end;
            let is_absolute = self.listener.role == config::Role::Forward;
            write_request(text, &head, is_absolute, end_stream);
            if self.is_early() {
                // RFC 8470 section 5.1.
                text.truncate(text.len() - b"\r\n".len());
                text.extend_from_slice(b"Early-Data: 1\r\n\r\n");
            }
            let is_served = head.scheme.is_none_or(|scheme| Scheme::of(scheme).is_some());
            if end_stream {
                stream.message.next_event(&[], true, &mut scratch, limits)?;
                stream.shared.is_complete = true;
            }
            return Ok(Some(Head { end_stream, is_served }));
        }
    }

    /// The client has broken a rule in a request.
    fn broken(&self, id: StreamId, error: Error) {
        if error.0.scope() == Scope::Connection {
            return self.fail(error);
        }
        tracing::debug!(peer = %self.peer, %error, "an HTTP/3 request");
        self.worker.io.counters.client_errors.add(1);
        self.write(|state| {
            let State { quinn, streams, held, .. } = state;
            match find(streams, id) {
                // RFC 9114 section 4.2.2.
                Some(stream) if error.0 == Reason::FieldsTooLarge && !stream.has_head => {
                    write::response(431, [], &mut stream.unsent);
                    stream.end();
                    let _ = stream.flush(quinn, id, held);
                    let _ = quinn.recv_stream(id).stop(number(error.0.code()));
                    if stream.has_unsent() {
                        state.stop(id, error.0.code());
                    }
                    state.remove(id);
                }
                _ => {
                    state.stop(id, error.0.code());
                    state.remove(id);
                }
            }
        });
    }

    /// The client does not want an answer any more.
    fn cancelled(&self, id: StreamId) {
        let now_ms = self.began.elapsed().as_millis() as u64;
        let is_flood = self.write(|state| {
            state.stop(id, ErrorCode::H3_REQUEST_CANCELLED);
            // As in HTTP/2, a client may cancel as many responses as it has received.
            let is_early = state.remove(id).is_some_and(|stream| !stream.shared.is_answered);
            is_early && !state.resets.take(http2::Limits::DEFAULT.resets, now_ms)
        });
        if is_flood {
            self.worker.io.counters.client_errors.add(1);
            self.close(ErrorCode::H3_EXCESSIVE_LOAD, "too many requests were cancelled");
        }
    }

    /// Sends a whole response. If the windows do not take it at once, a task waits for them.
    fn send_whole(self: &Rc<Link>, id: StreamId, response: Vec<u8>) {
        let waits = self.write(|state| {
            let State { quinn, streams, held, .. } = state;
            let Some(stream) = find(streams, id) else { return false };
            stream.unsent = response;
            stream.end();
            let waits = stream.flush(quinn, id, held).is_ok() && stream.has_unsent();
            match waits {
                true => state.tasks += 1,
                false => state.finish(id),
            }
            waits
        });
        if waits {
            let link = Rc::clone(self);
            let task = async move {
                let mut client = StreamClient::new(Rc::clone(&link), id, false);
                if client.sent_all().await.is_err() {
                    client.break_off();
                }
                link.leave(id);
            };
            runtime::spawn_detached(task);
        }
    }

    /// The handshake is not complete, so that what comes may be sent by somebody else, again (RFC
    /// 8470 section 3).
    fn is_early(&self) -> bool {
        self.tls.get().is_none()
    }

    fn facts(&self) -> Option<&dyn TlsFacts> {
        self.tls.get().map(|facts| facts as &dyn TlsFacts)
    }

    /// The task of a stream has ended.
    fn leave(&self, id: StreamId) {
        self.write(|state| {
            state.tasks -= 1;
            state.finish(id);
        });
    }

    /// Changes the state, and wakes the connection's task.
    fn write<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.borrow_mut();
        let result = f(&mut state);
        wake(&mut state.waker);
        result
    }
}

impl Server for Link {
    fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }

    fn origin(&self) -> Origin<'_> {
        Origin { listener: &self.listener, tls: self.facts(), peer: self.peer }
    }

    fn room_at_once(&self, _id: StreamId) -> Option<usize> {
        (self.state.borrow().pending() < self.held_max()).then_some(COALESCE_BYTES_MAX)
    }

    fn send_stored(
        self: &Rc<Link>,
        id: StreamId,
        stored: &Stored,
        use_: &Use<'_>,
        body_bytes: u64,
    ) {
        let mut response = Vec::with_capacity(512 + body_bytes as usize);
        write::encoded(self.coding.http3_heads.borrow_mut().encode(stored, use_), &mut response);
        if body_bytes > 0 {
            write::data(body_bytes, &mut response);
            stored.pieces.iter().for_each(|piece| response.extend_from_slice(piece));
        }
        self.send_whole(id, response);
    }

    fn send_own(self: &Rc<Link>, id: StreamId, head: &FieldList, content: &[u8]) {
        let mut encoded = Vec::new();
        write::response(head.code(), head.fields(), &mut encoded);
        write::data(content.len() as u64, &mut encoded);
        encoded.extend_from_slice(content);
        self.send_whole(id, encoded);
    }

    fn start_exchange(self: &Rc<Link>, id: StreamId, shared: SharedHead, _end_stream: bool) {
        self.state.borrow_mut().tasks += 1;
        let (link, is_early) = (Rc::clone(self), self.is_early());
        let task = async move {
            let _busy = link.worker.io.counters.connections_busy.while_here();
            let connection =
                ClientConnection { tls: link.facts(), is_early, ..ClientConnection::default() };
            let client = link.listener.client(link.peer, &shared.head());
            let request = Request::new(&link.worker, &link.listener, client, Rc::clone(&shared));
            exchange(&link, id, &shared.head(), request, connection).await;
            link.leave(id);
        };
        runtime::spawn_detached(task);
    }
}

impl Protocol for Link {
    type End = ();

    fn note_waker(&self, waker: &Waker) {
        mux::note_waker(&mut self.state.borrow_mut().waker, waker);
    }

    /// A turn: what has arrived is handled before, so that its answers are in the same datagrams.
    fn send(self: &Rc<Link>, cx: &mut Context<'_>) -> Result<(), ()> {
        self.run_timers();
        self.exchange_events();
        let mut writable = Vec::new();
        while let Some(event) = self.next_event() {
            match event {
                QuicEvent::Stream(StreamEvent::Writable { id }) => writable.push(id),
                event => self.event(event),
            }
        }
        self.writable(&mut writable);
        self.look_at_held();
        self.wake_sender();
        self.look_evicted(cx);
        self.drain();
        let is_sent = self.send_datagrams(cx);
        let state = self.state.borrow();
        let is_drained = state.quinn.is_drained();
        let is_over = if self.is_late.get() { is_drained } else { state.is_closed };
        if is_over && (is_sent || is_drained) { Err(()) } else { Ok(()) }
    }

    fn deadline(&self) -> Option<Instant> {
        let mut state = self.state.borrow_mut();
        let theirs = state.quinn.poll_timeout().map(|due| self.endpoint.clock.at(due));
        let heads = state.heads_due(self.worker.io.limits().limits.head_timeout);
        theirs.into_iter().chain(self.own_deadline(&mut state)).chain(heads).min()
    }
}

impl State {
    fn send_control(&mut self, frames: Vec<u8>) {
        let frames = [&self.control_unsent, &frames[..]].concat();
        self.control_unsent = Bytes::from_owner(self.control_held.part(frames));
        self.flush_control();
    }

    fn flush_control(&mut self) {
        let Some(id) = self.control else { return };
        while !self.control_unsent.is_empty() {
            let part = slice::from_mut(&mut self.control_unsent);
            if self.quinn.send_stream(id).write_chunks(part).is_err() {
                return;
            }
        }
    }

    fn read_uni(&mut self, id: StreamId, now_ms: u64) -> Result<(), Error> {
        let Some(at) = self.uni.iter().position(|(other, _)| *other == id) else { return Ok(()) };
        let is_over = loop {
            let State { quinn, http3, uni, .. } = self;
            let stream = &mut uni[at].1;
            let (bytes, is_end) = match read(quinn, id) {
                Read::Bytes(bytes) => (bytes, false),
                Read::End => (Bytes::new(), true),
                Read::Nothing => break false,
                Read::Reset => {
                    stream.reset()?;
                    break true;
                }
            };
            let mut used = 0;
            let mut is_unknown = false;
            let mut priorities = Vec::new();
            while let (more, Some(event)) =
                http3.next_event(stream, &bytes[used..], is_end, now_ms)?
            {
                used += more;
                match event {
                    Control::Unknown => is_unknown = true,
                    Control::Priority { stream, priority } => priorities.push((stream, priority)),
                    Control::Settings | Control::GoAway(_) => {}
                }
            }
            if is_unknown {
                let code = number(ErrorCode::H3_STREAM_CREATION_ERROR);
                let _ = quinn.recv_stream(id).stop(code);
                break true;
            }
            for (stream, priority) in priorities {
                self.reprioritize(stream, priority)?;
            }
            if is_end {
                break true;
            }
        };
        if is_over {
            self.uni.swap_remove(at);
        }
        Ok(())
    }

    /// See [`Streams::poll_content`](crate::h2::Streams::poll_content). An error without a reason:
    /// the stream is gone.
    fn read_content(
        &mut self,
        link: &Link,
        id: StreamId,
        content: &mut Vec<u8>,
        cx: &Context<'_>,
    ) -> Poll<Result<bool, Option<Error>>> {
        let State { quinn, streams, .. } = self;
        let Some(stream) = find(streams, id) else { return Poll::Ready(Err(None)) };
        while !stream.shared.is_complete && content.len() < PULL_BYTES_MAX {
            match stream.read(quinn, id) {
                Ok(true) => {}
                Ok(false) if content.is_empty() => {
                    stream.shared.body_waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                Ok(false) => break,
                Err(_) => return Poll::Ready(Err(None)),
            }
            let mut scratch = link.coding.scratch.borrow_mut();
            let input = stream.rest.clone();
            let received = stream
                .message
                .next_event(&input, stream.is_end, &mut scratch, &link.limits)
                .map_err(Some)?;
            stream.rest = input.slice(received.consumed..);
            match received.event {
                Some(Event::Data(bytes)) => content.extend_from_slice(bytes),
                Some(Event::Trailers(fields)) => {
                    stream.shared.trailers = request_trailers(fields.iter())
                }
                Some(Event::End) => stream.shared.is_complete = true,
                _ => {}
            }
        }
        Poll::Ready(Ok(stream.shared.is_complete))
    }

    /// Ends both directions of a stream, if they are open.
    fn stop(&mut self, id: StreamId, code: ErrorCode) {
        let freed_before = self.held.freed();
        let _ = self.quinn.send_stream(id).reset(number(code));
        let _ = self.quinn.recv_stream(id).stop(number(code));
        self.note_dropped(freed_before);
    }

    /// What was dropped since then, the client has not acknowledged.
    fn note_dropped(&mut self, freed_before: u64) {
        self.freed += self.held.freed() - freed_before;
    }

    /// A stream whose response is complete, or was broken off. If its request is still not
    /// complete, the client is to stop (RFC 9114 section 4.1).
    fn finish(&mut self, id: StreamId) {
        // A request that the client has cancelled has none.
        let Some(stream) = self.remove(id) else { return };
        self.resets.earn(http2::limits::RESETS_PER_RESPONSE);
        if !stream.shared.is_complete {
            let _ = self.quinn.recv_stream(id).stop(number(ErrorCode::H3_NO_ERROR));
        }
    }

    /// Takes a stream out of the table, and wakes its task.
    fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let mut stream = mux::remove(&mut self.streams, id)?;
        self.since = time::now();
        take_early(&mut self.early, id);
        stream.shared.wake();
        let freed_before = self.held.freed();
        stream.drop_part();
        self.note_dropped(freed_before);
        Some(stream)
    }
}

fn number(code: ErrorCode) -> VarInt {
    VarInt::from_u64(code.0).unwrap_or(VarInt::MAX)
}
