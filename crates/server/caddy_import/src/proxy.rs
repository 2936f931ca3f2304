//! `reverse_proxy` and the upstream of `forward_auth`: upstreams of our file.

use std::time::Duration;

use imported::note::Fate;
use imported::route::add;
use imported::table::Becomes::{self, Carried, Different, Left, Nothing, Text, Unprotected};
use imported::tree::{Section, Value, authority, timeout};

use crate::Caddy;
use crate::blocks::Directive;
use crate::fields::{self, Change};

/// Where requests go, and what is changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proxy {
    /// The name of the upstream.
    pub(crate) name: String,
    pub(crate) request: Vec<Change>,
    pub(crate) response: Vec<Change>,
    /// A path that takes the place of the request's.
    pub(crate) rewrite: Option<Directive>,
}

/// Servers of an upstream, at most.
const SERVERS_MAX: usize = 256;

/// An upstream with these words as its servers. Writes the notes of the lines inside.
///
/// # Errors
/// One line: why it is not carried.
pub(crate) fn of(one: &Directive, words: &[String], caddy: &mut Caddy) -> Result<Proxy, String> {
    let mut made = Made { section: Section::new("upstream"), ..Made::default() };
    made.section.set("name", "", &one.at);
    let mut texts: Vec<String> = words.to_vec();
    let mut failed = None;
    for line in &one.inner {
        let becomes = made.line(line, &mut texts);
        if becomes.parts().is_some_and(|(fate, _)| fate == Fate::Unprotected) {
            failed = Some(format!("its {} is not carried", line.name));
        }
        caddy.notes.became(&line.at, &becomes);
        for inner in line.inner.iter().filter(|_| line.name != "transport") {
            caddy.notes.became(&inner.at, &becomes);
        }
        if line.name == "transport" {
            for inner in &line.inner {
                let becomes = made.transport(inner);
                if becomes.parts().is_some_and(|(fate, _)| fate == Fate::Unprotected) {
                    failed = Some(format!("its {} is not carried", inner.name));
                }
                caddy.notes.became(&inner.at, &becomes);
            }
        }
    }
    if let Some(why) = failed {
        return Err(why);
    }
    made.servers(one, &texts)?;
    let Made { mut section, host, mut request, response, rewrite, forwarded, .. } = made;
    section.set_some("host", host, &one.at);
    match forwarded {
        false => section.set("forwarded", "x_forwarded", "as Caddy does"),
        // One of the fields has another value, so all three are written.
        true => {
            let values = [("For", "{remote_host}"), ("Proto", "{scheme}"), ("Host", "{host}")];
            for (name, value) in values {
                let words = [format!("X-Forwarded-{name}"), value.to_owned()];
                let is_there =
                    request.iter().any(|one: &Change| one.name.eq_ignore_ascii_case(&words[0]));
                if let (Ok(change), false) = (fields::change(&words, &one.at), is_there) {
                    request.insert(0, change);
                }
            }
        }
    }
    let name = caddy.upstream(section, &texts);
    Ok(Proxy { name, request, response, rewrite })
}

struct Made {
    section: Section,
    host: Option<String>,
    request: Vec<Change>,
    response: Vec<Change>,
    rewrite: Option<Directive>,
    /// A field that Caddy sends about the client has another value.
    forwarded: bool,
    tls: bool,
    h2c: bool,
    policy: String,
    policy_word: String,
    /// Requests are tried on other servers.
    retries: Option<u64>,
    ejects: bool,
}

impl Default for Made {
    fn default() -> Made {
        Made {
            section: Section::new("upstream"),
            host: None,
            request: Vec::new(),
            response: Vec::new(),
            rewrite: None,
            forwarded: false,
            tls: false,
            h2c: false,
            policy: String::new(),
            policy_word: String::new(),
            retries: None,
            ejects: false,
        }
    }
}

