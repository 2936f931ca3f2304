//! JSON lines: one object a line, its values found by their keys.
//!
//! ```text
//! {"time":"2015-05-17T10:05:03.042Z","elapsed_us":12345,"status":200,"outcome":"TCP_MISS",...}
//! ```
//!
//! Keys that say what they hold are known by name. A key of no clear unit (`duration` is seconds
//! for one server and milliseconds for another) is never guessed at: it is given, as in
//! `json:elapsed_s=duration,status=response.code`. A key inside an object is written with points.
//!
//! The line is scanned in place; what is not needed is stepped over. Values that hold escapes are
//! taken as they stand: none that counts here has any.

use super::pattern::{MS, Told, What, elapsed_us};
use super::stamp::Stamp;
use super::{FormatError, Instant, NS_PER_S, Request, SECONDS_MAX, Stamps};

/// Objects and arrays within each other that are followed.
const DEPTH_MAX: usize = 16;

/// Longest key, with those around it, that is known.
const PATH_BYTES_MAX: usize = 128;

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Time(Instant),
    /// What one is worth, ns.
    Elapsed(u64),
    Status,
    Bytes,
    Method,
    RequestLine,
    Outcome,
    Tls,
}

/// What may be given, by name.
const GIVEN: [(&str, Holds); 13] = [
    ("time", Holds::Time(Instant::End)),
    ("end", Holds::Time(Instant::End)),
    ("start", Holds::Time(Instant::Start)),
    ("elapsed_s", Holds::Elapsed(NS_PER_S as u64)),
    ("elapsed_ms", Holds::Elapsed(MS as u64)),
    ("elapsed_us", Holds::Elapsed(1000)),
    ("elapsed_ns", Holds::Elapsed(1)),
    ("status", Holds::Status),
    ("bytes", Holds::Bytes),
    ("method", Holds::Method),
    ("request", Holds::RequestLine),
    ("outcome", Holds::Outcome),
    ("tls", Holds::Tls),
];

/// Keys known by name.
fn known(key: &[u8]) -> Option<Holds> {
    Some(match key {
        b"time" | b"timestamp" | b"@timestamp" | b"ts" | b"msec" | b"time_local"
        | b"time_iso8601" | b"date" | b"datetime" | b"end_time" => Holds::Time(Instant::End),
        b"start_time" | b"start" | b"begin" | b"StartUTC" | b"accept_time" => {
            Holds::Time(Instant::Start)
        }
        b"request_time" | b"elapsed_s" | b"duration_s" | b"duration_seconds" => {
            Holds::Elapsed(NS_PER_S as u64)
        }
        b"elapsed_ms" | b"duration_ms" | b"latency_ms" | b"response_time_ms"
        | b"request_time_ms" => Holds::Elapsed(MS as u64),
        b"elapsed_us" | b"duration_us" | b"latency_us" | b"response_time_us"
        | b"request_time_us" => Holds::Elapsed(1000),
        b"elapsed_ns" | b"duration_ns" | b"latency_ns" => Holds::Elapsed(1),
        b"status" | b"status_code" | b"statusCode" | b"response_status" | b"DownstreamStatus" => {
            Holds::Status
        }
        b"bytes" | b"bytes_sent" | b"size" | b"body_bytes_sent" | b"DownstreamContentSize" => {
            Holds::Bytes
        }
        b"method" | b"request_method" | b"RequestMethod" | b"request.method" => Holds::Method,
        b"request" | b"request_line" => Holds::RequestLine,
        b"outcome" | b"cache" | b"upstream_cache_status" | b"cache_result" => Holds::Outcome,
        b"tls" | b"scheme" | b"https" | b"ssl_protocol" | b"request.tls" => Holds::Tls,
        _ => return None,
    })
}

/// The keys of one log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Keys {
    given: Vec<(Box<[u8]>, Holds)>,
    text: String,
    /// As a line showed them.
    instant: Instant,
    grain_ns: i64,
    elapsed: bool,
}

