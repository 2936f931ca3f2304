//! Opens a store: reads its state without reading an object.
//!
//! The superblock identifies the store; the last complete saved index has its entries, and the
//! journals the changes since. The journals are replayed first and decide about every key they
//! name. Then come the saved entries of all other keys. An entry is valid only if its segment still
//! has the life it was made in. A damaged store is replaced by an empty one, and [`Start`] reports
//! why: a cold cache is better than serving deleted objects. What never happens: an object is read;
//! a torn end of a journal is taken for a change; a number of a life, object or purge is given out
//! twice, even after crashes.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use runtime::fs::{self, File, OpenOptions};

use super::bytes::Take;
use super::checksum::Sums;
use super::commit::Committer;
use super::counters::Cells;
use super::geometry::Geometry;
use super::index::Index;
use super::journal::{Change, Journal, Log, SavedEntry, Tail};
use super::limits::{
    ALIGNMENT, ENTRIES_PER_SLICE, EPOCH_MAX, EPOCH_SHIFT, FORMAT_VERSION, GENERATION_MAX,
    SEGMENTS_MAX, SHARDS_MAX,
};
use super::record::Blocks;
use super::saved_index::{
    self, COPY_BYTES, HEAD_AT, PREAMBLE_BYTES, Preamble, SLICE_HEADER_BYTES, decode_head,
    decode_slice_header, encode_head,
};
use super::segments::{Alive, FILE_NAME, Segments};
use super::signal::{Rounds, Signal};
use super::superblock::{self, Read, Superblock};
use super::zero_copy::{self, ZeroCopy};
use super::{DiskStore, Failures, Files, Inner, Options};
use crate::key::KeyHasher;
use crate::purges::{PURGE_PREFIX_BYTES_MAX, PURGE_PREFIXES_MAX, PURGE_RECORDS_MAX, Purges};

/// Maximum length of a saved head. Purges are bounded well below.
const HEAD_BYTES_MAX: u64 = 64 * 1024 * 1024;

// Two tables of records, each with two marks; a segment takes 11 bytes.
const MARKS_BYTES: usize = 32;
const _: () = assert!(
    HEAD_BYTES_MAX as usize
        > 2 * (PURGE_RECORDS_MAX * (17 + MARKS_BYTES))
            + 2 * (PURGE_PREFIXES_MAX * (3 + PURGE_PREFIX_BYTES_MAX + MARKS_BYTES))
            + 11 * SEGMENTS_MAX as usize
);

/// Why a store on disk cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process uses it.
    InUse(PathBuf),
    /// A program of another version created it.
    OtherVersion {
        /// The directory.
        path: PathBuf,
        /// Its format version.
        found: u32,
    },
    /// The system refuses.
    System {
        /// The file or directory.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::InUse(path) => write!(
                f,
                "{}: another process uses this disk store; stop it, or name another directory",
                path.display()
            ),
            OpenError::OtherVersion { path, found } => write!(
                f,
                "{}: a disk store of format {found}, and this program writes format \
                 {FORMAT_VERSION}; remove the directory to begin a new store, or name another",
                path.display()
            ),
            OpenError::System { path, doing, error } => {
                write!(f, "{}: {doing}: {error}", path.display())
            }
        }
    }
}

impl std::error::Error for OpenError {}

/// The state in which a store was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// There was none.
    New,
    /// With its objects.
    Warm {
        /// Number of objects.
        objects: usize,
        /// Saved entries that were unreadable and are lost.
        entries_lost: u64,
    },
    /// Empty, although there was a store; the reason.
    Fresh(String),
}

/// The latest state by fingerprint, from the journals. Fingerprints are random already.
type Overlay = HashMap<u64, Option<SavedEntry>, BuildHasherDefault<Fingerprint>>;

#[derive(Default)]
struct Fingerprint(u64);

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("fingerprints are numbers");
    }

    fn write_u64(&mut self, print: u64) {
        self.0 = print;
    }
}

/// A store that was read.
struct Loaded {
    generation: u64,
    tail: Tail,
    complete: u64,
    /// The last journal is closed, and the next was not started.
    closed: bool,
    /// The journal is empty and must be started.
    empty: bool,
    /// The last one, of superblock and journals.
    epoch: u32,
    alive: Vec<Alive>,
    overlay: Overlay,
    purges: Purges,
    preamble: Preamble,
    /// The good batches of the journals that were read: generation, bytes.
    journals: Vec<(u64, Vec<u8>)>,
}

