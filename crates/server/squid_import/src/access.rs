//! `http_access` for clients that use the proxy. In Squid, the first rule that matches a request
//! decides. The result is the sets of `[forward]`.
//!
//! - A rule that denies is carried if it is one set: networks, ports, domains, or clients without a
//!   password; or if a condition says it. It then also holds for clients that an earlier rule
//!   allows, which is stricter.
//! - A rule that denies and is not carried closes the whole proxy.
//! - A rule that allows is carried if all such rules have the same conditions besides the network.
//! - A rule that allows and is not carried keeps its clients out.

use ipnet::IpNet;

use super::acl::{Addresses, Set, both_domains, both_ports, everyone, other_ports};
use super::lines::Line;
use conditions::Lists;
use imported::cel::{self, Cel, PARTS_MAX};
use imported::limits::NETWORKS_MAX;
use imported::note::{Fate, Notes};
use imported::table::Becomes::{self, Carried, Left, Nothing, Text, Unprotected};

/// A rule: whether it allows, and its lists with whether each is negated.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) line: Line,
    pub(crate) allow: bool,
    pub(crate) literals: Vec<(bool, Set)>,
}

impl Rule {
    /// The clients that are in all of these lists. Returns `None` if a list is not one of clients.
    pub(crate) fn clients<'s>(
        mut lists: impl Iterator<Item = &'s (bool, Set)>,
    ) -> Option<Addresses> {
        lists.try_fold(Addresses::everyone(), |all, (negated, set)| match (negated, set) {
            (true, Set::Clients(networks)) => Some(all.without(&Addresses::of(networks))),
            (false, Set::Clients(networks)) => Some(all.both(&Addresses::of(networks))),
            _ => None,
        })
    }

    /// Its lists without those of all clients.
    pub(crate) fn parts(&self) -> Vec<&(bool, Set)> {
        self.literals.iter().filter(|one| !is_everyone(one)).collect()
    }

    /// Whether the rule is for PURGE alone.
    pub(crate) fn is_about_purge(&self) -> bool {
        let names = |(negated, set): &(bool, Set)| match set {
            Set::Methods(methods) => !negated && methods == &[PURGE],
            _ => false,
        };
        self.literals.iter().any(names)
    }
}

/// The method that removes a response from the store.
pub(crate) const PURGE: &str = "PURGE";

/// What becomes of a line that should have a rule and has none.
pub(super) const NO_RULE: Becomes = Left("a rule begins with allow or deny");

/// What requests are let in for, as sets.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    pub(crate) clients: Vec<IpNet>,
    pub(crate) ports: Vec<(u16, u16)>,
    pub(crate) connect_ports: Vec<(u16, u16)>,
    /// `None`: all.
    pub(crate) allow_domains: Option<Vec<String>>,
    pub(crate) deny_domains: Vec<String>,
    pub(crate) users: bool,
    /// Requests that are denied.
    pub(crate) deny_when: Vec<Cel>,
    /// Connections of each client.
    pub(crate) connections: Option<(u64, Line)>,
    /// A rule that denies was not carried.
    pub(crate) unprotected: bool,
    /// No further condition fits into the one for what is denied.
    is_full: bool,
    let_in: Addresses,
    denied: Addresses,
    within: Addresses,
    shape: Option<Shape>,
    users_before: bool,
}

/// The conditions of a rule that allows, besides the client's network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shape {
    domains: Option<Vec<String>>,
    ports: Option<Vec<(u16, u16)>>,
    users: bool,
}

const MANAGER: (bool, Set) = (false, Set::Manager);
const ALL_PORTS: (u16, u16) = (1, 65_535);
const STRICTER: &str = "it also holds for clients that an earlier line allows";
const SUBDOMAINS: &str = "a domain without a leading dot is denied with its subdomains";

/// Reads the rules in their order.
pub(crate) fn sets(rules: &[Rule], notes: &mut Notes) -> Sets {
    let all = vec![ALL_PORTS];
    let (ports, connect_ports) = (all.clone(), all);
    let within = Addresses::everyone();
    let mut sets = Sets { ports, connect_ports, within, ..Sets::default() };
    for (at, rule) in rules.iter().enumerate().filter(|(_, rule)| !rule.is_about_purge()) {
        let becomes = if rule.allow { sets.allow(rule) } else { sets.deny(rule) };
        notes.became(&rule.line.at, &becomes);
        // It is for all requests.
        if rule.parts().is_empty() && !matches!(becomes, Left(_)) {
            for dead in &rules[at + 1..] {
                notes.nothing(&dead.line.at, "no request reaches this line");
            }
            sets.finish(rules, notes);
            return sets;
        }
    }
    // Without a last rule for all, Squid does the opposite of its last rule.
    if let Some(last) = rules.last().filter(|last| !last.allow) {
        let everybody = Rule { line: last.line.clone(), allow: true, literals: Vec::new() };
        notes.became(&last.line.at, &sets.allow(&everybody));
        let text = "all other requests are allowed, as Squid does after a last line that denies";
        notes.different(&last.line.at, text);
    }
    sets.finish(rules, notes);
    sets
}

