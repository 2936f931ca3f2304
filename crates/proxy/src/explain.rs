//! `GET /explain` of the admin address: why a request would or would not be answered from store.
//!
//! The request is made as a client's would be, parsed by the same parser and judged by the same
//! functions; only the store is *peeked* at, so that asking changes nothing: no object counts as
//! used, nothing is removed, nothing is fetched.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use caching::{Explain, Explanation, RequestHints, Reuse};
use http1::{RequestHead, Scratch};
use runtime::time;
use serde::{Deserialize, Serialize};
use store::{Concerns, ENTRY_OVERHEAD_BYTES, Hit, Key, Verdict};

use crate::admin::{Call, Reply};
use crate::config::Role;
use crate::connection::{destination, hints};
use crate::shared::Shared;
use crate::site::{Door, Scheme, Site};
use crate::stored::{Entry, Stored, Varies, Wire};

/// What there is to say of one request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explained {
    /// The URL as it was asked for.
    pub url: String,
    /// `reverse` or `forward`: the kind of listener it would come to.
    pub role: String,
    /// The key of the URL.
    pub key: String,
    /// The instant of the arithmetic, in unix milliseconds.
    pub now_ms: u64,
    /// What would become of the request.
    pub decision: Decision,
    /// The response that it selects, if one is stored.
    pub selected: Option<Response>,
    /// By which fields the responses of this URL differ.
    pub varies_by: Vec<String>,
    /// The responses stored for this URL, at most [`crate::limits::VARIANTS_LISTED_MAX`].
    pub variants: Vec<Response>,
    /// The fields by which the origin would be asked whether the stored response still holds.
    pub conditions: Vec<(String, String)>,
}

/// What would become of a request, and by which rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// `serve`, `serve-stale`, `validate`, `fetch`, `pass` or `refuse`.
    pub does: String,
    /// The rule's name.
    pub rule: String,
    /// Where it is written.
    pub clause: String,
    /// What it says.
    pub text: String,
}

/// A stored response.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Response {
    /// The key it is stored under.
    pub key: String,
    /// Its status.
    pub status: u16,
    /// What the request had in the fields it varies by, normalised; other bytes are escaped.
    pub variant: Option<String>,
    /// Bytes of its body.
    pub body_bytes: u64,
    /// Bytes that the store accounts for it.
    pub stored_bytes: u64,
    /// `ETag`.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub last_modified: Option<String>,
    /// Its tags.
    pub tags: Vec<String>,
    /// The arithmetic of its freshness.
    pub freshness: Freshness,
    /// Purges that concern it and that it has not met yet; one that is hard means that it is gone.
    pub purges: Vec<Purge>,
}

/// RFC 9111, 4.2, in numbers. Instants are unix milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freshness {
    /// `date_value`: when the origin made it.
    pub date_ms: u64,
    /// `response_time`: when it came, and was stored.
    pub response_ms: u64,
    /// `corrected_initial_age`: how old it was then.
    pub corrected_initial_age_ms: u64,
    /// `resident_time`: since then.
    pub resident_ms: u64,
    /// `current_age`: the sum.
    pub current_age_ms: u64,
    /// `freshness_lifetime`.
    pub lifetime_ms: u64,
    /// What the lifetime comes from.
    pub lifetime_from: String,
    /// And where that is written.
    pub lifetime_clause: String,
    /// Whether the lifetime exceeds the age.
    pub fresh: bool,
    /// The seconds that are left; below zero, those since it is stale.
    pub ttl_seconds: i64,
    /// A soft purge ended the lifetime at this instant.
    pub softly_purged_ms: Option<u64>,
}

/// A purge that concerns a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purge {
    /// `all`, `url`, `prefix` or `tag`.
    pub by: String,
    /// Which.
    pub of: String,
    /// Marks it stale only.
    pub soft: bool,
    /// When, in unix milliseconds.
    pub at_ms: u64,
    /// Its generation.
    pub generation: u64,
}

