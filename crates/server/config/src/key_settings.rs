//! What of a request belongs to its cache key, and for how long responses are fresh: the settings
//! of a route, as configured. `cache` and `policy` have their compiled forms.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::FieldRule;
use super::when::When;
use crate::captures::{Piece, pieces};
use crate::here::Here;
use crate::limits::{KEY_PATTERNS_MAX, LIFETIMES_MAX, PATTERN_BYTES_MAX};
use crate::table::{Key, Table, keys};
use crate::value::{Kind, WHILE, understood, words};

/// The field by which the upstream learns the class of the device.
pub const DEVICE_FIELD: &str = "X-Device-Class";

/// What of a request belongs to its cache key. By default, all of the query and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySettings {
    /// What is done with the query as a whole.
    pub query: Query,
    /// Parameters that are dropped.
    pub query_drop: Vec<Pattern>,
    /// If not empty, all other parameters are dropped.
    pub query_keep: Vec<Pattern>,
    /// Cookies in the key, by name.
    pub cookies: Vec<Pattern>,
    /// Which cookies the upstream gets of a request that the store may answer.
    pub cookies_sent: CookiesSent,
    /// Fields in the key, by name.
    pub fields: Vec<String>,
    /// Whether the class of the device is in the key and is sent to the upstream.
    pub device: bool,
    /// A request with one of these cookies does not use the store.
    pub bypass_cookies: Vec<Pattern>,
}

/// The query in the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Query {
    /// As it came.
    #[default]
    All,
    /// Without it.
    None,
    /// Its parameters sorted by name.
    Sort,
}

words!(Query: "all" => Query::All, "none" => Query::None, "sort" => Query::Sort);

/// Which cookies the upstream gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CookiesSent {
    /// All.
    #[default]
    All,
    /// Those in the key.
    Key,
}

words!(CookiesSent: "all" => CookiesSent::All, "key" => CookiesSent::Key);

/// A pattern for names: `fbclid`, `utm_*`, `*_id` or `*`. Case counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// This name.
    Exact(String),
    /// Names that begin so; all names if it is empty.
    Prefix(String),
    /// Names that end so.
    Suffix(String),
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        let (pattern, rest) = match (text.strip_suffix('*'), text.strip_prefix('*')) {
            (Some(rest), _) => (Pattern::Prefix(rest.to_owned()), rest),
            (None, Some(rest)) => (Pattern::Suffix(rest.to_owned()), rest),
            (None, None) => (Pattern::Exact(text.to_owned()), text),
        };
        let is_name = |byte: u8| byte.is_ascii_graphic() && !b"*&=;,?#\"".contains(&byte);
        if !rest.bytes().all(is_name) || text.is_empty() {
            return Err(format!(
                "{text:?} is not a pattern for names: write \"name\", \"start*\" or \"*end\""
            ));
        }
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!("a pattern has at most {PATTERN_BYTES_MAX} bytes"));
        }
        Ok(pattern)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Exact(name) => f.write_str(name),
            Pattern::Prefix(name) => write!(f, "{name}*"),
            Pattern::Suffix(name) => write!(f, "*{name}"),
        }
    }
}

understood!(Pattern);

/// How long some of the responses are fresh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifetime {
    /// Statuses; empty: successes and lasting redirects.
    pub status: Vec<StatusPattern>,
    /// Content types; empty: any.
    pub content_type: Vec<TypePattern>,
    /// A condition on the response; `None`: it is for all with such a status and type.
    pub when: Option<When>,
    /// The freshness lifetime. Without it, only `grace` and `error_grace` apply.
    pub ttl: Option<Duration>,
    /// Whether it replaces what the origin says. Otherwise it applies where that says nothing.
    pub overrule: bool,
    /// How long a stale response is served while it is revalidated.
    pub grace: Option<Duration>,
    /// How long a stale response is served in place of an error.
    pub error_grace: Option<Duration>,
}

/// One status, or a class of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusPattern {
    /// This status.
    One(u16),
    /// Those with this first digit.
    Class(u16),
}

