//! Files below a directory, by names that clients choose.
//!
//! What: [`Directory::open_below`] opens a file by a name relative to the directory, for reading.
//! The kernel resolves the name (`openat2` with `RESOLVE_BENEATH`): neither `..` nor a symbolic
//! link leads out of the directory, also if somebody renames directories at the same time.
//! What never happens: a device or a pipe is read; an open waits for the other end of a pipe
//! (`O_NONBLOCK`); a link of /proc is followed; a name with a NUL reaches the kernel.

use std::ffi::{CString, OsStr};
use std::fs::{self, Metadata};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Backing, File, real, simulated, unblock};
use crate::core;
use crate::sys::World;

/// How often a name is resolved again after a directory was renamed meanwhile.
const TRIES_MAX: u32 = 8;

/// A directory below which files are opened. It stays the same directory if it is renamed.
#[derive(Debug)]
pub struct Directory(Place);

#[derive(Debug)]
enum Place {
    Real(Arc<OwnedFd>),
    Simulated(PathBuf),
}

/// What a name leads to.
#[derive(Debug)]
pub enum Below {
    /// A file, open for reading.
    File {
        /// The file.
        file: File,
        /// Its length.
        bytes: u64,
        /// When its content was changed, in unix nanoseconds.
        modified_ns: u64,
    },
    /// A directory.
    Directory,
}

impl Directory {
    /// Opens a directory. Symbolic links on the way to it are followed.
    ///
    /// # Errors
    /// The error of the system: there is no directory at the path.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Directory> {
        let path = path.as_ref().to_path_buf();
        match &core::current().world {
            World::Simulated(_) => Ok(Directory(Place::Simulated(path))),
            World::Real => {
                let mut how = fs::File::options();
                how.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY);
                let file = unblock(move || how.open(path)).await?;
                Ok(Directory(Place::Real(Arc::new(file.into()))))
            }
        }
    }

    /// Opens the file or directory of this name, relative to the directory. `links`: symbolic links
    /// are followed as long as they lead to a place below the directory.
    ///
    /// # Errors
    /// `NotFound` also if a part of the name is a file or the name is too long;
    /// `PermissionDenied` also if the name leads out of the directory, has a link that is not
    /// followed, or is that of something else than a file or a directory; `InvalidInput` if it has
    /// a NUL; or the error of the system.
    pub async fn open_below(&self, name: &[u8], links: bool) -> io::Result<Below> {
        let Ok(name) = CString::new(name) else { return Err(io::ErrorKind::InvalidInput.into()) };
        match &self.0 {
            Place::Simulated(directory) => {
                let world = simulated::current_world()?;
                let path = directory.join(OsStr::from_bytes(name.as_bytes()));
                simulated::delay(&world).await;
                if world.disk().is_directory(&path) {
                    return Ok(Below::Directory);
                }
                let handle = world.disk().open(&path, super::OpenOptions::default())?;
                let bytes = handle.len()?;
                let file = File(Backing::Simulated(handle));
                Ok(Below::File { file, bytes, modified_ns: simulated::MODIFIED_NS })
            }
            Place::Real(directory) => {
                // The next read would find the rest of the work in the cache, too.
                core::spend().await;
                let cached = open_in(directory, &name, links, libc::RESOLVE_CACHED);
                let found = match cached.as_ref().map_err(io::Error::raw_os_error) {
                    Err(Some(libc::EAGAIN | libc::EINVAL | libc::EINTR)) => {
                        let directory = Arc::clone(directory);
                        unblock(move || open_slowly(&directory, &name, links)).await
                    }
                    _ => cached,
                };
                let (file, metadata) = found.map_err(kind_of)?;
                if metadata.is_dir() {
                    return Ok(Below::Directory);
                }
                if !metadata.is_file() {
                    return Err(io::ErrorKind::PermissionDenied.into());
                }
                let at_ns = metadata.mtime().checked_mul(1_000_000_000);
                let at_ns = at_ns.and_then(|at| at.checked_add(metadata.mtime_nsec()));
                let modified_ns = at_ns.and_then(|at| u64::try_from(at).ok()).unwrap_or(0);
                let file = File(Backing::Real(Arc::new(real::Handle::cached(file))));
                Ok(Below::File { file, bytes: metadata.len(), modified_ns })
            }
        }
    }
}

