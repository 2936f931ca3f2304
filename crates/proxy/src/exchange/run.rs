//! One request from its head to its end: the branching.
//!
//! ```text
//!   class and route --purge, CONNECT, upgrade, past the store--> each its own file
//!     '--what is stored decides--> plan
//!          |--fresh, or stale by a rule--------------> from store (and validate in the background)
//!          |--only-if-cached---------------------------> 504
//!          |--may not be stored, body, other method----> pass
//!          '--absent, stale or a part--> join the flight
//!               |--follow--> stream along / from store / stale / pass / alone
//!               '--lead----> fetch: 304 -> updated, from store
//!                                   storable -> fill, stream along
//!                                   else -> release the others, pass it on
//! ```

use std::rc::Rc;
use std::sync::Arc;

use cache::Look;
use cache::disk::swap_in::swap_in;
use cache::flight::{Found, Joined, Reader, Settled};
use cache::stored::{Head, Wire};
use caching::cache_status::Forward;
use http1::OwnedRequest;
use outcome::Fault;
use runtime::time;

use super::Exchange;
use super::plan::Plan;
use super::way::{Seen, Way, not_stored};
use crate::arrival::Arrived;
use crate::ask::{Ask, Held};
use crate::client::{Client, linger};
use crate::connect;
use crate::destination::Destination;
use crate::ended::{Done, Ended};
use crate::fetch;
use crate::fixed;
use crate::limits::BODIES_LOST_MAX;
use crate::purge_method;
use crate::request::wants_more;
use crate::request_body::RequestBody;
use crate::site::Door;
use crate::told::Told;
use crate::upgrade;
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
        Err(Ended::Fixed(action)) => (fixed::answer(&mut exchange, &action).await, true),
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

impl<'x> Exchange<'x> {
    async fn run(&mut self) -> Result<Done, Ended> {
        let mut seen = Seen::default();
        let way = self.case().way(&mut seen).await;
        Seen { user: self.user, route: self.route } = seen;
        let destination = match way? {
            Way::Stored(destination) => destination,
            Way::Purge => return purge_method::by_method(self).await,
            Way::Past(destination, why) => return fetch::pass::pass(self, &destination, why).await,
            Way::Connect => {
                self.shed()?;
                return Box::pin(connect::connect(self)).await;
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
        fetch::pass::pass(self, &destination, Forward::Miss).await
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
                Plan::Pass(why) => return fetch::pass::pass(self, destination, why).await,
                Plan::Head { why, key, stored } => {
                    let watch = shared.watches.watch(uri);
                    let of = fetch::Confirming { why, key, stored, watch };
                    return Box::pin(fetch::pass::confirm_by_head(self, destination, of)).await;
                }
                Plan::Refuse => return Err(not_stored()),
                Plan::Ask(ask) => ask,
            };
            self.shed()?;
            // On the heap, as what follows: a future is as large as its largest way, and it is
            // copied when it begins. Who is passed through does not pay for the others.
            if alone || ask.is_for_one() {
                let watch = shared.watches.watch(uri);
                let lead = shared.flights.alone(ask.key, self.began, watch);
                return Box::pin(fetch::lead::lead(self, destination, ask, lead, None)).await;
            }
            match self.join(destination, uri, self.planning().flight_key(&ask)) {
                Joined::Lead(lead) => {
                    let leading = fetch::lead::lead(self, destination, ask, lead, Some(uri));
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
        fetch::pass::pass(self, destination, Forward::Miss).await
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
            Found::Settled(Settled::Uncacheable) => {
                fetch::pass::pass(self, destination, ask.why).await
            }
            Found::Settled(Settled::Declined(status)) => {
                fetch::lead::declined(self, destination, ask, status).await
            }
            // Its core has ended, the origin has not: ask it.
            Found::Settled(Settled::Failed(Fault::Abandoned)) => return Ok(Followed::LookAgain),
            Found::Settled(Settled::Failed(fault)) => {
                self.worker.counters.upstream_errors.add(1);
                self.forwarded = Some(ask.why);
                fetch::lead::fail(self, destination, ask, fault).await
            }
        };
        done.map(Followed::Done)
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
