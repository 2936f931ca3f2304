//! Passing any request through to the origin, and the response back to the client.
//!
//! Nothing is stored except a response to POST that allows it (RFC 9110, 9.3.3). A HEAD may update
//! a stored response (RFC 9111, 4.3.5). An unsafe method removes the stored responses of the URLs
//! that it changes (4.4).

use std::borrow::Cow;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use cache::Own;
use cache::paths::Paths;
use cache::stored::Wire;
use cache::watch::Watch;
use caching::cache_status::Forward;
use caching::{HeadEffect, Response, TargetUri};
use http1::{Method, ResponseHead};
use outcome::{Fault, Outcome, Refusal};
use policy::reading;
use runtime::time;
use upstream::{
    Answer, BodyLength, BodyWriter, HeadRead, NextHead, Reading, ReceivedHead, Reuse, Upstream,
    Upstreams,
};

use crate::cache_status::CacheStatus;
use crate::client::{Client, RequestBody};
use crate::fetch::fill::{Filling, Into};
use crate::fetch::response::{Prepared, instants};
use crate::fetch::{Purpose, hierarchy, unanswered};
use crate::limits::BODY_HELD_BYTES_MAX;
use crate::request::{Course, Destination, Request, body_length};
use crate::step::{
    Before, Cut, Ending, Fetch, Held, Provenance, Serving, Step, Streaming, Summary, Unshared,
    Validated,
};
use crate::{Exchange, spread, unless_left};

/// What became of a request that was passed on. It is small: a [`Step`] would be copied on its way
/// to the caller, for each request.
pub(crate) enum Passed {
    /// It was answered.
    Ended(Ending),
    /// The response is stored. The next step sends it.
    Stored(Box<Step>),
}

/// Passes a request through, whatever it is, and its response back. If it is `unshared`, the
/// response is stored if it may be.
pub(crate) async fn pass<C: Client>(
    exchange: &mut Exchange<'_, C>,
    why: Forward,
    body: &mut C::Body,
    unshared: &Option<Unshared>,
) -> Result<Passed, Refusal> {
    let mut message = exchange.request.message(Purpose::Pass(body.length()));
    let own = own_stamp(exchange);
    if is_held(exchange, body) {
        let held = runtime::boxed(hold(body, &mut message)).await;
        held.map_err(|fault| unanswered(&exchange.request.worker.io, fault))?;
        let trailers = body.trailers();
        if !trailers.is_empty() && exchange.request.passes_trailers() {
            message.push_trailers(&trailers);
        }
    } else if exchange.has_body {
        let passing = with_body(exchange, Passing { message: &message, why }, body, own);
        return runtime::boxed(passing).await.map(Passed::Ended);
    }
    let (request, left) = (&exchange.request, exchange.left());
    let client = &mut exchange.client;
    let mut interim = |head: &ResponseHead<'_>| client.interim(head);
    // Both are here, because a future and a result that are passed by value are copied.
    let mut exchanged = None;
    {
        let exchanging = pin!(async {
            exchanged = Some(hierarchy::exchange(request, &message, &mut interim).await);
        });
        unless_left(left, exchanging).await?;
    }
    // Only a GET has ranges (RFC 9110, 14.2), and may be sent twice. Its content is gone by then.
    let has_content = exchange.has_body;
    let is_part = |head: &ResponseHead<'_>| {
        head.status == 206
            && request.method() == Method::Get
            && !has_content
            && request.may_mix_codings(&Wire(head.fields))
    };
    if matches!(&exchanged, Some(Ok(answer)) if is_part(&answer.head.head())) {
        drop(exchanged.take());
        exchanged = Some(runtime::boxed(whole(request, exchange.left())).await?);
    }
    // The answer stays where it is, unless what follows owns it.
    let answer = exchanged.as_mut().expect(ENDED).as_mut();
    let answer = answer.map_err(|fault| unanswered(&request.worker.io, *fault))?;
    request.apply_rules(answer);
    if let Some(of) = *unshared {
        return match Fetch::unshared(request, of, answer) {
            Ok((fetch, storable)) => {
                let answer = exchanged.and_then(Result::ok).expect(ENDED);
                let next = fetch.store(request, answer, storable)?;
                Ok(Passed::Stored(Box::new(next)))
            }
            Err(rule) => Ok(Passed::Ended(exchange.relay(answer, why, rule).await)),
        };
    }
    let (method, status) = (request.method_bytes(), answer.head.status());
    if own.is_none() && !caching::invalidates(method, status) {
        return Ok(Passed::Ended(exchange.relay(answer, why, None).await));
    }
    let answer = exchanged.and_then(Result::ok).expect(ENDED);
    let changing = async {
        let own = invalidate(&exchange.request, &answer, own).await;
        answered(exchange, answer, why, own).await
    };
    runtime::boxed(changing).await.map(Passed::Ended)
}

