//! Sends pages of the page cache without copying, and detects when a page has left the cache.
//!
//! What: [`StablePages`] maps a part of a file. The mapping is never read; it is a witness. The
//! kernel removes a page from every mapping before it evicts the page from the page cache, and only
//! a fault maps a page again. So a page that is still mapped has been in the page cache ever since
//! the mapping was made, and need not be verified again. [`StablePages::share`] puts references to
//! such pages into a pipe (`vmsplice`), from where they go to a socket (`splice`). If the thread's
//! fault counter rises meanwhile, one of the pages was no longer mapped. What a socket has received
//! can take the same way ([`crate::net::TcpStream::try_read_shared`]). A short part of a file that
//! need not be verified takes no pipe (`sendfile`) as long as the socket has room.
//! Who owns: a [`SharedPages`] owns its pipe; an empty pipe goes back to its core for reuse. The
//! kernel owns the pages until the peer has received them.
//! What never happens: a page is shared that was read from the disk after the mapping was made.
//! What it does not detect: writes into a page through the page cache, even while the page waits
//! for the peer. The owner of the file must handle those, with [`super::File::detach`] for its own
//! writes and [`super::OpenWatch`] for those of others.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use super::{PAGE_BYTES, real};
use crate::core::{self, Core};
use crate::sync::{Lock, LockKind};
use crate::sys::pipe::Pipe;
use crate::sys::real::{check, counted};

/// Parts that are shared at once.
pub const PARTS_MAX: usize = 16;

static WHOLE: LockKind = LockKind::new("shared pages");

/// Pages of a part of a file that have been in the page cache ever since this was made.
#[derive(Debug)]
pub struct StablePages {
    /// The address of the mapping, which begins with the page of the first byte.
    address: usize,
    mapped_bytes: usize,
    /// Bytes from there to the first byte.
    before: usize,
    len: usize,
    /// No page has left the cache. Locked while pages are put into a pipe, because that maps a page
    /// that had left again.
    whole: Lock<bool>,
}

/// Why pages were not shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotShared {
    /// One of them has left the page cache: its content may differ from what was verified.
    Gone,
    /// There is no pipe, or none that is large enough: this core or the user has reached its limit.
    NoPipe,
}

/// References to pages of a file, or to those that a socket has received, in a pipe on their way to
/// a socket.
pub struct SharedPages {
    core: Rc<Core>,
    /// `None` if there is none yet, or once it has been returned.
    pipe: Option<Pipe>,
    /// Bytes in the pipe.
    piped: usize,
    /// What follows them.
    rest: Option<Rest>,
    is_received: bool,
}

/// A part of a file that no pipe has yet. If a socket takes all of it at once, it needs none.
struct Rest {
    file: Arc<real::Handle>,
    offset: u64,
    /// At least 1.
    len: usize,
}

impl fmt::Debug for SharedPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPages").field("left", &self.left()).finish_non_exhaustive()
    }
}

