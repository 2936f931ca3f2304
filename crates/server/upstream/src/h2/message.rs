//! The head of a received response in the form of HTTP/1, which the strict parser reads.

use http1::write;
use http2::ResponseHead;
use outcome::Fault;

/// Writes a response's head for the parser of HTTP/1.
///
/// # Errors
/// The status is none that HTTP/1 has.
pub(super) fn write_response(
    out: &mut Vec<u8>,
    head: &ResponseHead<'_>,
    is_head: bool,
    end_stream: bool,
) -> Result<(), Fault> {
    if !(100..=999).contains(&head.status) {
        return Err(Fault::Http2(http2::Reason::Status));
    }
    write::status_line(out, head.status);
    for (name, value) in head.fields.iter() {
        write::field(out, name, value).map_err(|_| Fault::Http2(http2::Reason::FieldValue))?;
    }
    let has_content = !is_head && head.status >= 200 && !matches!(head.status, 204 | 304);
    match (head.content_length, end_stream) {
        _ if !has_content => {}
        (Some(_), _) => {}
        (None, true) => write::content_length(out, 0),
        (None, false) => out.extend_from_slice(write::CHUNKED),
    }
    write::end(out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use core_io::spares::Spares;
    use http1::{Method, Scheme, Target};
    use http2::{Connection, Event, Limits, RequestFields, Scratch};

    use super::*;
    use crate::{BodyLength, Request};

    #[test]
    fn a_head_has_its_parts_for_http2() {
        let target = Target::Origin { path_and_query: b"/a?b" };
        let bytes = Spares::default().take(Vec::new, Vec::clear);
        let mut request = Request::new(bytes, (Method::Post, b"POST"), &target, b"a.test:81");
        request.lines().extend_from_slice(b"X: a:b\r\nEmpty: \r\n");
        request.end(BodyLength::Unknown);
        request.accept_trailers();
        let longer = request.with_lines(Spares::default().take(Vec::new, Vec::clear), None, b"");
        assert_eq!(longer.field_lines(), request.field_lines());
        let other = Spares::default().take(Vec::new, Vec::clear);
        let other = request.with_lines(other, Some(b"http://b/"), b"Y: z\r\n");
        let pseudo = other.pseudo(Scheme::Http);
        assert_eq!((pseudo.authority, pseudo.path), (&b"a.test:81"[..], Some(&b"http://b/"[..])));
        let RequestFields { method, scheme, authority, path, .. } = request.pseudo(Scheme::Https);
        let expected = (&b"POST"[..], Some(&b"https"[..]), &b"a.test:81"[..], Some(&b"/a?b"[..]));
        assert_eq!((method, scheme, authority, path), expected);
        let fields: Vec<_> = request.fields().collect();
        let expected: [(&[u8], &[u8]); 4] = [
            (b"X", b"a:b"),
            (b"Empty", b""),
            (b"Transfer-Encoding", b"chunked"),
            (b"te", b"trailers"),
        ];
        assert_eq!(fields, expected);
    }

    /// The head of a response as it is written.
    fn written(method: &[u8], status: u16, fields: &[(&str, &str)], ends: bool) -> String {
        let (mut scratch, limits) = (Scratch::new(), Limits::default());
        let (mut sent, mut answers, mut out) = (Vec::new(), Vec::new(), Vec::new());
        let mut client = Connection::client(&limits, &mut sent);
        let mut server = Connection::server(&limits, &mut answers);
        let path = Some(&b"/"[..]);
        let scheme = Some(&b"http"[..]);
        let request = RequestFields { method, scheme, authority: b"a", path, protocol: None };
        let id = client.send_request(&request, [], true, &mut sent).unwrap();
        let mut at = 0;
        while at < sent.len() {
            at += server.next_event(&sent[at..], &mut scratch, 0, &mut answers).unwrap().consumed;
        }
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        server.send_response(id, status, fields, ends, &mut answers).unwrap();
        let mut at = 0;
        loop {
            let received = client.next_event(&answers[at..], &mut scratch, 0, &mut sent).unwrap();
            at += received.consumed;
            if let Some(Event::Response { head, end_stream, .. }) = received.event {
                let result = write_response(&mut out, &head, method == b"HEAD", end_stream);
                return match result {
                    Ok(()) => String::from_utf8(out).unwrap(),
                    Err(fault) => format!("{fault:?}"),
                };
            }
        }
    }

    #[test]
    fn a_response_has_the_framing_that_its_stream_says() {
        let length = [("content-length", "5")];
        let known = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
        assert_eq!(written(b"GET", 200, &length, false), known);
        assert_eq!(written(b"HEAD", 200, &length, true), known);
        let empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(written(b"GET", 200, &[], true), empty);
        let unknown = "HTTP/1.1 200 OK\r\na: b\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(written(b"GET", 200, &[("a", "b")], false), unknown);
        assert_eq!(written(b"HEAD", 200, &[], true), "HTTP/1.1 200 OK\r\n\r\n");
        for (status, ends) in [(204, true), (204, false), (304, true), (103, false)] {
            let head = written(b"GET", status, &[], ends);
            assert_eq!(head.lines().count(), 2, "{head}");
        }
        let unusual = "HTTP/1.1 999 \r\nContent-Length: 0\r\n\r\n";
        assert_eq!(written(b"GET", 999, &[], true), unusual);
    }
}
