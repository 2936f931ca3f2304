//! The named formats. Each is written by hand, because that is faster than a format string. A test
//! compares the result with the result of a format string.

use http1::Name;
use http1::write::decimal;
use outcome::BrokenBy;

use super::codes::{hierarchy, media_type, request_line, upstream, url};
use super::record::{Record, squid_code};
use transport::tls::{Facts, Peer, name_text};

use super::text::{Civil, Quote, address, digits, json_chars, padded, quoted, socket_address};

/// Squid's native format: stamps the end, in milliseconds.
pub(super) fn squid(out: &mut Vec<u8>, r: &Record<'_>) {
    decimal(out, r.end_wall_ms / 1000);
    out.push(b'.');
    digits(out, r.end_wall_ms % 1000, 3);
    padded(out, r.elapsed_us / 1000, 7);
    out.push(b' ');
    address(out, r.client.ip());
    out.push(b' ');
    out.extend_from_slice(squid_code(r));
    out.push(b'/');
    digits(out, u64::from(r.status), 3);
    out.push(b' ');
    decimal(out, r.bytes);
    out.push(b' ');
    quoted(out, r.method(), Quote::Url, b"-");
    out.push(b' ');
    url(out, r, Quote::Url);
    out.push(b' ');
    quoted(out, r.user, Quote::Url, b"-");
    out.push(b' ');
    out.extend_from_slice(hierarchy(r));
    out.push(b'/');
    upstream(out, r.upstream);
    out.push(b' ');
    quoted(out, media_type(r.content_type), Quote::Url, b"-");
    out.push(b'\n');
}

/// The common log format; `end` is the time of the end.
pub(super) fn common(out: &mut Vec<u8>, r: &Record<'_>, end: &Civil) {
    common_part(out, r, end);
    out.push(b'\n');
}

/// Apache's combined format, stamped at the end as nginx does.
pub(super) fn combined(out: &mut Vec<u8>, r: &Record<'_>, end: &Civil) {
    common_part(out, r, end);
    out.extend_from_slice(b" \"");
    quoted(out, r.request_field(Name::Referer), Quote::Apache, b"-");
    out.extend_from_slice(b"\" \"");
    quoted(out, r.request_field(Name::UserAgent), Quote::Apache, b"-");
    out.extend_from_slice(b"\"\n");
}

fn common_part(out: &mut Vec<u8>, r: &Record<'_>, end: &Civil) {
    address(out, r.client.ip());
    out.extend_from_slice(b" - ");
    quoted(out, r.user, Quote::Url, b"-");
    out.extend_from_slice(b" [");
    end.clf(out);
    out.extend_from_slice(b"] \"");
    request_line(out, r, Quote::Apache);
    out.extend_from_slice(b"\" ");
    digits(out, u64::from(r.status), 3);
    out.push(b' ');
    if r.body_bytes == 0 {
        out.push(b'-');
    } else {
        decimal(out, r.body_bytes);
    }
}

/// A JSON object with the time of the end. A missing value is null.
pub(super) fn json(out: &mut Vec<u8>, r: &Record<'_>, end: &Civil) {
    let mut object = Object { out, first: true };
    object.quoted("time", |out| end.iso_ms(out, r.end_wall_ms));
    object.number("elapsed_us", r.elapsed_us);
    object.quoted("client", |out| address(out, r.client.ip()));
    object.number("client_port", u64::from(r.client.port()));
    object.text("user", r.user);
    object.text("method", r.method());
    if r.request.is_some() {
        object.quoted("url", |out| {
            if !r.authority_before().is_empty() {
                out.extend_from_slice(r.scheme().as_bytes());
                out.extend_from_slice(b"://");
            }
            json_chars(out, r.authority_before());
            json_chars(out, r.target());
        });
    } else {
        object.text("url", b"");
    }
    object.text("protocol", r.version().as_bytes());
    object.number("status", u64::from(r.status));
    object.text("outcome", squid_code(r));
    object.text("cache_status", r.response_field(b"cache-status"));
    object.text("rule", r.rule.as_bytes());
    object.text("broken_by", r.broken.map_or("", BrokenBy::name).as_bytes());
    object.number("bytes_received", r.request_bytes);
    object.number("bytes_sent", r.bytes);
    object.number("body_bytes_sent", r.body_bytes);
    object.text("hierarchy", hierarchy(r));
    match r.upstream {
        None => object.text("upstream", b""),
        Some(at) => object.quoted("upstream", |out| socket_address(out, at)),
    }
    object.text("content_type", r.content_type);
    object.text("referer", r.request_field(Name::Referer));
    object.text("user_agent", r.request_field(Name::UserAgent));
    object.bool("keep_alive", r.keep);
    match r.tls {
        None => object.null("tls"),
        Some(tls) => tls.with_facts(&mut |facts| object.tls(facts)),
    }
    out.extend_from_slice(b"}\n");
}

struct Object<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

impl Object<'_> {
    fn name(&mut self, name: &str) {
        let before: &[u8] = if std::mem::take(&mut self.first) { b"{\"" } else { b",\"" };
        self.out.extend_from_slice(before);
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn null(&mut self, name: &str) {
        self.text(name, b"");
    }

    fn tls(&mut self, facts: &Facts<'_>) {
        self.name("tls");
        let peer = |name: fn(&Peer<'_>) -> Vec<u8>| facts.peer.as_ref().map(name);
        let mut tls = Object { out: self.out, first: true };
        tls.quoted("version", |out| {
            out.extend_from_slice(b"TLSv");
            out.extend_from_slice(facts.version.as_bytes());
        });
        tls.text("cipher", facts.cipher.as_bytes());
        tls.text("sni", facts.server_name.unwrap_or_default().as_bytes());
        tls.bool("resumed", facts.resumed);
        let subject = peer(|peer| name_text(peer.subject)).unwrap_or_default();
        tls.text("client_subject", &subject);
        let issuer = peer(|peer| name_text(peer.issuer)).unwrap_or_default();
        tls.text("client_issuer", &issuer);
        self.out.push(b'}');
    }

    fn text(&mut self, name: &str, text: &[u8]) {
        self.name(name);
        if text.is_empty() {
            self.out.extend_from_slice(b"null");
        } else {
            self.out.push(b'"');
            json_chars(self.out, text);
            self.out.push(b'"');
        }
    }

    /// A string that needs no escapes.
    fn quoted(&mut self, name: &str, append: impl FnOnce(&mut Vec<u8>)) {
        self.name(name);
        self.out.push(b'"');
        append(self.out);
        self.out.push(b'"');
    }

    fn number(&mut self, name: &str, number: u64) {
        self.name(name);
        decimal(self.out, number);
    }

    fn bool(&mut self, name: &str, value: bool) {
        self.name(name);
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }
}
