//! Tunnels over one stream of HTTP/2: CONNECT (RFC 9113 section 8.5) and WebSocket by extended
//! CONNECT (RFC 8441).

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

use http2::{ErrorCode, RequestFields};

use crate::http2::client::{Client, get};
use crate::http2::recorder::content;
use crate::support::{Accepting, Home, OurServer, SOON, program, read_some, run, wait_for};

/// A server that sends back what it receives, and ends when its client does.
pub(crate) fn echo() -> Accepting {
    Accepting::start(|mut stream| {
        let mut part = [0; 16 * 1024];
        while let Ok(read @ 1..) = read_some(&mut stream, &mut part) {
            if stream.write_all(&part[..read]).is_err() {
                return;
            }
        }
        let _ = stream.shutdown(Shutdown::Write);
    })
}

/// A forward proxy with a log. The addresses of this machine may be reached, at this port.
fn forward(home: &Home, port: u16, more: &str) -> OurServer {
    let log = home.at("access.log");
    OurServer::configured(&home.write(
        "forward.toml",
        format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"forward\"\n\
             [forward]\nallow_to = [\"127.0.0.0/8\"]\nconnect_ports = [\"{port}\"]\n{more}\n\
             [log]\npath = \"{log}\"\n"
        ),
    ))
}

fn connect(authority: &str) -> RequestFields<'_> {
    RequestFields {
        method: b"CONNECT",
        scheme: None,
        authority: authority.as_bytes(),
        path: None,
        protocol: None,
    }
}

/// The lines of the access log, when there are so many.
fn lines(home: &Home, count: usize) -> Vec<String> {
    wait_for("the log", SOON, || {
        let lines: Vec<_> = home.read("access.log").lines().map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    })
}

#[test]
fn a_tunnel_carries_megabytes_both_ways_beside_other_streams() {
    let home = Home::new();
    let origin = echo();
    let authority = origin.address.to_string();
    let proxy = forward(&home, origin.address.port(), "");
    let mut client = Client::new(proxy.address());
    let sent = content(3_000_000);
    let (one, other) = (
        client.request(&connect(&authority), &[], false),
        client.request(&connect(&authority), &[], false),
    );
    assert_eq!((client.status(one), client.status(other)), (Some(200), Some(200)));
    assert_eq!(client.got(one).field("content-length"), None);
    client.send_all(other, b"a little", false);
    client.send_all(one, &sent, true);
    assert!(client.ended(one).content == sent);
    // The end of one is not that of the other.
    client.send_all(other, b" more", true);
    assert_eq!(client.ended(other).content, b"a little more");
    assert_eq!((client.got(one).reset, client.got(other).reset), (None, None));
    let lines = lines(&home, 2);
    for line in &lines {
        let destination = format!(" CONNECT {authority} - HIER_DIRECT/127.0.0.1 ");
        assert!(line.contains("TCP_TUNNEL/200 ") && line.contains(&destination), "{line}");
    }
    let mut bytes: Vec<u64> = lines.iter().map(|line| logged_bytes(line)).collect();
    bytes.sort_unstable();
    assert!((13..1000).contains(&bytes[0]) && bytes[1] >= 3_000_000, "{lines:?}");
    drop(client);
    assert_eq!(proxy.stopped().0, Some(0));
}

/// The bytes that a client was sent, in Squid's format.
fn logged_bytes(line: &str) -> u64 {
    line.split_whitespace().nth(4).unwrap().parse().unwrap()
}

/// What an origin's only connection received, and how it ended.
fn received(stream: &mut TcpStream) -> (usize, bool) {
    let (mut part, mut bytes) = ([0; 16 * 1024], 0);
    loop {
        match read_some(stream, &mut part) {
            Ok(0) => return (bytes, true),
            Ok(read) => bytes += read,
            Err(_) => return (bytes, false),
        }
    }
}

/// An origin that greets, ends its direction, and reads on to the end.
fn greeting(greeting: Vec<u8>) -> (Accepting, Receiver<(usize, bool)>) {
    let (report, reports) = channel();
    let accepting = Accepting::start(move |mut stream| {
        if stream.write_all(&greeting).is_ok() && stream.shutdown(Shutdown::Write).is_ok() {
            let _ = report.send(received(&mut stream));
        }
    });
    (accepting, reports)
}

