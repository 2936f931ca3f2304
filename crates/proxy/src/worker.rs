//! One core's share of the server: its listeners, its connections, its buffers, its counters.
//!
//! A worker belongs to one thread. Its read buffer is lent to one connection at a time, between
//! two waits, so that ten thousand silent connections share one; nobody holds it across an await.
//! Connections sit in a table that gives out its lowest free slot, so that it stays dense.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use http1::Scratch;
use readiness::Token;
use readiness::slots::SlotTable;
use runtime::Either;
use runtime::net::{TcpListener, TcpStream};
use runtime::stop::StopToken;
use runtime::sync::Inbox;
use runtime::time::{self, Instant, Turns};
use slab::Slab;

use crate::access_log::CoreLog;
use crate::config::Listener;
use crate::connection;
use crate::core::Change;
use crate::fault::is_out_of_descriptors;
use crate::flight::Flight;
use crate::forward::Verifying;
use crate::limits::{
    ACCEPTS_PER_TURN_MAX, Limits, OUTPUT_BYTES_MAX, PRESSED_BYTES, READ_BUFFER_BYTES, ROOM_AT_ONCE,
    ROOM_IDLE, ROOM_LOOKS, ROOM_PAUSE,
};
use crate::listening::{DoorNow, Listening};
use crate::metrics::Counters;
use crate::overload::{Overload, Sample};
use crate::shared::Shared;
use crate::site::{Door, Site};
use crate::sizing::CoreSample;
use crate::tls::CoreTls;
use crate::transport::Transport;
use crate::upstream::Pool;

/// How often a core hands over its log lines, sweeps its pool and publishes its counters.
const TICK: Duration = Duration::from_millis(100);
/// Turns of the core that tunnels have to end in, when the drain's time is over.
const CUT_TURNS_MAX: usize = 100;

/// The state of one core.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    site: RefCell<Rc<Site>>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) log: CoreLog,
    pub(crate) sizing: CoreSample,
    pub(crate) pool: Pool,
    pub(crate) tls: Rc<CoreTls>,
    buffers: RefCell<Buffers>,
    scratch: RefCell<Box<Scratch>>,
    connections: RefCell<SlotTable<Waker>>,
    /// Bodies that this core brings for the store and for readers on any core.
    pub(crate) fillings: RefCell<Slab<Arc<Flight>>>,
    draining: Cell<Draining>,
    /// The drain's time is over.
    cuts: Cell<bool>,
    /// Passwords that this core verifies.
    pub(crate) verifying: Verifying,
    /// Answers of the admin address that are under way on this core.
    pub(crate) admin_answers: Cell<usize>,
    pub(crate) overload: Overload,
    /// Readings of the last tick.
    measured: Cell<Measured>,
    /// Clients have left too much unread.
    pressed: Cell<bool>,
    /// Idle connections that are to close, so that others find a descriptor.
    room_wanted: Cell<u32>,
    /// Where the next look for them begins.
    room_from: Cell<usize>,
}

/// What a core reads at its tick, to compare it with the next.
#[derive(Clone, Copy, Debug)]
struct Measured {
    at: Instant,
    cpu: Duration,
    starved: Duration,
    turns: Turns,
    requests: u64,
}

impl Measured {
    fn now(counters: &Counters) -> Measured {
        let requests = counters.requests.get();
        let (cpu, starved) = (time::thread_cpu(), time::thread_starved());
        Measured { at: time::now(), cpu, starved, turns: time::turns(), requests }
    }

    fn since(&self, earlier: &Measured) -> Sample {
        Sample {
            wall: self.at.since(earlier.at),
            cpu: self.cpu.saturating_sub(earlier.cpu),
            starved: self.starved.saturating_sub(earlier.starved),
            delay: self.turns.since(&earlier.turns).delay(),
            requests: self.requests - earlier.requests,
        }
    }
}

/// How a core ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Draining {
    /// It does not.
    No,
    /// Another process has taken over: a silent connection may be about to ask, and stays until it
    /// has, or until the drain time-out.
    Patient,
    /// It was told to stop: silent connections are closed.
    Now,
}

