//! The fast path's look into the store: the stored response that answers a request at once.
//!
//! A connection calls [`fresh_hit`] before it starts an exchange. An explanation calls the same
//! function.

use std::net::IpAddr;
use std::sync::Arc;

use cache::key::{KeySettings, PathBuffer, StoredUri};
use cache::stored::{Stored, Wire};
use cache::{Cache, Look, Lookup, Query};
use coding::rules::Target;
use conditions::Facts;
use config::Role;
use http1::RequestHead;
use policy::routes::Choice;
use store::Key;

use crate::cluster::is_of_member;
pub use crate::coded::Hit;
use crate::coded::{Chosen, Wish};
use crate::facts::facts_of_head;
use crate::listener::ListenerContext;
use crate::request::{Class, RequestedKey, RequestedUri, hints, requested_uri};
use crate::snapshot::Snapshot;

/// The `Cache-Status` of a hit (RFC 9211).
pub const HIT: &[u8] = b"plimsoll; hit";

/// Where the fast path looks, for which client, and when.
#[derive(Clone, Copy)]
pub struct FastPath<'x> {
    /// The cache, which all cores share.
    pub cache: &'x Arc<Cache>,
    /// The configuration in force.
    pub snapshot: &'x Snapshot,
    /// Where the connection was accepted.
    pub listener: &'x ListenerContext,
    /// The client's address.
    pub peer: IpAddr,
    /// Whether it counts as a use of what is found.
    pub look: Look,
    /// Unix milliseconds.
    pub now_ms: u64,
}

/// The stored response that answers a request as it is: fresh, in memory, and allowed for every
/// client that may use this listener.
///
/// # Errors
/// All other requests need an exchange, which gets the key for [`Exchange::note_key`].
///
/// [`Exchange::note_key`]: crate::Exchange::note_key
#[inline(always)] // as `Cache::uri_key`
pub fn fresh_hit(path: &FastPath<'_>, head: &RequestHead<'_>) -> Result<Hit, RequestedKey> {
    let FastPath { cache, snapshot, listener, peer, look, now_ms } = *path;
    if listener.cluster && !is_of_member(head) {
        return Err(None);
    }
    let class = Class::of(head, listener.role, &snapshot.via, &snapshot.config.upgrades);
    if class != Class::Cacheable {
        return Err(None);
    }
    let Some(uri) = requested_uri(listener, head.target, head.fields) else { return Err(None) };
    let facts = || Some(facts_of_hit(path, head, &uri));
    let by = match listener.role {
        Role::Reverse => match snapshot.routes.choose(uri.reading(), facts) {
            Choice::Plain => None,
            Choice::Barred => return Err(None),
            Choice::By(settings) => Some(settings),
        },
        // The member that the client has asked has judged it.
        Role::Forward if !snapshot.forward.admits_hit(peer, uri.authority) && !listener.cluster => {
            return Err(None);
        }
        Role::Forward => None,
    };
    let wire = Wire(head.fields);
    let (found, requested) = match by {
        None => {
            let uri = StoredUri::new(uri.realm, uri.authority, uri.path);
            let key = cache.uri_key(uri);
            (cache.look(look, key, &wire, now_ms), Some(key))
        }
        Some(settings) => (found_by(path, settings, uri, &wire), None),
    };
    let Lookup::Found(stored, key) = found else { return Err(requested) };
    if snapshot.routes.intercepts() && stored.status() >= 400 {
        return Err(requested);
    }
    let fresh = hints(&head.fields).is_plain() && stored.is_fresh(now_ms) && !stored.sets_cookie();
    if stored.is_plain() || !fresh {
        return if fresh { Ok(Hit { stored, key, form_of: None }) } else { Err(requested) };
    }
    hit_in_form(path, &uri, head, (stored, key)).ok_or(requested)
}

/// The fast path for a fresh stored response that is not plain: the form for this request, or
/// `None` if it needs an exchange. The request has no condition, no `Range` and no `Cache-Control`.
#[inline(never)]
fn hit_in_form(
    path: &FastPath<'_>,
    uri: &RequestedUri<'_>,
    head: &RequestHead<'_>,
    (stored, key): (Arc<Stored>, Key),
) -> Option<Hit> {
    if stored.place_away().is_some() {
        return None;
    }
    let facts = || Some(facts_of_hit(path, head, uri));
    let codes = || path.snapshot.routes.codes(uri.reading(), facts);
    let wish = Wish::of(path.snapshot, uri.realm.role, codes, (head.method_bytes, head.fields));
    match wish.choose(&stored) {
        Chosen::AsItIs => Some(Hit { stored, key, form_of: None }),
        Chosen::Form(form) => Some(Hit { stored: form, key, form_of: Some(stored) }),
        Chosen::Wanting(coding, meanwhile) => {
            if path.look == Look::Use
                && let Some(rules) = wish.rules
            {
                path.cache.ask_for_form(key, &stored, Target(Some(coding)), rules);
            }
            Some(match meanwhile {
                Some(form) => Hit { stored: form, key, form_of: Some(stored) },
                None => Hit { stored, key, form_of: None },
            })
        }
        Chosen::NotModified(_) | Chosen::Decoding | Chosen::Unreadable => None,
    }
}

/// The facts of a request that is answered in the turn in which it was read.
fn facts_of_hit<'f>(
    path: &FastPath<'f>,
    head: &RequestHead<'f>,
    uri: &RequestedUri<'f>,
) -> Facts<'f> {
    let url = (Some(*uri), head.target);
    Facts {
        client: path.peer.to_canonical(),
        now_s: path.now_ms / 1000,
        ..facts_of_head(path.listener, (head.method_bytes, head.fields), url)
    }
}

/// Looks by the settings of the request's route. Not inline, so that a hit without settings costs
/// what it did without them.
#[inline(never)]
fn found_by(
    path: &FastPath<'_>,
    settings: &KeySettings,
    uri: RequestedUri<'_>,
    request: &Wire<'_>,
) -> Lookup {
    let FastPath { cache, look, now_ms, .. } = *path;
    if settings.bypasses(request.0) {
        return Lookup::Bypassed;
    }
    let mut buffer = PathBuffer::on_stack();
    let Some(stored_path) = settings.path_in(uri.path, &mut buffer) else {
        return Lookup::Bypassed;
    };
    let key = cache.uri_key(StoredUri::new(uri.realm, uri.authority, stored_path));
    cache.look_by_parts(key, &Query { look, parts: settings.parts(), request, now_ms })
}
