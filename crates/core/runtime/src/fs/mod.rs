//! Files read and written without ever blocking the core.
//!
//! What: a read tries the page cache first (`preadv2` with `RWF_NOWAIT`) and returns cached bytes
//! within the call. Otherwise a thread of a small pool reads and wakes the task. Opening works the
//! same way: from the directory cache (`openat2` with `RESOLVE_CACHED`), otherwise in the pool.
//! Operations that change a file (writing, syncing, reserving space) may wait for the disk at any
//! time and always run in the pool. Long writes can bypass the page cache (`O_DIRECT`): filling its
//! pages and writing them out later is most of the work of a write, and a kernel without preemption
//! keeps the cores waiting for it.
//! Who owns: a [`File`] owns its descriptor; an operation that is still running in a thread keeps
//! it open. A buffer to be written moves to the thread and comes back with the result.
//! What never happens: a core waits for a disk; a short read from the page cache is mistaken for
//! the end of the file; a write is considered durable before a [`File::sync_data`] that began after
//! it has succeeded.

mod below;
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
use crate::sys::pipe::PAGE_BYTES;

pub use crate::sys::options::OpenOptions;
pub use below::{Below, Directory};
pub use open_watch::OpenWatch;
pub use page_buffer::PageBuffer;
pub use pages::{NotShared, PARTS_MAX, SharedPages, StablePages};
pub use pool::{THREADS_MAX, unblock};

/// The page cache holds a file in pieces of up to this many bytes, each at an offset that is a
/// multiple of its size. Detaching only a part of a piece would change the piece in place.
pub const DETACHED_BYTES: u64 = 2 * 1024 * 1024;

/// The longest part of a file that takes no pipe of the core. The kernel's own pipe for `sendfile`
/// takes so many bytes, and the peer wakes for each fill of that pipe.
const DIRECT_BYTES_MAX: usize = 64 * 1024;

