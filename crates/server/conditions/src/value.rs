//! Values that are looked up in a request or a response.

use http1::{Fields, Name};

use crate::scratch::Scratch;

/// A value, or where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'c, 'f> {
    /// Bytes of the request or the response.
    Given(&'f [u8]),
    /// Bytes of the configuration.
    Fixed(&'c [u8]),
    /// Bytes of the scratch, from the first to before the last.
    Made(u32, u32),
}

/// The value of a field: the values of all fields of this name, with `, ` between them.
pub(crate) fn field<'c, 'f>(
    fields: &Fields<'f>,
    (name, spelling): (Name, &[u8]),
    scratch: &mut Scratch,
) -> Value<'c, 'f> {
    if name != Name::Other {
        if !fields.is_repeated(name) {
            return Value::Given(fields.get(name).unwrap_or_default());
        }
        return joined(fields.all(name), scratch);
    }
    joined(others(fields, spelling), scratch)
}

pub(crate) fn has_field(fields: &Fields<'_>, name: Name, spelling: &[u8]) -> bool {
    match name {
        Name::Other => others(fields, spelling).next().is_some(),
        known => fields.has(known),
    }
}

/// The values of fields with a name that is not known to `http1`.
fn others<'f>(fields: &Fields<'f>, spelling: &[u8]) -> impl Iterator<Item = &'f [u8]> {
    let is_it = |name: &[u8]| name.len() == spelling.len() && name.eq_ignore_ascii_case(spelling);
    fields.iter().filter(move |(name, _)| is_it(name)).map(|(_, value)| value)
}

fn joined<'c, 'f>(
    mut values: impl Iterator<Item = &'f [u8]>,
    scratch: &mut Scratch,
) -> Value<'c, 'f> {
    let Some(first) = values.next() else { return Value::Given(b"") };
    let Some(second) = values.next() else { return Value::Given(first) };
    let bytes = scratch.bytes();
    let start = bytes.len();
    bytes.extend_from_slice(first);
    for value in std::iter::once(second).chain(values) {
        bytes.extend_from_slice(b", ");
        bytes.extend_from_slice(value);
    }
    scratch.made(start)
}

/// The value of the first cookie with this name.
pub(crate) fn cookie<'f>(fields: &Fields<'f>, name: &[u8]) -> Option<&'f [u8]> {
    for line in fields.all(Name::Cookie) {
        for pair in line.split(|byte| *byte == b';') {
            let pair = pair.trim_ascii();
            let Some(rest) = pair.strip_prefix(name) else { continue };
            let Some(value) = rest.trim_ascii_start().strip_prefix(b"=") else { continue };
            return Some(value.trim_ascii_start());
        }
    }
    None
}

/// The raw values of the query parameters with this name.
fn raw_args<'f>(query: &'f [u8], name: &[u8]) -> impl Iterator<Item = &'f [u8]> {
    query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).filter_map(move |pair| {
        let end = memchr::memchr(b'=', pair);
        let (key, value) = match end {
            Some(end) => (&pair[..end], &pair[end + 1..]),
            None => (pair, &pair[pair.len()..]),
        };
        is_decoded(key, name).then_some(value)
    })
}

pub(crate) fn has_arg(query: &[u8], name: &[u8]) -> bool {
    raw_args(query, name).next().is_some()
}

/// The decoded values of the query parameters with this name, with `, ` between them.
pub(crate) fn arg<'c, 'f>(query: &'f [u8], name: &[u8], scratch: &mut Scratch) -> Value<'c, 'f> {
    let mut values = raw_args(query, name);
    let Some(first) = values.next() else { return Value::Given(b"") };
    let second = values.next();
    if second.is_none() && memchr::memchr2(b'%', b'+', first).is_none() {
        return Value::Given(first);
    }
    let bytes = scratch.bytes();
    let start = bytes.len();
    bytes.extend(Decoded(first));
    for value in second.into_iter().chain(values) {
        bytes.extend_from_slice(b", ");
        bytes.extend(Decoded(value));
    }
    scratch.made(start)
}

fn is_decoded(key: &[u8], name: &[u8]) -> bool {
    if memchr::memchr2(b'%', b'+', key).is_none() {
        return key == name;
    }
    Decoded(key).eq(name.iter().copied())
}

/// The bytes of a part of a query: `%41` is `A`, `+` is a space. A `%` without two digits is
/// itself.
struct Decoded<'q>(&'q [u8]);

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        match (first, rest) {
            (b'+', _) => Some(b' '),
            (b'%', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => {
                    self.0 = after;
                    Some(high << 4 | low)
                }
                _ => Some(b'%'),
            },
            (byte, _) => Some(*byte),
        }
    }
}

pub(crate) fn digit(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}
