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
    /// this generation: a purge after that look does not concern the request.
    pub fn is_overtaken(&self, resource: &Resource, looked: Generation) -> bool {
        let began = resource.began();
        let may_be = began != looked && began != self.purges.now();
        may_be && self.purges.judge(resource.known(), began).0 != Verdict::Good
    }

    /// Advances the sweep, if a sweep is due and no other core is sweeping. The first pass frees
    /// memory. The records stay for the fetches that are in flight, so a second pass, which judges
    /// what these have stored, comes before the records are dropped.
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
            let first = Pass { at: Cursor::default(), is_last: false };
            let kept_until = now + PURGE_RECORDS_KEPT;
            let begun = self.purges.begin_sweep();
            *sweeping = begun.map(|sweep| Sweeping { sweep, kept_until, pass: Some(first) });
        }
        let Some(Sweeping { sweep, kept_until, pass }) = &mut *sweeping else { return };
        if pass.is_none() && (now >= *kept_until || self.purges.is_crowded()) {
            *pass = Some(Pass { at: Cursor::default(), is_last: true });
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
                None if *is_last => {
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
