//! Routing: the first step of a request, by its head, the access rules and the routes.
//!
//! An exchange takes the step that routing returns. An explanation describes the step, and *peeks*:
//! it counts nothing and marks nothing as used.

use std::net::SocketAddr;
use std::sync::Arc;

use cache::Look;
use cache::realm::Realm;
use caching::cache_status::Forward;
use config::{Action, DigestServer, Role};
use http1::{Method, Name, Target};
use outcome::Refusal;
use policy::forward::Passwords;
use policy::peers::Allowed;
use policy::reading::Reading;
use runtime::net::unix_path;
use transport::Transport;
use transport::proxy_protocol::Ends;
use transport::tls::TlsFacts;
use upstream::group::Group;
use upstream::{Choice, Preface, To};

use crate::cluster::Share;
use crate::fetch::hierarchy::{addresses, tls_peer};
use crate::request::{Class, Course, Destination, Request, RequestedUri, has_content};
use crate::shared;
use crate::snapshot::Peers;
use crate::step::Step;

/// The client's connection, as far as it matters to a request.
#[derive(Clone, Copy, Default)]
pub struct ClientConnection<'x> {
    /// The address that the client connected to, if a PROXY header said so.
    pub original_destination: Option<SocketAddr>,
    /// The connection, if one stream of bytes is one.
    pub stream: Option<&'x Transport>,
    /// The properties of its TLS.
    pub tls: Option<&'x dyn TlsFacts>,
    /// The request came before the end of the handshake, and may be a replay.
    pub is_early: bool,
}

impl Request {
    /// The class of the request, if its client may use the listener at all.
    pub(crate) async fn admitted(
        &mut self,
        connection: &ClientConnection<'_>,
    ) -> Result<Class, Refusal> {
        let class = self.class();
        if connection.is_early && !self.may_be_early(&class) {
            return Err(Refusal::TooEarly);
        }
        if self.asks_for_pac() && self.snapshot.forward.pac(self.peer.ip())?.is_some() {
            return Ok(class);
        }
        if self.role() == Role::Forward && class != Class::Purge && !self.listener.cluster {
            self.user = Box::pin(self.admit()).await?;
            if self.snapshot.forward.has_condition() {
                self.denies_when()?;
            }
        }
        Ok(class)
    }

    /// The first step after a route was taken: a file is looked for first.
    #[inline]
    pub(crate) fn after_files(&self, step: Result<Step, Refusal>) -> Result<Step, Refusal> {
        match self.files() {
            None => step,
            Some(_) => Ok(Step::LookForFile(Box::new(step.unwrap_or_else(Step::Refuse)))),
        }
    }

    /// The files that may answer the request.
    pub(crate) fn files(&self) -> Option<&config::Files> {
        let files = self.snapshot.routes.files(self.chosen.as_ref()?)?;
        let is_read = matches!(self.method(), Method::Get | Method::Head);
        // The member that the client has asked has looked for a file.
        (is_read && !self.listener.cluster && !self.fields().has(Name::Upgrade)).then_some(files)
    }

