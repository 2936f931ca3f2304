//! One HTTP/2 connection.
//!
//! ```text
//!   accepted -> Wait --readable--> Turn: each frame --------------------------> Wait
//!                |                  |-- a request with a fresh hit: answer
//!                |                  |-- any other request: a task with an exchange
//!                |                  '-- content, resets, windows: wakes the task
//!                |--the socket takes more, or a task has written--> Send -----> Wait
//!                '--time-out, GOAWAY and no stream, close, a broken rule--------> Closed
//! ```
//!
//! [`mux::drive`] is the task of a connection. The tasks of its streams share the [`Link`]: they
//! append frames to its output and wake it. A stream that has much to send waits while the output
//! holds [`OUTPUT_BYTES_MAX`], and streams that wait go on in the order of their priorities (RFC
//! 9218).
//!
//! A client that takes too little is cut: a stream by the time for which its own window is closed,
//! the connection by the time for which the socket or the window of the connection is.

mod streams;

use std::cell::RefCell;
use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cache::stored::{Stored, Use};
use core_io::limits::OUTPUT_BYTES_MAX;
use core_io::mux::{self, Protocol, Waiting, find};
use core_io::spares::SharedHead;
use core_io::{Buffers, CoreIo};
use http1::write::{self, request_trailers};
use http1::{BodyKind, Expectation, FieldList, Method, Reject, RejectReason, Scheme};
use http2::{ErrorCode, Event, Reason, StreamId};
use outcome::Refusal;
use runtime::time::{self, Instant};
use runtime::wake;
use transport::shares::Share;

use super::message::write_request;
use super::serve::{self, Server, exchange};
use super::streams::Shared;
use crate::coding::Coding;
use crate::h1::{Accepted, end, linger};
use core_io::pace::Taking;
use exchange::client::Gone;
use exchange::limits::COALESCE_BYTES_MAX;
use exchange::listener::ListenerContext;
use exchange::logged::Origin;
use exchange::request::Request;
use exchange::routing::ClientConnection;
use exchange::upgrade;
use exchange::{Slot, Worker};

/// Bytes of frames that wait for the socket before nothing more is read.
const UNREAD_BYTES_MAX: usize = 4 * OUTPUT_BYTES_MAX;
/// Tasks of a connection. Those of streams that were reset go on until their upstream has answered.
const TASKS_MAX: usize = 256;
/// Empty outputs that a core keeps.
const OUTPUTS_SPARE_MAX: usize = 16;
/// How long a connection is idle before it gives memory back.
const SHRINK_AFTER: Duration = Duration::from_secs(1);
/// How long a GET that may have content waits for the frame that says whether it has.
const EMPTY_WAIT: Duration = Duration::from_millis(100);

/// A connection, shared with the tasks of its streams.
pub(super) struct Link {
    pub(super) worker: Rc<Worker>,
    coding: Rc<Coding>,
    pub(super) listener: Rc<ListenerContext>,
    pub(super) accepted: Accepted,
    /// Its place in the table, until the last of its tasks has ended: so long it has a descriptor.
    _slot: Slot,
    began: Instant,
    state: RefCell<State>,
}

struct State {
    http2: http2::Connection,
    /// The beginning of a frame that has not come whole.
    kept: Vec<u8>,
    /// Frames that the socket has not taken.
    out: Vec<u8>,
    /// Streams with a task.
    streams: Vec<(StreamId, Stream)>,
    /// The connection's task.
    waker: Option<Waker>,
    /// The highest stream that was reported.
    last_stream: StreamId,
    taking: Taking,
    /// Bytes of the output that are accounted for as held.
    held: u64,
    /// Tasks of streams, those of streams that are gone included.
    tasks: usize,
    /// Steps of the shutdown that were taken.
    drain_steps: u8,
    /// When a stream was last opened or closed.
    since: Instant,
    /// It has given memory back since then.
    is_small: bool,
    /// A head that has not come whole: since when, and the memory that it holds.
    head: Option<Box<(Instant, Share)>>,
}

