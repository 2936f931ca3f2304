//! CONNECT: a tunnel to a host and port (RFC 9110, 9.3.6).
//!
//! ```text
//!   rules -> addresses -> connected -> 200 -> [ClientHello -> it names the host] -> tunnel
//!     |          |            |                    '-- no: alert, closed
//!     '----------+------------+--> our own answer, closed
//! ```
//!
//! Bytes that arrived together with the CONNECT belong to the tunnel. On a port where TLS is
//! expected, the first bytes must be a ClientHello that names the requested host. Without this
//! check, a client could use a tunnel to an allowed name to reach any other name at the same
//! address, or to speak any protocol. The checked bytes are passed on unchanged.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use http1::{Name, RequestHead, ResponseHead, Scheme, Target, write};
use outcome::{Fault, Hierarchy, Outcome, Refusal};
use policy::client_hello::{ClientHello, Verdict};
use policy::forward::within;
use policy::peers::Allowed;
use runtime::time;
use transport::Transport;
use upstream::{BodyLength, Choice, Reading, Reuse, To, Upstream};

use crate::Exchange;
use crate::client::{ByteStream, Client, Gone, RequestBody, Response};
use crate::fetch::unanswered;
use crate::request::{Request, used};
use crate::step::{Ending, Summary};
use crate::tunnel::{Pace, Tunnel};

/// A fatal alert: unrecognized_name (RFC 8446, 6.2).
const ALERT: &[u8] = b"\x15\x03\x03\x00\x02\x02\x70";

/// Serves a CONNECT to the end of its tunnel.
pub(super) async fn connect<C: Client>(
    exchange: &mut Exchange<'_, C>,
    body: &mut C::Body,
) -> Result<Ending, Refusal> {
    let worker = Rc::clone(&exchange.request.worker);
    let opened = match exchange.request.snapshot.peers.is_some() {
        true => Box::pin(by_parent(&exchange.request)).await?,
        false => None,
    };
    let (upstream, to_client) = match opened {
        Some(Opened { upstream, first, hierarchy }) => {
            exchange.hierarchy = hierarchy;
            (upstream, first)
        }
        None => {
            let to = To::Addresses(tunnel_addresses(&exchange.request).await?, None);
            let upstream = upstream::connect(&worker.upstreams, &to, Reuse::None).await;
            (upstream.map_err(|fault| unanswered(&worker.io, fault))?, Vec::new())
        }
    };
    let address = Some(upstream.address);
    let summary = Summary { outcome: Outcome::Tunnel, status: 200, upstream: address };
    exchange.client.respond(&Response::TunnelOpen);
    if exchange.client.flush().await.is_err() {
        return Ok(Ending::BrokenOff(summary));
    }
    let mut first = body.take_rest();
    let rules = &exchange.request.snapshot.config.forward;
    if rules.check_server_name && within(&rules.tls_ports, target(&exchange.request.head())?.1) {
        first = match checked_hello(exchange, first).await {
            Ok(bytes) => bytes,
            Err(NoHello::Gone) => return Ok(Ending::BrokenOff(summary)),
            Err(NoHello::Refused { is_tls }) => {
                return Ok(refused(exchange, summary, is_tls).await);
            }
        };
    }
    Ok(exchange.tunnel(&upstream.stream, &first, &to_client, summary).await)
}

impl<C: Client> Exchange<'_, C> {
    /// Carries a tunnel to its end, beginning with the bytes that each side has sent already.
    pub(super) async fn tunnel(
        &mut self,
        upstream: &Transport,
        to_upstream: &[u8],
        to_client: &[u8],
        summary: Summary,
    ) -> Ending {
        let pools = self.pools_of_tunnel();
        let pace = |bytes| self.charge_tunnel(&pools, bytes);
        let pace = (!pools.is_empty()).then_some(&pace as &Pace<'_>);
        let tunnel =
            Tunnel { io: &self.request.worker.io, client: self.client.stream(), upstream, pace };
        let carried = tunnel.run(to_upstream, to_client).await;
        self.client.add_tunnelled(carried.down);
        self.tunnelled = carried.up;
        Ending::Tunnel(summary)
    }
}

fn target<'h>(head: &RequestHead<'h>) -> Result<(&'h [u8], u16), Refusal> {
    match head.target {
        Target::Authority { host, port } => Ok((host, port)),
        _ => Err(Refusal::Authority),
    }
}

/// The addresses that a tunnel would lead to.
pub(crate) async fn tunnel_addresses(request: &Request) -> Result<Arc<[SocketAddr]>, Refusal> {
    let (host, port) = target(&request.head())?;
    request.addresses(host, port).await
}

/// A tunnel to a host and port: its connection, and the bytes of it that have come.
struct Opened {
    upstream: Box<Upstream>,
    first: Vec<u8>,
    hierarchy: Hierarchy,
}

