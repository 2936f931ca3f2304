//! Our server and the peers, each with its own configuration in a directory that is removed at the
//! end.
//!
//! A server with one worker is pinned to CPU 0. With more workers the scheduler places them.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use harness::Error;
use harness::recipe::{Place, Recipe};
use serde::Serialize;
use serde_json::{Value, json};

use super::tree::Tree;
use crate::servers::{Running, start_ours, start_peer};

/// Memory of a cache: enough for the whole tree.
const MEMORY: &str = "256M";

/// Where a server takes the bodies from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum From {
    /// Files of the tree, through the page cache.
    Files,
    /// Its own memory, filled from an origin.
    Cache,
}

/// The name of our server.
pub(super) const OURS: &str = "plimsoll";

const PEERS: [(From, Recipe); 4] = [
    (
        From::Files,
        Recipe {
            config: include_str!("peers/nginx.conf"),
            command: "{program} -p {home} -c {config}",
            user: "user root;",
            ..Recipe::named("nginx")
        },
    ),
    (
        From::Files,
        Recipe {
            config: include_str!("peers/lighttpd.conf"),
            command: "{program} -D -f {config}",
            ..Recipe::named("lighttpd")
        },
    ),
    (
        From::Cache,
        Recipe {
            config: include_str!("peers/haproxy.cfg"),
            command: "{program} -db -q -f {config}",
            ..Recipe::named("haproxy")
        },
    ),
    (
        From::Cache,
        Recipe {
            program: "varnishd",
            version: "-V",
            config: include_str!("peers/varnish.vcl"),
            command: "{program} -F -j none -T none -s malloc,256m -p timeout_idle=600 \
                      -p thread_pools={workers} -a {listen},HTTP -f {config} -n {home}/varnish",
            ..Recipe::named("varnish")
        },
    ),
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

/// The identity of a server in the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) name: &'static str,
    pub(super) from: From,
    pub(super) workers: u16,
}

/// Starts all servers with so many workers, and requests every file of the tree from each.
pub(super) fn start(
    setup: &Setup<'_>,
    workers: u16,
    missing: &mut Vec<Value>,
) -> Result<Vec<(Id, Running)>, Error> {
    let cpu = (workers == 1 && setup.cpus > 1).then_some(0);
    let place = Place { home: setup.home, cpu, origin: setup.origin };
    let more = ["--memory".into(), MEMORY.into(), "--workers".into(), workers.to_string()];
    let ours = start_ours(setup.program, place, &[], &more)?;
    let failed = |error: io::Error| Error::Start(OURS.into(), error.to_string());
    setup.tree.request_all(ours.address).map_err(failed)?;
    let mut running = vec![(Id { name: OURS, from: From::Cache, workers }, ours)];
    for (from, peer) in PEERS {
        let home = setup.home.join(format!("{}-{workers}", peer.name));
        let place = Place { home: &home, ..place };
        let started = start_peer(&peer, place, &[], &setup.values(workers)).and_then(|started| {
            let filled = setup.tree.request_all(started.address);
            filled.map(|()| started).map_err(|error| error.to_string())
        });
        match started {
            Ok(started) => running.push((Id { name: peer.name, from, workers }, started)),
            Err(why) => missing.push(json!({"server": peer.name, "why": why})),
        }
    }
    Ok(running)
}

/// The versions of the installed peers, each as the peer prints it.
pub(super) fn versions() -> Vec<String> {
    let versions = PEERS.iter().filter_map(|(_, peer)| {
        let version = peer.version()?;
        Some(format!("{} {version}", peer.name))
    });
    versions.collect()
}

impl Setup<'_> {
    fn values(&self, workers: u16) -> [(&'static str, String); 4] {
        // Without workers lighttpd is one process that serves.
        let more_workers = if workers == 1 { 0 } else { workers };
        [
            ("tree", self.files.display().to_string()),
            ("files", (2 * self.tree.files).to_string()),
            ("workers", workers.to_string()),
            ("more_workers", more_workers.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_in_a_configuration_is_filled_in() {
        let home = tempfile::tempdir().unwrap();
        let (home, tree) = (home.path(), &Tree::of(10, 1));
        let origin = "127.0.0.1:1".parse().unwrap();
        let setup = Setup { program: home, home, files: home, tree, origin, cpus: 1 };
        let address: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        for (_, peer) in PEERS {
            for workers in [1, 3] {
                let place = Place { home, cpu: None, origin };
                let config = peer.configuration(place, address, &setup.values(workers));
                // Text in braces on one line is a name that was not filled in.
                let unfilled = config.lines().find(|line| {
                    let name = line.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
                    name.is_some_and(|(name, _)| !name.trim().is_empty())
                });
                assert_eq!(unfilled, None, "{}", peer.name);
                let has_address = |text: &str| text.contains("8080") || text.contains("{listen}");
                assert!([&config, peer.command].iter().any(|text| has_address(text)));
            }
        }
    }
}
