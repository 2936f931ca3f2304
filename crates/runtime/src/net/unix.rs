//! Unix stream sockets: the same shape as TCP.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::Path;
use std::task::{Context, Poll};

use super::stream::{self, stream_methods};
use super::tcp::adopt;
use crate::core;
use crate::counters::count;
use crate::io::{Direction, Socket};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;

/// A socket that takes Unix stream connections. The file stays when it is dropped: who made the
/// path removes it.
#[derive(Debug)]
pub struct UnixListener(Socket);

impl UnixListener {
    /// Listens at `path`, which must not exist.
    ///
    /// # Errors
    /// The path is in use, too long, or may not be written to.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixListener> {
        let core = core::current();
        let fd = core.world.listen_unix(path.as_ref(), BACKLOG)?;
        Ok(UnixListener(Socket::new(core, fd, false)?))
    }

    /// Takes over a listener made elsewhere.
    ///
    /// # Errors
    /// The system refuses the flags. `Unsupported` on the twin.
    pub fn from_std(listener: std::os::unix::net::UnixListener) -> io::Result<UnixListener> {
        adopt(listener.into()).map(UnixListener)
    }

    /// Takes the next connection.
    ///
    /// # Errors
    /// As for TCP: this one attempt failed, the listener is in good order.
    pub async fn accept(&self) -> io::Result<(UnixStream, UnixAddr)> {
        loop {
            self.0.ready(Direction::Read).await?;
            match self.try_accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    /// Takes a connection that is there already.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; else as [`UnixListener::accept`].
    pub fn try_accept(&self) -> io::Result<(UnixStream, UnixAddr)> {
        count(&self.0.core().counters.accept_calls);
        let result = self.0.world().accept_unix(self.0.fd());
        self.0.after_one(&result, Direction::Read);
        let (fd, peer) = result?;
        let socket = Socket::new(self.0.core().clone(), fd, true)?;
        Ok((UnixStream(socket), peer))
    }

    /// Waits until there is a connection to accept.
    ///
    /// # Errors
    /// The system refuses to watch one more descriptor.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_ready(cx, Direction::Read)
    }
}

/// A Unix stream connection.
#[derive(Debug)]
pub struct UnixStream(Socket);

stream_methods!(UnixStream);

impl UnixStream {
    /// Connects to the listener at `path`.
    ///
    /// # Errors
    /// Nobody listens there, or its backlog is full (`WouldBlock`: try again later).
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<UnixStream> {
        let core = core::current();
        count(&core.counters.connect_calls);
        let fd = core.world.connect_unix(path.as_ref())?;
        Ok(UnixStream(Socket::new(core, fd, true)?))
    }

    /// Takes over a connection made elsewhere.
    ///
    /// # Errors
    /// The system refuses the flags. `Unsupported` on the twin.
    pub fn from_std(stream: std::os::unix::net::UnixStream) -> io::Result<UnixStream> {
        adopt(stream.into()).map(UnixStream)
    }
}
