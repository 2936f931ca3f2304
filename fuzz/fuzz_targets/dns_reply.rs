//! Replies of name servers, and the system's files of names.
//!
//! The checks are in `dns::fuzzing`, so that the stable tests run them over the corpus too.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    dns::fuzzing::dns_reply(data);
    dns::fuzzing::system_files(&String::from_utf8_lossy(data));
});
