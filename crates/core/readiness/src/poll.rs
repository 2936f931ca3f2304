//! ppoll(2), stateless: every wait passes all registrations to the kernel.
//!
//! The list is dense and unordered, with the wake eventfd first. A registration without interest
//! stays in the list with its number complemented, because poll ignores negative numbers.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::event::POLL_IN;
use crate::sys;
use crate::table::FdTable;
use crate::wake::WakeEnd;
use crate::{Backend, Counters, Events, Interest, Kind, OpenError, Ready, Token};

/// The position of the wake eventfd in the list.
const WAKE_AT: usize = 0;

/// See the module docs.
pub(crate) struct Poll {
    /// `list[WAKE_AT]` is the wake eventfd, the others are the registrations.
    list: Vec<libc::pollfd>,
    /// `tokens[i]` belongs to `list[i]`; that of the wake eventfd is never read.
    tokens: Vec<Token>,
    /// The position of a descriptor in `list`, > `WAKE_AT`.
    table: FdTable<usize>,
    /// Where the next wait starts, so that none starves when the events overflow.
    next: usize,
    pub(crate) wake: WakeEnd,
    pub(crate) counters: Counters,
}

impl Poll {
    pub(crate) fn open() -> Result<Poll, OpenError> {
        let wake = WakeEnd::with_eventfd(Kind::Poll)?;
        Ok(Poll {
            list: vec![libc::pollfd { fd: wake.fd(), events: POLL_IN as i16, revents: 0 }],
            tokens: vec![Token::new(0, 0)],
            table: FdTable::new(),
            next: 0,
            wake,
            counters: Counters::default(),
        })
    }

    fn entry(fd: RawFd, interest: Interest) -> libc::pollfd {
        let fd = if interest.is_empty() { !fd } else { fd };
        libc::pollfd { fd, events: interest.poll_bits() as i16, revents: 0 }
    }
}

impl Backend for Poll {
    const KIND: Kind = Kind::Poll;

    fn register(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.table.check_absent(fd)?;
        self.counters.syscalls += 1;
        sys::check_open(fd)?;
        self.table.insert(fd, self.list.len());
        self.list.push(Poll::entry(fd, interest));
        self.tokens.push(token);
        debug_assert!(self.tokens.len() == self.list.len(), "each entry has a token");
        Ok(())
    }

    fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        let at = *self.table.known(fd)?;
        self.list[at] = Poll::entry(fd, interest);
        self.tokens[at] = token;
        Ok(())
    }

    fn remove(&mut self, fd: RawFd) -> io::Result<()> {
        let at = self.table.remove(fd)?;
        assert!(at != WAKE_AT, "the wake eventfd stays");
        self.list.swap_remove(at);
        self.tokens.swap_remove(at);
        if let Some(moved) = self.list.get(at) {
            let moved_fd = if moved.fd < 0 { !moved.fd } else { moved.fd };
            *self.table.known(moved_fd).expect("whatever is in the list is in the table") = at;
        }
        Ok(())
    }

    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        self.counters.syscalls += 1;
        self.counters.probes += self.list.len() as u64 - 1;
        let mut left = sys::ppoll(&mut self.list, timeout)?;
        if left > 0 && self.list[WAKE_AT].revents != 0 {
            self.counters.syscalls += 1;
            self.wake.take_level();
            left -= 1;
        }
        let length = self.list.len();
        let start = if self.next < length { self.next } else { 0 };
        for at in (start..length).chain(0..start) {
            if left == 0 || !events.has_room() {
                self.next = at;
                break;
            }
            let revents = self.list[at].revents;
            if revents != 0 && at != WAKE_AT {
                events.push(self.tokens[at], Ready::from_poll_bits(revents as u16 as u32));
                left -= 1;
            }
        }
        Ok(())
    }
}
