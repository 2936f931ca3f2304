//! What a branch whose condition is not known can do, and which statements keep no request out.

use std::collections::BTreeSet;

use super::Run;
use super::conditions::{is_background, is_by_address, status_min};
use super::lexer::{Word, call};
use super::parser::{Arm, Kind, Stmt};
use super::state::request_field;
use imported::table::is_one;

/// What a branch that is not known can do.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// It answers with an error, withholds the response of an upstream from the client, or sends
    /// requests elsewhere.
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

/// What the conditions say of the response of the upstream.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// No client waits for it.
    is_background: bool,
    /// Its status is this one or more.
    status_min: u64,
}

impl Run<'_> {
    /// What the arms of a branch can do, if it is not known which of them runs.
    pub(super) fn doubts(&self, arms: &[Arm]) -> Doubts {
        let mut doubts = Doubts::default();
        self.of_arms(arms, Known::default(), &mut doubts);
        doubts
    }

    fn of_arms(&self, arms: &[Arm], known: Known, doubts: &mut Doubts) {
        for (condition, body) in arms {
            let mut inner = known;
            if let Some(condition) = condition {
                inner.is_background |= is_background(condition);
                inner.status_min = inner.status_min.max(status_min(condition));
                doubts.by_others |= !is_by_address(condition);
            }
            self.of_body(body, inner, doubts);
        }
    }

    fn of_body(&self, all: &[Stmt], known: Known, doubts: &mut Doubts) {
        for stmt in all {
            match &stmt.kind {
                Kind::Return(words) => {
                    doubts.ends = true;
                    match words.first() {
                        Some(Word::Name(name)) if name == "synth" => {
                            let sends =
                                |status: u64| status < 400 || self.redirects.contains_key(&status);
                            let is_sent = status_of(words).is_some_and(sends);
                            doubts.answers |= is_sent;
                            doubts.refuses |= !is_sent;
                        }
                        Some(Word::Name(name)) => match name.as_str() {
                            "pass" | "pipe" | "hit_for_pass" => doubts.passes = true,
                            // The client waits, and does not get this response.
                            "abandon" | "retry" => {
                                // An error of the server is replaced by one of Varnish.
                                let is_failure = known.status_min >= 500;
                                doubts.refuses |= !known.is_background && !is_failure;
                                doubts.passes |= !is_failure;
                            }
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
                    "beresp.status" | "resp.status" => match new_status(value) {
                        Some(200..=299) => {}
                        Some(300..=399) => doubts.answers = true,
                        _ => doubts.refuses |= known.status_min < 400,
                    },
                    to if is_normalised_host(to, value) => {}
                    to if to.starts_with("beresp.") || to.starts_with("resp.") => {}
                    to => match request_field(to) {
                        Some("x-forwarded-for") if self.forwards => {}
                        Some("host") => doubts.refuses = true,
                        Some(name) => {
                            doubts.passes = true;
                            doubts.fields.insert(name.to_owned());
                        }
                        None => doubts.refuses |= !is_setting(to),
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
                // The subroutine is not examined here.
                Kind::Call(_) => doubts.refuses = true,
                Kind::If(arms) => self.of_arms(arms, known, doubts),
            }
        }
    }
}

/// The status that a response gets; `None`: it is no number.
pub(super) fn new_status(value: &[Word]) -> Option<u64> {
    match value {
        [Word::Name(number)] => number.parse().ok(),
        _ => None,
    }
}

/// The status of `synth`.
pub(super) fn status_of(words: &[Word]) -> Option<u64> {
    words.iter().find_map(|word| match word {
        Word::Name(number) => number.parse().ok(),
        _ => None,
    })
}

/// Variables that are not carried, and keep no request out.
const SETTINGS: &str = "req.url bereq.url req.esi req.esi_level req.grace req.ttl \
    req.hash_always_miss req.hash_ignore_busy client.identity bereq.connect_timeout \
    bereq.first_byte_timeout bereq.between_bytes_timeout";

pub(super) fn is_setting(name: &str) -> bool {
    is_one(SETTINGS, name)
}

/// Functions that keep no request out. Any other could.
pub(super) fn is_harmless(name: &str) -> bool {
    let known = ["synthetic", "ban", "std.log", "std.syslog", "std.collect", "std.cache_req_body"];
    known.contains(&name) || name.starts_with("cookie.") || name.starts_with("header.")
}

/// The client's Host in lower case, or without its port.
pub(super) fn is_normalised_host(to: &str, value: &[Word]) -> bool {
    let is_host = |word: &Word| matches!(word, Word::Name(name) if name.eq_ignore_ascii_case(to));
    let Some((name, arguments)) = call(value) else { return false };
    let ports = [":[0-9]+", ":[0-9]+$", r":\d+", r":\d+$"];
    request_field(to) == Some("host")
        && match (name, &arguments[..]) {
            ("std.tolower", [host]) => is_host(host),
            ("regsub", [host, Word::Text(pattern), Word::Text(empty)]) => {
                is_host(host) && ports.contains(&pattern.as_str()) && empty.is_empty()
            }
            _ => false,
        }
}
