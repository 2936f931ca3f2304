//! The corpus of the fuzz target, replayed, and its findings, one test each. All findings have good
//! checksums.

use super::super::bytes::Put;
use super::*;

/// The bound on a start's allocations needs this allocator.
#[global_allocator]
static COUNTING: runtime::CountingAllocator = runtime::CountingAllocator;

/// Truncations of each input that are tried too.
const HEADS_MAX: usize = 40;

#[test]
fn edits_of_a_store() {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tools/fuzz/corpus/disk_store");
    let entries = std::fs::read_dir(directory).expect("the corpus is checked in");
    let (mut inputs, mut failed) = (0, Vec::new());
    for entry in entries {
        let path = entry.expect("a listed file").path();
        let bytes = std::fs::read(&path).expect("a readable file");
        // Prefixes of an input are inputs too.
        let step = bytes.len() / HEADS_MAX + 1;
        let heads = (0..bytes.len()).step_by(step).chain([bytes.len()]);
        let run = || heads.for_each(|end| disk_store(&bytes[..end]));
        if std::panic::catch_unwind(run).is_err() {
            failed.push(path);
        }
        inputs += 1;
    }
    assert!(failed.is_empty(), "{failed:?}");
    assert!(inputs >= 8, "the corpus of disk_store is gone");
}

/// The result of a start after some edits, and the objects that are found complete.
fn started(edits: &[u8]) -> (Start, Vec<usize>) {
    let base = base();
    let mut image = base.image.clone();
    image.edit_all(edits, EDITS_MAX);
    assert!(image.forged, "the edits were applied");
    let disk = Disk::new(1);
    image.put(&disk, Path::new(DIRECTORY));
    on(&disk, async {
        let (store, start) = DiskStore::open(options()).await.unwrap();
        let work = async {
            let mut found = Vec::new();
            for (number, (key, contents)) in base.contents.iter().enumerate() {
                let Some(hit) = store.get(key).await else { continue };
                if whole(hit).await.is_some_and(|content| contents.contains(&content)) {
                    found.push(number);
                }
            }
            store.flush().await.unwrap();
            store.close();
            found
        };
        (start, runtime::join(store.run(), work).await.1)
    })
}

fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put_u16(bytes.len() as u16);
    out.put(bytes);
}

/// A field of the superblock or of the preamble.
fn field(operation: u8, at: u8, value: &[u8]) -> Vec<u8> {
    let mut edit = vec![operation, at];
    text(&mut edit, value);
    edit
}

fn batch(operation: u8, changes: &[u8]) -> Vec<u8> {
    let mut edit = vec![operation];
    text(&mut edit, changes);
    edit
}

/// A field in the header of each record.
fn headers(at: u16, value: &[u8]) -> Vec<u8> {
    let mut edits = Vec::new();
    for record in 0..14_u8 {
        edits.put_u8(11 | record << 4);
        edits.put_u8(0);
        edits.put_u16(at);
        text(&mut edits, value);
    }
    edits
}

fn is_replaced(edits: &[u8], why: &str) {
    let (start, found) = started(edits);
    assert_eq!(start, Start::Fresh(why.to_owned()));
    assert_eq!(found, [0; 0]);
}

/// All that are not deleted.
const ALL: [usize; 11] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11];

#[test]
fn the_last_epoch_replaces_the_store() {
    let why = "it was opened too often to be counted";
    is_replaced(&field(5, 12, &[0xff; 4]), why);
    is_replaced(&batch(9, &[8, 0xff, 0xff, 0xff, 0xff]), why);
    // Its numbers would be those of earlier epochs.
    is_replaced(&field(5, 12, &(1_u32 << 24).to_le_bytes()), why);
}

#[test]
fn the_last_purge_or_life_replaces_the_store() {
    let why = "a number is larger than any that was given out";
    let mut purge = vec![5, 0];
    purge.put_u64(u64::MAX);
    purge.put_u64(7);
    purge.put_u8(0);
    is_replaced(&batch(9, &purge), why);
    let mut open = vec![3, 15, 0];
    open.put_u64(u64::MAX);
    open.put_u8(0);
    is_replaced(&batch(9, &open), why);
}

#[test]
fn the_last_saved_index_replaces_the_store() {
    is_replaced(&field(6, 8, &[0xff; 8]), "the saved index has an impossible generation");
}

#[test]
fn a_forged_count_of_entries_reserves_no_memory() {
    let (start, found) = started(&field(6, 40, &[0xff; 8]));
    assert!(matches!(start, Start::Warm { objects: 11, .. }), "{start:?}");
    assert_eq!(found, ALL);
    // Every input of the corpus checks the bound on allocations.
}

#[test]
fn a_record_with_impossible_lengths_is_a_miss() {
    let (start, found) = started(&headers(48, &[0xff; 8]));
    assert!(matches!(start, Start::Warm { .. }), "{start:?}");
    assert_eq!(found, [0; 0], "longer than any store");
    let (_, found) = started(&headers(60, &[0; 4]));
    assert_eq!(found, [0, 1, 2, 3, 4, 5, 6, 7, 9, 11], "chunks of no length");
}

#[test]
fn a_full_journal_does_not_prevent_a_start() {
    // After a journal that was closed, before the index was saved.
    let deletes: Vec<u8> = (0..900_u64).flat_map(|_| [2, 9, 9, 9, 9, 9, 9, 9, 9]).collect();
    let (start, found) = started(&batch(10, &deletes));
    assert!(matches!(start, Start::Warm { objects: 11, .. }), "{start:?}");
    assert_eq!(found, ALL);
}
