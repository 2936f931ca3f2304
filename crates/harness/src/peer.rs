//! Servers of others, each started on loopback in a directory of its own.
//!
//! A peer is the leader of a process group of its own, and is ended by its pid; its group is, if it
//! does not end. What never happens: a server that does not start is left out without its reason.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use load::sys;

/// How long a peer may take until it listens, and until it has ended.
const START_MAX: Duration = Duration::from_secs(15);
const END_MAX: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The program's path, if it is installed.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    places.map(|place| place.join(program)).find(|file| file.is_file())
}

/// A loopback address with a port that nobody has at the moment.
pub fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// A peer: ended when this is dropped.
pub struct Peer(Child);

impl Peer {
    /// Starts it in its directory, on a CPU if one is given, and waits until it listens; or why it
    /// does not.
    pub fn start(
        mut command: Command,
        home: &Path,
        address: SocketAddr,
        cpu: Option<usize>,
    ) -> Result<Peer, String> {
        let at = |error: io::Error| format!("{}: {error}", home.display());
        let errors = File::create(home.join("stderr")).map_err(at)?;
        command.current_dir(home).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(errors).process_group(0);
        let mut peer = Peer(spawn(command, cpu).map_err(|error| error.to_string())?);
        peer.wait_for(address, home)?;
        Ok(peer)
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    fn wait_for(&mut self, address: SocketAddr, home: &Path) -> Result<(), String> {
        let said = || {
            let said = std::fs::read_to_string(home.join("stderr")).unwrap_or_default();
            let last = said.lines().rev().find(|line| !line.trim().is_empty());
            last.unwrap_or("it said nothing").to_owned()
        };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Ok(Some(status)) = self.0.try_wait() {
                return Err(format!("it ended at once ({status}): {}", said()));
            }
            if begun.elapsed() > START_MAX {
                return Err(format!("it does not listen: {}", said()));
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(None)) {
            return; // The pid may be another's by now.
        }
        let pid = self.0.id().cast_signed();
        let asked = sys::terminate(pid);
        let begun = Instant::now();
        while asked.is_ok() && begun.elapsed() < END_MAX {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(LOOK_AGAIN);
        }
        if sys::kill_group(pid).is_err() {
            let _ = self.0.kill();
        }
        let _ = self.0.wait();
    }
}

/// What is started by a thread stays on that thread's CPU.
fn spawn(mut command: Command, cpu: Option<usize>) -> io::Result<Child> {
    let Some(cpu) = cpu else { return command.spawn() };
    let pinned = thread::spawn(move || {
        sys::pin_to_cpu(cpu)?;
        command.spawn()
    });
    pinned.join().unwrap_or_else(|_| Err(io::Error::other("the thread that starts it failed")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_ends_says_why_and_one_that_stays_is_ended() {
        let home = tempfile::tempdir().unwrap();
        let free = free_address().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3"]);
        let mut process = Peer(spawn(command, Some(0)).unwrap());
        let why = process.wait_for(free, home.path()).unwrap_err();
        assert!(why.contains("3") && why.contains("it said nothing"), "{why}");
        let mut command = Command::new("sleep");
        command.arg("60").process_group(0);
        let process = Peer(spawn(command, None).unwrap());
        let pid = process.0.id();
        drop(process);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
