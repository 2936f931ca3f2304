//! What the origin is to be asked for, and what is held already.

use std::sync::Arc;

use cache::partial::Partial;
use cache::stored::{Head, Stored};
use caching::cache_status::Forward;
use caching::range::ByteRange;
use caching::{StoredMeta, Validators};
use store::Key;

/// What is to be asked for, and why.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) uri: Key,
    pub(crate) key: Key,
    pub(crate) why: Forward,
    pub(crate) what: What,
    /// What is stored already.
    pub(crate) held: Held,
    /// What is stored for other requests, and may be the answer if the origin says so.
    pub(crate) offered: Vec<Arc<Stored>>,
}

/// How much is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The whole; what is stored is validated.
    Whole,
    /// The range that the client asks for. `held`: it is stored, and is validated.
    Range { held: bool },
    /// What the stored parts miss.
    Rest(ByteRange),
}

/// What is stored, and may not be used without asking.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    Nothing,
    Whole(Arc<Stored>),
    Part(Arc<Partial>),
}

impl Held {
    pub(crate) fn head(&self) -> Option<&Head> {
        match self {
            Held::Nothing => None,
            Held::Whole(stored) => Some(&stored.head),
            Held::Part(partial) => Some(&partial.head),
        }
    }

    pub(crate) fn meta(&self) -> Option<&StoredMeta> {
        self.head().map(|head| &head.meta)
    }
}

impl Ask {
    /// Of the whole.
    pub(crate) fn of(uri: Key, key: Key, why: Forward, held: Held) -> Ask {
        Ask { uri, key, why, what: What::Whole, held, offered: Vec::new() }
    }

    /// Whether it is for one request at a time, so that nobody gains by waiting for it.
    pub(crate) fn is_for_one(&self) -> bool {
        self.held.meta().is_some_and(StoredMeta::is_never_fresh)
    }

    /// Whether what is held would answer the request, were it not for its age.
    pub(crate) fn may_be_answered_stale(&self) -> bool {
        match self.held {
            Held::Nothing => false,
            Held::Whole(_) => true,
            Held::Part(_) => self.what == What::Range { held: true },
        }
    }

    /// Whether the origin may answer with a 304 to conditions of ours.
    pub(crate) fn is_conditional(&self) -> bool {
        self.validated().is_some() || !self.offered.is_empty()
    }

    /// What the origin is to confirm.
    pub(crate) fn validated(&self) -> Option<&Validators> {
        self.held.meta().filter(|_| self.may_be_answered_stale()).map(|meta| &meta.validators)
    }
}
