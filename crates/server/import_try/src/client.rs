//! Sends a request on a new connection, and reads its response.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::job::{Answer, Request};
use crate::limits::{REQUEST, RESPONSE_BYTES_MAX};

/// The answer. A connection that ends without a response is an answer with the status 0.
pub(crate) fn ask(request: &Request) -> Answer {
    let bytes = exchange(request).unwrap_or_default();
    answer(&bytes).unwrap_or_default()
}

fn exchange(request: &Request) -> io::Result<Vec<u8>> {
    let stream = connected(request.from, request.to)?;
    stream.set_read_timeout(Some(REQUEST))?;
    stream.set_write_timeout(Some(REQUEST))?;
    if !request.tls {
        return exchange_on(stream, request);
    }
    let name = request.host.split(':').next().unwrap_or_default().to_owned();
    let name = ServerName::try_from(name).unwrap_or(IpAddr::from([127, 0, 0, 1]).into());
    let session = ClientConnection::new(Arc::clone(&TLS), name).map_err(io::Error::other)?;
    exchange_on(StreamOwned::new(session, stream), request)
}

/// Connects from an address.
fn connected(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if from.is_ipv4() == to.is_ipv4() {
        bind(&socket, &SocketAddr::new(from, 0))?;
    }
    connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

fn exchange_on(mut stream: impl Read + Write, request: &Request) -> io::Result<Vec<u8>> {
    let Request { method, target, host, fields, body, .. } = request;
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for (name, value) in fields {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    text.push_str(body);
    stream.write_all(text.as_bytes())?;
    stream.flush()?;
    let (mut bytes, mut part) = (Vec::new(), [0; 16 * 1024]);
    while bytes.len() < RESPONSE_BYTES_MAX {
        // A server that refuses may reset the connection after its response.
        match stream.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(read) => bytes.extend(&part[..read]),
        }
        let is_head = method == "HEAD";
        if answer(&bytes).is_some_and(|answer| is_whole(&answer, &bytes, is_head)) {
            break;
        }
    }
    Ok(bytes)
}

/// Whether no more bytes follow, for a server that keeps the connection open all the same.
fn is_whole(answer: &Answer, bytes: &[u8], is_head: bool) -> bool {
    let length = answer.field("content-length").and_then(|length| length.parse().ok());
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| at + 4);
    is_head
        || matches!(answer.status, 204 | 304)
        || length.is_some_and(|length: usize| bytes.len() >= end + length)
}

/// Parses a response.
fn answer(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]);
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let mut answer = Answer { status, ..Answer::default() };
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        answer.fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    if (100..200).contains(&status) && status != 101 {
        return self::answer(&bytes[end + 4..]);
    }
    let body = &bytes[end + 4..];
    let is_chunked = answer.field("transfer-encoding").is_some_and(|all| all == "chunked");
    let body = if is_chunked { joined(body) } else { body.to_vec() };
    answer.body = String::from_utf8_lossy(&body).into_owned();
    Some(answer)
}

/// The content of a body in chunks, as far as it is there.
pub(crate) fn joined(mut chunks: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = chunks.windows(2).position(|two| two == b"\r\n") {
        let length = String::from_utf8_lossy(&chunks[..end]);
        let length = length.split(';').next().unwrap_or_default().trim();
        let Ok(length) = usize::from_str_radix(length, 16) else { break };
        let Some(part) = chunks[end + 2..].get(..length) else { break };
        if length == 0 {
            break;
        }
        body.extend(part);
        chunks = chunks.get(end + 4 + length..).unwrap_or_default();
    }
    body
}

/// Accepts every certificate: the server is in the same sandbox.
static TLS: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let schemes = provider.signature_verification_algorithms.supported_schemes();
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Any(schemes)))
        .with_no_client_auth();
    Arc::new(config)
});

#[derive(Debug)]
struct Any(Vec<SignatureScheme>);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_in_chunks_is_joined() {
        let bytes = b"HTTP/1.1 200 OK\r\nX: 1\r\nTransfer-Encoding: chunked\r\n\r\n\
                      3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n";
        let answer = answer(bytes).unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (200, "abcde"));
        assert_eq!(answer.field("x").as_deref(), Some("1"));
    }

    #[test]
    fn a_chunk_that_is_longer_than_the_body_ends_it() {
        assert_eq!(joined(b"ffffffffffffffff\r\nabc"), b"");
        assert_eq!(joined(b"1\r\na\r\n5\r\nab"), b"a");
    }
}
