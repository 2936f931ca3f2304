//! The freshness lifetime and age of a response (RFC 9111, 4.2), as plain arithmetic.
//!
//! All times are unix milliseconds of this machine's clock, except `date_value_ms`, which is the
//! origin's. All arithmetic saturates, so a clock that was set back or a date from another century
//! makes a response old or not yet older, but never panics.

use serde::{Deserialize, Serialize};

use crate::date;
use crate::directives::{CacheControl, Delta};
use crate::fields::{Escapes, FieldSource, delta_seconds, members, trim};

/// When a request was sent and when the head of its response arrived, in unix ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// When the request was sent (`request_time`).
    pub request_ms: u64,
    /// When the response's head arrived (`response_time`).
    pub response_ms: u64,
}

/// The rule that determined the freshness lifetime (RFC 9111, 4.2.1, in order of precedence).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LifetimeSource {
    /// `s-maxage`, in a shared cache.
    SMaxage,
    /// `max-age`.
    MaxAge,
    /// `Expires` minus `Date`.
    Expires,
    /// A tenth of the time since `Last-Modified` (4.2.2).
    Heuristic,
    /// The stated freshness is invalid: stale at once.
    Invalid(InvalidFreshness),
    /// No lifetime is stated or suggested: stale at once.
    Unstated,
    /// The operator has configured it: [`crate::Configured`].
    Configured {
        /// The number of its route when the response came.
        route: u16,
        /// Its number there. `None`: it was the one of `negative`.
        number: Option<u16>,
    },
}

impl LifetimeSource {
    /// Whether the origin stated the lifetime, validly or not.
    #[must_use]
    pub fn is_explicit(self) -> bool {
        !matches!(
            self,
            LifetimeSource::Heuristic
                | LifetimeSource::Unstated
                | LifetimeSource::Configured { .. }
        )
    }
}

/// The invalid field or directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InvalidFreshness {
    /// `s-maxage` without a valid number.
    SMaxage,
    /// `max-age` without a valid number.
    MaxAge,
    /// `Expires` without a valid date ("0" is the common case), or several different ones.
    Expires,
}

/// The inputs of a stored response's freshness. They do not change while it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freshness {
    /// `Date`, or the time of receipt if there was none (RFC 9110, 6.6.1).
    pub date_value_ms: u64,
    /// `freshness_lifetime`.
    pub lifetime_ms: u64,
    /// The rule that determined it.
    pub lifetime_source: LifetimeSource,
    /// `corrected_initial_age`: its age when it arrived.
    pub corrected_initial_age_ms: u64,
    /// `response_time`: when it arrived.
    pub response_ms: u64,
    /// `age_value` in seconds, which is the largest it can be.
    pub age_value_seconds: u32,
    /// `response_delay`; more than 49 days counts as 49 days.
    pub response_delay_ms: u32,
}

/// The inputs of a stored response's age, for callers that keep them separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aging {
    /// `response_time`: when it arrived.
    response_ms: u64,
    /// `corrected_initial_age`: its age then.
    corrected_initial_age_ms: u64,
}

impl Aging {
    /// `current_age` (RFC 9111, 4.2.3).
    #[must_use]
    pub fn current_age_ms(&self, now_ms: u64) -> u64 {
        let resident_ms = now_ms.saturating_sub(self.response_ms);
        let twice_ms = if planted::is(planted::Bug::AgeTwice) { resident_ms } else { 0 };
        self.corrected_initial_age_ms.saturating_add(resident_ms).saturating_add(twice_ms)
    }

    /// `corrected_initial_age`: its age when it arrived.
    #[must_use]
    pub fn on_arrival_ms(&self) -> u64 {
        self.corrected_initial_age_ms
    }

    /// The value of the `Age` field to send.
    #[must_use]
    pub fn age_seconds(&self, now_ms: u64) -> u64 {
        (self.current_age_ms(now_ms) / 1000).min(u64::from(crate::DELTA_SECONDS_MAX))
    }
}

