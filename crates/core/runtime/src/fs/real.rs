//! The system calls below [`super::File`].

use std::ffi::CString;
use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::io;
use std::mem::MaybeUninit;
use std::ops::{Deref, Range};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::{OpenOptions, PAGE_BYTES};
use crate::sys::real::check;

/// Bytes written by one call. A kernel without preemption (PREEMPT_NONE, common on servers) keeps
/// its processor for the whole call, whatever wakes meanwhile.
const WRITE_BYTES_MAX: usize = 128 * 1024;
/// The same for a write that bypasses the page cache, for which the kernel only builds a list of
/// pages: an eighth of a millisecond, half of that with large pages ([`super::PageBuffer`]). The
/// thread sleeps until the disk is done and then waits for a processor, some milliseconds if all
/// are busy; so smaller calls would write too slowly.
const DIRECT_WRITE_BYTES_MAX: usize = 1024 * 1024;
/// Shorter writes are better collected in the page cache.
const DIRECT_BYTES_MIN: usize = 64 * 1024;

/// Opens `path` for reading if that does not need the disk. `None`: it might, or this kernel cannot
/// say.
pub(super) fn open_cached(path: &Path) -> Option<io::Result<File>> {
    let path = match c_path(path) {
        Ok(path) => path,
        Err(error) => return Some(Err(error)),
    };
    // SAFETY: a C struct of integers, for which zero is a value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
    how.resolve = libc::RESOLVE_CACHED;
    // SAFETY: a NUL-terminated path and a struct of the stated size, both outliving the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            libc::AT_FDCWD,
            path.as_ptr(),
            &raw mut how,
            size_of::<libc::open_how>(),
        )
    };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            // Not in the cache; a kernel before 5.12; or a sandbox without the call.
            Some(libc::EAGAIN | libc::ENOSYS | libc::EINVAL | libc::EPERM | libc::EINTR) => None,
            _ => Some(Err(error)),
        };
    }
    // SAFETY: a new descriptor with no other owner.
    Some(Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }.into()))
}

/// An open file.
#[derive(Debug)]
pub(super) struct Handle {
    file: File,
    /// The same file for writes that bypass the page cache, if requested and possible here.
    direct: Option<File>,
}

impl Handle {
    /// A file whose reads and writes use the page cache.
    pub(super) fn cached(file: File) -> Handle {
        Handle { file, direct: None }
    }
}

impl Deref for Handle {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

/// The mode of the files that are created, whatever the umask: they hold what clients were sent.
const FILE_MODE: u32 = 0o600;
/// The mode of the directories that are created.
const DIRECTORY_MODE: u32 = 0o700;
/// The bits of a mode that are for the group and for others.
const OTHERS: u32 = 0o077;

/// Creates a directory and its missing parents, for this user alone. One that exists stays as it
/// is.
pub(super) fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Opens `path`, however long that takes. A file that may be created is for this user alone.
pub(super) fn open(path: &Path, options: OpenOptions) -> io::Result<Handle> {
    let OpenOptions { write, create, direct } = options;
    // An existing file keeps its content, because a store's files are found by name.
    let mut how = File::options();
    how.read(true).write(write).create(create).truncate(false).mode(FILE_MODE);
    let file = how.open(path)?;
    if create && file.metadata()?.permissions().mode() & OTHERS != 0 {
        // One made by an earlier version. If it is another user's, its owner decides.
        let _ = file.set_permissions(Permissions::from_mode(FILE_MODE));
    }
    let open_direct = || File::options().write(true).custom_flags(libc::O_DIRECT).open(path).ok();
    let direct = if direct { open_direct() } else { None };
    Ok(Handle { file, direct })
}

/// Reads from the page cache. `None`: nothing is cached, or this file system cannot say.
pub(super) fn read_cached(file: &File, buf: &mut [u8], offset: u64) -> Option<io::Result<usize>> {
    // SAFETY: same size and alignment; `fill_cached` writes only bytes that were read.
    let room = unsafe { &mut *(std::ptr::from_mut(buf) as *mut [MaybeUninit<u8>]) };
    fill_cached(file, room, offset)
}

/// Bytes of a file between two that [`seems_cached`] looks at. The kernel reads ahead and evicts
/// pages in larger pieces.
const PROBED_BYTES: usize = 64 * 1024;

/// Whether the page cache seems to have this part of a file: it has a byte of each piece, and the
/// last one. If another page is missing all the same, one read from the disk is waited for.
pub(super) fn seems_cached(file: &File, offset: u64, len: usize) -> bool {
    let has = |at: usize| read_cached(file, &mut [0], offset + at as u64).is_some();
    (0..len).step_by(PROBED_BYTES).all(has) && len.checked_sub(1).is_none_or(has)
}

/// The same, but appends up to `len` bytes to `out` without zeroing the space first.
pub(super) fn append_cached(
    file: &File,
    out: &mut Vec<u8>,
    len: usize,
    offset: u64,
) -> Option<io::Result<usize>> {
    out.reserve_exact(len);
    let result = fill_cached(file, &mut out.spare_capacity_mut()[..len], offset);
    if let Some(Ok(read)) = result {
        // SAFETY: the first `read` bytes of the spare capacity have been written.
        unsafe { out.set_len(out.len() + read) };
    }
    result
}

/// Fills the start of `room` and returns how many bytes.
fn fill_cached(
    file: &File,
    room: &mut [MaybeUninit<u8>],
    offset: u64,
) -> Option<io::Result<usize>> {
    if room.is_empty() {
        return Some(Ok(0));
    }
    let slices = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let offset = libc::off_t::try_from(offset).unwrap_or(libc::off_t::MAX);
    // SAFETY: one iovec that describes `room`; both outlive the call.
    let read =
        unsafe { libc::preadv2(file.as_raw_fd(), &raw const slices, 1, offset, libc::RWF_NOWAIT) };
    if read > 0 {
        return Some(Ok(read as usize));
    }
    if read == 0 {
        // Either the end, or a file system that returns 0 when nothing is cached: compare the
        // length.
        return match len(file) {
            Ok(len) if offset as u64 >= len && len > 0 => Some(Ok(0)),
            _ => None,
        };
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL | libc::EINTR) => None,
        _ => Some(Err(error)),
    }
}

