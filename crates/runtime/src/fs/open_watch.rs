//! Whether somebody else uses a file.
//!
//! What: [`OpenWatch`] tells whether a file has been opened since it was made (`inotify`), by any
//! program of this machine, under any name. The kernel tells it before the other's call returns,
//! so that nothing was written by then.
//! What is not seen: who had it open before; who writes below the file system, or from another
//! machine.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use super::{real, unblock};
use crate::core;
use crate::sys::World;

/// Tells whether a file has been opened since. Any core may ask.
#[derive(Debug)]
pub struct OpenWatch(OwnedFd);

impl OpenWatch {
    /// Watches a file from now on.
    ///
    /// # Errors
    /// `Unsupported` on the twin; or what the system says: a user may have so many watches.
    pub async fn new(path: impl AsRef<Path>) -> io::Result<OpenWatch> {
        match &core::current().world {
            World::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
            World::Real => {
                let path = path.as_ref().to_path_buf();
                unblock(move || OpenWatch::begin(&path)).await
            }
        }
    }

    fn begin(path: &Path) -> io::Result<OpenWatch> {
        let path = real::c_path(path)?;
        // SAFETY: no pointers.
        let events = unsafe { libc::inotify_init1(libc::IN_CLOEXEC) };
        if events < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let events = unsafe { OwnedFd::from_raw_fd(events) };
        // SAFETY: a NUL-terminated path that outlives the call.
        let watched =
            unsafe { libc::inotify_add_watch(events.as_raw_fd(), path.as_ptr(), libc::IN_OPEN) };
        if watched < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OpenWatch(events))
    }

    /// Whether somebody has opened it since. Once true it stays so: that they have closed it again
    /// cannot be told for sure, as the kernel joins events that are alike.
    #[must_use]
    pub fn was_opened(&self) -> bool {
        let mut bytes: libc::c_int = 0;
        // Events are left where they are: all who ask see them. One of another kind says that no
        // more will come.
        // SAFETY: room for the one integer that the call writes.
        let told = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
        told != 0 || bytes > 0
    }
}
