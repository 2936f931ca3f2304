//! The description of a stored response.

use std::sync::atomic::Ordering;

use cache::Cache;
use cache::key::{KeyParts, KeySettings, StoredUri};
use cache::partial::Partial;
use cache::stored::{Entry, Head, Stored};
use caching::{Explain, LifetimeSource};
use config::Role;
use policy::lifetimes::{OF_FORWARD, OF_RULES};
use policy::routes::Route;
use store::{Concerns, ENTRY_OVERHEAD_BYTES, Hit, Key};

use crate::explain::model::{Freshness, Purge, Range, Response, Setting};
use crate::explain::text;
use crate::request::Request;
use crate::step::Held;

/// The response that is stored under a key, if there is one.
pub(super) fn at(cache: &Cache, key: Key, now_ms: u64) -> Option<Response> {
    match cache.store.peek(&key)? {
        Entry::Response(stored) => Some(whole(cache, key, &stored, now_ms)),
        Entry::Part(partial) => Some(part(cache, key, &partial, now_ms)),
        Entry::Varies(_) | Entry::Uncacheable { .. } => None,
    }
}

/// The response that a step refers to.
pub(super) fn held(cache: &Cache, key: Key, held: &Held, now_ms: u64) -> Response {
    match held {
        Held::Whole(stored) => whole(cache, key, stored, now_ms),
        Held::Part(partial) => part(cache, key, partial, now_ms),
    }
}

pub(super) fn whole(cache: &Cache, key: Key, stored: &Stored, now_ms: u64) -> Response {
    let since = stored.checked.load(Ordering::Relaxed);
    Response {
        body_bytes: stored.body_bytes,
        stored_bytes: stored.accounted_bytes() + ENTRY_OVERHEAD_BYTES,
        ..of_head(cache, key, &stored.head, since, now_ms)
    }
}

pub(super) fn part(cache: &Cache, key: Key, partial: &Partial, now_ms: u64) -> Response {
    let since = partial.checked.load(Ordering::Relaxed);
    let parts = partial.held().into_iter();
    Response {
        body_bytes: partial.held_bytes(),
        complete_bytes: Some(partial.complete_bytes),
        parts: parts.map(|range| Range { first: range.first, last: range.last }).collect(),
        stored_bytes: partial.accounted_bytes() + ENTRY_OVERHEAD_BYTES,
        ..of_head(cache, key, &partial.head, since, now_ms)
    }
}

fn of_head(cache: &Cache, key: Key, head: &Head, since: u64, now_ms: u64) -> Response {
    let (meta, known) = (&head.meta, head.resource.known());
    let mut purges = Vec::new();
    cache.purges.hits(known, since, |hit| purges.push(purge(&hit)));
    let tags = known.tags.split(|&b| b == b' ').filter(|tag| !tag.is_empty());
    Response {
        key: key.to_string(),
        status: head.status,
        variant: head.varies.as_deref().map(|(_, key)| text(key.as_bytes())),
        body_bytes: 0,
        complete_bytes: None,
        parts: Vec::new(),
        stored_bytes: 0,
        etag: meta.validators.etag.as_deref().map(text),
        last_modified: meta.validators.last_modified.as_deref().map(text),
        tags: tags.map(text).collect(),
        freshness: freshness(head, now_ms),
        purges,
    }
}

fn freshness(head: &Head, now_ms: u64) -> Freshness {
    let (meta, of) = (&head.meta, &head.meta.freshness);
    let lifetime = of.lifetime_source.explain();
    let age = of.age_on_arrival();
    Freshness {
        date_ms: of.date_value_ms,
        request_ms: of.response_ms.saturating_sub(age.response_delay_ms),
        response_ms: of.response_ms,
        apparent_age_ms: age.apparent_age_ms,
        age_value_ms: age.age_value_ms,
        response_delay_ms: age.response_delay_ms,
        corrected_age_value_ms: age.corrected_age_value_ms(),
        corrected_initial_age_ms: of.corrected_initial_age_ms,
        resident_ms: now_ms.saturating_sub(of.response_ms),
        current_age_ms: of.current_age_ms(now_ms),
        lifetime_ms: of.lifetime_ms,
        lifetime_from: lifetime_from(of.lifetime_source),
        lifetime_clause: lifetime.clause.to_owned(),
        fresh: meta.is_fresh(now_ms),
        ttl_seconds: of.ttl_seconds(now_ms),
        softly_purged_ms: head.purged.map(|mark| mark.at_ms),
    }
}

