//! Field lines to spans, in one pass over the bytes.
//!
//! ```text
//!  Name --':'--> White space --> Value --CRLF--> Name
//!    '---CRLF--> the end of the head
//! ```
//!
//! Names end at the first colon, control character or space, and values at the first control
//! character. Both are found eight bytes at a time. A name that is in the list of known names needs
//! no further check. All others are checked byte by byte.
//!
//! A bare LF ends a line here, so that the head is refused as a whole, when it is complete. No
//! other deviation is accepted. [`diagnose`] finds the rule that a line breaks, off the fast path.
//! The tests compare this file with httparse, a second reading.

use std::ops::Range;

use crate::chars::{CLASS, PLAIN, TOKEN};
use crate::diagnose;
use crate::fields::{Scratch, Span};
use crate::limits::{FIELDS_CEILING, FieldNames, Limits, NAME_BYTES_MAX};
use crate::{Name, RejectReason};

/// A field line. Positions are those within the head.
struct Line {
    name: Range<usize>,
    id: Name,
    /// The classes that all bytes of the name have. A known name has these two.
    classes: u8,
    value: Range<usize>,
    /// Where the next line begins.
    next: usize,
    /// It ends with LF alone.
    is_bare: bool,
}

impl Scratch {
    /// Reads the field lines that begin at `start` and the empty line after them. Returns the
    /// position after the head; `None` while the head is not complete.
    pub(crate) fn tokenise(
        &mut self,
        buf: &[u8],
        start: usize,
        limits: &Limits,
    ) -> Result<Option<usize>, RejectReason> {
        self.index.clear();
        let (mut at, mut count, mut classes, mut fault) = (start, 0, PLAIN, None);
        let end = loop {
            let read = match buf.get(at) {
                None => return incomplete(buf, limits),
                Some(b'\r' | b'\n') => match after_line(buf, at, RejectReason::BareCr) {
                    Ok(Some(end)) => break end,
                    Ok(None) => Ok(None),
                    Err(reason) => Err(reason),
                },
                Some(_) => line(buf, at),
            };
            let line = match read {
                Ok(Some(line)) => line,
                Ok(None) => return incomplete(buf, limits),
                Err(reason) => return Err(diagnose::fields(&buf[start..], reason)),
            };
            let Some(span) = self.spans.get_mut(count) else {
                return Err(diagnose::fields(&buf[start..], RejectReason::TooManyFields));
            };
            if line.id == Name::Other && line.name.len() > NAME_BYTES_MAX {
                fault = fault.or(Some(RejectReason::HeadTooLarge));
            }
            if line.is_bare {
                fault = fault.or(Some(RejectReason::BareLf));
            }
            *span = Span {
                name_start: line.name.start as u32,
                value_start: line.value.start as u32,
                value_len: line.value.len() as u32,
                name_len: line.name.len() as u16,
                name: line.id,
            };
            self.index.note(line.id, count);
            classes &= line.classes;
            count += 1;
            at = line.next;
        };
        debug_assert!(start <= at && at < end && count <= FIELDS_CEILING);
        if count > limits.fields() {
            return Err(RejectReason::TooManyFields);
        }
        if buf[at] == b'\n' {
            return Err(RejectReason::BareLf);
        }
        if let Some(reason) = fault {
            return Err(reason);
        }
        self.count = count;
        self.aside = 0;
        self.is_odd = limits.names == FieldNames::Plain && classes & PLAIN == 0;
        Ok(Some(end))
    }
}

/// The field line at `at`; `None` if not all of it is here. The error is the rule that the line
/// breaks at least.
#[inline(always)]
fn line(buf: &[u8], at: usize) -> Result<Option<Line>, RejectReason> {
    let name_end = end_of_name(buf, at);
    let name = &buf[at..name_end];
    let id = Name::from_token(name);
    let classes = match id {
        Name::Other => name.iter().fold(TOKEN | PLAIN, |all, &byte| all & CLASS[byte as usize]),
        _ => TOKEN | PLAIN,
    };
    match buf.get(name_end) {
        _ if classes & TOKEN == 0 => return Err(RejectReason::InvalidFieldName),
        Some(b':') if name_end > at => {}
        None => return Ok(None),
        Some(_) => return Err(RejectReason::InvalidFieldName),
    }
    let mut start = name_end + 1;
    while matches!(buf.get(start), Some(b' ' | b'\t')) {
        start += 1;
    }
    let mut end = end_of_value(buf, start);
    let Some(next) = after_line(buf, end, RejectReason::InvalidFieldValue)? else {
        return Ok(None);
    };
    let is_bare = buf[end] == b'\n';
    while end > start && matches!(buf[end - 1], b' ' | b'\t') {
        end -= 1;
    }
    Ok(Some(Line { name: at..name_end, id, classes, value: start..end, next, is_bare }))
}

