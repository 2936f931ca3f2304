//! The stored responses of one URI that differ by request fields (RFC 9111, 4.1).
//!
//! The entry under the URI's own key is a [`Varies`]: the sets of field names that its responses
//! vary by, and the keys of some of them. If the origin names one set, a request needs one look-up
//! more than without `Vary`. If it names several, for different requests, there is a look-up for
//! each set, and the most recent of the selected responses is used. A response without `Vary` among
//! others with it belongs to the set without names.
//!
//! Keys include the number of their set. So responses stored before the `Varies` was removed, or
//! before their set was dropped for a newer one, are never found again and age out of the store.
//!
//! If the key of a request has other parts besides its URI ([`crate::key`]), they are in the keys
//! too, and each response is stored like one that varies, if only by the set without names.
//!
//! What never happens: a request needs more than [`crate::limits::VARY_SETS_MAX`] look-ups; a
//! request to the origin has more than [`VARIANTS_OFFERED_MAX`] tags, or more than
//! [`OFFERED_BYTES_MAX`] bytes of them.

use std::sync::Arc;

use caching::{StoredMeta, VaryNames};
use store::Key;

use crate::key::KeyParts;
use crate::limits::{OFFERED_BYTES_MAX, VARIANTS_OFFERED_MAX};
use crate::partial::Partial;
use crate::stored::{Entry, Head, Stored, Varies, VarySet, Wire};
use crate::{Cache, Look, Lookup, Query};

/// Where a response is stored: its key, and how a look-up of its URI finds the key.
#[derive(Clone, Debug)]
pub struct Place {
    pub(crate) uri: Key,
    /// The key of the response.
    pub key: Key,
    /// The names that it varies by, if no stored response of the URI varied by them.
    pub(crate) new_set: Option<Box<NewSet>>,
    /// The key of the older response whose place it takes, if that is another key.
    pub(crate) instead_of: Option<Key>,
}

/// A set of names that a response adds to those of its URI.
#[derive(Clone, Debug)]
pub(crate) struct NewSet {
    set: VarySet,
    /// What the request feeds into keys after the number of the set.
    selecting: Vec<u8>,
}

impl Place {
    /// Of a response that is stored already.
    pub fn known(uri: Key, key: Key) -> Place {
        Place { uri, key, new_set: None, instead_of: None }
    }

    /// Once the response is stored, an older one under this key of the URI is removed.
    #[must_use]
    pub fn instead_of(self, key: Key) -> Place {
        let instead_of = (key != self.key && key != self.uri).then_some(key);
        Place { instead_of, ..self }
    }
}

/// The best candidate so far.
enum Best {
    Nothing,
    Whole(Arc<Stored>, Key),
    Part(Arc<Partial>, Key),
}

impl Best {
    fn meta(&self) -> Option<&StoredMeta> {
        match self {
            Best::Nothing => None,
            Best::Whole(stored, _) => Some(&stored.head.meta),
            Best::Part(partial, _) => Some(&partial.head.meta),
        }
    }

    /// Takes another candidate if it is preferable. A complete and fresh response can answer any
    /// request.
    fn meet(&mut self, other: Best, now_ms: u64) {
        let is_fresh_whole = |best: &Best| match best {
            Best::Whole(stored, _) => stored.head.meta.is_fresh(now_ms),
            Best::Nothing | Best::Part(..) => false,
        };
        let goes_before = match (other.meta(), self.meta()) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(_), Some(_)) if is_fresh_whole(&other) != is_fresh_whole(self) => {
                is_fresh_whole(&other)
            }
            (Some(new), Some(old)) => new.goes_before(old, now_ms),
        };
        if goes_before {
            *self = other;
        }
    }
}

