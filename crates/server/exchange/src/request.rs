//! One request: its head, who sent it, the configuration that it began with, and where it goes.
//!
//! A [`Request`] owns all of this and borrows nothing from its connection. Each step of an exchange
//! reads it; only routing ([`crate::routing`]) changes it. A fetch that outlives its client, such
//! as a revalidation in the background, takes a clone of the request.
//!
//! [`Class::of`] is the only function that decides, by the head of a request alone, what the
//! request asks for and whether the store may answer it. The fast path of a hit, an exchange and an
//! explanation all begin with this function, so that they cannot disagree. The fast path goes on
//! with [`Class::Cacheable`] only. Nothing in this module looks into the store.

use std::borrow::Cow;
use std::cell::Cell;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use cache::Look;
use cache::key::{KeyParts, KeySettings, StoredUri};
use cache::realm::Realm;
use cache::stored::Wire;
use caching::RequestHints;
use caching::cache_status::Forward;
use config::{PeerKind, Protocol, Role, SetCookie};
use http1::{
    BodyKind, Expectation, Fields, Method, Name, OwnedRequest, RequestHead, Scheme, Target,
    Version, tokens,
};
use outcome::{Hierarchy, Refusal};
use policy::guards::Guarded;
use policy::peers::{Allowed, code};
use policy::reading::Reading;
use policy::routes::{Chosen, Route};
use policy::rules::RuleSet;
use policy::via::ViaNames;
use store::Key;
use upstream::{BodyLength, To};

use crate::cluster::{Share, Used};
use crate::listener::ListenerContext;
use crate::seen::{self, Seen, given_id};
use crate::snapshot::{Peers, Snapshot};
use crate::worker::Worker;

/// One request.
#[derive(Clone)]
pub struct Request {
    /// The core's share of the server.
    pub worker: Rc<Worker>,
    /// The configuration at the start of the request.
    pub snapshot: Rc<Snapshot>,
    /// Where the request came in.
    pub listener: Rc<ListenerContext>,
    /// The client's address.
    pub peer: SocketAddr,
    /// Whether the request counts as a use of the stored entries that it finds.
    pub look: Look,
    owned_head: Rc<OwnedRequest>,
    /// The key of the requested URI, once it was made.
    pub(crate) requested_key: Cell<RequestedKey>,
    /// A number that no other request has, if one is needed.
    pub(crate) id: Option<u128>,
    /// What its guards have said.
    pub(crate) guarded: Option<Box<Guarded>>,
    /// The user whose password was verified, if one was required.
    pub(crate) user: Option<Arc<[u8]>>,
    /// The route and the rules, from routing on.
    pub(crate) chosen: Option<Chosen>,
    /// The rules that hold for the response, once it has come.
    pub(crate) late: Cell<RuleSet>,
    /// What conditions and texts need besides the head.
    pub(crate) seen: Option<Rc<Seen>>,
    /// Where the request goes, if routing sends it anywhere.
    pub(crate) destination: Option<Destination>,
}

/// The key of the URI that the head of a request asks for, if it was made before.
pub type RequestedKey = Option<Key>;

/// Where a request goes.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub(crate) realm: Realm,
    head: Rc<OwnedRequest>,
    /// Where the authority of the requested URI is in the head.
    authority: Range<usize>,
    /// Where path and query are, as requested; `None`: they are `/`, because the head has none.
    path: Option<Range<usize>>,
    /// Path and query as they are stored by the settings of the route, if that is not as requested.
    stored_path: Option<Box<[u8]>>,
    /// Whether the store may answer the request. Then the upstream gets what is in the key: a
    /// stored response must not depend on anything else that the settings have dropped.
    pub(crate) is_keyed: bool,
    /// Whether the response to a request that is sent as it came may be stored: nothing of the
    /// request is missing in its key.
    pub(crate) stores_as_sent: bool,
    /// The path that the upstream gets, if a rule rewrites it.
    pub(crate) rewritten: Option<Box<[u8]>>,
    pub(crate) to: To,
    /// How it may be answered by peers; `None`: by none.
    pub(crate) course: Option<Course>,
    /// How it may be answered by other members of the cluster; `None`: by none.
    pub(crate) share: Option<Share>,
}

