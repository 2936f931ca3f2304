//! Certificates that the server obtains by itself (ACME, RFC 8555).

use std::path::{Path, PathBuf};

use transport::tls::ClientTls;

use super::here::Here;
use super::table::{Key, Table, keys};
use super::value::{Kind, words};
use super::{Config, ListenerTls, UpstreamTls};
use crate::limits::{ACME_NAMES_MAX, DNS_NAME_BYTES_MAX};

/// The authority that is asked if the file names no other.
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// How a certification authority checks that a name is ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Challenge {
    /// By a request to port 80 of the name.
    #[default]
    Http01,
    /// By a handshake with port 443 of the name.
    TlsAlpn01,
}

impl Challenge {
    /// As the file, RFC 8555 and RFC 8737 name it.
    pub fn name(self) -> &'static str {
        match self {
            Challenge::Http01 => "http-01",
            Challenge::TlsAlpn01 => "tls-alpn-01",
        }
    }

    /// The port that the authority connects to.
    fn port(self) -> u16 {
        match self {
            Challenge::Http01 => 80,
            Challenge::TlsAlpn01 => 443,
        }
    }
}

words!(Challenge: "http-01" => Challenge::Http01, "tls-alpn-01" => Challenge::TlsAlpn01);

/// `[acme]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// Where the authority's directory is.
    pub directory: String,
    /// The roots for the authority's own certificate; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// Whether the operator has accepted the authority's terms.
    pub terms_accepted: bool,
    /// Where the authority writes to if it must.
    pub contact: Vec<String>,
    /// The directory for the keys and the certificates.
    pub path: PathBuf,
    /// How the authority checks names.
    pub challenge: Challenge,
    /// All names of all listeners, sorted. A certificate is obtained for each.
    pub names: Vec<String>,
    /// Other members of the cluster answer checks, too.
    pub in_cluster: bool,
}

impl Default for Acme {
    fn default() -> Acme {
        Acme {
            directory: LETS_ENCRYPT.to_owned(),
            ca: None,
            terms_accepted: false,
            contact: Vec::new(),
            path: PathBuf::new(),
            challenge: Challenge::default(),
            names: Vec::new(),
            in_cluster: false,
        }
    }
}

impl Table for Acme {
    const KEYS: &'static [Key<Acme>] = keys![Acme;
        terms_accepted: Kind::Flag, terms_accepted,
            "Whether you accept the terms of service of the certification authority. Nothing is \
             asked for otherwise.", required !, example "true";
        path: Kind::Path, path,
            "Directory for the account, the keys and the certificates, with access for the user \
             of the server alone. Members of a cluster share it.",
            required !, example "\"acme\"";
        contact: Kind::Texts, contact,
            "Addresses that the authority may write to.", example "[\"mailto:ops@example.org\"]";
        directory: Kind::Text, directory,
            "URL of the authority's directory. Default: Let's Encrypt.",
            example "\"https://acme-staging-v02.api.letsencrypt.org/directory\"";
        ca: Kind::Path, ca,
            "PEM file of the roots for the authority's own certificate. Default: those of the \
             system.", example "\"authority.pem\"";
        challenge: Kind::Word(&["http-01", "tls-alpn-01"]), challenge,
            "How the authority checks that a name is yours: `http-01` by a request to port 80 of \
             the name, which any listener without TLS answers; `tls-alpn-01` by a handshake with \
             port 443 of the name, which the listener with the name answers.";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        if !self.terms_accepted {
            let text = "the authority issues nothing before you accept its terms: read them, and \
                        write terms_accepted = true";
            here.mistake_of("terms_accepted", text);
        }
        let rest = self.directory.strip_prefix("https://");
        if !rest.is_some_and(|rest| rest.contains('/') && !rest.starts_with('/')) {
            here.mistake_of("directory", "the directory is a URL that begins with https://");
        }
        for address in &self.contact {
            if !(address.starts_with("mailto:") && address.contains('@') && address.is_ascii()) {
                let text = format!("{address:?} is no address: write \"mailto:NAME@HOST\"");
                here.mistake_of("contact", text);
            }
        }
    }
}

