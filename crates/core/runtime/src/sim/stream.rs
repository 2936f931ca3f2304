//! Simulated streams: connecting, bytes in flight, ends and resets.
//!
//! ```text
//!   connect --Connect--> listener's queue --accept--> stream
//!           <-Result--
//!   send -----Bytes--> (pieces, in order, each with its delay) ---> inbound --recv-->
//!   shutdown --End---> after the bytes        reset -- overtakes the bytes -->
//! ```
//!
//! A connection holds at most `buffer_bytes` in each direction, in flight and unread together: a
//! sender whose peer does not read runs out of room. As in the kernel, data that arrived before a
//! reset can still be read, closing with unread data resets the connection, and data for a closed
//! socket is answered with a reset.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::RawFd;
use std::time::Duration;

use readiness::Ready;

use super::error::error;
use super::net::{Event, Id, Net, Socket};
use super::options::STALL_MAX;
use crate::sys::options::ListenOptions;

/// A connect to a listener with a full backlog is repeated after this, as often as the kernel does.
const CONNECT_AGAIN_NS: u64 = 1_000_000_000;
const CONNECT_TRIES_MAX: u32 = 6;

pub(super) struct Listener {
    pub(super) address: SocketAddr,
    fd: RawFd,
    backlog: usize,
    queue: VecDeque<Id>,
}

impl Listener {
    pub(super) fn level(&self) -> Ready {
        if self.queue.is_empty() { Ready::NONE } else { Ready::READABLE }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Connecting,
    Connected,
    /// Reset, or never connected.
    Dead,
}

pub(super) struct Stream {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// `None` while it waits to be accepted.
    fd: Option<RawFd>,
    peer: Option<Id>,
    phase: Phase,
    /// Reported once, to the next operation.
    error: Option<i32>,
    inbound: VecDeque<u8>,
    /// Bytes sent that have not arrived. `in_flight + peer.inbound.len() <= buffer_bytes`
    in_flight: usize,
    /// Later sends arrive no earlier than this.
    last_arrival_ns: u64,
    /// The peer's end has arrived.
    ended: bool,
    read_shut: bool,
    write_shut: bool,
    linger0: bool,
}

impl Stream {
    fn new(local: SocketAddr, remote: SocketAddr, phase: Phase, peer: Option<Id>) -> Stream {
        Stream {
            local,
            remote,
            fd: None,
            peer,
            phase,
            error: None,
            inbound: VecDeque::new(),
            in_flight: 0,
            last_arrival_ns: 0,
            ended: false,
            read_shut: false,
            write_shut: false,
            linger0: false,
        }
    }

    pub(super) fn level(&self, room: usize) -> Ready {
        if self.phase == Phase::Connecting {
            return Ready::NONE;
        }
        let dead = self.phase == Phase::Dead;
        let mut level = Ready::NONE;
        if !self.inbound.is_empty() {
            level |= Ready::READABLE;
        }
        if self.ended || self.read_shut || dead {
            level |= Ready::READ_CLOSED;
        }
        if room > 0 || self.write_shut {
            level |= Ready::WRITABLE;
        }
        if dead || (self.write_shut && (self.ended || self.read_shut)) {
            level |= Ready::HANGUP;
        }
        if self.error.is_some() {
            level |= Ready::ERROR;
        }
        level
    }
}

/// Connecting.
impl Net {
    pub(crate) fn listen_tcp(
        &mut self,
        address: SocketAddr,
        options: &ListenOptions,
    ) -> io::Result<RawFd> {
        let address = self.with_port(address);
        self.check_room()?;
        self.check_free(false, address, options.reuse_port)?;
        let backlog = options.backlog.max(1) as usize;
        let listener = Listener { address, fd: -1, backlog, queue: VecDeque::new() };
        let id = self.add(Socket::Listener(listener));
        self.bound.entry((false, address)).or_default().push(id);
        let fd = self.open_fd(id);
        if let Some(Socket::Listener(listener)) = self.sockets.get_mut(&id) {
            listener.fd = fd;
        }
        self.trace("listen", id, 0);
        Ok(fd)
    }

    pub(super) fn close_listener(&mut self, id: Id, listener: Listener) {
        self.unbind((false, listener.address), id);
        for waiting in listener.queue {
            if let Some(Socket::Stream(stream)) = self.sockets.remove(&waiting) {
                self.reset_peer(&stream);
            }
        }
    }

