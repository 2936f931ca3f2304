//! The disk below the memory.
//!
//! What: what is stored goes through to the [`DiskStore`], if there is one; what memory does not
//! have is brought from there before anything is decided ([`swap_in`]); a long body is sent from
//! there ([`sending`]). Why below: all rules are asked about what is in memory, so that nothing
//! else knows where a response has come from.
//!
//! On the disk are whole responses and, under the key of a URI, the sets of names that its
//! responses vary by. Parts of responses, and what is known of uncacheable ones, are in memory
//! alone.
//!
//! A body longer than [`SWAP_IN_BYTES_MAX`] stays where it is: memory has its head, and what is
//! asked for of it is in the system's page cache. So a response may be larger than the memory.
//!
//! What never happens: a request waits for a write, but for the delete that an unsafe method or a
//! purge is answered after; what was asked for before a change is found by who asks after it: it is
//! stored under the lock that a change takes first, and deleted by the change afterwards; a failure
//! of the disk fails a request that has not begun to be answered from it.

mod codec;
pub mod swap_in;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use runtime::time;
use store::Key;
use store::disk::{About, DiskCounters, DiskStore, OpenError, Start, Writer};

use crate::Cache;
use crate::limits::{
    DISK_HANDOVER_POLL, DISK_LOOK, DISK_LOOKS_WELL, DURABLE_WAIT_MAX, SWAP_IN_BYTES_MAX,
};
use crate::stored::{Away, Entry, Head, Piece, Stored};
use crate::watch::Watch;
use metrics::{Described, Shape};

/// The store on disk of a server, while it is the server's.
#[derive(Debug)]
pub struct Disk {
    store: RwLock<DiskStore>,
    /// It is being let go of: another process may have it.
    closed: AtomicBool,
    /// Nothing of it is written any more. Told to who lets go of it.
    free: Mutex<bool>,
    freed: Condvar,
    /// It will not come back.
    ending: AtomicBool,
    /// Cores that serve.
    cores: AtomicUsize,
}

impl Disk {
    /// For so many cores.
    pub fn new(store: DiskStore, cores: usize) -> Disk {
        Disk {
            store: RwLock::new(store),
            closed: AtomicBool::new(false),
            free: Mutex::new(false),
            freed: Condvar::new(),
            ending: AtomicBool::new(false),
            cores: AtomicUsize::new(cores),
        }
    }

