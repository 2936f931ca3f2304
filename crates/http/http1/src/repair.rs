//! Repairs of response heads: what origins send against the rules, and all other proxies accept.
//!
//! What: [`accept_response`] takes what [`parse_response`](crate::parse_response) refuses, if the
//! deviation leaves no doubt where the head and the body end. The table in `docs/upstreams.md`
//! lists each deviation with what becomes of it.
//!
//! Why apart: the strict parser stays the fast path, and is the only one for requests. This one
//! runs after it has refused a head. It reads line by line, writes a head by the rules into the
//! scratch, and gives that to the caller, so that no later reader sees the deviation.
//!
//! Who owns: the repaired bytes are in the [`Scratch`].
//!
//! What never happens: two lengths, or a length beside a coding, go on; a connection whose framing
//! was repaired carries another response.

use crate::chars::{self, TOKEN, VALUE, tokens};
use crate::fields::{Scratch, Span};
use crate::limits::{Limits, NAME_BYTES_MAX};
use crate::request::http_version;
use crate::response::{Line, Meta, read};
use crate::tokenise::incomplete;
use crate::{Name, Reject, RejectReason, ResponseHead, Version, framing, hop};

/// Parses the head of a response as [`parse_response`](crate::parse_response) does, and repairs it
/// if that is possible.
///
/// # Errors
/// [`Reject`]: close the connection and answer the client with 502.
pub fn accept_response<'b>(
    buf: &'b [u8],
    scratch: &'b mut Scratch,
    limits: &Limits,
) -> Result<Option<ResponseHead<'b>>, Reject> {
    match read(buf, scratch, limits) {
        Ok(None) => Ok(None),
        Ok(Some(meta)) => Ok(Some(meta.view(buf, scratch.fields(buf)))),
        Err(reason) if may_repair(reason) => repaired(buf, scratch, limits),
        Err(reason) => Err(Reject::response(reason)),
    }
}

/// Whether a head may be read by [`accept_response`] although it breaks this rule.
pub(crate) fn may_repair(reason: RejectReason) -> bool {
    use RejectReason::*;
    matches!(
        reason,
        BareLf
            | ObsFold
            | SpaceBeforeColon
            | InvalidFieldValue
            | InvalidStatus
            | MalformedStatusLine
            | LengthWithEncoding
            | RepeatedLength
            | InvalidLength
            | ChunkedNotLast
    )
}

#[cold]
#[inline(never)]
fn repaired<'b>(
    buf: &'b [u8],
    scratch: &'b mut Scratch,
    limits: &Limits,
) -> Result<Option<ResponseHead<'b>>, Reject> {
    let read = Repair::new(buf, scratch, limits).run();
    let Some((meta, head_bytes)) = read.map_err(Reject::response)? else { return Ok(None) };
    let scratch = &*scratch;
    let mut head = meta.view(&scratch.repaired, scratch.fields(&scratch.repaired));
    head.head_bytes = head_bytes;
    Ok(Some(head))
}

/// A head that is being read, and written by the rules.
struct Repair<'r> {
    buf: &'r [u8],
    /// Where the next line begins.
    at: usize,
    scratch: &'r mut Scratch,
    limits: &'r Limits,
    /// Whether lines end with LF alone: all or none. An LF among CRLFs may be part of a value that
    /// a user has written.
    is_lf: Option<bool>,
    /// The connection carries no further response.
    closes: bool,
}

