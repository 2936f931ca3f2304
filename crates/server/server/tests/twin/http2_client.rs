//! What a simulated client needs to speak HTTP/2: each request becomes a stream.
//!
//! What never happens: content is read that the scenario has not asked for. A client that reads
//! nothing opens no window.

use http2::{Connection, ErrorCode, Event, Limits, Misuse, Scratch, StreamId};

use crate::request_text::{Answers, Head, Part, RequestText, bytes_of};

/// Requests in flight at once; more wait for one of them to end. The server need not announce that
/// it takes fewer (RFC 9113 section 6.5.2).
const STREAMS_MAX: usize = 100;

/// So that most content has to wait for the window.
const STREAM_WINDOW_BYTES: u32 = 2000;

/// The client's side of one connection.
#[derive(Debug)]
pub(crate) struct Http2 {
    connection: Connection,
    text: RequestText,
    /// The stream of the last request.
    current: Option<StreamId>,
    /// The server takes no more requests.
    is_closing: bool,
    /// Content that the windows did not take, and whether it is all.
    waiting: Vec<(StreamId, Vec<u8>, bool)>,
    /// Frames to send.
    out: Vec<u8>,
    /// Frames that `frames` gave out are being sent.
    pub(crate) is_sending: bool,
    input: Vec<u8>,
    pub(crate) answers: Answers<StreamId>,
    now_ms: u64,
}

impl Http2 {
    pub(crate) fn new() -> Http2 {
        let mut out = Vec::new();
        let mut limits = Limits::DEFAULT;
        limits.stream_window_bytes = STREAM_WINDOW_BYTES;
        Http2 {
            connection: Connection::client(&limits, &mut out),
            text: RequestText::default(),
            current: None,
            is_closing: false,
            waiting: Vec::new(),
            out,
            is_sending: false,
            input: Vec::new(),
            answers: Answers::new(),
            now_ms: 0,
        }
    }

    /// Turns text into frames. False if the server takes no more requests on this connection.
    pub(crate) fn write(&mut self, text: &[u8]) -> bool {
        self.text.push(text);
        while !self.is_closing
            && let Some(part) = self.text.next(self.connection.open_streams() < STREAMS_MAX)
        {
            match part {
                Part::Head(head) => self.request(&head),
                Part::Content(content, ends) => self.send(self.stream(), content, ends),
                Part::Trailers(fields) => self.trailers(&fields),
            }
        }
        !self.is_closing
    }

    fn stream(&self) -> StreamId {
        self.current.expect("a request comes before its content")
    }

    fn request(&mut self, head: &Head) {
        let request = head.request("http");
        match self.connection.send_request(&request, head.fields(), head.ends, &mut self.out) {
            Ok(stream) => {
                self.current = Some(stream);
                self.answers.ask(stream);
            }
            Err(misuse) => {
                assert_eq!(misuse, Misuse::Closing);
                self.is_closing = true;
            }
        }
    }

    fn trailers(&mut self, fields: &[(String, String)]) {
        let stream = self.stream();
        if self.waiting.iter().any(|(id, ..)| *id == stream) {
            return self.send(stream, Vec::new(), true);
        }
        // An error: the server has ended the stream.
        let _ = self.connection.send_trailers(stream, bytes_of(fields), &mut self.out);
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
                    let answer = answers.get(stream).expect("an answer to a request");
                    answer.head(&head);
                    answer.is_whole = end_stream;
                }
                Event::Data { stream, bytes, end_stream } => {
                    let answer = answers.get(stream).expect("an answer to a request");
                    answer.content(bytes);
                    answer.is_whole = end_stream;
                    connection.release(stream, bytes.len(), out);
                }
                Event::Trailers { stream, .. } => {
                    answers.get(stream).expect("an answer to a request").is_whole = true;
                }
                Event::Reset { stream, code } => {
                    // With NO_ERROR only the content of the request is not wanted.
                    if let Some(answer) = answers.get(stream) {
                        let is_answered = answer.is_whole && code == ErrorCode::NO_ERROR;
                        answer.is_broken = !is_answered;
                    }
                }
                Event::StreamError { stream, reason } => panic!("stream {stream}: {reason:?}"),
                Event::GoAway { last_stream, .. } => answers.break_if(|id| id > last_stream),
                _ => {}
            }
        }
        self.input.drain(..at);
        self.send_waiting();
        self.write(&[]);
    }
}
