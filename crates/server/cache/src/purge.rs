//! Purging: the data by which purges match a response, the effect of a purge on a stored response,
//! and the sweep.
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
use std::sync::{Arc, Mutex, TryLockError};

use serde::{Deserialize, Serialize};
use store::{Concerns, Cursor, Generation, Key, Known, Mark, Sweep, Verdict};

use crate::Cache;
use crate::Look;
use crate::changes::{Made, Notice};
use crate::key::StoredUri;
use crate::limits::{PURGE_SWEEP_SLOTS_PER_LOCK, PURGE_SWEEP_SLOTS_PER_TICK, TAGS_MAX};
use crate::partial::Partial;
use crate::stored::{Entry, Stored};

/// The data by which purges match a response.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resource {
    /// Authority as in keys, then path and query.
    url: Box<[u8]>,
    /// Its tags, separated by single spaces.
    tags: Tags,
    /// The purge generation at which its fetch began.
    began: Generation,
}

impl Resource {
    /// For a response with these fields to a request that began at `began`.
    pub fn new<'f>(
        uri: StoredUri<'_>,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        began: Generation,
    ) -> Resource {
        let tags = tags(fields).unwrap_or_default();
        Resource { url: uri.url().into(), tags, began }
    }

    /// After an update by a request that began at `began`, which may name other tags.
    pub fn updated<'f>(
        &self,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        began: Generation,
    ) -> Resource {
        let tags = tags(fields).unwrap_or_else(|| self.tags.clone());
        Resource { url: self.url.clone(), tags, began }
    }

    /// This resource with unknown tags: every purge by tag removes the response.
    pub fn with_unknown_tags(mut self) -> Resource {
        self.tags.more = true;
        self
    }

    /// The purge generation at which its fetch began.
    pub fn began(&self) -> Generation {
        self.began
    }

    /// The data that purge records are compared with.
    pub fn known(&self) -> Known<'_> {
        Known { url: &self.url, tags: &self.tags.kept, more_tags: self.tags.more }
    }

    /// Its size in bytes.
    pub fn bytes_held(&self) -> usize {
        self.url.len() + self.tags.kept.len()
    }
}

/// Whether this field carries tags.
pub fn is_tag_field(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"surrogate-key") || name.eq_ignore_ascii_case(b"cache-tag")
}

/// The tags of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Tags {
    /// Separated by single spaces.
    kept: Box<[u8]>,
    /// There are further tags: more than [`TAGS_MAX`], or unknown tags.
    more: bool,
}

/// The tags in some fields, or `None` if no field carries any.
fn tags<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Option<Tags> {
    let mut found: Option<Vec<&[u8]>> = None;
    for (_, value) in fields.filter(|(name, _)| is_tag_field(name)) {
        found.get_or_insert_default().extend(split_tags(value));
    }
    let mut found = found?;
    found.sort_unstable();
    found.dedup();
    let more = found.len() > TAGS_MAX;
    found.truncate(TAGS_MAX);
    Some(Tags { kept: found.join(&b' ').into(), more })
}

/// Spaces separate tags in `Surrogate-Key`, commas in `Cache-Tag`; both fields may use both
/// separators.
fn split_tags(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| matches!(byte, b' ' | b'\t' | b',')).filter(|tag| !tag.is_empty())
}

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

    /// Whether a response that arrives must not serve newer requests. Soft purges apply at look-up
    /// instead.
    pub fn is_overtaken(&self, resource: &Resource) -> bool {
        let began = resource.began();
        began != self.purges.now() && self.purges.judge(resource.known(), began).0 != Verdict::Good
    }

    /// Advances the sweep, if a sweep is due and no other core is sweeping.
    pub fn sweep_purged(&self) {
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
            *sweeping = self.purges.begin_sweep().map(|sweep| (sweep, Cursor::default()));
        }
        let Some((sweep, at)) = &mut *sweeping else { return };
        let mut found = Vec::with_capacity(PURGE_SWEEP_SLOTS_PER_LOCK);
        for _ in 0..PURGE_SWEEP_SLOTS_PER_TICK / PURGE_SWEEP_SLOTS_PER_LOCK {
            let now = self.purges.now();
            let next = self.store.visit(*at, PURGE_SWEEP_SLOTS_PER_LOCK, |key, entry| {
                let Some((checked, _)) = entry.purge_state() else { return };
                if checked.load(Ordering::Relaxed) != now {
                    found.push((key, entry.clone()));
                }
            });
            for (key, entry) in found.drain(..) {
                drop(self.judge(Look::Use, key, entry));
            }
            match next {
                Some(next) => *at = next,
                None => {
                    self.purges.end_sweep(*sweep);
                    *sweeping = None;
                    return;
                }
            }
        }
    }
}

/// The sweep in progress.
pub type Sweeping = Mutex<Option<(Sweep, Cursor)>>;

#[cfg(test)]
mod tests {
    use super::*;

    fn tags_of(fields: &[(&str, &str)]) -> Option<String> {
        let fields = fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
        tags(fields).map(|tags| String::from_utf8(tags.kept.to_vec()).unwrap())
    }

    #[test]
    fn tags_are_read_from_both_fields_without_duplicates() {
        assert_eq!(tags_of(&[("Date", "x")]), None);
        assert_eq!(tags_of(&[("Surrogate-Key", "")]).as_deref(), Some(""));
        let both = [("surrogate-key", "b a  b"), ("Cache-Tag", "c,a, d e ,,")];
        assert_eq!(tags_of(&both).as_deref(), Some("a b c d e"));
        assert_eq!(tags_of(&[("Surrogate-Key", "a,b c")]).as_deref(), Some("a b c"));
        let many: Vec<String> = (0..=TAGS_MAX).map(|n| format!("t{n}")).collect();
        let many = many.join(" ");
        let found = tags([(&b"Surrogate-Key"[..], many.as_bytes())].into_iter()).unwrap();
        assert!(found.more && found.kept.len() < many.len());
    }
}
