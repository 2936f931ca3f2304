//! The textual times of logs: `10/Oct/2000:13:55:36 -0700` and similar ones.
//!
//! Thousands of lines share a second, so the last result is cached, and so is the shape of the last
//! line.

use units::civil::Date;

use super::keys::Shape;
use super::{NS_PER_MS, NS_PER_S, SECONDS_MAX, digits};
use crate::zone;

/// The largest difference of a zone from UTC.
const ZONE_SECONDS_MAX: i64 = 14 * 3600;

/// Parses stamps and caches the last one. What is cached changes no result.
#[derive(Clone, Debug, Default)]
pub struct Stamps {
    zoned: Option<([u8; 26], i64)>,
    local: Option<([u8; 20], i64)>,
    /// The seconds of a date and time, read as UTC, and read as local time.
    iso: Option<([u8; 19], i64)>,
    iso_local: Option<([u8; 19], i64)>,
    /// The keys of the last lines of JSON.
    pub(super) shape: Shape,
}

/// An instant and its grain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) ns: i64,
    pub(super) grain_ns: i64,
}

impl Stamps {
    /// Seconds since the epoch of `10/Oct/2000:13:55:36 -0700`.
    pub(super) fn zoned(&mut self, stamp: &[u8]) -> Option<i64> {
        let stamp: &[u8; 26] = stamp.try_into().ok()?;
        if let Some((_, seconds)) = self.zoned.filter(|(last, _)| last == stamp) {
            return Some(seconds);
        }
        let (date, time) = civil(&stamp[..20])?;
        if stamp[20] != b' ' || !matches!(stamp[21], b'+' | b'-') {
            return None;
        }
        let seconds = utc(date, time) - east(stamp[21], &stamp[22..24], &stamp[24..26])?;
        self.zoned = Some((*stamp, seconds));
        Some(seconds)
    }

    /// Nanoseconds since the epoch of `06/Feb/2009:12:14:14.655`, in local time.
    pub(super) fn local_ms(&mut self, stamp: &[u8]) -> Option<i64> {
        let stamp: &[u8; 24] = stamp.try_into().ok()?;
        let (second, fraction) = stamp.split_first_chunk::<20>()?;
        let milliseconds = digits(fraction.strip_prefix(b".")?)?;
        let seconds = match self.local.filter(|(last, _)| last == second) {
            Some((_, seconds)) => seconds,
            None => {
                let (date, time) = civil(second)?;
                let seconds = zone::local_to_unix(date, time)?;
                self.local = Some((*second, seconds));
                seconds
            }
        };
        Some(seconds * NS_PER_S + milliseconds * NS_PER_MS)
    }
}

impl Stamps {
    /// Parses ISO 8601: `2015-05-17T10:05:03.042Z`, optionally with a space for the T, a zone of
    /// `+02:00` or `+0200`, or no fraction. Without a zone it is local time.
    pub(super) fn iso(&mut self, stamp: &[u8]) -> Option<Stamp> {
        let (second, rest) = stamp.split_first_chunk::<19>()?;
        let (fraction, zone) = match rest {
            [b'.' | b',', rest @ ..] => {
                let end = rest.iter().position(|byte| !byte.is_ascii_digit());
                rest.split_at(end.unwrap_or(rest.len()))
            }
            rest => (&b""[..], rest),
        };
        let east = match zone {
            b"" => None,
            b"Z" | b"z" => Some(0),
            [sign @ (b'+' | b'-'), h @ .., b':', m1, m2] => Some(east(*sign, h, &[*m1, *m2])?),
            [sign @ (b'+' | b'-'), h1, h2, m1, m2] => Some(east(*sign, &[*h1, *h2], &[*m1, *m2])?),
            _ => return None,
        };
        let seconds = match east {
            Some(east) => cached(&mut self.iso, second, |date, time| Some(utc(date, time)))? - east,
            None => cached(&mut self.iso_local, second, zone::local_to_unix)?,
        };
        let (ns, grain_ns) = fraction_ns(fraction)?;
        Some(Stamp { ns: seconds * NS_PER_S + ns, grain_ns })
    }

