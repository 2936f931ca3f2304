//! Days of the calendar, and where they begin in a time zone.
//!
//! A day begins at midnight of the local time, as an operator expects of "yesterday". On a machine
//! whose time zone is UTC, that is midnight UTC. The zone is the process's: `TZ`, or
//! `/etc/localtime`. No clock is read here.

use std::fmt;

use serde::{Serialize, Serializer};
use units::civil::{self, Date};

/// Seconds of a day in UTC.
pub const DAY_S: i64 = 86_400;

/// A day, counted from 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(i64);

impl Day {
    /// The day of a date; `None` if there is no such date.
    #[must_use]
    pub fn of_date(year: i32, month: u32, day: u32) -> Option<Day> {
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        let found = Day(civil::days((year, month, day)));
        (found.date() == (year, month, day)).then_some(found)
    }

    /// The year, the month and the day.
    #[must_use]
    pub fn date(self) -> Date {
        civil::date(self.0)
    }

    /// A date such as `2026-11-28`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Day> {
        let bytes = text.as_bytes();
        let plain = |(at, byte): (usize, &u8)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        };
        if bytes.len() != 10 || !bytes.iter().enumerate().all(plain) {
            return None;
        }
        Day::of_date(text[..4].parse().ok()?, text[5..7].parse().ok()?, text[8..].parse().ok()?)
    }

    /// The day that many days later, or earlier.
    #[must_use]
    pub fn plus(self, days: i64) -> Day {
        Day(self.0.saturating_add(days))
    }

    /// How many days it is after another one.
    #[must_use]
    pub fn since(self, other: Day) -> i64 {
        self.0 - other.0
    }

    /// 0 for Monday to 6 for Sunday.
    #[must_use]
    pub fn weekday(self) -> i64 {
        // 1970-01-01 was a Thursday.
        (self.0 + 3).rem_euclid(7)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.date();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// That of this process.
    Local,
    /// Local time is this many seconds ahead of UTC.
    Fixed(i64),
}

impl Zone {
    /// When a time of a day is, seconds since the epoch.
    #[must_use]
    pub fn at_s(self, day: Day, hour: u32, minute: u32) -> i64 {
        let utc_s = day.0 * DAY_S + i64::from(hour) * 3600 + i64::from(minute) * 60;
        match self {
            Zone::Fixed(ahead_s) => utc_s - ahead_s,
            Zone::Local => logs::local_to_unix(day.date(), (hour, minute, 0)).unwrap_or(utc_s),
        }
    }

    /// When a day begins, seconds since the epoch.
    #[must_use]
    pub fn begin_s(self, day: Day) -> i64 {
        self.at_s(day, 0, 0)
    }

    /// The day of an instant.
    #[must_use]
    pub fn day(self, unix_s: i64) -> Day {
        // No zone is further than a day from UTC.
        let utc = Day(unix_s.div_euclid(DAY_S));
        let begun = |day: &Day| self.begin_s(*day) <= unix_s;
        [utc.plus(1), utc, utc.plus(-1)].into_iter().find(begun).unwrap_or(utc.plus(-1))
    }

    /// An instant as an operator writes it: `2026-11-28 14:05`.
    #[must_use]
    pub fn text(self, unix_s: i64) -> String {
        let day = self.day(unix_s);
        let minutes = (unix_s - self.begin_s(day)) / 60;
        format!("{day} {:02}:{:02}", minutes / 60, minutes % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_days_agree() {
        assert_eq!(Day::of_date(1970, 1, 1), Some(Day(0)));
        assert_eq!(Day::parse("2026-11-28").unwrap().to_string(), "2026-11-28");
        // A Saturday.
        assert_eq!(Day::parse("2026-11-28").unwrap().weekday(), 5);
        let mut day = Day::parse("1999-12-30").unwrap();
        for _ in 0..20_000 {
            let (year, month, number) = day.date();
            assert_eq!(Day::of_date(year, month, number), Some(day));
            assert!(day.plus(1) > day && day.plus(1).since(day) == 1);
            day = day.plus(1);
        }
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for wrong in ["2026-02-29", "2026-13-01", "2026-1-1", "26-01-01", "2026-11-28x", "", "é"] {
            assert_eq!(Day::parse(wrong), None, "{wrong}");
        }
        assert!(Day::parse("2028-02-29").is_some());
    }

    #[test]
    fn a_day_begins_at_its_midnight() {
        let day = Day::parse("2026-11-28").unwrap();
        for zone in [Zone::Fixed(0), Zone::Fixed(14 * 3600), Zone::Fixed(-12 * 3600), Zone::Local] {
            let begin_s = zone.begin_s(day);
            assert_eq!(zone.day(begin_s), day);
            assert_eq!(zone.day(begin_s - 1), day.plus(-1));
            assert_eq!(zone.day(begin_s + DAY_S / 2), day);
        }
        assert_eq!(Zone::Fixed(3600).text(0), "1970-01-01 01:00");
    }
}
