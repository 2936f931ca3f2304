//! Purging: the effect of a purge on a stored response, and the sweep.
//!
//! [`store::Purges`] has the records, and explains why the cost of a purge does not depend on the
//! number of stored responses. A response is compared with the records at look-up (one comparison,
//! unless a purge came since the last comparison), when the response is stored, when a request
//! joins a fetch in flight, and in the sweep that drops records and the responses that they
//! concern.
//!
//! What never happens: a response whose fetch began before a purge that concerns it is served to a
//! request that came after the purge; a softly purged response is served as fresh.

use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError};

use runtime::time::Instant;
use store::{Concerns, Cursor, Generation, Key, Mark, Sweep, Verdict};

use crate::changes::{Made, Notice};
use crate::limits::{PURGE_RECORDS_KEPT, PURGE_SWEEP_SLOTS_PER_LOCK, PURGE_SWEEP_SLOTS_PER_TICK};
use crate::partial::Partial;
use crate::stored::{Entry, Resource, Stored};
use crate::{Cache, Look};

impl Cache {
    /// Purges: the responses that the purge concerns are not served from now on. O(1) in the number
    /// of stored responses. Await the returned [`Made`] before acknowledging the purge.
    pub fn purge(&self, what: Concerns<'_>, soft: bool, now_ms: u64) -> (Mark, Made) {
        let rounds = self.handover.rounds();
        self.doubts.note(what, now_ms);
        let (mark, pending) = match self.disk() {
            Some(disk) => {
                let (mark, pending) = disk.purge(what, soft, now_ms);
                (mark, Some(pending))
            }
            None => (self.purges.purge(what, soft, now_ms), None),
        };
        if what == Concerns::All && !soft {
            self.store.clear();
        }
        (mark, Cache::made(Notice::of(what, soft), pending, rounds))
    }

    /// A response found in the store, unless it was purged. Usually one comparison.
    #[inline]
    pub fn judged(&self, look: Look, key: Key, stored: Arc<Stored>) -> Option<Arc<Stored>> {
        if stored.checked.load(Ordering::Relaxed) == self.purges.now() {
            return Some(stored);
        }
        match self.judge(look, key, Entry::Response(stored))? {
            Entry::Response(stored) => Some(stored),
            _ => None,
        }
    }

    /// Parts found in the store, unless they were purged.
    pub fn judged_part(&self, look: Look, key: Key, partial: Arc<Partial>) -> Option<Arc<Partial>> {
        if partial.checked.load(Ordering::Relaxed) == self.purges.now() {
            return Some(partial);
        }
        match self.judge(look, key, Entry::Part(partial))? {
            Entry::Part(partial) => Some(partial),
            _ => None,
        }
    }

    /// Compares an entry with the purges since the last comparison: the entry stays, becomes stale,
    /// or is removed. `Look::Peek` changes nothing in the store.
    #[cold]
    fn judge(&self, look: Look, key: Key, entry: Entry) -> Option<Entry> {
        let (checked, resource) = entry.purge_state()?;
        let since = checked.load(Ordering::Relaxed);
        match self.purges.judge(resource.known(), since) {
            (Verdict::Good, now) => {
                if look == Look::Use {
                    checked.fetch_max(now, Ordering::Relaxed);
                }
                Some(entry)
            }
            (Verdict::Stale(mark), now) => {
                let stale = entry.stale_from(mark, now);
                if look == Look::Use {
                    let is_same = |there: &Entry| there.is_same(&entry);
                    let bytes = stale.accounted_bytes();
                    if let Err(refused) = self.store.replace_if(key, is_same, stale.clone(), bytes)
                    {
                        tracing::debug!(%refused, "not stored");
                    }
                }
                Some(stale)
            }
            (Verdict::Gone, _) => {
                if look == Look::Use {
                    self.store.remove_if(&key, |there| there.is_same(&entry));
                    if matches!(entry, Entry::Response(_))
                        && let Some(disk) = self.disk()
                    {
                        self.delete_on_disk(&disk, &key);
                    }
                }
                None
            }
        }
    }

    /// Whether purges since the last comparison concern an entry: `None` if they do not, and then
    /// whether it is gone, or only stale. With `Look::Use` it is removed, or made stale, now.
    pub(crate) fn purged(&self, look: Look, key: Key, entry: &Entry) -> Option<bool> {
        let (checked, _) = entry.purge_state()?;
        if checked.load(Ordering::Relaxed) == self.purges.now() {
            return None;
        }
        match self.judge(look, key, entry.clone()) {
            None => Some(true),
            Some(now) => (!now.is_same(entry)).then_some(false),
        }
    }

    /// Whether a response that arrives must not serve a request that last looked into the store at
    /// this generation. If no purge came between the start of the fetch and the look, no later
    /// purge concerns the request. Otherwise it is not known which purge was the first.
    pub fn is_overtaken(&self, resource: &Resource, looked: Generation) -> bool {
        let began = resource.began();
        let may_be = began != looked && began != self.purges.now();
        may_be && self.purges.judge(resource.known(), began).0 != Verdict::Good
    }