/// Why there is an answer, or a fault.
const ENDED: &str = "the exchange has ended, because its client has not left";

/// Asks for all of a response, because the client must not get a part of it.
async fn whole(
    request: &Request,
    left: impl Future<Output = ()>,
) -> Result<Result<Answer, Fault>, Refusal> {
    let message = request.message(Purpose::Whole);
    let mut interim = |_: &ResponseHead<'_>| {};
    unless_left(left, hierarchy::exchange(request, &message, &mut interim)).await
}

/// Whether a request's body is buffered before it is sent, so that the request can be repeated. A
/// body that is here already is always sent together with the head. A client that waits for an
/// interim response before it sends its body waits for the origin's.
fn is_held<C: Client>(exchange: &Exchange<'_, C>, body: &C::Body) -> bool {
    let is_short =
        matches!(body.length(), BodyLength::Known(length) if length <= BODY_HELD_BYTES_MAX);
    let is_repeatable = exchange.request.method().is_idempotent();
    exchange.has_body && is_short && (is_repeatable || body.has_come()) && !body.is_awaited()
}

async fn hold(body: &mut impl RequestBody, message: &mut upstream::Request) -> Result<(), Fault> {
    while !body.pull(&mut |data| message.push_content(data)).await? {}
    Ok(())
}

impl<C: Client> Exchange<'_, C> {
    /// Passes a HEAD through, and updates the stored response by its answer (RFC 9111, 4.3.5).
    pub(crate) async fn validate_by_head(&mut self, of: Validated) -> Result<Step, Refusal> {
        let Validated { why, uri, key, stored } = of;
        let (request, worker) = (&self.request, &self.request.worker);
        let watch = worker.cache.watches.watch(uri);
        let message = request.message(Purpose::Pass(body_length(&request.head())));
        let began = self.began;
        let mut interim = |_: &ResponseHead<'_>| {};
        let answer = hierarchy::exchange(request, &message, &mut interim);
        let answer = unless_left(self.left(), answer).await?;
        let mut answer = answer.map_err(|fault| unanswered(&worker.io, fault))?;
        request.apply_rules(&mut answer);
        // Forms that were made meanwhile are in a new entry.
        let stored = worker.cache.latest(key, &stored).unwrap_or(stored);
        let got = answer.head.head();
        let (wire, old) = (Wire(got.fields), &stored.head);
        let bytes = stored.body_bytes;
        let relay = |answer| Ok(Step::Relay(Box::new(answer), why, None));
        match caching::freshen_by_head(old.status, &**old, bytes, got.status, &wire) {
            HeadEffect::None => relay(answer),
            HeadEffect::Invalidate => {
                let stale = stored.under(old.with_meta(old.meta.made_stale()));
                worker.cache.replace(&watch, key, &stored, Arc::new(stale));
                relay(answer)
            }
            HeadEffect::Update if !request.may_be_confirmed(old.status) => relay(answer),
            HeadEffect::Update => {
                let instants = instants(&answer);
                let (updated, verdict) = request.updated(old, &wire, instants, began);
                if !updated.varies_as(old) || verdict.is_err() {
                    return relay(answer);
                }
                let updated = Arc::new(stored.under(updated));
                worker.cache.replace(&watch, key, &stored, Arc::clone(&updated));
                let cache_status =
                    CacheStatus::forwarded(Outcome::Revalidated, why, Some(got.status)).stored();
                let own_lines = request.cookie_lines(&answer);
                let provenance =
                    Provenance { own_lines, ..Provenance::fetched(cache_status, None) };
                Ok(Step::Serve(Box::new(Serving { held: Held::Whole(updated), provenance })))
            }
        }
    }
}

