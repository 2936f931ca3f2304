//! `http-request`, `redirect` and their like: rules of our file.
//!
//! HAProxy runs the rules of the frontend in their order, chooses a backend, and runs its rules.
//! The first that ends a request wins, as of our rules the first that leads somewhere. Changes to
//! fields are collected, because ours do not see each other: a change is written with the condition
//! that no later change of the field replaces it ([`Haproxy::changes`]).

use std::collections::HashSet;

use imported::Parsed;
use imported::cel::{self, Cel};
use imported::fields::is_free;
use imported::note::{Fate, Place};
use imported::route::{Action, has_value};
use imported::table::Becomes::{self, Carried, Different, Left, Text, Unprotected};
use imported::tree::{Section, Value};

use crate::acl::{Acls, Context, parts};
use crate::bounds::{Is, Test};
use crate::lines::Line;
use crate::{Haproxy, Proxy};

/// What a change does to a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Set,
    Add,
    Remove,
}

/// A change to a field of requests or responses.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) at: Place,
    pub(crate) test: Test,
    /// The section, by its number.
    pub(crate) of: usize,
    pub(crate) is_front: bool,
    pub(crate) op: Op,
    pub(crate) name: String,
    pub(crate) value: String,
    /// Whether its line has no condition.
    pub(crate) is_plain: bool,
}

impl Change {
    /// The change of a line, whose words are not read yet.
    fn of(line: &Line, test: Test, proxy: &Proxy<'_>) -> Change {
        Change {
            at: line.at.clone(),
            test,
            of: proxy.at,
            is_front: proxy.is_front,
            op: Op::Remove,
            name: String::new(),
            value: String::new(),
            is_plain: line.split().1.is_empty(),
        }
    }
}

