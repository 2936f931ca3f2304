//! The servers as Debian configures them, each in its own directory, with its ordinary access log
//! and one worker; and small programs for the servers of language runtimes.
//!
//! A server is pinned to CPU 0. The origin of the proxies is on CPU 1, and so is varnishncsa, a
//! separate process that writes Varnish's log. What never happens: a server that is not
//! installed or does not answer is left out silently.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use harness::peer::{self, Peer};
use harness::recipe::{Place, Recipe, not_installed};
use load::family;

use crate::servers::{Running, response, start_ours, start_peer};

/// The requested object, which is the file of a site and an object of the origin.
const OBJECT: &str = "/obj/1";
/// The longest wait for the first response.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// The name of our server.
pub(super) const OURS: &str = "plimsoll";

const NGINX: Recipe = Recipe {
    package: "nginx-light",
    config: include_str!("peers/nginx.conf"),
    command: "{program} -p {home} -e {home}/error.log -c {config}",
    user: "user www-data;",
    ..Recipe::named("nginx")
};

/// A variant of nginx.
const fn nginx(name: &'static str, more: &'static str) -> Recipe {
    Recipe { name, more, variant_of: Some(NGINX.name), ..NGINX }
}

const GO: Recipe = Recipe {
    package: "golang-go",
    version: "version",
    config: include_str!("peers/main.go"),
    build: Some("{program} build -o {home}/server {config}"),
    command: "{home}/server {listen} {more}",
    more: "0",
    ..Recipe::named("go")
};

/// A variant of the Go server that burns this many nanoseconds of each request.
const fn burning(name: &'static str, ns: &'static str) -> Recipe {
    Recipe { name, more: ns, variant_of: Some(GO.name), ..GO }
}

const APACHE: Recipe = Recipe {
    name: "apache",
    config: include_str!("peers/apache.conf"),
    command: "{program} -D FOREGROUND -D event -f {config}",
    user: "User www-data\nGroup www-data",
    ..Recipe::named("apache2")
};

const NGINX_CACHE: Recipe =
    Recipe { name: "nginx-cache", config: include_str!("peers/nginx-cache.conf"), ..NGINX };

const SQUID: Recipe = Recipe {
    config: include_str!("peers/squid.conf"),
    command: "{program} --foreground -YC -n {service} -f {config}",
    ..Recipe::named("squid")
};

const KINDS: [Recipe; 21] = [
    NGINX,
    Recipe { name: "nginx-workers", workers: "4", ..NGINX },
    NGINX_CACHE,
    Recipe {
        name: "nginx-mix",
        more: "split_clients $request_id $is_miss { 20% 1; * 0; }
    proxy_cache_bypass $is_miss;
    proxy_no_cache $is_miss;",
        ..NGINX_CACHE
    },
    SQUID,
    Recipe {
        name: "squid-mix",
        more: "acl is_miss random 0.2
cache deny is_miss",
        ..SQUID
    },
    Recipe {
        config: include_str!("peers/haproxy.cfg"),
        command: "{program} -db -f {config}",
        log: "stderr",
        ..Recipe::named("haproxy")
    },
    Recipe {
        program: "varnishd",
        version: "-V",
        config: include_str!("../webbench/peers/varnish.vcl"),
        command: "{program} -F -j none -a {listen} -T none -f {config} -s malloc,256m \
                  -n {home}/varnish",
        ..Recipe::named("varnish")
    },
    Recipe {
        config: include_str!("peers/lighttpd.conf"),
        command: "{program} -D -f {config}",
        user: "server.username = \"www-data\"\nserver.groupname = \"www-data\"",
        ..Recipe::named("lighttpd")
    },
    APACHE,
    Recipe {
        name: "apache-prefork",
        command: "{program} -D FOREGROUND -D prefork -f {config}",
        ..APACHE
    },
    Recipe {
        program: "traffic_server",
        version: "-V",
        config: include_str!("peers/trafficserver.sh"),
        command: "sh {config}",
        ..Recipe::named("trafficserver")
    },
    Recipe {
        package: "nodejs",
        config: include_str!("peers/node.js"),
        command: "{program} {config}",
        ..Recipe::named("node")
    },
    GO,
    Recipe {
        program: "python3",
        package: "python3",
        version: "-V",
        config: include_str!("peers/python.py"),
        command: "{program} {config}",
        ..Recipe::named("python")
    },
    Recipe {
        config: include_str!("peers/gunicorn.py"),
        command: "{program} -c {config} __config__:serve",
        ..Recipe::named("gunicorn")
    },
    nginx(
        "nginx-hop",
        "location /obj/ { proxy_pass http://{listen}/inner/; }
        location /inner/ { alias {home}/files/obj/; access_log off; }",
    ),
    nginx("nginx-gzip", "gzip_types *;"),
    burning("go-burn-5", "900"),
    burning("go-burn-10", "1800"),
    burning("go-burn-20", "3600"),
];

/// The names of all servers, in the order in which they are measured.
pub(super) const SERVERS: [&str; KINDS.len() + 1] = {
    let mut names = [OURS; KINDS.len() + 1];
    let mut at = 0;
    while at < KINDS.len() {
        names[at] = KINDS[at].name;
        at += 1;
    }
    names
};

/// The server of which this is a variant.
pub(super) fn variant_of(name: &str) -> Option<&'static str> {
    KINDS.iter().find(|kind| kind.name == name).and_then(|kind| kind.variant_of)
}

