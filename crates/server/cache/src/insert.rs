//! Insertions: every response that comes into the store comes through here.
//!
//! An insertion happens under the lock of its URI ([`Watch::store`]), in memory and on the disk at
//! once. An insertion is refused if the URI has changed since the request was sent, if a purge has
//! removed the requested response, or if the stored response stays by the rule of
//! [`caching::may_replace`].
//!
//! A response that may not be stored removes nothing, but leaves a mark. While the mark is there,
//! requests for the response's key do not wait for each other: each request is fetched. The first
//! response that may be stored removes the mark.
//!
//! What never happens: a response is inserted in any other way. There are two exceptions: a stored
//! body gets a new head ([`Cache::replace`]), and a response on the disk is copied into memory
//! ([`crate::disk::swap_in`]).

use std::sync::Arc;
use std::time::Duration;

use caching::{Edition, Explain, Fetches, Kept, may_replace};
use runtime::time;
use store::disk::Writer;
use store::{Generation, Key, Verdict};

use crate::disk::finish;
use crate::flight::{Lead, Settled};
use crate::forms::Away;
use crate::limits::CONFIRMED_WRITTEN_MIN;
use crate::partial::Partial;
use crate::stored::{Entry, Head, Stored};
use crate::variants::Place;
use crate::watch::{Noted, Storing, Watch};
use crate::{Cache, Look};

/// How an insertion reaches the disk.
#[derive(Debug)]
enum Disk {
    /// The whole entry is written.
    Write,
    /// The disk already has the entry.
    Keep,
    /// The body has been written.
    End(Writer),
}

impl Cache {
    /// Stores a response, or parts of one. Returns whether it was stored. An entry that is too
    /// large for the store is not stored, which only costs hits.
    pub fn insert(&self, watch: &Watch, place: &Place, entry: Entry) -> bool {
        if let Entry::Response(stored) = &entry {
            if stored.place_away().is_some_and(|away| away.key != place.key) {
                // Its body stays under its old key, where no look-up finds it.
                return false;
            }
            self.sizing.note_stored(place.key, stored);
        }
        self.insert_as(watch, place, entry, Disk::Write)
    }

    /// Stores a response that the origin has confirmed. The disk already has the response, and gets
    /// the new head only if its lifetime is worth the write. Otherwise the response is validated
    /// again when it is read from the disk.
    pub fn insert_confirmed(&self, watch: &Watch, place: &Place, entry: Entry) -> bool {
        let lives_long = entry.meta().is_some_and(|meta| {
            meta.freshness.lifetime_ms >= CONFIRMED_WRITTEN_MIN.as_millis() as u64
        });
        match self.disk() {
            Some(disk) if !lives_long && disk.contains(&place.key) => {
                self.insert_as(watch, place, entry, Disk::Keep)
            }
            _ => self.insert(watch, place, entry),
        }
    }

    /// Stores a response whose body of this length went to the disk as it arrived. `None`: the
    /// response is not stored.
    pub fn insert_written(
        &self,
        watch: &Watch,
        place: &Place,
        head: &Arc<Head>,
        (writer, body_bytes): (Writer, u64),
    ) -> Option<Arc<Stored>> {
        let away = Away { key: place.key, object: writer.object() };
        let stored = Arc::new(Stored::away(Arc::clone(head), body_bytes, away));
        let entry = Entry::Response(Arc::clone(&stored));
        self.insert_as(watch, place, entry, Disk::End(writer)).then_some(stored)
    }