/// A rule's own action in our file.
pub(crate) enum End {
    Answer {
        status: u64,
        body: String,
        fields: Vec<(&'static str, String)>,
    },
    Redirect(Action),
    /// It is not carried.
    Closed,
}

/// HAProxy's page with the status 200.
fn ready() -> End {
    let fields = [("Content-Type", "text/html"), ("Cache-Control", "no-cache")];
    let fields = fields.map(|(name, value)| (name, value.to_owned())).to_vec();
    let body = "<html><body><h1>200 OK</h1>\nService ready.\n</body></html>\n".to_owned();
    End::Answer { status: 200, body, fields }
}

/// A rule's action with this status and text.
fn answer(status: u64, body: &str) -> Option<End> {
    Some(End::Answer { status, body: body.to_owned(), fields: Vec::new() })
}

/// Rules that end nothing and change nothing that our file could say.
const HARMLESS: &str = "\
    track-sc0 track-sc1 track-sc2 sc-inc-gpc0 sc-inc-gpc1 capture set-nice set-log-level \
    set-mark set-tos set-priority-class set-priority-offset set-timeout wait-for-body \
    add-acl del-acl set-map del-map set-bandwidth-limit disable-l7-retry inspect-delay \
    early-hint strict-mode";

/// The stages of a section, in which its rules run: first words, with spaces around them.
const STAGES: [&str; 7] = [
    " monitor-uri ",
    " tcp-request.connection ",
    " tcp-request.session ",
    " tcp-request.content tcp-request.inspect-delay ",
    " stats ",
    " http-request block reqadd reqdeny reqideny reqtarpit reqrep reqirep reqdel reqidel ",
    " redirect ",
];

impl Haproxy<'_, '_> {
    /// Runs the rules of a section for requests for which `reached` holds. Returns what they have
    /// changed.
    pub(crate) fn rules<'l>(
        &mut self,
        proxy: &Proxy<'l>,
        reached: &Test,
        changed: HashSet<String>,
    ) -> Parsed<Acls<'l>> {
        let mut acls = Acls::of(proxy.lines.iter().copied(), changed);
        if self.is_proxied {
            acls.change("dst_port");
        }
        for stage in STAGES {
            let mut live = reached.clone();
            for line in &proxy.lines {
                let mut name = format!(" {} ", line.word(0));
                if line.word(0) == "tcp-request" {
                    name = format!(" tcp-request.{} ", line.word(1));
                }
                if stage.contains(&name) {
                    self.rule_of(line, proxy, &mut acls, &mut live)?;
                }
            }
        }
        acls.of_responses(true);
        for line in &proxy.lines {
            let is_after = line.word(0) == "http-after-response";
            if is_after || matches!(line.word(0), "http-response" | "rspadd") {
                self.response(line, proxy, &mut acls, reached)?;
            }
        }
        acls.of_responses(false);
        Ok(acls)
    }

    pub(crate) fn condition<'l>(&mut self, line: &'l Line, acls: &mut Acls<'l>) -> Parsed<Test> {
        let mut context = Context {
            input: &mut *self.input,
            at: &line.at,
            lists: &mut self.lists,
            written: &mut self.written,
        };
        let test = acls.condition(line.split().1, &mut context)?;
        if test.is_exact() && !test.why.is_empty() {
            self.input.notes.left(&line.at, test.why.clone());
        }
        Ok(if line.may_be_absent { test.at_most("it may be absent") } else { test })
    }

    /// A rule of a request.
    fn rule_of<'l>(
        &mut self,
        line: &'l Line,
        proxy: &Proxy<'l>,
        acls: &mut Acls<'l>,
        live: &mut Test,
    ) -> Parsed<()> {
        let words = match (line.word(0), line.word(1)) {
            ("tcp-request", "connection" | "content" | "session") => &line.split().0[2..],
            ("tcp-request" | "http-request" | "stats", _) => &line.split().0[1..],
            _ => line.split().0,
        };
        let own = self.condition(line, acls)?;
        let test = live.clone().and(own.clone());
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let arguments = words.get(1..).unwrap_or_default();
        let after = |name: &str| {
            let at = arguments.iter().position(|word| word == name)?;
            arguments.get(at + 1).map(String::as_str)
        };
        let status = after("deny_status").or(after("status")).or(after("code"));
        let status: Option<u64> = status.and_then(|text| text.parse().ok());
        let name = word(0).split('(').next().unwrap_or_default();
        let (end, becomes) = match name {
            _ if line.word(0) == "stats" && !matches!(name, "uri" | "enable") => return Ok(()),
            "stats" | "uri" | "enable" => {
                let uri = if name == "uri" { word(1) } else { "/haproxy?stats" };
                if name == "enable" && proxy.get("stats.uri").is_some() {
                    self.input.notes.nothing(&line.at, "another line has the path");
                    return Ok(());
                }
                let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
                let starts = |name: &str, text: &str| {
                    Test::from(
                        cel::quoted(text).map(|q| Cel::one(format!("{name}.startsWith({q})"))),
                    )
                };
                let mut is_page = starts("path", path);
                if !query.is_empty() {
                    is_page = Test::from(cel::is("path", path)).and(starts("query", query));
                }
                let end = answer(501, "not imported\n");
                let why = "the admin address has the figures; this path is answered with 501";
                self.end(&test.and(is_page), line, end, Left(why));
                return Ok(());
            }
            "monitor-uri" => {
                let is_page = Test::from(cel::is("path", word(1)));
                let is_page = is_page.and(Test::from(cel::is("query", "")));
                self.end(&test.and(is_page), line, Some(ready()), Carried);
                return Ok(());
            }
            "allow" | "accept" => {
                *live = live.clone().and(own.not());
                let becomes = if test.is_exact() { Carried } else { known(&test) };
                self.input.notes.became(&line.at, &becomes);
                return Ok(());
            }
            "deny" | "block" | "reqdeny" | "reqideny" | "reject" | "silent-drop" | "tarpit"
            | "reqtarpit" => {
                let usual = if name.contains("tarpit") { 500 } else { 403 };
                let status = status.filter(|status| (200..600).contains(status)).unwrap_or(usual);
                let becomes = match name {
                    _ if line.word(0).starts_with("req") => Unprotected("see `[[rule]]`"),
                    "deny" | "block" => Carried,
                    "tarpit" => Different("it is answered at once"),
                    _ => Different("the answer is 403 instead of a closed connection"),
                };
                let end = match status {
                    _ if line.word(0).starts_with("req") => Some(End::Closed),
                    200 => Some(ready()),
                    _ => answer(status, "access denied\n"),
                };
                (end, becomes)
            }
            "return" => returned(status.unwrap_or(200), arguments),
            "redirect" => redirect(status.unwrap_or(302), arguments, acls),
            "auth" => {
                let why =
                    "passwords are in a file of `htpasswd -B`: write route.users in the route";
                (Some(End::Closed), Unprotected(why))
            }
            "use-service" => {
                let why = "the admin address has the metrics; this is answered with 501";
                (answer(501, "not imported\n"), Left(why))
            }
            "set-var" | "set-var-fmt" | "unset-var" => {
                let variable = word(0).split_once('(').map_or("", |(_, rest)| rest);
                let fetch = if name == "set-var" { word(1) } else { "" };
                acls.set_variable(variable.trim_end_matches(')'), fetch, own == Test::always());
                let why = "conditions and values have the fetch in place of the variable";
                self.input.notes.nothing(&line.at, why);
                return Ok(());
            }
            "set-header" | "add-header" | "del-header" | "replace-header" | "replace-value"
            | "reqadd" | "reqdel" | "reqidel" => {
                return self.change(line, words, (proxy, test), acls);
            }
            "set-path" | "set-pathq" | "set-uri" | "replace-path" | "replace-pathq"
            | "replace-uri" | "set-query" | "reqrep" | "reqirep" => {
                self.path(line, words, &test, acls);
                return Ok(());
            }
            "set-src" | "set-dst" | "set-dst-port" | "set-src-port" => {
                acls.change("src");
                self.input.notes.left(&line.at, "see listen.trusted_proxies");
                return Ok(());
            }
            "cache-use" => return Ok(()),
            "" => return Ok(()),
            name if is_harmless(name) => {
                self.input.notes.left(&line.at, "this is not counted, logged or shaped here");
                return Ok(());
            }
            _ => (Some(End::Closed), Unprotected("this action is not known here")),
        };
        self.end(&test, line, end, becomes);
        Ok(())
    }

    /// Writes a rule that ends the requests for which a test holds, and its note. Where the test is
    /// not known, they are closed.
    fn end(&mut self, test: &Test, line: &Line, end: Option<End>, becomes: Becomes) {
        let is_closed = matches!(end, Some(End::Closed));
        let end = end.unwrap_or(End::Closed);
        let open = self.input.open;
        let is_left_open = open && is_closed;
        if !(test.is_never() || is_left_open) {
            let is = if is_closed { &test.most } else { &test.least };
            self.rule(is, &line.at, true, |rule| end.write(rule, &line.at));
        }
        if !test.is_exact() && !is_closed && !open {
            self.rule(&test.most, &line.at, true, |rule| End::Closed.write(rule, &line.at));
        }
        self.input.notes.became(&line.at, &becomes);
        if !test.is_exact() {
            let why = format!("{}; where it may hold, this is closed", test.why);
            self.input.notes.unprotected(&line.at, why);
        } else if !test.why.is_empty() {
            self.input.notes.left(&line.at, test.why.clone());
        }
    }

    /// Writes a rule, unless no request would reach it.
    pub(crate) fn rule(
        &mut self,
        is: &Is,
        at: &Place,
        leads: bool,
        fill: impl FnOnce(&mut Section),
    ) {
        let text = match is {
            Is::Never => return,
            Is::Always => "path.size() > 0",
            Is::If(cel) => cel.text(),
        };
        let scope = conditions::Scope::Response;
        let Ok(checked) = conditions::check(text, scope, &self.lists) else {
            return self.full(at);
        };
        if leads && self.leading.iter().any(|one| conditions::hidden_by(one, &checked)) {
            return;
        }
        if self.tree.count("rule") >= crate::RULES_MAX {
            return self.full(at);
        }
        let mut rule = Section::new("rule");
        rule.set("when", text, at);
        fill(&mut rule);
        // A response is stored for all clients.
        let reads = checked.reads();
        let of_client = cel::is_of_client(reads) || reads.intersects(conditions::Reads::METHOD);
        if !leads && of_client && !reads.intersects(late()) {
            rule.set("store", false, "its condition differs between clients");
        }
        if leads {
            self.leading.push(checked);
        }
        self.tree.add(rule);
    }

    /// A change to a field of the request.
    fn change(
        &mut self,
        line: &Line,
        words: &[String],
        (proxy, test): (&Proxy<'_>, Test),
        acls: &mut Acls<'_>,
    ) -> Parsed<()> {
        let mut change = Change::of(line, test, proxy);
        let becomes = read_change(words, &mut change, acls);
        acls.change(&change.name);
        let is_host = change.name.eq_ignore_ascii_case("host");
        let is_fixed = change.op == Op::Set && !change.value.contains('{');
        let becomes = match becomes {
            Carried | Different(_)
                if is_host && is_fixed && !proxy.is_front && change.test.is_exact() =>
            {
                self.hosts.insert(proxy.at, change.value.clone());
                let unconditional = line.split().1.is_empty();
                self.input
                    .notes
                    .became(&line.at, &if unconditional { Carried } else { Left(HOST) });
                return Ok(());
            }
            _ if is_host => Left("the client's Host is sent"),
            _ if !is_free(&change.name) => {
                self.input.notes.left(&line.at, "this field cannot be changed");
                return Ok(());
            }
            becomes if change.test.is_exact() => becomes,
            _ => {
                // The client's own field must not take its place.
                change.op = Op::Remove;
                change.test = Test::known(change.test.most.clone());
                Left("its condition is not known, so the field is removed where it may hold")
            }
        };
        if !change.test.why.is_empty() {
            self.input.notes.left(&line.at, change.test.why.clone());
        }
        if !is_host && self.requests.len() < crate::RULES_MAX {
            self.requests.push(change);
        } else if !is_host {
            self.full(&line.at);
        }
        self.input.notes.became(&line.at, &becomes);
        Ok(())
    }

    /// Another path for the upstream.
    fn path(&mut self, line: &Line, words: &[String], test: &Test, acls: &mut Acls<'_>) {
        let first = !acls.has_changed("path");
        let written = rewrite(words).filter(|_| first && test.is_exact());
        acls.change("path");
        if words[0] != "set-path" && words[0] != "replace-path" {
            acls.change("query");
        }
        let Some((more, key, value)) = written else {
            let why = "the path is fixed, or a prefix or an expression is replaced; this is \
                       answered with 501";
            let test = Test::known(test.most.clone());
            return self.end(&test, line, answer(501, "not imported\n"), Left(why));
        };
        let test = test.clone().and(more);
        self.rule(&test.most, &line.at, false, |rule| rule.set(key, value, &line.at));
        let why = "upstreams get the path decoded and encoded again; a path with several readings \
                   is refused with 400";
        self.input.notes.different(&line.at, why);
    }

    /// A change to a field of the response.
    fn response<'l>(
        &mut self,
        line: &'l Line,
        proxy: &Proxy<'l>,
        acls: &mut Acls<'l>,
        reached: &Test,
    ) -> Parsed<()> {
        let is_after = line.word(0) == "http-after-response";
        let words = if line.word(0) == "rspadd" { line.split().0 } else { &line.split().0[1..] };
        let name = words.first().map_or("", String::as_str);
        let own = self.condition(line, acls)?;
        let mut change = Change::of(line, own.clone(), proxy);
        let becomes = match name {
            "set-header" | "add-header" | "del-header" | "rspadd" => {
                read_change(words, &mut change, acls)
            }
            "deny" | "reject" | "return" | "silent-drop" | "redirect" => {
                self.closed.insert(proxy.at);
                Unprotected("responses are not kept back, so the section is closed")
            }
            "cache-store" => return Ok(()),
            _ => Left("a response has fields set, added or removed"),
        };
        let becomes = match becomes {
            Carried | Different(_) if !own.is_exact() => Left("its condition is not known"),
            Carried | Different(_) if !is_free(&change.name) || change.value.contains('{') => {
                Left("a field has a fixed value, and frames no message")
            }
            Carried if is_after => {
                self.after.insert(change.name.to_ascii_lowercase());
                let test = own.and(reached.clone());
                let fits = match &test.least {
                    Is::If(cel) => {
                        let late = cel::check(cel, &self.lists).is_none();
                        !late || cel::check_response(cel, &self.lists).is_some()
                    }
                    _ => true,
                };
                if !fits {
                    self.input.notes.left(&line.at, LATE);
                    return Ok(());
                }
                self.rule(&test.least, &line.at, false, |rule| {
                    write(rule.below("rule.response"), &change);
                });
                Different("pages of errors do not have it")
            }
            Carried => {
                change.test = own.and(reached.clone());
                if self.responses.len() < crate::RULES_MAX {
                    self.responses.push(change);
                } else {
                    self.full(&line.at);
                }
                return Ok(());
            }
            becomes => becomes,
        };
        self.input.notes.became(&line.at, &becomes);
        Ok(())
    }

    /// Writes the changes to responses, those of backends before those of frontends. A condition
    /// that reads the response is asked when it comes from an upstream, so only responses of
    /// upstreams are changed, as in HAProxy. Such a condition cannot read what differs between
    /// clients. Changes with other conditions are left for the routes ([`Haproxy::responses`]).
    pub(crate) fn late_changes(&mut self) {
        let mut all = std::mem::take(&mut self.responses);
        all.sort_by_key(|change| change.is_front);
        let comes = || Test::from(Some(Cel::one("status > 100")));
        let tests: Vec<Test> = (0..all.len()).map(|at| unreplaced(&all, at)).collect();
        let fits = |at: usize| match tests[at].clone().and(comes()).least {
            Is::If(cel) => tests[at].is_exact() && cel::check_response(&cel, &self.lists).is_some(),
            is => is == Is::Never && tests[at].is_exact(),
        };
        let fits: Vec<bool> = (0..all.len()).map(fits).collect();
        let ends = !self.leading.is_empty();
        for (at, change) in all.iter().enumerate() {
            let of_name = |other: &usize| all[*other].name.eq_ignore_ascii_case(&change.name);
            let same: Vec<usize> = (0..all.len()).filter(of_name).collect();
            let becomes = if self.after.contains(&change.name.to_ascii_lowercase()) {
                Left("a line of http-after-response changes this field, too")
            } else if same.iter().all(|at| fits[*at]) {
                let is = tests[at].clone().and(comes()).least;
                self.rule(&is, &change.at, false, |rule| {
                    write(rule.below("rule.response"), change);
                });
                Carried
            } else if same.iter().all(|at| all[*at].is_plain) {
                self.responses.push(change.clone());
                Becomes::differs(if ends { ANSWERS } else { "" })
            } else if same.len() == 1 && !fits[at] {
                let reads = match &change.test.least {
                    Is::If(cel) => cel::check(cel, &self.lists),
                    _ => None,
                };
                if reads.is_some() {
                    self.rule(&change.test.least, &change.at, false, |rule| {
                        write(rule.below("rule.response"), change);
                    });
                    Different(ANSWERS)
                } else {
                    Left(LATE)
                }
            } else {
                Left("several lines change this field, with conditions of other kinds")
            };
            self.input.notes.became(&change.at, &becomes);
        }
    }

    /// Writes the changes to requests. A change that a later one replaces is only for the requests
    /// that the later one is not for.
    pub(crate) fn changes(&mut self) {
        let all = std::mem::take(&mut self.requests);
        for (at, change) in all.iter().enumerate() {
            let test = unreplaced(&all, at);
            if !test.is_exact() {
                self.input.notes.left(&change.at, test.why.clone());
            }
            self.rule(&test.least, &change.at, false, |rule| {
                write(rule.below("rule.request"), change);
            });
        }
    }
}