impl Request {
    /// A request with this head that came to a core by this listener. It is large, and inlined so
    /// that it is made where it stays.
    #[inline(always)]
    pub fn new(
        worker: &Rc<Worker>,
        listener: &Rc<ListenerContext>,
        peer: SocketAddr,
        head: Rc<OwnedRequest>,
    ) -> Request {
        let snapshot = worker.snapshot();
        // The log or an upstream gets it.
        let has_id = snapshot.config.request_id.is_some() || worker.io.log.names_ids();
        let id = has_id.then(|| seen::draw(&worker.cache.hasher, peer));
        Request {
            worker: Rc::clone(worker),
            snapshot,
            listener: Rc::clone(listener),
            peer,
            look: Look::Use,
            owned_head: head,
            requested_key: Cell::default(),
            id,
            guarded: None,
            user: None,
            chosen: None,
            late: Cell::default(),
            seen: None,
            destination: None,
        }
    }

    /// The key of the URI as it is stored. If that is the requested URI, the key is made once.
    pub(crate) fn uri_key(&self) -> Key {
        let (to, cache) = (self.to(), &self.worker.cache);
        if to.stored_path.is_some() {
            return cache.uri_key(to.uri());
        }
        let key = self.requested_key.get().unwrap_or_else(|| cache.uri_key(to.uri()));
        debug_assert_eq!(key, cache.uri_key(to.uri()), "a destination has the requested URI");
        self.requested_key.set(Some(key));
        key
    }

    /// The number that the request came with, if it is taken over; otherwise empty.
    pub(crate) fn given_id(&self) -> &[u8] {
        given_id(self.snapshot.config.request_id.as_ref(), &self.listener, &self.fields())
    }

    /// The class of the request.
    #[inline]
    pub(crate) fn class(&self) -> Class {
        let (snapshot, owned) = (&self.snapshot, &self.owned_head);
        match is_plain(owned.method(), owned.body(), &owned.fields()) {
            true => Class::Cacheable,
            false => {
                let upgrades = &snapshot.config.upgrades;
                Class::of_unusual(&self.head(), self.role(), &snapshot.via, upgrades)
            }
        }
    }

