//! Stored responses and variants, collapsed fetches, purges, and the disk below the memory.
//!
//! What: [`Cache`] is what all cores share. [`stored`], [`partial`] and [`variants`] are what the
//! store holds; [`flight`] is collapsed forwarding; [`purge`], [`changes`] and [`watch`] keep what
//! has changed from being served; [`disk`] is below the memory; [`sizing`] says what other sizes
//! would give. Whether a response may be stored or reused is decided in the crate `caching`.
//!
//! What never happens: a lock is held over I/O or a wait; a response whose fetch began before a
//! change that was answered is served after it.
#![forbid(unsafe_code)]

pub mod changes;
pub mod disk;
pub mod flight;
pub mod handover;
pub mod limits;
mod lookup;
pub mod partial;
pub mod pressure;
pub mod purge;
pub mod ranges;
pub mod realm;
pub mod sizing;
pub mod stored;
pub mod variants;
pub mod watch;

pub use lookup::FIGURES;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use config::Config;
use store::disk::DiskStore;
use store::{Generation, Key, KeyHasher, Purges, Store};

use crate::disk::Disk;
use crate::flight::Flights;
use crate::handover::Handover;
use crate::partial::Partial;
use crate::pressure::Pressure;
use crate::purge::Sweeping;
use crate::sizing::Sizing;
use crate::stored::{Entry, Stored};
use crate::watch::UnderWay;

/// Whether looking leaves a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// On behalf of a client: what is found counts as used, what fails is counted.
    Use,
    /// To explain: nothing changes.
    Peek,
}

/// Shared by all cores of one server.
///
/// The store and the table of fetches are sharded behind short locks; nothing is done under one but
/// to look up, insert or copy a pointer.
#[derive(Debug)]
pub struct Cache {
    /// Responses in memory.
    pub store: Store<Entry>,
    /// What was purged when.
    pub purges: Arc<Purges>,
    /// What is stored beyond the memory.
    pub disk: Option<Disk>,
    /// Another process that takes our place.
    pub handover: Handover,
    /// The sweep that lets go of what purges have taken.
    pub sweeping: Sweeping,
    /// What other sizes of the store would give.
    pub sizing: Sizing,
    /// Fetches that several requests wait for.
    pub flights: Arc<Flights>,
    /// What is being fetched, so that a change reaches it.
    pub under_way: Arc<UnderWay>,
    /// Memory pressure on the process.
    pub pressure: Pressure,
    /// Of keys.
    pub hasher: KeyHasher,
    /// Numbers of sets of names that responses vary by.
    epochs: AtomicU64,
    memory_object_bytes_max: u64,
    /// Purges before this process.
    purged_before: Generation,
    arriving_bytes: AtomicU64,
    arriving_bytes_max: u64,
}

/// What the store says about a request.
pub enum Lookup {
    /// A response that this request selects.
    Found(Arc<Stored>, Key),
    /// Parts of one.
    Part(Arc<Partial>, Key),
    /// None; one that arrives is stored under this key, and fetches are collapsed by it.
    Absent(Key),
    /// The last one could not be stored: go straight to the origin.
    Uncacheable,
}

impl Cache {
    /// Keys and purges are those of the disk, if there is one: they outlive the process.
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
            handover: Handover::default(),
            sweeping: Sweeping::default(),
            sizing: Sizing::new(config.memory_bytes),
            flights: Flights::new(),
            under_way: Arc::default(),
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
