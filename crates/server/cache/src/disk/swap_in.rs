//! Reads entries from the disk into memory, before any decision about a request.
//!
//! A request that memory cannot answer may have an answer on the disk: under its URI's key or, if
//! the entry there lists what the responses vary by, under the keys of its variants. Each entry is
//! read once for all requests that want it at the same time. It is inserted only if memory has
//! nothing under its key and the disk still has it: anything stored, changed or deleted meanwhile
//! wins.

use std::sync::Arc;

use store::disk::{DiskStore, Hit};
use store::{Generation, Key};

use crate::Cache;
use crate::disk::{codec, fits_memory};
use crate::flight::{Joined, Settled};
use crate::forms::Away;
use crate::key::KeyParts;
use crate::stored::{Entry, Piece, Stored, Wire};
use crate::watch::Watch;

/// The entry of a URI, then those it names; and once more, in case a record was moved meanwhile.
const ROUNDS_MAX: usize = 3;

/// Reads the entries that may answer this request into memory. Afterwards memory has what the disk
/// has, as far as there is room. Returns the last hit whose body stays on the disk; its first block
/// is in memory.
pub async fn swap_in(
    shared: &Cache,
    uri: Key,
    parts: Option<KeyParts<'_>>,
    request: &Wire<'_>,
) -> Option<Box<Hit>> {
    let mut swapped_in = None;
    for _ in 0..ROUNDS_MAX {
        let Some(disk) = shared.disk() else { return swapped_in };
        let wanted = shared.wanted_from(&disk, uri, parts, request);
        if wanted.is_empty() {
            return swapped_in;
        }
        for key in wanted {
            swapped_in = read_entry(shared, &disk, uri, key).await.or(swapped_in);
        }
    }
    swapped_in
}

/// Whether [`swap_in`] would read the disk.
pub fn must_read(shared: &Cache, uri: Key, request: &Wire<'_>) -> bool {
    let wanted = |disk| shared.wanted_from(&disk, uri, None, request);
    shared.disk().is_some_and(|disk| !wanted(disk).is_empty())
}

/// Reads the entry of one key. Concurrent requests wait for it.
async fn read_entry(shared: &Cache, disk: &DiskStore, uri: Key, key: Key) -> Option<Box<Hit>> {
    let mut own = shared.hasher.within(key);
    own.raw(b"disk");
    let now: Generation = shared.purges.now();
    let watch = || shared.watches.watch(uri);
    // Purges are checked when the entry is looked up.
    match shared.flights.join(own.finish(), now, watch, |_| false) {
        Joined::Follow(reader) => {
            drop(reader.found().await);
            None
        }
        Joined::Lead(lead) => {
            let swapped_in = match disk.get(&key).await {
                Some(hit) => take(shared, disk, lead.watch(), key, hit).await,
                None => None,
            };
            // The requests that waited look into memory again.
            lead.settle(Settled::Uncacheable);
            swapped_in
        }
    }
}

/// Inserts the response, or its head if the body stays on the disk; then returns the hit.
async fn take(
    shared: &Cache,
    disk: &DiskStore,
    watch: &Watch,
    key: Key,
    hit: Hit,
) -> Option<Box<Hit>> {
    let version = hit.version();
    let mut swapped_in = None;
    let entry = match codec::read(&hit.meta) {
        Some(codec::Read::Varies(varies)) => Entry::Varies(Arc::new(varies)),
        Some(codec::Read::Response(head)) => {
            let body_bytes = hit.body_len;
            let away = Away { key, object: hit.object };
            if fits_memory(body_bytes) && body_bytes <= shared.memory_object_bytes_max() {
                match body(hit).await {
                    Some(pieces) => Entry::Response(Arc::new(Stored::new(head, pieces))),
                    None => return None,
                }
            } else {
                swapped_in = Some(Box::new(hit));
                Entry::Response(Arc::new(Stored::away(head, body_bytes, away)))
            }
        }
        None => {
            shared.delete_on_disk(disk, &key);
            return None;
        }
    };
    let bytes = entry.accounted_bytes();
    let is_good = |there: Option<&Entry>| {
        there.is_none() && !watch.is_overtaken() && disk.is_current(&key, &version)
    };
    if let Err(refused) = shared.store.insert_if(key, is_good, entry, bytes) {
        tracing::debug!(%refused, "not read into memory");
    }
    swapped_in
}

/// Reads a body that fits into memory, in one piece; `None` if it cannot be read.
async fn body(hit: Hit) -> Option<Vec<Piece>> {
    let length = usize::try_from(hit.body_len).ok()?;
    if length == 0 {
        return Some(Vec::new());
    }
    let mut body = hit.body();
    let first = body.next().await.ok()??;
    if first.len() == length {
        return Some(vec![Piece::from(&first[..])]);
    }
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&first);
    while let Some(piece) = body.next().await.ok()? {
        bytes.extend_from_slice(&piece);
    }
    Some(vec![Piece::from(bytes)])
}

impl Cache {
    /// The keys that a look-up for this request needs and that only the disk has.
    fn wanted_from(
        &self,
        disk: &DiskStore,
        uri: Key,
        parts: Option<KeyParts<'_>>,
        request: &Wire<'_>,
    ) -> Vec<Key> {
        let keys = match self.store.peek(&uri) {
            None => vec![uri],
            Some(Entry::Varies(varies)) => self.variant_keys(uri, &varies, parts, request),
            Some(Entry::Response(_) | Entry::Part(_) | Entry::Uncacheable { .. }) => {
                return Vec::new();
            }
        };
        let lacks = |key: &Key| disk.contains(key) && self.store.peek(key).is_none();
        keys.into_iter().filter(lacks).collect()
    }
}
