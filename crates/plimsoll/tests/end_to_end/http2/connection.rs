//! One connection over HTTP/2, frame by frame: who is served first, who is cut, what is counted.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use super::attacks::{
    DATA, END_HEADERS, END_STREAM, Fields, GOAWAY, HEADERS, RST_STREAM, SETTINGS, base, block,
    frame,
};
use super::recorder::Recorder;
use crate::support::{Home, OurServer, SOON, get, wait_for};

const WINDOW_UPDATE: u8 = 8;
/// The largest window.
const WINDOW: u32 = (1 << 31) - 1;

/// A client that opens its windows as far as they go.
struct Client {
    stream: TcpStream,
    out: Vec<u8>,
}

/// A frame from the server.
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    fn ends(&self, stream: u32) -> bool {
        self.stream == stream && matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

impl Client {
    fn connect(to: SocketAddr) -> Client {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let [a, b, c, d] = WINDOW.to_be_bytes();
        frame(SETTINGS, 0, 0, &[0, 4, a, b, c, d], &mut out);
        frame(WINDOW_UPDATE, 0, 0, &(WINDOW - 65_535).to_be_bytes(), &mut out);
        Client { stream, out }
    }

    /// Adds a request to what the next [`Client::send`] sends.
    fn ask(&mut self, stream: u32, fields: &Fields, ends: bool) -> &mut Client {
        let flags = END_HEADERS | if ends { END_STREAM } else { 0 };
        frame(HEADERS, flags, stream, &block(fields), &mut self.out);
        self
    }

    fn send(&mut self) {
        self.stream.write_all(&self.out).unwrap();
        self.out.clear();
    }

    fn next(&mut self) -> io::Result<Frame> {
        let mut header = [0; 9];
        self.stream.read_exact(&mut header)?;
        let [a, b, c, kind, flags, stream @ ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload)?;
        Ok(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    /// Reads up to the end of a stream; returns the streams that ended before it.
    #[track_caller]
    fn until_end(&mut self, stream: u32) -> Vec<u32> {
        let mut ended = Vec::new();
        loop {
            let frame = self.next().unwrap();
            if frame.ends(stream) {
                return ended;
            }
            if frame.ends(frame.stream) {
                ended.push(frame.stream);
            }
        }
    }
}

/// A server with one worker and these limits, with a log of JSON.
fn proxy(home: &Home, origin: &Recorder, limits: &str) -> OurServer {
    let text = format!(
        "[server]\nworkers = 1\nadmin = \"127.0.0.1:0\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [log]\npath = \"access.log\"\nformat = \"json\"\n[limits]\n{limits}\n\
         [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"{}\"\n",
        origin.url()
    );
    OurServer::configured(&home.write("plimsoll.toml", &text))
}

#[track_caller]
fn metric(admin: SocketAddr, name: &str) -> u64 {
    let page = get(admin, "/metrics");
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {page}"))
}

/// Waits until a metric has this value.
#[track_caller]
fn becomes(admin: SocketAddr, name: &str, value: u64) {
    wait_for(name, SOON, || (metric(admin, name) == value).then_some(()));
}

/// It kept 256 KiB for as long as the client liked.
#[test]
fn a_client_that_does_not_read_is_cut() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin, "send_timeout = \"500ms\"");
    let (to, admin) = (proxy.address(), proxy.admin());
    let mut client = Client::connect(to);
    // In the store, so that no upstream is waited for.
    client.ask(1, &base("GET", "/cached/2000000"), true).send();
    client.until_end(1);
    for stream in (3..43).step_by(2) {
        client.ask(stream, &base("GET", "/cached/2000000"), true);
    }
    client.send();
    wait_for("output that waits", SOON, || {
        (metric(admin, "plimsoll_client_held_bytes") > 0).then_some(())
    });
    becomes(admin, "plimsoll_connections_open", 0);
    assert_eq!(metric(admin, "plimsoll_client_held_bytes"), 0);
    assert!(metric(admin, "plimsoll_timeouts_total") >= 1);
    let mut rest = Vec::new();
    let _cut = client.stream.read_to_end(&mut rest);
    assert!(rest.len() < 20 * 2_000_000, "{} bytes", rest.len());
}

#[test]
fn rfc9218_the_urgent_response_comes_first() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin, "");
    let path = "/cached/3000000";
    let with = |priority: &'static str| [base("GET", path), vec![("priority", priority)]].concat();
    let mut client = Client::connect(proxy.address());
    client.ask(1, &base("GET", path), true).send();
    client.until_end(1);
    client.ask(3, &with("u=6"), true).ask(5, &with("u=3"), true).ask(7, &with("u=0"), true);
    client.send();
    assert_eq!(client.until_end(3), [7, 5]);
    // Of one urgency: one after the other, unless pieces are of use.
    client.ask(9, &with("u=3"), true).ask(11, &with("u=3"), true).send();
    assert_eq!(client.until_end(11), [9]);
    client.ask(13, &with("u=3, i"), true).ask(15, &with("u=3, i"), true).send();
    let mut pieces = Vec::new();
    while pieces.len() < 100 {
        let frame = client.next().unwrap();
        if frame.kind == DATA && pieces.last() != Some(&frame.stream) {
            pieces.push(frame.stream);
        }
        assert!(!frame.ends(13) && !frame.ends(15), "in turns: {pieces:?}");
    }
}

