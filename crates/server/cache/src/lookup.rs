//! Look-ups and invalidations.

use std::sync::atomic::{AtomicU64, Ordering};

use config::limits::Limits;
use metrics::Described;
use runtime::time;
use store::{Concerns, Key};

use crate::changes::{Made, Notice};
use crate::key::{KeyParts, StoredUri};
use crate::pressure::store_bytes_left;
use crate::realm::normal_authority;
use crate::sizing::{LABELS, Size};
use crate::stored::{Entry, Wire};
use crate::watch::Watch;
use crate::{Cache, Look, Lookup, Query};

/// What the request that changes a URI knows of the URI. If the URI has several paths, the key and
/// the watch are those of the first one.
#[derive(Debug)]
pub struct Own<'w> {
    /// The key of the URI.
    pub key: Key,
    /// The request's watch of the URI, if its response may be stored.
    pub watch: Option<&'w mut Watch>,
}

impl Cache {
    /// Reserves room for bytes of a body that is arriving; false if there is no room.
    pub fn take_arriving(&self, bytes: u64) -> bool {
        take(&self.arriving_bytes, bytes, self.arriving_bytes_max)
    }

    /// Releases the reservation.
    pub fn give_arriving(&self, bytes: u64) {
        let before = self.arriving_bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "no more is released than was reserved");
    }

    /// Checks the process's memory, if a check is due.
    pub fn look_at_memory(&self, limits: &Limits) {
        self.pressure.look(time::wall_ms(), limits, |excess| {
            let counters = self.store.counters();
            let left = store_bytes_left(counters.bytes, counters.bytes_max, excess);
            self.store.shrink_to(left);
        });
    }

    /// Maximum length of a stored body.
    pub fn object_bytes_max(&self) -> u64 {
        self.memory_object_bytes_max.max(self.disk_body_bytes_max())
    }

    /// Maximum length of a body in memory.
    pub fn memory_object_bytes_max(&self) -> u64 {
        self.memory_object_bytes_max
    }

    /// A number for a set of names that responses vary by. No other set has or had this number.
    pub fn epoch(&self) -> u64 {
        match &self.disk {
            // Also while another process has the disk: the numbers never repeat.
            Some(disk) => disk.present().number(),
            None => self.epochs.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The key of a URI. Ignores the case of the authority, and the scheme's default port (RFC
    /// 9110, 4.2.3).
    // Always: with one path of hits for each protocol, the hint alone is not followed.
    #[inline(always)]
    pub fn uri_key(&self, uri: StoredUri<'_>) -> Key {
        let StoredUri { realm, authority, path } = uri;
        let mut builder = self.hasher.start();
        builder.byte(realm.byte());
        if !planted::is(planted::Bug::KeyWithoutHost) {
            builder.part(&normal_authority(realm, authority));
        }
        builder.part(path);
        builder.finish()
    }

    /// The stored response that a request selects. Counts as a use.
    #[inline]
    pub fn look_up(&self, uri: Key, request: &Wire<'_>, now_ms: u64) -> Lookup {
        self.look(Look::Use, uri, request, now_ms)
    }

    /// The stored response that a request selects; `look` decides whether this counts as a use.
    #[inline]
    pub fn look(&self, look: Look, uri: Key, request: &Wire<'_>, now_ms: u64) -> Lookup {
        if self.handover.is_left() {
            return Lookup::Bypassed;
        }
        match self.entry(look, &uri) {
            None => Lookup::Absent(uri),
            Some(Entry::Response(stored)) if stored.is_for_all() => {
                match self.judged(look, uri, stored) {
                    Some(stored) => Lookup::Found(stored, uri),
                    None => Lookup::Absent(uri),
                }
            }
            Some(Entry::Part(partial)) if partial.head.varies.is_none() => {
                match self.judged_part(look, uri, partial) {
                    Some(partial) => Lookup::Part(partial, uri),
                    None => Lookup::Absent(uri),
                }
            }
            // A response with Vary is never stored under the URI itself.
            Some(Entry::Response(_) | Entry::Part(_)) => Lookup::Absent(uri),
            Some(Entry::Varies(varies)) => {
                let query = Query { look, parts: None, request, now_ms };
                self.look_for_variant(uri, &varies, &query)
            }
            Some(Entry::Uncacheable { until_ms, since }) if self.holds(until_ms, since, now_ms) => {
                Lookup::Unshared(uri)
            }
            Some(Entry::Uncacheable { .. }) => Lookup::Absent(uri),
        }
    }

    /// The stored response that a request selects, if the request's key may have other parts
    /// besides its URI.
    pub fn look_by_parts(&self, uri: Key, query: &Query<'_>) -> Lookup {
        let Query { look, parts, request, now_ms } = *query;
        if parts.is_none() {
            return self.look(look, uri, request, now_ms);
        }
        if self.handover.is_left() {
            return Lookup::Bypassed;
        }
        match self.entry(look, &uri) {
            Some(Entry::Varies(varies)) => self.look_for_variant(uri, &varies, query),
            // A response under the URI itself was stored when the key had no other parts.
            _ => self.absent(self.key_of_none(uri, parts, request), now_ms),
        }
    }

    /// The key of a request for whose URI nothing is stored.
    pub fn key_of_none(&self, uri: Key, parts: Option<KeyParts<'_>>, request: &Wire<'_>) -> Key {
        match parts {
            None => uri,
            Some(_) => self.collapse_key(uri, &[], parts, request),
        }
    }

    /// The result for a request that selects no stored response. Its key may have the mark that the
    /// last response could not be stored.
    pub(crate) fn absent(&self, key: Key, now_ms: u64) -> Lookup {
        match self.store.peek(&key) {
            Some(Entry::Uncacheable { until_ms, since }) if self.holds(until_ms, since, now_ms) => {
                Lookup::Unshared(key)
            }
            _ => Lookup::Absent(key),
        }
    }

    /// The entry under a key.
    #[inline]
    pub fn entry(&self, look: Look, key: &Key) -> Option<Entry> {
        match look {
            Look::Use => self.store.get(key),
            Look::Peek => self.store.peek(key),
        }
    }

    /// Whether a remembered uncacheable response still applies.
    pub fn holds(&self, until_ms: u64, since: u32, now_ms: u64) -> bool {
        now_ms < until_ms && since == self.purges.now() as u32
    }

    /// Invalidates the stored responses of a URI (RFC 9111, 4.4) and the fetches in flight for it.
    /// `own` comes from the request that made the change. `peers_know`: all peers have seen the
    /// change themselves. Await the result before the change is acknowledged.
    pub fn invalidate(
        &self,
        changed: StoredUri<'_>,
        own: Option<Own<'_>>,
        peers_know: bool,
    ) -> Made {
        let (key, watch) = own.map(|own| (own.key, own.watch)).unzip();
        let uri = key.unwrap_or_else(|| self.uri_key(changed));
        debug_assert_eq!(uri, self.uri_key(changed), "the key is that of the URI");
        let (rounds, url) = (self.handover.rounds(), changed.url());
        if !peers_know {
            // A request that finds nothing from here on must not get the old response of a peer.
            self.doubts.note(Concerns::Url(&url), time::wall_ms());
        }
        match watch.flatten() {
            Some(watch) => watch.change(),
            None => self.watches.change(&uri),
        }
        self.store.remove(&uri);
        let pending = self.disk().map(|disk| disk.delete(&uri));
        Cache::made(Notice::of_url(url), pending, rounds)
    }

    /// The key by which fetches of a range are collapsed: all fetches with an identical `Range`
    /// share it.
    pub fn range_key(&self, key: Key, range: &[u8]) -> Key {
        let mut builder = self.hasher.within(key);
        builder.raw(b"range");
        builder.part(range);
        builder.finish()
    }

    /// A boundary for a multipart body. It is unpredictable, so the content cannot contain it on
    /// purpose.
    pub fn boundary(&self, stored_ms: u64, now_ms: u64) -> String {
        let parts = [&b"boundary"[..], &stored_ms.to_le_bytes(), &now_ms.to_le_bytes()];
        format!("{:032x}", self.hasher.key(&parts).to_u128())
    }
}

impl Cache {
    /// The current figures, in the order of [`FIGURES`].
    pub fn figures(&self) -> impl Iterator<Item = (Described, u64)> {
        let store = self.store.counters();
        let values = [
            store.objects,
            store.bytes,
            store.bytes_max,
            store.evictions,
            self.arriving_bytes.load(Ordering::Relaxed),
            self.flights.count() as u64,
            self.purges.now() - self.purged_before,
            self.purges.records() as u64,
            self.purges.folded(),
            self.pressure.shrinks(),
        ];
        FIGURES.iter().copied().zip(values)
    }

    /// The hit ratio and byte hit ratio that other memory sizes would give, by size.
    pub fn forecasts(&self) -> [Vec<(&'static str, f64)>; 2] {
        let sizes = self.sizing.forecasts().sizes;
        let of = |ratio: fn(&Size) -> Option<f64>| {
            LABELS
                .into_iter()
                .zip(sizes.iter().map(|size| ratio(size).unwrap_or(f64::NAN)))
                .collect()
        };
        [of(|size| size.hit_ratio), of(|size| size.byte_hit_ratio)]
    }
}

/// Takes bytes from a limit, if that many are left. The sum never exceeds the limit, so no other
/// caller finds less than is left.
pub(crate) fn take(taken: &AtomicU64, bytes: u64, most: u64) -> bool {
    let more = |before: u64| before.checked_add(bytes).filter(|after| *after <= most);
    taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

/// The metrics of [`Cache::figures`], in order.
pub const FIGURES: &[Described] = &[
    Described::gauge("store_objects", "Entries in the store now"),
    Described::gauge("store_bytes", "Bytes accounted by the store now, including overhead"),
    Described::gauge("store_bytes_max", "The bound of the store's bytes"),
    Described::counter("store_evictions", "Entries evicted from the store"),
    Described::gauge("arriving_bytes", "Bytes of bodies that are arriving and will be stored"),
    Described::gauge(
        "fetches_in_flight",
        "Fetches in flight that requests for the same key may join",
    ),
    Described::counter("purges", "Purges"),
    Described::gauge("purge_records", "Records of purges that no sweep has dropped yet"),
    Described::counter(
        "purges_folded",
        "Times that too many purge records were folded into one that concerns everything",
    ),
    Described::counter("memory_shrinks", "Times that the store shrank because of memory pressure"),
];
