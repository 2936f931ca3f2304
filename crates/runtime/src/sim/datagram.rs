//! Simulated datagrams: whole or lost, in any order.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;

use readiness::Ready;

use super::error;
use super::net::{Event, Id, Net, Socket};

/// The largest datagram that UDP carries.
const DATAGRAM_BYTES_MAX: usize = 65_507;

pub(super) struct Datagrams {
    pub(super) local: SocketAddr,
    fd: RawFd,
    peer: Option<SocketAddr>,
    /// Reported once, to the next operation.
    error: Option<i32>,
    inbound: VecDeque<(SocketAddr, Vec<u8>)>,
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

    pub(super) fn send_datagram(
        &mut self,
        fd: RawFd,
        buf: &[u8],
        to: Option<SocketAddr>,
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
        let loss = self.options.loss;
        if !self.rng.chance(loss) {
            let bytes = buf.to_vec();
            self.plan_delayed(Event::Datagram { from, sender, to, bytes });
        }
        Ok(buf.len())
    }

    pub(super) fn datagram_arrives(
        &mut self,
        from: Id,
        sender: SocketAddr,
        to: SocketAddr,
        bytes: Vec<u8>,
    ) {
        let Some(id) = self.find(true, to) else {
            return self.plan_delayed(Event::Unreachable { from });
        };
        let buffer_bytes = self.options.buffer_bytes;
        let Some(Socket::Datagrams(socket)) = self.sockets.get_mut(&id) else { return };
        let held: usize = socket.inbound.iter().map(|(_, bytes)| bytes.len()).sum();
        let meant = socket.peer.is_none_or(|peer| peer == sender);
        if meant && (held == 0 || held + bytes.len() <= buffer_bytes) {
            socket.inbound.push_back((sender, bytes));
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

    pub(crate) fn recv_from(
        &mut self,
        fd: RawFd,
        buf: &mut [u8],
    ) -> io::Result<(usize, SocketAddr)> {
        let (id, socket) = self.datagrams(fd)?;
        if let Some(number) = socket.error.take() {
            self.refresh(id, Some(fd));
            return error(number);
        }
        let Some((sender, bytes)) = socket.inbound.pop_front() else {
            return error(libc::EAGAIN);
        };
        let read = bytes.len().min(buf.len());
        buf[..read].copy_from_slice(&bytes[..read]);
        self.trace("datagram read", id, read);
        self.refresh(id, Some(fd));
        Ok((read, sender))
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
