//! The members of a cluster as servers for requests, and the order of them for each URL.
//!
//! Each member is a group of one server, with the health, the ejection and the figures of any. The
//! order is by score, as in the Cache Array Routing Protocol: each member's address has a score for
//! each URL, and the highest is first. Each member of the cluster computes the same order, and
//! nothing is sent. One that joins or leaves changes only the URLs of its share.
//!
//! Scores are from SipHash and not from the protocol's own function (`peering::carp`), which gives
//! similar names unequal shares: 22 % of the URLs in place of 25 % for one of four members whose
//! addresses differ in one digit. No other program takes part, so nothing else has to agree.

use std::net::SocketAddr;
use std::sync::Arc;

use config::Cluster;
use config::limits::SERVERS_PER_GROUP_MAX;

use crate::balance::stable_hash;
use crate::group::Group;
use crate::registry::Registry;

/// The members at one time.
#[derive(Debug, Default)]
pub struct Members {
    list: Box<[Member]>,
    own: Option<usize>,
}

/// A member.
#[derive(Debug)]
pub struct Member {
    /// Where it listens for the others.
    pub address: SocketAddr,
    /// The member as a server for requests.
    pub group: Arc<Group>,
    /// A hash of its address.
    identity: u64,
}

impl Members {
    /// The members at these addresses, in whatever order. The states of those that were members
    /// before go on.
    pub fn new(config: &Cluster, addresses: &[SocketAddr], registry: &Registry) -> Members {
        let addresses = in_order(addresses);
        let groups: Vec<config::Group> = addresses.iter().map(|one| config.group(*one)).collect();
        let own = match config.own_among(&addresses)[..] {
            [own] => addresses.iter().position(|address| *address == own),
            // Nothing goes wrong if this one asks itself. That another one is left out would.
            _ => None,
        };
        let groups = registry.groups(&groups);
        let one = |(address, group): (SocketAddr, &Arc<Group>)| Member {
            address,
            group: Arc::clone(group),
            identity: stable_hash(&[address.to_string().as_bytes()]),
        };
        Members { list: addresses.into_iter().zip(groups.iter()).map(one).collect(), own }
    }

    /// All of them, in the order of their addresses.
    pub fn all(&self) -> &[Member] {
        &self.list
    }

    /// The others.
    pub fn others(&self) -> impl Iterator<Item = &Member> {
        let own = self.own;
        self.list.iter().enumerate().filter(move |(at, _)| Some(*at) != own).map(|(_, one)| one)
    }

    /// This one, unless it is none of them.
    pub fn own(&self) -> Option<&Member> {
        self.list.get(self.own?)
    }

    /// The members in the order in which they are responsible for a URL. `None` is this one.
    pub fn rank(&self, url: u64) -> impl Iterator<Item = Option<&Member>> {
        self.order(url).into_iter().map(|at| self.at(at))
    }

    /// The same as indices for [`Self::at`].
    pub fn order(&self, url: u64) -> Box<[usize]> {
        let score = |one: &Member| stable_hash(&[&url.to_le_bytes(), &one.identity.to_le_bytes()]);
        let scores = self.list.iter().enumerate().map(|(at, one)| (score(one), at));
        let mut order: Vec<(u64, usize)> = scores.collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        order.into_iter().map(|(_, at)| at).collect()
    }

    /// One of the members; `None` is this one.
    pub fn at(&self, at: usize) -> Option<&Member> {
        (Some(at) != self.own).then(|| &self.list[at])
    }
}

/// The members at these addresses, in the order that is the same on all of them. A name may have
/// more addresses than a cluster can have members: then all take the same ones.
pub fn in_order(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut addresses = addresses.to_vec();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(SERVERS_PER_GROUP_MAX);
    addresses
}

/// The number by which members are ranked for a URL: the authority as in keys, and the path as it
/// is stored.
pub fn url_number(authority: &[u8], path: &[u8]) -> u64 {
    stable_hash(&[authority, path])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses(hosts: impl IntoIterator<Item = u8>) -> Vec<SocketAddr> {
        hosts.into_iter().map(|host| SocketAddr::from(([10, 0, 0, host], 7000))).collect()
    }

    /// As the member with the lowest address sees it.
    fn members(addresses: &[SocketAddr]) -> Members {
        let own = addresses.iter().min().copied().unwrap();
        Members::new(&Cluster::new(own, Vec::new()), addresses, &Registry::default())
    }

    fn owner(members: &Members, url: u64) -> SocketAddr {
        let first = members.rank(url).next().unwrap();
        first.unwrap_or_else(|| members.own().unwrap()).address
    }

    fn urls() -> impl Iterator<Item = u64> {
        (0..4000).map(|at| url_number(b"example.org", format!("/images/{at}.png").as_bytes()))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// One that joins takes its share, and nothing else moves; nor does it when one leaves.
        #[test]
        fn a_member_that_joins_or_leaves_moves_its_share_only(
            hosts in prop::collection::btree_set(1u8..=250, 2..12),
        ) {
            let all = addresses(hosts.iter().copied());
            let before = members(&all);
            let joined = *all.last().unwrap();
            let fewer = members(&all[..all.len() - 1]);
            let mut moved = 0;
            for url in urls() {
                let (with, without) = (owner(&before, url), owner(&fewer, url));
                moved += usize::from(with != without);
                prop_assert!(with == without || with == joined);
            }
            let share = urls().count() / all.len();
            prop_assert!(moved.abs_diff(share) < share / 2 + 40, "{moved} of {share}");
        }

        /// At each member, and in whatever order they are written.
        #[test]
        fn all_members_choose_alike(
            hosts in prop::collection::btree_set(1u8..=250, 2..9), url: u64,
        ) {
            let mut list = addresses(hosts.iter().copied());
            let expected = owner(&members(&list), url);
            list.reverse();
            for own in &list {
                let config = Cluster::new(*own, Vec::new());
                let members = Members::new(&config, &list, &Registry::default());
                prop_assert_eq!(owner(&members, url), expected);
                prop_assert_eq!(members.rank(url).filter(Option::is_none).count(), 1);
            }
        }
    }

    #[test]
    fn shares_are_about_equal() {
        let four = members(&addresses([1, 2, 3, 4]));
        for member in four.all() {
            let count = urls().filter(|url| owner(&four, *url) == member.address).count();
            assert!((900..1100).contains(&count), "{}: {count} of 4000", member.address);
        }
    }

    #[test]
    fn the_state_of_a_member_goes_on() {
        let registry = Registry::default();
        let config = Cluster::new(addresses([1])[0], Vec::new());
        let before = Members::new(&config, &addresses([1, 2]), &registry);
        let after = Members::new(&config, &addresses([1, 2, 3]), &registry);
        assert!(Arc::ptr_eq(&before.list[1].group.shared, &after.list[1].group.shared));
        assert!(after.own().is_some() && after.others().count() == 2);
    }
}
