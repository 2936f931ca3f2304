//! Format strings, hosts of routes, and the system's files of names.
//!
//! What must hold is in `config::fuzzing`, so that the stable tests run the same over the corpus.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| config::fuzzing::texts(data));
