//! RFC 9111 and its kin as functions: may I store, may I reuse, what must I ask.
//!
//! No I/O, no clock, no state: field lines come in through [`FieldSource`], instants as unix
//! milliseconds, and what comes out is a value that names the rule it follows, so that a log line,
//! a
//! `Cache-Status` and an explanation can say it. Any bytes may come in; none of them panic.
//!
//! # The way of a request
//! 1. [`RequestHints::of`], while the request's fields are walked anyway.
//! 2. Something is stored for the URI and [`VaryNames::matches`]: [`StoredMeta::is_fresh`] when the
//!    hints are plain, else [`decide_reuse`]. [`conditional`] and [`range::select_range`] say
//!    whether the answer is the whole, a part, 304 or 416; of parts, [`covers`] and [`missing`].
//! 3. Nothing is stored and [`only_if_cached`]: 504.
//! 4. Ask the origin, with [`validation_fields`] when there is something to validate. A 304 that
//!    [`fits_304`]: [`updated`], then [`StoredMeta::of`]. A failure: [`stale_on_error`]. Anything
//!    else: [`may_store`], and for those who waited [`decide_collapsed`]; and [`invalidates`],
//!    [`invalidated_locations`] after an unsafe method.
//!
//! # Clause by clause
//! Tests carry the clause in their names, in the module's own tests.
//!
//! | clause | function | tests |
//! | --- | --- | --- |
//! | RFC 9111, 3: storing | [`may_store`] | `storing` |
//! | 3.1: fields not kept | [`Storable::keeps`] | `storing` |
//! | 3.2, 4.3.4: updating by 304 | [`updated`], [`fits_304`] | `update` |
//! | 3.3: incomplete responses | [`may_store`], [`ContentRange::of`] | `storing`, `partial` |
//! | 3.4: combining parts | [`may_combine`], [`missing`], [`if_range`], [`covers`] | `partial` |
//! | 3.5: Authorization | [`may_store`] | `storing` |
//! | 4: reuse | [`decide_reuse`] | `reuse` |
//! | 4: collapsed requests | [`decide_collapsed`] | `reuse` |
//! | 4.1: Vary | [`vary`], [`VaryNames`] | `vary` |
//! | 4.2.1, 4.2.2: lifetime | [`StoredMeta::of`] | `freshness` |
//! | 4.2.3: age | [`Freshness::current_age_ms`] | `freshness` |
//! | 4.2.4: stale responses | [`decide_reuse`], [`stale_on_error`] | `reuse` |
//! | 4.3.1: validation requests | [`validation_fields`] | `conditional` |
//! | 4.3.2: conditions of clients | [`conditional`] | `conditional` |
//! | 4.3.3: answers to validation | [`stale_on_error`] for 5xx | `reuse` |
//! | 4.3.5: freshening by HEAD | [`freshen_by_head`], [`StoredMeta::made_stale`] | `update` |
//! | 4.4: invalidation | [`invalidates`], [`invalidated_locations`] | `invalidation` |
//! | 5.1: Age | [`Freshness::age_seconds`] | `freshness` |
//! | 5.2: Cache-Control | [`CacheControl`] | `directives` |
//! | 5.2.1: of requests | [`decide_reuse`], [`only_if_cached`] | `reuse` |
//! | 5.2.2: of responses | [`may_store`], [`decide_reuse`] | `storing`, `reuse` |
//! | 5.3: Expires | [`StoredMeta::of`] | `freshness` |
//! | 5.4: Pragma | [`decide_reuse`] | `reuse`, `directives` |
//! | RFC 5861, 3: stale-while-revalidate | [`decide_reuse`] | `reuse` |
//! | RFC 5861, 4: stale-if-error | [`stale_on_error`] | `reuse` |
//! | RFC 8246: immutable | [`decide_reuse`] | `reuse`, `directives` |
//! | RFC 9110, 5.6.7: dates | [`date`] | `date` |
//! | RFC 9110, 8.8: validators | [`etag`], [`Validators`] | `etag`, `conditional` |
//! | RFC 9110, 9.3.3: POST | [`may_store_post`] | `storing` |
//! | RFC 9110, 13: conditions | [`conditional`] | `conditional` |
//! | RFC 9110, 14: ranges | [`range`], [`ContentRange::of`] | `range`, `partial` |
//! | RFC 9211: Cache-Status | [`cache_status`] | `cache_status` |
//! | RFC 9213: targeted fields | [`Policy::targeted_fields`] | `targeted`, `storing` |
//!
//! Where the RFC leaves a choice: the first of several `max-age` counts; space around `=` is not
//! guessed at; `s-maxage` forbids stale use even with `stale-while-revalidate` (5.2.2.10 to the
//! letter); a wish of a request that cannot be read costs a validation; `If-Match` is the origin's;
//! an origin that cannot be reached is stood in for, for a day, where nothing forbids it (4.2.4).

#![forbid(unsafe_code)]

pub mod cache_status;
mod choice;
mod conditional;
pub mod date;
mod directives;
pub mod etag;
mod explain;
mod fields;
mod freshness;
mod invalidation;
mod partial;
pub mod range;
mod reuse;
mod storing;
mod targeted;
mod update;
mod vary;

pub use choice::{meant_by_304, offered_tag};
pub use conditional::{
    Condition, Evaluator, Precondition, Validators, belongs_in_304, conditional,
    is_condition_or_range, validation_fields,
};
pub use directives::{CacheControl, Delta, MaxStale, Scope};
pub use explain::{ALL as ALL_RULES, Explain, Explanation};
pub use fields::{DELTA_SECONDS_MAX, FieldSource, Request, Response};
pub use freshness::{AgeOnArrival, Exchange, Freshness, InvalidFreshness, LifetimeSource};
pub use invalidation::{TargetUri, invalidated_locations, invalidates, resolve_same_origin};
pub use partial::{ContentRange, covers, if_range, may_combine, missing};
pub use reuse::{
    Failure, MustValidate, NoStaleOnError, RequestHints, Reuse, StaleRule, decide_collapsed,
    decide_reuse, decide_reuse_plain, only_if_cached, request_has_cache_directives, stale_on_error,
};
pub use storing::{
    HEURISTIC_LIFETIME_MS_MAX, HEURISTIC_PERCENT, NeverStale, NotStored, Policy,
    STALE_WHEN_UNREACHABLE_MS, Storable, StoreRule, StoredMeta, is_heuristically_cacheable,
    is_understood, may_store, may_store_post,
};
pub use update::{HeadEffect, fits_304, freshen_by_head, updated};
pub use vary::{VARY_NAMES_MAX, Vary, VaryKey, VaryNames, vary};
