//! The servers that one name stands for: each address, or each host of a service, is a server.
//!
//! What: a server of the configuration whose addresses are all used, or that is a service (SRV),
//! has a fixed number of slots in its group. A look-up of the name gives each address a slot.
//! Addresses that stay keep their slots, so that their connections, sessions and health go on. A
//! slot without an address is down, and is not shown.
//! Who owns: the state of the servers, so that slots live through a reload.
//! What never happens: two slots of a name have one address; a new address inherits the failures of
//! the one before it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use config::{Server, short_id};
use dns::{NotFound, Resolver};
use runtime::net::shown;
use runtime::time;

use crate::balance::stable_hash;
use crate::group::{Group, Member};

/// The place of a member among the slots of its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// The index of the first slot in the group.
    pub(crate) first: usize,
    pub(crate) nth: usize,
    pub(crate) count: usize,
}

/// What is looked up for a member.
#[derive(Clone, Debug)]
pub(crate) enum LookUp {
    /// The addresses of a host, at this port.
    Host(String, u16),
    /// The hosts of a service, and their addresses.
    Service(String),
}

impl LookUp {
    /// The name.
    pub(crate) fn name(&self) -> &str {
        match self {
            LookUp::Host(name, _) | LookUp::Service(name) => name,
        }
    }

    /// All addresses that it leads to now.
    pub(crate) async fn found(&self, resolver: &Arc<Resolver>) -> Result<Vec<Found>, NotFound> {
        let service = match self {
            LookUp::Host(host, port) => {
                let addresses = resolver.resolve(host, *port).await?;
                return Ok(addresses.iter().copied().map(Found::at).collect());
            }
            LookUp::Service(service) => resolver.resolve_service(service).await?,
        };
        let hosts = service.iter().map(|host| {
            let (resolver, host) = (Arc::clone(resolver), host.clone());
            runtime::spawn(async move {
                let addresses = resolver.resolve(&host.target, host.port).await;
                (host, addresses)
            })
        });
        let mut found = Vec::new();
        // They are all spawned before the first is waited for.
        for host in hosts.collect::<Vec<_>>() {
            let (host, addresses) = host.await;
            let addresses = match addresses {
                Ok(addresses) => addresses,
                Err(NotFound::NoAddress) => continue,
                // It may have the addresses that it had.
                Err(NotFound::Unanswered) => return Err(NotFound::Unanswered),
            };
            let weight = u32::from(host.weight).max(1);
            found.extend(addresses.iter().map(|address| (host.priority, *address, weight)));
        }
        let best = found.iter().map(|(priority, ..)| *priority).min();
        let found = found.into_iter().map(|(priority, address, weight)| Found {
            address,
            weight: Some(weight),
            is_backup: Some(priority) != best,
        });
        Ok(found.collect())
    }
}

/// An address that a name leads to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) address: SocketAddr,
    /// Its weight, if the name server gives one.
    pub(crate) weight: Option<u32>,
    /// The name server has better ones.
    pub(crate) is_backup: bool,
}

impl Found {
    pub(crate) fn at(address: SocketAddr) -> Found {
        Found { address, weight: None, is_backup: false }
    }
}

/// Look-ups of two configurations may end at the same time.
static ASSIGNING: Mutex<()> = Mutex::new(());

impl Group {
    /// Gives each address of a name its slot. `first` is the index of the first slot.
    pub(crate) fn assign(&self, first: usize, found: &[Found]) {
        let Some(Slot { count, .. }) = self.members[first].slot else { return };
        let slots = &self.members[first..first + count];
        let _assigning = ASSIGNING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wanted: Vec<Found> = Vec::new();
        for one in found {
            if wanted.iter().all(|other| other.address != one.address) {
                wanted.push(*one);
            }
        }
        let (group, name) = (&self.config.name, &slots[0].authority);
        if wanted.len() > count {
            tracing::warn!(group, name, count, "a name has more addresses, which are not used");
            wanted.truncate(count);
        }
        for member in slots {
            let at = member.own_address();
            if at.is_some_and(|at| wanted.iter().all(|one| one.address != at)) {
                let server = member.label();
                tracing::info!(group, name, %server, "an upstream server has gone");
                member.state.lose_addresses();
            }
        }
        let mut has_new = false;
        for one in wanted {
            let there = slots.iter().find(|member| member.own_address() == Some(one.address));
            let member = there.unwrap_or_else(|| {
                let free = slots.iter().find(|member| member.own_address().is_none());
                free.expect("there are no more addresses than slots")
            });
            member.state.discovered.set(one.weight, one.is_backup);
            if there.is_none() {
                let text = shown(one.address);
                let mut id = short_id(&text);
                while self.members.iter().any(|other| *other.id() == *format!("{id:04x}")) {
                    id = id.wrapping_add(1);
                }
                let identity = stable_hash(&[text.as_bytes()]);
                member.state.renew(one.address, identity, id, time::now());
                has_new = true;
                tracing::info!(group, name, server = text, "an upstream server has come");
            }
        }
        if has_new {
            // It can take waiting requests now.
            self.shared.queue.call_all();
        }
    }

    /// Gives the addresses that the configuration was read with their slots, if no slot has one.
    pub(crate) fn assign_first(&self, servers: &[Server]) {
        let mut first = 0;
        for server in servers {
            let count = server.slots().min(self.members.len() - first);
            let slots = &self.members[first..first + count];
            let is_empty =
                |member: &Member| member.slot.is_some() && member.own_address().is_none();
            if !slots.is_empty() && slots.iter().all(is_empty) {
                let found: Vec<_> =
                    server.origin.addresses.iter().map(|at| Found::at(*at)).collect();
                if !found.is_empty() {
                    self.assign(first, &found);
                }
            }
            first += count;
        }
    }

