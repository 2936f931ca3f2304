//! A configuration snapshot: everything that a reload replaces, and nothing that outlives it.
//!
//! A snapshot is built once from a [`Config`] and never changes. Each core holds its own copy, so
//! that no request touches a reference count that another core writes to. A request keeps the
//! snapshot that it began with.

use std::sync::Arc;

use crate::limits::Limits;
use crate::shared::Shared;
use config::{Config, Role};
use policy::forward::Rules;
use policy::quota::Quotas;
use policy::routes::Routes;
use policy::via::ViaNames;
use upstream::group::Group;

/// A configuration, ready for use.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The configuration that it was made from.
    pub config: Arc<Config>,
    /// The upstream groups of reverse mode, in the order of the configuration.
    pub groups: Arc<[Arc<Group>]>,
    /// The routes of reverse mode.
    pub routes: Arc<Routes>,
    /// The rules of forward mode.
    pub forward: Arc<Rules>,
    /// The names that `Via` carries.
    pub via: ViaNames,
    /// The quotas, if there are any.
    pub quotas: Option<Arc<Quotas>>,
}

impl Snapshot {
    /// With what outlives it in `shared`.
    pub fn new(config: Config, shared: &Shared) -> Snapshot {
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
        let groups = shared.upstreams.groups(&config.groups);
        let routes = Arc::new(Routes::new(&config.routes, &groups));
        let forward = Arc::new(Rules::new(&config.forward));
        let via = ViaNames::new(&config.via, &shared.pseudonym);
        let quotas = shared.quotas.quotas(&config.quotas, &routes, &shared.cache.hasher);
        Snapshot { groups, routes, forward, via, quotas, config: Arc::new(config) }
    }

    /// Whether clients of such a listener see the fields that carry cache tags.
    pub fn tags_to_clients(&self, role: Role) -> bool {
        self.config.purge.tags_to_clients.unwrap_or(role == Role::Forward)
    }

    /// The limits of the configuration.
    pub fn limits(&self) -> &Limits {
        &self.config.limits
    }
}
