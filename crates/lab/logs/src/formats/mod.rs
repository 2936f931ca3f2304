//! Lines of access logs to requests: which instant a line stamps, how finely, how long the request
//! lived, and its class.
//!
//! One file per format, all with the same interface: `parse(line, stamps) -> Option<Request>`. A
//! line that is not understood is `None`, never an error and never a panic: logs contain notices,
//! partial lines and whatever clients send. A format string is compiled once ([`pattern`]), by its
//! server's dialect ([`dialects`]).
//!
//! | format         | stamps                     | grain | elapsed        |
//! |----------------|----------------------------|-------|----------------|
//! | squid          | the end                    | 1 ms  | yes, ms        |
//! | haproxy        | the start of the request   | 1 ms  | yes, ms        |
//! | combined       | nginx: the end; Apache, varnishncsa: the start | 1 s | no |
//! | clf            | as combined                | 1 s   | no             |
//! | alb, elb       | the end; the start         | 1 us  | yes, s         |
//! | s3             | the start                  | 1 s   | yes, ms        |
//! | envoy          | the start                  | 1 ms  | yes, ms        |
//! | traefik, ingress | the start; the end       | 1 s   | yes, ms; s     |
//! | gin, chi       | the end, in local time     | 1 s   | yes, with a unit |
//! | phpfpm         | the start                  | 1 s   | no             |
//! | w3c:FIELDS     | the end                    | 1 s   | time-taken     |
//! | logfmt         | as json                    | as written | by its key |
//! | json           | the end, or the start where the key says so | as written | by its key |
//! | nginx:STRING   | the end                    | 1 ms with $msec, else 1 s | $request_time |
//! | squid:STRING   | the end                    | 1 ms with %tu, else 1 s | %tr |
//! | apache:STRING  | the start; the end with %{end:...}t | as the code | %D, %T |
//!
//! A line that no format understands is tried without what a container, syslog or a console has put
//! before it ([`prefix`]). What is not a request but is understood as something else (a comment, an
//! event) is not bad. A format that cannot be read has a name and an advice ([`named`]).
//!
//! Without an elapsed time, the request is assumed to have happened somewhere within its stamp's
//! grain.

mod balancers;
mod clf;
mod dialects;
mod facts;
mod format;
mod frameworks;
mod haproxy;
mod json;
mod keys;
mod named;
mod pattern;
mod prefix;
mod squid;
mod stamp;
mod w3c;
mod words;

use std::fmt;

use serde::Serialize;

pub use facts::{Class, Facts, Outcome};
pub use format::{Format, FormatChoice, JsonKeys, Line, LogFormat};
pub use named::advice;
pub use stamp::Stamps;

/// The instant that a line stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Instant {
    /// Its first byte, or when it was accepted.
    Start,
    /// When its response was sent.
    #[default]
    End,
}

/// An error in a format, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FormatError {
    dialect: &'static str,
    /// Position in the string after the dialect's name, from 1.
    column: usize,
    found: String,
    what: String,
    fix: String,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FormatError { dialect, column, found, what, fix } = self;
        write!(f, "{dialect} format, column {column}")?;
        if !found.is_empty() {
            write!(f, ", {found}")?;
        }
        write!(f, ": {what}; {fix}")
    }
}

/// What a compiled format declares about its lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Declared {
    /// The instant that a line stamps.
    instant: Instant,
    /// The grain of the stamps, ns.
    grain_ns: i64,
    /// Whether a line contains how long its request took.
    elapsed: bool,
    /// As given, with its dialect.
    text: String,
}
impl std::error::Error for FormatError {}

/// One request, parsed from a line. Its life is `[start_ns, end_ns]` on the wall clock; if the
/// stamp is coarse, this includes all instants that the stamp may mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The stamp of the line, at whichever end of the request.
    pub stamp_ns: i64,
    /// The first instant of its life.
    pub start_ns: i64,
    /// The end of its life.
    pub end_ns: i64,
    /// How long it took, if the line has it.
    pub elapsed_us: Option<u64>,
    /// Its outcome, method, size and TLS.
    pub class: Class,
    /// Bytes sent, if the line has them.
    pub bytes: u64,
}

