//! Where upstreams are: hosts, ports, and the addresses that the origin has for them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The address that the name server of a sandbox has for a name. Two names have the same address
/// only by chance. The network is a public one, because a forward proxy refuses others; no packet
/// leaves the sandbox.
pub(crate) fn address_of(name: &str) -> Ipv4Addr {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    match name.parse() {
        Ok(address) => address,
        Err(_) if name == "localhost" => Ipv4Addr::LOCALHOST,
        Err(_) => {
            let start = 0xcbf2_9ce4_8422_2325_u64;
            let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            let [a, b, c, ..] = name.bytes().fold(start, step).to_be_bytes();
            Ipv4Addr::new(11, a, b, c)
        }
    }
}

/// The address of the name server.
pub(crate) const RESOLVER: Ipv4Addr = Ipv4Addr::new(11, 0, 0, 53);

/// Splits `HOST:PORT`. An address of IPv6 has brackets.
pub(crate) fn host_and_port(text: &str, default: u16) -> Option<(String, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (text, default),
    };
    let is_known = !host.is_empty() && !host.contains(['$', '{', '/', '"', '\'']);
    is_known.then(|| (host.to_owned(), port))
}

/// Host and port of a URL.
pub(crate) fn of_url(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '$', ';', '"', '\'', '#']).next()?;
    host_and_port(authority, if scheme.ends_with('s') { 443 } else { 80 })
}

/// The address of an upstream in the sandbox, as the origin reports where it was reached.
pub(crate) fn reached(host: &str, port: u16) -> String {
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, port).to_string(),
        Err(_) => SocketAddr::new(address_of(host).into(), port).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_found() {
        assert_eq!(of_url("http://app.example/x"), Some(("app.example".to_owned(), 80)));
        assert_eq!(of_url("https://app:8443"), Some(("app".to_owned(), 8443)));
        assert_eq!(of_url("http://[::1]"), Some(("[::1]".to_owned(), 80)));
        assert_eq!(of_url("http://$backend:80"), None);
        assert_eq!(of_url("http://a:b"), None);
        assert_eq!(reached("localhost", 80), "127.0.0.1:80");
        assert_eq!(address_of("App.Example."), address_of("app.example"));
        assert_ne!(address_of("a.example"), address_of("b.example"));
    }
}
