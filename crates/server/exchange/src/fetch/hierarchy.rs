//! The hierarchy: a request that the store does not answer goes to a parent, or to its origin.
//!
//! ```text
//!   a peer that says that it has the response --answer--> done
//!      '-- the peer does not have it after all, or there is no such peer
//!            |-- always_direct, or no parent is usable ------------> the origin
//!            '-- a parent --answer--> done
//!                   '-- no answer, and the request may go on ------> the origin
//! ```
//!
//! A request goes to peers if its response may be stored and the client accepts a stored response.
//! A sibling gets the request with `only-if-cached`, and so never fetches anything for this proxy.
//! If the sibling does not have the response after all, the hit was false. The client does not
//! notice a false hit.
//!
//! A request to a peer is written as for its origin. For a parent the target is made absolute (RFC
//! 9112, 3.2.2). If the parent may have a response that was purged here, the request makes the
//! parent ask the origin ([`cache::doubts`]). The parent looks up the names. Peers that were
//! queried get no field that a route adds.
//!
//! What never happens: a request is sent to an origin after a parent may have processed it, unless
//! it may be repeated.

use std::net::SocketAddr;
use std::sync::Arc;

use cache::realm::Realm;
use cache::stored::Wire;
use config::{PeerKind, Role};
use http1::{Method, Name, ResponseHead, Scheme, Target};
use outcome::{Fault, Hierarchy, Refusal};
use policy::peers::Allowed;
use runtime::time;
use transport::tls::TlsPeer;
use upstream::peers::{By, Found};
use upstream::{Answer, Choice, Reuse, To, Upstream};

use crate::cluster::Used;
use crate::request::{Course, Destination, Request};
use crate::snapshot::Snapshot;
use crate::step::{Ask, What};
use crate::worker::Worker;

