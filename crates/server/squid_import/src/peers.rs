//! Other caches: `[[peer]]`, `[hierarchy]`, `[icp]` and `[htcp]`, for clients that use the proxy.

use super::access::NO_RULE;
use super::acl::{Addresses, Set};
use super::lines::{Line, public};
use super::{Squid, texts_of};
use imported::limits::NETWORKS_MAX;
use imported::route::add;
use imported::table::Becomes::{self, Carried, Different, Elsewhere, Left, Nothing, Unprotected};
use imported::tree::{Section, authority};

/// What the lines have said about other caches.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    peers: Vec<Cache>,
    always: Vec<String>,
    always_methods: Vec<String>,
    /// A line of `always_direct` denies, so later lines are not carried.
    always_ended: bool,
    never: Vec<String>,
    /// The lines of `never_direct` that allow.
    never_lines: Vec<Line>,
    /// `nonhierarchical_direct off`: requests with other methods than GET go to parents, too.
    all_to_parents: bool,
    /// The address of UDP, and the ports of `[icp]` and `[htcp]`.
    address: Option<Line>,
    ports: Vec<(&'static str, u16, Line)>,
}

#[derive(Debug)]
struct Cache {
    line: Line,
    name: String,
    section: Section,
    is_parent: bool,
    is_default: bool,
    balance: &'static str,
    /// Why it is not written.
    left: Option<String>,
    /// How it differs.
    why: Vec<&'static str>,
}

/// `cache_peer HOST parent|sibling PORT ICP-PORT OPTIONS`, without `originserver`.
pub(crate) fn cache(squid: &mut Squid, line: &Line) -> Becomes {
    let (host, kind) = (line.word(0), line.word(1));
    let (port, query) = (line.word(2).parse::<u16>(), line.word(3).parse::<u16>());
    let (Ok(port @ 1..), Ok(mut query), "parent" | "sibling") = (port, query, kind) else {
        return Left("it is no parent or sibling with numbers as its ports");
    };
    let mut peer = Cache {
        line: line.clone(),
        name: host.to_owned(),
        section: Section::new("peer"),
        is_parent: kind == "parent",
        is_default: false,
        balance: "",
        left: None,
        why: Vec::new(),
    };
    let (mut asks_by, mut scheme, mut has_login, mut unknown) = ("icp", "http", false, Vec::new());
    for word in line.rest(4) {
        let (option, value) = word.split_once('=').unwrap_or((word, ""));
        let number = value.parse::<u64>().ok().filter(|number| *number > 0);
        match (option, number) {
            ("no-query", _) => query = 0,
            ("htcp", _) if value.is_empty() => asks_by = "htcp",
            ("default", _) => peer.is_default = true,
            ("name", _) => peer.name = value.to_owned(),
            ("round-robin", _) => peer.balance = "round_robin",
            ("weighted-round-robin", _) => {
                peer.balance = "round_robin";
                peer.why.push("its share is its weight, and not by its distance");
            }
            ("carp", _) => {
                peer.balance = "carp";
                let why =
                    "the draft's array of parents is used: Squid chooses others for many URLs";
                peer.why.push(why);
            }
            ("weight", Some(weight)) if peer.is_parent && weight <= 1000 => {
                peer.section.set("weight", weight, &line.at);
            }
            ("max-conn", Some(max)) if max <= 1_000_000 => {
                peer.section.set("outstanding_max", max, &line.at);
            }
            ("tls" | "ssl", _) => scheme = "https",
            ("login", _)
                if value.split_once(':').is_some_and(|(n, p)| n != "*" && !p.is_empty()) =>
            {
                has_login = true;
            }
            ("proxy-only", _) => peer.why.push("its responses are stored here too"),
            ("no-digest" | "no-netdb-exchange" | "allow-miss" | "background-ping", _) => {}
            _ => unknown.push(public(word)),
        }
    }
    peer.section.set("url", format!("{scheme}://{}:{port}", authority(host)), &line.at);
    peer.section.set("kind", kind, &line.at);
    if query > 0 {
        peer.section.set(asks_by, u64::from(query), &line.at);
    }
    if has_login {
        let plain =
            |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '_' };
        let file: String = peer.name.chars().map(plain).collect::<String>() + ".login";
        peer.section.set("login", file, &line.at);
        peer.why.push("write NAME:PASSWORD of its login into the file that our key names");
    }
    if !unknown.is_empty() {
        peer.left = Some(format!("its options {} are not known here", unknown.join(", ")));
    } else if query == 0 && !peer.is_parent {
        peer.left = Some("a sibling is asked what it has, by ICP or HTCP".to_owned());
    }
    squid.caches.peers.push(peer);
    Elsewhere
}

