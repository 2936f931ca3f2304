//! Range requests answered from a complete stored response (RFC 9110, 14; RFC 9111, 3.3 and 4.3.5).
//!
//! Evaluated after [`crate::conditional()`] has passed the request (RFC 9110, 13.2.2, step 5). A
//! `Range` that is not understood, invalid or not worthwhile is ignored: the answer is then the
//! whole. Parts that overlap or nearly touch are joined, and at most [`PARTS_MAX`] are sent, so
//! that a small request cannot get more bytes than there are (RFC 9110, 17.15).

use crate::conditional::Validators;
use crate::date;
use crate::etag::EntityTag;
use crate::fields::{FieldSource, Request, trim};

/// Maximum number of parts that are sent, even if they do not overlap.
pub const PARTS_MAX: usize = 16;
/// Maximum number of ranges that are parsed.
pub const RANGES_READ_MAX: usize = 64;
/// Parts with a smaller gap are joined, because the header of a part is that long.
const GAP_JOINED_BYTES_MAX: u64 = 80;

const _: () = assert!(PARTS_MAX <= RANGES_READ_MAX);

/// A range of bytes, with both ends included as in the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte.
    pub first: u64,
    /// The last byte; not less than the first.
    pub last: u64,
}

impl ByteRange {
    /// Number of bytes, at least one.
    #[must_use]
    pub fn bytes(self) -> u64 {
        debug_assert!(self.first <= self.last, "a range has a byte");
        self.last - self.first + 1
    }

    /// The value of its `Content-Range`.
    #[must_use]
    pub fn content_range(self, complete_bytes: u64) -> String {
        format!("bytes {}-{}/{complete_bytes}", self.first, self.last)
    }
}

/// The value of `Content-Range` in a 416.
#[must_use]
pub fn unsatisfied_range(complete_bytes: u64) -> String {
    format!("bytes */{complete_bytes}")
}

/// The result of a Range request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The whole, for this reason.
    Whole(WhyWhole),
    /// 206 with these parts: at least one, at most [`PARTS_MAX`], none overlapping.
    Parts(Vec<ByteRange>),
    /// 416: none of the requested bytes exist.
    Unsatisfiable,
}

/// Why the whole is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyWhole {
    /// No `Range`.
    NotAsked,
    /// Ranges are defined for GET and a complete 200 only.
    NotApplicable,
    /// A unit other than bytes.
    OtherUnit,
    /// Invalid by the grammar, or more than one field.
    Invalid,
    /// `If-Range` names another representation, or has a weak validator.
    IfRange,
    /// Too many ranges or parts.
    TooMany,
}

/// Evaluates RFC 9110, 14.2, for a complete stored response with a body of this length.
pub fn select_range<F: FieldSource + ?Sized>(
    request: &Request<'_, F>,
    status: u16,
    validators: &Validators,
    complete_bytes: u64,
) -> Selection {
    let mut values = request.fields.values("range");
    let Some(value) = values.next() else { return Selection::Whole(WhyWhole::NotAsked) };
    if request.method != b"GET" || status != 200 {
        return Selection::Whole(WhyWhole::NotApplicable);
    }
    if values.next().is_some() {
        return Selection::Whole(WhyWhole::Invalid);
    }
    let mut if_range = request.fields.values("if-range");
    if let Some(condition) = if_range.next()
        && (if_range.next().is_some() || !if_range_holds(condition, validators))
    {
        return Selection::Whole(WhyWhole::IfRange);
    }
    match parse(trim(value), complete_bytes) {
        Err(why) => Selection::Whole(why),
        Ok(parts) if parts.is_empty() => Selection::Unsatisfiable,
        Ok(parts) => {
            let parts = joined(parts);
            if parts.len() > PARTS_MAX {
                return Selection::Whole(WhyWhole::TooMany);
            }
            debug_assert!(parts.iter().all(|part| part.last < complete_bytes), "bytes that exist");
            Selection::Parts(parts)
        }
    }
}

/// Whether the request asks for one range of bytes, regardless of `If-Range`. Then it can be
/// forwarded and the response stored as a part; the answer to several ranges has another form.
pub fn asks_one_range<F: FieldSource + ?Sized>(request: &Request<'_, F>) -> bool {
    let mut values = request.fields.values("range");
    match (values.next(), values.next()) {
        (Some(value), None) if request.method == b"GET" => {
            // Any length will do, because only the form matters here.
            let one = value.iter().filter(|&&byte| byte == b',').count() == 0;
            one && parse(trim(value), u64::MAX).is_ok()
        }
        _ => false,
    }
}