impl Keys {
    /// Reads `elapsed_s=duration,status=response.code`.
    pub(crate) fn compile(given: &str) -> Result<Keys, FormatError> {
        let mut keys = Keys::default();
        let mut column = 1;
        for part in given.split(',') {
            let wrong = |what: &str, mend: String| FormatError {
                dialect: "json",
                column,
                found: part.to_owned(),
                what: what.to_owned(),
                mend,
            };
            let names = || GIVEN.map(|(name, _)| name).join(", ");
            let Some((name, key)) = part.split_once('=') else {
                let mend = "write WHAT=KEY, such as elapsed_ms=took".to_owned();
                return Err(wrong("it names no key", mend));
            };
            let Some((_, holds)) = GIVEN.iter().find(|(known, _)| *known == name) else {
                return Err(wrong(&format!("{name:?} is nothing to find"), names()));
            };
            if key.is_empty() || key.len() > PATH_BYTES_MAX {
                let most = format!("a key has 1 to {PATH_BYTES_MAX} bytes");
                return Err(wrong("its key has no length that is taken", most));
            }
            keys.given.push((key.as_bytes().into(), *holds));
            column += part.chars().count() + 1;
        }
        keys.text = format!("json:{given}");
        Ok(keys)
    }

    /// The same keys, with what a line shows of the stamps; `None` if it tells no time.
    pub(crate) fn shown_by(&self, line: &[u8], stamps: &mut Stamps) -> Option<Keys> {
        let found = self.find(line, stamps)?;
        let stamp = found.told.stamp?;
        Some(Keys {
            instant: found.instant,
            grain_ns: stamp.grain_ns,
            elapsed: found.elapsed,
            text: if self.text.is_empty() { "json".to_owned() } else { self.text.clone() },
            ..self.clone()
        })
    }

    /// Which instant a line stamps.
    pub(crate) fn instant(&self) -> Instant {
        self.instant
    }

    /// The grain of the stamps, ns.
    pub(crate) fn grain_ns(&self) -> i64 {
        self.grain_ns.max(1)
    }

    /// Whether a line told how long its request took.
    pub(crate) fn has_elapsed(&self) -> bool {
        self.elapsed
    }

    /// As they were given.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Understands a line.
    pub(super) fn read(&self, line: &[u8], stamps: &mut Stamps) -> Option<Request> {
        let found = self.find(line, stamps)?;
        found.told.request(found.instant)
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
        let given = self.given.iter().find(|(key, _)| **key == *path).map(|(_, holds)| *holds);
        let Some(holds) = given.or_else(|| known(path)) else { return Some(()) };
        // What was given stands above what is known by name.
        let rank = if given.is_some() { 2 } else { 1 };
        let kind = kind(holds);
        if found.rank[kind] >= rank {
            return Some(());
        }
        let (bytes, plain) = match value {
            Value::String(bytes) | Value::Plain(bytes) if bytes != b"null" => (bytes, true),
            Value::Object => (&b"true"[..], matches!(holds, Holds::Tls)),
            _ => (&b"-"[..], !matches!(holds, Holds::Time(_))),
        };
        if !plain {
            return Some(());
        }
        found.rank[kind] = rank;
        let told = &mut found.told;
        match holds {
            Holds::Time(instant) => {
                told.stamp = Some(time(bytes, stamps)?);
                found.instant = instant;
            }
            Holds::Elapsed(unit_ns) => {
                found.elapsed = true;
                told.elapsed_us = if unit_ns == 1 {
                    elapsed_us(bytes, 1)?.map(|ns| ns / 1000)
                } else {
                    elapsed_us(bytes, unit_ns / 1000)?
                };
            }
            Holds::Status => told.take(&What::Status, bytes, stamps)?,
            Holds::Bytes => told.take(&What::Bytes, bytes, stamps)?,
            Holds::Method => told.take(&What::Method, bytes, stamps)?,
            Holds::RequestLine => told.take(&What::RequestLine, bytes, stamps)?,
            Holds::Outcome => told.take(&What::Outcome, bytes, stamps)?,
            Holds::Tls => told.take(&What::Tls, bytes, stamps)?,
        }
        Some(())
    }
}

