//! Purging: what a response is known by, what a purge means for one that is stored, the sweep, and
//! the `PURGE` method.
//!
//! [`store::Purges`] keeps the records; see there why a purge costs the same however much is
//! stored. Here a response meets them: at look-up (one comparison, unless a purge came since it was
//! last judged), when it is stored, when a request joins a fetch under way, and in the sweep that
//! lets go of records and of what they took.
//!
//! What never happens: a response whose fetch began before a purge that concerns it is served to a
//! request that came after that purge; a softly purged one is served as fresh.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, TryLockError};

use serde::{Deserialize, Serialize};
use store::{Concerns, Cursor, Generation, Key, Known, Mark, Sweep, Verdict};

use crate::Cache;
use crate::Look;
use crate::changes::{Made, Notice};
use crate::limits::{PURGE_SWEEP_SLOTS_PER_LOCK, PURGE_SWEEP_SLOTS_PER_TICK, TAGS_MAX};
use crate::partial::Partial;
use crate::realm::Realm;
use crate::realm::normal_authority;
use crate::stored::{Entry, Stored};

/// What purges know a response by.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resource {
    /// Authority as in keys, then path and query.
    url: Box<[u8]>,
    /// Its tags, one space between each two.
    tags: Tags,
    /// When the fetch that brought it began.
    began: Generation,
}

impl Resource {
    /// Of a response with these fields to a request that began at `began`.
    pub fn new<'f>(
        realm: Realm,
        authority: &[u8],
        path_and_query: &[u8],
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        began: Generation,
    ) -> Resource {
        let tags = tags(fields).unwrap_or_default();
        Resource { url: url(realm, authority, path_and_query).into(), tags, began }
    }

    /// After an update that began at `began` and may name other tags.
    pub fn updated<'f>(
        &self,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        began: Generation,
    ) -> Resource {
        let tags = tags(fields).unwrap_or_else(|| self.tags.clone());
        Resource { url: self.url.clone(), tags, began }
    }

    /// Purges until the fetch that brought it began.
    pub fn began(&self) -> Generation {
        self.began
    }

    /// What the records of purges are compared with.
    pub fn known(&self) -> Known<'_> {
        Known { url: &self.url, tags: &self.tags.kept, more_tags: self.tags.more }
    }

    /// Bytes it holds on to.
    pub fn bytes_held(&self) -> usize {
        self.url.len() + self.tags.kept.len()
    }
}

/// The URL as purges have it. Scheme and kind of listener are not in it: a purge of a URL takes it
/// wherever it is stored.
pub fn url(realm: Realm, authority: &[u8], path_and_query: &[u8]) -> Vec<u8> {
    [&normal_authority(realm, authority), path_and_query].concat()
}

/// Does this field carry tags?
pub fn is_tag_field(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"surrogate-key") || name.eq_ignore_ascii_case(b"cache-tag")
}

/// The tags of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Tags {
    /// One space between each two.
    kept: Box<[u8]>,
    /// There were more than [`TAGS_MAX`].
    more: bool,
}

/// The tags in some fields, or `None` when no field carries any.
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

/// `Surrogate-Key` is separated by spaces, `Cache-Tag` by commas; either ends a tag in both.
fn split_tags(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| matches!(byte, b' ' | b'\t' | b',')).filter(|tag| !tag.is_empty())
}

