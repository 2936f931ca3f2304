//! What a configuration becomes: everything that a reload replaces, and nothing that outlives it.
//!
//! A site is built once from a [`Config`] and never changed. Each core holds its own copy, so that
//! no request touches a counter of references that another core writes to; a request is served to
//! its end by the site it began with.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use http1::Scheme;

use crate::arrival::Gate;
use crate::limits::{Limits, READ_BUFFER_BYTES};
use config::{Config, Listener, Role};
use policy::forward::Rules;
use policy::routes::Routes;
use policy::via::ViaNames;
use upstream::group::{Group, Registry};

/// A configuration, ready for use.
#[derive(Clone, Debug)]
pub struct Site {
    /// The configuration that it was made from.
    pub config: Arc<Config>,
    /// Those of reverse mode, in the order of the configuration.
    pub groups: Arc<[Arc<Group>]>,
    /// Those of reverse mode.
    pub routes: Arc<Routes>,
    /// Those of forward mode.
    pub forward: Arc<Rules>,
    /// How messages name us.
    pub via: ViaNames,
    /// What the parser is held to.
    pub http: http1::Limits,
}

impl Site {
    /// `pseudonym`: what requests name us by, unless the configuration says otherwise.
    pub fn new(config: Config, registry: &Registry, pseudonym: &str) -> Site {
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
    pub fn tags_to_clients(&self, role: Role) -> bool {
        self.config.purge.tags_to_clients.unwrap_or(role == Role::Forward)
    }

    /// The limits of the configuration.
    pub fn limits(&self) -> &Limits {
        &self.config.limits
    }
}

/// What a connection knows of the listener that it came in by.
#[derive(Debug)]
pub struct Door {
    /// The listener's address, as configured.
    pub address: SocketAddr,
    /// Whether it is a reverse or a forward proxy.
    pub role: Role,
    /// Of the URIs that are asked for here in origin-form.
    pub scheme: Scheme,
    /// What comes before the first request.
    pub(crate) gate: Option<Box<Gate>>,
}

impl Door {
    /// Of a listener's configuration.
    pub fn of(listener: &Listener) -> Rc<Door> {
        Rc::new(Door { gate: Gate::of(listener), ..Door::open(listener) })
    }

    /// What the log shows of it: its address, and the scheme of URIs in origin-form.
    pub fn logged(&self) -> (SocketAddr, Scheme) {
        (self.address, self.scheme)
    }

    /// The same with nothing before the first request.
    pub fn open(listener: &Listener) -> Door {
        let scheme = if listener.tls.is_some() { Scheme::Https } else { Scheme::Http };
        let Listener { address, role, .. } = *listener;
        Door { address, role, scheme, gate: None }
    }
}
