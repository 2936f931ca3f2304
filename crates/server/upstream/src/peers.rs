//! Peers that are asked before a request is sent, and their cache digests: what a peer probably
//! has, known without a query. [`crate::queries`] asks by ICP and HTCP.
//!
//! A peer is not asked while requests to it fail, nor for a while after [`FALSE_HITS_IN_ROW`]
//! answers in a row that were false hits.
//!
//! One task of the server fetches the digests, each from its own peer alone. The state of a peer
//! has its digest: all cores read it, and a reload keeps it. A peer with a useful digest gets no
//! queries.
//!
//! A digest was true when it was made. What the peer has stored since is missed, and what it has
//! dropped since is a false hit, as is one absent URL in eleven of a full digest. So most hits are
//! false if the peer has little of what is requested, and that is no fault of the digest. A digest
//! is left alone, until there is another, if it is wrong more often than right, and more often
//! than its bits explain ([`DIGEST_ODDS_FACTOR`], [`DIGEST_DROPPED_PERCENT`]).
//!
//! Who owns: a [`Peer`] is part of the configuration, and its state outlives a reload. What never
//! happens: a digest is consulted after its time, or with too many bits set.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use config::{PeerKind, Queries};
use peering::digest::{Digest, Key};
use peering::limits::PERCENT_SET_MAX;
use runtime::time::{self, Instant};

use crate::group::Group;
use crate::limits::{
    DIGEST_DROPPED_PERCENT, DIGEST_GRACE, DIGEST_JUDGED_AFTER, DIGEST_ODDS_FACTOR,
    DIGEST_RETRY_MAX, DIGEST_RETRY_MIN, FALSE_HITS_IN_ROW, PROBE_EVERY, REST_MAX, REST_MIN,
};

/// A peer that is asked before a request is sent.
#[derive(Debug)]
pub struct Peer {
    /// Its name: the host and port of its URL.
    pub name: String,
    /// How it is used.
    pub kind: PeerKind,
    /// The peer as a server for requests.
    pub group: Arc<Group>,
    pub(super) queries: Option<Queries>,
    pub(super) fetches_digest: bool,
    pub(super) state: Arc<PeerState>,
}

/// A peer that has a response, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its index.
    pub at: usize,
    /// How it is known.
    pub by: By,
}

/// How it is known what a peer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The peer said so.
    Query,
    /// Its digest has the URL.
    Digest,
}

/// The state of a peer, which all cores share and which outlives a reload.
#[derive(Debug, Default)]
pub(super) struct PeerState {
    /// It has left a query unanswered since its last answer.
    pub(super) silent: AtomicBool,
    /// When it was last asked in the background, in nanoseconds of the clock.
    probed_at: AtomicU64,
    false_in_row: AtomicU32,
    /// Until when it is left alone after false hits, in nanoseconds of the clock.
    rests_until: AtomicU64,
    pub(super) figures: PeerFigures,
    pub(super) digest: DigestState,
}

/// The counters of a peer.
#[derive(Debug, Default)]
pub(super) struct PeerFigures {
    pub(super) queries: AtomicU64,
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) unanswered: AtomicU64,
    pub(super) false_hits: AtomicU64,
    pub(super) rests: AtomicU64,
    pub(super) clears: AtomicU64,
}

impl Peer {
    /// Whether it has left a query unanswered since its last answer.
    pub fn is_silent(&self) -> bool {
        self.state.silent.load(Relaxed)
    }

    /// Whether it is asked by queries: not if there is a digest to go by.
    pub fn is_asked(&self) -> bool {
        self.queries.is_some() && self.digest().is_none()
    }

    /// Whether requests may go to it now.
    pub(super) fn is_usable(&self, now: Instant) -> bool {
        let rests_until = Instant::from_ns(self.state.rests_until.load(Relaxed));
        now >= rests_until && self.group.is_usable()
    }

    /// It had the response.
    pub fn note_true_hit(&self, by: By) {
        match by {
            By::Query => self.state.false_in_row.store(0, Relaxed),
            By::Digest => self.note_digest_hit(),
        }
    }

    /// Its hit was false: it has no such response after all. After many in a row it is left alone.
    pub fn note_false_hit(&self, by: By) {
        match by {
            By::Query => self.note_false_answer(time::now()),
            By::Digest => self.note_false_digest_hit(),
        }
    }

