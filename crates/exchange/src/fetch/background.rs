//! Background revalidation: the client has its stale answer already (RFC 5861, 3).
//!
//! There is one at a time for a key: it leads the flight, and requests that need its answer wait
//! for it.

use std::net::SocketAddr;
use std::rc::Rc;

use cache::flight::{Joined, Lead, Settled};
use config::Role;
use http1::OwnedRequest;

use super::response::handle;
use super::{Forwarding, Purpose, member, unanswered};
use crate::Exchange;
use crate::ask::Ask;
use crate::client::Client;
use crate::destination::{Destination, OwnedDestination};
use crate::snapshot::Snapshot;
use crate::step::Step;
use crate::worker::Worker;

/// Starts a revalidation, unless another fetch of the key is in flight.
pub(crate) fn revalidate<C: Client>(exchange: &Exchange<'_, C>, to: &Destination<'_>, ask: Ask) {
    let Joined::Lead(lead) = exchange.join(to, &ask) else { return };
    let context = &exchange.context;
    let task = Revalidation {
        worker: Rc::clone(context.worker),
        snapshot: Rc::clone(&context.snapshot),
        role: context.listener.role,
        peer: context.peer,
        route: exchange.routed.route,
        request: context.head.detach(),
        destination: to.detach(),
    };
    runtime::spawn(task.run(ask, lead)).detach();
}

/// The parts of a request that outlive it.
struct Revalidation {
    worker: Rc<Worker>,
    snapshot: Rc<Snapshot>,
    role: Role,
    peer: SocketAddr,
    route: Option<usize>,
    request: OwnedRequest,
    destination: OwnedDestination,
}

impl Revalidation {
    async fn run(self, ask: Ask, lead: Lead) {
        let to = self.destination.view();
        let forwarding = Forwarding {
            worker: &self.worker,
            snapshot: self.snapshot,
            role: self.role,
            peer: self.peer,
            route: self.route,
            head: &self.request.head(),
            to: &to,
        };
        let request = forwarding.request(Purpose::Store(&ask));
        match member::exchange(&forwarding, &ask, &request, &mut |_| {}).await {
            Err(fault) => {
                let _ = unanswered(&self.worker.io, fault);
                lead.settle(Settled::Failed(fault));
            }
            // The flight is settled, or its own task fetches the body: no client needs the step.
            Ok(answer) => {
                let step = handle(&forwarding, &to, ask, lead, forwarding.ruled(answer));
                if let Ok(Step::Relay(answer, _, rule)) = step {
                    let status = answer.head.head().status;
                    tracing::debug!(status, rule, "a revalidation was not stored");
                }
            }
        }
    }
}
