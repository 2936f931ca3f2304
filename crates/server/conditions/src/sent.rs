//! `url` and `target`: the URL as the client has sent it, decoded once.
//!
//! They have the form in which Squid compares a URL with an expression: the host in lower case, no
//! port that is the default of the scheme, and a slash in place of an empty path. Dots and slashes
//! of the path stay as they are. The URL of a request for a tunnel is `host:port`, and its target
//! is empty.

use std::io::Write;

use http1::Scheme;

use crate::facts::{Facts, Sent};
use crate::scratch::Scratch;
use crate::value::{Value, digit};

pub(crate) fn url<'c, 'f>(facts: &Facts<'f>, scratch: &mut Scratch) -> Value<'c, 'f> {
    let Facts { host, scheme, sent, .. } = facts;
    let bytes = scratch.bytes();
    let start = bytes.len();
    if sent.tunnel_port.is_none() {
        bytes.extend_from_slice(scheme.as_bytes());
        bytes.extend_from_slice(b"://");
    }
    bytes.extend_from_slice(host);
    let port = sent.tunnel_port.or_else(|| {
        let port = http1::parse_authority(sent.authority).ok()?.port?;
        (Scheme::of(scheme.as_bytes()).map(Scheme::port) != Some(port)).then_some(port)
    });
    if let Some(port) = port {
        write!(bytes, ":{port}").expect("a vector takes all bytes");
    }
    add_target(sent, bytes);
    decode(bytes, start);
    scratch.made(start)
}

pub(crate) fn target<'c, 'f>(sent: &Sent<'f>, scratch: &mut Scratch) -> Value<'c, 'f> {
    let path = sent.path_and_query;
    if sent.tunnel_port.is_none() && path.starts_with(b"/") && !path.contains(&b'%') {
        return Value::Given(path);
    }
    let bytes = scratch.bytes();
    let start = bytes.len();
    add_target(sent, bytes);
    decode(bytes, start);
    scratch.made(start)
}

fn add_target(sent: &Sent<'_>, bytes: &mut Vec<u8>) {
    if sent.tunnel_port.is_some() {
        return;
    }
    if matches!(sent.path_and_query, [] | [b'?', ..]) {
        bytes.push(b'/');
    }
    bytes.extend_from_slice(sent.path_and_query);
}

/// Decodes the bytes from `start` on. `%00` and a `%` without two digits stay, and `%%` is `%`.
fn decode(bytes: &mut Vec<u8>, start: usize) {
    let (mut from, mut to) = (start, start);
    while let [first, rest @ ..] = &bytes[from..] {
        let (byte, taken) = match (first, rest) {
            (b'%', [b'%', ..]) => (b'%', 2),
            (b'%', [high, low, ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) if high | low != 0 => (high << 4 | low, 3),
                _ => (b'%', 1),
            },
            (byte, _) => (*byte, 1),
        };
        bytes[to] = byte;
        (from, to) = (from + taken, to + 1);
        debug_assert!(to <= from, "decoding makes a text shorter");
    }
    bytes.truncate(to);
}