/// The position after the line end at `at`; `None` if not all of it is here. It is the error
/// `otherwise` if another byte is there.
#[inline(always)]
fn after_line(
    buf: &[u8],
    at: usize,
    otherwise: RejectReason,
) -> Result<Option<usize>, RejectReason> {
    match &buf[at..] {
        [b'\r', b'\n', ..] => Ok(Some(at + 2)),
        [b'\n', ..] => Ok(Some(at + 1)),
        [] | [b'\r'] => Ok(None),
        _ => Err(otherwise),
    }
}

/// `0x01` in each byte, and the highest bit of each.
const ONES: u64 = u64::from_le_bytes([1; 8]);
const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);
const COLONS: u64 = u64::from_le_bytes([b':'; 8]);
const TABS: u64 = u64::from_le_bytes([b'\t'; 8]);
/// The first character after the space.
const AFTER_SPACES: u64 = u64::from_le_bytes([b' ' + 1; 8]);

/// The bytes that are below these limits, which are at most 0x80, as their highest bits. Above the
/// first such byte, other bits may be set, too.
#[inline(always)]
fn below(word: u64, limits: u64) -> u64 {
    word.wrapping_sub(limits) & !word & HIGHS
}

/// The same for the bytes that are zero.
#[inline(always)]
fn zero(word: u64) -> u64 {
    below(word, ONES)
}

/// Exactly the control characters that are no tab. No sum of two bytes that are below 0x80 goes
/// over into the next byte.
#[inline(always)]
fn controls(word: u64) -> u64 {
    let low = word & !HIGHS;
    let no_control = low + ONES * (0x80 - 0x20);
    let no_tab = (low ^ TABS) + ONES * 0x7f;
    let is_del = low + ONES;
    ((!no_control & no_tab) | is_del) & !word & HIGHS
}

