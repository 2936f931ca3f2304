//! The simulated network: its sockets, its agenda, and its time.
//!
//! What: sockets have a number that is never used again; descriptors are lent to them. What is
//! under way stands in the agenda, ordered by the time of its arrival; equal times keep the order
//! in which they were entered. Streams are in [`super::stream`], datagrams in [`super::datagram`].
//! What never happens: anything depends on the order of a hash table or on an address in memory.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

use readiness::Ready;
use readiness::simulated::Levels;

use super::Options;
use super::datagram::Datagrams;
use super::rng::Rng;
use super::stream::{Listener, Stream};
use super::trace::Trace;

/// The number of a socket; never used again.
pub(super) type Id = u64;

/// The first moment of the virtual clock. It is not zero, so that instants before the start exist.
pub(super) const START_NS: u64 = 1_000_000_000_000;
/// Ports given to those who do not choose one.
const FIRST_FREE_PORT: u16 = 32_768;
/// Reads come back short at most this often, so that a world that splits everything makes progress.
const SHORT_READ_MAX: f64 = 0.5;

/// Where a socket is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Address {
    Inet(SocketAddr),
    Path(PathBuf),
}

/// What stands in the agenda.
#[derive(Debug)]
pub(super) enum Happening {
    /// A connect reaches its address, for the `tries`th time.
    Knock { client: Id, to: Address, tries: u32 },
    /// The answer to a connect: 0, or the error.
    Answer { client: Id, error: i32 },
    /// Bytes arrive.
    Bytes { from: Id, to: Id, bytes: Vec<u8> },
    /// The end of what the peer sends arrives.
    End { to: Id },
    /// A reset arrives.
    Reset { to: Id },
    /// A datagram arrives where its address is.
    Datagram { from: Id, sender: SocketAddr, to: SocketAddr, bytes: Vec<u8> },
    /// The news arrives that nobody takes a connected socket's datagrams.
    Unreachable { from: Id },
}

pub(super) enum Socket {
    Listener(Listener),
    Stream(Stream),
    Datagrams(Datagrams),
}

pub(crate) struct Net {
    pub(super) options: Options,
    pub(super) rng: Rng,
    pub(super) now_ns: u64,
    /// Processor time that scenarios have used.
    pub(super) burned_ns: u64,
    pub(super) trace: Trace,
    pub(super) sockets: BTreeMap<Id, Socket>,
    /// Who listens or receives where, in the order of arrival.
    pub(super) bound: BTreeMap<(bool, Address), Vec<Id>>,
    levels: Levels,
    fds: BTreeMap<RawFd, Id>,
    agenda: BTreeMap<(u64, u64), Happening>,
    /// Numbers sockets and entries of the agenda.
    last_number: u64,
    next_port: u16,
}

pub(super) fn error<T>(number: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(number))
}

impl Net {
    pub(super) fn new(options: Options, levels: Levels) -> Net {
        Net {
            rng: Rng::new(options.seed),
            options,
            now_ns: START_NS,
            burned_ns: 0,
            trace: Trace::new(),
            sockets: BTreeMap::new(),
            bound: BTreeMap::new(),
            levels,
            fds: BTreeMap::new(),
            agenda: BTreeMap::new(),
            last_number: 0,
            next_port: FIRST_FREE_PORT,
        }
    }

