//! TCP.

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::task::{Context, Poll};

use super::stream::{self, listener_methods, stream_methods};
use crate::core::{self, Core};
use crate::counters::count;
use crate::fs::SharedPages;
use crate::io::{Direction, Socket};
use crate::sys::options::ListenOptions;
use crate::sys::{World, real};

/// A socket that accepts TCP connections.
#[derive(Debug)]
pub struct TcpListener(Socket);

listener_methods!(TcpListener, TcpStream, SocketAddr, accept_tcp);

impl TcpListener {
    /// Listens on `address`; port 0 lets the system choose one.
    ///
    /// # Errors
    /// The address is in use, is not local, or may not be used.
    pub fn bind(address: SocketAddr, options: &ListenOptions) -> io::Result<TcpListener> {
        let core = core::current();
        let fd = core.world.listen_tcp(address, options)?;
        Ok(TcpListener(Socket::new(core, fd, false)?))
    }

    /// Takes ownership of an existing listener, such as one inherited from a supervisor.
    ///
    /// # Errors
    /// The system refuses the flags. `Unsupported` on the twin.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<TcpListener> {
        let socket = adopt(listener.into())?;
        socket.world().set_nodelay(socket.fd(), true)?;
        Ok(TcpListener(socket))
    }

    /// The address it listens on, including a port that the system chose.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.world().local_addr(self.0.fd())
    }
}

/// A TCP connection.
#[derive(Debug)]
pub struct TcpStream(Socket);

stream_methods!(TcpStream);

impl TcpStream {
    /// Connects to `address`, with TCP_NODELAY set. Dropping the future cancels the attempt.
    ///
    /// # Errors
    /// The peer refuses or cannot be reached, or the system has no port or descriptor left.
    pub async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
        let core = core::current();
        count(&core.counters.connect_calls);
        let (fd, mut connected) = core.world.connect_tcp(address)?;
        let socket = Socket::new(core, fd, connected)?;
        while !connected {
            socket.ready(Direction::Write).await?;
            count(&socket.core().counters.connect_calls);
            connected = socket.world().finish_connect_tcp(fd, address)?;
            if !connected {
                let spurious: io::Result<()> = Err(io::ErrorKind::WouldBlock.into());
                socket.after_one(&spurious, Direction::Write);
            }
        }
        Ok(TcpStream(socket))
    }

    /// Takes ownership of an existing connection.
    ///
    /// # Errors
    /// The system refuses the flags. `Unsupported` on the twin.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<TcpStream> {
        adopt(stream.into()).map(TcpStream)
    }

    /// As [`Self::try_write_vectored`], when more bytes follow at once: an incomplete packet waits
    /// for them.
    ///
    /// # Errors
    /// As [`Self::try_write`].
    pub fn try_write_more(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        stream::try_write_vectored(&self.0, bufs, true)
    }

    /// As [`Self::try_write`], but sends shared pages without copying them. `more`: more data
    /// follows at once, and an incomplete packet waits for it.
    ///
    /// # Errors
    /// As [`Self::try_write`].
    pub fn try_write_pages(&self, pages: &mut SharedPages, more: bool) -> io::Result<usize> {
        count(&self.0.core().counters.send_calls);
        let wanted = pages.left();
        let result = pages.splice_to(self.0.fd(), more);
        stream::charge(&self.0, &result);
        self.0.after_write(&result, wanted);
        result
    }

    /// The peer's address.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.world().peer_addr(self.0.fd())
    }

    /// The local address.
    ///
    /// # Errors
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.world().local_addr(self.0.fd())
    }

    /// Sends small segments at once (on, the default here) or collects them (off).
    ///
    /// # Errors
    /// What the system says.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.0.world().set_nodelay(self.0.fd(), on)
    }

    /// Makes dropping the stream reset the connection: unsent data is discarded, and the peer sees
    /// an error instead of an end.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_linger0(&self) -> io::Result<()> {
        self.0.world().set_linger0(self.0.fd())
    }

    /// Closes the stream with a reset, so that the peer can see that a response is incomplete.
    pub fn abort(self) {
        // If the system refuses, the peer gets an ordinary end; nothing better is possible.
        drop(self.set_linger0());
    }
}

impl AsRawFd for TcpStream {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd()
    }
}

impl AsRawFd for TcpListener {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd()
    }
}

/// Makes an existing descriptor a socket of the current core.
pub(super) fn adopt(fd: OwnedFd) -> io::Result<Socket> {
    let core: std::rc::Rc<Core> = core::current();
    if matches!(core.world, World::Simulated(_)) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "not supported here: a simulated core has no real descriptors",
        ));
    }
    real::adopt(&fd)?;
    Socket::new(core, fd.into_raw_fd(), false)
}
