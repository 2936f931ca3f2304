//! The idle upstream connections of one core, by address and TLS peer.
//!
//! A connection is reused unless something unexpected has arrived on it, which the core knows
//! without a system call.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;
use runtime::time::{self, Instant};

use super::{Upstream, Upstreams};
use transport::Transport;
use transport::tls::TlsPeer;

/// The idle connections of one core.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: RefCell<HashMap<Line, Vec<Idle>>>,
}

/// What interchangeable connections have in common: the address and, with TLS, the peer.
pub(super) type Line = (SocketAddr, Option<Arc<TlsPeer>>);

#[derive(Debug)]
struct Idle {
    stream: Rc<Transport>,
    since: Instant,
}

impl Pool {
    /// The most recently used connection that is still good.
    pub(super) fn take(&self, core: &Upstreams, line: &Line) -> Option<Rc<Transport>> {
        let mut pool = self.idle.borrow_mut();
        let idle = pool.get_mut(line)?;
        while let Some(last) = idle.pop() {
            core.io.counters.upstream_idle.sub(1);
            if !last.stream.has_unread_event() || planted::is(planted::Bug::UnaskedAnswer) {
                core.io.counters.upstream_reuses.add(1);
                return Some(last.stream);
            }
        }
        None
    }

    /// Keeps a connection whose response is complete.
    pub(crate) fn put(&self, core: &Upstreams, upstream: Upstream) {
        let mut pool = self.idle.borrow_mut();
        let idle = pool.entry((upstream.address, upstream.tls)).or_default();
        if idle.len() < core.io.limits().limits.upstream_idle_max && !core.io.is_draining() {
            idle.push(Idle { stream: upstream.stream, since: time::now() });
            core.io.counters.upstream_idle.add(1);
        }
    }

    /// Closes all idle connections, because descriptors are needed.
    pub(crate) fn close_idle(&self, core: &Upstreams) {
        let idle = std::mem::take(&mut *self.idle.borrow_mut());
        let closed: usize = idle.values().map(Vec::len).sum();
        core.io.counters.upstream_idle.sub(closed as u64);
    }

    /// Closes connections that were idle for too long, or that the upstream has closed.
    pub(crate) fn sweep(&self, core: &Upstreams) {
        let limit = core.io.limits().limits.upstream_idle;
        let now = time::now();
        self.idle.borrow_mut().retain(|_, idle| {
            let before = idle.len();
            idle.retain(|one| now.since(one.since) < limit && !one.stream.has_unread_event());
            core.io.counters.upstream_idle.sub((before - idle.len()) as u64);
            !idle.is_empty()
        });
    }
}
