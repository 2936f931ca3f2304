//! The servers, each once for every call by which it can wait.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{Cpus, Error, peer};
use serde::{Deserialize, Serialize};

use crate::servers::{Guard, filled, not_installed, start_ours, start_peer};

/// Length of the body of every response.
const BODY_BYTES: usize = 1024;
/// Descriptors that a server needs in addition to those of connections.
const OTHER_DESCRIPTORS: u32 = 512;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Server {
    Haproxy,
    Lighttpd,
    Plimsoll,
}

impl Server {
    pub(super) const ALL: [Server; 3] = [Server::Haproxy, Server::Lighttpd, Server::Plimsoll];

    pub(super) fn name(self) -> &'static str {
        match self {
            Server::Haproxy => "haproxy",
            Server::Lighttpd => "lighttpd",
            Server::Plimsoll => "plimsoll",
        }
    }

    /// The path that is requested.
    pub(super) fn path(self) -> &'static str {
        match self {
            Server::Haproxy | Server::Lighttpd => "/body",
            Server::Plimsoll => "/obj/1?size=1024",
        }
    }
}

/// A server and how it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Variant {
    pub(super) server: Server,
    /// The call.
    pub(super) wait: &'static str,
    /// Whether the library is preloaded.
    pub(super) boosted: bool,
}

/// The call that the others are compared with.
pub(super) const NATIVE: &str = "epoll";

const fn plain(server: Server, wait: &'static str) -> Variant {
    Variant { server, wait, boosted: false }
}

const fn boosted(server: Server, wait: &'static str) -> Variant {
    Variant { server, wait, boosted: true }
}

pub(super) const VARIANTS: [Variant; 11] = [
    plain(Server::Haproxy, NATIVE),
    plain(Server::Haproxy, "poll"),
    boosted(Server::Haproxy, "poll"),
    plain(Server::Lighttpd, NATIVE),
    plain(Server::Lighttpd, "poll"),
    boosted(Server::Lighttpd, "poll"),
    plain(Server::Plimsoll, NATIVE),
    plain(Server::Plimsoll, "poll"),
    boosted(Server::Plimsoll, "poll"),
    plain(Server::Plimsoll, "select"),
    boosted(Server::Plimsoll, "select"),
];

impl Variant {
    /// `haproxy on poll, boosted`
    pub(super) fn name(self) -> String {
        let boosted = if self.boosted { ", boosted" } else { "" };
        format!("{} on {}{boosted}", self.server.name(), self.wait)
    }
}

/// What every server is started with.
pub(super) struct Setup<'s> {
    pub(super) program: &'s Path,
    pub(super) home: &'s Path,
    pub(super) origin: SocketAddr,
    pub(super) cpus: Cpus,
    /// The highest number of cold connections.
    pub(super) most: u32,
}

/// A running server.
pub(super) struct Running {
    pub(super) variant: Variant,
    pub(super) address: SocketAddr,
    guard: Guard,
    stats: PathBuf,
}

/// The statistics that the library wrote when the server ended.
#[derive(Clone, Debug, Serialize)]
pub struct LibraryStats {
    /// The server and the call by which it waits.
    pub of: String,
    /// The library's counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// A line of the library's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Waits that the program made.
    pub calls: u64,
    /// Waits that went straight to the original, because of few descriptors.
    pub plain: u64,
    /// Waits that the original ended.
    pub fallbacks: u64,
    /// Descriptors that were checked one by one.
    pub probes: u64,
    /// Probed descriptors that were ready.
    pub hits: u64,
    /// Plain polls of everything.
    pub audits: u64,
    /// Audits that contradicted the epoll set.
    pub audit_differences: u64,
}

impl Running {
    pub(super) fn pid(&self) -> i32 {
        self.guard.pid()
    }

    /// Ends it and gives the statistics of the library, if it wrote them.
    pub(super) fn end(self) -> Option<LibraryStats> {
        let Running { variant, guard, stats, .. } = self;
        drop(guard);
        let text = std::fs::read_to_string(stats).ok()?;
        // Each process writes a line when it ends; the server is the one that waited most.
        let counts = text.lines().filter_map(|line| serde_json::from_str::<Counts>(line).ok());
        let counts = counts.max_by_key(|counts| counts.calls)?;
        Some(LibraryStats { of: variant.name(), counts })
    }
}

/// Starts a server. The inner error says why a peer is missing.
pub(super) fn start(setup: &Setup<'_>, variant: Variant) -> Result<Result<Running, String>, Error> {
    let home = setup.home.join(variant.name().replace([' ', ','], "-"));
    std::fs::create_dir_all(&home).map_err(|error| Error::Directory(home.clone(), error))?;
    let stats = home.join("stats.json");
    let mut boost = Vec::new();
    if variant.boosted {
        boost.extend(["boost", "--stats", &stats.display().to_string(), "--"].map(String::from));
    }
    let started = if variant.server == Server::Plimsoll {
        if variant.boosted {
            boost.push(setup.program.display().to_string());
        }
        let more = ["--workers", "1", "--backend", variant.wait].map(String::from);
        Ok(start_ours(setup.program, &boost, setup.origin, setup.cpus.server, &more)?)
    } else {
        start_variant(setup, variant, &home, &boost)
    };
    Ok(started.map(|(guard, address)| Running { variant, address, guard, stats }))
}

fn start_variant(
    setup: &Setup<'_>,
    variant: Variant,
    home: &Path,
    boost: &[String],
) -> Result<(Guard, SocketAddr), String> {
    let name = variant.server.name();
    let path = peer::find(name).ok_or_else(|| not_installed(name))?;
    let body: String = ('a'..='z').cycle().take(BODY_BYTES).collect();
    // All servers share one file, because a server may derive an entity tag from its inode.
    let shared = setup.home.join("body");
    if !shared.exists() {
        std::fs::write(&shared, body).map_err(|error| format!("{}: {error}", shared.display()))?;
    }
    let configure = |address| fill(setup, variant, home, address);
    let command = |config: &Path, _| {
        let mut command = Command::new(if variant.boosted { setup.program } else { &path });
        command.args(boost);
        if variant.boosted {
            command.arg(&path);
        }
        match variant.server {
            Server::Haproxy => {
                command.args(["-db", "-q"]).args((variant.wait == "poll").then_some("-de"))
            }
            _ => command.arg("-D"),
        };
        command.arg("-f").arg(config);
        command
    };
    start_peer(home, setup.cpus.server, configure, command)
}

fn fill(setup: &Setup<'_>, variant: Variant, home: &Path, address: SocketAddr) -> String {
    let config = match variant.server {
        Server::Haproxy => include_str!("haproxy.cfg"),
        _ => include_str!("lighttpd.conf"),
    };
    let handler = if variant.wait == "poll" { "poll" } else { "linux-sysepoll" };
    let values = [
        ("home", home.display().to_string()),
        ("body", setup.home.join("body").display().to_string()),
        ("tree", setup.home.display().to_string()),
        ("listen", address.to_string()),
        ("host", address.ip().to_string()),
        ("port", address.port().to_string()),
        ("handler", handler.to_owned()),
        ("connections", (setup.most + OTHER_DESCRIPTORS).to_string()),
    ];
    filled(config, &values)
}
