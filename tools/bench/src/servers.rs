//! The rows of the table: the floors, our server on each backend, and the peers.
//!
//! Each row knows how its server is started in front of an origin. A row that cannot run says so in
//! the table; none is left out silently. A peer that has to be built has rows only if `--peer`
//! names its program. All servers run with one worker (or thread) and, except for one plimsoll row
//! and the scenarios about logs, without an access log. Servers that store in memory are compared
//! with each other, and so are servers that store on disk.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Instant;

use harness::peer::{self, START_MAX};
use harness::recipe::{Place, Recipe, filled, not_installed};
use load::Protocol;

use crate::added::{self, Added};
use crate::process;
use crate::scenarios::{
    HAPROXY_SPLICE, NGINX_FILES, NULL_RELAY, NULL_SERVER, SCENARIOS, Scenario, TUNNEL, Tier, Tls,
};

/// The server of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The null server: the floor of answers.
    Null,
    /// The null relay: the floor of what is passed on.
    Relay,
    /// `plimsoll serve` with this backend and its defaults.
    Plimsoll(&'static str),
    /// `plimsoll serve` with everything on, with or without an access log.
    PlimsollAll { log: bool },
    /// `plimsoll serve` with a disk cache below this much memory.
    PlimsollDisk { memory: &'static str, verify: &'static str },
    /// `plimsoll serve` with the files of a directory.
    PlimsollFiles,
    /// `plimsoll serve` for clients that are far away, whose listener has this in addition.
    PlimsollFar(&'static str),
    /// `plimsoll serve` with this many workers, on the CPUs from this one on.
    PlimsollCores { workers: usize, cpu: usize },
    /// A peer.
    Peer(Recipe),
}

/// A build of a peer that runs in place of the installed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Build {
    pub(crate) peer: &'static str,
    /// The absolute path of its program. It lives as long as the bench.
    pub(crate) program: &'static str,
}

impl FromStr for Build {
    type Err = String;

    fn from_str(text: &str) -> Result<Build, String> {
        let (name, path) = text.split_once('=').ok_or("write NAME=PATH")?;
        let peers = peers();
        let known = peers.iter().find(|peer| **peer == name);
        let peer = known.ok_or_else(|| format!("the peers are {}", peers.join(", ")))?;
        let path = std::path::absolute(path).map_err(|error| format!("{path}: {error}"))?;
        match path.to_str().filter(|_| path.is_file()) {
            Some(program) => Ok(Build { peer, program: String::from(program).leak() }),
            None => Err(format!("{}: no such file", path.display())),
        }
    }
}

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) tier: Tier,
    /// The only scenarios that it runs; empty: all that it can.
    only: &'static [&'static str],
}

pub(crate) const fn in_memory(name: &'static str, kind: Kind) -> Server {
    Server { name, kind, tier: Tier::Memory, only: &[] }
}

const fn on_disk(name: &'static str, kind: Kind) -> Server {
    Server { name, kind, tier: Tier::Disk, only: &[] }
}

const fn of_files(name: &'static str, kind: Kind) -> Server {
    Server { name, kind, tier: Tier::Files, only: &[] }
}

/// A row of a few scenarios only.
const fn only(only: &'static [&'static str], server: Server) -> Server {
    Server { only, ..server }
}

/// The scenarios of all our rows. The others only have those of two backends.
const BASIC: &[&str] = &["hit", "cold", "miss", "large"];

const fn plimsoll_disk(memory: &'static str, verify: &'static str) -> Kind {
    Kind::PlimsollDisk { memory, verify }
}

const HAPROXY: Recipe = Recipe {
    config: include_str!("../peers/haproxy.cfg"),
    command: "{program} -db -q -f {config}",
    ..Recipe::named("haproxy")
};

const NGINX: Recipe = Recipe {
    config: include_str!("../peers/nginx.conf"),
    command: "{program} -p {dir} -c {config}",
    more: "on",
    ..Recipe::named("nginx")
};

const NGINX_STREAM: Recipe = Recipe {
    package: "libnginx-mod-stream",
    config: include_str!("../peers/nginx-stream.conf"),
    ..NGINX
};