/// When a change takes effect: no later change of the field replaces it.
fn unreplaced(all: &[Change], at: usize) -> Test {
    let change = &all[at];
    let mut test = change.test.clone();
    for later in &all[at + 1..] {
        let same = later.name.eq_ignore_ascii_case(&change.name) && later.op != Op::Add;
        let meets = later.is_front != change.is_front || later.of == change.of;
        if same && meets && change.op != Op::Remove {
            test = test.and(later.test.clone().not());
        }
    }
    test
}

const LATE: &str = "a condition on a response cannot read the client or the listener too";
const ANSWERS: &str = "redirects and answers have it too";
const HOST: &str = "the Host that is sent does not depend on conditions";

fn late() -> conditions::Reads {
    conditions::Reads::STATUS | conditions::Reads::RESPONSE | conditions::Reads::RESPONSE_FIELDS
}

fn is_harmless(name: &str) -> bool {
    HARMLESS.split_whitespace().any(|one| one == name)
}

/// The note of a test that is known in part.
fn known(test: &Test) -> Becomes {
    Text(Fate::Unprotected, format!("{}; it counts as false", test.why))
}

/// Writes a change into a section.
pub(crate) fn write(section: &mut Section, change: &Change) {
    let key = match change.op {
        Op::Remove => return section.set("remove", change.name.as_str(), &change.at),
        Op::Set => "set",
        Op::Add => "add",
    };
    section.set(key, change.name.as_str(), &change.at);
    section.set("value", change.value.as_str(), &change.at);
}

