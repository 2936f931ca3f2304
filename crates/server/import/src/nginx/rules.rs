//! Rules of our file: what a server answers before it looks at locations, and servers on a port of
//! their own that only answer.
//!
//! A rule with an action decides before any route. So the rule of a server names its hosts.

use std::collections::BTreeSet;

use ::conditions::{Lists, Scope as Asked};

use super::blocks::{Directive, named};
use super::conditions::{self, Tests};
use super::listen::{self, Answered, Listen};
use super::redirects::{self, Names};
use super::scope::{Scope, Server};
use super::{Nginx, listen_notes};
use imported::cel::{self, Cel};
use imported::note::{Fate, Notes, Place};
use imported::route::Action;
use imported::table::is_one;
use imported::tree::Section;

/// The most rules that are written: as many as the server takes.
const RULES_MAX: usize = 256;

/// The most rules of servers that only answer. With more, their addresses are not opened.
pub(super) const ANSWERS_MAX: usize = 128;

/// The rules that a server that only answers needs, at most.
pub(super) fn count(block: &Directive) -> usize {
    let is_one = |one: &&Directive| matches!(one.name.as_str(), "if" | "location");
    block.inner().iter().filter(is_one).count() + 1
}

/// The most hosts that a condition names.
const HOSTS_MAX: usize = 64;

/// The condition that a request is for this server of all the servers. `None`: no condition can
/// say it. `Some(None)`: all requests are.
pub(super) fn of_server(server: &Server<'_>, all: &[Server<'_>]) -> Option<Option<Cel>> {
    let own = own(server, all)?;
    Some(Cel::all(server.only_for.iter().cloned().chain(own).collect()))
}

/// The same by the hosts alone.
fn own(server: &Server<'_>, all: &[Server<'_>]) -> Option<Option<Cel>> {
    let others = || all.iter().filter(|other| !std::ptr::eq(*other, server));
    if !server.default {
        let others: Vec<&String> = others().flat_map(|one| &one.hosts).collect();
        return of_hosts(&server.hosts.iter().collect::<Vec<_>>(), &others).map(Some);
    }
    // The default server also answers for a host whose server is not at the address.
    let is_here =
        |other: &&Server<'_>| other.only_for.is_none() || other.only_for == server.only_for;
    let (here, elsewhere): (Vec<_>, Vec<_>) = others().partition(is_here);
    let taken = |servers: &[&Server<'_>]| {
        of_hosts(&servers.iter().flat_map(|one| &one.hosts).collect::<Vec<_>>(), &[])
    };
    let mut parts = Vec::new();
    if here.iter().any(|one| !one.hosts.is_empty()) {
        parts.push(taken(&here)?.negated());
    }
    if let Some(only_for) = elsewhere.first().and_then(|one| one.only_for.clone()) {
        let is_there = |one: &&Server<'_>| one.only_for.as_ref() == Some(&only_for);
        debug_assert!(elsewhere.iter().all(is_there), "addresses are in the clear or have TLS");
        parts.push(Cel::all(vec![only_for, taken(&elsewhere)?])?.negated());
    }
    Some(Cel::all(parts))
}

/// The condition that a request is for one of these hosts. The other hosts have other servers.
fn of_hosts(hosts: &[&String], others: &[&String]) -> Option<Cel> {
    let below = |host: &&&String| host.starts_with("*.");
    let wildcards: Vec<&str> = hosts.iter().filter(below).map(|host| &host[1..]).collect();
    let names: Vec<&str> = hosts.iter().filter(|one| !below(one)).map(|one| one.as_str()).collect();
    // nginx prefers a name to a wildcard, and a longer wildcard to a shorter wildcard.
    let is_taken = |end: &&str| others.iter().any(|other| other.ends_with(*end));
    let has_capture = names.iter().chain(&wildcards).any(|name| name.contains('{'));
    if hosts.is_empty() || hosts.len() > HOSTS_MAX || has_capture || wildcards.iter().any(is_taken)
    {
        return None;
    }
    let mut parts = Vec::new();
    match names[..] {
        [] => {}
        [one] => parts.push(cel::is("host", one)?),
        _ => parts.push(Cel::one(format!("host in {}", cel::list(names)?))),
    }
    for end in wildcards {
        parts.push(Cel::one(format!("host.endsWith({})", cel::quoted(end)?)));
    }
    Cel::any(parts)
}

