//! The short implementations of the calls of [`crate::sys::World`]. [`super::stream`] and
//! [`super::datagram`] have the others.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::RawFd;

use super::net::{Net, START_NS};
use crate::sys::pipe::Pipe;

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

    pub(crate) fn thread_sleeps(&self) -> u64 {
        0
    }

    pub(crate) fn thread_starved_ns(&self) -> u64 {
        0
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

    /// The descriptors of pipes do not count, but there are none when no descriptor is left.
    pub(crate) fn pipe(&self) -> io::Result<Pipe> {
        self.check_room()?;
        Ok(Pipe::Simulated(Vec::new()))
    }

    pub(crate) fn recv_into(
        &mut self,
        fd: RawFd,
        pipe: &mut Pipe,
        len: usize,
    ) -> io::Result<usize> {
        let Pipe::Simulated(bytes) = pipe else { unreachable!("a pipe of this world") };
        assert!(bytes.is_empty(), "a pipe that is not empty must not be used again");
        bytes.resize(len.min(self.options.buffer_bytes), 0);
        let read = self.read(fd, bytes, false);
        bytes.truncate(*read.as_ref().unwrap_or(&0));
        read
    }

    pub(crate) fn send_from(
        &mut self,
        fd: RawFd,
        pipe: &mut Pipe,
        len: usize,
        _more: bool,
    ) -> io::Result<usize> {
        let Pipe::Simulated(bytes) = pipe else { unreachable!("a pipe of this world") };
        let sent = self.send(fd, &bytes[..len])?;
        bytes.drain(..sent);
        Ok(sent)
    }

    pub(crate) fn send_to(
        &mut self,
        fd: RawFd,
        buf: &[u8],
        address: SocketAddr,
    ) -> io::Result<usize> {
        self.send_datagram(fd, buf, Some(address), 0)
    }

    pub(crate) fn recv_from(
        &mut self,
        fd: RawFd,
        buf: &mut [u8],
    ) -> io::Result<(usize, SocketAddr)> {
        self.recv_datagram(fd, buf).map(|(read, datagram)| (read, datagram.sender))
    }

    /// The simulated network sends everything at once anyway.
    pub(crate) fn set_nodelay(&self, _fd: RawFd, _on: bool) -> io::Result<()> {
        Ok(())
    }
}
