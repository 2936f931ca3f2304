//! What routes and rules capture of a request, the values that it has, and the texts that repeat
//! them.
//!
//! The bytes are a client's. Each that is not unreserved (RFC 3986, 2.3) is percent-encoded, except
//! `/`, `:` and `@` in the rest of a path. So a value never ends a field, a segment, a parameter or
//! a host. What a normalised path still has encoded stays so, and is not encoded twice. A value of
//! the request ([`crate::values`]) is written into a field as it is, and into a location encoded,
//! unless it is a part of the requested URL.

use config::{Action, FieldRule, PathPattern, Piece, Segment, is_value, pieces};

use crate::reading::path::{LEFT_ENCODED, decoded};
use crate::values::Values;

/// The name of the rest of a path.
const REST: &str = "*";

/// Where a text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Into a field.
    Field,
    /// Into the body of an answer.
    Body,
    /// Into a URL.
    Location,
}

/// The captures of a route and of rules, as pairs of a name and an encoded value.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Captured(Vec<(String, String)>);

impl Captured {
    /// Of a request of this route. The host is in lower case, the path is normalised.
    pub(crate) fn of(route: &config::Route, host: &[u8], path: &[u8]) -> Captured {
        let mut found = Vec::new();
        if let Some(name) = route.host_capture() {
            let end = memchr::memchr(b'.', host).unwrap_or(host.len());
            found.push((name.to_owned(), encoded(&host[..end], false)));
        }
        if let config::Path::Pattern(pattern) = &route.path {
            let mut rest = path;
            for segment in &pattern.segments {
                let Some((first, after)) = next_segment(rest) else { break };
                if let Segment::Capture(name) = segment {
                    found.push((name.clone(), encoded(first, false)));
                }
                rest = after;
            }
            if pattern.rest {
                let rest = rest.strip_prefix(b"/").unwrap_or(rest);
                found.push((REST.to_owned(), encoded(rest, true)));
            }
        }
        Captured(found)
    }

    /// Whether the upstream gets a captured host or segment in a field. The rest of a path (`*`) is
    /// left out: it is what the client wrote, in every reading.
    pub(crate) fn are_sent(route: &config::Route) -> bool {
        let names = route.captures();
        let repeats = |value: &str| {
            pieces(value).any(|piece| match piece {
                Piece::Capture(name) => name != REST && names.contains(&name),
                Piece::Text(_) => false,
            })
        };
        route.request.iter().any(|rule| match rule {
            FieldRule::Set(_, value) | FieldRule::Add(_, value) | FieldRule::Default(_, value) => {
                repeats(value)
            }
            FieldRule::Cut(..) | FieldRule::Remove(_) => false,
        })
    }

    /// Whether both have captured the same, without the rest of the path.
    pub(crate) fn is_same(&self, other: &Captured) -> bool {
        let named = |one: &Captured| {
            one.0.iter().filter(|(name, _)| name != REST).cloned().collect::<Vec<_>>()
        };
        named(self) == named(other)
    }

    /// Adds what a rule has captured.
    pub(crate) fn add(&mut self, name: &str, value: &[u8]) {
        self.0.push((name.to_owned(), encoded(value, true)));
    }

    /// A text with its captures and values replaced.
    pub(crate) fn expand(&self, text: &str, place: Place, values: &Values<'_>) -> String {
        let mut out = String::with_capacity(text.len() + 32);
        for piece in pieces(text) {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Capture(name) => match self.0.iter().find(|(other, _)| other == name) {
                    Some((_, value)) => out.push_str(value),
                    None if !is_value(name) => {
                        out.extend(["{", name, "}"]);
                    }
                    None => {
                        let value = values.value(name).unwrap_or_default();
                        out.push_str(&written(name, &value, place));
                    }
                },
            }
        }
        out
    }

    /// A path with its captures and `{path}` replaced.
    pub(crate) fn expand_path(&self, text: &str, path: &[u8]) -> String {
        let expanded: String = pieces(text)
            .map(|piece| match piece {
                Piece::Text(text) => text.to_owned(),
                Piece::Capture(name) => match self.0.iter().find(|(other, _)| other == name) {
                    Some((_, value)) => value.clone(),
                    None => encoded(path, true),
                },
            })
            .collect();
        rooted(&expanded)
    }

    /// The changes to fields, with their captures and values replaced.
    pub fn rules(&self, rules: &[FieldRule], values: &Values<'_>) -> Vec<FieldRule> {
        let expand = |value: &String| self.expand(value, Place::Field, values);
        let rule = |rule: &FieldRule| match rule {
            FieldRule::Set(name, value) => FieldRule::Set(name.clone(), expand(value)),
            FieldRule::Add(name, value) => FieldRule::Add(name.clone(), expand(value)),
            FieldRule::Default(name, value) => FieldRule::Default(name.clone(), expand(value)),
            FieldRule::Cut(name, value) => FieldRule::Cut(name.clone(), expand(value)),
            FieldRule::Remove(name) => FieldRule::Remove(name.clone()),
        };
        rules.iter().map(rule).collect()
    }

    /// What a route or a rule does, with the captures and values of its text replaced.
    pub fn action(&self, action: &Action, values: &Values<'_>) -> Action {
        match action {
            Action::Redirect { status, location, with_path } => {
                let mut expanded = self.expand(location, Place::Location, values);
                // An empty capture must not turn the path of a location into a host.
                if location.starts_with('/') && !location.starts_with("//") {
                    expanded = rooted(&expanded);
                }
                Action::Redirect { status: *status, location: expanded, with_path: *with_path }
            }
            Action::Answer { status, body } => {
                Action::Answer { status: *status, body: self.expand(body, Place::Body, values) }
            }
            Action::Group(_) => action.clone(),
        }
    }
}

