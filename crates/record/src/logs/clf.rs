//! The common log format and the combined one, of Apache, nginx and many others:
//! `HOST IDENT USER [TIME] "REQUEST" STATUS BYTES` and, combined, `"REFERER" "AGENT"`.
//!
//! Servers escape quotes inside quotes with a backslash (Apache) or as `\\x22` (nginx). Anything
//! after the known fields is ignored, because many sites add their own.

use super::{Facts, Instant, NS_PER_S, Request, Stamps};

/// The fields after the size.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    Nothing,
    RefererAndAgent,
}

pub(super) fn parse(line: &[u8], tail: Tail, stamps: &mut Stamps) -> Option<Request> {
    let (second, rest) = stamped(line, stamps)?;
    let request = rest.strip_prefix(b" \"")?;
    let rest = quoted(&rest[1..])?;
    let mut facts = Facts::default();
    facts.take_request_line(&request[..request.len() - rest.len() - 1]);
    let mut fields = rest.strip_prefix(b" ")?.splitn(3, |&byte| byte == b' ');
    facts.take_status(fields.next().filter(|status| status.len() == 3)?)?;
    facts.take_bytes(fields.next()?)?;
    if tail == Tail::RefererAndAgent {
        let agent = quoted(fields.next()?)?;
        // The agent need not be closed: real logs have lines that were truncated in it, and
        // everything needed comes before it.
        agent.strip_prefix(b" \"")?;
    }
    Some(Request::lived(second * NS_PER_S, NS_PER_S, Instant::Start, None, facts))
}

/// The time in brackets, and the rest. A user name may contain brackets too, so the first pair may
/// not be the time.
fn stamped<'l>(line: &'l [u8], stamps: &mut Stamps) -> Option<(i64, &'l [u8])> {
    // Three fields come before it, so a line that begins with a bracket does not match.
    memchr::memchr_iter(b'[', line).filter(|&at| at > 0 && line[at - 1] == b' ').find_map(|at| {
        let (stamp, rest) = line[at + 1..].split_at_checked(26)?;
        Some((stamps.zoned(stamp)?, rest.strip_prefix(b"]")?))
    })
}

/// Skips a quoted string and returns the rest.
fn quoted(bytes: &[u8]) -> Option<&[u8]> {
    let inside = bytes.strip_prefix(b"\"")?;
    let mut from = 0;
    loop {
        let at = from + memchr::memchr2(b'"', b'\\', &inside[from..])?;
        if inside[at] == b'"' {
            return Some(&inside[at + 1..]);
        }
        // A backslash and what it escapes.
        from = at + 2;
        if from > inside.len() {
            return None;
        }
    }
}
