//! Passing a request through, whatever it is, and its response back.
//!
//! Nothing is stored but a response to POST that says it may be (RFC 9110, 9.3.3); what a HEAD
//! tells of a stored response is taken in (RFC 9111, 4.3.5); what an unsafe method changes is
//! taken out of the store (4.4).

use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use caching::cache_status::Forward;
use caching::{Exchange as Instants, HeadEffect, Response};
use http1::{BodyKind, Expectation, Method, Name, OwnedResponse, ResponseHead, Version, write};
use runtime::time;

use crate::client::{Gone, append_date};
use crate::destination::Destination;
use crate::ended::{Done, Ended};
use crate::exchange::Exchange;
use crate::fetch::fill::{Filling, Into};
use crate::fetch::land::{lay_down, may_stay};
use crate::fetch::{Confirming, Purpose};
use crate::request_body::RequestBody;
use crate::told::Told;
use crate::worker::Worker;
use cache::changes::Changes;
use cache::purge::is_tag_field;
use cache::stored::{Framing, Wire, append_framing, has_length};
use cache::watch::Watch;
use outcome::Fault;
use outcome::Outcome;
use upstream::{self, Answer, Outgoing, Upstream};

/// Passes a request through, whatever it is, and its response back.
pub(crate) async fn pass(
    exchange: &mut Exchange<'_>,
    destination: &Destination<'_>,
    why: Forward,
) -> Result<Done, Ended> {
    exchange.shed()?;
    exchange.forwarded = Some(why);
    let mut bytes = exchange.asking(destination).bytes(Purpose::Pass(&exchange.body));
    let own = own_watch(exchange, destination);
    let method = exchange.head.method;
    let repeatable = method.is_idempotent() || planted::is(planted::Bug::UnsafeRepeated);
    if is_held(exchange) {
        let (worker, client) = (exchange.worker, exchange.stream);
        let held = Box::pin(exchange.body.hold(worker, client, &mut bytes)).await;
        held.map_err(|fault| unanswered(worker, fault))?;
    } else if !exchange.body.is_none() {
        let mut body = std::mem::replace(&mut exchange.body, RequestBody::elsewhere());
        let passing = with_body(exchange, destination, &bytes, why, &mut body, own);
        let done = Box::pin(passing).await;
        exchange.body = body;
        return done;
    }
    let outgoing = Outgoing { bytes: &bytes, method, repeatable };
    let wants_interim = exchange.head.version == Version::Http11;
    let client = &mut exchange.client;
    let mut interim = |bytes: &[u8]| {
        if wants_interim {
            client.offer(&[bytes]);
        }
    };
    match upstream::exchange(&exchange.worker.upstreams, &destination.to, outgoing, &mut interim)
        .await
    {
        Ok(answer) => {
            let answer = exchange.asking(destination).ruled(answer);
            let own = invalidate(exchange, destination, &answer, own).await;
            answered(exchange, destination, answer, why, own).await
        }
        Err(fault) => Err(unanswered(exchange.worker, fault)),
    }
}

/// Whether a request's body is read before it is sent, so that the request can be repeated. A
/// client that waits for a word before it sends its body waits for the origin's.
fn is_held(exchange: &Exchange<'_>) -> bool {
    exchange.head.method.is_idempotent()
        && !exchange.body.is_none()
        && exchange.body.may_be_held()
        && exchange.head.expectation() == Expectation::None
}

