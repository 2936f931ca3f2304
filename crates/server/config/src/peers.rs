//! Parents and siblings: other proxies that a miss may be sent to.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ipnet::IpNet;

use super::{Domain, Ejection, Group, Queue, Timeouts};
use crate::limits::LOGIN_FILE_BYTES_MAX;

/// The name of the group of parents in logs and metrics.
pub const PARENTS: &str = "parents";

/// Where misses go besides their origins.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    /// The peers that are asked before a request is sent.
    pub asked: Vec<AskedPeer>,
    /// How long a request waits for their answers.
    pub query_timeout: Duration,
    /// How long peers may have a response that was purged or changed here.
    pub doubt_time: Duration,
    /// Peers are notified of changes by unsafe methods.
    pub clear_changed: bool,
    /// The parents, as a group of servers.
    pub parents: Option<Group>,
    /// What is sent to no peer.
    pub always_direct: Vec<DirectRule>,
    /// The same, by method.
    pub always_direct_methods: Vec<String>,
    /// What is never sent to its origin by us.
    pub never_direct: Vec<DirectRule>,
}

/// What a rule about the way of a request concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectRule {
    /// Every request.
    All,
    /// Requests for a domain and its subdomains.
    Domain(Domain),
}

impl FromStr for DirectRule {
    type Err = String;

    fn from_str(text: &str) -> Result<DirectRule, String> {
        match text {
            "*" => Ok(DirectRule::All),
            _ => text.parse().map(DirectRule::Domain),
        }
    }
}

impl fmt::Display for DirectRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DirectRule::All => f.write_str("*"),
            DirectRule::Domain(domain) => domain.fmt(f),
        }
    }
}

/// A peer that answers queries, or whose digest is fetched.
#[derive(Clone, Debug)]
pub struct AskedPeer {
    /// How it is used.
    pub kind: PeerKind,
    /// The peer as a server for requests: a group of one, with its name.
    pub group: Group,
    /// The protocol of the queries, and its UDP port.
    pub queries: Option<Queries>,
    /// Its cache digest is fetched. While there is a useful one, no query is sent.
    pub digest: bool,
}

impl AskedPeer {
    /// A peer as a group of one. What it fails to do, the origin can do: so one failure is enough
    /// to leave it alone for a while, and no request waits for a place. A sibling can send a stored
    /// response at once: it has `hit_timeout` for that.
    pub fn new(
        kind: PeerKind,
        group: Group,
        queries: Option<Queries>,
        hit_timeout: Duration,
    ) -> AskedPeer {
        let ejection = Ejection {
            failures: 1,
            share_percent_max: 100,
            statuses: Vec::new(),
            ..group.ejection
        };
        let queue = Queue { length_max: 0, ..group.queue };
        let within = |limit: Option<Duration>| {
            Some(limit.map_or(hit_timeout, |limit| limit.min(hit_timeout)))
        };
        let timeouts = match kind {
            PeerKind::Parent => group.timeouts,
            PeerKind::Sibling => Timeouts {
                connect: within(group.timeouts.connect),
                first_byte: within(group.timeouts.first_byte),
                ..group.timeouts
            },
        };
        let group = Group { ejection, queue, timeouts, ..group };
        AskedPeer { kind, group, queries, digest: false }
    }
}

/// A protocol of queries, with a UDP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queries {
    /// ICP (RFC 2186), without fields.
    Icp(u16),
    /// HTCP (RFC 2756), with the fields of the request.
    Htcp(u16),
}

impl Queries {
    /// The port.
    pub fn port(self) -> u16 {
        match self {
            Queries::Icp(port) | Queries::Htcp(port) => port,
        }
    }
}

/// Answers to the queries of other caches.
#[derive(Clone, Debug)]
pub struct QueryServer {
    /// Where queries are received.
    pub listen: SocketAddr,
    /// Networks whose queries are answered.
    pub allow_from: Vec<IpNet>,
    /// Networks that may purge by a CLR of HTCP.
    pub clear_from: Vec<IpNet>,
}

impl QueryServer {
    /// Whether queries from this address are answered.
    pub fn allows(&self, from: IpAddr) -> bool {
        holds(&self.allow_from, from)
    }

    /// Whether this address may purge.
    pub fn allows_clearing(&self, from: IpAddr) -> bool {
        holds(&self.clear_from, from)
    }
}

/// Our cache digest for other caches.
#[derive(Clone, Debug)]
pub struct DigestServer {
    /// Networks that may fetch it.
    pub allow_from: Vec<IpNet>,
    /// How often it is made.
    pub interval: Duration,
}

impl DigestServer {
    /// Whether this address may fetch it.
    pub fn allows(&self, from: IpAddr) -> bool {
        holds(&self.allow_from, from)
    }
}

fn holds(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
}

/// How a peer is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerKind {
    /// It fetches what it has not stored.
    #[default]
    Parent,
    /// It is sent requests only for what it has stored.
    Sibling,
}

/// The name and the password by which we log in to a peer.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    line: Arc<[u8]>,
    /// The file.
    path: PathBuf,
}

/// Does not show the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", self.path.display())
    }
}

impl Login {
    /// Reads a file with one line, `NAME:PASSWORD`.
    ///
    /// # Errors
    /// One line: the file, and what is wrong with it.
    pub fn read(path: &Path) -> Result<Login, String> {
        let shown = path.display();
        let wrong = |error: std::io::Error| format!("the login file {shown}: {error}");
        if std::fs::metadata(path).map_err(wrong)?.len() > LOGIN_FILE_BYTES_MAX {
            return Err(format!("the login file {shown} is not one line NAME:PASSWORD"));
        }
        let text = std::fs::read_to_string(path).map_err(wrong)?;
        let login = Login::from_text(&text).map_err(|why| format!("the login file {shown} {why}"));
        Ok(Login { path: path.to_path_buf(), ..login? })
    }

    /// From the text of a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_text(text: &str) -> Result<Login, String> {
        let login = text.trim_end_matches(['\r', '\n']);
        let is_one_line = !login.bytes().any(|byte| byte.is_ascii_control());
        match login.split_once(':') {
            Some((name, _)) if is_one_line && !name.is_empty() => {
                let line = format!("Proxy-Authorization: Basic {}\r\n", BASE64.encode(login));
                Ok(Login { line: line.into_bytes().into(), path: PathBuf::new() })
            }
            _ => Err("is not one line NAME:PASSWORD".to_owned()),
        }
    }

    /// The field line, with its end (RFC 7617, 2).
    pub fn line(&self) -> &[u8] {
        &self.line
    }

    /// The file that was read.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_one_line_and_is_not_shown() {
        let login = Login::from_text("jo:secret:more\n").unwrap();
        let line = b"Proxy-Authorization: Basic am86c2VjcmV0Om1vcmU=\r\n";
        assert_eq!(login.line(), line);
        assert_eq!(format!("{login:?}"), "Login()");
        for wrong in ["", "jo", ":secret", "jo:secret\nann:secret", "jo:se\rcret"] {
            assert!(Login::from_text(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_rule_is_a_domain_or_everything() {
        for text in ["*", "example.com"] {
            assert_eq!(text.parse::<DirectRule>().unwrap().to_string(), text);
        }
        assert!("a b".parse::<DirectRule>().is_err());
    }
}
