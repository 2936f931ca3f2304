//! Lines of access logs to requests: which instant a line stamps, how finely, and for how long
//! the request lived.
//!
//! One file a format, all of one shape: `parse(line, stamps) -> Option<Request>`. A line that is
//! not understood is `None`, never an error and never a panic: logs hold notices, half lines and
//! whatever clients send.
//!
//! | format   | stamps                     | grain | elapsed        |
//! |----------|----------------------------|-------|----------------|
//! | squid    | the end                    | 1 ms  | yes, ms        |
//! | haproxy  | the start of the request   | 1 ms  | yes, ms        |
//! | combined | nginx: the end; Apache: the start | 1 s | no        |
//! | common   | as combined                | 1 s   | no             |
//!
//! Without an elapsed time a request is taken to have happened somewhere in its second.

mod clf;
mod haproxy;
mod squid;
mod stamp;

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

pub(crate) use stamp::Stamps;

/// A format of access logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Squid's native format.
    Squid,
    /// HAProxy's `option httplog`, with or without a syslog prefix.
    Haproxy,
    /// The combined format of Apache and nginx.
    Combined,
    /// The common log format.
    Common,
}

impl LogFormat {
    /// All formats, in the order in which they are tried: the stricter first.
    pub const ALL: [LogFormat; 4] =
        [LogFormat::Squid, LogFormat::Haproxy, LogFormat::Combined, LogFormat::Common];

    /// Its name on the command line and in the trial.
    pub fn as_str(self) -> &'static str {
        match self {
            LogFormat::Squid => "squid",
            LogFormat::Haproxy => "haproxy",
            LogFormat::Combined => "combined",
            LogFormat::Common => "clf",
        }
    }

    /// Whether it tells how long a request took.
    pub fn has_elapsed(self) -> bool {
        matches!(self, LogFormat::Squid | LogFormat::Haproxy)
    }

    /// The grain of its stamps, ns.
    pub fn grain_ns(self) -> i64 {
        if self.has_elapsed() { 1_000_000 } else { 1_000_000_000 }
    }

    /// One sentence on what it stamps, for the trial.
    pub fn declares(self) -> &'static str {
        match self {
            LogFormat::Squid => "stamps the end, grain 1 ms, with elapsed time",
            LogFormat::Haproxy => {
                "stamps the start in local time, grain 1 ms, with the active time Ta"
            }
            LogFormat::Combined | LogFormat::Common => {
                "grain 1 s, no elapsed time (nginx stamps the end, Apache the start): \
                 each request is spread over its second"
            }
        }
    }

    /// Understands a line, without its newline.
    pub(crate) fn parse(self, line: &[u8], stamps: &mut Stamps) -> Option<Request> {
        match self {
            LogFormat::Squid => squid::parse(line),
            LogFormat::Haproxy => haproxy::parse(line, stamps),
            LogFormat::Combined => clf::parse(line, clf::Tail::RefererAndAgent, stamps),
            LogFormat::Common => clf::parse(line, clf::Tail::Nothing, stamps),
        }
    }

    /// The first format that understands a line.
    pub(crate) fn detect(line: &[u8], stamps: &mut Stamps) -> Option<LogFormat> {
        LogFormat::ALL.into_iter().find(|format| format.parse(line, stamps).is_some())
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<LogFormat, String> {
        match name {
            "common" => Ok(LogFormat::Common),
            _ => {
                LogFormat::ALL.into_iter().find(|format| format.as_str() == name).ok_or_else(|| {
                    format!("no log format {name:?}; there are squid, haproxy, combined, clf")
                })
            }
        }
    }
}

/// One request, as a line told it. Its life is `[start_ns, end_ns]` on the wall clock, or the
/// second in which it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    /// Where the format tells it.
    pub(crate) elapsed_us: Option<u64>,
}

impl Request {
    /// The last instant of its life. One of no length, by its stamps, lies at its stamp.
    pub(crate) fn last_ns(&self) -> i64 {
        if self.end_ns > self.start_ns { self.end_ns - 1 } else { self.end_ns }
    }
}

const NS_PER_MS: i64 = 1_000_000;
const NS_PER_S: i64 = 1_000_000_000;

/// Longest life that is believed: a request of more than ten years is noise.
const ELAPSED_MS_MAX: i64 = 10 * 366 * 86_400_000;

/// Times that are believed, as seconds since the epoch: up to the year 2200.
const SECONDS_MAX: i64 = 7_258_118_400;

/// A request of a format in milliseconds. Some servers write -1 for a time they do not know.
fn from_ms(stamp_ns: i64, elapsed_ms: i64, stamps_end: bool) -> Option<Request> {
    if !(-1..=ELAPSED_MS_MAX).contains(&elapsed_ms) {
        return None;
    }
    let known = u64::try_from(elapsed_ms).ok();
    let life_ns = elapsed_ms.max(0) * NS_PER_MS;
    let (start_ns, end_ns) =
        if stamps_end { (stamp_ns - life_ns, stamp_ns) } else { (stamp_ns, stamp_ns + life_ns) };
    Some(Request { start_ns, end_ns, elapsed_us: known.map(|ms| ms * 1000) })
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

/// A status: three digits.
fn is_status(bytes: &[u8]) -> bool {
    bytes.len() == 3 && digits(bytes).is_some()
}

/// A count of bytes, or `-` for none.
fn is_size(bytes: &[u8]) -> bool {
    bytes == b"-" || digits(bytes).is_some()
}

#[cfg(test)]
mod tests;