const VARNISH: Recipe = Recipe {
    program: "varnishd",
    version: "-V",
    config: include_str!("../peers/varnish.vcl"),
    command: "{program} -F -j none -T none -s malloc,256m -p thread_pools=1 -p timeout_idle=600 \
              -p gzip_level=1 -p feature=+http2 -a {listen},{speaks} -f {config} -n {dir}/varnish",
    ..Recipe::named("varnish")
};

const SQUID: Recipe = Recipe {
    config: include_str!("../peers/squid.conf"),
    command: "{program} -N -n {service} -f {config}",
    ..Recipe::named("squid")
};

const CADDY: Recipe = Recipe {
    version: "version",
    config: include_str!("../peers/Caddyfile"),
    command: "{program} run --adapter caddyfile --config {config}",
    ..Recipe::named("caddy")
};

/// Pingora is a library, so its program is built from `peers/pingora` and named by `--peer`.
const PINGORA: Recipe = Recipe {
    program: "",
    version: "--version",
    config: include_str!("../peers/pingora/conf.yaml"),
    command: "{program} {config} {listen} {scheme}://{origin}",
    ..Recipe::named("pingora")
};

/// A variant of a peer, whose configuration has this in addition.
const fn with(more: &'static str, peer: Recipe) -> Kind {
    Kind::Peer(Recipe { more, ..peer })
}

/// nginx as a cache on disk, with this cache of open files.
const fn nginx_disk(open_files: &'static str) -> Kind {
    with(open_files, Recipe { config: include_str!("../peers/nginx-disk.conf"), ..NGINX })
}

/// nginx as a server of files, with this cache of open files.
const fn nginx_files(open_files: &'static str) -> Kind {
    with(open_files, Recipe { config: include_str!("../peers/nginx-files.conf"), ..NGINX })
}

/// Squid with this cache directory.
const fn squid_disk(cache_dir: &'static str) -> Kind {
    with(cache_dir, Recipe { config: include_str!("../peers/squid-disk.conf"), ..SQUID })
}

/// All rows, in the order in which they run and are shown.
pub(crate) const SERVERS: &[Server] = &[
    Server { name: NULL_SERVER, kind: Kind::Null, tier: Tier::Floor, only: &[] },
    Server { name: NULL_RELAY, kind: Kind::Relay, tier: Tier::Floor, only: &[] },
    in_memory("plimsoll-epoll", Kind::Plimsoll("epoll")),
    in_memory("plimsoll-io_uring", Kind::Plimsoll("io_uring")),
    only(BASIC, in_memory("plimsoll-scalable_select", Kind::Plimsoll("scalable_select"))),
    only(BASIC, in_memory("plimsoll-poll", Kind::Plimsoll("poll"))),
    only(BASIC, in_memory("plimsoll-select", Kind::Plimsoll("select"))),
    only(BASIC, in_memory("plimsoll-all", Kind::PlimsollAll { log: false })),
    only(BASIC, in_memory("plimsoll-all-log", Kind::PlimsollAll { log: true })),
    in_memory("haproxy", Kind::Peer(HAPROXY)),
    only(
        &["passed_64k", "passed_1m", TUNNEL],
        in_memory(
            HAPROXY_SPLICE,
            Kind::Peer(Recipe { config: include_str!("../peers/haproxy-splice.cfg"), ..HAPROXY }),
        ),
    ),
    in_memory("nginx", Kind::Peer(NGINX)),
    only(&["passed_64k", "passed_1m"], in_memory("nginx-unbuffered", with("off", NGINX))),
    only(&[TUNNEL], in_memory("nginx-stream", Kind::Peer(NGINX_STREAM))),
    in_memory("varnish", Kind::Peer(VARNISH)),
    in_memory("squid", Kind::Peer(SQUID)),
    in_memory("caddy", Kind::Peer(CADDY)),
    // It has no cache: that of the library is for tests only, as its documentation says.
    only(
        &[
            "miss",
            "post",
            "passed_64k",
            "passed_1m",
            "plain_upstream",
            "with_tls",
            "with_websocket",
            "with_upload",
        ],
        in_memory("pingora", Kind::Peer(PINGORA)),
    ),
    of_files("plimsoll-files", Kind::PlimsollFiles),
    of_files(NGINX_FILES, nginx_files("max=1000 inactive=600s")),
    of_files("nginx-files-default", nginx_files("off")),
    on_disk("plimsoll-disk", plimsoll_disk("1M", "once")),
    on_disk("plimsoll-disk-always", plimsoll_disk("1M", "always")),
    on_disk(NGINX_DISK, nginx_disk(NGINX_OPEN)),
    on_disk("nginx-disk-default", nginx_disk("off")),
    on_disk("squid-rock", squid_disk("rock {dir}/cache 8192")),
    on_disk("squid-ufs", squid_disk("ufs {dir}/cache 8192 16 256")),
];

