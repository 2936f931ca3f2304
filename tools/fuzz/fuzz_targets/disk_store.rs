//! The files of a disk store: superblock, journals, saved indexes, records.
//!
//! The checks are in `checks/`, as a module of the crate, so that the stable tests run them over
//! the corpus too.
#![no_main]

/// Counts the allocations of a start.
#[global_allocator]
static COUNTING: runtime::CountingAllocator = runtime::CountingAllocator;

libfuzzer_sys::fuzz_target!(|data: &[u8]| store::disk::fuzzing::disk_store(data));
