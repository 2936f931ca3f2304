//! One side of a connection of HTTP/2 in the clear, the server's or the client's, for a test that
//! decides each step.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use http2::hpack::encode_without_table;
use http2::{Connection, ErrorCode, Event, Limits, RequestFields, Scratch, StreamId};

use crate::support::{SOON, read_some};

pub(crate) type Fields = Vec<(String, String)>;

/// What the other side has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The head of a request or a response, with its pseudo-fields, and whether it is all.
    Head(StreamId, Fields, bool),
    Data(StreamId, Vec<u8>, bool),
    Trailers(StreamId, Fields),
    Reset(StreamId, ErrorCode),
}

pub(crate) struct Side {
    stream: TcpStream,
    pub(crate) http2: Connection,
    scratch: Scratch,
    input: Vec<u8>,
    pub(crate) out: Vec<u8>,
    seen: VecDeque<Seen>,
}

impl Side {
    pub(crate) fn accept(stream: TcpStream, limits: &Limits) -> Side {
        let mut out = Vec::new();
        let http2 = Connection::server(limits, &mut out);
        Side::new(stream, http2, out)
    }

    pub(crate) fn connect(address: SocketAddr) -> Side {
        let mut out = Vec::new();
        let http2 = Connection::client(&Limits::DEFAULT, &mut out);
        Side::new(TcpStream::connect(address).unwrap(), http2, out)
    }

    fn new(stream: TcpStream, http2: Connection, out: Vec<u8>) -> Side {
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.set_nodelay(true).unwrap();
        let scratch = Scratch::new();
        Side { stream, http2, scratch, input: Vec::new(), out, seen: VecDeque::new() }
    }

    pub(crate) fn flush(&mut self) {
        // The other side may have gone, which the test sees when it reads.
        let _ = self.stream.write_all(&self.out);
        self.http2.note_sent(self.out.len());
        self.out.clear();
    }

    /// The next thing that the other side does; `None` once it has closed the connection.
    pub(crate) fn next(&mut self) -> Option<Seen> {
        loop {
            if let Some(seen) = self.seen.pop_front() {
                return Some(seen);
            }
            self.flush();
            self.read()?;
        }
    }

    /// The next thing that it does on another stream, or nothing that matters, such as a window.
    pub(crate) fn next_of(&mut self, stream: StreamId) -> Option<Seen> {
        if self.seen.is_empty() {
            self.flush();
            self.read()?;
        }
        Some(self.seen.pop_front().unwrap_or(Seen::Data(stream, Vec::new(), false)))
    }

    fn read(&mut self) -> Option<()> {
        let mut piece = [0; 16 * 1024];
        let read = read_some(&mut self.stream, &mut piece).unwrap_or(0);
        self.input.extend_from_slice(&piece[..read]);
        let mut at = 0;
        loop {
            let Side { http2, scratch, out, .. } = self;
            let received = http2.next_event(&self.input[at..], scratch, 0, out).ok()?;
            at += received.consumed;
            let Some(event) = received.event else { break };
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let pair = |(name, value): (&[u8], &[u8])| (text(name), text(value));
            self.seen.push_back(match event {
                Event::Request { stream, head, end_stream } => {
                    let pseudo = [
                        (":method", Some(head.method)),
                        (":scheme", head.scheme),
                        (":authority", Some(head.authority)),
                        (":path", head.path),
                    ];
                    let pseudo = pseudo
                        .into_iter()
                        .filter_map(|(name, value)| Some((name.to_owned(), text(value?))));
                    Seen::Head(
                        stream,
                        pseudo.chain(head.fields.iter().map(pair)).collect(),
                        end_stream,
                    )
                }
                Event::Response { stream, head, end_stream } => {
                    let status = (":status".to_owned(), head.status.to_string());
                    let fields = head.fields.iter().map(pair);
                    Seen::Head(stream, std::iter::once(status).chain(fields).collect(), end_stream)
                }
                Event::Data { stream, bytes, end_stream } => {
                    let bytes = bytes.to_vec();
                    self.http2.release(stream, bytes.len(), &mut self.out);
                    Seen::Data(stream, bytes, end_stream)
                }
                Event::Trailers { stream, fields } => {
                    Seen::Trailers(stream, fields.iter().map(pair).collect())
                }
                Event::Reset { stream, code } => Seen::Reset(stream, code),
                _ => continue,
            });
        }
        self.input.drain(..at);
        (read > 0).then_some(())
    }

