//! RFC 9111 and its kin as functions: may I store, may I reuse, what must I ask.
//!
//! No I/O, no clock, no state: field lines come in through [`FieldSource`], instants as unix
//! milliseconds, and what comes out is a value that names the rule it follows, so that a log line,
//! a `Cache-Status` and an explanation can say it. Any bytes may come in; none of them panic.
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
//! Of several responses that a request selects, the one that [`StoredMeta::goes_before`] the others
//! is used; when it selects none of those that are stored, [`offered_tag`] says which the origin is
//! asked about, and [`meant_by_304`] what it says.
//!
//! Below, the RFCs clause by clause, with the function and the tests of each.
//!
#![doc = include_str!("clauses.md")]
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
mod hints;
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
pub use freshness::{AgeOnArrival, Aging, Exchange, Freshness, InvalidFreshness, LifetimeSource};
pub use hints::RequestHints;
pub use invalidation::{TargetUri, invalidated_locations, invalidates, resolve_same_origin};
pub use partial::{ContentRange, covers, if_range, may_combine, missing};
pub use reuse::{
    Failure, MustValidate, NoStaleOnError, Reuse, StaleRule, decide_collapsed, decide_reuse,
    decide_reuse_plain, only_if_cached, request_has_cache_directives, stale_on_error,
};
pub use storing::{
    HEURISTIC_LIFETIME_MS_MAX, HEURISTIC_PERCENT, NeverStale, NotStored, Policy,
    STALE_WHEN_UNREACHABLE_MS, Storable, StoreRule, StoredMeta, is_heuristically_cacheable,
    is_understood, may_store, may_store_post,
};
pub use update::{HeadEffect, fits_304, freshen_by_head, updated};
pub use vary::{VARY_NAMES_MAX, Vary, VaryKey, VaryNames, vary};
