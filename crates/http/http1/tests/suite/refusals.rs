//! What is refused and with which status, each with a well-formed control that passes.
//!
//! A refusal alone proves little, because a parser that refuses everything would pass. So each row
//! has two inputs that differ only in what the rule is about.

use http1::RejectReason::{self, *};
use http1::{BodyDecoder, BodyKind, Limits, Method, Scratch, parse_request, parse_response};

/// Reason, status, refused, control. `␍`, `␊`, `␀` are CR, LF, NUL; a line ends with `⏎`.
type Row = (RejectReason, u16, &'static str, &'static str);

fn bytes(text: &str) -> Vec<u8> {
    text.replace('⏎', "\r\n").replace('␍', "\r").replace('␊', "\n").replace('␀', "\0").into()
}

fn request(input: &[u8], limits: &Limits) -> Result<bool, (RejectReason, u16)> {
    parse_request(input, &mut Scratch::new(), limits)
        .map(|head| head.is_some())
        .map_err(|reject| (reject.reason, reject.status))
}

fn check(rows: &[Row], parse: impl Fn(&[u8]) -> Result<bool, (RejectReason, u16)>) {
    for &(reason, status, refused, control) in rows {
        assert_eq!(parse(&bytes(refused)), Err((reason, status)), "{refused}");
        assert_eq!(parse(&bytes(control)), Ok(true), "{control}");
    }
}

