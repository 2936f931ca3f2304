//! Format strings, hosts of routes, and the system's files of names.
//!
//! The checks are in `config::fuzzing`, so that the stable tests run them over the corpus too.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| config::fuzzing::texts(data));
