//! The handshake with a client.
//!
//! ```text
//!   accepted --nothing yet: no buffer--> first bytes --a record--> handshake --> TlsStream
//!                |                            |                       |
//!                +-- time-out, closed         +-- HTTP in the clear   +-- alert, time-out, closed
//! ```

use std::io;
use std::rc::Rc;
use std::time::Duration;

use runtime::net::TcpStream;
use runtime::time;
use rustls::server::UnbufferedServerConnection;
use rustls::{AlertDescription, Error};

use super::handshake::{HandshakeError, Side, handshake};
use super::{CoreTls, ServerTls, TlsStream};
use crate::limits::TLS_TAKE_BYTES;

/// The content type of a record that begins a handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// Why a client gets no connection.
#[derive(Debug)]
pub enum Refused {
    /// It sent HTTP without TLS; the caller answers it.
    PlainHttp(TcpStream),
    /// It took longer than the limit.
    Slow,
    /// It closed the connection.
    Closed,
    /// There is no common version, cipher, certificate or protocol, or it violates TLS.
    Protocol(Error),
    /// Its certificate is missing or not acceptable.
    Certificate(Error),
    /// It does not accept our certificate.
    Rejected(Error),
}

/// Does the TLS handshake on a connection from a client.
pub async fn accept(
    core: &Rc<CoreTls>,
    tls: &ServerTls,
    stream: TcpStream,
    limit: Duration,
) -> Result<TlsStream, Refused> {
    let accepting = async {
        stream.readable().await.map_err(|_| Refused::Closed)?;
        let _place = core.place().await;
        let first = loop {
            match first_bytes(core, &stream) {
                Ok(bytes) => break bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    stream.readable().await.map_err(|_| Refused::Closed)?;
                }
                Err(_) => return Err(Refused::Closed),
            }
        };
        match first.first() {
            None => return Err(Refused::Closed),
            // No TLS record begins with a letter, but every HTTP method does.
            Some(byte) if *byte != HANDSHAKE && byte.is_ascii_alphabetic() => {
                return Err(Refused::PlainHttp(stream));
            }
            Some(_) => {}
        }
        let server = UnbufferedServerConnection::new(tls.config.clone());
        let side = Side::Server(server.map_err(Refused::Protocol)?);
        match handshake(stream, core, side, first).await {
            Ok(stream) => Ok(stream),
            Err(HandshakeError::Closed) => Err(Refused::Closed),
            Err(HandshakeError::Tls(error)) => Err(refused(*error)),
        }
    };
    time::timeout(limit, accepting).await.unwrap_or(Err(Refused::Slow))
}

fn first_bytes(core: &CoreTls, stream: &TcpStream) -> io::Result<Vec<u8>> {
    core.with_input(|input| {
        let read = stream.try_read(&mut input[..TLS_TAKE_BYTES])?;
        Ok(input[..read].to_vec())
    })
}

fn refused(error: Error) -> Refused {
    use AlertDescription as Alert;
    match error {
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => {
            Refused::Certificate(error)
        }
        Error::AlertReceived(
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::CertificateRevoked
            | Alert::UnsupportedCertificate,
        ) => Refused::Rejected(error),
        error => Refused::Protocol(error),
    }
}
