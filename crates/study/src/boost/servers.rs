//! The servers, each once for every way in which it waits.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use harness::peer::{self, Peer};
use harness::{ANY, Cpus, Error, Process, Source, address};

/// Of what every request asks, so many bytes.
const BODY_BYTES: usize = 1024;
/// Descriptors beside those of connections.
const BESIDE: u32 = 512;

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

    /// What is asked for.
    pub(super) fn path(self) -> &'static str {
        match self {
            Server::Haproxy | Server::Lighttpd => "/body",
            Server::Plimsoll => "/obj/1?size=1024",
        }
    }
}

/// A server and how it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Way {
    pub(super) server: Server,
    /// The call.
    pub(super) wait: &'static str,
    /// Whether the library is preloaded.
    pub(super) boosted: bool,
}

/// The call that the others are measured by.
pub(super) const NATIVE: &str = "epoll";

const fn way(server: Server, wait: &'static str, boosted: bool) -> Way {
    Way { server, wait, boosted }
}

pub(super) const WAYS: [Way; 11] = [
    way(Server::Haproxy, NATIVE, false),
    way(Server::Haproxy, "poll", false),
    way(Server::Haproxy, "poll", true),
    way(Server::Lighttpd, NATIVE, false),
    way(Server::Lighttpd, "poll", false),
    way(Server::Lighttpd, "poll", true),
    way(Server::Plimsoll, NATIVE, false),
    way(Server::Plimsoll, "poll", false),
    way(Server::Plimsoll, "poll", true),
    way(Server::Plimsoll, "select", false),
    way(Server::Plimsoll, "select", true),
];

impl Way {
    /// `haproxy on poll, boosted`
    pub(super) fn name(self) -> String {
        format!("{} on {}", self.server.name(), self.waits())
    }

    /// `poll, boosted`
    pub(super) fn waits(self) -> String {
        format!("{}{}", self.wait, if self.boosted { ", boosted" } else { "" })
    }
}

/// What every server is started with.
pub(super) struct Stand<'s> {
    pub(super) program: &'s Path,
    pub(super) home: &'s Path,
    pub(super) source: &'s Source,
    pub(super) cpus: Cpus,
    /// The most cold connections.
    pub(super) most: u32,
}

/// A server that runs.
pub(super) struct Running {
    pub(super) way: Way,
    pub(super) address: SocketAddr,
    guard: Guard,
    stats: PathBuf,
}

enum Guard {
    Ours(Process),
    Peer(Peer),
}

/// What the library said of itself when the server ended.
#[derive(Clone, Debug, Serialize)]
pub struct LibraryStats {
    /// The server and how it waits.
    pub of: String,
    /// Its own counts.
    #[serde(flatten)]
    pub counts: Counts,
}

/// A line of the library's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Waits that the program made.
    pub calls: u64,
    /// Of them, those that went straight to the original: too few descriptors.
    pub plain: u64,
    /// Those that the original ended.
    pub fallbacks: u64,
    /// Descriptors that were asked about one by one.
    pub probes: u64,
    /// Of them, those that were ready.
    pub hits: u64,
    /// Plain polls of everything.
    pub audits: u64,
    /// Of them, those that knew better.
    pub audit_differences: u64,
}

impl Running {
    pub(super) fn pid(&self) -> i32 {
        let pid = match &self.guard {
            Guard::Ours(process) => process.pid(),
            Guard::Peer(peer) => peer.pid(),
        };
        pid.cast_signed()
    }

    /// Ends it; what the library said, if it was there.
    pub(super) fn end(self) -> Option<LibraryStats> {
        let Running { way, guard, stats, .. } = self;
        drop(guard);
        let text = std::fs::read_to_string(stats).ok()?;
        // A line for each process that ended; the server's is the one that waited.
        let counts = text.lines().filter_map(|line| serde_json::from_str::<Counts>(line).ok());
        let counts = counts.max_by_key(|counts| counts.calls)?;
        Some(LibraryStats { of: way.name(), counts })
    }
}

/// Starts a server. The inner error says why a peer cannot be had.
pub(super) fn start(stand: &Stand<'_>, way: Way) -> Result<Result<Running, String>, Error> {
    let home = stand.home.join(way.name().replace([' ', ','], "-"));
    std::fs::create_dir_all(&home).map_err(|error| Error::Directory(home.clone(), error))?;
    let stats = home.join("stats.json");
    let boost: Vec<String> = if way.boosted {
        ["boost", "--stats", &stats.display().to_string(), "--"].map(String::from).to_vec()
    } else {
        Vec::new()
    };
    let running = |guard, address| Running { way, address, guard, stats };
    if way.server == Server::Plimsoll {
        let mut args = boost;
        if way.boosted {
            args.push(stand.program.display().to_string());
        }
        args.extend(["serve", "--workers", "1", "--json", "--listen", ANY].map(String::from));
        args.extend(["--origin".into(), format!("http://{}", stand.source.address())]);
        args.extend(["--backend".into(), way.wait.to_owned()]);
        if let Some(cpu) = stand.cpus.server {
            args.extend(["--cpu".into(), cpu.to_string()]);
        }
        let (process, told) = Process::start(stand.program, &args)?;
        let address = address(&told)?;
        return Ok(Ok(running(Guard::Ours(process), address)));
    }
    let started = peer(stand, way, &home, boost);
    Ok(started.map(|(peer, address)| running(Guard::Peer(peer), address)))
}

fn peer(
    stand: &Stand<'_>,
    way: Way,
    home: &Path,
    boost: Vec<String>,
) -> Result<(Peer, SocketAddr), String> {
    let name = way.server.name();
    let path = peer::find(name).ok_or_else(|| format!("not installed: apt-get install {name}"))?;
    let at = |error: std::io::Error| format!("{}: {error}", home.display());
    let body: String = ('a'..='z').cycle().take(BODY_BYTES).collect();
    // One file for all: a server may make a tag of its inode.
    let shared = stand.home.join("body");
    if !shared.exists() {
        std::fs::write(&shared, body).map_err(at)?;
    }
    let address = peer::free_address().map_err(|error| format!("no free port: {error}"))?;
    let config = home.join("config");
    std::fs::write(&config, fill(stand, way, home, address)).map_err(at)?;
    let mut command = Command::new(if way.boosted { stand.program } else { &path });
    command.args(&boost);
    if way.boosted {
        command.arg(&path);
    }
    match way.server {
        Server::Haproxy => command.args(["-db", "-q"]).args((way.wait == "poll").then_some("-de")),
        _ => command.arg("-D"),
    };
    command.arg("-f").arg(&config);
    Peer::start(command, home, address, stand.cpus.server).map(|peer| (peer, address))
}

fn fill(stand: &Stand<'_>, way: Way, home: &Path, address: SocketAddr) -> String {
    let config = match way.server {
        Server::Haproxy => include_str!("haproxy.cfg"),
        _ => include_str!("lighttpd.conf"),
    };
    let handler = if way.wait == "poll" { "poll" } else { "linux-sysepoll" };
    [
        ("{home}", home.display().to_string()),
        ("{body}", stand.home.join("body").display().to_string()),
        ("{tree}", stand.home.display().to_string()),
        ("{listen}", address.to_string()),
        ("{host}", address.ip().to_string()),
        ("{port}", address.port().to_string()),
        ("{handler}", handler.to_owned()),
        ("{connections}", (stand.most + BESIDE).to_string()),
    ]
    .iter()
    .fold(config.to_owned(), |config, (name, value)| config.replace(name, value))
}