/// The state before a POST, which may store its response.
fn own_stamp<C: Client>(exchange: &Exchange<'_, C>) -> Option<Before> {
    let (request, began) = (&exchange.request, exchange.began);
    let stores = request.method() == Method::Post && request.to().stores_as_sent;
    stores.then(|| (request.worker.cache.watches.stamp(&request.uri_key()), began))
}

/// A response to POST that is to be stored.
type ForGet = (Prepared, Watch);

/// Passes an answer on, and stores it if it answers a POST and allows it.
async fn answered<C: Client>(
    exchange: &mut Exchange<'_, C>,
    mut answer: Answer,
    why: Forward,
    own: Option<ForGet>,
) -> Result<Ending, Refusal> {
    let Some(((head, own_lines), watch)) = own else {
        return Ok(exchange.relay(&mut answer, why, None).await);
    };
    let request = &exchange.request;
    let worker = &request.worker;
    let cache_status = CacheStatus::forwarded(Outcome::Miss, why, Some(head.status)).stored();
    let upstream = answer.body.address();
    let provenance = Provenance { own_lines, ..Provenance::fetched(cache_status, upstream) };
    let uri = request.uri_key();
    let place = worker.cache.place(uri, &head, &request.wire(), request.key_parts());
    let mut first = Vec::new();
    let ready =
        answer.body.take_ready(&worker.upstreams, &mut |data| first.extend_from_slice(data));
    ready.map_err(|fault| unanswered(&worker.io, fault))?;
    let lead = worker.cache.flights.alone(place.key, head.resource.began(), watch);
    let filling = Filling { place, head: Arc::clone(&head), into: Into::Whole, kept: None };
    let reader = filling.start(worker, lead, answer.body, first);
    Ok(exchange.stream(Streaming { reader, head, provenance, refreshes: None }).await)
}

/// How a response to POST is stored for later GETs, if it may be and if its URI is as before.
fn post_for_get(request: &Request, answer: &Answer, before: Before) -> Option<ForGet> {
    debug_assert_eq!(request.method(), Method::Post, "only a POST takes the stamp of its URI");
    let (fields, head) = (request.wire(), answer.head.head());
    let (asked, got) = (request.asked(&fields), Wire(head.fields));
    let response = Response { status: head.status, fields: &got };
    let (policy, target) = (&request.policy_for_cookies(), target_uri(request.to()));
    let storable =
        caching::may_store_post(&asked, &response, instants(answer), policy, &target).ok()?;
    let prepared = request.prepare(answer, storable, before.1).ok()?;
    let watch = request.watch_since(request.uri_key(), before, &prepared.0)?;
    Some((prepared, watch))
}

fn target_uri(to: &Destination) -> TargetUri<'_> {
    let scheme = to.realm.scheme.name();
    TargetUri { scheme, authority: to.authority(), path_and_query: to.path() }
}

