//! The preloaded library (`libplimsoll_boost.so`): `select()` and `poll()` whose cost does not
//! depend on the number of idle descriptors, for programs that cannot be rebuilt.
//!
//! It does in user space what the modified kernel did in 1998: each thread has a persistent epoll
//! set. A wait updates the set with what has changed since the last call (by words of the bitmaps
//! for select, by position in the array for poll), sleeps on it, and then makes one small plain
//! poll of the descriptors that epoll named, so that every result is the kernel's own.
//!
//! ```text
//! exports   poll, ppoll, select, pselect and their _chk forms
//! follow    close, dup*, fcntl, socket, accept*, pipe*: calls that may give a number a new file
//! front     the differences of arrays and of bitmaps; the mapping between select and poll
//! set       what the epoll set has, and how it is updated to what is wanted
//! wait      hints, probes, sleeping, the audit
//! thread    the memory and the life of a thread's set
//! changes   which descriptors got a new file: a generation for each, and a log of the last ones
//! ```
//!
//! What it promises: results, `errno` and sets are those of the original call. A call that the
//! library cannot answer safely goes to the original ([`real`]) and is counted ([`stats`]). A close
//! that the library cannot see (inside libc, by a raw system call) does not hang the program: no
//! wait sleeps longer than [`limits::AUDIT_EVERY_NS`] without one plain poll of everything (an
//! audit), which is compared with epoll's result. A busy thread has regular audits too. A
//! difference disables boosting for the thread.
//!
//! What never happens: an allocation (the memory of a thread is one mapping of fixed size); a
//! panic; a lock; an epoll set shared by two processes (a set belongs to the process that made it);
//! a change by a signal handler that has interrupted a wait (the inner call is plain).
//!
//! Why `unsafe`: the library replaces functions of the C library, so it gets raw pointers and calls
//! raw functions. All unsafe code is in [`exports`], [`follow`], [`real`], [`sys`] and [`thread`].
//! Functions that sleep are `C-unwind` and hold nothing that must be dropped, because a cancelled
//! thread is unwound through them.
//!
//! On 64-bit Linux with glibc there are no time64 variants, because `time_t` always has 64 bits.

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
