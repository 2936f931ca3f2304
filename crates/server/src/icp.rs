//! Answers to the queries of other caches (ICP, RFC 2186).
//!
//! A query asks whether a GET of a URL would be a hit here. It has no fields, so the answer is for
//! a request without any. One core answers, from memory, or from the disk if the response is there.
//! The queries of others are denied at a bounded rate, and otherwise not answered. No answer is
//! longer than its question.
//!
//! What never happens: a query makes us fetch anything; a stale response is announced; a flood of
//! queries keeps the core from its other work.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use cache::disk::swap_in::swap_in;
use cache::realm::Realm;
use cache::stored::Wire;
use cache::{Look, Lookup};
use config::{IcpServer, Role};
use exchange::Worker;
use http1::{OwnedRequest, Scheme, Scratch};
use peering::icp::{Kind, Message};
use peering::limits::ICP_BYTES_MAX;
use runtime::net::UdpSocket;
use runtime::time::{self, Instant};

use crate::limits::{DENIALS_PER_SECOND_MAX, QUERIES_PER_TURN_MAX};

/// How often the configuration is looked at, and a bind that failed is tried again: the process
/// that this one replaces holds the address until it ends.
const LOOK: Duration = Duration::from_secs(1);

/// Answers queries as the configuration in force says, for as long as it is polled.
pub(crate) async fn answer(worker: Rc<Worker>) {
    let mut reported = false;
    loop {
        let Some(rules) = worker.snapshot().config.icp.clone() else {
            time::sleep(LOOK).await;
            continue;
        };
        match UdpSocket::bind(rules.listen) {
            Ok(socket) => {
                reported = false;
                Server::new(&worker, socket).run(rules.listen).await;
            }
            Err(error) => {
                if !reported {
                    tracing::error!(address = %rules.listen, %error, "no queries are answered");
                }
                reported = true;
                time::sleep(LOOK).await;
            }
        }
    }
}

/// HTTP/1.0 has no required field.
const PLAIN: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

struct Server<'w> {
    worker: &'w Rc<Worker>,
    socket: UdpSocket,
    /// A request without fields.
    plain: OwnedRequest,
    /// The second in which denials are counted, and their number.
    denials: (Instant, u32),
}

impl<'w> Server<'w> {
    fn new(worker: &'w Rc<Worker>, socket: UdpSocket) -> Server<'w> {
        let (mut scratch, limits) = (Scratch::new(), http1::Limits::DEFAULT);
        let plain = http1::parse_request(PLAIN, &mut scratch, &limits);
        let plain = plain.ok().flatten().expect("a whole request").detach();
        Server { worker, socket, plain, denials: (time::now(), 0) }
    }

    /// Answers until the configuration has another address, or none.
    async fn run(mut self, address: SocketAddr) {
        let mut buffer = vec![0; ICP_BYTES_MAX];
        let mut out = Vec::new();
        let mut in_turn = 0;
        loop {
            let received = time::timeout(LOOK, self.socket.recv_from(&mut buffer)).await;
            let snapshot = self.worker.snapshot();
            let Some(rules) = snapshot.config.icp.as_ref().filter(|icp| icp.listen == address)
            else {
                return;
            };
            let (read, from) = match received {
                Ok(Ok(received)) => received,
                Ok(Err(error)) => {
                    tracing::debug!(%error, "a query was not received");
                    time::sleep(LOOK).await;
                    continue;
                }
                Err(_) => continue,
            };
            in_turn += 1;
            if in_turn == QUERIES_PER_TURN_MAX {
                in_turn = 0;
                runtime::yield_now().await;
            }
            let Ok(query) = Message::read(&buffer[..read]) else { continue };
            if query.kind != Kind::Query {
                continue;
            }
            let Some(kind) = self.kind(rules, from, query.url).await else { continue };
            if query.answer(kind).write(&mut out).is_ok() && out.len() <= read {
                // What cannot be sent at once is lost, as on the way.
                let sent = time::timeout(LOOK, self.socket.send_to(&out, from)).await;
                tracing::trace!(?kind, %from, ?sent, "a query was answered");
            }
        }
    }

    /// The answer; `None`: there is none.
    async fn kind(
        &mut self,
        rules: &IcpServer,
        from: SocketAddr,
        url: &[u8],
    ) -> Option<Kind<'static>> {
        if !rules.allows(from.ip()) {
            let now = time::now();
            if now.since(self.denials.0) >= Duration::from_secs(1) {
                self.denials = (now, 0);
            }
            self.denials.1 += 1;
            return (self.denials.1 <= DENIALS_PER_SECOND_MAX).then_some(Kind::Denied);
        }
        let Some((scheme, authority, path)) = parts(url) else { return Some(Kind::Err) };
        if self.has(scheme, authority, path).await {
            Some(Kind::Hit)
        } else if self.worker.overload.share_ppm() > 0 {
            Some(Kind::MissNofetch)
        } else {
            Some(Kind::Miss)
        }
    }

    /// Whether a request for the URL would get a fresh response from the store of one of the
    /// listeners.
    async fn has(&self, scheme: Scheme, authority: &[u8], path: &[u8]) -> bool {
        let cache = &self.worker.cache;
        let snapshot = self.worker.snapshot();
        for role in [Role::Forward, Role::Reverse] {
            let serves = snapshot.config.listeners.iter().any(|listener| {
                let speaks =
                    role == Role::Forward || listener.tls.is_some() == (scheme == Scheme::Https);
                listener.role == role && speaks
            });
            if !serves || (role == Role::Reverse && snapshot.routes.bars(authority, path)) {
                continue;
            }
            let key = cache.uri_key(Realm { role, scheme }, authority, path);
            let wire = Wire(self.plain.head().fields);
            if cache.disk().is_some() {
                swap_in(cache, key, &wire).await;
            }
            let now_ms = time::wall_ms();
            if let Lookup::Found(stored, _) = cache.look(Look::Peek, key, &wire, now_ms)
                && stored.is_fresh(now_ms)
            {
                return true;
            }
        }
        false
    }
}

/// The parts of a URL that make its key.
fn parts(url: &[u8]) -> Option<(Scheme, &[u8], &[u8])> {
    let at = url.windows(3).position(|three| three == b"://")?;
    let scheme = Scheme::of(&url[..at])?;
    let rest = &url[at + 3..];
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    http1::parse_authority(authority).ok()?;
    Some((scheme, authority, if path.is_empty() { b"/" } else { path }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart_as_in_requests() {
        let of = |url: &'static str| parts(url.as_bytes()).map(|(_, host, path)| (host, path));
        assert_eq!(of("http://a:81/b?c"), Some((&b"a:81"[..], &b"/b?c"[..])));
        assert_eq!(of("HTTP://a"), Some((&b"a"[..], &b"/"[..])));
        for wrong in ["", "a/b", "ftp://a/", "http:///a", "http://u@h/"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
