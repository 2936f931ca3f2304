//! May a response be stored (RFC 9111, 3), and what is kept of it?
//!
//! [`may_store`] returns a [`Storable`] or the rule that forbids storing. [`StoredMeta`] is the
//! input of later decisions, computed once; compute it again when the fields change (by a 304 or a
//! HEAD).

use serde::{Deserialize, Serialize};

use crate::accelerators::{self, Said};
use crate::conditional::Validators;
use crate::directives::{CacheControl, Scope};
use crate::fields::{FieldSource, Request, Response, trim};
use crate::freshness::{Exchange, Freshness, LifetimeRules, LifetimeSource, freshness};
use crate::invalidation::{TargetUri, resolve_same_origin};
use crate::partial::ContentRange;
use crate::targeted;
use crate::vary::{Vary, vary};

/// RFC 9111, 4.2.2: a typical fraction of the time since the last modification.
pub const HEURISTIC_PERCENT: u64 = 10;
/// Maximum heuristic lifetime.
pub const HEURISTIC_LIFETIME_MS_MAX: u64 = 24 * 3600 * 1000;

/// Maximum time that a stale response is served for an unreachable origin.
pub const STALE_WHEN_UNREACHABLE_MS: u64 = 24 * 3600 * 1000;

const _: () = assert!(HEURISTIC_PERCENT <= 100);

/// The kind of cache, and its choices where the RFC leaves one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Used by several users: `private` forbids storing, `s-maxage` and `proxy-revalidate` apply.
    pub shared: bool,
    /// The share of the time since `Last-Modified` that counts as fresh.
    pub heuristic_percent: u64,
    /// Its upper bound.
    pub heuristic_lifetime_ms_max: u64,
    /// How long past its lifetime a response may be served if the origin is unreachable and no
    /// directive decides (RFC 9111, 4.2.4 allows this to a disconnected cache). A response of the
    /// origin is passed on, even an error.
    pub stale_when_unreachable_ms: u64,
    /// Fields with directives for this cache only, in order of precedence. The first one that is
    /// present and valid replaces `Cache-Control` and `Expires` (RFC 9213).
    pub targeted_fields: &'static [&'static str],
    /// The lifetime that the operator has configured for this response, if any.
    pub configured: Option<Configured>,
    /// What becomes of a response with `Set-Cookie`, in a shared cache.
    pub set_cookie: SetCookie,
}

/// What a shared cache does with a response that sets a cookie. RFC 9111, 7.3 permits storing it,
/// but the cookie is usually meant for the client whose request drew the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetCookie {
    /// The response is for the client whose request drew it: it is not stored.
    #[default]
    Private,
    /// The response is stored without the cookie.
    Strip,
    /// The response is stored with the cookie, which every client gets.
    Share,
}

/// A lifetime that an operator has configured for a response.
///
/// It takes the place of the heuristic one: it applies where the origin says nothing. If it
/// `overrules`, it also replaces `max-age`, `s-maxage`, `Expires` and `no-cache`. It never makes a
/// response storable that `no-store` or `private` forbids to store, and never permits stale use
/// that `must-revalidate` or `proxy-revalidate` forbids. It never applies to a response to a
/// request with `Authorization`, nor to one with `Set-Cookie`: both are probably for one user. The
/// age is counted as for any lifetime (RFC 9111, 4.2), so an `Age` that the response came with
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configured {
    /// The freshness lifetime. `None`: only the other two apply.
    pub lifetime_ms: Option<u64>,
    /// Whether it replaces what the origin says.
    pub overrules: bool,
    /// In place of `stale-while-revalidate`.
    pub stale_while_revalidate_ms: Option<u64>,
    /// In place of `stale-if-error`.
    pub stale_if_error_ms: Option<u64>,
    /// The number of its route, for explanations.
    pub route: u16,
    /// Its number there. `None`: it is the one of `negative`.
    pub number: Option<u16>,
}

