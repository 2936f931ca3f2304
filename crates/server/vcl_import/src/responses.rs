//! Conditions on responses in `vcl_backend_response`, as rules.
//!
//! A rule is for all requests, so its condition also has what holds where the statement is run:
//! the conditions around it, and that no branch before it has ended the subroutine.

use std::time::Duration;

use super::conditions::{comparisons, is_background, status_min, truth};
use super::lexer::Word;
use super::parser::{Arm, Expr, Kind, Stmt};
use super::state::{Changes, PRIVATE, State, request_field, response_field};
use super::{OF_LIFETIMES, Run};
use super::{store, texts, translate};
use imported::cel::{self, Cel, PARTS_MAX};
use imported::fields::{is_about_caching, is_free};
use imported::limits::DEPTH_MAX;
use imported::route::{Lifetime, change};
use imported::table::Becomes::{self, Carried, Different, Left, Nothing};
use imported::tree::Section;

/// What responses become for which a condition holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResponseRule {
    when: Cel,
    /// They are not stored.
    is_passed: bool,
    ttl: Option<Duration>,
    grace: Option<Duration>,
    changes: Changes,
}

/// A place where the subroutine may have ended.
pub(super) struct Guard {
    /// It has not. `None`: our file cannot say it.
    not_taken: Option<Cel>,
    /// If it has, the response is passed, so only changes of its fields matter.
    only_changes: bool,
}

/// The most rules of a file.
const RULES_MAX: usize = 100;

const PASSED: &str = "such responses are passed, and the next request asks again";
const OURS: &str = "such responses are never stored";
const OVER: &str = "a response with Set-Cookie, or whose lifetime is over, is not stored";
const FAILED: &str = "the error of the server is passed on";
const OTHERS: &str = "requests for which this holds are not answered from the store";
const UNSEEN: &str = "a stale response is kept after such a failure for the time of `error_grace`";
const NOT_ALL: &str = "it is not for all responses, and our file cannot say for which";
const ENDED: &str = "what comes later in the program is done to all responses, unless this rule \
                     says otherwise";

/// What a condition says of a response.
#[derive(Default)]
struct Judged {
    /// It holds if this holds. `None`: never.
    when: Option<Cel>,
    /// How the condition differs.
    why: &'static str,
    /// It also holds for responses whose lifetime is over, which are never stored here.
    of_expired: bool,
    /// It also holds for responses with Set-Cookie, which are not stored here.
    of_cookies: bool,
    /// It does not hold for responses to other methods than GET and HEAD, which are not stored.
    of_methods: bool,
}

