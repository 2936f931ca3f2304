//! One HTTP/2 connection to an upstream, and the requests on it.
//!
//! ```text
//!   connected -> Opening --SETTINGS--> Open --GOAWAY, a time-out, idle for too long--> Closing
//!                   |                   |  takes requests                                |
//!                   |                   |                           its last request ends|
//!                   '-------------------'--the peer closes, or breaks a rule----------> Over
//! ```
//!
//! [`mux::drive`] is the task of a connection. A request holds a [`Slot`]: it appends frames to the
//! output and wakes the task. Content that has come waits in its stream until the exchange takes
//! it, and is released to the upstream only then.
//!
//! Who owns: the task and the slots own the link; the table in `links` knows it while it is open.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use core_io::CoreIo;
use core_io::mux::{self, Protocol, Waiting, find, others_wait};
use http1::{trailer_fields, write};
use http2::limits::FRAME_BYTES;
use http2::{Connection, ErrorCode, Event, Misuse, Reason, RequestFields, Scratch, StreamId};
use outcome::Fault;
use runtime::time::{self, Instant};
use runtime::wake;
use transport::Transport;

use super::Opening;
use super::message::write_response;
use crate::Times;
use crate::limits::{
    HTTP2, INTERIM_HEADS_BYTES_MAX, OUTPUT_BYTES_MAX, SILENT_MAX, STREAMS_MAX, UNREAD_BYTES_MAX,
};

/// A connection.
pub(crate) struct Link {
    io: Rc<CoreIo>,
    scratch: Rc<RefCell<Scratch>>,
    stream: Rc<Transport>,
    began: Instant,
    /// How long it may take to open.
    opening_max: Duration,
    state: RefCell<State>,
}

struct State {
    http2: Connection,
    /// The beginning of a frame that has not come whole.
    kept: Vec<u8>,
    /// Frames that the socket has not taken.
    out: Vec<u8>,
    /// Requests that were sent and still have their slot.
    streams: Vec<(StreamId, Stream)>,
    /// Slots that exist.
    slots: usize,
    /// The connection's task.
    waker: Option<Waker>,
    /// For the requests that wait for this connection to open.
    opening: Option<Opening>,
    phase: Phase,
    /// It counts as idle.
    is_idle: bool,
    /// When it became idle.
    since: Instant,
    /// When something was last received.
    read_at: Instant,
    /// When a sign of life was asked for, which has not come.
    pinged_at: Option<Instant>,
}

/// Drawn in the header of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    Open,
    /// No further request.
    Closing,
    Over,
}

