//! Upgrade: a request that asks for another protocol on its connection (RFC 9110, 7.8).
//!
//! What is asked for goes to the upstream only if it is allowed by name (WebSocket, unless
//! configured otherwise); a request that asks for others only is an ordinary request, because a
//! server may always ignore Upgrade. 101 turns both connections into a tunnel, with the bytes that
//! came behind the two heads; any other answer is an ordinary response on an ordinary connection.
//!
//! What never happens: HTTP within HTTP (`h2c`), whose requests would go past every rule; a tunnel
//! without a 101 that names a protocol which was asked for; such a connection in the pool.

use caching::cache_status::Forward;
use http1::{Name, OwnedResponse, tokens, write};
use runtime::time;

use crate::client::Gone;
use crate::destination::Destination;
use crate::ended::{Done, Ended};
use crate::exchange::Exchange;
use crate::fetch::{self, Purpose};
use crate::tunnel::Tunnel;
use outcome::Fault;
use outcome::Outcome;
use upstream::{self, Reading, Upstream};

/// Passes the request on; if the upstream agrees, to the end of the tunnel.
pub(crate) async fn serve(
    exchange: &mut Exchange<'_>,
    destination: &Destination<'_>,
    protocols: &[u8],
) -> Result<Done, Ended> {
    let worker = exchange.worker;
    let unanswered = |fault| fetch::pass::unanswered(worker, fault);
    exchange.forwarded = Some(Forward::Request);
    let bytes = exchange.asking(destination).bytes(Purpose::Upgrade(protocols));
    // What an upgrade does cannot be done twice.
    let upstream = upstream::connect(&worker.upstreams, &destination.to).await;
    let upstream = upstream.map_err(unanswered)?;
    let request_ms = time::wall_ms();
    let failed = |fault| {
        upstream.failed(fault);
        unanswered(fault)
    };
    let times = upstream.times;
    upstream::send(&worker.upstreams, &upstream.stream, &times, &bytes).await.map_err(failed)?;
    let mut reading = Reading::that_may_switch();
    let client = &mut exchange.client;
    let mut interim = |bytes: &[u8]| client.offer(&[bytes]);
    let head = upstream::final_head(&worker.upstreams, &upstream, &mut reading, &mut interim);
    let head = time::timeout(times.first_byte(), head).await;
    let head = head.unwrap_or(Err(Fault::Timeout)).map_err(failed)?;
    if head.head().status == 101 {
        return switch(exchange, &upstream, &head, reading, protocols).await;
    }
    let method = exchange.head.method;
    let answer = upstream::answer(&worker.upstreams, upstream, head, reading, method, request_ms);
    fetch::pass::relay(exchange, answer, Forward::Request, None).await
}

/// 101: from here on the bytes are of another protocol.
async fn switch(
    exchange: &mut Exchange<'_>,
    upstream: &Upstream,
    head: &OwnedResponse,
    reading: Reading,
    protocols: &[u8],
) -> Result<Done, Ended> {
    let worker = exchange.worker;
    let head = head.head();
    let is_asked = |token: &[u8]| tokens(protocols).any(|asked| asked.eq_ignore_ascii_case(token));
    let mut chosen = head.fields.all(Name::Upgrade).flat_map(tokens);
    let (Some(protocol), None) = (chosen.next(), chosen.next()) else {
        return Err(fetch::pass::unanswered(worker, Fault::Malformed));
    };
    if !is_asked(protocol) {
        return Err(fetch::pass::unanswered(worker, Fault::Malformed));
    }
    let before = exchange.client.bytes;
    let site = &exchange.site;
    exchange.client.held(|out| {
        write::status_line(out, 101);
        for field in head.fields.end_to_end() {
            write::parsed_field(out, field);
        }
        site.via.append_to_response(out, head.version);
        out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: ");
        out.extend_from_slice(protocol);
        out.extend_from_slice(b"\r\n");
        write::end(out);
    });
    exchange.keep = false;
    let done = Done {
        outcome: Outcome::Tunnel,
        status: 101,
        head_bytes: exchange.client.bytes - before,
        upstream: Some(upstream.address),
        keep: false,
    };
    exchange.client.flush().await.map_err(|Gone| Ended::Gone(done))?;
    let first = exchange.take_rest();
    let tunnel = Tunnel { worker, client: exchange.stream, upstream: &upstream.stream };
    let carried = tunnel.run(&first, &reading.bytes).await;
    exchange.client.bytes += carried.down;
    exchange.tunnelled = carried.up;
    Err(Ended::Over(done))
}
