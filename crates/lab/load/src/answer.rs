//! How the origin responds: a function from a request to a response head and a range of an object.
//!
//! What: `GET /obj/N?size=BYTES&cc=CACHE-CONTROL&etag=TAG&delay_us=MICROSECONDS&text=1`; every
//! query parameter is optional. POST is answered like GET, after its body. Why it is separate from
//! the loop: it does no I/O and reads no clock, so a plain call tests every rule. What never
//! happens: an unchecked byte of the query in a response head. An upgrade to WebSocket is not
//! answered here.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http1::{BodyKind, Method, Name, RequestHead, Target, write};

use crate::population::SIZE_BYTES_MAX;
use crate::random::mix;

/// The size of an object when the query does not set one.
const SIZE_BYTES_DEFAULT: u64 = 1024;
/// The longest delay that a query may set.
const DELAY_MAX: Duration = Duration::from_secs(60);
/// The longest body of a request.
const POST_BYTES_MAX: u64 = 16 << 20;
const CACHE_CONTROL_DEFAULT: &[u8] = b"max-age=3600";
/// 2026-01-01: the date of the newest object. The others are up to a year older.
const YOUNGEST_S: u64 = 1_767_225_600;

/// What to send, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) object: u64,
    /// The object is text.
    pub(crate) text: bool,
    /// Bytes of the object to send after the head.
    pub(crate) body_bytes: u64,
    pub(crate) delay: Duration,
    pub(crate) close: bool,
}

impl Answer {
    fn empty(status: u16) -> Answer {
        let (delay, close) = (Duration::ZERO, false);
        Answer { status, object: 0, text: false, body_bytes: 0, delay, close }
    }
}

/// Answers a request and appends the response head to `out`. `date` is the Date field's value.
pub(crate) fn answer(request: &RequestHead<'_>, date: &str, out: &mut Vec<u8>) -> Answer {
    let close = !request.keep_alive();
    let plain = |status| Answer { close, ..Answer::empty(status) };
    let (Target::Origin { path_and_query } | Target::Absolute { path_and_query, .. }) =
        request.target
    else {
        return refuse(Answer { close: true, ..plain(400) }, date, out);
    };
    // A body that is refused is not read, so the connection must close.
    if !matches!(request.method, Method::Get | Method::Head | Method::Post) {
        return refuse(Answer { close: true, ..plain(405) }, date, out);
    }
    match request.body() {
        BodyKind::None | BodyKind::Length(0) => {}
        BodyKind::Length(_) if body_bytes(request) > 0 => {}
        BodyKind::Length(_) if request.method == Method::Post => {
            return refuse(Answer { close: true, ..plain(413) }, date, out);
        }
        _ => return refuse(Answer { close: true, ..plain(400) }, date, out),
    }
    let parameters = match Parameters::parse(path_and_query) {
        Ok(parameters) => parameters,
        Err(status) => return refuse(plain(status), date, out),
    };
    let modified_s = YOUNGEST_S - mix(parameters.object) % (365 * 24 * 3600);
    let etag = parameters.etag();
    let unchanged = request.method != Method::Post && not_modified(request, &etag, modified_s);
    let status = if unchanged { 304 } else { 200 };
    write::status_line(out, status);
    line(out, b"Server", b"plimsoll-origin");
    line(out, b"Date", date.as_bytes());
    line(out, b"ETag", &etag);
    line(out, b"Cache-Control", &parameters.cache_control);
    let modified = UNIX_EPOCH + Duration::from_secs(modified_s);
    line(out, b"Last-Modified", httpdate::fmt_http_date(modified).as_bytes());
    if !unchanged {
        let content_type: &[u8] = match parameters.text {
            true => b"text/plain",
            false => b"application/octet-stream",
        };
        line(out, b"Content-Type", content_type);
        write::content_length(out, parameters.size);
    }
    finish(close, out);
    let body_bytes = if unchanged || request.method == Method::Head { 0 } else { parameters.size };
    let Parameters { object, text, delay, .. } = parameters;
    Answer { status, object, text, body_bytes, delay, close }
}

/// Whether a request asks for a WebSocket.
pub(crate) fn is_upgrade(request: &RequestHead<'_>) -> bool {
    let protocol = request.fields.get(Name::Upgrade);
    protocol.is_some_and(|name| name.eq_ignore_ascii_case(b"websocket"))
}

/// Bytes of the request's body that come before its answer; 0 if they are refused.
pub(crate) fn body_bytes(request: &RequestHead<'_>) -> usize {
    match request.body() {
        BodyKind::Length(bytes) if request.method == Method::Post && bytes <= POST_BYTES_MAX => {
            bytes as usize
        }
        _ => 0,
    }
}

