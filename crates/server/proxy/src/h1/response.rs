//! The heads of responses, for the sink of any version.

use cache::stored::{Connection, Framing, Use, has_length, is_tag_field, write_date};
use config::Role;
use http1::{Name, RequestHead, ResponseHead, Sink, Version, write};
use outcome::Refusal;
use runtime::time;
use upstream::BodyLength;

use exchange::cache_status::proxy_status_line;
use exchange::client::{Own, Relayed, Response, StoredForm};
use exchange::passed::Passed;

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

/// Writes the head of a final response.
pub(crate) fn write(
    out: &mut impl Sink,
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
                StoredForm::Whole(stored) => stored.write_head(out, &use_),
                StoredForm::Part(head, part, _) => head.write_part(out, part, framing, &use_),
                StoredForm::Parts(parts) => parts.write_head(out, &use_),
                StoredForm::NotModified(head) => head.write_not_modified(out, &use_),
                StoredForm::Unsatisfied(head, complete_bytes) => {
                    head.write_unsatisfied(out, complete_bytes, &use_);
                }
                StoredForm::Arriving(head, _) => head.write_streaming(out, framing, &use_),
            }
        }
        Response::Relayed(relayed) => write_relayed(out, relayed, framing, connection),
        Response::Own(own) => write_own(out, own, connection),
        Response::Switching { head, via, protocol } => {
            write_interim(out, 101, head);
            via.append_to_response(out, head.version);
            out.field(b"Connection", b"Upgrade");
            out.field(b"Upgrade", protocol);
        }
        Response::TunnelOpen => out.prepared(200, b"HTTP/1.1 200 Connection established\r\n"),
    }
}

fn write_relayed(
    out: &mut impl Sink,
    relayed: &Relayed<'_>,
    framing: Framing,
    connection: Connection,
) {
    let Relayed { head, body, tags, passed, .. } = relayed;
    out.status(head.status);
    out.end_to_end(&head.fields, |field| {
        // The names of tags are none of the known ones.
        field.id() != Name::ContentLength
            && (*tags || field.id() != Name::Other || !is_tag_field(field.name()))
            && passed.is_none_or(|passed| passed.keeps(field.name()))
    });
    if let Some(passed) = passed {
        out.lines(&passed.lines);
    }
    if !head.fields.has(Name::Date) {
        write_date(out, relayed.response_ms);
    }
    relayed.via.append_to_response(out, head.version);
    framing.write(out);
    // A 304 and an answer to HEAD may announce the length of the body that they do not carry.
    if let Some(length) = head.content_length()
        && body.is_none()
        && !passed.is_some_and(Passed::is_coded)
        && (has_length(head.status) || head.status == 304)
    {
        out.content_length(length);
    }
    out.field_of(b"Cache-Status", |out| relayed.cache_status.append(out));
    connection.write(out);
}

/// Writes the head of our own answer.
fn write_own(out: &mut impl Sink, own: &Own<'_>, connection: Connection) {
    out.status(own.status);
    out.lines(own.lines);
    if let Some(length) = own.content_length {
        out.content_length(length);
    }
    out.lines(own.more_lines);
    write_date(out, time::wall_ms());
    connection.write(out);
}

/// Appends our answer to a client that has sent no request: the connection closes after it.
pub(super) fn append_refusal(out: &mut Vec<u8>, refusal: Refusal) {
    write_refusal(out, refusal);
    write::end(out);
    out.extend_from_slice(refusal_text(refusal).as_bytes());
}

/// The content of a refusal.
pub(crate) fn refusal_text(refusal: Refusal) -> String {
    format!("{}\n", refusal.text())
}

/// Writes the head of a refusal.
pub(crate) fn write_refusal(out: &mut impl Sink, refusal: Refusal) {
    let (status, text) = (refusal.status(), refusal_text(refusal));
    let own = Own {
        status,
        lines: b"Content-Type: text/plain\r\n",
        content_length: Some(text.len() as u64),
        more_lines: &[b"Cache-Control: no-store\r\n", &proxy_status_line(refusal)[..]].concat(),
    };
    write_own(out, &own, Connection::Close);
}

/// Writes the head of an interim response, without the fields of its connection. It has no content,
/// and a client that believed the length that some origins send with it would take the final
/// response for that content (RFC 9110, 8.6).
pub(crate) fn write_interim(out: &mut impl Sink, status: u16, head: &ResponseHead<'_>) {
    out.status(status);
    out.end_to_end(&head.fields, |field| field.id() != Name::ContentLength);
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
            write_interim(&mut passed_on, 103, &head.unwrap().unwrap());
            let passed_on = String::from_utf8(passed_on).unwrap();
            assert_eq!(passed_on, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n");
        }
    }
}
