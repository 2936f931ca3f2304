//! `nginx.conf`: blocks, what levels inherit, and a table from each directive to what becomes of
//! it.

mod actions;
mod blocks;
mod clients;
mod conditions;
mod errors;
mod files;
mod found;
mod guards;
mod headers;
mod limits;
mod listen;
mod redirects;
mod responses;
mod routes;
mod rules;
mod scope;
mod store;
mod table;
mod upstreams;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use ::conditions::Checked;

use self::blocks::{Directive, named, parse};
use self::clients::Trusted;
use self::conditions::Tests;
use self::found::{Judges, Places};
use self::limits::Limited;
use self::listen::{Answered, Group, Listen, Weight};
use self::redirects::Names;
use self::routes::Closed;
use self::scope::{Scope, Server, is_network};
use self::table::{size, time};
use self::upstreams::Upstreams;
use self::variables::{Constants, Switches};
use crate::Parsed;
use imported::cel::{Cel, Expressions};
use imported::input::Input;
use imported::note::{Fate, Notes, Place};
use imported::pattern::host_of;
use imported::route::{Action, add};
use imported::table::Becomes::{self, Carried, Different, Left, Nothing};
use imported::table::is_one;
use imported::tree::{Section, Tree, Value, timeout};

/// What is written, and what the directives have said so far.
#[derive(Default)]
pub(crate) struct Nginx<'d> {
    tree: Tree,
    notes: Notes,
    /// Keep open what was protected by a rule that was not carried.
    open: bool,
    /// Formats of the log, by name.
    formats: BTreeMap<String, String>,
    upstreams: Upstreams<'d>,
    switches: Switches,
    /// The variables of the server with a fixed value.
    constants: Constants,
    /// The paths that the server names.
    places: Places,
    /// The expressions that were compared with paths.
    compared: Expressions,
    /// The rules that answer, in their order.
    rules: Vec<Checked>,
    /// Routes with conditions, without those of expressions.
    conditions: usize,
    /// Routes with the conditions of expressions, at most.
    expressions: usize,
    /// `if` blocks of locations that were read.
    asked: usize,
    /// Some locations code responses.
    codes: bool,
    /// Where clients are limited.
    limited: Vec<Limited<'d>>,
    /// The limit on bodies that most locations have.
    body: u64,
    /// The files of error pages.
    pages: Vec<(Place, String)>,
    /// The files of users.
    users: Vec<(Place, String)>,
    /// The proxies in front.
    trusted: Option<Trusted>,
    /// Some routes were not written, because there are too many.
    is_full: bool,
}

/// Imports a text.
///
/// # Errors
/// The text is not in the language, or exceeds a limit.
pub(crate) fn import(file: &Rc<str>, text: &str, input: &mut Input<'_>) -> Parsed<(Tree, Notes)> {
    let all = parse(file, text, input)?;
    let notes = std::mem::take(&mut input.notes);
    let mut nginx = Nginx { notes, open: input.open, ..Nginx::default() };
    headers::header_notes(&all, &[], &mut nginx.notes);
    let main = Scope::default().inside(&all, &mut nginx.notes);
    table::global(&mut nginx, &all);
    for http in named(&all, "http") {
        nginx.notes.carried(&http.at);
    }
    for http in named(&all, "http") {
        let scope = main.inside(http.inner(), &mut nginx.notes);
        table::global(&mut nginx, http.inner());
        nginx.http(http.inner(), &scope);
    }
    // A file that is included in `http`, such as those of sites, has its content alone.
    if named(&all, "http").next().is_none() {
        nginx.http(&all, &main);
    }
    nginx.tree.section("purge").set("from", Vec::new(), "nginx has no PURGE");
    for (at, file) in std::mem::take(&mut nginx.users) {
        let is_bcrypt = |line: &str| {
            let hash = line.split(':').nth(1).unwrap_or_default();
            line.is_empty() || line.starts_with('#') || hash.starts_with("$2")
        };
        let found = input.files(&at, &file)?.and_then(|files| {
            match files.iter().flat_map(|file| file.text.lines()).all(is_bcrypt) {
                true => Ok(()),
                false => Err(format!("{file} has hashes that are not bcrypt (htpasswd -B)")),
            }
        });
        if let Err(why) = found {
            nginx.notes.unprotected(&at, why);
            let is_user = |one: &&mut Section| one.text("users") == Some(&file);
            for route in nginx.tree.all_mut("route").filter(is_user) {
                match nginx.open {
                    true => ["users", "realm", "forward_login", "satisfy"]
                        .iter()
                        .for_each(|key| route.unset(key)),
                    false => route.close(),
                }
            }
        }
    }
    // The server refuses to start as a user that there is not.
    if let Some(user) = nginx.tree.section("server").text("user").map(str::to_owned)
        && let Some(one) = named(&all, "user").next()
        && let Ok(files) = input.files(&one.at, "/etc/passwd")?
    {
        let is_there = |line: &str| line.split(':').next() == Some(user.as_str());
        if !files.iter().flat_map(|file| file.text.lines()).any(is_there) {
            nginx.notes.left(&one.at, "there is no such user on this machine");
            for key in ["user", "group"] {
                nginx.tree.section("server").unset(key);
            }
        }
    }
    // The server refuses a file with a page that is missing.
    for (at, file) in std::mem::take(&mut nginx.pages) {
        if let Err(why) = input.files(&at, &file)? {
            nginx.notes.left(&at, why);
            for route in nginx.tree.all_mut("route") {
                route.retain_below(|one| one.text("answer_file") != Some(&file));
            }
        }
    }
    Ok((nginx.tree, nginx.notes))
}