impl Sets {
    fn finish(&mut self, rules: &[Rule], notes: &mut Notes) {
        if let Some(shape) = self.shape.take() {
            if let Some(domains) = shape.domains {
                narrow(&mut self.allow_domains, &domains);
            }
            if let Some(ports) = shape.ports {
                self.ports = both_ports(&self.ports, &ports);
                self.connect_ports = both_ports(&self.connect_ports, &ports);
            }
            self.users |= shape.users;
        }
        match self.let_in.networks(NETWORKS_MAX) {
            Some(networks) => self.clients = networks,
            None => {
                self.unprotected = true;
                for rule in rules.iter().filter(|rule| rule.allow && !rule.is_about_purge()) {
                    let text = format!("it is part of more than {NETWORKS_MAX} networks");
                    notes.unprotected(&rule.line.at, text);
                }
            }
        }
    }

    /// Takes a rule that denies.
    fn deny(&mut self, rule: &Rule) -> Becomes {
        let parts = rule.parts();
        let mut why = if self.let_in == Addresses::default() { "" } else { STRICTER };
        let allowed = |negated: &bool, ports: &[(u16, u16)]| match negated {
            true => ports.to_vec(),
            false => other_ports(ports),
        };
        match &parts[..] {
            [] => return Carried,
            [(false, Set::Clients(networks))] => {
                self.denied.join(&Addresses::of(networks));
                why = "";
            }
            [(true, Set::Clients(networks))] => {
                self.within = self.within.both(&Addresses::of(networks));
                why = "";
            }
            [(false, Set::Domains(hosts))] => {
                self.deny_domains.extend(hosts.names().cloned());
                if !hosts.alone.is_empty() {
                    why = SUBDOMAINS;
                }
            }
            [(true, Set::Domains(hosts))] => {
                narrow(&mut self.allow_domains, &hosts.below);
                if !hosts.alone.is_empty() {
                    why = ALONE;
                }
            }
            [(negated, Set::Ports(ports))] => {
                let allowed = allowed(negated, ports);
                self.ports = both_ports(&self.ports, &allowed);
                self.connect_ports = both_ports(&self.connect_ports, &allowed);
            }
            [(false, Set::Methods(methods))] if methods == &["CONNECT"] => {
                self.connect_ports.clear();
            }
            [(false, Set::Methods(methods)), (negated, Set::Ports(ports))]
            | [(negated, Set::Ports(ports)), (false, Set::Methods(methods))]
                if methods == &["CONNECT"] =>
            {
                self.connect_ports = both_ports(&self.connect_ports, &allowed(negated, ports));
            }
            [(false, Set::Ourselves)] => why = "forward.allow_to opens these addresses",
            [(false, Set::Connections(count))] if self.connections.is_none() => {
                self.connections = Some((*count, rule.line.clone()));
                why = "one more connection of a client is closed, whatever it asks for";
            }
            [(true, Set::Users)] => {
                self.users_before = true;
                self.users = true;
            }
            _ => {
                // The pages of managers are on the admin address, so more of them can be denied.
                let is_manager = parts.contains(&&MANAGER);
                let alone = || condition(&[&MANAGER]).filter(|_| is_manager);
                let Some((condition, differs)) = condition(&parts).or_else(alone) else {
                    self.unprotected = true;
                    return Text(Fate::Unprotected, cause(&parts));
                };
                self.deny_when.push(condition);
                if self.is_full || !self.fits() {
                    self.deny_when.pop();
                    (self.unprotected, self.is_full) = (true, true);
                    return Unprotected("it is more than one condition can say");
                }
                why = if why.is_empty() { differs } else { why };
            }
        }
        Becomes::differs(why)
    }

    /// Whether the server takes the condition for what is denied.
    fn fits(&self) -> bool {
        let together = || Cel::any(self.deny_when.clone());
        self.deny_when.len() <= PARTS_MAX
            && together().is_none_or(|all| cel::check(&all, &Lists::default()).is_some())
    }

