//! What the server is told to be. Parsed once; everything behind it is typed.
//!
//! The types of the sections stand here and in files by their names; the keys of a configuration
//! file, each declared once, in `keys`; what turns a file into the types, in `file`.

#![forbid(unsafe_code)]

mod file;
mod forward;
mod forward_keys;
#[doc(hidden)]
pub mod fuzzing;
mod keys;
pub mod limits;
mod problem;
mod purge;
mod reference;
mod routes;
mod table;
mod tls_keys;
mod units;
mod upstreams;
mod value;
mod via;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;
use store::disk::{Geometry, Verify};

pub use forward::{Domain, Forward, PasswordRealm, Ports, Protocol, TellClient, Users};

use crate::limits::Limits;
use access_log::LogFormat;
use dns::NameServers;
use transport::tls::{ClientTls, ServerTls, TlsPeer};

pub use file::{Process, Settings};
pub use problem::{Problem, Unusable};
pub use purge::PurgeRules;
pub use reference::{example, markdown};
pub use routes::{Action, FieldRule, Host, Path, Route};
pub use transport::tls::{CertificateFiles, ListenerTls, UpstreamTls};
pub use upstreams::{
    Balance, Ejection, ForwardedFields, Group, HealthCheck, HostSent, ProxyHeader, Queue, Retries,
    Server, Timeouts,
};
pub use via::{Via, ViaName};

/// A store on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// Its directory; made if it does not exist.
    pub path: PathBuf,
    /// How it is cut, by the bytes that it may take.
    pub geometry: Geometry,
    /// When its blocks are verified.
    pub verify: Verify,
}

impl DiskConfig {
    /// The fewest bytes of which a store can be made: 16 segments of 1 MiB, and the journals.
    pub const BYTES_MIN: u64 = 32 << 20;
    /// Unless another size is said.
    pub const BYTES_DEFAULT: u64 = 1 << 30;

    /// A store of at most so many bytes.
    ///
    /// # Errors
    /// There are too few.
    pub fn of(path: impl Into<PathBuf>, bytes: u64) -> Result<DiskConfig, String> {
        let geometry = Geometry::for_bytes(bytes).filter(|_| bytes >= DiskConfig::BYTES_MIN);
        let geometry = geometry.ok_or_else(|| {
            format!("a store on disk takes at least {} MiB", DiskConfig::BYTES_MIN >> 20)
        })?;
        Ok(DiskConfig { path: path.into(), geometry, verify: Verify::default() })
    }

    /// How it is opened.
    #[must_use]
    pub fn options(&self) -> store::disk::Options {
        let options = store::disk::Options::new(&self.path, self.geometry);
        store::disk::Options { verify: self.verify, ..options }
    }
}

/// The server's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients connect, and what is served there.
    pub listeners: Vec<Listener>,
    /// Where the requests of reverse listeners go.
    pub groups: Vec<Group>,
    /// Which of them go where; none: all to the first group.
    pub routes: Vec<Route>,
    /// Where names are looked up.
    pub name_servers: NameServers,
    /// Who may use forward listeners, and for what.
    pub forward: Forward,
    /// How messages name this proxy.
    pub via: Via,
    /// Protocols that a connection may be upgraded to.
    pub upgrades: Vec<Protocol>,
    /// Bytes of memory that stored responses may take, all cores together.
    pub memory_bytes: u64,
    /// Where responses are stored beyond it.
    pub disk: Option<DiskConfig>,
    /// Format of the access log.
    pub log_format: LogFormat,
    /// Limits and time-outs.
    pub limits: Limits,
    /// Who may purge, and how.
    pub purge: PurgeRules,
    /// How TLS is spoken with servers that clients of forward listeners name by `https` URLs;
    /// `None`: such URLs are refused.
    pub https: Option<Arc<ClientTls>>,
    /// Seed of the hash that clients' keys go through; `None` takes one from the system.
    pub hash_seed: Option<[u64; 2]>,
}

impl Config {
    /// Reverse mode at these addresses, with one group of these origins and the defaults.
    pub fn reverse(origins: impl IntoIterator<Item = Origin>, listen: &[SocketAddr]) -> Config {
        Config { groups: vec![Group::of("origin", origins)], ..Config::at(Role::Reverse, listen) }
    }

    /// Forward mode at these addresses, with the defaults.
    pub fn forward(listen: &[SocketAddr]) -> Config {
        Config::at(Role::Forward, listen)
    }

    fn at(role: Role, listen: &[SocketAddr]) -> Config {
        Config {
            listeners: listen.iter().map(|&address| Listener::plain(address, role)).collect(),
            groups: Vec::new(),
            routes: Vec::new(),
            name_servers: NameServers::default(),
            forward: Forward::default(),
            via: Via::default(),
            upgrades: Protocol::usual(),
            memory_bytes: 256 << 20,
            disk: None,
            log_format: LogFormat::default(),
            limits: Limits::default(),
            purge: PurgeRules::default(),
            https: None,
            hash_seed: None,
        }
    }
}

