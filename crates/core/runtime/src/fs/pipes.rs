//! The pipes of a core.

use std::os::fd::OwnedFd;

use super::PAGE_BYTES;
use crate::sys::World;

/// The size of a pipe. It fits into a processor's second-level cache, from where the peer reads it.
pub(crate) const PIPE_BYTES: usize = 512 * 1024;
/// A user may have a limited number of pages in pipes; beyond that a pipe is smaller. Below this
/// size, copying costs less.
pub(crate) const PIPE_BYTES_MIN: usize = 64 * 1024;
/// Empty pipes that a core keeps for reuse.
const PIPES_KEPT: usize = 16;
/// Pipes of a core, including those of slow peers. Each has two descriptors.
const PIPES_MAX: u32 = 256;
const _: () = assert!(PIPE_BYTES.is_multiple_of(PAGE_BYTES) && PIPE_BYTES_MIN <= PIPE_BYTES);
const _: () = assert!(PIPES_KEPT <= PIPES_MAX as usize);

/// The pipes of a core.
#[derive(Debug, Default)]
pub(crate) struct Pipes {
    empty: Vec<Pipe>,
    count: u32,
}

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

impl Pipes {
    /// An empty pipe. `None` if the core or the user has as many as it may.
    pub(super) fn take(&mut self, world: &World) -> Option<Pipe> {
        if let Some(pipe) = self.empty.pop() {
            return Some(pipe);
        }
        if self.count >= PIPES_MAX {
            return None;
        }
        let pipe = world.pipe().ok()?;
        self.count += 1;
        assert!(self.count <= PIPES_MAX, "a core's pipes are bounded");
        Some(pipe)
    }

    pub(super) fn give_back(&mut self, pipe: Pipe, empty: bool) {
        assert!(self.count as usize > self.empty.len(), "it was taken from here");
        if empty && self.empty.len() < PIPES_KEPT {
            self.empty.push(pipe);
        } else {
            self.count -= 1;
        }
    }
}

impl Pipe {
    /// How many pages it takes.
    pub(super) fn slots(&self) -> usize {
        self.bytes() / PAGE_BYTES
    }

    /// How many bytes it takes, if they fill whole pages.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Pipe::Real { bytes, .. } => *bytes,
            Pipe::Simulated(_) => PIPE_BYTES,
        }
    }
}