/// Passes a HEAD through, and takes in what it tells of what is stored (RFC 9111, 4.3.5).
pub(crate) async fn confirm_by_head(
    exchange: &mut Exchange<'_>,
    destination: &Destination<'_>,
    of: Confirming,
) -> Result<Done, Ended> {
    let Confirming { why, key, stored, watch } = of;
    exchange.shed()?;
    exchange.forwarded = Some(why);
    let asking = exchange.asking(destination);
    let bytes = asking.bytes(Purpose::Pass(&exchange.body));
    let outgoing = Outgoing { bytes: &bytes, method: Method::Head, repeatable: true };
    let worker = exchange.worker;
    let began = worker.shared.purges.now();
    let answer =
        upstream::exchange(&worker.upstreams, &destination.to, outgoing, &mut |_| {}).await;
    let answer = asking.ruled(answer.map_err(|fault| unanswered(worker, fault))?);
    let got = answer.head.head();
    let wire = Wire(got.fields);
    let old = &stored.head;
    let effect = caching::freshen_by_head(old.status, &**old, stored.body_bytes, got.status, &wire);
    match effect {
        HeadEffect::None => relay(exchange, answer, why, None).await,
        HeadEffect::Invalidate => {
            let stale = stored.under(old.with_meta(old.meta.made_stale()));
            worker.shared.replace(&watch, key, &stored, Arc::new(stale));
            relay(exchange, answer, why, None).await
        }
        HeadEffect::Update => {
            let (request_ms, response_ms) = (answer.request_ms, answer.response_ms);
            let instants = Instants { request_ms, response_ms };
            let updated = old.updated(&wire, instants, asking.policy(), began, asking.tags());
            let updated = updated.fetched_by(&Wire(asking.head.fields));
            if !updated.varies_as(old) || may_stay(&asking, &updated, instants).is_err() {
                return relay(exchange, answer, why, None).await;
            }
            let updated = Arc::new(stored.under(updated));
            worker.shared.replace(&watch, key, &stored, Arc::clone(&updated));
            let told = Told::asked(Outcome::Revalidated, why, Some(got.status)).stored();
            exchange.serve_stored(&updated, told, false, b"").await
        }
    }
}

/// What a POST may store is watched from before it is sent.
fn own_watch(exchange: &Exchange<'_>, destination: &Destination<'_>) -> Option<Watch> {
    let shared = &exchange.worker.shared;
    let Destination { realm, authority, path, .. } = *destination;
    let stores = exchange.head.method == Method::Post;
    stores.then(|| shared.watches.watch(shared.uri_key(realm, authority, path)))
}

/// An answer that is passed on, and stored if it is to a POST and says that it may be.
async fn answered(
    exchange: &mut Exchange<'_>,
    destination: &Destination<'_>,
    mut answer: Answer,
    why: Forward,
    own: Option<Watch>,
) -> Result<Done, Ended> {
    let stores = post_for_get(exchange, destination, &answer);
    let (Some((head, own_lines)), Some(watch)) = (stores, own) else {
        return relay(exchange, answer, why, None).await;
    };
    let worker = exchange.worker;
    let upstream = answer.body.address();
    let told = Told::asked(Outcome::Miss, why, Some(head.status)).stored();
    let head = Arc::new(head);
    let uri = worker.shared.uri_key(destination.realm, destination.authority, destination.path);
    let key = worker.shared.storage_key(uri, &head, &Wire(exchange.head.fields), &watch);
    let mut first = Vec::new();
    let ready =
        answer.body.take_ready(&worker.upstreams, &mut |data| first.extend_from_slice(data));
    ready.map_err(|fault| unanswered(worker, fault))?;
    let lead = worker.shared.flights.alone(key, head.resource.began(), watch);
    let (fill, reader) = lead.stream(Arc::clone(&head));
    let filling = Filling {
        worker: Rc::clone(worker),
        fill,
        key,
        head: Arc::clone(&head),
        into: Into::Whole,
    };
    filling.start(answer.body, first);
    exchange.stream_along(&reader, &head, told, upstream, &own_lines).await
}

/// The head under which a response to POST is stored for later GETs.
fn post_for_get(
    exchange: &Exchange<'_>,
    destination: &Destination<'_>,
    answer: &Answer,
) -> Option<(cache::stored::Head, Vec<u8>)> {
    if exchange.head.method != Method::Post {
        return None;
    }
    let asking = exchange.asking(destination);
    let head = answer.head.head();
    let (asked, got) = (Wire(exchange.head.fields), Wire(head.fields));
    let request = caching::Request { method: exchange.head.method_bytes, fields: &asked };
    let response = Response { status: head.status, fields: &got };
    let instants = Instants { request_ms: answer.request_ms, response_ms: answer.response_ms };
    let Destination { realm, authority, path, .. } = *destination;
    let target =
        caching::TargetUri { scheme: realm.scheme.name(), authority, path_and_query: path };
    let policy = asking.policy();
    let storable = caching::may_store_post(&request, &response, instants, policy, &target).ok()?;
    lay_down(&asking, answer, storable, exchange.began).ok()
}

