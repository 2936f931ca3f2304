//! The HTTP/2 connections of one core, by address and TLS peer.
//!
//! For each of them one connection is opened at a time: requests that find no room wait for it, and
//! share it. So a burst of requests does not open a connection for each, before the upstream has
//! said how many streams it takes.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use core_io::CoreIo;
use hashbrown::HashMap;
use outcome::Fault;
use runtime::sync::Notify;
use transport::tls::TlsPeer;

use super::link::{Link, Slot};
use crate::pool::Line;

/// The connections of a core.
#[derive(Debug, Default)]
pub(crate) struct Links {
    lines: RefCell<HashMap<Line, Interchangeable>>,
}

/// Connections of which a request may take any.
#[derive(Debug, Default)]
struct Interchangeable {
    links: Vec<Rc<Link>>,
    attempt: Option<Rc<Attempt>>,
    /// The upstream has chosen HTTP/1 on the last connection.
    is_http1: bool,
}

/// Where a request is sent.
pub(crate) enum Place {
    /// On a connection to this address.
    On(Slot, SocketAddr),
    /// On a new one. Without the attempt, no other request waits for it, because the upstream does
    /// not speak HTTP/2.
    New(Option<Opening>),
}

/// An attempt to open a connection.
#[derive(Debug, Default)]
struct Attempt {
    result: Cell<Option<Result<(), Fault>>>,
    ended: Notify,
}

impl Attempt {
    /// Waits for its end.
    async fn end(&self) -> Result<(), Fault> {
        loop {
            if let Some(result) = self.result.get() {
                return result;
            }
            self.ended.notified().await;
        }
    }
}

/// Held by the request or the connection that makes the attempt.
#[derive(Debug)]
pub(crate) struct Opening(Rc<Attempt>);

impl Opening {
    /// The requests that wait take a place on the connection, or fail with it.
    pub(crate) fn end(self, result: Result<(), Fault>) {
        self.0.result.set(Some(result));
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if self.0.result.get().is_none() {
            // The request was given up: another one makes the next attempt.
            self.0.result.set(Some(Ok(())));
        }
        self.0.ended.notify_all();
    }
}

impl Links {
    /// The place of a request to a server at these addresses. It may wait for the connection that
    /// another request is opening, and fails with that.
    pub(crate) async fn place(
        &self,
        addresses: &[SocketAddr],
        tls: &Option<Arc<TlsPeer>>,
    ) -> Result<Place, Fault> {
        loop {
            match self.place_or_attempt(addresses, tls) {
                Ok(place) => return Ok(place),
                Err(attempt) => attempt.end().await?,
            }
        }
    }

    /// The attempt that is being made, if there is no place without it.
    fn place_or_attempt(
        &self,
        addresses: &[SocketAddr],
        tls: &Option<Arc<TlsPeer>>,
    ) -> Result<Place, Rc<Attempt>> {
        let mut lines = self.lines.borrow_mut();
        for &address in addresses {
            if let Some(line) = lines.get_mut(&(address, tls.clone())) {
                line.links.retain(|link| link.is_open());
                if let Some(slot) = line.links.iter().find_map(Link::enter) {
                    return Ok(Place::On(slot, address));
                }
            }
        }
        let Some(&first) = addresses.first() else { return Ok(Place::New(None)) };
        let line = lines.entry((first, tls.clone())).or_default();
        match &line.attempt {
            _ if line.is_http1 => Ok(Place::New(None)),
            Some(attempt) if attempt.result.get().is_none() => Err(Rc::clone(attempt)),
            _ => {
                let attempt = line.attempt.insert(Rc::default());
                Ok(Place::New(Some(Opening(Rc::clone(attempt)))))
            }
        }
    }

    /// Adds a connection to this address.
    pub(crate) fn put(&self, address: SocketAddr, tls: Option<Arc<TlsPeer>>, slot: &Slot) {
        let mut lines = self.lines.borrow_mut();
        let line = lines.entry((address, tls)).or_default();
        line.is_http1 = false;
        line.links.push(Rc::clone(slot.link()));
    }

    /// The upstream has chosen HTTP/1: requests do not wait for each other's connections.
    pub(crate) fn speaks_http1(&self, addresses: &[SocketAddr], tls: &Option<Arc<TlsPeer>>) {
        if let Some(&first) = addresses.first() {
            self.lines.borrow_mut().entry((first, tls.clone())).or_default().is_http1 = true;
        }
    }

    /// Ends connections that have been idle for too long, and those beyond the number to keep.
    pub(crate) fn sweep(&self, io: &CoreIo) {
        let in_force = io.limits();
        let limits = &in_force.limits;
        self.lines.borrow_mut().retain(|_, line| {
            let mut idle = 0;
            for link in &line.links {
                if let Some(idle_for) = link.idle_for() {
                    idle += 1;
                    if idle_for >= limits.upstream_idle || idle > limits.upstream_idle_max {
                        link.retire();
                    } else {
                        link.shrink();
                    }
                }
            }
            line.links.retain(|link| link.is_open());
            let is_opening = line.attempt.as_ref().is_some_and(|one| one.result.get().is_none());
            is_opening || !line.links.is_empty()
        });
    }

    /// Ends all idle connections.
    pub(crate) fn close_idle(&self) {
        let lines = self.lines.borrow();
        let links = lines.values().flat_map(|line| &line.links);
        links.filter(|link| link.idle_for().is_some()).for_each(|link| link.retire());
    }
}
