//! The rows of the table: the floor, our own server on each backend, the peers.
//!
//! What: for each row how it is started on a listening address in front of an origin. Why one
//! list: a row that cannot run says so in the table; none is left out in silence. All run with one
//! worker (or thread) and, but for one row of our own, without an access log. Some keep what they
//! store in memory, some on disk, and are compared with their like.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::process::{self, Process};

/// What a row runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The null server: the floor.
    Null,
    /// `plimsoll serve` with this backend and its defaults.
    Plimsoll(&'static str),
    /// `plimsoll serve` with everything on, and an access log or none.
    PlimsollAll { log: bool },
    /// `plimsoll serve` with a store on disk below so much memory.
    PlimsollDisk { memory: &'static str, verify: &'static str },
    /// A peer: its program, its package, its configuration.
    Peer(Peer),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    program: &'static str,
    package: &'static str,
    config: &'static str,
    config_name: &'static str,
    /// What stands in the configuration for names in braces, beside where it runs.
    set: &'static [(&'static str, &'static str)],
}

/// Where a server keeps the bodies that it stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    Memory,
    Disk,
    /// It stores nothing, and is the floor of all.
    Floor,
}

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) tier: Tier,
}

/// All rows, in the order they are shown and run.
pub(crate) const SERVERS: &[Server] = &[
    Server { name: "null", kind: Kind::Null, tier: Tier::Floor },
    Server { name: "plimsoll-epoll", kind: Kind::Plimsoll("epoll"), tier: Tier::Memory },
    Server { name: "plimsoll-io_uring", kind: Kind::Plimsoll("io_uring"), tier: Tier::Memory },
    Server {
        name: "plimsoll-scalable_select",
        kind: Kind::Plimsoll("scalable_select"),
        tier: Tier::Memory,
    },
    Server { name: "plimsoll-poll", kind: Kind::Plimsoll("poll"), tier: Tier::Memory },
    Server { name: "plimsoll-select", kind: Kind::Plimsoll("select"), tier: Tier::Memory },
    Server { name: "plimsoll-all", kind: Kind::PlimsollAll { log: false }, tier: Tier::Memory },
    Server { name: "plimsoll-all-log", kind: Kind::PlimsollAll { log: true }, tier: Tier::Memory },
    Server {
        name: "haproxy",
        kind: Kind::Peer(Peer {
            program: "haproxy",
            package: "haproxy",
            config: include_str!("../peers/haproxy.cfg"),
            config_name: "haproxy.cfg",
            set: &[],
        }),
        tier: Tier::Memory,
    },
    Server {
        name: "nginx",
        kind: Kind::Peer(Peer {
            program: "nginx",
            package: "nginx",
            config: include_str!("../peers/nginx.conf"),
            config_name: "nginx.conf",
            set: &[],
        }),
        tier: Tier::Memory,
    },
    Server {
        name: "varnish",
        kind: Kind::Peer(Peer {
            program: "varnishd",
            package: "varnish",
            config: include_str!("../peers/varnish.vcl"),
            config_name: "varnish.vcl",
            set: &[],
        }),
        tier: Tier::Memory,
    },
    Server {
        name: "squid",
        kind: Kind::Peer(Peer {
            program: "squid",
            package: "squid",
            config: include_str!("../peers/squid.conf"),
            config_name: "squid.conf",
            set: &[],
        }),
        tier: Tier::Memory,
    },
    Server {
        name: "plimsoll-disk",
        kind: Kind::PlimsollDisk { memory: "1M", verify: "once" },
        tier: Tier::Disk,
    },
    Server {
        name: "plimsoll-disk-always",
        kind: Kind::PlimsollDisk { memory: "1M", verify: "always" },
        tier: Tier::Disk,
    },
    Server { name: NGINX_DISK, kind: nginx_disk(NGINX_OPEN), tier: Tier::Disk },
    Server { name: "nginx-disk-default", kind: nginx_disk(NGINX_DEFAULT), tier: Tier::Disk },
    Server { name: "squid-rock", kind: squid_disk(SQUID_ROCK), tier: Tier::Disk },
    Server { name: "squid-ufs", kind: squid_disk(SQUID_UFS), tier: Tier::Disk },
];

/// The rows of hits beside writes: what passing on costs, what writing adds, what a peer makes of
/// it.
pub(crate) const BESIDE_WRITES: &[Server] = &[
    Server { name: "plimsoll, no disk", kind: Kind::Plimsoll("epoll"), tier: Tier::Memory },
    Server {
        name: "plimsoll-disk, 256 MB",
        kind: Kind::PlimsollDisk { memory: "256M", verify: "once" },
        tier: Tier::Disk,
    },
    Server { name: NGINX_DISK, kind: nginx_disk(NGINX_OPEN), tier: Tier::Disk },
];

/// Whose cost on disk ours is compared with: it keeps the files of all objects open.
pub(crate) const NGINX_DISK: &str = "nginx-disk";
const NGINX_OPEN: &[(&str, &str)] = &[("open_file_cache", "max=17000 inactive=600s")];
const NGINX_DEFAULT: &[(&str, &str)] = &[("open_file_cache", "off")];
const SQUID_ROCK: &[(&str, &str)] = &[("cache_dir", "rock {dir}/cache 8192")];
const SQUID_UFS: &[(&str, &str)] = &[("cache_dir", "ufs {dir}/cache 8192 16 256")];

