//! The codes of format strings: each is listed once, with its help and its value.

use std::net::SocketAddr;

use http1::Target;
use http1::write::decimal;
use outcome::BrokenBy;

use super::record::{Record, split_port, squid_code};
use super::text::{self, Civil, Quote, address, quoted};
use transport::tls::{Peer, name_text};

/// A value of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Nothing,
    User,
    ClientAddress,
    ClientPort,
    Listener,
    ListenerPort,
    Clf(Moment),
    Time(Moment, Box<[u8]>),
    /// Units since the epoch, with the number of units in a second.
    Since(Moment, u64),
    /// The fraction of a second, with the number of digits.
    Fraction(Moment, u32),
    /// The duration, with the number of units in a second.
    Elapsed(u64),
    Outcome,
    Status,
    SentBytes,
    SentHeadBytes,
    BodyBytes,
    BodyBytesOrDash,
    ReceivedBytes,
    ReceivedHeadBytes,
    Traffic,
    Method,
    Url,
    PathAndQuery,
    Path,
    Query,
    Protocol,
    Version,
    RequestLine,
    Scheme,
    Host,
    Port,
    Upstream,
    UpstreamPort,
    Hierarchy,
    ContentType,
    /// Seconds since the epoch at the beginning, with milliseconds.
    StartStamp,
    UpstreamStatus,
    Cookie(Box<[u8]>),
    Tls(OfTls),
    RequestField(Box<[u8]>),
    ResponseField(Box<[u8]>),
    Rule,
    BrokenBy,
    ConnectionState,
    ProcessId,
}

/// The beginning or the end of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Start,
    End,
}

/// A property of the client's TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OfTls {
    /// `TLS/1.3`
    SquidVersion,
    /// `TLSv1.3`
    Version,
    Cipher,
    ServerName,
    Subject,
    Issuer,
    /// `NONE` or `SUCCESS`: with an invalid certificate there is no connection.
    Verified,
    /// `Initial` or `Resumed`.
    Session,
    /// `on` or `off`.
    IsOn,
}

