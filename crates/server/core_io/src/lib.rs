//! What the connections of one core share, clients' and upstreams' alike.
//!
//! What: buffers, the limits in force, counters, the core's end of the access log, the state of
//! TLS, and the table of client connections. Why one handle: code that moves bytes is given this
//! and nothing else; it does not see the store, the routes or the listeners. Who owns: the core's
//! worker; connections hold references.
//!
//! The read buffer is used by one connection at a time, between two waits, so that ten thousand
//! silent connections share one. The table of connections gives out its lowest free slot, so that
//! it stays dense.
//!
//! What never happens: a buffer is held across an await; two cores share a [`CoreIo`].
#![forbid(unsafe_code)]

pub mod held;
pub mod limits;
pub mod mux;
pub mod pace;
pub mod panics;
pub mod piped;
pub mod room;
pub mod spares;
pub mod strays;

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use access_log::CoreLog;
use config::limits::{Limits, PRESSED_BYTES, READ_BUFFER_BYTES};
use http1::{FieldNames, OwnedRequest, OwnedResponse, RequestHead, ResponseHead, Scratch};
use metrics::{Counters, RefusalCounts};
use outcome::Refusal;
use readiness::Token;
use readiness::slots::SlotTable;
use transport::shares::Shares;
use transport::tls::CoreTls;

use crate::limits::{HEADS_BYTES_MAX, OUTPUT_BYTES_MAX};
use crate::room::{Place, Room};
use crate::spares::{Reused, SharedHead, Spares};

/// The handle: see the module's documentation.
pub struct CoreIo {
    /// The counters of the core.
    pub counters: Arc<Counters>,
    /// The core's end of the access log.
    pub log: CoreLog,
    /// The state that the TLS connections of the core share.
    pub tls: Rc<CoreTls>,
    /// The memory of heads that have not come whole.
    pub heads: Rc<Shares>,
    refusals: Arc<RefusalCounts>,
    limits: RefCell<Rc<LimitsInForce>>,
    buffers: RefCell<Buffers>,
    scratch: RefCell<Box<Scratch>>,
    spare_bytes: Spares<Vec<u8>>,
    spare_requests: Spares<Rc<OwnedRequest>>,
    spare_responses: Spares<Box<OwnedResponse>>,
    connections: RefCell<SlotTable<Place>>,
    draining: Cell<Draining>,
    cuts_tunnels: Cell<bool>,
    /// Clients leave too much unread.
    is_pressed: Cell<bool>,
    room: Room,
}

/// The limits of one configuration. A request keeps the ones that it began with.
#[derive(Debug)]
pub struct LimitsInForce {
    /// The limits of the server.
    pub limits: Limits,
    /// The limits of the parser, with all fields.
    pub http: http1::Limits,
    /// The same for requests, whose content has a limit.
    pub requests: http1::Limits,
    /// The same for requests with plain names alone.
    plain: http1::Limits,
}

impl LimitsInForce {
    /// The parser's limits follow from the server's, and from the largest limit that a route has
    /// for the content of requests.
    pub fn new(limits: Limits, of_routes: Option<u64>) -> LimitsInForce {
        let mut http = http1::Limits::default();
        http.head_bytes_max = limits.head_bytes_max.min(READ_BUFFER_BYTES / 2);
        http.fields_max = limits.fields_max;
        let mut requests = http.clone();
        let all = limits.body_bytes_max.unwrap_or(u64::MAX);
        // A request is judged by the limit of its route when the route is known.
        requests.content_bytes_max = of_routes.unwrap_or(0).max(all);
        let mut plain = requests.clone();
        plain.names = FieldNames::Plain;
        LimitsInForce { limits, http, requests, plain }
    }

    /// The limits of the parser for requests at a listener that has these fields.
    #[inline]
    pub fn http_with(&self, names: FieldNames) -> &http1::Limits {
        match names {
            FieldNames::Any => &self.requests,
            FieldNames::Plain => &self.plain,
        }
    }
}

/// Whether and how a core ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draining {
    /// It does not end.
    No,
    /// Another process has taken over. The client of a silent connection may be about to send a
    /// request, so the connection stays until it has, or until the drain time-out.
    Patient,
    /// It stops: silent connections are closed.
    Now,
}

/// The buffers that a turn of a connection borrows.
pub struct Buffers {
    /// Bytes read.
    pub input: Box<[u8]>,
    /// Bytes to send.
    pub output: Vec<u8>,
}

impl std::fmt::Debug for CoreIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CoreIo").field("draining", &self.draining).finish_non_exhaustive()
    }
}

impl CoreIo {
    /// The handle of a core without connections.
    pub fn new(
        (limits, of_routes): (Limits, Option<u64>),
        counters: Arc<Counters>,
        refusals: Arc<RefusalCounts>,
        log: CoreLog,
    ) -> Rc<CoreIo> {
        let connections_max = u32::try_from(limits.connections_max).unwrap_or(u32::MAX);
        Rc::new(CoreIo {
            counters,
            log,
            refusals,
            tls: CoreTls::new(),
            heads: Shares::new(HEADS_BYTES_MAX),
            limits: RefCell::new(Rc::new(LimitsInForce::new(limits, of_routes))),
            buffers: RefCell::new(Buffers {
                input: vec![0; READ_BUFFER_BYTES].into_boxed_slice(),
                output: Vec::with_capacity(READ_BUFFER_BYTES),
            }),
            scratch: RefCell::new(Box::default()),
            spare_bytes: Spares::default(),
            spare_requests: Spares::default(),
            spare_responses: Spares::default(),
            connections: RefCell::new(SlotTable::with_limit(connections_max)),
            draining: Cell::new(Draining::No),
            cuts_tunnels: Cell::new(false),
            is_pressed: Cell::new(false),
            room: Room::default(),
        })
    }

