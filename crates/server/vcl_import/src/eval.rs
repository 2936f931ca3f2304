//! What the subroutines do with a request, by running them.
//!
//! VCL is a program. Our routes are chosen by host and path, in any order. So the program is run
//! for one request of each *cell*, a host and a path that conditions name. The result becomes the
//! route of the cell.
//!
//! A condition on anything else is a question, if our file can ask it: the program is run for both
//! answers ([`super::cases`]). Conditions on responses become rules ([`super::responses`]). Any
//! other condition is unknown, and no statement inside it is carried:
//!
//! - If a statement inside kept requests out or sent them elsewhere, the cell is closed.
//! - If it kept responses out of the store, the cell stores nothing.
//! - If it changed a field of the request, the client's own field is removed.
//! - If it could end the subroutine, later statements are in doubt. A statement in doubt is carried
//!   only if that opens nothing.

use super::Run;
use super::cases::Questions;
use super::conditions::{comparisons, mentions, truth};
use super::doubts::{is_harmless, is_normalised_host, is_setting, new_status, status_of};
use super::filters::{self, Filter};
use super::lexer::{Word, call};
use super::parser::{Arm, Expr, Kind, Program, Stmt};
use super::state::{End, PRIVATE, Request, State, request_field, response_field};
use super::store;
use super::texts::{CLIENT, text_of};
use super::translate;
use imported::cel;
use imported::fields::{has_tags, is_about_caching, is_free};
use imported::note::Fate;
use imported::pattern::COOKIE_NAMES;
use imported::route::{CAPTURES, Lifetime, add, all_statuses};
use imported::table::Becomes::{self, Carried, Different, Left, Nothing, Text, Unprotected};

/// The limit on statements and comparisons that are run, for all cells together.
const STEPS_MAX: usize = 1_000_000;

const UNKNOWN: &str = "its condition is not carried: our file cannot ask it here";
const FILTERED: &str = "whether other cookies are there is a condition; a request that is passed \
                        has all its cookies";
const KEY: &str = "none of our keys has this, so nothing is stored (a class of devices is \
                   `device = true`)";
const AGES: &str = "lifetimes are by status and by content type";