/// The argument in a code's braces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Argument {
    None,
    Optional(&'static str),
    Needed(&'static str),
}

/// One code of a dialect.
pub(super) struct Code {
    /// Without the percent sign.
    pub(super) name: &'static str,
    pub(super) argument: Argument,
    pub(super) help: &'static str,
    /// Makes the value from the argument, which is empty if there is none.
    pub(super) make: fn(&str) -> Result<What, String>,
}

macro_rules! codes {
    ($($name:literal $(($argument:expr))? => $what:expr, $help:literal;)*) => {
        &[$(Code { name: $name, argument: codes!(@argument $($argument)?), help: $help,
                   make: codes!(@make $($argument)? => $what) },)*]
    };
    (@argument) => { Argument::None };
    (@argument $argument:expr) => { $argument };
    (@make => $what:expr) => { |_| Ok($what) };
    (@make $argument:expr => $what:expr) => { $what };
}

use self::Argument::{Needed, Optional};
use self::Moment::{End, Start};

const FIELD: Argument = Needed("the field's name");
const FORMAT: Argument = Optional("strftime");
const OURS: Argument = Needed("outcome, cache-status, rule, broken-by, hierarchy, upstream or url");
const VARIABLE: Argument = Needed(
    "SSL_PROTOCOL, SSL_CIPHER, SSL_TLS_SNI, SSL_CLIENT_S_DN, SSL_CLIENT_I_DN, SSL_CLIENT_VERIFY, \
     SSL_SESSION_RESUMED, HTTPS; outcome, cache-status, rule, broken-by, hierarchy, upstream or \
     url",
);

/// Squid's codes.
pub(super) const SQUID: &[Code] = codes! {
    ">a" => What::ClientAddress, "the client's address";
    ">p" => What::ClientPort, "the client's port";
    ">la" => What::Listener, "the address of the listener, as configured";
    "la" => What::Listener, "the address of the listener, as configured";
    ">lp" => What::ListenerPort, "the port of the listener, as configured";
    "lp" => What::ListenerPort, "the port of the listener, as configured";
    "<a" => What::Upstream, "the upstream's address";
    "<p" => What::UpstreamPort, "the upstream's port";
    "un" => What::User, "the user's name";
    "ul" => What::User, "the user's name";
    "ui" => What::Nothing, "the user by ident: always a dash";
    "ts" => What::Since(End, 1), "seconds since the epoch at the end";
    "tu" => What::Fraction(End, 3), "milliseconds of that second";
    "tl"(FORMAT) => |format| time(End, format), "the end's date and time, in UTC";
    "tg"(FORMAT) => |format| time(End, format), "the end's date and time, in UTC";
    "tS" => What::StartStamp, "seconds since the epoch at the beginning, with milliseconds";
    "tr" => What::Elapsed(1000), "the time it took, ms";
    ">Hs" => What::Status, "the status that the client got";
    "Hs" => What::Status, "the status that the client got";
    "<Hs" => What::UpstreamStatus, "the status of the upstream's response";
    "Ss" => What::Outcome, "how the cache took part (TCP_MEM_HIT and others)";
    "Sh" => What::Hierarchy, "where it came from (HIER_NONE, HIER_DIRECT, FIRSTUP_PARENT)";
    "mt" => What::ContentType, "the response's media type";
    "rm" => What::Method, "the method";
    ">rm" => What::Method, "the method";
    "ru" => What::Url, "the URL";
    ">ru" => What::Url, "the URL";
    "rp" => What::PathAndQuery, "the URL's path and query";
    ">rp" => What::PathAndQuery, "the URL's path and query";
    "rv" => What::Version, "the version of HTTP: 2.0, 1.1 or 1.0";
    ">rv" => What::Version, "the version of HTTP: 2.0, 1.1 or 1.0";
    "rs" => What::Scheme, "the URL's scheme";
    ">rs" => What::Scheme, "the URL's scheme";
    ">rd" => What::Host, "the URL's host";
    ">rP" => What::Port, "the URL's port";
    "<st" => What::SentBytes, "bytes sent to the client, heads and body";
    "<sh" => What::SentHeadBytes, "bytes of heads sent to the client";
    "<sH" => What::BodyBytes, "bytes of the body sent to the client";
    ">st" => What::ReceivedBytes, "bytes received from the client, head and body";
    ">sh" => What::ReceivedHeadBytes, "bytes of the request's head";
    "st" => What::Traffic, "bytes received and sent";
    ">h"(FIELD) => request_field, "a field of the request";
    ">ha"(FIELD) => request_field, "the same, because requests are not adapted";
    "<h"(FIELD) => response_field, "a field of the response as it was sent";
    "err_code" => What::Rule, "the rule that refused the request";
    "ssl::>negotiated_version" => What::Tls(OfTls::SquidVersion),
        "the client's version of TLS: TLS/1.3 or TLS/1.2";
    "ssl::>negotiated_cipher" => What::Tls(OfTls::Cipher), "the client's cipher suite, by IANA";
    "ssl::>sni" => What::Tls(OfTls::ServerName), "the server name in the client's TLS";
    "ssl::>cert_subject" => What::Tls(OfTls::Subject), "the subject of the client's certificate";
    "ssl::>cert_issuer" => What::Tls(OfTls::Issuer), "the issuer of the client's certificate";
    "us" => What::Tls(OfTls::Subject), "the subject of the client's certificate";
    "x"(OURS) => ours, "plimsoll's own values by name";
};

/// Apache's codes.
pub(super) const APACHE: &[Code] = codes! {
    "a" => What::ClientAddress, "the client's address";
    "h" => What::ClientAddress, "the client's address";
    "A" => What::Listener, "the address of the listener, as configured";
    "l" => What::Nothing, "the user by ident: always a dash";
    "u" => What::User, "the user's name";
    "t"(FORMAT) => apache_time, "date and time of the beginning, in UTC and brackets; {end:…} of \
        the end; sec, msec, usec, msec_frac, usec_frac or strftime";
    "r" => What::RequestLine, "the request's first line";
    "s" => What::Status, "the status that the client got";
    "b" => What::BodyBytesOrDash, "bytes of the body sent, a dash for none";
    "B" => What::BodyBytes, "bytes of the body sent";
    "D" => What::Elapsed(1_000_000), "the time it took, us";
    "T"(Optional("s, ms or us")) => apache_elapsed, "the time it took, s";
    "i"(FIELD) => request_field, "a field of the request";
    "o"(FIELD) => response_field, "a field of the response as it was sent";
    "m" => What::Method, "the method";
    "U" => What::Path, "the URL's path";
    "q" => What::Query, "the query with its question mark, or nothing";
    "H" => What::Protocol, "the protocol: HTTP/2.0, HTTP/1.1 or HTTP/1.0";
    "v" => What::Host, "the requested host";
    "V" => What::Host, "the requested host";
    "p"(Optional("canonical, local or remote")) => apache_port,
        "the requested port; {local}: the listener's; {remote}: the client's";
    "X" => What::ConnectionState, "X if the response was broken off, + if the connection stays \
        open, otherwise -";
    "I" => What::ReceivedBytes, "bytes received from the client, head and body";
    "O" => What::SentBytes, "bytes sent to the client, heads and body";
    "S" => What::Traffic, "bytes received and sent";
    "P"(Optional("pid")) => process, "the server's process id";
    "C"(Needed("the cookie's name")) => cookie, "a cookie of the request";
    "c"(Needed("version, cipher or subjectdn")) => of_connection,
        "the client's TLS: its version, cipher suite, or the subject of the certificate";
    "x"(VARIABLE) => variable, "the client's TLS, by Apache's names; plimsoll's own values by name";
};

/// Codes of Squid that have no value here.
pub(super) const SQUID_WITHOUT: &str = "\
    sn err_detail note >A >eui >qos <qos >nfmark <nfmark <A <la <lp >handshake \
    transport::>connection_id dt busy_time master_xaction et ea ue credentials <rm <ru <rs \
    <rd <rP <rp <rv <bs <sS <pt <tt request_attempts ssl::bump_mode ssl::<cert_errors \
    ssl::<cert_subject ssl::<cert_issuer ssl::<cert ssl::<negotiated_version \
    ssl::<negotiated_cipher ssl::>received_hello_version ssl::<received_hello_version \
    ssl::>received_supported_version ssl::<received_supported_version proxy_protocol::>h \
    icap:: adapt::";

/// Codes of Apache that have no value here.
pub(super) const APACHE_WITHOUT: &str = "e f k L n R ^";

fn time(moment: Moment, format: &str) -> Result<What, String> {
    if format.is_empty() {
        return Ok(What::Clf(moment));
    }
    match text::bad_conversion(format.as_bytes()) {
        None => Ok(What::Time(moment, format.as_bytes().into())),
        Some(at) => {
            let conversion: String = format[at..].chars().take(2).collect();
            Err(format!("{conversion} is not a time; known are {}", text::CONVERSIONS))
        }
    }
}

fn apache_time(argument: &str) -> Result<What, String> {
    let (moment, format) = match argument.split_once(':') {
        Some(("begin", format)) => (Start, format),
        Some(("end", format)) => (End, format),
        _ => (Start, argument),
    };
    match format {
        "" => Ok(What::Time(moment, b"[%d/%b/%Y:%T %z]"[..].into())),
        "sec" => Ok(What::Since(moment, 1)),
        "msec" => Ok(What::Since(moment, 1000)),
        "usec" => Ok(What::Since(moment, 1_000_000)),
        "msec_frac" => Ok(What::Fraction(moment, 3)),
        "usec_frac" => Ok(What::Fraction(moment, 6)),
        _ => time(moment, format),
    }
}

fn apache_elapsed(unit: &str) -> Result<What, String> {
    match unit {
        "" | "s" => Ok(What::Elapsed(1)),
        "ms" => Ok(What::Elapsed(1000)),
        "us" => Ok(What::Elapsed(1_000_000)),
        _ => Err(format!("%T knows s, ms and us, not {unit:?}")),
    }
}

fn apache_port(which: &str) -> Result<What, String> {
    match which {
        "" | "canonical" => Ok(What::Port),
        "local" => Ok(What::ListenerPort),
        "remote" => Ok(What::ClientPort),
        _ => Err(format!("%p knows canonical, local and remote, not {which:?}")),
    }
}

fn request_field(name: &str) -> Result<What, String> {
    field_name(name).map(What::RequestField)
}

fn response_field(name: &str) -> Result<What, String> {
    field_name(name).map(What::ResponseField)
}

fn cookie(name: &str) -> Result<What, String> {
    field_name(name).map(What::Cookie)
}

fn process(which: &str) -> Result<What, String> {
    match which {
        "" | "pid" => Ok(What::ProcessId),
        _ => Err(format!("%P knows pid, not {which:?}: cores have no ids")),
    }
}

fn of_connection(name: &str) -> Result<What, String> {
    match name {
        "version" => Ok(What::Tls(OfTls::Version)),
        "cipher" => Ok(What::Tls(OfTls::Cipher)),
        "subjectdn" => Ok(What::Tls(OfTls::Subject)),
        _ => Err(format!("%c knows version, cipher and subjectdn, not {name:?}")),
    }
}

/// The variables of Apache's mod_ssl that have a value.
const VARIABLES: &[(&str, OfTls)] = &[
    ("SSL_PROTOCOL", OfTls::Version),
    ("SSL_CIPHER", OfTls::Cipher),
    ("SSL_TLS_SNI", OfTls::ServerName),
    ("SSL_CLIENT_S_DN", OfTls::Subject),
    ("SSL_CLIENT_I_DN", OfTls::Issuer),
    ("SSL_CLIENT_VERIFY", OfTls::Verified),
    ("SSL_SESSION_RESUMED", OfTls::Session),
    ("HTTPS", OfTls::IsOn),
];

fn variable(name: &str) -> Result<What, String> {
    if let Some((_, of)) = VARIABLES.iter().find(|(known, _)| *known == name) {
        return Ok(What::Tls(*of));
    }
    if !name.starts_with("SSL_") {
        return ours(name);
    }
    let distance = |known: &&(&str, OfTls)| strsim::damerau_levenshtein(known.0, name);
    let nearest = VARIABLES.iter().min_by_key(distance).map_or("", |(known, _)| known);
    Err(format!("there is no value for {name}; the nearest is %{{{nearest}}}x"))
}

fn field_name(name: &str) -> Result<Box<[u8]>, String> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !name.is_empty() && name.bytes().all(token) {
        Ok(name.as_bytes().into())
    } else {
        Err(format!("{name:?} is not a field name"))
    }
}