impl<'d> Nginx<'d> {
    /// The content of an `http` block.
    fn http(&mut self, inner: &'d [Directive], scope: &Scope<'d>) {
        self.upstreams = Upstreams::of(inner);
        self.switches = variables::switches(inner);
        self.codes = store::codes(inner);
        self.is_full = false;
        self.body = limits::body(scope);
        self.trusted = clients::trusted(inner, &mut self.notes);
        let mut scope = scope.clone();
        self.one_client(inner);
        scope.is_named = self.trusted.as_ref().is_some_and(|trusted| trusted.is_exact);
        self.servers(inner, &scope);
        for block in named(inner, "upstream").filter(|one| !self.upstreams.uses(one.word(0))) {
            let text = "no location that is carried uses it";
            self.notes.nothing(&block.at, text);
            table::inside(block, Fate::Nothing, text, &mut self.notes);
        }
        let limited = std::mem::take(&mut self.limited);
        limits::quotas(&limited, inner, &mut self.tree, &mut self.notes);
        limits::bodies(&scope, &mut self.tree);
    }

    fn servers(&mut self, inner: &'d [Directive], scope: &Scope<'d>) {
        let blocks: Vec<&Directive> = named(inner, "server").collect();
        let listens: Vec<Vec<Listen>> =
            blocks.iter().map(|block| listens(block, &mut self.notes)).collect();
        // Where not all servers can be carried, those that answer are carried without their files.
        let (tests, by_listener) = (&self.switches.tests, self.trusted.is_none());
        let weights = listen::weights(inner, &blocks, &listens);
        let placed = |files| placed(&blocks, &listens, tests, &weights, (files, by_listener));
        let (groups, answered) = match placed(false) {
            (groups, answered, true) => (groups, answered),
            _ => {
                let (groups, answered, _) = placed(true);
                (groups, answered)
            }
        };
        for one in &answered {
            self.answers(one, &blocks, &listens, scope);
        }
        let of_answers = answered.iter().flat_map(|one| one.servers.iter());
        let placed: BTreeSet<usize> = groups
            .iter()
            .flat_map(|group| group.servers.iter())
            .chain(of_answers)
            .copied()
            .collect();
        for (_, block) in blocks.iter().enumerate().filter(|(at, _)| !placed.contains(at)) {
            let text = "it listens elsewhere than the servers that are carried, and routes are the \
                        same for all listeners, so its address is not opened; import a file with \
                        only this server, for another process";
            self.not_carried(block, &Left(text), "its server is not carried");
        }
        for group in &groups {
            self.group(group, (&blocks, &listens), scope);
        }
        if self.is_full && !self.open {
            self.tree.all_mut("route").for_each(Section::close);
        }
        for address in answered.iter().flat_map(|one| &one.addresses) {
            self.listener(address, &[]);
        }
    }