    /// Seconds of a date and time in UTC.
    pub(super) fn utc_seconds(date: Date, time: Time) -> Option<i64> {
        valid(date, time).then(|| utc(date, time))
    }

    /// Seconds of a date and time in local time.
    pub(super) fn local_seconds(date: Date, time: Time) -> Option<i64> {
        valid(date, time).then(|| zone::local_to_unix(date, time))?
    }
}

/// Forms that only some servers write.
impl Stamps {
    /// A time as it may be in the brackets of a common log line: Apache's form with a fraction of
    /// the second, with another name for UTC, with a space before the hour, or without a zone (in
    /// local time), or ISO 8601.
    pub(super) fn in_brackets(&mut self, stamp: &[u8]) -> Option<Stamp> {
        if stamp.get(4) == Some(&b'-') {
            return self.iso(stamp);
        }
        let (second, rest) = stamp.split_first_chunk::<20>()?;
        let mut second = *second;
        if second[11] == b' ' {
            second[11] = b':';
        }
        let (date, time) = civil(&second)?;
        let (fraction, zone) = match rest {
            [b'.' | b',', rest @ ..] => {
                let end = rest.iter().position(|byte| !byte.is_ascii_digit());
                rest.split_at(end.unwrap_or(rest.len()))
            }
            rest => (&b""[..], rest),
        };
        let seconds = match zone.trim_ascii() {
            b"" => zone::local_to_unix(date, time)?,
            b"GMT" | b"UTC" | b"Z" => utc(date, time),
            [sign @ (b'+' | b'-'), hours @ .., b':', m1, m2] => {
                utc(date, time) - east(*sign, hours, &[*m1, *m2])?
            }
            [sign @ (b'+' | b'-'), h1, h2, m1, m2] => {
                utc(date, time) - east(*sign, &[*h1, *h2], &[*m1, *m2])?
            }
            _ => return None,
        };
        let (fraction_ns, grain_ns) = fraction_ns(fraction)?;
        Some(Stamp { ns: seconds * NS_PER_S + fraction_ns, grain_ns })
    }

    /// Seconds since the epoch of `2026/11/28` and `10:00:00`, in local time.
    pub(super) fn slashed(&mut self, date: &[u8], time: &[u8]) -> Option<i64> {
        let mut second = [b'-'; 19];
        if date.len() != 10 || time.len() != 8 || date[4] != b'/' || date[7] != b'/' {
            return None;
        }
        second[..10].copy_from_slice(date);
        (second[4], second[7], second[10]) = (b'-', b'-', b' ');
        second[11..].copy_from_slice(time);
        cached(&mut self.iso_local, &second, zone::local_to_unix)
    }

    /// The instant of `2026-11-28` and `10:00:00`, with a fraction or without, in UTC.
    pub(super) fn utc(&mut self, date: &[u8], time: &[u8]) -> Option<Stamp> {
        if date.len() != 10 || !(8..=18).contains(&time.len()) {
            return None;
        }
        let mut stamp = [b'T'; 30];
        stamp[..10].copy_from_slice(date);
        stamp[11..11 + time.len()].copy_from_slice(time);
        stamp[11 + time.len()] = b'Z';
        self.iso(&stamp[..12 + time.len()])
    }
}

/// Nanoseconds of the digits after a point, and the value of the last digit. Digits after the ninth
/// are ignored.
pub(super) fn fraction_ns(digits: &[u8]) -> Option<(i64, i64)> {
    let kept = &digits[..digits.len().min(9)];
    if digits.is_empty() {
        return Some((0, NS_PER_S));
    }
    let unit = 10i64.pow(9 - kept.len() as u32);
    Some((super::digits(kept)? * unit, unit))
}

fn cached(
    last: &mut Option<([u8; 19], i64)>,
    second: &[u8; 19],
    seconds: impl Fn(Date, Time) -> Option<i64>,
) -> Option<i64> {
    if let Some((_, seconds)) = last.filter(|(known, _)| known == second) {
        return Some(seconds);
    }
    let s = second;
    if [s[4], s[7], s[13], s[16]] != *b"--::" || !matches!(s[10], b'T' | b't' | b' ') {
        return None;
    }
    let year = two(&s[..2])? * 100 + two(&s[2..4])?;
    let date = (year as i32, two(&s[5..7])?, two(&s[8..10])?);
    let time = (two(&s[11..13])?, two(&s[14..16])?, two(&s[17..])?);
    let seconds = valid(date, time).then(|| seconds(date, time))??;
    *last = Some((*second, seconds));
    Some(seconds)
}

