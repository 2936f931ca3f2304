//! What is told of how a response came about: `Cache-Status` to the client (RFC 9211), an outcome
//! to the log.
//!
//! Every response that came from an origin or out of the store has a member of `Cache-Status`. What
//! we say ourselves (a refusal, the answer of a route, the answer to a purge) came from neither and
//! has none (RFC 9211, 2); a refusal says why in `Proxy-Status`, which is made for that (RFC 9209).
//!
//! A fresh hit says `hit` and no `ttl`: its bytes are laid down beforehand, and its `Age` beside
//! its `Cache-Control` says the same. A stale one says how stale it is, and by which rule it was
//! served.

use caching::cache_status::{CacheStatus, Forward, Handled};
use caching::{Explain, StaleRule};

use outcome::Outcome;
use outcome::Refusal;
use policy::via::NAME;

/// One response's story.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) outcome: Outcome,
    handled: Handled,
    ttl_seconds: Option<i64>,
    detail: Option<&'static str>,
}

impl Told {
    /// From the store, fresh.
    pub(crate) const HIT: Told =
        Told { outcome: Outcome::Hit, handled: Handled::Hit, ttl_seconds: None, detail: None };

    /// From the store, stale, by this rule.
    pub(crate) fn stale(rule: StaleRule, ttl_seconds: i64) -> Told {
        let detail = Some(rule.explain().token);
        Told { ttl_seconds: Some(ttl_seconds), detail, ..Told::HIT }
    }

    /// The origin was asked, and answered with this status.
    pub(crate) fn asked(outcome: Outcome, why: Forward, status: Option<u16>) -> Told {
        let handled = Handled::Forwarded { why, status, stored: false, collapsed: false };
        Told { outcome, handled, ttl_seconds: None, detail: None }
    }

    /// The answer goes into the store.
    pub(crate) fn stored(mut self) -> Told {
        if let Handled::Forwarded { stored, .. } = &mut self.handled {
            *stored = true;
        }
        self
    }

    /// The answer is that to another's request.
    pub(crate) fn collapsed(why: Forward) -> Told {
        let handled = Handled::Forwarded { why, status: None, stored: false, collapsed: true };
        Told { outcome: Outcome::Collapsed, handled, ttl_seconds: None, detail: None }
    }

    /// By which rule.
    pub(crate) fn because(self, rule: &'static str) -> Told {
        Told { detail: Some(rule), ..self }
    }

    /// The value of the field.
    pub(crate) fn value(&self) -> Vec<u8> {
        let Told { handled, ttl_seconds, detail, .. } = *self;
        let mut out = Vec::with_capacity(64);
        CacheStatus { name: NAME, handled, ttl_seconds, key: None, detail }.write(&mut out);
        out
    }

    /// The field's line.
    pub(crate) fn line(&self) -> Vec<u8> {
        [b"Cache-Status: ", &self.value()[..], b"\r\n"].concat()
    }
}

/// The line of `Proxy-Status` that says why a request is refused: the type of error that others
/// know, and the rule by our name for it.
pub(crate) fn refused_line(refusal: Refusal) -> Vec<u8> {
    format!("Proxy-Status: {}\r\n", refused_value(refusal)).into_bytes()
}

/// Its value.
pub(crate) fn refused_value(refusal: Refusal) -> String {
    let (error, rule) = (refusal.error_type(), refusal.name());
    format!("{NAME}; error={error}; details=\"{rule}\"")
}
