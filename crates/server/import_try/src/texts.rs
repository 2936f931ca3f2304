//! What a VCL program or a file of Squid suggests: hosts, paths, fields and methods in its texts,
//! and in the routes of the imported file.
//!
//! The program is not parsed again. A text counts by what is compared with it: the last name of a
//! part of the request before it.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::inputs::{Original, Paths, Upstreams};
use crate::job::Place;
use crate::nginx::{Spot, client_of};
use crate::plan::{Base, Plan};
use crate::sample::sample;

/// Hosts, and paths of each, at most.
const HOSTS_MAX: usize = 4;
const PATHS_MAX: usize = 40;
/// Lines of a condition and its block, which its requests are for.
const BLOCK_LINES: usize = 6;

pub(crate) type Plans = (Plan, Upstreams, Paths);

/// Paths and hosts that were found, with the lines that they come from.
#[derive(Clone, Default)]
pub(crate) struct Found {
    hosts: Vec<String>,
    paths: Vec<Spot>,
}

impl Found {
    pub(crate) fn host(&mut self, text: &str) {
        let host = text.trim_matches('.').to_ascii_lowercase();
        let host = host.split(':').next().unwrap_or_default();
        let is_host = host.bytes().all(|b| b.is_ascii_alphanumeric() || b".-".contains(&b));
        if is_host && !host.is_empty() && !self.hosts.iter().any(|there| there == host) {
            self.hosts.push(host.to_owned());
        }
    }

    pub(crate) fn path(&mut self, text: &str, is_prefix: bool, place: Option<Place>) {
        let path = if text.starts_with('/') { text.to_owned() } else { format!("/try{text}") };
        let is_path = path.bytes().all(|b| b.is_ascii_graphic()) && path.len() < 1000;
        if is_path && !self.paths.iter().any(|(there, ..)| *there == path) {
            self.paths.push((path, is_prefix, place));
        }
    }

    /// What the routes of our file have.
    fn routes(&mut self, toml: &Table) {
        let routes = toml.get("route").and_then(Value::as_array).into_iter().flatten();
        for route in routes {
            let text = |key: &str| route.get(key).and_then(Value::as_str);
            let hosts = route.get("hosts").and_then(Value::as_array).into_iter().flatten();
            for host in hosts.filter_map(Value::as_str) {
                self.host(&host.replace('*', "any"));
            }
            if let Some(prefix) = text("prefix") {
                self.path(prefix, true, None);
            }
            if let Some(path) = text("path").filter(|path| !path.contains('{')) {
                self.path(&path.replace('*', "any"), false, None);
            }
        }
    }

    /// Every path of every host. `start` is what precedes the path in a target.
    pub(crate) fn bases(
        mut self,
        to: SocketAddr,
        is_forward: bool,
        unasked: &mut Vec<String>,
    ) -> Vec<Base> {
        self.path("/", true, None);
        self.hosts.push("try.example".to_owned());
        // A path beside the others comes first, and each host has it.
        self.paths.sort_by_key(|(path, ..)| path != "/");
        let most = if is_forward { PATHS_MAX } else { HOSTS_MAX };
        unasked.extend(self.hosts.split_off(self.hosts.len().min(most)));
        let rest = self.paths.split_off(self.paths.len().min(PATHS_MAX));
        unasked.extend(rest.into_iter().map(|(path, ..)| path));
        let mut bases = Vec::new();
        for (path, is_prefix, place) in &self.paths {
            for host in &self.hosts {
                let is_first = *host == self.hosts[0] || path == "/";
                let start = if is_forward { format!("http://{host}") } else { String::new() };
                bases.extend(is_first.then(|| Base {
                    to,
                    tls: false,
                    host: host.clone(),
                    path: format!("{start}{path}"),
                    is_prefix: *is_prefix,
                    place: place.clone(),
                }));
            }
        }
        bases
    }
}

/// The files of the original, each with its name in notes.
fn files(original: &Original) -> Vec<(String, String)> {
    let included = original.files.values().flatten();
    let included = included.map(|file| (file.name.clone(), file.text.clone()));
    [(original.name.clone(), original.text.clone())].into_iter().chain(included).collect()
}

