//! Heads of requests (RFC 9112 section 3).
//!
//! What: [`parse_request`] reads the bytes received so far and returns a complete, checked head or
//! asks for more. It keeps no state between calls. The request line is checked as soon as it is
//! complete, the fields when the head is complete; so a bad request line is answered early.

use std::ops::Range;

use crate::authority::parse_authority;
use crate::chars::{self, CHECKED, CLASS, TARGET, TOKEN, tokens};
use crate::fields::{Field, OwnedFields, Span, owned_head};
use crate::framing::{self, Declared};
use crate::hop::{self, Options};
use crate::limits::{HEAD_BYTES_CEILING, METHOD_BYTES_MAX};
use crate::target::{self, Form};
use crate::tokenise::incomplete;
use crate::write::CRLF;
use crate::{
    BodyKind, Fields, Limits, Method, Name, Reject, RejectReason, Scratch, Target, Version,
};

/// A complete and checked head of a request.
#[derive(Clone, Copy)]
pub struct RequestHead<'b> {
    /// The method, if it is a known one.
    pub method: Method,
    /// The method as sent.
    pub method_bytes: &'b [u8],
    /// The requested resource.
    pub target: Target<'b>,
    /// The request-target as sent.
    pub target_bytes: &'b [u8],
    /// The version of the sender.
    pub version: Version,
    /// The fields.
    pub fields: Fields<'b>,
    /// Bytes of the head, including an empty line before it: where the body or the next request
    /// begins.
    pub head_bytes: usize,
    buf: &'b [u8],
    meta: Meta,
}

/// The value of Expect (RFC 9110 section 10.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// No Expect, or the sender uses HTTP/1.0.
    None,
    /// `100-continue`
    Continue,
    /// Anything else: may be answered with 417.
    Unknown,
}

/// Everything in a head except the bytes.
#[derive(Clone, Copy, Debug)]
struct Meta {
    line: Line,
    form: Form,
    body: BodyKind,
    options: Options,
    expectation: Expectation,
    head_bytes: usize,
}

/// The positions of the parts of a request line.
#[derive(Clone, Copy, Debug)]
struct Line {
    start: usize,
    method: Method,
    method_len: usize,
    target_start: usize,
    target_len: usize,
    version: Version,
    form: Form,
    end: usize,
}

/// Parses the head of the request at the start of `buf`; at most one empty line before it is
/// skipped.
///
/// `Ok(None)`: not complete; call again with more bytes. On `Ok(Some(head))`, `head.head_bytes` are
/// consumed and [`RequestHead::body`] says what follows.
///
/// # Errors
/// [`Reject`]: answer with its status and close the connection.
pub fn parse_request<'b>(
    buf: &'b [u8],
    scratch: &'b mut Scratch,
    limits: &Limits,
) -> Result<Option<RequestHead<'b>>, Reject> {
    match read(buf, scratch, limits) {
        Ok(None) => Ok(None),
        Ok(Some(meta)) => Ok(Some(meta.view(buf, scratch.fields(buf)))),
        Err(reason) => Err(Reject::request(reason)),
    }
}

impl<'b> RequestHead<'b> {
    /// How the body is framed: never [`BodyKind::UntilClose`].
    pub fn body(&self) -> BodyKind {
        self.meta.body
    }

    /// The sender wants to keep this connection (RFC 9112 section 9.3).
    ///
    /// True for HTTP/1.0 with `keep-alive`; a forward proxy must ignore that.
    pub fn keep_alive(&self) -> bool {
        framing::keeps_alive(self.version, self.meta.options)
    }

    /// The host of the request: the target's authority if it has one, otherwise Host. `None` only
    /// for HTTP/1.0 without Host. For CONNECT it is the whole `host:port`.
    pub fn host(&self) -> Option<&'b [u8]> {
        match self.target {
            Target::Absolute { authority, .. } => Some(authority),
            Target::Authority { .. } => Some(self.target_bytes),
            Target::Origin { .. } | Target::Asterisk => self.fields.get(Name::Host),
        }
    }

    /// The value of Expect.
    pub fn expectation(&self) -> Expectation {
        self.meta.expectation
    }

    /// The same head with this version, which [`RequestHead::detach`] keeps. For a request that
    /// came over HTTP/2 or HTTP/3 and was written as a head of HTTP/1.1 to be parsed here.
    #[must_use]
    pub fn over(mut self, version: Version) -> RequestHead<'b> {
        self.version = version;
        self.meta.line.version = version;
        self
    }
}