impl<'p> Run<'p> {
    /// Whether too much was run.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.steps > STEPS_MAX
    }

    /// Runs the program for a request. The end is that of `vcl_recv`.
    pub(crate) fn run(&mut self, request: Request) -> State {
        self.run_asking(request, Questions::default())
    }

    /// Runs the program for a request, and asks questions.
    pub(super) fn run_asking(&mut self, request: Request, questions: Questions) -> State {
        let mut state = State { asked: request, questions, ..State::default() };
        self.is_late = false;
        self.sub("vcl_recv", &mut state);
        let mut end = state.end.take();
        let may_be_stored = matches!(state.asked.method.as_str(), "GET" | "HEAD");
        state.is_passed = end.is_none() && !may_be_stored;
        if end.is_none() && may_be_stored {
            end = self.builtin(&mut state);
        }
        state.is_anonymous = PRIVATE.iter().all(|name| state.is_no_reason_to_pass(name));
        state.is_passed |= matches!(end, Some(End::Pass | End::Pipe));
        if end == Some(End::Purge) && self.program.purges_on_hit {
            // In Varnish 3 the subroutine for stored responses decides.
            self.sub("vcl_hit", &mut state);
            state.unprotected |= state.in_doubt;
            state.end = None;
            if !state.is_purged {
                end = Some(End::Other);
            }
        }
        self.is_late = true;
        if !matches!(end, Some(End::Synth(..) | End::Purge)) {
            for sub in ["vcl_hash", "vcl_pass", "vcl_miss", "vcl_hit", "vcl_backend_fetch"] {
                let has_run = state.asked.method == "PURGE" && self.program.purges_on_hit;
                if sub == "vcl_hit" && (has_run || self.only_grace()) {
                    continue;
                }
                self.sub(sub, &mut state);
                state.uncacheable |= state.end.take() == Some(End::Pass);
            }
            let mut aside = state.clone();
            let piped = if end == Some(End::Pipe) { &mut state } else { &mut aside };
            self.sub("vcl_pipe", piped);
            if end != Some(End::Pipe) {
                self.sub("vcl_backend_response", &mut state);
            }
            state.uncacheable |= state.end.take() == Some(End::Pass);
        }
        self.sub("vcl_deliver", &mut state);
        state.end = end;
        state
    }

    /// Runs a subroutine, if there is one.
    fn sub(&mut self, name: &'static str, state: &mut State) {
        state.in_doubt = false;
        self.in_sub = name;
        self.enclosing.clear();
        self.ended.clear();
        if let Some(body) = self.program.sub(name) {
            self.body(body, state);
        }
    }

    /// Returns whether the subroutine has ended.
    fn body(&mut self, body: &'p [Stmt], state: &mut State) -> bool {
        for stmt in body {
            self.steps += 1;
            if self.is_exhausted() {
                return true;
            }
            state.ran.insert(stmt.id);
            self.now = stmt.id;
            if self.statement(stmt, state) {
                return true;
            }
        }
        false
    }

    /// Records what a statement became. Of two fates the worse is kept.
    pub(super) fn note(&mut self, stmt: &Stmt, becomes: &Becomes) {
        if let Some((fate, why)) = becomes.parts() {
            self.note_id(stmt.id, fate, why);
        }
    }

    /// Records the fate of a statement. Of two fates the worse is kept.
    pub(crate) fn note_id(&mut self, id: usize, fate: Fate, why: &str) {
        let Some(there) = self.fates.get_mut(id) else { return };
        if there.as_ref().is_none_or(|(other, _)| *other < fate) {
            *there = Some((fate, why.to_owned()));
        }
    }

    fn statement(&mut self, stmt: &'p Stmt, state: &mut State) -> bool {
        let (mut ended, mut becomes) = (false, Carried);
        match &stmt.kind {
            Kind::If(arms) => return self.branch(stmt, arms, state),
            Kind::Call(name) => match self.program.sub(name) {
                Some(body) if self.depth < imported::limits::DEPTH_MAX => {
                    self.depth += 1;
                    ended = self.body(body, state);
                    self.depth -= 1;
                }
                _ => becomes = Unprotected("there is no such subroutine"),
            },
            Kind::Return(words) => {
                let end;
                (end, becomes) = self.end(words, &state.asked);
                (state.end, ended) = (Some(end), true);
            }
            Kind::Set(to, value) => {
                let after_end = self.after_end(stmt, state);
                becomes = after_end.unwrap_or_else(|| self.set(to, value, state));
            }
            Kind::Unset(what) => {
                let after_end = self.after_end(stmt, state);
                becomes = after_end.unwrap_or_else(|| self.unset(what, state));
            }
            Kind::Other(name, words) => becomes = self.other(name, words, state),
        }
        state.unprotected |= matches!(becomes, Unprotected(_));
        self.note(stmt, &becomes);
        ended
    }

    fn branch(&mut self, stmt: &'p Stmt, arms: &'p [Arm], state: &mut State) -> bool {
        if let Some(becomes) = self.simple(arms, state) {
            self.mark(stmt, &becomes);
            return false;
        }
        let outer = self.enclosing.len();
        let ended = self.arms(stmt, arms, state);
        self.enclosing.truncate(outer);
        self.leave_arms(arms);
        ended
    }

    fn arms(&mut self, stmt: &'p Stmt, arms: &'p [Arm], state: &mut State) -> bool {
        for (at, (condition, body)) in arms.iter().enumerate() {
            self.steps += condition.as_ref().map_or(0, |one| comparisons(one).len());
            match condition.as_ref().map_or(Some(true), |one| truth(one, state)) {
                Some(false) => self.note(stmt, &Carried),
                Some(true) => {
                    self.note(stmt, &Carried);
                    self.enter_arm(arms, at);
                    return self.body(body, state);
                }
                // Without the field there is nothing to remove.
                None if removes_what_is_there(arms) => {
                    self.note(stmt, &Carried);
                    return self.body(body, state);
                }
                // Only this arm and those after it are not known.
                None => {
                    let is_understood = !self.is_late && self.bypass(&arms[at..], state).is_some();
                    if self.is_about_cookies(arms, state) {
                        self.note(stmt, &Carried);
                        return self.body(body, state);
                    }
                    if !is_understood
                        && let Some(condition) = condition
                        && let Some(holds) =
                            self.decide(stmt, condition, (body, &arms[at..]), state)
                    {
                        if !holds {
                            continue;
                        }
                        self.enter_arm(arms, at);
                        return self.body(body, state);
                    }
                    let (becomes, inside) = match self.understood(&arms[at..], state) {
                        Some(becomes) => (becomes, Carried),
                        None if self.of_response(stmt.id, arms, state) => (Carried, Carried),
                        None => self.unknown(&arms[at..], state),
                    };
                    self.note(stmt, &becomes);
                    let inner = arms[at..].iter().flat_map(|(_, body)| body);
                    inner.for_each(|one| self.mark(one, &inside));
                    return false;
                }
            }
        }
        false
    }

    /// What becomes of arms whose first condition is unknown, and of the statements inside.
    fn unknown(&mut self, arms: &[Arm], state: &mut State) -> (Becomes, Becomes) {
        let has = |name| arms[0].0.as_ref().is_some_and(|condition| mentions(condition, name));
        if has("obj.hits") && arms.iter().flat_map(|(_, body)| body).all(is_of_response) {
            let becomes = Different("every response has Cache-Status, which says this");
            return (becomes.clone(), becomes);
        }
        let mut doubts = self.doubts(arms);
        // The original may send this client to another page, so it must not get this page.
        doubts.refuses |= doubts.answers && doubts.by_others;
        state.unprotected |= doubts.refuses;
        state.store_unknown |= doubts.passes;
        state.in_doubt |= doubts.ends;
        doubts.fields.iter().for_each(|name| state.hide(name));
        let fate = if doubts.refuses { Fate::Unprotected } else { Fate::NotCarried };
        let ours = match () {
            () if has("vsthrottle.is_denied") => "; [[quota]] limits rates",
            () if has("req.http.user-agent") => "; `device = true` is for devices",
            () if doubts.passes && !doubts.refuses => "; nothing is stored where it applied",
            () => "",
        };
        (Text(fate, format!("{UNKNOWN}{ours}")), Left(UNKNOWN))
    }

    /// What becomes of arms whose first condition is unknown to routes, but that our other settings
    /// can express. Returns `None` if they cannot.
    fn understood(&self, arms: &[Arm], state: &mut State) -> Option<Becomes> {
        if state.in_doubt {
            return None;
        }
        if self.is_late {
            return self.lifetimes(arms, state).map(Becomes::differs);
        }
        let (names, exact) = self.bypass(arms, state)?;
        names.into_iter().for_each(|name| add(&mut state.keys.bypass, name));
        Some(Becomes::differs(if exact { "" } else { COOKIE_NAMES }))
    }

    /// The cookies with which a request is passed, if these arms do nothing else.
    fn bypass(&self, arms: &[Arm], state: &mut State) -> Option<(Vec<String>, bool)> {
        let [(Some(condition), body)] = arms else { return None };
        let [Stmt { kind: Kind::Return(words), .. }] = &body[..] else { return None };
        let (names, exact) = store::bypass(store::residue(condition, state)?)?;
        let is_own = state.is_own("cookie") && state.filter.is_none();
        let passes = matches!(words.first(), Some(Word::Name(name)) if name == "pass");
        // Without a later change, all requests with a cookie are passed anyway.
        (is_own && passes && !state.in_doubt).then_some((names, exact))
    }

    /// Whether a condition asks only whether there are cookies, and its body does nothing without
    /// cookies: it passes requests with some cookies, and removes the field.
    fn is_about_cookies(&self, arms: &[Arm], state: &mut State) -> bool {
        let [(Some(condition), body)] = arms else { return false };
        let names = comparisons(condition);
        let asks = matches!(names[..], [Expr::Is(name)] if name == "req.http.cookie");
        let mut is_of_cookies = |one: &Stmt| match &one.kind {
            Kind::Unset(what) => request_field(what) == Some("cookie"),
            Kind::If(arms) => self.bypass(arms, state).is_some(),
            _ => false,
        };
        asks && !self.is_late
            && !is_negated(condition)
            && !body.is_empty()
            && body.iter().all(&mut is_of_cookies)
    }

    /// Asks whether a condition holds that is not known for the cell. `None`: our file cannot say.
    fn decide(
        &mut self,
        stmt: &Stmt,
        condition: &Expr,
        (body, arms): (&[Stmt], &[Arm]),
        state: &mut State,
    ) -> Option<bool> {
        if self.is_late && !is_of_request(condition) || state.in_doubt {
            return None;
        }
        // A field that is not there is removed.
        let is_idle = |one: &Stmt| match &one.kind {
            Kind::Unset(what) => request_field(what).is_some_and(|name| state.lacks(name)),
            _ => false,
        };
        if arms.len() == 1 && !body.is_empty() && body.iter().all(is_idle) {
            [stmt].into_iter().chain(body).for_each(|one| self.note(one, &Carried));
            return Some(false);
        }
        let doubts = self.doubts(arms);
        let is_loose = !doubts.refuses && !doubts.answers;
        let (condition, why) =
            translate::condition(condition, state, &self.program.lists, is_loose)?;
        // Only what clients get of a stored response depends on it, or the key does.
        let is_of_client = || cel::check(&condition, &self.lists).is_none_or(cel::is_of_client);
        if matches!(self.in_sub, "vcl_deliver" | "vcl_hash") && is_of_client() {
            return None;
        }
        let holds = self.ask(&condition, Some(stmt.id), state)?;
        if let Some(some) = state.filter.as_ref().and_then(Filter::leaves_some)
            && (condition == some && !holds || condition == some.negated() && holds)
        {
            state.empty.insert("cookie".to_owned());
        }
        self.note(stmt, &if why.is_empty() { Carried } else { Left(why) });
        Some(holds)
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
                let Kind::Set(to, value) = &stmt.kind else { return None };
                let is_true = *value == [Word::Name("true".to_owned())];
                if to == "beresp.do_gzip" && is_true && !one.types.is_empty() {
                    let all = codes.get_or_insert_with(Vec::new);
                    one.types.iter().for_each(|kind| add(all, kind.as_str()));
                    why = GZIP;
                    continue;
                }
                why = store::set_of(to, value, &mut one)?;
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

    /// A statement, and all inside it, becomes this.
    pub(super) fn mark(&mut self, stmt: &Stmt, becomes: &Becomes) {
        self.note(stmt, becomes);
        if let Kind::If(arms) = &stmt.kind {
            arms.iter().flat_map(|(_, body)| body).for_each(|one| self.mark(one, becomes));
        }
    }

    fn end(&self, words: &[Word], request: &Request) -> (End, Becomes) {
        let first = match words.first() {
            Some(Word::Name(name)) => name.as_str(),
            _ => "",
        };
        let end = match first {
            "lookup" if self.program.purges_on_hit && request.method == "PURGE" => End::Purge,
            "hash" | "lookup" => End::Hash,
            "pass" | "hit_for_pass" => End::Pass,
            "pipe" => {
                let text = "the request is passed on without the store; its connection is not \
                            handed over";
                return (End::Pipe, Different(text));
            }
            "purge" if !self.is_late => End::Purge,
            "synth" if !self.is_late => {
                let inner = &words[1..];
                let comma = inner.iter().position(|word| *word == Word::Sign(","));
                let reason = comma.map_or(&[][..], |at| &inner[at + 1..]);
                let reason = match reason {
                    [inner @ .., Word::Sign(")")] => inner,
                    all => all,
                };
                let status = status_of(inner).unwrap_or(503);
                let target =
                    text_of(reason, request).filter(|_| self.redirects.contains_key(&status));
                let has_captures = target.is_some_and(|(target, _)| target.contains('{'));
                let becomes = if has_captures { Different(CAPTURES) } else { Carried };
                return (End::Synth(status, reason.to_vec()), becomes);
            }
            "deliver" | "fetch" | "ok" | "miss" => End::Other,
            _ => return (End::Other, Unprotected("this action is not known here, at this time")),
        };
        (end, Carried)
    }

    fn set(&self, to: &str, value: &[Word], state: &mut State) -> Becomes {
        if matches!(to, "req.backend_hint" | "bereq.backend") {
            return self.set_backend(value, state);
        }
        // Only the host and the path of the request itself are captured.
        let text =
            text_of(value, &state.asked).filter(|(_, with_path)| !with_path).map(|(text, _)| text);
        let is_plain = matches!(value, [Word::Text(_)]);
        let text = text.filter(|text| !text.is_empty() && (is_plain || !state.is_rewritten()));
        let has_captures = text.as_ref().is_some_and(|text| text.contains('{')) && !is_plain;
        let becomes = if has_captures { Different(CAPTURES) } else { Carried };
        if let Some(name) = request_field(to) {
            if let Some(text) = text.filter(|_| is_free(name) && !state.in_doubt) {
                state.request.insert(name.to_owned(), Some(text));
                state.defaults.remove(name);
                state.vague.remove(name);
                return becomes;
            }
            return self.set_request((to, name), value, state);
        }
        if to == "beresp.ttl" && self.has_rule_with_ttl(self.now) {
            state.store_unknown = true;
            return Left("an earlier condition of the program sets it for some responses");
        }
        let Some(name) = response_field(to) else { return set_variable(to, value, state) };
        match text.filter(|_| is_free(name)) {
            Some(_) if to.starts_with("resp.") && is_about_caching(name) => Left(STORED),
            Some(text) if text.contains(CLIENT) => Left("a stored response is for all clients"),
            Some(text) => {
                state.response.insert(name.to_owned(), Some(text));
                becomes
            }
            None => Left("the value is not a fixed text"),
        }
    }

    fn set_backend(&self, value: &[Word], state: &mut State) -> Becomes {
        let name = match value {
            [Word::Name(name)] => Some(name.as_str()),
            [Word::Name(name), Word::Sign("("), .., Word::Sign(")")] => {
                name.strip_suffix(".backend")
            }
            _ => None,
        };
        let name = name.filter(|name| self.names.iter().any(|there| there == name));
        state.backend = Some(name.unwrap_or_default().to_owned());
        match name {
            _ if state.in_doubt => Unprotected(IN_DOUBT),
            Some(_) => Carried,
            None => Left("it is no upstream here, so this is answered with 501"),
        }
    }

    /// A field of the request is set.
    fn set_request(&self, (to, name): (&str, &str), value: &[Word], state: &mut State) -> Becomes {
        if is_normalised_host(to, value) {
            return Nothing("hosts are compared in lower case and without ports");
        }
        if name == "host" {
            state.hide("host");
            let fixed = match value {
                [Word::Text(text)] if is_host(text) && !state.in_doubt => Some(text),
                _ => None,
            };
            // Two hosts with the same letters would have one upstream.
            let taken = |one: &&String| {
                let same = |(_, other): &&(String, String)| {
                    super::sends("", other) == super::sends("", one)
                };
                self.sent_hosts.iter().any(|other| same(&other) && other.1 != **one)
            };
            if let Some(host) = fixed.filter(|one| !taken(one)) {
                state.host = Some(host.clone());
                return Different("upstreams are sent this host; the key has the client's host");
            }
            return Unprotected("the client's Host is sent; see .host_header of backends");
        }
        if matches!(name, "connection" | "keep-alive" | "upgrade" | "te" | "proxy-connection") {
            return Nothing(OF_CONNECTION);
        }
        if name == "x-forwarded-for" && self.forwards {
            return Different("X-Forwarded-For is sent by upstream.forwarded");
        }
        if name == "cookie" && is_part_of(value, to) && !state.in_doubt && state.lacks(name) {
            // The field is made, and nothing is in it.
            state.request.remove(name);
            state.empty.insert(name.to_owned());
            state.filter = Some(Filter::Without(Vec::new()));
            return Carried;
        }
        if name == "cookie" && !state.in_doubt && state.is_own(name) && !state.empty.contains(name)
        {
            state.filter = filters::filtered(to, value, state.filter.as_ref());
            if state.filter.is_some() {
                return Different(FILTERED);
            }
        }
        if name == "cookie" && is_part_of(value, to) && !state.in_doubt {
            // Without cookies, nothing is left after the substitution.
            let has_cookies = cel::has_field(name);
            let is_own = state.is_own(name);
            let is_there = match has_cookies.filter(|_| is_own && !state.empty.contains(name)) {
                Some(condition) => self.ask(&condition, None, state),
                None => Some(!state.empty.contains(name)),
            };
            if is_there == Some(false) {
                state.empty.insert(name.to_owned());
                return Carried;
            }
        }
        state.hide(name);
        if let Some(cookie) = store::cookie(value).filter(|_| !state.in_doubt) {
            // Whether it is part of the key is seen later.
            state.cookies.insert(name.to_owned(), cookie);
            return Different("upstreams are sent the cookie itself, and not in this field");
        }
        let mentions = |word: &Word| match word {
            Word::Name(name) => name.eq_ignore_ascii_case(to),
            _ => false,
        };
        let is_filtered = value.iter().any(mentions) || state.in_doubt;
        if PRIVATE.contains(&name) && !is_filtered {
            state.request.insert(name.to_owned(), None);
        }
        if matches!(name, "x-real-ip" | "x-forwarded-for") {
            return Left("the value is not a fixed text, so the client's field is removed");
        }
        // The new value can decide which client gets a response.
        state.store_unknown = true;
        Left(
            "it is not a fixed text for all requests, so the client's field is removed (a Cookie \
             is left), and nothing is stored",
        )
    }

    /// A call of a function.
    fn other(&self, name: &str, words: &[Word], state: &mut State) -> Becomes {
        match name {
            "purge" if state.asked.method == "PURGE" && self.program.purges_on_hit => {
                state.is_purged = true;
                Carried
            }
            "hash_data" if self.hashed(words, state) => Carried,
            "hash_data" => {
                state.store_unknown = true;
                Left(KEY)
            }
            "cookie.parse" => Nothing("cookies are always read"),
            "std.log" | "std.syslog" | "std.collect" => Nothing("the access log is by request"),
            "synthetic" => Different("the body of an answer is its reason"),
            "ban" | "std.ban" => Left("use `plimsoll purge` with a prefix or a tag"),
            _ if is_harmless(name) => {
                state.store_unknown = true;
                Left("this function is not known here, so nothing is stored")
            }
            _ => Unprotected("this function is not known here"),
        }
    }

    /// Adds what `hash_data` names to the key. Returns whether the key has it.
    pub(super) fn hashed(&self, words: &[Word], state: &mut State) -> bool {
        let (only, cookie) = match words {
            [Word::Sign("("), inner @ .., Word::Sign(")")] => match inner {
                [Word::Name(name)] => (name.to_ascii_lowercase(), None),
                _ => (String::new(), store::cookie(inner)),
            },
            _ => (String::new(), None),
        };
        if is_fixed_text(words)
            || matches!(only.as_str(), "req.url" | "req.http.host" | "server.ip")
        {
            return true;
        }
        let name = only.strip_prefix("req.http.").unwrap_or_default();
        let changed = state.vague.contains(name) || state.request.contains_key(name);
        let token = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        let is_own = is_free(name) && !PRIVATE.contains(&name) && !changed;
        let of_conditions = name.starts_with("if-") || name == "range";
        match cookie.or_else(|| state.cookies.get(name).cloned()) {
            Some(cookie) => add(&mut state.keys.cookies, cookie),
            None if is_own && name.bytes().all(token) && !of_conditions => {
                add(&mut state.keys.fields, name);
            }
            None => return false,
        }
        !state.in_doubt
    }

    fn unset(&self, what: &str, state: &mut State) -> Becomes {
        if let Some(name) = request_field(what) {
            // Requests with some cookies are passed with them, and some are in the key.
            let keeps = !state.keys.bypass.is_empty() || !state.cookies.is_empty();
            if name == "cookie" && keeps && !state.in_doubt {
                state.keys.only_key_cookies = true;
                return Different("requests that the store cannot answer keep their cookies");
            }
            if PRIVATE.contains(&name) && state.in_doubt {
                state.vague.insert(name.to_owned());
                state.store_unknown = true;
                return Left(IN_DOUBT);
            }
            if !is_free(name) {
                return Nothing(OF_CONNECTION);
            }
            state.request.insert(name.to_owned(), None);
            state.defaults.remove(name);
            state.vague.remove(name);
            state.empty.remove(name);
            if name == "cookie" {
                state.filter = None;
            }
            return Carried;
        }
        let Some(name) = response_field(what) else {
            return Left("this variable is not known here");
        };
        let is_late = what.starts_with("resp.");
        match name {
            "x-varnish" => Nothing("there is no such field"),
            "age" => Left("a stored response has its Age"),
            _ if is_late && has_tags(name) => Nothing("clients never get it"),
            _ if is_late && is_about_caching(name) => Left(STORED),
            "set-cookie" if state.in_doubt => Left(IN_DOUBT),
            _ if state.in_doubt && is_about_caching(name) => Left(IN_DOUBT),
            _ if name == "via" || is_free(name) => {
                state.response.insert(name.to_owned(), None);
                Carried
            }
            _ => Left("this field cannot be changed"),
        }
    }
}

