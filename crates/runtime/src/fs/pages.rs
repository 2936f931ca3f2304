//! Sending what the page cache has without copying it, and without losing sight of it.
//!
//! What: [`StablePages`] maps a part of a file. Nobody reads through the mapping; it is a witness.
//! The kernel takes a page out of every mapping before it lets it go from the page cache, and only
//! a fault puts one in. So a page that is still mapped has been in the page cache ever since the
//! mapping was made, and what was verified of it then need not be verified again.
//! [`StablePages::share`] gives references to such pages to a pipe (`vmsplice`), from where they go
//! to a socket (`splice`); the faults that the thread counts meanwhile tell whether one of them was
//! not mapped any more.
//! Who owns: a [`SharedPages`] owns its pipe; one that was emptied goes back to its core, for the
//! next. The kernel owns the pages until the peer has them.
//! What never happens: a page is lent that was read from the disk after the mapping was made.
//! What is not seen: that somebody has written into a page through the page cache, be it while it
//! waits for the peer. Whoever owns the file sees to that, with [`super::File::detach`] for what he
//! writes himself and [`super::OpenWatch`] for others.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr;
use std::rc::Rc;

use super::pipes::Pipe;
use super::{PAGE_BYTES, real};
use crate::core::{self, Core};
use crate::sync::{Lock, LockKind};

/// Parts that are lent at once.
pub const PARTS_MAX: usize = 16;
static WHOLE: LockKind = LockKind::new("lent pages");

/// Pages of a part of a file that the page cache has had ever since this was made.
#[derive(Debug)]
pub struct StablePages {
    /// Of the mapping, which begins with the page of the first byte.
    address: usize,
    mapped_bytes: usize,
    /// From there to the first byte.
    before: usize,
    len: usize,
    /// No page has left. Locked while some are lent: a page that had left is mapped anew by that.
    whole: Lock<bool>,
}

/// Why pages are not lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotShared {
    /// One of them has left the page cache: what was verified may not be what is there now.
    Gone,
    /// There is no pipe, or none that is wide enough: as many are in use as this core, or the
    /// user, may have.
    NoPipe,
}

/// References to pages of a file, on their way to a socket.
pub struct SharedPages {
    core: Rc<Core>,
    /// `None` once it has gone back.
    pipe: Option<Pipe>,
    left: usize,
}

impl fmt::Debug for SharedPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPages").field("left", &self.left).finish_non_exhaustive()
    }
}

