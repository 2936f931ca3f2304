//! Rules of RFC 9113 and limits, each with a frame that breaks it.

use http2::limits::FRAME_BYTES;
use http2::{
    Connection, ErrorCode, Event, Limits, Misuse, PREFACE, Reason, RequestFields, Scratch,
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END: u8 = 1;
const END_HEADERS: u8 = 4;
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'h'];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END | END_HEADERS, stream, GET)
}

fn post(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, GET)
}

/// A server, what it has sent, and its events in words.
struct Side {
    connection: Connection,
    out: Vec<u8>,
    events: Vec<String>,
    now_ms: u64,
}

impl Side {
    fn server(limits: &Limits) -> Side {
        let mut out = Vec::new();
        let connection = Connection::server(limits, &mut out);
        let mut side = Side { connection, out, events: Vec::new(), now_ms: 0 };
        side.feed(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).unwrap();
        side.reset();
        side
    }

    /// A client that has sent GET on stream 1 and HEAD on stream 3.
    fn client(limits: &Limits) -> Side {
        let mut out = Vec::new();
        let connection = Connection::client(limits, &mut out);
        let mut side = Side { connection, out, events: Vec::new(), now_ms: 0 };
        side.feed(&frame(SETTINGS, 0, 0, &[])).unwrap();
        side.request(b"GET").unwrap();
        side.request(b"HEAD").unwrap();
        side.reset();
        side
    }

    fn request(&mut self, method: &[u8]) -> Result<u32, Misuse> {
        self.begin(method, true)
    }

    fn begin(&mut self, method: &[u8], is_whole: bool) -> Result<u32, Misuse> {
        let request = RequestFields {
            method,
            scheme: Some(b"http"),
            authority: b"h",
            path: Some(b"/"),
            protocol: None,
        };
        self.connection.send_request(&request, [], is_whole, &mut self.out)
    }

    fn reset(&mut self) {
        self.out.clear();
        self.events.clear();
    }

    fn feed(&mut self, mut input: &[u8]) -> Result<(), Reason> {
        let mut scratch = Scratch::new();
        loop {
            let Side { connection, out, .. } = self;
            let received = connection.next_event(input, &mut scratch, self.now_ms, out);
            let received = received.map_err(|error| error.0)?;
            input = &input[received.consumed..];
            let Some(event) = received.event else {
                assert!(input.is_empty());
                return Ok(());
            };
            self.events.push(match event {
                Event::Request { stream, .. } => format!("request {stream}"),
                Event::Response { stream, head, .. } => format!("{} {stream}", head.status),
                Event::Data { stream, bytes, end_stream } => {
                    format!("data {stream} {} {end_stream}", bytes.len())
                }
                Event::StreamError { stream, reason } => format!("{reason:?} {stream}"),
                Event::Reset { stream, code } => format!("reset {stream} {}", code.name()),
                Event::GoAway { last_stream, .. } => format!("go away {last_stream}"),
                Event::WindowOpened { stream } => format!("window {stream:?}"),
                Event::Trailers { stream, .. } => format!("trailers {stream}"),
                _ => continue,
            });
        }
    }

    /// The types and streams of the frames that were sent.
    fn sent(&self) -> Vec<(u8, u32)> {
        let mut rest = &self.out[..];
        let mut found = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
            found.push((rest[3], u32::from_be_bytes([rest[5], rest[6], rest[7], rest[8]])));
            rest = &rest[9 + length..];
        }
        found
    }
}

/// What a server makes of frames.
fn fate(frames: &[Vec<u8>]) -> Result<Vec<String>, Reason> {
    let mut side = Side::server(&Limits::DEFAULT);
    side.feed(&frames.concat())?;
    Ok(side.events)
}

fn events(texts: &[&str]) -> Result<Vec<String>, Reason> {
    Ok(texts.iter().map(ToString::to_string).collect())
}

#[test]
fn rfc9113_3_4_the_preface_comes_first() {
    let mut out = Vec::new();
    for wrong in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[PREFACE, &get(1)].concat()] {
        let connection = Connection::server(&Limits::DEFAULT, &mut out);
        let mut side = Side { connection, out: Vec::new(), events: Vec::new(), now_ms: 0 };
        assert_eq!(side.feed(wrong), Err(Reason::Preface));
        assert_eq!(side.sent().last(), Some(&(GOAWAY, 0)));
        assert!(side.connection.is_dead());
    }
}

