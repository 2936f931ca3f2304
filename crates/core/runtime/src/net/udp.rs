//! UDP.

use std::io;
use std::net::SocketAddr;

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

    /// Sends one datagram.
    ///
    /// # Errors
    /// What the system says.
    pub async fn send_to(&self, buf: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.send_by(|| self.0.world().send_to(self.0.fd(), buf, address)).await
    }

    /// Receives the next datagram and its sender; bytes that do not fit into `buf` are lost.
    ///
    /// # Errors
    /// What the system says.
    pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_by(|| self.0.world().recv_from(self.0.fd(), buf)).await
    }

    /// Sends one datagram to the connected peer.
    ///
    /// # Errors
    /// `ConnectionRefused` if an earlier datagram found no receiver, or what the system says.
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.send_by(|| self.0.world().send(self.0.fd(), buf)).await
    }

    /// Receives the next datagram from the connected peer.
    ///
    /// # Errors
    /// As [`UdpSocket::send`].
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.recv_by(|| self.0.world().recv(self.0.fd(), buf)).await
    }

    /// The address it is bound to.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.world().local_addr(self.0.fd())
    }

    async fn send_by(&self, mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        let attempt = || {
            count(&self.0.core().counters.send_calls);
            let result = call();
            self.0.after_one(&result, Direction::Write);
            result
        };
        self.0.try_then_wait(Direction::Write, attempt).await
    }

    async fn recv_by<T>(&self, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let attempt = || {
            count(&self.0.core().counters.recv_calls);
            let result = call();
            self.0.after_one(&result, Direction::Read);
            result
        };
        self.0.wait_then(Direction::Read, attempt).await
    }
}
