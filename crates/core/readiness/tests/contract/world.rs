//! A poller and its descriptors: sockets of this machine, or simulated ones with the same
//! behaviour. The world owns every descriptor it opened and closes those that a case leaves open.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use readiness::simulated::Levels;
use readiness::{Choice, Events, Interest, Kind, OpenError, Poller, Ready, Token};

/// How long a case waits for an expected event. Only failures take this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The directions alone, which every backend reports exactly.
pub(crate) const DIRECTIONS: [Ready; 2] = [Ready::READABLE, Ready::WRITABLE];

pub(crate) struct World {
    /// An option so that a case can drop it.
    poller: Option<Poller>,
    events: Events,
    net: Net,
}

enum Net {
    /// The open descriptors.
    Real(BTreeSet<RawFd>),
    Simulated(SimulatedNet),
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Got {
    Bytes(usize),
    End,
    Nothing,
    Broken,
}

pub(crate) fn token(slot: u32) -> Token {
    Token::new(slot, 1)
}

impl World {
    /// `None`, with a message, if this machine cannot run the backend.
    pub(crate) fn open(kind: Kind) -> Option<World> {
        raise_descriptor_limit();
        let (poller, net) = if kind == Kind::Simulated {
            let levels = Levels::new();
            let poller = Poller::simulated(levels.clone());
            (poller, Net::Simulated(SimulatedNet { levels, sockets: BTreeMap::new() }))
        } else {
            match Poller::open(Choice::Named(kind)) {
                Ok(poller) => (poller, Net::Real(BTreeSet::new())),
                Err(error @ OpenError::NotSupported { .. }) => {
                    eprintln!("SKIPPED: {error}");
                    return None;
                }
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(poller.kind(), kind);
        Some(World { poller: Some(poller), events: Events::with_capacity(1024), net })
    }

    pub(crate) fn poller(&mut self) -> &mut Poller {
        self.poller.as_mut().expect("the case has not dropped it")
    }

    pub(crate) fn drop_poller(&mut self) {
        self.poller = None;
    }

    pub(crate) fn register(&mut self, fd: RawFd, slot: u32, interest: Interest) {
        self.poller().register(fd, token(slot), interest).unwrap();
    }

    pub(crate) fn change(&mut self, fd: RawFd, slot: u32, interest: Interest) {
        self.poller().change(fd, token(slot), interest).unwrap();
    }

    pub(crate) fn remove(&mut self, fd: RawFd) {
        self.poller().remove(fd).unwrap();
    }

    /// Limits the number of events that a wait delivers.
    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        self.events = Events::with_capacity(capacity);
    }

    /// Whether end and error are reported as such: select has no bits for them.
    pub(crate) fn reports_ends(&mut self) -> bool {
        self.poller().kind() != Kind::Select
    }

    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self.net, Net::Simulated(_))
    }