const fn nginx_disk(set: &'static [(&'static str, &'static str)]) -> Kind {
    Kind::Peer(Peer {
        program: "nginx",
        package: "nginx",
        config: include_str!("../peers/nginx-disk.conf"),
        config_name: "nginx.conf",
        set,
    })
}

const fn squid_disk(set: &'static [(&'static str, &'static str)]) -> Kind {
    Kind::Peer(Peer {
        program: "squid",
        package: "squid",
        config: include_str!("../peers/squid-disk.conf"),
        config_name: "squid.conf",
        set,
    })
}

/// Our server with everything on.
const PLIMSOLL_ALL: &str = include_str!("../peers/plimsoll.toml");
/// Bytes of memory our server may use for stored responses.
const PLIMSOLL_MEMORY_BYTES: &str = "268435456";
/// What our store on disk takes.
const PLIMSOLL_DISK_BYTES: &str = "4G";

/// What every row is started with.
#[derive(Debug)]
pub(crate) struct Ground<'g> {
    /// Where configurations and the servers' own files go.
    pub(crate) dir: &'g Path,
    pub(crate) origin: SocketAddr,
    /// Our own server's program.
    pub(crate) plimsoll: &'g Path,
    /// The CPU of the servers.
    pub(crate) cpu: usize,
}

/// A row that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) process: Process,
    pub(crate) addr: SocketAddr,
    /// Where our own server's figures are.
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) version: String,
    /// When its program was executed.
    pub(crate) began: Instant,
}

impl Server {
    /// Starts it and waits until it listens. `body_bytes` matters to the null server only.
    ///
    /// # Errors
    /// One line for the table: what is missing, or what it said.
    pub(crate) fn start(&self, ground: &Ground<'_>, body_bytes: u64) -> Result<Running, String> {
        let mut running = self.launch(ground, body_bytes)?;
        running.process.wait_for(running.addr, process::START_MAX)?;
        Ok(running)
    }

    /// Starts it on the files that it left the last time, if it did, and does not wait.
    ///
    /// # Errors
    /// One line for the table: what is missing.
    pub(crate) fn launch(&self, ground: &Ground<'_>, body_bytes: u64) -> Result<Running, String> {
        let addr = free_address().map_err(|e| format!("no free port: {e}"))?;
        // A place of its own, which a server may write to after it has given up being root.
        let dir = ground.dir.join(format!("{}-{body_bytes}", self.name));
        make_open_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let mut admin = None;
        let (command, version) = match self.kind {
            Kind::Null => (null_command(addr, body_bytes)?, String::new()),
            Kind::Plimsoll(backend) => {
                plimsoll_command(ground, &plain_arguments(ground, addr, backend))?
            }
            Kind::PlimsollAll { log } => {
                plimsoll_command(ground, &all_arguments(ground, addr, &dir, log)?)?
            }
            Kind::PlimsollDisk { memory, verify } => {
                let figures = free_address().map_err(|e| format!("no free port: {e}"))?;
                admin = Some(figures);
                let arguments = disk_arguments(ground, addr, figures, &dir, memory, verify);
                plimsoll_command(ground, &arguments)?
            }
            Kind::Peer(peer) => peer.command(ground, addr, &dir)?,
        };
        let errors = dir.join("stderr");
        let began = Instant::now();
        let process = Process::start(command, ground.cpu, errors).map_err(|e| e.to_string())?;
        Ok(Running { process, addr, admin, version, began })
    }
}

fn null_command(addr: SocketAddr, body_bytes: u64) -> Result<Command, String> {
    let own = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
    let arguments = ["null-server".to_owned(), addr.to_string(), body_bytes.to_string()];
    Ok(process::command(&own, arguments))
}

fn plimsoll_command(
    ground: &Ground<'_>,
    arguments: &[String],
) -> Result<(Command, String), String> {
    if !process::is_file(ground.plimsoll) {
        return Err(format!("not built: {}", ground.plimsoll.display()));
    }
    let version = version_of(ground.plimsoll, "--version");
    Ok((process::command(ground.plimsoll, arguments), version))
}

fn plain_arguments(ground: &Ground<'_>, addr: SocketAddr, backend: &str) -> Vec<String> {
    let text = format!(
        "serve --listen {addr} --origin http://{} --workers 1 --backend {backend} --memory \
         {PLIMSOLL_MEMORY_BYTES}",
        ground.origin
    );
    text.split(' ').map(str::to_owned).collect()
}

/// With its store in `dir`.
fn disk_arguments(
    ground: &Ground<'_>,
    addr: SocketAddr,
    admin: SocketAddr,
    dir: &Path,
    memory: &str,
    verify: &str,
) -> Vec<String> {
    let text = format!(
        "serve --listen {addr} --origin http://{} --workers 1 --backend epoll --admin {admin} \
         --memory {memory} --disk-bytes {PLIMSOLL_DISK_BYTES} --disk-verify {verify} --disk",
        ground.origin
    );
    let store = dir.join("store").display().to_string();
    text.split(' ').map(str::to_owned).chain([store]).collect()
}

