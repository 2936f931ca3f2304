//! `haproxy.cfg`: sections, rules, and a table from each line to what becomes of it.
//!
//! A frontend becomes listeners, and its rules become rules of our file. Each line that chooses a
//! backend becomes a route for all paths with the condition of `use_backend`, in their order. So
//! the first condition that holds decides, as in HAProxy. A backend becomes an upstream, and its
//! rules become rules for the requests that reach it. With several frontends each condition names
//! the listener.
//!
//! A condition that is known in part has bounds ([`bounds`]): where a rule that keeps requests out
//! may hold, requests are refused.

#![forbid(unsafe_code)]

mod acl;
mod binds;
mod bounds;
mod lines;
mod rules;
mod servers;
mod table;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;

use conditions::{Checked, Lists};
use imported::cel::{self, Cel};
use imported::input::Input;
use imported::limits::{COMPARISONS_MAX, CONDITIONS_MAX, DEPTH_MAX};
use imported::note::{Notes, Place};
use imported::table::Becomes::{self, Carried, Different, Left};
use imported::tree::{Section, Tree, Value, timeout};
use imported::{Parsed, SyntaxError};

use self::bounds::{Is, Test};
use self::lines::{Line, Part, is_unknown, parse, time};
use self::rules::{Change, Op};

/// Rules that are written. The server takes a few more.
const RULES_MAX: usize = 250;

/// What the sections have said so far.
pub(crate) struct Haproxy<'i, 'r> {
    input: &'i mut Input<'r>,
    tree: Tree,
    /// Lists that conditions name, and those that are written.
    lists: Lists,
    written: Vec<(String, Vec<String>, Place)>,
    /// The conditions of rules that lead somewhere.
    leading: Vec<Checked>,
    requests: Vec<Change>,
    responses: Vec<Change>,
    /// Fields, in lower case, that `http-after-response` changes.
    after: HashSet<String>,
    /// The Host for the servers of a backend, by its number.
    hosts: HashMap<usize, String>,
    /// Sections with something that kept requests out and was not carried.
    closed: HashSet<usize>,
    /// Not all rules or routes fit.
    is_full: bool,
    /// Addresses of listeners.
    opened: HashSet<String>,
    /// The numbers of backends with an upstream.
    upstreams: HashSet<usize>,
    /// Whether a listener has PROXY headers, which name another port.
    is_proxied: bool,
    /// `crt-base` and `ca-base`.
    bases: HashMap<String, String>,
}

/// A section with servers, or with addresses for clients.
pub(crate) struct Proxy<'l> {
    /// The number of the section.
    pub(crate) at: usize,
    /// Whether its rules come before a backend is chosen.
    pub(crate) is_front: bool,
    head: &'l Line,
    /// Its lines after those of its `defaults`.
    pub(crate) lines: Vec<&'l Line>,
    /// The last line of each name.
    last: HashMap<String, &'l Line>,
}

impl<'l> Proxy<'l> {
    pub(crate) fn name(&self) -> &'l str {
        self.head.word(1)
    }

    pub(crate) fn place(&self) -> &'l Place {
        &self.head.at
    }

    /// The last line of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&'l Line> {
        self.last.get(name).copied()
    }

    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &'l Line> {
        self.lines.iter().copied().filter(move |line| line.word(0) == name)
    }

    fn is_http(&self) -> bool {
        // It is not started.
        if self.get("disabled").is_some() {
            return false;
        }
        self.get("mode").is_some_and(|line| line.word(1) == "http")
    }

    /// Whether it does more than show statistics.
    fn serves(&self) -> bool {
        let names =
            "server server-template use_backend default_backend redirect http-request monitor-uri";
        self.lines.iter().any(|line| names.split(' ').any(|name| line.word(0) == name))
    }
}

/// A choice of a frontend: its condition, the backend, and the line.
type Choice<'l> = (Test, Option<&'l str>, Place);

