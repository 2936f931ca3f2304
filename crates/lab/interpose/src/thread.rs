//! The memory of a thread's set, and its lifetime: allocated at the thread's first boosted call,
//! reset in a child process, freed with the thread.
//!
//! One mapping of fixed size whose pages are allocated on the first write; all zeros is an empty
//! set. A call takes it ([`enter`]) and gives it back ([`leave`]); a signal handler that runs in
//! between finds it taken, and its call is plain.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use libc::{c_int, c_void, epoll_event, pollfd};

use crate::front::{Bitmaps, Position};
use crate::limits::{CHURN_CALLS, CHURN_LEAST, FDS_MAX, POSITIONS_MAX, REST_CALLS, REST_CALLS_MAX};
use crate::limits::{UNHELD_MAX, WORDS};
use crate::own::Own;
use crate::{changes, sys};

/// The kind of call that the set is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    None = 0,
    Poll,
    Select,
}

/// The state of a descriptor in epoll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Not requested.
    Absent = 0,
    /// In the set.
    Held,
    /// Refused with `EPERM`: a file whose readiness never changes.
    Constant,
    /// Refused with `EBADF`: not an open descriptor.
    Closed,
}

/// What is known about a descriptor.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Entry {
    pub(crate) state: State,
    pub(crate) is_dirty: bool,
    pub(crate) is_named: bool,
    /// The events requested last.
    pub(crate) mask: u16,
    pub(crate) serial: u32,
    pub(crate) generation: u32,
    /// poll: 1 + the first of the positions with this descriptor; 0 for none.
    pub(crate) head: u32,
}

impl Entry {
    pub(crate) fn is_held(self) -> bool {
        self.state == State::Held
    }
}

/// The state of a thread. `0 <= held <= highest <= FDS_MAX`; an entry is in `dirty` exactly if its
/// flag is set; `unheld` has the descriptors of the current call that epoll refuses.
#[repr(C)]
pub(crate) struct Region {
    pub(crate) own: Own,
    pub(crate) process: c_int,
    pub(crate) kind: Kind,
    pub(crate) off: bool,
    pub(crate) churn: Churn,
    pub(crate) cursor: u64,
    pub(crate) audited: u64,
    pub(crate) slept: u64,
    pub(crate) serial: u32,
    pub(crate) changed: usize,
    pub(crate) highest: usize,
    pub(crate) held: usize,
    pub(crate) len: usize,
    pub(crate) words_len: usize,
    pub(crate) dirty_len: usize,
    pub(crate) unheld_len: usize,
    pub(crate) unheld: [u32; UNHELD_MAX],
    pub(crate) entries: [Entry; FDS_MAX],
    pub(crate) dirty: [u32; FDS_MAX],
    pub(crate) last: [Position; POSITIONS_MAX],
    pub(crate) next: [u32; POSITIONS_MAX],
    pub(crate) words: Bitmaps,
    pub(crate) words_before: [u64; WORDS],
    pub(crate) events: [epoll_event; FDS_MAX],
    pub(crate) probes: [pollfd; FDS_MAX + UNHELD_MAX],
}

impl Region {
    /// Resets to an empty set without a descriptor.
    pub(crate) fn empty(&mut self) {
        let (churn, off, region) = (self.churn, self.off, std::ptr::from_mut(self));
        self.own.close();
        // SAFETY: the mapping is private and ours alone; its pages then read as zeros, which is an
        // empty set.
        unsafe { libc::madvise(region.cast(), size_of::<Region>(), libc::MADV_DONTNEED) };
        self.churn = churn;
        self.off = off;
        self.process = sys::process();
        self.cursor = changes::since(0).0;
        self.audited = sys::now_coarse();
    }
}

/// Calls that change much of the set cost more here than in the kernel: after several in a row the
/// next ones are plain, for longer each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Churn {
    rest: u32,
    last_rest: u32,
    calls: u32,
    calm: u32,
}

impl Churn {
    /// Whether this call must be plain.
    pub(crate) fn rests(&mut self) -> bool {
        let rests = self.rest > 0;
        self.rest = self.rest.saturating_sub(1);
        rests
    }

    /// Records that a call with `requested` descriptors has changed `changed` of them.
    pub(crate) fn note(&mut self, requested: usize, changed: usize) {
        if changed < CHURN_LEAST || changed <= requested / 4 {
            self.calls = 0;
            self.calm = self.calm.saturating_add(1);
            if self.calm >= REST_CALLS {
                self.last_rest = 0;
            }
            return;
        }
        self.calm = 0;
        self.calls += 1;
        if self.calls >= CHURN_CALLS {
            self.take_a_rest();
        }
    }

    /// Makes the next calls plain.
    pub(crate) fn take_a_rest(&mut self) {
        self.calls = 0;
        self.rest = self.last_rest.saturating_mul(2).clamp(REST_CALLS, REST_CALLS_MAX);
        self.last_rest = self.rest;
    }
}

struct Here {
    region: Cell<*mut Region>,
    /// A call uses the region.
    busy: Cell<bool>,
    refused: Cell<bool>,
}

