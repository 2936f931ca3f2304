//! The rules, by their sections.

use http3::{
    Connection, Control, ErrorCode, Limits, MessageStream, Priority, Reason, RequestFields,
    Scratch, UniStream, qpack, write,
};

use crate::checks;

const GET: RequestFields<'_> = RequestFields {
    method: b"GET",
    scheme: Some(b"https"),
    authority: b"h",
    path: Some(b"/"),
    protocol: None,
};

fn head(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    write::request(&GET, fields, &mut out);
    out
}

fn content(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write::data(bytes.len() as u64, &mut out);
    out.extend_from_slice(bytes);
    out
}

fn trailers() -> Vec<u8> {
    let mut out = Vec::new();
    write::trailers([(&b"x"[..], &b"y"[..])], &mut out);
    out
}

fn request_error(frames: &[&[u8]]) -> Option<Reason> {
    let sent = frames.concat();
    checks::message(MessageStream::request(), [&sent[..]].into_iter()).error
}

#[test]
fn rfc9114_4_1_the_frames_of_a_request() {
    let (head, data, trailers) = (head(&[]), content(b"abc"), trailers());
    for frames in [
        &[&head[..]][..],
        &[&head, &data],
        &[&head, &data, &data, &trailers],
        &[&head, &trailers],
        &[&[0x21, 1, 0][..], &head, &[0x40, 0x5f, 0]],
    ] {
        assert_eq!(request_error(frames), None, "{frames:x?}");
    }
    for frames in [&[&data[..], &head][..], &[&head, &trailers, &data], &[&head, &trailers, &head]]
    {
        assert_eq!(request_error(frames), Some(Reason::FrameUnexpected), "{frames:x?}");
    }
    assert_eq!(request_error(&[&head, &head]), Some(PSEUDO), "a second head are no trailers");
    assert_eq!(request_error(&[]), Some(Reason::RequestIncomplete));
    assert_eq!(request_error(&[&[0x21, 0]]), Some(Reason::RequestIncomplete));
}

const PSEUDO: Reason = Reason::Message(http2::Reason::PseudoUnknown);

#[test]
fn rfc9114_7_1_a_frame_that_is_cut() {
    let (head, data) = (head(&[]), content(b"abc"));
    for cut in 1..head.len() {
        assert_eq!(request_error(&[&head[..cut]]), Some(Reason::FrameCut), "{cut}");
    }
    for cut in 1..data.len() {
        assert_eq!(request_error(&[&head, &data[..cut]]), Some(Reason::FrameCut), "{cut}");
    }
    assert_eq!(request_error(&[&head, &[0x21, 5, 0]]), Some(Reason::FrameCut));
}

#[test]
fn rfc9114_7_2_frames_that_a_request_may_not_have() {
    for kind in [0x3, 0x4, 0x5, 0x7, 0xd] {
        let frame = [kind, 1, 0];
        assert_eq!(request_error(&[&head(&[]), &frame]), Some(Reason::FrameUnexpected), "{kind}");
    }
    for kind in [0x2, 0x6, 0x8, 0x9] {
        assert_eq!(request_error(&[&[kind, 0]]), Some(Reason::FrameReserved), "{kind}");
    }
    let update = [0x80, 0x0f, 0x07, 0x00, 0];
    assert_eq!(request_error(&[&update]), Some(Reason::FrameUnexpected), "RFC 9218 7.2");
}

#[test]
fn rfc9114_4_1_2_malformed_messages() {
    let of = |fields: &[(&str, &str)], more: &[u8]| request_error(&[&head(fields), more]);
    let length = Some(Reason::Message(http2::Reason::ContentLength));
    assert_eq!(of(&[("content-length", "3")], &content(b"abc")), None);
    assert_eq!(of(&[("content-length", "4")], &content(b"abc")), length);
    assert_eq!(of(&[("content-length", "2")], &content(b"abc")), length);
    assert_eq!(of(&[("content-length", "1")], &[]), length);
    let connection = Some(Reason::Message(http2::Reason::ConnectionField));
    for field in [("connection", "close"), ("transfer-encoding", "chunked")] {
        assert_eq!(of(&[field], &[]), None, "we do not send it");
        let mut section = Vec::new();
        for (name, value) in
            [(":method", "GET"), (":scheme", "https"), (":authority", "h"), (":path", "/"), field]
        {
            qpack::encode_field(name.as_bytes(), value.as_bytes(), &mut section);
        }
        let mut sent = Vec::new();
        write::encoded(&section, &mut sent);
        assert_eq!(request_error(&[&sent]), connection);
    }
    assert_eq!(PSEUDO.code(), ErrorCode::H3_MESSAGE_ERROR);
}

#[test]
fn rfc9220_3_extended_connect() {
    let request = RequestFields { method: b"CONNECT", protocol: Some(b"websocket"), ..GET };
    let mut sent = Vec::new();
    write::request(&request, [], &mut sent);
    let mut limits = Limits::DEFAULT;
    for is_allowed in [false, true] {
        limits.extended_connect = is_allowed;
        let (mut stream, mut scratch) = (MessageStream::request(), Scratch::new());
        let received = stream.next_event(&sent, false, &mut scratch, &limits);
        match received {
            Ok(received) => assert!(is_allowed && received.event.is_some()),
            Err(error) => {
                assert!(!is_allowed);
                assert_eq!(error.0, Reason::Message(http2::Reason::Connect));
            }
        }
    }
}

