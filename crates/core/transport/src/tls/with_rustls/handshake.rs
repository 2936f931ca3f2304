//! A handshake: rustls gets whole records one by one, until there are keys.
//!
//! One by one, because what follows the handshake is not for rustls: see [`super::records`].

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use runtime::net::TcpStream;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{CommonState, ContentType, Error, HandshakeKind, InvalidMessage};

use super::records::{HEADER_BYTES, Records, Session, record_bytes};
use super::stream::{About, Pending};
use super::{ACME_TLS, CoreTls, HTTP2, TlsStream};
use crate::limits::{TLS_HANDSHAKE_BYTES_MAX, TLS_TAKE_BYTES};

/// A record of TLS 1.3: its header, the type of its content, and the tag of the cipher.
const ENCRYPTED_BYTES_MIN: usize = HEADER_BYTES + 1 + 16;

thread_local! {
    /// The name that the client of the current handshake requests: rustls gives it to the choice of
    /// a certificate only.
    pub(super) static REQUESTED: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

/// Either side of a handshake.
pub(super) enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum HandshakeError {
    /// The peer closed, or the socket failed.
    Closed,
    /// The peer's messages or its certificate are not acceptable, or it rejected ours.
    Tls(Box<Error>),
}

impl From<Error> for HandshakeError {
    fn from(error: Error) -> HandshakeError {
        HandshakeError::Tls(Box::new(error))
    }
}

/// Does a handshake. `first` has already been read from the socket. Before each wait, `hold` is
/// given the number of bytes from the peer that are held.
pub(super) async fn handshake(
    stream: TcpStream,
    core: &Rc<CoreTls>,
    side: Side,
    first: Vec<u8>,
    hold: &dyn Fn(usize),
) -> Result<TlsStream, HandshakeError> {
    let mut handshake = Handshake::new(side, first);
    std::future::poll_fn(|cx| {
        let polled = handshake.poll(&stream, core, cx);
        if polled.is_pending() {
            hold(handshake.incoming.len());
        }
        polled
    })
    .await?;
    let (records, about, incoming) = handshake.finish()?;
    Ok(TlsStream::new(stream, core, records, incoming, about))
}

pub(super) struct Handshake {
    side: Side,
    /// Bytes from the socket.
    pub(super) incoming: Vec<u8>,
    /// How many of them rustls has seen: whole records.
    given: usize,
    /// Rustls needs another record.
    is_blocked: bool,
    pub(super) outgoing: Pending,
    server_name: Option<Box<str>>,
}

/// What rustls wants.
enum Step {
    /// To be called again.
    Again,
    /// Another record.
    Record,
    Done,
}

impl Handshake {
    pub(super) fn new(side: Side, first: Vec<u8>) -> Handshake {
        let outgoing = Pending::default();
        let (given, is_blocked) = (0, false);
        Handshake { side, incoming: first, given, is_blocked, outgoing, server_name: None }
    }

    fn poll(
        &mut self,
        stream: &TcpStream,
        core: &CoreTls,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), HandshakeError>> {
        loop {
            let is_done = self.advance();
            while !self.outgoing.is_empty() {
                match self.outgoing.send(stream) {
                    Ok(()) => {}
                    // An alert that there is no room for is not waited for.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && is_done.is_ok() => {
                        ready!(stream.poll_writable(cx)).map_err(|_| HandshakeError::Closed)?;
                    }
                    Err(_) if is_done.is_err() => break,
                    Err(_) => return Poll::Ready(Err(HandshakeError::Closed)),
                }
            }
            if is_done? {
                return Poll::Ready(Ok(()));
            }
            ready!(stream.poll_readable(cx)).map_err(|_| HandshakeError::Closed)?;
            let read: io::Result<usize> = core.with_input(|input| {
                let read = stream.try_read(&mut input[..TLS_TAKE_BYTES])?;
                self.incoming.extend_from_slice(&input[..read]);
                Ok(read)
            });
            match read {
                Ok(0) => return Poll::Ready(Err(HandshakeError::Closed)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(Err(HandshakeError::Closed)),
            }
        }
    }

    /// Gives rustls the whole records. Returns whether the handshake is complete.
    pub(super) fn advance(&mut self) -> Result<bool, Error> {
        let mut malformed = None;
        loop {
            if self.is_blocked {
                if let Some(error) = malformed {
                    return Err(error);
                }
                let rest = &self.incoming[self.given..];
                match next_record(rest) {
                    Ok(Some(bytes)) if bytes <= rest.len() => self.given += bytes,
                    Ok(_) => return self.within_limit().map(|()| false),
                    Err(error) => {
                        // Rustls may have an alert for it.
                        malformed = Some(error);
                        self.given += rest.len();
                    }
                }
                self.is_blocked = false;
            }
            match self.step() {
                Ok(Step::Again) => {}
                Ok(Step::Done) => return malformed.map_or(Ok(true), Err),
                Ok(Step::Record) => self.is_blocked = true,
                Err(error) => {
                    // Rustls may have an alert for the peer. It must not look at the bytes again.
                    while self.side.state().wants_write() && self.step().is_ok() {}
                    return Err(error);
                }
            }
        }
    }

    /// What rustls keeps of a handshake message is in `incoming`.
    fn within_limit(&self) -> Result<(), Error> {
        match self.given > TLS_HANDSHAKE_BYTES_MAX {
            true => Err(InvalidMessage::HandshakePayloadTooLarge.into()),
            false => Ok(()),
        }
    }

    fn step(&mut self) -> Result<Step, Error> {
        let Handshake { incoming, given, outgoing, .. } = self;
        let bytes = &mut incoming[..*given];
        REQUESTED.take();
        let (discard, step) = match &mut self.side {
            Side::Client(client) => take_step(client.process_tls_records(bytes), outgoing),
            Side::Server(server) => take_step(server.process_tls_records(bytes), outgoing),
        };
        if let Some(name) = REQUESTED.take() {
            self.server_name = Some(name);
        }
        incoming.drain(..discard);
        *given -= discard;
        // A server may send data before the handshake ends, but does not.
        match step? {
            Step::Done if self.side.state().is_handshaking() => Ok(Step::Record),
            step => Ok(step),
        }
    }

    /// What remains of a complete handshake: its keys, its facts and the bytes that follow it.
    ///
    /// # Errors
    /// Rustls has the beginning of another message.
    pub(super) fn finish(self) -> Result<(Records, About, Vec<u8>), Error> {
        if self.given != 0 {
            return Err(InvalidMessage::UnexpectedMessage("a message after the last one").into());
        }
        let state = self.side.state();
        let mut about = About {
            is_resumed: state.handshake_kind() == Some(HandshakeKind::Resumed),
            is_http2: state.alpn_protocol() == Some(HTTP2),
            is_validation: state.alpn_protocol() == Some(ACME_TLS),
            server_name: self.server_name,
            certificate: None,
        };
        let records = match self.side {
            Side::Client(client) => {
                let (secrets, session) = client.dangerous_into_kernel_connection()?;
                Records::new(Session::Client(session), secrets)?
            }
            Side::Server(server) => {
                let chain = server.peer_certificates();
                about.certificate = chain.and_then(|chain| chain.first()).cloned().map(Box::new);
                let (secrets, session) = server.dangerous_into_kernel_connection()?;
                Records::new(Session::Server(session), secrets)?
            }
        };
        Ok((records, about, self.incoming))
    }
}

impl Side {
    fn state(&self) -> &CommonState {
        match self {
            Side::Client(client) => client,
            Side::Server(server) => server,
        }
    }
}

/// As [`record_bytes`], during a handshake. Rustls skips encrypted records that it cannot open
/// (early data that it has rejected). It tries each again with the next one, until it has tried as
/// many bytes as early data may have. So each must have the bytes that every encrypted one has.
fn next_record(bytes: &[u8]) -> Result<Option<usize>, Error> {
    match record_bytes(bytes)? {
        Some(length)
            if length < ENCRYPTED_BYTES_MIN
                && ContentType::from(bytes[0]) == ContentType::ApplicationData =>
        {
            Err(InvalidMessage::MessageTooShort.into())
        }
        length => Ok(length),
    }
}

fn take_step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    outgoing: &mut Pending,
) -> (usize, Result<Step, Error>) {
    let step = status.state.and_then(|state| match state {
        ConnectionState::EncodeTlsData(mut data) => {
            outgoing.push(encoded(&mut data)?);
            Ok(Step::Again)
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(Step::Again)
        }
        ConnectionState::BlockedHandshake => Ok(Step::Record),
        ConnectionState::WriteTraffic(_) => Ok(Step::Done),
        _ => Err(InvalidMessage::UnexpectedMessage("not a handshake").into()),
    });
    (status.discard, step)
}

fn encoded<Data>(data: &mut EncodeTlsData<'_, Data>) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    if let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut bytes) {
        bytes.resize(size.required_size, 0);
        data.encode(&mut bytes).map_err(|error| Error::General(error.to_string()))?;
    }
    Ok(bytes)
}
