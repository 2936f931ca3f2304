//! `nginx.conf`: blocks, what levels inherit, and a table from each directive to what becomes of
//! it.

mod blocks;
mod limits;
mod listen;
mod redirects;
mod routes;
mod scope;
mod store;
mod table;
mod upstreams;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use self::blocks::{Directive, parse};
use self::listen::Listen;
use self::routes::{Server, Writer};
use self::scope::Scope;
use self::table::{size, time};
use self::upstreams::Upstreams;
use crate::input::Input;
use crate::note::{Fate, Notes};
use crate::pattern::host_of;
use crate::tree::{Section, Tree, Value, timeout};
use crate::{Options, SyntaxError};

/// Imports a text.
///
/// # Errors
/// The text is not in the language, or exceeds a limit.
pub(crate) fn import(
    file: &Rc<str>,
    text: &str,
    options: Options,
    input: &mut Input<'_>,
    tree: &mut Tree,
    notes: &mut Notes,
) -> Result<(), SyntaxError> {
    let all = parse(file, text, input, notes)?;
    routes::header_notes(&all, &[], notes);
    let mut formats = BTreeMap::new();
    let main = Scope::default().inside(&all, notes);
    global(&all, tree, notes, &mut formats);
    let mut blocks: Vec<&[Directive]> = Vec::new();
    for http in all.iter().filter(|directive| directive.name == "http") {
        notes.carried(&http.at);
        blocks.push(http.inner());
    }
    // A file that is included in `http`, such as those of sites, has its content alone.
    let is_part = blocks.is_empty();
    if is_part {
        blocks.push(&all);
    }
    for inner in blocks {
        let scope = if is_part { main.clone() } else { main.inside(inner, notes) };
        if !is_part {
            global(inner, tree, notes, &mut formats);
        }
        let mut upstreams = Upstreams::default();
        for block in inner.iter().filter(|directive| directive.name == "upstream") {
            upstreams.block(block);
        }
        let (maps, switches) = store::switches(inner);
        let mut writer = Writer {
            tree,
            notes,
            upstreams: &mut upstreams,
            maps,
            switches,
            codes: store::codes(inner),
            limited: Vec::new(),
            bodies: Vec::new(),
            open: options.open,
            is_full: false,
        };
        servers(inner, &scope, &mut writer, &mut formats);
        let Writer { limited, bodies, .. } = writer;
        limits::quotas(&limited, inner, tree, notes);
        limits::bodies(&bodies, tree, notes);
    }
    let reason = "nginx has no PURGE";
    tree.section("purge").set_for("from", Vec::new(), reason);
    Ok(())
}

/// The servers of `http`.
fn servers(
    inner: &[Directive],
    scope: &Scope<'_>,
    writer: &mut Writer<'_>,
    formats: &mut BTreeMap<String, String>,
) {
    let blocks: Vec<&Directive> = inner.iter().filter(|one| one.name == "server").collect();
    let listens: Vec<Vec<Listen>> =
        blocks.iter().map(|block| listens(block, writer.notes)).collect();
    let (chosen, addresses) = listen::chosen(&listens);
    let default = chosen
        .iter()
        .find(|at| listens[**at].iter().any(|listen| listen.default))
        .or_else(|| chosen.first())
        .copied();
    let (mut carried, mut taken) = (Vec::new(), BTreeSet::new());
    let mut default_closed = several_defaults(&chosen, &listens, writer.notes);
    let below = wildcards(&blocks);
    let chosen: BTreeSet<usize> = chosen.into_iter().collect();
    for (at, block) in blocks.iter().enumerate() {
        if !chosen.contains(&at) {
            let text = "it listens elsewhere than the servers that are carried, and routes are \
                        the same for all listeners, so its address is not opened; import a file \
                        with only this server, for another process";
            writer.notes.left(&block.at, text);
            table::inside(block, Fate::NotCarried, "its server is not carried", writer.notes);
            continue;
        }
        for listen in &listens[at] {
            let covered = |other: &Listen| {
                let port = |address: &str| address.rsplit(':').next().map(str::to_owned);
                other.address == listen.address
                    || other.address.starts_with("[::]")
                        && listen.address.starts_with("0.0.0.0")
                        && port(&other.address) == port(&listen.address)
            };
            let six = listen.address.starts_with("[::]:")
                && !listens[at].iter().any(|other| other.address.starts_with("0.0.0.0:"));
            match addresses.iter().any(covered) {
                true if six => {
                    writer.notes.different(&listen.at, "it is for clients of IPv4 too");
                }
                true => writer.notes.carried(&listen.at),
                false => {
                    let text = "not all servers that are carried have this address, so it is not \
                                opened";
                    writer.notes.left(&listen.at, text);
                }
            }
        }
        let mut own = scope.inside(block.inner(), writer.notes);
        global(block.inner(), writer.tree, writer.notes, formats);
        let default = default == Some(at);
        let (hosts, all) = hosts(block, (default, &below), &mut own, &mut taken, writer.notes);
        default_closed |= !all;
        if hosts.is_empty() && !default {
            writer.notes.left(&block.at, "no name of it is carried");
            table::inside(block, Fate::NotCarried, "no name of it is carried", writer.notes);
            continue;
        }
        writer.notes.carried(&block.at);
        carried.push(Server { directive: block, scope: own, hosts, default });
    }
    let closed = several_authorities(&carried, writer.notes);
    for server in &carried {
        routes::server(server, closed, default_closed, writer);
    }
    if writer.is_full && !writer.open {
        writer.tree.all_mut("route").for_each(Section::close);
    }
    // The certificate of the default server is for clients without a server name.
    carried.sort_by_key(|server| !server.default);
    for address in &addresses {
        listener(address, &carried, writer);
    }
}

