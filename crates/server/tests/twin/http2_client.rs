//! What a simulated client needs to speak HTTP/2. The scenarios write requests as the text of
//! HTTP/1: each request of it becomes a stream here, and the responses are given in the order of
//! the requests.
//!
//! What never happens: content is read that the scenario has not asked for. A client that reads
//! nothing opens no window.

use std::collections::{HashMap, VecDeque};

use http2::{Connection, ErrorCode, Event, Limits, Misuse, RequestFields, Scratch, StreamId};

use crate::common::Response;
use crate::world::Broken;

/// Requests in flight at once; more wait for one of them to end. The server need not announce that
/// it takes fewer (RFC 9113 section 6.5.2).
const STREAMS_MAX: usize = 100;

/// So that most content has to wait for the window.
const STREAM_WINDOW_BYTES: u32 = 2000;

/// The client's side of one connection.
#[derive(Debug)]
pub(crate) struct Http2 {
    connection: Connection,
    /// Text that was not sent: the start of a head, or of a chunk.
    text: Vec<u8>,
    /// The stream that further text is the content of.
    content_of: Option<(StreamId, Content)>,
    /// Content that the windows did not take, and whether it is all.
    waiting: Vec<(StreamId, Vec<u8>, bool)>,
    /// Frames to send.
    out: Vec<u8>,
    /// Frames that `frames` gave out are being sent.
    pub(crate) is_sending: bool,
    input: Vec<u8>,
    /// Requests whose responses the scenario has not read.
    asked: VecDeque<StreamId>,
    answers: HashMap<StreamId, Answer>,
    now_ms: u64,
}

#[derive(Debug)]
enum Content {
    /// Bytes that follow.
    Length(usize),
    Chunked,
}

/// What has come of a response.
#[derive(Debug, Default)]
struct Answer {
    interim: Vec<u16>,
    response: Option<Response>,
    is_whole: bool,
    is_broken: bool,
}

impl Http2 {
    pub(crate) fn new() -> Http2 {
        let mut out = Vec::new();
        let mut limits = Limits::DEFAULT;
        limits.stream_window_bytes = STREAM_WINDOW_BYTES;
        Http2 {
            connection: Connection::client(&limits, &mut out),
            text: Vec::new(),
            content_of: None,
            waiting: Vec::new(),
            out,
            is_sending: false,
            input: Vec::new(),
            asked: VecDeque::new(),
            answers: HashMap::new(),
            now_ms: 0,
        }
    }

    /// Turns text into frames. False if the server takes no more requests on this connection.
    pub(crate) fn write(&mut self, text: &[u8]) -> bool {
        self.text.extend_from_slice(text);
        while !self.text.is_empty() {
            let used = match self.content_of.take() {
                Some((stream, Content::Length(left))) => self.length(stream, left),
                Some((stream, Content::Chunked)) => self.chunk(stream),
                None => match self.request() {
                    Ok(used) => used,
                    Err(misuse) => {
                        assert_eq!(misuse, Misuse::Closing);
                        return false;
                    }
                },
            };
            if used == 0 {
                break;
            }
            self.text.drain(..used);
        }
        true
    }