/// The combined changes of the journals.
struct Replay {
    overlay: Overlay,
    segments: Vec<(u64, Log)>,
    epoch: u32,
    closed: bool,
}

/// Opens a store. `before` is this process's earlier opening of it, whose keys and purges go on.
pub(super) async fn open(
    options: Options,
    before: Option<&Inner>,
) -> Result<(DiskStore, Start), OpenError> {
    let path = options.path.clone();
    let system = |doing| {
        let path = path.clone();
        move |error| OpenError::System { path, doing, error }
    };
    fs::create_directory(&path).await.map_err(system("making the directory"))?;
    let superblock = path.join("superblock");
    let superblock = File::open_with(superblock, OpenOptions::CREATE).await;
    let superblock = superblock.map_err(system("opening the superblock"))?;
    if !superblock.try_lock().await.map_err(system("locking the superblock"))? {
        return Err(OpenError::InUse(path));
    }
    let copies = read_copies(&superblock, COPY_BYTES, superblock::BYTES).await;
    let copies = copies.map_err(system("reading the superblock"))?;
    let existed = copies.iter().any(|copy| !copy.is_empty());
    let copies = copies.map(|copy| Superblock::decode(&copy));
    let files = open_files(&path, superblock).await.map_err(system("opening the files"))?;
    let good = copies.iter().filter_map(|copy| match copy {
        Read::Good(block) => Some(*block),
        _ => None,
    });
    let good = good.max_by_key(|block| block.epoch);
    let other = copies.iter().find_map(|copy| match copy {
        Read::Other(found) => Some(*found),
        _ => None,
    });
    let read = match (good, other) {
        (None, Some(found)) => return Err(OpenError::OtherVersion { path, found }),
        (None, None) if !existed => Err(None),
        (None, None) => Err(Some("the superblock is damaged".to_owned())),
        (Some(block), _) if block.geometry != options.geometry => {
            Err(Some("the configured size differs from that of the store".to_owned()))
        }
        (Some(block), _) if before.is_some_and(|before| before.superblock.seeds != block.seeds) => {
            Err(Some("another process has replaced it".to_owned()))
        }
        (Some(block), _) => match load(&files, &block).await {
            Ok(loaded) => Ok((block, loaded)),
            Err(Unread::System(error)) => return Err(system("reading the index")(error)),
            Err(Unread::Damaged(what)) => Err(Some(what)),
        },
    };
    match read {
        Ok((block, loaded)) => {
            let warm = warm(options, files, block, loaded, before).await;
            warm.map_err(system("going on with the journal"))
        }
        Err(why) => {
            let store = fresh(options, files, before).await;
            let store = store.map_err(system("beginning a store"))?;
            Ok((store, why.map_or(Start::New, Start::Fresh)))
        }
    }
}

async fn open_files(path: &Path, superblock: File) -> io::Result<Files> {
    let open = |name: &str| File::open_with(path.join(name), OpenOptions::CREATE);
    // O_DIRECT: filling the page cache is most of the work of a write, and delays the cores.
    let direct = OpenOptions { direct: true, ..OpenOptions::CREATE };
    Ok(Files {
        superblock,
        segments: File::open_with(path.join(FILE_NAME), direct).await?,
        journals: [open("journal-0").await?, open("journal-1").await?],
        indexes: [open("index-0").await?, open("index-1").await?],
    })
}

/// Both copies of a part of a file; empty if the file is too short.
async fn read_copies(file: &File, distance: u64, len: usize) -> io::Result<[Vec<u8>; 2]> {
    let mut copies = [Vec::new(), Vec::new()];
    for (copy, at) in copies.iter_mut().zip([0, distance]) {
        if file.len()? >= at + len as u64 {
            copy.resize(len, 0);
            file.read_exact_at(copy, at).await?;
        }
    }
    Ok(copies)
}

/// Writes both copies, the second after the first is durable.
async fn write_superblock(files: &Files, block: &Superblock) -> io::Result<()> {
    for at in [0, superblock::COPY_BYTES] {
        files.superblock.write_all_at(block.encode(), at).await.0?;
        files.superblock.sync_data().await?;
    }
    Ok(())
}

