//! How a response came about: `Cache-Status` for the client (RFC 9211), the outcome for the log.
//!
//! Every response from an origin or from the store has a member of `Cache-Status`. An answer that
//! the proxy itself generates (a refusal, a route's answer, the answer to a purge) has no member
//! (RFC 9211, 2). A refusal gives its reason in `Proxy-Status` (RFC 9209).
//!
//! A fresh hit says `hit` and has no `ttl`, because its bytes are prepared in advance. `Age` and
//! `Cache-Control` give the same information. A stale hit says how stale the response is, and which
//! rule allowed its use.

use caching::cache_status::{CacheStatus as Member, Forward, Handled};
use caching::{Explain, StaleRule};
use outcome::{Outcome, Refusal};
use policy::via::NAME;

/// How one response came about.
#[derive(Clone, Copy, Debug)]
pub struct CacheStatus {
    /// The outcome for the log.
    pub outcome: Outcome,
    handled: Handled,
    ttl_seconds: Option<i64>,
    detail: Option<&'static str>,
}

impl CacheStatus {
    /// Fresh from the store.
    pub const HIT: CacheStatus = CacheStatus {
        outcome: Outcome::Hit,
        handled: Handled::Hit,
        ttl_seconds: None,
        detail: None,
    };

    /// Stale from the store, allowed by this rule.
    pub fn stale(rule: StaleRule, ttl_seconds: i64) -> CacheStatus {
        let detail = Some(rule.explain().token);
        CacheStatus { ttl_seconds: Some(ttl_seconds), detail, ..CacheStatus::HIT }
    }

    /// From the origin, which answered with this status.
    pub fn forwarded(outcome: Outcome, why: Forward, status: Option<u16>) -> CacheStatus {
        let handled = Handled::Forwarded { why, status, stored: false, collapsed: false };
        CacheStatus { outcome, handled, ttl_seconds: None, detail: None }
    }

    /// The same, and the response is stored.
    pub fn stored(mut self) -> CacheStatus {
        if let Handled::Forwarded { stored, .. } = &mut self.handled {
            *stored = true;
        }
        self
    }

    /// From a fetch that another request had started.
    pub fn collapsed(why: Forward) -> CacheStatus {
        let handled = Handled::Forwarded { why, status: None, stored: false, collapsed: true };
        CacheStatus { outcome: Outcome::Collapsed, handled, ttl_seconds: None, detail: None }
    }

    /// The same with the name of a rule.
    pub fn with_detail(self, rule: &'static str) -> CacheStatus {
        CacheStatus { detail: Some(rule), ..self }
    }

    /// The value of the field.
    pub fn value(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        self.append(&mut out);
        out
    }

    /// Appends the value of the field.
    pub fn append(&self, out: &mut Vec<u8>) {
        let CacheStatus { handled, ttl_seconds, detail, .. } = *self;
        Member { name: NAME, handled, ttl_seconds, key: None, detail }.write(out);
    }
}

/// The line of `Proxy-Status` that says why a request is refused: the standard error type, and our
/// name of the rule.
pub fn proxy_status_line(refusal: Refusal) -> Vec<u8> {
    format!("Proxy-Status: {}\r\n", proxy_status(refusal)).into_bytes()
}

/// Its value.
pub fn proxy_status(refusal: Refusal) -> String {
    let (error, rule) = (refusal.error_type(), refusal.name());
    format!("{NAME}; error={error}; details=\"{rule}\"")
}
