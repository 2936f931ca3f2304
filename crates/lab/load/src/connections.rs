//! The connections of a run: the ones that carry requests, and the cold ones.
//!
//! What: a table of fixed size, the hot slots first, and their sockets. Ownership: a slot owns its
//! socket, which leaves the poller before it is closed. What never happens: an event of a closed
//! socket reaches the socket that took over its slot (tokens carry a generation).
//!
//! ```text
//! Closed --connect--> Connecting --established--> Idle --send--> Busy --whole--> Idle
//!    ^                                                          |
//!    |   (one request each)   Ending <--whole-----------------+
//!    +------- any error, the peer's close ----------------------+
//! ```
//! A `Connecting` slot may have its request waiting in `unsent`; it becomes `Busy` as soon as the
//! connection is established. Cold slots stay in `Idle`.

use std::io::{self, ErrorKind::ConnectionAborted, ErrorKind::WriteZero};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use readiness::{Interest, Poller, Token};
use rustix::net::SocketType;

use crate::plan::{Opening, Plan, Protocol};
use crate::response::{Reader, Requested};
use crate::sys;
use crate::tls::{Session, Tls};
use crate::websocket;

/// The longest answer to the first bytes of a connection.
const FIRST_ANSWER_BYTES_MAX: usize = 4096;
/// A header of the PROXY protocol. The addresses are for documentation (RFC 5737).
const PROXY_HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 203.0.113.1 40000 80\r\n";

/// The state of a connection; the file's header has the diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Closed,
    Connecting,
    Idle,
    Busy,
    Ending,
}

/// A request that was assigned to a connection or a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assigned {
    /// When it was meant to start, ns.
    pub(crate) intended_ns: u64,
    /// When it was assigned, ns.
    pub(crate) assigned_ns: u64,
    /// How much of the time from the intended start may be the generator's own fault, ns.
    pub(crate) lag_ns: u64,
    pub(crate) requested: Requested,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) step: Step,
    fd: Option<OwnedFd>,
    /// TLS, from the end of the TCP handshake on.
    session: Option<Box<Session>>,
    generation: u32,
    /// When it began to connect, ns.
    pub(crate) connect_ns: u64,
    /// Whether the poller also reports writability.
    wants_write: bool,
    /// A request is in flight, or waits for the connection to be established.
    pub(crate) has_request: bool,
    pub(crate) assigned: Assigned,
    /// The part of the answer to its first bytes that has come.
    first_answer: Vec<u8>,
    /// Request bytes that the socket has not accepted yet.
    pub(crate) unsent: Vec<u8>,
    pub(crate) reader: Reader,
}

impl Connection {
    pub(crate) fn fd(&self) -> RawFd {
        self.socket().as_raw_fd()
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        self.fd.as_ref().expect("only open connections are read and written")
    }

    /// Sends as much as the socket accepts; TLS accepts all.
    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fd = self.fd();
        match &mut self.session {
            None => sys::send(fd, bytes),
            Some(session) => session.send(fd, bytes).map(|()| bytes.len()),
        }
    }

    /// Sends the first bytes, and reads the answer to them. True when the answer is complete.
    fn open(&mut self, first: &First) -> io::Result<bool> {
        if self.wants_write {
            // The first event. The buffer of a new socket takes these few bytes.
            let sent = sys::send(self.fd(), &first.sent)?;
            let is_complete = first.answer.is_empty();
            return if sent == first.sent.len() { Ok(is_complete) } else { Err(WriteZero.into()) };
        }
        let mut piece = [0; 512];
        match sys::recv(self.fd(), &mut piece) {
            Ok(0) => return Err(ConnectionAborted.into()),
            Ok(count) => self.first_answer.extend_from_slice(&piece[..count]),
            Err(e) if sys::would_block(&e) => return Ok(false),
            Err(e) => return Err(e),
        }
        let answer = self.first_answer.as_slice();
        let opened = &first.answer[..answer.len().min(first.answer.len())];
        if !answer.starts_with(opened) || answer.len() > FIRST_ANSWER_BYTES_MAX {
            let text = String::from_utf8_lossy(answer);
            let line = text.lines().next().unwrap_or_default().escape_debug();
            return Err(io::Error::other(format!("{}: {line}", first.refused)));
        }
        Ok(answer.ends_with(b"\r\n\r\n"))
    }

    /// Whether its TLS handshake resumed an earlier session.
    pub(crate) fn has_resumed(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_resumed())
    }

    /// Whether TLS has bytes that the socket has not accepted.
    #[inline]
    pub(crate) fn holds_records(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_unsent())
    }
}

/// What each connection begins with.
struct First {
    sent: Vec<u8>,
    /// How the answer begins; empty if there is none.
    answer: &'static [u8],
    /// What another answer means.
    refused: &'static str,
}

impl First {
    fn of(plan: &Plan) -> Option<First> {
        let authority = &plan.target.authority;
        let (sent, answer, refused): (_, &[u8], _) = match plan.opening {
            Opening::Nothing if plan.target.tunnel => {
                let connect = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
                (connect.into_bytes(), b"HTTP/1.1 2", "the proxy opens no tunnel")
            }
            Opening::Nothing => return None,
            Opening::WebSocket => {
                let handshake = websocket::handshake(plan.host(), &plan.target.path);
                (handshake, b"HTTP/1.1 101 ", "no upgrade to WebSocket")
            }
            Opening::ProxyHeader => (PROXY_HEADER.to_vec(), b"", ""),
        };
        Some(First { sent, answer, refused })
    }
}