/// The seconds by which a zone is east of Greenwich.
fn east(sign: u8, hours: &[u8], minutes: &[u8]) -> Option<i64> {
    let seconds = i64::from(two(hours)? * 3600 + two(minutes)? * 60);
    // Zones are 12 hours west to 14 hours east.
    let zone = minutes[0] < b'6' && seconds <= ZONE_SECONDS_MAX;
    zone.then_some(if sign == b'-' { -seconds } else { seconds })
}

fn valid((year, month, day): Date, (hour, minute, second): Time) -> bool {
    // 60 is a leap second.
    (1970..=2200).contains(&year)
        && (1..=12).contains(&month)
        && (1..=days_of_month(year, month)).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60
}

/// A custom strftime(3) form, compiled. Only what determines a date and a time is parsed. A form
/// that does not determine them is refused when it is compiled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Strftime {
    parts: Box<[Part]>,
    /// Without a zone in the form: whether it is in UTC; otherwise it is local time.
    utc: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Byte(u8),
    Year,
    Month,
    MonthName,
    /// Two digits, of which the first may be a space.
    Day,
    Hour,
    Minute,
    Second,
    Zone,
    /// Letters without further information: a weekday, the name of the local zone.
    Letters,
    /// Seconds since the epoch.
    Epoch,
}

impl Strftime {
    /// Compiles a form. The error says what is wrong with it.
    pub(super) fn compile(form: &str, utc: bool) -> Result<Strftime, String> {
        let mut parts = Vec::new();
        let mut bytes = form.bytes();
        while let Some(byte) = bytes.next() {
            if byte != b'%' {
                parts.push(Part::Byte(byte));
                continue;
            }
            let time = [Part::Hour, Part::Byte(b':'), Part::Minute, Part::Byte(b':'), Part::Second];
            match bytes.next() {
                Some(b'%') => parts.push(Part::Byte(b'%')),
                Some(b'n') => return Err("%n would break the line".to_owned()),
                Some(b't') => parts.push(Part::Byte(b'\t')),
                Some(b'Y') => parts.push(Part::Year),
                Some(b'm') => parts.push(Part::Month),
                Some(b'b' | b'h') => parts.push(Part::MonthName),
                Some(b'd' | b'e') => parts.push(Part::Day),
                Some(b'H' | b'k') => parts.push(Part::Hour),
                Some(b'M') => parts.push(Part::Minute),
                Some(b'S') => parts.push(Part::Second),
                Some(b'T') => parts.extend(time),
                Some(b'R') => parts.extend(&time[..3]),
                Some(b'F') => {
                    let dash = Part::Byte(b'-');
                    parts.extend([Part::Year, dash, Part::Month, dash, Part::Day]);
                }
                Some(b'z') => parts.push(Part::Zone),
                Some(b'a' | b'Z') => parts.push(Part::Letters),
                Some(b's') => parts.push(Part::Epoch),
                Some(other) => {
                    return Err(format!("%{} is not supported in a time", char::from(other)));
                }
                None => return Err("the time ends in a lone %".to_owned()),
            }
        }
        let has = |part| parts.contains(&part);
        let date = has(Part::Year) && (has(Part::Month) || has(Part::MonthName)) && has(Part::Day);
        let time = has(Part::Hour) && has(Part::Minute) && has(Part::Second);
        let whole = has(Part::Epoch) || date && time;
        if !whole {
            return Err("the time lacks a year, month, day, hour, minute or second".to_owned());
        }
        Ok(Strftime { parts: parts.into(), utc })
    }