fn ours(name: &str) -> Result<What, String> {
    match name {
        "outcome" => Ok(What::Outcome),
        "cache-status" => Ok(What::ResponseField(b"cache-status"[..].into())),
        "rule" => Ok(What::Rule),
        "broken-by" => Ok(What::BrokenBy),
        "hierarchy" => Ok(What::Hierarchy),
        "upstream" => Ok(What::Upstream),
        "url" => Ok(What::Url),
        _ => {
            let known = match OURS {
                Needed(known) | Optional(known) => known,
                Argument::None => "",
            };
            Err(format!("{name:?} is not one of plimsoll's own values: {known}"))
        }
    }
}

/// Appends a value.
pub(super) fn value(out: &mut Vec<u8>, r: &Record<'_>, what: &What, quote: Quote) {
    match what {
        What::Nothing => out.push(b'-'),
        What::ClientAddress => address(out, r.client.ip()),
        What::ClientPort => decimal(out, u64::from(r.client.port())),
        What::Listener => address(out, r.listener.ip()),
        What::ListenerPort => decimal(out, u64::from(r.listener.port())),
        What::Clf(moment) => Civil::of(r.at(*moment)).clf(out),
        What::Time(moment, format) => Civil::of(r.at(*moment)).strftime(out, format),
        What::Since(moment, per_second) => decimal(out, since(r.at(*moment), *per_second)),
        What::Fraction(moment, places) => {
            let ms = r.at(*moment) % 1000;
            text::digits(out, if *places == 3 { ms } else { ms * 1000 }, *places);
        }
        What::StartStamp => {
            decimal(out, r.start_wall_ms() / 1000);
            out.push(b'.');
            text::digits(out, r.start_wall_ms() % 1000, 3);
        }
        What::UpstreamStatus => match r.upstream_status() {
            Some(status) => text::digits(out, u64::from(status), 3),
            None => out.push(b'-'),
        },
        What::Tls(of) => of_tls(out, r, *of, quote),
        What::Elapsed(per_second) => decimal(out, r.elapsed_us * per_second / 1_000_000),
        What::Status => text::digits(out, u64::from(r.status), 3),
        What::SentBytes => decimal(out, r.bytes),
        What::SentHeadBytes => decimal(out, r.response_head_bytes()),
        What::BodyBytesOrDash if r.body_bytes == 0 => out.push(b'-'),
        What::BodyBytesOrDash | What::BodyBytes => decimal(out, r.body_bytes),
        What::ReceivedBytes => decimal(out, r.request_bytes),
        What::ReceivedHeadBytes => {
            decimal(out, r.request.map_or(r.request_bytes, |head| head.head_bytes as u64));
        }
        What::Traffic => decimal(out, r.request_bytes + r.bytes),
        What::Port => port(out, r),
        What::Upstream => upstream(out, r.upstream),
        What::UpstreamPort => match r.upstream {
            Some(upstream) => decimal(out, u64::from(upstream.port())),
            None => out.push(b'-'),
        },
        What::ProcessId => decimal(out, u64::from(std::process::id())),
        What::Outcome | What::Hierarchy | What::ConnectionState | What::Scheme => {
            out.extend_from_slice(word(r, what));
        }
        _ => piece_of_the_messages(out, r, what, quote),
    }
}

