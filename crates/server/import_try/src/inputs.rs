//! The files of the other server, and the upstreams and paths that they name.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::endpoints;
use crate::words::Files;

/// The file of the other server.
#[derive(Clone, Debug)]
pub struct Original {
    /// Its name in notes.
    pub name: String,
    /// Its absolute path.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// The included files, by the name or pattern that includes them.
    pub files: Files,
}

/// Where upstreams are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Upstreams {
    pub(crate) ports: BTreeSet<u16>,
    pub(crate) loopback: BTreeSet<SocketAddr>,
    pub(crate) sockets: BTreeSet<PathBuf>,
    pub(crate) resolvers: BTreeSet<Ipv4Addr>,
}

impl Upstreams {
    pub(crate) fn add_url(&mut self, text: &str) {
        if let Some((host, port)) = endpoints::of_url(text) {
            self.add(&host, port);
        } else if let Some(port) = text.split_once("://").and_then(|(_, rest)| {
            // The host is a variable, and the port may be a number.
            rest.split('/').next()?.rsplit_once(':')?.1.parse().ok()
        }) {
            self.ports.insert(port);
        }
    }

    pub(crate) fn add_host(&mut self, text: &str, port: u16) {
        if let Some((host, port)) = endpoints::host_and_port(text, port) {
            self.add(&host, port);
        }
    }

    fn add(&mut self, host: &str, port: u16) {
        let address = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) => address,
            Err(_) => endpoints::address_of(host).into(),
        };
        match address.is_loopback() || address.is_unspecified() {
            true => _ = self.loopback.insert(SocketAddr::new(address, port)),
            false => _ = self.ports.insert(port),
        }
    }

    pub(crate) fn add_socket(&mut self, text: &str) {
        let path = text.split(':').next().unwrap_or_default();
        if path.starts_with('/') && !path.contains('$') {
            self.sockets.insert(PathBuf::from(path));
        }
    }
}

/// The paths in a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths {
    /// What relative paths are relative to.
    pub(crate) prefix: PathBuf,
    pub(crate) read: Vec<PathBuf>,
    pub(crate) written: Vec<PathBuf>,
    /// Files that are included by name.
    pub(crate) included: Vec<PathBuf>,
    /// Certificates and, where it is false, keys.
    pub(crate) certificates: Vec<(PathBuf, bool)>,
    /// Certificates with their keys.
    pub(crate) bundles: Vec<PathBuf>,
    /// Parameters of a key exchange.
    pub(crate) parameters: Vec<PathBuf>,
}