impl Policy {
    /// A shared cache such as a proxy.
    pub const SHARED: Policy = Policy {
        shared: true,
        heuristic_percent: HEURISTIC_PERCENT,
        heuristic_lifetime_ms_max: HEURISTIC_LIFETIME_MS_MAX,
        stale_when_unreachable_ms: STALE_WHEN_UNREACHABLE_MS,
        targeted_fields: targeted::OURS,
        configured: None,
        set_cookie: SetCookie::Private,
    };

    /// Whether a cookie in a response is only for the client whose request drew it.
    #[must_use]
    pub fn withholds_cookies(&self) -> bool {
        self.shared && self.set_cookie != SetCookie::Share
    }

    /// The same for the response to a request. What permits storing a response to a request with
    /// `Authorization` (RFC 9111, 3.5) leaves the origin to check each use, or says how long it
    /// need not. So there the origin's lifetime counts alone.
    #[must_use]
    pub fn for_request<F: FieldSource + ?Sized>(&self, request: &Request<'_, F>) -> Policy {
        let is_for_all = |_: &Configured| !request.fields.has("authorization");
        Policy { configured: self.configured.filter(is_for_all), ..*self }
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::SHARED
    }
}

/// Why a response may not be stored, or is not worth storing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotStored {
    /// Only responses to GET are stored, and some to POST ([`may_store_post`]). A HEAD updates
    /// ([`crate::freshen_by_head`]).
    Method,
    /// A response to POST that does not declare itself to be the response to a GET (RFC 9110,
    /// 9.3.3).
    PostNotForGet,
    /// 1xx: not a final response.
    NotFinal,
    /// A 206 that is not a single requested part with a known complete length; a 304 by itself; a
    /// 412 or a 416: neither a representation nor a known part of one.
    Incomplete,
    /// The request asked for a range, and the response is neither the whole nor a part: the range
    /// may be what drew it. Used by callers, who know what they have asked for.
    DrawnByRange,
    /// `must-understand` with an unknown status (5.2.2.3).
    MustUnderstand,
    /// The request has `no-store` (5.2.1.5).
    RequestNoStore,
    /// The response has `no-store` (5.2.2.5).
    ResponseNoStore,
    /// `private`, in a shared cache (5.2.2.7).
    Private,
    /// A field for caches in front of an origin, such as `X-Accel-Expires: 0`, in a shared cache.
    Accelerator,
    /// `Set-Cookie`, in a shared cache that keeps such responses for one client (7.3).
    SetCookie,
    /// The request has `Authorization` and nothing permits sharing (3.5).
    Authorization,
    /// Neither explicit freshness nor a status that is heuristically cacheable (3).
    NotCacheableByDefault,
    /// `Vary: *` matches no later request (4.1).
    VaryStar,
    /// Stale at once and without a validator: storing it would gain nothing.
    NothingGained,
    /// Larger than the store accepts; used by callers, who know its size.
    TooLarge,
    /// A rule of the configuration forbids it; used by callers, who know the rules.
    Rule,
}

/// The clause of RFC 9111, 3, that permits storing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreRule {
    /// `public`.
    Public,
    /// `private`, in a private cache.
    Private,
    /// An explicit lifetime (`Expires`, `max-age`, `s-maxage`).
    ExplicitLifetime,
    /// A status that is heuristically cacheable.
    HeuristicStatus,
    /// A lifetime that the operator has configured.
    ConfiguredLifetime,
    /// A response to POST with an explicit lifetime and the target as its content's location.
    PostForGet,
}

/// A response that may be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storable {
    /// The input of later decisions.
    pub meta: StoredMeta,
    /// The requests it may answer. Never [`Vary::Star`].
    pub vary: Vary,
    /// The rule that permits storing.
    pub rule: StoreRule,
    /// Its part of the representation, if it is a 206.
    pub part: Option<ContentRange>,
    /// Its fields that are not kept.
    pub withheld: Withheld,
}

