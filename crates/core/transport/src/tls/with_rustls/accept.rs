//! The handshake with a client.
//!
//! ```text
//!   accepted --nothing yet: no buffer--> ClientHello --whole--> handshake --> TlsStream
//!                |                            |                     |
//!                +-- time-out, closed         +-- HTTP in the       +-- alert, time-out,
//!                                                 clear, evicted        closed, evicted
//! ```
//!
//! No client waits for another one. Until its ClientHello is whole, a connection costs its
//! descriptor and the bytes that it has sent; from then on, the state of a handshake too. All of it
//! is a share of one bound ([`Shares`](crate::shares::Shares)): at the bound, the client network
//! that holds the most loses its oldest connection.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use runtime::net::TcpStream;
use runtime::{Either, time};
use rustls::server::UnbufferedServerConnection;
use rustls::{AlertDescription, Error};

use super::handshake::{HandshakeError, Side, handshake};
use super::hello::Hello;
use super::{CoreTls, ServerTls, TlsStream};
use crate::limits::{TLS_HANDSHAKE_STATE_BYTES, TLS_TAKE_BYTES};
use crate::shares::Share;

/// The content type of a record that begins a handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// Why a client gets no connection.
#[derive(Debug)]
pub enum Refused {
    /// It sent HTTP without TLS; the caller answers it.
    PlainHttp(TcpStream),
    /// It took longer than the limit.
    Slow,
    /// Its place was needed, and its network holds the most.
    Evicted,
    /// It closed the connection.
    Closed,
    /// It is a certification authority that has checked a name: nothing follows its handshake.
    Validated,
    /// There is no common version, cipher, certificate or protocol, or it violates TLS.
    Protocol(Error),
    /// Its certificate is missing or not acceptable.
    Certificate(Error),
    /// It does not accept our certificate.
    Rejected(Error),
}

/// Does the TLS handshake on a connection from a client at this address.
pub async fn accept(
    core: &Rc<CoreTls>,
    tls: &ServerTls,
    stream: TcpStream,
    client: IpAddr,
    limit: Duration,
) -> Result<TlsStream, Refused> {
    let share = core.handshakes.share(client);
    let accepting = async {
        let first = hello(core, &stream, &share).await?;
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
        let hold = |incoming: usize| share.set((incoming + TLS_HANDSHAKE_STATE_BYTES) as u64);
        match handshake(stream, core, side, first, &hold).await {
            Ok(stream) if stream.is_validation() => Err(Refused::Validated),
            Ok(stream) => Ok(stream),
            Err(HandshakeError::Closed) => Err(Refused::Closed),
            Err(HandshakeError::Tls(error)) => Err(refused(*error)),
        }
    };
    // In this order: a connection that reads sets its share, and may itself be evicted.
    let accepting = runtime::race(accepting, share.evicted());
    match time::timeout(limit, accepting).await {
        Ok(Either::Left(accepted)) => accepted,
        Ok(Either::Right(())) => Err(Refused::Evicted),
        Err(_) => Err(Refused::Slow),
    }
}

/// Reads until the ClientHello is whole, or the bytes cannot be one.
async fn hello(core: &CoreTls, stream: &TcpStream, share: &Share) -> Result<Vec<u8>, Refused> {
    let mut bytes = Vec::new();
    let mut hello = Hello::default();
    loop {
        stream.readable().await.map_err(|_| Refused::Closed)?;
        let read: io::Result<usize> = core.with_input(|input| {
            let read = stream.try_read(&mut input[..TLS_TAKE_BYTES])?;
            bytes.extend_from_slice(&input[..read]);
            Ok(read)
        });
        match read {
            Ok(0) => return Err(Refused::Closed),
            Ok(_) if hello.is_whole(&bytes) => return Ok(bytes),
            Ok(_) => share.set(bytes.len() as u64),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(Refused::Closed),
        }
    }
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
