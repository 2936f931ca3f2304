//! The step that follows a look into the store, and the rule that decides the step. This module
//! only decides. Other modules carry the step out.

use std::sync::Arc;

use cache::partial::Partial;
use cache::stored::{Head, Stored, Wire};
use cache::{Lookup, Query};
use caching::cache_status::Forward;
use caching::range::{self, ByteRange, Selection, WhyWhole};
use caching::{Explain, Explanation, MustValidate, RequestHints, Reuse, StaleRule};
use http1::{Method, Name};
use outcome::Refusal;
use runtime::time;
use store::Key;

use crate::cache_status::CacheStatus;
use crate::request::{Request, hints};
use crate::step::{Ask, FromStore, Held, Step, Unshared, Validated, What};
use crate::{coded, rules};

/// The form in which a whole response is sent.
pub(crate) enum Form {
    /// 304.
    NotModified,
    Whole(WhyWhole),
    /// 206.
    Parts(Vec<ByteRange>),
    /// 416.
    Unsatisfied,
}

/// A step, and the rule that decided it.
pub(crate) type Planned = (Step, Explanation);

impl Request {
    /// What to do with a request that the store may answer.
    pub(crate) fn plan(&self, uri: Key) -> Planned {
        let now_ms = time::wall_ms();
        let wire = self.wire();
        let query = self.query(&wire, now_ms);
        match self.worker.cache.look_by_parts(uri, &query) {
            Lookup::Absent(_) | Lookup::Unshared(_) | Lookup::Bypassed
                if self.wants_only_stored() =>
            {
                only_if_cached(rules::ONLY_IF_CACHED)
            }
            Lookup::Bypassed => (Step::Pass(Forward::Bypass, None), rules::HANDED_OVER),
            Lookup::Unshared(key) => {
                let (why, _) = self.why_absent(uri, key, &query);
                let step = match self.method() {
                    Method::Head => Step::Pass(why, None),
                    _ if planted::is(planted::Bug::HitForPass) => Step::Pass(why, None),
                    _ if self.is_selective() => match self.what_to_ask(rules::UNSHARED) {
                        Ok(what) => {
                            let ask = Ask::of(uri, key, why, None);
                            Step::Fetch(Box::new(Ask { what, unshared: true, ..ask }))
                        }
                        Err(_) => Step::Pass(why, None),
                    },
                    _ => self.pass_unshared(uri, key, why),
                };
                (step, rules::UNSHARED)
            }
            Lookup::Absent(key) => {
                let (why, rule) = self.why_absent(uri, key, &query);
                let what = match self.what_to_ask(rule) {
                    Ok(what) => what,
                    Err(rule) => return (Step::Pass(why, None), rule),
                };
                let offered = match what {
                    // Not those of other keys: only the operator knows how much they differ.
                    What::Whole if key != uri && query.parts.is_none() => {
                        self.worker.cache.offered(self.look, uri, &wire)
                    }
                    _ => Vec::new(),
                };
                let ask = Ask { what, offered, ..Ask::of(uri, key, why, None) };
                (Step::Fetch(Box::new(ask)), rule)
            }
            Lookup::Found(stored, key) if stored.sets_cookie() && !self.shares_cookies() => {
                // It was stored when cookies were shared.
                match self.what_to_ask(rules::STORED_COOKIE) {
                    _ if self.wants_only_stored() => only_if_cached(rules::ONLY_IF_CACHED),
                    Ok(What::Whole) => {
                        let ask = Ask::of(uri, key, Forward::Miss, None);
                        (Step::Fetch(Box::new(ask)), rules::STORED_COOKIE)
                    }
                    _ => (Step::Pass(Forward::Miss, None), rules::STORED_COOKIE),
                }
            }
            Lookup::Found(stored, key) => self.plan_whole(uri, key, stored, now_ms),
            Lookup::Part(partial, key) => self.plan_part(uri, key, partial, now_ms),
        }
    }

    /// Passes the request on. Its answer is stored if it may be, unless conditions or a range of
    /// the request may have drawn the answer.
    pub(crate) fn pass_unshared(&self, uri: Key, key: Key, why: Forward) -> Step {
        let cache = &self.worker.cache;
        let before = (cache.watches.stamp(&uri), cache.purges.now());
        let of = Unshared { uri, key, why, before };
        Step::Pass(why, (!self.is_selective()).then_some(of))
    }

