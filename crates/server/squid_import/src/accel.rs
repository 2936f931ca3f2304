//! Ports with `accel`: origin servers and the rules that lead to them, as upstreams and routes.

use super::Squid;
use super::access::Rule;
use super::acl::{Hosts, Set, both_domains, other_ports};
use super::lines::Line;
use super::peers;
use super::ports::Port;
use super::url;
use conditions::Lists;
use imported::cel::{self, Cel};
use imported::note::{Fate, Notes};
use imported::route::change;
use imported::table::Becomes::{self, Carried, Elsewhere, Left, Nothing, Text, Unprotected};
use imported::tree::{self, Section, Value, authority};

/// An origin server.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    line: Line,
    name: String,
    url: String,
    round_robin: bool,
    weight: Option<u64>,
    outstanding_max: Option<u64>,
    failures: Option<u64>,
    host: Option<String>,
    is_not_verified: bool,
    rules: Vec<Rule>,
    /// Options that are not carried.
    unknown: Vec<String>,
}

/// What `http_access` lets in at these ports.
#[derive(Debug, Default)]
struct Front {
    /// `None`: any host.
    hosts: Option<Hosts>,
    denied: Hosts,
    /// Requests that are denied, whatever their host is.
    denied_when: Vec<Cel>,
    unprotected: bool,
}

/// Pages of Squid that no origin server is asked for.
const INTERNAL: &str = "target.startsWith('/squid-internal-')";

/// `cache_peer HOST TYPE PORT ICP-PORT OPTIONS`
pub(crate) fn peer(squid: &mut Squid, line: &Line) -> Becomes {
    if !line.rest(4).iter().any(|word| word == "originserver") {
        return peers::cache(squid, line);
    }
    let (host, port) = (line.word(0), line.word(2).parse::<u16>());
    let Some(port) = port.ok().filter(|port| *port > 0 && !host.is_empty()) else {
        return Left("its port is not a number");
    };
    let mut peer = Peer { line: line.clone(), name: host.to_owned(), ..Peer::default() };
    let mut scheme = "http";
    for (option, value) in line.options(4) {
        let number = value.parse::<u64>().ok().filter(|number| *number > 0);
        match option {
            "originserver" | "no-query" | "no-digest" | "no-netdb-exchange" | "default"
            | "proxy-only" => {}
            "name" => peer.name = value.to_owned(),
            "round-robin" | "weighted-round-robin" => peer.round_robin = true,
            "weight" => peer.weight = number.map(|weight| weight.min(1000)),
            "max-conn" => peer.outstanding_max = number.filter(|number| *number <= 1_000_000),
            "connect-fail-limit" => peer.failures = number.filter(|number| *number <= 1_000_000),
            "forceddomain" => peer.host = Some(value.to_owned()),
            "tls" | "ssl" => scheme = "https",
            "sslflags" | "tls-flags" if value == "DONT_VERIFY_PEER" => peer.is_not_verified = true,
            _ => peer.unknown.push(option.to_owned()),
        }
    }
    peer.url = format!("{scheme}://{}:{port}", authority(host));
    squid.peers.push(peer);
    Elsewhere
}

/// `cache_peer_access NAME allow|deny LISTS`
pub(crate) fn peer_access(squid: &mut Squid, line: &Line) -> Becomes {
    if let Some(becomes) = peers::access(squid, line) {
        return becomes;
    }
    let rule = squid.rule(line, 1);
    // The names of servers have no case.
    let peer = squid.peers.iter_mut().find(|peer| peer.name.eq_ignore_ascii_case(line.word(0)));
    let (Some(rule), Some(peer)) = (rule, peer) else {
        return Left("there is no such origin server here");
    };
    peer.rules.push(rule);
    Elsewhere
}

