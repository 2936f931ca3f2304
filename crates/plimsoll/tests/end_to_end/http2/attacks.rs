//! Requests over HTTP/2 that would become other requests if a proxy copied them into HTTP/1.1
//! (RFC 9113 section 10.3).
//!
//! The client makes its frames by hand, so that it can send what no library would send. Field names
//! and values are literals without compression. The origin keeps every byte that it receives.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use http2::Scratch;
use http2::hpack::Decoder;

use crate::http2::recorder::Recorder;
use crate::support::{Home, OurServer, SOON};

/// The word that the origin must never receive. Each refused case contains it.
const EVIL: &str = "attack";
/// The path of requests whose head is valid and whose content is not.
const BROKEN: &str = "/broken";
/// The path of valid requests.
const GOOD: &str = "/good";

pub(super) type Fields = Vec<(&'static str, &'static str)>;

/// What may reach the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Nothing.
    Refused,
    /// A part of the request. The connection to the origin is then closed.
    Broken,
    /// The request with the declared length, and nothing after it.
    Limited,
}

struct Attack {
    name: &'static str,
    fields: Fields,
    /// The DATA frames. Without any, the head ends the stream.
    data: &'static [&'static str],
    /// Sent in a second HEADERS frame, which then ends the stream.
    trailers: Fields,
    fate: Fate,
}

const CHUNKED: &str = "0\r\n\r\nGET /attack HTTP/1.1\r\nHost: h\r\n\r\n";

pub(super) fn base(method: &'static str, path: &'static str) -> Fields {
    vec![(":method", method), (":scheme", "http"), (":path", path), (":authority", "h")]
}

/// A GET with more fields.
fn with(name: &'static str, more: &[(&'static str, &'static str)]) -> Attack {
    let fields = [&base("GET", "/attack")[..], more].concat();
    Attack { name, fields, data: &[], trailers: Vec::new(), fate: Fate::Refused }
}

/// A GET with another value of a pseudo-field.
fn but(name: &'static str, field: &'static str, value: &'static str) -> Attack {
    let mut attack = with(name, &[]);
    for (found, old) in &mut attack.fields {
        if *found == field {
            *old = value;
        }
    }
    attack
}

/// A GET without a pseudo-field.
fn without(name: &'static str, field: &str) -> Attack {
    let mut attack = with(name, &[("x-a", EVIL)]);
    attack.fields.retain(|(found, _)| *found != field);
    attack
}

/// A POST with content.
fn post(
    name: &'static str,
    more: &[(&'static str, &'static str)],
    data: &'static [&'static str],
    fate: Fate,
) -> Attack {
    let path = if fate == Fate::Refused { "/attack" } else { BROKEN };
    let fields = [&base("POST", path)[..], more].concat();
    Attack { name, fields, data, trailers: Vec::new(), fate }
}

fn values_and_names() -> Vec<Attack> {
    vec![
        with("CR LF in a value", &[("x-a", "1\r\nx-attack: 1")]),
        with(
            "a request in a value",
            &[("x-a", "1\r\n\r\nGET /attack HTTP/1.1\r\nHost: h\r\n\r\n")],
        ),
        with("LF in a value", &[("x-a", "1\nx-attack: 1")]),
        with("CR in a value", &[("x-a", "1\rx-attack: 1")]),
        with("NUL in a value", &[("x-a", "1\0attack")]),
        with("CR LF in a known field", &[("user-agent", "1\r\nx-attack: 1")]),
        with("CR LF in a cookie", &[("cookie", "a=b"), ("cookie", "c=d\r\nx-attack: 1")]),
        with("a space before a value", &[("x-a", " attack")]),
        with("a tab after a value", &[("x-a", "attack\t")]),
        with("an upper-case name", &[("X-Attack", "1")]),
        with("an upper-case Host", &[("Host", "attack")]),
        with("CR LF in a name", &[("x-a: 1\r\nx-attack", "1")]),
        with("a colon in a name", &[("transfer-encoding: attack", "chunked")]),
        with("a colon after a name", &[("x-attack:", "1")]),
        with("a space in a name", &[("x attack", "1")]),
        with("NUL in a name", &[("x-attack\0", "1")]),
        with("an empty name", &[("", "attack")]),
    ]
}