/// A running server.
pub(super) struct Served {
    /// The process that writes the log, if the server does not; it ends first.
    _log_writer: Option<Peer>,
    pub(super) server: Running,
    pub(super) log: PathBuf,
    pub(super) version: String,
}

impl Served {
    /// CPU time of all its processes so far.
    pub(super) fn cpu_ns(&self) -> u64 {
        family::cpu_ns(&self.server.family())
    }

    /// The URL of the object.
    pub(super) fn url(&self, body_bytes: u64) -> String {
        format!("http://{}{}", self.server.address, path(body_bytes))
    }

    /// Requests the object once.
    fn answers(&self, body_bytes: u64) -> Result<(), String> {
        let (address, path) = (self.server.address, path(body_bytes));
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        let failed = |error: io::Error| format!("it does not answer: {error}");
        let answer = response(address, &request, ANSWER_MAX).map_err(failed)?;
        if answer.starts_with(b"HTTP/1.1 200") && answer.len() as u64 > body_bytes {
            return Ok(());
        }
        let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
        Err(format!("it answers {:?}", String::from_utf8_lossy(line)))
    }
}

/// The path of the object, with a body of so many bytes. A server of files ignores the query.
pub(super) fn path(body_bytes: u64) -> String {
    format!("{OBJECT}?size={body_bytes}")
}

/// Starts a server for bodies of this many bytes, in a directory below `place.home`.
///
/// # Errors
/// Why it cannot be measured, in one line.
pub(super) fn start(
    program: &Path,
    place: Place<'_>,
    others: Option<usize>,
    name: &str,
    body_bytes: u64,
) -> Result<Served, String> {
    let home = &place.home.join(format!("{name}-{body_bytes}"));
    prepare(home, body_bytes).map_err(|error| format!("{}: {error}", home.display()))?;
    let place = Place { home, ..place };
    let served = match KINDS.iter().find(|kind| kind.name == name) {
        Some(kind) => {
            let server = start_peer(kind, place, &[], &[])?;
            let log = home.join(kind.log);
            let log_writer = match kind.program {
                "varnishd" => Some(start_varnishncsa(home, &log, others)?),
                _ => None,
            };
            let version = kind.version().unwrap_or_default();
            Served { _log_writer: log_writer, server, log, version }
        }
        None => {
            let log = home.join("access.log");
            let path = log.display().to_string();
            let more = ["--workers", "1", "--access-log", &path].map(String::from);
            let server = start_ours(program, place, &[], &more).map_err(|why| why.to_string())?;
            let version = env!("CARGO_PKG_VERSION").to_owned();
            Served { _log_writer: None, server, log, version }
        }
    };
    served.answers(body_bytes)?;
    Ok(served)
}

/// Makes the directory of a server, which it may write to after it has left root, and its site.
fn prepare(home: &Path, body_bytes: u64) -> io::Result<()> {
    let _ = fs::remove_dir_all(home);
    let file = home.join("files").join(OBJECT.trim_start_matches('/'));
    fs::create_dir_all(file.parent().unwrap_or(home))?;
    fs::set_permissions(home, fs::Permissions::from_mode(0o777))?;
    fs::write(file, vec![b'x'; body_bytes as usize])
}

/// As Debian's unit starts it, but not as a daemon.
fn start_varnishncsa(home: &Path, log: &Path, cpu: Option<usize>) -> Result<Peer, String> {
    let program = peer::find("varnishncsa").ok_or_else(|| not_installed("varnish"))?;
    let own = home.join("varnishncsa");
    let failed = |error: io::Error| format!("varnishncsa: {error}");
    fs::create_dir_all(&own).map_err(failed)?;
    let mut command = Command::new(program);
    command.arg("-a").arg("-w").arg(log).arg("-n").arg(home.join("varnish"));
    Peer::launch(command, &own, cpu).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use harness::origin::OriginThread;
    use logs::survey::{SurveySpec, survey};

    use super::*;
    use crate::conditions::working_directory;

    #[test]
    fn every_name_in_a_configuration_is_filled_in() {
        let home = Path::new("/somewhere");
        let (origin, address) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:8080".parse().unwrap());
        let place = Place { home, cpu: None, origin };
        for kind in KINDS {
            let config = kind.configuration(place, address, &[]);
            // A name in braces on one line was not filled in.
            let unfilled = config.lines().find(|line| {
                let name = line.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
                let is_named = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
                name.is_some_and(|(name, _)| !name.is_empty() && name.bytes().all(is_named))
            });
            assert_eq!(unfilled, None, "{}", kind.name);
        }
    }

    #[test]
    fn each_installed_server_serves_the_object_and_has_a_log_that_is_understood() {
        let origin = OriginThread::start(None).unwrap();
        let home = working_directory(None, "predict").unwrap();
        let place = Place { home: home.path(), cpu: Some(0), origin: origin.address() };
        for kind in KINDS {
            let running = match start(Path::new(""), place, None, kind.name, 1024) {
                Ok(running) => running,
                Err(why) if why.starts_with("not installed") => {
                    eprintln!("skipped: {}: {why}", kind.name);
                    continue;
                }
                Err(why) => panic!("{}: {why}", kind.name),
            };
            let spec = SurveySpec { files: vec![running.log.clone()], ..SurveySpec::default() };
            let began = Instant::now();
            // Some servers write their log seconds later, and varnishncsa may miss the first.
            while !survey(&spec).is_ok_and(|read| read.requests > 0) {
                assert!(began.elapsed() < ANSWER_MAX, "{}: nothing is logged", kind.name);
                thread::sleep(Duration::from_millis(50));
                running.answers(1024).unwrap();
            }
        }
    }
}
