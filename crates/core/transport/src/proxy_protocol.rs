//! The PROXY protocol, versions 1 and 2: the client's address, received from a proxy in front of us
//! or sent to an upstream server (HAProxy's `proxy-protocol.txt`).
//!
//! What: a strict parser of the header's bytes received so far, and writers for both versions. No
//! I/O: the caller decides which peers to trust, and how long to wait.
//! What never happens: an incomplete header is accepted, or bytes after the header are consumed.

use std::fmt;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::canonical;
use crate::limits::PROXY_HEADER_BYTES_MAX;

/// The signature of version 1.
const V1: &[u8] = b"PROXY ";
/// The longest line of version 1, with its CRLF.
const V1_BYTES_MAX: usize = 107;
/// The signature of version 2.
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family and protocol, length.
const V2_FIXED_BYTES: usize = 16;
const _: () = assert!(V1_BYTES_MAX <= PROXY_HEADER_BYTES_MAX && V2.len() + 4 == V2_FIXED_BYTES);

/// The two ends of a connection, as seen by the proxy that accepted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The client's address.
    pub source: SocketAddr,
    /// The address that it connected to.
    pub destination: SocketAddr,
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The connection to the proxy in front of us. `None` if the proxy opened it itself (a health
    /// check), does not know, or the client has no IP address.
    pub ends: Option<Ends>,
    /// Bytes of the header; those after it are the client's.
    pub bytes: usize,
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoHeader {
    /// They do not begin with a signature.
    Missing,
    /// They violate the grammar.
    Malformed,
    /// Longer than we accept.
    TooLong,
    /// It is about datagrams, which HTTP/1 does not use.
    Datagram,
}

impl fmt::Display for NoHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoHeader::Missing => "there is no PROXY header, and this listener expects one",
            NoHeader::Malformed => "the PROXY header is malformed",
            NoHeader::TooLong => "the PROXY header is too long",
            NoHeader::Datagram => "the PROXY header is not about a TCP connection",
        })
    }
}

/// Parses the header at the start of a connection; `None`: more bytes are needed.
///
/// # Errors
/// The bytes are not a header, whatever follows.
pub fn parse_header(input: &[u8]) -> Result<Option<Header>, NoHeader> {
    let parsed = if begins(input, V2) {
        v2(input)?
    } else if begins(input, V1) {
        v1(input)?
    } else {
        return Err(NoHeader::Missing);
    };
    let bytes = parsed.as_ref().map_or(0, |header| header.bytes);
    assert!(bytes <= input.len() && bytes <= PROXY_HEADER_BYTES_MAX, "a header has arrived");
    Ok(parsed)
}

/// Whether the input received so far begins with this.
fn begins(input: &[u8], with: &[u8]) -> bool {
    let both = input.len().min(with.len());
    input[..both] == with[..both]
}

fn v1(input: &[u8]) -> Result<Option<Header>, NoHeader> {
    let within = &input[..input.len().min(V1_BYTES_MAX)];
    let Some(end) = memchr::memchr(b'\n', within) else {
        return if input.len() >= V1_BYTES_MAX { Err(NoHeader::TooLong) } else { Ok(None) };
    };
    let line = within[..end].strip_suffix(b"\r").ok_or(NoHeader::Malformed)?;
    let line = std::str::from_utf8(line).map_err(|_| NoHeader::Malformed)?;
    let rest = line.strip_prefix("PROXY ").ok_or(NoHeader::Malformed)?;
    let ends = match rest.split_once(' ') {
        Some(("TCP4", rest)) => Some(v1_ends::<Ipv4Addr>(rest)?),
        Some(("TCP6", rest)) => Some(v1_ends::<Ipv6Addr>(rest)?),
        // The rest of the line must be ignored.
        Some(("UNKNOWN", _)) => None,
        None if rest == "UNKNOWN" => None,
        _ => return Err(NoHeader::Malformed),
    };
    Ok(Some(Header { ends, bytes: end + 1 }))
}

