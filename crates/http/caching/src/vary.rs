//! `Vary` and the request fields it selects by (RFC 9111, 4.1).
//!
//! Two requests select the same stored response if their *normalised* selecting fields are equal.
//! Several lines form one list; whitespace around members does not count; and in content
//! negotiation fields, case, order of members and a weight of 1 do not count either. The normalised
//! form is one unambiguous byte string, which is compared or hashed into a key; absent and empty
//! differ.

use serde::{Deserialize, Serialize};

use crate::fields::{Escapes, FieldSource, is_ows, is_token_byte, members};

/// A response with more names in `Vary` counts as `*`: no request would match it.
pub const VARY_NAMES_MAX: usize = 32;
/// Lists of content negotiation are sorted in runs of at most this many members,
const SORTED_MEMBERS_MAX: usize = 32;
/// and this many bytes.
const SORTED_BYTES_MAX: usize = 256;

const _: () = assert!(SORTED_BYTES_MAX <= u16::MAX as usize);

/// Which requests a response may answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Vary {
    /// Every request for its URI.
    #[default]
    None,
    /// No later request (`*`, or invalid).
    Star,
    /// Requests with matching values in these fields.
    Names(VaryNames),
}

/// Names of selecting fields: lower case, sorted, without duplicates. Empty by default, which every
/// request selects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VaryNames(Box<[Box<str>]>);

/// The selecting fields of one request. Two are equal if they are after normalisation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VaryKey {
    normalised: Box<[u8]>,
    /// As received: most requests repeat it byte for byte, and then need no normalisation.
    received: Box<[u8]>,
}

impl VaryKey {
    /// The normalised bytes, for hashing and display.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.normalised
    }

    /// Its size in bytes, for accounting.
    #[must_use]
    pub fn bytes_held(&self) -> usize {
        self.normalised.len() + self.received.len()
    }
}

impl PartialEq for VaryKey {
    fn eq(&self, other: &VaryKey) -> bool {
        self.normalised == other.normalised
    }
}

impl Eq for VaryKey {}

impl std::hash::Hash for VaryKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.normalised.hash(state);
    }
}

/// The `Vary` of a response. An invalid member counts as `*`.
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
    assert!((1..=VARY_NAMES_MAX).contains(&names.len()), "more names count as `*`");
    Vary::Names(VaryNames(names.into_boxed_slice()))
}

impl VaryNames {
    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }

    /// The names except this one, in lower case; `None` if no other is left.
    #[must_use]
    pub fn without(&self, name: &str) -> Option<VaryNames> {
        let others: Box<[Box<str>]> =
            self.0.iter().filter(|one| ***one != *name).cloned().collect();
        (!others.is_empty()).then_some(VaryNames(others))
    }

    /// Passes the normalised selecting fields of a request to `sink`, in pieces, for hashing
    /// without allocation.
    pub fn feed<F: FieldSource + ?Sized>(&self, request: &F, mut sink: impl FnMut(&[u8])) {
        for name in &self.0 {
            feed_field(name, request, &mut sink);
        }
    }

    /// The same as one value.
    pub fn key<F: FieldSource + ?Sized>(&self, request: &F) -> VaryKey {
        let (mut normalised, mut received) = (Vec::new(), Vec::new());
        self.feed(request, |piece| normalised.extend_from_slice(piece));
        self.feed_received(request, |piece| received.extend_from_slice(piece));
        VaryKey { normalised: normalised.into(), received: received.into() }
    }

    /// Whether this request selects the response stored under `key`. Does not allocate.
    pub fn matches<F: FieldSource + ?Sized>(&self, key: &VaryKey, request: &F) -> bool {
        let mut rest: Option<&[u8]> = Some(&key.received);
        self.feed_received(request, |piece| rest = rest.and_then(|r| r.strip_prefix(piece)));
        if rest.is_some_and(<[u8]>::is_empty) {
            return true;
        }
        let mut rest: Option<&[u8]> = Some(&key.normalised);
        self.feed(request, |piece| rest = rest.and_then(|r| r.strip_prefix(piece)));
        rest.is_some_and(<[u8]>::is_empty)
    }

    /// The selecting fields byte by byte, each line with its length.
    fn feed_received<F: FieldSource + ?Sized>(&self, request: &F, mut sink: impl FnMut(&[u8])) {
        for name in &self.0 {
            for value in request.values(name) {
                sink(&(value.len() as u64 + 1).to_le_bytes());
                sink(value);
            }
            sink(&0u64.to_le_bytes());
        }
    }
}

