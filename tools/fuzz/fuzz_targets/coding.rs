//! `Accept-Encoding`, and the decoders.
//!
//! The checks are in `checks/`, so that the stable tests run them over the corpus too.
#![no_main]

#[path = "../checks/coding.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::input(data));