    /// The limits in force.
    #[inline]
    pub fn limits(&self) -> Rc<LimitsInForce> {
        Rc::clone(&self.limits.borrow())
    }

    /// Puts other limits in force. Requests in flight keep the ones that they began with.
    pub fn replace_limits(&self, (limits, of_routes): (Limits, Option<u64>)) {
        self.limits.replace(Rc::new(LimitsInForce::new(limits, of_routes)));
    }

    /// Counts a refusal by its rule.
    pub fn count_refusal(&self, refusal: Refusal) {
        self.refusals.count(refusal);
    }

    /// Whether the core is about to end.
    pub fn is_draining(&self) -> bool {
        self.draining.get() != Draining::No
    }

    /// Whether silent connections are to be closed.
    pub fn closes_silent(&self) -> bool {
        self.draining.get() == Draining::Now
    }

    /// Sets whether and how the core ends.
    pub fn drain(&self, how: Draining) {
        self.draining.set(how);
    }

    /// Whether tunnels must end now, because they would not end by themselves.
    pub fn cuts_tunnels(&self) -> bool {
        self.cuts_tunnels.get()
    }

    /// From now on tunnels must end. Wakes every connection, so that it sees this.
    pub fn cut_tunnels(&self) {
        self.cuts_tunnels.set(true);
        self.wake_all();
    }

    /// Gives the read buffer to `f`. Not to be nested.
    pub fn with_input<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        f(&mut self.buffers.borrow_mut().input)
    }

    /// Gives the read buffer to `f` for bytes of an upstream, or only a part of it while clients
    /// leave too much unread. Not to be nested.
    pub fn with_paced_input<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let bytes = self.paced_bytes();
        self.with_input(|input| f(&mut input[..bytes]))
    }

    /// How much of an upstream's bytes a response takes at a time.
    pub fn paced_bytes(&self) -> usize {
        if self.is_pressed.get() { PRESSED_BYTES } else { READ_BUFFER_BYTES }
    }

    /// Gives both buffers to `f`. Not to be nested.
    #[inline]
    pub fn with_buffers<R>(&self, f: impl FnOnce(&mut Buffers) -> R) -> R {
        f(&mut self.buffers.borrow_mut())
    }

    /// Gives the parser's scratch space to `f`. Not to be nested.
    #[inline]
    pub fn with_scratch<R>(&self, f: impl FnOnce(&mut Scratch) -> R) -> R {
        f(&mut self.scratch.borrow_mut())
    }

    /// An empty buffer, with the memory of an earlier one.
    #[inline]
    pub fn buffer(&self) -> Reused<Vec<u8>> {
        self.spare_bytes.take(Vec::new, Vec::clear)
    }

    /// A copy of a client's head, in the memory of an earlier one.
    pub fn incoming(&self, head: &RequestHead<'_>) -> SharedHead {
        let again = |owned: &mut Rc<OwnedRequest>| {
            head.detach_over(Rc::get_mut(owned).expect("nothing else uses a spare head"));
        };
        self.spare_requests.take(|| Rc::new(head.detach()), again)
    }

    /// A copy of an upstream's head, in the memory of an earlier one.
    pub fn received(&self, head: &ResponseHead<'_>) -> Reused<Box<OwnedResponse>> {
        self.spare_responses.take(|| Box::new(head.detach()), |owned| head.detach_over(owned))
    }

    /// Bytes of responses that are collected before they are sent.
    #[inline]
    pub fn output_bytes_max(&self) -> usize {
        if self.is_pressed.get() { PRESSED_BYTES } else { OUTPUT_BYTES_MAX }
    }

    /// Accounts for bytes that wait for clients.
    pub fn hold(&self, bytes: u64) {
        self.counters.held_bytes.add(bytes);
        self.look_at_held_bytes();
    }

    /// Accounts for bytes that wait no longer.
    pub fn release(&self, bytes: u64) {
        self.counters.held_bytes.sub(bytes);
        self.look_at_held_bytes();
    }

    /// Accounts for bytes that wait for a client, until the guard is dropped.
    pub fn held(&self, bytes: usize) -> Held<'_> {
        self.hold(bytes as u64);
        Held { io: self, bytes: bytes as u64 }
    }

    /// Whether clients leave too much unread.
    pub fn is_pressed(&self) -> bool {
        self.is_pressed.get()
    }

    /// Sees a change of the bytes that wait for clients.
    pub fn look_at_held_bytes(&self) {
        let limit = self.limits.borrow().limits.held_bytes_max;
        self.is_pressed.set(self.counters.held_bytes.get() > limit);
    }

    /// Puts the connection of a client at this address into the table; `None` if it is full.
    pub fn enter(&self, waker: &Waker, client: IpAddr) -> Option<Token> {
        let place = Place::new(waker, client);
        let token = self.connections.borrow_mut().try_insert(place).ok()?;
        self.counters.connections_open.add(1);
        self.look_for_room();
        Some(token)
    }

    /// Takes a client connection out of the table.
    pub fn leave(&self, token: Token) {
        if self.connections.borrow_mut().remove(token).is_some() {
            self.counters.connections_open.sub(1);
            self.room.left();
        }
    }

    /// How many client connections are open.
    pub fn connections(&self) -> usize {
        self.connections.borrow().len()
    }

    /// Wakes each client connection, so that it sees a change.
    pub fn wake_all(&self) {
        let connections = self.connections.borrow();
        let wakers: Vec<Waker> = connections.iter().map(|(_, place)| place.waker()).collect();
        drop(connections);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// See [`CoreIo::held`].
#[derive(Debug)]
pub struct Held<'c> {
    io: &'c CoreIo,
    bytes: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.io.release(self.bytes);
    }
}
