//! What TCP and Unix sockets have in common: reading and writing bytes, and accepting connections.
//!
//! The macros at the bottom give both families the same methods; the functions here do the work.

use std::io::{self, IoSlice};

use crate::core;
use crate::counters::count;
use crate::io::{Direction, Socket};

pub(super) fn try_read(socket: &Socket, buf: &mut [u8]) -> io::Result<usize> {
    count(&socket.core().counters.recv_calls);
    let result = socket.world().recv(socket.fd(), buf);
    charge(socket, &result);
    socket.after_read(&result, buf.len());
    socket.failed_end_as_error(result, buf.len())
}

/// A task that moves many bytes exhausts its budget sooner and lets others run.
pub(super) fn charge(socket: &Socket, moved: &io::Result<usize>) {
    if let Ok(bytes) = moved {
        socket.core().charge(*bytes);
    }
}

pub(super) fn try_peek(socket: &Socket, buf: &mut [u8]) -> io::Result<usize> {
    count(&socket.core().counters.recv_calls);
    let result = socket.world().peek(socket.fd(), buf);
    socket.after_one(&result, Direction::Read);
    socket.failed_end_as_error(result, buf.len())
}

pub(super) fn try_write(socket: &Socket, buf: &[u8]) -> io::Result<usize> {
    count(&socket.core().counters.send_calls);
    let result = socket.world().send(socket.fd(), buf);
    charge(socket, &result);
    socket.after_write(&result, buf.len());
    result
}