impl Cache {
    /// The stored response that a request selects, for a URI whose responses vary.
    #[inline]
    pub fn look_for_variant(&self, uri: Key, varies: &Varies, query: &Query<'_>) -> Lookup {
        let Query { look, parts, request, now_ms } = *query;
        let (mut best, mut is_unshared) = (Best::Nothing, false);
        for set in &varies.sets {
            let key = self.variant_key(uri, set, parts, request);
            match self.entry(look, &key) {
                Some(Entry::Response(stored)) if stored.head.matches(request) => {
                    if let Some(stored) = self.judged(look, key, stored) {
                        best.meet(Best::Whole(stored, key), now_ms);
                    }
                }
                Some(Entry::Part(partial)) if partial.head.matches(request) => {
                    if let Some(partial) = self.judged_part(look, key, partial) {
                        best.meet(Best::Part(partial, key), now_ms);
                    }
                }
                Some(Entry::Uncacheable { until_ms, since }) => {
                    is_unshared |= self.holds(until_ms, since, now_ms);
                }
                _ => {}
            }
        }
        match best {
            Best::Whole(stored, key) => Lookup::Found(stored, key),
            Best::Part(partial, key) => Lookup::Part(partial, key),
            Best::Nothing => {
                let key = self.collapse_key(uri, &varies.sets, parts, request);
                if is_unshared { Lookup::Unshared(key) } else { self.absent(key, now_ms) }
            }
        }
    }

    /// The keys that may have the response that a request selects.
    pub fn variant_keys(
        &self,
        uri: Key,
        varies: &Varies,
        parts: Option<KeyParts<'_>>,
        request: &Wire<'_>,
    ) -> Vec<Key> {
        varies.sets.iter().map(|set| self.variant_key(uri, set, parts, request)).collect()
    }

    #[inline]
    fn variant_key(
        &self,
        uri: Key,
        set: &VarySet,
        parts: Option<KeyParts<'_>>,
        request: &Wire<'_>,
    ) -> Key {
        let mut builder = self.hasher.within(uri);
        builder.raw(&set.number.to_le_bytes());
        set.names.feed(request, |piece| builder.raw(piece));
        if let Some(parts) = parts {
            parts.feed_key(request.0, |piece| builder.raw(piece));
        }
        builder.finish()
    }

    /// The key by which fetches are collapsed if nothing is stored: requests that no set
    /// distinguishes share it. With one set it is the key under which the response will be stored.
    pub(crate) fn collapse_key(
        &self,
        uri: Key,
        sets: &[VarySet],
        parts: Option<KeyParts<'_>>,
        request: &Wire<'_>,
    ) -> Key {
        let mut builder = self.hasher.within(uri);
        for set in sets {
            builder.raw(&set.number.to_le_bytes());
            set.names.feed(request, |piece| builder.raw(piece));
        }
        if let Some(parts) = parts {
            parts.feed_key(request.0, |piece| builder.raw(piece));
        }
        builder.finish()
    }

    /// Where a response with this head is to be stored. Changes nothing: if its URI has no entry
    /// for the names that it varies by, that entry is made when the response is stored.
    pub fn place(
        &self,
        uri: Key,
        head: &Head,
        request: &Wire<'_>,
        parts: Option<KeyParts<'_>>,
    ) -> Place {
        let there = match self.store.peek(&uri) {
            Some(Entry::Varies(there)) => Some(there),
            _ => None,
        };
        let names = match (head.varies.as_deref(), &there) {
            (None, None) if parts.is_none() => return Place::known(uri, uri),
            (None, _) => VaryNames::default(),
            (Some((names, _)), _) => names.clone(),
        };
        if let Some(set) = there.as_ref().and_then(|there| there.set_of(&names)) {
            let key = self.variant_key(uri, set, parts, request);
            return Place::known(uri, key);
        }
        let set = VarySet { names, number: self.epoch() };
        let mut selecting = Vec::new();
        set.names.feed(request, |piece| selecting.extend_from_slice(piece));
        if let Some(parts) = parts {
            parts.feed_key(request.0, |piece| selecting.extend_from_slice(piece));
        }
        let key = self.key_in_set(uri, &set, &selecting);
        debug_assert_eq!(key, self.variant_key(uri, &set, parts, request));
        Place { new_set: Some(Box::new(NewSet { set, selecting })), ..Place::known(uri, key) }
    }

