//! What name servers answer, and what the system's files say of names.
//!
//! What must hold stands with the resolver, so that the stable tests run the same over the corpus;
//! it is taken in by its files, so that this target is built without the server around it.
#![no_main]

#[path = "../../crates/proxy/src/limits.rs"]
pub mod limits;

#[path = "../../crates/proxy/src/resolve"]
mod resolve {
    mod files;
    pub mod fuzzing;
    mod wire;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    resolve::fuzzing::dns_reply(data);
    resolve::fuzzing::system_files(&String::from_utf8_lossy(data));
});
