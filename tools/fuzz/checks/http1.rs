//! Checks of the HTTP/1 parser, for the fuzz targets and for the tests that replay the corpus.
//!
//! One function for each parser. It takes any bytes and panics unless three things hold: the result
//! does not depend on how the bytes are split; a reader that knows only lines and colons reads the
//! same from an accepted message, and so does httparse; and a message that is written parses to the
//! same message.

use std::ops::Range;

use http1::{
    BodyDecoder, BodyKind, FIELDS_CEILING, HEAD_BYTES_CEILING, Limits, Method, Name, Reject,
    RequestHead, ResponseHead, Scratch, Step, accept_response, parse_request, parse_response,
    trailer_fields, write,
};

/// Inputs up to this long are split at every byte, longer ones at some.
const EVERY_SPLIT_BYTES_MAX: usize = 2048;

/// Limits small enough for small inputs to reach them.
pub(crate) const TIGHT: Limits = {
    let mut limits = Limits::DEFAULT;
    limits.head_bytes_max = 512;
    limits.fields_max = 20;
    limits.target_bytes_max = 100;
    limits.content_bytes_max = 100_000;
    limits.chunk_line_bytes_max = 32;
    limits.extension_bytes_max = 64;
    limits.trailer_bytes_max = 96;
    limits
};

/// Room for a head that was parsed and written again: each line may have grown.
const WIDE: Limits = {
    let mut limits = Limits::DEFAULT;
    limits.head_bytes_max = HEAD_BYTES_CEILING;
    limits.trailer_bytes_max = HEAD_BYTES_CEILING;
    limits
};

/// How the reading of a head ended, without borrowing it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// More bytes are needed.
    Incomplete,
    /// A whole head, in words, and its length.
    Whole(String, usize),
    /// Refused.
    Refused(Reject),
}

/// Target `request_head`.
pub(crate) fn request_head(data: &[u8]) {
    for limits in [Limits::DEFAULT, TIGHT] {
        check_splits(data, |bytes| request_verdict(bytes, &limits));
        let mut scratch = Scratch::new();
        if let Ok(Some(head)) = parse_request(data, &mut scratch, &limits) {
            check_request(data, &head);
        }
    }
}

/// Target `response_head`.
pub(crate) fn response_head(data: &[u8]) {
    for limits in [Limits::DEFAULT, TIGHT] {
        check_splits(data, |bytes| response_verdict(bytes, &limits));
        let mut scratch = Scratch::new();
        if let Ok(Some(head)) = parse_response(data, &mut scratch, &limits) {
            check_response(data, &head);
        }
        check_splits(data, |bytes| accepted_verdict(bytes, &limits));
        check_repair(data, &limits);
    }
}

/// Target `chunked_body`.
pub(crate) fn chunked_body(data: &[u8]) {
    for limits in [Limits::DEFAULT, TIGHT] {
        let whole = read_body(BodyKind::Chunked, &[data], &limits);
        let bytes: Vec<&[u8]> = data.chunks(1).collect();
        assert_eq!(read_body(BodyKind::Chunked, &bytes, &limits), whole, "byte by byte");
        for at in splits(data.len()) {
            let (left, right) = data.split_at(at);
            assert_eq!(read_body(BodyKind::Chunked, &[left, right], &limits), whole, "at {at}");
        }
        if whole.end == BodyEnd::Done {
            let again = encode_chunked(&whole.content, &whole.trailers);
            let read = read_body(BodyKind::Chunked, &[&again], &WIDE);
            assert_eq!((read.end, read.consumed), (BodyEnd::Done, again.len()));
            assert_eq!(read.content, whole.content);
            assert!(trailer_fields(&read.trailers).eq(trailer_fields(&whole.trailers)));
        }
    }
}