/// RFC 9111, 4.4: what a successful unsafe request has changed is no longer served, nor is the
/// response to an earlier request, not even after a crash. `own` is the state before a POST,
/// whose own change does not affect the response that is stored for it.
async fn invalidate(request: &Request, answer: &Answer, own: Option<Before>) -> Option<ForGet> {
    let mut own = own.and_then(|before| post_for_get(request, answer, before));
    let head = answer.head.head();
    if !caching::invalidates(request.method_bytes(), head.status) {
        return own;
    }
    let Request { worker, snapshot, .. } = request;
    let (cache, to) = (&worker.cache, request.to());
    let peers_know = to.course.as_ref().is_some_and(Course::is_by_only_peer);
    let locations = caching::invalidated_locations(&target_uri(to), &Wire(head.fields));
    let change = |requested: &[u8], stored: &[Cow<'_, [u8]>], own: Option<Own<'_>>, peers_know| {
        let paths = Paths::new(requested, stored);
        cache.invalidate_url(to.realm, to.authority(), paths, own, peers_know)
    };
    let remove = |own: Option<&mut ForGet>| {
        let own = Own { key: request.uri_key(), watch: own.map(|(_, watch)| watch) };
        // Its own path comes first, and after it those of other routes that it could have taken.
        let own_path = [Cow::Borrowed(to.stored_path())];
        let mut all = Vec::new();
        if snapshot.routes.is_conditional() {
            all.extend(own_path.iter().cloned().chain(request.stored_paths(to.reading())));
            all.dedup();
        }
        let stored = if all.is_empty() { &own_path[..] } else { &all };
        let mut changes = change(to.path(), stored, Some(own), peers_know);
        for path in &locations {
            let stored = request.stored_paths(reading::Reading::of(to.authority(), path));
            changes.append(change(path, &stored, None, false));
        }
        changes
    };
    remove(own.as_mut()).durable(cache).await;
    let paths = || [to.path()].into_iter().chain(locations.iter().map(Vec::as_slice));
    if snapshot.cluster.is_some() {
        let uri = (to.realm, to.authority());
        Box::pin(spread::changed(worker, snapshot, uri, paths())).await;
        // A member that had not removed the response yet may have given it to us.
        remove(own.as_mut()).durable(cache).await;
    }
    let clears = snapshot.peers.as_ref().is_some_and(|peers| peers.clear_changed);
    // Without a course, no peer is asked for what the request changed.
    if clears && to.course.is_some() {
        for path in paths() {
            let url = (to.authority(), path);
            Box::pin(hierarchy::clear(worker, snapshot, to.realm, url)).await;
        }
    }
    own
}

/// A request's body on its way to the upstream, while other work goes on.
struct Pump<'p, F> {
    future: Pin<&'p mut F>,
    /// The result, once it has ended.
    sent: Option<Result<(), Fault>>,
}

impl<F: Future<Output = Result<(), Fault>>> Pump<'_, F> {
    fn poll(&mut self, cx: &mut Context<'_>) {
        if self.sent.is_none()
            && let Poll::Ready(result) = self.future.as_mut().poll(cx)
        {
            self.sent = Some(result);
        }
    }

    /// Does other work while it goes on.
    async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        std::future::poll_fn(|cx| {
            self.poll(cx);
            work.as_mut().poll(cx)
        })
        .await
    }

    /// The same, but `None` if the client gives up: over HTTP/1 one that breaks its body off may
    /// still read the response.
    async fn unless_reset<T>(
        &mut self,
        work: impl Future<Output = T>,
        may_reset: bool,
    ) -> Option<T> {
        let mut work = pin!(work);
        std::future::poll_fn(|cx| {
            self.poll(cx);
            match self.sent {
                Some(Err(fault)) if may_reset && fault.is_of_the_client() => Poll::Ready(None),
                _ => work.as_mut().poll(cx).map(Some),
            }
        })
        .await
    }
}

/// What was sent of a body, as long as the upstream may turn out not to have processed the request.
#[derive(Default)]
struct Sent {
    content: Vec<u8>,
    trailers: Vec<u8>,
    /// No rule changes fields of the request.
    passes_trailers: bool,
    /// It is all of the body.
    is_whole: bool,
    /// There was more than is kept.
    is_lost: bool,
}