#[test]
fn rfc9114_4_2_2_limits() {
    let long = "x".repeat(40_000);
    assert_eq!(request_error(&[&head(&[("a", &long)])]), Some(Reason::FieldsTooLarge));
    let many: Vec<_> = (0..200).map(|_| ("a", "b")).collect();
    assert_eq!(request_error(&[&head(&many)]), Some(Reason::FieldsTooLarge));
    // A short section with a long list: an entry of the static table, often.
    let mut section = Vec::new();
    (0..20_000).for_each(|_| qpack::encode_field(b":path", b"/", &mut section));
    let mut out = Vec::new();
    write::encoded(&section, &mut out);
    assert_eq!(request_error(&[&out]), Some(Reason::FieldsTooLarge));
    let idle = [0x0, 0].repeat(100);
    assert_eq!(request_error(&[&head(&[]), &idle]), Some(Reason::IdleFrames));
}

#[test]
fn rfc9204_2_2_a_section_that_cannot_be_decoded_ends_the_connection() {
    assert_eq!(request_error(&[&[0x1, 3, 0, 0, 0xff]]), Some(Reason::Qpack));
    assert_eq!(request_error(&[&[0x1, 3, 1, 0, 0x80]]), Some(Reason::QpackDynamic));
    assert_eq!(request_error(&[&[0x1, 0]]), Some(Reason::Qpack), "without a prefix");
    assert_eq!(Reason::Qpack.code(), ErrorCode::QPACK_DECOMPRESSION_FAILED);
}

/// The verdict on these unidirectional streams.
fn uni(connection: &mut Connection, streams: &[&[u8]]) -> Result<Vec<Control>, Reason> {
    let mut events = Vec::new();
    for bytes in streams {
        let (mut stream, mut at) = (UniStream::default(), 0);
        while let (used, Some(event)) =
            connection.next_event(&mut stream, &bytes[at..], false, 0).map_err(|error| error.0)?
        {
            at += used;
            events.push(event);
        }
    }
    Ok(events)
}

fn at_server(streams: &[&[u8]]) -> Result<Vec<Control>, Reason> {
    uni(&mut Connection::server(&Limits::DEFAULT), streams)
}

fn at_client(streams: &[&[u8]]) -> Result<Vec<Control>, Reason> {
    uni(&mut Connection::client(&Limits::DEFAULT), streams)
}

#[test]
fn rfc9114_6_2_streams() {
    assert_eq!(at_server(&[&[0, 4, 0], &[2], &[3]]), Ok(vec![Control::Settings]));
    for kind in [0, 2, 3] {
        assert_eq!(at_server(&[&[kind], &[kind]]), Err(Reason::StreamCreation), "{kind}");
    }
    assert_eq!(at_server(&[&[1, 0]]), Err(Reason::StreamCreation), "a push from a client");
    assert_eq!(at_client(&[&[1, 0]]), Err(Reason::PushPromise));
    assert_eq!(at_server(&[&[0x21, 1, 2, 3]]), Ok(vec![Control::Unknown]));
    let mut connection = Connection::server(&Limits::DEFAULT);
    for kind in [0u8, 2, 3] {
        let mut stream = UniStream::default();
        let ended = connection.next_event(&mut stream, &[kind], true, 0).unwrap_err();
        assert_eq!(ended.0, Reason::CriticalClosed);
        assert!(stream.reset().is_err());
    }
    assert!(UniStream::default().reset().is_ok(), "RFC 9114 6.2: before its type has arrived");
}

#[test]
fn rfc9114_7_2_4_settings() {
    let with = |payload: &[u8]| {
        at_server(&[&[&[0, 4, payload.len() as u8], payload].concat()]).map(|events| events.len())
    };
    assert_eq!(with(&[1, 0x50, 0, 7, 0x10, 6, 0x60, 0, 0x33, 1, 8, 1, 0x21, 9]), Ok(1));
    for setting in [0, 2, 3, 4, 5] {
        assert_eq!(with(&[setting, 1]), Err(Reason::Setting), "{setting} is of HTTP/2");
    }
    assert_eq!(with(&[6, 1, 6, 1]), Err(Reason::Setting), "repeated");
    assert_eq!(with(&[8, 2]), Err(Reason::Setting));
    assert_eq!(with(&[6]), Err(Reason::FrameLength));
    assert_eq!(with(&[6, 0x40]), Err(Reason::FrameLength));
    assert_eq!(at_server(&[&[0, 7, 1, 0]]), Err(Reason::SettingsMissing));
    assert_eq!(at_server(&[&[0, 0x21, 0]]), Err(Reason::SettingsMissing));
    assert_eq!(at_server(&[&[0, 4, 0, 4, 0]]), Err(Reason::FrameUnexpected));
    assert_eq!(at_server(&[&[0, 4, 0x50, 0]]), Err(Reason::ControlFrameTooLarge));
}

