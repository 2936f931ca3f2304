//! RFC 9111 and related RFCs as functions: whether a response may be stored, whether a stored
//! response may be reused, and what to send to the origin.
//!
//! No I/O, no clock, no state: field lines come in through [`FieldSource`], times as unix
//! milliseconds. Results name the rule that decided, for the log, `Cache-Status` and explanations.
//! Input may be any bytes, and no input causes a panic.
//!
//! # The steps of a request
//! 1. [`RequestHints::of`], during the walk over the request's fields that happens anyway.
//! 2. If something is stored for the URI and [`VaryNames::matches`]: [`StoredMeta::is_fresh`] if
//!    the hints are plain, otherwise [`decide_reuse`]. [`conditional()`] and
//!    [`range::select_range`] decide between the whole, a part, 304 and 416; for stored parts,
//!    [`covers`] and [`missing`].
//! 3. If nothing is stored and [`only_if_cached`]: 504.
//! 4. Ask the origin, with [`validation_fields`] if there is something to validate. After a 304
//!    that [`fits_304`]: [`updated`], then [`StoredMeta::of`]. After a failure: [`stale_on_error`].
//!    After any other response: [`may_store`], [`may_replace`] if something is stored, and
//!    [`decide_collapsed`] for requests that waited.
//!    After an unsafe method: [`invalidates`] and [`invalidated_locations`].
//!
//! If a request selects several stored responses, the response that [`StoredMeta::goes_before`] the
//! other responses is used. If a request selects no stored response, [`offered_tag`] says which
//! tags can be offered to the origin, and [`meant_by_304`] says which stored response a 304
//! confirms.
//!
//! # What it promises
//!
//! Each refusal to store or reuse has a named reason. Tests with random messages and histories
//! compare the functions with a second implementation of RFC 9111, which is slow and plain.
//!
//! The list below has the RFCs clause by clause, with the function and the tests of each clause.
//!
#![doc = include_str!("clauses.md")]
#![forbid(unsafe_code)]

mod accelerators;
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
mod replacing;
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
pub use invalidation::{
    TargetUri, invalidated_locations, invalidates, remove_dot_segments, resolve_same_origin,
};
pub use partial::{ContentRange, Named, covers, if_range, may_combine, missing};
pub use replacing::{Edition, Fetches, Kept, may_replace};
pub use reuse::{
    Failure, MustValidate, NoStaleOnError, Reuse, StaleRule, decide_collapsed, decide_reuse,
    decide_reuse_plain, only_if_cached, request_has_cache_directives, stale_on_error, wants_new,
};
pub use storing::{
    Configured, HEURISTIC_LIFETIME_MS_MAX, HEURISTIC_PERCENT, NeverStale, NotStored, Policy,
    STALE_WHEN_UNREACHABLE_MS, SetCookie, Storable, StoreRule, StoredMeta, Withheld,
    is_heuristically_cacheable, is_understood, may_store, may_store_post,
};
pub use targeted::is_targeted;
pub use update::{HeadEffect, fits_304, freshen_by_head, updated};
pub use vary::{VARY_NAMES_MAX, Vary, VaryKey, VaryNames, vary};