/// Reads the words of a change into it. A value that is not known removes the field.
fn read_change(words: &[String], change: &mut Change, acls: &Acls<'_>) -> Becomes {
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let (name, text) = match word(0) {
        "reqadd" | "rspadd" => word(1).split_once(':').unwrap_or((word(1), "")),
        "reqdel" | "reqidel" => return Left("see `[[rule]]` with remove"),
        _ => (word(1), word(2)),
    };
    change.name = name.trim_end_matches(':').to_owned();
    change.op = match word(0) {
        "set-header" => Op::Set,
        "add-header" | "reqadd" | "rspadd" => Op::Add,
        "del-header" if words.len() > 2 => return Left("a field is removed by its whole name"),
        "del-header" => return Carried,
        _ => return Left("values are not replaced in part, so the client's field is removed"),
    };
    match value(text.trim(), acls) {
        Some((text, differs)) => {
            change.value = text;
            Becomes::differs(differs)
        }
        None => {
            change.op = Op::Remove;
            Left("our file has no such value, so the client's field is removed")
        }
    }
}

/// Fetches, and the values of our file.
const VALUES: &[(&str, &str)] = &[
    ("src", "{client}"),
    ("dst_port", "{port}"),
    ("path", "{path}"),
    ("query", "{query}"),
    ("url", "{uri}"),
    ("pathq", "{uri}"),
    ("capture.req.uri", "{uri}"),
    ("ssl_fc_sni", "{tls.sni}"),
    ("ssl_fc,iif(https,http)", "{scheme}"),
    ("unique-id", "{request_id}"),
];