    /// The head. Where only its fields or its method are needed, [`Request::fields`] and
    /// [`Request::method`] cost less.
    pub(crate) fn head(&self) -> RequestHead<'_> {
        self.owned_head.head()
    }

    /// The head, for its destination.
    pub(crate) fn owned_head(&self) -> &Rc<OwnedRequest> {
        &self.owned_head
    }

    /// The head, to be changed before the request has a destination.
    pub(crate) fn owned_head_mut(&mut self) -> &mut Rc<OwnedRequest> {
        debug_assert!(self.destination.is_none(), "a destination has ranges of its head");
        self.requested_key.set(None);
        &mut self.owned_head
    }

    #[inline]
    pub(crate) fn fields(&self) -> Fields<'_> {
        self.owned_head.fields()
    }

    /// The fields, for the caching rules.
    #[inline]
    pub(crate) fn wire(&self) -> Wire<'_> {
        Wire(self.fields())
    }

    #[inline]
    pub(crate) fn method(&self) -> Method {
        self.owned_head.method()
    }

    #[inline]
    pub(crate) fn method_bytes(&self) -> &[u8] {
        self.owned_head.method_bytes()
    }

    #[inline]
    pub(crate) fn target(&self) -> Target<'_> {
        self.owned_head.target()
    }

    #[inline]
    pub(crate) fn version(&self) -> Version {
        self.owned_head.version()
    }

    #[inline]
    pub(crate) fn role(&self) -> Role {
        self.listener.role
    }

    /// The request for the caching rules; `fields` is [`Request::wire`].
    #[inline]
    pub(crate) fn asked<'a>(&'a self, fields: &'a Wire<'a>) -> caching::Request<'a, Wire<'a>> {
        caching::Request { method: self.method_bytes(), fields }
    }

    /// The requested URI, or `None` if the listener does not accept the target in this form.
    #[inline]
    pub(crate) fn requested_uri(&self) -> Option<RequestedUri<'_>> {
        requested_uri(&self.listener, self.target(), self.fields())
    }

    /// Where the request goes. Only steps that follow a route ask for it.
    #[inline]
    pub(crate) fn to(&self) -> &Destination {
        self.destination.as_ref().expect("a step that needs a destination comes after routing")
    }

    /// The route that the request takes.
    #[inline]
    pub(crate) fn taken_route(&self) -> Option<&Route> {
        self.snapshot.routes.get(self.chosen?.at?)
    }

    /// The settings of the route for keys.
    #[inline]
    pub(crate) fn settings(&self) -> Option<&KeySettings> {
        self.taken_route()?.key.as_ref()
    }

    /// The parts of the request's key besides its URI, by the settings of its route.
    #[inline]
    pub(crate) fn key_parts(&self) -> Option<KeyParts<'_>> {
        self.settings()?.parts()
    }

    /// All paths and queries under which a URI may be stored.
    pub(crate) fn stored_paths<'p>(&self, reading: Reading<'p>) -> Vec<Cow<'p, [u8]>> {
        match self.role() {
            Role::Reverse => self.snapshot.routes.stored_paths(reading),
            Role::Forward => vec![reading.origin_form()],
        }
    }

    /// What becomes of responses that set a cookie. Forward listeners fetch for many users, and no
    /// operator knows their sites, so the cookie goes to the user whose request drew it.
    pub(crate) fn set_cookie(&self) -> SetCookie {
        let of_route = || self.taken_route()?.config.set_cookie;
        match self.role() {
            Role::Reverse => of_route().unwrap_or(self.snapshot.config.set_cookie),
            Role::Forward => SetCookie::Strip,
        }
    }

    /// Whether stored cookies go to every client.
    pub(crate) fn shares_cookies(&self) -> bool {
        self.set_cookie() == SetCookie::Share
    }

    /// Whether clients see the fields that carry cache tags.
    pub(crate) fn shows_tags(&self) -> bool {
        self.snapshot.tags_to_clients(self.role())
    }

    /// Whether the request continues at the upstream after its client has left.
    pub(crate) fn finishes_abandoned(&self) -> bool {
        match self.role() {
            Role::Forward => self.snapshot.config.forward.finish_abandoned,
            Role::Reverse => self.taken_route().is_some_and(|route| route.config.finish_abandoned),
        }
    }
}

impl Destination {
    /// The destination of a request with this head and URI, whose path is stored like this. No
    /// store answers the request, until routing says so.
    #[inline]
    pub(crate) fn new(
        head: &Rc<OwnedRequest>,
        requested: &RequestedUri<'_>,
        stored_path: &[u8],
        to: To,
    ) -> Destination {
        let RequestedUri { realm, authority, path } = *requested;
        debug_assert!(!stored_path.is_empty(), "a stored path begins with a slash");
        let stored_path = (stored_path != path).then(|| stored_path.into());
        let (authority, range) = (head.range_of(authority), head.range_of(path));
        assert!(range.is_some() || path == b"/", "a path is in the head, or is that of the root");
        let destination = Destination {
            realm,
            head: Rc::clone(head),
            authority: authority.unwrap_or_default(),
            path: range,
            stored_path,
            is_keyed: false,
            stores_as_sent: false,
            rewritten: None,
            to,
            course: None,
            share: None,
        };
        debug_assert_eq!(destination.authority(), requested.authority);
        destination
    }

    /// The authority of the requested URI.
    #[inline]
    pub(crate) fn authority(&self) -> &[u8] {
        self.head.part(&self.authority)
    }

    /// Path and query as requested.
    #[inline]
    pub(crate) fn path(&self) -> &[u8] {
        self.path.as_ref().map_or(b"/", |path| self.head.part(path))
    }

