//! An encrypted connection with the methods of a socket.
//!
//! ```text
//!   socket --recv--> core's buffer --> rustls: records --> plaintext --try_read--> caller
//!   caller --try_write--> rustls: records, at most TLS_OUTPUT_BYTES_MAX --send--> socket
//! ```
//!
//! Readable means that a read returns at once: with plaintext, the peer's end, or an error. Bytes
//! on the socket are not enough, because they may be half a record, or one without data; so waiting
//! itself processes records. Plaintext that rustls holds counts as readable even if the socket is
//! idle.
//!
//! A write is accepted before all of it has been sent: what the socket did not accept stays in
//! rustls, within a bound, and is sent by the next write or wait. See [`TlsStream::is_flushed`].
//!
//! What never happens: a connection that ended without the peer's close_notify is considered
//! properly ended (RFC 8446, 6.1); an idle connection holds plaintext or records.

use std::cell::RefCell;
use std::io::{self, BufRead, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use runtime::net::TcpStream;
use rustls::{Connection, HandshakeKind, ProtocolVersion};
use webpki::EndEntityCert;

use super::{CoreTls, HTTP2};
use crate::limits::{TLS_BURST_BYTES_MAX, TLS_OUTPUT_BYTES_MAX, TLS_TAKE_BYTES};
use crate::tls::facts::{Facts, Peer, TlsFacts};

/// An encrypted connection.
#[derive(Debug)]
pub struct TlsStream {
    stream: TcpStream,
    core: Rc<CoreTls>,
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    connection: Connection,
    /// Bytes available from [`Connection::reader`].
    plaintext: usize,
    /// Bytes of the socket that rustls takes only when its plaintext has been read.
    ///
    /// Invariant: empty if `plaintext` is 0.
    held: Vec<u8>,
    end: End,
    /// Bytes accepted since the last wait for room.
    burst: usize,
    /// Our close_notify has been queued; whether the socket has been shut down after it.
    closing: Option<Closing>,
    /// The connection will be reset, so no close_notify is sent.
    aborted: bool,
}

impl TlsFacts for TlsStream {
    fn with_facts(&self, look: &mut dyn FnMut(&Facts<'_>)) {
        with_facts(&self.state.borrow().connection, look);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    Pending,
    Done,
}

/// The state of the peer's direction.
#[derive(Clone, Debug)]
enum End {
    Open,
    /// With a close_notify.
    Clean,
    /// The socket ended without one.
    Cut,
    /// The socket has failed.
    Failed(io::ErrorKind),
    /// The peer violated TLS.
    Broken(rustls::Error),
}

impl TlsStream {
    /// A connection before its handshake.
    pub(super) fn new(stream: TcpStream, core: &Rc<CoreTls>, mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(TLS_OUTPUT_BYTES_MAX));
        let state = State {
            connection,
            plaintext: 0,
            held: Vec::new(),
            end: End::Open,
            burst: 0,
            closing: None,
            aborted: false,
        };
        TlsStream { stream, core: Rc::clone(core), state: RefCell::new(state) }
    }

    /// Completes the handshake. `first` has already been read from the socket.
    pub(super) async fn handshake(&self, first: &[u8]) -> Result<(), HandshakeError> {
        self.state.borrow_mut().take_in(first, &mut []);
        std::future::poll_fn(|cx| self.poll_handshake(cx)).await
    }

    fn poll_handshake(&self, cx: &mut Context<'_>) -> Poll<Result<(), HandshakeError>> {
        let state = &mut *self.state.borrow_mut();
        loop {
            let flushed = match state.flush(&self.stream) {
                Ok(()) => true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
                Err(_) => return Poll::Ready(Err(HandshakeError::Closed)),
            };
            match &state.end {
                End::Broken(error) => {
                    return Poll::Ready(Err(HandshakeError::Tls(Box::new(error.clone()))));
                }
                // A client may have sent its request and closed at once.
                _ if !state.connection.is_handshaking() && flushed => return Poll::Ready(Ok(())),
                End::Open => {}
                End::Clean | End::Cut | End::Failed(_) => {
                    return Poll::Ready(Err(HandshakeError::Closed));
                }
            }
            if !flushed {
                ready!(self.stream.poll_writable(cx)).map_err(|_| HandshakeError::Closed)?;
                continue;
            }
            ready!(self.stream.poll_readable(cx)).map_err(|_| HandshakeError::Closed)?;
            state.pump(&self.stream, &self.core, &mut []);
        }
    }

    /// Whether an earlier session was resumed.
    pub fn is_resumed(&self) -> bool {
        self.state.borrow().connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Whether the handshake chose HTTP/2 (ALPN).
    pub fn speaks_http2(&self) -> bool {
        self.state.borrow().connection.alpn_protocol() == Some(HTTP2)
    }

    /// See [`TcpStream::poll_readable`] and the module docs.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.state.borrow_mut();
        while let Err(error) = state.flush(&self.stream) {
            if error.kind() != io::ErrorKind::WouldBlock {
                break; // the read returns the error
            }
            if self.stream.poll_writable(cx)?.is_pending() {
                break;
            }
        }
        loop {
            if state.has_something() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.stream.poll_readable(cx))?;
            state.pump(&self.stream, &self.core, &mut []);
        }
    }

    /// Waits until everything accepted has been sent and there is room for more.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.state.borrow_mut();
        state.burst = 0;
        loop {
            ready!(self.stream.poll_writable(cx))?;
            match state.flush(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return Poll::Ready(Ok(())), // the write returns the error
            }
        }
    }

    /// Whether everything accepted has been sent.
    pub fn is_flushed(&self) -> bool {
        !self.state.borrow().connection.wants_write()
    }

    /// As [`TcpStream::has_unread_event`] for the plaintext: a mere session ticket does not count.
    /// Reads the socket if it must.
    pub fn has_unread_event(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        if !state.has_something() && self.stream.has_unread_event() {
            while !state.has_something() && state.pump(&self.stream, &self.core, &mut []).is_some()
            {
            }
            // The event has disarmed the socket's interest; without this the peer's end would go
            // unnoticed.
            let _ = self.stream.poll_readable(&mut Context::from_waker(Waker::noop()));
        }
        state.has_something()
    }

    /// See [`TcpStream::try_read`].
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let state = &mut *self.state.borrow_mut();
        let mut filled = state.read(buf)?;
        while filled < buf.len() && matches!(state.end, End::Open) {
            if filled > 0 && !self.stream.has_unread_event() {
                break;
            }
            match state.pump(&self.stream, &self.core, &mut buf[filled..]) {
                Some(read) => filled += read,
                None => break,
            }
        }
        if filled > 0 || buf.is_empty() {
            return Ok(filled);
        }
        match &state.end {
            End::Open => Err(io::ErrorKind::WouldBlock.into()),
            End::Clean => Ok(0),
            End::Cut => Err(io::ErrorKind::UnexpectedEof.into()),
            End::Failed(kind) => Err((*kind).into()),
            End::Broken(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error.clone())),
        }
    }

    /// See [`TcpStream::try_peek`]; returns at most what is available of the first record.
    pub fn try_peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let state = &mut *self.state.borrow_mut();
        while !state.has_something() && state.pump(&self.stream, &self.core, &mut []).is_some() {}
        if state.plaintext == 0 {
            return match state.end {
                End::Open => Err(io::ErrorKind::WouldBlock.into()),
                End::Clean => Ok(0),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        let mut reader = state.connection.reader();
        let there = reader.fill_buf()?;
        let peeked = there.len().min(buf.len());
        buf[..peeked].copy_from_slice(&there[..peeked]);
        Ok(peeked)
    }

    /// See [`TcpStream::try_write`].
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.try_write_vectored(&[IoSlice::new(buf)])
    }

    /// See [`TcpStream::try_write_vectored`]. Encrypts no more than the socket accepts plus a
    /// bounded remainder, and no more than a bounded burst, so that a fast peer does not monopolise
    /// the core.
    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let state = &mut *self.state.borrow_mut();
        let wanted: usize = bufs.iter().map(|buf| buf.len()).sum();
        let mut accepted = 0;
        loop {
            match state.flush(&self.stream) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
            if accepted == wanted || state.burst >= TLS_BURST_BYTES_MAX {
                break;
            }
            let taken = state.accept(bufs, accepted)?;
            accepted += taken;
            state.burst += taken;
        }
        if accepted == 0 && wanted > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(accepted)
    }

    /// Sends the close_notify (RFC 8446, 6.1).
    pub fn end_inside(&self) {
        let state = &mut *self.state.borrow_mut();
        state.close();
        // The task that waits for the flush sends the remainder and sees any error.
        let _ = state.flush(&self.stream);
    }

    /// Closing our direction sends a close_notify first (RFC 8446, 6.1). Accepted bytes are sent
    /// before that, by a later wait if necessary.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let state = &mut *self.state.borrow_mut();
        if how == Shutdown::Read {
            return self.stream.shutdown(how);
        }
        state.close();
        match state.flush(&self.stream) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        if how == Shutdown::Both { self.stream.shutdown(how) } else { Ok(()) }
    }

    /// See [`TcpStream::local_addr`].
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// See [`TcpStream::set_linger0`].
    pub fn set_linger0(&self) -> io::Result<()> {
        self.state.borrow_mut().aborted = true;
        self.stream.set_linger0()
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        // No task remains that could wait for room.
        self.end_inside();
    }
}