/// A log format as a value of our file, with what differs.
fn value(text: &str, acls: &Acls<'_>) -> Option<(String, &'static str)> {
    if has_value(text) || crate::lines::is_unknown(text) || text.contains(char::is_control) {
        return None;
    }
    let (mut out, mut rest, mut differs) = (String::new(), text, "");
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(inner) = rest.strip_prefix('[') {
            let end = inner.find(']')?;
            let fetch = acls.fetch(&inner[..end])?;
            rest = &inner[end + 1..];
            let (name, argument, converters) = parts(fetch);
            let is_field = matches!(name, "hdr" | "req.hdr" | "req.fhdr");
            if is_field && argument.eq_ignore_ascii_case("host") {
                if converters
                    .iter()
                    .any(|one| !matches!(*one, "lower" | "host_only" | "field(1,:)"))
                {
                    return None;
                }
                if !converters.contains(&"host_only") && !converters.contains(&"field(1,:)") {
                    differs = "the host has no port, and is in lower case";
                }
                out.push_str("{host}");
            } else {
                let own = VALUES.iter().find(|(theirs, _)| *theirs == fetch)?.1;
                let changes = if own == "{client}" { "src" } else { "path" };
                if own == "{port}" && acls.has_changed("dst_port") {
                    differs = "with accept-proxy, the port is that of the listener";
                } else if acls.has_changed(changes) && own != "{port}" {
                    return None;
                }
                out.push_str(own);
            }
        } else if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
        } else if let Some(after) = rest.strip_prefix("ci") {
            out.push_str("{client}");
            rest = after;
        } else if let Some(after) = rest.strip_prefix("ID") {
            out.push_str("{request_id}");
            rest = after;
        } else {
            return None;
        }
    }
    out.push_str(rest);
    Some((out, differs))
}

