//! System calls that more than one file needs, as safe functions.
//!
//! Each borrows its arguments by reference, so that no pointer outlives the call. A signal is not
//! an error here: an interrupted wait found nothing.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Longer waits are cut to this: some 136 years, which every kernel interface can express.
const WAIT_SECONDS_MAX: u64 = u32::MAX as u64;

/// A time-out for ppoll, pselect6 and epoll_pwait2.
pub(crate) fn timespec(timeout: Duration) -> libc::timespec {
    libc::timespec {
        // The name of its type is deprecated with musl.
        tv_sec: timeout.as_secs().min(WAIT_SECONDS_MAX) as _,
        tv_nsec: timeout.subsec_nanos() as libc::c_long,
    }
}

/// Turns -1 into the error of the thread's `errno`.
#[inline]
pub(crate) fn check(returned: libc::c_long) -> io::Result<usize> {
    if returned >= 0 { Ok(returned as usize) } else { Err(io::Error::last_os_error()) }
}

/// As [`check`], for calls that sleep: an interruption by a signal counts as nothing found.
#[inline]
pub(crate) fn check_wait(returned: libc::c_long) -> io::Result<usize> {
    if returned >= 0 { Ok(returned as usize) } else { interrupted_or_error() }
}

#[cold]
fn interrupted_or_error() -> io::Result<usize> {
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(0) } else { Err(error) }
}

/// Fails with `EBADF` if the number is not an open descriptor. For backends whose registration
/// makes no system call that would detect it.
pub(crate) fn check_open(fd: RawFd) -> io::Result<()> {
    // SAFETY: F_GETFD reads a flag of any number; it touches no memory.
    check(unsafe { libc::fcntl(fd, libc::F_GETFD) }.into()).map(drop)
}

/// A non-blocking eventfd with count 0.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: takes two integers; the new descriptor is not owned elsewhere.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    check(fd.into())?;
    // SAFETY: checked above to be a descriptor, fresh from the kernel.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adds one. This fails only when the count is full, and then the eventfd is readable, which is all
