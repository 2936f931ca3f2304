//! `squid.conf`: lines, access lists, and a table from each directive to what becomes of it.
//!
//! The order of rules matters, so rules are collected while the lines are read, and become sections
//! at the end. Ports where clients name their server become `[forward]` ([`access`]). Ports with
//! `accel` become upstreams and routes ([`accel`]).

#![forbid(unsafe_code)]

mod accel;
mod access;
mod acl;
mod lines;
mod peers;
mod ports;
mod purge;
mod shaping;
mod store;
mod table;
mod url;

use std::collections::BTreeMap;
use std::rc::Rc;

use ipnet::IpNet;

use self::accel::Peer;
use self::access::Rule;
use self::acl::{Options, Set};
use self::lines::{Line, parse, values};
use self::peers::{Caches, Senders};
use self::ports::Port;
use self::shaping::Pools;
use self::store::Stored;
use imported::Parsed;
use imported::cel::Cel;
use imported::input::Input;
use imported::limits::{LIST_MAX, NETWORKS_MAX};
use imported::note::{Notes, Place};
use imported::tree::{Section, Tree, Value};

/// What the lines have said so far.
#[derive(Default)]
pub(crate) struct Squid {
    tree: Tree,
    notes: Notes,
    /// Keep open what was protected by a rule that was not carried.
    open: bool,
    lists: BTreeMap<String, Set>,
    rules: Vec<Rule>,
    ports: Vec<Port>,
    peers: Vec<Peer>,
    /// Formats of the log, by name.
    formats: BTreeMap<String, String>,
    caches: Caches,
    pools: Pools,
    /// What ports with `accel` store.
    stored: Stored,
    /// Rules about who may send something, by their name.
    senders: BTreeMap<String, Senders>,
    /// The treatment of X-Forwarded-For, and the line of it.
    forwarded_for: Option<(&'static str, Place)>,
    /// Sizes of objects: in memory, and in general.
    object_max: [Option<(u64, Place)>; 2],
    memory: u64,
}

/// The default of `cache_mem`.
const MEMORY: u64 = 256 << 20;

/// Imports a text.
///
/// # Errors
/// The text is not in the language, or exceeds a limit.
pub fn import(file: &Rc<str>, text: &str, input: &mut Input<'_>) -> Parsed<(Tree, Notes)> {
    let lines = parse(file, text, input)?;
    let notes = std::mem::take(&mut input.notes);
    let mut squid = Squid { notes, open: input.open, memory: MEMORY, ..Squid::default() };
    // A rule uses a list with all its lines, including later lines.
    let is_list = |line: &&Line| line.name == "acl";
    for line in lines.iter().filter(is_list) {
        squid.list(line, input)?;
    }
    for line in lines.iter().filter(|line| !is_list(line)) {
        table::directive(&mut squid, line);
    }
    squid.finish();
    Ok((squid.tree, squid.notes))
}

impl Squid {
    fn list(&mut self, line: &Line, input: &mut Input<'_>) -> Parsed<()> {
        // The names of lists have no case.
        let (name, kind) = (&*line.word(0).to_ascii_lowercase(), line.word(1));
        let set = match Options::read(kind, line.rest(2)) {
            Ok((options, words)) => match values(words, &line.at, input)? {
                Ok(values) => Set::read(kind, options, &values),
                Err(why) => Set::Unknown(why),
            },
            Err(why) => Set::Unknown(why),
        };
        match &set {
            // Rules that use it have notes too.
            Set::Unknown(why) => self.notes.left(&line.at, why),
            _ => self.notes.carried(&line.at),
        }
        match self.lists.get_mut(name) {
            Some(there) => there.merge(set),
            // A line can add to a list that Squid defines itself.
            None => {
                let mut whole = Set::built_in(name).unwrap_or_else(|| set.clone());
                whole.merge(set);
                self.lists.insert(name.to_owned(), whole);
            }
        }
        Ok(())
    }

    /// The rule in the words of a line after the first `skip`: `allow` or `deny`, then lists.
    fn read_rule(&self, line: &Line, skip: usize) -> Option<Rule> {
        let allow = match line.word(skip) {
            "allow" => true,
            "deny" => false,
            _ => return None,
        };
        let literal = |word: &String| {
            let (negated, name) = match word.strip_prefix('!') {
                Some(name) => (true, name),
                None => (false, word.as_str()),
            };
            let name = &*name.to_ascii_lowercase();
            // Denied domains are only written as a list, so the list may be long.
            let listed = |set: &Set| !allow && !negated && matches!(set, Set::Domains(_));
            let set = match self.lists.get(name) {
                Some(set) if set.len() > LIST_MAX && !listed(set) => {
                    Set::Unknown(format!("it has more than {LIST_MAX} entries"))
                }
                Some(set) => set.clone(),
                None => Set::built_in(name)
                    .unwrap_or_else(|| Set::Unknown(format!("there is no list {name}"))),
            };
            (negated, set)
        };
        let literals = line.rest(skip + 1).iter().map(literal).collect();
        Some(Rule { line: line.clone(), allow, literals })
    }

