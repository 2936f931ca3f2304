//! The parts of a request that outlive it: for work that goes on after its client has left.

use std::net::SocketAddr;
use std::rc::Rc;

use config::Role;
use http1::{OwnedRequest, RequestHead};

use crate::destination::{Destination, OwnedDestination};
use crate::fetch::Forwarding;
use crate::snapshot::Snapshot;
use crate::worker::Worker;

/// See the module's text.
pub(super) struct Detached {
    worker: Rc<Worker>,
    snapshot: Rc<Snapshot>,
    role: Role,
    peer: SocketAddr,
    route: Option<usize>,
    request: OwnedRequest,
    destination: OwnedDestination,
}

impl Detached {
    pub(super) fn of(forwarding: &Forwarding<'_>) -> Detached {
        let Forwarding { worker, snapshot, role, peer, route, head, to } = forwarding;
        Detached {
            worker: Rc::clone(worker),
            snapshot: Rc::clone(snapshot),
            role: *role,
            peer: *peer,
            route: *route,
            request: head.detach(),
            destination: to.detach(),
        }
    }

    /// What [`Self::forwarding`] refers to.
    pub(super) fn views(&self) -> (Destination<'_>, RequestHead<'_>) {
        (self.destination.view(), self.request.head())
    }

    /// The request, to be forwarded once more.
    pub(super) fn forwarding<'a>(
        &'a self,
        to: &'a Destination<'a>,
        head: &'a RequestHead<'a>,
    ) -> Forwarding<'a> {
        Forwarding {
            worker: &self.worker,
            snapshot: Rc::clone(&self.snapshot),
            role: self.role,
            peer: self.peer,
            route: self.route,
            head,
            to,
        }
    }
}
