//! What the subroutines do with a request, by running them.
//!
//! Routes are chosen by host and path, whatever their order; VCL is a program. So the program is
//! run for one request of each *cell*, a host and a path that its conditions name, and the result
//! becomes the route of the cell. A condition on anything else is not known: nothing inside it is
//! carried. If that kept requests out or sent them elsewhere, the cell is closed; if it kept
//! responses out of the store, the cell stores nothing; if it changed a field of the request, the
//! client's own field is removed. Statements behind a branch that is not known and can end the
//! subroutine are in doubt: they are carried only as far as that opens nothing.

use std::collections::BTreeSet;

use super::conditions::{comparisons, mentions, truth};
use super::doubts::new_status;
use super::lexer::Word;
use super::parser::{Arm, Kind, Program, Stmt};
use super::state::{End, PRIVATE, Request, State, request_field};
use super::store;
use super::texts::text_of;
use crate::fields::{has_tags, is_about_caching, is_free};
use crate::note::Fate;
use crate::pattern::COOKIE_NAMES;
use crate::route::{CAPTURES, Lifetime, add};

/// Statements that are run for all cells together, at most.
const STEPS_MAX: usize = 1_000_000;

/// Runs subroutines, and remembers what became of each statement.
pub(crate) struct Runner<'p> {
    program: &'p Program,
    fates: Vec<Option<(Fate, String)>>,
    steps: usize,
    depth: usize,
    /// Statuses of `synth` that become redirects.
    pub(super) redirects: BTreeSet<u64>,
    /// The upstreams.
    names: Vec<String>,
    /// Upstreams are sent X-Forwarded-For.
    pub(super) forwards: bool,
    /// After `vcl_recv`, when no answer can be given any more.
    is_late: bool,
}

const UNKNOWN: &str = "its condition is not carried: routes know hosts and paths only";
const KEY: &str = "none of our keys has this, so nothing is stored (a class of devices is \
                   `device = true`)";
const AGES: &str = "lifetimes are by status and by content type";