impl Made {
    fn line(&mut self, line: &Directive, texts: &mut Vec<String>) -> Becomes {
        let (at, word) = (&line.at, line.word(0));
        match line.name.as_str() {
            "to" => {
                texts.extend(line.words.iter().cloned());
                Carried
            }
            "header_up" => self.header_up(line),
            "header_down" => match fields::change(&line.words, at) {
                Ok(mut change) => {
                    change.wait();
                    match fields::join(&mut self.response, &[change]) {
                        true => Carried,
                        false => Left("a route changes fewer fields"),
                    }
                }
                Err(becomes) => becomes,
            },
            "lb_policy" => {
                self.policy = word.to_owned();
                self.policy_word = line.word(1).to_owned();
                let known = "random round_robin first least_conn ip_hash client_ip_hash uri_hash \
                             header cookie";
                match (imported::table::is_one(known, word), word) {
                    (false, _) => Left("requests are balanced in turn"),
                    (_, "cookie" | "header" | "ip_hash" | "client_ip_hash" | "uri_hash") => {
                        Different("our hash chooses other servers")
                    }
                    _ => Carried,
                }
            }
            "lb_retries" => {
                self.retries = word.parse().ok();
                Carried
            }
            "lb_try_duration" if word != "0" => {
                self.retries = self.retries.or(Some(1));
                Different("a request is tried on one other server, whatever the time is")
            }
            "lb_try_duration" | "lb_try_interval" => Nothing("another server is tried at once"),
            "health_uri" | "health_path" if word.starts_with('/') => {
                let health = self.section.below("upstream.health");
                health.set("path", word, at);
                for (key, seconds) in [("interval", 30), ("timeout", 5)] {
                    if health.get(key).is_none() {
                        health.set(key, Duration::from_secs(seconds), "Caddy's default");
                    }
                }
                health.set("rise", Value::Count(1), "Caddy's default");
                health.set("fall", Value::Count(1), "Caddy's default");
                Carried
            }
            "health_interval" | "health_timeout" => {
                let key = if line.name == "health_interval" { "interval" } else { "timeout" };
                match timeout(time(word)) {
                    Some(time) => {
                        self.section.below("upstream.health").set(key, time, at);
                        Carried
                    }
                    None => Left("the time is not known here"),
                }
            }
            "health_status" if matches!(word, "2xx" | "200") => {
                Different("any status from 200 to 399 counts as success")
            }
            "max_fails" => match word.parse::<u64>() {
                Ok(fails) if fails > 0 => {
                    self.section.below("upstream.ejection").set("failures", fails, at);
                    Carried
                }
                _ => Left("it is not a number of failures"),
            },
            "fail_duration" => match timeout(time(word)) {
                Some(time) => {
                    self.ejects = true;
                    let ejection = self.section.below("upstream.ejection");
                    ejection.set("base", time, at);
                    if ejection.get("failures").is_none() {
                        ejection.set("failures", Value::Count(1), "Caddy's default");
                    }
                    Different("failures in a row count, and the time doubles")
                }
                None => Nothing("it is off"),
            },
            "flush_interval" | "buffer_requests" | "buffer_responses" | "max_buffer_size"
            | "request_buffers" | "response_buffers" | "stream_timeout" | "stream_close_delay"
            | "verbose_logs" => Nothing("bodies are passed on as they come"),
            "transport" if word == "http" => Carried,
            "dynamic" => self.dynamic(line, texts),
            "rewrite" if line.words.len() == 1 => {
                self.rewrite = Some(line.clone());
                Carried
            }
            "trusted_proxies" => Left(
                "what proxies in front say about the client is dropped: write \
                 listen.trusted_proxies",
            ),
            _ if line.name.starts_with("health_") || line.name.starts_with("unhealthy_") => {
                Left("the check has a path, and two times")
            }
            // They decide what clients get.
            _ => Unprotected("this line is not carried, so all of it is answered with 501"),
        }
    }

