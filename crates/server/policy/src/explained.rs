//! The parts of an explanation, as in its JSON. Instants are unix milliseconds.

use caching::Explanation;
use serde::{Deserialize, Serialize};

/// The explanation of one request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explained {
    /// The request's method.
    pub method: String,
    /// The URL as given.
    pub url: String,
    /// `reverse` or `forward`: the kind of listener it would come to.
    pub role: String,
    /// That listener, as configured.
    pub listener: String,
    /// The key of the URL, if the request gets far enough to have one.
    pub key: Option<String>,
    /// The instant for which everything is computed.
    pub now_ms: u64,
    /// What would become of the request.
    pub decision: Decision,
    /// The answer, as far as it is known without asking the origin.
    pub answer: Answer,
    /// The route that it takes, and all that the route says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The settings of its route that concern it.
    #[serde(default)]
    pub settings: Vec<Setting>,
    /// The conditions of rules and routes, and what they say of it.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// The response that it selects, if one is stored.
    pub selected: Option<Response>,
    /// The fields by which the responses of this URL vary.
    pub varies_by: Vec<String>,
    /// The responses stored for this URL, at most as many as are remembered for a URL.
    pub variants: Vec<Response>,
    /// The request to the origin, if one would be sent.
    pub request: Option<Request>,
    /// What would be served if the origin gave no answer, or 500, 502, 503 or 504.
    pub on_failure: Option<Decision>,
    /// The share of the requests that need an upstream which gets 503 now, because of overload.
    pub shed_ratio: f64,
    /// The quotas that apply to it, and their state now.
    #[serde(default)]
    pub quotas: Vec<Quota>,
}

/// A quota that applies to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Its name.
    pub name: String,
    /// Requests that may come now, if it limits them.
    pub remaining: Option<u64>,
    /// How long the request would wait.
    pub wait_ms: u64,
    /// The request would be refused.
    pub refused: bool,
}

/// A condition, and what it says of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// The rule or the route that has it: `rule assets`, `route 2`. Routes are counted from 1.
    pub of: String,
    /// The condition, as configured.
    pub when: String,
    /// Whether it holds; null: it is asked when the response comes.
    pub holds: Option<bool>,
    /// Its comparisons.
    pub terms: Vec<Term>,
}

impl From<crate::dry::Judged> for Condition {
    fn from(judged: crate::dry::Judged) -> Condition {
        let crate::dry::Judged { name, when, holds, terms } = judged;
        let term = |term: conditions::Term| {
            let conditions::Term { text, value, holds } = term;
            Term { text, value, holds }
        };
        Condition { of: name, when, holds, terms: terms.into_iter().map(term).collect() }
    }
}

/// A comparison in a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// The comparison, as configured.
    pub text: String,
    /// The value that is compared.
    pub value: String,
    /// Whether it holds.
    pub holds: bool,
}

/// A setting of a route, and what it does to the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its key in the configuration: `route[0].query_drop`. Routes are counted from 0.
    pub key: String,
    /// What it does.
    pub effect: String,
}

/// What would be done with a request, and by which rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// `serve`, `serve-stale`, `validate`, `fetch`, `pass`, `tunnel`, `purge`, `answer` (a route's
    /// own) or `refuse`.
    pub does: String,
    /// The rule's name.
    pub rule: String,
    /// Where it is specified; empty for a rule of the configuration.
    pub clause: String,
    /// What it says.
    pub text: String,
}

impl Decision {
    /// What would be done, by this rule.
    pub fn of(does: &str, rule: Explanation) -> Decision {
        Decision {
            does: does.to_owned(),
            rule: rule.token.to_owned(),
            clause: rule.clause.to_owned(),
            text: rule.text.to_owned(),
        }
    }
}

/// The answer to the client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The status, where it does not depend on the origin.
    pub status: Option<u16>,
    /// Our member of `Cache-Status`; when it is not `exact`, the origin's answer adds to it.
    pub cache_status: Option<String>,
    /// The member is complete.
    pub exact: bool,
    /// Our member of `Proxy-Status`, which a refusal has instead.
    pub proxy_status: Option<String>,
    /// `Age`.
    pub age_seconds: Option<u64>,
    /// The ranges of bytes that it would have.
    pub ranges: Vec<Range>,
    /// Why it is the whole although a range is asked for.
    pub why_whole: Option<String>,
    /// Which form of the stored response it is, if there may be several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<String>,
}

/// From the first byte to the last one, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// The first byte.
    pub first: u64,
    /// The last one.
    pub last: u64,
}

/// A request to an origin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// In the background, after the client has got its answer (stale-while-revalidate).
    pub background: bool,
    /// Another request's fetch is in flight: this one would wait for it, and ask nothing itself.
    pub in_flight: bool,
    /// The group of the route; none for a host that the client names.
    pub group: Option<String>,
    /// The server that would be used, by its name in the configuration.
    pub server: Option<String>,
    /// A cookie of a sticky session names the server.
    #[serde(default)]
    pub session: bool,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// TLS is used.
    pub tls: bool,
    /// The peers that would be asked before, by name.
    #[serde(default)]
    pub asks: Vec<String>,
    /// The peer whose digest has the URL: the request would be sent there first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The rule of the hierarchy; none without peers.
    #[serde(default)]
    pub hierarchy: Option<String>,
    /// The member of the cluster that would be asked first; none without a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Why no server could be used.
    pub fault: Option<String>,
    /// The head, line by line, as it would be sent; other bytes than ASCII are escaped.
    pub lines: Vec<String>,
}

/// A stored response.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Response {
    /// The key it is stored under.
    pub key: String,
    /// Its status.
    pub status: u16,
    /// The request's values of the fields it varies by, normalised; other bytes are escaped.
    pub variant: Option<String>,
    /// Bytes of its body that are stored.
    pub body_bytes: u64,
    /// Bytes of the whole, if only parts are stored.
    pub complete_bytes: Option<u64>,
    /// The stored parts, if only parts are stored.
    pub parts: Vec<Range>,
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
    /// Purges that concern it and that have not been applied yet; a hard one means that it is gone.
    pub purges: Vec<Purge>,
}

/// RFC 9111, 4.2, in numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freshness {
    /// `date_value`: when the origin made it.
    pub date_ms: u64,
    /// `request_time`: when it was asked for.
    pub request_ms: u64,
    /// `response_time`: when it came, and was stored.
    pub response_ms: u64,
    /// `apparent_age`: whole seconds from `Date` to the arrival, none if that is in the future.
    pub apparent_age_ms: u64,
    /// `age_value`: the `Age` it came with.
    pub age_value_ms: u64,
    /// `response_delay`: from the request to the arrival.
    pub response_delay_ms: u64,
    /// `corrected_age_value`: the sum of the last two.
    pub corrected_age_value_ms: u64,
    /// `corrected_initial_age`: the larger of that and the apparent age.
    pub corrected_initial_age_ms: u64,
    /// `resident_time`: since then.
    pub resident_ms: u64,
    /// `current_age`: the sum.
    pub current_age_ms: u64,
    /// `freshness_lifetime`.
    pub lifetime_ms: u64,
    /// What the lifetime comes from.
    pub lifetime_from: String,
    /// Where that is specified.
    pub lifetime_clause: String,
    /// Whether the lifetime exceeds the age.
    pub fresh: bool,
    /// The remaining seconds of freshness; negative once it is stale.
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