/// Carries out a call: `url` once, `header` (`Name: value`) any number of times, and `role`.
pub(crate) fn answer(call: &Call, shared: &Shared, site: &Site) -> Reply {
    let made = Question::of(call, site);
    let explained = made.and_then(|question| {
        let (bytes, limits) = (question.bytes(), http1::Limits::default());
        let mut scratch = Scratch::new();
        match http1::parse_request(&bytes, &mut scratch, &limits) {
            Ok(Some(head)) => explain(&question, &head, shared),
            Ok(None) => Err("a header is not one line".to_owned()),
            Err(reject) => Err(reject.reason.text().to_owned()),
        }
    });
    match explained {
        Ok(explained) => Reply::json(200, &explained),
        Err(text) => Reply::error(400, text),
    }
}

/// What is asked about.
struct Question {
    url: String,
    authority: String,
    path: String,
    role: Role,
    /// The first listener of this role.
    listener: SocketAddr,
    headers: Vec<String>,
}

impl Question {
    fn of(call: &Call, site: &Site) -> Result<Question, String> {
        let (mut url, mut role, mut headers) = (None, None, Vec::new());
        for (name, value) in &call.query {
            match name.as_str() {
                "url" if url.is_none() => url = Some(value.clone()),
                "header" if !value.contains(['\r', '\n']) => headers.push(value.clone()),
                "role" => {
                    role = Some(match value.as_str() {
                        "reverse" => Role::Reverse,
                        "forward" => Role::Forward,
                        _ => return Err(format!("role is reverse or forward, not {value:?}")),
                    });
                }
                _ => return Err(format!("no {name:?} here: there are url (once), header, role")),
            }
        }
        let url = url.ok_or("say which url")?;
        let Some(rest) = url.strip_prefix("http://") else {
            return Err(format!("{url:?} does not begin with http://"));
        };
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = (rest[..at].to_owned(), rest[at..].to_owned());
        let path = if path.is_empty() { "/".to_owned() } else { path };
        let any_reverse = site.config.listeners.iter().any(|l| l.role == Role::Reverse);
        let role = role.unwrap_or(if any_reverse { Role::Reverse } else { Role::Forward });
        let listener = site.config.listeners.iter().find(|listener| listener.role == role);
        let listener = listener.map(|listener| listener.address);
        let listener = listener.ok_or("no listener has this role")?;
        Ok(Question { url, authority, path, role, listener, headers })
    }

    /// The request as a client would send it to such a listener.
    fn bytes(&self) -> Vec<u8> {
        let Question { authority, path, .. } = self;
        let target = match self.role {
            Role::Reverse => path.clone(),
            Role::Forward => format!("http://{authority}{path}"),
        };
        let mut text = format!("GET {target} HTTP/1.1\r\nHost: {authority}\r\n");
        for header in &self.headers {
            text += &format!("{header}\r\n");
        }
        (text + "\r\n").into_bytes()
    }
}