/// Whether `If-Range` names a representation by its date, and not by a tag. If a response is sent
/// in several codings, all of them have that date, and it names none of them (RFC 9110, 8.8.1).
pub fn is_by_date<F: FieldSource + ?Sized>(fields: &F) -> bool {
    fields.values("if-range").any(|condition| !is_tag(trim(condition)))
}

fn is_tag(condition: &[u8]) -> bool {
    condition.starts_with(b"\"") || condition.starts_with(b"W/")
}

/// RFC 9110, 13.1.5: strong comparison, or exactly the date of a strong `Last-Modified`.
fn if_range_holds(condition: &[u8], validators: &Validators) -> bool {
    let condition = trim(condition);
    if is_tag(condition) {
        let asked = EntityTag::parse(condition);
        return matches!((asked, validators.entity_tag()), (Some(a), Some(b)) if a.strong_eq(&b));
    }
    let asked_ms = date::parse(condition, validators.date_value_ms);
    asked_ms.is_some()
        && asked_ms == validators.last_modified_ms
        && validators.last_modified_is_strong()
}

/// The satisfiable ranges, in the requested order.
fn parse(value: &[u8], complete_bytes: u64) -> Result<Vec<ByteRange>, WhyWhole> {
    let equals = value.iter().position(|&byte| byte == b'=').ok_or(WhyWhole::Invalid)?;
    if !value[..equals].eq_ignore_ascii_case(b"bytes") {
        return Err(WhyWhole::OtherUnit);
    }
    let mut parts = Vec::new();
    let mut read = 0;
    for spec in value[equals + 1..].split(|&byte| byte == b',').map(trim) {
        if spec.is_empty() {
            continue;
        }
        read += 1;
        if read > RANGES_READ_MAX {
            return Err(WhyWhole::TooMany);
        }
        parts.extend(range_spec(spec, complete_bytes)?);
    }
    if read == 0 { Err(WhyWhole::Invalid) } else { Ok(parts) }
}

/// Parses `first-`, `first-last` or `-suffix`; `None` if it has no existing byte.
fn range_spec(spec: &[u8], complete_bytes: u64) -> Result<Option<ByteRange>, WhyWhole> {
    let dash = spec.iter().position(|&byte| byte == b'-').ok_or(WhyWhole::Invalid)?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    let end = complete_bytes.checked_sub(1);
    if first.is_empty() {
        let suffix = position(last)?;
        return Ok(end
            .filter(|_| suffix > 0)
            .map(|end| ByteRange { first: complete_bytes.saturating_sub(suffix), last: end }));
    }
    let first = position(first)?;
    let last = if last.is_empty() { u64::MAX } else { position(last)? };
    if last < first {
        return Err(WhyWhole::Invalid);
    }
    let range = end.filter(|&end| first <= end).map(|end| ByteRange { first, last: last.min(end) });
    debug_assert!(
        range.is_none_or(|range| range.first <= range.last && range.last < complete_bytes)
    );
    Ok(range)
}

/// Digits only; a number that is too large becomes the largest, which no representation reaches.
fn position(digits: &[u8]) -> Result<u64, WhyWhole> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(WhyWhole::Invalid);
    }
    Ok(digits.iter().fold(0u64, |value, &digit| {
        value.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
    }))
}

/// The parts as requested if they are well apart; otherwise sorted and joined.
fn joined(parts: Vec<ByteRange>) -> Vec<ByteRange> {
    let mut sorted = parts.clone();
    sorted.sort_unstable_by_key(|part| part.first);
    let mut out: Vec<ByteRange> = Vec::with_capacity(sorted.len());
    for part in sorted {
        match out.last_mut() {
            Some(before) if part.first <= before.last.saturating_add(GAP_JOINED_BYTES_MAX) => {
                before.last = before.last.max(part.last);
            }
            _ => out.push(part),
        }
    }
    debug_assert!(out.windows(2).all(|two| two[0].last < two[1].first), "in order, and apart");
    if out.len() == parts.len() { parts } else { out }
}

#[cfg(test)]
mod tests;
