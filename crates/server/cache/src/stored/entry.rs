//! The entries of the store.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use caching::{StoredMeta, VaryNames};
use serde::{Deserialize, Serialize};
use store::{Generation, Key, Mark};

use crate::limits::{VARIANTS_LISTED_MAX, VARY_SETS_MAX};
use crate::partial::Partial;
use crate::stored::Stored;
use crate::stored::resource::Resource;

/// An entry of the store.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A response.
    Response(Arc<Stored>),
    /// Parts of a response.
    Part(Arc<Partial>),
    /// The responses of this URI vary by these fields: look again under a key made of their values.
    Varies(Arc<Varies>),
    /// Nothing is stored, and the last response could not be stored. Until this time, requests do
    /// not wait for each other. The first response that is stored takes the place of this entry.
    Uncacheable {
        /// Unix milliseconds.
        until_ms: u64,
        /// The low bits of the purge count when the entry was made: a later purge ends the entry
        /// early.
        since: u32,
    },
}

impl Entry {
    /// The generation up to which purges were checked, and the data by which purges match the
    /// entry; `None` if the entry is neither a response nor parts of a response.
    pub fn purge_state(&self) -> Option<(&AtomicU64, &Resource)> {
        match self {
            Entry::Response(stored) => Some((&stored.checked, &stored.head.resource)),
            Entry::Part(partial) => Some((&partial.checked, &partial.head.resource)),
            Entry::Varies(_) | Entry::Uncacheable { .. } => None,
        }
    }

    /// The same entry, stale since a soft purge. No other purge up to `checked` concerns it.
    pub fn stale_from(&self, mark: Mark, checked: Generation) -> Entry {
        match self {
            Entry::Response(stored) => Entry::Response(Arc::new(stored.stale_from(mark, checked))),
            Entry::Part(partial) => Entry::Part(Arc::new(partial.stale_from(mark, checked))),
            other => other.clone(),
        }
    }

    /// Whether both are the same stored response, or the same parts of a response.
    pub fn is_same(&self, other: &Entry) -> bool {
        match (self, other) {
            (Entry::Part(this), Entry::Part(other)) => Arc::ptr_eq(this, other),
            (this, Entry::Response(stored)) => this.is(stored),
            _ => false,
        }
    }

    /// Whether the entry is the mark of a response that could not be stored.
    pub fn is_mark(&self) -> bool {
        matches!(self, Entry::Uncacheable { .. })
    }

    /// Whether the entry is this response.
    pub fn is(&self, stored: &Arc<Stored>) -> bool {
        matches!(self, Entry::Response(there) if Arc::ptr_eq(there, stored))
    }

    /// The caching metadata, if the entry is a response or parts of a response.
    pub fn meta(&self) -> Option<&StoredMeta> {
        match self {
            Entry::Response(stored) => Some(&stored.head.meta),
            Entry::Part(partial) => Some(&partial.head.meta),
            Entry::Varies(_) | Entry::Uncacheable { .. } => None,
        }
    }

    /// The bytes that the store accounts for this entry.
    pub fn accounted_bytes(&self) -> u64 {
        match self {
            Entry::Response(stored) => stored.accounted_bytes(),
            Entry::Part(partial) => partial.accounted_bytes(),
            Entry::Varies(varies) => varies.accounted_bytes(),
            Entry::Uncacheable { .. } => 0,
        }
    }
}

/// Bytes of a `Varies` besides its names and listed keys.
const STRUCTURE_BYTES: usize = 256;

/// What the responses of one URI vary by.
#[derive(Debug)]
pub struct Varies {
    /// At least one; the most recently named comes first.
    pub(crate) sets: Box<[VarySet]>,
    listed: Mutex<Vec<Key>>,
}

/// Names that some of the responses vary by.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VarySet {
    pub(crate) names: VaryNames,
    /// Part of the keys.
    pub(crate) number: u64,
}

impl Varies {
    pub(crate) fn new(sets: Vec<VarySet>, listed: Vec<Key>) -> Varies {
        assert!((1..=VARY_SETS_MAX).contains(&sets.len()) && listed.len() <= VARIANTS_LISTED_MAX);
        debug_assert!(
            sets.iter()
                .enumerate()
                .all(|(at, set)| sets[..at].iter().all(|o| o.names != set.names)),
            "no two sets have the same names"
        );
        Varies { sets: sets.into(), listed: Mutex::new(listed) }
    }

    /// The sets of names.
    pub fn sets(&self) -> &[VarySet] {
        &self.sets
    }

    /// Restores a saved entry; `None` if this program could not have written it.
    pub fn read(sets: Vec<VarySet>, listed: Vec<u128>) -> Option<Varies> {
        let fits = (1..=VARY_SETS_MAX).contains(&sets.len()) && listed.len() <= VARIANTS_LISTED_MAX;
        fits.then(|| Varies::new(sets, listed.into_iter().map(Key::from_u128).collect()))
    }

    /// Adds a set, and drops the oldest beyond the maximum. A set of the same names, which a
    /// response has added meanwhile, is dropped, too.
    pub(crate) fn with(&self, set: VarySet) -> Varies {
        let others = self.sets.iter().filter(|other| other.names != set.names);
        let others: Vec<VarySet> = others.take(VARY_SETS_MAX - 1).cloned().collect();
        let mut sets = vec![set];
        sets.extend(others);
        debug_assert!(sets.len() <= VARY_SETS_MAX);
        Varies::new(sets, self.keys())
    }

    pub(crate) fn has(&self, set: &VarySet) -> bool {
        self.sets.iter().any(|other| other.number == set.number)
    }

    pub(crate) fn set_of(&self, names: &VaryNames) -> Option<&VarySet> {
        self.sets.iter().find(|set| set.names == *names)
    }

    /// All names, without duplicates.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.sets.iter().flat_map(|set| set.names.iter()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Lists the key of a stored response, and drops the oldest beyond the maximum.
    pub(crate) fn list(&self, key: Key) {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.retain(|&there| there != key);
        if listed.len() >= VARIANTS_LISTED_MAX {
            listed.remove(0);
        }
        listed.push(key);
        debug_assert!(listed.len() <= VARIANTS_LISTED_MAX);
    }

    /// The listed keys, oldest first.
    pub fn keys(&self) -> Vec<Key> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The bytes that the store accounts for it.
    pub fn accounted_bytes(&self) -> u64 {
        let names = self.sets.iter().flat_map(|set| set.names.iter());
        let names: usize = names.map(|name| name.len() + size_of::<Box<str>>()).sum();
        let sets = self.sets.len() * size_of::<VarySet>();
        let listed = VARIANTS_LISTED_MAX * size_of::<Key>();
        (STRUCTURE_BYTES + sets + names + listed) as u64
    }
}
