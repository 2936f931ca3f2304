//! Memory for writes that bypass the page cache.
//!
//! What: bytes at a chosen offset within a page, in large pages of memory where the system has
//! them.
//! Why: for such a write the kernel looks up, maps and releases every page, and runs nothing else
//! on that processor meanwhile. A mebibyte is one or two large pages and takes a third of the time.

use std::alloc::{self, Layout};
use std::ops::Range;
use std::ptr::NonNull;

use super::PAGE_BYTES;

/// The next size above a page on the supported processors (x86-64, and ARM with pages of 4 KiB).
const LARGE_PAGE_BYTES: usize = if cfg!(miri) { 128 << 10 } else { 2 * 1024 * 1024 };

const _: () =
    assert!(LARGE_PAGE_BYTES.is_power_of_two() && LARGE_PAGE_BYTES.is_multiple_of(PAGE_BYTES));

/// Bytes for a write, at the same offset within a page of memory as within a page of the file. The
/// memory is reused.
#[derive(Debug, Default)]
pub struct PageBuffer {
    memory: Option<Memory>,
    /// Where the bytes are in the memory.
    range: Range<usize>,
}

impl PageBuffer {
    /// Starts again with `len` bytes for `offset` in the file. Their content is unspecified;
    /// overwrite them.
    pub fn begin(&mut self, offset: u64, len: usize) -> &mut [u8] {
        let from = (offset % PAGE_BYTES as u64) as usize;
        self.range = from..from + len;
        let end = self.range.end;
        // Memory that is too small is freed before new memory is allocated.
        self.memory.take_if(|memory| memory.len() < end);
        let memory = self.memory.get_or_insert_with(|| Memory::new(end));
        assert!(memory.len() >= end && memory.start.addr().get().is_multiple_of(PAGE_BYTES));
        &mut memory.bytes_mut()[self.range.clone()]
    }
}

impl AsRef<[u8]> for PageBuffer {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory.bytes()[self.range.clone()])
    }
}

/// Bytes aligned to a large page.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its bytes, and changes them only through `&mut`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// At least this many bytes.
    fn new(bytes: usize) -> Memory {
        let len = bytes.max(1).next_multiple_of(LARGE_PAGE_BYTES);
        let layout =
            Layout::from_size_align(len, LARGE_PAGE_BYTES).expect("a write fits into memory");
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc::alloc(layout) };
        let Some(start) = NonNull::new(start) else { alloc::handle_alloc_error(layout) };
        // Must come before the first access. A system without large pages refuses, and the memory
        // has small pages.
        // SAFETY: whole pages that were just allocated; the call does not change their content.
        #[cfg(not(miri))]
        let _ = unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        // SAFETY: `len` bytes were allocated there.
        unsafe { start.write_bytes(0, len) };
        Memory { start, layout }
    }

    fn len(&self) -> usize {
        self.layout.size()
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: this many bytes were allocated and initialised there, and live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `&mut self` makes the access exclusive.
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
    fn offsets_within_a_page_match_the_file_and_memory_is_reused() {
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