/// The buffers that a turn of a connection borrows.
pub(crate) struct Buffers {
    pub(crate) input: Box<[u8]>,
    pub(crate) output: Vec<u8>,
}

/// The limits of the site that held when they were asked for.
pub(crate) struct LimitsNow(Rc<Site>);

impl Deref for LimitsNow {
    type Target = Limits;

    #[inline]
    fn deref(&self) -> &Limits {
        self.0.limits()
    }
}

/// The parser's limits of the site that held when they were asked for.
pub(crate) struct HttpNow(Rc<Site>);

impl Deref for HttpNow {
    type Target = http1::Limits;

    #[inline]
    fn deref(&self) -> &http1::Limits {
        &self.0.http
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("draining", &self.draining).finish_non_exhaustive()
    }
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, site: Site, counters: Arc<Counters>) -> Rc<Worker> {
        let limits = site.limits();
        let log = CoreLog::new(shared.log.clone(), site.config.log_format.clone());
        let connections_max = u32::try_from(limits.connections_max).unwrap_or(u32::MAX);
        let measured = Cell::new(Measured::now(&counters));
        Rc::new(Worker {
            overload: Overload::default(),
            measured,
            pressed: Cell::new(false),
            room_wanted: Cell::new(0),
            room_from: Cell::new(0),
            counters,
            log,
            sizing: CoreSample::default(),
            pool: Pool::default(),
            tls: CoreTls::new(),
            buffers: RefCell::new(Buffers {
                input: vec![0; READ_BUFFER_BYTES].into_boxed_slice(),
                output: Vec::with_capacity(READ_BUFFER_BYTES),
            }),
            scratch: RefCell::new(Box::default()),
            connections: RefCell::new(SlotTable::with_limit(connections_max)),
            fillings: RefCell::default(),
            draining: Cell::new(Draining::No),
            admin_answers: Cell::new(0),
            cuts: Cell::new(false),
            verifying: Verifying::default(),
            shared,
            site: RefCell::new(Rc::new(site)),
        })
    }

    /// What the configuration says now.
    #[inline]
    pub(crate) fn site(&self) -> Rc<Site> {
        Rc::clone(&self.site.borrow())
    }

    /// From now on another configuration holds. What is under way ends with the one it began with.
    pub(crate) fn replace_site(&self, site: Site) {
        let before = self.site.replace(Rc::new(site));
        drop(before); // what it holds goes without the borrow
    }

    /// The limits that hold now.
    #[inline]
    pub(crate) fn limits(&self) -> LimitsNow {
        LimitsNow(self.site())
    }

    /// Those of the parser.
    #[inline]
    pub(crate) fn http(&self) -> HttpNow {
        HttpNow(self.site())
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get() != Draining::No
    }

    /// Whether connections that are silent are to be closed.
    pub(crate) fn closes_silent(&self) -> bool {
        self.draining.get() == Draining::Now
    }

    /// Whether tunnels must end now: they would go on for ever.
    pub(crate) fn cuts(&self) -> bool {
        self.cuts.get()
    }

    /// Lends the read buffer. Not to be nested.
    pub(crate) fn with_input<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        f(&mut self.buffers.borrow_mut().input)
    }

    /// Lends the read buffer for what an upstream sends: only a part of it while clients leave too
    /// much unread. Not to be nested.
    pub(crate) fn with_paced_input<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let bytes = if self.is_pressed() { PRESSED_BYTES } else { READ_BUFFER_BYTES };
        self.with_input(|input| f(&mut input[..bytes]))
    }

    /// Bytes of answers gathered before they are sent.
    #[inline]
    pub(crate) fn output_bytes_max(&self) -> usize {
        if self.is_pressed() { PRESSED_BYTES } else { OUTPUT_BYTES_MAX }
    }

    #[inline]
    fn is_pressed(&self) -> bool {
        self.pressed.get()
    }

    /// So many bytes more wait for clients ...
    pub(crate) fn hold(&self, bytes: u64) {
        self.counters.held_bytes.add(bytes);
        self.pressed.set(self.counters.held_bytes.get() > self.limits().held_bytes_max);
    }

    /// ... or fewer.
    pub(crate) fn release(&self, bytes: u64) {
        self.counters.held_bytes.sub(bytes);
        self.pressed.set(self.counters.held_bytes.get() > self.limits().held_bytes_max);
    }

    /// Closes idle connections, upstreams' and clients', for there is no descriptor left.
    pub(crate) fn make_room(&self) {
        self.pool.close_idle(self);
        self.room_wanted.set(ROOM_AT_ONCE);
        let connections = self.connections.borrow();
        let looked_at = connections.iter().skip(self.room_from.get()).take(ROOM_LOOKS);
        let wakers: Vec<Waker> = looked_at.map(|(_, waker)| waker.clone()).collect();
        let from = if wakers.len() < ROOM_LOOKS { 0 } else { self.room_from.get() + ROOM_LOOKS };
        self.room_from.set(from);
        drop(connections);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether a connection that has been silent since then is to close for others.
    #[inline]
    pub(crate) fn takes_room_of(&self, since: Instant) -> bool {
        let wanted = self.room_wanted.get();
        if wanted == 0 || since.elapsed() < ROOM_IDLE {
            return false;
        }
        self.room_wanted.set(wanted - 1);
        self.counters.connections_closed_for_room.add(1);
        true
    }

    /// Whether new connections are to be refused.
    fn is_closed(&self) -> bool {
        self.overload.is_closed() || self.shared.pressure.is_closed()
    }

    /// Lends both buffers. Not to be nested.
    #[inline]
    pub(crate) fn with_buffers<R>(&self, f: impl FnOnce(&mut Buffers) -> R) -> R {
        f(&mut self.buffers.borrow_mut())
    }

    /// Lends the room for a head's fields. Not to be nested.
    #[inline]
    pub(crate) fn with_scratch<R>(&self, f: impl FnOnce(&mut Scratch) -> R) -> R {
        f(&mut self.scratch.borrow_mut())
    }

    /// Puts a connection into the table.
    pub(crate) fn enter(&self, waker: Waker) -> Option<Token> {
        let token = self.connections.borrow_mut().try_insert(waker).ok()?;
        self.counters.connections_open.add(1);
        Some(token)
    }

    /// Takes it out.
    pub(crate) fn leave(&self, token: Token) {
        if self.connections.borrow_mut().remove(token).is_some() {
            self.counters.connections_open.sub(1);
        }
    }

    /// Serves the listeners until told to stop or relieved, then lets requests under way finish.
    pub(crate) async fn run(
        self: Rc<Self>,
        listeners: Vec<(TcpListener, Listener)>,
        mut changes: Inbox<Change>,
        stop: StopToken,
    ) {
        let ticking = runtime::spawn(Rc::clone(&self).tick());
        let mut listening = Listening::new(&self, listeners);
        let how = loop {
            match runtime::race(stop.stopped(), changes.recv()).await {
                Either::Left(()) | Either::Right(None) => break Draining::Now,
                Either::Right(Some(Change::HandedOver)) => break Draining::Patient,
                Either::Right(Some(change)) => listening.change(change),
            }
        };
        listening.close();
        self.drain(how, &stop).await;
        ticking.abort();
        self.publish();
        self.log.flush();
    }

    async fn drain(&self, how: Draining, stop: &StopToken) {
        self.draining.set(how);
        let deadline = time::now() + self.limits().drain_timeout;
        // Connections accepted just now take their place in the table.
        runtime::yield_now().await;
        if how == Draining::Now {
            self.wake_all();
        }
        while self.is_needed() && time::now() < deadline {
            if stop.is_stopped() && !self.closes_silent() {
                self.draining.set(Draining::Now);
                self.wake_all();
            }
            time::sleep(Duration::from_millis(5)).await;
        }
        if !self.closes_silent() {
            // Those that never asked: they are told of the end before it comes.
            self.draining.set(Draining::Now);
            self.wake_all();
            let deadline = time::now() + self.limits().linger_timeout;
            while self.is_needed() && time::now() < deadline {
                time::sleep(Duration::from_millis(5)).await;
            }
        }
        self.cut_tunnels().await;
        let left = self.connections.borrow().len();
        if left > 0 {
            tracing::warn!(left, "connections cut: the drain time-out has passed");
        }
    }

    /// Lets each connection see that something has changed.
    fn wake_all(&self) {
        let wakers: Vec<Waker> =
            self.connections.borrow().iter().map(|(_, waker)| waker.clone()).collect();
        for waker in wakers {
            waker.wake();
        }
    }

    /// They may have to write their last bytes' count, so they are told, and given a moment.
    async fn cut_tunnels(&self) {
        self.cuts.set(true);
        self.wake_all();
        for _ in 0..CUT_TURNS_MAX {
            if self.counters.tunnels_open.get() == 0 {
                return;
            }
            runtime::yield_now().await;
        }
    }

    /// Whether a client of this core, or one of another core that reads along with a fetch of
    /// this one, is still being served.
    fn is_needed(&self) -> bool {
        !self.connections.borrow().is_empty()
            || self.admin_answers.get() > 0
            || self.fillings.borrow().iter().any(|(_, flight)| flight.has_readers())
    }

    async fn tick(self: Rc<Self>) {
        loop {
            time::sleep(TICK).await;
            self.log.flush();
            self.pool.sweep(&self);
            self.shared.sweep_purged();
            self.sizing.flush(&self.shared.sizing, time::wall_ms());
            self.room_wanted.set(0);
            self.measure();
            self.shared.look_at_memory(&self.limits());
            self.publish();
        }
    }

    /// Tells overload what has become of the core since the last tick.
    fn measure(&self) {
        let now = Measured::now(&self.counters);
        let sample = now.since(&self.measured.replace(now));
        self.overload.tick(&sample, &self.limits());
        let of_core = &self.counters.core;
        let nanoseconds = |duration: Duration| duration.as_nanos() as u64;
        let wall = nanoseconds(sample.wall).max(1);
        of_core.busy_ppm.set(nanoseconds(sample.cpu) * 1_000_000 / wall);
        of_core.delay_ns.set(nanoseconds(sample.delay));
        of_core.marginal_ns.set(nanoseconds(self.overload.marginal()));
        of_core.shed_ppm.set(self.overload.share_ppm());
        of_core.cpu_ns.set(nanoseconds(now.cpu));
    }

    /// Copies what the runtime counts to where other threads can read it.
    fn publish(&self) {
        let counters = runtime::poller_counters();
        self.counters.waits.set(counters.waits);
        self.counters.events.set(counters.events);
        self.counters.empty_waits.set(counters.empty_waits);
        let counters = runtime::counters();
        self.counters.turns.set(counters.turns);
        self.counters.wakes.set(counters.remote_wakes);
        self.counters.polls.set(counters.tasks_polled);
        self.counters.recv_calls.set(counters.recv_calls);
        self.counters.send_calls.set(counters.send_calls);
        let made = runtime::allocations();
        self.counters.allocations.set(made.count);
        self.counters.allocated_bytes.set(made.bytes);
    }
}