/// The rule for a tunnel, and the parents through which it is opened, if it does not lead to its
/// host directly; `None` without peers.
pub(crate) fn tunnel_to(request: &Request) -> Result<Option<(Allowed, Option<To>)>, Refusal> {
    let head = request.head();
    let Some(peers) = &request.snapshot.peers else { return Ok(None) };
    let (allowed, parents) = request.parents(peers, target(&head)?)?;
    let to = parents.map(|parents| {
        let key = parents.key(Scheme::Https, head.target_bytes, b"");
        To::Group(Arc::clone(parents), Choice::by(key), None, None)
    });
    Ok(Some((allowed, to)))
}

/// Opens a tunnel through a parent, if it does not lead to its host directly.
async fn by_parent(request: &Request) -> Result<Option<Opened>, Refusal> {
    let (worker, head) = (&request.worker, request.head());
    let Some((allowed, Some(to))) = tunnel_to(request)? else { return Ok(None) };
    let upstream = match upstream::connect(&worker.upstreams, &to, Reuse::None).await {
        Ok(upstream) => upstream,
        Err(fault) if allowed == Allowed::Either && fault != Fault::NoDescriptor => {
            return Ok(None);
        }
        Err(fault) => return Err(unanswered(&worker.io, fault)),
    };
    let method = (head.method, head.method_bytes);
    let mut message =
        upstream::Request::new(worker.io.buffer(), method, &head.target, head.target_bytes);
    // Only with all names of `Via` does a loop end.
    write::end_to_end(message.lines(), &head.fields, |field| field.id() == Name::Via);
    request.snapshot.via.append_to_request(message.lines(), head.version);
    message.end(BodyLength::None);
    let failed = |fault| {
        upstream.failed(fault);
        unanswered(&worker.io, fault)
    };
    upstream.send_head(&worker.upstreams, &message).await.map_err(failed)?;
    let mut reading = Reading::new(&worker.io);
    let mut ignored = |_: &ResponseHead<'_>| {};
    let got = upstream::final_head(&worker.upstreams, &upstream, &mut reading, &mut ignored);
    let got = time::timeout(upstream.times.first_byte(), got).await;
    let got = got.unwrap_or(Err(Fault::Timeout)).map_err(failed)?;
    match got.status() {
        200..=299 => {
            let first = reading.bytes.to_vec();
            Ok(Some(Opened { upstream, first, hierarchy: used(&to) }))
        }
        status => {
            tracing::debug!(status, "a parent opened no tunnel");
            Err(Refusal::ParentRefused)
        }
    }
}

/// Why there is no tunnel although it was promised.
enum NoHello {
    /// The client closed before it had sent anything.
    Gone,
    Refused {
        is_tls: bool,
    },
}

/// Reads until the ClientHello is complete; returns everything that was read.
async fn checked_hello<C: Client>(
    exchange: &Exchange<'_, C>,
    first: Vec<u8>,
) -> Result<Vec<u8>, NoHello> {
    let (io, head) = (&exchange.request.worker.io, exchange.request.head());
    let (host, _) = target(&head).expect("only a request with an authority opens a tunnel");
    let client = exchange.client.stream();
    let deadline = time::now() + io.limits().limits.head_timeout;
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
                return Err(NoHello::Refused { is_tls: true });
            }
            Verdict::Never(why) => {
                tracing::debug!(why, "no ClientHello");
                return Err(NoHello::Refused { is_tls: false });
            }
            Verdict::More => {}
        }
        let read = client.read(io, |bytes| hello.push(bytes));
        verdict = match time::timeout(deadline.since(time::now()), read).await {
            Ok(Ok(Some(verdict))) => verdict,
            Ok(Ok(None)) if any => return Err(NoHello::Refused { is_tls: false }),
            Ok(Ok(None) | Err(Gone)) => return Err(NoHello::Gone),
            Err(_) => {
                io.counters.timeouts.add(1);
                return Err(NoHello::Refused { is_tls: false });
            }
        };
        any = true;
    }
}

/// Whether a server name is that of a host. An address has none: it must not occur in a ClientHello
/// (RFC 6066, 3).
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

/// The client has got its 200 already. All that remains is to close, with an alert if the client
/// speaks TLS.
async fn refused<C: Client>(
    exchange: &mut Exchange<'_, C>,
    summary: Summary,
    is_tls: bool,
) -> Ending {
    let io = &exchange.request.worker.io;
    io.count_refusal(Refusal::ServerName);
    exchange.rule = Refusal::ServerName.name();
    io.counters.client_errors.add(1);
    let summary = Summary { outcome: Outcome::Denied, ..summary };
    match is_tls && exchange.client.send(&[ALERT], false).await.is_err() {
        true => Ending::Tunnel(summary),
        false => Ending::TunnelRefused(summary),
    }
}

#[cfg(test)]
mod tests {
    use super::is_of;

    #[test]
    fn a_server_name_matches_its_host() {
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