    /// The one that is ours, or was.
    pub fn present(&self) -> DiskStore {
        self.store.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Another one that serves.
    pub fn core_begins(&self) {
        self.cores.fetch_add(1, Ordering::AcqRel);
    }

    /// A core serves nobody any more, however it ends.
    pub fn core_ended(&self) {
        self.cores.fetch_sub(1, Ordering::AcqRel);
    }

    /// Waits until no core serves anybody, but not longer than `patience`: a change that one of
    /// them answers for is to be on the disk.
    pub async fn cores_ended(&self, patience: Duration) {
        let deadline = time::now() + patience;
        while self.cores.load(Ordering::Acquire) > 0 && time::now() < deadline {
            time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Writes what is put, until [`Disk::close`]. One core runs it.
    pub async fn run(&self) {
        loop {
            let store = self.present();
            runtime::race(store.run(), self.tell(&store)).await;
            self.set_free(true);
            // Another process may have it, and it may come back.
            while self.is_free() {
                if self.ending.load(Ordering::Acquire) {
                    return;
                }
                time::sleep(DISK_HANDOVER_POLL).await;
            }
        }
    }

    /// Lets go of the directory, for another process: nobody uses it from now on, and what was put
    /// is durable. Blocks: not for a core's thread.
    ///
    /// # Errors
    /// It is not free by then, in words.
    pub fn hand_over(&self, until: Instant) -> Result<(), String> {
        self.closed.store(true, Ordering::Release);
        self.present().close();
        let left = until.saturating_duration_since(Instant::now());
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let (free, _) = self
            .freed
            .wait_timeout_while(free, left, |free| !*free)
            .unwrap_or_else(PoisonError::into_inner);
        if *free {
            return Ok(());
        }
        Err("the store on disk could not be let go of in time".to_owned())
    }

    fn is_free(&self) -> bool {
        *self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_free(&self, free: bool) {
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) = free;
        self.freed.notify_all();
    }

    /// Goes on with it, as the other process has left it.
    ///
    /// # Errors
    /// Why it cannot be had, in words.
    pub async fn take_back(&self) -> Result<(), String> {
        let deadline = time::now() + DURABLE_WAIT_MAX;
        while !self.is_free() && time::now() < deadline {
            time::sleep(DISK_HANDOVER_POLL).await;
        }
        let (again, start) = loop {
            match self.present().open_again().await {
                Ok(opened) => break opened,
                // A process that was killed lets go of it when the kernel has cleared it away.
                Err(OpenError::InUse(_)) if time::now() < deadline => {
                    time::sleep(DISK_HANDOVER_POLL).await;
                }
                Err(error) => return Err(error.to_string()),
            }
        };
        if let Start::Fresh(why) = start {
            tracing::warn!("{}: begun anew: {why}", again.path().display());
        }
        *self.store.write().unwrap_or_else(PoisonError::into_inner) = again;
        self.set_free(false);
        self.closed.store(false, Ordering::Release);
        Ok(())
    }

    /// Tells the log when long bodies are copied from now on; when writing is given up, and when it
    /// has long gone on again: a disk that fails is tried from time to time, which is not told each
    /// time.
    async fn tell(&self, store: &DiskStore) {
        let path = store.path().display();
        let (mut told, mut well) = (None, 0);
        let mut zero_copy = store.zero_copy_unavailable().is_none();
        loop {
            time::sleep(DISK_LOOK).await;
            if let Some(why) = store.zero_copy_unavailable().filter(|_| zero_copy) {
                tracing::warn!("{path}: long bodies are copied from now on: {why}");
                zero_copy = false;
            }
            match store.trouble() {
                Some(why) => {
                    well = 0;
                    if told.as_ref() != Some(&why) {
                        tracing::error!("{path}: the store on disk does not write for now: {why}");
                        told = Some(why);
                    }
                }
                None if told.is_some() && well == DISK_LOOKS_WELL => {
                    tracing::warn!("{path}: the store on disk writes again");
                    told = None;
                }
                None => well += 1,
            }
        }
    }

    /// Nobody uses it from now on; what was put is made durable, then the directory is free.
    pub fn close(&self) {
        self.ending.store(true, Ordering::Release);
        self.closed.store(true, Ordering::Release);
        self.present().close();
    }
}

/// Whether the body of such a length is brought into memory.
fn is_brought(body_bytes: u64) -> bool {
    body_bytes <= SWAP_IN_BYTES_MAX
}

fn about(head: &Head) -> About {
    About { generation: head.resource.began(), time_ms: time::wall_ms() }
}

impl Cache {
    /// The store on disk, if there is one and it is ours.
    #[inline]
    pub fn disk(&self) -> Option<DiskStore> {
        let disk = self.disk.as_ref()?;
        (!disk.closed.load(Ordering::Acquire)).then(|| disk.present())
    }

    /// Writes an entry through to the disk, unless its URI has changed since it was asked for.
    /// Comes before it is put into memory.
    pub fn write_through(&self, watch: &Watch, key: Key, entry: &Entry) {
        let Some(disk) = self.disk() else { return };
        match entry {
            Entry::Response(stored) => match stored.away.as_deref() {
                Some(away) => self.write_head(*away, &stored.head),
                None => self.write_response(watch, key, stored),
            },
            Entry::Varies(varies) => {
                let about = About { generation: self.purges.now(), time_ms: time::wall_ms() };
                finish(watch, disk.writer(&key, about, &codec::varies(varies)), &[]);
            }
            Entry::Part(_) | Entry::Uncacheable { .. } => self.delete_there(&disk, &key),
        }
    }

    fn write_response(&self, watch: &Watch, key: Key, stored: &Stored) {
        let Some(writer) = self.disk_writer(key, &stored.head) else { return };
        finish(watch, writer, &stored.pieces);
    }

    /// A body on the disk gets another head.
    fn write_head(&self, away: Away, head: &Head) {
        let Some(disk) = self.disk() else { return };
        let (about, meta) = (about(head), codec::response(head));
        let task = async move { disk.update(&away.key, away.object, about, &meta).await };
        runtime::spawn(async move { told(task.await) }).detach();
    }

    /// Begins to write a response whose body comes in pieces.
    pub fn disk_writer(&self, key: Key, head: &Head) -> Option<Writer> {
        let disk = self.disk()?;
        Some(disk.writer(&key, about(head), &codec::response(head)))
    }

    /// The largest body that can be stored on the disk; 0 if there is none.
    pub fn disk_body_bytes_max(&self) -> u64 {
        self.disk().map_or(0, |disk| disk.geometry().body_bytes_max())
    }

    /// Takes out what is under a key, in memory and on the disk.
    pub fn remove(&self, key: &Key) {
        self.store.remove(key);
        if let Some(disk) = self.disk() {
            self.delete_there(&disk, key);
        }
    }

    /// Takes it out of the disk, if it is there; that this is durable matters to nobody.
    pub fn delete_there(&self, disk: &DiskStore, key: &Key) {
        if disk.contains(key) {
            drop(disk.delete(key));
        }
    }

    /// What the disk does and has, for `/metrics`: nothing, if there is none.
    pub fn disk_figures(&self) -> Vec<(Described, u64)> {
        let (gauges, counters) = match &self.disk {
            Some(disk) => {
                let store = disk.present();
                let on = u64::from(self.disk().is_some() && store.trouble().is_none());
                let (index, waiting) = (store.index_bytes() as u64, store.buffered_bytes() as u64);
                let zero_copy = u64::from(store.zero_copy_unavailable().is_none());
                ([on, store.len() as u64, index, waiting, zero_copy], store.counters())
            }
            None => ([0; 5], DiskCounters::default()),
        };
        let counted = counters.list().into_iter().map(|(_, _, value)| value);
        metrics().zip(gauges.into_iter().chain(counted)).collect()
    }
}

/// With `rest` the body is whole: it is found from now on, unless its URI has changed. Says whether
/// it is.
pub fn finish(watch: &Watch, writer: Writer, rest: &[Piece]) -> bool {
    let mut finished = false;
    watch.unless_overtaken(|| match writer.finish_with(rest) {
        Ok(_) => finished = true,
        Err(refused) => told(Err(refused)),
    });
    finished
}

fn told(result: Result<(), store::disk::Refused>) {
    if let Err(refused) = result {
        tracing::debug!(?refused, "not on the disk");
    }
}

const DISK_GAUGES: [Described; 5] = [
    Described {
        name: "disk_up",
        help: "1 while the store on disk is written to, 0 after failures",
        shape: Shape::Gauge,
    },
    Described { name: "disk_objects", help: "Objects on the disk now", shape: Shape::Gauge },
    Described {
        name: "disk_index_memory_bytes",
        help: "Memory that the index of the disk takes",
        shape: Shape::Gauge,
    },
    Described {
        name: "disk_buffered_bytes",
        help: "Bytes that wait in memory to be written to the disk",
        shape: Shape::Gauge,
    },
    Described {
        name: "disk_zero_copy",
        help: "1 while long bodies are sent from the page cache without being copied",
        shape: Shape::Gauge,
    },
];

/// The counters of the store, as metrics.
fn disk_counters() -> impl Iterator<Item = Described> {
    let list = DiskCounters::default().list().into_iter();
    list.map(|(name, help, _)| Described {
        name,
        help: help.trim_end_matches('.'),
        shape: Shape::Counter,
    })
}

/// Every metric of [`Cache::disk_figures`].
pub fn metrics() -> impl Iterator<Item = Described> {
    DISK_GAUGES.into_iter().chain(disk_counters())
}
