//! May a stored response answer this request (RFC 9111, 4)?
//!
//! For a hit, the message layer walks the request's fields once and notes each name in
//! [`RequestHints`]. If the hints are plain, [`StoredMeta::is_fresh`] decides alone. Otherwise
//! [`decide_reuse`] looks at everything and names the rule.

use crate::directives::{CacheControl, Delta, MaxStale, pragma_no_cache};
use crate::fields::{FieldSource, Request};
use crate::hints::RequestHints;
use crate::storing::{NeverStale, Policy, StoredMeta};

/// Whether the request has `Cache-Control` or `Pragma`.
pub fn request_has_cache_directives<F: FieldSource + ?Sized>(fields: &F) -> bool {
    RequestHints::of(fields).any(RequestHints::DIRECTIVES)
}

/// What to do with a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reuse {
    /// Serve it.
    Fresh {
        /// Its current age.
        age_ms: u64,
    },
    /// Serve it although it is stale.
    StaleAllowed {
        /// Its current age.
        age_ms: u64,
        /// The rule that allows it; [`StaleRule::WhileRevalidate`] requires a background
        /// revalidation.
        why: StaleRule,
    },
    /// Ask the origin first, with [`crate::validation_fields`].
    Revalidate {
        /// The rule that demands it.
        why: MustValidate,
    },
    /// The request only accepts a stored response, and this one may not be used: 504 (5.2.1.7).
    OnlyIfCachedMiss {
        /// The rule that forbids its use.
        why: MustValidate,
    },
}

/// The rule that allows a stale response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StaleRule {
    /// The request's `max-stale`.
    MaxStale,
    /// `stale-while-revalidate` (RFC 5861, 3): serve, and revalidate in the background.
    WhileRevalidate,
    /// `stale-if-error` of the response or the request (RFC 5861, 4).
    IfError,
    /// This cache's policy for an unreachable origin (RFC 9111, 4.2.4).
    PolicyOnError,
}

/// The rule that demands validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MustValidate {
    /// The response's `no-cache`.
    ResponseNoCache,
    /// The request's `no-cache`.
    RequestNoCache,
    /// The request's `Pragma: no-cache`, without `Cache-Control`.
    RequestPragma,
    /// Older than the request's `max-age`.
    RequestMaxAge,
    /// Not fresh for as long as the request's `min-fresh`.
    RequestMinFresh,
    /// Stale, and a directive forbids stale use.
    StaleForbidden(NeverStale),
    /// Stale, and nothing allows stale use.
    Stale,
}

/// Evaluates RFC 9111, 4, for a stored response that was selected by URI and `Vary`. (The request's
/// `no-store` restricts storing, not reuse: 5.2.1.5.)
pub fn decide_reuse<F: FieldSource + ?Sized>(
    request: &Request<'_, F>,
    stored: &StoredMeta,
    now_ms: u64,
) -> Reuse {
    let limits = RequestLimits::of(request.fields);
    match decide(&limits, stored, now_ms) {
        Reuse::Revalidate { why } if limits.only_if_cached => Reuse::OnlyIfCachedMiss { why },
        other => other,
    }
}

/// Decides for a request without cache directives, or whose directives are ignored (RFC 9111, 4).
#[must_use]
pub fn decide_reuse_plain(stored: &StoredMeta, now_ms: u64) -> Reuse {
    decide(&RequestLimits::default(), stored, now_ms)
}

/// May a response fetched by another request answer one that has waited for it since
/// `waiting_since_ms` (RFC 9111, 4: requests are collapsed only if the response may be reused)? A
/// fresh response may. A response requested after this request arrived is as good as its own
/// answer, whatever the request's directives, unless each request needs its own.
pub fn decide_collapsed<F: FieldSource + ?Sized>(
    request: &Request<'_, F>,
    fetched: &StoredMeta,
    waiting_since_ms: u64,
    now_ms: u64,
) -> Result<(), MustValidate> {
    match decide_reuse(request, fetched, now_ms) {
        Reuse::Fresh { .. } | Reuse::StaleAllowed { .. } => Ok(()),
        Reuse::Revalidate { .. } | Reuse::OnlyIfCachedMiss { .. }
            if fetched.requested_ms >= waiting_since_ms && !fetched.is_never_fresh() =>
        {
            Ok(())
        }
        Reuse::Revalidate { why: MustValidate::Stale | MustValidate::StaleForbidden(_) }
            if waiting_since_ms <= fetched.freshness.response_ms
                && fetched.lives_on_arrival()
                && !planted::is(planted::Bug::ShortLifeRefetched) =>
        {
            Ok(())
        }
        Reuse::Revalidate { why } | Reuse::OnlyIfCachedMiss { why } => Err(why),
    }
}