    /// The first step of an admitted request if no file is there, or the refusal. A step that asks
    /// the store or an upstream leaves the destination in the request. [`Request::after_files`]
    /// must follow.
    pub(crate) async fn route(
        &mut self,
        class: Class,
        connection: &ClientConnection<'_>,
    ) -> Result<Step, Refusal> {
        let (protocols, bypass) = match class {
            Class::Purge => return Ok(Step::Purge),
            Class::Connect => return Ok(Step::Connect),
            Class::Refused(refusal) => return Err(refusal),
            Class::Upgrade(protocols) => (Some(protocols), None),
            Class::Bypass(why) => (None, Some(why)),
            Class::Cacheable => (None, None),
        };
        if let Some(rules) = &self.snapshot.config.digest
            && shared::is_requested(&self.head(), self.role(), &self.worker.shared.own)
        {
            return self.digest(rules);
        }
        if self.asks_for_pac()
            && let Some(script) = self.snapshot.forward.pac(self.peer.ip())?
        {
            let (status, body) = (200, script.to_owned());
            return Ok(Step::AnswerByRoute(Box::new(Action::Answer { status, body })));
        }
        match self.role() {
            Role::Reverse => {
                // The member that the client has asked has judged its guards.
                if self.snapshot.routes.has_guards() && !self.listener.cluster {
                    Box::pin(self.guard(connection)).await?;
                }
                if let Some(action) = self.by_route(connection)? {
                    return Ok(Step::AnswerByRoute(action));
                }
            }
            Role::Forward => self.by_name().await?,
        }
        let stores = self.to().is_keyed;
        let is_keyed = stores && bypass.is_none() && protocols.is_none();
        let share = match &self.snapshot.cluster {
            Some(cluster) if is_keyed && !self.is_from_member() => {
                let to = self.to();
                Share::of(cluster, (to.realm, to.authority()), to.stored_path())
            }
            _ => None,
        };
        if let Some(destination) = &mut self.destination {
            (destination.is_keyed, destination.share) = (is_keyed, share);
        }
        if let Some(protocols) = protocols {
            return Ok(Step::Upgrade(protocols));
        }
        let bypass = if stores { bypass } else { Some(Forward::Bypass) };
        match bypass {
            None => Ok(Step::LookUp),
            Some(_) if caching::only_if_cached(&self.wire()) => Err(Refusal::OnlyIfCached),
            Some(why) => Ok(Step::Pass(why, None)),
        }
    }

    /// Routes a request to a reverse listener: to the servers of its route, whose store it uses if
    /// [`Destination::is_keyed`], or to the answer that the route gives.
    fn by_route(
        &mut self,
        connection: &ClientConnection<'_>,
    ) -> Result<Option<Box<Action>>, Refusal> {
        self.see(connection.tls);
        let (snapshot, uri, fields) = (&self.snapshot, self.uri()?, self.fields());
        let (routes, reading) = (&snapshot.routes, uri.reading());
        let facts = routes.is_conditional().then(|| self.facts());
        let choice = routes.find(reading, facts.as_ref())?;
        if !choice.is_sole && routes.evades(reading, &choice, facts.as_ref(), &fields) {
            return Err(Refusal::Ambiguous);
        }
        if !self.is_judged(reading, &choice, facts.as_ref()) {
            return Err(Refusal::Ambiguous);
        }
        let route = choice.at.and_then(|at| routes.get(at));
        let takes_early = choice.is_sole && route.is_some_and(|route| route.config.early_data);
        if connection.is_early && !takes_early {
            return Err(Refusal::TooEarly);
        }
        let Some(group) = snapshot.group_of(&choice) else {
            self.chosen = Some(choice);
            let action = self.expanded_action(self.uri()?.reading()).ok_or(Refusal::NoRoute)?;
            return Ok(Some(Box::new(action)));
        };
        let route = route.ok_or(Refusal::NoRoute)?;
        let rewritten = routes.rewritten(&choice, reading, facts.as_ref())?;
        let preface = Preface::of(group.config.proxy_header, || self.ends(connection));
        let mut stored_path = reading.origin_form();
        let may_store = choice.is_sole && routes.stores(&choice);
        let mut stores = may_store && self.has_copied_in_key(route);
        let mut sends_key = true;
        if let Some(settings) = &route.key {
            let as_requested = stored_path;
            stored_path = routes.stored_path_of(choice.at, reading);
            stores = stores && settings.bypassed(fields).is_none();
            sends_key = stored_path == as_requested && !settings.sends_key_cookies();
        }
        let asked = (uri.realm.scheme, uri.authority, &*stored_path);
        let wish = group.choice(asked, fields, self.peer.ip());
        let timeouts = route.timeouts.as_ref().filter(|_| choice.is_sole).map(Arc::clone);
        let to = To::Group(Arc::clone(group), wish, preface, timeouts);
        let peers = snapshot.peers.as_ref();
        let peers = peers.filter(|_| route.config.peers && choice.is_sole);
        let course = peers.and_then(|peers| self.beside(peers, &uri));
        let destination = Destination::new(self.owned_head(), &uri, &stored_path, to);
        self.chosen = Some(choice);
        let stores_as_sent = stores && sends_key;
        let to = self.destination.insert(destination);
        (to.is_keyed, to.stores_as_sent, to.course) = (stores, stores_as_sent, course);
        to.rewritten = rewritten.map(Vec::into_boxed_slice);
        Ok(None)
    }