impl Config {
    /// What is dangerous or about to fail, though it can be used: a certificate that has expired, a
    /// server whose certificate is not verified.
    pub fn warnings(&self) -> Vec<String> {
        let servers = self.groups.iter().flat_map(|group| &group.servers);
        let peers = servers.filter_map(|server| server.origin.tls.as_ref());
        let of_servers = peers.flat_map(|peer| {
            peer.warnings().iter().map(move |text| format!("{}: {text}", peer.name()))
        });
        let listeners = self.listeners.iter().filter_map(|listener| listener.tls.as_ref());
        let of_listeners = listeners.flat_map(|tls| tls.warnings().to_vec());
        let of_https = self.https.iter().flat_map(|tls| tls.warnings().to_vec());
        let mut found: Vec<String> = of_listeners.chain(of_servers).chain(of_https).collect();
        found.sort();
        found.dedup();
        found
    }
}

/// An address where clients connect.
#[derive(Clone, Debug)]
pub struct Listener {
    /// The address, as configured: its port may be 0, which leaves the choice to the system.
    pub address: SocketAddr,
    /// What is served there.
    pub role: Role,
    /// TLS, and nothing else, is spoken there.
    pub tls: Option<Arc<ServerTls>>,
    /// Each connection begins with a PROXY header, and comes from one of these networks. The
    /// address that it tells is the client's.
    pub proxies: Option<Vec<IpNet>>,
}

impl Listener {
    /// HTTP in the clear, from whoever connects.
    pub fn plain(address: SocketAddr, role: Role) -> Listener {
        Listener { address, role, tls: None, proxies: None }
    }
}

/// What a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Stands for its origins; requests are in origin-form.
    Reverse,
    /// Serves clients of its own: requests name their server themselves, in absolute-form.
    Forward,
}

/// The origin of reverse mode.
#[derive(Clone, Debug)]
pub struct Origin {
    /// `host` or `host:port`, as the URL gave it.
    pub authority: String,
    /// Its addresses, in the order in which they are tried.
    pub addresses: Vec<SocketAddr>,
    /// With whom TLS is spoken there; `None`: HTTP in the clear.
    pub tls: Option<Arc<TlsPeer>>,
}

impl Origin {
    /// Parses `http://host[:port][/]`, or `https://`, and looks the host up. The certificate of one
    /// with TLS must lead to a root of the system, unless [`Origin::secure`] says otherwise.
    ///
    /// # Errors
    /// One line: what is wrong with the URL, or that the host has no address.
    pub fn from_url(url: &str) -> Result<Origin, String> {
        let (rest, secure) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (rest, false),
            (_, Some(rest)) => (rest, true),
            _ => {
                let text = "begins neither with http:// nor with https://";
                return Err(format!("the origin {url:?} {text}"));
            }
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.is_empty() || authority.contains(['/', '?', '#', '@', ' ']) {
            let scheme = if secure { "https" } else { "http" };
            return Err(format!(
                "the origin {url:?} is not {scheme}://host[:port] and nothing more"
            ));
        }
        let port = if secure { 443 } else { 80 };
        let with_port =
            if has_port(authority) { authority.to_owned() } else { format!("{authority}:{port}") };
        let addresses: Vec<SocketAddr> = with_port
            .to_socket_addrs()
            .map_err(|error| format!("the origin's host in {url:?} has no address: {error}"))?
            .collect();
        if addresses.is_empty() {
            return Err(format!("the origin's host in {url:?} has no address"));
        }
        let mut origin = Origin { authority: authority.to_owned(), addresses, tls: None };
        if secure {
            origin.secure(&ClientTls::load(&UpstreamTls::default())?)?;
        }
        Ok(origin)
    }

    /// From now on TLS is spoken with it, as this says.
    ///
    /// # Errors
    /// The host can be in no certificate.
    pub fn secure(&mut self, tls: &Arc<ClientTls>) -> Result<(), String> {
        let (host, _) = self.host_and_port(443);
        let peer = TlsPeer::of(tls, host.as_bytes())
            .ok_or_else(|| format!("{host:?} is neither a host name nor an address"))?;
        self.tls = Some(Arc::new(peer));
        Ok(())
    }

    /// The scheme of its URL.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// The port that its URL need not tell.
    pub fn default_port(&self) -> u16 {
        if self.tls.is_some() { 443 } else { 80 }
    }
}

/// Whether an authority ends in a port; the colons of a bracketed IPv6 address are not one.
fn has_port(authority: &str) -> bool {
    let after_brackets = authority.rfind(']').map_or(authority, |at| &authority[at..]);
    after_brackets.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        let origin = Origin::from_url("http://127.0.0.1:8000/").unwrap();
        assert_eq!(origin.authority, "127.0.0.1:8000");
        assert_eq!(origin.addresses, ["127.0.0.1:8000".parse().unwrap()]);
        let v6 = Origin::from_url("http://[::1]").unwrap();
        assert_eq!(v6.addresses, ["[::1]:80".parse().unwrap()]);
        for wrong in [
            "ftp://a",
            "https://",
            "127.0.0.1:80",
            "http://",
            "http://a/b",
            "http://u@h",
            "http://h:99999",
        ] {
            assert!(Origin::from_url(wrong).is_err(), "{wrong}");
        }
    }
}