/// These are answers to one client, and no cache may store them.
const OF_ONE_CLIENT: &[(u16, &str)] = &[
    (401, "it asks one client for a password"),
    (407, "it asks one client for a password"),
    (428, "RFC 6585 forbids storing it"),
    (429, "RFC 6585 forbids storing it"),
    (431, "RFC 6585 forbids storing it"),
    (511, "RFC 6585 forbids storing it"),
];

/// These say what is wrong with one request or one connection, and not with its URL: stored, one
/// such request would close the URL to all clients.
const OF_ONE_REQUEST: &[u16] = &[400, 406, 408, 411, 413, 415, 416, 417, 421, 422, 425, 426];

impl StatusPattern {
    /// Whether responses with this status are answers to one client, which no cache may store.
    pub fn is_of_one_client(status: u16) -> bool {
        OF_ONE_CLIENT.iter().any(|(of, _)| *of == status)
    }

    /// Whether a response with this status has a lifetime by it.
    pub fn matches(self, status: u16) -> bool {
        let is_of_client = || StatusPattern::is_of_one_client(status);
        let is_of_one = || is_of_client() || OF_ONE_REQUEST.contains(&status);
        self.covers(status) && (self == StatusPattern::One(status) || !is_of_one())
    }

    /// Whether it names a status, alone or as one of its class.
    pub fn covers(self, status: u16) -> bool {
        match self {
            StatusPattern::One(one) => status == one,
            StatusPattern::Class(class) => status / 100 == class,
        }
    }
}

impl FromStr for StatusPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<StatusPattern, String> {
        let class = text.strip_suffix("xx").and_then(|class| class.parse().ok());
        let is_plain = text.len() == 3 && text.bytes().all(|byte| byte != b'+');
        let of_one_client = |one: u16| OF_ONE_CLIENT.iter().find(|(of, _)| *of == one);
        match (class.filter(|_| is_plain), text.parse()) {
            (Some(class @ 2..=5), _) => Ok(StatusPattern::Class(class)),
            _ if !is_plain => Err(format!("{text:?} is not a status such as 404 or \"2xx\"")),
            (_, Ok(304)) => Err("a 304 updates a stored response and has that one's lifetime; \
                                 name the status of the stored response"
                .to_owned()),
            (_, Ok(206)) => Err("a part has the lifetime of the whole: name 200".to_owned()),
            (_, Ok(one @ 200..=599)) => match of_one_client(one) {
                Some((_, why)) => Err(format!("{one} has no lifetime: {why}")),
                None => Ok(StatusPattern::One(one)),
            },
            _ => Err(format!("{text:?} is not a status such as 404 or \"2xx\"")),
        }
    }
}

impl fmt::Display for StatusPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatusPattern::One(status) => write!(f, "{status}"),
            StatusPattern::Class(class) => write!(f, "{class}xx"),
        }
    }
}

understood!(StatusPattern);

/// A content type: `text/html`, `image/*` or `*/*`. In lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypePattern(String);

impl TypePattern {
    /// Whether it matches the value of a `Content-Type`. Parameters and case do not count.
    pub fn matches(&self, content_type: &[u8]) -> bool {
        let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
        let bare = content_type[..end].trim_ascii();
        match self.0.strip_suffix('*') {
            Some("*/") => !bare.is_empty(),
            Some(start) => {
                bare.get(..start.len()).is_some_and(|b| b.eq_ignore_ascii_case(start.as_bytes()))
            }
            None => bare.eq_ignore_ascii_case(self.0.as_bytes()),
        }
    }
}

