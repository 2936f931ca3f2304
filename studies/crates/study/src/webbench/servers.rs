//! The servers: ours and the peers, each started on loopback with its own configuration in a
//! directory that is removed at the end.
//!
//! A server with one worker is pinned to CPU 0. With more workers the scheduler places them. What
//! never happens: a server that is not installed, or does not start, is left out silently.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use harness::{Error, peer};
use load::family;
use serde::Serialize;

use super::tree::Tree;
use crate::servers::{Guard, filled, not_installed, start_ours, start_peer, version};

/// Memory of a cache: enough for the whole tree.
const MEMORY: &str = "256M";

/// Where a server takes the bodies from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum From {
    /// Files of the tree, through the page cache.
    Files,
    /// Its own memory, filled from an origin.
    Cache,
}

/// A kind of server.
#[derive(Clone, Copy, Debug)]
struct Peer {
    name: &'static str,
    program: &'static str,
    from: From,
    config: &'static str,
    /// The flag that prints its version.
    version: &'static str,
}

/// The name of our server.
pub(super) const OURS: &str = "plimsoll";

const PEERS: [Peer; 4] = [
    Peer {
        name: "nginx",
        program: "nginx",
        from: From::Files,
        config: include_str!("peers/nginx.conf"),
        version: "-v",
    },
    Peer {
        name: "lighttpd",
        program: "lighttpd",
        from: From::Files,
        config: include_str!("peers/lighttpd.conf"),
        version: "-v",
    },
    Peer {
        name: "haproxy",
        program: "haproxy",
        from: From::Cache,
        config: include_str!("peers/haproxy.cfg"),
        version: "-v",
    },
    Peer {
        name: "varnish",
        program: "varnishd",
        from: From::Cache,
        config: include_str!("peers/varnish.vcl"),
        version: "-V",
    },
];

/// What every server is started with.
pub(super) struct Setup<'s> {
    /// Our own program.
    pub(super) program: &'s Path,
    /// The directory for configurations and the servers' own files.
    pub(super) home: &'s Path,
    /// The tree of files, and its description.
    pub(super) files: &'s Path,
    pub(super) tree: &'s Tree,
    pub(super) origin: SocketAddr,
    /// Number of CPUs.
    pub(super) cpus: usize,
}

impl Setup<'_> {
    /// The CPU for a server with so many workers, if it is pinned.
    fn cpu(&self, workers: u16) -> Option<usize> {
        (workers == 1 && self.cpus > 1).then_some(0)
    }
}

/// A server that could not be measured, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    /// Its name.
    pub server: String,
    /// The reason.
    pub why: String,
}

/// A running server.
pub(super) struct Running {
    pub(super) name: &'static str,
    pub(super) from: From,
    pub(super) workers: u16,
    pub(super) address: SocketAddr,
    guard: Guard,
}

impl Running {
    /// All of its processes.
    pub(super) fn family(&self) -> Vec<i32> {
        family::of(self.guard.pid())
    }
}

/// Starts all servers with so many workers, and requests every file of the tree from each.
pub(super) fn start(
    setup: &Setup<'_>,
    workers: u16,
    missing: &mut Vec<Missing>,
) -> Result<Vec<Running>, Error> {
    let ours = start_plimsoll(setup, workers)?;
    let failed = |error: io::Error| Error::Start(OURS.into(), error.to_string());
    setup.tree.request_all(ours.address).map_err(failed)?;
    let mut running = vec![ours];
    for peer in PEERS {
        match peer.start(setup, workers) {
            Ok(started) => running.push(started),
            Err(why) => missing.push(Missing { server: peer.name.to_owned(), why }),
        }
    }
    Ok(running)
}

/// The versions of the installed peers, each as the peer prints it.
pub(super) fn versions() -> Vec<String> {
    let installed = PEERS.iter().filter_map(|peer| Some((peer, peer::find(peer.program)?)));
    let named = installed.filter_map(|(peer, path)| {
        Some(format!("{} {}", peer.name, version(&path, peer.version)?))
    });
    named.collect()
}

fn start_plimsoll(setup: &Setup<'_>, workers: u16) -> Result<Running, Error> {
    let more = ["--memory".into(), MEMORY.into(), "--workers".into(), workers.to_string()];
    let (guard, address) = start_ours(setup.program, &[], setup.origin, setup.cpu(workers), &more)?;
    Ok(Running { name: OURS, from: From::Cache, workers, address, guard })
}

