//! What a route captures of a request's host and path, and the texts that repeat it.
//!
//! The bytes are a client's. Each that is not unreserved (RFC 3986, 2.3) is percent-encoded, except
//! `/`, `:` and `@` in the rest of a path. So a value never ends a field, a segment, a parameter or
//! a host. What a normalised path still has encoded stays so, and is not encoded twice.

use std::borrow::Cow;

use config::{Action, FieldRule, PathPattern, Piece, Segment, pieces};

use crate::reading::path::{LEFT_ENCODED, decoded};

/// The name of the rest of a path.
const REST: &str = "*";

/// The captures of a route, as pairs of a name and an encoded value.
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

    /// A text with its captures replaced.
    pub(crate) fn expand<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.0.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len() + 32);
        for piece in pieces(text) {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Capture(name) => {
                    let value = self.0.iter().find(|(other, _)| other == name);
                    out.push_str(value.map_or("", |(_, value)| value));
                }
            }
        }
        Cow::Owned(out)
    }

    /// The changes to fields, with their captures replaced.
    pub fn rules(&self, rules: &[FieldRule]) -> Vec<FieldRule> {
        let expand = |value: &String| self.expand(value).into_owned();
        let rule = |rule: &FieldRule| match rule {
            FieldRule::Set(name, value) => FieldRule::Set(name.clone(), expand(value)),
            FieldRule::Add(name, value) => FieldRule::Add(name.clone(), expand(value)),
            FieldRule::Default(name, value) => FieldRule::Default(name.clone(), expand(value)),
            FieldRule::Cut(name, value) => FieldRule::Cut(name.clone(), expand(value)),
            FieldRule::Remove(name) => FieldRule::Remove(name.clone()),
        };
        rules.iter().map(rule).collect()
    }

    /// What a route does, with the captures of its location replaced.
    pub fn action(&self, action: &Action) -> Action {
        match action {
            Action::Redirect { status, location, with_path } => {
                let mut expanded = self.expand(location).into_owned();
                // An empty capture must not turn the path of a location into a host.
                if location.starts_with('/') && !location.starts_with("//") {
                    let path = expanded.trim_start_matches('/');
                    expanded = format!("/{path}");
                }
                Action::Redirect { status: *status, location: expanded, with_path: *with_path }
            }
            Action::Group(_) | Action::Answer { .. } => action.clone(),
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

fn encoded(bytes: &[u8], is_rest: bool) -> String {
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
    use config::{Host, Path, Route};

    fn route(path: &str) -> Route {
        let hosts = vec![Host::parse("{tenant}.example.org").unwrap()];
        Route { hosts, path: Path::parse(path).unwrap(), ..Route::to("g") }
    }

    #[test]
    fn captures_are_repeated_encoded() {
        let route = route("/{lang}/shop/*");
        let captured = |path: &str| Captured::of(&route, b"a-b.example.org", path.as_bytes());
        let expand = |path: &str| captured(path).expand("{tenant}|{lang}|{*}|{x|").into_owned();
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
        let action = captured("/evil/shop/").action(&to("/{*}/{lang}"));
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
