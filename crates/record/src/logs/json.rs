//! JSON lines: one object per line, whose values are found by their keys.
//!
//! ```text
//! {"time":"2015-05-17T10:05:03.042Z","elapsed_us":12345,"status":200,"outcome":"TCP_MISS",...}
//! ```
//!
//! Keys with an unambiguous name are known. A key without a clear unit (`duration` is in seconds
//! for one server and in milliseconds for another) is never guessed; it must be given, as in
//! `json:elapsed_s=duration,status=response.code`. The path of a nested key is written with dots.
//!
//! The line is scanned in place, and values that are not needed are skipped. Escapes in values are
//! not decoded: no value that matters here has any.

use super::pattern::{FieldKind, MS, Values, elapsed_us};
use super::stamp::Stamp;
use super::{Declared, FormatError, Instant, NS_PER_S, Request, SECONDS_MAX, Stamps};

/// Deepest nesting of objects and arrays that is accepted.
const DEPTH_MAX: usize = 16;

/// Longest path of a key that is recognised.
const PATH_BYTES_MAX: usize = 128;

/// The meaning of a key's value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meaning {
    Time(Instant),
    /// The unit, ns.
    Elapsed(u64),
    Field(&'static FieldKind),
}

/// The meanings that can be given, by name.
const GIVEN: [(&str, Meaning); 13] = [
    ("time", Meaning::Time(Instant::End)),
    ("end", Meaning::Time(Instant::End)),
    ("start", Meaning::Time(Instant::Start)),
    ("elapsed_s", Meaning::Elapsed(NS_PER_S as u64)),
    ("elapsed_ms", Meaning::Elapsed(MS as u64)),
    ("elapsed_us", Meaning::Elapsed(1000)),
    ("elapsed_ns", Meaning::Elapsed(1)),
    ("status", Meaning::Field(&FieldKind::Status)),
    ("bytes", Meaning::Field(&FieldKind::Bytes)),
    ("method", Meaning::Field(&FieldKind::Method)),
    ("request", Meaning::Field(&FieldKind::RequestLine)),
    ("outcome", Meaning::Field(&FieldKind::Outcome)),
    ("tls", Meaning::Field(&FieldKind::Tls)),
];

/// The meaning of the known keys.
fn known(key: &[u8]) -> Option<Meaning> {
    Some(match key {
        b"time" | b"timestamp" | b"@timestamp" | b"ts" | b"msec" | b"time_local"
        | b"time_iso8601" | b"date" | b"datetime" | b"end_time" => Meaning::Time(Instant::End),
        b"start_time" | b"start" | b"begin" | b"StartUTC" | b"accept_time" => {
            Meaning::Time(Instant::Start)
        }
        b"request_time" | b"elapsed_s" | b"duration_s" | b"duration_seconds" => {
            Meaning::Elapsed(NS_PER_S as u64)
        }
        b"elapsed_ms" | b"duration_ms" | b"latency_ms" | b"response_time_ms"
        | b"request_time_ms" => Meaning::Elapsed(MS as u64),
        b"elapsed_us" | b"duration_us" | b"latency_us" | b"response_time_us"
        | b"request_time_us" => Meaning::Elapsed(1000),
        b"elapsed_ns" | b"duration_ns" | b"latency_ns" => Meaning::Elapsed(1),
        b"status" | b"status_code" | b"statusCode" | b"response_status" | b"DownstreamStatus" => {
            Meaning::Field(&FieldKind::Status)
        }
        b"bytes" | b"bytes_sent" | b"size" | b"body_bytes_sent" | b"DownstreamContentSize" => {
            Meaning::Field(&FieldKind::Bytes)
        }
        b"method" | b"request_method" | b"RequestMethod" | b"request.method" => {
            Meaning::Field(&FieldKind::Method)
        }
        b"request" | b"request_line" => Meaning::Field(&FieldKind::RequestLine),
        b"outcome" | b"cache" | b"upstream_cache_status" | b"cache_result" => {
            Meaning::Field(&FieldKind::Outcome)
        }
        b"tls" | b"scheme" | b"https" | b"ssl_protocol" | b"request.tls" => {
            Meaning::Field(&FieldKind::Tls)
        }
        _ => return None,
    })
}

/// The keys of one log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Keys {
    given: Vec<(Box<[u8]>, Meaning)>,
    /// The stamps and the elapsed time as detected from a line.
    pub(super) declared: Declared,
}

