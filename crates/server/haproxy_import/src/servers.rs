//! `server` and the settings of a backend: an upstream.

use std::collections::HashSet;

use imported::note::Fate;
use imported::table::Becomes::{self, Carried, Different, Left, Nothing, Text};
use imported::tree::{Section, Value, authority, timeout};

use crate::lines::{Line, is_unknown, time};
use crate::{Haproxy, Proxy};

/// Options that change nothing here, and such options with a value.
const NOTHING: &str = "\
    check check-ssl no-check non-stick tfo no-tfo no-send-proxy enabled agent-check \
    no-backup no-ssl no-sslv3 no-tlsv10 no-tlsv11 force-tlsv12 no-verifyhost no-check-ssl \
    no-tls-tickets allow-0rtt no-ssl-reuse";
const WITH_VALUE: &str = "\
    resolvers resolve-prefer resolve-net resolve-opts init-addr pool-max-conn \
    pool-purge-delay pool-low-conn ciphers ciphersuites id max-reuse ssl-min-ver fastinter \
    downinter on-marked-down on-marked-up agent-inter minconn maxqueue observe error-limit \
    on-error agent-port agent-addr source port addr namespace track check-alpn check-sni \
    check-proto ssl-max-ver verifyhost alpn curves set-proxy-v2-tlv-fmt log-bufsize ws";
/// Of these, those that would change something.
const LEFT: &str = "minconn maxqueue observe on-error source namespace port addr agent-check track";

impl Haproxy<'_, '_> {
    /// Writes the upstream of a backend. Returns whether it has a server.
    pub(crate) fn upstream(
        &mut self,
        proxy: &Proxy<'_>,
        forwarded: bool,
        host: Option<&str>,
    ) -> bool {
        let mut section = Section::new("upstream");
        section.set("name", proxy.name(), proxy.place());
        section.set_some("host", host, "http-request set-header Host");
        section.set_some("forwarded", forwarded.then_some("x_forwarded_for"), "option forwardfor");
        if let Some(line) = proxy.get("balance") {
            let becomes = balance(&mut section, line);
            self.input.notes.became(&line.at, &becomes);
        }
        let defaults = proxy.all("default-server").flat_map(|line| line.rest(1)).cloned();
        let defaults: Vec<String> = defaults.collect();
        proxy.all("default-server").for_each(|line| self.input.notes.carried(&line.at));
        let mut urls = HashSet::new();
        let is_sticky = proxy.get("cookie").is_some_and(is_inserted);
        let is_server = |line: &&&Line| matches!(line.word(0), "server" | "server-template");
        for line in proxy.lines.iter().filter(is_server) {
            let becomes = self.server(&mut section, line, (&defaults, is_sticky), &mut urls);
            self.input.notes.became(&line.at, &becomes);
        }
        if urls.is_empty() || proxy.get("disabled").is_some() {
            return false;
        }
        let times =
            [("connect", &["connect"][..]), ("server", &["first_byte", "idle"]), ("queue", &[])];
        for (name, keys) in times {
            let Some(line) = proxy.get(&format!("timeout.{name}")) else { continue };
            let Some(value) = timeout(time(line.word(2))) else {
                self.input.notes.left(&line.at, "a time-out is from a millisecond to a day");
                continue;
            };
            if name == "queue" {
                section.below("upstream.queue").set("timeout", value.clone(), &line.at);
            }
            for key in keys {
                section.below("upstream.timeouts").set(key, value.clone(), &line.at);
            }
            self.input.notes.carried(&line.at);
        }
        if let Some(line) = proxy.get("retries")
            && let Ok(number) = line.word(1).parse::<u64>()
        {
            section.below("upstream.retries").set("max", Value::Count(number.min(100)), &line.at);
            self.input.notes.carried(&line.at);
        }
        self.health(&mut section, proxy);
        if let Some(line) = proxy.get("cookie") {
            let becomes = sticky(&mut section, line);
            self.input.notes.became(&line.at, &becomes);
        }
        self.tree.add(section);
        true
    }