/// Creates an empty store. The old superblock is erased before anything else is touched, and the
/// new one is written last: in between there is no store.
async fn fresh(options: Options, files: Files, before: Option<&Inner>) -> io::Result<DiskStore> {
    if !files.superblock.is_empty()? {
        files.superblock.write_all_at(vec![0; 2 * superblock::COPY_BYTES as usize], 0).await.0?;
        files.superblock.sync_data().await?;
    }
    let random = |domain: u64| RandomState::new().hash_one(domain);
    let [secret, seed0, seed1] = options.seeds.unwrap_or_else(|| [0, 1, 2].map(random));
    let seeds = before.map_or([seed0, seed1], |before| before.superblock.seeds);
    let epoch = before.map_or(1, |before| before.superblock.epoch + 1);
    // Even with given seeds no two stores share a secret.
    let secret = Sums::new(secret).chained(runtime::time::now().as_ns(), b"secret");
    let block = Superblock { geometry: options.geometry, seeds, secret, epoch };
    let Geometry { journal_bytes, .. } = options.geometry;
    // Releases space that a larger store used or tried to allocate.
    files.segments.set_len(0).await?;
    if let Err(error) = files.segments.allocate(options.geometry.data_bytes()).await {
        files.segments.set_len(0).await?;
        return Err(error);
    }
    for journal in &files.journals {
        journal.set_len(0).await?;
        journal.allocate(2 * u64::from(journal_bytes)).await?;
    }
    for index in &files.indexes {
        index.set_len(0).await?;
    }
    let purges = before.map(|before| Arc::clone(&before.purges));
    let inner = inner(options, files, &block, purges).await;
    let nonce = inner.number();
    let purges = inner.purges.save();
    let mut head = encode_head(&inner.sums, nonce, &[], &purges);
    let preamble =
        Preamble { generation: 0, nonce, head_len: head.len() as u64, slices: 0, entries: 0 };
    head.extend_from_within(..);
    let index = &inner.files.indexes[0];
    index.write_all_at(head, HEAD_AT).await.0?;
    for at in [0, COPY_BYTES] {
        index.write_all_at(preamble.encode(&inner.sums), at).await.0?;
    }
    let mut committer = Committer::new(0, Tail::new(nonce), 0);
    committer.begin(&inner, 0).await?;
    inner.journal.append(&Change::Epoch { epoch });
    committer.commit(&inner, true).await?;
    for file in inner.files.indexes.iter().chain(&inner.files.journals) {
        file.sync_data().await?;
    }
    inner.files.segments.sync_data().await?;
    write_superblock(&inner.files, &block).await?;
    fs::sync_directory(&inner.options.path).await?;
    Ok(finished(inner, committer))
}

/// Continues with a store that was read.
async fn warm(
    options: Options,
    files: Files,
    mut block: Superblock,
    loaded: Loaded,
    before: Option<&Inner>,
) -> io::Result<(DiskStore, Start)> {
    assert!(loaded.epoch < EPOCH_MAX, "such a store is damaged");
    block.epoch = loaded.epoch + 1;
    write_superblock(&files, &block).await?;
    let Loaded { generation, tail, complete, closed, empty, preamble, journals, .. } = loaded;
    harden(&options.path, &files, &block, &preamble, journals).await?;
    let purges = match before {
        Some(before) => {
            before.purges.absorb(loaded.purges);
            Arc::clone(&before.purges)
        }
        None => Arc::new(loaded.purges),
    };
    let may_be_shared = zero_copy::was_used(&options).await;
    let inner = inner(options, files, &block, Some(purges)).await;
    inner.segments.restore(loaded.alive, may_be_shared);
    for entry in loaded.overlay.values().flatten() {
        take_entry(&inner, entry);
    }
    let mut committer = Committer::new(generation, tail, complete);
    if closed {
        committer.generation += 1;
        committer.tail = Tail::new(inner.number());
        committer.begin(&inner, tail.sum).await?;
    } else if empty {
        committer.begin(&inner, 0).await?;
    }
    inner.journal.append(&Change::Epoch { epoch: block.epoch });
    committer.write_start(&inner).await?;
    let entries_lost = load_entries(&inner, &preamble, &loaded.overlay).await;
    let objects = inner.index.len().0;
    Ok((finished(inner, committer), Start::Warm { objects, entries_lost }))
}