impl Cache {
    /// Carries a purge out: from now on nobody is served what it concerned. O(1) in what is
    /// stored. What comes back with it is to be waited for before the purge is told.
    pub fn purge(&self, what: Concerns<'_>, soft: bool, now_ms: u64) -> (Mark, Made) {
        let rounds = self.handover.rounds();
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

    /// A response found in the store, unless a purge has taken it. The usual way is one comparison.
    #[inline]
    pub fn judged(&self, look: Look, key: Key, stored: Arc<Stored>) -> Option<Arc<Stored>> {
        if stored.checked.load(Ordering::Relaxed) == self.purges.now() {
            return Some(stored);
        }
        self.judge(look, key, stored)
    }

    #[cold]
    fn judge(&self, look: Look, key: Key, stored: Arc<Stored>) -> Option<Arc<Stored>> {
        let is_same = |entry: &Entry| entry.is(&stored);
        let checked = stored.checked.load(Ordering::Relaxed);
        match (self.purges.judge(stored.head.resource.known(), checked), look) {
            ((Verdict::Good, _), Look::Peek) => Some(stored),
            ((Verdict::Stale(mark), now), Look::Peek) => {
                Some(Arc::new(stored.stale_from(mark, now)))
            }
            ((Verdict::Gone, _), Look::Peek) => None,
            ((Verdict::Good, now), Look::Use) => {
                stored.checked.fetch_max(now, Ordering::Relaxed);
                Some(stored)
            }
            ((Verdict::Stale(mark), now), Look::Use) => {
                let stale = Arc::new(stored.stale_from(mark, now));
                let entry = Entry::Response(Arc::clone(&stale));
                let bytes = entry.accounted_bytes();
                if let Err(refused) = self.store.replace_if(key, is_same, entry, bytes) {
                    tracing::debug!(%refused, "not stored");
                }
                Some(stale)
            }
            ((Verdict::Gone, _), Look::Use) => {
                self.store.remove_if(&key, is_same);
                if let Some(disk) = self.disk() {
                    self.delete_there(&disk, &key);
                }
                None
            }
        }
    }

    /// The same for parts.
    pub fn judged_part(&self, look: Look, key: Key, partial: Arc<Partial>) -> Option<Arc<Partial>> {
        let checked = partial.checked.load(Ordering::Relaxed);
        if checked == self.purges.now() {
            return Some(partial);
        }
        let is_same =
            |entry: &Entry| matches!(entry, Entry::Part(there) if Arc::ptr_eq(there, &partial));
        match (self.purges.judge(partial.head.resource.known(), checked), look) {
            ((Verdict::Good, _), Look::Peek) => Some(partial),
            ((Verdict::Stale(mark), now), Look::Peek) => {
                Some(Arc::new(partial.stale_from(mark, now)))
            }
            ((Verdict::Gone, _), Look::Peek) => None,
            ((Verdict::Good, now), Look::Use) => {
                partial.checked.fetch_max(now, Ordering::Relaxed);
                Some(partial)
            }
            ((Verdict::Stale(mark), now), Look::Use) => {
                let stale = Arc::new(partial.stale_from(mark, now));
                let entry = Entry::Part(Arc::clone(&stale));
                let bytes = entry.accounted_bytes();
                if let Err(refused) = self.store.replace_if(key, is_same, entry, bytes) {
                    tracing::debug!(%refused, "not stored");
                }
                Some(stale)
            }
            ((Verdict::Gone, _), Look::Use) => {
                self.store.remove_if(&key, is_same);
                None
            }
        }
    }

    /// Whether a response that arrives may still be served to who asked after now; what is softly
    /// purged is found stale at look-up.
    pub fn is_overtaken(&self, resource: &Resource) -> bool {
        let began = resource.began();
        began != self.purges.now() && self.purges.judge(resource.known(), began).0 != Verdict::Good
    }

    /// Carries the sweep a bit further, if purges have left something to do and no other core is at
    /// it.
    pub fn sweep_purged(&self) {
        let mut sweeping = match self.sweeping.try_lock() {
            Ok(sweeping) => sweeping,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if sweeping.is_none() {
            // What is on the disk is not swept, so that no record of a purge can be let go of.
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
                let checked = match entry {
                    Entry::Response(stored) => &stored.checked,
                    Entry::Part(partial) => &partial.checked,
                    Entry::Varies(_) | Entry::Uncacheable { .. } => return,
                };
                if checked.load(Ordering::Relaxed) != now {
                    found.push((key, entry.clone()));
                }
            });
            for (key, entry) in found.drain(..) {
                match entry {
                    Entry::Response(stored) => drop(self.judge(Look::Use, key, stored)),
                    Entry::Part(partial) => drop(self.judged_part(Look::Use, key, partial)),
                    Entry::Varies(_) | Entry::Uncacheable { .. } => {}
                }
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

/// The sweep under way.
pub type Sweeping = Mutex<Option<(Sweep, Cursor)>>;

#[cfg(test)]
mod tests {
    use super::*;
    use config::Role;
    use http1::Scheme;

    fn tags_of(fields: &[(&str, &str)]) -> Option<String> {
        let fields = fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
        tags(fields).map(|tags| String::from_utf8(tags.kept.to_vec()).unwrap())
    }

    #[test]
    fn tags_are_read_from_both_fields_and_each_is_kept_once() {
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

    #[test]
    fn a_url_is_known_as_its_key_is_made() {
        let realm = Realm { role: Role::Reverse, scheme: Scheme::Http };
        assert_eq!(url(realm, b"EXAMPLE.com:80", b"/A?b"), b"example.com/A?b");
        assert_eq!(url(realm, b"h:8080", b"/"), b"h:8080/");
    }
}
