//! What a request is, by its own head: what it asks for, and what may be done with it at all.
//!
//! [`Class::of`] is the one place that decides this. The fast path of a hit asks it first and goes
//! on with [`Class::Cacheable`] alone; an exchange and an explanation ask the same, so that none of
//! them can disagree. Nothing here looks at what is stored.

use cache::realm::Realm;
use cache::stored::Connection;
use caching::RequestHints;
use caching::cache_status::Forward;
use config::{Protocol, Role};
use http1::{BodyKind, Expectation, Method, Name, RequestHead, Scheme, Target, Version, tokens};
use outcome::Refusal;
use policy::via::ViaNames;

use crate::site::Door;

/// What a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// It purges.
    Purge,
    /// It asks for a tunnel to a host.
    Connect,
    /// Nobody here answers it otherwise.
    Refused(Refusal),
    /// It asks for one of these protocols instead of HTTP, as the value of `Upgrade`.
    Upgrade(Vec<u8>),
    /// The store has no part in it, for this reason.
    Past(Forward),
    /// What is stored decides.
    Cacheable,
}

impl Class {
    /// Of a request to a listener in this role. For most requests it is one match and four tests of
    /// a bit.
    #[inline]
    pub(crate) fn of(
        head: &RequestHead<'_>,
        role: Role,
        via: &ViaNames,
        upgrades: &[Protocol],
    ) -> Class {
        let is_plain = matches!(head.method, Method::Get | Method::Head)
            && matches!(head.body(), BodyKind::None | BodyKind::Length(0))
            && !UNUSUAL.iter().any(|name| head.fields.has(*name));
        if is_plain { Class::Cacheable } else { Class::of_unusual(head, role, via, upgrades) }
    }

    fn of_unusual(
        head: &RequestHead<'_>,
        role: Role,
        via: &ViaNames,
        upgrades: &[Protocol],
    ) -> Class {
        let is_loop = || via.have_seen(head);
        match (head.method, role) {
            (Method::Purge, _) => return Class::Purge,
            (Method::Connect, Role::Forward) if is_loop() => return Class::Refused(Refusal::Loop),
            (Method::Connect, Role::Forward) => return Class::Connect,
            (Method::Connect, Role::Reverse) => return Class::Refused(Refusal::ConnectHere),
            _ => {}
        }
        if role == Role::Forward && is_loop() {
            return Class::Refused(Refusal::Loop);
        }
        if head.expectation() == Expectation::Unknown {
            return Class::Refused(Refusal::Expectation);
        }
        if is_loop() {
            return Class::Refused(Refusal::Loop);
        }
        if max_forwards(head) == Some(0) {
            return Class::Refused(match head.method {
                Method::Options => Refusal::OptionsEnd,
                _ => Refusal::TraceEnd,
            });
        }
        let with_body = !matches!(head.body(), BodyKind::None | BodyKind::Length(0));
        if !with_body && let Some(protocols) = upgrade(head, upgrades) {
            return Class::Upgrade(protocols);
        }
        if !matches!(head.method, Method::Get | Method::Head) {
            return Class::Past(Forward::Method);
        }
        // `If-Match` and `If-Unmodified-Since` are for the origin to judge (RFC 9111, 4.3.2).
        let hints = hints(head);
        let is_for_origin = hints.any(RequestHints::IF_MATCH)
            || hints.any(RequestHints::IF_UNMODIFIED_SINCE)
            || (with_body && !planted::is(planted::Bug::HitLeavesBody));
        if is_for_origin { Class::Past(Forward::Request) } else { Class::Cacheable }
    }
}

/// Fields that a request must not have to be classified by its method and body alone.
const UNUSUAL: [Name; 5] =
    [Name::Via, Name::Upgrade, Name::Expect, Name::IfMatch, Name::IfUnmodifiedSince];

/// The protocols among those that a request asks for which may be passed on, as a field's value;
/// `None` when it is an ordinary request.
fn upgrade(head: &RequestHead<'_>, allowed: &[Protocol]) -> Option<Vec<u8>> {
    if !head.fields.has(Name::Upgrade)
        || head.method != Method::Get
        || head.version != Version::Http11
        || !head.fields.contains_token(Name::Connection, b"upgrade")
    {
        return None;
    }
    let mut value = Vec::new();
    for token in head.fields.all(Name::Upgrade).flat_map(tokens) {
        if allowed.iter().any(|protocol| is_named(token, protocol)) {
            if !value.is_empty() {
                value.extend_from_slice(b", ");
            }
            value.extend_from_slice(token);
        }
    }
    (!value.is_empty()).then_some(value)
}

fn is_named(token: &[u8], protocol: &Protocol) -> bool {
    token.eq_ignore_ascii_case(protocol.as_str().as_bytes())
}

