//! A whole connection: requests with their bodies, one after the other.
//!
//! The checks are in `checks/http1.rs`, so that the stable tests run them over the corpus too.
#![no_main]

#[path = "../checks/http1.rs"]
#[allow(dead_code, reason = "each target uses a part")]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::request_stream(data));
