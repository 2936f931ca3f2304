//! What a configuration becomes: everything that a reload replaces, and nothing that outlives it.
//!
//! A site is built once from a [`Config`] and never changed. Each core holds its own copy, so that
//! no request touches a counter of references that another core writes to; a request is served to
//! its end by the site it began with.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use crate::arrival::Gate;
use crate::config::{Config, Listener, Role};
use crate::forward::Rules;
use crate::hop::ViaNames;
use crate::limits::{Limits, READ_BUFFER_BYTES};
use crate::routes::Routes;
use crate::upstream::group::{Group, Registry};

/// A configuration, ready for use.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) config: Arc<Config>,
    /// Those of reverse mode, in the order of the configuration.
    pub(crate) groups: Arc<[Arc<Group>]>,
    pub(crate) routes: Arc<Routes>,
    /// Those of forward mode.
    pub(crate) forward: Arc<Rules>,
    /// How messages name us.
    pub(crate) via: ViaNames,
    /// What the parser is held to.
    pub(crate) http: http1::Limits,
}

impl Site {
    /// `pseudonym`: what requests name us by, unless the configuration says otherwise.
    pub(crate) fn new(config: Config, registry: &Registry, pseudonym: &str) -> Site {
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
        let groups = registry.groups(&config.groups);
        let routes = Arc::new(Routes::new(&config.routes, &groups));
        let mut http = http1::Limits::default();
        http.head_bytes_max = config.limits.head_bytes_max.min(READ_BUFFER_BYTES / 2);
        http.fields_max = config.limits.fields_max;
        let forward = Arc::new(Rules::new(&config.forward));
        let via = ViaNames::new(&config.via, pseudonym);
        Site { groups, routes, forward, via, http, config: Arc::new(config) }
    }

    /// Whether clients of such a listener see the fields that carry tags.
    pub(crate) fn tags_to_clients(&self, role: Role) -> bool {
        self.config.purge.tags_to_clients.unwrap_or(role == Role::Forward)
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.config.limits
    }
}

/// What a connection knows of the listener that it came in by.
#[derive(Debug)]
pub(crate) struct Door {
    /// The listener's address, as configured.
    pub(crate) address: SocketAddr,
    pub(crate) role: Role,
    /// Of the URIs that are asked for here in origin-form.
    pub(crate) scheme: Scheme,
    /// What comes before the first request.
    pub(crate) gate: Option<Box<Gate>>,
}

impl Door {
    pub(crate) fn of(listener: &Listener) -> Rc<Door> {
        Rc::new(Door { gate: Gate::of(listener), ..Door::open(listener) })
    }

    /// The same with nothing before the first request.
    pub(crate) fn open(listener: &Listener) -> Door {
        let scheme = if listener.tls.is_some() { Scheme::Https } else { Scheme::Http };
        let Listener { address, role, .. } = *listener;
        Door { address, role, scheme, gate: None }
    }
}

/// The scheme of a URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    /// One that we know.
    pub(crate) fn of(name: &[u8]) -> Option<Scheme> {
        if name.eq_ignore_ascii_case(b"http") {
            Some(Scheme::Http)
        } else if name.eq_ignore_ascii_case(b"https") {
            Some(Scheme::Https)
        } else {
            None
        }
    }

    /// As it is written.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }

    /// The port that need not be told.
    pub(crate) fn port(self) -> u16 {
        match self {
            Scheme::Http => 80,
            Scheme::Https => 443,
        }
    }
}

/// Which responses a key is among: what a reverse listener serves under a URI is never what a
/// forward listener fetched from whoever the client named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Realm {
    pub(crate) role: Role,
    pub(crate) scheme: Scheme,
}

impl Realm {
    /// Distinct for each.
    pub(crate) fn byte(self) -> u8 {
        (self.role as u8) << 1 | self.scheme as u8
    }

    /// The authority without the port that is the scheme's own (RFC 9110, 4.2.3).
    pub(crate) fn without_port(self, authority: &[u8]) -> &[u8] {
        let suffix: &[u8] = match self.scheme {
            Scheme::Http => b":80",
            Scheme::Https => b":443",
        };
        authority.strip_suffix(suffix).unwrap_or(authority)
    }
}