#[test]
fn request_lines() {
    let end = "⏎Host: a⏎⏎";
    #[rustfmt::skip]
    let rows = [
        (EmptyLines, 400, "⏎⏎GET / HTTP/1.1", "⏎GET / HTTP/1.1"),
        (BareLf, 400, "␊GET / HTTP/1.1", "⏎GET / HTTP/1.1"),
        (BareCr, 400, "␍GET / HTTP/1.1", "⏎GET / HTTP/1.1"),
        (MalformedRequestLine, 400, "GET /", "GET / HTTP/1.0"),
        (MalformedRequestLine, 400, "GET", "GET / HTTP/1.0"),
        (MalformedRequestLine, 400, "GET  / HTTP/1.1", "GET / HTTP/1.1"),
        (MalformedVersion, 400, "GET /  HTTP/1.1", "GET / HTTP/1.1"),
        (MalformedRequestLine, 400, "GET / HTTP/1.1 ", "GET / HTTP/1.1"),
        (MalformedRequestLine, 400, "GET / HTTP/1.10", "GET / HTTP/1.1"),
        (InvalidMethod, 400, " GET / HTTP/1.1", "GET / HTTP/1.1"),
        (InvalidMethod, 400, "GE{T / HTTP/1.1", "GE-T / HTTP/1.1"),
        (InvalidMethod, 400, "GET\t/ HTTP/1.1", "GET / HTTP/1.1"),
        (MethodTooLong, 501, "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG / HTTP/1.1",
            "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF / HTTP/1.1"),
        (InvalidTarget, 400, "GET /a\tb HTTP/1.1", "GET /a%09b HTTP/1.1"),
        (InvalidTarget, 400, "GET /a\"b HTTP/1.1", "GET /a%22b HTTP/1.1"),
        (InvalidTarget, 400, "GET /a<b HTTP/1.1", "GET /a%3Cb HTTP/1.1"),
        (InvalidTarget, 400, "GET /a#b HTTP/1.1", "GET /a%23b HTTP/1.1"),
        (InvalidTarget, 400, "GET /a\\b HTTP/1.1", "GET /a%5Cb HTTP/1.1"),
        (InvalidTarget, 400, "GET /a\\b?c HTTP/1.1", "GET /a?b\\c HTTP/1.1"),
        (InvalidTarget, 400, "GET http://h/a\\b HTTP/1.1", "GET http://h/?a\\b HTTP/1.1"),
        (InvalidTarget, 400, "GET /é HTTP/1.1", "GET /%C3%A9 HTTP/1.1"),
        (Nul, 400, "GET /␀ HTTP/1.1", "GET /%00 HTTP/1.1"),
        (InvalidPercentEncoding, 400, "GET /a%2 HTTP/1.1", "GET /a%20 HTTP/1.1"),
        (InvalidPercentEncoding, 400, "GET /a%2?b HTTP/1.1", "GET /a?b%2 HTTP/1.1"),
        (TargetForm, 400, "GET * HTTP/1.1", "OPTIONS * HTTP/1.1"),
        (TargetForm, 400, "GET a:80 HTTP/1.1", "CONNECT a:80 HTTP/1.1"),
        (TargetForm, 400, "OPTIONS a:80 HTTP/1.1", "CONNECT a:80 HTTP/1.1"),
        (TargetForm, 400, "CONNECT / HTTP/1.1", "GET / HTTP/1.1"),
        (TargetForm, 400, "CONNECT * HTTP/1.1", "OPTIONS * HTTP/1.1"),
        (TargetForm, 400, "CONNECT http://a:80/ HTTP/1.1", "GET http://a:80/ HTTP/1.1"),
        (TargetForm, 400, "GET path HTTP/1.1", "GET /path HTTP/1.1"),
        (TargetForm, 400, "GET mailto:a HTTP/1.1", "GET ftp://a/ HTTP/1.1"),
        (TargetForm, 400, "GET 1x://a/ HTTP/1.1", "GET x1://a/ HTTP/1.1"),
        (InvalidAuthority, 400, "CONNECT a HTTP/1.1", "CONNECT a:443 HTTP/1.1"),
        (InvalidAuthority, 400, "CONNECT a: HTTP/1.1", "CONNECT a:443 HTTP/1.1"),
        (InvalidAuthority, 400, "CONNECT a:0 HTTP/1.1", "CONNECT a:1 HTTP/1.1"),
        (InvalidAuthority, 400, "CONNECT :443 HTTP/1.1", "CONNECT a:443 HTTP/1.1"),
        (InvalidAuthority, 400, "GET http:/// HTTP/1.1", "GET http://a/ HTTP/1.1"),
        (InvalidAuthority, 400, "GET http://:80/ HTTP/1.1", "GET http://a:80/ HTTP/1.1"),
        (InvalidAuthority, 400, "GET http://a:65536/ HTTP/1.1", "GET http://a:65535/ HTTP/1.1"),
        (InvalidAuthority, 400, "GET http://[::1 HTTP/1.1", "GET http://[::1]/ HTTP/1.1"),
        (InvalidAuthority, 400, "GET http://[::g]/ HTTP/1.1", "GET http://[::f]/ HTTP/1.1"),
        (InvalidAuthority, 400, "GET http://a../ HTTP/1.1", "GET http://a./ HTTP/1.1"),
        (InvalidAuthority, 400, "GET http://.a/ HTTP/1.1", "GET http://a/ HTTP/1.1"),
        (InvalidAuthority, 400, "CONNECT a..b:443 HTTP/1.1", "CONNECT a.b:443 HTTP/1.1"),
        (InvalidAuthority, 400, "GET http://a%2/ HTTP/1.1", "GET http://a%20/ HTTP/1.1"),
        (UserInfo, 400, "GET http://u@a/ HTTP/1.1", "GET http://a/u@a HTTP/1.1"),
        (UserInfo, 400, "CONNECT u:p@a:80 HTTP/1.1", "CONNECT a:80 HTTP/1.1"),
        (MalformedVersion, 400, "GET / HTTP/1", "GET / HTTP/1.1"),
        (MalformedVersion, 400, "GET / HTTP/1,1", "GET / HTTP/1.1"),
        (MalformedVersion, 400, "GET / http/1.1", "GET / HTTP/1.1"),
        (MalformedVersion, 400, "GET / HTTPS/1.1", "GET / HTTP/1.1"),
        (UnsupportedVersion, 505, "GET / HTTP/2.0", "GET / HTTP/1.2"),
        (UnsupportedVersion, 505, "GET / HTTP/0.9", "GET / HTTP/1.0"),
        (UnsupportedVersion, 505, "PRI * HTTP/2.0", "OPTIONS * HTTP/1.1"),
    ];
    for (reason, status, refused, control) in rows {
        let parse = |line: &str| request(&bytes(&format!("{line}{end}")), &Limits::DEFAULT);
        assert_eq!(parse(refused), Err((reason, status)), "{refused}");
        assert_eq!(parse(control), Ok(true), "{control}");
    }
}

