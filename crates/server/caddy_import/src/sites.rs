//! Sites: their addresses, listeners and certificates, and the routes of their cases.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use imported::cel::{self, Cel};
use imported::limits::{CONDITIONS_MAX, ROUTES_MAX};
use imported::note::{Fate, Place};
use imported::route::Action;
use imported::tree::{Section, Value};

use crate::Caddy;
use crate::blocks::Block;
use crate::fields;
use crate::flow::{self, Case, Ruled};
use crate::matchers::{self, Rewriting, Test};
use crate::tls::Tls;

/// Rules that are written: as many as the server takes.
const RULES_MAX: usize = 256;
/// Hosts that a condition names, at most.
const HOSTS_MAX: usize = 64;

/// An address of a site.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Address {
    /// `None`: all hosts.
    pub(crate) host: Option<String>,
    pub(crate) port: u16,
    pub(crate) tls: bool,
    path: String,
}

/// What an address says before the ports are known.
fn parts(key: &str) -> Option<(&str, String, Option<u16>, String)> {
    let (scheme, rest) = key.split_once("://").unwrap_or(("", key));
    let (rest, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port.parse().ok()?)),
        _ => (rest, None),
    };
    let host = host.to_ascii_lowercase();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.*[]:".contains(&b);
    let fits = host.bytes().all(plain) && matches!(scheme, "" | "http" | "https");
    // `*` alone is a label in Caddy.
    let bare = host.trim_start_matches("*.");
    let is_odd = bare.contains('*') || bare.starts_with('.') || bare.contains("..");
    (fits && !is_odd && port != Some(0)).then(|| (scheme, host, port, path.to_owned()))
}

/// What one port needs.
#[derive(Debug, Default)]
struct Port {
    /// Addresses without the port; empty: all.
    bound: BTreeSet<String>,
    tls: Option<Tls>,
    has_rest: bool,
    hosts: BTreeSet<String>,
    at: Place,
}

/// The routes of a site.
struct Plan<'s> {
    site: &'s Block,
    /// The hosts for each port, and whether there are all hosts.
    ports: BTreeMap<u16, (Vec<String>, bool)>,
    path: String,
    closed: bool,
    /// It asks for client certificates.
    asks: bool,
}

impl Caddy {
    pub(crate) fn address(&self, key: &str, has_tls: bool) -> Option<Address> {
        let (scheme, host, port, path) = parts(key)?;
        let host = Some(host).filter(|host| !host.is_empty());
        let tls = match (scheme, port) {
            ("http", _) => false,
            ("https", _) => true,
            (_, Some(port)) if port == self.http_port => false,
            (_, port) => host.is_some() || has_tls || port == Some(self.https_port),
        };
        let usual = if scheme == "http" { self.http_port } else { self.https_port };
        let usual = if host.is_none() && port.is_none() { return None } else { usual };
        Some(Address { host, port: port.unwrap_or(usual), tls, path })
    }