/// A path with one slash at its beginning.
fn rooted(path: &str) -> String {
    format!("/{}", path.trim_start_matches(['/', '\\']))
}

/// A value, as a text repeats it.
fn written(name: &str, value: &[u8], place: Place) -> String {
    let is_of_url = matches!(name, "scheme" | "host" | "port" | "path" | "query" | "uri");
    match place {
        Place::Location if !is_of_url => encoded(value, false),
        Place::Location | Place::Field | Place::Body => {
            let mut out = String::with_capacity(value.len());
            for byte in value {
                let is_plain = match place {
                    // Browsers take a backslash for a slash.
                    Place::Location => *byte != b'\\',
                    // The text may be a part of a page or of a program.
                    Place::Body => byte.is_ascii_alphanumeric() || b"-._~/:@?=,+%".contains(byte),
                    Place::Field => true,
                };
                match byte {
                    b' '..=b'~' if is_plain => out.push(char::from(*byte)),
                    _ => out.push_str(&format!("%{byte:02X}")),
                }
            }
            out
        }
    }
}

/// A pattern for normalised paths.
#[derive(Debug)]
pub(crate) struct Matcher {
    /// The normalised literals; `None` is a capture.
    segments: Vec<Option<Vec<u8>>>,
    is_whole: bool,
}

impl Matcher {
    pub(crate) fn new(pattern: &PathPattern) -> Matcher {
        let segment = |segment: &Segment| match segment {
            Segment::Literal(text) => Some(decoded(text.as_bytes())),
            Segment::Capture(_) => None,
        };
        let segments = pattern.segments.iter().map(segment).collect();
        Matcher { segments, is_whole: !pattern.rest }
    }

    /// How many segments it names.
    pub(crate) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Its place among others: the larger is asked first.
    pub(crate) fn rank(&self) -> (usize, Vec<bool>, bool) {
        (self.len(), self.segments.iter().map(Option::is_some).collect(), self.is_whole)
    }

    /// Whether a normalised path matches.
    pub(crate) fn matches(&self, path: &[u8]) -> bool {
        let mut rest = path;
        for segment in &self.segments {
            let Some((first, after)) = next_segment(rest) else { return false };
            let fits = match segment {
                Some(text) => text == first,
                None => !first.is_empty(),
            };
            if !fits {
                return false;
            }
            rest = after;
        }
        rest.is_empty() || !self.is_whole
    }
}

/// The first segment of a path that begins with a slash, and what follows it.
fn next_segment(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = path.strip_prefix(b"/")?;
    Some(inner.split_at(memchr::memchr(b'/', inner).unwrap_or(inner.len())))
}

