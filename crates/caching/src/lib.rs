//! RFC 9111 and its kin as functions: may I store, may I reuse, what must I ask.
//!
//! No I/O, no clock, no state: field lines come in through [`FieldSource`], instants as unix
//! milliseconds, and what comes out is a value that names the rule it follows, so that a log line,
//! a
//! `Cache-Status` and an explanation can say it. Any bytes may come in; none of them panic.

#![forbid(unsafe_code)]

pub mod cache_status;
mod conditional;
pub mod date;
mod directives;
pub mod etag;
mod fields;
mod freshness;
mod invalidation;
pub mod range;
mod reuse;
mod storing;
mod targeted;
mod update;
mod vary;

pub use conditional::{
    Condition, Evaluator, Precondition, Validators, belongs_in_304, conditional,
    is_condition_or_range, validation_fields,
};
pub use directives::{CacheControl, Delta, MaxStale, Scope};
pub use fields::{DELTA_SECONDS_MAX, FieldSource, Request, Response};
pub use freshness::{Exchange, Freshness, InvalidFreshness, LifetimeSource};
pub use invalidation::{TargetUri, invalidated_locations, invalidates, resolve_same_origin};
pub use reuse::{
    Failure, MustValidate, NoStaleOnError, RequestHints, Reuse, StaleRule, decide_reuse,
    decide_reuse_plain, only_if_cached, request_has_cache_directives, stale_on_error,
};
pub use storing::{
    HEURISTIC_LIFETIME_MS_MAX, HEURISTIC_PERCENT, NeverStale, NotStored, Policy, Storable,
    StoreRule, StoredMeta, is_heuristically_cacheable, is_understood, may_store,
};
pub use update::{HeadEffect, fits_304, freshen_by_head, updated};
pub use vary::{VARY_NAMES_MAX, Vary, VaryKey, VaryNames, vary};
