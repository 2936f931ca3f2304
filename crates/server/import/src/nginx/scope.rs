//! What a location inherits from its server, and a server from `http`.
//!
//! A value replaces the inherited value. A level can have several `add_header` and other
//! directives of [`LISTS`]; a level with one of them inherits none of that name. A scope refers to
//! directives, so its size does not depend on what they contain.

use std::collections::BTreeMap;
use std::rc::Rc;

use ::conditions::Lists;

use super::blocks::{Directive, named};
use super::redirects::Names;
use super::table::{self, CLIENTS};
use imported::cel::{self, Cel, PARTS_MAX};
use imported::note::Notes;
use imported::table::Becomes::{Carried, Unprotected};
use imported::table::is_one;

/// Directives of which a level can have several.
const LISTS: &str = "proxy_set_header add_header proxy_hide_header ssl_certificate \
    ssl_certificate_key set_real_ip_from proxy_cache_valid proxy_cache_bypass proxy_no_cache \
    limit_req limit_conn error_page proxy_cookie_domain proxy_cookie_path proxy_cookie_flags";

/// What `allow` and `deny` say: the first line that matches a client decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Access {
    /// All clients are let in.
    #[default]
    Open,
    /// No client is let in.
    Denied,
    /// The clients of this condition are not let in.
    Refused(Cel),
    /// Some clients are let in, and our file cannot distinguish them.
    Unknown,
}

/// The settings of a level.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope<'d> {
    /// Settings with one value, by name.
    values: BTreeMap<&'d str, &'d Directive>,
    lists: BTreeMap<&'d str, Rc<Vec<&'d Directive>>>,
    access: Access,
    /// The lines of `access`.
    clients: Rc<Vec<&'d Directive>>,
    /// The client is the one that trusted proxies name.
    pub(crate) is_named: bool,
    /// A rule that keeps requests out is not carried.
    pub(crate) unprotected: bool,
    /// The captures of the host and the path, by number or name.
    pub(crate) groups: Vec<(String, String)>,
}

impl<'d> Scope<'d> {
    /// The scope of these directives inside another one. Writes the notes of all directives that
    /// are neither blocks nor actions.
    pub(crate) fn inside(&self, all: &'d [Directive], notes: &mut Notes) -> Scope<'d> {
        let mut scope = self.clone();
        let mut lists: BTreeMap<&str, Vec<&Directive>> = BTreeMap::new();
        let mut clients = Vec::new();
        for directive in all {
            if matches!(directive.name.as_str(), "allow" | "deny") {
                clients.push(directive);
                continue;
            }
            scope.unprotected |= table::setting(directive, notes);
            if is_one(LISTS, &directive.name) {
                lists.entry(&directive.name).or_default().push(directive);
            } else if directive.block.is_none() {
                scope.values.insert(&directive.name, directive);
            }
        }
        scope.lists.extend(lists.into_iter().map(|(name, list)| (name, Rc::new(list))));
        // A level with a rule inherits none.
        if !clients.is_empty() {
            scope.access = access(&clients, notes);
            scope.clients = Rc::new(clients);
        }
        if scope.refused().is_some() && scope.names_clients() {
            let clients = scope.clients.iter();
            let text = "the client is the connection's, and not the one that a field names";
            clients.for_each(|rule| notes.unprotected(&rule.at, text));
        }
        scope
    }

    /// The directive of this name that applies here.
    pub(crate) fn get(&self, name: &str) -> Option<&'d Directive> {
        self.values.get(name).copied()
    }

    /// The same, unless it says `off`.
    pub(crate) fn on(&self, name: &str) -> Option<&'d Directive> {
        self.get(name).filter(|directive| directive.word(0) != "off")
    }

    /// The directives of this name that apply here.
    pub(crate) fn all(&self, name: &str) -> &[&'d Directive] {
        self.lists.get(name).map_or(&[], |list| list.as_slice())
    }

    /// Whether the directive of this name that applies here has this first word.
    pub(crate) fn is(&self, name: &str, word: &str) -> bool {
        self.get(name).is_some_and(|directive| directive.word(0) == word)
    }

    /// Whether all clients are let in.
    pub(crate) fn is_open(&self) -> bool {
        self.access == Access::Open
    }

    /// The networks of `allow …; deny all`.
    pub(crate) fn only_from(&self) -> Option<Vec<String>> {
        let (last, allowed) = self.clients.split_last()?;
        let denies_all = last.name == "deny" && last.word(0) == "all";
        let lets_in = |one: &&Directive| one.name == "allow" && is_network(one.word(0));
        let is_simple = denies_all && !allowed.is_empty() && allowed.iter().all(lets_in);
        is_simple.then(|| allowed.iter().map(|one| one.word(0).to_owned()).collect())
    }

    /// Adds what another scope keeps out: a request has passed both. What only one of the scopes
    /// asks for cannot be said. Writes the notes.
    pub(crate) fn keep_out_as(&mut self, other: &Scope<'_>, notes: &mut Notes) {
        self.unprotected |= other.is_unprotected() || self.access != other.access;
        for name in ["auth_basic", "auth_basic_user_file", "auth_request", "satisfy"] {
            let both = [self.get(name), other.get(name)];
            if both[0].map(|one| &one.words) != both[1].map(|one| &one.words) {
                self.unprotected = true;
                let text = "the location with a name has another guard, so all is closed";
                both.iter().flatten().for_each(|one| notes.unprotected(&one.at, text));
            }
        }
        for name in ["limit_req", "limit_conn"] {
            let words = |scope: &Scope<'_>| -> Vec<Vec<String>> {
                scope.all(name).iter().map(|one| one.words.clone()).collect()
            };
            if words(self) != words(other) {
                let text = "the location with a name has another limit";
                other.all(name).iter().for_each(|one| notes.left(&one.at, text));
            }
        }
    }

    /// Whether clients have to log in, or a service is asked.
    pub(crate) fn asks_login(&self) -> bool {
        ["auth_basic", "auth_request"].iter().any(|name| self.on(name).is_some())
    }

    /// Whether no client is let in.
    pub(crate) fn is_denied(&self) -> bool {
        self.access == Access::Denied
    }

    /// The clients that are not let in, if others are.
    pub(crate) fn refused(&self) -> Option<&Cel> {
        match &self.access {
            Access::Refused(clients) => Some(clients),
            Access::Open | Access::Denied | Access::Unknown => None,
        }
    }

    /// Whether a rule that keeps requests out is not carried.
    pub(crate) fn is_unprotected(&self) -> bool {
        let is_unknown = match self.access {
            // The client is the one that another proxy names.
            Access::Refused(_) => self.names_clients(),
            Access::Unknown => true,
            Access::Open | Access::Denied => false,
        };
        self.unprotected || is_unknown
    }

    /// Whether a field of the request names the client.
    fn names_clients(&self) -> bool {
        let is_field = |one: &Directive| one.word(0) != "proxy_protocol";
        if self.is_named {
            return false;
        }
        match self.get("real_ip_header") {
            Some(header) => is_field(header),
            None => !self.all("set_real_ip_from").is_empty(),
        }
    }
}

