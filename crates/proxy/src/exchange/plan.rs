//! What to do with a request, by what is stored and what it asks for. Nothing is done here.

use std::sync::Arc;

use caching::cache_status::Forward;
use caching::range::{self, ByteRange, Selection};
use caching::{MustValidate, RequestHints, Reuse, StaleRule};
use http1::{Method, Name};
use runtime::time;
use store::Key;

use crate::connection::hints;
use crate::exchange::Exchange;
use crate::fetch::{Ask, Held, What};
use crate::partial::Partial;
use crate::shared::Lookup;
use crate::stored::{Stored, Wire};
use crate::told::Told;

/// What to do.
pub(super) enum Plan {
    /// Answer from what is stored, and validate it behind the client's back if there is an `Ask`.
    Serve { held: Held, key: Key, told: Told, behind: Option<Ask> },
    /// Pass the request on, store nothing.
    Pass(Forward),
    /// Pass a HEAD on, and hear what it says of what is stored.
    Head { why: Forward, key: Key, stored: Arc<Stored> },
    /// Ask for the store.
    Ask(Ask),
    /// It may not be asked for: 504.
    Refuse,
}

impl Exchange<'_> {
    pub(super) fn plan(&self, uri: Key) -> Plan {
        let now_ms = time::wall_ms();
        match self.worker.shared.look_up(uri, &Wire(self.head.fields), now_ms) {
            Lookup::Absent(_) | Lookup::Uncacheable if self.wants_only_stored() => Plan::Refuse,
            Lookup::Uncacheable => Plan::Pass(Forward::UriMiss),
            Lookup::Absent(key) => {
                // Only responses that vary have keys of their own.
                let why = if key == uri { Forward::UriMiss } else { Forward::VaryMiss };
                self.plan_to_ask(Ask { uri, key, why, what: What::Whole, held: Held::Nothing })
            }
            Lookup::Found(stored, key) => self.plan_whole(uri, key, stored, now_ms),
            Lookup::Part(partial, key) => self.plan_part(uri, key, partial, now_ms),
        }
    }

    /// Asks for the whole, or for the range that the client asks for: one of bytes can be stored.
    fn plan_to_ask(&self, ask: Ask) -> Plan {
        if self.head.method == Method::Head || self.forbids_storing() {
            return Plan::Pass(ask.why);
        }
        let hints = hints(&self.head);
        if !hints.any(RequestHints::RANGE) {
            return Plan::Ask(ask);
        }
        // What a 206 to If-Range leaves out, nobody else should miss (RFC 9110, 15.3.7).
        if hints.any(RequestHints::IF_RANGE) || !self.asks_one_range() {
            return Plan::Pass(ask.why);
        }
        Plan::Ask(Ask { what: What::Range { held: false }, ..ask })
    }

    fn plan_whole(&self, uri: Key, key: Key, stored: Arc<Stored>, now_ms: u64) -> Plan {
        let meta = &stored.head.meta;
        let ask = |stored: &Arc<Stored>, why| {
            let held = Held::Whole(Arc::clone(stored));
            Ask { uri, key, why, what: What::Whole, held }
        };
        match self.may_reuse(meta, now_ms) {
            Reuse::Fresh { .. } => {
                let held = Held::Whole(stored);
                Plan::Serve { held, key, told: Told::HIT, behind: None }
            }
            Reuse::StaleAllowed { why, .. } => {
                let told = Told::stale(why, meta.freshness.ttl_seconds(now_ms));
                let behind = why == StaleRule::WhileRevalidate && !self.forbids_storing();
                let behind = behind.then(|| ask(&stored, Forward::Stale));
                Plan::Serve { held: Held::Whole(stored), key, told, behind }
            }
            Reuse::Revalidate { why } => {
                let why = reason(why);
                match self.head.method {
                    Method::Head => Plan::Head { why, key, stored },
                    _ if self.forbids_storing() => Plan::Pass(why),
                    _ => Plan::Ask(ask(&stored, why)),
                }
            }
            _ => Plan::Refuse,
        }
    }

    fn plan_part(&self, uri: Key, key: Key, partial: Arc<Partial>, now_ms: u64) -> Plan {
        let meta = &partial.head.meta;
        let reuse = self.may_reuse(meta, now_ms);
        if self.held_ranges(&partial).is_none() {
            if self.wants_only_stored() {
                return Plan::Refuse;
            }
            return self.plan_rest(uri, key, partial);
        }
        let held = Held::Part(Arc::clone(&partial));
        match reuse {
            Reuse::Fresh { .. } => Plan::Serve { held, key, told: Told::HIT, behind: None },
            Reuse::StaleAllowed { why, .. } => {
                let told = Told::stale(why, meta.freshness.ttl_seconds(now_ms));
                Plan::Serve { held, key, told, behind: None }
            }
            Reuse::Revalidate { why } => {
                let ask = Ask { uri, key, why: reason(why), what: What::Whole, held };
                match self.plan_to_ask(ask) {
                    Plan::Ask(ask) => Plan::Ask(Ask { what: What::Range { held: true }, ..ask }),
                    other => other,
                }
            }
            _ => Plan::Refuse,
        }
    }

    /// What is stored in part is not enough.
    fn plan_rest(&self, uri: Key, key: Key, partial: Arc<Partial>) -> Plan {
        let complete_bytes = partial.complete_bytes;
        let held = Held::Part(Arc::clone(&partial));
        let ask = Ask { uri, key, why: Forward::Partial, what: What::Whole, held };
        let nothing_held = |ask| Ask { held: Held::Nothing, ..ask };
        match self.plan_to_ask(ask) {
            // What the store cannot take as a whole it keeps in parts.
            Plan::Ask(ask)
                if ask.what == What::Whole
                    && complete_bytes > self.worker.shared.object_bytes_max() =>
            {
                Plan::Pass(ask.why)
            }
            Plan::Ask(ask) if ask.what == What::Whole => {
                let whole = ByteRange { first: 0, last: complete_bytes.saturating_sub(1) };
                let continuable = caching::if_range(&partial.head.meta.validators).is_some();
                match caching::missing(&partial.held(), whole) {
                    Some(rest) if continuable => Plan::Ask(Ask { what: What::Rest(rest), ..ask }),
                    _ => Plan::Ask(nothing_held(ask)),
                }
            }
            Plan::Ask(ask) => Plan::Ask(nothing_held(ask)),
            other => other,
        }
    }

    /// The ranges that the request asks for, if all of them are held.
    pub(super) fn held_ranges(&self, partial: &Partial) -> Option<Vec<ByteRange>> {
        let wire = Wire(self.head.fields);
        let request = caching::Request { method: self.head.method_bytes, fields: &wire };
        let validators = &partial.head.meta.validators;
        match range::select_range(&request, 200, validators, partial.complete_bytes) {
            Selection::Parts(ranges) => {
                let held = partial.held();
                ranges.iter().all(|wanted| caching::covers(&held, *wanted)).then_some(ranges)
            }
            Selection::Whole(_) | Selection::Unsatisfiable => None,
        }
    }

    fn asks_one_range(&self) -> bool {
        let wire = Wire(self.head.fields);
        let request = caching::Request { method: self.head.method_bytes, fields: &wire };
        range::asks_one_range(&request)
    }

    pub(super) fn wants_only_stored(&self) -> bool {
        caching::only_if_cached(&Wire(self.head.fields))
    }

    fn forbids_storing(&self) -> bool {
        self.head.fields.contains_token(Name::CacheControl, b"no-store")
    }

    /// A stored response that may be used as it is.
    pub(crate) fn look_again(&self, uri: Key) -> Option<Arc<Stored>> {
        let now_ms = time::wall_ms();
        match self.worker.shared.look_up(uri, &Wire(self.head.fields), now_ms) {
            Lookup::Found(stored, _) => {
                let reuse = self.may_reuse(&stored.head.meta, now_ms);
                matches!(reuse, Reuse::Fresh { .. }).then_some(stored)
            }
            Lookup::Part(..) | Lookup::Absent(_) | Lookup::Uncacheable => None,
        }
    }

    fn may_reuse(&self, meta: &caching::StoredMeta, now_ms: u64) -> Reuse {
        let wire = Wire(self.head.fields);
        let request = caching::Request { method: self.head.method_bytes, fields: &wire };
        caching::decide_reuse(&request, meta, now_ms)
    }
}

/// Why a request goes forward though something is stored (RFC 9211, 2.2).
fn reason(why: MustValidate) -> Forward {
    match why {
        MustValidate::RequestNoCache
        | MustValidate::RequestPragma
        | MustValidate::RequestMaxAge
        | MustValidate::RequestMinFresh => Forward::Request,
        _ => Forward::Stale,
    }
}