/// `cache_peer_access` of another cache; `None`: there is none of this name.
pub(crate) fn access(squid: &mut Squid, line: &Line) -> Option<Becomes> {
    let mut peers = squid.caches.peers.iter_mut();
    let peer = peers.find(|peer| peer.name.eq_ignore_ascii_case(line.word(0)))?;
    if line.words[1..] == ["allow", "all"] {
        return Some(Carried);
    }
    peer.left = Some("rules say who may use it, and a peer has none".to_owned());
    Some(Left("a peer has no rules, so it is not written"))
}

/// `always_direct` and `never_direct`.
pub(crate) fn direct(squid: &mut Squid, line: &Line) -> Becomes {
    let is_always = line.name == "always_direct";
    let Some(rule) = squid.rule(line, 0) else { return NO_RULE };
    let caches = &mut squid.caches;
    let list = if is_always { &mut caches.always } else { &mut caches.never };
    if rule.allow && !is_always {
        caches.never_lines.push(line.clone());
    }
    if is_always && caches.always_ended {
        return Left("an earlier line that denies is asked first");
    }
    caches.always_ended |= is_always && !rule.allow;
    match (rule.allow, &rule.parts()[..]) {
        (false, []) => Nothing("it is so without a rule"),
        (true, []) => {
            add(list, "*");
            Carried
        }
        (true, [(false, Set::Domains(hosts))]) => {
            hosts.names().for_each(|name| add(list, name.as_str()));
            let has_subdomains = "a domain has its subdomains here";
            if hosts.alone.is_empty() { Carried } else { Different(has_subdomains) }
        }
        (true, [(false, Set::Methods(methods))]) if is_always => {
            methods.iter().for_each(|name| add(&mut caches.always_methods, name.as_str()));
            Carried
        }
        (false, [(false, Set::Domains(_))]) if !is_always => {
            Different("if a later line allows it, these go to a parent too")
        }
        // These requests would bypass a parent that inspects requests.
        (_, _) if !is_always => Unprotected("only domains are never asked directly"),
        _ => Left("domains and methods alone are always asked directly"),
    }
}

pub(crate) fn nonhierarchical(squid: &mut Squid, line: &Line) -> Becomes {
    squid.caches.all_to_parents = line.word(0) == "off";
    Carried
}

/// `icp_port` and `htcp_port`.
pub(crate) fn port(squid: &mut Squid, line: &Line) -> Becomes {
    match line.word(0).parse::<u16>() {
        Ok(0) => Nothing("it is off"),
        Ok(port) => {
            let name = if line.name == "icp_port" { "icp" } else { "htcp" };
            squid.caches.ports.push((name, port, line.clone()));
            Carried
        }
        Err(_) => Left("it is not a number"),
    }
}

/// Methods that Squid does not send to parents by default.
const DIRECT_METHODS: [&str; 6] = ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT"];

impl Squid {
    /// Writes `[icp]` and `[htcp]`: where, and who may ask.
    pub(crate) fn queries(&mut self) {
        let address = self.caches.address.take();
        let at = address.as_ref().map_or("[::]".to_owned(), |line| authority(line.word(0)));
        let ports = std::mem::take(&mut self.caches.ports);
        if let Some(line) = address.filter(|_| ports.is_empty()) {
            self.notes.nothing(&line.at, "no port of ICP or HTCP is open");
        }
        for (name, port, line) in ports {
            self.tree.section(name).set("listen", format!("{at}:{port}"), &line.at);
        }
        for (section, key, rules) in [
            ("icp", "allow_from", "icp_access"),
            ("htcp", "allow_from", "htcp_access"),
            ("htcp", "clear_from", "htcp_clr_access"),
        ] {
            let is_on = self.tree.all(section).next().is_some();
            let Some((from, _, lines)) = self.senders.get(rules) else { continue };
            for line in lines.iter().filter(|_| !is_on) {
                self.notes.nothing(&line.at, format!("no [{section}] is written"));
            }
            if is_on {
                let from = texts_of(&from.networks(NETWORKS_MAX).unwrap_or_default());
                self.tree.section(section).set(key, from, rules);
            }
        }
    }