#[test]
fn field_lines() {
    #[rustfmt::skip]
    let rows = [
        (BareLf, 400, "GET / HTTP/1.1␊Host: a⏎⏎", "GET / HTTP/1.1⏎Host: a⏎⏎"),
        (BareLf, 400, "GET / HTTP/1.1⏎Host: a␊X: b⏎⏎", "GET / HTTP/1.1⏎Host: a⏎X: b⏎⏎"),
        (BareLf, 400, "GET / HTTP/1.1⏎Host: a␊⏎", "GET / HTTP/1.1⏎Host: a⏎⏎"),
        (BareLf, 400, "GET / HTTP/1.1⏎Host: a⏎␊", "GET / HTTP/1.1⏎Host: a⏎⏎"),
        (BareLf, 400, "GET / HTTP/1.1⏎Host: a⏎X␊: b⏎⏎", "GET / HTTP/1.1⏎Host: a⏎X: b⏎⏎"),
        (BareCr, 400, "GET / HTTP/1.1␍Host: a⏎⏎", "GET / HTTP/1.1⏎Host: a⏎⏎"),
        (BareCr, 400, "GET / HTTP/1.1⏎Host: a⏎X: a␍b⏎⏎", "GET / HTTP/1.1⏎Host: a⏎X: a b⏎⏎"),
        (BareCr, 400, "GET / HTTP/1.1⏎Host: a⏎X: a␍⏎⏎", "GET / HTTP/1.1⏎Host: a⏎X: a⏎⏎"),
        (BareCr, 400, "GET / HTTP/1.1⏎Host: a⏎␍X: b⏎⏎", "GET / HTTP/1.1⏎Host: a⏎X: b⏎⏎"),
        (BareCr, 400, "GET / HTTP/1.1⏎Host: a⏎␍␍␊", "GET / HTTP/1.1⏎Host: a⏎⏎"),
        (Nul, 400, "GET / HTTP/1.1⏎Host: a⏎X: ␀⏎⏎", "GET / HTTP/1.1⏎Host: a⏎X: ⏎⏎"),
        (Nul, 400, "GET / HTTP/1.1⏎Host: a⏎X␀: b⏎⏎", "GET / HTTP/1.1⏎Host: a⏎X: b⏎⏎"),
        (ObsFold, 400, "GET / HTTP/1.1⏎Host: a⏎X: b⏎ c⏎⏎", "GET / HTTP/1.1⏎Host: a⏎X: b c⏎⏎"),
        (ObsFold, 400, "GET / HTTP/1.1⏎Host:⏎\ta⏎⏎", "GET / HTTP/1.1⏎Host:\ta⏎⏎"),
        (SpaceBeforeFields, 400, "GET / HTTP/1.1⏎ Host: a⏎⏎", "GET / HTTP/1.1⏎Host: a⏎⏎"),
        (SpaceBeforeColon, 400, "GET / HTTP/1.1⏎Host : a⏎⏎", "GET / HTTP/1.1⏎Host:  a⏎⏎"),
        (SpaceBeforeColon, 400, "GET / HTTP/1.1⏎Host\t: a⏎⏎", "GET / HTTP/1.1⏎Host:\ta⏎⏎"),
        (EmptyFieldName, 400, "GET / HTTP/1.1⏎Host: a⏎: b⏎⏎", "GET / HTTP/1.1⏎Host: a⏎X: b⏎⏎"),
        (InvalidFieldName, 400, "GET / HTTP/1.1⏎Host: a⏎X/: b⏎⏎",
            "GET / HTTP/1.1⏎Host: a⏎X|: b⏎⏎"),
        (InvalidFieldName, 400, "GET / HTTP/1.1⏎Host: a⏎é: b⏎⏎", "GET / HTTP/1.1⏎Host: a⏎e: é⏎⏎"),
        (MissingColon, 400, "GET / HTTP/1.1⏎Host: a⏎X⏎⏎", "GET / HTTP/1.1⏎Host: a⏎X:⏎⏎"),
        (InvalidFieldValue, 400, "GET / HTTP/1.1⏎Host: a⏎X: \x0b⏎⏎",
            "GET / HTTP/1.1⏎Host: a⏎X: \t⏎⏎"),
        (InvalidFieldValue, 400, "GET / HTTP/1.1⏎Host: a⏎X: a\x7f⏎⏎",
            "GET / HTTP/1.1⏎Host: a⏎X: a~⏎⏎"),
        (MissingHost, 400, "GET / HTTP/1.1⏎⏎", "GET / HTTP/1.0⏎⏎"),
        (MissingHost, 400, "GET http://a/ HTTP/1.1⏎⏎", "GET http://a/ HTTP/1.1⏎Host: b⏎⏎"),
        (RepeatedHost, 400, "GET / HTTP/1.1⏎Host: a⏎hOST: a⏎⏎",
            "GET / HTTP/1.1⏎Host: a⏎Hos: a⏎⏎"),
        (RepeatedHost, 400, "GET / HTTP/1.0⏎Host: a⏎Host: b⏎⏎", "GET / HTTP/1.0⏎Host: a⏎⏎"),
        (InvalidHost, 400, "GET / HTTP/1.1⏎Host:⏎⏎", "GET / HTTP/1.1⏎Host:a⏎⏎"),
        (InvalidHost, 400, "GET / HTTP/1.1⏎Host: a..⏎⏎", "GET / HTTP/1.1⏎Host: a.⏎⏎"),
        (InvalidHost, 400, "GET / HTTP/1.1⏎Host: a..:80⏎⏎", "GET / HTTP/1.1⏎Host: a.:80⏎⏎"),
        (InvalidHost, 400, "GET / HTTP/1.1⏎Host: a..b⏎⏎", "GET / HTTP/1.1⏎Host: a.b⏎⏎"),
        (InvalidHost, 400, "GET / HTTP/1.1⏎Host: .⏎⏎", "GET / HTTP/1.1⏎Host: a⏎⏎"),
        (InvalidHost, 400, "GET / HTTP/1.1⏎Host: a, b⏎⏎", "GET / HTTP/1.1⏎Host: a⏎⏎"),
        (InvalidHost, 400, "GET / HTTP/1.1⏎Host: a/b⏎⏎", "GET / HTTP/1.1⏎Host: a-b⏎⏎"),
        (InvalidHost, 400, "GET / HTTP/1.1⏎Host: u@a⏎⏎", "GET / HTTP/1.1⏎Host: u_a⏎⏎"),
        (InvalidHost, 400, "GET / HTTP/1.1⏎Host: a:b⏎⏎", "GET / HTTP/1.1⏎Host: a:1⏎⏎"),
        (InvalidHost, 400, "GET / HTTP/1.1⏎Host: ::1⏎⏎", "GET / HTTP/1.1⏎Host: [::1]⏎⏎"),
        (InvalidHost, 400, "GET / HTTP/1.1⏎Host: [::1]a⏎⏎", "GET / HTTP/1.1⏎Host: [::1]:⏎⏎"),
        (InvalidHost, 400, "GET / HTTP/1.1⏎Host: é⏎⏎", "GET / HTTP/1.1⏎Host: xn--9ca⏎⏎"),
    ];
    check(&rows, |input| request(input, &Limits::DEFAULT));
}