/// Whether the request only accepts a stored response. If nothing is stored, the answer is 504.
pub fn only_if_cached<F: FieldSource + ?Sized>(fields: &F) -> bool {
    fields.has("cache-control") && CacheControl::of(fields).only_if_cached
}

/// Whether the request wants a response that no cache has stored (RFC 9111, 5.2.1 and 5.4).
pub fn wants_new<F: FieldSource + ?Sized>(fields: &F) -> bool {
    let limits = RequestLimits::of(fields);
    let is_asked = limits.no_cache.is_some() || limits.max_age_ms == Some(0);
    is_asked || CacheControl::of(fields).no_store
}

/// The request's directives.
#[derive(Default)]
struct RequestLimits {
    no_cache: Option<MustValidate>,
    max_age_ms: Option<u64>,
    min_fresh_ms: u64,
    max_stale_ms: Option<u64>,
    only_if_cached: bool,
}

impl RequestLimits {
    fn of<F: FieldSource + ?Sized>(fields: &F) -> RequestLimits {
        let control = CacheControl::of(fields);
        let no_cache = if control.no_cache != crate::Scope::Absent {
            Some(MustValidate::RequestNoCache)
        } else if !control.present && pragma_no_cache(fields) {
            Some(MustValidate::RequestPragma)
        } else {
            None
        };
        RequestLimits {
            no_cache,
            // An invalid argument counts as the strictest one, which costs a validation.
            max_age_ms: match control.max_age {
                Delta::Invalid => Some(0),
                other => other.ms(),
            },
            min_fresh_ms: control.min_fresh.ms().unwrap_or(0),
            max_stale_ms: match control.max_stale {
                MaxStale::Absent => None,
                MaxStale::Any => Some(u64::MAX),
                MaxStale::Seconds(seconds) => Some(u64::from(seconds) * 1000),
            },
            only_if_cached: control.only_if_cached,
        }
    }
}

fn decide(limits: &RequestLimits, stored: &StoredMeta, now_ms: u64) -> Reuse {
    let age_ms = stored.freshness.current_age_ms(now_ms);
    if stored.no_cache {
        return Reuse::Revalidate { why: MustValidate::ResponseNoCache };
    }
    if let Some(why) = limits.no_cache {
        return Reuse::Revalidate { why };
    }
    // A reload sends `max-age=0` to ask for validation, even if the age is a fraction of a second.
    // An immutable response does not change within its lifetime (RFC 8246, 2).
    let is_reload = limits.max_age_ms == Some(0);
    let is_settled = is_reload && stored.immutable && stored.freshness.is_fresh(now_ms);
    if limits.max_age_ms.is_some_and(|max_ms| is_reload || age_ms > max_ms) && !is_settled {
        return Reuse::Revalidate { why: MustValidate::RequestMaxAge };
    }
    let lifetime_ms = stored.freshness.lifetime_ms;
    if lifetime_ms > age_ms {
        if lifetime_ms - age_ms < limits.min_fresh_ms {
            return Reuse::Revalidate { why: MustValidate::RequestMinFresh };
        }
        return Reuse::Fresh { age_ms };
    }
    if let Some(rule) = stored.never_stale {
        return Reuse::Revalidate { why: MustValidate::StaleForbidden(rule) };
    }
    if limits.min_fresh_ms > 0 {
        return Reuse::Revalidate { why: MustValidate::RequestMinFresh };
    }
    let staleness_ms = age_ms - lifetime_ms;
    if allows(limits.max_stale_ms, staleness_ms) {
        return Reuse::StaleAllowed { age_ms, why: StaleRule::MaxStale };
    }
    if allows(stored.stale_while_revalidate_ms, staleness_ms) {
        return Reuse::StaleAllowed { age_ms, why: StaleRule::WhileRevalidate };
    }
    Reuse::Revalidate { why: MustValidate::Stale }
}

