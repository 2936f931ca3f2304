//! Reading a response: strict about every byte, and cheap for those seen before.
//!
//! What: one `Reader` a connection takes bytes as they come and says when the response is whole or
//! why it is wrong. Heads go through `http1` once; a head that comes again byte for byte is known
//! by comparison (`Heads`), which is as strict and costs a `memcmp`. What never happens: a byte
//! after the end of a response goes unseen; I/O; a look at the clock.
//!
//! ```text
//! Head --(interim)--> Head
//! Head --> Length --> whole        Head --> Coded --> whole (chunked, or the peer's close)
//! ```

use http1::{BodyDecoder, BodyKind, Limits, Method, Name, Scratch};

use crate::content;
use crate::outcome::ErrorKind;

/// How many heads are remembered, by the low bits of the object's number.
const HEADS_KEPT: usize = 4096;
/// Longer heads are parsed each time.
const HEAD_KEPT_BYTES_MAX: usize = 2048;

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) object: u32,
    /// The size that the response must have, if the request named one.
    pub(crate) size: Option<u64>,
    /// Whether the bytes must be the origin's.
    pub(crate) verify: bool,
}

/// Where a response came from, as far as it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    FromCache,
    FromOrigin,
    Untold,
}

/// What a head says.
#[derive(Clone, Copy, Debug)]
struct HeadSays {
    body: BodyKind,
    interim: bool,
    keep_alive: bool,
    bad_status: bool,
    came: Came,
}

/// Heads seen before, and what they said.
pub(crate) struct Heads {
    known: Vec<Option<(Box<[u8]>, HeadSays)>>,
    scratch: Scratch,
    limits: Limits,
    tell_hits: bool,
}

impl Heads {
    pub(crate) fn new(objects: u32, tell_hits: bool) -> Heads {
        let kept = (objects as usize).min(HEADS_KEPT).next_power_of_two();
        let mut known = Vec::new();
        known.resize_with(kept, || None);
        Heads { known, scratch: Scratch::new(), limits: Limits::DEFAULT, tell_hits }
    }

    /// What the head at the front of `bytes` says, and its length; `None` if it is not whole.
    #[inline]
    fn read(&mut self, object: u32, bytes: &[u8]) -> Result<Option<(HeadSays, usize)>, ErrorKind> {
        let place = object as usize & (self.known.len() - 1);
        if let Some((head, says)) = &self.known[place]
            && bytes.starts_with(head)
        {
            return Ok(Some((*says, head.len())));
        }
        self.parse(place, bytes)
    }

    fn parse(
        &mut self,
        place: usize,
        bytes: &[u8],
    ) -> Result<Option<(HeadSays, usize)>, ErrorKind> {
        let wrong = |_| ErrorKind::BadFraming;
        let parsed = http1::parse_response(bytes, &mut self.scratch, &self.limits);
        let Some(head) = parsed.map_err(wrong)? else { return Ok(None) };
        let says = HeadSays {
            body: head.body(Method::Get).map_err(wrong)?,
            interim: head.is_interim(),
            keep_alive: head.keep_alive(),
            bad_status: head.status >= 400,
            came: if self.tell_hits {
                came_from(|name| head.fields.get(name))
            } else {
                Came::Untold
            },
        };
        let length = head.head_bytes;
        if length <= HEAD_KEPT_BYTES_MAX {
            self.known[place] = Some((bytes[..length].into(), says));
        }
        Ok(Some((says, length)))
    }
}

/// Cache-Status (RFC 9211) before X-Cache before Age.
fn came_from<'b>(field: impl Fn(Name) -> Option<&'b [u8]>) -> Came {
    let holds = |value: &[u8], word: &[u8]| {
        value.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
    };
    if let Some(status) = field(Name::CacheStatus) {
        // The last member is that of the cache nearest to us.
        let nearest = status.rsplit(|b| *b == b',').next().unwrap_or_default();
        let hit = nearest.split(|b| *b == b';').any(|part| part.trim_ascii() == b"hit");
        return if hit { Came::FromCache } else { Came::FromOrigin };
    }
    if let Some(says) = field(Name::XCache) {
        return if holds(says, b"hit") { Came::FromCache } else { Came::FromOrigin };
    }
    match field(Name::Age).map(<[u8]>::trim_ascii) {
        Some(age) if age != b"0" => Came::FromCache,
        _ => Came::Untold,
    }
}

#[derive(Debug)]
enum State {
    Head,
    Length { left: u64 },
    Coded(Box<BodyDecoder>),
}

/// The response under way on one connection.
#[derive(Debug)]
pub(crate) struct Reader {
    state: State,
    /// The beginning of a head that has not come whole.
    partial: Vec<u8>,
    any_byte: bool,
    keep_alive: bool,
    bad_status: bool,
    came: Came,
    body_bytes: u64,
}

/// A whole and right response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    pub(crate) came: Came,
    pub(crate) body_bytes: u64,
}

impl Reader {
    pub(crate) fn new() -> Reader {
        Reader {
            state: State::Head,
            partial: Vec::new(),
            any_byte: false,
            keep_alive: true,
            bad_status: false,
            came: Came::Untold,
            body_bytes: 0,
        }
    }

