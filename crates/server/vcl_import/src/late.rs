//! Branches that are understood as a whole, whatever their conditions are.

use super::Run;
use super::conditions::{comparisons, truth};
use super::eval::{OF_CONNECTION, is_fixed_text, is_negated};
use super::lexer::Word;
use super::parser::{Arm, Expr, Kind, Stmt};
use super::state::{PRIVATE, State, request_field};
use super::store;
use imported::fields::is_free;
use imported::route::has_value;
use imported::table::Becomes::{self, Carried, Different, Nothing};

const GRACE: &str = "a stale response is used for the time that `grace` says, and whether the \
                     servers are well is seen by their checks";
const CODINGS: &str = "a stored response is sent in a coding that the client accepts";
const CLEANED: &str = "it is done for all URLs";
const ALL_KEYS: &str = "it is part of the key of all requests";
const FORWARDED: &str = "X-Forwarded-For is sent by upstream.forwarded";

impl Run<'_> {
    /// What a branch becomes that does one simple thing. `None`: it does something else.
    pub(super) fn simple(&self, arms: &[Arm], state: &mut State) -> Option<Becomes> {
        if state.in_doubt {
            return None;
        }
        if !self.is_late {
            if let Some((name, text)) = default(arms, state) {
                state.defaults.insert(name, text);
                return Some(Carried);
            }
            return if only_sets(arms, "accept-encoding") {
                Some(Nothing(CODINGS))
            } else if self.forwards && only_sets(arms, "x-forwarded-for") {
                Some(Different(FORWARDED))
            } else {
                cleans(arms, state).then_some(Different(CLEANED))
            };
        }
        if ["connection", "upgrade"].iter().any(|field| only_sets(arms, field)) {
            return Some(Nothing(OF_CONNECTION));
        }
        let mut is_unknown =
            |one: &Arm| one.0.as_ref().is_none_or(|one| truth(one, state).is_none());
        let is_unknown = self.in_sub == "vcl_hash" && arms.iter().all(&mut is_unknown);
        (is_unknown && self.hashes(arms, state)).then_some(Different(ALL_KEYS))
    }

    /// Whether a branch only adds to the key what the key can have. Then the key of all requests
    /// has it.
    fn hashes(&self, arms: &[Arm], state: &mut State) -> bool {
        let before = state.keys.clone();
        let all = all_in(arms);
        let mut adds = |stmt: &Stmt| match &stmt.kind {
            Kind::Other(name, words) => {
                name == "hash_data" && !is_fixed_text(words) && self.hashed(words, state)
            }
            _ => false,
        };
        let is_done = match arms {
            // The text is for requests without the cookie whose value is in the key otherwise.
            [(Some(condition), first), (None, rest)] if is_text(rest) => {
                let is_added = !first.is_empty() && first.iter().all(&mut adds);
                let asks = |name: &String| match comparisons(condition)[..] {
                    [Expr::Compare(_, "~", Word::Text(text))] => text.contains(name.as_str()),
                    _ => false,
                };
                is_added && state.keys.cookies.iter().any(asks)
            }
            _ => !all.is_empty() && all.into_iter().all(&mut adds),
        };
        if !is_done {
            state.keys = before;
        }
        is_done
    }

    /// Whether `vcl_hit` decides only whether a stale response is used. Writes the notes.
    pub(super) fn only_grace(&mut self) -> bool {
        let Some(body) = self.program.sub("vcl_hit") else { return false };
        let ends = body.iter().all(|stmt| is_of_grace(stmt, false));
        if ends {
            for stmt in body {
                let is_plain = matches!(&stmt.kind, Kind::Return(words) if is_deliver(words));
                let becomes = if is_plain { Carried } else { Different(GRACE) };
                self.mark(stmt, &becomes);
            }
        }
        ends
    }
}

/// `if (!req.http.X) { set req.http.X = "TEXT"; }`: the field and its text.
fn default(arms: &[Arm], state: &mut State) -> Option<(String, String)> {
    let [(Some(condition), body)] = arms else { return None };
    let [Expr::Is(name)] = comparisons(condition)[..] else { return None };
    let name = request_field(name)?;
    let asks = is_not(condition) && truth(condition, state).is_none();
    let may_be_set = is_free(name) && !PRIVATE.contains(&name);
    if !asks || !may_be_set || !state.is_own(name) || name == "x-forwarded-for" {
        return None;
    }
    let mut body = body;
    loop {
        let [stmt] = &body[..] else { return None };
        match &stmt.kind {
            Kind::Set(to, value) if request_field(to) == Some(name) => {
                let [Word::Text(text)] = &value[..] else { return None };
                let fits = !text.is_empty() && !has_value(text);
                return fits.then(|| (name.to_owned(), text.clone()));
            }
            Kind::If(arms) => {
                let mut taken = None;
                for (condition, inner) in arms {
                    if condition.as_ref().map_or(Some(true), |one| truth(one, state))? {
                        taken = Some(inner);
                        break;
                    }
                }
                body = taken?;
            }
            _ => return None,
        }
    }
}

/// Whether a condition is one negation of one name.
fn is_not(expr: &Expr) -> bool {
    fn bare(expr: &Expr) -> &Expr {
        match expr {
            Expr::Or(all) | Expr::And(all) if all.len() == 1 => bare(&all[0]),
            other => other,
        }
    }
    matches!(bare(expr), Expr::Not(inner) if matches!(bare(inner), Expr::Is(_)))
}