impl Run<'_> {
    /// The statements that follow are run only if this arm is taken.
    pub(super) fn enter_arm(&mut self, arms: &[Arm], at: usize) {
        if self.in_sub == "vcl_backend_response" {
            let found = self.taken(&arms[..at], &arms[at]);
            self.enclosing.push(found);
        }
    }

    /// The statements that follow are not run after an arm that ends the subroutine.
    pub(super) fn leave_arms(&mut self, arms: &[Arm]) {
        if self.in_sub != "vcl_backend_response" {
            return;
        }
        for (at, (condition, body)) in arms.iter().enumerate() {
            if !self.may_end(body, 0) {
                continue;
            }
            let ends = body.iter().any(|stmt| matches!(stmt.kind, Kind::Return(_)));
            let made = made(body, condition.as_ref(), &mut Vec::new());
            let only_changes = ends && made.is_some_and(|made| made.is_passed);
            let judged = condition.as_ref().and_then(|one| self.judged(one));
            let of_cookies = judged.as_ref().is_some_and(|one| {
                one.of_cookies && one.when.is_none() && !one.of_expired && at == 0
            });
            let is_whole = judged.is_some_and(|one| !one.of_expired && !one.of_cookies);
            let not_taken = match (of_cookies, is_whole && ends && at < PARTS_MAX) {
                (true, _) => Some(Cel::one("response['set-cookie'] == ''")),
                (false, true) => self.taken(&arms[..at], &arms[at]).map(Cel::negated),
                (false, false) => None,
            };
            let of_all = |one: &Cel| cel::check_response(one, &self.lists).is_some();
            self.ended.push(Guard { not_taken: not_taken.filter(of_all), only_changes });
        }
    }

    /// Whether statements may end the subroutine.
    fn may_end(&self, body: &[Stmt], depth: usize) -> bool {
        body.iter().any(|stmt| match &stmt.kind {
            Kind::Return(_) => true,
            Kind::If(arms) => arms.iter().any(|(_, body)| self.may_end(body, depth)),
            Kind::Call(name) => self
                .program
                .sub(name)
                .is_none_or(|body| depth >= DEPTH_MAX || self.may_end(body, depth + 1)),
            Kind::Set(..) | Kind::Unset(_) | Kind::Other(..) => false,
        })
    }

    /// What holds where a statement is run, with this effect. `None`: our file cannot say it.
    fn outer(&self, made: &ResponseRule) -> Option<Vec<Cel>> {
        // A rule would change the responses of piped requests, too.
        if made.changes.contains_key("set-cookie") && self.program.pipes() {
            return None;
        }
        let matters = |guard: &&Guard| !guard.only_changes || !made.changes.is_empty();
        let ended = self.ended.iter().filter(matters).map(|guard| guard.not_taken.clone());
        let all: Option<Vec<Cel>> = self.enclosing.iter().cloned().chain(ended).collect();
        all.filter(|parts| parts.len() < PARTS_MAX)
    }

    /// A statement that decides whether responses are stored. It is for those for which the
    /// subroutine has not ended. `None`: it is for all, or decides nothing.
    pub(super) fn after_end(&mut self, stmt: &Stmt, state: &mut State) -> Option<Becomes> {
        let is_here = self.in_sub == "vcl_backend_response" && !self.ended.is_empty();
        if !is_here || !is_of_store(&stmt.kind) {
            return None;
        }
        let is_ttl = matches!(&stmt.kind, Kind::Set(to, _) if to == "beresp.ttl");
        let mut notes = Vec::new();
        let made = made(std::slice::from_ref(stmt), None, &mut notes);
        let made = made.filter(|made| made.ttl.is_none() || !state.has_expired);
        let when = made.as_ref().filter(|_| self.depth == 0 && !state.in_doubt).and_then(|made| {
            let matters = |guard: &Guard| !guard.only_changes || !made.changes.is_empty();
            match made.is_passed || !self.ended.iter().any(matters) {
                true => Some(None),
                false => Cel::all(self.outer(made)?).map(Some),
            }
        });
        let is_known = |one: &Cel| cel::check_response(one, &self.lists).is_some();
        match (made, when) {
            // Where the subroutine has ended, the response is passed anyway.
            (Some(_), Some(None)) => None,
            (Some(made), Some(Some(when))) if made.has_effect() && is_known(&when) => {
                state.ruled.extend(made.changes.keys().cloned());
                self.rules.insert(stmt.id, vec![ResponseRule { when, ..made }]);
                Some(notes.pop().map_or(Carried, |(_, becomes)| becomes))
            }
            _ => {
                state.store_unknown |= is_ttl;
                Some(Left(NOT_ALL))
            }
        }
    }

    /// Whether a rule of an earlier statement has a lifetime, and does not end the subroutine.
    pub(super) fn has_rule_with_ttl(&self, now: usize) -> bool {
        let has_ttl =
            |rules: &Vec<ResponseRule>| rules.iter().any(|one| one.ttl.is_some() && !one.is_passed);
        self.rules.range(..now).any(|(_, rules)| has_ttl(rules))
    }

    /// The condition by which an arm is taken, for all cells alike.
    fn taken<'a>(&self, before: impl IntoIterator<Item = &'a Arm>, (last, _): &Arm) -> Option<Cel> {
        let mut parts = Vec::new();
        for (condition, _) in before {
            parts.extend(self.judged(condition.as_ref()?)?.when.map(Cel::negated));
        }
        if let Some(condition) = last {
            parts.push(self.judged(condition)?.when?);
        }
        (parts.len() <= PARTS_MAX).then(|| Cel::all(parts)).flatten()
    }

    /// Makes rules of the arms, and writes the notes of the statements inside. Returns
    /// whether that was possible.
    pub(super) fn of_response(&mut self, id: usize, arms: &[Arm], state: &mut State) -> bool {
        let is_here = self.in_sub == "vcl_backend_response" && self.depth == 0 && !state.in_doubt;
        if !is_here || arms.len() > PARTS_MAX {
            return false;
        }
        let (mut rules, mut notes, mut of_expired) = (Vec::new(), Vec::new(), false);
        for (nth, (condition, body)) in arms.iter().enumerate() {
            // A request for which it holds is another case, which is not stored.
            if condition.as_ref().is_some_and(|one| self.is_of_others(one, state)) {
                notes.extend(body.iter().map(|stmt| (stmt, Different(OTHERS))));
                continue;
            }
            let judged = match condition {
                None => None,
                Some(condition) => match self.judged(condition) {
                    Some(judged) if !asks_for_changed(condition, state) => Some(judged),
                    _ => return false,
                },
            };
            let is_known = judged.as_ref().is_none_or(|one| one.when.is_some());
            let Some(made) = made(body, condition.as_ref(), &mut notes) else { return false };
            let is_of_expired = judged.as_ref().is_some_and(|one| one.of_expired);
            let is_of_cookies = judged.as_ref().is_some_and(|one| one.of_cookies);
            // Responses whose lifetime is over are not stored here, so nothing is lost but what the
            // original stores of them.
            if (is_of_expired || is_of_cookies) && !made.is_passed {
                notes.extend(body.iter().map(|stmt| (stmt, Left(OVER))));
                continue;
            }
            // Responses to other methods would be changed, too.
            let is_of_methods = judged.as_ref().is_some_and(|one| one.of_methods);
            if is_of_methods && made.changes.contains_key("set-cookie") {
                return false;
            }
            of_expired |= is_of_expired;
            if !made.is_passed && made.ttl.is_some() && (of_expired || state.has_expired) {
                return false;
            }
            if !is_known {
                notes.extend(body.iter().map(|stmt| (stmt, Nothing(OURS))));
                continue;
            }
            let is_of_others =
                |(one, _): &&Arm| one.as_ref().is_some_and(|one| self.is_of_others(one, state));
            let before = arms[..nth].iter().filter(|arm| !is_of_others(arm));
            let Some(own) = self.taken(before, &arms[nth]) else { return false };
            let Some(outer) = self.outer(&made) else { return false };
            let when = Cel::all(outer.into_iter().chain([own]).collect());
            let Some(when) = when.filter(|one| cel::check_response(one, &self.lists).is_some())
            else {
                return false;
            };
            if let Some(why) = judged.map(|one| one.why).filter(|why| !why.is_empty()) {
                notes.extend(body.iter().map(|stmt| (stmt, Left(why))));
            }
            if made.has_effect() {
                rules.push(ResponseRule { when, ..made });
            }
        }
        state.has_expired |=
            of_expired && !state.keys.lifetimes.iter().any(|one| one.ttl.is_some());
        let others = self.rules.iter().filter(|(other, _)| **other != id);
        if others.map(|(_, rules)| rules.len()).sum::<usize>() + rules.len() > RULES_MAX {
            return false;
        }
        state.ruled.extend(rules.iter().flat_map(|rule| rule.changes.keys().cloned()));
        self.rules.insert(id, rules);
        notes.iter().for_each(|(stmt, becomes)| self.mark(stmt, becomes));
        true
    }

    /// Whether a condition reads only what differs between clients, and does not hold in this case.
    fn is_of_others(&self, expr: &Expr, state: &State) -> bool {
        let is_of_client = |one: &Expr| match one {
            Expr::Compare(name, ..) | Expr::Is(name) => {
                request_field(name).is_some_and(|name| PRIVATE.contains(&name))
            }
            _ => false,
        };
        comparisons(expr).into_iter().all(is_of_client)
            && truth(expr, &mut state.clone()) == Some(false)
    }

    /// A condition in our language, whatever the cell is. `None`: our language cannot say it.
    fn judged(&self, expr: &Expr) -> Option<Judged> {
        let when = |found: Cel| Some(Judged { when: Some(found), ..Judged::default() });
        match expr {
            Expr::Or(all) | Expr::And(all) if all.len() > PARTS_MAX => None,
            Expr::Or(all) | Expr::And(all) => {
                let (mut parts, mut judged) = (Vec::new(), Judged::default());
                for one in all {
                    if matches!(expr, Expr::And(_)) && all.len() > 1 && is_of_methods(one) {
                        judged.of_methods = true;
                        continue;
                    }
                    let one = self.judged(one)?;
                    judged.of_methods |= one.of_methods;
                    judged.of_expired |= one.of_expired;
                    judged.of_cookies |= one.of_cookies;
                    judged.why = if one.why.is_empty() { judged.why } else { one.why };
                    match (one.when, expr) {
                        (Some(part), _) => parts.push(part),
                        (None, Expr::Or(_)) => {}
                        (None, _) => return Some(Judged { when: None, ..judged }),
                    }
                }
                let is_or = matches!(expr, Expr::Or(_));
                judged.when = if is_or { Cel::any(parts) } else { Cel::all(parts) };
                Some(judged)
            }
            Expr::Not(inner) if is_fresh(inner) => {
                Some(Judged { of_expired: true, ..Judged::default() })
            }
            Expr::Not(inner) if is_cookie(inner) => when(Cel::one("response['set-cookie'] == ''")),
            Expr::Not(inner) => {
                let judged = self.judged(inner)?;
                let found = judged
                    .when
                    .filter(|_| !judged.of_expired && !judged.of_cookies && !judged.of_methods)?;
                Some(Judged { when: Some(found.negated()), ..judged })
            }
            Expr::Compare(left, sign @ ("<=" | "<" | "=="), Word::Name(zero))
                if left == "beresp.ttl" && (zero != "1s" || *sign == "<") =>
            {
                is_zero(zero).then(|| Judged { of_expired: true, ..Judged::default() })
            }
            Expr::Is(name) if is_never(name) => Some(Judged::default()),
            leaf if is_cookie(leaf) => Some(Judged { of_cookies: true, ..Judged::default() }),
            Expr::Is(name) => {
                let field = cel::response(name.strip_prefix("beresp.http.")?)?;
                when(Cel::one(format!("{field} != ''")))
            }
            Expr::Compare(left, sign, Word::Name(number)) if left == "beresp.status" => {
                let number: u16 = number.parse().ok()?;
                let is_sign = ["==", "!=", "<", "<=", ">", ">="].contains(sign);
                is_sign.then(|| Cel::one(format!("status {sign} {number}"))).and_then(when)
            }
            Expr::Compare(left, sign, Word::Text(text)) if left.starts_with("beresp.http.") => {
                let field = cel::response(left.strip_prefix("beresp.http.")?)?;
                let found = match *sign {
                    "~" | "!~" => cel::matches(&field, text)?,
                    "==" | "!=" => cel::is(&field, text)?,
                    _ => return None,
                };
                let is_positive = matches!(*sign, "~" | "==");
                when(if is_positive { found } else { found.negated() })
            }
            Expr::Compare(left, ..) if left.starts_with("bereq.") || left.starts_with("req.") => {
                let mut any = State::default();
                let (found, why) = translate::condition(expr, &mut any, &self.program.lists, true)?;
                Some(Judged { when: Some(found), why, ..Judged::default() })
            }
            Expr::Compare(..) | Expr::Call(_) | Expr::Unknown => None,
        }
    }

    /// Writes the rules, in the order of the program.
    pub(super) fn write_rules(&mut self) {
        let mut count = 0;
        for rule in std::mem::take(&mut self.rules).into_values().flatten() {
            count += 1;
            let mut section = Section::new("rule");
            let from = "vcl_backend_response";
            section.set("name", format!("response-{count}"), from);
            section.set("when", rule.when.text(), from);
            section.set_some("store", rule.is_passed.then_some(false), from);
            if !rule.is_passed {
                section.set_some("ttl", rule.ttl, from);
                section.set_some("overrule", rule.ttl.map(|_| true), from);
                section.set_some("grace", rule.grace, from);
                section.set_some("error_grace", rule.grace, from);
            }
            for (name, value) in &rule.changes {
                change(section.below("rule.response"), "set", name, value.as_deref(), from);
            }
            self.tree.add(section);
        }
    }
}

