//! Tests of the messages of HTCP.

use proptest::prelude::*;

use super::*;
use crate::fuzzing::{self, fixture, htcp_head};

const SPECIFIER: Specifier<'static> =
    Specifier { method: b"GET", uri: b"http://origin.test/asked", version: b"1/1", fields: b"" };

fn written(message: &Message<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    message.write(&mut out).expect("a message that fits");
    out
}

/// A recorded message, which is written with the same bytes as it was read from.
fn check_recorded(name: &str, body: Body<'_>) -> Message<'static> {
    let bytes = fixture(name).leak();
    let message = Message::read(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(message.body, body, "{name}");
    assert_eq!(written(&message), bytes, "{name}");
    message
}

#[test]
fn squid_asks_with_the_same_bytes() {
    let request = Request::Test(SPECIFIER);
    check_recorded("htcp-tst", Body::Request { request, respond: true });
    // Squid sends the method of the request that purged.
    let specifier = Specifier { method: b"PURGE", ..SPECIFIER };
    let request = Request::Clear { reason: 0, specifier };
    check_recorded("htcp-clr", Body::Request { request, respond: false });
}

#[test]
fn squid_answers_with_the_same_bytes() {
    let absent = Body::Response(Response::Absent { cache_fields: b"" });
    let message = check_recorded("htcp-tst-miss", absent);
    assert_eq!((message.version, message.id), (Version::One, 9));
    let message = check_recorded("htcp-tst-miss-old", absent);
    // In the swapped layout Squid forgets the id.
    assert_eq!((message.version, message.id), (Version::ZeroSwapped, 0));
    let cleared = |cleared| Body::Response(Response::Cleared(cleared));
    check_recorded("htcp-clr-gone", cleared(Cleared::Gone));
    check_recorded("htcp-clr-none", cleared(Cleared::Absent));
    for name in ["htcp-tst-hit", "htcp-tst-hit-old"] {
        let bytes = fixture(name);
        let message = Message::read(&bytes).expect("a hit");
        let Body::Response(Response::Present(detail)) = message.body else {
            panic!("{message:?}");
        };
        assert_eq!(detail.response_fields, b"Age: 13\r\n");
        assert!(detail.entity_fields.starts_with(b"Expires: "));
        assert!(detail.entity_fields.ends_with(b" GMT\r\n"));
        assert_eq!(detail.cache_fields, b"");
        assert_eq!(written(&message), bytes);
    }
}

#[test]
fn both_layouts_of_version_0_are_read_and_answered() {
    let requests = [
        (Request::Test(SPECIFIER), true),
        (Request::Test(SPECIFIER), false),
        (Request::Clear { reason: 1, specifier: SPECIFIER }, true),
        (Request::Clear { reason: 1, specifier: SPECIFIER }, false),
        (Request::Nop, true),
    ];
    for version in [Version::Zero, Version::ZeroSwapped, Version::One] {
        for (request, respond) in requests {
            let message = Message { version, ..Message::request(3, request, respond) };
            assert_eq!(Message::read(&written(&message)), Ok(message));
            let refused = message.refuse(Refusal::NotImplemented);
            assert_eq!(refused.is_some(), respond);
            if let Some(refused) = refused {
                assert_eq!(Message::read(&written(&refused)), Ok(refused));
            }
        }
    }
    let message = Message::request(3, Request::Test(SPECIFIER), true);
    let codes = |version| written(&Message { version, ..message })[3..8].to_vec();
    assert_eq!(codes(Version::One), [1, 0, 46, 0x10, 2]);
    assert_eq!(codes(Version::Zero), [0, 0, 46, 0x10, 2]);
    assert_eq!(codes(Version::ZeroSwapped), [0, 0, 46, 1, 0x40]);
}

/// A message with the bytes of its sections.
fn sections(codes: u8, flags: u8, data: &[u8], auth: &[u8]) -> Vec<u8> {
    let length = (12 + data.len() + auth.len()) as u8;
    let head = [0, length, 0, 1, 0, 8 + data.len() as u8, codes, flags, 0, 0, 0, 5];
    [&head[..], data, auth].concat()
}

#[test]
fn what_is_not_supported_is_refused() {
    for opcode in (2..16).filter(|&opcode| opcode != CLR) {
        let bytes = sections(opcode << 4, F1, b"anything", &NO_AUTH);
        let message = Message::read(&bytes).expect("a request");
        assert_eq!(message.refused(), Some(Refusal::NotImplemented));
        let answer = message.refuse(Refusal::NotImplemented).expect("an answer is wanted");
        // The code 2 with F1: it is about the message.
        assert_eq!(written(&answer), sections(opcode << 4 | 2, F1 | RR, b"", &NO_AUTH));
        assert!(message.write(&mut Vec::new()).is_err());
        // An answer to what is never asked.
        let answer = sections(opcode << 4, RR, b"", &NO_AUTH);
        assert_eq!(Message::read(&answer).expect_err("unknown").field, "OPCODE");
    }
    assert_eq!(Message::request(1, Request::Nop, true).refused(), None);
}

#[test]
fn a_signature_is_read_and_refused() {
    let auth = [&[0, 19][..], &[0, 0, 0, 1, 0, 0, 0, 2], b"\0\x01k\0\x041234"].concat();
    let bytes = sections(NOP, F1, b"", &auth);
    let message = Message::read(&bytes).expect("a signed ping");
    let signature = Auth { time: 1, expires: 2, key_name: b"k", signature: b"1234" };
    assert_eq!(message.auth, Some(signature));
    assert_eq!(message.refused(), Some(Refusal::AuthenticationFailed));
    assert_eq!(message.write(&mut Vec::new()).expect_err("not made").field, "AUTH");
    let error = Malformed { field: "AUTH", problem: Problem::Length };
    assert_eq!(Message::read(&sections(NOP, F1, b"", &[0, 1])), Err(error));
}

/// RFC 2756, section 2.8: its length "can include padding".
#[test]
fn a_signature_with_padding_is_refused_not_dropped() {
    let auth = b"\0\x16\0\0\0\x01\0\0\0\x02\0\x01k\0\x041234pad";
    let bytes = sections(NOP, F1, b"", auth);
    let message = Message::read(&bytes).expect("a signed ping");
    assert_eq!(message.refused(), Some(Refusal::AuthenticationFailed));
    let answer = message.refuse(Refusal::AuthenticationFailed).expect("an answer is wanted");
    assert_eq!(written(&answer), sections(NOP << 4 | 1, F1 | RR, b"", &NO_AUTH));
}

#[test]
fn no_bits_of_a_number_are_lost() {
    let refused = Response::Refused { opcode: 16, refusal: Refusal::Disallowed };
    let refused =
        Message { body: Body::Response(refused), ..Message::request(1, Request::Nop, true) };
    let clear = Request::Clear { reason: 16, specifier: SPECIFIER };
    for (message, field) in [(refused, "OPCODE"), (Message::request(1, clear, true), "REASON")] {
        let mut out = vec![1];
        assert_eq!(message.write(&mut out), Err(Malformed { field, problem: Problem::Value }));
        assert!(out.is_empty());
    }
}

#[test]
fn sections_can_be_padded() {
    let bytes = sections(CLR << 4 | 1, RR, b"pad", b"\0\x02pad");
    let message = Message::read(&bytes).expect("an answer");
    assert_eq!(message.body, Body::Response(Response::Cleared(Cleared::Kept)));
    // The one text that the RFC asks for.
    let bytes = sections(TST << 4 | 1, RR, b"\0\x01x", &NO_AUTH);
    let absent = Body::Response(Response::Absent { cache_fields: b"x" });
    assert_eq!(Message::read(&bytes).expect("an answer").body, absent);
}

#[test]
fn wrong_messages_name_the_field() {
    let error = |bytes: &[u8]| {
        let error = Message::read(bytes).expect_err("a wrong message");
        (error.field, error.problem)
    };
    let good = written(&Message::request(1, Request::Test(SPECIFIER), true));
    assert_eq!(error(&[&good[..], &[0]].concat()), ("LENGTH", Problem::Length));
    assert_eq!(error(&[0; HTCP_BYTES_MAX + 1]), ("LENGTH", Problem::TooLong));
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        error(&bytes)
    };
    assert_eq!(changed(2, 1), ("MAJOR", Problem::Unsupported));
    assert_eq!(changed(5, 49), ("DATA", Problem::Truncated));
    assert_eq!(changed(5, 1), ("DATA", Problem::Length));
    assert_eq!(changed(12, 1), ("METHOD", Problem::Truncated));
    assert_eq!(error(&sections(TST << 4 | 2, RR, b"", &NO_AUTH)), ("RESPONSE", Problem::Value));
    assert_eq!(error(&sections(6, F1 | RR, b"", &NO_AUTH)), ("RESPONSE", Problem::Value));
}

#[test]
fn a_message_has_a_longest_size() {
    let uri = vec![b'a'; HTCP_BYTES_MAX - 22];
    let test = |uri| {
        let specifier = Specifier { uri, ..Specifier::default() };
        Message::request(1, Request::Test(specifier), true)
    };
    let bytes = written(&test(&uri));
    assert_eq!(bytes.len(), HTCP_BYTES_MAX);
    assert_eq!(Message::read(&bytes), Ok(test(&uri)));
    let mut out = Vec::new();
    let longer = vec![b'a'; HTCP_BYTES_MAX - 21];
    let error = Malformed { field: "LENGTH", problem: Problem::TooLong };
    assert_eq!(test(&longer).write(&mut out), Err(error));
    let longer = vec![b'a'; 1 << 16];
    let error = Malformed { field: "URI", problem: Problem::TooLong };
    assert_eq!(test(&longer).write(&mut out), Err(error));
    assert!(out.is_empty());
}

type Texts = [Vec<u8>; 4];

fn body(kind: u8, texts: &Texts, respond: bool) -> Body<'_> {
    let [method, uri, version, fields] = texts;
    let specifier = Specifier { method, uri, version, fields };
    let detail = Detail { response_fields: uri, entity_fields: version, cache_fields: fields };
    let refusal = REFUSALS[usize::from(kind) % REFUSALS.len()];
    let request = |request| Body::Request { request, respond };
    match kind % 9 {
        0 => request(Request::Test(specifier)),
        1 => request(Request::Clear { reason: kind / 16, specifier }),
        2 => Body::Response(Response::Nop),
        3 => Body::Response(Response::Present(detail)),
        4 => Body::Response(Response::Absent { cache_fields: fields }),
        5 => Body::Response(Response::Cleared(Cleared::Gone)),
        6 => Body::Response(Response::Cleared(Cleared::Kept)),
        7 => Body::Response(Response::Refused { opcode: kind / 16, refusal }),
        _ => Body::Response(Response::Cleared(Cleared::Absent)),
    }
}

