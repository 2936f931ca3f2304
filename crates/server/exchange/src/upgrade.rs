//! Upgrade: a request that asks for another protocol on its connection (RFC 9110, 7.8).
//!
//! A requested protocol goes to the upstream only if its name is allowed (WebSocket, unless
//! configured otherwise). If none of the requested protocols is allowed, the request is an ordinary
//! request, because a server may always ignore Upgrade. A 101 turns both connections into a tunnel,
//! which begins with the bytes that came after the two heads. Any other answer is an ordinary
//! response.
//!
//! Over HTTP/2 the request was an extended CONNECT (RFC 8441), and 101 becomes 200.
//!
//! What never happens: an upgrade to HTTP within HTTP (`h2c`), whose requests would bypass every
//! rule; a tunnel without a 101 that names a requested protocol; a return of an upgraded connection
//! to the pool.

use std::hash::{BuildHasher, RandomState};

use base64::prelude::{BASE64_STANDARD, Engine};
use caching::cache_status::Forward;
use config::Protocol;
use http1::{Fields, Name, ResponseHead, tokens};
use outcome::{Fault, Outcome, Refusal};
use runtime::time;
use sha1_smol::Sha1;
use upstream::{BodyLength, HeadRead, Reading, Reuse, Upstream};

use crate::client::{Client, RequestBody, Response};
use crate::fetch::{Purpose, hierarchy, unanswered};
use crate::step::{Ending, Summary};
use crate::{Exchange, unless_left};

/// Passes the request on; if the upstream agrees, carries the tunnel to its end.
pub(super) async fn upgrade<C: Client>(
    exchange: &mut Exchange<'_, C>,
    protocols: &[u8],
    body: &mut C::Body,
) -> Result<Ending, Refusal> {
    let (request, worker) = (&exchange.request, &exchange.request.worker);
    let unanswered = |fault| unanswered(&worker.io, fault);
    // An upgrade cannot be repeated.
    let connecting = hierarchy::connect(request, Reuse::None);
    let connected = unless_left(exchange.left(), connecting).await?;
    let (upstream, to_parent) = connected.map_err(unanswered)?;
    // HTTP/2 has no upgrade, which a server may always ignore.
    let purpose = match upstream.may_switch() {
        true => Purpose::Upgrade(protocols),
        false => Purpose::Pass(BodyLength::None),
    };
    let mut message = request.message(purpose);
    if to_parent {
        message = hierarchy::for_parent(request, &message);
    }
    let request_ms = time::wall_ms();
    let failed = |fault| {
        upstream.failed(fault);
        unanswered(fault)
    };
    upstream.send_head(&worker.upstreams, &message).await.map_err(failed)?;
    let mut reading = Reading::that_may_switch(&worker.io);
    let left = exchange.left();
    let client = &mut exchange.client;
    let mut interim = |head: &ResponseHead<'_>| client.interim(head);
    let head = upstream::final_head(&worker.upstreams, &upstream, &mut reading, &mut interim);
    let head = unless_left(left, time::timeout(upstream.times.first_byte(), head)).await?;
    let head = head.unwrap_or(Err(Fault::Timeout)).map_err(failed)?;
    let read = HeadRead { head, reading };
    let status = read.head.status();
    if status == 101 {
        return switch(exchange, &upstream, &read, protocols, body).await;
    }
    if exchange.request.version().has_streams() && matches!(status, 200..=299) {
        // To this client it would mean that the tunnel is open.
        return Err(unanswered(Fault::Malformed));
    }
    let method = exchange.request.method();
    let mut answer = upstream::answer(&worker.upstreams, upstream, read, method, request_ms);
    Ok(exchange.relay(&mut answer, Forward::Request, None).await)
}

/// 101: from here on the bytes are those of another protocol.
async fn switch<C: Client>(
    exchange: &mut Exchange<'_, C>,
    upstream: &Upstream,
    read: &HeadRead,
    protocols: &[u8],
    body: &mut C::Body,
) -> Result<Ending, Refusal> {
    let head = read.head.head();
    let is_asked = |token: &[u8]| tokens(protocols).any(|asked| asked.eq_ignore_ascii_case(token));
    let mut chosen = head.fields.all(Name::Upgrade).flat_map(tokens);
    let protocol = match (chosen.next(), chosen.next()) {
        (Some(protocol), None) if is_asked(protocol) => protocol,
        _ => return Err(unanswered(&exchange.request.worker.io, Fault::Malformed)),
    };
    let status = match exchange.request.version() {
        version if !version.has_streams() => 101,
        _ if accepts(&head, exchange.request.fields()) => 200,
        _ => return Err(unanswered(&exchange.request.worker.io, Fault::Malformed)),
    };
    let via = &exchange.request.snapshot.via;
    exchange.client.respond(&Response::Switching { head, via, protocol });
    let address = Some(upstream.address);
    let summary = Summary { outcome: Outcome::Tunnel, status, upstream: address };
    if exchange.client.flush().await.is_err() {
        return Ok(Ending::BrokenOff(summary));
    }
    let first = body.take_rest();
    Ok(exchange.tunnel(&upstream.stream, &first, &read.reading.bytes, summary).await)
}

/// Whether an answer is one to the key of this request. A client of HTTP/1 checks that itself.
fn accepts(answer: &ResponseHead<'_>, request: Fields<'_>) -> bool {
    let key = request.values(b"sec-websocket-key").next().unwrap_or_default();
    let mut answers = answer.fields.values(b"sec-websocket-accept");
    answers.next() == Some(accept_value(key).as_bytes()) && answers.next().is_none()
}

/// Whether clients without an upgrade may open a WebSocket: by what the configuration allows.
pub fn allows_websocket(upgrades: &[Protocol]) -> bool {
    upgrades.iter().any(|protocol| protocol.as_str().eq_ignore_ascii_case("websocket"))
}

/// A new value of `Sec-WebSocket-Key`. It need not be hard to guess: it shows that an answer is not
/// an old one, or one to another question.
pub fn websocket_key() -> String {
    let half = |domain: u64| RandomState::new().hash_one(domain);
    BASE64_STANDARD.encode((u128::from(half(0)) << 64 | u128::from(half(1))).to_be_bytes())
}

/// The value of `Sec-WebSocket-Accept` that answers a key.
pub(crate) fn accept_value(key: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64_STANDARD.encode(hash.digest().bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc6455_1_3_the_answer_to_a_key() {
        assert_eq!(accept_value(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn keys_have_sixteen_bytes_and_differ() {
        let (one, other) = (websocket_key(), websocket_key());
        assert_eq!(BASE64_STANDARD.decode(&one).unwrap().len(), 16);
        assert_ne!(one, other);
    }
}