/// Whether a text is a network or an address.
pub(super) fn is_network(text: &str) -> bool {
    text.parse::<ipnet::IpNet>().is_ok() || text.parse::<std::net::IpAddr>().is_ok()
}

/// A server with its names.
pub(crate) struct Server<'s> {
    pub(crate) directive: &'s Directive,
    pub(crate) scope: Scope<'s>,
    /// Hosts as routes have them.
    pub(crate) hosts: Vec<String>,
    /// It also answers requests for hosts that no server has.
    pub(crate) default: bool,
    /// The condition that a request came to its addresses, if others have other servers.
    pub(crate) only_for: Option<Cel>,
}

impl Server<'_> {
    /// The parts of a request that redirects of this scope can repeat.
    pub(crate) fn names<'n>(&'n self, scope: &'n Scope<'_>) -> Names<'n> {
        let hosts = if self.default { &[] } else { &self.hosts[..] };
        let names = named(self.directive.inner(), "server_name").flat_map(|one| &one.words);
        let first = names.map(String::as_str).next().unwrap_or_default();
        let unnamed = self.default.then_some(first);
        Names { hosts, groups: &scope.groups, unnamed }
    }
}

/// Reads `allow` and `deny` in their order. Writes their notes.
fn access(rules: &[&Directive], notes: &mut Notes) -> Access {
    let is_for_all = |rule: &&Directive| rule.word(0) == "all";
    let end = rules.iter().position(is_for_all).map_or(rules.len(), |at| at + 1);
    let (live, dead) = rules.split_at(end);
    dead.iter().for_each(|rule| notes.nothing(&rule.at, "no client reaches this line"));
    // A client that no line names is let in.
    let denies = |rule: &&Directive| rule.name == "deny";
    let denies_all = live.iter().all(denies) && live.last().is_some_and(is_for_all);
    let found = match live.iter().any(denies) {
        false => Access::Open,
        true if denies_all => Access::Denied,
        true => refused(live).map_or(Access::Unknown, Access::Refused),
    };
    let becomes = if found == Access::Unknown { Unprotected(CLIENTS) } else { Carried };
    live.iter().for_each(|rule| notes.became(&rule.at, &becomes));
    found
}

/// The clients that these rules refuse: the first rule that matches a client decides.
fn refused(rules: &[&Directive]) -> Option<Cel> {
    if rules.len() > PARTS_MAX {
        return None;
    }
    let mut rest: Vec<&[&Directive]> = rules.chunk_by(|a, b| a.name == b.name).collect();
    // What the rules after the current one refuse. `None`: no client.
    let mut refused: Option<Cel> = None;
    let mut refuses_all = false;
    while let Some(chunk) = rest.pop() {
        let denies = chunk.first()?.name == "deny";
        if chunk.iter().any(|rule| rule.word(0) == "all") {
            // The others of the same kind change nothing.
            (refused, refuses_all) = (None, denies);
            continue;
        }
        let networks: Option<Vec<String>> =
            chunk.iter().map(|rule| cel::quoted(rule.word(0))).collect();
        let within = Cel::one(format!("client.within({})", networks?.join(", ")));
        refused = match (denies, refuses_all) {
            (true, true) | (false, false) if refused.is_none() => None,
            (true, _) => Cel::any([within].into_iter().chain(refused).collect()),
            (false, true) => Some(within.negated()),
            (false, false) => Cel::all([within.negated()].into_iter().chain(refused).collect()),
        };
        refuses_all &= refused.is_none();
    }
    refused.filter(|one| cel::check(one, &Lists::new()).is_some())
}