fn v1_ends<A: std::str::FromStr + Into<IpAddr>>(rest: &str) -> Result<Ends, NoHeader> {
    let mut words = rest.split(' ');
    let mut word = || words.next().ok_or(NoHeader::Malformed);
    let (source, destination, source_port, destination_port) = (word()?, word()?, word()?, word()?);
    if words.next().is_some() {
        return Err(NoHeader::Malformed);
    }
    let address = |ip: &str, port: &str| -> Result<SocketAddr, NoHeader> {
        let ip = ip.parse::<A>().map_err(|_| NoHeader::Malformed)?;
        Ok(SocketAddr::new(ip.into(), v1_port(port)?))
    };
    Ok(Ends {
        source: address(source, source_port)?,
        destination: address(destination, destination_port)?,
    })
}

/// Decimal, without a sign or a leading zero.
fn v1_port(text: &str) -> Result<u16, NoHeader> {
    let plain = text == "0" || !text.starts_with(['0', '+']);
    if plain { text.parse().map_err(|_| NoHeader::Malformed) } else { Err(NoHeader::Malformed) }
}

fn v2(input: &[u8]) -> Result<Option<Header>, NoHeader> {
    let Some(fixed) = input.first_chunk::<V2_FIXED_BYTES>() else {
        // The version must be 2, and can be checked early.
        return match input.get(12) {
            Some(byte) if byte >> 4 != 2 => Err(NoHeader::Malformed),
            _ => Ok(None),
        };
    };
    let [.., command, family, high, low] = *fixed;
    let bytes = V2_FIXED_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if bytes > PROXY_HEADER_BYTES_MAX {
        return Err(NoHeader::TooLong);
    }
    let local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(NoHeader::Malformed),
    };
    let addresses_bytes = match family {
        0x00 => 0,
        0x11 => 12,
        0x21 => 36,
        0x31 => 216,
        0x12 | 0x22 | 0x32 if !local => return Err(NoHeader::Datagram),
        // For the sender's own connection the addresses must be ignored.
        _ if local => 0,
        _ => return Err(NoHeader::Malformed),
    };
    if !local && bytes - V2_FIXED_BYTES < addresses_bytes {
        return Err(NoHeader::Malformed);
    }
    // TLVs after the addresses are skipped.
    let Some(addresses) = input.get(V2_FIXED_BYTES..bytes) else { return Ok(None) };
    let ends = match family {
        0x11 if !local => v2_ends::<4>(addresses),
        0x21 if !local => v2_ends::<16>(addresses),
        _ => None,
    };
    Ok(Some(Header { ends, bytes }))
}

/// Both addresses, the source first, then both ports.
fn v2_ends<const N: usize>(addresses: &[u8]) -> Option<Ends>
where
    IpAddr: From<[u8; N]>,
{
    let address = |at: usize| -> Option<SocketAddr> {
        let ip = IpAddr::from(*addresses.get(at * N..)?.first_chunk::<N>()?);
        let port = addresses.get(2 * N + 2 * at..)?.first_chunk()?;
        Some(SocketAddr::new(ip, u16::from_be_bytes(*port)))
    };
    Some(Ends { source: address(0)?, destination: address(1)? })
}

/// Appends the header of version 1. Addresses of different families are written as IPv6.
pub fn append_v1(out: &mut Vec<u8>, ends: Ends) {
    let Ends { source, destination } = ends.same_family();
    let family = if source.is_ipv4() { 4 } else { 6 };
    // Writing to a Vec cannot fail.
    let _ = write!(
        out,
        "PROXY TCP{family} {} {} {} {}\r\n",
        source.ip(),
        destination.ip(),
        source.port(),
        destination.port()
    );
}

/// Appends the header of version 1 without addresses, for a connection of our own.
pub fn append_v1_unknown(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PROXY UNKNOWN\r\n");
}

