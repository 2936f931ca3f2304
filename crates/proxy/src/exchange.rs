//! A request that must wait: for the origin, for another's fetch, for its own body.
//!
//! ```text
//!   lookup --fresh--------------------------------> from store
//!     |--only-if-cached---------------------------> 504
//!     |--may not be stored, body, other method----> pass
//!     '--absent or stale--> join the flight --follow--> stream along / from store / pass
//!                                  '--lead--> fetch: 304 -> updated, from store
//!                                                    storable -> fill, stream along
//!                                                    else -> release the others, pass it on
//! ```
//!
//! One function, [`Exchange::run`], owns this branching.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use caching::cache_status::{CacheStatus, Forward, Handled};
use caching::{Evaluator, Precondition, Reuse};
use http1::{Expectation, Method, Name, OwnedRequest, RequestHead, Target, Version};
use runtime::time::{self, Instant};
use store::Key;

use crate::access_log::{Outcome, Record, last_field};
use crate::client::{Client, Gone, append_error_with, linger};
use crate::config::{Action, Role};
use crate::connection::{Asked, connection_of, destination, hints, wants_more};
use crate::fault::Fault;
use crate::fetch;
use crate::flight::{Found, Joined, Reader, Settled};
use crate::forward;
use crate::hop;
use crate::purge;
use crate::refusal::Refusal;
use crate::request_body::RequestBody;
use crate::routes::{self, Route};
use crate::shared::Lookup;
use crate::site::{Door, Realm, Site};
use crate::stored::{Connection, Framing, Head, Stored, Use, Wire, has_length};
use crate::transport::Transport;
use crate::upgrade;
use crate::upstream::{Answer, To};
use crate::worker::Worker;

/// How often a request looks again after another's fetch turned out not to be for it.
const LOOKS_MAX: usize = 4;

/// A request as a turn hands it over.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) head: OwnedRequest,
    /// What was read behind the head.
    pub(crate) rest: Vec<u8>,
    /// Answers to requests before it that the client has not taken yet.
    pub(crate) unsent: Vec<u8>,
}

/// What became of an exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) outcome: Outcome,
    pub(crate) status: u16,
    pub(crate) head_bytes: u64,
    pub(crate) upstream: Option<SocketAddr>,
    /// The connection may carry another request.
    pub(crate) keep: bool,
}

/// Serves one request. Returns the bytes of the next, or `None` when the connection is to close.
pub(crate) async fn serve(
    worker: &Rc<Worker>,
    door: &Door,
    stream: &Transport,
    peer: SocketAddr,
    incoming: Incoming,
) -> Option<Vec<u8>> {
    let Incoming { head, rest, unsent } = incoming;
    let head = head.head();
    let mut client = Client::new(worker, stream);
    if client.send(&unsent).await.is_err() {
        return None;
    }
    client.bytes = 0;
    let mut exchange = Exchange {
        worker,
        site: worker.site(),
        door,
        stream,
        head,
        client,
        body: RequestBody::new(worker, head.body(), rest),
        keep: wants_more(door.role, &head),
        peer,
        user: None,
        tunnelled: 0,
        route: None,
        started: time::now(),
        rule: "",
    };
    let (done, whole) = match exchange.run().await {
        Ok(done) => (done, true),
        Err(Ended::Gone(done) | Ended::Over(done)) => (Done { keep: false, ..done }, false),
        Err(Ended::Refused(refusal)) => (exchange.refuse(refusal).await, true),
        Err(Ended::Fixed(action)) => (routes::answer(&mut exchange, &action).await, true),
    };
    exchange.finish(&done);
    let keep = done.keep && exchange.keep;
    match exchange.body.into_rest() {
        Some(rest) if keep => Some(rest),
        rest => {
            // Bytes that nobody reads turn the close into a reset, which overtakes the answer.
            if whole && (rest.is_none_or(|rest| !rest.is_empty()) || stream.has_unread_event()) {
                linger(worker, stream).await;
            }
            None
        }
    }
}

