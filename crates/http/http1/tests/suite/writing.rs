//! Written messages are parsed back; input that would be parsed differently is not written.

use crate::fuzzing::{BodyEnd, read_body};
use http1::write::{self, Unwritable};
use http1::{
    BodyKind, Limits, Name, Scratch, accept_response, parse_request, parse_response, trailer_fields,
};
use proptest::prelude::*;

#[test]
fn nothing_is_injected() {
    let mut out = Vec::new();
    for value in ["a\r\nX: b", "a\n", "\r", "\0", "\x7f", "\x1b"] {
        let field = write::field(&mut out, b"X", value.as_bytes());
        assert_eq!(field, Err(Unwritable::Value), "{value:?}");
        let line = write::status_line_with_reason(&mut out, 200, value.as_bytes());
        assert_eq!(line, Err(Unwritable::Value), "{value:?}");
    }
    for name in ["", "X:", "X ", "X\r\n", "\0", "é"] {
        assert_eq!(write::field(&mut out, name.as_bytes(), b""), Err(Unwritable::Name), "{name:?}");
    }
    for target in ["", "/ HTTP/1.1\r\n", "/a b", "/\n"] {
        let line = write::request_line(&mut out, b"GET", target.as_bytes());
        assert_eq!(line, Err(Unwritable::Target), "{target:?}");
    }
    assert_eq!(write::request_line(&mut out, b"GE T", b"/"), Err(Unwritable::Method));
    assert_eq!(write::status_line_with_reason(&mut out, 99, b""), Err(Unwritable::Status));
    assert_eq!(out, b"", "a refusal writes nothing");
}

#[test]
fn a_response_is_written_as_expected() {
    let mut out = Vec::new();
    write::status_line(&mut out, 404);
    write::content_length(&mut out, 1203);
    write::field(&mut out, b"Via", b"1.1 plimsoll").unwrap();
    write::end(&mut out);
    let expected = "HTTP/1.1 404 Not Found\r\nContent-Length: 1203\r\n\
                    Via: 1.1 plimsoll\r\n\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn every_status_is_parsed_back() {
    for status in 100..=999 {
        let mut out = Vec::new();
        write::status_line(&mut out, status);
        write::end(&mut out);
        let mut scratch = Scratch::new();
        let head = accept_response(&out, &mut scratch, &Limits::DEFAULT).unwrap().unwrap();
        assert_eq!((head.status, head.reason), (status, write::reason(status).as_bytes()));
    }
}

#[test]
fn constants_are_complete_lines() {
    for fields in [write::CHUNKED, write::CONNECTION_CLOSE, write::CONNECTION_KEEP_ALIVE] {
        let head = [b"HTTP/1.1 200 OK\r\n", fields, b"\r\n"].concat();
        let mut scratch = Scratch::new();
        let head = parse_response(&head, &mut scratch, &Limits::DEFAULT).unwrap().unwrap();
        assert_eq!(head.fields.len(), 1);
    }
    let mut scratch = Scratch::new();
    let head = parse_response(write::CONTINUE, &mut scratch, &Limits::DEFAULT).unwrap().unwrap();
    assert_eq!((head.status, head.head_bytes), (100, write::CONTINUE.len()));
}

#[test]
fn chunk_prefixes_at_their_limits() {
    for (len, expected) in [(1, "1\r\n"), (15, "f\r\n"), (16, "10\r\n"), (0x1234, "1234\r\n")] {
        assert_eq!(write::chunk_prefix(len).as_bytes(), expected.as_bytes());
    }
    assert_eq!(write::chunk_prefix(usize::MAX).as_bytes().len(), write::ChunkPrefix::BYTES_MAX);
    for number in [0, 9, 10, u64::MAX] {
        let mut out = Vec::new();
        write::decimal(&mut out, number);
        assert_eq!(out, number.to_string().as_bytes());
    }
}

fn token() -> impl Strategy<Value = String> {
    "[-!#$%&'*+.^_`|~0-9A-Za-z]{1,20}"
}