    /// Writes all sites.
    pub(crate) fn sites(&mut self, sites: &[Block]) {
        let mut ports: BTreeMap<u16, Port> = BTreeMap::new();
        let mut plans = Vec::new();
        // Names that are redirected to https, by the port that they are redirected to.
        let mut redirected: BTreeMap<u16, Vec<String>> = BTreeMap::new();
        for site in sites {
            let tls = Tls::of(site, self);
            let (ports_, path) = (BTreeMap::new(), String::new());
            let (closed, asks) = (tls.closes, tls.asks());
            let mut plan = Plan { site, ports: ports_, path, closed, asks };
            let bound = self.bound(site);
            self.notes.carried(&site.at);
            for key in &site.keys {
                let Some(address) = self.address(key, tls.has_line) else {
                    let why = format!(
                        "the address {key} is not known here; write a host, a port, or both, and \
                         values in place of variables"
                    );
                    self.notes.unprotected(&site.at, why);
                    continue;
                };
                let port = ports.entry(address.port).or_default();
                if port.at == Place::default() {
                    port.at = site.at.clone();
                }
                port.bound.extend(bound.iter().cloned());
                let (hosts, all) = plan.ports.entry(address.port).or_default();
                match &address.host {
                    Some(host) => {
                        hosts.push(host.clone());
                        port.hosts.insert(host.clone());
                    }
                    None => *all = true,
                }
                port.has_rest |= address.host.is_none() && address.path.is_empty();
                plan.path.clone_from(&address.path);
                if !address.tls {
                    continue;
                }
                let (own, notes) = (port.tls.get_or_insert_default(), &mut self.notes);
                own.join(&tls, address.host.as_deref(), &site.at, notes);
                if let Some(host) = address.host.filter(|_| self.redirects && self.auto_https) {
                    redirected.entry(address.port).or_default().push(host);
                }
            }
            plans.push(plan);
        }
        // Longer paths first, as in Caddy.
        plans.sort_by_key(|plan| std::cmp::Reverse(plan.path.len()));
        if !redirected.is_empty() {
            ports.entry(self.http_port).or_default();
        }
        for plan in plans.iter_mut().filter(|plan| plan.asks) {
            let of_port = |number: &u16| ports.get(number).and_then(|port| port.tls.as_ref());
            if plan.ports.keys().filter_map(of_port).any(Tls::is_mixed) {
                let why =
                    "other sites of the listener ask for no such certificate, so it is closed";
                self.notes.unprotected(&plan.site.at, why);
                plan.closed = true;
            }
        }
        self.many_ports = ports.len() > 1;
        self.redirects_of(&redirected, &ports);
        for plan in &plans {
            self.site(plan, &plans);
        }
        for (number, port) in &ports {
            let has_rest = port.has_rest || *number == self.http_port && !redirected.is_empty();
            if !has_rest {
                let mut route = Section::new("route");
                route.set_some(
                    "when",
                    self.of_port(*number).as_ref().map(Cel::text),
                    "other hosts",
                );
                let action = Action::Answer { status: 200, body: String::new() };
                action.write(&mut route, "Caddy answers requests for other hosts like this");
                self.tree.add(route);
            }
            if port.tls.as_ref().is_some_and(|tls| !tls.has_certificate()) {
                let why = format!(
                    "port {number} is not opened: none of its sites has a certificate; write \
                     [[listen]] with [[listen.tls.certificate]]"
                );
                self.notes.unprotected(&port.at, why);
                continue;
            }
            self.listen(*number, &port.bound, port.tls.as_ref(), &port.at);
        }
        let has_acme = ports.values().any(|port| port.tls.as_ref().is_some_and(Tls::obtains));
        self.finish(has_acme, ports.contains_key(&self.http_port));
    }

    fn of_port(&self, port: u16) -> Option<Cel> {
        self.many_ports.then(|| Cel::one(format!("port == {port}")))
    }

    /// The addresses of `bind`.
    fn bound(&mut self, site: &Block) -> Vec<String> {
        let mut all = self.default_bind.clone();
        for line in site.inner.iter().filter(|line| line.name == "bind") {
            all.clear();
            for word in &line.words {
                match word.parse::<std::net::IpAddr>() {
                    Ok(address) => all.push(imported::tree::authority(&address.to_string())),
                    Err(_) => {
                        let why = "only addresses are carried; all addresses are not opened";
                        self.notes.unprotected(&line.at, why);
                        all.push("127.0.0.1".to_owned());
                    }
                }
            }
            self.notes.carried(&line.at);
        }
        all
    }

    /// The redirects from http to https that Caddy makes by itself.
    fn redirects_of(&mut self, all: &BTreeMap<u16, Vec<String>>, ports: &BTreeMap<u16, Port>) {
        let from = "Caddy redirects to https by itself";
        let redirect = |hosts: &[String], to: String, caddy: &mut Caddy| {
            let mut route = Section::new("route");
            route.set_some("when", caddy.of_port(caddy.http_port).as_ref().map(Cel::text), from);
            Action::Redirect { status: 308, to, with_path: true }.write(&mut route, from);
            caddy.conditions += 1;
            caddy.add(route, hosts, hosts.is_empty(), from);
        };
        let own = ports.get(&self.http_port).map(|port| &port.hosts);
        for (port, hosts) in all {
            let port = match *port == self.https_port {
                true => String::new(),
                false => format!(":{port}"),
            };
            // A site for http comes first.
            let is_free = |host: &&String| own.is_none_or(|own| !own.contains(*host));
            let hosts: Vec<String> = hosts.iter().filter(is_free).cloned().collect();
            if !hosts.is_empty() {
                redirect(&hosts, format!("https://{{host}}{port}"), self);
            }
        }
        if !all.is_empty() && !ports.get(&self.http_port).is_some_and(|port| port.has_rest) {
            redirect(&[], "https://{host}".to_owned(), self);
        }
    }