impl FromStr for TypePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<TypePattern, String> {
        let is_token = |part: &str| {
            let special = |byte: u8| b"!#$&^_.+-".contains(&byte);
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || special(byte))
        };
        let valid = text.len() <= PATTERN_BYTES_MAX
            && text.split_once('/').is_some_and(|(kind, sub)| {
                (is_token(kind) && (sub == "*" || is_token(sub))) || text == "*/*"
            });
        if !valid {
            return Err(format!("{text:?} is not a content type such as text/html or image/*"));
        }
        Ok(TypePattern(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for TypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

understood!(TypePattern);

impl Table for Lifetime {
    const KEYS: &'static [Key<Lifetime>] = keys![Lifetime;
        status: Kind::Texts, status,
            "Statuses: `404` or `\"5xx\"`, which leaves out those of one client or one request, \
             such as 400 and 429. Default: 200, 203, 204, 300, 301 and 308.",
            example "[404, \"5xx\"]";
        content_type: Kind::Texts, content_type,
            "Content types: `text/html` or `image/*`. Default: any, and none at all.",
            example "[\"image/*\", \"text/css\"]";
        when: Kind::Text, when,
            "A condition, as in [[rule]]; it may read the response.",
            example "\"path.endsWith('.css')\"";
        ttl: WHILE, ttl, "The freshness lifetime, where the origin says nothing.",
            example "\"1h\"";
        overrule: Kind::Flag, overrule,
            "Whether this also replaces max-age, s-maxage, Expires and no-cache of the origin, and \
             its stale-while-revalidate and stale-if-error. It never replaces no-store and \
             private, and does not apply to requests with Authorization.";
        grace: WHILE, grace,
            "How long a stale response may be served while it is revalidated in the background.",
            example "\"1m\"";
        error_grace: WHILE, error_grace,
            "How long a stale response may be served if the origin fails.", example "\"1d\"";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        if self.ttl.is_none() && self.grace.is_none() && self.error_grace.is_none() {
            here.mistake_here("this lifetime sets nothing: write ttl, grace or error_grace");
        }
        if let (true, None) = (self.overrule, self.ttl) {
            here.mistake_of("overrule", "there is no ttl that could replace the origin's");
        }
    }
}

impl KeySettings {
    /// What is wrong, with the key that is.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        let lists = [
            ("query_drop", self.query_drop.len()),
            ("query_keep", self.query_keep.len()),
            ("key_cookies", self.cookies.len()),
            ("key_fields", self.fields.len()),
            ("bypass_cookies", self.bypass_cookies.len()),
        ];
        for (key, len) in lists {
            if len > KEY_PATTERNS_MAX {
                return Err((key, format!("a list has at most {KEY_PATTERNS_MAX} entries")));
            }
        }
        if !self.query_drop.is_empty() && !self.query_keep.is_empty() {
            return Err(("query_keep", "a route drops parameters or keeps some, not both".into()));
        }
        let has_lists = !self.query_drop.is_empty() || !self.query_keep.is_empty();
        if self.query == Query::None && has_lists {
            let text = "with query = \"none\" there are no parameters to drop or to keep";
            return Err(("query", text.to_owned()));
        }
        let wrong = |wrong| ("key_fields", wrong);
        for (at, name) in self.fields.iter().enumerate() {
            check_key_field(name).map_err(wrong)?;
            if self.fields[..at].iter().any(|other| other.eq_ignore_ascii_case(name)) {
                return Err(wrong(format!("{name} is listed twice")));
            }
            if self.device && name.eq_ignore_ascii_case(DEVICE_FIELD) {
                return Err(wrong(format!("device = true writes {name} itself")));
            }
        }
        Ok(())
    }
}

/// Fields that the cache handles by itself: in a key, they would only split stored responses.
const NOT_IN_KEY: &[(&str, &str)] = &[
    ("cookie", "name the cookies in key_cookies"),
    ("host", "the host is in every key"),
    ("range", "ranges are served from the stored response"),
    ("if-none-match", "conditions are evaluated for each request"),
    ("if-modified-since", "conditions are evaluated for each request"),
    ("if-match", "conditions are evaluated for each request"),
    ("if-unmodified-since", "conditions are evaluated for each request"),
    ("if-range", "conditions are evaluated for each request"),
    ("content-length", "it belongs to one message"),
    ("transfer-encoding", "it belongs to one message"),
];