impl<'p> Runner<'p> {
    pub(crate) fn new(
        program: &'p Program,
        redirects: BTreeSet<u64>,
        names: &[String],
        forwards: bool,
    ) -> Runner<'p> {
        let (fates, names) = (vec![None; program.statements], names.to_vec());
        let (steps, depth, is_late) = (0, 0, false);
        Runner { program, fates, steps, depth, redirects, names, forwards, is_late }
    }

    /// Whether too much was run.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.steps > STEPS_MAX
    }

    /// What became of a statement; `None`: it was never reached.
    pub(crate) fn fate(&self, stmt: &Stmt) -> Option<&(Fate, String)> {
        self.fates.get(stmt.id).and_then(Option::as_ref)
    }

    /// Runs the program for a request. The end is that of `vcl_recv`.
    pub(crate) fn run(&mut self, request: &Request) -> State {
        let mut state = State::default();
        self.is_late = false;
        self.sub("vcl_recv", request, &mut state);
        let end = state.end.take();
        self.is_late = true;
        if !matches!(end, Some(End::Synth(..) | End::Purge)) {
            for sub in ["vcl_hash", "vcl_pass", "vcl_miss", "vcl_hit", "vcl_backend_fetch"] {
                self.sub(sub, request, &mut state);
                state.uncacheable |= state.end.take() == Some(End::Pass);
            }
            let mut aside = state.clone();
            let piped = if end == Some(End::Pipe) { &mut state } else { &mut aside };
            self.sub("vcl_pipe", request, piped);
            self.sub("vcl_backend_response", request, &mut state);
            state.uncacheable |= state.end.take() == Some(End::Pass);
        }
        self.sub("vcl_deliver", request, &mut state);
        state.end = end;
        state
    }

    /// Runs a subroutine, if there is one.
    fn sub(&mut self, name: &str, request: &Request, state: &mut State) {
        state.in_doubt = false;
        let program = self.program;
        if let Some((_, body)) = program.subs.iter().find(|(there, _)| there == name) {
            self.body(body, request, state);
        }
    }

    /// Returns whether the subroutine has ended.
    fn body(&mut self, body: &'p [Stmt], request: &Request, state: &mut State) -> bool {
        for stmt in body {
            self.steps += 1;
            if self.is_exhausted() {
                return true;
            }
            state.ran.insert(stmt.id);
            if self.statement(stmt, request, state) {
                return true;
            }
        }
        false
    }

    fn note(&mut self, stmt: &Stmt, fate: Fate, why: &str) {
        self.note_id(stmt.id, fate, why);
    }

    /// A statement has this fate, if it has no worse one.
    pub(crate) fn note_id(&mut self, id: usize, fate: Fate, why: &str) {
        let Some(there) = self.fates.get_mut(id) else { return };
        if there.as_ref().is_none_or(|(other, _)| *other < fate) {
            *there = Some((fate, why.to_owned()));
        }
    }

    fn statement(&mut self, stmt: &'p Stmt, request: &Request, state: &mut State) -> bool {
        match &stmt.kind {
            Kind::If(arms) => self.branch(stmt, arms, request, state),
            Kind::Call(name) => {
                let found = self.program.subs.iter().find(|(there, _)| there == name);
                let Some((_, body)) = found.filter(|_| self.depth < crate::limits::DEPTH_MAX)
                else {
                    state.unprotected = true;
                    self.note(stmt, Fate::Unprotected, "there is no such subroutine");
                    return false;
                };
                self.note(stmt, Fate::Carried, "");
                self.depth += 1;
                let ended = self.body(body, request, state);
                self.depth -= 1;
                ended
            }
            Kind::Return(words) => {
                let end = self.end(stmt, words, request);
                // What an unknown action would have done with the request is not known.
                state.unprotected |= end.is_none();
                state.end = Some(end.unwrap_or(End::Other));
                true
            }
            Kind::Set(to, value) => {
                self.set(stmt, to, value, request, state);
                false
            }
            Kind::Unset(what) => {
                self.unset(stmt, what, state);
                false
            }
            Kind::Other(name, words) => {
                self.other(stmt, name, words, state);
                false
            }
        }
    }

    fn branch(
        &mut self,
        stmt: &'p Stmt,
        arms: &'p [Arm],
        request: &Request,
        state: &mut State,
    ) -> bool {
        for (at, (condition, body)) in arms.iter().enumerate() {
            self.steps += condition.as_ref().map_or(0, comparisons);
            let truth = condition.as_ref().map_or(Some(true), |one| truth(one, request, state));
            match truth {
                Some(false) => self.note(stmt, Fate::Carried, ""),
                Some(true) => {
                    self.note(stmt, Fate::Carried, "");
                    return self.body(body, request, state);
                }
                None if self.understood(stmt, &arms[at..], request, state) => return false,
                None => {
                    // Only this arm and those after it are not known.
                    let rest: Vec<&Stmt> = arms[at..].iter().flat_map(|(_, b)| b).collect();
                    let is_sign = condition.as_ref().is_some_and(|c| mentions(c, "obj.hits"));
                    if is_sign && rest.iter().all(|one| is_of_response(one)) {
                        let text = "every response has Cache-Status, which says this";
                        self.note(stmt, Fate::Different, text);
                        rest.iter().for_each(|one| self.mark(one, Fate::Different, text));
                        return false;
                    }
                    let mut doubts = self.doubts(&arms[at..]);
                    // A client that is sent to a page for others must not get this page.
                    doubts.refuses |= doubts.answers && doubts.by_others;
                    state.unprotected |= doubts.refuses;
                    state.store_unknown |= doubts.passes;
                    state.in_doubt |= doubts.ends;
                    doubts.fields.iter().for_each(|name| state.hide(name));
                    let fate = if doubts.refuses { Fate::Unprotected } else { Fate::NotCarried };
                    let has = |name| condition.as_ref().is_some_and(|c| mentions(c, name));
                    let ours = match () {
                        () if has("vsthrottle.is_denied") => "; [[quota]] limits rates",
                        () if has("req.http.user-agent") => "; `device = true` is for devices",
                        () if doubts.passes && !doubts.refuses => {
                            "; nothing is stored where it applied"
                        }
                        () => "",
                    };
                    self.note(stmt, fate, &format!("{UNKNOWN}{ours}"));
                    rest.iter().for_each(|one| self.mark(one, Fate::NotCarried, UNKNOWN));
                    return false;
                }
            }
        }
        false
    }

    /// Arms of which the first has a condition that routes do not know, but that our other settings
    /// say. Writes their notes if they are such.
    fn understood(
        &mut self,
        stmt: &'p Stmt,
        arms: &'p [Arm],
        request: &Request,
        state: &mut State,
    ) -> bool {
        let [(Some(condition), body), ..] = arms else { return false };
        if state.in_doubt {
            return false;
        }
        let why = if self.is_late {
            match self.lifetimes(arms, state) {
                Some(why) => why,
                None => return false,
            }
        } else if let ([(_, _)], [only]) = (arms, &body[..])
            && let Kind::Return(words) = &only.kind
            && let Some(part) = store::residue(condition, request, state)
        {
            let is_own = !state.vague.contains("cookie") && !state.request.contains_key("cookie");
            match (words.first(), store::bypass(part)) {
                (Some(Word::Name(pass)), Some((names, exact))) if pass == "pass" && is_own => {
                    names.into_iter().for_each(|name| add(&mut state.keys.bypass, name));
                    if exact { "" } else { COOKIE_NAMES }
                }
                _ => return false,
            }
        } else {
            return false;
        };
        let fate = if why.is_empty() { Fate::Carried } else { Fate::Different };
        self.note(stmt, fate, why);
        let inner: Vec<&Stmt> = arms.iter().flat_map(|(_, body)| body).collect();
        inner.iter().for_each(|one| self.mark(one, Fate::Carried, ""));
        true
    }

    /// Lifetimes, and codings, of responses with some statuses and types.
    fn lifetimes(&self, arms: &[Arm], state: &mut State) -> Option<&'static str> {
        let before = state.keys.lifetimes.clone();
        let usual = before.iter().find(|one| is_usual(one)).cloned().unwrap_or_default();
        let (mut more, mut codes, mut why) = (Vec::new(), state.codes.clone(), "");
        for (condition, body) in arms {
            let of = condition.as_ref().and_then(store::responses)?;
            let apart = |other: &&Lifetime| is_usual(other) || store::are_apart(&of, other);
            if !before.iter().all(|other| apart(&other)) {
                return None;
            }
            let mut one = Lifetime { status: of.status, types: of.types, ..usual.clone() };
            let is_error = one.status.iter().all(|status| status.starts_with(['4', '5']));
            for stmt in body {
                if let Kind::Set(to, value) = &stmt.kind
                    && to == "beresp.do_gzip"
                    && *value == [Word::Name("true".to_owned())]
                    && !one.types.is_empty()
                {
                    let all = codes.get_or_insert_with(Vec::new);
                    one.types.iter().for_each(|kind| add(all, kind.as_str()));
                    why = GZIP;
                    continue;
                }
                why = store::set_of(&stmt.kind, &mut one)?;
                // Without a lifetime it would not be stored at all.
                if one.ttl.is_some_and(|ttl| ttl.is_zero()) && !is_error {
                    return None;
                }
            }
            more.extend((one.ttl.is_some() || one.grace.is_some()).then_some(one));
        }
        more.extend(before);
        (state.keys.lifetimes, state.codes) = (more, codes);
        Some(why)
    }

    /// Gives a statement and all inside it a fate.
    fn mark(&mut self, stmt: &Stmt, fate: Fate, why: &str) {
        self.note(stmt, fate, why);
        if let Kind::If(arms) = &stmt.kind {
            arms.iter().flat_map(|(_, body)| body).for_each(|one| self.mark(one, fate, why));
        }
    }

    fn end(&mut self, stmt: &Stmt, words: &[Word], request: &Request) -> Option<End> {
        let first = match words.first() {
            Some(Word::Name(name)) => name.as_str(),
            _ => "",
        };
        Some(match first {
            "hash" | "lookup" => {
                self.note(stmt, Fate::Carried, "");
                End::Hash
            }
            "pass" => {
                self.note(stmt, Fate::Carried, "");
                End::Pass
            }
            "pipe" => {
                let text = "the request is passed on without the store; its connection is not \
                            handed over";
                self.note(stmt, Fate::Different, text);
                End::Pipe
            }
            "purge" if !self.is_late => {
                self.note(stmt, Fate::Carried, "");
                End::Purge
            }
            "synth" if !self.is_late => {
                let inner = &words[1..];
                let comma = inner.iter().position(|word| *word == Word::Sign(","));
                let reason = comma.map_or(&[][..], |at| &inner[at + 1..]);
                let reason = match reason {
                    [inner @ .., Word::Sign(")")] => inner,
                    all => all,
                };
                let status = status_of(inner).unwrap_or(503);
                let target = text_of(reason, request).filter(|_| self.redirects.contains(&status));
                match target.is_some_and(|(target, _)| target.contains('{')) {
                    true => self.note(stmt, Fate::Different, CAPTURES),
                    false => self.note(stmt, Fate::Carried, ""),
                }
                End::Synth(status, reason.to_vec())
            }
            "deliver" | "fetch" | "ok" | "miss" => {
                self.note(stmt, Fate::Carried, "");
                End::Other
            }
            _ => {
                self.note(stmt, Fate::Unprotected, "this action is not known here, at this time");
                return None;
            }
        })
    }

    fn set(&mut self, stmt: &Stmt, to: &str, value: &[Word], request: &Request, state: &mut State) {
        let field = |prefixes: &[&str]| {
            prefixes.iter().find_map(|prefix| to.strip_prefix(prefix)).map(str::to_owned)
        };
        if matches!(to, "req.backend_hint" | "bereq.backend") {
            let name = match value {
                [Word::Name(name)] => Some(name.as_str()),
                [Word::Name(name), Word::Sign("("), .., Word::Sign(")")] => {
                    name.strip_suffix(".backend")
                }
                _ => None,
            };
            let name = name.filter(|name| self.names.iter().any(|there| there == name));
            state.backend = Some(name.unwrap_or_default().to_owned());
            if state.in_doubt {
                state.unprotected = true;
                return self.note(stmt, Fate::Unprotected, IN_DOUBT);
            }
            return match name {
                Some(_) => self.note(stmt, Fate::Carried, ""),
                None => {
                    let text = "it is no upstream here, so this is answered with 501";
                    self.note(stmt, Fate::NotCarried, text);
                }
            };
        }
        // Only the host and the path of the request itself are captured.
        let text =
            text_of(value, request).filter(|(_, with_path)| !with_path).map(|(text, _)| text);
        let text = text.filter(|text| !text.is_empty());
        let is_plain = matches!(value, [Word::Text(_)]);
        let text = text.filter(|_| is_plain || !state.is_rewritten());
        let has_captures = text.as_ref().is_some_and(|text| text.contains('{')) && !is_plain;
        let fate = if has_captures { Fate::Different } else { Fate::Carried };
        let why = if has_captures { CAPTURES } else { "" };
        if let Some(name) = request_field(to) {
            if self.sends(name) {
                state.hide(name);
                return self.note(stmt, Fate::NotCarried, SENT);
            }
            if let Some(text) = text.filter(|_| is_free(name) && !state.in_doubt) {
                state.request.insert(name.to_owned(), Some(text));
                state.vague.remove(name);
                return self.note(stmt, fate, why);
            }
            return self.set_request(stmt, (to, name), value, state);
        }
        if let Some(name) = field(&["beresp.http.", "resp.http."]) {
            return match text {
                Some(text) if is_free(&name) => {
                    let late = to.starts_with("resp.");
                    if late && is_about_caching(&name) {
                        let text = "it would change stored responses, not only what clients see";
                        return self.note(stmt, Fate::NotCarried, text);
                    }
                    state.response.insert(name, Some(text));
                    self.note(stmt, fate, why);
                }
                _ => self.note(stmt, Fate::NotCarried, "the value is not a fixed text"),
            };
        }
        self.set_variable(stmt, to, value, state);
    }

    /// A variable that is no field and no backend is set.
    fn set_variable(&mut self, stmt: &Stmt, to: &str, value: &[Word], state: &mut State) {
        match to {
            "req.url" | "bereq.url" => {
                let is_known = to == "req.url" && !state.in_doubt;
                if let Some(why) = is_known.then(|| store::query(value, state)).flatten() {
                    let fate = if why.is_empty() { Fate::Carried } else { Fate::Different };
                    return self.note(stmt, fate, why);
                }
                let mentions = |word: &Word| matches!(word, Word::Name(name) if name == to);
                state.store_unknown = true;
                state.vague.insert("req.url".to_owned());
                let text = "URLs are passed on as they are, so nothing is stored";
                // A URL that is replaced, and not only written otherwise, leads elsewhere.
                let fate = match value.iter().any(mentions) {
                    true => Fate::NotCarried,
                    false => Fate::Unprotected,
                };
                state.unprotected |= fate == Fate::Unprotected;
                self.note(stmt, fate, text);
            }
            "beresp.uncacheable" => {
                if value != [Word::Name("true".to_owned())] {
                    return self.note(stmt, Fate::NotCarried, AGES);
                }
                state.uncacheable = true;
                self.note(stmt, Fate::Carried, "");
            }
            "beresp.ttl" if is_zero(value) => {
                state.uncacheable = true;
                self.note(stmt, Fate::Carried, "");
            }
            "beresp.ttl" | "beresp.grace" | "beresp.keep" if !state.in_doubt => {
                let mut usual = Lifetime { status: store::all_statuses(), ..Lifetime::default() };
                let Some(why) = store::set_of(&stmt.kind, &mut usual) else {
                    state.store_unknown |= to == "beresp.ttl";
                    return self.note(stmt, Fate::NotCarried, AGES);
                };
                let list = &mut state.keys.lifetimes;
                // A later statement is for all responses.
                list.iter_mut().for_each(|one| {
                    store::set_of(&stmt.kind, one);
                });
                let is_new = (usual.ttl, usual.grace) != (None, None) && !list.iter().any(is_usual);
                list.extend(is_new.then_some(usual));
                self.note(stmt, Fate::Different, why);
            }
            "beresp.ttl" | "beresp.grace" | "beresp.keep" | "req.grace" | "req.ttl" => {
                self.note(stmt, Fate::NotCarried, AGES);
            }
            "beresp.do_gzip" if *value == [Word::Name("true".to_owned())] => {
                state.codes = Some(Vec::new());
                self.note(stmt, Fate::Different, GZIP);
            }
            "beresp.do_gzip" => {
                state.codes = None;
                self.note(stmt, Fate::Carried, "");
            }
            "beresp.do_gunzip" => {
                let text = "a coded response is decoded for the clients that need it";
                self.note(stmt, Fate::Nothing, text);
            }
            "beresp.do_stream" => self.note(stmt, Fate::Nothing, "bodies are always streamed"),
            "beresp.do_esi" => self.note(stmt, Fate::NotCarried, "ESI is not processed"),
            "resp.status" | "beresp.status" if !matches!(new_status(value), Some(200..=399)) => {
                state.unprotected = true;
                let text = "the status is the upstream's, and clients would not get this response";
                self.note(stmt, Fate::Unprotected, text);
            }
            "resp.reason" | "resp.status" | "beresp.reason" | "beresp.status" => {
                self.note(stmt, Fate::NotCarried, "the status is the upstream's");
            }
            "req.hash_always_miss" => {
                state.store_unknown = true;
                self.note(stmt, Fate::NotCarried, "nothing is stored where it applies");
            }
            "req.hash_ignore_busy" => {
                self.note(stmt, Fate::NotCarried, "requests are always collapsed");
            }
            _ if is_setting(to) || to.starts_with("beresp.") || to.starts_with("resp.") => {
                self.note(stmt, Fate::NotCarried, "there is no such setting");
            }
            _ => {
                state.unprotected = true;
                self.note(stmt, Fate::Unprotected, "this variable is not known here");
            }
        }
    }

    /// A field of the request is set.
    fn set_request(
        &mut self,
        stmt: &Stmt,
        (to, name): (&str, &str),
        value: &[Word],
        state: &mut State,
    ) {
        match value {
            _ if is_normalised_host(to, value) => {
                let text = "hosts are compared in lower case and without ports";
                self.note(stmt, Fate::Nothing, text);
            }
            _ if name == "host" => {
                state.hide("host");
                state.unprotected = true;
                let text = "the client's Host is sent; see .host_header of backends";
                self.note(stmt, Fate::Unprotected, text);
            }
            _ if name == "x-forwarded-for" && self.forwards => {
                let text = "X-Forwarded-For is sent by upstream.forwarded";
                self.note(stmt, Fate::Different, text);
            }
            _ if store::cookie(value).is_some() && !state.in_doubt => {
                let cookie = store::cookie(value).unwrap_or_default();
                // Whether it is part of the key is seen later.
                state.hide(name);
                state.cookies.insert(name.to_owned(), cookie);
                let text = "upstreams are sent the cookie itself, and not in this field";
                self.note(stmt, Fate::Different, text);
            }
            _ => {
                let mentions = |word: &Word| match word {
                    Word::Name(name) => name.eq_ignore_ascii_case(to),
                    _ => false,
                };
                state.hide(name);
                let is_filtered = value.iter().any(mentions) || state.in_doubt;
                if PRIVATE.contains(&name) && !is_filtered {
                    state.request.insert(name.to_owned(), None);
                }
                // Another value can change who gets a response.
                let text = match name {
                    "x-real-ip" | "x-forwarded-for" => {
                        "the value is not a fixed text, so the client's field is removed"
                    }
                    _ => {
                        state.store_unknown = true;
                        "it is not a fixed text for all requests, so the client's field is removed \
                         (a Cookie is left), and nothing is stored"
                    }
                };
                self.note(stmt, Fate::NotCarried, text);
            }
        }
    }

    /// Whether upstreams are sent this field with X-Forwarded-For.
    fn sends(&self, name: &str) -> bool {
        self.forwards && matches!(name, "x-forwarded-proto" | "x-forwarded-host")
    }

    fn unset(&mut self, stmt: &Stmt, what: &str, state: &mut State) {
        let of = |prefixes: [&str; 2]| {
            prefixes.iter().find_map(|prefix| what.strip_prefix(prefix)).map(str::to_owned)
        };
        if let Some(name) = request_field(what) {
            // Requests with some cookies are passed with them, and some are in the key.
            let keeps = !state.keys.bypass.is_empty() || !state.cookies.is_empty();
            if name == "cookie" && keeps && !state.in_doubt {
                state.keys.only_key_cookies = true;
                let text = "requests that the store cannot answer keep their cookies";
                return self.note(stmt, Fate::Different, text);
            }
            if PRIVATE.contains(&name) && state.in_doubt {
                state.vague.insert(name.to_owned());
                state.store_unknown = true;
                return self.note(stmt, Fate::NotCarried, IN_DOUBT);
            }
            if is_free(name) {
                state.request.insert(name.to_owned(), None);
                state.vague.remove(name);
                return match self.sends(name) {
                    true => self.note(stmt, Fate::Different, SENT),
                    false => self.note(stmt, Fate::Carried, ""),
                };
            }
            return self.note(stmt, Fate::Nothing, "fields of one connection are never passed on");
        }
        if let Some(name) = of(["beresp.http.", "resp.http."]) {
            return match name.as_str() {
                "x-varnish" => self.note(stmt, Fate::Nothing, "there is no such field"),
                "via" => {
                    state.response.insert(name, None);
                    self.note(stmt, Fate::Carried, "");
                }
                "age" => self.note(stmt, Fate::NotCarried, "a stored response has its Age"),
                name if has_tags(name) && what.starts_with("resp.") => {
                    self.note(stmt, Fate::Nothing, "clients never get it");
                }
                name if is_about_caching(name) && what.starts_with("resp.") => {
                    let text = "it would change stored responses, not only what clients see";
                    self.note(stmt, Fate::NotCarried, text);
                }
                "set-cookie" if state.in_doubt => self.note(stmt, Fate::NotCarried, IN_DOUBT),
                name if is_free(name) => {
                    state.response.insert(name.to_owned(), None);
                    self.note(stmt, Fate::Carried, "");
                }
                _ => self.note(stmt, Fate::NotCarried, "this field cannot be changed"),
            };
        }
        self.note(stmt, Fate::NotCarried, "this variable is not known here");
    }

    fn other(&mut self, stmt: &Stmt, name: &str, words: &[Word], state: &mut State) {
        let only = match words {
            [Word::Sign("("), Word::Name(name), Word::Sign(")")] => name.to_ascii_lowercase(),
            _ => String::new(),
        };
        match name {
            "hash_data" => match only.as_str() {
                "req.url" | "req.http.host" | "server.ip" => self.note(stmt, Fate::Carried, ""),
                _ if hashed(&only, words, state) && !state.in_doubt => {
                    self.note(stmt, Fate::Carried, "");
                }
                _ => {
                    state.store_unknown = true;
                    self.note(stmt, Fate::NotCarried, KEY);
                }
            },
            "cookie.parse" => self.note(stmt, Fate::Nothing, "cookies are always read"),
            "std.log" | "std.syslog" | "std.collect" => {
                self.note(stmt, Fate::Nothing, "the access log is by request");
            }
            "synthetic" => self.note(stmt, Fate::Different, "the body of an answer is its reason"),
            "ban" | "std.ban" => {
                self.note(stmt, Fate::NotCarried, "use `plimsoll purge` with a prefix or a tag");
            }
            _ if is_harmless(name) => {
                state.store_unknown = true;
                let text = "this function is not known here, so nothing is stored";
                self.note(stmt, Fate::NotCarried, text);
            }
            _ => {
                state.unprotected = true;
                self.note(stmt, Fate::Unprotected, "this function is not known here");
            }
        }
    }
}

