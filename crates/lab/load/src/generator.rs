//! The generator's loop: starts requests at their instants, reads responses, and counts.
//!
//! What: one thread, one poller. `run` opens all connections, also the cold connections, starts
//! requests until the plan's time is over, and then waits for the requests in flight. Why it does
//! not use the runtime: a request costs only one `send`, one `recv`, a share of one `wait` and one
//! clock read. What never happens: a blocking call other than the wait; a request that starts
//! before its intended instant or is lost (`started = completed + errors + in flight`).
//!
//! ```text
//! Opening --(all connections open)--> Running --(duration)--> Draining --> outcome
//! ```
//!
//! A request is in a slot. With HTTP/1 a slot is a connection. With HTTP/2 and HTTP/3 a slot is a
//! lane of a connection (`generator/multiplexed.rs`).

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod http3;
mod lanes;
mod multiplexed;

#[cfg(not(feature = "tls"))]
use absent as http3;

use std::collections::VecDeque;
use std::io::{self, ErrorKind::ConnectionRefused, ErrorKind::TimedOut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use readiness::{Choice, Event, Events, Poller, Ready};

use crate::connections::{Assigned, Connections, Step};
use crate::ledger::{Effort, Ledger, Remaining};
use crate::outcome::{Counts, ErrorKind, Outcome, Row};
use crate::plan::{BadPlan, DRAIN_MAX, Opening, Plan, Protocol};
use crate::population::Objects;
use crate::random::mix2;
use crate::request::Template;
use crate::response::{Complete, Heads, Requested};
use crate::schedule::{Schedule, Starts};
use crate::sys::{self, would_block};
use crate::tls::Tls;
use crate::websocket;
use lanes::Cause;
use multiplexed::Multiplexed;

/// How often the observer is called, time-outs are checked and the stop flag is read.
pub const TICK: Duration = Duration::from_millis(100);
/// Requests that may wait for a connection. Any beyond that count as unstarted.
pub const QUEUE_MAX: usize = 1 << 22;
/// Connections opened at the same time before the run.
const OPENING_MAX: usize = 64;
/// How long a slot rests after a failed connect.
const REST_NS: u64 = 10_000_000;
/// How long a cold slot rests after the server closed it.
const COLD_REST_NS: u64 = 1_000_000_000;
/// How long a finished connection that carried one request may wait for the server's close.
const ENDING_NS_MAX: u64 = 1_000_000_000;
/// Most events that one wait returns.
const EVENTS_MAX: usize = 512;
/// The receive buffer, shared by all connections.
const BUFFER_BYTES: usize = 64 * 1024;
/// Most bytes of the first read if bodies are not verified.
const FIRST_READ_BYTES: usize = 16 * 1024;
/// Descriptors reserved for standard streams, the poller and the caller's files.
const DESCRIPTORS_SPARE: u64 = 64;
const TICK_NS: u64 = TICK.as_nanos() as u64;

/// Why a run has no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operator's fault: the plan is invalid.
    #[error(transparent)]
    Plan(#[from] BadPlan),
    /// The operator's fault: the plan needs more descriptors than the process may open.
    #[error(
        "{needed} descriptors are needed and {limit} allowed: ask for fewer connections or raise \
         the limit (ulimit -n)"
    )]
    Descriptors {
        /// How many the plan needs.
        needed: u64,
        /// The limit.
        limit: u64,
    },
    /// The peer's fault: the connections could not be opened before the run.
    #[error("{target}: {source}")]
    Unreachable {
        /// The target.
        target: String,
        /// The error of the first failed connection.
        source: io::Error,
    },
    /// The system's fault.
    #[error("{doing}: {source}")]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { doing, source }
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Connections are being opened.
    Opening,
    /// Requests are being started.
    Running,
    /// Waiting for the last responses.
    Draining,
}