/// Rewrites the data that was read and will be built upon, to both copies, and syncs it. Writes of
/// a killed process may only be in the page cache, and if their sync failed, no later sync would
/// write them.
async fn harden(
    directory: &Path,
    files: &Files,
    block: &Superblock,
    preamble: &Preamble,
    journals: Vec<(u64, Vec<u8>)>,
) -> io::Result<()> {
    assert!(journals.len() <= 2, "the journals of two generations");
    let index = &files.indexes[(preamble.generation & 1) as usize];
    for at in [0, COPY_BYTES] {
        index.write_all_at(preamble.encode(&Sums::new(block.secret)), at).await.0?;
    }
    index.sync_data().await?;
    // The other index was not completed, or is older; on disk it may look different.
    let other = &files.indexes[(preamble.generation & 1 ^ 1) as usize];
    for at in [0, COPY_BYTES] {
        other.write_all_at(vec![0; PREAMBLE_BYTES], at).await.0?;
    }
    other.sync_data().await?;
    // The names of the files as well.
    fs::sync_directory(directory).await?;
    for (generation, bytes) in journals {
        let file = &files.journals[(generation & 1) as usize];
        let (first, bytes) = file.write_all_at(bytes, 0).await;
        first?;
        file.write_all_at(bytes, u64::from(block.geometry.journal_bytes)).await.0?;
        file.sync_data().await?;
    }
    Ok(())
}

fn finished(inner: Inner, committer: Committer) -> DiskStore {
    let before = inner.committer.lock().expect("not shared yet").replace(committer);
    assert!(before.is_none(), "a store has one flusher");
    DiskStore(Arc::new(inner))
}

async fn inner(
    options: Options,
    files: Files,
    block: &Superblock,
    purges: Option<Arc<Purges>>,
) -> Inner {
    let hasher = KeyHasher::seeded(block.seeds[0], block.seeds[1]);
    assert!(block.epoch <= EPOCH_MAX, "the numbers of an epoch have 64 bits");
    let first = u64::from(block.epoch) << EPOCH_SHIFT;
    let purges = purges.unwrap_or_else(|| Arc::new(Purges::new(hasher.clone())));
    purges.advance_to(first);
    assert!(purges.now() >= first, "no number is given out twice");
    let segments = Segments::new(options.geometry, first);
    let shards = SHARDS_MAX.min(options.geometry.segments as usize / 2);
    Inner {
        sums: Sums::new(block.secret),
        blocks: Blocks { block_bytes: options.geometry.block_bytes },
        hasher,
        purges,
        superblock: *block,
        index: Index::new(shards, Arc::clone(&segments.lives)),
        segments,
        zero_copy: ZeroCopy::new(&options).await,
        journal: Journal::default(),
        wake: Signal::default(),
        rounds: Rounds::default(),
        counters: Cells::default(),
        buffered: AtomicUsize::new(0),
        numbers: AtomicU64::new(first),
        failures: Failures::default(),
        closing: AtomicBool::new(false),
        drained: AtomicBool::new(false),
        committer: Mutex::new(None),
        options,
        files,
    }
}

enum Unread {
    System(io::Error),
    Damaged(String),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Unread {
        Unread::System(error)
    }
}

fn damaged<T>(what: &str) -> Result<T, Unread> {
    Err(Unread::Damaged(what.to_owned()))
}

/// The preamble of the last complete saved index.
async fn last_preamble(files: &Files, sums: &Sums) -> io::Result<Option<Preamble>> {
    let mut last: Option<Preamble> = None;
    for (file, slot) in files.indexes.iter().zip(0..) {
        for copy in read_copies(file, COPY_BYTES, PREAMBLE_BYTES).await? {
            let preamble = Preamble::decode(sums, &copy);
            let preamble = preamble.filter(|preamble| preamble.generation & 1 == slot);
            let newer =
                |preamble: &Preamble| last.is_none_or(|last| last.generation < preamble.generation);
            last = preamble.filter(newer).or(last);
        }
    }
    Ok(last)
}

