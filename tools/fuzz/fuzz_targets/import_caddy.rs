//! The importer of Caddyfiles: never panics, and what it writes is TOML.
//!
//! The checks are in `checks/`, so that the stable tests run them over the corpus too.
#![no_main]

#[path = "../checks/import.rs"]
#[allow(dead_code, reason = "each target has its own check")]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::caddy(data));
