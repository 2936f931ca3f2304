//! Heads of one version in the form of the other.
//!
//! Exchanges, rules and logs know the head of HTTP/1. The fields of a request are written as one,
//! and the strict parser reads it: what it refuses over HTTP/1 it refuses here.

use http1::write;
use http2::RequestHead;

use exchange::upgrade;

/// Fields of a request that its new head does not take over: it has its own.
const OWN: [&[u8]; 2] = [b"host", b"content-length"];
/// The same of an extended CONNECT, which has none (RFC 8441 section 5).
const KEY: &[u8] = b"sec-websocket-key";

/// Writes a request's head. `is_absolute` writes the whole URL, as a forward proxy expects. An
/// extended CONNECT becomes an upgrade.
pub(crate) fn write_request(
    out: &mut Vec<u8>,
    head: &RequestHead<'_>,
    is_absolute: bool,
    end_stream: bool,
) {
    out.extend_from_slice(if head.protocol.is_some() { b"GET" } else { head.method });
    out.push(b' ');
    match (head.path, head.scheme) {
        // CONNECT.
        (None, _) => out.extend_from_slice(head.authority),
        (Some(path), Some(scheme)) if is_absolute && path != b"*" => {
            for part in [scheme, b"://", head.authority, path] {
                out.extend_from_slice(part);
            }
        }
        (Some(path), _) => out.extend_from_slice(path),
    }
    out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    out.extend_from_slice(head.authority);
    out.extend_from_slice(b"\r\n");
    let has_own = |name: &[u8]| OWN.contains(&name) || (head.protocol.is_some() && name == KEY);
    for (name, value) in head.fields.iter().filter(|(name, _)| !has_own(name)) {
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    if let Some(protocol) = head.protocol {
        out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: ");
        out.extend_from_slice(protocol);
        out.extend_from_slice(b"\r\nSec-WebSocket-Key: ");
        out.extend_from_slice(upgrade::websocket_key().as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    match (head.content_length, end_stream) {
        (Some(length), _) => write::content_length(out, length),
        (None, true) => {}
        // What follows belongs to the tunnel.
        (None, false) if head.method == b"CONNECT" => {}
        (None, false) => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
    write::end(out);
}

#[cfg(test)]
mod tests {
    use http2::{Connection, Event, Limits, RequestFields, Scratch};

    use super::*;

    /// The head of a request as it is written.
    fn written(
        request: &RequestFields<'_>,
        fields: &[(&str, &str)],
        is_absolute: bool,
        end_stream: bool,
    ) -> String {
        let (mut scratch, limits) = (Scratch::new(), Limits::default());
        let (mut sent, mut answers, mut out) = (Vec::new(), Vec::new(), Vec::new());
        let mut client = Connection::client(&limits, &mut sent);
        let mut server = Connection::server(&limits, &mut answers);
        let fields = fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        client.send_request(request, fields, end_stream, &mut sent).unwrap();
        let mut at = 0;
        loop {
            let received = server.next_event(&sent[at..], &mut scratch, 0, &mut answers).unwrap();
            at += received.consumed;
            if let Some(Event::Request { head, end_stream, .. }) = received.event {
                write_request(&mut out, &head, is_absolute, end_stream);
                return String::from_utf8(out).unwrap();
            }
        }
    }

    const GET: RequestFields<'_> = RequestFields {
        method: b"GET",
        scheme: Some(b"https"),
        authority: b"a.test",
        path: Some(b"/x?y"),
        protocol: None,
    };

    #[test]
    fn a_request_is_written_once_in_each_form() {
        let fields = [("accept", "*/*"), ("te", "trailers"), ("cookie", "a=b")];
        assert_eq!(
            written(&GET, &fields, false, true),
            "GET /x?y HTTP/1.1\r\nHost: a.test\r\naccept: */*\r\nte: trailers\r\n\
             cookie: a=b\r\n\r\n"
        );
        assert!(written(&GET, &[], true, true).starts_with("GET https://a.test/x?y HTTP/1.1\r\n"));
        let options = RequestFields { method: b"OPTIONS", path: Some(b"*"), ..GET };
        assert!(written(&options, &[], true, true).starts_with("OPTIONS * HTTP/1.1\r\n"));
        let connect = RequestFields { method: b"CONNECT", scheme: None, path: None, ..GET };
        assert!(written(&connect, &[], true, false).starts_with("CONNECT a.test HTTP/1.1\r\n"));
    }

    #[test]
    fn the_content_has_one_length() {
        let post = RequestFields { method: b"POST", ..GET };
        let known = written(&post, &[("content-length", "5")], false, false);
        assert!(known.ends_with("Host: a.test\r\nContent-Length: 5\r\n\r\n"), "{known}");
        let unknown = written(&post, &[], false, false);
        assert!(unknown.ends_with("\r\nTransfer-Encoding: chunked\r\n\r\n"), "{unknown}");
    }
}