/// Why an exchange ended before its response was sent whole.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The client has gone, or the response broke off: the connection is closed.
    Gone(Done),
    /// A route says the answer.
    Fixed(Box<Action>),
    /// The connection was a tunnel, which is over.
    Over(Done),
    /// We answer with an error of our own.
    Refused(Refusal),
}

impl Ended {
    pub(crate) fn fault(fault: Fault) -> Ended {
        Ended::Refused(Refusal::Fault(fault))
    }
}

/// One request and its way.
pub(crate) struct Exchange<'x> {
    pub(crate) worker: &'x Rc<Worker>,
    /// The configuration that the exchange began with.
    pub(crate) site: Rc<Site>,
    pub(crate) door: &'x Door,
    pub(crate) stream: &'x Transport,
    pub(crate) head: RequestHead<'x>,
    pub(crate) client: Client<'x>,
    pub(crate) peer: SocketAddr,
    pub(crate) body: RequestBody,
    /// The client wants to go on.
    pub(crate) keep: bool,
    /// Whose password was right, if one was asked for.
    pub(crate) user: Option<Arc<[u8]>>,
    /// Bytes that it sent through a tunnel.
    pub(crate) tunnelled: u64,
    /// The place of its route.
    route: Option<usize>,
    started: Instant,
    /// The rule that refused the request, if one did.
    pub(crate) rule: &'static str,
}

/// Where a request goes.
#[derive(Debug)]
pub(crate) struct Destination<'x> {
    pub(crate) realm: Realm,
    /// Of the URI that was asked for.
    pub(crate) authority: &'x [u8],
    pub(crate) path: &'x [u8],
    pub(crate) to: To,
}

impl Destination<'_> {
    /// What the upstream gets as `Host`.
    pub(crate) fn host(&self) -> &[u8] {
        match &self.to {
            To::Group(group, _) => group.host(self.authority),
            To::Addresses(_) => self.authority,
        }
    }
}

impl<'x> Exchange<'x> {
    async fn run(&mut self) -> Result<Done, Ended> {
        if self.head.method == Method::Purge {
            return purge::by_method(self).await;
        }
        if self.door.role == Role::Forward {
            Box::pin(forward::admit(self)).await?;
            if self.head.method == Method::Connect {
                return Box::pin(forward::connect(self)).await;
            }
        }
        let destination = self.destination().await?;
        if let Some(protocols) = self.upgrade() {
            return Box::pin(upgrade::serve(self, &destination, &protocols)).await;
        }
        let may_store = self.route().is_none_or(|route| route.config.store);
        if !may_store || !self.may_use_store() {
            if self.wants_only_stored() {
                return Err(not_stored());
            }
            return fetch::pass(self, &destination, Forward::Method).await;
        }
        let shared = Arc::clone(&self.worker.shared);
        let uri = shared.uri_key(destination.realm, destination.authority, destination.path);
        for _ in 0..LOOKS_MAX {
            let now_ms = time::wall_ms();
            let began = shared.purges.now();
            let (stale, key) = match shared.look_up(uri, &Wire(self.head.fields), now_ms) {
                Lookup::Absent(_) | Lookup::Uncacheable if self.wants_only_stored() => {
                    return Err(not_stored());
                }
                Lookup::Uncacheable => {
                    return fetch::pass(self, &destination, Forward::Miss).await;
                }
                Lookup::Absent(key) => (None, key),
                Lookup::Found(stored, key) => match self.may_reuse(&stored, now_ms) {
                    Reuse::Fresh { .. } | Reuse::StaleAllowed { .. } => {
                        self.worker.sizing.hit(key, &stored);
                        let serving = self.serve_stored(&stored, Outcome::Hit, true);
                        return Box::pin(serving).await;
                    }
                    Reuse::OnlyIfCachedMiss { .. } => return Err(not_stored()),
                    _ => (Some(stored), key),
                },
            };
            if self.head.method == Method::Head || self.forbids_storing() {
                return fetch::pass(self, &destination, Forward::Request).await;
            }
            let overtaken = |since| {
                let Destination { realm, authority, path, .. } = &destination;
                let url = purge::url(*realm, authority, path);
                shared.purges.overtaken(&url, since)
            };
            match shared.flights.join(key, began, overtaken) {
                Joined::Lead(lead) => {
                    // On the heap, as what follows: a future is as large as its largest way, and it
                    // is copied when it begins. Who is passed through does not pay for the others.
                    let leading = fetch::lead(self, &destination, uri, key, lead, stale);
                    return Box::pin(leading).await;
                }
                Joined::Follow(reader) => {
                    if let Some(done) = Box::pin(self.follow(&reader, &destination)).await? {
                        return Ok(done);
                    }
                }
            }
        }
        fetch::pass(self, &destination, Forward::Miss).await
    }

