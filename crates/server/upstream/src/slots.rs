//! The servers that one name stands for: each address, or each host of a service, is a server.
//!
//! What: a server of the configuration whose addresses are all used, or that is a service (SRV),
//! has a fixed number of slots in its group. A look-up of the name gives each address a slot.
//! Addresses that stay keep their slots, so that their connections, sessions and health go on. A
//! slot without an address is down, and is not shown.
//!
//! A slot remembers the address that has left it until another address needs the slot, and for
//! [`ADDRESS_REMEMBERED`](crate::limits::ADDRESS_REMEMBERED) at most. If that address comes back,
//! it is the same server: its orders, its session, its health and its requests in flight go on.
//! Who owns: the state of the servers, so that slots live through a reload.
//! What never happens: two slots of a name have one address; a new address inherits the failures,
//! or is charged for the requests, of the one before it.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use config::{Server, short_id};
use hashbrown::HashSet;
use runtime::net::shown;
use runtime::time::{self, Instant};

use crate::balance::stable_hash;
use crate::group::{Group, Member};
use crate::look_up::Found;

/// The place of a member among the slots of its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// The index of the first slot in the group.
    pub(crate) first: usize,
    pub(crate) nth: usize,
    pub(crate) count: usize,
}

/// Look-ups of two configurations may end at the same time.
static ASSIGNING: Mutex<()> = Mutex::new(());

impl Group {
    /// Gives each address of a name its slot. `first` is the index of the first slot.
    pub(crate) fn assign(&self, first: usize, found: &[Found], now: Instant) {
        let Some(Slot { count, .. }) = self.members[first].slot else { return };
        let slots = &self.members[first..first + count];
        let _assigning = ASSIGNING.lock().unwrap_or_else(PoisonError::into_inner);
        let (group, name) = (&self.config.name, &slots[0].authority);
        let wanted = wanted(slots, found);
        let has_more = wanted.len() > count;
        if slots[0].state.discovered.has_more.swap(has_more, Relaxed) != has_more && has_more {
            let text = "a name has more addresses than can be servers: some are not used";
            tracing::warn!(group, name, used = count, found = wanted.len(), "{text}");
        }
        let wanted = &wanted[..wanted.len().min(count)];
        for member in slots {
            let at = member.own_address();
            if at.is_some_and(|at| wanted.iter().all(|one| one.address != at)) {
                let server = member.label();
                tracing::info!(group, name, %server, "an upstream server has gone");
                member.state.lose_address(now);
            }
            if member.state.left(now).is_none() && member.own_address().is_none() {
                member.forget_orders(group, "it has been gone for too long");
            }
        }
        let comes_back = |one: &&Found| {
            let has_left = |member: &Member| member.state.left(now).map(|(address, _)| address);
            slots.iter().any(|member| has_left(member) == Some(one.address))
        };
        // Those that come back are first: no new address takes the slot of one of them.
        let (back, new): (Vec<&Found>, Vec<&Found>) = wanted.iter().partition(comes_back);
        let mut has_new = false;
        for one in back.into_iter().chain(new) {
            let has_it = |member: &&Member| member.own_address() == Some(one.address);
            if let Some(member) = slots.iter().find(has_it) {
                member.state.discovered.set(one);
                continue;
            }
            let server = shown(one.address);
            let member = free_slot(slots, one.address, now);
            member.state.discovered.set(one);
            match member.state.left(now) {
                Some((address, _)) if address == one.address => {
                    member.state.come_back(address, now)
                }
                _ => {
                    member.forget_orders(group, "its place is needed");
                    let identity = stable_hash(&[server.as_bytes()]);
                    let id = self.free_id(short_id(&server));
                    member.state.renew(one.address, identity, id, now);
                }
            }
            has_new = true;
            tracing::info!(group, name, server, "an upstream server has come");
        }
        if has_new {
            // It can take waiting requests now.
            self.shared.queue.call_all();
        }
    }

