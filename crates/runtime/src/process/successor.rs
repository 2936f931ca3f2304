//! The process that takes our place: the same program anew, with our listening sockets open.
//!
//! ```text
//! start --(child runs, holds the sockets)--> Starting --"ready" on the pipe--> Ready(pid)
//!                                                |
//!                                                +-- words, the pipe's end, or the time-out
//!                                                    --> the child is ended, we serve on
//! ```

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The numbers of the listening sockets that the successor finds open.
pub(super) const LISTENERS_VARIABLE: &str = "PLIMSOLL_LISTENERS";
/// The number of the pipe on which it says that it serves.
pub(super) const READY_VARIABLE: &str = "PLIMSOLL_READY";
/// What it then says; all else are the words for why it cannot.
pub(super) const READY: &[u8] = b"ready\n";
/// The longest reason that is listened to.
const WORDS_BYTES_MAX: usize = 4096;

/// A successor that has been started and has not yet said that it serves. Dropped, it is ended:
/// it never lives on beside us unwatched.
#[derive(Debug)]
pub struct Successor {
    child: Option<Child>,
    pipe: File,
}

impl Successor {
    /// Starts `program` with these arguments and with these sockets open.
    ///
    /// # Errors
    /// The program cannot be run; nothing has changed then.
    pub fn start(
        program: &Path,
        arguments: &[OsString],
        listeners: &[BorrowedFd<'_>],
    ) -> io::Result<Successor> {
        let (ours, theirs) = pipe()?;
        let passed: Vec<RawFd> = listeners.iter().map(AsRawFd::as_raw_fd).collect();
        let listed: Vec<String> = passed.iter().map(ToString::to_string).collect();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env(LISTENERS_VARIABLE, listed.join(","))
            .env(READY_VARIABLE, theirs.as_raw_fd().to_string())
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDNAMES");
        let mut kept_open = passed;
        kept_open.push(theirs.as_raw_fd());
        // SAFETY: between fork and exec the closure makes system calls and nothing else; all it
        // reads was allocated before.
        unsafe {
            command.pre_exec(move || kept_open.iter().try_for_each(|fd| pass_on(*fd)));
        }
        let child = command.spawn()?;
        Ok(Successor { child: Some(child), pipe: ours })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Waits until it says that it serves; from then on it lives on its own. Blocks: not for a
    /// core's thread.
    ///
    /// # Errors
    /// Why it does not serve, in words. It has been ended.
    pub fn serves_within(mut self, patience: Duration) -> Result<u32, String> {
        let until = Instant::now() + patience;
        let mut said = Vec::new();
        loop {
            if !self.speaks_until(until) {
                let seconds = patience.as_secs_f64();
                return Err(format!("it was not ready within {seconds} s and was ended"));
            }
            let mut piece = [0; 512];
            match self.pipe.read(&mut piece) {
                Ok(0) => break,
                Ok(count) if said.len() < WORDS_BYTES_MAX => said.extend(&piece[..count]),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("it cannot be heard: {error}")),
            }
            if said == READY {
                let pid = self.pid();
                self.child = None;
                return Ok(pid);
            }
        }
        let words = String::from_utf8_lossy(&said).trim().to_owned();
        let ended = self.child.as_mut().and_then(|child| child.wait().ok());
        self.child = None;
        Err(match ended {
            _ if !words.is_empty() => words,
            Some(status) => format!("it ended without a word ({status})"),
            None => "it ended without a word".to_owned(),
        })
    }

    /// Whether there is something to read, or the end, before then.
    fn speaks_until(&self, until: Instant) -> bool {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left_ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
            let mut watched =
                libc::pollfd { fd: self.pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one pollfd, which lives until the call returns.
            match unsafe { libc::poll(&raw mut watched, 1, left_ms) } {
                0 => return false,
                1 => return true,
                _ if left.is_zero() => return false,
                _ => {}
            }
        }
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Leaves the descriptor open in the program that is about to run.
fn pass_on(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointers.
    let result = unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Both ends of a pipe, neither passed on unasked.
fn pipe() -> io::Result<(File, OwnedFd)> {
    let mut ends: [RawFd; 2] = [-1; 2];
    // SAFETY: writes two descriptors into the array.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: two new descriptors that nobody else owns.
    unsafe { Ok((File::from(OwnedFd::from_raw_fd(ends[0])), OwnedFd::from_raw_fd(ends[1]))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<u32, String> {
        let arguments = ["-c".into(), script.into()];
        let started = Successor::start(Path::new("/bin/sh"), &arguments, &[]).unwrap();
        started.serves_within(Duration::from_secs(20))
    }

    #[test]
    fn a_successor_that_says_so_serves() {
        assert!(shell("echo ready >&$PLIMSOLL_READY").is_ok());
    }

    #[test]
    fn one_that_says_why_not_does_not() {
        let said = shell("echo the port is taken >&$PLIMSOLL_READY; exit 2");
        assert_eq!(said, Err("the port is taken".to_owned()));
    }

    #[test]
    fn one_that_ends_without_a_word_does_not() {
        assert!(shell("exit 3").unwrap_err().contains("exit status: 3"));
    }

    #[test]
    fn one_that_takes_too_long_is_ended() {
        let arguments = ["-c".into(), "exec sleep 1000".into()];
        let started = Successor::start(Path::new("/bin/sh"), &arguments, &[]).unwrap();
        let pid = started.pid();
        assert!(started.serves_within(Duration::from_millis(50)).is_err());
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        assert!(Successor::start(Path::new("/nowhere/plimsoll"), &[], &[]).is_err());
    }
}
