//! Files read and written without ever blocking the core.
//!
//! What: a read goes to the page cache first (`preadv2` with `RWF_NOWAIT`): what is there comes
//! back within the call. What is not is read by a thread of a small pool, which wakes the task.
//! Opening is the same: from the directory cache (`openat2` with `RESOLVE_CACHED`), else in the
//! pool. What changes a file (writing, syncing, reserving room) may wait for the disk at any time
//! and is always done by the pool. Long writes can go around the page cache (`O_DIRECT`): to fill
//! its pages, and to write them out later, is most of the work of a write, and a kernel that does
//! not preempt itself keeps the cores waiting for it.
//! Who owns: a [`File`] owns its descriptor; an operation that a thread still works on keeps it
//! open. A buffer to be written is lent to the thread and comes back with the answer.
//! What never happens: a core waits for a disk; a short read from the page cache is taken for the
//! end of the file; a write is taken for durable before a [`File::sync_data`] that began after it
//! has ended well.

mod open_watch;
mod page_buffer;
mod pages;
pub(crate) mod pipes;
mod pool;
mod real;
mod simulated;

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::core;
use crate::counters::count;
use crate::sim::FileHandle;
use crate::sys::World;

pub use crate::sys::options::OpenOptions;
pub use open_watch::OpenWatch;
pub use page_buffer::PageBuffer;
pub use pages::{NotShared, PARTS_MAX, SharedPages, StablePages};
pub use pool::{THREADS_MAX, unblock};

/// What of a write fills pages of the file, of so many bytes, can go around the page cache, if it
/// stands in pages of memory as well.
const PAGE_BYTES: usize = 4096;

/// The page cache has a file in pieces of up to so many bytes, that are as far into the file as a
/// multiple of their size. One that is detached in part is changed where it is.
pub const DETACHED_BYTES: u64 = 2 * 1024 * 1024;

/// What a read that was to fill its buffer took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// Reads that were made.
    pub calls: u32,
    /// Of these, such as would have blocked and went to the pool.
    pub would_block: u32,
    /// Of these, such as gave less than was asked for before the end: the rest was read again.
    pub short: u32,
}

/// An open file. Any core may use it.
#[derive(Debug)]
pub struct File(Backing);

#[derive(Debug)]
enum Backing {
    Real(Arc<real::Handle>),
    Simulated(FileHandle),
}

/// Evaluates the first expression for a simulated file, and runs the second in the pool for a real
/// one.
macro_rules! by_backing {
    ($file:expr, |$simulated:ident| $twin:expr, |$real:ident| $job:expr) => {
        match &$file.0 {
            Backing::Simulated($simulated) => $twin,
            Backing::Real(real) => {
                let $real = Arc::clone(real);
                unblock(move || $job).await
            }
        }
    };
}