/// The framing fields of a request, and those of the control.
#[test]
fn request_framing() {
    #[rustfmt::skip]
    let rows = [
        (LengthWithEncoding, 400, "Content-Length: 5⏎Transfer-Encoding: chunked",
            "Transfer-Encoding: chunked"),
        (LengthWithEncoding, 400, "transfer-encoding: chunked⏎content-length: 0",
            "content-length: 0"),
        (RepeatedLength, 400, "Content-Length: 5⏎Content-Length: 6", "Content-Length: 5"),
        (RepeatedLength, 400, "Content-Length: 5⏎Content-Length: 5", "Content-Length: 5"),
        (InvalidLength, 400, "Content-Length: 5, 5", "Content-Length: 5"),
        (InvalidLength, 400, "Content-Length: 5 5", "Content-Length: 55"),
        (InvalidLength, 400, "Content-Length:", "Content-Length: 0"),
        (InvalidLength, 400, "Content-Length: +5", "Content-Length: 5"),
        (InvalidLength, 400, "Content-Length: -5", "Content-Length: 05"),
        (InvalidLength, 400, "Content-Length: 0x5", "Content-Length: 5"),
        (InvalidLength, 400, "Content-Length: 5.0", "Content-Length: 5"),
        (InvalidLength, 400, "Content-Length: five", "Content-Length: 5"),
        (InvalidLength, 400, "Content-Length: 18446744073709551616",
            "Content-Length: 18446744073709551615"),
        (MalformedEncoding, 400, "Transfer-Encoding:", "Transfer-Encoding: chunked"),
        (MalformedEncoding, 400, "Transfer-Encoding: ,chunked", "Transfer-Encoding: chunked"),
        (MalformedEncoding, 400, "Transfer-Encoding: chunked,", "Transfer-Encoding: chunked"),
        (MalformedEncoding, 400, "Transfer-Encoding: chunked x", "Transfer-Encoding: chunked"),
        (MalformedEncoding, 400, "Transfer-Encoding: chunked;q=1", "Transfer-Encoding: chunked"),
        (MalformedEncoding, 400, "Transfer-Encoding: \x22chunked\x22",
            "Transfer-Encoding: CHUNKED"),
        (ChunkedNotLast, 400, "Transfer-Encoding: gzip", "Transfer-Encoding: chunked"),
        (ChunkedNotLast, 400, "Transfer-Encoding: identity", "Transfer-Encoding: chunked"),
        (ChunkedNotLast, 400, "Transfer-Encoding: xchunked", "Transfer-Encoding: chunked"),
        (ChunkedNotLast, 400, "Transfer-Encoding: chunked, gzip", "Transfer-Encoding: chunked"),
        (ChunkedNotLast, 400, "Transfer-Encoding: chunked⏎Transfer-Encoding: x",
            "Transfer-Encoding: chunked⏎X: x"),
        (ChunkedRepeated, 400, "Transfer-Encoding: chunked, chunked",
            "Transfer-Encoding: chunked"),
        (ChunkedRepeated, 400, "Transfer-Encoding: chunked⏎Transfer-Encoding: chunked",
            "Transfer-Encoding: chunked"),
        (UnknownCoding, 501, "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked"),
        (UnknownCoding, 501, "Transfer-Encoding: x;a=b⏎Transfer-Encoding: chunked",
            "Transfer-Encoding: chunked"),
    ];
    for (reason, status, refused, control) in rows {
        let parse = |fields: &str| {
            let head = format!("POST / HTTP/1.1⏎Host: a⏎{fields}⏎⏎");
            request(&bytes(&head), &Limits::DEFAULT)
        };
        assert_eq!(parse(refused), Err((reason, status)), "{refused}");
        assert_eq!(parse(control), Ok(true), "{control}");
    }
    #[rustfmt::skip]
    let rows = [
        (EncodingInHttp10, 400, "POST / HTTP/1.0⏎Host: a⏎Transfer-Encoding: chunked⏎⏎",
            "POST / HTTP/1.1⏎Host: a⏎Transfer-Encoding: chunked⏎⏎"),
        (ContentWithConnect, 400, "CONNECT a:1 HTTP/1.1⏎Host: a⏎Content-Length: 1⏎⏎",
            "CONNECT a:1 HTTP/1.1⏎Host: a⏎Content-Length: 0⏎⏎"),
        (ContentWithConnect, 400, "CONNECT a:1 HTTP/1.1⏎Host: a⏎Transfer-Encoding: chunked⏎⏎",
            "CONNECT a:1 HTTP/1.1⏎Host: a⏎⏎"),
    ];
    check(&rows, |input| request(input, &Limits::DEFAULT));
}

