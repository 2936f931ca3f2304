//! The library's own descriptors. The program does not know them: a loop that closes everything
//! must not close them, and a `dup2` onto one must be noticed.

use std::sync::atomic::{AtomicI32, Ordering};

use libc::c_int;

use crate::limits::{OWN_FD_LEAST, SETS_MAX};
use crate::sys;

/// The descriptor, or 0 for a free place: our descriptors are never that low.
static OWN: [AtomicI32; SETS_MAX] = [const { AtomicI32::new(0) }; SETS_MAX];

/// The lowest of our descriptors: this check alone suffices for most numbers that a program closes.
static LOWEST: AtomicI32 = AtomicI32::new(c_int::MAX);

/// One of our descriptors and its place in the table.
#[derive(Clone, Copy)]
pub(crate) struct Own {
    pub(crate) fd: c_int,
    place: usize,
}

/// Opens an epoll instance and adds it to the table; `None` if there is no room.
pub(crate) fn open() -> Option<Own> {
    let least = OWN_FD_LEAST.min(sys::descriptor_limit() / 4 * 3);
    let fd = sys::epoll_high(least);
    // The program may expect to get a low number itself.
    if fd < 3 {
        return None;
    }
    LOWEST.fetch_min(fd, Ordering::AcqRel);
    let place = OWN.iter().position(|place| {
        place.compare_exchange(0, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    });
    if place.is_none() {
        sys::close(fd);
    }
    place.map(|place| Own { fd, place })
}

impl Own {
    /// Whether it still belongs to us.
    pub(crate) fn is_ours(self) -> bool {
        self.fd >= 3
            && OWN.get(self.place).is_some_and(|place| place.load(Ordering::Acquire) == self.fd)
    }

    /// Closes it, if it is still ours.
    pub(crate) fn close(self) {
        if self.is_ours() && forget(self.fd) {
            sys::close(self.fd);
        }
    }
}

/// Whether the number is in the table.
pub(crate) fn is(fd: c_int) -> bool {
    fd >= LOWEST.load(Ordering::Acquire)
        && OWN.iter().any(|place| place.load(Ordering::Acquire) == fd)
}

/// Removes a number from the table, because the program has taken or closed it.
pub(crate) fn forget(fd: c_int) -> bool {
    fd >= LOWEST.load(Ordering::Acquire)
        && OWN
            .iter()
            .any(|place| place.compare_exchange(fd, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok())
}

/// Removes a range of numbers that the program has closed in one call.
pub(crate) fn forget_range(first: u32, last: u32) {
    for place in &OWN {
        let fd = place.load(Ordering::Acquire);
        if fd != 0 && (first..=last).contains(&(fd as u32)) {
            forget(fd);
        }
    }
}