fn check_key_field(name: &str) -> Result<(), String> {
    FieldRule::Add(name.to_owned(), String::new()).check_written()?;
    if http1::is_hop_by_hop(name.as_bytes()) {
        return Err(format!("{name} cannot be in the key: it belongs to one connection"));
    }
    if name.len() > PATTERN_BYTES_MAX {
        return Err(format!("the name of a field has at most {PATTERN_BYTES_MAX} bytes here"));
    }
    match NOT_IN_KEY.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)) {
        Some((_, why)) => Err(format!("{name} cannot be in the key: {why}")),
        None => Ok(()),
    }
}

/// Settings for answers from the store.
const OF_THE_STORE: [&str; 9] = [
    "query",
    "query_drop",
    "query_keep",
    "key_cookies",
    "cookies_sent",
    "key_fields",
    "bypass_cookies",
    "negative",
    "lifetime",
];

impl KeySettings {
    /// Checks that what is written for a route has an effect there. `leads` is whether the route
    /// leads to an upstream, and whether it uses the store; `adds` are the fields that it adds to
    /// requests.
    pub(crate) fn check_used<'a>(
        &self,
        here: &Here<'_, '_>,
        (leads, stores): (bool, bool),
        prefix: Option<&str>,
        mut adds: impl Iterator<Item = &'a String>,
    ) -> Result<(), (&'static str, String)> {
        let written = |key: &&str| here.has(key);
        if let Some(key) = OF_THE_STORE.into_iter().chain(["device"]).find(written)
            && !leads
        {
            return Err((key, "this is for routes to an upstream".to_owned()));
        }
        if let Some(key) = OF_THE_STORE.into_iter().find(written)
            && !stores
        {
            return Err((key, "with store = false this has no effect".to_owned()));
        }
        if here.has("query_keep") && self.query_keep.is_empty() {
            let text = "to keep no parameter, write query = \"none\"";
            return Err(("query_keep", text.to_owned()));
        }
        if self.device && adds.any(|name| name.eq_ignore_ascii_case(DEVICE_FIELD)) {
            return Err(("device", format!("this writes {DEVICE_FIELD} itself")));
        }
        let captures = |text: &str| pieces(text).any(|piece| matches!(piece, Piece::Capture(_)));
        if prefix.is_some_and(captures) {
            let text = "a prefix captures nothing: write path = \"/{name}/*\"";
            return Err(("prefix", text.to_owned()));
        }
        Ok(())
    }
}

/// What is dangerous about the lifetimes of a route.
pub(crate) fn lifetime_warnings(lifetimes: &[Lifetime]) -> impl Iterator<Item = String> {
    let statuses = lifetimes.iter().flat_map(|one| &one.status);
    statuses.filter_map(|status| match status {
        StatusPattern::One(one) if OF_ONE_REQUEST.contains(one) => Some(format!(
            "lifetime: {one} concerns one request: stored, it answers those of all clients"
        )),
        StatusPattern::One(_) | StatusPattern::Class(_) => None,
    })
}