    /// The members that are servers: not the slots without an address, but one for a name that has
    /// no address at all.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |member| match member.slot {
            None => true,
            Some(_) if member.own_address().is_some() => true,
            Some(Slot { nth: 0, first, count }) => {
                self.members[first..first + count].iter().all(|one| one.own_address().is_none())
            }
            Some(_) => false,
        })
    }
}

impl Member {
    /// The address of a slot, if it has one.
    fn own_address(&self) -> Option<SocketAddr> {
        self.slot.and_then(|_| self.state.addresses().first().copied())
    }
}

#[cfg(test)]
mod tests {
    use config::{Addresses, Balance, Origin, Sticky};

    use super::*;
    use crate::group::Ticket;
    use crate::registry::Registry;
    use crate::server::Tried;
    use crate::sticky::Choice;

    fn at(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 80))
    }

    fn config() -> config::Group {
        let origin = Origin::from_url("http://app.example").unwrap();
        let mut config = config::Group::of("g", [origin, Origin::at(at(9))]);
        config.servers[0].addresses = Addresses::All;
        config.sticky = Some(Sticky::default());
        config
    }

    fn found(hosts: &[u8]) -> Vec<Found> {
        hosts.iter().map(|host| Found::at(at(*host))).collect()
    }

    fn labels(group: &Group) -> Vec<String> {
        group.servers().map(|member| member.label().into_owned()).collect()
    }

    fn used(group: &Arc<Group>, requests: usize) -> Vec<String> {
        let ticket = |_| group.try_admit(Choice::default(), Tried::default()).unwrap();
        let tickets: Vec<Ticket> = (0..requests).map(ticket).collect();
        let label = |ticket: &Ticket| group.members[ticket.at()].label().into_owned();
        let mut used: Vec<String> = tickets.iter().map(label).collect();
        used.sort();
        used
    }

    #[test]
    fn each_address_is_a_server_and_the_state_of_those_that_stay_goes_on() {
        let registry = Registry::default();
        let group = Arc::new(registry.group(&config()));
        assert_eq!(labels(&group), ["app.example", "10.0.0.9:80"], "it is down, and said to be");
        assert_eq!(used(&group, 2), ["10.0.0.9:80", "10.0.0.9:80"]);
        group.assign(0, &found(&[1, 2, 1]));
        assert_eq!(labels(&group), ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.9:80"]);
        assert_eq!(used(&group, 3), ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.9:80"]);
        group.members[1].state.note_check(false, 1, 1, time::now());
        let session = group.members[1].id().into_owned();
        group.assign(0, &found(&[3, 2]));
        assert_eq!(labels(&group), ["10.0.0.3:80", "10.0.0.2:80", "10.0.0.9:80"]);
        assert!(group.members[1].state.is_down(), "as before");
        assert_eq!(group.members[1].id(), session);
        // The next address in its place begins from scratch.
        group.assign(0, &found(&[3, 4]));
        assert!(!group.members[1].state.is_down());
        assert_ne!(group.members[1].id(), session);
        // A reload finds them there.
        let again = registry.group(&config());
        assert_eq!(labels(&again), ["10.0.0.3:80", "10.0.0.4:80", "10.0.0.9:80"]);
        group.assign(0, &[]);
        assert_eq!(labels(&again), ["app.example", "10.0.0.9:80"]);
    }

    #[test]
    fn more_addresses_than_slots_are_left_out_and_ids_differ() {
        let group = Registry::default().group(&config());
        let all: Vec<_> = (0..=255).map(|host| Found::at(at(host))).collect();
        group.assign(0, &all);
        let slots = config().servers[0].slots();
        assert_eq!(group.servers().count(), slots + 1);
        let mut ids: Vec<_> = group.servers().map(|one| one.id().into_owned()).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), slots + 1);
    }

    #[test]
    fn a_service_gives_weights_and_its_worse_hosts_are_backups() {
        let group = Arc::new(Registry::default().group(&config()));
        let mut hosts = found(&[1, 2, 3]);
        (hosts[0].weight, hosts[1].weight) = (Some(3), Some(1));
        hosts[2].is_backup = true;
        group.assign(0, &hosts);
        let used = used(&group, 10);
        let count = |at: &str| used.iter().filter(|one| *one == at).count();
        assert_eq!((count("10.0.0.1:80"), count("10.0.0.2:80"), count("10.0.0.3:80")), (6, 2, 0));
    }

    /// So that a proxy that lists the addresses and one that looks them up choose alike.
    #[test]
    fn by_hash_an_address_is_chosen_as_if_it_were_configured() {
        let by_hash = |config: config::Group| {
            let config = config::Group { balance: Balance::HASH, ..config };
            Arc::new(Registry::default().group(&config))
        };
        let looked_up = by_hash(config());
        looked_up.assign(0, &found(&[1, 2]));
        let listed = by_hash(config::Group::of("g", [1, 2, 9].map(|host| Origin::at(at(host)))));
        for key in 0..100 {
            let of = |group: &Arc<Group>| group.predicted(Choice::by(key)).ok().unwrap().authority;
            assert_eq!(of(&looked_up), of(&listed));
        }
    }
}
