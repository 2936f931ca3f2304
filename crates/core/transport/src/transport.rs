//! The transport of a connection, a client's or an upstream's.
//!
//! What: one type with the methods of [`TcpStream`], so that no code above it needs to know.
//! Why an enum: a predictable branch costs almost nothing, and an idle connection does not grow.
//! Who owns: the connection's future, or the pool of upstream connections.

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::task::{Context, Poll};

use runtime::fs::SharedPages;
use runtime::net::TcpStream;

use crate::tls::{TlsFacts, TlsStream};

/// A connection.
#[derive(Debug)]
pub enum Transport {
    /// Plain TCP.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Box<TlsStream>),
}

const _: () =
    assert!(size_of::<Transport>() == size_of::<TcpStream>(), "idle connections pay for it");

/// The same call of a plain and of an encrypted connection.
macro_rules! either {
    ($transport:expr, $stream:ident => $call:expr) => {
        match $transport {
            Transport::Plain($stream) => $call,
            Transport::Tls($stream) => $call,
        }
    };
}

/// An address of IPv4 as such, also if it is written as one of IPv6: so the clients of a listener
/// for both families have addresses.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl Transport {
    /// Waits until there is something to read, or the peer has closed, or failed.
    pub async fn readable(&self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll_readable(cx)).await
    }

    /// Waits until there is room to write. A new connection counts as writable: try first.
    pub async fn writable(&self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll_writable(cx)).await
    }

    /// [`Self::writable`] for hand-written futures.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_writable(cx))
    }

    /// [`Self::readable`] for hand-written futures.
    #[inline]
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_readable(cx))
    }

    /// The TLS facts for the log; `None` without TLS.
    #[inline]
    pub fn tls(&self) -> Option<&dyn TlsFacts> {
        match self {
            Transport::Plain(_) => None,
            Transport::Tls(stream) => Some(&**stream),
        }
    }

    /// Whether a TLS handshake chose HTTP/2; false without TLS.
    pub fn speaks_http2(&self) -> bool {
        match self {
            Transport::Plain(_) => false,
            Transport::Tls(stream) => stream.speaks_http2(),
        }
    }

    /// Watches an idle connection, for which no task waits. False if [`Self::has_unread_event`].
    #[inline]
    pub fn watch(&self) -> bool {
        either!(self, stream => stream.watch())
    }

    /// True if data, the peer's end or an error has arrived that no read has consumed.
    #[inline]
    pub fn has_unread_event(&self) -> bool {
        either!(self, stream => stream.has_unread_event())
    }

    /// Reads what has arrived; 0 means that the peer has closed its direction. `WouldBlock` if
    /// nothing has arrived.
    #[inline]
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        either!(self, stream => stream.try_read(buf))
    }

    /// As [`Self::try_read`], without consuming the bytes.
    pub fn try_peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        either!(self, stream => stream.try_peek(buf))
    }

    /// Writes as much as there is room for; `WouldBlock` if there is none.
    #[inline]
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        either!(self, stream => stream.try_write(buf))
    }

    /// As [`Self::try_write`], from several buffers.
    #[inline]
    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        either!(self, stream => stream.try_write_vectored(bufs))
    }

    /// The same, when more bytes follow at once.
    pub fn try_write_more(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.try_write_more(bufs),
            Transport::Tls(stream) => stream.try_write_vectored(bufs),
        }
    }

    /// Whether it can send shared pages: encryption has to read the bytes.
    pub fn can_send_shared(&self) -> bool {
        matches!(self, Transport::Plain(_))
    }

    /// As [`Self::try_write`], for shared pages, zero-copy; `more`: more data follows at once.
    pub fn try_write_pages(&self, pages: &mut SharedPages, more: bool) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.try_write_pages(pages, more),
            Transport::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// As [`Self::try_read`] of up to so many bytes, zero-copy; `None` if that is not possible.
    pub fn try_read_shared(&self, bytes_max: usize) -> io::Result<Option<SharedPages>> {
        match self {
            Transport::Plain(stream) => stream.try_read_shared(bytes_max),
            Transport::Tls(_) => Ok(None),
        }
    }

    /// Whether the system has accepted everything that was written. The next wait, to write or to
    /// read, sends the remainder.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        match self {
            Transport::Plain(_) => true,
            Transport::Tls(stream) => stream.is_flushed(),
        }
    }

    /// Call before closing a connection whose response is complete: if the transport signals ends
    /// itself (TLS), this sends ours. The socket may not accept it at once: see
    /// [`Self::is_flushed`].
    #[inline]
    pub fn end_inside(&self) {
        match self {
            Transport::Plain(_) => {}
            Transport::Tls(stream) => stream.end_inside(),
        }
    }

    /// The address that the peer has connected to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        either!(self, stream => stream.local_addr())
    }

    /// Closes one direction or both; the descriptor stays.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        either!(self, stream => stream.shutdown(how))
    }

    /// Makes dropping the connection reset it, so that the peer can see that a response is
    /// incomplete.
    pub fn set_linger0(&self) -> io::Result<()> {
        either!(self, stream => stream.set_linger0())
    }
}
