//! The simulated disk: files that outlive the process, and everything that can go wrong with them.
//!
//! What: a file has the bytes that a reader sees (the page cache) and those on the medium. A write
//! changes the former; a sync makes the latter equal. [`Disk::crash`] leaves what a power cut
//! leaves: each 512-byte sector written since the last sync independently has any of its states (so
//! writes are torn, lost and reordered), and only some of the first name changes survive.
//! [`Disk::kill`] leaves what killing the process leaves: the page cache, with pending writes
//! partly done. [`Faults`] are drawn at rates.
//! Who owns: a [`Disk`] is a reference-counted pointer that outlives the runtimes that use it. In
//! practice one thread uses it at a time, and the seed determines it. Handles from before a crash
//! or a kill are dead: their operations are refused, so that a leftover task cannot write into the
//! next life.
//! What never happens: a later sync makes writes durable for which a sync has failed (the kernel
//! forgets that they were dirty); a disabled fault draws a number.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::error;
use super::rng::Rng;
use crate::sys::options::OpenOptions;

/// The unit that a medium writes completely or not at all.
pub const SECTOR_BYTES: usize = 512;

/// The rates of faults, each from 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Faults {
    /// A read fails with EIO.
    pub read_error: f64,
    /// A read returns less than requested.
    pub short_read: f64,
    /// A read finds one bit permanently flipped.
    pub rot: f64,
    /// A read returns bytes from elsewhere in the file.
    pub misread: f64,
    /// A write fails with EIO, after some of its sectors.
    pub write_error: f64,
    /// A write or a reservation of space fails with ENOSPC, after some of its sectors.
    pub no_space: f64,
    /// A sync fails with EIO; some of the writes it covered are lost at the next crash.
    pub sync_error: f64,
}

setters! {
    Faults {
        /// Sets the rate of failed reads.
        with_read_error: read_error = f64;
        /// Sets the rate of short reads.
        with_short_read: short_read = f64;
        /// Sets the rate of flipped bits.
        with_rot: rot = f64;
        /// Sets the rate of reads from the wrong place.
        with_misread: misread = f64;
        /// Sets the rate of failed writes.
        with_write_error: write_error = f64;
        /// Sets the rate of writes that find the disk full.
        with_no_space: no_space = f64;
        /// Sets the rate of failed syncs.
        with_sync_error: sync_error = f64;
    }
}

/// The operations and faults of a disk so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskCounters {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Power cuts.
    pub crashes: u64,
    /// Kills of the process.
    pub kills: u64,
    /// Sectors that lost their last state in a power cut.
    pub sectors_lost: u64,
    /// Faults that occurred: errors, short and wrong reads, flipped bits.
    pub faults: u64,
}

/// A disk that outlives crashes of the processes that use it.
#[derive(Clone)]
pub struct Disk(Arc<Mutex<State>>);

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

struct State {
    rng: Rng,
    faults: Faults,
    counters: DiskCounters,
    /// The names that a process sees, and those on the medium.
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    /// Name changes since the directory was synced, in order.
    renamed: Vec<NameChange>,
    files: Vec<Contents>,
    bytes_max: u64,
    /// Increases with each crash and kill: handles of an earlier life are dead.
    life: u64,
    next_handle: u64,
    next_write: u64,
}

#[derive(Clone)]
enum NameChange {
    Link(PathBuf, usize),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
}

#[derive(Default)]
struct Contents {
    /// What a reader sees.
    bytes: Vec<u8>,
    /// What is on the medium.
    durable: Vec<u8>,
    /// Written since the last sync, in order.
    dirty: Vec<Written>,
    /// Pending writes.
    writing: Vec<Written>,
    locked_by: Option<u64>,
    /// The length was changed since the last sync.
    resized: bool,
}

