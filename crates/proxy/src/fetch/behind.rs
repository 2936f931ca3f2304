//! Validating behind the client's back: it has its stale answer already (RFC 5861, 3).
//!
//! One at a time for a key: it leads the flight, and who needs the answer meanwhile waits for it.

use std::net::SocketAddr;
use std::rc::Rc;

use http1::{Method, OwnedRequest};

use crate::ask::Ask;
use crate::destination::{Destination, OwnedDestination};
use crate::exchange::Exchange;
use crate::fetch::land::{Landed, land};
use crate::fetch::{Asking, Purpose};
use crate::site::Site;
use crate::worker::Worker;
use cache::flight::{Joined, Lead, Settled};
use config::Role;
use upstream::{self, Outgoing};

/// Begins to, unless somebody asks for it already.
pub(crate) fn revalidate(exchange: &Exchange<'_>, destination: &Destination<'_>, ask: Ask) {
    let Joined::Lead(lead) = exchange.join(destination, ask.uri, ask.key) else { return };
    let task = Behind {
        worker: Rc::clone(exchange.worker),
        site: Rc::clone(&exchange.site),
        role: exchange.door.role,
        peer: exchange.peer,
        route: exchange.route,
        request: exchange.head.detach(),
        destination: destination.detach(),
    };
    runtime::spawn(task.run(ask, lead)).detach();
}

/// What outlives the request.
struct Behind {
    worker: Rc<Worker>,
    site: Rc<Site>,
    role: Role,
    peer: SocketAddr,
    route: Option<usize>,
    request: OwnedRequest,
    destination: OwnedDestination,
}

impl Behind {
    async fn run(self, ask: Ask, lead: Lead) {
        let destination = self.destination.view();
        let asking = Asking {
            worker: &self.worker,
            site: self.site,
            role: self.role,
            peer: self.peer,
            route: self.route,
            head: self.request.head(),
            destination: &destination,
        };
        let bytes = asking.bytes(Purpose::Store(&ask));
        let outgoing = Outgoing { bytes: &bytes, method: Method::Get, repeatable: true };
        match upstream::exchange(&asking.worker.upstreams, &destination.to, outgoing, &mut |_| {})
            .await
        {
            Err(fault) => {
                tracing::debug!(%fault, "no answer to a validation in the background");
                asking.worker.counters.upstream_errors.add(1);
                lead.settle(Settled::Failed(fault));
            }
            Ok(answer) => match land(&asking, &ask, lead, asking.ruled(answer)) {
                // A body that streams is brought by its own task; nobody waits for it here.
                Landed::Streaming { .. } | Landed::Stored { .. } | Landed::Confirmed { .. } => {}
                Landed::Failed(_) | Landed::Unfit | Landed::StandIn { .. } => {}
                Landed::NotStored { answer, why } => {
                    let status = answer.head.head().status;
                    tracing::debug!(status, ?why, "a validation in the background was in vain");
                }
            },
        }
    }
}
