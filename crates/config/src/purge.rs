//! Who may purge, and what clients see of the tags that purges go by.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Rules of purging.
#[derive(Clone, Debug)]
pub struct PurgeRules {
    /// Networks from which the method `PURGE` is taken on listeners; by default this machine alone.
    pub from: Vec<IpNet>,
    /// Whether `Surrogate-Key` and `Cache-Tag` are passed on to clients. By default they are not in
    /// reverse mode, where we stand for the origin that set them for us, and they are in forward
    /// mode, where they are none of our business.
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
    /// Whether the method is taken from this address.
    pub fn allows(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.from.iter().any(|network| network.contains(&client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purging_is_for_this_machine_unless_told_otherwise() {
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