/// The rows of hits during writes: ours without a disk (the cost of passing misses on), ours with
/// one (the cost of writing), and a peer.
pub(crate) const BESIDE_WRITES: &[Server] = &[
    in_memory("plimsoll, no disk", Kind::Plimsoll("epoll")),
    on_disk("plimsoll-disk, 256 MB", plimsoll_disk("256M", "once")),
    on_disk(NGINX_DISK, nginx_disk(NGINX_OPEN)),
];

/// The row that our cost on disk is compared with: it keeps the files of all objects open.
pub(crate) const NGINX_DISK: &str = "nginx-disk";
const NGINX_OPEN: &str = "max=17000 inactive=600s";

/// The row that has its congestion control from a key.
pub(crate) const PLIMSOLL_BBR: &str = "plimsoll-bbr";

/// The rows of clients that are far away.
pub(crate) const FAR: &[Server] = &[
    in_memory("plimsoll", Kind::PlimsollFar("")),
    in_memory(PLIMSOLL_BBR, Kind::PlimsollFar("congestion_control = \"bbr\"")),
    in_memory(
        "haproxy",
        Kind::Peer(Recipe { config: include_str!("../peers/far-haproxy.cfg"), ..HAPROXY }),
    ),
    in_memory(
        "nginx",
        Kind::Peer(Recipe { config: include_str!("../peers/far-nginx.conf"), ..NGINX }),
    ),
    in_memory(
        "caddy",
        Kind::Peer(Recipe { config: include_str!("../peers/far-Caddyfile"), ..CADDY }),
    ),
];

/// nginx as an origin that speaks TLS, HTTP/2 and gRPC. It is no row.
pub(crate) const ORIGIN: Server = in_memory(
    "origin",
    Kind::Peer(Recipe {
        package: "libnginx-mod-http-echo",
        config: include_str!("../peers/origin.conf"),
        ..NGINX
    }),
);

/// The configuration of our server with one backend.
const PLIMSOLL: &str = include_str!("../peers/plimsoll.toml");
/// Our server for clients that are far away.
const PLIMSOLL_FAR: &str = include_str!("../peers/far-plimsoll.toml");
/// Our server with files.
const PLIMSOLL_FILES: &str = include_str!("../peers/plimsoll-files.toml");
/// Our server with everything on.
const PLIMSOLL_ALL: &str = include_str!("../peers/plimsoll-all.toml");
/// Memory of our server for stored responses.
const PLIMSOLL_MEMORY_BYTES: &str = "268435456";
/// Size of our disk cache.
const PLIMSOLL_DISK_BYTES: &str = "4G";

/// Where servers listen, unless clients are elsewhere.
pub(crate) const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// What every row needs to start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ground<'g> {
    /// Directory for configurations and the files of the servers.
    pub(crate) dir: &'g Path,
    pub(crate) origin: SocketAddr,
    /// The absolute path of our program.
    pub(crate) plimsoll: &'g Path,
    /// The CPU of the servers.
    pub(crate) cpu: usize,
    /// The address at which they listen.
    pub(crate) at: IpAddr,
    /// What they are started with in addition.
    pub(crate) added: Added,
}

