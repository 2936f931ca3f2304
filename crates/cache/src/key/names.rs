//! A list of patterns for names, compiled: most names are decided by their first byte.

use config::Pattern;
use config::limits::{KEY_PATTERNS_MAX, PATTERN_BYTES_MAX};

const _: () = assert!(KEY_PATTERNS_MAX * PATTERN_BYTES_MAX <= u16::MAX as usize);

/// Patterns for names.
#[derive(Debug)]
pub(super) struct Names {
    /// A bit for each first byte that a match may have.
    first: [u64; 4],
    rules: Box<[Rule]>,
    /// The bytes of all patterns.
    bytes: Box<[u8]>,
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    kind: Kind,
    start: u16,
    len: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Exact,
    Prefix,
    Suffix,
}

impl Names {
    /// `None` if there are no patterns.
    pub(super) fn new(patterns: &[Pattern]) -> Option<Names> {
        if patterns.is_empty() {
            return None;
        }
        let (mut first, mut bytes, mut rules) = ([0u64; 4], Vec::new(), Vec::new());
        for pattern in patterns {
            let (kind, text) = match pattern {
                Pattern::Exact(text) => (Kind::Exact, text),
                Pattern::Prefix(text) => (Kind::Prefix, text),
                Pattern::Suffix(text) => (Kind::Suffix, text),
            };
            match text.bytes().next().filter(|_| kind != Kind::Suffix) {
                Some(byte) => first[usize::from(byte >> 6)] |= 1 << (byte & 63),
                None => first = [u64::MAX; 4],
            }
            rules.push(Rule { kind, start: bytes.len() as u16, len: text.len() as u16 });
            bytes.extend_from_slice(text.as_bytes());
        }
        Some(Names { first, rules: rules.into(), bytes: bytes.into() })
    }

    /// Whether one of them matches.
    #[inline]
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        match name.first() {
            Some(byte) if self.first[usize::from(byte >> 6)] >> (byte & 63) & 1 == 0 => false,
            _ => self.matches_one(name),
        }
    }

    fn matches_one(&self, name: &[u8]) -> bool {
        self.rules.iter().any(|rule| {
            let start = usize::from(rule.start);
            let text = &self.bytes[start..start + usize::from(rule.len)];
            match rule.kind {
                Kind::Exact => name == text,
                Kind::Prefix => name.starts_with(text),
                Kind::Suffix => name.ends_with(text),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_by_any_pattern() {
        let names = |list: &[&str]| {
            Names::new(&list.iter().map(|one| one.parse().unwrap()).collect::<Vec<_>>())
        };
        assert!(names(&[]).is_none());
        let some = names(&["utm_*", "fbclid", "utx"]).unwrap();
        for (name, matches) in [
            ("utm_source", true),
            ("utm_", true),
            ("utm", false),
            ("fbclid", true),
            ("fbclid2", false),
            ("Utm_source", false),
            ("utx", true),
            ("", false),
        ] {
            assert_eq!(some.matches(name.as_bytes()), matches, "{name}");
        }
        let ends = names(&["*_id", "a"]).unwrap();
        assert!(ends.matches(b"x_id") && ends.matches(b"_id") && ends.matches(b"a"));
        assert!(!ends.matches(b"id") && !ends.matches(b""));
        let all = names(&["*"]).unwrap();
        assert!(all.matches(b"") && all.matches(b"\xff"));
    }
}