pub(crate) fn unanswered(worker: &Worker, fault: Fault) -> Ended {
    tracing::debug!(%fault, "no answer");
    if !fault.is_of_the_client() {
        worker.counters.upstream_errors.add(1);
    }
    Ended::fault(fault)
}

/// RFC 9111, 4.4: what a successful unsafe request has changed is no longer served, nor is what was
/// asked for before, not even after a crash. `own` is the watch of the request itself, which its
/// own change leaves alone.
async fn invalidate(
    exchange: &Exchange<'_>,
    destination: &Destination<'_>,
    answer: &Answer,
    mut own: Option<Watch>,
) -> Option<Watch> {
    let head = answer.head.head();
    if !caching::invalidates(exchange.head.method_bytes, head.status) {
        return own;
    }
    let shared = &exchange.worker.shared;
    let Destination { realm, authority, path, .. } = *destination;
    let scheme = realm.scheme.name();
    let target = caching::TargetUri { scheme, authority, path_and_query: path };
    let mut changes = Changes::of(shared.invalidate((realm, authority, path), own.as_mut()));
    for path in caching::invalidated_locations(&target, &Wire(head.fields)) {
        changes.push(shared.invalidate((realm, authority, &path), None));
    }
    changes.durable(shared).await;
    own
}

/// A request's body on its way to the upstream, beside whatever else is going on.
struct Pump<'p, F> {
    future: Pin<&'p mut F>,
    /// What became of it.
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
}

/// Passes a request with a body, both ways at once: the origin may answer before it has it all.
async fn with_body(
    exchange: &mut Exchange<'_>,
    destination: &Destination<'_>,
    bytes: &[u8],
    why: Forward,
    body: &mut RequestBody,
    own: Option<Watch>,
) -> Result<Done, Ended> {
    let worker = exchange.worker;
    let unanswered = |fault| unanswered(worker, fault);
    // It cannot be sent twice, so no connection is used that may already be closing.
    let upstream = upstream::connect(&worker.upstreams, &destination.to).await;
    let upstream = upstream.map_err(unanswered)?;
    let request_ms = time::wall_ms();
    let times = upstream.times;
    let sent = upstream::send(&worker.upstreams, &upstream.stream, &times, bytes).await;
    let unanswered = |fault| {
        upstream.failed(fault);
        unanswered(fault)
    };
    sent.map_err(unanswered)?;
    let to = Rc::clone(&upstream.stream);
    let future = pin!(body.pump(worker, exchange.stream, &to, &times));
    let mut pump = Pump { future, sent: None };
    let mut reading = upstream::Reading::default();
    let head = head_beside(exchange, &upstream, &mut reading, &mut pump).await;
    let head = head.map_err(unanswered)?;
    let method = exchange.head.method;
    let answer = upstream::answer(&worker.upstreams, upstream, head, reading, method, request_ms);
    let mut answer = exchange.asking(destination).ruled(answer);
    let own = invalidate(exchange, destination, &answer, own).await;
    if matches!(pump.sent, Some(Ok(()))) {
        return answered(exchange, destination, answer, why, own).await;
    }
    drop(own);
    // Whatever becomes of the rest of the body: neither side can tell it from a next request.
    exchange.keep = false;
    answer.body.close_after();
    if answer.head.head().status >= 400 {
        // The rest is not wanted.
        return relay(exchange, answer, why, None).await;
    }
    pump.beside(relay(exchange, answer, why, None)).await
}

