//! Unix stream sockets: the same shape as TCP.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::Path;
use std::task::{Context, Poll};

use super::stream::{self, listener_methods, stream_methods};
use super::tcp::adopt;
use crate::core;
use crate::counters::count;
use crate::io::{Direction, Socket};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;

/// A socket that accepts Unix stream connections. The file stays when the listener is dropped; the
/// caller must remove it.
#[derive(Debug)]
pub struct UnixListener(Socket);

listener_methods!(UnixListener, UnixStream, UnixAddr, accept_unix);

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

    /// Takes ownership of an existing listener.
    ///
    /// # Errors
    /// The system refuses the flags. `Unsupported` on the twin.
    pub fn from_std(listener: std::os::unix::net::UnixListener) -> io::Result<UnixListener> {
        adopt(listener.into()).map(UnixListener)
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
    /// No process listens there, or its backlog is full (`WouldBlock`: try again later).
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<UnixStream> {
        let core = core::current();
        count(&core.counters.connect_calls);
        let fd = core.world.connect_unix(path.as_ref())?;
        Ok(UnixStream(Socket::new(core, fd, true)?))
    }

    /// Takes ownership of an existing connection.
    ///
    /// # Errors
    /// The system refuses the flags. `Unsupported` on the twin.
    pub fn from_std(stream: std::os::unix::net::UnixStream) -> io::Result<UnixStream> {
        adopt(stream.into()).map(UnixStream)
    }
}
