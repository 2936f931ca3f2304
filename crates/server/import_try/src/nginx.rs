//! What an nginx file suggests: listeners, hosts, paths, names in conditions, upstreams, and the
//! paths that it reads and writes.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::endpoints;
use crate::inputs::{Original, Paths, Upstreams};
use crate::job::Place;
use crate::plan::{Base, Named, Plan};
use crate::sample::sample;
use crate::words::{self, Directive};

/// Bases, at most: two requests go to each before any other.
const BASES_MAX: usize = 60;
/// Hosts of a server, at most.
const HOSTS_MAX: usize = 8;
/// Values of a table that are tried, at most.
const VALUES_MAX: usize = 8;
/// Directives with the name of something that is read.
const READ: &[&str] = &[
    "alias",
    "auth_basic_user_file",
    "geoip_city",
    "geoip_country",
    "grpc_ssl_certificate",
    "grpc_ssl_certificate_key",
    "grpc_ssl_trusted_certificate",
    "load_module",
    "proxy_ssl_certificate",
    "proxy_ssl_certificate_key",
    "proxy_ssl_crl",
    "proxy_ssl_trusted_certificate",
    "root",
    "ssl_client_certificate",
    "ssl_crl",
    "ssl_password_file",
    "ssl_trusted_certificate",
];

/// The plan for a file, and the upstreams and paths in it.
pub(crate) fn plan(original: &Original, program: &Path) -> (Plan, Upstreams, Paths) {
    let root = words::read(&original.name, &original.text, &original.files);
    let all = root.all();
    let mut plan = Plan { named: named(&all), has_spellings: true, ..Plan::default() };
    let servers = all.iter().filter(|one| one.name() == "server" && !one.below.is_empty());
    let upstreams_below = |one: &Directive| one.below.iter().any(|one| one.name() == "location");
    let servers: Vec<&&Directive> = servers.collect();
    let has_sites = servers.iter().any(|server| upstreams_below(server));
    for server in servers {
        // The other blocks of this name are mail and stream servers.
        if !has_sites || upstreams_below(server) || server.below.iter().any(is_http) {
            plan.bases.extend(bases(server, &mut plan.unasked));
        }
    }
    plan.bases = interleaved(plan.bases);
    let strangers = strangers(&plan.bases);
    plan.bases.extend(strangers);
    let rest = plan.bases.split_off(plan.bases.len().min(BASES_MAX));
    plan.unasked.extend(rest.iter().map(Base::shown));
    plan.has_limits = all.iter().any(|one| matches!(one.name(), "limit_req" | "limit_conn"));
    let listens: BTreeSet<SocketAddr> = plan.bases.iter().map(|base| base.to).collect();
    plan.job.listens = listens.into_iter().collect();
    let (mut upstreams, mut paths) = (Upstreams::default(), Paths::default());
    all.iter().for_each(|directive| read_upstreams(directive, &mut upstreams));
    for upstream in all.iter().filter(|one| one.name() == "upstream") {
        for server in upstream.below.iter().filter(|one| one.name() == "server") {
            upstreams.add_host(server.value(), 80);
        }
    }
    compiled_in(program, &mut paths);
    let base = original.path.parent().unwrap_or(Path::new("/"));
    all.iter().for_each(|directive| read_paths(directive, base, &mut paths));
    main_file(original, &root, &mut plan, program);
    (plan, upstreams, paths)
}

fn is_http(directive: &Directive) -> bool {
    ["server_name", "root", "return", "proxy_pass"].contains(&directive.name())
        && !directive.value().is_empty()
}

/// A few of each server first, so that a long first server leaves room for the others.
fn interleaved(bases: Vec<Base>) -> Vec<Base> {
    let mut by_site: Vec<((SocketAddr, String), std::collections::VecDeque<Base>)> = Vec::new();
    for base in bases {
        let site = (base.to, base.host.clone());
        match by_site.iter_mut().find(|(there, _)| *there == site) {
            Some((_, bases)) if bases.contains(&base) => {}
            Some((_, bases)) => bases.push_back(base),
            None => by_site.push((site, [base].into())),
        }
    }
    let mut all = Vec::new();
    while by_site.iter().any(|(_, bases)| !bases.is_empty()) {
        all.extend(by_site.iter_mut().filter_map(|(_, bases)| bases.pop_front()));
    }
    all
}