async fn load(files: &Files, block: &Superblock) -> Result<Loaded, Unread> {
    let sums = Sums::new(block.secret);
    let geometry = block.geometry;
    let Some(preamble) = last_preamble(files, &sums).await? else {
        return damaged("no saved index is complete");
    };
    let index = &files.indexes[(preamble.generation & 1) as usize];
    if preamble.generation > GENERATION_MAX {
        return damaged("the saved index has an impossible generation");
    }
    if preamble.head_len > HEAD_BYTES_MAX || preamble.slices_at() > index.len()? {
        return damaged("the saved index is truncated");
    }
    let mut head = vec![0; preamble.head_len as usize];
    index.read_exact_at(&mut head, HEAD_AT).await?;
    if decode_head(&sums, preamble.nonce, &head).is_none() {
        index.read_exact_at(&mut head, HEAD_AT + preamble.head_len).await?;
    }
    let Some((alive, purges)) = decode_head(&sums, preamble.nonce, &head) else {
        return damaged("the head of the saved index is damaged");
    };
    let hasher = KeyHasher::seeded(block.seeds[0], block.seeds[1]);
    let Some(purges) = Purges::restored(hasher, purges) else {
        return damaged("the saved purges are damaged");
    };
    let mut replay = Replay {
        overlay: Overlay::default(),
        segments: vec![(0, Log::Small); geometry.segments as usize],
        epoch: 0,
        closed: false,
    };
    for (segment, life, log) in alive {
        if let Some(state) = replay.segments.get_mut(usize::from(segment)) {
            *state = (life, log);
        }
    }
    let this = Areas::read(files, preamble.generation, geometry.journal_bytes).await?;
    let tail = Tail::new(preamble.nonce);
    let (mut end, bytes) = this.replay(&sums, tail, &mut replay, &purges);
    let mut journals = vec![(preamble.generation, bytes)];
    let mut generation = preamble.generation;
    let next = Areas::read(files, generation + 1, geometry.journal_bytes).await?;
    if let Some((nonce, previous)) = next.begins(&sums, generation + 1) {
        // A journal is started only after the one before it was closed and synced.
        if !replay.closed || previous != end.sum {
            return damaged("a journal does not follow from the one before it");
        }
        replay.closed = false;
        generation += 1;
        let (last, bytes) = next.replay(&sums, Tail::new(nonce), &mut replay, &purges);
        end = last;
        journals.push((generation, bytes));
        if replay.closed {
            // It is closed only after the saved index of its generation is complete.
            return damaged("a journal was closed too early");
        }
    }
    let alive = replay.segments.iter().enumerate().filter(|(_, (life, _))| *life != 0);
    let alive: Vec<_> = alive.map(|(segment, &(life, log))| (segment as u16, life, log)).collect();
    let epoch = block.epoch.max(replay.epoch);
    if epoch >= EPOCH_MAX {
        return damaged("it was opened too often to be counted");
    }
    // New numbers must exceed all existing ones.
    let numbers = alive.iter().map(|(_, life, _)| *life).chain([purges.now()]);
    if numbers.max().is_some_and(|last| last >> EPOCH_SHIFT > u64::from(epoch)) {
        return damaged("a number is larger than any that was given out");
    }
    Ok(Loaded {
        generation,
        tail: end,
        complete: preamble.generation,
        closed: replay.closed,
        empty: end.number == 0,
        epoch,
        alive,
        overlay: replay.overlay,
        purges,
        preamble,
        journals,
    })
}

/// Both copies of a journal.
struct Areas {
    copies: [Vec<u8>; 2],
}

impl Areas {
    async fn read(files: &Files, generation: u64, journal_bytes: u32) -> io::Result<Areas> {
        let file = &files.journals[(generation & 1) as usize];
        let copies = read_copies(file, u64::from(journal_bytes), journal_bytes as usize).await?;
        Ok(Areas { copies })
    }

    /// The next batch, from either good copy: its bytes, its changes, and the end after it.
    fn next(&self, sums: &Sums, tail: Tail) -> Option<(&[u8], &[u8], Tail)> {
        self.copies.iter().find_map(|copy| {
            let bytes = copy.get(tail.offset as usize..)?;
            let (changes, next) = tail.read(sums, bytes)?;
            assert!(next.offset > tail.offset && next.offset as usize <= copy.len());
            Some((&bytes[..(next.offset - tail.offset) as usize], changes, next))
        })
    }

    /// The nonce of this journal and the last sum of the one before it, if it has that generation.
    fn begins(&self, sums: &Sums, generation: u64) -> Option<(u64, u64)> {
        let nonces = self.copies.iter().filter_map(|copy| Tail::nonce_in(copy));
        nonces.into_iter().find_map(|nonce| {
            let (_, changes, _) = self.next(sums, Tail::new(nonce))?;
            match Change::decode(&mut Take(changes))? {
                Change::Begin { generation: of, previous } if of == generation => {
                    Some((nonce, previous))
                }
                _ => None,
            }
        })
    }