#[test]
fn rfc9113_4_2_sizes_of_frames() {
    assert_eq!(fate(&[frame(DATA, 0, 1, &[0; FRAME_BYTES + 1])]), Err(Reason::FrameTooLarge));
    for wrong in [
        frame(PING, 0, 0, &[0; 7]),
        frame(SETTINGS, 0, 0, &[0; 5]),
        frame(SETTINGS, 1, 0, &[0; 6]),
        frame(GOAWAY, 0, 0, &[0; 7]),
        frame(PRIORITY, 0, 1, &[0; 4]),
        frame(WINDOW_UPDATE, 0, 0, &[0; 3]),
        frame(RST_STREAM, 0, 1, &[0; 3]),
    ] {
        assert_eq!(fate(std::slice::from_ref(&wrong)), Err(Reason::FrameLength), "{wrong:?}");
    }
}

#[test]
fn rfc9113_4_3_field_blocks_are_contiguous() {
    let part = frame(HEADERS, END, 1, &GET[..3]);
    let rest = frame(CONTINUATION, END_HEADERS, 1, &GET[3..]);
    assert_eq!(fate(&[part.clone(), rest.clone()]), events(&["request 1"]));
    assert_eq!(fate(&[part.clone(), get(3)]), Err(Reason::Interleaved));
    assert_eq!(fate(&[part, frame(CONTINUATION, 4, 3, &[])]), Err(Reason::Interleaved));
    assert_eq!(fate(&[rest]), Err(Reason::Interleaved));
}

#[test]
fn rfc9113_5_1_frames_on_idle_and_closed_streams() {
    assert_eq!(fate(&[frame(DATA, 0, 1, b"x")]), Err(Reason::Idle));
    assert_eq!(fate(&[frame(RST_STREAM, 0, 1, &[0; 4])]), Err(Reason::Idle));
    assert_eq!(fate(&[frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])]), Err(Reason::Idle));
    let late = fate(&[get(1), frame(DATA, 0, 1, b"x")]);
    assert_eq!(late, events(&["request 1", "Closed 1"]));
    assert_eq!(fate(&[get(3), get(1)]), Err(Reason::Closed));
    assert_eq!(fate(&[get(2)]), Err(Reason::StreamId));
}

#[test]
fn rfc9113_5_1_frames_after_our_reset_are_ignored_and_counted() {
    let mut side = Side::server(&Limits::DEFAULT);
    side.feed(&post(1)).unwrap();
    side.connection.reset(1, ErrorCode::CANCEL, &mut side.out);
    side.reset();
    for _ in 0..200 {
        side.feed(&frame(DATA, 0, 1, &[0; FRAME_BYTES])).unwrap();
    }
    side.feed(&frame(HEADERS, 5, 1, &[0x40, 1, b'a', 1, b'b'])).unwrap();
    assert_eq!(side.events, [""; 0]);
    assert!(side.sent().iter().all(|sent| *sent == (WINDOW_UPDATE, 0)), "{:?}", side.sent());
    // The field was added to the table all the same.
    side.feed(&frame(HEADERS, 5, 3, &[GET, &[0xbf]].concat())).unwrap();
    assert_eq!(side.events, ["request 3"]);
}

#[test]
fn rfc9113_5_1_nothing_is_sent_on_a_stream_that_was_reset() {
    let mut side = Side::server(&Limits::DEFAULT);
    side.feed(&[get(1), frame(RST_STREAM, 0, 1, &8_u32.to_be_bytes())].concat()).unwrap();
    assert_eq!(side.events, ["request 1", "reset 1 CANCEL"]);
    side.reset();
    let Side { connection, out, .. } = &mut side;
    assert_eq!(connection.send_response(1, 200, [], false, out), Err(Misuse::NoStream));
    assert_eq!(connection.send_data(1, b"late", true, out), Err(Misuse::NoStream));
    assert!(out.is_empty());
}

#[test]
fn rfc9113_5_1_2_one_stream_too_many_is_refused() {
    let mut limits = Limits::DEFAULT;
    limits.streams_max = 2;
    let mut side = Side::server(&limits);
    side.feed(&[get(1), get(3), get(5)].concat()).unwrap();
    assert_eq!(side.events, ["request 1", "request 3", "TooManyStreams 5"]);
    side.connection.send_response(1, 204, [], true, &mut side.out).unwrap();
    side.feed(&get(7)).unwrap();
    assert_eq!(side.events[3..], ["request 7"]);
}

