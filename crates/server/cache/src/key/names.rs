//! A list of patterns for names, compiled: most names are decided by their first byte.

use config::Pattern;
use config::limits::{KEY_PATTERNS_MAX, PATTERN_BYTES_MAX};
use http1::is_one_variable;

const _: () = assert!(KEY_PATTERNS_MAX * PATTERN_BYTES_MAX <= u16::MAX as usize);

/// Patterns for names.
#[derive(Debug)]
pub(super) struct Names {
    /// A bit for each first byte that a match may have.
    first: [u64; 4],
    rules: Box<[Rule]>,
    /// The bytes of all patterns.
    bytes: Box<[u8]>,
    /// Names match if some server takes one for the other.
    of_cookies: bool,
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
        Some(Names::compiled(patterns, false))
    }

    /// The same for names of cookies. A cookie that some server takes for another cookie must count
    /// like that cookie. Many servers compare names without case; PHP makes `_` of what is no
    /// letter or digit in a variable's name, and cuts the name at `[`.
    pub(super) fn of_cookies(patterns: &[Pattern]) -> Option<Names> {
        (!patterns.is_empty()).then(|| Names::compiled(patterns, true))
    }

    fn compiled(patterns: &[Pattern], of_cookies: bool) -> Names {
        let (mut first, mut bytes, mut rules) = ([0u64; 4], Vec::new(), Vec::new());
        for pattern in patterns {
            let (kind, text) = match pattern {
                Pattern::Exact(text) => (Kind::Exact, text),
                Pattern::Prefix(text) => (Kind::Prefix, text),
                Pattern::Suffix(text) => (Kind::Suffix, text),
            };
            match text.bytes().next().filter(|_| kind != Kind::Suffix) {
                Some(byte) if of_cookies => {
                    for other in (0..=u8::MAX).filter(|other| is_one_variable(&[byte], &[*other])) {
                        first[usize::from(other >> 6)] |= 1 << (other & 63);
                    }
                }
                Some(byte) => first[usize::from(byte >> 6)] |= 1 << (byte & 63),
                None => first = [u64::MAX; 4],
            }
            rules.push(Rule { kind, start: bytes.len() as u16, len: text.len() as u16 });
            bytes.extend_from_slice(text.as_bytes());
        }
        Names { first, rules: rules.into(), bytes: bytes.into(), of_cookies }
    }

    /// Whether one of them matches the name before `=` in a parameter or a cookie. No pattern
    /// begins with `=`, so the first byte of one without a name decides too.
    #[inline]
    pub(super) fn matches(&self, item: &[u8]) -> bool {
        match item.first() {
            Some(byte) if self.first[usize::from(byte >> 6)] >> (byte & 63) & 1 == 0 => false,
            _ => {
                let name = name(item);
                let array = || find(b'[', name).is_some_and(|at| self.matches_one(&name[..at]));
                self.matches_one(name) || (self.of_cookies && array())
            }
        }
    }

    fn matches_one(&self, name: &[u8]) -> bool {
        self.rules.iter().any(|rule| {
            let start = usize::from(rule.start);
            let text = &self.bytes[start..start + usize::from(rule.len)];
            let part = match rule.kind {
                Kind::Exact if name.len() == text.len() => Some(name),
                Kind::Exact => None,
                Kind::Prefix => name.get(..text.len()),
                Kind::Suffix => name.len().checked_sub(text.len()).map(|at| &name[at..]),
            };
            part.is_some_and(|part| match self.of_cookies {
                true => is_one_variable(part, text),
                false => part == text,
            })
        })
    }
}

/// The name before `=`. Many servers ignore blanks after the name of a cookie, so it is compared
/// without them: otherwise a cookie would be sent and its name would not count.
#[inline]
pub(super) fn name(item: &[u8]) -> &[u8] {
    find(b'=', item).map_or(item, |at| &item[..at]).trim_ascii_end()
}

/// The position of a byte. Names and values are short: eight bytes at a time, in place, cost less
/// than the call of a vectorised search.
#[inline]
pub(super) fn find(byte: u8, bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk() {
        let differs = u64::from_le_bytes(*chunk) ^ (ONES * u64::from(byte));
        // The lowest of these bits is that of the first byte that is equal.
        let equal = differs.wrapping_sub(ONES) & !differs & (ONES << 7);
        if equal != 0 {
            return Some(at + equal.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = bytes[at..].iter().position(|other| *other == byte)?;
    Some(at + rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_byte_is_found_where_it_is(
            bytes in proptest::collection::vec(prop_oneof![0u8..3, any::<u8>()], 0..40),
            byte in prop_oneof![0u8..3, any::<u8>()],
        ) {
            prop_assert_eq!(find(byte, &bytes), bytes.iter().position(|other| *other == byte));
        }
    }

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
            ("=utm_", false),
            ("fbclid=utm_", true),
            ("fbclid =x", true),
            ("fbclid \t=x", true),
            ("a=utm_", false),
        ] {
            assert_eq!(some.matches(name.as_bytes()), matches, "{name}");
        }
        let patterns: Vec<Pattern> =
            ["PHPSESSID", "cart*", "*_ID"].iter().map(|one| one.parse().unwrap()).collect();
        let cookies = Names::of_cookies(&patterns).unwrap();
        for (cookie, matches) in [
            ("phpsessid=1", true),
            ("PhpSessId=1", true),
            ("phpsessid2=1", false),
            ("Cart_x=1", true),
            ("car=1", false),
            ("user_id=1", true),
            ("user.id=1", true),
            ("user id=1", true),
            ("user_id[]=1", true),
            ("user[id=1", true),
            ("user[id]=1", false),
            ("userxid=1", false),
            ("id=1", false),
        ] {
            assert_eq!(cookies.matches(cookie.as_bytes()), matches, "{cookie}");
        }
        let ends = names(&["*_id", "a"]).unwrap();
        assert!(ends.matches(b"x_id") && ends.matches(b"_id") && ends.matches(b"a"));
        assert!(!ends.matches(b"id") && !ends.matches(b""));
        let all = names(&["*"]).unwrap();
        assert!(all.matches(b"") && all.matches(b"=") && all.matches(b"\xff"));
    }
}