/// Accepts from one socket, for ever.
pub(crate) async fn accept_all(worker: Rc<Worker>, listener: Rc<TcpListener>, door: DoorNow) {
    loop {
        let mut next = listener.accept().await;
        let mut accepted = 0;
        loop {
            match next {
                Ok((stream, peer)) => {
                    let door = Rc::clone(&door.borrow());
                    start(&worker, &door, stream, peer);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    tracing::warn!(%error, "no connection accepted");
                    worker.counters.connections_refused.add(1);
                    if is_out_of_descriptors(&error) {
                        worker.make_room();
                    }
                    time::sleep(ROOM_PAUSE).await;
                    break;
                }
            }
            accepted += 1;
            if accepted == ACCEPTS_PER_TURN_MAX {
                runtime::yield_now().await;
                break;
            }
            next = listener.try_accept();
        }
    }
}

/// Serves one connection.
pub(crate) fn start(worker: &Rc<Worker>, door: &Rc<Door>, stream: TcpStream, peer: SocketAddr) {
    worker.counters.connections_accepted.add(1);
    if worker.is_closed() {
        worker.counters.connections_shed.add(1);
        return;
    }
    let stream = Transport::Plain(stream);
    let serving = connection::serve(Rc::clone(worker), Rc::clone(door), stream, peer);
    runtime::spawn(serving).detach();
}
