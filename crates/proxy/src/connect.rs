//! CONNECT: a tunnel to a host and port (RFC 9110, 9.3.6).
//!
//! ```text
//!   rules -> addresses -> connected -> 200 -> [ClientHello -> its name is the host's] -> tunnel
//!     |          |            |                    '-- no: alert, closed
//!     '----------+------------+--> an answer of our own, closed
//! ```
//!
//! Bytes that came together with the CONNECT belong to the tunnel. On a port where TLS is expected
//! the first bytes must be a ClientHello that names the host which was asked for: else a tunnel to
//! an allowed name could be used to speak to any other that the same address serves, or to speak
//! anything at all. The bytes that were looked at go on as they came.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http1::{RequestHead, Target};
use runtime::time;

use crate::client::{Gone, linger};
use crate::ended::{Done, Ended};
use crate::exchange::Exchange;
use crate::exchange::way::Case;
use crate::fetch;
use crate::tunnel::{self, Tunnel};
use outcome::Outcome;
use outcome::Refusal;
use policy::client_hello::{ClientHello, Verdict};
use policy::forward::within;
use upstream::{self, To};

const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// A fatal alert: unrecognized_name (RFC 8446, 6.2).
const ALERT: &[u8] = b"\x15\x03\x03\x00\x02\x02\x70";

/// Serves a CONNECT to the end of its tunnel.
pub(crate) async fn connect(exchange: &mut Exchange<'_>) -> Result<Done, Ended> {
    let (host, port) = target(&exchange.head)?;
    let worker = exchange.worker;
    let addresses = connect_to(&exchange.case()).await?;
    let upstream = upstream::connect(&worker.upstreams, &To::Addresses(addresses, None)).await;
    let upstream = upstream.map_err(|fault| fetch::pass::unanswered(worker, fault))?;
    exchange.keep = false;
    let done = Done {
        outcome: Outcome::Tunnel,
        status: 200,
        head_bytes: ESTABLISHED.len() as u64,
        upstream: Some(upstream.address),
        keep: false,
    };
    exchange.client.send(ESTABLISHED).await.map_err(|Gone| Ended::Gone(done))?;
    let mut first = exchange.take_rest();
    let rules = &exchange.site.config.forward;
    if rules.check_server_name && within(&rules.tls_ports, port) {
        first = match checked_hello(exchange, host, first).await {
            Ok(bytes) => bytes,
            Err(Hello::Gone) => return Err(Ended::Gone(done)),
            Err(Hello::Refused { is_tls }) => {
                return Err(Ended::Over(refused(exchange, done, is_tls).await));
            }
        };
    }
    let tunnel = Tunnel { worker, client: exchange.stream, upstream: &upstream.stream };
    let carried = tunnel.run(&first, &[]).await;
    exchange.client.bytes += carried.down;
    exchange.tunnelled = carried.up;
    Err(Ended::Over(done))
}

fn target<'h>(head: &RequestHead<'h>) -> Result<(&'h [u8], u16), Ended> {
    match head.target {
        Target::Authority { host, port } => Ok((host, port)),
        _ => Err(Ended::Refused(Refusal::Authority)),
    }
}

/// The addresses that a tunnel would lead to.
pub(crate) async fn connect_to(case: &Case<'_>) -> Result<Arc<[SocketAddr]>, Ended> {
    let (host, port) = target(&case.head)?;
    case.addresses(host, port).await
}

/// Why there is no tunnel although it was promised.
enum Hello {
    /// The client closed before it had said anything.
    Gone,
    Refused {
        is_tls: bool,
    },
}

/// Reads until the ClientHello is whole; gives back all that was read.
async fn checked_hello(
    exchange: &Exchange<'_>,
    host: &[u8],
    first: Vec<u8>,
) -> Result<Vec<u8>, Hello> {
    let worker = exchange.worker;
    let deadline = time::now() + worker.limits().limits.head_timeout;
    let mut hello = ClientHello::default();
    let mut any = !first.is_empty();
    let mut verdict = hello.push(&first);
    loop {
        match verdict {
            Verdict::Whole { server_name } if is_of(server_name.as_deref(), host) => {
                return Ok(hello.into_bytes());
            }
            Verdict::Whole { server_name } => {
                let name = server_name.map(|name| name.escape_ascii().to_string());
                let host = host.escape_ascii();
                tracing::debug!(?name, %host, "another server name than CONNECT asked for");
                return Err(Hello::Refused { is_tls: true });
            }
            Verdict::Never(why) => {
                tracing::debug!(why, "no ClientHello");
                return Err(Hello::Refused { is_tls: false });
            }
            Verdict::More => {}
        }
        let read = tunnel::read(worker, exchange.stream, |bytes| hello.push(bytes));
        verdict = match time::timeout(deadline.since(time::now()), read).await {
            Ok(Ok(Some(verdict))) => verdict,
            Ok(Ok(None)) if any => return Err(Hello::Refused { is_tls: false }),
            Ok(Ok(None) | Err(Gone)) => return Err(Hello::Gone),
            Err(_) => {
                worker.counters.timeouts.add(1);
                return Err(Hello::Refused { is_tls: false });
            }
        };
        any = true;
    }
}

/// Whether a server name is the one that belongs to a host. An address has none: it may not stand
/// in a ClientHello (RFC 6066, 3).
fn is_of(server_name: Option<&[u8]>, host: &[u8]) -> bool {
    let bare = host.strip_prefix(b"[").and_then(|host| host.strip_suffix(b"]")).unwrap_or(host);
    let is_address = std::str::from_utf8(bare).is_ok_and(|text| text.parse::<IpAddr>().is_ok());
    let without_dot = |name: &'_ [u8]| name.strip_suffix(b".").unwrap_or(name).to_ascii_lowercase();
    match server_name {
        None => is_address,
        Some(name) if is_address => name == bare,
        Some(name) => without_dot(name) == without_dot(host),
    }
}

/// The client was told 200 already: what is left is to close, with an alert if it speaks TLS.
async fn refused(exchange: &mut Exchange<'_>, done: Done, is_tls: bool) -> Done {
    exchange.worker.count_refusal(Refusal::ServerName);
    exchange.rule = Refusal::ServerName.name();
    exchange.worker.counters.client_errors.add(1);
    if is_tls && exchange.client.send(ALERT).await.is_err() {
        return Done { outcome: Outcome::Denied, ..done };
    }
    linger(exchange.worker, exchange.stream).await;
    Done { outcome: Outcome::Denied, ..done }
}

#[cfg(test)]
mod tests {
    use super::is_of;

    #[test]
    fn a_server_name_is_its_hosts() {
        assert!(is_of(Some(b"A.example"), b"a.EXAMPLE"));
        assert!(is_of(Some(b"a.example"), b"a.example."));
        assert!(is_of(None, b"192.0.2.1"));
        assert!(is_of(None, b"[2001:db8::1]"));
        assert!(is_of(Some(b"192.0.2.1"), b"192.0.2.1"));
        assert!(!is_of(Some(b"b.example"), b"a.example"));
        assert!(!is_of(Some(b"x.a.example"), b"a.example"));
        assert!(!is_of(None, b"a.example"));
        assert!(!is_of(Some(b"a.example"), b"192.0.2.1"));
        assert!(!is_of(Some(b"192.0.2.1"), b"a.example"));
    }
}