    fn site(&mut self, plan: &Plan<'_>, all: &[Plan<'_>]) {
        if plan.ports.is_empty() {
            let why = "its address is not known here";
            for one in &plan.site.inner {
                self.notes.left(&one.at, why);
                flow::inside(one, Fate::NotCarried, why, &mut self.notes);
            }
            return;
        }
        let tests = match plan.path.is_empty() || plan.path == "/" {
            true => Vec::new(),
            false => matchers::paths(std::slice::from_ref(&plan.path), &Rewriting::Same).tests,
        };
        let found = flow::cases(&plan.site.inner, tests, &plan.site.at, self);
        let mut cases = found.unwrap_or_default();
        let at = &plan.site.at;
        let wanted = (cases.all.len() + cases.ruled.len()) * plan.ports.len();
        let has_room = self.conditions + 2 * wanted <= CONDITIONS_MAX
            && self.tree.count("route") + 2 * wanted <= ROUTES_MAX;
        if cases.all.is_empty() || !has_room {
            let why = "it has too many cases, so it is closed; write handle blocks";
            self.notes.unprotected(at, why);
            let (action, state) = (Action::NotCarried, flow::State::default());
            let (at, tests) = (at.clone(), Vec::new());
            cases.all = vec![Case { at, tests, action, state, closed: true }];
            cases.ruled.clear();
        }
        if plan.closed && !self.open {
            cases.all.iter_mut().for_each(|case| case.closed = true);
        }
        for (port, (hosts, is_rest)) in &plan.ports {
            let own = self.of_site(*port, (hosts, *is_rest), all);
            for ruled in &cases.ruled {
                self.ruled(ruled, own.as_ref(), &cases.all);
            }
            for at in 0..cases.all.len() {
                let place = (*port, hosts.as_slice(), *is_rest);
                self.route(at, &cases.all, place, own.as_ref());
            }
        }
    }

    /// The condition that a request is for a site, on a port. `None`: no condition can say it.
    fn of_site(
        &self,
        port: u16,
        (hosts, is_rest): (&[String], bool),
        all: &[Plan<'_>],
    ) -> Option<Option<Cel>> {
        let any = |hosts: &[String]| -> Option<Option<Cel>> {
            if hosts.len() > HOSTS_MAX {
                return None;
            }
            let parts: Option<Vec<Cel>> = hosts.iter().map(|host| matchers::host(host)).collect();
            Some(Cel::any(parts?))
        };
        let is_wild = hosts.iter().any(|host| host.contains('*'));
        let count = if is_rest || is_wild { all.len() } else { 0 };
        let others = all[..count].iter().filter_map(|plan| plan.ports.get(&port));
        let others: Vec<String> = others.flat_map(|(hosts, _)| hosts.iter().cloned()).collect();
        let of_hosts = match is_rest {
            false => {
                // A host of another site is none of a wildcard.
                let more: Vec<String> =
                    others.iter().filter(|one| is_wild && !hosts.contains(*one)).cloned().collect();
                let less = any(&more)?.map(Cel::negated);
                Cel::all(any(hosts)?.into_iter().chain(less).collect())
            }
            true => any(&others)?.map(Cel::negated),
        };
        Some(Cel::all(self.of_port(port).into_iter().chain(of_hosts).collect()))
    }

    /// A rule for a `header` with a matcher.
    fn ruled(&mut self, ruled: &Ruled, own: Option<&Option<Cel>>, cases: &[Case]) {
        let sent = cases.iter().any(|case| case.action.forwards());
        let mut changes = ruled.changes.clone();
        let is_alone = changes.iter().all(|change| {
            let mut others = cases.iter().flat_map(|case| &case.state.response);
            !others.any(|other| other.name.eq_ignore_ascii_case(&change.name))
        });
        // Later changes of all requests take the place of this change.
        changes.retain(|change| {
            let is_last =
                |case: &Case| case.state.response.iter().any(|other| other.replaces(change));
            cases.is_empty() || !cases.iter().all(is_last)
        });
        if changes.is_empty() {
            return self.notes.nothing(&ruled.at, "a later line sets the same field");
        }
        let parts = ruled.tests.iter().map(|test| test.cel.clone());
        let when = own.and_then(|own| Cel::all(own.iter().cloned().chain(parts).collect()));
        let when = when.filter(|when| cel::check(when, &conditions::Lists::new()).is_some());
        let Some(when) = when.filter(|_| self.tree.count("rule") < RULES_MAX) else {
            return self.notes.left(&ruled.at, "its condition is too long, or there are too many");
        };
        let mut rule = Section::new("rule");
        rule.set("name", format!("{}-{}", ruled.at, self.tree.count("rule") + 1), &ruled.at);
        rule.set("when", when.text(), &ruled.at);
        if sent {
            let why = match is_alone {
                true => "the same field of an upstream is replaced",
                false => "the same field of an upstream and of other lines is replaced",
            };
            self.notes.different(&ruled.at, why);
        }
        rule.set("store", false, "Caddy stores nothing");
        fields::write(&mut rule, "rule.response", &changes, false);
        self.conditions += 1;
        self.tree.add(rule);
    }

    /// Writes the route of a case.
    fn route(
        &mut self,
        index: usize,
        cases: &[Case],
        (port, hosts, is_rest): (u16, &[String], bool),
        own: Option<&Option<Cel>>,
    ) {
        let case = &cases[index];
        let (at, state) = (&case.at, &case.state);
        let mut closed = case.closed;
        let mut action = case.action.clone();
        let mut all: Vec<(Option<String>, Vec<Test>, Action, bool)> = Vec::new();
        match (&case.action, &state.way) {
            (Action::Upstream(_), way) if *way != Rewriting::Same => {
                let rule =
                    rewrite(way).and_then(|one| self.rewriting(one, &cases[..=index], own, at));
                if rule.is_none() {
                    let why = "its path cannot be changed here; its requests are answered with 501";
                    self.notes.left(at, why);
                    action = Action::NotCarried;
                }
            }
            (Action::Files(..), Rewriting::Stripped(text)) => {
                // A path with a prefix comes before all conditions, so earlier cases get it too.
                let prefix = Some(format!("{text}/"));
                for earlier in cases[..index].iter().filter(|other| other.meets(case)) {
                    if matches!(earlier.action, Action::Upstream(_) | Action::Files(..)) {
                        closed = true;
                        let why = "an earlier line is for some of its paths, so it is closed";
                        self.notes.unprotected(at, why);
                        continue;
                    }
                    let (tests, action) = (earlier.tests.clone(), earlier.action.clone());
                    all.push((prefix.clone(), tests, action, earlier.closed));
                }
                all.push((prefix, case.tests.clone(), action, closed));
                // Requests with the prefix in another case.
                action = Action::NotCarried;
            }
            _ => {}
        }
        all.push((None, case.tests.clone(), action, closed));
        for (prefix, tests, action, closed) in all {
            let mut route = Section::new("route");
            route.set_some("prefix", prefix, at);
            let tests = tests.into_iter().map(|test| test.cel);
            let parts = self.of_port(port).into_iter().chain(tests).collect();
            let when: Option<Cel> = Cel::all(parts);
            self.conditions += usize::from(when.is_some());
            route.set_some("when", when.as_ref().map(Cel::text), at);
            self.fill(&mut route, &action, case);
            if closed && !self.open {
                route.close();
            }
            self.add(route, hosts, is_rest, at);
        }
    }

    /// Adds a route for these hosts, and for all others, unless an earlier route takes their
    /// requests. Hosts with a capture have their own route.
    fn add(&mut self, route: Section, hosts: &[String], is_rest: bool, at: impl Display) {
        let text = |key| route.text(key).unwrap_or_default().to_owned();
        let (prefix, when) = (text("prefix"), text("when"));
        let mut is_new = |host: &str| {
            let all = (host.to_owned(), prefix.clone(), String::new());
            let own = (host.to_owned(), prefix.clone(), when.clone());
            !self.written.contains(&all) && self.written.insert(own)
        };
        let hosts: Vec<String> = hosts.iter().map(|host| route_host(host)).collect();
        let hosts = hosts.into_iter().filter(|host| is_new(host));
        let (wild, plain): (Vec<String>, Vec<String>) = hosts.partition(|one| one.contains('{'));
        let is_rest = is_rest && is_new("");
        for hosts in [plain, wild].into_iter().filter(|hosts| !hosts.is_empty()) {
            let mut named = route.clone();
            named.set("hosts", hosts, &at);
            self.tree.add(named);
        }
        if is_rest {
            self.tree.add(route);
        }
    }

    /// What a route does, besides its path and its hosts.
    fn fill(&self, route: &mut Section, action: &Action, case: &Case) {
        let (from, state) = (case.at.to_string(), &case.state);
        action.write(route, &from);
        let forwards = matches!(action, Action::Upstream(_));
        let serves = forwards || matches!(action, Action::Files(..));
        if forwards {
            route.set("store", false, "Caddy stores nothing");
            fields::write(route, "route.request", &state.request, false);
        }
        if *action != Action::NotCarried {
            fields::write(route, "route.response", &state.response, forwards);
        }
        if let Some((bytes, at)) = state.body_max.as_ref().filter(|_| forwards) {
            route.set("body_bytes_max", Value::Bytes(*bytes), at);
        }
        if self.codes && !state.codes && serves {
            route.set("compression", false, "it has no encode");
        }
        if let Some(auth) = state.auth.as_ref().filter(|_| *action != Action::NotCarried) {
            let section = route.below("route.auth");
            section.set("upstream", auth.upstream.as_str(), &case.at);
            section.set("path", auth.path.as_str(), &case.at);
            section.set_list("copy", &auth.copy, &case.at);
        }
    }

    /// A rule that changes the path of a case for the upstream.
    fn rewriting(
        &mut self,
        (test, path): (Option<Cel>, String),
        cases: &[Case],
        own: Option<&Option<Cel>>,
        at: &Place,
    ) -> Option<()> {
        let (case, earlier) = cases.split_last()?;
        let mut parts: Vec<Cel> = own?.iter().cloned().chain(test).collect();
        parts.extend(case.tests.iter().map(|test| test.cel.clone()));
        for other in earlier {
            if other.meets(case) {
                let all = other.tests.iter().map(|test| test.cel.clone()).collect();
                parts.push(Cel::all(all)?.negated());
            }
        }
        if parts.len() > cel::PARTS_MAX || self.tree.count("rule") >= RULES_MAX {
            return None;
        }
        let when = Cel::all(parts).unwrap_or_else(|| Cel::one("path.startsWith('/')"));
        cel::check(&when, &conditions::Lists::new())?;
        let mut rule = Section::new("rule");
        rule.set("name", format!("{at}-{}", self.tree.count("rule") + 1), at);
        rule.set("when", when.text(), at);
        rule.set("rewrite", path, at);
        rule.set("store", false, "Caddy stores nothing");
        self.conditions += 1;
        self.tree.add(rule);
        Some(())
    }
}

/// A host as a route has it. Caddy's wildcard is one label.
fn route_host(host: &str) -> String {
    match host.strip_prefix("*.") {
        Some(rest) => format!("{{label}}.{rest}"),
        None => host.to_owned(),
    }
}

/// The condition of a rule that changes a path, and the path.
fn rewrite(way: &Rewriting) -> Option<(Option<Cel>, String)> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_/.~".contains(&b);
    let escaped = |text: &str| text.bytes().all(plain).then(|| text.replace('.', r"\."));
    match way {
        Rewriting::Stripped(prefix) => {
            let pattern = format!("(?is)^{}/(?P<rest>.*)$", escaped(prefix)?);
            Some((Some(cel::matches("path", &pattern)?), "/{rest}".to_owned()))
        }
        Rewriting::Added(text) => {
            escaped(text)?;
            Some((Some(cel::matches("path", "(?s)^/(?P<rest>.*)$")?), format!("{text}/{{rest}}")))
        }
        Rewriting::Fixed(path) => escaped(path).map(|_| (None, path.clone())),
        Rewriting::Same | Rewriting::Unknown => None,
    }
}
