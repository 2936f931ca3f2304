//! A format string, compiled once into pieces that a line is held against from left to right.
//!
//! ```text
//! "$remote_addr [$time_local] $status"  ->  Text  " ["  Zoned  "] "  Status
//! ```
//!
//! A value ends where the literal behind it begins; between quotes an escaped quote ends nothing.
//! Nothing is allocated for a line and nothing is tried twice, but for one case: a free text before
//! a time may hold the literal that parts them (a user's name with a bracket), and then the next
//! place is tried, [`TRIES_MAX`] times at most.
//!
//! Invariant, held by the builder: behind a field stands a literal, the end, or the field knows
//! its own length.

use super::facts::Facts;
use super::stamp::{Stamp, fraction_ns};
use super::strftime::Strftime;
use super::{ELAPSED_MS_MAX, FormatError, Instant, NS_PER_MS, NS_PER_S, Request, SECONDS_MAX};
use super::{Stamps, digits};

/// Places at which a text may end that are tried when a time follows it.
const TRIES_MAX: usize = 16;

/// What a field is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    /// Nothing that is counted.
    Text,
    /// A time that is not needed, but knows where it ends.
    Passed(Box<What>),
    /// Seconds since the epoch, with or without a fraction; its grain, ns.
    Epoch(i64),
    /// Milliseconds or microseconds since the epoch: what one is worth, ns.
    EpochOf(i64),
    /// Digits of the second's fraction: what one is worth, ns.
    Fraction(i64),
    /// `10/Oct/2000:13:55:36 -0700`, in brackets or not.
    Zoned {
        brackets: bool,
    },
    /// ISO 8601.
    Iso,
    /// A form of its own.
    Strftime(Strftime),
    /// A length of time, with or without a fraction: what one is worth, us.
    Elapsed(u64),
    Status,
    Bytes,
    Method,
    RequestLine,
    Outcome,
    Tls,
}

impl What {
    fn is_time(&self) -> bool {
        use What::*;
        matches!(self, Epoch(_) | EpochOf(_) | Fraction(_) | Zoned { .. } | Iso | Strftime(_))
    }

    /// Knows where it ends without being told.
    fn knows_its_length(&self) -> bool {
        matches!(self, What::Zoned { .. } | What::Strftime(_) | What::Passed(_))
    }

    fn is_number(&self) -> bool {
        use What::*;
        matches!(self, Epoch(_) | EpochOf(_) | Fraction(_) | Elapsed(_) | Status | Bytes)
    }

    fn grain_ns(&self) -> i64 {
        match self {
            What::Epoch(grain_ns) | What::EpochOf(grain_ns) | What::Fraction(grain_ns) => *grain_ns,
            _ => NS_PER_S,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Literal(Box<[u8]>),
    /// Any number of spaces: what pads a value.
    Spaces,
    Field(What),
}

/// A compiled format string.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pattern {
    pieces: Box<[Piece]>,
    instant: Instant,
    grain_ns: i64,
    elapsed: bool,
    /// As it was given, with its dialect.
    text: String,
}

impl Pattern {
    /// Which instant a line stamps.
    pub(crate) fn instant(&self) -> Instant {
        self.instant
    }

    /// The grain of the stamps, ns.
    pub(crate) fn grain_ns(&self) -> i64 {
        self.grain_ns
    }

    /// Whether it tells how long a request took.
    pub(crate) fn has_elapsed(&self) -> bool {
        self.elapsed
    }

    /// As it was given.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Understands a line.
    pub(super) fn read(&self, line: &[u8], stamps: &mut Stamps) -> Option<Request> {
        let mut told = Told::default();
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
                    told.take_sized(what, rest, stamps)?
                }
                Piece::Field(what) => {
                    let length = self.length(index, what, rest, quoted, stamps)?;
                    told.take(what, &rest[..length], stamps)?;
                    length
                }
            };
        }
        if at < line.len() {
            return None;
        }
        told.request(self.instant)
    }

    /// Where a value ends.
    fn length(
        &self,
        index: usize,
        what: &What,
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
            Some(Piece::Field(next)) if *what == What::Text && next.knows_its_length() => next,
            _ => return find(rest, 0, literal, quoted),
        };
        let mut from = 0;
        for _ in 0..TRIES_MAX {
            let end = find(rest, from, literal, quoted)?;
            let behind = &rest[end + literal.len()..];
            if Told::default().take_sized(timed, behind, stamps).is_some() {
                return Some(end);
            }
            from = end + 1;
        }
        None
    }
}

