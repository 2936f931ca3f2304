//! Checks of the crate http2, for the fuzz targets and for the tests that replay their corpora:
//! what must hold whatever the peer sends.

use http2::hpack::{Decoder, Encoder, encode_without_table};
use http2::limits::RECEIVE_BYTES_MIN;
use http2::{
    Connection, ErrorCode, Event, Limits, PREFACE, Reason, RequestFields, Scratch, StreamId,
};

/// The first byte of an input of [`frames`].
const AS_CLIENT: u8 = 1;
const WITHOUT_PREFACE: u8 = 2;

/// Target `http2_frames`: the first byte selects the role, the second how the input is split, and
/// the others are what the peer sends.
pub(crate) fn frames(data: &[u8]) {
    let [flags, split, sent @ ..] = data else { return };
    let is_client = flags & AS_CLIENT != 0;
    let mut bytes = Vec::new();
    if !is_client && flags & WITHOUT_PREFACE == 0 {
        bytes.extend_from_slice(PREFACE);
    }
    bytes.extend_from_slice(sent);
    let whole = run(is_client, bytes.chunks(bytes.len().max(1)));
    assert_eq!(whole, run(is_client, bytes.chunks(1)), "split at each byte");
    let length = usize::from(*split).max(2);
    assert_eq!(whole, run(is_client, bytes.chunks(length)), "split at each {length} bytes");
}

/// What a connection reported.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    /// Events in words, with the pieces of content joined.
    pub(crate) events: Vec<String>,
    pub(crate) error: Option<Reason>,
}

/// Feeds a connection, answers requests, and checks it after each step.
pub(crate) fn run<'b>(is_client: bool, pieces: impl Iterator<Item = &'b [u8]>) -> Log {
    let limits = Limits::DEFAULT;
    let (mut scratch, mut out, mut log) = (Scratch::new(), Vec::new(), Log::default());
    let mut connection = if is_client {
        let mut connection = Connection::client(&limits, &mut out);
        send_requests(&mut connection, &mut out);
        connection
    } else {
        Connection::server(&limits, &mut out)
    };
    let (mut input, mut content) = (Vec::new(), (0, Vec::new()));
    let mut written = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let received = match connection.next_event(rest, &mut scratch, 0, &mut out) {
                Ok(received) => received,
                Err(error) => {
                    assert!(connection.is_dead() && connection.is_drained());
                    assert_eq!(connection.open_streams(), 0);
                    log.error = Some(error.0);
                    input.clear();
                    written.append(&mut out);
                    check_output(&written, is_client);
                    flush(&mut log, &mut content);
                    return log;
                }
            };
            assert!(received.consumed <= rest.len());
            at += received.consumed;
            let Some(event) = received.event else {
                assert!(input.len() - at < RECEIVE_BYTES_MIN, "a frame that is complete");
                break;
            };
            assert!(received.consumed > 0, "an event from nothing");
            note(&mut log, &mut content, &event);
            react(&mut connection, event, &mut out);
            assert!(connection.memory_bytes() < 256 * 1024);
            assert!(connection.open_streams() <= limits.streams_max as usize);
        }
        input.drain(..at);
        // The peer reads everything.
        written.append(&mut out);
    }
    written.append(&mut out);
    check_output(&written, is_client);
    flush(&mut log, &mut content);
    log
}

fn send_requests(connection: &mut Connection, out: &mut Vec<u8>) {
    for (method, end_stream) in [(&b"GET"[..], true), (b"HEAD", true), (b"POST", false)] {
        let request = RequestFields {
            method,
            scheme: Some(b"http"),
            authority: b"h",
            path: Some(b"/"),
            protocol: None,
        };
        let stream =
            connection.send_request(&request, [], end_stream, out).expect("the first streams");
        if !end_stream {
            connection.send_data(stream, &[7; 70_000], true, out).expect("an open stream");
        }
    }
}

/// Answers requests in several forms. Content is released when it is complete, because when the
/// windows are reported would otherwise depend on the pieces.
fn react(connection: &mut Connection, event: Event<'_>, out: &mut Vec<u8>) {
    match event {
        Event::Request { stream, head, .. } => match stream / 2 % 4 {
            0 => {
                let sent = connection.send_response(stream, 200, head.fields.iter(), false, out);
                sent.expect("a new stream");
                connection.send_data(stream, &[1; 100], true, out).expect("an open stream");
            }
            1 => {
                connection.send_response(stream, 204, [], true, out).expect("a new stream");
                connection.reset(stream, ErrorCode::NO_ERROR, out);
            }
            2 => {
                connection.send_response(stream, 200, [], false, out).expect("a new stream");
                connection.send_data(stream, &[2; 70_000], true, out).expect("an open stream");
            }
            _ => {}
        },
        Event::Data { stream, end_stream: true, .. } | Event::Trailers { stream, .. } => {
            connection.release(stream, usize::MAX, out);
        }
        _ => {}
    }
}

fn note(log: &mut Log, content: &mut (StreamId, Vec<u8>), event: &Event<'_>) {
    if let Event::Data { stream, bytes, end_stream } = event {
        if content.0 != *stream {
            flush(log, content);
        }
        content.0 = *stream;
        content.1.extend_from_slice(bytes);
        if *end_stream {
            flush(log, content);
            log.events.push(format!("end of {stream}"));
        }
        return;
    }
    flush(log, content);
    log.events.push(format!("{event:?}"));
}

fn flush(log: &mut Log, content: &mut (StreamId, Vec<u8>)) {
    let (stream, bytes) = std::mem::take(content);
    if !bytes.is_empty() {
        log.events.push(format!("content of {stream}: {}", bytes.escape_ascii()));
    }
}

/// The output consists of whole frames, no longer than allowed.
fn check_output(mut written: &[u8], is_client: bool) {
    if is_client {
        written = written.strip_prefix(PREFACE).expect("a client begins with the preface");
    }
    while !written.is_empty() {
        let length = u32::from_be_bytes([0, written[0], written[1], written[2]]) as usize;
        assert!(length <= 16_384 && written.len() >= 9 + length, "not a whole frame");
        written = &written[9 + length..];
    }
}

/// Target `http2_hpack`: blocks, each behind a byte that says how long it is. What is decoded is
/// encoded and decoded again.
pub(crate) fn hpack(data: &[u8]) {
    const TABLE_BYTES: usize = 300;
    let mut decoder = Decoder::new(TABLE_BYTES);
    let (mut encoder, mut again) = (Encoder::new(TABLE_BYTES), Decoder::new(4096));
    let mut rest = data;
    while let Some((&length, after)) = rest.split_first() {
        let (block, after) = after.split_at(after.len().min(length as usize));
        rest = after;
        let mut scratch = Scratch::new();
        if decoder.decode(block, &mut scratch, 64, 16_384).is_err() {
            return;
        }
        let fields: Vec<_> = scratch.fields_of_block().iter().map(owned).collect();
        let (mut with_table, mut without) = (Vec::new(), Vec::new());
        encoder.begin(&mut with_table);
        for (name, value) in &fields {
            encoder.field(name, value, &mut with_table);
            encode_without_table(name, value, &mut without);
        }
        for block in [&with_table, &without] {
            let mut scratch = Scratch::new();
            again.decode(block, &mut scratch, 64, 16_384).expect("a block that we wrote");
            let found: Vec<_> = scratch.fields_of_block().iter().map(owned).collect();
            assert_eq!(found, fields);
        }
    }
}

fn owned((name, value): (&[u8], &[u8])) -> (Vec<u8>, Vec<u8>) {
    (name.to_ascii_lowercase(), value.to_vec())
}
