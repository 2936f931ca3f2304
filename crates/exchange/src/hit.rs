//! The fast path's look into the store: the stored response that answers a request at once.
//!
//! A connection asks here before it starts an exchange, and an explanation asks the same.

use std::net::IpAddr;
use std::sync::Arc;

use cache::stored::{Stored, Wire};
use cache::{Cache, Look, Lookup};
use config::Role;
use http1::RequestHead;
use store::Key;

use crate::coded;
use crate::listener::ListenerContext;
use crate::request::{Class, hints, requested_uri};
use crate::snapshot::Snapshot;

/// The `Cache-Status` of a hit (RFC 9211).
pub const HIT: &[u8] = b"plimsoll; hit";

/// The stored response that answers a request as it is: fresh, in memory, and allowed for every
/// client that may use this listener. All other requests need an exchange.
#[inline(always)] // as `Cache::uri_key`
pub fn fresh_hit(
    cache: &Arc<Cache>,
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
    let fresh = hints(head).is_plain() && stored.is_fresh(now_ms);
    if stored.is_plain() || !fresh {
        return fresh.then_some((stored, key));
    }
    coded::hit(cache, snapshot, &uri, head, stored, key, look)
}
