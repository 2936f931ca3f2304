//! What all cores share as long as the process lives: the store, the fetches under way, the log.
//!
//! The store and the table of fetches are sharded behind short locks; nothing is done under one
//! but to look up, insert or copy a pointer.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use store::disk::DiskStore;
use store::{Generation, Key, KeyHasher, Purges, Store};

use crate::access_log::{Queue, Sink};
use crate::changes::{Made, Notice};
use crate::config::Config;
use crate::control::Control;
use crate::disk::Disk;
use crate::exchange::way::Look;
use crate::flight::{Flights, Settled};
use crate::forward::{Known, OwnAddresses};
use crate::handover::Handover;
use crate::hop;
use crate::limits::{CONFIRMED_WRITTEN_MIN, Limits};
use crate::metrics::{Described, Shape, SharedFigures};
use crate::partial::Partial;
use crate::pressure::{Pressure, store_bytes_left};
use crate::purge::{self, Sweeping};
use crate::refusal::{COUNTED, Refusal};
use crate::resolve::Resolver;
use crate::site::Realm;
use crate::sizing::{LABELS, Sizing};
use crate::stored::{Entry, Head, Stored, Wire};
use crate::underway::{UnderWay, Watch};
use crate::upstream::group::Registry;

/// Shared by all cores of one server.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Store<Entry>,
    pub(crate) purges: Arc<Purges>,
    /// What is stored beyond the memory.
    pub(crate) disk: Option<Disk>,
    /// Another process that takes our place.
    pub(crate) handover: Handover,
    pub(crate) sweeping: Sweeping,
    pub(crate) sizing: Sizing,
    pub(crate) flights: Arc<Flights>,
    /// What is asked for, so that a change reaches it.
    pub(crate) under_way: Arc<UnderWay>,
    pub(crate) log: Sink,
    pub(crate) pressure: Pressure,
    /// What we call ourselves to upstreams; nobody else has the same.
    pub(crate) pseudonym: String,
    /// Where we listen ourselves.
    pub(crate) own: OwnAddresses,
    /// Passwords that were found right.
    pub(crate) passwords: Known,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) upstreams: Registry,
    pub(crate) control: Control,
    pub(crate) hasher: KeyHasher,
    /// Numbers of sets of names that responses vary by.
    pub(crate) epochs: AtomicU64,
    memory_object_bytes_max: u64,
    /// Purges before this process.
    purged_before: Generation,
    refusals: [AtomicU64; COUNTED.len()],
    arriving_bytes: AtomicU64,
    arriving_bytes_max: u64,
}

/// What the store says about a request.
pub(crate) enum Lookup {
    /// A response that this request selects.
    Found(Arc<Stored>, Key),
    /// Parts of one.
    Part(Arc<Partial>, Key),
    /// None; one that arrives is stored under this key, and fetches are collapsed by it.
    Absent(Key),
    /// The last one could not be stored: go straight to the origin.
    Uncacheable,
}

impl Shared {
    /// Keys and purges are those of the disk, if there is one: they outlive the process.
    pub(crate) fn new(
        config: &Config,
        workers: usize,
        log: Sink,
        disk: Option<DiskStore>,
    ) -> Shared {
        let hasher = match (&disk, config.hash_seed) {
            (Some(disk), _) => disk.hasher().clone(),
            (None, Some([a, b])) => KeyHasher::seeded(a, b),
            (None, None) => KeyHasher::random(),
        };
        let purges = match &disk {
            Some(disk) => Arc::clone(disk.purges()),
            None => Arc::new(Purges::new(hasher.clone())),
        };
        let purged_before = purges.now();
        let mut options = store::Options::for_workers(workers, config.memory_bytes);
        options.hasher = hasher.clone();
        let store = Store::new(options);
        let share = config.memory_bytes / config.limits.object_share.max(1) as u64;
        let memory_object_bytes_max = share.min(store.object_bytes_max());
        let arriving_bytes_max = config.memory_bytes / config.limits.arriving_share.max(1) as u64;
        Shared {
            store,
            purges,
            disk: disk.map(|disk| Disk::new(disk, workers)),
            handover: Handover::default(),
            sweeping: Sweeping::default(),
            sizing: Sizing::new(config.memory_bytes),
            flights: Flights::new(),
            under_way: Arc::default(),
            log,
            own: OwnAddresses::default(),
            passwords: Known::new(),
            pressure: Pressure::new(),
            pseudonym: hop::pseudonym(&hasher),
            upstreams: Registry::default(),
            resolver: Resolver::new(&config.name_servers),
            control: Control::default(),
            hasher,
            epochs: AtomicU64::new(1),
            memory_object_bytes_max,
            purged_before,
            refusals: [const { AtomicU64::new(0) }; COUNTED.len()],
            arriving_bytes: AtomicU64::new(0),
            arriving_bytes_max,
        }
    }

