//! The disk below the memory.
//!
//! Stored responses are written through to the [`DiskStore`], if there is one. What memory lacks is
//! read from there before any decision ([`swap_in`]); a long body is sent from there directly. The
//! rules only see what is in memory, so no other code needs to know where a response came from.
//!
//! The disk has whole responses and, under the key of a URI, the sets of names that its responses
//! vary by. Parts of responses, and the marks of uncacheable ones, are only in memory.
//!
//! A body longer than [`SWAP_IN_BYTES_MAX`] stays on the disk: memory has its head, and the
//! requested parts of it are in the system's page cache. So a response may be larger than the
//! memory.
//!
//! What never happens:
//! - A request waits for a write, except for the delete before an unsafe method or a purge is
//!   acknowledged.
//! - A response from before a change is found after it: responses are stored under the lock that a
//!   change takes first, and the change deletes them afterwards.
//! - A disk failure fails a request whose response has not begun.
//!
//! # What it promises
//!
//! (`cache/src/disk`). Each stored response is written through to the disk. A response that memory
//! lacks is read from the disk before anything is decided, so the rules know nothing of a disk. A
//! body above 256 KiB stays on the disk, and memory holds its head. Two kinds of tests cover this:
//! the scenarios of the twin, each of which also runs on a disk, and a server that is repeatedly
//! killed or loses power. After a restart, that server never serves a response that was changed
//! before it.

mod codec;
pub mod listed;
pub mod swap_in;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use runtime::time;
use store::Key;
use store::disk::{About, DiskCounters, DiskStore, OpenError, Start, Writer};

use crate::Cache;
use crate::forms::Away;
use crate::limits::{
    DISK_HANDOVER_POLL, DISK_LOOK, DISK_LOOKS_WELL, DURABLE_WAIT_MAX, SWAP_IN_BYTES_MAX,
};
use crate::stored::{Entry, Head, Piece, Stored};
use metrics::Described;

/// A server's store on disk, while the server has it.
#[derive(Debug)]
pub struct Disk {
    store: RwLock<DiskStore>,
    /// It is being handed over: another process may use it.
    closed: AtomicBool,
    /// It is not written any more. Signals the handover.
    free: Mutex<bool>,
    freed: Condvar,
    /// It will not come back.
    ending: AtomicBool,
    /// Number of serving cores.
    cores: AtomicUsize,
}

impl Disk {
    /// For this many cores.
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

    /// Our current store, or our last one.
    pub fn present(&self) -> DiskStore {
        self.store.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a core that starts to serve.
    pub fn core_begins(&self) {
        self.cores.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a core that no longer serves, however it ended.
    pub fn core_ended(&self) {
        let before = self.cores.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a core ends once");
    }

    /// Waits until no core serves, at most for `patience`: changes that a core acknowledges must be
    /// on the disk.
    pub async fn cores_ended(&self, patience: Duration) {
        let deadline = time::now() + patience;
        while self.cores.load(Ordering::Acquire) > 0 && time::now() < deadline {
            time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Runs the store until [`Disk::close`]. One core calls it.
    pub async fn run(&self) {
        loop {
            let store = self.present();
            runtime::race(store.run(), self.watch_health(&store)).await;
            self.set_free(true);
            // Another process may use it, and it may come back.
            while self.is_free() {
                if self.ending.load(Ordering::Acquire) {
                    return;
                }
                time::sleep(DISK_HANDOVER_POLL).await;
            }
        }
    }

    /// Releases the directory for another process. No core uses it from now on, and everything put
    /// is durable. Blocks, so do not call it on a core's thread.
    ///
    /// # Errors
    /// It is not released in time.
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
        Err("the store on disk could not be released in time".to_owned())
    }

    fn is_free(&self) -> bool {
        *self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_free(&self, free: bool) {
        *self.free.lock().unwrap_or_else(PoisonError::into_inner) = free;
        self.freed.notify_all();
    }

    /// Continues with the store as the other process left it.
    ///
    /// # Errors
    /// The reason why it cannot be opened.
    pub async fn take_back(&self) -> Result<(), String> {
        let deadline = time::now() + DURABLE_WAIT_MAX;
        while !self.is_free() && time::now() < deadline {
            time::sleep(DISK_HANDOVER_POLL).await;
        }
        let (again, start) = loop {
            match self.present().open_again().await {
                Ok(opened) => break opened,
                // A killed process holds the lock until the kernel has cleaned up.
                Err(OpenError::InUse(_)) if time::now() < deadline => {
                    time::sleep(DISK_HANDOVER_POLL).await;
                }
                Err(error) => return Err(error.to_string()),
            }
        };
        if let Start::Fresh(why) = start {
            tracing::warn!("{}: replaced by an empty store: {why}", again.path().display());
        }
        *self.store.write().unwrap_or_else(PoisonError::into_inner) = again;
        self.set_free(false);
        self.closed.store(false, Ordering::Release);
        Ok(())
    }

    /// Logs when long bodies are copied from now on; when writing is turned off; and when it has
    /// worked again for a while, because a failing disk is retried now and then.
    async fn watch_health(&self, store: &DiskStore) {
        let path = store.path().display();
        let (mut reported, mut well) = (None, 0);
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
                    if reported.as_ref() != Some(&why) {
                        tracing::error!("{path}: the store on disk does not write for now: {why}");
                        reported = Some(why);
                    }
                }
                None if reported.is_some() && well == DISK_LOOKS_WELL => {
                    tracing::warn!("{path}: the store on disk writes again");
                    reported = None;
                }
                None => well += 1,
            }
        }
    }

    /// Makes everything durable and releases the directory. No core uses it from now on.
    pub fn close(&self) {
        self.ending.store(true, Ordering::Release);
        self.closed.store(true, Ordering::Release);
        self.present().close();
    }
}

/// Whether a body of this length is read into memory.
fn fits_memory(body_bytes: u64) -> bool {
    body_bytes <= SWAP_IN_BYTES_MAX
}

fn about(head: &Head) -> About {
    About { generation: head.resource.began(), time_ms: time::wall_ms() }
}

impl Cache {
    /// The store on disk, if there is one and we have it.
    #[inline]
    pub fn disk(&self) -> Option<DiskStore> {
        let disk = self.disk.as_ref()?;
        (!disk.closed.load(Ordering::Acquire)).then(|| disk.present())
    }

