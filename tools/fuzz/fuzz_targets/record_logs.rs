//! Lines of access logs, format strings with lines of them, metrics, and files of /proc.
//!
//! The checks are in `checks/`, as modules of the crates, so that the stable tests run them over
//! the corpus too.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    logs::fuzzing::lines(data);
    record::fuzzing::files(data);
});