/// The status of `synth`.
pub(super) fn status_of(words: &[Word]) -> Option<u64> {
    words.iter().find_map(|word| match word {
        Word::Name(number) => number.parse().ok(),
        _ => None,
    })
}

/// Adds what `hash_data` names to the key. Returns whether it is a field or a cookie.
fn hashed(only: &str, words: &[Word], state: &mut State) -> bool {
    let cookie = match words {
        [Word::Sign("("), inner @ .., Word::Sign(")")] => store::cookie(inner),
        _ => None,
    };
    let name = only.strip_prefix("req.http.").unwrap_or_default();
    let changed = state.vague.contains(name) || state.request.contains_key(name);
    let token = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    match cookie.or_else(|| state.cookies.get(name).cloned()) {
        Some(cookie) => add(&mut state.keys.cookies, cookie),
        None if is_free(name)
            && !PRIVATE.contains(&name)
            && !changed
            && name.bytes().all(token) =>
        {
            let of_conditions = name.starts_with("if-") || name == "range";
            if of_conditions {
                return false;
            }
            add(&mut state.keys.fields, name);
        }
        None => return false,
    }
    true
}

/// Whether a statement changes a field that clients get, and nothing else.
fn is_of_response(stmt: &Stmt) -> bool {
    match &stmt.kind {
        Kind::Set(name, _) | Kind::Unset(name) => name.starts_with("resp.http."),
        _ => false,
    }
}