/// What a lifetime comes from: a rule, or a key of the configuration.
pub(super) fn lifetime_from(source: LifetimeSource) -> String {
    let text = source.explain().text;
    match source {
        LifetimeSource::Configured { route: OF_RULES, number } => {
            let at = number.unwrap_or_default();
            format!("{text}: rule[{at}] when it came")
        }
        LifetimeSource::Configured { route: OF_FORWARD, number } => {
            let at = number.unwrap_or_default();
            format!("{text}: forward.lifetime[{at}] when it came")
        }
        LifetimeSource::Configured { route, number } => {
            let key = number.map_or("negative".to_owned(), |at| format!("lifetime[{at}]"));
            format!("{text}: route[{route}].{key} when it came")
        }
        _ => text.to_owned(),
    }
}

fn purge(hit: &Hit<'_>) -> Purge {
    let (by, of) = match hit.by {
        Concerns::All => ("all", &b""[..]),
        Concerns::Url(url) => ("url", url),
        Concerns::Prefix(prefix) => ("prefix", prefix),
        Concerns::Tag(tag) => ("tag", tag),
    };
    Purge {
        by: by.to_owned(),
        of: text(of),
        soft: hit.soft,
        at_ms: hit.mark.at_ms,
        generation: hit.mark.generation,
    }
}

/// The key of a request.
pub(super) struct Keyed {
    /// The key of its URI, if it has one.
    pub(super) uri: Option<Key>,
    /// The index of its route.
    route: Option<usize>,
}

impl Keyed {
    pub(super) fn of(asked: &Request) -> Keyed {
        let Some(uri) = asked.requested_uri() else { return Keyed { uri: None, route: None } };
        let route = match asked.role() {
            Role::Reverse => asked.snapshot.routes.find(uri.reading(), Some(&asked.facts())).ok(),
            Role::Forward => None,
        };
        let route = route.and_then(|chosen| chosen.at);
        let path = asked.snapshot.routes.stored_path_of(route, uri.reading());
        let stored = StoredUri::new(uri.realm, uri.authority, &path);
        let key = asked.worker.cache.uri_key(stored);
        Keyed { uri: Some(key), route }
    }

    fn route<'c>(&self, asked: &'c Request) -> Option<&'c Route> {
        asked.snapshot.routes.get(self.route?)
    }

    fn key<'c>(&self, asked: &'c Request) -> Option<&'c KeySettings> {
        self.route(asked)?.key.as_ref()
    }

    /// The parts of the key besides the URI.
    pub(super) fn parts<'c>(&self, asked: &'c Request) -> Option<KeyParts<'c>> {
        self.key(asked)?.parts()
    }

    /// The route, with all that it says.
    pub(super) fn route_in_words(&self, asked: &Request) -> Option<String> {
        let route = self.route(asked).filter(|_| !asked.snapshot.config.routes.is_empty())?;
        Some(format!("{}: {}", route.config.place, route.config.summary()))
    }

    /// The settings that concern the request.
    pub(super) fn settings(&self, asked: &Request) -> Vec<Setting> {
        let Some(route) = self.route(asked).filter(|route| route.config.store) else {
            return Vec::new();
        };
        let Some(settings) = &route.key else { return Vec::new() };
        let requested = asked.requested_uri();
        let path = requested.map_or(&b""[..], |uri| uri.path);
        let named = |applied: cache::key::Applied| Setting {
            key: format!("{}.{}", route.config.place, applied.setting),
            effect: applied.effect,
        };
        settings.applied(path, asked.fields()).into_iter().map(named).collect()
    }
}
