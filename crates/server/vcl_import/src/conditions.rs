//! Conditions: whether they hold for a request, and the hosts, paths and methods that they name.

use std::collections::BTreeSet;

use super::lexer::Word;
use super::parser::{Expr, Kind, Program, Stmt};
use super::state::{State, request_field};
use imported::pattern::{host_of, literal, path_of};
use imported::route::Path;

/// Whether a condition holds. `None` means not known.
pub(crate) type Truth = Option<bool>;

/// The comparisons of a condition.
pub(crate) fn comparisons(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Or(all) | Expr::And(all) => all.iter().flat_map(comparisons).collect(),
        Expr::Not(inner) => comparisons(inner),
        Expr::Compare(..) | Expr::Is(_) | Expr::Call(..) | Expr::Unknown => vec![expr],
    }
}

pub(crate) fn mentions(expr: &Expr, name: &str) -> bool {
    comparisons(expr).iter().any(|one| match one {
        Expr::Compare(left, ..) | Expr::Is(left) | Expr::Call(left) => left == name,
        _ => false,
    })
}

/// Whether a condition looks only at the address by which a client came.
pub(crate) fn is_by_address(expr: &Expr) -> bool {
    comparisons(expr).iter().all(|one| match one {
        Expr::Compare(left, ..) | Expr::Is(left) => {
            matches!(left.as_str(), "req.http.host" | "req.http.x-forwarded-proto")
        }
        _ => false,
    })
}

/// Whether a condition holds only for responses that no client waits for.
pub(crate) fn is_background(expr: &Expr) -> bool {
    match expr {
        Expr::Or(all) => !all.is_empty() && all.iter().all(is_background),
        Expr::And(all) => all.iter().any(is_background),
        Expr::Is(name) => name == "bereq.is_bgfetch",
        Expr::Not(_) | Expr::Compare(..) | Expr::Call(_) | Expr::Unknown => false,
    }
}

/// The lowest status of a response for which a condition can hold.
pub(crate) fn status_min(expr: &Expr) -> u64 {
    match expr {
        Expr::Or(all) => all.iter().map(status_min).min().unwrap_or(0),
        Expr::And(all) => all.iter().map(status_min).max().unwrap_or(0),
        Expr::Compare(left, sign, Word::Name(number))
            if matches!(left.as_str(), "beresp.status" | "resp.status") =>
        {
            let number = number.parse::<u64>().unwrap_or(0);
            match *sign {
                "==" | ">=" => number,
                ">" => number.saturating_add(1),
                _ => 0,
            }
        }
        Expr::Not(_) | Expr::Compare(..) | Expr::Is(_) | Expr::Call(_) | Expr::Unknown => 0,
    }
}

pub(crate) fn truth(expr: &Expr, state: &mut State) -> Truth {
    match expr {
        Expr::Or(all) | Expr::And(all) => {
            // A true part decides `||`, and a false part decides `&&`.
            let decisive = matches!(expr, Expr::Or(_));
            let mut known = Some(!decisive);
            for one in all {
                match truth(one, state) {
                    Some(truth) if truth == decisive => return Some(truth),
                    Some(_) => {}
                    None => known = None,
                }
            }
            known
        }
        Expr::Not(inner) => truth(inner, state).map(|truth| !truth),
        Expr::Compare(left, sign, right) => compare(left, sign, right, state),
        Expr::Is(name) if name == "req.http.host" => Some(true),
        // A request is run once, from the beginning.
        Expr::Is(name) if RUNS.contains(&name.as_str()) => Some(false),
        Expr::Is(name) if name == "bereq.uncacheable" => Some(state.is_passed),
        // A substitution makes the field, even if nothing is left in it.
        Expr::Is(name) if state.filter.is_some() && request_field(name) == Some("cookie") => {
            Some(true)
        }
        Expr::Is(name) => {
            let name = request_field(name)?;
            match state.fixed(name) {
                _ if state.defaults.contains_key(name) => Some(true),
                Some(_) => Some(true),
                // A removed field is not set.
                None => state.lacks(name).then_some(false),
            }
        }
        Expr::Call(..) | Expr::Unknown => None,
    }
}

/// How often a request was begun again.
const RUNS: [&str; 2] = ["req.restarts", "bereq.retries"];

/// Expressions that no URL matches.
const NEVER: [&str; 5] = ["#", r"\#", "^http[s]?://", "^https?://", "^http://"];

/// Whether a comparison holds for no URL.
fn is_never(sign: &str, text: &str) -> bool {
    match sign {
        "~" | "!~" => {
            NEVER.contains(&text) || text.starts_with("^.*$/") && !text.contains(['|', '[', '\\'])
        }
        _ => !text.starts_with('/'),
    }
}

