//! Expressions for a URL, as conditions of our file.
//!
//! VCL and nginx (`$request_uri`) have the path together with the query. Our conditions have a
//! path, which is decoded, and a query.

use crate::cel::{self, Cel, PARTS_MAX};

/// The difference of a pattern with a dot.
const DOT: &str = "its condition is written, but a dot of the expression does not stand for the \
                   sign before a query";

/// The ends of expressions that end the path, with or without a query.
const PATH_ENDS: [&str; 10] = [
    r"(\?.*|)$",
    r"(\?.*)?$",
    r"(\?.*|$)",
    r"(\?.*$|$)",
    r"(\?|$)",
    r"($|\?)",
    r"(?:\?|$)",
    r"($|\?.*)",
    r"(?:\?.*)?$",
    r"(\?[^\s]*)?$",
];

/// The starts of expressions that look for a parameter, and whether `&` may come before it.
const PARAMETER_STARTS: [(&str, bool); 8] = [
    ("[?&]", true),
    ("[&?]", true),
    (r"[\?&]", true),
    (r"(\?|&)", true),
    (r"(?:\?|&)", true),
    (r"(\?|\&)", true),
    (r"\?.*", false),
    (r"\?", false),
];

/// How a pattern that matches a text with a question mark differs.
const APART: &str = "its condition is written, but it compares the path and the query apart";

/// An expression for the path with the query, and how the condition differs. `None`: it depends on
/// where the query begins in a way that two conditions cannot say. `is_loose`: it may differ for
/// such URLs, because no request is kept out.
pub fn url(pattern: &str, is_loose: bool) -> Option<(Cel, &'static str)> {
    let (case, text) = match pattern.strip_prefix("(?i)") {
        Some(rest) => ("(?i)", rest),
        None => ("", pattern),
    };
    let (mut parts, mut why) = (Vec::new(), "");
    let all = alternatives(text);
    // An alternative can have two parts.
    if all.len() > PARTS_MAX / 2 {
        return None;
    }
    for one in all {
        let (part, differs) = alternative(case, one, is_loose)?;
        parts.push(part);
        why = if differs.is_empty() { why } else { differs };
    }
    Some((Cel::any(parts)?, why))
}

/// The characters of an expression outside classes that no backslash is before, each with its place
/// and with the groups that are open behind it.
pub fn signs(pattern: &str) -> impl Iterator<Item = (usize, char, i32)> {
    let (mut depth, mut in_class, mut escaped) = (0, false, false);
    pattern.char_indices().filter_map(move |(at, c)| {
        let is_sign = !escaped && !in_class;
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' => in_class = false,
            '[' => in_class = true,
            '(' if is_sign => depth += 1,
            ')' if is_sign => depth -= 1,
            _ => {}
        }
        is_sign.then_some((at, c, depth))
    })
}

/// The alternatives of an expression: its parts between `|`, outside groups and classes.
pub fn alternatives(pattern: &str) -> Vec<&str> {
    let (mut all, mut from) = (Vec::new(), 0);
    for (at, ..) in signs(pattern).filter(|(_, c, depth)| *c == '|' && *depth == 0) {
        all.push(&pattern[from..at]);
        from = at + 1;
    }
    all.push(&pattern[from..]);
    all
}

