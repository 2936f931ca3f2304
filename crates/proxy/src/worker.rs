//! One core's share of the server: its listeners, its connections, its buffers, its counters.
//!
//! A worker belongs to one thread. What moves bytes is in its [`CoreIo`].

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use core_io::CoreIo;
use slab::Slab;

use crate::shared::Shared;
use crate::site::Site;
use cache::flight::Flight;

use access_log::CoreLog;
use cache::sizing::CoreSample;
use metrics::Counters;
use policy::forward::Verifying;
use policy::overload::Overload;
use upstream::Upstreams;

/// The state of one core.
pub struct Worker {
    /// What it shares with the other cores.
    pub shared: Arc<Shared>,
    site: RefCell<Rc<Site>>,
    /// What its connections share.
    pub io: Rc<CoreIo>,
    /// Its connections to upstream servers.
    pub upstreams: Rc<Upstreams>,
    /// Its sample for the forecast of other sizes.
    pub sizing: CoreSample,
    /// Bodies that this core brings for the store and for readers on any core.
    pub fillings: RefCell<Slab<Arc<Flight>>>,
    /// Passwords that this core verifies.
    pub verifying: Verifying,
    /// Whether it has more requests than it can answer.
    pub overload: Overload,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("io", &self.io).finish_non_exhaustive()
    }
}

/// What moves bytes takes the [`CoreIo`] alone; what serves requests has it here.
impl Deref for Worker {
    type Target = CoreIo;

    #[inline]
    fn deref(&self) -> &CoreIo {
        &self.io
    }
}

impl Worker {
    /// A core without connections.
    pub fn new(shared: Arc<Shared>, site: Site, counters: Arc<Counters>) -> Rc<Worker> {
        let log = CoreLog::new(shared.log.clone(), site.config.log_format.clone());
        let refusals = Arc::clone(&shared.refusals);
        let io = CoreIo::new(site.limits().clone(), counters, refusals, log);
        Rc::new(Worker {
            overload: Overload::default(),
            upstreams: Upstreams::new(&io),
            io,
            sizing: CoreSample::default(),
            fillings: RefCell::default(),
            verifying: Verifying::default(),
            shared,
            site: RefCell::new(Rc::new(site)),
        })
    }

    /// What the configuration says now.
    #[inline]
    pub fn site(&self) -> Rc<Site> {
        Rc::clone(&self.site.borrow())
    }

    /// From now on another configuration holds. What is under way ends with the one it began with.
    pub fn replace_site(&self, site: Site) {
        self.io.replace_limits(site.limits().clone());
        let before = self.site.replace(Rc::new(site));
        drop(before); // what it holds goes without the borrow
    }
}
