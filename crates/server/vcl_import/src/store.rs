//! What a program says about keys, lifetimes, bypasses, codings and rates.

use std::time::Duration;

use super::conditions::truth;
use super::lexer::{Word, call};
use super::parser::Expr;
use super::state::State;
use imported::pattern::{cookies, parameters, types};
use imported::route::{Lifetime, WITHOUT_LIFETIME, add, all_statuses};

const WIDE: &str = "every parameter that our patterns match is left out of the key";

const SLASHES: &str = "paths are passed on with the slashes that they have";

/// A change of the URL that changes only the query. Returns how ours differs, or `None` for another
/// change.
pub(crate) fn query(value: &[Word], state: &mut State) -> Option<&'static str> {
    let keys = &mut state.keys;
    let (name, arguments) = call(value)?;
    match (name, &arguments[..]) {
        ("std.querysort", [Word::Name(url)]) if url == "req.url" && keys.query.is_none() => {
            keys.query = Some("sort");
            Some("")
        }
        (name, [Word::Name(url), Word::Text(from), Word::Text(to)])
            if name.starts_with("regsub") && url == "req.url" =>
        {
            match (from.as_str(), to.as_str()) {
                (r"\?.*" | r"\?.*$", "") if keys.drop.is_empty() => keys.query = Some("none"),
                // The remainder of a query from which parameters were taken.
                ("&&+" | "&+" | "&&", "&")
                | (r"\?&" | r"(\?&)" | r"\?&+", "?")
                | (
                    r"[?&]+$" | r"[?|&]+$" | r"\?$" | r"(\?|&)$" | "&$" | r"\?&?$" | r"(\?&|\?|&)$"
                    | r"(\?|\?&|&)$" | r"(\?&?)$",
                    "",
                ) => {}
                // No request has a fragment, and one with a whole URL has its path here.
                (r"\#.*$" | "#.*$" | r"\#.*" | "#.*", "") => {}
                (r"^http[s]?://" | "^https?://" | r"^https?:\/\/", "") => {}
                ("//" | "//+" | "/+", "/") => return Some(SLASHES),
                (from, "" | "?" | r"\1" | "&") if keys.query != Some("none") => {
                    // Some programs have a statement for each of the signs before a parameter.
                    let sign = match from.chars().next() {
                        Some('&') => Some('&'),
                        _ if from.starts_with(r"\?") => Some('?'),
                        _ => None,
                    };
                    for name in parameters(from)? {
                        let other = sign.map(|sign| if sign == '&' { '?' } else { '&' });
                        let is_whole =
                            other.is_none_or(|other| state.halves.contains(&(name.clone(), other)));
                        match is_whole {
                            true => add(&mut keys.drop, name),
                            false => drop(state.halves.insert((name, sign.unwrap_or_default()))),
                        }
                    }
                    let is_wide =
                        name == "regsub" || from.contains("[a-z]+") || from.contains(r"\w+");
                    return Some(if is_wide { WIDE } else { "" });
                }
                _ => return None,
            }
            Some("")
        }
        _ => None,
    }
}

/// The cookie whose value an expression is: `cookie.get("a")`, or a substitution in the field. A
/// text may come before it.
pub(crate) fn cookie(value: &[Word]) -> Option<String> {
    let value = match value {
        [Word::Text(_), Word::Sign("+"), rest @ ..] => rest,
        all => all,
    };
    let (name, arguments) = call(value)?;
    match arguments[..] {
        [Word::Text(cookie)] if name == "cookie.get" => Some(cookie.clone()),
        [Word::Name(field), Word::Text(pattern), Word::Text(value)]
            if name == "regsub"
                && field.eq_ignore_ascii_case("req.http.cookie")
                && value == r"\1" =>
        {
            cookie_of(pattern)
        }
        _ => None,
    }
}

/// The cookie whose value is the first group of an expression that matches the whole field.
fn cookie_of(pattern: &str) -> Option<String> {
    let starts = ["^.*?", "^.*", ".*?", ".*", r"^.*?(?:^|;\s*)"];
    let ends = [";*.*$", ";?.*$", ".*$", ";*.*", ".*", "(;.*)?$", ";.*$"];
    let rest = starts.iter().find_map(|start| pattern.strip_prefix(start))?;
    let (name, rest) = rest.split_once('=')?;
    let rest = ["([^;]*)", "([^;]+)"].iter().find_map(|value| rest.strip_prefix(value))?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
    let is_name = !name.is_empty() && name.bytes().all(plain);
    (is_name && ends.contains(&rest)).then(|| name.to_owned())
}

