//! A whole connection: requests with their bodies, one behind the other.
//!
//! What must hold is in `http1::fuzzing`, so that the stable tests run the same over the corpus.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| http1::fuzzing::request_stream(data));
