//! Which descriptors are ours: the program does not know them, and a loop that closes everything
//! must not take them, nor may its `dup2` onto one go unnoticed.

use std::sync::atomic::{AtomicI32, Ordering};

use libc::c_int;

use crate::limits::{OWN_FD_LEAST, SETS_MAX};
use crate::sys;

/// The descriptor, or 0 for a free place: ours are never that low.
static OWN: [AtomicI32; SETS_MAX] = [const { AtomicI32::new(0) }; SETS_MAX];

/// None of ours is lower: most numbers that a program closes are told apart by this alone.
static LOWEST: AtomicI32 = AtomicI32::new(c_int::MAX);

/// A descriptor of ours and its place on the books.
#[derive(Clone, Copy)]
pub(crate) struct Own {
    pub(crate) fd: c_int,
    place: usize,
}

/// An epoll instance of our own, on the books; `None` if there is no room for one.
pub(crate) fn open() -> Option<Own> {
    let least = OWN_FD_LEAST.min(sys::descriptor_limit() / 4 * 3);
    let fd = sys::epoll_high(least);
    // A low number would be one that the program expects to get itself.
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
    /// Whether nobody has taken it from us.
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

/// Whether the number is one of ours.
pub(crate) fn is(fd: c_int) -> bool {
    fd >= LOWEST.load(Ordering::Acquire)
        && OWN.iter().any(|place| place.load(Ordering::Acquire) == fd)
}

/// The number is the program's now, or gone.
pub(crate) fn forget(fd: c_int) -> bool {
    fd >= LOWEST.load(Ordering::Acquire)
        && OWN
            .iter()
            .any(|place| place.compare_exchange(fd, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok())
}

/// The program has closed a range of numbers in one call.
pub(crate) fn forget_range(first: u32, last: u32) {
    for place in &OWN {
        let fd = place.load(Ordering::Acquire);
        if fd != 0 && (first..=last).contains(&(fd as u32)) {
            forget(fd);
        }
    }
}