/// A running row.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) process: peer::Peer,
    /// What runs beside it, such as the writer of its log.
    beside: Option<peer::Peer>,
    /// Its access log, if it has one.
    pub(crate) log: PathBuf,
    pub(crate) is_floor: bool,
    pub(crate) addr: SocketAddr,
    /// The address for HTTP/2 in the clear.
    pub(crate) http2: SocketAddr,
    /// The address for HTTP/3.
    pub(crate) http3: SocketAddr,
    pub(crate) has_http3: bool,
    /// The address for tunnels.
    pub(crate) tunnel: SocketAddr,
    /// Whether a tunnel begins with CONNECT. If not, each connection to `tunnel` is one.
    pub(crate) takes_connect: bool,
    /// The address for HTTP/1 over TLS.
    pub(crate) tls: SocketAddr,
    /// The admin address, if it is our server.
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) version: String,
    /// When its program was executed.
    pub(crate) began: Instant,
}

impl Running {
    /// The processes whose CPU time is the server's.
    pub(crate) fn family(&self) -> Vec<i32> {
        let beside = self.beside.iter().flat_map(peer::Peer::family);
        self.process.family().into_iter().chain(beside).collect()
    }
}

/// The names of the peers.
pub(crate) fn peers() -> Vec<&'static str> {
    let mut names: Vec<&str> = SERVERS.iter().filter_map(|server| server.peer()).collect();
    names.dedup();
    names
}