    pub(crate) fn connect_tcp(&mut self, address: SocketAddr) -> io::Result<(RawFd, bool)> {
        self.check_room()?;
        let local = self.own_address(address);
        let stream = Stream::new(local, address, Phase::Connecting, None);
        let client = self.add(Socket::Stream(stream));
        let fd = self.open_stream_fd(client);
        self.trace("connect", client, 0);
        self.plan_delayed(Event::Connect { client, to: address, tries: 1 });
        Ok((fd, false))
    }

    pub(crate) fn finish_connect_tcp(&mut self, fd: RawFd, _to: SocketAddr) -> io::Result<bool> {
        let (_, stream) = self.stream(fd)?;
        match stream.phase {
            Phase::Connecting => Ok(false),
            Phase::Connected => Ok(true),
            Phase::Dead => error(stream.error.take().unwrap_or(libc::ECONNABORTED)),
        }
    }

    /// A connect reaches its address.
    pub(super) fn connect_arrives(&mut self, client: Id, to: SocketAddr, tries: u32) {
        let Some(Socket::Stream(stream)) = self.sockets.get(&client) else { return };
        let from = stream.local;
        let refuse = self.options.refuse;
        let refused = self.rng.chance(refuse);
        let listener = self.find(false, to).filter(|_| !refused);
        let Some(listener) = listener else {
            return self.plan_delayed(Event::ConnectResult { client, error: libc::ECONNREFUSED });
        };
        if self.backlog_is_full(listener) {
            if tries == CONNECT_TRIES_MAX {
                return self.plan_delayed(Event::ConnectResult { client, error: libc::ETIMEDOUT });
            }
            let again_ns = self.now_ns + (CONNECT_AGAIN_NS << (tries - 1));
            return self.plan(again_ns, Event::Connect { client, to, tries: tries + 1 });
        }
        let answer_ns = self.arrival_ns();
        self.plan(answer_ns, Event::ConnectResult { client, error: 0 });
        let server = self.enqueue(listener, client, to, from);
        if let Some(Socket::Stream(server)) = self.sockets.get_mut(&server) {
            server.last_arrival_ns = answer_ns;
        }
    }

    /// Creates the server's end of a connection and queues it to be accepted.
    fn enqueue(&mut self, listener: Id, client: Id, local: SocketAddr, remote: SocketAddr) -> Id {
        let end = Stream::new(local, remote, Phase::Connected, Some(client));
        let server = self.add(Socket::Stream(end));
        if let Some(Socket::Stream(stream)) = self.sockets.get_mut(&client) {
            stream.peer = Some(server);
        }
        if let Some(Socket::Listener(at)) = self.sockets.get_mut(&listener) {
            at.queue.push_back(server);
            let fd = at.fd;
            self.refresh(listener, Some(fd));
        }
        server
    }

    fn backlog_is_full(&self, listener: Id) -> bool {
        match self.sockets.get(&listener) {
            Some(Socket::Listener(listener)) => listener.queue.len() >= listener.backlog,
            _ => true,
        }
    }

    /// The result of a connect arrives.
    pub(super) fn connect_result_arrives(&mut self, client: Id, error: i32) {
        let Some(Socket::Stream(stream)) = self.sockets.get_mut(&client) else { return };
        if stream.phase != Phase::Connecting {
            return; // a reset came first
        }
        if error == 0 {
            stream.phase = Phase::Connected;
        } else {
            stream.phase = Phase::Dead;
            stream.error = Some(error);
        }
        self.trace("answer", client, error as usize);
        self.refresh_stream(client);
    }

    pub(crate) fn accept_tcp(&mut self, fd: RawFd) -> io::Result<(RawFd, SocketAddr)> {
        let (id, Socket::Listener(listener)) = self.socket(fd) else { return error(libc::EINVAL) };
        if listener.queue.is_empty() {
            return error(libc::EAGAIN);
        }
        self.check_room()?;
        let (_, Socket::Listener(listener)) = self.socket(fd) else { return error(libc::EINVAL) };
        let accepted = listener.queue.pop_front().expect("checked just before");
        self.refresh(id, Some(fd));
        let fd = self.open_stream_fd(accepted);
        self.trace("accept", accepted, 0);
        match &self.sockets[&accepted] {
            Socket::Stream(stream) => Ok((fd, stream.remote)),
            _ => error(libc::EINVAL),
        }
    }
}

/// Bytes.
impl Net {
    pub(crate) fn send(&mut self, fd: RawFd, buf: &[u8]) -> io::Result<usize> {
        if let (_, Socket::Datagrams(_)) = self.socket(fd) {
            return self.send_datagram(fd, buf, None, 0);
        }
        let (id, stream) = self.stream(fd)?;
        if let Some(number) = stream.error.take() {
            self.refresh_stream(id);
            return error(number);
        }
        match stream.phase {
            Phase::Connecting => return error(libc::EAGAIN),
            Phase::Dead => return error(libc::EPIPE),
            Phase::Connected if stream.write_shut => return error(libc::EPIPE),
            Phase::Connected => {}
        }
        let peer = stream.peer;
        let Some(Socket::Stream(stream)) = self.sockets.get(&id) else { return Ok(0) };
        let mut taken = buf.len().min(self.room(stream));
        if taken == 0 && !buf.is_empty() {
            return error(libc::EAGAIN);
        }
        let short_write = self.options.short_write;
        if taken > 1 && self.rng.chance(short_write) {
            taken = 1 + self.rng.below(taken as u64 - 1) as usize;
        }
        self.trace("send", id, taken);
        let stall = self.options.stall;
        if self.rng.chance(stall) {
            self.stall(id);
        }
        self.send_pieces(id, peer, &buf[..taken]);
        debug_assert!(self.is_bounded(id), "a connection holds no more than its buffer");
        let reset = self.options.reset;
        if self.rng.chance(reset) {
            self.break_connection(id);
        }
        self.refresh_stream(id);
        Ok(taken)
    }

