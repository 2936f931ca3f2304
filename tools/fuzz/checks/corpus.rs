//! Replays the corpora of the fuzz targets, so that these inputs are tested in every run.

use std::path::Path;

pub(crate) fn replay(target: &str, run: impl Fn(&[u8])) {
    let corpus =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tools/fuzz/corpus").join(target);
    let mut inputs = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is checked in") {
        let bytes = std::fs::read(entry.expect("a listed file").path()).expect("a readable file");
        // The start of an input is an input too.
        (0..=bytes.len()).step_by(bytes.len() / 64 + 1).for_each(|end| run(&bytes[..end]));
        run(&bytes);
        inputs += 1;
    }
    assert!(inputs >= 8, "the corpus of {target} is gone");
}
