//! Regular expressions for URLs, as conditions of our file.
//!
//! Squid compares an expression with the whole URL, such as `http://a.test:8080/b?c`. Our
//! conditions have a host, a path and a query, so an expression is split where the path begins.
//! Known faults: a condition can hold for fewer requests than the expression. The query is not
//! decoded, no port and no scheme is compared, a dot or `.*` does not reach from the host into the
//! path, a slash in a group or a class splits nothing, and `://` is read as the beginning.

use imported::cel::{Cel, PARTS_MAX, matches};
use imported::url::{alternatives, signs, url};

/// How the conditions differ.
pub(crate) const APART: &str = "its condition compares the host, the decoded path and the query \
                                apart, and holds for every scheme and every port";

/// Beginnings of expressions after which the host begins.
const BEFORE_HOST: [&str; 10] = [
    "^http://",
    "^https://",
    "^https?://",
    "^http[s]?://",
    "^http(s)?://",
    "^http(s|)://",
    "^(http|https)://",
    "^[^:]*://",
    "^[a-z]*://",
    "://",
];

/// Expressions for all hosts.
const ANY_HOST: [&str; 6] = ["[^/]*", "[^/]+", "([^/]*)", "([^/]+)", ".*", ".+"];

/// Beginnings of expressions for a host and all hosts below it.
const ANY_BELOW: [&str; 8] =
    [".*", "[^/]*", "[^/]+", ".+", r"([^/]*\.)?", r"(.*\.)?", r"([^/]+\.)?", r"([^.]*\.)*"];

/// An expression of Squid (POSIX, extended) in our language; `None`: it has something that means
/// something else here.
pub(crate) fn posix(text: &str, ignores_case: bool) -> Option<String> {
    let mut ours = String::from(if ignores_case { "(?i)" } else { "" });
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next()? {
                // An extension that both have.
                c @ ('w' | 'W' | 'b' | 'B' | 's' | 'S') => ours.extend(['\\', c]),
                '<' | '>' => ours.push_str(r"\b"),
                c if c.is_ascii_alphanumeric() => return None,
                '/' => ours.push('/'),
                c => ours.extend(['\\', c]),
            },
            '[' => class(&mut rest, &mut ours)?,
            c => ours.push(c),
        }
    }
    Some(ours)
}

/// What stands between brackets. A backslash stands for itself there.
fn class(rest: &mut std::str::Chars<'_>, ours: &mut String) -> Option<()> {
    ours.push('[');
    let mut is_first = true;
    loop {
        match rest.next()? {
            '^' if is_first && !ours.ends_with('^') => {
                ours.push('^');
                continue;
            }
            ']' if !is_first => break,
            '[' if rest.as_str().starts_with(':') => {
                let (name, after) = rest.as_str().split_once(":]")?;
                ours.push_str(&format!("[{name}:]"));
                *rest = after.chars();
            }
            c @ ('\\' | '[' | ']' | '&' | '~') => ours.extend(['\\', c]),
            c => ours.push(c),
        }
        is_first = false;
    }
    ours.push(']');
    Some(())
}

/// A condition for URLs that one of these expressions matches. `is_loose`: the condition may hold
/// for fewer URLs, because no request is kept out.
pub(crate) fn whole(expressions: &[String], is_loose: bool) -> Option<Cel> {
    let mut parts = Vec::new();
    let mut words = Vec::new();
    for one in expressions {
        let (case, text) = match one.strip_prefix("(?i)") {
            Some(text) => ("(?i)", text),
            None => ("", one.as_str()),
        };
        for text in alternatives(unwrapped(text)) {
            match is_word(text) {
                true => words.push((case, text)),
                false => parts.push(alternative(case, text, is_loose)?),
            }
        }
    }
    for case in ["", "(?i)"] {
        let own: Vec<&str> = words.iter().filter(|one| one.0 == case).map(|one| one.1).collect();
        if !own.is_empty() {
            let text = format!("{case}{}", own.join("|"));
            for value in ["host", "path", "query"] {
                parts.push(matches(value, &text)?);
            }
        }
    }
    (parts.len() <= PARTS_MAX).then(|| Cel::any(parts)).flatten()
}

/// The content of a group that is the whole expression.
fn unwrapped(text: &str) -> &str {
    let inner = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let is_one =
        |inner: &&str| !inner.ends_with('\\') && signs(inner).all(|(.., depth)| depth >= 0);
    inner.filter(is_one).unwrap_or(text)
}

/// Whether this is found inside the host, inside the path or inside the query, if at all.
fn is_word(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !text.is_empty() && text.replace(r"\.", ".").chars().all(plain)
}

