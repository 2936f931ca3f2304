//! Field lines as this crate uses them: an iterator of names and values owned by the caller.
//!
//! This crate does not depend on a message parser: callers implement [`FieldSource`] and keep the
//! bytes. Names are compared case-insensitively. Values may have any bytes, and no function of this
//! crate panics on them.

/// A set of field lines, in the order of receipt.
pub trait FieldSource {
    /// Every field line, as (name, value).
    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])>;

    /// The values of every line with this name, in order. An implementation with an index of known
    /// names may be faster than this walk.
    fn values<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.fields()
            .filter(move |(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// The first value with this name.
    fn first<'a>(&'a self, name: &str) -> Option<&'a [u8]> {
        self.values(name).next()
    }

    /// Whether there is a line with this name.
    fn has(&self, name: &str) -> bool {
        self.values(name).next().is_some()
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FieldSource for [(N, V)] {
    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FieldSource for Vec<(N, V)> {
    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.as_slice().fields()
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>, const LEN: usize> FieldSource for [(N, V); LEN] {
    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.as_slice().fields()
    }
}

impl<F: FieldSource + ?Sized> FieldSource for &F {
    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        F::fields(self)
    }

    fn values<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        F::values(self, name)
    }
}

/// A request as the rules see it.
#[derive(Debug)]
pub struct Request<'a, F: FieldSource + ?Sized> {
    /// The method; methods are case-sensitive.
    pub method: &'a [u8],
    /// Its field lines.
    pub fields: &'a F,
}

/// A response as the rules see it.
#[derive(Debug)]
pub struct Response<'a, F: FieldSource + ?Sized> {
    /// The status code.
    pub status: u16,
    /// Its field lines.
    pub fields: &'a F,
}

impl<F: FieldSource + ?Sized> Clone for Request<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F: FieldSource + ?Sized> Copy for Request<'_, F> {}
impl<F: FieldSource + ?Sized> Clone for Response<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F: FieldSource + ?Sized> Copy for Response<'_, F> {}

/// Optional whitespace of RFC 9110, 5.6.3.
pub(crate) const fn is_ows(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// The value without the whitespace around it.
pub(crate) fn trim(mut value: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = value
        && is_ows(*first)
    {
        value = rest;
    }
    while let [rest @ .., last] = value
        && is_ows(*last)
    {
        value = rest;
    }
    value
}

/// `tchar` of RFC 9110, 5.6.2.
pub(crate) const fn is_token_byte(byte: u8) -> bool {
    matches!(byte,
        b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`'
        | b'|' | b'~' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z')
}

/// What a backslash means inside a quoted part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escapes {
    /// `quoted-string`: it hides the next byte (RFC 9110, 5.6.4).
    Backslash,
    /// `opaque-tag`: it is a byte like any other (RFC 9110, 8.8.3).
    Literal,
}

/// The members of a comma-separated list (RFC 9110, 5.6.1): trimmed, without empty ones; commas
/// inside quotes do not separate. An unclosed quote is an ordinary byte, so that it cannot hide the
/// rest.
pub(crate) fn members(value: &[u8], escapes: Escapes) -> impl Iterator<Item = &[u8]> {
    let mut rest = value;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let end = member_end(rest, escapes);
            let member = trim(&rest[..end]);
            rest = rest.get(end + 1..).unwrap_or_default();
            if !member.is_empty() {
                return Some(member);
            }
        }
        None
    })
}

fn member_end(value: &[u8], escapes: Escapes) -> usize {
    let mut at = 0;
    while at < value.len() {
        match value[at] {
            b',' => return at,
            b'"' => at = closing_quote(value, at, escapes).unwrap_or(at) + 1,
            _ => at += 1,
        }
    }
    value.len()
}

/// The index of the quote that closes the one at `open`.
pub(crate) fn closing_quote(value: &[u8], open: usize, escapes: Escapes) -> Option<usize> {
    let mut at = open + 1;
    while at < value.len() {
        match value[at] {
            b'"' => return Some(at),
            b'\\' if escapes == Escapes::Backslash => at += 2,
            _ => at += 1,
        }
    }
    None
}

/// Larger `delta-seconds` count as this (RFC 9111, 1.2.2).
pub const DELTA_SECONDS_MAX: u32 = 1 << 31;

/// `delta-seconds` (RFC 9111, 1.2.2): digits only, too large means [`DELTA_SECONDS_MAX`].
pub(crate) fn delta_seconds(value: &[u8]) -> Option<u32> {
    if value.is_empty() {
        return None;
    }
    let mut seconds: u32 = 0;
    for &byte in value {
        if !byte.is_ascii_digit() {
            return None;
        }
        seconds = seconds.saturating_mul(10).saturating_add(u32::from(byte - b'0'));
    }
    Some(seconds.min(DELTA_SECONDS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(value: &str) -> Vec<String> {
        members(value.as_bytes(), Escapes::Backslash)
            .map(|m| String::from_utf8_lossy(m).into_owned())
            .collect()
    }

    #[test]
    fn rfc9110_5_6_1_lists() {
        assert_eq!(split("a, b ,c"), ["a", "b", "c"]);
        assert_eq!(split(", ,a,,\t,"), ["a"]);
        assert_eq!(split("a=\"x, y\", b"), ["a=\"x, y\"", "b"]);
        assert_eq!(split("a=\"x\\\", y\", b"), ["a=\"x\\\", y\"", "b"]);
        assert_eq!(split("a=\"x, y"), ["a=\"x", "y"], "an open quote hides nothing");
        assert_eq!(split(""), Vec::<String>::new());
    }

    #[test]
    fn rfc9111_1_2_2_delta_seconds() {
        for (value, want) in [
            ("0", Some(0)),
            ("003600", Some(3600)),
            ("2147483647", Some(2_147_483_647)),
            ("2147483648", Some(DELTA_SECONDS_MAX)),
            ("99999999999999999999999", Some(DELTA_SECONDS_MAX)),
            ("", None),
            ("-1", None),
            ("1.0", None),
            ("1 ", None),
            ("a1", None),
        ] {
            assert_eq!(delta_seconds(value.as_bytes()), want, "{value:?}");
        }
    }

    proptest! {
        #[test]
        fn members_never_panic_and_come_from_the_value(value in proptest::collection::vec(
            prop_oneof![Just(b','), Just(b'"'), Just(b'\\'), Just(b' '), any::<u8>()], 0..64)) {
            for escapes in [Escapes::Backslash, Escapes::Literal] {
                let total: usize = members(&value, escapes).map(<[u8]>::len).sum();
                prop_assert!(total <= value.len());
            }
        }
    }
}
