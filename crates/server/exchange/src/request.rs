//! The classifier: what a request asks for, and whether the store may answer it, by its head alone.
//!
//! [`Class::of`] is the only place that decides this. It is the first stage of the fast path of a
//! hit, which goes on with [`Class::Cacheable`] only, of an exchange and of an explanation, so that
//! they cannot disagree. Nothing here looks into the store.

use cache::realm::Realm;
use caching::RequestHints;
use caching::cache_status::Forward;
use config::{Protocol, Role};
use http1::{BodyKind, Expectation, Method, Name, RequestHead, Scheme, Target, Version, tokens};
use outcome::Refusal;
use policy::reading::Reading;
use policy::via::ViaNames;
use upstream::BodyLength;

use crate::listener::ListenerContext;

/// The class of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// A purge.
    Purge,
    /// A tunnel to a host.
    Connect,
    /// Refused whatever the configuration and the store say.
    Refused(Refusal),
    /// An upgrade to one of these protocols, as the value of `Upgrade`.
    Upgrade(Vec<u8>),
    /// The store must not answer it, for this reason.
    Bypass(Forward),
    /// The store may answer it.
    Cacheable,
}

impl Class {
    /// Classifies a request to a listener in this role. Most requests take one match and a few bit
    /// tests.
    #[inline]
    pub(crate) fn of(
        head: &RequestHead<'_>,
        role: Role,
        via: &ViaNames,
        upgrades: &[Protocol],
    ) -> Class {
        let is_plain = matches!(head.method, Method::Get | Method::Head)
            && !has_content(head)
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
        let with_body = has_content(head);
        if !with_body && let Some(protocols) = upgrade(head, upgrades) {
            return Class::Upgrade(protocols);
        }
        // Any other answer of a server to an extended CONNECT would look like a tunnel.
        if head.version.has_streams() && head.fields.has(Name::Upgrade) {
            return Class::Refused(Refusal::Protocol);
        }
        if !matches!(head.method, Method::Get | Method::Head) {
            return Class::Bypass(Forward::Method);
        }
        // Only the origin can evaluate `If-Match` and `If-Unmodified-Since` (RFC 9111, 4.3.2).
        let hints = hints(head);
        let is_for_origin = hints.any(RequestHints::IF_MATCH)
            || hints.any(RequestHints::IF_UNMODIFIED_SINCE)
            || (with_body && !planted::is(planted::Bug::HitLeavesBody));
        if is_for_origin { Class::Bypass(Forward::Request) } else { Class::Cacheable }
    }
}

/// A request without any of these fields is classified by its method and body alone.
const UNUSUAL: [Name; 5] =
    [Name::Via, Name::Upgrade, Name::Expect, Name::IfMatch, Name::IfUnmodifiedSince];

/// The length of a request's body, as its head announces it.
pub fn body_length(head: &RequestHead<'_>) -> BodyLength {
    match head.body() {
        BodyKind::None => BodyLength::None,
        BodyKind::Length(length) => BodyLength::Known(length),
        BodyKind::Chunked | BodyKind::UntilClose => BodyLength::Unknown,
    }
}

/// Whether the client is sent trailers. Over HTTP/1 it has to say so (RFC 9110, 6.5.1), because
/// many clients drop them and some stumble.
pub(crate) fn accepts_trailers(head: &RequestHead<'_>) -> bool {
    head.version.has_streams() || says_trailers(head)
}

/// Whether the client says that it does not drop trailers (RFC 9110, 10.1.4).
pub(crate) fn says_trailers(head: &RequestHead<'_>) -> bool {
    let has = |option: &[u8]| tokens(option).any(|token| token.eq_ignore_ascii_case(b"trailers"));
    head.fields.has(Name::Te) && head.fields.all(Name::Te).any(has)
}

/// Whether a request has a body with content.
#[inline]
pub(crate) fn has_content(head: &RequestHead<'_>) -> bool {
    !matches!(head.body(), BodyKind::None | BodyKind::Length(0))
}

