//! The connections of a run: those that carry requests, and the cold ones.
//!
//! What: a table of fixed size, the hot slots first, and the sockets in it. Who owns: a slot owns
//! its socket; it leaves the poller before it is closed. What never happens: an event of a socket
//! that is gone reaches the one that took its slot (tokens carry a generation).
//!
//! ```text
//! Closed --connect--> Connecting --writable--> Idle --send--> Busy --whole--> Idle
//!    ^                                                          |
//!    |   (connection a request) Ending <--whole-----------------+
//!    +------- any error, the peer's close ----------------------+
//! ```
//! A `Connecting` slot may have its request waiting in `unsent`; it is then `Busy` at once when it
//! is through. Cold slots stay in `Idle`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use readiness::{Interest, Poller, Token};

use crate::plan::Plan;
use crate::response::{Asked, Reader};
use crate::sys;

/// Where a connection stands; the picture is in the file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Closed,
    Connecting,
    Idle,
    Busy,
    Ending,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) step: Step,
    fd: Option<OwnedFd>,
    generation: u32,
    /// Whether the poller tells of room to write too.
    wants_room: bool,
    /// A request is under way, or waits for the connection to be made.
    pub(crate) loaded: bool,
    /// When the request was meant to start, and when it was given to this connection, ns.
    pub(crate) intended_ns: u64,
    pub(crate) given_ns: u64,
    /// The generator gave it late by its own fault.
    pub(crate) late: bool,
    pub(crate) asked: Asked,
    /// What the socket has not taken of the request.
    pub(crate) unsent: Vec<u8>,
    pub(crate) reader: Reader,
}

impl Connection {
    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_ref().expect("only open connections are read and written").as_raw_fd()
    }
}

pub(crate) struct Connections {
    pub(crate) table: Vec<Connection>,
    hot: u32,
    target: SocketAddr,
    sources: u32,
    pub(crate) poller: Poller,
}

impl Connections {
    pub(crate) fn new(plan: &Plan, poller: Poller) -> Connections {
        let nothing = Asked { object: 0, size: None, verify: false };
        let empty = || Connection {
            step: Step::Closed,
            fd: None,
            generation: 0,
            wants_room: false,
            loaded: false,
            intended_ns: 0,
            given_ns: 0,
            late: false,
            asked: nothing,
            unsent: Vec::new(),
            reader: Reader::new(),
        };
        let mut table = Vec::new();
        table.resize_with((plan.connections + plan.cold) as usize, empty);
        let (target, sources) = (plan.target.addr, plan.sources_wanted());
        Connections { table, hot: plan.connections, target, sources, poller }
    }

    pub(crate) fn is_cold(&self, slot: u32) -> bool {
        slot >= self.hot
    }

    /// The slot of a token, unless its socket is gone.
    #[inline]
    pub(crate) fn slot_of(&self, token: Token) -> Option<u32> {
        let connection = &self.table[token.slot() as usize];
        (connection.generation == token.generation() && connection.fd.is_some())
            .then_some(token.slot())
    }

    /// Begins to connect a closed slot.
    pub(crate) fn connect(&mut self, slot: u32) -> io::Result<()> {
        let source = (self.sources > 1).then(|| {
            let last = u8::try_from(slot % self.sources + 1).expect("SOURCES_MAX is below 255");
            IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
        });
        let fd = sys::connect(self.target, source)?;
        let connection = &mut self.table[slot as usize];
        debug_assert_eq!(connection.step, Step::Closed);
        let token = Token::new(slot, connection.generation);
        self.poller.register(fd.as_raw_fd(), token, Interest::BOTH)?;
        connection.fd = Some(fd);
        connection.wants_room = true;
        connection.step = Step::Connecting;
        Ok(())
    }

    /// What became of a connect of which the poller told something.
    pub(crate) fn connected(&mut self, slot: u32) -> io::Result<()> {
        let connection = &mut self.table[slot as usize];
        sys::socket_error(connection.fd())?;
        connection.step = Step::Idle;
        self.want_room(slot, false)
    }

    /// Asks the poller to tell of room to write, or no longer.
    pub(crate) fn want_room(&mut self, slot: u32, wanted: bool) -> io::Result<()> {
        let connection = &mut self.table[slot as usize];
        if connection.wants_room == wanted {
            return Ok(());
        }
        connection.wants_room = wanted;
        let interest = if wanted { Interest::BOTH } else { Interest::READ };
        let token = Token::new(slot, connection.generation);
        self.poller.change(connection.fd(), token, interest)
    }

    /// Sends what is left of the request; true when the socket has taken all of it.
    pub(crate) fn send_unsent(&mut self, slot: u32) -> io::Result<bool> {
        let connection = &mut self.table[slot as usize];
        while !connection.unsent.is_empty() {
            match sys::send(connection.fd(), &connection.unsent) {
                Ok(count) => drop(connection.unsent.drain(..count)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let all = connection.unsent.is_empty();
        self.want_room(slot, !all)?;
        Ok(all)
    }

    /// Closes a slot's socket, if it has one; `by_reset` leaves no TIME_WAIT.
    pub(crate) fn close(&mut self, slot: u32, by_reset: bool) {
        let connection = &mut self.table[slot as usize];
        if let Some(fd) = connection.fd.take() {
            if by_reset {
                sys::reset_on_close(&fd);
            }
            // It is registered, for `connect` does so; a failure means it is gone already.
            let _gone = self.poller.remove(fd.as_raw_fd());
            connection.generation = connection.generation.wrapping_add(1);
        }
        connection.unsent.clear();
        connection.step = Step::Closed;
    }

    /// How many cold connections are open.
    pub(crate) fn cold_open(&self) -> u64 {
        let cold = &self.table[self.hot as usize..];
        cold.iter().filter(|connection| connection.step == Step::Idle).count() as u64
    }
}
