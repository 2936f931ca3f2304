//! The codes of format strings: each is listed once, with its help and its value.

use std::net::SocketAddr;

use http1::Target;
use http1::write::decimal;
use outcome::BrokenBy;

use super::names;
use super::record::{Record, split_port, squid_code};
use super::text::{self, Civil, Quote, address, quoted};
use transport::tls::{Facts, Peer, name_text};

/// Appends a value of a record, escaped for its place.
pub(super) type Put = fn(&mut Vec<u8>, &Record<'_>, Quote);

/// A value of a format.
#[derive(Clone, Debug)]
pub(super) enum What {
    Plain(Put),
    /// A number made from the Unix milliseconds of the moment.
    Stamp(Moment, fn(&mut Vec<u8>, u64)),
    /// A date and time by a format of strftime(3).
    Time(Moment, Box<[u8]>),
    Cookie(Box<[u8]>),
    RequestField(Box<[u8]>),
    ResponseField(Box<[u8]>),
    RequestId,
}

/// The beginning or the end of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Start,
    End,
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
    /// Its names without the percent sign, with spaces between them.
    pub(super) names: &'static str,
    pub(super) argument: Argument,
    pub(super) help: &'static str,
    /// Makes the value from the argument, which is empty if there is none.
    pub(super) make: fn(&str) -> Result<What, String>,
}

macro_rules! codes {
    ($($names:literal $(($argument:expr))? => $what:expr, $help:literal;)*) => {
        &[$(Code { names: $names, argument: codes!(@argument $($argument)?), help: $help,
                   make: codes!(@make $($argument)? => $what) },)*]
    };
    (@argument) => { Argument::None };
    (@argument $argument:expr) => { $argument };
    (@make => $put:expr) => { |_| Ok(What::Plain($put)) };
    (@make $argument:expr => $make:expr) => { $make };
}

use self::Argument::{Needed, Optional};
use self::Moment::{End, Start};

const FIELD: Argument = Needed("the field's name");
const FORMAT: Argument = Optional("strftime");
const OURS: Argument = Needed(OUR_NAMES);
const OUR_NAMES: &str = "outcome, cache-status, rule, broken-by, hierarchy, upstream or url";
const VARIABLE: Argument = Needed(
    "SSL_PROTOCOL, SSL_CIPHER, SSL_TLS_SNI, SSL_CLIENT_S_DN, SSL_CLIENT_I_DN, SSL_CLIENT_VERIFY, \
     SSL_SESSION_RESUMED, HTTPS; outcome, cache-status, rule, broken-by, hierarchy, upstream or \
     url",
);

// Values that have several codes.
const DASH: Put = |out, _, _| out.push(b'-');
pub(super) const CLIENT_ADDRESS: Put = |out, r, _| address(out, r.client.ip());
pub(super) const CLIENT_PORT: Put = |out, r, _| decimal(out, r.client.port().into());
const LISTENER: Put = |out, r, _| address(out, r.listener.ip());
const LISTENER_PORT: Put = |out, r, _| decimal(out, r.listener.port().into());
/// Always one word.
pub(super) const USER: Put = |out, r, _| quoted(out, r.user, Quote::Url, b"-");
const ELAPSED_MS: Put = |out, r, _| decimal(out, r.elapsed_us / 1000);
pub(super) const ELAPSED_US: Put = |out, r, _| decimal(out, r.elapsed_us);
pub(super) const OUTCOME: Put = |out, r, _| out.extend_from_slice(squid_code(r));
pub(super) const STATUS: Put = |out, r, _| text::digits(out, r.status.into(), 3);
const HIERARCHY: Put = |out, r, _| out.extend_from_slice(hierarchy(r));
const UPSTREAM: Put = |out, r, _| upstream(out, r.upstream);
pub(super) const METHOD: Put = |out, r, quote| quoted(out, r.method(), quote, b"-");
pub(super) const HOST: Put = |out, r, quote| quoted(out, split_port(r.authority()).0, quote, b"-");
pub(super) const SENT: Put = |out, r, _| decimal(out, r.bytes);
pub(super) const SENT_BODY: Put = |out, r, _| decimal(out, r.body_bytes);
pub(super) const RECEIVED: Put = |out, r, _| decimal(out, r.request_bytes);
const TRAFFIC: Put = |out, r, _| decimal(out, r.request_bytes + r.bytes);
pub(super) const RULE: Put = |out, r, quote| quoted(out, r.rule.as_bytes(), quote, b"-");
pub(super) const TLS_CIPHER: Put = |out, r, quote| {
    of_tls(out, r, b"-", |out, facts| quoted(out, facts.cipher.as_bytes(), quote, b"-"));
};
pub(super) const TLS_SERVER_NAME: Put = |out, r, quote| {
    of_tls(out, r, b"-", |out, facts| {
        quoted(out, facts.server_name.unwrap_or_default().as_bytes(), quote, b"-");
    });
};
pub(super) const TLS_SUBJECT: Put =
    |out, r, quote| of_peer(out, r, quote, |peer| name_text(peer.subject));