    /// The request, for a look into the store.
    fn query<'q>(&'q self, request: &'q Wire<'q>, now_ms: u64) -> Query<'q> {
        Query { look: self.look, parts: self.key_parts(), request, now_ms }
    }

    /// Whether the request asks for less than the whole response.
    fn is_selective(&self) -> bool {
        let fields = self.fields();
        [Name::IfNoneMatch, Name::IfModifiedSince, Name::Range].iter().any(|name| fields.has(*name))
    }

    /// Why a request is forwarded if it selects no stored response. Only responses that vary have a
    /// key other than the key without `Vary`.
    fn why_absent(&self, uri: Key, key: Key, query: &Query<'_>) -> (Forward, Explanation) {
        let of_none = self.worker.cache.key_of_none(uri, query.parts, query.request);
        match key == of_none {
            true => (Forward::UriMiss, rules::URI_MISS),
            false => (Forward::VaryMiss, rules::VARY_MISS),
        }
    }

    /// Whether to request the whole response, or the range that the client requests: a single byte
    /// range can be stored. `Err` is the rule by which the request is passed on instead; `rule` is
    /// the rule by which the origin is asked at all.
    fn what_to_ask(&self, rule: Explanation) -> Result<What, Explanation> {
        if self.method() == Method::Head {
            return Err(rule);
        }
        if self.forbids_storing() {
            return Err(rules::NO_STORE);
        }
        let hints = hints(&self.fields());
        if !hints.any(RequestHints::RANGE) {
            return Ok(What::Whole);
        }
        // Other clients must not miss what a 206 to If-Range leaves out (RFC 9110, 15.3.7).
        let asks_one_range = range::asks_one_range(&self.asked(&self.wire()));
        if hints.any(RequestHints::IF_RANGE) || !asks_one_range {
            return Err(rules::RANGES);
        }
        Ok(What::Range { held: false })
    }

    fn plan_whole(&self, uri: Key, key: Key, stored: Arc<Stored>, now_ms: u64) -> Planned {
        let meta = &stored.head.meta;
        let unshared = now_ms < stored.head.unshared_until_ms;
        let held = || Some(Held::Whole(Arc::clone(&stored)));
        let ask = |why| Ask { unshared, ..Ask::of(uri, key, why, held()) };
        match self.may_reuse(meta, now_ms) {
            Reuse::Revalidate { why } => {
                let (forward, rule) = (forward_reason(why), why.explain());
                match self.method() {
                    Method::Head => {
                        let of = Validated { why: forward, uri, key, stored };
                        (Step::ValidateByHead(Box::new(of)), rule)
                    }
                    _ if self.forbids_storing() => (Step::Pass(forward, None), rules::NO_STORE),
                    _ => (Step::Fetch(Box::new(ask(forward))), rule),
                }
            }
            reuse => {
                let is_background =
                    matches!(reuse, Reuse::StaleAllowed { why: StaleRule::WhileRevalidate, .. })
                        && !self.forbids_storing();
                let revalidate = is_background.then(|| Box::new(ask(Forward::Stale)));
                let held = Held::Whole(Arc::clone(&stored));
                let cache_status = CacheStatus::HIT;
                let from = FromStore { key, held, cache_status, revalidate };
                serve_stored(from, reuse, now_ms)
            }
        }
    }

    fn plan_part(&self, uri: Key, key: Key, partial: Arc<Partial>, now_ms: u64) -> Planned {
        let reuse = self.may_reuse(&partial.head.meta, now_ms);
        let unshared = now_ms < partial.head.unshared_until_ms;
        if self.held_ranges(&partial).is_none() {
            return match self.wants_only_stored() {
                true => only_if_cached(rules::ONLY_IF_CACHED),
                false => self.plan_rest(uri, key, partial, unshared),
            };
        }
        let held = Held::Part(partial);
        match reuse {
            Reuse::Revalidate { why } => {
                let forward = forward_reason(why);
                match self.what_to_ask(why.explain()) {
                    Ok(_) => {
                        let what = What::Range { held: true };
                        let ask = Ask::of(uri, key, forward, Some(held));
                        (Step::Fetch(Box::new(Ask { what, unshared, ..ask })), why.explain())
                    }
                    Err(rule) => (Step::Pass(forward, None), rule),
                }
            }
            reuse => {
                let cache_status = CacheStatus::HIT;
                let from = FromStore { key, held, cache_status, revalidate: None };
                serve_stored(from, reuse, now_ms)
            }
        }
    }

    /// The stored parts are not enough.
    fn plan_rest(&self, uri: Key, key: Key, partial: Arc<Partial>, unshared: bool) -> Planned {
        let why = Forward::Partial;
        let complete_bytes = partial.complete_bytes;
        let what = match self.what_to_ask(rules::PARTIAL) {
            // What is too large to store as a whole is stored in parts.
            Ok(What::Whole) if complete_bytes > self.worker.cache.object_bytes_max() => {
                return (Step::Pass(why, None), rules::TOO_LARGE);
            }
            Ok(what) => what,
            Err(rule) => return (Step::Pass(why, None), rule),
        };
        let ask = Ask { what, unshared, ..Ask::of(uri, key, why, None) };
        let continuable = caching::if_range(&partial.head.meta.validators).is_some();
        // Parts are in memory, which has no room for all of a larger response.
        let fits = complete_bytes <= self.worker.cache.memory_object_bytes_max();
        let ask = match what {
            What::Whole if continuable && fits => {
                let whole = ByteRange { first: 0, last: complete_bytes.saturating_sub(1) };
                match caching::missing(&partial.held(), whole) {
                    Some(rest) => {
                        Ask { what: What::Rest(rest), held: Some(Held::Part(partial)), ..ask }
                    }
                    None => ask,
                }
            }
            _ => ask,
        };
        (Step::Fetch(Box::new(ask)), rules::PARTIAL)
    }

    /// The requested ranges, if all of them are stored.
    pub(crate) fn held_ranges(&self, partial: &Partial) -> Option<Vec<ByteRange>> {
        match self.selection(&partial.head, 200, partial.complete_bytes) {
            Selection::Parts(ranges) => {
                let held = partial.held();
                ranges.iter().all(|wanted| caching::covers(&held, *wanted)).then_some(ranges)
            }
            Selection::Whole(_) | Selection::Unsatisfiable => None,
        }
    }

    /// The ranges that the request selects of a response with this status and length. Of a response
    /// that is sent in several codings the client may have the beginning of any.
    pub(crate) fn selection(&self, head: &Head, status: u16, length: u64) -> Selection {
        let wire = self.wire();
        let takes_range = self.fields().has(Name::Range);
        let has_codings = || head.source().is_some() && range::is_by_date(&wire);
        if takes_range && (has_codings() || self.may_mix_codings(head)) {
            return Selection::Whole(WhyWhole::IfRange);
        }
        range::select_range(&self.asked(&wire), status, &head.meta.validators, length)
    }

    /// The form in which a whole response with a body of this length is sent.
    pub(crate) fn form(&self, head: &Head, length: u64) -> Form {
        if self.is_not_modified(head) {
            return Form::NotModified;
        }
        match self.selection(head, head.status, length) {
            Selection::Whole(why) => Form::Whole(why),
            Selection::Parts(ranges) => Form::Parts(ranges),
            Selection::Unsatisfiable => Form::Unsatisfied,
        }
    }

    /// Whether the client's copy is still good, by the client's own validators.
    pub(crate) fn is_not_modified(&self, head: &Head) -> bool {
        coded::is_not_modified(self.method_bytes(), self.fields(), head)
    }

    /// The key by which fetches are collapsed: fetches of a range are kept apart from fetches of
    /// the whole.
    pub(crate) fn flight_key(&self, ask: &Ask) -> Key {
        match ask.what {
            What::Whole | What::Rest(_) => ask.key,
            What::Range { .. } => {
                let range = self.fields().values(b"range").next().unwrap_or_default();
                self.worker.cache.range_key(ask.key, range)
            }
        }
    }

    /// A fresh stored response.
    pub(crate) fn look_again(&self, uri: Key) -> Option<Arc<Stored>> {
        let now_ms = time::wall_ms();
        let wire = self.wire();
        match self.worker.cache.look_by_parts(uri, &self.query(&wire, now_ms)) {
            Lookup::Found(stored, _) if stored.sets_cookie() && !self.shares_cookies() => None,
            Lookup::Found(stored, _) => {
                let reuse = self.may_reuse(&stored.head.meta, now_ms);
                matches!(reuse, Reuse::Fresh { .. }).then_some(stored)
            }
            Lookup::Part(..) | Lookup::Absent(_) | Lookup::Unshared(_) | Lookup::Bypassed => None,
        }
    }

    pub(crate) fn wants_only_stored(&self) -> bool {
        caching::only_if_cached(&self.wire())
    }

    fn forbids_storing(&self) -> bool {
        self.fields().contains_token(Name::CacheControl, b"no-store")
    }

    fn may_reuse(&self, meta: &caching::StoredMeta, now_ms: u64) -> Reuse {
        caching::decide_reuse(&self.asked(&self.wire()), meta, now_ms)
    }
}