    /// Stores a part, combined with the stored parts if that is allowed. A complete representation
    /// is stored as a response.
    pub fn insert_part(&self, watch: &Watch, place: &Place, new: Partial) -> Settled {
        let key = place.key;
        let fits = |head: &Head, bytes: u64| bytes == new.complete_bytes && new.is_of(head);
        let there = match self.store.peek(&key) {
            Some(Entry::Response(old)) => self.judged(Look::Use, key, old).map(Entry::Response),
            Some(Entry::Part(old)) => self.judged_part(Look::Use, key, old).map(Entry::Part),
            _ => None,
        };
        let partial = match there {
            // Everything is stored already.
            Some(Entry::Response(old)) if fits(&old.head, old.body_bytes) => {
                return Settled::Stored(old);
            }
            Some(Entry::Part(old)) if fits(&old.head, old.complete_bytes) => old.with(&new),
            _ => new,
        };
        if let Some(stored) = partial.whole() {
            let stored = Arc::new(stored);
            self.insert(watch, place, Entry::Response(Arc::clone(&stored)));
            return Settled::Stored(stored);
        }
        let partial = Arc::new(partial);
        self.insert(watch, place, Entry::Part(Arc::clone(&partial)));
        Settled::Part(partial)
    }

    /// Records the fields that a response varies by as soon as its head is known, so that requests
    /// for other variants do not wait for it. Does nothing while a response is stored under the
    /// URI's own key: the stored response may still be served until the new response is whole.
    pub fn announce(&self, watch: &Watch, place: &Place) {
        if place.new_set.is_none() {
            return;
        }
        watch.store(|_| {
            if self.store.peek(&place.uri).is_none_or(|there| there.meta().is_none()) {
                self.record(self.place_now(place).as_ref().unwrap_or(place));
            }
        });
    }

    /// Lets requests for the same variant join a fetch while the body of its response arrives. If
    /// the key has a mark, because of which requests would not wait for the fetch, the mark is
    /// removed.
    pub fn open(&self, lead: &Lead, place: &Place) {
        if lead.open(place.key) {
            lead.watch().store(|_| self.store.remove_if(&place.key, Entry::is_mark));
        }
    }

    fn insert_as(&self, watch: &Watch, place: &Place, entry: Entry, disk: Disk) -> bool {
        let result = watch.store(|storing| self.insert_under_lock(storing, place, entry, disk));
        match result.unwrap_or(Err("changed-in-flight")) {
            Ok(()) => true,
            Err(rule) => {
                tracing::debug!(rule, "a response is not stored");
                false
            }
        }
    }