    /// Writes other caches. `forward`: there are clients that use the proxy.
    pub(crate) fn peers(&mut self, forward: bool) {
        let caches = std::mem::take(&mut self.caches);
        let mut written: Vec<Cache> = Vec::new();
        let mut urls = Vec::new();
        for peer in caches.peers {
            let url = peer.section.get("url").cloned();
            let twice = "another line has the same server already".to_owned();
            let of_routes = "parents of accel ports are upstreams: write originserver".to_owned();
            let left = peer.left.clone().or((!forward).then_some(of_routes));
            match left.or(urls.contains(&url).then_some(twice)) {
                Some(why) => self.notes.left(&peer.line.at, why),
                None => {
                    urls.push(url);
                    written.push(peer);
                }
            }
        }
        let parents = || written.iter().filter(|peer| peer.is_parent);
        let has_parents = parents().next().is_some();
        let main = parents().filter(|peer| !peer.is_default).count();
        let balance = parents().map(|peer| peer.balance).find(|balance| !balance.is_empty());
        self.tree.section("hierarchy").set_some("balance", balance, "cache_peer");
        let mut hierarchy = |key, list: Vec<String>, from: &str| {
            if forward {
                self.tree.section("hierarchy").set_list(key, &list, from);
            }
        };
        if !written.is_empty() {
            hierarchy("always_direct", caches.always, "always_direct");
            let mut methods = caches.always_methods;
            if has_parents && caches.never.is_empty() && !caches.all_to_parents {
                DIRECT_METHODS.iter().for_each(|name| add(&mut methods, *name));
            }
            hierarchy("always_direct_methods", methods, "nonhierarchical_direct");
        }
        if has_parents {
            hierarchy("never_direct", caches.never, "never_direct");
        } else {
            for line in &caches.never_lines {
                self.close(line, "no parent is written that these requests could go to");
            }
        }
        let mut first = true;
        for mut peer in written {
            let mut why = peer.why.clone();
            if peer.is_parent {
                // Without another way to choose, Squid uses the first parent that is up.
                let is_backup = match peer.is_default {
                    true => main > 0 || !first,
                    false => balance.is_none() && !first,
                };
                peer.section.set_some("backup", is_backup.then_some(true), &peer.line.at);
                first &= peer.is_default && main > 0;
                if peer.balance.is_empty() && balance.is_some() && !peer.is_default {
                    why.push("one balance is for all parents");
                }
            }
            match why.is_empty() {
                true => self.notes.carried(&peer.line.at),
                false => self.notes.different(&peer.line.at, why.join("; ")),
            }
            self.tree.add(peer.section);
        }
    }
}

/// The allowed networks, the denied networks, and the lines of the rules.
pub(crate) type Senders = (Addresses, Addresses, Vec<Line>);

/// Rules about senders: `proxy_protocol_access`, `icp_access` and others. The first line that
/// matches decides.
pub(crate) fn senders(squid: &mut Squid, line: &Line) -> Becomes {
    let rule = squid.rule(line, 0);
    let (allowed, denied, lines) = squid.senders.entry(line.name.clone()).or_default();
    lines.push(line.clone());
    match rule.as_ref().map(|rule| (rule.allow, &rule.literals[..])) {
        Some((true, [(false, Set::Clients(networks))])) => {
            allowed.join(&Addresses::of(networks).without(denied));
            Carried
        }
        Some((false, [(false, Set::Clients(networks))])) => {
            denied.join(&Addresses::of(networks));
            Carried
        }
        Some((false, _)) => {
            *denied = Addresses::everyone();
            Left("only networks are carried; senders of later lines stay refused")
        }
        _ => Left("only networks are carried; other senders stay refused"),
    }
}

/// `udp_incoming_address`. It may come after the ports.
pub(crate) fn udp_address(squid: &mut Squid, line: &Line) -> Becomes {
    if line.word(0).parse::<std::net::IpAddr>().is_err() {
        return Left("it is not an address");
    }
    squid.caches.address = Some(line.clone());
    Carried
}
