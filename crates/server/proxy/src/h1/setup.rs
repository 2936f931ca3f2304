//! Connection setup: what a listener requires before the first request, a PROXY header and then
//! TLS.
//!
//! A connection that needs neither never comes here. One that does has its place in the table of
//! connections already, so that a drain waits for it, and one time-out for everything. The header
//! comes before TLS, in the clear, and is accepted only from the networks that the listener names:
//! a sender of headers chooses the address that access rules and logs see.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use access_log::Record;
use core_io::CoreIo;
use ipnet::IpNet;
use outcome::Refusal;
use runtime::Either;
use runtime::net::TcpStream;
use runtime::time::{self, Instant};
use transport::limits::PROXY_HEADER_BYTES_MAX;
use transport::proxy_protocol::{Ends, Header, NoHeader, parse_header};
use transport::tls::{self, Refused, ServerTls};
use transport::{Transport, canonical};

use super::client::{ClientStream, linger};
use super::response::append_refusal;
use exchange::Slot;
use exchange::listener::{ListenerContext, Setup};

/// A connection that may send requests.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) stream: Transport,
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// The address that the client connected to, if a header says so. Boxed, because a silent
    /// connection holds it.
    pub(crate) original_destination: Option<Box<SocketAddr>>,
}

/// Sets a connection up; `None` if it is over. A client that a PROXY header names is counted by the
/// quotas as soon as it is known, so that a connection too many costs no handshake of TLS.
pub(crate) async fn pass(
    slot: &Slot,
    setup: &Setup,
    listener: &ListenerContext,
    accepted: Accepted,
) -> Option<Accepted> {
    let Accepted { stream: Transport::Plain(stream), mut peer, mut original_destination } =
        accepted
    else {
        return Some(accepted);
    };
    let io = &slot.worker.io;
    let _arriving = io.counters.states.arriving.while_here();
    let limit = io.limits().limits.handshake_timeout;
    let since = time::now();
    let deadline = since + limit;
    let Setup { proxies, tls, .. } = setup;
    if let Some(proxies) = proxies {
        let proxied = proxied(io, proxies, &stream, (peer, listener), limit);
        let Either::Left(ends) = runtime::race(proxied, io.room_taken(since, peer.ip())).await
        else {
            return None;
        };
        if let Some(ends) = ends? {
            peer = canonical(ends.source);
            original_destination = Some(Box::new(ends.destination));
            io.set_client(slot.slot, peer.ip());
        }
        if !slot.is_within_quotas(listener, peer.ip()) {
            return None;
        }
    }
    let stream = match tls {
        None => Transport::Plain(stream),
        Some(tls) => {
            let handshake = handshake(io, tls, stream, (peer, listener), deadline);
            match runtime::race(handshake, io.room_taken(since, peer.ip())).await {
                Either::Left(stream) => stream?,
                Either::Right(()) => return None,
            }
        }
    };
    Some(Accepted { stream, peer, original_destination })
}

/// The ends of the proxied connection, if the header names them; `None` if the connection is over.
async fn proxied(
    io: &CoreIo,
    proxies: &[IpNet],
    stream: &TcpStream,
    from: (SocketAddr, &ListenerContext),
    limit: Duration,
) -> Option<Option<Ends>> {
    let peer = from.0;
    let is_trusted = proxies.iter().any(|network| network.contains(&peer.ip()));
    let header = match is_trusted {
        true => time::timeout(limit, header(io, stream)).await,
        false => Ok(Err(NoHeader::Missing)),
    };
    match header {
        Ok(Ok(header)) => return header.map(|header| header.ends),
        Ok(Err(error)) => {
            tracing::debug!(%peer, is_trusted, %error, "a connection refused");
            io.counters.proxy_headers_refused.add(1);
            refuse(io, from, Refusal::ProxyHeader, &[]);
        }
        Err(_) => io.counters.timeouts.add(1),
    }
    None
}