/// For each address, hosts that only servers elsewhere have: its default server answers them.
fn strangers(bases: &[Base]) -> Vec<Base> {
    let at = |to| bases.iter().filter(move |base: &&Base| base.to == to && base.path == "/");
    let addresses: BTreeSet<SocketAddr> = bases.iter().map(|base| base.to).collect();
    let mut all = Vec::new();
    for to in addresses {
        let Some(one) = at(to).next() else { continue };
        let own: BTreeSet<&str> = at(to).map(|base| base.host.as_str()).collect();
        let hosts: BTreeSet<&str> = bases.iter().map(|base| base.host.as_str()).collect();
        let others = hosts.difference(&own).take(HOSTS_MAX);
        all.extend(others.map(|host| Base {
            host: (*host).to_owned(),
            place: None,
            ..one.clone()
        }));
    }
    all
}

/// The listener of a `listen`, and whether it has TLS.
fn listener(directive: &Directive) -> Option<(SocketAddr, bool)> {
    let words = &directive.words[1..];
    let has = |word: &str| words.iter().any(|there| there == word);
    let text = words.first()?;
    if text.starts_with("unix:") || has("proxy_protocol") || has("quic") {
        return None;
    }
    let (host, port) = match text.parse::<u16>() {
        Ok(port) => ("*".to_owned(), port),
        Err(_) => endpoints::host_and_port(text, 80)?,
    };
    let address: IpAddr = match host.as_str() {
        "*" | "0.0.0.0" => Ipv4Addr::LOCALHOST.into(),
        "[::]" => Ipv6Addr::LOCALHOST.into(),
        host => {
            let host = host.trim_matches(['[', ']']);
            host.parse().unwrap_or_else(|_| endpoints::address_of(host).into())
        }
    };
    Some((SocketAddr::new(address, port), has("ssl")))
}

fn bases(server: &Directive, unasked: &mut Vec<String>) -> Vec<Base> {
    let of = |name: &'static str| server.below.iter().filter(move |one| one.name() == name);
    let mut listeners: Vec<(SocketAddr, bool)> = of("listen").filter_map(listener).collect();
    let mut leave_out = |one: &Directive, what: &str| {
        unasked.push(format!("{}:{}: {what}", one.file, one.line));
    };
    of("listen")
        .filter(|one| listener(one).is_none())
        .for_each(|one| leave_out(one, &one.words.join(" ")));
    if of("listen").next().is_none() {
        listeners.push(((Ipv4Addr::LOCALHOST, 80).into(), false));
    }
    if of("ssl").any(|one| one.value() == "on") {
        listeners.iter_mut().for_each(|(_, tls)| *tls = true);
    }
    if listeners.iter().any(|(to, _)| to.is_ipv4()) {
        listeners.retain(|(to, _)| to.is_ipv4());
    }
    let names = of("server_name").flat_map(|one| &one.words[1..]);
    let mut hosts: Vec<String> = Vec::new();
    for host in names.map(|name| host_of(name)) {
        match hosts.contains(&host) {
            false if hosts.len() == HOSTS_MAX => {
                leave_out(server, &format!("server_name {host}"));
            }
            false => hosts.push(host),
            true => {}
        }
    }
    if hosts.is_empty() {
        hosts.push("try.example".to_owned());
    }
    let whole = Some((server.file.clone(), server.line, server.last));
    let mut paths = vec![("/".to_owned(), true, whole.clone())];
    server.below.iter().for_each(|one| paths_of(one, "", &mut paths));
    // The lines of its location say more than those of the server.
    if paths[1..].iter().any(|(path, ..)| path == "/") {
        paths.remove(0);
        paths.sort_by_key(|(path, ..)| path != "/");
    }
    let mut bases = Vec::new();
    for (to, tls) in listeners {
        for (index, host) in hosts.iter().enumerate() {
            // The other names have the same locations.
            let paths = if index == 0 { &paths[..] } else { &paths[..1] };
            bases.extend(paths.iter().map(|(path, is_prefix, place)| Base {
                to,
                tls,
                host: host.clone(),
                path: path.clone(),
                is_prefix: *is_prefix,
                place: place.clone(),
            }));
        }
    }
    bases
}

/// A host that a name of a server stands for.
fn host_of(name: &str) -> String {
    let host = match name.strip_prefix('~') {
        Some(expression) => sample(expression),
        None => name.replacen("*.", "any.", 1).replace(".*", ".example"),
    };
    let host = host.trim_matches('.').to_ascii_lowercase();
    let is_host =
        !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-".contains(&b));
    if is_host { host } else { "try.example".to_owned() }
}

