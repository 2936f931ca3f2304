//! The idle upstream connections of one core, by address and TLS peer.
//!
//! A connection is reused unless something unexpected has arrived on it, which the core knows
//! without a system call.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use runtime::time::{self, Instant};

use super::{Upstream, Upstreams};
use crate::limits::{PROVEN_AFTER, PROVEN_IDLE_MAX};
use transport::Transport;
use transport::tls::TlsPeer;

/// The idle connections of one core.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: RefCell<HashMap<Line, VecDeque<Idle>>>,
}

/// What interchangeable connections have in common: the address and, with TLS, the peer.
pub(super) type Line = (SocketAddr, Option<Arc<TlsPeer>>);

#[derive(Debug)]
struct Idle {
    /// Without a ticket: it serves no request.
    upstream: Box<Upstream>,
    since: Instant,
}

/// Which idle connections a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Any. If the upstream closes it at this moment, the request is repeated.
    Any,
    /// One that the upstream is very unlikely to close at this moment, because it was in use a
    /// moment ago and has stayed open after an answer before. For a request that must not be
    /// repeated.
    Proven,
    /// None: only a new connection will do.
    None,
}

impl Idle {
    fn is_proven(&self) -> bool {
        let idle = self.since.elapsed();
        idle < PROVEN_IDLE_MAX && (self.upstream.is_proven || idle >= PROVEN_AFTER)
    }
}

impl Pool {
    /// The most recently used connection that is still good.
    pub(super) fn take(
        &self,
        core: &Upstreams,
        line: &Line,
        reuse: Reuse,
    ) -> Option<Box<Upstream>> {
        let mut pool = self.idle.borrow_mut();
        let idle = pool.get_mut(line)?;
        loop {
            let last = match reuse {
                Reuse::Any => idle.pop_back()?,
                Reuse::Proven => idle.remove(idle.iter().rposition(Idle::is_proven)?)?,
                Reuse::None => return None,
            };
            core.io.counters.upstream_idle.sub(1);
            if !last.upstream.stream.has_unread_event() || planted::is(planted::Bug::UnaskedAnswer)
            {
                core.io.counters.upstream_reuses.add(1);
                return Some(last.upstream);
            }
        }
    }

    /// Keeps a connection whose response is complete, if nothing has come after that.
    pub(crate) fn put(&self, core: &Upstreams, mut upstream: Box<Upstream>) {
        if core.io.is_draining() || !watch(&upstream.stream) {
            return;
        }
        upstream.ticket = None;
        upstream.is_proven |= upstream.reused;
        let mut pool = self.idle.borrow_mut();
        let idle = pool.entry((upstream.address, upstream.tls.clone())).or_default();
        let is_full = idle.len() >= core.io.limits().limits.upstream_idle_max;
        if is_full {
            // The oldest makes room, unless it is closer to its proof than this one.
            let oldest = idle.front().map(|oldest| oldest.since.elapsed());
            let is_closer = oldest.is_some_and(|idle| idle < PROVEN_IDLE_MAX);
            if (is_closer && !upstream.is_proven) || idle.pop_front().is_none() {
                return;
            }
        }
        idle.push_back(Idle { upstream, since: time::now() });
        core.io.counters.upstream_idle.add(u64::from(!is_full));
    }

    /// Closes all idle connections, because descriptors are needed.
    pub(crate) fn close_idle(&self, core: &Upstreams) {
        let idle = std::mem::take(&mut *self.idle.borrow_mut());
        let closed: usize = idle.values().map(VecDeque::len).sum();
        core.io.counters.upstream_idle.sub(closed as u64);
    }

    /// Closes connections that were idle for too long, or that the upstream has closed.
    pub(crate) fn sweep(&self, core: &Upstreams) {
        let limit = core.io.limits().limits.upstream_idle;
        let now = time::now();
        self.idle.borrow_mut().retain(|_, idle| {
            let before = idle.len();
            idle.retain(|one| {
                now.since(one.since) < limit && !one.upstream.stream.has_unread_event()
            });
            core.io.counters.upstream_idle.sub((before - idle.len()) as u64);
            !idle.is_empty()
        });
    }
}

/// Watches a connection whose response is complete. False if more has come.
fn watch(stream: &Transport) -> bool {
    // After a read that filled its buffer only another one shows whether there is more.
    stream.watch() || (stream.try_peek(&mut [0]).is_err() && stream.watch())
}
