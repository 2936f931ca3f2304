//! An encrypted connection with the methods of a socket.
//!
//! ```text
//!   socket --recv--> core's buffer: records, opened there --try_read--> caller
//!   caller --try_write--> records, at most TLS_OUTPUT_BYTES_MAX --send--> socket
//! ```
//!
//! Readable means that a read returns at once: with plaintext, the peer's end, or an error. Bytes
//! on the socket are not enough, because they may be half a record, or one without data; so waiting
//! itself opens records. Plaintext that has not been read counts as readable even if the socket is
//! idle.
//!
//! A write is accepted before all of it has been sent: what the socket did not accept is
//! kept, within a bound, and is sent by the next write or wait. See [`TlsStream::is_flushed`].
//!
//! What never happens: a connection that ended without the peer's close_notify is considered
//! properly ended (RFC 8446, 6.1); an idle connection holds plaintext or records.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use runtime::net::TcpStream;
use rustls::crypto::cipher::OutboundChunks;
use rustls::{Error, SupportedCipherSuite};
use rustls_pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::CoreTls;
use super::records::{Opened, Records, record_bytes};
use crate::limits::{
    TLS_BURST_BYTES_MAX, TLS_OUTPUT_BYTES_MAX, TLS_READS_MAX, TLS_RECORD_DATA_BYTES, TLS_TAKE_BYTES,
};
use crate::tls::facts::{Facts, Peer, TlsFacts};

/// Buffers of the caller that a record may be made of.
const BUFFERS_MAX: usize = 8;

/// An encrypted connection.
#[derive(Debug)]
pub struct TlsStream {
    stream: TcpStream,
    core: Rc<CoreTls>,
    state: RefCell<State>,
    about: About,
}

const _: () = assert!(size_of::<TlsStream>() <= 824, "idle connections pay for it");

/// What the handshake has found out.
#[derive(Debug, Default)]
pub(super) struct About {
    pub(super) is_resumed: bool,
    pub(super) is_http2: bool,
    /// The client is a certification authority, and has seen what it wanted to see.
    pub(super) is_validation: bool,
    /// The name that the client requested.
    pub(super) server_name: Option<Box<str>>,
    /// The client's certificate. Boxed, because few clients have one.
    pub(super) certificate: Option<Box<CertificateDer<'static>>>,
}

struct State {
    records: Records,
    /// From the socket: the beginning of a record.
    incoming: Vec<u8>,
    /// Opened and not yet read.
    plaintext: Pending,
    /// Records that the socket did not accept.
    outgoing: Unsent,
    end: End,
    /// Bytes accepted since the last wait for room.
    burst: usize,
    /// Our close_notify has been queued; whether the socket has been shut down after it.
    closing: Option<Closing>,
    /// The connection will be reset, so no close_notify is sent.
    aborted: bool,
}

/// Bytes that are taken from the front. None are held in memory when all have been taken.
#[derive(Default)]
pub(super) struct Pending {
    bytes: Vec<u8>,
    from: usize,
}

/// Bytes that are sent later. There are rarely any, and then they take one word.
#[derive(Debug, Default)]
struct Unsent(Option<Box<Pending>>);

impl Unsent {
    fn is_empty(&self) -> bool {
        debug_assert!(self.0.as_ref().is_none_or(|pending| !pending.is_empty()));
        self.0.is_none()
    }

    /// Adds a record of which this many bytes have been sent, but not all.
    fn push(&mut self, record: Vec<u8>, sent: usize) {
        debug_assert!(sent < record.len() && (sent == 0 || self.is_empty()));
        let pending = self.0.get_or_insert_default();
        pending.push(record);
        pending.advance(sent);
    }

    /// Sends everything. `WouldBlock`: not all was sent.
    fn send(&mut self, stream: &TcpStream) -> io::Result<()> {
        if let Some(pending) = &mut self.0 {
            pending.send(stream)?;
            self.0 = None;
        }
        Ok(())
    }
}

/// Without the bytes, which are a user's data.
impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.rest().len())
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("records", &self.records)
            .field("incoming", &self.incoming.len())
            .field("plaintext", &self.plaintext)
            .field("outgoing", &self.outgoing)
            .field("end", &self.end)
            .field("closing", &self.closing)
            .finish_non_exhaustive()
    }
}

