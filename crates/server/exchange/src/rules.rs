//! The rule by which a request is passed on without a look into the store.

use cache::key::Bypassed;
use caching::Explanation;
use caching::cache_status::Forward;
use http1::RequestHead;
pub(crate) use seam::rules::*;

use crate::request::has_content;

/// Why a request is passed on without a look into the store.
pub(crate) fn bypass(why: Forward, by: Option<Bypassed>, head: &RequestHead<'_>) -> Explanation {
    match (why, by) {
        (Forward::Bypass, Some(Bypassed::Cookie)) => BYPASS_COOKIE,
        (Forward::Bypass, Some(Bypassed::HiddenCookie)) => HIDDEN_COOKIE,
        (Forward::Bypass, Some(Bypassed::TooLong)) => KEY_TOO_LONG,
        (Forward::Bypass, None) => NO_STORE_ROUTE,
        (Forward::Method, _) => METHOD,
        _ if has_content(head) => WITH_BODY,
        _ => CONDITION,
    }
}