/// The fields that the origin asks not to keep, in lower case: it restricts them to one user or one
/// use (`private="…"`, `no-cache="…"`). The message layer removes the fields of the connection, and
/// with them those of the proxy itself (3.1). `Age` is replaced whenever the response is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Withheld(Vec<Box<str>>);

impl Withheld {
    /// Whether the origin asks not to keep this field.
    #[must_use]
    pub fn has(&self, name: &[u8]) -> bool {
        self.0.iter().any(|field| name.eq_ignore_ascii_case(field.as_bytes()))
    }
}

/// The input of reuse, validation and explanation for a stored response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredMeta {
    /// Its status.
    pub status: u16,
    /// Its freshness and age.
    pub freshness: Freshness,
    /// Its validators.
    pub validators: Validators,
    /// `no-cache` without field names: validated before every use.
    pub no_cache: bool,
    /// The rule that forbids serving it stale, if any.
    pub never_stale: Option<NeverStale>,
    /// `stale-while-revalidate`.
    pub stale_while_revalidate_ms: Option<u64>,
    /// `stale-if-error`.
    pub stale_if_error_ms: Option<u64>,
    /// `immutable`: a reload within the lifetime need not be validated (RFC 8246).
    pub immutable: bool,
    /// When the request that fetched or last confirmed it was sent.
    pub requested_ms: u64,
    fresh_until_ms: u64,
}

/// The rule by which a response is never served stale (RFC 9111, 4.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NeverStale {
    /// `must-revalidate`.
    MustRevalidate,
    /// `proxy-revalidate`, in a shared cache.
    ProxyRevalidate,
    /// `s-maxage` includes `proxy-revalidate` (5.2.2.10).
    SMaxage,
}

impl StoredMeta {
    /// Computes it for a storable response, on arrival and after each update.
    pub fn of<F: FieldSource + ?Sized>(
        response: &Response<'_, F>,
        exchange: Exchange,
        policy: &Policy,
    ) -> StoredMeta {
        let directives = Directives::of(response.fields, policy);
        Self::with_directives(response, &directives, exchange, policy)
    }

    fn with_directives<F: FieldSource + ?Sized>(
        response: &Response<'_, F>,
        directives: &Directives,
        exchange: Exchange,
        policy: &Policy,
    ) -> StoredMeta {
        let rules = LifetimeRules {
            shared: policy.shared,
            heuristic: is_heuristically_cacheable(response.status) || directives.control.public,
            heuristic_percent: policy.heuristic_percent,
            heuristic_lifetime_ms_max: policy.heuristic_lifetime_ms_max,
        };
        let freshness = if directives.targeted {
            let fields = targeted::WithoutExpires(response.fields);
            freshness(&directives.control, &fields, exchange, rules)
        } else {
            freshness(&directives.control, response.fields, exchange, rules)
        };
        let control = &directives.control;
        let no_cache = control.no_cache.is_whole();
        let meta = StoredMeta {
            status: response.status,
            freshness,
            validators: Validators::dated(
                response.fields,
                exchange.response_ms,
                freshness.date_value_ms,
            ),
            no_cache,
            never_stale: never_stale(control, policy.shared),
            stale_while_revalidate_ms: control.stale_while_revalidate.ms(),
            stale_if_error_ms: control.stale_if_error.ms(),
            immutable: control.immutable,
            requested_ms: exchange.request_ms,
            fresh_until_ms: if no_cache { 0 } else { freshness.fresh_until_ms() },
        };
        let meta = match policy.configured {
            Some(configured) if !response.fields.has("set-cookie") => {
                meta.configured(configured, control)
            }
            _ => meta,
        };
        match directives.said {
            Said::FreshMax { ms } => meta.fresh_for(ms),
            Said::Nothing | Said::NotStored => meta,
        }
    }

    /// The same with a lifetime that is not longer than this.
    #[cold]
    fn fresh_for(mut self, ms: u64) -> StoredMeta {
        if self.freshness.lifetime_ms > ms {
            self.freshness.lifetime_ms = ms;
            self.fresh_until_ms = if self.no_cache { 0 } else { self.freshness.fresh_until_ms() };
        }
        self
    }