/// Whether all further choices lead to the same backend, too.
fn is_last(choices: &[Choice<'_>], at: usize) -> bool {
    choices[at].1.is_some() && choices[at..].iter().all(|(_, name, _)| *name == choices[at].1)
}

/// How requests reach a backend.
struct Reached {
    /// When they do.
    test: Test,
    /// What rules of frontends have changed.
    changed: HashSet<String>,
    /// When they do from each frontend, and its line that adds X-Forwarded-For.
    forwards: Vec<(Option<Line>, Test)>,
}

impl Default for Reached {
    fn default() -> Reached {
        Reached { test: Test::always().not(), changed: HashSet::new(), forwards: Vec::new() }
    }
}

/// Imports a text.
///
/// # Errors
/// The text is not in the language, or exceeds a limit.
pub fn import(file: &Rc<str>, text: &str, input: &mut Input<'_>) -> Parsed<(Tree, Notes)> {
    let parts = parse(file, text, input)?;
    let mut haproxy = Haproxy {
        input,
        tree: Tree::default(),
        lists: Lists::new(),
        written: Vec::new(),
        leading: Vec::new(),
        requests: Vec::new(),
        responses: Vec::new(),
        after: HashSet::new(),
        hosts: HashMap::new(),
        closed: HashSet::new(),
        is_full: false,
        opened: HashSet::new(),
        is_proxied: false,
        upstreams: HashSet::new(),
        bases: HashMap::new(),
    };
    for part in &parts {
        haproxy.section(part);
    }
    let proxies = proxies(&parts)?;
    haproxy.run(&proxies)?;
    for part in parts.iter().filter(|part| part.kind() == "defaults") {
        let why = "no section that is carried uses this line";
        part.lines.iter().for_each(|line| haproxy.input.notes.unless_noted(&line.at, why));
    }
    let tree = haproxy.tree;
    Ok((tree, std::mem::take(&mut input.notes)))
}

/// The sections with servers or addresses, and the lines that they inherit.
fn proxies(parts: &[Part]) -> Parsed<Vec<Proxy<'_>>> {
    let (mut all, mut visited) = (Vec::new(), 0);
    for (at, part) in parts.iter().enumerate() {
        if !matches!(part.kind(), "frontend" | "backend" | "listen") {
            continue;
        }
        let mut chain = vec![part];
        while let Some(base) = chain.last().and_then(|part| part.base) {
            if chain.len() > DEPTH_MAX {
                return Err(SyntaxError::at(&part.head.at, "`defaults` inherit too deeply"));
            }
            chain.push(&parts[base]);
        }
        let lines: Vec<&Line> = chain.iter().rev().flat_map(|part| &part.lines).collect();
        visited += lines.len();
        if visited > COMPARISONS_MAX {
            return Err(SyntaxError::at(
                &part.head.at,
                "too many lines of `defaults` are inherited",
            ));
        }
        let mut last = HashMap::new();
        for line in &lines {
            let key = table::key(line);
            match key.strip_prefix("no.") {
                Some("option") => _ = last.remove(&format!("option.{}", line.word(2))),
                _ => _ = last.insert(key, *line),
            }
        }
        let is_front = part.kind() != "backend";
        all.push(Proxy { at, is_front, head: &part.head, lines, last });
    }
    Ok(all)
}

impl Haproxy<'_, '_> {
    /// The lines of sections without requests.
    fn section(&mut self, part: &Part) {
        let (at, notes) = (&part.head.at, &mut self.input.notes);
        match part.kind() {
            "global" | "defaults" => notes.carried(at),
            "frontend" | "backend" | "listen" => {}
            "userlist" => notes.left(at, "write its users into a file with `htpasswd -B`"),
            "peers" => notes.left(at, "members of a cluster are in [cluster]"),
            "resolvers" => notes.carried(at),
            "cache" => notes.different(at, "there is one store, which keeps to RFC 9111"),
            _ => notes.left(at, "there is no such section"),
        }
        for line in &part.lines {
            match (part.kind(), line.word(0)) {
                ("global", name) => {
                    let becomes = self.global(line, name);
                    self.input.notes.became(&line.at, &becomes);
                }
                ("resolvers", "nameserver") => self.name_server(line),
                ("cache", "total-max-size") => {
                    let size: Option<u64> = line.word(1).parse().ok();
                    let bytes = size.filter(|size| *size < 1 << 20).map(|size| size.max(1) << 20);
                    self.tree.section("store").set_some(
                        "memory",
                        bytes.map(Value::Bytes),
                        &line.at,
                    );
                    self.input.notes.carried(&line.at);
                }
                ("cache", _) => self.input.notes.left(&line.at, "see [[route.lifetime]]"),
                ("frontend" | "backend" | "listen" | "defaults", _) => {}
                _ => self.input.notes.nothing(&line.at, "its section has a note"),
            }
        }
    }