    /// The rule, like [`Squid::read_rule`]. Writes a note if Squid would also refuse a host that is
    /// an address, by the name of that address.
    fn rule(&mut self, line: &Line, skip: usize) -> Option<Rule> {
        let rule = self.read_rule(line, skip)?;
        // Ours does not look up the name of an address, so a list matches fewer hosts. A rule that
        // keeps out the hosts of a list keeps out fewer.
        let keeps_out = |(negated, set): &(bool, Set)| {
            let looks_up = match set {
                Set::Domains(hosts) => hosts.looks_up,
                Set::When(when) => when.looks_up,
                _ => false,
            };
            looks_up && (rule.allow == *negated || line.name == "never_direct")
        };
        if rule.literals.iter().any(keeps_out) {
            self.notes.different(&line.at, ADDRESSES);
        }
        Some(rule)
    }

    fn finish(&mut self) {
        self.size_of_objects();
        let (forward, reverse) = (self.has_port(false), self.has_port(true));
        self.queries();
        // Before the rules are read, because `peers` can add a rule that closes the proxy.
        self.peers(forward);
        let mut from = Vec::new();
        if forward || reverse {
            from = purge::purgers(&self.rules, &mut self.notes);
        }
        let reason = "who may PURGE, by http_access; without a line Squid refuses it";
        self.tree.section("purge").set("from", from, reason);
        if forward {
            self.forward();
        }
        if reverse {
            self.accelerate();
        }
        self.stored_notes(reverse);
        self.store_nothing(forward);
        self.shape();
        let senders = self.senders.get("proxy_protocol_access");
        let senders = senders.and_then(|(allowed, ..)| allowed.networks(NETWORKS_MAX));
        let senders = texts_of(&senders.unwrap_or_default());
        for port in &self.ports {
            self.tree.add(port.section(&senders));
        }
    }

    /// `[forward]`
    fn forward(&mut self) {
        let sets = access::sets(&self.rules, &mut self.notes);
        let closed = sets.unprotected && !self.open;
        if let Some((count, line)) = &sets.connections {
            shaping::connections(*count, self, line);
        }
        let texts = |ports: &[(u16, u16)]| -> Vec<String> {
            let text = |(first, last): &(u16, u16)| match first == last {
                true => first.to_string(),
                false => format!("{first}-{last}"),
            };
            ports.iter().map(text).collect()
        };
        let clients = texts_of(&sets.clients);
        let from = "http_access";
        let section = self.tree.section("forward");
        if closed {
            section.comment("A line that denies was not carried, so no client is let in.");
            section.comment("When its purpose is served otherwise, replace allow_from by this:");
            section.comment(Section::line_of("allow_from", &Value::Texts(clients)));
            section.set("allow_from", Vec::new(), "closed: see the notes of the import");
        } else {
            section.set("allow_from", clients, from);
        }
        section.set("ports", texts(&sets.ports), from);
        section.set("connect_ports", texts(&sets.connect_ports), from);
        match sets.allow_domains {
            // An empty list would allow all.
            Some(domains) if domains.is_empty() => {
                section.set("allow_from", Vec::new(), "no domain is allowed");
            }
            Some(domains) => section.set("allow_domains", domains, from),
            None => {}
        }
        section.set_list("deny_domains", &sets.deny_domains, from);
        let deny_when = Cel::any(sets.deny_when.clone());
        section.set_some("deny_when", deny_when.map(|one| one.text().to_owned()), from);
        self.stored.apply_forward(section);
        // Squid's own defaults, where ours differ.
        let (word, from) = match &self.forwarded_for {
            Some((word, at)) => (*word, at.to_string()),
            None => ("add", "Squid's default".to_owned()),
        };
        section.set("x_forwarded_for", word, &from);
        let users = section.get("users").is_some();
        if users && !sets.users {
            // A file of users alone asks for no password in Squid.
            section.unset("users");
        }
        if sets.users && !users {
            section.set("allow_from", Vec::new(), "closed: passwords need basic_ncsa_auth");
        }
    }

    fn has_port(&self, accel: bool) -> bool {
        self.ports.iter().any(|port| port.accel == accel)
    }

    fn size_of_objects(&mut self) {
        let has_disk = self.tree.section("store").get("path").is_some();
        let [in_memory, in_general] = &self.object_max;
        let chosen = if has_disk { in_general } else { in_memory };
        let Some((bytes, at)) = chosen else { return };
        let share = (self.memory / (*bytes).max(1)).clamp(1, 1 << 20);
        self.tree.section("limits").set("object_share", Value::Count(share), at);
    }
}

/// Networks as our file has them.
fn texts_of(networks: &[IpNet]) -> Vec<String> {
    networks.iter().map(ToString::to_string).collect()
}

/// How rules that keep out domains without `-n` differ.
const ADDRESSES: &str = "hosts that are addresses are not looked up by their names";