impl State {
    /// Whether a read returns at once.
    fn has_something(&self) -> bool {
        self.plaintext > 0 || !matches!(self.end, End::Open)
    }

    /// Reads available plaintext.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while self.plaintext > 0 && filled < buf.len() {
            let read = self.connection.reader().read(&mut buf[filled..])?;
            self.plaintext -= read;
            filled += read;
            if self.plaintext == 0 && !self.held.is_empty() {
                let held = std::mem::take(&mut self.held);
                self.take_in(&held, &mut []);
            }
        }
        Ok(filled)
    }

    /// Reads the socket once and puts plaintext into `buf` as far as there is room. It is called
    /// when all plaintext has been read. `None`: the socket had no data.
    fn pump(&mut self, stream: &TcpStream, core: &CoreTls, buf: &mut [u8]) -> Option<usize> {
        core.with_input(|input| {
            let wanted = buf.len().clamp(TLS_TAKE_BYTES, input.len());
            match stream.try_read(&mut input[..wanted]) {
                Ok(0) => self.end = End::Cut,
                Ok(read) => return Some(self.take_in(&input[..read], buf)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) => self.end = End::Failed(error.kind()),
            }
            Some(0)
        })
    }

    /// Processes bytes from the socket. Returns how much plaintext went into `buf`.
    fn take_in(&mut self, mut bytes: &[u8], buf: &mut [u8]) -> usize {
        let mut filled = 0;
        while !bytes.is_empty() {
            // Bytes after a close_notify are ignored.
            match self.connection.read_tls(&mut bytes) {
                Ok(0) => break,
                Ok(_) => {}
                // A full record and a small one were decrypted, which is more than rustls keeps.
                Err(_) if self.plaintext > 0 => {
                    self.held = bytes.to_vec();
                    break;
                }
                Err(error) => {
                    self.end = End::Broken(rustls::Error::General(error.to_string()));
                    break;
                }
            }
            match self.connection.process_new_packets() {
                Ok(now) => {
                    self.plaintext = now.plaintext_bytes_to_read();
                    if now.peer_has_closed() {
                        self.end = End::Clean;
                    }
                }
                Err(error) => {
                    self.end = End::Broken(error);
                    break;
                }
            }
            filled += self.read(&mut buf[filled..]).unwrap_or(0);
        }
        filled
    }

    /// Accepts as much of `bufs`, starting at byte `from`, as there is room for.
    fn accept(&mut self, bufs: &[IoSlice<'_>], mut from: usize) -> io::Result<usize> {
        if self.closing.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut writer = self.connection.writer();
        if from == 0 {
            // A head and its body share a record.
            return writer.write_vectored(bufs);
        }
        for buf in bufs {
            if from < buf.len() {
                return writer.write(&buf[from..]);
            }
            from -= buf.len();
        }
        Ok(0)
    }

    /// Queues our close_notify, unless the connection has failed or will be reset.
    fn close(&mut self) {
        let failed = matches!(self.end, End::Broken(_) | End::Failed(_)) || self.aborted;
        if self.closing.is_none() && !failed && !self.connection.is_handshaking() {
            self.connection.send_close_notify();
            self.closing = Some(Closing::Pending);
        }
    }

    /// Sends the queued records. `WouldBlock`: not all were sent.
    fn flush(&mut self, stream: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut Wire(stream))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        if self.closing == Some(Closing::Pending) {
            self.closing = Some(Closing::Done);
            // If the peer has gone, this does not matter.
            let _ = stream.shutdown(Shutdown::Write);
        }
        Ok(())
    }
}

