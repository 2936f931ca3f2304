//! What both suites use for responses: the content that the origin has for a name, and a strict
//! reader of responses.
//!
//! The reader does not use `http1`, so that a mistake there is not repeated here. It does no I/O:
//! its arguments are all received bytes and whether the connection has ended.

/// The content that the origin has for a name. Any two names differ from the first bytes on.
pub(crate) fn content(name: &str, size: usize) -> Vec<u8> {
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    for byte in name.bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// A whole response, or an interim one.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.fields.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str()).collect()
    }
}

/// Reads the first response in `got`. Gives it with its length. If it is incomplete, the error is
/// the length that it has at least.
///
/// # Panics
/// If no server may send such bytes.
pub(crate) fn read_response(
    got: &[u8],
    to_head: bool,
    ended: bool,
) -> Result<(Response, usize), usize> {
    let head_end = got.windows(4).position(|four| four == b"\r\n\r\n").ok_or(got.len() + 1)? + 4;
    let head = std::str::from_utf8(&got[..head_end - 4]).expect("a head is text");
    let mut lines = head.split("\r\n");
    let status_line = lines.next().expect("split gives one at least");
    let status = status_line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_else(|| panic!("not a status line: {status_line:?}"));
    let fields = lines
        .map(|line| {
            let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("field {line:?}"));
            assert!(!name.is_empty() && !name.contains([' ', '\t']), "field {line:?}");
            (name.to_ascii_lowercase(), value.to_owned())
        })
        .collect();
    let mut response = Response { status, fields, body: Vec::new() };
    match read_body(&mut response, &got[head_end..], to_head, ended) {
        Ok(used) => Ok((response, head_end + used)),
        Err(least) => Err(head_end + least),
    }
}

fn read_body(
    response: &mut Response,
    rest: &[u8],
    to_head: bool,
    ended: bool,
) -> Result<usize, usize> {
    let lengths = response.all("content-length");
    let codings = response.all("transfer-encoding");
    assert!(lengths.len() <= 1 && codings.len() <= 1, "{response:?}");
    assert!(lengths.is_empty() || codings.is_empty(), "{response:?}");
    if matches!(response.status, 100..=199 | 204) {
        assert!(lengths.is_empty() && codings.is_empty(), "RFC 9110, 8.6: {response:?}");
    }
    if to_head || matches!(response.status, 100..=199 | 204 | 304) {
        return Ok(0);
    }
    if let [length] = lengths[..] {
        let length: usize = length.parse().expect("Content-Length is a number");
        response.body = rest.get(..length).ok_or(length)?.to_vec();
        return Ok(length);
    }
    if let [coding] = codings[..] {
        assert_eq!(coding, "chunked");
        let (body, used) = read_chunks(rest)?;
        response.body = body;
        return Ok(used);
    }
    if !ended {
        return Err(rest.len() + 1);
    }
    response.body = rest.to_vec();
    Ok(rest.len())
}

fn read_chunks(rest: &[u8]) -> Result<(Vec<u8>, usize), usize> {
    let (mut chunks, mut at) = (Vec::new(), 0);
    loop {
        let line = rest[at..].windows(2).position(|two| two == b"\r\n").ok_or(rest.len() + 1)?;
        let size = std::str::from_utf8(&rest[at..at + line]).expect("a chunk size is text");
        let size = usize::from_str_radix(size, 16).expect("a chunk size is hexadecimal");
        at += line + 2;
        let end = at + size + 2;
        let chunk = rest.get(at..end).ok_or(end)?;
        assert_eq!(&chunk[size..], b"\r\n", "a chunk ends in CRLF; we send no trailers");
        chunks.push(&chunk[..size]);
        at = end;
        if size == 0 {
            return Ok((chunks.concat(), at));
        }
    }
}

/// The status and the URL or target of an access-log line, in either format.
///
/// # Panics
/// If the text is not in the format.
pub(crate) fn read_log_line(line: &str) -> (u16, String) {
    if line.contains("] \"") {
        // host - - [time] "METHOD target HTTP/1.x" status bytes "referer" "agent"
        let unescaped = line.replace("\\\\", "").replace("\\\"", "");
        let parts: Vec<&str> = unescaped.split('"').collect();
        assert_eq!(parts.len(), 7, "{line}");
        let request: Vec<&str> = parts[1].split(' ').collect();
        assert!(request.len() == 3 || request == ["-"], "{line}");
        let answer: Vec<&str> = parts[2].split_whitespace().collect();
        assert_eq!(answer.len(), 2, "{line}");
        assert!(answer[1] == "-" || answer[1].parse::<u64>().is_ok(), "{line}");
        return (
            answer[0].parse().expect("a status"),
            request.get(1).copied().unwrap_or("-").to_owned(),
        );
    }
    // time elapsed host result/status bytes method URL user hierarchy/host type
    let parts: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(parts.len(), 10, "{line}");
    let (_, milliseconds) = parts[0].split_once('.').expect("time");
    assert!(milliseconds.len() == 3 && parts[1].parse::<u64>().is_ok(), "{line}");
    assert!(parts[2].parse::<std::net::IpAddr>().is_ok(), "{line}");
    assert!(parts[4].parse::<u64>().is_ok(), "{line}");
    let (_, status) = parts[3].split_once('/').expect("result");
    (status.parse().expect("a status"), parts[6].to_owned())
}

/// The samples of an OpenMetrics text.
///
/// # Panics
/// If the text is not in the format.
pub(crate) fn read_metrics(text: &str) -> Vec<(String, u64)> {
    let (lines, end) = text.split_at(text.len().checked_sub(6).expect("a text"));
    assert_eq!(end, "# EOF\n");
    let mut samples = Vec::new();
    for line in lines.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let kind = comment.split(' ').next().expect("split gives one at least");
            assert!(matches!(kind, "HELP" | "TYPE" | "UNIT"), "{line}");
            continue;
        }
        let (name, value) = line.split_once(' ').expect("name and value");
        let value: f64 = value.parse().expect("a number");
        samples.push((name.to_owned(), value as u64));
    }
    samples
}
