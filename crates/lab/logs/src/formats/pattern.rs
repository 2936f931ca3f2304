//! A format string, compiled once into pieces that are matched against a line from left to right.
//!
//! ```text
//! "$remote_addr [$time_local] $status"  ->  Text  " ["  Zoned  "] "  Status
//! ```
//!
//! A value ends where the next literal begins. Between quotes, an escaped quote ends nothing.
//! Nothing is allocated per line and nothing is tried twice, with one exception: free text before a
//! time may contain the literal between them (a user name with a bracket), and then the next place
//! is tried, [`TRIES_MAX`] times at most.
//!
//! Invariant, ensured by the builder: a field is followed by a literal or the end, or it knows its
//! own length.

use super::facts::{Fact, Facts};
use super::stamp::{Stamp, Strftime, fraction_ns};
use super::{Declared, ELAPSED_MS_MAX, FormatError, Instant, NS_PER_S, Request};
use super::{SECONDS_MAX, Stamps, digits, long_digits};

/// Possible ends of a text that are tried if a time follows it.
const TRIES_MAX: usize = 16;

/// The kind of a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FieldKind {
    /// Not counted.
    Text,
    /// A time that is not needed, but knows where it ends.
    Passed(Box<FieldKind>),
    /// Seconds since the epoch, with or without a fraction. Grain, ns.
    Epoch(i64),
    /// Milliseconds or microseconds since the epoch. Unit, ns.
    EpochOf(i64),
    /// Digits of the second's fraction. Unit, ns.
    Fraction(i64),
    /// `10/Oct/2000:13:55:36 -0700`, in brackets or not.
    Zoned { brackets: bool },
    /// ISO 8601.
    Iso,
    /// A custom form.
    Strftime(Strftime),
    /// An elapsed time, with or without a fraction. Unit, us.
    Elapsed(u64),
    /// What a line says besides its time.
    Fact(Fact),
}

impl FieldKind {
    fn is_time(&self) -> bool {
        use FieldKind::*;
        matches!(self, Epoch(_) | EpochOf(_) | Fraction(_) | Zoned { .. } | Iso | Strftime(_))
    }

    /// Whether it determines its own length.
    fn knows_its_length(&self) -> bool {
        matches!(self, FieldKind::Zoned { .. } | FieldKind::Strftime(_) | FieldKind::Passed(_))
    }

    fn is_number(&self) -> bool {
        matches!(
            self,
            FieldKind::Epoch(_)
                | FieldKind::EpochOf(_)
                | FieldKind::Fraction(_)
                | FieldKind::Elapsed(_)
                | FieldKind::Fact(Fact::Status | Fact::Bytes)
        )
    }

    fn grain_ns(&self) -> i64 {
        match self {
            FieldKind::Epoch(grain_ns)
            | FieldKind::EpochOf(grain_ns)
            | FieldKind::Fraction(grain_ns) => *grain_ns,
            _ => NS_PER_S,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Literal(Box<[u8]>),
    /// Any number of spaces, as padding.
    Spaces,
    Field(FieldKind),
}

/// A compiled format string.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pattern {
    pieces: Box<[Piece]>,
    pub(super) declared: Declared,
}

impl Pattern {
    /// Parses a line.
    pub(super) fn read(&self, line: &[u8], stamps: &mut Stamps) -> Option<Request> {
        let mut values = Values::default();
        let mut at = 0;
        let mut quoted = false;
        for (index, piece) in self.pieces.iter().enumerate() {
            let rest = &line[at..];
            at += match piece {
                Piece::Literal(literal) => {
                    quoted = literal.last() == Some(&b'"');
                    rest.starts_with(literal).then_some(literal.len())?
                }
                Piece::Spaces => rest.iter().take_while(|&&byte| byte == b' ').count(),
                Piece::Field(what) if what.knows_its_length() => {
                    values.take_sized(what, rest, stamps)?
                }
                Piece::Field(what) => {
                    let length = self.length(index, what, rest, quoted, stamps)?;
                    values.take(what, &rest[..length], stamps)?;
                    length
                }
            };
        }
        if at < line.len() {
            return None;
        }
        values.request(self.declared.instant)
    }