    /// The same with a lifetime of the configuration.
    #[cold]
    fn configured(mut self, by: Configured, control: &CacheControl) -> StoredMeta {
        let is_silent = !self.freshness.lifetime_source.is_explicit() && !self.no_cache;
        if let Some(lifetime_ms) = by.lifetime_ms
            && (is_silent || by.overrules)
        {
            self.freshness.lifetime_ms = lifetime_ms;
            let (route, number) = (by.route, by.number);
            self.freshness.lifetime_source = LifetimeSource::Configured { route, number };
            self.no_cache = false;
            if self.never_stale == Some(NeverStale::SMaxage) {
                self.never_stale = None;
            }
            self.fresh_until_ms = self.freshness.fresh_until_ms();
        }
        let replaces = |stated: Option<u64>| stated.is_none() || by.overrules;
        if let Some(grace_ms) = by.stale_while_revalidate_ms
            && replaces(control.stale_while_revalidate.ms())
        {
            self.stale_while_revalidate_ms = Some(grace_ms);
        }
        if let Some(grace_ms) = by.stale_if_error_ms
            && replaces(control.stale_if_error.ms())
        {
            self.stale_if_error_ms = Some(grace_ms);
        }
        self
    }

    /// The same response, stale from this time on. Stale use is decided as if its lifetime had
    /// ended then.
    #[must_use]
    pub fn stale_from(&self, at_ms: u64) -> StoredMeta {
        let mut meta = self.clone();
        let freshness = &mut meta.freshness;
        freshness.lifetime_ms = freshness.lifetime_ms.min(freshness.current_age_ms(at_ms));
        meta.fresh_until_ms = meta.fresh_until_ms.min(freshness.fresh_until_ms());
        assert!(!meta.is_fresh(at_ms.max(meta.freshness.response_ms)), "it is stale from then on");
        meta
    }

    /// The complete check for a request without cache directives
    /// ([`crate::RequestHints::is_plain`]): one comparison. False if validation is always needed.
    #[must_use]
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        now_ms < self.fresh_until_ms
    }

    /// The time from which [`StoredMeta::is_fresh`] is false; zero if it never is true.
    #[must_use]
    pub fn fresh_until_ms(&self) -> u64 {
        self.fresh_until_ms
    }

    /// Whether each use needs its own response from the origin. Then no request gains by waiting
    /// for another's fetch.
    #[must_use]
    pub fn is_never_fresh(&self) -> bool {
        self.no_cache || self.freshness.lifetime_ms == 0
    }

    /// Whether its lifetime was longer than its age when it arrived, not counting the time that the
    /// response took.
    #[must_use]
    pub(crate) fn lives_on_arrival(&self) -> bool {
        let age = self.freshness.age_on_arrival();
        let by_date_ms = age.apparent_age_ms.saturating_sub(age.response_delay_ms);
        let age_ms = age.age_value_ms.max(by_date_ms);
        !self.no_cache && self.freshness.lifetime_ms > age_ms
    }

    /// The same response without `stale-while-revalidate`: a validation has ended in a response
    /// that may not be stored, so another would probably end in the same.
    #[must_use]
    pub fn not_while_revalidate(&self) -> StoredMeta {
        StoredMeta { stale_while_revalidate_ms: None, ..self.clone() }
    }

    /// The same response, which the origin cannot confirm any more.
    #[must_use]
    pub fn without_validators(&self) -> StoredMeta {
        StoredMeta { validators: Validators::default(), ..self.clone() }
    }

    /// The same response, stale from now on, because other information casts doubt on it (RFC 9111,
    /// 4.3.5).
    #[must_use]
    pub fn made_stale(&self) -> StoredMeta {
        // The origin gave it a lifetime, if it did: requests may still wait for one fetch.
        let freshness = Freshness {
            lifetime_ms: self.freshness.lifetime_ms.min(1),
            corrected_initial_age_ms: self.freshness.corrected_initial_age_ms.max(1),
            ..self.freshness
        };
        let (stale_while_revalidate_ms, fresh_until_ms) = (None, 0);
        let stale =
            StoredMeta { freshness, stale_while_revalidate_ms, fresh_until_ms, ..self.clone() };
        debug_assert!(!stale.freshness.is_fresh(stale.freshness.response_ms));
        stale
    }
}

