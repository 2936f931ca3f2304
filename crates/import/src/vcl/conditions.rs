//! Conditions: whether they hold for a request, and the hosts, paths and methods that they name.

use std::collections::BTreeSet;

use super::eval::{Path, Request, State, request_field};
use super::lexer::Word;
use super::parser::{Expr, Kind, Program, Stmt};
use super::pattern::literal;

/// Whether a condition holds; `None`: not known.
pub(crate) type Truth = Option<bool>;

/// How many comparisons a condition has.
pub(crate) fn comparisons(expr: &Expr) -> usize {
    match expr {
        Expr::Or(all) | Expr::And(all) => all.iter().map(comparisons).sum(),
        Expr::Not(inner) => comparisons(inner),
        Expr::Compare(..) | Expr::Is(_) | Expr::Unknown => 1,
    }
}

pub(crate) fn mentions(expr: &Expr, name: &str) -> bool {
    match expr {
        Expr::Or(all) | Expr::And(all) => all.iter().any(|one| mentions(one, name)),
        Expr::Not(inner) => mentions(inner, name),
        Expr::Compare(left, ..) | Expr::Is(left) => left == name,
        Expr::Unknown => false,
    }
}

pub(crate) fn truth(expr: &Expr, request: &Request, state: &mut State) -> Truth {
    match expr {
        Expr::Or(all) => {
            let mut known = Some(false);
            for one in all {
                match truth(one, request, state) {
                    Some(true) => return Some(true),
                    Some(false) => {}
                    None => known = None,
                }
            }
            known
        }
        Expr::And(all) => {
            let mut known = Some(true);
            for one in all {
                match truth(one, request, state) {
                    Some(false) => return Some(false),
                    Some(true) => {}
                    None => known = None,
                }
            }
            known
        }
        Expr::Not(inner) => truth(inner, request, state).map(|truth| !truth),
        Expr::Compare(left, sign, right) => compare(left, sign, right, request, state),
        Expr::Is(name) if name == "req.http.host" => Some(true),
        // A field that was removed is not there.
        Expr::Is(name) => state.lacks(request_field(name)?).then_some(false),
        Expr::Unknown => None,
    }
}

fn compare(left: &str, sign: &str, right: &Word, request: &Request, state: &mut State) -> Truth {
    let positive = matches!(sign, "==" | "~");
    let negative = matches!(sign, "!=" | "!~");
    if !positive && !negative {
        return None;
    }
    let is = match (left, right) {
        ("req.http.host" | "bereq.http.host", _) if state.vague.contains("host") => None,
        ("req.url" | "bereq.url", _) if state.vague.contains("req.url") => None,
        ("req.restarts" | "bereq.retries", Word::Name(zero)) if zero == "0" => Some(true),
        ("client.ip", Word::Name(list)) => {
            state.lists.insert(list.clone());
            request.client_inside
        }
        ("req.method" | "bereq.method", Word::Text(text)) => match sign {
            "==" | "!=" => Some(*text == request.method),
            _ => {
                let found = literal(text).filter(|found| found.whole)?;
                Some(found.texts.contains(&request.method))
            }
        },
        ("req.http.host" | "bereq.http.host", Word::Text(text)) => {
            let hosts = hosts(sign, text)?;
            Some(request.host.as_ref().is_some_and(|host| hosts.contains(host)))
        }
        ("req.url" | "bereq.url", Word::Text(text)) => {
            let paths = paths(sign, text)?;
            Some(paths.iter().any(|path| match (path, &request.path) {
                (Path::Exact(path), Path::Exact(own)) => path == own,
                (Path::Exact(_), Path::Prefix(_)) => false,
                (Path::Prefix(path), Path::Exact(own) | Path::Prefix(own)) => {
                    own.starts_with(path.as_str())
                }
            }))
        }
        _ => None,
    };
    is.map(|is| is == positive)
}

/// The hosts of a comparison; `None`: not a few names.
fn hosts(sign: &str, text: &str) -> Option<Vec<String>> {
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

/// The paths of a comparison. A prefix must end with a slash, because those of routes are whole
/// segments.
fn paths(sign: &str, text: &str) -> Option<Vec<Path>> {
    let (texts, whole) = match sign {
        "==" | "!=" => (vec![text.to_owned()], true),
        _ => {
            let found = literal(text)?;
            (found.texts, found.whole)
        }
    };
    let path = |text: &String| {
        let plain = text.starts_with('/') && !text.contains(['?', '#', ' ', '%']);
        match whole {
            _ if !plain || text.contains("//") || text.contains("/.") => None,
            true => Some(Path::Exact(text.clone())),
            false if text.ends_with('/') => Some(Path::Prefix(text.clone())),
            false => None,
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
    let mut conditions: Vec<&Expr> = Vec::new();
    while let Some(stmt) = todo.pop() {
        if let Kind::If(arms) = &stmt.kind {
            conditions.extend(arms.iter().filter_map(|(condition, _)| condition.as_ref()));
            todo.extend(arms.iter().flat_map(|(_, body)| body));
        }
    }
    while let Some(condition) = conditions.pop() {
        match condition {
            Expr::Or(all) | Expr::And(all) => conditions.extend(all),
            Expr::Not(inner) => conditions.push(inner),
            Expr::Compare(left, sign, Word::Text(text)) => match left.as_str() {
                "req.http.host" | "bereq.http.host" => {
                    named.hosts.extend(hosts(sign, text).unwrap_or_default());
                }
                "req.url" | "bereq.url" => {
                    named.paths.extend(paths(sign, text).unwrap_or_default());
                }
                "req.method" | "bereq.method" if matches!(*sign, "==" | "!=") => {
                    named.methods.insert(text.clone());
                }
                "req.method" | "bereq.method" => {
                    let found = literal(text).map(|found| found.texts);
                    named.methods.extend(found.unwrap_or_default());
                }
                _ => {}
            },
            Expr::Compare(..) | Expr::Is(_) | Expr::Unknown => {}
        }
    }
    named
}
