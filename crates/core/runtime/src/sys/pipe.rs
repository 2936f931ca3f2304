//! A pipe, through which pages go from a file or a socket to a socket without being copied.

use std::os::fd::OwnedFd;

/// The size of a page. The part of a write that fills whole pages of the file can bypass the page
/// cache if it is page-aligned in memory too.
pub(crate) const PAGE_BYTES: usize = 4096;
/// The size of a pipe. It fits into a processor's second-level cache, from where the peer reads it.
pub(crate) const PIPE_BYTES: usize = 512 * 1024;
/// A user may have a limited number of pages in pipes; beyond that a pipe is smaller. Below this
/// size, copying costs less.
pub(crate) const PIPE_BYTES_MIN: usize = 64 * 1024;
const _: () = assert!(PIPE_BYTES.is_multiple_of(PAGE_BYTES) && PIPE_BYTES_MIN <= PIPE_BYTES);

/// A pipe of the system, or of the simulated world.
#[derive(Debug)]
pub(crate) enum Pipe {
    Real {
        read: OwnedFd,
        write: OwnedFd,
        /// How many bytes it takes, if they fill whole pages.
        bytes: usize,
    },
    /// The bytes in it.
    Simulated(Vec<u8>),
}

impl Pipe {
    /// How many pages it takes.
    pub(crate) fn slots(&self) -> usize {
        self.bytes() / PAGE_BYTES
    }

    /// How many bytes it takes, if they fill whole pages.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Pipe::Real { bytes, .. } => *bytes,
            Pipe::Simulated(_) => PIPE_BYTES,
        }
    }
}