/// A stream with a task.
#[derive(Default)]
struct Stream {
    /// Content of the request that was not pulled.
    received: Vec<u8>,
    shared: Shared,
}

impl Waiting for Stream {
    fn waits_for_room(&self) -> bool {
        self.shared.room_waker.is_some()
    }
}

/// How the connection ends.
pub(super) enum Over {
    /// The client has gone.
    Gone,
    /// By us, and the client may still read.
    Orderly,
    /// The client takes too little.
    Cut,
}

/// Serves a connection that begins with these bytes, which are those of HTTP/2.
pub(crate) async fn serve(
    slot: Slot,
    listener: Rc<ListenerContext>,
    accepted: Accepted,
    first: Vec<u8>,
) {
    let worker = Rc::clone(&slot.worker);
    let mut out = Vec::new();
    let mut limits = http2::Limits::DEFAULT;
    limits.extended_connect = upgrade::allows_websocket(&worker.snapshot().config.upgrades);
    let http2 = http2::Connection::server(&limits, &mut out);
    let state = State {
        http2,
        kept: first,
        out,
        streams: Vec::new(),
        waker: None,
        last_stream: 0,
        taking: Taking::default(),
        held: 0,
        tasks: 0,
        drain_steps: 0,
        since: time::now(),
        is_small: false,
        head: None,
    };
    let link = Rc::new(Link {
        worker,
        coding: Coding::of_core(),
        listener,
        accepted,
        _slot: slot,
        began: time::now(),
        state: RefCell::new(state),
    });
    let begun = link.turn(|kept, input| Ok(mux::take_kept(kept, input)));
    link.state.borrow_mut().kept.shrink_to_fit();
    let over = match begun {
        Ok(()) => mux::drive(&link).await,
        Err(over) => over,
    };
    link.close();
    let (io, stream) = (&link.worker.io, &link.accepted.stream);
    match over {
        Over::Orderly => {
            // So that the client reads all that was sent before it learns of the close.
            linger(io, stream).await;
            end(io, stream).await;
        }
        Over::Gone => end(io, stream).await,
        Over::Cut => drop(stream.set_linger0()),
    }
    // Tasks of its streams may hold the link for a while.
    let _ = link.accepted.stream.shutdown(Shutdown::Both);
}

impl Link {
    /// Ends a connection without streams.
    fn say_goodbye(&self, state: &mut State) -> Over {
        state.http2.abort(ErrorCode::NO_ERROR, &mut state.out);
        // A client that does not take it sees the close.
        let _ = self.accepted.stream.try_write(&state.out);
        Over::Orderly
    }

    /// The same at once, because others need its place or its memory.
    fn make_room(&self, state: &mut State) -> Over {
        self.say_goodbye(state);
        Over::Gone
    }

    /// The end of the connection of a client that takes too little.
    fn cut(&self) -> Over {
        self.worker.io.counters.timeouts.add(1);
        Over::Cut
    }

    /// The clock of `http2`.
    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Gives the memory of an empty output to the next connection that writes.
    fn give_back(&self, out: &mut Vec<u8>) {
        let mut spare = self.coding.outputs.borrow_mut();
        if out.capacity() > 0 && spare.len() < OUTPUTS_SPARE_MAX {
            out.shrink_to(OUTPUT_BYTES_MAX);
            spare.push(std::mem::take(out));
        } else {
            *out = Vec::new();
        }
    }

    /// Handles the whole frames that `fill` gives.
    fn turn(
        self: &Rc<Link>,
        fill: impl FnOnce(&mut Vec<u8>, &mut [u8]) -> io::Result<usize>,
    ) -> Result<(), Over> {
        self.worker.io.with_buffers(|Buffers { input, output }| {
            let filled = fill(&mut self.state.borrow_mut().kept, input).map_err(|_| Over::Gone)?;
            let consumed = self.frames(&input[..filled], output)?;
            let state = &mut *self.state.borrow_mut();
            state.kept.extend_from_slice(&input[consumed..filled]);
            self.note_head(state);
            Ok(())
        })
    }

