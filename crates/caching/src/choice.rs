//! Which of several stored responses: the one to answer with (RFC 9111, 4 and 4.1), those whose
//! validators are sent when none may be used (4.3.1), and the one that a 304 then means (4.3.3,
//! 4.3.4).
//!
//! A response is offered to the origin by a *strong* tag alone: a weak one may stand for two
//! codings of the same, and a date for anything.

use crate::conditional::Validators;
use crate::etag::EntityTag;
use crate::fields::{Escapes, FieldSource, members, trim};
use crate::storing::StoredMeta;

impl StoredMeta {
    /// Of two stored responses that a request selects, is this the one to use? One that is fresh
    /// goes before one that is not; then the most recent does, by `Date`, and by the instant of
    /// receipt where dates are the same.
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
/// origin all the same: if the answer is a 304 with this tag, its content is the answer (RFC 9111,
/// 4.1 and 4.3.1). Only what is a 200 and whose coding the client says it can read: an origin that
/// gives two codings one tag is wrong, and common.
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

/// Of the responses whose tags were sent, the one that a 304 means: the one with its strong tag. A
/// 304 that names none of them, or has only a weak tag, means none.
#[must_use]
pub fn meant_by_304<'o>(
    offered: impl IntoIterator<Item = &'o Validators>,
    update: &Validators,
) -> Option<usize> {
    let told = update.entity_tag()?;
    let mut tags = offered.into_iter().map(Validators::entity_tag);
    tags.position(|tag| tag.is_some_and(|tag| tag.strong_eq(&told)))
}

/// A strong tag as the grammar has it: what is not quoted could not stand in a list.
fn is_quoted(tag: &EntityTag<'_>) -> bool {
    let inner = tag.opaque.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    !tag.weak && inner.is_some_and(|inner| !inner.contains(&b'"'))
}

/// Does `Accept-Encoding` name this coding, and not to refuse it?
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
