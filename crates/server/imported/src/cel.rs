//! Conditions of our file, which are written in a part of CEL.
//!
//! [`check`] is the server's own check, so a condition that the server would refuse is never
//! written. A regular expression that means something else here is refused by [`pattern`].

use std::cell::RefCell;
use std::collections::HashMap;

use conditions::{Lists, Reads, Scope};
use regex_automata::meta::Regex;
use regex_automata::util::syntax;

use crate::decoded;

/// The most parts that a condition joins.
pub const PARTS_MAX: usize = 64;

/// A condition, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cel {
    text: String,
    joined: Joined,
}

/// How the parts of a condition are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joined {
    /// There is one part.
    One,
    And,
    Or,
}

impl Cel {
    /// A single part, such as a comparison.
    pub fn one(text: impl Into<String>) -> Cel {
        Cel { text: text.into(), joined: Joined::One }
    }

    /// All of these hold. `None`: there are none.
    pub fn all(parts: Vec<Cel>) -> Option<Cel> {
        Cel::join(parts, Joined::And, " && ")
    }

    /// One of these holds. `None`: there are none.
    pub fn any(parts: Vec<Cel>) -> Option<Cel> {
        Cel::join(parts, Joined::Or, " || ")
    }

    /// The condition does not hold.
    pub fn negated(self) -> Cel {
        let is_plain = self.joined == Joined::One;
        let comparisons = [(" == ", " != "), (" != ", " == ")];
        for (sign, opposite) in comparisons.into_iter().filter(|_| is_plain) {
            if let [at] = outside(&self.text, sign)[..]
                && !self.text.starts_with('!')
            {
                let (left, right) = (&self.text[..at], &self.text[at + sign.len()..]);
                return Cel::one(format!("{left}{opposite}{right}"));
            }
        }
        let of_field = self.text.strip_prefix("!(").and_then(|rest| rest.strip_suffix(')'));
        let name = of_field.and_then(|one| one.strip_prefix('\'')?.strip_suffix("' in fields"));
        if let Some(text) = of_field.filter(|_| name.is_some_and(|name| !name.contains('\''))) {
            return Cel::one(text);
        }
        match self.text.strip_prefix('!') {
            Some(rest) if is_plain && !rest.starts_with('(') => Cel::one(rest),
            // A method binds more tightly than `!`, and an operator does not.
            _ if is_plain && OPERATORS.iter().all(|sign| outside(&self.text, sign).is_empty()) => {
                Cel::one(format!("!{}", self.text))
            }
            _ => Cel::one(format!("!({})", self.text)),
        }
    }

    fn join(parts: Vec<Cel>, joined: Joined, sign: &str) -> Option<Cel> {
        debug_assert!(parts.len() <= PARTS_MAX, "the caller counts its parts");
        let mut all: Vec<Cel> = Vec::new();
        for part in parts {
            let has = |one: &Cel| *one == part || one.joined == joined && one.has(&part, sign);
            if !all.iter().any(has) {
                all.push(part);
            }
        }
        if all.len() <= 1 {
            return all.pop();
        }
        let shown = |part: &Cel| match part.joined {
            Joined::One => part.text.clone(),
            own if own == joined => part.text.clone(),
            Joined::And | Joined::Or => format!("({})", part.text),
        };
        let texts: Vec<String> = all.iter().map(shown).collect();
        Some(Cel { text: texts.join(sign), joined })
    }

    /// Whether this is one of its parts.
    fn has(&self, part: &Cel, sign: &str) -> bool {
        part.joined == Joined::One && self.text.split(sign).any(|one| one == part.text)
    }

    /// The fields that a request lacks if the condition does not hold.
    pub fn fields(&self) -> Vec<String> {
        let mut parts = Vec::new();
        let mut from = 0;
        for at in outside(&self.text, " || ") {
            parts.push(&self.text[from..at]);
            from = at + " || ".len();
        }
        parts.push(&self.text[from..]);
        if self.joined == Joined::And {
            return Vec::new();
        }
        let name =
            |part: &str| Some(part.strip_prefix('\'')?.strip_suffix("' in fields")?.to_owned());
        let plain = |name: &String| !name.contains(['\'', ' ']);
        parts.into_iter().filter_map(name).filter(plain).collect()
    }

