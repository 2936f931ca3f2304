//! The cache digests of peers: what a peer probably has, known without a query.
//!
//! One task of the server fetches them, each from its own peer alone. The state of a peer has its
//! digest: all cores read it, and a reload keeps it. A peer with a useful digest gets no queries.
//!
//! A digest was true when it was made. What the peer has stored since is missed, and what it has
//! dropped since is a false hit, as is one URL in eleven of a full digest. So a peer whose hits
//! have all been false for a while is left alone for a time that grows ([`super::peers`]).
//!
//! What never happens: a digest is consulted after its time, or with too many bits set.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use peering::digest::{Digest, Key};
use peering::limits::PERCENT_SET_MAX;
use runtime::time::{self, Instant};

use crate::limits::{DIGEST_GRACE, DIGEST_RETRY_MAX, DIGEST_RETRY_MIN};
use crate::peers::Peer;

/// A digest that was fetched, and what its peer said about it.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The digest.
    pub digest: Arc<Digest<Vec<u8>>>,
    /// How many percent of its bits are set.
    pub percent_set: u32,
    /// Its bytes as they were sent.
    pub bytes: usize,
    /// Its validators, as field lines of the next request for it.
    pub validators: Vec<u8>,
    /// When it was fetched or confirmed.
    pub at: Instant,
    /// After how long it is fetched again.
    pub lifetime: Duration,
}

impl Fetched {
    /// Whether requests may go by it.
    pub(super) fn is_usable(&self, now: Instant) -> bool {
        self.percent_set <= PERCENT_SET_MAX && now.since(self.at) < self.lifetime + DIGEST_GRACE
    }
}

/// The digest of a peer, which outlives a reload.
#[derive(Debug, Default)]
pub(super) struct DigestState {
    /// Locked for as long as a pointer is copied.
    held: RwLock<Option<Arc<Fetched>>>,
    /// It is being fetched.
    fetching: AtomicBool,
    /// When it is to be fetched, in nanoseconds of the clock; 0: now.
    due: AtomicU64,
    failed_in_row: AtomicU32,
    pub(super) figures: DigestFigures,
}

/// The counters of a digest.
#[derive(Debug, Default)]
pub(super) struct DigestFigures {
    pub(super) hits: AtomicU64,
    pub(super) false_hits: AtomicU64,
    pub(super) fetches: AtomicU64,
    pub(super) failures: AtomicU64,
}

/// A fetch in progress. It ends when this is dropped.
#[derive(Debug)]
pub struct Fetching(Arc<super::peers::PeerState>);

impl Drop for Fetching {
    fn drop(&mut self) {
        self.0.digest.fetching.store(false, Relaxed);
    }
}

impl Peer {
    /// Begins to fetch its digest, if that is configured, due and not in progress.
    pub fn begin_fetch(&self) -> Option<Fetching> {
        let state = &self.state.digest;
        let due = Instant::from_ns(state.due.load(Relaxed));
        let begins =
            self.fetches_digest && time::now() >= due && !state.fetching.swap(true, Relaxed);
        begins.then(|| Fetching(Arc::clone(&self.state)))
    }

    /// The last digest, whether it may be used or not.
    pub fn fetched(&self) -> Option<Arc<Fetched>> {
        let held = &self.state.digest.held;
        held.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A digest was fetched, or an old one confirmed.
    pub fn hold_digest(&self, fetched: Fetched) {
        let state = &self.state.digest;
        if !fetched.is_usable(fetched.at) {
            let (peer, percent) = (&self.name, fetched.percent_set);
            tracing::warn!(peer, percent, "the digest of a peer has too many bits set");
        }
        state.due.store((fetched.at + fetched.lifetime).as_ns(), Relaxed);
        state.failed_in_row.store(0, Relaxed);
        state.figures.fetches.fetch_add(1, Relaxed);
        *state.held.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(fetched));
    }

    /// Its digest could not be fetched, for this reason. It is tried again after a time that grows.
    pub fn note_no_digest(&self, why: &str) {
        let state = &self.state.digest;
        let before = state.failed_in_row.fetch_add(1, Relaxed);
        let pause = (DIGEST_RETRY_MIN * (1 << before.min(16))).min(DIGEST_RETRY_MAX);
        state.due.store((time::now() + pause).as_ns(), Relaxed);
        state.figures.failures.fetch_add(1, Relaxed);
        if before == 0 {
            tracing::warn!(peer = self.name, why, "the digest of a peer was not fetched");
        }
    }

    /// The digest that requests go by, if there is one.
    pub(super) fn digest(&self) -> Option<Arc<Fetched>> {
        if !self.fetches_digest {
            return None;
        }
        self.fetched().filter(|fetched| fetched.is_usable(time::now()))
    }
}

/// The first peer that may be used and whose digest has this URL.
pub fn having(peers: &[Peer], url: &[u8]) -> Option<usize> {
    if !peers.iter().any(|peer| peer.fetches_digest) {
        return None;
    }
    let (key, now) = (Key::of_get(url), time::now());
    let has = |peer: &Peer| peer.digest().is_some_and(|of| of.digest.contains(&key));
    peers.iter().position(|peer| peer.is_usable(now) && has(peer))
}