#[test]
fn the_upstream_may_end_its_direction_first() {
    let home = Home::new();
    let (origin, reports) = greeting(content(1_000_000));
    let authority = origin.address.to_string();
    let proxy = forward(&home, origin.address.port(), "");
    let mut client = Client::new(proxy.address());
    let stream = client.request(&connect(&authority), &[], false);
    assert!(client.ended(stream).content == content(1_000_000));
    assert_eq!(client.got(stream).reset, None);
    client.send_all(stream, &content(500_000), true);
    assert_eq!(reports.recv_timeout(SOON), Ok((500_000, true)));
    assert_eq!(lines(&home, 1).len(), 1);
    drop(client);
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn a_reset_of_the_client_resets_the_upstream() {
    let home = Home::new();
    let (report, reports) = channel();
    let origin = Accepting::start(move |mut stream| {
        let _ = report.send(received(&mut stream));
    });
    let authority = origin.address.to_string();
    let proxy = forward(&home, origin.address.port(), "");
    let mut client = Client::new(proxy.address());
    let stream = client.request(&connect(&authority), &[], false);
    assert_eq!(client.status(stream), Some(200));
    client.send_all(stream, b"12345", false);
    client.reset(stream);
    let (bytes, is_orderly) = reports.recv_timeout(SOON).unwrap();
    assert!(bytes <= 5 && !is_orderly, "{bytes} bytes, orderly: {is_orderly}");
    assert!(lines(&home, 1)[0].contains("TCP_TUNNEL/200 "));
    // The connection goes on.
    let other = client.request(&connect(&authority), &[], false);
    assert_eq!(client.status(other), Some(200));
    drop(client);
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn an_upstream_that_resets_its_connection_resets_the_stream() {
    let home = Home::new();
    let origin = Accepting::start(|mut stream| {
        // Unread bytes make the close a reset.
        let _ = read_some(&mut stream, &mut [0]);
    });
    let authority = origin.address.to_string();
    let proxy = forward(&home, origin.address.port(), "");
    let mut client = Client::new(proxy.address());
    let stream = client.request(&connect(&authority), &[], false);
    assert_eq!(client.status(stream), Some(200));
    client.send_all(stream, &content(1000), false);
    assert_eq!(client.ended(stream).reset, Some(ErrorCode::CONNECT_ERROR));
    drop(client);
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn a_silent_tunnel_ends_after_its_time_out() {
    let home = Home::new();
    let (report, reports) = channel();
    let origin = Accepting::start(move |mut stream| {
        let _ = report.send(received(&mut stream));
    });
    let authority = origin.address.to_string();
    let limits = "[limits]\ntunnel_idle = \"200ms\"";
    let proxy = forward(&home, origin.address.port(), limits);
    let mut client = Client::new(proxy.address());
    let stream = client.request(&connect(&authority), &[], false);
    assert_eq!(client.status(stream), Some(200));
    assert_eq!(client.ended(stream).reset, Some(ErrorCode::CANCEL));
    assert_eq!(reports.recv_timeout(SOON), Ok((0, true)));
    drop(client);
    assert_eq!(proxy.stopped().0, Some(0));
}

/// A client that does not read stops its own tunnel, and nothing else.
#[test]
fn a_tunnel_that_is_not_read_waits() {
    let home = Home::new();
    let (origin, _reports) = greeting(content(4_000_000));
    let authority = origin.address.to_string();
    let proxy = forward(&home, origin.address.port(), "");
    let mut client = Client::new(proxy.address());
    client.takes = false;
    let stream = client.request(&connect(&authority), &[], false);
    // The initial window.
    client.until("a window", |client| client.got(stream).content.len() >= 65_535);
    let other = client.request(&connect("127.0.0.1:1"), &[], false);
    assert_eq!(client.status(other), Some(403));
    assert!(!client.got(stream).is_over());
    drop(client);
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn the_rules_of_connect_apply() {
    let home = Home::new();
    let origin = echo();
    let port = origin.address.port();
    let authority = format!("localhost:{port}");
    let tls = format!("check_server_name = true\ntls_ports = [\"{port}\"]");
    let proxy = forward(&home, port, &tls);
    let mut client = Client::new(proxy.address());
    // The first bytes are no ClientHello.
    let stream = client.request(&connect(&authority), &[], false);
    assert_eq!(client.status(stream), Some(200));
    client.send_all(stream, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", false);
    assert!(client.ended(stream).content.is_empty());
    let port = client.request(&connect("localhost:9"), &[], false);
    assert_eq!(client.ended(port).status, Some(403));
    let lines = lines(&home, 2);
    assert!(lines[0].contains("TCP_DENIED/200 "), "{lines:?}");
    assert!(lines[1].contains("TCP_DENIED/403 "), "{lines:?}");
    drop(client);
    assert_eq!(proxy.stopped().0, Some(0));
}

/// Tunnels run until the drain time-out, and are then cut.
#[test]
fn a_drain_cuts_tunnels_of_http2() {
    let home = Home::new();
    let origin = echo();
    let authority = origin.address.to_string();
    let limits = "[limits]\ndrain_timeout = \"3s\"";
    let proxy = forward(&home, origin.address.port(), limits);
    let mut client = Client::new(proxy.address());
    let stream = client.request(&connect(&authority), &[], false);
    assert_eq!(client.status(stream), Some(200));
    client.send_all(stream, b"12345", false);
    client.until("the echo", |client| client.got(stream).content.len() == 5);
    proxy.child.signal("TERM");
    client.until("GOAWAY", |client| client.is_closing);
    client.send_all(stream, b"67890", false);
    client.until("the echo", |client| client.got(stream).content.len() == 10);
    assert_eq!(proxy.stopped().0, Some(0));
    assert!(lines(&home, 1)[0].contains("TCP_TUNNEL/200 "));
}

/// An origin that answers a WebSocket handshake like this, with the right `Sec-WebSocket-Accept` in
/// place of `ACCEPT`, and then echoes.
pub(crate) fn websocket(answer: &'static str) -> (Accepting, Receiver<String>) {
    let (report, reports) = channel();
    let accepting = Accepting::start(move |mut stream| {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            match read_some(&mut stream, &mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return,
            }
        }
        let head = String::from_utf8(head).unwrap();
        let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "));
        let accept = accept(key.unwrap_or_default());
        let _ = report.send(head);
        let _ = stream.write_all(answer.replace("ACCEPT", &accept).as_bytes());
        let mut part = [0; 16 * 1024];
        while let Ok(read @ 1..) = read_some(&mut stream, &mut part) {
            if stream.write_all(&part[..read]).is_err() {
                return;
            }
        }
    });
    (accepting, reports)
}

/// By another implementation than ours.
fn accept(key: &str) -> String {
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let mut openssl = Command::new("sh");
    let program = program("openssl", "openssl");
    openssl.arg("-c").arg("printf %s \"$1\" | \"$0\" dgst -sha1 -binary | \"$0\" base64");
    openssl.arg(program).arg(text);
    run(openssl, SOON).succeeded().stdout.trim().to_owned()
}

pub(crate) const SWITCHES: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Accept: ACCEPT\r\nSec-WebSocket-Protocol: chat\r\n\r\nhi";

fn reverse(home: &Home, origin: SocketAddr, more: &str) -> OurServer {
    let log = home.at("access.log");
    OurServer::configured(&home.write(
        "reverse.toml",
        format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\n[log]\npath = \"{log}\"\n{more}\n\
             [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"http://{origin}\"\n"
        ),
    ))
}

fn extended(protocol: &str) -> RequestFields<'_> {
    RequestFields { method: b"CONNECT", protocol: Some(protocol.as_bytes()), ..get("/chat") }
}

#[test]
fn an_extended_connect_becomes_an_upgrade() {
    let home = Home::new();
    let (origin, heads) = websocket(SWITCHES);
    let proxy = reverse(&home, origin.address, "");
    let mut client = Client::new(proxy.address());
    client.until("SETTINGS", Client::allows_extended_connect);
    let fields = [("sec-websocket-version", "13"), ("sec-websocket-key", "ours is better")];
    let stream = client.request(&extended("websocket"), &fields, false);
    assert_eq!(client.status(stream), Some(200));
    let got = client.got(stream);
    assert_eq!(got.field("sec-websocket-protocol"), Some("chat"));
    for name in ["sec-websocket-accept", "upgrade", "connection"] {
        assert_eq!(got.field(name), None, "{name}");
    }
    client.send_all(stream, &content(300_000), false);
    client.until("the echo", |client| client.got(stream).content.len() == 300_002);
    assert!(client.got(stream).content[2..] == content(300_000));
    client.send_all(stream, b"", true);
    client.ended(stream);

    let head = heads.recv_timeout(SOON).unwrap();
    assert!(head.starts_with("GET /chat HTTP/1.1\r\nHost: h\r\n"), "{head}");
    for line in ["Connection: Upgrade\r\n", "Upgrade: websocket\r\n", "sec-websocket-version: 13"] {
        assert_eq!(head.matches(line).count(), 1, "{line}: {head}");
    }
    assert_eq!(head.to_ascii_lowercase().matches("sec-websocket-key").count(), 1, "{head}");
    let line = &lines(&home, 1)[0];
    assert!(line.contains("TUNNEL") && line.contains("/200 "), "{line}");
    drop(client);
    assert_eq!(proxy.stopped().0, Some(0));
}

/// Each of these must not look like an open tunnel.
#[test]
fn no_other_answer_opens_a_websocket() {
    for (answer, status) in [
        (&*SWITCHES.replace("ACCEPT", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=").leak(), 502),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 502),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404),
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: upgrade\r\n\r\n", 502),
    ] {
        let home = Home::new();
        let (origin, _heads) = websocket(answer);
        let proxy = reverse(&home, origin.address, "");
        let mut client = Client::new(proxy.address());
        let stream = client.request(&extended("websocket"), &[], false);
        assert_eq!(client.status(stream), Some(status), "{answer}");
        client.ended(stream);
        drop(client);
        assert_eq!(proxy.stopped().0, Some(0));
    }
}

#[test]
fn an_extended_connect_that_is_not_allowed_is_refused() {
    let home = Home::new();
    let (origin, heads) = websocket(SWITCHES);
    let proxy = reverse(&home, origin.address, "");
    let mut client = Client::new(proxy.address());
    for protocol in ["connect-udp", "websocket, other", "h2c"] {
        let stream = client.request(&extended(protocol), &[], false);
        assert_eq!(client.ended(stream).status, Some(501), "{protocol}");
    }
    assert_eq!(proxy.stopped().0, Some(0));
    let proxy = reverse(&home, origin.address, "[upgrade]\nprotocols = []\n");
    let mut client = Client::new(proxy.address());
    let stream = client.request(&extended("websocket"), &[], false);
    assert_eq!(client.ended(stream).reset, Some(ErrorCode::PROTOCOL_ERROR));
    assert!(!client.allows_extended_connect());
    assert_eq!(proxy.stopped().0, Some(0));
    assert!(heads.try_recv().is_err(), "nothing reaches the origin");
}

/// A client that has these versions of a WebSocket from a library.
const NODE: &str = r"
const http2 = require('http2');
const session = http2.connect(process.argv[2]);
session.on('remoteSettings', (settings) => {
  const stream = session.request({
    ':method': 'CONNECT', ':protocol': 'websocket', ':path': '/chat', ':scheme': 'http',
    'sec-websocket-version': '13',
  });
  let text = '';
  stream.on('response', (head) => { console.log(head[':status']); stream.write('there'); });
  stream.on('data', (part) => {
    text += part;
    if (text === 'hithere') { console.log(text); stream.end(); session.close(); }
  });
});
";

#[test]
fn node_opens_a_websocket() {
    let home = Home::new();
    let (origin, _heads) = websocket(SWITCHES);
    let proxy = reverse(&home, origin.address, "");
    let mut node = Command::new(program("node", "nodejs"));
    node.arg(home.write("socket.js", NODE)).arg(proxy.url());
    assert_eq!(run(node, SOON).succeeded().stdout, "200\nhithere\n");
    assert_eq!(proxy.stopped().0, Some(0));
}