    /// Waits for another's fetch. `None`: it is not for this request; look again.
    async fn follow(
        &mut self,
        reader: &Reader,
        destination: &Destination<'x>,
    ) -> Result<Option<Done>, Ended> {
        let found = reader.found().await;
        let wire = Wire(self.head.fields);
        let shared = &self.worker.shared;
        let resource = match &found {
            Found::Stream(head) => Some(&head.resource),
            Found::Settled(Settled::Stored(stored)) => Some(&stored.head.resource),
            Found::Settled(_) => None,
        };
        if resource.is_some_and(|resource| shared.is_overtaken(resource)) {
            // Its tags, which nobody knew before, have been purged since it began.
            shared.flights.retire(reader);
            return Ok(None);
        }
        match found {
            Found::Stream(head) if head.matches(&wire) => {
                self.worker.counters.collapsed.add(1);
                self.stream_along(reader, &head, Outcome::Collapsed, None).await.map(Some)
            }
            Found::Settled(Settled::Stored(stored)) if stored.head.matches(&wire) => {
                self.worker.counters.collapsed.add(1);
                self.serve_stored(&stored, Outcome::Collapsed, false).await.map(Some)
            }
            Found::Settled(Settled::Uncacheable) => {
                fetch::pass(self, destination, Forward::Miss).await.map(Some)
            }
            // Its core has ended, the origin has not: ask it.
            Found::Settled(Settled::Failed(Fault::Abandoned)) => Ok(None),
            Found::Settled(Settled::Failed(fault)) => {
                self.worker.counters.upstream_errors.add(1);
                Err(Ended::fault(fault))
            }
            Found::Stream(_) | Found::Settled(Settled::Stored(_)) => Ok(None),
        }
    }

