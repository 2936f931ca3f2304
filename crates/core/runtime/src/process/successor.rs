//! The process that replaces this one: the same program started again, with our listening sockets
//! open.
//!
//! ```text
//! start --(child runs, has the sockets)--> requests store, then listeners --"ready"--> it serves
//!                                                |
//!                                                +-- a reason, the link's end, or the time-out
//!                                                    --> the child is killed, we continue to serve
//! ```
//!
//! [`super::link`] describes the messages.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Instant;

use super::datagram_link::DatagramLink;
use super::link::{LISTENERS, Link, READY, STORE};
use crate::sys::real::check;

/// Names the variable with the numbers of the listening sockets.
pub(super) const LISTENERS_VARIABLE: &str = "PLIMSOLL_LISTENERS";
/// Names the variable with the number of the successor's end of the link.
pub(super) const LINK_VARIABLE: &str = "PLIMSOLL_LINK";
/// Names the variable with the number of its end of the link for datagrams.
pub(super) const DATAGRAMS_VARIABLE: &str = "PLIMSOLL_DATAGRAMS";
/// Is there if a supervisor has opened the listening sockets of the first process.
const ACTIVATED_VARIABLE: &str = "PLIMSOLL_ACTIVATED";
/// The longest reason that is kept.
const WORDS_BYTES_MAX: usize = 4096;

/// Whether a supervisor has opened the listening sockets, for this process or for an earlier one
/// whose place it has taken.
pub(super) fn is_activated() -> bool {
    ["LISTEN_FDS", ACTIVATED_VARIABLE].iter().any(|name| std::env::var_os(name).is_some())
}

/// What a successor reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuccessorState {
    /// It is about to open the store, and waits until it may.
    WantsStore,
    /// It is about to accept connections, and waits until it may.
    WantsListeners,
    /// It serves.
    Ready,
}

/// A successor that has been started and has not yet reported that it serves. Dropping this kills
/// it, so that it never runs beside us unsupervised.
#[derive(Debug)]
pub struct Successor {
    child: Option<Child>,
    link: Link,
    datagrams: DatagramLink,
}

