//! What all cores share for the life of the process: the cache, the log, names, passwords.

use std::sync::Arc;

use access_log::{Sink, UrlWatch};
use cache::Cache;
use config::Config;
use dns::Resolver;
use metrics::RefusalCounts;
use policy::forward::{Known, OwnAddresses};
use policy::{quota, via};
use store::disk::DiskStore;
use upstream::group::Registry;

use crate::cluster::State;
use crate::our_digest::OurDigest;

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
    /// Seeds what is otherwise random; `None`: it is random.
    #[cfg(feature = "tls")]
    pub hash_seed: Option<[u64; 2]>,
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
            pseudonym: via::pseudonym(&cache.hasher),
            upstreams: Registry::default(),
            digest: OurDigest::default(),
            cluster: Arc::default(),
            quotas: quota::Registry::default(),
            #[cfg(feature = "tls")]
            hash_seed: config.hash_seed,
            strays: core_io::strays::Strays::default(),
            resolver: Resolver::new(&config.name_servers),
            cache,
        }
    }
}
