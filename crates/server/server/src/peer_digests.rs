//! Fetches the cache digests of peers ([`upstream::peers`]), each from its own peer alone.
//!
//! A digest is fetched at the start, and again when its time is over, with the validators that came
//! with the last one. A failure leaves the last one in use until its time is over.
//!
//! What never happens: a digest is fetched twice at a time; more is read of it than its header
//! says, which is at most [`peering::limits::DIGEST_BYTES_MAX`], or more than the length of a
//! header of what begins with none. While a new digest is checked, it takes twice its size, besides
//! the one in use.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cache::stored::Wire;
use caching::{Exchange, Policy, Response, StoredMeta};
use exchange::Worker;
use http1::{Method, Name, Target, write};
use peering::digest::{CONTENT_TYPE, Digest, HEADER_BYTES, Header, PATH};
use runtime::time;
use upstream::peers::Fetched;
use upstream::peers::Peer;
use upstream::{Answer, BodyLength, Choice, Request, To};

use crate::limits::{DIGEST_EVERY_MAX, DIGEST_EVERY_MIN, DIGEST_FETCH_MAX};

/// How often the peers are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Fetches the digests of the peers of the configuration in force, for as long as it is polled.
pub(crate) async fn keep(worker: Rc<Worker>) {
    loop {
        let peers = worker.snapshot().asked();
        for at in 0..peers.len() {
            let Some(fetching) = peers[at].begin_fetch() else { continue };
            let (worker, peers) = (Rc::clone(&worker), Arc::clone(&peers));
            let fetch = async move {
                let fetched = time::timeout(DIGEST_FETCH_MAX, fetch(&worker, &peers[at])).await;
                match fetched.unwrap_or_else(|_| Err("it took too long".to_owned())) {
                    Ok(fetched) => peers[at].hold_digest(fetched),
                    Err(why) => peers[at].note_no_digest(&why),
                }
                drop(fetching);
            };
            runtime::spawn(fetch).detach();
        }
        drop(peers);
        time::sleep(LOOK).await;
    }
}

async fn fetch(worker: &Worker, peer: &Peer) -> Result<Fetched, String> {
    let before = peer.fetched();
    let target = Target::Origin { path_and_query: PATH };
    let buffer = worker.io.buffer();
    let mut request =
        Request::new(buffer, (Method::Get, &b"GET"[..]), &target, peer.name.as_bytes());
    let lines = request.lines();
    lines.extend_from_slice(format!("Accept: {CONTENT_TYPE}\r\n").as_bytes());
    if let Some(before) = &before {
        lines.extend_from_slice(&before.validators);
    }
    request.end(BodyLength::None);
    let to = To::Group(Arc::clone(&peer.group), Choice::default(), None, None);
    let answer = upstream::exchange(&worker.upstreams, &to, &request, &mut |_| {}).await;
    let mut answer = answer.map_err(|fault| fault.text().to_owned())?;
    let lifetime = lifetime(&answer);
    let (at, status) = (time::now(), answer.head.status());
    match (status, before) {
        (304, Some(before)) => Ok(Fetched { at, lifetime, ..Fetched::clone(&before) }),
        (200, _) => {
            let validators = validators(&answer);
            let bytes = body(worker, &mut answer).await?;
            let digest = Digest::read(&bytes).map_err(|malformed| malformed.to_string())?;
            let percent_set = digest.percent_set();
            let (digest, bytes) = (Arc::new(digest.with_own_mask()), bytes.len());
            Ok(Fetched { digest, percent_set, bytes, validators, at, lifetime })
        }
        _ => Err(format!("the status is {status}")),
    }
}

/// How long the digest of an answer is valid, within bounds.
fn lifetime(answer: &Answer) -> Duration {
    let head = answer.head.head();
    let fields = Wire(head.fields);
    let response = Response { status: 200, fields: &fields };
    let exchange = Exchange { request_ms: answer.request_ms, response_ms: answer.response_ms };
    let meta = StoredMeta::of(&response, exchange, &Policy::SHARED);
    let left_ms = meta.fresh_until_ms().saturating_sub(time::wall_ms());
    Duration::from_millis(left_ms).clamp(DIGEST_EVERY_MIN, DIGEST_EVERY_MAX)
}

/// The validators of an answer as the field lines of a conditional request. Values that were parsed
/// can be written.
fn validators(answer: &Answer) -> Vec<u8> {
    let head = answer.head.head();
    let mut lines = Vec::new();
    for (id, name) in [(Name::Etag, "If-None-Match"), (Name::LastModified, "If-Modified-Since")] {
        if let Some(value) = head.fields.get(id) {
            let _ = write::field(&mut lines, name.as_bytes(), value);
        }
    }
    lines
}

async fn body(worker: &Worker, answer: &mut Answer) -> Result<Vec<u8>, String> {
    let (core, mut bytes, mut size) = (&worker.upstreams, Vec::new(), HEADER_BYTES);
    let mut pulled = answer.body.take_ready(core, &mut |piece| bytes.extend_from_slice(piece));
    while !pulled.map_err(|fault| fault.text().to_owned())? {
        if size == HEADER_BYTES && bytes.len() >= HEADER_BYTES {
            let header = Header::read(&bytes).map_err(|malformed| malformed.to_string())?;
            size = HEADER_BYTES + header.mask_bytes();
            bytes.reserve_exact(size.saturating_sub(bytes.len()));
        }
        // Each time so many bytes come as one read takes.
        if bytes.len() > size {
            return Err(format!("it has more than {size} bytes"));
        }
        pulled = answer.body.pull(core, &mut |piece| bytes.extend_from_slice(piece)).await;
    }
    Ok(bytes)
}