const TLS_ISSUER: Put = |out, r, quote| of_peer(out, r, quote, |peer| name_text(peer.issuer));
pub(super) const TLS_VERSION: Put = |out, r, quote| tls_version(out, r, quote, b"TLSv");

/// Squid's codes.
pub(super) const SQUID: &[Code] = codes! {
    ">a" => CLIENT_ADDRESS, "the client's address";
    ">p" => CLIENT_PORT, "the client's port";
    ">la la" => LISTENER, "the address of the listener, as configured";
    ">lp lp" => LISTENER_PORT, "the port of the listener, as configured";
    "<a" => UPSTREAM, "the upstream's address";
    "<p" => |out, r, _| match r.upstream {
        Some(upstream) => decimal(out, upstream.port().into()),
        None => out.push(b'-'),
    }, "the upstream's port";
    "un ul" => USER, "the user's name";
    "ui" => DASH, "the user by ident: always a dash";
    "ts" => |out, r, _| decimal(out, r.end_wall_ms / 1000), "seconds since the epoch at the end";
    "tu" => |out, r, _| text::digits(out, r.end_wall_ms % 1000, 3), "milliseconds of that second";
    "tl tg"(FORMAT) => |format| time(End, format), "the end's date and time, in UTC";
    "tS" => |out, r, _| {
        decimal(out, r.start_wall_ms() / 1000);
        out.push(b'.');
        text::digits(out, r.start_wall_ms() % 1000, 3);
    }, "seconds since the epoch at the beginning, with milliseconds";
    "tr" => ELAPSED_MS, "the time it took, ms";
    ">Hs Hs" => STATUS, "the status that the client got";
    "<Hs" => |out, r, _| match r.upstream_status() {
        Some(status) => text::digits(out, status.into(), 3),
        None => out.push(b'-'),
    }, "the status of the upstream's response";
    "Ss" => OUTCOME, "how the cache took part (TCP_MEM_HIT and others)";
    "Sh" => HIERARCHY, "where it came from (HIER_NONE, HIER_DIRECT, FIRSTUP_PARENT)";
    "mt" => |out, r, quote| quoted(out, media_type(r.content_type), quote, b"-"),
        "the response's media type";
    "rm >rm" => METHOD, "the method";
    "ru >ru" => url, "the URL";
    "rp >rp" => |out, r, quote| quoted(out, r.path_and_query(), quote, b"-"),
        "the URL's path and query";
    "rv >rv" => |out, r, quote| {
        quoted(out, r.version().trim_start_matches("HTTP/").as_bytes(), quote, b"-");
    }, "the version of HTTP: 2.0, 1.1 or 1.0";
    "rs >rs" => |out, r, _| {
        out.extend_from_slice(r.request.map_or("-", |_| r.scheme()).as_bytes());
    }, "the URL's scheme";
    ">rd" => HOST, "the URL's host";
    ">rP" => port, "the URL's port";
    "<st" => SENT, "bytes sent to the client, heads and body";
    "<sh" => |out, r, _| decimal(out, r.response_head_bytes()), "bytes of heads sent to the client";
    "<sH" => SENT_BODY, "bytes of the body sent to the client";
    ">st" => RECEIVED, "bytes received from the client, head and body";
    ">sh" => |out, r, _| {
        decimal(out, r.request.map_or(r.request_bytes, |head| head.head_bytes as u64));
    }, "bytes of the request's head";
    "st" => TRAFFIC, "bytes received and sent";
    ">h"(FIELD) => request_field, "a field of the request";
    ">ha"(FIELD) => request_field, "the same, because requests are not adapted";
    "<h"(FIELD) => response_field, "a field of the response as it was sent";
    "err_code" => RULE, "the rule that refused the request";
    "ssl::>negotiated_version" => |out, r, quote| tls_version(out, r, quote, b"TLS/"),
        "the client's version of TLS: TLS/1.3 or TLS/1.2";
    "ssl::>negotiated_cipher" => TLS_CIPHER, "the client's cipher suite, by IANA";
    "ssl::>sni" => TLS_SERVER_NAME, "the server name in the client's TLS";
    "ssl::>cert_subject" => TLS_SUBJECT, "the subject of the client's certificate";
    "ssl::>cert_issuer" => TLS_ISSUER, "the issuer of the client's certificate";
    "us" => TLS_SUBJECT, "the subject of the client's certificate";
    "x"(OURS) => ours, "plimsoll's own values by name";
};