impl TlsFacts for TlsStream {
    fn with_facts(&self, look: &mut dyn FnMut(&Facts<'_>)) {
        let suite = self.state.borrow().records.suite();
        let name = suite.suite().as_str().unwrap_or_default();
        let (version, cipher) = match suite {
            SupportedCipherSuite::Tls12(_) => ("1.2", name.to_owned()),
            // Rustls gives these another prefix.
            SupportedCipherSuite::Tls13(_) => ("1.3", name.replacen("TLS13_", "TLS_", 1)),
        };
        let certificate = self.about.certificate.as_deref();
        let peer = certificate.and_then(|der| EndEntityCert::try_from(der).ok());
        look(&Facts {
            version,
            cipher: &cipher,
            server_name: self.about.server_name.as_deref(),
            resumed: self.about.is_resumed,
            peer: peer.as_ref().map(|peer| Peer { subject: peer.subject(), issuer: peer.issuer() }),
        });
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
    Broken(Box<Error>),
}

impl TlsStream {
    /// A connection after its handshake. `incoming` has already been read from the socket.
    pub(super) fn new(
        stream: TcpStream,
        core: &Rc<CoreTls>,
        records: Records,
        mut incoming: Vec<u8>,
        about: About,
    ) -> Self {
        let mut state = State::new(records);
        state.take_in(&mut incoming, &mut []);
        TlsStream { stream, core: Rc::clone(core), state: RefCell::new(state), about }
    }

    /// Whether an earlier session was resumed.
    pub fn is_resumed(&self) -> bool {
        self.about.is_resumed
    }

    /// Whether the handshake chose HTTP/2 (ALPN).
    pub fn speaks_http2(&self) -> bool {
        self.about.is_http2
    }

    /// Whether the client only wanted to see a certificate (RFC 8737).
    pub(super) fn is_validation(&self) -> bool {
        self.about.is_validation
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
        self.state.borrow().outgoing.is_empty()
    }

    /// As [`TcpStream::watch`] for the plaintext.
    pub fn watch(&self) -> bool {
        !self.has_unread_event() && self.stream.watch()
    }

    /// As [`TcpStream::has_unread_event`] for the plaintext: a mere session ticket does not count.
    /// Reads the socket if it must.
    pub fn has_unread_event(&self) -> bool {
        let state = &mut *self.state.borrow_mut();
        if !state.has_something() && self.stream.has_unread_event() {
            state.look(&self.stream, &self.core);
            // The event has disarmed the socket's interest; without this the peer's end would go
            // unnoticed.
            self.stream.watch();
        }
        state.has_something()
    }

    /// See [`TcpStream::try_read`].
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let state = &mut *self.state.borrow_mut();
        let mut filled = state.read(buf);
        // What remains is found by the next wait: the socket is still readable.
        for _ in 0..TLS_READS_MAX {
            if filled == buf.len() || !matches!(state.end, End::Open) {
                break;
            }
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
            End::Broken(error) => Err(invalid(error)),
        }
    }

    /// See [`TcpStream::try_peek`]; returns at most what has been opened.
    pub fn try_peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        let state = &mut *self.state.borrow_mut();
        state.look(&self.stream, &self.core);
        if state.plaintext.is_empty() {
            return match state.end {
                End::Open => Err(io::ErrorKind::WouldBlock.into()),
                End::Clean => Ok(0),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            };
        }
        let there = state.plaintext.rest();
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
            let taken = state.seal(&self.stream, bufs, accepted)?;
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
    /// Nothing has been read or written.
    fn new(records: Records) -> State {
        State {
            records,
            incoming: Vec::new(),
            plaintext: Pending::default(),
            outgoing: Unsent::default(),
            end: End::Open,
            burst: 0,
            closing: None,
            aborted: false,
        }
    }

    /// Whether a read returns at once.
    fn has_something(&self) -> bool {
        !self.plaintext.is_empty() || !matches!(self.end, End::Open)
    }

    /// Reads available plaintext.
    fn read(&mut self, buf: &mut [u8]) -> usize {
        let there = self.plaintext.rest();
        let read = there.len().min(buf.len());
        buf[..read].copy_from_slice(&there[..read]);
        self.plaintext.advance(read);
        read
    }

    /// Reads the socket once and puts plaintext into `buf` as far as there is room. It is called
    /// when all plaintext has been read. `None`: the socket had no data.
    fn pump(&mut self, stream: &TcpStream, core: &CoreTls, buf: &mut [u8]) -> Option<usize> {
        core.with_input(|input| {
            let held = self.incoming.len();
            input[..held].copy_from_slice(&self.incoming);
            let wanted = buf.len().max(TLS_TAKE_BYTES).min(input.len() - held);
            match stream.try_read(&mut input[held..][..wanted]) {
                Ok(0) => self.end = End::Cut,
                Ok(read) => return Some(self.take_in(&mut input[..held + read], buf)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) => self.end = End::Failed(error.kind()),
            }
            Some(0)
        })
    }

    /// Reads the socket until there is something, at most `TLS_READS_MAX` times.
    fn look(&mut self, stream: &TcpStream, core: &CoreTls) {
        for _ in 0..TLS_READS_MAX {
            if self.has_something() || self.pump(stream, core, &mut []).is_none() {
                break;
            }
        }
    }

    /// Opens the whole records in `bytes`, in place, and keeps the beginning of the next one.
    /// Returns how much plaintext went into `buf`.
    fn take_in(&mut self, mut bytes: &mut [u8], buf: &mut [u8]) -> usize {
        let mut filled = 0;
        // Bytes after a close_notify are ignored.
        while matches!(self.end, End::Open) {
            let opened = match record_bytes(bytes) {
                Ok(Some(length)) if length <= bytes.len() => {
                    let (record, rest) = std::mem::take(&mut bytes).split_at_mut(length);
                    bytes = rest;
                    self.records.open(record)
                }
                Ok(_) => break,
                Err(error) => Err(error),
            };
            match opened {
                Ok(Opened::Data(data)) => {
                    let (now, later) = data.split_at(data.len().min(buf.len() - filled));
                    buf[filled..][..now.len()].copy_from_slice(now);
                    filled += now.len();
                    self.plaintext.extend(later);
                }
                Ok(Opened::Nothing) => {}
                Ok(Opened::Answer(record)) if self.closing.is_none() => {
                    self.outgoing.push(record, 0);
                }
                Ok(Opened::Answer(_)) => {}
                Ok(Opened::End) => self.end = End::Clean,
                Err(error) => {
                    // Nothing follows our close_notify.
                    if self.closing.is_none()
                        && let Some(alert) = self.records.alert_for(&error)
                    {
                        self.outgoing.push(alert, 0);
                    }
                    self.end = End::Broken(Box::new(error));
                }
            }
        }
        match self.end {
            End::Open if !bytes.is_empty() => {
                self.incoming.clear();
                self.incoming.extend_from_slice(bytes);
            }
            _ => self.incoming = Vec::new(),
        }
        filled
    }

    /// Seals as much of `bufs`, starting at byte `from`, as fits into `TLS_OUTPUT_BYTES_MAX`, and
    /// sends it as far as the socket accepts it. It is called when all else has been sent.
    fn seal(
        &mut self,
        stream: &TcpStream,
        bufs: &[IoSlice<'_>],
        mut from: usize,
    ) -> io::Result<usize> {
        if let End::Broken(error) = &self.end {
            return Err(invalid(error));
        }
        if self.closing.is_some() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut chunks = [&[][..]; BUFFERS_MAX];
        let mut count = 0;
        for buf in bufs {
            if from >= buf.len() {
                from -= buf.len();
            } else if count < BUFFERS_MAX {
                chunks[count] = &buf[from..];
                count += 1;
                from = 0;
            }
        }
        // A head and its body share a record.
        let mut data = OutboundChunks::new(&chunks[..count]);
        let whole = data.len();
        let mut records = [const { Vec::new() }; TLS_OUTPUT_BYTES_MAX / TLS_RECORD_DATA_BYTES];
        for record in &mut records {
            if data.is_empty() {
                break;
            }
            let (now, later) = data.split_at(TLS_RECORD_DATA_BYTES);
            match self.records.seal(now) {
                Ok(sealed) => *record = sealed,
                Err(error) if data.len() == whole => return Err(invalid(&error)),
                Err(_) => break,
            }
            data = later;
        }
        let mut sent = match stream.try_write_vectored(&records.each_ref().map(|r| IoSlice::new(r)))
        {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        for record in records {
            let now = sent.min(record.len());
            sent -= now;
            if now < record.len() {
                self.outgoing.push(record, now);
            }
        }
        Ok(whole - data.len())
    }

    /// Queues our close_notify, unless the connection has failed or will be reset.
    fn close(&mut self) {
        let failed = matches!(self.end, End::Broken(_) | End::Failed(_)) || self.aborted;
        if self.closing.is_some() || failed {
            return;
        }
        if let Ok(record) = self.records.close_notify() {
            self.outgoing.push(record, 0);
        }
        self.closing = Some(Closing::Pending);
    }

    /// Sends the queued records. `WouldBlock`: not all were sent.
    fn flush(&mut self, stream: &TcpStream) -> io::Result<()> {
        self.outgoing.send(stream)?;
        if self.closing == Some(Closing::Pending) {
            self.closing = Some(Closing::Done);
            // If the peer has gone, this does not matter.
            let _ = stream.shutdown(Shutdown::Write);
        }
        Ok(())
    }
}

fn invalid(error: &Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.clone())
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn push(&mut self, bytes: Vec<u8>) {
        match self.is_empty() {
            true => self.bytes = bytes,
            false => self.extend(&bytes),
        }
    }

    pub(super) fn advance(&mut self, bytes: usize) {
        self.from += bytes;
        if self.from == self.bytes.len() {
            *self = Pending::default();
        }
    }

    /// Sends everything. `WouldBlock`: not all was sent.
    pub(super) fn send(&mut self, stream: &TcpStream) -> io::Result<()> {
        while !self.is_empty() {
            match stream.try_write(self.rest())? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => self.advance(sent),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::ErrorKind;
    use std::time::Duration;

    use runtime::net::{ListenOptions, TcpListener};
    use runtime::time::sleep;
    use runtime::{Runtime, sim};
    use rustls::version::TLS13;

    use super::super::records::tests::{pair, tickets};
    use super::*;

    fn states() -> [State; 2] {
        let (client, server) = pair(&TLS13);
        [client, server].map(State::new)
    }

    #[test]
    fn nothing_follows_our_close_notify() {
        for is_closing in [false, true] {
            let [_, mut server] = states();
            if is_closing {
                server.close();
            }
            let unsent =
                |server: &State| server.outgoing.0.as_ref().map_or(0, |of| of.rest().len());
            let before = unsent(&server);
            server.take_in(&mut [23, 3, 3, 0, 20].repeat(5), &mut []);
            assert!(matches!(server.end, End::Broken(_)));
            assert_eq!(unsent(&server) == before, is_closing);
        }
    }

    #[test]
    fn a_read_ends_although_the_peer_sends_no_data_and_finds_it_later() {
        let block = |error: io::Result<usize>| error.unwrap_err().kind() == ErrorKind::WouldBlock;
        let attempts: [&dyn Fn(&TlsStream) -> bool; 3] = [
            &|stream| block(stream.try_read(&mut [0; 9])),
            &|stream| block(stream.try_peek(&mut [0; 9])),
            &|stream| !stream.has_unread_event(),
        ];
        for finds_nothing in attempts {
            let mut options = sim::Options::new(1);
            options.buffer_bytes = 1024 * 1024;
            Runtime::simulated(options).block_on(async {
                let address = SocketAddr::from(([10, 0, 0, 1], 443));
                let listener = TcpListener::bind(address, &ListenOptions::default()).unwrap();
                let client = TcpStream::connect(address).await.unwrap();
                let (server, _) = listener.accept().await.unwrap();
                let (records, mut sealing) = pair(&TLS13);
                let mut sent = tickets(&mut sealing, 2 * TLS_READS_MAX * TLS_TAKE_BYTES);
                sent.extend(sealing.seal(b"data"[..].into()).unwrap());
                server.write_all(&sent).await.unwrap();
                sleep(Duration::from_secs(1)).await;
                client.readable().await.unwrap();
                let core = CoreTls::new();
                let client = TlsStream::new(client, &core, records, Vec::new(), About::default());
                assert!(finds_nothing(&client));
                poll_fn(|cx| client.poll_readable(cx)).await.unwrap();
                assert_eq!(client.try_read(&mut [0; 9]).unwrap(), 4);
            });
        }
    }

    #[test]
    fn a_watched_connection_shows_what_arrives_without_a_task() {
        Runtime::simulated(sim::Options::new(1)).block_on(async {
            let address = SocketAddr::from(([10, 0, 0, 1], 443));
            let listener = TcpListener::bind(address, &ListenOptions::default()).unwrap();
            let client = TcpStream::connect(address).await.unwrap();
            let (server, _) = listener.accept().await.unwrap();
            let (records, mut sealing) = pair(&TLS13);
            let core = CoreTls::new();
            let client = TlsStream::new(client, &core, records, Vec::new(), About::default());
            assert!(client.watch());
            let ticket = tickets(&mut sealing, 1);
            let data = sealing.seal(b"data"[..].into()).unwrap();
            for (sent, shows) in [(ticket, false), (data, true)] {
                server.write_all(&sent).await.unwrap();
                sleep(Duration::from_secs(1)).await;
                assert_eq!((client.has_unread_event(), client.watch()), (shows, !shows));
            }
        });
    }

    #[test]
    fn what_is_printed_of_a_connection_has_no_plaintext() {
        let [mut client, mut server] = states();
        let mut record = client.records.seal(b"password"[..].into()).unwrap();
        server.take_in(&mut record, &mut []);
        assert_eq!(server.plaintext.rest(), b"password");
        let printed = format!("{server:?}");
        assert!(printed.contains("plaintext: 8 bytes"), "{printed}");
        assert!(!printed.contains("112, 97"), "{printed}");
    }
}
