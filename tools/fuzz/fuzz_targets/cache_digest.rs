//! Cache digests.
//!
//! The checks are in `checks/`, as a module of the crate, so that the stable tests run them over
//! the corpus too.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| peering::fuzzing::digest(data));
