//! The rules of forward mode, and which client information is forwarded. Typed, with safe defaults.

use std::collections::HashMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use bcrypt::HashParts;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::limits::{PASSWORD_COST_MAX, PASSWORD_FILE_BYTES_MAX};
use crate::{Lifetime, PacFile, Satisfy, When};

/// The rules of forward mode.
#[derive(Clone, Debug)]
pub struct Forward {
    /// Networks whose clients may use the proxy.
    pub allow_from: Vec<IpNet>,
    /// Networks whose clients may not use it, whatever `allow_from` says.
    pub deny_from: Vec<IpNet>,
    /// Whether a client needs an allowed network and a login, or one of them.
    pub satisfy: Satisfy,
    /// Networks that may be reached although they are not public. The proxy's own addresses are
    /// reachable only if a network with exactly that address is listed.
    pub allow_to: Vec<IpNet>,
    /// Ports allowed in requests.
    pub ports: Vec<Ports>,
    /// Ports allowed with CONNECT.
    pub connect_ports: Vec<Ports>,
    /// If not empty, only these domains may be reached.
    pub allow_domains: Vec<Domain>,
    /// Domains that may not be reached, whatever else is allowed.
    pub deny_domains: Vec<Domain>,
    /// Requests for which this condition holds are refused.
    pub deny_when: Option<When>,
    /// Whether a CONNECT to one of `tls_ports` must be followed by a TLS ClientHello with the
    /// requested host as its server name.
    pub check_server_name: bool,
    /// Ports at which CONNECT must lead to TLS.
    pub tls_ports: Vec<Ports>,
    /// Users and passwords; `None`: no authentication.
    pub users: Option<Users>,
    /// Networks whose clients need no password.
    pub no_login_from: Vec<IpNet>,
    /// How long responses are fresh; the first that matches a response applies.
    pub lifetimes: Vec<Lifetime>,
    /// The script by which browsers find the proxy.
    pub pac_file: Option<PacFile>,
    /// The realm of the password prompt.
    pub realm: PasswordRealm,
    /// The treatment of `X-Forwarded-For`.
    pub x_forwarded_for: ClientField,
    /// The treatment of `Forwarded` (RFC 7239).
    pub forwarded: ClientField,
    /// Whether a request goes on at the server although its client has left.
    pub finish_abandoned: bool,
}

/// Squid's `Safe_ports`, without the ports of unsupported protocols (ftp, gopher, wais).
const PORTS: [(u16, u16); 7] =
    [(80, 80), (443, 443), (280, 280), (488, 488), (591, 591), (777, 777), (1025, 65535)];
const TLS_PORT: Ports = Ports { first: 443, last: 443 };

impl Default for Forward {
    fn default() -> Forward {
        let v4 = |a, b, len| IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, 0, 0), len));
        let v6 =
            |a, len| IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, 0, 0, 0, 0, 0, 0, 0), len));
        Forward {
            allow_from: vec![
                v4(127, 0, 8),
                v4(10, 0, 8),
                v4(172, 16, 12),
                v4(192, 168, 16),
                v4(169, 254, 16),
                IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
                v6(0xfc00, 7),
                v6(0xfe80, 10),
            ],
            deny_from: Vec::new(),
            satisfy: Satisfy::default(),
            allow_to: Vec::new(),
            ports: PORTS.map(|(first, last)| Ports { first, last }).to_vec(),
            connect_ports: vec![TLS_PORT],
            allow_domains: Vec::new(),
            deny_domains: Vec::new(),
            deny_when: None,
            check_server_name: true,
            tls_ports: vec![TLS_PORT],
            users: None,
            no_login_from: Vec::new(),
            lifetimes: Vec::new(),
            pac_file: None,
            realm: PasswordRealm::default(),
            x_forwarded_for: ClientField::default(),
            forwarded: ClientField::default(),
            finish_abandoned: false,
        }
    }
}

/// A port or a range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// Whether this port is one of them.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl From<RangeInclusive<u16>> for Ports {
    fn from(range: RangeInclusive<u16>) -> Ports {
        Ports { first: *range.start(), last: *range.end() }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Ports, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(Ports { first, last }),
            _ => Err(format!("{text:?} is not a port or a range of ports, such as 1025-65535")),
        }
    }
}