struct Written {
    number: u64,
    offset: usize,
    bytes: Vec<u8>,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct FileHandle {
    disk: Disk,
    file: usize,
    handle: u64,
    life: u64,
    write: bool,
}

/// The test's view of the disk.
impl Disk {
    /// An empty disk without faults and of unlimited size.
    #[must_use]
    pub fn new(seed: u64) -> Disk {
        Disk(Arc::new(Mutex::new(State {
            rng: Rng::new(seed),
            faults: Faults::default(),
            counters: DiskCounters::default(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            renamed: Vec::new(),
            files: Vec::new(),
            bytes_max: u64::MAX,
            life: 0,
            next_handle: 0,
            next_write: 0,
        })))
    }

    /// Sets the rates of faults.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Limits the total length of all files.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.state().bytes_max = bytes_max;
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> DiskCounters {
        self.state().counters
    }

    /// The power fails. Every open handle is dead.
    pub fn crash(&self) {
        let mut state = self.state();
        let state = &mut *state;
        state.life += 1;
        state.counters.crashes += 1;
        for file in &mut state.files {
            let lost = file.crash(&mut state.rng);
            state.counters.sectors_lost += lost;
        }
        let kept = state.rng.below(state.renamed.len() as u64 + 1) as usize;
        let changes = std::mem::take(&mut state.renamed);
        changes.into_iter().take(kept).for_each(|change| change.apply(&mut state.durable_names));
        state.names = state.durable_names.clone();
    }

    /// The process is killed; the machine goes on. Every open handle is dead.
    pub fn kill(&self) {
        let mut state = self.state();
        let state = &mut *state;
        state.life += 1;
        state.counters.kills += 1;
        for file in &mut state.files {
            file.locked_by = None;
            for write in std::mem::take(&mut file.writing) {
                file.write_some(write, &mut state.rng);
            }
        }
    }

    /// Flips one bit of a file, on the medium and in the page cache. False if the file is empty.
    pub fn rot(&self, path: impl AsRef<Path>, at: impl FnOnce(usize) -> usize) -> bool {
        let mut state = self.state();
        let Some(&file) = state.names.get(path.as_ref()) else { return false };
        let len = state.files[file].bytes.len();
        if len == 0 {
            return false;
        }
        let bit = state.rng.below(8) as u32;
        state.counters.faults += 1;
        state.files[file].flip(at(len).min(len - 1), bit);
        true
    }

    /// Puts a file onto the disk, immediately durable.
    pub fn put(&self, path: impl AsRef<Path>, bytes: impl Into<Vec<u8>>) {
        let mut state = self.state();
        let bytes = bytes.into();
        let contents = Contents { durable: bytes.clone(), bytes, ..Contents::default() };
        let file = state.add(contents);
        state.names.insert(path.as_ref().to_path_buf(), file);
        state.durable_names.insert(path.as_ref().to_path_buf(), file);
    }

    /// What a reader sees of a file.
    #[must_use]
    pub fn contents(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let state = self.state();
        let file = *state.names.get(path.as_ref())?;
        Some(state.files[file].bytes.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A process's view of the disk.
impl Disk {
    pub(crate) fn open(&self, path: &Path, options: OpenOptions) -> io::Result<FileHandle> {
        let mut state = self.state();
        let file = match state.names.get(path) {
            Some(&file) => file,
            None if options.create => {
                let file = state.add(Contents::default());
                state.change_name(NameChange::Link(path.to_path_buf(), file));
                file
            }
            None => return error(libc::ENOENT),
        };
        state.next_handle += 1;
        let (handle, life) = (state.next_handle, state.life);
        Ok(FileHandle { disk: self.clone(), file, handle, life, write: options.write })
    }

    /// Whether a file has a name below this one.
    pub(crate) fn is_directory(&self, path: &Path) -> bool {
        let state = self.state();
        state.names.keys().any(|name| name.starts_with(path) && name != path)
    }

    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if !state.names.contains_key(path) {
            return error(libc::ENOENT);
        }
        state.change_name(NameChange::Unlink(path.to_path_buf()));
        Ok(())
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        if !state.names.contains_key(from) {
            return error(libc::ENOENT);
        }
        state.change_name(NameChange::Rename(from.to_path_buf(), to.to_path_buf()));
        Ok(())
    }

    pub(crate) fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state();
        let state = &mut *state;
        state.counters.syncs += 1;
        if state.draws(|faults| faults.sync_error) {
            return error(libc::EIO);
        }
        for change in std::mem::take(&mut state.renamed) {
            change.apply(&mut state.durable_names);
        }
        Ok(())
    }
}

impl FileHandle {
    /// Runs `work` on the state, unless the handle is of an earlier life.
    fn with<T>(&self, work: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.state();
        if state.life == self.life { work(&mut state) } else { error(libc::ESTALE) }
    }

    pub(crate) fn len(&self) -> io::Result<u64> {
        self.with(|state| Ok(state.files[self.file].bytes.len() as u64))
    }

    pub(crate) fn try_lock(&self) -> io::Result<bool> {
        self.with(|state| {
            let lock = &mut state.files[self.file].locked_by;
            Ok(*lock.get_or_insert(self.handle) == self.handle)
        })
    }

    pub(crate) fn unlock(&self) -> io::Result<()> {
        self.with(|state| {
            let lock = &mut state.files[self.file].locked_by;
            if *lock == Some(self.handle) {
                *lock = None;
            }
            Ok(())
        })
    }

    pub(crate) fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.with(|state| {
            let more = bytes.saturating_sub(state.files[self.file].bytes.len() as u64);
            let used: u64 = state.files.iter().map(|file| file.bytes.len() as u64).sum();
            if used.saturating_add(more) > state.bytes_max || state.draws(|f| f.no_space) {
                return error(libc::ENOSPC);
            }
            if more > 0 {
                state.files[self.file].resize(bytes);
            }
            Ok(())
        })
    }

    pub(crate) fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.with(|state| {
            state.files[self.file].resize(bytes);
            Ok(())
        })
    }