impl Server {
    /// The name of its peer, if it is a row of one.
    fn peer(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Peer(peer) => Some(peer.name),
            _ => None,
        }
    }

    /// The same row with another build of its peer, if there is one.
    pub(crate) fn with_builds(self, builds: &[Build]) -> Server {
        let build = builds.iter().rev().find(|build| Some(build.peer) == self.peer());
        match (self.kind, build) {
            (Kind::Peer(peer), Some(Build { program, .. })) => {
                Server { kind: Kind::Peer(Recipe { program, ..peer }), ..self }
            }
            _ => self,
        }
    }

    /// Whether there is a program to look for: a peer that has to be built needs a build.
    pub(crate) fn has_program(&self) -> bool {
        !matches!(self.kind, Kind::Peer(Recipe { program: "", .. }))
    }

    /// Whether it has a row in this scenario.
    pub(crate) fn is_for(&self, scenario: &Scenario) -> bool {
        if !self.only.is_empty() {
            return self.only.contains(&scenario.name);
        }
        if scenario.tls != Tls::No {
            return self.has_tls();
        }
        if scenario.is_of_added() && self.tier != Tier::Floor {
            let is_known = |peer| added::is_known(peer, scenario.added);
            return self.added_to().is_some_and(|peer| scenario.added.is_empty() || is_known(peer));
        }
        match self.tier {
            Tier::Floor => self.name == scenario.floor,
            tier => tier == scenario.tier && self.is_of(scenario),
        }
    }

    /// Whether it runs this scenario, which is not over TLS alone: of HTTP/2 and HTTP/3, one of our
    /// rows, and the peers that speak it. Caddy has no cache, and only answers the others.
    fn is_of(&self, scenario: &Scenario) -> bool {
        // These have rows with another configuration for tunnels.
        let has_other = scenario.is_tunnel() && ["haproxy", "nginx"].contains(&self.name);
        match (self.kind, scenario.protocol) {
            _ if has_other => false,
            (Kind::Peer(peer), Protocol::Http3 { .. }) => peer.name == "caddy",
            (Kind::Peer(peer), Protocol::Http2 { .. }) => !["squid", "caddy"].contains(&peer.name),
            (Kind::Peer(peer), Protocol::Http1) => peer.name != "caddy",
            (_, Protocol::Http1) => true,
            (Kind::Plimsoll(backend), _) => backend == "epoll",
            _ => false,
        }
    }

    /// The name under which there are features for it.
    fn added_to(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Plimsoll("epoll") => Some("plimsoll"),
            Kind::Peer(peer) if self.tier == Tier::Memory => {
                added::is_known(peer.name, "log").then_some(peer.name)
            }
            _ => None,
        }
    }

    /// Why it cannot run a scenario in which it has a row.
    pub(crate) fn cannot(&self, scenario: &Scenario) -> Option<&'static str> {
        let added = self.added_to().and_then(|to| added::text(to, scenario.added, "cannot"));
        if added.is_some() {
            return added;
        }
        match (self.name, scenario.name) {
            ("haproxy", "revalidated") => Some("its cache validates nothing"),
            ("nginx", "revalidated") => Some("does not store what expires at once"),
            ("varnish", TUNNEL) => Some("has no tunnels"),
            _ => None,
        }
    }

    /// Whether it runs the scenarios over TLS.
    pub(crate) fn has_tls(&self) -> bool {
        match self.kind {
            _ if !self.only.is_empty() => false,
            Kind::Plimsoll(backend) => backend == "epoll",
            Kind::Peer(peer) => peer.config.contains("{listen_tls}"),
            _ => false,
        }
    }

    /// Whether the memory of its stored responses is measured.
    pub(crate) fn stores_objects(&self) -> bool {
        match self.kind {
            Kind::Plimsoll(backend) => backend == "epoll",
            Kind::Peer(_) => ["nginx", "varnish"].contains(&self.name),
            _ => false,
        }
    }

    /// Starts it and waits until it listens. Only the floors use `body_bytes`: 0 makes the
    /// relay one of tunnels.
    ///
    /// # Errors
    /// One line for the table: what is missing, or what the server printed.
    pub(crate) fn start(&self, ground: &Ground<'_>, body_bytes: u64) -> Result<Running, String> {
        let mut running = self.launch(ground, body_bytes)?;
        running.process.wait_for(running.addr, START_MAX)?;
        Ok(running)
    }

    /// Starts it on the files of its last run, if there are any, without waiting.
    ///
    /// # Errors
    /// One line for the table: what is missing.
    pub(crate) fn launch(&self, ground: &Ground<'_>, body_bytes: u64) -> Result<Running, String> {
        let addr = ground.free_address()?;
        // Its own directory, in which it can write after it has dropped root privileges.
        let (added, origin) = (ground.added.feature, ground.origin.port());
        let dir = ground.dir.join(format!("{}-{body_bytes}{added}-{origin}", self.name));
        make_open_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        if self.tier == Tier::Files {
            make_files(&dir.join("files")).map_err(|e| format!("{}: {e}", dir.display()))?;
        }
        let log_address = ground.free_address()?;
        let mut admin = None;
        let (mut http2, mut http3) = (addr, ground.free_address()?);
        let (mut tunnel, mut takes_connect) = (addr, false);
        // Our server speaks TLS on the TCP port of the same number.
        let mut tls = http3;
        let (command, version) = match self.kind {
            Kind::Null => (own_command(format!("null-server {addr} {body_bytes}"))?, String::new()),
            Kind::Relay => {
                let origin = ground.origin;
                let body = if body_bytes > 0 { format!(" {body_bytes}") } else { String::new() };
                (own_command(format!("null-relay {addr} {origin}{body}"))?, String::new())
            }
            Kind::Plimsoll(backend) => {
                (tunnel, takes_connect) = (ground.free_address()?, true);
                let config = filled(PLIMSOLL, &ground.added.values("plimsoll"))
                    .replace("{backend}", backend)
                    .replace("{memory}", PLIMSOLL_MEMORY_BYTES)
                    .replace("{listen_http3}", &http3.to_string())
                    .replace("{listen_tunnel}", &tunnel.to_string())
                    .replace("{origin_port}", &ground.origin.port().to_string())
                    .replace("{certificates}", &ground.certificates().display().to_string());
                plimsoll_command(ground, &config_arguments(ground, &config, addr, &dir)?)?
            }
            Kind::PlimsollAll { log } => {
                let log = match log {
                    true => "[log]\npath = \"access.log\"\nformat = \"combined\"\n",
                    false => "",
                };
                let admin = ground.free_address()?.to_string();
                let config = PLIMSOLL_ALL.replace("{admin}", &admin).replace("{log}", log);
                plimsoll_command(ground, &config_arguments(ground, &config, addr, &dir)?)?
            }
            Kind::PlimsollDisk { memory, verify } => {
                let more = format!(
                    "--backend epoll --admin {} --memory {memory} --disk-bytes \
                     {PLIMSOLL_DISK_BYTES} --disk-verify {verify} --disk",
                    admin.insert(ground.free_address()?)
                );
                let mut all = arguments(ground, addr, 1, &more);
                all.push(dir.join("store").display().to_string());
                plimsoll_command(ground, &all)?
            }
            Kind::PlimsollFar(options) => {
                let config = PLIMSOLL_FAR
                    .replace("{options}", options)
                    .replace("{memory}", PLIMSOLL_MEMORY_BYTES)
                    .replace("{listen_http3}", &http3.to_string())
                    .replace("{certificates}", &ground.certificates().display().to_string());
                plimsoll_command(ground, &config_arguments(ground, &config, addr, &dir)?)?
            }
            Kind::PlimsollFiles => {
                plimsoll_command(ground, &config_arguments(ground, PLIMSOLL_FILES, addr, &dir)?)?
            }
            Kind::PlimsollCores { workers, cpu } => {
                let more = format!(
                    "--backend epoll --cpu {cpu} --memory {PLIMSOLL_MEMORY_BYTES} --admin {}",
                    admin.insert(ground.free_address()?)
                );
                plimsoll_command(ground, &arguments(ground, addr, workers, &more))?
            }
            Kind::Peer(peer) => {
                if self.has_tls() {
                    tls = ground.free_address()?;
                }
                if peer.config.contains("{listen_http2}") {
                    http2 = ground.free_address()?;
                }
                // Caddy has one address, for all versions.
                if peer.name == "caddy" {
                    (http3, tls) = (addr, addr);
                }
                if peer.config.contains("{listen_tunnel}") {
                    (tunnel, takes_connect) = (ground.free_address()?, peer.name == "squid");
                }
                peer_command(&peer, ground, [addr, http2, tunnel, tls, log_address], &dir)?
            }
        };
        let began = Instant::now();
        let process = process::launch(command, &dir, ground.cpu)?;
        let beside = match self.kind {
            Kind::Peer(peer) => launch_beside(&peer, ground, log_address, &dir)?,
            _ => None,
        };
        let is_floor = self.tier == Tier::Floor;
        let has_http3 = match self.kind {
            Kind::Plimsoll(_) => true,
            // Its congestion control is that of TCP only.
            Kind::PlimsollFar(options) => options.is_empty(),
            Kind::Peer(peer) => peer.name == "caddy",
            _ => false,
        };
        Ok(Running {
            process,
            beside,
            log: dir.join("access.log"),
            is_floor,
            addr,
            http2,
            http3,
            has_http3,
            tunnel,
            takes_connect,
            tls,
            admin,
            version,
            began,
        })
    }
}