#[test]
fn rfc9114_7_2_frames_of_the_control_stream() {
    let server = |frames: &[u8]| at_server(&[&[&[0, 4, 0], frames].concat()]);
    let client = |frames: &[u8]| at_client(&[&[&[0, 4, 0], frames].concat()]);
    for kind in [0, 1, 5] {
        assert_eq!(server(&[kind, 1, 0]), Err(Reason::FrameUnexpected), "{kind}");
    }
    assert_eq!(server(&[6, 0]), Err(Reason::FrameReserved));
    assert_eq!(server(&[3, 1, 0]), Err(Reason::Id), "CANCEL_PUSH without a push");
    assert_eq!(server(&[13, 1, 5, 13, 1, 4]), Err(Reason::Id), "MAX_PUSH_ID that falls");
    assert_eq!(server(&[13, 1, 5, 13, 1, 5]).map(|events| events.len()), Ok(1));
    assert_eq!(client(&[13, 1, 5]), Err(Reason::FrameUnexpected));
    assert_eq!(client(&[7, 1, 8, 7, 1, 12]), Err(Reason::Id), "GOAWAY that rises");
    assert_eq!(client(&[7, 1, 7]), Err(Reason::Id), "no request");
    let expected = vec![Control::Settings, Control::GoAway(8), Control::GoAway(4)];
    assert_eq!(client(&[7, 1, 8, 7, 1, 4]), Ok(expected));
    assert_eq!(server(&[7, 2, 0, 0]), Err(Reason::FrameLength));
    assert_eq!(server(&[7, 0]), Err(Reason::FrameLength));
    assert_eq!(server(&[0x21, 0].repeat(2000)), Err(Reason::ControlFlood));
}

/// A client that changed a priority for each request was disconnected after a thousand.
#[test]
fn requests_entitle_to_frames_of_the_control_stream() {
    let mut connection = Connection::server(&Limits::DEFAULT);
    let mut stream = UniStream::default();
    let mut feed = |connection: &mut Connection, mut input: &[u8]| loop {
        match connection.next_event(&mut stream, input, false, 0) {
            Ok((_, None)) => return Ok(()),
            Ok((used, Some(_))) => input = &input[used..],
            Err(error) => return Err(error.0),
        }
    };
    feed(&mut connection, &[0, 4, 0]).unwrap();
    for _ in 0..10_000 {
        connection.saw_request();
        feed(&mut connection, &[0x21, 0].repeat(4)).unwrap();
    }
    assert_eq!(feed(&mut connection, &[0x21, 0].repeat(1001)), Err(Reason::ControlFlood));
}

#[test]
fn rfc9218_7_2_updates_of_priorities() {
    let frame = |kind: u8, payload: &[u8]| {
        let header = [0, 4, 0, 0x80, 0x0f, 0x07, kind, payload.len() as u8];
        [&header, payload].concat()
    };
    let update = frame(0, b"\x08u=1, i");
    let priority = Priority { urgency: 1, incremental: true };
    let expected = vec![Control::Settings, Control::Priority { stream: 8, priority }];
    assert_eq!(at_server(&[&update]), Ok(expected));
    let expected = Control::Priority { stream: 0, priority: Priority::DEFAULT };
    assert_eq!(at_server(&[&frame(0, &[0])]).map(|events| events[1]), Ok(expected));
    assert_eq!(at_server(&[&frame(0, &[])]), Err(Reason::FrameLength));
    for id in [1, 2, 3, 5] {
        assert_eq!(at_server(&[&frame(0, &[id])]), Err(Reason::Id), "{id} is no request");
    }
    assert_eq!(at_server(&[&frame(1, b"\x00u=1")]), Err(Reason::Id), "there was no push");
    assert_eq!(at_server(&[&frame(1, &[])]), Err(Reason::FrameLength));
    assert_eq!(at_client(&[&update]), Err(Reason::FrameUnexpected));
    assert_eq!(at_client(&[&frame(1, &[0])]), Err(Reason::FrameUnexpected));
}

#[test]
fn rfc9204_4_3_and_4_4_instructions() {
    assert_eq!(at_server(&[&[2, 0x20, 0x20]]), Ok(vec![]), "capacity 0");
    for instruction in [0x21, 0xc0, 0x40, 0x00] {
        assert_eq!(at_server(&[&[2, instruction]]), Err(Reason::QpackEncoder), "{instruction:x}");
    }
    let cancelled = [3, 0x40, 0x7f, 0x80, 0x01, 0x44];
    assert_eq!(at_server(&[&cancelled]), Ok(vec![]));
    assert_eq!(at_server(&[&[3, 0x80]]), Err(Reason::QpackDecoder), "acknowledgement");
    assert_eq!(at_server(&[&[3, 0x01]]), Err(Reason::QpackDecoder), "insert count");
    assert_eq!(at_server(&[&[&[3, 0x7f][..], &[0x80; 20]].concat()]), Err(Reason::QpackDecoder));
}
