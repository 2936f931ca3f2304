//! Reading a response: every byte is checked, and repeated heads are cheap.
//!
//! What: one `Reader` per connection takes bytes as they arrive and reports when the response is
//! complete or why it is wrong. `http1` parses each head once. A head that is identical to an
//! earlier one is recognised by comparison (`Heads`), which is as strict and costs a `memcmp`. What
//! never happens: a byte after the end of a response goes unnoticed; I/O; a clock is read.
//!
//! ```text
//! Head --(interim)--> Head
//! Head --> Length --> complete     Head --> Coded --> complete (chunked, or the peer's close)
//! ```

use http1::{BodyDecoder, BodyKind, Limits, Method, Name, Scratch};

use crate::content;
use crate::outcome::ErrorKind;

/// Number of remembered heads, indexed by the low bits of the object's number.
const HEADS_KEPT: usize = 4096;
/// Longer heads are parsed every time.
const HEAD_KEPT_BYTES_MAX: usize = 2048;

/// What the request named, to check the response against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requested {
    pub(crate) object: u32,
    /// The size that the response must have, if the request named one.
    pub(crate) size: Option<u64>,
    /// Whether the bytes must be the origin's.
    pub(crate) verify: bool,
}

/// Where a response came from, if its head says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Cache,
    Origin,
    Unknown,
}

/// The parts of a head that matter here.
#[derive(Clone, Copy, Debug)]
struct HeadInfo {
    body: BodyKind,
    interim: bool,
    keep_alive: bool,
    bad_status: bool,
    source: Source,
}

/// Earlier heads and what they contain.
pub(crate) struct Heads {
    known: Vec<Option<(Box<[u8]>, HeadInfo)>>,
    scratch: Scratch,
    limits: Limits,
    count_hits: bool,
}

impl Heads {
    pub(crate) fn new(objects: u32, count_hits: bool) -> Heads {
        let kept = (objects as usize).min(HEADS_KEPT).next_power_of_two();
        let mut known = Vec::new();
        known.resize_with(kept, || None);
        Heads { known, scratch: Scratch::new(), limits: Limits::DEFAULT, count_hits }
    }

    /// Reads the head at the front of `bytes` and its length; `None` if it is incomplete.
    #[inline]
    fn read(&mut self, object: u32, bytes: &[u8]) -> Result<Option<(HeadInfo, usize)>, ErrorKind> {
        let place = object as usize & (self.known.len() - 1);
        if let Some((head, info)) = &self.known[place]
            && bytes.starts_with(head)
        {
            return Ok(Some((*info, head.len())));
        }
        self.parse(place, bytes)
    }

    fn parse(
        &mut self,
        place: usize,
        bytes: &[u8],
    ) -> Result<Option<(HeadInfo, usize)>, ErrorKind> {
        let wrong = |_| ErrorKind::BadFraming;
        let parsed = http1::parse_response(bytes, &mut self.scratch, &self.limits);
        let Some(head) = parsed.map_err(wrong)? else { return Ok(None) };
        let info = HeadInfo {
            body: head.body(Method::Get).map_err(wrong)?,
            interim: head.is_interim(),
            keep_alive: head.keep_alive(),
            bad_status: head.status >= 400,
            source: if self.count_hits {
                source_of(|name| head.fields.get(name))
            } else {
                Source::Unknown
            },
        };
        let length = head.head_bytes;
        if length <= HEAD_KEPT_BYTES_MAX {
            self.known[place] = Some((bytes[..length].into(), info));
        }
        Ok(Some((info, length)))
    }
}

/// Cache-Status (RFC 9211) takes precedence over X-Cache, and X-Cache over Age.
pub(crate) fn source_of<'b>(field: impl Fn(Name) -> Option<&'b [u8]>) -> Source {
    let holds = |value: &[u8], word: &[u8]| {
        value.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
    };
    if let Some(status) = field(Name::CacheStatus) {
        // The last member is that of the cache nearest to the client.
        let nearest = status.rsplit(|b| *b == b',').next().unwrap_or_default();
        let hit = nearest.split(|b| *b == b';').any(|part| part.trim_ascii() == b"hit");
        return if hit { Source::Cache } else { Source::Origin };
    }
    if let Some(info) = field(Name::XCache) {
        return if holds(info, b"hit") { Source::Cache } else { Source::Origin };
    }
    match field(Name::Age).map(<[u8]>::trim_ascii) {
        Some(age) if age != b"0" => Source::Cache,
        _ => Source::Unknown,
    }
}

#[derive(Debug)]
enum State {
    Head,
    Length { left: u64 },
    Coded(Box<BodyDecoder>),
}

