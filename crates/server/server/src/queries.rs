//! Answers to the queries of other caches (ICP, RFC 2186; HTCP, RFC 2756), and to their purges.
//!
//! A query asks whether a request would be a hit here: with ICP a GET of a URL without any fields,
//! with HTCP a request with its fields. One core answers, from memory at once, or from the disk if
//! the response is there: several such queries wait for the disk at a time. The queries of
//! strangers are refused at a bounded rate, and otherwise not answered; such an answer is not
//! longer than its question. A CLR of HTCP purges a URL, if its sender may and has not sent too
//! many in this second: its address can be forged. It is not passed on, so that it cannot go in
//! circles.
//!
//! What never happens: a query makes us fetch anything; a stale response is announced; a query
//! waits for one that reads the disk; a flood of queries keeps the core from its other work, or
//! makes more tasks than a named limit allows.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cache::changes::Changes;
use cache::disk::swap_in::{must_read, swap_in};
use cache::key::StoredUri;
use cache::paths::Paths;
use cache::realm::Realm;
use cache::stored::{Stored, Wire};
use cache::{Look, Lookup};
use config::{Config, QueryServer, Role};
use exchange::Worker;
use exchange::snapshot::Snapshot;
use http1::{OwnedRequest, Scheme, Scratch};
use peering::htcp;
use peering::icp::{Kind, Message};
use peering::limits::ICP_BYTES_MAX;
use policy::reading::Reading;
use policy::routes::Choice;
use runtime::net::UdpSocket;
use runtime::time::{self, Instant};
use store::Key;
use transport::shares::Shares;

use crate::limits::{
    ALL_CLEARS_PER_SECOND_MAX, CLEARING_MAX, CLEARS_PER_SECOND_MAX, DENIALS_PER_SECOND_MAX,
    IGNORED_LOGGED_EVERY, QUERIES_PER_TURN_MAX, QUERIES_READING_MAX,
};

/// How often the configuration is looked at, and a bind that failed is tried again.
const LOOK: Duration = Duration::from_secs(1);

/// The protocol of queries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    Icp,
    Htcp,
}

impl Protocol {
    fn rules(self, config: &Config) -> Option<&QueryServer> {
        match self {
            Protocol::Icp => config.icp.as_ref(),
            Protocol::Htcp => config.htcp.as_ref(),
        }
    }
}

/// Answers queries as the configuration in force says, for as long as it is polled.
pub(crate) async fn answer(worker: Rc<Worker>, protocol: Protocol) {
    let mut failures = 0;
    loop {
        let listen = protocol.rules(&worker.snapshot().config).map(|rules| rules.listen);
        let Some(listen) = listen else {
            time::sleep(LOOK).await;
            continue;
        };
        match UdpSocket::bind(listen) {
            Ok(socket) => {
                failures = 0;
                Server::new(&worker, socket, protocol).run(listen).await;
            }
            Err(error) => {
                failures += 1;
                // At the first try, the process that this one replaces still has the address.
                if failures == 2 {
                    tracing::error!(address = %listen, %error, "no queries are answered");
                }
                time::sleep(LOOK).await;
            }
        }
    }
}

/// HTTP/1.0 has no required field.
pub(crate) const PLAIN: &[u8] = b"GET / HTTP/1.0\r\n\r\n";

struct Server<'w> {
    worker: &'w Rc<Worker>,
    socket: Rc<UdpSocket>,
    protocol: Protocol,
    /// A request without fields.
    plain: OwnedRequest,
    /// Those that wait for the disk.
    reading: Rc<Shares>,
    denials: Rate,
    clears: Clears,
    /// The purges that are not durable yet, while a task makes them so.
    purges: Rc<RefCell<Option<Changes>>>,
}

/// What has happened in the second that began then.
struct Rate {
    since: Instant,
    count: u32,
}

impl Rate {
    fn new() -> Rate {
        Rate { since: time::now(), count: 0 }
    }