#[test]
fn rfc9113_6_1_padding() {
    let padded = |payload: &[u8]| fate(&[post(1), frame(DATA, 9, 1, payload)]);
    assert_eq!(padded(b"\x02ab\0\0"), events(&["request 1", "data 1 2 true"]));
    assert_eq!(padded(b"\x00"), events(&["request 1", "data 1 0 true"]));
    assert_eq!(padded(b"\x02a"), Err(Reason::Padding));
    assert_eq!(padded(b""), Err(Reason::FrameLength));
}

#[test]
fn rfc9113_6_9_windows() {
    let update = |stream, increment: u32| frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
    assert_eq!(fate(&[update(0, 0)]), Err(Reason::WindowIncrement));
    assert_eq!(fate(&[update(0, (1 << 31) - 1)]), Err(Reason::WindowOverflow));
    assert_eq!(fate(&[post(1), update(1, 0)]), events(&["request 1", "WindowIncrement 1"]));
    let overflow = fate(&[post(1), update(1, (1 << 31) - 1)]);
    assert_eq!(overflow, events(&["request 1", "WindowOverflow 1"]));
    let mut frames = vec![post(1)];
    frames.extend((0..9).map(|_| frame(DATA, 0, 1, &[0; FRAME_BYTES])));
    assert_eq!(fate(&frames).unwrap().last().unwrap(), "WindowExceeded 1");
}

#[test]
fn rfc9113_6_9_2_content_waits_for_the_window() {
    let mut side = Side::server(&Limits::DEFAULT);
    side.feed(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 10])).unwrap();
    side.feed(&get(1)).unwrap();
    let Side { connection, out, .. } = &mut side;
    connection.send_response(1, 200, [], false, out).unwrap();
    assert_eq!(connection.send_data(1, &[0; 30], true, out), Ok(10));
    assert_eq!(connection.send_data(1, &[0; 20], true, out), Ok(0));
    assert_eq!(connection.next_to_send(), None);
    side.feed(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])).unwrap();
    assert_eq!(side.events.last().unwrap(), "window Some(1)");
    let Side { connection, out, .. } = &mut side;
    assert_eq!(connection.next_to_send(), Some(1));
    assert_eq!(connection.send_data(1, &[0; 20], true, out), Ok(1));
    side.feed(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 200, 0])).unwrap();
    let Side { connection, out, .. } = &mut side;
    assert_eq!(connection.send_data(1, &[0; 60_000], true, out), Ok(200 * 256 - 10));
    side.feed(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 201, 0])).unwrap();
    let Side { connection, out, .. } = &mut side;
    assert_eq!(connection.send_data(1, &[0; 19], true, out), Ok(19));
    assert_eq!(connection.open_streams(), 0);
}

#[test]
fn rfc9113_6_8_a_graceful_shutdown_has_two_steps() {
    let mut side = Side::server(&Limits::DEFAULT);
    side.feed(&get(1)).unwrap();
    side.connection.go_away(&mut side.out);
    assert_eq!(side.sent(), [(GOAWAY, 0), (PING, 0)]);
    side.feed(&get(3)).unwrap();
    assert_eq!(side.events, ["request 1", "request 3"], "it was in flight");
    let ping = side.out[26..34].to_vec();
    side.out.clear();
    side.feed(&frame(PING, 1, 0, &ping)).unwrap();
    assert_eq!(side.sent(), [(GOAWAY, 0)]);
    assert_eq!(side.out[9..13], [0, 0, 0, 3]);
    side.feed(&[get(5), frame(DATA, 0, 7, b"x")].concat()).unwrap();
    assert_eq!(side.events.len(), 2, "later streams are ignored");
    assert!(!side.connection.is_drained());
    for stream in [1, 3] {
        side.connection.send_response(stream, 204, [], true, &mut side.out).unwrap();
    }
    assert!(side.connection.is_drained());
}

#[test]
fn rfc9113_6_8_streams_above_the_last_one_are_not_processed() {
    let mut side = Side::client(&Limits::DEFAULT);
    side.feed(&frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])).unwrap();
    assert_eq!(side.events, ["go away 1"]);
    assert_eq!((side.connection.open_streams(), side.request(b"GET")), (1, Err(Misuse::Closing)));
    side.feed(&frame(HEADERS, 5, 1, &[0x89])).unwrap();
    assert!(side.connection.is_drained());
}

