//! Resolves names to addresses, caches them for their TTL, and never blocks a core.
//!
//! What: an address literal is returned as it is; a name in `/etc/hosts` has the addresses listed
//! there; any other name is queried at the servers of `/etc/resolv.conf`, and the answer is valid
//! for its TTL. Concurrent lookups of a name share one query. A name that is used near the end of
//! its TTL is queried again while the old answer is still used.
//!
//! Who owns: all cores share one resolver. The core whose request finds no answer sends the query
//! in a separate task, which ends when no request waits for the answer any more.
//!
//! If `resolv.conf` names no server, the system's resolver runs on the runtime's small pool,
//! because it blocks. The system's resolver reports no TTL, so its answers are valid for a fixed
//! time.
//!
//! Guarantees: an answer is kept for at most [`TTL_MAX`]; [`limits`] bounds the look-ups of clients
//! in flight and the bytes of names; only valid names are looked up and kept; the lock is never
//! held over a wait.

#![forbid(unsafe_code)]

mod ask;
mod files;
#[cfg(any(test, fuzzing))]
#[path = "../../../../tools/fuzz/checks/dns.rs"]
pub mod fuzzing;
mod host;
pub mod limits;
mod table;
mod wire;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hashbrown::HashMap;

use runtime::time::{self, Instant};
use runtime::{Either, race};

use crate::limits::{FAILURE_KEPT, TTL_MAX, TTL_MIN, TTL_NONE_MAX};
use ask::Ids;
use files::Servers;
use table::{Find, Id, Kept, Network, Table};

pub use host::{Host, Name};

/// Where names are looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NameServers {
    /// As the system does: `/etc/hosts`, then the servers of `/etc/resolv.conf`.
    #[default]
    System,
    /// Only these servers.
    At(Vec<SocketAddr>),
}

/// The resolver that all cores share.
#[derive(Debug)]
pub struct Resolver {
    source: Source,
    ids: Ids,
    table: Mutex<Table>,
    /// What is known of services. The configuration names all services.
    services: Mutex<HashMap<String, KnownService>>,
}

/// A host of a service (RFC 2782).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name, in lower case and without a final dot.
    pub target: Box<str>,
    /// Its port.
    pub port: u16,
    /// Hosts with a lower number come first.
    pub priority: u16,
    /// Its share among the hosts of this priority.
    pub weight: u16,
}

/// The hosts of a service, and how long this answer is valid.
#[derive(Debug)]
struct KnownService {
    found: Result<Arc<[Service]>, NotFound>,
    until: Instant,
}

/// The sources of answers.
#[derive(Debug)]
struct Source {
    hosts: HashMap<String, Vec<IpAddr>>,
    servers: Servers,
}

/// The addresses of a name.
#[derive(Clone, Debug)]
pub struct Answer {
    /// In the order in which to try them.
    pub ips: Arc<[IpAddr]>,
    /// The name that has them: as it was looked up, after search domains.
    pub name: Arc<str>,
    /// No name server has answered for the addresses of this family, so that there may be more.
    pub unanswered: Option<Family>,
}

/// Addresses of one version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// That of an address.
    pub fn of(ip: IpAddr) -> Family {
        if ip.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

/// Why a look-up has found no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// There is no such name, or it has no address.
    NoAddress,
    /// No name server has answered.
    Unanswered,
}

/// Why a client gets no addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The look-up has found none.
    NotFound(NotFound),
    /// The clients have as many look-ups in flight as they may.
    Busy,
}

/// The addresses found.
#[derive(Clone, Debug)]
struct Found {
    /// In the order in which to try them.
    ips: Vec<IpAddr>,
    /// Seconds.
    ttl: u32,
    /// The name that has them.
    name: Arc<str>,
    unanswered: Option<Family>,
}

/// Why there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookupError {
    /// There is no such name, or it has no address. With the time in seconds for which that is
    /// valid, if the reply says so.
    Nothing { ttl: Option<u32> },
    /// No server has answered.
    Unanswered,
}

impl Resolver {
    /// A resolver with an empty cache.
    pub fn new(servers: &NameServers) -> Arc<Resolver> {
        let source = Source::of(servers);
        // A thread of the pool that asks the system's resolver cannot be stopped.
        let table = Table::new(source.servers.addresses.is_empty());
        let (ids, table, services) = (Ids::default(), Mutex::new(table), Mutex::default());
        Arc::new(Resolver { source, ids, table, services })
    }

