//! Which way a request goes, up to what is stored: by its own head, the rules and the routes.
//!
//! A [`Case`] is a request before anything has been done for it. An exchange goes the way that it
//! finds; an explanation tells it, and *peeks*: nothing counts as used, and nothing is counted.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use caching::cache_status::Forward;
use http1::{RequestHead, Target};

use crate::destination::Destination;
use crate::ended::Ended;
use crate::fetch::Asking;
use crate::request::Class;
use crate::request::{Asked, destination};
use crate::site::{Door, Site};
use crate::worker::Worker;
use cache::Look;
use cache::realm::Realm;
use cache::stored::Wire;
use config::Role;
use http1::Scheme;
use outcome::Refusal;
use policy::forward::Passwords;
use transport::Transport;
use transport::proxy_protocol::Ends;
use transport::tls::TlsPeer;
use upstream::{Preface, To};

/// A request before anything has been done for it.
pub(crate) struct Case<'x> {
    pub(crate) worker: &'x Rc<Worker>,
    pub(crate) site: Rc<Site>,
    pub(crate) door: &'x Door,
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// Where it had connected to, if a PROXY header told.
    pub(crate) told_to: Option<SocketAddr>,
    /// What it came by, if it did come.
    pub(crate) stream: Option<&'x Transport>,
    pub(crate) head: RequestHead<'x>,
    pub(crate) look: Look,
}

/// What was found of a request on its way, also when the way ends in a refusal.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Whose password was right, if one was asked for.
    pub(crate) user: Option<Arc<[u8]>>,
    /// The place of its route.
    pub(crate) route: Option<usize>,
}

