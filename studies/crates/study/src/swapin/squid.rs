//! A real Squid with a ufs cache_dir, observed from outside.
//!
//! What: a Squid on loopback in front of our origin, without a memory cache, so that each hit comes
//! from its disk store. `strace` records its system calls while objects are requested, first to be
//! stored and then to be hit. The reads of each file are counted exactly. The delays are those
//! under strace, which slows down each call. Ownership: Squid and strace are children, ended by
//! their pids at the end or on a failure. What never happens: a Squid that could not be observed is
//! reported as observed. The outcome gives the reason.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::origin::OriginThread;
use harness::peer::{self, Peer};

use super::trace::{Swap, swaps};
use crate::servers::{not_installed, response};

/// The longest wait for anything; after that the study reports that it did not happen.
const PATIENCE: Duration = Duration::from_secs(20);
/// Squid reads and writes pages of this many bytes.
pub(super) const PAGE_BYTES: u64 = 4096;

/// The observations.
pub(super) struct Seen {
    /// As Squid prints it.
    pub(super) version: String,
    /// The size of the body of each swap, and the swap.
    pub(super) swaps: Vec<(u64, Swap)>,
}

/// Runs Squid in a directory and requests objects of these sizes from it: once each, then `rounds`
/// times more. `Err` says why it cannot be observed here.
pub(super) fn observe(
    home: &Path,
    sizes: &[u64],
    rounds: usize,
    until: Instant,
    stop: &AtomicBool,
) -> Result<Seen, String> {
    let squid = peer::find("squid").ok_or_else(|| not_installed("squid"))?;
    let strace = peer::find("strace").ok_or_else(|| not_installed("strace"))?;
    let version = version_of(&squid)?;
    let origin = OriginThread::start(None)?;
    let running = Running::start(&squid, home)?;
    let traced = home.join("trace");
    let tracer = attach(&strace, running.squid.pid(), &home.join("strace"), &traced)?;
    for round in 0..=rounds {
        for (object, size) in sizes.iter().enumerate() {
            if stop.load(Ordering::Relaxed) || Instant::now() > until {
                break;
            }
            let url = format!("http://{}/obj/{object}?size={size}", origin.address());
            get(running.address, &url, *size)?;
        }
        if round == 0 {
            // Squid closes the files of the last objects.
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    drop(tracer);
    drop(running);
    let text = fs::read(&traced).map_err(|error| format!("strace wrote nothing: {error}"))?;
    let cache = cache_directory(home).display().to_string();
    let seen = swaps(&String::from_utf8_lossy(&text), &cache);
    assign(seen, sizes).map(|swaps| Seen { version, swaps })
}

/// Assigns each swap to an object. The files are created in the order in which the objects were
/// requested, and a later read has the name of the written file.
fn assign(seen: Vec<Swap>, sizes: &[u64]) -> Result<Vec<(u64, Swap)>, String> {
    let mut names: Vec<String> = Vec::new();
    let mut assigned = Vec::new();
    for swap in seen {
        let object = match names.iter().position(|name| *name == swap.file) {
            Some(object) => object,
            None if swap.out => {
                names.push(swap.file.clone());
                names.len() - 1
            }
            None => continue,
        };
        // The file contains Squid's header and the response head in addition to the body.
        match sizes.get(object) {
            Some(size) if swap.bytes() > *size && swap.bytes() < *size + PAGE_BYTES => {
                assigned.push((*size, swap));
            }
            _ => {
                return Err(format!(
                    "a file of Squid has {} bytes, which fits no object",
                    swap.bytes()
                ));
            }
        }
    }
    if !assigned.iter().any(|(_, swap)| !swap.out) {
        return Err("strace saw no read from the cache_dir of Squid".into());
    }
    Ok(assigned)
}

fn version_of(squid: &Path) -> Result<String, String> {
    let output = Command::new(squid).arg("-v").output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next().unwrap_or_default();
    Ok(line.replace("Squid Cache: Version", "Squid").trim().to_owned())
}

/// A Squid that this study started.
struct Running {
    squid: Peer,
    address: SocketAddr,
}

impl Running {
    fn start(squid: &Path, home: &Path) -> Result<Running, String> {
        let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        fs::create_dir(cache_directory(home))
            .map_err(|error| failed("Squid's directory", &error))?;
        let address = peer::free_address().map_err(|error| failed("no port for Squid", &error))?;
        let configuration = home.join("squid.conf");
        fs::write(&configuration, configuration_of(home, address))
            .map_err(|error| failed("Squid's configuration", &error))?;
        // If root starts it, Squid becomes this user, who must own the directory.
        if rustix::process::geteuid().is_root() {
            let owned = Command::new("chown").arg("-R").arg("proxy").arg(home).status();
            if !owned.is_ok_and(|status| status.success()) {
                return Err("there is no user proxy for Squid to become".into());
            }
        }
        let service = peer::squid_service(home);
        let command = |flags: &[&str]| {
            let mut command = Command::new(squid);
            command.args(flags).args(["-n", &service, "-f"]).arg(&configuration);
            command.current_dir(home);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let made = command(&["-N", "-z"]).status().map_err(|error| failed("squid -z", &error))?;
        if !made.success() {
            return Err(format!("squid -z ended with {made}"));
        }
        let squid = Peer::start(command(&["-N"]), home, address, None)
            .map_err(|why| failed("squid did not start", &why))?;
        // Squid rebuilds the index of its cache_dir in the background, and stores nothing before.
        std::thread::sleep(Duration::from_millis(2500));
        Ok(Running { squid, address })
    }
}

fn cache_directory(home: &Path) -> PathBuf {
    home.join("cache")
}

fn configuration_of(home: &Path, address: SocketAddr) -> String {
    let home = home.display();
    format!(
        "http_port {address}\nvisible_hostname study\npid_filename none\nhttp_access allow all\n\
         cache_effective_user proxy\ncache_mem 0 MB\nmaximum_object_size_in_memory 0 KB\n\
         maximum_object_size 4 MB\ncache_dir ufs {home}/cache 256 1 16\naccess_log none\n\
         cache_log {home}/squid.log\ncache_store_log none\ncoredump_dir {home}\n\
         netdb_filename none\npinger_enable off\nshutdown_lifetime 0 seconds\n\
         dns_nameservers 127.0.0.1\nmax_filedescriptors 1024\n"
    )
}

/// Attaches strace to a process.
fn attach(strace: &Path, pid: u32, home: &Path, trace: &Path) -> Result<Peer, String> {
    fs::create_dir(home).map_err(|error| format!("strace's directory: {error}"))?;
    let mut command = Command::new(strace);
    command.args(["-f", "-ttt", "-T", "-s", "0", "-e"]);
    command.arg("trace=openat,open,read,pread64,preadv,write,pwrite64,writev,close");
    command.arg("-o").arg(trace).arg("-p").arg(pid.to_string());
    let mut tracer =
        Peer::launch(command, home, None).map_err(|error| format!("strace: {error}"))?;
    let until = Instant::now() + PATIENCE;
    while !is_traced(pid) {
        if tracer.has_ended() {
            return Err(tracer.last_words());
        }
        if Instant::now() > until {
            return Err("strace did not attach in time".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(tracer)
}

fn is_traced(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|pid| pid.trim() != "0")
}

/// Sends one request through Squid.
fn get(squid: SocketAddr, url: &str, size: u64) -> Result<(), String> {
    let request = format!("GET {url} HTTP/1.1\r\nHost: study\r\nConnection: close\r\n\r\n");
    let answer = response(squid, &request, PATIENCE)
        .map_err(|error| format!("Squid does not answer: {error}"))?;
    let head = String::from_utf8_lossy(&answer[..answer.len().min(64)]).into_owned();
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" || (answer.len() as u64) < size {
        return Err(format!("Squid answers {status} with {} bytes", answer.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swap(file: &str, out: bool, bytes: u64) -> Swap {
        Swap { file: file.into(), out, calls: vec![bytes], ..Swap::default() }
    }

    #[test]
    fn a_swap_belongs_to_the_object_of_its_file() {
        let seen = vec![swap("A", true, 700), swap("B", true, 5300), swap("B", false, 5300)];
        let assigned = assign(seen, &[500, 5000]).unwrap();
        assert_eq!(assigned.iter().map(|(size, _)| *size).collect::<Vec<_>>(), [500, 5000, 5000]);
    }

    #[test]
    fn a_swap_that_fits_no_object_is_an_error() {
        assert!(assign(vec![swap("A", true, 100), swap("A", false, 100)], &[500]).is_err());
        assert!(assign(vec![swap("A", true, 700)], &[500]).is_err(), "nothing was read");
        assert!(assign(Vec::new(), &[]).is_err());
    }
}