pub(crate) struct Connections {
    pub(crate) table: Vec<Connection>,
    hot: u32,
    target: SocketAddr,
    sources: u32,
    socket_type: SocketType,
    /// For all connections, or for none.
    tls: Option<Tls>,
    first: Option<First>,
    pub(crate) poller: Poller,
}

impl Connections {
    pub(crate) fn new(plan: &Plan, tls: Option<Tls>, poller: Poller) -> Connections {
        let requested = Requested { object: 0, size: None, verify: false };
        let nothing = Assigned { intended_ns: 0, assigned_ns: 0, lag_ns: 0, requested };
        let empty = || Connection {
            step: Step::Closed,
            fd: None,
            session: None,
            generation: 0,
            connect_ns: 0,
            wants_write: false,
            first_answer: Vec::new(),
            has_request: false,
            assigned: nothing,
            unsent: Vec::new(),
            reader: Reader::new(),
        };
        let mut table = Vec::new();
        table.resize_with((plan.connections + plan.cold) as usize, empty);
        let (target, sources) = (plan.target.addr, plan.source_count());
        let socket_type = match plan.protocol {
            Protocol::Http3 { .. } => SocketType::DGRAM,
            Protocol::Http1 | Protocol::Http2 { .. } => SocketType::STREAM,
        };
        let (hot, first) = (plan.connections, First::of(plan));
        Connections { table, hot, target, sources, socket_type, tls, first, poller }
    }

    pub(crate) fn is_cold(&self, slot: u32) -> bool {
        slot >= self.hot
    }

    /// The slot of a token, unless its socket has been closed.
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
        let fd = sys::connect(self.socket_type, self.target, source)?;
        let connection = &mut self.table[slot as usize];
        debug_assert_eq!(connection.step, Step::Closed);
        let token = Token::new(slot, connection.generation);
        self.poller.register(fd.as_raw_fd(), token, Interest::BOTH)?;
        connection.fd = Some(fd);
        connection.wants_write = true;
        connection.step = Step::Connecting;
        connection.connect_ns = sys::mono_ns();
        Ok(())
    }

    /// Goes on with a connect after the poller reported an event for it. True when the connection
    /// is established.
    pub(crate) fn connected(&mut self, slot: u32) -> io::Result<bool> {
        let connection = &mut self.table[slot as usize];
        let mut is_established = true;
        if connection.session.is_none() {
            sys::socket_error(connection.socket())?;
        }
        if let Some(tls) = &mut self.tls {
            let fd = connection.fd();
            let session = match &mut connection.session {
                Some(session) => session,
                none => none.insert(Box::new(tls.session()?)),
            };
            is_established = tls.handshake(session, fd)?;
        }
        if let Some(first) = &self.first {
            is_established = connection.open(first)?;
        }
        if is_established {
            connection.step = Step::Idle;
        }
        let holds_records = connection.holds_records();
        self.set_wants_write(slot, holds_records)?;
        Ok(is_established)
    }

    /// As recv(2). If there is TLS, `buf` has room for `tls::ROOM_BYTES_MIN`.
    #[inline]
    pub(crate) fn recv(&mut self, slot: u32, buf: &mut [u8]) -> io::Result<usize> {
        let connection = &mut self.table[slot as usize];
        let fd = connection.fd();
        match (&mut connection.session, &mut self.tls) {
            (Some(session), Some(tls)) => tls.recv(session, fd, buf),
            _ => sys::recv(fd, buf),
        }
    }

    /// Whether the server has said over TLS that nothing more comes.
    pub(crate) fn has_ended(&mut self, slot: u32) -> bool {
        let session = &mut self.table[slot as usize].session;
        session.as_mut().is_some_and(|session| session.has_ended())
    }

    /// Turns the poller's reports of writability on or off.
    pub(crate) fn set_wants_write(&mut self, slot: u32, wanted: bool) -> io::Result<()> {
        let connection = &mut self.table[slot as usize];
        if connection.wants_write == wanted {
            return Ok(());
        }
        connection.wants_write = wanted;
        let interest = if wanted { Interest::BOTH } else { Interest::READ };
        let token = Token::new(slot, connection.generation);
        self.poller.change(connection.fd(), token, interest)
    }

    /// Sends the remainder of the request. True when the socket has accepted all of it.
    pub(crate) fn send_unsent(&mut self, slot: u32) -> io::Result<bool> {
        let connection = &mut self.table[slot as usize];
        let mut unsent = std::mem::take(&mut connection.unsent);
        let result = loop {
            if unsent.is_empty() && !connection.holds_records() {
                break Ok(true);
            }
            match connection.send(&unsent) {
                Ok(count) => drop(unsent.drain(..count)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => break Err(e),
            }
            if connection.holds_records() {
                break Ok(false);
            }
        };
        connection.unsent = unsent;
        let all = result?;
        self.set_wants_write(slot, !all)?;
        Ok(all)
    }

    /// Closes a slot's socket, if it has one. `by_reset` avoids TIME_WAIT.
    pub(crate) fn close(&mut self, slot: u32, by_reset: bool) {
        let connection = &mut self.table[slot as usize];
        if let Some(fd) = connection.fd.take() {
            if by_reset {
                sys::reset_on_close(&fd);
            }
            // `connect` registered it; a failure means it is already gone.
            let _gone = self.poller.remove(fd.as_raw_fd());
            connection.generation = connection.generation.wrapping_add(1);
        }
        connection.session = None;
        connection.unsent.clear();
        connection.first_answer.clear();
        connection.step = Step::Closed;
    }

    /// Number of open cold connections.
    pub(crate) fn cold_open(&self) -> u64 {
        let cold = &self.table[self.hot as usize..];
        cold.iter().filter(|connection| connection.step == Step::Idle).count() as u64
    }
}
