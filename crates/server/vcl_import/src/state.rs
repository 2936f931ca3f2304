//! A request that the program is run for, and what was done to it.

use std::collections::{BTreeMap, BTreeSet};

use super::cases::Questions;
use super::filters::Filter;
use super::lexer::Word;
use imported::fields::is_free;
use imported::route::{Keys, Path};

/// A request: a cell, and a method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// `None`: a host that no condition names.
    pub(crate) host: Option<String>,
    pub(crate) path: Path,
    pub(crate) method: String,
    /// Whether the client is in the access lists; `None`: not known.
    pub(crate) client_inside: Option<bool>,
}

/// How a subroutine ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Hash,
    Pass,
    Pipe,
    Purge,
    /// A status and the words of its reason.
    Synth(u64, Vec<Word>),
    /// Another action, which goes on as usual.
    Other,
}

/// Changes to fields, by name: a value, or `None` if the field is removed.
pub(crate) type Changes = BTreeMap<String, Option<String>>;

/// What was done to a request and its response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The request that the program is run for.
    pub(crate) asked: Request,
    /// The backend that the program chose. Empty if it is unknown.
    pub(crate) backend: Option<String>,
    pub(crate) request: Changes,
    pub(crate) response: Changes,
    /// The fields of the request, and `req.url`, whose values are unknown from here on.
    pub(crate) vague: BTreeSet<String>,
    pub(crate) end: Option<End>,
    /// The subroutine may have ended before.
    pub(super) in_doubt: bool,
    /// Something that was not carried kept requests out, or sent them elsewhere.
    pub(crate) unprotected: bool,
    /// Something that was not carried kept responses out of the store.
    pub(crate) store_unknown: bool,
    /// Responses are never stored.
    pub(crate) uncacheable: bool,
    /// Access lists that a purge asked for.
    pub(crate) lists: BTreeSet<String>,
    /// The statements that were run.
    pub(crate) ran: BTreeSet<usize>,
    pub(crate) keys: Keys,
    /// Fields of the request that are the value of a cookie.
    pub(super) cookies: BTreeMap<String, String>,
    /// Responses of these types are coded; empty: of all that can be.
    pub(crate) codes: Option<Vec<String>>,
    /// Fields that the request does not have, by the answers to the questions of the run.
    pub(super) absent: BTreeSet<String>,
    /// Fields that are there and empty.
    pub(super) empty: BTreeSet<String>,
    /// Fields that are added to requests that lack them.
    pub(super) defaults: BTreeMap<String, String>,
    /// What substitutions left of the client's cookies.
    pub(super) filter: Option<Filter>,
    /// What `vcl_recv` made of the request names no client.
    pub(super) is_anonymous: bool,
    /// The store is not used for the request.
    pub(super) is_passed: bool,
    /// In Varnish 3: a stored response is removed.
    pub(super) is_purged: bool,
    /// Parameters that were taken out where this sign comes before them.
    pub(super) halves: BTreeSet<(String, char)>,
    /// Fields that rules change.
    pub(super) ruled: BTreeSet<String>,
    /// Responses whose lifetime is over are passed, so a later lifetime is not for them.
    pub(super) has_expired: bool,
    /// The host that is sent in place of the client's.
    pub(crate) host: Option<String>,
    pub(super) questions: Questions,
}

impl State {
    /// Whether the client's field of this name is removed, and known to be.
    pub(crate) fn lacks(&self, name: &str) -> bool {
        let is_sent = name != "cookie" || !self.keys.only_key_cookies;
        let is_absent = match self.request.get(name) {
            Some(value) => value.is_none(),
            None => self.absent.contains(name) && !self.empty.contains(name),
        };
        (is_absent || !is_sent) && !self.vague.contains(name)
    }

    /// Whether the built-in program does not pass the request because of this field.
    pub(super) fn is_no_reason_to_pass(&self, name: &str) -> bool {
        let passes_cookies = self.keys.bypass.iter().any(|name| name == "*");
        self.lacks(name) || name == "cookie" && passes_cookies
    }

    /// The host or the URL is not the client's.
    pub(crate) fn is_rewritten(&self) -> bool {
        self.vague.contains("host") || self.vague.contains("req.url")
    }

    /// The text that the program gave to a field, if it is the same for all requests of the cell.
    pub(super) fn fixed(&self, name: &str) -> Option<&str> {
        let value = self.request.get(name)?.as_deref()?;
        (!self.vague.contains(name) && !value.contains('{')).then_some(value)
    }

    /// Whether the field is the client's own, as far as conditions ask.
    pub(super) fn is_own(&self, name: &str) -> bool {
        !self.vague.contains(name)
            && !self.request.contains_key(name)
            && !self.defaults.contains_key(name)
    }

    /// A field of the request gets a value that is not carried. The client's own field is removed,
    /// so that no upstream takes it for that value.
    pub(super) fn hide(&mut self, name: &str) {
        self.vague.insert(name.to_owned());
        if name == "cookie" {
            self.filter = None;
        }
        if is_free(name) && !PRIVATE.contains(&name) {
            self.request.insert(name.to_owned(), None);
        }
    }
}

/// Fields that identify the client. If it is unknown whether they are removed, they are passed on,
/// and nothing is stored.
pub(crate) const PRIVATE: [&str; 2] = ["cookie", "authorization"];

/// The field of the response that a variable is.
pub(crate) fn response_field(variable: &str) -> Option<&str> {
    ["beresp.http.", "resp.http."].iter().find_map(|prefix| variable.strip_prefix(prefix))
}

/// The field of the request that a variable is.
pub(crate) fn request_field(variable: &str) -> Option<&str> {
    ["req.http.", "bereq.http."].iter().find_map(|prefix| variable.strip_prefix(prefix))
}