    /// `in_flight + peer.inbound.len() <= buffer_bytes`.
    fn is_bounded(&self, id: Id) -> bool {
        let Some(Socket::Stream(stream)) = self.sockets.get(&id) else { return true };
        let unread = match stream.peer.and_then(|peer| self.sockets.get(&peer)) {
            Some(Socket::Stream(peer)) => peer.inbound.len(),
            _ => 0,
        };
        stream.in_flight + unread <= self.options.buffer_bytes
    }

    /// Splits `bytes` and schedules the pieces.
    fn send_pieces(&mut self, id: Id, peer: Option<Id>, bytes: &[u8]) {
        let split = self.options.split;
        let mut start = 0;
        for end in 1..=bytes.len() {
            if end < bytes.len() && !self.rng.chance(split) {
                continue;
            }
            let piece = bytes[start..end].to_vec();
            start = end;
            let at_ns = self.in_order_ns(id);
            if let Some(Socket::Stream(stream)) = self.sockets.get_mut(&id) {
                stream.in_flight += piece.len();
            }
            // A closed peer has no number; no socket has the number 0.
            let to = peer.unwrap_or_default();
            self.plan(at_ns, Event::Bytes { from: id, to, bytes: piece });
        }
    }

    /// Delays everything that `id` sends from now on.
    fn stall(&mut self, id: Id) {
        let until_ns = self.now_ns + self.draw(&(Duration::ZERO..STALL_MAX));
        if let Some(Socket::Stream(stream)) = self.sockets.get_mut(&id) {
            stream.last_arrival_ns = stream.last_arrival_ns.max(until_ns);
        }
        self.trace("stall", id, 0);
    }

    /// The arrival time of the next data of `id`: never before earlier data.
    fn in_order_ns(&mut self, id: Id) -> u64 {
        let at_ns = self.arrival_ns();
        let Some(Socket::Stream(stream)) = self.sockets.get_mut(&id) else { return at_ns };
        stream.last_arrival_ns = stream.last_arrival_ns.max(at_ns);
        stream.last_arrival_ns
    }

    pub(super) fn bytes_arrive(&mut self, from: Id, to: Id, bytes: &[u8]) {
        self.trace("bytes", to, bytes.len());
        if let Some(Socket::Stream(sender)) = self.sockets.get_mut(&from) {
            assert!(sender.in_flight >= bytes.len(), "what arrives was in flight");
            sender.in_flight -= bytes.len();
        }
        match self.sockets.get_mut(&to) {
            Some(Socket::Stream(stream)) => {
                if stream.phase != Phase::Dead && !stream.read_shut {
                    stream.inbound.extend(bytes);
                }
                self.refresh_stream(to);
                self.refresh_stream(from);
            }
            _ => self.plan_delayed(Event::Reset { to: from }),
        }
    }

    pub(super) fn read(&mut self, fd: RawFd, buf: &mut [u8], peek: bool) -> io::Result<usize> {
        if let (_, Socket::Datagrams(_)) = self.socket(fd) {
            return self.recv_from(fd, buf).map(|(read, _)| read);
        }
        let (id, stream) = self.stream(fd)?;
        if stream.inbound.is_empty() {
            if let Some(number) = stream.error.take() {
                self.refresh_stream(id);
                return error(number);
            }
            let ended = stream.ended || stream.read_shut || stream.phase == Phase::Dead;
            return if ended { Ok(0) } else { error(libc::EAGAIN) };
        }
        let there = buf.len().min(stream.inbound.len());
        let read = self.short_read(there);
        let (_, stream) = self.stream(fd)?;
        for (to, from) in buf.iter_mut().zip(stream.inbound.iter().take(read)) {
            *to = *from;
        }
        if !peek {
            stream.inbound.drain(..read);
        }
        let peer = stream.peer;
        self.trace("recv", id, read);
        self.refresh_stream(id);
        if let Some(peer) = peer {
            self.refresh_stream(peer); // it has room again
        }
        Ok(read)
    }