/// The current response of one connection.
#[derive(Debug)]
pub(crate) struct Reader {
    state: State,
    /// The beginning of a head that is not complete yet.
    partial: Vec<u8>,
    any_byte: bool,
    keep_alive: bool,
    received: Received,
}

/// What has come of a response, in any version of HTTP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) bad_status: bool,
    pub(crate) source: Source,
    pub(crate) body_bytes: u64,
}

impl Received {
    pub(crate) const NOTHING: Received =
        Received { bad_status: false, source: Source::Unknown, body_bytes: 0 };

    /// The next bytes of the body.
    #[inline]
    pub(crate) fn take(&mut self, body: &[u8], requested: Requested) -> Result<(), ErrorKind> {
        let right = !requested.verify
            || self.bad_status
            || content::matches(u64::from(requested.object), self.body_bytes, body);
        self.body_bytes += body.len() as u64;
        if right { Ok(()) } else { Err(ErrorKind::WrongBytes) }
    }

    /// The verdict on a complete response.
    #[inline]
    pub(crate) fn judge(&self, requested: Requested) -> Result<Complete, ErrorKind> {
        if self.bad_status {
            return Err(ErrorKind::BadStatus);
        }
        if requested.size.is_some_and(|size| size != self.body_bytes) {
            return Err(ErrorKind::WrongSize);
        }
        Ok(Complete { source: self.source, body_bytes: self.body_bytes })
    }
}

/// A complete and correct response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Complete {
    pub(crate) source: Source,
    pub(crate) body_bytes: u64,
}

impl Reader {
    pub(crate) fn new() -> Reader {
        Reader {
            state: State::Head,
            partial: Vec::new(),
            any_byte: false,
            keep_alive: true,
            received: Received::NOTHING,
        }
    }

