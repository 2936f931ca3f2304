//! The common log format and the combined one, of Apache, nginx and many others:
//! `HOST IDENT USER [TIME] "REQUEST" STATUS BYTES` and, combined, `"REFERER" "AGENT"`.
//!
//! Servers escape quotes inside quotes with a backslash (Apache) or as `\\x22` (nginx). Others do
//! not escape them: then the request ends at the first quote that a status follows. Anything after
//! the known fields is ignored, because many sites add their own.
//!
//! The time is Apache's. If no bracket contains that, other forms are tried
//! ([`Stamps::in_brackets`]).

use super::stamp::Stamp;
use super::{Facts, Instant, NS_PER_S, Request, Stamps};

/// Quotes that are tried as the end of a request.
const TRIES_MAX: usize = 16;

/// The longest time in brackets.
const STAMP_BYTES_MAX: usize = 40;

/// The fields after the size.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    Nothing,
    RefererAndAgent,
}

pub(super) fn parse(line: &[u8], tail: Tail, stamps: &mut Stamps) -> Option<Request> {
    match tail {
        Tail::Nothing => common(line, stamps).map(|(request, _)| request),
        Tail::RefererAndAgent => until_agent(line, stamps).map(|(request, _)| request),
    }
}

/// The request of a combined line, and what follows the agent.
pub(super) fn combined<'l>(line: &'l [u8], stamps: &mut Stamps) -> Option<(Request, &'l [u8])> {
    let (request, agent) = until_agent(line, stamps)?;
    let rest = quote_end(agent).map_or(&b""[..], |end| &agent[end + 1..]);
    Some((request, rest))
}

/// The request of a combined line, and the agent from its first byte. The agent need not be closed:
/// real logs have lines that were truncated in it, and everything needed comes before it.
#[inline]
fn until_agent<'l>(line: &'l [u8], stamps: &mut Stamps) -> Option<(Request, &'l [u8])> {
    let (request, rest) = common(line, stamps)?;
    Some((request, quoted(rest?)?.strip_prefix(b" \"")?))
}

/// What to type if numbers follow the agent: they may be the elapsed time, in a unit that only the
/// server's configuration shows.
#[cfg(feature = "survey")]
pub(super) fn elapsed_hint(line: &[u8], stamps: &mut Stamps) -> Option<String> {
    let (_, rest) = combined(line, stamps)?;
    let number = |word: &&[u8]| word.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let word = rest.split(|&byte| byte == b' ').map(|word| word.trim_ascii());
    let word = word.filter(|word| !word.is_empty()).find(number)?;
    Some(format!(
        "not read: after the agent is {}, perhaps the elapsed time. Give the format string of the \
         server's configuration (nginx: $request_time; Apache: %D or %T)",
        String::from_utf8_lossy(word)
    ))
}

/// What follows the size and a space, if there is more.
type Rest<'l> = Option<&'l [u8]>;

/// The request of a common line, and what follows it.
#[inline]
fn common<'l>(line: &'l [u8], stamps: &mut Stamps) -> Option<(Request, Rest<'l>)> {
    let (stamp, rest) = match stamped(line, stamps) {
        Some((second, rest)) => (Stamp { ns: second * NS_PER_S, grain_ns: NS_PER_S }, rest),
        None => unusually_stamped(line, stamps)?,
    };
    let request = rest.strip_prefix(b" \"")?;
    let mut facts = Facts::default();
    let end = quote_end(request)?;
    let rest = match answer(&request[end + 1..], &mut facts) {
        Some(rest) => {
            facts.take_request_line(&request[..end]);
            rest
        }
        None => unescaped(request, &mut facts)?,
    };
    Some((Request::lived(stamp.ns, stamp.grain_ns, Instant::Start, None, facts), rest))
}

/// The status and the size after a request's closing quote. Returns what follows them.
#[inline]
fn answer<'l>(rest: &'l [u8], facts: &mut Facts) -> Option<Rest<'l>> {
    let mut fields = rest.strip_prefix(b" ")?.splitn(3, |&byte| byte == b' ');
    let status = fields.next().filter(|status| status.len() == 3 || *status == b"-")?;
    facts.take_status(status)?;
    facts.take_bytes(fields.next()?)?;
    Some(fields.next())
}

/// A request with quotes that are not escaped: it ends at the first quote that an answer follows.
#[cold]
fn unescaped<'l>(request: &'l [u8], facts: &mut Facts) -> Option<Rest<'l>> {
    memchr::memchr_iter(b'"', request).take(TRIES_MAX).find_map(|end| {
        let rest = answer(&request[end + 1..], facts)?;
        facts.take_request_line(&request[..end]);
        Some(rest)
    })
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

/// The same with a time in another form, which may begin the line.
#[cold]
#[inline(never)]
fn unusually_stamped<'l>(line: &'l [u8], stamps: &mut Stamps) -> Option<(Stamp, &'l [u8])> {
    let begins = |at: usize| at == 0 || line[at - 1] == b' ';
    memchr::memchr_iter(b'[', line).filter(|&at| begins(at)).take(TRIES_MAX).find_map(|at| {
        let inside = &line[at + 1..];
        let end = memchr::memchr(b']', &inside[..inside.len().min(STAMP_BYTES_MAX)])?;
        let stamp = stamps.in_brackets(inside[..end].trim_ascii())?;
        Some((stamp, &inside[end + 1..])).filter(|(_, rest)| rest.starts_with(b" \""))
    })
}

/// Skips a quoted string and returns the rest.
fn quoted(bytes: &[u8]) -> Option<&[u8]> {
    let inside = bytes.strip_prefix(b"\"")?;
    Some(&inside[quote_end(inside)? + 1..])
}

/// The position of the closing quote of a string whose opening quote was taken.
pub(super) fn quote_end(inside: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + memchr::memchr2(b'"', b'\\', inside.get(from..)?)?;
        if inside[at] == b'"' {
            return Some(at);
        }
        // A backslash and what it escapes.
        from = at + 2;
    }
}
