//! The share of the server that one core serves.
//!
//! A worker belongs to one thread. A worker is a list of handles: code that moves bytes takes the
//! [`CoreIo`], code that looks into the store takes the [`Cache`], and so on.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use access_log::CoreLog;
use cache::Cache;
use cache::flight::Flight;
use cache::sizing::CoreSample;
use core_io::CoreIo;
use files::Roots;
use metrics::Counters;
use policy::forward::Verifying;
use policy::overload::Overload;
use policy::quota::{Counted, TooMany};
use readiness::Token;
use readiness::slots::SlotBitmap;
use slab::Slab;
use upstream::Upstreams;

use crate::listener::ListenerContext;
use crate::shared::Shared;
use crate::snapshot::Snapshot;

/// The state of one core.
pub struct Worker {
    /// What its connections share: buffers, limits, counters, the log.
    pub io: Rc<CoreIo>,
    /// Its connections to upstream servers.
    pub upstreams: Rc<Upstreams>,
    /// The cache, which all cores share.
    pub cache: Arc<Cache>,
    /// What else the cores share.
    pub shared: Arc<Shared>,
    snapshot: RefCell<Rc<Snapshot>>,
    /// Its sample for the forecast of other store sizes.
    pub sizing: CoreSample,
    /// Bodies that this core fetches for the store and for readers on any core.
    pub fillings: RefCell<Slab<Arc<Flight>>>,
    /// Passwords that this core is verifying.
    pub verifying: Verifying,
    /// Whether it has more requests than it can answer.
    pub overload: Overload,
    /// The connections that quotas count. Beside the connections, so that a silent one is no larger
    /// for it.
    counted: RefCell<HashMap<Token, Vec<Counted>>>,
    /// The directories of files that it has opened.
    pub(crate) roots: Roots,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("io", &self.io).finish_non_exhaustive()
    }
}

impl Worker {
    /// A core without connections.
    pub fn new(shared: Arc<Shared>, snapshot: Snapshot, counters: Arc<Counters>) -> Rc<Worker> {
        let format = snapshot.config.log_format.clone();
        let log = CoreLog::new(shared.log.clone(), format, Arc::clone(&shared.urls));
        let refusals = Arc::clone(&shared.refusals);
        let io = CoreIo::new(limits_of(&snapshot), counters, refusals, log);
        shared.cache.doubts.set_life(doubt_life(&snapshot));
        Rc::new(Worker {
            overload: Overload::new(shared.cache.hasher.key(&[b"shares"]).to_u128() as u64),
            upstreams: Upstreams::new(&io),
            io,
            cache: Arc::clone(&shared.cache),
            sizing: CoreSample::default(),
            fillings: RefCell::default(),
            verifying: Verifying::default(),
            shared,
            snapshot: RefCell::new(Rc::new(snapshot)),
            counted: RefCell::default(),
            roots: Roots::default(),
        })
    }

    /// The configuration in force.
    #[inline]
    pub fn snapshot(&self) -> Rc<Snapshot> {
        Rc::clone(&self.snapshot.borrow())
    }

    /// Whether a quota counts connections.
    pub fn counts_connections(&self) -> bool {
        let quotas = &self.snapshot.borrow().quotas;
        quotas.as_ref().is_some_and(|quotas| quotas.count_connections())
    }

    /// Counts a connection by the quotas, until what is returned is dropped.
    ///
    /// # Errors
    /// The client has as many connections as it may have.
    pub fn count_connection(
        &self,
        listener: &ListenerContext,
        peer: IpAddr,
    ) -> Result<Vec<Counted>, TooMany> {
        match &self.snapshot.borrow().quotas {
            Some(_) if listener.cluster => Ok(Vec::new()),
            None => Ok(Vec::new()),
            Some(quotas) => quotas.connect(peer, listener.role),
        }
    }

    /// Puts another configuration in force. Requests in flight keep the one they began with.
    pub fn replace_snapshot(&self, snapshot: Snapshot) {
        self.io.replace_limits(limits_of(&snapshot));
        self.cache.doubts.set_life(doubt_life(&snapshot));
        let before = self.snapshot.replace(Rc::new(snapshot));
        drop(before); // its destructors run without the borrow
    }
}

/// The limits of a configuration, and the largest limit of a route for the content of requests.
fn limits_of(snapshot: &Snapshot) -> (config::limits::Limits, Option<u64>) {
    (snapshot.limits().clone(), snapshot.config.route_body_bytes_max())
}

/// How long doubts last, if there are peers.
fn doubt_life(snapshot: &Snapshot) -> Option<Duration> {
    snapshot.peers.as_ref().map(|peers| peers.doubt_time)
}

/// The place of a connection in the table. It leaves the table when this is dropped.
pub struct Slot {
    /// The core of the connection.
    pub worker: Rc<Worker>,
    /// Its place.
    pub slot: Token,
}

/// No connection has this place.
const NO_PLACE: Token = Token::new(Token::SLOT_RESERVED - 1, 0);
const _: () = assert!(NO_PLACE.slot() >= SlotBitmap::LIMIT_MAX, "no table is as large");

/// A place in the table, and what quotas count of the connection that has it.
pub struct Entered {
    /// The place.
    pub place: Token,
    /// What quotas count.
    pub counted: Vec<Counted>,
}

impl Slot {
    /// A connection that has not entered the table.
    pub fn without_place(worker: Rc<Worker>) -> Slot {
        Slot { worker, slot: NO_PLACE }
    }

    /// The connection has entered the table.
    pub fn enter(&mut self, entered: Entered) {
        assert!(self.slot == NO_PLACE, "a connection enters the table once");
        self.slot = entered.place;
        self.keep(entered.counted);
    }

    /// Counts the connection by the quotas. False if its client has as many as it may have.
    #[must_use]
    pub fn is_within_quotas(&self, listener: &ListenerContext, peer: IpAddr) -> bool {
        let counted = self.worker.count_connection(listener, peer);
        counted.map(|counted| self.keep(counted)).is_ok()
    }

    /// Keeps what quotas count of the connection until its end.
    fn keep(&self, counted: Vec<Counted>) {
        if !counted.is_empty() {
            self.worker.counted.borrow_mut().insert(self.slot, counted);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let counted = &self.worker.counted;
        if !counted.borrow().is_empty() {
            counted.borrow_mut().remove(&self.slot);
        }
        self.worker.io.leave(self.slot);
    }
}
