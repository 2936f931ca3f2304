//! The origin: stands for every upstream, and is a name server to which every name is known.
//!
//! The content of a response is the request as it arrived ([`Echo`]), so a rewritten path or a
//! changed field shows. Each response has a number ([`NUMBER`]): if a client gets the same number
//! twice, the second response came from a store. A part of the target that begins with `try-` says
//! what kind of response it is.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::client::joined;
use crate::endpoints::address_of;
use crate::job::{self, Echo, NUMBER};
use crate::limits::REQUEST;

/// What listens, and numbers its responses.
#[derive(Clone)]
pub(crate) struct Origin(Arc<Shared>);

struct Shared {
    tls: Arc<ServerConfig>,
    /// Origins in two namespaces give different numbers.
    letter: char,
    next: AtomicUsize,
}

/// Bytes of the head of a request, at most.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the content of a request, at most.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

impl Origin {
    pub(crate) fn new(settings: &job::Origin, letter: char) -> Result<Origin, String> {
        let chain = CertificateDer::from_pem_slice(settings.chain.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(settings.key.as_bytes());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_no_client_auth()
            .with_single_cert(
                vec![chain.map_err(|error| format!("its certificate: {error}"))?],
                key.map_err(|error| format!("its key: {error}"))?,
            );
        let tls = Arc::new(config.map_err(|error| format!("its certificate: {error}"))?);
        let origin = Origin(Arc::new(Shared { tls, letter, next: AtomicUsize::new(1) }));
        for path in settings.sockets.iter().filter(|_| letter == 'n') {
            // A server that listens on this socket itself is its own upstream.
            let Ok(listener) = UnixListener::bind(path) else { continue };
            let (origin, at) = (origin.clone(), format!("unix:{}", path.display()));
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let _ = stream.set_read_timeout(Some(REQUEST));
                    let (origin, at) = (origin.clone(), at.clone());
                    thread::spawn(move || origin.serve(stream, at));
                }
            });
        }
        Ok(origin)
    }

    /// Listens on those addresses that are free.
    pub(crate) fn listen(&self, addresses: &[SocketAddr]) {
        for address in addresses {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let origin = self.clone();
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let origin = origin.clone();
                    thread::spawn(move || origin.accepted(stream));
                }
            });
        }
    }

    /// Speaks TLS if the client does.
    fn accepted(&self, stream: TcpStream) {
        let _ = stream.set_read_timeout(Some(REQUEST));
        let at = stream.local_addr().map_or_else(|_| String::new(), |at| at.to_string());
        let mut first = [0];
        let is_tls = stream.peek(&mut first).is_ok_and(|read| read == 1) && first[0] == 0x16;
        if !is_tls {
            return self.serve(stream, at);
        }
        if let Ok(session) = ServerConnection::new(Arc::clone(&self.0.tls)) {
            self.serve(StreamOwned::new(session, stream), at);
        }
    }

    /// Answers one request.
    fn serve(&self, mut stream: impl Read + Write, at: String) {
        let Some((echo, known)) = received(&mut stream, at) else { return };
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let response = response(&echo, &known, &format!("{}{number}", self.0.letter));
        // The server may have closed the connection: what counts is the answer to its client.
        let _ = stream.write_all(&response).and_then(|()| stream.flush());
    }

    /// Answers queries for addresses of names, at those addresses that are free.
    pub(crate) fn resolve(&self, addresses: &[Ipv4Addr]) {
        for address in addresses {
            let Ok(socket) = UdpSocket::bind((*address, 53)) else { continue };
            thread::spawn(move || {
                let mut query = [0; 1500];
                while let Ok((read, from)) = socket.recv_from(&mut query) {
                    if let Some(answer) = resolved(&query[..read]) {
                        let _ = socket.send_to(&answer, from);
                    }
                }
            });
        }
    }
}

