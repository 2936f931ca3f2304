//! `bind`: where clients connect.

use imported::table::Becomes::{self, Carried, Left};
use imported::tree::Section;
use imported::{Parsed, note};

use crate::Haproxy;
use crate::lines::{Line, is_unknown};

/// Options that change nothing here.
const NOTHING: &str = "\
    tfo defer-accept v4v6 backlog no-sslv3 no-tlsv10 no-tlsv11 prefer-client-ciphers \
    no-tls-tickets ssl alpn npn accept-proxy strict-sni allow-0rtt no-alpn force-tlsv12 \
    transparent";
/// Such options with a value.
const WITH_VALUE: &str = "\
    backlog maxconn nice name ciphers ciphersuites curves ecdhe mss process thread tcp-ut id \
    alpn npn cc quic-cc-algo level crt crt-list ca-file verify ssl-min-ver ssl-max-ver mode shards \
    dhparam";
/// Their settings are not carried; all other options are unknown.
const IN_PART: &str = "quic-cc-algo strict-sni transparent maxconn ssl-max-ver allow-0rtt";

/// Settings of TLS, by what they become.
type Settings = Vec<(&'static str, String)>;

/// The addresses of a word: an address of IPv4 or IPv6, a path, ports `80` or `80-89`.
fn addresses(word: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for one in word.split(',') {
        let one = one.strip_prefix("ipv4@").or(one.strip_prefix("ipv6@")).unwrap_or(one);
        if let Some(path) = one.strip_prefix("unix@").or(Some(one)).filter(|p| p.starts_with('/')) {
            all.push(format!("unix:{path}"));
            continue;
        }
        let (host, ports) = one.rsplit_once(':')?;
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let host = match host.trim_matches(['[', ']']) {
            "" | "*" => "0.0.0.0",
            "localhost" => "127.0.0.1",
            host => host,
        };
        let address: std::net::IpAddr = host.parse().ok()?;
        let ports = first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?;
        // A listener takes a descriptor of each core.
        if ports.len() > 64 || ports.is_empty() {
            return None;
        }
        all.extend(ports.map(|port| std::net::SocketAddr::new(address, port).to_string()));
    }
    Some(all)
}

impl Haproxy<'_, '_> {
    /// The listeners of a line, with the name of their section if there are several.
    pub(crate) fn bind(&mut self, line: &Line, name: Option<&str>) -> Parsed<usize> {
        let at = &line.at;
        let found = addresses(line.word(1)).filter(|_| !line.words.iter().any(|w| is_unknown(w)));
        let (Some(found), false) = (found, line.may_be_absent) else {
            let why = "a listener has an IP address and a port, or a path; this is not opened";
            self.input.notes.left(at, why);
            return Ok(0);
        };
        let (becomes, tls, control) = self.tls(line)?;
        let mut count = 0;
        for address in found {
            let port = address.strip_prefix("0.0.0.0:").unwrap_or("-");
            let covered = [address.clone(), format!("[::]:{port}")];
            if covered.iter().any(|one| self.opened.contains(one)) {
                self.input.notes.left(at, "another line has this address");
                continue;
            }
            self.opened.insert(address.clone());
            count += 1;
            let mut section = Section::new("listen");
            let is_unix = address.starts_with("unix:");
            section.set("address", address, at);
            section.set_some("name", name, at);
            section.set_some("congestion_control", control.as_deref().filter(|_| !is_unix), at);
            section.set_some("mode", line.after("mode").filter(|_| is_unix), at);
            if line.has("accept-proxy") {
                self.is_proxied = true;
                let from = if is_unix { vec!["unix"] } else { vec!["0.0.0.0/0", "::/0"] };
                let from: Vec<String> = from.into_iter().map(str::to_owned).collect();
                section.set("proxy_from", from, at);
            }
            if line.has("ssl") {
                let has_h2 = line.after("alpn").is_some_and(|all| all.contains("h2"));
                section.set("http2", has_h2, at);
                for (key, value) in &tls {
                    let tls = section.below("listen.tls");
                    match *key {
                        "crt" => {
                            let one = tls.below("listen.tls.certificate");
                            one.set("chain", value.clone(), at);
                            one.set("key", value.clone(), at);
                        }
                        "client_ca" => tls.set("client_ca", value.clone(), at),
                        flag => tls.set(flag, true, at),
                    }
                }
            }
            self.tree.add(section);
        }
        self.input.notes.became(at, &becomes);
        Ok(count)
    }

    /// What becomes of the options of a line, its settings for TLS, and its congestion control.
    fn tls(&mut self, line: &Line) -> Parsed<(Becomes, Settings, Option<String>)> {
        let mut settings = Settings::new();
        let (mut left, mut words) = (Vec::new(), line.rest(2).iter());
        let (mut unread, mut control) = ("", None);
        while let Some(word) = words.next() {
            let is = |names: &str| names.split_whitespace().any(|one| one == word);
            let value = if is(WITH_VALUE) { words.next().map_or("", String::as_str) } else { "" };
            match (word.as_str(), value) {
                ("crt" | "crt-list", _) => match self.certificates(word, value, line)? {
                    Ok(found) => settings.extend(found.into_iter().map(|one| ("crt", one))),
                    Err(path) => {
                        unread = "name its certificates: this directory or list cannot be read";
                        settings.push(("crt", path));
                    }
                },
                ("ca-file", _) => settings.push(("client_ca", self.under("ca-base", value))),
                ("cc", _) => {
                    // The listener of a Unix socket has none.
                    if line.word(1).contains('/') {
                        left.push(word.clone());
                    }
                    control = Some(value.to_owned());
                }
                ("verify", "optional") => settings.push(("client_optional", String::new())),
                ("ssl-min-ver", "TLSv1.3") => settings.push(("only_tls13", String::new())),
                _ if is(IN_PART) || !is(NOTHING) && !is(WITH_VALUE) => left.push(word.clone()),
                _ => {}
            }
        }
        if line.has("ssl") && !settings.iter().any(|(key, _)| *key == "crt") {
            unread = "a listener with TLS needs a certificate";
        }
        if line.after("verify").is_none_or(|verify| verify == "none") {
            settings.retain(|(key, _)| *key != "client_ca");
        }
        let becomes = match (unread, left.is_empty()) {
            ("", true) => Carried,
            ("", false) => {
                let text = format!("without its options {}", left.join(", "));
                Becomes::Text(note::Fate::NotCarried, text)
            }
            (why, _) => Left(why),
        };
        Ok((becomes, settings, control))
    }

    /// The files of certificates. `Err`: the path of one that has to be named.
    fn certificates(
        &mut self,
        word: &str,
        value: &str,
        line: &Line,
    ) -> Parsed<Result<Vec<String>, String>> {
        let path = self.under("crt-base", value);
        let placeholder = || format!("{}/CERTIFICATE.pem", path.trim_end_matches('/'));
        if word == "crt-list" {
            let files = self.input.files(&line.at, &path)?.unwrap_or_default();
            let first = |text: &str| text.split_whitespace().next().map(str::to_owned);
            let names = files.iter().flat_map(|file| file.text.lines().filter_map(first));
            let is_name = |name: &String| !name.starts_with('#');
            let names = names.filter(is_name).map(|name| self.under("crt-base", &name));
            let names: Vec<String> = names.collect();
            return Ok(if names.is_empty() { Err(placeholder()) } else { Ok(names) });
        }
        let inside = format!("{}/*", path.trim_end_matches('/'));
        let files = self.input.files(&line.at, &inside)?.unwrap_or_default();
        let others = [".key", ".ocsp", ".issuer", ".sctl", "README"];
        let mut names: Vec<String> = files.into_iter().map(|file| file.name).collect();
        names.retain(|name| !others.iter().any(|other| name.ends_with(other)));
        let last = path.rsplit('/').next().unwrap_or_default();
        Ok(match names.is_empty() {
            false => Ok(names),
            true if last.contains('.') => Ok(vec![path]),
            true => Err(placeholder()),
        })
    }

    /// A path below a directory of `global`.
    pub(crate) fn under(&self, base: &str, path: &str) -> String {
        let base = self.bases.get(base).filter(|_| !path.starts_with('/'));
        base.map_or(path.to_owned(), |base| format!("{}/{path}", base.trim_end_matches('/')))
    }
}