impl ResponseRule {
    fn has_effect(&self) -> bool {
        self.is_passed || self.ttl.is_some() || self.grace.is_some() || !self.changes.is_empty()
    }
}

/// What the statements of an arm do to a response. `None`: something that no rule does.
fn made<'s>(
    body: &'s [Stmt],
    condition: Option<&Expr>,
    notes: &mut Vec<(&'s Stmt, Becomes)>,
) -> Option<ResponseRule> {
    let mut made = ResponseRule {
        when: Cel::one("true"),
        is_passed: false,
        ttl: None,
        grace: None,
        changes: Changes::new(),
    };
    let mut life = Lifetime::default();
    for stmt in body {
        let becomes = match &stmt.kind {
            Kind::Return(words) => match words.first() {
                Some(Word::Name(name)) if name == "deliver" => match made.is_passed {
                    true => Carried,
                    false => Different(ENDED),
                },
                Some(Word::Name(name))
                    if matches!(name.as_str(), "abandon" | "retry")
                        && condition.is_some_and(|one| status_min(one) >= 500) =>
                {
                    made.is_passed = true;
                    Left(FAILED)
                }
                Some(Word::Name(name)) if matches!(name.as_str(), "pass" | "hit_for_pass") => {
                    made.is_passed = true;
                    Different(PASSED)
                }
                _ => return None,
            },
            Kind::Set(to, value) => match to.as_str() {
                "beresp.uncacheable" => {
                    made.is_passed |= *value == [Word::Name("true".to_owned())];
                    Different(PASSED)
                }
                "beresp.do_stream" | "beresp.do_gunzip" => Nothing("bodies are always streamed"),
                "beresp.do_gzip" | "beresp.do_esi" => {
                    Left("it is not done for some responses only")
                }
                "beresp.ttl" | "beresp.grace" | "beresp.keep" => {
                    let why = store::set_of(to, value, &mut life)?;
                    if to == "beresp.ttl" && life.ttl.is_some_and(|ttl| ttl.is_zero()) {
                        made.is_passed = true;
                    }
                    (made.ttl, made.grace) = (life.ttl, life.grace);
                    Different(why)
                }
                to => {
                    let name = response_field(to)?;
                    let text = match &value[..] {
                        [Word::Text(text)] if !imported::route::has_value(text) => text.clone(),
                        _ => texts::text_of(value, &Default::default())
                            .filter(|(text, with_path)| !with_path && !text.contains('{'))
                            .map(|(text, _)| text)
                            .unwrap_or_default(),
                    };
                    match text.is_empty() || !is_free(name) {
                        true => Left("the value is not a fixed text"),
                        false => {
                            made.changes.insert(name.to_owned(), Some(text));
                            Carried
                        }
                    }
                }
            },
            Kind::Unset(what) => {
                let name = response_field(what)?;
                match is_free(name) {
                    true => {
                        made.changes.insert(name.to_owned(), None);
                        Carried
                    }
                    false => Left("this field cannot be changed"),
                }
            }
            Kind::Other(name, _) if name == "std.log" || name == "std.syslog" => {
                Nothing("the access log is by request")
            }
            Kind::If(arms) if arms.iter().all(gives_up_unseen) => Different(UNSEEN),
            Kind::Other(..) | Kind::Call(_) | Kind::If(_) => return None,
        };
        notes.push((stmt, becomes));
    }
    // Varnish reads these fields before the program changes them.
    let of_lifetimes = |name: &String| OF_LIFETIMES.contains(&name.as_str());
    let is_known = made.is_passed || made.ttl.is_some();
    (is_known || !made.changes.keys().any(of_lifetimes)).then_some(made)
}

