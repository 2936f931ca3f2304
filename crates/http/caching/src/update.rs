//! Updates a stored response after a 304 or a HEAD (RFC 9111, 3.2, 4.3.4, 4.3.5).

use crate::conditional::Validators;
use crate::directives::CacheControl;
use crate::fields::{FieldSource, trim};

/// May this 304 update that stored response (RFC 9111, 4.3.4)? With several stored responses, call
/// this for each. A 304 without validators only fits the response that the request was made for,
/// which `asked_for` indicates.
#[must_use]
pub fn fits_304(stored: &Validators, update: &Validators, asked_for: bool) -> bool {
    match (stored.entity_tag(), update.entity_tag()) {
        (Some(old), Some(new)) if new.weak => old.weak_eq(&new),
        (Some(old), Some(new)) => old.opaque == new.opaque,
        (None, Some(_)) => false,
        (_, None) => match (&stored.last_modified, &update.last_modified) {
            (Some(old), Some(new)) => old == new || same_instant(stored, update),
            (None, Some(_)) => false,
            (_, None) => asked_for,
        },
    }
}

fn same_instant(a: &Validators, b: &Validators) -> bool {
    a.last_modified_ms.is_some() && a.last_modified_ms == b.last_modified_ms
}

/// The field lines of a stored response after an update (RFC 9111, 3.2): lines of the update
/// replace all stored lines with their name; the others stay.
///
/// Never taken from the update: fields that describe the stored content or one connection, and
/// fields that must not be stored. Never kept: `Age` and `Date`, which belong to one exchange (a
/// caller adds `Date` if the update has none, as for any response: RFC 9110, 6.6.1). The caller
/// then computes [`crate::StoredMeta`] again from the result.
pub fn updated<'f, S: FieldSource + ?Sized, U: FieldSource + ?Sized>(
    stored: &'f S,
    update: &'f U,
) -> Vec<(&'f [u8], &'f [u8])> {
    // The directives in force afterwards decide which fields are not kept.
    let control = match update.has("cache-control") {
        true => CacheControl::of(update),
        false => CacheControl::of(stored),
    };
    let connection: Vec<&[u8]> = update.values("connection").collect();
    let taken = |name: &[u8]| {
        !planted::is(planted::Bug::UpdateForgotten)
            && !NEVER_UPDATED.iter().any(|kept| name.eq_ignore_ascii_case(kept.as_bytes()))
            && !names(control.no_cache.fields(), name)
            && !names(control.private.fields(), name)
            && !connection.iter().any(|value| {
                value.split(|&byte| byte == b',').any(|m| trim(m).eq_ignore_ascii_case(name))
            })
    };
    let mut new = Vec::with_capacity(FIELDS_USUAL);
    new.extend(update.fields().filter(|(name, _)| taken(name)));
    let replaced = |name: &[u8]| {
        OF_ONE_EXCHANGE.iter().any(|field| name.eq_ignore_ascii_case(field.as_bytes()))
            || new.iter().any(|(n, _)| n.eq_ignore_ascii_case(name))
    };
    let mut fields = Vec::with_capacity(2 * FIELDS_USUAL);
    fields.extend(stored.fields().filter(|(name, _)| !replaced(name)));
    fields.extend(new);
    fields
}

/// Room for the fields of most responses.
const FIELDS_USUAL: usize = 16;

fn names(list: &[Box<str>], name: &[u8]) -> bool {
    list.iter().any(|listed| name.eq_ignore_ascii_case(listed.as_bytes()))
}

/// Content-Length must not be updated (3.2). Coding, type and range describe the stored bytes. The
/// others belong to the connection or to the proxy (3.1).
const NEVER_UPDATED: [&str; 14] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

const OF_ONE_EXCHANGE: [&str; 2] = ["age", "date"];

/// The effect of a HEAD response on a stored GET response (RFC 9111, 4.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadEffect {
    /// The same representation: update it with [`updated`].
    Update,
    /// Another representation: the stored response counts as stale.
    Invalidate,
    /// It says nothing about the stored response.
    None,
}

/// Compares a HEAD response with a stored response to GET.
pub fn freshen_by_head<S: FieldSource + ?Sized, H: FieldSource + ?Sized>(
    stored_status: u16,
    stored: &S,
    stored_content_length: u64,
    head_status: u16,
    head: &H,
) -> HeadEffect {
    if head_status != 200 || stored_status != 200 {
        return HeadEffect::None;
    }
    let same = |name: &str| match (stored.first(name), head.first(name)) {
        (old, Some(new)) => old.map(trim) == Some(trim(new)),
        (_, None) => true,
    };
    let length = match head.first("content-length") {
        Some(value) => trim(value) == stored_content_length.to_string().as_bytes(),
        None => true,
    };
    if length && same("etag") && same("last-modified") {
        HeadEffect::Update
    } else {
        HeadEffect::Invalidate
    }
}

#[cfg(test)]
mod tests;
