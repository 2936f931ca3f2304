//! What the origin is asked for, and the stored response that it may confirm.

use std::sync::Arc;

use cache::partial::Partial;
use cache::stored::{Entry, Head, Stored};
use cache::watch::Stamp;
use caching::cache_status::Forward;
use caching::range::ByteRange;
use caching::{StoredMeta, Validators};
use store::Key;

/// What the origin is asked for on behalf of the store, and why.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) uri: Key,
    pub(crate) key: Key,
    pub(crate) why: Forward,
    pub(crate) what: What,
    /// The stored response, if one is selected.
    pub(crate) held: Option<Held>,
    /// Stored responses to other requests, one of which the origin may confirm for this one.
    pub(crate) offered: Vec<Arc<Stored>>,
    /// Requests for the key do not wait for each other: an answer could not be stored.
    pub(crate) unshared: bool,
}

/// A request for whose key requests do not wait for each other. Its answer is stored if it may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unshared {
    pub(crate) uri: Key,
    pub(crate) key: Key,
    pub(crate) why: Forward,
    /// Of its URI, before the request is sent.
    pub(crate) stamp: Stamp,
}

impl Unshared {
    pub(crate) fn ask(self) -> Ask {
        Ask { unshared: true, ..Ask::of(self.uri, self.key, self.why, None) }
    }
}

/// How much the origin is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The whole; a stored response is validated.
    Whole,
    /// The range that the client asks for. `held`: it is stored, and is validated.
    Range { held: bool },
    /// What the stored parts miss.
    Rest(ByteRange),
}

/// A stored response, or parts of one.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    Whole(Arc<Stored>),
    Part(Arc<Partial>),
}

impl Held {
    pub(crate) fn head(&self) -> &Head {
        match self {
            Held::Whole(stored) => &stored.head,
            Held::Part(partial) => &partial.head,
        }
    }

    pub(crate) fn whole(&self) -> Option<&Arc<Stored>> {
        match self {
            Held::Whole(stored) => Some(stored),
            Held::Part(_) => None,
        }
    }

    pub(crate) fn meta(&self) -> &StoredMeta {
        &self.head().meta
    }

    pub(crate) fn entry(&self) -> Entry {
        match self {
            Held::Whole(stored) => Entry::Response(Arc::clone(stored)),
            Held::Part(partial) => Entry::Part(Arc::clone(partial)),
        }
    }
}

impl Ask {
    /// For the whole response.
    pub(crate) fn of(uri: Key, key: Key, why: Forward, held: Option<Held>) -> Ask {
        Ask { uri, key, why, what: What::Whole, held, offered: Vec::new(), unshared: false }
    }

    /// Whether the answer probably serves one request only, so that no other gains by waiting for
    /// it.
    pub(crate) fn is_for_one(&self) -> bool {
        self.unshared || self.held.as_ref().is_some_and(|held| held.meta().is_never_fresh())
    }

    /// The stored response that would answer the request if it were not too old.
    pub(crate) fn stale(&self) -> Option<&Held> {
        self.held.as_ref().filter(|held| match held {
            Held::Whole(_) => true,
            Held::Part(_) => self.what == What::Range { held: true },
        })
    }

    /// Whether our request has conditions, so that the origin may answer with a 304.
    pub(crate) fn is_conditional(&self) -> bool {
        self.validated().is_some() || !self.offered.is_empty()
    }

    /// The validators that the origin is to confirm.
    pub(crate) fn validated(&self) -> Option<&Validators> {
        self.stale().map(|held| &held.meta().validators)
    }
}