#[test]
fn requests_over_their_limits() {
    const HEAD: &str = "POST /1234 HTTP/1.1⏎Host: a⏎X: b⏎Content-Length: 99⏎⏎";
    let exact = {
        let mut limits = Limits::default();
        limits.head_bytes_max = bytes(HEAD).len();
        limits.fields_max = 3;
        limits.target_bytes_max = 5;
        limits.content_bytes_max = 99;
        limits
    };
    type Narrow = fn(&mut Limits);
    let rows: [(RejectReason, u16, Narrow); 4] = [
        (HeadTooLarge, 431, |limits| limits.head_bytes_max -= 1),
        (TooManyFields, 431, |limits| limits.fields_max -= 1),
        (TargetTooLong, 414, |limits| limits.target_bytes_max -= 1),
        (ContentTooLarge, 413, |limits| limits.content_bytes_max -= 1),
    ];
    assert_eq!(request(&bytes(HEAD), &exact), Ok(true));
    for (reason, status, narrow) in rows {
        let mut limits = exact.clone();
        narrow(&mut limits);
        assert_eq!(request(&bytes(HEAD), &limits), Err((reason, status)));
    }
    // Already too long, although incomplete.
    let endless = bytes("GET / HTTP/1.1⏎Host: a⏎X: ").into_iter().chain([b'a'; 99]);
    assert_eq!(request(&endless.collect::<Vec<_>>(), &exact), Err((HeadTooLarge, 431)));
    assert_eq!(request(b"GET /12345", &exact), Err((TargetTooLong, 414)));
    let options = |count| {
        let names = "a,".repeat(count);
        request(&bytes(&format!("GET / HTTP/1.1⏎Host: a⏎Connection: {names}⏎⏎")), &Limits::DEFAULT)
    };
    assert_eq!(options(http1::CONNECTION_OPTIONS_MAX), Ok(true));
    assert_eq!(options(http1::CONNECTION_OPTIONS_MAX + 1), Err((TooManyOptions, 431)));
    let many = |count| {
        let fields = "a:b⏎".repeat(count - 1);
        request(&bytes(&format!("GET / HTTP/1.1⏎Host: a⏎{fields}⏎")), &Limits::DEFAULT)
    };
    assert_eq!(many(http1::FIELDS_CEILING), Ok(true));
    assert_eq!(many(http1::FIELDS_CEILING + 1), Err((TooManyFields, 431)));
}

