//! Calls that may give a descriptor number a new file, or close it. Each change is noted, so that
//! no thread's set mistakes the old file for the new one.
//!
//! Each function wraps the original. Before a number loses its file, this thread's set removes it;
//! afterwards the change is noted. Our own descriptors are hidden from the program: closing one is
//! `EBADF`.
//!
//! `open` need not be noted: its number was closed before, and that was noted. Calls that create
//! sockets and pipes are noted anyway, because a number whose close was not seen (by `fclose`, by a
//! raw system call) is mostly reused by one of these.

use libc::{c_int, c_uint, sigset_t, sockaddr, socklen_t};

use crate::{changes, own, real, sys, thread};

/// Notes that a number has a new file. If the number was ours, the program has taken it.
fn made(fd: c_int) -> c_int {
    if fd >= 0 {
        if own::is(fd) {
            own::forget(fd);
        }
        changes::note(fd);
    }
    fd
}

/// # Safety
/// `pair` has two descriptors if `made` says so.
unsafe fn made_pair(returned: c_int, pair: *const c_int) -> c_int {
    if returned == 0 && !pair.is_null() {
        // SAFETY: the original has written both.
        unsafe {
            made(*pair);
            made(*pair.add(1));
        }
    }
    returned
}

/// `close(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn close(fd: c_int) -> c_int {
    if own::is(fd) {
        sys::set_errno(libc::EBADF);
        return -1;
    }
    thread::about_to_lose(fd);
    // SAFETY: an integer.
    let returned = unsafe { real::close(fd) };
    changes::note(fd);
    returned
}

/// The name that some libraries use.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn __close(fd: c_int) -> c_int {
    close(fd)
}

/// `close_range(2)`: our descriptors in the range are lost.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: integers.
    let returned = unsafe { real::close_range(first, last, flags) };
    if returned == 0 && flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        own::forget_range(first, last);
        changes::note_all_from(first as usize);
    }
    returned
}

/// `closefrom(3)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn closefrom(first: c_int) {
    // SAFETY: an integer. The original returns nothing, and the value read as its result is not
    // used.
    unsafe { real::closefrom(first) };
    let first = first.max(0) as c_uint;
    own::forget_range(first, c_uint::MAX);
    changes::note_all_from(first as usize);
}

/// `dup2(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    if old != new {
        thread::about_to_lose(new);
    }
    // SAFETY: integers.
    let returned = unsafe { real::dup2(old, new) };
    if planted::is(planted::Bug::BoostStaleDup) {
        return returned;
    }
    replaced(returned, new)
}

/// `dup3(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if old != new {
        thread::about_to_lose(new);
    }
    // SAFETY: integers.
    replaced(unsafe { real::dup3(old, new, flags) }, new)
}

/// Notes the change whether it succeeded or not, because our set no longer has the number.
fn replaced(returned: c_int, new: c_int) -> c_int {
    if returned >= 0 {
        made(new);
    } else {
        changes::note(new);
    }
    returned
}

/// Notes the descriptor that an fcntl has returned, if its command makes one.
fn made_by(command: c_int, returned: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => made(returned),
        _ => returned,
    }
}

/// `fcntl(2)`. The third argument is passed on whether it is present or not.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the same contract.
    made_by(command, unsafe { real::fcntl(fd, command, argument) })
}

/// `fcntl(2)` as programs with large files call it.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the same contract.
    made_by(command, unsafe { real::fcntl64(fd, command, argument) })
}

/// `socketpair(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    pair: *mut c_int,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { made_pair(real::socketpair(domain, kind, protocol, pair), pair) }
}

/// `pipe(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pipe(pair: *mut c_int) -> c_int {
    // SAFETY: the same contract.
    unsafe { made_pair(real::pipe(pair), pair) }
}

/// `pipe2(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pipe2(pair: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: the same contract.
    unsafe { made_pair(real::pipe2(pair, flags), pair) }
}

/// Functions that return a new descriptor: each calls the original and notes the descriptor.
macro_rules! makers {
    ($($(#[$doc:meta])+ fn $name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            $(#[$doc])+
            ///
            /// # Safety
            /// As the C library's.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: the same contract.
                made(unsafe { real::$name($($argument),*) })
            }
        )*
    };
}

makers! {
    /// `dup(2)`.
    fn dup(fd: c_int);
    /// `socket(2)`.
    fn socket(domain: c_int, kind: c_int, protocol: c_int);
    /// `accept(2)`.
    fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t);
    /// `accept4(2)`.
    fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int);
    /// `epoll_create(2)`.
    fn epoll_create(size: c_int);
    /// `epoll_create1(2)`.
    fn epoll_create1(flags: c_int);
    /// `eventfd(2)`.
    fn eventfd(count: c_uint, flags: c_int);
    /// `timerfd_create(2)`.
    fn timerfd_create(clock: c_int, flags: c_int);
    /// `signalfd(2)`. With an old descriptor it changes that one's mask; noting that is harmless.
    fn signalfd(fd: c_int, mask: *const sigset_t, flags: c_int);
    /// `inotify_init1(2)`.
    fn inotify_init1(flags: c_int);
}