/// `if (req.http.X) { unset req.http.X; }`
fn removes_what_is_there(arms: &[Arm]) -> bool {
    let [(Some(condition), body)] = arms else { return false };
    let [Expr::Is(name)] = comparisons(condition)[..] else { return false };
    let is_removed = |stmt: &Stmt| matches!(&stmt.kind, Kind::Unset(what) if what == name);
    !is_negated(condition) && !body.is_empty() && body.iter().all(is_removed)
}

/// Whether a condition reads only the request.
fn is_of_request(expr: &Expr) -> bool {
    comparisons(expr).iter().all(|one| match one {
        Expr::Compare(name, ..) | Expr::Is(name) => {
            name.strip_prefix("be").unwrap_or(name).starts_with("req.")
        }
        _ => false,
    })
}

/// Whether a text is a name of a host, with a port if it has one.
fn is_host(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:".contains(&b))
}

/// Whether a condition has a negation.
pub(super) fn is_negated(expr: &Expr) -> bool {
    match expr {
        Expr::Or(all) | Expr::And(all) => all.iter().any(is_negated),
        Expr::Not(_) => true,
        _ => false,
    }
}

/// A substitution in the field itself: `regsuball(req.http.Cookie, "…", "…")`.
fn is_part_of(value: &[Word], field: &str) -> bool {
    let is_field =
        |word: &Word| matches!(word, Word::Name(name) if name.eq_ignore_ascii_case(field));
    call(value).is_some_and(|(name, arguments)| {
        name.starts_with("regsub") && arguments.first().is_some_and(|one| is_field(one))
    })
}

