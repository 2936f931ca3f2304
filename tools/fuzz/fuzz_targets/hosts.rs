//! Rules on the hosts of a forward listener, against a slow second implementation.
//!
//! The checks are in `checks/hosts.rs`, so that the stable tests run them over the corpus too.
#![no_main]

#[path = "../checks/hosts.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::forward(data));