fn explain(
    question: &Question,
    head: &RequestHead<'_>,
    shared: &Shared,
) -> Result<Explained, String> {
    let door =
        Door { role: question.role, scheme: Scheme::Http, address: question.listener, gate: None };
    let asked = destination(&door, head).ok_or("no listener takes such a request")?;
    let now_ms = time::wall_ms();
    let uri = shared.uri_key(asked.realm, asked.authority, asked.path);
    let wire = Wire(head.fields);
    let entry = shared.store.peek(&uri);
    let (varies_by, keys) = match &entry {
        Some(Entry::Varies(varies)) => names_and_keys(varies),
        Some(Entry::Response(_)) => (Vec::new(), vec![uri]),
        _ => (Vec::new(), Vec::new()),
    };
    let variants = keys.into_iter().filter_map(|key| match shared.store.peek(&key) {
        Some(Entry::Response(stored)) => Some(response(shared, key, &stored, now_ms)),
        _ => None,
    });
    let variants = variants.collect();
    let found = shared.peek_up(uri, &wire, now_ms);
    let decision = decide(head, &found, now_ms);
    let (selected, conditions) = match &found {
        Peeked::Found(stored, key) => {
            let meta = &stored.head.meta;
            let conditions = match decision.does.as_str() {
                "validate" => caching::validation_fields(&meta.validators)
                    .map(|(name, value)| (name.to_owned(), text(value)))
                    .collect(),
                _ => Vec::new(),
            };
            (Some(response(shared, *key, stored, now_ms)), conditions)
        }
        _ => (None, Vec::new()),
    };
    Ok(Explained {
        url: question.url.clone(),
        role: match question.role {
            Role::Reverse => "reverse".to_owned(),
            Role::Forward => "forward".to_owned(),
        },
        key: uri.to_string(),
        now_ms,
        decision,
        selected,
        varies_by,
        variants,
        conditions,
    })
}

/// What a look-up would find.
pub(crate) enum Peeked {
    Found(std::sync::Arc<Stored>, Key),
    Purged,
    Nothing,
    /// There are responses, and none that this request selects.
    OtherVariants,
    Uncacheable,
    /// Parts of one.
    Part,
}

impl Shared {
    /// The same as [`Shared::look_up`], without a trace.
    fn peek_up(&self, uri: Key, request: &Wire<'_>, now_ms: u64) -> Peeked {
        let (key, entry, others) = match self.store.peek(&uri) {
            Some(Entry::Varies(varies)) => {
                let key = self.variant_key(uri, &varies, request);
                (key, self.store.peek(&key), true)
            }
            other => (uri, other, false),
        };
        match entry {
            Some(Entry::Response(stored))
                if stored.head.matches(request) && (others || stored.head.varies.is_none()) =>
            {
                let since = stored.checked.load(Ordering::Relaxed);
                match self.purges.judge(stored.head.resource.known(), since) {
                    (Verdict::Gone, _) => Peeked::Purged,
                    (Verdict::Stale(mark), now) => {
                        Peeked::Found(std::sync::Arc::new(stored.stale_from(mark, now)), key)
                    }
                    (Verdict::Good, _) => Peeked::Found(stored, key),
                }
            }
            Some(Entry::Uncacheable { until_ms, since }) if self.holds(until_ms, since, now_ms) => {
                Peeked::Uncacheable
            }
            Some(Entry::Part(partial))
                if partial.head.matches(request) && (others || partial.head.varies.is_none()) =>
            {
                let since = partial.checked.load(Ordering::Relaxed);
                match self.purges.judge(partial.head.resource.known(), since) {
                    (Verdict::Gone, _) => Peeked::Purged,
                    (Verdict::Stale(_) | Verdict::Good, _) => Peeked::Part,
                }
            }
            _ if others => Peeked::OtherVariants,
            _ => Peeked::Nothing,
        }
    }
}

fn names_and_keys(varies: &Varies) -> (Vec<String>, Vec<Key>) {
    (varies.names.iter().map(str::to_owned).collect(), varies.keys())
}