    /// Sees whether a head has not come whole.
    fn note_head(&self, state: &mut State) {
        match state.http2.head_bytes(&state.kept) {
            None => state.head = None,
            Some(bytes) => {
                let new = || {
                    let share = self.worker.io.heads.share(self.accepted.peer.ip());
                    Box::new((time::now(), share))
                };
                state.head.get_or_insert_with(new).1.set(bytes as u64);
            }
        }
    }

    /// Ends a connection whose head takes too long, or whose memory is needed.
    fn look_at_head(&self, state: &mut State, cx: &mut Context<'_>) -> Option<Over> {
        let (since, share) = &**state.head.as_ref()?;
        let io = &self.worker.io;
        if share.poll_evicted(cx).is_ready() {
            return Some(self.make_room(state));
        }
        if since.elapsed() < io.limits().limits.head_timeout {
            return None;
        }
        io.counters.timeouts.add(1);
        let now_ms = time::wall_ms();
        self.origin().refused(io, Refusal::HeadTimeout, 0, b"", now_ms);
        Some(self.say_goodbye(state))
    }

    /// Handles the frames in this input, and returns how much of it they were. `text` is room for
    /// heads.
    fn frames(self: &Rc<Link>, input: &[u8], text: &mut Vec<u8>) -> Result<usize, Over> {
        let now_ms = self.now_ms();
        {
            let out = &mut self.state.borrow_mut().out;
            if out.capacity() == 0 {
                *out = self.coding.outputs.borrow_mut().pop().unwrap_or_default();
            }
        }
        let mut scratch = self.coding.scratch.borrow_mut();
        let mut at = 0;
        loop {
            let mut state = self.state.borrow_mut();
            let State { http2, out, streams, last_stream, .. } = &mut *state;
            let received = match http2.next_event(&input[at..], &mut scratch, now_ms, out) {
                Ok(received) => received,
                Err(error) => {
                    // GOAWAY says why.
                    let _ = self.accepted.stream.try_write(&state.out);
                    drop(state);
                    self.malformed(error.0, false);
                    return Err(Over::Orderly);
                }
            };
            at += received.consumed;
            let Some(event) = received.event else { return Ok(at) };
            match event {
                Event::Request { stream, head, end_stream } => {
                    *last_stream = stream;
                    (state.since, state.is_small) = (time::now(), false);
                    text.clear();
                    let is_absolute = self.listener.role == config::Role::Forward;
                    write_request(text, &head, is_absolute, end_stream);
                    drop(state);
                    match head.scheme.is_none_or(|scheme| Scheme::of(scheme).is_some()) {
                        true => serve::serve(self, stream, text, end_stream, end_stream),
                        false => {
                            serve::refuse(self, stream, Refusal::Scheme, text.len() as u64);
                        }
                    }
                }
                Event::Data { stream, bytes, end_stream } => match find(streams, stream) {
                    Some(found) => {
                        found.received.extend_from_slice(bytes);
                        found.shared.is_complete |= end_stream;
                        wake(&mut found.shared.body_waker);
                    }
                    // Its answer is complete.
                    None => http2.release(stream, bytes.len(), out),
                },
                Event::Trailers { stream, fields } => {
                    if let Some(found) = find(streams, stream) {
                        found.shared.trailers = request_trailers(fields.iter());
                        found.shared.is_complete = true;
                        wake(&mut found.shared.body_waker);
                    }
                }
                Event::Reset { stream, .. } => state.forget(stream),
                Event::StreamError { stream, reason } if stream > *last_stream => {
                    *last_stream = stream;
                    drop(state);
                    self.malformed(reason, true);
                }
                // Its exchange is logged, or has been.
                Event::StreamError { stream, reason } => {
                    tracing::debug!(peer = %self.accepted.peer, ?reason, "an HTTP/2 stream");
                    self.worker.io.counters.client_errors.add(1);
                    state.forget(stream);
                }
                Event::WindowOpened { stream: Some(stream) } => {
                    if let Some(found) = find(streams, stream) {
                        wake(&mut found.shared.room_waker);
                    }
                }
                Event::WindowOpened { stream: None } | Event::SettingsChanged => {
                    streams.iter_mut().for_each(|(_, stream)| wake(&mut stream.shared.room_waker));
                }
                _ => {}
            }
        }
    }

