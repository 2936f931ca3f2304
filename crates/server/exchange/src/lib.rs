//! One exchange: a request that its connection could not answer in the same turn, and its response.
//!
//! What: routing, policy, the use of the cache by the rules of RFC 9111, collapsed fetches,
//! upstream connections, the response. An exchange does not know which protocol its client speaks:
//! the seam ([`client`]) hides the protocol. Why apart from the connections: the rules are the same
//! for all protocols, and are tested once.
//!
//! [`run`] owns the branching. Each function of the other modules carries out one [`step::Step`]
//! and returns the next step: [`routing`] applies the rules and routes, [`plan`] decides by the
//! stored response, [`collapse`] joins other requests' fetches, [`fetch`] asks the origin or a
//! peer, [`coded`] chooses the form of a response, [`in_form`], [`serve`] and [`from_disk`] send.
//! [`quota`] takes each request from its quotas, and paces its body. [`our_digest`] is what other
//! caches fetch. [`explain`] describes what an exchange would do. [`hit`] looks for a fresh hit,
//! for connections that answer a hit without an exchange. `INSIDE` in
//! `tools/xtask/src/tidy/imports.rs` has the floors of these modules.
//!
//! What never happens: a core blocks; a truncated response is taken for a whole one; a client's
//! bytes grow memory beyond a limit of [`limits`].
#![forbid(unsafe_code)]

mod abandoned;
mod ask;
mod backlog;
pub mod cache_status;
pub mod client;
pub mod cluster;
mod coded;
mod collapse;
mod connect;
mod course;
mod destination;
mod digest_answer;
pub mod explain;
mod fetch;
mod from_disk;
pub mod hit;
mod hot;
mod in_form;
pub mod limits;
pub mod listener;
pub mod logged;
mod member_calls;
pub mod our_digest;
mod plan;
mod purge_method;
pub mod purged;
pub mod quota;
pub mod request;
mod route_answer;
pub mod routing;
mod rules;
mod run;
mod serve;
mod shared;
pub mod snapshot;
pub mod spread;
pub mod step;
mod tunnel;
mod upgrade;
pub mod websocket;
mod worker;

pub use fetch::hierarchy::clear_purged;
pub use shared::Shared;
pub use worker::{Slot, Worker};

use access_log::{Record, last_field};
use http1::Method;
use outcome::{BrokenBy, Fault, Hierarchy, Outcome, Refusal};
use runtime::time::{self, Instant};
use store::Generation;
use store::disk::Hit;

use crate::cache_status::proxy_status_line;
use crate::client::{Client, Own, RequestBody, Response, Sent};
use destination::Destination;
use fetch::Forwarding;
use plan::Planner;
use quota::Taken;
use routing::{RequestContext, Routed};
use step::{Ending, Summary};

/// The rule in the log for a client that has broken a response off: the client has left, or reads
/// too slowly.
pub fn client_rule(is_slow: bool) -> &'static str {
    if is_slow { Fault::ClientSlow.name() } else { "client-left" }
}

/// One request on its way to a response.
pub struct Exchange<'x, C> {
    pub(crate) context: RequestContext<'x>,
    pub(crate) client: &'x mut C,
    /// The request has a body with content.
    has_body: bool,
    /// What routing found.
    routed: Routed,
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
    /// The amounts that the request has taken from quotas, if there are any.
    taken: Option<Box<Taken>>,
}

impl<'x, C: Client> Exchange<'x, C> {
    /// An exchange that begins now.
    pub fn new(context: RequestContext<'x>, client: &'x mut C, body: &C::Body) -> Self {
        Exchange {
            client,
            has_body: !body.length().is_empty(),
            routed: Routed::default(),
            hierarchy: Hierarchy::Direct,
            tunnelled: 0,
            started: time::now(),
            arrived_ms: time::wall_ms(),
            began: context.worker.cache.purges.now(),
            swapped_in: None,
            rule: "",
            broken: None,
            taken: None,
            context,
        }
    }

