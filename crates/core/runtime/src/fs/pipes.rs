//! The pipes of a core.

use crate::sys::World;
use crate::sys::pipe::Pipe;

/// Empty pipes that a core keeps for reuse.
const PIPES_KEPT: usize = 16;
/// Pipes of a core, including those of slow peers. Each has two descriptors.
const PIPES_MAX: u32 = 256;
const _: () = assert!(PIPES_KEPT <= PIPES_MAX as usize);

/// The pipes of a core.
#[derive(Debug, Default)]
pub(crate) struct Pipes {
    empty: Vec<Pipe>,
    count: u32,
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
