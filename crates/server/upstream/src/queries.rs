//! Asking peers whether they have a response, by ICP or HTCP (RFC 2186, RFC 2756) or by their
//! digests ([`crate::peers`]), and notifying them of purges (CLR of HTCP).
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
//! others.
//!
//! Each core has a socket for each family, at a port that the system chooses. A query has a random
//! number. An answer counts if it has the number of an outstanding query and comes from the address
//! that the query was sent to: a sender that does not see the queries cannot forge a hit.
//!
//! Who owns: a core owns its sockets and its outstanding queries. What never happens: a core has
//! more than [`QUERIES_MAX`] outstanding queries; an answer makes us send anything.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Poll, Waker};
use std::time::Duration;

use config::Queries;
use hashbrown::HashMap;
use peering::htcp;
use peering::icp::{Kind, Message};
use peering::limits::ICP_BYTES_MAX;
use runtime::net::UdpSocket;
use runtime::time::{self, Instant};

use crate::limits::QUERIES_MAX;
use crate::peers::{By, Found, Peer, PeerState, look_up};

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
        if let Some(found) = look_up(peers, url) {
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
        let mut outstanding = self.outstanding.borrow_mut();
        // At most `QUERIES_MAX` of 2^32 numbers are taken.
        let id = std::iter::repeat_with(|| self.draw()).find(|id| !outstanding.contains_key(id))?;
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
        if outstanding.len() >= QUERIES_MAX && self.probes.get() > 0 {
            let is_kept =
                |query: &Query| query.waits.is_some() || now.since(query.sent) < query.limit;
            outstanding.retain(|_, query| is_kept(query));
            let probes = outstanding.values().filter(|query| query.waits.is_none());
            self.probes.set(probes.count());
        }
        if outstanding.len() >= QUERIES_MAX {
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
        runtime::spawn_detached(Rc::clone(self).receive(Rc::clone(&socket)));
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
    use config::{AskedPeer, Origin, PeerKind};

    use super::*;
    use crate::registry::Registry;

    #[test]
    fn a_core_has_a_bounded_number_of_queries_and_old_ones_in_the_background_make_room() {
        let at = SocketAddr::from(([10, 0, 0, 1], 3128));
        let group = config::Group::of("peer", [Origin::at(at)]);
        let queries = Some(Queries::Icp(3130));
        let asked = [AskedPeer::new(PeerKind::Sibling, group, queries, Duration::from_secs(2))];
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
}
