//! Our client against our server over random schedules: every byte arrives, all streams end, and no
//! window is lost.

use std::collections::BTreeMap;

use http2::limits::WINDOW_BYTES_INITIAL;
use http2::{Connection, ErrorCode, Event, Limits, Misuse, RequestFields, Scratch, StreamId};
use proptest::prelude::*;

const STREAM_WINDOW: u32 = 5_000;
const STREAMS_MAX: u32 = 8;

/// A generator of random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % bound.max(1)
    }

    fn one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }
}

/// The byte at a place of a message: whatever is lost, doubled or swapped shows.
fn byte(stream: StreamId, at: usize) -> u8 {
    (stream as usize * 31 + at * 7 + at / 251) as u8
}

/// One side's view of a stream.
#[derive(Default)]
struct Message {
    to_send: usize,
    sent: usize,
    head_sent: bool,
    ended: bool,
    received: usize,
    held: usize,
    complete: bool,
}

struct End {
    connection: Connection,
    scratch: Scratch,
    messages: BTreeMap<StreamId, Message>,
    input: Vec<u8>,
    out: Vec<u8>,
    completed: usize,
    finished: usize,
}

impl End {
    fn new(is_server: bool) -> End {
        let limits = {
            let mut limits = Limits::DEFAULT;
            limits.streams_max = STREAMS_MAX;
            limits.stream_window_bytes = STREAM_WINDOW;
            limits.connection_window_bytes = WINDOW_BYTES_INITIAL;
            limits.decoder_table_bytes = 300;
            limits
        };
        let mut out = Vec::new();
        let connection = if is_server {
            Connection::server(&limits, &mut out)
        } else {
            Connection::client(&limits, &mut out)
        };
        End {
            connection,
            scratch: Scratch::new(),
            messages: BTreeMap::new(),
            input: Vec::new(),
            out,
            completed: 0,
            finished: 0,
        }
    }

