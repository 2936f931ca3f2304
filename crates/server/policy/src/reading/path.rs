//! The readings of a path.
//!
//! A reading is made from the received path by steps. Every origin takes some of them, in its
//! order. [`all`] takes each step on each result until nothing new comes, so it has the results of
//! all orders. The steps before and after percent-decoding differ only in what is encoded then:
//!
//! | step | is taken by |
//! | --- | --- |
//! | decode once, leaving `%2F` and `%00` | every origin; nothing else is compared with a rule |
//! | take a decoded `%2F` for a slash | nginx, lighttpd, Go, PHP, WSGI, ASGI |
//! | end the path at a decoded `%00` | programs in C behind a server that lets it through |
//! | drop `;parameters` of segments | Tomcat, Jetty |
//! | take a backslash for a slash | Windows, URLs by WHATWG in Node |
//! | resolve dot segments | most, some before decoding |
//! | merge slashes | nginx, Apache, Tomcat; not Go, Node, WSGI |
//! | take `//name` at the beginning for a host | URLs by RFC 3986 and by WHATWG in Node |
//!
//! Repeated slashes are ordinary: a client joins two parts with a slash each. So a reading that
//! leaves them, or takes one part for a host, is *weak*: it may deny and keep from the store, but
//! no request is refused because its weak readings lead to another upstream.

use std::borrow::Cow;

use caching::remove_dot_segments;

use crate::limits::{READINGS_BYTES_MAX, READINGS_MAX};

/// One reading of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) path: Vec<u8>,
    pub(crate) is_weak: bool,
}

/// What stays percent-encoded in a normalised path: `/` and NUL, which only some origins decode,
/// and the percent sign.
pub(crate) const LEFT_ENCODED: [&[u8; 3]; 3] = [SLASH, NUL, PERCENT];

const SLASH: &[u8; 3] = b"%2F";
const NUL: &[u8; 3] = b"%00";
const PERCENT: &[u8; 3] = b"%25";

pub(super) fn without_query(path_and_query: &[u8]) -> &[u8] {
    memchr::memchr(b'?', path_and_query).map_or(path_and_query, |at| &path_and_query[..at])
}

/// The path before the query, if it has only one reading. A scan that allocates nothing.
#[inline]
pub(super) fn only(path_and_query: &[u8]) -> Option<&[u8]> {
    let mut is_after_slash = false;
    for (at, &byte) in path_and_query.iter().enumerate() {
        match byte {
            b'?' => return Some(&path_and_query[..at]),
            b'%' | b';' | b'\\' => return None,
            b'/' | b'.' if is_after_slash => return None,
            byte => is_after_slash = byte == b'/',
        }
    }
    Some(path_and_query)
}

/// A path as most origins read it: decoded, except [`LEFT_ENCODED`], with repeated slashes as one,
/// and without dot segments (RFC 3986, 6.2.2). Paths of rules are compared in this form.
pub(crate) fn normalised(path: &[u8]) -> Cow<'_, [u8]> {
    let odd = |pair: &[u8]| pair[0] == b'%' || (pair[0] == b'/' && matches!(pair[1], b'/' | b'.'));
    if !path.windows(2).any(odd) && !path.ends_with(b"%") {
        return Cow::Borrowed(path);
    }
    let decoded = decoded(path);
    Cow::Owned(remove_dot_segments(&merged(&decoded).unwrap_or(decoded)))
}

/// All readings of a path without its query, the normalised one first; `None` if there are more
/// than [`READINGS_MAX`].
pub(super) fn all(path: &[u8]) -> Option<Vec<Read>> {
    let mut found = Found::default();
    let is_encoded = path.contains(&b'%');
    found.add(State { path: path.to_vec(), is_decoded: !is_encoded })?;
    found.close(&[])?;
    let strong = found.states.len();
    if found.states.iter().any(|state| state.path.starts_with(b"//")) {
        found.close(&[without_host])?;
    }
    let normal = normalised(path);
    debug_assert!(
        !path.starts_with(b"/") || found.states.iter().any(|state| *state.path == *normal),
        "the steps lead to the normalised path"
    );
    let first = Read { path: normal.to_vec(), is_weak: false };
    let decoded = found.states.iter().enumerate().filter(|(_, state)| state.is_decoded);
    let others = decoded.filter(|(_, state)| *state.path != *normal).map(|(at, state)| {
        let is_weak = at >= strong || memchr::memmem::find(&state.path, b"//").is_some();
        Read { path: state.path.clone(), is_weak }
    });
    Some([first].into_iter().chain(others).collect())
}

/// A path on its way to a reading.
#[derive(Debug, PartialEq, Eq)]
struct State {
    path: Vec<u8>,
    /// Its percent signs are those of [`LEFT_ENCODED`] only.
    is_decoded: bool,
}

