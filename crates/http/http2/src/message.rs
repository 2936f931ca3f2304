//! What a message may contain (RFC 9113 sections 8.1 to 8.3 and 8.5, RFC 8441). HTTP/3 has the same
//! rules (RFC 9114 sections 4.2 to 4.4, RFC 9220), so its crate uses these checks.
//!
//! What: checks of decoded fields, and the views [`RequestHead`] and [`ResponseHead`].
//! What never happens: a repair of a malformed message. The one change is that several `cookie`
//! fields become one (RFC 9113 section 8.2.3).

use crate::error::Reason;
use crate::hpack::id;
use crate::priority::Priority;
use crate::scratch::{Fields, Scratch, Span};

/// The head of a request. The bytes of each part are valid; whether the authority and the path mean
/// anything is for the caller to find out.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    /// `:method`, a token.
    pub method: &'a [u8],
    /// `:scheme`; `None` for CONNECT without a protocol.
    pub scheme: Option<&'a [u8]>,
    /// `:authority`, or Host if there is no `:authority`. Never empty. If both exist, they are the
    /// same.
    pub authority: &'a [u8],
    /// `:path`: begins with a slash, or is `*` with OPTIONS; `None` for CONNECT without a protocol.
    pub path: Option<&'a [u8]>,
    /// `:protocol` (RFC 8441).
    pub protocol: Option<&'a [u8]>,
    /// Content-Length, which the content will have.
    pub content_length: Option<u64>,
    /// By the field `priority` (RFC 9218).
    pub priority: Priority,
    /// The other fields.
    pub fields: Fields<'a>,
}

/// The head of a response.
#[derive(Clone, Copy)]
pub struct ResponseHead<'a> {
    /// 100 to 999, and not 101. Below 200 it is an interim response, and another head follows.
    pub status: u16,
    /// Content-Length. The content has this length, unless the response has none by its status or
    /// by the method of the request.
    pub content_length: Option<u64>,
    /// The other fields.
    pub fields: Fields<'a>,
}

impl std::fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |part: Option<&[u8]>| part.unwrap_or(b"-").escape_ascii().to_string();
        f.debug_struct("RequestHead")
            .field("method", &text(Some(self.method)))
            .field("scheme", &text(self.scheme))
            .field("authority", &text(Some(self.authority)))
            .field("path", &text(self.path))
            .field("protocol", &text(self.protocol))
            .field("fields", &self.fields)
            .finish()
    }
}

impl std::fmt::Debug for ResponseHead<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResponseHead")
            .field("status", &self.status)
            .field("fields", &self.fields)
            .finish()
    }
}

/// A checked list of fields, as positions in the scratch that they were checked in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checked {
    method: Option<Span>,
    scheme: Option<Span>,
    authority: Option<Span>,
    path: Option<Span>,
    protocol: Option<Span>,
    host: Option<Span>,
    /// Of a response.
    pub status: u16,
    /// Content-Length.
    pub content_length: Option<u64>,
    priority: Option<Priority>,
    /// The number of pseudo-fields, which come first.
    pseudo: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Request,
    Response,
    Trailers,
}

/// Checks a request; `with_protocol` says whether `:protocol` is enabled.
///
/// # Errors
/// The rule that it breaks.
pub fn request(scratch: &mut Scratch, with_protocol: bool) -> Result<Checked, Reason> {
    let checked = fields(scratch, Section::Request)?;
    let method = checked.method.ok_or(Reason::PseudoMissing)?;
    let method = scratch.value(&method);
    if method.is_empty() || !all(method, TOKEN) {
        return Err(Reason::Method);
    }
    let is_connect = method == b"CONNECT";
    if checked.protocol.is_some() && !(is_connect && with_protocol) {
        return Err(Reason::Connect);
    }
    let authority = checked.authority.or(checked.host).ok_or(Reason::Authority)?;
    let text = scratch.value(&authority);
    if text.is_empty() || !all(text, AUTHORITY) {
        return Err(Reason::Authority);
    }
    if checked.host.is_some_and(|host| !scratch.value(&host).eq_ignore_ascii_case(text)) {
        return Err(Reason::Authority);
    }
    if is_connect && checked.protocol.is_none() {
        let is_complete = checked.authority.is_some();
        let has_more = checked.scheme.is_some() || checked.path.is_some();
        return if is_complete && !has_more { Ok(checked) } else { Err(Reason::Connect) };
    }
    let scheme = scratch.value(&checked.scheme.ok_or(Reason::PseudoMissing)?);
    if !scheme.first().is_some_and(u8::is_ascii_alphabetic) || !all(scheme, SCHEME) {
        return Err(Reason::Scheme);
    }
    let path = scratch.value(&checked.path.ok_or(Reason::PseudoMissing)?);
    let has_form = path.starts_with(b"/") || (path == b"*" && method == b"OPTIONS");
    if !has_form || !all(path, PATH) {
        return Err(Reason::Path);
    }
    Ok(checked)
}