fn own_command(arguments: String) -> Result<Command, String> {
    let own = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
    Ok(command(&own, arguments.split(' ')))
}

fn plimsoll_command(
    ground: &Ground<'_>,
    arguments: &[String],
) -> Result<(Command, String), String> {
    if !ground.plimsoll.is_file() {
        return Err(format!("not built: {}", ground.plimsoll.display()));
    }
    let version = version_of(ground.plimsoll, "--version");
    Ok((command(ground.plimsoll, arguments), version))
}

/// The arguments of `plimsoll serve` that rows without a configuration file share, and `more`.
fn arguments(ground: &Ground<'_>, addr: SocketAddr, workers: usize, more: &str) -> Vec<String> {
    let origin = ground.origin;
    let all = format!("serve --listen {addr} --origin http://{origin} --workers {workers} {more}");
    all.split(' ').map(str::to_owned).collect()
}

/// With a configuration file in `dir`.
fn config_arguments(
    ground: &Ground<'_>,
    config: &str,
    addr: SocketAddr,
    dir: &Path,
) -> Result<Vec<String>, String> {
    let config = config
        .replace("{listen}", &addr.to_string())
        .replace("{origin}", &ground.origin.to_string())
        .replace("{dir}", &dir.display().to_string());
    let file = dir.join("plimsoll.toml");
    fs::write(&file, config).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(vec!["serve".to_owned(), "-c".to_owned(), file.display().to_string()])
}