/// A request that was sent.
#[derive(Default)]
struct Stream {
    is_head: bool,
    /// Heads that were not read yet, as HTTP/1 writes them.
    heads: Vec<u8>,
    /// Content that was not taken yet.
    received: Vec<u8>,
    /// The trailers, as field lines.
    trailers: Vec<u8>,
    /// The response is complete.
    is_complete: bool,
    /// The response is an error: the rest of the request waits for no window.
    is_error: bool,
    /// A part of the request was left out, and so is what follows it.
    has_gap: bool,
    /// Our end was sent.
    has_sent_all: bool,
    failure: Option<Failure>,
    /// When content was last sent.
    sent_at: Option<Instant>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Why a response will not be complete.
#[derive(Clone, Copy, Debug)]
struct Failure {
    fault: Fault,
    unprocessed: Option<Unprocessed>,
}

/// The upstream has not processed the request, so it may be sent again, whatever its method
/// (RFC 9113, 8.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unprocessed {
    /// The connection has come to its end, and others on it were processed.
    Turnover,
    /// The upstream refused it.
    Refused,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Link {
    /// Speaks HTTP/2 on a new connection, which takes one request. If there is an `opening`, it
    /// takes others too, once the upstream's SETTINGS say how many.
    pub(crate) fn start(
        io: &Rc<CoreIo>,
        scratch: &Rc<RefCell<Scratch>>,
        stream: Transport,
        opening: Option<Opening>,
        opening_max: Duration,
    ) -> Slot {
        let mut out = Vec::new();
        let http2 = Connection::client(&HTTP2, &mut out);
        let phase = if opening.is_some() { Phase::Opening } else { Phase::Closing };
        let now = time::now();
        let state = State {
            http2,
            kept: Vec::new(),
            out,
            streams: Vec::new(),
            slots: 0,
            waker: None,
            opening,
            phase,
            is_idle: false,
            since: now,
            read_at: now,
            pinged_at: None,
        };
        let link = Rc::new(Link {
            io: Rc::clone(io),
            scratch: Rc::clone(scratch),
            stream: Rc::new(stream),
            began: now,
            opening_max,
            state: RefCell::new(state),
        });
        let task = Rc::clone(&link);
        let task = async move {
            let fault = mux::drive(&task).await;
            task.close(fault);
            task.stream.end_inside();
        };
        runtime::spawn_detached(task);
        link.slot()
    }

    fn slot(self: &Rc<Link>) -> Slot {
        let mut state = self.state.borrow_mut();
        state.slots += 1;
        self.set_idle(&mut state, false);
        Slot { link: Rc::clone(self), id: Cell::new(None), refused: Cell::new(None) }
    }

    /// A place for another request, if the connection takes one now.
    pub(super) fn enter(self: &Rc<Link>) -> Option<Slot> {
        let has_room = {
            let state = self.state.borrow();
            let streams_max = state.http2.peer_settings().streams_max as usize;
            // What has come on an idle connection is most likely its end.
            let is_ending = state.slots == 0 && self.stream.has_unread_event();
            let is_silent = state.pinged_at.is_some_and(|since| since.elapsed() >= SILENT_MAX);
            let is_stuck = is_silent || state.out.len() >= UNREAD_BYTES_MAX;
            !is_ending
                && !is_stuck
                && state.phase == Phase::Open
                && state.slots < streams_max.min(STREAMS_MAX)
        };
        has_room.then(|| self.slot())
    }

    /// Whether it may take further requests.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state.borrow().phase, Phase::Opening | Phase::Open)
    }