    fn read(&mut self, bytes: &[u8], now_ms: u64, random: &mut Random) {
        self.input.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let End { connection, scratch, out, .. } = self;
            let received =
                connection.next_event(&self.input[at..], scratch, now_ms, out).expect("no error");
            at += received.consumed;
            let Some(event) = received.event else { break };
            match event {
                Event::Request { stream, head, end_stream } => {
                    assert_eq!(head.fields.get(b"x-stream"), Some(stream.to_string().as_bytes()));
                    let to_send = if random.one_in(4) { 0 } else { random.below(30_000) };
                    let message = Message { to_send, complete: end_stream, ..Message::default() };
                    self.messages.insert(stream, message);
                }
                Event::Response { stream, head, end_stream } => {
                    assert!(head.status == 200 || (head.status == 103 && !end_stream));
                    self.messages.get_mut(&stream).unwrap().complete |= end_stream;
                }
                Event::Data { stream, bytes, end_stream } => {
                    let message = self.messages.get_mut(&stream).unwrap();
                    for (offset, found) in bytes.iter().enumerate() {
                        assert_eq!(*found, byte(stream, message.received + offset));
                    }
                    message.received += bytes.len();
                    message.held += bytes.len();
                    message.complete |= end_stream;
                }
                Event::Trailers { stream, fields } => {
                    assert_eq!(fields.get(b"x-end"), Some(&b"yes"[..]));
                    self.messages.get_mut(&stream).unwrap().complete = true;
                }
                Event::Reset { stream, .. } => {
                    self.messages.remove(&stream);
                }
                Event::StreamError { stream, reason } => panic!("stream {stream}: {reason}"),
                _ => {}
            }
        }
        self.input.drain(..at);
    }

    fn open(&mut self, random: &mut Random) {
        let to_send = if random.one_in(3) { 0 } else { random.below(20_000) };
        let length = to_send.to_string();
        let request = RequestFields {
            method: b"POST",
            scheme: Some(b"https"),
            authority: b"h.example",
            path: Some(b"/x"),
            protocol: None,
        };
        // The connection does not know how it will number the stream; ours count up as well.
        let next = self.finished as u32 * 2 + 1;
        let name = next.to_string();
        let fields = [
            (&b"X-Stream"[..], name.as_bytes()),
            (b"Content-Length", length.as_bytes()),
            (b"User-Agent", b"model"),
            (b"Connection", b"close"),
        ];
        let ends = to_send == 0;
        match self.connection.send_request(&request, fields, ends, &mut self.out) {
            Ok(stream) => {
                assert_eq!(stream, next);
                self.finished += 1;
                let message =
                    Message { to_send, head_sent: true, ended: ends, ..Message::default() };
                self.messages.insert(stream, message);
            }
            Err(misuse) => assert_eq!(misuse, Misuse::TooManyStreams),
        }
    }

    fn send(&mut self, stream: StreamId, bytes: usize, random: &mut Random) {
        let message = self.messages.get_mut(&stream).unwrap();
        let (connection, out) = (&mut self.connection, &mut self.out);
        if !message.head_sent {
            if random.one_in(5) {
                connection.send_response(stream, 103, [], false, out).unwrap();
            }
            let fields = [(&b"server"[..], &b"model"[..]), (b"set-cookie", b"a=b")];
            let ends = message.to_send == 0;
            connection.send_response(stream, 200, fields, ends, out).unwrap();
            message.head_sent = true;
            message.ended = ends;
        }
        if message.ended {
            return;
        }
        let end = message.to_send.min(message.sent + bytes);
        let content: Vec<u8> = (message.sent..end).map(|at| byte(stream, at)).collect();
        let with_trailers = stream.is_multiple_of(3);
        let is_last = end == message.to_send;
        let ends = is_last && !with_trailers;
        let capacity = connection.send_data_capacity(stream);
        let sent = connection.send_data(stream, &content, ends, out).unwrap();
        assert!(sent <= capacity);
        message.sent += sent;
        if is_last && sent == content.len() {
            if with_trailers {
                let fields = [(&b"x-end"[..], &b"yes"[..])];
                connection.send_trailers(stream, fields, out).unwrap();
            }
            message.ended = true;
        }
    }

    fn release(&mut self, stream: StreamId, bytes: usize) {
        let message = self.messages.get_mut(&stream).unwrap();
        let bytes = bytes.min(message.held);
        message.held -= bytes;
        self.connection.release(stream, bytes, &mut self.out);
    }

    /// Forgets messages that are complete.
    fn settle(&mut self) {
        let before = self.messages.len();
        self.messages
            .retain(|_, message| !(message.complete && message.ended && message.held == 0));
        self.completed += before - self.messages.len();
    }

    fn any(&self, random: &mut Random) -> Option<StreamId> {
        self.messages.keys().nth(random.below(self.messages.len())).copied()
    }
}

