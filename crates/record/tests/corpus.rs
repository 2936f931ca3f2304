//! Replays the fuzz target's corpus: what `cargo fuzz` runs at random always runs here.

use std::path::Path;

use record::fuzzing;

#[test]
fn record_logs() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/record_logs");
    let entries = std::fs::read_dir(directory).expect("the corpus is checked in");
    let (mut inputs, mut understood, mut by_string) = (0, 0, 0);
    for entry in entries {
        let bytes = std::fs::read(entry.expect("a listed file").path()).expect("a readable file");
        understood += fuzzing::lines_understood(&bytes);
        by_string += fuzzing::lines_by_format_string(&bytes);
        // Every prefix of an input is an input too.
        (0..=bytes.len()).for_each(|end| fuzzing::record_logs(&bytes[..end]));
        inputs += 1;
    }
    assert!(inputs >= 10 && understood >= 8, "the corpus is gone: {inputs}, {understood}");
    assert!(by_string >= 10, "format strings are gone: {by_string}");
}