    /// The error is the token of the rule that refuses the entry.
    fn insert_under_lock(
        &self,
        storing: &mut Storing<'_>,
        place: &Place,
        entry: Entry,
        disk: Disk,
    ) -> Result<(), &'static str> {
        let among = if storing.is_alone() { None } else { self.place_now(place) };
        if among.is_some() && matches!(disk, Disk::End(_)) {
            return Err("written-elsewhere");
        }
        // Without Vary it answers every request, so all responses of the URI are its rivals.
        let is_for_all = among.is_some() && place.key == place.uri;
        let place = among.as_ref().unwrap_or(place);
        let rivals = if is_for_all { None } else { Some(&place.key) };
        let decided = self.decide(storing, rivals, place, &entry);
        let noted = decided.map_err(|kept| kept.explain().token)?;
        match disk {
            Disk::Write => self.write_now(place.key, &entry),
            Disk::Keep => {}
            Disk::End(writer) => finish(writer, &[]).then_some(()).ok_or("not-written")?,
        }
        self.record(place);
        if let Some(before) = &place.instead_of {
            self.remove_older(before, noted.edition.requested_ms);
        }
        // A client that gets the response from here on finds the fetches outrun that began before.
        storing.note(place.key, noted);
        self.insert_now(place.key, entry);
        Ok(())
    }

    /// Whether an entry may be stored here, and the note to make of it.
    fn decide(
        &self,
        storing: &Storing<'_>,
        rivals: Option<&Key>,
        place: &Place,
        entry: &Entry,
    ) -> Result<Noted, Kept> {
        let (Some((_, resource)), Some(meta)) = (entry.purge_state(), entry.meta()) else {
            unreachable!("only responses and their parts are decided about");
        };
        let (now_ms, began) = (time::wall_ms(), resource.began());
        let is_whole = |entry: &Entry| matches!(entry, Entry::Response(_));
        let purges_since = |began: Generation| match began == self.purges.now() {
            true => Verdict::Good,
            false => self.purges.judge(resource.known(), began).0,
        };
        let purged_at = match purges_since(began) {
            Verdict::Good => None,
            Verdict::Stale(mark) => Some(mark.generation),
            Verdict::Gone => {
                // A client has got the response already, so an older one must not follow.
                self.remove_older(&place.key, meta.requested_ms);
                return Err(Kept::Purged);
            }
        };
        let edition = Edition::of(meta, is_whole(entry), now_ms);
        let new = Edition { is_purged: purged_at.is_some(), ..edition };
        for noted in storing.overlapping(rivals) {
            let Noted { edition, began, part } = noted.ok_or(Kept::Older)?;
            let is_purged = match purged_at {
                Some(at) => *began < at,
                None => purges_since(*began) != Verdict::Good,
            };
            let stored = Edition { is_purged, ..*edition };
            let whole = match entry {
                Entry::Response(whole) => Some(&whole.head),
                _ => None,
            };
            let is_same = part.as_ref().zip(whole).is_some_and(|(part, whole)| part.is_of(whole));
            match may_replace(&stored, &new, Fetches::Overlap) {
                // The whole of what is there in part is no other version.
                Err(Kept::Older) if is_same => {}
                result => result?,
            }
        }
        // Any other response whose fetch began later replaces whatever is stored.
        if !new.is_whole || new.is_error {
            let under_uri = place.new_set.as_ref().map(|_| &place.uri);
            for key in [&place.key].into_iter().chain(under_uri).chain(&place.instead_of) {
                self.decide_lesser(key, &new, now_ms)?;
            }
        }
        let part = match entry {
            Entry::Part(partial) => Some(Arc::clone(partial)),
            _ => None,
        };
        Ok(Noted { edition, began, part })
    }

    /// Whether a part or an error may be stored here. Neither replaces a whole response that may
    /// still be used.
    fn decide_lesser(&self, key: &Key, new: &Edition, now_ms: u64) -> Result<(), Kept> {
        match self.store.peek(key) {
            Some(there) => there.meta().map_or(Ok(()), |meta| {
                let is_whole = matches!(there, Entry::Response(_));
                let stored = Edition::of(meta, is_whole, now_ms);
                may_replace(&stored, new, Fetches::OneAfterTheOther)
            }),
            None if self.disk().is_some_and(|disk| disk.contains(key)) => match new.is_whole {
                true => Err(Kept::ErrorOverUsable),
                false => Err(Kept::PartOfUsable),
            },
            None => Ok(()),
        }
    }

    /// Removes the entry of a key, unless it is a response to a later request.
    fn remove_older(&self, key: &Key, requested_ms: u64) {
        let there = self.store.peek(key);
        let is_later =
            |there: &Entry| there.meta().is_some_and(|of| of.requested_ms > requested_ms);
        if !there.is_some_and(|there| is_later(&there)) {
            self.remove(key);
        }
    }

    /// Inserts into memory. The caller holds the lock of the URI.
    pub(crate) fn insert_now(&self, key: Key, entry: Entry) {
        let bytes = entry.accounted_bytes();
        if let Err(refused) = self.store.insert(key, entry, bytes) {
            tracing::debug!(%refused, "not stored");
            // The disk may have the new entry by now, which is newer than the one in memory.
            self.store.remove(&key);
        }
    }

    /// Replaces a response by another one with the same body, if it is still stored.
    pub fn replace(&self, watch: &Watch, key: Key, old: &Arc<Stored>, new: Arc<Stored>) {
        debug_assert_eq!(old.body_bytes, new.body_bytes, "only the head is replaced");
        let entry = Entry::Response(new);
        let bytes = entry.accounted_bytes();
        watch.store(|_| {
            match self.store.replace_if(key, |entry| entry.is(old), entry.clone(), bytes) {
                Ok(true) => self.write_now(key, &entry),
                Ok(false) => {}
                Err(refused) => tracing::debug!(%refused, "not stored"),
            }
        });
    }

    /// Removes this entry, if it is still stored.
    pub fn remove_same(&self, key: &Key, entry: &Entry) {
        let removed = self.store.remove_if(key, |there| there.is_same(entry));
        if removed.is_some()
            && matches!(entry, Entry::Response(_))
            && let Some(disk) = self.disk()
        {
            self.delete_on_disk(&disk, key);
        }
    }

    /// Removes stored parts that do not fit the origin's current response.
    pub fn remove_part(&self, key: &Key) {
        self.store.remove_if(key, |there| matches!(there, Entry::Part(_)));
    }

    /// Leaves the mark of a response that may not be stored, unless a whole response is stored
    /// under its key. Stored parts stay, with the mark.
    pub fn mark_unshared(&self, watch: &Watch, key: Key, now_ms: u64, memory: Duration) {
        let until_ms = now_ms + memory.as_millis() as u64;
        if let Some(old @ Entry::Part(partial)) = &self.store.peek(&key) {
            let new = Entry::Part(Arc::new(partial.under(partial.head.unshared(until_ms))));
            let bytes = new.accounted_bytes();
            let is_old = |there: &Entry| there.is_same(old);
            watch.store(|_| self.store.replace_if(key, is_old, new, bytes).is_ok());
            return;
        }
        if memory.is_zero() || self.disk().is_some_and(|disk| disk.contains(&key)) {
            return;
        }
        let mark = Entry::Uncacheable { until_ms, since: self.purges.now() as u32 };
        let is_free = |there: Option<&Entry>| there.is_none_or(Entry::is_mark);
        watch.store(|_| self.store.insert_if(key, is_free, mark, 0).is_ok());
    }

    /// Changes the head of a stored response, whose body stays.
    pub fn replace_head(
        &self,
        watch: &Watch,
        key: Key,
        of: &Arc<Stored>,
        change: impl FnOnce(&Head) -> Head,
    ) {
        // Forms that were made since it was looked up are kept, too.
        let now = self.latest(key, of).unwrap_or_else(|| Arc::clone(of));
        let new = Arc::new(now.under(change(&now.head)));
        if new.head.meta != now.head.meta {
            return self.replace(watch, key, &now, new);
        }
        // The disk does not know what else a head has.
        let bytes = new.accounted_bytes();
        let _ = self.store.replace_if(key, |there| there.is(&now), Entry::Response(new), bytes);
    }
}

#[cfg(test)]
mod tests {
    use caching::ContentRange;
    use caching::range::ByteRange;

    use super::*;
    use crate::samples::{cache, head};
    use crate::stored::Piece;

    const BODY: [u8; 9] = *b"all of it";

    #[test]
    fn a_part_of_a_later_fetch_keeps_out_the_whole_of_another_version_only() {
        for (tag, is_stored) in [(b"\"a\"", true), (b"\"b\"", false)] {
            let (cache, key) = cache();
            let (early, late) = (cache.watches.watch(key), cache.watches.watch(key));
            let range = ByteRange { first: 0, last: 2 };
            let of = ContentRange { range, complete_bytes: BODY.len() as u64 };
            let part = Partial::new(head(200, 1, 0, b"\"a\""), of, vec![Piece::from(&BODY[..3])]);
            cache.insert_part(&late, &Place::known(key, key), part);
            let whole = Stored::new(head(200, 0, 0, tag), vec![Piece::from(&BODY[..])]);
            let whole = Entry::Response(Arc::new(whole));
            assert_eq!(cache.insert(&early, &Place::known(key, key), whole), is_stored);
        }
    }
}