    /// Writes an entry through to the disk. The caller holds the lock of its URI
    /// ([`crate::watch::Watch::store`]).
    pub(crate) fn write_now(&self, key: Key, entry: &Entry) {
        let Some(disk) = self.disk() else { return };
        match entry {
            Entry::Response(stored) => match stored.place_away() {
                Some(away) => self.write_head(*away, &stored.head),
                None => self.write_response(key, stored),
            },
            Entry::Varies(varies) => {
                let about = About { generation: self.purges.now(), time_ms: time::wall_ms() };
                finish(disk.writer(&key, about, &codec::varies(varies)), &[]);
            }
            Entry::Part(_) => self.delete_on_disk(&disk, &key),
            Entry::Uncacheable { .. } => {}
        }
    }

    fn write_response(&self, key: Key, stored: &Stored) {
        let Some(writer) = self.disk_writer(key, &stored.head) else { return };
        finish(writer, &stored.pieces);
    }

    /// Rewrites the head of a body on the disk.
    fn write_head(&self, away: Away, head: &Head) {
        let Some(disk) = self.disk() else { return };
        let (about, meta) = (about(head), codec::response(head));
        let task = async move { disk.update(&away.key, away.object, about, &meta).await };
        runtime::spawn(async move { log_refused(task.await) }).detach();
    }

    /// Starts to write a response whose body arrives in pieces.
    pub fn disk_writer(&self, key: Key, head: &Head) -> Option<Writer> {
        let disk = self.disk()?;
        Some(disk.writer(&key, about(head), &codec::response(head)))
    }

    /// Maximum length of a body on the disk; 0 if there is none.
    pub fn disk_body_bytes_max(&self) -> u64 {
        self.disk().map_or(0, |disk| disk.geometry().body_bytes_max())
    }

    /// Removes a key from memory and from the disk.
    pub fn remove(&self, key: &Key) {
        self.store.remove(key);
        if let Some(disk) = self.disk() {
            self.delete_on_disk(&disk, key);
        }
    }

    /// Deletes a key from the disk, if it is there. The delete need not be durable.
    pub fn delete_on_disk(&self, disk: &DiskStore, key: &Key) {
        if disk.contains(key) {
            drop(disk.delete(key));
        }
    }

    /// The figures of the disk, for `/metrics`: none if none is configured. If the disk could not
    /// be opened, they are zeros, because a zero says that the disk has failed.
    pub fn disk_figures(&self) -> Vec<(Described, u64)> {
        let (gauges, counters) = match &self.disk {
            None if !self.wants_disk => return Vec::new(),
            None => ([0; 5], DiskCounters::default()),
            Some(disk) => {
                let store = disk.present();
                let on = u64::from(self.disk().is_some() && store.trouble().is_none());
                let (index, waiting) = (store.index_bytes() as u64, store.buffered_bytes() as u64);
                let zero_copy = u64::from(store.zero_copy_unavailable().is_none());
                ([on, store.len() as u64, index, waiting, zero_copy], store.counters())
            }
        };
        let counted = counters.list().into_iter().map(|(_, _, value)| value);
        metrics().zip(gauges.into_iter().chain(counted)).collect()
    }
}

/// Completes a body with `rest`: it can be found from now on. Returns whether it was stored.
pub(crate) fn finish(writer: Writer, rest: &[Piece]) -> bool {
    match writer.finish_with(rest) {
        Ok(_) => true,
        Err(refused) => {
            log_refused(Err(refused));
            false
        }
    }
}

fn log_refused(result: Result<(), store::disk::Refused>) {
    if let Err(refused) = result {
        tracing::debug!(?refused, "not on the disk");
    }
}

const DISK_GAUGES: [Described; 5] = [
    Described::gauge("disk_up", "1 while the store on disk is written to, 0 after failures"),
    Described::gauge("disk_objects", "Objects on the disk now"),
    Described::gauge("disk_index_memory_bytes", "Memory used by the index of the disk"),
    Described::gauge("disk_buffered_bytes", "Bytes in memory that wait to be written to the disk"),
    Described::gauge(
        "disk_zero_copy",
        "1 while long bodies are sent zero-copy from the page cache",
    ),
];

/// The counters of the store, as metrics.
fn disk_counters() -> impl Iterator<Item = Described> {
    let list = DiskCounters::default().list().into_iter();
    list.map(|(name, help, _)| Described::counter(name, help.trim_end_matches('.')))
}

/// The metrics of [`Cache::disk_figures`].
pub fn metrics() -> impl Iterator<Item = Described> {
    DISK_GAUGES.into_iter().chain(disk_counters())
}
