//! The servers: ours and the peers, each started on loopback with a configuration of our own in a
//! directory that is removed again.
//!
//! With one worker a server is kept on CPU 0; with more its workers run where the scheduler puts
//! them. What never happens: a server that is not installed, or does not start, is left out in
//! silence.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use load::family;
use serde::Serialize;

use super::tree::Tree;
use harness::peer;
use harness::{Error, Process, address};

/// Bytes of memory for what a cache stores: all of the tree.
const MEMORY: &str = "256M";

/// Where a server has the bodies that it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum From {
    /// Files of the tree, by way of the page cache.
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
    /// What makes it tell its version.
    version: &'static str,
}

/// The name of our own.
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
pub(super) struct Stand<'s> {
    /// Our own program.
    pub(super) program: &'s Path,
    /// A directory for configurations and what servers leave behind.
    pub(super) home: &'s Path,
    /// The tree of files, and what it is.
    pub(super) files: &'s Path,
    pub(super) tree: &'s Tree,
    pub(super) origin: SocketAddr,
    /// CPUs that there are.
    pub(super) cpus: usize,
}

/// A server that could not be measured, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Missing {
    /// Its name.
    pub server: String,
    /// Why it is not here.
    pub why: String,
}

/// What keeps a server going: it ends with it.
enum Guard {
    Ours(Process),
    Peer(peer::Peer),
}

/// A server that runs.
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
        let pid = match &self.guard {
            Guard::Ours(process) => process.pid().cast_signed(),
            Guard::Peer(peer) => peer.pid().cast_signed(),
        };
        family::of(pid)
    }
}

/// Starts all with so many workers, each filled with the tree.
pub(super) fn start(
    stand: &Stand<'_>,
    workers: u16,
    missing: &mut Vec<Missing>,
) -> Result<Vec<Running>, Error> {
    let ours = start_ours(stand, workers)?;
    let failed = |error: io::Error| Error::Start(OURS.into(), error.to_string());
    stand.tree.ask_for_all(ours.address).map_err(failed)?;
    let mut running = vec![ours];
    for peer in PEERS {
        match peer.start(stand, workers) {
            Ok(started) => running.push(started),
            Err(why) => missing.push(Missing { server: peer.name.to_owned(), why }),
        }
    }
    Ok(running)
}

/// The versions of the peers that are installed, each in the words of the peer.
pub(super) fn versions() -> Vec<String> {
    let installed = PEERS.iter().filter_map(|peer| Some((peer, peer::find(peer.program)?)));
    let told = installed.filter_map(|(peer, path)| {
        let output = Command::new(path).arg(peer.version).stdin(Stdio::null()).output().ok()?;
        let both = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&both).into_owned();
        let line = text.lines().find(|line| line.chars().any(|c| c.is_ascii_digit()))?;
        Some(format!("{} {}", peer.name, version_in(line)?))
    });
    told.collect()
}

/// The first number with a dot in it.
fn version_in(line: &str) -> Option<&str> {
    let mut words = line.split([' ', '/', '-', '(']);
    words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
}

fn start_ours(stand: &Stand<'_>, workers: u16) -> Result<Running, Error> {
    let mut args: Vec<String> = ["serve", "--json", "--listen", "127.0.0.1:0", "--memory", MEMORY]
        .map(String::from)
        .to_vec();
    args.extend(["--workers".into(), workers.to_string()]);
    args.extend(["--origin".into(), format!("http://{}", stand.origin)]);
    if workers == 1 && stand.cpus > 1 {
        args.extend(["--cpu".into(), "0".into()]);
    }
    let (process, told) = Process::start(stand.program, &args)?;
    let address = address(&told)?;
    Ok(Running { name: OURS, from: From::Cache, workers, address, guard: Guard::Ours(process) })
}