impl<'r> Repair<'r> {
    fn new(buf: &'r [u8], scratch: &'r mut Scratch, limits: &'r Limits) -> Repair<'r> {
        // As for the strict parser: the result does not depend on how much has arrived.
        let buf = &buf[..buf.len().min(limits.head_bytes())];
        scratch.repaired.clear();
        (scratch.count, scratch.aside, scratch.is_odd) = (0, 0, false);
        scratch.index.clear();
        Repair { buf, at: 0, scratch, limits, is_lf: None, closes: false }
    }

    /// The head as it was written, and how long it was.
    fn run(mut self) -> Result<Option<(Meta, usize)>, RejectReason> {
        let Some(line) = self.line()? else { return incomplete(self.buf, self.limits) };
        let mut line = status_line(line, &mut self.scratch.repaired)?;
        line.end = self.scratch.repaired.len();
        let mut fields: Vec<(&[u8], Vec<u8>)> = Vec::new();
        loop {
            let Some(text) = self.line()? else { return incomplete(self.buf, self.limits) };
            match text {
                [] => break,
                [b' ' | b'\t', ..] => {
                    let folded = fields.last_mut().ok_or(RejectReason::SpaceBeforeFields)?;
                    let (name, value) = folded;
                    if is_framing(name) {
                        return Err(RejectReason::ObsFold);
                    }
                    self.closes = true;
                    value.push(b' ');
                    value.extend_from_slice(value_in(text)?);
                }
                _ => {
                    if fields.len() == self.limits.fields() {
                        return Err(RejectReason::TooManyFields);
                    }
                    fields.push(self.field(text)?);
                }
            }
        }
        self.write(&fields)?;
        let end = self.scratch.repaired.len();
        let repaired = self.scratch.fields(&self.scratch.repaired);
        let declared = framing::declared(&repaired, line.version, self.limits)?;
        let mut options = hop::options(&repaired)?;
        options.close |= self.closes;
        if options.names_fields {
            let head = std::mem::take(&mut self.scratch.repaired);
            self.scratch.set_aside(&head);
            self.scratch.repaired = head;
        }
        Ok(Some((Meta { line, declared, options, head_bytes: end }, self.at)))
    }

    /// The next line without its end; `None` if it is not complete.
    fn line(&mut self) -> Result<Option<&'r [u8]>, RejectReason> {
        let rest = &self.buf[self.at..];
        let Some(len) = memchr::memchr(b'\n', rest) else { return Ok(None) };
        self.at += len + 1;
        let without_cr = rest[..len].strip_suffix(b"\r");
        let is_lf = without_cr.is_none();
        if *self.is_lf.get_or_insert(is_lf) != is_lf {
            return Err(RejectReason::BareLf);
        }
        self.closes |= is_lf;
        let line = without_cr.unwrap_or(&rest[..len]);
        match line.iter().find(|byte| matches!(byte, b'\r' | 0)) {
            None => Ok(Some(line)),
            Some(0) => Err(RejectReason::Nul),
            Some(_) => Err(RejectReason::BareCr),
        }
    }

    fn field(&mut self, line: &'r [u8]) -> Result<(&'r [u8], Vec<u8>), RejectReason> {
        let colon = memchr::memchr(b':', line).ok_or(RejectReason::MissingColon)?;
        let name = line[..colon].trim_ascii_end();
        let is_spaced = name.len() < colon;
        self.closes |= is_spaced;
        match name {
            _ if is_spaced && is_framing(name) => Err(RejectReason::SpaceBeforeColon),
            [] => Err(RejectReason::EmptyFieldName),
            _ if name.len() > NAME_BYTES_MAX => Err(RejectReason::HeadTooLarge),
            _ if !chars::all(name, TOKEN) => Err(RejectReason::InvalidFieldName),
            _ => Ok((name, value_in(&line[colon + 1..])?.to_vec())),
        }
    }

