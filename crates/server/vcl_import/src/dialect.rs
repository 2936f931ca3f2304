//! The language of Varnish 3, in the words of Varnish 4.
//!
//! A file of Varnish 4 begins with `vcl 4.0;` or `vcl 4.1;`. In a file without it, the names that
//! only Varnish 3 had are replaced.

use super::lexer::Word;
use super::parser::{Arm, Expr, Kind, Program, Stmt};

/// Subroutines.
const SUBS: [(&str, &str); 2] = [("vcl_fetch", "vcl_backend_response"), ("vcl_error", "vcl_synth")];

/// Variables, everywhere.
const NAMES: [(&str, &str); 4] = [
    ("req.request", "req.method"),
    ("bereq.request", "bereq.method"),
    ("req.backend", "req.backend_hint"),
    ("bereq.backend", "bereq.backend"),
];

/// Replaces the names of Varnish 3.
pub(super) fn modernise(program: &mut Program) {
    let mut subs = std::mem::take(&mut program.subs);
    program.purges_on_hit = subs
        .iter()
        .filter(|(name, _)| matches!(name.as_str(), "vcl_hit" | "vcl_miss"))
        .any(|(_, body)| purges(body));
    for (name, body) in &mut subs {
        let old = name.clone();
        if let Some((_, new)) = SUBS.iter().find(|(from, _)| from == name) {
            *name = (*new).to_owned();
        }
        body.iter_mut().for_each(|stmt| of_statement(stmt, &old));
    }
    program.subs = subs;
}

/// Whether statements remove a stored response.
fn purges(body: &[Stmt]) -> bool {
    body.iter().any(|stmt| match &stmt.kind {
        Kind::Other(name, _) => name == "purge",
        Kind::If(arms) => arms.iter().any(|(_, body)| purges(body)),
        _ => false,
    })
}

/// The name that a variable has in Varnish 4.
fn named(name: &str, sub: &str) -> String {
    let lower = name.to_ascii_lowercase();
    if let Some((_, new)) = NAMES.iter().find(|(old, _)| *old == lower) {
        return named_in(new, sub);
    }
    named_in(name, sub)
}

fn named_in(name: &str, sub: &str) -> String {
    match sub {
        "vcl_fetch" if name.starts_with("req.") => format!("be{name}"),
        "vcl_error" if name == "obj.response" => "resp.reason".to_owned(),
        "vcl_error" => match name.strip_prefix("obj.") {
            Some(rest) => format!("resp.{rest}"),
            None => name.to_owned(),
        },
        _ => name.to_owned(),
    }
}

fn of_word(word: &mut Word, sub: &str) {
    if let Word::Name(name) = word {
        *name = named(name, sub);
    }
}

fn of_statement(stmt: &mut Stmt, sub: &str) {
    match &mut stmt.kind {
        Kind::Set(to, value) => {
            *to = named(to, sub);
            value.iter_mut().for_each(|word| of_word(word, sub));
        }
        Kind::Unset(what) => *what = named(what, sub),
        Kind::Return(_) | Kind::Call(_) => {}
        Kind::If(arms) => arms.iter_mut().for_each(|arm| of_arm(arm, sub)),
        Kind::Other(name, words) if name == "error" => {
            let mut words = std::mem::take(words);
            words.iter_mut().for_each(|word| of_word(word, sub));
            let mut all = vec![Word::Name("synth".to_owned()), Word::Sign("(")];
            let reason = words.split_off(words.len().min(1));
            all.extend(words);
            if !reason.is_empty() {
                all.push(Word::Sign(","));
                all.extend(reason);
            }
            all.push(Word::Sign(")"));
            stmt.kind = Kind::Return(all);
        }
        Kind::Other(_, words) => words.iter_mut().for_each(|word| of_word(word, sub)),
    }
}

fn of_arm((condition, body): &mut Arm, sub: &str) {
    if let Some(condition) = condition {
        of_condition(condition, sub);
    }
    body.iter_mut().for_each(|stmt| of_statement(stmt, sub));
}

fn of_condition(expr: &mut Expr, sub: &str) {
    match expr {
        Expr::Or(all) | Expr::And(all) => all.iter_mut().for_each(|one| of_condition(one, sub)),
        Expr::Not(inner) => of_condition(inner, sub),
        Expr::Compare(left, _, right) => {
            *left = named(left, sub);
            of_word(right, sub);
        }
        Expr::Is(name) => *name = named(name, sub),
        Expr::Call(_) | Expr::Unknown => {}
    }
}