impl Keys {
    /// Parses `elapsed_s=duration,status=response.code`.
    pub(crate) fn compile(given: &str) -> Result<Keys, FormatError> {
        let mut keys = Keys::default();
        let mut column = 1;
        for part in given.split(',') {
            let error = |what: &str, fix: String| FormatError {
                dialect: "json",
                column,
                found: part.to_owned(),
                what: what.to_owned(),
                fix,
            };
            let names = || GIVEN.map(|(name, _)| name).join(", ");
            let Some((name, key)) = part.split_once('=') else {
                return Err(error(
                    "no key is given",
                    "write WHAT=KEY, such as elapsed_ms=took".into(),
                ));
            };
            let Some((_, meaning)) = GIVEN.iter().find(|(known, _)| *known == name) else {
                let fix = format!("use one of {}", names());
                return Err(error(&format!("{name:?} is not supported"), fix));
            };
            if key.is_empty() || key.len() > PATH_BYTES_MAX {
                let fix = format!("a key has 1 to {PATH_BYTES_MAX} bytes");
                return Err(error("the length of the key is invalid", fix));
            }
            keys.given.push((key.as_bytes().into(), *meaning));
            column += part.chars().count() + 1;
        }
        keys.declared.text = format!("json:{given}");
        Ok(keys)
    }

    /// The same keys, with the stamps and the elapsed time as detected from a line; `None` if the
    /// line has no time.
    pub(crate) fn detected_from(&self, line: &[u8], stamps: &mut Stamps) -> Option<Keys> {
        let found = self.find(line, stamps)?;
        let text = &self.declared.text;
        let declared = Declared {
            instant: found.instant,
            grain_ns: found.values.stamp?.grain_ns.max(1),
            elapsed: found.elapsed,
            text: if text.is_empty() { "json".to_owned() } else { text.clone() },
        };
        Some(Keys { given: self.given.clone(), declared })
    }

    /// Parses a line.
    pub(super) fn read(&self, line: &[u8], stamps: &mut Stamps) -> Option<Request> {
        let found = self.find(line, stamps)?;
        found.values.request(found.instant)
    }

    fn find(&self, line: &[u8], stamps: &mut Stamps) -> Option<Found> {
        let mut found = Found::default();
        let mut scan =
            Scan { bytes: line.trim_ascii(), at: 0, path: [0; PATH_BYTES_MAX], depth: 0 };
        let mut fault = false;
        scan.value(0, &mut |path, value| {
            fault |= self.take(path, value, &mut found, stamps).is_none();
        })?;
        (!fault && scan.at == scan.bytes.len() && scan.bytes.first() == Some(&b'{'))
            .then_some(found)
    }

    fn take(
        &self,
        path: &[u8],
        value: Value<'_>,
        found: &mut Found,
        stamps: &mut Stamps,
    ) -> Option<()> {
        let given = self.given.iter().find(|(key, _)| **key == *path).map(|(_, meaning)| *meaning);
        let Some(meaning) = given.or_else(|| known(path)) else { return Some(()) };
        // Given keys take precedence over known ones.
        let rank = if given.is_some() { 2 } else { 1 };
        let kind = kind(meaning);
        if found.rank[kind] >= rank {
            return Some(());
        }
        let (bytes, usable) = match value {
            Value::String(bytes) | Value::Plain(bytes) if bytes != b"null" => (bytes, true),
            Value::Object => (&b"true"[..], meaning == Meaning::Field(&FieldKind::Tls)),
            _ => (&b"-"[..], !matches!(meaning, Meaning::Time(_))),
        };
        if !usable {
            return Some(());
        }
        found.rank[kind] = rank;
        let values = &mut found.values;
        match meaning {
            Meaning::Time(instant) => {
                values.stamp = Some(time(bytes, stamps)?);
                found.instant = instant;
            }
            Meaning::Elapsed(unit_ns) => {
                found.elapsed = true;
                values.elapsed_us = if unit_ns == 1 {
                    elapsed_us(bytes, 1)?.map(|ns| ns / 1000)
                } else {
                    elapsed_us(bytes, unit_ns / 1000)?
                };
            }
            Meaning::Field(kind) => values.take(kind, bytes, stamps)?,
        }
        Some(())
    }
}

/// The values found in a line.
#[derive(Default)]
struct Found {
    values: Values,
    instant: Instant,
    elapsed: bool,
    /// By kind: 0 not found, 1 by a known key, 2 by a given key. Of equals, the first counts.
    rank: [u8; 7],
}

fn kind(meaning: Meaning) -> usize {
    match meaning {
        Meaning::Time(_) => 0,
        Meaning::Elapsed(_) => 1,
        Meaning::Field(FieldKind::Status) => 2,
        Meaning::Field(FieldKind::Bytes) => 3,
        Meaning::Field(FieldKind::Outcome) => 5,
        Meaning::Field(FieldKind::Tls) => 6,
        // The method, by itself or in a request line.
        Meaning::Field(_) => 4,
    }
}

