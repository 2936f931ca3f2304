//! Bytes to send: start lines, fields, chunk prefixes.
//!
//! Everything is appended to a `Vec<u8>` that the caller reuses. Input that could put a line end
//! into a head is refused ([`Unwritable`]) and nothing is written; a [`Field`] was checked when it
//! was parsed and is written as it is. The version is always ours, HTTP/1.1 (RFC 9110 section 2.5).
//! Numbers are formatted without `format!`.

use crate::chars::{self, TARGET, TOKEN};
use crate::{Field, Fields, Method, Target};

/// The end of a line, of a head, and of a chunk's data.
pub const CRLF: &[u8] = b"\r\n";
/// The last chunk with no trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// The last chunk before trailers: fields, then [`end`], must follow.
pub const LAST_CHUNK_BEFORE_TRAILERS: &[u8] = b"0\r\n";
/// The interim response that lets the client send its body.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// The field of a chunked body.
pub const CHUNKED: &[u8] = b"Transfer-Encoding: chunked\r\n";
/// The field that says the connection ends here.
pub const CONNECTION_CLOSE: &[u8] = b"Connection: close\r\n";
/// The field that keeps an HTTP/1.0 connection open.
pub const CONNECTION_KEEP_ALIVE: &[u8] = b"Connection: keep-alive\r\n";

/// Input that is not a valid token, value or target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unwritable {
    /// A method that is not a token.
    Method,
    /// A byte that no request-target may have, or an empty target.
    Target,
    /// A field name that is not a token.
    Name,
    /// A control character in a field value, or in a reason phrase.
    Value,
    /// A status outside 100 to 599.
    Status,
}

impl std::fmt::Display for Unwritable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Unwritable::Method => "the method is not a token (RFC 9110 9.1)",
            Unwritable::Target => "not a request-target (RFC 9112 3.2)",
            Unwritable::Name => "the field name is not a token (RFC 9110 5.1)",
            Unwritable::Value => "a control character in a field value (RFC 9110 5.5)",
            Unwritable::Status => "the status is not within 100 to 999 (RFC 9110 15)",
        })
    }
}

impl std::error::Error for Unwritable {}

/// `HTTP/1.1 200 OK` with the usual reason phrase.
///
/// # Panics
/// If the status is not within 100 to 999: received statuses were checked when parsed.
#[inline]
pub fn status_line(out: &mut Vec<u8>, status: u16) {
    assert!((100..=999).contains(&status), "a status has three digits and a class");
    if status == 200 {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        return;
    }
    let digit = |n: u16| b'0' + (n % 10) as u8;
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(&[digit(status / 100), digit(status / 10), digit(status), b' ']);
    out.extend_from_slice(reason(status).as_bytes());
    out.extend_from_slice(CRLF);
}

/// `HTTP/1.1 200 Fine` with a given reason phrase.
///
/// # Errors
/// [`Unwritable`] if the status is not within 100 to 999 or the phrase has a control character;
/// nothing is written.
pub fn status_line_with_reason(
    out: &mut Vec<u8>,
    status: u16,
    reason: &[u8],
) -> Result<(), Unwritable> {
    if !(100..=999).contains(&status) {
        return Err(Unwritable::Status);
    }
    if !is_value(reason) {
        return Err(Unwritable::Value);
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    decimal(out, u64::from(status));
    out.push(b' ');
    out.extend_from_slice(reason);
    out.extend_from_slice(CRLF);
    Ok(())
}

/// `GET /path HTTP/1.1`. To convert the form of a target, see [`origin_form`].
///
/// # Errors
/// [`Unwritable`] if method or target violate their grammar; nothing is written.
pub fn request_line(out: &mut Vec<u8>, method: &[u8], target: &[u8]) -> Result<(), Unwritable> {
    if method.is_empty() || !chars::all(method, TOKEN) {
        return Err(Unwritable::Method);
    }
    if target.is_empty() || !chars::all(target, TARGET) {
        return Err(Unwritable::Target);
    }
    for part in [method, b" ", target, b" HTTP/1.1\r\n"] {
        out.extend_from_slice(part);
    }
    Ok(())
}

/// The request-target to send to an origin for `target`: absolute-form becomes origin-form
/// (RFC 9112 section 3.2.1); an empty path becomes `/`, or `*` for OPTIONS (section 3.2.4).
pub fn origin_form(out: &mut Vec<u8>, method: Method, target: &Target<'_>) {
    match target {
        Target::Origin { path_and_query } => out.extend_from_slice(path_and_query),
        Target::Absolute { path_and_query, .. } => {
            match path_and_query.first() {
                None if method == Method::Options => out.push(b'*'),
                Some(b'/') => {}
                _ => out.push(b'/'),
            }
            out.extend_from_slice(path_and_query);
        }
        Target::Authority { host, port } => {
            out.extend_from_slice(host);
            out.push(b':');
            decimal(out, u64::from(*port));
        }
        Target::Asterisk => out.push(b'*'),
    }
}

/// `name: value`
///
/// # Errors
/// [`Unwritable`] if the name is not a token or the value has a control character; nothing is
/// written.
#[inline]
pub fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), Unwritable> {
    if name.is_empty() || !chars::all(name, TOKEN) {
        return Err(Unwritable::Name);
    }
    if !is_value(value) {
        return Err(Unwritable::Value);
    }
    line(out, name, value);
    Ok(())
}