    pub(crate) fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|state| {
            state.counters.reads += 1;
            let len = state.files[self.file].bytes.len();
            let mut start = usize::try_from(offset).unwrap_or(usize::MAX).min(len);
            let mut there = buf.len().min(len - start);
            if there > 0 && state.draws(|faults| faults.read_error) {
                return error(libc::EIO);
            }
            if there > 1 && state.draws(|faults| faults.short_read) {
                there = 1 + state.rng.below(there as u64 - 1) as usize;
            }
            if there > 0 && state.draws(|faults| faults.rot) {
                let at = start + state.rng.below(there as u64) as usize;
                let bit = state.rng.below(8) as u32;
                state.files[self.file].flip(at, bit);
            }
            if there > 0 && state.draws(|faults| faults.misread) {
                let sectors = ((len - there) / SECTOR_BYTES + 1) as u64;
                start = state.rng.below(sectors) as usize * SECTOR_BYTES;
            }
            buf[..there].copy_from_slice(&state.files[self.file].bytes[start..start + there]);
            Ok(there)
        })
    }

    /// Starts a write; [`FileHandle::finish_write`] completes it.
    pub(crate) fn begin_write(&self, bytes: &[u8], offset: u64) -> io::Result<u64> {
        self.with(|state| {
            state.counters.writes += 1;
            if !self.write {
                return error(libc::EBADF);
            }
            let Ok(offset) = usize::try_from(offset) else { return error(libc::EFBIG) };
            state.next_write += 1;
            let write = Written { number: state.next_write, offset, bytes: bytes.to_vec() };
            let grows = (offset + bytes.len()).saturating_sub(state.files[self.file].bytes.len());
            let used: usize = if grows > 0 && state.bytes_max < u64::MAX {
                state.files.iter().map(|file| file.bytes.len()).sum()
            } else {
                0
            };
            let full = grows > 0 && (used + grows) as u64 > state.bytes_max;
            let failed = if full || state.draws(|faults| faults.no_space) {
                Some(libc::ENOSPC)
            } else if state.draws(|faults| faults.write_error) {
                Some(libc::EIO)
            } else {
                None
            };
            let State { files, rng, .. } = state;
            if let Some(failed) = failed {
                if grows == 0 {
                    files[self.file].write_some(write, rng);
                }
                return error(failed);
            }
            let number = write.number;
            files[self.file].writing.push(write);
            Ok(number)
        })
    }

    pub(crate) fn finish_write(&self, number: u64) -> io::Result<()> {
        self.with(|state| {
            let file = &mut state.files[self.file];
            let at = file.writing.iter().position(|write| write.number == number);
            let write = at.map(|at| file.writing.swap_remove(at));
            write.into_iter().for_each(|write| file.write(write));
            Ok(())
        })
    }

    /// Starts a sync, which covers all writes so far.
    pub(crate) fn begin_sync(&self) -> io::Result<u64> {
        self.with(|state| {
            state.counters.syncs += 1;
            Ok(state.next_write)
        })
    }

    pub(crate) fn finish_sync(&self, up_to: u64) -> io::Result<()> {
        self.with(|state| {
            let failed = state.draws(|faults| faults.sync_error);
            let State { files, rng, .. } = state;
            let file = &mut files[self.file];
            let (covered, later) =
                std::mem::take(&mut file.dirty).into_iter().partition(|w| w.number <= up_to);
            file.dirty = later;
            let covered: Vec<Written> = covered;
            if failed {
                file.make_durable(&covered, Some(rng));
                return error(libc::EIO);
            }
            if file.resized {
                let len = file.bytes.len();
                file.durable.resize(len, 0);
                file.resized = false;
            }
            file.make_durable(&covered, None);
            Ok(())
        })
    }
}

