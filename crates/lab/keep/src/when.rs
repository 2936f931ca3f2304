//! When something was, in an operator's words: "yesterday", "last week", "3 days ago".

use crate::calendar::{Day, Zone};

/// What is accepted, for messages and for the help.
pub const ACCEPTED: &str = "a date (2026-11-28), a date and time (\"2026-11-28 14:30\"), two of \
them (2026-11-20..2026-11-26), today, yesterday, a day of the week (monday), \"this week\", \"last \
week\", \"this month\", \"last month\", or \"3 days ago\" (hours, days, weeks)";

/// A span of time, seconds since the epoch: from, up to.
pub type Span = (i64, i64);

const WEEKDAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// The longest time ago: a number beyond it is a typing error.
const AGO_MAX: i64 = 10_000;

/// The span that a text means. A week begins on Monday, and a day of the week is the last one that
/// has begun. "3 days ago" is the whole day.
///
/// # Errors
/// The text is not understood: what is accepted.
pub fn span(text: &str, zone: Zone, now_s: i64) -> Result<Span, String> {
    let refused = || format!("{text:?} is not a time: write {ACCEPTED}");
    if let Some((from, to)) = text.split_once("..") {
        let (from, to) = (one(from, zone, now_s), one(to, zone, now_s));
        let ((from_s, _), (_, to_s)) = from.zip(to).ok_or_else(refused)?;
        return match from_s < to_s {
            true => Ok((from_s, to_s)),
            false => Err(format!("{text:?} ends before it begins")),
        };
    }
    one(text, zone, now_s).ok_or_else(refused)
}

fn one(text: &str, zone: Zone, now_s: i64) -> Option<Span> {
    let text = text.trim().to_ascii_lowercase();
    let today = zone.day(now_s);
    let days = |from: Day, to: Day| Some((zone.begin_s(from), zone.begin_s(to)));
    let day = |day: Day| days(day, day.plus(1));
    let monday = today.plus(-today.weekday());
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        ["today"] => day(today),
        ["yesterday"] => day(today.plus(-1)),
        ["this", "week"] => days(monday, monday.plus(7)),
        ["last", "week"] => days(monday.plus(-7), monday),
        ["this", "month"] => days(month(today, 0)?, month(today, 1)?),
        ["last", "month"] => days(month(today, -1)?, month(today, 0)?),
        [name] | ["last" | "on", name] if WEEKDAYS.contains(name) => {
            let number = WEEKDAYS.iter().position(|weekday| weekday == name)? as i64;
            day(today.plus(-(today.weekday() - number).rem_euclid(7)))
        }
        [number, unit, "ago"] => {
            let number: i64 = match *number {
                "a" | "an" | "one" => 1,
                number => number.parse().ok().filter(|number| (0..=AGO_MAX).contains(number))?,
            };
            match unit.strip_suffix('s').unwrap_or(unit) {
                "hour" => Some((now_s - 3600 * number, now_s - 3600 * (number - 1))),
                "day" => day(today.plus(-number)),
                "week" => days(monday.plus(-7 * number), monday.plus(7 - 7 * number)),
                _ => None,
            }
        }
        [date] => day(Day::parse(date)?),
        [date, time] => {
            let (hour, minute) = time.split_once(':')?;
            let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
            let at_s = zone.at_s(Day::parse(date)?, hour, minute);
            (hour < 24 && minute < 60).then_some((at_s, at_s + 60))
        }
        _ => None,
    }
}

/// The first day of a month: of this one for 0.
fn month(today: Day, months: i32) -> Option<Day> {
    let (year, month, _) = today.date();
    let counted = year * 12 + month as i32 - 1 + months;
    Day::of_date(counted.div_euclid(12), counted.rem_euclid(12) as u32 + 1, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: Zone = Zone::Fixed(3600);

    fn meaning(text: &str) -> Result<String, String> {
        // A Saturday, 14:05.
        let now_s = ZONE.at_s(Day::parse("2026-11-28").unwrap(), 14, 5);
        span(text, ZONE, now_s).map(|(from, to)| format!("{} {}", ZONE.text(from), ZONE.text(to)))
    }

    #[test]
    fn the_words_of_an_operator() {
        for (text, meant) in [
            ("today", "2026-11-28 00:00 2026-11-29 00:00"),
            ("Yesterday", "2026-11-27 00:00 2026-11-28 00:00"),
            ("last week", "2026-11-16 00:00 2026-11-23 00:00"),
            ("this week", "2026-11-23 00:00 2026-11-30 00:00"),
            ("last month", "2026-10-01 00:00 2026-11-01 00:00"),
            ("this month", "2026-11-01 00:00 2026-12-01 00:00"),
            ("monday", "2026-11-23 00:00 2026-11-24 00:00"),
            ("last saturday", "2026-11-28 00:00 2026-11-29 00:00"),
            ("3 days ago", "2026-11-25 00:00 2026-11-26 00:00"),
            ("a week ago", "2026-11-16 00:00 2026-11-23 00:00"),
            ("2 weeks ago", "2026-11-09 00:00 2026-11-16 00:00"),
            ("2 hours ago", "2026-11-28 12:05 2026-11-28 13:05"),
            ("2026-11-20", "2026-11-20 00:00 2026-11-21 00:00"),
            ("2026-11-20 09:30", "2026-11-20 09:30 2026-11-20 09:31"),
            ("2026-11-20..2026-11-22", "2026-11-20 00:00 2026-11-23 00:00"),
            ("last week..yesterday", "2026-11-16 00:00 2026-11-28 00:00"),
        ] {
            assert_eq!(meaning(text).as_deref(), Ok(meant), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_names_what_is() {
        for wrong in
            ["", "soon", "last year", "-3 days ago", "3 days", "2026-02-30", "28.11.2026", "1..2"]
        {
            let error = meaning(wrong).unwrap_err();
            assert!(
                error.contains("last week") && error.contains("2026-11-28"),
                "{wrong}: {error}"
            );
        }
        assert!(meaning("yesterday..2026-11-01").unwrap_err().contains("ends before"));
        assert!(meaning("2026-11-20 24:00").is_err() && meaning("99999 days ago").is_err());
    }
}