    /// Makes ready for the next response.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.state = State::Head;
        self.partial.clear();
        self.any_byte = false;
        self.body_bytes = 0;
    }

    /// Whether the connection may carry another request after this response.
    pub(crate) fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// How many of the bytes to come belong to the body for sure.
    #[inline]
    pub(crate) fn body_left(&self) -> u64 {
        match self.state {
            State::Length { left } => left,
            State::Head | State::Coded(_) => 0,
        }
    }

    /// Counts `count` bytes of the body that were dropped unseen, at most `body_left`; true when
    /// the response is whole.
    pub(crate) fn skip(&mut self, count: u64) -> bool {
        let State::Length { left } = &mut self.state else {
            panic!("only a body of known length is skipped");
        };
        *left = left.checked_sub(count).expect("no more is skipped than is left");
        self.body_bytes += count;
        *left == 0
    }

    /// Takes the next bytes, not empty; true when the response is whole.
    #[inline]
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        heads: &mut Heads,
        asked: Asked,
    ) -> Result<bool, ErrorKind> {
        self.any_byte = true;
        if let State::Head = self.state {
            if !self.partial.is_empty() {
                return self.feed_partial(bytes, heads, asked);
            }
            return self.feed_head(bytes, heads, asked);
        }
        self.feed_body(bytes, asked)
    }

    fn feed_partial(
        &mut self,
        bytes: &[u8],
        heads: &mut Heads,
        asked: Asked,
    ) -> Result<bool, ErrorKind> {
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        let got = self.feed_head(&all, heads, asked);
        if self.partial.is_empty() {
            // Kept for its room.
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
        asked: Asked,
    ) -> Result<bool, ErrorKind> {
        loop {
            let Some((says, length)) = heads.read(asked.object, bytes)? else {
                self.partial.extend_from_slice(bytes);
                return Ok(false);
            };
            bytes = &bytes[length..];
            if says.interim {
                continue;
            }
            self.keep_alive = says.keep_alive;
            self.bad_status = says.bad_status;
            self.came = says.came;
            self.state = match says.body {
                BodyKind::None => State::Length { left: 0 },
                BodyKind::Length(left) => State::Length { left },
                coded => State::Coded(Box::new(BodyDecoder::for_response(coded, &heads.limits))),
            };
            return self.feed_body(bytes, asked);
        }
    }

    #[inline]
    fn feed_body(&mut self, mut bytes: &[u8], asked: Asked) -> Result<bool, ErrorKind> {
        match &mut self.state {
            State::Head => unreachable!("a head comes before its body"),
            State::Length { left } => {
                if bytes.len() as u64 > *left {
                    return Err(ErrorKind::BadFraming);
                }
                *left -= bytes.len() as u64;
                let whole = *left == 0;
                self.take(bytes, asked)?;
                Ok(whole)
            }
            State::Coded(_) => {
                while !bytes.is_empty() {
                    let State::Coded(decoder) = &mut self.state else { unreachable!() };
                    let step = decoder.decode(bytes).map_err(|_| ErrorKind::BadFraming)?;
                    self.take(&bytes[step.data.clone()], asked)?;
                    bytes = &bytes[step.consumed..];
                    if step.done {
                        return if bytes.is_empty() {
                            Ok(true)
                        } else {
                            Err(ErrorKind::BadFraming)
                        };
                    }
                    if step.consumed == 0 {
                        // The decoder wants more than there is: it never does with bytes left.
                        return Err(ErrorKind::BadFraming);
                    }
                }
                Ok(false)
            }
        }
    }

    #[inline]
    fn take(&mut self, body: &[u8], asked: Asked) -> Result<(), ErrorKind> {
        let right = !asked.verify
            || self.bad_status
            || content::matches(u64::from(asked.object), self.body_bytes, body);
        self.body_bytes += body.len() as u64;
        if right { Ok(()) } else { Err(ErrorKind::WrongBytes) }
    }

    /// The peer has closed; `Ok` when that is how this response ends.
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

    /// What the whole response is worth.
    #[inline]
    pub(crate) fn judge(&self, asked: Asked) -> Result<Whole, ErrorKind> {
        if self.bad_status {
            return Err(ErrorKind::BadStatus);
        }
        if asked.size.is_some_and(|size| size != self.body_bytes) {
            return Err(ErrorKind::WrongSize);
        }
        Ok(Whole { came: self.came, body_bytes: self.body_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked = Asked { object: 0, size: None, verify: false };

    /// Feeds the pieces and then the peer's close, unless it was whole before.
    fn read(heads: &mut Heads, pieces: &[&[u8]]) -> Expected {
        let mut reader = Reader::new();
        reader.begin();
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            if reader.feed(piece, heads, ASKED)? {
                return Ok((reader.judge(ASKED)?.body_bytes, reader.keep_alive()));
            }
        }
        reader.close()?;
        Ok((reader.judge(ASKED)?.body_bytes, reader.keep_alive()))
    }

    /// Bytes of the body and whether the connection may be used again, or what is wrong.
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
                // Heads that are new, and heads that are known.
                let mut heads = Heads::new(1, true);
                for _ in 0..2 {
                    assert_eq!(read(&mut heads, &[first, second]), *expected, "{text:?} {cut}");
                }
            }
        }
    }

    #[test]
    fn bytes_after_the_end_are_seen_when_they_come_with_it() {
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
    fn a_known_head_is_known_only_if_every_byte_is_the_same() {
        let mut heads = Heads::new(1, true);
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        assert_eq!(read(&mut heads, &[text.as_bytes()]), Ok((5, true)));
        let other = text.replace("5\r", "4\r").replace("hello", "hell");
        assert_eq!(read(&mut heads, &[other.as_bytes()]), Ok((4, true)));
        let close = text.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
        assert_eq!(read(&mut heads, &[close.as_bytes()]), Ok((5, false)));
    }

    #[test]
    fn bytes_that_are_skipped_count() {
        let mut heads = Heads::new(1, false);
        let mut reader = Reader::new();
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789";
        assert_eq!(reader.feed(head, &mut heads, ASKED), Ok(false));
        assert_eq!(reader.body_left(), 90);
        assert!(!reader.skip(40));
        assert!(reader.skip(50));
        assert_eq!(reader.judge(ASKED).map(|whole| whole.body_bytes), Ok(100));
    }
}
