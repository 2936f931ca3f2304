//! The stored responses of one URI that differ by request fields (RFC 9111, 4.1).
//!
//! Under the URI's own key stands a [`Varies`]: the sets of field names that its responses were
//! said to differ by, and under which keys some of them are. An origin that names one set has one
//! look-up more than a response without `Vary`; one that names several, for different requests,
//! has one for each set, and of several responses that a request selects the most recent is used.
//! A response without `Vary` among others that have it is of the set without names.
//!
//! Keys carry a number that is the set's own: what was stored before the `Varies` was taken out, or
//! before its set was given up for a newer one, is never found again, and ages out of the store.
//!
//! What never happens: more than [`VARY_SETS_MAX`] look-ups for a request; more than
//! [`VARIANTS_OFFERED_MAX`] tags, or [`OFFERED_BYTES_MAX`] bytes of them, in a request to the
//! origin.

use std::sync::{Arc, Mutex, PoisonError};

use caching::{StoredMeta, VaryNames};
use serde::{Deserialize, Serialize};
use store::Key;

use crate::Look;
use crate::limits::{OFFERED_BYTES_MAX, VARIANTS_LISTED_MAX, VARIANTS_OFFERED_MAX, VARY_SETS_MAX};
use crate::partial::Partial;
use crate::stored::{Entry, Head, Stored, Wire};
use crate::watch::Watch;
use crate::{Cache, Lookup};

/// What a `Varies` takes beside its names and the keys it lists.
const STRUCTURE_BYTES: usize = 256;

/// How the responses of one URI differ.
#[derive(Debug)]
pub struct Varies {
    /// The latest to be named first, and at least one.
    sets: Box<[VarySet]>,
    listed: Mutex<Vec<Key>>,
}

/// Names that some of its responses differ by.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VarySet {
    names: VaryNames,
    /// Goes into the keys.
    number: u64,
}

impl Varies {
    fn new(sets: Vec<VarySet>, listed: Vec<Key>) -> Varies {
        Varies { sets: sets.into(), listed: Mutex::new(listed) }
    }

    /// The sets of names.
    pub fn sets(&self) -> &[VarySet] {
        &self.sets
    }

    /// As it was written; `None` if it is not what this program would have made.
    pub fn read(sets: Vec<VarySet>, listed: Vec<u128>) -> Option<Varies> {
        let fits = (1..=VARY_SETS_MAX).contains(&sets.len()) && listed.len() <= VARIANTS_LISTED_MAX;
        fits.then(|| Varies::new(sets, listed.into_iter().map(Key::from_u128).collect()))
    }

    /// With one more set, and without the oldest of too many.
    fn with(&self, set: VarySet) -> Varies {
        let mut sets = vec![set];
        sets.extend(self.sets.iter().take(VARY_SETS_MAX - 1).cloned());
        Varies::new(sets, self.keys())
    }

    fn set_of(&self, names: &VaryNames) -> Option<&VarySet> {
        self.sets.iter().find(|set| set.names == *names)
    }

    /// All the names, each once.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.sets.iter().flat_map(|set| set.names.iter()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Remembers that a response is stored under this key, and forgets the oldest of too many.
    fn list(&self, key: Key) {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.retain(|&there| there != key);
        if listed.len() >= VARIANTS_LISTED_MAX {
            listed.remove(0);
        }
        listed.push(key);
    }

    /// The keys remembered, the oldest first.
    pub fn keys(&self) -> Vec<Key> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the store accounts for it.
    pub fn accounted_bytes(&self) -> u64 {
        let names = self.sets.iter().flat_map(|set| set.names.iter());
        let names: usize = names.map(|name| name.len() + size_of::<Box<str>>()).sum();
        let sets = self.sets.len() * size_of::<VarySet>();
        let listed = VARIANTS_LISTED_MAX * size_of::<Key>();
        (STRUCTURE_BYTES + sets + names + listed) as u64
    }
}

/// The best that was found so far.
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

    /// Takes another in place of what it has, if that goes before it. What is whole and fresh
    /// answers whatever is asked.
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
    /// The stored response that a request selects, where they vary.
    #[inline]
    pub fn look_for_variant(
        &self,
        look: Look,
        uri: Key,
        varies: &Varies,
        request: &Wire<'_>,
        now_ms: u64,
    ) -> Lookup {
        let (mut best, mut uncacheable) = (Best::Nothing, false);
        for set in &varies.sets {
            let key = self.variant_key(uri, set, request);
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
                    uncacheable |= self.holds(until_ms, since, now_ms);
                }
                _ => {}
            }
        }
        match best {
            Best::Whole(stored, key) => Lookup::Found(stored, key),
            Best::Part(partial, key) => Lookup::Part(partial, key),
            Best::Nothing if uncacheable => Lookup::Uncacheable,
            Best::Nothing => {
                let key = self.asking_key(uri, varies, request);
                match self.store.peek(&key) {
                    Some(Entry::Uncacheable { until_ms, since })
                        if self.holds(until_ms, since, now_ms) =>
                    {
                        Lookup::Uncacheable
                    }
                    _ => Lookup::Absent(key),
                }
            }
        }
    }

    /// The keys under which there may be what this request selects.
    pub fn variant_keys(&self, uri: Key, varies: &Varies, request: &Wire<'_>) -> Vec<Key> {
        varies.sets.iter().map(|set| self.variant_key(uri, set, request)).collect()
    }

    #[inline]
    fn variant_key(&self, uri: Key, set: &VarySet, request: &Wire<'_>) -> Key {
        let mut builder = self.hasher.within(uri);
        builder.raw(&set.number.to_le_bytes());
        set.names.feed(request, |piece| builder.raw(piece));
        builder.finish()
    }

    /// The key by which fetches are collapsed that nothing is stored for: requests that no set
    /// tells apart. Of one set it is the key that the response will be stored under.
    fn asking_key(&self, uri: Key, varies: &Varies, request: &Wire<'_>) -> Key {
        let mut builder = self.hasher.within(uri);
        for set in &varies.sets {
            builder.raw(&set.number.to_le_bytes());
            set.names.feed(request, |piece| builder.raw(piece));
        }
        builder.finish()
    }

    /// The key under which a response with this head is to be stored, after noting at the URI how
    /// its responses differ, unless the URI has changed meanwhile.
    pub fn storage_key(&self, uri: Key, head: &Head, request: &Wire<'_>, watch: &Watch) -> Key {
        let there = match self.store.peek(&uri) {
            Some(Entry::Varies(there)) => Some(there),
            _ => None,
        };
        let names = match (&head.varies, &there) {
            (None, None) => return uri,
            (None, Some(_)) => VaryNames::default(),
            (Some((names, _)), _) => names.clone(),
        };
        if let Some(there) = &there
            && let Some(set) = there.set_of(&names)
        {
            let key = self.variant_key(uri, set, request);
            there.list(key);
            return key;
        }
        let set = VarySet { names, number: self.epoch() };
        let key = self.variant_key(uri, &set, request);
        let varies = match there {
            Some(there) => there.with(set),
            None => Varies::new(vec![set], Vec::new()),
        };
        varies.list(key);
        self.insert(watch, uri, Entry::Varies(Arc::new(varies)));
        key
    }

    /// Stored responses of a URI of which a request selects none, but one of which the origin may
    /// say is the answer: those with a tag to ask by, the latest first.
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

/// The tag that a stored response is offered by.
pub fn offered_tag<'s>(request: &Wire<'_>, stored: &'s Stored) -> Option<&'s [u8]> {
    let head = &stored.head;
    caching::offered_tag(request, head.status, &**head, &head.meta.validators)
}