    /// How long it has been without requests; `None` if it has some.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        let state = self.state.borrow();
        state.is_idle.then(|| state.since.elapsed())
    }

    /// Takes no further request, and ends after those that it has.
    pub(super) fn retire(&self) {
        let mut state = self.state.borrow_mut();
        if state.phase != Phase::Over {
            state.phase = Phase::Closing;
        }
        self.end_if_unused(&mut state);
    }

    /// Gives back memory that an idle connection does not need.
    pub(super) fn shrink(&self) {
        let mut state = self.state.borrow_mut();
        state.http2.shrink();
        if state.out.is_empty() {
            state.out = Vec::new();
        }
    }

    fn end_if_unused(&self, state: &mut State) {
        if state.slots == 0 && state.phase == Phase::Closing {
            self.set_idle(state, false);
            state.http2.go_away(&mut state.out);
            wake(&mut state.waker);
        }
    }

    fn set_idle(&self, state: &mut State, is_idle: bool) {
        match (state.is_idle, is_idle) {
            (false, true) => self.io.counters.upstream_idle.add(1),
            (true, false) => self.io.counters.upstream_idle.sub(1),
            _ => {}
        }
        state.is_idle = is_idle;
    }

    /// Handles the frames in this input, and returns how much of it they were.
    fn frames(&self, input: &[u8]) -> Result<usize, Fault> {
        let mut scratch = self.scratch.borrow_mut();
        let state = &mut *self.state.borrow_mut();
        state.read_at = time::now();
        state.pinged_at = None;
        let mut at = 0;
        loop {
            let (http2, out) = (&mut state.http2, &mut state.out);
            let next = http2.next_event(&input[at..], &mut scratch, self.now_ms(), out);
            let received = next.map_err(|error| {
                tracing::debug!(%error, "an HTTP/2 upstream");
                // GOAWAY says why.
                let _ = self.stream.try_write(&state.out);
                match input.starts_with(b"HTTP/1.") {
                    true => Fault::Http2(Reason::Preface),
                    false => Fault::Http2(error.0),
                }
            })?;
            at += received.consumed;
            let Some(event) = received.event else { return Ok(at) };
            self.handle(event, state);
        }
    }

    fn handle(&self, event: Event<'_>, state: &mut State) {
        let State { http2, out, streams, .. } = state;
        match event {
            Event::Response { stream: id, head, end_stream } => {
                let Some(stream) = find(streams, id) else { return };
                let written = match stream.heads.len() > INTERIM_HEADS_BYTES_MAX {
                    true => Err(Fault::Interim),
                    false => write_response(&mut stream.heads, &head, stream.is_head, end_stream),
                };
                if let Err(fault) = written {
                    http2.reset(id, ErrorCode::PROTOCOL_ERROR, out);
                    return stream.fail(fault, None);
                }
                stream.is_error |= head.status >= 400;
                stream.arrived(end_stream);
            }
            Event::Data { stream: id, bytes, end_stream } => match find(streams, id) {
                Some(stream) => {
                    self.io.hold(bytes.len() as u64);
                    stream.received.extend_from_slice(bytes);
                    stream.arrived(end_stream);
                }
                None => http2.release(id, bytes.len(), out),
            },
            Event::Trailers { stream, fields } => {
                let Some(stream) = find(streams, stream) else { return };
                stream.trailers = write::trailer_lines(fields.iter());
                stream.arrived(true);
            }
            Event::Reset { stream, code } => {
                let refused = code == ErrorCode::REFUSED_STREAM;
                if let Some(stream) = find(streams, stream) {
                    stream.fail(Fault::Broken, refused.then_some(Unprocessed::Refused));
                }
            }
            Event::StreamError { stream, reason } => {
                tracing::debug!(%reason, "an HTTP/2 response");
                if let Some(stream) = find(streams, stream) {
                    stream.fail(Fault::Http2(reason), None);
                }
            }
            Event::GoAway { last_stream, .. } => {
                state.phase = Phase::Closing;
                let why = match last_stream {
                    0 => Unprocessed::Refused,
                    _ => Unprocessed::Turnover,
                };
                for (_, stream) in streams.iter_mut().filter(|(id, _)| *id > last_stream) {
                    stream.fail(Fault::Broken, Some(why));
                }
                if let Some(opening) = state.opening.take() {
                    opening.end(Err(Fault::Broken));
                }
                self.end_if_unused(state);
            }
            Event::SettingsChanged => {
                if state.phase == Phase::Opening {
                    state.phase = Phase::Open;
                }
                if let Some(opening) = state.opening.take() {
                    opening.end(Ok(()));
                }
                state.wake_writers();
            }
            Event::WindowOpened { .. } => state.wake_writers(),
            _ => {}
        }
    }

    /// The connection is over.
    fn close(&self, fault: Fault) {
        let state = &mut *self.state.borrow_mut();
        state.phase = Phase::Over;
        state.kept = Vec::new();
        self.set_idle(state, false);
        if let Some(opening) = state.opening.take() {
            opening.end(Err(fault));
        }
        state.streams.iter_mut().for_each(|(_, stream)| stream.fail(fault, None));
        state.http2.abort(ErrorCode::NO_ERROR, &mut state.out);
    }

    /// The clock of `http2`.
    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Changes the state, and wakes the connection's task.
    fn write<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.borrow_mut();
        let result = f(&mut state);
        wake(&mut state.waker);
        result
    }
}

impl Protocol for Link {
    type End = Fault;

    fn note_waker(&self, waker: &Waker) {
        mux::note_waker(&mut self.state.borrow_mut().waker, waker);
    }

    fn send(self: &Rc<Link>, cx: &mut Context<'_>) -> Result<(), Fault> {
        let state = &mut *self.state.borrow_mut();
        let (mut has_sent, http2) = (false, &mut state.http2);
        let is_sent = mux::write(&self.stream, &mut state.out, cx, |bytes| {
            self.io.counters.upstream_bytes_sent.add(bytes as u64);
            http2.note_sent(bytes);
            has_sent = true;
        });
        let is_sent = is_sent.map_err(|_| Fault::Broken)?;
        if has_sent {
            state.wake_writers();
        }
        let has_no_use = state.slots == 0 && state.phase == Phase::Closing;
        let is_drained = state.out.is_empty() && state.http2.is_drained();
        if is_drained || (!is_sent && has_no_use) { Err(Fault::Broken) } else { Ok(()) }
    }

