//! Routes by the readings of a path and a host, against a slow second implementation.
//!
//! The checks are in `checks/readings.rs`, so that the stable tests run them over the corpus too.
#![no_main]

#[path = "../checks/readings.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::routes(data));
