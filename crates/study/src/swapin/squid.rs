//! A real Squid with a ufs cache_dir, observed from outside.
//!
//! What: a Squid of ours on loopback, with an origin of ours behind it and without a memory cache,
//! so that each hit comes from its disk store; `strace` looks at its system calls while objects are
//! asked for, first to be stored and then to be found. What it reads of each file is counted
//! exactly; the delays are those seen under strace, which adds to each call.
//! Who owns: Squid and strace are children, ended by their pids when this is done or fails.
//! What never happens: a Squid that cannot be looked at passes for one that was; the reason is
//! told.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::trace::{Swap, swaps};

/// What is waited for comes within this, or is told not to have come.
const PATIENCE: Duration = Duration::from_secs(20);
/// Squid reads and writes by pages of so many bytes.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Where servers live that are not in every user's PATH.
const SBIN: &str = ":/usr/local/sbin:/usr/sbin:/sbin";

/// What was seen.
pub(super) struct Seen {
    /// As it names itself.
    pub(super) version: String,
    /// The size of the body of each swap, and the swap.
    pub(super) swaps: Vec<(u64, Swap)>,
}

/// Runs Squid in a directory and asks it for objects of these sizes: once each, then `rounds`
/// times more. `Err` says why it cannot be looked at here.
pub(super) fn observe(
    home: &Path,
    sizes: &[u64],
    rounds: usize,
    until: Instant,
    stop: &AtomicBool,
) -> Result<Seen, String> {
    let squid = program("squid").ok_or("squid is not installed: apt-get install squid")?;
    let strace = program("strace").ok_or("strace is not installed: apt-get install strace")?;
    let version = version_of(&squid)?;
    let origin = Source::start()?;
    let running = Running::start(&squid, home)?;
    let traced = home.join("trace");
    let tracer = Tracer::start(&strace, running.child.id(), &traced)?;
    for round in 0..=rounds {
        for (object, size) in sizes.iter().enumerate() {
            if stop.load(Ordering::Relaxed) || Instant::now() > until {
                break;
            }
            let url = format!("http://{}/obj/{object}?size={size}", origin.address);
            get(running.address, &url, *size)?;
        }
        if round == 0 {
            // Objects are closed when the last of them is written.
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    drop(tracer);
    drop(running);
    let text = fs::read(&traced).map_err(|error| format!("strace wrote nothing: {error}"))?;
    let cache = running_cache(home).display().to_string();
    let seen = swaps(&String::from_utf8_lossy(&text), &cache);
    assign(seen, sizes).map(|swaps| Seen { version, swaps })
}

/// Which swap is of which object: the files are made in the order in which the objects were asked
/// for, and what is read later has the name that was written.
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
        // Its file has Squid's own head and the response's beside the body.
        match sizes.get(object) {
            Some(size) if swap.bytes() > *size && swap.bytes() < *size + PAGE_BYTES => {
                assigned.push((*size, swap));
            }
            _ => return Err(format!("a file of Squid's has {} bytes unlike ours", swap.bytes())),
        }
    }
    if !assigned.iter().any(|(_, swap)| !swap.out) {
        return Err("strace saw Squid read nothing from its cache_dir".into());
    }
    Ok(assigned)
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default() + SBIN;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|there| there.is_file())
}

fn version_of(squid: &Path) -> Result<String, String> {
    let said = Command::new(squid).arg("-v").output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let line = text.lines().next().unwrap_or_default();
    Ok(line.replace("Squid Cache: Version", "Squid").trim().to_owned())
}

