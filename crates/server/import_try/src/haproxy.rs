//! What a file of HAProxy suggests: hosts, paths, fields and methods in its comparisons, and the
//! listeners of the imported file.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::inputs::{Original, Paths, Upstreams};
use crate::nginx::client_of;
use crate::plan::{Base, Plan};
use crate::sample::sample;
use crate::texts::{Found, Plans};

/// Listeners that are asked, at most.
const LISTENERS_MAX: usize = 6;
/// Bases, at most: two requests go to each before any other.
const BASES_MAX: usize = 60;

/// Lines that say nothing about answers, and that the sandbox replaces: it has one user, and few
/// descriptors.
const REPLACED: &[&str] = &[
    "user",
    "group",
    "uid",
    "gid",
    "chroot",
    "daemon",
    "pidfile",
    "maxconn",
    "ulimit-n",
    "nbproc",
    "nbthread",
    "cpu-map",
    "master-worker",
    "log",
    "server-state-base",
    "server-state-file",
    "load-server-state-from-file",
];

/// The plan for a file of HAProxy.
pub(crate) fn plan(original: &Original, toml: &Table, program: &Path) -> Plans {
    let (mut plan, mut upstreams, mut found): (Plan, Upstreams, Found) = Default::default();
    let mut paths = Paths::default();
    let mut bases = std::collections::HashMap::new();
    let mut is_userlist = false;
    let mut kept = String::new();
    for (number, line) in (1..).zip(original.text.lines()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let first = words.first().copied().unwrap_or_default();
        is_userlist = first == "userlist" || is_userlist && line.starts_with([' ', '\t']);
        let is_socket = words.starts_with(&["stats", "socket"]);
        let is_replaced = REPLACED.contains(&first) && !is_userlist || is_socket;
        if matches!(first, "server" | "server-template" | "default-server") {
            // The origin starts after HAProxy, so a server that is checked would be down.
            let words = line.split([' ', '\t', '\r']).filter(|word| *word != "check");
            kept.extend(words.map(|word| format!("{word} ")));
        } else if !is_replaced {
            kept.push_str(line.trim_end_matches('\r'));
        }
        kept.push('\n');
        let place = Some((original.name.clone(), number, number));
        match words[..] {
            [name @ ("crt-base" | "ca-base"), path] => _ = bases.insert(name, path),
            ["nameserver", _, address] => {
                let address = address.rsplit('@').next().unwrap_or_default();
                let ip = address.split(':').next().unwrap_or_default().parse::<Ipv4Addr>();
                upstreams.resolvers.extend(ip);
            }
            ["server" | "server-template", _, _, ..] => {
                let at = if first == "server" { 2 } else { 3 };
                let place = words.get(at).copied().unwrap_or_default();
                let place = place.rsplit_once('@').map_or(place, |(_, rest)| rest);
                match place.starts_with('/') {
                    true => upstreams.add_socket(place),
                    false => upstreams.add_host(place, 80),
                }
            }
            _ => {}
        }
        if matches!(first, "monitor-uri") || words.starts_with(&["stats", "uri"]) {
            let path = words.last().copied().unwrap_or_default();
            found.path(path, false, place.clone());
        }
        for pair in words.windows(2) {
            let base = |name: &str| bases.get(name).copied().unwrap_or("/");
            match *pair {
                ["crt", path] => paths.bundles.push(Path::new(base("crt-base")).join(path)),
                ["ca-file", path] => {
                    paths.certificates.push((Path::new(base("ca-base")).join(path), true));
                }
                ["-f", path] => file(path, "", &mut plan, &mut paths),
                _ => {}
            }
        }
        if matches!(first, "errorfile") {
            let page = "HTTP/1.0 503 Service Unavailable\r\n\r\n";
            file(words.last().copied().unwrap_or_default(), page, &mut plan, &mut paths);
        }
        compared(&words, place, &mut found, &mut plan);
    }
    for bundle in &mut paths.bundles {
        // A directory has one certificate.
        let is_file = bundle.extension().is_some();
        if !is_file {
            bundle.push("CERTIFICATE.pem");
        }
    }
    let listeners = toml.get("listen").and_then(Value::as_array).into_iter().flatten();
    for listener in listeners {
        let text = listener.get("address").and_then(Value::as_str).unwrap_or_default();
        let address = text.replace("0.0.0.0", "127.0.0.1").replace("[::]", "127.0.0.1");
        let is_plain = listener.get("proxy_from").is_none();
        let address = address.parse::<SocketAddr>().ok().filter(|_| is_plain);
        let Some(to) = address.filter(|_| plan.job.listens.len() < LISTENERS_MAX) else {
            plan.unasked.push(text.to_owned());
            continue;
        };
        plan.job.listens.push(to);
        let tls = listener.get("tls").is_some();
        let own = found.clone().bases(to, false, &mut plan.unasked);
        plan.bases.extend(own.into_iter().map(|base| Base { tls, ..base }));
    }
    let rest = plan.bases.split_off(plan.bases.len().min(BASES_MAX));
    plan.unasked.extend(rest.iter().map(Base::shown));
    plan.job.files.push((original.path.clone(), kept.into_bytes()));
    plan.job.program = Some(program.to_owned());
    let file = original.path.display().to_string();
    plan.job.arguments = ["-db", "-f", &file].map(str::to_owned).to_vec();
    (plan, upstreams, paths)
}