    /// Counts and logs a request, or a connection, that is no HTTP/2.
    #[cold]
    fn malformed(&self, reason: Reason, is_request: bool) {
        tracing::debug!(peer = %self.accepted.peer, %reason, "an HTTP/2 client");
        let mut response = Vec::new();
        let refusal = match (reason, reason.code()) {
            (Reason::FieldsTooLarge, _) if is_request => {
                // That is the whole answer of `http2`.
                write::status_line(&mut response, 431);
                write::end(&mut response);
                Refusal::Malformed(Reject::request(RejectReason::HeadTooLarge))
            }
            (_, ErrorCode::ENHANCE_YOUR_CALM | ErrorCode::REFUSED_STREAM) => Refusal::Http2Limit,
            _ => Refusal::Http2Malformed,
        };
        self.origin().refused(&self.worker.io, refusal, 0, &response, time::wall_ms());
    }

    /// Whether the stream ends without content: waits a little for the frame that says so.
    async fn ends(&self, stream: StreamId) -> bool {
        let arrived = std::future::poll_fn(|cx| self.poll_arrived(stream, cx));
        let _ = time::timeout(EMPTY_WAIT, arrived).await;
        let state = &mut *self.state.borrow_mut();
        find(&mut state.streams, stream)
            .is_some_and(|it| it.shared.is_complete && it.received.is_empty())
    }

    /// Ready if content has come, or its end, or the end of the stream.
    fn poll_arrived(&self, stream: StreamId, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        match find(&mut self.state.borrow_mut().streams, stream) {
            None => Poll::Ready(Err(Gone)),
            Some(found) if found.received.is_empty() && !found.shared.is_complete => {
                found.shared.body_waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(_) => Poll::Ready(Ok(())),
        }
    }

    /// The task of a stream has ended. If its request is still not complete, the client is to stop
    /// (RFC 9113 section 8.1).
    fn leave(&self, stream: StreamId) {
        self.write(|state| {
            state.tasks -= 1;
            if state.tasks == 0 {
                self.worker.io.counters.connections_busy.sub(1);
            }
            let Some(left) = state.remove(stream) else { return };
            let State { http2, out, .. } = state;
            match left.shared.is_complete {
                true => http2.release(stream, left.received.len(), out),
                false => http2.reset(stream, ErrorCode::NO_ERROR, out),
            }
        });
    }

    /// Changes the state, and wakes the connection's task.
    fn write<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.borrow_mut();
        let result = f(&mut state);
        wake(&mut state.waker);
        result
    }

    /// The connection is over: its streams are gone.
    fn close(&self) {
        let mut state = self.state.borrow_mut();
        state.streams.drain(..).for_each(|(_, mut stream)| stream.shared.wake());
        let State { http2, out, .. } = &mut *state;
        http2.abort(ErrorCode::NO_ERROR, out);
        (state.out, state.kept, state.head) = (Vec::new(), Vec::new(), None);
        state.hold(&self.worker.io);
    }
}