    /// Takes a rule that allows.
    fn allow(&mut self, rule: &Rule) -> Becomes {
        let parts = rule.parts();
        if parts.contains(&&MANAGER) {
            return Nothing("the pages of managers are on the admin address");
        }
        let mut clients = Addresses::everyone();
        let (mut shape, mut why, mut excluded) = (Shape::default(), "", Vec::new());
        for (negated, set) in parts.iter().map(|one| (one.0, &one.1)) {
            match (negated, set) {
                (false, Set::Clients(networks)) => clients = clients.both(&Addresses::of(networks)),
                (true, Set::Clients(networks)) => {
                    clients = clients.without(&Addresses::of(networks));
                }
                (false, Set::Domains(hosts)) => {
                    narrow(&mut shape.domains, &hosts.below);
                    if !hosts.alone.is_empty() {
                        why = ALONE;
                    }
                }
                (true, Set::Domains(hosts)) => {
                    excluded.extend(hosts.names().cloned());
                    why = "these domains are denied to all clients, with their subdomains";
                }
                (false, Set::Ports(ports)) => {
                    let before = shape.ports.take().unwrap_or_else(|| vec![ALL_PORTS]);
                    shape.ports = Some(both_ports(&before, ports));
                }
                (false, Set::Users) => shape.users = true,
                _ => {
                    let text = format!("{}; these requests stay refused", cause(&parts));
                    return Text(Fate::NotCarried, text);
                }
            }
        }
        // The sets of this line are small, and those of all lines before may be large.
        clients = clients.both(&self.within).without(&self.denied);
        shape.users |= self.users_before;
        match &mut self.shape {
            None => self.shape = Some(shape.clone()),
            Some(first) if *first == shape => {}
            Some(first)
                if Shape { users: false, ..first.clone() }
                    == Shape { users: false, ..shape.clone() } =>
            {
                first.users = true;
                why = "all clients need a password, also those that another line allows without";
            }
            Some(_) => {
                return Left(
                    "one set of domains and ports is for all clients, and an earlier line has \
                     another one; these requests stay refused",
                );
            }
        }
        self.let_in.join(&clients);
        self.deny_domains.extend(excluded);
        Becomes::differs(why)
    }
}

const ALONE: &str = "a domain without a leading dot would be allowed with its subdomains, so it is \
                     left out";

/// The condition for a rule that denies, and how it differs; `None`: it cannot be said.
fn condition(parts: &[&(bool, Set)]) -> Option<(Cel, &'static str)> {
    let (mut all, mut why) = (Vec::new(), "");
    for (negated, set) in parts.iter().map(|one| (one.0, &one.1)) {
        let one = match set {
            Set::Clients(networks) => {
                let within = |network| Cel::one(format!("client.within('{network}')"));
                networks.iter().map(within).collect()
            }
            Set::Domains(hosts) => {
                let below = |name: &String| {
                    let ends = cel::quoted(&format!(".{name}"))?;
                    Cel::any(vec![
                        cel::is("host", name)?,
                        Cel::one(format!("host.endsWith({ends})")),
                    ])
                };
                let below = hosts.below.iter().map(below);
                let alone = hosts.alone.iter().map(|name| cel::is("host", name));
                below.chain(alone).collect::<Option<Vec<_>>>()?
            }
            Set::Methods(methods) => {
                // The names of methods have no case in Squid.
                let methods: Vec<_> = methods.iter().map(|one| one.to_ascii_lowercase()).collect();
                let methods = cel::list(methods.iter().map(String::as_str))?;
                vec![Cel::one(format!("method.lowerAscii() in {methods}"))]
            }
            Set::Paths(paths) => {
                let begins = |path: &String| {
                    Some(Cel::one(format!("target.startsWith({})", cel::quoted(path)?)))
                };
                paths.iter().map(begins).collect::<Option<Vec<_>>>()?
            }
            // A condition that differs holds for more requests, and its opposite for fewer.
            Set::When(when) if negated && !when.differs.is_empty() => return None,
            Set::When(when) => {
                why = if why.is_empty() { when.differs } else { why };
                when.any.clone()
            }
            Set::Manager if !negated => vec![Cel::one(INTERNAL)],
            Set::Ports(_)
            | Set::Cookies(..)
            | Set::Connections(_)
            // Without other rules, no request has a user.
            | Set::Users
            | Set::Manager
            | Set::Ourselves
            | Set::Unknown(_) => return None,
        };
        if one.len() > PARTS_MAX {
            return None;
        }
        let one = Cel::any(one)?;
        all.push(if negated { one.negated() } else { one });
    }
    Some((Cel::all(all)?, why))
}

/// The requests that are for pages of managers.
const INTERNAL: &str = "target.startsWith('/squid-internal-mgr/')";

/// Domains that must also be below these.
fn narrow(domains: &mut Option<Vec<String>>, below: &[String]) {
    *domains = Some(match domains.take() {
        Some(before) => both_domains(&before, below),
        None => below.to_vec(),
    });
}

pub(crate) fn is_everyone(literal: &(bool, Set)) -> bool {
    !literal.0 && literal.1 == Set::Clients(everyone())
}

/// Why a rule is not carried.
fn cause(parts: &[&(bool, Set)]) -> String {
    let unknown = parts.iter().find_map(|(_, set)| match set {
        Set::Unknown(why) => Some(why.clone()),
        _ => None,
    });
    unknown.unwrap_or_else(|| "no rule of [forward] combines these lists".to_owned())
}
