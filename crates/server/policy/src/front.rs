//! The client that a trusted proxy in front of a listener names, and the scheme and the host of
//! the client's request.
//!
//! A list is read from the right: each address was added by the proxy at the address after it. The
//! first address that is not one of a trusted proxy is the client's. What is to the left of it was
//! written by a stranger. If an element is malformed, the nearest trusted proxy counts as the
//! client: no client gets an address by sending half an element.
//!
//! What never happens: a field from a connection that is not from a trusted proxy is read.

use std::net::{IpAddr, SocketAddr};

use config::{Front, FrontField};
use http1::{Fields, Scheme};

/// What a trusted proxy says about the request that it passes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<'f> {
    /// The client.
    pub client: SocketAddr,
    /// The scheme of the client's request.
    pub scheme: Option<Scheme>,
    /// The host of the client's request.
    pub host: Option<&'f [u8]>,
}

/// The client of a request with these fields that the trusted proxy at `peer` has sent.
pub fn client(front: &Front, fields: &Fields<'_>, peer: SocketAddr) -> SocketAddr {
    match &front.field {
        FrontField::XForwardedFor => {
            let values = values(fields, b"X-Forwarded-For");
            let elements = values.iter().rev().flat_map(|value| value.rsplit(|b| *b == b','));
            let mut nearest = peer;
            for element in elements {
                let Some(address) = address(element.trim_ascii()) else { break };
                nearest = address;
                if !front.trusts(address.ip()) {
                    break;
                }
            }
            nearest
        }
        FrontField::Forwarded => of_forwarded(front, fields, peer).client,
        FrontField::Address(_) => {
            let value = only(&values(fields, front.field.name().as_bytes()));
            value.and_then(|value| address(value.trim_ascii())).unwrap_or(peer)
        }
    }
}

/// The scheme of the client's request, if the proxy names one.
pub fn scheme(front: &Front, fields: &Fields<'_>) -> Option<Scheme> {
    match front.field {
        FrontField::Forwarded => of_forwarded(front, fields, NO_ADDRESS).scheme,
        _ => {
            let value = *values(fields, b"X-Forwarded-Proto").last()?;
            Scheme::of(value.rsplit(|b| *b == b',').next()?.trim_ascii())
        }
    }
}

/// The host of the client's request, if the proxy names one and the listener takes it.
pub fn host<'f>(front: &Front, fields: &Fields<'f>) -> Option<&'f [u8]> {
    if !front.host {
        return None;
    }
    let host = match front.field {
        FrontField::Forwarded => of_forwarded(front, fields, NO_ADDRESS).host,
        _ => only(&values(fields, b"X-Forwarded-Host")).map(<[u8]>::trim_ascii),
    };
    host.filter(|host| !host.is_empty() && http1::parse_authority(host).is_ok())
}

/// Stands for the proxy where only the other parts matter.
const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// What `Forwarded` says. The scheme and the host are those of the element that names the client.
fn of_forwarded<'f>(front: &Front, fields: &Fields<'f>, peer: SocketAddr) -> Named<'f> {
    let mut named = Named { client: peer, scheme: None, host: None };
    for value in values(fields, b"Forwarded").into_iter().rev() {
        let Some(elements) = elements(value) else { return named };
        for element in elements.into_iter().rev() {
            let Some(client) = element.client.and_then(address) else { return named };
            let scheme = element.scheme.and_then(Scheme::of);
            named = Named { client, scheme, host: element.host };
            if !front.trusts(client.ip()) {
                return named;
            }
        }
    }
    named
}

/// The parameters of one element that matter.
#[derive(Default)]
struct Element<'f> {
    client: Option<&'f [u8]>,
    scheme: Option<&'f [u8]>,
    host: Option<&'f [u8]>,
}

/// The elements of a value; `None`: it is malformed.
fn elements(mut rest: &[u8]) -> Option<Vec<Element<'_>>> {
    let mut all = vec![Element::default()];
    loop {
        let equals = memchr::memchr(b'=', rest)?;
        let name = rest[..equals].trim_ascii();
        rest = &rest[equals + 1..];
        let value = match rest.strip_prefix(b"\"") {
            Some(quoted) => {
                let end = memchr::memchr2(b'"', b'\\', quoted)?;
                // A backslash escapes what needs no escape in an address, a host or a scheme.
                if quoted[end] == b'\\' {
                    return None;
                }
                rest = &quoted[end + 1..];
                &quoted[..end]
            }
            None => {
                let end = memchr::memchr2(b';', b',', rest).unwrap_or(rest.len());
                let value = rest[..end].trim_ascii();
                rest = &rest[end..];
                if value.contains(&b'"') {
                    return None;
                }
                value
            }
        };
        let last = all.last_mut()?;
        let place = match name {
            name if name.eq_ignore_ascii_case(b"for") => Some(&mut last.client),
            name if name.eq_ignore_ascii_case(b"proto") => Some(&mut last.scheme),
            name if name.eq_ignore_ascii_case(b"host") => Some(&mut last.host),
            name if name.is_empty() || name.iter().any(|b| !is_token(*b)) => return None,
            _ => None,
        };
        if let Some(place) = place
            && place.replace(value).is_some()
        {
            // Each parameter comes once in an element.
            return None;
        }
        rest = rest.trim_ascii_start();
        match rest.split_first() {
            None => return Some(all),
            Some((b';', after)) => rest = after,
            Some((b',', after)) => {
                all.push(Element::default());
                rest = after;
            }
            Some(_) => return None,
        }
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

/// An address, with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`,
/// `[2001:db8::1]:80`.
fn address(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let ip: Result<IpAddr, _> = bare.parse();
    let found = match ip {
        Ok(ip) => SocketAddr::new(ip, 0),
        Err(_) => text.parse().ok()?,
    };
    Some(SocketAddr::new(found.ip().to_canonical(), found.port()))
}

/// The values of all fields of this name. A client that names the field in `Connection` must not
/// hide what the proxy has written: those fields are read too.
fn values<'f>(fields: &Fields<'f>, name: &[u8]) -> Vec<&'f [u8]> {
    fields.values(name).chain(fields.for_this_hop(name)).collect()
}