/// The progress of a run. The observer runs in the generator's thread, so it must be quick.
///
/// It is called when a phase begins, when `Running` ends, every `TICK`, and with each row.
#[derive(Debug)]
pub struct Tick<'r> {
    /// The current phase.
    pub phase: Phase,
    /// Time since the phase began.
    pub elapsed: Duration,
    /// All counts so far.
    pub counts: Counts,
    /// Requests that are assigned to a connection.
    pub in_flight: u64,
    /// Requests that wait for a connection.
    pub queued: u64,
    /// Connections open so far in the opening phase; afterwards, the open cold connections.
    pub open: u64,
    /// The row that has just ended, if any.
    pub row: Option<&'r Row>,
}

/// Receives the progress of a run.
pub type Observer<'o> = dyn FnMut(&Tick<'_>) + 'o;

/// Executes a plan in the calling thread until its time is over or `stop` is set.
///
/// # Errors
/// Each kind of `Error` says whose fault it is. Failed requests are not errors: the
/// outcome counts them.
pub fn run(plan: &Plan, stop: &AtomicBool, observer: &mut Observer<'_>) -> Result<Outcome, Error> {
    plan.check()?;
    let limit = sys::raise_descriptor_limit().map_err(system("limit of descriptors"))?;
    let needed = u64::from(plan.connections) + u64::from(plan.cold) + DESCRIPTORS_SPARE;
    if needed > limit {
        return Err(Error::Descriptors { needed, limit });
    }
    let pinned = plan.pin_cpu.map(sys::Pinned::to).transpose();
    let _pinned = pinned.map_err(system("pinning the generator"))?;
    sys::sharpen_timers();
    Generator::new(plan).and_then(|generator| generator.run(stop, observer))
}

/// A request that waits for a connection.
#[derive(Debug)]
struct Waiting {
    intended_ns: u64,
    /// The sum of the generator's lags at the intended start, ns. Its growth is the part of the
    /// wait that may be the generator's fault.
    lags_before_ns: u64,
}

struct Generator<'p> {
    plan: &'p Plan,
    connections: Connections,
    /// Hot slots without a request; the longest idle is at the front.
    idle: VecDeque<u32>,
    /// Requests that wait for a connection.
    queue: VecDeque<Waiting>,
    /// Slots that must not be used before an instant: (ns, slot), earliest first.
    resting: VecDeque<(u64, u32)>,
    resting_cold: VecDeque<(u64, u32)>,
    /// Cold slots that connect again: (since, slot), earliest first.
    connecting_cold: VecDeque<(u64, u32)>,
    template: Template,
    /// Bytes of a response that is not of HTTP.
    response_bytes: Option<u64>,
    /// HTTP/2 and HTTP/3.
    multiplexed: Option<Box<Multiplexed>>,
    objects: Objects,
    heads: Heads,
    buffer: Box<[u8]>,
    ledger: Ledger,
    in_flight: u64,
    unstarted: u64,
    cold_open: u64,
    closed_loop: bool,
    /// Bodies are read, not discarded: they are verified or encrypted.
    reads_all: bool,
    running: bool,
    lag_ns_max: u64,
    /// When the last wait returned, ns.
    woke_ns: u64,
    /// How long the events of this turn may have waited for the generator, ns. 0 if `lag_max`
    /// allows it.
    turn_lag_ns: u64,
    /// The sum of it over all turns, ns.
    lags_ns: u64,
    polls: u64,
    empty_polls: u64,
}

