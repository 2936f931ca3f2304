//! `upstream` blocks, and the upstreams that locations use.
//!
//! In our file, the Host sent to servers, time-outs and TLS belong to the upstream. So locations
//! that differ in one of these settings get upstreams with different names.

use std::collections::HashMap;

use super::blocks::{Directive, named};
use super::scope::Scope;
use super::table::time;
use imported::note::{Fate, Notes, Place};
use imported::table::Becomes::{self, Carried, Different, Left, Nothing, Text};
use imported::tree::{Section, Tree, Value, timeout};

/// The upstreams that were written, each with a text that identifies it.
#[derive(Debug, Default)]
pub(crate) struct Upstreams<'d> {
    /// Blocks by name.
    blocks: HashMap<&'d str, &'d Directive>,
    /// Names, by what identifies the upstream.
    written: HashMap<String, String>,
    /// All names, with the last number that was appended to each name.
    numbers: HashMap<String, usize>,
}

/// What a location asks of its upstream.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'s> {
    pub(crate) at: Place,
    /// `http`, `https`, or `grpc` for HTTP/2 in the clear.
    pub(crate) scheme: String,
    pub(crate) authority: String,
    /// `None`: the client's.
    pub(crate) host: Option<String>,
    /// The fields about the client.
    pub(crate) forwarded: Option<&'static str>,
    pub(crate) scope: &'s Scope<'s>,
}

