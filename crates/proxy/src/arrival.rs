//! What a listener asks of a connection before its first request: a PROXY header, then TLS.
//!
//! A connection that needs neither never comes here. One that does has its place in the table of
//! connections already, so that a drain waits for it, and one time-out for all of it. The header
//! comes before TLS, in the clear, and is believed only from the networks that the listener names:
//! whoever may send it chooses the address that access rules and logs see.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use runtime::net::TcpStream;
use runtime::time::{self, Instant};

use crate::client::{Client, append_error, linger};
use crate::site::Door;
use crate::told::refused_line;
use crate::worker::Worker;
use access_log::Record;
use cache::stored::Connection;
use config::Listener;
use outcome::Refusal;
use transport::Transport;
use transport::limits::PROXY_HEADER_BYTES_MAX;
use transport::proxy_protocol::{Ends, Header, NoHeader, parse_header};
use transport::tls::{self, Refused, ServerTls};

/// What a listener asks for.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Who must tell whose connection it is.
    proxies: Option<Vec<IpNet>>,
    tls: Option<Arc<ServerTls>>,
}

/// A connection that may ask.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) stream: Transport,
    /// The address that its client has.
    pub(crate) peer: SocketAddr,
    /// The address that this client has connected to, if a header told it. Boxed, since a silent
    /// connection holds it.
    pub(crate) told_to: Option<Box<SocketAddr>>,
}

impl Gate {
    /// `None`: the first byte of a connection is that of a request.
    pub(crate) fn of(listener: &Listener) -> Option<Box<Gate>> {
        let Listener { tls, proxies, .. } = listener;
        if tls.is_none() && proxies.is_none() {
            return None;
        }
        Some(Box::new(Gate { proxies: proxies.clone(), tls: tls.clone() }))
    }

    /// Lets a connection in; `None` when it is over.
    pub(crate) async fn pass(
        &self,
        worker: &Worker,
        door: &Door,
        arrived: Arrived,
    ) -> Option<Arrived> {
        let Arrived { stream: Transport::Plain(stream), mut peer, mut told_to } = arrived else {
            return Some(arrived);
        };
        let _arriving = worker.counters.states.arriving.while_here();
        let limit = worker.limits().limits.handshake_timeout;
        let deadline = time::now() + limit;
        if let Some(proxies) = &self.proxies
            && let Some(ends) = told(worker, proxies, &stream, (peer, door), limit).await?
        {
            peer = ends.source;
            told_to = Some(Box::new(ends.destination));
        }
        let stream = match &self.tls {
            None => Transport::Plain(stream),
            Some(tls) => handshake(worker, tls, stream, (peer, door), deadline).await?,
        };
        Some(Arrived { stream, peer, told_to })
    }
}

/// Whose connection it is, if the header tells; `None` when it is over.
async fn told(
    worker: &Worker,
    proxies: &[IpNet],
    stream: &TcpStream,
    from: (SocketAddr, &Door),
    limit: Duration,
) -> Option<Option<Ends>> {
    let peer = from.0;
    let believed = proxies.iter().any(|network| network.contains(&canonical(peer)));
    let told = match believed {
        true => time::timeout(limit, header(worker, stream)).await,
        false => Ok(Err(NoHeader::Missing)),
    };
    match told {
        Ok(Ok(header)) => return header.map(|header| header.ends),
        Ok(Err(error)) => {
            tracing::debug!(%peer, believed, %error, "a connection refused");
            worker.counters.proxy_headers_refused.add(1);
            tell(worker, from, Refusal::ProxyHeader, &[]);
        }
        Err(_) => worker.counters.timeouts.add(1),
    }
    None
}

/// An IPv4 client of a listener that takes both families is one of IPv4.
fn canonical(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}

/// Reads the header and not a byte more; `None` when the connection closed before.
async fn header(worker: &Worker, stream: &TcpStream) -> Result<Option<Header>, NoHeader> {
    let mut held = Vec::new();
    loop {
        if stream.readable().await.is_err() {
            return Ok(None);
        }
        let step = worker.with_input(|input| {
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
                // They are there: they were seen just now.
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
    worker: &Worker,
    tls: &ServerTls,
    stream: TcpStream,
    from: (SocketAddr, &Door),
    deadline: Instant,
) -> Option<Transport> {
    let counters = &worker.counters;
    let limit = deadline.since(time::now());
    let peer = from.0;
    match tls::accept(&worker.tls, tls, stream, limit).await {
        Ok(stream) => {
            counters.tls_handshakes.add(1);
            counters.tls_resumptions.add(u64::from(stream.is_resumed()));
            return Some(Transport::Tls(Box::new(stream)));
        }
        Err(Refused::PlainHttp(stream)) => {
            counters.tls_failures_plain_http.add(1);
            tell_plain_http(worker, from, Transport::Plain(stream)).await;
        }
        Err(Refused::Slow) => counters.tls_failures_slow.add(1),
        Err(Refused::Closed) => counters.tls_failures_closed.add(1),
        Err(Refused::Protocol(error)) => {
            tracing::debug!(%peer, %error, "no TLS with a client");
            counters.tls_failures_protocol.add(1);
            tell(worker, from, Refusal::TlsHandshake, &[]);
        }
        Err(Refused::Certificate(error)) => {
            tracing::debug!(%peer, %error, "a client's certificate is not accepted");
            counters.tls_failures_client_certificate.add(1);
            tell(worker, from, Refusal::ClientCertificate, &[]);
        }
        Err(Refused::Rejected(error)) => {
            tracing::debug!(%peer, %error, "a client does not accept our certificate");
            counters.tls_failures_rejected.add(1);
        }
    }
    None
}

/// Tells a client that asked in the clear what is spoken here.
async fn tell_plain_http(worker: &Worker, from: (SocketAddr, &Door), stream: Transport) {
    let mut out = Vec::new();
    let text = Refusal::PlainHttp.text();
    let lines = refused_line(Refusal::PlainHttp);
    append_error(&mut out, 400, text, &lines, Connection::Close, true);
    tell(worker, from, Refusal::PlainHttp, &out);
    if Client::new(worker, &stream).send(&out).await.is_ok() {
        linger(worker, &stream).await;
    }
}

/// Counts and logs a client that did not come as far as a request.
fn tell(worker: &Worker, from: (SocketAddr, &Door), refusal: Refusal, response: &[u8]) {
    worker.count_refusal(refusal);
    worker.counters.connections_denied.add(1);
    if worker.log.is_on() {
        worker.counters.log_lines.add(1);
        let now_ms = time::wall_ms();
        worker.log.record(&Record::of_none(from.0, from.1.logged(), refusal, 0, response, now_ms));
    }
}