/// Target `request_stream`: a whole connection, requests with their bodies one after another.
pub(crate) fn request_stream(data: &[u8]) {
    for limits in [Limits::DEFAULT, TIGHT] {
        let whole = read_stream(&[data], &limits);
        let bytes: Vec<&[u8]> = data.chunks(1).collect();
        assert_eq!(read_stream(&bytes, &limits), whole, "byte by byte");
        for at in splits(data.len()) {
            let (left, right) = data.split_at(at);
            assert_eq!(read_stream(&[left, right], &limits), whole, "split at {at}");
        }
    }
}

/// The verdict on the request that begins `bytes`.
pub(crate) fn request_verdict(bytes: &[u8], limits: &Limits) -> Verdict {
    match parse_request(bytes, &mut Scratch::new(), limits) {
        Ok(None) => Verdict::Incomplete,
        Ok(Some(head)) => Verdict::Whole(describe_request(&head), head.head_bytes),
        Err(reject) => Verdict::Refused(reject),
    }
}

/// The verdict on the response that begins `bytes`.
pub(crate) fn response_verdict(bytes: &[u8], limits: &Limits) -> Verdict {
    match parse_response(bytes, &mut Scratch::new(), limits) {
        Ok(None) => Verdict::Incomplete,
        Ok(Some(head)) => Verdict::Whole(format!("{head:?}"), head.head_bytes),
        Err(reject) => Verdict::Refused(reject),
    }
}

/// The same of a response that may be repaired.
pub(crate) fn accepted_verdict(bytes: &[u8], limits: &Limits) -> Verdict {
    match accept_response(bytes, &mut Scratch::new(), limits) {
        Ok(None) => Verdict::Incomplete,
        Ok(Some(head)) => Verdict::Whole(format!("{head:?}"), head.head_bytes),
        Err(reject) => Verdict::Refused(reject),
    }
}

/// What is valid is not repaired. A repaired head is a valid one, apart from control characters in
/// values and its status, and says itself how its body is framed.
fn check_repair(data: &[u8], limits: &Limits) {
    let strict = response_verdict(data, limits);
    if !matches!(strict, Verdict::Refused(_)) {
        assert_eq!(accepted_verdict(data, limits), strict);
        return;
    }
    let mut scratch = Scratch::new();
    let Ok(Some(head)) = accept_response(data, &mut scratch, limits) else { return };
    let lines = data[..head.head_bytes].split(|byte| *byte == b'\n').filter(|line| *line != b"\r");
    assert!(head.fields.len() < lines.count(), "each field has a line");
    let owned = head.detach();
    let kept = owned.head();
    assert!(kept.fields.fields().eq(head.fields.fields()));
    assert!(head.fields.count(Name::ContentLength) <= 1);
    assert!(!(head.fields.has(Name::ContentLength) && head.fields.has(Name::TransferEncoding)));
    let mut again = b"HTTP/1.1 200 OK\r\n".to_vec();
    for (name, value) in &head.fields {
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)), "one line");
        let plain =
            |byte: &u8| if byte.is_ascii_control() && *byte != b'\t' { b'.' } else { *byte };
        let value: Vec<u8> = value.iter().map(plain).collect();
        write::field(&mut again, name, &value).expect("a line by the rules");
    }
    write::end(&mut again);
    let mut scratch = Scratch::new();
    let read = parse_response(&again, &mut scratch, &WIDE);
    let read = read.expect("a head by the rules").expect("a whole head");
    assert_eq!(read.body(Method::Get), kept.body(Method::Get));
}

/// Each prefix is incomplete, or has the verdict of the whole.
fn check_splits(data: &[u8], verdict: impl Fn(&[u8]) -> Verdict) {
    let whole = verdict(data);
    for at in splits(data.len()) {
        let early = verdict(&data[..at]);
        if early == Verdict::Incomplete {
            continue;
        }
        assert_eq!(early, whole, "the verdict changed after byte {at}");
        if let Verdict::Whole(_, head_bytes) = early {
            assert!(head_bytes <= at, "a head of bytes that were not there");
        }
    }
}