    /// The servers of some addresses, and the addresses.
    fn group(
        &mut self,
        group: &Group,
        (blocks, listens): (&[&'d Directive], &[Vec<Listen>]),
        scope: &Scope<'d>,
    ) {
        let default = listen::default(&group.servers, listens);
        let (mut carried, mut taken) = (Vec::new(), BTreeSet::new());
        let mut closed_default = several_defaults(&group.servers, listens, &mut self.notes);
        let below = wildcards(blocks);
        for at in &group.servers {
            let block = blocks[*at];
            listen_notes(&listens[*at], &group.addresses, &mut self.notes);
            let mut own = scope.inside(block.inner(), &mut self.notes);
            table::global(self, block.inner());
            let default = default == Some(*at);
            let (hosts, all) =
                hosts(block, (default, &below), &mut own, &mut taken, &mut self.notes);
            closed_default |= !all;
            let is_unnamed = !default && has_no_name(block);
            if is_unnamed {
                self.without_host(block, group);
            }
            if hosts.is_empty() && is_unnamed {
                continue;
            }
            if hosts.is_empty() && !default {
                let text = "no name of it is carried";
                self.not_carried(block, &Left(text), text);
                continue;
            }
            self.notes.carried(&block.at);
            let only_for = match group.only_plain.contains(at) {
                true => Some(Cel::one("scheme == 'http'")),
                false => group.only_for.clone(),
            };
            carried.push(Server { directive: block, scope: own, hosts, default, only_for });
        }
        let all = several_authorities(&carried, &mut self.notes);
        for server in &carried {
            let asks = named(server.directive.inner(), "if").next().is_some();
            let condition = if asks { rules::of_server(server, &carried) } else { None };
            routes::server(server, condition, Closed { all, default: closed_default }, self);
        }
        // The certificate of the default server is for clients without a server name.
        carried.sort_by_key(|server| !server.default);
        for address in &group.addresses {
            self.listener(address, &carried);
        }
    }

    /// Writes the rule for requests without a host, which another server than the default server
    /// answers.
    fn without_host(&mut self, block: &'d Directive, group: &Group) {
        let inner = block.inner();
        let decides = |one: &&Directive| is_one("if location rewrite", &one.name);
        let names = Names { hosts: &[], groups: &[], unnamed: Some("") };
        let answer =
            named(inner, "return").next().filter(|_| !inner.iter().any(|one| decides(&one)));
        let action = answer.and_then(|one| {
            let (action, becomes) = redirects::carried(one, redirects::answer(one, &names));
            self.notes.became(&one.at, &becomes);
            (action != Action::NotCarried).then_some(action)
        });
        let is_answered = action.is_some();
        let action =
            action.unwrap_or_else(|| Action::Answer { status: 403, body: "403\n".to_owned() });
        let parts = [Cel::one("host == ''")].into_iter().chain(group.only_for.clone());
        let is_written = (is_answered || !self.open)
            && Cel::all(parts.collect()).is_some_and(|when| self.rule(&when, &action, &block.at));
        if is_answered && is_written {
            return self.notes.carried(&block.at);
        }
        let text = "requests without a host are refused, which this server answers";
        self.not_carried(block, &Becomes::Unprotected(text), text);
    }

    /// Writes a rule that refuses a request in which nginx and our server take another client, if
    /// something depends on clients.
    fn one_client(&mut self, inner: &[Directive]) {
        let reads = |one: &Directive| {
            matches!(one.name.as_str(), "allow" | "deny" | "geo")
                || one.words.iter().any(|word| word.contains("remote_addr"))
        };
        let Some(trusted) = self.trusted.clone() else { return };
        if blocks::with_inner(inner).any(reads) && !self.open {
            let when = trusted.is_ambiguous();
            let action = Action::Answer { status: 400, body: "400\n".to_owned() };
            if let Some(when) = when {
                self.rule(&when, &action, &trusted.from);
            }
        }
    }

    /// What is asked again for a file of this server.
    fn judges<'n>(&'n self, server: &'n [Directive]) -> Judges<'n> {
        let (tests, expressions, places) = (&self.switches.tests, &self.compared, &self.places);
        Judges { server, tests, expressions, places }
    }

    /// A block becomes this, and all that is inside is not carried.
    fn not_carried(&mut self, block: &Directive, becomes: &Becomes, inside: &str) {
        self.notes.became(&block.at, becomes);
        table::inside(block, Fate::NotCarried, inside, &mut self.notes);
    }

    /// `[[listen]]`
    fn listener(&mut self, listen: &Listen, servers: &[Server<'_>]) {
        let mut section = Section::new("listen");
        section.set("address", listen.address.clone(), &listen.at);
        let http2 =
            listen.has("http2") || servers.iter().any(|server| server.scope.is("http2", "on"));
        section.set("http2", http2, &listen.at);
        if let Some(trusted) = &self.trusted {
            trusted.write(&mut section);
        }
        if listen.has("proxy_protocol") {
            let mut senders: Vec<String> = Vec::new();
            for sender in servers.iter().flat_map(|server| server.scope.all("set_real_ip_from")) {
                let word = sender.word(0);
                if !is_network(word) {
                    self.notes.left(&sender.at, "it is not a network");
                } else {
                    add(&mut senders, word);
                }
            }
            section.set("proxy_from", senders, "set_real_ip_from");
            let text = "PROXY headers are accepted from set_real_ip_from only";
            self.notes.different(&listen.at, text);
        }
        if listen.is_tls() {
            let pairs = servers.iter().flat_map(|server| {
                let chains = server.scope.all("ssl_certificate").iter();
                chains.zip(server.scope.all("ssl_certificate_key"))
            });
            let mut written: Vec<(&str, &str)> = Vec::new();
            for (chain, key) in pairs {
                if !written.contains(&(chain.word(0), key.word(0))) {
                    written.push((chain.word(0), key.word(0)));
                    let tls = section.below("listen.tls").below("listen.tls.certificate");
                    tls.set("chain", chain.word(0), &chain.at);
                    tls.set("key", key.word(0), &key.at);
                }
            }
            if written.is_empty() {
                let text = "no server has a certificate, so this address is not written";
                return self.notes.left(&listen.at, text);
            }
            section.set("http3", listen.has("quic"), &listen.at);
            client_certificates(&mut section, servers, &mut self.notes);
        }
        self.tree.add(section);
    }

    /// A time-out of `[limits]`, which our file has once.
    fn limit(&mut self, key: &'static str, one: &Directive) -> Becomes {
        let Some(time) = timeout(time(one.word(0))) else {
            return Left("a time-out is from a millisecond to a day");
        };
        match self.tree.section("limits").set_once(key, time, &one.at) {
            true => Carried,
            false => Left("there is one value for all servers, and another line has it"),
        }
    }
}

/// The servers that are carried, those that rules answer for, and whether these are all.
fn placed(
    blocks: &[&Directive],
    listens: &[Vec<Listen>],
    tests: &Tests,
    weights: &[Weight],
    (files, by_listener): (bool, bool),
) -> (Vec<Group>, Vec<Answered>, bool) {
    let only_answers: Vec<bool> =
        blocks.iter().map(|block| rules::only_answers(block, tests, files)).collect();
    let weight = |at: usize| match only_answers[at] {
        true => Weight::default(),
        false => weights[at],
    };
    let (chosen, addresses) = listen::chosen(listens, weight);
    let mut answered = listen::answered(listens, &chosen, &addresses, |at| only_answers[at]);
    let rules: usize =
        answered.iter().flat_map(|one| &one.servers).map(|at| rules::count(blocks[*at])).sum();
    if rules > rules::ANSWERS_MAX {
        answered.clear();
    }
    let groups = listen::groups(blocks, listens, (chosen, addresses), &answered, by_listener);
    let of_groups = groups.iter().map(|group| group.servers.len()).sum::<usize>();
    let of_answers = answered.iter().map(|one| one.servers.len()).sum::<usize>();
    (groups, answered, of_groups + of_answers == blocks.len())
}

fn listens(block: &Directive, notes: &mut Notes) -> Vec<Listen> {
    let mut all = named(block.inner(), "listen").peekable();
    if all.peek().is_none() {
        return vec![listen::usual(&block.at)];
    }
    let mut found = Vec::new();
    for directive in all {
        match listen::read(directive) {
            Ok(listen) => found.push(listen),
            Err(why) => notes.left(&directive.at, why),
        }
    }
    // An old way to say it of all addresses of a server.
    if named(block.inner(), "ssl").any(|one| one.word(0) == "on") {
        found.iter_mut().for_each(Listen::set_tls);
    }
    found
}

/// The notes of the addresses of a server, of which some are opened.
fn listen_notes(own: &[Listen], opened: &[Listen], notes: &mut Notes) {
    for listen in own {
        let port = |address: &str| address.rsplit(':').next().map(str::to_owned);
        let covers = |other: &Listen| {
            other.address == listen.address
                || other.address.starts_with("[::]")
                    && listen.address.starts_with("0.0.0.0")
                    && port(&other.address) == port(&listen.address)
        };
        let is_also_four = listen.address.starts_with("[::]:")
            && !own.iter().any(|other| other.address.starts_with("0.0.0.0:"));
        let becomes = match opened.iter().any(covers) {
            true if is_also_four => Different("it is for clients of IPv4 too"),
            true => Carried,
            false => {
                Left("not all servers that are carried have this address, so it is not opened")
            }
        };
        notes.became(&listen.at, &becomes);
    }
}

/// Client certificates, and versions of TLS.
fn client_certificates(section: &mut Section, servers: &[Server<'_>], notes: &mut Notes) {
    let Some(server) = servers.first() else { return };
    if let Some(protocols) = server.scope.get("ssl_protocols")
        && protocols.words == ["TLSv1.3"]
    {
        section.below("listen.tls").set("only_tls13", true, &protocols.at);
    }
    // The strictest setting holds for all servers, because a listener cannot tell them apart before
    // the handshake.
    for server in servers {
        let Some(verify) = server.scope.get("ssl_verify_client") else { continue };
        let ca = server.scope.get("ssl_client_certificate");
        let becomes = match (verify.word(0), ca) {
            ("on" | "optional", Some(ca)) => {
                let tls = section.below("listen.tls");
                tls.set("client_ca", ca.word(0), &ca.at);
                let optional = verify.word(0) == "optional";
                if !optional || tls.get("client_optional").is_none() {
                    tls.set("client_optional", optional, &verify.at);
                }
                Different("it holds for all servers of this address")
            }
            ("off", _) => Carried,
            _ => Left("it needs ssl_client_certificate"),
        };
        notes.became(&verify.at, &becomes);
    }
}

/// The hosts of `server_name` in the form of routes, without the hosts of earlier servers. Also
/// returns whether all names are carried. Requests for a missing name go to the default server.
fn hosts(
    block: &Directive,
    (default, below): (bool, &BTreeSet<String>),
    scope: &mut Scope<'_>,
    taken: &mut BTreeSet<String>,
    notes: &mut Notes,
) -> (Vec<String>, bool) {
    let (mut hosts, mut all) = (Vec::new(), true);
    let names = || named(block.inner(), "server_name");
    // A route that captures the host can have no other host.
    let is_alone = !default && names().map(|one| one.words.len()).sum::<usize>() == 1;
    for directive in names() {
        let mut left = Vec::new();
        for name in &directive.words {
            let bare = name.strip_prefix("*.").unwrap_or(name);
            let bare = bare.strip_prefix('.').unwrap_or(bare).to_ascii_lowercase();
            let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_');
            if name == "_" || name.is_empty() {
                continue;
            }
            let ends = bare.starts_with('.') || bare.ends_with('.') || bare.is_empty();
            let captured = name.strip_prefix('~').filter(|_| is_alone).and_then(host_of);
            // nginx compares wildcards first.
            let captured = captured.filter(|one| !is_below(&one.text, below));
            if let Some(captured) = captured {
                hosts.push(captured.text);
                scope.groups = captured.groups;
            } else if !bare.bytes().all(plain) || ends {
                left.push(name.clone());
            } else if name.starts_with("*.") {
                hosts.push(format!("*.{bare}"));
            } else {
                hosts.push(bare.clone());
                if name.starts_with('.') {
                    hosts.push(format!("*.{bare}"));
                }
            }
        }
        let text = format!("without {}: a host is a name, or all below one", left.join(", "));
        match (left.is_empty(), default) {
            (true, _) => notes.carried(&directive.at),
            (false, true) => notes.left(&directive.at, text),
            (false, false) => {
                all = false;
                let text = format!("{text}; the default server would answer, so it is closed");
                notes.unprotected(&directive.at, text);
            }
        }
    }
    // Two captures of one label match the same hosts, even if their names differ.
    hosts.retain(|host| match host.split_once("}.") {
        Some((_, below)) => taken.insert(format!("{{}}.{below}")),
        None => taken.insert(host.clone()),
    });
    (hosts, all)
}

/// Whether a server is for requests without a host.
fn has_no_name(block: &Directive) -> bool {
    named(block.inner(), "server_name").flat_map(|one| &one.words).any(String::is_empty)
}

/// The names `NAME` of all `*.NAME` and `.NAME`, of all servers.
fn wildcards(blocks: &[&Directive]) -> BTreeSet<String> {
    let names = blocks.iter().flat_map(|block| named(block.inner(), "server_name"));
    let names = names.flat_map(|one| &one.words);
    let below =
        |name: &String| name.strip_prefix("*.").or(name.strip_prefix('.')).map(str::to_owned);
    names.filter_map(below).map(|name| name.to_ascii_lowercase()).collect()
}

/// Whether a wildcard also matches the hosts of an expression.
fn is_below(captured: &str, wildcards: &BTreeSet<String>) -> bool {
    let mut name = captured;
    while let Some((_, rest)) = name.split_once('.') {
        if wildcards.contains(rest) {
            return true;
        }
        name = rest;
    }
    false
}

/// Whether different addresses have different default servers. Our file has one for all addresses.
fn several_defaults(chosen: &[usize], listens: &[Vec<Listen>], notes: &mut Notes) -> bool {
    let defaults = chosen.iter().flat_map(|at| listens[*at].iter().map(move |one| (*at, one)));
    let defaults: Vec<(usize, &Listen)> = defaults.filter(|(_, one)| one.is_default()).collect();
    let several = defaults.iter().any(|(at, _)| *at != defaults[0].0);
    for (_, one) in defaults.iter().filter(|_| several) {
        let text = "one server is the default one of all addresses, and here are several, so it \
                    is closed for hosts that no server has";
        notes.unprotected(&one.at, text);
    }
    several
}

/// Whether servers verify clients by different authorities. Our listener has one authority.
fn several_authorities(servers: &[Server<'_>], notes: &mut Notes) -> bool {
    let asks = |server: &&Server<'_>| {
        server.scope.is("ssl_verify_client", "on")
            || server.scope.is("ssl_verify_client", "optional")
    };
    let of = |server: &Server<'_>| server.scope.get("ssl_client_certificate").cloned();
    let all: Vec<Directive> = servers.iter().filter(asks).filter_map(of).collect();
    let several = all.iter().any(|one| one.words != all[0].words);
    for one in all.iter().filter(|_| several) {
        let text = "a listener has one authority for certificates of clients, and these servers \
                    have several";
        notes.unprotected(&one.at, text);
    }
    several
}

/// `user USER [GROUP]`
fn user(nginx: &mut Nginx<'_>, one: &Directive) -> Becomes {
    let server = nginx.tree.section("server");
    server.set("user", one.word(0), &one.at);
    if let Some(group) = one.words.get(1) {
        server.set("group", group.as_str(), &one.at);
    }
    Carried
}

fn workers(nginx: &mut Nginx<'_>, one: &Directive) -> Becomes {
    let Ok(count @ 1..=1024) = one.word(0).parse::<u64>() else {
        return Nothing("one thread per CPU is the default");
    };
    nginx.tree.section("server").set("workers", count, &one.at);
    Carried
}

fn head_size(nginx: &mut Nginx<'_>, one: &Directive) -> Becomes {
    let bytes = size(one.word(1)).unwrap_or(8 << 10).clamp(1 << 10, 32 << 10);
    nginx.tree.section("limits").set("head_bytes_max", Value::Bytes(bytes), &one.at);
    Different("the whole head has this size, at most 32 KiB")
}

fn resolver(nginx: &mut Nginx<'_>, one: &Directive) -> Becomes {
    let server = |word: &String| {
        let ip = word.trim_matches(['[', ']']).parse::<IpAddr>().ok();
        let address = ip.map(|ip| SocketAddr::new(ip, 53)).or_else(|| word.parse().ok());
        address.map(|address| address.to_string())
    };
    let servers: Vec<String> = one.words.iter().filter_map(server).take(3).collect();
    if servers.is_empty() {
        return Left("a name server is an IP address");
    }
    nginx.tree.section("dns").set("servers", servers, &one.at);
    Different("up to three name servers; a name is kept for its TTL")
}

fn cache_path(nginx: &mut Nginx<'_>, one: &Directive) -> Becomes {
    let store = nginx.tree.section("store");
    if store.get("path").is_some() {
        return Left("there is one store on disk; make the first one larger");
    }
    let bytes = size(one.option("max_size")).unwrap_or(1 << 30).max(32 << 20);
    store.set("path", format!("{}/plimsoll", one.word(0).trim_end_matches('/')), &one.at);
    store.set("bytes", Value::Bytes(bytes), &one.at);
    Different(
        "the store is empty at first, in a directory of this name in nginx's; without max_size it \
         has 1 GiB; responses are evicted when it is full, not by `inactive`",
    )
}

/// Variables of a log format, and our names for them.
const NAMES: &[(&str, &str)] = &[
    ("remote_addr", "client"),
    ("remote_port", "client_port"),
    ("remote_user", "user"),
    ("time_local", "time"),
    ("time_iso8601", "time_iso"),
    ("msec", "msec"),
    ("request", "request"),
    ("request_method", "method"),
    ("request_uri", "uri"),
    ("uri", "path"),
    ("scheme", "scheme"),
    ("host", "host"),
    ("server_protocol", "protocol"),
    ("status", "status"),
    ("body_bytes_sent", "bytes"),
    ("bytes_sent", "bytes_sent"),
    ("request_length", "bytes_received"),
    ("request_time", "elapsed"),
    ("request_id", "request_id"),
    ("upstream_addr", "upstream"),
    ("upstream_status", "upstream_status"),
    ("upstream_header_time", "upstream_header_time"),
    ("upstream_response_time", "upstream_time"),
    ("upstream_cache_status", "cache_status"),
    ("ssl_protocol", "tls_version"),
    ("ssl_cipher", "tls_cipher"),
    ("ssl_server_name", "tls_sni"),
    ("ssl_client_s_dn", "tls_subject"),
];

/// Our name for a variable.
fn logged(variable: &str) -> Option<String> {
    let field = |name: &str| name.replace('_', "-");
    match NAMES.iter().find(|(theirs, _)| *theirs == variable) {
        Some((_, ours)) => Some((*ours).to_owned()),
        None => variable
            .strip_prefix("sent_http_")
            .map(|name| format!("response.{}", field(name)))
            .or(variable.strip_prefix("http_").map(|name| format!("request.{}", field(name))))
            .or(variable.strip_prefix("cookie_").map(|name| format!("cookie.{name}"))),
    }
}

fn log_format(nginx: &mut Nginx<'_>, one: &Directive) -> Becomes {
    let is_escape = |word: &&String| word.starts_with("escape=");
    let texts = one.words.iter().skip(1).filter(|word| !is_escape(word));
    let text: String = texts.map(String::as_str).collect();
    let literal = |text: &str| text.replace('{', "{{");
    let (mut format, mut rest) = (String::new(), &text[..]);
    while let Some((before, name, after)) = variables::next(rest) {
        let Some(ours) = logged(&name.to_ascii_lowercase()) else {
            let text = format!("our log has no value for ${name}");
            return Becomes::Text(Fate::NotCarried, text);
        };
        format += &format!("{}{{{ours}}}", literal(before));
        rest = after;
    }
    format += &literal(rest);
    if format.parse::<access_log::LogFormat>().is_err() {
        return Left("our log has no such format");
    }
    nginx.formats.insert(one.word(0).to_owned(), format);
    match one.words.iter().any(|word| is_escape(&word)) || text.contains("$upstream_cache_status") {
        true => Different("values are written with our escapes, and the store's by Cache-Status"),
        false => Carried,
    }
}

fn access_log(nginx: &mut Nginx<'_>, one: &Directive) -> Becomes {
    let path = one.word(0);
    if path == "off" {
        return Nothing("without [log] there is no log");
    }
    if path.contains('$') || path.starts_with("syslog:") {
        return Left("the log is a file");
    }
    let log = nginx.tree.section("log");
    if log.get("path").is_some_and(|there| *there != Value::from(path)) {
        return Left("there is one access log");
    }
    let format = match one.word(1) {
        "" | "combined" => Some("combined".to_owned()),
        name => nginx.formats.get(name).cloned(),
    };
    let becomes = match &format {
        _ if one.words.iter().any(|word| word.starts_with("if=")) => {
            Left("all requests are logged")
        }
        None => Left("its format is not carried; the log is `combined`"),
        Some(_) => Carried,
    };
    log.set("path", path, &one.at);
    log.set("format", format.unwrap_or_else(|| "combined".to_owned()), &one.at);
    becomes
}

#[cfg(test)]
mod tests;