/// The part of a condition that is unknown, if it is the only one.
pub(crate) fn residue<'e>(expr: &'e Expr, state: &mut State) -> Option<&'e Expr> {
    match expr {
        Expr::Or(all) | Expr::And(all) => {
            let mut unknown = all.iter().filter(|one| truth(one, state).is_none());
            let first = unknown.next()?;
            if unknown.next().is_some() {
                return None;
            }
            residue(first, state)
        }
        Expr::Not(_) => None,
        leaf => Some(leaf),
    }
}

/// The condition holds if the request has one of these cookies. Also returns whether the patterns
/// are exact.
pub(crate) fn bypass(expr: &Expr) -> Option<(Vec<String>, bool)> {
    match expr {
        Expr::Is(name) if name == "req.http.cookie" => Some((vec!["*".to_owned()], true)),
        Expr::Compare(left, "~", Word::Text(pattern)) if left == "req.http.cookie" => {
            cookies(pattern)
        }
        _ => None,
    }
}

/// The responses that a condition is for: statuses and types.
pub(crate) fn responses(expr: &Expr) -> Option<Lifetime> {
    let of_status = |status| Lifetime { status, ..Lifetime::default() };
    match expr {
        Expr::Or(all) => {
            let all: Vec<Lifetime> = all.iter().map(responses).collect::<Option<_>>()?;
            let same = all.iter().all(|one| one.types.is_empty() == all[0].types.is_empty());
            let is_one = all.len() == 1
                || all.iter().all(|one| one.types.is_empty() || one.status.len() == 4);
            (same && is_one).then(|| {
                let mut joined = Lifetime::default();
                for one in all {
                    one.status.into_iter().for_each(|status| add(&mut joined.status, status));
                    one.types.into_iter().for_each(|kind| add(&mut joined.types, kind));
                }
                joined
            })
        }
        Expr::And(all) => match &all[..] {
            [one] => responses(one),
            [
                Expr::Compare(one, ">=", Word::Name(from)),
                Expr::Compare(other, "<", Word::Name(to)),
            ] if one == "beresp.status" && other == one => {
                let (from, to) = (from.parse::<u16>().ok()?, to.parse::<u16>().ok()?);
                let whole = from % 100 == 0 && to == from + 100 && (200..600).contains(&from);
                whole.then(|| of_status(vec![format!("{}xx", from / 100)]))
            }
            _ => None,
        },
        Expr::Compare(left, sign, Word::Name(number)) if left == "beresp.status" => {
            let number = number.parse::<u16>().ok()?;
            match (*sign, number) {
                ("==", one) if WITHOUT_LIFETIME.contains(&one) => None,
                ("==", 200..=599) => Some(of_status(vec![number.to_string()])),
                (">=", 200 | 300 | 400 | 500) | (">", 199 | 299 | 399 | 499) => {
                    let first = number.div_ceil(100);
                    Some(of_status((first..=5).map(|class| format!("{class}xx")).collect()))
                }
                _ => None,
            }
        }
        Expr::Compare(left, "~", Word::Text(pattern)) if left == "beresp.http.content-type" => {
            Some(Lifetime { status: all_statuses(), types: types(pattern)?, ..Lifetime::default() })
        }
        _ => None,
    }
}

/// Sets the part of a lifetime that a statement of `vcl_backend_response` sets. Returns how ours
/// differs, or `None` if the statement sets something else.
pub(crate) fn set_of(to: &str, value: &[Word], one: &mut Lifetime) -> Option<&'static str> {
    if to == "beresp.uncacheable" && *value == [Word::Name("true".to_owned())] {
        (one.ttl, one.overrule) = (Some(Duration::ZERO), true);
        return Some("they are validated at each use");
    }
    let [Word::Name(time)] = value else { return None };
    let time = duration(time)?.min(YEAR);
    match to {
        "beresp.ttl" => {
            (one.ttl, one.overrule) = (Some(time), true);
            Some("no-store and private are respected, and a response with Set-Cookie has its own")
        }
        "beresp.grace" => {
            (one.grace, one.error_grace) = (Some(time), Some(time));
            Some("it is for as long as the origin's directives do not forbid it")
        }
        "beresp.keep" => Some("a stale response is kept until it is evicted"),
        _ => None,
    }
}

/// The longest lifetime.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// A duration. VCL has years, too.
fn duration(text: &str) -> Option<Duration> {
    match text.strip_suffix('y') {
        Some(years) => Some(YEAR.saturating_mul(years.parse().ok()?)),
        None => units::duration(text).ok(),
    }
}

/// Whether no response fulfils both conditions.
pub(crate) fn are_apart(one: &Lifetime, other: &Lifetime) -> bool {
    let meets = |a: &String, b: &String| {
        a == b || a[..1] == b[..1] && (a.ends_with("xx") || b.ends_with("xx"))
    };
    !one.status.iter().any(|a| other.status.iter().any(|b| meets(a, b)))
}
