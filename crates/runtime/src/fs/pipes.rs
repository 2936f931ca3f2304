//! The pipes of a core.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::PAGE_BYTES;
use crate::sys::real::check;

/// The size of a pipe. It fits into a processor's second-level cache, from where the peer reads it.
const PIPE_BYTES: usize = 512 * 1024;
/// Empty pipes that a core keeps for reuse.
const PIPES_KEPT: usize = 16;
/// Pipes of a core, including those of slow peers. Each has two descriptors.
const PIPES_MAX: u32 = 256;

/// The pipes of a core.
#[derive(Debug, Default)]
pub(crate) struct Pipes {
    empty: Vec<Pipe>,
    count: u32,
}

#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) read: OwnedFd,
    pub(super) write: OwnedFd,
    /// How many pages it takes.
    pub(super) slots: usize,
}

impl Pipes {
    /// An empty pipe. `None` if the core or the user has as many as it may.
    pub(super) fn take(&mut self) -> Option<Pipe> {
        if let Some(pipe) = self.empty.pop() {
            return Some(pipe);
        }
        if self.count >= PIPES_MAX {
            return None;
        }
        let pipe = Pipe::new().ok()?;
        self.count += 1;
        Some(pipe)
    }

    pub(super) fn give_back(&mut self, pipe: Pipe, empty: bool) {
        if empty && self.empty.len() < PIPES_KEPT {
            self.empty.push(pipe);
        } else {
            self.count -= 1;
        }
    }
}

impl Pipe {
    fn new() -> io::Result<Pipe> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
        // SAFETY: new descriptors with no other owner.
        let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        // A user may have a limited number of pages in pipes; beyond that a pipe is smaller.
        // SAFETY: no pointers.
        let bytes = unsafe {
            libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES);
            libc::fcntl(write.as_raw_fd(), libc::F_GETPIPE_SZ)
        };
        let slots = usize::try_from(bytes).unwrap_or(0) / PAGE_BYTES;
        Ok(Pipe { read, write, slots })
    }
}