    /// Lets the next thing happen, and all that happens at the same time, if that is not after
    /// `end`. If nothing does, time moves to `end` itself.
    pub(super) fn happen_until(&mut self, end: Option<u64>) -> bool {
        let first = self.agenda.first_key_value().map(|(&(at_ns, _), _)| at_ns);
        let Some(at_ns) = first.filter(|&at_ns| end.is_none_or(|end| at_ns <= end)) else {
            self.now_ns = end.unwrap_or(self.now_ns);
            return false;
        };
        self.now_ns = self.now_ns.max(at_ns);
        while let Some(entry) = self.agenda.first_entry() {
            if entry.key().0 > self.now_ns {
                break;
            }
            let happening = entry.remove();
            self.happen(happening);
        }
        true
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Knock { client, to, tries } => self.knock(client, to, tries),
            Happening::Answer { client, error } => self.answer(client, error),
            Happening::Bytes { from, to, bytes } => self.bytes_arrive(from, to, &bytes),
            Happening::End { to } => self.end_arrives(to),
            Happening::Reset { to } => self.reset_arrives(to),
            Happening::Datagram { from, sender, to, bytes } => {
                self.datagram_arrives(from, sender, to, bytes);
            }
            Happening::Unreachable { from } => self.unreachable(from),
        }
    }

    /// Enters `happening` into the agenda for the time `at_ns`.
    pub(super) fn plan(&mut self, at_ns: u64, happening: Happening) {
        let number = self.number();
        self.agenda.insert((at_ns.max(self.now_ns), number), happening);
    }

    /// Enters `happening` after one delay of the network.
    pub(super) fn plan_delayed(&mut self, happening: Happening) {
        let at_ns = self.arrival_ns();
        self.plan(at_ns, happening);
    }

    /// When something that is sent now arrives.
    pub(super) fn arrival_ns(&mut self) -> u64 {
        let range = self.options.delay.clone();
        self.now_ns + self.draw(&range)
    }

    /// A duration out of `range`, in nanoseconds.
    pub(super) fn draw(&mut self, range: &Range<Duration>) -> u64 {
        let span = range.end.saturating_sub(range.start);
        let start = range.start.as_nanos() as u64;
        start + self.rng.below(span.as_nanos() as u64)
    }

    /// How much of `there` bytes a read is given.
    pub(super) fn short_read(&mut self, there: usize) -> usize {
        let short = self.options.split.min(SHORT_READ_MAX);
        if there > 1 && self.rng.chance(short) {
            return 1 + self.rng.below(there as u64 - 1) as usize;
        }
        there
    }

    pub(super) fn trace(&mut self, what: &'static str, which: u64, amount: usize) {
        self.trace.add(self.now_ns, what, which, amount);
    }

    /// A number that was never used.
    pub(super) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Enters a socket without a descriptor.
    pub(super) fn add(&mut self, socket: Socket) -> Id {
        let id = self.number();
        self.sockets.insert(id, socket);
        id
    }

    /// EMFILE if a further descriptor is refused.
    pub(super) fn check_room(&self) -> io::Result<()> {
        if self.fds.len() >= self.options.descriptors_max { error(libc::EMFILE) } else { Ok(()) }
    }

    /// Lends a descriptor to a socket. The caller has asked [`Net::check_room`].
    pub(super) fn lend_fd(&mut self, id: Id) -> RawFd {
        let fd = self.levels.open();
        self.fds.insert(fd, id);
        self.refresh(id, Some(fd));
        fd
    }

    /// Which socket a descriptor belongs to.
    pub(super) fn id(&self, fd: RawFd) -> Id {
        *self.fds.get(&fd).expect("a socket's descriptor is open until the socket is dropped")
    }

    pub(super) fn socket(&mut self, fd: RawFd) -> (Id, &mut Socket) {
        let id = self.id(fd);
        (id, self.sockets.get_mut(&id).expect("an open descriptor has a socket"))
    }

    /// Tells the poller what the socket is ready for now.
    pub(super) fn refresh(&mut self, id: Id, fd: Option<RawFd>) {
        let Some(fd) = fd else { return };
        let level = match self.sockets.get(&id) {
            Some(Socket::Listener(listener)) => listener.level(),
            Some(Socket::Stream(stream)) => {
                let room = self.room(stream);
                stream.level(room)
            }
            Some(Socket::Datagrams(datagrams)) => datagrams.level(),
            None => Ready::NONE,
        };
        self.levels.set(fd, level);
    }

    pub(crate) fn close(&mut self, fd: RawFd) {
        let id = self.id(fd);
        self.trace("close", id, 0);
        self.fds.remove(&fd);
        self.levels.close(fd);
        match self.sockets.remove(&id) {
            Some(Socket::Listener(listener)) => self.close_listener(id, listener),
            Some(Socket::Stream(stream)) => self.close_stream(stream),
            Some(Socket::Datagrams(datagrams)) => {
                self.unbind((true, Address::Inet(datagrams.local)), id);
            }
            None => {}
        }
    }

    /// EADDRINUSE if somebody is at `address` and the two do not share it.
    pub(super) fn check_free(
        &self,
        datagrams: bool,
        address: &Address,
        shared: bool,
    ) -> io::Result<()> {
        match self.bound.get(&(datagrams, address.clone())) {
            Some(there) if !there.is_empty() && !shared => error(libc::EADDRINUSE),
            _ => Ok(()),
        }
    }

    pub(super) fn unbind(&mut self, place: (bool, Address), id: Id) {
        if let Some(there) = self.bound.get_mut(&place) {
            there.retain(|&other| other != id);
            if there.is_empty() {
                self.bound.remove(&place);
            }
        }
    }

    /// Who is at `address`, or at its port on every address; one of them if several share it.
    pub(super) fn find(&mut self, datagrams: bool, address: &Address) -> Option<Id> {
        let mut there = self.bound.get(&(datagrams, address.clone()));
        if there.is_none()
            && let Address::Inet(inet) = address
        {
            let any_v4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), inet.port());
            let any_v6 = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), inet.port());
            let place = |any| self.bound.get(&(datagrams, Address::Inet(any)));
            there = if inet.is_ipv4() { place(any_v4) } else { None }.or_else(|| place(any_v6));
        }
        let there = there?.clone();
        there.get(self.rng.below(there.len() as u64) as usize).copied()
    }

    /// `address`, with a port of its own if it has none.
    pub(super) fn with_port(&mut self, address: SocketAddr) -> SocketAddr {
        if address.port() != 0 {
            return address;
        }
        let port = self.next_port;
        self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_FREE_PORT);
        SocketAddr::new(address.ip(), port)
    }

    /// Our own address towards `peer`.
    pub(super) fn own_address(&mut self, peer: SocketAddr) -> SocketAddr {
        let ip = match peer {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        self.with_port(SocketAddr::new(ip, 0))
    }

    pub(super) fn local(&self, fd: RawFd) -> io::Result<Address> {
        match &self.sockets[&self.id(fd)] {
            Socket::Listener(listener) => Ok(listener.address.clone()),
            Socket::Stream(stream) => Ok(stream.local.clone()),
            Socket::Datagrams(datagrams) => Ok(Address::Inet(datagrams.local)),
        }
    }

    pub(super) fn remote(&self, fd: RawFd) -> io::Result<Address> {
        match &self.sockets[&self.id(fd)] {
            Socket::Stream(stream) if stream.is_connected() => Ok(stream.remote.clone()),
            _ => error(libc::ENOTCONN),
        }
    }
}