impl Ground<'_> {
    /// An address of the servers with a port that is free at the moment.
    fn free_address(&self) -> Result<SocketAddr, String> {
        Ok(SocketAddr::new(self.at, free_address()?.port()))
    }

    /// The directory of the certificate that every server shows, `site.pem` and `site.key`, and of
    /// both in one file.
    fn certificates(&self) -> &Path {
        self.dir
    }

    /// Makes the certificate.
    ///
    /// # Errors
    /// One line.
    pub(crate) fn make_certificate(&self) -> Result<(), String> {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).map_err(|e| e.to_string())?;
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let both = format!("{chain}{key}");
        let files = [("site.pem", chain), ("site.key", key), ("site.both", both)];
        for (name, text) in files {
            let file = self.certificates().join(name);
            fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
        }
        Ok(())
    }
}

/// The command that starts a peer in its directory, and its version.
fn peer_command(
    peer: &Recipe,
    ground: &Ground<'_>,
    [addr, http2, tunnel, tls, log]: [SocketAddr; 5],
    dir: &Path,
) -> Result<(Command, String), String> {
    let module = peer.config.lines().find_map(|line| line.strip_prefix("load_module "));
    if module.is_some_and(|file| !Path::new(file.trim_end_matches(';')).exists()) {
        return Err(not_installed(peer.package));
    }
    let place = Place { home: dir, cpu: None, origin: ground.origin };
    let mut values = ground.added.values(peer.name);
    values.extend([
        ("more", peer.more.to_owned()),
        ("dir", dir.display().to_string()),
        ("listen_http2", http2.to_string()),
        ("listen_tunnel", tunnel.to_string()),
        ("listen_tls", tls.to_string()),
        ("certificates", ground.certificates().display().to_string()),
        ("listen_log", log.to_string()),
        ("content", "x".repeat(1024)),
    ]);
    let command = peer.command(place, addr, &[], &values)?;
    if peer.config.contains("cache_dir") && !dir.join("cache").exists() {
        // The same command with -z creates Squid's cache directories.
        let mut make = Command::new(command.get_program());
        let made = make.args(command.get_args()).arg("-z").stdin(Stdio::null()).output();
        let made = made.map_err(|e| format!("squid -z: {e}"))?;
        let errors = String::from_utf8_lossy(&made.stderr);
        if !made.status.success() {
            let last = errors.lines().last().unwrap_or("it wrote nothing to stderr");
            return Err(format!("squid -z: {last}"));
        }
    }
    Ok((command, peer.version().unwrap_or_default()))
}

/// Starts what runs beside a peer, if there is something.
fn launch_beside(
    peer: &Recipe,
    ground: &Ground<'_>,
    log: SocketAddr,
    dir: &Path,
) -> Result<Option<peer::Peer>, String> {
    let Some(line) = added::text(peer.name, ground.added.feature, "beside") else {
        return Ok(None);
    };
    let own = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
    let values = [
        ("bench", own.display().to_string()),
        ("listen_log", log.to_string()),
        ("dir", dir.display().to_string()),
    ];
    let words: Vec<String> = line.split(' ').map(|word| filled(word, &values)).collect();
    let (program, arguments) = words.split_first().expect("a line has a word");
    let program = peer::find(program).unwrap_or_else(|| program.into());
    // Its own directory, for what it writes to stderr.
    let home = dir.join("beside");
    make_open_dir(&home).map_err(|e| format!("{}: {e}", home.display()))?;
    process::launch(command(&program, arguments), &home, ground.cpu).map(Some)
}

/// A command for `program` with `arguments`.
fn command(program: &Path, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// The first line of the version output that has a digit.
fn version_of(program: &Path, flag: &str) -> String {
    let Ok(output) = Command::new(program).arg(flag).output() else { return String::new() };
    let both = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&both);
    text.lines().find(|line| line.chars().any(|c| c.is_ascii_digit())).unwrap_or("").to_owned()
}

/// A loopback address with a port that is free at the moment.
pub(crate) fn free_address() -> Result<SocketAddr, String> {
    peer::free_address().map_err(|error| format!("no free port: {error}"))
}