/// The first byte from `at` on for which `is_it` is true, or the end. `hits` says the same of eight
/// bytes, by the highest bit of the first such byte.
#[inline(always)]
fn find(buf: &[u8], mut at: usize, hits: impl Fn(u64) -> u64, is_it: impl Fn(u8) -> bool) -> usize {
    while let Some(bytes) = buf[at..].first_chunk::<8>() {
        let hits = hits(u64::from_le_bytes(*bytes));
        if hits != 0 {
            return at + (hits.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while buf.get(at).is_some_and(|&byte| !is_it(byte)) {
        at += 1;
    }
    at
}

/// Where a name ends: at a colon, a control character or a space.
#[inline(always)]
fn end_of_name(buf: &[u8], at: usize) -> usize {
    let hits = |word| zero(word ^ COLONS) | below(word, AFTER_SPACES);
    find(buf, at, hits, |byte| byte == b':' || byte <= b' ')
}

/// Where a value ends, with the white space after it: at a control character that is no tab.
#[inline(always)]
fn end_of_value(buf: &[u8], at: usize) -> usize {
    find(buf, at, controls, |byte| byte.is_ascii_control() && byte != b'\t')
}

/// The head is not complete: wait, unless it is already too long.
pub(crate) fn incomplete<T>(buf: &[u8], limits: &Limits) -> Result<Option<T>, RejectReason> {
    if buf.len() >= limits.head_bytes() { Err(RejectReason::HeadTooLarge) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: &[u8] = b"GET / HTTP/1.1\r\n";

    /// Where the head ends, and the positions of names and values.
    type Read = Result<Option<(usize, Vec<[Range<usize>; 2]>)>, RejectReason>;

    fn ours(head: &[u8]) -> Read {
        let mut scratch = Scratch::new();
        let end = scratch.tokenise(head, START.len(), &Limits::DEFAULT)?;
        let Some(end) = end else { return Ok(None) };
        let spans = scratch.spans[..scratch.count].iter().map(|span| {
            let (name, value) = (span.name_start as usize, span.value_start as usize);
            let [name, value] =
                [name..name + span.name_len as usize, value..value + span.value_len as usize];
            assert_eq!(span.name, Name::from_bytes(&head[name.clone()]));
            [name, value]
        });
        Ok(Some((end, spans.collect())))
    }

    /// What httparse reads, without the bare LF that it accepts.
    fn theirs(head: &[u8]) -> Read {
        let block = &head[START.len()..];
        let mut many = [httparse::EMPTY_HEADER; FIELDS_CEILING];
        let (len, headers) = match httparse::parse_headers(block, &mut many) {
            Ok(httparse::Status::Complete(read)) => read,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => {
                let otherwise = match error {
                    httparse::Error::TooManyHeaders => RejectReason::TooManyFields,
                    httparse::Error::HeaderValue => RejectReason::InvalidFieldValue,
                    httparse::Error::NewLine => RejectReason::BareCr,
                    _ => RejectReason::InvalidFieldName,
                };
                return Err(diagnose::fields(block, otherwise));
            }
        };
        let end = START.len() + len;
        let place = |part: &[u8]| {
            let start = part.as_ptr().addr() - head.as_ptr().addr();
            start..start + part.len()
        };
        let places = headers.iter().map(|of| [place(of.name.as_bytes()), place(of.value)]);
        let places: Vec<_> = places.collect();
        let is_strict = head[..end].ends_with(b"\r\n\r\n")
            && places.iter().all(|[name, _]| head[name.start - 2] == b'\r');
        if is_strict { Ok(Some((end, places))) } else { Err(RejectReason::BareLf) }
    }

    fn check(block: &[u8]) {
        let head = [START, block].concat();
        assert_eq!(ours(&head), theirs(&head), "{}", block.escape_ascii());
    }

    const BLOCK: &[u8] = b"Host: a.example:80\r\nX_y:\t \r\nContent-Length:5 \t\r\ncache-control: \
        no-cache, max-age=0\r\nEmpty:\r\nSome-Thing-Longer-Than-A-Word: \x80 x\ty \r\n\r\nrest";

    /// The end of the bytes is also at each place: near it, bytes are read one by one.
    #[test]
    fn each_other_byte_at_each_place_is_read_as_httparse_reads_it() {
        for at in 0..BLOCK.len() {
            check(&BLOCK[..at]);
            let mut block = BLOCK.to_vec();
            for byte in 0..=u8::MAX {
                block[at] = byte;
                check(&block);
                (at + 1..BLOCK.len().min(at + 16)).for_each(|end| check(&block[..end]));
            }
        }
    }

    /// A head may end where the bytes end.
    #[test]
    fn each_byte_at_the_end_of_the_bytes_is_read_as_httparse_reads_it() {
        for byte in 0..=u8::MAX {
            for line in [&b"A:?\r\n\r\n"[..], b"A:b?\r\n\r\n", b"A?:b\r\n\r\n", b"A:\t?\t\r\n\r\n"]
            {
                let with = |&of: &u8| if of == b'?' { byte } else { of };
                check(&line.iter().map(with).collect::<Vec<u8>>());
            }
        }
    }

    #[test]
    fn control_characters_are_found_at_each_place_of_a_word() {
        let is_end = |byte: u8| byte.is_ascii_control() && byte != b'\t';
        for (one, other) in (0..=u8::MAX).flat_map(|one| (0..=u8::MAX).map(move |two| (one, two))) {
            for around in [b'a', b'\t', 0x80, 0xff] {
                let bytes = [around, one, other, around, other, one, around, one];
                let found = controls(u64::from_le_bytes(bytes)).to_le_bytes();
                assert_eq!(found.map(|found| found == 0x80), bytes.map(is_end), "{bytes:?}");
                assert!(found.iter().all(|found| matches!(found, 0 | 0x80)));
            }
        }
    }

    #[test]
    fn a_name_that_is_too_long_for_its_span_is_refused() {
        let read = |len: usize| {
            let head = [START, &b"a".repeat(len), b": b\r\n\r\n"].concat();
            let limits = Limits { head_bytes_max: 1 << 20, ..Limits::DEFAULT };
            Scratch::new().tokenise(&head, START.len(), &limits).map(|end| end == Some(head.len()))
        };
        assert_eq!(read(NAME_BYTES_MAX), Ok(true));
        assert_eq!(read(NAME_BYTES_MAX + 1), Err(RejectReason::HeadTooLarge));
    }

    #[test]
    fn there_is_a_limit_on_lines_and_it_is_that_of_httparse() {
        for lines in FIELDS_CEILING - 1..FIELDS_CEILING + 2 {
            let block = [b"A: b\r\n".repeat(lines), b"\r\n".to_vec()].concat();
            check(&block);
            check(&block[..block.len() - 3]);
        }
    }

    const PIECES: &[&str] = &[
        "\r\n",
        "\r\n",
        "\n",
        "\r",
        ":",
        ": ",
        ":\t",
        " ",
        "\t",
        "a",
        "-",
        "_",
        "Host",
        "Date",
        "x-longer-than-eight",
        "\0",
        "\x7f",
        "é",
        ",",
        "(",
        "/",
        "1",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn lines_of_any_pieces_are_read_as_httparse_reads_them(
            pieces in prop::collection::vec(prop::sample::select(PIECES), 0..24),
        ) {
            check(pieces.concat().as_bytes());
        }
    }
}