impl Squid {
    /// Upstreams and routes.
    pub(crate) fn accelerate(&mut self) {
        let mut rules = self.rules.clone();
        let mut peers = std::mem::take(&mut self.peers);
        let of_peers = peers.iter_mut().flat_map(|peer| &mut peer.rules);
        let ports: Vec<&Port> = self.ports.iter().filter(|port| port.accel).collect();
        rules.iter_mut().chain(of_peers).for_each(|rule| hide_url(rule, &ports));
        let fixed = ports.iter().filter(|port| port.is_fixed);
        let host = fixed.filter_map(|port| port.site.clone()).next();
        let mut front = front(&rules, &ports, &mut self.notes);
        let mut routes = Vec::new();
        let mut groups: Vec<Vec<&Peer>> = Vec::new();
        for peer in &peers {
            let same = |group: &&mut Vec<&Peer>| same_rules(&group[0].rules, &peer.rules);
            match groups.iter_mut().find(same) {
                Some(group) => group.push(peer),
                None => groups.push(vec![peer]),
            }
        }
        for group in &groups {
            self.upstream(group, host.as_deref());
            self.routes(group, &mut front, &mut routes);
        }
        if groups.is_empty() {
            let text = "it has no origin server that is imported, so this port is not written";
            let left = self.ports.iter().filter(|port| port.accel);
            left.for_each(|port| self.notes.left(&port.line.at, text));
            return self.ports.retain(|port| !port.accel);
        }
        let mut rule = Section::new("rule");
        let when = Cel::any(front.denied_when).expect("it has the internal pages");
        rule.set("when", when.text(), "http_access");
        refuse(&mut rule, "http_access");
        self.tree.add(rule);
        let denied = front.denied.texts();
        if !denied.is_empty() {
            routes.push(refusal(Some(denied), "http_access denies these hosts"));
        }
        if front.hosts.is_some() {
            routes.push(refusal(None, "http_access allows no other host"));
        }
        let mut routes = self.stored.apply(routes);
        let value = match self.forwarded_for.as_ref() {
            Some(("delete", _)) => Some(None),
            Some(("replace", _)) => Some(Some("{client}")),
            _ => None,
        };
        for route in routes.iter_mut().filter(|route| route.get("upstream").is_some()) {
            if let Some(value) = value {
                let field = route.below("route.request");
                change(field, "set", "X-Forwarded-For", value, "forwarded_for");
            }
        }
        let closed = front.unprotected && !self.open;
        for mut route in routes {
            if closed {
                route.close();
            }
            self.tree.add(route);
        }
    }

    fn upstream(&mut self, group: &[&Peer], host: Option<&str>) {
        let first = group[0];
        let mut section = Section::new("upstream");
        section.set("name", first.name.clone(), &first.line.at);
        section.set_some("host", first.host.as_deref().or(host), &first.line.at);
        let word = match self.forwarded_for.as_ref().map_or("add", |(word, _)| word) {
            "add" => "x_forwarded_for",
            // Routes remove the field, or set it.
            _ => "none",
        };
        section.set("forwarded", word, "forwarded_for");
        let mut urls = Vec::new();
        for (at, peer) in group.iter().enumerate() {
            if urls.contains(&peer.url) {
                self.notes.left(&peer.line.at, "another line has the same server already");
                continue;
            }
            urls.push(peer.url.clone());
            if peer.unknown.is_empty() {
                self.notes.carried(&peer.line.at);
            } else {
                let text = format!("without its options {}", peer.unknown.join(", "));
                self.notes.left(&peer.line.at, text);
            }
            // Without round-robin, Squid uses the first server that is up.
            let is_backup = at > 0 && !group.iter().all(|peer| peer.round_robin);
            let numbers = (peer.weight, peer.outstanding_max);
            tree::server(&mut section, peer.url.clone(), numbers, is_backup, &peer.line.at);
        }
        if let Some(failures) = first.failures {
            let ejection = section.below("upstream.ejection");
            ejection.set("failures", Value::Count(failures), &first.line.at);
        }
        if group.iter().any(|peer| peer.is_not_verified) {
            section.below("upstream.tls").set("verify", false, &first.line.at);
        }
        self.tree.add(section);
    }