    /// Path and query as they are stored, by the settings of the route.
    #[inline]
    pub(crate) fn stored_path(&self) -> &[u8] {
        self.stored_path.as_deref().unwrap_or_else(|| self.path())
    }

    /// The URI as it is stored. Everything that refers to stored responses uses this one.
    pub(crate) fn uri(&self) -> StoredUri<'_> {
        StoredUri::new(self.realm, self.authority(), self.stored_path())
    }

    /// The request as rules take it.
    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading::of(self.authority(), self.path())
    }

    /// The path and query that the upstream gets instead of the requested ones.
    pub(crate) fn path_sent(&self) -> Option<Cow<'_, [u8]>> {
        let stored = self.stored_path.as_deref().filter(|_| self.is_keyed);
        match &self.rewritten {
            None => stored.map(Cow::Borrowed),
            Some(path) => {
                let whole = stored.unwrap_or_else(|| self.path());
                let query = memchr::memchr(b'?', whole).map_or(&b""[..], |at| &whole[at..]);
                Some(Cow::Owned([path, query].concat()))
            }
        }
    }

    /// The `Host` that the upstream gets.
    pub(crate) fn host(&self) -> &[u8] {
        match &self.to {
            To::Group(group, ..) => group.host(self.authority()),
            To::Addresses(..) => self.authority(),
        }
    }

    /// What the server of the response was.
    pub(crate) fn hierarchy(&self) -> Hierarchy {
        let of_member = self.share.as_ref().and_then(Share::hierarchy);
        let of_peers = || self.course.as_ref().map(|course| course.used.get());
        of_member.or_else(of_peers).unwrap_or(Hierarchy::Direct)
    }

    /// Whether another member of the cluster has answered.
    pub(crate) fn is_from_member(&self) -> bool {
        self.share.as_ref().is_some_and(|share| share.used.get() == Used::Member)
    }
}

/// How a request may be answered by peers, and by which it was.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    /// Those that are asked.
    pub(crate) peers: Arc<Peers>,
    /// The destination is the group of parents.
    pub(crate) to_parents: bool,
    /// What the rules allow.
    pub(crate) allowed: Allowed,
    /// The rule in words.
    pub(crate) rule: &'static str,
    /// What the log says of the server of the response.
    pub(crate) used: Cell<Hierarchy>,
}

impl Course {
    /// For a request that goes to these parents.
    pub(crate) fn to_parents(peers: &Arc<Peers>, allowed: Allowed, parents: &To) -> Course {
        let used = Cell::new(used(parents));
        let rule = allowed.text(true);
        Course { peers: Arc::clone(peers), to_parents: true, allowed, rule, used }
    }

    /// For a request that goes to its origin, unless a peer that may be asked has the response.
    /// `parents`: it could go to a parent at another time.
    pub(crate) fn to_origin(peers: &Arc<Peers>, allowed: Allowed, parents: bool) -> Course {
        let rule = allowed.text(parents);
        let used = Cell::default();
        Course { peers: Arc::clone(peers), to_parents: false, allowed, rule, used }
    }

    /// The request is sent to this destination, whatever was tried before.
    pub(crate) fn begin(&self, to: &To) {
        self.used.set(if self.to_parents { used(to) } else { Hierarchy::Direct });
    }

    /// Whether all peers have seen the request because there is one, a parent, which passed it on.
    pub(crate) fn is_by_only_peer(&self) -> bool {
        let siblings = self.peers.asked.iter().any(|peer| peer.kind == PeerKind::Sibling);
        self.used.get() == Hierarchy::FirstUpParent && !siblings
    }
}