fn alternative(case: &str, text: &str, is_loose: bool) -> Option<(Cel, &'static str)> {
    // The path of a condition is decoded, and its slashes are merged.
    let bare = text.replace('\\', "");
    let is_odd = [r"/\./", r"/\.\./"].iter().any(|dots| text.contains(dots));
    if is_odd || bare.contains(['%', '#']) || bare.contains("//") {
        return None;
    }
    let on = |value: &str, text: &str| cel::matches(value, &format!("{case}{text}"));
    let parameter = PARAMETER_STARTS
        .iter()
        .find_map(|(from, has_and)| Some((text.strip_prefix(from)?, *has_and)));
    if let Some((rest, has_and)) = parameter {
        let is_plain = !rest.contains(['?', '$']) && !rest.starts_with(['*', '+', '{']);
        if !is_plain || !stays_in_part(rest) {
            return None;
        }
        let start = match (has_and, text.starts_with(r"\?.*")) {
            (true, _) => "(^|[?&])",
            (false, true) => "",
            (false, false) => r"(^|\?)",
        };
        let why = if has_dot(rest) { DOT } else { "" };
        let mut parts = vec![on("query", &format!("{start}{rest}"))?];
        if has_and {
            parts.push(on("path", &format!("&{rest}"))?);
        }
        return Some((Cel::any(parts)?, why));
    }
    // The path itself, without a query, or all below it.
    let below =
        [r"(/.*)?$", "(/.*|)$", "(/|$)", r"(\/.*)?$"].iter().find_map(|end| text.strip_suffix(end));
    if let Some(own) = below.filter(|own| own.starts_with("^/") && stays_in_part(&own[1..])) {
        let whole = vec![on("path", &format!("{own}$"))?, Cel::one("query == ''")];
        let found = Cel::any(vec![on("path", &format!("{own}/"))?, Cel::all(whole)?])?;
        return Some((found, if has_dot(own) { DOT } else { "" }));
    }
    let with_query = ended_by_query(text);
    let ended = PATH_ENDS.iter().find_map(|end| text.strip_suffix(end));
    let ended = ended.or(with_query.map(|(path, _)| path));
    let text = ended.unwrap_or(text);
    // What comes before the query is the path.
    let in_path = text.strip_prefix("^[^?]*").or(text.strip_prefix(r"^[^\?]*"));
    let is_of_path = in_path.is_some();
    let text = in_path.unwrap_or(text);
    let text = text.strip_prefix("^.*").or(text.strip_prefix(".*")).unwrap_or(text);
    let mut own = text;
    while let Some(rest) = own.strip_suffix(".*").filter(|rest| !rest.ends_with('\\')) {
        own = rest;
    }
    let (own, ends) = match (own.strip_suffix('$'), ended) {
        (Some(rest), None) if !rest.ends_with('\\') => (rest, true),
        _ => (own, false),
    };
    let (own, starts) = match own.strip_prefix('^') {
        Some(rest) => (rest, true),
        None => (own, false),
    };
    let (stays, has_dot) = (stays_in_part(own), has_dot(own));
    if own.is_empty()
        || !stays && (!is_loose || [r"\?", "[?", "?&", "&"].iter().any(|sign| own.contains(sign)))
    {
        return None;
    }
    let why = match (stays, has_dot) {
        (false, _) => APART,
        (true, true) => DOT,
        (true, false) => "",
    };
    let start = if starts { "^" } else { "" };
    let end = if ends || ended.is_some() { "$" } else { "" };
    let of_path = on("path", &format!("{start}{own}{end}"))?;
    // The end of the URL is the end of the path only without a query.
    let of_path = match (ends, with_query) {
        (true, _) => Cel::all(vec![of_path, Cel::one("query == ''")])?,
        (false, Some((_, query))) => {
            Cel::all(vec![of_path, on("query", &format!("^({query})?$"))?])?
        }
        (false, None) => of_path,
    };
    if starts || is_of_path {
        return Some((of_path, why));
    }
    let of_query = match (ended, with_query) {
        (Some(_), Some((_, query))) => on("query", &format!(r"{own}(\?{query})?$"))?,
        (Some(_), None) => on("query", &format!(r"{own}(\?|$)"))?,
        (None, _) => on("query", &format!("{own}{end}"))?,
    };
    Some((Cel::any(vec![of_path, of_query])?, why))
}

/// The part of `PATH(\?QUERY)?$` for the path, and the part for the query.
fn ended_by_query(text: &str) -> Option<(&str, &str)> {
    let (path, query) = text.strip_suffix(")?$")?.rsplit_once(r"(\?")?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "[]-_=+*.".contains(c);
    let is_any = query == ".*";
    (!is_any && !query.is_empty() && query.chars().all(is_plain)).then_some((path, query))
}

/// Whether an expression has a dot that is no literal character.
fn has_dot(pattern: &str) -> bool {
    signs(pattern).any(|(_, c, _)| c == '.')
}