/// A path, whether all paths below it are of the same location, and its lines.
pub(crate) type Spot = (String, bool, Option<Place>);

/// The paths of locations, of rewrites, and of conditions on the path. `outer`: the path of the
/// location around them, or nothing.
fn paths_of(directive: &Directive, outer: &str, paths: &mut Vec<Spot>) {
    let place = Some((directive.file.clone(), directive.line, directive.last));
    let words: Vec<&str> = directive.words.iter().map(String::as_str).collect();
    let absolute = |text: String| match text.starts_with('/') {
        true => text,
        false => format!("{}/try{text}", outer.trim_end_matches('/')),
    };
    let spot = match words[..] {
        ["location", "=", path] => Some((path.to_owned(), false)),
        ["location", "~" | "~*", expression] => Some((absolute(sample(expression)), false)),
        ["location", "^~", path] => Some((path.to_owned(), true)),
        ["location", path] if path.starts_with('~') => {
            Some((absolute(sample(path.trim_start_matches(['~', '*']))), false))
        }
        ["location", path] if !path.starts_with('@') => Some((path.to_owned(), true)),
        ["rewrite", expression, ..] => Some((absolute(sample(expression)), false)),
        ["if", variable, operator, ref operands @ ..]
            if ["$uri", "$request_uri", "$document_uri"]
                .contains(&variable.trim_start_matches('(')) =>
        {
            let operand = operands.join(" ");
            let operand = unquoted(operand.strip_suffix(')').unwrap_or(&operand));
            let is_expression = operator.contains('~');
            let text = if is_expression { sample(operand) } else { operand.to_owned() };
            Some((absolute(text), false))
        }
        _ => None,
    };
    let is_path = |path: &str| path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic());
    paths.extend(
        spot.filter(|(path, _)| is_path(path)).map(|(path, is_prefix)| (path, is_prefix, place)),
    );
    let outer = match words[..] {
        ["location", "^~", path] => path,
        ["location", path] if path.starts_with('/') => path,
        _ => outer,
    };
    directive.below.iter().for_each(|one| paths_of(one, outer, paths));
}

fn unquoted(text: &str) -> &str {
    text.trim_matches(['"', '\''])
}

/// The fields that every request has anyway, or that change the connection.
const COMMON: &[&str] = &["host", "upgrade", "connection", "x-forwarded-for", "x-forwarded-proto"];

/// Names of cookies, parameters and fields, and networks of clients.
fn named(all: &[&Directive]) -> Named {
    let mut named = Named::default();
    for directive in all {
        for word in &directive.words {
            for (at, _) in word.match_indices('$') {
                let rest = word[at + 1..].trim_start_matches('{');
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                add_variable(&rest[..end.unwrap_or(rest.len())], directive, &mut named);
            }
        }
        let is_rule = ["allow", "deny", "set_real_ip_from"].contains(&directive.name());
        let is_geo = directive.name() == "geo";
        let entries = directive.below.iter().filter(|_| is_geo).map(Directive::name);
        for text in entries.chain(is_rule.then(|| directive.value())) {
            named.clients.extend(client_of(text));
        }
        if directive.name() == "limit_except" {
            named.methods.extend(directive.words[1..].iter().cloned());
        }
    }
    named
}

fn add_variable(variable: &str, directive: &Directive, named: &mut Named) {
    if let Some(name) = variable.strip_prefix("cookie_") {
        named.cookies.insert(name.to_owned());
    } else if let Some(name) = variable.strip_prefix("arg_") {
        named.arguments.insert(name.to_owned());
    } else if let Some(name) = variable.strip_prefix("http_") {
        let name = name.replace('_', "-");
        if COMMON.contains(&name.as_str()) {
            return;
        }
        let values = match directive.name() {
            "if" if directive.words.len() > 3 => {
                let operand = directive.words[3..].join(" ");
                let operand = operand.strip_suffix(')').unwrap_or(&operand);
                vec![sample(unquoted(operand))]
            }
            "map" => {
                let keys = directive.below.iter().map(|entry| entry.name());
                let keys = keys.filter(|key| *key != "default").take(VALUES_MAX);
                keys.map(|key| match key.strip_prefix('~') {
                    Some(expression) => sample(expression.trim_start_matches('*')),
                    None => key.to_owned(),
                })
                .collect()
            }
            _ => vec!["1".to_owned()],
        };
        let is_plain = |value: &String| value.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
        let mut values: Vec<String> = values.into_iter().filter(is_plain).collect();
        values.retain(|value| !value.is_empty());
        named.fields.extend(values.into_iter().map(|value| (name.clone(), value)));
    }
}

