//! Asking peers whether they have a response, by ICP or HTCP (RFC 2186, RFC 2756) or by their
//! digests ([`super::digests`]), and notifying them of purges (CLR of HTCP).
//!
//! ```text
//!   a request that misses --> a peer whose digest has it, or else
//!                        |--> a query to each peer that answers --> the first hit, or a miss from
//!                        |                                          all, or the time-out
//!                        '--> a query to each peer that does not, from time to time: no one waits
//! ```
//!
//! A peer that has left one query unanswered is *silent*. It is asked again by queries that no
//! request waits for, and its next answer in time ends the silence. So a peer that has died, or has
//! become too slow, costs the requests that were waiting at that moment their time-out, and no
//! others. A peer is not asked while requests to it fail either, nor for a while after
//! [`FALSE_HITS_IN_ROW`] answers in a row that were false hits. Digests are judged by their odds.
//!
//! Each core has a socket for each family, at a port that the system chooses. A query has a random
//! number. An answer counts if it has the number of an outstanding query and comes from the address
//! that the query was sent to: a sender that does not see the queries cannot forge a hit.
//!
//! Who owns: a core owns its sockets and its outstanding queries; a [`Peer`] is part of the
//! configuration, and its state outlives a reload. What never happens: a core has more than
//! [`QUERIES_MAX`] outstanding queries; an answer makes us send anything.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::task::{Poll, Waker};
use std::time::Duration;

use config::{PeerKind, Queries};
use hashbrown::HashMap;
use peering::htcp;
use peering::icp::{Kind, Message};
use peering::limits::ICP_BYTES_MAX;
use runtime::net::UdpSocket;
use runtime::time::{self, Instant};

use crate::digests::{self, DigestState};
use crate::group::Group;
use crate::limits::{FALSE_HITS_IN_ROW, PROBE_EVERY, QUERIES_MAX, REST_MAX, REST_MIN};

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
    silent: AtomicBool,
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

    fn address(&self) -> Option<SocketAddr> {
        let addresses = self.group.members.first()?.state.addresses();
        Some(SocketAddr::new(addresses.first()?.ip(), self.queries?.port()))
    }

    /// Whether a silent peer should be asked again now.
    fn is_due(&self, now: Instant) -> bool {
        let last = self.state.probed_at.load(Relaxed);
        now.since(Instant::from_ns(last)) >= PROBE_EVERY
            && self.state.probed_at.compare_exchange(last, now.as_ns(), Relaxed, Relaxed).is_ok()
    }

    fn note_unanswered(&self) {
        self.state.figures.unanswered.fetch_add(1, Relaxed);
        if !self.state.silent.swap(true, Relaxed) {
            tracing::warn!(peer = self.name, "a peer does not answer queries");
        }
    }
}

/// The queries of one core.
#[derive(Debug, Default)]
pub struct Asker(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    sockets: RefCell<[Option<Rc<UdpSocket>>; 2]>,
    outstanding: RefCell<HashMap<u32, Query>>,
    /// How many of them no request waits for.
    probes: Cell<usize>,
    secret: RandomState,
    next: Cell<u64>,
}

/// An outstanding query.
#[derive(Debug)]
struct Query {
    to: SocketAddr,
    peer: Arc<PeerState>,
    /// The index of the peer, for the request that waits; `None`: no request does.
    waits: Option<(usize, Rc<Round>)>,
    sent: Instant,
    /// An answer that comes later is too late.
    limit: Duration,
}

/// The queries that one request waits for.
#[derive(Debug, Default)]
struct Round {
    unanswered: Cell<usize>,
    hit: Cell<Option<usize>>,
    waker: RefCell<Option<Waker>>,
}