/// The only one of these values.
fn only<'f>(values: &[&'f [u8]]) -> Option<&'f [u8]> {
    match *values {
        [value] => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http1::{Limits, Scratch, parse_request};

    use super::*;

    fn named(front: &Front, fields: &str) -> (String, Option<Scheme>, Option<String>) {
        let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut scratch = Scratch::new();
        let head = parse_request(bytes.as_bytes(), &mut scratch, &Limits::default());
        let head = head.unwrap().unwrap();
        let client = client(front, &head.fields, "10.0.0.1:99".parse().unwrap());
        let host = host(front, &head.fields).map(|host| String::from_utf8_lossy(host).into());
        (client.ip().to_string(), scheme(front, &head.fields), host)
    }

    fn front(field: &str) -> Front {
        let networks = vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        Front { networks, field: field.parse().unwrap(), host: true }
    }

    #[test]
    fn a_list_is_read_from_the_right_to_the_first_stranger() {
        let front = front("x-forwarded-for");
        for (value, client) in [
            ("X-Forwarded-For: 1.1.1.1, 192.0.2.7", "192.0.2.7"),
            ("X-Forwarded-For: 1.1.1.1, 192.0.2.7:5000, 10.2.2.2", "192.0.2.7"),
            ("X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-For: 192.0.2.7\t,fd00::1", "192.0.2.7"),
            ("X-Forwarded-For: [2001:db8::7]:443,::ffff:10.0.0.9", "2001:db8::7"),
            ("X-Forwarded-For: 10.3.3.3, 10.2.2.2", "10.3.3.3"),
            ("Connection: X-Forwarded-For\r\nX-Forwarded-For: 192.0.2.7", "192.0.2.7"),
            // A malformed element ends the list: the nearest trusted proxy counts.
            ("X-Forwarded-For: 192.0.2.7, unknown", "10.0.0.1"),
            ("X-Forwarded-For: 192.0.2.7, , 10.2.2.2", "10.2.2.2"),
            ("X-Forwarded-For: 192.0.2.7, 10.2.2.2,", "10.0.0.1"),
            ("X-Forwarded-For: 127.1, 10.2.2.2", "10.2.2.2"),
            ("X-Forwarded-For:", "10.0.0.1"),
            ("X-Real-IP: 192.0.2.7", "10.0.0.1"),
        ] {
            assert_eq!(named(&front, &format!("{value}\r\n")).0, client, "{value}");
        }
    }

    #[test]
    fn the_element_that_names_the_client_names_its_scheme() {
        let front = front("Forwarded");
        let https = Some(Scheme::Https);
        for (value, client, scheme, host) in [
            ("for=192.0.2.7;proto=https;host=shop", "192.0.2.7", https, Some("shop")),
            ("For=\"[2001:db8::7]:9\" ; Proto=HTTPS, for=10.1.1.1", "2001:db8::7", https, None),
            ("for=1.1.1.1;proto=https, for=192.0.2.7", "192.0.2.7", None, None),
            // What a client has left open must not swallow what a proxy has added.
            ("for=\"1.1.1.1, for=192.0.2.7", "10.0.0.1", None, None),
            ("for=\"a\\\", for=\"[2001:db8::7]\"", "10.0.0.1", None, None),
            ("proto=https, for=10.1.1.1", "10.1.1.1", None, None),
            ("for=_hidden;proto=https", "10.0.0.1", None, None),
            ("for=192.0.2.7;for=192.0.2.8", "10.0.0.1", None, None),
            ("for=192.0.2.7;host=\"a/b\"", "192.0.2.7", None, None),
        ] {
            let found = named(&front, &format!("Forwarded: {value}\r\n"));
            assert_eq!(found, (client.into(), scheme, host.map(str::to_owned)), "{value}");
        }
    }

    #[test]
    fn a_field_with_one_address_has_one_address() {
        let front = front("X-Real-IP");
        for (fields, client) in [
            ("X-Real-IP: 192.0.2.7\r\nX-Forwarded-For: 1.1.1.1\r\n", "192.0.2.7"),
            ("X-Real-IP: 1.1.1.1\r\nX-Real-IP: 192.0.2.7\r\n", "10.0.0.1"),
            ("X-Real-IP: 1.1.1.1, 192.0.2.7\r\n", "10.0.0.1"),
        ] {
            assert_eq!(named(&front, fields).0, client, "{fields}");
        }
        let both = "X-Forwarded-Proto: http, https\r\nX-Forwarded-Host: shop:8443\r\n";
        assert_eq!(named(&front, both).1, Some(Scheme::Https));
        assert_eq!(named(&front, both).2.as_deref(), Some("shop:8443"));
        let twice = "X-Forwarded-Host: a\r\nX-Forwarded-Host: b\r\nX-Forwarded-Proto: ftp\r\n";
        assert_eq!((named(&front, twice).1, named(&front, twice).2), (None, None));
    }
}