    /// Sends the request whose head the text begins with. Gives the length of the head, 0 if it is
    /// not complete.
    fn request(&mut self) -> Result<usize, Misuse> {
        let end = self.text.windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = end.filter(|_| self.connection.open_streams() < STREAMS_MAX) else {
            return Ok(0);
        };
        let head = std::str::from_utf8(&self.text[..end]).expect("a head is text");
        let mut lines = head.split("\r\n");
        let request_line: Vec<&str> = lines.next().expect("one at least").split(' ').collect();
        let [method, target, "HTTP/1.1" | "HTTP/1.0"] = request_line[..] else {
            panic!("no request over HTTP/2: {head:?}")
        };
        let fields: Vec<(String, &str)> = lines
            .map(|line| line.split_once(':').unwrap_or_else(|| panic!("field {line:?}")))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim()))
            .collect();
        let field = |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, v)| *v);
        let host = field("host").unwrap_or("");
        let (scheme, rest) = target.split_once("://").unwrap_or(("http", ""));
        let (scheme, (authority, path)) = match (method, rest) {
            ("CONNECT", _) => (None, (target, "")),
            (_, "") => (Some(scheme), (host, target)),
            _ => (Some(scheme), rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()))),
        };
        let path = if path.is_empty() { "/" } else { path };
        let content = match (field("content-length"), field("transfer-encoding")) {
            (Some(length), _) => Content::Length(length.parse().expect("a length")),
            (None, Some(_)) => Content::Chunked,
            (None, None) => Content::Length(0),
        };
        let ends = matches!(content, Content::Length(0)) && method != "CONNECT";
        let own = fields.iter().filter(|(name, _)| name != "host");
        let own = own.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let request = RequestFields {
            method: method.as_bytes(),
            scheme: scheme.map(str::as_bytes),
            authority: authority.as_bytes(),
            path: scheme.map(|_| path.as_bytes()),
            protocol: None,
        };
        let stream = self.connection.send_request(&request, own, ends, &mut self.out)?;
        self.asked.push_back(stream);
        self.answers.insert(stream, Answer::default());
        self.content_of = (!ends).then_some((stream, content));
        Ok(end + 4)
    }

    fn length(&mut self, stream: StreamId, left: usize) -> usize {
        let used = left.min(self.text.len());
        let content = self.text[..used].to_vec();
        self.send(stream, content, used == left);
        self.content_of = (used < left).then_some((stream, Content::Length(left - used)));
        used
    }

    /// Sends one chunk. Gives its length in the text, 0 if it is not complete.
    fn chunk(&mut self, stream: StreamId) -> usize {
        self.content_of = Some((stream, Content::Chunked));
        let Some(line) = self.text.windows(2).position(|two| two == b"\r\n") else { return 0 };
        let size = std::str::from_utf8(&self.text[..line]).expect("a size is text");
        let size = size.split(';').next().expect("one at least").trim();
        let size = usize::from_str_radix(size, 16).expect("a size is hexadecimal");
        let from = line + 2;
        if size > 0 {
            let Some(chunk) = self.text.get(from..from + size + 2) else { return 0 };
            let content = chunk[..size].to_vec();
            self.send(stream, content, false);
            return from + size + 2;
        }
        // The last chunk: the trailers follow.
        let rest = &self.text[line..];
        let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") else { return 0 };
        let lines = std::str::from_utf8(&rest[..end]).expect("trailers are text");
        let fields = lines.split("\r\n").filter_map(|line| line.split_once(": "));
        let fields: Vec<_> = fields.map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        self.content_of = None;
        if fields.is_empty() || self.waiting.iter().any(|(id, ..)| *id == stream) {
            self.send(stream, Vec::new(), true);
        } else {
            let fields = fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
            // An error: the server has ended the stream.
            let _ = self.connection.send_trailers(stream, fields, &mut self.out);
        }
        line + end + 4
    }

    /// Sends content as far as the windows allow; the rest waits.
    fn send(&mut self, stream: StreamId, content: Vec<u8>, ends: bool) {
        match self.waiting.iter_mut().find(|(id, ..)| *id == stream) {
            Some((_, waiting, is_all)) => {
                waiting.extend(content);
                *is_all = ends;
            }
            None => self.waiting.push((stream, content, ends)),
        }
        self.send_waiting();
    }

    fn send_waiting(&mut self) {
        let Http2 { connection, waiting, out, .. } = self;
        waiting.retain_mut(|(stream, content, ends)| {
            // An error: the server has ended the stream and does not want the rest.
            let sent = connection.send_data(*stream, content, *ends, out);
            content.drain(..sent.unwrap_or(content.len()));
            !content.is_empty()
        });
    }

    /// The frames to send next; none while others are being sent.
    pub(crate) fn frames(&mut self) -> Vec<u8> {
        if self.is_sending || self.out.is_empty() {
            return Vec::new();
        }
        self.is_sending = true;
        std::mem::take(&mut self.out)
    }

    /// Takes what was received.
    ///
    /// # Panics
    /// If no server may send such bytes.
    pub(crate) fn receive(&mut self, received: &[u8]) {
        self.input.extend_from_slice(received);
        let mut scratch = Scratch::new();
        let mut at = 0;
        loop {
            let Http2 { connection, out, answers, input, now_ms, .. } = self;
            let got = connection.next_event(&input[at..], &mut scratch, *now_ms, out);
            let got = got.expect("the server breaks no rule");
            at += got.consumed;
            let Some(event) = got.event else { break };
            match event {
                Event::Response { stream, head, end_stream } => {
                    let text = |bytes| String::from_utf8(Vec::from(bytes)).expect("text");
                    let fields = head.fields.iter().map(|(n, v)| (text(n), text(v))).collect();
                    let answer = answers.get_mut(&stream).expect("an answer to a request");
                    if head.status < 200 {
                        answer.interim.push(head.status);
                        continue;
                    }
                    let response = Response { status: head.status, fields, body: Vec::new() };
                    answer.response = Some(response);
                    answer.is_whole = end_stream;
                }
                Event::Data { stream, bytes, end_stream } => {
                    let answer = answers.get_mut(&stream).expect("an answer to a request");
                    let response = answer.response.as_mut().expect("a head before content");
                    response.body.extend_from_slice(bytes);
                    answer.is_whole = end_stream;
                    connection.release(stream, bytes.len(), out);
                }
                Event::Trailers { stream, .. } => {
                    answers.get_mut(&stream).expect("an answer to a request").is_whole = true;
                }
                Event::Reset { stream, code } => {
                    // With NO_ERROR only the content of the request is not wanted.
                    if let Some(answer) = answers.get_mut(&stream) {
                        let is_answered = answer.is_whole && code == ErrorCode::NO_ERROR;
                        answer.is_broken = !is_answered;
                    }
                }
                Event::StreamError { stream, reason } => panic!("stream {stream}: {reason:?}"),
                Event::GoAway { last_stream, .. } => {
                    let late = answers.iter_mut().filter(|(stream, _)| **stream > last_stream);
                    late.for_each(|(_, answer)| answer.is_broken = true);
                }
                _ => {}
            }
        }
        self.input.drain(..at);
        self.send_waiting();
        self.write(&[]);
    }

    /// The response to the oldest request, if it is whole or broken. Interim responses are moved to
    /// `interim` as they come.
    pub(crate) fn next(&mut self, interim: &mut Vec<u16>) -> Option<Result<Response, Broken>> {
        let stream = *self.asked.front()?;
        let answer = self.answers.get_mut(&stream).expect("listed with the request");
        interim.append(&mut answer.interim);
        let result = match answer {
            Answer { is_broken: true, response: Some(_), .. } => Err(Broken::Within),
            Answer { is_broken: true, .. } => Err(Broken::Ended),
            Answer { is_whole: true, response, .. } => Ok(response.take().expect("a head")),
            _ => return None,
        };
        self.asked.pop_front();
        self.answers.remove(&stream);
        Some(result)
    }

    /// Whether anything has come for any request.
    pub(crate) fn has_come(&self) -> bool {
        let came = |answer: &Answer| {
            answer.response.is_some() || answer.is_broken || !answer.interim.is_empty()
        };
        self.answers.values().any(came)
    }

    /// Whether a part of the next response has come.
    pub(crate) fn is_within(&self) -> bool {
        let next = self.asked.front().and_then(|stream| self.answers.get(stream));
        next.is_some_and(|answer| answer.response.is_some())
    }
}
