//! A configuration snapshot: everything that a reload replaces, and nothing that survives a reload.
//!
//! A snapshot is built once from a [`Config`] and never changes. Each core holds its own copy, so
//! that no request touches a reference count that another core writes to. A request keeps the
//! snapshot that it began with.

use std::sync::Arc;
use std::time::Duration;

use config::{Config, Role};
use policy::forward::Rules;
use policy::peers::DirectRules;
use policy::quota::Quotas;
use policy::routes::{Chosen, Routes};
use policy::via::ViaNames;
use upstream::group::Group;
use upstream::peers::Peer;

use crate::cluster::Cluster;
use crate::limits::Limits;
use crate::shared::Shared;

/// A configuration, ready for use.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The configuration that it was made from.
    pub config: Arc<Config>,
    /// The upstream groups of reverse mode, in the order of the configuration, then the parents,
    /// then each peer that is asked.
    pub groups: Arc<[Arc<Group>]>,
    /// The routes of reverse mode.
    pub routes: Arc<Routes>,
    /// The rules of forward mode.
    pub forward: Arc<Rules>,
    /// The peers of forward mode, if there are any.
    pub peers: Option<Arc<Peers>>,
    /// The cluster that this server is a member of, if it is one.
    pub cluster: Option<Arc<Cluster>>,
    /// The names that `Via` carries.
    pub via: ViaNames,
    /// The quotas, if there are any.
    pub quotas: Option<Arc<Quotas>>,
    /// Its number among the keys of permissions that are remembered.
    pub(crate) permissions: u64,
}

impl Snapshot {
    /// With what outlives it in `shared`.
    pub fn new(config: Config, shared: &Shared) -> Snapshot {
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
        let parents = config.hierarchy.as_ref().and_then(|hierarchy| hierarchy.parents.as_ref());
        let asked = config.hierarchy.as_ref().map_or(&[][..], |hierarchy| &hierarchy.asked);
        let one_each = asked.iter().map(|peer| &peer.group);
        let registry = &shared.upstreams;
        let groups = registry.groups(config.groups.iter().chain(parents).chain(one_each));
        let of_peers = &groups[config.groups.len()..];
        let (parents, of_asked) = of_peers.split_at(usize::from(parents.is_some()));
        let asked = registry.peers(asked, of_asked);
        let routes = Arc::new(Routes::of(&config).switched_by(&shared.maintenance));
        let peers = config.hierarchy.as_ref();
        let peers = peers.map(|peers| Arc::new(Peers::new(peers, parents.first().cloned(), asked)));
        let cluster = config.cluster.as_ref();
        let cluster = cluster.map(|of| Arc::new(Cluster::new(of, &shared.cluster, registry)));
        let members = cluster.as_ref().map_or_else(Vec::new, |cluster| cluster.addresses());
        shared.own.set_members(&members);
        let forward = Arc::new(Rules::new(&config.forward, &config.condition_lists()));
        let via = ViaNames::new(&config.via, &shared.pseudonym);
        let quotas = shared.quotas.quotas(
            (&config.quotas, &config.condition_lists()),
            &routes,
            &shared.cache.hasher,
        );
        let config = Arc::new(config);
        let permissions = shared.allowed.renewed();
        Snapshot { groups, routes, forward, peers, cluster, via, quotas, permissions, config }
    }

    /// Whether clients of such a listener see the fields that carry cache tags.
    pub fn tags_to_clients(&self, role: Role) -> bool {
        self.config.purge.tags_to_clients.unwrap_or(role == Role::Forward)
    }

    /// The peers that are asked before a request is sent.
    pub fn asked(&self) -> Arc<[Peer]> {
        let asked = self.peers.as_ref().map(|peers| Arc::clone(&peers.asked));
        asked.unwrap_or_else(|| Arc::new([]))
    }

    /// The groups, and the other members of the cluster, each of which is one.
    pub fn all_groups(&self) -> Arc<[Arc<Group>]> {
        match &self.cluster {
            None => Arc::clone(&self.groups),
            Some(cluster) => self.groups.iter().cloned().chain(cluster.groups()).collect(),
        }
    }

    /// The group that a request goes to; `None` if its route or a rule gives the answer.
    pub(crate) fn group_of(&self, chosen: &Chosen) -> Option<&Arc<Group>> {
        let group = self.routes.group(chosen);
        debug_assert!(group.is_none_or(|at| at < self.config.groups.len()));
        group.map(|at| &self.groups[at])
    }

    /// The limits of the configuration.
    pub fn limits(&self) -> &Limits {
        &self.config.limits
    }
}

/// The peers of forward listeners, ready for use.
#[derive(Debug)]
pub struct Peers {
    /// Which requests go to peers.
    pub(crate) rules: DirectRules,
    /// The parents.
    pub(crate) parents: Option<Arc<Group>>,
    /// The peers that are asked before a request is sent.
    pub(crate) asked: Arc<[Peer]>,
    /// How long a request waits for the answers of peers.
    pub(crate) query_timeout: Duration,
    /// How long a peer may have a response that was purged or changed here.
    pub(crate) doubt_time: Duration,
    /// Peers are notified of changes by unsafe methods.
    pub(crate) clear_changed: bool,
}

impl Peers {
    /// From the configuration, with the parents as a group.
    pub(crate) fn new(
        config: &config::Hierarchy,
        parents: Option<Arc<Group>>,
        asked: Arc<[Peer]>,
    ) -> Peers {
        Peers {
            rules: DirectRules::new(config),
            parents,
            asked,
            query_timeout: config.query_timeout,
            doubt_time: config.doubt_time,
            clear_changed: config.clear_changed,
        }
    }
}