impl Server for Link {
    fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }

    fn origin(&self) -> Origin<'_> {
        let Accepted { stream, peer, .. } = &self.accepted;
        Origin { listener: &self.listener, tls: stream.tls(), peer: *peer }
    }

    fn room_at_once(&self, stream: StreamId) -> Option<usize> {
        let State { http2, out, .. } = &*self.state.borrow();
        let capacity = http2.send_data_capacity(stream).min(COALESCE_BYTES_MAX);
        (out.len() <= OUTPUT_BYTES_MAX).then_some(capacity)
    }

    fn send_stored(
        self: &Rc<Link>,
        stream: StreamId,
        stored: &Stored,
        use_: &Use<'_>,
        body_bytes: u64,
    ) {
        let State { http2, out, .. } = &mut *self.state.borrow_mut();
        let mut left = body_bytes;
        let mut heads = self.coding.http2_heads.borrow_mut();
        let block = heads.encode(stored, use_);
        // The stream was opened by this request, and its windows are large enough.
        let mut sent = http2.send_encoded_response(stream, block, left == 0, out);
        for piece in stored.pieces.iter().take_while(|_| body_bytes > 0) {
            left -= piece.len() as u64;
            let was_sent = http2.send_data(stream, piece, left == 0, out).map(drop);
            sent = sent.and(was_sent);
        }
        debug_assert_eq!(sent, Ok(()));
    }

    fn send_own(self: &Rc<Link>, stream: StreamId, head: &FieldList, content: &[u8]) {
        let State { http2, out, .. } = &mut *self.state.borrow_mut();
        // The stream was opened by this request. A window that is too small cuts the text.
        let _ = http2.send_response(stream, head.code(), head.fields(), content.is_empty(), out);
        let _ = http2.send_data(stream, content, true, out);
        http2.reset(stream, ErrorCode::NO_ERROR, out);
    }

    fn start_exchange(self: &Rc<Link>, stream: StreamId, mut shared: SharedHead, end_stream: bool) {
        let mut new = Stream::default();
        new.shared.is_complete = end_stream;
        {
            let mut state = self.state.borrow_mut();
            let State { http2, out, streams, tasks, .. } = &mut *state;
            if *tasks == TASKS_MAX {
                return http2.reset(stream, ErrorCode::REFUSED_STREAM, out);
            }
            if *tasks == 0 {
                self.worker.io.counters.connections_busy.add(1);
            }
            *tasks += 1;
            streams.push((stream, new));
        }
        let link = Rc::clone(self);
        let task = async move {
            let head = shared.head();
            let is_awaited = head.expectation() != Expectation::None;
            let is_get = matches!(head.method, Method::Get | Method::Head);
            if is_get && head.body() == BodyKind::Chunked && !is_awaited && link.ends(stream).await
            {
                Rc::make_mut(&mut shared).end_without_content();
            }
            let Accepted { stream: transport, peer, original_destination } = &link.accepted;
            let connection = ClientConnection {
                original_destination: original_destination.as_deref().copied(),
                stream: Some(transport),
                tls: transport.tls(),
                is_early: false,
            };
            let client = link.listener.client(*peer, &shared.head());
            let request = Request::new(&link.worker, &link.listener, client, Rc::clone(&shared));
            exchange(&link, stream, &shared.head(), request, connection).await;
            link.leave(stream);
        };
        runtime::spawn_detached(task);
    }
}

impl Protocol for Link {
    type End = Over;

    fn note_waker(&self, waker: &Waker) {
        mux::note_waker(&mut self.state.borrow_mut().waker, waker);
    }

    fn send(self: &Rc<Link>, cx: &mut Context<'_>) -> Result<(), Over> {
        let (io, stream) = (&self.worker.io, &self.accepted.stream);
        let state = &mut *self.state.borrow_mut();
        if io.is_draining() {
            state.drain(io.closes_silent() && state.streams.is_empty());
        }
        if io.cuts_tunnels() {
            state.streams.iter_mut().for_each(|(_, stream)| stream.shared.wake());
        }
        let State { out, http2, taking, .. } = state;
        let mut has_moved = false;
        let is_sent = mux::write(stream, out, cx, |bytes| {
            io.counters.bytes_sent.add(bytes as u64);
            http2.note_sent(bytes);
            taking.moved(bytes);
            has_moved |= bytes > 0;
        });
        let is_sent = is_sent.map_err(|_| Over::Gone)?;
        state.wake_sender();
        state.hold(io);
        // What moves while a window is closed are only answers to control frames.
        let for_window = state.waits_for_window();
        let waits = !is_sent || for_window;
        let limits = &io.limits().limits;
        if state.taking.is_too_slow(limits, has_moved && !for_window, waits, waits) {
            return Err(self.cut());
        }
        if state.out.is_empty() && state.streams.is_empty() {
            if state.http2.is_drained() {
                return Err(Over::Orderly);
            }
            self.give_back(&mut state.out);
        }
        Ok(())
    }

