//! Times in a custom strftime(3) form.
//!
//! Only what determines a date and a time is parsed. A form that does not determine them is refused
//! when it is compiled.

use super::stamp::{east, month};
use super::{NS_PER_S, SECONDS_MAX, Stamps, digits};

/// A compiled form.
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
