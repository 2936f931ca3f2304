//! Files read without ever blocking the core.
//!
//! What: a read goes to the page cache first (`preadv2` with `RWF_NOWAIT`): what is there comes
//! back within the call. What is not is read by a thread of a small pool, which wakes the task.
//! Opening is the same: from the directory cache (`openat2` with `RESOLVE_CACHED`), else in the
//! pool.
//! Who owns: a [`File`] owns its descriptor; a read that a thread still works on keeps it open.
//! What never happens: a core waits for a disk, and a short read from the page cache is taken for
//! the end of the file.

pub(crate) mod pool;
mod real;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use crate::core;
use crate::counters::count;
use crate::sim;
use crate::sys::World;

pub use pool::{THREADS_MAX, unblock};

/// A file open for reading.
#[derive(Debug)]
pub struct File(Backing);

#[derive(Debug)]
enum Backing {
    Real(Arc<OwnedFd>),
    Simulated(sim::FileHandle),
}

impl File {
    /// Opens an existing file for reading.
    ///
    /// # Errors
    /// What the system says: it does not exist, may not be read, is no file.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<File> {
        let core = core::current();
        let path = path.as_ref();
        match &core.world {
            World::Simulated(world) => {
                let file = world.open_file(path);
                world.disk_delay().await;
                file.map(|file| File(Backing::Simulated(file)))
            }
            World::Real => {
                let fd = match real::open_cached(path) {
                    Some(result) => result?,
                    None => {
                        let path = path.to_path_buf();
                        unblock(move || real::open(&path)).await?
                    }
                };
                Ok(File(Backing::Real(Arc::new(fd))))
            }
        }
    }

    /// Reads up to `buf.len()` bytes at `offset`. Fewer than asked for, but not none, may come
    /// anywhere in the file; 0 only at or behind its end (or for an empty `buf`).
    ///
    /// # Errors
    /// What the disk says.
    pub async fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        core::spend().await; // a file that is all in the page cache
        let core = core::current();
        match &self.0 {
            Backing::Simulated(file) => {
                let World::Simulated(world) = &core.world else {
                    return Err(io::Error::other("a simulated file on a real core"));
                };
                world.disk_delay().await;
                world.read_file(file, buf, offset)
            }
            Backing::Real(fd) => match real::read_cached(fd, buf, offset) {
                Some(result) => {
                    count(&core.counters.file_reads_direct);
                    result
                }
                None => read_in_pool(Arc::clone(fd), buf, offset).await,
            },
        }
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before, or what the disk says.
    pub async fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.read_at(&mut buf[filled..], offset + filled as u64).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
        }
        Ok(())
    }

    /// The file's length in bytes now.
    ///
    /// # Errors
    /// What the system says.
    pub fn len(&self) -> io::Result<u64> {
        match &self.0 {
            Backing::Real(fd) => real::len(fd),
            Backing::Simulated(file) => Ok(file.len()),
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

/// The pool's thread reads into a buffer of its own: the task may be gone before it is done.
async fn read_in_pool(fd: Arc<OwnedFd>, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let wanted = buf.len();
    let bytes = unblock(move || {
        let mut bytes = vec![0; wanted];
        let read = real::read(&fd, &mut bytes, offset)?;
        bytes.truncate(read);
        io::Result::Ok(bytes)
    })
    .await?;
    buf[..bytes.len()].copy_from_slice(&bytes);
    Ok(bytes.len())
}
