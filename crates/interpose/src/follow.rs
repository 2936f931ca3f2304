//! What may put a new file under a number, or none: the change is noted, so that no set of any
//! thread takes the old file for the new one.
//!
//! Each is the original with two things around it. Before a number loses its file, the set of this
//! thread lets go of it; afterwards the change is noted. Our own descriptors do not exist for the
//! program: to close one is `EBADF`.
//!
//! A file that is opened by `open` needs no note of its own: its number was closed before, and that
//! was noted. What creates sockets and pipes notes all the same, for a number that was closed
//! unseen (by `fclose`, by a raw system call) mostly comes back as one of these.

use libc::{c_int, c_uint, sigset_t, sockaddr, socklen_t};

use crate::{changes, own, real, sys, thread};

/// A number that was made has a new file; one of ours has been taken from us.
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

/// `close_range(2)`: ours in the range are lost.
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
    // SAFETY: an integer. The original returns nothing, and what is read as its result is not used.
    unsafe { real::closefrom(first) };
    let first = first.max(0) as c_uint;
    own::forget_range(first, c_uint::MAX);
    changes::note_all_from(first as usize);
}

/// `dup(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn dup(fd: c_int) -> c_int {
    // SAFETY: an integer.
    made(unsafe { real::dup(fd) })
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

/// Whether it worked or not: the number has been let go of.
fn replaced(returned: c_int, new: c_int) -> c_int {
    if returned >= 0 {
        made(new);
    } else {
        changes::note(new);
    }
    returned
}

/// Whether the command of an fcntl makes a descriptor.
fn makes(command: c_int) -> bool {
    command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC
}

/// `fcntl(2)`, whose third argument is passed alike whether it is there or not.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the same contract.
    let returned = unsafe { real::fcntl(fd, command, argument) };
    if makes(command) { made(returned) } else { returned }
}

/// `fcntl(2)` as programs with large files call it.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the same contract.
    let returned = unsafe { real::fcntl64(fd, command, argument) };
    if makes(command) { made(returned) } else { returned }
}

/// `socket(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: integers.
    made(unsafe { real::socket(domain, kind, protocol) })
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

/// `accept(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn accept(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the same contract.
    made(unsafe { real::accept(fd, address, length) })
}

/// `accept4(2)`.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the same contract.
    made(unsafe { real::accept4(fd, address, length, flags) })
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

/// `epoll_create(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    // SAFETY: an integer.
    made(unsafe { real::epoll_create(size) })
}

/// `epoll_create1(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: an integer.
    made(unsafe { real::epoll_create1(flags) })
}

/// `eventfd(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn eventfd(count: c_uint, flags: c_int) -> c_int {
    // SAFETY: integers.
    made(unsafe { real::eventfd(count, flags) })
}

/// `timerfd_create(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn timerfd_create(clock: c_int, flags: c_int) -> c_int {
    // SAFETY: integers.
    made(unsafe { real::timerfd_create(clock, flags) })
}

/// `signalfd(2)`; with an old descriptor it changes that one's mask, which is noted in vain.
///
/// # Safety
/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn signalfd(fd: c_int, mask: *const sigset_t, flags: c_int) -> c_int {
    // SAFETY: the same contract.
    made(unsafe { real::signalfd(fd, mask, flags) })
}

/// `inotify_init1(2)`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C-unwind" fn inotify_init1(flags: c_int) -> c_int {
    // SAFETY: integers.
    made(unsafe { real::inotify_init1(flags) })
}