thread_local! {
    static HERE: Here = const {
        Here {
            region: Cell::new(std::ptr::null_mut()),
            busy: Cell::new(false),
            refused: Cell::new(false),
        }
    };
}

/// Takes the thread's set; `None` if this call must be plain.
pub(crate) fn enter() -> Option<&'static mut Region> {
    HERE.with(|here| {
        if here.busy.get() || here.refused.get() {
            return None;
        }
        here.busy.set(true);
        compiler_fence(Ordering::SeqCst);
        if here.region.get().is_null() {
            here.region.set(map());
        }
        // SAFETY: null, or the thread's own mapping, with no other reference: `busy` was false.
        let region = unsafe { here.region.get().as_mut() };
        let usable = region.and_then(|region| {
            if !is_of_this_process(region) {
                region.empty();
            }
            (!region.off && !region.churn.rests()).then_some(region)
        });
        if usable.is_none() {
            here.refused.set(here.region.get().is_null());
            leave();
        }
        usable
    })
}

/// Gives the set back.
pub(crate) fn leave() {
    compiler_fence(Ordering::SeqCst);
    HERE.with(|here| here.busy.set(false));
}

/// Removes a descriptor that this thread is about to close or replace from its epoll set, which
/// would otherwise keep a file that remains open under another number. Changes only the kernel's
/// side, because this may have interrupted a wait of this thread; the generation corrects the entry
/// later.
pub(crate) fn about_to_lose(fd: c_int) {
    let region = HERE.with(|here| here.region.get());
    let Ok(at) = usize::try_from(fd) else { return };
    if region.is_null() || at >= FDS_MAX {
        return;
    }
    // SAFETY: the thread's own mapping; single fields are read, without a reference to the whole.
    let (own, process, held) = unsafe {
        let entry = &raw const (*region).entries;
        ((*region).own, (*region).process, (*entry.cast::<Entry>().add(at)).is_held())
    };
    // A child of vfork shares the memory and the set with its parent, but not the descriptors.
    if held && own.is_ours() && process == sys::process() {
        let errno = sys::errno();
        sys::epoll_ctl(own.fd, libc::EPOLL_CTL_DEL, fd, 0, 0);
        sys::set_errno(errno);
    }
}

/// A set belongs to the process that made it: a child shares the descriptor with its parent, and
/// must open its own.
fn is_of_this_process(region: &Region) -> bool {
    region.process != 0
        && (planted::is(planted::Bug::BoostForkShares) || region.process == sys::process())
}

static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Called when the library is loaded.
pub(crate) fn prepare() {
    let mut key = 0;
    // SAFETY: the key lives on this frame; the destructor is a function of this library, which is
    // never unloaded.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } == 0 {
        KEY.store(key, Ordering::Release);
    }
}

fn map() -> *mut Region {
    let key = KEY.load(Ordering::Acquire);
    if key == u32::MAX {
        return std::ptr::null_mut();
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address chosen by the kernel; it replaces nothing.
    let memory =
        unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Region>(), protection, flags, -1, 0) };
    if memory == libc::MAP_FAILED {
        return std::ptr::null_mut();
    }
    // SAFETY: the key exists; only our destructor uses the value.
    unsafe { libc::pthread_setspecific(key, memory) };
    memory.cast()
}

unsafe extern "C" fn thread_ends(memory: *mut c_void) {
    HERE.with(|here| {
        here.region.set(std::ptr::null_mut());
        here.busy.set(false);
    });
    let region: *mut Region = memory.cast();
    // SAFETY: the value that `map` has set: the thread's own mapping, which is no longer used.
    unsafe {
        if is_of_this_process(&*region) {
            (*region).own.close();
        }
        libc::munmap(memory, size_of::<Region>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn churn_is_followed_by_growing_rests() {
        let mut churn = Churn::default();
        let mut plain = 0;
        for _ in 0..CHURN_CALLS {
            plain += u32::from(churn.rests());
            churn.note(100, 100);
        }
        assert_eq!(plain, 0);
        let first = (0..10_000).take_while(|_| churn.rests()).count() as u32;
        assert_eq!(first, REST_CALLS);
        churn.take_a_rest();
        assert_eq!((0..10_000).take_while(|_| churn.rests()).count() as u32, 2 * REST_CALLS);
        for _ in 0..40 {
            churn.take_a_rest();
        }
        assert_eq!(churn.rest, REST_CALLS_MAX);
    }

    #[test]
    fn few_changes_are_not_churn_and_calm_resets_the_rest() {
        let mut churn = Churn::default();
        churn.take_a_rest();
        while churn.rests() {}
        for _ in 0..10_000 {
            churn.note(1000, 250);
            churn.note(40, CHURN_LEAST - 1);
        }
        assert!(!churn.rests());
        churn.take_a_rest();
        assert_eq!(churn.rest, REST_CALLS);
    }

    #[test]
    fn a_call_within_a_call_is_plain() {
        prepare();
        let region = enter().expect("there is memory");
        assert!(enter().is_none());
        assert_eq!((region.kind, region.len, region.held), (Kind::None, 0, 0));
        leave();
        assert!(enter().is_some());
        leave();
    }
}
