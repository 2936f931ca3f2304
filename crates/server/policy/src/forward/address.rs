//! Which addresses a forward proxy may be made to reach.
//!
//! A proxy can reach addresses that its clients cannot (its own machine, its network, a cloud's
//! metadata service), and so could everyone who may use it. By default it therefore connects to
//! public addresses only. An address that embeds another (v4-mapped, NAT64, 6to4) is judged by the
//! embedded one. The lists are IANA's registries of special-purpose addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Whether an address may be connected to: public, or within one of these networks.
pub(super) fn may_reach(ip: IpAddr, allowed: &[IpNet]) -> bool {
    let ip = ip.to_canonical();
    if allowed.iter().any(|net| net.contains(&ip)) {
        return true;
    }
    match ip {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => match within(v6) {
            Within::Nothing => is_public_v6(v6),
            Within::V4(v4) => may_reach(IpAddr::V4(v4), allowed),
        },
    }
}

/// Whether exactly this address, and no network around it, is among those allowed.
pub(super) fn is_named(ip: IpAddr, allowed: &[IpNet]) -> bool {
    let ip = ip.to_canonical();
    allowed.iter().any(|net| net.prefix_len() == net.max_prefix_len() && net.addr() == ip)
}

/// The IPv4 addresses that a connection to this address may reach: for rules that forbid one. There
/// are more forms than those in [`within`], some of which hardly any network translates.
pub(super) fn v4_reached(ip: IpAddr) -> Option<Ipv4Addr> {
    let v6 = match ip.to_canonical() {
        IpAddr::V4(v4) => return Some(v4),
        IpAddr::V6(v6) => v6,
    };
    let [.., c, d] = v6.segments();
    let last = Ipv4Addr::from_bits(u32::from(c) << 16 | u32::from(d));
    match (within(v6), v6.segments()) {
        (Within::V4(v4), _) => Some(v4),
        // Compatible (RFC 4291, 2.5.5.1), translated (RFC 2765), NAT64 in one network (RFC 8215),
        // and ISATAP (RFC 5214).
        (_, [0, 0, 0, 0, 0, 0, ..])
        | (_, [0, 0, 0, 0, 0xffff, 0, ..])
        | (_, [0x64, 0xff9b, 1, ..])
        | (_, [_, _, _, _, 0 | 0x200, 0x5efe, ..]) => Some(last),
        (Within::Nothing, _) => None,
    }
}

/// The IPv4 address that an IPv6 address embeds.
enum Within {
    Nothing,
    V4(Ipv4Addr),
}

fn within(ip: Ipv6Addr) -> Within {
    let o = ip.octets();
    match ip.segments() {
        // NAT64 (RFC 6052), and 6to4 (RFC 3056).
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => Within::V4(Ipv4Addr::new(o[12], o[13], o[14], o[15])),
        [0x2002, ..] => Within::V4(Ipv4Addr::new(o[2], o[3], o[4], o[5])),
        _ => Within::Nothing,
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    !matches!(
        ip.octets(),
        [0 | 10 | 127, ..]           // this network, private, loopback
            | [100, 64..=127, ..]    // shared by a provider's customers (CGNAT)
            | [169, 254, ..]         // link-local
            | [172, 16..=31, ..]     // private
            | [192, 0, 0 | 2, _]     // of protocols, of examples
            | [192, 88, 99, _]       // relays of 6to4
            | [192, 168, ..]         // private
            | [198, 18 | 19, ..]     // of benchmarks
            | [198, 51, 100, _]      // of examples
            | [203, 0, 113, _]       // of examples
            | [224..=255, ..] // multicast, reserved, broadcast
    )
}

/// Only 2000::/3 is assigned; everything else is local to a host, a link or a site, or unassigned.
fn is_public_v6(ip: Ipv6Addr) -> bool {
    match ip.segments() {
        [0x2001, 0..=0x1ff, ..] => false, // of protocols, Teredo among them
        [0x2001, 0xdb8, ..] => false,     // of examples
        [0x3fff, 0..=0xfff, ..] => false, // of examples
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOT_PUBLIC: &[&str] = &[
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.7",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "fc00::1",
        "fd12::1",
        "ff02::1",
        "100::1",
        "2001:db8::1",
        "2001::1",
        "2001:10::1",
        "3fff::1",
        "5f00::1",
        "64:ff9b:1::1",
        // Forms that carry an IPv4 address.
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2002:a9fe:a9fe::1",
        "::ffff:0:127.0.0.1",
    ];

    const PUBLIC: &[&str] = &[
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.0.0.1",
        "128.0.0.1",
        "169.253.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "192.0.1.1",
        "192.167.0.1",
        "198.17.0.1",
        "198.20.0.1",
        "223.255.255.255",
        "2606:4700::1111",
        "2001:4860:4860::8888",
        "2a00:1450::1",
        "::ffff:1.1.1.1",
        "64:ff9b::1.1.1.1",
        "2002:101:101::1",
        "2001:200::1",
        "3ffe::1",
    ];

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn only_public_addresses_are_reached() {
        for text in NOT_PUBLIC {
            assert!(!may_reach(ip(text), &[]), "{text}");
        }
        for text in PUBLIC {
            assert!(may_reach(ip(text), &[]), "{text}");
        }
    }

    #[test]
    fn a_network_that_is_allowed_is_reached_and_no_other() {
        let allowed = nets(&["127.0.0.0/8", "fd00::/8"]);
        for text in
            ["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::1", "fd00::1"]
        {
            assert!(may_reach(ip(text), &allowed), "{text}");
        }
        for text in ["10.0.0.1", "::1", "fc00::1", "fe80::1"] {
            assert!(!may_reach(ip(text), &allowed), "{text}");
        }
        for text in NOT_PUBLIC {
            assert!(may_reach(ip(text), &nets(&["0.0.0.0/0", "::/0"])), "{text}");
        }
    }

    #[test]
    fn an_ipv4_address_is_reached_by_many_forms() {
        let forms = [
            "127.0.0.9",
            "::ffff:127.0.0.9",
            "::127.0.0.9",
            "::ffff:0:127.0.0.9",
            "64:ff9b::7f00:9",
            "64:ff9b:1::7f00:9",
            "2002:7f00:9::1",
            "fe80::5efe:127.0.0.9",
            "2001:db8::200:5efe:7f00:9",
        ];
        for form in forms {
            assert_eq!(v4_reached(ip(form)), Some(Ipv4Addr::new(127, 0, 0, 9)), "{form}");
        }
        assert_eq!(v4_reached(ip("2001:db8::7f00:9")), None);
    }

    #[test]
    fn a_network_names_no_single_address() {
        let allowed = nets(&["127.0.0.0/8", "10.0.0.7/32", "::1/128"]);
        for (text, named) in
            [("127.0.0.1", false), ("10.0.0.7", true), ("::ffff:10.0.0.7", true), ("::1", true)]
        {
            assert_eq!(is_named(ip(text), &allowed), named, "{text}");
        }
    }
}