#[test]
fn responses() {
    #[rustfmt::skip]
    let rows = [
        (MalformedVersion, 502, "ICY 200 OK⏎⏎", "HTTP/1.0 200 OK⏎⏎"),
        (MalformedVersion, 502, "⏎HTTP/1.1 200 OK⏎⏎", "HTTP/1.1 200 OK⏎⏎"),
        (UnsupportedVersion, 502, "HTTP/2.0 200 OK⏎⏎", "HTTP/1.1 200 OK⏎⏎"),
        (MalformedStatusLine, 502, "HTTP/1.1  200 OK⏎⏎", "HTTP/1.1 200  OK⏎⏎"),
        (MalformedStatusLine, 502, "HTTP/1.1 20 OK⏎⏎", "HTTP/1.1 200 OK⏎⏎"),
        (MalformedStatusLine, 502, "HTTP/1.1 2000⏎⏎", "HTTP/1.1 200⏎⏎"),
        (MalformedStatusLine, 502, "HTTP/1.1 +20 OK⏎⏎", "HTTP/1.1 200 ⏎⏎"),
        (MalformedStatusLine, 502, "HTTP/1.1 200 \x01⏎⏎", "HTTP/1.1 200 \t⏎⏎"),
        (InvalidStatus, 502, "HTTP/1.1 099 OK⏎⏎", "HTTP/1.1 100 OK⏎⏎"),
        (InvalidStatus, 502, "HTTP/1.1 600 OK⏎⏎", "HTTP/1.1 599 OK⏎⏎"),
        (BareLf, 502, "HTTP/1.1 200 OK␊⏎", "HTTP/1.1 200 OK⏎⏎"),
        (BareCr, 502, "HTTP/1.1 200 O␍K⏎⏎", "HTTP/1.1 200 OK⏎⏎"),
        (Nul, 502, "HTTP/1.1 200 O␀K⏎⏎", "HTTP/1.1 200 OK⏎⏎"),
        (ObsFold, 502, "HTTP/1.1 200 OK⏎A: b⏎ c⏎⏎", "HTTP/1.1 200 OK⏎A: b c⏎⏎"),
        (SpaceBeforeColon, 502, "HTTP/1.1 200 OK⏎A : b⏎⏎", "HTTP/1.1 200 OK⏎A: b⏎⏎"),
        (LengthWithEncoding, 502,
            "HTTP/1.1 200 OK⏎Content-Length: 1⏎Transfer-Encoding: chunked⏎⏎",
            "HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎"),
        (RepeatedLength, 502, "HTTP/1.1 200 OK⏎Content-Length: 1⏎Content-Length: 1⏎⏎",
            "HTTP/1.1 200 OK⏎Content-Length: 1⏎⏎"),
        (InvalidLength, 502, "HTTP/1.1 200 OK⏎Content-Length: 1,1⏎⏎",
            "HTTP/1.1 200 OK⏎Content-Length: 11⏎⏎"),
        (EncodingInHttp10, 502, "HTTP/1.0 200 OK⏎Transfer-Encoding: chunked⏎⏎",
            "HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎"),
        (ChunkedNotLast, 502, "HTTP/1.1 200 OK⏎Transfer-Encoding: gzip⏎⏎",
            "HTTP/1.1 200 OK⏎Content-Encoding: gzip⏎⏎"),
        (UnknownCoding, 502, "HTTP/1.1 200 OK⏎Transfer-Encoding: gzip, chunked⏎⏎",
            "HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎"),
    ];
    check(&rows, |input| {
        let mut scratch = Scratch::new();
        match parse_response(input, &mut scratch, &Limits::DEFAULT) {
            Ok(head) => Ok(head.is_some_and(|head| head.body(Method::Get).is_ok())),
            Err(reject) => Err((reject.reason, reject.status)),
        }
    });
}

