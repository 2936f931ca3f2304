//! Fields of a request and rules on them, against a slow second implementation.
//!
//! The checks are in `checks/field_names.rs`, so that the stable tests run them over the corpus,
//! too.
#![no_main]

#[path = "../checks/field_names.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::fields(data));