/// that the caller needs.
pub(crate) fn eventfd_add_one(eventfd: &OwnedFd) {
    let one: u64 = 1;
    // SAFETY: the eight bytes live on this stack frame for the length of the call.
    unsafe { libc::write(eventfd.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
}

/// Sets the count to 0. Fails only if it is 0 already.
pub(crate) fn eventfd_drain(eventfd: &OwnedFd) {
    let mut count: u64 = 0;
    // SAFETY: the eight bytes live on this stack frame for the length of the call.
    unsafe { libc::read(eventfd.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
}

/// poll(2) with a time-out in nanoseconds. Writes `revents`; returns how many are not 0.
pub(crate) fn ppoll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<usize> {
    let timeout = timeout.map(timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), |spec| &raw const *spec);
    // SAFETY: pointer and length are of one exclusive slice; the timespec outlives the call; a
    // null signal mask leaves the mask alone.
    let found = unsafe {
        libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout, std::ptr::null())
    };
    check_wait(found.into())
}

/// An epoll instance and the buffer that its waits fill.
pub(crate) struct EpollSet {
    instance: OwnedFd,
    buffer: Vec<libc::epoll_event>,
    /// epoll_pwait2 (Linux 5.11) is available; without it time-outs are rounded up to milliseconds.
    precise: bool,
}

impl EpollSet {
    pub(crate) fn new() -> io::Result<EpollSet> {
        // SAFETY: takes one flag; the new descriptor is not owned elsewhere.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        check(fd.into())?;
        // SAFETY: checked above to be a descriptor, fresh from the kernel.
        let instance = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut set = EpollSet { instance, buffer: Vec::new(), precise: true };
        set.precise = set.wait(1, Some(Duration::from_nanos(1))).is_ok();
        Ok(set)
    }

    pub(crate) fn add(&self, fd: RawFd, bits: u32, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, bits, data)
    }

    pub(crate) fn modify(&self, fd: RawFd, bits: u32, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, bits, data)
    }

    pub(crate) fn delete(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn control(&self, operation: i32, fd: RawFd, bits: u32, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: bits, u64: data };
        // SAFETY: the event lives on this stack frame for the length of the call.
        let done =
            unsafe { libc::epoll_ctl(self.instance.as_raw_fd(), operation, fd, &raw mut event) };
        check(done.into()).map(drop)
    }

    /// Sleeps until something is ready; one system call. At most `max` (>= 1) events.
    #[inline]
    pub(crate) fn wait(
        &mut self,
        max: usize,
        timeout: Option<Duration>,
    ) -> io::Result<&[libc::epoll_event]> {
        self.buffer.clear();
        if self.buffer.capacity() < max {
            self.buffer.reserve_exact(max);
        }
        let instance = self.instance.as_raw_fd();
        let room = self.buffer.as_mut_ptr();
        let max = max as libc::c_int;
        let found = match timeout {
            Some(wait) if !wait.is_zero() && self.precise => {
                let spec = timespec(wait);
                // SAFETY: the buffer has room for `max` events and the timespec outlives the call;
                // a null signal mask leaves the mask alone.
                unsafe {
                    libc::syscall(
                        libc::SYS_epoll_pwait2,
                        instance,
                        room,
                        max,
                        &raw const spec,
                        std::ptr::null::<libc::sigset_t>(),
                        0usize,
                    )
                }
            }
            _ => {
                let milliseconds = timeout.map_or(-1, |wait| {
                    let of_second = u64::from(wait.subsec_nanos().div_ceil(1_000_000));
                    let all = wait.as_secs().saturating_mul(1000).saturating_add(of_second);
                    i32::try_from(all).unwrap_or(i32::MAX)
                });
                // SAFETY: the buffer has room for `max` events.
                unsafe { libc::epoll_wait(instance, room, max, milliseconds) }.into()
            }
        };
        let found = check_wait(found)?;
        // SAFETY: the kernel has written `found <= max <= capacity` events.
        unsafe { self.buffer.set_len(found) };
        Ok(&self.buffer)
    }
}

/// How much CPU time this thread has used.
pub(crate) fn thread_cpu_time() -> Duration {
    let mut spent = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one timespec on this stack frame; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut spent) };
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

/// Raises the process's limit of descriptors as far as allowed; returns the new limit.
pub(crate) fn raise_descriptor_limit() -> io::Result<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: one rlimit on this stack frame.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }.into())?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above, read only.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }.into())?;
    Ok(limit.rlim_cur as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_epoll_pwait2_time_outs_are_rounded_up() {
        let mut set = EpollSet::new().unwrap();
        set.precise = false;
        let eventfd = eventfd().unwrap();
        set.add(eventfd.as_raw_fd(), libc::EPOLLIN as u32, 5).unwrap();
        assert!(set.wait(4, Some(Duration::from_nanos(1))).unwrap().is_empty());
        assert!(set.wait(4, Some(Duration::ZERO)).unwrap().is_empty());
        eventfd_add_one(&eventfd);
        for timeout in [Some(Duration::from_millis(1)), Some(Duration::MAX), None] {
            let found = set.wait(4, timeout).unwrap();
            assert_eq!((found.len(), { found[0].u64 }), (1, 5));
        }
        set.modify(eventfd.as_raw_fd(), libc::EPOLLIN as u32, 6).unwrap();
        assert_eq!({ set.wait(4, None).unwrap()[0].u64 }, 6);
        set.delete(eventfd.as_raw_fd()).unwrap();
        assert!(set.wait(4, Some(Duration::ZERO)).unwrap().is_empty());
    }

    #[test]
    fn the_longest_wait_is_representable() {
        let spec = timespec(Duration::MAX);
        assert_eq!((spec.tv_sec, spec.tv_nsec), (i64::from(u32::MAX), 999_999_999));
        let mut nothing = [];
        assert_eq!(ppoll(&mut nothing, Some(Duration::ZERO)).unwrap(), 0);
    }
}