/// An instant in any form that logs use: seconds, milliseconds, microseconds or nanoseconds since
/// the epoch (distinguished by their size), ISO 8601, or Apache's form.
fn time(value: &[u8], stamps: &mut Stamps) -> Option<Stamp> {
    if value.len() == 26 && value[2] == b'/' {
        return Some(Stamp { ns: stamps.zoned(value)? * NS_PER_S, grain_ns: NS_PER_S });
    }
    if value.contains(&b'-') {
        return stamps.iso(value);
    }
    let whole = value.split(|&byte| byte == b'.').next()?;
    let kind = match whole.len() {
        ..=11 => FieldKind::Epoch(1),
        12..=14 => FieldKind::EpochOf(MS),
        15..=17 => FieldKind::EpochOf(1000),
        _ => FieldKind::EpochOf(1),
    };
    let mut values = Values::default();
    values.take(&kind, value, stamps)?;
    values.stamp.filter(|stamp| stamp.ns / NS_PER_S <= SECONDS_MAX)
}

enum Value<'v> {
    /// The bytes between the quotes.
    String(&'v [u8]),
    /// A number, true, false, null.
    Plain(&'v [u8]),
    Object,
    Array,
}

/// Scans one line.
struct Scan<'l> {
    bytes: &'l [u8],
    at: usize,
    path: [u8; PATH_BYTES_MAX],
    depth: usize,
}

impl<'l> Scan<'l> {
    /// Skips a value, reporting the members of objects with their paths. `path` is the length of
    /// the current path.
    fn value(&mut self, path: usize, report: &mut dyn FnMut(&[u8], Value<'l>)) -> Option<()> {
        match self.bytes.get(self.at)? {
            b'"' => {
                self.string()?;
            }
            b'{' => self.object(path, report)?,
            b'[' => self.array(path)?,
            _ => {
                self.plain()?;
            }
        }
        Some(())
    }

    fn object(&mut self, path: usize, report: &mut dyn FnMut(&[u8], Value<'l>)) -> Option<()> {
        self.enter()?;
        if !self.closes(b'}') {
            loop {
                self.spaces();
                let key = self.string()?;
                self.spaces();
                self.byte(b':')?;
                self.spaces();
                let within = self.extend(path, key);
                self.member(path, within, report)?;
                self.spaces();
                if self.byte(b',').is_none() {
                    break;
                }
            }
            self.byte(b'}')?;
        }
        self.depth -= 1;
        Some(())
    }

    /// A member of an object, whose path ends at `within`; `None` if the path is too long.
    fn member(
        &mut self,
        path: usize,
        within: Option<usize>,
        report: &mut dyn FnMut(&[u8], Value<'l>),
    ) -> Option<()> {
        let value = match self.bytes.get(self.at)? {
            b'"' => Value::String(self.string()?),
            b'{' | b'[' => {
                let object = self.bytes[self.at] == b'{';
                if let Some(end) = within {
                    report(&self.path[..end], if object { Value::Object } else { Value::Array });
                }
                return match within.filter(|_| object) {
                    Some(end) => self.object(end, report),
                    None => self.value(path, &mut |_, _| {}),
                };
            }
            _ => Value::Plain(self.plain()?),
        };
        if let Some(end) = within {
            report(&self.path[..end], value);
        }
        Some(())
    }

    fn array(&mut self, path: usize) -> Option<()> {
        self.enter()?;
        if !self.closes(b']') {
            loop {
                self.spaces();
                self.value(path, &mut |_, _| {})?;
                self.spaces();
                if self.byte(b',').is_none() {
                    break;
                }
            }
            self.byte(b']')?;
        }
        self.depth -= 1;
        Some(())
    }

    fn enter(&mut self) -> Option<()> {
        self.at += 1;
        self.depth += 1;
        (self.depth <= DEPTH_MAX).then_some(())
    }

    fn closes(&mut self, end: u8) -> bool {
        self.spaces();
        self.byte(end).is_some()
    }

    /// Skips a string and returns the bytes between its quotes.
    fn string(&mut self) -> Option<&'l [u8]> {
        self.byte(b'"')?;
        let begun = self.at;
        loop {
            let at = self.at + memchr::memchr2(b'"', b'\\', self.bytes.get(self.at..)?)?;
            if self.bytes[at] == b'"' {
                self.at = at + 1;
                return Some(&self.bytes[begun..at]);
            }
            self.at = at + 2;
        }
    }

    fn plain(&mut self) -> Option<&'l [u8]> {
        let rest = &self.bytes[self.at..];
        let word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let length = rest.iter().take_while(|byte| word(byte)).count();
        self.at += length;
        (length > 0).then_some(&rest[..length])
    }

    fn spaces(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    fn byte(&mut self, byte: u8) -> Option<()> {
        (self.bytes.get(self.at) == Some(&byte)).then(|| self.at += 1)
    }

    /// Appends a key to the path.
    fn extend(&mut self, path: usize, key: &[u8]) -> Option<usize> {
        let begun = if path > 0 { path + 1 } else { 0 };
        let end = begun + key.len();
        if end > PATH_BYTES_MAX {
            return None;
        }
        if path > 0 {
            self.path[path] = b'.';
        }
        self.path[begun..end].copy_from_slice(key);
        Some(end)
    }
}
