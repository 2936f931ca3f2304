//! Conditions that are not known for a cell, in the language of our file.
//!
//! A part whose result is known for the cell is left out. A field counts only if the program has
//! not changed it before. A URL of VCL is the path together with the query, and ours are two.

use super::conditions::truth;
use super::lexer::Word;
use super::parser::{Expr, List};
use super::state::State;
use crate::cel::{self, Cel};

/// The difference of a pattern that looks for a parameter.
const PARAMETER: &str = "the parameter is looked for in the query, and not in the path";

/// The difference of a pattern with a dot.
const DOT: &str = "a dot of the expression does not stand for the sign before a query";

/// A condition of our file, and how it differs.
pub(crate) type Translated = (Cel, &'static str);

/// Translates a condition whose result is not known.
pub(crate) fn condition(expr: &Expr, state: &mut State, lists: &[List]) -> Option<Translated> {
    match expr {
        Expr::Or(all) | Expr::And(all) => {
            let (mut parts, mut why) = (Vec::new(), "");
            for one in all {
                if truth(one, state).is_none() {
                    let (part, differs) = condition(one, state, lists)?;
                    parts.push(part);
                    why = if differs.is_empty() { why } else { differs };
                }
            }
            let joined =
                if matches!(expr, Expr::Or(_)) { Cel::any(parts) } else { Cel::all(parts) };
            Some((joined?, why))
        }
        Expr::Not(inner) => condition(inner, state, lists).map(|(one, why)| (one.not(), why)),
        Expr::Is(name) => Some((cel::has_field(own_field(name, state)?)?, "")),
        Expr::Compare(left, sign, right) => {
            let (found, why) = compare(left, sign.trim_start_matches('!'), right, state, lists)?;
            let is_positive = matches!(*sign, "==" | "~");
            Some((if is_positive { found } else { found.not() }, why))
        }
        Expr::Call(_) | Expr::Unknown => None,
    }
}

/// A field of the request as the client sent it. Varnish adds the client to X-Forwarded-For.
fn own_field<'n>(name: &'n str, state: &State) -> Option<&'n str> {
    let name = name.strip_prefix("req.http.")?;
    let is_own = !state.vague.contains(name) && !state.request.contains_key(name);
    (is_own && !matches!(name, "x-forwarded-for" | "host")).then_some(name)
}

fn compare(
    left: &str,
    sign: &str,
    right: &Word,
    state: &State,
    lists: &[List],
) -> Option<Translated> {
    let is_text = matches!(sign, "~" | "==" | "=");
    let exact = |found: Option<Cel>| found.map(|found| (found, ""));
    match (left, right) {
        ("client.ip", Word::Name(name)) if sign == "~" => {
            lists.iter().find(|list| list.name == *name).and_then(networks)?;
            exact(Some(Cel::one(format!("client.within({})", list_name(name)))))
        }
        ("req.method", Word::Text(text)) if sign == "~" => exact(cel::matches("method", text)),
        ("req.url", Word::Text(text)) if sign == "~" && !state.vague.contains("req.url") => {
            url(text)
        }
        ("req.http.host", Word::Text(text)) if sign == "~" && !state.vague.contains("host") => {
            let text = text.strip_prefix("(?i)").unwrap_or(text);
            exact(cel::matches("host", &format!("(?i){text}")))
        }
        // A comparison with nothing depends on whether the field is there.
        (name, Word::Text(text)) if is_text && !text.is_empty() => {
            let field = cel::field(own_field(name, state)?)?;
            exact(if sign == "~" { cel::matches(&field, text) } else { cel::is(&field, text) })
        }
        _ => None,
    }
}

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

/// The starts of expressions that look for a parameter, and the start of a parameter in our query.
const PARAMETER_STARTS: [(&str, &str); 7] = [
    ("[?&]", "(^|&)"),
    ("[&?]", "(^|&)"),
    (r"[\?&]", "(^|&)"),
    (r"(\?|&)", "(^|&)"),
    (r"(?:\?|&)", "(^|&)"),
    (r"(\?|\&)", "(^|&)"),
    (r"\?", "^"),
];