/// The age of a response when it arrived, in each way of RFC 9111, 4.2.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeOnArrival {
    /// `apparent_age`: in whole seconds, as `Date` is.
    pub apparent_age_ms: u64,
    /// `age_value`.
    pub age_value_ms: u64,
    /// `response_delay`.
    pub response_delay_ms: u64,
}

impl AgeOnArrival {
    /// `corrected_age_value`.
    #[must_use]
    pub fn corrected_age_value_ms(&self) -> u64 {
        self.age_value_ms.saturating_add(self.response_delay_ms)
    }

    /// `corrected_initial_age`.
    #[must_use]
    pub fn corrected_initial_age_ms(&self) -> u64 {
        self.apparent_age_ms.max(self.corrected_age_value_ms())
    }
}

impl Freshness {
    /// The terms of `corrected_initial_age`.
    #[must_use]
    pub fn age_on_arrival(&self) -> AgeOnArrival {
        AgeOnArrival {
            apparent_age_ms: apparent_age_ms(self.date_value_ms, self.response_ms),
            age_value_ms: u64::from(self.age_value_seconds) * 1000,
            response_delay_ms: u64::from(self.response_delay_ms),
        }
    }

    /// The inputs of its age.
    #[must_use]
    pub fn aging(&self) -> Aging {
        let Freshness { response_ms, corrected_initial_age_ms, .. } = *self;
        Aging { response_ms, corrected_initial_age_ms }
    }

    /// `current_age` (RFC 9111, 4.2.3).
    #[must_use]
    pub fn current_age_ms(&self, now_ms: u64) -> u64 {
        self.aging().current_age_ms(now_ms)
    }

    /// The value of the `Age` field to send.
    #[must_use]
    pub fn age_seconds(&self, now_ms: u64) -> u64 {
        self.aging().age_seconds(now_ms)
    }

    /// `response_is_fresh` (RFC 9111, 4.2).
    #[must_use]
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        self.lifetime_ms > self.current_age_ms(now_ms)
    }

    /// The time at which it becomes stale: it is fresh while `now < fresh_until_ms()`. Zero if it
    /// was stale on arrival.
    #[must_use]
    pub fn fresh_until_ms(&self) -> u64 {
        match self.lifetime_ms.checked_sub(self.corrected_initial_age_ms) {
            None | Some(0) => 0,
            Some(left_ms) => self.response_ms.saturating_add(left_ms),
        }
    }

    /// The remaining lifetime in seconds, negative if stale: the `ttl` of RFC 9211.
    #[must_use]
    pub fn ttl_seconds(&self, now_ms: u64) -> i64 {
        let left_ms = i128::from(self.lifetime_ms) - i128::from(self.current_age_ms(now_ms));
        i64::try_from(left_ms.div_euclid(1000)).unwrap_or(i64::MIN)
    }

    /// By how much the age exceeds the lifetime.
    #[must_use]
    pub fn staleness_ms(&self, now_ms: u64) -> u64 {
        self.current_age_ms(now_ms).saturating_sub(self.lifetime_ms)
    }
}

/// What the lifetime depends on besides the response's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LifetimeRules {
    pub(crate) shared: bool,
    /// Heuristics are permitted: the status is heuristically cacheable, or `public` is present.
    pub(crate) heuristic: bool,
    pub(crate) heuristic_percent: u64,
    pub(crate) heuristic_lifetime_ms_max: u64,
}

