//! Names to addresses, for as long as their TTL says, without ever blocking a core.
//!
//! What: an address written as such is itself; a name of `/etc/hosts` has what stands there; any
//! other is asked of the servers of `/etc/resolv.conf`, and the answer holds for its TTL. A name
//! that many ask for at once is asked for once; one that is used near the end of its time is
//! asked again while the old answer still serves. Who owns: one resolver is shared by all cores;
//! the core whose request found no answer asks, in a task of its own, so that a client who leaves
//! takes the answer from nobody.
//!
//! Where `resolv.conf` names no server, the system's resolver is asked on the runtime's small
//! pool, because it blocks; it tells no TTL, so its answers hold for a fixed time.
//!
//! What never happens: an answer is kept beyond [`TTL_MAX`], or names beyond
//! [`NAMES_MAX`]; the lock is held over a wait.

#![forbid(unsafe_code)]

mod ask;
mod files;
#[doc(hidden)]
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
    /// These and nothing else.
    At(Vec<SocketAddr>),
}

/// What all cores know of names.
#[derive(Debug)]
pub struct Resolver {
    source: Source,
    ids: Ids,
    known: Mutex<HashMap<String, Known>>,
}

/// Whom to ask.
#[derive(Debug)]
struct Source {
    hosts: HashMap<String, Vec<IpAddr>>,
    /// `None`: the system's own resolver.
    servers: Option<Servers>,
}

/// What is known of a name.
#[derive(Debug, Default)]
struct Known {
    answer: Option<Kept>,
    /// Somebody asks: these wait for it.
    asking: Option<Vec<Waker>>,
}

#[derive(Clone, Debug)]
struct Kept {
    result: Result<Arc<[IpAddr]>, Fault>,
    until: Instant,
    /// From then on whoever uses it has it asked for again.
    refresh_at: Instant,
}

/// Addresses as they were found.
#[derive(Clone, Debug)]
struct Found {
    /// In the order in which they are to be tried.
    ips: Vec<IpAddr>,
    /// Seconds.
    ttl: u32,
}

/// Why there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookupError {
    /// There is no such name, or it has no address; so many seconds, if the reply says so.
    Nothing { ttl: Option<u32> },
    /// No server has answered.
    Unanswered,
}

impl Resolver {
    /// A resolver that knows nothing yet.
    pub fn new(servers: &NameServers) -> Arc<Resolver> {
        Arc::new(Resolver {
            source: Source::of(servers),
            ids: Ids::default(),
            known: Mutex::default(),
        })
    }

    /// The addresses of `host`, which may be an address, in brackets if it is of IPv6.
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

    /// Asks for a name that is marked as being asked for.
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

    /// Nothing panics while it holds this lock.
    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address that a host is, if it is one.
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
        // RFC 6761, 6.3: it is nobody's business on the network.
        let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        hosts.entry("localhost".to_owned()).or_insert_with(|| loopback.to_vec());
        Source { hosts, servers }
    }
}

/// The duty to answer those who wait for a name. Dropped before, it lets the next one ask.
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
        // Servers that are silent for a while do not take away what still holds.
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

/// Forgets what has had its time; if that is not enough, all that nobody is asking for.
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
            // It does not tell what is not there from what could not be asked.
            Err(_) => Err(LookupError::Nothing { ttl: None }),
        }
    }
}
