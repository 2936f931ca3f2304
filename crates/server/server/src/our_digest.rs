//! Makes our cache digest from time to time: the URLs of which we have a fresh response.
//!
//! ```text
//!   memory, some slots at a time --> the responses that a plain GET would get --> digest
//!   disk, some records a second ----^   (only those that memory lacks)
//! ```
//!
//! One core makes it, from the store that all cores share. It works in short slices, so that its
//! requests go on meanwhile. The index of the disk knows no URLs, so the records of what memory
//! lacks are read, at a bounded rate and for a bounded time. What is not read by then is not in the
//! digest. The first digest is published when memory was seen, and again with what the disk has.
//! The first digests follow each other sooner: a store that has just begun to fill has little to
//! say.
//!
//! What never happens: a digest has more URLs than it has room for; a response is announced that
//! will be stale before the digest expires, or that, when it was looked at, was purged or no
//! listener would serve; making a digest counts as a use of a response.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cache::disk::listed::listed;
use cache::key::StoredUri;
use cache::realm::Realm;
use cache::stored::Resource;
use cache::stored::{Entry, Stored, Wire};
use cache::{Look, Lookup};
use config::Role;
use exchange::Worker;
use exchange::shared::Made;
use exchange::snapshot::Snapshot;
use http1::{OwnedRequest, Scheme};
use peering::digest::{Digest, Key as DigestKey};
use runtime::time;
use store::disk::{DiskStore, Fingerprint};
use store::{Cursor, Key};

use crate::limits::{
    DIGEST_FIRST_AFTER, DIGEST_PRINTS_MAX, DIGEST_READS_PER_SLICE, DIGEST_READS_PER_SLICE_MAX,
    DIGEST_SLICE_EVERY, DIGEST_SLOTS_PER_SLICE, DIGEST_SPARE_URLS,
};
use crate::queries::{PLAIN, is_served, parsed};

/// How often the configuration is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Makes digests as the configuration in force says, for as long as it is polled.
pub(crate) async fn keep(worker: Rc<Worker>) {
    let mut next = time::now();
    let mut lifetime = DIGEST_FIRST_AFTER;
    // A disk that is too large for one digest is read in turns.
    let mut first_part = 0;
    loop {
        match interval(&worker.snapshot()) {
            None => {
                worker.shared.digest.set(None);
                (next, lifetime) = (time::now(), DIGEST_FIRST_AFTER);
            }
            // A reload can have made it shorter.
            Some(interval) if time::now() < next => next = next.min(time::now() + interval),
            Some(interval) => {
                lifetime = lifetime.min(interval);
                next = time::now() + lifetime;
                let mut making = Making::new(&worker, (interval, lifetime), first_part);
                match making.make().await {
                    Ok(()) => lifetime *= 2,
                    Err(Changed) => next = time::now(),
                }
                first_part = making.part;
            }
        }
        time::sleep(LOOK).await;
    }
}

/// How often a digest is made, if the configuration says that one is made.
fn interval(snapshot: &Snapshot) -> Option<Duration> {
    snapshot.config.digest.as_ref().map(|rules| rules.interval)
}

/// A reload has changed how often a digest is made, or that one is made at all.
struct Changed;

/// A digest that is being made.
struct Making<'w> {
    worker: &'w Worker,
    /// How often one is made, as configured when it was begun.
    interval: Duration,
    /// Renewed before each slice.
    snapshot: Rc<Snapshot>,
    /// A request without fields.
    plain: OwnedRequest,
    digest: Digest<Vec<u8>>,
    /// When it expires, in unix milliseconds. What is stale before this is not announced.
    until_ms: u64,
    reading: Reading,
    /// The part of the disk's index that is read next.
    part: usize,
    /// What memory has, so that it is not read from the disk. It never grows: what it has no room
    /// for is read.
    in_memory: HashSet<Fingerprint, BuildHasherDefault<Itself>>,
}

/// How the disk is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    per_slice: usize,
    /// How long that takes if the disk is quick.
    expected: Duration,
    /// It ends after this time, so that the digest is published.
    time_max: Duration,
}

