//! What of a request belongs to its cache key, and for how long responses are fresh: the settings
//! of a route, as configured. `cache` and `policy` have their compiled forms.

use std::fmt;
use std::str::FromStr;

use super::FieldRule;
use crate::captures::{Piece, pieces};
use crate::here::Here;
use crate::limits::{KEY_PATTERNS_MAX, PATTERN_BYTES_MAX};
use crate::value::{understood, words};

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