/// Whether a lifetime is for all responses.
pub(super) fn is_usual(one: &Lifetime) -> bool {
    one.types.is_empty() && one.status.len() == 4
}

const GZIP: &str = "only stored responses are coded, for each client that accepts it";
const SENT: &str = "X-Forwarded-For, -Proto and -Host are sent together, as the client came";
const IN_DOUBT: &str = "a branch that is not carried may end the program before, so it is left out";

/// Variables that are not carried, and keep no request out.
const SETTINGS: &str = "req.url bereq.url req.esi req.esi_level req.grace req.ttl \
    req.hash_always_miss req.hash_ignore_busy client.identity bereq.connect_timeout \
    bereq.first_byte_timeout bereq.between_bytes_timeout";

pub(super) fn is_setting(name: &str) -> bool {
    SETTINGS.split(' ').any(|one| one == name)
}

/// Functions that keep no request out. Any other could.
pub(super) fn is_harmless(name: &str) -> bool {
    let known = ["synthetic", "ban", "std.log", "std.syslog", "std.collect", "std.cache_req_body"];
    known.contains(&name) || name.starts_with("cookie.") || name.starts_with("header.")
}

/// The client's Host in lower case, or without its port.
pub(super) fn is_normalised_host(to: &str, value: &[Word]) -> bool {
    let is_host = |word: &Word| matches!(word, Word::Name(name) if name.eq_ignore_ascii_case(to));
    if request_field(to) != Some("host") {
        return false;
    }
    match value {
        [Word::Name(lower), Word::Sign("("), host, Word::Sign(")")] => {
            lower == "std.tolower" && is_host(host)
        }
        [
            Word::Name(regsub),
            Word::Sign("("),
            host,
            Word::Sign(","),
            Word::Text(pattern),
            Word::Sign(","),
            Word::Text(empty),
            Word::Sign(")"),
        ] => {
            let ports = [":[0-9]+", ":[0-9]+$", r":\d+", r":\d+$"];
            let is_port = ports.contains(&pattern.as_str()) && empty.is_empty();
            regsub == "regsub" && is_host(host) && is_port
        }
        _ => false,
    }
}