/// Resolves a name, however long that takes.
fn open_slowly(
    directory: &OwnedFd,
    name: &CString,
    links: bool,
) -> io::Result<(fs::File, Metadata)> {
    let mut tries = 0;
    loop {
        tries += 1;
        match open_in(directory, name, links, 0) {
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR))
                    && tries < TRIES_MAX => {}
            result => return result,
        }
    }
}

fn open_in(
    directory: &OwnedFd,
    name: &CString,
    links: bool,
    resolve: u64,
) -> io::Result<(fs::File, Metadata)> {
    // SAFETY: a C struct of integers, for which zero is a value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    how.flags = flags as u64;
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS | resolve;
    if !links {
        how.resolve |= libc::RESOLVE_NO_SYMLINKS;
    }
    // SAFETY: a NUL-terminated name and a struct of the stated size, both outliving the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            directory.as_raw_fd(),
            name.as_ptr(),
            &raw mut how,
            size_of::<libc::open_how>(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor with no other owner.
    let file: fs::File = unsafe { OwnedFd::from_raw_fd(fd as i32) }.into();
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// The error by which callers decide.
fn kind_of(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENOTDIR | libc::ENAMETOOLONG) => io::ErrorKind::NotFound.into(),
        // A socket, or a device without a driver, cannot be opened.
        Some(libc::EXDEV | libc::ELOOP | libc::ENXIO | libc::ENODEV) => {
            io::ErrorKind::PermissionDenied.into()
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn kind(result: io::Result<(fs::File, Metadata)>) -> Option<io::ErrorKind> {
        result.map_err(kind_of).err().map(|error| error.kind())
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("root");
        fs::create_dir_all(root.join("a")).unwrap();
        fs::write(root.join("a/file"), b"inside").unwrap();
        fs::write(home.path().join("secret"), b"outside").unwrap();
        symlink("../../secret", root.join("a/out")).unwrap();
        symlink(home.path().join("secret"), root.join("absolute")).unwrap();
        symlink("a/file", root.join("in")).unwrap();
        symlink("/proc/self/root", root.join("magic")).unwrap();
        let mut how = fs::File::options();
        how.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY);
        let directory: OwnedFd = how.open(&root).unwrap().into();
        let open =
            |name: &str, links| kind(open_slowly(&directory, &CString::new(name).unwrap(), links));
        for (name, links) in [("a/file", false), ("a/file", true), ("in", true), ("a/../in", true)]
        {
            assert_eq!(open(name, links), None, "{name}");
        }
        let secret = home.path().join("secret").display().to_string();
        let denied = ["../secret", "a/../../secret", "a/out", "absolute", "magic/etc/passwd"];
        for name in denied.into_iter().chain([secret.as_str(), "/", ".."]) {
            for links in [false, true] {
                assert_eq!(open(name, links), Some(io::ErrorKind::PermissionDenied), "{name}");
            }
        }
        assert_eq!(open("in", false), Some(io::ErrorKind::PermissionDenied));
        for name in ["a/none", "a/file/x", &"x".repeat(300)] {
            assert_eq!(open(name, true), Some(io::ErrorKind::NotFound), "{name}");
        }
    }

    #[test]
    fn a_pipe_is_opened_without_waiting() {
        let home = tempfile::tempdir().unwrap();
        let path = CString::new(home.path().join("pipe").as_os_str().as_bytes()).unwrap();
        // SAFETY: a NUL-terminated path.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        let directory: OwnedFd = fs::File::open(home.path()).unwrap().into();
        let (_, metadata) = open_slowly(&directory, &c"pipe".to_owned(), true).unwrap();
        assert!(!metadata.is_file());
    }
}