    fn routes(&mut self, group: &[&Peer], front: &mut Front, routes: &mut Vec<Section>) {
        let rules = &group[0].rules;
        let name = &group[0].name;
        let (mut any, mut found) = (rules.is_empty(), Vec::new());
        for rule in rules {
            let at = &rule.line.at;
            match (rule.allow, &rule.parts()[..]) {
                (true, []) => any = true,
                (false, []) => {
                    self.notes.carried(at);
                    break;
                }
                (true, [(false, Set::Domains(hosts))]) => found.push((Some(hosts), "/", at)),
                (true, [(false, Set::Paths(paths))]) => {
                    found.extend(paths.iter().map(|path| (None, path.as_str(), at)));
                }
                (
                    true,
                    [(false, Set::Domains(hosts)), (false, Set::Paths(paths))]
                    | [(false, Set::Paths(paths)), (false, Set::Domains(hosts))],
                ) => found.extend(paths.iter().map(|path| (Some(hosts), path.as_str(), at))),
                // A request that the rule denies would find a route.
                _ => {
                    front.unprotected = true;
                    let text = "routes choose by host and by prefix of the path only";
                    self.notes.unprotected(at, text);
                    continue;
                }
            }
            self.notes.carried(at);
        }
        if any {
            found.push((None, "/", &group[0].line.at));
        }
        for (hosts, path, at) in found {
            let hosts = match (&front.hosts, hosts) {
                (None, hosts) => hosts.cloned(),
                (Some(hosts), None) => Some(hosts.clone()),
                (Some(one), Some(other)) => Some(one.both(other)),
            };
            let mut route = Section::new("route");
            // A denied host must not have a route, because its more exact name would win.
            let texts = hosts.map(|hosts| hosts.texts());
            let is_open = |text: &String| !front.denied.has(text);
            match texts.map(|all| all.into_iter().filter(is_open).collect::<Vec<_>>()) {
                // An empty list would be any host.
                Some(texts) if texts.is_empty() => continue,
                Some(texts) => route.set("hosts", texts, at),
                None => {}
            }
            route.set("prefix", path, at);
            route.set("upstream", name.clone(), at);
            routes.push(route);
        }
    }
}

fn same_rules(one: &[Rule], other: &[Rule]) -> bool {
    let parts = |rule: &Rule| (rule.allow, rule.literals.clone());
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| parts(a) == parts(b))
}

/// A route that refuses.
fn refusal(hosts: Option<Vec<String>>, reason: &str) -> Section {
    let mut route = Section::new("route");
    route.set_some("hosts", hosts, reason);
    route.set("prefix", "/", reason);
    refuse(&mut route, reason);
    route
}

fn refuse(section: &mut Section, reason: &str) {
    section.set("answer", "access denied\n", reason);
    section.set("status", Value::Count(403), reason);
}

/// Makes the lists of a rule unknown that Squid does not compare with the URL of the client.
fn hide_url(rule: &mut Rule, ports: &[&Port]) {
    let is_fixed = ports.iter().any(|port| port.is_fixed);
    let has_own_port = is_fixed || ports.iter().any(|port| port.has_own_port);
    for (_, set) in &mut rule.literals {
        let is_hidden = match set {
            Set::Domains(_) => is_fixed,
            Set::Ports(_) => has_own_port,
            _ => false,
        };
        if is_hidden {
            *set =
                Set::Unknown("with no-vhost, vport or protocol, Squid compares another URL".into());
        }
    }
}

/// Whether a condition is one that the server takes.
fn is_taken(when: &[Cel]) -> bool {
    Cel::any(when.to_vec()).is_some_and(|all| cel::check(&all, &Lists::default()).is_some())
}