/// Marks in the normalised string. Equal bytes in values are escaped.
const ABSENT: u8 = 0;
const PRESENT: u8 = 1;
const MEMBER: u8 = 2;
const ESCAPE: u8 = 3;

fn feed_field<F: FieldSource + ?Sized>(name: &str, request: &F, sink: &mut impl FnMut(&[u8])) {
    let mut values = request.values(name);
    let Some(first) = values.next() else { return sink(&[ABSENT]) };
    sink(&[PRESENT]);
    let list = std::iter::once(first).chain(values);
    let list = list.flat_map(|value| members(value, Escapes::Backslash));
    if is_negotiation(name) {
        feed_negotiation(list, sink);
    } else {
        for member in list {
            sink(&[MEMBER]);
            feed_escaped(member, sink);
        }
    }
}

/// Members of these fields are weighted alternatives: case and order have no meaning (RFC 9110,
/// 12.5).
fn is_negotiation(name: &str) -> bool {
    matches!(name, "accept" | "accept-charset" | "accept-encoding" | "accept-language")
}

/// Folded members, one after the other, with the place of each.
struct Sorted {
    bytes: [u8; SORTED_BYTES_MAX],
    filled: usize,
    /// (start, end) of each member, sorted by the members' bytes.
    members: [(u16, u16); SORTED_MEMBERS_MAX],
    held: usize,
}

impl Sorted {
    /// Inserts a member in order; `false` if it does not fit.
    fn insert(&mut self, member: &[u8]) -> bool {
        let start = self.filled;
        if self.held == SORTED_MEMBERS_MAX || member.len() > SORTED_BYTES_MAX - start {
            return false;
        }
        for byte in folded(member) {
            self.bytes[self.filled] = byte;
            self.filled += 1;
        }
        self.filled = start + without_full_weight(&self.bytes[start..self.filled]).len();
        let new = (start as u16, self.filled as u16);
        let mut at = self.held;
        while at > 0 && self.bytes_of(self.members[at - 1]) > self.bytes_of(new) {
            self.members[at] = self.members[at - 1];
            at -= 1;
        }
        self.members[at] = new;
        self.held += 1;
        true
    }

    fn bytes_of(&self, (start, end): (u16, u16)) -> &[u8] {
        &self.bytes[usize::from(start)..usize::from(end)]
    }

    /// Outputs all members and clears itself.
    fn drain(&mut self, sink: &mut impl FnMut(&[u8])) {
        for &member in &self.members[..self.held] {
            sink(&[MEMBER]);
            feed_escaped(self.bytes_of(member), sink);
        }
        self.held = 0;
        self.filled = 0;
    }
}

/// A list that does not fit is sorted in runs, which is just as unambiguous.
fn feed_negotiation<'a>(list: impl Iterator<Item = &'a [u8]>, sink: &mut impl FnMut(&[u8])) {
    let mut sorted = Sorted {
        bytes: [0; SORTED_BYTES_MAX],
        filled: 0,
        members: [(0, 0); SORTED_MEMBERS_MAX],
        held: 0,
    };
    for member in list {
        if !sorted.insert(member) {
            sorted.drain(sink);
            if !sorted.insert(member) {
                sink(&[MEMBER]);
                feed_escaped(member, sink);
            }
        }
    }
    sorted.drain(sink);
}

/// A folded member without `;q=1`, which is the default.
fn without_full_weight(member: &[u8]) -> &[u8] {
    let Some(at) = member.iter().rposition(|&byte| byte == b';') else { return member };
    let full = match &member[at + 1..] {
        b"q=1" => true,
        [b'q', b'=', b'1', b'.', zeros @ ..] => {
            zeros.len() <= 3 && zeros.iter().all(|&digit| digit == b'0')
        }
        _ => false,
    };
    if full { &member[..at] } else { member }
}

fn folded(member: &[u8]) -> impl Iterator<Item = u8> {
    member.iter().filter(|&&byte| !is_ows(byte)).map(u8::to_ascii_lowercase)
}

/// The message layer refuses control bytes in values; this keeps the string unambiguous for other
/// callers too.
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
