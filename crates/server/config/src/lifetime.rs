//! How long some of the responses of a route, or of forward listeners, are fresh.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::here::Here;
use super::limits::{LIFETIMES_MAX, PATTERN_BYTES_MAX};
use super::table::{Key, Table, keys};
use super::value::{Kind, WHILE, understood};
use super::when::When;

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
}