impl Sent {
    fn keep(&mut self, data: &[u8]) {
        if self.is_lost || (self.content.len() + data.len()) as u64 > BODY_HELD_BYTES_MAX {
            self.lose();
        } else {
            self.content.extend_from_slice(data);
        }
    }

    fn lose(&mut self) {
        self.is_lost = true;
        self.content = Vec::new();
    }
}

/// Sends a request's body to the upstream, beginning with what another was sent.
async fn pump(
    body: &mut impl RequestBody,
    upstreams: &Upstreams,
    mut writer: BodyWriter,
    sent: &mut Sent,
) -> Result<(), Fault> {
    if !sent.content.is_empty() {
        writer.push(&sent.content);
        writer.send(upstreams, false).await?;
    }
    while !sent.is_whole {
        if writer.can_send_shared()
            && let Some((pages, is_last)) = body.pull_shared().await?
        {
            sent.lose();
            sent.is_whole = is_last;
            writer.send_shared(upstreams, pages).await?;
            continue;
        }
        let mut take = |data: &[u8]| {
            writer.push(data);
            sent.keep(data);
        };
        if body.pull(&mut take).await? {
            if sent.passes_trailers {
                sent.trailers = body.trailers();
            }
            sent.is_whole = true;
            break;
        }
        writer.send(upstreams, false).await?;
    }
    writer.push_trailers(&sent.trailers);
    writer.send(upstreams, true).await
}

/// What is passed on, and why.
#[derive(Clone, Copy)]
struct Passing<'p> {
    message: &'p upstream::Request,
    why: Forward,
}

/// Passes a request with a body, both ways at once: the origin may answer before it has it all.
async fn with_body<C: Client>(
    exchange: &mut Exchange<'_, C>,
    Passing { message, why }: Passing<'_>,
    body: &mut C::Body,
    own: Option<Before>,
) -> Result<Ending, Refusal> {
    let worker = Rc::clone(&exchange.request.worker);
    let unanswered = |fault| unanswered(&worker.io, fault);
    let passes_trailers = exchange.request.passes_trailers();
    let (mut sent, mut resends) = (Sent { passes_trailers, ..Sent::default() }, 0);
    // The request cannot be sent twice, so it takes no connection that may be closing.
    let request = &exchange.request;
    let connecting = hierarchy::connect(request, Reuse::Proven);
    let connected = unless_left(exchange.left(), connecting).await?;
    let (mut upstream, to_parent) = connected.map_err(unanswered)?;
    let through = to_parent.then(|| hierarchy::for_parent(request, message));
    let message = through.as_ref().unwrap_or(message);
    loop {
        // Over HTTP/1 no upstream says that it has not processed a request.
        sent.is_lost |= upstream.may_switch();
        let passing = Passing { message, why };
        let bodies = (&mut *body, &mut sent, own);
        match with_body_on(exchange, passing, upstream, bodies).await {
            Ok(result) => return result,
            Err((fault, _, other)) if !sent.is_lost && other.may_resend(&mut resends) => {
                tracing::debug!(%fault, "a request was not processed");
                let next =
                    upstream::connect_again(&worker.upstreams, &exchange.request.to().to, other)
                        .await;
                upstream = next.map_err(unanswered)?;
            }
            Err((fault, silent, other)) => {
                if !other.is_stale(fault, silent) {
                    other.failed(fault);
                }
                return Err(unanswered(fault));
            }
        }
    }
}