    /// Where the request goes, or why it goes nowhere.
    async fn destination(&mut self) -> Result<Destination<'x>, Ended> {
        if self.head.method == Method::Connect {
            return Err(Ended::Refused(Refusal::ConnectHere));
        }
        if self.head.expectation() == Expectation::Unknown {
            return Err(Ended::Refused(Refusal::Expectation));
        }
        if hop::has_been_here(&self.head, self.worker.shared.pseudonym.as_bytes()) {
            return Err(Ended::Refused(Refusal::Loop));
        }
        if max_forwards(&self.head) == Some(0) {
            return Err(Ended::Refused(match self.head.method {
                Method::Options => Refusal::OptionsEnd,
                _ => Refusal::TraceEnd,
            }));
        }
        let role = self.door.role;
        let found = destination(self.door, &self.head).or(match (role, self.head.target) {
            (Role::Reverse, Target::Asterisk) => Some(Asked {
                realm: Realm { role, scheme: self.door.scheme },
                authority: self.head.host().unwrap_or_default(),
                path: b"*",
            }),
            _ => None,
        });
        let Some(Asked { realm, authority, path }) = found else {
            return Err(Ended::Refused(match self.head.target {
                Target::Absolute { .. } => Refusal::Scheme,
                _ => Refusal::NotAbsolute,
            }));
        };
        let to = match role {
            Role::Reverse => self.route_to(authority, path)?,
            Role::Forward => To::Addresses(self.resolve(authority, realm.scheme.port()).await?),
        };
        Ok(Destination { realm, authority, path, to })
    }

    /// The group that a route leads to.
    fn route_to(&mut self, authority: &[u8], path: &[u8]) -> Result<To, Ended> {
        self.route = self.site.routes.find(authority, path);
        let Some(route) = self.route() else {
            return Err(Ended::Refused(Refusal::NoRoute));
        };
        match &route.group {
            Some(group) => Ok(To::Group(Arc::clone(group), group.key(authority, path))),
            None => Err(Ended::Fixed(Box::new(route.config.action.clone()))),
        }
    }

    /// The route that it takes, once its destination is known.
    pub(crate) fn route(&self) -> Option<&Route> {
        self.site.routes.get(self.route?)
    }

    /// Changes the head of an answer as the route says.
    pub(crate) fn ruled(&self, mut answer: Answer) -> Answer {
        if let Some(head) = self.route().and_then(|route| route.response.changed(&answer.head)) {
            answer.head = head;
        }
        answer
    }

    async fn resolve(
        &self,
        authority: &[u8],
        default_port: u16,
    ) -> Result<Arc<[SocketAddr]>, Ended> {
        let parsed = http1::parse_authority(authority);
        let parsed = parsed.map_err(|_| Ended::Refused(Refusal::Authority))?;
        forward::addresses(self, parsed.host, parsed.port.unwrap_or(default_port)).await
    }

    /// The protocols that it asks for instead of HTTP, if it may have them.
    fn upgrade(&self) -> Option<Vec<u8>> {
        if !self.head.fields.has(Name::Upgrade) || !self.body.is_none() {
            return None;
        }
        upgrade::asked(&self.head, &self.site.config.upgrades)
    }

    /// Takes what was read behind the head, which belongs to no further request.
    pub(crate) fn take_rest(&mut self) -> Vec<u8> {
        let body = std::mem::replace(&mut self.body, RequestBody::elsewhere());
        body.into_rest().unwrap_or_default()
    }

    /// Whether the store may have a part in this request at all.
    fn may_use_store(&self) -> bool {
        let hints = hints(&self.head);
        matches!(self.head.method, Method::Get | Method::Head)
            && self.body.is_none()
            && !hints.any(caching::RequestHints::RANGE)
            && !hints.any(caching::RequestHints::IF_MATCH)
            && !hints.any(caching::RequestHints::IF_UNMODIFIED_SINCE)
    }

    fn wants_only_stored(&self) -> bool {
        caching::only_if_cached(&Wire(self.head.fields))
    }

    fn forbids_storing(&self) -> bool {
        self.head.fields.contains_token(Name::CacheControl, b"no-store")
    }

    /// A stored response that may be used as it is.
    pub(crate) fn look_again(&self, uri: Key) -> Option<Arc<Stored>> {
        let now_ms = time::wall_ms();
        match self.worker.shared.look_up(uri, &Wire(self.head.fields), now_ms) {
            Lookup::Found(stored, _) => {
                let reuse = self.may_reuse(&stored, now_ms);
                matches!(reuse, Reuse::Fresh { .. }).then_some(stored)
            }
            Lookup::Absent(_) | Lookup::Uncacheable => None,
        }
    }

    fn may_reuse(&self, stored: &Stored, now_ms: u64) -> Reuse {
        let wire = Wire(self.head.fields);
        let request = caching::Request { method: self.head.method_bytes, fields: &wire };
        caching::decide_reuse(&request, &stored.head.meta, now_ms)
    }

    /// Answers from a stored response. `aged`: it has been in the store, so it tells its age.
    pub(crate) async fn serve_stored(
        &mut self,
        stored: &Arc<Stored>,
        outcome: Outcome,
        aged: bool,
    ) -> Result<Done, Ended> {
        let wire = Wire(self.head.fields);
        let request = caching::Request { method: self.head.method_bytes, fields: &wire };
        let meta = &stored.head.meta;
        let condition =
            caching::conditional(&request, stored.head.status, &meta.validators, Evaluator::Cache);
        let cache_status = cache_status(outcome);
        let use_ = Use {
            cache_status: &cache_status,
            now_ms: aged.then(time::wall_ms),
            connection: self.connection(true),
        };
        let counters = &self.worker.counters;
        if outcome == Outcome::Hit {
            counters.hits.add(1);
        }
        let not_modified = matches!(condition, Precondition::NotModified(_));
        if not_modified {
            counters.not_modified.add(1);
            self.client.held(|out| stored.append_not_modified(out, &use_));
        } else {
            self.client.held(|out| stored.append_head(out, &use_));
        }
        let done = Done {
            outcome: match outcome {
                Outcome::Hit if not_modified => Outcome::NotModified,
                other => other,
            },
            status: if not_modified { 304 } else { stored.head.status },
            head_bytes: self.client.bytes,
            upstream: None,
            keep: true,
        };
        let sent = if not_modified || self.head.method == Method::Head {
            self.client.flush().await
        } else {
            self.client.send_pieces(&stored.pieces, 0).await
        };
        sent.map(|()| done).map_err(|Gone| Ended::Gone(done))
    }

    /// Sends a response while its body arrives.
    pub(crate) async fn stream_along(
        &mut self,
        reader: &Reader,
        head: &Head,
        outcome: Outcome,
        upstream: Option<SocketAddr>,
    ) -> Result<Done, Ended> {
        let framing = self.framing(head.announced_length, head.status);
        let cache_status = cache_status(outcome);
        let connection = self.connection(framing != Framing::UntilClose);
        let use_ = Use { cache_status: &cache_status, now_ms: None, connection };
        self.client.held(|out| head.append_streaming(out, framing, &use_));
        let done = Done {
            outcome,
            status: head.status,
            head_bytes: self.client.bytes,
            upstream,
            keep: framing != Framing::UntilClose,
        };
        let gone = |Gone| Ended::Gone(done);
        loop {
            if !reader.is_ready() {
                // The head does not wait for a body that takes its time.
                self.client.flush().await.map_err(gone)?;
            }
            match reader.next().await {
                Ok(Some(piece)) => {
                    self.offer(framing, &piece);
                    self.client.flush().await.map_err(gone)?;
                }
                Ok(None) => break,
                Err(_) => {
                    self.break_off();
                    return Err(Ended::Gone(done));
                }
            }
        }
        self.end_body(framing);
        self.client.flush().await.map_err(gone)?;
        Ok(done)
    }

    /// How the end of a body is told to this client.
    pub(crate) fn framing(&self, length: Option<u64>, status: u16) -> Framing {
        match (length, self.head.version) {
            _ if !has_length(status) => Framing::Told,
            (Some(length), _) => Framing::Length(length),
            (None, Version::Http11) => Framing::Chunked,
            (None, Version::Http10) => Framing::UntilClose,
        }
    }

    /// Offers content to the client in this framing.
    pub(crate) fn offer(&mut self, framing: Framing, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        if framing == Framing::Chunked {
            let prefix = http1::write::chunk_prefix(data.len());
            self.client.offer(&[prefix.as_bytes(), data, b"\r\n"]);
        } else {
            self.client.offer(&[data]);
        }
    }

    /// Holds what ends a body in this framing.
    pub(crate) fn end_body(&mut self, framing: Framing) {
        if framing == Framing::Chunked {
            self.client.hold(b"0\r\n\r\n");
        }
    }

    /// The response cannot be completed: the client must not take it for whole.
    pub(crate) fn break_off(&mut self) {
        // A body that ends with the connection needs a reset to be told from a whole one; for the
        // others it does no harm.
        let _ = self.stream.set_linger0();
    }

    /// What to tell the client of the connection. It is kept to, also when a drain begins later.
    pub(crate) fn connection(&mut self, framed: bool) -> Connection {
        self.keep &= framed && !self.worker.is_draining();
        connection_of(self.head.version, self.keep)
    }

    async fn refuse(&mut self, refusal: Refusal) -> Done {
        let (status, text) = (refusal.status(), refusal.body());
        self.worker.shared.count_refusal(refusal);
        let counters = &self.worker.counters;
        if matches!(status, 400..=499) {
            counters.client_errors.add(1);
        }
        // A client that sends on without waiting takes its tunnel for granted: what comes is no
        // request.
        let keep = refusal.keeps() && self.body.is_none() && self.head.method != Method::Connect;
        self.rule = refusal.name();
        let with_body = self.head.method != Method::Head;
        let connection = self.connection(keep);
        let before = self.client.bytes;
        let fields = match refusal {
            Refusal::PasswordMissing | Refusal::PasswordWrong => {
                forward::challenge(&self.site.forward)
            }
            _ => String::new(),
        };
        self.client.held(|out| {
            append_error_with(out, status, &fields, &text, connection, with_body);
        });
        let sent = self.client.flush().await.is_ok();
        Done {
            outcome: Outcome::of_refusal(refusal),
            status,
            head_bytes: self.client.bytes - before - with_body as u64 * (text.len() as u64 + 1),
            upstream: None,
            keep: keep && sent,
        }
    }

    fn finish(&self, done: &Done) {
        let counters = &self.worker.counters;
        counters.requests.add(1);
        if !self.worker.log.is_on() {
            return;
        }
        counters.log_lines.add(1);
        self.worker.log.record(&Record {
            end_wall_ms: time::wall_ms(),
            elapsed_us: self.started.elapsed().as_micros() as u64,
            client: self.peer,
            door: self.door,
            request: Some(self.head),
            request_bytes: self.head.head_bytes as u64 + self.body.bytes_used() + self.tunnelled,
            outcome: done.outcome,
            status: done.status,
            response_head: &self.client.sent_head,
            content_type: last_field(&self.client.sent_head, b"content-type"),
            bytes: self.client.bytes,
            body_bytes: self.client.bytes.saturating_sub(done.head_bytes),
            upstream: done.upstream,
            user: self.user.as_deref().unwrap_or_default(),
            keep: done.keep && self.keep,
            rule: self.rule,
        });
    }
}