impl File {
    /// Opens an existing file for reading.
    ///
    /// # Errors
    /// What the system says: it does not exist, may not be read, is no file.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<File> {
        File::open_with(path, OpenOptions::default()).await
    }

    /// Opens a file. One that was made is there after a power cut only once its directory has been
    /// synced ([`sync_directory`]).
    ///
    /// # Errors
    /// What the system says: it does not exist, may not be written, the file system is read-only.
    pub async fn open_with(path: impl AsRef<Path>, options: OpenOptions) -> io::Result<File> {
        let core = core::current();
        let path = path.as_ref();
        match &core.world {
            World::Simulated(world) => {
                let file = world.disk().open(path, options);
                simulated::delay(world).await;
                file.map(|file| File(Backing::Simulated(file)))
            }
            World::Real => {
                let cached =
                    if options == OpenOptions::default() { real::open_cached(path) } else { None };
                let file = match cached {
                    Some(result) => real::Handle::cached(result?),
                    None => {
                        let path = path.to_path_buf();
                        unblock(move || real::open(&path, options)).await?
                    }
                };
                Ok(File(Backing::Real(Arc::new(file))))
            }
        }
    }

    /// Reads up to `buf.len()` bytes at `offset`. Fewer than asked for, but not none, may come
    /// anywhere in the file; 0 only at or behind its end (or for an empty `buf`).
    ///
    /// # Errors
    /// What the disk says.
    pub async fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_counted(buf, offset, &mut Reads::default()).await
    }

    /// Fills `buf` from `offset`, and says what that took.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before, or what the disk says.
    pub async fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Reads> {
        let mut reads = Reads::default();
        let mut filled = 0;
        while filled < buf.len() {
            let at = offset + filled as u64;
            match self.read_counted(&mut buf[filled..], at, &mut reads).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
            if filled < buf.len() {
                reads.short += 1;
                count(&core::current().counters.file_reads_short);
            }
        }
        Ok(reads)
    }

    /// Appends the `len` bytes at `offset` to `out`, whose room is not cleared first if the page
    /// cache has them, and says what that took. After an error `out` has any part of them.
    ///
    /// # Errors
    /// As [`File::read_exact_at`].
    pub async fn append_exact_at(
        &self,
        out: &mut Vec<u8>,
        len: usize,
        offset: u64,
    ) -> io::Result<Reads> {
        let (begin, mut reads) = (out.len(), Reads::default());
        if let Backing::Real(file) = &self.0 {
            core::spend().await; // a file that is all in the page cache
            reads.calls = 1;
            let read = if let Some(read) = real::append_cached(file, out, len, offset) {
                let core = core::current();
                count(&core.counters.file_reads_direct);
                core.charge(len);
                read?
            } else {
                out.resize(begin + len, 0);
                let read = read_in_pool(file, &mut out[begin..], offset, &mut reads).await?;
                out.truncate(begin + read);
                read
            };
            match read {
                read if read == len => return Ok(reads),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => {
                    reads.short = 1;
                    count(&core::current().counters.file_reads_short);
                }
            }
        }
        let here = out.len();
        out.resize(begin + len, 0);
        let rest = offset + (here - begin) as u64;
        let more = self.read_exact_at(&mut out[here..], rest).await?;
        Ok(Reads {
            calls: reads.calls + more.calls,
            would_block: reads.would_block + more.would_block,
            short: reads.short + more.short,
        })
    }

    async fn read_counted(
        &self,
        buf: &mut [u8],
        offset: u64,
        reads: &mut Reads,
    ) -> io::Result<usize> {
        core::spend().await; // a file that is all in the page cache
        let core = core::current();
        reads.calls += 1;
        match &self.0 {
            Backing::Simulated(file) => simulated::read(file, buf, offset).await,
            Backing::Real(file) => match real::read_cached(file, buf, offset) {
                Some(result) => {
                    count(&core.counters.file_reads_direct);
                    core.charge(buf.len());
                    result
                }
                None => read_in_pool(file, buf, offset, reads).await,
            },
        }
    }

    /// Writes all of `bytes` at `offset`, in the pool, and gives them back. After an error any part
    /// of them may have been written. The future may be dropped; the write goes on.
    pub async fn write_all_at<B>(&self, bytes: B, offset: u64) -> (io::Result<()>, B)
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        self.write_made_at(move || bytes, offset).await
    }

    /// The same for bytes that are yet to be made, which may be long work: it is done in the pool
    /// as well.
    pub async fn write_made_at<B>(
        &self,
        make: impl FnOnce() -> B + Send + 'static,
        offset: u64,
    ) -> (io::Result<()>, B)
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        count(&core::current().counters.file_writes);
        match &self.0 {
            Backing::Simulated(file) => {
                let bytes = make();
                (simulated::write(file, bytes.as_ref(), offset).await, bytes)
            }
            Backing::Real(file) => {
                let file = Arc::clone(file);
                let job = move || {
                    let bytes = make();
                    (real::write_all(&file, bytes.as_ref(), offset), bytes)
                };
                let (written, bytes) = unblock(job).await;
                if matches!(written, Ok(direct) if direct > 0) {
                    count(&core::current().counters.file_writes_uncached);
                }
                (written.map(drop), bytes)
            }
        }
    }

    /// Watches the pages of a part of the file, so that they can be lent: from now on, after they
    /// have all been brought into the page cache by the pool.
    ///
    /// # Errors
    /// `Unsupported` on the twin, which has no page cache; or what the system says.
    pub async fn stable_pages(&self, offset: u64, len: usize) -> io::Result<StablePages> {
        by_backing!(self, |_file| Err(io::ErrorKind::Unsupported.into()), |file| {
            StablePages::new(&file, offset, len)
        })
    }

    /// Makes zeros of a part of the file, in the pool; its place on the disk stays, or is taken
    /// anew (XFS). Pages of it that are lent stay as they are: whatever is written there from now
    /// on is written to others. On the twin, where none is lent, nothing is done.
    ///
    /// # Errors
    /// `InvalidInput` unless the part begins and ends at a multiple of [`DETACHED_BYTES`], or ends
    /// with the file; `Unsupported` if the file system cannot; or what the disk says.
    pub async fn detach(&self, offset: u64, len: u64) -> io::Result<()> {
        let ends_well = |end: u64| -> io::Result<bool> {
            Ok(end.is_multiple_of(DETACHED_BYTES) || end >= self.len()?)
        };
        if !offset.is_multiple_of(DETACHED_BYTES) || !ends_well(offset + len)? {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        by_backing!(self, |_file| Ok(()), |file| real::detach(&file, offset, len))
    }

    /// Makes durable what was written before, in the pool.
    ///
    /// # Errors
    /// What the disk says. Then what was written since the last success may be lost, and a later
    /// success says nothing about it.
    pub async fn sync_data(&self) -> io::Result<()> {
        count(&core::current().counters.file_syncs);
        by_backing!(self, |file| simulated::sync(file).await, |file| file.sync_data())
    }

    /// Sees to it that the file is at least so long and that all of it has its place on the disk.
    ///
    /// # Errors
    /// The disk is full, or cannot reserve room.
    pub async fn allocate(&self, bytes: u64) -> io::Result<()> {
        by_backing!(self, |file| simulated::delayed(|| file.allocate(bytes)).await, |file| {
            real::allocate(&file, bytes)
        })
    }

    /// Cuts the file, or makes it longer by zeros that have no place on the disk yet.
    ///
    /// # Errors
    /// What the system says.
    pub async fn set_len(&self, bytes: u64) -> io::Result<()> {
        by_backing!(self, |file| simulated::delayed(|| file.set_len(bytes)).await, |file| file
            .set_len(bytes))
    }

    /// Takes the file for this process, until it is closed or unlocked. False if another has it.
    ///
    /// # Errors
    /// The file system knows no locks.
    pub async fn try_lock(&self) -> io::Result<bool> {
        by_backing!(self, |file| simulated::delayed(|| file.try_lock()).await, |file| {
            real::try_lock(&file)
        })
    }

    /// Gives back what [`File::try_lock`] took, while the file stays open.
    ///
    /// # Errors
    /// What the system says.
    pub fn unlock(&self) -> io::Result<()> {
        match &self.0 {
            Backing::Real(file) => file.unlock(),
            Backing::Simulated(file) => file.unlock(),
        }
    }

    /// The file's length in bytes now.
    ///
    /// # Errors
    /// What the system says.
    pub fn len(&self) -> io::Result<u64> {
        match &self.0 {
            Backing::Real(file) => real::len(file),
            Backing::Simulated(file) => file.len(),
        }
    }

    /// True if the file has no bytes now.
    ///
    /// # Errors
    /// What the system says.
    pub fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }
}

