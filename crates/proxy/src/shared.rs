//! What all cores share as long as the process lives: the cache, the log, names, passwords.

use std::ops::Deref;
use std::sync::Arc;

use access_log::Sink;
use cache::Cache;
use config::Config;
use dns::Resolver;
use metrics::RefusalCounts;
use policy::forward::{Known, OwnAddresses};
use policy::via;
use store::disk::DiskStore;
use upstream::group::Registry;

/// Shared by all cores of one server.
#[derive(Debug)]
pub struct Shared {
    /// What is stored, and what is on its way there.
    pub cache: Cache,
    /// How many requests each rule has refused.
    pub refusals: Arc<RefusalCounts>,
    /// Where log lines go.
    pub log: Sink,
    /// What we call ourselves to upstreams; no other process has the same name.
    pub pseudonym: String,
    /// The addresses that we listen on.
    pub own: OwnAddresses,
    /// Passwords that were found right.
    pub passwords: Known,
    /// Names to addresses.
    pub resolver: Arc<Resolver>,
    /// The state of upstream servers, which outlives a reload.
    pub upstreams: Registry,
}

/// Nearly all who use what is shared use the cache.
impl Deref for Shared {
    type Target = Cache;

    #[inline]
    fn deref(&self) -> &Cache {
        &self.cache
    }
}

impl Shared {
    /// For so many cores.
    pub fn new(config: &Config, workers: usize, log: Sink, disk: Option<DiskStore>) -> Shared {
        let cache = Cache::new(config, workers, disk);
        Shared {
            refusals: Arc::default(),
            log,
            own: OwnAddresses::default(),
            passwords: Known::default(),
            pseudonym: via::pseudonym(&cache.hasher),
            upstreams: Registry::default(),
            resolver: Resolver::new(&config.name_servers),
            cache,
        }
    }
}