impl std::fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestHead")
            .field("method", &self.method_bytes.escape_ascii().to_string())
            .field("target", &self.target_bytes.escape_ascii().to_string())
            .field("version", &self.version)
            .field("fields", &self.fields)
            .field("body", &self.meta.body)
            .field("head_bytes", &self.head_bytes)
            .finish()
    }
}

owned_head! {
    /// A head of a request that owns its bytes.
    OwnedRequest of RequestHead
}

impl OwnedRequest {
    /// The method, if it is a known one.
    #[inline]
    pub fn method(&self) -> Method {
        self.meta.line.method
    }

    /// The method as sent.
    #[inline]
    pub fn method_bytes(&self) -> &[u8] {
        let Line { start, method_len, .. } = self.meta.line;
        &self.bytes[start..start + method_len]
    }

    /// The requested resource.
    #[inline]
    pub fn target(&self) -> Target<'_> {
        let Line { target_start, target_len, .. } = self.meta.line;
        self.meta.form.view(&self.bytes[target_start..target_start + target_len])
    }

    /// How the length of the body is found.
    #[inline]
    pub fn body(&self) -> BodyKind {
        self.meta.body
    }

    /// Where a part of the head that one of its views has given is in the bytes of the head; `None`
    /// for any other slice.
    pub fn range_of(&self, part: &[u8]) -> Option<Range<usize>> {
        let start = part.as_ptr().addr().checked_sub(self.bytes.as_ptr().addr())?;
        let end = start.checked_add(part.len())?;
        (end <= self.bytes.len()).then_some(start..end)
    }

    /// The part that was found there.
    #[inline]
    pub fn part(&self, range: &Range<usize>) -> &[u8] {
        &self.bytes[range.start..range.end]
    }

    /// Leaves out the fields for which `keeps` is false, and adds fields that can be written.
    /// Fields that frame the message must stay. False, and nothing is changed, if there would be
    /// too many fields or too many bytes.
    pub fn change_fields(
        &mut self,
        keeps: impl Fn(Field<'_>) -> bool,
        added: &[(&[u8], &[u8])],
    ) -> bool {
        let before = self.bytes.len();
        let mut spans = Vec::with_capacity(added.len());
        for (name, value) in added {
            let name_start = self.bytes.len();
            if crate::write::field(&mut self.bytes, name, value).is_err() {
                self.bytes.truncate(before);
                return false;
            }
            spans.push(Span {
                name_start: name_start as u32,
                value_start: (name_start + name.len() + b": ".len()) as u32,
                value_len: value.len() as u32,
                name_len: name.len() as u16,
                name: Name::from_token(name),
            });
        }
        let fits = self.bytes.len() <= HEAD_BYTES_CEILING;
        if !(fits && self.fields.change(&self.bytes, keeps, &spans)) {
            self.bytes.truncate(before);
            return false;
        }
        if !added.is_empty() {
            self.meta.head_bytes = self.bytes.len();
        }
        true
    }

    /// Drops the content, when the end of the stream has shown that none follows.
    pub fn end_without_content(&mut self) {
        self.meta.body = BodyKind::None;
    }

    /// The version of the sender.
    #[inline]
    pub fn version(&self) -> Version {
        self.meta.line.version
    }
}

impl Meta {
    #[inline]
    fn view<'b>(self, buf: &'b [u8], fields: Fields<'b>) -> RequestHead<'b> {
        let line = self.line;
        let target_bytes = &buf[line.target_start..line.target_start + line.target_len];
        RequestHead {
            method: line.method,
            method_bytes: &buf[line.start..line.start + line.method_len],
            target: self.form.view(target_bytes),
            target_bytes,
            version: line.version,
            fields,
            head_bytes: self.head_bytes,
            buf,
            meta: self,
        }
    }
}

