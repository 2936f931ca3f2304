//! All groups, servers and peers of the process, by name, so that a reload finds the existing ones.
//!
//! Who owns: the configurations that name a group, a server or a peer own its state together. What
//! never happens: the state of a server that no configuration names is kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use config::Queries;
use config::limits::{SERVERS_PER_GROUP_MAX, WEIGHT_MAX};
use hashbrown::HashMap;

use crate::balance::{Balancer, stable_hash};
use crate::budget::Budget;
use crate::group::{Group, GroupFigures, GroupState, Member};
use crate::look_up::LookUp;
use crate::peers::{Peer, PeerState};
use crate::queue::Queue;
use crate::server::ServerState;
use crate::slots::Slot;

/// All groups and servers of the process, so that a reload finds the existing ones.
#[derive(Debug, Default)]
pub struct Registry {
    groups: Mutex<HashMap<String, Weak<GroupState>>>,
    pub(super) servers: Mutex<HashMap<(String, String), Weak<ServerState>>>,
    peers: Mutex<HashMap<PeerId, Weak<PeerState>>>,
}

/// The name of a peer, and how it is asked.
type PeerId = (String, Option<Queries>);

impl Registry {
    /// The groups of a configuration.
    pub fn groups<'c>(
        &self,
        groups: impl IntoIterator<Item = &'c config::Group>,
    ) -> Arc<[Arc<Group>]> {
        groups.into_iter().map(|group| Arc::new(self.group(group))).collect()
    }

    /// The peers that are asked, which are these groups.
    pub fn peers(&self, asked: &[config::AskedPeer], groups: &[Arc<Group>]) -> Arc<[Peer]> {
        let one = |(peer, group): (&config::AskedPeer, &Arc<Group>)| Peer {
            name: peer.group.name.clone(),
            kind: peer.kind,
            group: Arc::clone(group),
            queries: peer.queries,
            fetches_digest: peer.digest,
            state: kept(&self.peers, (peer.group.name.clone(), peer.queries), PeerState::default),
        };
        asked.iter().zip(groups).map(one).collect()
    }

    pub(crate) fn group(&self, config: &config::Group) -> Group {
        let shared = kept(&self.groups, config.name.clone(), || GroupState {
            queue: Queue::default(),
            budget: Budget::new(config.retries),
            figures: GroupFigures::default(),
        });
        let mut members: Vec<Member> = Vec::new();
        for server in &config.servers {
            let first = members.len();
            let count = server.slots().min(SERVERS_PER_GROUP_MAX - first);
            let of_server = (0..count).map(|nth| {
                let slot = server.has_slots().then_some(Slot { first, nth, count });
                self.member(config, server, slot)
            });
            members.extend(of_server);
        }
        let named = members.iter().map(|member| (&*member.authority, member.weight as u32));
        let balancer = Balancer::new(config.balance, &named.collect::<Vec<_>>());
        let members = members.into_boxed_slice();
        let group = Group { config: config.clone(), members, balancer, shared };
        group.assign_first(&config.servers);
        group
    }

    fn member(
        &self,
        config: &config::Group,
        server: &config::Server,
        slot: Option<Slot>,
    ) -> Member {
        let group = &config.name[..];
        let authority = server.origin.authority.clone();
        let addresses = || server.origin.addresses.as_slice().into();
        let origin = &server.origin;
        let mut url = format!("{}://{authority}", origin.scheme());
        if let Some(Slot { nth, .. }) = slot {
            url += &format!("#{nth}");
        }
        let none = || -> Arc<[_]> { [].into() };
        let first = || if slot.is_some() { none() } else { addresses() };
        let state = kept(&self.servers, (group.to_owned(), url), || ServerState::new(first()));
        if config.health.is_none() {
            state.is_not_checked();
        }
        if state.orders.reload() {
            tracing::info!(group, server = authority, "a reload has ended the orders for a server");
        }
        let (host, port) = origin.host_and_port(origin.default_port());
        let name = match origin.service() {
            Some(service) => Some(LookUp::Service(service.to_owned())),
            None => dns::literal(host).is_none().then(|| LookUp::Host(host.to_owned(), port)),
        };
        if slot.is_none() && (name.is_none() || state.addresses().is_empty()) {
            state.set_addresses(addresses());
        }
        Member {
            state,
            identity: stable_hash(&[authority.as_bytes()]),
            authority,
            id: server.session_id(),
            is_unix: origin.is_unix(),
            tls: origin.tls.clone(),
            slot,
            name,
            weight: server.weight.clamp(1, WEIGHT_MAX).into(),
            backup: server.backup,
            login: server.login.clone(),
            outstanding_max: server.outstanding_max.unwrap_or(u32::MAX),
        }
    }
}

/// The existing value under this key, or a new one. Unused values are dropped.
fn kept<K: std::hash::Hash + Eq, T>(
    all: &Mutex<HashMap<K, Weak<T>>>,
    key: K,
    make: impl FnOnce() -> T,
) -> Arc<T> {
    let mut all: MutexGuard<'_, _> = all.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(there) = all.get(&key).and_then(Weak::upgrade) {
        return there;
    }
    all.retain(|_, one| one.strong_count() > 0);
    let made = Arc::new(make());
    all.insert(key, Arc::downgrade(&made));
    made
}
