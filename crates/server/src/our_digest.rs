//! Makes our cache digest from time to time: the URLs of which we have a fresh response.
//!
//! ```text
//!   memory, some slots at a time --> the responses that a plain GET would get --> digest
//!   disk, some records a second ----^   (only those that memory lacks)
//! ```
//!
//! One core makes it, from the store that all cores share. It works in short slices, so that its
//! requests go on meanwhile. The index of the disk knows no URLs, so the records of what memory
//! lacks are read, at a bounded rate. The first digests follow each other sooner: a store that has
//! just begun to fill has little to say.
//!
//! What never happens: a digest has more URLs than it has room for; a response is announced that a
//! listener would not serve, that was purged, or that will be stale before the next digest; making
//! a digest counts as a use of a response.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cache::disk::listed::listed;
use cache::key::StoredUri;
use cache::realm::Realm;
use cache::stored::{Entry, Stored, Wire};
use cache::{Look, Lookup};
use config::Role;
use exchange::Worker;
use exchange::our_digest::Made;
use exchange::snapshot::Snapshot;
use http1::{OwnedRequest, Scheme};
use peering::digest::{Digest, Key as DigestKey};
use runtime::time;
use store::disk::{DiskStore, Fingerprint};
use store::{Cursor, Key};

use crate::limits::{
    DIGEST_FIRST_AFTER, DIGEST_READS_PER_SLICE, DIGEST_SLICE_EVERY, DIGEST_SLOTS_PER_SLICE,
    DIGEST_SPARE_URLS,
};
use crate::queries::{PLAIN, is_served, parsed};

/// How often the configuration is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Makes digests as the configuration in force says, for as long as it is polled.
pub(crate) async fn keep(worker: Rc<Worker>) {
    let mut next = time::now();
    let mut lifetime = DIGEST_FIRST_AFTER;
    loop {
        let interval = worker.snapshot().config.digest.as_ref().map(|rules| rules.interval);
        match interval {
            None => {
                worker.shared.digest.set(None);
                (next, lifetime) = (time::now(), DIGEST_FIRST_AFTER);
            }
            // A reload can have made it shorter.
            Some(interval) if time::now() < next => next = next.min(time::now() + interval),
            Some(interval) => {
                lifetime = lifetime.min(interval);
                next = time::now() + lifetime;
                let made = Making::new(&worker, lifetime).make().await;
                worker.shared.digest.set(Some(made));
                lifetime *= 2;
            }
        }
        time::sleep(LOOK).await;
    }
}

/// A digest that is being made.
struct Making<'w> {
    worker: &'w Worker,
    snapshot: Rc<Snapshot>,
    /// A request without fields.
    plain: OwnedRequest,
    digest: Digest<Vec<u8>>,
    lifetime: Duration,
    /// What is stale before this time, in unix milliseconds, is not announced.
    until_ms: u64,
    /// What memory has of what the disk has, too.
    in_memory: HashSet<Fingerprint>,
}

impl<'w> Making<'w> {
    fn new(worker: &'w Worker, lifetime: Duration) -> Making<'w> {
        let cache = &worker.cache;
        let objects = cache.store.len() + cache.disk().map_or(0, |disk| disk.len());
        Making {
            worker,
            snapshot: worker.snapshot(),
            plain: parsed(PLAIN).expect("a whole request"),
            digest: Digest::new(objects + objects / 8 + DIGEST_SPARE_URLS),
            lifetime,
            until_ms: time::wall_ms() + lifetime.as_millis() as u64,
            in_memory: HashSet::new(),
        }
    }

    async fn make(mut self) -> Made {
        self.add_memory().await;
        if let Some(disk) = self.worker.cache.disk() {
            self.add_disk(&disk).await;
        }
        let mut bytes = Vec::new();
        self.digest.write(&mut bytes);
        let urls = self.digest.header().count();
        tracing::debug!(urls, bytes = bytes.len(), "a cache digest was made");
        Made { bytes, made_ms: time::wall_ms(), lifetime: self.lifetime }
    }

    async fn add_memory(&mut self) {
        let cache = &self.worker.cache;
        let has_disk = cache.disk().is_some();
        let (mut at, mut found) = (Some(Cursor::default()), Vec::new());
        while let Some(from) = at {
            at = cache.store.visit(from, DIGEST_SLOTS_PER_SLICE, |key, entry| {
                found.push((key, entry.clone()));
            });
            for (key, entry) in found.drain(..) {
                if has_disk {
                    self.in_memory.insert(key.into());
                }
                if let Entry::Response(stored) = entry {
                    self.add(&stored, |this, uri| this.is_found(uri, key));
                }
            }
            time::sleep(DIGEST_SLICE_EVERY).await;
        }
    }

    /// Whether a plain GET gets the response under this key.
    fn is_found(&self, uri: Key, key: Key) -> bool {
        let head = self.plain.head();
        let wire = Wire(head.fields);
        let found = self.worker.cache.look(Look::Peek, uri, &wire, time::wall_ms());
        matches!(found, Lookup::Found(stored, at) if at == key && stored.is_fresh(self.until_ms))
    }

    async fn add_disk(&mut self, disk: &DiskStore) {
        for part in 0.. {
            let Some(mut prints) = disk.objects(part) else { return };
            prints.retain(|print| !self.in_memory.contains(print));
            for some in prints.chunks(DIGEST_READS_PER_SLICE) {
                for print in some {
                    let Some((key, stored)) = listed(disk, *print).await else { continue };
                    // The variants of a URI are found by way of memory only.
                    let is_it = |this: &Making<'_>, uri: Key| {
                        let judged =
                            || this.worker.cache.judged(Look::Peek, key, Arc::clone(&stored));
                        uri == key && stored.is_for_all() && judged().is_some()
                    };
                    self.add(&stored, is_it);
                }
                time::sleep(DIGEST_SLICE_EVERY).await;
            }
        }
    }

    /// Adds the URL of a response, if a listener would serve it. `is_it` says whether it is what
    /// is found under the key of a URI.
    fn add(&mut self, stored: &Stored, is_it: impl Fn(&Making<'_>, Key) -> bool) {
        let is_full = self.digest.header().count() >= self.digest.header().capacity();
        if is_full || !stored.is_fresh(self.until_ms) {
            return;
        }
        let url = stored.head.resource.known().url;
        let Some(at) = url.iter().position(|byte| *byte == b'/') else { return };
        let (authority, path) = url.split_at(at);
        for (role, scheme) in REALMS {
            let realm = Realm { role, scheme };
            if !is_served(&self.snapshot, realm, authority, path) {
                continue;
            }
            let uri = self.worker.cache.uri_key(StoredUri::new(realm, authority, path));
            if is_it(self, uri) {
                let url = [scheme.name().as_bytes(), b"://", url].concat();
                self.digest.add(&DigestKey::of_get(&url));
                return;
            }
        }
    }
}

const REALMS: [(Role, Scheme); 4] = [
    (Role::Forward, Scheme::Http),
    (Role::Forward, Scheme::Https),
    (Role::Reverse, Scheme::Http),
    (Role::Reverse, Scheme::Https),
];