    fn transport(&mut self, line: &Directive) -> Becomes {
        let (at, word) = (&line.at, line.word(0));
        let tls = |made: &mut Made, key, value: Value| {
            made.tls = true;
            made.section.below("upstream.tls").set(key, value, at);
            Carried
        };
        match line.name.as_str() {
            "tls" => {
                self.tls = true;
                Carried
            }
            "tls_insecure_skip_verify" => tls(self, "verify", Value::Flag(false)),
            "tls_server_name" if !word.contains('{') => tls(self, "server_name", word.into()),
            "tls_trusted_ca_certs" | "tls_trust_pool" if line.words.len() == 1 => {
                tls(self, "ca", word.into())
            }
            "dial_timeout" | "response_header_timeout" | "read_timeout" | "write_timeout" => {
                let key = match line.name.as_str() {
                    "dial_timeout" => "connect",
                    "response_header_timeout" => "first_byte",
                    _ => "idle",
                };
                match timeout(time(word)) {
                    Some(time) => {
                        self.section.below("upstream.timeouts").set(key, time, at);
                        Carried
                    }
                    None => Left("the time is not known here"),
                }
            }
            "versions" if line.words == ["h2c"] || line.words == ["h2c", "2"] => {
                self.h2c = true;
                Carried
            }
            "versions" => Nothing("upstreams are sent HTTP/1.1, or what they choose"),
            "keepalive"
            | "keepalive_interval"
            | "keepalive_idle_conns"
            | "compression"
            | "keepalive_idle_conns_per_host"
            | "read_buffer"
            | "write_buffer"
            | "max_response_header"
            | "dial_fallback_delay"
            | "expect_continue_timeout"
            | "max_conns_per_host" => Nothing("idle connections are kept (limits.upstream_idle)"),
            "resolvers" => Left("write the name servers in [dns]"),
            _ => Unprotected("this line is not carried, so all of it is answered with 501"),
        }
    }

    fn header_up(&mut self, line: &Directive) -> Becomes {
        let (name, value) = (line.word(0).to_ascii_lowercase(), line.word(1));
        let is_set = line.words.len() == 2 && !name.starts_with(['+', '-', '?', '>']);
        let bare = value.trim_start_matches("{http.request.").trim_start_matches('{');
        let own = |names: &[&str]| names.contains(&bare.trim_end_matches('}'));
        match name.trim_start_matches(['+', '-', '?', '>']) {
            "host" if is_set && value.starts_with('{') => match value {
                "{upstream_hostport}" | "{http.reverse_proxy.upstream.hostport}" => {
                    self.host = Some("{upstream}".to_owned());
                    Carried
                }
                "{http.request.hostport}" | "{hostport}" => Carried,
                "{host}" | "{http.request.host}" => {
                    Different("the client's Host is sent as it is, with its port")
                }
                _ => Unprotected("our file lacks this placeholder"),
            },
            "host" if is_set && !value.contains('{') => {
                self.host = Some(value.to_owned());
                Carried
            }
            "connection" | "upgrade" => {
                Nothing("connections are kept, and websocket is passed on (upgrade.protocols)")
            }
            "x-forwarded-for" if own(&["remote_host", "remote.host"]) => Nothing(SENT),
            "x-forwarded-proto" if own(&["scheme"]) => Nothing(SENT),
            "x-forwarded-host" if own(&["hostport"]) => Nothing(SENT),
            "x-forwarded-host" if own(&["host"]) => Different("it has the port of Host, too"),
            field => match fields::change(&line.words, &line.at) {
                Ok(change) => {
                    let is_client = matches!(
                        field,
                        "x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host"
                    );
                    self.forwarded |= is_client;
                    match fields::join(&mut self.request, &[change]) {
                        true if is_client => Different("X-Forwarded-Host has no port"),
                        true => Carried,
                        false => Unprotected("a route changes fewer fields"),
                    }
                }
                // The client's field must not be believed.
                Err(Left(why)) if is_set && imported::fields::is_free(field) => {
                    let words = [format!("-{}", line.word(0))];
                    let removed = fields::change(&words, &line.at);
                    let is_removed =
                        removed.is_ok_and(|one| fields::join(&mut self.request, &[one]));
                    match is_removed {
                        true => Text(Fate::NotCarried, format!("{why}; the field is removed")),
                        false => Unprotected(why),
                    }
                }
                Err(becomes) => becomes,
            },
        }
    }

    /// `dynamic a NAME PORT` and `dynamic srv NAME`.
    fn dynamic(&mut self, line: &Directive, texts: &mut Vec<String>) -> Becomes {
        match (line.word(0), &line.words[..]) {
            ("srv", [_, name]) if !name.contains('{') => {
                texts.push(format!("srv+http://{name}"));
                Carried
            }
            ("a", [_, name, port]) if !name.contains('{') && port.parse::<u16>().is_ok() => {
                texts.push(format!("all+http://{name}:{port}"));
                Carried
            }
            _ => Unprotected("these servers are not known here"),
        }
    }