/// A step from one path to another; `None` if it changes nothing.
type Step = fn(&State) -> Option<State>;

/// The steps whose readings count fully.
const STEPS: [Step; 7] = [
    |state| (!state.is_decoded).then(|| State { path: decoded(&state.path), is_decoded: true }),
    |state| state.then(state.is_decoded.then(|| with_slashes_decoded(&state.path))??),
    |state| state.then(state.is_decoded.then(|| before_nul(&state.path))??),
    |state| state.then(without_parameters(&state.path)?),
    |state| state.then(with_slashes_forward(&state.path)?),
    |state| state.then(merged(&state.path)?),
    |state| {
        state.then(
            memchr::memmem::find(&state.path, b"/.").map(|_| remove_dot_segments(&state.path))?,
        )
    },
];

/// The step to what follows a host at the beginning, as in `//host/path`. `URL` in Node skips any
/// number of slashes before the host.
fn without_host(state: &State) -> Option<State> {
    let rest = state.path.strip_prefix(b"//")?;
    let rest = &rest[rest.iter().take_while(|byte| **byte == b'/').count()..];
    let end = memchr::memchr(b'/', rest);
    state.then(end.map_or(b"/".to_vec(), |at| rest[at..].to_vec()))
}

impl State {
    /// Another path that is encoded as this one is.
    fn then(&self, path: Vec<u8>) -> Option<State> {
        (path != self.path).then_some(State { path, is_decoded: self.is_decoded })
    }
}

/// The paths found so far.
#[derive(Default)]
struct Found {
    states: Vec<State>,
    bytes: usize,
}

impl Found {
    /// Takes these steps, besides [`STEPS`], until nothing new comes.
    fn close(&mut self, steps: &[Step]) -> Option<()> {
        let mut next = 0;
        while let Some(state) = self.states.get(next) {
            next += 1;
            let made: Vec<State> =
                STEPS.iter().chain(steps).filter_map(|step| step(state)).collect();
            made.into_iter().try_for_each(|state| self.add(state))?;
        }
        Some(())
    }

    fn add(&mut self, state: State) -> Option<()> {
        if self.states.contains(&state) {
            return Some(());
        }
        self.bytes += state.path.len();
        self.states.push(state);
        (self.states.len() <= READINGS_MAX && self.bytes <= READINGS_BYTES_MAX).then_some(())
    }
}

/// Its bytes decoded, except those of [`LEFT_ENCODED`]. A percent sign that encodes nothing is
/// encoded, as some origins read it.
pub(crate) fn decoded(path: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut out = Vec::with_capacity(path.len());
    let mut at = 0;
    while at < path.len() {
        let pair = match path[at] {
            b'%' => digit(path.get(at + 1)).zip(digit(path.get(at + 2))),
            _ => None,
        };
        let byte = pair.map_or(path[at], |(high, low)| (high * 16 + low) as u8);
        at += if pair.is_some() { 3 } else { 1 };
        match (byte, pair) {
            (b'/', Some(_)) => out.extend_from_slice(SLASH),
            (0, Some(_)) => out.extend_from_slice(NUL),
            (b'%', _) => out.extend_from_slice(PERCENT),
            (byte, _) => out.push(byte),
        }
    }
    out
}

/// The slashes of a decoded path that [`decoded`] has left.
fn with_slashes_decoded(path: &[u8]) -> Option<Vec<u8>> {
    memchr::memmem::find(path, SLASH)?;
    if planted::is(planted::Bug::EncodedSlashKept) {
        return None;
    }
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = memchr::memchr(b'%', rest) {
        let (before, after) = rest.split_at(at);
        let (triple, after) = after.split_at(SLASH.len());
        debug_assert!(LEFT_ENCODED.iter().any(|left| *left == triple), "the path is decoded");
        out.extend_from_slice(before);
        out.extend_from_slice(if triple == SLASH { b"/" } else { triple });
        rest = after;
    }
    out.extend_from_slice(rest);
    Some(out)
}

fn before_nul(path: &[u8]) -> Option<Vec<u8>> {
    let at = memchr::memmem::find(path, NUL)?;
    Some(if at == 0 { b"/".to_vec() } else { path[..at].to_vec() })
}

/// Without `;` and what follows it in its segment.
fn without_parameters(path: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr(b';', path)?;
    let mut is_parameter = false;
    let kept = path.iter().copied().filter(|byte| {
        is_parameter = (is_parameter || *byte == b';') && *byte != b'/';
        !is_parameter
    });
    Some(kept.collect())
}

fn with_slashes_forward(path: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr(b'\\', path)?;
    Some(path.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect())
}

/// With one slash for several.
fn merged(path: &[u8]) -> Option<Vec<u8>> {
    memchr::memmem::find(path, b"//")?;
    let mut out = path.to_vec();
    out.dedup_by(|after, before| *after == b'/' && *before == b'/');
    Some(out)
}
