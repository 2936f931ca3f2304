//! Routing: the first step of a request, by its head, the access rules and the routes.
//!
//! An exchange takes the step that routing returns. An explanation describes the step, and *peeks*:
//! it counts nothing and marks nothing as used.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use cache::Look;
use cache::key::KeyParts;
use cache::realm::Realm;
use cache::stored::Wire;
use caching::cache_status::Forward;
use config::{DigestServer, Role, SetCookie};
use http1::{RequestHead, Target};
use outcome::Refusal;
use policy::forward::Passwords;
use policy::peers::Allowed;
use policy::reading::Reading;
use transport::Transport;
use transport::proxy_protocol::Ends;
use transport::tls::TlsFacts;
use upstream::group::Group;
use upstream::{Preface, To};

use super::cluster::Share;
use super::course::Course;
use super::destination::Destination;
use super::fetch::hierarchy::{addresses, tls_peer};
use super::fetch::{Forwarding, set_cookie};
use super::step::Step;
use crate::listener::ListenerContext;
use crate::our_digest;
use crate::request::{Class, RequestedUri, has_content, requested_uri};
use crate::snapshot::Peers;
use crate::snapshot::Snapshot;
use crate::worker::Worker;

/// A request and its context: connection, client and configuration.
pub struct RequestContext<'x> {
    /// The core's share of the server.
    pub worker: &'x Rc<Worker>,
    /// The configuration at the start of the request.
    pub snapshot: Rc<Snapshot>,
    /// Where the connection was accepted.
    pub listener: &'x ListenerContext,
    /// The client's address.
    pub peer: SocketAddr,
    /// The address that the client connected to, if a PROXY header said so.
    pub original_destination: Option<SocketAddr>,
    /// The client's connection, if there is one.
    pub stream: Option<&'x Transport>,
    /// The properties of the connection's TLS.
    pub tls: Option<&'x dyn TlsFacts>,
    /// The request came before the end of the handshake, and may be a replay.
    pub is_early: bool,
    /// The request's head.
    pub head: &'x RequestHead<'x>,
    /// Whether the request counts as a use of the stored entries that it finds.
    pub look: Look,
}

/// The results of routing, even if it ended in a refusal.
#[derive(Debug, Default)]
pub(crate) struct Routed {
    /// The user whose password was verified, if one was required.
    pub(crate) user: Option<Arc<[u8]>>,
    /// The index of the route.
    pub(crate) route: Option<usize>,
}

/// Where the destination of a request is kept while its steps refer to it.
pub(crate) type Place<'x> = OnceCell<Destination<'x>>;

impl<'x> RequestContext<'x> {
    /// The class of the request, if its client may use the listener at all.
    pub(crate) async fn admitted(&self, routed: &mut Routed) -> Result<Class, Refusal> {
        let (snapshot, role) = (&self.snapshot, self.listener.role);
        let class = Class::of(self.head, role, &snapshot.via, &snapshot.config.upgrades);
        if self.is_early && !self.may_be_early(&class) {
            return Err(Refusal::TooEarly);
        }
        if role == Role::Forward && class != Class::Purge && !self.listener.cluster {
            routed.user = Box::pin(self.admit()).await?;
        }
        Ok(class)
    }