    /// Whether it may happen once more.
    fn allows(&mut self, per_second_max: u32) -> bool {
        let now = time::now();
        if now.since(self.since) >= Duration::from_secs(1) {
            *self = Rate { since: now, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count <= per_second_max
    }
}

/// The purges of each sender in this second, and of all.
struct Clears {
    senders: HashMap<IpAddr, Rate>,
    all: Rate,
    /// When it was last logged that some were ignored.
    logged: Option<Instant>,
}

impl Clears {
    fn new() -> Clears {
        Clears { senders: HashMap::new(), all: Rate::new(), logged: None }
    }

    /// Whether this sender may send one more. What is too much for one does not count for all.
    fn allow(&mut self, from: IpAddr) -> bool {
        let allows = self.rate_of(from).allows(CLEARS_PER_SECOND_MAX)
            && self.all.allows(ALL_CLEARS_PER_SECOND_MAX);
        let now = time::now();
        let was_logged = self.logged.is_some_and(|at| now.since(at) < IGNORED_LOGGED_EVERY);
        if !allows && !was_logged {
            tracing::warn!(%from, "purges of a peer come too often, and some are ignored");
            self.logged = Some(now);
        }
        allows
    }

    fn rate_of(&mut self, from: IpAddr) -> &mut Rate {
        if self.senders.len() >= CLEARING_MAX && !self.senders.contains_key(&from) {
            let oldest = self.senders.iter().min_by_key(|(_, rate)| rate.since);
            if let Some(oldest) = oldest.map(|(sender, _)| *sender) {
                self.senders.remove(&oldest);
            }
        }
        self.senders.entry(from).or_insert_with(Rate::new)
    }
}

impl<'w> Server<'w> {
    fn new(worker: &'w Rc<Worker>, socket: UdpSocket, protocol: Protocol) -> Server<'w> {
        let (socket, reading) = (Rc::new(socket), Shares::new(QUERIES_READING_MAX));
        let (denials, clears) = (Rate::new(), Clears::new());
        let (plain, purges) = (plain(), Rc::default());
        Server { worker, socket, protocol, plain, reading, denials, clears, purges }
    }

    /// Answers until the configuration has another address, or none.
    async fn run(mut self, address: SocketAddr) {
        let mut buffer = vec![0; ICP_BYTES_MAX];
        let mut out = Vec::new();
        let mut in_turn = 0;
        loop {
            let received = time::timeout(LOOK, self.socket.recv_from(&mut buffer)).await;
            let snapshot = self.worker.snapshot();
            let rules = self.protocol.rules(&snapshot.config);
            let Some(rules) = rules.filter(|rules| rules.listen == address) else { return };
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
            out.clear();
            let question = &buffer[..read];
            let is_known = match self.protocol {
                Protocol::Icp => self.icp(rules, from, question, &mut out),
                Protocol::Htcp => self.htcp(rules, from, question, &mut out),
            };
            match is_known {
                Ok(()) => send(&self.socket, &out, from).await,
                Err(OnDisk) => self.answer_later(question, from),
            }
        }
    }

    /// Answers a query that only the disk can answer. No other query waits for it.
    fn answer_later(&self, question: &[u8], from: SocketAddr) {
        let share = self.reading.share(from.ip());
        share.set(1);
        let (worker, socket) = (Rc::clone(self.worker), Rc::clone(&self.socket));
        let (protocol, question) = (self.protocol, question.to_vec());
        let answering = async move {
            let mut out = Vec::new();
            match protocol {
                Protocol::Icp => icp_from_disk(&worker, &question, &mut out).await,
                Protocol::Htcp => htcp_from_disk(&worker, &question, &mut out).await,
            }
            send(&socket, &out, from).await;
        };
        let answered = async move {
            runtime::race(answering, share.evicted()).await;
        };
        runtime::spawn_detached(answered);
    }

    /// Writes the answer, or nothing.
    fn icp(
        &mut self,
        rules: &QueryServer,
        from: SocketAddr,
        question: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), OnDisk> {
        let Ok(query) = Message::read(question) else { return Ok(()) };
        if query.kind != Kind::Query {
            return Ok(());
        }
        let kind = match parts(query.url) {
            _ if !rules.allows(from.ip()) && self.may_refuse() => Kind::Denied,
            _ if !rules.allows(from.ip()) => return Ok(()),
            None => Kind::Err,
            Some(url) => {
                let found = found_in_memory(self.worker, url, &self.plain)?;
                kind_of(self.worker, found.as_deref())
            }
        };
        // An answer has the URL of its query, and so can be written.
        let _ = query.answer(kind).write(out);
        Ok(())
    }

    /// The same by HTCP.
    fn htcp(
        &mut self,
        rules: &QueryServer,
        from: SocketAddr,
        question: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), OnDisk> {
        let Ok(message) = htcp::Message::read(question) else { return Ok(()) };
        let htcp::Body::Request { request, .. } = message.body else { return Ok(()) };
        let may = match request {
            htcp::Request::Clear { .. } => rules.allows_clearing(from.ip()),
            _ => rules.allows(from.ip()),
        };
        let refusal = message.refused().or((!may).then_some(htcp::Refusal::Disallowed));
        if let Some(refusal) = refusal {
            if self.may_refuse()
                && let Some(answer) = message.refuse(refusal)
            {
                let _ = answer.write(out);
            }
            return Ok(());
        }
        let response = match request {
            htcp::Request::Nop => htcp::Response::Nop,
            htcp::Request::Test(specifier) => {
                let found = match tested(&specifier) {
                    Some((url, request)) => found_in_memory(self.worker, url, &request)?,
                    None => None,
                };
                write_test(&message, found.as_deref(), out);
                return Ok(());
            }
            htcp::Request::Clear { .. } if !self.clears.allow(from.ip()) => {
                self.worker.io.counters.clears_ignored.add(1);
                return Ok(());
            }
            htcp::Request::Clear { specifier, .. } => {
                htcp::Response::Cleared(self.clear(specifier.uri))
            }
            htcp::Request::Unsupported { .. } => return Ok(()),
        };
        if let Some(answer) = message.answer(response) {
            let _ = answer.write(out);
        }
        Ok(())
    }

    /// Invalidates a URL here. Unlike a purge this leaves no record: a peer may send any number of
    /// these, and purges of everything begin when there are too many records.
    fn clear(&self, url: &[u8]) -> htcp::Cleared {
        let Some((scheme, authority, path)) = parts(url) else { return htcp::Cleared::Absent };
        let (cache, routes) = (&self.worker.cache, Arc::clone(&self.worker.snapshot().routes));
        let stored = routes.stored_paths(Reading::of(authority, path));
        let paths = Paths::new(path, &stored);
        let mut was_there = false;
        for role in [Role::Forward, Role::Reverse] {
            let realm = Realm { role, scheme };
            was_there |= paths.each().any(|path| {
                let key = cache.uri_key(StoredUri::new(realm, authority, path));
                let on_disk = || cache.disk().is_some_and(|disk| disk.contains(&key));
                cache.store.peek(&key).is_some() || on_disk()
            });
            self.make_durable(cache.invalidate_url(realm, authority, paths, None, false));
        }
        if was_there { htcp::Cleared::Gone } else { htcp::Cleared::Absent }
    }

    /// Who sends a CLR does not wait until it would survive a crash. One task does, for all.
    fn make_durable(&self, made: Changes) {
        if let Some(purges) = &mut *self.purges.borrow_mut() {
            return purges.append(made);
        }
        *self.purges.borrow_mut() = Some(made);
        let (purges, cache) = (Rc::clone(&self.purges), Arc::clone(&self.worker.cache));
        let waiting = async move {
            loop {
                let next = purges.borrow_mut().replace(Changes::default());
                let next = next.filter(|changes| !changes.is_empty());
                let Some(next) = next else { break };
                next.durable(&cache).await;
            }
            *purges.borrow_mut() = None;
        };
        runtime::spawn_detached(waiting);
    }

    /// Whether one more refusal may be sent in this second.
    fn may_refuse(&mut self) -> bool {
        self.denials.allows(DENIALS_PER_SECOND_MAX)
    }
}

/// Only the disk can answer the query.
struct OnDisk;

/// Sends an answer. If that is not possible within a second it is lost, as on the way.
async fn send(socket: &UdpSocket, answer: &[u8], to: SocketAddr) {
    if !answer.is_empty() {
        let sent = time::timeout(LOOK, socket.send_to(answer, to)).await;
        tracing::trace!(%to, ?sent, "a query was answered");
    }
}

/// Writes the answer to a query that was allowed, after reading the disk.
async fn icp_from_disk(worker: &Worker, question: &[u8], out: &mut Vec<u8>) {
    let Ok(query) = Message::read(question) else { return };
    let Some(url) = parts(query.url) else { return };
    let found = found_on_disk(worker, url, &plain()).await;
    let _ = query.answer(kind_of(worker, found.as_deref())).write(out);
}

/// The same by HTCP.
async fn htcp_from_disk(worker: &Worker, question: &[u8], out: &mut Vec<u8>) {
    let Ok(message) = htcp::Message::read(question) else { return };
    let htcp::Body::Request { request: htcp::Request::Test(specifier), .. } = message.body else {
        return;
    };
    let Some((url, request)) = tested(&specifier) else { return };
    let found = found_on_disk(worker, url, &request).await;
    write_test(&message, found.as_deref(), out);
}

fn kind_of(worker: &Worker, found: Option<&Stored>) -> Kind<'static> {
    match found {
        Some(_) => Kind::Hit,
        None if worker.overload.share_ppm() > 0 => Kind::MissNofetch,
        None => Kind::Miss,
    }
}

/// The URL and the request of a TST; `None` if no stored response can answer it.
fn tested<'m>(specifier: &htcp::Specifier<'m>) -> Option<(Url<'m>, OwnedRequest)> {
    if !matches!(specifier.method, b"GET" | b"HEAD") {
        return None;
    }
    let request = parsed(&[b"GET / HTTP/1.0\r\n", specifier.fields, b"\r\n"].concat())?;
    Some((parts(specifier.uri)?, request))
}

fn write_test(message: &htcp::Message<'_>, found: Option<&Stored>, out: &mut Vec<u8>) {
    let age = found.map(|stored| stored.head.meta.freshness.age_seconds(time::wall_ms()));
    let fields = age.map(|age| format!("Age: {age}\r\n"));
    let response = match &fields {
        Some(fields) => htcp::Response::Present(htcp::Detail {
            response_fields: fields.as_bytes(),
            ..htcp::Detail::default()
        }),
        None => htcp::Response::Absent { cache_fields: b"" },
    };
    if let Some(answer) = message.answer(response) {
        let _ = answer.write(out);
    }
}

/// A request without fields.
fn plain() -> OwnedRequest {
    parsed(PLAIN).expect("a whole request")
}

/// The scheme, the authority and the path of a URL.
type Url<'u> = (Scheme, &'u [u8], &'u [u8]);

/// The keys under which the listeners would serve the URL from the store.
fn keys(worker: &Worker, (scheme, authority, path): Url<'_>) -> Vec<Key> {
    let snapshot = worker.snapshot();
    let realms = [Role::Forward, Role::Reverse].map(|role| Realm { role, scheme });
    let served =
        realms.into_iter().filter(|realm| is_served((worker, &snapshot), *realm, authority, path));
    served.map(|realm| worker.cache.uri_key(StoredUri::new(realm, authority, path))).collect()
}

/// The fresh response in memory that one of the listeners would serve. The error says that memory
/// has none, and that the disk may.
fn found_in_memory(
    worker: &Worker,
    url: Url<'_>,
    request: &OwnedRequest,
) -> Result<Option<Arc<Stored>>, OnDisk> {
    let keys = keys(worker, url);
    let head = request.head();
    let wire = Wire(head.fields);
    let found = keys.iter().find_map(|key| fresh(worker, *key, &wire));
    match found {
        None if keys.iter().any(|key| must_read(&worker.cache, *key, &wire)) => Err(OnDisk),
        found => Ok(found),
    }
}

/// The same after reading the disk.
async fn found_on_disk(
    worker: &Worker,
    url: Url<'_>,
    request: &OwnedRequest,
) -> Option<Arc<Stored>> {
    for key in keys(worker, url) {
        let head = request.head();
        let wire = Wire(head.fields);
        swap_in(&worker.cache, key, None, &wire).await;
        if let Some(stored) = fresh(worker, key, &wire) {
            return Some(stored);
        }
    }
    None
}

fn fresh(worker: &Worker, key: Key, wire: &Wire<'_>) -> Option<Arc<Stored>> {
    let now_ms = time::wall_ms();
    match worker.cache.look(Look::Peek, key, wire, now_ms) {
        Lookup::Found(stored, _) if stored.is_fresh(now_ms) => Some(stored),
        _ => None,
    }
}

/// Whether a listener would serve the URL from the store.
pub(crate) fn is_served(
    (worker, snapshot): (&Worker, &Snapshot),
    Realm { role, scheme }: Realm,
    authority: &[u8],
    path: &[u8],
) -> bool {
    let serves = snapshot.config.listeners.iter().any(|listener| {
        let speaks = role == Role::Forward || listener.tls.is_some() == (scheme == Scheme::Https);
        listener.role == role && speaks
    });
    // With settings for its key, a response is not that of a URL alone.
    let plain =
        || matches!(snapshot.routes.choose(Reading::of(authority, path), || None), Choice::Plain);
    let admitted = || match role {
        Role::Forward => {
            let resolver = &worker.shared.resolver;
            snapshot.forward.admits_stored(authority, scheme.port(), resolver)
        }
        Role::Reverse => plain(),
    };
    serves && admitted()
}

pub(crate) fn parsed(bytes: &[u8]) -> Option<OwnedRequest> {
    let (mut scratch, limits) = (Scratch::new(), http1::Limits::DEFAULT);
    let head = http1::parse_request(bytes, &mut scratch, &limits).ok().flatten()?;
    Some(head.detach())
}

/// The parts of a URL that make its key.
fn parts(url: &[u8]) -> Option<Url<'_>> {
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

    /// Their addresses can be forged.
    #[test]
    fn purges_of_many_senders_have_a_rate_and_leave_room_for_another() {
        let mut clears = Clears::new();
        let from = |at: u32| IpAddr::from((at + 1).to_be_bytes());
        let many = CLEARING_MAX as u32 * 2;
        assert!((0..many).all(|at| clears.allow(from(at))), "a full table refuses none");
        assert_eq!(clears.senders.len(), CLEARING_MAX);
        let more = (0..many).flat_map(|at| [from(at); 50]);
        let allowed = more.filter(|at| clears.allow(*at)).count();
        assert_eq!(allowed as u32, ALL_CLEARS_PER_SECOND_MAX - many);
    }

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