    fn server(
        &mut self,
        section: &mut Section,
        line: &Line,
        (defaults, is_sticky): (&[String], bool),
        urls: &mut HashSet<String>,
    ) -> Becomes {
        let is_template = line.word(0) == "server-template";
        let (at, place) = (&line.at, if is_template { line.word(3) } else { line.word(2) });
        let is_named = |name: &str| {
            let own = line.words.iter().rposition(|word| word == name);
            own.is_some() || defaults.iter().any(|word| word == name)
        };
        let place = place.trim_start_matches("ipv4@").trim_start_matches("ipv6@");
        let scheme = if is_named("ssl") { "https" } else { "http" };
        let url = match place.strip_prefix("unix@").unwrap_or(place) {
            path if path.starts_with('/') => format!("unix:{path}"),
            place => match place.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()) {
                Some((host, port)) if !host.is_empty() && !host.contains('@') => {
                    format!("{scheme}://{}:{port}", authority(host))
                }
                _ => return Left("a server has a host and a port, or a path"),
            },
        };
        if is_unknown(&url) || line.may_be_absent {
            return Left("it depends on the environment");
        }
        if line.has("disabled") {
            return Nothing("a server that is disabled is left out");
        }
        if !urls.insert(url.clone()) {
            return Left("another line has the same server already");
        }
        let is_host = url.bytes().any(|b| b.is_ascii_alphabetic()) && !url.starts_with("unix:");
        let mut left = Vec::new();
        let mut differs = "";
        let server = section.below("upstream.server");
        server.set("url", url, at);
        if is_template && is_host {
            server.set("addresses", "all", at);
        }
        let (mut tls, mut above) = (Vec::new(), Vec::new());
        let own = line.rest(if is_template { 5 } else { 3 });
        let mut words = defaults.iter().chain(own);
        while let Some(word) = words.next() {
            let is = |names: &str| names.split_whitespace().any(|one| one == word);
            let of_check = matches!(word.as_str(), "inter" | "rise" | "fall");
            let valued = "weight maxconn cookie verify sni ca-file crt proto slowstart backlog";
            let value = match is(valued) || is(WITH_VALUE) || of_check {
                true => words.next().map_or("", String::as_str),
                false => "",
            };
            let number = value.parse::<u64>().ok();
            match (word.as_str(), number) {
                ("weight", Some(weight @ 1..=1000)) => {
                    server.set("weight", Value::Count(weight), at)
                }
                ("maxconn", Some(max @ 1..=1_000_000)) => {
                    server.set("outstanding_max", Value::Count(max), at);
                }
                ("backup", _) => server.set("backup", true, at),
                ("cookie", _) if is_sticky => server.set("id", value, at),
                ("cookie", _) => {}
                ("ssl", _) => {}
                ("verify", _) if value == "none" => tls.push(("verify", Value::from(false))),
                ("verify", _) => differs = "the certificate must have the name of the server, too",
                ("ca-file", _) => tls.push(("ca", Value::from(self.under("ca-base", value)))),
                ("sni" | "verifyhost", _) if value.starts_with("str(") || word == "verifyhost" => {
                    let name = value.trim_start_matches("str(").trim_end_matches(')');
                    tls.push(("server_name", Value::from(name)));
                }
                ("send-proxy", _) => above.push(("proxy_header", "v1")),
                ("send-proxy-v2", _) => above.push(("proxy_header", "v2")),
                ("alpn", _) if value.contains("h2") && scheme == "https" => {
                    above.push(("protocol", if value == "h2" { "h2" } else { "auto" }));
                }
                ("proto", _) if value == "h2" => {
                    above.push(("protocol", if scheme == "https" { "h2" } else { "h2c" }));
                }
                _ if of_check => {}
                _ if is(LEFT) || !is(NOTHING) && !is(WITH_VALUE) => left.push(word.clone()),
                _ => {}
            }
        }
        for (key, value) in above {
            section.set(key, value, at);
        }
        for (key, value) in tls.into_iter().filter(|_| scheme == "https") {
            if !section.below("upstream.tls").set_once(key, value, at) {
                left.push(key.to_owned());
            }
        }
        match left.is_empty() {
            true => Becomes::differs(differs),
            false => Text(Fate::NotCarried, format!("without its options {}", left.join(", "))),
        }
    }

    /// `option httpchk`. A check without it only connects, and a server that accepts no connection
    /// is left out after a few requests, which go to another server.
    fn health(&mut self, section: &mut Section, proxy: &Proxy<'_>) {
        let Some(line) = proxy.get("option.httpchk") else { return };
        let servers: Vec<&Line> = proxy.all("server").chain(proxy.all("default-server")).collect();
        if !servers.iter().any(|server| server.has("check")) {
            return self.input.notes.nothing(&line.at, "no server is checked");
        }
        let health = section.below("upstream.health");
        let (method, path) = match line.rest(2) {
            [] => ("OPTIONS", "/"),
            [path] => ("OPTIONS", path.as_str()),
            [method, path, ..] => (method.as_str(), path.as_str()),
        };
        let send = proxy.get("http-check.send");
        let of_send = |name: &str| send.and_then(|send| send.after(name));
        let method = of_send("meth").unwrap_or(method);
        health.set("path", of_send("uri").unwrap_or(path), &line.at);
        let host = line.rest(4).join(" ");
        let host = host.rsplit_once("Host:").map(|(_, host)| host.trim());
        health.set_some("host", of_send("Host").or(of_send("host")).or(host), &line.at);
        for (name, key) in [("inter", "interval"), ("timeout", "timeout")] {
            let value = match name {
                "timeout" => proxy.get("timeout.check").map(|line| line.word(2)),
                _ => servers.iter().find_map(|server| server.after(name)),
            };
            health.set_some(key, timeout(value.and_then(time)), &line.at);
        }
        for key in ["rise", "fall"] {
            let value = servers.iter().find_map(|server| server.after(key)?.parse().ok());
            health.set_some(key, value.map(Value::Count), &line.at);
        }
        let mut becomes = match method {
            "GET" => Carried,
            _ => Different("servers are asked by GET"),
        };
        if let Some(expect) = proxy.get("http-check.expect") {
            let status: Option<u64> = expect.word(3).parse().ok();
            match status.filter(|_| expect.word(2) == "status") {
                Some(status) => {
                    health.set("status_min", Value::Count(status), &expect.at);
                    health.set("status_max", Value::Count(status), &expect.at);
                    self.input.notes.carried(&expect.at);
                }
                None => becomes = Left("a check counts its status, from 200 to 399"),
            }
        }
        self.input.notes.became(&line.at, &becomes);
        let others = [send, proxy.get("timeout.check")];
        others.into_iter().flatten().for_each(|one| self.input.notes.carried(&one.at));
    }
}