/// The plan for a VCL program.
pub(crate) fn vcl(original: &Original, toml: &Table, program: &Path) -> Plans {
    let (mut plan, mut upstreams, mut found) = Default::default();
    for (name, text) in files(original) {
        for (line, before, text) in literals(&text) {
            let place = Some((name.clone(), line, line + BLOCK_LINES));
            by_context(&before, &text, place, &mut found, &mut plan);
        }
        backends(&text, &mut upstreams);
    }
    found.routes(toml);
    // VCL has no addresses. Programs compare hosts without a port, so it is the usual port if no
    // backend has it.
    let is_free = !upstreams.loopback.iter().any(|backend| backend.port() == 80);
    let to = SocketAddr::from(([127, 0, 0, 1], if is_free { 80 } else { 6081 }));
    plan.bases = found.bases(to, false, &mut plan.unasked);
    plan.job.listens = vec![to];
    plan.job.files.push((original.path.clone(), original.text.clone().into_bytes()));
    plan.job.program = Some(program.to_owned());
    let base = original.path.parent().unwrap_or(Path::new("/")).display();
    let path = format!("vcl_path={base}:/etc/varnish:/usr/share/varnish/vcl");
    let file = original.path.display().to_string();
    let listener = to.to_string();
    let arguments =
        ["-F", "-j", "none", "-n", "/try/varnish", "-s", "default,32m", "-p", &path, "-f", &file];
    plan.job.arguments = arguments.iter().map(|one| (*one).to_owned()).collect();
    plan.job.arguments.extend(["-a".to_owned(), listener]);
    plan.job.writable.push(PathBuf::from("/try/varnish"));
    (plan, upstreams, Paths { prefix: PathBuf::from("/try"), ..Paths::default() })
}

/// The texts of a program: the line, the code before it since the statement began, and the text.
fn literals(program: &str) -> Vec<(usize, String, String)> {
    let mut all = Vec::new();
    let (mut rest, mut before, mut line) = (program, String::new(), 1);
    while let Some(first) = rest.chars().next() {
        let starts = |text: &str| rest.starts_with(text);
        let until = |end: &str| rest.find(end).unwrap_or(rest.len());
        let taken = match first {
            '#' => until("\n"),
            '/' if starts("//") => until("\n"),
            '/' if starts("/*") => (until("*/") + 2).min(rest.len()),
            '"' | '{' if first == '"' || starts("{\"") => {
                let (open, close) = if first == '"' { (1, "\"") } else { (2, "\"}") };
                let inner = &rest[open..];
                let end = inner.find(close).unwrap_or(inner.len());
                all.push((line, before.clone(), inner[..end].to_owned()));
                (open + end + close.len()).min(rest.len())
            }
            _ => {
                match first {
                    ';' | '{' | '}' => before.clear(),
                    _ => before.push(first),
                }
                first.len_utf8()
            }
        };
        line += rest[..taken].matches('\n').count();
        rest = &rest[taken..];
    }
    all
}

/// Takes a text for what it is compared with.
fn by_context(before: &str, text: &str, place: Option<Place>, found: &mut Found, plan: &mut Plan) {
    let lower = before.to_ascii_lowercase();
    let Some(at) = lower.rfind("req.") else { return };
    let name = &lower[at + "req.".len()..];
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c));
    let name = &name[..end.unwrap_or(name.len())];
    let shown = sample(text);
    match name {
        "url" => found.path(&shown, false, place),
        "method" | "request" => {
            let is_method = shown.bytes().all(|b| b.is_ascii_uppercase()) && !shown.is_empty();
            plan.named.methods.extend(is_method.then_some(shown));
        }
        "http.host" => found.host(&shown),
        "http.cookie" => {
            let is_name = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
            let names = shown.split(|c: char| !is_name(c)).filter(|name| name.len() > 2);
            plan.named.cookies.extend(names.take(1).map(str::to_owned));
        }
        _ => {
            let Some(name) = name.strip_prefix("http.") else { return };
            let is_value = shown.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
            let is_free = !["x-forwarded-for", "connection", "upgrade"].contains(&name);
            if is_value && is_free && !shown.is_empty() && shown.len() < 200 {
                plan.named.fields.insert((name.to_owned(), shown));
            }
        }
    }
}

/// The servers of backends: `.host` and `.port` of the same block.
fn backends(program: &str, upstreams: &mut Upstreams) {
    let (mut host, mut port) = (None, None);
    for (_, before, text) in literals(program) {
        let add = |host: &mut Option<String>, port: &mut Option<u16>, upstreams: &mut Upstreams| {
            if let Some(host) = host.take() {
                upstreams.add_host(&host, port.take().unwrap_or(80));
            }
        };
        match before.trim().trim_end_matches(['=', ' ']) {
            ".host" => {
                add(&mut host, &mut port, upstreams);
                host = Some(text);
            }
            ".port" => {
                port = text.parse().ok();
                add(&mut host, &mut port, upstreams);
            }
            ".path" if text.starts_with('/') && text.ends_with(".sock") => {
                upstreams.add_socket(&text);
            }
            _ => {}
        }
    }
    if let Some(host) = host {
        upstreams.add_host(&host, 80);
    }
}