impl StablePages {
    /// Reads pages that are not in the page cache, however long that takes.
    pub(super) fn new(file: &File, offset: u64, len: usize) -> io::Result<StablePages> {
        let before = (offset % PAGE_BYTES as u64) as usize;
        let wanted = (before + len).next_multiple_of(PAGE_BYTES);
        let mapped_bytes = wanted + PAGE_BYTES;
        assert!(before < PAGE_BYTES && before + len <= wanted, "the part is in its pages");
        let from = libc::off_t::try_from(offset - before as u64).map_err(io::Error::other)?;
        let (fd, none) = (file.as_raw_fd(), ptr::null_mut());
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address =
            unsafe { libc::mmap(none, mapped_bytes, libc::PROT_READ, libc::MAP_SHARED, fd, from) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        assert!((address as usize).is_multiple_of(PAGE_BYTES), "a mapping begins with a page");
        let whole = Lock::new(&WHOLE, true);
        let pages = StablePages { address: address as usize, mapped_bytes, before, len, whole };
        // The last page is a guard. The kernel may merge adjacent mappings, and then a fault in one
        // would map pages of the other.
        // SAFETY: the last page of our own mapping.
        check(unsafe { libc::mprotect(address.byte_add(wanted), PAGE_BYTES, libc::PROT_NONE) })?;
        // SAFETY: a part of our own mapping.
        check(unsafe { libc::madvise(address, wanted, libc::MADV_POPULATE_READ) })?;
        Ok(pages)
    }

    /// Shares these parts, as many whole ones from the first on as fit into one pipe.
    ///
    /// # Errors
    /// A page has left the cache, and others may follow: map the part again. Or there is no pipe:
    /// copy.
    ///
    /// # Panics
    /// When there are more than [`PARTS_MAX`], or one extends beyond the end.
    pub async fn share(&self, parts: &[Range<usize>]) -> Result<SharedPages, NotShared> {
        core::spend().await; // lets others run if all pages are in the cache
        let core = core::current();
        let pipe = core.pipes.borrow_mut().take(&core.world).ok_or(NotShared::NoPipe)?;
        match self.fill(&pipe, parts) {
            Ok(piped) => {
                let pipe = Some(pipe);
                Ok(SharedPages { core, pipe, piped, rest: None, is_received: false })
            }
            Err(error) => {
                // It may contain anything.
                core.pipes.borrow_mut().give_back(pipe, false);
                Err(error)
            }
        }
    }

    fn fill(&self, pipe: &Pipe, parts: &[Range<usize>]) -> Result<usize, NotShared> {
        assert!(parts.len() <= PARTS_MAX, "parts that are shared at once");
        let Pipe::Real { write, .. } = pipe else { return Err(NotShared::NoPipe) };
        let mut slices = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; PARTS_MAX];
        let (mut count, mut slots, mut bytes) = (0, 0, 0);
        for part in parts {
            assert!(part.start <= part.end && part.end <= self.len, "a part of what is mapped");
            let from = self.before + part.start;
            slots += (from + part.len()).div_ceil(PAGE_BYTES) - from / PAGE_BYTES;
            if slots > pipe.slots() {
                break;
            }
            let iov_base = (self.address + from) as *mut _;
            slices[count] = libc::iovec { iov_base, iov_len: part.len() };
            count += 1;
            bytes += part.len();
        }
        assert!(bytes <= pipe.bytes(), "a pipe takes whole parts");
        if bytes == 0 {
            return Err(NotShared::NoPipe);
        }
        let mut whole = self.whole.lock().expect("sharing does not panic while it holds the lock");
        *whole = *whole && self.are_cached(&parts[..count]);
        if *whole {
            let (into, before) = (write.as_raw_fd(), faults());
            // SAFETY: `count` slices of our mapping, which outlives the call; the kernel only takes
            // references.
            let taken =
                unsafe { libc::vmsplice(into, slices.as_ptr(), count, libc::SPLICE_F_NONBLOCK) };
            // Fewer bytes: the file has become shorter.
            *whole = faults() == before && usize::try_from(taken) == Ok(bytes);
        }
        if *whole { Ok(bytes) } else { Err(NotShared::Gone) }
    }

    /// Whether all pages from the first part to the last are in the page cache. The call would wait
    /// for a missing page.
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
            let result = unsafe { libc::mincore(from, count * PAGE_BYTES, cached.as_mut_ptr()) };
            if result != 0 || cached[..count].iter().any(|state| state & 1 == 0) {
                return false;
            }
            page += count;
        }
        true
    }
}

impl Drop for StablePages {
    fn drop(&mut self) {
        // SAFETY: our own mapping; shared pages have their own references.
        unsafe { libc::munmap(self.address as *mut _, self.mapped_bytes) };
    }
}