/// A variable that is no field and no backend is set.
fn set_variable(to: &str, value: &[Word], state: &mut State) -> Becomes {
    let is_true = *value == [Word::Name("true".to_owned())];
    match to {
        "req.url" | "bereq.url" => set_url(to, value, state),
        "beresp.uncacheable" if !is_true => Left(AGES),
        "beresp.uncacheable" => {
            state.uncacheable = true;
            Carried
        }
        "beresp.ttl" if is_zero(value) => {
            state.uncacheable = true;
            Carried
        }
        "beresp.ttl" | "beresp.grace" | "beresp.keep" if !state.in_doubt => {
            set_lifetime(to, value, state)
        }
        "beresp.ttl" | "beresp.grace" | "beresp.keep" | "req.grace" | "req.ttl" => Left(AGES),
        "beresp.do_gzip" => {
            state.codes = is_true.then(Vec::new);
            if is_true { Different(GZIP) } else { Carried }
        }
        "beresp.do_gunzip" => Nothing("a coded response is decoded for the clients that need it"),
        "beresp.do_stream" => Nothing("bodies are always streamed"),
        "beresp.do_esi" => Left("ESI is not processed"),
        "resp.status" | "beresp.status" if !matches!(new_status(value), Some(200..=399)) => {
            Unprotected("the status is the upstream's, and clients would not get this response")
        }
        "resp.reason" | "resp.status" | "beresp.reason" | "beresp.status" => {
            Left("the status is the upstream's")
        }
        "req.hash_always_miss" => {
            state.store_unknown = true;
            Left("nothing is stored where it applies")
        }
        "req.hash_ignore_busy" => Left("requests are always collapsed"),
        _ if is_setting(to) || to.starts_with("beresp.") || to.starts_with("resp.") => {
            Left("there is no such setting")
        }
        _ => Unprotected("this variable is not known here"),
    }
}

