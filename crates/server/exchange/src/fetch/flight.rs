//! The flight of a fetch: joining the flight of another request, leading a flight, and revalidating
//! in the background.

use std::pin::pin;

use cache::flight::{Found, Joined, Reader, Settled};
use cache::stored::Head;
use caching::Failure;
use http1::ResponseHead;
use outcome::{Fault, Refusal};
use runtime::time;

use crate::cache_status::CacheStatus;
use crate::client::Client;
use crate::fetch::{Purpose, owner, unanswered};
use crate::request::Request;
use crate::step::{Ask, Fetch, Held, Provenance, Serving, Step, Streaming};
use crate::{Exchange, unless_left};

impl<C: Client> Exchange<'_, C> {
    /// Begins a fetch that no other request can join until the head shows that the response may be
    /// stored. Afterwards, other requests can join if `ask.unshared` was the only reason to keep
    /// them out.
    pub(crate) fn fetch_alone(&self, ask: Box<Ask>) -> Step {
        let cache = &self.request.worker.cache;
        let lead = cache.flights.alone(ask.key, self.began, cache.watches.watch(ask.uri));
        let lead = if ask.unshared { lead.shared() } else { lead };
        Step::Lead { fetch: Fetch { ask, lead }, is_shared: false }
    }

    /// Joins a fetch of the same key, or begins a fetch.
    pub(crate) fn fetch_together(&self, ask: Box<Ask>) -> Step {
        match self.join(&ask) {
            Joined::Lead(lead) => Step::Lead { fetch: Fetch { ask, lead }, is_shared: true },
            Joined::Follow(reader) => Step::Follow(ask, reader),
        }
    }

    /// Joins a fetch of the same key that neither a purge nor a change has overtaken, or begins a
    /// fetch.
    pub(crate) fn join(&self, ask: &Ask) -> Joined {
        let cache = &self.request.worker.cache;
        let key = self.request.flight_key(ask);
        let watch = || cache.watches.watch(ask.uri);
        let is_overtaken = |since| cache.purges.overtaken(&self.request.to().uri().url(), since);
        cache.flights.join(key, self.began, watch, is_overtaken)
    }

    /// Waits for another request's fetch, and uses its response if the response may answer this
    /// request.
    pub(crate) async fn follow(&mut self, ask: Box<Ask>, reader: Reader) -> Result<Step, Refusal> {
        let found = unless_left(self.left(), reader.found()).await?;
        let wire = self.request.wire();
        let worker = &self.request.worker;
        let resource = match &found {
            Found::Stream(head) => Some(&head.resource),
            Found::Settled(Settled::Stored(stored)) => Some(&stored.head.resource),
            Found::Settled(Settled::Part(partial)) => Some(&partial.head.resource),
            Found::Settled(_) => None,
        };
        if resource.is_some_and(|resource| worker.cache.is_overtaken(resource, self.began)) {
            // Its tags, unknown before, have been purged since it began.
            worker.cache.flights.retire(&reader);
            return Ok(Step::LookUp);
        }
        // A response that serves one request at a time releases all who wait for it, at once.
        let released = |head: &Head| match head.meta.is_never_fresh() {
            true => Step::LookUpAlone,
            false => Step::LookUp,
        };
        let provenance = Provenance::fetched(CacheStatus::collapsed(ask.why), None);
        let refreshes = self.request.may_substitute(&ask).then(|| ask.clone());
        let held = match found {
            Found::Stream(head) if !head.matches(&wire) => return Ok(Step::LookUp),
            Found::Stream(head) if !self.may_share(&head) => {
                if head.meta.is_never_fresh() || self.arrived_ms <= head.meta.freshness.response_ms
                {
                    return Ok(Step::LookUpAlone);
                }
                // It has become stale while its body arrives. All who come now need another fetch,
                // and may share it.
                worker.cache.flights.retire(&reader);
                return Ok(Step::LookUp);
            }
            Found::Stream(head) => {
                worker.io.counters.collapsed.add(1);
                let streaming = Streaming { reader, head, provenance, refreshes };
                return Ok(Step::Stream(Box::new(streaming)));
            }
            Found::Settled(Settled::Stored(stored)) => Held::Whole(stored),
            Found::Settled(Settled::Part(partial)) => Held::Part(partial),
            // It was for the request that led, so each request is fetched by itself.
            Found::Settled(Settled::Uncacheable) => return Ok(Step::LookUpAlone),
            Found::Settled(Settled::Declined(status)) => return Ok(self.declined(&ask, status)),
            // Its core has ended, the origin has not: ask it.
            Found::Settled(Settled::Failed(Fault::Abandoned)) => return Ok(Step::LookUp),
            Found::Settled(Settled::Failed(fault)) => {
                worker.io.counters.upstream_errors.add(1);
                return self.failed(&ask, fault);
            }
        };
        if !held.head().matches(&wire) {
            return Ok(Step::LookUp);
        }
        if !self.may_share(held.head()) {
            return Ok(released(held.head()));
        }
        if let Held::Part(partial) = &held
            && self.request.held_ranges(partial).is_none()
        {
            return Ok(Step::LookUp);
        }
        worker.io.counters.collapsed.add(1);
        // Parts were in the store before, a whole response has just come.
        let is_aged = matches!(held, Held::Part(_));
        let provenance = Provenance { is_aged, ..provenance };
        Ok(Step::Serve(Box::new(Serving { held, provenance })))
    }

    /// Waits for the end of a response that refreshes a stored response. If the new response breaks
    /// off, the stale response is served in its place. A body of more than a window is sent as it
    /// arrives.
    pub(crate) async fn hold_back(
        &mut self,
        mut streaming: Box<Streaming>,
    ) -> Result<Step, Refusal> {
        let Some(ask) = streaming.refreshes.take() else { return Ok(Step::Stream(streaming)) };
        let most = self.request.worker.io.limits().limits.stream_window_bytes;
        match unless_left(self.left(), streaming.reader.ended(most)).await? {
            Some(Settled::Failed(Fault::Abandoned)) => Ok(Step::LookUp),
            Some(Settled::Failed(fault)) => self.failed(&ask, fault),
            _ => Ok(Step::Stream(streaming)),
        }
    }

    /// Whether the response to another's request may answer this one.
    fn may_share(&self, head: &Head) -> bool {
        let wire = self.request.wire();
        let (request, now_ms) = (self.request.asked(&wire), time::wall_ms());
        caching::decide_collapsed(&request, &head.meta, self.arrived_ms, now_ms).is_ok()
    }

    /// Asks the origin and settles the flight. If it `is_shared`, another core may have stored an
    /// answer between the look into the store and the joining: then the origin is not asked.
    pub(crate) async fn lead(&mut self, fetch: Fetch, is_shared: bool) -> Result<Step, Refusal> {
        let Fetch { ask, lead } = &fetch;
        if is_shared && let Some(stored) = self.request.look_again(ask.uri) {
            fetch.lead.settle(Settled::Stored(stored.clone()));
            let provenance = Provenance::stored(CacheStatus::HIT);
            return Ok(Step::Serve(Box::new(Serving { held: Held::Whole(stored), provenance })));
        }
        let (request, left) = (&self.request, self.left());
        let message = request.message(Purpose::Store(ask));
        // Interim responses are for the client that leads; they are not stored.
        let client = &mut self.client;
        let mut interim = |head: &ResponseHead<'_>| client.interim(head);
        // Here, because a future and a result that are passed by value are copied.
        let mut fetched = None;
        let ended = {
            let abandoned = pin!(async {
                left.await;
                lead.unread().await;
            });
            let fetching = pin!(async {
                fetched = Some(owner::fetch(request, ask, &message, &mut interim).await);
            });
            unless_left(abandoned, fetching).await
        };
        ended.inspect_err(|_| tracing::debug!("a fetch that no request waits for ends"))?;
        match fetched.expect("the fetch has ended, because it was not abandoned") {
            Ok(mut answer) => {
                request.apply_rules(&mut answer);
                fetch.handle(request, answer)
            }
            Err(fault) => {
                let _ = unanswered(&request.worker.io, fault);
                let Fetch { ask, lead } = fetch;
                lead.settle(Settled::Failed(fault));
                self.failed(&ask, fault)
            }
        }
    }

    /// The origin gave no answer: serves a stale response if a rule allows it.
    pub(crate) fn failed(&self, ask: &Ask, fault: Fault) -> Result<Step, Refusal> {
        match self.request.stale_substitute(ask, Failure::Unreachable) {
            Some(serving) => Ok(Step::Serve(Box::new(serving))),
            None => Err(Refusal::Fault(fault)),
        }
    }

    /// The origin answered another's request with an error: serves a stale response if a rule
    /// allows it, or fetches this request by itself.
    pub(crate) fn declined(&self, ask: &Ask, status: u16) -> Step {
        match self.request.stale_substitute(ask, Failure::Status(status)) {
            Some(serving) => Step::Serve(Box::new(serving)),
            None => Step::LookUpAlone,
        }
    }
}

/// Starts a revalidation, unless another fetch of the key is in flight. The client has its stale
/// answer already (RFC 5861, 3).
pub(crate) fn revalidate<C: Client>(exchange: &Exchange<'_, C>, ask: Box<Ask>) {
    let Joined::Lead(lead) = exchange.join(&ask) else { return };
    runtime::spawn_detached(in_background(exchange.request.clone(), Fetch { ask, lead }));
}

/// Leads a flight with no request to answer. Requests that need the response wait for it.
async fn in_background(request: Request, fetch: Fetch) {
    let message = request.message(Purpose::Store(&fetch.ask));
    match owner::exchange(&request, &fetch.ask, &message, &mut |_| {}).await {
        Err(fault) => {
            let _ = unanswered(&request.worker.io, fault);
            fetch.lead.settle(Settled::Failed(fault));
        }
        // The flight is settled, or its own task fetches the body: no client needs the step.
        Ok(mut answer) => {
            request.apply_rules(&mut answer);
            if let Ok(Step::Relay(answer, _, rule)) = fetch.handle(&request, answer) {
                let status = answer.head.status();
                tracing::debug!(status, rule, "a revalidation was not stored");
            }
        }
    }
}
