//! HAProxy's HTTP format: `[syslog prefix] CLIENT:PORT [TIME] FRONTEND BACKEND/SERVER
//! TR/Tw/Tc/Tr/Ta STATUS BYTES ... "REQUEST"` (configuration manual, 8.2.3).
//!
//! The time is that of the request's first byte, in HAProxy's local time and without a zone. It is
//! read in the recorder's time zone. `Ta` is the time from then to the last byte; older versions
//! wrote `Tt` in its place. With `option logasap` it is preceded by `+` and is a lower bound.
//!
//! A `~` after the frontend's name means that the request used TLS (8.2.3 too), and the server
//! `<CACHE>` is HAProxy's own cache.

use super::{Facts, Instant, Request, Stamps, from_ms, signed};

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
    // The request line is last and always present, if only as <BADREQ>.
    if parts.next().is_some() || !rest.ends_with(b"\"") {
        return None;
    }
    let open = memchr::memmem::find(rest, b" \"")? + 2;
    facts.take_request_line(rest.get(open..rest.len() - 1)?);
    from_ms(start_ns, active_ms, Instant::Start, facts)
}

/// The time in brackets, and the rest. A syslog prefix may also have brackets (`haproxy[17]:`).
fn stamped<'l>(line: &'l [u8], stamps: &mut Stamps) -> Option<(i64, &'l [u8])> {
    memchr::memchr_iter(b'[', line).find_map(|at| {
        let (stamp, rest) = line[at + 1..].split_at_checked(24)?;
        Some((stamps.local_ms(stamp)?, rest.strip_prefix(b"] ")?))
    })
}
