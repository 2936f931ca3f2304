//! Frames (RFC 9113 sections 4 and 6): the nine bytes of a header, and the frames that we write.
//!
//! Payloads are read in place by the connection. What never happens here: a decision about a
//! stream.

use crate::error::ErrorCode;
use crate::limits::{FRAME_BYTES, FRAME_HEADER_BYTES};

/// The types of frames.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0x0;
    pub(crate) const HEADERS: u8 = 0x1;
    pub(crate) const PRIORITY: u8 = 0x2;
    pub(crate) const RST_STREAM: u8 = 0x3;
    pub(crate) const SETTINGS: u8 = 0x4;
    pub(crate) const PING: u8 = 0x6;
    pub(crate) const GOAWAY: u8 = 0x7;
    pub(crate) const WINDOW_UPDATE: u8 = 0x8;
    pub(crate) const CONTINUATION: u8 = 0x9;
    pub(crate) const PRIORITY_UPDATE: u8 = 0x10;
}

/// The flags of frames.
pub(crate) mod flag {
    pub(crate) const ACK: u8 = 0x1;
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// The bytes of the header fields of priority in HEADERS and PRIORITY.
pub(crate) const PRIORITY_BYTES: usize = 5;

/// The first nine bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl FrameHeader {
    /// Reads a header; the reserved bit is ignored. `None`: more bytes are needed.
    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> Option<FrameHeader> {
        let b = bytes.first_chunk::<FRAME_HEADER_BYTES>()?;
        Some(FrameHeader {
            length: u32::from_be_bytes([0, b[0], b[1], b[2]]) as usize,
            kind: b[3],
            flags: b[4],
            stream: u32_31([b[5], b[6], b[7], b[8]]),
        })
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(crate) fn bytes(&self) -> [u8; FRAME_HEADER_BYTES] {
        let l = (self.length as u32).to_be_bytes();
        let s = self.stream.to_be_bytes();
        [l[1], l[2], l[3], self.kind, self.flags, s[0], s[1], s[2], s[3]]
    }
}

/// A number of 31 bits after a reserved bit.
#[inline]
pub(crate) fn u32_31(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & 0x7fff_ffff
}

#[inline]
pub(crate) fn header(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    debug_assert!(length <= FRAME_BYTES);
    out.extend_from_slice(&FrameHeader { length, kind, flags, stream }.bytes());
}

pub(crate) fn rst_stream(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    header(out, 4, kind::RST_STREAM, 0, stream);
    out.extend_from_slice(&code.0.to_be_bytes());
}

pub(crate) fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    header(out, 4, kind::WINDOW_UPDATE, 0, stream);
    out.extend_from_slice(&increment.to_be_bytes());
}

pub(crate) fn ping(out: &mut Vec<u8>, flags: u8, payload: [u8; 8]) {
    header(out, 8, kind::PING, flags, 0);
    out.extend_from_slice(&payload);
}

pub(crate) fn go_away(out: &mut Vec<u8>, last_stream: u32, code: ErrorCode) {
    header(out, 8, kind::GOAWAY, 0, 0);
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
}

/// Completes the field block that was appended to `out` behind nine unused bytes at `start`: writes
/// the header of HEADERS, and splits a block that is too long for one frame.
pub(crate) fn close_block(
    out: &mut Vec<u8>,
    start: usize,
    stream: u32,
    end_stream: bool,
    frame_bytes_max: usize,
) {
    let block_bytes = out.len() - start - FRAME_HEADER_BYTES;
    let end = if end_stream { flag::END_STREAM } else { 0 };
    let mut header = FrameHeader {
        length: block_bytes,
        kind: kind::HEADERS,
        flags: end | flag::END_HEADERS,
        stream,
    };
    if block_bytes <= frame_bytes_max {
        out[start..start + FRAME_HEADER_BYTES].copy_from_slice(&header.bytes());
        return;
    }
    let block = out.split_off(start + FRAME_HEADER_BYTES);
    out.truncate(start);
    let frames = block.chunks(frame_bytes_max);
    let last = frames.len() - 1;
    for (number, piece) in frames.enumerate() {
        header.length = piece.len();
        header.kind = if number == 0 { kind::HEADERS } else { kind::CONTINUATION };
        header.flags = if number == 0 { end } else { 0 };
        if number == last {
            header.flags |= flag::END_HEADERS;
        }
        out.extend_from_slice(&header.bytes());
        out.extend_from_slice(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9113_4_1_a_header_is_read_as_it_is_written() {
        let header = FrameHeader { length: 0x01_0203, kind: 9, flags: 0xa5, stream: 0x7fff_fffe };
        assert_eq!(header.bytes(), [1, 2, 3, 9, 0xa5, 0x7f, 0xff, 0xff, 0xfe]);
        assert_eq!(FrameHeader::read(&header.bytes()), Some(header));
        let mut reserved = header.bytes();
        reserved[5] |= 0x80;
        assert_eq!(FrameHeader::read(&reserved), Some(header));
        assert_eq!(FrameHeader::read(&reserved[..8]), None);
    }

    #[test]
    fn rfc9113_6_10_a_long_block_is_split_into_continuations() {
        let mut out = vec![7; 3];
        let start = out.len();
        out.resize(start + FRAME_HEADER_BYTES, 0);
        out.extend_from_slice(&[1; 25]);
        close_block(&mut out, start, 5, true, 10);
        let mut rest = &out[3..];
        let mut seen = Vec::new();
        while let Some(header) = FrameHeader::read(rest) {
            seen.push((header.kind, header.flags, header.length));
            rest = &rest[FRAME_HEADER_BYTES + header.length..];
        }
        let expected = [(1, flag::END_STREAM, 10), (9, 0, 10), (9, flag::END_HEADERS, 5)];
        assert_eq!(seen, expected);
    }
}
