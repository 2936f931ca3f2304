//! Doubts: URLs of which peers may still have a response that was purged or changed here.
//!
//! A peer knows nothing of a purge, and would give the old response back. So a request to a peer
//! for a URL in doubt has `Cache-Control: no-cache`, with which the peer asks the origin (RFC 9111,
//! 5.2.1.4). Nothing but time ends a doubt: a response that came meanwhile may have come from the
//! origin, from another peer, or for another variant.
//!
//! Memory is bounded. A URL has a slot by its keyed hash, which holds the time of its newest doubt.
//! Two URLs can share one, and then one of them is in doubt without need. Prefixes are kept in a
//! list, and concern everything when that is full. A purge by tag concerns every URL, because the
//! tags of the responses that peers have are unknown here.
//!
//! What never happens: a doubt is noted while no peer is configured; a look-up costs more than one
//! load while there is no doubt; a request looks up a URL that changed a moment ago and finds
//! neither the old response nor the doubt.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::Duration;

use store::{Concerns, KeyHasher};

use crate::limits::{DOUBT_PREFIXES_MAX, DOUBT_SLOTS};

/// The doubts of a process, which outlive a reload. Times are in unix seconds.
#[derive(Debug)]
pub struct Doubts {
    /// How long one lasts; 0: no peers are configured.
    life_s: AtomicU64,
    any: AtomicBool,
    /// The newest doubt of everything.
    all_s: AtomicU32,
    /// The newest doubt of the URLs of each slot.
    urls: OnceLock<Box<[AtomicU32]>>,
    prefixes: RwLock<Vec<(Box<[u8]>, u32)>>,
    hasher: KeyHasher,
}

impl Doubts {
    /// None.
    pub fn new(hasher: KeyHasher) -> Doubts {
        Doubts {
            life_s: AtomicU64::new(0),
            any: AtomicBool::new(false),
            all_s: AtomicU32::new(0),
            urls: OnceLock::new(),
            prefixes: RwLock::default(),
            hasher,
        }
    }

    /// How long they last from now on. `None`: there are no peers, and none is noted.
    pub fn set_life(&self, life: Option<Duration>) {
        // The time of a doubt was rounded down.
        let life_s = life.map_or(0, |life| life.as_secs() + 1);
        self.life_s.store(life_s, Ordering::Relaxed);
    }

    /// Something was purged or changed here.
    #[inline]
    pub fn note(&self, what: Concerns<'_>, now_ms: u64) {
        if self.life_s.load(Ordering::Relaxed) != 0 {
            self.record(what, now_ms);
        }
    }

    #[cold]
    fn record(&self, what: Concerns<'_>, now_ms: u64) {
        let at = seconds(now_ms);
        let place = match what {
            Concerns::All | Concerns::Tag(_) => &self.all_s,
            Concerns::Url(url) => {
                let none = || (0..DOUBT_SLOTS).map(|_| AtomicU32::new(0)).collect();
                &self.urls.get_or_init(none)[self.slot(url)]
            }
            Concerns::Prefix(prefix) => {
                let mut prefixes = self.prefixes.write().unwrap_or_else(PoisonError::into_inner);
                prefixes.retain(|(other, since)| &**other != prefix && self.lasts(*since, now_ms));
                if prefixes.len() < DOUBT_PREFIXES_MAX {
                    prefixes.push((prefix.into(), at));
                    self.any.store(true, Ordering::Release);
                    return;
                }
                &self.all_s
            }
        };
        place.fetch_max(at, Ordering::Release);
        self.any.store(true, Ordering::Release);
    }

    /// Whether there may be any.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether peers may have an old response of this URL.
    pub fn hold(&self, url: &[u8], now_ms: u64) -> bool {
        if !self.is_any() {
            return false;
        }
        let slot = || self.urls.get().map(|urls| urls[self.slot(url)].load(Ordering::Acquire));
        self.lasts(self.all_s.load(Ordering::Acquire), now_ms)
            || slot().is_some_and(|since| self.lasts(since, now_ms))
            || {
                let prefixes = self.prefixes.read().unwrap_or_else(PoisonError::into_inner);
                let is_of = |(prefix, since): &(Box<[u8]>, u32)| {
                    url.starts_with(prefix) && self.lasts(*since, now_ms)
                };
                prefixes.iter().any(is_of)
            }
    }

    fn lasts(&self, since: u32, now_ms: u64) -> bool {
        let age_s = u64::from(seconds(now_ms).saturating_sub(since));
        since != 0 && age_s < self.life_s.load(Ordering::Relaxed)
    }

    fn slot(&self, url: &[u8]) -> usize {
        self.hasher.key(&[url]).to_u128() as usize % DOUBT_SLOTS
    }
}

