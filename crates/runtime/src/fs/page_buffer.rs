//! Memory from which a file is written around the page cache.
//!
//! What: bytes at a place of the caller's choice within a page, in large pages of memory where the
//! system has them. Why: the kernel looks up each page that such a write takes, names it to the
//! disk and lets go of it again, without a turn for anybody else on its processor. A mebibyte is
//! one or two large ones, and takes it a third of the time.

use std::alloc::{self, Layout};
use std::ops::Range;
use std::ptr::NonNull;

use super::PAGE_BYTES;

/// What the processors that this runs on have above a page (x86-64, and ARM with pages of 4 KiB).
const LARGE_PAGE_BYTES: usize = 2 * 1024 * 1024;

/// Bytes for a write, as far into a page of memory as they will stand into one of the file. The
/// memory is kept for the next ones.
#[derive(Debug, Default)]
pub struct PageBuffer {
    memory: Option<Memory>,
    /// Where in the memory the bytes stand.
    range: Range<usize>,
}

impl PageBuffer {
    /// Begins anew, with `len` bytes that will stand at `offset`. They are to be written over: what
    /// they are is not said.
    pub fn begin(&mut self, offset: u64, len: usize) -> &mut [u8] {
        let from = (offset % PAGE_BYTES as u64) as usize;
        self.range = from..from + len;
        let end = self.range.end;
        // A smaller one is let go of before there is another.
        self.memory.take_if(|memory| memory.len() < end);
        let memory = self.memory.get_or_insert_with(|| Memory::new(end));
        &mut memory.bytes_mut()[self.range.clone()]
    }
}

impl AsRef<[u8]> for PageBuffer {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory.bytes()[self.range.clone()])
    }
}

/// Bytes that begin with a large page.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its bytes, and changes them by `&mut` only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// At least so many bytes.
    fn new(bytes: usize) -> Memory {
        let len = bytes.max(1).next_multiple_of(LARGE_PAGE_BYTES);
        let layout = Layout::from_size_align(len, LARGE_PAGE_BYTES).expect("no write is so long");
        // SAFETY: the layout has bytes.
        let start = unsafe { alloc::alloc(layout) };
        let Some(start) = NonNull::new(start) else { alloc::handle_alloc_error(layout) };
        // Before any of it is touched. A system that has no large pages says so, and the memory is
        // of others.
        // SAFETY: whole pages that were just allocated; their content is not changed by it.
        let _ = unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        // SAFETY: `len` bytes were allocated there.
        unsafe { start.write_bytes(0, len) };
        Memory { start, layout }
    }

    fn len(&self) -> usize {
        self.layout.size()
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: so many bytes were allocated there, and filled, and live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; and nobody else has them.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and not freed before.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stand_as_far_into_a_page_as_in_the_file_and_memory_is_kept() {
        let mut buffer = PageBuffer::default();
        assert!(buffer.as_ref().is_empty());
        let mut starts = Vec::new();
        for (offset, len) in [(5000, 3), (0, LARGE_PAGE_BYTES), (u64::MAX, 0), (4096, 100_000)] {
            let bytes = buffer.begin(offset, len);
            bytes.fill(7);
            assert_eq!(bytes.as_ptr() as u64 % 4096, offset % 4096);
            assert!(buffer.as_ref().len() == len && buffer.as_ref().iter().all(|byte| *byte == 7));
            starts.push(buffer.memory.as_ref().map(|memory| memory.start));
        }
        assert!(starts.iter().all(|start| *start == starts[0]));
        buffer.begin(1, LARGE_PAGE_BYTES).fill(8);
        assert_eq!(buffer.memory.as_ref().map(Memory::len), Some(2 * LARGE_PAGE_BYTES));
        assert!(buffer.as_ref().iter().all(|byte| *byte == 8));
    }
}