/// What a line told, and by what right.
#[derive(Default)]
struct Found {
    told: Told,
    instant: Instant,
    elapsed: bool,
    /// By kind: 0 nothing, 1 by a known name, 2 as it was given. The first of equals stays.
    rank: [u8; 7],
}

fn kind(holds: Holds) -> usize {
    match holds {
        Holds::Time(_) => 0,
        Holds::Elapsed(_) => 1,
        Holds::Status => 2,
        Holds::Bytes => 3,
        Holds::Method | Holds::RequestLine => 4,
        Holds::Outcome => 5,
        Holds::Tls => 6,
    }
}

/// An instant in any of the forms that logs use: a number of seconds, milliseconds, microseconds
/// or nanoseconds since the epoch (told apart by its size), ISO 8601, or Apache's.
fn time(value: &[u8], stamps: &mut Stamps) -> Option<Stamp> {
    if value.len() == 26 && value[2] == b'/' {
        return Some(Stamp { ns: stamps.zoned(value)? * NS_PER_S, grain_ns: NS_PER_S });
    }
    if value.contains(&b'-') {
        return stamps.iso(value);
    }
    let whole = value.split(|&byte| byte == b'.').next()?;
    let mut told = Told::default();
    let what = match whole.len() {
        ..=11 => What::Epoch(1),
        12..=14 => What::EpochOf(MS),
        15..=17 => What::EpochOf(1000),
        _ => What::EpochOf(1),
    };
    told.take(&what, value, stamps)?;
    told.stamp.filter(|stamp| stamp.ns / NS_PER_S <= SECONDS_MAX)
}

enum Value<'v> {
    /// Inside the quotes.
    String(&'v [u8]),
    /// A number, true, false, null.
    Plain(&'v [u8]),
    Object,
    Array,
}

/// Goes through one line.
struct Scan<'l> {
    bytes: &'l [u8],
    at: usize,
    path: [u8; PATH_BYTES_MAX],
    depth: usize,
}

impl<'l> Scan<'l> {
    /// Steps over a value, telling those that stand in objects with their path. `path` is the
    /// length of the path so far.
    fn value(&mut self, path: usize, tell: &mut dyn FnMut(&[u8], Value<'l>)) -> Option<()> {
        match self.bytes.get(self.at)? {
            b'"' => {
                self.string()?;
            }
            b'{' => self.object(path, tell)?,
            b'[' => self.array(path)?,
            _ => {
                self.plain()?;
            }
        }
        Some(())
    }

    fn object(&mut self, path: usize, tell: &mut dyn FnMut(&[u8], Value<'l>)) -> Option<()> {
        self.enter()?;
        if !self.closes(b'}') {
            loop {
                self.spaces();
                let key = self.string()?;
                self.spaces();
                self.byte(b':')?;
                self.spaces();
                let within = self.extend(path, key);
                self.member(path, within, tell)?;
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

    /// A value of an object, whose path ends at `within`; `None` for a path that is too long.
    fn member(
        &mut self,
        path: usize,
        within: Option<usize>,
        tell: &mut dyn FnMut(&[u8], Value<'l>),
    ) -> Option<()> {
        let value = match self.bytes.get(self.at)? {
            b'"' => Value::String(self.string()?),
            b'{' | b'[' => {
                let object = self.bytes[self.at] == b'{';
                if let Some(end) = within {
                    tell(&self.path[..end], if object { Value::Object } else { Value::Array });
                }
                return match within.filter(|_| object) {
                    Some(end) => self.object(end, tell),
                    None => self.value(path, &mut |_, _| {}),
                };
            }
            _ => Value::Plain(self.plain()?),
        };
        if let Some(end) = within {
            tell(&self.path[..end], value);
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

    /// A string; what stands between its quotes.
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

    /// Adds a key to the path.
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