fn set_url(to: &str, value: &[Word], state: &mut State) -> Becomes {
    let is_known = to == "req.url" && !state.in_doubt && !state.vague.contains("req.url");
    if let Some(why) = is_known.then(|| store::query(value, state)).flatten() {
        return Becomes::differs(why);
    }
    let mentions = |word: &Word| matches!(word, Word::Name(name) if name == to);
    state.store_unknown = true;
    state.vague.insert("req.url".to_owned());
    let why = "URLs are passed on as they are, so nothing is stored";
    // A URL that is replaced, and not only written otherwise, leads elsewhere.
    if value.iter().any(mentions) { Left(why) } else { Unprotected(why) }
}

/// A lifetime of all responses.
fn set_lifetime(to: &str, value: &[Word], state: &mut State) -> Becomes {
    let mut usual = Lifetime { status: all_statuses(), ..Lifetime::default() };
    let found = store::set_of(to, value, &mut usual);
    let Some(why) = found.filter(|_| to != "beresp.ttl" || !state.has_expired) else {
        state.store_unknown |= to == "beresp.ttl";
        return Left(AGES);
    };
    let list = &mut state.keys.lifetimes;
    // A later statement is for all responses.
    for one in &mut *list {
        store::set_of(to, value, one);
    }
    let is_new = (usual.ttl, usual.grace) != (None, None) && !list.iter().any(is_usual);
    list.extend(is_new.then_some(usual));
    Different(why)
}

/// `("TEXT")`
pub(super) fn is_fixed_text(words: &[Word]) -> bool {
    matches!(words, [Word::Sign("("), Word::Text(_), Word::Sign(")")])
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

const STORED: &str = "it would change stored responses, not only what clients see";
const GZIP: &str = "only stored responses are coded, for each client that accepts it";
pub(super) const OF_CONNECTION: &str = "fields of one connection are never passed on";
const IN_DOUBT: &str = "a branch that is not carried may end the program before, so it is left out";

/// Whether the program replaces X-Forwarded-For, instead of adding to it as Varnish does.
pub(crate) fn replaces_forwarded(program: &Program) -> bool {
    fn in_body(body: &[Stmt]) -> bool {
        body.iter().any(|stmt| match &stmt.kind {
            Kind::Set(to, value) => is_forwarded(to) && !adds(value),
            Kind::Unset(what) => is_forwarded(what),
            // One arm adds to the field, and the other arm sets it for clients without the field.
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