fn pseudo_fields() -> Vec<Attack> {
    let mut late = with("a pseudo-field after a field", &[("x-a", "1")]);
    late.fields.rotate_right(1);
    vec![
        but("a space in the path", ":path", "/attack HTTP/1.1"),
        but("a request in the path", ":path", "/ HTTP/1.1\r\nHost: h\r\n\r\nGET /attack"),
        but("LF in the path", ":path", "/\nattack"),
        but("a tab in the path", ":path", "/\tattack"),
        but("DEL in the path", ":path", "/attack\x7f"),
        but("a path without a slash", ":path", "attack"),
        but("an absolute path", ":path", "http://h/attack"),
        but("a fragment", ":path", "/a#attack"),
        but("a request in the method", ":method", "GET /attack HTTP/1.1\r\nx-a:"),
        but("a space in the method", ":method", "GET /attack"),
        but("an empty method", ":method", ""),
        but("a request in the scheme", ":scheme", "http://h/attack HTTP/1.1\r\nx-a:"),
        but("CR LF in the authority", ":authority", "h\r\nx-attack: 1"),
        but("a space in the authority", ":authority", "h attack"),
        but("a user in the authority", ":authority", "attack@h"),
        but("a path in the authority", ":authority", "h/attack"),
        but("an empty authority", ":authority", ""),
        but("another scheme", ":scheme", "ftp"),
        without("no method", ":method"),
        without("no scheme", ":scheme"),
        without("no path", ":path"),
        without("no authority and no Host", ":authority"),
        with("two methods", &[(":method", "POST")]),
        with("two paths", &[(":path", "/attack2")]),
        with("two schemes", &[(":scheme", "http")]),
        with("two authorities", &[(":authority", "attack")]),
        with("a pseudo-field of responses", &[(":status", "200")]),
        with("an unknown pseudo-field", &[(":attack", "1")]),
        with("a protocol without CONNECT", &[(":protocol", "websocket")]),
        late,
        with("a Host that differs", &[("host", "attack")]),
        with("two Hosts", &[("host", "h"), ("host", "attack")]),
    ]
}

fn framings() -> Vec<Attack> {
    use Fate::{Broken, Limited, Refused};
    let trailing = |name, field, value| {
        let mut attack = post(name, &[], &["12345"], Broken);
        attack.trailers = vec![(field, value)];
        attack
    };
    vec![
        post("Transfer-Encoding", &[("transfer-encoding", "chunked")], &[CHUNKED], Refused),
        post("Transfer-Encoding identity", &[("transfer-encoding", "identity")], &["x"], Refused),
        post(
            "both framings",
            &[("content-length", "5"), ("transfer-encoding", "chunked")],
            &["0\r\n\r\n"],
            Refused,
        ),
        with("Connection", &[("connection", "x")]),
        with("Connection that names a field", &[("connection", "content-length")]),
        with("Keep-Alive", &[("keep-alive", "1")]),
        with("Proxy-Connection", &[("proxy-connection", "keep-alive")]),
        with("Upgrade", &[("upgrade", "websocket")]),
        with("TE other than trailers", &[("te", "trailers, chunked")]),
        with("a length without content", &[("content-length", "5")]),
        post(
            "two lengths",
            &[("content-length", "5"), ("content-length", "6")],
            &["12345"],
            Refused,
        ),
        post("a list of lengths", &[("content-length", "5, 5")], &["12345"], Refused),
        post("a signed length", &[("content-length", "+5")], &["12345"], Refused),
        post("an empty length", &[("content-length", "")], &["12345"], Refused),
        post("a huge length", &[("content-length", "18446744073709551621")], &["12345"], Refused),
        post("content that is too short", &[("content-length", "10")], &["12345"], Broken),
        post("no content", &[("content-length", "5")], &[""], Broken),
        post("content that is too long", &[("content-length", "5")], &["12345attack"], Broken),
        post("a frame too many", &[("content-length", "5")], &["12345", CHUNKED], Limited),
        trailing("a path in trailers", ":path", "/attack"),
        trailing("CR LF in trailers", "x-a", "1\r\n\r\nGET /attack HTTP/1.1"),
        trailing("Transfer-Encoding in trailers", "transfer-encoding", "attack"),
    ]
}