/// Such a request went to the origin.
#[test]
fn a_get_that_ends_with_an_empty_frame_is_a_hit() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin, "");
    let mut client = Client::connect(proxy.address());
    client.ask(1, &base("GET", "/cached/100"), true).send();
    client.until_end(1);
    client.ask(3, &base("GET", "/cached/100"), false);
    frame(DATA, END_STREAM, 3, &[], &mut client.out);
    client.send();
    client.until_end(3);
    assert_eq!(origin.paths(), ["/cached/100"]);
}

#[test]
fn broken_rules_and_unknown_schemes_are_logged() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin, "");
    let mut client = Client::connect(proxy.address());
    let ftp: Fields = base("GET", "/").into_iter().filter(|(name, _)| *name != ":scheme").collect();
    let ftp = [vec![(":scheme", "ftp")], ftp].concat();
    let upper = [base("GET", "/upper"), vec![("Name", "x")]].concat();
    client.ask(1, &ftp, true).ask(3, &upper, true).send();
    client.until_end(1);
    let reset = loop {
        let frame = client.next().unwrap();
        if frame.kind == RST_STREAM && frame.stream == 3 {
            break frame;
        }
    };
    assert_eq!(reset.payload, [0, 0, 0, 1], "PROTOCOL_ERROR");
    // A frame on no stream that exists ends the connection.
    frame(DATA, 0, 99, b"x", &mut client.out);
    client.send();
    let goaway = loop {
        let frame = client.next().unwrap();
        if frame.kind == GOAWAY {
            break frame;
        }
    };
    assert_eq!(goaway.payload[4..8], [0, 0, 0, 1], "PROTOCOL_ERROR");
    assert_eq!(proxy.stopped().0, Some(0));
    let log = home.read("access.log");
    let lines = |rule: &str| log.matches(&format!("\"rule\":\"{rule}\"")).count();
    assert_eq!(
        (lines("scheme"), lines("http2-malformed"), log.lines().count()),
        (1, 2, 3),
        "{log}"
    );
    assert!(origin.paths().is_empty());
}

/// Its descriptors were not in `connections_max`, and each of its requests counted as a connection.
#[test]
fn a_connection_is_open_and_busy_as_long_as_it_has_a_task() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin, "");
    let admin = proxy.admin();
    let mut client = Client::connect(proxy.address());
    for (stream, path) in [(1, "/held/100"), (3, "/held/200"), (5, "/held/300")] {
        client.ask(stream, &base("GET", path), true);
    }
    client.send();
    origin.wait_for_request("/held/300");
    assert_eq!(metric(admin, "plimsoll_connections_busy"), 1);
    client.stream.shutdown(Shutdown::Both).unwrap();
    drop(client);
    assert_eq!(metric(admin, "plimsoll_connections_open"), 1);
    origin.release();
    becomes(admin, "plimsoll_connections_open", 0);
    assert_eq!(metric(admin, "plimsoll_connections_busy"), 0);
}

#[test]
fn a_drain_is_announced_at_once() {
    let home = Home::new();
    let origin = Recorder::start();
    let mut proxy = proxy(&home, &origin, "");
    let mut client = Client::connect(proxy.address());
    client.ask(1, &base("GET", "/held/100"), true).send();
    origin.wait_for_request("/held/100");
    proxy.child.signal("TERM");
    while client.next().unwrap().kind != GOAWAY {}
    origin.release();
    client.until_end(1);
    assert_eq!(proxy.child.ended(SOON).code(), Some(0));
}