fn read(buf: &[u8], scratch: &mut Scratch, limits: &Limits) -> Result<Option<Meta>, RejectReason> {
    // Bytes beyond the limit are not read, so that the result does not depend on how much has
    // arrived.
    let buf = &buf[..buf.len().min(limits.head_bytes())];
    let start = if buf.starts_with(CRLF) { CRLF.len() } else { 0 };
    let Some(line) = request_line(buf, start, limits)? else {
        return incomplete(buf, limits);
    };
    let Some(head_bytes) = scratch.tokenise(buf, line.end, limits)? else {
        return Ok(None);
    };
    let fields = scratch.fields(buf);
    check_host(&fields, line.version)?;
    let body = body_kind(&fields, &line, limits)?;
    let options = hop::options(&fields)?;
    if options.names_fields || scratch.is_odd {
        scratch.set_aside(buf);
    }
    let expectation = expectation(&scratch.fields(buf), line.version);
    Ok(Some(Meta { line, form: line.form, body, options, expectation, head_bytes }))
}

/// Method, target, version, CRLF, with one space between (RFC 9112 section 3).
fn request_line(buf: &[u8], start: usize, limits: &Limits) -> Result<Option<Line>, RejectReason> {
    let bytes = &buf[start..];
    let Some((method, method_len)) = method(bytes)? else { return Ok(None) };

    let rest = &bytes[method_len + 1..];
    let Some((target_len, is_checked)) = target_len(rest, limits)? else { return Ok(None) };
    let target = &rest[..target_len];

    let Some((version, version_len)) = version(&rest[target_len + 1..])? else { return Ok(None) };
    let form = target::form(method, target, is_checked)?;

    let target_start = start + method_len + 1;
    let version_start = target_start + target_len + 1;
    let end = version_start + version_len;
    Ok(Some(Line { start, method, method_len, target_start, target_len, version, form, end }))
}

#[inline]
fn method(bytes: &[u8]) -> Result<Option<(Method, usize)>, RejectReason> {
    if bytes.starts_with(b"GET ") {
        return Ok(Some((Method::Get, 3)));
    }
    let len = bytes.iter().take_while(|&&b| chars::is(b, TOKEN)).count();
    if len > METHOD_BYTES_MAX {
        return Err(RejectReason::MethodTooLong);
    }
    match bytes.get(len) {
        None => Ok(None),
        Some(b' ') if len > 0 => Ok(Some((Method::from_bytes(&bytes[..len]), len))),
        Some(b'\n') if len == 0 => Err(RejectReason::BareLf),
        Some(b'\r') if len == 0 => match bytes.get(1) {
            None => Ok(None),
            Some(b'\n') => Err(RejectReason::EmptyLines),
            Some(_) => Err(RejectReason::BareCr),
        },
        Some(0) => Err(RejectReason::Nul),
        Some(b'\r' | b'\n') if len > 0 => Err(RejectReason::MalformedRequestLine),
        Some(_) => Err(RejectReason::InvalidMethod),
    }
}

#[inline]
fn target_len(bytes: &[u8], limits: &Limits) -> Result<Option<(usize, bool)>, RejectReason> {
    let mut classes = 0;
    // The byte after the target is of no class that is looked at.
    let ends = |&byte: &u8| {
        let class = CLASS[byte as usize];
        debug_assert!(class & (TARGET | CHECKED) != CHECKED, "only a target has what is checked");
        classes |= class;
        class & TARGET == 0
    };
    let len = bytes.iter().position(ends).unwrap_or(bytes.len());
    if len > limits.target_bytes_max {
        return Err(RejectReason::TargetTooLong);
    }
    match bytes.get(len) {
        None => Ok(None),
        Some(b' ') if len > 0 => Ok(Some((len, classes & CHECKED != 0))),
        Some(0) => Err(RejectReason::Nul),
        Some(b' ' | b'\r' | b'\n') => Err(RejectReason::MalformedRequestLine),
        Some(_) => Err(RejectReason::InvalidTarget),
    }
}