    /// The requests that were in flight when its rest began make that no longer.
    fn note_false_answer(&self, now: Instant) {
        let state = &self.state;
        state.figures.false_hits.fetch_add(1, Relaxed);
        let rests_until = state.rests_until.load(Relaxed);
        if now < Instant::from_ns(rests_until) {
            return;
        }
        let in_row = state.false_in_row.fetch_add(1, Relaxed).saturating_add(1);
        if !in_row.is_multiple_of(FALSE_HITS_IN_ROW) {
            return;
        }
        let doublings = (in_row / FALSE_HITS_IN_ROW - 1).min(16);
        let rest = (REST_MIN * (1 << doublings)).min(REST_MAX);
        state.rests_until.store((now + rest).as_ns(), Relaxed);
        state.figures.rests.fetch_add(1, Relaxed);
        let (peer, rest_s) = (&self.name, rest.as_secs());
        tracing::warn!(peer, in_row, rest_s, "a peer has not what it says, and is left alone");
    }

    pub(super) fn address(&self) -> Option<SocketAddr> {
        let addresses = self.group.members.first()?.state.addresses();
        Some(SocketAddr::new(addresses.first()?.ip(), self.queries?.port()))
    }

    /// Whether a silent peer should be asked again now.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let last = self.state.probed_at.load(Relaxed);
        now.since(Instant::from_ns(last)) >= PROBE_EVERY
            && self.state.probed_at.compare_exchange(last, now.as_ns(), Relaxed, Relaxed).is_ok()
    }

    pub(super) fn note_unanswered(&self) {
        self.state.figures.unanswered.fetch_add(1, Relaxed);
        if !self.state.silent.swap(true, Relaxed) {
            tracing::warn!(peer = self.name, "a peer does not answer queries");
        }
    }
}

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
pub struct Fetching(Arc<PeerState>);

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
    fn note_digest_hit(&self) {
        let state = &self.state.digest;
        state.figures.hits.fetch_add(1, Relaxed);
        state.odds.hits.fetch_add(1, Relaxed);
    }

    /// It had no response, although its digest said so.
    fn note_false_digest_hit(&self) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::DIGEST_GRACE;
    use crate::registry::Registry;
    use config::{AskedPeer, Origin};

    fn sibling(group: config::Group, queries: Option<Queries>) -> AskedPeer {
        AskedPeer::new(PeerKind::Sibling, group, queries, Duration::from_secs(2))
    }

    /// A sibling that is not asked and whose digest is fetched.
    fn with_digest() -> Arc<[Peer]> {
        let at = SocketAddr::from(([10, 0, 0, 1], 3128));
        let asked = sibling(config::Group::of("peer", [Origin::at(at)]), None);
        let asked = [AskedPeer { digest: true, ..asked }];
        let registry = Registry::default();
        registry.peers(&asked, &registry.groups([&asked[0].group]))
    }

    fn fetched(urls: &[&[u8]], percent_set: u32, lifetime: Duration) -> Fetched {
        let mut digest = Digest::new(10);
        urls.iter().for_each(|url| digest.add(&Key::of_get(url)));
        let (digest, at) = (Arc::new(digest), time::now());
        Fetched { digest, percent_set, bytes: 0, validators: Vec::new(), at, lifetime }
    }

    #[test]
    fn a_digest_is_consulted_in_its_time_and_if_it_is_useful() {
        let (peers, hour) = (with_digest(), Duration::from_secs(3600));
        let fetching = peers[0].begin_fetch().expect("it is due");
        assert!(peers[0].begin_fetch().is_none(), "one at a time");
        drop(fetching);
        assert_eq!(having(&peers, b"http://h/"), None);
        peers[0].hold_digest(fetched(&[b"http://h/"], 65, hour));
        assert_eq!((having(&peers, b"http://h/"), having(&peers, b"http://i/")), (Some(0), None));
        assert!(peers[0].begin_fetch().is_none(), "it is not due");
        peers[0].hold_digest(fetched(&[b"http://h/"], 66, hour));
        assert_eq!(having(&peers, b"http://h/"), None, "too many bits are set");
        let old = Fetched { at: Instant::from_ns(0), ..fetched(&[b"http://h/"], 1, hour) };
        assert!(old.is_usable(old.at + hour) && !old.is_usable(old.at + hour + DIGEST_GRACE));
    }

    #[test]
    fn a_failed_fetch_is_not_repeated_at_once_and_leaves_the_digest() {
        let peers = with_digest();
        peers[0].hold_digest(fetched(&[b"http://h/"], 1, Duration::ZERO));
        assert!(peers[0].begin_fetch().is_some(), "it is due at once");
        peers[0].note_no_digest("404");
        assert!(peers[0].begin_fetch().is_none());
        assert_eq!(having(&peers, b"http://h/"), Some(0));
    }

    #[test]
    fn a_reload_keeps_the_digest() {
        let at = SocketAddr::from(([10, 0, 0, 1], 3128));
        let asked = sibling(config::Group::of("peer", [Origin::at(at)]), None);
        let registry = Registry::default();
        let of = |digest: bool| {
            let asked = [AskedPeer { digest, ..asked.clone() }];
            registry.peers(&asked, &registry.groups([&asked[0].group]))
        };
        let before = of(true);
        before[0].hold_digest(fetched(&[b"http://h/"], 1, Duration::from_secs(3600)));
        let after = of(true);
        assert_eq!(having(&after, b"http://h/"), Some(0));
        assert!(after[0].begin_fetch().is_none(), "it is not due");
        assert_eq!(having(&of(false), b"http://h/"), None, "it is configured no more");
    }

    #[test]
    fn many_false_hits_in_a_row_are_a_reason_to_leave_a_peer_alone() {
        let peers = with_digest();
        let mut now = time::now();
        for _ in 1..FALSE_HITS_IN_ROW {
            peers[0].note_false_answer(now);
        }
        peers[0].note_true_hit(By::Query);
        assert!(peers[0].is_usable(now));
        for round in 0..3 {
            for _ in 0..FALSE_HITS_IN_ROW {
                peers[0].note_false_answer(now);
            }
            assert_eq!(peers[0].state.figures.rests.load(Relaxed), round + 1);
            // The third rest is four times as long as the first.
            let rest = REST_MIN * (1 << round);
            assert!(!peers[0].is_usable(now + rest / 10 * 9) && peers[0].is_usable(now + rest));
            now += rest;
        }
    }

    #[test]
    fn false_hits_of_requests_in_flight_do_not_make_a_rest_longer() {
        let peers = with_digest();
        let now = time::now();
        for _ in 0..FALSE_HITS_IN_ROW * 10 {
            peers[0].note_false_answer(now);
        }
        assert_eq!(peers[0].state.figures.rests.load(Relaxed), 1);
        assert!(!peers[0].is_usable(now) && peers[0].is_usable(now + REST_MIN));
    }

    /// The peer has each twentieth of what is requested. `f` false hits come from a thousand URLs
    /// that it has not got.
    fn requests(peers: &[Peer], f_per_mille: u64) {
        for at in 0..2_000_u64 {
            let is_there = at.is_multiple_of(20);
            let is_false = at * f_per_mille / 1_000 != (at + 1) * f_per_mille / 1_000;
            let url: &[u8] = if is_there || is_false { b"http://h/" } else { b"http://none/" };
            match look_up(peers, url) {
                Some(_) if is_there => peers[0].note_true_hit(By::Digest),
                Some(_) => peers[0].note_false_hit(By::Digest),
                None => {}
            }
        }
    }

    #[test]
    fn a_correct_digest_with_few_of_the_requested_urls_is_not_left_alone() {
        // With 50 % of its bits set, 6.25 % of the URLs that it has not got are false hits.
        let (peers, hour) = (with_digest(), Duration::from_secs(3600));
        peers[0].hold_digest(fetched(&[b"http://h/"], 50, hour));
        requests(&peers, 66);
        let figures = &peers[0].state.digest.figures;
        assert_eq!(figures.hits.load(Relaxed), 100);
        assert!(figures.false_hits.load(Relaxed) >= 100);
        assert_eq!(peers[0].state.figures.rests.load(Relaxed), 0);
        assert_eq!(having(&peers, b"http://h/"), Some(0));
    }

    #[test]
    fn a_digest_that_is_wrong_more_often_than_its_bits_explain_is_left_alone_until_the_next() {
        let (peers, hour) = (with_digest(), Duration::from_secs(3600));
        let wrong = fetched(&[b"http://h/"], 50, hour);
        peers[0].hold_digest(wrong.clone());
        requests(&peers, 300);
        assert_eq!(peers[0].state.figures.rests.load(Relaxed), 1);
        assert_eq!(having(&peers, b"http://h/"), None);
        assert!(peers[0].is_usable(time::now()), "it can be asked");
        // One that is confirmed is the same one.
        peers[0].hold_digest(wrong);
        assert_eq!(having(&peers, b"http://h/"), None);
        peers[0].hold_digest(fetched(&[b"http://h/"], 50, hour));
        assert_eq!(having(&peers, b"http://h/"), Some(0));
    }

    #[test]
    fn a_digest_that_is_mostly_right_is_not_left_alone() {
        let (peers, hour) = (with_digest(), Duration::from_secs(3600));
        peers[0].hold_digest(fetched(&[b"http://h/"], 50, hour));
        for at in 0..3_000 {
            assert_eq!(look_up(&peers, b"http://h/").map(|found| found.at), Some(0));
            match at % 3 {
                0 => peers[0].note_false_hit(By::Digest),
                _ => peers[0].note_true_hit(By::Digest),
            }
        }
        assert_eq!(peers[0].state.figures.rests.load(Relaxed), 0);
    }
}
