//! Simulated datagrams: whole or lost, in any order.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;

use readiness::Ready;

use super::error::error;
use super::net::{Event, Id, Net, Socket};

/// The largest datagram that UDP carries.
const DATAGRAM_BYTES_MAX: usize = 65_507;
/// Bytes that wait in a socket: what Linux has by default. More are lost.
const BUFFER_BYTES: usize = 212_992;
/// The delays of the network that a datagram takes if others may overtake it.
const REORDERED_DELAYS: u64 = 3;

/// A datagram on its way.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) sender: SocketAddr,
    pub(crate) to: SocketAddr,
    /// The two ECN bits.
    pub(crate) ecn: u8,
    pub(crate) bytes: Vec<u8>,
}

pub(super) struct Datagrams {
    pub(super) local: SocketAddr,
    fd: RawFd,
    peer: Option<SocketAddr>,
    /// Reported once, to the next operation.
    error: Option<i32>,
    inbound: VecDeque<Datagram>,
    /// When the last datagram that it sent arrives.
    last_arrival_ns: u64,
}

impl Datagrams {
    pub(super) fn level(&self) -> Ready {
        let mut level = Ready::WRITABLE;
        if !self.inbound.is_empty() {
            level |= Ready::READABLE;
        }
        if self.error.is_some() {
            level |= Ready::ERROR;
        }
        level
    }
}

impl Net {
    pub(crate) fn bind_udp(&mut self, address: SocketAddr) -> io::Result<RawFd> {
        self.check_room()?;
        let local = self.with_port(address);
        let place = (true, local);
        self.check_free(true, local, false)?;
        let inbound = VecDeque::new();
        let id = self.add(Socket::Datagrams(Datagrams {
            local,
            fd: -1,
            peer: None,
            error: None,
            inbound,
            last_arrival_ns: 0,
        }));
        self.bound.entry(place).or_default().push(id);
        let fd = self.open_fd(id);
        self.datagrams(fd)?.1.fd = fd;
        Ok(fd)
    }

    pub(crate) fn connect_udp(&mut self, fd: RawFd, address: SocketAddr) -> io::Result<()> {
        self.datagrams(fd)?.1.peer = Some(address);
        Ok(())
    }

    pub(crate) fn send_datagram(
        &mut self,
        fd: RawFd,
        buf: &[u8],
        to: Option<SocketAddr>,
        ecn: u8,
    ) -> io::Result<usize> {
        let (from, socket) = self.datagrams(fd)?;
        if let Some(number) = socket.error.take() {
            self.refresh(from, Some(fd));
            return error(number);
        }
        let Some(to) = to.or(socket.peer) else { return error(libc::EDESTADDRREQ) };
        if buf.len() > DATAGRAM_BYTES_MAX {
            return error(libc::EMSGSIZE);
        }
        let sender = sender_of(socket.local);
        self.trace("datagram", from, buf.len());
        let (loss, duplicate) = (self.options.loss, self.options.duplicate);
        let datagram = Datagram { sender, to, ecn, bytes: buf.to_vec() };
        if self.rng.chance(duplicate) {
            self.plan_datagram(fd, from, datagram.clone())?;
        }
        if !self.rng.chance(loss) {
            self.plan_datagram(fd, from, datagram)?;
        }
        Ok(buf.len())
    }

    /// A datagram arrives after those that its socket has sent before, unless it is reordered.
    fn plan_datagram(&mut self, fd: RawFd, from: Id, datagram: Datagram) -> io::Result<()> {
        let mut at_ns = self.arrival_ns();
        let reorder = self.options.reorder;
        if self.rng.chance(reorder) {
            at_ns += (at_ns - self.now_ns) * (REORDERED_DELAYS - 1);
        } else {
            let last_ns = &mut self.datagrams(fd)?.1.last_arrival_ns;
            at_ns = at_ns.max(*last_ns + 1);
            *last_ns = at_ns;
        }
        self.plan(at_ns, Event::Datagram { from, datagram });
        Ok(())
    }

    pub(super) fn datagram_arrives(&mut self, from: Id, datagram: Datagram) {
        let Some(id) = self.find(true, datagram.to) else {
            return self.plan_delayed(Event::Unreachable { from });
        };
        let Some(Socket::Datagrams(socket)) = self.sockets.get_mut(&id) else { return };
        let held: usize = socket.inbound.iter().map(|datagram| datagram.bytes.len()).sum();
        let meant = socket.peer.is_none_or(|peer| peer == datagram.sender);
        if meant && held + datagram.bytes.len() <= BUFFER_BYTES {
            socket.inbound.push_back(datagram);
            let fd = socket.fd;
            self.trace("datagram arrives", id, 0);
            self.refresh(id, Some(fd));
        }
    }

    /// As in the kernel, only a connected socket sees the error.
    pub(super) fn unreachable(&mut self, from: Id) {
        let Some(Socket::Datagrams(socket)) = self.sockets.get_mut(&from) else { return };
        if socket.peer.is_some() {
            socket.error = Some(libc::ECONNREFUSED);
            let fd = socket.fd;
            self.refresh(from, Some(fd));
        }
    }

    /// Receives a datagram: how much of it fits into `buf`, and the whole.
    pub(crate) fn recv_datagram(
        &mut self,
        fd: RawFd,
        buf: &mut [u8],
    ) -> io::Result<(usize, Datagram)> {
        let (id, socket) = self.datagrams(fd)?;
        if let Some(number) = socket.error.take() {
            self.refresh(id, Some(fd));
            return error(number);
        }
        let Some(datagram) = socket.inbound.pop_front() else {
            return error(libc::EAGAIN);
        };
        let read = datagram.bytes.len().min(buf.len());
        buf[..read].copy_from_slice(&datagram.bytes[..read]);
        self.trace("datagram read", id, read);
        self.refresh(id, Some(fd));
        Ok((read, datagram))
    }

    fn datagrams(&mut self, fd: RawFd) -> io::Result<(Id, &mut Datagrams)> {
        match self.socket(fd) {
            (id, Socket::Datagrams(datagrams)) => Ok((id, datagrams)),
            _ => error(libc::EOPNOTSUPP),
        }
    }
}

/// The address that a receiver sees: a socket bound to all addresses sends from the loopback one.
fn sender_of(local: SocketAddr) -> SocketAddr {
    let ip = match local.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, local.port())
}
