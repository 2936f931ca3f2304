//! Doubts: URLs of which peers may still have a response that was purged or changed here.
//!
//! A peer knows nothing of a purge, and would give the old response back. So a request to a peer
//! for a URL in doubt has `Cache-Control: no-cache`, with which the peer asks the origin (RFC 9111,
//! 5.2.1.4). A doubt is a record of a second [`Purges`], which no sweep drops: what peers have
//! stored cannot be swept from here. It ends with the first stored response that was requested
//! after it, if there is one parent only: another parent may still have the old response.
//!
//! Memory is bounded: a table has as many records as [`Purges`] allows, and then one that concerns
//! everything. A record is kept for [`DOUBT_MIN`] to twice that. A purge by tag concerns every URL,
//! because the tags of the responses that peers have are unknown here.
//!
//! What never happens: a record is made while no peer is configured; a look-up costs more than one
//! load while there is no doubt.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use store::{Concerns, KeyHasher, Known, Purges};

use crate::limits::DOUBT_MIN;

/// The doubts of a process, which outlive a reload.
#[derive(Debug)]
pub struct Doubts {
    /// Peers are configured.
    on: AtomicBool,
    /// The number of records so far.
    count: AtomicU64,
    tables: RwLock<Tables>,
    hasher: KeyHasher,
}

#[derive(Debug)]
struct Tables {
    young: Arc<Table>,
    old: Arc<Table>,
}

/// Records that were made in one stretch of time.
#[derive(Debug)]
struct Table {
    records: Purges,
    since_ms: u64,
}

impl Table {
    fn new(hasher: &KeyHasher, since_ms: u64) -> Arc<Table> {
        Arc::new(Table { records: Purges::new(hasher.clone()), since_ms })
    }
}

impl Doubts {
    /// None.
    pub fn new(hasher: KeyHasher) -> Doubts {
        let table = Table::new(&hasher, 0);
        let tables = RwLock::new(Tables { young: Arc::clone(&table), old: table });
        Doubts { on: AtomicBool::new(false), count: AtomicU64::new(0), tables, hasher }
    }

    /// Makes records from now on, or no longer.
    pub fn enable(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    /// Something was purged or changed here.
    #[inline]
    pub fn note(&self, what: Concerns<'_>, now_ms: u64) {
        if self.on.load(Ordering::Relaxed) {
            self.record(what, now_ms);
        }
    }

    #[cold]
    fn record(&self, what: Concerns<'_>, now_ms: u64) {
        let mut tables = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        if now_ms.saturating_sub(tables.young.since_ms) >= MIN_MS {
            let young = Table::new(&self.hasher, now_ms);
            tables.old = std::mem::replace(&mut tables.young, young);
        }
        tables.young.records.purge(what, false, now_ms);
        self.count.fetch_add(1, Ordering::Release);
    }

    /// Whether there may be any.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.count.load(Ordering::Acquire) != 0
    }

    /// Whether peers may have an old response of this URL. `since` is when a stored response was
    /// requested, in unix milliseconds; 0 if there is none.
    pub fn hold(&self, url: &[u8], since_ms: u64, now_ms: u64) -> bool {
        if !self.is_any() {
            return false;
        }
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        let known = Known { url, tags: b"", more_tags: true };
        let mut found = false;
        for table in [&tables.young, &tables.old] {
            if now_ms.saturating_sub(table.since_ms) < 2 * MIN_MS {
                table.records.hits(known, 0, |hit| found |= hit.mark.at_ms >= since_ms);
            }
        }
        found
    }
}

const MIN_MS: u64 = DOUBT_MIN.as_millis() as u64;

#[cfg(test)]
mod tests {
    use super::*;

    fn doubts() -> Doubts {
        let doubts = Doubts::new(KeyHasher::seeded(1, 2));
        doubts.enable(true);
        doubts
    }

    #[test]
    fn a_doubt_ends_with_a_response_that_was_requested_after_it() {
        let doubts = doubts();
        assert!(!doubts.hold(b"h/a", 0, 100_000));
        doubts.note(Concerns::Url(b"h/a"), 100_000);
        assert!(doubts.hold(b"h/a", 0, 100_001) && doubts.hold(b"h/a", 100_000, 100_001));
        assert!(!doubts.hold(b"h/a", 100_001, 100_002) && !doubts.hold(b"h/b", 0, 100_002));
        doubts.note(Concerns::Prefix(b"h/"), 100_005);
        assert!(doubts.hold(b"h/a", 100_001, 100_006) && doubts.hold(b"h/b", 0, 100_006));
    }

    #[test]
    fn a_purge_by_tag_concerns_every_url() {
        let doubts = doubts();
        doubts.note(Concerns::Tag(b"t"), 100_000);
        assert!(doubts.hold(b"h/a", 0, 100_000) && !doubts.hold(b"h/a", 100_001, 100_002));
    }

    #[test]
    fn a_doubt_lasts_for_its_time_and_memory_is_bounded() {
        let doubts = doubts();
        let began = 10 * MIN_MS;
        doubts.note(Concerns::Url(b"h/a"), began);
        doubts.note(Concerns::Url(b"h/b"), began + MIN_MS);
        assert!(doubts.hold(b"h/a", 0, began + 2 * MIN_MS - 1), "in the older table");
        assert!(!doubts.hold(b"h/a", 0, began + 2 * MIN_MS));
        assert!(doubts.hold(b"h/b", 0, began + 2 * MIN_MS));
        assert!(!doubts.hold(b"h/b", 0, began + 3 * MIN_MS));
        for at in 0..=store::PURGE_RECORDS_MAX {
            doubts.note(Concerns::Url(format!("h/{at}").as_bytes()), began + MIN_MS);
        }
        assert!(doubts.hold(b"other/", 0, began + MIN_MS), "too many are folded into one");
    }

    #[test]
    fn without_peers_nothing_is_recorded() {
        let doubts = Doubts::new(KeyHasher::seeded(1, 2));
        doubts.note(Concerns::All, 5);
        assert!(!doubts.hold(b"h/a", 0, 5));
    }
}
