//! HAProxy's HTTP format: `[syslog prefix] CLIENT:PORT [TIME] FRONTEND BACKEND/SERVER
//! TR/Tw/Tc/Tr/Ta STATUS BYTES ... "REQUEST"` (configuration manual, 8.2.3).
//!
//! The time is that of the request's first byte, in HAProxy's local time, without a zone: it is
//! read in the recorder's own zone. `Ta` is the time from then to the last byte; older versions
//! wrote `Tt` there. With `option logasap` it has a `+` before it and is a lower bound.
//!
//! A frontend with a `~` behind its name took the request by TLS (8.2.3 too), and the server
//! `<CACHE>` is HAProxy's own.

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
    // A request that never got an answer has the status -1.
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
    // The request line is last, and always there, if only as <BADREQ>.
    if parts.next().is_some() || !rest.ends_with(b"\"") {
        return None;
    }
    let open = memchr::memmem::find(rest, b" \"")? + 2;
    facts.take_request_line(rest.get(open..rest.len() - 1)?);
    from_ms(start_ns, active_ms, Instant::Start, facts)
}

/// The time in brackets, and what follows. A syslog prefix may hold brackets too (`haproxy[17]:`).
fn stamped<'l>(line: &'l [u8], stamps: &mut Stamps) -> Option<(i64, &'l [u8])> {
    memchr::memchr_iter(b'[', line).find_map(|at| {
        let (stamp, rest) = line[at + 1..].split_at_checked(24)?;
        Some((stamps.local_ms(stamp)?, rest.strip_prefix(b"] ")?))
    })
}