/// The rule that decides, by the functions that serve.
fn decide(head: &RequestHead<'_>, found: &Peeked, now_ms: u64) -> Decision {
    let wire = Wire(head.fields);
    let of = |does: &str, rule: Explanation| Decision {
        does: does.to_owned(),
        rule: rule.token.to_owned(),
        clause: rule.clause.to_owned(),
        text: rule.text.to_owned(),
    };
    let own = |does: &str, token, clause, text| of(does, Explanation { token, clause, text });
    let only_stored = caching::only_if_cached(&wire);
    if let Peeked::Found(stored, _) = found {
        let request = caching::Request { method: head.method_bytes, fields: &wire };
        return match caching::decide_reuse(&request, &stored.head.meta, now_ms) {
            Reuse::Fresh { .. } => {
                let source = stored.head.meta.freshness.lifetime_source.explain();
                own("serve", "fresh", "RFC 9111, 4.2", "fresh: its age is below its lifetime")
                    .because_of(source)
            }
            Reuse::StaleAllowed { why, .. } => of("serve-stale", why.explain()),
            Reuse::Revalidate { why } => of("validate", why.explain()),
            Reuse::OnlyIfCachedMiss { why } => of("refuse", why.explain()),
            _ => own("fetch", "other", "RFC 9111, 4", "it is asked for as if nothing were stored"),
        };
    }
    if only_stored {
        let text = "only what is stored is asked for, and nothing is";
        return own("refuse", "only-if-cached", "RFC 9111, 5.2.1.7", text);
    }
    if hints(head).any(RequestHints::IF_MATCH) {
        return own(
            "pass",
            "if-match",
            "RFC 9111, 4.3.2",
            "its condition is for the origin to judge",
        );
    }
    let clause = "RFC 9111, 4";
    match found {
        Peeked::Purged => own("fetch", "purged", clause, "what was stored has been purged"),
        Peeked::OtherVariants => {
            let text = "responses are stored, and none for a request with these fields";
            own("fetch", "vary-miss", "RFC 9111, 4.1", text)
        }
        Peeked::Uncacheable => {
            let text = "the last response could not be stored: requests do not wait for each other";
            own("pass", "uncacheable", "RFC 9111, 3", text)
        }
        Peeked::Part => {
            let text = "parts of it are stored: a range within them is served, the rest asked for";
            own("fetch", "partial", "RFC 9111, 3.3", text)
        }
        Peeked::Nothing | Peeked::Found(..) => {
            own("fetch", "uri-miss", clause, "nothing is stored for this URL")
        }
    }
}

impl Decision {
    /// Adds where the lifetime comes from.
    fn because_of(self, source: Explanation) -> Decision {
        Decision { text: format!("{} ({})", self.text, source.text), ..self }
    }
}

fn response(shared: &Shared, key: Key, stored: &Stored, now_ms: u64) -> Response {
    let head = &stored.head;
    let (meta, known) = (&head.meta, head.resource.known());
    let mut purges = Vec::new();
    let since = stored.checked.load(Ordering::Relaxed);
    shared.purges.hits(known, since, |hit| purges.push(purge(&hit)));
    let tags = known.tags.split(|&b| b == b' ').filter(|tag| !tag.is_empty());
    let lifetime = meta.freshness.lifetime_source.explain();
    Response {
        key: key.to_string(),
        status: head.status,
        variant: head.varies.as_ref().map(|(_, key)| text(key.as_bytes())),
        body_bytes: stored.body_bytes,
        stored_bytes: stored.accounted_bytes() + ENTRY_OVERHEAD_BYTES,
        etag: meta.validators.etag.as_deref().map(text),
        last_modified: meta.validators.last_modified.as_deref().map(text),
        tags: tags.map(text).collect(),
        freshness: Freshness {
            date_ms: meta.freshness.date_value_ms,
            response_ms: meta.freshness.response_ms,
            corrected_initial_age_ms: meta.freshness.corrected_initial_age_ms,
            resident_ms: now_ms.saturating_sub(meta.freshness.response_ms),
            current_age_ms: meta.freshness.current_age_ms(now_ms),
            lifetime_ms: meta.freshness.lifetime_ms,
            lifetime_from: lifetime.text.to_owned(),
            lifetime_clause: lifetime.clause.to_owned(),
            fresh: meta.is_fresh(now_ms),
            ttl_seconds: meta.freshness.ttl_seconds(now_ms),
            softly_purged_ms: head.purged.map(|mark| mark.at_ms),
        },
        purges,
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

/// Bytes for people: what is not visible ASCII or a space is escaped.
fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace("\\\"", "\"")
}
