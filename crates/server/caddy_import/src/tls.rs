//! `tls` of sites, and the certificates of listeners.

use imported::note::{Fate, Notes, Place};
use imported::route::add;
use imported::table::Becomes::{Carried, Different, Left, Nothing, Unprotected};
use imported::tree::Section;

use crate::Caddy;
use crate::blocks::Block;
use crate::flow::inside;

/// What `tls` of a site says, or of all sites of a listener.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    /// There is such a line.
    pub(crate) has_line: bool,
    /// The site is closed.
    pub(crate) closes: bool,
    /// A certificate and its key.
    files: Vec<(String, String, Place)>,
    /// Names whose certificates the server obtains.
    names: Vec<String>,
    /// The certificate is made by Caddy's own authority, or obtained in another way.
    is_own: bool,
    only_13: bool,
    /// The roots of client certificates, and whether a client may have none.
    clients: Option<(String, bool)>,
    sites: usize,
    /// Some sites ask for client certificates, or other sites for others.
    is_mixed: bool,
}

const OWN: &str = "Caddy's own authority makes the certificate: write chain and key into \
                   [[listen.tls.certificate]]";

impl Tls {
    /// The lines of a site.
    pub(crate) fn of(site: &Block, caddy: &mut Caddy) -> Tls {
        let is_own = caddy.local_certs || !caddy.auto_https;
        let mut tls = Tls { is_own, ..Tls::default() };
        for line in site.inner.iter().filter(|line| line.name == "tls") {
            tls.has_line = true;
            let fixed = |text: &str| text.starts_with('/') && !text.contains('{');
            let becomes = match &line.words[..] {
                [] => Carried,
                [word] if word == "internal" => {
                    tls.is_own = true;
                    Left(OWN)
                }
                [email] if email.contains('@') && !email.contains('{') => {
                    add(&mut caddy.contacts, format!("mailto:{email}"));
                    Carried
                }
                [chain, key] if fixed(chain) && fixed(key) => {
                    tls.files.push((chain.clone(), key.clone(), line.at.clone()));
                    Carried
                }
                _ => {
                    tls.is_own = true;
                    Left("its certificate is not known here: write absolute paths of files")
                }
            };
            caddy.notes.became(&line.at, &becomes);
            for one in &line.inner {
                let becomes = match (one.name.as_str(), one.word(0)) {
                    ("protocols", "tls1.3") => {
                        tls.only_13 = true;
                        Different("it is for all sites of the listener")
                    }
                    ("protocols", "tls1.2") if one.words.len() == 1 || one.word(1) == "tls1.3" => {
                        Nothing("it is so without a line")
                    }
                    ("ca", url) if !url.contains('{') => {
                        caddy.directory = Some((url.to_owned(), one.at.clone()));
                        Carried
                    }
                    ("client_auth", _) => {
                        let mode = one.inner.iter().find(|line| line.name == "mode");
                        let mode = mode.map_or("require_and_verify", |line| line.word(0));
                        let roots = one.inner.iter().find(|line| {
                            line.name == "trusted_ca_cert_file" && fixed(line.word(0))
                        });
                        let lines = one.inner.len()
                            - usize::from(one.inner.iter().any(|line| line.name == "mode"));
                        match (roots, mode) {
                            (Some(roots), "require_and_verify" | "verify_if_given")
                                if lines == 1 =>
                            {
                                let is_optional = mode == "verify_if_given";
                                tls.clients = Some((roots.word(0).to_owned(), is_optional));
                                inside(one, Fate::Carried, "", &mut caddy.notes);
                                Carried
                            }
                            _ => {
                                tls.closes = true;
                                let why = "one file of roots is carried, and verified certificates";
                                inside(one, Fate::Unprotected, why, &mut caddy.notes);
                                Unprotected(why)
                            }
                        }
                    }
                    ("dns" | "on_demand" | "issuer" | "load" | "get_certificate", _) => {
                        tls.is_own = true;
                        inside(
                            one,
                            Fate::NotCarried,
                            "certificates are obtained in one way",
                            &mut caddy.notes,
                        );
                        Left("certificates are obtained by HTTP or TLS, or come from files")
                    }
                    ("alpn" | "curves" | "ciphers" | "key_type", _) => {
                        Left("the versions, curves and ciphers are those of our server")
                    }
                    _ => {
                        inside(one, Fate::NotCarried, "it is not known here", &mut caddy.notes);
                        Left("it is not known here")
                    }
                };
                caddy.notes.became(&one.at, &becomes);
            }
        }
        tls
    }

    /// Adds what a site with this host says to a listener.
    pub(crate) fn join(&mut self, site: &Tls, host: Option<&str>, at: &Place, notes: &mut Notes) {
        self.files.extend(
            site.files.iter().filter(|one| !self.files.contains(one)).cloned().collect::<Vec<_>>(),
        );
        self.only_13 |= site.only_13;
        self.is_mixed |= self.sites > 0 && self.clients != site.clients;
        self.sites += 1;
        self.clients = self.clients.take().or_else(|| site.clients.clone());
        if !site.files.is_empty() {
            return;
        }
        match host {
            Some(host) if is_public(host) && !site.is_own => add(&mut self.names, host),
            _ => notes.left(at, OWN),
        }
    }

    /// Whether some client can be served.
    pub(crate) fn has_certificate(&self) -> bool {
        !self.files.is_empty() || !self.names.is_empty()
    }

    /// Whether the server obtains certificates.
    pub(crate) fn obtains(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether clients are asked for certificates.
    pub(crate) fn asks(&self) -> bool {
        self.clients.is_some()
    }

    /// Whether not all sites ask for the same client certificates.
    pub(crate) fn is_mixed(&self) -> bool {
        self.is_mixed
    }

    /// Writes the section.
    pub(crate) fn write(&self, listen: &mut Section, at: &Place) {
        listen.set("http3", true, "Caddy's default");
        let tls = listen.below("listen.tls");
        tls.set_list("acme", &self.names, "obtained as by Caddy");
        tls.set_some("only_tls13", self.only_13.then_some(true), at);
        if let Some((roots, is_optional)) = self.clients.as_ref().filter(|_| !self.is_mixed) {
            tls.set("client_ca", roots.as_str(), at);
            tls.set_some("client_optional", is_optional.then_some(true), at);
        }
        for (chain, key, at) in &self.files {
            let one = tls.below("listen.tls.certificate");
            one.set("chain", chain.as_str(), at);
            one.set("key", key.as_str(), at);
        }
    }
}

/// Whether a public authority issues a certificate for a name without a change to the DNS.
fn is_public(host: &str) -> bool {
    let ends = [".localhost", ".local", ".internal", ".home.arpa", ".test", ".example", ".invalid"];
    host.contains('.')
        && !host.contains(['*', ':'])
        && host.parse::<std::net::IpAddr>().is_err()
        && !ends.iter().any(|end| host.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_names() {
        for (host, wanted) in [
            ("example.org", true),
            ("localhost", false),
            ("a.localhost", false),
            ("*.example.org", false),
            ("192.0.2.1", false),
            ("[::1]", false),
            ("box.home.arpa", false),
        ] {
            assert_eq!(is_public(host), wanted, "{host}");
        }
    }
}