    /// The first step of an admitted request, or the refusal.
    pub(crate) async fn route<'d>(
        &self,
        class: Class,
        place: &'d Place<'x>,
        routed: &mut Routed,
    ) -> Result<Step<'d>, Refusal> {
        let (snapshot, role) = (&self.snapshot, self.listener.role);
        let (protocols, bypass) = match class {
            Class::Purge => return Ok(Step::Purge),
            Class::Connect => return Ok(Step::Connect),
            Class::Refused(refusal) => return Err(refusal),
            Class::Upgrade(protocols) => (Some(protocols), None),
            Class::Bypass(why) => (None, Some(why)),
            Class::Cacheable => (None, None),
        };
        if let Some(rules) = &snapshot.config.digest
            && our_digest::is_requested(self.head, role, &self.worker.shared.own)
        {
            return self.digest(rules);
        }
        let uri = self.uri()?;
        let RequestedUri { realm, authority, path } = uri;
        let mut stored_path = uri.reading().origin_form();
        let mut sends_key = true;
        let (to, course, stores) = match role {
            Role::Reverse => {
                let chosen = snapshot.routes.find(uri.reading())?;
                routed.route = Some(chosen.at);
                let fields = &self.head.fields;
                if !chosen.is_sole && snapshot.routes.evades(uri.reading(), chosen.at, fields) {
                    return Err(Refusal::Ambiguous);
                }
                let route = snapshot.routes.get(chosen.at).ok_or(Refusal::NoRoute)?;
                if self.is_early && !(route.config.early_data && chosen.is_sole) {
                    return Err(Refusal::TooEarly);
                }
                let Some(group) = snapshot.group_of(route) else {
                    let action = match route.captured(uri.reading()) {
                        Some(captured) => captured.action(&route.config.action),
                        None => route.config.action.clone(),
                    };
                    return Ok(Step::AnswerByRoute(Box::new(action)));
                };
                let preface = Preface::of(group.config.proxy_header, || self.ends());
                let mut stores = route.config.store && chosen.is_sole;
                if let Some(settings) = &route.key {
                    stored_path = snapshot.routes.stored_path(uri.reading());
                    stores = stores && settings.bypassed(self.head.fields).is_none();
                    sends_key = *stored_path == *uri.reading().origin_form()
                        && !settings.sends_key_cookies();
                }
                let key = group.key(realm.scheme, authority, &stored_path);
                let peers =
                    snapshot.peers.as_ref().filter(|_| route.config.peers && chosen.is_sole);
                let course = peers.and_then(|peers| self.beside(peers, realm, authority));
                (To::Group(Arc::clone(group), key, preface), course, stores)
            }
            Role::Forward => match &snapshot.peers {
                None => {
                    let tls = tls_peer(snapshot, realm.scheme, authority)?;
                    let addresses = self.resolve(authority, realm.scheme.port()).await?;
                    (To::Addresses(addresses, tls), None, true)
                }
                Some(peers) => {
                    let (to, course) = Box::pin(self.by_peers(peers, &uri)).await?;
                    (to, course, true)
                }
            },
        };
        let is_keyed = stores && bypass.is_none() && protocols.is_none();
        let cluster = snapshot.cluster.as_ref().filter(|_| is_keyed && !self.is_from_member());
        let uri = (realm, authority);
        let share = cluster.and_then(|cluster| Share::of(cluster, uri, &stored_path));
        let stores_as_sent = stores && sends_key;
        let destination = Destination {
            realm,
            authority,
            path,
            stored_path,
            is_keyed,
            stores_as_sent,
            to,
            course,
            share,
        };
        let to = place.get_or_init(|| destination);
        if let Some(protocols) = protocols {
            return Ok(Step::Upgrade(to, protocols));
        }
        let bypass = if stores { bypass } else { Some(Forward::Bypass) };
        match bypass {
            None => Ok(Step::LookUp(to)),
            Some(_) if caching::only_if_cached(&Wire(self.head.fields)) => {
                Err(Refusal::OnlyIfCached)
            }
            Some(why) => Ok(Step::Pass(to, why, None)),
        }
    }

    /// The answer to another cache that fetches our digest.
    #[cold]
    fn digest<'d>(&self, rules: &DigestServer) -> Result<Step<'d>, Refusal> {
        if !rules.allows(self.peer.ip()) {
            return Err(Refusal::DigestFrom);
        }
        let made = self.worker.shared.digest.get().ok_or(Refusal::DigestNone)?;
        Ok(Step::AnswerWithDigest(made))
    }

    /// Whether the request came from a member of the cluster, so that it is sent to no member.
    fn is_from_member(&self) -> bool {
        self.listener.cluster && !planted::is(planted::Bug::SecondMember)
    }

    /// Whether a replay of the request does no harm, if its route says so (RFC 8470 section 4).
    fn may_be_early(&self, class: &Class) -> bool {
        self.listener.role == Role::Reverse
            && matches!(class, Class::Cacheable | Class::Bypass(_))
            && self.head.method.is_safe()
            && !has_content(self.head)
    }

    /// Whether this client may use the listener at all, and the client's user if one is required.
    async fn admit(&self) -> Result<Option<Arc<[u8]>>, Refusal> {
        let passwords = Passwords {
            known: &self.worker.shared.passwords,
            verifying: &self.worker.verifying,
            remembers: self.look == Look::Use,
        };
        self.snapshot.forward.admit(self.peer.ip(), self.head, passwords).await
    }

    /// The requested URI, or why it is refused.
    pub(crate) fn uri(&self) -> Result<RequestedUri<'x>, Refusal> {
        let ListenerContext { role, scheme, .. } = *self.listener;
        match (requested_uri(self.listener, self.head), role, self.head.target) {
            (Some(uri), ..) => Ok(uri),
            (None, Role::Reverse, Target::Asterisk) => Ok(RequestedUri {
                realm: Realm { role, scheme },
                authority: self.head.host().unwrap_or_default(),
                path: b"*",
            }),
            (None, _, Target::Absolute { .. }) => Err(Refusal::Scheme),
            _ => Err(Refusal::NotAbsolute),
        }
    }

    /// The ends of the client's connection, as a PROXY header gives them to servers.
    fn ends(&self) -> Ends {
        let here = || self.stream.and_then(|stream| stream.local_addr().ok());
        let destination = self.original_destination.or_else(here).unwrap_or(self.listener.address);
        Ends { source: self.peer, destination }
    }

    async fn resolve(
        &self,
        authority: &[u8],
        default_port: u16,
    ) -> Result<Arc<[SocketAddr]>, Refusal> {
        let parsed = http1::parse_authority(authority).map_err(|_| Refusal::Authority)?;
        let port = parsed.port.unwrap_or(default_port);
        self.addresses(parsed.host, port).await
    }

    /// The addresses at which a forward listener's client may reach this port of a host.
    pub(crate) async fn addresses(
        &self,
        host: &[u8],
        port: u16,
    ) -> Result<Arc<[SocketAddr]>, Refusal> {
        let at = (host, port);
        let found = addresses((self.worker, &self.snapshot), self.peer, at, self.head.method).await;
        if self.look == Look::Use && matches!(found, Err(Refusal::Fault(_))) {
            self.worker.io.counters.upstream_errors.add(1);
        }
        found
    }

    /// The path and query of a URI as it is stored.
    pub(crate) fn stored_path<'p>(&self, reading: Reading<'p>) -> Cow<'p, [u8]> {
        match self.listener.role {
            Role::Reverse => self.snapshot.routes.stored_path(reading),
            Role::Forward => reading.origin_form(),
        }
    }

    /// The parts of the request's key besides its URI, by the settings of its route.
    pub(crate) fn key_parts(&self, route: Option<usize>) -> Option<KeyParts<'_>> {
        self.snapshot.routes.get(route?)?.key.as_ref()?.parts()
    }

    /// How responses that set a cookie are stored, by the role of the listener and the route.
    pub(crate) fn set_cookie(&self, route: Option<usize>) -> SetCookie {
        set_cookie(&self.snapshot, self.listener.role, route)
    }

    /// Whether a request continues at the upstream after its client has left.
    pub(crate) fn finishes_abandoned(&self, route: Option<usize>) -> bool {
        match self.listener.role {
            Role::Forward => self.snapshot.config.forward.finish_abandoned,
            Role::Reverse => route
                .and_then(|route| self.snapshot.routes.get(route))
                .is_some_and(|route| route.config.finish_abandoned),
        }
    }

    /// Whether stored cookies go to every client.
    pub(crate) fn shares_cookies(&self, route: Option<usize>) -> bool {
        self.set_cookie(route) == SetCookie::Share
    }

    /// How peers may answer a request to a reverse listener. The parents of such a request are the
    /// servers of its upstream, so only the rules on requests that are always direct apply to it. A
    /// route leads to the same servers whatever the port, and a client can choose the port. A peer
    /// would have stored responses from that port, so peers are queried for the default port only.
    fn beside(&self, peers: &Arc<Peers>, realm: Realm, authority: &[u8]) -> Option<Course> {
        let parsed = http1::parse_authority(authority).ok()?;
        if parsed.port.is_some_and(|port| port != realm.scheme.port()) {
            return None;
        }
        let host = parsed.host;
        let allowed =
            match peers.rules.allowed(std::str::from_utf8(host).ok()?, self.head.method_bytes) {
                Allowed::Direct => Allowed::Direct,
                Allowed::Either | Allowed::Peer => Allowed::Either,
            };
        Some(Course::to_origin(peers, allowed, false))
    }

    /// The destination of a request to a forward listener that has peers.
    async fn by_peers(
        &self,
        peers: &Arc<Peers>,
        uri: &RequestedUri<'_>,
    ) -> Result<(To, Option<Course>), Refusal> {
        let RequestedUri { realm, authority, path } = *uri;
        let parsed = http1::parse_authority(authority).map_err(|_| Refusal::Authority)?;
        let at = (parsed.host, parsed.port.unwrap_or(realm.scheme.port()));
        let (allowed, parents) = self.parents(peers, at)?;
        let Some(parents) = parents else {
            let tls = tls_peer(&self.snapshot, realm.scheme, authority)?;
            let to = To::Addresses(self.addresses(at.0, at.1).await?, tls);
            let course = Course::to_origin(peers, allowed, peers.parents.is_some());
            return Ok((to, Some(course)));
        };
        let key = parents.key(realm.scheme, authority, path);
        let to = To::Group(Arc::clone(parents), key, None);
        let course = Course::to_parents(peers, allowed, &to);
        Ok((to, Some(course)))
    }

    /// The parents that a request for this host and port goes to; `None`: the request goes to its
    /// origin. A parent looks names up, so only addresses are checked here.
    pub(crate) fn parents<'p>(
        &self,
        peers: &'p Peers,
        (host, port): (&[u8], u16),
    ) -> Result<(Allowed, Option<&'p Arc<Group>>), Refusal> {
        let name = std::str::from_utf8(host).map_err(|_| Refusal::Authority)?;
        let allowed = peers.rules.allowed(name, self.head.method_bytes);
        let parents = peers.parents.as_ref().filter(|group| match allowed {
            Allowed::Direct => false,
            Allowed::Either => group.is_usable(),
            Allowed::Peer => !group.is_down(),
        });
        match parents {
            None if allowed == Allowed::Peer => Err(Refusal::NoParent),
            None => Ok((allowed, None)),
            Some(_) => {
                let (rules, shared) = (&self.snapshot.forward, &self.worker.shared);
                let of_process = (&*shared.resolver, &shared.own);
                rules.admits_by_peer((host, port), self.head.method, of_process)?;
                Ok((allowed, parents))
            }
        }
    }

    /// The request, to be forwarded to an origin.
    pub(crate) fn forwarding<'a>(
        &self,
        to: &'a Destination<'a>,
        route: Option<usize>,
    ) -> Forwarding<'a>
    where
        'x: 'a,
    {
        Forwarding {
            worker: self.worker,
            snapshot: Rc::clone(&self.snapshot),
            role: self.listener.role,
            peer: self.peer,
            route,
            head: self.head,
            to,
        }
    }
}
