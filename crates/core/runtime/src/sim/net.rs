//! The simulated network: its sockets, its scheduled events, and its time.
//!
//! What: each socket has a number that is never reused, and may have a descriptor. Events in flight
//! are in the agenda, ordered by the time of their arrival; events at the same time keep the order
//! in which they were scheduled. Streams are in [`super::stream`], datagrams in
//! [`super::datagram`].
//! What never happens: anything depends on the order of a hash table or on an address in memory.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::RawFd;
use std::time::Duration;

use readiness::Ready;
use readiness::simulated::Levels;

use super::datagram::{Datagram, Datagrams};
use super::error::error;
use super::options::Options;
use super::rng::Rng;
use super::stream::{Listener, Stream};
use super::trace::Trace;

/// The number of a socket; never reused.
pub(super) type Id = u64;

/// The first moment of the virtual clock. It is not zero, so that instants before the start exist.
pub(super) const START_NS: u64 = 1_000_000_000_000;
/// The first port for sockets that do not choose one.
const FIRST_FREE_PORT: u16 = 32_768;
/// The highest rate of short reads, so that a world that splits everything makes progress.
const SHORT_READ_MAX: f64 = 0.5;

/// A scheduled event.
#[derive(Debug)]
pub(super) enum Event {
    /// A connect reaches its address, for the `tries`th time.
    Connect { client: Id, to: SocketAddr, tries: u32 },
    /// The result of a connect: 0, or the error.
    ConnectResult { client: Id, error: i32 },
    /// Bytes arrive.
    Bytes { from: Id, to: Id, bytes: Vec<u8> },
    /// The end of what the peer sends arrives.
    End { to: Id },
    /// A reset arrives.
    Reset { to: Id },
    /// A datagram arrives where its address is.
    Datagram { from: Id, datagram: Datagram },
    /// The report arrives that a connected socket's datagrams have no receiver.
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
    /// Listeners and datagram sockets by address, in the order in which they were bound.
    pub(super) bound: BTreeMap<(bool, SocketAddr), Vec<Id>>,
    levels: Levels,
    fds: BTreeMap<RawFd, Id>,
    agenda: BTreeMap<(u64, u64), Event>,
    /// The last number of a socket or of an entry in the agenda.
    last_number: u64,
    next_port: u16,
    /// Where connections come from.
    client: [IpAddr; 2],
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
            client: [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        }
    }

    /// Processes the next event, and all events at the same time, unless that is after `end`. If
    /// there is none, time moves to `end`.
    pub(super) fn process_until(&mut self, end: Option<u64>) -> bool {
        let first = self.agenda.first_key_value().map(|(&(at_ns, _), _)| at_ns);
        let Some(at_ns) = first.filter(|&at_ns| end.is_none_or(|end| at_ns <= end)) else {
            self.now_ns = end.unwrap_or(self.now_ns);
            return false;
        };
        self.now_ns = self.now_ns.max(at_ns);
        assert!(end.is_none_or(|end| self.now_ns <= end), "time moves no further than asked");
        while let Some(entry) = self.agenda.first_entry() {
            if entry.key().0 > self.now_ns {
                break;
            }
            let event = entry.remove();
            self.process(event);
        }
        true
    }

    fn process(&mut self, event: Event) {
        match event {
            Event::Connect { client, to, tries } => self.connect_arrives(client, to, tries),
            Event::ConnectResult { client, error } => self.connect_result_arrives(client, error),
            Event::Bytes { from, to, bytes } => self.bytes_arrive(from, to, &bytes),
            Event::End { to } => self.end_arrives(to),
            Event::Reset { to } => self.reset_arrives(to),
            Event::Datagram { from, datagram } => self.datagram_arrives(from, datagram),
            Event::Unreachable { from } => self.unreachable(from),
        }
    }

    /// Schedules an event for the time `at_ns`.
    pub(super) fn plan(&mut self, at_ns: u64, event: Event) {
        let number = self.number();
        self.agenda.insert((at_ns.max(self.now_ns), number), event);
    }

    /// Schedules an event after one network delay.
    pub(super) fn plan_delayed(&mut self, event: Event) {
        let at_ns = self.arrival_ns();
        self.plan(at_ns, event);
    }

    /// The arrival time of something sent now.
    pub(super) fn arrival_ns(&mut self) -> u64 {
        let range = self.options.delay.clone();
        self.now_ns + self.draw(&range)
    }

    /// Draws a duration from `range`, in nanoseconds.
    pub(super) fn draw(&mut self, range: &Range<Duration>) -> u64 {
        let span = range.end.saturating_sub(range.start);
        let start = range.start.as_nanos() as u64;
        start + self.rng.below(span.as_nanos() as u64)
    }

    /// How many of `there` bytes a read returns.
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

    /// The next unused number.
    pub(super) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Adds a socket without a descriptor.
    pub(super) fn add(&mut self, socket: Socket) -> Id {
        let id = self.number();
        let before = self.sockets.insert(id, socket);
        assert!(before.is_none(), "a number is used once");
        id
    }

    /// EMFILE if there is no room for another descriptor.
    pub(super) fn check_room(&self) -> io::Result<()> {
        if self.fds.len() >= self.options.descriptors_max { error(libc::EMFILE) } else { Ok(()) }
    }

    /// Opens a descriptor for a socket. The caller has called [`Net::check_room`].
    pub(super) fn open_fd(&mut self, id: Id) -> RawFd {
        let fd = self.levels.open();
        let before = self.fds.insert(fd, id);
        assert!(before.is_none(), "a number names one open descriptor");
        self.refresh(id, Some(fd));
        fd
    }

    /// The socket of a descriptor.
    pub(super) fn id(&self, fd: RawFd) -> Id {
        *self.fds.get(&fd).expect("a socket's descriptor is open until the socket is dropped")
    }

    pub(super) fn socket(&mut self, fd: RawFd) -> (Id, &mut Socket) {
        let id = self.id(fd);
        (id, self.sockets.get_mut(&id).expect("an open descriptor has a socket"))
    }

    /// Reports to the poller what the socket is ready for now.
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
                self.unbind((true, datagrams.local), id);
            }
            None => {}
        }
    }

    /// EADDRINUSE if `address` is in use and not shared.
    pub(super) fn check_free(
        &self,
        datagrams: bool,
        address: SocketAddr,
        shared: bool,
    ) -> io::Result<()> {
        match self.bound.get(&(datagrams, address)) {
            Some(there) if !there.is_empty() && !shared => error(libc::EADDRINUSE),
            _ => Ok(()),
        }
    }

    pub(super) fn unbind(&mut self, place: (bool, SocketAddr), id: Id) {
        if let Some(there) = self.bound.get_mut(&place) {
            there.retain(|&other| other != id);
            if there.is_empty() {
                self.bound.remove(&place);
            }
        }
    }

    /// The socket bound to `address`, or to its port on all addresses; a random one if several
    /// share it.
    pub(super) fn find(&mut self, datagrams: bool, address: SocketAddr) -> Option<Id> {
        let mut there = self.bound.get(&(datagrams, address));
        if there.is_none() {
            let any_v4 = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port());
            let any_v6 = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port());
            let place = |any| self.bound.get(&(datagrams, any));
            there = if address.is_ipv4() { place(any_v4) } else { None }.or_else(|| place(any_v6));
        }
        let there = there?.clone();
        there.get(self.rng.below(there.len() as u64) as usize).copied()
    }

    /// `address`, with an unused port if it has none.
    pub(super) fn with_port(&mut self, address: SocketAddr) -> SocketAddr {
        if address.port() != 0 {
            return address;
        }
        let port = self.next_port;
        self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_FREE_PORT);
        SocketAddr::new(address.ip(), port)
    }

    /// The local address of a connection to `peer`.
    pub(super) fn own_address(&mut self, peer: SocketAddr) -> SocketAddr {
        let ip = self.client[usize::from(peer.is_ipv6())];
        self.with_port(SocketAddr::new(ip, 0))
    }

    /// From now on, connections to peers of its family come from this address.
    pub(super) fn connect_from(&mut self, address: IpAddr) {
        self.client[usize::from(address.to_canonical().is_ipv6())] = address;
    }

    pub(crate) fn local_addr(&self, fd: RawFd) -> io::Result<SocketAddr> {
        match &self.sockets[&self.id(fd)] {
            Socket::Listener(listener) => Ok(listener.address),
            Socket::Stream(stream) => Ok(stream.local),
            Socket::Datagrams(datagrams) => Ok(datagrams.local),
        }
    }
}