fn balance(section: &mut Section, line: &Line) -> Becomes {
    let at = &line.at;
    let name = line.word(1);
    let by = match name.split('(').next().unwrap_or_default() {
        "roundrobin" | "static-rr" => return Carried,
        "leastconn" => {
            section.set("balance", "least_outstanding", at);
            return Carried;
        }
        "source" => "client".to_owned(),
        "uri" => "url".to_owned(),
        "hdr" => format!("field:{}", name.trim_start_matches("hdr(").trim_end_matches(')')),
        "random" => return Different("requests are balanced in turn"),
        _ => return Left("requests are balanced in turn, by requests in flight, or by a hash"),
    };
    section.set("balance", "hash", at);
    section.set("hash_by", by, at);
    section.set("load_percent_max", Value::Count(0), at);
    Different("each of them has one server, but not the one that HAProxy would choose")
}

fn is_inserted(line: &Line) -> bool {
    line.has("insert") && !line.has("preserve") && !line.has("dynamic")
}

/// `cookie NAME insert`.
fn sticky(section: &mut Section, line: &Line) -> Becomes {
    if !is_inserted(line) {
        return Left("a cookie of the server is not read; see [upstream.sticky]");
    }
    let sticky = section.below("upstream.sticky");
    sticky.set("cookie", line.word(1), &line.at);
    sticky.set_some("domain", line.after("domain"), &line.at);
    sticky.set("secure", line.has("secure"), &line.at);
    sticky.set("http_only", line.has("httponly"), &line.at);
    Different("the cookie has SameSite=Lax, responses with it are private, and upstreams get it")
}
