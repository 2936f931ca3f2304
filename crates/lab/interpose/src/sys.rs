//! Raw system calls: the C library's functions may be replaced by ours.

use libc::{c_int, c_long, epoll_event, pollfd};

/// Zero time.
const NOW: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

/// Bytes of the kernel's signal mask.
const MASK_BYTES: usize = 8;

pub(crate) fn errno() -> c_int {
    // SAFETY: the C library returns the address of this thread's errno.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno }
}

/// 0, or the error.
fn error_of(returned: c_long) -> c_int {
    if returned < 0 { errno() } else { 0 }
}

/// A new epoll instance at the lowest free number from `least` on; negative if there is none.
pub(crate) fn epoll_high(least: u64) -> c_int {
    // SAFETY: integers only.
    let low = unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) };
    if low < 0 {
        return -1;
    }
    // SAFETY: integers only; `low` is ours and not visible to the program.
    let high = unsafe { libc::syscall(libc::SYS_fcntl, low, libc::F_DUPFD_CLOEXEC, least) };
    close(low as c_int);
    high as c_int
}

pub(crate) fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, bits: u32, data: u64) -> c_int {
    let mut event = epoll_event { events: bits, u64: data };
    // SAFETY: the event lives on this frame for the length of the call.
    error_of(unsafe { libc::syscall(libc::SYS_epoll_ctl, epoll, operation, fd, &raw mut event) })
}

/// What is ready in the set now; negative if it is not (or no longer) an epoll instance.
pub(crate) fn epoll_take(epoll: c_int, events: &mut [epoll_event]) -> c_int {
    let (room, max) = (events.as_mut_ptr(), events.len() as c_int);
    let mask = std::ptr::null::<libc::sigset_t>();
    // SAFETY: pointer and length are of one exclusive slice; a null mask leaves the mask alone.
    let found =
        unsafe { libc::syscall(libc::SYS_epoll_pwait, epoll, room, max, 0, mask, MASK_BYTES) };
    found as c_int
}

/// The kernel's plain poll, without sleeping.
pub(crate) fn poll_now(fds: &mut [pollfd]) -> c_int {
    let (room, count) = (fds.as_mut_ptr(), fds.len());
    let mut now = NOW;
    let mask = std::ptr::null::<libc::sigset_t>();
    // SAFETY: pointer and length are of one exclusive slice; the time outlives the call.
    let found =
        unsafe { libc::syscall(libc::SYS_ppoll, room, count, &raw mut now, mask, MASK_BYTES) };
    found as c_int
}

pub(crate) fn close(fd: c_int) {
    // SAFETY: an integer; the caller owns the number.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

pub(crate) fn process() -> c_int {
    // SAFETY: takes nothing, and always succeeds.
    unsafe { libc::syscall(libc::SYS_getpid) as c_int }
}

/// The soft limit of descriptors.
pub(crate) fn descriptor_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: one rlimit on this frame.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// The same as of the kernel's last tick: up to a few milliseconds old, but cheap.
pub(crate) fn now_coarse() -> u64 {
    clock(libc::CLOCK_MONOTONIC_COARSE)
}

fn clock(which: libc::clockid_t) -> u64 {
    let mut time = NOW;
    // SAFETY: one timespec on this frame; the clock exists on every Linux.
    unsafe { libc::clock_gettime(which, &raw mut time) };
    (time.tv_sec as u64).wrapping_mul(crate::time::SECOND_NS).wrapping_add(time.tv_nsec as u64)
}
