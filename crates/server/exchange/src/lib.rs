//! One exchange: a request that its connection could not answer in the same turn, and its response.
//!
//! What: routing, policy, the use of the cache by the rules of RFC 9111, collapsed fetches,
//! upstream connections, the response. An exchange does not know which protocol its client speaks,
//! because the seam ([`client`]) hides the protocol. Why exchanges are separate from connections:
//! the rules are the same for all protocols, and are tested once.
//!
//! [`run`] owns the branching. Each function of the other modules carries out one [`step::Step`]
//! and returns the next step: [`routing`] applies the rules and routes, [`plan`] decides by the
//! stored response, [`fetch`] sends a request to the origin or a peer, or joins the fetch of
//! another request, [`coded`] chooses the form of a response, [`serve`] and [`from_disk`] send it,
//! [`from_files`] answers with a file,
//! [`own_answers`] has the answers that the proxy gives itself. [`quota`] takes each request from
//! its quotas, and paces its body. [`explain`] describes what an exchange would do. [`hit`] looks
//! for a fresh hit, for connections that answer a hit without an exchange. `INSIDE` in
//! `tools/xtask/src/tidy/imports.rs` has the floors of these modules.
//!
//! A client may leave before its response is complete. A client *leaves* when it resets its
//! connection or its stream. Over HTTP/1 a client also leaves when it closes its direction of the
//! connection, because a client that still reads looks the same as a client that is gone. (nginx,
//! Squid and HAProxy's `abortonclose` decide the same.) If bytes of a further request have arrived
//! before the close, the client has not left.
//!
//! The request of a client that has left ends at once, and its upstream is notified: the connection
//! closes, or the stream is reset. There are three exceptions:
//!
//! - other requests wait for its response, or are reading the response;
//! - the response is being stored;
//! - its route, or the forward listener, has `finish_abandoned`.
//!
//! Before the head of the response is known, nothing is being stored. So until then a fetch for the
//! store ends as well, unless other requests wait for its response.
//!
//! What never happens: a core blocks; a truncated response is taken for a whole one; a client's
//! bytes grow memory beyond a limit of [`limits`]; a server is blamed because its client has left.
#![forbid(unsafe_code)]

mod auth;
pub mod cluster;
mod coded;
mod connect;
mod error_pages;
pub mod explain;
mod facts;
mod fetch;
mod from_disk;
mod from_files;
mod guard;
pub mod hit;
pub mod limits;
pub mod listener;
pub mod logged;
mod mirror;
pub mod own_answers;
mod passed_on;
mod plan;
pub mod quota;
pub mod request;
pub mod routing;
mod rules;
mod run;
mod seen;
mod serve;
pub mod shared;
pub mod snapshot;
pub mod spread;
pub mod step;
pub mod upgrade;
mod worker;

pub use fetch::hierarchy::clear_purged;
use seam::tunnel;
pub use seam::{cache_status, client, passed};
pub use shared::Shared;
pub use worker::{Entered, Slot, Worker};

use access_log::{Record, last_field};
use outcome::{BrokenBy, Fault, Hierarchy, Refusal};
use runtime::time::{self, Instant};
use store::Generation;
use store::disk::Hit;

use crate::client::{Client, RequestBody, Sent};
use crate::passed::Coder;
use quota::Taken;
use request::{Request, RequestedKey};
use routing::ClientConnection;
use step::{Ending, Summary};

/// The rule in the log for a client that has broken a response off: the client has left, or reads
/// too slowly.
pub fn client_rule(is_slow: bool) -> &'static str {
    if is_slow { Fault::ClientSlow.name() } else { "client-left" }
}

/// One request on its way to a response.
pub struct Exchange<'x, C> {
    pub(crate) request: Request,
    connection: ClientConnection<'x>,
    pub(crate) client: &'x mut C,
    /// The request has a body with content.
    has_body: bool,
    /// The kind of server that was asked, in the terms of the hierarchy.
    hierarchy: Hierarchy,
    /// Bytes that the client sent through a tunnel.
    tunnelled: u64,
    started: Instant,
    /// The start by the wall clock, in unix milliseconds.
    arrived_ms: u64,
    /// The number of purges when the exchange looked into the store.
    began: Generation,
    /// The entry that was read from the disk for this request, perhaps with the body of the
    /// response.
    swapped_in: Option<Box<Hit>>,
    /// The rule that refused the request, or broke its response off, if one did.
    rule: &'static str,
    /// The party that broke the response off, if it was not the client.
    broken: Option<BrokenBy>,
    /// The time until the head of the upstream's response was passed on, if one was.
    pub(crate) upstream_head_us: Option<u64>,
    /// Codes the body of a response that passes.
    coder: Option<Box<Coder>>,
    /// The amounts that the request has taken from quotas, if there are any.
    taken: Option<Box<Taken>>,
}

