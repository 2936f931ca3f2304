//! The flight of a fetch: joining another request's, leading one, and revalidating in the
//! background.

use std::pin::pin;

use cache::flight::{Found, Joined, Lead, Reader, Settled};
use cache::stored::{Head, Wire};
use caching::Failure;
use http1::ResponseHead;
use outcome::{Fault, Refusal};
use runtime::time;

use crate::cache_status::CacheStatus;
use crate::client::Client;
use crate::destination::Destination;
use crate::fetch::detached::Detached;
use crate::fetch::response::handle;
use crate::fetch::{Purpose, member, unanswered};
use crate::step::{Ask, Held, Provenance, Serving, Step, Streaming};
use crate::{Exchange, unless_left};

impl<C: Client> Exchange<'_, C> {
    /// Begins a fetch that no other request can join until the head shows that the response may be
    /// stored. Afterwards, other requests can join if `ask.unshared` was the only reason to keep
    /// them out.
    pub(crate) fn fetch_alone<'d>(&self, to: &'d Destination<'d>, ask: Ask) -> Step<'d> {
        let cache = &self.context.worker.cache;
        let lead = cache.flights.alone(ask.key, self.began, cache.watches.watch(ask.uri));
        let lead = if ask.unshared { lead.shared() } else { lead };
        Step::Lead { to, ask, lead, is_shared: false }
    }

    /// Joins a fetch of the same key, or begins a fetch.
    pub(crate) fn fetch_together<'d>(&self, to: &'d Destination<'d>, ask: Ask) -> Step<'d> {
        match self.join(to, &ask) {
            Joined::Lead(lead) => Step::Lead { to, ask, lead, is_shared: true },
            Joined::Follow(reader) => Step::Follow(to, ask, reader),
        }
    }

    /// Joins a fetch of the same key that neither a purge nor a change has overtaken, or begins a
    /// fetch.
    pub(crate) fn join(&self, to: &Destination<'_>, ask: &Ask) -> Joined {
        let cache = &self.context.worker.cache;
        let key = self.planner().flight_key(ask);
        let watch = || cache.watches.watch(ask.uri);
        cache
            .flights
            .join(key, self.began, watch, |since| cache.purges.overtaken(&to.uri().url(), since))
    }

    /// Waits for another request's fetch, and uses its response if the response may answer this
    /// request.
    pub(crate) async fn follow<'d>(
        &mut self,
        to: &'d Destination<'d>,
        ask: Ask,
        reader: Reader,
    ) -> Result<Step<'d>, Refusal> {
        let found = unless_left(self.left(), reader.found()).await?;
        let wire = Wire(self.context.head.fields);
        let worker = self.context.worker;
        let resource = match &found {
            Found::Stream(head) => Some(&head.resource),
            Found::Settled(Settled::Stored(stored)) => Some(&stored.head.resource),
            Found::Settled(Settled::Part(partial)) => Some(&partial.head.resource),
            Found::Settled(_) => None,
        };
        if resource.is_some_and(|resource| worker.cache.is_overtaken(resource)) {
            // Its tags, unknown before, have been purged since it began.
            worker.cache.flights.retire(&reader);
            return Ok(Step::LookUp(to));
        }
        // A response that serves one request at a time releases all who wait for it, at once.
        let released = |head: &Head| match head.meta.is_never_fresh() {
            true => Step::LookUpAlone(to),
            false => Step::LookUp(to),
        };
        let provenance = Provenance::fetched(CacheStatus::collapsed(ask.why), None);
        let refreshes = self.forwarding(to).may_substitute(&ask).then(|| Box::new(ask.clone()));
        let held = match found {
            Found::Stream(head) if !head.matches(&wire) => return Ok(Step::LookUp(to)),
            Found::Stream(head) if !self.may_share(&head) => {
                if head.meta.is_never_fresh() || self.arrived_ms <= head.meta.freshness.response_ms
                {
                    return Ok(Step::LookUpAlone(to));
                }
                // It has become stale while its body arrives. All who come now need another fetch,
                // and may share it.
                worker.cache.flights.retire(&reader);
                return Ok(Step::LookUp(to));
            }
            Found::Stream(head) => {
                worker.io.counters.collapsed.add(1);
                let streaming = Streaming { reader, head, provenance, refreshes };
                return Ok(Step::Stream(to, Box::new(streaming)));
            }
            Found::Settled(Settled::Stored(stored)) => Held::Whole(stored),
            Found::Settled(Settled::Part(partial)) => Held::Part(partial),
            // It was for the request that led, so each request is fetched by itself.
            Found::Settled(Settled::Uncacheable) => return Ok(Step::LookUpAlone(to)),
            Found::Settled(Settled::Declined(status)) => return Ok(self.declined(to, ask, status)),
            // Its core has ended, the origin has not: ask it.
            Found::Settled(Settled::Failed(Fault::Abandoned)) => return Ok(Step::LookUp(to)),
            Found::Settled(Settled::Failed(fault)) => {
                worker.io.counters.upstream_errors.add(1);
                return self.failed(to, ask, fault);
            }
        };
        if !held.head().matches(&wire) {
            return Ok(Step::LookUp(to));
        }
        if !self.may_share(held.head()) {
            return Ok(released(held.head()));
        }
        if let Held::Part(partial) = &held
            && self.planner().held_ranges(partial).is_none()
        {
            return Ok(Step::LookUp(to));
        }
        worker.io.counters.collapsed.add(1);
        // Parts were in the store before, a whole response has just come.
        let is_aged = matches!(held, Held::Part(_));
        Ok(Step::Serve(to, Serving { held, provenance: Provenance { is_aged, ..provenance } }))
    }

    /// Waits for the end of a response that refreshes a stored response. If the new response breaks
    /// off, the stale response is served in its place. A body of more than a window is sent as it
    /// arrives.
    pub(crate) async fn hold_back<'d>(
        &mut self,
        to: &'d Destination<'d>,
        mut streaming: Box<Streaming>,
    ) -> Result<Step<'d>, Refusal> {
        let Some(ask) = streaming.refreshes.take() else { return Ok(Step::Stream(to, streaming)) };
        let most = self.context.worker.io.limits().limits.stream_window_bytes;
        match unless_left(self.left(), streaming.reader.ended(most)).await? {
            Some(Settled::Failed(Fault::Abandoned)) => Ok(Step::LookUp(to)),
            Some(Settled::Failed(fault)) => self.failed(to, *ask, fault),
            _ => Ok(Step::Stream(to, streaming)),
        }
    }

    /// Whether the response to another's request may answer this one.
    fn may_share(&self, head: &Head) -> bool {
        let wire = Wire(self.context.head.fields);
        let request = caching::Request { method: self.context.head.method_bytes, fields: &wire };
        let now_ms = time::wall_ms();
        caching::decide_collapsed(&request, &head.meta, self.arrived_ms, now_ms).is_ok()
    }
}

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
