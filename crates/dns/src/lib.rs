//! Resolves names to addresses, caches them for their TTL, and never blocks a core.
//!
//! What: an address literal is returned as it is; a name in `/etc/hosts` has the addresses listed
//! there; any other name is queried at the servers of `/etc/resolv.conf`, and the answer is valid
//! for its TTL. Concurrent lookups of a name share one query. A name that is used near the end of
//! its TTL is queried again while the old answer is still used.
//! Who owns: all cores share one resolver. The core whose request finds no answer sends the query
//! in a separate task, so that the answer is not lost if that client leaves.
//!
//! If `resolv.conf` names no server, the system's resolver runs on the runtime's small pool,
//! because it blocks. It reports no TTL, so its answers are valid for a fixed time.
//!
//! What never happens: an answer is kept beyond [`TTL_MAX`], or names beyond
//! [`NAMES_MAX`]; the lock is held over a wait.

#![forbid(unsafe_code)]

mod ask;
mod files;
#[cfg(any(test, fuzzing))]
#[path = "../../../fuzz/checks/dns.rs"]
pub mod fuzzing;
pub mod limits;
mod wire;

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hashbrown::HashMap;
use runtime::time::{self, Instant};

use crate::limits::{FAILURE_KEPT, NAMES_MAX, SYSTEM_KEPT, TTL_MAX, TTL_MIN, TTL_NONE_MAX};
use ask::Ids;
use files::Servers;
use outcome::Fault;

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
    known: Mutex<HashMap<String, Known>>,
}

/// The sources of answers.
#[derive(Debug)]
struct Source {
    hosts: HashMap<String, Vec<IpAddr>>,
    /// `None`: the system's resolver.
    servers: Option<Servers>,
}

/// What is known of a name.
#[derive(Debug, Default)]
struct Known {
    answer: Option<Kept>,
    /// A query is in flight, and these tasks wait for it.
    asking: Option<Vec<Waker>>,
}

#[derive(Clone, Debug)]
struct Kept {
    result: Result<Arc<[IpAddr]>, Fault>,
    until: Instant,
    /// From then on a use starts another query.
    refresh_at: Instant,
}

/// The addresses found.
#[derive(Clone, Debug)]
struct Found {
    /// In the order in which to try them.
    ips: Vec<IpAddr>,
    /// Seconds.
    ttl: u32,
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
        Arc::new(Resolver {
            source: Source::of(servers),
            ids: Ids::default(),
            known: Mutex::default(),
        })
    }

    /// The addresses of `host`, which may be an address literal (IPv6 in brackets).
    pub async fn resolve(
        self: &Arc<Resolver>,
        host: &str,
        port: u16,
    ) -> Result<Arc<[SocketAddr]>, Fault> {
        if let Some(ip) = literal(host) {
            return Ok(Arc::new([SocketAddr::new(ip, port)]));
        }
        let ips = self.look_up(host).await?;
        Ok(ips.iter().map(|&ip| SocketAddr::new(ip, port)).collect())
    }

    /// The addresses of a name.
    async fn look_up(self: &Arc<Resolver>, host: &str) -> Result<Arc<[IpAddr]>, Fault> {
        let host = host.to_ascii_lowercase();
        if let Some(ips) = self.source.hosts.get(host.trim_end_matches('.')) {
            return Ok(ips.as_slice().into());
        }
        std::future::poll_fn(|cx| self.poll_look_up(cx, &host)).await
    }

    fn poll_look_up(
        self: &Arc<Resolver>,
        cx: &mut Context<'_>,
        host: &str,
    ) -> Poll<Result<Arc<[IpAddr]>, Fault>> {
        let mut known = self.known();
        let now = time::now();
        if known.len() >= NAMES_MAX && !known.contains_key(host) {
            make_room(&mut known, now);
        }
        let entry = known.entry_ref(host).or_default();
        if let Some(kept) = &entry.answer
            && now < kept.until
        {
            let kept = kept.clone();
            let refresh = now >= kept.refresh_at && kept.result.is_ok() && entry.asking.is_none();
            if refresh {
                entry.asking = Some(Vec::new());
            }
            drop(known);
            if refresh {
                self.start(host);
            }
            return Poll::Ready(kept.result);
        }
        let waiting = entry.asking.is_some();
        let wakers = entry.asking.get_or_insert_default();
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
        drop(known);
        if !waiting {
            self.start(host);
        }
        Poll::Pending
    }

    /// Starts the query for a name that is marked as being queried.
    fn start(self: &Arc<Resolver>, host: &str) {
        let asking = Asking { resolver: Arc::clone(self), host: host.to_owned() };
        runtime::spawn(asking.run()).detach();
    }

    async fn ask(&self, host: &str) -> Result<Found, LookupError> {
        match &self.source.servers {
            Some(servers) => ask::look_up(servers, &self.ids, host).await,
            None => of_the_system(host).await,
        }
    }

    /// No code panics while it holds this lock.
    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
            NameServers::At(servers) => Some(Servers::at(servers.clone())),
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