impl Peer {
    /// Starts it, or says why that failed.
    fn start(&self, setup: &Setup<'_>, workers: u16) -> Result<Running, String> {
        let path = peer::find(self.program).ok_or_else(|| not_installed(self.name))?;
        let home = setup.home.join(format!("{}-{workers}", self.name));
        let configure = |address| self.fill(setup, workers, &home, address);
        let command = |config: &Path, address| {
            let mut command = Command::new(path);
            command.args(self.arguments(workers, &home, config, address));
            command
        };
        let (guard, address) = start_peer(&home, setup.cpu(workers), configure, command)?;
        setup.tree.request_all(address).map_err(|error| error.to_string())?;
        Ok(Running { name: self.name, from: self.from, workers, address, guard })
    }

    fn fill(&self, setup: &Setup<'_>, workers: u16, home: &Path, address: SocketAddr) -> String {
        let root = rustix::process::geteuid().is_root();
        // Without workers lighttpd is one process that serves.
        let more_workers = if workers == 1 { 0 } else { workers };
        let values = [
            ("user", if root { "user root;".to_owned() } else { String::new() }),
            ("home", home.display().to_string()),
            ("tree", setup.files.display().to_string()),
            ("files", (2 * setup.tree.files).to_string()),
            ("listen", address.to_string()),
            ("host", address.ip().to_string()),
            ("port", address.port().to_string()),
            ("workers", workers.to_string()),
            ("more_workers", more_workers.to_string()),
            ("origin", setup.origin.to_string()),
            ("origin_host", setup.origin.ip().to_string()),
            ("origin_port", setup.origin.port().to_string()),
        ];
        filled(self.config, &values)
    }

    fn arguments(
        &self,
        workers: u16,
        home: &Path,
        config: &Path,
        address: SocketAddr,
    ) -> Vec<String> {
        let config = config.display().to_string();
        let home = home.display().to_string();
        match self.program {
            "nginx" => vec!["-p".into(), home, "-c".into(), config],
            "lighttpd" => vec!["-D".into(), "-f".into(), config],
            "haproxy" => vec!["-db".into(), "-q".into(), "-f".into(), config],
            _ => {
                let fixed = "-F -j none -T none -s malloc,256m -p timeout_idle=600";
                let mut all: Vec<String> = fixed.split(' ').map(str::to_owned).collect();
                all.extend(["-p".into(), format!("thread_pools={workers}")]);
                all.extend(["-a".into(), format!("{address},HTTP"), "-f".into(), config]);
                all.extend(["-n".into(), format!("{home}/varnish")]);
                all
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup<'s>(home: &'s Path, tree: &'s Tree) -> Setup<'s> {
        let origin = "127.0.0.1:1".parse().unwrap();
        Setup { program: Path::new("none"), home, files: home, tree, origin, cpus: 1 }
    }

    #[test]
    fn every_name_in_a_configuration_is_filled_in() {
        let home = tempfile::tempdir().unwrap();
        let tree = Tree::of(10, 1);
        let address: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        for peer in PEERS {
            for workers in [1, 3] {
                let config = peer.fill(&setup(home.path(), &tree), workers, home.path(), address);
                // Text in braces on one line is a name that was not filled in.
                let unfilled = config.lines().find(|line| {
                    let name = line.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
                    name.is_some_and(|(name, _)| !name.trim().is_empty())
                });
                assert_eq!(unfilled, None, "{}", peer.name);
                let all = peer.arguments(workers, home.path(), &home.path().join("c"), address);
                assert!([&config, &all.join(" ")].iter().any(|text| text.contains("8080")));
            }
        }
    }

    #[test]
    fn a_missing_peer_is_reported_with_the_command_that_installs_it() {
        let home = tempfile::tempdir().unwrap();
        let tree = Tree::of(1, 1);
        let none = Peer { name: "none", program: "no-such-peer", ..PEERS[0] };
        let Err(why) = none.start(&setup(home.path(), &tree), 1) else { panic!("it started") };
        assert_eq!(why, "not installed: apt-get install none");
    }
}
