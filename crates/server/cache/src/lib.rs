//! Stored responses and variants, collapsed fetches, purges, and the disk below the memory.
//!
//! [`Cache`] is shared by all cores. [`key`] makes keys; [`stored`], [`partial`] and [`variants`]
//! are the entries of the store; [`flight`] is collapsed forwarding; [`purge`], [`paths`],
//! [`changes`], [`watch`] and [`doubts`] keep changed responses from being served; [`forms`] are
//! the coded forms of stored responses, which [`coding_jobs`] makes; [`disk`] is the store below
//! the memory; [`sizing`] forecasts the hit ratios of other sizes of memory. The crate `caching`
//! decides whether a response may be stored or reused.
//!
//! What never happens: a lock is held during I/O or a wait; a response is served after an
//! acknowledged change although its fetch began before the change.
#![forbid(unsafe_code)]

pub mod backlog;
pub mod changes;
pub mod coding_jobs;
mod counted;
pub mod disk;
pub mod doubts;
pub mod flight;
mod form_heads;
pub mod forms;
pub mod handover;
pub mod hot;
mod insert;
pub mod key;
pub mod limits;
mod lookup;
#[cfg(all(test, loom))]
mod models;
pub mod partial;
pub mod paths;
pub mod pressure;
pub mod purge;
pub mod purge_answer;
pub mod ranges;
pub mod realm;
#[cfg(test)]
mod samples;
pub mod sizing;
pub mod stored;
pub mod variants;
pub mod watch;

pub use lookup::{FIGURES, Own};

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use config::Config;
use store::disk::DiskStore;
use store::{Generation, Key, KeyHasher, Purges, Store};

use crate::coding_jobs::Jobs;
use crate::disk::Disk;
use crate::doubts::Doubts;
use crate::flight::Flights;
use crate::handover::Handover;
use crate::partial::Partial;
use crate::pressure::Pressure;
use crate::purge::Sweeping;
use crate::sizing::Sizing;
use crate::stored::{Entry, Stored};
use crate::watch::Watches;

/// Whether a look-up has side effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// For a client: the entry counts as used.
    Use,
    /// For an explanation: nothing changes.
    Peek,
}

/// What selects a stored response besides the URI, and how to look for it.
#[derive(Clone, Copy)]
pub struct Query<'q> {
    /// Whether the look-up counts as a use.
    pub look: Look,
    /// The parts of the key besides the URI.
    pub parts: Option<key::KeyParts<'q>>,
    /// The fields of the request.
    pub request: &'q stored::Wire<'q>,
    /// Unix milliseconds.
    pub now_ms: u64,
}

/// Shared by all cores of one server.
///
/// The store and the table of fetches are sharded behind short locks, held only to look up, insert
/// or copy a pointer.
#[derive(Debug)]
pub struct Cache {
    /// Responses in memory.
    pub store: Store<Entry>,
    /// The purges so far.
    pub purges: Arc<Purges>,
    /// The URLs of which peers may have old responses.
    pub doubts: Doubts,
    /// The store on disk.
    pub disk: Option<Disk>,
    /// Whether a store on disk is configured, even if it could not be opened.
    wants_disk: bool,
    /// The state of a handover to another process.
    pub handover: Handover,
    /// The sweep that removes purged entries.
    sweeping: Mutex<Option<Sweeping>>,
    /// Whether the responses that a purge removes are being counted.
    counting: AtomicBool,
    /// The forecasts for other sizes of the store.
    pub sizing: Sizing,
    /// Fetches that several requests wait for.
    pub flights: Arc<Flights>,
    /// Watches of the URIs being fetched, so that a change overtakes them.
    pub watches: Arc<Watches>,
    /// Forms of stored responses to be made.
    pub(crate) jobs: Jobs,
    /// Memory pressure on the process.
    pub pressure: Pressure,
    /// The hasher of keys.
    pub hasher: KeyHasher,
    /// The next number of a set of names that responses vary by.
    epochs: AtomicU64,
    memory_object_bytes_max: u64,
    /// The purge count when this process started.
    purged_before: Generation,
    arriving_bytes: AtomicU64,
    arriving_bytes_max: u64,
}

/// The result of a look-up.
pub enum Lookup {
    /// A response that this request selects.
    Found(Arc<Stored>, Key),
    /// Parts of a response.
    Part(Arc<Partial>, Key),
    /// Nothing. A response is stored, and fetches are collapsed, under this key.
    Absent(Key),
    /// Nothing, and the last response could not be stored: requests do not wait for each other.
    Unshared(Key),
    /// The store may not be used for this request.
    Bypassed,
}

impl Cache {
    /// Takes keys and purges from the disk, if there is a disk: they outlive the process.
    pub fn new(config: &Config, workers: usize, disk: Option<DiskStore>) -> Cache {
        let hasher = match (&disk, config.hash_seed) {
            (Some(disk), _) => disk.hasher().clone(),
            (None, Some([a, b])) => KeyHasher::seeded(a, b),
            (None, None) => KeyHasher::random(),
        };
        let purges = match &disk {
            Some(disk) => Arc::clone(disk.purges()),
            None => Arc::new(Purges::new(hasher.clone())),
        };
        let purged_before = purges.now();
        let mut options = store::Options::for_workers(workers, config.memory_bytes);
        options.hasher = hasher.clone();
        let store = Store::new(options);
        let share = config.memory_bytes / config.limits.object_share.max(1) as u64;
        let memory_object_bytes_max = share.min(store.object_bytes_max());
        let arriving_bytes_max = config.memory_bytes / config.limits.arriving_share.max(1) as u64;
        Cache {
            store,
            purges,
            disk: disk.map(|disk| Disk::new(disk, workers)),
            wants_disk: config.disk.is_some(),
            handover: Handover::default(),
            sweeping: Mutex::default(),
            doubts: Doubts::new(hasher.clone()),
            counting: AtomicBool::new(false),
            sizing: Sizing::new(config.memory_bytes),
            flights: Flights::new(),
            watches: Arc::default(),
            jobs: Jobs::default(),
            pressure: Pressure::default(),
            hasher,
            epochs: AtomicU64::new(1),
            memory_object_bytes_max,
            purged_before,
            arriving_bytes: AtomicU64::new(0),
            arriving_bytes_max,
        }
    }
}