/// All statements in the arms, with those of branches inside.
fn all_in(arms: &[Arm]) -> Vec<&Stmt> {
    let mut all: Vec<&Stmt> = Vec::new();
    let mut todo: Vec<&Stmt> = arms.iter().flat_map(|(_, body)| body).collect();
    while let Some(stmt) = todo.pop() {
        match &stmt.kind {
            Kind::If(arms) => todo.extend(arms.iter().flat_map(|(_, body)| body)),
            _ => all.push(stmt),
        }
    }
    all
}

/// Whether the arms do nothing but set or remove a field of the request.
fn only_sets(arms: &[Arm], field: &str) -> bool {
    let all = all_in(arms);
    !all.is_empty()
        && all.iter().all(|stmt| match &stmt.kind {
            Kind::Set(to, _) => request_field(to) == Some(field),
            Kind::Unset(what) => request_field(what) == Some(field),
            _ => false,
        })
}

/// Whether a branch only cleans the queries of some URLs. Then the queries of all are cleaned.
fn cleans(arms: &[Arm], state: &mut State) -> bool {
    let [(Some(condition), body)] = arms else { return false };
    // The condition only asks whether a parameter is there, or what the substitution removes.
    let of_query = |one: &&Expr| match one {
        Expr::Compare(left, "~", Word::Text(text)) if left == "req.url" => {
            let starts = [r"(\?|&)", r"(\?|\&)", "[?&]", "[&?]", r"[\?&]", r"\?", "&"];
            starts.iter().any(|start| text.starts_with(start)) && !text.contains(['/', '|'])
                || starts.iter().any(|start| {
                    let rest = text.strip_prefix(start).and_then(|rest| rest.strip_prefix('('));
                    rest.is_some_and(|rest| rest.ends_with(")=") && !rest.contains('/'))
                })
                || matches!(text.as_str(), "//" | "#" | r"\#" | r"\?$")
        }
        _ => false,
    };
    if body.is_empty()
        || is_negated(condition)
        || state.vague.contains("req.url")
        || !comparisons(condition).iter().all(of_query)
    {
        return false;
    }
    let before = state.keys.clone();
    let all = body.iter().all(|stmt| match &stmt.kind {
        Kind::Set(to, value) => to == "req.url" && store::query(value, state).is_some(),
        _ => false,
    });
    // Other URLs keep the parameters that the condition does not name.
    let texts = comparisons(condition).into_iter().filter_map(|one| match one {
        Expr::Compare(_, _, Word::Text(text)) => Some(text.as_str()),
        _ => None,
    });
    let texts: Vec<&str> = texts.collect();
    let is_named = |name: &String| {
        let bare = name.trim_matches('*');
        before.drop.contains(name) || texts.iter().any(|text| text.contains(bare))
    };
    let same = state.keys.query == before.query || state.keys.query == Some("sort");
    let is_done = all && same && state.keys.drop.iter().all(is_named);
    if !is_done {
        state.keys = before;
    }
    is_done
}

/// Whether statements only add a fixed text to the key.
fn is_text(body: &[Stmt]) -> bool {
    let [Stmt { kind: Kind::Other(name, words), .. }] = body else { return false };
    name == "hash_data" && is_fixed_text(words)
}

fn is_deliver(words: &[Word]) -> bool {
    matches!(words.first(), Some(Word::Name(name)) if name == "deliver")
}

/// Whether a statement of `vcl_hit` only decides whether a stale response is used. `by_age`: it is
/// run for some ages only.
fn is_of_grace(stmt: &Stmt, by_age: bool) -> bool {
    match &stmt.kind {
        Kind::Return(words) => match words.first() {
            Some(Word::Name(name)) => match name.as_str() {
                "deliver" | "fetch" | "miss" | "restart" => true,
                "pass" => by_age,
                _ => false,
            },
            _ => false,
        },
        Kind::Set(to, _) => request_field(to).is_some_and(|name| name.contains("grace")),
        Kind::Other(name, _) => name == "std.log" || name == "std.syslog",
        Kind::If(arms) => {
            let conditions = arms.iter().filter_map(|(condition, _)| condition.as_ref());
            let all: Vec<&Expr> = conditions.flat_map(comparisons).collect();
            let is_of_age = |one: &&Expr| match one {
                Expr::Compare(left, ..) => is_age(left),
                Expr::Is(name) | Expr::Call(name) => is_age(name),
                Expr::Unknown | Expr::Or(_) | Expr::And(_) | Expr::Not(_) => false,
            };
            // A sum of times is not understood.
            let is_sum = |one: &&Expr| matches!(one, Expr::Unknown);
            let by_age = all.iter().all(is_of_age);
            all.iter().all(|one| is_of_age(one) || is_sum(one))
                && arms.iter().flat_map(|(_, body)| body).all(|stmt| is_of_grace(stmt, by_age))
        }
        Kind::Unset(_) | Kind::Call(_) => false,
    }
}

fn is_age(name: &str) -> bool {
    matches!(
        name,
        "obj.ttl" | "obj.grace" | "obj.keep" | "obj.age" | "std.healthy" | "obj.uncacheable"
    ) || request_field(name).is_some_and(|name| name.contains("grace"))
}