#[test]
fn rfc9113_8_1_messages_of_a_client() {
    let of = |frames: &[Vec<u8>]| {
        let mut side = Side::client(&Limits::DEFAULT);
        side.feed(&frames.concat()).map(|()| side.events)
    };
    let interim: &[u8] = &[0x08, 3, b'1', b'0', b'3'];
    assert_eq!(
        of(&[frame(HEADERS, 4, 1, interim), frame(HEADERS, 5, 1, &[0x88])]),
        events(&["103 1", "200 1"])
    );
    assert_eq!(of(&[frame(HEADERS, 5, 1, interim)]), events(&["InterimEnds 1"]));
    assert_eq!(of(&[frame(DATA, 1, 1, b"x")]), events(&["DataBeforeHead 1"]));
    assert_eq!(of(&[frame(5, 4, 1, &[0, 0, 0, 2])]), Err(Reason::Push));
    assert_eq!(of(&[frame(HEADERS, 5, 2, &[0x88])]), Err(Reason::StreamId));
    assert_eq!(of(&[frame(HEADERS, 5, 5, &[0x88])]), Err(Reason::Idle));
    let nine: &[u8] = &[0x88, 0x0f, 13, 1, b'9'];
    assert_eq!(of(&[frame(HEADERS, 5, 1, nine)]), events(&["ContentLength 1"]));
    assert_eq!(of(&[frame(HEADERS, 5, 3, nine)]), events(&["200 3"]), "HEAD has no content");
    let not_modified: &[u8] = &[0x8b, 0x0f, 13, 1, b'9'];
    assert_eq!(of(&[frame(HEADERS, 5, 1, not_modified)]), events(&["304 1"]));
}

#[test]
fn rfc9113_8_1_1_content_length_agrees_with_the_content() {
    let head = frame(HEADERS, 4, 1, &[GET, &[0x0f, 13, 1, b'3']].concat());
    let of = |more: &[Vec<u8>]| {
        fate(&[std::slice::from_ref(&head), more].concat()).map(|events| events[1..].to_vec())
    };
    assert_eq!(of(&[frame(DATA, 1, 1, b"abc")]), events(&["data 1 3 true"]));
    assert_eq!(of(&[frame(DATA, 1, 1, b"ab")]), events(&["ContentLength 1"]));
    assert_eq!(of(&[frame(DATA, 0, 1, b"abcd")]), events(&["ContentLength 1"]));
    let trailers = frame(HEADERS, 5, 1, &[0, 1, b'a', 1, b'b']);
    assert_eq!(of(std::slice::from_ref(&trailers)), events(&["ContentLength 1"]));
    assert_eq!(
        of(&[frame(DATA, 0, 1, b"abc"), trailers]),
        events(&["data 1 3 false", "trailers 1"])
    );
    let unended = frame(HEADERS, 4, 1, &[0, 1, b'a', 1, b'b']);
    assert_eq!(of(&[unended]), events(&["TrailersDoNotEnd 1"]));
}

#[test]
fn rfc9113_10_5_1_large_fields_are_answered_with_431() {
    let mut limits = Limits::DEFAULT;
    limits.fields_bytes_max = 300;
    let mut side = Side::server(&limits);
    let large = [GET, &[0, 1, b'a', 126], &[b'v'; 126]].concat();
    side.feed(&frame(HEADERS, 5, 1, &large)).unwrap();
    assert_eq!(side.events, ["FieldsTooLarge 1"]);
    assert_eq!(side.sent(), [(HEADERS, 1), (RST_STREAM, 1)]);
}

#[test]
fn rfc9113_10_5_field_blocks_have_limits() {
    let mut frames = vec![frame(HEADERS, END, 1, GET)];
    frames.extend((0..9).map(|_| frame(CONTINUATION, 0, 1, &[])));
    assert_eq!(fate(&frames), Err(Reason::BlockTooLarge));
    let large = frame(HEADERS, END, 1, &[0; FRAME_BYTES]);
    let more = frame(CONTINUATION, 0, 1, &[0; FRAME_BYTES]);
    assert_eq!(fate(&[large, more.clone(), more]), Err(Reason::BlockTooLarge));
}

/// How many of a frame are accepted at one instant.
fn accepted(frame: impl Fn(u32) -> Vec<u8>) -> (u32, Reason) {
    let mut side = Side::server(&Limits::DEFAULT);
    for number in 0..100_000 {
        if let Err(reason) = side.feed(&frame(number)) {
            assert_eq!(side.sent().last(), Some(&(GOAWAY, 0)));
            return (number, reason);
        }
        side.out.clear();
        side.now_ms = 0;
    }
    panic!("no limit");
}

