//! What a branch whose condition is not known can do.

use std::collections::BTreeSet;

use super::conditions::is_by_address;
use super::eval::{Runner, SETTINGS, is_harmless, is_normalised_host, status_of};
use super::lexer::Word;
use super::parser::{Kind, Stmt};
use super::state::request_field;

/// What a branch that is not known can do.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// It answers with an error, or sends requests elsewhere.
    pub(super) refuses: bool,
    /// It answers with a redirect or with a text.
    pub(super) answers: bool,
    /// Something in it depends on more than the address by which a client came.
    pub(super) by_others: bool,
    /// It keeps responses out of the store.
    pub(super) passes: bool,
    /// It ends the subroutine.
    pub(super) ends: bool,
    /// Fields of the request that it changes.
    pub(super) fields: BTreeSet<String>,
}

impl Runner<'_> {
    /// What statements can do that may or may not be run.
    pub(super) fn doubts(&self, all: &[&Stmt], doubts: &mut Doubts) {
        for stmt in all {
            match &stmt.kind {
                Kind::Return(words) => {
                    doubts.ends = true;
                    match words.first() {
                        Some(Word::Name(name)) if name == "synth" => {
                            let sends =
                                |status: u64| status < 400 || self.redirects.contains(&status);
                            let is_sent = status_of(words).is_some_and(sends);
                            doubts.answers |= is_sent;
                            doubts.refuses |= !is_sent;
                        }
                        Some(Word::Name(name)) => match name.as_str() {
                            "pass" | "pipe" | "abandon" | "retry" => doubts.passes = true,
                            "hash" | "lookup" | "deliver" | "fetch" | "ok" | "miss" => {}
                            _ => doubts.refuses = true,
                        },
                        _ => doubts.refuses = true,
                    }
                }
                Kind::Set(to, value) => match to.as_str() {
                    "req.backend_hint" | "bereq.backend" => doubts.refuses = true,
                    "beresp.uncacheable" | "beresp.ttl" | "req.hash_always_miss" => {
                        doubts.passes = true;
                    }
                    to if is_normalised_host(to, value) => {}
                    to if to.starts_with("beresp.") || to.starts_with("resp.") => {}
                    to => match request_field(to) {
                        Some("x-forwarded-for") if self.forwards => {}
                        Some("host") => doubts.refuses = true,
                        Some(name) => {
                            doubts.passes = true;
                            doubts.fields.insert(name.to_owned());
                        }
                        None => doubts.refuses |= !SETTINGS.contains(&to),
                    },
                },
                Kind::Unset(what) => {
                    if let Some(name) = request_field(what) {
                        doubts.passes = true;
                        doubts.fields.insert(name.to_owned());
                    }
                }
                Kind::Other(name, _) => {
                    doubts.passes |= name == "hash_data";
                    doubts.refuses |= name != "hash_data" && !is_harmless(name);
                }
                // Its content is looked at where it is called.
                Kind::Call(_) => doubts.refuses = true,
                Kind::If(arms) => {
                    let mut conditions =
                        arms.iter().filter_map(|(condition, _)| condition.as_ref());
                    doubts.by_others |= !conditions.all(is_by_address);
                    let inner: Vec<&Stmt> = arms.iter().flat_map(|(_, body)| body).collect();
                    self.doubts(&inner, doubts);
                }
            }
        }
    }
}