    /// How many bytes `stream` may send now.
    pub(super) fn room(&self, stream: &Stream) -> usize {
        let unread = match stream.peer.and_then(|peer| self.sockets.get(&peer)) {
            Some(Socket::Stream(peer)) => peer.inbound.len(),
            _ => 0,
        };
        self.options.buffer_bytes.saturating_sub(stream.in_flight + unread)
    }
}

/// Ends.
impl Net {
    pub(crate) fn shutdown(&mut self, fd: RawFd, how: Shutdown) -> io::Result<()> {
        let (id, stream) = self.stream(fd)?;
        if stream.phase != Phase::Connected {
            return error(libc::ENOTCONN);
        }
        let ends = how != Shutdown::Read && !std::mem::replace(&mut stream.write_shut, true);
        if how != Shutdown::Write {
            stream.read_shut = true;
        }
        let peer = stream.peer;
        self.trace("shutdown", id, 0);
        if let (true, Some(peer)) = (ends, peer) {
            let at_ns = self.in_order_ns(id);
            self.plan(at_ns, Event::End { to: peer });
        }
        self.refresh_stream(id);
        Ok(())
    }

    pub(super) fn end_arrives(&mut self, to: Id) {
        self.trace("end", to, 0);
        if let Some(Socket::Stream(stream)) = self.sockets.get_mut(&to) {
            stream.ended = true;
            self.refresh_stream(to);
        }
    }

    pub(super) fn reset_arrives(&mut self, to: Id) {
        let Some(Socket::Stream(stream)) = self.sockets.get_mut(&to) else { return };
        if stream.phase == Phase::Dead {
            return;
        }
        stream.phase = Phase::Dead;
        stream.error = Some(if stream.ended { libc::EPIPE } else { libc::ECONNRESET });
        self.trace("reset", to, 0);
        self.refresh_stream(to);
    }

    pub(crate) fn set_linger0(&mut self, fd: RawFd) -> io::Result<()> {
        self.stream(fd)?.1.linger0 = true;
        Ok(())
    }

    /// Sends an end or a reset to the peer of a socket that has been removed.
    pub(super) fn close_stream(&mut self, stream: Stream) {
        if stream.phase != Phase::Connected {
            return;
        }
        if stream.linger0 || !stream.inbound.is_empty() {
            return self.reset_peer(&stream);
        }
        if let (false, Some(peer)) = (stream.write_shut, stream.peer) {
            let at_ns = self.arrival_ns().max(stream.last_arrival_ns);
            self.plan(at_ns, Event::End { to: peer });
        }
    }

    fn reset_peer(&mut self, stream: &Stream) {
        if let Some(peer) = stream.peer {
            self.plan_delayed(Event::Reset { to: peer });
        }
    }

    /// Resets both ends of a connection, each after its own delay.
    fn break_connection(&mut self, id: Id) {
        let Some(Socket::Stream(stream)) = self.sockets.get(&id) else { return };
        let peer = stream.peer;
        self.plan_delayed(Event::Reset { to: id });
        if let Some(peer) = peer {
            self.plan_delayed(Event::Reset { to: peer });
        }
    }

    pub(super) fn crash_connections(&mut self, address: SocketAddr) {
        let at_address = self.sockets.iter().filter_map(|(&id, socket)| match socket {
            Socket::Stream(stream) if stream.local == address => Some(id),
            _ => None,
        });
        for id in at_address.collect::<Vec<_>>() {
            self.break_connection(id);
        }
    }

    fn stream(&mut self, fd: RawFd) -> io::Result<(Id, &mut Stream)> {
        match self.socket(fd) {
            (id, Socket::Stream(stream)) => Ok((id, stream)),
            _ => error(libc::ENOTCONN),
        }
    }

    fn open_stream_fd(&mut self, id: Id) -> RawFd {
        let fd = self.open_fd(id);
        if let Some(Socket::Stream(stream)) = self.sockets.get_mut(&id) {
            stream.fd = Some(fd);
        }
        fd
    }

    fn refresh_stream(&mut self, id: Id) {
        if let Some(Socket::Stream(stream)) = self.sockets.get(&id) {
            let fd = stream.fd;
            self.refresh(id, fd);
        }
    }
}
