//! What to do with a request, by what is stored and what it asks for, and by which rule. Nothing is
//! done here.

use std::sync::Arc;

use caching::cache_status::Forward;
use caching::range::{self, ByteRange, Selection, WhyWhole};
use caching::{
    Evaluator, Explain, Explanation, MustValidate, Precondition, RequestHints, Reuse, StaleRule,
};
use http1::{Method, Name, RequestHead};
use runtime::time;
use store::Key;

use crate::ask::{Ask, Held, What};
use crate::exchange::because;
use crate::request::hints;
use crate::shared::Shared;
use crate::told::Told;
use cache::Look;
use cache::Lookup;
use cache::partial::Partial;
use cache::stored::{Head, Stored, Wire};

/// What to do.
pub(crate) enum Plan {
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

/// How a whole response is sent.
pub(crate) enum Form {
    /// 304.
    NotModified,
    Whole(WhyWhole),
    /// 206.
    Parts(Vec<ByteRange>),
    /// 416.
    Unsatisfied,
}

/// A request beside what is stored.
pub(crate) struct Planning<'p> {
    pub(crate) shared: &'p Shared,
    pub(crate) head: RequestHead<'p>,
}

/// What to do, and the rule that says so.
pub(crate) type Planned = (Plan, Explanation);

impl Planning<'_> {
    /// What to do with a request that nothing but the store stands in the way of.
    pub(crate) fn plan(&self, uri: Key, look: Look) -> Planned {
        let now_ms = time::wall_ms();
        match self.shared.look(look, uri, &Wire(self.head.fields), now_ms) {
            Lookup::Absent(_) | Lookup::Uncacheable if self.wants_only_stored() => {
                (Plan::Refuse, because::ONLY_IF_CACHED)
            }
            Lookup::Uncacheable => (Plan::Pass(Forward::UriMiss), because::UNCACHEABLE),
            Lookup::Absent(key) => {
                // Only responses that vary have keys of their own.
                let (why, rule) = match key == uri {
                    true => (Forward::UriMiss, because::URI_MISS),
                    false => (Forward::VaryMiss, because::VARY_MISS),
                };
                match self.plan_to_ask(Ask::of(uri, key, why, Held::Nothing), rule) {
                    (Plan::Ask(ask), rule) if key != uri && ask.what == What::Whole => {
                        let offered = self.shared.offered(look, uri, &Wire(self.head.fields));
                        (Plan::Ask(Ask { offered, ..ask }), rule)
                    }
                    other => other,
                }
            }
            Lookup::Found(stored, key) => self.plan_whole(uri, key, stored, now_ms),
            Lookup::Part(partial, key) => self.plan_part(uri, key, partial, now_ms),
        }
    }

    /// Asks for the whole, or for the range that the client asks for: one of bytes can be stored.
    /// `rule` is why anything is asked for.
    fn plan_to_ask(&self, ask: Ask, rule: Explanation) -> Planned {
        if self.head.method == Method::Head {
            return (Plan::Pass(ask.why), rule);
        }
        if self.forbids_storing() {
            return (Plan::Pass(ask.why), because::NO_STORE);
        }
        let hints = hints(&self.head);
        if !hints.any(RequestHints::RANGE) {
            return (Plan::Ask(ask), rule);
        }
        // What a 206 to If-Range leaves out, nobody else should miss (RFC 9110, 15.3.7).
        if hints.any(RequestHints::IF_RANGE) || !self.asks_one_range() {
            return (Plan::Pass(ask.why), because::RANGES);
        }
        (Plan::Ask(Ask { what: What::Range { held: false }, ..ask }), rule)
    }

    fn plan_whole(&self, uri: Key, key: Key, stored: Arc<Stored>, now_ms: u64) -> Planned {
        let meta = &stored.head.meta;
        let ask =
            |stored: &Arc<Stored>, why| Ask::of(uri, key, why, Held::Whole(Arc::clone(stored)));
        match self.may_reuse(meta, now_ms) {
            Reuse::Fresh { .. } => {
                let held = Held::Whole(stored);
                (Plan::Serve { held, key, told: Told::HIT, behind: None }, because::FRESH)
            }
            Reuse::StaleAllowed { why, .. } => {
                let told = Told::stale(why, meta.freshness.ttl_seconds(now_ms));
                let behind = why == StaleRule::WhileRevalidate && !self.forbids_storing();
                let behind = behind.then(|| ask(&stored, Forward::Stale));
                (Plan::Serve { held: Held::Whole(stored), key, told, behind }, why.explain())
            }
            Reuse::Revalidate { why } => {
                let (forward, rule) = (reason(why), why.explain());
                match self.head.method {
                    Method::Head => (Plan::Head { why: forward, key, stored }, rule),
                    _ if self.forbids_storing() => (Plan::Pass(forward), because::NO_STORE),
                    _ => (Plan::Ask(ask(&stored, forward)), rule),
                }
            }
            Reuse::OnlyIfCachedMiss { why } => (Plan::Refuse, why.explain()),
            _ => (Plan::Refuse, because::ONLY_IF_CACHED),
        }
    }

    fn plan_part(&self, uri: Key, key: Key, partial: Arc<Partial>, now_ms: u64) -> Planned {
        let meta = &partial.head.meta;
        let reuse = self.may_reuse(meta, now_ms);
        if self.held_ranges(&partial).is_none() {
            if self.wants_only_stored() {
                return (Plan::Refuse, because::ONLY_IF_CACHED);
            }
            return self.plan_rest(uri, key, partial);
        }
        let held = Held::Part(Arc::clone(&partial));
        match reuse {
            Reuse::Fresh { .. } => {
                (Plan::Serve { held, key, told: Told::HIT, behind: None }, because::FRESH)
            }
            Reuse::StaleAllowed { why, .. } => {
                let told = Told::stale(why, meta.freshness.ttl_seconds(now_ms));
                (Plan::Serve { held, key, told, behind: None }, why.explain())
            }
            Reuse::Revalidate { why } => {
                let ask = Ask::of(uri, key, reason(why), held);
                match self.plan_to_ask(ask, why.explain()) {
                    (Plan::Ask(ask), rule) => {
                        (Plan::Ask(Ask { what: What::Range { held: true }, ..ask }), rule)
                    }
                    other => other,
                }
            }
            Reuse::OnlyIfCachedMiss { why } => (Plan::Refuse, why.explain()),
            _ => (Plan::Refuse, because::ONLY_IF_CACHED),
        }
    }

    /// What is stored in part is not enough.
    fn plan_rest(&self, uri: Key, key: Key, partial: Arc<Partial>) -> Planned {
        let complete_bytes = partial.complete_bytes;
        let held = Held::Part(Arc::clone(&partial));
        let ask = Ask::of(uri, key, Forward::Partial, held);
        let nothing_held = |ask| Ask { held: Held::Nothing, ..ask };
        match self.plan_to_ask(ask, because::PARTIAL) {
            // What the store cannot take as a whole it keeps in parts.
            (Plan::Ask(ask), _)
                if ask.what == What::Whole && complete_bytes > self.shared.object_bytes_max() =>
            {
                (Plan::Pass(ask.why), because::TOO_LARGE)
            }
            // Parts are in memory, which has no room for all of them.
            (Plan::Ask(ask), rule)
                if ask.what == What::Whole
                    && complete_bytes > self.shared.memory_object_bytes_max() =>
            {
                (Plan::Ask(nothing_held(ask)), rule)
            }
            (Plan::Ask(ask), rule) if ask.what == What::Whole => {
                let whole = ByteRange { first: 0, last: complete_bytes.saturating_sub(1) };
                let continuable = caching::if_range(&partial.head.meta.validators).is_some();
                let ask = match caching::missing(&partial.held(), whole) {
                    Some(rest) if continuable => Ask { what: What::Rest(rest), ..ask },
                    _ => nothing_held(ask),
                };
                (Plan::Ask(ask), rule)
            }
            (Plan::Ask(ask), rule) => (Plan::Ask(nothing_held(ask)), rule),
            other => other,
        }
    }

    /// The ranges that the request asks for, if all of them are held.
    pub(crate) fn held_ranges(&self, partial: &Partial) -> Option<Vec<ByteRange>> {
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

    /// How a whole response with a body of this length is sent.
    pub(crate) fn form(&self, head: &Head, length: u64) -> Form {
        if self.is_not_modified(head) {
            return Form::NotModified;
        }
        let wire = Wire(self.head.fields);
        let request = caching::Request { method: self.head.method_bytes, fields: &wire };
        match range::select_range(&request, head.status, &head.meta.validators, length) {
            Selection::Whole(why) => Form::Whole(why),
            Selection::Parts(ranges) => Form::Parts(ranges),
            Selection::Unsatisfiable => Form::Unsatisfied,
        }
    }

    /// Whether the client has it already, by its own validators.
    pub(crate) fn is_not_modified(&self, head: &Head) -> bool {
        let wire = Wire(self.head.fields);
        let request = caching::Request { method: self.head.method_bytes, fields: &wire };
        let validators = &head.meta.validators;
        let condition = caching::conditional(&request, head.status, validators, Evaluator::Cache);
        matches!(condition, Precondition::NotModified(_))
    }

    /// Fetches of the same range are collapsed, apart from those of the whole.
    pub(crate) fn flight_key(&self, ask: &Ask) -> Key {
        match ask.what {
            What::Whole | What::Rest(_) => ask.key,
            What::Range { .. } => {
                let range = self.head.fields.values(b"range").next().unwrap_or_default();
                self.shared.range_key(ask.key, range)
            }
        }
    }

    fn asks_one_range(&self) -> bool {
        let wire = Wire(self.head.fields);
        let request = caching::Request { method: self.head.method_bytes, fields: &wire };
        range::asks_one_range(&request)
    }

    fn wants_only_stored(&self) -> bool {
        caching::only_if_cached(&Wire(self.head.fields))
    }

    fn forbids_storing(&self) -> bool {
        self.head.fields.contains_token(Name::CacheControl, b"no-store")
    }

    /// A stored response that may be used as it is.
    pub(crate) fn look_again(&self, uri: Key) -> Option<Arc<Stored>> {
        let now_ms = time::wall_ms();
        match self.shared.look_up(uri, &Wire(self.head.fields), now_ms) {
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
