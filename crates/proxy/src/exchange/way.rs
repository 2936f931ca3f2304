//! Which way a request goes, up to what is stored: by its own head, the rules and the routes.
//!
//! A [`Case`] is a request before anything has been done for it. An exchange goes the way that it
//! finds; an explanation tells it, and *peeks*: nothing counts as used, and nothing is counted.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use caching::RequestHints;
use caching::cache_status::Forward;
use http1::{Expectation, Method, Name, RequestHead, Target};

use crate::config::Role;
use crate::connection::{Asked, destination, hints};
use crate::exchange::{Destination, Ended, max_forwards};
use crate::fetch::Asking;
use crate::forward;
use crate::proxy_protocol::Ends;
use crate::refusal::Refusal;
use crate::site::{Door, Realm, Scheme, Site};
use crate::stored::Wire;
use crate::tls::TlsPeer;
use crate::transport::Transport;
use crate::upgrade;
use crate::upstream::{Preface, To};
use crate::worker::Worker;

/// Whether looking leaves a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// On behalf of a client: what is found counts as used, what fails is counted.
    Use,
    /// To tell of it.
    Peek,
}

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
    /// There is a body.
    pub(crate) with_body: bool,
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
        if self.head.method == Method::Purge {
            return Ok(Way::Purge);
        }
        if self.door.role == Role::Forward {
            seen.user = Box::pin(forward::admit(self)).await?;
            if self.is_loop() {
                return Err(Ended::Refused(Refusal::Loop));
            }
            if self.head.method == Method::Connect {
                return Ok(Way::Connect);
            }
        }
        let destination = self.destination(seen).await?;
        if let Some(protocols) = self.upgrade() {
            return Ok(Way::Upgrade(destination, protocols));
        }
        match self.goes_past_the_store(seen) {
            Some(_) if caching::only_if_cached(&Wire(self.head.fields)) => Err(not_stored()),
            Some(why) => Ok(Way::Past(destination, why)),
            None => Ok(Way::Stored(destination)),
        }
    }

    fn is_loop(&self) -> bool {
        self.site.via.have_seen(&self.head)
    }

    /// Where the request goes, or why it goes nowhere.
    async fn destination(&self, seen: &mut Seen) -> Result<Destination<'x>, Ended> {
        if self.head.method == Method::Connect {
            return Err(Ended::Refused(Refusal::ConnectHere));
        }
        if self.head.expectation() == Expectation::Unknown {
            return Err(Ended::Refused(Refusal::Expectation));
        }
        if self.is_loop() {
            return Err(Ended::Refused(Refusal::Loop));
        }
        if max_forwards(&self.head) == Some(0) {
            return Err(Ended::Refused(match self.head.method {
                Method::Options => Refusal::OptionsEnd,
                _ => Refusal::TraceEnd,
            }));
        }
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
        forward::addresses(self, host, port).await.map_err(|refusal| {
            if self.look == Look::Use && matches!(refusal, Refusal::Fault(_)) {
                self.worker.counters.upstream_errors.add(1);
            }
            Ended::Refused(refusal)
        })
    }

    /// The protocols that it asks for instead of HTTP, if it may have them.
    fn upgrade(&self) -> Option<Vec<u8>> {
        if !self.head.fields.has(Name::Upgrade) || self.with_body {
            return None;
        }
        upgrade::asked(&self.head, &self.site.config.upgrades)
    }

    /// Why the store has no part in this request, if it has none. `If-Match` and
    /// `If-Unmodified-Since` are for the origin to judge (RFC 9111, 4.3.2).
    fn goes_past_the_store(&self, seen: &Seen) -> Option<Forward> {
        let hints = hints(&self.head);
        let route = seen.route.and_then(|at| self.site.routes.get(at));
        if route.is_some_and(|route| !route.config.store) {
            Some(Forward::Bypass)
        } else if !matches!(self.head.method, Method::Get | Method::Head) {
            Some(Forward::Method)
        } else if self.with_body
            || hints.any(RequestHints::IF_MATCH)
            || hints.any(RequestHints::IF_UNMODIFIED_SINCE)
        {
            Some(Forward::Request)
        } else {
            None
        }
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
