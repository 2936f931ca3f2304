//! Purges and changes, as a member of a cluster sends them to another.
//!
//! The checks are in `checks/`, so that the stable tests run them over the corpus too.
#![no_main]

#[path = "../checks/cache.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::notices(data));