impl<'x, C: Client> Exchange<'x, C> {
    /// An exchange that begins now. Inlined, as [`Request::new`].
    #[inline(always)]
    pub fn new(
        request: Request,
        connection: ClientConnection<'x>,
        client: &'x mut C,
        body: &C::Body,
    ) -> Self {
        Exchange {
            client,
            has_body: !body.length().is_empty(),
            hierarchy: Hierarchy::Direct,
            tunnelled: 0,
            started: time::now(),
            arrived_ms: time::wall_ms(),
            began: request.worker.cache.purges.now(),
            swapped_in: None,
            rule: "",
            broken: None,
            coder: None,
            taken: None,
            upstream_head_us: None,
            request,
            connection,
        }
    }

    /// Notes the key that the connection has made for its look into the store.
    #[inline]
    pub fn note_key(&mut self, key: RequestedKey) {
        self.request.requested_key.set(key);
    }

    /// Refuses a request that needs an upstream, if the core is overloaded, or if the client has
    /// already cancelled the request: a client that cancels its requests at once (rapid reset)
    /// costs upstreams nothing.
    fn shed(&self) -> Result<(), Refusal> {
        if self.client.is_gone() && !self.request.finishes_abandoned() {
            return Err(Refusal::Cancelled);
        }
        match self.request.worker.overload.sheds_of(self.request.peer.ip()) {
            true => Err(Refusal::Overload),
            false => Ok(()),
        }
    }

    /// Notes that the upstream has broken the response off.
    #[cold]
    pub(crate) fn broken_by(&mut self, fault: Fault) {
        tracing::debug!(%fault, "the response broke off");
        self.rule = fault.name();
        self.broken = Some(match fault {
            Fault::Abandoned | Fault::NoDescriptor => BrokenBy::Proxy,
            _ if fault.is_of_the_client() => BrokenBy::Client,
            _ => BrokenBy::Upstream,
        });
    }

    /// Ready when the client has left, unless its request goes on without it.
    pub(crate) fn left(&self) -> impl Future<Output = ()> + use<C> {
        let goes_on = self.request.finishes_abandoned();
        let gone = (!goes_on).then(|| self.client.gone());
        async move {
            match gone {
                Some(gone) => gone.await,
                None => std::future::pending().await,
            }
        }
    }

    /// Counts and logs the exchange, which has ended.
    fn log(&self, ending: &Ending, body: &C::Body) {
        let Request { worker, listener, peer, user, .. } = &self.request;
        let Summary { outcome, status, upstream } = *ending.summary();
        let io = &worker.io;
        let elapsed_us = self.started.elapsed().as_micros() as u64;
        io.counters.requests.add(1);
        io.counters.latency.count(outcome, status, elapsed_us);
        if !io.log.is_on() {
            return;
        }
        io.counters.log_lines.add(u64::from(io.log.has_lines()));
        let Sent { bytes, body_bytes, head: sent_head, keeps, is_slow } = self.client.sent();
        let is_broken = matches!(ending, Ending::BrokenOff(_) | Ending::Left(_));
        let broken = is_broken.then(|| self.broken.unwrap_or(BrokenBy::Client));
        let rule = match (broken, self.rule) {
            (Some(_), "") => client_rule(is_slow),
            (_, rule) => rule,
        };
        let head = self.request.head();
        io.log.record(&Record {
            end_wall_ms: time::wall_ms(),
            elapsed_us,
            client: *peer,
            listener: listener.address,
            scheme: listener.scheme_of(&head.fields),
            request: Some(head),
            request_bytes: head.head_bytes as u64 + body.bytes_used() + self.tunnelled,
            outcome,
            status,
            response_head: sent_head,
            content_type: last_field(sent_head, b"content-type"),
            bytes,
            body_bytes,
            upstream,
            upstream_head_us: self.upstream_head_us.filter(|_| upstream.is_some()),
            given_id: self.request.given_id(),
            id: self.request.id,
            hierarchy: self.hierarchy,
            user: user.as_deref().unwrap_or_default(),
            keep: keeps && matches!(ending, Ending::Complete(_)),
            rule,
            broken,
            tls: self.connection.tls,
        });
    }
}

/// The result of work for one client, which ends when the client has `left`. Work that is done
/// counts, and whether the client has left is looked at only while the work waits.
pub(crate) async fn unless_left<T>(
    left: impl Future<Output = ()>,
    work: impl Future<Output = T>,
) -> Result<T, Refusal> {
    match runtime::race(work, left).await {
        runtime::Either::Left(done) => Ok(done),
        runtime::Either::Right(()) => Err(Refusal::Cancelled),
    }
}