impl Reading {
    /// As slowly as is enough to read all in half of the time until the next digest.
    fn of(objects: usize, lifetime: Duration) -> Reading {
        let time_max = lifetime / 2;
        let slices = (time_max.as_millis() / DIGEST_SLICE_EVERY.as_millis()).max(1) as usize;
        let enough = objects.div_ceil(slices);
        let per_slice = enough.clamp(DIGEST_READS_PER_SLICE, DIGEST_READS_PER_SLICE_MAX);
        // Reads take time besides the pauses.
        let needed = DIGEST_SLICE_EVERY * objects.div_ceil(per_slice).min(slices) as u32 * 2;
        Reading { per_slice, expected: time_max.min(needed), time_max }
    }
}

/// A fingerprint is a hash already.
#[derive(Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, print: u64) {
        self.0 = print;
    }
}

impl<'w> Making<'w> {
    fn new(
        worker: &'w Worker,
        (interval, lifetime): (Duration, Duration),
        part: usize,
    ) -> Making<'w> {
        let cache = &worker.cache;
        let on_disk = cache.disk().map(|disk| disk.len());
        let (known, objects) = (cache.store.len(), cache.store.len() + on_disk.unwrap_or(0));
        let reading = Reading::of(on_disk.unwrap_or(0), lifetime);
        let slices = cache.store.slots().div_ceil(DIGEST_SLOTS_PER_SLICE) as u32;
        let making = DIGEST_SLICE_EVERY * slices * 2 + reading.expected;
        let prints = on_disk.map_or(0, |_| DIGEST_PRINTS_MAX.min(known + DIGEST_SPARE_URLS));
        Making {
            worker,
            interval,
            snapshot: worker.snapshot(),
            plain: parsed(PLAIN).expect("a whole request"),
            digest: Digest::new(objects + objects / 8 + DIGEST_SPARE_URLS),
            until_ms: time::wall_ms() + (making + lifetime).as_millis() as u64,
            reading,
            part,
            in_memory: HashSet::with_capacity_and_hasher(prints, BuildHasherDefault::default()),
        }
    }

    async fn make(&mut self) -> Result<(), Changed> {
        let cache = &self.worker.cache;
        // All purges concern it that concern everything, and no others.
        let of_none = StoredUri::new(OF_NONE, b"none.invalid", b"/");
        let any = Resource::new(of_none, std::iter::empty(), cache.purges.now());
        self.add_memory().await?;
        if let Some(disk) = cache.disk() {
            if self.worker.shared.digest.get().is_none() {
                self.publish();
            }
            self.add_disk(&disk).await?;
        }
        if cache.is_overtaken(&any, cache.purges.now()) {
            tracing::debug!("everything was purged, so a cache digest is made again");
            self.digest = Digest::new(self.digest.header().capacity() as usize);
            self.add_memory().await?;
        }
        self.publish();
        Ok(())
    }

    /// Before each slice: the configuration in force.
    fn renew(&mut self) -> Result<(), Changed> {
        self.snapshot = self.worker.snapshot();
        // What was slow for a time must not be announced with a lifetime that has passed.
        self.until_ms = self.until_ms.max(time::wall_ms());
        if interval(&self.snapshot) == Some(self.interval) { Ok(()) } else { Err(Changed) }
    }

    fn publish(&self) {
        let mut bytes = Vec::new();
        self.digest.write(&mut bytes);
        let urls = self.digest.header().count();
        tracing::debug!(urls, bytes = bytes.len(), "a cache digest was made");
        let made_ms = time::wall_ms();
        let lifetime = Duration::from_millis(self.until_ms.saturating_sub(made_ms));
        self.worker.shared.digest.set(Some(Made { bytes, made_ms, lifetime }));
    }

    async fn add_memory(&mut self) -> Result<(), Changed> {
        let cache = &self.worker.cache;
        let (mut at, mut found) = (Some(Cursor::default()), Vec::new());
        while let Some(from) = at {
            self.renew()?;
            at = cache.store.visit(from, DIGEST_SLOTS_PER_SLICE, |key, entry| {
                found.push((key, entry.clone()));
            });
            for (key, entry) in found.drain(..) {
                if self.in_memory.len() < self.in_memory.capacity() {
                    self.in_memory.insert(key.into());
                }
                if let Entry::Response(stored) = entry {
                    self.add(&stored, |this, uri| this.is_found(uri, key));
                }
            }
            time::sleep(DIGEST_SLICE_EVERY).await;
        }
        Ok(())
    }

    /// Whether a plain GET gets the response under this key.
    fn is_found(&self, uri: Key, key: Key) -> bool {
        let head = self.plain.head();
        let wire = Wire(head.fields);
        let found = self.worker.cache.look(Look::Peek, uri, &wire, time::wall_ms());
        matches!(found, Lookup::Found(stored, at) if at == key && stored.is_fresh(self.until_ms))
    }

    /// Reads all parts, from the one at which the last digest had no time left.
    async fn add_disk(&mut self, disk: &DiskStore) -> Result<(), Changed> {
        let end = time::now() + self.reading.time_max;
        let next = |part: usize| (part + 1) % disk.parts();
        for turn in 0..disk.parts() {
            let mut prints = disk.objects(self.part).unwrap_or_default();
            prints.retain(|print| !self.in_memory.contains(print));
            for some in prints.chunks(self.reading.per_slice) {
                self.renew()?;
                if time::now() >= end {
                    if turn == 0 {
                        self.part = next(self.part);
                    }
                    let urls = self.digest.header().count();
                    tracing::info!(urls, "a cache digest has not all that is on the disk");
                    return Ok(());
                }
                for print in some {
                    let Some((key, stored)) = listed(disk, *print).await else { continue };
                    // The variants of a URI are found by way of memory only.
                    let is_it = |this: &Making<'_>, uri: Key| {
                        let judged =
                            || this.worker.cache.judged(Look::Peek, key, Arc::clone(&stored));
                        // A soft purge makes it stale.
                        let is_fresh = |of: Arc<Stored>| of.is_fresh(this.until_ms);
                        uri == key && stored.is_for_all() && judged().is_some_and(is_fresh)
                    };
                    self.add(&stored, is_it);
                }
                time::sleep(DIGEST_SLICE_EVERY).await;
            }
            self.part = next(self.part);
        }
        Ok(())
    }

    /// Adds the URL of a response, if a listener would serve it. `is_it` says whether it is what
    /// is found under the key of a URI.
    fn add(&mut self, stored: &Stored, is_it: impl Fn(&Making<'_>, Key) -> bool) {
        let is_full = self.digest.header().count() >= self.digest.header().capacity();
        // A peer takes an error for a false hit.
        let is_error = stored.status() >= 400 && !matches!(stored.status(), 404 | 410);
        if is_full || is_error || !stored.is_fresh(self.until_ms) {
            return;
        }
        let url = stored.head.resource.known().url;
        let Some(at) = url.iter().position(|byte| *byte == b'/') else { return };
        let (authority, path) = url.split_at(at);
        for (role, scheme) in REALMS {
            let realm = Realm { role, scheme };
            if !is_served((self.worker, &self.snapshot), realm, authority, path) {
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

const OF_NONE: Realm = Realm { role: Role::Forward, scheme: Scheme::Http };

const REALMS: [(Role, Scheme); 4] = [
    (Role::Forward, Scheme::Http),
    (Role::Forward, Scheme::Https),
    (Role::Reverse, Scheme::Http),
    (Role::Reverse, Scheme::Https),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_disk_is_read_faster_and_not_for_longer_than_half_of_the_time() {
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        let of = |objects, lifetime| {
            let Reading { per_slice, expected, time_max } = Reading::of(objects, lifetime);
            assert_eq!(time_max, lifetime / 2);
            (per_slice, expected)
        };
        assert_eq!(of(0, hour), (2, Duration::ZERO));
        assert_eq!(of(200, hour), (2, Duration::from_secs(2)));
        assert_eq!(of(1_000_000, hour), (6, hour / 2));
        for objects in [1_000_000, 100_000_000] {
            assert_eq!(of(objects, minute), (DIGEST_READS_PER_SLICE_MAX, minute / 2));
        }
    }

    #[test]
    fn what_memory_has_is_remembered_by_its_fingerprint() {
        let mut prints: HashSet<u64, BuildHasherDefault<Itself>> = HashSet::default();
        assert!((0..1000).all(|at| prints.insert(at << 32 | at)));
        assert!((0..1000).all(|at| prints.contains(&(at << 32 | at))) && !prints.contains(&1));
    }
}
