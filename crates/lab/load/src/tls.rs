//! TLS below HTTP/1 and HTTP/2, by rustls, and its configuration for HTTP/3.
//!
//! What: [`Tls`] is the configuration of a run, a [`Session`] is one connection. Every connection
//! makes a full handshake, unless the plan has sessions resumed. A certificate is verified only if
//! the plan names roots. An end without a close_notify counts as an end: if it came too early, HTTP
//! shows it, except in a body that ends by the close. What never happens: plaintext is left inside
//! a session after a read, where no event would report it.

use std::io::{self, Read, Write};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;
use rustls::time_provider::DefaultTimeProvider;
use rustls::{AlertDescription, ClientConfig, ClientConnection, Error, HandshakeKind, NamedGroup};
use transport::tls::{ClientTls, UpstreamTls};

use crate::plan::{Plan, Protocol};
use crate::sys::{self, would_block};

/// The largest record (RFC 8446 section 5.2), a part of which may wait for the rest.
const RECORD_BYTES_MAX: usize = (1 << 14) + 256;
/// The room for plaintext that [`Session::recv`] needs.
const ROOM_BYTES_MIN: usize = 64 * 1024;
/// The most that one read takes off a socket: then all of its plaintext finds room.
const INPUT_BYTES: usize = ROOM_BYTES_MIN - RECORD_BYTES_MAX;
/// The same during a handshake: rustls keeps so much plaintext that comes behind it.
const HANDSHAKE_BYTES: usize = 8 * 1024;
/// Sessions kept for later connections. All are of the target.
const SESSIONS_MAX: usize = 1024;
const HTTP2: &[u8] = b"h2";
const NOT_OFFERED: &str =
    "the server does not offer the requested version of HTTP in the TLS handshake (ALPN)";

/// The configuration of a run.
pub(crate) struct Tls {
    pub(crate) config: Arc<ClientConfig>,
    name: ServerName<'static>,
    input: Box<[u8]>,
}

impl Tls {
    /// Reads the roots, if the plan names some.
    pub(crate) fn new(plan: &Plan) -> Result<Tls, String> {
        let loaded = ClientTls::load(&UpstreamTls {
            ca: plan.ca.clone(),
            certificate: None,
            server_name: None,
            verify: plan.ca.is_some(),
        })?;
        let mut config = loaded.config().clone();
        config.alpn_protocols = vec![match plan.protocol {
            Protocol::Http1 => b"http/1.1".to_vec(),
            Protocol::Http2 { .. } => HTTP2.to_vec(),
            Protocol::Http3 { .. } => b"h3".to_vec(),
        }];
        config.resumption = match plan.resume {
            true => Resumption::store(Arc::new(Sessions::default())),
            false => Resumption::disabled(),
        };
        // The other one is that of the runtime, which does not run here.
        config.time_provider = Arc::new(DefaultTimeProvider);
        let host = plan.target.host();
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("{host:?} is neither a host name nor an address"))?;
        Ok(Tls { config: Arc::new(config), name, input: vec![0; INPUT_BYTES].into_boxed_slice() })
    }

    pub(crate) fn session(&self) -> io::Result<Session> {
        let session = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        let mut session = session.map_err(invalid)?;
        session.set_buffer_limit(None);
        Ok(Session(session))
    }

    /// Goes on with a handshake. True when it is complete.
    pub(crate) fn handshake(&mut self, session: &mut Session, fd: RawFd) -> io::Result<bool> {
        match session.handshake(fd, &mut self.input[..HANDSHAKE_BYTES]) {
            Ok(true) if self.wants_http2() && session.0.alpn_protocol() != Some(HTTP2) => {
                Err(invalid(NOT_OFFERED))
            }
            Err(e) => match e.get_ref().and_then(|inside| inside.downcast_ref::<Error>()) {
                Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
                    Err(invalid(NOT_OFFERED))
                }
                Some(Error::InvalidMessage(_)) => {
                    Err(invalid("no TLS handshake: does the server speak TLS on this port?"))
                }
                Some(why) => Err(invalid(format!("no TLS handshake: {why}"))),
                None => Err(e),
            },
            result => result,
        }
    }

    fn wants_http2(&self) -> bool {
        self.config.alpn_protocols.iter().any(|name| name == HTTP2)
    }

    /// As recv(2), of plaintext. `buf` has room for [`ROOM_BYTES_MIN`].
    pub(crate) fn recv(
        &mut self,
        session: &mut Session,
        fd: RawFd,
        buf: &mut [u8],
    ) -> io::Result<usize> {
        debug_assert!(buf.len() >= ROOM_BYTES_MIN, "all plaintext finds room");
        session.recv(fd, &mut self.input, buf)
    }
}

