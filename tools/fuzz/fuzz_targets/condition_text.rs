//! Conditions: any text is read or is a mistake with a place, and is judged without a failure.
//!
//! The checks are in `checks/conditions.rs`, so that the stable tests run them over the corpus too.
#![no_main]

#[path = "../checks/conditions.rs"]
#[allow(dead_code, reason = "each target uses a part")]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::text(data));
