//! Listening sockets that were open before this process began.
//!
//! From a supervisor they come as systemd passes them (`LISTEN_FDS`, `LISTEN_PID`: descriptors from
//! 3 on); from a predecessor by their numbers, in a variable of our own.

use std::env;
use std::io;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use super::successor::LISTENERS_VARIABLE;

/// The first descriptor that a supervisor passes.
const FIRST: RawFd = 3;
/// No supervisor passes more.
const PASSED_MAX: RawFd = 4096;

/// What this process began with.
#[derive(Debug, Default)]
pub struct Inherited {
    /// Listening TCP sockets, in the order in which they were passed.
    pub listeners: Vec<TcpListener>,
    /// What was passed and is no listening TCP socket: one line each. It was closed.
    pub refused: Vec<String>,
}

/// Takes what was passed to this process; a second call finds nothing.
pub fn inherited() -> Inherited {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let mut found = Inherited::default();
    if TAKEN.swap(true, Ordering::AcqRel) {
        return found;
    }
    for fd in numbers() {
        match adopt(fd) {
            Ok(listener) => found.listeners.push(listener),
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
    let of_us = env::var("LISTEN_PID").is_ok_and(|pid| pid == std::process::id().to_string());
    let count: RawFd = match env::var("LISTEN_FDS") {
        Ok(count) if of_us => count.parse().unwrap_or(0),
        _ => 0,
    };
    (FIRST..FIRST + count.clamp(0, PASSED_MAX)).collect()
}

/// The descriptor as ours: it is open, it is a listening TCP socket, and from now on it neither
/// blocks nor is passed on unasked.
fn adopt(fd: RawFd) -> io::Result<TcpListener> {
    // SAFETY: no pointers; a number that is no descriptor gives EBADF.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(io::Error::other("is not open"));
    }
    // SAFETY: it is open, it was passed to this process, and `inherited` gives it out only once.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    crate::sys::real::adopt(&fd)?;
    if crate::sys::real::is_listening(&fd)? {
        Ok(TcpListener::from(fd))
    } else {
        Err(io::Error::other("is not a listening TCP socket"))
    }
}