/// Reads the header and not a byte more; `None` if the connection closed first.
async fn header(io: &CoreIo, stream: &TcpStream) -> Result<Option<Header>, NoHeader> {
    let mut held = Vec::new();
    loop {
        if stream.readable().await.is_err() {
            return Ok(None);
        }
        let step = io.with_input(|input| {
            let room = &mut input[..PROXY_HEADER_BYTES_MAX];
            let there = match stream.try_peek(room) {
                Ok(0) => return Ok(Some(None)),
                Ok(there) => there,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(_) => return Ok(Some(None)),
            };
            let before = held.len();
            held.extend_from_slice(&room[..there]);
            let header = parse_header(&held)?;
            let mut used = header.map_or(there, |header| header.bytes - before);
            while used > 0 {
                // They are there: the peek has just shown them.
                match stream.try_read(&mut room[..used]) {
                    Ok(read) if read > 0 => used -= read,
                    _ => return Ok(Some(None)),
                }
            }
            Ok(header.map(Some))
        })?;
        if let Some(done) = step {
            return Ok(done);
        }
    }
}

async fn handshake(
    io: &CoreIo,
    tls: &ServerTls,
    stream: TcpStream,
    from: (SocketAddr, &ListenerContext),
    deadline: Instant,
) -> Option<Transport> {
    let counters = &io.counters;
    let limit = deadline.since(time::now());
    let peer = from.0;
    match tls::accept(&io.tls, tls, stream, peer.ip(), limit).await {
        Ok(stream) => {
            counters.tls_handshakes.add(1);
            counters.tls_resumptions.add(u64::from(stream.is_resumed()));
            return Some(Transport::Tls(Box::new(stream)));
        }
        Err(Refused::PlainHttp(stream)) => {
            counters.tls_failures_plain_http.add(1);
            answer_plain_http(io, from, Transport::Plain(stream)).await;
        }
        Err(Refused::Slow) => counters.tls_failures_slow.add(1),
        Err(Refused::Evicted) => counters.tls_failures_evicted.add(1),
        Err(Refused::Closed) => counters.tls_failures_closed.add(1),
        Err(Refused::Validated) => counters.tls_validations.add(1),
        Err(Refused::Protocol(error)) => {
            tracing::debug!(%peer, %error, "no TLS with a client");
            counters.tls_failures_protocol.add(1);
            refuse(io, from, Refusal::TlsHandshake, &[]);
        }
        Err(Refused::Certificate(error)) => {
            tracing::debug!(%peer, %error, "a client's certificate is not accepted");
            counters.tls_failures_client_certificate.add(1);
            refuse(io, from, Refusal::ClientCertificate, &[]);
        }
        Err(Refused::Rejected(error)) => {
            tracing::debug!(%peer, %error, "a client does not accept our certificate");
            counters.tls_failures_rejected.add(1);
        }
    }
    None
}

/// Answers a client that spoke plain HTTP where TLS is required.
async fn answer_plain_http(io: &CoreIo, from: (SocketAddr, &ListenerContext), stream: Transport) {
    let mut out = Vec::new();
    append_refusal(&mut out, Refusal::PlainHttp);
    refuse(io, from, Refusal::PlainHttp, &out);
    if ClientStream::new(io, &stream).send_bytes(&out).await.is_ok() {
        linger(io, &stream).await;
    }
}

/// Counts and logs a client that never got as far as a request.
fn refuse(io: &CoreIo, from: (SocketAddr, &ListenerContext), refusal: Refusal, response: &[u8]) {
    io.count_refusal(refusal);
    io.counters.connections_denied.add(1);
    if io.log.is_on() {
        io.counters.log_lines.add(u64::from(io.log.has_lines()));
        let now_ms = time::wall_ms();
        io.log.record(&Record::of_none(from.0, from.1.logged(), refusal, 0, response, now_ms));
    }
}