/// Whether a response may be this stale. A limit of zero allows no stale response, not even in the
/// millisecond in which the response becomes stale.
fn allows(max_ms: Option<u64>, staleness_ms: u64) -> bool {
    max_ms.is_some_and(|max_ms| max_ms > 0 && staleness_ms <= max_ms)
}

/// How the fetch from the origin failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection, no complete head, or too late.
    Unreachable,
    /// It answered with this status.
    Status(u16),
}

impl Failure {
    /// The statuses that count as errors (RFC 5861, 4).
    #[must_use]
    pub fn is_error(self) -> bool {
        matches!(self, Failure::Unreachable | Failure::Status(500 | 502 | 503 | 504))
    }

    /// Whether the failure says nothing about the resource, and will probably pass: an error of the
    /// server, or a request that came too late, too early or too often (408, 425, 429). A 501 or a
    /// 505 says something about the request.
    #[must_use]
    pub fn is_temporary(self) -> bool {
        match self {
            Failure::Unreachable => true,
            Failure::Status(501 | 505) => false,
            Failure::Status(status) => matches!(status, 408 | 425 | 429 | 500..),
        }
    }
}

/// Why a stale response is not served in place of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoStaleOnError {
    /// The response is not an error: it is passed on.
    NotAnError,
    /// The response's `no-cache`.
    ResponseNoCache,
    /// The request demands validation (`no-cache`, `Pragma`, `max-age`, `min-fresh`).
    RequestForbids(MustValidate),
    /// A directive forbids stale use.
    StaleForbidden(NeverStale),
    /// Staler than any rule allows.
    TooStale,
}

/// The fetch from the origin failed: may the stored response be served anyway (RFC 5861, 4; RFC
/// 9111, 4.2.4 and 4.3.3)? Returns the rule and the current age in ms.
pub fn stale_on_error<F: FieldSource + ?Sized>(
    request: &Request<'_, F>,
    stored: &StoredMeta,
    failure: Failure,
    now_ms: u64,
    policy: &Policy,
) -> Result<(StaleRule, u64), NoStaleOnError> {
    if !failure.is_error() {
        return Err(NoStaleOnError::NotAnError);
    }
    let age_ms = stored.freshness.current_age_ms(now_ms);
    let requested_ms = match decide(&RequestLimits::of(request.fields), stored, now_ms) {
        Reuse::Revalidate { why: MustValidate::ResponseNoCache } => {
            return Err(NoStaleOnError::ResponseNoCache);
        }
        Reuse::Revalidate { why: MustValidate::StaleForbidden(rule) } => {
            return Err(NoStaleOnError::StaleForbidden(rule));
        }
        Reuse::Revalidate { why: MustValidate::Stale } => {
            CacheControl::of(request.fields).stale_if_error.ms()
        }
        Reuse::Revalidate { why } => return Err(NoStaleOnError::RequestForbids(why)),
        Reuse::StaleAllowed { age_ms, why } => return Ok((why, age_ms)),
        Reuse::Fresh { .. } | Reuse::OnlyIfCachedMiss { .. } => {
            return Ok((StaleRule::IfError, age_ms));
        }
    };
    let staleness_ms = stored.freshness.staleness_ms(now_ms);
    if allows(stored.stale_if_error_ms, staleness_ms) || allows(requested_ms, staleness_ms) {
        Ok((StaleRule::IfError, age_ms))
    } else if stored.stale_if_error_ms.is_none()
        && failure == Failure::Unreachable
        && allows(Some(policy.stale_when_unreachable_ms), staleness_ms)
    {
        Ok((StaleRule::PolicyOnError, age_ms))
    } else {
        Err(NoStaleOnError::TooStale)
    }
}

#[cfg(test)]
mod tests;
