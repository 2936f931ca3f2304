//! JSON lines: one object per line, whose values are found by their keys.
//!
//! ```text
//! {"time":"2015-05-17T10:05:03.042Z","elapsed_us":12345,"status":200,"outcome":"TCP_MISS",...}
//! ```
//!
//! Keys with an unambiguous name are known. A length of time may have its unit at the end of its
//! key (`duration_ms`, `elapsedSeconds`) or in its value (`"12.5ms"`). A number without a unit
//! (`duration` is in seconds for one server and in milliseconds for another) is read only if the
//! other keys of the line show which server wrote the line ([`WRITERS`]). Otherwise the user must
//! give the key, as in `json:elapsed_s=duration,status=response.code`. The path of a nested key is
//! written with dots.
//!
//! An object is a request if it has a status, a method or a request line, or a given key other than
//! the time. Any other object is an event, such as a message of the same server. Without a time, a
//! request is a bad line.
//!
//! Lines of `key=value` pairs (logfmt) are read with the same keys.
//!
//! The line is scanned in place, and values that are not needed are skipped. Escapes in values are
//! not decoded, because no value that is read here contains an escape.

use super::facts::Fact;
#[cfg(feature = "survey")]
use super::keys::elapsed;
use super::keys::{Meaning, known};
use super::pattern::{FieldKind, Values, duration_us, elapsed_us, exponential};
use super::stamp::Stamp;
use super::{Declared, FormatError, Instant, NS_PER_MS, NS_PER_S, Request, SECONDS_MAX, Stamps};

/// Deepest nesting of objects and arrays that is accepted.
const DEPTH_MAX: usize = 16;

/// Longest path of a key that is recognised.
const PATH_BYTES_MAX: usize = 128;

/// The meanings that can be given, by name.
const GIVEN: [(&str, Meaning); 13] = [
    ("time", Meaning::Time(Instant::End)),
    ("end", Meaning::Time(Instant::End)),
    ("start", Meaning::Time(Instant::Start)),
    ("elapsed_s", Meaning::Elapsed(NS_PER_S as u64)),
    ("elapsed_ms", Meaning::Elapsed(NS_PER_MS as u64)),
    ("elapsed_us", Meaning::Elapsed(1000)),
    ("elapsed_ns", Meaning::Elapsed(1)),
    ("status", Meaning::Fact(Fact::Status)),
    ("bytes", Meaning::Fact(Fact::Bytes)),
    ("method", Meaning::Fact(Fact::Method)),
    ("request", Meaning::Fact(Fact::RequestLine)),
    ("outcome", Meaning::Fact(Fact::Outcome)),
    ("tls", Meaning::Fact(Fact::Tls)),
];

/// A server whose elapsed time has no unit in its key.
struct Writer {
    /// Keys that only this server writes together.
    signs: &'static [&'static [u8]],
    /// The key of the elapsed time.
    key: &'static [u8],
    unit_ns: u64,
}

const WRITERS: [Writer; 7] = [
    // Azure's Application Gateway.
    Writer {
        signs: &[b"properties.httpStatus", b"properties.instanceId"],
        key: b"properties.timeTaken",
        unit_ns: NS_PER_S as u64,
    },
    // Caddy, also its older versions.
    Writer {
        signs: &[b"request.method", b"resp_headers"],
        key: b"duration",
        unit_ns: NS_PER_S as u64,
    },
    Writer {
        signs: &[b"request.method", b"request.headers", b"size"],
        key: b"duration",
        unit_ns: NS_PER_S as u64,
    },
    // Envoy, and Istio.
    Writer {
        signs: &[b"response_code", b"response_flags"],
        key: b"duration",
        unit_ns: NS_PER_MS as u64,
    },
    // Rails with lograge.
    Writer { signs: &[b"controller", b"action"], key: b"duration", unit_ns: NS_PER_MS as u64 },
    // Serilog's request logging.
    Writer {
        signs: &[b"RequestMethod", b"StatusCode", b"@t"],
        key: b"Elapsed",
        unit_ns: NS_PER_MS as u64,
    },
    // Heroku's router.
    Writer { signs: &[b"dyno", b"connect"], key: b"service", unit_ns: NS_PER_MS as u64 },
];