    /// [`Cache::variant_key`] for a request that feeds these bytes.
    fn key_in_set(&self, uri: Key, set: &VarySet, selecting: &[u8]) -> Key {
        let mut builder = self.hasher.within(uri);
        builder.raw(&set.number.to_le_bytes());
        builder.raw(selecting);
        builder.finish()
    }

    /// Records that a response is stored at this place. The caller holds the lock of the URI
    /// ([`crate::watch::Watch::store`]).
    pub(crate) fn record(&self, place: &Place) {
        if place.key == place.uri {
            return;
        }
        let there = match self.store.peek(&place.uri) {
            Some(Entry::Varies(there)) => Some(there),
            _ => None,
        };
        let varies = match (&place.new_set, there) {
            (None, Some(there)) => return there.list(place.key),
            (None, None) => return,
            (Some(new), Some(there)) if there.has(&new.set) => return there.list(place.key),
            (Some(new), Some(there)) => there.with(new.set.clone()),
            (Some(new), None) => Varies::new(vec![new.set.clone()], Vec::new()),
        };
        varies.list(place.key);
        let entry = Entry::Varies(Arc::new(varies));
        self.write_now(place.uri, &entry);
        self.insert_now(place.uri, entry);
    }

    /// The place of a response among those that were stored since its own place was chosen, if that
    /// is another one now: in the set of its names, which another response has added, or without
    /// `Vary` in the set without names.
    pub(crate) fn place_now(&self, place: &Place) -> Option<Place> {
        let own = place.new_set.as_deref();
        if own.is_none() && place.key != place.uri {
            return None;
        }
        let Some(Entry::Varies(varies)) = self.store.peek(&place.uri) else { return None };
        let nameless = || VarySet { names: VaryNames::default(), number: self.epoch() };
        let new = own.cloned().unwrap_or_else(|| NewSet { set: nameless(), selecting: Vec::new() });
        if own.is_some() && varies.has(&new.set) {
            return None;
        }
        let known = varies.set_of(&new.set.names);
        let key = self.key_in_set(place.uri, known.unwrap_or(&new.set), &new.selecting);
        let new_set = if known.is_none() { Some(Box::new(new)) } else { None };
        Some(Place { key, new_set, ..place.clone() })
    }

    /// Stored responses of a URI, none of which the request selects, that can be offered to the
    /// origin for confirmation by their tag; the latest first.
    pub fn offered(&self, look: Look, uri: Key, request: &Wire<'_>) -> Vec<Arc<Stored>> {
        let Some(Entry::Varies(varies)) = self.store.peek(&uri) else { return Vec::new() };
        let mut offered: Vec<Arc<Stored>> = Vec::new();
        let mut bytes_left = OFFERED_BYTES_MAX;
        for key in varies.keys().into_iter().rev() {
            let Some(Entry::Response(stored)) = self.store.peek(&key) else { continue };
            let Some(stored) = self.judged(look, key, stored) else { continue };
            let Some(tag) = offered_tag(request, &stored) else { continue };
            let known = offered.iter().any(|other| offered_tag(request, other) == Some(tag));
            if known || tag.len() > bytes_left {
                continue;
            }
            bytes_left -= tag.len();
            offered.push(stored);
            if offered.len() == VARIANTS_OFFERED_MAX {
                break;
            }
        }
        offered
    }
}

/// The tag by which a stored response is offered.
pub fn offered_tag<'s>(request: &Wire<'_>, stored: &'s Stored) -> Option<&'s [u8]> {
    let head = &stored.head;
    caching::offered_tag(request, head.status, &**head, &head.meta.validators)
}