/// Whether what matches this is inside the path or inside the query: no part of the expression
/// matches a question mark, and no anchor is inside.
fn stays_in_part(pattern: &str) -> bool {
    let mut chars = pattern.chars().peekable();
    let (mut in_class, mut after_atom) = (false, false);
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let Some(next) = chars.next() else { return false };
                // Classes of what is not a digit and so on, and the question mark itself.
                if matches!(next, 'D' | 'W' | 'S' | 'N' | 'X' | 'C' | '?') {
                    return false;
                }
            }
            '?' if in_class => return false,
            ']' if in_class => in_class = false,
            _ if in_class => {}
            '[' => {
                // A class of all but some signs has the question mark unless it is one of them.
                if chars.peek() == Some(&'^') {
                    chars.next();
                    let inner: String = chars.by_ref().take_while(|c| *c != ']').collect();
                    if !inner.contains('?') || inner.contains('\\') {
                        return false;
                    }
                } else {
                    in_class = true;
                }
            }
            '.' if matches!(chars.peek(), Some('*' | '+' | '?' | '{')) => return false,
            '^' | '$' => return false,
            // A quantifier, or the kind of a group.
            '?' if !after_atom => return false,
            _ => {}
        }
        after_atom = c != '|';
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let alternatives = url("^/a|cart$|[?&]b=", false).map(|one| one.0.text().to_owned());
        let wanted = "path.matches('^/a') || (path.matches('cart$') && query == '') || \
                      query.matches('cart$') || query.matches('(^|[?&])b=') || path.matches('&b=')";
        assert_eq!(alternatives.as_deref(), Some(wanted));
        let loose = url("/wp-.*.php", true).map(|(one, why)| (one.text().to_owned(), why));
        assert_eq!(
            loose,
            Some(("path.matches('/wp-.*.php') || query.matches('/wp-.*.php')".to_owned(), APART))
        );
        let of = |pattern: &str| url(pattern, false).map(|(one, _)| one.text().to_owned());
        for (pattern, wanted) in [
            ("^/wp-(admin|login)", "path.matches('^/wp-(admin|login)')"),
            (
                r"\.(mp4|zip)$",
                r"path.matches(r'\.(mp4|zip)$') && query == '' || query.matches(r'\.(mp4|zip)$')",
            ),
            (
                r"(?i)/x\.css(\?.*|)$",
                r"path.matches(r'(?i)/x\.css$') || query.matches(r'(?i)/x\.css(\?|$)')",
            ),
            ("[?&]preview=", "query.matches('(^|[?&])preview=') || path.matches('&preview=')"),
            (r"\?s=", r"query.matches(r'(^|\?)s=')"),
            (r"\?.*sig=([a-z]*)", "query.matches('sig=([a-z]*)')"),
            ("/cart/", "path.matches('/cart/') || query.matches('/cart/')"),
            ("^/a/.*", "path.matches('^/a/')"),
            (
                "^/(a|b)(/.*)?$",
                "path.matches('^/(a|b)/') || (path.matches('^/(a|b)$') && query == '')",
            ),
            (r"^[^?]*\.(7z|css)(\?.*)?$", r"path.matches(r'\.(7z|css)$')"),
            (r"^/[^?]+\.(css|js)(\?.*|)$", r"path.matches(r'^/[^?]+\.(css|js)$')"),
            (
                r"\.(css|js)(\?[a-z0-9]+)?$",
                concat!(
                    r"(path.matches(r'\.(css|js)$') && query.matches('^([a-z0-9]+)?$')) || ",
                    r"query.matches(r'\.(css|js)(\?[a-z0-9]+)?$')"
                ),
            ),
            ("cart", "path.matches('cart') || query.matches('cart')"),
        ] {
            let wanted = wanted.replace(" && query == '' ||", " && query == '') ||");
            let wanted = match wanted.contains("== '') ||") {
                true => format!("({wanted}"),
                false => wanted,
            };
            assert_eq!(of(pattern).as_deref(), Some(wanted.as_str()), "{pattern}");
        }
        for pattern in ["^/a.*b", "^/[^/]+/b", r"a\?b", "%20", "//", "^", "a$b", r"^/\S+x"] {
            assert_eq!(of(pattern), None, "{pattern}");
        }
    }
}