/// Compares zero with a number.
fn of_zero(sign: &str, number: u64) -> Truth {
    Some(match sign {
        "==" => number == 0,
        "!=" => number != 0,
        "<" => number > 0,
        "<=" => true,
        ">" => false,
        ">=" => number == 0,
        _ => return None,
    })
}

fn compare(left: &str, sign: &str, right: &Word, state: &mut State) -> Truth {
    if let (true, Word::Name(number)) = (RUNS.contains(&left), right) {
        return of_zero(sign, number.parse().ok()?);
    }
    let positive = matches!(sign, "==" | "~");
    let negative = matches!(sign, "!=" | "!~");
    if !positive && !negative {
        return None;
    }
    let is = match (left, right) {
        ("req.http.host" | "bereq.http.host", _) if state.vague.contains("host") => None,
        ("req.url" | "bereq.url", _) if state.vague.contains("req.url") => None,
        ("client.ip", Word::Name(list)) => {
            state.lists.insert(list.clone());
            state.asked.client_inside
        }
        ("req.method" | "bereq.method", Word::Text(text)) => match sign {
            "==" | "!=" => Some(*text == state.asked.method),
            _ => {
                let found = literal(text).filter(|found| found.whole)?;
                Some(found.texts.contains(&state.asked.method))
            }
        },
        ("req.http.host" | "bereq.http.host", Word::Text(text)) => {
            let hosts = hosts(sign, text)?;
            let own = state.asked.host.as_deref();
            Some(own.is_some_and(|own| hosts.iter().any(|host| is_host(own, host))))
        }
        // No request has a fragment, and one with a whole URL has its path here.
        ("req.url" | "bereq.url", Word::Text(text)) if is_never(sign, text) => Some(false),
        // The listener is in the clear.
        ("std.port", Word::Name(port)) => matches!(port.as_str(), "443" | "8443").then_some(false),
        ("req.url" | "bereq.url", Word::Text(text)) => {
            let paths = paths(sign, text)?;
            let each: Vec<Truth> =
                paths.iter().map(|path| is_path(path, &state.asked.path)).collect();
            match each.contains(&Some(true)) {
                true => Some(true),
                false if each.contains(&None) => None,
                false => Some(false),
            }
        }
        (name, Word::Text(text)) => of_field(request_field(name)?, sign, text, state),
        _ => None,
    };
    is.map(|is| is == positive)
}

/// Whether the value of a field that is not there, or is empty, is a text or matches an expression.
fn of_field(name: &str, sign: &str, text: &str, state: &State) -> Truth {
    if let Some(value) = state.fixed(name) {
        let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        return match sign {
            "==" | "!=" => Some(value == text),
            _ => is_plain.then(|| value.contains(text)),
        };
    }
    let (is_empty, is_absent) = (state.empty.contains(name), state.lacks(name));
    match sign {
        _ if !is_empty && !is_absent => None,
        // Versions of Varnish differ about a field that is not there.
        "==" | "!=" if text.is_empty() => is_empty.then_some(true),
        "==" | "!=" => Some(false),
        _ if is_blank(text) => Some(true),
        _ => (!can_be_empty(text)).then_some(false),
    }
}

/// Whether an expression matches only a text without a visible sign.
pub(super) fn is_blank(pattern: &str) -> bool {
    matches!(pattern, "" | "^$" | r"^\s*$" | "^ *$" | r"^[;\s]*$" | "^;? *$")
}

/// Longer expressions are not examined.
const PATTERN_BYTES_MAX: usize = 256;

/// Whether an expression may match an empty text. In doubt, it may.
fn can_be_empty(pattern: &str) -> bool {
    if pattern.len() > PATTERN_BYTES_MAX {
        return true;
    }
    let (mut depth, mut class, mut start, mut escaped) = (0_usize, false, 0, false);
    let (mut needs, mut in_count) = (false, false);
    for (at, c) in pattern.char_indices() {
        if in_count {
            in_count = c != '}';
            continue;
        }
        let after = pattern[at + c.len_utf8()..].chars().next();
        let is_needed = !matches!(after, Some('?' | '*' | '{'));
        match c {
            _ if escaped => {
                escaped = false;
                needs |= depth == 0 && is_needed && !matches!(c, 'b' | 'B' | 'A' | 'Z' | 'z');
            }
            '\\' => escaped = true,
            ']' if class => {
                class = false;
                needs |= depth == 0 && is_needed;
            }
            _ if class => {}
            '[' => class = true,
            '(' => {
                start = if depth == 0 { at + 1 } else { start };
                depth += 1;
            }
            ')' => {
                depth = depth.saturating_sub(1);
                let inner = &pattern[start..at];
                let inner = inner.strip_prefix("?:").unwrap_or(inner);
                let is_known = depth == 0 && is_needed && !inner.starts_with('?');
                needs |= is_known && !can_be_empty(inner);
            }
            '|' if depth == 0 => {
                return !needs || can_be_empty(&pattern[at + 1..]);
            }
            '{' => in_count = true,
            '^' | '$' | '?' | '*' | '+' | '}' => {}
            _ => needs |= depth == 0 && is_needed,
        }
    }
    !needs
}