/// Reads a request. Also returns the tag that its client has stored.
fn received(stream: &mut impl Read, at: String) -> Option<(Echo, String)> {
    let (mut bytes, mut part) = (Vec::new(), [0; 8192]);
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        let read = stream.read(&mut part).ok().filter(|read| *read > 0)?;
        bytes.extend(&part[..read]);
        if bytes.len() > HEAD_BYTES_MAX {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let fields = lines.filter_map(|line| line.split_once(':'));
    let mut fields: Vec<(String, String)> =
        fields.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    // Lines of one name keep their order.
    fields.sort_by(|one, other| one.0.cmp(&other.0));
    let value = |name: &str| {
        let field = fields.iter().find(|(there, _)| there == name);
        field.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    let is_chunked = value("transfer-encoding") == "chunked";
    let wanted: usize = value("content-length").parse().unwrap_or(0);
    let mut body = bytes.split_off(end + 4);
    let is_whole = |body: &[u8]| match is_chunked {
        true => body.ends_with(b"0\r\n\r\n"),
        false => body.len() >= wanted.min(BODY_BYTES_MAX),
    };
    while !is_whole(&body) && body.len() < BODY_BYTES_MAX {
        let read = stream.read(&mut part).ok().filter(|read| *read > 0)?;
        body.extend(&part[..read]);
    }
    let length = if is_chunked { joined(&body).len() } else { body.len() };
    let known = value("if-none-match");
    let filler = "0123456789abcdef".repeat(128);
    Some((Echo { at, method, target, fields, length, filler }, known))
}

/// The response. What it is follows from the target alone, so both servers get the same responses.
fn response(echo: &Echo, known: &str, number: &str) -> Vec<u8> {
    let target = echo.target.as_str();
    let is = |word: &str| target.contains(word);
    let lifetime = match () {
        () if is("try-private") => "Cache-Control: private, max-age=600\r\n",
        () if is("try-nostore") => "Cache-Control: no-store\r\n",
        () if is("try-none") => "",
        () => "Cache-Control: max-age=600\r\n",
    };
    let field = |name: &str| {
        let field = echo.fields.iter().find(|(there, _)| there == name);
        field.map_or("", |(_, value)| value.as_str())
    };
    // Variants have different tags.
    let language = if is("try-vary") { field("accept-language") } else { "" };
    let tag = format!("\"t{}{language}\"", target.len());
    let status = match () {
        () if is("try-missing") => "404 Not Found",
        () if is("try-fails") => "503 Service Unavailable",
        () if is("try-moved") => "302 Found",
        () if known == tag => "304 Not Modified",
        () => "200 OK",
    };
    let mut more = String::new();
    if is("try-cookie") {
        more.push_str("Set-Cookie: sid=1; Path=/\r\n");
    }
    if is("try-vary") {
        more.push_str("Vary: Accept-Language\r\n");
    }
    if is("try-moved") {
        more.push_str(&format!("Location: http://{}/moved/\r\n", field("host")));
    }
    let body = serde_json::to_string(echo).expect("an echo has a form in JSON");
    let kind = content_type(target);
    let date = httpdate::fmt_http_date(std::time::SystemTime::now());
    let is_empty = status.starts_with("304");
    // A length of 0 in a 304 would be that of the content.
    let length = match is_empty {
        true => String::new(),
        false => format!("Content-Length: {}\r\n", body.len()),
    };
    let body = if is_empty || echo.method == "HEAD" { "" } else { &body };
    format!(
        "HTTP/1.1 {status}\r\nDate: {date}\r\nContent-Type: {kind}\r\n{length}{lifetime}\
         ETag: {tag}\r\n\
         Accept-Ranges: bytes\r\nX-Powered-By: try\r\n{more}{NUMBER}: {number}\r\n\
         Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

fn content_type(target: &str) -> &'static str {
    let path = target.split('?').next().unwrap_or_default();
    match path.rsplit('.').next().unwrap_or_default() {
        "css" => "text/css",
        "js" => "application/javascript",
        "json" => "application/json",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "svg" => "image/svg+xml",
        "txt" => "text/plain",
        _ => "text/html",
    }
}

/// The answer to a query: an address of IPv4, and nothing else.
fn resolved(query: &[u8]) -> Option<Vec<u8>> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(query.get(at..at + length)?).into_owned());
        at += length;
    }
    let question = query.get(12..at + 4)?;
    let is_address = query[at..at + 2] == [0, 1];
    let mut answer = query[..2].to_vec();
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    answer.extend(question);
    if is_address {
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(address_of(&labels.join(".")).octets());
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_an_address() {
        let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03app\x07example\0\0\x01\0\x01";
        let answer = resolved(query).unwrap();
        assert!(answer.ends_with(&address_of("app.example").octets()), "{answer:?}");
        assert_eq!(&answer[..2], b"\x12\x34");
        assert_eq!(resolved(&query[..20]), None, "a query that is cut off");
        // Of IPv6 there is none.
        let other = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\0\0\x1c\0\x01";
        assert_eq!(resolved(other).unwrap()[6..8], [0, 0]);
    }

    #[test]
    fn what_a_response_is_follows_from_the_target() {
        let text = b"GET /x/try-private?a HTTP/1.1\r\nHost: up.example\r\n\r\n";
        let (echo, _) = received(&mut &text[..], "here".to_owned()).unwrap();
        let response = String::from_utf8(response(&echo, "", "n1")).unwrap();
        assert!(response.contains("Cache-Control: private"), "{response}");
        let (_, body) = response.split_once("\r\n\r\n").unwrap();
        assert_eq!(serde_json::from_str::<Echo>(body).unwrap(), echo);
    }
}
