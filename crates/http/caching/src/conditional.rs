//! Conditional requests: those of clients, evaluated against stored responses (RFC 9110, 13; RFC
//! 9111, 4.3.2), and those sent to the origin for validation (RFC 9111, 4.3.1).

use serde::{Deserialize, Serialize};

use crate::date;
use crate::etag::{self, EntityTag};
use crate::fields::{FieldSource, Request, trim};
use crate::hints::RequestHints;

/// The validators of a stored response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validators {
    /// `ETag` as received, sent back to the origin unchanged.
    pub etag: Option<Box<[u8]>>,
    /// `Last-Modified` as received, sent back to the origin unchanged.
    pub last_modified: Option<Box<[u8]>>,
    /// The same as a time, if it is a valid date.
    pub last_modified_ms: Option<u64>,
    /// `Date`, or the time of receipt.
    pub date_value_ms: u64,
}

impl Validators {
    /// The validators of a response that arrived at `response_ms`.
    pub fn of<F: FieldSource + ?Sized>(fields: &F, response_ms: u64) -> Validators {
        let date = fields.first("date").and_then(|value| date::parse(value, response_ms));
        Validators::dated(fields, response_ms, date.unwrap_or(response_ms))
    }

    /// The same, if `Date` was read before.
    pub(crate) fn dated<F: FieldSource + ?Sized>(
        fields: &F,
        response_ms: u64,
        date_value_ms: u64,
    ) -> Validators {
        let last_modified = fields.first("last-modified").map(trim).filter(|v| !v.is_empty());
        Validators {
            etag: fields.first("etag").map(trim).filter(|v| !v.is_empty()).map(Box::from),
            last_modified: last_modified.map(Box::from),
            last_modified_ms: last_modified.and_then(|value| date::parse(value, response_ms)),
            date_value_ms,
        }
    }

    /// Whether there is nothing to validate by.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }

    /// The entity tag.
    #[must_use]
    pub fn entity_tag(&self) -> Option<EntityTag<'_>> {
        self.etag.as_deref().and_then(EntityTag::parse)
    }

    /// Whether `Last-Modified` is a strong validator (RFC 9110, 8.8.2.2): it must be at least a
    /// second before `Date`, so that no change within one second is missed.
    #[must_use]
    pub fn last_modified_is_strong(&self) -> bool {
        self.last_modified_ms
            .is_some_and(|modified_ms| modified_ms.saturating_add(1000) <= self.date_value_ms)
    }
}

/// Who evaluates a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluator {
    /// A cache: `If-Match` and `If-Unmodified-Since` are not applicable to it and are ignored
    /// (RFC 9111, 4.3.2; RFC 9110, 13.1.1).
    Cache,
    /// The server with the current representation.
    Origin,
}

/// The result of a request's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// There is no condition, or all of them hold: answer normally.
    None,
    /// 304.
    NotModified(Condition),
    /// 412.
    Failed(Condition),
}

/// The deciding condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `If-Match`.
    IfMatch,
    /// `If-Unmodified-Since`.
    IfUnmodifiedSince,
    /// `If-None-Match`.
    IfNoneMatch,
    /// `If-Modified-Since`.
    IfModifiedSince,
}

/// Evaluates conditions by RFC 9110, 13.2.2, against a stored or current response. Ignores them
/// unless the normal answer would be 2xx (13.2.1).
pub fn conditional<F: FieldSource + ?Sized>(
    request: &Request<'_, F>,
    status: u16,
    validators: &Validators,
    evaluator: Evaluator,
) -> Precondition {
    let hints = RequestHints::of(request.fields);
    if !hints.has_conditions() || !(200..300).contains(&status) {
        return Precondition::None;
    }
    let read = matches!(request.method, b"GET" | b"HEAD");
    let current = validators.entity_tag();
    if evaluator == Evaluator::Origin {
        if hints.any(RequestHints::IF_MATCH) {
            let equal = |tag: EntityTag<'_>| current.is_some_and(|now| now.strong_eq(&tag));
            if !any_tag(request.fields, "if-match", equal) {
                return Precondition::Failed(Condition::IfMatch);
            }
        } else if let Some(since_ms) = instant(request.fields, "if-unmodified-since", validators)
            && validators.last_modified_ms.is_some_and(|modified_ms| modified_ms > since_ms)
        {
            return Precondition::Failed(Condition::IfUnmodifiedSince);
        }
    }
    if hints.any(RequestHints::IF_NONE_MATCH) {
        let equal = |tag: EntityTag<'_>| current.is_some_and(|now| now.weak_eq(&tag));
        return match any_tag(request.fields, "if-none-match", equal) {
            false => Precondition::None,
            true if read => Precondition::NotModified(Condition::IfNoneMatch),
            true => Precondition::Failed(Condition::IfNoneMatch),
        };
    }
    if read && let Some(since_ms) = instant(request.fields, "if-modified-since", validators) {
        // Without Last-Modified a cache uses Date, or the time of receipt (RFC 9111, 4.3.2).
        let modified_ms = validators.last_modified_ms.unwrap_or(validators.date_value_ms);
        if modified_ms <= since_ms {
            return Precondition::NotModified(Condition::IfModifiedSince);
        }
    }
    Precondition::None
}

/// `*` matches any current representation; here there always is one.
fn any_tag<F: FieldSource + ?Sized>(
    fields: &F,
    name: &str,
    equal: impl Fn(EntityTag<'_>) -> bool,
) -> bool {
    fields.values(name).any(|value| trim(value) == b"*" || etag::list(value).any(&equal))
}

/// An invalid date, or more than one, is no condition (RFC 9110, 13.1.3).
fn instant<F: FieldSource + ?Sized>(
    fields: &F,
    name: &str,
    validators: &Validators,
) -> Option<u64> {
    let mut values = fields.values(name);
    let first = values.next()?;
    if values.next().is_some() {
        return None;
    }
    date::parse(first, validators.date_value_ms)
}

/// The fields to send to the origin to validate a stored response; they replace the client's
/// conditions (RFC 9111, 4.3.1). Empty without validators: then the request is an ordinary one. A
/// 304 refers to the stored response; the client's own conditions are evaluated afterwards with
/// [`conditional`].
pub fn validation_fields(validators: &Validators) -> impl Iterator<Item = (&'static str, &[u8])> {
    let tag = validators.etag.as_deref().map(|value| ("If-None-Match", value));
    let modified = validators.last_modified.as_deref().map(|value| ("If-Modified-Since", value));
    tag.into_iter().chain(modified)
}

/// Whether a request field is a condition or asks for a part. Such fields are removed when the
/// proxy asks for the whole itself.
#[must_use]
pub fn is_condition_or_range(name: &[u8]) -> bool {
    let mut hints = RequestHints::default();
    hints.note(name);
    hints.has_conditions() || hints.any(RequestHints::RANGE) || hints.any(RequestHints::IF_RANGE)
}

/// Whether a 304 made from a stored response includes this field (RFC 9110, 15.4.5): the caching
/// fields of a 200 and the validators, but not fields that describe content. The sender adds `Age`.
#[must_use]
pub fn belongs_in_304(name: &[u8]) -> bool {
    const KEPT: [&str; 11] = [
        "cache-control",
        "cdn-cache-control",
        "content-location",
        "date",
        "etag",
        "expires",
        "last-modified",
        "server",
        "strict-transport-security",
        "vary",
        "via",
    ];
    KEPT.iter().any(|kept| name.eq_ignore_ascii_case(kept.as_bytes()))
}

#[cfg(test)]
mod tests;