/// A known name in some case, or any token; never one that affects routing or framing.
fn name() -> impl Strategy<Value = String> {
    let known: Vec<&'static str> = Name::known().iter().map(|name| name.as_str()).collect();
    let known = (proptest::sample::select(known), any::<bool>());
    let known = known.prop_map(|(n, upper)| if upper { n.to_uppercase() } else { n.to_owned() });
    prop_oneof![known, token()].prop_filter("decides the framing", |name| {
        !matches!(
            Name::from_bytes(name.as_bytes()),
            Name::Host | Name::ContentLength | Name::TransferEncoding | Name::Connection
        )
    })
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| {
        let allowed = bytes.into_iter().filter(|&b| b == b'\t' || (b >= b' ' && b != 0x7f));
        allowed.collect::<Vec<u8>>().trim_ascii().to_vec()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_written_request_is_read_again(
        method in token(),
        path in "/[-a-z0-9/._~!$&'()*+,;=:@?]{0,40}",
        fields in proptest::collection::vec((name(), value()), 0..40),
    ) {
        prop_assume!(method != "CONNECT");
        let mut out = Vec::new();
        write::request_line(&mut out, method.as_bytes(), path.as_bytes()).unwrap();
        for (name, value) in &fields {
            write::field(&mut out, name.as_bytes(), value).unwrap();
        }
        write::field(&mut out, b"Host", b"h").unwrap();
        write::end(&mut out);
        let mut scratch = Scratch::new();
        let head = parse_request(&out, &mut scratch, &Limits::DEFAULT).unwrap().unwrap();
        prop_assert_eq!(head.method_bytes, method.as_bytes());
        prop_assert_eq!(head.target_bytes, path.as_bytes());
        let read: Vec<_> = head.fields.iter().collect();
        prop_assert_eq!(read.len(), fields.len() + 1);
        for ((name, value), read) in fields.iter().zip(read) {
            prop_assert_eq!((name.as_bytes(), &value[..]), read);
        }
        crate::fuzzing::request_head(&out);
    }

    #[test]
    fn a_field_is_written_if_it_would_be_read_the_same(
        name in proptest::collection::vec(any::<u8>(), 0..5),
        value in proptest::collection::vec(any::<u8>(), 0..5),
    ) {
        let mut out = b"HTTP/1.1 200 OK\r\n".to_vec();
        let written = write::field(&mut out, &name, &value).is_ok();
        if !written {
            prop_assert_eq!(&out, b"HTTP/1.1 200 OK\r\n");
            out.extend_from_slice(&[&name[..], b": ", &value, b"\r\n"].concat());
        }
        write::end(&mut out);
        let mut scratch = Scratch::new();
        let read = parse_response(&out, &mut scratch, &Limits::DEFAULT);
        let trimmed = value.trim_ascii();
        let same = matches!(&read, Ok(Some(head))
            if head.fields.iter().eq([(&name[..], trimmed)]) && head.head_bytes == out.len());
        prop_assert_eq!(written, same);
    }

    #[test]
    fn written_chunks_are_read_again(
        content in proptest::collection::vec(any::<u8>(), 0..300),
        piece in 1usize..100,
    ) {
        let mut out = Vec::new();
        for chunk in content.chunks(piece) {
            out.extend_from_slice(write::chunk_prefix(chunk.len()).as_bytes());
            out.extend_from_slice(chunk);
            out.extend_from_slice(write::CRLF);
        }
        out.extend_from_slice(write::LAST_CHUNK);
        let body = read_body(BodyKind::Chunked, &[&out], &Limits::DEFAULT);
        prop_assert_eq!(body.end, BodyEnd::Done);
        prop_assert_eq!(body.content, content);
        prop_assert_eq!(body.consumed, out.len());
        crate::fuzzing::chunked_body(&out);
    }

    #[test]
    fn any_bytes_are_food_for_every_parser(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        crate::fuzzing::request_head(&bytes);
        crate::fuzzing::response_head(&bytes);
        crate::fuzzing::chunked_body(&bytes);
        crate::fuzzing::request_stream(&bytes);
    }

    /// Pieces of messages, recombined: they get further into the parser than random bytes.
    #[test]
    fn nearly_messages_are_food_for_every_parser(
        pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..30),
    ) {
        let bytes = pieces.concat();
        crate::fuzzing::request_head(&bytes);
        crate::fuzzing::response_head(&bytes);
        crate::fuzzing::chunked_body(&bytes);
        crate::fuzzing::request_stream(&bytes);
    }
}

const PIECES: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\nHost: a\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"CONNECT ",
    b"http://a:1/",
    b"\r\n",
    b"\r\n\r\n",
    b"\r",
    b"\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b";",
    b",",
    b"5",
    b"0\r\n",
    b"3\r\nabc\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close, a\r\n",
    b"Host: a\r\n",
    b"a: b\r\n",
    b"abc",
    b"%",
];

#[test]
fn trailers_have_only_fields_that_may_be_there() {
    let section = b"X-Sum: 1\r\nContent-Length: 5\r\nset-cookie: a\r\nTE: trailers\r\nHost: b\r\n\
                    authorization: c\r\nX-Forwarded-For: d\r\ngrpc-status: 0\r\nEtag: \"e\"\r\n";
    let lines = write::trailer_lines(trailer_fields(section));
    assert_eq!(lines, b"X-Sum: 1\r\ngrpc-status: 0\r\nEtag: \"e\"\r\n");
    let bad = [(&b"a"[..], &b"b\r\nc: d"[..]), (b"a b", b"c"), (b"", b"d")];
    assert_eq!(write::trailer_lines(bad.into_iter()), b"");
}

#[test]
fn runs_of_lines_are_written_as_line_by_line() {
    let heads = [
        "",
        "A: 1\r\nB: 2\r\nC: 3\r\n",
        "A: 1\r\nConnection: close, x\r\nX: 2\r\nC: 3\r\n",
        "A:1\r\nB:  2 \r\nC: 3\t\r\nD: 4\r\nE:\r\nF: \r\nG: g g\r\n",
        "Host: h\r\nKeep-Alive: 5\r\nHost-Not: 6\r\nTE: a\r\nZ: z\r\n",
    ];
    for head in heads {
        let text = format!("HTTP/1.1 200 OK\r\n{head}\r\n");
        let mut scratch = Scratch::new();
        let parsed = parse_response(text.as_bytes(), &mut scratch, &Limits::DEFAULT);
        let parsed = parsed.unwrap().unwrap();
        for left_out in ["-", "A", "B", "D", "F"] {
            let keep = |field: http1::Field<'_>| field.name() != left_out.as_bytes();
            let (mut runs, mut lines) = (Vec::new(), Vec::new());
            write::end_to_end(&mut runs, &parsed.fields, keep);
            for field in parsed.fields.end_to_end().filter(|field| keep(*field)) {
                write::parsed_field(&mut lines, field);
            }
            assert_eq!(runs.escape_ascii().to_string(), lines.escape_ascii().to_string());
        }
    }
}
