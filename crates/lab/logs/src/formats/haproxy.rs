//! HAProxy's HTTP format: `[syslog prefix] CLIENT:PORT [TIME] FRONTEND BACKEND/SERVER
//! TR/Tw/Tc/Tr/Ta STATUS BYTES ... "REQUEST"` (configuration manual, 8.2.3). After the request may
//! be more: `option httpslog` adds the handshake's error codes, the name, the version and the
//! cipher.
//!
//! The time is that of the request's first byte, in HAProxy's local time and without a zone. It is
//! read in the recorder's time zone. `Ta` is the time from then to the last byte; older versions
//! wrote `Tt` in its place. With `option logasap` it is preceded by `+` and is a lower bound.
//!
//! A `~` after the frontend's name means that the request used TLS (8.2.3 too), and the server
//! `<CACHE>` is HAProxy's own cache. Before the request may be captured headers, which may contain
//! quotes. A line that syslog cut within the request is a request: all but its URL is known.
//!
//! HAProxy writes other lines too: connections (`option tcplog`, or a frontend without any option)
//! and notices. These are no requests ([`is_event`]).

use super::{Facts, Instant, Request, Stamps, digits, from_ms, signed};

pub(super) fn parse(line: &[u8], stamps: &mut Stamps) -> Option<Request> {
    let (start_ns, rest) = stamped(line, stamps)?;
    let mut fields = rest.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let frontend = fields.next()?;
    let server = fields.next()?;
    let timers = fields.next()?;
    let status = fields.next()?;
    let size = fields.next()?;
    let slash = memchr::memchr(b'/', server)?;
    let mut facts = Facts { tls: Some(frontend.ends_with(b"~")), ..Facts::default() };
    // A request without a response has the status -1.
    facts.take_status(status).filter(|()| status.len() == 3 || status == b"-1")?;
    facts.bytes = Some(u64::try_from(signed(size)?).unwrap_or(0));
    if &server[slash + 1..] == b"<CACHE>" {
        facts.take_outcome(b"HIT");
    }
    let mut parts = timers.split(|&byte| byte == b'/');
    for _ in 0..4 {
        signed(parts.next()?)?;
    }
    let active_ms = signed(parts.next()?)?;
    if parts.next().is_some() {
        return None;
    }
    facts.take_request_line(request_line(rest)?);
    from_ms(start_ns, active_ms, Instant::Start, facts)
}

/// The request: the last quoted string, or what follows the last quote if that opens it and the
/// line was cut. It is always present, if only as `<BADREQ>`. HAProxy writes a quote in a request
/// as `#22`.
fn request_line(rest: &[u8]) -> Option<&[u8]> {
    let last = memchr::memrchr(b'"', rest)?;
    let after = &rest[last + 1..];
    if after.is_empty() && !rest[..last].ends_with(b" ") || after.starts_with(b" ") {
        let open = memchr::memrchr(b'"', &rest[..last])?;
        return rest[..open].ends_with(b" ").then_some(&rest[open + 1..last]);
    }
    // Cut in the request: at least its method is complete.
    let cut = rest[..last].ends_with(b" ") && after.contains(&b' ');
    cut.then_some(after)
}

/// The time in brackets, and the rest. A syslog prefix may also have brackets (`haproxy[17]:`).
fn stamped<'l>(line: &'l [u8], stamps: &mut Stamps) -> Option<(i64, &'l [u8])> {
    memchr::memchr_iter(b'[', line).find_map(|at| {
        let (stamp, rest) = line[at + 1..].split_at_checked(24)?;
        Some((stamps.local_ms(stamp)?, rest.strip_prefix(b"] ")?))
    })
}

/// Whether HAProxy wrote this about something else than a request: a connection of `option tcplog`,
/// a connection that failed, the start of a connection, or the state of a server.
pub(super) fn is_event(line: &[u8], stamps: &mut Stamps) -> bool {
    let has = |text: &str| memchr::memmem::find(line, text.as_bytes()).is_some();
    if let Some((_, rest)) = stamped(line, stamps) {
        return is_connection(rest) || !rest.contains(&b'"') && rest.contains(&b':');
    }
    const NOTICES: [&str; 8] = [
        ": Connect from ",
        ": Proxy ",
        ": Server ",
        ": backend ",
        ": Stopping ",
        "[WARNING] ",
        "[NOTICE] ",
        "[ALERT] ",
    ];
    NOTICES.into_iter().any(has)
}

/// `FRONTEND BACKEND/SERVER Tw/Tc/Tt BYTES STATE ...`: a connection, not a request.
fn is_connection(rest: &[u8]) -> bool {
    let mut fields = rest.split(|&byte| byte == b' ').filter(|field| !field.is_empty()).skip(2);
    let timers = fields.next().unwrap_or_default();
    let size = fields.next().unwrap_or_default();
    let number = |part: &[u8]| signed(part).is_some();
    timers.split(|&byte| byte == b'/').filter(|part| number(part)).count() == 3
        && digits(size.strip_prefix(b"+").unwrap_or(size)).is_some()
        && fields.next().is_some_and(|state| state.len() == 2)
}

/// Whether it is a line of `option tcplog`.
pub(super) fn is_tcp(line: &[u8], stamps: &mut Stamps) -> bool {
    stamped(line, stamps).is_some_and(|(_, rest)| is_connection(rest))
}