/// The sessions that connections can resume: of TLS 1.3, each once. rustls's store has eight for a
/// server, which is too few for many connections at a time.
#[derive(Debug, Default)]
struct Sessions(Mutex<Vec<Tls13ClientSessionValue>>);

impl Sessions {
    fn kept(&self) -> MutexGuard<'_, Vec<Tls13ClientSessionValue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, session: Tls13ClientSessionValue) {
        let mut kept = self.kept();
        if kept.len() < SESSIONS_MAX {
            kept.push(session);
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.kept().pop()
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Session(ClientConnection);

impl Session {
    fn handshake(&mut self, fd: RawFd, input: &mut [u8]) -> io::Result<bool> {
        self.flush(fd)?;
        match sys::recv(fd, input) {
            Ok(0) => return Err(invalid("the server has closed it during the TLS handshake")),
            Ok(count) => {
                let taken = self.take(&input[..count], &mut []);
                // An alert says why it failed.
                let flushed = self.flush(fd);
                taken.and(flushed)?;
            }
            Err(e) if would_block(&e) => {}
            Err(e) => return Err(e),
        }
        Ok(!self.0.is_handshaking())
    }

    fn recv(&mut self, fd: RawFd, input: &mut [u8], buf: &mut [u8]) -> io::Result<usize> {
        // It came with the end of the handshake.
        let early = self.plaintext(buf);
        if early > 0 {
            return Ok(early);
        }
        if self.has_ended() {
            return Ok(0);
        }
        let count = sys::recv(fd, input)?;
        if count == 0 {
            return Ok(0);
        }
        let filled = self.take(&input[..count], buf)?;
        self.flush(fd)?;
        if filled == 0 && !self.has_ended() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(filled)
    }

    /// The server has sent a close_notify.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.process_new_packets().is_ok_and(|state| state.peer_has_closed())
    }

    /// Processes bytes of the socket. Returns how much plaintext went into `buf`.
    fn take(&mut self, mut bytes: &[u8], buf: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        // What follows a close_notify is not read.
        while !bytes.is_empty() && self.0.read_tls(&mut bytes)? > 0 {
            self.0.process_new_packets().map_err(invalid)?;
            filled += self.plaintext(&mut buf[filled..]);
        }
        Ok(filled)
    }

    fn plaintext(&mut self, buf: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < buf.len() {
            match self.0.reader().read(&mut buf[filled..]) {
                Ok(count) if count > 0 => filled += count,
                _ => break,
            }
        }
        filled
    }

    /// Sends as much as the socket accepts, and keeps the rest.
    pub(crate) fn send(&mut self, fd: RawFd, bytes: &[u8]) -> io::Result<()> {
        self.0.writer().write_all(bytes)?;
        self.flush(fd)
    }

    pub(crate) fn has_resumed(&self) -> bool {
        self.0.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.0.wants_write()
    }

    fn flush(&mut self, fd: RawFd) -> io::Result<()> {
        while self.0.wants_write() {
            match self.0.write_tls(&mut Socket(fd)) {
                Ok(_) => {}
                Err(e) if would_block(&e) => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

fn invalid(e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, e)
}

struct Socket(RawFd);

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        sys::send(self.0, bytes)
    }

    fn write_vectored(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        sys::send_pieces(self.0, pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
