//! How a process gives its predecessor the datagrams that belong there, over a pair of sockets.
//!
//! Both processes have the same UDP sockets, and only one of them receives each datagram. A stream
//! would lose where a datagram ends, and a pair of datagram sockets would not say that the other
//! process has ended, so these are of SOCK_SEQPACKET (unix(7)). The link does not know what a
//! message is.

use std::io::{self, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::sys::real::check;

/// One end of the link. The end that is passed to a successor never blocks. The other one does, so
/// it must not be used on a core's thread.
#[derive(Debug)]
pub struct DatagramLink(UnixStream);

impl DatagramLink {
    /// Both ends.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn pair() -> io::Result<(DatagramLink, DatagramLink)> {
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: room for two descriptors, which lives until the call returns.
        check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
        // SAFETY: new descriptors with no other owner.
        let [ours, theirs] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        Ok((DatagramLink(ours.into()), DatagramLink(theirs.into())))
    }

    /// The end that was passed to this process.
    pub(super) fn passed(fd: OwnedFd) -> io::Result<DatagramLink> {
        crate::sys::real::adopt(&fd)?;
        Ok(DatagramLink(fd.into()))
    }

    /// The end to pass on.
    pub(super) fn into_fd(self) -> OwnedFd {
        self.0.into()
    }

    /// Another handle to the same end.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn try_clone(&self) -> io::Result<DatagramLink> {
        self.0.try_clone().map(DatagramLink)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The other process has ended, or does not keep up.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        (&self.0).write(message).map(drop)
    }

    /// The next message, or its beginning if there is not room for all of it; `None` if the other
    /// process has ended.
    ///
    /// # Errors
    /// What the system says; `WouldBlock` if this end was passed to us and no message waits.
    pub fn receive<'b>(&self, room: &'b mut [u8]) -> io::Result<Option<&'b [u8]>> {
        loop {
            match (&self.0).read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read.map(|count| (count > 0).then(|| &room[..count])),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_bounds_and_the_end_is_seen() {
        let (ours, theirs) = DatagramLink::pair().unwrap();
        ours.send(b"one").unwrap();
        ours.send(&[7; 2000]).unwrap();
        drop(ours);
        let room = &mut [0; 4096];
        assert_eq!(theirs.receive(room).unwrap(), Some(&b"one"[..]));
        assert_eq!(theirs.receive(room).unwrap(), Some(&[7; 2000][..]));
        assert_eq!(theirs.receive(room).unwrap(), None);
        assert!(theirs.send(b"late").is_err());
    }

    #[test]
    fn the_end_that_was_passed_on_never_blocks() {
        let (ours, theirs) = DatagramLink::pair().unwrap();
        let theirs = DatagramLink::passed(theirs.into_fd()).unwrap();
        let wait = theirs.receive(&mut [0; 16]).unwrap_err();
        assert_eq!(wait.kind(), io::ErrorKind::WouldBlock);
        let full = std::iter::repeat_with(|| theirs.send(&[0; 1200])).take(10_000);
        let error = full.filter_map(Result::err).next().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(ours);
    }
}
