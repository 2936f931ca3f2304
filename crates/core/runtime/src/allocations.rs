//! How many allocations a thread makes: a global allocator that counts and delegates to the system.
//!
//! The counters are per thread, so that counting costs two additions and a comparison, and nothing
//! is shared. A program with another global allocator counts nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator with a count, for use as a program's `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

/// What a thread has allocated since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// Blocks requested; a reallocation counts again.
    pub count: u64,
    /// Bytes requested, regardless of what has been freed.
    pub bytes: u64,
}

thread_local! {
    // No destructor and a constant initial value: using it neither allocates nor fails.
    static MADE: Cell<Allocations> = const { Cell::new(Allocations { count: 0, bytes: 0 }) };
    static OBSERVER: Cell<Option<fn(usize)>> = const { Cell::new(None) };
}

/// The allocations of this thread.
pub fn allocations() -> Allocations {
    MADE.get()
}

/// Calls a function with the size of each block that this thread allocates from now on, for tests
/// that find out which blocks these are. The function must not allocate.
pub fn observe_allocations(observer: Option<fn(usize)>) {
    OBSERVER.set(observer);
}

#[inline]
fn count(bytes: usize) {
    let made = MADE.get();
    MADE.set(Allocations {
        count: made.count.wrapping_add(1),
        bytes: made.bytes.wrapping_add(bytes as u64),
    });
    if let Some(observer) = OBSERVER.get() {
        observer(bytes);
    }
}

// SAFETY: every call is passed unchanged to the system's allocator, which keeps the contract;
// counting changes only two numbers of this thread.
unsafe impl GlobalAlloc for CountingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        // SAFETY: the caller keeps the contract of `realloc`; the block came from `System`.
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`; the block came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static COUNTING: CountingAllocator = CountingAllocator;

    #[test]
    fn each_block_counts_for_the_thread_that_allocates_it() {
        let before = allocations();
        let mut block: Vec<u8> = Vec::with_capacity(1000);
        let one = allocations();
        assert_eq!((one.count - before.count, one.bytes - before.bytes), (1, 1000));
        block.reserve_exact(2000);
        drop(block);
        let two = allocations();
        assert_eq!((two.count - one.count, two.bytes - one.bytes), (1, 2000));
        std::thread::spawn(|| drop(vec![0u8; 1 << 20])).join().unwrap();
        assert!(allocations().bytes - two.bytes < 1 << 20);
    }
}
