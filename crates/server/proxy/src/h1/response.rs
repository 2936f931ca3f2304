//! Response heads as HTTP/1 writes them.

use cache::stored::is_tag_field;
use cache::stored::{Connection, Framing, Use, append_date, append_framing, has_length};
use config::Role;
use http1::{Name, RequestHead, ResponseHead, Version, write};
use outcome::Refusal;
use runtime::time;
use upstream::BodyLength;

use exchange::cache_status::proxy_status_line;
use exchange::client::{Own, Relayed, Response, StoredForm};

/// Whether the client may send another request on this connection. A forward proxy ignores the
/// keep-alive of an HTTP/1.0 client, which may be that of another old proxy, passed on blindly
/// (RFC 9112, 9.3 and C.2.2).
pub(super) fn wants_more(role: Role, head: &RequestHead<'_>) -> bool {
    let is_honoured = head.version != Version::Http10 || role == Role::Reverse;
    is_honoured && head.keep_alive()
}

/// What to tell the client about the connection.
pub(super) fn connection_of(version: Version, keep: bool) -> Connection {
    match (keep, version) {
        (false, _) => Connection::Close,
        (true, Version::Http10) => Connection::KeepExplicit,
        (true, Version::Http11 | Version::Http2 | Version::Http3) => Connection::Keep,
    }
}

/// How the end of a response's body is marked for a client of this version.
pub(crate) fn framing(response: &Response<'_>, version: Version) -> Framing {
    let (status, length) = match response {
        // The stored head and our own answers announce their length themselves.
        Response::Stored(StoredForm::Part(_, _, length), _) => (206, *length),
        Response::Stored(StoredForm::Arriving(head, length), _) => (head.status, *length),
        Response::Relayed(Relayed { head, body: Some(length), .. }) => (head.status, *length),
        _ => return Framing::Implied,
    };
    match (length, version) {
        _ if !has_length(status) => Framing::Implied,
        (BodyLength::None, _) => Framing::Length(0),
        (BodyLength::Known(length), _) => Framing::Length(length),
        (BodyLength::Unknown, Version::Http11) => Framing::Chunked,
        (BodyLength::Unknown, Version::Http10) => Framing::UntilClose,
        // The end of the stream is the mark.
        (BodyLength::Unknown, Version::Http2 | Version::Http3) => Framing::Implied,
    }
}

/// Appends the head of a final response, with these field lines of its listener.
pub(crate) fn append(
    out: &mut Vec<u8>,
    response: &Response<'_>,
    framing: Framing,
    connection: Connection,
    own_lines: &[u8],
) {
    append_without(out, response, framing, connection);
    append_lines(out, own_lines);
}

/// Appends field lines to a head that is complete.
pub(crate) fn append_lines(out: &mut Vec<u8>, lines: &[u8]) {
    if !lines.is_empty() {
        out.truncate(out.len() - b"\r\n".len());
        out.extend_from_slice(lines);
        write::end(out);
    }
}

fn append_without(
    out: &mut Vec<u8>,
    response: &Response<'_>,
    framing: Framing,
    connection: Connection,
) {
    match response {
        Response::Stored(form, labels) => {
            let use_ = Use {
                cache_status: labels.cache_status,
                now_ms: labels.now_ms,
                connection,
                own_lines: labels.own_lines,
            };
            match *form {
                StoredForm::Whole(stored) => stored.append_head(out, &use_),
                StoredForm::Part(head, part, _) => head.append_part(out, part, framing, &use_),
                StoredForm::Parts(parts) => parts.append_head(out, &use_),
                StoredForm::NotModified(head) => head.append_not_modified(out, &use_),
                StoredForm::Unsatisfied(head, complete_bytes) => {
                    head.append_unsatisfied(out, complete_bytes, &use_);
                }
                StoredForm::Arriving(head, _) => head.append_streaming(out, framing, &use_),
            }
        }
        Response::Relayed(relayed) => append_relayed(out, relayed, framing, connection),
        Response::Own(own) => append_own(out, own, connection),
        Response::Switching { head, via, protocol } => {
            write::status_line(out, 101);
            write::end_to_end(out, &head.fields, |field| field.id() != Name::ContentLength);
            via.append_to_response(out, head.version);
            out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: ");
            out.extend_from_slice(protocol);
            out.extend_from_slice(b"\r\n");
            write::end(out);
        }
        Response::TunnelOpen => {
            out.extend_from_slice(b"HTTP/1.1 200 Connection established\r\n\r\n");
        }
    }
}

