//! The objects that all cores share for the life of the process: the cache, the log, names,
//! passwords.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use access_log::{Sink, UrlWatch};
use cache::Cache;
use config::{Config, Role};
use dns::Resolver;
use http1::{Method, RequestHead, Scheme, Target};
use metrics::RefusalCounts;
use peering::digest::PATH;
use policy::forward::{Known, OwnAddresses};
use policy::rules::Switch;
use policy::{quota, via};
use store::disk::DiskStore;
use transport::tls::Issued;
use upstream::registry::Registry;

use crate::cluster::State;

/// Shared by all cores of one server. Code that uses one of these is given that one alone.
#[derive(Debug)]
pub struct Shared {
    /// Stored responses and fetches in flight.
    pub cache: Arc<Cache>,
    /// How many requests each rule has refused.
    pub refusals: Arc<RefusalCounts>,
    /// Where log lines go.
    pub log: Sink,
    /// The most frequent URLs, while a page watches.
    pub urls: Arc<UrlWatch>,
    /// Our name in requests to upstreams; no other process has the same one.
    pub pseudonym: String,
    /// The addresses that we listen on.
    pub own: OwnAddresses,
    /// Passwords that were verified.
    pub passwords: Known,
    /// Requests that services have allowed.
    pub allowed: policy::auth::Known,
    /// The DNS resolver.
    pub resolver: Arc<Resolver>,
    /// The state of upstream servers, which outlives a reload.
    pub upstreams: Registry,
    /// Our cache digest.
    pub digest: OurDigest,
    /// The state of the cluster, which outlives a reload.
    pub cluster: Arc<State>,
    /// The state of quotas, which outlives a reload.
    pub quotas: quota::Registry,
    /// Whether maintenance is on.
    pub maintenance: Arc<Switch>,
    /// Seeds what is otherwise random; `None`: it is random.
    #[cfg(feature = "tls")]
    pub hash_seed: Option<[u64; 2]>,
    /// Certificates that come while the server runs, and the answers to their authority.
    pub issued: Arc<Issued>,
    /// Datagrams for connections of other cores and processes.
    pub strays: core_io::strays::Strays,
}

impl Shared {
    /// For a server of `workers` cores.
    pub fn new(config: &Config, workers: usize, log: Sink, disk: Option<DiskStore>) -> Shared {
        let cache = Arc::new(Cache::new(config, workers, disk));
        Shared {
            refusals: Arc::default(),
            log,
            urls: Arc::default(),
            own: OwnAddresses::default(),
            passwords: Known::default(),
            allowed: policy::auth::Known::default(),
            pseudonym: via::pseudonym(&cache.hasher),
            upstreams: Registry::default(),
            digest: OurDigest::default(),
            cluster: Arc::default(),
            quotas: quota::Registry::default(),
            maintenance: Arc::default(),
            #[cfg(feature = "tls")]
            hash_seed: config.hash_seed,
            issued: Arc::default(),
            strays: core_io::strays::Strays::default(),
            resolver: Resolver::new(&config.name_servers),
            cache,
        }
    }
}

/// A digest that was made.
#[derive(Debug)]
pub struct Made {
    /// As it is sent.
    pub bytes: Vec<u8>,
    /// When, in unix milliseconds.
    pub made_ms: u64,
    /// For how long it is valid.
    pub lifetime: Duration,
}

/// The last digest, for all cores.
#[derive(Debug, Default)]
pub struct OurDigest(RwLock<Option<Arc<Made>>>);

impl OurDigest {
    /// Replaces it.
    pub fn set(&self, made: Option<Made>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = made.map(Arc::new);
    }

    /// The last one.
    pub fn get(&self) -> Option<Arc<Made>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether this requests our digest, and not that of another host by way of a forward listener.
/// Other caches request it as from an origin; a client of a forward listener can name an address of
/// ours.
#[cold]
pub(crate) fn is_requested(head: &RequestHead<'_>, role: Role, own: &OwnAddresses) -> bool {
    let (path, is_ours) = match head.target {
        Target::Origin { path_and_query } => (path_and_query, true),
        Target::Absolute { scheme, authority, path_and_query } => {
            let is_ours = || role == Role::Reverse || names_own(scheme, authority, own);
            (path_and_query, path_and_query == PATH && is_ours())
        }
        _ => return false,
    };
    path == PATH && is_ours && matches!(head.method, Method::Get | Method::Head)
}

fn names_own(scheme: &[u8], authority: &[u8], own: &OwnAddresses) -> bool {
    let Ok(parsed) = http1::parse_authority(authority) else { return false };
    let port = parsed.port.or(Scheme::of(scheme).map(Scheme::port));
    let host = std::str::from_utf8(parsed.host).unwrap_or_default();
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
    matches!((ip, port), (Ok(ip), Some(port)) if own.hold_own(SocketAddr::new(ip, port)))
}