    /// Reads, and handles whole frames. An upstream that does not read our frames is not read
    /// either.
    fn receive(self: &Rc<Link>, cx: &mut Context<'_>) -> Result<bool, Fault> {
        let is_stuck = self.state.borrow().out.len() >= UNREAD_BYTES_MAX;
        if is_stuck {
            return Ok(false);
        }
        match self.stream.poll_readable(cx) {
            Poll::Pending => return Ok(false),
            Poll::Ready(readable) => readable.map_err(|_| Fault::Broken)?,
        }
        self.io.with_input(|input| {
            let received = |bytes| self.io.counters.upstream_bytes_received.add(bytes as u64);
            let filled =
                mux::fill(&self.stream, &mut self.state.borrow_mut().kept, input, received)
                    .map_err(|error| Fault::of_read(&error))?;
            let consumed = self.frames(&input[..filled])?;
            self.state.borrow_mut().kept.extend_from_slice(&input[consumed..filled]);
            Ok(true)
        })
    }

    fn deadline(&self) -> Option<Instant> {
        let is_opening = self.state.borrow().phase == Phase::Opening;
        is_opening.then(|| self.began + self.opening_max)
    }

    fn due(self: &Rc<Link>) -> Result<(), Fault> {
        Err(Fault::Timeout)
    }
}

impl State {
    /// Wakes the requests that wait for room.
    fn wake_writers(&mut self) {
        if self.out.len() < OUTPUT_BYTES_MAX {
            for (_, stream) in &mut self.streams {
                wake(&mut stream.writer);
            }
        }
    }
}

impl Waiting for Stream {
    fn waits_for_room(&self) -> bool {
        self.writer.is_some()
    }
}

impl Stream {
    /// A part of the response has come, or the end of it.
    fn arrived(&mut self, is_end: bool) {
        self.is_complete |= is_end;
        wake(&mut self.reader);
        if self.is_complete || self.is_error {
            // It may wait for a window that stays closed.
            wake(&mut self.writer);
        }
    }

    /// Its response will not be complete, unless it is.
    fn fail(&mut self, fault: Fault, unprocessed: Option<Unprocessed>) {
        if !self.is_complete {
            self.failure.get_or_insert(Failure { fault, unprocessed });
        }
        wake(&mut self.reader);
        wake(&mut self.writer);
    }

    fn fault(&self) -> Option<Fault> {
        self.failure.map(|failure| failure.fault)
    }
}

/// A place for one request on a connection. If it is dropped before the response is complete, the
/// stream is reset.
#[derive(Debug)]
pub(crate) struct Slot {
    link: Rc<Link>,
    id: Cell<Option<StreamId>>,
    /// The request could not be sent.
    refused: Cell<Option<Unprocessed>>,
}

impl Slot {
    /// The link, for the table.
    pub(super) fn link(&self) -> &Rc<Link> {
        &self.link
    }

    /// The connection.
    pub(crate) fn transport(&self) -> &Rc<Transport> {
        &self.link.stream
    }