    /// The first id from this one on that no server has, and no server that may come back.
    fn free_id(&self, mut id: u16) -> u16 {
        let has_it = |member: &Member, id: u16| match member.slot {
            None => *member.id() == *format!("{id:04x}"),
            Some(_) => member.state.discovered.id.load(Relaxed) == id,
        };
        while self.members.iter().any(|member| has_it(member, id)) {
            id = id.wrapping_add(1);
        }
        id
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
                    self.assign(first, &found, time::now());
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

/// The addresses that were found, each once, in the order in which they are used if there are too
/// many: those that the name server prefers, those that it names now, those that are servers
/// already, then by address. So the order of a name server's answer takes no server away.
fn wanted(slots: &[Member], found: &[Found]) -> Vec<Found> {
    let used: HashSet<SocketAddr> = slots.iter().filter_map(Member::own_address).collect();
    let mut wanted = found.to_vec();
    wanted.sort_by_key(|one| {
        let is_new = !used.contains(&one.address);
        (one.is_backup, one.is_stale, is_new, one.address, Reverse(one.weight))
    });
    let mut seen = HashSet::new();
    wanted.retain(|one| seen.insert(one.address));
    wanted
}

/// The slot for an address that is no server now: the slot that the address has left, or else the
/// slot whose last address is missed least.
fn free_slot(slots: &[Member], address: SocketAddr, now: Instant) -> &Member {
    let free = slots.iter().filter(|member| member.own_address().is_none());
    let least = free.min_by_key(|member| match member.state.left(now) {
        Some((left, _)) if left == address => (false, false, None),
        None => (true, false, None),
        Some((_, at)) => (true, member.state.orders.are_any(), Some(at)),
    });
    least.expect("there are no more addresses than slots")
}

impl Member {
    /// Forgets the orders for the server that has left this slot.
    fn forget_orders(&self, group: &str, why: &str) {
        if self.state.orders.forget() {
            let name = &self.authority;
            let text = "the orders for a server that has gone are forgotten";
            tracing::warn!(group, name, why, "{text}");
        }
    }

    /// The address of a slot, if it has one.
    pub(crate) fn own_address(&self) -> Option<SocketAddr> {
        self.slot.and_then(|_| self.state.addresses().first().copied())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use config::{Addresses, Balance, Origin, Sticky};

    use super::*;
    use crate::group::Ticket;
    use crate::limits::ADDRESS_REMEMBERED;
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

    fn assign(group: &Group, hosts: &[u8], now: Instant) {
        group.assign(0, &found(hosts), now);
    }

    /// A server that a check had found down stayed down after the checks were taken out.
    #[test]
    fn a_reload_without_checks_brings_a_server_back() {
        let (registry, now) = (Registry::default(), time::now());
        let mut config = config::Group::of("g", [Origin::at(at(1))]);
        config.health = Some(config::HealthCheck::default());
        let group = registry.group(&config);
        assert!(group.servers().all(|one| one.state.note_check(false, 1, 1, now)));
        assert!(registry.group(&config).servers().all(|one| one.state.is_down()));
        config.health = None;
        assert!(!registry.group(&config).servers().any(|one| one.state.is_down()));
    }

    /// A last address of a host that does not answer took the place of one that was named.
    #[test]
    fn addresses_that_are_named_come_before_stale_ones() {
        let mut all = found(&[5, 7]);
        all.push(Found { is_stale: true, ..Found::at(at(1)) });
        all.push(Found { is_stale: true, ..Found::at(at(7)) });
        let wanted: Vec<SocketAddr> = wanted(&[], &all).iter().map(|one| one.address).collect();
        assert_eq!(wanted, [at(5), at(7), at(1)]);
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
        let (registry, now) = (Registry::default(), time::now());
        let group = Arc::new(registry.group(&config()));
        assert_eq!(labels(&group), ["app.example", "10.0.0.9:80"], "it is down, and said to be");
        assert_eq!(used(&group, 2), ["10.0.0.9:80", "10.0.0.9:80"]);
        assign(&group, &[1, 2, 1], now);
        assert_eq!(labels(&group), ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.9:80"]);
        assert_eq!(used(&group, 3), ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.9:80"]);
        group.members[1].state.note_check(false, 1, 1, time::now());
        let session = group.members[1].id().into_owned();
        assign(&group, &[3, 2], now);
        assert_eq!(labels(&group), ["10.0.0.2:80", "10.0.0.3:80", "10.0.0.9:80"]);
        assert!(group.members[1].state.is_down(), "as before");
        assert_eq!(group.members[1].id(), session);
        // A reload finds them there.
        let again = registry.group(&config());
        assert_eq!(labels(&again), ["10.0.0.2:80", "10.0.0.3:80", "10.0.0.9:80"]);
        assign(&group, &[], now);
        assert_eq!(labels(&again), ["app.example", "10.0.0.9:80"]);
    }

    /// All slots, so that an address that comes needs one that another address has left.
    fn full(group: &Group, now: Instant) {
        let slots = config().servers[0].slots() as u8;
        assign(group, &(101..=100 + slots).collect::<Vec<_>>(), now);
    }

    fn member<'g>(group: &'g Group, label: &str) -> &'g Member {
        group.servers().find(|member| member.label() == label).unwrap()
    }

    #[test]
    fn the_next_address_in_a_slot_begins_from_scratch() {
        let (group, now) = (Registry::default().group(&config()), time::now());
        full(&group, now);
        member(&group, "10.0.0.101:80").state.note_check(false, 1, 1, now);
        let slot = group.members.iter().position(|one| one.label() == "10.0.0.101:80").unwrap();
        let session = group.members[slot].id().into_owned();
        assign(&group, &(102..=133).collect::<Vec<_>>(), now);
        assert_eq!(group.members[slot].label(), "10.0.0.133:80");
        assert!(!group.members[slot].state.is_down());
        assert_ne!(group.members[slot].id(), session);
    }

    /// A name server leaves an address out of one answer.
    #[test]
    fn an_address_that_comes_back_is_the_same_server_with_its_orders() {
        let (registry, now) = (Registry::default(), time::now());
        let groups = registry.groups([&config()]);
        let group = &groups[0];
        assign(group, &[1, 2], now);
        let order = |query: &str| {
            let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap());
            let pairs: Vec<_> = pairs.map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
            crate::control::obey(&groups, &pairs).unwrap()
        };
        order("server=10.0.0.1:80&state=drain&weight=7&keep=on");
        let id = member(group, "10.0.0.1:80").id().into_owned();
        assign(group, &[2], now);
        // Another address gets another slot, and a reload keeps what is kept.
        assign(group, &[2, 3], now);
        let again = registry.group(&config());
        let later = now + ADDRESS_REMEMBERED / 2;
        assign(&again, &[1, 2, 3], later);
        let back = member(group, "10.0.0.1:80");
        assert_eq!(
            (back.state.orders.order().name(), back.state.orders.weight()),
            ("drain", Some(7))
        );
        assert_eq!(back.id(), id);
        // One that comes back much later may be another machine.
        assign(group, &[2, 3], later);
        assign(group, &[2, 3], later + ADDRESS_REMEMBERED);
        assign(group, &[1, 2, 3], later + ADDRESS_REMEMBERED);
        assert!(!member(group, "10.0.0.1:80").state.orders.are_any());
    }

    #[test]
    fn of_the_addresses_that_have_gone_those_with_orders_are_forgotten_last() {
        let (group, now) = (Registry::default().group(&config()), time::now());
        full(&group, now);
        let orders = |label: &str| &member(&group, label).state.orders;
        orders("10.0.0.101:80").weight.store(7, Relaxed);
        let rest: Vec<u8> = (103..=132).collect();
        assign(&group, &rest, now);
        assign(&group, &[&rest[..], &[1]].concat(), now);
        assign(&group, &[&rest[..], &[1, 101]].concat(), now);
        assert_eq!(orders("10.0.0.101:80").weight(), Some(7));
    }

    #[test]
    fn a_new_address_does_not_take_the_slot_of_one_that_comes_back_with_it() {
        let (group, now) = (Registry::default().group(&config()), time::now());
        full(&group, now);
        let rest: Vec<u8> = (103..=132).collect();
        let with = |some: &[u8]| [some, &rest[..]].concat();
        member(&group, "10.0.0.101:80").state.note_check(false, 1, 1, now);
        assign(&group, &with(&[102]), now);
        assign(&group, &rest, now + ADDRESS_REMEMBERED / 4);
        assign(&group, &with(&[1, 101]), now + ADDRESS_REMEMBERED / 2);
        assert!(member(&group, "10.0.0.101:80").state.is_down(), "as before");
        assert!(!member(&group, "10.0.0.1:80").state.is_down());
    }

    /// A request that takes longer than its server is in DNS.
    #[test]
    fn the_outcome_of_a_request_is_not_charged_to_the_next_address_in_the_slot() {
        let mut config = config();
        config.ejection.failures = 1;
        let (group, now) = (Arc::new(Registry::default().group(&config)), time::now());
        full(&group, now);
        let slot = group.members.iter().position(|one| one.label() == "10.0.0.101:80").unwrap();
        let choice = Choice { member: u8::try_from(slot).ok(), ..Choice::default() };
        let admit = || group.try_admit(choice, Tried::default()).unwrap();
        let (failing, answered, dropped) = (admit(), admit(), admit());
        let state = &group.members[slot].state;
        assert_eq!(state.outstanding(), 3);
        assign(&group, &(102..=133).collect::<Vec<_>>(), now);
        assert_eq!(group.members[slot].label(), "10.0.0.133:80");
        assert_eq!(state.outstanding(), 0, "they are at the server before");
        let own = admit();
        state.note_failure();
        failing.connected();
        failing.reused();
        failing.failed();
        answered.answered(200);
        let figures = &state.figures;
        let counts = [&figures.requests, &figures.connects, &figures.reuses, &figures.failures];
        assert_eq!(counts.map(|count| count.load(Relaxed)), [1, 0, 0, 1]);
        assert!(!state.is_ejected(now));
        assert_eq!(state.note_failure(), 2, "no success of another server has reset the count");
        assert_eq!((answered.session_at(), own.session_at()), (None, Some(slot)));
        drop((failing, answered, dropped));
        assert_eq!(state.outstanding(), 1);
        drop(own);
        assert_eq!(state.outstanding(), 0);
    }

    /// A name server answers with another part of a long list, or in another order, each time.
    #[test]
    fn more_addresses_than_slots_do_not_take_turns() {
        let (group, now) = (Registry::default().group(&config()), time::now());
        assign(&group, &[200, 201], now);
        for turn in 0..64 {
            let mut hosts: Vec<u8> = (101..165).chain([200, 201]).rev().collect();
            hosts.rotate_left(turn);
            assign(&group, &hosts, now);
        }
        let is_used = |host: u8| labels(&group).contains(&format!("10.0.0.{host}:80"));
        let used: Vec<u8> = (100..=201).filter(|host| is_used(*host)).collect();
        assert_eq!(used, (101..=130).chain([200, 201]).collect::<Vec<u8>>());
        let mut slots = group.members.iter().filter(|one| one.slot.is_some());
        assert!(slots.all(|one| one.state.left(now).is_none()), "no address has left its slot");
        // Backups make room for servers.
        let mut preferred: Vec<Found> = found(&(101..=132).collect::<Vec<_>>());
        preferred.iter_mut().for_each(|one| one.is_backup = true);
        preferred.extend(found(&[1]));
        group.assign(0, &preferred, now);
        assert!(labels(&group).contains(&"10.0.0.1:80".to_owned()));
    }

    #[test]
    fn more_addresses_than_slots_are_left_out_and_ids_differ() {
        let group = Registry::default().group(&config());
        let all: Vec<_> = (0..=255).map(|host| Found::at(at(host))).collect();
        group.assign(0, &all, time::now());
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
        group.assign(0, &hosts, time::now());
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
        assign(&looked_up, &[1, 2], time::now());
        let listed = by_hash(config::Group::of("g", [1, 2, 9].map(|host| Origin::at(at(host)))));
        for key in 0..100 {
            let of = |group: &Arc<Group>| group.predicted(Choice::by(key)).ok().unwrap().authority;
            assert_eq!(of(&looked_up), of(&listed));
        }
    }
}