fn listens(block: &Directive, notes: &mut Notes) -> Vec<Listen> {
    let all: Vec<&Directive> = block.inner().iter().filter(|one| one.name == "listen").collect();
    if all.is_empty() {
        return vec![listen::usual(&block.at)];
    }
    let mut found = Vec::new();
    for directive in all {
        match listen::read(directive) {
            Ok(listen) => found.push(listen),
            Err(why) => notes.left(&directive.at, why),
        }
    }
    found
}

/// The hosts of `server_name` that no server before has, as routes have them, and whether these are
/// all whose requests would otherwise go to the default server.
fn hosts(
    block: &Directive,
    (default, below): (bool, &BTreeSet<String>),
    scope: &mut Scope<'_>,
    taken: &mut BTreeSet<String>,
    notes: &mut Notes,
) -> (Vec<String>, bool) {
    let (mut hosts, mut all) = (Vec::new(), true);
    let names = block.inner().iter().filter(|one| one.name == "server_name");
    // A route that captures the host has no other hosts.
    let is_alone = !default && names.clone().map(|one| one.words.len()).sum::<usize>() == 1;
    for directive in names {
        let mut left = Vec::new();
        for name in &directive.words {
            let bare = name.strip_prefix("*.").unwrap_or(name);
            let bare = bare.strip_prefix('.').unwrap_or(bare).to_ascii_lowercase();
            let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_');
            if name == "_" || name.is_empty() || name == "\"\"" {
                continue;
            }
            let ends = bare.starts_with('.') || bare.ends_with('.') || bare.is_empty();
            let captured = name.strip_prefix('~').filter(|_| is_alone).and_then(host_of);
            // A wildcard is asked before it.
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
    // Captures of one label are the same hosts, whatever their names are.
    hosts.retain(|host| match host.split_once("}.") {
        Some((_, below)) => taken.insert(format!("{{}}.{below}")),
        None => taken.insert(host.clone()),
    });
    (hosts, all)
}

/// The names below which some server has all hosts.
fn wildcards(blocks: &[&Directive]) -> BTreeSet<String> {
    let names = blocks.iter().flat_map(|block| block.inner());
    let names = names.filter(|one| one.name == "server_name").flat_map(|one| &one.words);
    let below =
        |name: &String| name.strip_prefix("*.").or(name.strip_prefix('.')).map(str::to_owned);
    names.filter_map(below).map(|name| name.to_ascii_lowercase()).collect()
}

/// Whether a wildcard is for the hosts of an expression, too.
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

/// Whether two servers are the default ones of different addresses. Ours has one for all.
fn several_defaults(chosen: &[usize], listens: &[Vec<Listen>], notes: &mut Notes) -> bool {
    let defaults = chosen.iter().flat_map(|at| listens[*at].iter().map(move |one| (*at, one)));
    let defaults: Vec<(usize, &Listen)> = defaults.filter(|(_, one)| one.default).collect();
    let several = defaults.iter().any(|(at, _)| *at != defaults[0].0);
    for (_, one) in defaults.iter().filter(|_| several) {
        let text = "one server is the default one of all addresses, and here are several, so it \
                    is closed for hosts that no server has";
        notes.unprotected(&one.at, text);
    }
    several
}

/// Whether servers ask for client certificates of different authorities: a listener has one.
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

/// `[[listen]]`
fn listener(listen: &Listen, servers: &[Server<'_>], writer: &mut Writer<'_>) {
    let mut section = Section::new("listen");
    section.set("address", listen.address.clone(), &listen.at);
    let http2 = listen.http2 || servers.iter().any(|server| server.scope.is("http2", "on"));
    section.set("http2", http2, &listen.at);
    if listen.proxy_header {
        let mut senders: Vec<String> = Vec::new();
        for sender in servers.iter().flat_map(|server| server.scope.all("set_real_ip_from")) {
            let word = sender.word(0);
            if word.parse::<ipnet::IpNet>().is_err() && word.parse::<std::net::IpAddr>().is_err() {
                writer.notes.left(&sender.at, "it is not a network");
            } else if !senders.iter().any(|there| there == word) {
                senders.push(word.to_owned());
            }
        }
        section.set_for("proxy_from", senders, "set_real_ip_from");
        writer.notes.different(&listen.at, "PROXY headers are accepted from set_real_ip_from only");
    }
    if listen.tls {
        let mut any = false;
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for server in servers {
            let scope = &server.scope;
            let chains = scope.all("ssl_certificate").iter();
            for (chain, key) in chains.zip(scope.all("ssl_certificate_key")) {
                if pairs.contains(&(chain.word(0), key.word(0))) {
                    continue;
                }
                pairs.push((chain.word(0), key.word(0)));
                any = true;
                let tls = section.below("listen.tls").below("listen.tls.certificate");
                tls.set("chain", chain.word(0), &chain.at);
                tls.set("key", key.word(0), &key.at);
            }
        }
        if !any {
            let text = "no server has a certificate, so this address is not written";
            return writer.notes.left(&listen.at, text);
        }
        section.set("http3", listen.http3, &listen.at);
        client_certificates(&mut section, servers, writer.notes);
    }
    writer.tree.add(section);
}

/// Client certificates, and versions of TLS.
fn client_certificates(section: &mut Section, servers: &[Server<'_>], notes: &mut Notes) {
    let Some(server) = servers.first() else { return };
    if let Some(protocols) = server.scope.get("ssl_protocols")
        && protocols.words == ["TLSv1.3"]
    {
        section.below("listen.tls").set("only_tls13", true, &protocols.at);
    }
    // The strictest of all servers is for all, because the name comes after the connection.
    for server in servers {
        let Some(verify) = server.scope.get("ssl_verify_client") else { continue };
        let ca = server.scope.get("ssl_client_certificate");
        match (verify.word(0), ca) {
            ("on" | "optional", Some(ca)) => {
                let tls = section.below("listen.tls");
                tls.set("client_ca", ca.word(0), &ca.at);
                let optional = verify.word(0) == "optional";
                if optional && tls.get("client_optional").is_none() {
                    tls.set("client_optional", true, &verify.at);
                } else if !optional {
                    tls.set("client_optional", false, &verify.at);
                }
                notes.different(&verify.at, "it holds for all servers of this address");
            }
            ("off", _) => notes.carried(&verify.at),
            _ => notes.left(&verify.at, "it needs ssl_client_certificate"),
        }
    }
}

/// Settings that our file has once.
fn global(
    all: &[Directive],
    tree: &mut Tree,
    notes: &mut Notes,
    formats: &mut BTreeMap<String, String>,
) {
    for directive in all {
        let at = &directive.at;
        match directive.name.as_str() {
            "user" => {
                tree.section("server").set("user", directive.word(0), at);
                if directive.words.len() > 1 {
                    tree.section("server").set("group", directive.word(1), at);
                }
                notes.carried(at);
            }
            "worker_processes" => match directive.word(0).parse::<u64>() {
                Ok(count) if (1..=1024).contains(&count) => {
                    tree.section("server").set("workers", Value::Count(count), at);
                    notes.carried(at);
                }
                _ => notes.nothing(at, "one thread per CPU is the default"),
            },
            "keepalive_timeout" => limit(directive, "idle_keep_alive", tree, notes),
            "client_header_timeout" => limit(directive, "head_timeout", tree, notes),
            "client_body_timeout" => limit(directive, "body_timeout", tree, notes),
            "send_timeout" => limit(directive, "send_timeout", tree, notes),
            "large_client_header_buffers" => {
                let bytes = size(directive.word(1)).unwrap_or(8 << 10).clamp(1 << 10, 32 << 10);
                tree.section("limits").set("head_bytes_max", Value::Bytes(bytes), at);
                notes.different(at, "the whole head has this size, at most 32 KiB");
            }
            "resolver" => resolver(directive, tree, notes),
            "proxy_cache_path" => cache_path(directive, tree, notes),
            "log_format" => log_format(directive, formats, notes),
            "access_log" => access_log(directive, tree, formats, notes),
            "real_ip_header" if directive.word(0) == "proxy_protocol" => notes.carried(at),
            "real_ip_header" => {
                notes.left(at, "the client is the connection's, or the PROXY header's");
            }
            _ => {}
        }
    }
}

fn limit(directive: &Directive, key: &'static str, tree: &mut Tree, notes: &mut Notes) {
    let at = &directive.at;
    let Some(time) = timeout(time(directive.word(0))) else {
        return notes.left(at, "a time-out is from a millisecond to a day");
    };
    let section = tree.section("limits");
    match section.get(key) {
        Some(other) if *other != time => {
            notes.left(at, "there is one value for all servers, and another line has it");
        }
        _ => {
            section.set(key, time, at);
            notes.carried(at);
        }
    }
}

fn resolver(directive: &Directive, tree: &mut Tree, notes: &mut Notes) {
    let server = |word: &String| {
        let text = word.trim_matches(['[', ']']);
        let ip = text.parse::<std::net::IpAddr>().ok();
        let address = ip.map(|ip| std::net::SocketAddr::new(ip, 53));
        address.or_else(|| word.parse().ok()).map(|address| address.to_string())
    };
    let servers: Vec<String> = directive.words.iter().filter_map(server).take(3).collect();
    let at = &directive.at;
    if servers.is_empty() {
        return notes.left(at, "a name server is an IP address");
    }
    tree.section("dns").set("servers", servers, at);
    notes.different(at, "up to three name servers; a name is kept for its TTL");
}

fn cache_path(directive: &Directive, tree: &mut Tree, notes: &mut Notes) {
    let at = &directive.at;
    let store = tree.section("store");
    if store.get("path").is_some() {
        return notes.left(at, "there is one store on disk; make the first one larger");
    }
    let option = |name: &str| {
        let with = |word: &String| word.strip_prefix(name)?.strip_prefix('=').and_then(size);
        directive.words.iter().find_map(with)
    };
    let bytes = option("max_size").unwrap_or(1 << 30).max(32 << 20);
    store.set("path", format!("{}/plimsoll", directive.word(0).trim_end_matches('/')), at);
    store.set("bytes", Value::Bytes(bytes), at);
    let text = "the store is empty at first, in a directory of this name in nginx's; without \
                max_size it has 1 GiB; responses are evicted when it is full, not by `inactive`";
    notes.different(at, text);
}

/// Variables of a log format, and the codes of Apache's for them.
const CODES: &[(&str, &str)] = &[
    ("$remote_addr", "%h"),
    ("$remote_user", "%u"),
    ("[$time_local]", "%t"),
    ("$request_method", "%m"),
    ("$request_uri", "%U%q"),
    ("$request_time", "%{ms}T"),
    ("$status", "%>s"),
    ("$body_bytes_sent", "%b"),
    ("$bytes_sent", "%O"),
    ("$http_referer", "%{Referer}i"),
    ("$http_user_agent", "%{User-Agent}i"),
    ("$http_x_forwarded_for", "%{X-Forwarded-For}i"),
    ("$host", "%{Host}i"),
    ("$request", "%r"),
];

fn log_format(directive: &Directive, formats: &mut BTreeMap<String, String>, notes: &mut Notes) {
    let at = &directive.at;
    let texts = directive.words.iter().skip(1).filter(|word| !word.starts_with("escape="));
    let mut text: String = texts.map(String::as_str).collect();
    // A longer name is another variable.
    let is_known = |name| CODES.iter().any(|(own, _)| own.trim_matches(['[', '$', ']']) == name);
    let all_known = variables::names(&text).all(is_known);
    for (variable, code) in CODES {
        text = text.replace(variable, code);
    }
    let format = format!("apache:{text}");
    if !all_known || text.contains('$') || format.parse::<access_log::LogFormat>().is_err() {
        return notes.left(at, "it has a variable that has no code here");
    }
    formats.insert(directive.word(0).to_owned(), format);
    notes.carried(at);
}

fn access_log(
    directive: &Directive,
    tree: &mut Tree,
    formats: &BTreeMap<String, String>,
    notes: &mut Notes,
) {
    let at = &directive.at;
    let path = directive.word(0);
    if path == "off" {
        return notes.nothing(at, "without [log] there is no log");
    }
    if path.contains('$') || path.starts_with("syslog:") {
        return notes.left(at, "the log is a file");
    }
    let log = tree.section("log");
    if log.get("path").is_some_and(|there| *there != Value::from(path)) {
        return notes.left(at, "there is one access log");
    }
    let format = match directive.word(1) {
        "" | "combined" => Some("combined".to_owned()),
        name => formats.get(name).cloned(),
    };
    log.set("path", path, at);
    log.set("format", format.clone().unwrap_or_else(|| "combined".to_owned()), at);
    match (format, directive.words.iter().any(|word| word.starts_with("if="))) {
        (_, true) => notes.left(at, "all requests are logged"),
        (None, _) => notes.left(at, "its format is not carried; the log is `combined`"),
        _ => notes.carried(at),
    }
}

#[cfg(test)]
mod tests;
