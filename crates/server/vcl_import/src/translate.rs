//! Conditions that are not known for a cell, in the language of our file.
//!
//! A part whose result is known for the cell is left out. A field counts only if the program has
//! not changed it before. See [`imported::url`] for URLs.

use super::conditions::{is_blank, truth};
use super::filters::Filter;
use super::lexer::Word;
use super::parser::{Expr, List};
use super::state::{State, request_field};
use imported::cel::{self, Cel, PARTS_MAX};
use imported::url::url;

/// A condition of our file, and how it differs.
pub(crate) type Translated = (Cel, &'static str);

/// Translates a condition whose result is not known.
///
/// `is_loose`: it keeps no request out, so it may differ for URLs with a part of the pattern in the
/// query.
pub(crate) fn condition(
    expr: &Expr,
    state: &mut State,
    lists: &[List],
    is_loose: bool,
) -> Option<Translated> {
    match expr {
        Expr::Or(all) | Expr::And(all) if all.len() > PARTS_MAX => None,
        Expr::Or(all) | Expr::And(all) => {
            let (mut parts, mut why) = (Vec::new(), "");
            for one in all {
                if truth(one, state).is_none() {
                    let (part, differs) = condition(one, state, lists, is_loose)?;
                    parts.push(part);
                    why = if differs.is_empty() { why } else { differs };
                }
            }
            let joined =
                if matches!(expr, Expr::Or(_)) { Cel::any(parts) } else { Cel::all(parts) };
            Some((joined?, why))
        }
        Expr::Not(inner) => {
            condition(inner, state, lists, is_loose).map(|(one, why)| (one.negated(), why))
        }
        Expr::Is(name) => Some((cel::has_field(own_field(name, state)?)?, "")),
        Expr::Compare(left, sign, right) => {
            let (found, why) =
                compare(left, sign.trim_start_matches('!'), right, state, (lists, is_loose))?;
            let is_positive = matches!(*sign, "==" | "~");
            Some((if is_positive { found } else { found.negated() }, why))
        }
        Expr::Call(_) | Expr::Unknown => None,
    }
}

/// A field of the request as the client sent it. Varnish adds the client to X-Forwarded-For.
fn own_field<'n>(name: &'n str, state: &State) -> Option<&'n str> {
    let name = request_field(name)?;
    (state.is_own(name) && !matches!(name, "x-forwarded-for" | "host")).then_some(name)
}

/// The difference of a condition on cookies of which some were taken out before.
const TAKEN_OUT: &str =
    "its condition is written, and cookies that were taken out before count, too";

fn compare(
    left: &str,
    sign: &str,
    right: &Word,
    state: &State,
    (lists, is_loose): (&[List], bool),
) -> Option<Translated> {
    let is_text = matches!(sign, "~" | "==" | "=");
    if !is_text && left != "client.ip" {
        return None;
    }
    let exact = |found: Option<Cel>| found.map(|found| (found, ""));
    match (left, right) {
        ("client.ip", Word::Name(name)) if sign == "~" => {
            lists.iter().find(|list| list.name == *name).and_then(networks)?;
            exact(Some(Cel::one(format!("client.within({})", list_name(name)))))
        }
        ("req.method" | "bereq.method", Word::Text(text)) => {
            exact(if sign == "~" { cel::matches("method", text) } else { cel::is("method", text) })
        }
        ("req.url" | "bereq.url", Word::Text(text))
            if sign == "~" && !state.vague.contains("req.url") =>
        {
            of_url(text, is_loose, state)
        }
        ("req.http.host" | "bereq.http.host", Word::Text(text))
            if sign == "~" && !state.vague.contains("host") =>
        {
            let text = text.strip_prefix("(?i)").unwrap_or(text);
            exact(cel::matches("host", &format!("(?i){text}")))
        }
        ("req.http.host" | "bereq.http.host", Word::Text(text))
            if !state.vague.contains("host") =>
        {
            exact(cel::is("host", &text.to_ascii_lowercase()))
        }
        // Nothing is left of the cookies.
        ("req.http.cookie" | "bereq.http.cookie", Word::Text(text))
            if is_text && is_blank(text) =>
        {
            own_field(left, state)?;
            let none = Filter::Without(Vec::new());
            exact(state.filter.as_ref().unwrap_or(&none).leaves_some().map(Cel::negated))
        }
        ("req.http.cookie" | "bereq.http.cookie", Word::Text(text))
            if is_text && state.filter.is_some() =>
        {
            own_field(left, state)?;
            let field = cel::field("cookie")?;
            let found =
                if sign == "~" { cel::matches(&field, text) } else { cel::is(&field, text) };
            found.map(|found| (found, TAKEN_OUT))
        }
        // A comparison with nothing depends on whether the field is there.
        (name, Word::Text(text)) if is_text && !text.is_empty() => {
            let field = cel::field(own_field(name, state)?)?;
            exact(if sign == "~" { cel::matches(&field, text) } else { cel::is(&field, text) })
        }
        _ => None,
    }
}

/// An expression for the URL, of which the program may have removed the query, or parameters.
fn of_url(text: &str, is_loose: bool, state: &State) -> Option<Translated> {
    let asks_for_query = ["?", "&"].iter().any(|sign| text.contains(sign));
    if state.keys.query == Some("none") {
        return match asks_for_query {
            true => None,
            false => cel::matches("path", text).map(|found| (found, "")),
        };
    }
    // The end of the URL may be another one now.
    match state.keys.drop.is_empty() || !text.contains('$') {
        true => url(text, is_loose),
        false => None,
    }
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