/// Apache's codes.
pub(super) const APACHE: &[Code] = codes! {
    "a h" => CLIENT_ADDRESS, "the client's address";
    "A" => LISTENER, "the address of the listener, as configured";
    "l" => DASH, "the user by ident: always a dash";
    "u" => USER, "the user's name";
    "t"(FORMAT) => apache_time, "date and time of the beginning, in UTC and brackets; {end:…} of \
        the end; sec, msec, usec, msec_frac, usec_frac or strftime";
    "r" => request_line, "the request's first line";
    "s" => STATUS, "the status that the client got";
    "b" => |out, r, _| match r.body_bytes {
        0 => out.push(b'-'),
        bytes => decimal(out, bytes),
    }, "bytes of the body sent, a dash for none";
    "B" => SENT_BODY, "bytes of the body sent";
    "D" => ELAPSED_US, "the time it took, us";
    "T"(Optional("s, ms or us")) => apache_elapsed, "the time it took, s";
    "i"(FIELD) => request_field, "a field of the request";
    "o"(FIELD) => response_field, "a field of the response as it was sent";
    "m" => METHOD, "the method";
    "U" => |out, r, quote| quoted(out, r.path_apart().0, quote, b"-"), "the URL's path";
    "q" => |out, r, quote| quoted(out, r.path_apart().1, quote, b""),
        "the query with its question mark, or nothing";
    "H" => |out, r, quote| quoted(out, r.version().as_bytes(), quote, b"-"),
        "the protocol: HTTP/2.0, HTTP/1.1 or HTTP/1.0";
    "v V" => HOST, "the requested host";
    "p"(Optional("canonical, local or remote")) => apache_port,
        "the requested port; {local}: the listener's; {remote}: the client's";
    "X" => |out, r, _| out.push(match (r.broken, r.keep) {
        (Some(_), _) => b'X',
        (None, true) => b'+',
        (None, false) => b'-',
    }), "X if the response was broken off, + if the connection stays open, otherwise -";
    "I" => RECEIVED, "bytes received from the client, head and body";
    "O" => SENT, "bytes sent to the client, heads and body";
    "S" => TRAFFIC, "bytes received and sent";
    "P"(Optional("pid")) => process, "the server's process id";
    "C"(Needed("the cookie's name")) => |name| field_name(name).map(What::Cookie),
        "a cookie of the request";
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

pub(super) fn time(moment: Moment, format: &str) -> Result<What, String> {
    let format = if format.is_empty() { text::CLF } else { format };
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
    let stamp: fn(&mut Vec<u8>, u64) = match format {
        "" => return time(moment, "[%d/%b/%Y:%T %z]"),
        "sec" => |out, ms| decimal(out, ms / 1000),
        "msec" => decimal,
        "usec" => |out, ms| decimal(out, ms * 1000),
        "msec_frac" => |out, ms| text::digits(out, ms % 1000, 3),
        "usec_frac" => |out, ms| text::digits(out, ms % 1000 * 1000, 6),
        _ => return time(moment, format),
    };
    Ok(What::Stamp(moment, stamp))
}

fn apache_elapsed(unit: &str) -> Result<What, String> {
    match unit {
        "" | "s" => Ok(What::Plain(|out, r, _| decimal(out, r.elapsed_us / 1_000_000))),
        "ms" => Ok(What::Plain(ELAPSED_MS)),
        "us" => Ok(What::Plain(ELAPSED_US)),
        _ => Err(format!("%T knows s, ms and us, not {unit:?}")),
    }
}

fn apache_port(which: &str) -> Result<What, String> {
    match which {
        "" | "canonical" => Ok(What::Plain(port)),
        "local" => Ok(What::Plain(LISTENER_PORT)),
        "remote" => Ok(What::Plain(CLIENT_PORT)),
        _ => Err(format!("%p knows canonical, local and remote, not {which:?}")),
    }
}

pub(super) fn request_field(name: &str) -> Result<What, String> {
    field_name(name).map(What::RequestField)
}

pub(super) fn response_field(name: &str) -> Result<What, String> {
    field_name(name).map(What::ResponseField)
}

fn process(which: &str) -> Result<What, String> {
    match which {
        "" | "pid" => Ok(What::Plain(|out, _, _| decimal(out, std::process::id().into()))),
        _ => Err(format!("%P knows pid, not {which:?}: cores have no ids")),
    }
}

fn of_connection(name: &str) -> Result<What, String> {
    match name {
        "version" => Ok(What::Plain(TLS_VERSION)),
        "cipher" => Ok(What::Plain(TLS_CIPHER)),
        "subjectdn" => Ok(What::Plain(TLS_SUBJECT)),
        _ => Err(format!("%c knows version, cipher and subjectdn, not {name:?}")),
    }
}

/// The variables of Apache's mod_ssl that have a value.
const VARIABLES: &[(&str, Put)] = &[
    ("SSL_PROTOCOL", TLS_VERSION),
    ("SSL_CIPHER", TLS_CIPHER),
    ("SSL_TLS_SNI", TLS_SERVER_NAME),
    ("SSL_CLIENT_S_DN", TLS_SUBJECT),
    ("SSL_CLIENT_I_DN", TLS_ISSUER),
    // With an invalid certificate there is no connection.
    ("SSL_CLIENT_VERIFY", |out, r, _| {
        of_tls(out, r, b"NONE", |out, facts| {
            out.extend_from_slice(if facts.peer.is_some() { b"SUCCESS" } else { b"NONE" });
        });
    }),
    ("SSL_SESSION_RESUMED", |out, r, _| {
        of_tls(out, r, b"-", |out, facts| {
            out.extend_from_slice(if facts.resumed { b"Resumed" } else { b"Initial" });
        });
    }),
    ("HTTPS", |out, r, _| out.extend_from_slice(if r.tls.is_some() { b"on" } else { b"off" })),
];

fn variable(name: &str) -> Result<What, String> {
    if let Some((_, put)) = VARIABLES.iter().find(|(known, _)| *known == name) {
        return Ok(What::Plain(*put));
    }
    if !name.starts_with("SSL_") {
        return ours(name);
    }
    let distance = |known: &&(&str, Put)| strsim::damerau_levenshtein(known.0, name);
    let nearest = VARIABLES.iter().min_by_key(distance).map_or("", |(known, _)| known);
    Err(format!("there is no value for {name}; the nearest is %{{{nearest}}}x"))
}

pub(super) fn field_name(name: &str) -> Result<Box<[u8]>, String> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !name.is_empty() && name.bytes().all(token) {
        Ok(name.as_bytes().into())
    } else {
        Err(format!("{name:?} is not a field name"))
    }
}