/// Checks a response.
///
/// # Errors
/// The rule that it breaks.
pub fn response(scratch: &mut Scratch) -> Result<Checked, Reason> {
    let checked = fields(scratch, Section::Response)?;
    match checked.status {
        0 => Err(Reason::PseudoMissing),
        101 => Err(Reason::Status),
        _ => Ok(checked),
    }
}

/// Checks trailers.
///
/// # Errors
/// The rule that they break.
pub fn trailers(scratch: &mut Scratch) -> Result<(), Reason> {
    fields(scratch, Section::Trailers).map(|_| ())
}

impl Checked {
    /// The head of the request that was checked.
    pub fn request_head<'a>(&self, scratch: &'a Scratch) -> RequestHead<'a> {
        let value = |span: &Option<Span>| span.as_ref().map(|span| scratch.value(span));
        RequestHead {
            method: value(&self.method).unwrap_or_default(),
            scheme: value(&self.scheme),
            authority: value(&self.authority.or(self.host)).unwrap_or_default(),
            path: value(&self.path),
            protocol: value(&self.protocol),
            content_length: self.content_length,
            priority: self.priority(),
            fields: scratch.fields(self.pseudo),
        }
    }

    pub(crate) fn priority(&self) -> Priority {
        self.priority.unwrap_or(Priority::UNSIGNALLED)
    }

    /// The head of the response that was checked.
    pub fn response_head<'a>(&self, scratch: &'a Scratch) -> ResponseHead<'a> {
        ResponseHead {
            status: self.status,
            content_length: self.content_length,
            fields: scratch.fields(self.pseudo),
        }
    }
}

fn fields(scratch: &mut Scratch, section: Section) -> Result<Checked, Reason> {
    let mut checked = Checked::default();
    let mut cookies = 0;
    for at in 0..scratch.spans.len() {
        let span = scratch.spans[at];
        let (name, value) = (scratch.name(&span), scratch.value(&span));
        if !is_value(value) {
            return Err(Reason::FieldValue);
        }
        if name.first() == Some(&b':') {
            if checked.pseudo != at {
                return Err(Reason::PseudoOrder);
            }
            checked.pseudo += 1;
            pseudo_field(&mut checked, span, name, value, section)?;
            continue;
        }
        match span.id {
            0 => unlisted_field(&mut checked, name, value, section)?,
            id::COOKIE => cookies += 1,
            id::TRANSFER_ENCODING => return Err(Reason::ConnectionField),
            id::CONTENT_LENGTH if section != Section::Trailers => {
                let length = content_length(value).ok_or(Reason::ContentLength)?;
                if checked.content_length.replace(length).is_some() {
                    return Err(Reason::ContentLength);
                }
            }
            id::HOST if section == Section::Request && checked.host.replace(span).is_some() => {
                return Err(Reason::Authority);
            }
            _ => {}
        }
    }
    if cookies > 1 {
        join_cookies(scratch);
    }
    Ok(checked)
}

fn pseudo_field(
    checked: &mut Checked,
    span: Span,
    name: &[u8],
    value: &[u8],
    section: Section,
) -> Result<(), Reason> {
    let place = match (section, span.id) {
        (Section::Request, id::METHOD) => &mut checked.method,
        (Section::Request, id::PATH) => &mut checked.path,
        (Section::Request, id::SCHEME) => &mut checked.scheme,
        (Section::Request, id::AUTHORITY) => &mut checked.authority,
        (Section::Request, 0) if name == b":protocol" => &mut checked.protocol,
        (Section::Response, id::STATUS) if checked.status == 0 => {
            checked.status = status(value).ok_or(Reason::Status)?;
            return Ok(());
        }
        (Section::Response, id::STATUS) => return Err(Reason::PseudoRepeated),
        _ => return Err(Reason::PseudoUnknown),
    };
    if place.replace(span).is_some() { Err(Reason::PseudoRepeated) } else { Ok(()) }
}