impl Asker {
    /// Asks these peers for a URL, for a request with the fields that `fields` returns. Returns the
    /// first that has a response.
    pub async fn ask(
        &self,
        peers: &[Peer],
        (url, fields): (&[u8], impl Fn() -> Vec<u8>),
        limit: Duration,
    ) -> Option<Found> {
        if let Some(found) = digests::look_up(peers, url) {
            return Some(found);
        }
        if !peers.iter().any(Peer::is_asked) {
            return None;
        }
        let (inner, fields) = (&self.0, fields());
        let what = (url, &fields[..]);
        let round = Rc::new(Round::default());
        let mut waiting = Waiting { inner, sent: Vec::new() };
        let now = time::now();
        for (at, peer) in peers.iter().enumerate() {
            let waits = match peer.is_silent() {
                _ if !peer.is_usable(now) || !peer.is_asked() => continue,
                false => Some((at, Rc::clone(&round))),
                true if peer.is_due(now) => None,
                true => continue,
            };
            let is_waited_for = waits.is_some();
            let Some((id, to, bytes)) = inner.query(peer, what, limit, waits) else { continue };
            // Before it is sent: the answer may come, or the request end, at any time after.
            if is_waited_for {
                waiting.sent.push((id, at));
                round.unanswered.set(round.unanswered.get() + 1);
            }
            inner.send(to, &bytes).await;
        }
        let answered = poll_fn(|cx| {
            if round.hit.get().is_some() || round.unanswered.get() == 0 {
                return Poll::Ready(());
            }
            *round.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        });
        if time::timeout(limit, answered).await.is_err() {
            let outstanding = inner.outstanding.borrow();
            for (_, at) in waiting.sent.iter().filter(|(id, _)| outstanding.contains_key(id)) {
                peers[*at].note_unanswered();
            }
        }
        round.hit.get().map(|at| Found { at, by: By::Query })
    }

    /// Notifies these peers that a URL was purged. What is lost on the way is not sent again.
    pub async fn clear(&self, peers: &[Peer], url: &[u8]) {
        for peer in peers.iter().filter(|peer| matches!(peer.queries, Some(Queries::Htcp(_)))) {
            let Some(to) = peer.address() else { continue };
            let specifier =
                htcp::Specifier { method: b"GET", uri: url, version: HTTP, fields: b"" };
            let request = htcp::Request::Clear { reason: 0, specifier };
            let mut bytes = Vec::new();
            let message = htcp::Message::request(self.0.draw(), request, false);
            if message.write(&mut bytes).is_err() {
                continue;
            }
            peer.state.figures.clears.fetch_add(1, Relaxed);
            self.0.send(to, &bytes).await;
        }
    }
}

/// Forgets the queries of a request that waits no longer.
struct Waiting<'i> {
    inner: &'i Inner,
    sent: Vec<(u32, usize)>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut outstanding = self.inner.outstanding.borrow_mut();
        for (id, _) in &self.sent {
            outstanding.remove(id);
        }
    }
}

impl Inner {
    /// A query to be sent: its number, its destination and its bytes. It is outstanding from now
    /// on. `None`: too many are, or it is too long for a datagram.
    fn query(
        &self,
        peer: &Peer,
        (url, fields): (&[u8], &[u8]),
        limit: Duration,
        waits: Option<(usize, Rc<Round>)>,
    ) -> Option<(u32, SocketAddr, Vec<u8>)> {
        let to = peer.address()?;
        let now = time::now();
        let id = self.draw();
        let mut bytes = Vec::with_capacity(url.len() + fields.len() + 64);
        let written = match peer.queries? {
            Queries::Icp(_) => Message::query(id, url).write(&mut bytes),
            Queries::Htcp(_) => {
                let specifier = htcp::Specifier { method: b"GET", uri: url, version: HTTP, fields };
                let request = htcp::Request::Test(specifier);
                htcp::Message::request(id, request, true).write(&mut bytes)
            }
        };
        written.ok()?;
        let mut outstanding = self.outstanding.borrow_mut();
        if outstanding.len() >= QUERIES_MAX && self.probes.get() > 0 {
            let is_kept =
                |query: &Query| query.waits.is_some() || now.since(query.sent) < query.limit;
            outstanding.retain(|_, query| is_kept(query));
            let probes = outstanding.values().filter(|query| query.waits.is_none());
            self.probes.set(probes.count());
        }
        if outstanding.len() >= QUERIES_MAX || outstanding.contains_key(&id) {
            return None;
        }
        self.probes.set(self.probes.get() + usize::from(waits.is_none()));
        peer.state.figures.queries.fetch_add(1, Relaxed);
        let peer = Arc::clone(&peer.state);
        outstanding.insert(id, Query { to, peer, waits, sent: now, limit });
        Some((id, to, bytes))
    }

