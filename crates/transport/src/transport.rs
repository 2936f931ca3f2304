//! What a connection's bytes go over, a client's or an upstream's.
//!
//! What: one type with the methods of [`TcpStream`], so that nobody above it needs to know. Why an
//! enum: a branch that is always taken the same way costs next to nothing, and a silent connection
//! does not grow. Who owns: the connection's future, or the pool of upstream connections.

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::task::{Context, Poll};

use runtime::fs::SharedPages;
use runtime::net::TcpStream;

use crate::tls::{TlsFacts, TlsStream};

/// A connection.
#[derive(Debug)]
pub enum Transport {
    /// As the socket has them.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Box<TlsStream>),
}

const _: () = assert!(size_of::<Transport>() == size_of::<TcpStream>(), "silence pays for it");

impl Transport {
    /// Waits until there is something to read, or the peer has closed, or failed.
    pub async fn readable(&self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll_readable(cx)).await
    }

    /// Waits until there is room to write. A new connection counts as writable: try first.
    pub async fn writable(&self) -> io::Result<()> {
        match self {
            Transport::Plain(stream) => stream.writable().await,
            Transport::Tls(stream) => std::future::poll_fn(|cx| stream.poll_writable(cx)).await,
        }
    }

    /// [`Self::readable`] for futures made by hand.
    #[inline]
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Transport::Plain(stream) => stream.poll_readable(cx),
            Transport::Tls(stream) => stream.poll_readable(cx),
        }
    }

    /// What the log tells of TLS; `None` where it is not spoken.
    #[inline]
    pub fn tls(&self) -> Option<&dyn TlsFacts> {
        match self {
            Transport::Plain(_) => None,
            Transport::Tls(stream) => Some(&**stream),
        }
    }

    /// True if data, the peer's end or an error came that no read has used up.
    #[inline]
    pub fn has_unread_event(&self) -> bool {
        match self {
            Transport::Plain(stream) => stream.has_unread_event(),
            Transport::Tls(stream) => stream.has_unread_event(),
        }
    }

    /// Reads what is there; 0 means that the peer has closed its direction. `WouldBlock` if
    /// nothing is there.
    #[inline]
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.try_read(buf),
            Transport::Tls(stream) => stream.try_read(buf),
        }
    }

    /// As [`Self::try_read`], leaving the bytes where they are.
    pub fn try_peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.try_peek(buf),
            Transport::Tls(stream) => stream.try_peek(buf),
        }
    }

    /// Writes what there is room for; `WouldBlock` if there is none.
    #[inline]
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.try_write(buf),
            Transport::Tls(stream) => stream.try_write(buf),
        }
    }

    /// As [`Self::try_write`], from several buffers.
    #[inline]
    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.try_write_vectored(bufs),
            Transport::Tls(stream) => stream.try_write_vectored(bufs),
        }
    }

    /// The same of bytes that others follow at once.
    pub fn try_write_more(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.try_write_more(bufs),
            Transport::Tls(stream) => stream.try_write_vectored(bufs),
        }
    }

    /// Whether it takes pages as they are: what is encrypted has to be read for that.
    pub fn can_send_shared(&self) -> bool {
        matches!(self, Transport::Plain(_))
    }

    /// As [`Self::try_write`], of shared pages, zero-copy; `more` is written next.
    pub fn try_write_pages(&self, pages: &mut SharedPages, more: bool) -> io::Result<usize> {
        match self {
            Transport::Plain(stream) => stream.try_write_pages(pages, more),
            Transport::Tls(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Whether everything that was written is with the system. What is not leaves with the next
    /// wait, to write or to read.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        match self {
            Transport::Plain(_) => true,
            Transport::Tls(stream) => stream.is_flushed(),
        }
    }

    /// Before a connection is closed whose peer has got all it asked for: where ends are told
    /// inside the transport, ours is. The socket may not take it at once: see [`Self::is_flushed`].
    #[inline]
    pub fn end_inside(&self) {
        match self {
            Transport::Plain(_) => {}
            Transport::Tls(stream) => stream.end_inside(),
        }
    }

    /// The address that the peer has connected to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Transport::Plain(stream) => stream.local_addr(),
            Transport::Tls(stream) => stream.local_addr(),
        }
    }

    /// Closes one direction or both; the descriptor stays.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Transport::Plain(stream) => stream.shutdown(how),
            Transport::Tls(stream) => stream.shutdown(how),
        }
    }

    /// From now on dropping the connection resets it: the honest end of a response that cannot be
    /// completed.
    pub fn set_linger0(&self) -> io::Result<()> {
        match self {
            Transport::Plain(stream) => stream.set_linger0(),
            Transport::Tls(stream) => stream.set_linger0(),
        }
    }
}