/// What an `if` block does if its condition holds, when it only answers.
pub(super) fn answer(block: &Directive) -> Option<&Directive> {
    let (last, before) = block.inner().split_last()?;
    let answers = last.name == "return" || redirects::is_redirect_of_all(last);
    (answers && before.iter().all(is_besides)).then_some(last)
}

/// Whether this changes nothing about whether a block answers.
fn is_besides(one: &Directive) -> bool {
    is_one("add_header access_log error_log default_type", &one.name)
}

/// Writes the notes of what an `if` block says besides its answer.
pub(super) fn besides(block: &Directive, notes: &mut Notes) {
    for one in block.inner().iter().filter(|one| is_besides(one)) {
        notes.left(&one.at, "what a condition answers has no other fields, and is logged as all");
    }
}

/// Whether a server that has its port alone only answers requests, and rules can do the same.
/// `files`: a location may have files, which are then not served.
pub(super) fn only_answers(block: &Directive, tests: &Tests, files: bool) -> bool {
    let known = "listen server_name return access_log error_log server_tokens root index if \
                 location rewrite include http2";
    let is_known = |one: &Directive| match one.name.as_str() {
        "if" => answer(one).is_some() && conditions::of_if(one, tests, None).is_some(),
        "rewrite" => redirects::is_redirect_of_all(one),
        "include" => false,
        "location" => {
            let is_prefix = matches!(&one.words[..], [path] if path.starts_with('/'))
                || matches!(&one.words[..], [sign, _] if sign == "=" || sign == "^~");
            let passes = |one: &Directive| one.name.ends_with("_pass") || one.name == "if";
            let is_of_files = |one: &Directive| !files && matches!(&*one.name, "root" | "alias");
            let does_more =
                |one: &Directive| passes(one) || is_of_files(one) || one.name == "location";
            is_prefix && !one.inner().iter().any(does_more)
        }
        name => is_one(known, name),
    };
    let answers = |one: &Directive| {
        let root = one.name == "location" && one.words.last().is_some_and(|path| path == "/");
        matches!(one.name.as_str(), "return" | "rewrite")
            || root && named(one.inner(), "return").next().is_some()
    };
    count(block) <= ANSWERS_MAX
        && block.inner().iter().any(answers)
        && block.inner().iter().all(is_known)
}

impl<'d> Nginx<'d> {
    /// Writes a rule that leads somewhere. Returns whether it is written.
    pub(super) fn rule(&mut self, when: &Cel, action: &Action, at: &Place) -> bool {
        let lists = Lists::new();
        let Ok(checked) = ::conditions::check(when.text(), Asked::Request, &lists) else {
            return false;
        };
        if self.tree.count("rule") >= RULES_MAX {
            return false;
        }
        // The server refuses a rule that never decides.
        if self.rules.iter().any(|earlier| ::conditions::hidden_by(earlier, &checked)) {
            return true;
        }
        self.rules.push(checked);
        let mut section = Section::new("rule");
        section.set("name", format!("{at}-{}", self.tree.count("rule") + 1), at);
        section.set("when", when.text(), at);
        action.write(&mut section, &at.to_string());
        self.tree.add(section);
        true
    }