/// Fetches a response for the store: from a peer that has it, or else as [`exchange()`].
pub(super) async fn fetch(
    request: &Request,
    ask: &Ask,
    message: &upstream::Request,
    interim: &mut dyn FnMut(&ResponseHead<'_>),
) -> Result<Answer, Fault> {
    if let Some(course) = &request.to().course
        && ask.what == What::Whole
        // A peer may have an older representation than the one that is validated.
        && ask.held.is_none()
        && may_ask(request, course)
        && let Some(answer) = Box::pin(from_peer(request, course, ask)).await
    {
        return Ok(answer);
    }
    exchange(request, message, interim).await
}

/// Whether peers are asked for the response to this request.
pub(crate) fn may_ask(request: &Request, course: &Course) -> bool {
    if course.peers.asked.is_empty() || course.allowed == Allowed::Direct {
        return false;
    }
    let fields = request.fields();
    let is_for_all = !fields.has(Name::Authorization) && !caching::wants_new(&Wire(fields));
    is_for_all && !in_doubt(request)
}

/// The URL for which peers are asked on behalf of a request.
pub(crate) fn url_for_peers(to: &Destination) -> Vec<u8> {
    asked_url(to.realm, to.authority(), to.stored_path())
}

/// A URL as peers are asked for it.
fn asked_url(realm: Realm, authority: &[u8], path: &[u8]) -> Vec<u8> {
    let authority = cache::realm::normal_authority(realm, authority);
    [realm.scheme.name().as_bytes(), b"://", &authority, path].concat()
}

/// Notifies the peers that a URL was purged here. It has no scheme: it was purged in both.
pub async fn clear_purged(worker: &Worker, snapshot: &Snapshot, authority: &[u8], path: &[u8]) {
    for scheme in [Scheme::Http, Scheme::Https] {
        let realm = Realm { role: Role::Forward, scheme };
        clear(worker, snapshot, realm, (authority, path)).await;
    }
}

/// Notifies the peers that this URL was purged or changed here. They learn of no URL that they
/// would never be asked for.
pub(super) async fn clear(
    worker: &Worker,
    snapshot: &Snapshot,
    realm: Realm,
    (authority, path): (&[u8], &[u8]),
) {
    let Some(peers) = &snapshot.peers else { return };
    let Ok(parsed) = http1::parse_authority(authority) else { return };
    let host = std::str::from_utf8(parsed.host);
    if host.is_ok_and(|host| peers.rules.allowed(host, b"GET") != Allowed::Direct) {
        let url = asked_url(realm, authority, path);
        worker.upstreams.asker.clear(&peers.asked, &url).await;
    }
}

/// The response from the first peer that says that it has it.
async fn from_peer(request: &Request, course: &Course, ask: &Ask) -> Option<Answer> {
    let (worker, to, head) = (&request.worker, request.to(), request.head());
    let peers = &course.peers;
    let url = url_for_peers(to);
    let fields = || query_fields(&request.message_to_peer(ask));
    let asking = worker.upstreams.asker.ask(&peers.asked, (&url, fields), peers.query_timeout);
    let Found { at, by } = asking.await?;
    let peer = &peers.asked[at];
    let lines: &[u8] = match peer.kind {
        PeerKind::Sibling => b"Cache-Control: only-if-cached\r\n",
        PeerKind::Parent => b"",
    };
    let absolute = match head.target {
        Target::Absolute { .. } if to.stored_path() == to.path() => head.target_bytes,
        _ => &url,
    };
    let message = request.message_to_peer(ask);
    let through = message.with_lines(worker.io.buffer(), Some(absolute), lines);
    let peer_to = To::Group(Arc::clone(&peer.group), Choice::default(), None, None);
    let answer = upstream::exchange(&worker.upstreams, &peer_to, &through, &mut |_| {}).await;
    let mut answer = match answer {
        Ok(answer) => answer,
        Err(fault) => {
            tracing::debug!(peer = peer.name, %fault, "a peer gave no response after its hit");
            return None;
        }
    };
    let status = answer.head.status();
    if peer.kind == PeerKind::Sibling && !matches!(status, 200..=399 | 404 | 410) {
        tracing::debug!(peer = peer.name, status, "a false hit");
        peer.note_false_hit(by);
        // The connection can be used again if all of the refusal is here.
        let _ = answer.body.take_ready(&worker.upstreams, &mut |_| {});
        return None;
    }
    peer.note_true_hit(by);
    course.used.set(match (by, peer.kind) {
        (By::Query, PeerKind::Sibling) => Hierarchy::SiblingHit,
        (By::Query, PeerKind::Parent) => Hierarchy::ParentHit,
        (By::Digest, PeerKind::Sibling) => Hierarchy::DigestSiblingHit,
        (By::Digest, PeerKind::Parent) => Hierarchy::DigestParentHit,
    });
    Some(answer)
}

/// The fields of a query, which goes over UDP in the clear: without cookies.
fn query_fields(message: &upstream::Request) -> Vec<u8> {
    let lines = message.field_lines().split_inclusive(|byte| *byte == b'\n');
    let is_cookie = |line: &[u8]| {
        line.get(..COOKIE.len()).is_some_and(|name| name.eq_ignore_ascii_case(COOKIE))
    };
    lines.filter(|line| !is_cookie(line)).flatten().copied().collect()
}

const COOKIE: &[u8] = b"Cookie:";

/// Sends a complete request to its destination and reads the final head of the answer. Interim
/// responses go to `interim`.
pub(crate) async fn exchange(
    request: &Request,
    message: &upstream::Request,
    interim: &mut dyn FnMut(&ResponseHead<'_>),
) -> Result<Answer, Fault> {
    let to = request.to();
    to.share.iter().for_each(|share| share.used.set(Used::Origin));
    to.course.iter().for_each(|course| course.begin(&to.to));
    match to.course.as_ref().filter(|course| course.to_parents) {
        None => upstream::exchange(&request.worker.upstreams, &to.to, message, interim).await,
        Some(course) => Box::pin(by_course(request, course, message, interim)).await,
    }
}

async fn by_course(
    request: &Request,
    course: &Course,
    message: &upstream::Request,
    interim: &mut dyn FnMut(&ResponseHead<'_>),
) -> Result<Answer, Fault> {
    let upstreams = &request.worker.upstreams;
    let through = for_parent(request, message);
    let answer = upstream::exchange(upstreams, &request.to().to, &through, interim).await;
    let fault = match answer {
        Err(fault) if course.allowed == Allowed::Either => fault,
        done => return done,
    };
    let may_go_on = match fault {
        Fault::NoDescriptor => false,
        _ if !through.was_sent() => true,
        // The parent has had its time, or has said something that makes no sense.
        Fault::Timeout => false,
        fault if fault.is_malformed() => false,
        _ => message.is_repeatable(),
    };
    match may_go_on {
        true => {
            let to = direct(request, course, fault).await?;
            upstream::exchange(upstreams, &to, message, interim).await
        }
        false => Err(fault),
    }
}

/// A connection for a request that is not complete yet, and whether it is one to a parent.
pub(crate) async fn connect(
    request: &Request,
    reuse: Reuse,
) -> Result<(Box<Upstream>, bool), Fault> {
    let (upstreams, to) = (&request.worker.upstreams, request.to());
    let Some(course) = to.course.as_ref().filter(|course| course.to_parents) else {
        return Ok((upstream::connect(upstreams, &to.to, reuse).await?, false));
    };
    let connecting = async {
        match upstream::connect(upstreams, &to.to, reuse).await {
            Ok(upstream) => Ok((upstream, true)),
            Err(fault) if course.allowed == Allowed::Either && fault != Fault::NoDescriptor => {
                let to = direct(request, course, fault).await?;
                Ok((upstream::connect(upstreams, &to, reuse).await?, false))
            }
            Err(fault) => Err(fault),
        }
    };
    Box::pin(connecting).await
}

/// The origin, after the parents have failed with this fault.
async fn direct(request: &Request, course: &Course, fault: Fault) -> Result<To, Fault> {
    tracing::debug!(%fault, "no parent answers: the request goes to its origin");
    let (snapshot, to) = (&request.snapshot, request.to());
    let parsed = http1::parse_authority(to.authority()).map_err(|_| fault)?;
    let at = (parsed.host, parsed.port.unwrap_or(to.realm.scheme.port()));
    let found = addresses((&request.worker, snapshot), request.peer, at, request.method()).await;
    let found = found.map_err(|refusal| match refusal {
        Refusal::Fault(of_name) => of_name,
        _ => fault,
    })?;
    course.used.set(Hierarchy::Direct);
    let tls = tls_peer(snapshot, to.realm.scheme, to.authority()).map_err(|_| fault)?;
    Ok(To::Addresses(found, tls))
}

/// The request as a parent is to see it.
pub(crate) fn for_parent(request: &Request, message: &upstream::Request) -> upstream::Request {
    let head = request.head();
    // The target as the client wrote it: OPTIONS for a whole server has no path.
    let absolute = matches!(head.target, Target::Absolute { .. }).then_some(head.target_bytes);
    let lines: &[u8] = if in_doubt(request) { b"Cache-Control: no-cache\r\n" } else { b"" };
    message.with_lines(request.worker.io.buffer(), absolute, lines)
}

/// Whether peers may have a response to this request that was purged or changed here.
fn in_doubt(request: &Request) -> bool {
    let doubts = &request.worker.cache.doubts;
    if !doubts.is_any() || !matches!(request.method(), Method::Get | Method::Head) {
        return false;
    }
    let url = request.to().uri().url();
    doubts.hold(&url, time::wall_ms()) && !planted::is(planted::Bug::DoubtIgnored)
}

/// The TLS peer for a URI that a client names.
pub(crate) fn tls_peer(
    snapshot: &Snapshot,
    scheme: Scheme,
    authority: &[u8],
) -> Result<Option<Arc<TlsPeer>>, Refusal> {
    if scheme == Scheme::Http {
        return Ok(None);
    }
    let tls = snapshot.config.https.as_ref().ok_or(Refusal::Scheme)?;
    let host = http1::parse_authority(authority).ok().map(|parsed| parsed.host);
    match host.and_then(|host| TlsPeer::of(tls, host)) {
        Some(peer) => Ok(Some(Arc::new(peer))),
        None => Err(Refusal::Authority),
    }
}

/// The addresses at which a forward listener's client may reach this port of a host.
pub(crate) async fn addresses(
    (worker, snapshot): (&Worker, &Snapshot),
    client: SocketAddr,
    at: (&[u8], u16),
    method: Method,
) -> Result<Arc<[SocketAddr]>, Refusal> {
    let shared = &worker.shared;
    let from = (&shared.resolver, worker.io.limits().limits.connect_timeout);
    snapshot.forward.addresses(at, method, from, (client.ip(), &shared.own)).await
}