/// Whether an arm only gives up a fetch for which no client waits.
fn gives_up_unseen((condition, body): &Arm) -> bool {
    let gives_up = |stmt: &Stmt| match &stmt.kind {
        Kind::Return(words) => words.first() == Some(&Word::Name("abandon".to_owned())),
        _ => false,
    };
    condition.as_ref().is_some_and(is_background) && body.iter().all(gives_up)
}

/// The lifetime is not over.
fn is_fresh(expr: &Expr) -> bool {
    match comparisons(expr)[..] {
        [Expr::Compare(left, ">", Word::Name(zero))] => left == "beresp.ttl" && is_zero(zero),
        _ => false,
    }
}

/// Whether a condition asks for the methods whose responses are stored.
fn is_of_methods(expr: &Expr) -> bool {
    let is_stored = |one: &Expr| match one {
        Expr::Compare(left, "==", Word::Text(text)) => {
            left == "bereq.method" && matches!(text.as_str(), "GET" | "HEAD")
        }
        _ => false,
    };
    match expr {
        Expr::Or(all) => all.iter().all(is_of_methods),
        Expr::And(all) if all.len() == 1 => is_of_methods(&all[0]),
        leaf => is_stored(leaf),
    }
}

/// Whether a condition asks for Set-Cookie alone.
fn is_cookie(expr: &Expr) -> bool {
    matches!(expr, Expr::Is(name) if name == "beresp.http.set-cookie")
}

