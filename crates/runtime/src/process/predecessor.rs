//! The process that started us in its own place, as long as it lives.

use std::env;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use super::link::{LISTENERS, Link, READY, STORE};
use super::successor::LINK_VARIABLE;

/// The process that we replace; it waits for what we say.
#[derive(Debug)]
pub struct Predecessor {
    link: Link,
    told: AtomicBool,
}

impl Predecessor {
    /// The one that started this process in its own place, if one did. Only the first call finds
    /// it.
    pub fn find() -> Option<Predecessor> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        let fd: RawFd = env::var(LINK_VARIABLE).ok()?.parse().ok()?;
        if fd <= libc::STDERR_FILENO || TAKEN.swap(true, Ordering::AcqRel) {
            return None;
        }
        // SAFETY: no pointers; a number that is no descriptor gives EBADF.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return None;
        }
        // SAFETY: it is open, our predecessor made it for us, and only one call comes here.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // Not for the process that will take our place.
        crate::sys::real::adopt(&fd).ok()?;
        let link = UnixStream::from(fd);
        link.set_nonblocking(false).ok()?;
        Some(Predecessor { link: Link(link), told: AtomicBool::new(false) })
    }

    /// Asks for what is stored; [`Link::receive`] tells when it is ours.
    ///
    /// # Errors
    /// It has ended.
    pub fn request_store(&self) -> io::Result<()> {
        self.link.send(STORE)
    }

    /// Says that we are about to take connections; [`Link::receive`] tells what is to be known before,
    /// and when we may.
    ///
    /// # Errors
    /// It has ended.
    pub fn request_listeners(&self) -> io::Result<()> {
        self.link.send(LISTENERS)
    }

    /// We serve.
    ///
    /// # Errors
    /// It has ended.
    pub fn report_ready(&self) -> io::Result<()> {
        self.told.store(true, Ordering::Relaxed);
        self.link.send(READY)
    }

    /// Why we do not serve, unless we do. It serves on.
    pub fn report_failure(&self, why: &str) {
        if !self.told.swap(true, Ordering::Relaxed) {
            // It may have ended, and then there is nobody who would want to know.
            let _ = self.link.send(why.as_bytes());
        }
    }

    /// What it says.
    pub fn link(&self) -> &Link {
        &self.link
    }
}
