//! Background revalidation: the client has its stale answer already (RFC 5861, 3).
//!
//! There is one at a time for a key: it leads the flight, and requests that need its answer wait
//! for it.

use cache::flight::{Joined, Lead, Settled};

use super::detached::Detached;
use super::response::handle;
use super::{Purpose, member, unanswered};
use crate::Exchange;
use crate::ask::Ask;
use crate::client::Client;
use crate::destination::Destination;
use crate::step::Step;

/// Starts a revalidation, unless another fetch of the key is in flight.
pub(crate) fn revalidate<C: Client>(exchange: &Exchange<'_, C>, to: &Destination<'_>, ask: Ask) {
    let Joined::Lead(lead) = exchange.join(to, &ask) else { return };
    let detached = Detached::of(&exchange.forwarding(to));
    runtime::spawn(run(detached, ask, lead)).detach();
}

async fn run(detached: Detached, ask: Ask, lead: Lead) {
    let (to, head) = detached.views();
    let forwarding = detached.forwarding(&to, &head);
    let request = forwarding.request(Purpose::Store(&ask));
    match member::exchange(&forwarding, &ask, &request, &mut |_| {}).await {
        Err(fault) => {
            let _ = unanswered(&forwarding.worker.io, fault);
            lead.settle(Settled::Failed(fault));
        }
        // The flight is settled, or its own task fetches the body: no client needs the step.
        Ok(answer) => {
            let step = handle(&forwarding, ask, lead, forwarding.ruled(answer));
            if let Ok(Step::Relay(answer, _, rule)) = step {
                let status = answer.head.head().status;
                tracing::debug!(status, rule, "a revalidation was not stored");
            }
        }
    }
}