/// Where a request's head leads.
#[derive(Debug)]
pub(crate) enum Way<'x> {
    /// It purges.
    Purge,
    /// It asks for a tunnel to a host.
    Connect,
    /// It asks for one of these protocols.
    Upgrade(Destination<'x>, Vec<u8>),
    /// The store has no part in it.
    Past(Destination<'x>, Forward),
    /// What is stored decides.
    Stored(Destination<'x>),
}

impl<'x> Case<'x> {
    /// The way, or why there is none.
    pub(crate) async fn way(&self, seen: &mut Seen) -> Result<Way<'x>, Ended> {
        let class = self.class();
        if class == Class::Purge {
            return Ok(Way::Purge);
        }
        if self.door.role == Role::Forward {
            seen.user = Box::pin(self.admit()).await?;
        }
        match class {
            Class::Purge => return Ok(Way::Purge),
            Class::Connect => return Ok(Way::Connect),
            Class::Refused(refusal) => return Err(Ended::Refused(refusal)),
            Class::Upgrade(_) | Class::Past(_) | Class::Cacheable => {}
        }
        let destination = self.destination(seen).await?;
        let route = seen.route.and_then(|at| self.site.routes.get(at));
        let past = match class {
            Class::Upgrade(protocols) => return Ok(Way::Upgrade(destination, protocols)),
            _ if route.is_some_and(|route| !route.config.store) => Forward::Bypass,
            Class::Past(why) => why,
            _ => return Ok(Way::Stored(destination)),
        };
        match caching::only_if_cached(&Wire(self.head.fields)) {
            true => Err(not_stored()),
            false => Ok(Way::Past(destination, past)),
        }
    }

    /// What the request is, by its head alone.
    fn class(&self) -> Class {
        Class::of(&self.head, self.door.role, &self.site.via, &self.site.config.upgrades)
    }

    /// Whether this client may ask anything here at all; who it is, if that is asked.
    async fn admit(&self) -> Result<Option<Arc<[u8]>>, Ended> {
        let passwords = Passwords {
            known: &self.worker.shared.passwords,
            verifying: &self.worker.verifying,
            remembers: self.look == Look::Use,
        };
        let user = self.site.forward.admit(self.peer.ip(), &self.head, passwords).await;
        user.map_err(Ended::Refused)
    }

    /// Where the request goes, or why it goes nowhere.
    async fn destination(&self, seen: &mut Seen) -> Result<Destination<'x>, Ended> {
        let role = self.door.role;
        let found = destination(self.door, &self.head).or(match (role, self.head.target) {
            (Role::Reverse, Target::Asterisk) => Some(Asked {
                realm: Realm { role, scheme: self.door.scheme },
                authority: self.head.host().unwrap_or_default(),
                path: b"*",
            }),
            _ => None,
        });
        let Some(Asked { realm, authority, path }) = found else {
            return Err(Ended::Refused(match self.head.target {
                Target::Absolute { .. } => Refusal::Scheme,
                _ => Refusal::NotAbsolute,
            }));
        };
        let to = match role {
            Role::Reverse => self.route_to(authority, path, seen)?,
            Role::Forward => {
                let tls = self.tls(realm.scheme, authority)?;
                To::Addresses(self.resolve(authority, realm.scheme.port()).await?, tls)
            }
        };
        Ok(Destination { realm, authority, path, to })
    }

    /// The group that a route leads to.
    fn route_to(&self, authority: &[u8], path: &[u8], seen: &mut Seen) -> Result<To, Ended> {
        seen.route = self.site.routes.find(authority, path);
        let Some(route) = seen.route.and_then(|at| self.site.routes.get(at)) else {
            return Err(Ended::Refused(Refusal::NoRoute));
        };
        match &route.group {
            Some(group) => {
                let preface = Preface::of(group.config.proxy_header, || self.ends());
                Ok(To::Group(Arc::clone(group), group.key(authority, path), preface))
            }
            None => Err(Ended::Fixed(Box::new(route.config.action.clone()))),
        }
    }

    /// The client's connection, as servers are told of it.
    fn ends(&self) -> Ends {
        let here = || self.stream.and_then(|stream| stream.local_addr().ok());
        let destination = self.told_to.or_else(here).unwrap_or(self.door.address);
        Ends { source: self.peer, destination }
    }

    /// With whom TLS is to be spoken for a URI that a client names.
    fn tls(&self, scheme: Scheme, authority: &[u8]) -> Result<Option<Arc<TlsPeer>>, Ended> {
        if scheme == Scheme::Http {
            return Ok(None);
        }
        let Some(tls) = &self.site.config.https else {
            return Err(Ended::Refused(Refusal::Scheme));
        };
        let host = http1::parse_authority(authority).ok().map(|parsed| parsed.host);
        match host.and_then(|host| TlsPeer::of(tls, host)) {
            Some(peer) => Ok(Some(Arc::new(peer))),
            None => Err(Ended::Refused(Refusal::Authority)),
        }
    }

    async fn resolve(
        &self,
        authority: &[u8],
        default_port: u16,
    ) -> Result<Arc<[SocketAddr]>, Ended> {
        let parsed = http1::parse_authority(authority);
        let parsed = parsed.map_err(|_| Ended::Refused(Refusal::Authority))?;
        let port = parsed.port.unwrap_or(default_port);
        self.addresses(parsed.host, port).await
    }

    /// The addresses at which a forward listener's client may reach this port of a host.
    pub(crate) async fn addresses(
        &self,
        host: &[u8],
        port: u16,
    ) -> Result<Arc<[SocketAddr]>, Ended> {
        let (rules, shared) = (&self.site.forward, &self.worker.shared);
        let limit = self.worker.limits().limits.connect_timeout;
        let from = (&shared.resolver, limit);
        let found = rules.addresses((host, port), self.head.method, from, &shared.own).await;
        found.map_err(|refusal| {
            if self.look == Look::Use && matches!(refusal, Refusal::Fault(_)) {
                self.worker.counters.upstream_errors.add(1);
            }
            Ended::Refused(refusal)
        })
    }

    /// Who asks, for what is asked on behalf of this request.
    pub(crate) fn asking<'a>(
        &self,
        destination: &'a Destination<'a>,
        route: Option<usize>,
    ) -> Asking<'a>
    where
        'x: 'a,
    {
        Asking {
            worker: self.worker,
            site: Rc::clone(&self.site),
            role: self.door.role,
            peer: self.peer,
            route,
            head: self.head,
            destination,
        }
    }
}

/// RFC 9111, 5.2.1.7.
pub(crate) fn not_stored() -> Ended {
    Ended::Refused(Refusal::OnlyIfCached)
}
