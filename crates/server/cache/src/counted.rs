//! How many responses a purge has removed, or made stale.
//!
//! A purge is a record, and takes effect whatever is stored. To say how many responses it
//! concerned, the caller looks for them afterwards: those of a URL under their keys, all others by
//! a walk over the memory. What is found is removed at once, so that no later purge counts it
//! again. Only a hard purge of everything is counted before, because it empties the memory in one
//! step.
//!
//! What never happens: a purge waits for the count before it takes effect, but for one of
//! everything; two walks run at a time; a walk is longer than [`PURGE_COUNTED_SLOTS_MAX`].

use std::sync::atomic::Ordering;

use config::Role;
use http1::Scheme;
use store::{Concerns, Cursor, Key};

use crate::changes::{Changes, Notice};
use crate::key::StoredUri;
use crate::limits::{
    PURGE_COUNTED_SLOTS_MAX, PURGE_SWEEP_SLOTS_PER_LOCK, PURGE_SWEEP_SLOTS_PER_TICK,
};
use crate::realm::Realm;
use crate::stored::Entry;
use crate::{Cache, Look};

/// A walk, of which there is one at a time.
struct Walking<'c>(&'c Cache);

impl Drop for Walking<'_> {
    fn drop(&mut self) {
        self.0.counting.store(false, Ordering::Release);
    }
}

impl Cache {
    /// Applies all changes of a message, and counts the responses in memory that they concerned.
    /// `None`: the message is invalid. The count is `None` where it would take too long.
    pub async fn apply_counted(&self, notices: &[u8]) -> Option<(Changes, Option<u64>)> {
        let empties = Notice::decode_all(notices)?.iter().any(Notice::empties);
        let before = if empties { self.count_all().await } else { None };
        let changes = self.apply_all(notices)?;
        let count = self.count_after(notices, before).await;
        Some((changes, count))
    }

    /// What a hard purge of everything is about to remove.
    pub async fn count_all(&self) -> Option<u64> {
        self.walk(|cache, key, entry| cache.purged(Look::Peek, key, entry) != Some(true)).await
    }

    /// The number of responses in memory that these purges, which have been made, have removed or
    /// made stale. `before` is from [`Cache::count_all`].
    pub async fn count_after(&self, notices: &[u8], before: Option<u64>) -> Option<u64> {
        let notices = Notice::decode_all(notices)?;
        if notices.iter().any(Notice::empties) {
            return before;
        }
        let urls: Option<Vec<&[u8]>> = notices
            .iter()
            .map(|notice| match notice.concerns() {
                Concerns::Url(url) => Some(url),
                Concerns::All | Concerns::Prefix(_) | Concerns::Tag(_) => None,
            })
            .collect();
        match urls {
            Some(urls) => Some(urls.into_iter().map(|url| self.count_url(url)).sum()),
            None => self.walk(|cache, key, entry| cache.is_purged(key, entry)).await,
        }
    }

    /// The responses of a URL, by their keys.
    fn count_url(&self, url: &[u8]) -> u64 {
        let at = url.iter().position(|&byte| byte == b'/').unwrap_or(url.len());
        let (authority, path) = url.split_at(at);
        let roles = [Role::Reverse, Role::Forward];
        let realms = roles
            .into_iter()
            .flat_map(|role| [Scheme::Http, Scheme::Https].map(|scheme| Realm { role, scheme }));
        let mut count = 0;
        for realm in realms {
            let uri = self.uri_key(StoredUri::new(realm, authority, path));
            let keys = match self.store.peek(&uri) {
                Some(Entry::Varies(varies)) => varies.keys(),
                Some(_) => vec![uri],
                None => continue,
            };
            let entries = keys.into_iter().filter_map(|key| Some((key, self.store.peek(&key)?)));
            count += entries.filter(|(key, entry)| self.is_purged(*key, entry)).count() as u64;
        }
        count
    }

    /// Whether an entry has been purged, and was not counted. It is removed, or made stale.
    fn is_purged(&self, key: Key, entry: &Entry) -> bool {
        self.purged(Look::Use, key, entry).is_some()
    }

    /// Counts the entries for which `counts` holds, in turns.
    async fn walk(&self, counts: impl Fn(&Cache, Key, &Entry) -> bool) -> Option<u64> {
        let is_taken = self.counting.swap(true, Ordering::AcqRel);
        if is_taken {
            return None;
        }
        let _walking = Walking(self);
        if self.store.slots() > PURGE_COUNTED_SLOTS_MAX {
            return None;
        }
        let (mut at, mut count) = (Cursor::default(), 0);
        let mut found = Vec::with_capacity(PURGE_SWEEP_SLOTS_PER_LOCK);
        loop {
            for _ in 0..PURGE_SWEEP_SLOTS_PER_TICK / PURGE_SWEEP_SLOTS_PER_LOCK {
                let next = self.store.visit(at, PURGE_SWEEP_SLOTS_PER_LOCK, |key, entry| {
                    if entry.purge_state().is_some() {
                        found.push((key, entry.clone()));
                    }
                });
                let counted = found.drain(..).filter(|(key, entry)| counts(self, *key, entry));
                count += counted.count() as u64;
                match next {
                    Some(next) => at = next,
                    None => return Some(count),
                }
            }
            runtime::yield_now().await;
        }
    }
}
