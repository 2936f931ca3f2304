//! What the fuzz targets run, and what the stable tests replay over the checked-in corpus.
//!
//! What must hold of a store whatever its files have become: by rot, by a hand that went wrong, by
//! somebody who knows its checksums. Never part of serving anybody.

/// Target `disk_store`: edits of the files of a small store, and what comes of them.
pub fn disk_store(data: &[u8]) {
    crate::disk::fuzzing::disk_store(data);
}