/// Lets rustls write to the socket.
struct Wire<'s>(&'s TcpStream);

impl Write for Wire<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.try_write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum HandshakeError {
    /// The peer closed, or the socket failed.
    Closed,
    /// The peer's messages or its certificate are not acceptable, or it rejected ours.
    Tls(Box<rustls::Error>),
}

/// Calls `look` with the facts of a connection.
fn with_facts(connection: &Connection, look: &mut dyn FnMut(&Facts<'_>)) {
    let version = match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_3) => "1.3",
        Some(ProtocolVersion::TLSv1_2) => "1.2",
        _ => "",
    };
    let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
    let name = suite.and_then(|suite| suite.as_str()).unwrap_or_default();
    // Rustls gives suites of TLS 1.3 another prefix.
    let cipher = match name.strip_prefix("TLS13_") {
        Some(rest) => format!("TLS_{rest}"),
        None => name.to_owned(),
    };
    let server_name = match connection {
        Connection::Server(server) => server.server_name(),
        Connection::Client(_) => None,
    };
    let certificate = connection.peer_certificates().and_then(|chain| chain.first());
    let certificate = certificate.and_then(|der| EndEntityCert::try_from(der).ok());
    let peer = certificate.as_ref();
    look(&Facts {
        version,
        cipher: &cipher,
        server_name,
        resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        peer: peer.map(|peer| Peer { subject: peer.subject(), issuer: peer.issuer() }),
    });
}
