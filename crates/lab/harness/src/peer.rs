//! Server processes of other programs, each started on loopback with its own directory.
//!
//! A peer leads its own process group. Dropping a [`Peer`] sends it SIGTERM, and if it does not
//! end, SIGKILL to its group and its descendants. A server that fails to start is never left out
//! silently: the error has the last line that it wrote to stderr.
//!
//! A Squid names its segments of shared memory after its service. A killed Squid leaves them
//! behind, and they can keep the next Squid of the same service from starting. So each Squid has
//! its own service ([`squid_service`]), and the segments of that service are removed when the peer
//! has ended. The segments of another service are never touched.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use load::{family, sys};

/// How long a peer may take until it accepts connections.
pub const START_MAX: Duration = Duration::from_secs(20);
/// How long a peer may take to end.
const END_MAX: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Where the C library has named segments of shared memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// The path of a program, if it is installed.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    places.map(|place| place.join(program)).find(|file| file.is_file())
}

/// A loopback address on which nothing listened a moment ago, and which only this function gives
/// away.
///
/// # Errors
/// Something listens on all of its ports.
pub fn free_address() -> io::Result<SocketAddr> {
    crate::ports::free_address()
}

/// The name of the service of the Squid whose directory is `home`, for `squid -n`: short, and of
/// letters and digits only. No other Squid has it at the same time.
pub fn squid_service(home: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    std::path::absolute(home).unwrap_or_else(|_| home.to_owned()).hash(&mut hasher);
    format!("plimsoll{:016x}", hasher.finish())
}

/// The segments of shared memory of a Squid's service. Dropping this removes them.
#[derive(Debug)]
struct Segments {
    service: String,
}

impl Drop for Segments {
    fn drop(&mut self) {
        let ours = format!("{}-", self.service);
        let all = fs::read_dir(SHARED_MEMORY).into_iter().flatten().flatten();
        for segment in all.filter(|one| one.file_name().to_string_lossy().starts_with(&ours)) {
            let _ = fs::remove_file(segment.path());
        }
    }
}

/// A running peer. Dropping it ends it.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    errors: PathBuf,
    /// Removed after the peer has ended. A peer that is no Squid has none.
    _segments: Segments,
}

impl Peer {
    /// Starts it in its directory, on a CPU if one is given, and waits until it accepts
    /// connections.
    ///
    /// # Errors
    /// One line that says why it does not.
    pub fn start(
        command: Command,
        home: &Path,
        address: SocketAddr,
        cpu: Option<usize>,
    ) -> Result<Peer, String> {
        let mut peer = Peer::launch(command, home, cpu).map_err(|error| error.to_string())?;
        peer.wait_for(address, START_MAX)?;
        Ok(peer)
    }