    /// A client that does not read our answers is not read either.
    fn receive(self: &Rc<Link>, cx: &mut Context<'_>) -> Result<bool, Over> {
        let stream = &self.accepted.stream;
        if self.state.borrow().out.len() >= UNREAD_BYTES_MAX {
            return Ok(false);
        }
        match stream.poll_readable(cx) {
            Poll::Pending => return Ok(false),
            Poll::Ready(readable) => readable.map_err(|_| Over::Gone)?,
        }
        let received = |bytes| self.worker.io.counters.bytes_received.add(bytes as u64);
        self.turn(|kept, input| mux::fill(stream, kept, input, received)).map(|()| true)
    }

    fn look(self: &Rc<Link>, cx: &mut Context<'_>) -> Result<(), Over> {
        let state = &mut *self.state.borrow_mut();
        let is_idle = state.streams.is_empty();
        if is_idle && self.worker.io.takes_room_of(state.since, self.accepted.peer.ip()) {
            return Err(self.make_room(state));
        }
        self.look_at_head(state, cx).map_or(Ok(()), Err)
    }

    /// When a connection without streams gives memory back, and when it ends; or when a connection
    /// ends that takes nothing, or whose head does not come.
    fn deadline(&self) -> Option<Instant> {
        let (state, in_force) = (self.state.borrow(), self.worker.io.limits());
        if let Some(due) = state.taking.due(&in_force.limits) {
            return Some(due);
        }
        let idle = in_force.limits.idle_keep_alive;
        let due = match (state.streams.is_empty(), state.is_small) {
            (false, _) => None,
            (true, true) => Some(state.since + idle),
            (true, false) => Some(state.since + idle.min(SHRINK_AFTER)),
        };
        let head = state.head.as_ref().map(|head| head.0 + in_force.limits.head_timeout);
        due.into_iter().chain(head).min()
    }

    fn due(self: &Rc<Link>) -> Result<(), Over> {
        let state = &mut *self.state.borrow_mut();
        if state.taking.due(&self.worker.io.limits().limits).is_some() {
            return Err(self.cut());
        }
        if state.is_small {
            return Err(self.say_goodbye(state));
        }
        state.is_small = true;
        state.http2.shrink();
        state.streams.shrink_to_fit();
        Ok(())
    }
}

impl State {
    /// Announces the end of the connection; the second step is for one without streams.
    fn drain(&mut self, at_once: bool) {
        let steps = if at_once { 2 } else { 1 };
        while self.drain_steps < steps {
            self.drain_steps += 1;
            self.http2.go_away(&mut self.out);
        }
    }

    /// Takes a stream out of the table.
    fn remove(&mut self, stream: StreamId) -> Option<Stream> {
        let removed = mux::remove(&mut self.streams, stream)?;
        self.since = time::now();
        Some(removed)
    }

    /// The client has ended a stream: its task is to notice.
    fn forget(&mut self, stream: StreamId) {
        if let Some(mut stream) = self.remove(stream) {
            stream.shared.wake();
        }
    }

    /// Wakes the stream that may send next. What it sends wakes the connection, and so the next
    /// stream: one that is awake does not count among those that wait for their turn.
    fn wake_sender(&mut self) {
        if self.out.len() < OUTPUT_BYTES_MAX
            && self.has_waiting()
            && !planted::is(planted::Bug::Http2WindowUnnoticed)
            && let Some(next) = self.http2.next_to_send()
            && let Some(stream) = find(&mut self.streams, next)
        {
            wake(&mut stream.shared.room_waker);
        }
    }

    /// Whether streams wait for the window of the connection.
    fn waits_for_window(&self) -> bool {
        self.http2.connection_window() == 0 && self.has_waiting()
    }

    /// Whether streams wait for room.
    fn has_waiting(&self) -> bool {
        self.streams.iter().any(|(_, stream)| stream.waits_for_room())
    }

    /// Accounts for the output.
    fn hold(&mut self, io: &CoreIo) {
        let held = self.out.len() as u64;
        if held > self.held {
            io.hold(held - self.held);
        } else if held < self.held {
            io.release(self.held - held);
        }
        self.held = held;
    }
}
