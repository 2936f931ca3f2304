//! The length of a message (RFC 9112 section 6), from its fields. The only place that decides it.
//!
//! Stricter than the RFC where it leaves a choice: more than one Content-Length is refused even if
//! they are equal, and the only known transfer coding is a single `chunked`.

use crate::hop::Options;
use crate::{Fields, Limits, Name, RejectReason, Version};

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// There is no body.
    None,
    /// This many bytes; may be 0.
    Length(u64),
    /// Chunks up to the last one, then trailers.
    Chunked,
    /// Everything until the connection closes (responses only).
    UntilClose,
}

/// The framing that the fields declare, before the rules that depend on method and status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Declared {
    Nothing,
    Length(u64),
    Chunked,
}

/// RFC 9112 section 9.3. In HTTP/2 and HTTP/3 no field closes the connection (RFC 9113 section
/// 8.2.2, RFC 9114 section 4.2).
pub(crate) fn keeps_alive(version: Version, options: Options) -> bool {
    match version {
        Version::Http2 | Version::Http3 => true,
        _ if options.close => false,
        Version::Http11 => true,
        Version::Http10 => options.keep_alive,
    }
}

/// Reads Content-Length and Transfer-Encoding.
#[inline]
pub(crate) fn declared(
    fields: &Fields<'_>,
    version: Version,
    limits: &Limits,
) -> Result<Declared, RejectReason> {
    const EITHER: u64 = Name::ContentLength.bit() | Name::TransferEncoding.bit();
    if fields.mask() & EITHER == 0 {
        return Ok(Declared::Nothing);
    }
    declared_by_field(fields, version, limits)
}

#[inline(never)]
fn declared_by_field(
    fields: &Fields<'_>,
    version: Version,
    limits: &Limits,
) -> Result<Declared, RejectReason> {
    if fields.has(Name::TransferEncoding) {
        let both = fields.has(Name::ContentLength);
        if both && !planted::is(planted::Bug::LengthBesideEncoding) {
            return Err(RejectReason::LengthWithEncoding);
        }
        if version == Version::Http10 {
            return Err(RejectReason::EncodingInHttp10);
        }
        return chunked_only(fields).map(|()| Declared::Chunked);
    }
    if fields.is_repeated(Name::ContentLength) {
        return Err(RejectReason::RepeatedLength);
    }
    let value = fields.get(Name::ContentLength).unwrap_or(&[]);
    let length = number(value).ok_or(RejectReason::InvalidLength)?;
    if length > limits.content_bytes_max {
        return Err(RejectReason::ContentTooLarge);
    }
    Ok(Declared::Length(length))
}

/// Digits only: no sign, no space, no list, nothing beyond 64 bits.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, &b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// The codings of all lines form one list. The order of the checks is that of RFC 9112 6.3: first
/// whether the end can be found at all, then whether the other codings are known.
fn chunked_only(fields: &Fields<'_>) -> Result<(), RejectReason> {
    let mut count = 0;
    let mut chunked = 0;
    let mut last_is_chunked = false;
    for value in fields.all(Name::TransferEncoding) {
        // A parameter may hold a quoted comma, but every coding with a parameter is unknown here.
        for coding in value.split(|&b| b == b',').map(crate::chars::trim) {
            let token_len =
                coding.iter().take_while(|&&b| crate::chars::is(b, crate::chars::TOKEN)).count();
            if token_len == 0 {
                return Err(RejectReason::MalformedEncoding);
            }
            let (name, rest) = coding.split_at(token_len);
            let is_chunked = name.eq_ignore_ascii_case(b"chunked");
            let rest_is_parameter = matches!(crate::chars::trim(rest), [b';', ..]);
            if !rest.is_empty() && (is_chunked || !rest_is_parameter) {
                return Err(RejectReason::MalformedEncoding);
            }
            count += 1;
            chunked += u32::from(is_chunked);
            last_is_chunked = is_chunked;
        }
    }
    match (last_is_chunked, chunked, count) {
        (true, 1, 1) => Ok(()),
        (true, 1, _) => Err(RejectReason::UnknownCoding),
        (false, _, _) => Err(RejectReason::ChunkedNotLast),
        (true, _, _) => Err(RejectReason::ChunkedRepeated),
    }
}
