//! Listening sockets, and those of datagrams, that were open before this process began.
//!
//! A supervisor passes them as systemd does (`LISTEN_FDS`, `LISTEN_PID`: descriptors from 3 on); a
//! predecessor passes their numbers in our own variable.

use std::env;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use super::successor::LISTENERS_VARIABLE;

/// The first descriptor that a supervisor passes.
const FIRST: RawFd = 3;
/// More than any supervisor passes.
const PASSED_MAX: RawFd = 4096;

/// What this process inherited.
#[derive(Debug, Default)]
pub struct Inherited {
    /// Listening TCP and Unix sockets, in the order in which they were passed.
    pub listeners: Vec<TcpListener>,
    /// Sockets for datagrams, in the order in which they were passed.
    pub datagrams: Vec<UdpSocket>,
    /// One line for each descriptor that was closed because it was neither.
    pub refused: Vec<String>,
}

/// Takes the descriptors that were passed to this process. A second call finds none.
pub fn inherited() -> Inherited {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let mut found = Inherited::default();
    if TAKEN.swap(true, Ordering::AcqRel) {
        return found;
    }
    for fd in numbers() {
        match adopt(fd) {
            Ok(Passed::Listener(listener)) => found.listeners.push(listener),
            Ok(Passed::Datagrams(socket)) => found.datagrams.push(socket),
            Err(error) => found.refused.push(format!("descriptor {fd} was passed and {error}")),
        }
    }
    found
}

fn numbers() -> Vec<RawFd> {
    if let Ok(listed) = env::var(LISTENERS_VARIABLE) {
        let listed = listed.split(',').filter_map(|number| number.parse().ok());
        return listed.filter(|number| *number >= FIRST).collect();
    }
    let for_us = env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    let count: RawFd = match env::var("LISTEN_FDS") {
        Ok(count) if for_us => count.parse().unwrap_or(0),
        _ => 0,
    };
    (FIRST..FIRST + count.clamp(0, PASSED_MAX)).collect()
}

enum Passed {
    Listener(TcpListener),
    Datagrams(UdpSocket),
}

/// Takes ownership of the descriptor: checks that it is open and a socket of use here, and makes it
/// non-blocking and close-on-exec.
fn adopt(fd: RawFd) -> io::Result<Passed> {
    // SAFETY: no pointers; a number that is no descriptor gives EBADF.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(io::Error::other("is not open"));
    }
    // SAFETY: it is open, it was passed to this process, and `inherited` returns it only once.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    crate::sys::real::adopt(&fd)?;
    if crate::sys::real::is_listening(&fd)? {
        Ok(Passed::Listener(TcpListener::from(fd)))
    } else if crate::sys::real::is_udp(&fd)? {
        Ok(Passed::Datagrams(UdpSocket::from(fd)))
    } else {
        Err(io::Error::other("is neither a listening stream socket nor a UDP socket"))
    }
}