fn splits(len: usize) -> impl Iterator<Item = usize> {
    let stride = if len <= EVERY_SPLIT_BYTES_MAX { 1 } else { len / 64 };
    (0..len).step_by(stride)
}

fn describe_request(head: &RequestHead<'_>) -> String {
    format!(
        "{head:?} {:?} {:?} {:?} {:?} {}",
        head.target,
        head.body(),
        head.expectation(),
        head.host().map(|host| host.escape_ascii().to_string()),
        head.keep_alive(),
    )
}

fn check_request(data: &[u8], head: &RequestHead<'_>) {
    assert_ne!(head.body(), BodyKind::UntilClose);
    let bytes = &data[..head.head_bytes];
    let bytes = bytes.strip_prefix(b"\r\n").unwrap_or(bytes);
    let pairs: Vec<_> = head.fields.iter().collect();
    let line = check_lines(bytes, &pairs);
    let parts: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
    assert_eq!(parts.len(), 3, "a request line has three parts");
    assert_eq!(parts[..2], [head.method_bytes, head.target_bytes]);
    check_look_up(&head.fields);
    check_hops(&head.fields);
    let owned = head.detach();
    assert_eq!(describe_request(&owned.head()), describe_request(head));

    let mut again = Vec::new();
    write::request_line(&mut again, head.method_bytes, head.target_bytes).expect("it was parsed");
    head.fields.fields().for_each(|field| write::parsed_field(&mut again, field));
    write::end(&mut again);
    let mut scratch = Scratch::new();
    // A head of HTTP/1.0 without Host is none of HTTP/1.1, which is what is written.
    if head.fields.has(Name::Host) {
        let head_again = parse_request(&again, &mut scratch, &WIDE);
        let head_again = head_again.expect("written by us").expect("whole");
        assert_eq!(head_again.fields.iter().collect::<Vec<_>>(), pairs);
        assert_eq!((head_again.target, head_again.body()), (head.target, head.body()));
    }
}

fn check_response(data: &[u8], head: &ResponseHead<'_>) {
    let pairs: Vec<_> = head.fields.iter().collect();
    let line = check_lines(&data[..head.head_bytes], &pairs);
    assert!(line.starts_with(b"HTTP/1.") && line.ends_with(head.reason));
    assert_eq!(line[9..12], *head.status.to_string().as_bytes());
    check_look_up(&head.fields);
    check_hops(&head.fields);
    let owned = head.detach();
    assert_eq!(format!("{:?}", owned.head()), format!("{head:?}"));

    let mut again = Vec::new();
    write::status_line_with_reason(&mut again, head.status, head.reason).expect("it was parsed");
    head.fields.fields().for_each(|field| write::parsed_field(&mut again, field));
    write::end(&mut again);
    let mut scratch = Scratch::new();
    let head_again = parse_response(&again, &mut scratch, &WIDE);
    let head_again = head_again.expect("written by us").expect("whole");
    assert_eq!(head_again.fields.iter().collect::<Vec<_>>(), pairs);
    assert_eq!((head_again.status, head_again.reason), (head.status, head.reason));
}

/// Fields that stay although Connection names them: they are for this hop anyway, or for all
/// recipients.
const STAY: [&str; 18] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "content-range",
    "cache-control",
    "vary",
    "via",
];

