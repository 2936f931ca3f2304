//! Conditions and a request that are made of bytes, judged, and compared with the evaluator of the
//! crate `cel`.
//!
//! The checks are in `checks/conditions.rs`, so that the stable tests run them over the corpus too.
#![no_main]

#[path = "../checks/conditions.rs"]
#[allow(dead_code, reason = "each target uses a part")]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    checks::tree(data);
});