/// The effective directives, and whether they came from a targeted field.
struct Directives {
    control: CacheControl,
    targeted: bool,
    /// What the fields for caches in front of an origin say, to a shared cache.
    said: Said,
}

impl Directives {
    fn of<F: FieldSource + ?Sized>(fields: &F, policy: &Policy) -> Directives {
        let said = if policy.shared { accelerators::said(fields) } else { Said::Nothing };
        match targeted::directives(fields, policy.targeted_fields) {
            Some(control) => Directives { control, targeted: true, said },
            None => Directives { control: CacheControl::of(fields), targeted: false, said },
        }
    }
}

fn never_stale(control: &CacheControl, shared: bool) -> Option<NeverStale> {
    if control.must_revalidate && !planted::is(planted::Bug::MustRevalidateIgnored) {
        Some(NeverStale::MustRevalidate)
    } else if shared && control.proxy_revalidate {
        Some(NeverStale::ProxyRevalidate)
    } else if shared && control.s_maxage.is_present() {
        Some(NeverStale::SMaxage)
    } else {
        None
    }
}

/// RFC 9111, 3: may this response be stored? Returns the rule that permits or forbids it.
pub fn may_store<Q: FieldSource + ?Sized, R: FieldSource + ?Sized>(
    request: &Request<'_, Q>,
    response: &Response<'_, R>,
    exchange: Exchange,
    policy: &Policy,
) -> Result<Storable, NotStored> {
    if request.method != b"GET" {
        return Err(NotStored::Method);
    }
    store(request, response, exchange, policy)
}

/// The same for a response to POST, which may answer a later GET if it states its lifetime and
/// names the target as the location of its content (RFC 9110, 9.3.3).
pub fn may_store_post<Q: FieldSource + ?Sized, R: FieldSource + ?Sized>(
    request: &Request<'_, Q>,
    response: &Response<'_, R>,
    exchange: Exchange,
    policy: &Policy,
    target: &TargetUri<'_>,
) -> Result<Storable, NotStored> {
    if request.method != b"POST" {
        return Err(NotStored::Method);
    }
    let mut locations = response.fields.values("content-location");
    let location = locations.next().and_then(|value| resolve_same_origin(target, trim(value)));
    let is_target = location.is_some_and(|path| path == target.path_and_query);
    if response.status != 200 || !is_target || locations.next().is_some() {
        return Err(NotStored::PostNotForGet);
    }
    let storable = store(request, response, exchange, policy)?;
    if storable.rule != StoreRule::ExplicitLifetime {
        return Err(NotStored::PostNotForGet);
    }
    Ok(Storable { rule: StoreRule::PostForGet, ..storable })
}

