//! Field lines to spans: httparse finds the pieces, and this file refuses what httparse tolerates.
//!
//! httparse accepts a bare line feed as a line end, so the start of every name and the end of the
//! head are checked again here. Its errors name no rule; [`diagnose`] finds the
//! rule, off the fast path.

use crate::diagnose;
use crate::fields::{Scratch, Span};
use crate::limits::{FIELDS_CEILING, FieldNames, Limits, NAME_BYTES_MAX};
use crate::name::is_plain;
use crate::{Name, RejectReason};

/// Heads with at most this many fields are read in one pass with little memory to clear.
const FEW_FIELDS: usize = 16;

const _: () = assert!(FEW_FIELDS < FIELDS_CEILING);

impl Scratch {
    /// Reads the field lines that begin at `start` and the empty line after them. Returns the
    /// position after the head; `None` while the head is not complete.
    pub(crate) fn tokenise(
        &mut self,
        buf: &[u8],
        start: usize,
        limits: &Limits,
    ) -> Result<Option<usize>, RejectReason> {
        let block = &buf[start..];
        let mut few = [httparse::EMPTY_HEADER; FEW_FIELDS];
        match httparse::parse_headers(block, &mut few) {
            Ok(httparse::Status::Complete((len, headers))) => {
                self.record(buf, start, len, headers, limits).map(Some)
            }
            Ok(httparse::Status::Partial) => incomplete(buf, limits),
            Err(httparse::Error::TooManyHeaders) => self.tokenise_many(buf, start, limits),
            Err(error) => Err(diagnose::fields(block, error)),
        }
    }

    #[inline(never)]
    fn tokenise_many(
        &mut self,
        buf: &[u8],
        start: usize,
        limits: &Limits,
    ) -> Result<Option<usize>, RejectReason> {
        let block = &buf[start..];
        let mut many = [httparse::EMPTY_HEADER; FIELDS_CEILING];
        match httparse::parse_headers(block, &mut many) {
            Ok(httparse::Status::Complete((len, headers))) => {
                self.record(buf, start, len, headers, limits).map(Some)
            }
            Ok(httparse::Status::Partial) => incomplete(buf, limits),
            Err(error) => Err(diagnose::fields(block, error)),
        }
    }

    #[inline]
    fn record(
        &mut self,
        buf: &[u8],
        start: usize,
        len: usize,
        headers: &[httparse::Header<'_>],
        limits: &Limits,
    ) -> Result<usize, RejectReason> {
        let end = start + len;
        if headers.len() > limits.fields() {
            return Err(RejectReason::TooManyFields);
        }
        if !buf[..end].ends_with(b"\r\n\r\n") {
            return Err(RejectReason::BareLf);
        }
        let base = buf.as_ptr() as usize;
        let index = &mut self.index;
        index.clear();
        for (at, (header, span)) in headers.iter().zip(&mut self.spans).enumerate() {
            let name = header.name.as_bytes();
            let name_start = name.as_ptr() as usize - base;
            if buf[name_start - 2] != b'\r' {
                return Err(RejectReason::BareLf);
            }
            if name.len() > NAME_BYTES_MAX {
                return Err(RejectReason::HeadTooLarge);
            }
            let id = Name::from_token(name);
            *span = Span {
                name_start: name_start as u32,
                value_start: (header.value.as_ptr() as usize - base) as u32,
                value_len: header.value.len() as u32,
                name_len: name.len() as u16,
                name: id,
            };
            index.note(id, at);
        }
        self.count = headers.len();
        self.aside = 0;
        // The known names are plain.
        self.is_odd = limits.names == FieldNames::Plain
            && self.index.has(Name::Other)
            && headers.iter().any(|header| !is_plain(header.name.as_bytes()));
        Ok(end)
    }
}

/// The head is not complete: wait, unless it is already too long.
pub(crate) fn incomplete<T>(buf: &[u8], limits: &Limits) -> Result<Option<T>, RejectReason> {
    if buf.len() >= limits.head_bytes() { Err(RejectReason::HeadTooLarge) } else { Ok(None) }
}