/// Reads, however long that takes.
pub(super) fn read(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buf, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Returns how many of the bytes bypassed the page cache.
pub(super) fn write_all(handle: &Handle, bytes: &[u8], offset: u64) -> io::Result<usize> {
    let pages = write_direct(handle, bytes, offset)?;
    write_by(handle, &bytes[..pages.start], offset, WRITE_BYTES_MAX)?;
    write_by(handle, &bytes[pages.end..], offset + pages.end as u64, WRITE_BYTES_MAX)?;
    Ok(pages.len())
}

/// Writes the part that can bypass the page cache, and returns its range.
fn write_direct(handle: &Handle, bytes: &[u8], offset: u64) -> io::Result<Range<usize>> {
    let (Some(direct), Some(pages)) = (&handle.direct, whole_pages(bytes, offset)) else {
        return Ok(0..0);
    };
    let at = offset + pages.start as u64;
    match write_by(direct, &bytes[pages.clone()], at, DIRECT_WRITE_BYTES_MAX) {
        Ok(()) => Ok(pages),
        // A file system or disk that needs a larger alignment than a page.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(0..0),
        Err(error) => Err(error),
    }
}

/// The part of `bytes` that fills whole pages of the file and is page-aligned in memory.
fn whole_pages(bytes: &[u8], offset: u64) -> Option<Range<usize>> {
    let before = (offset.wrapping_neg() % PAGE_BYTES as u64) as usize;
    let aligned = (bytes.as_ptr() as usize + before).is_multiple_of(PAGE_BYTES);
    if !aligned || bytes.len() < before + DIRECT_BYTES_MIN {
        return None;
    }
    let after = (bytes.len() - before) % PAGE_BYTES;
    Some(before..bytes.len() - after)
}

fn write_by(file: &File, bytes: &[u8], mut offset: u64, bytes_max: usize) -> io::Result<()> {
    for step in bytes.chunks(bytes_max) {
        file.write_all_at(step, offset)?;
        offset += step.len() as u64;
    }
    Ok(())
}

pub(super) fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    match fallocate(file, 0, 0, bytes) {
        // A file system that cannot reserve space: set the length at least.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            if len(file)? < bytes {
                file.set_len(bytes)
            } else {
                Ok(())
            }
        }
        result => result,
    }
}

/// Zeroes whole pages, which drops them from the page cache.
pub(super) fn detach(file: &File, offset: u64, len: u64) -> io::Result<()> {
    fallocate(file, libc::FALLOC_FL_ZERO_RANGE, offset, len)
}

/// `Unsupported` if the file system or the kernel does not support the mode.
fn fallocate(file: &File, mode: i32, offset: u64, len: u64) -> io::Result<()> {
    let [offset, len] =
        [offset, len].map(|bytes| libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX));
    loop {
        // SAFETY: no pointers.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => {
                return Err(io::ErrorKind::Unsupported.into());
            }
            _ => return Err(error),
        }
    }
}

/// Whether the file is mapped directly from the disk (Documentation/filesystems/dax.rst).
pub(super) fn is_dax(file: &File) -> io::Result<bool> {
    // SAFETY: a C struct of integers, for which zero is a value.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    let (fd, path) = (file.as_raw_fd(), c"".as_ptr());
    // SAFETY: an empty path, and space for the result.
    check(unsafe { libc::statx(fd, path, libc::AT_EMPTY_PATH, 0, &raw mut status) })?;
    Ok(status.stx_attributes & libc::STATX_ATTR_DAX as u64 != 0)
}

/// Writes the first page of a new file.
pub(super) fn write_page(file: &File, byte: u8) -> io::Result<()> {
    file.write_all_at(&[byte; PAGE_BYTES], 0)
}

pub(super) fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

pub(super) fn len(file: &File) -> io::Result<u64> {
    file.metadata().map(|metadata| metadata.len())
}

pub(super) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path must not contain NUL"))
}
