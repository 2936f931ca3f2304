//! Format strings of names in braces: `{client} {user} [{time}] "{request}" {status}`.
//!
//! Each name is in one table, from which the parser, the reference and the suggestions in errors
//! are made. `{{` is a brace. A value between quotes or brackets is escaped for that place, as in
//! Squid's grammar.

use http1::write::decimal;
use outcome::BrokenBy;

use super::codes::{self, Argument, Code, Moment, What};
use super::record::Record;
use super::text::{self, Quote, quoted};

use self::Argument::Needed;
use self::Moment::{End, Start};

const FIELD: Argument = Needed("NAME");

macro_rules! names {
    ($($name:literal $(($argument:expr))? => $make:expr, $help:literal;)*) => {
        &[$(Code { names: $name, argument: names!(@argument $($argument)?), help: $help,
                   make: $make },)*]
    };
    (@argument) => { Argument::None };
    (@argument $argument:expr) => { $argument };
}

/// All names. Those that end with a dot have an argument after it.
pub(super) const NAMES: &[Code] = names! {
    "client" => |_| plain(codes::CLIENT_ADDRESS), "the client's address";
    "client_port" => |_| plain(codes::CLIENT_PORT), "the client's port";
    "user" => |_| plain(codes::USER), "the user's name";
    "listener" => |_| plain(|out, r, _| {
        text::socket_address(out, r.listener);
    }), "the address of the listener, as configured";
    "time" => |_| codes::time(End, "%d/%b/%Y:%T %z"), "the end, as in the common log format";
    "time_begin" => |_| codes::time(Start, "%d/%b/%Y:%T %z"), "the beginning, the same";
    "time_iso" => |_| codes::time(End, "%FT%T%z"), "the end, as in ISO 8601";
    "msec" => |_| plain(|out, r, _| {
        decimal(out, r.end_wall_ms / 1000);
        out.push(b'.');
        text::digits(out, r.end_wall_ms % 1000, 3);
    }), "seconds since the epoch at the end, with milliseconds";
    "request" => |_| plain(codes::request_line), "the request's first line";
    "method" => |_| plain(codes::METHOD), "the method";
    "url" => |_| plain(codes::url), "the URL";
    "scheme" => |_| plain(|out, r, _| {
        out.extend_from_slice(r.request.map_or("-", |_| r.scheme()).as_bytes());
    }), "the URL's scheme";
    "host" => |_| plain(codes::HOST), "the URL's host";
    "uri" => |_| plain(|out, r, quote| quoted(out, r.path_and_query(), quote, b"-")),
        "the URL's path and query";
    "path" => |_| plain(|out, r, quote| quoted(out, r.path_apart().0, quote, b"-")),
        "the URL's path";
    "query" => |_| plain(|out, r, quote| quoted(out, r.path_apart().1, quote, b"")),
        "the query with its question mark, or nothing";
    "protocol" => |_| plain(|out, r, quote| quoted(out, r.version().as_bytes(), quote, b"-")),
        "HTTP/3.0, HTTP/2.0, HTTP/1.1 or HTTP/1.0";
    "status" => |_| plain(codes::STATUS), "the status that the client got";
    "bytes" => |_| plain(codes::SENT_BODY), "bytes of the body sent";
    "bytes_sent" => |_| plain(codes::SENT), "bytes sent, heads and body";
    "bytes_received" => |_| plain(codes::RECEIVED), "bytes received, head and body";
    "elapsed" => |_| plain(|out, r, _| seconds(out, r.elapsed_us)),
        "the time it took, in seconds with milliseconds";
    "elapsed_us" => |_| plain(codes::ELAPSED_US), "the same in microseconds";
    "upstream" => |_| plain(|out, r, _| match r.upstream {
        Some(upstream) => text::socket_address(out, upstream),
        None => out.push(b'-'),
    }), "the upstream's address and port";
    "upstream_status" => |_| plain(|out, r, _| match r.upstream_status() {
        Some(status) => text::digits(out, status.into(), 3),
        None => out.push(b'-'),
    }), "the status of the upstream's response";
    "upstream_header_time" => |_| plain(|out, r, _| match r.upstream_head_us {
        Some(us) => seconds(out, us),
        None => out.push(b'-'),
    }), "from the request to the head of the upstream's response, in seconds";
    "upstream_time" => |_| plain(|out, r, _| match r.upstream {
        Some(_) => seconds(out, r.elapsed_us),
        None => out.push(b'-'),
    }), "from the request to the end of the response, in seconds, if an upstream was asked";
    "outcome" => |_| plain(codes::OUTCOME), "how the cache took part (TCP_MEM_HIT and others)";
    "cache_status" => |_| codes::response_field("cache-status"), "the field Cache-Status as sent";
    "rule" => |_| plain(codes::RULE), "the rule that refused the request";
    "broken_by" => |_| plain(|out, r, quote| {
        quoted(out, r.broken.map_or("", BrokenBy::name).as_bytes(), quote, b"-");
    }), "who broke the response off";
    "referer" => |_| codes::request_field("referer"), "the field Referer";
    "user_agent" => |_| codes::request_field("user-agent"), "the field User-Agent";
    "request_id" => |_| Ok(What::RequestId),
        "the number of the request: of the field that [request_id] names, or a new one";
    "traceparent" => |_| codes::request_field("traceparent"),
        "the field traceparent (W3C Trace Context)";
    "trace_id" => |_| plain(|out, r, quote| {
        let value = r.request_field_named(b"traceparent");
        let id = value.split(|b| *b == b'-').nth(1).unwrap_or_default();
        quoted(out, id, quote, b"-");
    }), "the trace in that field";
    "tls_version" => |_| plain(codes::TLS_VERSION), "the client's version of TLS";
    "tls_cipher" => |_| plain(codes::TLS_CIPHER), "the client's cipher suite, by IANA";
    "tls_sni" => |_| plain(codes::TLS_SERVER_NAME), "the server name in the client's TLS";
    "tls_subject" => |_| plain(codes::TLS_SUBJECT), "the subject of the client's certificate";
    "request." (FIELD) => codes::request_field, "a field of the request";
    "response." (FIELD) => codes::response_field, "a field of the response as it was sent";
    "cookie." (FIELD) => |name| codes::field_name(name).map(What::Cookie),
        "a cookie of the request";
};