fn alternative(case: &str, text: &str, is_loose: bool) -> Option<Cel> {
    if matches!(text, r"\?" | "[?]") {
        return Some(Cel::one("query != ''"));
    }
    let of_url = |text: &str| url(&format!("{case}{text}"), is_loose).map(|(found, _)| found);
    if let Some(rest) = BEFORE_HOST.iter().find_map(|before| text.strip_prefix(before)) {
        return from_host(case, rest, is_loose);
    }
    // The end of the whole URL, or the sign before the query.
    let ends = text.ends_with('$') || text.contains(r"\?") || text.contains("[?");
    match split(text) {
        _ if text.starts_with('^') => None,
        (_, None) if ends => of_url(text),
        (_, None) => Cel::any(vec![matches("host", &format!("{case}{text}"))?, of_url(text)?]),
        // The first slash of the path, or the second one before a host.
        ("", Some(path)) => match is_loose || path == "/" {
            true => of_url(text),
            false => Cel::any(vec![of_url(text)?, from_host(case, &path[1..], is_loose)?]),
        },
        (host, Some(path)) => {
            let host = in_host(host, is_loose)?;
            let of_host = matches("host", &format!("{case}{host}$"))?;
            let both = Cel::all(vec![of_host, of_url(&format!("^{path}"))?])?;
            Cel::any(vec![both, of_url(text)?])
        }
    }
}

/// An expression that begins where the host begins.
fn from_host(case: &str, text: &str, is_loose: bool) -> Option<Cel> {
    let (host, path) = split(text);
    let of_path = match path {
        // All paths begin with a slash.
        None | Some("/" | "/.*" | "/.*$") => None,
        Some(path) => Some(url(&format!("{case}^{path}"), is_loose)?.0),
    };
    if ANY_HOST.contains(&host) {
        return of_path;
    }
    let below = ANY_BELOW.iter().find_map(|any| host.strip_prefix(any));
    let start = if below.is_some() { "" } else { "^" };
    let host = in_host(below.unwrap_or(host), is_loose)?;
    let end = if path.is_some() { "$" } else { "" };
    let of_host = matches("host", &format!("{case}{start}{host}{end}"))?;
    Cel::all([Some(of_host), of_path].into_iter().flatten().collect())
}

/// An expression that stays in the host.
fn in_host(text: &str, is_loose: bool) -> Option<&str> {
    let spans = [".*", ".+", ".{", "[^", r"\S", r"\W"].iter().any(|sign| text.contains(sign));
    let is_other = text.contains([':', '?', '&', '%', '$', '^', '@']);
    (!text.is_empty() && !is_other && (is_loose || !spans)).then_some(text)
}

/// The expression before its first slash, and from that slash on. A slash in a group or a class
/// does not count.
fn split(text: &str) -> (&str, Option<&str>) {
    match signs(text).find(|(_, c, depth)| *c == '/' && *depth == 0) {
        Some((at, ..)) => (&text[..at], Some(&text[at..])),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, is_loose: bool) -> Option<String> {
        let found = whole(&[posix(text, false)?], is_loose)?;
        let lists = conditions::Lists::default();
        assert!(imported::cel::check(&found, &lists).is_some(), "{}", found.text());
        Some(found.text().to_owned())
    }

    #[test]
    fn an_expression_for_a_url_is_split_where_the_path_begins() {
        for (text, wanted) in [
            ("sex", "host.matches('sex') || path.matches('sex') || query.matches('sex')"),
            (r"^http://ads\.", r"host.matches(r'^ads\.')"),
            (r"^https?://[^/]*/api/", "path.matches('^/api/')"),
            (
                r"^http://(www|cdn)\.a\.test/x/",
                r"host.matches(r'^(www|cdn)\.a\.test$') && path.matches('^/x/')",
            ),
            (r"^http://.*\.a\.test/", r"host.matches(r'\.a\.test$')"),
            (
                r"\.(deb|rpm)$",
                r"(path.matches(r'\.(deb|rpm)$') && query == '') || query.matches(r'\.(deb|rpm)$')",
            ),
            (
                r"a\.test/ads",
                concat!(
                    r"(host.matches(r'a\.test$') && path.matches('^/ads')) || ",
                    r"path.matches(r'a\.test/ads') || query.matches(r'a\.test/ads')"
                ),
            ),
            ("/ads/", "path.matches('/ads/') || query.matches('/ads/') || host.matches('^ads$')"),
            (
                r"(/cgi-bin/|\?)",
                "path.matches('/cgi-bin/') || query.matches('/cgi-bin/') || \
                 host.matches('^cgi-bin$') || query != ''",
            ),
        ] {
            assert_eq!(of(text, false).as_deref(), Some(wanted), "{text}");
        }
        // Less than the expression would be kept out, or it means something else here.
        for text in ["^http://a.*b/", "ads.*banner", "a%20b", r"\1", r"\d", "^ftp:", "a$b", "^", ""]
        {
            assert_eq!(of(text, false), None, "{text}");
        }
        let loose = "host.matches('ads.*banner') || path.matches('ads.*banner') || \
                     query.matches('ads.*banner')";
        assert_eq!(of("ads.*banner", true).as_deref(), Some(loose));
    }

    #[test]
    fn a_backslash_in_a_class_is_a_backslash() {
        for (text, wanted) in [
            (r"[\.]a", Some(r"[\\.]a")),
            ("[]a]", Some(r"[\]a]")),
            ("[^]a[:alpha:]&&b]", Some(r"[^\]a[:alpha:]\&\&b]")),
            (r"\<ad\>", Some(r"\bad\b")),
            (r"\/x\.", Some(r"/x\.")),
            ("[a", None),
            ("a\\", None),
        ] {
            assert_eq!(posix(text, false).as_deref(), wanted, "{text}");
        }
    }
}