    /// Makes room for bytes of a body that is on its way into the store; false if there is none.
    pub(crate) fn take_arriving(&self, bytes: u64) -> bool {
        let before = self.arriving_bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= self.arriving_bytes_max;
        if !fits {
            self.give_arriving(bytes);
        }
        fits
    }

    /// Gives it back.
    pub(crate) fn give_arriving(&self, bytes: u64) {
        self.arriving_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Looks at the memory of the process, when it is time.
    pub(crate) fn look_at_memory(&self, limits: &Limits) {
        self.pressure.look(runtime::time::wall_ms(), limits, |excess| {
            let counters = self.store.counters();
            let left = store_bytes_left(counters.bytes, counters.bytes_max, excess);
            self.store.shrink_to(left);
        });
    }

    /// Counts a refusal by its rule.
    pub(crate) fn count_refusal(&self, refusal: Refusal) {
        self.refusals[refusal.place()].fetch_add(1, Ordering::Relaxed);
    }

    /// The largest body that is stored.
    pub(crate) fn object_bytes_max(&self) -> u64 {
        self.memory_object_bytes_max.max(self.disk_body_bytes_max())
    }

    /// The largest body that memory takes.
    pub(crate) fn memory_object_bytes_max(&self) -> u64 {
        self.memory_object_bytes_max
    }

    /// A number for a set of names that responses vary by: nothing stored has it, nor did have.
    pub(crate) fn epoch(&self) -> u64 {
        match &self.disk {
            // Also while another process has it: none gives out the same.
            Some(disk) => disk.present().number(),
            None => self.epochs.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The key of a URI. The authority's case does not matter, nor does the port that is the
    /// scheme's own (RFC 9110, 4.2.3).
    #[inline]
    pub(crate) fn uri_key(&self, realm: Realm, authority: &[u8], path_and_query: &[u8]) -> Key {
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
    pub(crate) fn look_up(&self, uri: Key, request: &Wire<'_>, now_ms: u64) -> Lookup {
        self.look(Look::Use, uri, request, now_ms)
    }

    /// The same, with a trace or without.
    #[inline]
    pub(crate) fn look(&self, look: Look, uri: Key, request: &Wire<'_>, now_ms: u64) -> Lookup {
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

    #[inline]
    pub(crate) fn entry(&self, look: Look, key: &Key) -> Option<Entry> {
        match look {
            Look::Use => self.store.get(key),
            Look::Peek => self.store.peek(key),
        }
    }

    /// Whether what is remembered of an uncacheable response still counts.
    pub(crate) fn holds(&self, until_ms: u64, since: u32, now_ms: u64) -> bool {
        now_ms < until_ms && since == self.purges.now() as u32
    }

    /// Stores an entry, unless its URI has changed since it was asked for. One that is too large is
    /// not stored either, which costs hits and nothing else.
    pub(crate) fn insert(&self, watch: &Watch, key: Key, entry: Entry) {
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
    pub(crate) fn insert_confirmed(&self, watch: &Watch, key: Key, entry: Entry) {
        let lives_long = entry.meta().is_some_and(|meta| {
            meta.freshness.lifetime_ms >= CONFIRMED_WRITTEN_MIN.as_millis() as u64
        });
        match self.disk() {
            Some(disk) if !lives_long && disk.contains(&key) => self.insert_read(watch, key, entry),
            _ => self.insert(watch, key, entry),
        }
    }

    /// The same for what is on the disk already.
    pub(crate) fn insert_read(&self, watch: &Watch, key: Key, entry: Entry) {
        let bytes = entry.accounted_bytes();
        match self.store.insert_if(key, |_| !watch.is_overtaken(), entry, bytes) {
            Ok(true) => {}
            Ok(false) => tracing::debug!("not stored: it has been changed meanwhile"),
            Err(refused) => tracing::debug!(%refused, "not stored"),
        }
    }

    /// Stores a response in place of this one, if it is still there.
    pub(crate) fn replace(&self, watch: &Watch, key: Key, old: &Arc<Stored>, new: Arc<Stored>) {
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
    pub(crate) fn invalidate(
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
        Shared::made(Notice::of_url(purge::url(realm, authority, path)), pending, rounds)
    }

    /// Stores a part: with those that are there already, if they may be combined. What is then
    /// whole is stored as a response.
    pub(crate) fn insert_part(&self, watch: &Watch, key: Key, new: Partial) -> Settled {
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
    pub(crate) fn range_key(&self, key: Key, range: &[u8]) -> Key {
        let mut builder = self.hasher.within(key);
        builder.raw(b"range");
        builder.part(range);
        builder.finish()
    }

    /// A boundary for a multipart body that nobody can have put into the content beforehand.
    pub(crate) fn boundary(&self, stored_ms: u64, now_ms: u64) -> String {
        let parts = [&b"boundary"[..], &stored_ms.to_le_bytes(), &now_ms.to_le_bytes()];
        format!("{:032x}", self.hasher.key(&parts).to_u128())
    }

    /// Remembers for a while that the response of this key could not be stored.
    pub(crate) fn remember_uncacheable(
        &self,
        watch: &Watch,
        key: Key,
        now_ms: u64,
        memory: Duration,
    ) {
        let until_ms = now_ms + memory.as_millis() as u64;
        self.insert(watch, key, Entry::Uncacheable { until_ms, since: self.purges.now() as u32 });
    }
}

/// An authority as keys and purges have it.
#[inline]
pub(crate) fn normal_authority(realm: Realm, authority: &[u8]) -> Cow<'_, [u8]> {
    let authority = realm.without_port(authority);
    if authority.iter().any(u8::is_ascii_uppercase) {
        Cow::Owned(authority.to_ascii_lowercase())
    } else {
        Cow::Borrowed(authority)
    }
}

impl SharedFigures for Shared {
    fn figures(&self) -> Vec<(Described, u64)> {
        let store = self.store.counters();
        let lost = match &self.log {
            Sink::Thread(queue) => Queue::lines_lost(queue),
            Sink::Off | Sink::Memory(_) => 0,
        };
        let values = [
            store.objects,
            store.bytes,
            store.bytes_max,
            store.evictions,
            self.arriving_bytes.load(Ordering::Relaxed),
            self.flights.len() as u64,
            self.purges.now() - self.purged_before,
            self.purges.records() as u64,
            self.purges.folded(),
            self.pressure.shrinks(),
            lost,
        ];
        let figures = SHARED_FIGURES.iter().copied().zip(values);
        figures.chain(self.control.figures()).chain(self.disk_figures()).collect()
    }

    fn forecasts(&self) -> [Vec<(&'static str, f64)>; 2] {
        let sizes = self.sizing.tell().sizes;
        let of = |ratio: fn(&crate::sizing::Size) -> Option<f64>| {
            LABELS
                .into_iter()
                .zip(sizes.iter().map(|size| ratio(size).unwrap_or(f64::NAN)))
                .collect()
        };
        [of(|size| size.hit_ratio), of(|size| size.byte_hit_ratio)]
    }

    fn refusals(&self) -> Vec<(&'static str, u64)> {
        let counts = self.refusals.iter().map(|count| count.load(Ordering::Relaxed));
        COUNTED.iter().copied().zip(counts).collect()
    }
}

/// What [`Shared::figures`] tells, in its order.
pub(crate) const SHARED_FIGURES: &[Described] = &[
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
    Described {
        name: "log_lines_lost",
        help: "Access log lines lost because the log could not keep up or failed",
        shape: Shape::Counter,
    },
];