/// The first place, from `from` on, at which a literal stands. In quotes a backslash takes the
/// byte behind it with it.
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

/// What the fields of a line told so far.
#[derive(Default)]
pub(super) struct Told {
    pub(super) stamp: Option<Stamp>,
    fraction: Option<(i64, i64)>,
    pub(super) elapsed_us: Option<u64>,
    pub(super) facts: Facts,
}

impl Told {
    /// Takes a field that knows its own length; how long it is.
    fn take_sized(&mut self, what: &What, rest: &[u8], stamps: &mut Stamps) -> Option<usize> {
        match what {
            What::Zoned { brackets } => {
                let edge = usize::from(*brackets);
                let stamp = rest.get(edge..edge + 26)?;
                if *brackets && (rest[0] != b'[' || *rest.get(27)? != b']') {
                    return None;
                }
                self.stamp =
                    Some(Stamp { ns: stamps.zoned(stamp)? * NS_PER_S, grain_ns: NS_PER_S });
                Some(26 + 2 * edge)
            }
            What::Strftime(form) => {
                let (ns, length) = form.read(rest)?;
                self.stamp = Some(Stamp { ns, grain_ns: NS_PER_S });
                Some(length)
            }
            What::Passed(what) => Told::default().take_sized(what, rest, stamps),
            _ => None,
        }
    }

    /// Takes the value of a field.
    pub(super) fn take(&mut self, what: &What, value: &[u8], stamps: &mut Stamps) -> Option<()> {
        match what {
            What::Text => {}
            What::Status => self.facts.take_status(value.trim_ascii())?,
            What::Bytes => self.facts.take_bytes(value.trim_ascii())?,
            What::Method => self.facts.take_method(value),
            What::RequestLine => self.facts.take_request_line(value),
            What::Outcome => self.facts.take_outcome(value),
            What::Tls => self.facts.take_tls(value),
            What::Elapsed(unit_us) => self.elapsed_us = elapsed_us(value.trim_ascii(), *unit_us)?,
            What::Epoch(_) => self.stamp = Some(epoch(value.trim_ascii(), NS_PER_S)?),
            What::EpochOf(unit_ns) => self.stamp = Some(epoch(value.trim_ascii(), *unit_ns)?),
            What::Fraction(unit_ns) => {
                let ns = digits(value.trim_ascii())?.checked_mul(*unit_ns)?;
                self.fraction = Some(((0..NS_PER_S).contains(&ns).then_some(ns)?, *unit_ns));
            }
            What::Iso => self.stamp = Some(stamps.iso(value)?),
            What::Zoned { .. } | What::Strftime(_) | What::Passed(_) => {
                self.take_sized(what, value, stamps)?;
            }
        }
        Some(())
    }

    /// The request; `None` if no time was told.
    pub(super) fn request(self, instant: Instant) -> Option<Request> {
        let mut stamp = self.stamp?;
        if let Some((ns, grain_ns)) = self.fraction {
            stamp = Stamp { ns: stamp.ns + ns, grain_ns };
        }
        Some(Request::lived(stamp.ns, stamp.grain_ns, instant, self.elapsed_us, self.facts))
    }
}

/// A time since the epoch in such units.
fn epoch(value: &[u8], unit_ns: i64) -> Option<Stamp> {
    let (whole, fraction) = halves(value);
    let whole = digits(whole)?;
    let (fraction, mut grain_ns) = fraction_ns(fraction)?;
    grain_ns = (grain_ns / (NS_PER_S / unit_ns)).max(1);
    let ns = whole.checked_mul(unit_ns)? + fraction / (NS_PER_S / unit_ns);
    (ns / NS_PER_S <= SECONDS_MAX).then_some(Stamp { ns, grain_ns })
}

/// A length of time; `Some(None)` where the server did not know it.
pub(super) fn elapsed_us(value: &[u8], unit_us: u64) -> Option<Option<u64>> {
    if matches!(value, b"-" | b"-1" | b"") {
        return Some(None);
    }
    let (whole, fraction) = halves(value);
    let whole = u64::try_from(digits(whole)?).ok()?;
    let (ns, _) = fraction_ns(fraction)?;
    let us = whole.checked_mul(unit_us)? + ns as u64 * unit_us / NS_PER_S as u64;
    (us / 1000 <= ELAPSED_MS_MAX as u64).then_some(Some(us))
}

fn halves(value: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b'.', value) {
        Some(at) => (&value[..at], &value[at + 1..]),
        None => (value, b""),
    }
}

