//! Character classes: one table, with one bit per class.
//!
//! What: the character classes of RFC 9110 section 5.6, RFC 3986 and RFC 9112.
//! Why one table: a scan reads one entry per byte and gets all its classes.

/// A `tchar`: methods, field names, tokens.
pub(crate) const TOKEN: u8 = 1;
/// Allowed in a request-target: the characters of RFC 3986, and `[ ] { } | ^`, the backtick and, in
/// a query only, the backslash. Browsers send them unencoded, and they are unambiguous there.
pub(crate) const TARGET: u8 = 2;
/// Allowed in a registered name (RFC 3986 section 3.2.2).
pub(crate) const REG_NAME: u8 = 4;
/// Allowed in a field value: HTAB, SP, VCHAR, obs-text.
pub(crate) const VALUE: u8 = 8;
/// Allowed in a scheme, after its first letter.
pub(crate) const SCHEME: u8 = 16;
/// `%` and the backslash: a path that has one must be checked.
pub(crate) const CHECKED: u8 = 32;
/// A hexadecimal digit.
pub(crate) const HEX: u8 = 64;
/// A letter, a digit or a hyphen: see [`FieldNames::Plain`](crate::FieldNames::Plain).
pub(crate) const PLAIN: u8 = 128;

pub(crate) static CLASS: [u8; 256] = table();

#[inline]
pub(crate) fn is(byte: u8, class: u8) -> bool {
    CLASS[byte as usize] & class != 0
}

#[inline]
pub(crate) fn all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().all(|&b| is(b, class))
}

/// Every `%` is followed by two hexadecimal digits.
pub(crate) fn percent_is_well_formed(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(at) = memchr::memchr(b'%', rest) {
        match rest.get(at + 1..at + 3) {
            Some(digits) if all(digits, HEX) => rest = &rest[at + 3..],
            _ => return false,
        }
    }
    true
}

/// Without spaces and tabs at both ends.
pub(crate) fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The members of a comma-separated list, trimmed; empty members are left out (RFC 9110 section
/// 5.6.1).
pub fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(trim).filter(|token| !token.is_empty())
}

const fn table() -> [u8; 256] {
    let mut table = [0u8; 256];
    mark(&mut table, b"!#$%&'*+-.^_`|~", TOKEN);
    mark(&mut table, b"-", PLAIN);
    mark(&mut table, b"-._~!$&'()*+,;=:@/?%[]{}|^`", TARGET);
    mark(&mut table, b"-._~!$&'()*+,;=%", REG_NAME);
    mark(&mut table, b"+-.", SCHEME);
    mark(&mut table, b"abcdefABCDEF0123456789", HEX);
    mark(&mut table, b"\\", TARGET);
    mark(&mut table, b"%\\", CHECKED);
    let mut b = 0;
    while b < 256 {
        let byte = b as u8;
        if byte.is_ascii_alphanumeric() {
            table[b] |= TOKEN | TARGET | REG_NAME | SCHEME | PLAIN;
        }
        if byte == b'\t' || (byte >= b' ' && byte != 0x7f) {
            table[b] |= VALUE;
        }
        b += 1;
    }
    table
}

const fn mark(table: &mut [u8; 256], bytes: &[u8], class: u8) {
    let mut i = 0;
    while i < bytes.len() {
        table[bytes[i] as usize] |= class;
        i += 1;
    }
}