/// Whether the client may ask again on this connection. A forward proxy ignores an HTTP/1.0
/// client's keep-alive: it may be another old proxy's, passed on blindly (RFC 9112, 9.3 and C.2.2).
pub(crate) fn wants_more(role: Role, head: &RequestHead<'_>) -> bool {
    let is_honoured = head.version == Version::Http11 || role == Role::Reverse;
    is_honoured && head.keep_alive()
}

/// How to tell the client what becomes of the connection.
pub(crate) fn connection_of(version: Version, keep: bool) -> Connection {
    match (keep, version) {
        (false, _) => Connection::Close,
        (true, Version::Http10) => Connection::KeepExplicit,
        (true, Version::Http11) => Connection::Keep,
    }
}

/// What a request asks for: the parts of its URI that the key is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'h> {
    pub(crate) realm: Realm,
    pub(crate) authority: &'h [u8],
    pub(crate) path: &'h [u8],
}

/// What a request asks for, or `None` when this listener does not take it so.
#[inline]
pub(crate) fn destination<'h>(door: &Door, head: &RequestHead<'h>) -> Option<Asked<'h>> {
    let role = door.role;
    match (role, head.target) {
        (Role::Reverse, Target::Origin { path_and_query }) => Some(Asked {
            realm: Realm { role, scheme: door.scheme },
            authority: head.host().unwrap_or_default(),
            path: path_and_query,
        }),
        (_, Target::Absolute { scheme, authority, path_and_query }) => {
            let path = if path_and_query.is_empty() { b"/" } else { path_and_query };
            let scheme = Scheme::of(scheme)?;
            // What is asked of a reverse listener came as that URI's scheme says (RFC 9110, 7.4).
            let known = role == Role::Forward || scheme == door.scheme;
            known.then_some(Asked { realm: Realm { role, scheme }, authority, path })
        }
        _ => None,
    }
}

/// Which fields that concern a cache are there, from the head's own index.
#[inline]
pub(crate) fn hints(head: &RequestHead<'_>) -> RequestHints {
    const OF: [(Name, RequestHints); 9] = [
        (Name::CacheControl, RequestHints::DIRECTIVES),
        (Name::Pragma, RequestHints::DIRECTIVES),
        (Name::IfNoneMatch, RequestHints::IF_NONE_MATCH),
        (Name::IfModifiedSince, RequestHints::IF_MODIFIED_SINCE),
        (Name::IfMatch, RequestHints::IF_MATCH),
        (Name::IfUnmodifiedSince, RequestHints::IF_UNMODIFIED_SINCE),
        (Name::Range, RequestHints::RANGE),
        (Name::IfRange, RequestHints::IF_RANGE),
        (Name::Authorization, RequestHints::AUTHORIZATION),
    ];
    let mut hints = RequestHints::default();
    for (name, hint) in OF {
        if head.fields.has(name) {
            hints.add(hint);
        }
    }
    hints
}

/// How many more proxies may pass an OPTIONS or TRACE on (RFC 9110, 7.6.2).
/// It means nothing to other methods.
pub(crate) fn max_forwards(head: &RequestHead<'_>) -> Option<u64> {
    if !matches!(head.method, Method::Options | Method::Trace) {
        return None;
    }
    std::str::from_utf8(head.fields.get(Name::MaxForwards)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use http1::{Limits, Scratch, parse_request};

    use super::*;

    fn read(method: &str, version: &str, fields: &str) -> Option<String> {
        let bytes = format!("{method} / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        let (mut scratch, limits) = (Scratch::new(), Limits::default());
        let head = parse_request(bytes.as_bytes(), &mut scratch, &limits).unwrap().unwrap();
        let allowed = ["websocket".parse().unwrap(), "tls/1.0".parse().unwrap()];
        upgrade(&head, &allowed).map(|value| String::from_utf8(value).unwrap())
    }

    #[test]
    fn only_what_is_allowed_by_name_is_asked_for() {
        let upgrade =
            |what: &str| format!("Connection: keep-alive, Upgrade\r\nUpgrade: {what}\r\n");
        let get = |what: &str| read("GET", "1.1", &upgrade(what));
        assert_eq!(get("WebSocket").as_deref(), Some("WebSocket"));
        assert_eq!(get("h2c, websocket, other").as_deref(), Some("websocket"));
        assert_eq!(get("TLS/1.0, websocket").as_deref(), Some("TLS/1.0, websocket"));
        for what in ["h2c", "websocket/13", "web socket", ","] {
            assert_eq!(get(what), None, "{what}");
        }
        assert_eq!(read("POST", "1.1", &upgrade("websocket")), None);
        assert_eq!(read("GET", "1.0", &upgrade("websocket")), None);
        assert_eq!(read("GET", "1.1", "Upgrade: websocket\r\n"), None, "Connection does not say");
        assert_eq!(read("GET", "1.1", "Connection: Upgrade\r\n"), None);
    }
}
