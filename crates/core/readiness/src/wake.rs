//! Waking a sleeping `wait` from another thread.
//!
//! A flag says that a wake is pending, so that many wakes cost one write; an eventfd ends the sleep
//! in the kernel. The waiting side clears the flag *after* it has taken the eventfd's event. A wake
//! in between finds the flag set and writes nothing; the data written before that wake are still
//! visible to the thread that returns from `wait`, because clearing is a read-modify-write that
//! reads from it. In the opposite order the flag could stay set with the eventfd drained, and no
//! later wake would get through.

use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Kind, OpenError, sys};

/// Makes a [`crate::Poller::wait`] return soon, from any thread.
///
/// Wakes coalesce and are never delivered as events. A wake that finds no wait in progress ends the
/// next one. What was written before `wake()` is visible after that `wait` returns. A waker may
/// outlive its poller.
#[derive(Clone)]
pub struct Waker {
    shared: Arc<Shared>,
}

struct Shared {
    /// A wake has not yet been taken by a wait.
    pending: AtomicBool,
    /// Absent with the simulated backend, which never sleeps in the kernel.
    eventfd: Option<OwnedFd>,
}

impl Waker {
    /// Makes the poller's `wait` return soon.
    pub fn wake(&self) {
        let first = !self.shared.pending.swap(true, Ordering::AcqRel);
        if first && let Some(eventfd) = &self.shared.eventfd {
            sys::eventfd_add_one(eventfd);
        }
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pending = self.shared.pending.load(Ordering::Relaxed);
        f.debug_struct("Waker").field("pending", &pending).finish_non_exhaustive()
    }
}

/// The poller's end. One per poller.
pub(crate) struct WakeEnd {
    shared: Arc<Shared>,
}

impl WakeEnd {
    /// With an eventfd, for a backend that sleeps in the kernel.
    pub(crate) fn with_eventfd(kind: Kind) -> Result<WakeEnd, OpenError> {
        let eventfd = sys::eventfd().map_err(|error| OpenError::of_call(kind, "eventfd", error))?;
        Ok(WakeEnd::from(Some(eventfd)))
    }

    /// Without one, for a backend that reads the flag itself.
    pub(crate) fn flag_only() -> WakeEnd {
        WakeEnd::from(None)
    }

    fn from(eventfd: Option<OwnedFd>) -> WakeEnd {
        WakeEnd { shared: Arc::new(Shared { pending: AtomicBool::new(false), eventfd }) }
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker { shared: Arc::clone(&self.shared) }
    }

    /// The descriptor to watch.
    pub(crate) fn fd(&self) -> RawFd {
        self.shared.eventfd.as_ref().expect("a sleeping backend has an eventfd").as_raw_fd()
    }

    /// Takes a wake seen by an edge-triggered watch. The eventfd keeps its count (a write makes a
    /// new edge whatever the count is), which saves a read per wake.
    pub(crate) fn take_edge(&self) -> bool {
        self.shared.pending.swap(false, Ordering::AcqRel)
    }

    /// Takes a wake seen by a level-triggered watch: the eventfd is drained first.
    pub(crate) fn take_level(&self) {
        if let Some(eventfd) = &self.shared.eventfd {
            sys::eventfd_drain(eventfd);
        }
        self.shared.pending.swap(false, Ordering::AcqRel);
    }
}