/// The field lines of trailers, without those that may not be passed on or cannot be written.
pub fn trailer_lines<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Vec<u8> {
    let mut lines = Vec::new();
    for (name, value) in fields.filter(|(name, _)| crate::may_be_trailer(name)) {
        let _ = field(&mut lines, name, value);
    }
    lines
}

/// The same of a request: nor those whose name is not plain, which a server could take for a field
/// that a rule concerns.
pub fn request_trailers<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Vec<u8> {
    trailer_lines(fields.filter(|(name, _)| crate::is_plain(name)))
}

/// A field as it was parsed.
#[inline]
pub fn parsed_field(out: &mut Vec<u8>, field: Field<'_>) {
    line(out, field.name(), field.value());
}

/// The end-to-end fields that `keep` keeps, as they were parsed. Lines that follow one another and
/// look as we would write them are copied in one piece.
pub fn end_to_end(out: &mut Vec<u8>, fields: &Fields<'_>, keep: impl Fn(Field<'_>) -> bool) {
    let mut run = 0..0;
    let mut spans = fields.end_to_end();
    while let Some(span) = spans.next_span() {
        let field = fields.at(span);
        if !keep(field) {
            continue;
        }
        match span.usual_line(fields.buf) {
            Some(line) if line.start == run.end => run.end = line.end,
            Some(line) => {
                out.extend_from_slice(&fields.buf[run]);
                run = line;
            }
            None => {
                out.extend_from_slice(&fields.buf[std::mem::take(&mut run)]);
                parsed_field(out, field);
            }
        }
    }
    out.extend_from_slice(&fields.buf[run]);
}

/// `Content-Length: 123`
#[inline]
pub fn content_length(out: &mut Vec<u8>, length: u64) {
    out.extend_from_slice(b"Content-Length: ");
    decimal(out, length);
    out.extend_from_slice(CRLF);
}

/// The empty line that ends a head or a trailer section.
#[inline]
pub fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(CRLF);
}

/// The digits of a number.
#[inline]
pub fn decimal(out: &mut Vec<u8>, mut number: u64) {
    const DIGITS_MAX: usize = 20;
    let mut digits = [0u8; DIGITS_MAX];
    let mut at = DIGITS_MAX;
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// A chunk-size line: see [`chunk_prefix`].
#[derive(Clone, Copy, Debug)]
pub struct ChunkPrefix {
    bytes: [u8; ChunkPrefix::BYTES_MAX],
    start: u8,
}

impl ChunkPrefix {
    /// Sixteen digits and CRLF.
    pub const BYTES_MAX: usize = 18;

    /// What to send before the data; [`CRLF`] follows the data.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start as usize..]
    }
}

impl AsRef<[u8]> for ChunkPrefix {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// The size line of a chunk of `len` bytes. An empty chunk would end the body.
///
/// # Panics
/// If `len` is 0.
#[inline]
pub fn chunk_prefix(len: usize) -> ChunkPrefix {
    assert!(len != 0, "an empty chunk is the last one");
    let mut bytes = [0; ChunkPrefix::BYTES_MAX];
    let mut at = ChunkPrefix::BYTES_MAX - 2;
    bytes[at..].copy_from_slice(CRLF);
    let mut left = len;
    while left != 0 {
        at -= 1;
        bytes[at] = b"0123456789abcdef"[left % 16];
        left /= 16;
    }
    ChunkPrefix { bytes, start: at as u8 }
}

/// The usual reason phrase; empty for a status without one.
pub const fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        511 => "Network Authentication Required",
        _ => "",
    }
}

/// One pass without branches, which the compiler vectorises.
#[inline]
fn is_value(value: &[u8]) -> bool {
    !value.iter().fold(false, |bad, &b| bad | ((b < b' ') & (b != b'\t')) | (b == 0x7f))
}

#[inline]
pub(crate) fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(CRLF);
}