/// An address in a network.
pub(crate) fn client_of(text: &str) -> Option<Ipv4Addr> {
    let (address, bits) = text.split_once('/').unwrap_or((text, "32"));
    let (address, bits): (Ipv4Addr, u8) = (address.parse().ok()?, bits.parse().ok()?);
    let number = u32::from(address) + u32::from((1..31).contains(&bits));
    let address = Ipv4Addr::from(number);
    let is_usable = bits > 0 && !address.is_loopback() && !address.is_unspecified();
    let of_names = address.octets()[0] == 11;
    (is_usable && !of_names && !address.is_multicast() && !address.is_broadcast())
        .then_some(address)
}

fn read_upstreams(directive: &Directive, upstreams: &mut Upstreams) {
    let name = directive.name();
    if matches!(name, "return" | "rewrite" | "add_header") {
        return;
    }
    for word in &directive.words {
        match word.split_once("unix:").filter(|_| name != "listen") {
            Some((_, path)) => upstreams.add_socket(path),
            None => upstreams.add_url(word),
        }
    }
    if name.ends_with("_pass") && !directive.value().contains("://") {
        upstreams.add_host(directive.value(), 80);
    }
    if name == "resolver" {
        let hosts = directive.words[1..]
            .iter()
            .filter_map(|word| endpoints::host_and_port(word, 53)?.0.parse::<Ipv4Addr>().ok());
        upstreams.resolvers.extend(hosts);
    }
}

fn read_paths(directive: &Directive, base: &Path, paths: &mut Paths) {
    let name = directive.name();
    let is_expression = matches!(name, "location" | "rewrite" | "if" | "return" | "try_files");
    if is_expression || !directive.below.is_empty() {
        return;
    }
    let value = directive.value();
    match name {
        "ssl_certificate" => paths.certificates.push((base.join(value), true)),
        "ssl_certificate_key" => paths.certificates.push((base.join(value), false)),
        "ssl_dhparam" => paths.parameters.push(base.join(value)),
        "include" => {
            let is_name = !value.contains(['*', '?', '[']);
            paths.included.extend(is_name.then(|| base.join(value)));
        }
        _ if READ.contains(&name) => {
            let of_prefix = matches!(name, "root" | "alias" | "load_module");
            let from = if of_prefix { paths.prefix.as_path() } else { base };
            let path = from.join(value);
            paths.read.extend((!value.contains('$')).then_some(path));
        }
        "error_log" | "access_log" | "pid" | "lock_file" => {
            let is_file = !value.contains(['$', ':']) && !matches!(value, "off" | "stderr");
            paths.written.extend(is_file.then(|| paths.prefix.join(value)));
        }
        _ if name.ends_with("_path") || name == "listen" => {
            let value = value.strip_prefix("unix:").unwrap_or(value);
            let is_path = name.ends_with("_path") || value.starts_with('/');
            paths.written.extend(is_path.then(|| paths.prefix.join(value)));
        }
        _ => {}
    }
}

/// The paths that are compiled into nginx.
fn compiled_in(program: &Path, paths: &mut Paths) {
    // It prints this without reading a configuration.
    let output = Command::new(program).arg("-V").output();
    let text = output.map(|output| output.stderr).unwrap_or_default();
    paths.prefix = PathBuf::from("/usr/local/nginx");
    for word in String::from_utf8_lossy(&text).split_whitespace() {
        let Some((flag, path)) = word.split_once('=') else { continue };
        if flag == "--prefix" {
            paths.prefix = PathBuf::from(path);
        } else if flag.ends_with("-path") && path.starts_with('/') && !flag.contains("module") {
            paths.written.push(PathBuf::from(path));
        }
    }
}

