//! Leading a flight: asking the origin on behalf of everyone who waits.

use std::pin::pin;

use cache::flight::{Lead, Settled};
use caching::Failure;
use http1::ResponseHead;
use outcome::{Fault, Refusal};

use super::response::handle;
use super::{Purpose, member, unanswered};
use crate::Exchange;
use crate::abandoned::unless_left;
use crate::ask::{Ask, Held};
use crate::cache_status::CacheStatus;
use crate::client::Client;
use crate::destination::Destination;
use crate::step::{Provenance, Serving, Step};

impl<'x, C: Client> Exchange<'x, C> {
    /// Asks the origin and settles the flight. If it `is_shared`, another core may have stored an
    /// answer between the look into the store and the joining: then the origin is not asked.
    pub(crate) async fn lead<'d>(
        &mut self,
        to: &'d Destination<'d>,
        ask: Ask,
        lead: Lead,
        is_shared: bool,
    ) -> Result<Step<'d>, Refusal>
    where
        'x: 'd,
    {
        if is_shared && let Some(stored) = self.planner().look_again(ask.uri) {
            lead.settle(Settled::Stored(stored.clone()));
            let provenance = Provenance::stored(CacheStatus::HIT);
            return Ok(Step::Serve(to, Serving { held: Held::Whole(stored), provenance }));
        }
        let (forwarding, left) = (self.forwarding(to), self.left());
        let request = forwarding.request(Purpose::Store(&ask));
        // Interim responses are for the client that leads; they are not stored.
        let client = &mut self.client;
        let mut interim = |head: &ResponseHead<'_>| client.interim(head);
        let worker = self.context.worker;
        // Here, because a future and a result that are passed by value are copied.
        let mut fetched = None;
        let ended = {
            let abandoned = pin!(async {
                left.await;
                lead.unread().await;
            });
            let fetching = pin!(async {
                fetched = Some(member::fetch(&forwarding, &ask, &request, &mut interim).await);
            });
            unless_left(abandoned, fetching).await
        };
        ended.inspect_err(|_| tracing::debug!("a fetch that no request waits for ends"))?;
        match fetched.expect("the fetch has ended, because it was not abandoned") {
            Ok(answer) => handle(&forwarding, ask, lead, forwarding.ruled(answer)),
            Err(fault) => {
                lead.settle(Settled::Failed(fault));
                let _ = unanswered(&worker.io, fault);
                self.failed(to, ask, fault)
            }
        }
    }

    /// The origin gave no answer: serves a stale response if a rule allows it.
    pub(crate) fn failed<'d>(
        &self,
        to: &'d Destination<'d>,
        ask: Ask,
        fault: Fault,
    ) -> Result<Step<'d>, Refusal> {
        match self.forwarding(to).stale_substitute(&ask, Failure::Unreachable) {
            Some(serving) => Ok(Step::Serve(to, serving)),
            None => Err(Refusal::Fault(fault)),
        }
    }

    /// The origin answered another's request with an error: serves a stale response if a rule
    /// allows it, or fetches this request by itself.
    pub(crate) fn declined<'d>(&self, to: &'d Destination<'d>, ask: Ask, status: u16) -> Step<'d> {
        match self.forwarding(to).stale_substitute(&ask, Failure::Status(status)) {
            Some(serving) => Step::Serve(to, serving),
            None => Step::LookUpAlone(to),
        }
    }
}