impl Acme {
    /// The directory for this authority. Accounts and certificates of one authority are nothing to
    /// another one.
    #[must_use]
    pub fn own_path(&self) -> PathBuf {
        let rest = self.directory.trim_start_matches("https://");
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let name: String = rest.chars().map(plain).collect();
        self.path.join(name.trim_matches(['-', '.']))
    }

    /// The file with the certificate and the key of a name.
    #[must_use]
    pub fn file_of(own_path: &Path, name: &str) -> PathBuf {
        own_path.join(format!("{name}.pem"))
    }
}

/// Checks the names that a listener gets certificates for.
pub(crate) fn check_names(names: &[String], here: &mut Here<'_, '_>) {
    for name in names {
        let label = |label: &str| {
            let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
            (1..=63).contains(&label.len())
                && label.bytes().all(inner)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let text = match name.as_str() {
            _ if name.starts_with("*.") => format!(
                "{name}: an authority issues a certificate with a star only by a record in DNS, \
                 which is not supported: write each name, or use a certificate from a file"
            ),
            _ if name.parse::<std::net::IpAddr>().is_ok() => {
                format!("{name} is an address: certificates are obtained for names")
            }
            _ if name.bytes().any(|c| c.is_ascii_uppercase()) => {
                format!("{name}: write the name in lower case")
            }
            _ if !name.is_ascii() => format!("{name}: write the name in its ASCII form (xn--...)"),
            _ if name.len() > DNS_NAME_BYTES_MAX
                || !name.contains('.')
                || !name.split('.').all(label) =>
            {
                format!("{name:?} is not the name of a host, such as \"www.example.org\"")
            }
            _ => continue,
        };
        here.mistake_of("acme", text);
    }
}

/// The section, with the names of all listeners.
pub(crate) fn section(
    section: Option<&Acme>,
    listen: &[(usize, &ListenerTls)],
    here: &mut Here<'_, '_>,
) -> Option<Acme> {
    let mut names: Vec<String> = listen.iter().flat_map(|(_, tls)| tls.issued.clone()).collect();
    names.sort();
    names.dedup();
    if names.len() > ACME_NAMES_MAX {
        let text = format!("certificates are obtained for at most {ACME_NAMES_MAX} names");
        here.mistake_of("acme", text);
    }
    let by_tls = section.is_some_and(|acme| acme.challenge == Challenge::TlsAlpn01);
    for (at, tls) in listen.iter().filter(|(_, tls)| by_tls && !tls.issued.is_empty()) {
        if tls.client_ca.is_some() && !tls.client_optional {
            let text = "the authority shows no certificate when it checks a name: write \
                        challenge = \"http-01\" in [acme]";
            here.mistake_of(&format!("listen[{at}].tls.client_ca"), text);
        }
    }
    if let Some(ca) = section.and_then(|section| section.ca.clone()) {
        // Only to read the file.
        let read = ClientTls::load(&UpstreamTls { ca: Some(ca), ..UpstreamTls::default() });
        if let Err(wrong) = read {
            here.mistake_of("acme.ca", wrong);
        }
    }
    match section {
        Some(section) => Some(Acme { names, ..section.clone() }),
        None if names.is_empty() => None,
        None => {
            let text = "a listener has tls.acme, and there is no [acme]: write it, with \
                        terms_accepted and path";
            here.mistake_of("acme", text);
            None
        }
    }
}

/// Settings by which no certificate may come.
pub(crate) fn warnings(config: &Config) -> Vec<String> {
    let Some(acme) = &config.acme else { return Vec::new() };
    if acme.names.is_empty() {
        return vec!["acme: nothing is asked for: no listener has tls.acme".to_owned()];
    }
    let (port, name) = (acme.challenge.port(), acme.challenge.name());
    let is_there = config.listeners.iter().any(|one| {
        let is_secure = acme.challenge == Challenge::TlsAlpn01;
        one.address.port() == port && one.tls.is_some() == is_secure && !one.cluster
    });
    match is_there {
        true => Vec::new(),
        false => vec![format!(
            "acme: the authority connects to port {port} of each name ({name}), and no listener \
             has this port: write [[listen]] with it, unless another server passes it on"
        )],
    }
}

#[cfg(test)]
mod tests {
    use crate::Settings;

    fn mistakes(text: &str) -> Vec<String> {
        let upstream =
            "[[upstream]]\nname = \"a\"\n[[upstream.server]]\nurl = \"http://127.0.0.1\"\n";
        let text = format!("{upstream}{text}");
        match Settings::parse(&text, std::path::Path::new("")) {
            Ok(settings) => settings.config.warnings(),
            Err(problems) => problems.into_iter().map(|problem| problem.message).collect(),
        }
    }

    const LISTEN: &str = "[[listen]]\naddress = \"127.0.0.1:443\"\n";
    const PLAIN: &str = "[[listen]]\naddress = \"127.0.0.1:80\"\n";
    const ACME: &str = "[acme]\nterms_accepted = true\npath = \"keys\"\n";

    #[test]
    fn names_and_sections_are_checked_before_anything_is_asked() {
        let tls = |names: &str| format!("{LISTEN}[listen.tls]\nacme = [{names}]\n{PLAIN}");
        let good = tls("\"a.test\", \"xn--bcher-kva.example\"");
        assert_eq!(mistakes(&format!("{good}{ACME}")), [""; 0]);
        for (names, words) in [
            ("\"*.a.test\"", "star"),
            ("\"10.0.0.1\"", "address"),
            ("\"::1\"", "address"),
            ("\"A.test\"", "lower case"),
            ("\"bücher.test\"", "xn--"),
            ("\"localhost\"", "name of a host"),
            ("\"a_b.test\"", "name of a host"),
            ("\"a..test\"", "name of a host"),
            ("\"../etc.test\"", "name of a host"),
            ("\"-a.test\"", "name of a host"),
        ] {
            let found = mistakes(&format!("{}{ACME}", tls(names)));
            assert!(found.len() == 1 && found[0].contains(words), "{names}: {found:?}");
        }
        for (more, words) in [
            ("", "there is no [acme]"),
            ("[acme]\npath = \"keys\"\n", "terms_accepted = true"),
            ("[acme]\nterms_accepted = true\n", "`path` is missing"),
            (&format!("{ACME}directory = \"http://a.test/dir\"\n"), "https://"),
            (&format!("{ACME}contact = [\"ops@a.test\"]\n"), "mailto:"),
            (&format!("{ACME}challenge = \"dns-01\"\n"), "tls-alpn-01"),
        ] {
            let found = mistakes(&format!("{good}{more}"));
            assert!(found.iter().any(|one| one.contains(words)), "{more}: {found:?}");
        }
        let alone = format!("{LISTEN}[listen.tls]\nacme = [\"a.test\"]\n{ACME}");
        assert!(mistakes(&alone)[0].contains("port 80"), "{:?}", mistakes(&alone));
        let by_tls = format!("{alone}challenge = \"tls-alpn-01\"\n");
        assert_eq!(mistakes(&by_tls), [""; 0]);
        let unused = format!("{PLAIN}{ACME}");
        assert!(mistakes(&unused)[0].contains("no listener has tls.acme"));
    }

    #[test]
    fn each_authority_has_its_directory() {
        let acme = |directory: &str| {
            let acme = super::Acme { directory: directory.to_owned(), ..super::Acme::default() };
            acme.own_path().display().to_string()
        };
        assert_eq!(acme(super::LETS_ENCRYPT), "acme-v02.api.letsencrypt.org-directory");
        assert_eq!(acme("https://../../x"), "x");
        assert_eq!(acme("https://127.0.0.1:14000/dir"), "127.0.0.1-14000-dir");
    }
}