/// Puts the files of the original into the sandbox. A file with servers alone is included by a
/// file with the rest.
fn main_file(original: &Original, root: &Directive, plan: &mut Plan, program: &Path) {
    let has = |name: &str| root.below.iter().any(|one| one.name() == name);
    let mut text = original.text.clone();
    let daemon = root.below.iter().find(|one| one.name() == "daemon");
    if let Some(daemon) = daemon.filter(|one| one.value() != "off") {
        text = text.replacen(&daemon.words.join(" "), "daemon off", 1);
    }
    plan.job.files.push((original.path.clone(), text.into_bytes()));
    let mut path = original.path.clone();
    if !has("http") {
        path.set_file_name("plimsoll-try.conf");
        let events = if has("events") { "" } else { "events {}\n" };
        let text = format!("{events}http {{ include {}; }}\n", original.path.display());
        plan.job.files.push((path.clone(), text.into_bytes()));
    }
    plan.job.program = Some(program.to_owned());
    plan.job.arguments = vec!["-c".to_owned(), path.display().to_string()];
    if daemon.is_none() {
        plan.job.arguments.extend(["-g".to_owned(), "daemon off;".to_owned()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original(text: &str) -> Original {
        Original {
            name: "x.conf".to_owned(),
            path: PathBuf::from("/a/x.conf"),
            text: text.to_owned(),
            files: words::Files::new(),
        }
    }

    #[test]
    fn locations_hosts_and_names_become_requests() {
        let text = "http { map $http_user_agent $bot { default 0; \"~*(bot|spider)\" 1; }
server { listen 8080; server_name .shop.example ~^w\\d+$;
  location = /one { proxy_pass http://app:3000; }
  location /api { allow 10.1.0.0/16; deny all; if ($cookie_sid) { return 403; } }
  location ~ \\.php$ { fastcgi_pass unix:/run/php.sock; }
  rewrite ^/old/(.*)$ /new/$1 permanent;
  location /img/ { location ~ \\.png$ { return 403; } }
} }";
        let (plan, upstreams, _) = plan(&original(text), Path::new("/none"));
        let paths: Vec<&str> = plan.bases.iter().map(|base| base.path.as_str()).collect();
        assert_eq!(
            paths,
            ["/", "/", "/one", "/api", "/try.php", "/old/a", "/img/", "/img/try.png"]
        );
        assert_eq!(
            (plan.bases[0].host.as_str(), plan.bases[1].host.as_str()),
            ("shop.example", "w1")
        );
        assert_eq!(plan.bases[3].place, Some(("x.conf".to_owned(), 4, 4)));
        assert!(plan.named.cookies.contains("sid"));
        assert!(plan.named.fields.contains(&("user-agent".to_owned(), "bot".to_owned())));
        assert!(plan.named.clients.contains(&Ipv4Addr::new(10, 1, 0, 1)));
        assert!(upstreams.ports.contains(&3000), "{upstreams:?}");
        assert!(upstreams.sockets.contains(Path::new("/run/php.sock")), "{upstreams:?}");
        assert_eq!(plan.unasked, [""; 0]);
    }

    #[test]
    fn hosts_of_other_addresses_are_asked_for_at_each_address() {
        let text = "http { server { listen 80; listen 443 ssl; server_name a.example; }
server { listen 80; server_name b.example; location / { proxy_pass http://app; } } }";
        let (plan, ..) = plan(&original(text), Path::new("/none"));
        let hosts = |tls| plan.bases.iter().filter(move |base| base.tls == tls);
        let hosts = |tls| hosts(tls).map(|base| base.host.as_str()).collect::<Vec<_>>();
        assert_eq!(hosts(true), ["a.example", "b.example"]);
        assert_eq!(hosts(false), ["a.example", "b.example"]);
    }

    #[test]
    fn what_no_request_is_for_is_listed() {
        let many: String = (0..BASES_MAX).map(|n| format!("location /{n} {{ }}\n")).collect();
        let hosts: String = (0..=HOSTS_MAX).map(|n| format!("h{n} ")).collect();
        let text = format!(
            "http {{ server {{ {many} location /last {{ }} }}
server {{ listen unix:/x; location / {{ }} }}
server {{ listen 81 proxy_protocol; location / {{ }} }}
server {{ listen 82; server_name {hosts}; location = /one {{ }} }} }}"
        );
        let (plan, ..) = plan(&original(&text), Path::new("/none"));
        let all = plan.unasked.join("\n");
        for part in ["listen unix:/x", "listen 81 proxy_protocol", "server_name h8", "/last"] {
            assert!(all.contains(part), "no {part} in {all}");
        }
        let beyond: Vec<String> = crate::plan::beyond(&plan.bases, 118).collect();
        assert_eq!(beyond.len(), 1, "{beyond:?}");
    }
}