/// A field whose name is not in the static table.
fn unlisted_field(
    checked: &mut Checked,
    name: &[u8],
    value: &[u8],
    section: Section,
) -> Result<(), Reason> {
    if name.is_empty() || !all(name, NAME) {
        return Err(Reason::FieldName);
    }
    match name {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"upgrade" => {
            Err(Reason::ConnectionField)
        }
        b"te" if !value.eq_ignore_ascii_case(b"trailers") => Err(Reason::ConnectionField),
        b"priority" if section == Section::Request => {
            checked.priority = Some(Priority::from_field(value));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Puts the joined value of all cookies in the place of the first.
fn join_cookies(scratch: &mut Scratch) {
    let at = scratch.arena.len();
    scratch.arena.extend_from_slice(b"cookie");
    let name_len = scratch.arena.len() - at;
    for span in scratch.spans.iter().filter(|span| span.id == id::COOKIE) {
        if scratch.arena.len() > at + name_len {
            scratch.arena.extend_from_slice(b"; ");
        }
        let value_at = (span.at + span.name_len) as usize;
        scratch.arena.extend_from_within(value_at..value_at + span.value_len as usize);
    }
    let joined = Span {
        at: at as u32,
        name_len: name_len as u32,
        value_len: (scratch.arena.len() - at - name_len) as u32,
        id: id::COOKIE,
    };
    let mut is_first = true;
    scratch.spans.retain_mut(|span| {
        if span.id != id::COOKIE {
            return true;
        }
        *span = joined;
        std::mem::replace(&mut is_first, false)
    });
}

fn status(value: &[u8]) -> Option<u16> {
    let [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = value else { return None };
    Some([a, b, c].into_iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0')))
}

fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// RFC 9113 section 8.2.1, and no other control byte (RFC 9110 section 5.5).
#[inline]
pub(crate) fn is_value(value: &[u8]) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    !is_space(value.first()) && !is_space(value.last()) && all(value, VALUE)
}

/// Whether a field may be sent; its name is in lower or upper case.
pub fn may_be_sent(name: &[u8], value: &[u8]) -> bool {
    let is_name = !name.is_empty() && all(name, TOKEN);
    is_name && is_value(value) && !is_connection_field(name, value)
}

/// Fields that only HTTP/1 has (RFC 9113 section 8.2.2).
fn is_connection_field(name: &[u8], value: &[u8]) -> bool {
    const NAMES: [&[u8]; 5] =
        [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    let is_candidate = matches!(name[0] | 0x20, b'c' | b'k' | b'p' | b't' | b'u');
    let is_te = || is(b"te") && !value.eq_ignore_ascii_case(b"trailers");
    is_candidate && (NAMES.iter().any(|other| is(other)) || is_te())
}

const NAME: u8 = 1;
const VALUE: u8 = 2;
const TOKEN: u8 = 4;
const PATH: u8 = 8;
const AUTHORITY: u8 = 16;
const SCHEME: u8 = 32;

const CLASS: [u8; 256] = {
    let mut class = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        let mut bits = 0;
        if matches!(b, b'\t' | b' '..=b'~' | 0x80..) {
            bits |= VALUE;
        }
        let is_sign = matches!(b, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`');
        if b.is_ascii_alphanumeric() || is_sign || matches!(b, b'|' | b'~') {
            bits |= TOKEN;
            if !b.is_ascii_uppercase() {
                bits |= NAME;
            }
        }
        if b.is_ascii_graphic() && b != b'#' {
            bits |= PATH;
            if !matches!(b, b'@' | b'/' | b'?' | b'\\') {
                bits |= AUTHORITY;
            }
        }
        if b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.') {
            bits |= SCHEME;
        }
        class[byte] = bits;
        byte += 1;
    }
    class
};

#[inline]
fn all(text: &[u8], class: u8) -> bool {
    text.iter().fold(class, |bits, &byte| bits & CLASS[byte as usize]) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::{Decoder, encode_without_table};

    const GET: &[(&str, &str)] =
        &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "h")];

    fn scratch(lists: &[&[(&str, &str)]]) -> Scratch {
        let (mut block, mut scratch) = (Vec::new(), Scratch::new());
        for (name, value) in lists.iter().copied().flatten() {
            // The encoder would make names lower case.
            if name.bytes().any(|b| b.is_ascii_uppercase()) {
                block.extend_from_slice(&[0, name.len() as u8]);
                block.extend_from_slice(name.as_bytes());
                block.push(value.len() as u8);
                block.extend_from_slice(value.as_bytes());
            } else {
                encode_without_table(name.as_bytes(), value.as_bytes(), &mut block);
            }
        }
        Decoder::new(4096).decode(&block, &mut scratch, 100, 10_000).unwrap();
        scratch
    }

    fn of_request(list: &[(&str, &str)]) -> Result<(), Reason> {
        request(&mut scratch(&[list]), false).map(|_| ())
    }

    fn get_with(name: &str, value: &str) -> Result<(), Reason> {
        request(&mut scratch(&[GET, &[(name, value)]]), false).map(|_| ())
    }

    /// GET with one pseudo-field replaced.
    fn get_but(name: &str, value: Option<&str>) -> Result<(), Reason> {
        let list: Vec<_> = GET
            .iter()
            .filter_map(|&(n, v)| if n == name { value.map(|v| (n, v)) } else { Some((n, v)) })
            .collect();
        of_request(&list)
    }

    #[test]
    fn rfc9113_8_2_1_names_and_values() {
        assert_eq!(get_with("x-y", "a\tb \u{e9}"), Ok(()));
        for name in ["X-y", "a b", "a\0", "a\u{7f}", "", "a:b", "\u{e9}"] {
            assert_eq!(get_with(name, "v"), Err(Reason::FieldName), "{name:?}");
        }
        for value in ["a\0", "a\rb", "a\nb", " a", "a ", "\ta", "a\t", "\u{7f}", "\u{1}"] {
            assert_eq!(get_with("x", value), Err(Reason::FieldValue), "{value:?}");
            assert_eq!(get_with("accept", value), Err(Reason::FieldValue), "{value:?}");
        }
    }

    #[test]
    fn rfc9113_8_2_2_connection_fields() {
        for name in ["connection", "keep-alive", "proxy-connection", "upgrade", "transfer-encoding"]
        {
            assert_eq!(get_with(name, "x"), Err(Reason::ConnectionField), "{name}");
        }
        assert_eq!(get_with("te", "trailers"), Ok(()));
        assert_eq!(get_with("te", "trailers, gzip"), Err(Reason::ConnectionField));
    }

    /// Strings of a grammar match in any case (RFC 5234 section 2.3).
    #[test]
    fn te_with_trailers_in_capitals_was_refused() {
        assert_eq!(get_with("te", "Trailers"), Ok(()));
    }

    /// Browsers send each cookie in its own field.
    #[test]
    fn rfc9113_8_2_3_cookies_are_one_field_for_the_limit_on_fields() {
        let push = |scratch: &mut Scratch, name: &[u8]| {
            let append = |arena: &mut Vec<u8>| {
                arena.extend_from_slice(name);
                arena.extend_from_slice(b"a=b");
                Ok(name.len())
            };
            scratch.push(4, 8_000, append).unwrap();
            scratch.is_overfull()
        };
        let mut scratch = Scratch::new();
        for _ in 0..100 {
            assert!(!push(&mut scratch, b"cookie"));
        }
        for name in [b"x", b"y", b"z"] {
            assert!(!push(&mut scratch, name));
        }
        assert!(!push(&mut scratch, b"cookie"));
        assert!(push(&mut scratch, b"w"), "a fifth field");
        scratch.clear();
        let crumb_bytes = b"cookiea=b".len() + crate::limits::FIELD_OVERHEAD_BYTES;
        let fits = 8_000 / crumb_bytes;
        let overfull = (0..=fits).map(|_| push(&mut scratch, b"cookie")).collect::<Vec<_>>();
        assert_eq!(overfull.iter().position(|full| *full), Some(fits), "their bytes count");
    }

    #[test]
    fn rfc9113_8_2_3_cookies_are_joined() {
        let list: &[_] = &[("cookie", "a=b"), ("x", "1"), ("cookie", "c=d"), ("cookie", "e=f")];
        let mut scratch = scratch(&[GET, list]);
        let head = request(&mut scratch, false).unwrap().request_head(&scratch);
        let found: Vec<_> = head.fields.iter().collect();
        assert_eq!(found, [(&b"cookie"[..], &b"a=b; c=d; e=f"[..]), (b"x", b"1")]);
    }

    #[test]
    fn rfc9113_8_3_pseudo_fields() {
        assert_eq!(of_request(GET), Ok(()));
        assert_eq!(get_with(":path", "/"), Err(Reason::PseudoRepeated));
        assert_eq!(get_with(":unknown", "/"), Err(Reason::PseudoUnknown));
        assert_eq!(get_with(":status", "200"), Err(Reason::PseudoUnknown));
        let late = [GET, &[("a", "b"), (":path", "/")]].concat();
        assert_eq!(of_request(&late), Err(Reason::PseudoOrder));
    }

    #[test]
    fn rfc9113_8_3_1_requests() {
        for name in [":method", ":scheme", ":path"] {
            assert_eq!(get_but(name, None), Err(Reason::PseudoMissing), "{name}");
        }
        assert_eq!(get_but(":authority", None), Err(Reason::Authority));
        for path in ["", "*", "a", "/ ", "/#", "/\u{e9}", "http://h/"] {
            let reason = if path == "/ " { Reason::FieldValue } else { Reason::Path };
            assert_eq!(get_but(":path", Some(path)), Err(reason), "{path}");
        }
        let options = [(":method", "OPTIONS"), GET[1], (":path", "*"), GET[3]];
        assert_eq!(of_request(&options), Ok(()));
        assert_eq!(get_but(":method", Some("G T")), Err(Reason::Method));
        assert_eq!(get_but(":method", Some("")), Err(Reason::Method));
        assert_eq!(get_but(":scheme", Some("")), Err(Reason::Scheme));
        assert_eq!(get_but(":scheme", Some("ht/tp")), Err(Reason::Scheme));
        for authority in ["", "u@h", "h/", "h?"] {
            assert_eq!(get_but(":authority", Some(authority)), Err(Reason::Authority));
        }
    }

    #[test]
    fn rfc9113_8_3_1_authority_agrees_with_host() {
        assert_eq!(get_with("host", "H"), Ok(()));
        assert_eq!(get_with("host", "other"), Err(Reason::Authority));
        let two = [GET, &[("host", "h"), ("host", "h")]].concat();
        assert_eq!(of_request(&two), Err(Reason::Authority));
        let only_host = [&GET[..3], &[("host", "h")]].concat();
        assert_eq!(of_request(&only_host), Ok(()));
        let empty_host = [&GET[..3], &[("host", "")]].concat();
        assert_eq!(of_request(&empty_host), Err(Reason::Authority));
    }

    #[test]
    fn rfc9113_8_5_and_rfc8441_connect() {
        let connect: &[_] = &[(":method", "CONNECT"), (":authority", "h:443")];
        assert_eq!(of_request(connect), Ok(()));
        assert_eq!(of_request(&connect[..1]), Err(Reason::Authority));
        for more in [(":scheme", "http"), (":path", "/")] {
            assert_eq!(of_request(&[connect, &[more]].concat()), Err(Reason::Connect));
        }
        let protocol: &[_] = &[(":protocol", "websocket")];
        let whole = [&[(":method", "CONNECT")], &GET[1..], protocol].concat();
        assert_eq!(of_request(&whole), Err(Reason::Connect), "not enabled");
        let mut extended = scratch(&[&whole]);
        let head = request(&mut extended, true).unwrap().request_head(&extended);
        assert_eq!(head.protocol, Some(&b"websocket"[..]));
        let mut get = scratch(&[GET, protocol]);
        assert_eq!(request(&mut get, true).err(), Some(Reason::Connect));
        let short = [&[(":method", "CONNECT")], &GET[2..], protocol].concat();
        assert_eq!(request(&mut scratch(&[&short]), true).err(), Some(Reason::PseudoMissing));
    }

    #[test]
    fn rfc9113_8_3_2_responses() {
        let of = |list: &[(&str, &str)]| response(&mut scratch(&[list])).map(|c| c.status);
        assert_eq!(of(&[(":status", "204")]), Ok(204));
        for bad in ["", "20", "2000", "099", "abc", "101", "+20"] {
            assert_eq!(of(&[(":status", bad)]), Err(Reason::Status), "{bad}");
        }
        assert_eq!(of(&[]), Err(Reason::PseudoMissing));
        assert_eq!(of(&[(":status", "200"), (":status", "200")]), Err(Reason::PseudoRepeated));
        assert_eq!(of(&[(":status", "200"), (":path", "/")]), Err(Reason::PseudoUnknown));
    }

    #[test]
    fn rfc9113_8_1_trailers_have_no_pseudo_fields() {
        assert_eq!(trailers(&mut scratch(&[&[("a", "b")]])), Ok(()));
        assert_eq!(trailers(&mut scratch(&[&[(":status", "200")]])), Err(Reason::PseudoUnknown));
    }

    #[test]
    fn rfc9113_8_1_1_content_length_is_one_number() {
        for bad in ["", "1,1", "-1", "+1", "0x1", "18446744073709551616"] {
            assert_eq!(get_with("content-length", bad), Err(Reason::ContentLength), "{bad}");
        }
        assert_eq!(get_with("content-length", "18446744073709551615"), Ok(()));
        let two = [GET, &[("content-length", "1"), ("content-length", "1")]].concat();
        assert_eq!(of_request(&two), Err(Reason::ContentLength));
    }
}
