//! Parts of a representation: which part a 206 has, which parts may be combined, and what is
//! missing (RFC 9110, 14.4 and 15.3.7; RFC 9111, 3.3 and 3.4).
//!
//! Parts are combined only if they share a *strong* validator. Otherwise they may belong to
//! different representations, and no one could tell a mixture from the whole.

use crate::conditional::Validators;
use crate::etag::EntityTag;
use crate::fields::{FieldSource, trim};
use crate::range::ByteRange;

/// A `Content-Range` in a representation of known length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The part.
    pub range: ByteRange,
    /// Bytes of the whole.
    pub complete_bytes: u64,
}

impl ContentRange {
    /// The part in a 206 with these fields. `None` if there is no `Content-Range` (the parts are
    /// then in a multipart body), if there are several, if it is not in bytes or not valid (RFC
    /// 9110, 14.4), or if it lacks the complete length.
    pub fn of<F: FieldSource + ?Sized>(fields: &F) -> Option<ContentRange> {
        let mut values = fields.values("content-range");
        let value = trim(values.next()?);
        if values.next().is_some() {
            return None;
        }
        let (unit, rest) = value.split_at_checked(b"bytes ".len())?;
        if !unit.eq_ignore_ascii_case(b"bytes ") {
            return None;
        }
        let dash = rest.iter().position(|&byte| byte == b'-')?;
        let slash = rest.iter().position(|&byte| byte == b'/')?;
        let first = digits(&rest[..dash])?;
        let last = digits(rest.get(dash + 1..slash)?)?;
        let complete_bytes = digits(&rest[slash + 1..])?;
        let valid = first <= last && last < complete_bytes;
        valid.then_some(ContentRange { range: ByteRange { first, last }, complete_bytes })
    }
}

/// Digits only; a number that does not fit is rejected.
fn digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// What says which representation a response, or a part, is of.
#[derive(Clone, Copy, Debug)]
pub struct Named<'v> {
    /// Its validators.
    pub validators: &'v Validators,
    /// Its `Content-Encoding`.
    pub coding: Option<&'v [u8]>,
}

impl<'v> Named<'v> {
    /// Of a response with these fields.
    pub fn of<F: FieldSource + ?Sized>(validators: &'v Validators, fields: &'v F) -> Named<'v> {
        Named { validators, coding: fields.first("content-encoding").map(trim) }
    }
}

/// Whether both responses have the same strong validator (RFC 9111, 3.4). A tag takes precedence
/// over a date; a date is strong only under the rule of RFC 9110, 8.8.2.2.
///
/// A date is also that of the other codings of a representation, so the codings must be the same. A
/// 206 may leave its coding out (RFC 9110, 15.3.7), which says nothing beside a tag.
#[must_use]
pub fn may_combine(a: Named<'_>, b: Named<'_>) -> bool {
    let is_same_coding = match (a.coding, b.coding) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        (None, None) => true,
        _ => a.validators.etag.is_some(),
    };
    let (a, b) = (a.validators, b.validators);
    let is_same = match (&a.etag, &b.etag) {
        (Some(_), Some(_)) => strong_tag(a).is_some() && strong_tag(a) == strong_tag(b),
        (None, None) => {
            a.last_modified_is_strong()
                && b.last_modified_is_strong()
                && a.last_modified_ms == b.last_modified_ms
        }
        _ => false,
    };
    is_same && is_same_coding
}

/// The value of `If-Range` for requesting the rest of a part (RFC 9110, 13.1.5); `None` without a
/// strong validator.
#[must_use]
pub fn if_range(validators: &Validators) -> Option<&[u8]> {
    match validators.etag {
        Some(_) => strong_tag(validators),
        None if validators.last_modified_is_strong() => validators.last_modified.as_deref(),
        None => None,
    }
}

/// The entity tag as received, if it is strong. A tag without quotes comes from an origin that does
/// not know what a strong validator guarantees.
fn strong_tag(validators: &Validators) -> Option<&[u8]> {
    let etag = validators.etag.as_deref().filter(|etag| etag.starts_with(b"\""))?;
    EntityTag::parse(etag).map(|_| etag)
}

/// Whether one of `held` has every byte of `wanted`. `held` must be in order, without parts that
/// touch.
#[must_use]
pub fn covers(held: &[ByteRange], wanted: ByteRange) -> bool {
    debug_assert!(are_apart(held));
    held.iter().any(|part| part.first <= wanted.first && wanted.last <= part.last)
}

/// The smallest range with every byte of `wanted` that is not in `held`; `None` if there is none.
/// `held` must be in order, without parts that touch.
#[must_use]
pub fn missing(held: &[ByteRange], wanted: ByteRange) -> Option<ByteRange> {
    debug_assert!(are_apart(held));
    let head = held.iter().find(|part| part.first <= wanted.first && wanted.first <= part.last);
    let first = head.map_or(Some(wanted.first), |part| part.last.checked_add(1))?;
    if first > wanted.last {
        return None;
    }
    let tail = held.iter().find(|part| part.first <= wanted.last && wanted.last <= part.last);
    // The part at the end begins after `first`; otherwise the part with `first` would cover it.
    let last = tail.map_or(wanted.last, |part| part.first - 1);
    debug_assert!(first <= last && wanted.first <= first && last <= wanted.last);
    Some(ByteRange { first, last })
}

/// Whether ranges are in order, and no two of them touch.
fn are_apart(ranges: &[ByteRange]) -> bool {
    ranges.windows(2).all(|two| two[0].last.saturating_add(1) < two[1].first)
}

#[cfg(test)]
mod tests;
