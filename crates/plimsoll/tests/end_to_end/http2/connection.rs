//! One connection over HTTP/2, frame by frame: who is served first, and what is refused.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::attacks::{
    DATA, END_HEADERS, END_STREAM, Fields, GOAWAY, HEADERS, RST_STREAM, SETTINGS, base, block,
    frame,
};
use super::holding::proxy;
use super::recorder::Recorder;
use crate::support::{Home, SOON};

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
