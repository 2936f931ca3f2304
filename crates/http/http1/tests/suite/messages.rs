//! What well-formed messages mean, by section of RFC 9112 and RFC 9110.

use http1::{
    BodyDecoder, BodyKind, Expectation, FieldNames, Limits, Method, Name, OwnedRequest,
    OwnedResponse, Scratch, Step, Target, Truncated, Version, parse_request, parse_response,
    trailer_fields, write,
};

fn request(head: &str) -> OwnedRequest {
    let mut scratch = Scratch::new();
    let parsed = parse_request(head.as_bytes(), &mut scratch, &Limits::DEFAULT);
    parsed.expect("well formed").expect("whole").detach()
}

fn response(head: &str) -> OwnedResponse {
    let mut scratch = Scratch::new();
    let parsed = parse_response(head.as_bytes(), &mut scratch, &Limits::DEFAULT);
    parsed.expect("well formed").expect("whole").detach()
}

#[test]
fn rfc9112_2_2_an_empty_line_before_is_skipped_and_counted() {
    let text = "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let owned = request(text);
    assert_eq!(owned.head().head_bytes, text.len());
    assert_eq!(owned.head().method_bytes, b"GET");
}

#[test]
fn rfc9112_2_3_versions() {
    assert_eq!(request("GET / HTTP/1.0\r\n\r\n").head().version, Version::Http10);
    assert_eq!(request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").head().version, Version::Http11);
    assert_eq!(request("GET / HTTP/1.9\r\nHost: a\r\n\r\n").head().version, Version::Http11);
    assert_eq!(response("HTTP/1.0 200 OK\r\n\r\n").head().version, Version::Http10);
}

#[test]
fn a_head_that_came_over_http2_keeps_its_version() {
    let text = "PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\
                Expect: 100-continue\r\n\r\n";
    let owned = request(text).head().over(Version::Http2).detach();
    for head in [owned.head(), owned.head().detach().head(), owned.clone().head()] {
        assert_eq!((head.version, head.version.as_str()), (Version::Http2, "HTTP/2.0"));
        assert!(head.keep_alive(), "HTTP/2 has no field that closes the connection");
        assert_eq!(head.expectation(), Expectation::Continue);
        assert_eq!(head.body(), BodyKind::Length(1));
    }
    assert_eq!(request(text).head().version, Version::Http11);
}

#[test]
fn rfc9112_3_2_the_four_forms() {
    let origin = request("GET /a?b HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(origin.head().target, Target::Origin { path_and_query: b"/a?b" });
    assert_eq!(origin.head().host(), Some(&b"h"[..]));

    let absolute = request("GET HTTP://b.example:81/a?b HTTP/1.1\r\nHost: h\r\n\r\n");
    let (scheme, authority) = (&b"HTTP"[..], &b"b.example:81"[..]);
    let target = Target::Absolute { scheme, authority, path_and_query: b"/a?b" };
    assert_eq!(absolute.head().target, target);
    assert_eq!(absolute.head().host(), Some(authority), "the target wins over Host (3.2.2)");

    let authority = request("CONNECT [::1]:443 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(authority.head().target, Target::Authority { host: b"[::1]", port: 443 });
    assert_eq!(authority.head().host(), Some(&b"[::1]:443"[..]));

    let asterisk = request("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(asterisk.head().target, Target::Asterisk);
    assert_eq!(asterisk.head().host(), Some(&b"h"[..]));
    assert_eq!(request("GET / HTTP/1.0\r\n\r\n").head().host(), None);
}

#[test]
fn rfc9112_3_2_1_the_target_for_an_origin() {
    for (method, target, expected) in [
        ("GET", "/a?b", "/a?b"),
        ("GET", "http://h/a?b", "/a?b"),
        ("GET", "http://h", "/"),
        ("GET", "http://h?b", "/?b"),
        ("OPTIONS", "http://h", "*"),
        ("OPTIONS", "http://h/", "/"),
        ("OPTIONS", "*", "*"),
        ("CONNECT", "h:80", "h:80"),
    ] {
        let owned = request(&format!("{method} {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        let mut out = Vec::new();
        write::origin_form(&mut out, owned.head().method, &owned.head().target);
        assert_eq!(String::from_utf8_lossy(&out), expected, "{method} {target}");
    }
}

#[test]
fn rfc9110_9_methods_are_case_sensitive() {
    let owned = request("get / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!((owned.head().method, owned.head().method_bytes), (Method::Other, &b"get"[..]));
    for method in [
        Method::Get,
        Method::Head,
        Method::Post,
        Method::Put,
        Method::Delete,
        Method::Options,
        Method::Trace,
        Method::Patch,
        Method::Purge,
    ] {
        let owned = request(&format!("{} / HTTP/1.1\r\nHost: h\r\n\r\n", method.as_str()));
        assert_eq!(owned.head().method, method);
    }
}

#[test]
fn rfc9110_5_fields_are_found_in_any_case_and_number() {
    let owned = request(
        "GET / HTTP/1.1\r\nhost: a\r\nX-A: 1\r\nACCEPT:  x \r\nx-a:\t2\t\r\nAccept: y, Z\r\n\
         Empty:\r\nX-A:3\r\n\r\n",
    );
    let fields = owned.head().fields;
    assert_eq!(fields.len(), 7);
    assert_eq!(fields.get(Name::Accept), Some(&b"x"[..]));
    assert_eq!(fields.all(Name::Accept).collect::<Vec<_>>(), [&b"x"[..], b"y, Z"]);
    assert_eq!((fields.count(Name::Accept), fields.count(Name::Host)), (2, 1));
    assert!(fields.is_repeated(Name::Accept) && !fields.is_repeated(Name::Host));
    assert!(
        fields.contains_token(Name::Accept, b"z") && !fields.contains_token(Name::Accept, b"w")
    );
    assert_eq!(fields.values(b"X-a").collect::<Vec<_>>(), [b"1", b"2", b"3"]);
    assert_eq!(fields.values(b"empty").collect::<Vec<_>>(), [b""]);
    assert_eq!(fields.values(b"x-b").count() + fields.values(b"via").count(), 0);
    assert_eq!(fields.get(Name::Via), None);
    assert_eq!(fields.iter().next(), Some((&b"host"[..], &b"a"[..])));
}

#[test]
fn rfc9112_6_3_bodies_of_requests() {
    let body = |fields: &str| {
        request(&format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).head().body()
    };
    assert_eq!(body(""), BodyKind::None);
    assert_eq!(body("Content-Length: 0\r\n"), BodyKind::Length(0));
    assert_eq!(body("content-length: 0017\r\n"), BodyKind::Length(17));
    assert_eq!(body("TRANSFER-ENCODING:chunked\r\n"), BodyKind::Chunked);
    assert_eq!(
        request("CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").head().body(),
        BodyKind::None
    );
}

#[test]
fn rfc9112_6_3_bodies_of_responses() {
    let length = "Content-Length: 5\r\n";
    let chunked = "Transfer-Encoding: chunked\r\n";
    for (status, fields, method, expected) in [
        (200, length, Method::Get, BodyKind::Length(5)),
        (200, chunked, Method::Get, BodyKind::Chunked),
        (200, "", Method::Get, BodyKind::UntilClose),
        (200, length, Method::Head, BodyKind::None),
        (200, chunked, Method::Head, BodyKind::None),
        (200, length, Method::Connect, BodyKind::None),
        (404, length, Method::Connect, BodyKind::Length(5)),
        (103, "", Method::Get, BodyKind::None),
        (204, "", Method::Get, BodyKind::None),
        (304, length, Method::Get, BodyKind::None),
        (404, "", Method::Post, BodyKind::UntilClose),
    ] {
        let owned = response(&format!("HTTP/1.1 {status} X\r\n{fields}\r\n"));
        assert_eq!(owned.head().body(method), Ok(expected), "{status} {fields} {method:?}");
        let announced = (fields == length).then_some(5);
        assert_eq!(owned.head().content_length(), announced);
    }
}

#[test]
fn rfc9112_9_3_persistence() {
    for (version, connection, expected) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: x, CLOSE\r\n", false),
        ("1.1", "Connection: x\r\nConnection: ,close ,\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
    ] {
        let owned = request(&format!("GET / HTTP/{version}\r\nHost: a\r\n{connection}\r\n"));
        assert_eq!(owned.head().keep_alive(), expected, "{version} {connection}");
        let owned = response(&format!("HTTP/{version} 200 OK\r\n{connection}\r\n"));
        assert_eq!(owned.head().keep_alive(), expected, "{version} {connection}");
    }
}

#[test]
fn rfc9110_10_1_1_expect() {
    let expect = |version: &str, fields: &str| {
        let text = format!("PUT / HTTP/{version}\r\nHost: a\r\n{fields}\r\n");
        let owned = request(&text);
        owned.head().expectation()
    };
    let length = "Content-Length: 5\r\nExpect: 100-Continue\r\n";
    assert_eq!(expect("1.1", length), Expectation::Continue);
    assert_eq!(expect("1.0", length), Expectation::None);
    assert_eq!(expect("1.1", "Expect: 100-continue\r\n"), Expectation::Continue);
    assert_eq!(expect("1.1", "Expect: tea\r\n"), Expectation::Unknown);
    assert_eq!(expect("1.1", ""), Expectation::None);
}

#[test]
fn rfc9110_15_2_interim_responses() {
    let is_interim =
        |status: u16| response(&format!("HTTP/1.1 {status} X\r\n\r\n")).head().is_interim();
    assert!(is_interim(100) && is_interim(103));
    assert!(!is_interim(101), "the protocol changes: it is the last response");
    assert!(!is_interim(200));
}

#[test]
fn rfc9110_7_6_1_fields_that_end_at_the_hop() {
    let owned = request(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: X-One, x-two\r\nKeep-Alive: 5\r\nTE: trailers\r\n\
         X-One: 1\r\nProxy-Connection: x\r\nUpgrade: h2c\r\nAccept: */*\r\nX-TWO: 2\r\n\
         Trailer: X\r\nConnection: vary, cache-control\r\nProxy-Authorization: x\r\nX-Three: 3\r\n\
         Cache-Control: no-cache\r\n\r\n",
    );
    let kept: Vec<_> = owned.head().fields.end_to_end().map(|field| field.name()).collect();
    assert_eq!(kept, [&b"Host"[..], b"Accept", b"X-Three", b"Cache-Control"]);
    assert!(http1::is_hop_by_hop(b"keep-alive"));
    assert!(!http1::is_hop_by_hop(b"x-one"));
}

/// The next recipient never gets such a field, so nothing here may decide by it.
#[test]
fn rfc9110_7_6_1_a_field_that_connection_names_is_in_no_list() {
    let names = "Connection: close, origin, Range, X-One\r\nConnection: upgrade, te, If-None-Match";
    let lines = "Origin: o\r\nAccept: a\r\nRange: bytes=0-1\r\nx-one: 1\r\nIf-None-Match: *\r\n\
                 TE: trailers\r\nX-One: 2\r\nUpgrade: x\r\nX-Two: 3\r\nOrigin: p\r\n";
    let owned = request(&format!("GET / HTTP/1.1\r\nHost: a\r\n{names}\r\n{lines}\r\n"));
    let again = owned.head().detach();
    for head in [owned.head(), again.head()] {
        let fields = head.fields;
        for name in [Name::Origin, Name::Range, Name::IfNoneMatch] {
            assert!(!fields.has(name) && !fields.is_repeated(name), "{name:?}");
            assert_eq!((fields.get(name), fields.count(name)), (None, 0), "{name:?}");
        }
        assert_eq!(fields.values(b"X-One").count(), 0);
        // What belongs to the connection anyway is for us.
        assert_eq!(fields.get(Name::Te), Some(&b"trailers"[..]));
        assert_eq!(fields.get(Name::Upgrade), Some(&b"x"[..]));
        assert_eq!(fields.get(Name::Accept), Some(&b"a"[..]));
        let all: Vec<_> = fields.iter().map(|(name, _)| name).collect();
        let rest = ["Host", "Connection", "Connection", "Accept", "TE", "Upgrade", "X-Two"];
        assert_eq!(all, rest.map(str::as_bytes));
        let ours: Vec<_> = fields.for_this_hop(b"X-One").collect();
        assert_eq!(ours, [b"1", b"2"]);
        assert_eq!(fields.for_this_hop(b"X-Two").count(), 0, "Connection does not name it");
    }
    let owned = response("HTTP/1.1 200 OK\r\nConnection: etag, vary\r\nETag: x\r\nVary: a\r\n\r\n");
    assert!(!owned.head().fields.has(Name::Etag));
    assert!(owned.head().fields.has(Name::Vary), "it is for all recipients");
}

/// CGI, WSGI and PHP read `X_A`, and some of them `X.A`, as `X-A`.
#[test]
fn what_the_last_head_set_aside_is_not_in_the_next_one() {
    let mut scratch = Scratch::new();
    for (head, count) in [
        (&b"GET / HTTP/1.1\r\nHost: a\r\nX-One: 1\r\nConnection: x-one\r\n\r\n"[..], 1),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 0),
    ] {
        let parsed = parse_request(head, &mut scratch, &Limits::DEFAULT).unwrap().unwrap();
        assert_eq!(parsed.fields.for_this_hop(b"X-One").count(), count);
    }
}

#[test]
fn rfc3875_4_1_18_fields_with_other_names_are_set_aside_if_the_limits_say_so() {
    let text = "GET / HTTP/1.1\r\nHost: a\r\nX_A: 1\r\nX-A: 2\r\nx.a: 3\r\nX~A: 4\r\nX!a: 5\r\n\
                Content_Length: 7\r\nX-9: 6\r\n\r\n";
    let mut limits = Limits::default();
    assert_eq!(request(text).head().fields.len(), 8, "by default there are all");
    limits.names = FieldNames::Plain;
    let mut scratch = Scratch::new();
    let head = parse_request(text.as_bytes(), &mut scratch, &limits).unwrap().unwrap();
    let names: Vec<_> = head.fields.iter().map(|(name, _)| name).collect();
    assert_eq!(names, [&b"Host"[..], b"X-A", b"X-9"]);
    assert_eq!(head.body(), BodyKind::None);
    // Of a response, every field stays.
    let owned = response("HTTP/1.1 200 OK\r\nX_A: 1\r\n\r\n");
    assert_eq!(owned.head().fields.values(b"X_A").count(), 1);
    let trailers = [(&b"X-A"[..], &b"1"[..]), (b"X_A", b"2"), (b"Host", b"b")];
    assert_eq!(write::request_trailers(trailers.into_iter()), b"X-A: 1\r\n");
}

/// Without them a recipient would read another request, or another length of it.
#[test]
fn rfc9110_7_6_1_fields_for_all_recipients_stay_although_connection_names_them() {
    let text = "POST / HTTP/1.1\r\nHost: a\r\nConnection: host, close, content-length, via\r\n\
                Content-Length: 3\r\nVia: 1.1 x\r\n\r\n";
    let owned = request(text);
    let head = owned.head();
    assert_eq!((head.host(), head.body()), (Some(&b"a"[..]), BodyKind::Length(3)));
    let kept: Vec<_> = head.fields.end_to_end().map(|field| field.name()).collect();
    assert_eq!(kept, [&b"Host"[..], b"Content-Length", b"Via"]);
}

#[test]
fn rfc9112_9_3_2_pipelined_requests_are_taken_one_by_one() {
    let mut rest: &[u8] = b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /2 HTTP/1.1\r\nHost: a\r\n\
        Content-Length: 3\r\n\r\nabcGET /3 HTTP/1.1\r\nHost: a\r\n\r\nGET /4";
    let mut scratch = Scratch::new();
    let mut seen = Vec::new();
    while let Some(head) = parse_request(rest, &mut scratch, &Limits::DEFAULT).unwrap() {
        let mut body = BodyDecoder::new(head.body(), &Limits::DEFAULT);
        let step = body.decode(&rest[head.head_bytes..]).unwrap();
        assert!(step.done);
        seen.push(head.target_bytes.to_vec());
        rest = &rest[head.head_bytes + step.consumed..];
    }
    assert_eq!(seen, [b"/1", b"/2", b"/3"]);
    assert_eq!(rest, b"GET /4");
}

#[test]
fn rfc9112_7_1_chunks_come_as_ranges_of_the_input() {
    let input = b"5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 1 \r\nY:\r\n\r\nGET";
    let mut decoder = BodyDecoder::new(BodyKind::Chunked, &Limits::DEFAULT);
    decoder.keep_trailers();
    let first = decoder.decode(input).unwrap();
    assert_eq!(&input[first.data.clone()], b"hello");
    assert!(!first.done);
    let rest = &input[first.consumed..];
    let second = decoder.decode(rest).unwrap();
    assert_eq!(&rest[second.data.clone()], b" world");
    assert!(second.done, "the last chunk and the trailers are taken along");
    assert_eq!(&rest[second.consumed..], b"GET");
    let trailers: Vec<_> = trailer_fields(decoder.trailers().unwrap()).collect();
    assert_eq!(trailers, [(&b"X-Sum"[..], &b"1"[..]), (b"Y", b"")]);
    let done = Step { consumed: 0, data: 0..0, done: true };
    assert_eq!(decoder.decode(b"GET"), Ok(done), "nothing of what follows is touched");
}

#[test]
fn rfc9112_8_a_close_ends_only_bodies_without_a_length() {
    let end = |kind, input: &[u8]| {
        let mut decoder = BodyDecoder::new(kind, &Limits::DEFAULT);
        decoder.decode(input).unwrap();
        decoder.finish_on_close()
    };
    assert_eq!(end(BodyKind::None, b""), Ok(()));
    assert_eq!(end(BodyKind::Length(0), b""), Ok(()));
    assert_eq!(end(BodyKind::Length(3), b"abcd"), Ok(()));
    assert_eq!(end(BodyKind::Length(3), b"ab"), Err(Truncated));
    assert_eq!(end(BodyKind::UntilClose, b"ab"), Ok(()));
    assert_eq!(end(BodyKind::Chunked, b"0\r\n\r\n"), Ok(()));
    assert_eq!(end(BodyKind::Chunked, b"0\r\n"), Err(Truncated));
}

#[test]
fn the_remaining_length_is_known_if_it_was_announced() {
    let mut decoder = BodyDecoder::new(BodyKind::Length(10), &Limits::DEFAULT);
    decoder.decode(b"abc").unwrap();
    assert_eq!(decoder.remaining(), 7);
    let mut decoder = BodyDecoder::new(BodyKind::Chunked, &Limits::DEFAULT);
    decoder.decode(b"ff\r\nabc").unwrap();
    assert_eq!(decoder.remaining(), 252);
}