/// A file that is read. Another machine's has this content.
fn file(path: &str, content: &str, plan: &mut Plan, paths: &mut Paths) {
    let path = PathBuf::from(path);
    if path.exists() {
        paths.read.push(path);
    } else if path.is_absolute() {
        plan.job.files.push((path, content.as_bytes().to_vec()));
    }
}

/// Takes the values of a comparison for what they are compared with.
fn compared(words: &[&str], place: Option<crate::job::Place>, found: &mut Found, plan: &mut Plan) {
    let is_fetch = |word: &&str| {
        word.contains(['(', '_']) || matches!(*word, "path" | "src" | "method" | "url" | "base")
    };
    let mut fetch = "";
    let mut skips = false;
    for word in words {
        let is_end = matches!(*word, "if" | "unless" | "{" | "}" | "or" | "||");
        let name = word.split(',').next().unwrap_or_default();
        let known = ["path", "url", "hdr", "req.", "base", "src", "method", "cook", "urlp", "fhdr"];
        if std::mem::take(&mut skips) {
            continue;
        } else if is_end {
            fetch = "";
        } else if is_fetch(&name) && known.iter().any(|start| name.starts_with(start)) {
            fetch = name;
            let argument = name.split_once('(').map_or("", |(_, rest)| rest.trim_end_matches(')'));
            if name.contains("cook") && !argument.is_empty() {
                plan.named.cookies.insert(argument.to_owned());
            } else if name.contains("urlp") || name.contains("url_param") {
                plan.named.arguments.insert(argument.to_owned());
            }
        } else if matches!(*word, "-m" | "-f") {
            skips = true;
        } else if !fetch.is_empty() && !word.starts_with('-') {
            let value = word.trim_matches('"').replace("\\ ", " ");
            let value = if fetch.contains("_reg") { sample(&value) } else { value };
            let (name, argument) = fetch.split_once('(').unwrap_or((fetch, ""));
            let argument = argument.trim_end_matches(')').to_ascii_lowercase();
            match name.trim_start_matches("req.").split('_').next().unwrap_or_default() {
                "path" | "url" => found.path(&value, name.ends_with("_beg"), place.clone()),
                "hdr" | "fhdr" if argument == "host" => found.host(&value),
                "hdr" | "fhdr" if !argument.is_empty() && argument != "cookie" => {
                    plan.named.fields.insert((argument, value));
                }
                "src" => plan.named.clients.extend(client_of(&value)),
                "method" => _ = plan.named.methods.insert(value),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_and_servers_become_requests() {
        let text = "global\n user haproxy\n maxconn 99999\n crt-base /certs\n\
                    frontend f\n bind :80 ssl crt a.pem\n acl a path_beg -i /api /v1\n\
                    http-request deny if { hdr(X-Kind) -m str odd } or { method DELETE }\n\
                    use_backend b if { hdr(host) -i shop.example } { cook(sid) -m found }\n\
                    backend b\n server s1 10.0.0.1:8081 check\n server s2 unix@/run/app.sock\n";
        let original = Original {
            name: "x".to_owned(),
            path: PathBuf::from("/a/x"),
            text: text.to_owned(),
            files: crate::words::Files::new(),
        };
        let toml = "[[listen]]\naddress = \"0.0.0.0:80\"\n[listen.tls]\n".parse().unwrap();
        let (plan, upstreams, paths) = plan(&original, &toml, Path::new("/none"));
        let has = |path: &str, host: &str| {
            plan.bases.iter().any(|base| base.path == path && base.host == host && base.tls)
        };
        assert!(has("/api", "shop.example") && has("/", "try.example"), "{:?}", plan.bases);
        assert!(plan.named.fields.contains(&("x-kind".to_owned(), "odd".to_owned())));
        assert!(plan.named.methods.contains("DELETE") && plan.named.cookies.contains("sid"));
        assert!(upstreams.ports.contains(&8081) && upstreams.sockets.len() == 1);
        assert_eq!(paths.bundles, [PathBuf::from("/certs/a.pem")]);
        let kept = String::from_utf8(plan.job.files[0].1.clone()).unwrap();
        assert!(!kept.contains("user haproxy") && kept.contains("server s1"), "{kept}");
    }
}