/// The requested protocols that may be passed on, as a field's value; `None` for an ordinary
/// request. Over HTTP/2 and HTTP/3 it is an extended CONNECT, and WebSocket is the only protocol
/// for which it means the same as an upgrade (RFC 8441, RFC 9220).
fn upgrade(head: &RequestHead<'_>, allowed: &[Protocol]) -> Option<Vec<u8>> {
    if !head.fields.has(Name::Upgrade)
        || head.method != Method::Get
        || head.version == Version::Http10
        || (head.version.has_streams() && !is_websocket(head))
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

fn is_websocket(head: &RequestHead<'_>) -> bool {
    head.fields.get(Name::Upgrade).is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"))
}

fn is_named(token: &[u8], protocol: &Protocol) -> bool {
    token.eq_ignore_ascii_case(protocol.as_str().as_bytes())
}

/// The parts of a requested URI that make its cache key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestedUri<'h> {
    pub(crate) realm: Realm,
    pub(crate) authority: &'h [u8],
    pub(crate) path: &'h [u8],
}

impl<'h> RequestedUri<'h> {
    /// As rules take it.
    #[inline]
    pub(crate) fn reading(&self) -> Reading<'h> {
        Reading::of(self.authority, self.path)
    }
}

/// The requested URI, or `None` if this listener does not accept the target in this form.
#[inline]
pub(crate) fn requested_uri<'h>(
    listener: &ListenerContext,
    head: &RequestHead<'h>,
) -> Option<RequestedUri<'h>> {
    let role = listener.role;
    match (role, head.target) {
        (Role::Reverse, Target::Origin { path_and_query }) => Some(RequestedUri {
            realm: Realm { role, scheme: listener.scheme },
            authority: head.host().unwrap_or_default(),
            path: path_and_query,
        }),
        (_, Target::Absolute { scheme, authority, path_and_query }) => {
            let path = if path_and_query.is_empty() { b"/" } else { path_and_query };
            let scheme = Scheme::of(scheme)?;
            // A reverse listener answers only for the scheme that it speaks (RFC 9110, 7.4), and a
            // member for that of the client.
            let is_served = role == Role::Forward || scheme == listener.scheme || listener.cluster;
            is_served.then_some(RequestedUri { realm: Realm { role, scheme }, authority, path })
        }
        _ => None,
    }
}

/// Which of the fields that matter to a cache are present, by the index of the head.
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

/// How many more proxies may pass on an OPTIONS or TRACE (RFC 9110, 7.6.2). Other methods ignore
/// it.
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
        // A request over HTTP/2 or HTTP/3 is held as a head of HTTP/1.1.
        let over = match version {
            "2.0" => Some(Version::Http2),
            "3.0" => Some(Version::Http3),
            _ => None,
        };
        let version = if over.is_some() { "1.1" } else { version };
        let bytes = format!("{method} / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        let (mut scratch, limits) = (Scratch::new(), Limits::default());
        let head = parse_request(bytes.as_bytes(), &mut scratch, &limits).unwrap().unwrap();
        let head = if let Some(version) = over { head.over(version) } else { head };
        let allowed = ["websocket".parse().unwrap(), "tls/1.0".parse().unwrap()];
        upgrade(&head, &allowed).map(|value| String::from_utf8(value).unwrap())
    }

    #[test]
    fn only_allowed_protocols_are_passed_on() {
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
        for version in ["2.0", "3.0"] {
            assert_eq!(read("GET", version, &upgrade("websocket")).as_deref(), Some("websocket"));
            assert_eq!(read("GET", version, &upgrade("tls/1.0")), None);
            assert_eq!(read("GET", version, &upgrade("websocket, tls/1.0")), None);
        }
        assert_eq!(
            read("GET", "1.1", "Upgrade: websocket\r\n"),
            None,
            "Connection does not list it"
        );
        assert_eq!(read("GET", "1.1", "Connection: Upgrade\r\n"), None);
    }
}