    /// One wait with this time-out. No token twice, nothing empty.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> BTreeMap<Token, Ready> {
        let poller = self.poller.as_mut().expect("the case has not dropped it");
        poller.wait(&mut self.events, timeout).unwrap();
        assert!(self.events.len() <= self.events.capacity());
        let mut delivered = BTreeMap::new();
        for event in &self.events {
            assert!(!event.ready.is_empty());
            let before = delivered.insert(event.token, event.ready);
            assert_eq!(before, None, "{:?} was delivered twice by one wait", event.token);
        }
        delivered
    }

    /// What a wait delivers without sleeping.
    pub(crate) fn delivered(&mut self) -> BTreeMap<Token, Ready> {
        self.wait(Some(Duration::ZERO))
    }

    /// Nothing is delivered, now or by another wait.
    pub(crate) fn assert_silent(&mut self) {
        for _ in 0..2 {
            assert_eq!(self.delivered(), BTreeMap::new());
        }
    }

    /// Exactly these slots are delivered, each with exactly these directions.
    pub(crate) fn assert_delivered(&mut self, expected: &[(u32, Ready)]) {
        let delivered: Vec<_> =
            self.delivered().into_iter().map(|(t, r)| (t, directions(r))).collect();
        let expected: Vec<_> = expected.iter().map(|(slot, r)| (token(*slot), *r)).collect();
        assert_eq!(delivered, expected);
    }

    /// Waits until the slot is ready for all of `ready`, and returns what was delivered with it.
    pub(crate) fn until(&mut self, slot: u32, ready: Ready) -> Ready {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let delivered = self.wait(Some(Duration::from_millis(100)));
            if let Some(now) = delivered.get(&token(slot)).copied()
                && now.has(ready)
            {
                return now;
            }
        }
        panic!("slot {slot} was never delivered to be {ready:?}");
    }

    /// Two ends of a stream whose changes are visible at once.
    pub(crate) fn pair(&mut self) -> (RawFd, RawFd) {
        match &mut self.net {
            Net::Real(_) => {
                let (a, b) = UnixStream::pair().unwrap();
                a.set_nonblocking(true).unwrap();
                b.set_nonblocking(true).unwrap();
                (self.adopt(a.into()), self.adopt(b.into()))
            }
            Net::Simulated(net) => net.pair(),
        }
    }

    /// Two ends of a TCP connection over loopback: data arrives soon.
    pub(crate) fn tcp_pair(&mut self) -> (RawFd, RawFd) {
        match &mut self.net {
            Net::Real(_) => {
                let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let a = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (b, _) = listener.accept().unwrap();
                a.set_nonblocking(true).unwrap();
                b.set_nonblocking(true).unwrap();
                (self.adopt(a.into()), self.adopt(b.into()))
            }
            Net::Simulated(net) => net.pair(),
        }
    }

    /// A single descriptor that is never writable, and readable exactly while it is raised. (Not
    /// quite: an eventfd can be written. Cases register it for reading only.)
    pub(crate) fn source(&mut self) -> RawFd {
        match &mut self.net {
            Net::Real(_) => {
                // SAFETY: two integers in, a fresh descriptor or -1 out.
                let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
                assert!(fd >= 0, "{}", io::Error::last_os_error());
                // SAFETY: fresh from the kernel, not owned elsewhere.
                self.adopt(unsafe { OwnedFd::from_raw_fd(fd) })
            }
            Net::Simulated(net) => net.levels.open(),
        }
    }

    pub(crate) fn raise(&mut self, source: RawFd) {
        match &mut self.net {
            Net::Real(_) => assert_eq!(write(source, &1u64.to_ne_bytes()).unwrap(), 8),
            Net::Simulated(net) => net.levels.set(source, Ready::READABLE),
        }
    }

    pub(crate) fn lower(&mut self, source: RawFd) {
        match &mut self.net {
            Net::Real(_) => assert_eq!(read(source, &mut [0; 8]).unwrap(), 8),
            Net::Simulated(net) => net.levels.set(source, Ready::NONE),
        }
    }

    /// Takes ownership of a real descriptor.
    pub(crate) fn adopt(&mut self, fd: OwnedFd) -> RawFd {
        let Net::Real(open) = &mut self.net else { panic!("no real descriptors here") };
        let fd = fd.into_raw_fd();
        assert!(open.insert(fd));
        fd
    }

    /// Returns how many bytes were accepted; 0 if there is no room.
    pub(crate) fn write(&mut self, fd: RawFd, count: usize) -> usize {
        match &mut self.net {
            Net::Real(_) => write(fd, &vec![7; count]).unwrap_or(0),
            Net::Simulated(net) => net.write(fd, count),
        }
    }

    /// Writes until there is no more room.
    pub(crate) fn fill(&mut self, fd: RawFd) {
        while self.write(fd, 4096) > 0 {}
    }

    pub(crate) fn read(&mut self, fd: RawFd, at_most: usize) -> Got {
        match &mut self.net {
            Net::Real(_) => match read(fd, &mut vec![0; at_most]) {
                Ok(0) => Got::End,
                Ok(count) => Got::Bytes(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Got::Nothing,
                Err(_) => Got::Broken,
            },
            Net::Simulated(net) => net.read(fd, at_most),
        }
    }

    /// Reads everything available; returns what ended it.
    pub(crate) fn drain(&mut self, fd: RawFd) -> Got {
        loop {
            match self.read(fd, 64 * 1024) {
                Got::Bytes(_) => {}
                end => return end,
            }
        }
    }

    /// Closes the sending direction of this end.
    pub(crate) fn shut_write(&mut self, fd: RawFd) {
        match &mut self.net {
            Net::Real(_) => {
                // SAFETY: acts on our own descriptor, touches no memory.
                assert_eq!(unsafe { libc::shutdown(fd, libc::SHUT_WR) }, 0);
            }
            Net::Simulated(net) => net.shut_write(fd),
        }
    }

    /// Writes and ends the stream so that both travel in one segment (TCP).
    pub(crate) fn write_and_finish(&mut self, fd: RawFd, count: usize) {
        if let Net::Real(_) = self.net {
            set_option(fd, libc::IPPROTO_TCP, libc::TCP_CORK, &1i32);
        }
        assert_eq!(self.write(fd, count), count);
        self.shut_write(fd);
    }

    /// Closes with a reset (TCP).
    pub(crate) fn reset(&mut self, fd: RawFd) {
        match &mut self.net {
            Net::Real(_) => {
                let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
                set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &at_once);
            }
            Net::Simulated(net) => net.reset_peer_of(fd),
        }
        self.close(fd);
    }

    pub(crate) fn close(&mut self, fd: RawFd) {
        match &mut self.net {
            Net::Real(open) => {
                assert!(open.remove(&fd));
                // SAFETY: the world owned it, and has just forgotten it.
                drop(unsafe { OwnedFd::from_raw_fd(fd) });
            }
            Net::Simulated(net) => net.close(fd),
        }
    }

    /// Closes `fd` and opens a new pair, one end of which has the same number. The other is
    /// returned. (In one step: other tests open descriptors in this process, too.)
    pub(crate) fn reopen(&mut self, fd: RawFd) -> RawFd {
        if let Net::Simulated(net) = &mut self.net {
            return net.reopen(fd);
        }
        let (a, b) = self.pair();
        // SAFETY: both are descriptors of the world; the old one is replaced, not leaked.
        assert_eq!(unsafe { libc::dup3(a, fd, libc::O_CLOEXEC) }, fd);
        self.close(a);
        b
    }

    /// What is really ready, queried without our backends.
    pub(crate) fn truth(&self, fd: RawFd) -> Ready {
        if let Net::Simulated(net) = &self.net {
            return directions(net.levels.get(fd));
        }
        let asked = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
        let mut probe = libc::pollfd { fd, events: asked, revents: 0 };
        // SAFETY: one pollfd on this stack frame.
        assert!(unsafe { libc::poll(&raw mut probe, 1, 0) } >= 0);
        let shut = libc::POLLHUP | libc::POLLERR;
        let mut ready = Ready::NONE;
        if probe.revents & (libc::POLLIN | libc::POLLRDHUP | shut) != 0 {
            ready |= Ready::READABLE;
        }
        if probe.revents & (libc::POLLOUT | shut) != 0 {
            ready |= Ready::WRITABLE;
        }
        ready
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.poller = None;
        if let Net::Real(open) = &mut self.net {
            for fd in std::mem::take(open) {
                // SAFETY: the world owned it, and has just forgotten it.
                drop(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
    }
}

/// Keeps only READABLE and WRITABLE.
pub(crate) fn directions(ready: Ready) -> Ready {
    let present = DIRECTIONS.into_iter().filter(|one| ready.has(*one));
    present.fold(Ready::NONE, |all, one| all | one)
}

fn write(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: pointer and length are of one slice; MSG_NOSIGNAL is not to be had for an eventfd,
    // and Rust programs ignore SIGPIPE.
    let done = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

fn read(fd: RawFd, bytes: &mut [u8]) -> io::Result<usize> {
    // SAFETY: pointer and length are of one exclusive slice.
    let done = unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()) };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

fn set_option<T>(fd: RawFd, level: i32, name: i32, value: &T) {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length are of one value of the option's type.
    let done = unsafe { libc::setsockopt(fd, level, name, (&raw const *value).cast(), length) };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

/// Raises the limit to the hard limit, once, for the cases with thousands of descriptors.
fn raise_descriptor_limit() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: one rlimit on this stack frame, read and written.
        unsafe {
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    });
}

/// How many descriptors the process may open.
pub(crate) fn descriptor_limit() -> usize {
    raise_descriptor_limit();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: one rlimit on this stack frame.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur as usize
}

/// Simulated stream sockets, which only count bytes.
struct SimulatedNet {
    levels: Levels,
    sockets: BTreeMap<RawFd, Socket>,
}

struct Socket {
    /// `None` once the peer has closed.
    peer: Option<RawFd>,
    inbox_bytes: usize,
    fin_received: bool,
    write_shut: bool,
    broken: bool,
}

impl SimulatedNet {
    const ROOM_BYTES: usize = 64 * 1024;

    fn pair(&mut self) -> (RawFd, RawFd) {
        let (a, b) = (self.levels.open(), self.levels.open());
        self.connect(a, b);
        (a, b)
    }

    fn reopen(&mut self, fd: RawFd) -> RawFd {
        self.close(fd);
        // The lowest free numbers are used first.
        let lower: Vec<_> = std::iter::repeat_with(|| self.levels.open())
            .take_while(|number| *number != fd)
            .collect();
        let peer = self.levels.open();
        lower.into_iter().for_each(|number| self.levels.close(number));
        self.connect(fd, peer);
        peer
    }

    fn connect(&mut self, a: RawFd, b: RawFd) {
        for (fd, peer) in [(a, b), (b, a)] {
            let socket = Socket {
                peer: Some(peer),
                inbox_bytes: 0,
                fin_received: false,
                write_shut: false,
                broken: false,
            };
            self.sockets.insert(fd, socket);
        }
        self.update(a);
        self.update(b);
    }

    /// Sets the level of `fd` by its state and its peer's.
    fn update(&mut self, fd: RawFd) {
        let socket = &self.sockets[&fd];
        let mut level = Ready::NONE;
        if socket.inbox_bytes > 0 {
            level |= Ready::READABLE;
        }
        if socket.fin_received {
            level |= Ready::READ_CLOSED;
        }
        if socket.peer.is_none() || (socket.fin_received && socket.write_shut) {
            level |= Ready::HANGUP;
        }
        if socket.broken {
            level |= Ready::ERROR;
        }
        if socket.peer.is_none_or(|peer| self.sockets[&peer].inbox_bytes < Self::ROOM_BYTES) {
            level |= Ready::WRITABLE;
        }
        self.levels.set(fd, level);
    }

    fn with(&mut self, fd: RawFd, edit: impl FnOnce(&mut Socket)) {
        edit(self.sockets.get_mut(&fd).unwrap());
        self.update(fd);
        if let Some(peer) = self.sockets[&fd].peer {
            self.update(peer);
        }
    }

    fn write(&mut self, fd: RawFd, count: usize) -> usize {
        let Some(peer) = self.sockets[&fd].peer else { return 0 };
        let room = Self::ROOM_BYTES - self.sockets[&peer].inbox_bytes;
        let taken = if self.sockets[&fd].write_shut { 0 } else { count.min(room) };
        self.with(peer, |socket| socket.inbox_bytes += taken);
        taken
    }

    fn read(&mut self, fd: RawFd, at_most: usize) -> Got {
        let socket = &self.sockets[&fd];
        if socket.broken {
            self.with(fd, |socket| socket.broken = false);
            return Got::Broken;
        }
        match (socket.inbox_bytes, socket.fin_received) {
            (0, true) => Got::End,
            (0, false) => Got::Nothing,
            (waiting, _) => {
                let taken = waiting.min(at_most);
                self.with(fd, |socket| socket.inbox_bytes -= taken);
                Got::Bytes(taken)
            }
        }
    }

    fn shut_write(&mut self, fd: RawFd) {
        self.with(fd, |socket| socket.write_shut = true);
        if let Some(peer) = self.sockets[&fd].peer {
            self.with(peer, |socket| socket.fin_received = true);
        }
    }

    fn reset_peer_of(&mut self, fd: RawFd) {
        if let Some(peer) = self.sockets[&fd].peer {
            self.with(peer, |socket| {
                socket.broken = true;
                socket.inbox_bytes = 0;
            });
        }
    }

    fn close(&mut self, fd: RawFd) {
        self.shut_write(fd);
        let socket = self.sockets.remove(&fd).unwrap();
        self.levels.close(fd);
        if let Some(peer) = socket.peer {
            self.with(peer, |socket| socket.peer = None);
        }
    }
}

/// The descriptor of an object of the standard library.
pub(crate) fn fd_of(thing: &impl AsRawFd) -> RawFd {
    thing.as_raw_fd()
}
