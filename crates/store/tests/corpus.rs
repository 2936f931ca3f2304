//! Replays the corpus of this crate's fuzz target in every test run.

use std::path::Path;

/// Truncations of each input that are tried too.
const HEADS_MAX: usize = 40;

/// The bound on a start's allocations needs this allocator.
#[global_allocator]
static COUNTING: runtime::CountingAllocator = runtime::CountingAllocator;

#[test]
fn edits_of_a_store() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/disk_store");
    let entries = std::fs::read_dir(directory).expect("the corpus is checked in");
    let (mut inputs, mut failed) = (0, Vec::new());
    for entry in entries {
        let path = entry.expect("a listed file").path();
        let bytes = std::fs::read(&path).expect("a readable file");
        // Prefixes of an input are inputs too.
        let step = bytes.len() / HEADS_MAX + 1;
        let heads = (0..bytes.len()).step_by(step).chain([bytes.len()]);
        let run = || heads.for_each(|end| store::fuzzing::disk_store(&bytes[..end]));
        if std::panic::catch_unwind(run).is_err() {
            failed.push(path);
        }
        inputs += 1;
    }
    assert!(failed.is_empty(), "{failed:?}");
    assert!(inputs >= 8, "the corpus of disk_store is gone");
}