fn redirect(status: u64, words: &[String], acls: &Acls<'_>) -> (Option<End>, Becomes) {
    const FIXED: &str = "a redirect has a fixed URL, except for host and path; this is closed";
    let closed = (Some(End::Closed), Unprotected(FIXED));
    let known = "scheme location prefix code drop-query ignore-empty";
    let place = words.iter().position(|w| matches!(w.as_str(), "scheme" | "location" | "prefix"));
    let Some((kind, text)) = place.and_then(|at| Some((words[at].as_str(), words.get(at + 1)?)))
    else {
        return closed;
    };
    let options = words.iter().filter(|word| *word != text && word.parse::<u64>().is_err());
    if options.clone().any(|word| !known.split(' ').any(|one| one == word)) {
        return closed;
    }
    let drops_query = words.iter().any(|word| word == "drop-query");
    let Some((text, mut differs)) = value(text, acls) else { return closed };
    let (to, with_path) = match kind {
        "scheme" => {
            differs = "the redirect names the host without its port, and in lower case";
            (format!("{text}://{{host}}"), true)
        }
        "prefix" => (text.trim_end_matches('/').to_owned(), true),
        _ => match text.strip_suffix("{uri}") {
            Some(start) => (start.to_owned(), true),
            None => (text, false),
        },
    };
    let to = if with_path && drops_query { format!("{to}{{path}}") } else { to };
    let with_path = with_path && !drops_query;
    // The path of the request may follow a host.
    let checked = to.strip_suffix("{path}").unwrap_or(&to).to_owned();
    let is_rooted = !checked.is_empty() || !with_path;
    match Action::redirect(status, checked, with_path, "").filter(|_| is_rooted) {
        Some(Action::Redirect { status, .. }) => {
            let action = Action::Redirect { status, to, with_path };
            (Some(End::Redirect(action)), Becomes::differs(differs))
        }
        _ => closed,
    }
}

