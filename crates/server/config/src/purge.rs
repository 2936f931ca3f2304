//! Who may purge, and whether clients see the tags for purging.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Rules of purging.
#[derive(Clone, Debug)]
pub struct PurgeRules {
    /// Networks from which listeners accept the method `PURGE`; by default only this machine.
    pub from: Vec<IpNet>,
    /// Whether `Surrogate-Key` and `Cache-Tag` are forwarded to clients. By default they are not in
    /// reverse mode, where the origin sets them for this proxy, and are in forward mode, where they
    /// are meant for other caches.
    pub tags_to_clients: Option<bool>,
}

impl Default for PurgeRules {
    fn default() -> PurgeRules {
        let loopback = [
            IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
            IpNet::new_assert(IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
        ];
        PurgeRules { from: loopback.to_vec(), tags_to_clients: None }
    }
}

impl PurgeRules {
    /// Whether `PURGE` is accepted from this address.
    pub fn allows(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.from.iter().any(|network| network.contains(&client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_may_purge_by_default() {
        let rules = PurgeRules::default();
        for (address, allowed) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.0.0.1", false),
            ("::2", false),
        ] {
            assert_eq!(rules.allows(address.parse().unwrap()), allowed, "{address}");
        }
    }
}
