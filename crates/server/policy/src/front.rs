//! The client that a trusted proxy in front of a listener names, and the scheme and the host of
//! the client's request.
//!
//! A list is read from the right: each element was added by the proxy at the address after it. The
//! first address that is not one of a trusted proxy is the client's. What is to the left of it was
//! written by a stranger, and is not looked at, so a quote that a stranger leaves open hides
//! nothing. An element that names no address was written by a trusted proxy that does not know its
//! client: the client is [`UNKNOWN`] then, and not the proxy.
//!
//! What never happens: a field from a connection that is not from a trusted proxy is read; a client
//! of a trusted proxy that names one counts as the proxy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use config::{Front, FrontField};
use http1::{Fields, Scheme};

/// What `Forwarded` says about the request that a trusted proxy passes on.
struct Named<'f> {
    client: SocketAddr,
    scheme: Option<Scheme>,
    host: Option<&'f [u8]>,
}

/// A client whose address its trusted proxy does not name.
pub const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The client of a request with these fields that the trusted proxy at `peer` has sent.
pub fn client(front: &Front, fields: &Fields<'_>, peer: SocketAddr) -> SocketAddr {
    let last = values(fields, front.field.name().as_bytes()).into_iter().rev();
    match &front.field {
        FrontField::XForwardedFor => {
            let mut nearest = peer;
            for element in last.flat_map(elements) {
                nearest = address(element).unwrap_or(UNKNOWN);
                if !front.trusts_named(nearest.ip()) {
                    break;
                }
            }
            nearest
        }
        FrontField::Forwarded => of_forwarded(front, fields, peer).client,
        // A proxy that adds a field in place of setting it adds the last.
        FrontField::Address(_) => {
            let element = last.flat_map(elements).next();
            element.map_or(peer, |element| address(element).unwrap_or(UNKNOWN))
        }
    }
}

/// The scheme of the client's request, if the proxy names one.
pub fn scheme(front: &Front, fields: &Fields<'_>) -> Option<Scheme> {
    match front.field {
        FrontField::Forwarded => of_forwarded(front, fields, UNKNOWN).scheme,
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
        FrontField::Forwarded => of_forwarded(front, fields, UNKNOWN).host,
        _ => only(&values(fields, b"X-Forwarded-Host")).map(<[u8]>::trim_ascii),
    };
    host.filter(|host| !host.is_empty() && http1::parse_authority(host).is_ok())
}

/// What `Forwarded` says. The scheme and the host are those of the element that names the client.
fn of_forwarded<'f>(front: &Front, fields: &Fields<'f>, peer: SocketAddr) -> Named<'f> {
    let mut named = Named { client: peer, scheme: None, host: None };
    let last = values(fields, b"Forwarded").into_iter().rev();
    for element in last.flat_map(elements) {
        let element = Element::of(element).unwrap_or_default();
        let client = element.client.and_then(address).unwrap_or(UNKNOWN);
        named = Named { client, scheme: element.scheme.and_then(Scheme::of), host: element.host };
        if !front.trusts_named(client.ip()) {
            break;
        }
    }
    named
}

/// The elements of a list, from the right. Empty ones do not count (RFC 9110, 5.6.1).
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    split_from_right(value, b',')
}

/// The parts between separators that are in no quoted string, from the right. Quotes are counted
/// from the right too.
fn split_from_right(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    let parts = std::iter::from_fn(move || {
        let text = rest?;
        let mut quoted = false;
        let at = (0..text.len()).rev().find(|&at| {
            let escapes = text[..at].iter().rev().take_while(|b| **b == b'\\').count();
            quoted ^= text[at] == b'"' && escapes % 2 == 0;
            text[at] == separator && !quoted
        });
        rest = at.map(|at| &text[..at]);
        Some(text[at.map_or(0, |at| at + 1)..].trim_ascii())
    });
    parts.filter(|part| !part.is_empty())
}

/// The parameters of one element that matter.
#[derive(Default)]
struct Element<'f> {
    client: Option<&'f [u8]>,
    scheme: Option<&'f [u8]>,
    host: Option<&'f [u8]>,
}

impl<'f> Element<'f> {
    /// `None`: it is malformed.
    fn of(text: &'f [u8]) -> Option<Element<'f>> {
        let mut element = Element::default();
        for parameter in split_from_right(text, b';') {
            let equals = memchr::memchr(b'=', parameter)?;
            let (name, value) = (&parameter[..equals], &parameter[equals + 1..]);
            let quoted = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
            let value = quoted.unwrap_or(value);
            let place = match name {
                name if name.eq_ignore_ascii_case(b"for") => &mut element.client,
                name if name.eq_ignore_ascii_case(b"proto") => &mut element.scheme,
                name if name.eq_ignore_ascii_case(b"host") => &mut element.host,
                _ => continue,
            };
            // No address, scheme or host has a character that a quoted string escapes. Each
            // parameter comes once.
            if value.iter().any(|b| matches!(b, b'"' | b'\\')) || place.replace(value).is_some() {
                return None;
            }
        }
        Some(element)
    }
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
            // A trusted proxy that names no address has a client, and is none.
            ("X-Forwarded-For: 192.0.2.7, unknown", "0.0.0.0"),
            ("X-Forwarded-For: 127.1, 10.2.2.2", "0.0.0.0"),
            ("X-Forwarded-For: \"10.0.0.1, 192.0.2.7", "192.0.2.7"),
            // Empty elements do not count.
            ("X-Forwarded-For: 192.0.2.7, , 10.2.2.2", "192.0.2.7"),
            ("X-Forwarded-For: 192.0.2.7, 10.2.2.2,", "192.0.2.7"),
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
            // What a client writes must not swallow what a proxy has added.
            ("for=\"1.1.1.1, for=192.0.2.7", "192.0.2.7", None, None),
            ("for=\"a\\\", for=\"[2001:db8::7]\"", "2001:db8::7", None, None),
            ("for=a;by=\"\\\"\", for=192.0.2.7;proto=https", "192.0.2.7", https, None),
            ("x!y=1;;, , for=192.0.2.7;by=_b", "192.0.2.7", None, None),
            // Nor does it count as one.
            ("proto=https, for=10.1.1.1", "0.0.0.0", https, None),
            ("for=_hidden;proto=https", "0.0.0.0", https, None),
            ("for=192.0.2.7;for=192.0.2.8", "0.0.0.0", None, None),
            ("for=\"10.0.0.1\\\"\"", "0.0.0.0", None, None),
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
            // A proxy that adds a field adds the last.
            ("X-Real-IP: 1.1.1.1\r\nX-Real-IP: 192.0.2.7\r\n", "192.0.2.7"),
            ("X-Real-IP: 1.1.1.1, 192.0.2.7\r\n", "192.0.2.7"),
            ("X-Real-IP: unknown\r\n", "0.0.0.0"),
            ("X-Real-IP:\r\n", "10.0.0.1"),
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
