//! Bringing what the disk has into memory, before it is decided what to do with a request.
//!
//! A request that memory has no answer for may have one on the disk: under its URI's key, or, if
//! what is there says by what the responses differ, under the keys of its variants. Each is read
//! once for all who want it at the same time. It is put into memory only where nothing is, and only
//! if it is still what the disk has: what has been stored, changed or deleted meanwhile goes first.

use std::sync::Arc;

use store::disk::{DiskStore, Hit};
use store::{Generation, Key};

use crate::Cache;
use crate::disk::{codec, is_brought};
use crate::flight::{Joined, Settled};
use crate::stored::{Away, Entry, Piece, Stored, Wire};
use crate::watch::Watch;

/// What stands under a URI, then what it names; and once more, if a record was moved meanwhile.
const ROUNDS_MAX: usize = 3;

/// Brings into memory what this request may be answered with. Afterwards memory knows what the disk
/// does, as long as there is room. What was found last whose body stays there comes back: its first
/// block is here.
pub async fn swap_in(shared: &Cache, uri: Key, request: &Wire<'_>) -> Option<Box<Hit>> {
    let mut at_hand = None;
    for _ in 0..ROUNDS_MAX {
        let Some(disk) = shared.disk() else { return at_hand };
        let wanted = shared.wanted_from(&disk, uri, request);
        if wanted.is_empty() {
            return at_hand;
        }
        for key in wanted {
            at_hand = bring(shared, &disk, uri, key).await.or(at_hand);
        }
    }
    at_hand
}

/// Brings what is under one key; whoever comes meanwhile waits for it.
async fn bring(shared: &Cache, disk: &DiskStore, uri: Key, key: Key) -> Option<Box<Hit>> {
    let mut own = shared.hasher.within(key);
    own.raw(b"disk");
    let now: Generation = shared.purges.now();
    let watch = || shared.under_way.watch(uri);
    // A purge is asked about when what was brought is looked up.
    match shared.flights.join(own.finish(), now, watch, |_| false) {
        Joined::Follow(reader) => {
            drop(reader.found().await);
            None
        }
        Joined::Lead(lead) => {
            let at_hand = match disk.get(&key).await {
                Some(hit) => take(shared, disk, lead.watch(), key, hit).await,
                None => None,
            };
            // Who waited looks into memory again.
            lead.settle(Settled::Uncacheable);
            at_hand
        }
    }
}

/// Puts it into memory, or its head: then what was found comes back.
async fn take(
    shared: &Cache,
    disk: &DiskStore,
    watch: &Watch,
    key: Key,
    hit: Hit,
) -> Option<Box<Hit>> {
    let version = hit.version();
    let mut at_hand = None;
    let entry = match codec::read(&hit.meta) {
        Some(codec::Read::Varies(varies)) => Entry::Varies(Arc::new(varies)),
        Some(codec::Read::Response(head)) => {
            let body_bytes = hit.body_len;
            let away = Away { key, object: hit.object };
            if is_brought(body_bytes) && body_bytes <= shared.memory_object_bytes_max() {
                match body(hit).await {
                    Some(pieces) => Entry::Response(Arc::new(Stored::new(head, pieces))),
                    None => return None,
                }
            } else {
                at_hand = Some(Box::new(hit));
                Entry::Response(Arc::new(Stored::away(head, body_bytes, away)))
            }
        }
        None => {
            shared.delete_there(disk, &key);
            return None;
        }
    };
    let bytes = entry.accounted_bytes();
    let is_good = |there: Option<&Entry>| {
        there.is_none() && !watch.is_overtaken() && disk.is_current(&key, &version)
    };
    if let Err(refused) = shared.store.insert_if(key, is_good, entry, bytes) {
        tracing::debug!(%refused, "not brought into memory");
    }
    at_hand
}

/// A body that fits into memory, in one piece; `None` if it cannot be read.
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
    /// Keys that a look-up for this request asks, of which memory has nothing and the disk
    /// something.
    fn wanted_from(&self, disk: &DiskStore, uri: Key, request: &Wire<'_>) -> Vec<Key> {
        let keys = match self.store.peek(&uri) {
            None => vec![uri],
            Some(Entry::Varies(varies)) => self.variant_keys(uri, &varies, request),
            Some(Entry::Response(_) | Entry::Part(_) | Entry::Uncacheable { .. }) => {
                return Vec::new();
            }
        };
        let lacks = |key: &Key| disk.contains(key) && self.store.peek(key).is_none();
        keys.into_iter().filter(lacks).collect()
    }
}
