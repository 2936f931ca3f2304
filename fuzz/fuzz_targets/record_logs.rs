//! Lines of access logs, format strings with lines of them, metrics, and files of /proc.
//!
//! What must hold is in `record::fuzzing`, so that the stable tests run the same over the corpus.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| record::fuzzing::record_logs(data));