/// A field as a dialect found it, and where in the string.
struct Found {
    what: What,
    instant: Instant,
    column: usize,
    text: String,
}

/// Puts a pattern together, and says what cannot be one.
pub(super) struct Builder {
    dialect: &'static str,
    parts: Vec<Part>,
    fields: Vec<Found>,
}

enum Part {
    Byte(u8),
    Spaces,
    /// A place in the list of fields; padded with spaces on its right.
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

    /// What pads the field that comes next.
    pub(super) fn spaces(&mut self) {
        self.parts.push(Part::Spaces);
    }

    /// A field that stands at `column` (from 1) of the string, written `text`.
    pub(super) fn field(&mut self, what: What, instant: Instant, column: usize, text: &str) {
        self.parts.push(Part::Field { at: self.fields.len(), padded: false });
        self.fields.push(Found { what, instant, column, text: text.to_owned() });
    }

    /// The last field is padded on its right.
    pub(super) fn padded(&mut self) {
        if let Some(Part::Field { padded, .. }) = self.parts.last_mut() {
            *padded = true;
        }
    }

    /// The pattern, if lines can be read by it and tell a time. `mend` says how this dialect
    /// writes the time best.
    pub(super) fn finish(
        mut self,
        given: &str,
        mend: &'static str,
    ) -> Result<Pattern, FormatError> {
        let (instant, grain_ns) = self.choose_clock().ok_or_else(|| FormatError {
            dialect: self.dialect,
            column: given.chars().count() + 1,
            found: String::new(),
            what: "no time stands in it, so that its lines are in no interval".to_owned(),
            mend: mend.to_owned(),
        })?;
        let elapsed = self.choose_elapsed();
        for alike in [
            |what: &What| *what == What::Status,
            |what: &What| *what == What::Bytes,
            |what: &What| matches!(what, What::Method | What::RequestLine),
            |what: &What| *what == What::Outcome,
            |what: &What| *what == What::Tls,
        ] {
            let fields = self.fields.iter_mut().filter(|field| alike(&field.what));
            fields.skip(1).for_each(|field| field.what = What::Text);
        }
        let pieces = self.pieces()?;
        let text = format!("{}:{given}", self.dialect);
        Ok(Pattern { pieces: pieces.into(), instant, grain_ns, elapsed, text })
    }

    /// Keeps the finest clock; other times are text.
    fn choose_clock(&mut self) -> Option<(Instant, i64)> {
        let of = |instant: Instant| {
            let times = self.fields.iter().enumerate();
            let mine = times.filter(|(_, f)| f.what.is_time() && f.instant == instant);
            let fraction = |f: &Found| matches!(f.what, What::Fraction(_));
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
            // A time in words holds spaces, and is still stepped over as one.
            let what = std::mem::replace(&mut field.what, What::Text);
            if what.knows_its_length() {
                field.what = What::Passed(Box::new(what));
            }
        }
        Some((instant, grain_ns))
    }

    /// Keeps the finest length of time; whether there is one.
    fn choose_elapsed(&mut self) -> bool {
        let unit = |field: &Found| match field.what {
            What::Elapsed(unit_us) => Some(unit_us),
            _ => None,
        };
        let units = self.fields.iter().enumerate().filter_map(|(at, f)| Some((unit(f)?, at)));
        let Some((_, kept)) = units.min() else { return false };
        for (at, field) in self.fields.iter_mut().enumerate() {
            if unit(field).is_some() && at != kept {
                field.what = What::Text;
            }
        }
        true
    }

    fn pieces(&self) -> Result<Vec<Piece>, FormatError> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut literal: Vec<u8> = Vec::new();
        // A field whose padding was not yet allowed for, and the field that stands last.
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
                        Some(before) if before.what == What::Text && field.what == What::Text => {
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

    /// Whether a line can be cut between two fields that touch.
    fn parted(&self, before: &Found, after: &Found) -> Result<(), FormatError> {
        let clear = before.what.knows_its_length()
            || before.what.is_number() && !after.what.is_number() && after.what != What::Text;
        if clear {
            return Ok(());
        }
        Err(FormatError {
            dialect: self.dialect,
            column: after.column,
            found: after.text.clone(),
            what: format!("nothing stands between it and {} before it", before.text),
            mend: "put a space between them, in the server's configuration too".to_owned(),
        })
    }
}

/// Milliseconds, for the tables of the dialects.
pub(super) const MS: i64 = NS_PER_MS;
