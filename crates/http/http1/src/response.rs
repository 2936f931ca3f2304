//! Heads of responses (RFC 9112 section 4).
//!
//! What: [`parse_response`], with the same interface as [`parse_request`](crate::parse_request).
//! Every reject has status 502: the fault is the origin's, and the client learns nothing more.

use crate::chars::{self, VALUE};
use crate::fields::{OwnedFields, owned_head};
use crate::framing::{self, Declared};
use crate::hop::{self, Options};
use crate::request::http_version;
use crate::tokenise::incomplete;
use crate::{BodyKind, Fields, Limits, Method, Reject, RejectReason, Scratch, Version};

/// A complete and checked head of a response.
#[derive(Clone, Copy)]
pub struct ResponseHead<'b> {
    /// The version of the sender.
    pub version: Version,
    /// 100 to 599, or to 999 if the head was repaired.
    pub status: u16,
    /// The reason phrase as sent; may be empty. It has no meaning (RFC 9110 section 15).
    pub reason: &'b [u8],
    /// The fields.
    pub fields: Fields<'b>,
    /// Bytes of the head as it was received: where the body begins.
    pub head_bytes: usize,
    buf: &'b [u8],
    meta: Meta,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub(crate) line: Line,
    pub(crate) declared: Declared,
    pub(crate) options: Options,
    /// Of the head as it is kept.
    pub(crate) head_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) version: Version,
    pub(crate) status: u16,
    pub(crate) reason_start: usize,
    pub(crate) reason_len: usize,
    pub(crate) end: usize,
}

/// Parses the head of the response at the start of `buf`.
///
/// `Ok(None)`: not complete; call again with more bytes. An interim response (1xx) is returned like
/// any other: see [`ResponseHead::is_interim`].
///
/// # Errors
/// [`Reject`]: close the connection and answer the client with 502.
pub fn parse_response<'b>(
    buf: &'b [u8],
    scratch: &'b mut Scratch,
    limits: &Limits,
) -> Result<Option<ResponseHead<'b>>, Reject> {
    match read(buf, scratch, limits) {
        Ok(None) => Ok(None),
        Ok(Some(meta)) => Ok(Some(meta.view(buf, scratch.fields(buf)))),
        Err(reason) => Err(Reject::response(reason)),
    }
}

impl<'b> ResponseHead<'b> {
    /// How the body is framed, if this answers a request with `request_method` (RFC 9112 section
    /// 6.3). A 2xx to CONNECT has no body: the tunnel follows.
    ///
    /// # Errors
    /// None today; the parser has checked the fields.
    pub fn body(&self, request_method: Method) -> Result<BodyKind, Reject> {
        let bodiless = request_method == Method::Head
            || matches!(self.status, 100..=199 | 204 | 304)
            || (request_method == Method::Connect && matches!(self.status, 200..=299));
        Ok(match self.meta.declared {
            _ if bodiless => BodyKind::None,
            Declared::Chunked => BodyKind::Chunked,
            Declared::Length(length) => BodyKind::Length(length),
            Declared::Nothing => BodyKind::UntilClose,
        })
    }

    /// The checked Content-Length. For HEAD and 304 it describes a body that is not sent.
    pub fn content_length(&self) -> Option<u64> {
        match self.meta.declared {
            Declared::Length(length) => Some(length),
            Declared::Nothing | Declared::Chunked => None,
        }
    }

    /// The sender keeps this connection after the body, if the body is not ended by closing.
    pub fn keep_alive(&self) -> bool {
        framing::keeps_alive(self.version, self.meta.options)
    }

    /// The same head with [`Version::Http2`], which [`ResponseHead::detach`] keeps. For a response
    /// that came over HTTP/2 and was written as a head of HTTP/1.1 to be parsed here.
    #[must_use]
    pub fn over_http2(mut self) -> ResponseHead<'b> {
        self.version = Version::Http2;
        self.meta.line.version = Version::Http2;
        self
    }

    /// 1xx: the final response follows. 101 is final: the protocol changes.
    pub fn is_interim(&self) -> bool {
        matches!(self.status, 100 | 102..=199)
    }
}