    /// Replays all good batches. Returns where they end, and their bytes.
    fn replay(
        &self,
        sums: &Sums,
        tail: Tail,
        replay: &mut Replay,
        purges: &Purges,
    ) -> (Tail, Vec<u8>) {
        let (mut at, mut all) = (tail, Vec::new());
        while let Some((bytes, changes, next)) = self.next(sums, at) {
            all.extend_from_slice(bytes);
            let mut take = Take(changes);
            while let Some(change) = Change::decode(&mut take) {
                replay.apply(change, purges);
            }
            at = next;
        }
        assert!((at.offset - tail.offset) as usize == all.len(), "batches are adjacent");
        (at, all)
    }
}

impl Replay {
    fn apply(&mut self, change: Change<'_>, purges: &Purges) {
        match change {
            Change::Put { print, segment, flags, offset, len } => {
                let life = self.segments.get(usize::from(segment)).map_or(0, |(life, _)| *life);
                let entry = SavedEntry { print, segment, flags, offset, len, life };
                self.overlay.insert(print, Some(entry));
            }
            Change::Delete { print } => {
                self.overlay.insert(print, None);
            }
            Change::Open { segment, life, log } => {
                if let Some(state) = self.segments.get_mut(usize::from(segment)) {
                    *state = (life, log);
                }
            }
            Change::Free { segment } => {
                if let Some((life, _)) = self.segments.get_mut(usize::from(segment)) {
                    *life = 0;
                }
            }
            Change::Purge { what, soft, mark } => purges.replay(what, soft, mark),
            Change::Begin { .. } => {}
            Change::Close => self.closed = true,
            Change::Epoch { epoch } => self.epoch = self.epoch.max(epoch),
        }
    }
}

/// Adds an entry to the index if its segment still has the life it was made in.
fn take_entry(inner: &Inner, entry: &SavedEntry) {
    let lives = &inner.segments.lives;
    let Some(life) = lives.get(usize::from(entry.segment)) else { return };
    let end = u64::from(entry.offset) + u64::from(entry.len);
    let segment_bytes = inner.options.geometry.segment_bytes;
    let inside = end <= u64::from(segment_bytes);
    // The index and the segments rely on what holds for every record that a store has written.
    let is_record = 0 < entry.len && entry.len <= segment_bytes / 2;
    let inside = inside && is_record && entry.offset.is_multiple_of(ALIGNMENT);
    if entry.life != 0 && life.load(std::sync::atomic::Ordering::Acquire) == entry.life && inside {
        inner.index.load(entry);
        inner.segments.restore_used(entry.segment, end as u32);
    }
}

/// Loads the saved entries that the journals do not mention. Returns how many were unreadable.
async fn load_entries(inner: &Inner, preamble: &Preamble, decided: &Overlay) -> u64 {
    let file = &inner.files.indexes[(preamble.generation & 1) as usize];
    let there = file.len().unwrap_or(0).saturating_sub(preamble.slices_at());
    let entries = preamble.entries.min(there / SavedEntry::BYTES as u64);
    inner.index.reserve(usize::try_from(entries).unwrap_or(0));
    let mut at = preamble.slices_at();
    let mut left = preamble.entries;
    for _ in 0..preamble.slices {
        let Some(entries) = read_slice(inner, file, preamble.nonce, at).await else { break };
        at += (SLICE_HEADER_BYTES + entries.0) as u64;
        left = left.saturating_sub((entries.0 / SavedEntry::BYTES) as u64);
        let Some(bytes) = entries.1 else {
            left += (entries.0 / SavedEntry::BYTES) as u64;
            continue;
        };
        for entry in bytes.chunks_exact(SavedEntry::BYTES).filter_map(SavedEntry::decode) {
            if !decided.contains_key(&entry.print) {
                take_entry(inner, &entry);
            }
        }
    }
    left
}

/// A slice's length, and its entries if they are good. `None`: its length is unknown, and so is the
/// offset of the next slice.
async fn read_slice(
    inner: &Inner,
    file: &File,
    nonce: u64,
    at: u64,
) -> Option<(usize, Option<Vec<u8>>)> {
    let mut header = [0; SLICE_HEADER_BYTES];
    file.read_exact_at(&mut header, at).await.ok()?;
    let count = decode_slice_header(&header)?;
    if count == 0 || count > ENTRIES_PER_SLICE {
        return None;
    }
    let mut entries = vec![0; count * SavedEntry::BYTES];
    file.read_exact_at(&mut entries, at + SLICE_HEADER_BYTES as u64).await.ok()?;
    let good = saved_index::slice_header(&inner.sums, nonce, &entries) == header;
    Some((entries.len(), good.then_some(entries)))
}