impl Successor {
    /// Starts `program` with these arguments and open sockets.
    ///
    /// # Errors
    /// The program cannot be run; nothing has changed.
    pub fn start(
        program: &Path,
        arguments: &[OsString],
        listeners: &[BorrowedFd<'_>],
    ) -> io::Result<Successor> {
        let (ours, theirs) = Link::pair()?;
        let (datagrams, their_datagrams) = DatagramLink::pair()?;
        let their_datagrams = their_datagrams.into_fd();
        let passed: Vec<RawFd> = listeners.iter().map(AsRawFd::as_raw_fd).collect();
        let listed: Vec<String> = passed.iter().map(ToString::to_string).collect();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env(LISTENERS_VARIABLE, listed.join(","))
            .env(LINK_VARIABLE, theirs.as_raw_fd().to_string())
            .env(DATAGRAMS_VARIABLE, their_datagrams.as_raw_fd().to_string())
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDNAMES");
        if is_activated() {
            command.env(ACTIVATED_VARIABLE, "1");
        }
        let mut kept_open = passed;
        kept_open.extend([theirs.as_raw_fd(), their_datagrams.as_raw_fd()]);
        // SAFETY: between fork and exec the closure only makes system calls; everything it reads
        // was allocated before.
        unsafe {
            command.pre_exec(move || kept_open.iter().try_for_each(|fd| pass_on(*fd)));
        }
        let child = command.spawn()?;
        Ok(Successor { child: Some(child), link: ours, datagrams })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Waits for its next report. Blocks, so it must not be called on a core's thread.
    ///
    /// # Errors
    /// Why it does not serve, as text. It has ended.
    pub fn next_state(&mut self, until: Instant) -> Result<SuccessorState, String> {
        let mut said = Vec::new();
        loop {
            if !self.is_readable_before(until) {
                self.end();
                return Err("it was not ready in time and was killed".to_owned());
            }
            let mut piece = [0; 512];
            match self.link.0.read(&mut piece) {
                Ok(0) => break,
                Ok(count) if said.len() < WORDS_BYTES_MAX => said.extend(&piece[..count]),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It has ended without reading everything that was sent.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => {
                    self.end();
                    return Err(format!("its messages cannot be read: {error}"));
                }
            }
            match &said[..] {
                STORE => return Ok(SuccessorState::WantsStore),
                LISTENERS => return Ok(SuccessorState::WantsListeners),
                READY => return Ok(SuccessorState::Ready),
                _ => {}
            }
        }
        let words = String::from_utf8_lossy(&said).trim().to_owned();
        let ended = self.child.take().and_then(|mut child| child.wait().ok());
        Err(match ended {
            _ if !words.is_empty() => words,
            Some(status) => format!("it ended without a message ({status})"),
            None => "it ended without a message".to_owned(),
        })
    }

    /// The link, to answer requests and to send changes.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The link for the datagrams that it gives us.
    pub fn datagrams(&self) -> &DatagramLink {
        &self.datagrams
    }

    /// Lets it run on its own, because it serves now. Returns its process id and the links for
    /// further changes and for datagrams.
    pub fn release(mut self) -> (u32, io::Result<(Link, DatagramLink)>) {
        let pid = self.pid();
        self.child = None;
        let links = self.link.try_clone().and_then(|link| Ok((link, self.datagrams.try_clone()?)));
        (pid, links)
    }

    /// Kills it.
    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may already have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Whether there is data or the end of the link before `until`.
    fn is_readable_before(&self, until: Instant) -> bool {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left_ms = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
            let mut watched =
                libc::pollfd { fd: self.link.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
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
        self.end();
    }
}

/// Keeps the descriptor open across exec.
fn pass_on(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }).map(drop)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    fn started(script: &str) -> Successor {
        let arguments = ["-c".into(), script.into()];
        Successor::start(Path::new("/bin/bash"), &arguments, &[]).unwrap()
    }

    fn shell(script: &str) -> Result<SuccessorState, String> {
        started(script).next_state(soon())
    }

    #[test]
    fn a_successor_reports_that_it_serves() {
        assert_eq!(shell("echo ready >&$PLIMSOLL_LINK"), Ok(SuccessorState::Ready));
    }

    #[test]
    fn requests_are_granted() {
        let script = "for what in store doors; do echo $what >&$PLIMSOLL_LINK; \
                      head -c 1 <&$PLIMSOLL_LINK >/dev/null; done; echo ready >&$PLIMSOLL_LINK";
        let mut successor = started(script);
        assert_eq!(successor.next_state(soon()), Ok(SuccessorState::WantsStore));
        successor.link().grant().unwrap();
        assert_eq!(successor.next_state(soon()), Ok(SuccessorState::WantsListeners));
        successor.link().grant().unwrap();
        assert_eq!(successor.next_state(soon()), Ok(SuccessorState::Ready));
        let (pid, links) = successor.release();
        assert!(pid > 0 && links.is_ok());
    }

    #[test]
    fn a_reason_is_an_error() {
        let said = shell("echo the port is taken >&$PLIMSOLL_LINK; exit 2");
        assert_eq!(said, Err("the port is taken".to_owned()));
    }

    #[test]
    fn an_early_end_is_an_error() {
        assert!(shell("exit 3").unwrap_err().contains("exit status: 3"));
    }

    #[test]
    fn a_successor_that_takes_too_long_is_killed() {
        let arguments = ["-c".into(), "exec sleep 1000".into()];
        let mut started = Successor::start(Path::new("/bin/bash"), &arguments, &[]).unwrap();
        let pid = started.pid();
        assert!(started.next_state(Instant::now() + Duration::from_millis(50)).is_err());
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        assert!(Successor::start(Path::new("/nowhere/plimsoll"), &[], &[]).is_err());
    }
}