fn store<Q: FieldSource + ?Sized, R: FieldSource + ?Sized>(
    request: &Request<'_, Q>,
    response: &Response<'_, R>,
    exchange: Exchange,
    policy: &Policy,
) -> Result<Storable, NotStored> {
    let part = match response.status {
        0..200 => return Err(NotStored::NotFinal),
        206 if request.fields.has("range") => {
            Some(ContentRange::of(response.fields).ok_or(NotStored::Incomplete)?)
        }
        206 | 304 | 412 | 416 => return Err(NotStored::Incomplete),
        _ => None,
    };
    let directives = Directives::of(response.fields, policy);
    let control = &directives.control;
    if control.must_understand && !is_understood(response.status) {
        return Err(NotStored::MustUnderstand);
    }
    if CacheControl::of(request.fields).no_store {
        return Err(NotStored::RequestNoStore);
    }
    // With must-understand and a known status, no-store is ignored (5.2.2.3).
    if control.no_store && !control.must_understand {
        return Err(NotStored::ResponseNoStore);
    }
    if policy.shared && control.private.is_whole() && !planted::is(planted::Bug::PrivateForOthers) {
        return Err(NotStored::Private);
    }
    if directives.said == Said::NotStored {
        return Err(NotStored::Accelerator);
    }
    if policy.shared && request.fields.has("authorization") && !permits_sharing(control) {
        return Err(NotStored::Authorization);
    }
    let policy = &policy.for_request(request);
    let meta = StoredMeta::with_directives(response, &directives, exchange, policy);
    let rule = store_rule(control, &meta, policy)?;
    let vary = vary(response.fields);
    if vary == Vary::Star {
        return Err(NotStored::VaryStar);
    }
    if gains_nothing(&meta) {
        return Err(NotStored::NothingGained);
    }
    debug_assert_eq!(part.is_some(), response.status == 206, "only a 206 is a part");
    let (freshness, response_ms) = (&meta.freshness, meta.freshness.response_ms);
    debug_assert_eq!(
        meta.is_fresh(response_ms),
        !meta.no_cache && freshness.is_fresh(response_ms),
        "one comparison says the same as the arithmetic"
    );
    let mut withheld = withheld(control, policy.shared);
    let is_shared = planted::is(planted::Bug::CookieShared);
    if policy.withholds_cookies() && response.fields.has(SET_COOKIE) && !is_shared {
        let is_withheld = withheld.has(SET_COOKIE.as_bytes());
        match policy.set_cookie {
            SetCookie::Private if !is_withheld => return Err(NotStored::SetCookie),
            _ if !is_withheld => withheld.0.push(SET_COOKIE.into()),
            _ => {}
        }
    }
    Ok(Storable { meta, vary, rule, part, withheld })
}

/// The field that sets a cookie.
pub(crate) const SET_COOKIE: &str = "set-cookie";

/// RFC 9111, 3.5.
fn permits_sharing(control: &CacheControl) -> bool {
    control.public
        || control.must_revalidate
        || control.s_maxage.is_present()
        || planted::is(planted::Bug::AuthorizationIgnored)
}

fn store_rule(
    control: &CacheControl,
    meta: &StoredMeta,
    policy: &Policy,
) -> Result<StoreRule, NotStored> {
    let source = meta.freshness.lifetime_source;
    if source.is_explicit() {
        Ok(StoreRule::ExplicitLifetime)
    } else if matches!(source, LifetimeSource::Configured { .. }) {
        Ok(StoreRule::ConfiguredLifetime)
    } else if control.public {
        Ok(StoreRule::Public)
    } else if !policy.shared && control.private != Scope::Absent {
        Ok(StoreRule::Private)
    } else if is_heuristically_cacheable(meta.status) {
        Ok(StoreRule::HeuristicStatus)
    } else {
        Err(NotStored::NotCacheableByDefault)
    }
}

fn gains_nothing(meta: &StoredMeta) -> bool {
    let ever_fresh = meta.freshness.lifetime_ms > 0 && !meta.no_cache;
    let may_be_stale = meta.never_stale.is_none()
        && !meta.no_cache
        && (meta.stale_while_revalidate_ms.is_some() || meta.stale_if_error_ms.is_some());
    !ever_fresh && !may_be_stale && meta.validators.is_empty()
}

fn withheld(control: &CacheControl, shared: bool) -> Withheld {
    let mut names = control.no_cache.fields().to_vec();
    if shared {
        names.extend_from_slice(control.private.fields());
    }
    Withheld(names)
}

/// RFC 9110, 15.1: statuses with heuristic lifetimes.
#[must_use]
pub fn is_heuristically_cacheable(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// The statuses whose caching rules this crate implements: all final ones that RFC 9110 defines.
#[must_use]
pub fn is_understood(status: u16) -> bool {
    matches!(status,
        200..=206 | 300..=304 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 500..=505)
}

#[cfg(test)]
mod tests;