    /// Routes a request to a forward listener: to its origin, or to a parent.
    async fn by_name(&mut self) -> Result<(), Refusal> {
        let uri = self.uri()?;
        let RequestedUri { realm, authority, .. } = uri;
        let (to, course) = match &self.snapshot.peers {
            None => {
                let tls = tls_peer(&self.snapshot, realm.scheme, authority)?;
                let parsed = http1::parse_authority(authority).map_err(|_| Refusal::Authority)?;
                let port = parsed.port.unwrap_or(realm.scheme.port());
                (To::Addresses(self.addresses(parsed.host, port).await?, tls), None)
            }
            Some(peers) => {
                let (to, course) = Box::pin(self.by_peers(peers, &uri)).await?;
                (to, Some(course))
            }
        };
        let stored_path = uri.reading().origin_form();
        let destination = Destination::new(self.owned_head(), &uri, &stored_path, to);
        let to = self.destination.insert(destination);
        (to.is_keyed, to.stores_as_sent, to.course) = (true, true, course);
        Ok(())
    }

    /// The answer to another cache that fetches our digest.
    #[cold]
    fn digest(&self, rules: &DigestServer) -> Result<Step, Refusal> {
        if !rules.allows(self.peer.ip()) {
            return Err(Refusal::DigestFrom);
        }
        let made = self.worker.shared.digest.get().ok_or(Refusal::DigestNone)?;
        Ok(Step::AnswerWithDigest(made))
    }

    /// Whether the request asks a forward listener for the script by which browsers find it.
    pub(crate) fn asks_for_pac(&self) -> bool {
        self.role() == Role::Forward
            && !self.listener.cluster
            && matches!(self.method(), Method::Get | Method::Head)
            && matches!(
                self.target(),
                Target::Origin { path_and_query: b"/proxy.pac" | b"/wpad.dat" }
            )
    }

    /// Whether the request came from a member of the cluster, so that it is sent to no member.
    fn is_from_member(&self) -> bool {
        self.listener.cluster && !planted::is(planted::Bug::SecondMember)
    }

    /// Whether a replay of the request does no harm, if its route says so (RFC 8470 section 4).
    fn may_be_early(&self, class: &Class) -> bool {
        self.listener.role == Role::Reverse
            && matches!(class, Class::Cacheable | Class::Bypass(_))
            && self.method().is_safe()
            && !has_content(&self.head())
    }

    /// Whether this client may use the listener at all, and the client's user if one is required.
    async fn admit(&self) -> Result<Option<Arc<[u8]>>, Refusal> {
        let passwords = Passwords {
            known: &self.worker.shared.passwords,
            verifying: &self.worker.verifying,
            remembers: self.look == Look::Use,
            overload: &self.worker.overload,
        };
        self.snapshot.forward.admit(self.peer.ip(), &self.head(), passwords).await
    }

    /// Refuses a request to a forward listener for which its condition holds.
    #[inline(never)]
    fn denies_when(&self) -> Result<(), Refusal> {
        let facts = self.facts();
        if facts.sent.authority.is_empty() {
            // It is refused for its form.
            return Ok(());
        }
        let parsed = http1::parse_authority(facts.sent.authority);
        let parsed = parsed.map_err(|_| Refusal::Authority)?;
        let reading = Reading::of(facts.sent.authority, facts.sent.path_and_query);
        let (rules, resolver) = (&self.snapshot.forward, &self.worker.shared.resolver);
        rules.denies_when(parsed.host, reading, &facts, resolver)
    }