    fn servers(&mut self, one: &Directive, texts: &[String]) -> Result<(), String> {
        let mut urls = Vec::new();
        for text in texts {
            self.urls(text, &mut urls)?;
            if urls.len() > SERVERS_MAX {
                return Err(format!("it has more than {SERVERS_MAX} servers"));
            }
        }
        if urls.is_empty() {
            return Err("it has no server".to_owned());
        }
        let many = urls.len() > 1;
        if self.host.as_deref() == Some("{upstream}") {
            let host = urls[0].0.split_once("://").map_or("", |(_, host)| host);
            if many || host.is_empty() {
                return Err("one Host is for all servers".to_owned());
            }
            self.host = Some(host.to_owned());
        }
        let is_first = self.policy == "first";
        for (at, (url, all)) in urls.iter().enumerate() {
            let server = self.section.below("upstream.server");
            server.set("url", url.clone(), &one.at);
            server.set_some("addresses", all.then_some("all"), &one.at);
            server.set_some("backup", (is_first && at > 0).then_some(true), &one.at);
        }
        let hash = match self.policy.as_str() {
            "ip_hash" | "client_ip_hash" => Some("client".to_owned()),
            "uri_hash" => Some("url".to_owned()),
            "header" => Some(format!("field:{}", self.policy_word)),
            "cookie" => {
                let name = if self.policy_word.is_empty() { "lb" } else { &self.policy_word };
                self.section.below("upstream.sticky").set("cookie", name, &one.at);
                None
            }
            _ => None,
        };
        if let Some(by) = hash {
            self.section.set("balance", "hash", &one.at);
            self.section.set("hash_by", by, &one.at);
            self.section.set("load_percent_max", Value::Count(0), "a hash alone decides");
        }
        if self.policy == "least_conn" {
            self.section.set("balance", "least_outstanding", &one.at);
        }
        if self.h2c {
            self.section.set("protocol", "h2c", &one.at);
        }
        if many {
            let max = self.retries.unwrap_or(0).min(100);
            self.section.below("upstream.retries").set("max", max, "lb_retries");
            if !self.ejects {
                let ejection = self.section.below("upstream.ejection");
                ejection.set("failures", Value::Count(0), "fail_duration is 0");
            }
        }
        Ok(())
    }

    /// The URLs of a word: an address with or without a scheme, perhaps with a range of ports.
    fn urls(&mut self, text: &str, urls: &mut Vec<(String, bool)>) -> Result<(), String> {
        let unknown = || format!("the server {text} is not known here");
        if text.contains('{') {
            return Err("the server is a placeholder".to_owned());
        }
        let unix = text.strip_prefix("unix/").or(text.strip_prefix("unix+h2c/"));
        if let Some(path) = unix.filter(|path| path.starts_with('/')) {
            self.h2c |= text.starts_with("unix+h2c");
            if self.tls {
                return Err(unknown());
            }
            urls.push((format!("unix:{path}"), false));
            return Ok(());
        }
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        if let Some(scheme) = scheme.strip_prefix("srv+").filter(|one| matches!(*one, "http")) {
            debug_assert_eq!(scheme, "http");
            urls.push((format!("srv:{rest}"), false));
            return Ok(());
        }
        let all = scheme == "all+http";
        self.h2c |= scheme == "h2c";
        let tls = self.tls || matches!(scheme, "https" | "wss");
        if !matches!(scheme, "" | "http" | "https" | "h2c" | "ws" | "wss" | "all+http") {
            return Err(unknown());
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (rest, None),
        };
        let host = if host.is_empty() { "127.0.0.1" } else { host };
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"-_.:[]".contains(&b);
        if !host.bytes().all(fits) {
            return Err(unknown());
        }
        let default = if tls { "443" } else { "80" };
        let (first, last) =
            port.unwrap_or(default).split_once('-').unwrap_or((port.unwrap_or(default), ""));
        let first: u16 = first.parse().map_err(|_| unknown())?;
        let last: u16 =
            if last.is_empty() { first } else { last.parse().map_err(|_| unknown())? };
        if first == 0 || last < first || usize::from(last - first) > SERVERS_MAX {
            return Err(unknown());
        }
        let own = if tls { "https" } else { "http" };
        for port in first..=last {
            let port = match (port, port.to_string() == default) {
                (_, true) => String::new(),
                (port, false) => format!(":{port}"),
            };
            urls.push((format!("{own}://{}{port}", authority(host)), all));
        }
        Ok(())
    }
}