/// What ended the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Status(u16),
    /// RST_STREAM with this code.
    Reset(u32),
    /// GOAWAY with an error, or the end of the connection.
    Closed,
}

impl Outcome {
    fn is_refusal(self) -> bool {
        !matches!(self, Outcome::Status(..400))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const GOAWAY: u8 = 7;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Literals without compression and without an index (RFC 7541 section 6.2.2).
pub(super) fn block(fields: &Fields) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127, "a length of one byte");
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

/// Sends one request on a new connection.
pub(super) fn send(
    to: SocketAddr,
    fields: &Fields,
    data: &[&str],
    trailers: &Fields,
) -> io::Result<Outcome> {
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(SETTINGS, 0, 0, &[], &mut out);
    let ends = |is_last: bool| if is_last { END_STREAM } else { 0 };
    let flags = END_HEADERS | ends(data.is_empty());
    frame(HEADERS, flags, 1, &block(fields), &mut out);
    for (at, part) in data.iter().enumerate() {
        let is_last = at + 1 == data.len() && trailers.is_empty();
        frame(DATA, ends(is_last), 1, part.as_bytes(), &mut out);
    }
    if !trailers.is_empty() {
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(trailers), &mut out);
    }
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(SOON))?;
    stream.write_all(&out)?;
    outcome(&mut stream)
}

/// Reads frames until the stream has a final status or has ended.
fn outcome(stream: &mut TcpStream) -> io::Result<Outcome> {
    // The size that a client without a setting allows.
    let (mut decoder, mut scratch) = (Decoder::new(4096), Scratch::new());
    loop {
        let mut header = [0; 9];
        match stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            Err(_) => return Ok(Outcome::Closed),
        }
        let [a, b, c, kind, flags, id @ ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload)?;
        let code = |at: usize| {
            let bytes = payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_be_bytes).ok_or_else(|| io::Error::other("a short frame"))
        };
        match (kind, u32::from_be_bytes(id)) {
            (HEADERS, 1) => {
                // Neither padding nor a priority: we read our own server.
                if flags & !END_STREAM != END_HEADERS {
                    return Err(io::Error::other(format!("flags {flags:#x} of HEADERS")));
                }
                let decoded = decoder.decode(&payload, &mut scratch, 100, 100_000);
                decoded.map_err(|reason| io::Error::other(reason.to_string()))?;
                let fields = scratch.fields_of_block();
                let status = fields.get(b":status").and_then(|text| str::from_utf8(text).ok());
                match status.and_then(|status| status.parse().ok()) {
                    Some(100..200) => {}
                    Some(status) => return Ok(Outcome::Status(status)),
                    None => return Err(io::Error::other(format!("no status: {fields:?}"))),
                }
            }
            (RST_STREAM, 1) => return Ok(Outcome::Reset(code(0)?)),
            (GOAWAY, 0) if code(4)? != 0 => return Ok(Outcome::Closed),
            _ => {}
        }
    }
}

/// A proxy with one worker, so that the next request uses the upstream connection of the previous
/// one.
fn proxy(origin: &Recorder) -> OurServer {
    OurServer::serve(&["--origin", &origin.url(), "--workers", "1"])
}

fn is_good(to: SocketAddr) -> io::Result<Outcome> {
    send(to, &base("GET", GOOD), &[], &Vec::new())
}