    /// The length of a value.
    fn length(
        &self,
        index: usize,
        what: &FieldKind,
        rest: &[u8],
        quoted: bool,
        stamps: &mut Stamps,
    ) -> Option<usize> {
        let literal = match self.pieces.get(index + 1) {
            None => return Some(rest.len()),
            Some(Piece::Literal(literal)) => literal,
            Some(_) => {
                let digit = |byte: &u8| byte.is_ascii_digit() || *byte == b'-';
                return Some(rest.iter().take_while(|byte| digit(byte)).count());
            }
        };
        let timed = match self.pieces.get(index + 2) {
            Some(Piece::Field(next)) if *what == FieldKind::Text && next.knows_its_length() => next,
            _ => return find(rest, 0, literal, quoted),
        };
        let mut from = 0;
        for _ in 0..TRIES_MAX {
            let end = find(rest, from, literal, quoted)?;
            let after = &rest[end + literal.len()..];
            if Values::default().take_sized(timed, after, stamps).is_some() {
                return Some(end);
            }
            from = end + 1;
        }
        None
    }
}

/// The first position of a literal, starting at `from`. In quotes, a backslash escapes the next
/// byte.
fn find(bytes: &[u8], mut from: usize, literal: &[u8], quoted: bool) -> Option<usize> {
    let first = *literal.first()?;
    let escaped = quoted && first == b'"';
    loop {
        let rest = bytes.get(from..)?;
        let at = from
            + if escaped {
                memchr::memchr2(first, b'\\', rest)?
            } else {
                memchr::memchr(first, rest)?
            };
        if bytes[at] != first {
            from = at + 2;
        } else if literal.len() == 1 || bytes[at..].starts_with(literal) {
            return Some(at);
        } else {
            from = at + 1;
        }
    }
}

/// The values of a line's fields so far.
#[derive(Default)]
pub(super) struct Values {
    pub(super) stamp: Option<Stamp>,
    fraction: Option<(i64, i64)>,
    pub(super) elapsed_us: Option<u64>,
    pub(super) facts: Facts,
}

impl Values {
    /// Takes a field that knows its own length, and returns that length.
    fn take_sized(&mut self, what: &FieldKind, rest: &[u8], stamps: &mut Stamps) -> Option<usize> {
        match what {
            FieldKind::Zoned { brackets } => {
                let edge = usize::from(*brackets);
                let stamp = rest.get(edge..edge + 26)?;
                if *brackets && (rest[0] != b'[' || *rest.get(27)? != b']') {
                    return None;
                }
                self.stamp =
                    Some(Stamp { ns: stamps.zoned(stamp)? * NS_PER_S, grain_ns: NS_PER_S });
                Some(26 + 2 * edge)
            }
            FieldKind::Strftime(form) => {
                let (ns, length) = form.read(rest)?;
                self.stamp = Some(Stamp { ns, grain_ns: NS_PER_S });
                Some(length)
            }
            FieldKind::Passed(what) => Values::default().take_sized(what, rest, stamps),
            _ => None,
        }
    }

    /// Takes the value of a field.
    pub(super) fn take(
        &mut self,
        what: &FieldKind,
        value: &[u8],
        stamps: &mut Stamps,
    ) -> Option<()> {
        match what {
            FieldKind::Text => {}
            FieldKind::Fact(fact) => self.facts.take(*fact, value)?,
            FieldKind::Elapsed(unit_us) => {
                self.elapsed_us = elapsed_us(value.trim_ascii(), *unit_us)?
            }
            FieldKind::Epoch(_) => self.stamp = Some(epoch(value.trim_ascii(), NS_PER_S)?),
            FieldKind::EpochOf(unit_ns) => self.stamp = Some(epoch(value.trim_ascii(), *unit_ns)?),
            FieldKind::Fraction(unit_ns) => {
                let ns = digits(value.trim_ascii())?.checked_mul(*unit_ns)?;
                self.fraction = Some(((0..NS_PER_S).contains(&ns).then_some(ns)?, *unit_ns));
            }
            FieldKind::Iso => self.stamp = Some(stamps.iso(value)?),
            FieldKind::Zoned { .. } | FieldKind::Strftime(_) | FieldKind::Passed(_) => {
                self.take_sized(what, value, stamps)?;
            }
        }
        Some(())
    }