impl<'d> Upstreams<'d> {
    /// With the blocks of `http`. The first of a name is used.
    pub(crate) fn of(http: &'d [Directive]) -> Upstreams<'d> {
        let mut upstreams = Upstreams::default();
        for block in named(http, "upstream") {
            upstreams.blocks.entry(block.word(0)).or_insert(block);
        }
        upstreams
    }

    /// Whether a location uses the block of this name.
    pub(crate) fn uses(&self, name: &str) -> bool {
        self.numbers.contains_key(name)
    }

    /// The name of an upstream with the wanted settings. Writes the upstream if there is none.
    /// Returns `None` if no server of it is carried.
    pub(crate) fn name(
        &mut self,
        wanted: &Wanted<'_>,
        tree: &mut Tree,
        notes: &mut Notes,
    ) -> Option<String> {
        let name = wanted.authority.clone();
        let mut section = Section::new("upstream");
        section.set("name", name.clone(), &wanted.at);
        section.set_some("host", wanted.host.clone(), &wanted.at);
        section.set_some("forwarded", wanted.forwarded, "proxy_set_header");
        let (scheme, protocol) = match wanted.scheme.as_str() {
            "https" => ("https", None),
            "grpcs" => ("https", Some("h2")),
            "grpc" => ("http", Some("h2c")),
            _ => ("http", None),
        };
        section.set_some("protocol", protocol, &wanted.at);
        match self.blocks.get(wanted.authority.as_str()) {
            Some(block) => servers(&mut section, block, scheme, notes),
            None => {
                let url = match wanted.authority.starts_with("unix:") {
                    true => wanted.authority.clone(),
                    false => format!("{scheme}://{}", wanted.authority),
                };
                section.below("upstream.server").set("url", url, &wanted.at);
            }
        }
        if !section.has_below("upstream.server") {
            return None;
        }
        settings(&mut section, wanted.scope, scheme);
        // Everything but the name and the lines identifies it.
        let identity = format!("{:?}", (&wanted.authority, section.shape()));
        if let Some(name) = self.written.get(&identity) {
            return Some(name.clone());
        }
        let mut unique = name.clone();
        let mut number = self.numbers.get(&name).copied().unwrap_or(1);
        while self.numbers.contains_key(&unique) {
            number += 1;
            unique = format!("{name}-{number}");
        }
        self.numbers.insert(unique.clone(), 1);
        self.numbers.insert(name, number);
        section.set("name", unique.clone(), &wanted.at);
        self.written.insert(identity, unique.clone());
        tree.add(section);
        Some(unique)
    }
}

/// The servers of a block, and how requests are balanced.
fn servers(section: &mut Section, block: &Directive, scheme: &str, notes: &mut Notes) {
    let mut urls: Vec<String> = Vec::new();
    for directive in block.inner() {
        let at = &directive.at;
        let becomes = match (directive.name.as_str(), directive.word(0)) {
            ("server", address) => {
                // The port of a server in a block is 80, for any scheme.
                let bare = address.rsplit(']').next().is_some_and(|end| !end.contains(':'));
                let port = if bare { ":80" } else { "" };
                let is_unix = scheme == "http" && address.starts_with("unix:/");
                let url = match is_unix {
                    true => address.to_owned(),
                    false => format!("{scheme}://{address}{port}"),
                };
                if (address.starts_with("unix:") && !is_unix) || address.contains('$') {
                    Left("a server has a host and a port, or an absolute path without TLS")
                } else if urls.contains(&url) {
                    Left("another line has the same server already")
                } else {
                    urls.push(url.clone());
                    server(section, directive, url)
                }
            }
            ("least_conn", _) => {
                section.set("balance", "least_outstanding", at);
                Carried
            }
            ("hash", "$request_uri" | "$scheme$proxy_host$request_uri" | "$uri") => {
                section.set("balance", "hash", at);
                Carried
            }
            ("hash" | "ip_hash", by) => match hash_by(by) {
                Some(by) => {
                    section.set("balance", "hash", at);
                    section.set("hash_by", by, at);
                    // nginx moves no client because its server has more requests than others.
                    section.set("load_percent_max", Value::Count(0), at);
                    Carried
                }
                None => Left("a hash is of the URL, the client's address, a field or a cookie"),
            },
            ("random" | "least_time", _) => {
                Left("requests are balanced in turn, by requests in flight, or by a hash")
            }
            ("keepalive" | "keepalive_timeout" | "keepalive_requests" | "keepalive_time", _) => {
                Nothing("idle connections are kept (limits.upstream_idle)")
            }
            ("zone", _) => Nothing("all cores share the state of servers"),
            _ => Left("this directive is not known here"),
        };
        notes.became(at, &becomes);
    }
    notes.carried(&block.at);
}

/// What a hash is of: `ip_hash` has no word.
fn hash_by(variable: &str) -> Option<String> {
    match variable {
        "" | "$remote_addr" | "$binary_remote_addr" => Some("client".to_owned()),
        _ => {
            let (kind, name) = variable.strip_prefix('$')?.split_once('_')?;
            let is_name =
                |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            match kind {
                "http" if is_name(name) => Some(format!("field:{}", name.replace('_', "-"))),
                "cookie" if is_name(name) => Some(format!("cookie:{name}")),
                _ => None,
            }
        }
    }
}

fn server(section: &mut Section, directive: &Directive, url: String) -> Becomes {
    let at = &directive.at;
    if directive.words.iter().any(|word| word == "down") {
        return Nothing("a server that is down is left out");
    }
    let mut unknown: Vec<&str> = Vec::new();
    let mut ejection: [Option<Value>; 2] = [None, None];
    let host = url.split_once("://").map_or("", |(_, host)| host);
    let is_name = host.starts_with(|first: char| first.is_ascii_alphabetic());
    let server = section.below("upstream.server");
    server.set("url", url, at);
    for word in directive.words.iter().skip(1) {
        let (option, value) = word.split_once('=').unwrap_or((word, ""));
        let number = value.parse::<u64>().ok();
        match (option, number) {
            ("weight", Some(weight)) if (1..=1000).contains(&weight) => {
                server.set("weight", Value::Count(weight), at);
            }
            ("backup", _) => server.set("backup", true, at),
            ("max_conns", Some(max)) if (1..=1_000_000).contains(&max) => {
                server.set("outstanding_max", Value::Count(max), at);
            }
            ("max_conns", Some(0)) => {}
            // All addresses of a name are servers in nginx.
            ("resolve", _) if is_name => server.set("addresses", "all", at),
            ("resolve", _) => {}
            ("max_fails", Some(fails)) if fails <= 1_000_000 => {
                ejection[0] = Some(Value::Count(fails));
            }
            ("fail_timeout", _) => match timeout(time(value)) {
                Some(time) => ejection[1] = Some(time),
                None => unknown.push(word),
            },
            _ => unknown.push(word),
        }
    }
    let mut differs = false;
    for (key, value) in ["failures", "base"].into_iter().zip(ejection) {
        let Some(value) = value else { continue };
        let there = section.below("upstream.ejection");
        match there.get(key) {
            None => there.set(key, value, at),
            Some(other) => differs |= *other != value,
        }
    }
    match unknown.is_empty() {
        false => Text(Fate::NotCarried, format!("without {}", unknown.join(", "))),
        true if differs => Different("one number of failures is for all servers of the upstream"),
        true => Carried,
    }
}

/// Time-outs, retries and TLS.
fn settings(section: &mut Section, scope: &Scope<'_>, scheme: &str) {
    for (name, key) in [
        ("proxy_connect_timeout", "connect"),
        ("proxy_read_timeout", "first_byte"),
        ("proxy_read_timeout", "idle"),
    ] {
        if let Some(one) = scope.get(name)
            && let Some(time) = timeout(time(one.word(0)))
        {
            section.below("upstream.timeouts").set(key, time, &one.at);
        }
    }
    let tries = scope.get("proxy_next_upstream_tries");
    let tries = tries.and_then(|tries| Some((tries.word(0).parse::<u64>().ok()?, &tries.at)));
    if let Some(next) = scope.get("proxy_next_upstream").filter(|next| next.word(0) == "off") {
        section.below("upstream.retries").set("max", Value::Count(0), &next.at);
    } else if let Some((tries, at)) = tries.filter(|(tries, _)| (1..=101).contains(tries)) {
        section.below("upstream.retries").set("max", Value::Count(tries - 1), at);
    }
    if scheme == "https" {
        let tls = section.below("upstream.tls");
        if !scope.is("proxy_ssl_verify", "on") {
            tls.set("verify", false, "nginx's default: proxy_ssl_verify off");
        } else if let Some(ca) = scope.get("proxy_ssl_trusted_certificate") {
            tls.set("ca", ca.word(0), &ca.at);
        }
        if let Some(name) = scope.get("proxy_ssl_name").filter(|name| !name.word(0).contains('$')) {
            tls.set("server_name", name.word(0), &name.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{has, imported, lacks};
    use crate::{Fate, Source};

    #[test]
    fn servers_at_unix_sockets_all_addresses_and_hashes() {
        for (by, line) in [
            ("ip_hash", "hash_by = \"client\""),
            ("hash $binary_remote_addr consistent", "hash_by = \"client\""),
            ("hash $http_x_user", "hash_by = \"field:x-user\""),
            ("hash $cookie_session", "hash_by = \"cookie:session\""),
        ] {
            let text = format!(
                "http {{ upstream app {{ {by};\nserver unix:/run/app.sock;\n\
                 server app.example:8000 resolve; server 127.0.0.1:1 resolve; }}\n\
                 server {{ listen 127.0.0.1:80; location / {{ proxy_pass http://app; }} }} }}\n"
            );
            let imported = imported(Source::Nginx, "nginx.conf", &text, false);
            assert!(imported.notes.iter().all(|note| note.fate < Fate::Different), "{by}");
            has(&imported, line);
            has(&imported, "load_percent_max = 0");
            has(&imported, "url = \"unix:/run/app.sock\"");
            has(
                &imported,
                "url = \"http://app.example:8000\"  # nginx.conf:3\naddresses = \"all\"",
            );
            lacks(&imported, "127.0.0.1:1\"  # nginx.conf:3\naddresses");
        }
        let text = "http { upstream app { hash $request_time; server 127.0.0.1:1; }\n\
                    server { listen 127.0.0.1:80; location / { proxy_pass http://app; } } }\n";
        lacks(&imported(Source::Nginx, "nginx.conf", text, false), "balance");
    }
}