/// Sends each case, and a good request on a new connection after it.
#[track_caller]
fn none_reaches_the_origin(attacks: Vec<Attack>) {
    let _home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&origin);
    let mut faults = Vec::new();
    for Attack { name, fields, data, trailers, fate } in &attacks {
        match send(proxy.address(), fields, data, trailers) {
            Ok(outcome) if outcome.is_refusal() || *fate == Fate::Limited => {}
            Ok(outcome) => faults.push(format!("{name}: {outcome}")),
            Err(error) => faults.push(format!("{name}: {error}")),
        }
        match is_good(proxy.address()) {
            Ok(Outcome::Status(200)) => {}
            other => faults.push(format!("{name}: the good request after it got {other:?}")),
        }
        if origin
            .bytes()
            .windows(EVIL.len())
            .any(|bytes| bytes.eq_ignore_ascii_case(EVIL.as_bytes()))
        {
            let bytes = origin.bytes();
            let tail = &bytes[bytes.len().saturating_sub(500)..];
            faults.push(format!("{name}: the origin received …{}", tail.escape_ascii()));
            break;
        }
    }
    // Ending the proxy closes its connections, and nothing can come after that.
    assert_eq!(proxy.stopped().0, Some(0));
    let limited = attacks.iter().filter(|attack| attack.fate == Fate::Limited).count();
    let (good, other): (Vec<String>, Vec<String>) =
        origin.paths().into_iter().partition(|path| path == GOOD);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    assert_eq!(good.len(), attacks.len(), "good requests");
    assert!(other.len() <= limited && other.iter().all(|path| path == BROKEN), "{other:?}");
    let bytes = String::from_utf8_lossy(&origin.bytes()).to_ascii_lowercase();
    assert!(!bytes.contains(EVIL), "{bytes}");
}

#[test]
fn names_and_values_never_become_other_fields() {
    none_reaches_the_origin(values_and_names());
}

#[test]
fn pseudo_fields_never_become_another_request() {
    none_reaches_the_origin(pseudo_fields());
}

#[test]
fn content_never_becomes_another_request() {
    none_reaches_the_origin(framings());
}

/// The same client sends valid requests. So the cases above are refused for what they contain.
#[test]
fn valid_requests_of_the_same_client_reach_the_origin() {
    let _home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&origin);
    let ask = |fields: Fields, data: &[&str], trailers: Fields| {
        send(proxy.address(), &fields, data, &trailers).unwrap()
    };
    let ok = Outcome::Status(200);
    let inner = "0\r\n\r\nGET /inner HTTP/1.1\r\nHost: h\r\n\r\n";
    let get = [base("GET", "/a?b=%20"), vec![("x-a", "1 2"), ("te", "trailers")]].concat();
    assert_eq!(ask(get, &[], vec![]), ok);
    let length = [base("POST", "/length"), vec![("content-length", "10")]].concat();
    assert_eq!(ask(length, &["12345", "", "67890"], vec![]), ok);
    assert_eq!(ask(base("POST", "/chunks"), &[inner], vec![]), ok);
    assert_eq!(ask(base("POST", "/trailers"), &["12345"], vec![("x-end", "1")]), ok);
    let mut host = base("GET", "/host");
    host.retain(|(name, _)| *name != ":authority");
    host.push(("host", "h"));
    assert_eq!(ask(host, &[], vec![]), ok);
    let cookies = vec![("cookie", "a=b"), ("cookie", "c=d")];
    assert_eq!(ask([base("GET", "/cookies"), cookies].concat(), &[], vec![]), ok);

    assert_eq!(proxy.stopped().0, Some(0));
    let paths = ["/a?b=%20", "/length", "/chunks", "/trailers", "/host", "/cookies"];
    assert_eq!(origin.paths(), paths);
    assert_eq!(origin.only("/a?b=%20").field("x-a"), Some("1 2"));
    assert_eq!(origin.only("/length").body, b"1234567890");
    assert_eq!(origin.only("/length").field("content-length"), Some("10"));
    assert_eq!(origin.only("/chunks").body, inner.as_bytes());
    assert_eq!(origin.only("/trailers").body, b"12345");
    assert_eq!(origin.only("/host").field("host"), Some("h"));
    assert_eq!(origin.only("/cookies").field("cookie"), Some("a=b; c=d"));
}

/// CONNECT is for a forward proxy, and an extended CONNECT is for WebSocket.
#[test]
fn connect_is_refused() {
    let _home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&origin);
    let plain = vec![(":method", "CONNECT"), (":authority", "attack.test:80")];
    let extended = [base("CONNECT", "/attack"), vec![(":protocol", "connect-udp")]].concat();
    for fields in [plain, extended] {
        let outcome = send(proxy.address(), &fields, &[], &Vec::new()).unwrap();
        assert_eq!(outcome, Outcome::Status(501));
    }
    assert_eq!(is_good(proxy.address()).unwrap(), Outcome::Status(200));
    assert_eq!(proxy.stopped().0, Some(0));
    assert_eq!(origin.paths(), [GOOD]);
}
