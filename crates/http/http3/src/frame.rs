//! The headers of frames (RFC 9114 section 7.1), which may be cut anywhere.

use crate::limits::FRAME_HEADER_BYTES_MAX;
use crate::varint;

pub(crate) const DATA: u64 = 0x0;
pub(crate) const HEADERS: u64 = 0x1;
pub(crate) const CANCEL_PUSH: u64 = 0x3;
pub(crate) const SETTINGS: u64 = 0x4;
pub(crate) const PUSH_PROMISE: u64 = 0x5;
pub(crate) const GOAWAY: u64 = 0x7;
pub(crate) const MAX_PUSH_ID: u64 = 0xd;
/// RFC 9218 section 7.2.
pub(crate) const PRIORITY_UPDATE_REQUEST: u64 = 0xf_0700;
pub(crate) const PRIORITY_UPDATE_PUSH: u64 = 0xf_0701;

/// Whether this is a type of HTTP/2 without a counterpart (RFC 9114 section 7.2.8).
pub(crate) fn is_reserved(kind: u64) -> bool {
    matches!(kind, 0x2 | 0x6 | 0x8 | 0x9)
}

/// The start of a frame header that was cut off.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Partial {
    bytes: [u8; FRAME_HEADER_BYTES_MAX],
    len: u8,
}

impl Partial {
    pub(crate) fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Takes input until `read` finds what it looks for; returns how much was taken.
    pub(crate) fn take<T>(
        &mut self,
        input: &[u8],
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> (usize, Option<T>) {
        for (at, byte) in input.iter().enumerate() {
            self.bytes[self.len as usize] = *byte;
            self.len += 1;
            if let Some(found) = read(&self.bytes[..self.len as usize]) {
                self.len = 0;
                return (at + 1, Some(found));
            }
        }
        (input.len(), None)
    }
}

/// Reads the type and the length of a frame.
pub(crate) fn header(bytes: &[u8]) -> Option<(u64, u64)> {
    let (kind, used) = varint::read(bytes)?;
    let (length, _) = varint::read(&bytes[used..])?;
    Some((kind, length))
}
