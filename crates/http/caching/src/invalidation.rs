//! What an unsafe request invalidates (RFC 9111, 4.4).
//!
//! URIs are compared after resolving them against the target (RFC 3986, 5.2). Responses of another
//! origin are never touched, so no origin can empty another's cache.

use crate::fields::{FieldSource, trim};

/// The target of a request, by which its stored responses are keyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetUri<'a> {
    /// `http` or `https`.
    pub scheme: &'a str,
    /// Host and port as in the request.
    pub authority: &'a [u8],
    /// Path and query.
    pub path_and_query: &'a [u8],
}

/// Whether this exchange invalidates the stored responses of its target: the method is unsafe or
/// unknown, and the response is not an error.
#[must_use]
pub fn invalidates(method: &[u8], status: u16) -> bool {
    !matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"CONNECT" | b"PROPFIND")
        && (200..400).contains(&status)
        && !planted::is(planted::Bug::NothingInvalidated)
}

/// Further paths (with query) on the target's origin to invalidate: those of `Location` and
/// `Content-Location`, without the target itself.
pub fn invalidated_locations<F: FieldSource + ?Sized>(
    target: &TargetUri<'_>,
    response: &F,
) -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    for name in ["location", "content-location"] {
        for value in response.values(name) {
            if let Some(path) = resolve_same_origin(target, trim(value))
                && path != target.path_and_query
                && !paths.contains(&path)
            {
                paths.push(path);
            }
        }
    }
    paths
}

/// Resolves a reference against the target. Returns path and query if it has the same origin.
#[must_use]
pub fn resolve_same_origin(target: &TargetUri<'_>, reference: &[u8]) -> Option<Vec<u8>> {
    let reference = reference.split(|&byte| byte == b'#').next().unwrap_or_default();
    let (scheme, rest) = split_scheme(reference);
    if scheme.is_some_and(|scheme| !scheme.eq_ignore_ascii_case(target.scheme.as_bytes())) {
        return None;
    }
    if let Some(rest) = rest.strip_prefix(b"//") {
        let end = rest.iter().position(|&byte| byte == b'/' || byte == b'?').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        return same_authority(target, authority).then(|| absolute(path));
    }
    if scheme.is_some() {
        // `http:path` has no authority: not resolved (RFC 3986, 5.2.2, strict).
        return None;
    }
    let (base_path, _) = split_query(target.path_and_query);
    let (path, query) = split_query(rest);
    let mut merged = match path {
        [] => base_path.to_vec(),
        [b'/', ..] => remove_dot_segments(path),
        _ => {
            let keep = base_path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
            let mut joined = base_path[..keep].to_vec();
            joined.extend_from_slice(path);
            remove_dot_segments(&joined)
        }
    };
    let inherited = if path.is_empty() { split_query(target.path_and_query).1 } else { None };
    if let Some(query) = query.or(inherited) {
        merged.push(b'?');
        merged.extend_from_slice(query);
    }
    Some(merged)
}

fn absolute(path_and_query: &[u8]) -> Vec<u8> {
    let (path, query) = split_query(path_and_query);
    let mut out = remove_dot_segments(path);
    if let Some(query) = query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    out
}

fn split_query(path_and_query: &[u8]) -> (&[u8], Option<&[u8]>) {
    match path_and_query.iter().position(|&byte| byte == b'?') {
        Some(at) => (&path_and_query[..at], Some(&path_and_query[at + 1..])),
        None => (path_and_query, None),
    }
}

/// Splits off `scheme ":"`, if the reference begins with it.
fn split_scheme(reference: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let end = reference
        .iter()
        .position(|&byte| !(byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')));
    match end {
        Some(at) if at > 0 && reference[at] == b':' && reference[0].is_ascii_alphabetic() => {
            (Some(&reference[..at]), &reference[at + 1..])
        }
        _ => (None, reference),
    }
}

/// Compares hosts case-insensitively, and ports with the default port.
fn same_authority(target: &TargetUri<'_>, authority: &[u8]) -> bool {
    let default_port: &[u8] = if target.scheme == "https" { b"443" } else { b"80" };
    let (host_a, port_a) = split_port(target.authority, default_port);
    let (host_b, port_b) = split_port(authority, default_port);
    host_a.eq_ignore_ascii_case(host_b) && port_a == port_b
}

fn split_port<'a>(authority: &'a [u8], default_port: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let bracket = authority.iter().rposition(|&byte| byte == b']').unwrap_or(0);
    match authority[bracket..].iter().rposition(|&byte| byte == b':') {
        None => (authority, default_port),
        Some(at) => {
            let port = &authority[bracket + at + 1..];
            (&authority[..bracket + at], if port.is_empty() { default_port } else { port })
        }
    }
}

/// A path made absolute, without the segments `.` and `..` (RFC 3986, 5.2.4). A path that ends with
/// one of them names a directory.
#[must_use]
pub fn remove_dot_segments(path: &[u8]) -> Vec<u8> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let mut segments: Vec<&[u8]> = Vec::new();
    let mut ends_in_directory = false;
    for segment in path.split(|&byte| byte == b'/') {
        ends_in_directory = false;
        match segment {
            b"." => ends_in_directory = true,
            b".." => {
                segments.pop();
                ends_in_directory = true;
            }
            _ => segments.push(segment),
        }
    }
    let mut out = Vec::with_capacity(path.len() + 1);
    for segment in segments {
        out.push(b'/');
        out.extend_from_slice(segment);
    }
    if ends_in_directory || out.is_empty() {
        out.push(b'/');
    }
    out
}

#[cfg(test)]
mod tests;