    /// The addresses of a `host` of the configuration, which may be an address literal (IPv6 in
    /// brackets). Such look-ups do not count among those of clients.
    pub async fn resolve(
        self: &Arc<Resolver>,
        host: &str,
        port: u16,
    ) -> Result<Arc<[SocketAddr]>, NotFound> {
        self.resolve_families(host, port).await.map(|(addresses, _)| addresses)
    }

    /// The same, and the family for which no name server has answered.
    ///
    /// # Errors
    /// Why there are none.
    pub async fn resolve_families(
        self: &Arc<Resolver>,
        host: &str,
        port: u16,
    ) -> Result<(Arc<[SocketAddr]>, Option<Family>), NotFound> {
        let name = match Host::read(host) {
            Some(Host::Address(ip)) => return Ok((Arc::new([SocketAddr::new(ip, port)]), None)),
            Some(Host::Name(name)) => name,
            None => return Err(NotFound::NoAddress),
        };
        let at = |ip: &IpAddr| SocketAddr::new(*ip, port);
        match self.look_up(&name, None).await {
            Ok(answer) => Ok((answer.ips.iter().map(at).collect(), answer.unanswered)),
            Err(NoAnswer::NotFound(reason)) => Err(reason),
            Err(NoAnswer::Busy) => unreachable!("a limit is for clients"),
        }
    }

    /// The hosts of a service of the configuration, such as `_http._tcp.example.org`.
    ///
    /// # Errors
    /// Why there are none.
    pub async fn resolve_service(&self, service: &str) -> Result<Arc<[Service]>, NotFound> {
        let name = Name::read(service).ok_or(NotFound::NoAddress)?;
        let now = time::now();
        if let Some(known) = self.services().get(service).filter(|known| now < known.until) {
            return known.found.clone();
        }
        let clamped = |ttl: u32| Duration::from_secs(ttl.into()).clamp(TTL_MIN, TTL_MAX);
        let asked = ask::look_up_service(&self.source.servers, &self.ids, &name).await;
        let (found, kept) = match asked {
            Ok((services, ttl)) => (Ok(services.into()), clamped(ttl)),
            Err(LookupError::Nothing { ttl }) => {
                let kept = ttl.map_or(TTL_MIN, clamped).min(TTL_NONE_MAX);
                (Err(NotFound::NoAddress), kept)
            }
            Err(LookupError::Unanswered) => (Err(NotFound::Unanswered), FAILURE_KEPT),
        };
        let known = KnownService { found: found.clone(), until: time::now() + kept };
        self.services().insert(service.to_owned(), known);
        found
    }

    /// The addresses of a name for this client.
    ///
    /// # Errors
    /// Why there are none, or that clients have too many look-ups in flight.
    pub async fn resolve_for(
        self: &Arc<Resolver>,
        client: IpAddr,
        name: &Name,
    ) -> Result<Answer, NoAnswer> {
        self.look_up(name, Some(Network::of(client))).await
    }

    /// The names that are looked up before this name itself, because search domains complete it.
    pub fn completed(&self, name: &Name) -> Vec<String> {
        match self.source.hosts.contains_key(name.as_str()) {
            true => Vec::new(),
            false => self.source.servers.before(name),
        }
    }

    /// All names that may be looked up for this name.
    pub fn candidates(&self, name: &Name) -> Vec<String> {
        match self.source.hosts.contains_key(name.as_str()) {
            true => vec![name.as_str().to_owned()],
            false => self.source.servers.candidates(name),
        }
    }

    async fn look_up(
        self: &Arc<Resolver>,
        name: &Name,
        by: Option<Network>,
    ) -> Result<Answer, NoAnswer> {
        if let Some(ips) = self.source.hosts.get(name.as_str()) {
            let (ips, name) = (ips.as_slice().into(), name.as_str().into());
            return Ok(Answer { ips, name, unanswered: None });
        }
        let mut waiter = Waiter { resolver: self, name, key: &name.to_string(), by, at: None };
        std::future::poll_fn(|cx| waiter.poll(cx)).await
    }

    async fn ask(&self, name: &Name) -> Result<Found, LookupError> {
        ask::look_up(&self.source.servers, &self.ids, name).await
    }

    fn services(&self) -> MutexGuard<'_, HashMap<String, KnownService>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No code panics while it holds this lock.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that needs the addresses of a name. It leaves when it is dropped.
struct Waiter<'r> {
    resolver: &'r Arc<Resolver>,
    name: &'r Name,
    /// The name under which the answer is kept.
    key: &'r str,
    by: Option<Network>,
    at: Option<Waits>,
}

/// What a request waits for.
#[derive(Clone, Copy)]
struct Waits {
    waiter: Id,
    look_up: Id,
    /// The look-up was started for the same network.
    is_own: bool,
}

