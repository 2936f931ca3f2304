//! The fuzz targets, also replayed over the checked-in corpus by stable tests.
//!
//! They check what must hold of a store whatever is in its files, be it by bit rot, by an
//! operator's mistake, or by an attacker who can compute its checksums. Not used for serving.

/// Target `disk_store`: edits of the files of a small store, and their effects.
pub fn disk_store(data: &[u8]) {
    crate::disk::fuzzing::disk_store(data);
}