/// Passes it on this connection. If the origin has not answered: why, whether not one byte of an
/// answer has come, and the connection.
async fn with_body_on<C: Client>(
    exchange: &mut Exchange<'_, C>,
    Passing { message, why }: Passing<'_>,
    upstream: Box<Upstream>,
    (body, sent, own): (&mut C::Body, &mut Sent, Option<Before>),
) -> Result<Result<Ending, Refusal>, (Fault, bool, Box<Upstream>)> {
    let worker = Rc::clone(&exchange.request.worker);
    let request_ms = time::wall_ms();
    if let Err(fault) = upstream.send_head(&worker.upstreams, message).await {
        return Err((fault, true, upstream));
    }
    let writer = upstream.body_writer(body.length());
    let mut pump = Pump { future: pin!(pump(body, &worker.upstreams, writer, sent)), sent: None };
    let mut reading = Reading::new(&worker.io);
    let head = match head_beside(exchange, &upstream, &mut reading, &mut pump).await {
        Ok(head) => head,
        Err(Cut::Client) => return Ok(Err(Refusal::Cancelled)),
        Err(Cut::Upstream(fault)) => return Err((fault, !reading.is_any(), upstream)),
    };
    let method = exchange.request.method();
    let read = HeadRead { head, reading };
    let mut answer = upstream::answer(&worker.upstreams, upstream, read, method, request_ms);
    exchange.request.apply_rules(&mut answer);
    let own = invalidate(&exchange.request, &answer, own).await;
    if matches!(pump.sent, Some(Ok(()))) {
        return Ok(answered(exchange, answer, why, own).await);
    }
    drop(own);
    // The rest of the body may or may not come: neither side can tell it from a next request.
    exchange.client.close_after();
    answer.body.close_after();
    let status = answer.head.status();
    if status >= 400 {
        // The rest is not wanted.
        return Ok(Ok(exchange.relay(&mut answer, why, None).await));
    }
    let summary = Summary { outcome: Outcome::Pass, status, upstream: answer.body.address() };
    let may_reset = exchange.request.version().has_streams();
    let relayed = pump.unless_reset(exchange.relay(&mut answer, why, None), may_reset).await;
    Ok(Ok(relayed.unwrap_or(Ending::BrokenOff(summary))))
}

/// The final head of the answer, while the body goes on.
async fn head_beside<C: Client>(
    exchange: &mut Exchange<'_, C>,
    upstream: &Upstream,
    reading: &mut Reading,
    pump: &mut Pump<'_, impl Future<Output = Result<(), Fault>>>,
) -> Result<ReceivedHead, Cut> {
    let worker = Rc::clone(&exchange.request.worker);
    let mut left = pin!(exchange.left());
    for interims in 0..=upstream::INTERIM_READ_MAX {
        let next = {
            let mut answer = pin!(upstream::next_head(&worker.upstreams, upstream, reading));
            // An upstream's time begins when it has all of the request, however long that took.
            let mut late: Option<time::Sleep> = None;
            std::future::poll_fn(|cx| {
                pump.poll(cx);
                if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                    return Poll::Ready(answer.map_err(Cut::Upstream));
                }
                match pump.sent {
                    // An upstream that refuses the rest may still have answered. One that has taken
                    // nothing for so long has had its time.
                    Some(Err(fault)) if fault.is_of_the_client() || fault == Fault::Timeout => {
                        Poll::Ready(Err(Cut::Upstream(fault)))
                    }
                    Some(_) if left.as_mut().poll(cx).is_ready() => Poll::Ready(Err(Cut::Client)),
                    Some(_) => {
                        let times = &upstream.times;
                        let late = late.get_or_insert_with(|| time::sleep(times.first_byte()));
                        let late = Pin::new(late).poll(cx);
                        late.map(|()| Err(Cut::Upstream(Fault::Timeout)))
                    }
                    None => Poll::Pending,
                }
            })
            .await?
        };
        match next {
            NextHead::Final(head) => return Ok(head),
            NextHead::Interim(_) if interims >= worker.io.limits().limits.interim_max => {}
            NextHead::Interim(head) => {
                exchange.client.interim(&head.head());
                let sent = pump.beside(exchange.client.flush()).await;
                sent?;
            }
        }
    }
    Err(Cut::Upstream(Fault::Interim))
}
