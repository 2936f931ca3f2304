//! TCP.

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::task::{Context, Poll};

use crate::core::{self, Core};
use crate::counters::count;
use crate::fs::SharedPages;
use crate::io::{Direction, Socket};
use crate::sys::options::ListenOptions;
use crate::sys::unix::unix_path;
use crate::sys::{World, real};

/// A socket that accepts TCP connections.
#[derive(Debug)]
pub struct TcpListener(Socket);

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
        if unix_path(socket.world().local_addr(socket.fd())?).is_none() {
            socket.world().set_nodelay(socket.fd(), true)?;
        }
        Ok(TcpListener(socket))
    }

    /// Takes the next connection: non-blocking, close-on-exec, and with TCP_NODELAY set.
    ///
    /// # Errors
    /// What the system says about this one attempt; the listener is still usable. Connections that
    /// failed before they were accepted are skipped; on `EMFILE`, `ENFILE`, `ENOBUFS` or `ENOMEM`
    /// the connection still waits, and the caller should pause before it tries again.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.wait_then(Direction::Read, || self.try_accept()).await
    }

    /// Takes a connection that has already arrived.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; otherwise as for `accept`.
    pub fn try_accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        count(&self.0.core().counters.accept_calls);
        let result = self.0.world().accept_tcp(self.0.fd());
        self.0.after_one(&result, Direction::Read);
        let (fd, peer) = result?;
        let socket = Socket::new(self.0.core().clone(), fd, true)?;
        Ok((TcpStream(socket), peer))
    }

    /// Waits until there is a connection to accept.
    ///
    /// # Errors
    /// The system refuses to watch one more descriptor.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_ready(cx, Direction::Read)
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

    /// Waits until there is something to read, or the peer has closed, or failed.
    ///
    /// Costs nothing if no read has consumed an earlier event, and no system call if the
    /// interest is still armed from the last wait. One task at a time may wait.
    ///
    /// # Errors
    /// The system refuses to watch one more descriptor.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.ready(Direction::Read).await
    }

    /// Waits until there is room to write. A new stream counts as writable: try first.
    ///
    /// # Errors
    /// As [`Self::readable`].
    pub async fn writable(&self) -> io::Result<()> {
        self.0.ready(Direction::Write).await
    }

    /// [`Self::readable`] for hand-written futures.
    ///
    /// # Errors
    /// As [`Self::readable`].
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_ready(cx, Direction::Read)
    }

    /// [`Self::writable`] for hand-written futures.
    ///
    /// # Errors
    /// As [`Self::readable`].
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_ready(cx, Direction::Write)
    }

    /// Watches an idle connection, for which no task waits: [`Self::has_unread_event`] shows what
    /// arrives from now on. False if there is such an event already, or too many descriptors are
    /// watched.
    pub fn watch(&self) -> bool {
        self.0.watch()
    }

    /// True if an event has arrived that no read has consumed: data, the peer's end or an error.
    /// Makes no system call. For an idle connection that is watched, it shows that something
    /// unexpected has arrived.
    pub fn has_unread_event(&self) -> bool {
        self.0.is_ready(Direction::Read)
    }

    /// Reads what has arrived; 0 means that the peer has closed its direction.
    ///
    /// # Errors
    /// `WouldBlock` if nothing has arrived, or the connection's error.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        count(&self.0.core().counters.recv_calls);
        let result = self.0.world().recv(self.0.fd(), buf);
        self.charge(&result);
        self.0.after_read(&result, buf.len());
        self.0.failed_end_as_error(result, buf.len())
    }

    /// As [`Self::try_read`], without consuming the bytes.
    ///
    /// # Errors
    /// As [`Self::try_read`].
    pub fn try_peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        count(&self.0.core().counters.recv_calls);
        let result = self.0.world().peek(self.0.fd(), buf);
        self.0.after_one(&result, Direction::Read);
        self.0.failed_end_as_error(result, buf.len())
    }

    /// Writes as much as there is room for.
    ///
    /// # Errors
    /// `WouldBlock` if there is none, or the connection's error.
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        count(&self.0.core().counters.send_calls);
        let result = self.0.world().send(self.0.fd(), buf);
        self.charge(&result);
        self.0.after_write(&result, buf.len());
        result
    }

    /// As [`Self::try_write`], from several buffers.
    ///
    /// # Errors
    /// As [`Self::try_write`].
    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send_vectored(bufs, false)
    }

    /// Waits, then reads. In this order a keep-alive connection costs one recv per request.
    ///
    /// # Errors
    /// The connection's error.
    pub async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.wait_then(Direction::Read, || self.try_read(buf)).await
    }

    /// Fills the buffer.
    ///
    /// # Errors
    /// `UnexpectedEof` if the peer closes first, or the connection's error.
    pub async fn read_exact(&self, buf: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.read(&mut buf[filled..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
        }
        Ok(())
    }

    /// Writes some bytes; waits only if there is no room.
    ///
    /// # Errors
    /// The connection's error.
    pub async fn write(&self, buf: &[u8]) -> io::Result<usize> {
        core::spend().await; // lets others run even if the peer accepts everything at once
        self.0.try_then_wait(Direction::Write, || self.try_write(buf)).await
    }

    /// Writes all; waits only while there is no room.
    ///
    /// # Errors
    /// The connection's error.
    pub async fn write_all(&self, mut buf: &[u8]) -> io::Result<()> {
        while !buf.is_empty() {
            match self.write(buf).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => buf = &buf[written..],
            }
        }
        Ok(())
    }

    /// Closes one direction or both; the descriptor stays.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.world().shutdown(self.0.fd(), how)
    }

    /// As [`Self::try_write_vectored`], when more bytes follow at once: an incomplete packet waits
    /// for them.
    ///
    /// # Errors
    /// As [`Self::try_write`].
    pub fn try_write_more(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send_vectored(bufs, true)
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
        self.charge(&result);
        self.0.after_write(&result, wanted);
        result
    }

    /// As [`Self::try_read`] of up to so many bytes, without copying them. `None` if there is no
    /// pipe for that: copy.
    ///
    /// # Errors
    /// As [`Self::try_read`].
    pub fn try_read_shared(&self, bytes_max: usize) -> io::Result<Option<SharedPages>> {
        let core = self.0.core();
        let Some((mut pages, room)) = SharedPages::room(core) else { return Ok(None) };
        count(&core.counters.recv_calls);
        let wanted = bytes_max.min(room);
        let result = pages.splice_from(self.0.fd(), wanted);
        self.charge(&result);
        self.0.after_read(&result, wanted);
        self.0.failed_end_as_error(result, wanted)?;
        Ok(Some(pages))
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

    fn send_vectored(&self, bufs: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        count(&self.0.core().counters.send_calls);
        let result = self.0.world().send_vectored(self.0.fd(), bufs, more);
        self.charge(&result);
        self.0.after_write(&result, bufs.iter().map(|buf| buf.len()).sum());
        result
    }

    /// A task that moves many bytes exhausts its budget sooner and lets others run.
    fn charge(&self, moved: &io::Result<usize>) {
        if let Ok(bytes) = moved {
            self.0.core().charge(*bytes);
        }
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