/// Appends a property of the client's TLS; a dash without TLS.
fn of_tls(out: &mut Vec<u8>, r: &Record<'_>, of: OfTls, quote: Quote) {
    let Some(tls) = r.tls else {
        let nothing: &[u8] = match of {
            OfTls::Verified => b"NONE",
            OfTls::IsOn => b"off",
            _ => b"-",
        };
        return out.extend_from_slice(nothing);
    };
    tls.with_facts(&mut |facts| {
        let peer = |name: fn(&Peer<'_>) -> Vec<u8>| facts.peer.as_ref().map(name);
        let owned;
        let text: &[u8] = match of {
            OfTls::SquidVersion => {
                out.extend_from_slice(b"TLS/");
                facts.version.as_bytes()
            }
            OfTls::Version => {
                out.extend_from_slice(b"TLSv");
                facts.version.as_bytes()
            }
            OfTls::Cipher => facts.cipher.as_bytes(),
            OfTls::ServerName => facts.server_name.unwrap_or_default().as_bytes(),
            OfTls::Subject => {
                owned = peer(|peer| name_text(peer.subject)).unwrap_or_default();
                &owned
            }
            OfTls::Issuer => {
                owned = peer(|peer| name_text(peer.issuer)).unwrap_or_default();
                &owned
            }
            OfTls::Verified if facts.peer.is_some() => b"SUCCESS",
            OfTls::Verified => b"NONE",
            OfTls::Session if facts.resumed => b"Resumed",
            OfTls::Session => b"Initial",
            OfTls::IsOn => b"on",
        };
        quoted(out, text, quote, b"-");
    });
}

/// Appends a value from the client or the origin, escaped.
fn piece_of_the_messages(out: &mut Vec<u8>, r: &Record<'_>, what: &What, quote: Quote) {
    let target = r.path_and_query();
    let query_at = memchr::memchr(b'?', target).unwrap_or(target.len());
    let (text, otherwise): (&[u8], &[u8]) = match what {
        // Always one word.
        What::User => return quoted(out, r.user, Quote::Url, b"-"),
        What::Url => return url(out, r, quote),
        What::RequestLine => return request_line(out, r, quote),
        What::Method => (r.method(), b"-"),
        What::PathAndQuery => (target, b"-"),
        What::Path => (&target[..query_at], b"-"),
        What::Query => (&target[query_at..], b""),
        What::Protocol => (r.version().as_bytes(), b"-"),
        What::Version => (r.version().trim_start_matches("HTTP/").as_bytes(), b"-"),
        What::Host => (split_port(r.authority()).0, b"-"),
        What::ContentType => (media_type(r.content_type), b"-"),
        What::Cookie(name) => (r.cookie(name), b"-"),
        What::RequestField(name) => (r.request_field_named(name), b"-"),
        What::ResponseField(name) => (r.response_field(name), b"-"),
        What::Rule => (r.rule.as_bytes(), b"-"),
        What::BrokenBy => (r.broken.map_or("", BrokenBy::name).as_bytes(), b"-"),
        _ => unreachable!("value() has written the others"),
    };
    quoted(out, text, quote, otherwise);
}

fn word(r: &Record<'_>, what: &What) -> &'static [u8] {
    match what {
        What::Outcome => squid_code(r),
        What::Hierarchy => hierarchy(r),
        What::ConnectionState if r.broken.is_some() => b"X",
        What::ConnectionState if r.keep => b"+",
        What::Scheme if r.request.is_some() => r.scheme().as_bytes(),
        _ => b"-",
    }
}

/// Squid's code for the source of a response.
pub(super) fn hierarchy(r: &Record<'_>) -> &'static [u8] {
    if r.upstream.is_some() { r.hierarchy.code().as_bytes() } else { b"HIER_NONE" }
}

/// A media type without its parameters.
pub(super) fn media_type(content_type: &[u8]) -> &[u8] {
    content_type.split(|&b| b == b';' || b == b' ').next().unwrap_or_default()
}

pub(super) fn upstream(out: &mut Vec<u8>, upstream: Option<SocketAddr>) {
    match upstream {
        Some(upstream) => address(out, upstream.ip()),
        None => out.push(b'-'),
    }
}

/// Appends the requested URL.
pub(super) fn url(out: &mut Vec<u8>, r: &Record<'_>, quote: Quote) {
    let authority = r.authority_before();
    let is_path = r.request.is_some_and(|head| matches!(head.target, Target::Origin { .. }));
    if authority.is_empty() || !is_path {
        quoted(out, r.target(), quote, b"error:invalid-request");
    } else {
        out.extend_from_slice(r.scheme().as_bytes());
        out.extend_from_slice(b"://");
        quoted(out, authority, quote, b"-");
        quoted(out, r.target(), quote, b"/");
    }
}

/// Appends the request's first line.
pub(super) fn request_line(out: &mut Vec<u8>, r: &Record<'_>, quote: Quote) {
    if r.request.is_none() {
        out.push(b'-');
        return;
    }
    quoted(out, r.method(), quote, b"-");
    out.push(b' ');
    quoted(out, r.target(), quote, b"-");
    out.push(b' ');
    out.extend_from_slice(r.version().as_bytes());
}

fn port(out: &mut Vec<u8>, r: &Record<'_>) {
    match (split_port(r.authority()).1, r.request) {
        (_, None) => out.push(b'-'),
        (b"", Some(_)) => decimal(out, u64::from(r.scheme.port())),
        (port, Some(_)) => quoted(out, port, Quote::Url, b"-"),
    }
}

fn since(unix_ms: u64, per_second: u64) -> u64 {
    match per_second {
        1 => unix_ms / 1000,
        1000 => unix_ms,
        _ => unix_ms * (per_second / 1000),
    }
}

impl Record<'_> {
    fn at(&self, moment: Moment) -> u64 {
        match moment {
            Start => self.start_wall_ms(),
            End => self.end_wall_ms,
        }
    }
}
