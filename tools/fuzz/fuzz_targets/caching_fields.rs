//! Dates, entity tags and Cache-Control directives.
//!
//! The checks are in `checks/`, so that the stable tests run them over the corpus too.
#![no_main]

#[path = "../checks/caching_fields.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::caching_fields(data));