/// With a configuration file in `dir`, and the access log there too.
fn all_arguments(
    ground: &Ground<'_>,
    addr: SocketAddr,
    dir: &Path,
    log: bool,
) -> Result<Vec<String>, String> {
    let log = if log { "[log]\npath = \"access.log\"\nformat = \"combined\"\n" } else { "" };
    let admin = free_address().map_err(|e| format!("no free port: {e}"))?;
    let config = PLIMSOLL_ALL
        .replace("{listen}", &addr.to_string())
        .replace("{admin}", &admin.to_string())
        .replace("{origin}", &ground.origin.to_string())
        .replace("{log}", log);
    let file = dir.join("plimsoll.toml");
    fs::write(&file, config).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(vec!["serve".to_owned(), "-c".to_owned(), file.display().to_string()])
}

impl Peer {
    fn command(
        &self,
        ground: &Ground<'_>,
        addr: SocketAddr,
        dir: &Path,
    ) -> Result<(Command, String), String> {
        let program = process::find(self.program)
            .ok_or_else(|| format!("not installed: apt-get install {}", self.package))?;
        let mut config = self.config.to_owned();
        for (name, value) in self.set {
            config = config.replace(&format!("{{{name}}}"), value);
        }
        let config = config
            .replace("{dir}", &dir.display().to_string())
            .replace("{listen}", &addr.to_string())
            .replace("{origin}", &ground.origin.to_string())
            .replace("{origin_host}", &ground.origin.ip().to_string())
            .replace("{origin_port}", &ground.origin.port().to_string());
        let file = dir.join(self.config_name);
        fs::write(&file, &config).map_err(|e| format!("{}: {e}", file.display()))?;
        if config.contains("cache_dir") && !dir.join("cache").exists() {
            make_squid_directories(&program, &file)?;
        }
        let command = process::command(&program, self.arguments(addr, dir, file));
        Ok((command, version_of(&program, if self.program == "varnishd" { "-V" } else { "-v" })))
    }

    fn arguments(&self, addr: SocketAddr, dir: &Path, file: PathBuf) -> Vec<String> {
        let file = file.display().to_string();
        let dir = dir.display().to_string();
        let text = match self.program {
            "nginx" => vec!["-p", dir.as_str(), "-c", file.as_str()],
            "haproxy" => vec!["-db", "-q", "-f", file.as_str()],
            "squid" => vec!["-N", "-f", file.as_str()],
            _ => {
                let listen = format!("{addr},HTTP");
                let fixed = ["-F", "-j", "none", "-T", "none", "-s", "malloc,256m"];
                let pools = ["-p", "thread_pools=1", "-p", "timeout_idle=600"];
                let mut all: Vec<String> =
                    fixed.iter().chain(&pools).map(|text| (*text).to_owned()).collect();
                all.extend(["-a".to_owned(), listen, "-f".to_owned(), file]);
                all.extend(["-n".to_owned(), format!("{dir}/varnish")]);
                return all;
            }
        };
        text.into_iter().map(str::to_owned).collect()
    }
}

/// Has Squid make the directories of its configuration, if that has any.
fn make_squid_directories(program: &Path, config: &Path) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(["-N", "-z", "-f"]).arg(config).stdin(Stdio::null());
    let made = command.output().map_err(|e| format!("squid -z: {e}"))?;
    let said = String::from_utf8_lossy(&made.stderr);
    let last = said.lines().last().unwrap_or("it said nothing");
    if made.status.success() { Ok(()) } else { Err(format!("squid -z: {last}")) }
}

/// The first line in which a program tells its version.
fn version_of(program: &Path, flag: &str) -> String {
    let Ok(output) = Command::new(program).arg(flag).output() else { return String::new() };
    let both = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&both);
    text.lines().find(|line| line.chars().any(|c| c.is_ascii_digit())).unwrap_or("").to_owned()
}

/// A loopback address with a port that nobody has at the moment.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

fn make_open_dir(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_comes_first_and_names_are_unique() {
        assert_eq!(SERVERS[0].kind, Kind::Null);
        let mut names: Vec<&str> = SERVERS.iter().map(|server| server.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SERVERS.len());
    }

    #[test]
    fn a_peer_that_is_not_there_says_how_to_get_it() {
        let peer =
            Peer { program: "no-such-peer", package: "x", config: "", config_name: "c", set: &[] };
        let server = Server { name: "none", kind: Kind::Peer(peer), tier: Tier::Memory };
        let dir = tempfile::tempdir().unwrap();
        let origin = "127.0.0.1:1".parse().unwrap();
        let ground = Ground { dir: dir.path(), origin, plimsoll: Path::new("none"), cpu: 0 };
        let why = server.start(&ground, 0).unwrap_err();
        assert_eq!(why, "not installed: apt-get install x");
        let own = Server { name: "own", kind: Kind::Plimsoll("epoll"), tier: Tier::Memory };
        assert!(own.start(&ground, 0).unwrap_err().starts_with("not built"));
    }
}