    /// The request, for a decision by the stored response.
    fn planner(&self) -> Planner<'_> {
        let parts = self.context.key_parts(self.routed.route);
        let shares_cookies = self.context.shares_cookies(self.routed.route);
        let cache = &self.context.worker.cache;
        Planner { cache, head: self.context.head, parts, shares_cookies }
    }

    /// The request, to be forwarded to an origin.
    fn forwarding<'a>(&self, to: &'a Destination<'a>) -> Forwarding<'a>
    where
        'x: 'a,
    {
        self.context.forwarding(to, self.routed.route)
    }

    /// Refuses a request that needs an upstream, if the core is overloaded, or if the client has
    /// already cancelled the request: a client that cancels its requests at once (rapid reset)
    /// costs upstreams nothing.
    fn shed(&self) -> Result<(), Refusal> {
        if self.client.is_gone() && !self.context.finishes_abandoned(self.routed.route) {
            return Err(Refusal::Cancelled);
        }
        match self.context.worker.overload.sheds_of(self.context.peer.ip()) {
            true => Err(Refusal::Overload),
            false => Ok(()),
        }
    }

    /// Sends a response that the proxy generates.
    async fn answer(&mut self, own: Own<'_>, content: &str, outcome: Outcome) -> Ending {
        if self.has_body {
            // Nothing reads the body, so no further request can follow it.
            self.client.close_after();
        }
        self.client.respond(&Response::Own(own));
        if self.context.head.method != Method::Head {
            self.client.offer(content.as_bytes());
        }
        if self.client.flush().await.is_err() {
            self.client.close_after();
        }
        Ending::Complete(Summary { outcome, status: own.status, upstream: None })
    }

    async fn refuse(&mut self, refusal: Refusal) -> Ending {
        let worker = self.context.worker;
        worker.io.count_refusal(refusal);
        if refusal == Refusal::Cancelled {
            // No client reads an answer.
            self.rule = refusal.name();
            self.client.close_after();
            let (outcome, status) = (Outcome::of_refusal(refusal), refusal.status());
            return Ending::Left(Summary { outcome, status, upstream: None });
        }
        let (status, mut text) = (refusal.status(), format!("{}\n", refusal.body()));
        if matches!(status, 400..=499) {
            worker.io.counters.client_errors.add(1);
        }
        // A client may send on without waiting for the answer to its CONNECT: what comes then is
        // no request.
        if !refusal.keeps() || self.context.head.method == Method::Connect {
            self.client.close_after();
        }
        self.rule = refusal.name();
        let mut lines = b"Cache-Control: no-store\r\n".to_vec();
        lines.extend_from_slice(&proxy_status_line(refusal));
        if matches!(refusal, Refusal::PasswordMissing | Refusal::PasswordWrong) {
            let challenge = policy::forward::challenge(&self.context.snapshot.forward);
            lines.extend_from_slice(challenge.as_bytes());
        }
        if refusal == Refusal::Overload {
            let seconds = worker.overload.retry_after();
            lines.extend_from_slice(format!("Retry-After: {seconds}\r\n").as_bytes());
        }
        if self.context.listener.cluster {
            let name = cluster::REFUSED;
            lines.extend_from_slice(format!("Connection: {name}\r\n{name}: 1\r\n").as_bytes());
        }
        if refusal == Refusal::Quota {
            text = self.quota_refusal(&mut lines);
        }
        let own = Own {
            status,
            lines: b"Content-Type: text/plain\r\n",
            content_length: Some(text.len() as u64),
            more_lines: &lines,
        };
        self.answer(own, &text, Outcome::of_refusal(refusal)).await
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

    /// Counts and logs the exchange, which has ended.
    fn log(&self, ending: &Ending, body: &C::Body) {
        let RequestContext { worker, listener, head, tls, .. } = &self.context;
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
        io.log.record(&Record {
            end_wall_ms: time::wall_ms(),
            elapsed_us,
            client: self.context.peer,
            listener: listener.address,
            scheme: listener.scheme,
            request: Some(**head),
            request_bytes: head.head_bytes as u64 + body.bytes_used() + self.tunnelled,
            outcome,
            status,
            response_head: sent_head,
            content_type: last_field(sent_head, b"content-type"),
            bytes,
            body_bytes,
            upstream,
            hierarchy: self.hierarchy,
            user: self.routed.user.as_deref().unwrap_or_default(),
            keep: keeps && matches!(ending, Ending::Complete(_)),
            rule,
            broken,
            tls: *tls,
        });
    }
}
