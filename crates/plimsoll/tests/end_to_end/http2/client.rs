//! A client for what other programs do not do: tunnels, half-closed streams, and content that is
//! not taken. It is the crate `http2` in the role of the client.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use http2::{Connection, ErrorCode, Event, Limits, RequestFields, Scratch, StreamId};

use crate::support::{SOON, read_some};

/// What has come on a stream.
#[derive(Debug, Default)]
pub(crate) struct Got {
    pub(crate) status: Option<u16>,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) content: Vec<u8>,
    pub(crate) has_ended: bool,
    pub(crate) reset: Option<ErrorCode>,
}

impl Got {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(found, _)| found == name).map(|(_, value)| &value[..])
    }

    /// Whether nothing more comes.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended || self.reset.is_some()
    }
}

/// One connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    http2: Connection,
    scratch: Scratch,
    out: Vec<u8>,
    input: Vec<u8>,
    streams: BTreeMap<StreamId, Got>,
    /// GOAWAY, or the end of the connection.
    pub(crate) is_closing: bool,
    pub(crate) is_closed: bool,
    /// It opens its windows as it reads.
    pub(crate) takes: bool,
}

impl Client {
    pub(crate) fn new(to: SocketAddr) -> Client {
        Client::with(to, &Limits::DEFAULT)
    }

    pub(crate) fn with(to: SocketAddr, limits: &Limits) -> Client {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut out = Vec::new();
        let http2 = Connection::client(limits, &mut out);
        let mut client = Client {
            stream,
            http2,
            scratch: Scratch::new(),
            out,
            input: Vec::new(),
            streams: BTreeMap::new(),
            is_closing: false,
            is_closed: false,
            takes: true,
        };
        client.flush();
        client
    }

    pub(crate) fn got(&self, stream: StreamId) -> &Got {
        &self.streams[&stream]
    }

    pub(crate) fn allows_extended_connect(&self) -> bool {
        self.http2.peer_settings().extended_connect
    }

    /// Sends a request.
    pub(crate) fn request(
        &mut self,
        request: &RequestFields<'_>,
        fields: &[(&str, &str)],
        ends: bool,
    ) -> StreamId {
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let id = self.http2.send_request(request, fields, ends, &mut self.out).unwrap();
        self.streams.insert(id, Got::default());
        self.flush();
        id
    }

    /// Sends a GET and cancels it, with one write.
    pub(crate) fn get_and_cancel(&mut self, path: &str, ends: bool) {
        let id = self.http2.send_request(&get(path), [], ends, &mut self.out).unwrap();
        self.http2.reset(id, ErrorCode::CANCEL, &mut self.out);
        self.flush();
    }

    pub(crate) fn get(&mut self, path: &str) -> StreamId {
        self.request(&get(path), &[], true)
    }

    /// Sends content as far as the windows allow; returns how much.
    pub(crate) fn send(&mut self, stream: StreamId, content: &[u8], ends: bool) -> usize {
        let sent = self.http2.send_data(stream, content, ends, &mut self.out);
        self.flush();
        sent.unwrap_or(0)
    }

    /// Sends all of it, and reads while the windows are closed.
    pub(crate) fn send_all(&mut self, stream: StreamId, mut content: &[u8], ends: bool) {
        while !content.is_empty() {
            let sent = self.send(stream, content, false);
            content = &content[sent..];
            if sent == 0 {
                self.read();
            }
        }
        if ends {
            self.send(stream, b"", true);
        }
    }

    pub(crate) fn reset(&mut self, stream: StreamId) {
        self.http2.reset(stream, ErrorCode::CANCEL, &mut self.out);
        self.flush();
    }

    /// Reads until this is so.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Client) -> bool) {
        let since = Instant::now();
        while !is_so(self) {
            let streams: Vec<_> = self.streams.iter().map(|(id, it)| (id, summary(it))).collect();
            assert!(since.elapsed() < SOON && !self.is_closed, "{what}: {streams:?}");
            self.read();
        }
    }

    /// Reads until the stream has a status.
    #[track_caller]
    pub(crate) fn status(&mut self, stream: StreamId) -> Option<u16> {
        self.until("a status", |client| {
            let got = client.got(stream);
            got.status.is_some() || got.is_over()
        });
        self.got(stream).status
    }

    #[track_caller]
    pub(crate) fn ended(&mut self, stream: StreamId) -> &Got {
        self.until("the end of a stream", |client| client.got(stream).is_over());
        self.got(stream)
    }

    /// Reads until the connection is closed; errors of the connection are ends as well.
    pub(crate) fn closed(&mut self) {
        let since = Instant::now();
        while !self.is_closed {
            assert!(since.elapsed() < SOON, "the connection is still open");
            self.read();
        }
    }

    pub(crate) fn ping(&mut self) {
        self.http2.ping(*b"12345678", &mut self.out);
        self.flush();
    }

    fn flush(&mut self) {
        // A server that has closed is noticed by the next read.
        self.stream.set_write_timeout(Some(SOON)).unwrap();
        if self.stream.write_all(&self.out).is_ok() {
            self.http2.note_sent(self.out.len());
        }
        self.out.clear();
    }

    /// Reads once.
    pub(crate) fn read(&mut self) {
        let mut part = vec![0; 64 * 1024];
        self.stream.set_read_timeout(Some(SOON)).unwrap();
        match read_some(&mut self.stream, &mut part) {
            Ok(0) => return self.is_closed = true,
            Ok(read) => self.input.extend_from_slice(&part[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("nothing comes"),
            Err(_) => return self.is_closed = true,
        }
        let mut at = 0;
        loop {
            let input = &self.input[at..];
            let next = self.http2.next_event(input, &mut self.scratch, 0, &mut self.out);
            let received = next.expect("our server keeps the rules");
            at += received.consumed;
            let mut released = None;
            match received.event {
                None => break,
                Some(Event::Response { stream, head, end_stream }) => {
                    let got = self.streams.get_mut(&stream).unwrap();
                    got.status = Some(head.status);
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    got.fields =
                        head.fields.iter().map(|(name, value)| (text(name), text(value))).collect();
                    got.has_ended = end_stream;
                }
                Some(Event::Data { stream, bytes, end_stream }) => {
                    let got = self.streams.get_mut(&stream).unwrap();
                    got.content.extend_from_slice(bytes);
                    got.has_ended = end_stream;
                    released = Some((stream, bytes.len()));
                }
                Some(Event::Reset { stream, code }) => {
                    self.streams.get_mut(&stream).unwrap().reset = Some(code);
                }
                Some(Event::GoAway { .. }) => self.is_closing = true,
                Some(_) => {}
            }
            if let Some((stream, bytes)) = released
                && self.takes
            {
                self.http2.release(stream, bytes, &mut self.out);
            }
        }
        self.input.drain(..at);
        self.flush();
    }
}

/// A GET.
pub(crate) fn get(path: &str) -> RequestFields<'_> {
    RequestFields {
        method: b"GET",
        scheme: Some(b"http"),
        authority: b"h",
        path: Some(path.as_bytes()),
        protocol: None,
    }
}

fn summary(got: &Got) -> String {
    let Got { status, content, has_ended, reset, .. } = got;
    format!("{status:?}, {} bytes, ended: {has_ended}, {reset:?}", content.len())
}
