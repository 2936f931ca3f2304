//! The preloaded library (`libplimsoll_boost.so`): `select()` and `poll()` that cost the same
//! however many silent descriptors they are asked about, for programs that are not to be rebuilt.
//!
//! What the modified kernel did in 1998, in user space: each thread has a persistent epoll set. A
//! wait tells it what has changed since the last one (by words of the bitmaps for select, by
//! position in the array for poll), sleeps on it, and asks the kernel by one small plain poll about
//! the descriptors that epoll named, so that every answer is the kernel's own.
//!
//! ```text
//! exports   poll, ppoll, select, pselect and their _chk forms
//! follow    close, dup*, fcntl, socket, accept*, pipe*: what may put a new file under a number
//! front     the differences of arrays and of bitmaps; the mapping between select and poll
//! set       what the epoll set holds, and how it is brought to what is wanted
//! wait      hints, probes, sleeping, the audit
//! thread    the memory and the life of a thread's set
//! changes   which descriptors got a new file: a generation for each, and a log of the last ones
//! ```
//!
//! What it promises: results, `errno` and sets as of the original call. What it cannot do safely it
//! leaves to the original ([`real`]), counted ([`stats`]). A close that it cannot see (inside libc,
//! by a raw system call) does not hang the program: no wait sleeps longer than
//! [`limits::AUDIT_EVERY_NS`] without one plain poll of everything, which is held against what
//! epoll said, nor does a busy thread go without one for long; a difference ends it for the thread.
//!
//! What never happens: an allocation (the memory of a thread is one mapping of fixed size); a
//! panic; a lock; an epoll set shared by two processes (a set belongs to the process that made it);
//! anything touched in a signal handler that has interrupted a wait (the inner call is plain).
//!
//! Why `unsafe`: it takes the place of functions of the C library, so it is given raw pointers and
//! calls raw functions; that is all in [`exports`], [`follow`], [`real`], [`sys`] and [`thread`].
//! Functions that sleep are `C-unwind` and hold nothing to be dropped, for a cancelled thread is
//! unwound through them.
//!
//! On 64-bit Linux with glibc there are no time64 forms: `time_t` has 64 bits in the only ones.

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    target_pointer_width = "64",
    target_endian = "little"
)))]
compile_error!("interpose is written for 64-bit little-endian Linux with glibc");

mod changes;
pub mod exports;
pub mod follow;
mod front;
mod limits;
mod own;
mod real;
mod set;
mod stats;
mod sys;
mod thread;
mod time;
mod wait;