impl<'p> Generator<'p> {
    fn new(plan: &'p Plan) -> Result<Generator<'p>, Error> {
        let poller = Poller::open(Choice::Preferred).map_err(|e| Error::System {
            doing: "opening a readiness backend",
            source: io::Error::other(e),
        })?;
        let tls = plan.target.tls.then(|| Tls::new(plan)).transpose().map_err(BadPlan)?;
        let (multiplexed, tls) = match plan.protocol {
            Protocol::Http1 => (None, tls),
            Protocol::Http2 { .. } => (Some(Multiplexed::new(plan, None)), tls),
            Protocol::Http3 { .. } => (Some(Multiplexed::new(plan, tls.as_ref())), None),
        };
        let closed_loop = plan.schedule == Schedule::ClosedLoop;
        let nothing = Effort { cpu_ns: 0, wall_ns: 0, polls: 0, empty_polls: 0 };
        Ok(Generator {
            plan,
            connections: Connections::new(plan, tls, poller),
            idle: VecDeque::new(),
            queue: VecDeque::new(),
            resting: VecDeque::new(),
            resting_cold: VecDeque::new(),
            connecting_cold: VecDeque::new(),
            template: Template::new(plan),
            response_bytes: (plan.opening == Opening::WebSocket)
                .then(|| websocket::answer_bytes(plan.body_bytes)),
            multiplexed: multiplexed.transpose().map_err(BadPlan)?.map(Box::new),
            objects: Objects::new(&plan.population, plan.seed, mix2(plan.seed, 1)),
            heads: Heads::new(plan.population.objects, plan.count_hits),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            ledger: Ledger::new(plan, !closed_loop, 0, nothing),
            in_flight: 0,
            unstarted: 0,
            cold_open: 0,
            closed_loop,
            reads_all: plan.verify || plan.target.tls,
            running: false,
            lag_ns_max: u64::try_from(plan.lag_max.as_nanos()).unwrap_or(u64::MAX),
            woke_ns: sys::mono_ns(),
            turn_lag_ns: 0,
            lags_ns: 0,
            polls: 0,
            empty_polls: 0,
        })
    }

    fn run(mut self, stop: &AtomicBool, observer: &mut Observer<'_>) -> Result<Outcome, Error> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        self.open_all(&mut events, stop, observer)?;
        self.idle = (0..self.plan.slots()).collect();
        self.cold_open = self.connections.cold_open();
        let began_ns = sys::mono_ns();
        self.ledger = Ledger::new(self.plan, !self.closed_loop, began_ns, self.effort());
        self.running = true;
        self.woke_ns = began_ns;
        let stopped = self.keep_running(began_ns, &mut events, stop, observer)?;
        self.running = false;
        let end_ns = sys::mono_ns();
        let end = self.effort();
        self.ledger.close_row(end_ns, end);
        self.observe(observer, Phase::Running, end_ns - began_ns, true);
        self.drain(&mut events, stop, observer)?;
        let waited = self.queue.front();
        let waited = waited.map_or(0, |waiting| end_ns.saturating_sub(waiting.intended_ns));
        let remaining = Remaining {
            stopped,
            in_flight: self.in_flight,
            unstarted: self.unstarted + self.queue.len() as u64,
            unstarted_waited_ns: waited,
            cold_open: self.cold_open,
            backend: self.connections.poller.kind().to_string(),
        };
        self.close_all();
        Ok(self.ledger.finish(self.plan, remaining, end))
    }

    /// Opens the connections, cold ones last, a limited number at a time.
    fn open_all(
        &mut self,
        events: &mut Events,
        stop: &AtomicBool,
        observer: &mut Observer<'_>,
    ) -> Result<(), Error> {
        let plan = self.plan;
        let unreachable = |source: io::Error| {
            let is_silent = matches!(source.kind(), ConnectionRefused | TimedOut);
            let source = match plan.protocol {
                Protocol::Http3 { .. } if is_silent => {
                    let why = "no answer on its UDP port: does the server speak HTTP/3?";
                    io::Error::new(source.kind(), why)
                }
                _ => source,
            };
            Error::Unreachable { target: plan.target.to_string(), source }
        };
        let first = if self.plan.keep_alive { 0 } else { self.plan.connections };
        let mut to_open = first..self.plan.connections + self.plan.cold;
        let (mut opening, mut open) = (0, 0);
        let began_ns = sys::mono_ns();
        let (mut progress_ns, mut tick_ns) = (began_ns, began_ns);
        loop {
            let now_ns = sys::mono_ns();
            if now_ns >= tick_ns {
                tick_ns = now_ns + TICK_NS;
                let counts = Counts::default();
                let elapsed = Duration::from_nanos(now_ns - began_ns);
                let (phase, in_flight, queued) = (Phase::Opening, 0, 0);
                observer(&Tick { phase, elapsed, counts, in_flight, queued, open, row: None });
            }
            while opening < OPENING_MAX {
                let Some(slot) = to_open.next() else { break };
                self.connections.connect(slot).map_err(unreachable)?;
                opening += 1;
            }
            if opening == 0 || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if now_ns - progress_ns > self.plan.timeout.as_nanos() as u64 {
                return Err(unreachable(TimedOut.into()));
            }
            self.connections.poller.wait(events, Some(TICK)).map_err(system("waiting"))?;
            for event in events.iter() {
                let Some(slot) = self.connections.slot_of(event.token) else { continue };
                if self.connections.table[slot as usize].step == Step::Connecting {
                    let is_established = match &self.multiplexed {
                        None => self.connections.connected(slot),
                        Some(_) => self.establish_link(slot, Cause::Socket),
                    };
                    if is_established.map_err(unreachable)? {
                        (opening, open, progress_ns) = (opening - 1, open + 1, now_ns);
                    }
                } else if self.multiplexed.is_some() {
                    self.handle_link(slot, event.ready);
                } else {
                    // One that is closed before the run is reopened when it is needed.
                    self.receive_idle(slot);
                }
            }
            self.run_timers();
        }
    }

    /// Starts requests until the time is over. True if the run was stopped before that.
    fn keep_running(
        &mut self,
        began_ns: u64,
        events: &mut Events,
        stop: &AtomicBool,
        observer: &mut Observer<'_>,
    ) -> Result<bool, Error> {
        let plan = self.plan;
        let seed = mix2(plan.seed, 2);
        let starts = Starts::new(&plan.schedule, plan.arrivals, plan.duration, seed);
        let mut starts = starts.map(|after| began_ns + after).peekable();
        let end_ns = began_ns + plan.duration.as_nanos() as u64;
        let mut tick_ns = began_ns;
        loop {
            let now_ns = sys::mono_ns();
            if now_ns >= self.ledger.row_end_ns() && now_ns < end_ns {
                let effort = self.effort();
                self.ledger.close_row(now_ns, effort);
                self.observe(observer, Phase::Running, now_ns - began_ns, true);
            }
            if now_ns >= tick_ns {
                tick_ns = now_ns + TICK_NS;
                self.observe(observer, Phase::Running, now_ns - began_ns, false);
                self.sweep(now_ns);
                if stop.load(Ordering::Relaxed) {
                    return Ok(true);
                }
            }
            self.wake_resting(now_ns);
            while let Some(intended_ns) = starts.next_if(|at| *at <= now_ns.min(end_ns)) {
                self.ledger.intended();
                self.start_or_queue(intended_ns, now_ns);
            }
            if now_ns >= end_ns {
                return Ok(false);
            }
            while self.closed_loop
                && let Some(slot) = self.idle.pop_front()
            {
                self.ledger.intended();
                self.start(slot, now_ns, now_ns, 0);
            }
            let next_ns = starts.peek().map_or(end_ns, |at| *at);
            let rested_ns = self.resting.front().map_or(end_ns, |(at, _)| *at);
            let until_ns = next_ns.min(rested_ns).min(tick_ns).min(self.ledger.row_end_ns());
            self.turn(events, until_ns.min(end_ns))?;
        }
    }

    /// Waits for the requests in flight: once `stop` is set, [`DRAIN_MAX`] at most.
    fn drain(
        &mut self,
        events: &mut Events,
        stop: &AtomicBool,
        observer: &mut Observer<'_>,
    ) -> Result<(), Error> {
        let began_ns = sys::mono_ns();
        let drain_max = self.plan.drain_max.min(self.plan.timeout);
        self.observe(observer, Phase::Draining, 0, false);
        loop {
            let now_ns = sys::mono_ns();
            let is_stopped = stop.load(Ordering::Relaxed);
            let wait = if is_stopped { drain_max.min(DRAIN_MAX) } else { drain_max };
            let end_ns = began_ns + wait.as_nanos() as u64;
            if self.in_flight == 0 || now_ns >= end_ns {
                return Ok(());
            }
            self.sweep(now_ns);
            self.turn(events, end_ns.min(now_ns + TICK_NS))?;
        }
    }

    /// Waits until `until_ns` at most and handles the events.
    #[inline]
    fn turn(&mut self, events: &mut Events, until_ns: u64) -> Result<(), Error> {
        self.run_timers();
        self.flush_all();
        let due_ns = self.multiplexed.as_ref().and_then(|many| many.next_due());
        let until_ns = due_ns.map_or(until_ns, |(due_ns, _)| due_ns.min(until_ns));
        // Read again: starting requests has taken time since the loop read the clock.
        let now_ns = sys::mono_ns();
        let wait_ns = if self.plan.busy_poll { 0 } else { until_ns.saturating_sub(now_ns) };
        let wait = Some(Duration::from_nanos(wait_ns));
        self.connections.poller.wait(events, wait).map_err(system("waiting"))?;
        let worked_ns = now_ns.saturating_sub(self.woke_ns);
        self.woke_ns = sys::mono_ns();
        // Ready events waited while the last turn was working, or while the thread overslept.
        let overslept_ns = self.woke_ns.saturating_sub(now_ns + wait_ns);
        let lag_ns = worked_ns.max(overslept_ns);
        self.turn_lag_ns = if lag_ns > self.lag_ns_max { lag_ns } else { 0 };
        self.lags_ns = self.lags_ns.wrapping_add(self.turn_lag_ns);
        self.ledger.turned(self.turn_lag_ns);
        self.polls += 1;
        self.empty_polls += u64::from(events.is_empty());
        for event in events.iter() {
            self.handle(event);
        }
        Ok(())
    }

    fn effort(&self) -> Effort {
        Effort {
            cpu_ns: sys::thread_cpu_ns(),
            wall_ns: sys::wall_ns(),
            polls: self.polls,
            empty_polls: self.empty_polls,
        }
    }

    fn observe(&self, observer: &mut Observer<'_>, phase: Phase, elapsed_ns: u64, row_ended: bool) {
        observer(&Tick {
            phase,
            elapsed: Duration::from_nanos(elapsed_ns),
            counts: self.ledger.so_far(),
            in_flight: self.in_flight,
            queued: self.queue.len() as u64,
            open: self.cold_open,
            row: if row_ended { self.ledger.last_row() } else { None },
        });
    }

    #[inline]
    fn start_or_queue(&mut self, intended_ns: u64, now_ns: u64) {
        if self.queue.is_empty()
            && let Some(slot) = self.idle.pop_front()
        {
            let lag_ns = now_ns - intended_ns;
            self.ledger.lagged(lag_ns);
            self.start(slot, intended_ns, now_ns, lag_ns);
        } else if self.queue.len() < QUEUE_MAX {
            // What the generator is late with now belongs to the wait, too.
            let lags_before_ns = self.lags_ns.wrapping_sub(now_ns - intended_ns);
            self.queue.push_back(Waiting { intended_ns, lags_before_ns });
            self.ledger.queued(self.queue.len());
        } else {
            self.unstarted += 1;
        }
    }

    /// Assigns a request to a slot that has none. `lag_ns` is how much of the time since the
    /// intended start may be the generator's fault.
    #[inline]
    fn start(&mut self, slot: u32, intended_ns: u64, now_ns: u64, lag_ns: u64) {
        debug_assert!(lag_ns <= now_ns - intended_ns, "a lag is a part of the wait");
        let object = self.objects.draw();
        let size = self.objects.size(object);
        let requested_size = self.template.has_size().then_some(size);
        let requested = Requested { object, size: requested_size, verify: self.plan.verify };
        let assigned = Assigned { intended_ns, assigned_ns: now_ns, lag_ns, requested };
        self.ledger.started();
        self.in_flight += 1;
        if self.multiplexed.is_some() {
            return self.start_in_lane(slot, assigned, size);
        }
        let bytes = self.template.fill(object, size);
        let connection = &mut self.connections.table[slot as usize];
        connection.assigned = assigned;
        connection.has_request = true;
        connection.reader.begin();
        if let Some(bytes) = self.response_bytes {
            connection.reader.expect_bytes(bytes);
        }
        if connection.step != Step::Idle {
            connection.unsent.extend_from_slice(bytes);
            return self.connect_with_request(slot, now_ns);
        }
        connection.step = Step::Busy;
        let sent = match connection.send(bytes) {
            Ok(sent) => sent,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
            Err(e) => return self.fail(slot, kind_of(&e), now_ns),
        };
        if sent < bytes.len() || connection.holds_records() {
            connection.unsent.extend_from_slice(&bytes[sent..]);
            if let Err(e) = self.connections.set_wants_write(slot, true) {
                self.fail(slot, kind_of(&e), now_ns);
            }
        }
    }

    #[cold]
    fn connect_with_request(&mut self, slot: u32, now_ns: u64) {
        if let Err(e) = self.connections.connect(slot) {
            self.fail(slot, kind_of_connect(&e), now_ns);
        }
    }

    #[inline]
    fn handle(&mut self, event: Event) {
        let Some(slot) = self.connections.slot_of(event.token) else { return };
        if self.multiplexed.is_some() {
            return self.handle_link(slot, event.ready);
        }
        match self.connections.table[slot as usize].step {
            Step::Busy => {
                if event.ready.has(Ready::WRITABLE) && !self.send_rest(slot) {
                    return;
                }
                if event.ready.has(Ready::READABLE) {
                    self.receive(slot);
                }
            }
            Step::Connecting => self.finish_connect(slot),
            Step::Idle => self.receive_idle(slot),
            Step::Ending => self.receive_end(slot),
            Step::Closed => {}
        }
    }

    /// False if the request has failed.
    fn send_rest(&mut self, slot: u32) -> bool {
        match self.connections.send_unsent(slot) {
            Ok(_) => true,
            Err(e) => {
                self.fail(slot, kind_of(&e), sys::mono_ns());
                false
            }
        }
    }

    fn finish_connect(&mut self, slot: u32) {
        match self.connections.connected(slot) {
            Ok(true) => {}
            Ok(false) => return,
            Err(e) => {
                let now_ns = sys::mono_ns();
                if self.connections.is_cold(slot) {
                    return self.close_idle(slot, now_ns);
                }
                return self.fail(slot, kind_of_connect(&e), now_ns);
            }
        }
        let connection = &mut self.connections.table[slot as usize];
        if connection.has_request {
            self.ledger.connected(connection.has_resumed());
            connection.step = Step::Busy;
            self.send_rest(slot);
        }
    }

    /// Reads the available part of a response: one `recv`, and more only for a long body.
    #[inline]
    fn receive(&mut self, slot: u32) {
        let connection = &mut self.connections.table[slot as usize];
        let remaining = connection.reader.body_left();
        let discard = remaining > 0 && !self.reads_all;
        let got = if discard {
            let most = usize::try_from(remaining).unwrap_or(usize::MAX).min(1 << 30);
            sys::recv_discard(connection.fd(), most)
        } else {
            // A head and a small body. The rest of a long body is discarded by its length.
            let room = if self.reads_all { BUFFER_BYTES } else { FIRST_READ_BYTES };
            self.connections.recv(slot, &mut self.buffer[..room])
        };
        let now_ns = sys::mono_ns();
        let connection = &mut self.connections.table[slot as usize];
        let whole = match got {
            Ok(0) => connection.reader.close().map(|()| true),
            Ok(count) if discard => Ok(connection.reader.skip(count as u64)),
            Ok(count) => {
                let requested = connection.assigned.requested;
                connection.reader.feed(&self.buffer[..count], &mut self.heads, requested)
            }
            Err(e) if would_block(&e) => return,
            Err(e) => Err(kind_of(&e)),
        };
        match whole {
            Ok(true) => self.finish(slot, now_ns),
            // No event would report the end again.
            Ok(false) if self.connections.has_ended(slot) => self.receive(slot),
            Ok(false) => {}
            Err(kind) => self.fail(slot, kind, now_ns),
        }
    }

    /// Counts a complete response and puts the connection to its next use.
    #[inline]
    fn finish(&mut self, slot: u32, now_ns: u64) {
        let connection = &mut self.connections.table[slot as usize];
        connection.has_request = false;
        let assigned = connection.assigned;
        let verdict = connection.reader.judge(assigned.requested);
        self.count(&assigned, verdict, now_ns);
        let connection = &mut self.connections.table[slot as usize];
        if !self.plan.keep_alive {
            connection.step = Step::Ending;
            return self.receive_end(slot);
        }
        let is_sent = connection.unsent.is_empty() && !connection.holds_records();
        if connection.reader.keep_alive() && is_sent {
            connection.step = Step::Idle;
        } else {
            self.connections.close(slot, false);
        }
        self.reuse(slot, now_ns);
    }

    /// Counts a request that has ended.
    #[inline]
    fn count(&mut self, assigned: &Assigned, verdict: Result<Complete, ErrorKind>, now_ns: u64) {
        self.in_flight -= 1;
        let worked_ns = now_ns.saturating_sub(self.woke_ns);
        let worked_ns = if worked_ns > self.lag_ns_max { worked_ns } else { 0 };
        let lag_ns = assigned.lag_ns + self.turn_lag_ns + worked_ns;
        match verdict {
            Ok(whole) => self.ledger.completed(whole, now_ns - assigned.intended_ns, lag_ns),
            Err(kind) => self.ledger.failed(kind),
        }
    }

    /// Assigns the next request to a slot that has none, or marks it idle.
    #[inline]
    fn reuse(&mut self, slot: u32, now_ns: u64) {
        if self.running && self.closed_loop {
            self.ledger.intended();
            return self.start(slot, now_ns, now_ns, 0);
        }
        match self.queue.front() {
            Some(&Waiting { intended_ns, lags_before_ns }) if self.running => {
                self.queue.pop_front();
                let lag_ns = self.lags_ns.wrapping_sub(lags_before_ns).min(now_ns - intended_ns);
                self.start(slot, intended_ns, now_ns, lag_ns);
            }
            _ => self.idle.push_back(slot),
        }
    }

    /// Counts the failed request of a slot and closes the connection.
    #[cold]
    fn fail(&mut self, slot: u32, kind: ErrorKind, now_ns: u64) {
        let connection = &mut self.connections.table[slot as usize];
        connection.has_request = false;
        self.in_flight -= 1;
        self.ledger.failed(kind);
        self.connections.close(slot, true);
        // The loop puts the slot back to use, not this call: if a server fails at once, this call
        // would start the next request, which would fail in turn, without end.
        match kind {
            ErrorKind::Refused | ErrorKind::Connect => {
                self.resting.push_back((now_ns + REST_NS, slot));
            }
            _ => self.resting.push_front((now_ns, slot)),
        }
    }

    /// Handles input on an idle or cold connection: the peer's close, or unexpected bytes.
    #[cold]
    fn receive_idle(&mut self, slot: u32) {
        match self.connections.recv(slot, &mut self.buffer) {
            Err(e) if would_block(&e) => {}
            _ => self.close_idle(slot, sys::mono_ns()),
        }
    }

    /// Closes a connection that carries no request. A cold one is reopened later, a hot one when it
    /// is needed.
    fn close_idle(&mut self, slot: u32, now_ns: u64) {
        self.connections.close(slot, false);
        if self.connections.is_cold(slot) {
            self.rest_cold(slot, now_ns);
        }
    }

    /// A cold connection is closed, and reopened later.
    fn rest_cold(&mut self, slot: u32, now_ns: u64) {
        self.ledger.cold_closed();
        self.resting_cold.push_back((now_ns + COLD_REST_NS, slot));
    }

    /// Waits for the server to close after a complete response, as `Connection: close` asked it to,
    /// so that the server holds the TIME_WAIT.
    fn receive_end(&mut self, slot: u32) {
        match self.connections.recv(slot, &mut self.buffer) {
            Err(e) if would_block(&e) => return,
            _ => self.connections.close(slot, false),
        }
        let now_ns = sys::mono_ns();
        self.reuse(slot, now_ns);
    }

    /// Puts slots that have rested back to use.
    #[inline]
    fn wake_resting(&mut self, now_ns: u64) {
        while let Some(&(until_ns, slot)) = self.resting.front()
            && until_ns <= now_ns
        {
            self.resting.pop_front();
            self.reuse(slot, now_ns);
        }
        while let Some(&(until_ns, slot)) = self.resting_cold.front()
            && until_ns <= now_ns
        {
            self.resting_cold.pop_front();
            match self.connections.connect(slot) {
                Ok(()) => {
                    let since_ns = self.connections.table[slot as usize].connect_ns;
                    self.connecting_cold.push_back((since_ns, slot));
                }
                Err(_) => self.resting_cold.push_back((now_ns + COLD_REST_NS, slot)),
            }
        }
    }

    /// Gives up requests that take too long, and connections that the server does not close.
    fn sweep(&mut self, now_ns: u64) {
        let timeout_ns = self.plan.timeout.as_nanos() as u64;
        while let Some(&(since_ns, slot)) = self.connecting_cold.front()
            && now_ns.saturating_sub(since_ns) > timeout_ns
        {
            self.connecting_cold.pop_front();
            let connection = &self.connections.table[slot as usize];
            if connection.step == Step::Connecting && connection.connect_ns == since_ns {
                self.close_link(slot, true);
                self.rest_cold(slot, now_ns);
            }
        }
        if self.multiplexed.is_some() {
            return self.sweep_lanes(now_ns);
        }
        for slot in 0..self.plan.connections {
            let connection = &self.connections.table[slot as usize];
            let age_ns = now_ns.saturating_sub(connection.assigned.assigned_ns);
            if connection.has_request && age_ns > timeout_ns {
                self.fail(slot, ErrorKind::Timeout, now_ns);
            } else if connection.step == Step::Ending && age_ns > ENDING_NS_MAX {
                self.connections.close(slot, true);
                self.resting.push_front((now_ns, slot));
            }
        }
    }

    /// Closes everything by resets: thousands of connections in TIME_WAIT would obstruct the next
    /// run.
    fn close_all(&mut self) {
        for slot in 0..self.connections.table.len() as u32 {
            self.close_link(slot, true);
        }
    }
}

fn kind_of(e: &io::Error) -> ErrorKind {
    match e.kind() {
        ConnectionRefused => ErrorKind::Refused,
        TimedOut => ErrorKind::Timeout,
        io::ErrorKind::InvalidData => ErrorKind::BadFraming,
        io::ErrorKind::ConnectionAborted => ErrorKind::Closed,
        _ => ErrorKind::Reset,
    }
}

fn kind_of_connect(e: &io::Error) -> ErrorKind {
    match e.kind() {
        ConnectionRefused => ErrorKind::Refused,
        io::ErrorKind::ConnectionReset => ErrorKind::Reset,
        _ => ErrorKind::Connect,
    }
}