/// An expression for the path with the query. `None`: it depends on where the query begins in a
/// way that two conditions cannot say.
fn url(pattern: &str) -> Option<Translated> {
    let (case, text) = match pattern.strip_prefix("(?i)") {
        Some(rest) => ("(?i)", rest),
        None => ("", pattern),
    };
    // The path of a condition is decoded, and its slashes are merged.
    let bare = text.replace('\\', "");
    let is_odd = [r"/\./", r"/\.\./"].iter().any(|dots| text.contains(dots));
    if is_odd || bare.contains(['%', '#']) || bare.contains("//") {
        return None;
    }
    let on = |value: &str, text: &str| cel::matches(value, &format!("{case}{text}"));
    if let Some((rest, start)) =
        PARAMETER_STARTS.iter().find_map(|(from, to)| Some((text.strip_prefix(from)?, to)))
    {
        let is_plain = !rest.contains('?') && !rest.contains('|') && !rest.starts_with('*');
        return is_plain
            .then(|| on("query", &format!("{start}{rest}")))?
            .map(|one| (one, PARAMETER));
    }
    let ended = PATH_ENDS.iter().find_map(|end| text.strip_suffix(end));
    let text = ended.unwrap_or(text);
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
    if own.is_empty() || !stays_in_part(own) {
        return None;
    }
    let why = if has_dot(own) { DOT } else { "" };
    let start = if starts { "^" } else { "" };
    let end = if ends || ended.is_some() { "$" } else { "" };
    let of_path = on("path", &format!("{start}{own}{end}"))?;
    // The end of the URL is the end of the path only without a query.
    let of_path = match ends {
        true => Cel::all(vec![of_path, Cel::one("query == ''")])?,
        false => of_path,
    };
    // A query has no slash as a rule, and an expression with one is about paths.
    if starts || own.starts_with('/') {
        return Some((of_path, why));
    }
    let of_query = match ended {
        Some(_) => on("query", &format!(r"{own}(\?|$)"))?,
        None => on("query", &format!("{own}{end}"))?,
    };
    Some((Cel::any(vec![of_path, of_query])?, why))
}

/// Whether an expression has a dot that is no literal character.
fn has_dot(pattern: &str) -> bool {
    let (mut escaped, mut in_class) = (false, false);
    pattern.chars().any(|c| {
        let is_dot = c == '.' && !escaped && !in_class;
        in_class = !escaped && (c == '[' || in_class && c != ']') || escaped && in_class;
        escaped = c == '\\' && !escaped;
        is_dot
    })
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
                if chars.peek() == Some(&'^') {
                    return false;
                }
                in_class = true;
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

/// The name of an access list in our file.
pub(crate) fn list_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let name: String = name.chars().map(plain).collect();
    format!("acl_{name}")
}

/// The networks of an access list. `None`: an entry is no network, or is an exception.
pub(crate) fn networks(list: &List) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for (negated, entry) in &list.entries {
        match entry.as_str() {
            _ if *negated => return None,
            "localhost" => all.extend(["127.0.0.0/8".to_owned(), "::1/128".to_owned()]),
            entry if super::is_network(entry) => all.push(entry.to_owned()),
            _ => return None,
        }
    }
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let of = |pattern: &str| url(pattern).map(|(one, _)| one.text().to_owned());
        for (pattern, wanted) in [
            ("^/wp-(admin|login)", "path.matches('^/wp-(admin|login)')"),
            (
                r"\.(mp4|zip)$",
                r"path.matches(r'\.(mp4|zip)$') && query == '' || query.matches(r'\.(mp4|zip)$')",
            ),
            (r"(?i)/x\.css(\?.*|)$", r"path.matches(r'(?i)/x\.css$')"),
            ("[?&]preview=", "query.matches('(^|&)preview=')"),
            (r"\?s=", "query.matches('^s=')"),
            ("/cart/", "path.matches('/cart/')"),
            ("^/a/.*", "path.matches('^/a/')"),
            ("cart", "path.matches('cart') || query.matches('cart')"),
        ] {
            let wanted = wanted.replace(" && query == '' ||", " && query == '') ||");
            let wanted = match wanted.contains("== '')") {
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