/// Types for a text whose form their `FromStr` has checked.
macro_rules! checked_texts {
    ($($(#[doc = $doc:literal])+ $name:ident, $form:literal;)+) => { $(
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct $name(String);

        impl $name {
            #[doc = $form]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+ };
}
pub(crate) use checked_texts;

checked_texts! {
    /// A domain with all its subdomains.
    Domain, "In lower case, without a dot at either end.";
    /// The realm of proxy authentication, which a browser shows when it asks for a password.
    PasswordRealm, "Visible ASCII without quotes and backslashes.";
    /// A protocol that `Upgrade` may name.
    Protocol, "In lower case.";
}

impl FromStr for Domain {
    type Err = String;

    fn from_str(text: &str) -> Result<Domain, String> {
        let bare = text.strip_prefix("*.").or(text.strip_prefix('.')).unwrap_or(text);
        let bare = bare.strip_suffix('.').unwrap_or(bare);
        if !bare.is_ascii() {
            return Err(format!("{text:?} is not ASCII: write the name as its xn-- form"));
        }
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        if bare.len() > 253 || !bare.split('.').all(label) {
            return Err(format!("{text:?} is not a domain, such as example.com"));
        }
        Ok(Domain(bare.to_ascii_lowercase()))
    }
}

impl Default for PasswordRealm {
    fn default() -> PasswordRealm {
        PasswordRealm("plimsoll".to_owned())
    }
}

impl FromStr for PasswordRealm {
    type Err = String;

    fn from_str(text: &str) -> Result<PasswordRealm, String> {
        let plain = |b: u8| matches!(b, b' '..=b'~') && !matches!(b, b'"' | b'\\');
        if text.is_empty() || text.len() > 128 || !text.bytes().all(plain) {
            return Err(format!(
                "the realm {text:?} is not 1 to 128 characters of ASCII without \" and \\"
            ));
        }
        Ok(PasswordRealm(text.to_owned()))
    }
}

/// User names and password hashes, from a file written by `htpasswd -B`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Users {
    hashes: Arc<HashMap<Box<[u8]>, Box<str>>>,
    /// The file.
    path: PathBuf,
}

/// Does not show the hashes.
impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Users({})", self.hashes.len())
    }
}

impl Users {
    /// Reads a file.
    ///
    /// # Errors
    /// One line: the file, the line, what is wrong and how to fix it.
    pub fn read(path: &Path) -> Result<Users, String> {
        let shown = path.display();
        let size = std::fs::metadata(path).map(|about| about.len());
        let size = size.map_err(|error| format!("the password file {shown}: {error}"))?;
        if size > PASSWORD_FILE_BYTES_MAX {
            return Err(format!("the password file {shown} is larger than 16 MiB"));
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("the password file {shown}: {error}"))?;
        let users = Users::from_text(&text)
            .map_err(|error| format!("the password file {shown}, {error}"))?;
        Ok(Users { path: path.to_path_buf(), ..users })
    }

    /// Parses the lines of a file.
    ///
    /// # Errors
    /// As [`Users::read`], without the file.
    pub fn from_text(text: &str) -> Result<Users, String> {
        let mut users = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_end_matches('\r');
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let number = at + 1;
            let Some((name, hash)) = line.split_once(':') else {
                return Err(format!("line {number}: not NAME:HASH"));
            };
            if name.is_empty() || name.bytes().any(|b| b.is_ascii_control()) {
                return Err(format!("line {number}: a user without a name"));
            }
            check_hash(hash).map_err(|why| {
                format!(
                    "line {number}, user {name}: {why}; write it with: \
                                        htpasswd -B FILE {name}"
                )
            })?;
            if users.insert(name.as_bytes().into(), hash.into()).is_some() {
                return Err(format!("line {number}: the user {name} is listed twice"));
            }
        }
        if users.is_empty() {
            return Err("line 1: it has no user; add one with: htpasswd -B FILE NAME".into());
        }
        Ok(Users { hashes: Arc::new(users), path: PathBuf::new() })
    }

    /// The file that was read.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The hash of a user's password.
    pub fn hash_of(&self, name: &[u8]) -> Option<&str> {
        self.hashes.get(name).map(AsRef::as_ref)
    }

    /// The hash of some user. An unknown user's password is compared with it, so that the response
    /// time does not reveal whether the user exists.
    pub fn any_hash(&self) -> Option<&str> {
        self.hashes.values().next().map(AsRef::as_ref)
    }
}

/// Checks that a hash can be verified.
fn check_hash(hash: &str) -> Result<(), String> {
    let scheme = match hash {
        _ if ["$2y$", "$2b$", "$2a$"].iter().any(|bcrypt| hash.starts_with(bcrypt)) => {
            return match hash.parse::<HashParts>() {
                Ok(parts) if parts.get_cost() <= PASSWORD_COST_MAX => Ok(()),
                Ok(parts) => Err(format!(
                    "a bcrypt hash of cost {}, and the maximum is {PASSWORD_COST_MAX}",
                    parts.get_cost()
                )),
                Err(_) => Err("an incomplete bcrypt hash".to_owned()),
            };
        }
        _ if hash.starts_with("$apr1$") => "Apache's MD5 (apr1)",
        _ if hash.starts_with("$1$") => "MD5-crypt",
        _ if hash.starts_with("$5$") => "SHA-256-crypt",
        _ if hash.starts_with("$6$") => "SHA-512-crypt",
        _ if hash.starts_with("$y$") => "yescrypt",
        _ if hash.starts_with("$argon2") => "Argon2",
        _ if hash.starts_with("{SHA}") => "SHA-1 without salt",
        _ => "a password that is not hashed, or hashed by DES,",
    };
    Err(format!("{scheme} is not supported, only bcrypt ($2y$)"))
}