/// The keys of one log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Keys {
    given: Vec<(Box<[u8]>, Meaning)>,
    /// The key of an elapsed time whose unit is known by the server that wrote the first request.
    inferred: Option<(&'static [u8], Meaning)>,
    /// Whether lines are `key=value` pairs.
    pairs: bool,
    /// The stamps and the elapsed time as detected from a line.
    pub(super) declared: Declared,
}

impl Keys {
    /// Parses `elapsed_s=duration,status=response.code`.
    pub(crate) fn compile(dialect: &'static str, given: &str) -> Result<Keys, FormatError> {
        let mut keys = Keys { pairs: dialect == LOGFMT, ..Keys::default() };
        let mut column = 1;
        for part in given.split(',') {
            let error = |what: &str, fix: String| FormatError {
                dialect,
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
        keys.declared.text = format!("{dialect}:{given}");
        Ok(keys)
    }

    /// Keys of lines of `key=value` pairs.
    pub(super) fn of_pairs() -> Keys {
        Keys { pairs: true, ..Keys::default() }
    }

    /// The same keys, with the stamps and the elapsed time as detected from a line; `None` if the
    /// line is no request or has no time.
    pub(crate) fn detected_from(
        &self,
        line: &[u8],
        outer: Option<Stamp>,
        stamps: &mut Stamps,
    ) -> Option<Keys> {
        let mut keys = Keys { inferred: self.infer(line), ..self.clone() };
        let found = keys.find(line, stamps).filter(|found| found.is_request)?;
        let name = if self.pairs { LOGFMT } else { "json" };
        let text = &self.declared.text;
        keys.declared = Declared {
            instant: found.instant,
            grain_ns: found.values.stamp.or(outer)?.grain_ns.max(1),
            elapsed: found.elapsed,
            text: if text.is_empty() { name.to_owned() } else { text.clone() },
        };
        Some(keys)
    }

    /// Parses a line. `outer` is the time of a line that has none, from around it.
    #[inline(never)]
    pub(super) fn read(
        &self,
        line: &[u8],
        outer: Option<Stamp>,
        stamps: &mut Stamps,
    ) -> Option<Request> {
        let mut found = self.find(line, stamps).filter(|found| found.is_request)?;
        found.values.stamp = found.values.stamp.or(outer);
        found.values.request(found.instant)
    }

    /// Whether a line is an object, but no request.
    pub(super) fn is_event(&self, line: &[u8], stamps: &mut Stamps) -> bool {
        self.find(line, stamps).is_some_and(|found| !found.is_request)
    }

    /// What to type if a key is an elapsed time, whose value is a number without a unit.
    #[cfg(feature = "survey")]
    pub(super) fn elapsed_hint(&self, line: &[u8]) -> Option<String> {
        let mut hint = None;
        self.scan(line, &mut |path, value| {
            let (Value::Plain(number) | Value::String(number)) = value else { return };
            let digits = number.first().is_some_and(u8::is_ascii_digit);
            if hint.is_none() && digits && elapsed(path) == Some(Meaning::Lasting) {
                let (key, number) =
                    (String::from_utf8_lossy(path), String::from_utf8_lossy(number));
                hint = Some(format!(
                    "not read: {key} is {number}, in no known unit. Give --format \
                     json:elapsed_ms={key}, or elapsed_s, elapsed_us, elapsed_ns"
                ));
            }
        })?;
        hint
    }

    /// The key of an elapsed time whose unit depends on who wrote the line.
    fn infer(&self, line: &[u8]) -> Option<(&'static [u8], Meaning)> {
        let mut seen = [0; WRITERS.len()];
        self.scan(line, &mut |path, _| {
            for (writer, seen) in WRITERS.iter().zip(&mut seen) {
                *seen += usize::from(writer.signs.contains(&path));
            }
        })?;
        let mut writers = WRITERS.iter().zip(seen);
        let (writer, _) = writers.find(|(writer, seen)| *seen == writer.signs.len())?;
        Some((writer.key, Meaning::Elapsed(writer.unit_ns)))
    }

    fn find(&self, line: &[u8], stamps: &mut Stamps) -> Option<Found> {
        let mut found = Found::default();
        let mut fault = false;
        let mut place = 0;
        self.scan(line, &mut |path, value| {
            let known = stamps.shape.known(place, path);
            place += 1;
            if let Some((meaning, rank)) = self.meaning(path, known) {
                fault |= found.take(meaning, rank, value, stamps).is_none();
            }
        })?;
        (!fault).then_some(found)
    }

    /// Reports all members of a line; `None` if it is not complete.
    fn scan<'l>(&self, line: &'l [u8], report: &mut impl FnMut(&[u8], Value<'l>)) -> Option<()> {
        if self.pairs {
            return pairs(line, report);
        }
        let bytes = line.trim_ascii();
        let mut scan = Scan { bytes, at: 0, path: [0; PATH_BYTES_MAX], depth: 0 };
        scan.value(0, report)?;
        (scan.at == bytes.len() && bytes.first() == Some(&b'{')).then_some(())
    }

    /// What a key means, and its rank: given keys take precedence over known ones.
    #[inline]
    fn meaning(&self, path: &[u8], known: Option<Meaning>) -> Option<(Meaning, u8)> {
        if let Some((_, meaning)) = self.given.iter().find(|(key, _)| **key == *path) {
            return Some((*meaning, GIVEN_RANK));
        }
        let inferred = self.inferred.filter(|(key, _)| *key == path).map(|(_, meaning)| meaning);
        Some((inferred.or(known)?, KNOWN_RANK))
    }
}

impl Found {
    /// Takes the value of a key.
    #[inline(never)]
    fn take(
        &mut self,
        meaning: Meaning,
        rank: u8,
        value: Value<'_>,
        stamps: &mut Stamps,
    ) -> Option<()> {
        let kind = kind(meaning);
        if self.rank[kind] >= rank {
            return Some(());
        }
        let (bytes, usable) = match value {
            Value::String(bytes) | Value::Plain(bytes) if bytes != b"null" => (bytes, true),
            Value::Object => (&b"true"[..], meaning == Meaning::Fact(Fact::Tls)),
            _ => (&b"-"[..], !matches!(meaning, Meaning::Time(_) | Meaning::Lasting)),
        };
        if !usable {
            return Some(());
        }
        match self.values.take_meaning(meaning, bytes, stamps) {
            Some(true) => {
                self.rank[kind] = rank;
                self.take_evidence(meaning, bytes, rank == GIVEN_RANK);
            }
            // A value without a unit, or a word where a number is meant: another meaning.
            Some(false) => {}
            None if rank == KNOWN_RANK => {}
            None => return None,
        }
        Some(())
    }
}

impl Values {
    /// Takes the value of a key. `Some(false)` if it has no unit.
    fn take_meaning(
        &mut self,
        meaning: Meaning,
        bytes: &[u8],
        stamps: &mut Stamps,
    ) -> Option<bool> {
        match meaning {
            Meaning::Time(_) => self.stamp = Some(time(bytes, stamps)?),
            Meaning::Lasting => match duration_us(bytes) {
                Some(us) => self.elapsed_us = Some(us),
                None => return Some(false),
            },
            Meaning::Elapsed(unit_ns) => self.elapsed_us = lasting_us(bytes, unit_ns)?,
            Meaning::Fact(fact) => self.facts.take(fact, bytes)?,
        }
        Some(true)
    }
}

impl Found {
    /// Notes what shows that this is a request.
    fn take_evidence(&mut self, meaning: Meaning, bytes: &[u8], given: bool) {
        match meaning {
            Meaning::Time(instant) => self.instant = instant,
            Meaning::Elapsed(_) | Meaning::Lasting => {
                self.elapsed = true;
                self.is_request |= given;
            }
            Meaning::Fact(_) if given => self.is_request = true,
            Meaning::Fact(Fact::Status) => {
                self.is_request |= self.values.facts.status.is_some_and(|status| status >= 100);
            }
            Meaning::Fact(Fact::Method) => {
                let upper = bytes.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'-');
                self.is_request |= upper && (3..=20).contains(&bytes.len());
            }
            Meaning::Fact(Fact::RequestLine) => {
                self.is_request |= memchr::memmem::find(bytes, b" HTTP/").is_some();
            }
            Meaning::Fact(_) => {}
        }
    }
}

/// An elapsed time in a unit of ns, or in the unit that its value has.
fn lasting_us(bytes: &[u8], unit_ns: u64) -> Option<Option<u64>> {
    if bytes.last().is_some_and(|byte| byte.is_ascii_alphabetic()) {
        return duration_us(bytes).map(Some);
    }
    match unit_ns {
        1 => Some(elapsed_us(bytes, 1)?.map(|ns| ns / 1000)),
        unit_ns => elapsed_us(bytes, unit_ns / 1000),
    }
}

/// The name of the format of `key=value` pairs.
pub(super) const LOGFMT: &str = "logfmt";

/// Fewest pairs of a line of logfmt.
const PAIRS_MIN: usize = 3;

/// Reports the pairs of a line; `None` if it is not made of pairs.
fn pairs<'l>(line: &'l [u8], report: &mut impl FnMut(&[u8], Value<'l>)) -> Option<()> {
    let mut rest = line.trim_ascii();
    let mut found = 0;
    while !rest.is_empty() {
        let sign = rest.iter().position(|byte| matches!(byte, b'=' | b' ' | b'"'))?;
        if rest[sign] != b'=' || sign == 0 {
            return None;
        }
        let (key, value) = (&rest[..sign], &rest[sign + 1..]);
        let (bytes, after) = match value.strip_prefix(b"\"") {
            Some(inside) => {
                let end = super::clf::quote_end(inside)?;
                (&inside[..end], &inside[end + 1..])
            }
            None => value.split_at(memchr::memchr(b' ', value).unwrap_or(value.len())),
        };
        report(key, Value::String(bytes));
        found += 1;
        rest = after.trim_ascii_start();
    }
    (found >= PAIRS_MIN).then_some(())
}

/// A line of text within a JSON object.
pub(super) struct Within {
    pub(super) text: Vec<u8>,
    /// The time of the object.
    pub(super) stamp: Option<Stamp>,
    /// Whether it was written to the standard error.
    pub(super) to_stderr: bool,
}

/// The line that a collector of logs has put into an object: docker's `log`, journald's `MESSAGE`,
/// and others.
pub(super) fn text_within(object: &[u8], stamps: &mut Stamps) -> Option<Within> {
    let (mut text, mut stamp, mut to_stderr) = (None, None, false);
    Keys::default().scan(object, &mut |path, value| {
        let Value::String(bytes) = value else { return };
        match path {
            b"log" | b"message" | b"MESSAGE" | b"line" | b"textPayload" => {
                text = text.or(Some(bytes));
            }
            b"stream" => to_stderr = bytes == b"stderr",
            path if matches!(known(path), Some(Meaning::Time(_))) => {
                stamp = stamp.or_else(|| time(bytes, stamps));
            }
            _ => {}
        }
    })?;
    let text = unescaped(text?);
    let end = text.trim_ascii_end().len();
    Some(Within { text: text[..end].to_vec(), stamp, to_stderr })
}

/// The text of a JSON string. What is not one of its escapes stays as it is.
fn unescaped(string: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(string.len());
    let mut at = 0;
    while let Some(&byte) = string.get(at) {
        at += 1;
        if byte != b'\\' {
            text.push(byte);
            continue;
        }
        let escape = string.get(at).copied().unwrap_or(b'\\');
        at += 1;
        match escape {
            b'n' => text.push(b'\n'),
            b't' => text.push(b'\t'),
            b'r' => text.push(b'\r'),
            b'u' => {
                let code = string.get(at..at + 4).and_then(|hex| std::str::from_utf8(hex).ok());
                let code = code.and_then(|hex| u32::from_str_radix(hex, 16).ok());
                let letter = code.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
                text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                at += 4;
            }
            other => text.push(other),
        }
    }
    text
}

/// The values found in a line.
#[derive(Default)]
struct Found {
    values: Values,
    instant: Instant,
    elapsed: bool,
    /// Whether something shows that this is a request.
    is_request: bool,
    /// By kind: 0 not found, or the rank of the key. Of equals, the first counts.
    rank: [u8; 7],
}

/// The rank of a value by a known key.
const KNOWN_RANK: u8 = 1;

/// The rank of a value by a given key.
const GIVEN_RANK: u8 = 2;

fn kind(meaning: Meaning) -> usize {
    match meaning {
        Meaning::Time(_) => 0,
        Meaning::Elapsed(_) | Meaning::Lasting => 1,
        Meaning::Fact(Fact::Status) => 2,
        Meaning::Fact(Fact::Bytes) => 3,
        Meaning::Fact(Fact::Outcome) => 5,
        Meaning::Fact(Fact::Tls) => 6,
        // The method, by itself or in a request line.
        Meaning::Fact(_) => 4,
    }
}

/// An instant in any form that logs use: seconds, milliseconds, microseconds or nanoseconds since
/// the epoch (distinguished by their size), ISO 8601, or Apache's form.
fn time(value: &[u8], stamps: &mut Stamps) -> Option<Stamp> {
    if value.len() == 26 && value[2] == b'/' {
        return Some(Stamp { ns: stamps.zoned(value)? * NS_PER_S, grain_ns: NS_PER_S });
    }
    if value.get(4) == Some(&b'-') {
        return stamps.iso(value);
    }
    if value.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        // JavaScript and Python write large and small numbers so.
        let number = exponential(value).filter(|number| *number < 9e18)?.round();
        return time(format!("{number:.0}").as_bytes(), stamps);
    }
    let whole = value.split(|&byte| byte == b'.').next()?;
    let kind = match whole.len() {
        ..=11 => FieldKind::Epoch(1),
        12..=14 => FieldKind::EpochOf(NS_PER_MS),
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

/// The report of members that have no path, because they are within an array.
fn ignore(_: &[u8], _: Value<'_>) {}

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
    fn value(&mut self, path: usize, report: &mut impl FnMut(&[u8], Value<'l>)) -> Option<()> {
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

    fn object(&mut self, path: usize, report: &mut impl FnMut(&[u8], Value<'l>)) -> Option<()> {
        self.enter()?;
        if !self.closes(b'}') {
            loop {
                self.spaces();
                let key = self.string()?;
                self.spaces();
                self.byte(b':')?;
                self.spaces();
                self.member(path, key, report)?;
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

    /// A member of an object. It is not reported if its path is too long.
    #[inline]
    fn member(
        &mut self,
        path: usize,
        key: &[u8],
        report: &mut impl FnMut(&[u8], Value<'l>),
    ) -> Option<()> {
        let value = match self.bytes.get(self.at)? {
            b'"' => Value::String(self.string()?),
            b'{' | b'[' => {
                let object = self.bytes[self.at] == b'{';
                let within = self.extend(path, key);
                if let Some(end) = within {
                    report(&self.path[..end], if object { Value::Object } else { Value::Array });
                }
                return match within.filter(|_| object) {
                    Some(end) => self.object(end, report),
                    None => self.value(path, &mut ignore),
                };
            }
            _ => Value::Plain(self.plain()?),
        };
        if path == 0 && key.len() <= PATH_BYTES_MAX {
            report(key, value);
        } else if let Some(end) = self.extend(path, key) {
            report(&self.path[..end], value);
        }
        Some(())
    }

    fn array(&mut self, path: usize) -> Option<()> {
        self.enter()?;
        if !self.closes(b']') {
            loop {
                self.spaces();
                self.value(path, &mut ignore)?;
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
