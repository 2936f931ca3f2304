//! epoll(7), level-triggered: the kernel keeps the interest and the ready list, and a wait is one
//! system call.
//!
//! The token is stored in the kernel's event, so a wait reads no table. A registration without
//! interest is removed from the instance, because epoll would report its hang-up again and again.
//! The wake descriptor is edge-triggered, so that it never has to be read.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::sys::EpollSet;
use crate::table::FdTable;
use crate::wake::WakeEnd;
use crate::{Backend, Counters, Events, Interest, Kind, OpenError, Ready, Token};

/// No token packs to this: its slot is [`Token::SLOT_RESERVED`].
const WAKE_DATA: u64 = u64::MAX;

/// See the module docs.
pub(crate) struct Epoll {
    set: EpollSet,
    /// A descriptor is in `set` exactly if its interest here is not empty.
    table: FdTable<Interest>,
    pub(crate) wake: WakeEnd,
    pub(crate) counters: Counters,
}

impl Epoll {
    pub(crate) fn open() -> Result<Epoll, OpenError> {
        let set = EpollSet::new()
            .map_err(|error| OpenError::of_call(Kind::Epoll, "epoll_create1", error))?;
        let wake = WakeEnd::with_eventfd(Kind::Epoll)?;
        set.add(wake.fd(), (libc::EPOLLIN | libc::EPOLLET) as u32, WAKE_DATA)
            .map_err(|error| OpenError::of_call(Kind::Epoll, "epoll_ctl", error))?;
        Ok(Epoll { set, table: FdTable::new(), wake, counters: Counters::default() })
    }
}

impl Backend for Epoll {
    const KIND: Kind = Kind::Epoll;

    fn register(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.table.check_absent(fd)?;
        self.counters.syscalls += 1;
        if interest.is_empty() {
            crate::sys::check_open(fd)?;
        } else {
            self.set.add(fd, interest.poll_bits(), token.to_u64())?;
        }
        self.table.insert(fd, interest);
        Ok(())
    }

    fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        let known = self.table.known(fd)?;
        debug_assert!(token.to_u64() != WAKE_DATA, "no token packs to this");
        let (bits, data) = (interest.poll_bits(), token.to_u64());
        match (known.is_empty(), interest.is_empty()) {
            (true, true) => return Ok(()),
            (true, false) => self.set.add(fd, bits, data)?,
            (false, true) => self.set.delete(fd)?,
            (false, false) => self.set.modify(fd, bits, data)?,
        }
        self.counters.syscalls += 1;
        *known = interest;
        Ok(())
    }

    fn remove(&mut self, fd: RawFd) -> io::Result<()> {
        if self.table.remove(fd)?.is_empty() {
            return Ok(());
        }
        self.counters.syscalls += 1;
        self.set.delete(fd)
    }

    #[inline]
    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        self.counters.syscalls += 1;
        for event in self.set.wait(events.capacity(), timeout)? {
            if event.u64 == WAKE_DATA {
                self.wake.take_edge();
            } else {
                events.push(Token::from_u64(event.u64), Ready::from_poll_bits(event.events));
            }
        }
        Ok(())
    }
}
