//! Bodies: where the content is within the received bytes, and where it ends.
//!
//! ```text
//!  None ──────────────────────────────────────────────► Done
//!  Length ── n bytes ─────────────────────────────────► Done
//!  UntilClose (until the caller sees the close)
//!  Size ─► (BeforeExtension ─► Extension) ─► SizeLf ─┬─► Data ─► DataCr ─► DataLf ─► Size
//!                                                    └─► (size 0) TrailerStart
//!  TrailerStart ─┬─► TrailerName ─► TrailerValue ─► TrailerLf ─► TrailerStart
//!                └─► EndLf ───────────────────────────────────────► Done
//! ```
//!
//! [`BodyDecoder`] copies nothing: each step names one piece of the input as content. It keeps no
//! bytes between calls (except trailers, on request), so it consumes every byte that it gets. One
//! function, [`BodyDecoder::framing_byte`], owns the branching between chunks.
//! What never happens: content is returned twice, or from beyond the end of the body.

use std::ops::Range;

use crate::chars::{self, TOKEN, VALUE};
use crate::{BodyKind, Limits, Reject, RejectReason};

/// What one call of [`BodyDecoder::decode`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// How many bytes of the input were consumed. Less than all only if there is more content after
    /// this piece, or if the body is done.
    pub consumed: usize,
    /// The content among them: one piece, possibly empty.
    pub data: Range<usize>,
    /// The body ends here. The following bytes belong to the next message.
    pub done: bool,
}

/// The connection closed before the body was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated;

impl std::fmt::Display for Truncated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection closed within a body (RFC 9112 8)")
    }
}

impl std::error::Error for Truncated {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Done,
    Length,
    UntilClose,
    /// Before or within the digits of a chunk size.
    Size {
        digits: bool,
    },
    /// After white space that follows the size: a `;` must come, or in a response the end.
    BeforeExtension,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
}

/// Finds the content of one body, piece by piece.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: State,
    /// Remaining content of the body (`Length`) or of the chunk (`Size`, `Data`).
    left: u64,
    /// Content of all chunks so far.
    total: u64,
    line_bytes: u32,
    extension_bytes: u32,
    trailer_bytes: u32,
    trailer_count: u32,
    of_response: bool,
    trailers: Option<Vec<u8>>,
    bounds: Bounds,
}

/// A copy of the relevant limits, which avoids a lifetime.
#[derive(Clone, Debug)]
struct Bounds {
    content: u64,
    line: u32,
    extensions: u32,
    trailers: u32,
    trailer_count: u32,
}

impl BodyDecoder {
    /// A decoder for the body of a request.
    pub fn new(kind: BodyKind, limits: &Limits) -> BodyDecoder {
        let (state, left) = match kind {
            BodyKind::None | BodyKind::Length(0) => (State::Done, 0),
            BodyKind::Length(length) => (State::Length, length),
            BodyKind::Chunked => (State::Size { digits: false }, 0),
            BodyKind::UntilClose => (State::UntilClose, 0),
        };
        BodyDecoder {
            state,
            left,
            total: 0,
            line_bytes: 0,
            extension_bytes: 0,
            trailer_bytes: 0,
            trailer_count: 0,
            of_response: false,
            trailers: None,
            bounds: Bounds {
                content: limits.content_bytes_max,
                line: bound(limits.chunk_line_bytes_max),
                extensions: bound(limits.extension_bytes_max),
                trailers: bound(limits.trailer_bytes_max),
                trailer_count: bound(limits.fields()),
            },
        }
    }

    /// A decoder for the body of a response: its rejects have status 502, and white space may
    /// follow a chunk size.
    pub fn for_response(kind: BodyKind, limits: &Limits) -> BodyDecoder {
        BodyDecoder { of_response: true, ..BodyDecoder::new(kind, limits) }
    }

    /// Keeps the trailer section: see [`BodyDecoder::trailers`]. Allocates if there is one.
    pub fn keep_trailers(&mut self) {
        self.trailers.get_or_insert_default();
    }

    /// The trailer section as sent, if it was requested and has lines: field lines without the
    /// final empty line; checked, but not filtered. See [`trailer_fields`].
    pub fn trailers(&self) -> Option<&[u8]> {
        self.trailers.as_deref().filter(|lines| !lines.is_empty())
    }

    /// The body is complete.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Content that is known to follow, of the body or of this chunk.
    pub fn remaining(&self) -> u64 {
        match self.state {
            State::Length | State::Data => self.left,
            _ => 0,
        }
    }