    /// The requested URI, or why it is refused.
    #[inline]
    pub(crate) fn uri(&self) -> Result<RequestedUri<'_>, Refusal> {
        let (role, fields) = (self.role(), self.fields());
        let scheme = self.listener.scheme_of(&fields);
        match (self.requested_uri(), role, self.target()) {
            (Some(uri), ..) => Ok(uri),
            (None, Role::Reverse, Target::Asterisk) => Ok(RequestedUri {
                realm: Realm { role, scheme },
                authority: self.listener.host_of(&fields),
                path: self.head().target_bytes,
            }),
            (None, _, Target::Absolute { .. }) => Err(Refusal::Scheme),
            _ => Err(Refusal::NotAbsolute),
        }
    }

    /// The ends of the client's connection, as a PROXY header gives them to servers.
    fn ends(&self, connection: &ClientConnection<'_>) -> Ends {
        let here = || connection.stream.and_then(|stream| stream.local_addr().ok());
        let asked = connection.original_destination.or_else(here);
        let mut destination = asked.unwrap_or(self.listener.address);
        if unix_path(destination).is_some() {
            // A Unix socket has no address to name.
            destination = SocketAddr::from(([0; 4], 0));
        }
        Ends { source: self.peer, destination }
    }

    /// The addresses at which a forward listener's client may reach this port of a host.
    pub(crate) async fn addresses(
        &self,
        host: &[u8],
        port: u16,
    ) -> Result<Arc<[SocketAddr]>, Refusal> {
        let at = (host, port);
        let found = addresses((&self.worker, &self.snapshot), self.peer, at, self.method()).await;
        if self.look == Look::Use && matches!(found, Err(Refusal::Fault(_))) {
            self.worker.io.counters.upstream_errors.add(1);
        }
        found
    }

    /// How peers may answer a request to a reverse listener. The parents of such a request are the
    /// servers of its upstream, so only the rules on requests that are always direct apply to it. A
    /// route leads to the same servers whatever the port, and a client can choose the port. A peer
    /// would have stored responses from that port, so peers are queried for the default port only.
    fn beside(&self, peers: &Arc<Peers>, uri: &RequestedUri<'_>) -> Option<Course> {
        let parsed = http1::parse_authority(uri.authority).ok()?;
        if parsed.port.is_some_and(|port| port != uri.realm.scheme.port()) {
            return None;
        }
        let host = parsed.host;
        let allowed =
            match peers.rules.allowed(std::str::from_utf8(host).ok()?, self.method_bytes()) {
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
    ) -> Result<(To, Course), Refusal> {
        let RequestedUri { realm, authority, path } = *uri;
        let parsed = http1::parse_authority(authority).map_err(|_| Refusal::Authority)?;
        let at = (parsed.host, parsed.port.unwrap_or(realm.scheme.port()));
        let (allowed, parents) = self.parents(peers, at)?;
        let Some(parents) = parents else {
            let tls = tls_peer(&self.snapshot, realm.scheme, authority)?;
            let to = To::Addresses(self.addresses(at.0, at.1).await?, tls);
            let course = Course::to_origin(peers, allowed, peers.parents.is_some());
            return Ok((to, course));
        };
        let key = parents.key(realm.scheme, authority, path);
        let to = To::Group(Arc::clone(parents), Choice::by(key), None, None);
        let course = Course::to_parents(peers, allowed, &to);
        Ok((to, course))
    }

    /// The parents that a request for this host and port goes to; `None`: the request goes to its
    /// origin. A parent looks names up, so only addresses are checked here.
    pub(crate) fn parents<'p>(
        &self,
        peers: &'p Peers,
        (host, port): (&[u8], u16),
    ) -> Result<(Allowed, Option<&'p Arc<Group>>), Refusal> {
        let name = std::str::from_utf8(host).map_err(|_| Refusal::Authority)?;
        let allowed = peers.rules.allowed(name, self.method_bytes());
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
                rules.admits_by_peer((host, port), self.method(), of_process)?;
                Ok((allowed, parents))
            }
        }
    }
}