    /// Prepares for the next response.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.state = State::Head;
        self.partial.clear();
        self.any_byte = false;
        self.received.body_bytes = 0;
    }

    /// The response is not of HTTP: it is this many bytes.
    #[inline]
    pub(crate) fn expect_bytes(&mut self, left: u64) {
        debug_assert!(left > 0, "a response is not empty");
        self.state = State::Length { left };
    }

    /// Whether the connection may carry another request after this response.
    pub(crate) fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// How many of the next bytes certainly belong to the body.
    #[inline]
    pub(crate) fn body_left(&self) -> u64 {
        match self.state {
            State::Length { left } => left,
            State::Head | State::Coded(_) => 0,
        }
    }

    /// Counts `count` discarded bytes of the body, at most `body_left`. True when the response is
    /// complete.
    pub(crate) fn skip(&mut self, count: u64) -> bool {
        let State::Length { left } = &mut self.state else {
            panic!("only a body of known length is skipped");
        };
        *left = left.checked_sub(count).expect("no more is skipped than is left");
        self.received.body_bytes += count;
        *left == 0
    }

    /// Takes the next bytes, which must not be empty. True when the response is complete.
    #[inline]
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        heads: &mut Heads,
        requested: Requested,
    ) -> Result<bool, ErrorKind> {
        self.any_byte = true;
        if let State::Head = self.state {
            if !self.partial.is_empty() {
                return self.feed_partial(bytes, heads, requested);
            }
            return self.feed_head(bytes, heads, requested);
        }
        self.feed_body(bytes, requested)
    }

    fn feed_partial(
        &mut self,
        bytes: &[u8],
        heads: &mut Heads,
        requested: Requested,
    ) -> Result<bool, ErrorKind> {
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        let got = self.feed_head(&all, heads, requested);
        if self.partial.is_empty() {
            // The buffer is kept for its capacity.
            all.clear();
            self.partial = all;
        }
        got
    }

    #[inline]
    fn feed_head(
        &mut self,
        mut bytes: &[u8],
        heads: &mut Heads,
        requested: Requested,
    ) -> Result<bool, ErrorKind> {
        loop {
            let Some((info, length)) = heads.read(requested.object, bytes)? else {
                self.partial.extend_from_slice(bytes);
                return Ok(false);
            };
            bytes = &bytes[length..];
            if info.interim {
                continue;
            }
            self.keep_alive = info.keep_alive;
            self.received.bad_status = info.bad_status;
            self.received.source = info.source;
            self.state = match info.body {
                BodyKind::None => State::Length { left: 0 },
                BodyKind::Length(left) => State::Length { left },
                coded => State::Coded(Box::new(BodyDecoder::for_response(coded, &heads.limits))),
            };
            return self.feed_body(bytes, requested);
        }
    }

    #[inline]
    fn feed_body(&mut self, mut bytes: &[u8], requested: Requested) -> Result<bool, ErrorKind> {
        match &mut self.state {
            State::Head => unreachable!("a head comes before its body"),
            State::Length { left } => {
                if bytes.len() as u64 > *left {
                    return Err(ErrorKind::BadFraming);
                }
                *left -= bytes.len() as u64;
                let response = *left == 0;
                self.received.take(bytes, requested)?;
                Ok(response)
            }
            State::Coded(_) => {
                while !bytes.is_empty() {
                    let State::Coded(decoder) = &mut self.state else { unreachable!() };
                    let step = decoder.decode(bytes).map_err(|_| ErrorKind::BadFraming)?;
                    self.received.take(&bytes[step.data.clone()], requested)?;
                    bytes = &bytes[step.consumed..];
                    if step.done {
                        return if bytes.is_empty() {
                            Ok(true)
                        } else {
                            Err(ErrorKind::BadFraming)
                        };
                    }
                    if step.consumed == 0 {
                        // The decoder needs more input, which never happens while bytes remain.
                        return Err(ErrorKind::BadFraming);
                    }
                }
                Ok(false)
            }
        }
    }

    /// The peer has closed. `Ok` if that is how this response ends.
    pub(crate) fn close(&mut self) -> Result<(), ErrorKind> {
        if !self.any_byte {
            return Err(ErrorKind::Closed);
        }
        self.keep_alive = false;
        match &mut self.state {
            State::Coded(decoder) => decoder.finish_on_close().map_err(|_| ErrorKind::Truncated),
            State::Head | State::Length { .. } => Err(ErrorKind::Truncated),
        }
    }

    /// The verdict on a complete response.
    #[inline]
    pub(crate) fn judge(&self, requested: Requested) -> Result<Complete, ErrorKind> {
        self.received.judge(requested)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTED: Requested = Requested { object: 0, size: None, verify: false };

    /// Feeds the pieces and then the peer's close, unless the response completed before.
    fn read(heads: &mut Heads, pieces: &[&[u8]]) -> Expected {
        let mut reader = Reader::new();
        reader.begin();
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            if reader.feed(piece, heads, REQUESTED)? {
                return Ok((reader.judge(REQUESTED)?.body_bytes, reader.keep_alive()));
            }
        }
        reader.close()?;
        Ok((reader.judge(REQUESTED)?.body_bytes, reader.keep_alive()))
    }

    /// Bytes of the body and whether the connection may be reused, or the error.
    type Expected = Result<(u64, bool), ErrorKind>;

    const RESPONSES: &[(&str, Expected)] = &[
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", Ok((5, true))),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", Ok((0, false))),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 None\r\n\r\n", Ok((0, true))),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\n\r\n",
            Ok((3, true)),
        ),
        ("HTTP/1.1 200 OK\r\n\r\nto the end", Ok((10, false))),
        ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", Err(ErrorKind::Truncated)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", Err(ErrorKind::Truncated)),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", Err(ErrorKind::BadFraming)),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nx", Err(ErrorKind::BadStatus)),
        ("", Err(ErrorKind::Closed)),
    ];

    #[test]
    fn a_cut_at_any_byte_changes_nothing() {
        for (text, expected) in RESPONSES {
            for cut in 0..=text.len() {
                let (first, second) = text.as_bytes().split_at(cut);
                // New heads, then known ones.
                let mut heads = Heads::new(1, true);
                for _ in 0..2 {
                    assert_eq!(read(&mut heads, &[first, second]), *expected, "{text:?} {cut}");
                }
            }
        }
    }

    #[test]
    fn bytes_after_the_end_are_detected_when_they_arrive_with_it() {
        for (text, expected) in RESPONSES.iter().filter(|(_, expected)| expected.is_ok()) {
            if text.contains("to the end") {
                continue;
            }
            let more = format!("{text}H");
            let got = read(&mut Heads::new(1, true), &[more.as_bytes()]);
            assert_eq!(got, Err(ErrorKind::BadFraming), "{text:?} was {expected:?}");
        }
    }

    #[test]
    fn a_head_is_recognised_only_if_every_byte_is_the_same() {
        let mut heads = Heads::new(1, true);
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(read(&mut heads, &[text.as_bytes()]), Ok((5, true)));
        let other = text.replace("5\r", "4\r").replace("hello", "hell");
        assert_eq!(read(&mut heads, &[other.as_bytes()]), Ok((4, true)));
        let close = text.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
        assert_eq!(read(&mut heads, &[close.as_bytes()]), Ok((5, false)));
    }

    #[test]
    fn skipped_bytes_are_counted() {
        let mut heads = Heads::new(1, false);
        let mut reader = Reader::new();
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789";
        assert_eq!(reader.feed(head, &mut heads, REQUESTED), Ok(false));
        assert_eq!(reader.body_left(), 90);
        assert!(!reader.skip(40));
        assert!(reader.skip(50));
        assert_eq!(reader.judge(REQUESTED).map(|response| response.body_bytes), Ok(100));
    }
}