    /// So many bytes of content were taken from the connection without being decoded.
    ///
    /// # Panics
    /// If that is more than [`Self::left_of_length`].
    pub fn skip(&mut self, bytes: u64) {
        let left = self.left_of_length().checked_sub(bytes);
        self.left = left.expect("no more than what remains of a body of known length");
        if self.left == 0 {
            self.state = State::Done;
        }
    }

    /// What remains of a body whose length is known from its head; 0 for any other.
    pub fn left_of_length(&self) -> u64 {
        if self.state == State::Length { self.left } else { 0 }
    }

    /// Decodes the next bytes of the connection. Call again with the remainder,
    /// `input[step.consumed..]`, until that is empty or `done` is set; a finished decoder consumes
    /// nothing.
    ///
    /// # Errors
    /// [`Reject`]: close the connection; content returned before was valid.
    pub fn decode(&mut self, input: &[u8]) -> Result<Step, Reject> {
        let step = match self.state {
            State::Done => Step { consumed: 0, data: 0..0, done: true },
            State::Length => {
                let len = within(input, self.left);
                self.left -= len as u64;
                if self.left == 0 {
                    self.state = State::Done;
                }
                Step { consumed: len, data: 0..len, done: self.left == 0 }
            }
            State::UntilClose => {
                self.add_content(input.len() as u64).map_err(|reason| self.reject(reason))?;
                Step { consumed: input.len(), data: 0..input.len(), done: false }
            }
            _ => self.decode_chunked(input).map_err(|reason| self.reject(reason))?,
        };
        Ok(step)
    }

    /// The peer closed the connection: checks that the body is complete.
    ///
    /// # Errors
    /// [`Truncated`] if the body announced more.
    pub fn finish_on_close(&mut self) -> Result<(), Truncated> {
        match self.state {
            State::Done | State::UntilClose => {
                self.state = State::Done;
                Ok(())
            }
            _ if planted::is(planted::Bug::ShortBodyWhole) => Ok(()),
            _ => Err(Truncated),
        }
    }

    /// Framing bytes, one piece of content, framing bytes: up to the next piece or the end.
    fn decode_chunked(&mut self, input: &[u8]) -> Result<Step, RejectReason> {
        let mut at = 0;
        let mut data = 0..0;
        while at < input.len() && self.state != State::Done {
            if self.state != State::Data {
                self.framing_byte(input[at])?;
                at += 1;
                continue;
            }
            if !data.is_empty() {
                break;
            }
            let len = within(&input[at..], self.left);
            data = at..at + len;
            at += len;
            self.left -= len as u64;
            if self.left == 0 {
                self.state = State::DataCr;
            }
        }
        Ok(Step { consumed: at, data, done: self.state == State::Done })
    }

    #[inline]
    fn framing_byte(&mut self, byte: u8) -> Result<(), RejectReason> {
        self.state = match self.state {
            State::Size { digits } => self.size_byte(byte, digits)?,
            State::BeforeExtension | State::Extension => self.extension_byte(byte)?,
            State::SizeLf => {
                expect(byte, b'\n', RejectReason::BareCr)?;
                self.chunk_begins()?
            }
            State::DataCr => {
                if !planted::is(planted::Bug::ChunkEndUnchecked) {
                    expect(byte, b'\r', RejectReason::MissingChunkEnd)?;
                }
                State::DataLf
            }
            State::DataLf => {
                expect(byte, b'\n', RejectReason::MissingChunkEnd)?;
                State::Size { digits: false }
            }
            State::TrailerStart
            | State::TrailerName
            | State::TrailerValue
            | State::TrailerLf
            | State::EndLf => self.trailer_byte(byte)?,
            State::Done | State::Length | State::UntilClose | State::Data => {
                unreachable!("not a state between chunks")
            }
        };
        Ok(())
    }

    fn size_byte(&mut self, byte: u8, digits: bool) -> Result<State, RejectReason> {
        self.count_line_byte()?;
        if let Some(digit) = (byte as char).to_digit(16) {
            if self.left >> 60 != 0 {
                return Err(RejectReason::ChunkSizeOverflow);
            }
            self.left = self.left << 4 | u64::from(digit);
            return Ok(State::Size { digits: true });
        }
        match byte {
            _ if !digits => Err(RejectReason::InvalidChunkSize),
            b'\r' => Ok(State::SizeLf),
            b'\n' => Err(RejectReason::BareLf),
            b';' | b' ' | b'\t' => {
                self.count_extension_byte()?;
                Ok(if byte == b';' { State::Extension } else { State::BeforeExtension })
            }
            _ => Err(RejectReason::InvalidChunkSize),
        }
    }