    /// Writes the fields: with one length at most, and none beside a coding.
    fn write(&mut self, fields: &[(&[u8], Vec<u8>)]) -> Result<(), RejectReason> {
        let of = |id: Name| fields.iter().filter(move |(name, _)| Name::from_token(name) == id);
        let codings = || of(Name::TransferEncoding).flat_map(|(_, value)| tokens(value));
        let has_encoding = of(Name::TransferEncoding).next().is_some();
        // It says that there is no coding (RFC 2616 section 3.6).
        let is_identity =
            codings().next().is_some() && codings().all(|of| of.eq_ignore_ascii_case(b"identity"));
        let has_length = of(Name::ContentLength).next().is_some();
        let mut length = None;
        match (has_encoding, has_length) {
            (true, true) if is_identity => return Err(RejectReason::LengthWithEncoding),
            // The coding overrides the length (RFC 9112 section 6.3).
            (true, true) => self.closes = true,
            (false, true) => {
                let members = of(Name::ContentLength).map(|(_, value)| &value[..]);
                length = Some(one_length(members, &mut self.closes)?);
            }
            _ => {}
        }
        for (name, value) in fields {
            match Name::from_token(name) {
                Name::ContentLength if has_encoding => {}
                Name::ContentLength => {
                    if let Some(length) = length.take() {
                        self.append(name, length.to_string().as_bytes());
                    }
                }
                Name::TransferEncoding if is_identity => {}
                _ => self.append(name, value),
            }
        }
        self.scratch.repaired.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn append(&mut self, name: &[u8], value: &[u8]) {
        let Scratch { spans, count, index, repaired, .. } = &mut *self.scratch;
        let (name_start, id) = (repaired.len(), Name::from_token(name));
        repaired.extend_from_slice(name);
        repaired.extend_from_slice(b": ");
        let value_start = repaired.len();
        repaired.extend_from_slice(value);
        repaired.extend_from_slice(b"\r\n");
        index.note(id, *count);
        spans[*count] = Span {
            name_start: name_start as u32,
            value_start: value_start as u32,
            value_len: value.len() as u32,
            name_len: name.len() as u16,
            name: id,
        };
        *count += 1;
    }
}

/// Whether a field of this name frames the message. What is unusual about it is not repaired: what
/// it was meant to say is uncertain.
fn is_framing(name: &[u8]) -> bool {
    matches!(Name::from_token(name), Name::ContentLength | Name::TransferEncoding)
}

/// The one length that all members of these values are (RFC 9112 section 6.3).
fn one_length<'v>(
    values: impl Iterator<Item = &'v [u8]>,
    closes: &mut bool,
) -> Result<u64, RejectReason> {
    let mut found = None;
    for member in values.flat_map(|value| value.split(|byte| *byte == b',')) {
        let length = framing::number(chars::trim(member)).ok_or(RejectReason::InvalidLength)?;
        match found.replace(length) {
            None => {}
            Some(other) if other == length => *closes = true,
            Some(_) => return Err(RejectReason::RepeatedLength),
        }
    }
    found.ok_or(RejectReason::InvalidLength)
}

/// A value without white space around it. Control characters stay: they end no line.
fn value_in(text: &[u8]) -> Result<&[u8], RejectReason> {
    debug_assert!(!text.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
    Ok(chars::trim(text))
}

/// Reads a status line, with any number of spaces before the status and any status of three digits,
/// and writes it.
fn status_line(text: &[u8], out: &mut Vec<u8>) -> Result<Line, RejectReason> {
    const MALFORMED: RejectReason = RejectReason::MalformedStatusLine;
    let version = http_version(text)?.ok_or(RejectReason::MalformedVersion)?;
    let rest = &text["HTTP/1.1".len()..];
    let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
    let (status, reason) = rest[spaces..].split_at_checked(3).ok_or(MALFORMED)?;
    if spaces == 0 || !status.iter().all(u8::is_ascii_digit) {
        return Err(MALFORMED);
    }
    let reason = match reason {
        [] => reason,
        [b' ', reason @ ..] => reason,
        _ => return Err(MALFORMED),
    };
    if !chars::all(reason, VALUE) {
        return Err(MALFORMED);
    }
    let number = status.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    if number < 100 {
        return Err(RejectReason::InvalidStatus);
    }
    out.extend_from_slice(if version == Version::Http10 { b"HTTP/1.0 " } else { b"HTTP/1.1 " });
    out.extend_from_slice(status);
    out.push(b' ');
    let reason_start = out.len();
    out.extend_from_slice(reason);
    out.extend_from_slice(b"\r\n");
    Ok(Line { version, status: number, reason_start, reason_len: reason.len(), end: out.len() })
}
