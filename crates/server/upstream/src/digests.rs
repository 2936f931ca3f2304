//! The cache digests of peers: what a peer probably has, known without a query.
//!
//! One task of the server fetches them, each from its own peer alone. The state of a peer has its
//! digest: all cores read it, and a reload keeps it. A peer with a useful digest gets no queries.
//!
//! A digest was true when it was made. What the peer has stored since is missed, and what it has
//! dropped since is a false hit, as is one absent URL in eleven of a full digest. So most hits are
//! false if the peer has little of what is requested, and that is no fault of the digest. A digest
//! is left alone, until there is another, if it is wrong more often than right, and more often
//! than its bits explain ([`DIGEST_ODDS_FACTOR`], [`DIGEST_DROPPED_PERCENT`]).
//!
//! What never happens: a digest is consulted after its time, or with too many bits set.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use peering::digest::{Digest, Key};
use peering::limits::PERCENT_SET_MAX;
use runtime::time::{self, Instant};

use crate::limits::{
    DIGEST_DROPPED_PERCENT, DIGEST_GRACE, DIGEST_JUDGED_AFTER, DIGEST_ODDS_FACTOR,
    DIGEST_RETRY_MAX, DIGEST_RETRY_MIN,
};
use crate::peers::{By, Found, Peer};

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
    odds: Odds,
    pub(super) figures: DigestFigures,
}

/// What came of the digest that is held now.
#[derive(Debug, Default)]
struct Odds {
    /// URLs that were looked up in it.
    looked_up: AtomicU64,
    hits: AtomicU64,
    false_hits: AtomicU64,
    /// It is wrong too often.
    is_left_alone: AtomicBool,
}

impl Odds {
    fn clear(&self) {
        for count in [&self.looked_up, &self.hits, &self.false_hits] {
            count.store(0, Relaxed);
        }
        self.is_left_alone.store(false, Relaxed);
    }

    /// Whether there are more false hits than the share of set bits explains.
    fn are_bad(&self, percent_set: u32) -> bool {
        let (hits, false_hits) = (self.hits.load(Relaxed), self.false_hits.load(Relaxed));
        let absent = self.looked_up.load(Relaxed).saturating_sub(hits);
        // In millionths of what the peer has not got.
        let by_chance = u64::from(percent_set).pow(4) / 100;
        let most = DIGEST_ODDS_FACTOR * by_chance + DIGEST_DROPPED_PERCENT * 10_000;
        absent >= DIGEST_JUDGED_AFTER
            && false_hits > hits
            && false_hits.saturating_mul(1_000_000) > absent.saturating_mul(most)
    }
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
        let next = Some(Arc::new(fetched));
        let before = {
            let mut held = state.held.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *held, next.clone())
        };
        let digest = |of: &Option<Arc<Fetched>>| of.as_ref().map(|of| Arc::as_ptr(&of.digest));
        if digest(&before) != digest(&next) {
            state.odds.clear();
        }
    }

    /// It had the response, as its digest said.
    pub(super) fn note_digest_hit(&self) {
        let state = &self.state.digest;
        state.figures.hits.fetch_add(1, Relaxed);
        state.odds.hits.fetch_add(1, Relaxed);
    }

    /// It had no response, although its digest said so.
    pub(super) fn note_false_digest_hit(&self) {
        let state = &self.state.digest;
        state.figures.false_hits.fetch_add(1, Relaxed);
        state.odds.false_hits.fetch_add(1, Relaxed);
        let percent_set = self.fetched().map_or(0, |fetched| fetched.percent_set);
        if state.odds.are_bad(percent_set) && !state.odds.is_left_alone.swap(true, Relaxed) {
            self.state.figures.rests.fetch_add(1, Relaxed);
            let peer = &self.name;
            tracing::warn!(peer, "the digest of a peer is wrong too often, and is left alone");
        }
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
        if !self.fetches_digest || self.state.digest.odds.is_left_alone.load(Relaxed) {
            return None;
        }
        self.fetched().filter(|fetched| fetched.is_usable(time::now()))
    }
}

/// The first peer that may be used and whose digest has this URL.
pub fn having(peers: &[Peer], url: &[u8]) -> Option<usize> {
    position(peers, url, |_| {})
}

/// The same for a request, which is counted.
pub(super) fn look_up(peers: &[Peer], url: &[u8]) -> Option<Found> {
    let count = |peer: &Peer| {
        peer.state.digest.odds.looked_up.fetch_add(1, Relaxed);
    };
    position(peers, url, count).map(|at| Found { at, by: By::Digest })
}

fn position(peers: &[Peer], url: &[u8], looked_up: impl Fn(&Peer)) -> Option<usize> {
    if !peers.iter().any(|peer| peer.fetches_digest) {
        return None;
    }
    let key = Key::of_get(url);
    let has = |peer: &Peer| {
        peer.digest().is_some_and(|of| {
            looked_up(peer);
            of.digest.contains(&key)
        })
    };
    // A peer that rests after false answers to queries is judged by its digest all the same.
    peers.iter().position(|peer| peer.group.is_usable() && has(peer))
}
