//! Sends a request on a new connection, and reads its response.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustls::time_provider::DefaultTimeProvider;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use transport::tls::{ClientTls, UpstreamTls};

use crate::job::{Answer, Request};
use crate::limits::{BODY_BYTES_SHOWN_MAX, REQUEST, RESPONSE_BYTES_MAX};

/// The answer. A connection that ends without a response is an answer with the status 0.
pub(crate) fn ask(request: &Request) -> Answer {
    ask_until(request, Instant::now() + REQUEST)
}

fn ask_until(request: &Request, until: Instant) -> Answer {
    let (bytes, is_closed) = exchange(request, until).unwrap_or_default();
    let Some((mut answer, content)) = head(&bytes) else { return Answer::default() };
    answer.is_cut = match is_whole(&answer, content, request.method == "HEAD") {
        Some(is_whole) => !is_whole,
        None => !is_closed,
    };
    answer.body = shown(body(&answer, content));
    answer
}

/// The content as a text, without the lengths of chunks.
fn body(answer: &Answer, content: &[u8]) -> String {
    let joined = if is_chunked(answer) { joined(content) } else { content.to_vec() };
    String::from_utf8_lossy(&joined).into_owned()
}

/// A content, or the start of a long one with what is needed to compare the rest.
fn shown(body: String) -> String {
    if body.len() <= BODY_BYTES_SHOWN_MAX {
        return body;
    }
    let mut hash = DefaultHasher::new();
    body.hash(&mut hash);
    // A character has at most four bytes.
    let start: String = body.chars().take(BODY_BYTES_SHOWN_MAX / 4).collect();
    format!("{start}... {} bytes, hash {:x}", body.len(), hash.finish())
}

/// A stream that ends at a time, however slowly the server sends.
struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Timed {
    fn rest(&self) -> io::Result<Option<Duration>> {
        let rest = self.until.saturating_duration_since(Instant::now());
        if rest.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(rest)) }
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.rest()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.rest()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The bytes of the response, and whether the server closed the connection after them.
fn exchange(request: &Request, until: Instant) -> io::Result<(Vec<u8>, bool)> {
    let stream = Timed { stream: connected(request.from, request.to)?, until };
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
    let socket = TcpStream::from(socket);
    // It bounds connecting, too.
    socket.set_write_timeout(Some(REQUEST))?;
    connect(&socket, &to)?;
    Ok(socket)
}

fn exchange_on(mut stream: impl Read + Write, request: &Request) -> io::Result<(Vec<u8>, bool)> {
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
    let mut is_closed = false;
    while bytes.len() < RESPONSE_BYTES_MAX {
        match stream.read(&mut part) {
            Ok(0) => {
                is_closed = true;
                break;
            }
            // A server that refuses may reset the connection after its response.
            Err(_) => break,
            Ok(read) => bytes.extend(&part[..read]),
        }
        let is_head = method == "HEAD";
        let is_whole = |(answer, content): (Answer, &[u8])| is_whole(&answer, content, is_head);
        if head(&bytes).and_then(is_whole) == Some(true) {
            break;
        }
    }
    Ok((bytes, is_closed))
}

/// Whether no more bytes follow, for a server that keeps the connection open all the same. `None`:
/// the end of the connection is the end of the content.
fn is_whole(answer: &Answer, content: &[u8], is_head: bool) -> Option<bool> {
    if is_head || matches!(answer.status, 101 | 204 | 304) {
        return Some(true);
    }
    if is_chunked(answer) {
        return Some(content.ends_with(b"\r\n0\r\n\r\n") || content == b"0\r\n\r\n");
    }
    let length: usize = answer.field("content-length")?.parse().ok()?;
    Some(content.len() >= length)
}

fn is_chunked(answer: &Answer) -> bool {
    answer.field("transfer-encoding").is_some_and(|all| all == "chunked")
}

/// Parses the head of a response, without those before the last one. Returns what follows it, too.
fn head(bytes: &[u8]) -> Option<(Answer, &[u8])> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let rest = &bytes[end + 4..];
    let text = String::from_utf8_lossy(&bytes[..end]);
    let mut lines = text.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    if (100..200).contains(&status) && status != 101 {
        return head(rest);
    }
    let mut answer = Answer { status, ..Answer::default() };
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        answer.fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Some((answer, rest))
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
    let any = UpstreamTls { verify: false, ..UpstreamTls::default() };
    let mut config = ClientTls::load(&any).expect("it names no file").config().clone();
    config.alpn_protocols.clear();
    // The other one is that of the runtime, which does not run here.
    config.time_provider = Arc::new(DefaultTimeProvider);
    Arc::new(config)
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_in_chunks_is_joined() {
        let bytes = b"HTTP/1.1 200 OK\r\nX: 1\r\nTransfer-Encoding: chunked\r\n\r\n\
                      3\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n";
        let (answer, content) = head(bytes).unwrap();
        assert_eq!((answer.status, body(&answer, content).as_str()), (200, "abcde"));
        assert_eq!(answer.field("x").as_deref(), Some("1"));
    }

    /// A server that sends these parts with a pause after each.
    fn asked(parts: &'static [&'static str], pause: Duration, time: Duration) -> Answer {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            for part in parts {
                let _ = stream.write_all(part.as_bytes());
                std::thread::sleep(pause);
            }
        });
        let request = Request {
            to,
            from: to.ip(),
            tls: false,
            method: "GET".to_owned(),
            target: "/".to_owned(),
            host: "a".to_owned(),
            fields: vec![],
            body: String::new(),
            place: None,
        };
        ask_until(&request, Instant::now() + time)
    }

    #[test]
    fn a_server_that_sends_slowly_ends_with_the_time_of_the_request() {
        let parts = &["HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", "a", "a", "a", "a", "a"];
        let (start, pause) = (Instant::now(), Duration::from_millis(300));
        let answer = asked(parts, pause, Duration::from_millis(700));
        assert!(start.elapsed() < Duration::from_millis(1400), "{:?}", start.elapsed());
        assert!((answer.status, answer.is_cut) == (200, true), "{answer:?}");
    }

    #[test]
    fn an_end_that_does_not_arrive_is_seen() {
        let cut = |parts| asked(parts, Duration::ZERO, REQUEST).is_cut;
        assert!(cut(&["HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"]));
        assert!(!cut(&["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"]));
        assert!(cut(&["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"]));
        assert!(!cut(&[
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
        ]));
        assert!(!cut(&["HTTP/1.1 200 OK\r\n\r\nab"]));
        assert!(!cut(&["HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"]));
        // A long content is compared by its hash.
        let body = |end: &str| shown("a".repeat(BODY_BYTES_SHOWN_MAX) + end);
        assert!(body("b") != body("c") && body("b").len() < BODY_BYTES_SHOWN_MAX + 99);
    }

    #[test]
    fn a_chunk_that_is_longer_than_the_body_ends_it() {
        assert_eq!(joined(b"ffffffffffffffff\r\nabc"), b"");
        assert_eq!(joined(b"1\r\na\r\n5\r\nab"), b"a");
    }
}
