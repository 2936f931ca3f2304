//! The corpus of the fuzz target, replayed: what `cargo fuzz` runs by chance runs here always.

use std::path::Path;

#[path = "../../../../tools/fuzz/checks/caching_fields.rs"]
mod checks;

#[test]
fn caching_fields() {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tools/fuzz/corpus/caching_fields");
    let entries = std::fs::read_dir(directory).expect("the corpus is checked in");
    let mut inputs = 0;
    for entry in entries {
        let bytes = std::fs::read(entry.expect("a listed file").path()).expect("a readable file");
        // Every head of an input is an input too.
        (0..=bytes.len()).for_each(|end| checks::caching_fields(&bytes[..end]));
        inputs += 1;
    }
    assert!(inputs >= 10, "the corpus is gone");
}
