//! `host[:port]` as in Host, absolute-form and authority-form (RFC 3986 section 3.2).

use crate::RejectReason;
use crate::chars::{self, PLAIN, REG_NAME};

/// A checked `host[:port]`. The host is not empty; an IPv6 address keeps its brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority<'b> {
    /// A registered name, an IPv4 address, or an IPv6 address in brackets; case as sent.
    pub host: &'b [u8],
    /// The port, unless it is absent or empty.
    pub port: Option<u16>,
}

/// Parses `host[:port]`. A host has no empty label, except the root's after its last dot: readers
/// of `a..` and `.a` do not agree on which host that is.
///
/// # Errors
/// [`RejectReason::UserInfo`] for anything with an `@`, [`RejectReason::InvalidAuthority`] else.
pub fn parse_authority(bytes: &[u8]) -> Result<Authority<'_>, RejectReason> {
    if let [b'[', ..] = bytes {
        return parse_bracketed(bytes);
    }
    let (host_len, has_percent) = host_len(bytes)?;
    let (host, rest) = bytes.split_at(host_len);
    let port = match rest {
        [] => None,
        [b':', digits @ ..] => parse_port(digits).ok_or_else(|| fault(bytes))?,
        _ => return Err(fault(bytes)),
    };
    if host.is_empty() || (has_percent && !chars::percent_is_well_formed(host)) {
        return Err(fault(bytes));
    }
    Ok(Authority { host, port })
}

/// Length of the registered name or IPv4 address that the bytes begin with, and whether it has a
/// `%`. No label before a dot may be empty.
fn host_len(bytes: &[u8]) -> Result<(usize, bool), RejectReason> {
    let (mut len, mut label_start, mut has_percent) = (0, 0, false);
    loop {
        while bytes.get(len).is_some_and(|&byte| chars::is(byte, PLAIN)) {
            len += 1;
        }
        match bytes.get(len) {
            Some(b'.') if len == label_start => return Err(fault(bytes)),
            Some(b'.') => label_start = len + 1,
            Some(b'%') => has_percent = true,
            Some(&byte) if chars::is(byte, REG_NAME) => {}
            _ => return Ok((len, has_percent)),
        }
        len += 1;
    }
}

fn parse_bracketed(bytes: &[u8]) -> Result<Authority<'_>, RejectReason> {
    let end = memchr::memchr(b']', bytes).ok_or_else(|| fault(bytes))?;
    let (host, rest) = bytes.split_at(end + 1);
    let inner = std::str::from_utf8(&host[1..end]).map_err(|_| fault(bytes))?;
    // IPvFuture is not in use, and a zone has no meaning on another machine (RFC 9110 4.2.1).
    if inner.parse::<std::net::Ipv6Addr>().is_err() {
        return Err(fault(bytes));
    }
    match rest {
        [] => Ok(Authority { host, port: None }),
        [b':', digits @ ..] => {
            Ok(Authority { host, port: parse_port(digits).ok_or_else(|| fault(bytes))? })
        }
        _ => Err(fault(bytes)),
    }
}

/// `None`: not a port. `Some(None)`: empty, which the grammar allows.
fn parse_port(digits: &[u8]) -> Option<Option<u16>> {
    let mut port: u32 = 0;
    for &b in digits {
        if !b.is_ascii_digit() {
            return None;
        }
        port = port * 10 + u32::from(b - b'0');
        if port > u32::from(u16::MAX) {
            return None;
        }
    }
    Some(if digits.is_empty() { None } else { Some(port as u16) })
}

#[cold]
fn fault(bytes: &[u8]) -> RejectReason {
    if bytes.contains(&b'@') { RejectReason::UserInfo } else { RejectReason::InvalidAuthority }
}
