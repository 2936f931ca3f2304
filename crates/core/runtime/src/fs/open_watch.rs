//! Detects whether another process opens a file.
//!
//! What: [`OpenWatch`] reports whether any program on this machine has opened the file since the
//! watch was created (`inotify`), under any name. The kernel reports it before that program's call
//! returns, so nothing has been written by then.
//! What it does not see: programs that had the file open before, and writes below the file system
//! or from another machine.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use super::{real, unblock};
use crate::core;
use crate::sys::World;
use crate::sys::real::check;

/// Reports whether a file has been opened. Any core may use it.
#[derive(Debug)]
pub struct OpenWatch(OwnedFd);

impl OpenWatch {
    /// Starts to watch a file.
    ///
    /// # Errors
    /// `Unsupported` on the twin; or what the system says, such as that the user has too many
    /// watches.
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
        let events = check(unsafe { libc::inotify_init1(libc::IN_CLOEXEC) })?;
        // SAFETY: a new descriptor with no other owner.
        let events = unsafe { OwnedFd::from_raw_fd(events) };
        // SAFETY: a NUL-terminated path that outlives the call.
        check(unsafe {
            libc::inotify_add_watch(events.as_raw_fd(), path.as_ptr(), libc::IN_OPEN)
        })?;
        Ok(OpenWatch(events))
    }

    /// Whether the file has been opened since. Once true it stays true: the kernel merges equal
    /// events, so it cannot reliably be seen that the file was closed again.
    #[must_use]
    pub fn was_opened(&self) -> bool {
        let mut bytes: libc::c_int = 0;
        // The events are not read, so that every caller sees them. An event of another kind means
        // that no more events will come.
        // SAFETY: room for the one integer that the call writes.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
        result != 0 || bytes > 0
    }
}
