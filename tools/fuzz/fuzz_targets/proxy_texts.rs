//! Format strings, hosts of routes, and the system's files of names.
//!
//! The checks are in `checks/`, so that the stable tests run them over the corpus too.
#![no_main]

#[path = "../checks/config.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    checks::texts(data);
    dns::fuzzing::system_files(&String::from_utf8_lossy(data));
});