fn plain(put: codes::Put) -> Result<What, String> {
    Ok(What::Plain(put))
}

/// Seconds with milliseconds.
fn seconds(out: &mut Vec<u8>, us: u64) {
    decimal(out, us / 1_000_000);
    out.push(b'.');
    text::digits(out, us / 1000 % 1000, 3);
}

/// A part of a format.
#[derive(Debug)]
pub(super) enum Part {
    Text(Vec<u8>),
    Value(What, Quote),
}

/// Whether a text is a format of names.
pub(super) fn is_format(text: &str) -> bool {
    text.contains('{')
}

/// Parses a format of names.
///
/// # Errors
/// One line: what is wrong, and the nearest name.
pub(super) fn parse(text: &str) -> Result<Vec<Part>, String> {
    let (mut parts, mut pending, mut inside) = (Vec::new(), Vec::new(), None);
    let mut rest = text;
    while let Some(byte) = rest.bytes().next() {
        if let Some(after) = rest.strip_prefix("{{") {
            pending.push(b'{');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let (name, after) = after
                .split_once('}')
                .ok_or_else(|| format!("log format: `{rest}` has no closing brace"))?;
            if !pending.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut pending)));
            }
            let quote = match inside {
                None => Quote::Url,
                Some(b'[') => Quote::Bracket,
                Some(_) => Quote::Quotes,
            };
            parts.push(Part::Value(value(name)?, quote));
            rest = after;
        } else {
            if matches!(byte, b'\n' | b'\r') {
                return Err("log format: a line cannot contain a line break".to_owned());
            }
            inside = match (inside, byte) {
                (None, b'"' | b'[') => Some(byte),
                (Some(b'"'), b'"') | (Some(b'['), b']') => None,
                (inside, _) => inside,
            };
            pending.push(byte);
            rest = rest.get(1..).unwrap_or_else(|| {
                // The other bytes of a character.
                let length = rest.chars().next().map_or(1, char::len_utf8);
                pending.extend_from_slice(&rest.as_bytes()[1..length]);
                &rest[length..]
            });
        }
    }
    if !pending.is_empty() {
        parts.push(Part::Text(pending));
    }
    Ok(parts)
}

/// The value with this name.
fn value(name: &str) -> Result<What, String> {
    let (code, argument) = match name.split_once('.') {
        Some((before, argument)) => (name.get(..=before.len()).unwrap_or(name), argument),
        None => (name, ""),
    };
    if let Some(found) = NAMES.iter().find(|one| one.names == code) {
        return (found.make)(argument).map_err(|why| format!("log format, {{{name}}}: {why}"));
    }
    let distance = |one: &&Code| strsim::damerau_levenshtein(one.names, name);
    let nearest = NAMES.iter().min_by_key(distance).map_or("", |one| one.names);
    Err(format!("log format: there is no {{{name}}}; did you mean {{{nearest}}}?"))
}

/// Appends the number of a request.
pub(super) fn request_id(out: &mut Vec<u8>, r: &Record<'_>, quote: Quote) {
    match (r.given_id, r.id) {
        (b"", None) => out.push(b'-'),
        (b"", Some(id)) => out.extend_from_slice(format!("{id:032x}").as_bytes()),
        (given, _) => quoted(out, given, quote, b"-"),
    }
}