/// The final head of the answer, while the body goes on.
async fn head_beside(
    exchange: &mut Exchange<'_>,
    upstream: &Upstream,
    reading: &mut upstream::Reading,
    pump: &mut Pump<'_, impl Future<Output = Result<(), Fault>>>,
) -> Result<OwnedResponse, Fault> {
    let worker = exchange.worker;
    for _ in 0..=worker.limits().limits.interim_max {
        let next = {
            let mut answer = pin!(upstream::next_head(&worker.upstreams, upstream, reading));
            // An upstream's time begins when it has all of the request, however long that took.
            let mut late: Option<time::Sleep> = None;
            std::future::poll_fn(|cx| {
                pump.poll(cx);
                if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                    return Poll::Ready(answer);
                }
                match pump.sent {
                    // An upstream that refuses the rest may still have answered.
                    Some(Err(fault)) if fault.is_of_the_client() => Poll::Ready(Err(fault)),
                    Some(_) => {
                        let times = &upstream.times;
                        let late = late.get_or_insert_with(|| time::sleep(times.first_byte()));
                        Pin::new(late).poll(cx).map(|()| Err(Fault::Timeout))
                    }
                    None => Poll::Pending,
                }
            })
            .await?
        };
        match next {
            upstream::NextHead::Final(head) => return Ok(head),
            upstream::NextHead::Interim(bytes) if exchange.head.version == Version::Http11 => {
                let sent = pump.beside(exchange.client.send(&bytes)).await;
                sent.map_err(|Gone| Fault::ClientBody)?;
            }
            upstream::NextHead::Interim(_) => {}
        }
    }
    Err(Fault::Malformed)
}

/// Sends an answer to the client as it comes, and stores nothing: by this rule, if one was asked.
pub(crate) async fn relay(
    exchange: &mut Exchange<'_>,
    mut answer: Answer,
    why: Forward,
    rule: Option<&'static str>,
) -> Result<Done, Ended> {
    let worker = exchange.worker;
    worker.counters.passed.add(1);
    let upstream = answer.body.address();
    let status = answer.head.head().status;
    let told = Told::asked(Outcome::Pass, why, Some(status));
    let told = rule.map_or(told, |rule| told.because(rule));
    let framing = append_relayed_head(exchange, &answer, &told);
    let done = Done {
        outcome: Outcome::Pass,
        status,
        head_bytes: exchange.client.bytes,
        upstream,
        keep: framing != Framing::UntilClose,
    };
    let mut complete =
        answer.body.take_ready(&worker.upstreams, &mut |data| exchange.offer(framing, data));
    loop {
        match complete {
            Ok(true) => break,
            Ok(false) => {
                exchange.client.flush().await.map_err(|Gone| Ended::Gone(done))?;
                complete = answer
                    .body
                    .pull(&worker.upstreams, &mut |data| exchange.offer(framing, data))
                    .await;
            }
            Err(fault) => {
                tracing::debug!(%fault, "the response broke off");
                worker.counters.upstream_errors.add(1);
                return Err(Ended::Gone(done));
            }
        }
    }
    exchange.end_body(framing);
    exchange.client.flush().await.map_err(|Gone| Ended::Gone(done))?;
    Ok(done)
}

/// Holds the head of a response that is passed on.
fn append_relayed_head(exchange: &mut Exchange<'_>, answer: &Answer, told: &Told) -> Framing {
    let head: ResponseHead<'_> = answer.head.head();
    let method = exchange.head.method;
    let no_body = method == Method::Head || answer.body.kind == BodyKind::None;
    let framing = match answer.body.length() {
        _ if no_body => Framing::Implied,
        length => exchange.framing(length, head.status),
    };
    let connection = exchange.connection(framing != Framing::UntilClose);
    let told_length = head.content_length().filter(|_| no_body && has_length_field(head.status));
    let site = &exchange.site;
    let tags = site.tags_to_clients(exchange.door.role);
    exchange.client.held(|out| {
        write::status_line(out, head.status);
        for field in head.fields.end_to_end() {
            let left_out =
                field.id() == Name::ContentLength || (!tags && is_tag_field(field.name()));
            if !left_out {
                write::parsed_field(out, field);
            }
        }
        if !head.fields.has(Name::Date) {
            append_date(out, answer.response_ms);
        }
        site.via.append_to_response(out, head.version);
        append_framing(out, framing);
        if let Some(length) = told_length {
            write::content_length(out, length);
        }
        out.extend_from_slice(&told.line());
        connection.append(out);
        write::end(out);
    });
    framing
}

/// A 304 and an answer to HEAD may tell the length of what they do not carry.
fn has_length_field(status: u16) -> bool {
    has_length(status) || status == 304
}