    /// Starts it without waiting. Its stderr goes to the file `stderr` in `home`.
    ///
    /// # Errors
    /// The file cannot be created, or the program cannot be run.
    pub fn launch(mut command: Command, home: &Path, cpu: Option<usize>) -> io::Result<Peer> {
        let errors = home.join("stderr");
        command.current_dir(home).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&errors)?).process_group(0);
        let segments = Segments { service: squid_service(home) };
        Ok(Peer { child: spawn(command, cpu)?, errors, _segments: segments })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process ids of the peer and its descendants.
    pub fn family(&self) -> Vec<i32> {
        family::of(self.child.id().cast_signed())
    }

    /// Waits until it accepts connections at `address`.
    ///
    /// # Errors
    /// It ended, or `patience` is over; one line.
    pub fn wait_for(&mut self, address: SocketAddr, patience: Duration) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let is_there = TcpStream::connect(address).is_ok();
            // If it has ended, something else may listen there.
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it ended at once ({status}): {}", self.last_words()));
            }
            if is_there {
                return Ok(());
            }
            if began.elapsed() > patience {
                return Err(format!("it does not listen on {address}: {}", self.last_words()));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The last line that it wrote to stderr.
    pub fn last_words(&self) -> String {
        let text = fs::read_to_string(&self.errors).unwrap_or_default();
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        last.unwrap_or("it wrote nothing to stderr").to_owned()
    }

    /// Sends SIGTERM and waits until it has ended with success.
    ///
    /// # Errors
    /// It failed, or `patience` is over; one line.
    pub fn end(mut self, patience: Duration) -> Result<(), String> {
        let pid = self.child.id().cast_signed();
        sys::terminate(pid).map_err(|error| error.to_string())?;
        match self.ended_within(patience) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("it failed ({status}): {}", self.last_words())),
            None => Err(format!("it does not end: {}", self.last_words())),
        }
    }

    /// Ends it and all its descendants with SIGKILL, and waits until none is left.
    ///
    /// # Errors
    /// One of them is still running after some seconds; one line.
    pub fn kill(mut self) -> Result<(), String> {
        let family = self.family();
        self.kill_family(&family);
        self.child.wait().map_err(|error| error.to_string())?;
        let began = Instant::now();
        while family.iter().any(|pid| is_running(*pid)) {
            if began.elapsed() > END_MAX {
                return Err("it survives SIGKILL".to_owned());
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Sends SIGKILL to the group, and to descendants that have left it.
    fn kill_family(&mut self, family: &[i32]) {
        let _ = sys::kill_group(self.child.id().cast_signed());
        for pid in family {
            let _ = sys::kill(*pid);
        }
    }

    fn ended_within(&mut self, patience: Duration) -> Option<ExitStatus> {
        let began = Instant::now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if began.elapsed() > patience {
                return None;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if self.has_ended() {
            return; // The pid may belong to another process by now.
        }
        let family = self.family();
        let asked = sys::terminate(self.child.id().cast_signed()).is_ok();
        if !asked || self.ended_within(END_MAX).is_none() {
            self.kill_family(&family);
            let _ = self.child.wait();
        }
    }
}

/// Whether a process runs. A zombie does not.
fn is_running(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rfind(')').and_then(|at| stat[at + 1..].split_whitespace().next());
    state.is_some_and(|state| state != "Z")
}

/// A process stays on the CPU of the thread that starts it.
pub(crate) fn spawn(mut command: Command, cpu: Option<usize>) -> io::Result<Child> {
    let Some(cpu) = cpu else { return command.spawn() };
    let pinned = thread::spawn(move || {
        sys::pin_to_cpu(cpu)?;
        command.spawn()
    });
    pinned.join().unwrap_or_else(|_| Err(io::Error::other("the thread that starts it panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, home: &Path) -> Peer {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Peer::launch(command, home, Some(0)).unwrap()
    }

    #[test]
    fn a_peer_that_ends_says_why() {
        let home = tempfile::tempdir().unwrap();
        let free = free_address().unwrap();
        let why = |script| shell(script, home.path()).wait_for(free, START_MAX).unwrap_err();
        let silent = why("exit 3");
        assert!(silent.contains("3") && silent.contains("wrote nothing"), "{silent}");
        let reason = why("echo no such port >&2; exit 3");
        assert!(reason.contains("no such port"), "{reason}");
    }

    /// The segments of a killed Squid kept the next one from starting.
    #[test]
    fn a_killed_squid_leaves_no_shared_memory_behind() {
        let [home, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let segment = |home: &Path| {
            Path::new(SHARED_MEMORY).join(format!("{}-cf__metadata.shm", squid_service(home)))
        };
        let [own, foreign] = [segment(home.path()), segment(other.path())];
        assert_ne!(own, foreign);
        for killed in [false, true] {
            let peer = shell("sleep 60", home.path());
            [&own, &foreign].iter().for_each(|path| fs::write(path, "").unwrap());
            if killed {
                assert_eq!(peer.kill(), Ok(()));
            } else {
                drop(peer);
            }
            assert!(!own.exists() && foreign.exists());
        }
        fs::remove_file(foreign).unwrap();
    }

    #[test]
    fn a_peer_is_ended_with_its_children() {
        let home = tempfile::tempdir().unwrap();
        for killed in [false, true] {
            let peer = shell("sleep 60 & wait", home.path());
            let began = Instant::now();
            while peer.family().len() < 2 && began.elapsed() < Duration::from_secs(5) {
                thread::sleep(POLL_INTERVAL);
            }
            let family = peer.family();
            assert_eq!(family.len(), 2);
            assert!(family::cpu_ns(&family) > 0);
            if killed {
                assert_eq!(peer.kill(), Ok(()));
                assert!(!family.into_iter().any(is_running));
            } else {
                drop(peer);
                assert!(!Path::new(&format!("/proc/{}", family[0])).exists());
                let _ = sys::kill(family[1]);
            }
        }
    }
}