const SENT: &str = "upstreams are sent this field always";

/// A length of time: `1m30s`, `500ms`, `1d`.
pub(crate) fn time(text: &str) -> Option<Duration> {
    let (mut rest, mut all) = (text, Duration::ZERO);
    if text.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, left) = after.split_at(unit);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        let part = number.parse::<f64>().ok()? * seconds;
        all = all.checked_add(Duration::try_from_secs_f64(part).ok()?)?;
        rest = left;
    }
    Some(all)
}

impl Caddy {
    /// The name of an upstream with these settings, which is written once.
    pub(crate) fn upstream(&mut self, mut section: Section, texts: &[String]) -> String {
        let shape = section.shape();
        if let Some(name) = self.upstreams.get(&shape) {
            return name.clone();
        }
        let first = texts.first().map_or("upstream", String::as_str);
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let bare: String =
            first.split("://").last().unwrap_or_default().chars().map(plain).collect();
        let bare: String = bare.trim_matches('-').chars().take(40).collect();
        let mut name = if bare.is_empty() { "upstream".to_owned() } else { bare };
        let count = self.names.entry(name.clone()).or_insert(0_usize);
        *count += 1;
        if *count > 1 {
            name = format!("{name}--{count}");
        }
        let at = "its servers";
        section.set("name", name.clone(), at);
        self.upstreams.insert(shape, name.clone());
        self.tree.add(section);
        name
    }

    /// `forward_auth SERVER { uri PATH  copy_headers … }`: the section and what is not carried.
    pub(crate) fn forward_auth(&mut self, one: &Directive, words: &[String]) -> Option<Auth> {
        let (mut path, mut copy, mut known) = (None, Vec::new(), true);
        let mut rest = Directive { at: one.at.clone(), ..Directive::default() };
        for line in &one.inner {
            match line.name.as_str() {
                "uri" if line.word(0).starts_with('/') && !line.word(0).contains('{') => {
                    path = Some(line.word(0).to_owned());
                }
                "copy_headers" => {
                    let inner = line.inner.iter().map(|one| (&one.name, one.words.is_empty()));
                    let words = line.words.iter().map(|word| (word, true));
                    for (name, is_plain) in words.chain(inner) {
                        known &= is_plain && !name.contains('>') && !name.contains('{');
                        add(&mut copy, name.as_str());
                    }
                    line.inner.iter().for_each(|one| self.notes.carried(&one.at));
                }
                _ => {
                    rest.inner.push(line.clone());
                    continue;
                }
            }
            self.notes.carried(&line.at);
        }
        let proxy = of(&rest, words, self).ok()?;
        known &= proxy.request.is_empty() && proxy.response.is_empty() && proxy.rewrite.is_none();
        let path = path.filter(|_| known)?;
        Some(Auth { upstream: proxy.name, path, copy })
    }
}

/// A service that is asked before a request goes on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Auth {
    pub(crate) upstream: String,
    pub(crate) path: String,
    pub(crate) copy: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(time("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(time("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(time("1d"), Some(Duration::from_secs(86_400)));
        assert_eq!((time(""), time("5"), time("1y"), time("-1s")), (None, None, None, None));
    }

    #[test]
    fn servers() {
        let of = |text: &str| {
            let mut urls = Vec::new();
            Made::default().urls(text, &mut urls).ok()?;
            Some(urls.into_iter().map(|(url, _)| url).collect::<Vec<String>>().join(" "))
        };
        for (text, wanted) in [
            ("app", Some("http://app")),
            (":9000", Some("http://127.0.0.1:9000")),
            ("http://app:80", Some("http://app")),
            ("https://app", Some("https://app")),
            ("https://app:8443/", Some("https://app:8443")),
            ("[::1]:8080", Some("http://[::1]:8080")),
            ("app:1-3", Some("http://app:1 http://app:2 http://app:3")),
            ("unix//run/app.sock", Some("unix:/run/app.sock")),
            ("srv+http://_a._tcp.b", Some("srv:_a._tcp.b")),
            ("{env.APP}", None),
            ("ftp://a", None),
            ("a/b", None),
            ("a:99999", None),
        ] {
            assert_eq!(of(text).as_deref(), wanted, "{text}");
        }
    }
}
