//! Global options, listeners, coding, logs, and limits that are Caddy's own.

use std::collections::BTreeSet;
use std::time::Duration;

use imported::note::{Fate, Place};
use imported::route::add;
use imported::table::Becomes::{self, Carried, Different, Left, Nothing};
use imported::tree::{Section, Value, timeout};

use crate::Caddy;
use crate::blocks::{Block, Directive};
use crate::flow::inside;
use crate::matchers::ranges;
use crate::proxy::time;
use crate::tls::Tls;

/// The types that Caddy codes.
const TYPES: &str = "application/atom+xml application/eot application/font application/geo+json \
                     application/graphql+json application/javascript application/json \
                     application/ld+json application/manifest+json application/opentype \
                     application/otf application/rss+xml application/truetype application/ttf \
                     application/vnd.api+json application/vnd.ms-fontobject application/wasm \
                     application/x-httpd-cgi application/x-javascript application/x-opentype \
                     application/x-otf application/x-perl application/x-protobuf \
                     application/x-ttf application/xhtml+xml application/xml font/* \
                     image/svg+xml image/vnd.microsoft.icon image/x-icon multipart/bag \
                     multipart/mixed text/*";

impl Caddy {
    /// The global options.
    pub(crate) fn global(&mut self, all: &[Directive]) {
        for line in all {
            let becomes = self.option(line);
            self.notes.became(&line.at, &becomes);
            if line.name != "servers"
                && let Some((fate, why)) = becomes.parts()
            {
                inside(line, fate, why, &mut self.notes);
            }
        }
    }

    fn option(&mut self, line: &Directive) -> Becomes {
        let word = line.word(0);
        let is_plain = !word.is_empty() && !word.contains('{');
        match line.name.as_str() {
            "email" if is_plain => {
                add(&mut self.contacts, format!("mailto:{word}"));
                Carried
            }
            "email" => Left("write acme.contact"),
            "acme_ca" if is_plain => {
                self.directory = Some((word.to_owned(), line.at.clone()));
                Carried
            }
            "acme_ca_root" if is_plain => {
                self.roots = Some((word.to_owned(), line.at.clone()));
                Carried
            }
            "auto_https" if word == "off" => {
                (self.auto_https, self.redirects) = (false, false);
                Carried
            }
            "auto_https" if word == "disable_redirects" => {
                self.redirects = false;
                Carried
            }
            "auto_https" if word == "disable_certs" => {
                self.local_certs = true;
                Left("write a certificate into [[listen.tls.certificate]]")
            }
            "auto_https" => Nothing("certificates of files come after obtained certificates"),
            "http_port" | "https_port" => match word.parse() {
                Ok(port) => {
                    match line.name.as_str() {
                        "http_port" => self.http_port = port,
                        _ => self.https_port = port,
                    }
                    Carried
                }
                Err(_) => Left("it is not a port"),
            },
            "default_bind"
                if line.words.iter().all(|word| word.parse::<std::net::IpAddr>().is_ok()) =>
            {
                let address = |word: &String| imported::tree::authority(word);
                self.default_bind = line.words.iter().map(address).collect();
                Carried
            }
            "local_certs" => {
                self.local_certs = true;
                Left("write a certificate into [[listen.tls.certificate]]")
            }
            "order" => {
                self.is_reordered = true;
                self.order.change(line)
            }
            "grace_period" => match timeout(time(word)) {
                Some(time) => {
                    self.tree.section("limits").set("drain_timeout", time, &line.at);
                    Carried
                }
                None => Left("the time is not known here"),
            },
            "servers" => {
                for one in &line.inner {
                    let becomes = self.server_option(one);
                    self.notes.became(&one.at, &becomes);
                }
                match line.words.is_empty() {
                    true => Carried,
                    false => Different("it is for all listeners"),
                }
            }
            "import" => Becomes::Elsewhere,
            "admin" => Nothing("our admin address is server.admin"),
            "debug"
            | "log"
            | "persist_config"
            | "skip_install_trust"
            | "storage"
            | "metrics"
            | "storage_clean_interval"
            | "ocsp_stapling"
            | "ocsp_interval"
            | "default_sni"
            | "storage_check" => Nothing("it is about Caddy's own process"),
            "acme_dns" | "on_demand_tls" | "cert_issuer" | "acme_eab" | "key_type" | "dns"
            | "renew_interval" | "pki" | "preferred_chains" | "cert_lifetime" => {
                if matches!(line.name.as_str(), "acme_dns") {
                    self.local_certs = true;
                }
                Left("certificates are obtained by HTTP or TLS, or come from files")
            }
            _ => Left("this option is not known here"),
        }
    }

    fn server_option(&mut self, line: &Directive) -> Becomes {
        let becomes = match line.name.as_str() {
            "trusted_proxies" if line.word(0) == "static" => match ranges(&line.words[1..]) {
                Some(networks) => {
                    self.trusted = Some((networks, line.at.clone()));
                    Carried
                }
                None => Left("its networks are not known here"),
            },
            "timeouts" => {
                for one in &line.inner {
                    let key = match one.name.as_str() {
                        "read_body" => "body_timeout",
                        "read_header" => "head_timeout",
                        "write" => "send_timeout",
                        _ => "idle_keep_alive",
                    };
                    let becomes = match timeout(time(one.word(0))) {
                        Some(time) => {
                            self.tree.section("limits").set(key, time, &one.at);
                            Different("the time is that between two pieces")
                        }
                        None => Left("the time is not known here"),
                    };
                    self.notes.became(&one.at, &becomes);
                }
                return Carried;
            }
            "protocols" | "metrics" | "log_credentials" | "strict_sni_host"
            | "keepalive_interval" | "name" | "protocol" | "allow_h2c" => {
                Left("our server speaks HTTP/1.1 and HTTP/2, and HTTP/3 with TLS")
            }
            _ => Left("this option is not known here"),
        };
        if let Some((fate, why)) = becomes.parts() {
            inside(line, fate, why, &mut self.notes);
        }
        becomes
    }