/// Directives of Squid that the sandbox replaces: a disk cache must be prepared first, and logs and
/// pipes to programs say nothing about answers.
const REPLACED: &[&str] = &["cache_dir", "pid_filename", "access_log", "cache_access_log"];

/// A port that is rarely one of `Safe_ports`.
const PORT_DENIED: u16 = 25;

/// The plan for a file of Squid.
pub(crate) fn squid(original: &Original, toml: &Table, program: &Path) -> Plans {
    let (mut plan, mut upstreams, mut found): (Plan, Upstreams, Found) = Default::default();
    let mut listens: Vec<(SocketAddr, bool)> = Vec::new();
    let mut names_ports = false;
    for (name, text) in files(original) {
        for (line, text) in (1..).zip(text.lines()) {
            let words: Vec<&str> = text.split_whitespace().collect();
            let place = Some((name.clone(), line, line));
            match words[..] {
                ["http_port", port, ref modes @ ..] => {
                    let kind = modes.iter().any(|mode| ["accel", "vhost"].contains(mode));
                    let is_other = modes.iter().any(|mode| {
                        ["intercept", "transparent", "tproxy", "ssl-bump"].contains(mode)
                    });
                    let (host, port) = port.rsplit_once(':').unwrap_or(("", port));
                    let address = host.parse().unwrap_or(Ipv4Addr::LOCALHOST);
                    let port = port.parse().ok().filter(|_| !is_other);
                    match port.map(|port| (SocketAddr::new(address.into(), port), kind)) {
                        Some(first) if listens.is_empty() => listens.push(first),
                        _ => plan.unasked.push(format!("{name}:{line}: {}", words.join(" "))),
                    }
                }
                ["https_port", ..] => {
                    plan.unasked.push(format!("{name}:{line}: {}", words.join(" ")));
                }
                ["acl", _, "dstdomain" | "srcdomain", ref domains @ ..] => {
                    for domain in domains.iter().filter(|one| !one.starts_with(['-', '"'])) {
                        found.host(domain);
                        if domain.starts_with('.') {
                            found.host(&format!("www{domain}"));
                        }
                    }
                }
                ["acl", _, "dstdom_regex", ref all @ ..] => {
                    all.iter().for_each(|one| found.host(&sample(one)));
                }
                ["acl", _, "urlpath_regex" | "url_regex", ref all @ ..]
                | ["refresh_pattern", ref all @ ..] => {
                    let mut all = all.iter().filter(|one| !one.starts_with('-'));
                    let path = all.next().map(|one| sample(one)).filter(|one| !one.contains("://"));
                    if let Some(path) = path {
                        found.path(&path, false, place);
                    }
                }
                ["acl", _, "port", ..] => names_ports = true,
                ["http_access", _, ref lists @ ..]
                    if lists.iter().any(|list| list.trim_start_matches('!') == "manager") =>
                {
                    found.path("/squid-internal-mgr/menu", false, place);
                }
                ["acl", _, "method", ref methods @ ..] => {
                    let methods = methods.iter().filter(|one| **one != "CONNECT");
                    plan.named.methods.extend(methods.map(|one| (*one).to_owned()));
                }
                ["acl", _, "src", ref networks @ ..] => {
                    plan.named.clients.extend(networks.iter().filter_map(|text| client_of(text)));
                }
                ["cache_peer", host, _, port, ..] => {
                    upstreams.add_host(host, port.parse().unwrap_or(3128));
                }
                ["dns_nameservers", ref servers @ ..] => {
                    upstreams
                        .resolvers
                        .extend(servers.iter().filter_map(|one| one.parse::<Ipv4Addr>().ok()));
                }
                _ => {}
            }
        }
    }
    found.routes(toml);
    if let Some((to, is_accelerator)) = listens.first() {
        plan.bases = found.bases(*to, !is_accelerator, &mut plan.unasked);
        // A port that rules about ports usually deny.
        let mut other = plan.bases.first().filter(|_| names_ports).cloned();
        if let Some(base) = &mut other {
            let host = format!("{}:{PORT_DENIED}", base.host);
            base.path = format!("http://{host}/");
            base.host = host;
            base.is_prefix = false;
        }
        plan.bases.extend(other);
    }
    let all: BTreeSet<SocketAddr> = plan.bases.iter().map(|base| base.to).collect();
    plan.job.listens = all.into_iter().collect();
    let kept = original.text.lines().map(|line| {
        let is_replaced = REPLACED.contains(&line.split_whitespace().next().unwrap_or_default());
        if is_replaced { "\n".to_owned() } else { format!("{line}\n") }
    });
    let own = "pid_filename none\naccess_log none\nshutdown_lifetime 0\npinger_enable off\n";
    let text: String = kept.chain([own.to_owned()]).collect();
    plan.job.files.push((original.path.clone(), text.into_bytes()));
    plan.job.program = Some(program.to_owned());
    let file = original.path.display().to_string();
    plan.job.arguments = ["-N", "-n", "try", "-f", &file].map(str::to_owned).to_vec();
    let written = ["/var/log/squid/x", "/var/spool/squid/x", "/run/squid/x"].map(PathBuf::from);
    (plan, upstreams, Paths { written: written.to_vec(), ..Paths::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Files;

    fn original(text: &str) -> Original {
        Original {
            name: "x".to_owned(),
            path: PathBuf::from("/a/x"),
            text: text.to_owned(),
            files: Files::new(),
        }
    }

    #[test]
    fn texts_of_a_program_count_by_what_is_compared_with_them() {
        let text = "vcl 4.1;
backend a { .host = \"app.internal\"; .port = \"8081\"; .probe = { .url = \"/up\"; } }
# req.url ~ \"^/comment\"
sub vcl_recv {
  if (req.http.host ~ \"^(www\\.)?shop\\.example$\" && req.url ~ \"^/admin/\") { return (pass); }
  if (req.http.Cookie ~ \"(^|; )PHPSESSID=\" || req.method == \"BAN\") { return (pass); }
  set req.http.X-Kind = {\"long\"};
}";
        let (plan, upstreams, _) = vcl(&original(text), &Table::new(), Path::new("/none"));
        let paths: Vec<&str> = plan.bases.iter().map(|base| base.path.as_str()).collect();
        assert_eq!(paths, ["/", "/", "/admin/"]);
        assert_eq!(plan.bases[2].host, "www.shop.example");
        assert_eq!(plan.bases[2].place, Some(("x".to_owned(), 5, 11)));
        assert!(plan.named.cookies.contains("PHPSESSID"), "{:?}", plan.named);
        assert!(plan.named.methods.contains("BAN"), "{:?}", plan.named);
        assert!(upstreams.ports.contains(&8081), "{upstreams:?}");
        for broken in ["\"", "{\"", "/*", "\"\"\"", "req.url ~ \"é", "{"] {
            vcl(&original(broken), &Table::new(), Path::new("/none"));
        }
    }

    #[test]
    fn ports_and_paths_that_no_request_is_for_are_listed() {
        let paths: String =
            (0..PATHS_MAX).map(|n| format!("acl p urlpath_regex ^/{n}$\n")).collect();
        let text = format!("http_port 3128\nhttp_port 3129\nhttps_port 3130 cert=/x\n{paths}");
        let (plan, ..) = squid(&original(&text), &Table::new(), Path::new("/none"));
        assert_eq!(plan.unasked, ["x:2: http_port 3129", "x:3: https_port 3130 cert=/x", "/39"]);
    }

    /// Ports that rules deny and the pages of managers were not asked for.
    #[test]
    fn rules_about_ports_and_managers_are_tried() {
        for (mode, start) in [("", "http://try.example"), (" accel vhost", "")] {
            let text = format!(
                "http_port 3128{mode}\nacl Safe_ports port 80\nhttp_access deny !Safe_ports\n\
                 http_access deny manager\n"
            );
            let (plan, ..) = squid(&original(&text), &Table::new(), Path::new("/none"));
            let paths: Vec<&str> = plan.bases.iter().map(|base| base.path.as_str()).collect();
            let page = format!("{start}/squid-internal-mgr/menu");
            assert_eq!(paths, [&*format!("{start}/"), &page, "http://try.example:25/"]);
            assert_eq!(plan.bases[2].host, "try.example:25");
        }
    }

    #[test]
    fn a_forward_proxy_gets_whole_urls() {
        let text = "http_port 3128\nacl bad dstdomain .ads.example\nacl lan src 10.1.0.0/16\n\
                    cache_dir ufs /var/spool/squid 100 16 256\nhttp_access deny bad\n";
        let (plan, ..) = squid(&original(text), &Table::new(), Path::new("/none"));
        let paths: Vec<&str> = plan.bases.iter().map(|base| base.path.as_str()).collect();
        let hosts = ["http://ads.example/", "http://www.ads.example/", "http://try.example/"];
        assert_eq!(paths, hosts);
        assert!(plan.named.clients.contains(&Ipv4Addr::new(10, 1, 0, 1)));
        let text = String::from_utf8(plan.job.files[0].1.clone()).unwrap();
        assert!(!text.contains("cache_dir") && text.contains("http_access deny bad"), "{text}");
    }
}