/// Whether the program replaces X-Forwarded-For, instead of adding to it as Varnish does.
pub(crate) fn replaces_forwarded(program: &Program) -> bool {
    fn in_body(body: &[Stmt]) -> bool {
        body.iter().any(|stmt| match &stmt.kind {
            Kind::Set(to, value) => is_forwarded(to) && !adds(value),
            Kind::Unset(what) => is_forwarded(what),
            // In one arm it is added to, and in the other there is none.
            Kind::If(arms) => {
                let added = |stmt: &Stmt| match &stmt.kind {
                    Kind::Set(to, value) => is_forwarded(to) && adds(value),
                    _ => false,
                };
                !arms.iter().any(|(_, body)| body.iter().any(added))
                    && arms.iter().any(|(_, body)| in_body(body))
            }
            _ => false,
        })
    }
    program.subs.iter().any(|(_, body)| in_body(body))
}

fn is_forwarded(variable: &str) -> bool {
    request_field(variable) == Some("x-forwarded-for")
}

fn adds(value: &[Word]) -> bool {
    let is =
        |word: &Word| matches!(word, Word::Name(name) if is_forwarded(&name.to_ascii_lowercase()));
    value.iter().any(is)
}

fn is_zero(value: &[Word]) -> bool {
    match value {
        [Word::Name(number)] => number.trim_end_matches(|c: char| c.is_ascii_alphabetic()) == "0",
        _ => false,
    }
}