/// What the log says of such a destination.
pub(crate) fn used(to: &To) -> Hierarchy {
    match to {
        To::Group(parents, ..) => code(&parents.config),
        To::Addresses(..) => Hierarchy::Direct,
    }
}

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
        match is_plain(head.method, head.body(), &head.fields) {
            true => Class::Cacheable,
            false => Class::of_unusual(head, role, via, upgrades),
        }
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
        if max_forwards(head.method, &head.fields) == Some(0) {
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
        let hints = hints(&head.fields);
        let is_for_origin = hints.any(RequestHints::IF_MATCH)
            || hints.any(RequestHints::IF_UNMODIFIED_SINCE)
            || (with_body && !planted::is(planted::Bug::HitLeavesBody));
        if is_for_origin { Class::Bypass(Forward::Request) } else { Class::Cacheable }
    }
}

/// Whether a request needs no further look to be [`Class::Cacheable`].
#[inline]
fn is_plain(method: Method, body: BodyKind, fields: &Fields<'_>) -> bool {
    matches!(method, Method::Get | Method::Head)
        && !is_content(body)
        && !UNUSUAL.iter().any(|name| fields.has(*name))
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
pub(crate) fn accepts_trailers(version: Version, fields: &Fields<'_>) -> bool {
    version.has_streams() || says_trailers(fields)
}

/// Whether the client says that it does not drop trailers (RFC 9110, 10.1.4).
pub(crate) fn says_trailers(fields: &Fields<'_>) -> bool {
    let has = |option: &[u8]| tokens(option).any(|token| token.eq_ignore_ascii_case(b"trailers"));
    fields.has(Name::Te) && fields.all(Name::Te).any(has)
}

/// Whether a request has a body with content.
#[inline]
pub(crate) fn has_content(head: &RequestHead<'_>) -> bool {
    is_content(head.body())
}

#[inline]
fn is_content(body: BodyKind) -> bool {
    !matches!(body, BodyKind::None | BodyKind::Length(0))
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
#[inline(always)]
pub(crate) fn requested_uri<'h>(
    listener: &ListenerContext,
    target: Target<'h>,
    fields: Fields<'h>,
) -> Option<RequestedUri<'h>> {
    match (listener.role, target) {
        (role @ Role::Reverse, Target::Origin { path_and_query }) if !listener.is_of_front => {
            Some(RequestedUri {
                realm: Realm { role, scheme: listener.scheme },
                authority: fields.get(Name::Host).unwrap_or_default(),
                path: path_and_query,
            })
        }
        _ => other_uri(listener, target, fields),
    }
}

/// The same for targets in another form, and behind a trusted proxy.
fn other_uri<'h>(
    listener: &ListenerContext,
    target: Target<'h>,
    fields: Fields<'h>,
) -> Option<RequestedUri<'h>> {
    let role = listener.role;
    match (role, target) {
        (Role::Reverse, Target::Origin { path_and_query }) => Some(RequestedUri {
            realm: Realm { role, scheme: listener.scheme_of(&fields) },
            authority: listener.host_of(&fields),
            path: path_and_query,
        }),
        (_, Target::Absolute { scheme, authority, path_and_query }) => {
            let path = if path_and_query.is_empty() { b"/" } else { path_and_query };
            let scheme = Scheme::of(scheme)?;
            // A reverse listener answers only for the scheme that it speaks (RFC 9110, 7.4), and a
            // member for that of the client.
            let is_served =
                role == Role::Forward || listener.cluster || scheme == listener.scheme_of(&fields);
            is_served.then_some(RequestedUri { realm: Realm { role, scheme }, authority, path })
        }
        _ => None,
    }
}

/// Which of the fields that matter to a cache are present, by the index of the head.
#[inline]
pub(crate) fn hints(fields: &Fields<'_>) -> RequestHints {
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
        if fields.has(name) {
            hints.add(hint);
        }
    }
    hints
}

/// How many more proxies may pass on an OPTIONS or TRACE (RFC 9110, 7.6.2). Other methods ignore
/// it.
pub(crate) fn max_forwards(method: Method, fields: &Fields<'_>) -> Option<u64> {
    if !matches!(method, Method::Options | Method::Trace) {
        return None;
    }
    std::str::from_utf8(fields.get(Name::MaxForwards)?).ok()?.parse().ok()
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