/// How many reads it took to fill a buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// All reads.
    pub calls: u32,
    /// Those that would have blocked and went to the pool.
    pub would_block: u32,
    /// Those that returned less than requested before the end of the file; the remainder was read
    /// again.
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
    /// What the system says: it does not exist, may not be read, or is not a file.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<File> {
        File::open_with(path, OpenOptions::default()).await
    }

    /// Opens a file. A file that this creates survives a power cut only once its directory has been
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

    /// Reads up to `buf.len()` bytes at `offset`. May return fewer bytes anywhere in the file, but
    /// 0 only at or beyond its end (or for an empty `buf`).
    ///
    /// # Errors
    /// What the disk says.
    pub async fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_counted(buf, offset, &mut Reads::default()).await
    }

    /// Fills `buf` from `offset`, and returns how many reads that took.
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

    /// Appends the `len` bytes at `offset` to `out`, and returns how many reads that took. If the
    /// page cache has them, the space is not zeroed first. After an error `out` has some of them.
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
            core::spend().await; // lets others run if the whole file is in the page cache
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
        core::spend().await; // lets others run if the whole file is in the page cache
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

    /// Takes up to `len_max` bytes at `offset` without copying them. They go to a socket
    /// ([`crate::net::TcpStream::try_write_pages`]): a long part through a pipe, a short one at
    /// once if the socket has room. The pool first reads what the page cache does not have. Nothing
    /// checks the bytes: a later change of the file shows. `None`: copy, because there is no pipe
    /// or no page cache.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before `offset`, or what the disk says.
    pub async fn share(&self, offset: u64, len_max: usize) -> io::Result<Option<SharedPages>> {
        core::spend().await; // lets others run if the whole file is in the page cache
        let Backing::Real(file) = &self.0 else { return Ok(None) };
        let core = core::current();
        let mut piped = None;
        let mut len = len_max;
        if len_max > DIRECT_BYTES_MAX {
            let Some(pages) = SharedPages::empty(&core, false) else { return Ok(None) };
            len = len_max.min(pages.room_at(offset));
            piped = Some(pages);
        }
        if !real::seems_cached(file, offset, len) {
            count(&core.counters.file_reads_would_block);
            let file = Arc::clone(file);
            unblock(move || real::read(&file, &mut vec![0; len], offset)).await?;
        }
        let Some(mut pages) = piped else {
            return Ok(Some(SharedPages::direct(core, file, offset, len)));
        };
        core.charge(len);
        pages.splice_file(file, offset, len)?;
        Ok(Some(pages))
    }

    /// Writes all of `bytes` at `offset`, in the pool, and returns them. After an error any part of
    /// them may have been written. If the future is dropped, the write continues.
    pub async fn write_all_at<B>(&self, bytes: B, offset: u64) -> (io::Result<()>, B)
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        self.write_made_at(move || bytes, offset).await
    }

    /// As [`File::write_all_at`], for bytes that `make` produces. It may take long, because it runs
    /// in the pool too.
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

    /// Maps a part of the file so that its pages can be shared. The pool first brings all of them
    /// into the page cache.
    ///
    /// # Errors
    /// `Unsupported` on the twin, which has no page cache; or what the system says.
    pub async fn stable_pages(&self, offset: u64, len: usize) -> io::Result<StablePages> {
        by_backing!(self, |_file| Err(io::ErrorKind::Unsupported.into()), |file| {
            StablePages::new(&file, offset, len)
        })
    }

    /// Zeroes a part of the file, in the pool. Its blocks on the disk stay allocated, or are
    /// allocated again (XFS). Pages that are being shared keep their content, because later writes
    /// go to new pages. Does nothing on the twin, which shares no pages.
    ///
    /// # Errors
    /// `InvalidInput` unless the part begins and ends at a multiple of [`DETACHED_BYTES`], or ends
    /// with the file; `Unsupported` if the file system cannot do it; or what the disk says.
    pub async fn detach(&self, offset: u64, len: u64) -> io::Result<()> {
        let ends_well = |end: u64| -> io::Result<bool> {
            Ok(end.is_multiple_of(DETACHED_BYTES) || end >= self.len()?)
        };
        if !offset.is_multiple_of(DETACHED_BYTES) || !ends_well(offset + len)? {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        by_backing!(self, |_file| Ok(()), |file| real::detach(&file, offset, len))
    }

    /// Makes all earlier writes durable, in the pool.
    ///
    /// # Errors
    /// What the disk says. Then writes since the last success may be lost, and a later success does
    /// not change that.
    pub async fn sync_data(&self) -> io::Result<()> {
        count(&core::current().counters.file_syncs);
        by_backing!(self, |file| simulated::sync(file).await, |file| file.sync_data())
    }

    /// Ensures that the file has at least this length, and reserves space for all of it on the
    /// disk.
    ///
    /// # Errors
    /// The disk is full, or cannot reserve space.
    pub async fn allocate(&self, bytes: u64) -> io::Result<()> {
        by_backing!(self, |file| simulated::delayed(|| file.allocate(bytes)).await, |file| {
            real::allocate(&file, bytes)
        })
    }

    /// Truncates the file, or extends it with zeros that take no space on the disk yet.
    ///
    /// # Errors
    /// What the system says.
    pub async fn set_len(&self, bytes: u64) -> io::Result<()> {
        by_backing!(self, |file| simulated::delayed(|| file.set_len(bytes)).await, |file| file
            .set_len(bytes))
    }

    /// Locks the file for this process until it is closed or unlocked. False if another process has
    /// locked it.
    ///
    /// # Errors
    /// The file system does not support locks.
    pub async fn try_lock(&self) -> io::Result<bool> {
        by_backing!(self, |file| simulated::delayed(|| file.try_lock()).await, |file| {
            real::try_lock(&file)
        })
    }

    /// Releases the lock of [`File::try_lock`]; the file stays open.
    ///
    /// # Errors
    /// What the system says.
    pub fn unlock(&self) -> io::Result<()> {
        match &self.0 {
            Backing::Real(file) => file.unlock(),
            Backing::Simulated(file) => file.unlock(),
        }
    }

    /// The file's current length in bytes.
    ///
    /// # Errors
    /// What the system says.
    pub fn len(&self) -> io::Result<u64> {
        match &self.0 {
            Backing::Real(file) => real::len(file),
            Backing::Simulated(file) => file.len(),
        }
    }

    /// True if the file is currently empty.
    ///
    /// # Errors
    /// What the system says.
    pub fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }
}

/// Renames a file and replaces the file that has the new name. Durable once the directory has been
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

/// Removes a name from its directory. Durable once the directory has been synced.
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

/// Creates a directory and its missing parents, for this user alone; one that exists stays as it
/// is.
///
/// # Errors
/// What the system says.
pub async fn create_directory(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref().to_path_buf();
    match &core::current().world {
        World::Simulated(_) => Ok(()), // the twin has names only
        World::Real => unblock(move || real::create_directory(&path)).await,
    }
}

/// Makes the names in a directory durable.
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

/// Checks that pages of files in this directory can be shared ([`StablePages`]) and detached.
///
/// # Errors
/// Why they cannot, as text.
pub async fn check_page_sharing(directory: impl AsRef<Path>) -> Result<(), String> {
    let directory = directory.as_ref().to_path_buf();
    match &core::current().world {
        World::Simulated(_) => Err("the twin has no page cache".to_owned()),
        World::Real => pages::try_in(&directory).await,
    }
}

/// A read that would block. The pool's thread reads into its own buffer, because the task may be
/// dropped before the read is done.
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