    /// The instant, ns since the epoch, and its length in bytes.
    pub(super) fn read(&self, bytes: &[u8]) -> Option<(i64, usize)> {
        let (mut date, mut time) = ((1970, 1, 1), (0, 0, 0));
        let (mut zone, mut epoch) = (None, None);
        let mut at = 0;
        for part in &self.parts {
            let rest = &bytes[at..];
            let number = |length: usize| {
                let digits_of = rest.get(..length)?;
                digits(digits_of.strip_prefix(b" ").unwrap_or(digits_of)).map(|n| n as u32)
            };
            at += match part {
                Part::Byte(byte) => (rest.first() == Some(byte)).then_some(1)?,
                Part::Year => {
                    date.0 = number(4)? as i32;
                    4
                }
                Part::MonthName => {
                    date.1 = month(rest.get(..3)?)?;
                    3
                }
                Part::Month | Part::Day | Part::Hour | Part::Minute | Part::Second => {
                    let place = match part {
                        Part::Month => &mut date.1,
                        Part::Day => &mut date.2,
                        Part::Hour => &mut time.0,
                        Part::Minute => &mut time.1,
                        _ => &mut time.2,
                    };
                    *place = number(2)?;
                    2
                }
                Part::Zone => {
                    let [sign @ (b'+' | b'-'), h1, h2, m1, m2, ..] = rest else { return None };
                    zone = Some(east(*sign, &[*h1, *h2], &[*m1, *m2])?);
                    5
                }
                Part::Letters => rest.iter().take_while(|b| b.is_ascii_alphabetic()).count(),
                Part::Epoch => {
                    let length = rest.iter().take_while(|b| b.is_ascii_digit()).count();
                    epoch = Some(digits(&rest[..length])?);
                    length
                }
            };
        }
        let seconds = match (epoch, zone) {
            (Some(epoch), _) => epoch,
            (None, Some(east)) => Stamps::utc_seconds(date, time)? - east,
            (None, None) if self.utc => Stamps::utc_seconds(date, time)?,
            (None, None) => Stamps::local_seconds(date, time)?,
        };
        (seconds <= SECONDS_MAX).then_some((seconds * NS_PER_S, at))
    }
}

/// Whether a line has something like a date that does not exist: `29/Feb/2027`, `2027-02-29`.
pub(super) fn has_impossible_date(line: &[u8]) -> bool {
    let impossible = |year: &[u8], month: Option<u32>, day: &[u8]| {
        let year = digits(year).filter(|year| (1970..=2200).contains(year));
        let date = year.zip(month).zip(two(day));
        date.is_some_and(|((year, month), day)| !valid((year as i32, month, day), (0, 0, 0)))
    };
    line.windows(11).any(|w| match w {
        [d1, d2, b'/', m1, m2, m3, b'/', year @ ..] => {
            impossible(year, month(&[*m1, *m2, *m3]), &[*d1, *d2])
        }
        [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2, b'T'] => {
            impossible(&[*y1, *y2, *y3, *y4], two(&[*m1, *m2]), &[*d1, *d2])
        }
        _ => false,
    })
}

fn days_of_month(year: i32, month: u32) -> u32 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn utc(date: Date, time: Time) -> i64 {
    units::civil::days(date) * 86_400 + i64::from(time.0 * 3600 + time.1 * 60 + time.2)
}

/// The number of a month by its short English name.
pub(super) fn month(name: &[u8]) -> Option<u32> {
    const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    MONTHS.chunks(3).position(|month| month == name).map(|at| at as u32 + 1)
}

/// Hour, minute, second.
pub(super) type Time = (u32, u32, u32);

/// `10/Oct/2000:13:55:36`.
fn civil(stamp: &[u8]) -> Option<(Date, Time)> {
    let marks = [stamp[2], stamp[6], stamp[11], stamp[14], stamp[17]];
    if marks != *b"//:::" {
        return None;
    }
    let year = two(&stamp[7..9])? * 100 + two(&stamp[9..11])?;
    let date = (year as i32, month(&stamp[3..6])?, two(&stamp[..2])?);
    let time = (two(&stamp[12..14])?, two(&stamp[15..17])?, two(&stamp[18..20])?);
    valid(date, time).then_some((date, time))
}

fn two(bytes: &[u8]) -> Option<u32> {
    match bytes {
        [a, b] if a.is_ascii_digit() && b.is_ascii_digit() => {
            Some(u32::from(a - b'0') * 10 + u32::from(b - b'0'))
        }
        _ => None,
    }
}