#[test]
fn cve_2023_44487_rapid_resets() {
    let attack = |number| [get(2 * number + 1), frame(RST_STREAM, 0, 2 * number + 1, &[0; 4])];
    assert_eq!(accepted(|number| attack(number).concat()), (300, Reason::Resets));
}

#[test]
fn cve_2025_8671_provoked_resets() {
    let zero = |number| [get(2 * number + 1), frame(WINDOW_UPDATE, 0, 2 * number + 1, &[0; 4])];
    assert_eq!(accepted(|number| zero(number).concat()), (100, Reason::ProvokedResets));
    let malformed = |number| frame(HEADERS, 5, 2 * number + 1, &GET[..3]);
    assert_eq!(accepted(malformed), (100, Reason::ProvokedResets));
}

#[test]
fn rfc9113_10_5_floods() {
    assert_eq!(accepted(|_| frame(PING, 0, 0, &[0; 8])), (200, Reason::PingFlood));
    assert_eq!(accepted(|_| frame(SETTINGS, 0, 0, &[])).1, Reason::SettingsFlood);
    assert_eq!(accepted(|_| frame(PRIORITY, 0, 9, &[0; 5])), (500, Reason::PriorityFlood));
    assert_eq!(accepted(|_| frame(0xbb, 0, 9, &[])), (200, Reason::UnknownFlood));
    let empty = |number| if number == 0 { post(1) } else { frame(DATA, 0, 1, &[]) };
    assert_eq!(accepted(empty), (201, Reason::EmptyFlood));
    let window = |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
    assert_eq!(accepted(window), (2000, Reason::WindowFlood));
}

/// Clients of grpc-go measure the round trip with a PING for each answer: they were disconnected
/// after some hundreds.
#[test]
fn a_control_frame_of_each_kind_for_each_answer_is_no_flood() {
    let mut side = Side::server(&Limits::DEFAULT);
    for number in 0..5_000 {
        let id = 2 * number + 1;
        side.feed(&get(id)).unwrap();
        let Side { connection, out, .. } = &mut side;
        connection.send_response(id, 200, [], false, out).unwrap();
        assert_eq!(connection.send_data(id, b"x", false, out), Ok(1));
        side.feed(&frame(PING, 0, 0, &[0; 8])).unwrap();
        side.feed(&frame(SETTINGS, 0, 0, &[])).unwrap();
        side.feed(&frame(0xbb, 0, id, &[])).unwrap();
        for _ in 0..4 {
            side.feed(&frame(PRIORITY, 0, id, &[0; 5])).unwrap();
            side.feed(&frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])).unwrap();
            side.feed(&frame(WINDOW_UPDATE, 0, id, &[0, 0, 0, 1])).unwrap();
        }
        side.feed(&frame(RST_STREAM, 0, id, &[0; 4])).unwrap();
        side.out.clear();
    }
    let ping = frame(PING, 0, 0, &[0; 8]);
    assert_eq!((0..1000).find_map(|_| side.feed(&ping).err()), Some(Reason::PingFlood));
}

/// The same of a server, for the requests and the content that it gets.
#[test]
fn a_ping_of_the_server_for_each_piece_of_a_request_is_no_flood() {
    let mut side = Side::client(&Limits::DEFAULT);
    for _ in 0..1_000 {
        let id = side.request(b"GET").unwrap();
        side.feed(&frame(PING, 0, 0, &[0; 8])).unwrap();
        side.feed(&frame(RST_STREAM, 0, id, &[0; 4])).unwrap();
        side.out.clear();
    }
    let id = side.begin(b"POST", false).unwrap();
    for _ in 0..1_000 {
        let Side { connection, out, .. } = &mut side;
        assert_eq!(connection.send_data(id, b"x", false, out), Ok(1));
        side.feed(&frame(PING, 0, 0, &[0; 8])).unwrap();
        side.out.clear();
    }
}

/// What an attacker could hope to earn: content that is empty, and requests that fail.
#[test]
fn what_is_no_traffic_entitles_to_nothing() {
    let ping = frame(PING, 0, 0, &[0; 8]);
    let malformed = |number| [frame(HEADERS, 5, 2 * number + 1, &GET[..3]), ping.clone()].concat();
    assert_eq!(accepted(malformed).1, Reason::ProvokedResets);
    let empty = |number| match number {
        0 => post(1),
        _ => [frame(DATA, 0, 1, &[]), ping.clone()].concat(),
    };
    assert!(accepted(empty).0 <= 201);
    // A flood of requests that are cancelled, with pings that requests entitle to.
    let attack = |number| {
        let id = 2 * number + 1;
        [get(id), ping.clone(), frame(RST_STREAM, 0, id, &[0; 4])].concat()
    };
    assert_eq!(accepted(attack), (300, Reason::Resets));
}