/// Appends the head of a response without a body.
pub(crate) fn refuse(answer: Answer, date: &str, out: &mut Vec<u8>) -> Answer {
    write::status_line(out, answer.status);
    line(out, b"Server", b"plimsoll-origin");
    line(out, b"Date", date.as_bytes());
    if answer.status == 405 {
        line(out, b"Allow", b"GET, HEAD, POST");
    }
    write::content_length(out, 0);
    finish(answer.close, out);
    answer
}

/// Answers bytes that are not a valid request.
pub(crate) fn reject(status: u16, date: &str, out: &mut Vec<u8>) -> Answer {
    refuse(Answer { close: true, ..Answer::empty(status) }, date, out)
}

fn finish(close: bool, out: &mut Vec<u8>) {
    if close {
        out.extend_from_slice(write::CONNECTION_CLOSE);
    }
    write::end(out);
}

fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    write::field(out, name, value).expect("values are checked where they come from");
}

/// The Date field's value at an instant.
pub(crate) fn date_of(wall_ns: i64) -> String {
    let since = Duration::from_nanos(u64::try_from(wall_ns).unwrap_or_default());
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + since)
}

/// The parameters of a target.
struct Parameters {
    object: u64,
    text: bool,
    size: u64,
    cache_control: Vec<u8>,
    etag: Option<Vec<u8>>,
    delay: Duration,
}

impl Parameters {
    /// The error is the status to answer with.
    fn parse(path_and_query: &[u8]) -> Result<Parameters, u16> {
        let mut parts = path_and_query.splitn(2, |b| *b == b'?');
        let path = parts.next().unwrap_or_default();
        let number = path.strip_prefix(b"/obj/").ok_or(404u16)?;
        let mut parameters = Parameters {
            object: decimal(number).ok_or(404u16)?,
            text: false,
            size: SIZE_BYTES_DEFAULT,
            cache_control: CACHE_CONTROL_DEFAULT.to_vec(),
            etag: None,
            delay: Duration::ZERO,
        };
        let query = parts.next().unwrap_or_default();
        for pair in query.split(|b| *b == b'&').filter(|pair| !pair.is_empty()) {
            let mut halves = pair.splitn(2, |b| *b == b'=');
            let name = halves.next().unwrap_or_default();
            let value = unescape(halves.next().unwrap_or_default()).ok_or(400u16)?;
            match name {
                b"size" => {
                    let size = decimal(&value).filter(|size| *size <= SIZE_BYTES_MAX);
                    parameters.size = size.ok_or(400u16)?;
                }
                b"delay_us" => {
                    let delay = decimal(&value).map(Duration::from_micros);
                    parameters.delay = delay.filter(|delay| *delay <= DELAY_MAX).ok_or(400u16)?;
                }
                b"cc" => parameters.cache_control = value,
                b"etag" => parameters.etag = Some(value),
                b"text" => parameters.text = true,
                // Unknown parameters make another object for a cache, the same one for the origin.
                _ => {}
            }
        }
        Ok(parameters)
    }

    /// The given tag, quoted if it has no quotes, or a tag made of number and size.
    fn etag(&self) -> Vec<u8> {
        match &self.etag {
            Some(tag) if tag.starts_with(b"\"") || tag.starts_with(b"W/\"") => tag.clone(),
            Some(tag) => [b"\"", tag.as_slice(), b"\""].concat(),
            None => format!("\"{:x}-{:x}\"", self.object, self.size).into_bytes(),
        }
    }
}

fn decimal(text: &[u8]) -> Option<u64> {
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Percent-decodes. `None` for a bad escape or a byte that is not allowed in a field.
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(text.len());
    let mut left = text;
    while let [first, rest @ ..] = left {
        left = rest;
        let byte = if *first == b'%' {
            let [high, low, after @ ..] = left else { return None };
            left = after;
            let digit = |b: u8| (b as char).to_digit(16);
            u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?
        } else {
            *first
        };
        if !(b' '..0x7f).contains(&byte) {
            return None;
        }
        plain.push(byte);
    }
    Some(plain.trim_ascii().to_vec())
}