/// Reads `http_access` for these ports with `accel`.
fn front(rules: &[Rule], ports: &[&Port], notes: &mut Notes) -> Front {
    let internal = vec![Cel::one(INTERNAL)];
    let hosts = Some(Hosts::default());
    let mut front = Front { hosts, denied_when: internal, ..Front::default() };
    // Requests without Host are for the default site.
    let sites = ports.iter().filter_map(|port| port.site.as_deref());
    let sites: Vec<(String, Option<u16>)> = sites.map(site).collect();
    let mut last_denies = false;
    for (number, rule) in rules.iter().enumerate() {
        last_denies = !rule.allow;
        if rule.is_about_purge() {
            continue;
        }
        let parts = rule.parts();
        let connect = (false, Set::Methods(vec!["CONNECT".to_owned()]));
        let becomes = match (rule.allow, &parts[..]) {
            (allow, []) => {
                if allow {
                    front.hosts = None;
                }
                notes.carried(&rule.line.at);
                for dead in &rules[number + 1..] {
                    notes.nothing(&dead.line.at, "no request reaches this line");
                }
                return front;
            }
            _ if parts.contains(&&(false, Set::Manager)) => Nothing("there are no such pages"),
            (false, _) if parts.contains(&&connect) => Nothing("there are no tunnels here"),
            (false, [(negated, Set::Ports(these))]) => {
                let denied = if *negated { other_ports(these) } else { these.clone() };
                let is_in = |port: u16| denied.iter().any(|(a, b)| (*a..=*b).contains(&port));
                front.denied_when.extend(url::has_port(&denied));
                if sites.iter().any(|(_, port)| port.is_some_and(is_in)) {
                    front.denied_when.push(Cel::one(NO_HOST));
                }
                match is_taken(&front.denied_when) {
                    true => Carried,
                    false => {
                        front.denied_when.truncate(1);
                        front.unprotected = true;
                        Unprotected("it is more than a condition can say")
                    }
                }
            }
            (true, [(false, Set::Domains(hosts))]) => {
                front.hosts.iter_mut().for_each(|all| all.extend(hosts));
                Carried
            }
            (false, [(false, Set::Domains(hosts))]) => {
                front.denied.extend(hosts);
                if sites.iter().any(|(name, _)| hosts.has(name)) {
                    front.denied_when.push(Cel::one(NO_HOST));
                }
                Carried
            }
            (true, _) => Left("routes do not depend on clients; these requests stay refused"),
            (false, _) => {
                front.unprotected = true;
                let unknown = parts.iter().find_map(|(_, set)| match set {
                    Set::Unknown(why) => Some(why.clone()),
                    _ => None,
                });
                let usual = || "routes do not depend on what this line looks at".to_owned();
                Text(Fate::Unprotected, unknown.unwrap_or_else(usual))
            }
        };
        notes.became(&rule.line.at, &becomes);
    }
    if last_denies {
        front.hosts = None;
    }
    front
}

const NO_HOST: &str = "host == ''";

/// The name and the port of a default site.
fn site(text: &str) -> (String, Option<u16>) {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (name, port.parse().ok()),
        None => (text, None),
    };
    (name.to_ascii_lowercase(), port)
}

impl Hosts {
    /// As routes have them.
    fn texts(&self) -> Vec<String> {
        let below = self.below.iter().flat_map(|name| {
            let is_address = name.parse::<std::net::IpAddr>().is_ok();
            let all = (!is_address).then(|| format!("*.{name}"));
            [Some(name.clone()), all].into_iter().flatten()
        });
        let mut texts: Vec<String> = below.chain(self.alone.iter().cloned()).collect();
        texts.sort();
        texts.dedup();
        texts
    }

    /// Whether a name, or all names below it (`*.NAME`), are among them.
    fn has(&self, text: &String) -> bool {
        let name = text.strip_prefix("*.").unwrap_or(text);
        let is_below = |above: &String| {
            name == above || name.strip_suffix(above.as_str()).is_some_and(|n| n.ends_with('.'))
        };
        self.alone.contains(text) || self.below.iter().any(is_below)
    }

    /// The hosts that are in both.
    fn both(&self, other: &Hosts) -> Hosts {
        let mut alone: Vec<String> =
            self.alone.iter().filter(|name| other.has(name)).cloned().collect();
        alone.extend(other.alone.iter().filter(|name| self.has(name)).cloned());
        Hosts { below: both_domains(&self.below, &other.below), alone, looks_up: false }
    }
}
