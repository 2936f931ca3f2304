//! A set of networks and addresses.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// Networks as ranges of addresses, sorted. Ranges do not overlap, so a search finds the only range
/// that an address can be in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Networks {
    v4: Box<[(u32, u32)]>,
    v6: Box<[(u128, u128)]>,
}

/// An IPv4 address that is mapped into IPv6 is an IPv4 address.
pub(crate) fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// A network, or an address as the network that has no other address.
pub fn network(text: &str) -> Option<IpNet> {
    if let Ok(address) = IpAddr::from_str(text) {
        return Some(IpNet::from(canonical(address)));
    }
    let network = IpNet::from_str(text).ok()?.trunc();
    match (network, network.network().to_canonical()) {
        // A mapped network: `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
        (IpNet::V6(mapped), v4 @ IpAddr::V4(_)) if mapped.prefix_len() >= 96 => {
            IpNet::new(v4, mapped.prefix_len() - 96).ok()
        }
        _ => Some(network),
    }
}

impl Networks {
    /// The set of these networks.
    pub fn new(networks: impl IntoIterator<Item = IpNet>) -> Networks {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            match network {
                IpNet::V4(of) => v4.push((of.network().to_bits(), of.broadcast().to_bits())),
                IpNet::V6(of) => v6.push((of.network().to_bits(), of.broadcast().to_bits())),
            }
        }
        Networks { v4: merged(v4), v6: merged(v6) }
    }

    /// Whether an address is in one of the networks. The address is canonical.
    pub fn has(&self, address: IpAddr) -> bool {
        debug_assert_eq!(address, canonical(address));
        match address {
            IpAddr::V4(address) => is_in(&self.v4, address.to_bits()),
            IpAddr::V6(address) => is_in(&self.v6, address.to_bits()),
        }
    }

    /// Whether every address of the other set is in this set.
    pub(crate) fn covers(&self, other: &Networks) -> bool {
        covers(&self.v4, &other.v4) && covers(&self.v6, &other.v6)
    }

    /// Whether the set has every address of both families.
    pub(crate) fn is_everything(&self) -> bool {
        *self.v4 == [(0, u32::MAX)] && *self.v6 == [(0, u128::MAX)]
    }
}

fn merged<N: Ord + Copy>(mut ranges: Vec<(N, N)>) -> Box<[(N, N)]> {
    ranges.sort_unstable();
    let mut merged: Vec<(N, N)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some((_, end)) if first <= *end => *end = last.max(*end),
            _ => merged.push((first, last)),
        }
    }
    debug_assert!(merged.windows(2).all(|two| two[0].1 < two[1].0), "ranges do not overlap");
    merged.into()
}

fn is_in<N: Ord + Copy>(ranges: &[(N, N)], number: N) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= number);
    after > 0 && number <= ranges[after - 1].1
}

fn covers<N: Ord + Copy>(ranges: &[(N, N)], others: &[(N, N)]) -> bool {
    others.iter().all(|(first, last)| {
        let after = ranges.partition_point(|(start, _)| start <= first);
        after > 0 && *last <= ranges[after - 1].1
    })
}