impl Drop for FileHandle {
    fn drop(&mut self) {
        // Dropping a handle releases its lock; a handle of an earlier life has none.
        drop(self.unlock());
    }
}

impl State {
    fn add(&mut self, contents: Contents) -> usize {
        self.files.push(contents);
        self.files.len() - 1
    }

    fn change_name(&mut self, change: NameChange) {
        change.clone().apply(&mut self.names);
        self.renamed.push(change);
    }

    /// Draws whether a fault happens.
    fn draws(&mut self, rate: impl FnOnce(&Faults) -> f64) -> bool {
        let happens = self.rng.chance(rate(&self.faults));
        self.counters.faults += u64::from(happens);
        happens
    }
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            NameChange::Link(path, file) => {
                names.insert(path, file);
            }
            NameChange::Unlink(path) => {
                names.remove(&path);
            }
            NameChange::Rename(from, to) => {
                if let Some(file) = names.remove(&from) {
                    names.insert(to, file);
                }
            }
        }
    }
}

impl Contents {
    fn resize(&mut self, bytes: u64) {
        self.bytes.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
        self.resized = true;
    }

    fn flip(&mut self, at: usize, bit: u32) {
        self.bytes[at] ^= 1 << bit;
        if let Some(byte) = self.durable.get_mut(at) {
            *byte ^= 1 << bit;
        }
    }

    fn write(&mut self, write: Written) {
        let end = write.offset + write.bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
            self.resized = true;
        }
        self.bytes[write.offset..end].copy_from_slice(&write.bytes);
        self.dirty.push(write);
    }

    /// A write that was partly done: its first bytes up to some sector.
    fn write_some(&mut self, mut write: Written, rng: &mut Rng) {
        let sectors = write.bytes.len() / SECTOR_BYTES + 1;
        let kept = rng.below(sectors as u64 + 1) as usize * SECTOR_BYTES;
        write.bytes.truncate(kept);
        if !write.bytes.is_empty() {
            self.write(write);
        }
    }

    /// Copies writes to the medium: all, or with `rng` only the first ones of each sector. Returns
    /// the number of sectors that did not reach their last state.
    fn make_durable(&mut self, writes: &[Written], mut rng: Option<&mut Rng>) -> u64 {
        // A power cut may lose all, nothing, or a part.
        let loses = match &mut rng {
            None => 0.0,
            Some(rng) => [0.0, 1.0, 0.02, 0.3, 0.8][rng.below(5) as usize],
        };
        let mut stopped: HashMap<usize, ()> = HashMap::new();
        for write in writes {
            let (mut at, end) = (write.offset, write.offset + write.bytes.len());
            while at < end {
                let sector = at / SECTOR_BYTES;
                let next = ((sector + 1) * SECTOR_BYTES).min(end);
                let stays = loses > 0.0
                    && (stopped.contains_key(&sector)
                        || rng.as_mut().is_some_and(|rng| rng.chance(loses)));
                if stays {
                    stopped.insert(sector, ());
                } else {
                    if self.durable.len() < next {
                        self.durable.resize(next, 0);
                    }
                    self.durable[at..next]
                        .copy_from_slice(&write.bytes[at - write.offset..next - write.offset]);
                }
                at = next;
            }
        }
        stopped.len() as u64
    }

    /// Returns the number of sectors whose last state is lost.
    fn crash(&mut self, rng: &mut Rng) -> u64 {
        self.locked_by = None;
        for write in std::mem::take(&mut self.writing) {
            self.write_some(write, rng);
        }
        let dirty = std::mem::take(&mut self.dirty);
        if self.resized && rng.chance(0.5) {
            let len = self.bytes.len();
            self.durable.resize(len, 0);
        }
        self.resized = false;
        let lost = self.make_durable(&dirty, Some(rng));
        // The page cache differs from the medium where it was written, but also where a sync has
        // failed, which is not recorded. So copy the whole file.
        self.bytes.clone_from(&self.durable);
        lost
    }
}
