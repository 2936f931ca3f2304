//! The short implementations of the calls of [`crate::sys::World`]. [`super::stream`] and
//! [`super::datagram`] have the others.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::os::unix::net::SocketAddr as UnixAddr;

use super::error;
use super::net::{Address, Net, START_NS};

/// The first moment of the simulated wall clock, in seconds since 1970: 1 January 2026.
const EPOCH_S: u64 = 1_767_225_600;

impl Net {
    pub(crate) fn monotonic_ns(&self) -> u64 {
        self.now_ns
    }

    pub(crate) fn wall_ns(&self) -> u64 {
        self.now_ns - START_NS + EPOCH_S * 1_000_000_000
    }

    pub(crate) fn thread_cpu_ns(&self) -> u64 {
        self.burned_ns
    }

    pub(crate) fn thread_starved_ns(&self) -> u64 {
        0
    }

    pub(crate) fn accept_tcp(&mut self, fd: RawFd) -> io::Result<(RawFd, SocketAddr)> {
        let (fd, peer) = self.accept(fd)?;
        Ok((fd, inet(peer)?))
    }

    pub(crate) fn accept_unix(&mut self, fd: RawFd) -> io::Result<(RawFd, UnixAddr)> {
        let (fd, _) = self.accept(fd)?;
        Ok((fd, UnixAddr::from_pathname("")?))
    }

    pub(crate) fn recv(&mut self, fd: RawFd, buf: &mut [u8]) -> io::Result<usize> {
        self.read(fd, buf, false)
    }

    pub(crate) fn peek(&mut self, fd: RawFd, buf: &mut [u8]) -> io::Result<usize> {
        self.read(fd, buf, true)
    }

    pub(crate) fn send_vectored(
        &mut self,
        fd: RawFd,
        bufs: &[IoSlice<'_>],
        _more: bool,
    ) -> io::Result<usize> {
        // Copy no more than a connection can hold: the rest would only be copied again next time.
        let mut bytes = Vec::new();
        for buf in bufs {
            let room = self.options.buffer_bytes.saturating_sub(bytes.len());
            bytes.extend_from_slice(&buf[..buf.len().min(room)]);
        }
        self.send(fd, &bytes)
    }

    pub(crate) fn send_to(
        &mut self,
        fd: RawFd,
        buf: &[u8],
        address: SocketAddr,
    ) -> io::Result<usize> {
        self.send_datagram(fd, buf, Some(address))
    }

    pub(crate) fn local_addr(&self, fd: RawFd) -> io::Result<SocketAddr> {
        inet(self.local(fd)?)
    }

    pub(crate) fn peer_addr(&self, fd: RawFd) -> io::Result<SocketAddr> {
        inet(self.remote(fd)?)
    }

    /// The simulated network sends everything at once anyway.
    pub(crate) fn set_nodelay(&self, _fd: RawFd, _on: bool) -> io::Result<()> {
        Ok(())
    }
}

fn inet(address: Address) -> io::Result<SocketAddr> {
    match address {
        Address::Inet(address) => Ok(address),
        Address::Path(_) => error(libc::EAFNOSUPPORT),
    }
}
