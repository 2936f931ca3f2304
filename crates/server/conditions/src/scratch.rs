//! The memory that values are made in, kept by each thread from one request to the next.

use std::cell::Cell;

/// Memory for values. Empty at the start of a judgement.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Values that are not in the request as they are, one after another.
    pub(crate) bytes: Vec<u8>,
}

/// A scratch that keeps more than this after a request is given back to the allocator.
const KEPT_BYTES_MAX: usize = 1 << 16;

thread_local! {
    static SPARE: Cell<Scratch> = const { Cell::new(Scratch { bytes: Vec::new() }) };
}

impl Scratch {
    /// The scratch of the thread. A second judgement at the same time gets an empty scratch.
    pub(crate) fn take() -> Scratch {
        SPARE.take()
    }

    /// Gives the scratch back to the thread.
    pub(crate) fn put(mut self) {
        if self.bytes.capacity() <= KEPT_BYTES_MAX {
            self.bytes.clear();
            SPARE.set(self);
        }
    }
}