/// Writes a file for each scenario of files.
fn make_files(dir: &Path) -> io::Result<()> {
    make_open_dir(dir)?;
    for scenario in SCENARIOS.iter().filter(|scenario| scenario.tier == Tier::Files) {
        let file = dir.join(scenario.path.trim_start_matches('/'));
        fs::write(file, vec![b'x'; scenario.body_bytes as usize])?;
    }
    Ok(())
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
    fn a_build_runs_in_all_rows_of_its_peer() {
        let program = std::env::current_exe().unwrap();
        let build: Build = format!("haproxy={}", program.display()).parse().unwrap();
        for server in SERVERS {
            let (changed, is_peer) =
                (server.with_builds(&[build]), server.peer() == Some("haproxy"));
            assert_eq!(changed != *server, is_peer, "{}", server.name);
            assert_eq!((changed.name, changed.peer()), (server.name, server.peer()));
        }
        for wrong in ["haproxy", "h2o=/bin/sh", "nginx=/no/such/file"] {
            assert!(wrong.parse::<Build>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_peer_that_has_to_be_built_has_a_program_only_with_a_build() {
        let program = std::env::current_exe().unwrap();
        let build: Build = format!("pingora={}", program.display()).parse().unwrap();
        for server in SERVERS {
            assert_eq!(server.has_program(), server.name != "pingora", "{}", server.name);
            assert!(server.with_builds(&[build]).has_program(), "{}", server.name);
        }
    }

    #[test]
    fn the_floors_come_first_and_names_are_unique() {
        assert_eq!((SERVERS[0].kind, SERVERS[1].kind), (Kind::Null, Kind::Relay));
        let mut names: Vec<&str> = SERVERS.iter().map(|server| server.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SERVERS.len());
    }

    #[test]
    fn a_row_is_of_scenarios_that_there_are_and_each_has_its_floor_and_its_peer() {
        for name in SERVERS.iter().flat_map(|server| server.only) {
            assert!(SCENARIOS.iter().any(|scenario| scenario.name == *name), "{name}");
        }
        for scenario in SCENARIOS.iter().filter(|scenario| !scenario.is_of_disk()) {
            // Over TLS there is no floor.
            let floor = (scenario.tls == Tls::No).then_some(scenario.floor);
            let own = match scenario.tier {
                Tier::Files => "plimsoll-files",
                _ => "plimsoll-epoll",
            };
            for name in floor.into_iter().chain([scenario.peer, own]) {
                let has_row = |server: &Server| server.name == name && server.is_for(scenario);
                assert!(SERVERS.iter().any(has_row), "{name} in {}", scenario.name);
            }
        }
    }

    #[test]
    fn a_row_of_a_few_scenarios_is_in_no_other_one() {
        for scenario in SCENARIOS {
            for server in SERVERS.iter().filter(|server| !server.only.is_empty()) {
                let is_named = server.only.contains(&scenario.name);
                assert_eq!(server.is_for(scenario), is_named, "{} {}", server.name, scenario.name);
            }
        }
    }

    #[test]
    fn a_missing_module_says_how_to_install_it() {
        let config = "load_module /no/such/module.so;";
        let peer = Recipe { package: "x", config, ..Recipe::named("sh") };
        let server = in_memory("none", Kind::Peer(peer));
        let dir = tempfile::tempdir().unwrap();
        let origin = "127.0.0.1:1".parse().unwrap();
        let plimsoll = Path::new("none");
        let ground =
            Ground { dir: dir.path(), origin, plimsoll, cpu: 0, at: HERE, added: Added::NOTHING };
        assert_eq!(server.start(&ground, 0).unwrap_err(), "not installed: apt-get install x");
    }

    #[test]
    fn a_missing_peer_says_how_to_install_it() {
        let peer = Recipe { package: "x", ..Recipe::named("no-such-peer") };
        let server = in_memory("none", Kind::Peer(peer));
        let dir = tempfile::tempdir().unwrap();
        let origin = "127.0.0.1:1".parse().unwrap();
        let plimsoll = Path::new("none");
        let ground =
            Ground { dir: dir.path(), origin, plimsoll, cpu: 0, at: HERE, added: Added::NOTHING };
        let why = server.start(&ground, 0).unwrap_err();
        assert_eq!(why, "not installed: apt-get install x");
        let own = in_memory("own", Kind::Plimsoll("epoll"));
        assert!(own.start(&ground, 0).unwrap_err().starts_with("not built"));
    }
}