/// Appends the header of version 2, without TLVs. Addresses of different families are written as
/// IPv6.
pub fn append_v2(out: &mut Vec<u8>, ends: Ends) {
    let Ends { source, destination } = ends.same_family();
    out.extend_from_slice(V2);
    match (source, destination) {
        (SocketAddr::V4(source), SocketAddr::V4(destination)) => {
            out.extend_from_slice(&[0x21, 0x11, 0, 12]);
            out.extend_from_slice(&source.ip().octets());
            out.extend_from_slice(&destination.ip().octets());
        }
        _ => {
            out.extend_from_slice(&[0x21, 0x21, 0, 36]);
            out.extend_from_slice(&as_v6(source.ip()).octets());
            out.extend_from_slice(&as_v6(destination.ip()).octets());
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
}

/// Appends the header of version 2 with the command LOCAL, for a connection of our own.
pub fn append_v2_local(out: &mut Vec<u8>) {
    out.extend_from_slice(V2);
    out.extend_from_slice(&[0x20, 0x00, 0, 0]);
}

impl Ends {
    /// Both addresses in one family. An IPv4 client of a dual-stack listener counts as IPv4.
    fn same_family(self) -> Ends {
        let (source, destination) = (canonical(self.source), canonical(self.destination));
        if source.is_ipv4() == destination.is_ipv4() {
            return Ends { source, destination };
        }
        let v6 = |at: SocketAddr| SocketAddr::new(as_v6(at.ip()).into(), at.port());
        Ends { source: v6(source), destination: v6(destination) }
    }
}

fn as_v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn ends(source: &str, destination: &str) -> Ends {
        Ends { source: at(source), destination: at(destination) }
    }

    /// Parses the header with more bytes after it, and each prefix of it, none of which is enough.
    fn parse(header: &[u8]) -> Result<Option<Ends>, NoHeader> {
        for cut in 0..header.len() {
            match parse_header(&header[..cut]) {
                Ok(None) => {}
                Ok(Some(early)) => panic!("{early:?} of {cut} bytes"),
                Err(error) => return Err(error),
            }
        }
        let mut with_more = header.to_vec();
        with_more.extend_from_slice(b"GET / HTTP/1.1\r\n");
        let found = parse_header(&with_more)?.expect("it is complete");
        assert_eq!(found.bytes, header.len());
        Ok(found.ends)
    }

    #[test]
    fn version_1() {
        let v4 = b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n";
        assert_eq!(parse(v4), Ok(Some(ends("192.0.2.1:56324", "198.51.100.7:443"))));
        let v6 = b"PROXY TCP6 2001:db8::1 2001:db8::2 0 65535\r\n";
        assert_eq!(parse(v6), Ok(Some(ends("[2001:db8::1]:0", "[2001:db8::2]:65535"))));
        assert_eq!(parse(b"PROXY UNKNOWN\r\n"), Ok(None));
        assert_eq!(parse(b"PROXY UNKNOWN ffff::1 whatever it says\r\n"), Ok(None));
    }

    #[test]
    fn version_1_is_strict() {
        for wrong in [
            &b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\n"[..],
            b"PROXY TCP4  192.0.2.1 198.51.100.7 56324 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443 \r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.7 56324\r\n",
            b"PROXY TCP4 192.0.2.01 198.51.100.7 56324 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.7 056324 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.7 +5 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.7 65536 443\r\n",
            b"PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n",
            b"PROXY TCP6 192.0.2.1 198.51.100.7 1 2\r\n",
            b"PROXY UDP4 192.0.2.1 198.51.100.7 1 2\r\n",
            b"PROXY tcp4 192.0.2.1 198.51.100.7 1 2\r\n",
            b"PROXY UNKNOWNX\r\n",
            b"PROXY \r\n",
        ] {
            assert_eq!(parse(wrong), Err(NoHeader::Malformed), "{}", wrong.escape_ascii());
        }
        let mut long = b"PROXY UNKNOWN ".to_vec();
        long.resize(V1_BYTES_MAX - 2, b'x');
        long.extend_from_slice(b"\r\n");
        assert_eq!(parse(&long), Ok(None));
        long.insert(20, b'x');
        assert_eq!(parse(&long), Err(NoHeader::TooLong));
    }

    #[test]
    fn version_2() {
        let mut v4 = Vec::new();
        append_v2(&mut v4, ends("192.0.2.1:56324", "198.51.100.7:443"));
        assert_eq!(parse(&v4), Ok(Some(ends("192.0.2.1:56324", "198.51.100.7:443"))));
        let mut v6 = Vec::new();
        append_v2(&mut v6, ends("[2001:db8::1]:1", "[2001:db8::2]:2"));
        assert_eq!(parse(&v6), Ok(Some(ends("[2001:db8::1]:1", "[2001:db8::2]:2"))));
        // TLVs are skipped.
        v4[15] += 7;
        v4.extend_from_slice(&[0x01, 0, 4, b'h', b't', b't', b'p']);
        assert_eq!(parse(&v4), Ok(Some(ends("192.0.2.1:56324", "198.51.100.7:443"))));
    }

    fn v2_of(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut out = V2.to_vec();
        out.extend_from_slice(&[command, family]);
        out.extend_from_slice(&(rest.len() as u16).to_be_bytes());
        out.extend_from_slice(rest);
        out
    }

    #[test]
    fn version_2_without_an_address() {
        for header in [
            v2_of(0x20, 0x00, &[]),
            v2_of(0x20, 0x11, &[7; 12]),
            v2_of(0x20, 0x12, &[7; 3]),
            v2_of(0x21, 0x00, &[7; 30]),
            v2_of(0x21, 0x31, &[7; 216]),
        ] {
            assert_eq!(parse(&header), Ok(None), "{header:?}");
        }
    }

    #[test]
    fn version_2_is_strict() {
        for wrong in [
            v2_of(0x11, 0x11, &[7; 12]),
            v2_of(0x22, 0x11, &[7; 12]),
            v2_of(0x21, 0x41, &[7; 12]),
            v2_of(0x21, 0x11, &[7; 11]),
            v2_of(0x21, 0x21, &[7; 12]),
            v2_of(0x21, 0x31, &[7; 36]),
        ] {
            assert_eq!(parse(&wrong), Err(NoHeader::Malformed), "{wrong:?}");
        }
        assert_eq!(parse(&v2_of(0x21, 0x12, &[7; 12])), Err(NoHeader::Datagram));
        let most = PROXY_HEADER_BYTES_MAX - V2_FIXED_BYTES;
        assert!(parse(&v2_of(0x21, 0x11, &vec![7; most])).is_ok());
        assert_eq!(parse(&v2_of(0x21, 0x11, &vec![7; most + 1])), Err(NoHeader::TooLong));
    }

    #[test]
    fn anything_else_is_no_header() {
        for wrong in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PROXX ", b"\x16\x03\x01", b"\r\n\r\nGET"] {
            assert_eq!(parse_header(wrong), Err(NoHeader::Missing));
        }
        assert_eq!(parse_header(b""), Ok(None));
    }

    #[test]
    fn written_headers_are_read_back() {
        let mapped = ("[::ffff:192.0.2.1]:1", "[::ffff:198.51.100.7]:2");
        let (v4, v6) = (("192.0.2.1:1", "198.51.100.7:2"), ("[::1]:1", "[2001:db8::2]:2"));
        let rows = [
            (v4, v4),
            (v6, v6),
            (mapped, v4),
            ((mapped.0, v4.1), v4),
            ((v4.0, v6.1), (mapped.0, v6.1)),
            ((v6.0, v4.1), (v6.0, mapped.1)),
        ];
        for (of, expected) in rows {
            for append in [append_v1, append_v2] {
                let mut out = Vec::new();
                append(&mut out, ends(of.0, of.1));
                assert_eq!(parse(&out), Ok(Some(ends(expected.0, expected.1))), "{of:?}");
            }
        }
        for append in [append_v1_unknown, append_v2_local] {
            let mut out = Vec::new();
            append(&mut out);
            assert_eq!(parse(&out), Ok(None));
        }
    }
}