#[test]
fn chunks() {
    let mut limits = Limits::default();
    limits.chunk_line_bytes_max = 12;
    limits.extension_bytes_max = 14;
    limits.trailer_bytes_max = 8;
    limits.content_bytes_max = 20;
    #[rustfmt::skip]
    let rows = [
        (InvalidChunkSize, 400, "⏎0⏎⏎", "0⏎⏎"),
        (InvalidChunkSize, 400, ";a⏎0⏎⏎", "0;a⏎⏎"),
        (InvalidChunkSize, 400, "+1⏎a⏎0⏎⏎", "1⏎a⏎0⏎⏎"),
        (InvalidChunkSize, 400, "-1⏎a⏎0⏎⏎", "1⏎a⏎0⏎⏎"),
        (InvalidChunkSize, 400, "0x1⏎a⏎0⏎⏎", "01⏎a⏎0⏎⏎"),
        (InvalidChunkSize, 400, " 1⏎a⏎0⏎⏎", "1⏎a⏎0⏎⏎"),
        (InvalidChunkSize, 400, "1 ⏎a⏎0⏎⏎", "1 ;⏎a⏎0⏎⏎"),
        (InvalidChunkSize, 400, "1 1⏎a⏎0⏎⏎", "1⏎a⏎0⏎⏎"),
        (InvalidChunkSize, 400, "1g⏎a⏎0⏎⏎", "1⏎a⏎0⏎⏎"),
        (ChunkLineTooLong, 400, "00000000001⏎a⏎0⏎⏎", "0000000001⏎a⏎0⏎⏎"),
        (ChunkLineTooLong, 400, "1;234567890⏎a⏎0⏎⏎", "1;23456789⏎a⏎0⏎⏎"),
        (ExtensionsTooLarge, 400, "1;23456⏎a⏎1;23456⏎a⏎1;⏎a⏎0⏎⏎", "1;23456⏎a⏎1;2345⏎a⏎0⏎⏎"),
        (InvalidChunkExtension, 400, "1;\x01⏎a⏎0⏎⏎", "1;\t⏎a⏎0⏎⏎"),
        (InvalidChunkExtension, 400, "1;␀⏎a⏎0⏎⏎", "1;⏎a⏎0⏎⏎"),
        (BareLf, 400, "1␊a⏎0⏎⏎", "1⏎a⏎0⏎⏎"),
        (BareLf, 400, "1;␊a⏎0⏎⏎", "1;⏎a⏎0⏎⏎"),
        (BareCr, 400, "1␍a⏎0⏎⏎", "1⏎a⏎0⏎⏎"),
        (MissingChunkEnd, 400, "1⏎a0⏎⏎", "1⏎a⏎0⏎⏎"),
        (MissingChunkEnd, 400, "1⏎a␊0⏎⏎", "1⏎a⏎0⏎⏎"),
        (MissingChunkEnd, 400, "1⏎a␍0⏎⏎", "1⏎a⏎0⏎⏎"),
        (MissingChunkEnd, 400, "1⏎ab⏎0⏎⏎", "2⏎ab⏎0⏎⏎"),
        (MissingChunkEnd, 400, "1⏎ab␊0⏎⏎", "2⏎ab⏎0⏎⏎"),
        (ContentTooLarge, 400 + 13, "a⏎0123456789⏎b⏎0123456789a⏎0⏎⏎",
            "a⏎0123456789⏎a⏎0123456789⏎0⏎⏎"),
        (TrailersTooLarge, 431, "0⏎A:bcd⏎⏎", "0⏎A:bc⏎⏎"),
        (BareLf, 400, "0⏎␊", "0⏎⏎"),
        (BareLf, 400, "0⏎A:␊⏎", "0⏎A:⏎⏎"),
        (BareCr, 400, "0⏎␍A", "0⏎⏎"),
        (BareCr, 400, "0⏎A:␍b⏎⏎", "0⏎A:b⏎⏎"),
        (Nul, 400, "0⏎A:␀⏎⏎", "0⏎A:⏎⏎"),
        (ObsFold, 400, "0⏎A:⏎ b⏎⏎", "0⏎A: b⏎⏎"),
        (SpaceBeforeColon, 400, "0⏎A :⏎⏎", "0⏎A: ⏎⏎"),
        (EmptyFieldName, 400, "0⏎:b⏎⏎", "0⏎A:b⏎⏎"),
        (MissingColon, 400, "0⏎A⏎⏎", "0⏎A:⏎⏎"),
        (InvalidFieldName, 400, "0⏎A{:⏎⏎", "0⏎A|:⏎⏎"),
        (InvalidFieldValue, 400, "0⏎A:\x01⏎⏎", "0⏎A:\t⏎⏎"),
    ];
    check(&rows, |input| decode(input, &limits));
    let wide = Limits::default();
    assert_eq!(decode(b"10000000000000000\r\n", &wide), Err((ChunkSizeOverflow, 400)));
    assert_eq!(decode(b"ffffffffffffffff\r\n", &wide), Ok(false));
    let mut of_response = BodyDecoder::for_response(BodyKind::Chunked, &wide);
    assert_eq!(of_response.decode(b"x").map_err(|reject| reject.status), Err(502));
}

fn decode(mut input: &[u8], limits: &Limits) -> Result<bool, (RejectReason, u16)> {
    let mut decoder = BodyDecoder::new(BodyKind::Chunked, limits);
    while !input.is_empty() {
        let step = decoder.decode(input).map_err(|reject| (reject.reason, reject.status))?;
        input = &input[step.consumed..];
        if step.done {
            assert!(input.is_empty(), "the control ends with its body");
        }
    }
    Ok(decoder.is_done())
}