/// `HTTP/1.1` and its CRLF; returns the length of both.
#[inline]
fn version(bytes: &[u8]) -> Result<Option<(Version, usize)>, RejectReason> {
    match bytes.starts_with(b"HTTP/1.1\r\n") {
        true => Ok(Some((Version::Http11, 10))),
        false => unusual_version(bytes),
    }
}

#[inline(never)]
fn unusual_version(bytes: &[u8]) -> Result<Option<(Version, usize)>, RejectReason> {
    let Some(version) = http_version(bytes)? else { return Ok(None) };
    match &bytes[8..] {
        [] | [b'\r'] => Ok(None),
        [b'\r', b'\n', ..] => Ok(Some((version, 10))),
        [b'\r', _, ..] => Err(RejectReason::BareCr),
        [b'\n', ..] => Err(RejectReason::BareLf),
        [0, ..] => Err(RejectReason::Nul),
        _ => Err(RejectReason::MalformedRequestLine),
    }
}

/// The eight bytes `HTTP/1.x`; a higher minor version counts as 1.1 (RFC 9110 section 6.2).
#[inline]
pub(crate) fn http_version(bytes: &[u8]) -> Result<Option<Version>, RejectReason> {
    match bytes.starts_with(b"HTTP/1.1") {
        true => Ok(Some(Version::Http11)),
        false => unusual_http_version(bytes),
    }
}

#[inline(never)]
fn unusual_http_version(bytes: &[u8]) -> Result<Option<Version>, RejectReason> {
    const PREFIX: &[u8] = b"HTTP/";
    let known = bytes.len().min(PREFIX.len());
    if bytes[..known] != PREFIX[..known] {
        return Err(RejectReason::MalformedVersion);
    }
    match bytes[known..] {
        [] => Ok(None),
        [major, ..] if !major.is_ascii_digit() => Err(RejectReason::MalformedVersion),
        [_] => Ok(None),
        [_, dot, ..] if dot != b'.' => Err(RejectReason::MalformedVersion),
        [_, _] => Ok(None),
        [_, _, minor, ..] if !minor.is_ascii_digit() => Err(RejectReason::MalformedVersion),
        [b'1', _, b'0', ..] => Ok(Some(Version::Http10)),
        [b'1', ..] => Ok(Some(Version::Http11)),
        _ => Err(RejectReason::UnsupportedVersion),
    }
}

/// RFC 9112 section 3.2: exactly one in HTTP/1.1, at most one in HTTP/1.0, and a valid one.
fn check_host(fields: &Fields<'_>, version: Version) -> Result<(), RejectReason> {
    if fields.is_repeated(Name::Host) {
        return Err(RejectReason::RepeatedHost);
    }
    match fields.get(Name::Host) {
        None if version == Version::Http11 => Err(RejectReason::MissingHost),
        None => Ok(()),
        Some(host) => match parse_authority(host) {
            Ok(_) => Ok(()),
            Err(_) => Err(RejectReason::InvalidHost),
        },
    }
}

fn body_kind(fields: &Fields<'_>, line: &Line, limits: &Limits) -> Result<BodyKind, RejectReason> {
    let declared = framing::declared(fields, line.version, limits)?;
    match (declared, line.method) {
        (Declared::Nothing | Declared::Length(0), Method::Connect) => Ok(BodyKind::None),
        (_, Method::Connect) => Err(RejectReason::ContentWithConnect),
        (Declared::Nothing, _) => Ok(BodyKind::None),
        (Declared::Length(length), _) => Ok(BodyKind::Length(length)),
        (Declared::Chunked, _) => Ok(BodyKind::Chunked),
    }
}

fn expectation(fields: &Fields<'_>, version: Version) -> Expectation {
    if !fields.has(Name::Expect) || version == Version::Http10 {
        return Expectation::None;
    }
    let mut expectation = Expectation::None;
    for token in fields.all(Name::Expect).flat_map(tokens) {
        if !token.eq_ignore_ascii_case(b"100-continue") {
            return Expectation::Unknown;
        }
        expectation = Expectation::Continue;
    }
    expectation
}