/// How many more proxies may pass an OPTIONS or TRACE on (RFC 9110, 7.6.2); nothing else heeds it.
pub(crate) fn max_forwards(head: &RequestHead<'_>) -> Option<u64> {
    if !matches!(head.method, Method::Options | Method::Trace) {
        return None;
    }
    std::str::from_utf8(head.fields.get(Name::MaxForwards)?).ok()?.parse().ok()
}

/// RFC 9111, 5.2.1.7.
fn not_stored() -> Ended {
    Ended::Refused(Refusal::OnlyIfCached)
}

/// The member of `Cache-Status` for an outcome.
pub(crate) fn cache_status(outcome: Outcome) -> Vec<u8> {
    let forwarded =
        |why, stored, collapsed| Handled::Forwarded { why, status: None, stored, collapsed };
    let handled = match outcome {
        Outcome::Hit | Outcome::NotModified => Handled::Hit,
        Outcome::Miss => forwarded(Forward::UriMiss, true, false),
        Outcome::Collapsed => forwarded(Forward::UriMiss, false, true),
        Outcome::Revalidated | Outcome::Replaced => forwarded(Forward::Stale, true, false),
        Outcome::Pass | Outcome::Own | Outcome::Refused | Outcome::Denied | Outcome::Tunnel => {
            forwarded(Forward::Bypass, false, false)
        }
    };
    let mut out = Vec::with_capacity(48);
    append_status_member(&mut out, handled);
    out
}

/// Appends our member of `Cache-Status`.
pub(crate) fn append_status_member(out: &mut Vec<u8>, handled: Handled) {
    CacheStatus { name: "plimsoll", handled, ttl_seconds: None, key: None, detail: None }
        .write(out);
}