pub(super) fn try_write_vectored(
    socket: &Socket,
    bufs: &[IoSlice<'_>],
    more: bool,
) -> io::Result<usize> {
    count(&socket.core().counters.send_calls);
    let result = socket.world().send_vectored(socket.fd(), bufs, more);
    charge(socket, &result);
    socket.after_write(&result, bufs.iter().map(|buf| buf.len()).sum());
    result
}

pub(super) async fn read(socket: &Socket, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        socket.ready(Direction::Read).await?;
        match try_read(socket, buf) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}

pub(super) async fn read_exact(socket: &Socket, buf: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buf.len() {
        match read(socket, &mut buf[filled..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    Ok(())
}

pub(super) async fn write(socket: &Socket, buf: &[u8]) -> io::Result<usize> {
    core::spend().await; // lets others run even if the peer accepts everything at once
    loop {
        match try_write(socket, buf) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
        socket.ready(Direction::Write).await?;
    }
}

pub(super) async fn write_all(socket: &Socket, mut buf: &[u8]) -> io::Result<()> {
    while !buf.is_empty() {
        match write(socket, buf).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => buf = &buf[written..],
        }
    }
    Ok(())
}

pub(super) async fn write_vectored(socket: &Socket, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    core::spend().await;
    loop {
        match try_write_vectored(socket, bufs, false) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
        socket.ready(Direction::Write).await?;
    }
}

pub(super) async fn write_all_vectored(
    socket: &Socket,
    mut bufs: &mut [IoSlice<'_>],
) -> io::Result<()> {
    IoSlice::advance_slices(&mut bufs, 0); // skips empty ones
    while !bufs.is_empty() {
        match write_vectored(socket, bufs).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => IoSlice::advance_slices(&mut bufs, written),
        }
    }
    Ok(())
}

/// The methods of a stream, for a type whose field 0 is a [`Socket`].
macro_rules! stream_methods {
    ($type:ty) => {
        impl $type {
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

            /// True if an event has arrived that no read has consumed: data, the peer's end or an
            /// error. Makes no system call. For an idle connection in a pool, whose interest is
            /// armed, it shows that something unexpected has arrived.
            pub fn has_unread_event(&self) -> bool {
                self.0.is_ready(Direction::Read)
            }

            /// Reads what has arrived; 0 means that the peer has closed its direction.
            ///
            /// # Errors
            /// `WouldBlock` if nothing has arrived, or the connection's error.
            pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
                stream::try_read(&self.0, buf)
            }

            /// As [`Self::try_read`], without consuming the bytes.
            ///
            /// # Errors
            /// As [`Self::try_read`].
            pub fn try_peek(&self, buf: &mut [u8]) -> io::Result<usize> {
                stream::try_peek(&self.0, buf)
            }

            /// Writes as much as there is room for.
            ///
            /// # Errors
            /// `WouldBlock` if there is none, or the connection's error.
            pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
                stream::try_write(&self.0, buf)
            }

            /// As [`Self::try_write`], from several buffers.
            ///
            /// # Errors
            /// As [`Self::try_write`].
            pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                stream::try_write_vectored(&self.0, bufs, false)
            }

            /// Waits, then reads. In this order a keep-alive connection costs one recv per request.
            ///
            /// # Errors
            /// The connection's error.
            pub async fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
                stream::read(&self.0, buf).await
            }

            /// Fills the buffer.
            ///
            /// # Errors
            /// `UnexpectedEof` if the peer closes first, or the connection's error.
            pub async fn read_exact(&self, buf: &mut [u8]) -> io::Result<()> {
                stream::read_exact(&self.0, buf).await
            }

            /// Writes some bytes; waits only if there is no room.
            ///
            /// # Errors
            /// The connection's error.
            pub async fn write(&self, buf: &[u8]) -> io::Result<usize> {
                stream::write(&self.0, buf).await
            }

            /// Writes all; waits only while there is no room.
            ///
            /// # Errors
            /// The connection's error.
            pub async fn write_all(&self, buf: &[u8]) -> io::Result<()> {
                stream::write_all(&self.0, buf).await
            }

            /// Writes some of several buffers; waits only if there is no room.
            ///
            /// # Errors
            /// The connection's error.
            pub async fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                stream::write_vectored(&self.0, bufs).await
            }

            /// Writes all of several buffers; advances `bufs` as it goes.
            ///
            /// # Errors
            /// The connection's error.
            pub async fn write_all_vectored(&self, bufs: &mut [IoSlice<'_>]) -> io::Result<()> {
                stream::write_all_vectored(&self.0, bufs).await
            }

            /// Closes one direction or both; the descriptor stays.
            ///
            /// # Errors
            /// `NotConnected`.
            pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                self.0.world().shutdown(self.0.fd(), how)
            }
        }
    };
}
/// The methods of a listener, for a type whose field 0 is a [`Socket`].
macro_rules! listener_methods {
    ($listener:ident, $stream:ident, $address:ty, $accept:ident) => {
        impl $listener {
            /// Takes the next connection: non-blocking and close-on-exec, and TCP with TCP_NODELAY
            /// set.
            ///
            /// # Errors
            /// What the system says about this one attempt; the listener is still usable.
            /// Connections that failed before they were accepted are skipped; on `EMFILE`,
            /// `ENFILE`, `ENOBUFS` or `ENOMEM` the connection still waits, and the caller should
            /// pause before it tries again.
            pub async fn accept(&self) -> io::Result<($stream, $address)> {
                self.0.wait_then(Direction::Read, || self.try_accept()).await
            }

            /// Takes a connection that has already arrived.
            ///
            /// # Errors
            /// `WouldBlock` if there is none; otherwise as for `accept`.
            pub fn try_accept(&self) -> io::Result<($stream, $address)> {
                count(&self.0.core().counters.accept_calls);
                let result = self.0.world().$accept(self.0.fd());
                self.0.after_one(&result, Direction::Read);
                let (fd, peer) = result?;
                let socket = Socket::new(self.0.core().clone(), fd, true)?;
                Ok(($stream(socket), peer))
            }

            /// Waits until there is a connection to accept.
            ///
            /// # Errors
            /// The system refuses to watch one more descriptor.
            pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.0.poll_ready(cx, Direction::Read)
            }
        }
    };
}

pub(super) use {listener_methods, stream_methods};