impl Waiter<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer, NoAnswer>> {
        let mut wake = Vec::new();
        let mut table = self.resolver.table();
        let mut starts = None;
        let now = time::now();
        let polled = loop {
            // A look-up for the same network that ended without an answer was cancelled.
            if let Some(at) = self.at
                && !table.is_asking(self.key, at.look_up)
            {
                self.at = None;
                let is_found = table.has_answer(self.key, now);
                if at.is_own && self.by.is_some() && !is_found {
                    break Poll::Ready(Err(NoAnswer::Busy));
                }
            }
            match table.find(self.key, self.by, now, &mut wake) {
                Find::Kept(result, refresh) => {
                    starts = refresh;
                    break Poll::Ready(result.map_err(NoAnswer::NotFound));
                }
                Find::Busy => break Poll::Ready(Err(NoAnswer::Busy)),
                Find::Start(id) => starts = Some(id),
                Find::Join(look_up, by) => {
                    let waiter = self.at.map_or_else(|| table.id(), |at| at.waiter);
                    self.at = Some(Waits { waiter, look_up, is_own: by == self.by });
                    table.wait(self.key, waiter, cx.waker());
                    break Poll::Pending;
                }
            }
        };
        drop(table);
        wake.into_iter().for_each(Waker::wake);
        if let Some(id) = starts {
            let resolver = Arc::clone(self.resolver);
            let (name, key) = (self.name.clone(), self.key.to_owned());
            runtime::spawn(Asking { resolver, name, key, id }.run()).detach();
        }
        polled
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let Some(at) = self.at else { return };
        let mut wake = Vec::new();
        self.resolver.table().leave(self.key, at.waiter, &mut wake);
        wake.into_iter().for_each(Waker::wake);
    }
}

/// The address, if the host is an address literal.
pub fn literal(host: &str) -> Option<IpAddr> {
    host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host).parse().ok()
}

impl Source {
    fn of(servers: &NameServers) -> Source {
        let mut hosts = HashMap::new();
        let servers = match servers {
            NameServers::At(servers) => Servers::at(servers.clone()),
            NameServers::System => {
                let read = |path| std::fs::read_to_string(path).unwrap_or_default();
                hosts = files::hosts(&read("/etc/hosts"));
                Servers::of_resolv_conf(&read("/etc/resolv.conf"))
            }
        };
        // RFC 6761, 6.3: localhost must not be queried on the network.
        let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        hosts.entry("localhost".to_owned()).or_insert_with(|| loopback.to_vec());
        Source { hosts, servers }
    }
}

/// A look-up in flight. Its end wakes the waiting tasks; if it is dropped early, they find no
/// answer.
struct Asking {
    resolver: Arc<Resolver>,
    name: Name,
    key: String,
    id: Id,
}

impl Asking {
    async fn run(self) {
        let Either::Left(found) = race(self.resolver.ask(&self.name), self.cancelled()).await
        else {
            return;
        };
        if let Err(error) = &found {
            tracing::debug!(host = self.key, ?error, "no address");
        }
        let now = time::now();
        self.resolver.table().note(&self.key, self.id, keep(found, now), now);
    }

    /// Ready when no task wants the answer any more.
    async fn cancelled(&self) {
        std::future::poll_fn(|cx| {
            let mut table = self.resolver.table();
            if !table.is_asking(&self.key, self.id) {
                return Poll::Ready(());
            }
            table.set_task(&self.key, self.id, cx.waker());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let wake = self.resolver.table().take(&self.key, self.id);
        wake.into_iter().for_each(Waker::wake);
    }
}

fn keep(found: Result<Found, LookupError>, now: Instant) -> Kept {
    let clamped = |ttl: u32| Duration::from_secs(ttl.into()).clamp(TTL_MIN, TTL_MAX);
    let (result, kept) = match found {
        Ok(Found { ips, ttl, name, unanswered }) => {
            let kept = match unanswered {
                None => clamped(ttl),
                // The other family is asked for again soon.
                Some(_) => clamped(ttl).min(TTL_NONE_MAX),
            };
            (Ok(Answer { ips: ips.into(), name, unanswered }), kept)
        }
        Err(LookupError::Nothing { ttl }) => {
            let kept = ttl.map_or(TTL_MIN, clamped).min(TTL_NONE_MAX);
            (Err(NotFound::NoAddress), kept)
        }
        Err(LookupError::Unanswered) => (Err(NotFound::Unanswered), FAILURE_KEPT),
    };
    Kept { result, until: now + kept, refresh_at: now + kept * 9 / 10 }
}