    /// Sends a datagram now or never: what the socket has no room for is lost, as on the way.
    async fn send(self: &Rc<Self>, to: SocketAddr, bytes: &[u8]) {
        let sent = match self.socket(to) {
            Ok(socket) => {
                let mut sending = pin!(socket.send_to(bytes, to));
                match poll_fn(|cx| Poll::Ready(sending.as_mut().poll(cx))).await {
                    Poll::Ready(sent) => sent.map(drop),
                    Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
                }
            }
            Err(error) => Err(error),
        };
        if let Err(error) = sent {
            tracing::debug!(%to, %error, "a datagram to a peer was not sent");
        }
    }

    /// A number that cannot be predicted from others.
    fn draw(&self) -> u32 {
        let next = self.next.get();
        self.next.set(next + 1);
        self.secret.hash_one(next) as u32
    }

    /// The socket for the family of an address.
    fn socket(self: &Rc<Self>, to: SocketAddr) -> io::Result<Rc<UdpSocket>> {
        let (place, any): (usize, IpAddr) = match to {
            SocketAddr::V4(_) => (0, Ipv4Addr::UNSPECIFIED.into()),
            SocketAddr::V6(_) => (1, Ipv6Addr::UNSPECIFIED.into()),
        };
        if let Some(socket) = &self.sockets.borrow()[place] {
            return Ok(Rc::clone(socket));
        }
        let socket = Rc::new(UdpSocket::bind(SocketAddr::new(any, 0))?);
        self.sockets.borrow_mut()[place] = Some(Rc::clone(&socket));
        runtime::spawn(Rc::clone(self).receive(Rc::clone(&socket))).detach();
        Ok(socket)
    }

    async fn receive(self: Rc<Self>, socket: Rc<UdpSocket>) {
        let mut buffer = vec![0; ICP_BYTES_MAX];
        loop {
            match socket.recv_from(&mut buffer).await {
                Ok((read, from)) => self.received(&buffer[..read], from),
                Err(error) => {
                    tracing::debug!(%error, "an answer was not received");
                    time::sleep(RECEIVE_PAUSE).await;
                }
            }
            // A flood of datagrams leaves time for everything else.
            runtime::yield_now().await;
        }
    }

    fn received(&self, bytes: &[u8], from: SocketAddr) {
        let Some((id, answer)) = answer_of(bytes) else { return };
        let query = {
            let mut outstanding = self.outstanding.borrow_mut();
            match outstanding.get(&id) {
                Some(query) if query.to == from => {}
                Some(_) if planted::is(planted::Bug::ForgedHitTaken) => {}
                _ => return,
            }
            outstanding.remove(&id)
        };
        let Some(query) = query else { return };
        let figures = &query.peer.figures;
        let (counter, is_hit) = match answer {
            Answer::Hit => (&figures.hits, true),
            Answer::Miss => (&figures.misses, false),
            Answer::Refused => (&figures.refused, false),
        };
        counter.fetch_add(1, Relaxed);
        // One that is too slow for requests would make each of them wait for nothing.
        if time::now().since(query.sent) < query.limit {
            query.peer.silent.store(false, Relaxed);
        }
        match query.waits {
            Some((at, round)) => round.answered(is_hit.then_some(at)),
            None => self.probes.set(self.probes.get().saturating_sub(1)),
        }
    }
}

