//! The times that logs hold in words: `10/Oct/2000:13:55:36 -0700` and its kin.
//!
//! Thousands of lines share a second, so the last one worked out is kept.

use super::{NS_PER_MS, NS_PER_S};
use crate::clock;

/// Works out stamps, and remembers the last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stamps {
    zoned: Option<([u8; 26], i64)>,
    local: Option<([u8; 20], i64)>,
}

impl Stamps {
    /// Seconds since the epoch of `10/Oct/2000:13:55:36 -0700`.
    pub(super) fn zoned(&mut self, stamp: &[u8]) -> Option<i64> {
        let stamp: &[u8; 26] = stamp.try_into().ok()?;
        if let Some((_, seconds)) = self.zoned.filter(|(last, _)| last == stamp) {
            return Some(seconds);
        }
        let (date, time) = civil(&stamp[..20])?;
        let sign = match &stamp[20..22] {
            b" +" => 1,
            b" -" => -1,
            _ => return None,
        };
        let (hours, minutes) = (two(&stamp[22..24])?, two(&stamp[24..26])?);
        let east = sign * i64::from(hours * 3600 + minutes * 60);
        let seconds = days_since_epoch(date) * 86_400
            + i64::from(time.0 * 3600 + time.1 * 60 + time.2)
            - east;
        self.zoned = Some((*stamp, seconds));
        Some(seconds)
    }

    /// Nanoseconds since the epoch of `06/Feb/2009:12:14:14.655`, in local time.
    pub(super) fn local_ms(&mut self, stamp: &[u8]) -> Option<i64> {
        let stamp: &[u8; 24] = stamp.try_into().ok()?;
        let (second, fraction) = stamp.split_first_chunk::<20>()?;
        let milliseconds = super::digits(fraction.strip_prefix(b".")?)?;
        let seconds = match self.local.filter(|(last, _)| last == second) {
            Some((_, seconds)) => seconds,
            None => {
                let (date, time) = civil(second)?;
                let seconds = clock::local_to_unix(date, time)?;
                self.local = Some((*second, seconds));
                seconds
            }
        };
        Some(seconds * NS_PER_S + milliseconds * NS_PER_MS)
    }
}

/// Year, month from 1, day from 1.
type Date = (i32, u32, u32);
/// Hour, minute, second.
type Time = (u32, u32, u32);

/// `10/Oct/2000:13:55:36`.
fn civil(stamp: &[u8]) -> Option<(Date, Time)> {
    const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let marks = [stamp[2], stamp[6], stamp[11], stamp[14], stamp[17]];
    if marks != *b"//:::" {
        return None;
    }
    let month = MONTHS.chunks(3).position(|name| name == &stamp[3..6])? as u32 + 1;
    let year = two(&stamp[7..9])? * 100 + two(&stamp[9..11])?;
    let day = two(&stamp[..2])?;
    let time = (two(&stamp[12..14])?, two(&stamp[15..17])?, two(&stamp[18..20])?);
    // 60 is a leap second.
    let valid = (1..=31).contains(&day)
        && (1970..=2200).contains(&year)
        && time.0 < 24
        && time.1 < 60
        && time.2 <= 60;
    valid.then_some(((year as i32, month, day), time))
}

fn two(bytes: &[u8]) -> Option<u32> {
    match bytes {
        [a, b] if a.is_ascii_digit() && b.is_ascii_digit() => {
            Some(u32::from(a - b'0') * 10 + u32::from(b - b'0'))
        }
        _ => None,
    }
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar: years begin in March, so that the
/// leap day is the last of its year, and 400 years have 146,097 days.
fn days_since_epoch((year, month, day): Date) -> i64 {
    let year = i64::from(year) - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * i64::from((month + 9) % 12) + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}
