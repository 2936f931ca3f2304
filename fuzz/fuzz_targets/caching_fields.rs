//! Dates, entity tags and Cache-Control directives.
//!
//! What must hold is in `checks/`, so that the stable tests run the same over the corpus.
#![no_main]

#[path = "../checks/caching_fields.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::caching_fields(data));