/// What a peer says.
enum Answer {
    Hit,
    Miss,
    Refused,
}

/// The number of the query that these bytes answer, and the answer. A message of ICP has its
/// version where one of HTCP has half of its length, so that no bytes are both.
fn answer_of(bytes: &[u8]) -> Option<(u32, Answer)> {
    if let Ok(message) = Message::read(bytes) {
        let answer = match message.kind {
            Kind::Query => return None,
            Kind::Hit => Answer::Hit,
            Kind::Miss | Kind::MissNofetch => Answer::Miss,
            Kind::Denied | Kind::Err | Kind::HitObject(_) => Answer::Refused,
        };
        return Some((message.id, answer));
    }
    let message = htcp::Message::read(bytes).ok()?;
    let htcp::Body::Response(response) = message.body else { return None };
    let answer = match response {
        htcp::Response::Present(_) => Answer::Hit,
        htcp::Response::Absent { .. } => Answer::Miss,
        _ => Answer::Refused,
    };
    Some((message.id, answer))
}

/// The version in queries of HTCP.
const HTTP: &[u8] = b"HTTP/1.1";

/// After a failure to receive, so that one that repeats itself is no tight loop.
const RECEIVE_PAUSE: Duration = Duration::from_millis(20);

impl Round {
    fn answered(&self, hit: Option<usize>) {
        self.unanswered.set(self.unanswered.get().saturating_sub(1));
        if self.hit.get().is_none() {
            self.hit.set(hit);
        }
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digests::{Fetched, having, look_up};
    use crate::group::Registry;
    use crate::limits::DIGEST_GRACE;
    use config::{AskedPeer, Origin};
    use peering::digest::{Digest, Key};

    fn sibling(group: config::Group, queries: Option<Queries>) -> AskedPeer {
        AskedPeer::new(PeerKind::Sibling, group, queries, Duration::from_secs(2))
    }

    #[test]
    fn a_core_has_a_bounded_number_of_queries_and_old_ones_in_the_background_make_room() {
        let at = SocketAddr::from(([10, 0, 0, 1], 3128));
        let group = config::Group::of("peer", [Origin::at(at)]);
        let asked = [sibling(group, Some(Queries::Icp(3130)))];
        let registry = Registry::default();
        let groups = registry.groups([&asked[0].group]);
        let peer = &registry.peers(&asked, &groups)[0];
        let asker = Asker::default();
        let round = Rc::new(Round::default());
        let query = |limit, is_waited_for: bool| {
            let waits = is_waited_for.then(|| (0, Rc::clone(&round)));
            asker.0.query(peer, (b"http://h/", b""), limit, waits)
        };
        let long = Duration::from_secs(3600);
        let probe = query(Duration::ZERO, false).unwrap();
        assert_eq!(probe.1, SocketAddr::new(at.ip(), 3130));
        for _ in 1..QUERIES_MAX {
            assert!(query(long, true).is_some());
        }
        assert!(query(long, true).is_some(), "in the place of the old one");
        assert!(query(long, true).is_none());
        // What answers a number that is no longer known changes nothing.
        let mut answer = Vec::new();
        Message::query(probe.0, b"http://h/").answer(Kind::Hit).write(&mut answer).unwrap();
        asker.0.received(&answer, probe.1);
        assert_eq!(peer.state.figures.hits.load(Relaxed), 0);
        let known = *asker.0.outstanding.borrow().keys().next().unwrap();
        let mut answer = Vec::new();
        Message::query(known, b"http://h/").answer(Kind::Hit).write(&mut answer).unwrap();
        asker.0.received(&answer, probe.1);
        assert_eq!(round.hit.get(), Some(0));
        assert!(query(long, false).is_some() && query(long, false).is_none());
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