/// The treatment of a field that reveals the client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ClientField {
    /// Forwarded unchanged.
    #[default]
    Off,
    /// The client's address is appended.
    Add,
    /// The value is replaced by the client's address.
    Replace,
    /// Removed.
    Delete,
}

impl ClientField {
    /// Whether the field that is sent has the client's address.
    #[must_use]
    pub fn has_address(self) -> bool {
        matches!(self, ClientField::Add | ClientField::Replace)
    }
}

impl Protocol {
    /// The default protocols.
    pub(crate) fn usual() -> Vec<Protocol> {
        vec![Protocol("websocket".to_owned())]
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Protocol, String> {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~/".contains(&b);
        if text.is_empty() || text.len() > 64 || !text.bytes().all(token) {
            return Err(format!("{text:?} is not a protocol, such as websocket"));
        }
        let protocol = text.to_ascii_lowercase();
        if protocol == "h2c" || protocol.starts_with("http") {
            return Err(format!(
                "{text:?} is not allowed: requests within it would bypass every rule"
            ));
        }
        Ok(Protocol(protocol))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "$2y$04$Eoj8yU1OeQpN5XYtx0VtNeKMZ9tpE7bXu38BZbhPEMxcosd6e2VAS";

    #[test]
    fn domains_are_written_one_way() {
        for (text, as_) in [
            ("Example.COM", "example.com"),
            (".example.com", "example.com"),
            ("*.example.com.", "example.com"),
            ("com", "com"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ] {
            assert_eq!(text.parse::<Domain>().unwrap().as_str(), as_);
        }
        for wrong in ["", ".", "a..b", "a b", "bücher.example", "a/b", "*", "a.*.b", "http://a"] {
            assert!(wrong.parse::<Domain>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn ports_are_one_or_a_range() {
        for (text, within, beyond) in [("80", 80, 81), ("1025-65535", 65535, 1024), ("5-5", 5, 4)] {
            let ports = text.parse::<Ports>().unwrap();
            assert!(ports.contains(within) && !ports.contains(beyond), "{text}");
        }
        for wrong in ["", "0", "0-9", "9-5", "65536", "a", "1-2-3", "-1"] {
            assert!(wrong.parse::<Ports>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn upgrades_never_are_http() {
        assert_eq!("WebSocket".parse::<Protocol>().unwrap().as_str(), "websocket");
        for wrong in ["h2c", "H2C", "HTTP/2.0", "", "a b", "a,b"] {
            assert!(wrong.parse::<Protocol>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn password_files_say_where_they_are_wrong() {
        let good = format!("# a comment\n\njo:{HASH}\r\nann:{HASH}\n");
        let users = Users::from_text(&good).unwrap();
        assert_eq!(users.hash_of(b"ann"), Some(HASH));
        assert_eq!(users.hash_of(b"Ann"), None);
        assert_eq!(format!("{users:?}"), "Users(2)");
        let rows: [(&str, &[&str]); 8] = [
            ("jo", &["line 1", "NAME:HASH"]),
            (":x", &["line 1", "without a name"]),
            ("jo:secret", &["line 1", "jo", "not hashed", "htpasswd -B"]),
            ("\njo:$apr1$abc$def", &["line 2", "apr1", "bcrypt"]),
            ("jo:$6$abc$def", &["SHA-512-crypt"]),
            ("jo:$2y$05$short", &["incomplete"]),
            ("jo:$2y$31$Eoj8yU1OeQpN5XYtx0VtNeKMZ9tpE7bXu38BZbhPEMxcosd6e2VAS", &["cost 31"]),
            ("# a comment", &["no user"]),
        ];
        for (text, words) in rows {
            let said = Users::from_text(text).unwrap_err();
            for word in words {
                assert!(said.contains(word), "{said}");
            }
        }
        let twice = format!("jo:{HASH}\njo:{HASH}\n");
        assert!(Users::from_text(&twice).unwrap_err().contains("twice"));
        let nowhere = Users::read(Path::new("/nowhere/at-all")).unwrap_err();
        assert!(nowhere.contains("/nowhere/at-all"), "{nowhere}");
    }
}
