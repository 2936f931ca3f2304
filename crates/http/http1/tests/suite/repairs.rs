//! Response heads that break a rule: which of them are repaired, and how.

use http1::RejectReason::{self, *};
use http1::{BodyDecoder, BodyKind, Limits, Method, Scratch, accept_response, parse_response};

fn bytes(text: &str) -> Vec<u8> {
    text.replace('⏎', "\r\n").replace('␍', "\r").replace('␊', "\n").replace('␀', "\0").into()
}

/// Its status and fields, how its body is framed, and whether the connection goes on.
type Kept = (u16, &'static str, BodyKind, bool);

/// The head as it is kept, how its body is framed, and whether the connection goes on.
fn accepted(text: &str) -> Result<(u16, String, BodyKind, bool), RejectReason> {
    let input = bytes(text);
    let mut scratch = Scratch::new();
    let head = accept_response(&input, &mut scratch, &Limits::DEFAULT);
    let head = head.map_err(|reject| reject.reason)?.expect("a whole head");
    assert!(input[head.head_bytes..].starts_with(b"ok"), "{text}: where the body begins");
    let owned = head.detach();
    let kept = owned.head();
    let fields: Vec<String> = kept.fields.fields().map(|field| format!("{field:?}")).collect();
    let kind = kept.body(Method::Get).unwrap();
    Ok((kept.status, fields.join("|"), kind, kept.keep_alive()))
}

/// A deviation, and the head that is kept.
#[test]
fn what_leaves_no_doubt_is_repaired() {
    use BodyKind::{Chunked, Length, UntilClose};
    let ok = |fields: &str| format!("HTTP/1.1 200 OK⏎{fields}⏎⏎ok");
    #[rustfmt::skip]
    let rows: [(RejectReason, String, Kept); 15] = [
        (BareLf, "HTTP/1.1 200 OK␊A: b␊Content-Length: 2␊␊ok".into(),
            (200, "A: b|Content-Length: 2", Length(2), false)),
        (RepeatedLength, ok("Content-Length: 2⏎A: b⏎content-length: 2"),
            (200, "Content-Length: 2|A: b", Length(2), false)),
        (InvalidLength, ok("Content-Length: 2, 2"), (200, "Content-Length: 2", Length(2), false)),
        (RepeatedLength, ok("Content-Length: 2⏎Content-Length: 02 ,2"),
            (200, "Content-Length: 2", Length(2), false)),
        (LengthWithEncoding, ok("Content-Length: 2⏎Transfer-Encoding: chunked"),
            (200, "Transfer-Encoding: chunked", Chunked, false)),
        (LengthWithEncoding, ok("Transfer-Encoding: Chunked⏎Content-Length: x"),
            (200, "Transfer-Encoding: Chunked", Chunked, false)),
        (ChunkedNotLast, ok("Transfer-Encoding: identity"), (200, "", UntilClose, true)),
        (ObsFold, ok("A: b⏎ c⏎\t  d ⏎B: e⏎Content-Length: 2"),
            (200, "A: b c d|B: e|Content-Length: 2", Length(2), false)),
        (SpaceBeforeColon, ok("A : b⏎B\t : c⏎Content-Length: 2"),
            (200, "A: b|B: c|Content-Length: 2", Length(2), false)),
        (InvalidFieldValue, ok("A: b\x01c⏎Content-Length: 2"),
            (200, "A: b\\x01c|Content-Length: 2", Length(2), true)),
        (InvalidFieldValue, ok("A: \x1b[31mred\x7f⏎Content-Length: 2"),
            (200, "A: \\x1b[31mred\\x7f|Content-Length: 2", Length(2), true)),
        (InvalidStatus, "HTTP/1.1 999 Denied⏎Content-Length: 2⏎⏎ok".into(),
            (999, "Content-Length: 2", Length(2), true)),
        (InvalidStatus, "HTTP/1.0 600⏎⏎ok".into(), (600, "", UntilClose, false)),
        (MalformedStatusLine, "HTTP/1.1   200 OK⏎Content-Length: 2⏎⏎ok".into(),
            (200, "Content-Length: 2", Length(2), true)),
        (InvalidFieldValue, ok("Connection: close⏎A: \x02⏎Content-Length: 2"),
            (200, "Connection: close|A: \\x02|Content-Length: 2", Length(2), false)),
    ];
    for (reason, text, (status, fields, kind, keeps)) in rows {
        let input = bytes(&text);
        let strict = parse_response(&input, &mut Scratch::new(), &Limits::DEFAULT).map(|_| ());
        assert_eq!(strict.map_err(|reject| reject.reason), Err(reason), "{text}");
        assert_eq!(accepted(&text), Ok((status, fields.to_owned(), kind, keeps)), "{text}");
    }
}

/// Each has its rule, also behind a deviation that would be repaired.
#[test]
fn what_two_readers_could_read_differently_is_refused() {
    let rows = [
        (BareLf, "HTTP/1.1 200 OK⏎A: b␊Set-Cookie: c⏎⏎ok"),
        (BareLf, "HTTP/1.1 200 OK␊A: b⏎␊ok"),
        (BareLf, "HTTP/1.1 200 OK⏎A: b␊␊ok"),
        (BareCr, "HTTP/1.1 200 OK⏎A: b␍c⏎⏎ok"),
        (BareCr, "HTTP/1.1 200 OK␊A: b␍c␊␊ok"),
        (Nul, "HTTP/1.1 200 OK⏎A: b␀c⏎⏎ok"),
        (Nul, "HTTP/1.1 200 OK⏎A: \x01␀c⏎⏎ok"),
        (RepeatedLength, "HTTP/1.1 200 OK⏎Content-Length: 2⏎Content-Length: 3⏎⏎ok"),
        (RepeatedLength, "HTTP/1.1 200 OK⏎Content-Length: 2, 3⏎⏎ok"),
        (InvalidLength, "HTTP/1.1 200 OK⏎Content-Length: 2,⏎⏎ok"),
        (InvalidLength, "HTTP/1.1 200 OK⏎Content-Length:⏎⏎ok"),
        (InvalidLength, "HTTP/1.1 200 OK⏎Content-Length: +2⏎⏎ok"),
        (InvalidLength, "HTTP/1.1 200 OK⏎Content-Length: 2\x01⏎⏎ok"),
        (LengthWithEncoding, "HTTP/1.1 200 OK⏎Transfer-Encoding: identity⏎Content-Length: 2⏎⏎ok"),
        (ChunkedNotLast, "HTTP/1.1 200 OK⏎Transfer-Encoding: gzip⏎Content-Length: 2⏎⏎ok"),
        (EncodingInHttp10, "HTTP/1.0 200 OK⏎Transfer-Encoding: chunked⏎A: b⏎ c⏎⏎ok"),
        (ObsFold, "HTTP/1.1 200 OK⏎Transfer-Encoding:⏎ chunked⏎⏎ok"),
        (ObsFold, "HTTP/1.1 200 OK⏎Content-Length: 2⏎ 0⏎⏎ok"),
        (SpaceBeforeColon, "HTTP/1.1 200 OK⏎Content-Length : 2⏎⏎ok"),
        (SpaceBeforeColon, "HTTP/1.1 200 OK⏎Transfer-Encoding : chunked⏎Content-Length: 2⏎⏎ok"),
        (SpaceBeforeFields, "HTTP/1.1 200 OK⏎ A: b⏎⏎ok"),
        (InvalidFieldName, "HTTP/1.1 200 OK⏎A (b): c⏎D : e⏎⏎ok"),
        (MissingColon, "HTTP/1.1 200 OK␊A␊␊ok"),
        (EmptyFieldName, "HTTP/1.1 200 OK␊: a␊␊ok"),
        (MalformedStatusLine, "HTTP/1.1 0200 OK⏎⏎ok"),
        (MalformedStatusLine, "HTTP/1.1\t200 OK⏎⏎ok"),
        (InvalidStatus, "HTTP/1.1 099 OK⏎⏎ok"),
        (MalformedVersion, "ICY 200 OK⏎⏎ok"),
    ];
    for (reason, text) in rows {
        assert_eq!(accepted(text), Err(reason), "{text}");
    }
    let many = "A: b\r\n".repeat(http1::FIELDS_CEILING);
    assert_eq!(accepted(&format!("HTTP/1.1  200 OK⏎{many}C: d⏎⏎ok")), Err(TooManyFields));
    let long = "a".repeat(Limits::DEFAULT.head_bytes_max);
    assert_eq!(accepted(&format!("HTTP/1.1 200 OK␊A: {long}␊␊ok")), Err(HeadTooLarge));
}

/// Some origins write sizes of a fixed width. A request may not.
#[test]
fn blanks_after_a_chunk_size_are_accepted_of_responses() {
    let read = |mut decoder: BodyDecoder| {
        let mut rest = &b"2 \t \r\nok\r\n0  \r\n\r\n"[..];
        let mut content = Vec::new();
        while !decoder.is_done() {
            let step = decoder.decode(rest).map_err(|reject| reject.reason)?;
            content.extend_from_slice(&rest[step.data.clone()]);
            rest = &rest[step.consumed..];
        }
        Ok(content)
    };
    let limits = Limits::DEFAULT;
    let of_response = BodyDecoder::for_response(BodyKind::Chunked, &limits);
    assert_eq!(read(of_response), Ok(b"ok".to_vec()));
    assert_eq!(read(BodyDecoder::new(BodyKind::Chunked, &limits)), Err(InvalidChunkSize));
}

#[test]
fn a_repaired_head_has_no_field_that_connection_names() {
    let text = b"HTTP/1.1 200 OK\nConnection: x-a\nX-A: 1\nX-B: 2\n\n";
    let mut scratch = Scratch::new();
    let head = accept_response(text, &mut scratch, &Limits::DEFAULT).unwrap().unwrap();
    let names: Vec<_> = head.fields.end_to_end().map(|field| field.name().to_vec()).collect();
    assert_eq!(names, [b"X-B".to_vec()]);
    assert!(head.fields.values(b"x-a").next().is_none());
}