impl StablePages {
    /// Reads what the page cache does not have, however long that takes.
    pub(super) fn new(file: &File, offset: u64, len: usize) -> io::Result<StablePages> {
        let before = (offset % PAGE_BYTES as u64) as usize;
        let wanted = (before + len).next_multiple_of(PAGE_BYTES);
        let mapped_bytes = wanted + PAGE_BYTES;
        let from = libc::off_t::try_from(offset - before as u64).map_err(io::Error::other)?;
        let (fd, none) = (file.as_raw_fd(), ptr::null_mut());
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address =
            unsafe { libc::mmap(none, mapped_bytes, libc::PROT_READ, libc::MAP_SHARED, fd, from) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let whole = Lock::new(&WHOLE, true);
        let pages = StablePages { address: address as usize, mapped_bytes, before, len, whole };
        // The last page is nobody's. Two mappings side by side may become one to the kernel, and a
        // fault in the one would map pages of the other.
        // SAFETY: the last page of our own mapping.
        if unsafe { libc::mprotect(address.byte_add(wanted), PAGE_BYTES, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a part of our own mapping.
        if unsafe { libc::madvise(address, wanted, libc::MADV_POPULATE_READ) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(pages)
    }

    /// References to these parts of it, as far as one pipe takes them: the first ones, as a whole.
    ///
    /// # Errors
    /// A page has left, and others may since: make another. Or there is no pipe: copy.
    ///
    /// # Panics
    /// When there are more than [`PARTS_MAX`], or one reaches behind the end.
    pub async fn share(&self, parts: &[Range<usize>]) -> Result<SharedPages, NotShared> {
        core::spend().await; // pages that are all there
        let core = core::current();
        let pipe = core.pipes.borrow_mut().take().ok_or(NotShared::NoPipe)?;
        match self.fill(&pipe, parts) {
            Ok(left) => Ok(SharedPages { core, pipe: Some(pipe), left }),
            Err(error) => {
                // Whatever is in it.
                core.pipes.borrow_mut().give_back(pipe, false);
                Err(error)
            }
        }
    }

    fn fill(&self, pipe: &Pipe, parts: &[Range<usize>]) -> Result<usize, NotShared> {
        let mut slices = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; PARTS_MAX];
        let (mut count, mut slots, mut bytes) = (0, 0, 0);
        for part in parts {
            assert!(part.start <= part.end && part.end <= self.len, "a part of what is mapped");
            let from = self.before + part.start;
            slots += (from + part.len()).div_ceil(PAGE_BYTES) - from / PAGE_BYTES;
            if slots > pipe.slots {
                break;
            }
            let iov_base = (self.address + from) as *mut _;
            slices[count] = libc::iovec { iov_base, iov_len: part.len() };
            count += 1;
            bytes += part.len();
        }
        if bytes == 0 {
            return Err(NotShared::NoPipe);
        }
        let mut whole = self.whole.lock().expect("nobody panics while lending");
        *whole = *whole && self.are_cached(&parts[..count]);
        if *whole {
            let (into, before) = (pipe.write.as_raw_fd(), faults());
            // SAFETY: so many slices of our mapping, which stays; the kernel only takes references.
            let taken =
                unsafe { libc::vmsplice(into, slices.as_ptr(), count, libc::SPLICE_F_NONBLOCK) };
            // Less than all: the file is shorter by now.
            *whole = faults() == before && usize::try_from(taken) == Ok(bytes);
        }
        if *whole { Ok(bytes) } else { Err(NotShared::Gone) }
    }

    /// Whether the page cache has the pages from the first part to the last: what it does not have
    /// would be waited for.
    fn are_cached(&self, parts: &[Range<usize>]) -> bool {
        let first = parts.iter().map(|part| part.start).min().unwrap_or(0);
        let end = parts.iter().map(|part| part.end).max().unwrap_or(0);
        let mut page = (self.before + first) / PAGE_BYTES;
        let pages_end = (self.before + end).div_ceil(PAGE_BYTES);
        while page < pages_end {
            let mut cached = [0_u8; 512];
            let count = cached.len().min(pages_end - page);
            let from = (self.address + page * PAGE_BYTES) as *mut _;
            // SAFETY: pages of our own mapping, and room for a byte each.
            let told = unsafe { libc::mincore(from, count * PAGE_BYTES, cached.as_mut_ptr()) };
            if told != 0 || cached[..count].iter().any(|state| state & 1 == 0) {
                return false;
            }
            page += count;
        }
        true
    }
}

impl Drop for StablePages {
    fn drop(&mut self) {
        // SAFETY: our own mapping; pages that were lent have references of their own.
        unsafe { libc::munmap(self.address as *mut _, self.mapped_bytes) };
    }
}

/// Faults of this thread so far, those that a system call has made on its behalf included.
fn faults() -> (libc::c_long, libc::c_long) {
    // SAFETY: a C struct of integers, for which zero is a value; the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    (usage.ru_minflt, usage.ru_majflt)
}

impl SharedPages {
    /// Bytes that are still to be sent.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left
    }

    /// Takes a page out, to look at it.
    fn look(&self) -> [u8; PAGE_BYTES] {
        let mut page = [0; PAGE_BYTES];
        if let Some(pipe) = &self.pipe {
            // SAFETY: pointer and length describe `page`.
            unsafe { libc::read(pipe.read.as_raw_fd(), page.as_mut_ptr().cast(), page.len()) };
        }
        page
    }

    /// Sends what the socket takes. `more` follows: an incomplete packet may wait for it.
    pub(crate) fn splice_to(&mut self, socket: RawFd, more: bool) -> io::Result<usize> {
        let Some(pipe) = self.pipe.as_ref().filter(|_| self.left > 0) else { return Ok(0) };
        let more = if more { libc::SPLICE_F_MORE } else { 0 };
        let none = ptr::null_mut();
        // SAFETY: no offsets; both descriptors are open.
        let sent = unsafe {
            libc::splice(
                pipe.read.as_raw_fd(),
                none,
                socket,
                none,
                self.left,
                libc::SPLICE_F_NONBLOCK | more,
            )
        };
        let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
        self.left -= sent;
        Ok(sent)
    }
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            self.core.pipes.borrow_mut().give_back(pipe, self.left == 0);
        }
    }
}

/// Whether pages of files in this directory can be lent, and detached: tries it with a file of its
/// own.
pub(super) async fn try_in(directory: &Path) -> Result<(), String> {
    let wrong = |what: &str, error: &io::Error| format!("{what}: {error}");
    // SAFETY: no pointers.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    if usize::try_from(page_bytes) != Ok(PAGE_BYTES) {
        return Err(format!("this machine has pages of {page_bytes} bytes, not of {PAGE_BYTES}"));
    }
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(directory)
        .map_err(|error| wrong("no unnamed file can be made there (O_TMPFILE)", &error))?;
    if real::is_dax(&file).map_err(|error| wrong("a file cannot be looked at", &error))? {
        return Err(
            "files are mapped from the disk itself there (DAX): it has no page cache".into()
        );
    }
    let write = |byte| {
        real::write_page(&file, byte).map_err(|error| wrong("a page cannot be written", &error))
    };
    write(b'a')?;
    let pages = StablePages::new(&file, 0, PAGE_BYTES).map_err(|error| {
        wrong("a file cannot be mapped (MADV_POPULATE_READ, Linux 5.14)", &error)
    })?;
    let part = [0..PAGE_BYTES; 1];
    let lent = pages.share(&part).await;
    let lent =
        lent.map_err(|_| "pages of a file cannot be put into a pipe (vmsplice)".to_owned())?;
    real::detach(&file, 0, PAGE_BYTES as u64)
        .map_err(|error| wrong("pages cannot be detached (FALLOC_FL_ZERO_RANGE)", &error))?;
    write(b'b')?;
    if lent.look() != [b'a'; PAGE_BYTES] {
        return Err("pages that are lent are written over there".to_owned());
    }
    if pages.share(&part).await.err() != Some(NotShared::Gone) {
        return Err("this kernel does not tell when a page has left the page cache".to_owned());
    }
    Ok(())
}