/// An origin in a thread of its own.
struct Source {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Source {
    fn start() -> Result<Source, String> {
        let refused = |error: std::io::Error| format!("the origin cannot start: {error}");
        let origin = load::Origin::bind((Ipv4Addr::LOCALHOST, 0).into()).map_err(refused)?;
        let address = origin.local_addr();
        let stop = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("origin".into())
            .spawn(move || {
                // Without it Squid answers 503, and that is told.
                let _ = origin.run(&of_thread);
            })
            .map_err(refused)?;
        Ok(Source { address, stop, thread: Some(thread) })
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A Squid of ours.
struct Running {
    child: Child,
    address: SocketAddr,
}

fn running_cache(home: &Path) -> PathBuf {
    home.join("cache")
}

impl Running {
    fn start(squid: &Path, home: &Path) -> Result<Running, String> {
        let told = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let cache = running_cache(home);
        fs::create_dir(&cache).map_err(|error| told("Squid's directory", &error))?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .map_err(|error| told("no port for Squid", &error))?;
        let configuration = home.join("squid.conf");
        fs::write(&configuration, configuration_of(home, port))
            .map_err(|error| told("Squid's configuration", &error))?;
        // Started by root it becomes this user, who must own what it writes.
        if rustix::process::geteuid().is_root() {
            let owned = Command::new("chown").arg("-R").arg("proxy").arg(home).status();
            if !owned.is_ok_and(|status| status.success()) {
                return Err("there is no user proxy for Squid to become".into());
            }
        }
        let mut command = Command::new(squid);
        command.arg("-N").arg("-f").arg(&configuration).current_dir(home);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut make = Command::new(squid);
        make.args(["-N", "-z", "-f"]).arg(&configuration).current_dir(home);
        make.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let made = make.status().map_err(|error| told("squid -z", &error))?;
        if !made.success() {
            return Err(format!("squid -z ended with {made}"));
        }
        let child = command.spawn().map_err(|error| told("squid", &error))?;
        let mut running = Running { child, address: port };
        running.wait()?;
        Ok(running)
    }

    fn wait(&mut self) -> Result<(), String> {
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address).is_err() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("squid did not start: it ended with {status}"));
            }
            if Instant::now() > until {
                return Err("squid did not listen in time".into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        // It reads its cache_dir anew in the background, and stores nothing until then.
        std::thread::sleep(Duration::from_millis(2500));
        Ok(())
    }
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

impl Drop for Running {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// strace, looking at Squid.
struct Tracer(Child);

impl Tracer {
    fn start(strace: &Path, pid: u32, trace: &Path) -> Result<Tracer, String> {
        let mut command = Command::new(strace);
        command.args(["-f", "-ttt", "-T", "-s", "0", "-e"]);
        command.arg("trace=openat,open,read,pread64,preadv,write,pwrite64,writev,close");
        command.arg("-o").arg(trace).arg("-p").arg(pid.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| format!("strace: {error}"))?;
        let mut tracer = Tracer(child);
        let until = Instant::now() + PATIENCE;
        while !is_traced(pid) {
            if tracer.0.try_wait().is_ok_and(|ended| ended.is_some()) {
                let mut words = String::new();
                if let Some(mut stderr) = tracer.0.stderr.take() {
                    let _ = stderr.read_to_string(&mut words);
                }
                return Err(words.lines().next().unwrap_or("strace ended at once").to_owned());
            }
            if Instant::now() > until {
                return Err("strace did not attach in time".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(tracer)
    }
}

fn is_traced(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|pid| pid.trim() != "0")
}

impl Drop for Tracer {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// Asks a child to end, and waits; one that does not is killed.
fn end(child: &mut Child) {
    if child.try_wait().is_ok_and(|ended| ended.is_some()) {
        return;
    }
    if let Ok(pid) = i32::try_from(child.id()) {
        let _ = load::sys::terminate(pid);
    }
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        if child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// One request through Squid, on a connection of its own.
fn get(squid: SocketAddr, url: &str, size: u64) -> Result<(), String> {
    let asked = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(squid)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let head = format!("GET {url} HTTP/1.1\r\nHost: study\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = asked().map_err(|error| format!("Squid does not answer: {error}"))?;
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
    fn a_swap_is_of_the_object_whose_file_it_is() {
        let seen = vec![swap("A", true, 700), swap("B", true, 5300), swap("B", false, 5300)];
        let assigned = assign(seen, &[500, 5000]).unwrap();
        assert_eq!(assigned.iter().map(|(size, _)| *size).collect::<Vec<_>>(), [500, 5000, 5000]);
    }

    #[test]
    fn what_does_not_fit_is_told() {
        assert!(assign(vec![swap("A", true, 100), swap("A", false, 100)], &[500]).is_err());
        assert!(assign(vec![swap("A", true, 700)], &[500]).is_err(), "nothing was read");
        assert!(assign(Vec::new(), &[]).is_err());
    }
}
