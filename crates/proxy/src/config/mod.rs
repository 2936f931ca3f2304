//! What the server is told to be. Parsed once; everything behind it is typed.
//!
//! The types of the sections stand here and in files by their names; the keys of a configuration
//! file, each declared once, in `keys`; what turns a file into the types, in `file`.

mod file;
mod forward;
mod forward_keys;
mod keys;
mod problem;
mod purge;
mod reference;
mod routes;
mod table;
mod tls;
mod units;
mod upstreams;
mod value;

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use ipnet::IpNet;

pub use forward::{Domain, Forward, PasswordRealm, Ports, Protocol, TellClient, Users};

use crate::access_log::LogFormat;
use crate::limits::Limits;
use crate::resolve::NameServers;
use crate::tls::ServerTls;

pub use file::{Process, Settings};
pub use problem::{Problem, Unusable};
pub use purge::PurgeRules;
pub use reference::{example, markdown};
pub use routes::{Action, FieldRule, Host, Path, Route};
pub use tls::{CertificateFiles, ListenerTls};
pub use upstreams::{
    Balance, Ejection, ForwardedFields, Group, HealthCheck, HostSent, Queue, Retries, Server,
    Timeouts,
};

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
    /// Protocols that a connection may be upgraded to.
    pub upgrades: Vec<Protocol>,
    /// Bytes of memory that stored responses may take, all cores together.
    pub memory_bytes: u64,
    /// Format of the access log.
    pub log_format: LogFormat,
    /// Limits and time-outs.
    pub limits: Limits,
    /// Who may purge, and how.
    pub purge: PurgeRules,
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
            upgrades: Protocol::usual(),
            memory_bytes: 256 << 20,
            log_format: LogFormat::default(),
            limits: Limits::default(),
            purge: PurgeRules::default(),
            hash_seed: None,
        }
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
}

impl Origin {
    /// Parses `http://host[:port][/]` and looks the host up.
    ///
    /// # Errors
    /// One line: what is wrong with the URL, or that the host has no address.
    pub fn from_url(url: &str) -> Result<Origin, String> {
        let rest = url.strip_prefix("http://").ok_or_else(|| {
            format!(
                "the origin {url:?} does not begin with http:// (TLS to origins is not there yet)"
            )
        })?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.is_empty() || authority.contains(['/', '?', '#', '@', ' ']) {
            return Err(format!("the origin {url:?} is not http://host[:port] and nothing more"));
        }
        let with_port =
            if has_port(authority) { authority.to_owned() } else { format!("{authority}:80") };
        let addresses: Vec<SocketAddr> = with_port
            .to_socket_addrs()
            .map_err(|error| format!("the origin's host in {url:?} has no address: {error}"))?
            .collect();
        if addresses.is_empty() {
            return Err(format!("the origin's host in {url:?} has no address"));
        }
        Ok(Origin { authority: authority.to_owned(), addresses })
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
        for wrong in
            ["https://a", "127.0.0.1:80", "http://", "http://a/b", "http://u@h", "http://h:99999"]
        {
            assert!(Origin::from_url(wrong).is_err(), "{wrong}");
        }
    }
}