    /// The text of the condition.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Operators that bind less tightly than `!`.
const OPERATORS: [&str; 7] = [" == ", " != ", " < ", " <= ", " > ", " >= ", " in "];

/// Where a sign is outside quotes and brackets.
fn outside(text: &str, sign: &str) -> Vec<usize> {
    let (mut quote, mut depth, mut all) = (None, 0_usize, Vec::new());
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | '[') => depth += 1,
            (None, ')' | ']') => depth = depth.saturating_sub(1),
            (None, _) if depth == 0 && text[at..].starts_with(sign) => all.push(at),
            (None, _) => {}
        }
    }
    all
}

/// Checks a condition on a request as the server does. Returns what the condition reads, or `None`
/// if the server would refuse it.
pub fn check(condition: &Cel, lists: &Lists) -> Option<Reads> {
    conditions::check(condition.text(), Scope::Request, lists).ok().map(|found| found.reads())
}

/// Checks a condition on a response as the server does. `None`: the server would refuse it for
/// responses that are stored.
pub fn check_response(condition: &Cel, lists: &Lists) -> Option<Reads> {
    let found = conditions::check(condition.text(), Scope::Response, lists).ok()?.reads();
    (!is_of_client(found) && !found.intersects(Reads::METHOD)).then_some(found)
}

/// Whether a condition reads what differs between requests for one stored response.
pub fn is_of_client(reads: Reads) -> bool {
    let of_client = Reads::LISTENER
        | Reads::CLIENT
        | Reads::USER
        | Reads::TLS
        | Reads::FIELDS
        | Reads::COOKIES
        | Reads::RANDOM;
    reads.intersects(of_client)
}

/// A text in quotes, without escapes. `None`: it cannot be written like this.
pub fn quoted(text: &str) -> Option<String> {
    let quote = if text.contains('\'') { '"' } else { '\'' };
    let is_plain = text.is_ascii() && !text.contains(|c: char| c.is_control() || c == quote);
    let raw = if text.contains('\\') { "r" } else { "" };
    is_plain.then(|| format!("{raw}{quote}{text}{quote}"))
}

/// Several texts in brackets.
pub fn list<'t>(texts: impl IntoIterator<Item = &'t str>) -> Option<String> {
    let all: Vec<String> = texts.into_iter().map(quoted).collect::<Option<_>>()?;
    Some(format!("[{}]", all.join(", ")))
}

/// `VALUE.matches(EXPRESSION)`. `None`: the expression means something else here.
pub fn matches(value: &str, expression: &str) -> Option<Cel> {
    Some(Cel::one(format!("{value}.matches({})", quoted(pattern(expression)?)?)))
}

/// `path.matches(EXPRESSION)` for an expression of PCRE that the original compares with the decoded
/// path. `None`: no expression means the same here.
pub fn path_matches(expression: &str) -> Option<Cel> {
    let text = decoded::for_condition(pattern(expression)?)?;
    Some(Cel::one(format!("path.matches({})", quoted(&text)?)))
}

/// Expressions of PCRE that are compared with texts while a file is imported. Each is compiled
/// once.
#[derive(Debug, Default)]
pub struct Expressions {
    compiled: RefCell<HashMap<String, Option<Regex>>>,
}

impl Expressions {
    /// Whether an expression matches a text without a line break. `None`: this is unknown.
    pub fn is_match(&self, expression: &str, text: &str) -> Option<bool> {
        debug_assert!(!text.contains('\n'), "`$` would match before it");
        let mut compiled = self.compiled.borrow_mut();
        if !compiled.contains_key(expression) {
            let syntax = syntax::Config::new().unicode(false).utf8(false);
            let of = |text| Regex::builder().syntax(syntax).build(text).ok();
            compiled.insert(expression.to_owned(), pattern(expression).and_then(of));
        }
        Some(compiled.get(expression)?.as_ref()?.is_match(text))
    }
}

/// A decoded text as part of the path of a condition or of a route.
pub fn in_path(text: &str) -> String {
    text.replace('%', "%25")
}

/// `VALUE == TEXT`, or whether the value is there and empty.
pub fn is(value: &str, text: &str) -> Option<Cel> {
    Some(Cel::one(format!("{value} == {}", quoted(text)?)))
}

/// `fields['NAME']`, with the name in lower case.
pub fn field(name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let fits = !name.is_empty() && name.bytes().all(is_name);
    fits.then(|| format!("fields['{name}']"))
}

/// `response['NAME']`, with the name in lower case.
pub fn response(name: &str) -> Option<String> {
    Some(field(name)?.replacen("fields", "response", 1))
}

/// The request has this field.
pub fn has_field(name: &str) -> Option<Cel> {
    let field = field(name)?;
    let name = field.strip_prefix("fields[")?.strip_suffix(']')?;
    Some(Cel::one(format!("{name} in fields")))
}

