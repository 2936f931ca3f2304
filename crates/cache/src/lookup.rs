//! Looking up, inserting and invalidating.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use config::limits::Limits;
use metrics::{Described, Shape};
use store::Key;

use crate::changes::{Made, Notice};
use crate::flight::Settled;
use crate::limits::CONFIRMED_WRITTEN_MIN;
use crate::partial::Partial;
use crate::pressure::store_bytes_left;
use crate::purge::{self};
use crate::realm::{Realm, normal_authority};
use crate::sizing::{LABELS, Size};
use crate::stored::{Entry, Head, Stored, Wire};
use crate::watch::Watch;
use crate::{Cache, Look, Lookup};

impl Cache {
    /// Makes room for bytes of a body that is on its way into the store; false if there is none.
    pub fn take_arriving(&self, bytes: u64) -> bool {
        let before = self.arriving_bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= self.arriving_bytes_max;
        if !fits {
            self.give_arriving(bytes);
        }
        fits
    }

    /// Gives it back.
    pub fn give_arriving(&self, bytes: u64) {
        self.arriving_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Looks at the memory of the process, when it is time.
    pub fn look_at_memory(&self, limits: &Limits) {
        self.pressure.look(runtime::time::wall_ms(), limits, |excess| {
            let counters = self.store.counters();
            let left = store_bytes_left(counters.bytes, counters.bytes_max, excess);
            self.store.shrink_to(left);
        });
    }

    /// The largest body that is stored.
    pub fn object_bytes_max(&self) -> u64 {
        self.memory_object_bytes_max.max(self.disk_body_bytes_max())
    }

    /// The largest body that memory takes.
    pub fn memory_object_bytes_max(&self) -> u64 {
        self.memory_object_bytes_max
    }

    /// A number for a set of names that responses vary by: nothing stored has it, nor did have.
    pub fn epoch(&self) -> u64 {
        match &self.disk {
            // Also while another process has it: none gives out the same.
            Some(disk) => disk.present().number(),
            None => self.epochs.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The key of a URI. The authority's case does not matter, nor does the port that is the
    /// scheme's own (RFC 9110, 4.2.3).
    #[inline]
    pub fn uri_key(&self, realm: Realm, authority: &[u8], path_and_query: &[u8]) -> Key {
        let mut builder = self.hasher.start();
        builder.raw(&[realm.byte()]);
        if !planted::is(planted::Bug::KeyWithoutHost) {
            builder.part(&normal_authority(realm, authority));
        }
        builder.part(path_and_query);
        builder.finish()
    }

    /// The stored response that a request selects. It counts as used.
    #[inline]
    pub fn look_up(&self, uri: Key, request: &Wire<'_>, now_ms: u64) -> Lookup {
        self.look(Look::Use, uri, request, now_ms)
    }

    /// The same, with a trace or without.
    #[inline]
    pub fn look(&self, look: Look, uri: Key, request: &Wire<'_>, now_ms: u64) -> Lookup {
        if self.handover.is_left() {
            return Lookup::Uncacheable;
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
            // A response with Vary is never put under the URI itself.
            Some(Entry::Response(_) | Entry::Part(_)) => Lookup::Absent(uri),
            Some(Entry::Varies(varies)) => {
                self.look_for_variant(look, uri, &varies, request, now_ms)
            }
            Some(Entry::Uncacheable { until_ms, since }) if self.holds(until_ms, since, now_ms) => {
                Lookup::Uncacheable
            }
            Some(Entry::Uncacheable { .. }) => Lookup::Absent(uri),
        }
    }

    /// What is stored under a key.
    #[inline]
    pub fn entry(&self, look: Look, key: &Key) -> Option<Entry> {
        match look {
            Look::Use => self.store.get(key),
            Look::Peek => self.store.peek(key),
        }
    }

    /// Whether what is remembered of an uncacheable response still counts.
    pub fn holds(&self, until_ms: u64, since: u32, now_ms: u64) -> bool {
        now_ms < until_ms && since == self.purges.now() as u32
    }

    /// Stores an entry, unless its URI has changed since it was asked for. One that is too large is
    /// not stored either, which costs hits and nothing else.
    pub fn insert(&self, watch: &Watch, key: Key, entry: Entry) {
        if let Entry::Response(stored) = &entry {
            if stored.away.as_ref().is_some_and(|away| away.key != key) {
                // Its body stays under the key that it has, where nobody will look for it.
                return;
            }
            self.sizing.brought(key, stored);
        }
        self.write_through(watch, key, &entry);
        self.insert_read(watch, key, entry);
    }

    /// The same for a response that the origin has confirmed: the disk has it, and is told of its
    /// new head only if that lives long enough to be worth the writing. Else it is asked for anew
    /// when it comes from there.
    pub fn insert_confirmed(&self, watch: &Watch, key: Key, entry: Entry) {
        let lives_long = entry.meta().is_some_and(|meta| {
            meta.freshness.lifetime_ms >= CONFIRMED_WRITTEN_MIN.as_millis() as u64
        });
        match self.disk() {
            Some(disk) if !lives_long && disk.contains(&key) => self.insert_read(watch, key, entry),
            _ => self.insert(watch, key, entry),
        }
    }

    /// The same for what is on the disk already.
    pub fn insert_read(&self, watch: &Watch, key: Key, entry: Entry) {
        let bytes = entry.accounted_bytes();
        match self.store.insert_if(key, |_| !watch.is_overtaken(), entry, bytes) {
            Ok(true) => {}
            Ok(false) => tracing::debug!("not stored: it has been changed meanwhile"),
            Err(refused) => tracing::debug!(%refused, "not stored"),
        }
    }

    /// Stores a response in place of this one, if it is still there.
    pub fn replace(&self, watch: &Watch, key: Key, old: &Arc<Stored>, new: Arc<Stored>) {
        let is_it = |entry: &Entry| entry.is(old) && !watch.is_overtaken();
        let entry = Entry::Response(new);
        let bytes = entry.accounted_bytes();
        match self.store.replace_if(key, is_it, entry.clone(), bytes) {
            Ok(true) => self.write_through(watch, key, &entry),
            Ok(false) => {}
            Err(refused) => tracing::debug!(%refused, "not stored"),
        }
    }

    /// What is stored for a URI holds no longer (RFC 9111, 4.4), nor what is being asked for it:
    /// `own` is the watch of the request that has changed it. What comes back is to be waited for
    /// before the change is told.
    pub fn invalidate(
        &self,
        (realm, authority, path): (Realm, &[u8], &[u8]),
        own: Option<&mut Watch>,
    ) -> Made {
        let (uri, rounds) = (self.uri_key(realm, authority, path), self.handover.rounds());
        match own {
            Some(watch) => watch.change(),
            None => self.under_way.change(&uri),
        }
        self.store.remove(&uri);
        let pending = self.disk().map(|disk| disk.delete(&uri));
        Cache::made(Notice::of_url(purge::url(realm, authority, path)), pending, rounds)
    }

    /// Stores a part: with those that are there already, if they may be combined. What is then
    /// whole is stored as a response.
    pub fn insert_part(&self, watch: &Watch, key: Key, new: Partial) -> Settled {
        let fits = |head: &Head, bytes: u64| {
            let (old, new_one) = (&head.meta.validators, &new.head.meta.validators);
            bytes == new.complete_bytes && caching::may_combine(old, new_one)
        };
        let there = match self.store.peek(&key) {
            Some(Entry::Response(old)) => self.judged(Look::Use, key, old).map(Entry::Response),
            Some(Entry::Part(old)) => self.judged_part(Look::Use, key, old).map(Entry::Part),
            _ => None,
        };
        let partial = match there {
            // All of it is there.
            Some(Entry::Response(old)) if fits(&old.head, old.body_bytes) => {
                return Settled::Stored(old);
            }
            Some(Entry::Part(old)) if fits(&old.head, old.complete_bytes) => old.with(&new),
            _ => new,
        };
        if let Some(stored) = partial.whole() {
            let stored = Arc::new(stored);
            self.insert(watch, key, Entry::Response(Arc::clone(&stored)));
            return Settled::Stored(stored);
        }
        let partial = Arc::new(partial);
        self.insert(watch, key, Entry::Part(Arc::clone(&partial)));
        Settled::Part(partial)
    }

    /// The key by which fetches of a range are collapsed: those that ask for the same in the same
    /// words.
    pub fn range_key(&self, key: Key, range: &[u8]) -> Key {
        let mut builder = self.hasher.within(key);
        builder.raw(b"range");
        builder.part(range);
        builder.finish()
    }

    /// A boundary for a multipart body that nobody can have put into the content beforehand.
    pub fn boundary(&self, stored_ms: u64, now_ms: u64) -> String {
        let parts = [&b"boundary"[..], &stored_ms.to_le_bytes(), &now_ms.to_le_bytes()];
        format!("{:032x}", self.hasher.key(&parts).to_u128())
    }

    /// Remembers for a while that the response of this key could not be stored.
    pub fn remember_uncacheable(&self, watch: &Watch, key: Key, now_ms: u64, memory: Duration) {
        let until_ms = now_ms + memory.as_millis() as u64;
        self.insert(watch, key, Entry::Uncacheable { until_ms, since: self.purges.now() as u32 });
    }
}

impl Cache {
    /// What it has and does now, in the order of [`FIGURES`].
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

    /// Hits and bytes of hits that other sizes of the memory would give, by size.
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

/// What [`Cache::figures`] returns, in its order.
pub const FIGURES: &[Described] = &[
    Described { name: "store_objects", help: "Entries in the store now", shape: Shape::Gauge },
    Described {
        name: "store_bytes",
        help: "Bytes that the store accounts for now, overhead included",
        shape: Shape::Gauge,
    },
    Described {
        name: "store_bytes_max",
        help: "The bound of the store's bytes",
        shape: Shape::Gauge,
    },
    Described {
        name: "store_evictions",
        help: "Entries that left the store to make room",
        shape: Shape::Counter,
    },
    Described {
        name: "arriving_bytes",
        help: "Bytes of bodies that are on their way into the store",
        shape: Shape::Gauge,
    },
    Described {
        name: "fetches_under_way",
        help: "Fetches under way that requests for the same key wait for",
        shape: Shape::Gauge,
    },
    Described { name: "purges", help: "Purges carried out", shape: Shape::Counter },
    Described {
        name: "purge_records",
        help: "Records of purges that a sweep has not let go of yet",
        shape: Shape::Gauge,
    },
    Described {
        name: "purges_folded",
        help: "Times that purges came too fast and were folded into one of everything",
        shape: Shape::Counter,
    },
    Described {
        name: "memory_shrinks",
        help: "Times that the store has let go of objects because of memory pressure",
        shape: Shape::Counter,
    },
];