    /// `encode CODINGS`
    pub(crate) fn encode(&mut self, line: &Directive, words: &[String]) -> Becomes {
        let mut codings: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut why = "responses that can be coded have Vary also if they are not coded, and coded \
                       responses have a weak tag";
        for one in &line.inner {
            match one.name.as_str() {
                "gzip" | "zstd" => {
                    codings.push(&one.name);
                    self.notes.carried(&one.at);
                }
                "minimum_length" | "match" => {
                    why = "the types and the length that are coded are Caddy's default";
                    inside(one, Fate::Different, why, &mut self.notes);
                    self.notes.different(&one.at, why);
                }
                _ => self.notes.left(&one.at, "this coding is not known here"),
            }
        }
        if codings.is_empty() {
            codings = vec!["zstd", "gzip"];
        }
        codings.retain(|one| matches!(*one, "gzip" | "zstd" | "br"));
        let is_new = self.codings.is_empty();
        if !is_new && self.codings != codings {
            why = "one list of codings is for all sites";
        }
        codings.into_iter().for_each(|one| add(&mut self.codings, one));
        Becomes::differs(why)
    }

    /// `log` of the sites: one log is for all.
    pub(crate) fn logs(&mut self, sites: &[Block]) {
        let lines = sites.iter().flat_map(|site| &site.inner).filter(|line| line.name == "log");
        let mut first: Option<String> = None;
        for line in lines {
            let output = line.inner.iter().find(|one| one.name == "output");
            let path = output.filter(|one| one.word(0) == "file").map(|one| one.word(1));
            let is_fixed = |path: &&str| path.starts_with('/') && !path.contains('{');
            let becomes = match (path.filter(is_fixed), output.map(|one| one.word(0))) {
                (_, Some("discard")) => Nothing("requests are not logged"),
                (Some(path), _) if first.as_deref().is_none_or(|there| there == path) => {
                    first = Some(path.to_owned());
                    let log = self.tree.section("log");
                    log.set("path", path, &line.at);
                    log.set("format", "json", "Caddy's default");
                    Different("one log is for all sites, and its lines have our names")
                }
                (Some(_), _) => Left("one log is for all sites: an earlier line has another file"),
                _ => Left("requests are logged to a file: write log.path"),
            };
            self.notes.became(&line.at, &becomes);
            let (fate, why) = becomes.parts().unwrap_or((Fate::Carried, ""));
            inside(line, fate, why, &mut self.notes);
        }
    }

    /// Writes a listener for each address that is bound; without one, for all.
    pub(crate) fn listen(
        &mut self,
        number: u16,
        bound: &BTreeSet<String>,
        tls: Option<&Tls>,
        at: &Place,
    ) {
        let all = BTreeSet::from(["[::]".to_owned()]);
        for address in if bound.is_empty() { &all } else { bound } {
            let mut listen = Section::new("listen");
            let from = match at.line {
                0 => "Caddy redirects to https by itself".to_owned(),
                _ => at.to_string(),
            };
            listen.set("address", format!("{address}:{number}"), from);
            listen.set("field_names", "any", "Caddy passes on all fields");
            let (networks, from) = match &self.trusted {
                Some((networks, at)) => (networks.clone(), at.to_string()),
                None => (Vec::new(), "no proxy in front is believed".to_owned()),
            };
            listen.set("trusted_proxies", networks, from);
            if let Some(tls) = tls {
                tls.write(&mut listen, at);
            }
            self.tree.add(listen);
        }
    }

    /// Settings of the whole file.
    pub(crate) fn finish(&mut self, has_acme: bool, plain: bool) {
        if has_acme {
            let acme = self.tree.section("acme");
            acme.comment("As with Caddy, the operator accepts the authority's terms.");
            acme.set("terms_accepted", true, "as with Caddy");
            acme.set("path", "acme", "a directory for the account and the certificates");
            acme.set_list("contact", &self.contacts, "email");
            if let Some((url, at)) = &self.directory {
                acme.set("directory", url.as_str(), at);
            }
            if let Some((file, at)) = &self.roots {
                acme.set("ca", file.as_str(), at);
            }
            if !plain {
                acme.set("challenge", "tls-alpn-01", "there is no listener for plain http");
            }
        }
        if !self.codings.is_empty() {
            let types: Vec<String> = TYPES.split(' ').map(str::to_owned).collect();
            let from = "as encode does";
            let compression = self.tree.section("compression");
            compression.set("codings", self.codings.clone(), "encode");
            compression.set("passed", true, from);
            compression.set("types", types, from);
            compression.set("bytes_min", Value::Bytes(512), from);
        }
        self.tree.section("purge").set("from", Vec::new(), "Caddy has no PURGE");
        let limits = self.tree.section("limits");
        let day = Duration::from_secs(86_400);
        limits.set("upstream_timeout", day, "Caddy waits without a limit");
        if limits.get("idle_keep_alive").is_none() {
            limits.set("idle_keep_alive", Duration::from_secs(300), "Caddy's default");
        }
    }
}