/// Whether the host of a cell is the host of a condition, which can capture its first label.
fn is_host(own: &str, host: &str) -> bool {
    let after = |host: &'_ str| host.split_once('.').map(|(_, rest)| rest.to_owned());
    own == host || host.starts_with('{') && after(own) == after(host)
}

/// Whether the path of a cell fulfils a condition.
fn is_path(path: &Path, own: &Path) -> Truth {
    match (path, own) {
        (Path::Exact(path), _) => Some(*own == Path::Exact(path.clone())),
        (Path::Prefix(path) | Path::Start(path), _) if own.start().starts_with(path.as_str()) => {
            Some(true)
        }
        (Path::Pattern(_), _) if path == own => Some(true),
        // Requests for the path of the condition have another route.
        (Path::Prefix(_) | Path::Start(_), Path::Prefix(_) | Path::Start(_) | Path::Exact(_)) => {
            Some(false)
        }
        (Path::Pattern(_), _) if path.comes_before(own) => Some(false),
        (Path::Prefix(_) | Path::Start(_) | Path::Pattern(_), _) => {
            (!path.meets(own)).then_some(false)
        }
    }
}

/// The hosts of a comparison; `None`: not a few names.
fn hosts(sign: &str, text: &str) -> Option<Vec<String>> {
    if let Some(found) = host_of(text).filter(|_| matches!(sign, "~" | "!~")) {
        return Some(vec![found.text]);
    }
    let names = match sign {
        "==" | "!=" => vec![text.to_owned()],
        // Names of hosts have no case.
        _ => literal(text.strip_prefix("(?i)").unwrap_or(text)).filter(|found| found.whole)?.texts,
    };
    let plain = |name: &String| {
        !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
            && !name.starts_with('.')
            && !name.ends_with('.')
    };
    let names: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    names.iter().all(plain).then_some(names)
}

/// The paths of a comparison.
fn paths(sign: &str, text: &str) -> Option<Vec<Path>> {
    let (texts, whole) = match sign {
        "==" | "!=" => (vec![text.to_owned()], true),
        _ => match (literal(text), path_of(text)) {
            (Some(found), _) => (found.texts, found.whole),
            (None, Some((path @ Path::Pattern(_), _))) => return Some(vec![path]),
            _ => return None,
        },
    };
    let path = |text: &String| {
        let plain =
            text.starts_with('/') && !text.contains(['?', '#', ' ', '%', '{', '}', '*', '\\']);
        match whole {
            _ if !plain || text.contains("//") || text.contains("/.") => None,
            true => Some(Path::Exact(text.clone())),
            false => Some(Path::beginning(text)),
        }
    };
    texts.iter().map(path).collect()
}

/// What conditions name.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub(crate) hosts: BTreeSet<String>,
    pub(crate) paths: BTreeSet<Path>,
    pub(crate) methods: BTreeSet<String>,
}

/// The hosts, paths and methods that conditions name.
pub(crate) fn named(program: &Program) -> Named {
    let mut named = Named::default();
    let mut todo: Vec<&Stmt> = program.subs.iter().flat_map(|(_, body)| body).collect();
    while let Some(stmt) = todo.pop() {
        let Kind::If(arms) = &stmt.kind else { continue };
        todo.extend(arms.iter().flat_map(|(_, body)| body));
        let conditions = arms.iter().filter_map(|(condition, _)| condition.as_ref());
        for one in conditions.flat_map(comparisons) {
            let Expr::Compare(left, sign, Word::Text(text)) = one else { continue };
            match (left.as_str(), *sign) {
                ("req.http.host" | "bereq.http.host", sign) => {
                    named.hosts.extend(hosts(sign, text).unwrap_or_default());
                }
                ("req.url" | "bereq.url", sign) => {
                    named.paths.extend(paths(sign, text).unwrap_or_default());
                }
                ("req.method" | "bereq.method", "==" | "!=") => {
                    named.methods.insert(text.clone());
                }
                ("req.method" | "bereq.method", _) => {
                    let found = literal(text).map(|found| found.texts);
                    named.methods.extend(found.unwrap_or_default());
                }
                _ => {}
            }
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_that_match_nothing_at_all() {
        for pattern in ["session=", "(^|; ?)a=", "(a|b)", "a|b", "[ab]+", r"^\d", "(?:x)y?"] {
            assert!(!can_be_empty(pattern), "{pattern}");
        }
        for pattern in
            ["", "^$", "a*", "(a)?", "a|", "(a|)", "(?i)", "a{0,1}", "[ab]*", r"\b", "|a"]
        {
            assert!(can_be_empty(pattern), "{pattern}");
        }
    }
}