fn append_relayed(
    out: &mut Vec<u8>,
    relayed: &Relayed<'_>,
    framing: Framing,
    connection: Connection,
) {
    let Relayed { head, body, tags, .. } = relayed;
    write::status_line(out, head.status);
    write::end_to_end(out, &head.fields, |field| {
        field.id() != Name::ContentLength && (*tags || !is_tag_field(field.name()))
    });
    if !head.fields.has(Name::Date) {
        append_date(out, relayed.response_ms);
    }
    relayed.via.append_to_response(out, head.version);
    append_framing(out, framing);
    // A 304 and an answer to HEAD may announce the length of the body that they do not carry.
    if let Some(length) = head.content_length()
        && body.is_none()
        && (has_length(head.status) || head.status == 304)
    {
        write::content_length(out, length);
    }
    out.extend_from_slice(b"Cache-Status: ");
    relayed.cache_status.append(out);
    out.extend_from_slice(b"\r\n");
    connection.append(out);
    write::end(out);
}

/// Appends the head of our own answer.
pub(super) fn append_own(out: &mut Vec<u8>, own: &Own<'_>, connection: Connection) {
    write::status_line(out, own.status);
    out.extend_from_slice(own.lines);
    if let Some(length) = own.content_length {
        write::content_length(out, length);
    }
    out.extend_from_slice(own.more_lines);
    append_date(out, time::wall_ms());
    connection.append(out);
    write::end(out);
}

/// Appends our answer to a client that has sent no request: the connection closes after it.
pub(crate) fn append_refusal(out: &mut Vec<u8>, refusal: Refusal) {
    let (status, text) = (refusal.status(), refusal.text());
    let own = Own {
        status,
        lines: b"Content-Type: text/plain\r\n",
        content_length: Some(text.len() as u64 + 1),
        more_lines: &[b"Cache-Control: no-store\r\n", &proxy_status_line(refusal)[..]].concat(),
    };
    append_own(out, &own, Connection::Close);
    out.extend_from_slice(text.as_bytes());
    out.push(b'\n');
}

/// Appends an interim response, without the fields of its connection. It has no content, and a
/// client that believed the length that some origins send with it would take the final response for
/// that content (RFC 9110, 8.6).
pub(crate) fn append_interim(out: &mut Vec<u8>, head: &ResponseHead<'_>) {
    write::status_line(out, head.status);
    write::end_to_end(out, &head.fields, |field| field.id() != Name::ContentLength);
    write::end(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_client_of_http_1_0_gets_an_explicit_keep_alive() {
        assert!(matches!(connection_of(Version::Http10, true), Connection::KeepExplicit));
        for version in [Version::Http11, Version::Http2, Version::Http3] {
            assert!(matches!(connection_of(version, true), Connection::Keep));
            assert!(matches!(connection_of(version, false), Connection::Close));
        }
    }

    #[test]
    fn an_interim_response_announces_no_content() {
        for framing in ["Content-Length: 45", "Transfer-Encoding: chunked"] {
            let received = format!("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n{framing}\r\n\r\n");
            let mut scratch = http1::Scratch::new();
            let limits = http1::Limits::DEFAULT;
            let head = http1::parse_response(received.as_bytes(), &mut scratch, &limits);
            let mut passed_on = Vec::new();
            append_interim(&mut passed_on, &head.unwrap().unwrap());
            let passed_on = String::from_utf8(passed_on).unwrap();
            assert_eq!(passed_on, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        }
    }
}