/// Reads an accepted head again, knowing only CRLF, colons, and that a field which Connection names
/// is not there; gives its first line.
fn check_lines<'d>(head: &'d [u8], fields: &[(&[u8], &[u8])]) -> &'d [u8] {
    let text = head.strip_suffix(b"\r\n\r\n").expect("a head ends with an empty line");
    let mut lines =
        text.split(|&b| b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let first = lines.next().expect("split gives at least one");
    let naive: Vec<(&[u8], &[u8])> = lines
        .map(|line| {
            let colon = line.iter().position(|&b| b == b':').expect("a field has a colon");
            (&line[..colon], trimmed(&line[colon + 1..]))
        })
        .collect();
    let lower = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let connection = naive.iter().filter(|(name, _)| lower(name) == "connection");
    let named: Vec<String> = connection
        .flat_map(|(_, value)| value.split(|&b| b == b','))
        .map(|member| lower(trimmed(member)))
        .filter(|member| !STAY.contains(&member.as_str()))
        .collect();
    let is_there = |name: &[u8]| !named.contains(&lower(name));
    let there: Vec<_> = naive.iter().copied().filter(|(name, _)| is_there(name)).collect();
    assert_eq!(there, fields);
    let controls = head.iter().filter(|b| b.is_ascii_control() && **b != b'\t').count();
    assert_eq!(controls, 2 * (naive.len() + 2), "only the CRLF of each line");
    let is_tchar = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    for (name, _) in &naive {
        assert!(!name.is_empty() && name.iter().all(is_tchar), "a name is a token (RFC 9110, 5.1)");
    }
    let mut many = [httparse::EMPTY_HEADER; FIELDS_CEILING];
    let theirs = httparse::parse_headers(&head[first.len() + 2..], &mut many);
    let Ok(httparse::Status::Complete((_, theirs))) = theirs else {
        panic!("httparse says {theirs:?}");
    };
    let theirs: Vec<_> = theirs.iter().map(|field| (field.name.as_bytes(), field.value)).collect();
    assert_eq!(naive, theirs, "a second reading");
    first
}

/// The look-ups by name agree with a search from the first field to the last.
fn check_look_up(fields: &http1::Fields<'_>) {
    for &name in Name::known() {
        let found: Vec<&[u8]> = fields.all(name).collect();
        let spelling = name.as_str().as_bytes();
        let search = fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(spelling));
        assert_eq!(found, search.map(|(_, value)| value).collect::<Vec<_>>());
        assert_eq!(found, fields.values(spelling).collect::<Vec<_>>());
        assert_eq!(fields.get(name), found.first().copied());
        assert_eq!(fields.has(name), !found.is_empty());
        assert_eq!(fields.is_repeated(name), found.len() > 1);
    }
    for (name, value) in fields {
        assert!(fields.values(name).any(|v| v == value));
    }
}

fn check_hops(fields: &http1::Fields<'_>) {
    let kept: Vec<&[u8]> = fields.end_to_end().map(|field| field.name()).collect();
    let expected = fields.iter().map(|(name, _)| name).filter(|name| !http1::is_hop_by_hop(name));
    assert_eq!(kept, expected.collect::<Vec<_>>());
}

/// What came of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    /// The content.
    pub(crate) content: Vec<u8>,
    /// Bytes consumed.
    pub(crate) consumed: usize,
    /// The trailer section.
    pub(crate) trailers: Vec<u8>,
    /// How it ended.
    pub(crate) end: BodyEnd,
}

/// How the reading of a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    /// At the end that the body itself has.
    Done,
    /// More bytes are needed.
    Incomplete,
    /// Refused.
    Refused(Reject),
}

/// Reads a body that comes in these pieces.
pub(crate) fn read_body(kind: BodyKind, pieces: &[&[u8]], limits: &Limits) -> Body {
    let mut decoder = BodyDecoder::new(kind, limits);
    decoder.keep_trailers();
    let mut body =
        Body { content: Vec::new(), consumed: 0, trailers: Vec::new(), end: BodyEnd::Incomplete };
    'pieces: for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() && !decoder.is_done() {
            match checked_step(&mut decoder, rest) {
                Ok(step) => {
                    body.content.extend_from_slice(&rest[step.data]);
                    body.consumed += step.consumed;
                    rest = &rest[step.consumed..];
                }
                Err(reject) => {
                    // How far it came before the fault depends on the pieces, and is of no use.
                    body.end = BodyEnd::Refused(reject);
                    body.content.clear();
                    body.consumed = 0;
                    break 'pieces;
                }
            }
        }
    }
    if decoder.is_done() {
        body.end = BodyEnd::Done;
    }
    if body.end == BodyEnd::Done {
        let kept = decoder.trailers().unwrap_or(&[]);
        body.trailers.extend_from_slice(kept);
        let lines = kept.iter().filter(|&&b| b == b'\n').count();
        assert_eq!(trailer_fields(kept).count(), lines, "a field for each line");
    }
    body
}

