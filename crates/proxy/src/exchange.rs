//! A request that must wait: for the origin, for another's fetch, for its own body.
//!
//! ```text
//!   plan --fresh, or stale by a rule--------------> from store (and validate behind)
//!     |--only-if-cached---------------------------> 504
//!     |--may not be stored, body, other method----> pass
//!     '--absent, stale or a part--> join the flight
//!          |--follow--> stream along / from store / stale / pass / alone
//!          '--lead----> fetch: 304 -> updated, from store
//!                              storable -> fill, stream along
//!                              else -> release the others, pass it on
//! ```
//!
//! [`Exchange::run`] owns this branching, [`way`] what the request alone decides, [`plan`] what is
//! stored and asked for, [`serve`] the sending.

pub(crate) mod because;
pub(crate) mod plan;
mod serve;
pub(crate) mod way;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use caching::cache_status::Forward;
use http1::{Method, Name, OwnedRequest, RequestHead};
use runtime::time::{self, Instant};
use store::disk::Hit;
use store::{Generation, Key};

use crate::access_log::{Outcome, Record, last_field};
use crate::arrival::Arrived;
use crate::client::{Client, append_error, linger};
use crate::config::Action;
use crate::connection::wants_more;
use crate::disk::sending::Torn;
use crate::disk::swap_in::swap_in;
use crate::exchange::plan::{Plan, Planning};
use crate::exchange::way::{Case, Look, Seen, Way, not_stored};
use crate::fault::Fault;
use crate::fetch::{self, Ask, Asking, Held};
use crate::flight::{Found, Joined, Reader, Settled};
use crate::forward;
use crate::limits::BODIES_LOST_MAX;
use crate::purge;
use crate::refusal::Refusal;
use crate::request_body::RequestBody;
use crate::routes;
use crate::site::{Door, Realm, Site};
use crate::stored::{Head, Wire};
use crate::told::{self, Told};
use crate::transport::Transport;
use crate::upgrade;
use crate::upstream::To;
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
    arrived: &Arrived,
    incoming: Incoming,
) -> Option<Vec<u8>> {
    let Incoming { head, rest, unsent } = incoming;
    let stream = &arrived.stream;
    let _busy = worker.counters.connections_busy.while_here();
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
        peer: arrived.peer,
        told_to: arrived.told_to.as_deref().copied(),
        user: None,
        tunnelled: 0,
        route: None,
        started: time::now(),
        arrived_ms: time::wall_ms(),
        began: worker.shared.purges.now(),
        at_hand: None,
        forwarded: None,
        rule: "",
    };
    let (done, whole) = match exchange.run().await {
        Ok(done) => (done, true),
        Err(Ended::Gone(done)) => {
            exchange.break_off();
            (Done { keep: false, ..done }, false)
        }
        Err(Ended::Over(done)) => (Done { keep: false, ..done }, false),
        Err(Ended::Refused(refusal)) => (exchange.refuse(refusal).await, true),
        Err(Ended::Fixed(action)) => (routes::answer(&mut exchange, &action).await, true),
        Err(Ended::BodyLost | Ended::Torn(_)) => {
            unreachable!("`run` asks the origin instead")
        }
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
    /// Nothing has been sent, and the body that was to be is not on the disk any more.
    BodyLost,
    /// The body on the disk broke off after its head had been sent.
    Torn(Box<Torn>),
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
    /// Where it had connected to, if a PROXY header told.
    told_to: Option<SocketAddr>,
    pub(crate) body: RequestBody,
    /// The client wants to go on.
    pub(crate) keep: bool,
    /// Whose password was right, if one was asked for.
    pub(crate) user: Option<Arc<[u8]>>,
    /// Bytes that it sent through a tunnel.
    pub(crate) tunnelled: u64,
    /// The place of its route.
    pub(crate) route: Option<usize>,
    started: Instant,
    /// The same on the wall's clock, in unix milliseconds.
    arrived_ms: u64,
    /// Purges until it looked into the store.
    pub(crate) began: Generation,
    /// Found on the disk for this request, perhaps with the body that it is answered with.
    pub(crate) at_hand: Option<Box<Hit>>,
    /// The origin is asked, for this reason.
    pub(crate) forwarded: Option<Forward>,
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

impl<'x> Exchange<'x> {
    async fn run(&mut self) -> Result<Done, Ended> {
        let mut seen = Seen::default();
        let way = self.case().way(&mut seen).await;
        Seen { user: self.user, route: self.route } = seen;
        let destination = match way? {
            Way::Stored(destination) => destination,
            Way::Purge => return purge::by_method(self).await,
            Way::Past(destination, why) => return fetch::pass(self, &destination, why).await,
            Way::Connect => {
                self.shed()?;
                return Box::pin(forward::connect(self)).await;
            }
            Way::Upgrade(destination, protocols) => {
                self.shed()?;
                return Box::pin(upgrade::serve(self, &destination, &protocols)).await;
            }
        };
        for _ in 0..=BODIES_LOST_MAX {
            match self.stored(&destination).await {
                Err(Ended::BodyLost) => {}
                Err(Ended::Torn(torn)) => {
                    return Box::pin(self.mend(&destination, *torn)).await;
                }
                ended => return ended,
            }
        }
        fetch::pass(self, &destination, Forward::Miss).await
    }

    /// Answers as what is stored decides.
    async fn stored(&mut self, destination: &Destination<'x>) -> Result<Done, Ended> {
        let shared = Arc::clone(&self.worker.shared);
        let uri = shared.uri_key(destination.realm, destination.authority, destination.path);
        let mut alone = false;
        for _ in 0..LOOKS_MAX {
            self.began = shared.purges.now();
            if shared.disk().is_some() {
                self.at_hand = Box::pin(swap_in(&shared, uri, &Wire(self.head.fields))).await;
            }
            let ask = match self.planning().plan(uri, Look::Use).0 {
                Plan::Serve { held, key, told, behind } => {
                    if let Held::Whole(stored) = &held {
                        self.worker.sizing.hit(key, stored);
                    }
                    if let Some(ask) = behind
                        && self.shed().is_ok()
                    {
                        fetch::behind::revalidate(self, destination, ask);
                    }
                    return Box::pin(self.serve_held(&held, told)).await;
                }
                Plan::Pass(why) => return fetch::pass(self, destination, why).await,
                Plan::Head { why, key, stored } => {
                    let watch = shared.under_way.watch(uri);
                    let of = fetch::Confirming { why, key, stored, watch };
                    return Box::pin(fetch::head(self, destination, of)).await;
                }
                Plan::Refuse => return Err(not_stored()),
                Plan::Ask(ask) => ask,
            };
            self.shed()?;
            // On the heap, as what follows: a future is as large as its largest way, and it is
            // copied when it begins. Who is passed through does not pay for the others.
            if alone || ask.is_for_one() {
                let watch = shared.under_way.watch(uri);
                let lead = shared.flights.alone(ask.key, self.began, watch);
                return Box::pin(fetch::lead(self, destination, ask, lead, None)).await;
            }
            match self.join(destination, uri, self.planning().flight_key(&ask)) {
                Joined::Lead(lead) => {
                    let leading = fetch::lead(self, destination, ask, lead, Some(uri));
                    return Box::pin(leading).await;
                }
                Joined::Follow(reader) => {
                    match Box::pin(self.follow(&reader, destination, &ask)).await? {
                        Followed::Done(done) => return Ok(done),
                        Followed::LookAgain => {}
                        Followed::Alone => alone = true,
                    }
                }
            }
        }
        fetch::pass(self, destination, Forward::Miss).await
    }

    /// The request, for what decides about it.
    pub(crate) fn case(&self) -> Case<'x> {
        Case {
            worker: self.worker,
            site: Rc::clone(&self.site),
            door: self.door,
            peer: self.peer,
            told_to: self.told_to,
            stream: Some(self.stream),
            head: self.head,
            with_body: !self.body.is_none(),
            look: Look::Use,
        }
    }

    /// The request beside what is stored.
    pub(crate) fn planning(&self) -> Planning<'_> {
        Planning { shared: &self.worker.shared, head: self.head }
    }

    /// Refuses a request that needs an upstream, if the core has more to do than it can.
    pub(crate) fn shed(&self) -> Result<(), Ended> {
        if self.worker.overload.sheds() {
            return Err(Ended::Refused(Refusal::Overload));
        }
        Ok(())
    }

    /// Joins a fetch of this key that neither a purge nor a change has overtaken, or is to begin
    /// one.
    pub(crate) fn join(&self, destination: &Destination<'_>, uri: Key, key: Key) -> Joined {
        let shared = &self.worker.shared;
        let watch = || shared.under_way.watch(uri);
        shared.flights.join(key, self.began, watch, |since| {
            let Destination { realm, authority, path, .. } = destination;
            let url = purge::url(*realm, authority, path);
            shared.purges.overtaken(&url, since)
        })
    }

    /// Waits for another's fetch, as long as it may be for this request.
    async fn follow(
        &mut self,
        reader: &Reader,
        destination: &Destination<'x>,
        ask: &Ask,
    ) -> Result<Followed, Ended> {
        let found = reader.found().await;
        let wire = Wire(self.head.fields);
        let shared = &self.worker.shared;
        let resource = match &found {
            Found::Stream(head) => Some(&head.resource),
            Found::Settled(Settled::Stored(stored)) => Some(&stored.head.resource),
            Found::Settled(Settled::Part(partial)) => Some(&partial.head.resource),
            Found::Settled(_) => None,
        };
        if resource.is_some_and(|resource| shared.is_overtaken(resource)) {
            // Its tags, which nobody knew before, have been purged since it began.
            shared.flights.retire(reader);
            return Ok(Followed::LookAgain);
        }
        let may_share = |head: &Head| {
            let request = caching::Request { method: self.head.method_bytes, fields: &wire };
            let now_ms = time::wall_ms();
            caching::decide_collapsed(&request, &head.meta, self.arrived_ms, now_ms).is_ok()
        };
        // What is for one request at a time releases all who wait for it, at once.
        let released = |head: &Head| match head.meta.is_never_fresh() {
            true => Followed::Alone,
            false => Followed::LookAgain,
        };
        let told = Told::collapsed(ask.why);
        let done = match found {
            Found::Stream(head) if !head.matches(&wire) => return Ok(Followed::LookAgain),
            // It would find the same fetch again as long as its body comes.
            Found::Stream(head) if !may_share(&head) => return Ok(Followed::Alone),
            Found::Stream(head) => {
                self.worker.counters.collapsed.add(1);
                self.stream_along(reader, &head, told, None, b"").await
            }
            Found::Settled(Settled::Stored(stored)) if stored.head.matches(&wire) => {
                if !may_share(&stored.head) {
                    return Ok(released(&stored.head));
                }
                self.worker.counters.collapsed.add(1);
                self.serve_stored(&stored, told, false, b"").await
            }
            Found::Settled(Settled::Part(partial)) if partial.head.matches(&wire) => {
                if !may_share(&partial.head) {
                    return Ok(released(&partial.head));
                }
                if self.planning().held_ranges(&partial).is_none() {
                    return Ok(Followed::LookAgain);
                }
                self.worker.counters.collapsed.add(1);
                self.serve_held(&Held::Part(partial), told).await
            }
            Found::Settled(Settled::Stored(_) | Settled::Part(_)) => {
                return Ok(Followed::LookAgain);
            }
            Found::Settled(Settled::Uncacheable) => fetch::pass(self, destination, ask.why).await,
            Found::Settled(Settled::Declined(status)) => {
                fetch::declined(self, destination, ask, status).await
            }
            // Its core has ended, the origin has not: ask it.
            Found::Settled(Settled::Failed(Fault::Abandoned)) => return Ok(Followed::LookAgain),
            Found::Settled(Settled::Failed(fault)) => {
                self.worker.counters.upstream_errors.add(1);
                self.forwarded = Some(ask.why);
                fetch::fail(self, destination, ask, fault).await
            }
        };
        done.map(Followed::Done)
    }

    /// Takes what was read behind the head, which belongs to no further request.
    pub(crate) fn take_rest(&mut self) -> Vec<u8> {
        let body = std::mem::replace(&mut self.body, RequestBody::elsewhere());
        body.into_rest().unwrap_or_default()
    }

    /// Who asks, for what is asked beyond this request's own way.
    pub(crate) fn asking<'a>(&self, destination: &'a Destination<'a>) -> Asking<'a>
    where
        'x: 'a,
    {
        self.case().asking(destination, self.route)
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
        let outcome = Outcome::of_refusal(refusal);
        let mut lines = told::refused_line(refusal);
        if matches!(refusal, Refusal::PasswordMissing | Refusal::PasswordWrong) {
            lines.extend_from_slice(forward::challenge(&self.site.forward).as_bytes());
        }
        if refusal == Refusal::Overload {
            lines.extend_from_slice(b"Retry-After: ");
            http1::write::decimal(&mut lines, self.worker.overload.retry_after());
            lines.extend_from_slice(b"\r\n");
        }
        self.client.held(|out| append_error(out, status, &text, &lines, connection, with_body));
        let sent = self.client.flush().await.is_ok();
        Done {
            outcome,
            status,
            head_bytes: self.client.bytes - before - with_body as u64 * (text.len() as u64 + 1),
            upstream: None,
            keep: keep && sent,
        }
    }

    fn finish(&self, done: &Done) {
        let counters = &self.worker.counters;
        let elapsed_us = self.started.elapsed().as_micros() as u64;
        counters.requests.add(1);
        counters.latency.count(done.outcome, done.status, elapsed_us);
        if !self.worker.log.is_on() {
            return;
        }
        counters.log_lines.add(1);
        self.worker.log.record(&Record {
            end_wall_ms: time::wall_ms(),
            elapsed_us,
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
            tls: self.stream.tls(),
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

/// A destination that outlives its request.
#[derive(Debug)]
pub(crate) struct OwnedDestination {
    realm: Realm,
    authority: Box<[u8]>,
    path: Box<[u8]>,
    to: To,
}

impl Destination<'_> {
    /// What the upstream gets as `Host`.
    pub(crate) fn host(&self) -> &[u8] {
        match &self.to {
            To::Group(group, ..) => group.host(self.authority),
            To::Addresses(..) => self.authority,
        }
    }

    pub(crate) fn detach(&self) -> OwnedDestination {
        OwnedDestination {
            realm: self.realm,
            authority: self.authority.into(),
            path: self.path.into(),
            to: self.to.clone(),
        }
    }
}

impl OwnedDestination {
    pub(crate) fn view(&self) -> Destination<'_> {
        Destination {
            realm: self.realm,
            authority: &self.authority,
            path: &self.path,
            to: self.to.clone(),
        }
    }
}

/// What came of waiting for another's fetch.
enum Followed {
    Done(Done),
    /// It was not for this request.
    LookAgain,
    /// Nor will the next be: ask for this request alone.
    Alone,
}
