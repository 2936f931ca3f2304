//! The readings of a host.
//!
//! Rules compare hosts without ports, in lower case, without the root's dot, and addresses of IPv6
//! in their shortest form (RFC 5952). Some origins also decode a percent-encoded host, take an
//! address of IPv4 in one of IPv6 for the first, or take `127.1` for `127.0.0.1`, as inet_aton()
//! and WHATWG do.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::path;

/// The host of an authority, if it has only one reading and is written as rules compare it.
#[inline]
pub(super) fn only(authority: &[u8]) -> Option<&[u8]> {
    let end = authority.iter().position(|byte| *byte == b':').unwrap_or(authority.len());
    let host = &authority[..end];
    let is_plain = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_');
    let last = host.iter().rposition(|byte| *byte == b'.').map_or(host, |dot| &host[dot + 1..]);
    let is_name = !last.first().is_none_or(u8::is_ascii_digit);
    ((is_name && host.iter().all(is_plain)) || host.is_empty() || is_address(host)).then_some(host)
}

/// All readings of the host of an authority, the one that rules compare first.
pub(super) fn all(authority: &[u8]) -> Vec<Vec<u8>> {
    let mut all = vec![usual(authority).into_owned()];
    let decoded = normalised(without_port(&path::decoded(&all[0])));
    if !all.contains(&decoded) {
        all.push(decoded);
    }
    let addresses: Vec<Ipv4Addr> = all.iter().filter_map(|host| v4(host)).collect();
    for address in addresses.iter().map(|address| address.to_string().into_bytes()) {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    all
}

/// The host of an authority as rules compare it.
pub(super) fn usual(authority: &[u8]) -> Cow<'_, [u8]> {
    let read = || Cow::Owned(normalised(without_port(authority)));
    only(authority).map_or_else(read, Cow::Borrowed)
}

/// A host as rules compare it.
pub(crate) fn normalised(host: &[u8]) -> Vec<u8> {
    match v6(host) {
        Some(address) => format!("[{address}]").into_bytes(),
        None => {
            let end = host.iter().rposition(|byte| *byte != b'.').map_or(0, |at| at + 1);
            host[..end].to_ascii_lowercase()
        }
    }
}

fn without_port(authority: &[u8]) -> &[u8] {
    let in_brackets = authority.iter().rposition(|byte| *byte == b']').unwrap_or(0);
    let port = authority[in_brackets..].iter().position(|byte| *byte == b':');
    port.map_or(authority, |at| &authority[..in_brackets + at])
}

#[inline]
fn is_address(host: &[u8]) -> bool {
    std::str::from_utf8(host).is_ok_and(|host| host.parse::<Ipv4Addr>().is_ok())
}

fn v6(host: &[u8]) -> Option<Ipv6Addr> {
    let inner = host.strip_prefix(b"[")?.strip_suffix(b"]")?;
    std::str::from_utf8(inner).ok()?.parse().ok()
}

/// The address of IPv4 that a host may be taken for.
fn v4(host: &[u8]) -> Option<Ipv4Addr> {
    if let Some(address) = v6(host) {
        return address.to_ipv4_mapped();
    }
    let parts: Vec<&str> = std::str::from_utf8(host).ok()?.split('.').collect();
    let (last, before) = parts.split_last().filter(|(_, before)| before.len() <= 3)?;
    let mut bits = 0;
    for (at, part) in before.iter().enumerate() {
        bits |= number(part).filter(|part| *part <= 255)? << (24 - 8 * at);
    }
    // The last number has all remaining bytes.
    let last = number(last).filter(|last| u64::from(*last) < 1 << (32 - 8 * before.len()))?;
    Some(Ipv4Addr::from_bits(bits | last))
}

/// A number as C writes it.
fn number(text: &str) -> Option<u32> {
    let digits = |text: &str, radix| {
        // A sign is no digit.
        let is_number = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_number.then(|| u32::from_str_radix(text, radix).ok()).flatten()
    };
    match text.strip_prefix("0x") {
        Some("") => Some(0),
        Some(hex) => digits(hex, 16),
        None if text.len() > 1 && text.starts_with('0') => digits(&text[1..], 8),
        None => digits(text, 10),
    }
}