    fn extension_byte(&mut self, byte: u8) -> Result<State, RejectReason> {
        self.count_line_byte()?;
        self.count_extension_byte()?;
        match (self.state, byte) {
            (State::BeforeExtension, b';') => Ok(State::Extension),
            (State::BeforeExtension, b' ' | b'\t') => Ok(State::BeforeExtension),
            // Some origins write sizes of a fixed width.
            (State::BeforeExtension, b'\r') if self.of_response => Ok(State::SizeLf),
            (State::BeforeExtension, _) => Err(RejectReason::InvalidChunkSize),
            (_, b'\r') => Ok(State::SizeLf),
            (_, b'\n') => Err(RejectReason::BareLf),
            (_, byte) if chars::is(byte, VALUE) => Ok(State::Extension),
            _ => Err(RejectReason::InvalidChunkExtension),
        }
    }

    fn chunk_begins(&mut self) -> Result<State, RejectReason> {
        self.line_bytes = 0;
        if self.left == 0 {
            return Ok(State::TrailerStart);
        }
        self.add_content(self.left)?;
        Ok(State::Data)
    }

    fn trailer_byte(&mut self, byte: u8) -> Result<State, RejectReason> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > self.bounds.trailers {
            return Err(RejectReason::TrailersTooLarge);
        }
        let next = match (self.state, byte) {
            (State::TrailerLf, b'\n') => State::TrailerStart,
            (State::EndLf, b'\n') => return Ok(State::Done),
            (State::TrailerLf | State::EndLf, _) => return Err(RejectReason::BareCr),
            (State::TrailerStart, b'\r') => return Ok(State::EndLf),
            (State::TrailerStart, b':') => return Err(RejectReason::EmptyFieldName),
            (State::TrailerStart, b' ' | b'\t') => return Err(RejectReason::ObsFold),
            (_, b'\n') => return Err(RejectReason::BareLf),
            (_, 0) => return Err(RejectReason::Nul),
            (State::TrailerStart, byte) if chars::is(byte, TOKEN) => {
                self.trailer_count += 1;
                if self.trailer_count > self.bounds.trailer_count {
                    return Err(RejectReason::TooManyFields);
                }
                State::TrailerName
            }
            (State::TrailerName, byte) if chars::is(byte, TOKEN) => State::TrailerName,
            (State::TrailerName, b':') => State::TrailerValue,
            (State::TrailerName, b' ' | b'\t') => return Err(RejectReason::SpaceBeforeColon),
            (State::TrailerName, b'\r') => return Err(RejectReason::MissingColon),
            (State::TrailerValue, b'\r') => State::TrailerLf,
            (State::TrailerValue, byte) if chars::is(byte, VALUE) => State::TrailerValue,
            (State::TrailerValue, _) => return Err(RejectReason::InvalidFieldValue),
            _ => return Err(RejectReason::InvalidFieldName),
        };
        if let Some(trailers) = &mut self.trailers {
            trailers.push(byte);
        }
        Ok(next)
    }

    fn count_line_byte(&mut self) -> Result<(), RejectReason> {
        self.line_bytes += 1;
        // The line feed is not counted, because it is always read.
        if self.line_bytes >= self.bounds.line {
            return Err(RejectReason::ChunkLineTooLong);
        }
        Ok(())
    }

    fn count_extension_byte(&mut self) -> Result<(), RejectReason> {
        self.extension_bytes += 1;
        if self.extension_bytes > self.bounds.extensions {
            return Err(RejectReason::ExtensionsTooLarge);
        }
        Ok(())
    }

    fn add_content(&mut self, len: u64) -> Result<(), RejectReason> {
        self.total = self.total.saturating_add(len);
        if self.total > self.bounds.content {
            return Err(RejectReason::ContentTooLarge);
        }
        Ok(())
    }

    fn reject(&self, reason: RejectReason) -> Reject {
        if self.of_response { Reject::response(reason) } else { Reject::request(reason) }
    }
}

/// The fields of a trailer section that [`BodyDecoder`] kept, as (name, value). The caller decides
/// which of them may be merged (RFC 9110 section 6.5.1: only those known to allow it).
pub fn trailer_fields(section: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    section.split(|&b| b == b'\n').filter_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        let value = line[colon + 1..].strip_suffix(b"\r").unwrap_or(&line[colon + 1..]);
        Some((&line[..colon], chars::trim(value)))
    })
}

#[inline]
fn expect(byte: u8, wanted: u8, otherwise: RejectReason) -> Result<(), RejectReason> {
    if byte == wanted { Ok(()) } else { Err(otherwise) }
}

/// As many bytes of `input` as `left` allows.
#[inline]
fn within(input: &[u8], left: u64) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(input.len())
}

fn bound(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}
