//! The fast path: the stored response that answers a request at once, and its line in the log.
//!
//! A connection asks here before it starts an exchange, and an explanation asks the same.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use access_log::Record;
use cache::stored::{Stored, Wire};
use cache::{Cache, Look, Lookup};
use config::Role;
use core_io::CoreIo;
use http1::RequestHead;
use outcome::Outcome;
use store::Key;
use transport::Transport;

use crate::listener::ListenerContext;
use crate::request::{Class, hints, requested_uri};
use crate::snapshot::Snapshot;

/// The `Cache-Status` of a hit (RFC 9211).
pub(crate) const HIT: &[u8] = b"plimsoll; hit";

/// The stored response that answers a request as it is: fresh, in memory, and allowed for every
/// client that may use this listener. All other requests need an exchange.
#[inline]
pub(crate) fn fresh_hit(
    cache: &Cache,
    snapshot: &Snapshot,
    listener: &ListenerContext,
    peer: IpAddr,
    head: &RequestHead<'_>,
    look: Look,
    now_ms: u64,
) -> Option<(Arc<Stored>, Key)> {
    let class = Class::of(head, listener.role, &snapshot.via, &snapshot.config.upgrades);
    if class != Class::Cacheable {
        return None;
    }
    let uri = requested_uri(listener, head)?;
    let barred = match listener.role {
        Role::Reverse => snapshot.routes.bars(uri.authority, uri.path),
        Role::Forward => !snapshot.forward.admits_hit(peer, uri.authority),
    };
    if barred {
        return None;
    }
    let wire = Wire(head.fields);
    let key = cache.uri_key(uri.realm, uri.authority, uri.path);
    let Lookup::Found(stored, key) = cache.look(look, key, &wire, now_ms) else {
        return None;
    };
    let in_memory = stored.away.is_none();
    (in_memory && hints(head).is_plain() && stored.is_fresh(now_ms)).then_some((stored, key))
}

/// The connection that a request came by.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'c> {
    pub(crate) listener: &'c ListenerContext,
    pub(crate) stream: &'c Transport,
    pub(crate) peer: SocketAddr,
}

/// What the log says of a hit.
pub(crate) struct LoggedHit<'s> {
    pub(crate) status: u16,
    pub(crate) response_head: &'s [u8],
    pub(crate) content_type: &'s [u8],
    pub(crate) body_bytes: u64,
    pub(crate) elapsed_us: u64,
    pub(crate) keep: bool,
}

impl LoggedHit<'_> {
    /// Writes the line.
    pub(crate) fn log(&self, io: &CoreIo, from: Origin<'_>, head: &RequestHead<'_>, now_ms: u64) {
        io.counters.log_lines.add(1);
        io.log.record(&Record {
            end_wall_ms: now_ms,
            elapsed_us: self.elapsed_us,
            client: from.peer,
            listener: from.listener.address,
            scheme: from.listener.scheme,
            request: Some(*head),
            request_bytes: head.head_bytes as u64,
            outcome: Outcome::Hit,
            status: self.status,
            response_head: self.response_head,
            content_type: self.content_type,
            bytes: self.response_head.len() as u64 + self.body_bytes,
            body_bytes: self.body_bytes,
            upstream: None,
            user: b"",
            keep: self.keep,
            rule: "",
            tls: from.stream.tls(),
        });
    }
}