/// Gives a file another name, in place of what has that name; durable once the directory has been
/// synced.
///
/// # Errors
/// What the system says.
pub async fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    let (from, to) = (from.as_ref().to_path_buf(), to.as_ref().to_path_buf());
    match &core::current().world {
        World::Simulated(world) => world.disk().rename(&from, &to),
        World::Real => unblock(move || std::fs::rename(from, to)).await,
    }
}

/// Takes a name out of its directory; durable once that has been synced.
///
/// # Errors
/// What the system says.
pub async fn remove(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref().to_path_buf();
    match &core::current().world {
        World::Simulated(world) => world.disk().remove(&path),
        World::Real => unblock(move || std::fs::remove_file(path)).await,
    }
}

/// Makes a directory and those above it, as far as they do not exist.
///
/// # Errors
/// What the system says.
pub async fn create_directory(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref().to_path_buf();
    match &core::current().world {
        World::Simulated(_) => Ok(()), // has names only
        World::Real => unblock(move || std::fs::create_dir_all(path)).await,
    }
}

/// Makes durable what names a directory has.
///
/// # Errors
/// What the disk says.
pub async fn sync_directory(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref().to_path_buf();
    match &core::current().world {
        World::Simulated(world) => {
            simulated::delay(world).await;
            world.disk().sync_names()
        }
        World::Real => unblock(move || std::fs::File::open(path)?.sync_all()).await,
    }
}

/// Whether pages of files in this directory can be lent ([`StablePages`]) and detached.
///
/// # Errors
/// Why they cannot, in words.
pub async fn check_page_sharing(directory: impl AsRef<Path>) -> Result<(), String> {
    let directory = directory.as_ref().to_path_buf();
    match &core::current().world {
        World::Simulated(_) => Err("the twin has no page cache".to_owned()),
        World::Real => pages::try_in(&directory).await,
    }
}

/// A read that would block. The pool's thread reads into a buffer of its own: the task may be gone
/// before it is done.
async fn read_in_pool(
    file: &Arc<real::Handle>,
    buf: &mut [u8],
    offset: u64,
    reads: &mut Reads,
) -> io::Result<usize> {
    count(&core::current().counters.file_reads_would_block);
    reads.would_block += 1;
    let (file, wanted) = (Arc::clone(file), buf.len());
    let bytes = unblock(move || {
        let mut bytes = vec![0; wanted];
        let read = real::read(&file, &mut bytes, offset)?;
        bytes.truncate(read);
        io::Result::Ok(bytes)
    })
    .await?;
    buf[..bytes.len()].copy_from_slice(&bytes);
    Ok(bytes.len())
}