fn checked_step(decoder: &mut BodyDecoder, input: &[u8]) -> Result<Step, Reject> {
    let step = decoder.decode(input)?;
    let Range { start, end } = step.data;
    assert!(start <= end && end <= step.consumed && step.consumed <= input.len());
    assert!(step.consumed > 0 || step.done, "no progress");
    assert!(step.done || !step.data.is_empty() || step.consumed == input.len());
    assert_eq!(step.done, decoder.is_done());
    Ok(step)
}

/// Sends content as chunks.
fn encode_chunked(content: &[u8], trailers: &[u8]) -> Vec<u8> {
    const PIECE_BYTES: usize = 7;
    let mut out = Vec::new();
    for piece in content.chunks(PIECE_BYTES) {
        out.extend_from_slice(write::chunk_prefix(piece.len()).as_bytes());
        out.extend_from_slice(piece);
        out.extend_from_slice(write::CRLF);
    }
    out.extend_from_slice(write::LAST_CHUNK_BEFORE_TRAILERS);
    for (name, value) in trailer_fields(trailers) {
        write::field(&mut out, name, value).expect("a trailer that was checked");
    }
    write::end(&mut out);
    out
}

/// What came of a connection: its requests in words with their content, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stream {
    /// Head in words, and content.
    pub(crate) requests: Vec<(String, Vec<u8>)>,
    /// The fault, if there was one; then the content of the last request is left out.
    pub(crate) refused: Option<Reject>,
    /// Bytes consumed by whole heads and bodies.
    pub(crate) consumed: usize,
}

/// Serves a connection whose bytes come in these pieces.
pub(crate) fn read_stream(pieces: &[&[u8]], limits: &Limits) -> Stream {
    let mut stream = Stream::default();
    let mut buf = Vec::new();
    let mut decoder: Option<BodyDecoder> = None;
    for piece in pieces {
        buf.extend_from_slice(piece);
        if let Err(reject) = serve(&mut buf, &mut decoder, &mut stream, limits) {
            stream.refused = Some(reject);
            stream.consumed = 0;
            if decoder.is_some()
                && let Some((_, content)) = stream.requests.last_mut()
            {
                content.clear();
            }
            break;
        }
    }
    stream
}

fn serve(
    buf: &mut Vec<u8>,
    decoder: &mut Option<BodyDecoder>,
    stream: &mut Stream,
    limits: &Limits,
) -> Result<(), Reject> {
    let mut scratch = Scratch::new();
    loop {
        let consumed = if let Some(body) = decoder {
            let step = checked_step(body, buf)?;
            let (_, content) = stream.requests.last_mut().expect("a body belongs to a request");
            content.extend_from_slice(&buf[step.data]);
            if step.done {
                *decoder = None;
            } else if step.consumed == 0 {
                return Ok(());
            }
            step.consumed
        } else if let Some(head) = parse_request(buf, &mut scratch, limits)? {
            *decoder = Some(BodyDecoder::new(head.body(), limits));
            stream.requests.push((describe_request(&head), Vec::new()));
            head.head_bytes
        } else {
            return Ok(());
        };
        stream.consumed += consumed;
        buf.drain(..consumed);
        if buf.is_empty() && decoder.as_ref().is_none_or(|body| !body.is_done()) {
            return Ok(());
        }
    }
}

/// A field value without the white space around it.
fn trimmed(value: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let Some(start) = value.iter().position(|byte| !is_space(byte)) else { return b"" };
    let end = value.iter().rposition(|byte| !is_space(byte)).map_or(start, |last| last + 1);
    &value[start..end]
}