/// Page faults of this thread so far, including those in system calls.
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
    /// Whether a socket has received them: they take memory until they have been sent.
    pub fn is_received(&self) -> bool {
        self.is_received
    }

    /// Bytes that remain to be sent.
    #[must_use]
    pub fn left(&self) -> usize {
        self.piped + self.rest.as_ref().map_or(0, |rest| rest.len)
    }

    /// Reads one page out of the pipe.
    fn read_page(&self) -> [u8; PAGE_BYTES] {
        let mut page = [0; PAGE_BYTES];
        if let Some(Pipe::Real { read, .. }) = &self.pipe {
            // SAFETY: pointer and length describe `page`.
            unsafe { libc::read(read.as_raw_fd(), page.as_mut_ptr().cast(), page.len()) };
        }
        page
    }

    /// None yet, and how many bytes there is room for. `None` if there is no pipe: this core or the
    /// user has reached its limit.
    pub(crate) fn room(core: &Rc<Core>) -> Option<(SharedPages, usize)> {
        let pages = SharedPages::empty(core, true)?;
        let bytes = pages.room_at(0);
        Some((pages, bytes))
    }

    /// None yet, from a socket if `is_received`, otherwise from a file.
    pub(super) fn empty(core: &Rc<Core>, is_received: bool) -> Option<SharedPages> {
        let pipe = core.pipes.borrow_mut().take(&core.world)?;
        let (core, pipe) = (Rc::clone(core), Some(pipe));
        Some(SharedPages { core, pipe, piped: 0, rest: None, is_received })
    }

    /// A part of a file, without a pipe as long as it needs none.
    pub(super) fn direct(
        core: Rc<Core>,
        file: &Arc<real::Handle>,
        offset: u64,
        len: usize,
    ) -> SharedPages {
        let rest = (len > 0).then(|| Rest { file: Arc::clone(file), offset, len });
        SharedPages { core, pipe: None, piped: 0, rest, is_received: false }
    }

    /// How many bytes of a file from `offset` on there is room for: each page takes a place.
    pub(super) fn room_at(&self, offset: u64) -> usize {
        let before = (offset % PAGE_BYTES as u64) as usize;
        self.pipe.as_ref().map_or(0, |pipe| pipe.bytes() - before)
    }

    /// Takes up to so many bytes of a file.
    pub(super) fn splice_file(&mut self, file: &File, offset: u64, len: usize) -> io::Result<()> {
        let Some(Pipe::Real { write, .. }) = &self.pipe else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        assert!(self.piped == 0 && !self.is_received, "an empty pipe is filled");
        let mut offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        let (from, into, none) = (file.as_raw_fd(), write.as_raw_fd(), ptr::null_mut());
        let flags = libc::SPLICE_F_NONBLOCK;
        // SAFETY: an offset that outlives the call; both descriptors are open.
        let taken =
            counted(|| unsafe { libc::splice(from, &raw mut offset, into, none, len, flags) })?;
        if taken == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        assert!(taken <= len, "a file gives no more");
        self.piped = taken;
        Ok(())
    }

    /// Takes up to so many bytes that the socket has received. Called once.
    pub(crate) fn splice_from(&mut self, socket: RawFd, bytes_max: usize) -> io::Result<usize> {
        let Some(pipe) = self.pipe.as_mut() else { return Ok(0) };
        assert!(self.piped == 0 && self.is_received, "a pipe is filled once");
        self.piped = self.core.world.recv_into(socket, pipe, bytes_max)?;
        assert!(self.piped <= bytes_max, "the socket gives no more");
        Ok(self.piped)
    }

    /// Sends as much as the socket accepts. `more`: more data follows, and an incomplete packet may
    /// wait for it.
    ///
    /// # Errors
    /// As a write, and `UnexpectedEof` if the file has become shorter.
    pub(crate) fn splice_to(&mut self, socket: RawFd, more: bool) -> io::Result<usize> {
        if self.piped == 0 && self.rest.is_some() {
            if more || self.pipe.is_some() {
                self.hold_rest()?;
            }
            if self.piped == 0 {
                let sent = self.send_rest(socket);
                // The pages stay in memory while they wait for the peer.
                self.hold_rest()?;
                return sent;
            }
        }
        let Some(pipe) = self.pipe.as_mut().filter(|_| self.piped > 0) else { return Ok(0) };
        let sent = self.core.world.send_from(socket, pipe, self.piped, more)?;
        assert!(sent <= self.piped, "what was sent was in the pipe");
        self.piped -= sent;
        Ok(sent)
    }

    /// Puts as much of the rest into a pipe as it takes. Without a pipe the rest stays where it is.
    fn hold_rest(&mut self) -> io::Result<()> {
        let Some(rest) = self.rest.take() else { return Ok(()) };
        if self.pipe.is_none() {
            self.pipe = self.core.pipes.borrow_mut().take(&self.core.world);
        }
        if self.pipe.is_some() {
            let len = rest.len.min(self.room_at(rest.offset));
            self.splice_file(&rest.file, rest.offset, len)?;
        }
        self.rest = rest.after(self.piped);
        Ok(())
    }

    /// Sends as much of the rest as the socket accepts.
    fn send_rest(&mut self, socket: RawFd) -> io::Result<usize> {
        let Some(rest) = self.rest.take() else { return Ok(0) };
        let offset = libc::off_t::try_from(rest.offset).map_err(io::Error::other)?;
        let (from, len) = (rest.file.as_raw_fd(), rest.len);
        let sent = counted(|| {
            let mut offset = offset;
            // SAFETY: an offset that outlives the call; both descriptors are open.
            unsafe { libc::sendfile(socket, from, &raw mut offset, len) }
        });
        let sent_bytes = *sent.as_ref().unwrap_or(&0);
        assert!(sent_bytes <= len, "a file gives no more");
        self.rest = rest.after(sent_bytes);
        match sent {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            sent => sent,
        }
    }
}

impl Rest {
    /// What follows the first `len` bytes.
    fn after(self, len: usize) -> Option<Rest> {
        assert!(len <= self.len, "a part of the rest");
        let (offset, left) = (self.offset + len as u64, self.len - len);
        (left > 0).then_some(Rest { offset, len: left, ..self })
    }
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            self.core.pipes.borrow_mut().give_back(pipe, self.piped == 0);
        }
    }
}

/// Checks with a temporary file that pages of files in this directory can be shared and detached.
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
    let shared = pages.share(&part).await;
    let shared =
        shared.map_err(|_| "pages of a file cannot be put into a pipe (vmsplice)".to_owned())?;
    real::detach(&file, 0, PAGE_BYTES as u64)
        .map_err(|error| wrong("pages cannot be detached (FALLOC_FL_ZERO_RANGE)", &error))?;
    write(b'b')?;
    if shared.read_page() != [b'a'; PAGE_BYTES] {
        return Err("a write changes pages that are being shared there".to_owned());
    }
    if pages.share(&part).await.err() != Some(NotShared::Gone) {
        return Err("this kernel does not show when a page has left the page cache".to_owned());
    }
    Ok(())
}