/// What is never true of a response that is stored, or is never true here.
fn is_never(name: &str) -> bool {
    matches!(name, "bereq.retries" | "bereq.uncacheable" | "beresp.was_304")
}

/// Whether a condition asks for a field that the program has changed before. A rule sees the field
/// of the upstream.
fn asks_for_changed(expr: &Expr, state: &State) -> bool {
    comparisons(expr).into_iter().any(|one| match one {
        Expr::Compare(left, ..) | Expr::Is(left) => {
            // Where Set-Cookie is left, the response is not stored anyway.
            response_field(left).is_some_and(|name| {
                let is_changed = state.response.contains_key(name) || state.ruled.contains(name);
                name != "set-cookie" && is_changed
            })
        }
        _ => false,
    })
}

/// Nothing, or less than a second: our lifetimes are whole seconds.
fn is_zero(text: &str) -> bool {
    matches!(text.trim_end_matches(|c: char| c.is_ascii_alphabetic()), "0" | "0.0") || text == "1s"
}

/// Whether a statement of `vcl_backend_response` decides whether a response is stored, or for how
/// long.
fn is_of_store(kind: &Kind) -> bool {
    match kind {
        Kind::Set(name, _) | Kind::Unset(name) => {
            matches!(name.as_str(), "beresp.ttl" | "beresp.grace" | "beresp.uncacheable")
                || name.strip_prefix("beresp.http.").is_some_and(is_about_caching)
        }
        _ => false,
    }
}