struct Pair {
    ends: [End; 2],
    now_ms: u64,
    random: Random,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let ends = [End::new(false), End::new(true)];
        Pair { ends, now_ms: 0, random: Random(seed | 1) }
    }

    /// Carries some bytes of the output of one side to the other.
    fn carry(&mut self, from: usize, bytes: usize) {
        let bytes = bytes.min(self.ends[from].out.len());
        let carried: Vec<u8> = self.ends[from].out.drain(..bytes).collect();
        self.ends[1 - from].read(&carried, self.now_ms, &mut self.random);
    }

    fn turn(&mut self, with_resets: bool) {
        let random = &mut self.random;
        // Slow enough for the rates.
        self.now_ms += 20;
        let side = random.below(2);
        let end = &mut self.ends[side];
        match random.below(12) {
            0 if side == 0 => end.open(random),
            0..4 => {
                let bytes = random.below(6_000);
                if let Some(stream) = end.any(random) {
                    end.send(stream, bytes, random);
                }
            }
            4..6 => {
                let bytes = random.below(6_000);
                if let Some(stream) = end.any(random) {
                    end.release(stream, bytes);
                }
            }
            6 if random.one_in(3) => settings(&mut end.out, random.below(5_000) as u32, random),
            7 if with_resets && random.one_in(4) => {
                if let Some(stream) = end.any(random) {
                    end.connection.reset(stream, ErrorCode::CANCEL, &mut end.out);
                    end.messages.remove(&stream);
                }
            }
            8 if random.one_in(10) => end.connection.ping(*b"12345678", &mut end.out),
            9 => end.connection.shrink(),
            _ => {
                let bytes = if random.one_in(2) { 1_000_000 } else { random.below(2_000) };
                self.carry(side, bytes);
            }
        }
        self.ends.iter_mut().for_each(End::settle);
    }

    /// Everything that was begun ends.
    fn drain(&mut self) {
        for end in &mut self.ends {
            settings(&mut end.out, STREAM_WINDOW, &mut self.random);
        }
        for _ in 0..10_000 {
            self.now_ms += 20;
            for side in [0, 1] {
                let end = &mut self.ends[side];
                let streams: Vec<StreamId> = end.messages.keys().copied().collect();
                for stream in streams {
                    end.release(stream, usize::MAX);
                    end.send(stream, 1_000_000, &mut self.random);
                }
                self.carry(side, usize::MAX);
                self.ends.iter_mut().for_each(End::settle);
            }
            let is_quiet = |end: &End| end.messages.is_empty() && end.out.is_empty();
            if self.ends.iter().all(is_quiet) {
                return;
            }
        }
        panic!("a stream does not end");
    }
}

/// What a peer could send at any time. The window is never larger than the one that the connection
/// knows of, and the side does not know that it has sent this.
fn settings(out: &mut Vec<u8>, window: u32, random: &mut Random) {
    out.extend_from_slice(&[0, 0, 12, 4, 0, 0, 0, 0, 0, 0, 4]);
    out.extend_from_slice(&window.to_be_bytes());
    out.extend_from_slice(&[0, 1]);
    out.extend_from_slice(&(random.below(300) as u32).to_be_bytes());
}

fn talk(seed: u64, with_resets: bool) {
    let mut pair = Pair::new(seed);
    for side in [0, 1] {
        pair.carry(side, usize::MAX);
    }
    for _ in 0..1_500 {
        pair.turn(with_resets);
    }
    pair.drain();
    let [client, server] = &pair.ends;
    for end in [client, server] {
        assert_eq!(end.connection.open_streams(), 0);
    }
    if !with_resets {
        assert_eq!((client.completed, server.completed), (client.finished, client.finished));
    }
    windows_are_whole(pair);
}

/// The windows of the connection are as large as at the start, except for the half that need not
/// be reported yet.
fn windows_are_whole(mut pair: Pair) {
    let [client, server] = &mut pair.ends;
    client.open(&mut pair.random);
    let Some((&stream, message)) = client.messages.iter_mut().next() else { return };
    if message.ended {
        return;
    }
    // A window update of the stream alone, so that only the connection's window limits.
    server.out.extend_from_slice(&[0, 0, 4, 8, 0]);
    server.out.extend_from_slice(&stream.to_be_bytes());
    server.out.extend_from_slice(&1_000_000u32.to_be_bytes());
    pair.carry(0, usize::MAX);
    pair.carry(1, usize::MAX);
    let capacity = pair.ends[0].connection.send_data_capacity(stream);
    assert!(capacity > WINDOW_BYTES_INITIAL as usize / 2, "{capacity}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: crate::some(240),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_byte_arrives_and_all_streams_end(seed: u64) {
        talk(seed, false);
    }

    #[test]
    fn resets_at_any_time_lose_no_window(seed: u64) {
        talk(seed, true);
    }
}