/// RFC 9110 section 13.2.2, steps 3 and 4, for GET and HEAD.
fn not_modified(request: &RequestHead<'_>, etag: &[u8], modified_s: u64) -> bool {
    let opaque = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
    if request.fields.has(Name::IfNoneMatch) {
        return request.fields.all(Name::IfNoneMatch).any(|value| {
            let mut tags = value.split(|b| *b == b',').map(<[u8]>::trim_ascii);
            tags.any(|tag| tag == b"*" || opaque(tag) == opaque(etag))
        });
    }
    let since = request.fields.get(Name::IfModifiedSince);
    let since = since.and_then(|value| std::str::from_utf8(value).ok());
    let since = since.and_then(|text| httpdate::parse_http_date(text).ok());
    since.is_some_and(|since| UNIX_EPOCH + Duration::from_secs(modified_s) <= since)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http1::{Limits, Scratch, parse_request};

    const DATE: &str = "Thu, 01 Jan 2026 00:00:00 GMT";

    fn ask(request: &str) -> (Answer, String) {
        let mut scratch = Scratch::new();
        let head = parse_request(request.as_bytes(), &mut scratch, &Limits::DEFAULT);
        let mut out = Vec::new();
        let answer = answer(&head.unwrap().unwrap(), DATE, &mut out);
        (answer, String::from_utf8(out).unwrap())
    }

    fn get(target: &str, fields: &str) -> (Answer, String) {
        ask(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
    }

    #[test]
    fn an_object_with_default_parameters() {
        let (answer, head) = get("/obj/7", "");
        assert_eq!((answer.status, answer.object, answer.body_bytes), (200, 7, 1024));
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        for line in ["Cache-Control: max-age=3600", "ETag: \"7-400\"", "Content-Length: 1024"] {
            assert!(head.contains(&format!("\r\n{line}\r\n")), "{head}");
        }
        assert!(head.contains(DATE) && head.contains("\r\nLast-Modified: "), "{head}");
    }

    #[test]
    fn every_parameter_is_honoured() {
        let target = "/obj/9?size=5&cc=no-store%2C%20max-age%3D0&etag=x&delay_us=1500&v=2";
        let (answer, head) = get(target, "Connection: close\r\n");
        assert_eq!(answer.body_bytes, 5);
        assert_eq!(answer.delay, Duration::from_micros(1500));
        assert!(answer.close && !answer.text);
        for line in ["Cache-Control: no-store, max-age=0", "ETag: \"x\"", "Connection: close"] {
            assert!(head.contains(&format!("\r\n{line}\r\n")), "{head}");
        }
    }

    #[test]
    fn an_object_may_be_text() {
        let (answer, head) = get("/obj/9?text=1", "");
        assert!(answer.text && head.contains("\r\nContent-Type: text/plain\r\n"), "{head}");
    }

    #[test]
    fn validators_are_honoured() {
        let status = |fields: &str| get("/obj/7", fields).0.status;
        assert_eq!(status("If-None-Match: \"a\", W/\"7-400\"\r\n"), 304);
        assert_eq!(status("If-None-Match: *\r\n"), 304);
        assert_eq!(status("If-None-Match: \"7-401\"\r\n"), 200);
        assert_eq!(status("If-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT\r\n"), 304);
        assert_eq!(status("If-Modified-Since: Thu, 01 Jan 1998 00:00:00 GMT\r\n"), 200);
        // The date is only used if there is no tag.
        let both = "If-None-Match: \"b\"\r\nIf-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT\r\n";
        assert_eq!(status(both), 200);
        let (answer, head) = get("/obj/7", "If-None-Match: *\r\n");
        assert_eq!(answer.body_bytes, 0);
        assert!(head.contains("ETag") && !head.contains("Content-Length"), "{head}");
    }

    #[test]
    fn head_has_the_length_and_no_body() {
        let (answer, head) = ask("HEAD /obj/1?size=9 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(answer.body_bytes, 0);
        assert!(head.contains("Content-Length: 9\r\n"), "{head}");
    }

    #[test]
    fn bad_targets_are_refused() {
        for (target, status) in [
            ("/", 404),
            ("/obj/x", 404),
            ("/obj/99999999999999999999", 404),
            ("/obj/1?size=x", 400),
            ("/obj/1?size=99999999999999", 400),
            ("/obj/1?delay_us=60000001", 400),
            ("/obj/1?cc=a%0d%0aX:%20b", 400),
            ("/obj/1?etag=%00", 400),
        ] {
            let (answer, head) = get(target, "");
            assert_eq!(answer.status, status, "{target}");
            assert_eq!(head.matches("\r\n\r\n").count(), 1, "{head}");
        }
        for (line, body, status) in [
            ("PUT /obj/1", "Content-Length: 3", 405),
            ("GET /obj/1", "Content-Length: 3", 400),
            ("POST /obj/1", "Transfer-Encoding: chunked", 400),
            ("POST /obj/1", "Content-Length: 16777217", 413),
        ] {
            let (answer, _) = ask(&format!("{line} HTTP/1.1\r\nHost: a\r\n{body}\r\n\r\n"));
            assert_eq!((answer.status, answer.close), (status, true), "{line} {body}");
        }
    }
}