/// RFC 9111, 4.2, for a response that has just arrived.
pub(crate) fn freshness<F: FieldSource + ?Sized>(
    directives: &CacheControl,
    fields: &F,
    exchange: Exchange,
    rules: LifetimeRules,
) -> Freshness {
    let date = fields.first("date").and_then(|value| date::parse(value, exchange.response_ms));
    let date_value_ms = date.unwrap_or(exchange.response_ms);
    let (lifetime_ms, lifetime_source) =
        lifetime(directives, fields, date_value_ms, exchange.response_ms, rules);
    let age_value_seconds = age_value(fields);
    let age = AgeOnArrival {
        apparent_age_ms: apparent_age_ms(date_value_ms, exchange.response_ms),
        age_value_ms: u64::from(age_value_seconds) * 1000,
        response_delay_ms: exchange.response_ms.saturating_sub(exchange.request_ms),
    };
    Freshness {
        date_value_ms,
        lifetime_ms,
        lifetime_source,
        corrected_initial_age_ms: age.corrected_initial_age_ms(),
        response_ms: exchange.response_ms,
        age_value_seconds,
        response_delay_ms: u32::try_from(age.response_delay_ms).unwrap_or(u32::MAX),
    }
}

/// RFC 9111, 4.2.1.
fn lifetime<F: FieldSource + ?Sized>(
    directives: &CacheControl,
    fields: &F,
    date_value_ms: u64,
    response_ms: u64,
    rules: LifetimeRules,
) -> (u64, LifetimeSource) {
    if rules.shared {
        match directives.s_maxage {
            Delta::Seconds(seconds) => {
                return (u64::from(seconds) * 1000, LifetimeSource::SMaxage);
            }
            Delta::Invalid => return (0, LifetimeSource::Invalid(InvalidFreshness::SMaxage)),
            Delta::Absent => {}
        }
    }
    match directives.max_age {
        Delta::Seconds(seconds) => return (u64::from(seconds) * 1000, LifetimeSource::MaxAge),
        Delta::Invalid => return (0, LifetimeSource::Invalid(InvalidFreshness::MaxAge)),
        Delta::Absent => {}
    }
    match expires(fields, response_ms) {
        Expires::At(at_ms) => {
            return (at_ms.saturating_sub(date_value_ms), LifetimeSource::Expires);
        }
        Expires::Invalid => return (0, LifetimeSource::Invalid(InvalidFreshness::Expires)),
        Expires::Absent => {}
    }
    if !rules.heuristic {
        return (0, LifetimeSource::Unstated);
    }
    let modified = fields.first("last-modified").and_then(|value| date::parse(value, response_ms));
    match modified.and_then(|modified_ms| date_value_ms.checked_sub(modified_ms)) {
        Some(unmodified_ms) if unmodified_ms > 0 => {
            let share_ms = unmodified_ms.saturating_mul(rules.heuristic_percent) / 100;
            (share_ms.min(rules.heuristic_lifetime_ms_max), LifetimeSource::Heuristic)
        }
        _ => (0, LifetimeSource::Unstated),
    }
}

enum Expires {
    Absent,
    Invalid,
    At(u64),
}

/// `Expires` is not a list: several different values state nothing (RFC 9111, 4.2.1 and 5.3).
fn expires<F: FieldSource + ?Sized>(fields: &F, response_ms: u64) -> Expires {
    let mut values = fields.values("expires").map(trim);
    let Some(first) = values.next() else { return Expires::Absent };
    if values.any(|other| other != first) {
        return Expires::Invalid;
    }
    match date::parse(first, response_ms) {
        Some(at_ms) => Expires::At(at_ms),
        None => Expires::Invalid,
    }
}

/// `age_value` in seconds (RFC 9111, 5.1): the first member of the first line; an invalid number is
/// ignored.
fn age_value<F: FieldSource + ?Sized>(fields: &F) -> u32 {
    fields
        .first("age")
        .and_then(|value| members(value, Escapes::Backslash).next())
        .and_then(delta_seconds)
        .unwrap_or(0)
}

/// `apparent_age` (RFC 9111, 4.2.3). `Date` has whole seconds, so whole seconds are compared;
/// otherwise a response would be up to a second old when it is made. Without a `Date`, the time of
/// arrival is used.
fn apparent_age_ms(date_value_ms: u64, response_ms: u64) -> u64 {
    (response_ms - response_ms % 1000).saturating_sub(date_value_ms)
}

#[cfg(test)]
mod tests;