/// A query in flight. Its end wakes the waiting tasks; if it is dropped early, the next one of them
/// queries again.
struct Asking {
    resolver: Arc<Resolver>,
    host: String,
}

impl Asking {
    async fn run(self) {
        let found = self.resolver.ask(&self.host).await;
        if let Err(error) = &found {
            tracing::debug!(host = self.host, ?error, "no address");
        }
        let kept = keep(found, time::now());
        let mut known = self.resolver.known();
        let Some(entry) = known.get_mut(&self.host) else { return };
        let unanswered = matches!(kept.result, Err(Fault::Unresolved));
        let still_good = entry.answer.as_ref().is_some_and(|old| time::now() < old.until);
        // A valid answer is kept when the servers do not respond for a while.
        if !(unanswered && still_good) {
            entry.answer = Some(kept);
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut known = self.resolver.known();
        let wakers = known.get_mut(&self.host).and_then(|entry| entry.asking.take());
        drop(known);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

fn keep(found: Result<Found, LookupError>, now: Instant) -> Kept {
    let clamped = |ttl: u32| Duration::from_secs(ttl.into()).clamp(TTL_MIN, TTL_MAX);
    let (result, kept) = match found {
        Ok(Found { ips, ttl }) => (Ok(ips.into()), clamped(ttl)),
        Err(LookupError::Nothing { ttl }) => {
            let kept = ttl.map_or(TTL_MIN, clamped).min(TTL_NONE_MAX);
            (Err(Fault::NoAddress), kept)
        }
        Err(LookupError::Unanswered) => (Err(Fault::Unresolved), FAILURE_KEPT),
    };
    Kept { result, until: now + kept, refresh_at: now + kept * 9 / 10 }
}

/// Removes expired names; if that is not enough, all names without a query in flight.
fn make_room(known: &mut HashMap<String, Known>, now: Instant) {
    let holds = |entry: &Known| entry.answer.as_ref().is_some_and(|kept| now < kept.until);
    known.retain(|_, entry| entry.asking.is_some() || holds(entry));
    if known.len() >= NAMES_MAX {
        known.retain(|_, entry| entry.asking.is_some());
    }
}

/// Asks the system's resolver.
fn of_the_system(host: &str) -> impl Future<Output = Result<Found, LookupError>> + use<> {
    let host = host.to_owned();
    async move {
        let found = runtime::fs::unblock(move || (host.as_str(), 0).to_socket_addrs()).await;
        match found {
            Ok(addresses) => {
                let mut ips: Vec<IpAddr> = Vec::new();
                for address in addresses {
                    if !ips.contains(&address.ip()) {
                        ips.push(address.ip());
                    }
                }
                let ttl = SYSTEM_KEPT.as_secs() as u32;
                if ips.is_empty() {
                    return Err(LookupError::Nothing { ttl: Some(ttl) });
                }
                Ok(Found { ips, ttl })
            }
            // It does not distinguish a missing name from a failed query.
            Err(_) => Err(LookupError::Nothing { ttl: None }),
        }
    }
}
