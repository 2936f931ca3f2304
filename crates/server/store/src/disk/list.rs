//! Lists the objects of a store, for a reader that wants to know what is there.
//!
//! The index knows only fingerprints, so the reader takes those of one shard at a time, and reads
//! the records of the ones it does not know. What never happens: a listing counts as a use of an
//! object, or removes one.

use super::record::{HEADER_BYTES, Header, Kind};
use super::{DiskStore, print_of};
use crate::key::Key;

/// The fingerprint of a key: all that the index knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(u64);

impl From<Key> for Fingerprint {
    fn from(key: Key) -> Fingerprint {
        Fingerprint(print_of(key.to_u128()))
    }
}

/// An object without its body.
#[derive(Debug)]
pub struct Listed {
    /// Its key.
    pub key: Key,
    /// The metadata, as given with the object.
    pub meta: Vec<u8>,
    /// The object's number.
    pub object: u64,
    /// Bytes of the body.
    pub body_len: u64,
}

impl DiskStore {
    /// The number of parts of the index.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.0.index.shards()
    }

    /// The objects in a part of the index; `None` after the last part.
    #[must_use]
    pub fn objects(&self, part: usize) -> Option<Vec<Fingerprint>> {
        let prints = self.0.index.objects(part)?;
        Some(prints.into_iter().map(Fingerprint).collect())
    }

    /// Reads an object's first block, and no more: `None` if the metadata does not fit there.
    pub async fn list(&self, print: Fingerprint) -> Option<Listed> {
        let inner = &self.0;
        let found = inner.index.look_up(print.0, false)?;
        let first = inner.block(&found, 0).await.ok()?;
        let header = Header::decode(&first).filter(|header| header.kind != Kind::Chunk)?;
        let end = usize::try_from(header.body_at()).ok()?;
        Some(Listed {
            key: Key::from_u128(header.key),
            meta: first.get(HEADER_BYTES..end)?.to_vec(),
            object: header.object,
            body_len: header.body_len,
        })
    }
}
