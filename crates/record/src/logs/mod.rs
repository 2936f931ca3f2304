//! Lines of access logs to requests: which instant a line stamps, how finely, for how long the
//! request lived, and of which class it was.
//!
//! One file a format, all of one shape: `parse(line, stamps) -> Option<Request>`. A line that is
//! not understood is `None`, never an error and never a panic: logs hold notices, half lines and
//! whatever clients send. A format string is compiled once ([`pattern`]), by its server's
//! dialect ([`dialects`]).
//!
//! | format         | stamps                     | grain | elapsed        |
//! |----------------|----------------------------|-------|----------------|
//! | squid          | the end                    | 1 ms  | yes, ms        |
//! | haproxy        | the start of the request   | 1 ms  | yes, ms        |
//! | combined       | nginx: the end; Apache, varnishncsa: the start | 1 s | no |
//! | clf            | as combined                | 1 s   | no             |
//! | json           | the end, or the start where the key says so | as written | by its key |
//! | nginx:STRING   | the end                    | 1 ms with $msec, else 1 s | $request_time |
//! | squid:STRING   | the end                    | 1 ms with %tu, else 1 s | %tr |
//! | apache:STRING  | the start; the end with %{end:...}t | as the code | %D, %T |
//!
//! Without an elapsed time a request is taken to have happened somewhere in its stamp's grain.

mod clf;
mod dialects;
mod facts;
mod format;
mod haproxy;
mod json;
mod pattern;
mod squid;
mod stamp;
mod strftime;

use std::fmt;

use serde::Serialize;

pub(crate) use facts::{CLASSES, Class, Facts};
pub use format::{Format, FormatChoice, JsonKeys, LogFormat};
pub(crate) use stamp::Stamps;

/// Which end of a request a line stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Instant {
    /// Its first byte, or when it was accepted.
    Start,
    /// When its answer was sent.
    #[default]
    End,
}

/// What is wrong with a format, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FormatError {
    dialect: &'static str,
    /// Of the string behind the dialect's name, from 1.
    column: usize,
    found: String,
    what: String,
    mend: String,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FormatError { dialect, column, found, what, mend } = self;
        write!(f, "{dialect} format, column {column}")?;
        if !found.is_empty() {
            write!(f, ", {found}")?;
        }
        write!(f, ": {what}; {mend}")
    }
}

impl std::error::Error for FormatError {}

/// One request, as a line told it. Its life is `[start_ns, end_ns]` on the wall clock; where the
/// stamp is coarse, that and all instants the stamp may mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// What the line says, whichever end of the request it is.
    pub(crate) stamp_ns: i64,
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    /// Where the line tells it.
    pub(crate) elapsed_us: Option<u64>,
    pub(crate) class: Class,
    /// Bytes sent, where the line tells them.
    pub(crate) bytes: u64,
}

/// Stamps of this grain and coarser stand for every instant in it.
const COARSE_NS: i64 = 1_000_000_000;

impl Request {
    /// A request by its stamp.
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

    /// The last instant of its life. One of no length, by its stamps, lies at its stamp.
    pub(crate) fn last_ns(&self) -> i64 {
        if self.end_ns > self.start_ns { self.end_ns - 1 } else { self.end_ns }
    }

    /// Only its life and its length of time, for tests and checks.
    #[cfg(test)]
    pub(crate) fn of_life(start_ns: i64, end_ns: i64, elapsed_us: Option<u64>) -> Request {
        let class = Class::default();
        Request { stamp_ns: end_ns, start_ns, end_ns, elapsed_us, class, bytes: 0 }
    }
}

const NS_PER_MS: i64 = 1_000_000;
const NS_PER_S: i64 = 1_000_000_000;

/// Longest life that is believed: a request of more than ten years is noise.
const ELAPSED_MS_MAX: i64 = 10 * 366 * 86_400_000;

/// Times that are believed, as seconds since the epoch: up to the year 2200.
const SECONDS_MAX: i64 = 7_258_118_400;

/// A request of a format in milliseconds. Some servers write -1 for a time they do not know.
fn from_ms(stamp_ns: i64, elapsed_ms: i64, instant: Instant, facts: Facts) -> Option<Request> {
    if !(-1..=ELAPSED_MS_MAX).contains(&elapsed_ms) {
        return None;
    }
    let elapsed_us = u64::try_from(elapsed_ms).ok().map(|ms| ms * 1000);
    Some(Request::lived(stamp_ns, NS_PER_MS, instant, elapsed_us, facts))
}

/// Digits only, at least one, and no overflow.
fn digits(bytes: &[u8]) -> Option<i64> {
    if bytes.is_empty() || bytes.len() > 18 {
        return None;
    }
    bytes.iter().try_fold(0i64, |sum, byte| {
        byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'))
    })
}

/// Digits with a sign before them, if any.
fn signed(bytes: &[u8]) -> Option<i64> {
    match bytes.strip_prefix(b"-") {
        Some(rest) => digits(rest).map(|number| -number),
        None => digits(bytes.strip_prefix(b"+").unwrap_or(bytes)),
    }
}

#[cfg(test)]
mod strings;
#[cfg(test)]
mod tests;