/// Checks the lifetimes of a route.
pub(crate) fn check_lifetimes(lifetimes: &[Lifetime]) -> Result<(), String> {
    if lifetimes.len() > LIFETIMES_MAX {
        return Err(format!("a route has at most {LIFETIMES_MAX} lifetimes"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_names_with_one_star_at_an_end() {
        let read = |text: &str| text.parse::<Pattern>();
        assert_eq!(read("fbclid"), Ok(Pattern::Exact("fbclid".into())));
        assert_eq!(read("utm_*"), Ok(Pattern::Prefix("utm_".into())));
        assert_eq!(read("*_id"), Ok(Pattern::Suffix("_id".into())));
        assert_eq!(read("*"), Ok(Pattern::Prefix(String::new())));
        for text in ["fbclid", "utm_*", "*_id", "*", "a[]"] {
            assert_eq!(read(text).unwrap().to_string(), text);
        }
        for wrong in ["", "a*b", "**", "*a*", "a b", "a=b", "a&b", "ä", "a;b"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(read(&"a".repeat(PATTERN_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn statuses_and_types_match() {
        let status = |text: &str| text.parse::<StatusPattern>();
        assert!(status("2xx").unwrap().matches(206) && !status("2xx").unwrap().matches(404));
        assert!(status("4xx").unwrap().matches(403) && !status("4xx").unwrap().matches(401));
        assert!(status("404").unwrap().matches(404) && !status("404").unwrap().matches(410));
        for one in [400, 401, 406, 407, 408, 413, 421, 422, 425, 428, 429, 431, 511] {
            let class = if one < 500 { "4xx" } else { "5xx" };
            assert!(!status(class).unwrap().matches(one), "{one}");
        }
        for named in ["400", "406", "408", "421", "422", "425"] {
            assert!(status(named).unwrap().matches(named.parse().unwrap()), "{named}");
        }
        for forbidden in ["428", "429", "431", "511"] {
            assert!(status(forbidden).unwrap_err().contains("RFC 6585"), "{forbidden}");
        }
        for wrong in ["1xx", "6xx", "xx", "99", "600", "304", "206", "401", "407", "2x", "+2xx", ""]
        {
            assert!(status(wrong).is_err(), "{wrong}");
        }
        let matches = |pattern: &str, of: &str| {
            pattern.parse::<TypePattern>().unwrap().matches(of.as_bytes())
        };
        assert!(matches("image/*", "Image/PNG") && !matches("image/*", "images/png"));
        assert!(matches("text/html", "text/html; charset=utf-8") && !matches("text/html", "text"));
        assert!(matches("*/*", "a/b") && !matches("*/*", "") && !matches("image/*", "image"));
        for wrong in ["html", "*/html", "image/", "/a", "a/b/c", "a/*b", "a b/c"] {
            assert!(wrong.parse::<TypePattern>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_status_of_one_request_is_warned_of() {
        let mut route = crate::Route::to("site");
        route.place = "route[1]".to_owned();
        let status = ["4xx", "404", "421"].map(|one| one.parse().unwrap()).into();
        route.lifetimes = vec![Lifetime { status, ..Lifetime::default() }];
        let routes = vec![crate::Route::to("site"), route];
        let warnings = crate::Config { routes, ..crate::Config::forward(&[]) }.warnings();
        let text = "route[1].lifetime: 421 concerns one request: stored, it answers those of all \
                    clients";
        assert_eq!(warnings, [text]);
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let pattern = |text: &str| vec![text.parse::<Pattern>().unwrap()];
        let base = KeySettings::default();
        assert_eq!(base.check(), Ok(()));
        let both = KeySettings {
            query_drop: pattern("a"),
            query_keep: pattern("b"),
            ..KeySettings::default()
        };
        assert_eq!(both.check().unwrap_err().0, "query_keep");
        let none =
            KeySettings { query: Query::None, query_drop: pattern("a"), ..KeySettings::default() };
        assert_eq!(none.check().unwrap_err().0, "query");
        for name in
            ["Cookie", "If-None-Match", "a b", "", "range", "Connection", "TE", "Keep-Alive"]
        {
            let fields = KeySettings { fields: vec![name.into()], ..KeySettings::default() };
            assert_eq!(fields.check().unwrap_err().0, "key_fields", "{name}");
        }
        let fields = |list: &[&str]| KeySettings {
            fields: list.iter().map(|name| (*name).to_owned()).collect(),
            device: true,
            ..KeySettings::default()
        };
        assert_eq!(fields(&["X-A", "X-B"]).check(), Ok(()));
        assert!(fields(&["X-A", "x-a"]).check().unwrap_err().1.contains("twice"));
        assert!(fields(&["x-device-class"]).check().unwrap_err().1.contains("itself"));
        assert!(fields(&[&"x".repeat(PATTERN_BYTES_MAX + 1)]).check().is_err());
    }
}