fn returned(status: u64, words: &[String]) -> (Option<End>, Becomes) {
    let after = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1)
    };
    let files = ["file", "lf-file", "errorfile", "errorfiles", "hdr", "default-errorfiles"];
    let text = after("string").or(after("lf-string"));
    let is_plain = text.is_none_or(|text| !text.contains(['%', '{']) || after("string").is_some());
    let fits = text.is_none_or(|text| !has_value(text)) && is_plain && status >= 200;
    let is_other = words.iter().any(|word| files.contains(&word.as_str()));
    if is_other || !fits || matches!(status, 204 | 205 | 304) {
        let why = "an answer has a fixed text and a body; this is answered with 501";
        return (answer(501, "not imported\n"), Left(why));
    }
    let kind = after("content-type").map(|kind| ("Content-Type", kind.clone()));
    let fields = kind.into_iter().collect();
    let body = text.cloned().unwrap_or_default();
    (Some(End::Answer { status, body, fields }), Carried)
}

/// A new path: a further condition, the key of a rule, and its value.
fn rewrite(words: &[String]) -> Option<(Test, &'static str, String)> {
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let is_path = |text: &str| text.starts_with('/') && !text.contains(['%', '{', '?', '\\']);
    // Old files replace in the request line.
    let head = word(1).strip_prefix("^([^ :]*) ").or(word(1).strip_prefix("^([^ ]*) "));
    if let (Some(path), Some(to)) = (head, word(2).strip_prefix("\\1 ")) {
        let to = to.trim_start().replace("\\2", "\\1");
        let words = ["replace-uri".to_owned(), format!("^{}", path.trim_start()), to];
        return rewrite(&words);
    }
    match word(0) {
        "replace-path" | "replace-pathq" | "replace-uri" => {
            // All of the path is replaced where the expression matches, and the query stays.
            let (expression, replacement) = (word(1), word(2));
            let ends = expression.ends_with("(.*)") || expression.ends_with("(.*)$");
            if word(0) != "replace-path" && !ends || expression.contains("(?") {
                return None;
            }
            let (mut named, mut groups, mut escaped) = (String::new(), 0, false);
            for c in expression.chars() {
                named.push(c);
                if c == '(' && !escaped {
                    groups += 1;
                    named.push_str(&format!("?P<c{groups}>"));
                }
                escaped = c == '\\' && !escaped;
            }
            let mut to = replacement.to_owned();
            for group in 1..=groups {
                to = to.replace(&format!("\\{group}"), &format!("{{c{group}}}"));
            }
            let fixed = to.replace(['{', '}'], "");
            let is_fine = groups < 10 && to.starts_with('/') && !fixed.contains(['\\', '%', '?']);
            let test =
                cel::matches("path", &named).filter(|_| is_fine && !has_value(replacement))?;
            Some((Test::from(Some(test)), "rewrite", to))
        }
        _ => {
            let text = word(1);
            let inner = text.strip_prefix("%[").and_then(|rest| rest.strip_suffix(")]"));
            if let Some(inner) = inner {
                let (fetch, rest) = inner.split_once(",regsub(^")?;
                let (prefix, rest) = rest.split_once(',')?;
                let prefix = prefix.trim_matches('"');
                let bare = prefix.strip_suffix('/').unwrap_or(prefix);
                let is_root = if bare == prefix { "" } else { "/" };
                let fits = rest.trim_matches(['"', ',']) == is_root && is_path(bare);
                let known = ["path", "url", "pathq", "capture.req.uri"].contains(&fetch);
                let below = cel::quoted(&format!("{bare}/")).filter(|_| fits && known)?;
                let test = Test::from(Some(Cel::one(format!("path.startsWith({below})"))));
                return Some((test, "strip_prefix", bare.to_owned()));
            }
            let start = text.strip_suffix("%[path]").or(text.strip_suffix("%[url]"));
            match (word(0), start) {
                ("set-path", None) if is_path(text) => {
                    Some((Test::always(), "rewrite", text.to_owned()))
                }
                (_, Some(start)) if is_path(start) => {
                    Some((Test::always(), "rewrite", format!("{start}{{path}}")))
                }
                _ => None,
            }
        }
    }
}

impl End {
    fn write(&self, rule: &mut Section, at: &Place) {
        match self {
            End::Answer { status, body, fields } => {
                rule.set("answer", body.as_str(), at);
                rule.set("status", Value::Count(*status), at);
                for (name, value) in fields {
                    let field = rule.below("rule.response");
                    field.set("set", *name, at);
                    field.set("value", value.as_str(), at);
                }
            }
            End::Redirect(action) => {
                action.write(rule, &at.to_string());
                if matches!(action, Action::Redirect { status: 302 | 303 | 307, .. }) {
                    let field = rule.below("rule.response");
                    field.set("set", "Cache-Control", at);
                    field.set("value", "no-cache", "as HAProxy does");
                }
            }
            End::Closed => {
                rule.comment("Something that protects this was not carried, so it is closed.");
                rule.set("answer", "closed by plimsoll import\n", at);
                rule.set("status", Value::Count(403), at);
            }
        }
    }
}