/// A stamp of this grain or coarser means any instant within it.
const COARSE_NS: i64 = 1_000_000_000;

impl Request {
    /// Makes a request from its stamp.
    fn lived(
        stamp_ns: i64,
        grain_ns: i64,
        instant: Instant,
        elapsed_us: Option<u64>,
        facts: Facts,
    ) -> Request {
        let life_ns = i64::try_from(elapsed_us.unwrap_or(0)).unwrap_or(0).saturating_mul(1000);
        let slack_ns = if grain_ns >= COARSE_NS { grain_ns } else { 0 };
        let (start_ns, end_ns) = match instant {
            Instant::End => (stamp_ns - life_ns, stamp_ns + slack_ns),
            Instant::Start => (stamp_ns, stamp_ns + slack_ns + life_ns),
        };
        let bytes = facts.bytes.unwrap_or(0);
        let class = facts.class();
        Request { stamp_ns, start_ns, end_ns, elapsed_us, class, bytes }
    }

    /// The same request, with a life that the line has elsewhere.
    fn with_life(self, life_us: u64, instant: Instant) -> Option<Request> {
        let life_ns = i64::try_from(life_us).ok()?.checked_mul(1000)?;
        if life_ns / NS_PER_MS > ELAPSED_MS_MAX {
            return None;
        }
        let Request { stamp_ns, end_ns, .. } = self;
        let (start_ns, end_ns) = match instant {
            Instant::End => (stamp_ns - life_ns, end_ns),
            Instant::Start => (stamp_ns, end_ns + life_ns),
        };
        Some(Request { start_ns, end_ns, elapsed_us: Some(life_us), ..self })
    }

    /// The last instant of its life. An instantaneous request is at its stamp.
    pub fn last_ns(&self) -> i64 {
        if self.end_ns > self.start_ns { self.end_ns - 1 } else { self.end_ns }
    }
}

const NS_PER_MS: i64 = 1_000_000;
const NS_PER_S: i64 = 1_000_000_000;

/// Longest accepted life: a request of more than ten years is noise.
pub(crate) const ELAPSED_MS_MAX: i64 = 10 * 366 * 86_400_000;

/// Latest accepted time, in seconds since the epoch: the year 2200.
const SECONDS_MAX: i64 = 7_258_118_400;

/// A request of a format in milliseconds. Some servers write -1 for an unknown time.
fn from_ms(stamp_ns: i64, elapsed_ms: i64, instant: Instant, facts: Facts) -> Option<Request> {
    if !(-1..=ELAPSED_MS_MAX).contains(&elapsed_ms) {
        return None;
    }
    let elapsed_us = u64::try_from(elapsed_ms).ok().map(|ms| ms * 1000);
    Some(Request::lived(stamp_ns, NS_PER_MS, instant, elapsed_us, facts))
}

/// At least one digit, only digits, no overflow.
fn digits(bytes: &[u8]) -> Option<i64> {
    if bytes.is_empty() || bytes.len() > 18 {
        return None;
    }
    bytes.iter().try_fold(0i64, |sum, byte| {
        byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'))
    })
}

/// The same with up to 19 digits, which nanoseconds since the epoch have.
fn long_digits(bytes: &[u8]) -> Option<i64> {
    let (head, last) = match bytes {
        [head @ .., last @ b'0'..=b'9'] if bytes.len() == 19 => (head, *last),
        bytes => return digits(bytes),
    };
    digits(head)?.checked_mul(10)?.checked_add(i64::from(last - b'0'))
}

/// Digits with an optional sign.
fn signed(bytes: &[u8]) -> Option<i64> {
    match bytes.strip_prefix(b"-") {
        Some(rest) => digits(rest).map(|number| -number),
        None => digits(bytes.strip_prefix(b"+").unwrap_or(bytes)),
    }
}

#[cfg(test)]
mod tests;