    fn global(&mut self, line: &Line, name: &str) -> Becomes {
        let word = line.word(1);
        match name {
            "crt-base" | "ca-base" => _ = self.bases.insert(name.to_owned(), word.to_owned()),
            "user" | "group" => {
                let key = if name == "user" { "user" } else { "group" };
                self.tree.section("server").set(key, word, &line.at);
            }
            "nbthread" => match word.parse::<u64>().ok().filter(|n| (1..=1024).contains(n)) {
                Some(n) => self.tree.section("server").set("workers", Value::Count(n), &line.at),
                None => return Left("a number from 1 to 1024"),
            },
            "log" => return self.log(line),
            _ => return table::of_global(name),
        }
        Carried
    }

    /// `log ADDRESS FACILITY`: the first one gets the access log.
    fn log(&mut self, line: &Line) -> Becomes {
        let address = match line.word(1) {
            path if path.starts_with('/') => format!("unix:{path}"),
            word if word.parse::<std::net::IpAddr>().is_ok() => format!("udp://{word}:514"),
            word if word.parse::<std::net::SocketAddr>().is_ok() => format!("udp://{word}"),
            _ => return Left("[log] writes to a file or to syslog at an address"),
        };
        let log = self.tree.section("log");
        if log.get("syslog").is_some() {
            return Left("there is one access log");
        }
        log.set("syslog", address, &line.at);
        let known = ["daemon", "user", "local0", "local1", "local2", "local3", "local4", "local5"];
        let facility = known.into_iter().find(|facility| line.has(facility));
        log.set_some("facility", facility, &line.at);
        Different("all requests are logged, in the format of log.format")
    }

    fn name_server(&mut self, line: &Line) {
        let address = line.word(2).rsplit('@').next().unwrap_or_default();
        let dns = self.tree.section("dns");
        let mut all = match dns.get("servers") {
            Some(Value::Texts(all)) => all.clone(),
            _ => Vec::new(),
        };
        if address.parse::<std::net::SocketAddr>().is_ok() && all.len() < 3 {
            all.push(address.to_owned());
            dns.set("servers", all, &line.at);
            self.input.notes.carried(&line.at);
        } else {
            self.input.notes.left(&line.at, "up to three addresses with ports");
        }
    }

    /// Not all conditions fit, so all routes are closed at the end.
    pub(crate) fn full(&mut self, at: &Place) {
        self.is_full = true;
        let text =
            format!("more than {RULES_MAX} rules or {CONDITIONS_MAX} routes: all are closed");
        self.input.notes.unprotected(at, text);
    }