fn seconds(ms: u64) -> u32 {
    u32::try_from(ms / 1000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::StoredUri;
    use crate::realm::Realm;
    use crate::stored::Entry;

    const LIFE_MS: u64 = 60_000;

    fn doubts() -> Doubts {
        let doubts = Doubts::new(KeyHasher::seeded(1, 2));
        doubts.set_life(Some(Duration::from_millis(LIFE_MS)));
        doubts
    }

    #[test]
    fn a_doubt_lasts_for_its_time() {
        let doubts = doubts();
        assert!(!doubts.hold(b"h/a", 100_000));
        doubts.note(Concerns::Url(b"h/a"), 100_900);
        doubts.note(Concerns::Prefix(b"i/"), 100_900);
        for url in [&b"h/a"[..], b"i/", b"i/a"] {
            assert!(doubts.hold(url, 100_900) && doubts.hold(url, 100_900 + LIFE_MS));
            assert!(!doubts.hold(url, 102_000 + LIFE_MS));
        }
        assert!(!doubts.hold(b"h/b", 100_900) && !doubts.hold(b"i", 100_900));
        doubts.note(Concerns::Url(b"h/a"), 50_000);
        assert!(doubts.hold(b"h/a", 100_900), "an older one does not end it");
    }

    #[test]
    fn a_purge_by_tag_concerns_every_url() {
        let doubts = doubts();
        doubts.note(Concerns::Tag(b"t"), 100_000);
        assert!(doubts.hold(b"h/a", 100_000) && !doubts.hold(b"h/a", 102_000 + LIFE_MS));
    }

    /// A client can make as many doubts as it sends requests.
    #[test]
    fn any_number_of_changed_urls_is_no_doubt_of_everything() {
        let doubts = doubts();
        for at in 0..=store::PURGE_RECORDS_MAX {
            doubts.note(Concerns::Url(format!("h/{at}").as_bytes()), 100_000);
        }
        assert!(doubts.hold(b"h/0", 100_000));
        let others = (0..1000).filter(|at| doubts.hold(format!("i/{at}").as_bytes(), 100_000));
        assert!(others.count() < 100, "one slot in sixteen is taken");
    }

    #[test]
    fn too_many_prefixes_concern_everything_and_old_ones_make_room() {
        let doubts = doubts();
        let fill = |at_ms| {
            for at in 0..DOUBT_PREFIXES_MAX {
                doubts.note(Concerns::Prefix(format!("h/{at}/").as_bytes()), at_ms);
            }
        };
        fill(100_000);
        fill(100_000);
        assert!(!doubts.hold(b"i/", 100_000));
        doubts.note(Concerns::Prefix(b"j/"), 102_000 + LIFE_MS);
        assert!(!doubts.hold(b"i/", 102_000 + LIFE_MS), "there was room");
        fill(102_000 + LIFE_MS);
        assert!(doubts.hold(b"i/", 102_000 + LIFE_MS));
    }

    #[test]
    fn without_peers_nothing_is_noted_and_what_was_noted_is_kept() {
        let doubts = Doubts::new(KeyHasher::seeded(1, 2));
        doubts.note(Concerns::All, 5000);
        doubts.set_life(Some(Duration::from_secs(60)));
        assert!(!doubts.hold(b"h/a", 5000));
        doubts.note(Concerns::Url(b"h/a"), 5000);
        doubts.set_life(None);
        doubts.set_life(Some(Duration::from_secs(60)));
        assert!(doubts.hold(b"h/a", 5000));
    }

    /// Otherwise a request in between would store the old response of a peer.
    #[test]
    fn a_changed_url_is_in_doubt_before_its_response_is_gone() {
        let config = config::Config::reverse(Vec::<config::Origin>::new(), &[]);
        let cache = crate::Cache::new(&config, 1, None);
        cache.doubts.set_life(Some(Duration::from_secs(3600)));
        let realm = Realm { role: config::Role::Forward, scheme: http1::Scheme::Http };
        let [begun, seen, missed] = [0; 3].map(AtomicU32::new);
        let until = |of: &AtomicU32, round| {
            while of.load(Ordering::Acquire) != round {
                std::thread::yield_now();
            }
        };
        let path = |round: u32| format!("/{round}").into_bytes();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=500 {
                    until(&begun, round);
                    let key = cache.uri_key(StoredUri::new(realm, b"h", &path(round)));
                    let url = [&b"h"[..], &path(round)].concat();
                    while cache.store.peek(&key).is_some() {}
                    let holds = cache.doubts.hold(&url, runtime::time::wall_ms());
                    missed.fetch_add(u32::from(!holds), Ordering::Relaxed);
                    seen.store(round, Ordering::Release);
                }
            });
            for round in 1..=500 {
                let key = cache.uri_key(StoredUri::new(realm, b"h", &path(round)));
                let entry = Entry::Uncacheable { until_ms: u64::MAX, since: 0 };
                cache.insert_now(key, entry);
                begun.store(round, Ordering::Release);
                let _ = cache.invalidate(StoredUri::new(realm, b"h", &path(round)), None, false);
                until(&seen, round);
            }
        });
        assert_eq!(missed.into_inner(), 0);
        let _ = cache.invalidate(StoredUri::new(realm, b"h", b"/0"), None, true);
        assert!(!cache.doubts.hold(b"h/0", runtime::time::wall_ms()), "all peers know");
    }
}
