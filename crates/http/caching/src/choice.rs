//! Chooses between several stored responses: the one to answer with (RFC 9111, 4 and 4.1), those
//! whose validators are sent if none may be used (4.3.1), and the one that a 304 then confirms
//! (4.3.3, 4.3.4).
//!
//! A response is offered to the origin only by a *strong* tag: a weak tag may cover two codings of
//! the same content, and a date anything.

use crate::conditional::Validators;
use crate::etag::EntityTag;
use crate::fields::{Escapes, FieldSource, members, trim};
use crate::storing::StoredMeta;

impl StoredMeta {
    /// Whether this response is preferred to `other`, if a request selects both. Fresh responses
    /// come first; then the most recent by `Date`, or by time of receipt if the dates are equal.
    #[must_use]
    pub fn goes_before(&self, other: &StoredMeta, now_ms: u64) -> bool {
        let rank = |meta: &StoredMeta| {
            let freshness = &meta.freshness;
            (meta.is_fresh(now_ms), freshness.date_value_ms, freshness.response_ms)
        };
        if planted::is(planted::Bug::OldestOfSeveral) {
            return rank(self) < rank(other);
        }
        rank(self) > rank(other)
    }
}

/// The tag by which a stored response that the request does *not* select may be offered to the
/// origin: after a 304 with this tag, its content is the answer (RFC 9111, 4.1 and 4.3.1). Only for
/// a 200 whose coding the client accepts, because origins commonly give two codings one tag,
/// although that is wrong.
pub fn offered_tag<'s, Q: FieldSource + ?Sized, S: FieldSource + ?Sized>(
    request: &Q,
    status: u16,
    stored: &S,
    validators: &'s Validators,
) -> Option<&'s [u8]> {
    let tag = validators.entity_tag().filter(|tag| status == 200 && is_quoted(tag))?;
    let codings = stored.values("content-encoding").flat_map(|v| members(v, Escapes::Backslash));
    let mut unread = codings.filter(|coding| !accepts(request, coding));
    unread.next().is_none().then_some(tag.opaque)
}

/// Which of the offered responses a 304 confirms: the one with its strong tag. A 304 without a
/// strong tag, or with another one, confirms none.
#[must_use]
pub fn meant_by_304<'o>(
    offered: impl IntoIterator<Item = &'o Validators>,
    update: &Validators,
) -> Option<usize> {
    let confirmed = update.entity_tag()?;
    let mut tags = offered.into_iter().map(Validators::entity_tag);
    tags.position(|tag| tag.is_some_and(|tag| tag.strong_eq(&confirmed)))
}

/// A strong tag by the grammar. An unquoted one cannot be part of a list.
fn is_quoted(tag: &EntityTag<'_>) -> bool {
    let inner = tag.opaque.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    !tag.weak && inner.is_some_and(|inner| !inner.contains(&b'"'))
}

/// Whether `Accept-Encoding` accepts this coding by name.
fn accepts<Q: FieldSource + ?Sized>(request: &Q, coding: &[u8]) -> bool {
    let mut named = request.values("accept-encoding").flat_map(|v| members(v, Escapes::Backslash));
    named.any(|member| {
        let mut parts = member.split(|&byte| byte == b';').map(trim);
        let is_it = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(coding));
        is_it && !parts.any(is_refusal)
    })
}

/// A weight of zero.
fn is_refusal(parameter: &[u8]) -> bool {
    match parameter {
        [b'q' | b'Q', b'=', b'0'] => true,
        [b'q' | b'Q', b'=', b'0', b'.', digits @ ..] => digits.iter().all(|&d| d == b'0'),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
