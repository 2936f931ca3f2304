//! UDP.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use crate::core;
use crate::counters::count;
use crate::io::{Direction, Socket};

/// A socket for datagrams.
#[derive(Debug)]
pub struct UdpSocket(Socket);

impl UdpSocket {
    /// A socket at `address`; port 0 lets the system choose one.
    ///
    /// # Errors
    /// The address is in use, is not local, or may not be used.
    pub fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
        let core = core::current();
        let fd = core.world.bind_udp(address)?;
        Ok(UdpSocket(Socket::new(core, fd, true)?))
    }

    /// Makes the socket send to `address` and receive only from there.
    ///
    /// # Errors
    /// What the system says.
    pub fn connect(&self, address: SocketAddr) -> io::Result<()> {
        self.0.world().connect_udp(self.0.fd(), address)
    }

    /// Waits until there is a datagram or an error.
    ///
    /// # Errors
    /// The system refuses to watch one more descriptor.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.ready(Direction::Read).await
    }

    /// Waits until there is room for a datagram.
    ///
    /// # Errors
    /// As [`UdpSocket::readable`].
    pub async fn writable(&self) -> io::Result<()> {
        self.0.ready(Direction::Write).await
    }

    /// [`UdpSocket::readable`] for hand-written futures.
    ///
    /// # Errors
    /// As [`UdpSocket::readable`].
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_ready(cx, Direction::Read)
    }

    /// Sends one datagram, if there is room.
    ///
    /// # Errors
    /// `WouldBlock`, or what the system says.
    pub fn try_send_to(&self, buf: &[u8], address: SocketAddr) -> io::Result<usize> {
        count(&self.0.core().counters.send_calls);
        let result = self.0.world().send_to(self.0.fd(), buf, address);
        self.0.after_one(&result, Direction::Write);
        result
    }

    /// Receives one datagram and its sender; bytes that do not fit into `buf` are lost.
    ///
    /// # Errors
    /// `WouldBlock`, or what the system says.
    pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        count(&self.0.core().counters.recv_calls);
        let result = self.0.world().recv_from(self.0.fd(), buf);
        self.0.after_one(&result, Direction::Read);
        result
    }

    /// Sends one datagram to the connected peer, if there is room.
    ///
    /// # Errors
    /// `WouldBlock`, `ConnectionRefused` if an earlier datagram found no receiver, or what the
    /// system says.
    pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
        count(&self.0.core().counters.send_calls);
        let result = self.0.world().send(self.0.fd(), buf);
        self.0.after_one(&result, Direction::Write);
        result
    }

    /// Receives one datagram from the connected peer.
    ///
    /// # Errors
    /// As [`UdpSocket::try_send`].
    pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        count(&self.0.core().counters.recv_calls);
        let result = self.0.world().recv(self.0.fd(), buf);
        self.0.after_one(&result, Direction::Read);
        result
    }

    /// Sends one datagram.
    ///
    /// # Errors
    /// What the system says.
    pub async fn send_to(&self, buf: &[u8], address: SocketAddr) -> io::Result<usize> {
        match self.try_send_to(buf, address) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
        self.0.wait_then(Direction::Write, || self.try_send_to(buf, address)).await
    }

    /// Receives the next datagram and its sender.
    ///
    /// # Errors
    /// What the system says.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.wait_then(Direction::Read, || self.try_recv_from(buf)).await
    }

    /// Sends one datagram to the connected peer.
    ///
    /// # Errors
    /// As [`UdpSocket::try_send`], except `WouldBlock`.
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        match self.try_send(buf) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
        self.0.wait_then(Direction::Write, || self.try_send(buf)).await
    }

    /// Receives the next datagram from the connected peer.
    ///
    /// # Errors
    /// As [`UdpSocket::try_send`], except `WouldBlock`.
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.wait_then(Direction::Read, || self.try_recv(buf)).await
    }

    /// The address it is bound to.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.world().local_addr(self.0.fd())
    }
}