/// An expression of PCRE that means the same here. The server's check refuses what it does not
/// know, such as references to groups. This function refuses what it reads in another way.
fn pattern(text: &str) -> Option<&str> {
    let (mut escaped, mut class) = (false, None::<usize>);
    for (at, c) in text.char_indices() {
        let rest = &text[at..];
        match (c, class) {
            _ if escaped => {
                // `<` and `>` are the ends of words here.
                if matches!(c, '<' | '>') {
                    return None;
                }
                escaped = false;
            }
            ('\\', _) => escaped = true,
            ('[', None) => class = Some(at),
            // A class inside a class, and operations on classes.
            ('[', Some(_)) if !rest.starts_with("[:") => return None,
            ('&' | '-' | '~', Some(_)) if rest[1..].starts_with(c) => return None,
            (']', Some(start)) => {
                let inner = text[start + 1..at].trim_start_matches('^');
                let is_named = inner.rfind("[:").is_some_and(|open| !inner[open..].contains(":]"));
                // `[]a]` and `[[:digit:]]`.
                if inner.is_empty() {
                    return None;
                }
                let of_name = inner.ends_with(':') && inner.rfind("[:").is_some();
                if !(is_named && of_name) {
                    class = None;
                }
            }
            _ => {}
        }
    }
    (!escaped && class.is_none()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(condition: Option<Cel>) -> String {
        condition.map(|one| one.text).unwrap_or_default()
    }

    #[test]
    fn parts_have_brackets_where_they_need_them() {
        let one = |text: &str| Cel::one(text);
        let either = Cel::any(vec![one("a == 'x'"), one("b")]).unwrap();
        let all = Cel::all(vec![either.clone(), one("c"), one("c")]);
        assert_eq!(text(all.clone()), "(a == 'x' || b) && c");
        let again = Cel::all(vec![all.unwrap(), one("c"), one("d")]);
        assert_eq!(text(again), "(a == 'x' || b) && c && d");
        assert_eq!(either.negated().text, "!(a == 'x' || b)");
        assert_eq!(one("a.matches('x == y')").negated().text, "!a.matches('x == y')");
        assert_eq!(one("a == 'x == y'").negated().text, "a != 'x == y'");
        assert_eq!(one("status < 3").negated().text, "!(status < 3)");
        let none = Cel::any(vec![one("a"), one("'b' in fields"), one("c")]).unwrap().negated();
        assert_eq!(none.fields(), Vec::<String>::new());
        assert_eq!(Cel::any(vec![none, one("'d' in fields")]).unwrap().fields(), ["d"]);
        assert_eq!(one("a == 'x'").negated().text, "a != 'x'");
        assert_eq!(one("a.matches('x')").negated().text, "!a.matches('x')");
        assert_eq!(one("a.matches('x')").negated().negated().text, "a.matches('x')");
        assert_eq!(one("'a' in fields").negated().text, "!('a' in fields)");
        assert_eq!(one("'a' in fields").negated().negated().text, "'a' in fields");
        assert_eq!(Cel::all(Vec::new()), None);
    }

    #[test]
    fn expressions_that_mean_something_else_are_refused() {
        for same in [r"\.(css|js)$", "[^/]+", "[a-z_-]", "^/a[[:digit:]]+x", r"[\]]", "a{2}"] {
            assert_eq!(pattern(same), Some(same));
            let lists = Lists::new();
            assert!(check(&matches("path", same).unwrap(), &lists).is_some(), "{same}");
        }
        for other in [r"\<a", "[a[b]", "[a&&b]", "[a--b]", "[]a]", "[^]a]", "[a", "a\\"] {
            assert_eq!(pattern(other), None, "{other}");
        }
        for unknown in ["(?=a)", r"(a)\1", "(?<!a)b"] {
            assert!(check(&matches("path", unknown).unwrap(), &Lists::new()).is_none());
        }
    }

    #[test]
    fn texts_are_quoted_without_escapes() {
        assert_eq!(quoted("a\"b").as_deref(), Some("'a\"b'"));
        assert_eq!(quoted("a'b").as_deref(), Some("\"a'b\""));
        assert_eq!(quoted(r"\.").as_deref(), Some(r"r'\.'"));
        assert_eq!((quoted("'\""), quoted("a\n"), quoted("ä")), (None, None, None));
        assert_eq!(text(has_field("X-A")), "'x-a' in fields");
        assert_eq!(field("a'b"), None);
    }
}