    /// The request; `None` if there was no time.
    pub(super) fn request(self, instant: Instant) -> Option<Request> {
        let mut stamp = self.stamp?;
        if let Some((ns, grain_ns)) = self.fraction {
            stamp = Stamp { ns: stamp.ns + ns, grain_ns };
        }
        Some(Request::lived(stamp.ns, stamp.grain_ns, instant, self.elapsed_us, self.facts))
    }
}

/// A time since the epoch in this unit.
fn epoch(value: &[u8], unit_ns: i64) -> Option<Stamp> {
    let (whole, fraction) = halves(value);
    let whole = long_digits(whole)?;
    let (fraction, mut grain_ns) = fraction_ns(fraction)?;
    grain_ns = (grain_ns / (NS_PER_S / unit_ns)).max(1);
    let ns = whole.checked_mul(unit_ns)? + fraction / (NS_PER_S / unit_ns);
    (ns / NS_PER_S <= SECONDS_MAX).then_some(Stamp { ns, grain_ns })
}

/// An elapsed time; `Some(None)` if the server did not know it.
pub(super) fn elapsed_us(value: &[u8], unit_us: u64) -> Option<Option<u64>> {
    if matches!(value, b"-" | b"-1" | b"") {
        return Some(None);
    }
    if value.iter().any(|byte| byte | 0x20 == b'e') {
        let number = exponential(value)? * unit_us as f64;
        return (number / 1000.0 <= ELAPSED_MS_MAX as f64).then_some(Some(number.round() as u64));
    }
    let (whole, fraction) = halves(value);
    let whole = u64::try_from(digits(whole)?).ok()?;
    let (ns, _) = fraction_ns(fraction)?;
    let us = whole.checked_mul(unit_us)? + ns as u64 * unit_us / NS_PER_S as u64;
    (us / 1000 <= ELAPSED_MS_MAX as u64).then_some(Some(us))
}

/// A number with an exponent, as `9.29e-05`, which is not negative.
pub(super) fn exponential(value: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// A length of time with its units, in us: `12ms`, `1.5s`, `345µs`, `2m3.5s`, `12.3 ms`. Shorter
/// than a microsecond is 0.
pub(super) fn duration_us(mut value: &[u8]) -> Option<u64> {
    if value == b"0" {
        return Some(0);
    }
    let mut sum_ns = 0u64;
    let mut parts = 0;
    while !value.is_empty() {
        let number = value.iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count();
        let rest = value[number..].trim_ascii_start();
        let unit = rest.iter().take_while(|b| !b.is_ascii_digit()).count();
        let unit_ns: u64 = match rest[..unit].trim_ascii() {
            b"ns" => 1,
            b"us" | b"\xc2\xb5s" | b"\xce\xbcs" => 1000,
            b"ms" => 1_000_000,
            b"s" => 1_000_000_000,
            b"m" => 60_000_000_000,
            b"h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = halves(&value[..number]);
        let whole = u64::try_from(digits(whole)?).ok()?.checked_mul(unit_ns)?;
        let (fraction_ns, _) = fraction_ns(fraction)?;
        let fraction = u128::from(fraction_ns.unsigned_abs()) * u128::from(unit_ns);
        let fraction = u64::try_from(fraction / NS_PER_S as u128).ok()?;
        sum_ns = sum_ns.checked_add(whole)?.checked_add(fraction)?;
        value = &rest[unit..];
        parts += 1;
    }
    (parts > 0 && sum_ns / 1_000_000 <= ELAPSED_MS_MAX as u64).then_some(sum_ns / 1000)
}

fn halves(value: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b'.', value) {
        Some(at) => (&value[..at], &value[at + 1..]),
        None => (value, b""),
    }
}

/// A field of the string, and its position.
struct Found {
    what: FieldKind,
    instant: Instant,
    column: usize,
    text: String,
}

/// Builds a pattern, and reports why a string is not one.
pub(super) struct Builder {
    dialect: &'static str,
    parts: Vec<Part>,
    fields: Vec<Found>,
}

enum Part {
    Byte(u8),
    Spaces,
    /// An index into the list of fields; padded with spaces on its right.
    Field {
        at: usize,
        padded: bool,
    },
}

impl Builder {
    pub(super) fn new(dialect: &'static str) -> Builder {
        Builder { dialect, parts: Vec::new(), fields: Vec::new() }
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.parts.push(Part::Byte(byte));
    }

    /// Padding before the next field.
    pub(super) fn spaces(&mut self) {
        self.parts.push(Part::Spaces);
    }

    /// A field at `column` (from 1) of the string, written as `text`.
    pub(super) fn field(&mut self, what: FieldKind, instant: Instant, column: usize, text: &str) {
        self.parts.push(Part::Field { at: self.fields.len(), padded: false });
        self.fields.push(Found { what, instant, column, text: text.to_owned() });
    }

    /// The last field is padded on its right.
    pub(super) fn padded(&mut self) {
        if let Some(Part::Field { padded, .. }) = self.parts.last_mut() {
            *padded = true;
        }
    }

    /// The pattern, if its lines can be parsed and contain a time. `fix` says how this dialect
    /// writes the time best.
    pub(super) fn finish(mut self, given: &str, fix: &'static str) -> Result<Pattern, FormatError> {
        let (instant, grain_ns) = self.choose_clock().ok_or_else(|| FormatError {
            dialect: self.dialect,
            column: given.chars().count() + 1,
            found: String::new(),
            what: "it has no time, so its lines cannot be assigned to intervals".to_owned(),
            fix: fix.to_owned(),
        })?;
        let elapsed = self.choose_elapsed();
        for alike in [
            |what: &FieldKind| *what == FieldKind::Fact(Fact::Status),
            |what: &FieldKind| *what == FieldKind::Fact(Fact::Bytes),
            |what: &FieldKind| matches!(what, FieldKind::Fact(Fact::Method | Fact::RequestLine)),
            |what: &FieldKind| *what == FieldKind::Fact(Fact::Outcome),
            |what: &FieldKind| *what == FieldKind::Fact(Fact::Tls),
        ] {
            let fields = self.fields.iter_mut().filter(|field| alike(&field.what));
            fields.skip(1).for_each(|field| field.what = FieldKind::Text);
        }
        let pieces = self.pieces()?;
        let text = format!("{}:{given}", self.dialect);
        let declared = Declared { instant, grain_ns, elapsed, text };
        Ok(Pattern { pieces: pieces.into(), declared })
    }

    /// Chooses the finest clock; other times become text.
    fn choose_clock(&mut self) -> Option<(Instant, i64)> {
        let of = |instant: Instant| {
            let times = self.fields.iter().enumerate();
            let mine = times.filter(|(_, f)| f.what.is_time() && f.instant == instant);
            let fraction = |f: &Found| matches!(f.what, FieldKind::Fraction(_));
            let whole = mine.clone().filter(|(_, f)| !fraction(f));
            let (whole, grain_ns) =
                whole.map(|(at, f)| (at, f.what.grain_ns())).min_by_key(|&(at, g)| (g, at))?;
            let part = mine.filter(|(_, f)| fraction(f)).min_by_key(|(_, f)| f.what.grain_ns());
            let part = part.filter(|_| grain_ns == NS_PER_S);
            let grain_ns = part.map_or(grain_ns, |(_, f)| f.what.grain_ns());
            Some((grain_ns, whole, part.map(|(at, _)| at), instant))
        };
        let found = [of(Instant::End), of(Instant::Start)];
        let (grain_ns, whole, part, instant) =
            found.into_iter().flatten().min_by_key(|found| found.0)?;
        for (at, field) in self.fields.iter_mut().enumerate() {
            if !field.what.is_time() || at == whole || Some(at) == part {
                continue;
            }
            // A textual time contains spaces, and is still skipped as one field.
            let what = std::mem::replace(&mut field.what, FieldKind::Text);
            if what.knows_its_length() {
                field.what = FieldKind::Passed(Box::new(what));
            }
        }
        Some((instant, grain_ns))
    }

    /// Chooses the finest elapsed time. Returns whether there is one.
    fn choose_elapsed(&mut self) -> bool {
        let unit = |field: &Found| match field.what {
            FieldKind::Elapsed(unit_us) => Some(unit_us),
            _ => None,
        };
        let units = self.fields.iter().enumerate().filter_map(|(at, f)| Some((unit(f)?, at)));
        let Some((_, kept)) = units.min() else { return false };
        for (at, field) in self.fields.iter_mut().enumerate() {
            if unit(field).is_some() && at != kept {
                field.what = FieldKind::Text;
            }
        }
        true
    }

    fn pieces(&self) -> Result<Vec<Piece>, FormatError> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut literal: Vec<u8> = Vec::new();
        // A field whose padding was not allowed for yet, and the last field.
        let mut padding = false;
        let mut last: Option<&Found> = None;
        for part in &self.parts {
            match part {
                Part::Byte(byte) => {
                    literal.push(*byte);
                    if std::mem::take(&mut padding) && *byte == b' ' {
                        pieces.push(Piece::Literal(std::mem::take(&mut literal).into()));
                        pieces.push(Piece::Spaces);
                    }
                    last = None;
                }
                Part::Spaces => {
                    if !literal.is_empty() {
                        pieces.push(Piece::Literal(std::mem::take(&mut literal).into()));
                    }
                    if last.is_none() {
                        pieces.push(Piece::Spaces);
                    }
                }
                Part::Field { at, padded } => {
                    let field = &self.fields[*at];
                    if !literal.is_empty() {
                        pieces.push(Piece::Literal(std::mem::take(&mut literal).into()));
                    }
                    padding = *padded;
                    match last {
                        Some(before)
                            if before.what == FieldKind::Text && field.what == FieldKind::Text =>
                        {
                            continue;
                        }
                        Some(before) => self.parted(before, field)?,
                        None => {}
                    }
                    pieces.push(Piece::Field(field.what.clone()));
                    last = Some(field);
                }
            }
        }
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal.into()));
        }
        Ok(pieces)
    }

    /// Whether a line can be split between two adjacent fields.
    fn parted(&self, before: &Found, after: &Found) -> Result<(), FormatError> {
        let clear = before.what.knows_its_length()
            || before.what.is_number() && !after.what.is_number() && after.what != FieldKind::Text;
        if clear {
            return Ok(());
        }
        Err(FormatError {
            dialect: self.dialect,
            column: after.column,
            found: after.text.clone(),
            what: format!("nothing separates it from {} before it", before.text),
            fix: "put a space between them, in the server's configuration too".to_owned(),
        })
    }
}