    /// Advances the sweep, if a sweep is due and no other core is sweeping. A pass frees memory,
    /// and is repeated if a purge came since. The records stay for the fetches that are in flight.
    /// Before the records are dropped, a last pass judges what these fetches have stored.
    pub fn sweep_purged(&self, now: Instant) {
        let mut sweeping = match self.sweeping.try_lock() {
            Ok(sweeping) => sweeping,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if sweeping.is_none() {
            // The disk is not swept, so its records of purges must stay.
            if self.disk.is_some() || !self.purges.wants_sweep() {
                return;
            }
            let kept_until = now + PURGE_RECORDS_KEPT;
            let begun = self.purges.begin_sweep();
            *sweeping = begun.map(|sweep| Sweeping { sweep, kept_until, passed: 0, pass: None });
        }
        let Some(Sweeping { sweep, kept_until, passed, pass }) = &mut *sweeping else { return };
        let is_due = now >= *kept_until;
        if pass.is_none() && (is_due || *passed != self.purges.now()) {
            *passed = self.purges.now();
            *pass = Some(Pass { at: Cursor::default(), is_last: is_due });
        }
        let Some(Pass { at, is_last }) = pass else { return };
        let mut found = Vec::with_capacity(PURGE_SWEEP_SLOTS_PER_LOCK);
        for _ in 0..PURGE_SWEEP_SLOTS_PER_TICK / PURGE_SWEEP_SLOTS_PER_LOCK {
            let latest = self.purges.now();
            let next = self.store.visit(*at, PURGE_SWEEP_SLOTS_PER_LOCK, |key, entry| {
                let Some((checked, _)) = entry.purge_state() else { return };
                if checked.load(Ordering::Relaxed) != latest {
                    found.push((key, entry.clone()));
                }
            });
            for (key, entry) in found.drain(..) {
                drop(self.judge(Look::Use, key, entry));
            }
            match next {
                Some(next) => *at = next,
                // Each pass has judged all that was stored when the sweep began.
                None if *is_last || self.purges.is_crowded() => {
                    self.purges.end_sweep(*sweep);
                    *sweeping = None;
                    return;
                }
                None => {
                    *pass = None;
                    return;
                }
            }
        }
    }
}

/// The sweep in progress.
#[derive(Debug)]
pub(crate) struct Sweeping {
    sweep: Sweep,
    /// When the records may be dropped.
    kept_until: Instant,
    /// The generation at which the last pass began. There is none before the first.
    passed: Generation,
    /// `None`: the records wait to be dropped.
    pass: Option<Pass>,
}

/// A pass over the slots of the store.
#[derive(Debug)]
struct Pass {
    at: Cursor,
    /// The records are dropped after it.
    is_last: bool,
}

#[cfg(test)]
mod tests {
    use store::PURGE_RECORDS_MAX;

    use super::*;
    use crate::samples::{cache, response, uri};

    const BEGINNING: Instant = Instant::from_ns(0);

    /// Stores a response whose fetch began at this generation.
    fn store(cache: &Cache, key: Key, began: Generation) {
        // Some purges concern the response already, so the cache is not asked for its consent.
        cache.insert_now(key, response(200, began));
    }

    fn finds(cache: &Cache, key: Key) -> bool {
        match cache.store.peek(&key) {
            Some(Entry::Response(stored)) => cache.judged(Look::Use, key, stored).is_some(),
            _ => false,
        }
    }

    #[test]
    fn a_pass_frees_what_was_purged_and_comes_again_after_another_purge() {
        let (cache, key) = cache();
        for at in 0..3 {
            store(&cache, key, at);
            cache.purges.purge(Concerns::Url(&uri().url()), false, 0);
            cache.sweep_purged(BEGINNING);
            assert!(cache.store.peek(&key).is_none(), "freed");
            assert_ne!(cache.purges.records(), 0, "kept for the fetches in flight");
        }
        cache.sweep_purged(BEGINNING + PURGE_RECORDS_KEPT);
        cache.sweep_purged(BEGINNING + PURGE_RECORDS_KEPT * 2);
        cache.sweep_purged(BEGINNING + PURGE_RECORDS_KEPT * 3);
        assert_eq!(cache.purges.records(), 0, "dropped");
    }

    #[test]
    fn the_last_pass_keeps_what_slow_fetches_have_stored() {
        let (cache, key) = cache();
        let began = cache.purges.now();
        cache.purges.purge(Concerns::Url(b"h/other"), false, 0);
        cache.sweep_purged(BEGINNING);
        store(&cache, key, began);
        cache.sweep_purged(BEGINNING + PURGE_RECORDS_KEPT);
        assert_eq!(cache.purges.records(), 0, "dropped");
        assert!(finds(&cache, key));
    }

    #[test]
    fn a_fetch_that_outlasts_the_records_loses_its_response() {
        let (cache, key) = cache();
        let began = cache.purges.now();
        cache.purges.purge(Concerns::Url(b"h/other"), false, 0);
        cache.sweep_purged(BEGINNING);
        cache.sweep_purged(BEGINNING + PURGE_RECORDS_KEPT);
        store(&cache, key, began);
        assert!(!finds(&cache, key), "nothing says what the purge concerned");
    }

    #[test]
    fn many_records_do_not_wait() {
        let (cache, _) = cache();
        cache.purges.purge(Concerns::Url(b"h/first"), false, 0);
        cache.sweep_purged(BEGINNING);
        for at in 0..=PURGE_RECORDS_MAX / 4 {
            cache.purges.purge(Concerns::Url(format!("h/{at}").as_bytes()), false, 0);
        }
        cache.sweep_purged(BEGINNING);
        assert_eq!(cache.purges.records(), PURGE_RECORDS_MAX / 4 + 1, "the first is dropped");
        assert_eq!(cache.purges.folded(), 0);
    }
}
