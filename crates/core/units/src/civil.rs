//! Days as dates of the Gregorian calendar, without a clock or a time zone (Hinnant, "chrono-
//! compatible low-level date algorithms"). A year begins in March here, so that the leap day is its
//! last day; 400 years have 146,097 days.

/// Year, month from 1, day from 1.
pub type Date = (i32, u32, u32);

/// The days between 0000-03-01, where the first era of 400 years begins, and 1970-01-01.
const DAYS_BEFORE_1970: i64 = 719_468;
const DAYS_OF_ERA: i64 = 146_097;

/// The number of a date's day: 0 is 1970-01-01. A day that the month does not have is one of the
/// next month.
#[must_use]
#[inline]
pub fn days((year, month, day): Date) -> i64 {
    debug_assert!((1..=12).contains(&month), "a year has twelve months");
    let year = i64::from(year) - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * i64::from((month + 9) % 12) + 2) / 5 + i64::from(day) - 1;
    era * DAYS_OF_ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - DAYS_BEFORE_1970
}

/// The date of a day, the inverse of [`days`]. A year beyond `i32` is its nearest year.
#[must_use]
pub fn date(days: i64) -> Date {
    let shifted = days.saturating_add(DAYS_BEFORE_1970);
    let (era, of_era) = (shifted.div_euclid(DAYS_OF_ERA), shifted.rem_euclid(DAYS_OF_ERA));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    debug_assert!((1..=12).contains(&month) && (1..=31).contains(&day));
    let year = era * 400 + year + i64::from(month <= 2);
    (year.clamp(i32::MIN.into(), i32::MAX.into()) as i32, month as u32, day as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_days_agree() {
        for (of, number) in [
            ((1970, 1, 1), 0),
            ((1969, 12, 31), -1),
            ((2000, 2, 29), 11_016),
            ((2026, 11, 28), 20_785),
            ((0, 3, 1), -719_468),
        ] {
            assert_eq!((days(of), date(number)), (number, of));
        }
        assert!((-800_000..800_000).all(|day| days(date(day)) == day));
    }

    #[test]
    fn the_ends_of_time_have_a_date() {
        assert_eq!(date(i64::MAX).0, i32::MAX);
        assert_eq!(date(i64::MIN).0, i32::MIN);
    }
}
