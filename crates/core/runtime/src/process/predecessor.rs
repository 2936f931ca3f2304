//! The process that started this one as its successor.

use std::env;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use super::datagram_link::DatagramLink;
use super::link::{LISTENERS, Link, READY, STORE};
use super::successor::{DATAGRAMS_VARIABLE, LINK_VARIABLE};

/// The process that this one replaces. It waits for our messages.
#[derive(Debug)]
pub struct Predecessor {
    link: Link,
    datagrams: DatagramLink,
    reported: AtomicBool,
}

impl Predecessor {
    /// The process that started this one as its successor, if any. Only the first call finds it.
    pub fn find() -> Option<Predecessor> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let [link, datagrams] = [number(LINK_VARIABLE)?, number(DATAGRAMS_VARIABLE)?];
        if link == datagrams || TAKEN.swap(true, Ordering::AcqRel) {
            return None;
        }
        // SAFETY: they are open, our predecessor made them for us, and only one call gets here.
        let [link, datagrams] = [link, datagrams].map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // Our own successor must not inherit them.
        crate::sys::real::adopt(&link).ok()?;
        let datagrams = DatagramLink::passed(datagrams).ok()?;
        let link = UnixStream::from(link);
        link.set_nonblocking(false).ok()?;
        Some(Predecessor { link: Link(link), datagrams, reported: AtomicBool::new(false) })
    }

    /// Requests the store; [`Link::receive`] says when we may open it.
    ///
    /// # Errors
    /// It has ended.
    pub fn request_store(&self) -> io::Result<()> {
        self.link.send(STORE)
    }

    /// Requests the listeners. [`Link::receive`] returns changes to apply first, and then says when
    /// we may accept connections.
    ///
    /// # Errors
    /// It has ended.
    pub fn request_listeners(&self) -> io::Result<()> {
        self.link.send(LISTENERS)
    }

    /// Reports that we serve.
    ///
    /// # Errors
    /// It has ended.
    pub fn report_ready(&self) -> io::Result<()> {
        self.reported.store(true, Ordering::Relaxed);
        self.link.send(READY)
    }

    /// Reports why we cannot serve, unless we already serve. The predecessor continues to serve.
    pub fn report_failure(&self, why: &str) {
        if !self.reported.swap(true, Ordering::Relaxed) {
            // It may have ended; then the reason is of no use.
            let _ = self.link.send(why.as_bytes());
        }
    }

    /// The link to it.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The link for the datagrams that we give it.
    pub fn datagrams(&self) -> &DatagramLink {
        &self.datagrams
    }
}

/// The number of an open descriptor that a variable names.
fn number(variable: &str) -> Option<RawFd> {
    let fd: RawFd = env::var(variable).ok()?.parse().ok()?;
    // SAFETY: no pointers; a number that is no descriptor gives EBADF.
    (fd > libc::STDERR_FILENO && unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0).then_some(fd)
}
