//! The fast path's look into the store: the stored response that answers a request at once.
//!
//! A connection asks here before it starts an exchange, and an explanation asks the same.

use std::net::IpAddr;
use std::sync::Arc;

use cache::key::{KeySettings, PathBuffer, StoredUri};
use cache::stored::Wire;
use cache::{Cache, Look, Lookup};
use config::Role;
use http1::RequestHead;
use policy::routes::Choice;

use crate::cluster::is_of_member;
use crate::coded;
pub use crate::coded::Hit;
use crate::listener::ListenerContext;
use crate::request::{Class, RequestedUri, hints, requested_uri};
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
) -> Option<Hit> {
    if listener.cluster && !is_of_member(head) {
        return None;
    }
    let class = Class::of(head, listener.role, &snapshot.via, &snapshot.config.upgrades);
    if class != Class::Cacheable {
        return None;
    }
    let uri = requested_uri(listener, head)?;
    let by = match listener.role {
        Role::Reverse => match snapshot.routes.choose(uri.reading()) {
            Choice::Plain => None,
            Choice::Barred => return None,
            Choice::By(settings) => Some(settings),
        },
        // The member that the client has asked has judged it.
        Role::Forward if !snapshot.forward.admits_hit(peer, uri.authority) && !listener.cluster => {
            return None;
        }
        Role::Forward => None,
    };
    let wire = Wire(head.fields);
    let found = match by {
        None => {
            let uri = StoredUri::new(uri.realm, uri.authority, uri.path);
            cache.look(look, cache.uri_key(uri), &wire, now_ms)
        }
        Some(settings) => found_by(cache, settings, uri, &wire, look, now_ms),
    };
    let Lookup::Found(stored, key) = found else {
        return None;
    };
    let fresh = hints(head).is_plain() && stored.is_fresh(now_ms) && !stored.sets_cookie();
    if stored.is_plain() || !fresh {
        return fresh.then_some(Hit { stored, key, form_of: None });
    }
    coded::hit(cache, snapshot, &uri, head, stored, key, look)
}

/// Looks by the settings of the request's route. Not inline, so that a hit without settings costs
/// what it did without them.
#[inline(never)]
fn found_by(
    cache: &Cache,
    settings: &KeySettings,
    uri: RequestedUri<'_>,
    wire: &Wire<'_>,
    look: Look,
    now_ms: u64,
) -> Lookup {
    if settings.bypasses(wire.0) {
        return Lookup::Bypassed;
    }
    let mut buffer = PathBuffer::on_stack();
    let Some(path) = settings.path_in(uri.path, &mut buffer) else {
        return Lookup::Bypassed;
    };
    let key = cache.uri_key(StoredUri::new(uri.realm, uri.authority, path));
    cache.look_by_parts(look, key, settings.parts(), wire, now_ms)
}