impl Peer {
    /// Or why not.
    fn start(&self, stand: &Stand<'_>, workers: u16) -> Result<Running, String> {
        let path = peer::find(self.program)
            .ok_or_else(|| format!("not installed: apt-get install {}", self.name))?;
        let home = stand.home.join(format!("{}-{workers}", self.name));
        let at = |error: io::Error| format!("{}: {error}", home.display());
        std::fs::create_dir_all(&home).map_err(at)?;
        let address = peer::free_address().map_err(|error| format!("no free port: {error}"))?;
        let config = home.join("config");
        std::fs::write(&config, self.fill(stand, workers, &home, address)).map_err(at)?;
        let mut command = Command::new(path);
        command.args(self.arguments(workers, &home, &config, address));
        let alone = (workers == 1 && stand.cpus > 1).then_some(0);
        let process = peer::Peer::start(command, &home, address, alone)?;
        stand.tree.ask_for_all(address).map_err(|error| error.to_string())?;
        let guard = Guard::Peer(process);
        Ok(Running { name: self.name, from: self.from, workers, address, guard })
    }

    fn fill(&self, stand: &Stand<'_>, workers: u16, home: &Path, address: SocketAddr) -> String {
        let root = rustix::process::geteuid().is_root();
        // lighttpd without workers is one process that serves.
        let more_workers = if workers == 1 { 0 } else { workers };
        let set = [
            ("{user}", if root { "user root;".to_owned() } else { String::new() }),
            ("{home}", home.display().to_string()),
            ("{tree}", stand.files.display().to_string()),
            ("{files}", (2 * stand.tree.files).to_string()),
            ("{listen}", address.to_string()),
            ("{host}", address.ip().to_string()),
            ("{port}", address.port().to_string()),
            ("{workers}", workers.to_string()),
            ("{more_workers}", more_workers.to_string()),
            ("{origin}", stand.origin.to_string()),
            ("{origin_host}", stand.origin.ip().to_string()),
            ("{origin_port}", stand.origin.port().to_string()),
        ];
        let mut config = self.config.to_owned();
        for (name, value) in set {
            config = config.replace(name, &value);
        }
        config
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

    fn stand<'s>(home: &'s Path, tree: &'s Tree) -> Stand<'s> {
        let origin = "127.0.0.1:1".parse().unwrap();
        Stand { program: Path::new("none"), home, files: home, tree, origin, cpus: 1 }
    }

    #[test]
    fn a_configuration_is_filled_whole() {
        let home = tempfile::tempdir().unwrap();
        let tree = Tree::of(10, 1);
        let address: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        for peer in PEERS {
            for workers in [1, 3] {
                let config = peer.fill(&stand(home.path(), &tree), workers, home.path(), address);
                // What is left in braces on one line was a name that nobody filled.
                let left = config.lines().find(|line| {
                    let name = line.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
                    name.is_some_and(|(name, _)| !name.trim().is_empty())
                });
                assert_eq!(left, None, "{}", peer.name);
                let all = peer.arguments(workers, home.path(), &home.path().join("c"), address);
                assert!([&config, &all.join(" ")].iter().any(|text| text.contains("8080")));
            }
        }
    }

    #[test]
    fn a_version_is_found_in_what_a_peer_says() {
        for (said, version) in [
            ("nginx version: nginx/1.22.1", "1.22.1"),
            ("HAProxy version 2.6.12-1+deb12u4 2026/10/17", "2.6.12"),
            ("varnishd (varnish-7.1.1 revision 7cee1c58)", "7.1.1"),
        ] {
            assert_eq!(version_in(said), Some(version));
        }
        assert_eq!(version_in("no number"), None);
    }

    #[test]
    fn a_peer_that_is_not_there_says_how_to_get_it() {
        let home = tempfile::tempdir().unwrap();
        let tree = Tree::of(1, 1);
        let none = Peer { name: "none", program: "no-such-peer", ..PEERS[0] };
        let Err(why) = none.start(&stand(home.path(), &tree), 1) else { panic!("it is there") };
        assert_eq!(why, "not installed: apt-get install none");
    }
}
