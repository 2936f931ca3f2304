//! `Vary` and the request fields it selects by (RFC 9111, 4.1).
//!
//! Two requests select the same stored response when their *normalised* selecting fields are equal:
//! several lines are one list, whitespace around members does not count, and for the fields of
//! content negotiation neither do case, the order of members nor a weight of 1. What is compared
//! (or hashed into a key) is one unambiguous string of bytes; absent and empty differ.

use crate::fields::{Escapes, FieldSource, is_ows, is_token_byte, members, trim};

/// A response with more names in `Vary` than this is taken for `*`: nobody will match it.
pub const VARY_NAMES_MAX: usize = 32;
/// Lists of content negotiation with more members than this are not put in order.
const SORTED_MEMBERS_MAX: usize = 32;

/// What a response says about the requests it may answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Vary {
    /// Every request for its URI.
    #[default]
    None,
    /// No later request (`*`, or not readable).
    Star,
    /// Requests whose fields of these names select it.
    Names(VaryNames),
}

/// Names of selecting fields: lower case, in order, each once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VaryNames(Box<[Box<str>]>);

/// The normalised selecting fields of one request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VaryKey(Box<[u8]>);

impl VaryKey {
    /// The bytes, for hashing and for showing.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The `Vary` of a response. A member that is no field name selects nothing a request could have:
/// it counts as `*`.
pub fn vary<F: FieldSource + ?Sized>(response: &F) -> Vary {
    let mut names: Vec<Box<str>> = Vec::new();
    for value in response.values("vary") {
        for member in members(value, Escapes::Backslash) {
            let is_name = member != b"*" && member.iter().all(|&byte| is_token_byte(byte));
            match std::str::from_utf8(member) {
                Ok(name) if is_name => names.push(name.to_ascii_lowercase().into_boxed_str()),
                _ => return Vary::Star,
            }
            if names.len() > VARY_NAMES_MAX {
                return Vary::Star;
            }
        }
    }
    if names.is_empty() {
        return Vary::None;
    }
    names.sort_unstable();
    names.dedup();
    Vary::Names(VaryNames(names.into_boxed_slice()))
}

impl VaryNames {
    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }

    /// The normalised selecting fields of a request, in pieces, for hashing without allocation.
    pub fn feed<F: FieldSource + ?Sized>(&self, request: &F, mut sink: impl FnMut(&[u8])) {
        for name in &self.0 {
            feed_field(name, request, &mut sink);
        }
    }

    /// The same as one value to keep.
    pub fn key<F: FieldSource + ?Sized>(&self, request: &F) -> VaryKey {
        let mut bytes = Vec::new();
        self.feed(request, |piece| bytes.extend_from_slice(piece));
        VaryKey(bytes.into_boxed_slice())
    }

    /// Does this request select the response stored under `key`? Does not allocate.
    pub fn matches<F: FieldSource + ?Sized>(&self, key: &VaryKey, request: &F) -> bool {
        let mut rest: Option<&[u8]> = Some(&key.0);
        self.feed(request, |piece| rest = rest.and_then(|rest| rest.strip_prefix(piece)));
        rest.is_some_and(<[u8]>::is_empty)
    }
}

/// Marks in the normalised string. Bytes of values that look like one are escaped.
const ABSENT: u8 = 0;
const PRESENT: u8 = 1;
const MEMBER: u8 = 2;
const ESCAPE: u8 = 3;

fn feed_field<F: FieldSource + ?Sized>(name: &str, request: &F, sink: &mut impl FnMut(&[u8])) {
    if !request.has(name) {
        return sink(&[ABSENT]);
    }
    sink(&[PRESENT]);
    let list = request.values(name).flat_map(|value| members(value, Escapes::Backslash));
    if is_negotiation(name) {
        feed_negotiation(list, sink);
    } else {
        for member in list {
            sink(&[MEMBER]);
            feed_escaped(member, sink);
        }
    }
}

/// Their members are weighted alternatives: case and order carry no meaning (RFC 9110, 12.5).
fn is_negotiation(name: &str) -> bool {
    matches!(name, "accept" | "accept-charset" | "accept-encoding" | "accept-language")
}

fn feed_negotiation<'a>(list: impl Iterator<Item = &'a [u8]>, sink: &mut impl FnMut(&[u8])) {
    let mut sorted: [&[u8]; SORTED_MEMBERS_MAX] = [&[]; SORTED_MEMBERS_MAX];
    let mut held = 0;
    for member in list.map(without_full_weight) {
        if held == SORTED_MEMBERS_MAX {
            // Too many to hold: those so far go out as they came, and so does the rest.
            feed_folded(member, sink);
        } else {
            sorted[held] = member;
            held += 1;
        }
    }
    let sorted = &mut sorted[..held];
    if held < SORTED_MEMBERS_MAX {
        sorted.sort_unstable_by(|a, b| folded(a).cmp(folded(b)));
    }
    for member in sorted {
        feed_folded(member, sink);
    }
}

/// The member without `;q=1`, which is the default.
fn without_full_weight(member: &[u8]) -> &[u8] {
    let Some(at) = member.iter().rposition(|&byte| byte == b';') else { return member };
    let weight = trim(&member[at + 1..]);
    let full = match weight {
        [b'q' | b'Q', b'=', b'1'] => true,
        [b'q' | b'Q', b'=', b'1', b'.', zeros @ ..] => {
            zeros.len() <= 3 && zeros.iter().all(|&digit| digit == b'0')
        }
        _ => false,
    };
    if full { trim(&member[..at]) } else { member }
}

fn folded(member: &[u8]) -> impl Iterator<Item = u8> {
    member.iter().filter(|&&byte| !is_ows(byte)).map(u8::to_ascii_lowercase)
}

fn feed_folded(member: &[u8], sink: &mut impl FnMut(&[u8])) {
    sink(&[MEMBER]);
    let mut buffer = [0u8; 64];
    let mut filled = 0;
    for byte in folded(member) {
        if filled == buffer.len() {
            feed_escaped(&buffer, sink);
            filled = 0;
        }
        buffer[filled] = byte;
        filled += 1;
    }
    feed_escaped(&buffer[..filled], sink);
}

/// The message layer refuses control bytes in values; this keeps the string unambiguous even for
/// callers that do not.
fn feed_escaped(bytes: &[u8], sink: &mut impl FnMut(&[u8])) {
    if bytes.iter().all(|&byte| byte > ESCAPE) {
        return sink(bytes);
    }
    for &byte in bytes {
        if byte > ESCAPE {
            sink(&[byte]);
        } else {
            sink(&[ESCAPE, byte]);
        }
    }
}

#[cfg(test)]
mod tests;