fn ours(name: &str) -> Result<What, String> {
    let put: Put = match name {
        "outcome" => OUTCOME,
        "cache-status" => return response_field(name),
        "rule" => RULE,
        "broken-by" => |out, r, quote| {
            quoted(out, r.broken.map_or("", BrokenBy::name).as_bytes(), quote, b"-");
        },
        "hierarchy" => HIERARCHY,
        "upstream" => UPSTREAM,
        "url" => url,
        _ => return Err(format!("{name:?} is not one of plimsoll's own values: {OUR_NAMES}")),
    };
    Ok(What::Plain(put))
}

/// Appends a value.
pub(super) fn value(out: &mut Vec<u8>, r: &Record<'_>, what: &What, quote: Quote) {
    let at = |moment: &Moment| match moment {
        Start => r.start_wall_ms(),
        End => r.end_wall_ms,
    };
    match what {
        What::Plain(put) => put(out, r, quote),
        What::Stamp(moment, stamp) => stamp(out, at(moment)),
        What::Time(moment, format) => Civil::of(at(moment)).strftime(out, format),
        What::Cookie(name) => quoted(out, r.cookie(name), quote, b"-"),
        What::RequestField(name) => quoted(out, r.request_field_named(name), quote, b"-"),
        What::ResponseField(name) => quoted(out, r.response_field(name), quote, b"-"),
        What::RequestId => names::request_id(out, r, quote),
    }
}

/// Appends a property of the client's TLS, or `otherwise` without TLS.
fn of_tls(
    out: &mut Vec<u8>,
    r: &Record<'_>,
    otherwise: &[u8],
    put: impl Fn(&mut Vec<u8>, &Facts<'_>),
) {
    match r.tls {
        Some(tls) => tls.with_facts(&mut |facts| put(out, facts)),
        None => out.extend_from_slice(otherwise),
    }
}

fn of_peer(out: &mut Vec<u8>, r: &Record<'_>, quote: Quote, name: fn(&Peer<'_>) -> Vec<u8>) {
    of_tls(out, r, b"-", |out, facts| {
        quoted(out, &facts.peer.as_ref().map(name).unwrap_or_default(), quote, b"-");
    });
}

fn tls_version(out: &mut Vec<u8>, r: &Record<'_>, quote: Quote, before: &[u8]) {
    of_tls(out, r, b"-", |out, facts| {
        out.extend_from_slice(before);
        quoted(out, facts.version.as_bytes(), quote, b"-");
    });
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

fn port(out: &mut Vec<u8>, r: &Record<'_>, _: Quote) {
    match (split_port(r.authority()).1, r.request) {
        (_, None) => out.push(b'-'),
        (b"", Some(_)) => decimal(out, u64::from(r.scheme.port())),
        (port, Some(_)) => quoted(out, port, Quote::Url, b"-"),
    }
}
