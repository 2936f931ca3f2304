//! The corpora of this crate's fuzz targets, replayed: what `cargo fuzz` runs by chance runs here
//! always.

use std::path::Path;

use config::fuzzing;

fn replay(target: &str, run: impl Fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(directory).expect("the corpus is checked in");
    let mut inputs = 0;
    for entry in entries {
        let bytes = std::fs::read(entry.expect("a listed file").path()).expect("a readable file");
        // Every head of an input is an input too.
        (0..=bytes.len()).for_each(|end| run(&bytes[..end]));
        inputs += 1;
    }
    assert!(inputs >= 8, "the corpus of {target} is gone");
}

#[test]
fn dns_replies() {
    replay("dns_reply", fuzzing::dns_reply);
}

#[test]
fn texts() {
    replay("proxy_texts", fuzzing::texts);
}
