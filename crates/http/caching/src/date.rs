//! HTTP dates (RFC 9110, 5.6.7): parses three formats, writes one.
//!
//! Strict in form but not in letter case, which origins get wrong without ambiguity. The weekday is
//! not checked against the date. Everything else must follow the grammar exactly. Times are unix
//! milliseconds; dates have whole seconds. Dates before 1970 count as 1970, because to a cache both
//! are simply long ago.

/// The length of an IMF-fixdate.
pub const IMF_FIXDATE_LEN: usize = 29;

const DAYS: [&[u8; 3]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];
const LONG_DAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// Parses a date in any of the three formats to unix milliseconds. `now_ms` determines the century
/// of the two-digit years of RFC 850: a date more than 50 years ahead is in the past.
#[must_use]
pub fn parse(value: &[u8], now_ms: u64) -> Option<u64> {
    let value = crate::fields::trim(value);
    let parts = match value.get(3) {
        Some(b',') => imf_fixdate(value),
        Some(b' ') => asctime(value),
        Some(_) => rfc850(value, now_ms),
        None => None,
    }?;
    parts.to_ms()
}

/// Formats unix milliseconds as `Sun, 06 Nov 1994 08:49:37 GMT`. Later times give the end of the
/// year 9999.
#[must_use]
pub fn format(unix_ms: u64) -> [u8; IMF_FIXDATE_LEN] {
    let seconds = (unix_ms / 1000).min(LAST_SECOND);
    let (days, second_of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_from_days(days);
    let mut out = *b"Day, 00 Mon 0000 00:00:00 GMT";
    out[..3].copy_from_slice(DAYS[((days + 3) % 7) as usize]);
    two_digits(&mut out[5..7], day);
    out[8..11].copy_from_slice(MONTHS[(month - 1) as usize]);
    two_digits(&mut out[12..14], year / 100);
    two_digits(&mut out[14..16], year % 100);
    two_digits(&mut out[17..19], second_of_day / 3600);
    two_digits(&mut out[20..22], second_of_day / 60 % 60);
    two_digits(&mut out[23..25], second_of_day % 60);
    out
}

/// 31 December 9999, 23:59:59: the last second with a four-digit year.
const LAST_SECOND: u64 = 253_402_300_799;

fn two_digits(out: &mut [u8], value: u64) {
    out[0] = b'0' + (value / 10) as u8;
    out[1] = b'0' + (value % 10) as u8;
}

struct Parts {
    year: u32,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

impl Parts {
    fn to_ms(&self) -> Option<u64> {
        let in_range = (1..=12).contains(&self.month)
            && (1..=days_in_month(self.year, self.month)).contains(&self.day)
            && self.hour < 24
            && self.minute < 60
            // A leap second is written as 60 and counts as the second before it.
            && self.second <= 60;
        if !in_range {
            return None;
        }
        let days = days_from_civil(self.year, self.month, self.day);
        let seconds =
            days * 86_400 + i64::from(self.hour * 3600 + self.minute * 60 + self.second.min(59));
        Some(u64::try_from(seconds).unwrap_or(0).saturating_mul(1000))
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn imf_fixdate(value: &[u8]) -> Option<Parts> {
    let value: &[u8; IMF_FIXDATE_LEN] = value.try_into().ok()?;
    let spaced = value[4] == b' ' && value[7] == b' ' && value[11] == b' ' && value[16] == b' ';
    if !spaced || !is_day(&value[..3]) || !is_gmt(&value[25..]) {
        return None;
    }
    let (hour, minute, second) = time(&value[17..25])?;
    let year = number(&value[12..16])?;
    let (day, month) = (number(&value[5..7])?, month(&value[8..11])?);
    Some(Parts { year, month, day, hour, minute, second })
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(value: &[u8]) -> Option<Parts> {
    let value: &[u8; 24] = value.try_into().ok()?;
    let spaced = value[7] == b' ' && value[10] == b' ' && value[19] == b' ';
    if !spaced || !is_day(&value[..3]) {
        return None;
    }
    let day = if value[8] == b' ' { number(&value[9..10])? } else { number(&value[8..10])? };
    let (hour, minute, second) = time(&value[11..19])?;
    let (month, year) = (month(&value[4..7])?, number(&value[20..24])?);
    Some(Parts { year, month, day, hour, minute, second })
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn rfc850(value: &[u8], now_ms: u64) -> Option<Parts> {
    let comma = value.iter().position(|&byte| byte == b',')?;
    let day_name = &value[..comma];
    if !LONG_DAYS.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(day_name)) {
        return None;
    }
    let value: &[u8; 23] = value[comma + 1..].try_into().ok()?;
    let spaced = value[0] == b' ' && value[3] == b'-' && value[7] == b'-' && value[10] == b' ';
    if !spaced || !is_gmt(&value[19..]) {
        return None;
    }
    let (hour, minute, second) = time(&value[11..19])?;
    let (this_year, _, _) = civil_from_days(now_ms / 86_400_000);
    let this_year = this_year as u32;
    let mut year = this_year - this_year % 100 + number(&value[8..10])?;
    if year > this_year + RFC850_YEARS_AHEAD_MAX {
        year -= 100;
    }
    let (day, month) = (number(&value[1..3])?, month(&value[4..7])?);
    Some(Parts { year, month, day, hour, minute, second })
}

/// RFC 9110, 5.6.7: more than 50 years in the future is in the past.
const RFC850_YEARS_AHEAD_MAX: u32 = 50;

/// ` GMT`
fn is_gmt(zone: &[u8]) -> bool {
    matches!(zone, [b' ', name @ ..] if place(&[b"GMT"], name).is_some())
}

fn is_day(name: &[u8]) -> bool {
    place(&DAYS, name).is_some()
}

fn month(name: &[u8]) -> Option<u32> {
    place(&MONTHS, name).map(|at| at as u32 + 1)
}

/// Where a name of three letters is in a list, whatever its letter case. Of all bytes only the two
/// cases of a letter become the same with this bit set.
fn place(names: &[&[u8; 3]], name: &[u8]) -> Option<usize> {
    const LOWER_CASE: u32 = 0x0020_2020;
    let as_number = |&[a, b, c]: &[u8; 3]| u32::from_le_bytes([a, b, c, 0]) | LOWER_CASE;
    let name = as_number(name.try_into().ok()?);
    names.iter().position(|known| as_number(known) == name)
}

/// `08:49:37`
#[inline]
fn time(value: &[u8]) -> Option<(u32, u32, u32)> {
    if value[2] != b':' || value[5] != b':' {
        return None;
    }
    Some((number(&value[..2])?, number(&value[3..5])?, number(&value[6..8])?))
}

#[inline]
fn number(digits: &[u8]) -> Option<u32> {
    let mut value = 0;
    for &byte in digits {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u32::from(byte - b'0');
    }
    Some(value)
}

fn days_in_month(year: u32, month: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => {
            29
        }
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days of 400 years.
const DAYS_OF_ERA: u64 = 146_097;
/// Days from 1 March of the year 0 to 1970.
const DAYS_BEFORE_1970: u64 = 719_468;

/// Days since 1970-01-01 of a date of the Gregorian calendar (Hinnant, "chrono-compatible
/// low-level date algorithms": years begin in March so that the leap day comes last).
fn days_from_civil(year: u32, month: u32, day: u32) -> i64 {
    // One era later, so that no number is below zero.
    let year = u64::from(year) + 400 - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = u64::from((153 * ((month + 9) % 12) + 2) / 5 + day - 1);
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * DAYS_OF_ERA + day_of_era) as i64 - (DAYS_OF_ERA + DAYS_BEFORE_1970) as i64
}

/// The inverse, for days since 1970.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + DAYS_BEFORE_1970;
    let (era, day_of_era) = (shifted / DAYS_OF_ERA, shifted % DAYS_OF_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 2026-11-21 20:00:00
    const NOW_MS: u64 = 1_795_291_200_000;
    const EXAMPLE_MS: u64 = 784_111_777_000;

    #[test]
    fn rfc9110_5_6_7_three_formats() {
        for value in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "SUN, 06 nov 1994 08:49:37 gMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "  Sun, 06 Nov 1994 08:49:37 GMT\t",
        ] {
            assert_eq!(parse(value.as_bytes(), NOW_MS), Some(EXAMPLE_MS), "{value}");
        }
        let asctime = parse(b"Thu Aug 18 02:01:18 2050", NOW_MS);
        assert_eq!(asctime, parse(b"Thu, 18 Aug 2050 02:01:18 GMT", NOW_MS));
        assert_eq!(parse(b"Sun, 21 Nov 2286 04:46:39 GMT", NOW_MS), Some(10_000_039_599_000));
        assert_eq!(parse(b"Fri, 31 Dec 1999 23:59:60 GMT", NOW_MS), Some(946_684_799_000));
        assert_eq!(parse(b"Wed, 31 Dec 1969 23:59:59 GMT", NOW_MS), Some(0));
    }

    #[test]
    fn rfc9110_5_6_7_years_of_two_digits_lie_within_fifty_years() {
        let year = |value: &str| {
            let ms = parse(value.as_bytes(), NOW_MS).expect("a date");
            civil_from_days(ms / 86_400_000).0
        };
        assert_eq!(year("Thursday, 18-Aug-50 02:01:18 GMT"), 2050);
        assert_eq!(year("Thursday, 18-Aug-76 02:01:18 GMT"), 2076);
        assert_eq!(year("Thursday, 18-Aug-77 02:01:18 GMT"), 1977);
        assert_eq!(year("Thursday, 18-Aug-26 02:01:18 GMT"), 2026);
    }

    #[test]
    fn what_is_no_date() {
        for value in [
            "",
            "0",
            "-1",
            "Thu, 18 Aug 2050 02:01:18 UTC",
            "Thu, 18 Aug 2050 02:01:18 AEST",
            "Thu, 18 Aug 2050 02:01:18",
            "Thu, 18 Aug 50 02:01:18 GMT",
            "Thu 18 Aug 2050 02:01:18 GMT",
            "Thu, 18  Aug  2050 02:01:18 GMT",
            "Thu, 18-Aug-2050 02:01:18 GMT",
            "Thu, 18 Aug 2050 02.01.18 GMT",
            "Thu, 18 Aug 2050 2:01:18 GMT",
            "Thu, 32 Aug 2050 02:01:18 GMT",
            "Thu, 00 Aug 2050 02:01:18 GMT",
            "Tue, 29 Feb 2100 02:01:18 GMT",
            "Thu, 18 Aug 2050 24:01:18 GMT",
            "Thu, 18 Aug 2050 02:60:18 GMT",
            "Thu, 18 Aug 2050 02:01:61 GMT",
            "Thu, 18 Aux 2050 02:01:18 GMT",
            "Thx, 18 Aug 2050 02:01:18 GMT",
            "Thur, 06-Nov-94 08:49:37 GMT",
        ] {
            assert_eq!(parse(value.as_bytes(), NOW_MS), None, "{value}");
        }
    }

    #[test]
    fn the_last_second_is_the_last() {
        assert_eq!(&format(u64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }

    proptest! {
        #[test]
        fn agrees_with_another_implementation(seconds in 0u64..=LAST_SECOND) {
            let ours = format(seconds * 1000 + seconds % 1000);
            let system = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            let theirs = httpdate::fmt_http_date(system);
            prop_assert_eq!(std::str::from_utf8(&ours), Ok(theirs.as_str()));
            prop_assert_eq!(parse(&ours, NOW_MS), Some(seconds * 1000));
        }

        #[test]
        fn any_bytes_may_come(
            mut value in proptest::collection::vec(any::<u8>(), 0..40),
            at in 0usize..29, byte in any::<u8>(), now in any::<u64>(),
        ) {
            let _ = parse(&value, now);
            for good in [&b"Sun, 06 Nov 1994 08:49:37 GMT"[..], b"Sunday, 06-Nov-94 08:49:37 GMT",
                b"Sun Nov  6 08:49:37 1994"]
            {
                value = good.to_vec();
                value[at % good.len()] = byte;
                let _ = parse(&value, now);
            }
        }
    }
}
