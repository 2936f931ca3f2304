//! Asking the origin: for the store and all who wait, or for one request alone.

use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use caching::cache_status::{Forward, Handled};
use caching::{
    Exchange as Instants, Failure, FieldSource, NotStored, Policy, Response, StoredMeta, Validators,
};
use http1::{BodyKind, Method, Name, OwnedResponse, ResponseHead, Target, Version, write};
use runtime::time;
use store::{Generation, Key};

use crate::access_log::Outcome;
use crate::client::Gone;
use crate::client::append_date;
use crate::config::Role;
use crate::exchange::{Destination, Done, Ended, Exchange, append_status_member, max_forwards};
use crate::fault::Fault;
use crate::flight::{Fill, Lead, Settled};
use crate::hop::{self, NAME};
use crate::purge::{Resource, is_tag_field};
use crate::request_body::RequestBody;
use crate::routes::Edits;
use crate::stored::{
    Entry, Framing, Head, Piece, Stored, Wire, append_framing, has_length, varies_of,
};
use crate::upstream::{self, Answer, Outgoing, Upstream, UpstreamBody};
use crate::worker::Worker;

/// What kind of cache we are: a shared one; in reverse mode one that stands for its origin, which
/// may then address it apart (RFC 9213).
fn policy(exchange: &Exchange<'_>) -> &'static Policy {
    const FORWARD: Policy = Policy { targeted_fields: &[], ..Policy::SHARED };
    match exchange.door.role {
        Role::Reverse => &Policy::SHARED,
        Role::Forward => &FORWARD,
    }
}

/// Leads a flight: asks the origin on behalf of all who wait, and answers this request.
pub(crate) async fn lead(
    exchange: &mut Exchange<'_>,
    destination: &Destination<'_>,
    uri: Key,
    key: Key,
    lead: Lead,
    stale: Option<Arc<Stored>>,
) -> Result<Done, Ended> {
    // Between the look into the store and joining, another core may have finished a fetch.
    if let Some(stored) = exchange.look_again(uri) {
        lead.settle(Settled::Stored(Arc::clone(&stored)));
        return exchange.serve_stored(&stored, Outcome::Hit, true).await;
    }
    let bytes = request_bytes(exchange, destination, Purpose::Store(stale.as_deref()));
    let outgoing = Outgoing { bytes: &bytes, method: Method::Get, repeatable: true };
    // It is asked for all who wait, of whom the store knows nothing: interim responses end here.
    let to = &destination.to;
    let answer = upstream::exchange(exchange.worker, to, outgoing, &mut |_| {}).await;
    let answer = match answer {
        Ok(answer) => exchange.ruled(answer),
        Err(fault) => return fail(exchange, lead, stale, fault).await,
    };
    let leading = Leading { uri, key, lead };
    leading.settle(exchange, destination, answer, stale).await
}

/// The origin gave no answer: a stale response stands in if the rules allow it.
async fn fail(
    exchange: &mut Exchange<'_>,
    lead: Lead,
    stale: Option<Arc<Stored>>,
    fault: Fault,
) -> Result<Done, Ended> {
    tracing::debug!(%fault, "no answer");
    exchange.worker.counters.upstream_errors.add(1);
    if let Some(stale) = stale
        && may_stand_in(exchange, &stale, Failure::Unreachable)
    {
        lead.settle(Settled::Stored(Arc::clone(&stale)));
        return exchange.serve_stored(&stale, Outcome::Hit, true).await;
    }
    lead.settle(Settled::Failed(fault));
    Err(Ended::fault(fault))
}

fn may_stand_in(exchange: &Exchange<'_>, stale: &Stored, failure: Failure) -> bool {
    let wire = Wire(exchange.head.fields);
    let request = caching::Request { method: exchange.head.method_bytes, fields: &wire };
    let now_ms = time::wall_ms();
    caching::stale_on_error(&request, &stale.head.meta, failure, now_ms, policy(exchange)).is_ok()
}

/// A lead with its keys.
struct Leading {
    uri: Key,
    key: Key,
    lead: Lead,
}

impl Leading {
    /// What an answer means for the store, for those who wait, and for this request.
    async fn settle(
        self,
        exchange: &mut Exchange<'_>,
        destination: &Destination<'_>,
        answer: Answer,
        stale: Option<Arc<Stored>>,
    ) -> Result<Done, Ended> {
        let instants = Instants { request_ms: answer.request_ms, response_ms: answer.response_ms };
        let status = answer.head.head().status;
        if let Some(stale) = &stale {
            if status == 304 {
                return self.updated(exchange, destination, answer, stale, instants).await;
            }
            if may_stand_in(exchange, stale, Failure::Status(status)) {
                self.lead.settle(Settled::Stored(Arc::clone(stale)));
                return exchange.serve_stored(stale, Outcome::Hit, true).await;
            }
        }
        match storable_head(exchange, destination, &answer, instants, self.lead.began()) {
            Ok(head) => self.store(exchange, answer, head, stale.is_some()).await,
            Err(reason) => {
                let shared = &exchange.worker.shared;
                // A failure passes: those who ask next are to be collapsed again, all the more.
                if is_of_the_response(reason) && status < 500 {
                    let memory = exchange.site.limits().uncacheable_memory;
                    shared.remember_uncacheable(self.key, answer.response_ms, memory);
                }
                self.lead.settle(Settled::Uncacheable);
                relay(exchange, answer, Forward::UriMiss).await
            }
        }
    }

    /// 304: the stored response lives on with new fields (RFC 9111, 4.3.4).
    async fn updated(
        self,
        exchange: &mut Exchange<'_>,
        destination: &Destination<'_>,
        mut answer: Answer,
        stale: &Arc<Stored>,
        instants: Instants,
    ) -> Result<Done, Ended> {
        let worker = exchange.worker;
        let fits = {
            let head = answer.head.head();
            let update = Validators::of(&Wire(head.fields), answer.response_ms);
            caching::fits_304(&stale.head.meta.validators, &update, true)
        };
        let upstream = answer.body.address();
        // A 304 has no body; this gives the connection back.
        let complete = answer.body.take_ready(worker, &mut |_| {});
        if complete.is_err() {
            self.lead.settle(Settled::Failed(Fault::Malformed));
            worker.counters.upstream_errors.add(1);
            return Err(Ended::fault(Fault::Malformed));
        }
        if !fits {
            // It confirms something else than what is stored: ask as if nothing were.
            worker.shared.store.remove(&self.key);
            self.lead.settle(Settled::Uncacheable);
            return pass(exchange, destination, Forward::Stale).await;
        }
        let head = answer.head.head();
        let updated = Arc::new(stale.updated(
            &Wire(head.fields),
            instants,
            policy(exchange),
            self.lead.began(),
            exchange.site.tags_to_clients(exchange.door.role),
        ));
        worker.counters.revalidated.add(1);
        worker.shared.insert(self.key, Entry::Response(Arc::clone(&updated)));
        self.lead.settle(Settled::Stored(Arc::clone(&updated)));
        let done = exchange.serve_stored(&updated, Outcome::Revalidated, true).await?;
        Ok(Done { upstream, ..done })
    }

    /// A response to store: at once if it is here, else by a task that fills it while all who want
    /// it stream along.
    async fn store(
        self,
        exchange: &mut Exchange<'_>,
        mut answer: Answer,
        head: Head,
        replaces: bool,
    ) -> Result<Done, Ended> {
        let worker = exchange.worker;
        worker.counters.misses.add(1);
        let outcome = if replaces { Outcome::Replaced } else { Outcome::Miss };
        let upstream = answer.body.address();
        let head = Arc::new(head);
        let wire = Wire(exchange.head.fields);
        let key = worker.shared.storage_key(self.uri, &head, &wire);
        if key != self.key && self.key != self.uri {
            // The response varies by other fields than the last did.
            worker.shared.store.remove(&self.key);
        }
        let mut first = Vec::new();
        match answer.body.take_ready(worker, &mut |data| first.extend_from_slice(data)) {
            Ok(true) => {
                let pieces = if first.is_empty() { Vec::new() } else { vec![Piece::from(first)] };
                let stored = Arc::new(Stored::new(head, pieces));
                worker.shared.insert(key, Entry::Response(Arc::clone(&stored)));
                self.lead.settle(Settled::Stored(Arc::clone(&stored)));
                let done = exchange.serve_stored(&stored, outcome, false).await?;
                Ok(Done { upstream, ..done })
            }
            Ok(false) => {
                let (fill, reader) = self.lead.stream(Arc::clone(&head));
                let filling = Filling::new(Rc::clone(worker), fill, key, Arc::clone(&head));
                runtime::spawn(filling.run(answer.body, first)).detach();
                exchange.stream_along(&reader, &head, outcome, upstream).await
            }
            Err(fault) => {
                self.lead.settle(Settled::Failed(fault));
                worker.counters.upstream_errors.add(1);
                Err(Ended::fault(fault))
            }
        }
    }
}

/// The head to store, or the rule that forbids.
fn storable_head(
    exchange: &Exchange<'_>,
    destination: &Destination<'_>,
    answer: &Answer,
    instants: Instants,
    began: Generation,
) -> Result<Head, NotStored> {
    let head = answer.head.head();
    let (asked, got) = (Wire(exchange.head.fields), Wire(head.fields));
    let request = caching::Request { method: exchange.head.method_bytes, fields: &asked };
    let response = Response { status: head.status, fields: &got };
    let storable = caching::may_store(&request, &response, instants, policy(exchange))?;
    let length = answer.body.length();
    if length.is_some_and(|length| length > exchange.worker.shared.object_bytes_max()) {
        return Err(NotStored::NothingGained);
    }
    let varies = varies_of(&storable.vary, &asked);
    let Destination { realm, authority, path, .. } = *destination;
    let resource = Resource::new(realm, authority, path, got.fields(), began);
    let tags = exchange.site.tags_to_clients(exchange.door.role);
    let keeps = |name: &[u8]| storable.keeps(name) && (tags || !is_tag_field(name));
    let fields = head.fields.end_to_end();
    let kept = fields.map(|field| (field.name(), field.value())).filter(|(name, _)| keeps(name));
    let meta: StoredMeta = storable.meta.clone();
    Ok(Head::new(head.status, kept, meta, varies, resource, length))
}

/// Whether the next response for the same key will likely be refused for the same reason.
fn is_of_the_response(reason: NotStored) -> bool {
    !matches!(reason, NotStored::RequestNoStore | NotStored::Authorization | NotStored::Method)
}

/// Brings the body of a response that is to be stored. It belongs to no client: it goes on when
/// the one who asked first has left.
struct Filling {
    worker: Rc<Worker>,
    fill: Fill,
    key: Key,
    head: Arc<Head>,
    /// What is to be stored, until the body turns out not to be.
    pieces: Option<Vec<Piece>>,
    /// Bytes of the body so far ...
    total: u64,
    /// ... and those that count as arriving.
    arriving: u64,
}

impl Filling {
    fn new(worker: Rc<Worker>, fill: Fill, key: Key, head: Arc<Head>) -> Filling {
        Filling { worker, fill, key, head, pieces: Some(Vec::new()), total: 0, arriving: 0 }
    }

    /// Brings it, in the sight of the core, which does not end before those who read along.
    async fn run(mut self, mut body: UpstreamBody, first: Vec<u8>) {
        let worker = Rc::clone(&self.worker);
        let place = worker.fillings.borrow_mut().insert(Arc::clone(self.fill.flight()));
        let settled = self.bring(&mut body, first).await;
        worker.fillings.borrow_mut().remove(place);
        worker.shared.give_arriving(self.arriving);
        self.fill.settle(settled);
    }

    async fn bring(&mut self, body: &mut UpstreamBody, first: Vec<u8>) -> Settled {
        if !first.is_empty() {
            self.push(Piece::from(first));
        }
        loop {
            let window = self.worker.limits().stream_window_bytes;
            if !std::future::poll_fn(|cx| self.fill.poll_room(cx, window)).await {
                // Nobody reads what cannot be stored.
                return Settled::Failed(Fault::Abandoned);
            }
            let mut data = Vec::new();
            let pulled = body.pull(&self.worker, &mut |part| data.extend_from_slice(part)).await;
            if !data.is_empty() {
                self.push(Piece::from(data));
            }
            match pulled {
                Ok(false) => {}
                Ok(true) => break,
                Err(fault) => {
                    self.worker.counters.upstream_errors.add(1);
                    return Settled::Failed(fault);
                }
            }
        }
        let Some(pieces) = self.pieces.take() else { return Settled::Uncacheable };
        let stored = Stored::new(Arc::clone(&self.head), joined(pieces, self.total));
        let stored = Arc::new(stored);
        self.worker.shared.insert(self.key, Entry::Response(Arc::clone(&stored)));
        Settled::Stored(stored)
    }

    fn push(&mut self, piece: Piece) {
        let shared = &self.worker.shared;
        let bytes = piece.len() as u64;
        self.total += bytes;
        let too_large = self.total > shared.object_bytes_max();
        if let Some(pieces) = &mut self.pieces {
            if !too_large && shared.take_arriving(bytes) {
                self.arriving += bytes;
                pieces.push(Arc::clone(&piece));
            } else {
                self.pieces = None;
                self.fill.bound();
                if too_large {
                    let memory = self.worker.limits().uncacheable_memory;
                    shared.remember_uncacheable(self.key, time::wall_ms(), memory);
                }
            }
        }
        self.fill.push(piece);
    }
}

/// Small pieces cost more than their copy: a body of up to 1 MiB is stored as one.
fn joined(pieces: Vec<Piece>, total: u64) -> Vec<Piece> {
    const JOINED_BYTES_MAX: u64 = 1024 * 1024;
    if pieces.len() < 2 || total > JOINED_BYTES_MAX {
        return pieces;
    }
    vec![Piece::from(pieces.concat())]
}

/// Passes a request through, whatever it is, and its response back.
pub(crate) async fn pass(
    exchange: &mut Exchange<'_>,
    destination: &Destination<'_>,
    why: Forward,
) -> Result<Done, Ended> {
    let bytes = request_bytes(exchange, destination, Purpose::Pass);
    if !exchange.body.is_none() {
        let mut body = std::mem::replace(&mut exchange.body, RequestBody::elsewhere());
        let done = Box::pin(with_body(exchange, destination, &bytes, why, &mut body)).await;
        exchange.body = body;
        return done;
    }
    let method = exchange.head.method;
    let outgoing = Outgoing { bytes: &bytes, method, repeatable: method.is_idempotent() };
    let wants_interim = exchange.head.version == Version::Http11;
    let client = &mut exchange.client;
    let mut interim = |bytes: &[u8]| {
        if wants_interim {
            client.offer(&[bytes]);
        }
    };
    match upstream::exchange(exchange.worker, &destination.to, outgoing, &mut interim).await {
        Ok(answer) => {
            let answer = exchange.ruled(answer);
            invalidate(exchange, destination, &answer);
            relay(exchange, answer, why).await
        }
        Err(fault) => Err(unanswered(exchange.worker, fault)),
    }
}

pub(crate) fn unanswered(worker: &Worker, fault: Fault) -> Ended {
    tracing::debug!(%fault, "no answer");
    if !fault.is_of_the_client() {
        worker.counters.upstream_errors.add(1);
    }
    Ended::fault(fault)
}

/// RFC 9111, 4.4: what a successful unsafe request has changed is no longer served.
fn invalidate(exchange: &Exchange<'_>, destination: &Destination<'_>, answer: &Answer) {
    let head = answer.head.head();
    if !caching::invalidates(exchange.head.method_bytes, head.status) {
        return;
    }
    let shared = &exchange.worker.shared;
    let Destination { realm, authority, path, .. } = *destination;
    let scheme = realm.scheme.name();
    let target = caching::TargetUri { scheme, authority, path_and_query: path };
    shared.store.remove(&shared.uri_key(realm, authority, path));
    for path in caching::invalidated_locations(&target, &Wire(head.fields)) {
        shared.store.remove(&shared.uri_key(realm, authority, &path));
    }
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
) -> Result<Done, Ended> {
    let worker = exchange.worker;
    let unanswered = |fault| unanswered(worker, fault);
    // A body cannot be sent twice, so no connection is used that may already be closing.
    let upstream = upstream::connect(worker, &destination.to).await;
    let upstream = upstream.map_err(unanswered)?;
    let request_ms = time::wall_ms();
    let times = upstream.times;
    let sent = upstream::send(worker, &upstream.stream, &times, bytes).await;
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
    let answer = upstream::answer(worker, upstream, head, reading, method, request_ms);
    let mut answer = exchange.ruled(answer);
    invalidate(exchange, destination, &answer);
    if matches!(pump.sent, Some(Ok(()))) {
        return relay(exchange, answer, why).await;
    }
    // Whatever becomes of the rest of the body: neither side can tell it from a next request.
    exchange.keep = false;
    answer.body.close_after();
    if answer.head.head().status >= 400 {
        // The rest is not wanted.
        return relay(exchange, answer, why).await;
    }
    pump.beside(relay(exchange, answer, why)).await
}

/// The final head of the answer, while the body goes on.
async fn head_beside(
    exchange: &mut Exchange<'_>,
    upstream: &Upstream,
    reading: &mut upstream::Reading,
    pump: &mut Pump<'_, impl Future<Output = Result<(), Fault>>>,
) -> Result<OwnedResponse, Fault> {
    let worker = exchange.worker;
    for _ in 0..=worker.limits().interim_max {
        let next = {
            let mut answer = pin!(upstream::next_head(worker, upstream, reading));
            let mut late = pin!(time::sleep(upstream.times.first_byte()));
            std::future::poll_fn(|cx| {
                pump.poll(cx);
                if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                    return Poll::Ready(answer);
                }
                match pump.sent {
                    // An upstream that refuses the rest may still have answered.
                    Some(Err(fault)) if fault.is_of_the_client() => Poll::Ready(Err(fault)),
                    Some(_) => late.as_mut().poll(cx).map(|()| Err(Fault::Timeout)),
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

/// Sends an answer to the client as it comes, and stores nothing.
pub(crate) async fn relay(
    exchange: &mut Exchange<'_>,
    mut answer: Answer,
    why: Forward,
) -> Result<Done, Ended> {
    let worker = exchange.worker;
    worker.counters.passed.add(1);
    let upstream = answer.body.address();
    let framing = append_relayed_head(exchange, &answer, why);
    let done = Done {
        outcome: Outcome::Pass,
        status: answer.head.head().status,
        head_bytes: exchange.client.bytes,
        upstream,
        keep: framing != Framing::UntilClose,
    };
    let mut complete = answer.body.take_ready(worker, &mut |data| exchange.offer(framing, data));
    loop {
        match complete {
            Ok(true) => break,
            Ok(false) => {
                exchange.client.flush().await.map_err(|Gone| Ended::Gone(done))?;
                complete =
                    answer.body.pull(worker, &mut |data| exchange.offer(framing, data)).await;
            }
            Err(fault) => {
                tracing::debug!(%fault, "the response broke off");
                worker.counters.upstream_errors.add(1);
                exchange.break_off();
                return Err(Ended::Gone(done));
            }
        }
    }
    exchange.end_body(framing);
    exchange.client.flush().await.map_err(|Gone| Ended::Gone(done))?;
    Ok(done)
}

/// Holds the head of a response that is passed on.
fn append_relayed_head(exchange: &mut Exchange<'_>, answer: &Answer, why: Forward) -> Framing {
    let head: ResponseHead<'_> = answer.head.head();
    let method = exchange.head.method;
    let no_body = method == Method::Head || answer.body.kind == BodyKind::None;
    let framing = match answer.body.length() {
        _ if no_body => Framing::Told,
        length => exchange.framing(length, head.status),
    };
    let connection = exchange.connection(framing != Framing::UntilClose);
    let handled = Handled::Forwarded { why, status: None, stored: false, collapsed: false };
    let told_length = head.content_length().filter(|_| no_body && has_length_field(head.status));
    let tags = exchange.site.tags_to_clients(exchange.door.role);
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
        hop::append_via(out, head.version, NAME);
        append_framing(out, framing);
        if let Some(length) = told_length {
            write::content_length(out, length);
        }
        out.extend_from_slice(b"Cache-Status: ");
        append_status_member(out, handled);
        out.extend_from_slice(b"\r\n");
        connection.append(out);
        write::end(out);
    });
    framing
}

/// A 304 and an answer to HEAD may tell the length of what they do not carry.
fn has_length_field(status: u16) -> bool {
    has_length(status) || status == 304
}

/// Whom a request to the origin is for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'s> {
    /// For the store: the client's conditions are left out, those of the stored response put in.
    Store(Option<&'s Stored>),
    /// For this client alone, as it asked.
    Pass,
    /// The same, and it asks for one of these protocols instead of HTTP.
    Upgrade(&'s [u8]),
}

/// The request as the origin is to see it (RFC 9110, 7.6).
pub(crate) fn request_bytes(
    exchange: &Exchange<'_>,
    destination: &Destination<'_>,
    purpose: Purpose<'_>,
) -> Vec<u8> {
    let head = &exchange.head;
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(head.method_bytes);
    out.push(b' ');
    match head.target {
        Target::Asterisk => out.push(b'*'),
        _ => write::origin_form(&mut out, head.method, &head.target),
    }
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(destination.host());
    out.extend_from_slice(b"\r\n");
    let edits = Edits::of(exchange, destination);
    let forwards = max_forwards(head).filter(|forwards| *forwards > 0);
    let told = hop::Told::of(exchange);
    for field in head.fields.end_to_end() {
        let left_out = match field.id() {
            Name::Host | Name::ContentLength => true,
            // It is for the next proxy that asks for it, which is us (RFC 9110, 11.7.2).
            Name::ProxyAuthorization => true,
            Name::MaxForwards => forwards.is_some(),
            name if told.replaces(name) => true,
            _ => {
                matches!(purpose, Purpose::Store(_)) && caching::is_condition_or_range(field.name())
            }
        };
        if !left_out && edits.keeps(field.name()) {
            write::parsed_field(&mut out, field);
        }
    }
    if let Purpose::Store(Some(stale)) = purpose {
        for (name, value) in caching::validation_fields(&stale.head.meta.validators) {
            // They were parsed from a head, so they can be written.
            let _ = write::field(&mut out, name.as_bytes(), value);
        }
    }
    if let Some(forwards) = forwards {
        out.extend_from_slice(b"Max-Forwards: ");
        write::decimal(&mut out, forwards - 1);
        out.extend_from_slice(b"\r\n");
    }
    edits.append(&mut out, head);
    hop::append_via(&mut out, head.version, &exchange.worker.shared.pseudonym);
    told.append(&mut out, destination.realm.scheme.name());
    if let Purpose::Upgrade(protocols) = purpose {
        out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: ");
        out.extend_from_slice(protocols);
        out.extend_from_slice(b"\r\n");
    }
    exchange.body.append_framing(&mut out);
    write::end(&mut out);
    out
}
