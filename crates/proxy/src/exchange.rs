//! A request that must wait: for the origin, for another's fetch, for its own body.
//!
//! [`run`] owns the branching, [`way`] is what the request alone decides, [`plan`] what is stored
//! and asked for, [`serve`] the sending, [`from_disk`] the sending of a body on the disk.

pub(crate) mod because;
pub(crate) mod from_disk;
pub(crate) mod plan;
pub(crate) mod run;
mod serve;
pub(crate) mod way;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use caching::cache_status::Forward;
use http1::{Method, RequestHead};
use runtime::time::{self, Instant};
use store::disk::Hit;
use store::{Generation, Key};

use crate::client::{Client, append_error};
use crate::destination::Destination;
use crate::ended::{Done, Ended};
use crate::exchange::plan::Planning;
use crate::exchange::way::Case;
use crate::fetch::Asking;
use crate::request_body::RequestBody;
use crate::site::{Door, Site};
use crate::told::{self};
use crate::worker::Worker;
use access_log::{Record, last_field};
use cache::Look;
use cache::flight::Joined;
use outcome::Outcome;
use outcome::Refusal;
use transport::Transport;

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
    pub(crate) told_to: Option<SocketAddr>,
    pub(crate) body: RequestBody,
    /// The client wants to go on.
    pub(crate) keep: bool,
    /// Whose password was right, if one was asked for.
    pub(crate) user: Option<Arc<[u8]>>,
    /// Bytes that it sent through a tunnel.
    pub(crate) tunnelled: u64,
    /// The place of its route.
    pub(crate) route: Option<usize>,
    pub(crate) started: Instant,
    /// The same on the wall's clock, in unix milliseconds.
    pub(crate) arrived_ms: u64,
    /// Purges until it looked into the store.
    pub(crate) began: Generation,
    /// Found on the disk for this request, perhaps with the body that it is answered with.
    pub(crate) at_hand: Option<Box<Hit>>,
    /// The origin is asked, for this reason.
    pub(crate) forwarded: Option<Forward>,
    /// The rule that refused the request, if one did.
    pub(crate) rule: &'static str,
}

impl<'x> Exchange<'x> {
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
        let watch = || shared.watches.watch(uri);
        shared.flights.join(key, self.began, watch, |since| {
            let Destination { realm, authority, path, .. } = destination;
            let url = cache::purge::url(*realm, authority, path);
            shared.purges.overtaken(&url, since)
        })
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

    pub(crate) async fn refuse(&mut self, refusal: Refusal) -> Done {
        let (status, text) = (refusal.status(), refusal.body());
        self.worker.count_refusal(refusal);
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
            lines.extend_from_slice(policy::forward::challenge(&self.site.forward).as_bytes());
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

    pub(crate) fn finish(&self, done: &Done) {
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
            listener: self.door.address,
            scheme: self.door.scheme,
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
