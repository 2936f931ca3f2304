//! The files of a disk store: superblock, journals, saved indexes, records.
//!
//! What must hold is in `store::fuzzing`, so that the stable tests run the same over the corpus.
#![no_main]

/// What a start asks for is counted.
#[global_allocator]
static COUNTING: runtime::CountingAllocator = runtime::CountingAllocator;

libfuzzer_sys::fuzz_target!(|data: &[u8]| store::fuzzing::disk_store(data));
