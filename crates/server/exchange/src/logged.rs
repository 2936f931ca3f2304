//! Counters and log lines of requests that are answered without an exchange.

use std::net::SocketAddr;

use access_log::Record;
use cache::stored::{Stored, Use};
use core_io::CoreIo;
use http1::{RequestHead, write};
use outcome::{BrokenBy, Hierarchy, Outcome, Refusal};
use transport::tls::TlsFacts;

use crate::listener::ListenerContext;
use crate::seen::{draw, given_id};
use crate::worker::Worker;

/// The connection that a request came by.
#[derive(Clone, Copy)]
pub struct Origin<'c> {
    /// Where it was accepted.
    pub listener: &'c ListenerContext,
    /// The facts of its TLS.
    pub tls: Option<&'c dyn TlsFacts>,
    /// The client's address.
    pub peer: SocketAddr,
}

impl Origin<'_> {
    /// Counts and logs a hit that was sent as one piece.
    pub fn answered_at_once(
        self,
        worker: &Worker,
        head: &RequestHead<'_>,
        stored: &Stored,
        use_: &Use<'_>,
        body_bytes: u64,
    ) {
        let io = &worker.io;
        count_hit(io, stored.status(), 0);
        if io.log.takes_hit() {
            let mut response_head = Vec::new();
            stored.write_head(&mut response_head, use_);
            write::end(&mut response_head);
            let hit = LoggedHit {
                status: stored.status(),
                response_head: &response_head,
                content_type: stored.head.content_type(),
                body_bytes,
                elapsed_us: 0,
                keep: true,
                broken: None,
            };
            hit.log(worker, self, head, use_.now_ms.unwrap_or_default());
        }
    }

    /// Counts and logs a request that is malformed. `received` is its length in bytes.
    pub fn refused(
        self,
        io: &CoreIo,
        refusal: Refusal,
        received: u64,
        response: &[u8],
        now_ms: u64,
    ) {
        io.count_refusal(refusal);
        io.counters.requests.add(1);
        io.counters.client_errors.add(1);
        io.counters.latency.count(Outcome::Refused, refusal.status(), 0);
        if io.log.is_on() {
            io.counters.log_lines.add(u64::from(io.log.has_lines()));
            let logged = self.listener.logged();
            let record = Record::of_none(self.peer, logged, refusal, received, response, now_ms);
            io.log.record(&Record { tls: self.tls, ..record });
        }
    }
}

/// Counts a hit.
pub fn count_hit(io: &CoreIo, status: u16, elapsed_us: u64) {
    io.counters.requests.add(1);
    io.counters.hits.add(1);
    io.counters.latency.count(Outcome::Hit, status, elapsed_us);
}

/// What the log says of a hit.
pub struct LoggedHit<'s> {
    /// The status that was sent.
    pub status: u16,
    /// The head that was sent.
    pub response_head: &'s [u8],
    /// The value of its `Content-Type`; empty if it has none.
    pub content_type: &'s [u8],
    /// Bytes of content that were sent.
    pub body_bytes: u64,
    /// From the request to the end of the answer.
    pub elapsed_us: u64,
    /// The connection stays open.
    pub keep: bool,
    /// Who broke it off, and the rule.
    pub broken: Option<(BrokenBy, &'static str)>,
}

impl LoggedHit<'_> {
    /// Writes the line of a hit to the access log.
    pub fn log(&self, worker: &Worker, from: Origin<'_>, head: &RequestHead<'_>, now_ms: u64) {
        let Worker { io, cache, .. } = worker;
        let snapshot = io.log.names_ids().then(|| worker.snapshot());
        let ids = snapshot.as_ref().and_then(|snapshot| snapshot.config.request_id.as_ref());
        io.counters.log_lines.add(u64::from(io.log.has_lines()));
        io.log.record_hit(&Record {
            end_wall_ms: now_ms,
            elapsed_us: self.elapsed_us,
            client: from.listener.client(from.peer, head),
            listener: from.listener.address,
            scheme: from.listener.scheme_of(&head.fields),
            request: Some(*head),
            request_bytes: head.head_bytes as u64,
            outcome: Outcome::Hit,
            status: self.status,
            response_head: self.response_head,
            content_type: self.content_type,
            bytes: self.response_head.len() as u64 + self.body_bytes,
            body_bytes: self.body_bytes,
            upstream: None,
            upstream_head_us: None,
            given_id: given_id(ids, from.listener, &head.fields),
            id: snapshot.as_ref().map(|_| draw(&cache.hasher, from.peer)),
            hierarchy: Hierarchy::Direct,
            user: b"",
            keep: self.keep,
            rule: self.broken.map_or("", |(_, rule)| rule),
            broken: self.broken.map(|(by, _)| by),
            tls: from.tls,
        });
    }
}