/// Answers from the store, if the response may be used.
fn serve_stored(mut from: FromStore, reuse: Reuse, now_ms: u64) -> Planned {
    let rule = match reuse {
        Reuse::Fresh { .. } => rules::FRESH,
        Reuse::StaleAllowed { why, .. } => {
            let ttl_seconds = from.held.meta().freshness.ttl_seconds(now_ms);
            from.cache_status = CacheStatus::stale(why, ttl_seconds);
            why.explain()
        }
        Reuse::OnlyIfCachedMiss { why } => return only_if_cached(why.explain()),
        _ => return only_if_cached(rules::ONLY_IF_CACHED),
    };
    (Step::ServeStored(Box::new(from)), rule)
}

/// The answer 504 (RFC 9111, 5.2.1.7), by this rule.
fn only_if_cached(rule: Explanation) -> Planned {
    (Step::Refuse(Refusal::OnlyIfCached), rule)
}

/// Why a request is forwarded although a response is stored (RFC 9211, 2.2).
fn forward_reason(why: MustValidate) -> Forward {
    match why {
        MustValidate::RequestNoCache
        | MustValidate::RequestPragma
        | MustValidate::RequestMaxAge
        | MustValidate::RequestMinFresh => Forward::Request,
        _ => Forward::Stale,
    }
}