    /// The rules of servers that only answer, on a port of their own.
    pub(super) fn answers(
        &mut self,
        answered: &Answered,
        blocks: &[&'d Directive],
        listens: &[Vec<Listen>],
        outer: &Scope<'d>,
    ) {
        let default = listen::default(&answered.servers, listens);
        let mut taken = BTreeSet::new();
        let mut servers: Vec<Server<'d>> = Vec::new();
        for at in &answered.servers {
            let block = blocks[*at];
            listen_notes(&listens[*at], &answered.addresses, &mut self.notes);
            let mut scope = outer.inside(block.inner(), &mut self.notes);
            let default = default == Some(*at);
            let below = BTreeSet::new();
            let (hosts, _) =
                super::hosts(block, (default, &below), &mut scope, &mut taken, &mut self.notes);
            self.notes.carried(&block.at);
            servers.push(Server { directive: block, scope, hosts, default, only_for: None });
        }
        // The default server comes last, and answers what the other servers do not answer.
        let port = Cel::one(format!("port == {}", answered.port));
        let (last, others): (Vec<&Server<'d>>, Vec<&Server<'d>>) =
            servers.iter().partition(|server| server.default);
        for server in others.into_iter().chain(last) {
            let hosts: Vec<&String> = server.hosts.iter().collect();
            let hosts = (!server.default).then(|| of_hosts(&hosts, &[]));
            match hosts {
                Some(None) => {
                    self.is_full = true;
                    let text = "no condition names its hosts, so all is closed";
                    self.not_carried(server.directive, &imported::table::Becomes::Left(text), text);
                }
                hosts => {
                    let parts = [Some(port.clone()), hosts.flatten()].into_iter().flatten();
                    if let Some(own) = Cel::all(parts.collect()) {
                        self.answers_of(server, &own);
                    }
                }
            }
        }
    }

    fn answers_of(&mut self, server: &Server<'d>, own: &Cel) {
        let inner = server.directive.inner();
        let names = server.names(&server.scope);
        let at = &server.directive.at;
        if self.conditions_of(inner, &names, Some(own)).0 {
            return;
        }
        let mut locations: Vec<&Directive> = named(inner, "location").collect();
        // An exact path comes first, then the longest path.
        let order = |one: &&Directive| {
            let length = one.words.last().map_or(0, String::len);
            (one.word(0) != "=", std::cmp::Reverse(length))
        };
        locations.sort_by_key(order);
        for location in locations {
            let path = location.words.last().map_or("", String::as_str);
            let of_path = match (location.word(0), path) {
                ("=", path) => cel::is("path", &cel::in_path(path)),
                (_, "/") => Some(own.clone()),
                _ => cel::quoted(&cel::in_path(path))
                    .map(|path| Cel::one(format!("path.startsWith({path})"))),
            };
            let mut all = location.inner().iter().filter(|one| one.name == "return");
            let found = all.next().map(|one| (one, redirects::answer(one, &names)));
            let action = match found {
                Some((one, answer)) => {
                    let (action, becomes) = redirects::carried(one, answer);
                    self.notes.became(&one.at, &becomes);
                    action
                }
                None => Action::NotCarried,
            };
            let parts = [Some(own.clone()), of_path].into_iter().flatten().collect();
            let is_written =
                Cel::all(parts).is_some_and(|when| self.rule(&when, &action, &location.at));
            for one in location.inner().iter().filter(|one| one.name != "return") {
                super::table::setting(one, &mut self.notes);
            }
            let fate = if is_written { Fate::Carried } else { Fate::NotCarried };
            let why = if is_written { "" } else { "there are too many rules" };
            self.notes.add(&location.at, fate, why);
        }
        // Without this rule, the requests would find the routes of other servers.
        self.is_full |= !self.rule(own, &Action::NotCarried, at);
    }

    /// Rules for the `if` blocks and the answer at the level of a server, in their order. `own`:
    /// the condition that a request is for the server. Returns whether the server answers all
    /// requests, and the directives that are carried.
    pub(super) fn conditions_of(
        &mut self,
        inner: &'d [Directive],
        names: &Names<'_>,
        own: Option<&Cel>,
    ) -> (bool, BTreeSet<usize>) {
        let mut carried = BTreeSet::new();
        for one in inner {
            if self.tree.count("rule") >= RULES_MAX {
                break;
            }
            let (condition, answered) = match one.name.as_str() {
                "if" => {
                    let Some(answered) = answer(one) else { continue };
                    let Some(found) = conditions::of_if(one, &self.switches.tests, names.unnamed)
                    else {
                        continue;
                    };
                    (Some(found), answered)
                }
                "return" | "rewrite" => (None, one),
                _ => continue,
            };
            let answer = redirects::answer(answered, names);
            if condition.is_some() && answer.is_err() {
                continue;
            }
            let (action, becomes) = redirects::carried(answered, answer);
            let is_last = condition.is_none();
            let (condition, why) = condition.unzip();
            let parts = [own.cloned(), condition].into_iter().flatten().collect();
            let Some(when) = Cel::all(parts) else { continue };
            if !self.rule(&when, &action, &one.at) {
                continue;
            }
            carried.insert(one.at.id());
            self.notes.became(&answered.at, &becomes);
            besides(one, &mut self.notes);
            self.notes.became(&one.at, &conditions::becomes(why.unwrap_or_default()));
            if is_last {
                return (true, carried);
            }
        }
        (false, carried)
    }
}
