//! The rules of a plan that are not the caching crate's own: each with its name, where it is
//! written and what it says.

use caching::Explanation;
use caching::cache_status::Forward;
use http1::{BodyKind, RequestHead};

macro_rules! rules {
    ($($name:ident = $token:literal, $clause:literal, $text:literal;)*) => {
        $(pub(crate) const $name: Explanation =
            Explanation { token: $token, clause: $clause, text: $text };)*
    };
}

rules! {
    FRESH = "fresh", "RFC 9111, 4.2", "fresh: its age is below its lifetime";
    URI_MISS = "uri-miss", "RFC 9111, 4", "nothing is stored for this URL";
    VARY_MISS = "vary-miss", "RFC 9111, 4.1",
        "responses are stored, and none for a request with these fields";
    ONLY_IF_CACHED = "only-if-cached", "RFC 9111, 5.2.1.7",
        "only what is stored is asked for, and nothing is that may be used";
    UNCACHEABLE = "uncacheable", "RFC 9111, 3",
        "the last response could not be stored: requests do not wait for each other";
    NO_STORE = "request-no-store", "RFC 9111, 5.2.1.5", "the request forbids storing";
    RANGES = "ranges", "RFC 9111, 3.3",
        "of a range under a condition, or of several ranges, no part can be stored";
    PARTIAL = "partial", "RFC 9111, 3.3", "of what is asked for only parts are stored";
    TOO_LARGE = "too-large", "RFC 9111, 3",
        "of what is too large to store as a whole only parts are stored";
    METHOD = "method", "RFC 9111, 4", "only GET and HEAD are answered from store";
    WITH_BODY = "with-body", "RFC 9110, 9.3.1", "a request with a body is for the origin to judge";
    CONDITION = "condition", "RFC 9111, 4.3.2", "its condition is for the origin to judge";
    NO_STORE_ROUTE = "bypass", "", "its route has nothing to do with the store";
    ROUTE = "route", "", "its route says the answer";
    UPGRADE = "upgrade", "RFC 9110, 7.8", "it asks for another protocol, and may";
    TUNNEL = "connect", "RFC 9110, 9.3.6", "no rule forbids the tunnel";
    PURGE = "purge", "", "who asks may purge";
}

/// Why the store has no part in a request.
pub(crate) fn past(why: Forward, head: &RequestHead<'_>) -> Explanation {
    match why {
        Forward::Bypass => NO_STORE_ROUTE,
        Forward::Method => METHOD,
        _ if matches!(head.body(), BodyKind::None | BodyKind::Length(0)) => CONDITION,
        _ => WITH_BODY,
    }
}
