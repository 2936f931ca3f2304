//! What name servers answer, and what the system's files say of names.
//!
//! What must hold is in `dns::fuzzing`, so that the stable tests run the same over the corpus.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    dns::fuzzing::dns_reply(data);
    dns::fuzzing::system_files(&String::from_utf8_lossy(data));
});