#[test]
fn rfc9113_10_5_answers_that_the_peer_does_not_read_are_limited() {
    let mut side = Side::server(&Limits::DEFAULT);
    let result = (0..10_000).try_for_each(|_| {
        side.now_ms += 1_000;
        side.feed(&frame(PING, 0, 0, &[0; 8]))
    });
    assert_eq!(result, Err(Reason::ControlQueue));
    assert!(side.out.len() < 17 * 1024);
}

/// A hundred of them ended the connection, and with it the requests of others.
#[test]
fn late_frames_of_responses_that_a_client_cancelled_are_ignored() {
    let mut side = Side::client(&Limits::DEFAULT);
    let streams: Vec<u32> = (0..300).map(|_| side.request(b"GET").unwrap()).collect();
    for &stream in &streams {
        side.connection.reset(stream, ErrorCode::CANCEL, &mut side.out);
    }
    for &stream in &streams {
        side.feed(&frame(DATA, 0, stream, b"x")).unwrap();
    }
    assert_eq!(side.events, Vec::<String>::new());
}

#[test]
fn rfc9218_10_streams_are_served_by_urgency_and_in_turns() {
    let mut side = Side::server(&Limits::DEFAULT);
    for (stream, priority) in [(1, "u=5"), (3, "u=1, i"), (5, "u=1, i"), (7, "u=2"), (9, "u=2")] {
        let field = [&[0, 8][..], b"priority", &[priority.len() as u8], priority.as_bytes()];
        side.feed(&frame(HEADERS, 5, stream, &[GET, &field.concat()].concat())).unwrap();
        side.connection.send_response(stream, 200, [], false, &mut side.out).unwrap();
        side.connection.want_to_send(stream);
    }
    let mut next = || side.connection.next_to_send().unwrap();
    assert_eq!([next(), next(), next(), next()], [3, 5, 3, 5]);
    for (ended, following) in [(3, 5), (5, 7), (7, 9), (9, 1)] {
        side.connection.send_data(ended, b"x", true, &mut side.out).unwrap();
        assert_eq!(side.connection.next_to_send(), Some(following));
    }
    side.feed(&get(11)).unwrap();
    side.feed(&frame(16, 0, 0, b"\0\0\0\x0bu=0")).unwrap();
    assert_eq!(side.connection.priority(11).unwrap().urgency, 0);
}

#[test]
fn misuse_is_reported_and_sends_nothing() {
    let mut side = Side::server(&Limits::DEFAULT);
    side.feed(&get(1)).unwrap();
    let Side { connection, out, .. } = &mut side;
    assert_eq!(connection.send_data(1, b"x", false, out), Err(Misuse::Order));
    assert_eq!(connection.send_response(3, 200, [], true, out), Err(Misuse::NoStream));
    connection.send_response(1, 200, [], false, out).unwrap();
    assert_eq!(connection.send_response(1, 200, [], true, out), Err(Misuse::Order));
    assert_eq!(side.request(b"GET"), Err(Misuse::Role));
    let mut limits = Limits::DEFAULT;
    limits.streams_max = 1;
    let mut client = Side::client(&limits);
    client.feed(&frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 2])).unwrap();
    assert_eq!(client.request(b"GET"), Err(Misuse::TooManyStreams));
}

#[test]
fn an_idle_connection_is_small() {
    let mut side = Side::server(&Limits::DEFAULT);
    let empty = side.connection.memory_bytes();
    assert!(empty <= 752, "{empty}");
    // A browser's fields: an authority, an agent, and so on, all indexed.
    let mut block = vec![0x82, 0x86, 0x84, 0x41, 11];
    block.extend_from_slice(b"example.org");
    for number in 0..12u8 {
        block.extend_from_slice(&[0x40, 12]);
        block.extend_from_slice(b"x-some-field");
        block.push(60);
        block.extend_from_slice(&[b'a' + number; 60]);
    }
    for stream in [1, 3, 5] {
        side.feed(&frame(HEADERS, 5, stream, &block)).unwrap();
        let fields = [(&b"server"[..], &b"plimsoll"[..]), (b"content-type", b"text/plain")];
        side.connection.send_response(stream, 200, fields, true, &mut side.out).unwrap();
    }
    side.connection.shrink();
    let idle = side.connection.memory_bytes();
    assert!(idle <= empty + 4096 + 512, "{idle}");
}