    /// Sends a request; the content and its end follow unless it `ends`.
    pub(crate) fn request(
        &mut self,
        (method, path): (&str, &str),
        fields: &[(&str, &str)],
        ends: bool,
    ) -> StreamId {
        let request = RequestFields {
            method: method.as_bytes(),
            scheme: Some(b"http"),
            authority: b"site.test",
            path: Some(path.as_bytes()),
            protocol: None,
        };
        let sent = self.http2.send_request(&request, bytes(fields), ends, &mut self.out).unwrap();
        self.flush();
        sent
    }

    pub(crate) fn respond(&mut self, stream: StreamId, fields: &[(&str, &str)], ends: bool) {
        let (status, fields) = fields.split_first().unwrap();
        let status = status.1.parse().unwrap();
        self.http2.send_response(stream, status, bytes(fields), ends, &mut self.out).unwrap();
        self.flush();
    }

    /// The same, with fields that are not checked.
    pub(crate) fn respond_with_anything(&mut self, stream: StreamId, fields: &[(&str, &str)]) {
        let mut block = Vec::new();
        for (name, value) in bytes(fields) {
            encode_without_table(name, value, &mut block);
        }
        self.http2.send_encoded_response(stream, &block, true, &mut self.out).unwrap();
        self.flush();
    }

    /// Sends content, waiting for windows. False if the stream or the connection is gone.
    pub(crate) fn data(&mut self, stream: StreamId, mut content: &[u8], ends: bool) -> bool {
        loop {
            let Ok(sent) = self.http2.send_data(stream, content, ends, &mut self.out) else {
                return false;
            };
            self.flush();
            content = &content[sent..];
            if content.is_empty() {
                return true;
            }
            if self.read().is_none() {
                return false;
            }
        }
    }

    pub(crate) fn trailers(&mut self, stream: StreamId, fields: &[(&str, &str)]) {
        self.http2.send_trailers(stream, bytes(fields), &mut self.out).unwrap();
        self.flush();
    }

    pub(crate) fn reset(&mut self, stream: StreamId, code: ErrorCode) {
        self.http2.reset(stream, code, &mut self.out);
        self.flush();
    }

    /// Sends a frame on stream 0.
    pub(crate) fn raw(&mut self, kind: u8, payload: &[u8]) {
        let length = (payload.len() as u32).to_be_bytes();
        self.out.extend_from_slice(&[length[1], length[2], length[3], kind, 0, 0, 0, 0, 0]);
        self.out.extend_from_slice(payload);
        self.flush();
    }

    /// Reads a request or a response to its end: its head, content and trailers. `None` if it is
    /// broken off.
    pub(crate) fn message(&mut self) -> Option<Message> {
        let mut message = Message::default();
        loop {
            let ends = match self.next()? {
                Seen::Head(_, fields, _) if field(&fields, ":status").starts_with('1') => false,
                Seen::Head(stream, fields, ends) => {
                    (message.stream, message.head) = (stream, fields);
                    ends
                }
                Seen::Data(_, bytes, ends) => {
                    message.content.extend_from_slice(&bytes);
                    ends
                }
                Seen::Trailers(_, fields) => {
                    message.trailers = fields;
                    true
                }
                Seen::Reset(..) => return None,
            };
            if ends {
                return Some(message);
            }
        }
    }
}

/// A whole message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    pub(crate) stream: StreamId,
    pub(crate) head: Fields,
    pub(crate) content: Vec<u8>,
    pub(crate) trailers: Fields,
}

/// The value of a field, or nothing.
pub(crate) fn field<'f>(fields: &'f Fields, name: &str) -> &'f str {
    fields.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
}

fn bytes<'f>(fields: &'f [(&str, &str)]) -> impl Iterator<Item = (&'f [u8], &'f [u8])> {
    fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))
}