    fn run(&mut self, proxies: &[Proxy<'_>]) -> Parsed<()> {
        let by_name: HashMap<&str, &Proxy<'_>> = proxies
            .iter()
            .rev()
            .filter(|one| one.head.word(0) != "frontend")
            .map(|one| (one.name(), one))
            .collect();
        let is_served = |one: &&Proxy<'_>| one.is_front && one.is_http() && one.serves();
        let fronts: Vec<&Proxy<'_>> = proxies.iter().filter(is_served).collect();
        let names_listeners = fronts.len() > 1;
        let mut choices: Vec<(usize, Vec<Choice<'_>>)> = Vec::new();
        // When a backend is reached, and what the rules before it change.
        let mut reached: BTreeMap<usize, Reached> = BTreeMap::new();
        for front in &fronts {
            let name = names_listeners.then_some(front.name());
            let mut count = 0;
            let in_head = Some(front.head).filter(|head| head.words.len() > 2);
            // The head of old files has addresses, in the place of those of `bind`.
            let in_head = in_head
                .filter(|head| head.word(2).contains(':'))
                .map(|head| Line { words: head.rest(1).to_vec(), ..head.clone() });
            for line in in_head.iter().chain(front.all("bind")) {
                count += self.bind(line, name)?;
            }
            self.settings(front);
            if count == 0 {
                let why = "none of its addresses is opened";
                self.input.notes.left(front.place(), why);
                continue;
            }
            self.input.notes.carried(front.place());
            let scope = name.map(|name| cel::is("listener", name));
            let scope = scope.map_or(Test::always(), Test::from);
            let mut acls = self.rules(front, &scope, HashSet::new())?;
            let own = self.choices(front, &scope, &by_name, &mut acls)?;
            let changed = acls.into_changed();
            let mut rest = scope;
            for (at, (test, backend, _)) in own.iter().enumerate() {
                let test = if is_last(&own, at) { Test::always() } else { test.clone() };
                if let Some(backend) = backend.and_then(|name| by_name.get(name)) {
                    let there = reached.entry(backend.at).or_default();
                    let comes = rest.clone().and(test.clone());
                    let line = front.get("option.forwardfor").cloned();
                    there.forwards.push((line, comes.clone()));
                    there.test = there.test.clone().or(comes);
                    there.changed.extend(changed.iter().cloned());
                }
                rest = rest.and(test.not());
            }
            choices.push((front.at, own));
        }
        self.backends(proxies, &reached)?;
        self.changes();
        self.late_changes();
        for (front, choices) in &choices {
            self.routes(*front, choices, &by_name);
        }
        self.finish();
        for line in proxies.iter().flat_map(|proxy| &proxy.lines) {
            if matches!(line.word(0), "timeout" | "acl") {
                self.input.notes.unless_noted(&line.at, "no line that is carried uses it");
            }
        }
        let served: HashSet<usize> = choices.iter().map(|(front, _)| *front).collect();
        let is_used = |one: &&Proxy<'_>| reached.contains_key(&one.at) || served.contains(&one.at);
        proxies.iter().filter(|one| !is_used(one)).for_each(|one| self.unused(one));
        Ok(())
    }

    /// The upstreams, and the rules of backends.
    fn backends(
        &mut self,
        proxies: &[Proxy<'_>],
        reached: &BTreeMap<usize, Reached>,
    ) -> Parsed<()> {
        for proxy in proxies {
            let Some(Reached { test, changed, forwards }) = reached.get(&proxy.at) else {
                continue;
            };
            if proxy.head.word(0) == "backend" {
                self.input.notes.carried(proxy.place());
                self.settings(proxy);
                self.rules(proxy, test, changed.clone())?;
            }
            let own = proxy.get("option.forwardfor");
            let all = match own {
                Some(line) => &vec![(Some(line.clone()), test.clone())],
                None => forwards,
            };
            let is_changed = |change: &Change| change.name.eq_ignore_ascii_case("X-Forwarded-For");
            let is_plain =
                |line: &Option<Line>| line.as_ref().is_some_and(|it| it.words.len() == 2);
            let is_plain =
                all.iter().all(|(line, _)| is_plain(line)) && !self.requests.iter().any(is_changed);
            for (line, test) in all.iter().filter_map(|(line, test)| Some((line.as_ref()?, test))) {
                match is_plain {
                    true => self.input.notes.carried(&line.at),
                    false => self.forwarded(line, proxy, test),
                }
            }
            let host = self.hosts.get(&proxy.at).cloned();
            if self.upstream(proxy, is_plain, host.as_deref()) {
                self.upstreams.insert(proxy.at);
            }
        }
        Ok(())
    }

    /// A rule for `option forwardfor`, for requests for which a test holds.
    fn forwarded(&mut self, line: &Line, proxy: &Proxy<'_>, test: &Test) {
        let name = line.after("header").unwrap_or("X-Forwarded-For");
        let mut test = test.clone();
        if let Some(network) = line.after("except") {
            let within = acl::network(network).map(|it| Cel::one(format!("client.within('{it}')")));
            test = test.and(Test::from(within).not());
        }
        if line.has("if-none") {
            test = test.and(Test::from(cel::has_field(name)).not());
        }
        let becomes = if test.is_exact() { Carried } else { Left("it is not added") };
        self.input.notes.became(&line.at, &becomes);
        self.requests.push(Change {
            at: line.at.clone(),
            test,
            of: proxy.at,
            is_front: false,
            op: Op::Add,
            name: name.to_owned(),
            value: "{client}".to_owned(),
            is_plain: false,
        });
    }

    /// The choices of a frontend, in their order. The first whose condition holds wins.
    fn choices<'l>(
        &mut self,
        front: &Proxy<'l>,
        scope: &Test,
        by_name: &HashMap<&str, &Proxy<'l>>,
        acls: &mut acl::Acls<'l>,
    ) -> Parsed<Vec<Choice<'l>>> {
        let mut all: Vec<Choice<'l>> = Vec::new();
        // The rules of a `listen` are for its own listeners here.
        let backend_of = |name: &str| {
            let proxy = by_name.get(name)?;
            (!proxy.is_front || proxy.at == front.at).then(|| proxy.name())
        };
        for line in front.all("use_backend") {
            if all.len() > CONDITIONS_MAX {
                self.full(&line.at);
                break;
            }
            let mut test = self.condition(line, acls)?;
            let backend = backend_of(line.word(1));
            if backend.is_none() {
                test = test.at_most("there is no backend of this name, or it is a `listen`");
            }
            self.chosen(line, &test);
            all.push((scope.clone().and(test), backend, line.at.clone()));
        }
        let has_servers = front.lines.iter().any(|line| line.word(0).starts_with("server"));
        let (name, at) = match front.get("default_backend") {
            Some(line) => {
                let backend = backend_of(line.word(1));
                match backend {
                    Some(_) => self.input.notes.carried(&line.at),
                    None => self
                        .input
                        .notes
                        .left(&line.at, "there is no such backend; a `listen` is none"),
                }
                (backend, &line.at)
            }
            None => (has_servers.then(|| front.name()), front.place()),
        };
        all.push((scope.clone(), name, at.clone()));
        Ok(all)
    }

    /// The note of `use_backend`.
    fn chosen(&mut self, line: &Line, test: &Test) {
        let notes = &mut self.input.notes;
        let doubt = "where it may hold, and another line leads elsewhere, the answer is 501";
        match test.is_exact() {
            false => notes.left(&line.at, format!("{}; {doubt}", test.why)),
            true if test.why.is_empty() => notes.carried(&line.at),
            true => notes.left(&line.at, test.why.clone()),
        }
    }

    /// The routes of a frontend, in the order of its lines.
    fn routes(
        &mut self,
        front: usize,
        choices: &[Choice<'_>],
        by_name: &HashMap<&str, &Proxy<'_>>,
    ) {
        let mut written: BTreeSet<String> = BTreeSet::new();
        for (number, (test, name, at)) in choices.iter().enumerate() {
            let leads_on = is_last(choices, number);
            let backend = name.and_then(|name| by_name.get(name));
            let upstream = backend.copied().filter(|proxy| self.upstreams.contains(&proxy.at));
            for (is, is_doubt) in [(&test.least, false), (&test.most, true)] {
                if is_doubt && (test.is_exact() || leads_on || self.input.open) {
                    continue;
                }
                let when = match is {
                    Is::Never => continue,
                    Is::Always => None,
                    Is::If(cel) => Some(cel.text().to_owned()),
                };
                if written.contains("") || !written.insert(when.clone().unwrap_or_default()) {
                    continue;
                }
                let reads = when
                    .as_ref()
                    .map(|when| conditions::check(when, conditions::Scope::Request, &self.lists));
                if matches!(reads, Some(Err(_))) || self.tree.count("route") >= CONDITIONS_MAX {
                    self.full(at);
                    continue;
                }
                let mut route = Section::new("route");
                route.set("prefix", "/", at);
                route.set_some("when", when, at);
                match upstream.filter(|_| !is_doubt) {
                    Some(proxy) => {
                        route.set("upstream", proxy.name(), at);
                        route.set("store", false, "HAProxy stores nothing here");
                        self.responses(&mut route, front, proxy.at);
                        let ends = [front, proxy.at];
                        if !self.input.open && ends.iter().any(|at| self.closed.contains(at)) {
                            route.close();
                        }
                    }
                    // HAProxy answers so if there is no backend, or no server.
                    None if !is_doubt => {
                        route.set("answer", "no backend\n", at);
                        route.set("status", Value::Count(503), at);
                    }
                    None => imported::route::Action::NotCarried.write(&mut route, ""),
                }
                self.tree.add(route);
            }
        }
    }

    /// The changes to responses on a route: those of the backend, then those of the frontend.
    fn responses(&self, route: &mut Section, front: usize, back: usize) {
        let of = |at: usize| self.responses.iter().filter(move |change| change.of == at);
        let all: Vec<&Change> = match front == back {
            true => of(front).collect(),
            false => of(back).chain(of(front)).collect(),
        };
        for (at, change) in all.iter().enumerate() {
            let replaces = |later: &&Change| {
                later.op != Op::Add && later.name.eq_ignore_ascii_case(&change.name)
            };
            if !all[at + 1..].iter().any(replaces) {
                rules::write(route.below("route.response"), change);
            }
        }
    }

    /// The notes of the lines of a section, and its settings for the whole file.
    fn settings(&mut self, proxy: &Proxy<'_>) {
        for line in &proxy.lines {
            let key = table::key(line);
            let mut becomes = table::of_proxy(&key);
            if matches!(becomes, Becomes::Unprotected(_)) {
                self.closed.insert(proxy.at);
            }
            if line.may_be_absent && !matches!(becomes, Becomes::Nothing(_)) {
                becomes = Left("it may be absent");
            }
            if line.words.iter().any(|word| is_unknown(word)) && becomes == Carried {
                becomes = Left("the file does not set this environment variable");
            }
            if line.word(0) == "log" && line.word(1) == "global" {
                becomes = Becomes::Nothing("the line in `global` has a note");
            }
            self.input.notes.became(&line.at, &becomes);
        }
        let limits = [
            ("http-request", "head_timeout"),
            ("http-keep-alive", "idle_keep_alive"),
            ("tunnel", "tunnel_idle"),
            ("client", "body_timeout"),
            ("client", "send_timeout"),
        ];
        for (name, key) in limits {
            let Some(line) = proxy.get(&format!("timeout.{name}")) else { continue };
            let becomes = match timeout(time(line.word(2))) {
                None => Left("a time-out is from a millisecond to a day"),
                Some(value) => match self.tree.section("limits").set_once(key, value, &line.at) {
                    true => Carried,
                    false => Left("there is one value for all sections, and another line has it"),
                },
            };
            self.input.notes.became(&line.at, &becomes);
        }
        self.compression(proxy);
        let of_cache = proxy.lines.iter().filter(|line| {
            matches!(line.word(1), "cache-use" | "cache-store")
                || table::key(line) == "filter.cache"
        });
        for line in of_cache {
            self.input.notes.left(&line.at, "nothing is stored: write store = true in its routes");
        }
    }

    fn compression(&mut self, proxy: &Proxy<'_>) {
        let Some(line) = proxy.get("compression.algo") else { return };
        let becomes = match line.has("gzip") {
            true => Different("responses of all sections are coded, from 1 KiB on"),
            false => Left("gzip is the coding that both have"),
        };
        if line.has("gzip") {
            let section = self.tree.section("compression");
            section.set("codings", vec!["gzip".to_owned()], &line.at);
            section.set("passed", true, &line.at);
            if let Some(types) = proxy.get("compression.type") {
                // HAProxy compares the beginning.
                let whole = |word: &String| match word.strip_suffix('/') {
                    Some(_) => format!("{word}*"),
                    None => word.clone(),
                };
                let all: Vec<String> = types.rest(2).iter().map(whole).collect();
                section.set("types", all, &types.at);
                self.input.notes.carried(&types.at);
            }
        }
        self.input.notes.became(&line.at, &becomes);
    }

    /// The notes of a section that nothing in our file comes from.
    fn unused(&mut self, proxy: &Proxy<'_>) {
        let notes = &mut self.input.notes;
        match (proxy.is_http(), proxy.is_front) {
            (false, true) => notes.left(proxy.place(), "connections without HTTP are not proxied"),
            (true, true) => notes.left(proxy.place(), "the admin address has the figures"),
            (_, false) => notes.nothing(proxy.place(), "no frontend that is carried leads to it"),
        }
        for line in &proxy.lines {
            notes.nothing(&line.at, "its section has a note");
        }
    }

    /// The lists that conditions name; closes everything if not all fit.
    fn finish(&mut self) {
        let all = self.tree.all("rule").chain(self.tree.all("route"));
        let texts: String = all.filter_map(|one| one.text("when")).collect();
        for (name, values, at) in std::mem::take(&mut self.written) {
            if texts.contains(&format!("within({name})")) || texts.contains(&format!("in {name}")) {
                let mut list = Section::new("list");
                list.set("name", name, &at);
                list.set("values", values, &at);
                self.tree.add(list);
            }
        }
        if self.is_full && !self.input.open {
            self.tree.all_mut("route").for_each(Section::close);
        }
    }
}