impl std::fmt::Debug for ResponseHead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseHead")
            .field("version", &self.version)
            .field("status", &self.status)
            .field("reason", &self.reason.escape_ascii().to_string())
            .field("fields", &self.fields)
            .field("head_bytes", &self.head_bytes)
            .finish()
    }
}

owned_head! {
    /// A head of a response that owns its bytes.
    OwnedResponse of ResponseHead
}

impl OwnedResponse {
    /// The status; costs less than the head.
    #[inline]
    pub fn status(&self) -> u16 {
        self.meta.line.status
    }
}

impl Meta {
    #[inline]
    pub(crate) fn view<'b>(self, buf: &'b [u8], fields: Fields<'b>) -> ResponseHead<'b> {
        let line = self.line;
        ResponseHead {
            version: line.version,
            status: line.status,
            reason: &buf[line.reason_start..line.reason_start + line.reason_len],
            fields,
            head_bytes: self.head_bytes,
            buf,
            meta: self,
        }
    }
}

pub(crate) fn read(
    buf: &[u8],
    scratch: &mut Scratch,
    limits: &Limits,
) -> Result<Option<Meta>, RejectReason> {
    // Bytes beyond the limit are not read, so that the result does not depend on how much has
    // arrived.
    let buf = &buf[..buf.len().min(limits.head_bytes())];
    let Some(line) = status_line(buf)? else {
        return incomplete(buf, limits);
    };
    let Some(head_bytes) = scratch.tokenise(buf, line.end, limits)? else {
        return Ok(None);
    };
    let fields = scratch.fields(buf);
    let declared = framing::declared(&fields, line.version, limits)?;
    let options = hop::options(&fields)?;
    if options.names_fields {
        scratch.set_aside(buf);
    }
    Ok(Some(Meta { line, declared, options, head_bytes }))
}

/// `HTTP/1.1 200 reason` CRLF. The space before an empty reason may be missing: many servers omit
/// it, and it is unambiguous.
fn status_line(buf: &[u8]) -> Result<Option<Line>, RejectReason> {
    let Some(version) = http_version(buf)? else { return Ok(None) };
    let Some(status) = status_code(&buf[8..])? else { return Ok(None) };
    let reason_start = match buf.get(12) {
        None => return Ok(None),
        Some(b' ') => 13,
        Some(b'\r' | b'\n') => 12,
        Some(_) => return Err(RejectReason::MalformedStatusLine),
    };
    let reason_len = buf[reason_start..].iter().take_while(|&&b| chars::is(b, VALUE)).count();
    let line_end = reason_start + reason_len;
    match &buf[line_end..] {
        [] | [b'\r'] => Ok(None),
        [b'\r', b'\n', ..] => {
            Ok(Some(Line { version, status, reason_start, reason_len, end: line_end + 2 }))
        }
        [b'\r', ..] => Err(RejectReason::BareCr),
        [b'\n', ..] => Err(RejectReason::BareLf),
        [0, ..] => Err(RejectReason::Nul),
        _ => Err(RejectReason::MalformedStatusLine),
    }
}

/// A space and three digits.
fn status_code(bytes: &[u8]) -> Result<Option<u16>, RejectReason> {
    let mut status = 0;
    for (at, &b) in bytes.iter().take(4).enumerate() {
        match (at, b) {
            (0, b' ') => {}
            (1.., b'0'..=b'9') => status = status * 10 + u16::from(b - b'0'),
            _ => return Err(RejectReason::MalformedStatusLine),
        }
    }
    match bytes.len() {
        0..4 => Ok(None),
        _ if (100..=599).contains(&status) => Ok(Some(status)),
        _ => Err(RejectReason::InvalidStatus),
    }
}
