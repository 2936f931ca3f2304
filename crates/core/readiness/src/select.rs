//! pselect6(2), the plain stateless call: every wait passes bitmaps of all interest to the kernel,
//! which writes back bitmaps of what is ready.
//!
//! The bitmaps grow as needed, because the C library's `fd_set` ends at 1,024 descriptors; the
//! kernel's limit is the size of the process's table. It reports directions only: the end of a
//! stream is readable, an error is both. The wake eventfd is always in the read set.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::fdset::{FdSet, WORD_BITS, Word, members, position};
use crate::sys;
use crate::table::FdTable;
use crate::wake::WakeEnd;
use crate::{Backend, Counters, Events, Interest, Kind, OpenError, Ready, Token};

/// See the module docs.
pub(crate) struct Select {
    table: FdTable<Token>,
    /// Descriptors with read interest, and the wake eventfd.
    read: FdSet,
    /// Descriptors with write interest.
    write: FdSet,
    /// Copies of `read` and `write` that the kernel overwrites.
    ready_read: Vec<Word>,
    ready_write: Vec<Word>,
    /// Every member of `read` and `write` is < `end`, and `end - 1` is a member.
    end: usize,
    /// How many descriptors are in `read` or `write`, without the wake eventfd.
    watched: u64,
    /// Where the next wait starts, so that none starves when the events overflow.
    next: RawFd,
    pub(crate) wake: WakeEnd,
    pub(crate) counters: Counters,
}

impl Select {
    pub(crate) fn open() -> Result<Select, OpenError> {
        let wake = WakeEnd::with_eventfd(Kind::Select)?;
        let mut select = Select {
            table: FdTable::new(),
            read: FdSet::default(),
            write: FdSet::default(),
            ready_read: Vec::new(),
            ready_write: Vec::new(),
            end: 0,
            watched: 0,
            next: 0,
            wake,
            counters: Counters::default(),
        };
        select.set_interest(select.wake.fd(), Interest::READ);
        Ok(select)
    }

    /// Sets the interest with which later waits pass `fd` to the kernel.
    fn set_interest(&mut self, fd: RawFd, interest: Interest) {
        self.read.assign(fd, interest.contains(Interest::READ));
        self.write.assign(fd, interest.contains(Interest::WRITE));
        if !interest.is_empty() {
            self.end = self.end.max(fd as usize + 1);
        } else if fd as usize + 1 == self.end {
            self.end = self.highest_end();
        }
        debug_assert!(
            self.end == 0 || self.is_watched(self.end as RawFd - 1),
            "the highest member"
        );
    }

    fn is_watched(&self, fd: RawFd) -> bool {
        let (at, bit) = position(fd);
        (self.read.word(at) | self.write.word(at)) & bit != 0
    }

    /// One more than the highest member. The wake eventfd is always a member.
    fn highest_end(&self) -> usize {
        let words = (0..self.end.div_ceil(WORD_BITS)).rev();
        let mut highest = words.map(|at| (at, self.read.word(at) | self.write.word(at)));
        let (at, word) =
            highest.find(|(_, word)| *word != 0).expect("the wake eventfd is a member");
        let end = (at + 1) * WORD_BITS - word.leading_zeros() as usize;
        debug_assert!(end > self.wake.fd() as usize, "the wake eventfd is a member");
        end
    }

    fn call(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let words = self.end.div_ceil(WORD_BITS);
        self.read.copy_to(&mut self.ready_read, words);
        self.write.copy_to(&mut self.ready_write, words);
        self.counters.syscalls += 1;
        self.counters.probes += self.watched;
        let spec = timeout.map(sys::timespec);
        let spec = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // The C library's function, so that a preloaded library can answer it. It passes sets of
        // any length on unchanged.
        // SAFETY: both bitmaps hold at least `end` bits in whole words, the timespec outlives the
        // call, and there is no third set and no signal mask.
        let ready = unsafe {
            libc::pselect(
                self.end as libc::c_int,
                self.ready_read.as_mut_ptr().cast(),
                self.ready_write.as_mut_ptr().cast(),
                std::ptr::null_mut(),
                spec,
                std::ptr::null(),
            )
        };
        sys::check_wait(ready.into())
    }

    /// Delivers the members of one word that are in `mask`. False: no room.
    fn deliver(&mut self, at: usize, mask: Word, events: &mut Events) -> bool {
        self.counters.bitmap_words += 2;
        let (read, write) = (self.ready_read[at], self.ready_write[at]);
        for fd in members(at, (read | write) & mask) {
            if !events.has_room() {
                self.next = fd;
                return false;
            }
            let bit = position(fd).1;
            let mut ready = Ready::NONE;
            if read & bit != 0 {
                ready |= Ready::READABLE;
            }
            if write & bit != 0 {
                ready |= Ready::WRITABLE;
            }
            let token = self.table.get(fd).expect("what is passed to the kernel is in the table");
            events.push(*token, ready);
        }
        true
    }
}

impl Backend for Select {
    const KIND: Kind = Kind::Select;

    fn register(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.table.check_absent(fd)?;
        self.counters.syscalls += 1;
        sys::check_open(fd)?;
        self.table.insert(fd, token);
        self.watched += u64::from(!interest.is_empty());
        self.set_interest(fd, interest);
        Ok(())
    }

    fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        *self.table.known(fd)? = token;
        self.watched -= u64::from(self.is_watched(fd));
        self.watched += u64::from(!interest.is_empty());
        self.set_interest(fd, interest);
        debug_assert!(self.is_watched(fd) != interest.is_empty());
        Ok(())
    }

    fn remove(&mut self, fd: RawFd) -> io::Result<()> {
        self.table.remove(fd)?;
        self.watched -= u64::from(self.is_watched(fd));
        self.set_interest(fd, Interest::NONE);
        Ok(())
    }

    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        if self.call(timeout)? == 0 {
            return Ok(());
        }
        let (wake_at, wake_bit) = position(self.wake.fd());
        if self.ready_read[wake_at] & wake_bit != 0 {
            self.ready_read[wake_at] &= !wake_bit;
            self.counters.syscalls += 1;
            self.wake.take_level();
        }
        // One round over the words, starting and ending in the middle of the same word.
        let words = self.ready_read.len();
        let (start, from_bit) = position(self.next);
        let (start, from) = if start < words { (start, !(from_bit - 1)) } else { (0, !0) };
        let first = std::iter::once((start, from));
        let others = (start + 1..words).chain(0..start).map(|at| (at, !0));
        for (at, mask) in first.chain(others).chain([(start, !from)]) {
            if !self.deliver(at, mask, events) {
                break;
            }
        }
        Ok(())
    }
}