pub(crate) fn encoded(bytes: &[u8], is_rest: bool) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(bytes.len());
    for (at, &byte) in bytes.iter().enumerate() {
        let stays = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => true,
            b'/' | b':' | b'@' => is_rest,
            b'%' => LEFT_ENCODED.iter().any(|one| bytes[at..].starts_with(*one)),
            _ => false,
        };
        if stays {
            out.push(char::from(byte));
        } else {
            let digits = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
            out.push('%');
            out.extend(digits.map(char::from));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reading::Reading;
    use conditions::{Facts, Sent};
    use config::{Host, Path, Route};

    /// Calls `look` with the values of a request.
    fn with_values<T>(look: impl FnOnce(&Values<'_>) -> T) -> T {
        let bytes = b"GET /p?q HTTP/1.1\r\nHost: h:81\r\nCookie: a=1; b=x y\"\r\n\r\n";
        let mut scratch = http1::Scratch::new();
        let head = http1::parse_request(bytes, &mut scratch, &http1::Limits::DEFAULT);
        let head = head.unwrap().unwrap();
        let facts = Facts {
            host: b"",
            path: b"",
            query: b"q",
            sent: Sent::default(),
            method: b"GET",
            scheme: "https",
            listener: "l",
            port: 443,
            client: "192.0.2.1".parse().unwrap(),
            user: None,
            fields: head.fields,
            tls: None,
            now_s: 0,
            random: 0.5,
            response: None,
        };
        let reading = Reading::of(b"H:81", b"/p?q");
        look(&Values { facts, reading, upstream: Some("u"), id: Some(10), given_id: b"" })
    }

    #[test]
    fn texts_repeat_values() {
        let expand = |text: &str, place| {
            with_values(|values| Captured::default().expand(text, place, values))
        };
        let all = "{client} {scheme} {host}:{port} {path} {query} {uri} {upstream} {tls.sni}|";
        let expected = "192.0.2.1 https h:443 /p q /p?q u |";
        assert_eq!(expand(all, Place::Field), expected);
        assert_eq!(expand("{request_id}", Place::Field), format!("{:032x}", 10));
        assert_eq!(expand("{cookie.b}{cookie.c}", Place::Field), "x y\"");
        assert_eq!(expand("/?c={cookie.b}", Place::Location), "/?c=x%20y%22");
        assert_eq!(expand("{\"a\":1} {other}", Place::Field), "{\"a\":1} {other}");
    }

    fn route(path: &str) -> Route {
        let hosts = vec![Host::parse("{tenant}.example.org").unwrap()];
        Route { hosts, path: Path::parse(path).unwrap(), ..Route::to("g") }
    }

    #[test]
    fn captures_are_repeated_encoded() {
        let route = route("/{lang}/shop/*");
        let captured = |path: &str| Captured::of(&route, b"a-b.example.org", path.as_bytes());
        let expand = |path: &str| {
            let text = "{tenant}|{lang}|{*}|{x|";
            with_values(|values| captured(path).expand(text, Place::Field, values))
        };
        assert_eq!(expand("/en/shop/a/b"), "a-b|en|a/b|{x|");
        assert_eq!(expand("/en/shop"), "a-b|en||{x|");
        assert_eq!(expand("/e\r\nn/shop/a b?%"), "a-b|e%0D%0An|a%20b%3F%25|{x|");
        assert_eq!(expand("/en/shop/a%2Fb/%25%00"), "a-b|en|a%2Fb/%25%00|{x|", "not twice");
        assert_eq!(expand("/a:b/shop/File:X@y;v=1"), "a-b|a%3Ab|File:X@y%3Bv%3D1|{x|");
        let to = |location: &str| Action::Redirect {
            status: 308,
            location: location.to_owned(),
            with_path: false,
        };
        let action =
            with_values(|values| captured("/evil/shop/").action(&to("/{*}/{lang}"), values));
        assert_eq!(action, to("/evil"), "it is a path");
    }

    #[test]
    fn patterns_match_whole_segments() {
        let pattern = |text: &str| match Path::parse(text).unwrap() {
            Path::Pattern(pattern) => pattern,
            other => panic!("{other:?}"),
        };
        let fits = |text: &str, path: &str| Matcher::new(&pattern(text)).matches(path.as_bytes());
        assert!(fits("/{a}/%61dmin/*", "/x/admin/y"), "literals are normalised too");
        assert!(fits("/{a}/caf%C3%A9", "/x/caf\u{e9}") && fits("/{a}/a%2fb", "/x/a%2Fb"));
        assert!(fits("/{a}", "/x") && !fits("/{a}", "/x/") && !fits("/{a}", "/"));
        assert!(fits("/{a}/b", "/x/b") && !fits("/{a}/b", "/x/c") && !fits("/{a}/b", "/x/b/c"));
        assert!(fits("/{a}/*", "/x") && fits("/{a}/*", "/x/") && fits("/{a}/*", "/x/y/z"));
        assert!(fits("/*", "/") && !fits("/a/*", "/ab"));
    }

    proptest! {
        /// Whatever a client writes into a path, a value has no byte with a meaning.
        #[test]
        fn a_value_has_no_byte_with_a_meaning(
            bytes in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let value = encoded(&bytes, false);
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~%".contains(&b);
            prop_assert!(value.bytes().all(plain));
        }
    }
}