/// Messages with good lengths. A text is often short enough for what remains of its section.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![8 => Just(0_u8), 2 => 0_u8..6, 1 => any::<u8>()];
    let part = |bytes| prop::collection::vec(byte.clone(), bytes);
    let codes = prop_oneof![
        3 => prop::sample::select(&[TST << 4, TST << 4 | 1, TST, CLR << 4, CLR][..]),
        1 => any::<u8>(),
    ];
    let auth = prop_oneof![
        Just(NO_AUTH.to_vec()),
        part(0..30).prop_map(|content| { [&[0, 2 + content.len() as u8], &content[..]].concat() })
    ];
    (0_u8..3, codes, prop_oneof![4 => 0_u8..4, 1 => any::<u8>()], part(0..60), auth).prop_map(
        |(minor, codes, flags, data, auth)| {
            let mut bytes = sections(codes, flags, &data, &auth);
            bytes[3] = minor;
            bytes
        },
    )
}

#[test]
fn any_bytes_are_read_or_refused() {
    fuzzing::check_generated(messages(), fuzzing::htcp, |bytes| Message::read(bytes).is_ok());
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        kind: u8, version in 0..3, id: u32, respond: bool,
        texts in prop::array::uniform4(prop::collection::vec(any::<u8>(), 0..30)),
    ) {
        let version =
            [Version::Zero, Version::ZeroSwapped, Version::One][version as usize];
        let message = Message { version, id, body: body(kind, &texts, respond), auth: None };
        let bytes = written(&message);
        prop_assert_eq!(Message::read(&bytes), Ok(message));
        for end in 0..bytes.len() {
            prop_assert!(Message::read(&bytes[..end]).is_err());
        }
        // Of the three texts of an absent response, two are padding.
        let needed = match message.body {
            Body::Response(Response::Absent { cache_fields }) => 14 + cache_fields.len(),
            _ => bytes.len() - NO_AUTH.len(),
        };
        for end in 0..needed {
            prop_assert!(Message::read(&htcp_head(&bytes, end)).is_err(), "{end} of {needed}");
        }
        if let Some(answer) = message.refuse(Refusal::Disallowed) {
            prop_assert!(written(&answer).len() <= bytes.len());
        }
    }
}