    /// Sends the head of a request. `ends`: there is no content.
    pub(crate) fn send_head<'f>(
        &self,
        pseudo: &RequestFields<'_>,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        ends: bool,
    ) -> Result<(), Fault> {
        let is_head = pseudo.method == b"HEAD";
        let sent = self.link.write(|State { http2, out, streams, read_at, pinged_at, .. }| {
            if pinged_at.is_none() && read_at.elapsed() >= SILENT_MAX {
                *pinged_at = Some(time::now());
                http2.ping(*b"plimsoll", out);
            }
            let id = http2.send_request(pseudo, fields, ends, out)?;
            let stream = Stream { is_head, has_sent_all: ends, ..Stream::default() };
            streams.push((id, stream));
            Ok::<_, Misuse>(id)
        });
        match sent {
            Ok(id) => {
                self.id.set(Some(id));
                Ok(())
            }
            Err(_) => {
                self.refused.set(Some(Unprocessed::Refused));
                Err(Fault::Broken)
            }
        }
    }

    /// Sends content, waiting for room no longer than the upstream may idle. `ends`: it is the
    /// last. What the upstream does not want any more, because it has answered, is not sent.
    pub(crate) async fn send_content(
        &self,
        mut content: &[u8],
        ends: bool,
        times: &Times,
    ) -> Result<(), Fault> {
        loop {
            let sent = self.send_some(content, ends)?;
            content = &content[sent..];
            if content.is_empty() {
                return Ok(());
            }
            let mut others_first = sent > 0;
            let room = poll_fn(|cx| self.poll_room(&mut others_first, cx));
            time::timeout(times.idle(), room).await.map_err(|_| Fault::Timeout)?;
        }
    }

    fn send_some(&self, content: &[u8], ends: bool) -> Result<usize, Fault> {
        self.link.write(|State { http2, out, streams, .. }| {
            let (id, stream) = self.find(streams)?;
            if stream.is_complete || stream.has_gap {
                return Ok(content.len());
            }
            if let Some(fault) = stream.fault() {
                return Err(fault);
            }
            if stream.is_error && !content.is_empty() && http2.send_data_capacity(id) == 0 {
                stream.has_gap = true;
                return Ok(content.len());
            }
            let mut room = OUTPUT_BYTES_MAX.saturating_sub(out.len());
            if others_wait(streams, id) {
                room = room.min(FRAME_BYTES);
            }
            let part = &content[..content.len().min(room)];
            if part.is_empty() && !content.is_empty() {
                return Ok(0);
            }
            let ends = ends && part.len() == content.len();
            let sent = http2.send_data(id, part, ends, out).map_err(|_| Fault::Broken)?;
            let (_, stream) = self.find(streams)?;
            if sent > 0 {
                stream.sent_at = Some(time::now());
            }
            stream.has_sent_all |= ends && sent == part.len();
            Ok(sent)
        })
    }

    /// Waits for room; once if others wait and this one has just sent.
    fn poll_room(&self, others_first: &mut bool, cx: &mut Context<'_>) -> Poll<()> {
        let State { http2, out, streams, waker, .. } = &mut *self.link.state.borrow_mut();
        let Some(id) = self.id.get() else { return Poll::Ready(()) };
        let waits = std::mem::take(others_first) && others_wait(streams, id);
        let Some(stream) = find(streams, id) else { return Poll::Ready(()) };
        let is_open = stream.failure.is_none() && !stream.is_complete;
        let needs_window = http2.send_data_capacity(id) == 0 && !stream.is_error;
        if waits {
            // It wakes those that wait.
            wake(waker);
        }
        if is_open && (waits || out.len() >= OUTPUT_BYTES_MAX || needs_window) {
            stream.writer = Some(cx.waker().clone());
            // So that a window that opens is reported.
            http2.want_to_send(id);
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Ends the content with trailers, given as field lines.
    pub(crate) fn send_trailers(&self, lines: &[u8]) -> Result<(), Fault> {
        self.link.write(|State { http2, out, streams, .. }| {
            let (id, stream) = self.find(streams)?;
            if stream.is_complete || stream.has_gap {
                return Ok(());
            }
            match http2.send_trailers(id, trailer_fields(lines), out) {
                Err(_) => Err(stream.fault().unwrap_or(Fault::Broken)),
                Ok(()) => {
                    stream.has_sent_all = true;
                    Ok(())
                }
            }
        })
    }

    /// Waits for heads of the response, and appends them as HTTP/1 writes them.
    pub(crate) async fn heads(&self, out: &mut Vec<u8>) -> Result<(), Fault> {
        poll_fn(|cx| {
            let streams = &mut self.link.state.borrow_mut().streams;
            let (_, stream) = self.find(streams)?;
            if !stream.heads.is_empty() {
                out.append(&mut stream.heads);
                return Poll::Ready(Ok(()));
            }
            match stream.fault() {
                Some(fault) => Poll::Ready(Err(fault)),
                None => {
                    stream.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Waits until content has come, or the end.
    pub(crate) async fn arrived(&self) {
        poll_fn(|cx| {
            let streams = &mut self.link.state.borrow_mut().streams;
            let Ok((_, stream)) = self.find(streams) else { return Poll::Ready(()) };
            if !stream.received.is_empty() || stream.is_complete || stream.failure.is_some() {
                return Poll::Ready(());
            }
            stream.reader = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Gives the content that has come to `sink`, and lets the upstream send more. True if the
    /// response is complete.
    pub(crate) fn take(&self, sink: &mut dyn FnMut(&[u8])) -> Result<bool, Fault> {
        let mut content = {
            let streams = &mut self.link.state.borrow_mut().streams;
            std::mem::take(&mut self.find(streams)?.1.received)
        };
        let taken = content.len().min(self.link.io.paced_bytes());
        if taken > 0 {
            sink(&content[..taken]);
            self.link.io.release(taken as u64);
        }
        self.link.write(|State { http2, out, streams, .. }| {
            let (id, stream) = self.find(streams)?;
            http2.release(id, taken, out);
            // It grows no further than a window.
            content.drain(..taken);
            stream.received = content;
            match stream.fault() {
                _ if !stream.received.is_empty() => Ok(false),
                Some(fault) => Err(fault),
                None => Ok(stream.is_complete),
            }
        })
    }

    /// The trailers of a complete response, as field lines.
    pub(crate) fn take_trailers(&self) -> Vec<u8> {
        let streams = &mut self.link.state.borrow_mut().streams;
        self.find(streams)
            .map(|(_, stream)| std::mem::take(&mut stream.trailers))
            .unwrap_or_default()
    }

    /// Whether trailers have come or may come.
    pub(crate) fn may_have_trailers(&self) -> bool {
        let streams = &mut self.link.state.borrow_mut().streams;
        self.find(streams)
            .is_ok_and(|(_, stream)| !stream.is_complete || !stream.trailers.is_empty())
    }

    /// Whether and why the upstream has not processed the request, once it has failed.
    pub(crate) fn unprocessed(&self) -> Option<Unprocessed> {
        let streams = &mut self.link.state.borrow_mut().streams;
        let of_stream = self.find(streams).ok().and_then(|(_, stream)| stream.failure);
        self.refused.get().or(of_stream.and_then(|failure| failure.unprocessed))
    }

    /// Whether the connection is over.
    pub(crate) fn is_lost(&self) -> bool {
        self.link.state.borrow().phase == Phase::Over
    }

    /// Whether content of the request was sent within this time.
    pub(crate) fn has_sent_within(&self, limit: Duration) -> bool {
        let streams = &mut self.link.state.borrow_mut().streams;
        let stream = self.find(streams).ok().map(|(_, stream)| &*stream);
        stream.and_then(|stream| stream.sent_at).is_some_and(|at| at.elapsed() < limit)
    }

    /// The upstream has not answered in time. If nothing has come on the connection for as long,
    /// it takes no further request: it may be dead.
    pub(crate) fn timed_out(&self, limit: Duration) {
        let is_silent = self.link.state.borrow().read_at.elapsed() >= limit;
        if is_silent {
            self.link.retire();
        }
    }

    fn find<'s>(
        &self,
        streams: &'s mut [(StreamId, Stream)],
    ) -> Result<(StreamId, &'s mut Stream), Fault> {
        let id = self.id.get().ok_or(Fault::Broken)?;
        find(streams, id).map(|stream| (id, stream)).ok_or(Fault::Broken)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.link.state.borrow_mut();
        state.slots -= 1;
        if let Some(id) = self.id.get()
            && let Some(stream) = mux::remove(&mut state.streams, id)
        {
            let State { http2, out, .. } = &mut *state;
            self.link.io.release(stream.received.len() as u64);
            match stream.is_complete && stream.has_sent_all {
                true => http2.release(id, stream.received.len(), out),
                false => http2.reset(id, ErrorCode::CANCEL, out),
            }
        }
        if state.slots == 0 {
            if self.link.io.is_draining() && state.phase != Phase::Over {
                state.phase = Phase::Closing;
            }
            state.since = time::now();
            let is_idle = matches!(state.phase, Phase::Opening | Phase::Open);
            self.link.set_idle(&mut state, is_idle);
            self.link.end_if_unused(&mut state);
        }
        wake(&mut state.waker);
    }
}
